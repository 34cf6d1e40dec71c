"""Cases Q: one outcome on every backend, and handles that belong to no task."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import END, START, Context, Graph, Human, Join, Node, Run, State, Step, node, run, start
from graphflow.errors import UsageError
from graphflow.events import Event, NodeEnded, NodeStarted, RunEnded
from graphflow.testing import ManualClock, MemoryJournal, canonical_trace, fold_again

EAGER: list[str] = ["eager"] if sys.version_info >= (3, 12) else []  # tasks that begin at once came with Python 3.12
BACKENDS = ["asyncio", *EAGER, "trio"]


class Nothing(Context):
    """A context without fields."""


def on_backend(backend: str, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run something on a backend; "eager" is asyncio with tasks that begin at once."""

    async def eager() -> Any:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - since 3.12
        return await main()

    return anyio.run(eager, backend="asyncio") if backend == "eager" else anyio.run(main, backend=backend)


def named(name: str) -> Node[Nothing]:
    """Make a node that gives its name."""

    async def say(_: State[Nothing]) -> str:
        await anyio.lowlevel.checkpoint()
        return name

    return node(name=name)(say)


@node
async def hangs(_: State[Nothing]) -> None:
    """Wait until it is cancelled."""
    await anyio.sleep_forever()


@node
async def breaks_when_cancelled(_: State[Nothing]) -> None:
    """Raise something else in its cleanup."""
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("cleanup")


@node
async def breaks(_: State[Nothing]) -> None:
    """Raise."""
    await anyio.lowlevel.checkpoint()
    raise LookupError("broken")


@node
async def strays(_: State[Nothing]) -> None:
    """Raise a cancellation that nobody asked for."""
    raise asyncio.CancelledError


async def timed_out(listen: Callable[[Event], None]) -> str:
    """Cancel a run from outside by a deadline, while its node raises in its cleanup."""
    graph = Graph("g", START >> (breaks_when_cancelled, hangs) >> Join("j") >> END, context=Nothing)
    try:
        with anyio.fail_after(0.05):
            await run(graph, Nothing(), listeners=[listen])
    except BaseException as error:  # noqa: BLE001 - which one it is, is the question
        return type(error).__name__
    return "nothing"


async def failed(listen: Callable[[Event], None]) -> str:
    """Let a branch fail while its sibling hangs."""
    graph = Graph("g", START >> (breaks, hangs) >> Join("j") >> END, context=Nothing)
    try:
        await run(graph, Nothing(), listeners=[listen])
    except BaseException as error:  # noqa: BLE001 - which one it is, is the question
        return f"{type(error).__name__}: {error}"
    return "nothing"


async def strayed(listen: Callable[[Event], None]) -> str:
    """Let a node raise a cancellation of its own."""
    result = await run(Graph("g", START >> strays >> END, context=Nothing), Nothing(), listeners=[listen])
    return f"{result.status} {result.reason and result.reason.code}"


async def slept(listen: Callable[[Event], None]) -> str:
    """Sleep for hours, time out, and go on."""

    async def nap(_: State[Nothing], step: Step) -> None:
        await step.sleep(3600)

    slow, after = node(name="slow", timeout=60, retries=1)(nap), named("after")
    graph = Graph("g", START >> slow >> END, slow.on_error(after), after >> END, context=Nothing)
    result = await run(graph, Nothing(), listeners=[listen], clock=ManualClock())
    return f"{result.status} {result.output}"


