"""Every journal does what `graphflow.testing` asks of anybody's journal."""

from pathlib import Path

import anyio
import pytest
from blockbuster import BlockBuster

from graphflow.events import Writer
from graphflow.persistence.memory import MemoryJournal, MemoryWriter
from graphflow.persistence.sqlite import SqliteJournal, SqliteWriter
from graphflow.persistence.sqlite_lock import RunLock
from graphflow.testing.journals import JournalCheck, journal_checks


@pytest.fixture(autouse=True)
def _appends_may_block(blockbuster: BlockBuster) -> None:
    """An append to a SQLite file takes microseconds, and is made in the event loop's thread; nothing else is."""
    blockbuster.functions["sqlite3.Cursor.execute"].can_block_in("graphflow/persistence/sqlite.py", "append_nowait")


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
