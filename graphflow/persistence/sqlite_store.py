"""The database file of a `SqliteJournal`: how it is opened, what is in it, and what each failure means."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, TypeAlias, cast

from graphflow.errors import JournalUnavailable, UsageError
from graphflow.model.budget import is_seconds
from graphflow.model.telling import value_text

MEMORY: Final = ":memory:"
APPLICATION: Final = 0x67666A6C
"""What stands in the header of a file of ours: "gfjl"."""

SEQ_BITS: Final = 32
"""A row's key is the run's number, shifted by this, plus its own: rows lie in order, and need no second index."""

CHECKPOINT_BYTES: Final = 4_000_000
"""How long the log gets before it is moved into the database."""

PAGE_BYTES: Final = 4096
"""What a row takes in the log besides its texts: the log takes whole pages."""

_CHECKPOINT_AT_LAST_PAGES: Final = 16_000
_SHORT_LOG_BYTES: Final = 1_000_000
_RETRY_SECONDS: Final = 0.01
_LAST_FEW: Final = 8
_PROMPT_SECONDS: Final = 0.001  # to hand a row to a thread and hear back keeps the loop busy for a third of that


def _create(connection: sqlite3.Connection) -> None:
    # AUTOINCREMENT: the number of a run that was deleted is never given again, so nobody who still writes under it can
    # meet another run.
    connection.execute(
        "CREATE TABLE runs (key INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE rows (id INTEGER PRIMARY KEY, at REAL NOT NULL, fact TEXT NOT NULL, decisions TEXT NOT NULL)"
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {0: _create}
"""What brings a database from one format to the next; 0 is an empty file."""


Trouble: TypeAlias = sqlite3.Error | OSError | UnicodeDecodeError
"""What using a database can raise; the last one if it is so damaged that SQLite's complaint about it is no text."""


_ADDRESS: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
"""How an address begins: as a path it would make folders, with a password in their names."""


class Place:
    """Where a database is, and how it is to be treated.

    Attributes:
        path: the file as it was named.
        memory: whether there is no file.
        fsync: whether a commit waits until the disk has it.
        patience: how many seconds to wait for others.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool, patience: float) -> None:
        """Check what can be checked without touching anything."""
        given: object = path
        name = os.fspath(path) if isinstance(given, str | os.PathLike) else None
        if not isinstance(name, str):
            raise UsageError(f"path={value_text(given)} is no path: the text of one is needed, or a pathlib.Path.")
        if not name or "\0" in name:
            raise UsageError(f"{name!r} is no path; a journal that needs no file is MemoryJournal().")
        if _ADDRESS.match(name):
            raise UsageError(
                f"{value_text(name)} is an address, and no path of a file: a server of PostgreSQL is named as "
                f"'postgresql://user@host/dbname', to PostgresJournal."
            )
        if not is_seconds(patience) or patience > 1e6:  # noqa: PLR2004 - what SQLite can count in milliseconds
            raise UsageError(f"patience={value_text(patience)} makes no sense: it is a number of seconds, 0 or more.")
        self.path = Path(name)
        self.memory = name == MEMORY
        self.fsync = fsync
        self.patience = patience
        self._real: Path | None = None
        self._locks: str | None = None

    def real(self) -> Path:
        """The file itself, wherever links and a later change of directory lead."""
        if self._real is None:
            self._real = Path(os.path.realpath(self.path))
        return self._real

    def make_folder(self) -> Path:
        """Make the folder that the file lies in, if it is not there, and return the file."""
        real = self.real()
        make_folder(real.parent)
        return real

    def exists(self) -> bool:
        """Whether there is a file, without making one."""
        return self.memory or self.path.exists()

    def make_locks(self) -> str:
        """Make the folder of the runs' locks, if it is not there."""
        folder = self._locks
        if folder is None:
            folder = self._locks = f"{self.real()}.locks"
        if not os.path.isdir(folder):  # noqa: PTH112 - for each claim: a Path takes several times as long
            self.make_folder()
            Path(folder).mkdir(exist_ok=True)
        return folder


