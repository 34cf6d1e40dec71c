"""How the cases play stored runs: to the end, broken off after every record, taken up by new objects, and compared."""

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from graphflow import Agent, Budget, Context, Graph, Result, State, Step, reopen, replay, start
from graphflow import node as plain_node
from graphflow.errors import JournalUnavailable, NodeFailed
from graphflow.events import (
    Before,
    BudgetAdded,
    EffectFinished,
    EffectRequested,
    EffectStarted,
    Emitted,
    Event,
    Journal,
    NodeReturned,
    Row,
    SessionStarted,
    StoredRun,
    Writer,
)
from graphflow.model.ids import Path, path_text
from graphflow.nodes.client import ModelReply, ModelRequest, Stream
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.stored import prepared
from graphflow.testing import ManualClock, MemoryJournal, RuleModel, canonical_trace
from graphflow.testing.models import ScriptStep
from tests.support import FULL

C = TypeVar("C", bound=Context)

OneArgument = Callable[[State[Any]], Any]
TwoArguments = Callable[[State[Any], Step], Any]

RUN = "the run"
"""The id of every stored run here: one journal holds one."""

Call = tuple[str, str, int]
"""What was called (a body, an effect, a tool, a model), by whom, and in which turn."""


def place_of(key: str) -> str:
    """Which call of a turn an agent's effect is, whichever attempt."""
    return key.partition(".")[0]


