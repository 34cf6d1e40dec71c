"""The connections of a `PostgresJournal`: how they are made, what is in the schema, and what each failure means."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, LiteralString, NoReturn, TypeAlias, cast

from graphflow.errors import JournalUnavailable, MissingExtra, UsageError
from graphflow.model.budget import is_seconds
from graphflow.model.telling import value_text
from graphflow.persistence.storing import digest

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
    Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

_IDLE: Final = 4
"""How many connections are kept for the next use."""

_SCHEMA_BYTES: Final = 63
"""PostgreSQL cuts longer names off without a word."""

_SHOWN: Final = ("host", "hostaddr", "port", "dbname", "user", "service")
"""What of a connection string may be shown: never a password."""

_SECRET: Final = ("password", "sslpassword", "passfile", "oauth_client_secret")


def _create(store: Store, connection: Connection) -> None:
    # The digest stands for the id where it is looked up: an index holds no text of ten thousand characters.
    store.execute(
        connection,
        "CREATE TABLE {schema}.runs (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest bytea NOT NULL "
        "UNIQUE, run text NOT NULL, epoch bigint NOT NULL)",
    )
    # No jsonb: it does not give text back as it was.
    store.execute(
        connection,
        "CREATE TABLE {schema}.rows (key bigint NOT NULL, seq bigint NOT NULL, at double precision NOT NULL, "
        "fact text NOT NULL, decisions text NOT NULL, PRIMARY KEY (key, seq))",
    )


MIGRATIONS: Final[dict[int, Callable[[Store, Connection], None]]] = {0: _create}
"""What brings a schema from one format to the next; 0 is an empty one."""


class Store:
    """A schema of a database, and a few open connections to it.

    Attributes:
        schema: its name.
        patience: how many seconds to wait for the server.
    """

    def __init__(self, conninfo: str, schema: str, patience: float) -> None:
        """Check what can be checked without a server.

        Raises:
            MissingExtra: psycopg is not installed.
            UsageError: an argument makes no sense; the text never shows the connection string.
        """
        errors = _psycopg()
        from psycopg.conninfo import conninfo_to_dict

        if not isinstance(cast("object", conninfo), str) or not isinstance(cast("object", schema), str):
            raise UsageError("conninfo= and schema= are texts: a connection string of PostgreSQL, and a name.")
        if not is_seconds(patience) or not 0 < patience <= 1e6:  # noqa: PLR2004 - what PostgreSQL can count in milliseconds
            raise UsageError(f"patience={value_text(patience)} makes no sense: it is a number of seconds above 0.")
        if not schema or "\0" in schema or len(schema.encode("utf-8", "replace")) > _SCHEMA_BYTES:
            raise UsageError(
                f"schema={value_text(schema)} cannot be a schema: a name has 1 to {_SCHEMA_BYTES} bytes and no NUL."
            )
        try:
            self._parts: Mapping[str, Any] = conninfo_to_dict(conninfo)
        except (errors.Error, UnicodeError):
            # From None: what it says quotes the string, and with it perhaps a password.
            raise UsageError(
                "conninfo is not a connection string of PostgreSQL. It is written as 'host=... dbname=... user=...' or "
                "'postgresql://user@host/dbname'."
            ) from None
        self.schema = schema
        self.patience = patience
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._ready = False
        self._pid = os.getpid()
        self._statements: dict[str, Composed] = {}

    def __str__(self) -> str:
        """Name the database and the schema, without a password."""
        shown = " ".join(f"{name}={self._parts[name]}" for name in _SHOWN if self._parts.get(name))
        return f"{shown or 'the default database'}, schema {self.schema}"

    def execute(self, connection: Connection, text: LiteralString, *values: object) -> Cursor:
        """Execute a statement on the schema, whose name stands for `{schema}` in it.

        Raises:
            psycopg.Error: as it comes.
        """
        return connection.execute(self._named(text), values)

    def _named(self, text: LiteralString) -> Composed:
        found = self._statements.get(text)
        if found is None:
            from psycopg import sql

            # A per cent sign means a value to psycopg, in a name too.
            name = sql.Identifier(self.schema).as_string().replace("%", "%%")
            found = self._statements[text] = sql.SQL(text).format(schema=sql.SQL(cast("LiteralString", name)))
        return found

    def lock_key(self, run: str | None) -> int:
        """The number of a run's advisory lock, or of that for changes of the schema. All of a database share these."""
        name = f"graphflow\0{self.schema}" if run is None else f"graphflow\0{self.schema}\0{run}"
        return int.from_bytes(digest(name)[:8], "big", signed=True)

    # --- connections -------------------------------------------------------------------------------------------------

    def take(self) -> Connection:
        """Give a connection that works, to nobody else; its tables are there.

        Raises:
            JournalUnavailable: there is none to be had.
        """
        try:
            connection = self._waiting() or self._connect()
        except _psycopg().Error as error:  # it has no SQLSTATE yet
            self.failed(error, "no connection could be made; each run at work needs one of its own")
        with self.closing_on_failure(connection):
            self._check(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next use, if it is well and there is room."""
        with self._lock:
            if not connection.closed and len(self._idle) < _IDLE and self._pid == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    @contextlib.contextmanager
    def use(self) -> Generator[Connection]:
        """Have a connection for a while.

        Raises:
            JournalUnavailable: whatever went wrong, in words.
        """
        connection = self.take()
        with self.closing_on_failure(connection):
            yield connection
        self.give_back(connection)

    @contextlib.contextmanager
    def closing_on_failure(self, connection: Connection) -> Generator[None]:
        """Close a connection if what is done with it fails.

        Raises:
            JournalUnavailable: whatever went wrong, in words.
        """
        try:
            yield
        except BaseException as error:
            connection.close()
            if isinstance(error, _psycopg().Error):
                self.failed(cast("psycopg.Error", error))
            raise

    def close(self) -> None:
        """Close what is not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._pid == os.getpid():
            for connection in idle:
                connection.close()

    def _waiting(self) -> Connection | None:
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    _INHERITED.extend(self._idle)
                    self._idle, self._pid = [], os.getpid()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            try:
                connection.execute("SELECT 1")  # the server may have gone away meanwhile
                return connection
            except _psycopg().Error:
                connection.close()

    def _connect(self) -> Connection:
        milliseconds = math.ceil(self.patience * 1000)
        wanted = {
            "connect_timeout": max(2, math.ceil(self.patience)),
            "tcp_user_timeout": milliseconds,  # a server that is gone without a word
            "fallback_application_name": "graphflow",
            **self._parts,
            "client_encoding": "utf8",
        }
        connection: Connection = _psycopg().connect(**wanted, autocommit=True)
        try:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, false), "
                "set_config('default_transaction_isolation', 'read committed', false)",
                (str(milliseconds),),
            )
        except BaseException:
            connection.close()
            raise
        return connection

    # --- the schema --------------------------------------------------------------------------------------------------

    def _check(self, connection: Connection) -> None:
        if self._ready:
            return
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise JournalUnavailable(
                f"the journal {self} cannot be used: its database stores text as {encoding}, which cannot hold every "
                f"character. Make one with ENCODING 'UTF8'."
            )
        newest = max(MIGRATIONS) + 1
        if self._format(connection, newest) < newest:
            with connection.transaction():
                # Several processes may come at once; whoever is second finds it done.
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (self.lock_key(None),))
                self._migrate(connection, newest)
        self._ready = True

    def _migrate(self, connection: Connection, newest: int) -> None:
        version = self._format(connection, newest)
        if version == 0:
            there = connection.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s", (self.schema,))
            if there.fetchone() is None:  # the statement needs a right, even where it has nothing to do
                self.execute(connection, "CREATE SCHEMA IF NOT EXISTS {schema}")
            self.execute(connection, "CREATE TABLE {schema}.graphflow (format integer NOT NULL)")
            self.execute(connection, "INSERT INTO {schema}.graphflow VALUES (0)")
        for step in range(version, newest):
            MIGRATIONS[step](self, connection)
        self.execute(connection, "UPDATE {schema}.graphflow SET format = %s", newest)

    def _format(self, connection: Connection, newest: int) -> int:
        # Not to_regclass(): it may remember what was so before this session waited for a lock.
        there = connection.execute(
            "SELECT FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'graphflow'", (self.schema,)
        )
        if there.fetchone() is None:
            return 0
        found = self.execute(connection, "SELECT format FROM {schema}.graphflow").fetchone()
        version: int = found[0] if found else 0
        if version > newest:
            raise JournalUnavailable(
                f"the journal {self} was written by a newer graphflow (format {version}; this one knows {newest}). "
                f"Nothing was changed in it: use that version, or name another schema."
            )
        return version

    # --- what a failure means ----------------------------------------------------------------------------------------

    def failed(self, error: psycopg.Error, meaning: str = "") -> NoReturn:
        """Put a failure into words, without a password.

        Raises:
            JournalUnavailable: always.
        """
        if error.sqlstate in _GONE:
            self._ready = False  # the tables are made again when they are needed
        says = " ".join(str(error).split())
        known = {self._parts.get(name) for name in _SHOWN}
        secrets = [
            str(self._parts[name]) for name in _SECRET if self._parts.get(name) and self._parts[name] not in known
        ]
        told = any(secret in says for secret in secrets)
        for secret in secrets:
            says = says.replace(secret, "***")
        text = f"the journal {self} cannot be used: {meaning or _meaning(error)} ({says})."
        raise JournalUnavailable(f"{text} What was stored before is intact.") from (None if told else error)


