"""Every journal does what `graphflow.testing` asks of anybody's journal."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from graphflow import END, START, Budget, Context, Graph, Human, resume, run
from graphflow.cli.stored import summary_of, tells
from graphflow.errors import GraphflowError, RunLocked, UsageError
from graphflow.events import Journal, Row, StoredRun, Writer
from graphflow.persistence.memory import MemoryJournal, MemoryWriter
from graphflow.persistence.postgres import PostgresJournal
from graphflow.persistence.sqlite import SqliteJournal, SqliteWriter
from graphflow.persistence.sqlite_lock import RunLock
from graphflow.testing.journals import JournalCheck, journal_checks
from tests.servers import Postgres
from tests.servers import shared_postgres as shared_postgres  # noqa: PLC0414 - a fixture


async def lose_in_memory(writer: Writer) -> None:
    """Gives the place of a writer free behind its back."""
    assert isinstance(writer, MemoryWriter)
    assert writer.journal is not None
    writer.journal.leave(writer, writer.run)


async def lose_lock_file(writer: Writer) -> None:
    """Removes a lock file under its holder, as somebody does who tidies up."""
    assert isinstance(writer, SqliteWriter)
    assert isinstance(writer.lock, RunLock)
    await anyio.Path(writer.lock.path).unlink()


@pytest.mark.parametrize("check", journal_checks(lose_in_memory))
async def test_a_journal_in_memory(check: JournalCheck) -> None:
    """Memory keeps runs as a database does, as long as the journal lives."""
    journal = MemoryJournal()

    await check(lambda: journal)


@pytest.mark.parametrize("fsync", [False, True], ids=["quick", "fsync"])
@pytest.mark.parametrize("check", journal_checks(lose_lock_file))
async def test_a_journal_in_a_file(check: JournalCheck, tmp_path: Path, fsync: bool) -> None:
    """Each journal object has connections of its own, as each process has."""
    await check(lambda: SqliteJournal(tmp_path / "runs.db", fsync=fsync))


@pytest.mark.parametrize("check", journal_checks())
async def test_a_database_in_memory(check: JournalCheck) -> None:
    """A database without a file is a journal as well."""
    journal = SqliteJournal(":memory:")

    await check(lambda: journal)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "ä\udfff"])
async def test_rows_that_are_no_text_are_refused_by_all(journal: Journal, text: str) -> None:
    """What one journal cannot hold, none takes: a NUL, half of a surrogate pair; as escapes they are fine."""
    writer = await journal.claim("run")

    with pytest.raises(UsageError, match="write it as an escape"):
        await writer.append(Row(0, 0.0, text, "[]"))
    await writer.append(Row(1, 0.0, json.dumps(text), "[]"))

    assert [row.fact for row in await journal.read("run")] == [json.dumps(text)]
    await writer.release()


async def test_an_id_is_text(journal: Journal) -> None:
    """A number or bytes are no id."""
    for odd in (7, b"run", None):
        with pytest.raises(UsageError, match="an id is text"):
            await journal.claim(odd)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_a_journal_in_memory_says_how_much_it_keeps() -> None:
    """Its repr is short, whatever is in it."""
    assert repr(MemoryJournal()) == "<MemoryJournal of 0 runs>"


# --- the checks themselves -------------------------------------------------------------------------------------------


class Trims(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return [Row(row.seq, row.at, row.fact.strip(), row.decisions) for row in await super().read(run, after)]


class Rounds(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return [Row(row.seq, round(row.at, 6), row.fact, row.decisions) for row in await super().read(run, after)]


class Cuts(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return [Row(row.seq, row.at, row.fact[:65536], row.decisions) for row in await super().read(run, after)]


class Limits(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return (await super().read(run, after))[:100]


class ReadsAll(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return await super().read(run)


class ReadsFrom(MemoryJournal):
    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return await super().read(run, after - 1)


class IgnoresCase(MemoryJournal):
    async def claim(self, run: str) -> MemoryWriter:
        return await super().claim(run.lower())

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return await super().read(run.lower(), after)


class Unlocked(MemoryJournal):
    async def claim(self, run: str) -> MemoryWriter:
        self._writers.pop(run, None)
        return await super().claim(run)


class DeletesAtWork(MemoryJournal):
    async def delete(self, run: str) -> bool:
        return self._rows.pop(run, None) is not None


class DeletesNothing(MemoryJournal):
    async def delete(self, run: str) -> bool:
        return bool(await self.read(run))


class Sorts(MemoryJournal):
    async def runs(self) -> Sequence[StoredRun]:
        return sorted(await super().runs(), key=lambda stored: stored.run)


class ListsNone(MemoryJournal):
    async def runs(self) -> Sequence[StoredRun]:
        return ()


class Trusting(MemoryJournal):
    def store(self, writer: MemoryWriter, run: str, row: Row) -> None:
        self._rows.setdefault(run, []).append(row)


class Careless(MemoryJournal):
    def leave(self, writer: MemoryWriter, run: str) -> None:
        self._writers.pop(run, None)


@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        pytest.param(Trims, "rows_come_back_exactly", id="trims"),
        pytest.param(Rounds, "times_come_back_exactly", id="rounds"),
        pytest.param(Cuts, "large_rows_come_back", id="cuts"),
        pytest.param(Limits, "rows_come_in_order", id="limits"),
        pytest.param(ReadsAll, "reading_can_begin_behind_a_row", id="reads all"),
        pytest.param(ReadsFrom, "reading_can_begin_behind_a_row", id="reads from"),
        pytest.param(IgnoresCase, "any_text_is_an_id_or_is_refused", id="ignores case"),
        pytest.param(Unlocked, "a_run_has_one_writer", id="unlocked"),
        pytest.param(DeletesAtWork, "a_run_at_work_is_not_deleted", id="deletes at work"),
        pytest.param(DeletesNothing, "a_deleted_run_is_gone", id="deletes nothing"),
        pytest.param(Sorts, "runs_are_listed_in_the_order_of_their_beginnings", id="sorts"),
        pytest.param(ListsNone, "runs_are_listed_in_the_order_of_their_beginnings", id="lists none"),
        pytest.param(Trusting, "a_late_writer_stores_nothing", id="trusting"),
        pytest.param(Careless, "a_late_writer_stores_nothing", id="careless"),
    ],
)
async def test_the_checks_find_what_is_broken(broken: Callable[[], MemoryJournal], found_by: str) -> None:
    """A journal that breaks one promise fails the check of that promise."""
    failed: list[str] = []

    for check in journal_checks(lose_in_memory):
        journal = broken()
        try:
            await check(lambda journal=journal: journal)  # type: ignore[misc]
        except (AssertionError, GraphflowError):
            failed.append(check.__name__)

    assert found_by in failed


# --- cancellation ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file", "server"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    """One journal of each kind."""
    match request.param:
        case "memory":
            return MemoryJournal()
        case "file":
            return SqliteJournal(tmp_path / "runs.db")
        case _:
            postgres: Postgres = request.getfixturevalue("postgres")
            return PostgresJournal(postgres.conninfo, schema=f"{tmp_path.name}")


async def test_how_a_run_stands_is_the_same_in_every_journal(journal: Journal) -> None:
    """What waits for people waits on, whatever it is given: no last row says that by itself."""
    graph = Graph("g", START >> Human("ask", "ok?") >> END, context=Context, budget=Budget(node_runs=1))
    seen: list[tuple[bool, str]] = []

    async def look() -> None:
        (known,) = await journal.runs()
        seen.append((tells(known.last), summary_of(known, await journal.read("run")).status))

    await run(graph, Context(), journal=journal, run_id="run")
    await look()
    for _ in range(2):
        await resume(graph, "run", journal=journal, budget=Budget(node_runs=1))
        await look()
    await resume(graph, "run", journal=journal, answers={"ask": "yes"})
    await look()

    assert seen == [(True, "waiting"), (False, "waiting"), (False, "waiting"), (True, "completed")]


async def test_a_writer_is_released_by_whoever_is_cancelled(journal: Journal) -> None:
    """To give a run back is not stopped by a cancellation."""
    writer = await journal.claim("run")

    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.release()

    again = await journal.claim("run")
    await again.release()


async def test_a_claim_that_nobody_waits_for_is_given_back(journal: Journal) -> None:
    """Whenever a claim is cancelled, the run is free afterwards, or the claim has succeeded."""
    for delay in (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.005):
        writer: Writer | None = None
        with anyio.move_on_after(delay):
            writer = await journal.claim("run")
        if writer is not None:
            await writer.release()

        again = await journal.claim("run")
        await again.release()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])
async def test_a_claim_whose_task_is_cancelled_is_given_back(journal: Journal) -> None:
    """Asyncio cancels a task behind the back of every scope; a claim that is just being made is then given back."""
    for wait in range(12):
        task = asyncio.create_task(claim(journal))
        for _ in range(wait):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).release()

        again = await patiently(journal)
        await again.release()


async def claim(journal: Journal) -> Writer:
    """Claim the run, as a coroutine that a task can be made of."""
    return await journal.claim("run")


async def patiently(journal: Journal) -> Writer:
    """Claim the run as soon as a thread that is still at work has given it back."""
    with anyio.fail_after(30):
        while True:
            try:
                return await journal.claim("run")
            except RunLocked:
                await anyio.lowlevel.checkpoint()