def make_folder(folder: Path) -> None:
    """Make a folder, if it is not there; one that is called .graphflow is kept out of version control."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == ".graphflow":
            (folder / ".gitignore").write_text("*\n", "utf-8")


class Store:
    """One connection to a database, opened when it is first needed, and used by one thread at a time.

    Attributes:
        lock: held by whoever uses it.
        opened: the cursor of the open connection; None before it is needed, and after a failure.
        prompt: whether the disk has been quick of late, so that a row which waits for it holds nobody up.
        file: which file is open, or was last.
        replaced: how often that was found to be no more the one that has the name.
    """

    def __init__(self, place: Place) -> None:
        """Open nothing yet."""
        self.lock = threading.Lock()
        self.place = place
        self.prompt = True
        self._waited = 0.0
        self.opened: sqlite3.Cursor | None = None
        self._pid = 0
        self.file: tuple[int, int] | None = None
        self.replaced = 0

    def cursor(self) -> sqlite3.Cursor:
        """The cursor of the open connection; call it with the lock held.

        Raises:
            sqlite3.Error, OSError: as SQLite says it.
            JournalUnavailable: the file is none of ours, or a newer version wrote it.
        """
        return self.opened or self._open()

    def ready(self) -> None:
        """Open the connection before it is needed.

        Raises:
            JournalUnavailable: whatever went wrong, in words.
        """
        with self.use() as cursor:
            if self.place.fsync and not self.place.memory:
                _lengthen_log(cursor.connection, Path(f"{self.place.real()}-wal"))

    @contextlib.contextmanager
    def use(self) -> Generator[sqlite3.Cursor]:
        """Hold the store for one statement, or several that need not be one.

        Raises:
            JournalUnavailable: whatever went wrong, in words.
        """
        with self.lock:
            try:
                self._look()
                yield self.cursor()
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
                raise self.failed(error) from error

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Cursor]:
        """Hold the store for a transaction: all of it is stored or nothing.

        Raises:
            JournalUnavailable: whatever went wrong, in words.
        """
        with self.use() as cursor, transaction(cursor.connection):
            yield cursor

    @contextlib.contextmanager
    def at_once(self, *, opening: bool = False) -> Generator[sqlite3.Cursor | None]:
        """Hold the store for what waits for nobody and for no slow disk; None where it might have to.

        Args:
            opening: whether the file may be opened for it, if it is there, in the present format, with a short log.

        Raises:
            sqlite3.Error: SQLITE_BUSY if another process is in the way just now.
            JournalUnavailable: whatever else went wrong, in words.
        """
        if not self.prompt or not self.lock.acquire(blocking=False):
            yield None
            return
        try:
            self._look()
            cursor = self.opened
            if cursor is not None:
                cursor.execute("PRAGMA busy_timeout = 0")
            elif opening:
                cursor = self._open_at_once()
            if cursor is None:
                yield None
                return
            try:
                yield cursor
            finally:
                self._be_patient(cursor)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if is_busy(error):
                raise
            raise self.failed(error) from error
        finally:
            self.lock.release()

    def _be_patient(self, cursor: sqlite3.Cursor) -> None:
        cursor.execute(f"PRAGMA busy_timeout = {int(self.place.patience * 1000)}")

    def failed(self, error: Trouble) -> JournalUnavailable:
        """Put a failure into words; a connection that may have been harmed is opened anew next time."""
        if _code(error) not in _HARMLESS:
            self.close()
        return unavailable(error, self.place.path, self.place.patience)

    def took(self, seconds: float) -> None:
        """Hear how long a row has waited for the disk; the last few count most."""
        self._waited += (seconds - self._waited) / _LAST_FEW
        self.prompt = self._waited < _PROMPT_SECONDS

    def checkpoint(self) -> None:
        """Move what is in the log to the database itself, as far as that goes without waiting for anybody."""
        with self.lock, contextlib.suppress(sqlite3.Error):
            if self.opened is not None:
                self.opened.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def scrub(self) -> None:
        """Empty the log, which may still hold what was deleted, unless somebody reads it now."""
        with self.lock, contextlib.suppress(sqlite3.Error):
            if self.opened is not None:
                self.opened.execute("PRAGMA busy_timeout = 0")
                self.opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._be_patient(self.opened)

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        cursor, self.opened = self.opened, None
        if cursor is not None and self._pid == os.getpid():
            cursor.connection.close()

    def _look(self) -> None:
        """Let go of a connection that a fork has brought here, or whose file was removed or replaced."""
        if self.opened is None or self.place.memory:
            return
        if self._pid != os.getpid():
            _INHERITED.append(self.opened)
            self.opened = None
        elif file_of(self.place.real()) != self.file:
            self.replaced += 1  # the next file may have the number of this one
            self.close()

    def _open(self) -> sqlite3.Cursor:
        place = self.place
        path = Path(MEMORY) if place.memory else place.make_folder()
        connection = _connect(path, place.patience)
        try:
            _prepare(connection, place, place.patience)
            _migrate(connection, place)
        except BaseException:
            connection.close()
            raise
        return self._keep(connection)

    def _open_at_once(self) -> sqlite3.Cursor | None:
        """Open the file without waiting for anybody; None where that is more than a look."""
        place = self.place
        if place.memory or not _is_short(f"{place.real()}-wal"):
            return None
        connection = _connect(place.real(), 0)
        try:
            _prepare(connection, place, 0)
            if _is_present(connection):
                return self._keep(connection)
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def _keep(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        self.file, self._pid = None if self.place.memory else file_of(self.place.real()), os.getpid()
        self.opened = connection.cursor()
        return self.opened


_INHERITED: Final[list[sqlite3.Cursor]] = []
"""Connections of the process that this one was forked from: SQLite forbids even to close them."""


class Stores:
    """The connections of a journal.

    Attributes:
        writing: for appends, which run in the event loop's thread: nothing that reads for long may keep them waiting.
        aside: for the rest; the same one if the database is in memory.
        grown: how much has been written since the log was last moved into the database, in bytes.
    """

    def __init__(self, place: Place) -> None:
        """Open nothing yet."""
        self.writing = Store(place)
        self.aside = self.writing if place.memory else Store(place)
        self.grown = 0
        self._folding = False

    def fold_log(self) -> None:
        """Move the log into the database, in a thread, so that no append has to wait; with the lock of `writing` held.

        One that is under way is not begun anew.
        """
        if self._folding or self.writing is self.aside:
            return
        self.grown, self._folding = 0, True
        try:
            threading.Thread(target=self._fold, name="graphflow checkpoint").start()
        except RuntimeError:  # no more threads, or the interpreter is ending: the log stays longer, that is all
            self._folding = False

    def close(self) -> None:
        """Close both; they are opened again when they are needed."""
        for store in (self.writing, self.aside):
            with store.lock:
                store.close()

    def _fold(self) -> None:
        try:
            self.aside.checkpoint()
        finally:
            self._folding = False


def file_of(path: Path) -> tuple[int, int] | None:
    """Tell which file has a name, None if none can be found."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each claim: a Path takes several times as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_short(log: str) -> bool:
    """Whether whoever opens a database finds little in its log, which may have to be read from one end to the other."""
    try:
        return os.stat(log).st_size <= _SHORT_LOG_BYTES  # noqa: PTH116 - as above
    except OSError:
        return True  # there is none


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, place: Place, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait here when another process does the same to the same new file.
            if not is_busy(error) or time.monotonic() >= until:
                raise
            time.sleep(_RETRY_SECONDS)
    connection.executescript(_DURABLE if place.fsync else _PROMPT)


