"""Ctrl-C while the command line is still being loaded, or is about to leave: it ends without a traceback.

The package imports this before all else, for nothing of ours can run earlier. It does something only where the process
is the command line itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED: Final = 130


def is_command_line() -> bool:
    """Whether this process was started as `graphflow` or as `python -m graphflow.cli`."""
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] if "-m" in sys.orig_argv else []
    name = os.path.basename(sys.argv[0] if sys.argv else "")  # noqa: PTH119 - a Path takes longer to load than this
    return module == ["graphflow.cli"] or name.removesuffix(".exe") == "graphflow"


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"graphflow: cancelled.\n")
    os._exit(_INTERRUPTED)


def guard() -> None:
    """Let a Ctrl-C end the process at once from now on; where it is ignored, or heard by others, that stays."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def interruptible() -> Generator[None]:
    """Let a Ctrl-C be an exception meanwhile, and end the process at once again behind it."""
    guarded = signal.getsignal(signal.SIGINT) is _leave
    if guarded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if guarded:
            guard()


if is_command_line():
    guard()