_INHERITED: Final[list[Any]] = []
"""Connections of the process that this one was forked from: to close one would close it there."""


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as missing:
        raise MissingExtra("a journal in PostgreSQL", "postgres") from missing
    return psycopg


def _meaning(error: psycopg.Error) -> str:
    state = error.sqlstate
    if state is None:
        return "the connection to the server was cut"
    return _STATES.get(state) or _CLASSES.get(state[:2]) or "the server refused it"


_GONE: Final = frozenset({"42P01", "3F000", "42703"})

_STATES: Final = {
    "25006": "the server lets it only be read",
    "42501": "this user may not do that. Let its owner grant the rights on the schema",
    "42P01": "its tables are not there any more. They are made again at the next claim",
    "3F000": "its schema is not there any more. It is made again at the next claim",
    "53100": "the disk of the server is full. Make room, then resume",
    "55P03": "another session had it locked for longer than patience=",
    "57P01": "the server was shut down, or ended this connection",
}
"""By SQLSTATE."""

_CLASSES: Final = {
    "08": "the connection to the server was cut",
    "53": "the server has run out of something",
    "54": "a row is larger than PostgreSQL can hold",
    "57": "the server is starting, stopping, or was told to give up",
    "58": "the server could not read or write its files",
    "XX": "what the server has stored is damaged",
}
"""By class of SQLSTATE, its first two letters."""