def _lengthen_log(connection: sqlite3.Connection, path: Path) -> None:
    """Give the log the length that it will have: a commit that makes no file longer waits half as long for the disk.

    SQLite writes over what is there, from the beginning on, and passes over what is no part of a log.
    """
    with contextlib.suppress(OSError, sqlite3.OperationalError):
        if path.stat().st_size >= CHECKPOINT_BYTES:
            return
        # Nobody writes while the transaction is open, and nobody cuts the log off while the connection is.
        with transaction(connection), path.open("r+b", buffering=0) as log:
            length = log.seek(0, os.SEEK_END)
            more = max(0, CHECKPOINT_BYTES - length)
            if log.write(bytes(more)) < more:  # the disk is full: it gets back what is left of it
                log.truncate(length)
            os.fsync(log.fileno())


_SETTINGS: Final = (
    f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_AT_LAST_PAGES}; PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF"
)
_PROMPT: Final = f"PRAGMA synchronous = NORMAL; {_SETTINGS}"
_DURABLE: Final = f"PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; {_SETTINGS}"
"""Of macOS, where a plain fsync leaves it to the drive, `fullfsync` does not."""


def _is_present(connection: sqlite3.Connection) -> bool:
    """Whether a database is one of ours, in the present format: as most are, and it is told in a quarter of the time.

    In two statements: whoever makes the tables says both in one transaction, and neither is ever taken back.
    """
    if connection.execute("PRAGMA user_version").fetchone()[0] != max(MIGRATIONS) + 1:
        return False
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    return application == APPLICATION


