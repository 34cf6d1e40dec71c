"""The tasks of a run on asyncio: who is cancelled when one of them is."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import END, START, Budget, Call, Context, Delegate, Graph, Report, Result, State, Step, node, run
from graphflow.errors import StrayCancellation
from graphflow.events import Event, NodeEnded, NodeStarted, RunEnded
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ManualClock
from tests.laws.acting import Mood
from tests.laws.teams import Book, random_team


class Case(Context):
    """What the teams know."""

    question: str = ""


class Room:
    """Where bodies meet: each waits until the others are there, and keeps the task that it runs in."""

    def __init__(self, size: int = 2) -> None:
        self.size = size
        self.tasks: dict[str, asyncio.Task[Any] | None] = {}
        self.both = asyncio.Event()

    async def meet(self, name: str) -> None:
        """Wait until all are there."""
        self.tasks[name] = asyncio.current_task()
        if len(self.tasks) == self.size:
            self.both.set()
        await self.both.wait()


def pair(room: Room, *bodies: Callable[[], Awaitable[object]]) -> Graph[Case]:
    """A caller and callees that run at once; it gives the codes of their reasons, or what they found."""

    def callee(name: str, body: Callable[[], Awaitable[object]]) -> FunctionNode[Context]:
        @node(name=name)
        async def work(state: State[Context]) -> object:
            await room.meet(name)
            return await body()

        return work

    @node
    async def boss(state: State[Case]) -> Any:
        if state.turn == 0:
            return Delegate(*(Call(name, "work") for name in names))
        reports = [report for report in state.values if isinstance(report, Report)]
        return tuple(report.reason.error_type if report.reason else report.finding for report in reports)

    names = "abc"[: len(bodies)]
    callees = [callee(name, body) for name, body in zip(names, bodies, strict=True)]
    edges = (START >> boss >> END, boss.delegates(*callees, max_hops=len(names)))
    return Graph("pair", *edges, context=Case, budget=Budget(node_runs=9), max_depth=1)


async def quick() -> str:
    """End in the next turn of the loop."""
    await asyncio.sleep(0)
    return "done"


async def forever() -> None:
    """Wait until somebody cancels it."""
    await anyio.sleep_forever()


async def cancels_itself() -> None:
    """Cancel the task that it runs in, and wait for that."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


async def cleans_up() -> str:
    """Be for a while in a timeout of its own that is over: its task is being cancelled as long as it cleans up."""
    try:
        async with asyncio.timeout(0):
            try:
                await anyio.sleep_forever()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
    except TimeoutError:
        pass
    return "done"


async def forgets() -> str:
    """Cancel its own task, and go on as if nobody had."""
    with contextlib.suppress(asyncio.CancelledError):
        await cancels_itself()
    return "done"


