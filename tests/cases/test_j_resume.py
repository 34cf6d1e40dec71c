"""Cases J1, J3, J9, J11 and J13: what a resumed run finds again, what it does not do again, and who may resume it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphflow import (
    ANY,
    END,
    START,
    STRICT,
    Call,
    Delegate,
    Graph,
    Human,
    Join,
    Pause,
    Report,
    SqliteJournal,
    State,
    Step,
    first,
    node,
    quorum,
    reopen,
    resume,
    run,
    start,
    when,
)
from graphflow.errors import RunExists, RunLocked, UnknownRun, UsageError
from graphflow.events import Journal, NodeStarted
from graphflow.model.ids import names
from graphflow.runtime.checksums import without_checksum
from graphflow.testing import ManualClock, MemoryJournal
from tests.cases.stored import RUN, Calls, Ended, Plan, Stage, copied, go_on, hold_every_break, play
from tests.cases.stored_functions import Log, merges, says
from tests.cases.stored_plans import PLANS

Store = Callable[[Path], Journal]
STORES: dict[str, Store] = {
    "memory": lambda _: MemoryJournal(),
    "sqlite": lambda folder: SqliteJournal(folder / "runs.db"),
    "sqlite with fsync": lambda folder: SqliteJournal(folder / "runs.db", fsync=True),
}
stores = pytest.mark.parametrize("store", list(STORES))


def started(ended: Ended[Any], name: str) -> int:
    """Count the visits of a node."""
    bodies = [event.body for event in ended.events]
    return sum(isinstance(body, NodeStarted) and names(body.path)[-1] == name for body in bodies)


# --- J1 --------------------------------------------------------------------------------------------------------------


def pausing(calls: Calls, how: str) -> Any:
    """Make something that pauses, in one way or another, and is called `b`."""

    @calls.node(name="asks")
    async def asks(state: State[Any]) -> Any:
        return Pause("q?") if state.turn == 0 else state.values[0]

    if how == "human":
        return Human("b", "q?")
    if how == "function":
        return asks
    if how == "graph":
        return Graph("b", START >> says(calls, "before") >> Human("inner", "q?") >> END, context=Log)
    if how == "callee":

        @calls.node
        async def boss(state: State[Log]) -> Any:
            return Delegate(Call("asks", "?")) if state.turn == 0 else state.values[0].finding

        @calls.node(name="asks")
        async def reports(state: State[Log]) -> Any:
            return Pause("q?") if state.turn == 0 else Report(finding=state.values[0])

        inner = Graph("g", START >> boss >> END, boss.delegates(reports, max_hops=1), context=Log, max_depth=1)
        return inner.named("b")
    return Graph("b", START >> Human("one", "p?") >> Human("two", "q?") >> END, context=Log)


@pytest.mark.parametrize("place", ["fork", "map", "inner fork"])
@pytest.mark.parametrize("how", ["human", "function", "graph", "callee", "twice"])
async def test_j1_a_join_keeps_what_had_arrived_before_a_pause(how: str, place: str) -> None:
    """A branch waits for a person while another has arrived: after the answer the join runs once, with both."""

    def make(calls: Calls) -> Graph[Log]:
        a, b, b2, join = says(calls, "a", sleep=1), pausing(calls, how), merges(calls, "b2"), merges(calls, "J")
        s = says(calls, "s")
        if place == "fork":
            return Graph("g", START >> s >> (a, b >> b2) >> join >> END, context=Log)
        if place == "map":
            return Graph("g", START >> s, s.map(b >> b2, over=pair, join=join, max_items=2), join >> END, context=Log)
        inner = says(calls, "i") >> (b, says(calls, "c")) >> b2
        return Graph("g", START >> s >> (a, inner) >> join >> END, context=Log)

    whole = await hold_every_break(Plan(make=make, context=Log(), answers={"p?": "x", "q?": "yes"}))

    assert whole.result.status == "completed"
    assert started(whole, "J") == 1
    assert started(whole, "b2") == (2 if place == "map" else 1)
    arrived = {"fork": (1, ("yes",)), "map": (("yes",), ("yes",)), "inner fork": (1, ("yes", 1))}
    assert whole.result.output == arrived[place]


def pair(_: State[Log]) -> tuple[int, ...]:
    """Give two items."""
    return (1, 2)


# --- J3 --------------------------------------------------------------------------------------------------------------


def never(_: State[Log]) -> bool:
    """Hold never."""
    return False


@pytest.mark.parametrize("skipped", ["a case", "a branch", "a chain"])
@pytest.mark.parametrize("policy", ["all", "any", "first", "quorum", "strict", "node"])
async def test_j3_a_join_is_ready_by_one_rule_before_and_after_a_resume(policy: str, skipped: str) -> None:
    """A parent of the join is not taken, and what follows pauses: the resumed run takes nothing else, nothing again."""
    joins = {"all": Join("C"), "any": Join("C", ANY), "first": Join("C", first(1)), "quorum": Join("C", quorum(1))}
    joins["strict"] = Join("C", STRICT)

    def make(calls: Calls) -> Graph[Log]:
        a, b, b2, d = says(calls, "A"), says(calls, "B"), says(calls, "B2"), says(calls, "D", sleep=1)
        join = joins.get(policy) or merges(calls, "C")
        rest = join >> Human("ask", "q?") >> merges(calls, "end") >> END
        if skipped == "a case" and policy in {"all", "node"}:
            return Graph("g", START >> a, a.choose(when(never, b), default=join), b >> join, rest, context=Log)
        if skipped == "a chain":
            return Graph("g", START >> a >> (d, when(never, b >> b2)), (d, b2) >> join, rest, context=Log)
        return Graph("g", START >> a >> (d, when(never, b)), (d, b) >> join, rest, context=Log)

    whole = await hold_every_break(Plan(make=make, context=Log(), answers={"q?": "yes"}))

    assert whole.result.status == ("failed" if policy == "strict" else "completed")
    assert (started(whole, "A"), started(whole, "B"), started(whole, "C")) == (1, 0, policy != "strict")


# --- J9, J11 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PLANS))
async def test_j9_after_the_last_record_nothing_is_left_to_do(name: str) -> None:
    """A run all of whose facts are stored is at its end: taking it up makes no call and stores no row."""
    plan, journal = PLANS[name], MemoryJournal()
    whole = await play(plan, journal)
    stage = Stage(plan)

    again = await go_on(plan, journal, stage)

    assert not again.calls
    assert again.rows == whole.rows
    assert again.result == whole.result
    assert again.error == whole.error


@pytest.mark.parametrize("name", ["chain", "branches", "lanes", "nested", "late"])
async def test_j9_before_the_last_record_only_the_last_body_is_entered_again(name: str) -> None:
    """The process ends when the last body has done all its effects and not yet returned: none of them is done again."""
    whole = await play(PLANS[name], MemoryJournal())
    journal = await copied(whole.rows[:-1], MemoryJournal())

    again = await go_on(PLANS[name], journal)

    assert all(call[0] == "a body" for call in again.calls)
    assert again.calls.total() <= 1
    assert len(again.rows) == len(whole.rows) + 1


IN_ORDER = ["chain", "unanswered", "handing", "thrifty", "contracted", "raising_agent", "waiting agents", "typed"]


@pytest.mark.parametrize("name", IN_ORDER)
async def test_j11_the_events_are_those_of_the_uninterrupted_run_and_a_marker(name: str) -> None:
    """Where one thing follows the other, the very list of events is equal: paths, turns, keys, timers, numbers."""
    whole = await play(PLANS[name], MemoryJournal())
    expected = [(row.at, row.fact, without_checksum(row.decisions)) for row in whole.rows[1:]]

    for count in range(1, len(whole.rows)):
        journal = await copied(whole.rows[:count], MemoryJournal())
        again = await go_on(PLANS[name], journal)
        marker = again.rows[count : count + 1]
        found = (*again.rows[1:count], *again.rows[count + 1 :])
        rest = [(row.at, row.fact, without_checksum(row.decisions)) for row in found]
        if not (whole.result.status == "waiting" and rest == expected[: len(rest)]):
            assert all('["session_started/' in row.fact for row in marker)
            assert _without_emits(rest) == _without_emits(expected)


def _without_emits(rows: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    return [row for row in rows if not row[1].startswith('["emitted"')]  # a tool says again what it has said


@stores
async def test_j11_a_handle_on_a_stored_run_gives_all_of_its_events(store: str, tmp_path: Path) -> None:
    """Whoever iterates over a run that was taken up hears the stored events first, then the new ones, without a gap."""
    plan, journal = PLANS["branches"], STORES[store](tmp_path)
    whole = await play(plan, MemoryJournal())
    await copied(whole.rows[:9], journal)
    stage = Stage(plan)
    heard: list[Any] = []

    async with reopen(stage.graph, RUN, journal=journal, clock=ManualClock(), listeners=[heard.append]) as running:
        events = [event async for event in running]
        result = await running.result()

    stored, _ = await stage.stored(journal)
    assert result == whole.result
    assert [event.seq for event in events] == list(range(len(events)))
    assert tuple(events) == stored
    assert tuple(heard) == stored[whole.rows[9].seq :]


# --- J13, and who else may not ---------------------------------------------------------------------------------------


class Gate:
    """Lets a body wait until the test has looked."""

    def __init__(self) -> None:
        self.reached, self.open, self.done = anyio.Event(), anyio.Event(), 0


def guarded(gate: Gate) -> Graph[Log]:
    """A node with an effect that waits for the test."""

    @node
    async def once(_: State[Log], step: Step) -> str:
        async def act() -> str:
            gate.done += 1
            gate.reached.set()
            await gate.open.wait()
            return "done"

        return await step.effect("act", act)

    return Graph("g", START >> once >> END, context=Log)


@stores
async def test_j13_of_many_that_resume_at_once_exactly_one_proceeds(store: str, tmp_path: Path) -> None:
    """Ten tasks resume one run: nine are refused, one goes on, and the effect is done once."""
    gate, journal = Gate(), STORES[store](tmp_path)
    graph = guarded(gate)
    rows = await _first_rows(guarded(Gate()))
    await copied(rows, journal)
    outcomes: list[str] = []

    async def resumer() -> None:
        try:
            result = await resume(graph, RUN, journal=journal)
        except RunLocked as error:
            outcomes.append(f"locked {error.run}")
            if len(outcomes) == 9:
                gate.open.set()
        else:
            outcomes.append(str(result.output))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(resumer)

    assert sorted(outcomes) == ["done"] + [f"locked {RUN}"] * 9
    assert gate.done == 1


async def _first_rows(graph: Graph[Log]) -> Any:
    """Return the rows of a run that did nothing yet."""
    journal = MemoryJournal()
    async with start(graph, Log(), journal=journal, run_id=RUN) as running:
        async for _ in running:
            break
    return (await journal.read(RUN))[:1]


@stores
async def test_j13_a_run_at_work_is_nobody_elses(store: str, tmp_path: Path) -> None:
    """While a run is at work it can neither be resumed, nor begun anew, nor deleted; afterwards it can."""
    gate, journal = Gate(), STORES[store](tmp_path)
    graph = guarded(gate)

    async with start(graph, Log(), journal=journal, run_id=RUN) as running:
        await gate.reached.wait()
        for other in (journal, STORES[store](tmp_path) if store != "memory" else journal):
            with pytest.raises(RunLocked):
                await resume(graph, RUN, journal=other)
            with pytest.raises(RunLocked):
                await run(graph, Log(), journal=other, run_id=RUN)
            with pytest.raises(RunLocked):
                await other.delete(RUN)
        gate.open.set()
        assert (await running.result()).output == "done"

    assert (await resume(graph, RUN, journal=journal)).output == "done"
    with pytest.raises(RunExists):
        await run(graph, Log(), journal=journal, run_id=RUN)
    assert await journal.delete(RUN)
    with pytest.raises(UnknownRun):
        await resume(graph, RUN, journal=journal)


@stores
async def test_j13_a_run_that_waits_is_locked_as_long_as_somebody_holds_it(store: str, tmp_path: Path) -> None:
    """A handle on a waiting run keeps the others out; when it is left, the run is cancelled there and then."""
    journal = STORES[store](tmp_path)
    graph = Graph("g", START >> Human("ask", "q?") >> END, context=Log)
    waiting = await run(graph, Log(), journal=journal, run_id=RUN)
    question = waiting.questions[0].id

    async with reopen(graph, RUN, journal=journal) as running:
        assert running.questions == waiting.questions
        with pytest.raises(RunLocked):
            await resume(graph, RUN, journal=journal, answers={question: 1})
    result = await resume(graph, RUN, journal=journal, answers={question: 1})

    assert (result.status, result.output) == ("completed", 1)


async def test_j13_a_resume_that_is_refused_gives_the_run_back() -> None:
    """After an answer to nothing, a budget for nothing or a missing hook the run is free, and nothing was written."""
    journal = MemoryJournal()
    graph = Graph("g", START >> Human("ask", "q?") >> END, context=Log)
    waiting = await run(graph, Log(), journal=journal, run_id=RUN)
    rows = await journal.read(RUN)

    def hook(_: State[Log]) -> None:
        """Let all start."""

    wrong: list[dict[str, Any]] = [{"answers": {"nothing": 1}}, {"before": hook}]
    for arguments in wrong:
        with pytest.raises(UsageError):
            await resume(graph, RUN, journal=journal, **arguments)
        assert await journal.read(RUN) == rows

    assert (await resume(graph, RUN, journal=journal)).questions == waiting.questions
    with pytest.raises(UnknownRun, match="Did you mean 'the run'"):
        await resume(graph, "the ran", journal=journal)
