"""The lock of a run's writer: it dies with its holder, holds between processes and within one, on every system."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from graphflow.errors import RunLocked
from graphflow.persistence.sqlite_store import is_busy, unavailable
from graphflow.persistence.storing import digest

_TRIES: Final = 100
"""How often a lock file may vanish under our hands before that is called an error."""


class RunLock:
    """A lock file that is held, named by a hash of the run's id.

    The file is an empty SQLite database, and holding it means to keep a transaction open that wants to write. So the
    locks are those that SQLite takes, which the system frees when the process ends, however it ends; which another
    connection in the same process meets too; and which work alike on Linux, macOS and Windows. A child that the process
    forks does not inherit them.
    """

    def __init__(
        self, run: str, path: str | Path, connection: sqlite3.Connection, identity: tuple[int, int] | None
    ) -> None:
        """Hold what `take` has taken."""
        self.path = path
        self._run = run
        self._connection = connection
        self._identity = identity

    @classmethod
    def take(cls, folder: str | Path, run: str) -> RunLock:
        """Take the lock of a run, without waiting.

        Raises:
            RunLocked: somebody holds it.
            JournalUnavailable: the lock file cannot be made.
        """
        path = f"{folder}/{digest(run).hex()[:32]}.lock"
        try:
            for _ in range(_TRIES):
                # Whoever releases a lock removes its file while it is still held. A file that was opened just before
                # that can be locked afterwards, but nobody else will meet that lock: so the file that is locked must be
                # the one that had the name before it was opened and has it still.
                _make(path)
                before = identity(path)
                if before is None:
                    continue
                lock = cls(run, path, connect(path), before)
                if lock.hold():
                    return lock
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error, Path(path)) from error
        raise unavailable(OSError("the lock file is removed again and again"), Path(path))

    def hold(self) -> bool:
        """Lock the file, and tell whether it is still the one that others will meet.

        Raises:
            RunLocked: somebody holds it.
            sqlite3.Error: as it comes.
        """
        try:
            # Not EXCLUSIVE: of two that begin at once, each would meet the other on the way there, and both give up.
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._connection.close()
            if is_busy(error):
                raise RunLocked(self._run) from None
            if identity(self.path) == self._identity:
                raise
            return False  # SQLite missed the file at its first look
        if identity(self.path) == self._identity:
            return True
        self._connection.close()
        return False

    def release(self) -> None:
        """Remove the file, then let it go; what another has put in its place stays."""
        with contextlib.suppress(OSError):  # Windows removes no open file
            self._remove()
        self._connection.close()
        if os.name == "nt":
            with contextlib.suppress(OSError):  # nor one that another has opened
                self._remove()

    def _remove(self) -> None:
        if identity(self.path) == self._identity:
            os.unlink(self.path)  # noqa: PTH108 - as in `identity`


def _make(path: str) -> None:
    """Make a lock file, if it is not there.

    Without opening it: to close a file of one's own would drop every lock that this process has on it. Where the system
    does not offer that, SQLite makes the file, and SQLite closes it.
    """
    try:
        os.mknod(path, 0o644)
    except (AttributeError, OSError):  # it is there; or Windows has no such call, macOS keeps it for administrators
        if identity(path) is None:
            connect(path).close()


def connect(path: str | Path) -> sqlite3.Connection:
    """Open a lock file, which is made if it is not there, to wait for nobody."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def identity(path: str | Path) -> tuple[int, int] | None:
    """Tell which file has a name, None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each claim: a Path takes several times as long
    except FileNotFoundError:
        return None
    # The time too: a file system may give the number of a removed file to the next one. Nothing is ever written to it.
    return found.st_ino, found.st_mtime_ns