async def asked(listen: Callable[[Event], None]) -> str:
    """Ask two people, and take their answers in the other order."""
    graph = Graph("g", START >> (Human("x", "x?"), Human("y", "y?")) >> Join("j") >> END, context=Nothing)
    async with start(graph, Nothing(), listeners=[listen]) as running:
        waiting = await running.result()
        first, second = waiting.questions
        running.answer(second.id, second.path)
        await running.result()
        running.answer(first.id, first.path)
        result = await running.result()
    return f"{result.status} {result.output}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(timed_out, "TimeoutError", id="timed out"),
        pytest.param(failed, "LookupError: broken", id="failed"),
        pytest.param(strayed, "failed stray_cancellation", id="strayed"),
        pytest.param(slept, "completed after", id="slept"),
        pytest.param(asked, "completed ('x', 'y')", id="asked"),
    ],
)
def test_q1_one_program_has_one_outcome(
    backend: str, program: Callable[[Callable[[Event], None]], Awaitable[str]], expected: str
) -> None:
    """The exception, and the record of the run, are those of the reference backend."""
    traces: list[tuple[str, ...]] = []
    for where in ("asyncio", backend):
        events: list[Event] = []

        async def main(events: list[Event] = events) -> str:
            return await program(events.append)

        assert on_backend(where, main) == expected
        traces.append(canonical_trace(events))

    assert traces[0] == traces[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_q1_an_error_in_the_cleanup_of_a_cancelled_run_is_recorded_alone(backend: str) -> None:
    """The run is cancelled, its visits too; the ValueError stands in its fact, and comes out nowhere."""
    events: list[Event] = []

    async def main() -> str:
        return await timed_out(events.append)

    on_backend(backend, main)

    ended = events[-1].body
    assert isinstance(ended, RunEnded)
    assert ended.status == "cancelled"
    assert [event.body.status for event in events if isinstance(event.body, NodeEnded)] == ["cancelled"] * 2
    assert "cleanup" in " ".join(str(event) for event in events if event.kind == "node_returned")


@pytest.mark.parametrize("backend", BACKENDS)
def test_q1_the_record_folds_again(backend: str) -> None:
    """The facts of a cancelled run, folded again, draw the same decisions on every backend."""
    journal = MemoryJournal()
    graph = Graph("g", START >> (breaks_when_cancelled, hangs, named("a")) >> Join("j") >> END, context=Nothing)

    async def main() -> None:
        with anyio.move_on_after(0.02):
            await run(graph, Nothing(), journal=journal, run_id="r")
        assert fold_again(graph, await journal.read("r")).ended.status == "cancelled"

    on_backend(backend, main)


async def stream(kept: list[Run[Nothing]]) -> AsyncIterator[Event]:
    """Give the events of a run from a generator that owns it."""
    graph = Graph("g", START >> named("a") >> hangs >> END, context=Nothing)
    async with start(graph, Nothing()) as running:
        kept.append(running)
        async for event in running:
            yield event


async def test_q3_a_stream_is_advanced_by_one_task_and_closed_by_another() -> None:
    """No cancel scope is left in a task other than the one that entered it: the run is cancelled and reaped."""
    kept: list[Run[Nothing]] = []
    events = stream(kept)
    read: list[Event] = []

    async def advance() -> None:
        read.extend([await anext(events), await anext(events)])

    async def close() -> None:
        await events.aclose()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    for step in (advance, close):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)

    assert len(read) == 2
    assert kept[0].outcome.status == "cancelled"


async def test_q3_each_event_may_be_read_by_another_task() -> None:
    """A stream that goes from task to task gives every event once."""
    kept: list[Run[Nothing]] = []
    events = stream(kept)
    read: list[Event] = []

    async def advance() -> None:
        read.append(await anext(events))

    while not (read and isinstance(read[-1].body, NodeStarted) and read[-1].path[-1].name == "hangs"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(advance)
    kept[0].cancel()

    assert (await kept[0].result()).status == "cancelled"
    assert [event.seq for event in read] == list(range(len(read)))
    assert [event.kind async for event in events][-1] == "run_ended"


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
async def test_q3_a_stream_closed_by_a_finalizer_reaps_its_run() -> None:
    """A generator that is collected half-way closes in a task of the loop's own: the run is reaped all the same."""
    kept: list[Run[Nothing]] = []
    events = stream(kept)
    await anext(events)
    del events
    gc.collect()

    with anyio.fail_after(5):
        while not _over(kept[0]):  # noqa: ASYNC110 - a finalizer tells nobody
            await anyio.sleep(0.001)
    assert kept[0].outcome.status == "cancelled"


def _over(running: Run[Nothing]) -> bool:
    try:
        return bool(running.outcome)
    except UsageError:
        return False


@pytest.mark.parametrize("backend", BACKENDS)
def test_q3_a_stream_left_to_the_end_of_its_loop_is_no_error(backend: str) -> None:
    """A generator that is still open when the loop ends: its run is reaped, and nothing is reported."""
    kept: list[Run[Nothing]] = []
    problems: list[Any] = []

    async def main() -> None:
        events = stream(kept)
        await anext(events)
        kept_open.append(events)

    kept_open: list[AsyncIterator[Event]] = []
    before, sys.unraisablehook = sys.unraisablehook, problems.append
    try:
        on_backend(backend, main)
        kept_open.clear()
        gc.collect()
    finally:
        sys.unraisablehook = before

    assert kept[0].outcome.status == "cancelled"
    assert problems == []
