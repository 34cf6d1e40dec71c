"""A journal in PostgreSQL, for many processes on many machines. Needs the extra `postgres`."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, LiteralString

from graphflow.errors import InternalError, RunLocked, UsageError
from graphflow.events import Row, StoredRun
from graphflow.persistence.postgres_store import Store
from graphflow.persistence.storing import (
    checked_id,
    checked_row,
    digest,
    in_thread,
    left_in_thread,
    new_epoch,
    released,
    rows_from,
    stored_run,
    taken_in_thread,
)

if TYPE_CHECKING:
    import psycopg

    from graphflow.persistence.postgres_store import Connection

# The server needs a moment to notice that the process which held a lock was killed.
_PATIENCE: Final[LiteralString] = "SET LOCAL lock_timeout = '300ms'"

_CUT: Final = (
    "the connection to the server was cut, and the claim of the run is lost with it. Resume the run once the server is "
    "there again: that shows whether the last record was stored, and stores none twice"
)

_CLAIM: Final[LiteralString] = """
    INSERT INTO {schema}.runs (digest, run, epoch) VALUES (%s, %s, %s)
    ON CONFLICT (digest) DO UPDATE SET epoch = EXCLUDED.epoch RETURNING key
"""
# FOR SHARE: whoever changes the epoch waits for this row, or this statement for that, and then finds no such epoch.
_INSERT: Final[LiteralString] = """
    INSERT INTO {schema}.rows (key, seq, at, fact, decisions)
    SELECT key, %s, %s, %s, %s FROM {schema}.runs WHERE key = %s AND epoch = %s FOR SHARE
"""
_FORGET: Final[LiteralString] = """
    DELETE FROM {schema}.runs AS runs WHERE key = %s AND epoch = %s
    AND NOT EXISTS (SELECT FROM {schema}.rows AS found WHERE found.key = runs.key)
"""
_READ: Final[LiteralString] = """
    SELECT seq, at, fact, decisions FROM {schema}.runs JOIN {schema}.rows USING (key)
    WHERE digest = %s AND seq > %s ORDER BY seq
"""
_LAST: Final[LiteralString] = "SELECT coalesce(max(seq), -1) FROM {schema}.rows WHERE key = %s"
_DELETE_RUN: Final[LiteralString] = "DELETE FROM {schema}.runs WHERE digest = %s RETURNING key"
_DELETE_ROWS: Final[LiteralString] = "DELETE FROM {schema}.rows WHERE key = %s"
_RUNS: Final[LiteralString] = """
    SELECT run, (SELECT count(*) FROM {schema}.rows AS found WHERE found.key = runs.key),
        head.seq, head.at, head.fact, head.decisions, tail.seq, tail.at, tail.fact, tail.decisions
    FROM {schema}.runs AS runs
    CROSS JOIN LATERAL (SELECT * FROM {schema}.rows AS found WHERE found.key = runs.key ORDER BY seq LIMIT 1) AS head
    CROSS JOIN LATERAL (SELECT * FROM {schema}.rows AS found WHERE found.key = runs.key ORDER BY seq DESC LIMIT 1)
        AS tail
    ORDER BY runs.key
