"""Runs that are cancelled natively, or broken off, while their journal is slow or is being claimed."""

import asyncio
import contextlib
import gc
import signal
import threading
import warnings
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
import trio

from graphflow import END, START, Budget, Context, Graph, State, Step, node, resume, run
from graphflow.errors import UnknownRun
from graphflow.events import Row, StoredRun, Writer
from graphflow.persistence.storing import left_in_thread, taken_in_thread
from graphflow.testing import MemoryJournal


class Case(Context):
    """A context."""

    question: str = "q"


waits: list[bool] = []


@node
async def one(state: State[Case], step: Step) -> str:
    """Make an effect, and wait for ever if it shall."""
    await step.effect("one", anyio.sleep, 0)
    if waits:
        await anyio.sleep_forever()
    return "one"


@node
async def two(state: State[Case]) -> str:
    """Answer."""
    return state.context.question


GRAPH = Graph("g", START >> one >> two >> END, context=Case, budget=Budget(node_runs=4))


@trio.lowlevel.enable_ki_protection
def interrupt() -> None:
    """Press Ctrl-C, where trio delivers that later; asyncio always does."""
    signal.raise_signal(signal.SIGINT)


class SlowWriter:
    """A writer that is waited for, before a row is there and afterwards."""

    instant = False

    def __init__(self, writer: Writer) -> None:
        """Write with another."""
        self._writer, self.last = writer, writer.last

    async def append(self, row: Row) -> None:
        """Wait, store, wait."""
        for _ in range(2):
            await asyncio.sleep(0)
        await self._writer.append(row)
        for _ in range(2):
            await asyncio.sleep(0)

    def append_nowait(self, row: Row) -> None:
        """Refuse: it is to be waited for."""
        raise NotImplementedError

    async def release(self) -> None:
        """Give the place back."""
        await self._writer.release()


class Around:
    """A journal around another, in which something happens when a run is claimed."""

    def __init__(self, *, slow: bool = False) -> None:
        """Begin with nothing stored."""
        self.inner, self._slow = MemoryJournal(), slow
        self.raises: list[bool] = []

    async def claim(self, run: str) -> Writer:
        """Claim a run; the signal of Ctrl-C may come meanwhile, where it is heard of later."""
        if self.raises:
            self.raises.clear()
            interrupt()
        writer = await self.inner.claim(run)
        return SlowWriter(writer) if self._slow else writer

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        """Read."""
        return await self.inner.read(run, after)

    async def runs(self) -> Sequence[StoredRun]:
        """List."""
        return await self.inner.runs()

    async def delete(self, run: str) -> bool:
        """Delete."""
        return await self.inner.delete(run)


@pytest.mark.parametrize("passes", range(0, 40, 4))
@pytest.mark.parametrize("loop_ends", [False, True])
@pytest.mark.may_block
def test_a_native_cancellation_while_a_row_is_waited_for(passes: int, loop_ends: bool) -> None:
    """One of the caller is recorded; where the loop itself ends the run may be broken off, and goes on to its end."""
    journal = Around(slow=True)

    async def begun() -> None:
        task = asyncio.create_task(run(GRAPH, Case(), journal=journal, run_id="r"))
        for _ in range(passes):
            await asyncio.sleep(0)
        if not loop_ends:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a task that is made while the loop ends never begins
        asyncio.run(begun())
        if loop_ends:
            gc.collect()
    rows = asyncio.run(journal.read("r"))
    ended = bool(rows) and "run_ended" in rows[-1].decisions
    if not rows:
        with pytest.raises(UnknownRun):
            asyncio.run(resume(GRAPH, "r", journal=journal))
        return

    result = asyncio.run(resume(GRAPH, "r", journal=journal))

    assert ended or loop_ends
    assert result.status in (("completed", "cancelled") if ended else ("completed",))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.may_block
def test_ctrl_c_while_a_run_is_claimed_breaks_it_off(backend: str) -> None:
    """The signal comes before the run has begun, and is delivered after: no cancellation is recorded by it."""
    journal = Around()
    journal.raises.append(True)
    waits.append(True)

    with pytest.raises(KeyboardInterrupt):
        anyio.run(lambda: run(GRAPH, Case(), journal=journal, run_id="r"), backend=backend)

    waits.clear()
    rows = asyncio.run(journal.read("r"))
    assert all("cancel_requested" not in row.fact for row in rows)
    if rows:
        assert asyncio.run(resume(GRAPH, "r", journal=journal)).status == "completed"


async def until(event: threading.Event) -> None:
    """Wait for a thread."""
    while not event.is_set():
        await anyio.lowlevel.checkpoint()


@pytest.mark.may_block
@pytest.mark.parametrize("what", ["left", "taken"])
def test_who_is_cancelled_waits_until_the_place_is_free(what: str) -> None:
    """Whoever claims the run next, as after Ctrl-C in the same process, would be told that it is somebody's."""
    begun, go, free = threading.Event(), threading.Event(), threading.Event()

    def leave() -> None:
        begun.set()
        go.wait()
        free.set()

    def take(_: str) -> str:
        begun.set()
        go.wait()
        return "place"

    async def cancelled() -> bool:
        doing = left_in_thread(leave) if what == "left" else taken_in_thread(take, "r", lambda _: free.set())
        task = asyncio.ensure_future(doing)
        await until(begun)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        early = task.done()
        go.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return early

    early = asyncio.run(cancelled())

    assert (early, free.is_set()) == (False, True)
