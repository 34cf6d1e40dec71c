"""Cases N: threads, context variables, limits of concurrency, and very wide maps; effects stand for tools."""

import functools
import sys
import threading
from collections import Counter
from contextvars import ContextVar
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import END, START, Context, Graph, Join, Node, Result, State, Step, node, run, run_sync
from graphflow.events import Event, NodeStarted
from graphflow.testing import ManualClock
from tests.cases.helpers import play

LANES = 10_000
caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Items(Context):
    """A context with items to share out."""

    items: int = 6


def numbers(state: State[Items]) -> range:
    """Give the items."""
    return range(state.context.items)


def over_items(lane: Node[Any], *, join: Join | None = None, most: int = LANES) -> Graph[Items]:
    """Make a graph that runs a lane for each item."""

    @node
    async def gate(_: State[Items]) -> None:
        """Let everything through."""

    meet = join or Join("meet", reduce=len)
    return Graph(
        "wide", START >> gate, gate.map(lane, over=numbers, join=meet, max_items=most), meet >> END, context=Items
    )


# --- N1 ---


@pytest.mark.parametrize("way", ["effects", "bodies"])
async def test_n1_sync_work_does_not_block_the_loop(way: str) -> None:
    """Three sync functions that all wait for each other and for ticks of the loop: they run at once, and it goes on."""
    together, ticked = threading.Barrier(3), threading.Event()

    def blocks() -> str:
        together.wait(10)
        assert ticked.wait(10)
        return "done"

    async def beat() -> None:
        while together.n_waiting < 3 and not together.broken and not ticked.is_set():
            ticks.append(1)
            await anyio.lowlevel.checkpoint()
            if len(ticks) >= 10:
                ticked.set()

    async def three(_: State[Items], step: Step) -> str:
        async with anyio.create_task_group() as tasks:
            for key in "abc":
                tasks.start_soon(functools.partial(step.effect, "sync", blocks, key=key))
        return "done"

    def body(_: State[Items]) -> str:
        return blocks()

    bodies = [node(name=name)(body) for name in "abc"]
    graph = (
        Graph("g", START >> node(three) >> END, context=Items)
        if way == "effects"
        else Graph("g", START >> tuple(bodies) >> Join("j") >> END, context=Items)
    )
    ticks: list[int] = []
    results: list[Result[Items]] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        results.append(await run(graph, Items()))
        ticked.set()

    assert [result.status for result in results] == ["completed"]
    assert len(ticks) >= 10


# --- N3 ---


@pytest.mark.parametrize("limit", [1, 2, 4, None])
@pytest.mark.parametrize("kind", ["async", "asleep", "sync"])
async def test_n3_no_limit_drops_an_item(limit: int | None, kind: str) -> None:
    """A map over six items runs six lanes under every limit, and never more at once."""
    running, peak = [0], [0]
    lock = threading.Lock()

    def change(by: int) -> None:
        with lock:
            running[0] += by
            peak[0] = max(peak[0], running[0])

    async def fn(state: State[Items], step: Step) -> int:
        change(1)
        await anyio.lowlevel.checkpoint()
        change(-1)
        if kind == "asleep":
            await step.sleep(1)
        item: int = state.inbox[0].value
        return item

    def sync_fn(state: State[Items]) -> int:
        change(1)
        change(-1)
        item: int = state.inbox[0].value
        return item

    lane = node(name="lane")(sync_fn if kind == "sync" else fn)
    played = await play(over_items(lane, join=Join("meet")), Items(), max_parallel=limit)

    assert played.result.output == (0, 1, 2, 3, 4, 5)
    assert Counter(played.started)["lane"] == 6
    assert peak[0] <= (limit or 6)


# --- N5 ---


async def test_n5_every_body_sees_its_callers_context_variables() -> None:
    """Async and sync bodies, branches, nested graphs, effects, retries, error edges and hooks: all see the caller's."""
    seen: dict[str, str] = {}

    def look(where: str) -> Node[Items]:
        async def body(_: State[Items]) -> None:
            seen[where] = caller.get()

        return node(name=where)(body)

    def in_thread(_: State[Items]) -> None:
        seen["sync"] = caller.get()

    def note(where: str) -> None:
        seen[where] = caller.get()

    async def note_async(where: str) -> None:
        await anyio.lowlevel.checkpoint()
        seen[where] = caller.get()

    async def effects(_: State[Items], step: Step) -> None:
        await step.effect("e", note, "sync effect")
        await step.effect("e", note_async, "async effect")
        await step.sleep(1)
        seen["after a sleep"] = caller.get()

    async def slow(_: State[Items], step: Step) -> None:
        seen[f"attempt {len([key for key in seen if key.startswith('attempt')])}"] = caller.get()
        await step.sleep(100)

    def hook(_: State[Any]) -> None:
        seen["hook"] = caller.get()

    late = node(name="slow", timeout=1, retries=1)(slow)
    after = look("on error")
    inner = Graph("inner", START >> look("nested") >> END, context=Items)
    graph = Graph(
        "g",
        START
        >> look("first")
        >> (node(name="t")(in_thread), look("branch"), inner)
        >> node(name="e")(effects)
        >> late
        >> END,
        late.on_error(after),
        after >> END,
        context=Items,
    )
    token = caller.set("me")
    try:
        result = await run(graph, Items(), clock=ManualClock(), before=hook)
    finally:
        caller.reset(token)

    assert result.status == "completed"
    assert set(seen) == {
        "first", "sync", "branch", "nested", "sync effect", "async effect", "after a sleep", "attempt 0", "attempt 1",
        "on error", "hook",
    }  # fmt: skip
    assert set(seen.values()) == {"me"}


