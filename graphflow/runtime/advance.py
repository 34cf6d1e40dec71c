"""The fold: `advance(fact) -> (decisions, commands)`.

No clock, no random, no I/O and no await: the same facts give the same decisions, live, on resume, in replay and in
tests. Everything else is a fold over its events.
"""

from __future__ import annotations

from typing import Any, assert_never

from graphflow.errors import InternalError
from graphflow.events import (
    AnswerGiven,
    BudgetAdded,
    CancelRequested,
    Decision,
    EffectFinished,
    EffectRequested,
    Emitted,
    Fact,
    HookAnswered,
    NodeReturned,
    RunEnded,
    RunStarted,
    SessionStarted,
    SleepRequested,
    TimerFired,
    Warned,
)
from graphflow.graphs.graph import Graph
from graphflow.graphs.pricing import Prices, by_agent
from graphflow.model.context import Context
from graphflow.model.thread import Thread
from graphflow.runtime.agents import Agents
from graphflow.runtime.calls import Calls
from graphflow.runtime.clockwork import Clockwork
from graphflow.runtime.commands import Command, EndRun
from graphflow.runtime.failures import Failures
from graphflow.runtime.halting import Halting
from graphflow.runtime.hops import Hops
from graphflow.runtime.nesting import has_views
from graphflow.runtime.scopes import Scopes
from graphflow.runtime.tables import Standing
from graphflow.runtime.visits import Visits
from graphflow.runtime.watching import Watching


class Fold(Hops, Visits, Agents, Scopes, Calls, Failures, Halting, Clockwork, Watching):
    """One run's state, advanced by facts."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph[Any]) -> None:
        """Begin before the first fact."""
        super().__init__()
        self.graph = graph

    def advance(self, fact: Fact, at: float) -> tuple[list[Decision], list[Command]]:
        """Decide what a fact means.

        Args:
            fact: what happened.
            at: when, in active seconds since the run began.

        Returns:
            The decisions, to be recorded with the fact, and the commands, to be carried out once they are.

        Raises:
            InternalError: if the state is one that should never be reached.
        """
        decisions: list[Decision] = []
        commands: list[Command] = []
        self.decisions, self.commands = decisions, commands
        ended = self.ended
        if ended is not None and ended.status != "waiting" and not self._takes_up(fact):
            return decisions, commands
        self.at = at
        if at > self.deadline:
            self.run_overdue()
        if self.halted is not None:
            self.while_halted(fact, self.halted)
        elif type(fact) is NodeReturned:
            if not self.hops_on(fact):
                self.node_returned(fact)
        elif type(fact) is EffectFinished:
            self.effect_finished(fact)
        else:
            self.take_in(fact)
        agenda = self.agenda
        while agenda and self.halted is None:
            agenda.popleft()()
        if self.halted is not None:
            self.hold_up(self.halted)
        elif self.unfunded or self.timed_frames or not self.busy:
            self._settle()
        return decisions, commands

    def _takes_up(self, fact: Fact) -> bool:
        """Tell whether a fact can matter to a run that has ended: to one that a bound has stopped."""
        return self.halted is not None and isinstance(fact, SessionStarted | BudgetAdded)

    def take_in(self, fact: Fact) -> None:
        """Do what one fact means."""
        match fact:
            case NodeReturned():
                self.node_returned(fact)
            case RunStarted():
                self._started(fact)
            case SessionStarted():
                self.priced(fact.prices)
                self.session_started()
            case BudgetAdded():
                self.budget_added(fact)
            case EffectRequested():
                self.effect_requested(fact)
            case EffectFinished():
                self.effect_finished(fact)
            case SleepRequested():
                self.sleep_requested(fact)
            case TimerFired():
                self.timer_fired(fact)
            case HookAnswered():
                self.hook_answered(fact)
            case AnswerGiven():
                self.answered(fact.question, fact.value)
            case CancelRequested():
                self.cancel_requested(fact)
            case Emitted() | Warned():
                pass  # said for whoever listens; nothing follows from it
            case _:
                assert_never(fact)

    def _started(self, fact: RunStarted) -> None:
        if not isinstance(fact.context, Context):
            msg = f"a run of {fact.graph!r} started with a context of type {type(fact.context).__name__}"
            raise InternalError(msg)
        self.max_parallel = fact.max_parallel
        self.hooked = fact.hooked
        self.edition = fact.edition
        self.stored = bool(fact.fingerprint)
        self.views = fact.edition > 0 and has_views(self.graph.compiled, chat=fact.after is not None)
        self.priced(fact.prices)
        self.queues = fact.hooked or fact.max_parallel is not None
        if fact.budget.seconds is not None:
            self.seconds = fact.budget.seconds
            self.set_deadline(self.seconds)
        self.open_root(self.graph, fact.context, fact.budget, fact.after)

    def priced(self, prices: Prices | None) -> None:
        """Go by these prices from now on, if there are any given."""
        if prices is not None:
            self.prices = by_agent(self.graph, prices) if prices else {}

    def _settle(self) -> None:
        """Look after those who wait, and say so when the run waits for people alone."""
        progress = True
        while progress and self.unfunded:
            before = len(self.unfunded)
            self.review_unfunded()
            while self.agenda and self.halted is None:
                self.agenda.popleft()()
            if self.halted is not None:
                self.hold_up(self.halted)
                return
            progress = len(self.unfunded) < before
        if self.timed_frames:
            self.review_call_timers()
        if self.busy or self.ended is not None:
            return
        if any(visit.standing is Standing.PAUSED for visit in self.visits.values()):
            self.ended = RunEnded("waiting")
            self.decisions.append(self.ended)
            self.commands.append(EndRun())
        else:
            raise self.stalled()

    @property
    def thread(self) -> Thread:
        """What was said in the root's own thread."""
        log = None if self.root is None else self.root.thread
        return () if log is None else tuple(log.items)

    @property
    def active(self) -> str | None:
        """The agent that spoke last in the root's own thread."""
        log = None if self.root is None else self.root.thread
        return None if log is None else log.active
