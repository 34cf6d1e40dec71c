"""Ctrl-C: a stored run is broken off by it, not cancelled, so that it can be resumed.

An event loop of asyncio turns the signal into a cancellation of its main task. Seen from inside, that is a caller who
cancels, which would be recorded and would end the run for good; so the signal itself is watched for.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_watching: set[Interrupts] = set()
_before: Any = None  # the handler that was there before the first of them watched


class Interrupts:
    """Notices the signal of Ctrl-C on its way to whoever handles it."""

    def __init__(self) -> None:
        """Begin without watching."""
        self.came = False

    def watch(self) -> None:
        """Watch from now on, where a loop has a handler of its own; elsewhere the signal raises KeyboardInterrupt."""
        global _before  # noqa: PLW0603 - a process has one handler of a signal
        if threading.current_thread() is not threading.main_thread():
            return  # signals are handled in the main thread alone
        there = signal.getsignal(signal.SIGINT)
        if there is not _heard:
            if not callable(there) or there is signal.default_int_handler:
                return
            _watching.clear()  # a loop that is gone has left them
            _before = there
            signal.signal(signal.SIGINT, _heard)
        _watching.add(self)

    def leave(self) -> None:
        """Watch no more; the last one puts back what was there."""
        _watching.discard(self)
        if not _watching and signal.getsignal(signal.SIGINT) is _heard:
            signal.signal(signal.SIGINT, _before)


def _heard(number: int, frame: FrameType | None) -> None:
    for one in _watching:
        one.came = True
    _before(number, frame)
