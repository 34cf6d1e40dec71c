"""`ManualClock`: time that jumps when nothing else is left to do."""

from __future__ import annotations

import anyio


class ManualClock:
    """A clock that stands still while anything runs, and jumps when every task of the run waits for it.

    Hours pass in no time, on both backends, and always to the same moment.

    >>> clock = ManualClock()
    >>> clock.advance(3600.0)
    >>> clock.now()
    3600.0
    """

    jumps = True

    def __init__(self, now: float = 0.0) -> None:
        """Begin at a time in seconds."""
        self._now = now
        self._sleepers: list[tuple[float, anyio.Event]] = []

    def now(self) -> float:
        """Return the present time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass by hand."""
        self.all_asleep(self._now + seconds)

    async def sleep_until(self, deadline: float) -> None:
        """Wait until the clock shows `deadline`."""
        while self._now < deadline:
            event = anyio.Event()
            self._sleepers.append((deadline, event))
            await event.wait()

    def all_asleep(self, deadline: float) -> None:
        """Jump to `deadline`: every task of the run waits for it."""
        self._now = max(self._now, deadline)
        due = [event for at, event in self._sleepers if at <= self._now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self._now]
        for event in due:
            event.set()