class Calls:
    """What the nodes, tools and models of a graph really did: the world outside of it."""

    def __init__(self) -> None:
        self.made: Counter[Call] = Counter()

    @overload
    def node(self, fn: OneArgument, /, **options: Any) -> FunctionNode[Any]: ...
    @overload
    def node(self, fn: TwoArguments, /, **options: Any) -> FunctionNode[Any]: ...
    @overload
    def node(self, fn: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], FunctionNode[Any]]: ...
    def node(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a node as `@node` does, each entry of which is counted."""

        def made(fn: Callable[..., Any]) -> FunctionNode[Any]:
            found: FunctionNode[Any] = plain_node(**options)(self._counted(fn))
            return found

        return made if fn is None else made(fn)

    def _counted(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def waits(state: State[Any], *step: Step) -> Any:
                self.made["a body", path_text(state.path), state.turn] += 1
                return await fn(state, *step)

            return waits

        @functools.wraps(fn)
        def blocks(state: State[Any], *step: Step) -> Any:
            self.made["a body", path_text(state.path), state.turn] += 1
            return fn(state, *step)

        return blocks

    async def effect(self, step: Any, name: str, value: Any, **options: Any) -> Any:
        """Do something outside that gives a value; an exception is raised."""

        async def act() -> Any:
            self.made[name, path_text(step.path), step.command.turn] += 1
            if isinstance(value, Exception):
                raise value
            return value

        return await step.effect(name, act, **options)

    def tool(self, step: Any) -> None:
        """Count the call of a tool, by its place among the calls of its turn."""
        command = step.command
        self.made[f"{command.tool.name} {place_of(command.key)}", path_text(step.path), command.turn] += 1

    def agent(self, name: str, *steps: ScriptStep, **options: Any) -> Agent:
        """Make an agent whose model says in each turn of a visit the step of that turn, whoever asks it."""
        return Agent(name, model=Minded(self, *steps, **_only(options, MODEL)), **_only(options, MODEL, without=True))


MODEL = frozenset({"usage", "price", "delay", "stream_pieces", "native_tools"})


def _only(options: dict[str, Any], names: frozenset[str], *, without: bool = False) -> dict[str, Any]:
    return {name: value for name, value in options.items() if (name in names) is not without}


class Minded(RuleModel):
    """A model that answers by what it is asked alone: a new one goes on where another has stopped."""

    def __init__(self, calls: Calls, *steps: ScriptStep, **options: Any) -> None:
        rules = [(functools.partial(_is_turn, turn), step) for turn, step in enumerate(steps)]
        super().__init__(*rules, otherwise=steps[-1], **options)
        self.calls = calls
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        self.requests.append(request)
        self.calls.made["a model", request.path, request.turn] += 1
        return await super().reply(request, stream)


def _is_turn(turn: int, request: ModelRequest) -> bool:
    return request.turn == turn


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[C]):
    """What is played: a graph that can be made any number of times, and all that it is given from outside.

    Attributes:
        make: makes the graph anew, with what counts its calls.
        context: what it starts with.
        answers: by the first line of the question; what is not in it stays open.
        more: what an exhausted run is given, one after the other.
        hook: makes the hook, if there is one.
        options: further arguments of `start`.
        again: further arguments of `reopen`.
    """

    make: Callable[[Calls], Graph[C]]
    context: C
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    more: Sequence[Budget] = ()
    hook: Callable[[Calls], Before] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    again: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Ended(Generic[C]):
    """How a run stands when nothing more is given to it."""

    result: Result[C]
    error: tuple[str, str] | None
    calls: Counter[Call]
    rows: tuple[Row, ...]
    events: tuple[Event, ...]

    @functools.cached_property
    def trace(self) -> tuple[str, ...]:
        """What a run that was broken off must have in common with one that was not."""
        return steady(self.events)


class Stage(Generic[C]):
    """One making of a plan's graph; what it has done is counted anew for each session that is played on it."""

    def __init__(self, plan: Plan[C]) -> None:
        self.plan, self.calls = plan, Calls()
        self.graph = plan.make(self.calls)
        self._read: dict[Any, tuple[Event, ...]] = {}

    async def stored(self, journal: Journal) -> tuple[tuple[Event, ...], tuple[Row, ...]]:
        """Read what is stored, as events too; their numbers have no gap."""
        rows = tuple(await journal.read(RUN))
        reader = prepared(self.graph).rows(self.plan.again.get("secrets"))
        found: list[Event] = []
        for row in rows:
            key = (row.seq, row.at, row.fact, row.decisions)
            if key not in self._read:
                self._read[key] = tuple(reader.record(RUN, row).events(RUN))
            found += self._read[key]
        assert [event.seq for event in found] == list(range(len(found)))
        return tuple(found), rows


async def play(plan: Plan[C], journal: Journal, stage: Stage[C] | None = None) -> Ended[C]:
    """Begin a run, give it its answers and its budgets, and tell how it ended."""
    return await _to_the_end(stage or Stage(plan), journal, begun=False)


async def go_on(plan: Plan[C], journal: Journal, stage: Stage[C] | None = None) -> Ended[C]:
    """Take up a stored run with new objects, as another process would, and tell how it ended."""
    return await _to_the_end(stage or Stage(plan), journal, begun=True)


async def _to_the_end(stage: Stage[C], journal: Journal, *, begun: bool) -> Ended[C]:
    plan, graph, calls = stage.plan, stage.graph, stage.calls
    calls.made.clear()
    added: Budget | None = None
    while True:
        before = None if plan.hook is None else plan.hook(calls)
        common: dict[str, Any] = {"journal": journal, "clock": ManualClock(), "before": before}
        if begun:
            handle = reopen(graph, RUN, budget=added, **common, **plan.again)
        else:
            handle = start(graph, plan.context, run_id=RUN, **common, **plan.options)
        begun = True
        async with handle as run:
            result, error = await _answered(plan, run)
        events, rows = await stage.stored(journal)
        given = sum(isinstance(event.body, BudgetAdded) for event in events)
        if result.status != "exhausted" or given == len(plan.more):
            return Ended(result, error, calls.made.copy(), rows, events)
        added = plan.more[given]


async def _answered(plan: Plan[C], run: Any) -> tuple[Result[C], tuple[str, str] | None]:
    """Answer what is asked, one question after the other, and return the result and what was raised."""
    while True:
        error = None
        try:
            result = await run.result()
        except JournalUnavailable:
            raise
        except NodeFailed as raised:
            result, error = run.outcome, (raised.error_type, raised.text)
        except Exception as raised:  # noqa: BLE001 - whatever a body raises
            result, error = run.outcome, (type(raised).__name__, str(raised))
        asked = {question.text.partition("\n")[0]: question.id for question in result.questions}
        known = sorted(text for text in asked if text in plan.answers)
        if not known:
            return result, error
        run.answer(asked[known[0]], plan.answers[known[0]])


def steady(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the trace without what only says that a process ended, or that something stopped as it was told.

    What a tool says it says again when its call is made again, and what was given up is asked for again: that counts
    once.
    """
    agents = {event.path for event in events if isinstance(event.body, EffectStarted) and event.body.key == "model"}
    kept = [event for event in events if not _is_passing(event)]
    again = [event for event in kept if _may_come_again(event, agents)]
    return (*canonical_trace(event for event in kept if event not in again), *sorted(set(canonical_trace(again))))


def _may_come_again(event: Event, agents: Container[Path]) -> bool:
    said = isinstance(event.body, Emitted) and event.path in agents
    return said or isinstance(event.body, (EffectRequested, EffectStarted))


def _is_passing(event: Event) -> bool:
    body = event.body
    if isinstance(body, EffectFinished):
        return body.failure is not None and body.failure.code == "cancelled"
    return isinstance(body, SessionStarted) or (isinstance(body, NodeReturned) and body.cancelled)


def finished(events: Sequence[Event]) -> Counter[Call]:
    """Count the calls that are recorded: they must never be made again."""
    found: Counter[Call] = Counter()
    names: dict[Any, Call] = {}
    for event in events:
        body = event.body
        if _is_passing(event):
            continue
        if isinstance(body, NodeReturned):
            found["a body", path_text(body.path), body.turn] += 1
        elif isinstance(body, EffectRequested):
            names[body.path, body.turn, body.key] = (body.name, path_text(body.path), body.turn)
        elif isinstance(body, EffectStarted):
            place = place_of(body.key)
            name = "a model" if place == "model" else f"{body.name} {place}"
            names.setdefault((body.path, body.turn, body.key), (name, path_text(body.path), body.turn))
        elif isinstance(body, EffectFinished):
            found[names[body.path, body.turn, body.key]] += 1
    return found


# --- breaking off ----------------------------------------------------------------------------------------------------


async def copied(rows: Sequence[Row], journal: Journal) -> Journal:
    """Store rows in a journal."""
    writer = await journal.claim(RUN)
    for row in rows:
        await writer.append(row)
    await writer.release()
    return journal


class Breaking:
    """A journal whose store fails for ever after some rows, as if the process had ended there."""

    def __init__(self, journal: Journal, after: int, *, instant: bool = True) -> None:
        self.journal, self.after, self.instant = journal, after, instant

    async def claim(self, run: str) -> Writer:
        return BreakingWriter(self, await self.journal.claim(run))

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return await self.journal.read(run, after)

    async def runs(self) -> Sequence[StoredRun]:
        return await self.journal.runs()

    async def delete(self, run: str) -> bool:
        return await self.journal.delete(run)


class BreakingWriter:
    """The writer of such a journal; one that is not instant makes everything wait for it."""

    def __init__(self, journal: Breaking, writer: Writer) -> None:
        self._journal, self._writer = journal, writer
        self.last, self.instant = writer.last, journal.instant

    def append_nowait(self, row: Row) -> None:
        if not self._journal.after:
            msg = "no more"
            raise JournalUnavailable(msg)
        self._journal.after -= 1
        self._writer.append_nowait(row)
        self.last = row.seq

    async def append(self, row: Row) -> None:
        self.append_nowait(row)

    async def release(self) -> None:
        await self._writer.release()


# --- what must hold --------------------------------------------------------------------------------------------------

Store = Callable[[], Journal]


async def hold_every_break(plan: Plan[C], store: Store = MemoryJournal, *, every: int = 1) -> Ended[C]:
    """Play a run; then, for every number of its records, go on from these alone: all is as if nothing had happened."""
    first, stage = store(), Stage(plan)
    whole = await play(plan, first, stage)
    await hold_end(stage, first, whole)
    for count in range(1, len(whole.rows) + 1, 1 if FULL else every):
        journal = await copied(whole.rows[:count], store())
        again = await go_on(plan, journal, stage)
        hold_same(whole, again, count)
        if count % 7 == 1:
            await hold_end(stage, journal, again)
    return whole


async def hold_every_crash(plan: Plan[C], *, instant: bool = True, every: int = 1) -> None:
    """Let the store fail after every number of records, and go on: what had begun is done at most once more."""
    whole = await play(plan, MemoryJournal())
    for count in range(1, len(whole.rows), 1 if FULL else every):
        journal, stage = MemoryJournal(), Stage(plan)
        with contextlib.suppress(JournalUnavailable):
            await play(plan, Breaking(journal, count, instant=instant), stage)
        again = await go_on(plan, journal)
        hold_same(whole, again, count, same_rows=False)
        assert stage.calls.made + again.calls <= whole.calls + Counter(dict.fromkeys(whole.calls, 1 + len(plan.more)))


async def hold_two_crashes(plan: Plan[C], *, every: int = 1) -> None:
    """Let the second process end too, a few records on."""
    whole = await play(plan, MemoryJournal())
    for count in range(1, len(whole.rows), 1 if FULL else every):
        journal, stage = await copied(whole.rows[:count], MemoryJournal()), Stage(plan)
        with contextlib.suppress(JournalUnavailable):
            await go_on(plan, Breaking(journal, 2 + count % 3), stage)
        again = await go_on(plan, journal, stage)
        hold_same(whole, again, count, same_calls=False)


async def hold_crash_loop(plan: Plan[C], rows: int) -> int:
    """Let the store fail after some rows of every session, until the run has ended; return how many there were."""
    whole, journal, stage = await play(plan, MemoryJournal()), MemoryJournal(), Stage(plan)
    for session in range(1000):
        try:
            await _to_the_end(stage, Breaking(journal, rows), begun=session > 0)
        except JournalUnavailable:
            continue
        hold_same(whole, await go_on(plan, journal, stage), 1, same_rows=False, same_calls=False)
        return session
    raise AssertionError


def hold_same(
    whole: Ended[Any], again: Ended[Any], count: int, *, same_rows: bool = True, same_calls: bool = True
) -> None:
    """Hold a run that was broken off after some records against one that was not."""
    where = f"broken off after {count} of {len(whole.rows)} records, the last of {whole.rows[count - 1].fact[:80]}"
    assert again.result == whole.result, where
    assert again.error == whole.error, where
    assert again.trace == whole.trace, where
    if same_rows:
        assert again.rows[:count] == whole.rows[:count], where
    if same_calls:
        done = finished([event for event in again.events if event.seq <= again.rows[count - 1].seq])
        assert again.calls <= whole.calls - done, where
        assert finished(again.events) - done <= again.calls, where


async def hold_end(stage: Stage[C], journal: Journal, ended: Ended[C]) -> None:
    """Hold that a run which is over is folded to the same end by `replay`, and changed by nobody."""
    stage.calls.made.clear()
    error, found = None, None
    try:
        found = await replay(stage.graph, RUN, journal=journal, secrets=stage.plan.again.get("secrets"))
    except NodeFailed as raised:
        error = raised.error_type, raised.text
    assert error == ended.error
    assert found == (ended.result if error is None else None)
    assert not stage.calls.made
    assert tuple(await journal.read(RUN)) == ended.rows
    again = await go_on(stage.plan, journal, stage)
    assert again.rows == ended.rows
    assert not again.calls
    assert again.result == ended.result
