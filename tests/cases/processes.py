"""How the cases play runs in processes of their own: `kill -9`, and a fresh process that goes on.

A test writes a small script and has Python run it (`run_script`). The script forks a child for each process that it
wants to end, so that graphflow is imported once; nothing of a run is begun before the fork.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import anyio

from graphflow import SqliteJournal
from graphflow.errors import JournalUnavailable
from graphflow.events import Row, Writer
from graphflow.testing import MemoryJournal
from tests.cases.stored import Breaking, BreakingWriter, Plan, go_on, play
from tests.support import ROOT

KILLED: Final = -signal.SIGKILL
"""What `in_child` returns for a child that was killed."""


def run_script(folder: Path, code: str, *args: str, limit: float = 120) -> list[str]:
    """Write a script into a folder, run it there in a fresh process, and return the lines that it prints."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def begun_in_child(main: Callable[[], object]) -> int:
    """Fork; the child calls a function and ends. Return the child's process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        main()
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - a child ends here, whatever happens, and never goes on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a child and return its exit code, which is negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(main: Callable[[], object], *, kill_after: float | None = None) -> int:
    """Call a function in a child and return its exit code; kill it after some seconds, if it still runs."""
    pid = begun_in_child(main)
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return ended(pid)


def in_loop(main: Callable[[], Coroutine[Any, Any, None]], backend: str = "asyncio") -> Callable[[], None]:
    """Return a function that runs a coroutine function in an event loop of its own."""

    def run() -> None:
        anyio.run(main, backend=backend)

    return run


class Killing(Breaking):
    """A journal whose process is killed when a row is to be stored that is one too many."""

    async def claim(self, run: str) -> Writer:
        return KillingWriter(self, await self.journal.claim(run))


class KillingWriter(BreakingWriter):
    """The writer of such a journal."""

    def append_nowait(self, row: Row) -> None:
        try:
            super().append_nowait(row)
        except JournalUnavailable:
            os.kill(os.getpid(), signal.SIGKILL)


def hold_every_kill(plan: Plan[Any], folder: Path, backend: str, *, every: int = 1) -> int:
    """Kill a process after every number of records; the next process ends like one that was never killed.

    Returns:
        How many processes were killed.
    """
    kills = 0

    async def whole() -> None:
        found = await play(plan, MemoryJournal())
        (folder / "whole").write_text(repr((found.result, found.result.context, found.result.output, found.trace)))
        (folder / "rows").write_text(str(len(found.rows)))

    assert in_child(in_loop(whole, backend)) == 0
    for count in range(1, int((folder / "rows").read_text()), every):
        file = folder / f"{count}.db"

        async def first(file: Path = file, count: int = count) -> None:
            await play(plan, Killing(SqliteJournal(file), count))

        async def second(file: Path = file) -> None:
            found = await go_on(plan, SqliteJournal(file))
            text = repr((found.result, found.result.context, found.result.output, found.trace))
            assert text == (folder / "whole").read_text(), text

        assert in_child(in_loop(first, backend)) == KILLED
        assert in_child(in_loop(second, backend)) == 0
        kills += 1
    return kills
