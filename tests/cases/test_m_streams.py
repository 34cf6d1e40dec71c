"""Cases M: events reach their readers in time, all of them, and no reader can break a run; effects stand for tools."""

from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import (
    END,
    START,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    State,
    Step,
    node,
    run,
    start,
)
from graphflow.events import EffectFinished, EffectStarted, Event, ListenerFailed, NodeEnded
from graphflow.testing import ManualClock, MemoryJournal, canonical_trace, records_of
from tests.support import examples


class Nothing(Context):
    """A context without fields."""


def line(*nodes: Node[Any]) -> Graph[Nothing]:
    """Make a graph of nodes one after the other."""
    chain: Any = START
    for one in nodes:
        chain = chain >> one
    return Graph("line", chain >> END, context=Nothing)


async def nothing() -> None:
    """Do nothing, outside."""


def worker(name: str, effects: int) -> Node[Nothing]:
    """Make a node that does something outside several times."""

    async def work(_: State[Nothing], step: Step) -> str:
        for number in range(effects):
            await step.effect(f"{name} {number}", anyio.lowlevel.checkpoint)
        return name

    return node(name=name)(work)


@pytest.mark.parametrize("journal", [None, MemoryJournal()], ids=["unrecorded", "recorded"])
async def test_m1_an_effect_is_heard_of_before_it_has_ended(journal: MemoryJournal | None) -> None:
    """An effect that ends only when its start has reached the reader does end; the order is the order of things."""
    heard = anyio.Event()

    async def work(_: State[Nothing], step: Step) -> None:
        await step.effect("model", nothing)
        await step.effect("tool", heard.wait)
        await step.effect("model", nothing)

    order: list[tuple[str, str]] = []
    with anyio.fail_after(5):
        async with start(line(node(work)), Nothing(), journal=journal) as running:
            names: dict[str, str] = {}
            async for event in running:
                if isinstance(event.body, EffectStarted):
                    names[event.body.key] = event.body.name
                    order.append(("started", event.body.name))
                elif isinstance(event.body, EffectFinished):
                    order.append(("finished", names[event.body.key]))
                if order and order[-1] == ("started", "tool"):
                    heard.set()

    assert order == [(what, name) for name in ("model", "tool", "model") for what in ("started", "finished")]


async def test_m1_a_listener_hears_of_an_effect_before_it_begins() -> None:
    """What is recorded comes first: the function is called when listeners have heard."""
    order: list[str] = []

    def listen(event: Event) -> None:
        if event.kind in {"effect_started", "effect_finished"}:
            order.append(event.kind)

    async def work(_: State[Nothing], step: Step) -> None:
        await step.effect("tool", lambda: order.append("at work"))

    await run(line(node(work)), Nothing(), listeners=[listen])

    assert order == ["effect_started", "at work", "effect_finished"]


@pytest.mark.parametrize("shape", ["fork", "delegation"])
async def test_m3_parallel_effects_are_all_heard_of(shape: str) -> None:
    """Three nodes of two effects each, at once: six starts and six ends, every time, each at its path."""
    workers = [worker(name, 2) for name in "abc"]

    async def lead(state: State[Nothing]) -> Any:
        calls = [Call(name, "go") for name in "abc"]
        return Delegate(*calls) if state.turn == 0 else Report(finding="done")

    boss = node(name="boss")(lead)
    graph = (
        Graph("g", START >> tuple(workers) >> Join("j") >> END, context=Nothing)
        if shape == "fork"
        else Graph("g", START >> boss >> END, boss.delegates(*workers, max_hops=1), context=Nothing)
    )
    traces: set[tuple[str, ...]] = set()
    for _ in range(examples(200)):
        events: list[Event] = []
        async with start(graph, Nothing(), listeners=[events.append]) as running:
            read = [event async for event in running]

        assert read == events
        counts = Counter(event.kind for event in events)
        assert (counts["effect_started"], counts["effect_finished"]) == (6, 6)
        starts = Counter(event.path[-1].name for event in events if isinstance(event.body, EffectStarted))
        assert starts == {"a": 2, "b": 2, "c": 2}
        traces.add(canonical_trace(events))

    assert len(traces) == 1


