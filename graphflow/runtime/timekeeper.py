"""The timekeeper: active seconds, the timers of a run, and when a clock that jumps may do so."""

from __future__ import annotations

import heapq
from math import isfinite

import anyio
import anyio.lowlevel

from graphflow.events import TimerFired
from graphflow.runtime.commands import SetTimer
from graphflow.runtime.recorder import Recorder, Setup, no_time

QUIET = 8
"""How many turns of the loop in which nothing happens let a clock jump that jumps."""


STALLS = 8
"""How often in a row a clock may say that it has slept, and show no later time."""


class Timekeeper(Recorder):
    """The part of a runner that knows what time it is."""

    __slots__ = (
        "_dropped", "_local_timer", "_resting_since", "_timer_task", "_timers", "_timing", "past",
    )  # fmt: skip

    def __init__(self, setup: Setup) -> None:
        """Begin without timers."""
        super().__init__(setup)
        self._timers: list[tuple[float, bool, int]] = []  # in active seconds: a wait for people moves them all
        self._dropped: set[int] = set()
        self._timing: anyio.CancelScope | None = None
        self._timer_task = False
        self._local_timer = 0
        self.past = 0.0  # the active seconds of sessions in other processes
        self._resting_since: float | None = None

    def _go_on(self) -> None:
        """Let active time pass from now on."""
        now: object = self._clock.now()
        if not isinstance(now, int | float) or not isfinite(now):
            raise no_time(self._clock, now)
        if self._resting_since is None:
            self._origin = now - self.past
        else:
            self._origin += now - self._resting_since
            self._resting_since = None

    def _set_local_timer(self, seconds: float) -> int:
        """Have `_local_due` called after active seconds, without the fold; return the timer's number, below zero."""
        self._local_timer -= 1
        heapq.heappush(self._timers, (self._active() + seconds, True, self._local_timer))
        self._need_timer_task()
        return self._local_timer

    async def _local_due(self, timer: int) -> None:
        """Hear that a local timer is due (runner)."""
        raise NotImplementedError

    def awake(self, change: int) -> None:
        """Count the tasks of the run that do not sleep on the clock."""
        self._awake += change
        if not self._awake and self._timers:
            self._asleep()

    def _asleep(self) -> None:
        if self._clock.jumps and self._timing is not None:
            self._timing.cancel()

    def _set_timer(self, command: SetTimer) -> None:
        heapq.heappush(self._timers, (command.at, command.limit, command.timer))
        self._need_timer_task()

    def _need_timer_task(self) -> None:
        tasks = self._tasks()
        if not self._timer_task and tasks is not None:
            self._timer_task = True
            tasks.start_soon(self._tick)
        elif self._timing is not None:
            self._timing.cancel()

    async def _tick(self) -> None:
        """Report timers as they come due; ends when there are none."""
        stalls = 0
        try:
            while self._timers and not self._stopping:
                at, limit, timer = self._timers[0]
                deadline = at + self._origin
                if timer in self._dropped:
                    self._dropped.discard(timer)
                    heapq.heappop(self._timers)
                    continue
                if not self._awake:
                    if self._clock.jumps and not await self._quiet():
                        continue
                    self._clock.all_asleep(deadline)
                if (now := self._clock.now()) < deadline:
                    with anyio.CancelScope() as scope:
                        self._timing = scope
                        await self._clock.sleep_until(deadline)
                    self._timing = None
                    after = self._clock.now()
                    stalls = stalls + 1 if after <= now and not scope.cancel_called else 0
                    if stalls >= STALLS:
                        self._crashed(no_time(self._clock, after))
                    continue
                if limit and self._clock.jumps and not await self._quiet(asleep=False):
                    continue
                heapq.heappop(self._timers)
                if timer < 0:
                    await self._local_due(timer)
                else:
                    await self.record(TimerFired(timer))
        finally:
            self._timer_task = False
            self._timing = None

    async def _quiet(self, *, asleep: bool = True) -> bool:
        """Tell whether nothing more comes of itself, before a clock that jumps does so, or before a limit is reached.

        A body of several tasks, one of which sleeps, may have others that go on: each gets its turns here.
        """
        for _ in range(QUIET):
            seen = self.seq, self._timers[0]
            await anyio.lowlevel.checkpoint()
            if (asleep and self._awake) or self._stopping or not self._timers or (self.seq, self._timers[0]) != seen:
                return False
        return True
