"""Forks of stored runs at every record, and idempotency keys: the same for one effect, another for any other."""

import contextlib
import dataclasses
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Delegate,
    Done,
    Graph,
    Human,
    Join,
    Report,
    Result,
    SqliteJournal,
    State,
    Step,
    ToolStep,
    fork_run,
    node,
    replay,
    resume,
    run,
    start,
    tool,
)
from graphflow.errors import JournalUnavailable, NodeFailed, RunExists, RunLocked, UnknownRun, UsageError
from graphflow.events import Journal
from graphflow.model.ids import path_text
from graphflow.runtime.checksums import without_checksum
from graphflow.runtime.resuming import branch_off
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import all_results
from tests.cases.processes import run_script
from tests.cases.stored import RUN, Breaking, Calls, Stage, finished, play
from tests.cases.stored_functions import Log, says
from tests.cases.stored_plans import PLANS
from tests.conftest import Backend
from tests.support import FULL

# --- forks -----------------------------------------------------------------------------------------------------------


def ended_as(result: Result[Any], whole: Result[Any]) -> bool:
    """Tell whether a fork has ended like the run that it was forked from."""
    refused = [tuple(sorted(found.refused, key=repr)) for found in (result, whole)]
    alike = dataclasses.replace(result, run_id=whole.run_id, refused=whole.refused) == whole
    return alike and refused[0] == refused[1]


FORKED = [
    "branches", "loop", "collected", "lanes", "nested", "batch", "racing", "late", "hooked", "everything", "team",
    "handed", "contracted", "bounded", "typed", "secretive", "gathers",
]  # fmt: skip


@pytest.mark.parametrize("name", FORKED)
async def test_a_fork_at_any_record_ends_like_its_origin_and_leaves_it_alone(name: str, anyio_backend: Backend) -> None:
    """Forks share what came before, do anew what comes after, and never what is shared; the origin stays as it was."""
    plan, journal = PLANS[name], MemoryJournal()
    stage = Stage(plan)
    whole = await play(plan, journal, stage)

    step = 1 if FULL or anyio_backend[0] == "asyncio" else 5
    for number, row in list(enumerate(whole.rows))[::step]:
        before = None if plan.hook is None else plan.hook(stage.calls)
        stage.calls.made.clear()
        new = await branch_off(
            stage.graph, RUN, journal=journal, at=row.seq, new_id=f"fork {number}", secrets=plan.again.get("secrets")
        )
        copied = await journal.read(new)
        assert [(found.seq, found.at, without_checksum(found.decisions)) for found in copied] == [
            (found.seq, found.at, without_checksum(found.decisions)) for found in whole.rows[: number + 1]
        ]
        assert [found.fact for found in copied[1:]] == [found.fact for found in whole.rows[1 : number + 1]]
        result = await _answered(stage, journal, new, before)
        done = finished([event for event in whole.events if event.seq < _next(whole.rows, number)])
        assert ended_as(result, whole.result), (number, row.fact[:80])
        assert stage.calls.made <= whole.calls - done
        assert tuple(await journal.read(RUN)) == whole.rows


def _next(rows: Any, number: int) -> int:
    return rows[number + 1].seq if number + 1 < len(rows) else 1 << 40


async def _answered(stage: Stage[Any], journal: Journal, run_id: str, before: Any) -> Result[Any]:
    """Go on with a run until nothing is open that the plan answers."""
    plan = stage.plan
    answers: dict[str, Any] = {}
    while True:
        result = await resume(
            stage.graph, run_id, journal=journal, answers=answers, clock=ManualClock(), before=before, **plan.again
        )
        asked = {found.text.partition("\n")[0]: found.id for found in result.questions}
        known = sorted(text for text in asked if text in plan.answers)
        if not known:
            return result
        answers = {asked[known[0]]: plan.answers[known[0]]}


async def test_a_fork_may_be_made_at_any_event() -> None:
    """The number of a decision stands for its record; a number beyond the last, or below the first, is refused."""
    plan, journal = PLANS["chain"], MemoryJournal()
    stage = Stage(plan)
    whole = await play(plan, journal, stage)
    last = whole.events[-1].seq

    for at in range(last + 1):
        new = await branch_off(stage.graph, RUN, journal=journal, at=at, new_id=f"f{at}")
        rows = await journal.read(new)
        assert rows[-1].seq <= at < _next(whole.rows, len(rows) - 1)
    for at in (-1, last + 1, 10**9):
        with pytest.raises(UsageError, match=f"has no event {at}"):
            await fork_run(stage.graph, RUN, journal=journal, at=at, new_id="x")
    with pytest.raises(RunExists):
        await fork_run(stage.graph, RUN, journal=journal, new_id="f0")
    with pytest.raises(RunExists):
        await fork_run(stage.graph, RUN, journal=journal, new_id=RUN)
    with pytest.raises(UnknownRun):
        await fork_run(stage.graph, "nobody", journal=journal)

    assert "x" not in [found.run for found in await journal.runs()]
    assert tuple(await journal.read(RUN)) == whole.rows