def _migrate(connection: sqlite3.Connection, place: Place) -> None:
    if _is_present(connection):
        return
    newest = max(MIGRATIONS) + 1
    while (version := _format(connection, place, newest)) < newest:
        with transaction(connection):
            if _format(connection, place, newest) == version:  # another process may have been quicker
                MIGRATIONS[version](connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")


def _format(connection: sqlite3.Connection, place: Place, newest: int) -> int:
    # In one statement: another process may be making the tables.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application != APPLICATION and (version or tables):
        raise JournalUnavailable(
            f"{str(place.path)!r} is the database of another program. Nothing was changed in it: name another file."
        )
    if version > newest:
        raise JournalUnavailable(
            f"{str(place.path)!r} was written by a newer graphflow (format {version}; this one knows {newest}). "
            f"Nothing was changed in it: use that version, or name another file."
        )
    return cast("int", version)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Store all of what is done meanwhile, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # some failures have rolled it back already
            connection.execute("ROLLBACK")
        raise


# --- what a failure means --------------------------------------------------------------------------------------------


def is_busy(error: Exception) -> bool:
    """Whether somebody else has the database locked."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_corrupt(error: Exception) -> bool:
    """Whether what lies in the file is no database any more, at least in places."""
    return _code(error) == sqlite3.SQLITE_CORRUPT


def _code(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # the rest says more than a person needs


def unavailable(error: Trouble, path: Path, patience: float = 0.0) -> JournalUnavailable:
    """Say in words what went wrong with a file, and what to do."""
    says = f"the journal {str(path)!r} cannot be used: {_meaning(error, path, patience)} ({error})."
    damaged = isinstance(error, UnicodeDecodeError) or _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    return JournalUnavailable(says if damaged else f"{says} What was stored before is intact.")


def _meaning(error: Trouble, path: Path, patience: float) -> str:
    if isinstance(error, OSError):
        return _SYSTEM.get(error.errno or 0, "the system refused it")
    if isinstance(error, UnicodeDecodeError):
        return _MEANINGS[sqlite3.SQLITE_CORRUPT]
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"another process had it locked for more than {patience:g} s. Let that one finish, or give the "
                f"journal more patience="
            )
        case sqlite3.SQLITE_CANTOPEN if path.is_dir():
            return "it is a folder. Name a file"
        case code:
            return _MEANINGS.get(code or 0, "SQLite refused it")


_HARMLESS: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
}
"""After these a connection goes on as if nothing had happened."""

_SYSTEM: Final = {
    errno.EACCES: "it may not be read and written here",
    errno.EPERM: "it may not be read and written here",
    errno.EROFS: "it lies where nothing can be written",
    errno.ENOSPC: "the disk is full. Make room, then resume",
    errno.EDQUOT: "the disk quota is used up. Make room, then resume",
    errno.EEXIST: "a file stands where a folder must be",
    errno.ENOTDIR: "a file stands where a folder must be",
    errno.EMFILE: "this process has too many files open; each run at work needs one for its lock",
    errno.ENAMETOOLONG: "its name is too long",
}

_MEANINGS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full, or the file has reached its greatest size. Make room, then resume",
    sqlite3.SQLITE_READONLY: "it can only be read. Allow writing to the file and to its folder",
    sqlite3.SQLITE_PERM: "it may not be read and written here",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened. Its folder must be there and writable, and each run at work needs one open file more"
    ),
    sqlite3.SQLITE_NOTADB: "it is no SQLite database. Name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged. Bring back a copy; `sqlite3 FILE .recover` saves what can be saved",
    sqlite3.SQLITE_IOERR: "reading or writing failed. Is the disk full, or gone? Resume when it is well again",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_TOOBIG: "a row is larger than SQLite can hold",
    sqlite3.SQLITE_CONSTRAINT: "a row stands already where another was to be written",
}
