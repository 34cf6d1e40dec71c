"""A run that a bound has stopped stands still, and goes on given more; a run that was broken off is taken up again.

Both leave every table of the fold as it is. What ran is entered again at the start of its turn: a body is given the
same turn and attempt, an agent's call is made again under the same identity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from graphflow.events import (
    BudgetAdded,
    CancelRequested,
    EffectFinished,
    Emitted,
    Fact,
    Failure,
    HookAnswered,
    NodeReturned,
    SessionStarted,
    Warned,
)
from graphflow.model.budget import ADDITIVE
from graphflow.model.contract import Reason, Report
from graphflow.model.ids import Path
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.commands import AskHook, CancelBody, OpenGroup, SetTimer, StartBody
from graphflow.runtime.core import Core, group_of
from graphflow.runtime.ledger import amounts_of
from graphflow.runtime.tables import Halt, Standing, Visit

RAISABLE: Final = frozenset({"node_runs", "model_calls", "tool_calls", "retries", "tokens", "usd", "seconds"})
"""The bounds that more budget lifts; hops, visits, turns and depth are no budget."""

BODY: Final = ""
"""Stands for a body where calls of agents have their keys."""

BROKEN_OFF: Final = Failure("cancelled", "it was being cancelled when its process ended", (), "cancelled")


class Halting(Core):
    """How a run stands still, and how it is taken up."""

    __slots__ = ()

    # --- standing still ---

    def halt(self, reason: Reason, offers: tuple[Report, ...], again: Callable[[], None] | None) -> None:
        """Let everything stand still at a bound that ends the run; the first one counts."""
        if self.halted is None:
            self.halted = Halt(reason, offers, again)

    def hold_up(self, halted: Halt, fact: Fact | None = None) -> None:
        """Tell what runs to stop; end the run as exhausted when nothing runs any more.

        Args:
            halted: how the run stands still.
            fact: what is looked at now, if it has not been yet: of what has just ended, nothing is left to stop.
        """
        if not halted.begun:
            halted.begun = True
            for visit in tuple(self.visits.values()):
                self._cut_off(visit, halted, fact)
        if not halted.awaited and (self.ended is None or self.ended.status == "waiting"):
            self.finish("exhausted", halted.reason)

    def _cut_off(self, visit: Visit, halted: Halt, fact: Fact | None) -> None:
        keys = self._at_work(visit)
        halted.awaited.update((visit.path, key) for key in keys)
        if not keys or visit.closing is not None or visit.timed_out:
            return  # nothing of it runs, or it is being cancelled already
        self.drop_timer(visit.timer)
        visit.timer = visit.deadline = None  # it gets its time anew
        ended = fact.key if isinstance(fact, EffectFinished) else BODY
        own = isinstance(fact, NodeReturned | EffectFinished) and fact.path == visit.path
        if not own or keys != (ended,):
            self.commands.append(CancelBody(visit.path))

    @staticmethod
    def _at_work(visit: Visit) -> tuple[str, ...]:
        """Return what of a visit runs outside the fold: its body, or the keys of an agent's calls."""
        if visit.standing is not Standing.RUNNING:
            return ()
        if isinstance(visit.station.node, FunctionNode):
            return (BODY,)
        waiting = {getattr(command, "key", "") for command in visit.due or ()}
        return tuple(key for key in visit.flying if key not in waiting)

    def while_halted(self, fact: Fact, halted: Halt) -> None:
        """Take note of a fact for later, and of what has been cut off."""
        if not halted.begun:
            self.hold_up(halted, fact)
        match fact:
            case NodeReturned() if (fact.path, BODY) in halted.awaited:
                self._stopped(fact, BODY, halted, cut_off=fact.cancelled)
            case EffectFinished() if (fact.path, fact.key) in halted.awaited:
                cut_off = fact.failure is not None and fact.failure.code == "cancelled"
                self._stopped(fact, fact.key, halted, cut_off=cut_off)
            case CancelRequested():
                self._go_on(halted, None)
                self.agenda.append(lambda: self.cancel_requested(fact))
            case SessionStarted():
                self.priced(fact.prices)
                self._open_again(halted)
                halted.held.extend(sorted(halted.awaited))
                halted.awaited.clear()
            case BudgetAdded():
                self.budget_added(fact)
            case Emitted() | Warned():
                pass
            case _:
                halted.late.append(fact)

    def _stopped(self, fact: NodeReturned | EffectFinished, key: str, halted: Halt, *, cut_off: bool) -> None:
        halted.awaited.discard((fact.path, key))
        if cut_off and not self._unwanted(self.visits[fact.path], key):
            halted.held.append((fact.path, key))
        else:
            halted.late.append(fact)

    def _unwanted(self, visit: Visit, key: str) -> bool:
        """Tell whether what runs was being cancelled for a reason of its own, as a timeout."""
        if visit.closing is not None:
            return True
        return visit.timed_out if key == BODY else self.call_is_late(visit, key)

    def _go_on(self, halted: Halt, again: Callable[[], None] | None) -> None:
        """Enter again what was cut off, then look at what has happened meanwhile: at what has ended first.

        So nothing is told to stop that is gone already.
        """
        self.halted = None
        for path, key in halted.held:
            self._enter_again(self.visits[path], key, fresh=True)
        if again is not None:
            self.agenda.append(again)
        late = sorted(halted.late, key=lambda fact: not isinstance(fact, NodeReturned | EffectFinished))
        self.agenda.extend(partial(self.take_in, fact) for fact in late)

    # --- more budget ---

    def can_be_lifted(self, reason: Reason) -> bool:
        """Tell whether more budget lifts the bound that has stopped the run: one of the root's own account.

        What a nested graph's own `budget=` refuses, it refuses whatever the root has.
        """
        if self.root is None or reason.code not in RAISABLE:
            return False
        if reason.code == "seconds":
            return not reason.path
        granted = self.root.meter.granted[ADDITIVE.index(reason.code)]
        return granted is not None and reason.limit == float(granted)

    def budget_added(self, fact: BudgetAdded) -> None:
        """Add to the root's account; a run that stood still for the lack of it goes on."""
        root = self.root
        if root is None:
            return
        halted = self.halted
        lifts = halted is not None and self.can_be_lifted(halted.reason)  # it speaks of what there was
        meter = root.meter
        for dimension, amount in enumerate(amounts_of(fact.budget)):
            granted = meter.granted[dimension]
            if granted is not None:
                meter.granted[dimension] = granted + amount
        if fact.budget.seconds is not None and self.seconds is not None:
            self.seconds = max(self.seconds, self.at) + fact.budget.seconds
            self.set_deadline(self.seconds)
        if halted is not None and lifts:
            self.ended = None
            self._go_on(halted, halted.again)

    # --- taking up ---

    def session_started(self) -> None:
        """Say again what was under way when the last session was broken off."""
        self._open_again(None)
        for visit in tuple(self.visits.values()):
            for key in self._at_work(visit):
                if not self._unwanted(visit, key):
                    self._enter_again(visit, key, fresh=False)
                    continue
                where = visit.path, visit.turn, visit.attempt
                ended: Fact = NodeReturned(*where, cancelled=True)
                if key != BODY:
                    ended = EffectFinished(*where, key, failure=BROKEN_OFF)
                self.agenda.append(partial(self.take_in, ended))  # nobody is left to say so

    def _open_again(self, halted: Halt | None) -> None:
        """Open the task groups, set the timers and ask the hooks of a session that begins."""
        for number, scope in sorted(self.scopes.items()):
            parent = scope.around if scope.around in self.scopes else 0  # losers outlive the scope around theirs
            self.commands.append(OpenGroup(number, parent))
        for number, timer in sorted(self.timers.items()):
            self.commands.append(SetTimer(number, timer.at, timer.limit))
        answered = {fact.path for fact in halted.late if isinstance(fact, HookAnswered)} if halted else set[Path]()
        for visit in self.visits.values():
            if visit.standing is Standing.ASKED and visit.path not in answered:
                self.commands.append(AskHook(visit.path, visit.state, group_of(visit.token)))

    def _enter_again(self, visit: Visit, key: str, *, fresh: bool) -> None:
        """Start a body, or make an agent's call, once more.

        Args:
            visit: whose it is.
            key: which call, or the body.
            fresh: whether its time begins anew, and a body is shown what is left now. After a crash neither is so: the
                time between two sessions does not count, and all else is as it would have been.
        """
        node, token = visit.station.node, visit.token
        if key == BODY:
            assert isinstance(node, FunctionNode)  # noqa: S101 - only they have bodies
            if fresh:
                self.time_turn(visit)
                visit.state = self.state(token, visit.inbox, visit.path, visit.turn)
            body = StartBody(visit.path, visit.turn, visit.attempt, node, visit.state, group_of(token))
            self.commands.append(body)
        else:
            self.call_again(visit, key, fresh=fresh)