async def test_forks_of_forks_go_their_own_ways(tmp_path: Path) -> None:
    """A run that waits is forked for each answer, each fork again: all end on their own, the origin still waits."""
    journal = SqliteJournal(tmp_path / "runs.db")
    graph = Graph("g", START >> Human("a", "a?") >> Human("b", "b?") >> Join("j") >> END, context=Log)
    waiting = await run(graph, Log(), journal=journal, run_id=RUN)

    for one in ("x", "y"):
        first = await fork_run(graph, RUN, journal=journal, new_id=one, answers={"a": one})
        for two in ("1", "2"):
            second = await fork_run(graph, one, journal=journal, new_id=one + two, answers={"b": two})
            assert (second.status, second.output, second.run_id) == ("completed", (two,), one + two)
        assert await resume(graph, one, journal=journal) == first
    assert await resume(graph, RUN, journal=journal) == waiting
    assert len(await journal.runs()) == 7
    assert await journal.delete(RUN)
    assert (await replay(graph, "x1", journal=journal)).output == ("1",)


async def test_a_run_at_work_can_be_forked() -> None:
    """A fork only reads: the writer of the origin is not disturbed, nor does it keep anybody out of the fork."""
    stage = Stage(PLANS["asking"])
    journal = MemoryJournal()
    async with start(stage.graph, Log(), journal=journal, run_id=RUN, clock=ManualClock()) as running:
        waiting = await running.result()
        forked = await fork_run(stage.graph, RUN, journal=journal, new_id="fork", clock=ManualClock())
        with pytest.raises(RunLocked):
            await resume(stage.graph, RUN, journal=journal)
        assert running.questions == waiting.questions == forked.questions
        assert dataclasses.replace(forked, run_id=RUN) == waiting


async def test_a_failed_run_is_mended_by_a_fork_with_another_body() -> None:
    """Forked before the failure with a graph whose body is mended, a run goes on; a fork after it has failed too."""

    def make(broken: bool) -> Graph[Log]:
        @node(version="1")
        async def first(_: State[Log], step: Step) -> int:
            return await step.effect("count", _count, counted)

        @node(name="second")
        def breaks(state: State[Log]) -> int:
            msg = "no"
            raise LookupError(msg)

        @node(name="second")
        def mended(state: State[Log]) -> int:
            return int(state.values[0]) + 1

        return Graph("g", START >> first >> (breaks if broken else mended) >> END, context=Log)

    counted: list[int] = []
    journal = MemoryJournal()
    with pytest.raises(LookupError):
        await run(make(True), Log(), journal=journal, run_id=RUN)
    rows = await journal.read(RUN)

    result = await fork_run(make(False), RUN, journal=journal, at=rows[-1].seq - 1, new_id="f", changed="compatible")

    assert (result.status, result.output) == ("completed", 2)
    assert counted == [1]
    with pytest.raises(NodeFailed, match="no"):
        await fork_run(make(False), RUN, journal=journal, new_id="late", changed="compatible")


def _count(counted: list[int]) -> int:
    counted.append(1)
    return len(counted)


async def test_a_stopped_run_is_forked_with_more() -> None:
    """The fork gets what was lacking; the origin stands still as before."""
    journal = MemoryJournal()
    graph = Graph("g", START >> says(Calls(), "a") >> says(Calls(), "b") >> END, context=Log)
    stopped = await run(graph, Log(), journal=journal, run_id=RUN, budget=Budget(node_runs=1), clock=ManualClock())

    result = await fork_run(graph, RUN, journal=journal, new_id="f", budget=Budget(node_runs=1), clock=ManualClock())

    assert (stopped.status, result.status) == ("exhausted", "completed")
    assert await resume(graph, RUN, journal=journal) == stopped
    with pytest.raises(UsageError):
        await fork_run(graph, "f", journal=journal, new_id="g", budget=Budget(node_runs=1))


# --- idempotency keys ------------------------------------------------------------------------------------------------

Keys = dict[tuple[Any, ...], set[str]]


