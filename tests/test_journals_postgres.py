"""PostgreSQL as a journal: crashes, contention, cut connections and refusals, with a real server."""

import itertools
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

import anyio
import anyio.to_thread
import psycopg
import pytest

from graphflow.errors import JournalDamaged, JournalUnavailable, MissingExtra, RunLocked, UsageError
from graphflow.events import Row, Writer
from graphflow.persistence import postgres_store
from graphflow.persistence.postgres import PostgresJournal, PostgresWriter
from graphflow.persistence.postgres_store import MIGRATIONS, Store
from graphflow.testing.journals import JournalCheck, journal_checks
from tests import servers
from tests.servers import Postgres, process, said, tell
from tests.servers import shared_postgres as shared_postgres  # noqa: PLC0414 - a fixture
from tests.support import examples

_SCHEMAS: Final = (f'it\'s "{number}"; 100 %' for number in itertools.count())


@pytest.fixture
def schema() -> str:
    """A schema of its own for each test, with a name that must be quoted."""
    return next(_SCHEMAS)


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[PostgresJournal]:
    """A journal of its own for each test."""
    with closing(PostgresJournal(postgres.conninfo, schema=schema)) as made:
        yield made


def row(seq: int) -> Row:
    """A row with a number."""
    return Row(seq, seq / 10, f'"{seq}"', "[]")


async def store(journal: PostgresJournal, run: str, numbers: range) -> None:
    """Store rows of a run and let go of it."""
    writer = await journal.claim(run)
    for seq in numbers:
        await writer.append(row(seq))
    await writer.release()


async def numbers(journal: PostgresJournal, run: str) -> list[int]:
    """The numbers of a run's rows."""
    return [found.seq for found in await journal.read(run)]


async def server(postgres: Postgres, statement: str, *values: object) -> None:
    """Do something on the server behind a journal's back."""

    def execute() -> None:
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode(), values or None)

    await anyio.to_thread.run_sync(execute)


async def cut(postgres: Postgres, writer: PostgresWriter) -> None:
    """End the connection of a writer from the side of the server."""
    assert writer.connection is not None
    pid = writer.connection.info.backend_pid
    await server(postgres, "SELECT pg_terminate_backend(%s, 5000)", pid)


async def lose_lock(writer: Writer) -> None:
    """Frees the lock of a writer behind its back, as a pool does that gives its session to others."""
    assert isinstance(writer, PostgresWriter)
    assert writer.connection is not None
    connection = writer.connection
    await anyio.to_thread.run_sync(lambda: connection.execute("SELECT pg_advisory_unlock_all()"))


def quoted(schema: str) -> str:
    """A schema as it is written in SQL."""
    return '"' + schema.replace('"', '""') + '"'


@pytest.mark.parametrize("check", journal_checks(lose_lock))
async def test_a_journal_in_a_server(check: JournalCheck, postgres: Postgres, schema: str) -> None:
    """Each journal object has connections of its own, as each process has."""
    made: list[PostgresJournal] = []

    def make() -> PostgresJournal:
        made.append(PostgresJournal(postgres.conninfo, schema=schema))
        return made[-1]

    await check(make)

    for journal in made:
        await anyio.to_thread.run_sync(journal.close)


# --- processes -------------------------------------------------------------------------------------------------------

PRELUDE: Final = """
import os, sys
import anyio
from graphflow.errors import RunLocked
from graphflow.events import Row
from graphflow.persistence.postgres import PostgresJournal

journal = PostgresJournal(sys.argv[1], schema=sys.argv[2])

def say(*words): print(*words, flush=True)

def row(seq): return Row(seq, seq / 10, f'"{seq}"', "[]")
"""

HOLD: Final = f"""{PRELUDE}
async def main():
    writer = await journal.claim("run")
    await writer.append(row(writer.last + 1))
    say(writer.last)
    sys.stdin.read()
anyio.run(main)
"""

