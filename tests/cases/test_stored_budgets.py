"""Runs that a budget stopped go on with more, as if they had had it from the start (DESIGN.md, failures and bounds)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Budget,
    Graph,
    Human,
    Join,
    Result,
    SqliteJournal,
    State,
    Step,
    ToolStep,
    fork,
    reopen,
    replay,
    resume,
    run,
    tool,
    when,
)
from graphflow.errors import UsageError
from graphflow.events import BudgetAdded, RunEnded
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import all_results
from tests.cases.stored import RUN, Calls, Ended, Plan, Stage, copied, go_on, play
from tests.cases.stored_budgets import SHORT, loop
from tests.cases.stored_functions import Log, merges, says


def alike(result: Result[Any]) -> Result[Any]:
    """Return a result without what was refused on the way: who has enough is refused nothing."""
    return dataclasses.replace(result, refused=())


def ends(ended: Ended[Any]) -> list[str]:
    """Give how a run has stood still, in order."""
    return [event.body.status for event in ended.events if isinstance(event.body, RunEnded)]


@pytest.mark.parametrize("name", list(SHORT))
async def test_a_run_that_is_given_more_ends_like_one_that_had_it_all(name: str) -> None:
    """Of every dimension that can be added: result, spending, thread and outputs are those of the richer run."""
    short = SHORT[name]

    poor = await play(short.plan, MemoryJournal())
    rich = await play(short.rich, MemoryJournal())

    assert alike(poor.result) == alike(rich.result)
    assert poor.error == rich.error
    assert ends(rich).count("exhausted") == 0
    assert ends(poor).count("exhausted") == sum(isinstance(event.body, BudgetAdded) for event in poor.events) > 0
    for what, count in poor.calls.items():
        assert rich.calls[what] <= count <= rich.calls[what] + len(short.rest)
        assert count == rich.calls[what] or what[0] == "a body" or "seconds" in name


@pytest.mark.parametrize("name", ["node_runs", "model_calls", "tokens of a body", "seconds"])
async def test_each_stop_can_be_looked_at_replayed_and_left_alone(name: str) -> None:
    """A stopped run is exhausted in any process, as often as it is asked; less than nothing changes it."""
    short, journal = SHORT[name], MemoryJournal()
    plan = dataclasses.replace(short.plan, more=())
    stopped = await play(plan, journal)
    rows = await journal.read(RUN)

    for _ in range(2):
        again = await go_on(plan, journal)
        assert again.result == stopped.result
        assert not again.calls
    graph = short.make(Calls())
    assert await replay(graph, RUN, journal=journal) == stopped.result
    reason = stopped.result.reason
    assert reason is not None
    assert reason.code in name
    other = Budget(retries=5) if reason.code != "retries" else Budget(tokens=5)
    with pytest.raises(UsageError, match=f"stopped for the lack of {reason.code}"):
        await resume(graph, RUN, journal=journal, budget=other)
    assert await journal.read(RUN) == rows


@pytest.mark.parametrize("bound", ["max_hops", "max_visits", "max_depth", "max_turns"])
async def test_a_bound_that_is_no_budget_is_not_raised_by_one(bound: str) -> None:
    """Hops, visits and turns are part of the graph: a budget is refused, with the way out, and nothing is written."""

    def make(calls: Calls) -> Graph[Log]:
        a, b = says(calls, "a", max_visits=2 if bound == "max_visits" else None), merges(calls)
        if bound in {"max_hops", "max_visits"}:
            return Graph("g", START >> a >> b, b.choose(when(always, a, max_hops=2), default=END), context=Log)
        if bound == "max_turns":
            agent = calls.agent("agent", call("nobody"), "never", max_turns=1)
            return Graph("g", START >> agent >> END, context=Log)
        worker = calls.agent("worker", "done")
        boss = calls.agent("boss", call("ask_worker", objective="?"), all_results)
        return Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Log, max_depth=0)

    journal = MemoryJournal()
    stage = Stage(Plan(make=make, context=Log()))
    if bound == "max_depth":
        assert stage.graph.check()  # refused before it runs
        return
    stopped = await play(stage.plan, journal, stage)

    with pytest.raises(UsageError, match=f"stopped by the bound '{bound}', which is no budget"):
        await resume(stage.graph, RUN, journal=journal, budget=Budget(tokens=5))

    assert stopped.result.status == "exhausted"
    assert tuple(await journal.read(RUN)) == stopped.rows


def always(_: State[Any]) -> bool:
    """Hold for ever."""
    return True


async def test_a_run_that_has_ended_takes_no_budget() -> None:
    """More of anything changes nothing of a run that is completed, failed or cancelled: it is said so."""
    for found in (says(Calls(), "a"), Calls().node(_fails, name="a")):
        journal = MemoryJournal()
        graph = Graph("g", START >> found >> END, context=Log)
        stage = Stage(Plan(make=functools.partial(_given, graph), context=Log()))
        ended = await play(stage.plan, journal, stage)

        with pytest.raises(UsageError, match=f"has ended as {ended.result.status}"):
            await resume(graph, RUN, journal=journal, budget=Budget(tokens=5))

        assert tuple(await journal.read(RUN)) == ended.rows


def _given(graph: Graph[Log], _: Calls) -> Graph[Log]:
    return graph


def _fails(_: State[Log]) -> None:
    msg = "no"
    raise LookupError(msg)


async def test_a_waiting_or_broken_run_is_given_more_before_it_needs_it() -> None:
    """A budget that comes with an answer, or with the first resume after a crash, counts from then on."""

    def make(calls: Calls) -> Graph[Log]:
        return Graph("g", START >> says(calls, "a") >> Human("ask", "q?") >> says(calls, "b") >> END, context=Log)

    journal = MemoryJournal()
    plan = Plan(make=make, context=Log(), options={"budget": Budget(node_runs=2)})
    waiting = await play(plan, journal)
    more = Budget(node_runs=1)

    rich = await resume(
        make(Calls()), RUN, journal=journal, budget=more, answers={"ask": 1}, clock=ManualClock()
    )  # fmt: skip
    broken = await copied(waiting.rows[:2], MemoryJournal())
    still = await resume(make(Calls()), RUN, journal=broken, budget=more, clock=ManualClock())
    done = await resume(make(Calls()), RUN, journal=broken, answers={"ask": 1}, clock=ManualClock())
    poor = await copied(waiting.rows, MemoryJournal())
    stopped = await resume(make(Calls()), RUN, journal=poor, answers={"ask": 1}, clock=ManualClock())

    assert (waiting.result.status, still.status) == ("waiting", "waiting")
    assert (rich.status, done.status, stopped.status) == ("completed", "completed", "exhausted")
    assert rich == done


async def test_a_stopped_run_is_cancelled_or_answered_by_another_process() -> None:
    """What stands still at a bound can be cancelled; a question that is open beside the bound stays open."""

    def make(calls: Calls) -> Graph[Log]:
        inner = Graph("inner", START >> says(calls, "a") >> says(calls, "b") >> END, context=Log)
        return Graph("g", START >> inner >> says(calls, "c") >> END, context=Log)

    journal = MemoryJournal()
    plan = Plan(make=make, context=Log(), options={"budget": Budget(node_runs=2)})
    await play(plan, journal)

    async with reopen(make(Calls()), RUN, journal=journal, budget=Budget(node_runs=1)) as running:
        running.cancel("somebody")
        result = await running.result()

    assert result.status in {"cancelled", "exhausted"}
    assert await replay(make(Calls()), RUN, journal=journal) == result


Make = Callable[[Calls], Graph[Log]]
CUTS: dict[str, Make] = {}


def cut(name: str) -> Callable[[Make], Make]:
    """Remember a graph whose time ends in the middle of something."""

    def put(make: Make) -> Make:
        CUTS[name] = make
        return make

    return put


@cut("a body")
def body(calls: Calls) -> Graph[Log]:
    """A body between its effects."""

    @calls.node
    async def works(_: State[Log], step: Step) -> int:
        total = 0
        for number in range(4):
            total += await calls.effect(step, f"part {number}", number)
            await step.sleep(2)
        return total

    return Graph("g", START >> works >> merges(calls) >> END, context=Log)


@cut("a body with a timeout and retries")
def timed(calls: Calls) -> Graph[Log]:
    """A body that has its time anew."""
    return Graph("g", START >> says(calls, "a", sleep=5, timeout=6, retries=1) >> END, context=Log)


@cut("branches of which one has failed")
def failed(calls: Calls) -> Graph[Log]:
    """Branches that fail, end and go on at different times."""

    @calls.node
    async def fails(_: State[Log], step: Step) -> None:
        await step.sleep(1)
        msg = "no"
        raise LookupError(msg)

    sides = fork(fails, says(calls, "a", sleep=4), says(calls, "b", sleep=7), failure="collect")
    return Graph("g", START >> sides >> merges(calls, "j") >> END, context=Log)


@cut("lanes at a limit")
def lanes(calls: Calls) -> Graph[Log]:
    """More lanes than may run at once."""
    first, lane, join = says(calls, "first"), says(calls, "lane", sleep=2, effects=2), Join("j", reduce=sum)
    return Graph("g", START >> first, first.map(lane, over=five, join=join, max_items=5), join >> END, context=Log)


def five(_: State[Log]) -> tuple[int, ...]:
    """Give five items."""
    return (1, 2, 3, 4, 5)


@cut("a team of agents")
def team(calls: Calls) -> Graph[Log]:
    """Slow models and slow tools at several levels."""

    @tool
    async def slow(what: str, step: ToolStep) -> str:
        """Be slow."""
        calls.tool(step)
        await step.sleep(2)
        return what

    low = calls.agent("low", [call("slow", what="x"), call("slow", what="y")], all_results, tools=[slow])
    mid = calls.agent("mid", [call("ask_low", objective="1"), call("slow", what="m")], all_results, tools=[slow])
    boss = calls.agent("boss", [call("ask_mid", objective="1"), call("ask_low", objective="2")], all_results)
    delegates = boss.delegates(mid, low, max_hops=2), mid.delegates(low, max_hops=2)
    return Graph("g", START >> boss >> END, *delegates, context=Log, max_depth=2)


@pytest.mark.parametrize("slice_", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("what", list(CUTS))
async def test_time_may_end_anywhere_and_go_on_later(what: str, slice_: float) -> None:
    """A run that is given its time in slices does what it does with all of it at once, as far as a slice suffices."""
    options = {"max_parallel": 2} if what == "lanes at a limit" else {}
    make = CUTS[what]
    whole = await play(Plan(make=make, context=Log(), options=options), MemoryJournal())
    sliced = Plan(
        make=make,
        context=Log(),
        more=[Budget(seconds=slice_)] * 40,
        options={**options, "budget": Budget(seconds=slice_)},
    )
    if what == "a team of agents" and slice_ < 2:
        return  # what a tool slept is not remembered: a slice must be long enough for one call

    ended = await play(sliced, MemoryJournal())

    assert alike(ended.result) == alike(whole.result)
    assert ended.error == whole.error
    done = {name: count for name, count in ended.calls.items() if name[0] != "a body" and "slow" not in name[0]}
    assert done == {name: whole.calls[name] for name in done}


async def test_a_stopped_run_in_a_file_goes_on_in_other_objects(tmp_path: Any) -> None:
    """Each budget comes by a journal object of its own."""
    short = SHORT["node_runs"]
    rich = await play(short.rich, MemoryJournal())
    file = tmp_path / "runs.db"
    await run(loop(Calls()), Log(), journal=SqliteJournal(file), run_id=RUN, budget=short.first, clock=ManualClock())

    results = [
        await resume(loop(Calls()), RUN, journal=SqliteJournal(file), budget=more, clock=ManualClock())
        for more in short.rest
    ]

    assert alike(results[-1]) == alike(rich.result)
