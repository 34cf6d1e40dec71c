"""Ctrl-C: a stored run is broken off by it, not cancelled, so that it can be resumed.

An event loop of asyncio turns the signal into a cancellation of its main task. Seen from inside, that is a caller who
cancels, which would be recorded and would end the run for good; so the signal itself is watched for.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Notices the signal of Ctrl-C on its way to whoever handles it."""

    def __init__(self) -> None:
        """Begin without watching."""
        self.came = False
        self._handler: Any = None
        self._before: Any = None

    def watch(self) -> None:
        """Watch from now on, where a loop has a handler of its own; elsewhere the signal raises KeyboardInterrupt."""
        if threading.current_thread() is not threading.main_thread():
            return  # signals are handled in the main thread alone
        before = signal.getsignal(signal.SIGINT)
        if not callable(before) or before is signal.default_int_handler:
            return

        def heard(number: int, frame: FrameType | None) -> None:
            self.came = True
            before(number, frame)

        self._handler, self._before = heard, before
        signal.signal(signal.SIGINT, heard)

    def leave(self) -> None:
        """Watch no more."""
        if self._handler is not None and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._before)
        self._handler = None
