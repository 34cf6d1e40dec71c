"""What a long run costs: bytes grow with its steps alone, and memory does not grow while records are stored."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import pytest
from blockbuster import BlockBuster

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    State,
    Update,
    add,
    append,
    node,
    run,
    when,
)
from graphflow.events import Journal, Row, StoredRun
from graphflow.nodes.client import Stream
from graphflow.persistence.sqlite import SqliteJournal
from graphflow.testing import MemoryJournal
from tests.support import FULL

MESSAGE: Final = "m" * 200
STEPS: Final = 5000 if FULL else 500
"""Of the run whose memory is measured."""


@pytest.fixture(autouse=True)
def _appends_may_block(blockbuster: BlockBuster) -> None:
    """An append to a SQLite file takes microseconds, and is made in the event loop's thread; nothing else is."""
    blockbuster.functions["sqlite3.Cursor.execute"].can_block_in("graphflow/persistence/sqlite.py", "append_nowait")


class Log(Context):
    """Messages, or how many there were."""

    messages: Annotated[tuple[str, ...], append] = ()
    count: Annotated[int, add] = 0


def steps(count: int) -> Graph[Log]:
    """A node that appends a message, again and again."""

    @node
    async def step(state: State[Log]) -> Update:
        return Update(messages=MESSAGE, count=1)

    def more(state: State[Log]) -> bool:
        return state.context.count < count

    again = step.choose(when(more, step, max_hops=count), default=END)
    return Graph("steps", START >> step, again, context=Log)


class Says:
    """A model that says a message."""

    native_tools = True
    price = None

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        return ModelReply(MESSAGE)


def chat(count: int) -> Graph[Log]:
    """An agent that sees all that it has said, and says more, again and again."""
    talker = Agent("talker", model=Says(), history="full")

    @node
    async def counted(state: State[Log]) -> Update:
        return Update(count=1)

    def more(state: State[Log]) -> bool:
        return state.context.count < count

    again = counted.choose(when(more, talker, max_hops=count), default=END)
    return Graph("chat", START >> talker >> counted, again, context=Log)


async def stored(graph: Graph[Log], journal: Journal) -> int:
    """The bytes of a run's rows."""
    result = await run(graph, Log(), journal=journal, run_id="run")
    assert result.status == "completed"
    return sum(len(row.fact.encode()) + len(row.decisions.encode()) for row in await journal.read("run"))


@pytest.mark.parametrize(("shape", "count"), [(steps, 500), (chat, 200)])
async def test_bytes_grow_with_the_steps(shape: Callable[[int], Graph[Log]], count: int) -> None:
    """Twice as many steps that add a message take twice as many bytes: what is new is stored, and no more."""
    few, many = [await stored(shape(number), MemoryJournal()) for number in (count, 2 * count)]

    sys.stdout.write(f"{shape.__name__}: {few} and {many} bytes in {count} and {2 * count} steps\n")
    assert many / few < 2.2
    assert many / (2 * count) < 6 * len(MESSAGE)


async def test_a_file_grows_with_the_steps(tmp_path: Path) -> None:
    """The file of a SQLite journal grows as its rows do."""
    sizes: list[int] = []
    for count in (500, 1000):
        journal = SqliteJournal(tmp_path / f"{count}.db")
        await stored(steps(count), journal)
        await anyio.to_thread.run_sync(journal.close)
        sizes.append((tmp_path / f"{count}.db").stat().st_size)

    sys.stdout.write(f"a file of {sizes[0]} and {sizes[1]} bytes for 500 and 1000 steps\n")
    assert sizes[1] / sizes[0] < 2.2


class Sink:
    """A journal that takes a millisecond for a row and forgets it, and remembers how much memory was in use."""

    instant = False

    def __init__(self) -> None:
        self.last, self.memory, self._busy = -1, dict[int, int](), False
        self.rows = 0

    async def claim(self, run: str) -> "Sink":
        return self

    async def append(self, row: Row) -> None:
        assert not self._busy
        assert row.seq > self.last
        self._busy = True
        await anyio.sleep(0.001)
        self.last, self._busy, self.rows = row.seq, False, self.rows + 1
        if self.rows % (STEPS // 5) == 0:
            gc.collect()
            self.memory[self.rows] = tracemalloc.get_traced_memory()[0]

    def append_nowait(self, row: Row) -> None:
        raise NotImplementedError

    async def release(self) -> None:
        pass

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return ()

    async def runs(self) -> Sequence[StoredRun]:
        return ()

    async def delete(self, run: str) -> bool:
        return False


@pytest.mark.may_block
async def test_memory_does_not_grow_while_records_are_stored() -> None:
    """A journal that takes a millisecond for each record gets them one by one, in order, and none is kept alive."""
    sink = Sink()

    @node
    async def step(state: State[Log]) -> Update:
        return Update(count=1)

    def more(state: State[Any]) -> bool:
        return bool(state.context.count < STEPS)

    graph = Graph("steps", START >> step, step.choose(when(more, step, max_hops=STEPS), default=END), context=Log)
    tracemalloc.start()
    try:
        result = await run(graph, Log(), journal=sink, run_id="run")
    finally:
        tracemalloc.stop()

    counts = sorted(sink.memory)
    slope = (sink.memory[counts[-1]] - sink.memory[counts[0]]) / (counts[-1] - counts[0])
    sys.stdout.write(f"{slope:.0f} bytes of memory for each of {STEPS} steps\n")
    assert result.status == "completed"
    assert slope < 1024
