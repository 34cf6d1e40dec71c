"""The stage: one run of a graph in virtual time.

It does for the fold what the runner does in a run, and does it without waiting: a call of a model or a tool, and a
question to a person, is a time in the future at which its answer is there. What is due next happens next. The bodies of
functions are the only tasks; one after the other goes on until it ends or sleeps, so that the same things are due in
the same order each time, on both backends.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.abc import TaskGroup

from graphflow.errors import InternalError, ModelError, ModelUnavailable, UsageError
from graphflow.events import (
    AnswerGiven,
    EffectFinished,
    Emitted,
    Fact,
    Failure,
    NodeReturned,
    Paused,
    RunStarted,
    TimerFired,
)
from graphflow.graphs.graph import Graph
from graphflow.model.contract import Report
from graphflow.model.ids import Path, path_text
from graphflow.model.state import Left
from graphflow.model.thread import shown
from graphflow.nodes.client import ModelReply
from graphflow.nodes.human import Human
from graphflow.nodes.tools import ToolFailure
from graphflow.rehearsal.bodies import RehearsedBody, act
from graphflow.rehearsal.results import Sample
from graphflow.rehearsal.standins import StandIns
from graphflow.rehearsal.tally import Tally
from graphflow.runtime.advance import Fold
from graphflow.runtime.agentcall import FIRST_WAIT, LONGEST_WAIT, NOTHING_USED
from graphflow.runtime.commands import (
    CallModel,
    CallTool,
    CancelBody,
    CancelCall,
    Command,
    DropTimer,
    GoOn,
    RefuseEffect,
    SetTimer,
    StartBody,
)
from graphflow.runtime.core import failure_of, left_now

CANCELLED: Final = Failure("cancelled", "it was cancelled", (), "cancelled")

SPINS: Final = 4
"""How many turns of the loop a body has to end in before it is waited for properly."""

QUIET: Final = 8
"""How many turns of the loop in which nothing happens show that a body which sleeps does nothing else, as in a run."""

GRACE: Final = 1.0
"""Real seconds that a body which waits for something outside holds the others up."""


class Due(NamedTuple):
    """Something that happens at a time; of several at one time, limits come last, and the first that was set first."""

    at: float
    limit: bool
    number: int


class Stage:
    """One run of one graph."""

    recall = None  # a body asks for it: nothing is taken up here

    def __init__(
        self, graph: Graph[Any], run: int, others: StandIns, tasks: TaskGroup, resources: Sequence[object] = ()
    ) -> None:
        """Begin before the first fact.

        Args:
            graph: what is run.
            run: the number of the run.
            others: who stands in for models, tools and people.
            tasks: where bodies run.
            resources: what `step.resource` finds.
        """
        self.fold = Fold(graph)
        self.others, self.bodies = others, dict[Path, RehearsedBody]()
        self.untamed = 0  # how often a body waited for something outside for longer than others waited for it
        self._run, self._tasks, self._resources = run, tasks, resources
        self._active = 0.0  # the active seconds since the run began
        self._rested = 0.0  # the seconds in which it only waited for people
        self._numbers = itertools.count()
        self._due: list[Due] = []
        self._pending: dict[int, Callable[[], None]] = {}  # what happens then, by number
        self._people: list[Due] = []  # answers of people, in seconds since the run began, rests among them
        self._timers: dict[int, int] = {}  # the number of what is due, by timer
        self._calls: dict[Path, dict[str, tuple[int, CallModel | CallTool]]] = {}  # calls under way, by key
        self._ready: deque[StartBody] = deque()
        self._facts: deque[Fact] = deque()
        self._awake = 0  # bodies that do not wait for time to pass
        self._dying: set[Path] = set()  # bodies that were cancelled and have not ended
        self._news: anyio.Event | None = None
        self._crash: BaseException | None = None
        self._thread = threading.get_ident()
        self._tally = Tally()

    def rng(self, *where: object) -> Random:
        """Return the generator of one thing of this run."""
        return self.others.rng(self._run, *where)

    # --- going ---

    async def play(self, first: RunStarted) -> Sample:
        """Run from the first fact to the end.

        Raises:
            UsageError: if something cannot be stood in for.
            InternalError: a bug of ours.
        """
        self.give(first)
        while True:
            if self._awake or self._dying:
                await self._settle()
            if self._crash is not None:
                break
            if self._facts:
                self.give(self._facts.popleft())
            elif self._ready:
                await self._begin(self._ready.popleft())
            elif not await self._next():
                break
        if self._crash is not None:
            raise self._crash
        return self._tally.sample(self.fold, self._active + self._rested, self._active)

    async def _next(self) -> bool:
        """Let what is due next happen; tell whether there was anything."""
        ended = self.fold.ended
        waiting = ended is not None and ended.status == "waiting"
        if ended is not None and not waiting:
            return False
        while self._due and self._due[0].number not in self._pending:
            heapq.heappop(self._due)
        person = self._people[0].at if self._people else None
        due = self._due[0] if self._due and not waiting else None
        if due is not None and (person is None or due.at + self._rested <= person):
            heapq.heappop(self._due)
            self._active = max(self._active, due.at)
            self._pending.pop(due.number)()
        elif person is not None:
            number = heapq.heappop(self._people).number
            passed = max(0.0, person - self._active - self._rested)
            if waiting:
                self._rested += passed
            else:
                self._active += passed
            self._pending.pop(number)()
        elif self._awake or self._dying:
            await self._news_of_bodies()
        else:
            msg = f"nothing is due in run {self._run} of a rehearsal, and the run has not ended"
            raise InternalError(msg)
        return True

    async def _begin(self, command: StartBody) -> None:
        """Run one body until it has ended or sleeps."""
        self.awake(1)
        self._tasks.start_soon(act, self, command)
        await self._settle()

    async def _settle(self) -> None:
        """Wait until every body has ended or sleeps; a while, where one waits for something outside."""
        for _ in range(SPINS):
            if not self._awake and not self._dying:
                break
            await anyio.lowlevel.checkpoint()
        else:
            with anyio.move_on_after(GRACE) as scope:
                while (self._awake or self._dying) and self._crash is None:
                    await self._news_of_bodies()
            if scope.cancelled_caught:
                self.untamed += 1
                return
        quiet = QUIET if self.bodies else 0
        while quiet and self._crash is None:  # one that sleeps may have tasks that go on
            await anyio.lowlevel.checkpoint()
            quiet = QUIET if self._awake else quiet - 1

    async def _news_of_bodies(self) -> None:
        self._news = anyio.Event()
        await self._news.wait()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    # --- what bodies ask ---

    def awake(self, change: int) -> None:
        """Count the bodies that do not wait for time to pass."""
        self._awake += change
        self._tell()

    def crashed(self, error: BaseException) -> None:
        """End the rehearsal."""
        self._crash = self._crash or error
        self._tell()

    async def record(self, fact: Fact) -> None:
        """Take a fact from a body."""
        self.give(fact)

    def emit(self, fact: Emitted) -> None:
        """Take what a body says, from the loop or from a worker thread."""
        if threading.get_ident() == self._thread:
            self.give(fact)
        else:
            anyio.from_thread.run_sync(self.give, fact)

    def left(self, path: Path) -> Left:
        """Return what remains for a visit now."""
        visit = self.fold.visits[path]
        return left_now(visit.token.frame.meter, visit.token.frame, visit.token.counters)

    def kept(self, value: Any, what: str, fn: Callable[..., Any]) -> Any:  # noqa: ARG002 - as a body calls it
        """Return what an effect gave: nothing is stored here."""
        return value

    def resource(self, path: Path, kind: type[Any]) -> Any:
        """Return the one resource of a class.

        Raises:
            UsageError: if the rehearsal was given none of that class, or several.
        """
        found = [resource for resource in self._resources if isinstance(resource, kind)]
        if len(found) == 1:
            return found[0]
        msg = (
            f"{path_text(path)!r} asked for a resource of class {kind.__name__}, and the rehearsal has {len(found)} of "
            f"it. Give one that does nothing outside, rehearse(..., resources=[...]), or a function that stands in for "
            f"the node, stand_ins={{{path[-1].name!r}: function}}."
        )
        error = UsageError(msg)
        self.crashed(error)
        raise error

    def returned(self, body: RehearsedBody, outcome: Any, failure: Failure | None, *, cancelled: bool) -> None:
        """Hear that a body has ended."""
        body.ended = True
        command = body.command
        fact = NodeReturned(body.path, command.turn, command.attempt, outcome, failure, cancelled)
        del self.bodies[body.path]
        self._dying.discard(body.path)
        self.give(fact)
        self.awake(-1 if body.awake else 0)

    def later(self, seconds: float, then: Callable[[], None], *, limit: bool = False) -> int:
        """Have something happen after some seconds; return its number."""
        return self._at(self._active + seconds, then, limit=limit)

    def forget(self, number: int) -> bool:
        """Take back what was to happen; tell whether it had not happened yet."""
        return self._pending.pop(number, None) is not None

    def _at(self, at: float, then: Callable[[], None], *, limit: bool) -> int:
        number = next(self._numbers)
        heapq.heappush(self._due, Due(at, limit, number))
        self._pending[number] = then
        return number

    # --- facts and commands ---

    def give(self, fact: Fact) -> None:
        """Tell the fold a fact, and do as it says."""
        if self._crash is not None:
            return
        try:
            decisions, commands = self.fold.advance(fact, self._active)
            self._tally.decided(decisions, self.fold.slots)
            for decision in decisions:
                if isinstance(decision, Paused):
                    self._asked(decision.question)
            for command in commands:
                self._carry_out(command)
        except BaseException as error:  # noqa: BLE001 - it ends the rehearsal, and is raised there
            self.crashed(error)

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartBody():
                self._ready.append(command)
            case CallModel():
                self._call_model(command)
            case CallTool():
                self._call_tool(command)
            case SetTimer():
                fired = functools.partial(self._fired, command.timer)
                self._timers[command.timer] = self._at(command.at, fired, limit=command.limit)
            case DropTimer():
                self.forget(self._timers.pop(command.timer, -1))
            case GoOn() | RefuseEffect():
                body = self.bodies.get(command.path)
                if body is not None:
                    body.answer(command)
            case CancelBody():
                self._cancel(command.path)
            case CancelCall():
                self._cancel_call(command.path, command.key)
            case _:
                pass  # groups of tasks: there are none here; and the end, which the fold knows

    def _fired(self, timer: int) -> None:
        del self._timers[timer]
        self.give(TimerFired(timer))

    def _cancel(self, path: Path) -> None:
        body = self.bodies.get(path)
        if body is not None:
            self._dying.add(path)
            body.cancel()
            return
        for key in tuple(self._calls.get(path, ())):
            self._cancel_call(path, key)
        for command in [found for found in self._ready if found.path == path]:
            self._ready.remove(command)
            self._facts.append(NodeReturned(path, command.turn, command.attempt, cancelled=True))

    def _cancel_call(self, path: Path, key: str) -> None:
        number, command = self._calls.get(path, {}).pop(key, (-1, None))
        if command is not None:
            self.forget(number)
            self._facts.append(EffectFinished(path, command.turn, command.attempt, key, failure=CANCELLED))

    # --- models, tools, people ---

    def _call_model(self, command: CallModel) -> None:
        visit = self.fold.visits[command.path]
        assert visit.talk is not None  # noqa: S101 - only agents have models
        price = self.fold.price_of(visit)
        seconds, found = self.others.reply(self._run, command.request, command.attempt, visit.talk.manner, price)
        if isinstance(found, ModelReply):
            self._finish_later(command, seconds, found)
            self._tally.used(found.usage)
            return
        if command.again and isinstance(found, ModelUnavailable):  # as a run does before it asks again
            seconds += min(FIRST_WAIT * 2.0**command.attempt, LONGEST_WAIT)
        used = NOTHING_USED if isinstance(found, ModelError) and found.unused else None
        self._finish_later(command, seconds, None, failure_of(found), used)

    def _call_tool(self, command: CallTool) -> None:
        tool = command.tool
        where = (path_text(command.path), command.turn, command.key)
        seconds, found = self.others.tool(self._run, tool, where, command.arguments)
        if isinstance(found, Exception):
            self._finish_later(command, seconds, None, failure_of(found))
        elif isinstance(found, ToolFailure):
            failure = Failure("graphflow.nodes.tools.ToolFailure", shown(found.text), (), "declared")
            self._finish_later(command, seconds, None, failure)
        elif isinstance(found, Report) and found.status == "failed":
            failure = Failure("graphflow.model.contract.Report", shown(found), (), "declared")
            self._finish_later(command, seconds, None, failure)
        else:
            self._finish_later(command, seconds, "" if found is None else shown(found))

    def _finish_later(
        self, command: CallModel | CallTool, seconds: float, result: Any, failure: Failure | None = None,
        used: Any = None,
    ) -> None:  # fmt: skip
        path, key = command.path, command.key
        fact = EffectFinished(path, command.turn, command.attempt, key, result, failure, used)

        def finish() -> None:
            self._calls[path].pop(key, None)
            self.give(fact)

        self._calls.setdefault(path, {})[key] = self.later(seconds, finish), command

    def _asked(self, question: str) -> None:
        """Let a person answer after a while."""
        self._tally.questions += 1
        asked = self.fold.questions.get(question)
        if asked is None:  # what was decided with it has withdrawn it
            return
        talk, station = asked.visit.talk, asked.visit.station
        if talk is not None:
            name = talk.wishes[asked.position].call.name
        else:
            name = station.name if isinstance(station.node, Human) else ""
        seconds, value = self.others.person(self._run, question, name, asked.text, asked.schema)

        def answer() -> None:
            if question in self.fold.questions:
                self.give(AnswerGiven(question, value))

        number = next(self._numbers)
        heapq.heappush(self._people, Due(self._active + self._rested + seconds, False, number))  # noqa: FBT003 - no limit
        self._pending[number] = answer