@pytest.mark.parametrize("until", ["run_started", "node_started", "effect_started", "node_ended"])
async def test_m5_stopping_the_iteration_early_is_no_error(until: str) -> None:
    """A loop that is left half-way, then the block: no exception, everything cancelled at once, no task left."""
    before = {task.id for task in anyio.get_running_tasks()}
    stopped: list[str] = []

    async def hang(_: State[Nothing], step: Step) -> None:
        try:
            await step.effect("long", anyio.sleep_forever)
        finally:
            stopped.append("hang")

    events: list[Event] = []
    graph = Graph("g", START >> (worker("a", 1), node(hang)) >> Join("j") >> END, context=Nothing)
    with anyio.fail_after(2):
        async with start(graph, Nothing(), listeners=[events.append]) as running:
            async for event in running:
                if event.kind == until:
                    break

    assert running.outcome.status == "cancelled"
    assert {event.body.status for event in events if isinstance(event.body, NodeEnded)} <= {"completed", "cancelled"}
    assert {task.id for task in anyio.get_running_tasks()} <= before


async def test_m5_an_iterator_may_be_left_and_taken_up_again() -> None:
    """A second loop goes on where the first was left; two loops at once share the events."""
    async with start(line(*(worker(name, 1) for name in "abcd")), Nothing()) as running:
        first: list[int] = []
        async for event in running:
            first.append(event.seq)
            if event.kind == "effect_started":
                break
        rest: list[int] = []

        async def read() -> None:
            rest.extend([event.seq async for event in running])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)

    assert first + sorted(rest) == list(range(len(first) + len(rest)))


async def test_m5_a_reader_that_is_cancelled_takes_its_run_with_it() -> None:
    """A reader is cancelled half-way: the run inside its block is cancelled too, and only that comes out."""
    events: list[Event] = []

    async def hang(_: State[Nothing]) -> None:
        await anyio.sleep_forever()

    async def read() -> None:
        async with start(line(node(hang)), Nothing(), listeners=[events.append]) as running:
            async for _ in running:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for _ in range(30):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert events[-1].kind == "run_ended"
    assert [event.body.status for event in events if isinstance(event.body, NodeEnded)] == ["cancelled"]


async def test_m9_listeners_that_throw_change_nothing() -> None:
    """Two listeners that raise at once and one that raises later: one event about each, and the same result."""
    inner = Graph("inner", START >> worker("x", 2) >> END, context=Nothing)
    graph = Graph("g", START >> (inner, worker("b", 1)) >> Join("j") >> END, context=Nothing)
    calls: Counter[str] = Counter()

    def broken(event: Event) -> None:
        calls["broken"] += 1
        raise ValueError(event.kind)

    class Late:
        def __call__(self, event: Event) -> None:
            calls["late"] += 1
            if event.path and event.path[-1].name == "x":
                raise RuntimeError("below the root")

    def fine(event: Event) -> None:
        events.append(event)

    events: list[Event] = []
    quiet = await run(graph, Nothing())
    loud = await run(graph, Nothing(), listeners=[broken, Late(), fine, broken])

    assert (loud.status, loud.output, loud.context) == (quiet.status, quiet.output, quiet.context)
    assert loud.spent == quiet.spent
    failed = [event.body for event in events if isinstance(event.body, ListenerFailed)]
    assert sorted(body.listener.rpartition(".")[2] for body in failed) == ["Late", "broken", "broken"]
    assert calls["broken"] == 2
    assert calls["late"] < len(events)


async def test_m9_a_listener_that_throws_is_heard_of_by_readers() -> None:
    """The handle's iterator gives the event too; the journal has nothing of it."""

    def broken(_: Event) -> None:
        raise ValueError("no")

    journal, graph = MemoryJournal(), line(worker("a", 1))
    async with start(graph, Nothing(), listeners=[broken], journal=journal, clock=ManualClock()) as running:
        kinds = [event.kind async for event in running]

    records = records_of(graph, await journal.read(running.run_id))
    assert kinds.count("listener_failed") == 1
    assert sum(1 + len(entry.decisions) for entry in records) == len(kinds) - 1
