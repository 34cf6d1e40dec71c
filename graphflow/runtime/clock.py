"""The real clock. Tests use `graphflow.testing.ManualClock`."""

from __future__ import annotations

import time

import anyio


class RealClock:
    """Monotonic seconds of this machine."""

    jumps = False

    now = staticmethod(time.monotonic)

    async def sleep_until(self, deadline: float) -> None:
        """Wait until the clock shows `deadline`."""
        while (left := deadline - time.monotonic()) > 0:  # noqa: ASYNC110 - a sleep may end a little early
            await anyio.sleep(left)

    def all_asleep(self, deadline: float) -> None:
        """Ignore it: real time does not jump."""
