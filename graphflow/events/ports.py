"""The ports of a run: who listens, what is asked before a visit, where records are kept, where time comes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from graphflow.events.records import Event, Row, record
from graphflow.model.outcome import Skip
from graphflow.model.state import State

Listener = Callable[[Event], None]
"""Called with each event of a run; one that raises hears nothing more."""

Before = Callable[[State[Any]], "Skip | Awaitable[Skip | None] | None"]
"""Asked before each visit, with what the node would see."""


@record
class StoredRun:
    """What a journal knows of a run without reading all of it.

    Attributes:
        run: its id.
        first: its first row.
        last: its last row.
        rows: how many rows it has.
        damaged: why its first and last row cannot be given, so that others stand in their place; "" if they can be.
    """

    run: str
    first: Row
    last: Row
    rows: int
    damaged: str = ""


class Writer(Protocol):
    """The one writer of a run, from `Journal.claim` until `release` or the end of its process.

    Attributes:
        last: the number of the last stored row, -1 if there is none.
        instant: whether `append_nowait` may be used, which stores without a wait that matters; any row may change it.
    """

    last: int
    instant: bool

    def append_nowait(self, row: Row) -> None:
        """Store one row, all of it or nothing; only where `instant` holds.

        Raises:
            RunLocked: another writer has taken the run over meanwhile.
            JournalUnavailable: the store failed.
        """
        ...

    async def append(self, row: Row) -> None:
        """Store one row, all of it or nothing; raises what `append_nowait` raises."""
        ...

    async def release(self) -> None:
        """Give the writer's place back."""
        ...


class Journal(Protocol):
    """Where the records of runs are kept. A record is stored before its commands are carried out.

    A journal knows nothing of graphs: a row is text to it.
    """

    async def claim(self, run: str) -> Writer:
        """Become the writer of a run, stored or new; the claim dies with its process.

        Raises:
            RunLocked: somebody else is its writer.
            JournalUnavailable: the store failed.
        """
        ...

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        """Return the rows of a run whose number is above `after`, in order; none for an unknown run."""
        ...

    async def runs(self) -> Sequence[StoredRun]:
        """Return all runs that have a row, in the order in which they were begun; a damaged one hides no other."""
        ...

    async def delete(self, run: str) -> bool:
        """Remove a run and all of its rows; tell whether there was one.

        Raises:
            RunLocked: somebody is its writer.
        """
        ...


class Clock(Protocol):
    """Where a run gets its time from, and how it waits. All times are seconds on one scale of the clock's own.

    Attributes:
        jumps: whether `all_asleep` moves the time, so that the runner must say it without delay.
    """

    jumps: bool

    def now(self) -> float:
        """Return the present time in seconds."""
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Wait until the clock shows `deadline`."""
        ...

    def all_asleep(self, deadline: float) -> None:
        """Hear that every task of a run waits for this clock, until `deadline` at the earliest."""
        ...
