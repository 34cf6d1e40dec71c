"""A journal in memory: for tests, and for runs whose records need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from graphflow.errors import RunLocked
from graphflow.events import Row, StoredRun
from graphflow.persistence.storing import checked_id, checked_row, released


class MemoryJournal:
    """Keeps the rows of runs as long as it lives.

    Every run begun with one `MemoryJournal` object is in the same store; a run has one writer there as anywhere else.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._rows: dict[str, list[Row]] = {}
        self._writers: dict[str, MemoryWriter] = {}
        self._lock = threading.Lock()

    async def claim(self, run: str) -> MemoryWriter:
        """Become the writer of a run.

        Raises:
            RunLocked: it has a writer.
            UsageError: the id cannot be stored.
        """
        with self._lock:
            if checked_id(run) in self._writers:
                raise RunLocked(run)
            self._writers[run] = writer = MemoryWriter(self, run, self._rows.get(run, ()))
            return writer

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        """Return the rows of a run whose number is above `after`, in order; none for an unknown run."""
        return tuple(row for row in self._rows.get(checked_id(run), ()) if row.seq > after)

    async def runs(self) -> Sequence[StoredRun]:
        """Return all runs that have a row, in the order in which they were begun."""
        return tuple(StoredRun(run, rows[0], rows[-1], len(rows)) for run, rows in tuple(self._rows.items()))

    async def delete(self, run: str) -> bool:
        """Remove a run and all of its rows; tell whether there was one.

        Raises:
            RunLocked: it has a writer.
        """
        with self._lock:
            if checked_id(run) in self._writers:
                raise RunLocked(run)
            return self._rows.pop(run, None) is not None

    def __repr__(self) -> str:
        """Say how many runs it keeps."""
        return f"<MemoryJournal of {len(self._rows)} runs>"

    # The writer is a part of the journal that was given away, so it goes through these two.

    def store(self, writer: MemoryWriter, run: str, row: Row) -> None:
        """Store a row if its writer is still the one."""
        with self._lock:
            if self._writers.get(run) is not writer:
                raise RunLocked(run)
            self._rows.setdefault(run, []).append(row)

    def leave(self, writer: MemoryWriter, run: str) -> None:
        """Take a writer's place back if it is still the one."""
        with self._lock:
            if self._writers.get(run) is writer:
                del self._writers[run]


class MemoryWriter:
    """The writer of a run in memory.

    Attributes:
        journal: where it writes, None once it is released.
        run: the id of the run.
        last: the number of the last stored row, -1 if there is none.
        instant: storing takes no time.
    """

    instant: bool = True

    def __init__(self, journal: MemoryJournal, run: str, rows: Sequence[Row]) -> None:
        """Stand behind the rows that are there."""
        self.last = rows[-1].seq if rows else -1
        self.journal: MemoryJournal | None = journal
        self.run = run

    def append_nowait(self, row: Row) -> None:
        """Store one row.

        Raises:
            RunLocked: another writer has taken the run over meanwhile.
            UsageError: the row cannot follow the last one, or the writer was released.
        """
        if self.journal is None:
            released(self.run)
        self.journal.store(self, self.run, checked_row(self.run, self.last, row))
        self.last = row.seq

    async def append(self, row: Row) -> None:
        """Store one row, as `append_nowait` does."""
        self.append_nowait(row)

    async def release(self) -> None:
        """Give the writer's place back."""
        if self.journal is not None:
            self.journal.leave(self, self.run)
            self.journal = None
