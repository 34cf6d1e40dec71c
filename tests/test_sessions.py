"""The tasks of a run on asyncio: who is cancelled when one of them is."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import END, START, Budget, Call, Context, Delegate, Graph, Join, Report, Result, State, Step, node, run
from graphflow.errors import StrayCancellation
from graphflow.events import Event, NodeEnded, NodeStarted, RunEnded
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.backends import new_tasks
from graphflow.testing import ManualClock
from tests.laws.acting import Mood
from tests.laws.teams import Book, random_team

ONLY_SINCE_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 brought tasks that begin at once")


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
    gc.collect()  # a coroutine that nobody has awaited would be said now

    assert isinstance(events[-1].body, RunEnded)
    assert sum(isinstance(event.body, NodeStarted) for event in events) == 3
    assert sum(isinstance(event.body, NodeEnded) for event in events) == 3


def fan(body: FunctionNode[Any], lanes: int) -> Graph[Case]:
    """A map whose lanes run one body; it gives how many came to its end."""

    @node
    async def many(state: State[Case]) -> None:
        pass

    total = Join("total", reduce=len)
    spread: Any = many.map(body, over=lambda _: range(lanes), join=total, max_items=lanes)
    graph = Graph("fan", START >> many, spread, total >> END, context=Case, budget=Budget(node_runs=lanes + 2))
    assert not graph.check()
    return graph


def plain(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task as the loop would have."""
    return asyncio.Task(coroutine, loop=loop, **options)


@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=ONLY_SINCE_3_12)])
def test_a_task_factory_of_the_loop_makes_the_tasks_of_bodies(*, eager: bool) -> None:
    """Also one that lets tasks begin at once: many bodies that wait do not begin inside each other."""
    made: list[asyncio.Task[Any]] = []
    used: set[asyncio.Task[Any] | None] = set()
    inner = asyncio.eager_task_factory if eager else plain  # type: ignore[attr-defined,unused-ignore]

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(inner(loop, coroutine, **options))
        return made[-1]

    @node
    async def lane(state: State[Case]) -> int:
        used.add(asyncio.current_task())
        await asyncio.sleep(0)
        return 1

    async def main() -> Result[Case]:
        asyncio.get_running_loop().set_task_factory(inner if eager else factory)
        return await run(fan(lane, 400), Case())

    result = asyncio.run(main())

    assert result.output == 400
    assert eager or used <= set(made)


async def test_what_no_run_survives_stops_every_body_that_waits(anyio_backend: str) -> None:
    """Bodies of several scopes wait, one clears up for a while, and no task is left when the error arrives."""
    begun: list[Any] = []
    ended: list[Any] = []

    @node
    async def lane(state: State[Case]) -> None:
        number = state.inbox[0].value
        if number == 40:
            await anyio.lowlevel.checkpoint()
            raise KeyboardInterrupt
        begun.append(state.path)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(number % 3):
                    await anyio.lowlevel.checkpoint()
            ended.append(state.path)

    inner = fan(lane, 41)
    graph = Graph("outer", START >> (inner, inner.named("second")) >> Join("both") >> END, context=Case,
                  budget=Budget(node_runs=99), max_depth=1)  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        await run(graph, Case())

    assert len(begun) >= 40
    assert sorted(begun) == sorted(ended)


def test_a_group_waits_for_its_tasks_however_often_its_own_is_cancelled() -> None:
    """It raises the cancellation then, and a task that was cancelled before it began is waited for too."""
    done: list[str] = []

    async def work(name: str) -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        done.append(name)

    async def main() -> bool:
        async def host() -> None:
            async with new_tasks() as tasks:
                tasks.start_soon(work, "a")
                tasks.start_soon(work, "b")

        hosting = asyncio.ensure_future(host())
        await asyncio.sleep(0)
        (asyncio.all_tasks() - {hosting, asyncio.current_task()}).pop().cancel()
        for _ in range(3):
            await asyncio.sleep(0)
            hosting.cancel()
        await asyncio.wait([hosting])
        return hosting.cancelled()

    assert asyncio.run(main())
    assert len(done) == 1


_ = random_team(0, Mood())  # what checking a graph imports is read here, and not where it would block the loop


def test_a_loop_that_ends_at_any_turn_ends_the_run() -> None:
    """Whatever a team is at when all tasks of its run are cancelled: each visit ends, and no task is left."""
    ends_at_any_turn()

    gc.collect()  # a coroutine that nobody has awaited would be said now


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
