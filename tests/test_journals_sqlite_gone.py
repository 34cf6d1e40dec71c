"""A SQLite file that is removed, moved or replaced under a run: the run ends with an error that says so."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from graphflow import END, START, Context, Graph, SqliteJournal, State, node, run
from graphflow.errors import JournalUnavailable
from graphflow.events import Row
from graphflow.persistence.sqlite_watch import EVERY
from tests.test_cli_runs import Printed, done

Loss = Callable[[Path], object]


def remove(path: Path) -> None:
    """Remove the file and its log."""
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        path.with_name(name).unlink(missing_ok=True)


def replace(path: Path) -> None:
    """Put a file in its place."""
    other = path.with_name("other.db")
    anyio.run(store_one, SqliteJournal(other))
    other.replace(path)


async def store_one(journal: SqliteJournal) -> None:
    """Store a run of one row."""
    writer = await journal.claim("other")
    writer.append_nowait(row(0, 0.0))
    await writer.release()
    journal.close()


def row(seq: int, at: float) -> Row:
    """A row that was written after some active seconds."""
    return Row(seq, at, "[]", "[]")


LOSSES: Final[dict[str, tuple[Loss, str]]] = {
    "removed": (remove, "removed or moved away"),
    "moved": (lambda path: path.rename(path.with_name("away.db")), "removed or moved away"),
    "with its folder": (lambda path: shutil.rmtree(path.parent), "removed or moved away"),
    "replaced": (replace, "replaced by another file"),
}
"""What happens to the file, and what is said of it."""

each_loss = pytest.mark.parametrize(("lose", "says"), [pytest.param(*case, id=name) for name, case in LOSSES.items()])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database of a test is."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "runs.db"


@each_loss
async def test_a_writer_notices_after_a_while(path: Path, lose: Loss, says: str) -> None:
    """With the next row that is written a second of the run later; nothing more is stored, and it is told once."""
    writer = await SqliteJournal(path).claim("run")
    writer.append_nowait(row(0, 0.0))
    await anyio.to_thread.run_sync(lose, path)
    writer.append_nowait(row(1, EVERY / 2))  # not yet

    with pytest.raises(JournalUnavailable, match=f"'run'|{says}") as caught:
        writer.append_nowait(row(2, EVERY))

    assert caught.value.lost
    assert says in str(caught.value)
    assert writer.last == 1
    await writer.release()


@each_loss
@pytest.mark.parametrize("fsync", [False, True])
async def test_a_short_run_notices_at_its_end(path: Path, lose: Loss, says: str, fsync: bool) -> None:
    """When the writer gives its place back; a second time there is nothing to give back."""
    writer = await SqliteJournal(path, fsync=fsync).claim("run")
    await writer.append(row(0, 0.0))
    await anyio.to_thread.run_sync(lose, path)

    with pytest.raises(JournalUnavailable, match=says):
        await writer.release()

    await writer.release()


async def test_a_run_that_is_taken_up_looks_with_its_first_row(path: Path) -> None:
    """Its active seconds have begun long before."""
    journal = SqliteJournal(path)
    first = await journal.claim("run")
    first.append_nowait(row(0, 500.0))
    await first.release()
    writer = await journal.claim("run")
    await anyio.to_thread.run_sync(remove, path)

    with pytest.raises(JournalUnavailable, match="removed or moved away while the run 'run' was at work"):
        writer.append_nowait(row(1, 500.0))

    await writer.release()


async def test_a_journal_in_memory_has_no_file_to_lose() -> None:
    """However long its runs take."""
    writer = await SqliteJournal(":memory:").claim("run")

    writer.append_nowait(row(0, 0.0))
    writer.append_nowait(row(1, 1e6))

    await writer.release()
    assert writer.last == 1


async def test_a_file_that_is_moved_back_can_be_resumed(path: Path) -> None:
    """As the error says: with its log beside it, everything is there."""
    journal = SqliteJournal(path)
    writer = await journal.claim("run")
    writer.append_nowait(row(0, 0.0))
    away = await anyio.to_thread.run_sync(path.rename, path.with_name("away.db"))
    writer.append_nowait(row(1, 0.0))
    with pytest.raises(JournalUnavailable):
        await writer.release()

    await anyio.to_thread.run_sync(away.rename, path)

    assert [found.seq for found in await SqliteJournal(path).read("run")] == [0, 1]


class Case(Context):
    """What the graphs of these tests run on."""

    question: str


async def test_a_run_whose_file_is_removed_ends_with_that_error(path: Path) -> None:
    """Its result is not given as if it were stored."""

    @node
    def removes(state: State[Case]) -> str:
        remove(path)
        return state.context.question

    graph = Graph("lost", START >> removes >> END, context=Case)

    with pytest.raises(JournalUnavailable, match="What the run did outside is done") as caught:
        await run(graph, Case(question="q"), journal=SqliteJournal(path), run_id="one")

    assert caught.value.lost


GRAPH: Final = """
from pathlib import Path

from graphflow import END, START, Context, Graph, State, node


class Case(Context):
    question: str


@node
def removes(state: State[Case]) -> str:
    for file in Path(".graphflow").glob("runs.db*"):
        if file.is_file():
            file.unlink()
    return "done"


lost = Graph("lost", START >> removes >> END, context=Case)
"""


@pytest.mark.may_block  # the command line is a process of its own: it writes where it runs
def test_the_command_line_tells_it_without_a_way_to_resume(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5 and one line: nothing says that the run is intact."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    Path("removing.py").write_text(GRAPH, "utf-8")

    code, out, err = done(capsys, "run", "removing.py", "q", "--quiet")

    assert (code, out) == (5, "")
    assert "was removed or moved away while the run" in err
    assert "intact" not in err