@pytest.mark.parametrize("way", ["async", "sync", "waiting"])
async def test_n5_what_a_branch_sets_nobody_else_sees(way: str) -> None:
    """Each branch sets the variable: not its siblings, not its successor, not the caller see it."""
    seen: list[str] = []

    def setter(name: str) -> Node[Items]:
        async def body(_: State[Items], step: Step) -> None:
            seen.append(caller.get())
            caller.set(name)
            if way == "waiting":
                await step.sleep(1)
                await step.effect("e", anyio.lowlevel.checkpoint)
                assert caller.get() == name

        def sync_body(_: State[Items]) -> None:
            seen.append(caller.get())
            caller.set(name)

        return node(name=name)(sync_body if way == "sync" else body)

    graph = Graph(
        "g", START >> setter("a") >> (setter("b"), setter("c"), setter("d")) >> setter("e") >> END, context=Items
    )
    token = caller.set("me")
    try:
        await run(graph, Items(), clock=ManualClock())
        assert caller.get() == "me"
    finally:
        caller.reset(token)

    assert seen == ["me"] * 5


def test_n5_context_variables_reach_a_sync_run() -> None:
    """`run_sync` passes them on too."""

    def body(_: State[Items]) -> str:
        return caller.get()

    token = caller.set("me")
    try:
        result = run_sync(Graph("g", START >> node(body) >> END, context=Items), Items())
    finally:
        caller.reset(token)

    assert result.output == "me"


# --- N7 ---


async def test_n7_ten_thousand_lanes_under_a_limit() -> None:
    """All run once, a hundred at work at the most, and their results arrive in the order of the items."""
    running, peak, together = [0], [0], [anyio.Event()]

    async def lane(state: State[Items]) -> int:
        """Wait for ninety-nine others, so that fewer at once would never end."""
        running[0] += 1
        peak[0] = max(peak[0], running[0])
        mine = together[0]
        if running[0] == 100:
            running[0], together[0] = 0, anyio.Event()
            mine.set()
        await mine.wait()
        item: int = state.inbox[0].value
        return item

    started = 0

    def count(event: Event) -> None:
        nonlocal started
        started += isinstance(event.body, NodeStarted)

    graph = over_items(node(lane), join=Join("meet"))
    result = await run(graph, Items(items=LANES), max_parallel=100, listeners=[count])

    assert result.status == "completed"
    assert result.output == tuple(range(LANES))
    assert peak[0] == 100
    assert started == result.spent.total.node_runs == LANES + 2


def lines_of(graph: Graph[Items], lanes: int) -> int:
    """Count the lines that Python executes for a run."""
    count = 0

    def trace(_: FrameType, kind: str, __: object) -> Any:
        nonlocal count
        count += kind == "line"
        return trace

    async def main() -> None:
        nonlocal count
        await run(graph, Items(items=4), max_parallel=10)
        count = 0
        await run(graph, Items(items=lanes), max_parallel=10)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        anyio.run(main)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("waits", [False, True])
def test_n7_the_work_for_a_lane_does_not_grow(waits: bool) -> None:
    """Four times as many lanes execute four times as many lines, whether the bodies wait or not."""

    async def lane(_: State[Items], step: Step) -> None:
        if waits:
            await step.effect("e", anyio.lowlevel.checkpoint)

    graph = over_items(node(lane))

    few, many = lines_of(graph, 150), lines_of(graph, 600)

    assert many < 4.4 * few


async def test_n7_events_grow_with_the_lanes() -> None:
    """A run of ten times as many lanes has ten times as many events."""

    async def lane(_: State[Items]) -> None:
        """Do nothing."""

    async def count(lanes: int) -> int:
        number = [0]

        def listen(_: Event) -> None:
            number[0] += 1

        await run(over_items(node(lane)), Items(items=lanes), listeners=[listen])
        return number[0]

    few, many = await count(100), await count(1000)

    assert many < 10.5 * few