CONTEND: Final = f"""{PRELUDE}
async def main():
    for run in map(str.strip, sys.stdin):
        writer = None
        try:
            writer = await journal.claim(run)
            await writer.append(row(writer.last + 1))
            say("won")
        except RunLocked:
            say("lost")
        sys.stdin.readline()
        if writer is not None:
            await writer.release()
        say("over")
anyio.run(main)
"""

FORK: Final = f"""{PRELUDE}
async def inherit():
    try:
        await journal.claim("mine")
        return 1
    except RunLocked:
        other = await journal.claim("other")
        await other.append(row(0))
        await other.release()
        return 0

writer = anyio.run(journal.claim, "mine")
anyio.run(writer.append, row(0))
anyio.run(journal.read, "mine")
child = os.fork()
if child == 0:
    code = 2
    try:
        code = anyio.run(inherit)
    finally:
        os._exit(code)
_, code = os.waitpid(child, 0)

async def main():
    await writer.append(row(1))
    say(code, len(await journal.read("mine")), len(await journal.read("other")))
anyio.run(main)
"""


def test_a_killed_holder_frees_its_lock(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """Once the process that has a run is killed, the next claim goes on with what it stored."""
    for turn in range(3):
        with process(HOLD, postgres.conninfo, schema) as holder:
            assert said(holder) == str(turn)
            with pytest.raises(RunLocked):
                anyio.run(journal.claim, "run")
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            writer = anyio.run(journal.claim, "run")

        assert writer.last == turn
        anyio.run(writer.release)


def test_of_two_processes_exactly_one_gets_a_run(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """In each of many races for a run exactly one process wins, whichever."""
    outcomes, trials = Counter[tuple[str, ...]](), examples(100)

    # Both make the schema at once, too.
    with process(CONTEND, postgres.conninfo, schema) as one, process(CONTEND, postgres.conninfo, schema) as two:
        for trial in range(trials):
            for child in (one, two):
                tell(child, f"run {trial // 2}")
            outcomes[tuple(sorted(said(child) for child in (one, two)))] += 1
            for child in (one, two):
                tell(child, "release")
            assert [said(child) for child in (one, two)] == ["over", "over"]

    assert outcomes == {("lost", "won"): trials}
    assert [stored.rows for stored in anyio.run(journal.runs)] == [2] * (trials // 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_connects_anew(postgres: Postgres, schema: str) -> None:
    """A child that was forked neither inherits the claims of its parent nor takes anything from it."""
    with process(FORK, postgres.conninfo, schema) as child:
        assert said(child) == "0 2 1"


# --- connections that are cut ----------------------------------------------------------------------------------------


async def test_a_cut_connection_ends_the_claim(postgres: Postgres, journal: PostgresJournal) -> None:
    """When the server ends a writer's connection, its appends fail in words, and the run can be claimed again."""
    writer = await journal.claim("run")
    await writer.append(row(0))
    await cut(postgres, writer)

    for _ in range(2):
        with pytest.raises(JournalUnavailable, match=r"was cut, and the claim of the run is lost with it") as caught:
            await writer.append(row(1))
        assert isinstance(caught.value.__cause__, psycopg.OperationalError)
    again = await journal.claim("run")
    await again.append(row(1))
    await writer.release()

    assert again.last == 1
    assert await numbers(journal, "run") == [0, 1]
    with pytest.raises(RunLocked):
        await journal.claim("run")
    await again.release()


async def test_a_run_that_was_cut_off_may_be_released(postgres: Postgres, journal: PostgresJournal) -> None:
    """Releasing is quiet when the connection is gone, whether or not there was a row."""
    for count in (0, 1):
        writer = await journal.claim(f"run {count}")
        for seq in range(count):
            await writer.append(row(seq))
        await cut(postgres, writer)

        await writer.release()

        again = await journal.claim(f"run {count}")
        assert again.last == count - 1
        await again.release()


class Proxy:
    """Passes on what goes to the server and back, until it swallows the answers: a cable that is pulled."""

    def __init__(self, port: int) -> None:
        """Listen, before a server on this machine."""
        self._target = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            target = socket.create_connection(self._target)
            self._sockets += [client, target]
            for source, sink, answers in ((client, target, False), (target, client, True)):
                thread = threading.Thread(target=self._pass, args=(source, sink, answers))
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(65536)) and not (answers and self.silent.is_set()):
                sink.sendall(data)
        _shut(sink)

    def close(self) -> None:
        """Let go of everything."""
        _shut(self._listening)
        self._listening.close()
        for one in self._sockets:
            _shut(one)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


async def test_a_row_whose_answer_was_lost_is_stored_once(postgres: Postgres, schema: str) -> None:
    """When the connection is cut between a commit and its answer, the next writer sees the row there."""
    direct = PostgresJournal(postgres.conninfo, schema=schema)
    with closing(Proxy(postgres.port)) as between:
        journal = PostgresJournal(f"{postgres.conninfo} port={between.port}", schema=schema)
        writer = await journal.claim("run")
        await writer.append(row(0))
        between.silent.set()

        with pytest.raises(JournalUnavailable, match="whether the last record was stored"):
            await writer.append(row(1))

        again = await direct.claim("run")
        assert again.last == 1
        with pytest.raises(UsageError, match=r"row 1 .* cannot follow row 1"):
            await again.append(row(1))
        await again.append(row(2))
        assert await numbers(direct, "run") == [0, 1, 2]
        await again.release()
        await writer.release()


async def test_a_server_may_be_restarted(postgres: Postgres, schema: str) -> None:
    """While the server is away everything fails in words; when it is back, the same journal goes on."""
    journal = PostgresJournal(postgres.conninfo, schema=schema)
    writer = await journal.claim("run")
    await writer.append(row(0))
    await journal.runs()
    await anyio.to_thread.run_sync(postgres.stop, "immediate")

    with pytest.raises(JournalUnavailable, match="was cut"):
        await writer.append(row(1))
    for call in (journal.claim("run"), journal.read("run"), journal.runs(), journal.delete("run")):
        with pytest.raises(JournalUnavailable, match="no connection could be made"):
            await call
    await anyio.to_thread.run_sync(postgres.start)

    await store(journal, "run", range(1, 3))
    assert await numbers(journal, "run") == [0, 1, 2]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_without_a_server_the_tests_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without PostgreSQL fails these tests with an instruction; it does not skip them."""
    monkeypatch.setattr(servers, "programs", lambda: None)

    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        servers.running.__wrapped__()


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lacks the library is told how to get it, before anything is connected."""
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra, match=r"pip install 'graphflow-agents\[postgres\]'") as caught:
        PostgresJournal("host=127.0.0.1")

    assert caught.value.extra == "postgres"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param({"conninfo": "hunter2"}, "is not a connection string", id="no string"),
        pytest.param({"conninfo": "postgresql://me:hunter2@[::1/x"}, "is not a connection string", id="no address"),
        pytest.param({"conninfo": "passwort=hunter2"}, "is not a connection string", id="no option"),
        pytest.param({"schema": ""}, "cannot be a schema", id="no schema"),
        pytest.param({"schema": "a\0b"}, "cannot be a schema", id="a NUL"),
        pytest.param({"schema": "ä" * 32}, "has 1 to 63 bytes", id="too long"),
        pytest.param({"patience": 0.0}, "makes no sense", id="no patience"),
        pytest.param({"patience": float("nan")}, "makes no sense", id="no number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    """What cannot work is refused before anything is connected, and quotes no connection string."""
    with pytest.raises(UsageError, match=complaint) as caught:
        PostgresJournal(**arguments)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_a_password_is_shown_nowhere(postgres: Postgres) -> None:
    """Neither the journal itself nor an error shows a password."""
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        port = nobody.getsockname()[1]
    for conninfo in (
        f"host=127.0.0.1 port={port} password=hunter2 user=me",
        f"postgresql://me:hunter2@127.0.0.1:{port}/x?sslpassword=hunter2",
        f"{postgres.conninfo} password=hunter2 user=nobody dbname=hunter2",
        f"{postgres.conninfo} password=hunter2 user=hunter2",
    ):
        journal = PostgresJournal(conninfo)

        with pytest.raises(JournalUnavailable) as caught:
            await journal.claim("run")

        for text in (str(caught.value), str(caught.value.__cause__), repr(caught.value)):
            assert "password=" not in text
        if "=hunter2 user=nobody" not in conninfo and "user=hunter2" not in conninfo:
            assert "hunter2" not in str(caught.value) + str(caught.value.__cause__) + repr(journal)
            assert "127.0.0.1" in repr(journal)


async def test_an_append_without_waiting_is_refused(journal: PostgresJournal) -> None:
    """A server is waited for, so its writers are not instant."""
    writer = await journal.claim("run")

    with pytest.raises(UsageError, match="needs `await append"):
        writer.append_nowait(row(0))

    assert not writer.instant
    await writer.release()


async def test_a_user_without_rights_is_told_so(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """Whoever may not make the schema, or not use it, gets an error that says so; with the rights it works."""
    await server(postgres, "CREATE ROLE guest LOGIN")
    guest = PostgresJournal(f"{postgres.conninfo} user=guest", schema=schema)

    with pytest.raises(JournalUnavailable, match=r"this user may not do that.*permission denied"):
        await guest.claim("run")
    await store(journal, "run", range(2))
    with pytest.raises(JournalUnavailable, match=r"this user may not do that.*permission denied"):
        await guest.read("run")
    await server(postgres, f"GRANT USAGE ON SCHEMA {quoted(schema)} TO guest")
    await server(postgres, f"GRANT ALL ON ALL TABLES IN SCHEMA {quoted(schema)} TO guest")
    await store(guest, "run", range(2, 4))

    assert await numbers(guest, "run") == [0, 1, 2, 3]
    await anyio.to_thread.run_sync(guest.close)
    await server(postgres, "DROP OWNED BY guest")
    await server(postgres, "DROP ROLE guest")


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        pytest.param("dbname=nothing", 'no connection could be made.*"nothing" does not exist', id="database"),
        pytest.param("user=nobody", 'no connection could be made.*"nobody" does not exist', id="user"),
        pytest.param("options='-c default_transaction_read_only=on'", "lets it only be read", id="read-only"),
    ],
)
async def test_what_the_server_refuses_is_said_in_words(
    postgres: Postgres, schema: str, option: str, complaint: str
) -> None:
    """What is wrong with a connection stands in the error, and what PostgreSQL says as well."""
    journal = PostgresJournal(f"{postgres.conninfo} {option}", schema=schema)

    with pytest.raises(JournalUnavailable, match=complaint) as caught:
        await journal.claim("run")

    assert isinstance(caught.value.__cause__, psycopg.Error)


async def test_too_many_connections_are_named(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """Each run at work needs a connection; when there are no more, the error says so, and the others go on."""
    await server(postgres, "CREATE ROLE few LOGIN CONNECTION LIMIT 1")
    await store(journal, "run", range(1))
    await server(postgres, f"GRANT ALL ON SCHEMA {quoted(schema)} TO few")
    await server(postgres, f"GRANT ALL ON ALL TABLES IN SCHEMA {quoted(schema)} TO few")
    limited = PostgresJournal(f"{postgres.conninfo} user=few", schema=schema)
    writer = await limited.claim("one")

    with pytest.raises(JournalUnavailable, match=r"each run at work needs one.*too many connections"):
        await limited.claim("two")
    await writer.append(row(0))
    await writer.release()
    await store(limited, "two", range(1))

    assert await numbers(journal, "one") == [0]
    await anyio.to_thread.run_sync(limited.close)
    await server(postgres, "DROP OWNED BY few")
    await server(postgres, "DROP ROLE few")


async def test_a_lock_that_is_held_for_long_is_named(postgres: Postgres, schema: str) -> None:
    """When another session keeps the tables locked, patience ends in an error; afterwards the same writer goes on."""
    journal = PostgresJournal(postgres.conninfo, schema=schema, patience=0.05)
    writer = await journal.claim("run")
    other = await anyio.to_thread.run_sync(lambda: psycopg.connect(postgres.conninfo))
    await anyio.to_thread.run_sync(lambda: other.execute(f"LOCK TABLE {quoted(schema)}.rows".encode()))

    with pytest.raises(JournalUnavailable, match="locked for longer than patience="):
        await writer.append(row(0))
    await anyio.to_thread.run_sync(other.close)
    await writer.append(row(0))

    assert await numbers(journal, "run") == [0]
    await writer.release()


async def test_a_database_that_cannot_hold_every_character_is_refused(postgres: Postgres, schema: str) -> None:
    """The text of a run may have any character, so its database must be one in UTF-8."""
    await server(postgres, "DROP DATABASE IF EXISTS latin")
    await server(postgres, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")

    with pytest.raises(JournalUnavailable, match=r"stores text as LATIN1.*Make one with ENCODING 'UTF8'"):
        await PostgresJournal(f"{postgres.conninfo} dbname=latin", schema=schema).claim("run")


async def test_tables_that_were_dropped_are_made_again(
    postgres: Postgres, schema: str, journal: PostgresJournal
) -> None:
    """Whoever drops the schema takes the runs away; the next run is stored in a new one."""
    writer = await journal.claim("old")
    await writer.append(row(0))
    await server(postgres, f"DROP SCHEMA {quoted(schema)} CASCADE")

    with pytest.raises(JournalUnavailable, match="its tables are not there any more"):
        await writer.append(row(1))
    await store(journal, "new", range(2))
    with pytest.raises(RunLocked):
        await writer.append(row(2))

    assert await numbers(journal, "new") == [0, 1]
    assert await numbers(journal, "old") == []
    await writer.release()


async def test_rows_of_another_shape_are_damage(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """A table that somebody has changed under us is refused, naming the run and the record."""
    await store(journal, "run", range(2))
    await server(postgres, f"ALTER TABLE {quoted(schema)}.rows ALTER at TYPE text")

    with pytest.raises(JournalDamaged, match=r"record 0 .*its columns are str, str, str"):
        await journal.read("run")
    (found,) = await journal.runs()
    assert (found.run, found.rows) == ("run", 2)
    assert found.damaged.startswith("record 0: its columns are str, str, str")


# --- formats ---------------------------------------------------------------------------------------------------------


async def test_a_newer_format_is_refused(postgres: Postgres, schema: str, journal: PostgresJournal) -> None:
    """What a newer version has written is left alone, with a word about which is which."""
    await store(journal, "run", range(2))
    await server(postgres, f"UPDATE {quoted(schema)}.graphflow SET format = 7")
    other = PostgresJournal(postgres.conninfo, schema=schema)

    for call in (other.claim("run"), other.read("run"), other.runs(), other.delete("run")):
        with pytest.raises(JournalUnavailable, match=r"by a newer graphflow \(format 7; this one knows 1\)"):
            await call


async def test_an_older_format_is_brought_up(
    postgres: Postgres, schema: str, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a format is added, schemas of the one before are changed in one transaction, and keep their rows."""
    await store(journal, "run", range(3))

    def fail(store: Store, connection: psycopg.Connection[Any]) -> None:
        store.execute(connection, "ALTER TABLE {schema}.runs ADD COLUMN half text")
        connection.execute("SELECT nonsense")

    def add(store: Store, connection: psycopg.Connection[Any]) -> None:
        store.execute(connection, "ALTER TABLE {schema}.runs ADD COLUMN note text NOT NULL DEFAULT 'before'")

    monkeypatch.setattr(postgres_store, "MIGRATIONS", {**MIGRATIONS, 1: fail})
    with pytest.raises(JournalUnavailable, match="nonsense"):
        await PostgresJournal(postgres.conninfo, schema=schema).runs()
    monkeypatch.setattr(postgres_store, "MIGRATIONS", {**MIGRATIONS, 1: add})
    other = PostgresJournal(postgres.conninfo, schema=schema)
    await store(other, "run", range(3, 5))

    assert await numbers(other, "run") == [0, 1, 2, 3, 4]
    await server(
        postgres,
        f"UPDATE {quoted(schema)}.runs SET note = note",
    )