async def stray() -> None:
    """Wait for something else that was cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await future


@pytest.mark.parametrize("others", [cleans_up, forgets])
def test_whatever_bodies_do_to_their_own_tasks_is_no_end_of_the_loop(others: Callable[[], Awaitable[object]]) -> None:
    """Two tasks of the run are being cancelled by what runs in them, and a third body fails alone."""
    bodies = (others, others, stray)

    result = asyncio.run(run(pair(Room(3), *bodies), Case()))

    assert result.status == "partial"
    assert result.output == ("done", "done", "StrayCancellation")


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_body_that_cancels_its_own_task_fails_alone(which: str) -> None:
    """The task goes on with other bodies, and nobody takes it for the end of the loop."""
    bodies = (cancels_itself, quick) if which == "first" else (quick, cancels_itself)

    result = asyncio.run(run(pair(Room(), *bodies), Case()))

    assert result.status == "partial"
    assert result.output == tuple("done" if body is quick else "StrayCancellation" for body in bodies)


def test_a_task_whose_body_has_cancelled_it_cancels_later_bodies_as_any_other() -> None:
    """What a body asked of its task is forgotten: a timeout of the next one in the same task ends that one alone."""
    tasks: list[asyncio.Task[Any] | None] = []

    @node
    async def stray(state: State[Case]) -> None:
        tasks.append(asyncio.current_task())
        await cancels_itself()

    @node(timeout=1)
    async def slow(state: State[Case], step: Step) -> None:
        tasks.append(asyncio.current_task())
        await step.sleep(3600)

    @node
    async def last(state: State[Case]) -> str:
        return "done"

    edges = (START >> stray >> END, stray.on_error(slow), slow >> END, slow.on_error(last), last >> END)
    graph = Graph("strays", *edges, context=Case, budget=Budget(node_runs=9))

    result = asyncio.run(run(graph, Case(), clock=ManualClock()))

    assert tasks[0] is tasks[1]
    assert (result.status, result.output) == ("completed", "done")


def test_a_loop_that_ends_cancels_a_run_whose_two_tasks_are_both_at_work() -> None:
    """Both are cancelled, so it is the run that is meant: each visit ends as cancelled, and no task is left."""
    room = Room()
    events: list[Event] = []

    async def main() -> tuple[Result[Case], int]:
        caller = asyncio.ensure_future(run(pair(room, forever, forever), Case(), listeners=[events.append]))
        await room.both.wait()
        for task in asyncio.all_tasks() - {caller, asyncio.current_task()}:
            task.cancel()
        return await caller, len(asyncio.all_tasks())

    result, alive = asyncio.run(main())

    assert (result.status, alive) == ("cancelled", 1)
    assert result.reason is not None
    assert result.reason.text == "cancelled by its host"
    assert [event.body.status for event in events if isinstance(event.body, NodeEnded)] == ["cancelled"] * 3


@pytest.mark.parametrize("turns", range(1, 6))
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_loop_that_ends_before_a_host_began_ends_the_run(turns: int) -> None:
    """Three branches have been started, and some of their tasks have not: each visit ends all the same."""
    events: list[Event] = []

    def waits(name: str) -> FunctionNode[Context]:
        @node(name=name)
        async def wait(state: State[Context]) -> None:
            await anyio.sleep_forever()

        return wait

    @node
    async def last(state: State[Case]) -> None:
        pass

    branches = (waits("a"), waits("b"), waits("c"))
    graph = Graph("g", START >> branches >> last >> END, context=Case, budget=Budget(node_runs=9))
    assert not graph.check()

    async def main() -> None:
        caller = asyncio.ensure_future(run(graph, Case(), listeners=[events.append]))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not caller.done()

    asyncio.run(main())
    gc.collect()  # what anyio was to await in tasks that never began

    assert isinstance(events[-1].body, RunEnded)
    assert sum(isinstance(event.body, NodeStarted) for event in events) == 3
    assert sum(isinstance(event.body, NodeEnded) for event in events) == 3


_ = random_team(0, Mood())  # what checking a graph imports is read here, and not where it would block the loop


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_loop_that_ends_at_any_turn_ends_the_run() -> None:
    """Whatever a team is at when all tasks of its run are cancelled: each visit ends, and no task is left."""
    ends_at_any_turn()

    gc.collect()  # what anyio was to await in tasks that never began


@given(st.integers(0, 2**48), st.integers(0, 40))
def ends_at_any_turn(seed: int, turns: int) -> None:
    """A random team, and the turn of the loop at which all tasks but the caller's are cancelled."""
    team = random_team(seed, Mood(sleeps=60, raises=2, size=12))
    events: list[Event] = []

    async def main() -> tuple[BaseException | None, int]:
        caller = asyncio.ensure_future(run(team.graph, Book(), clock=ManualClock(), listeners=[events.append]))
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {caller, asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([caller])
        return caller.exception(), len(asyncio.all_tasks())

    raised, alive = asyncio.run(main())

    assert alive == 1
    if isinstance(raised, StrayCancellation):  # the run's first task was cancelled as it began, and could do no more
        return
    end = events[-1].body
    assert isinstance(end, RunEnded)
    started = sorted(str(event.path) for event in events if isinstance(event.body, NodeStarted))
    ended = sorted(str(event.path) for event in events if isinstance(event.body, NodeEnded))
    assert started == ended or end.status in {"waiting", "exhausted"}
