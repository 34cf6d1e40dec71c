"""Starts a tool server, says how it ended, and ends it when the program that wanted it is gone.

Run as a program of its own, `python -I -S guard.py PID COMMAND...`, with nothing but the standard library: a program
that is killed can end nobody any more, and a server that hangs does not notice that its input has ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

MARK = "graphflow-guard: "
"""How a line on stderr begins that is the guard's own."""

LOOK = 0.5
"""Seconds between two looks at whether the program is still there."""

GRACE = 2.0
"""Seconds that a server gets to end by itself, and then once it has been asked to."""


def main(parent: int, command: list[str]) -> int:
    """Run a command to its end, or to that of the program."""
    for name in (signal.SIGTERM, signal.SIGINT):  # handled, not ignored: what is ignored is inherited
        signal.signal(name, _hear)
    try:
        child = subprocess.Popen(command)  # noqa: S603 - it is what the program's author wants started
    except (OSError, ValueError) as error:
        _say(f"cannot be started: {getattr(error, 'strerror', None) or error}")
        return 127
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # they are the server's alone, so that their ends are seen on the other side
        os.dup2(nothing, number)
    ended = threading.Event()

    def wait() -> None:
        child.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(LOOK):
        if os.name == "posix" and os.getppid() != parent:  # elsewhere a job of the system does it
            _end_all(ended)
    code = child.returncode
    _say(f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
    _signal_group(signal.SIGTERM)  # what it has left behind
    return code if code >= 0 else 128 - code


def _hear(number: int, frame: object) -> None:
    """Go on: what is meant for all reaches the server, too."""


def _end_all(ended: threading.Event) -> None:
    """End the server: it has lost its input, it is asked to end, it is killed."""
    if ended.wait(GRACE):
        return
    _signal_group(signal.SIGTERM)
    if not ended.wait(GRACE):
        _signal_group(signal.SIGKILL)


def _signal_group(number: int) -> None:
    if os.name == "posix" and os.getpgrp() == os.getpid():  # never somebody else's group
        with contextlib.suppress(OSError):
            os.killpg(os.getpgrp(), number)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{MARK}{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
