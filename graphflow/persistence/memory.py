"""A journal in memory: for tests, and for folding a run's facts again."""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.events import Record


class MemoryJournal:
    """Keeps the records of runs as long as it lives."""

    def __init__(self) -> None:
        """Begin empty."""
        self._runs: dict[str, list[Record]] = {}

    async def append(self, run: str, entry: Record) -> None:
        """Store one record of a run."""
        self._runs.setdefault(run, []).append(entry)

    async def read(self, run: str) -> Sequence[Record]:
        """Return the records of a run in order; none for an unknown run."""
        return tuple(self._runs.get(run, ()))
