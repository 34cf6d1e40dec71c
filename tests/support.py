"""What tests share that is not a fixture."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio

from graphflow.events import Row, Writer
from graphflow.persistence.memory import MemoryJournal

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "graphflow"

FULL: Final = os.environ.get("GRAPHFLOW_FULL", "") not in {"", "0"}


def examples(full: int) -> int:
    """How many examples a property runs: `full` when GRAPHFLOW_FULL is set, a tenth otherwise, never none.

    Use it as `@settings(max_examples=examples(1000))`.
    """
    return full if FULL else max(1, full // 10)


class SlowWriter:
    """A writer that has to be waited for."""

    instant = False

    def __init__(self, writer: Writer, seconds: float, before: Callable[[Row], None]) -> None:
        self._writer, self._seconds, self._before = writer, seconds, before
        self.last = writer.last

    def append_nowait(self, row: Row) -> None:
        raise NotImplementedError

    async def append(self, row: Row) -> None:
        await anyio.sleep(self._seconds)
        self._before(row)
        await self._writer.append(row)

    async def release(self) -> None:
        await self._writer.release()


class SlowJournal(MemoryJournal):
    """A journal in memory that has to be waited for, as one on another machine has; `before` may refuse a row."""

    def __init__(self, seconds: float = 0.0, before: Callable[[Row], None] = lambda _: None) -> None:
        super().__init__()
        self._seconds, self._before = seconds, before

    async def claim(self, run: str) -> Any:
        return SlowWriter(await super().claim(run), self._seconds, self._before)


class SlowingWriter(SlowWriter):
    """A writer that has to be waited for once it has stored some rows."""

    instant = True
    left = 5

    def append_nowait(self, row: Row) -> None:
        self._before(row)
        self._writer.append_nowait(row)
        self.left -= 1
        self.instant = self.left > 0


class SlowingJournal(SlowJournal):
    """A journal in memory that has to be waited for after the first rows, as a disk that becomes slow."""

    async def claim(self, run: str) -> Any:
        return SlowingWriter(await MemoryJournal.claim(self, run), self._seconds, self._before)


class BreakingWriter(SlowWriter):
    """A writer that is not waited for."""

    instant = True

    def append_nowait(self, row: Row) -> None:
        self._before(row)
        self._writer.append_nowait(row)


class BreakingJournal(SlowJournal):
    """A journal in memory that may refuse a row."""

    def __init__(self, before: Callable[[Row], None]) -> None:
        super().__init__(0.0, before)

    async def claim(self, run: str) -> Any:
        return BreakingWriter(await MemoryJournal.claim(self, run), 0.0, self._before)