"""


class PostgresJournal:
    """Keeps runs in a schema of a PostgreSQL database, which any number of processes may use at once.

    The schema and its tables are made when they are first needed, unless they are there. Each record is one row and one
    transaction. Each run at work has one connection, which holds its lock: when the process ends or the connection is
    cut, the server frees the run, and another can go on with it. A pool in between (PgBouncer) must give sessions, not
    transactions.

    The waiting is done in worker threads, so that the event loop goes on, on asyncio and on trio.
    """

    def __init__(self, conninfo: str = "", *, schema: str = "graphflow", patience: float = 5.0) -> None:
        """Name the database; nothing is connected yet.

        Args:
            conninfo: where it is, as `"host=... dbname=... user=..."` or `"postgresql://user@host/dbname"`; what it
                leaves out comes from the environment, as for `psql`. Passwords belong into the environment or a
                `~/.pgpass`; one that stands here is shown nowhere.
            schema: the schema of the tables.
            patience: how many seconds to wait for the server.

        Raises:
            MissingExtra: psycopg is not installed.
            UsageError: an argument makes no sense.
        """
        self._store = Store(conninfo, schema, patience)
        weakref.finalize(self, self._store.close)

    async def claim(self, run: str) -> PostgresWriter:
        """Become the writer of a run, stored or new; the claim dies with its connection.

        Raises:
            RunLocked: somebody else is its writer.
            JournalUnavailable: the server cannot be used.
            UsageError: the id cannot be stored.
        """
        return await taken_in_thread(self._claim, checked_id(run), PostgresWriter.leave)

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        """Return the rows of a run whose number is above `after`, in order; none for an unknown run.

        Raises:
            JournalUnavailable: the server cannot be used.
        """
        return await in_thread(self._read, checked_id(run), after)

    async def runs(self) -> Sequence[StoredRun]:
        """Return all runs that have a row, in the order in which they were begun.

        Raises:
            JournalUnavailable: the server cannot be used.
        """
        return await in_thread(self._runs)

    async def delete(self, run: str) -> bool:
        """Remove a run and all of its rows; tell whether there was one.

        Raises:
            RunLocked: somebody is its writer.
            JournalUnavailable: the server cannot be used.
        """
        return await in_thread(self._delete, checked_id(run))

    def close(self) -> None:
        """Close the connections that no run needs; whoever uses the journal again connects again.

        A journal that is forgotten is closed too.
        """
        self._store.close()

    def __repr__(self) -> str:
        """Name the database and the schema, without a password."""
        return f"<PostgresJournal {self._store}>"

    def _claim(self, run: str) -> PostgresWriter:
        store, connection, epoch = self._store, self._lock(run), new_epoch()
        with store.closing_on_failure(connection):
            (key,) = _one(store.execute(connection, _CLAIM, digest(run), run, epoch))
            (last,) = _one(store.execute(connection, _LAST, key))
        return PostgresWriter(self, store, run, connection, key=key, epoch=epoch, last=last)

    def _read(self, run: str, after: int) -> Sequence[Row]:
        with self._store.use() as connection:
            found = self._store.execute(connection, _READ, digest(run), after).fetchall()
        return rows_from(run, found)

    def _runs(self) -> Sequence[StoredRun]:
        with self._store.use() as connection:
            found = self._store.execute(connection, _RUNS).fetchall()
        return tuple(stored_run(run, count, columns[:4], columns[4:]) for run, count, *columns in found)

    def _delete(self, run: str) -> bool:
        store, connection, rows = self._store, self._lock(run), 0
        with store.closing_on_failure(connection), connection.transaction():
            # The run first: a late row is either seen by the second statement or finds no run.
            found = store.execute(connection, _DELETE_RUN, digest(run)).fetchone()
            if found is not None:
                rows = store.execute(connection, _DELETE_ROWS, *found).rowcount
        _unlock(store, connection)
        return rows > 0

    def _lock(self, run: str) -> Connection:
        """Give a connection that holds the lock of a run."""
        store, connection = self._store, self._store.take()
        key = (store.lock_key(run),)
        with store.closing_on_failure(connection):
            if _one(connection.execute("SELECT pg_try_advisory_lock(%s)", key))[0]:
                return connection
            try:
                with connection.transaction():
                    connection.execute(_PATIENCE)
                    connection.execute("SELECT pg_advisory_lock(%s)", key)
                return connection
            except _errors().LockNotAvailable:
                pass
        store.give_back(connection)
        raise RunLocked(run)


class PostgresWriter:
    """The writer of a run in PostgreSQL.

    Attributes:
        run: the id of the run.
        last: the number of the last stored row, -1 if there is none.
        instant: false, each row waits for the server.
        connection: what it writes with and holds its lock with, None once it is released.
    """

    instant: bool = False

    def __init__(
        self,
        journal: PostgresJournal,
        store: Store,
        run: str,
        connection: Connection,
        *,
        key: int,
        epoch: int,
        last: int,
    ) -> None:
        """Write under an epoch of a run; made by `PostgresJournal.claim`."""
        self.run = run
        self.last = last
        self.connection: Connection | None = connection
        self._journal = journal  # it closes its connections when nobody has it any more
        self._store = store
        self._key, self._epoch = key, epoch
        self._using = threading.Lock()

    def append_nowait(self, row: Row) -> None:
        """Refuse: a server is waited for.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"row {row.seq} of the run {self.run!r} needs `await append()`: this writer is not instant.")

    async def append(self, row: Row) -> None:
        """Store one row, all of it or nothing.

        Raises:
            RunLocked: another writer has taken the run over meanwhile.
            JournalUnavailable: the server cannot be used. If the connection was cut, the claim is lost with it, and
                whether the row was stored is seen when the run is read again.
            UsageError: the row cannot follow the last one, or the writer was released.
        """
        await in_thread(self._append, row)

    async def release(self) -> None:
        """Give the writer's place back, whoever cancels it meanwhile."""
        await left_in_thread(self.leave)

    def leave(self) -> None:
        """Give the writer's place back in this thread."""
        with self._using:
            connection, self.connection = self.connection, None
        if connection is None or connection.closed:
            return
        if self.last < 0:  # it was never begun
            with contextlib.suppress(_errors().Error):
                self._store.execute(connection, _FORGET, self._key, self._epoch)
        _unlock(self._store, connection)

    def _append(self, row: Row) -> None:
        with self._using:
            if self.connection is None:
                released(self.run)
            checked_row(self.run, self.last, row)
            values = (row.seq, row.at, row.fact, row.decisions, self._key, self._epoch)
            try:
                stored = self._store.execute(self.connection, _INSERT, *values).rowcount
            except _errors().Error as error:
                self._store.failed(error, _CUT if self.connection.closed else "")
            if stored != 1:
                raise RunLocked(self.run)
            self.last = row.seq


def _unlock(store: Store, connection: Connection) -> None:
    try:
        connection.execute("SELECT pg_advisory_unlock_all()")
    except _errors().Error:
        connection.close()  # which frees it as well
    else:
        store.give_back(connection)


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    found = cursor.fetchone()
    if found is None:
        raise InternalError("a statement that gives one row gave none")
    return found


def _errors() -> Any:
    import psycopg.errors

    return psycopg.errors