def keyed(keys: Keys) -> Graph[Log]:
    """Effects and tools of every kind, each of which tells its identity and its key; some are tried again."""

    def told(idempotency_key: str, *what: Any) -> int:
        keys[what].add(idempotency_key)
        return len(what)

    @node(retries=3)
    async def tries(state: State[Log], step: Any) -> int:
        where = path_text(state.path)

        async def act(amount: int, *, idempotency_key: str) -> int:
            return told(idempotency_key, where, "act", amount, amount)

        def other(amount: int, idempotency_key: str) -> int:
            return told(idempotency_key, where, "other", amount)

        await step.effect("act", act, 1)
        await step.effect("act", act, 2)
        await step.effect("pay", act, 3, key="k1")
        await step.effect("pay", other, 4, key="k2")
        await step.effect("other", other, 5)
        if step.command.attempt < 2:
            msg = "again"
            raise LookupError(msg)
        return 1

    @tool(retries=2)
    async def pay(amount: int, step: ToolStep) -> str:
        """Pay."""
        what = (path_text(step.path), "pay", amount, step.call_id)
        first = not keys[what]
        told(step.idempotency_key, *what)
        if first:
            msg = "the service was down"
            raise OSError(msg)
        return f"paid {amount}"

    @tool
    def wire(amount: int, step: ToolStep) -> str:
        """Wire."""
        told(step.idempotency_key, path_text(step.path), "wire", amount, step.call_id)
        return f"wired {amount}"

    calls = Calls()
    two = [call("pay", amount=1), call("pay", amount=1), call("wire", amount=1)]
    agent = calls.agent("agent", two, [*two, call("pay", amount=2)], all_results, tools=[pay, wire])

    @node
    def boss(state: State[Log]) -> Any:
        return Delegate(Call("agent", "1"), Call("agent", "2")) if state.turn == 0 else Done(len(state.inbox))

    inner = Graph("inner", START >> tries >> END, context=Log)
    join = Join("join")
    return Graph(
        "g",
        START >> tries >> inner >> boss,
        boss.map(tries.named("lane"), over=three, join=join, max_items=3),
        join >> agent.named("last") >> END,
        boss.delegates(agent, max_hops=2, report=Report),
        context=Log,
        max_depth=1,
    )


def three(_: State[Log]) -> tuple[int, ...]:
    """Give the items of a map."""
    return (1, 2, 3)


def hold_keys(keys: Keys) -> set[str]:
    """Each effect has one key, and no two have the same; return them."""
    assert all(len(found) == 1 for found in keys.values())
    every = [key for found in keys.values() for key in found]
    assert len(set(every)) == len(every) > 40
    return set(every)


async def test_a_key_is_one_effects_over_attempts_and_over_crashes() -> None:
    """Tried again, or done again after a crash anywhere, an effect has the key that it had; no other has it."""
    journal, keys = MemoryJournal(), defaultdict[tuple[Any, ...], set[str]](set)
    graph = keyed(keys)
    await run(graph, Log(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    every = hold_keys(keys)

    for count in range(1, len(rows), 4):
        broken = MemoryJournal()
        with contextlib.suppress(JournalUnavailable):
            await run(graph, Log(), journal=Breaking(broken, count), run_id=RUN, clock=ManualClock())
        await resume(graph, RUN, journal=broken, clock=ManualClock())
        assert hold_keys(keys) == every


async def test_a_key_is_another_for_every_run_and_fork() -> None:
    """The same graph run again, or forked at its first record, uses keys that no other run has used."""
    journal = MemoryJournal()
    seen: set[str] = set()
    for name in ("one", "two"):
        keys: Keys = defaultdict(set)
        await run(keyed(keys), Log(), journal=journal, run_id=name, clock=ManualClock())
        assert not seen & hold_keys(keys)
        seen |= hold_keys(keys)

        keys = defaultdict(set)
        await fork_run(keyed(keys), name, journal=journal, at=0, clock=ManualClock())
        assert not seen & hold_keys(keys)
        seen |= hold_keys(keys)


PROCESSES = """
import json, os, signal, sys
from collections import defaultdict
from pathlib import Path
from graphflow import SqliteJournal, resume, run
from graphflow.testing import ManualClock
from tests.cases.processes import KILLED, Killing, in_child, in_loop
from tests.cases.stored_functions import Log
from tests.cases.test_stored_forks import keyed

def write(name, keys):
    Path(name).write_text(json.dumps(sorted((repr(what), sorted(found)) for what, found in keys.items())))

async def whole():
    keys = defaultdict(set)
    await run(keyed(keys), Log(), journal=SqliteJournal("whole.db"), run_id="r", clock=ManualClock())
    write("whole", keys)

async def killed():
    keys = defaultdict(set)
    await run(keyed(keys), Log(), journal=Killing(SqliteJournal("runs.db"), 25), run_id="r", clock=ManualClock())

async def second():
    keys = defaultdict(set)
    await resume(keyed(keys), "r", journal=SqliteJournal("runs.db"), clock=ManualClock())
    write("second", keys)

assert in_child(in_loop(whole, sys.argv[1])) == 0
assert in_child(in_loop(killed, sys.argv[1])) == KILLED
assert in_child(in_loop(second, sys.argv[1])) == 0
expected, found = (
    {what: keys for what, keys in json.loads(Path(name).read_text())} for name in ("whole", "second")
)
assert found and all(expected[what] == keys for what, keys in found.items())
print(len(found), len(expected))
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_key_is_the_same_in_every_process(backend: str, tmp_path: Path) -> None:
    """The process that goes on uses the keys that the killed one would have used, whatever the hash seed."""
    lines = run_script(tmp_path, PROCESSES, backend)

    found, expected = map(int, lines[-1].split())
    assert 0 < found < expected
