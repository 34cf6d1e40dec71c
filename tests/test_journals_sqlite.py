"""SQLite files as journals: crashes, contention, full disks and damage, with real processes and real files."""

import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections import Counter
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from graphflow.errors import JournalDamaged, JournalError, JournalUnavailable, RunLocked, UsageError
from graphflow.events import Row
from graphflow.persistence import sqlite_store
from graphflow.persistence.sqlite import SqliteJournal, SqliteWriter
from graphflow.persistence.sqlite_lock import RunLock, connect, identity
from graphflow.persistence.sqlite_store import APPLICATION, MIGRATIONS
from tests.servers import process, said, tell
from tests.support import examples

SIZE: Final = 1250
"""The bytes of a usual row."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database of a test is."""
    return tmp_path / "runs.db"


def row(seq: int, size: int = 20) -> Row:
    """A row of a given size."""
    fact = f'"{seq}:{"f" * (size // 2)}"'
    return Row(seq, seq / 10, fact, f'["{"d" * (size - len(fact) - 4)}"]')


async def store(journal: SqliteJournal, run: str, numbers: range, size: int = 20) -> None:
    """Store rows of a run and let go of it."""
    writer = await journal.claim(run)
    for seq in numbers:
        writer.append_nowait(row(seq, size))
    await writer.release()


def prepare(path: Path, numbers: range, size: int = 20) -> None:
    """Store rows of a run in a file that nobody has open afterwards."""
    with closing(SqliteJournal(path)) as journal:
        anyio.run(store, journal, "run", numbers, size)


async def numbers(journal: SqliteJournal, run: str) -> list[int]:
    """The numbers of a run's rows."""
    return [found.seq for found in await journal.read(run)]


PRELUDE: Final = """
import os, sys
import anyio
from graphflow.errors import JournalError, JournalUnavailable, RunLocked
from graphflow.events import Row
from graphflow.persistence.sqlite import SqliteJournal, SqliteWriter

journal = SqliteJournal(sys.argv[1], patience=5.0)

def say(*words): print(*words, flush=True)

def row(seq, size=20): return Row(seq, seq / 10, '"' + "f" * size + '"', "[]")
"""


def beside(program: str, path: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process of its own that runs the `async def main()` of a program on the journal."""
    return process(f"{PRELUDE}\n{program}\nanyio.run(main)", str(path))


# --- processes -------------------------------------------------------------------------------------------------------

HOLD: Final = """
async def main():
    writer = await journal.claim("run")
    writer.append_nowait(row(0))
    say("holds it")
    sys.stdin.read()
"""


def test_a_killed_holder_frees_its_lock(path: Path) -> None:
    """While a process has a run, no other gets it; once it is killed, the next one goes on with what it stored."""
    journal = SqliteJournal(path)

    with beside(HOLD, path) as holder:
        assert said(holder) == "holds it"
        with pytest.raises(RunLocked):
            anyio.run(journal.claim, "run")
        with pytest.raises(RunLocked):
            anyio.run(journal.delete, "run")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        writer = anyio.run(journal.claim, "run")

    assert writer.last == 0
    anyio.run(writer.release)
    assert list((path.parent / "runs.db.locks").iterdir()) == []


CONTEND: Final = """
async def main():
    writer = None
    for run in map(str.strip, sys.stdin):
        try:
            writer = await journal.claim(run)
        except RunLocked:
            say("lost")
        else:
            await writer.append(row(writer.last + 1))
            say("won")
        sys.stdin.readline()
        if writer is not None:
            await writer.release()
        writer = None
        say("over")
"""


def test_of_two_processes_exactly_one_gets_a_run(path: Path) -> None:
    """In each of a hundred races for a run exactly one process wins, whichever."""
    outcomes: Counter[tuple[str, ...]] = Counter()

    with (
        beside(CONTEND, path) as one,
        beside(CONTEND, path) as two,
    ):
        for trial in range(100):
            for child in (one, two):
                tell(child, f"run {trial % 50}")
            outcomes[tuple(sorted(said(child) for child in (one, two)))] += 1
            for child in (one, two):
                tell(child, "release")
            assert [said(child) for child in (one, two)] == ["over", "over"]

    assert outcomes == {("lost", "won"): 100}
    assert [stored.rows for stored in anyio.run(SqliteJournal(path).runs)] == [2] * 50


WRITE: Final = """
async def main():
    writer = await journal.claim("run")
    say(writer.last)
    while True:
        writer.append_nowait(row(writer.last + 1, 600))
        say(writer.last)
"""


def test_a_killed_writer_leaves_what_it_had_stored(path: Path) -> None:
    """However a writer is killed while it writes, all that it called stored is there, without a gap, and it is read."""
    dice, journal, least = random.Random(7), SqliteJournal(path), -1

    for _ in range(10):
        with beside(WRITE, path) as writer:
            assert int(said(writer)) >= least
            for _ in range(dice.randrange(1, 200)):
                least = int(said(writer))
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        found = anyio.run(numbers, journal, "run")

        assert found == list(range(len(found)))
        assert found[-1] >= least


OPEN_AT_ONCE: Final = """
async def main():
    say("ready")
    sys.stdin.readline()
    for run in range(5):
        writer = await journal.claim(f"{os.getpid()} {run}")
        await writer.append(row(0))
        await writer.release()
    say("done")
"""


def test_several_processes_may_make_the_file(path: Path) -> None:
    """Whoever comes first makes the database; the others wait for that."""
    with beside(OPEN_AT_ONCE, path) as one, beside(OPEN_AT_ONCE, path) as two, beside(OPEN_AT_ONCE, path) as three:
        children = (one, two, three)
        assert [said(child) for child in children] == ["ready"] * 3
        for child in children:
            tell(child, "go")

        assert [said(child) for child in children] == ["done"] * 3

    assert len(anyio.run(SqliteJournal(path).runs)) == 15


FORK: Final = """
async def inherit():
    try:
        await journal.claim("mine")
        return 1
    except RunLocked:
        other = await journal.claim("other")
        other.append_nowait(row(0))
        await other.release()
        return 0

writer = anyio.run(journal.claim, "mine")
writer.append_nowait(row(0))
child = os.fork()
if child == 0:
    code = 2
    try:
        code = anyio.run(inherit)
    finally:
        os._exit(code)
_, code = os.waitpid(child, 0)

async def main():
    writer.append_nowait(row(1))
    say(code, len(await journal.read("mine")), len(await journal.read("other")))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_the_file_anew(path: Path) -> None:
    """A child that was forked neither inherits the claims of its parent nor takes anything from it."""
    with beside(FORK, path) as child:
        assert said(child) == "0 2 1"


# --- one process -----------------------------------------------------------------------------------------------------


def test_event_loops_in_several_threads_share_a_journal(path: Path) -> None:
    """One journal object serves loops of both kinds in threads of their own."""
    journal = SqliteJournal(path)
    failures: list[BaseException] = []

    def work(backend: str, run: str) -> None:
        try:
            anyio.run(store, journal, run, range(50), backend=backend)
        except BaseException as error:  # noqa: BLE001 - it is shown below
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(backend, f"{backend} {number}"))
        for backend in ("asyncio", "trio")
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert [stored.rows for stored in anyio.run(journal.runs)] == [50] * 8


async def test_nothing_is_made_before_something_is_stored(path: Path) -> None:
    """To look into a journal that is not there makes no file; a claim makes it, with the folders above it."""
    journal = SqliteJournal(path.parent / "a" / "b" / "runs.db")

    assert await journal.read("run") == ()
    assert await journal.runs() == ()
    assert await journal.delete("run") is False
    assert list(path.parent.iterdir()) == []
    await store(journal, "run", range(1))
    assert await anyio.Path(path.parent / "a" / "b" / "runs.db").exists()
    assert not await anyio.Path(path.parent / "a" / "b" / ".gitignore").exists()


async def test_a_folder_of_our_own_is_kept_out_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default runs lie in `.graphflow`, which ignores itself, under the directory where the first one began."""
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal()
    await store(journal, "run", range(1))
    monkeypatch.chdir("/")

    await store(journal, "run", range(1, 2))

    assert await anyio.Path(tmp_path / ".graphflow" / ".gitignore").read_text() == "*\n"
    assert await numbers(SqliteJournal(tmp_path / ".graphflow" / "runs.db"), "run") == [0, 1]


async def test_a_removed_file_is_made_again(path: Path) -> None:
    """Whoever removes the file takes the runs away; the next run is stored in a new file."""
    journal = SqliteJournal(path)
    await store(journal, "old", range(3))
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        await anyio.Path(path.with_name(name)).unlink(missing_ok=True)

    await store(journal, "new", range(2))

    assert await numbers(journal, "old") == []
    assert await numbers(SqliteJournal(path), "new") == [0, 1]


async def test_a_writer_whose_file_was_removed_gets_into_no_other_run(path: Path) -> None:
    """When the file is removed under a writer and made anew, what that writer has left to say is stored nowhere."""
    journal = SqliteJournal(path)
    writer = await journal.claim("old")
    writer.append_nowait(row(0))
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        await anyio.Path(path.with_name(name)).unlink(missing_ok=True)
    other = await journal.claim("new")
    other.append_nowait(row(0))

    with pytest.raises(JournalUnavailable, match="was replaced by another file while the run 'old' was at work"):
        writer.append_nowait(row(1))
    await writer.release()

    assert await numbers(journal, "new") == [0]
    assert await numbers(journal, "old") == []
    await other.release()


async def test_a_run_that_is_deleted_while_it_is_claimed_is_not_had(path: Path) -> None:
    """Somebody who takes no notice of its lock can delete a run: whoever claims it just then does not get it."""
    journal = SqliteJournal(path)
    await store(journal, "run", range(2))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER gone BEFORE UPDATE ON runs BEGIN DELETE FROM runs WHERE key = old.key; END")

    with pytest.raises(RunLocked):
        await journal.claim("run")

    assert list((path.parent / "runs.db.locks").iterdir()) == []


@pytest.mark.may_block  # to open the file is the first append's, if nobody claims before
async def test_a_closed_journal_opens_again(path: Path) -> None:
    """Closing folds the log into the file; a writer that is still there goes on afterwards."""
    journal = SqliteJournal(path)
    writer = await journal.claim("run")
    writer.append_nowait(row(0))

    await anyio.to_thread.run_sync(journal.close)
    await anyio.to_thread.run_sync(journal.close)
    log = await anyio.Path(path.with_name("runs.db-wal")).exists()
    writer.append_nowait(row(1))

    assert not log
    assert await numbers(journal, "run") == [0, 1]
    await writer.release()


END: Final = """
async def main():
    await (await journal.claim("run")).append(row(0))
"""


def test_a_process_that_ends_closes_its_journal(path: Path) -> None:
    """Nobody has to close a journal: when the process ends in order, its log is in the file."""
    with beside(END, path) as child:
        assert said(child) == ""
        child.wait()

    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith("runs.db-")] == []
    assert anyio.run(numbers, SqliteJournal(path), "run") == [0]


async def test_what_was_deleted_is_not_in_the_file_any_more(path: Path) -> None:
    """Deleting a run overwrites what it held, in the file and in its log."""
    journal, secret = SqliteJournal(path), "a word that nobody shall find"
    writer = await journal.claim("run")
    for seq in range(50):
        writer.append_nowait(Row(seq, 0.0, f'"{secret}"', f'"{secret * 500}"'))
    await writer.release()
    await store(journal, "other", range(3))

    assert await journal.delete("run")

    for name in ("runs.db", "runs.db-wal"):
        assert secret.encode() not in await anyio.Path(path.with_name(name)).read_bytes()
    assert await numbers(journal, "other") == [0, 1, 2]


async def test_the_log_is_folded_into_the_file_now_and_then(path: Path) -> None:
    """A run that goes on for long does not pile up its log, and no append waits for the folding."""
    journal = SqliteJournal(path)
    writer = await journal.claim("run")

    for seq in range(2000):
        writer.append_nowait(row(seq, 8000))
    for thread in threading.enumerate():
        if thread.name == "graphflow checkpoint":
            await anyio.to_thread.run_sync(thread.join)

    assert (await anyio.Path(path).stat()).st_size > 4_000_000
    assert await numbers(journal, "run") == list(range(2000))
    await writer.release()


async def test_a_row_costs_little_more_than_its_text(path: Path) -> None:
    """200 rows of 1.25 KB take less than 350 KB, and twice as many take twice as much."""
    sizes: list[int] = []

    for count in (200, 400, 800):
        journal = SqliteJournal(path.with_name(f"{count}.db"))
        await store(journal, "run", range(count), SIZE)
        await anyio.to_thread.run_sync(journal.close)
        sizes.append((await anyio.Path(path.with_name(f"{count}.db")).stat()).st_size)

    assert sizes[0] <= 350_000
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[2] < 2.2 * sizes[1]


def test_each_row_waits_for_the_disk_if_that_is_wanted(path: Path) -> None:
    """With `fsync` a commit is synced, without it not."""
    for fsync, level in ((True, 2), (False, 1)):
        journal = SqliteJournal(path, fsync=fsync)
        writer = anyio.run(journal.claim, str(fsync))

        found = writer.stores.writing.cursor().execute("PRAGMA synchronous").fetchone()

        assert found == (level,)
        anyio.run(writer.release)


def test_a_log_that_was_made_long_is_read_after_a_crash(path: Path, tmp_path: Path) -> None:
    """With `fsync` the log is written over zeros; what a crash leaves of both files holds every row, and no other."""
    journal, left = SqliteJournal(path, fsync=True), tmp_path / "left.db"
    writer = anyio.run(journal.claim, "run")
    for seq in range(5):
        writer.append_nowait(row(seq, SIZE))
    length = Path(f"{path}-wal").stat().st_size
    for ending in ("", "-wal"):  # as they lie on the disk after a power cut
        Path(f"{left}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())

    found = anyio.run(SqliteJournal(left, fsync=True).read, "run")

    assert [*found] == [row(seq, SIZE) for seq in range(5)]
    assert length >= 4_000_000
    anyio.run(writer.release)


async def test_a_claim_waits_in_a_thread_while_another_process_writes(path: Path) -> None:
    """A claim is made at once where it can be; where somebody holds the file, the event loop goes on meanwhile."""
    journal = SqliteJournal(path, patience=30)
    await store(journal, "earlier", range(1))
    claimed, waited = list[SqliteWriter](), False

    async def claim() -> None:
        claimed.append(await journal.claim("run"))

    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        await anyio.to_thread.run_sync(other.execute, "BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claim)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            waited = not claimed
            await anyio.to_thread.run_sync(other.execute, "ROLLBACK")

    assert waited
    assert [writer.run for writer in claimed] == ["run"]
    await claimed[0].release()


@pytest.mark.parametrize("opened", [True, False])
async def test_a_read_waits_in_a_thread_while_another_process_holds_the_file(path: Path, opened: bool) -> None:
    """A short run is read at once where it can be; where somebody keeps readers out, the event loop goes on."""
    journal = SqliteJournal(path, patience=30)
    await store(journal, "run", range(3))
    await anyio.to_thread.run_sync(journal.close)
    if opened:
        await journal.read("run")
    found, waited = list[Row](), False

    async def read() -> None:
        found.extend(await journal.read("run"))

    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        await anyio.to_thread.run_sync(shut, other, opened)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            waited = not found
            await anyio.to_thread.run_sync(other.close)

    assert waited is not opened
    assert found == [row(0), row(1), row(2)]


def shut(connection: sqlite3.Connection, opened: bool) -> None:
    """Keep others out of a database, if nobody has it open; write to it at any rate."""
    if not opened:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM rows WHERE 0")
    if not opened:
        connection.execute("COMMIT")


@pytest.mark.parametrize("length", [1, 255, 256, 257, 300])
async def test_a_run_of_any_length_is_read_whole(path: Path, length: int) -> None:
    """Where a thread takes over from the loop, no row is left out, and none comes twice."""
    journal = SqliteJournal(path)
    await store(journal, "run", range(length))

    assert await numbers(journal, "run") == [*range(length)]
    assert [found.seq for found in await journal.read("run", after=9)] == [*range(10, length)]


async def test_a_slow_disk_is_waited_for_in_a_thread(path: Path) -> None:
    """Rows that wait for the disk are written at once while it is quick, and in a thread once it is not."""
    synced, quick = SqliteJournal(path, fsync=True), SqliteJournal(path)
    writer, other = await synced.claim("synced"), await quick.claim("quick")
    at_first = writer.instant
    for seq in range(3):
        await writer.append(Row(seq, 0.0, "[]", "[]"))

    writer.stores.writing.took(60.0)
    await writer.append(Row(3, 0.0, "[]", "[]"))
    await other.append(Row(0, 0.0, "[]", "[]"))

    assert at_first
    assert not writer.instant
    assert other.instant
    assert [row.seq for row in await synced.read("synced")] == [0, 1, 2, 3]
    await writer.release()
    await other.release()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param({"path": ""}, "'' is no path", id="no path"),
        pytest.param({"path": "a\0b"}, "is no path", id="a NUL"),
        pytest.param({"path": "runs.db", "patience": -1.0}, "patience=-1.0 makes no sense", id="no patience"),
        pytest.param({"path": "runs.db", "patience": float("nan")}, "makes no sense", id="no number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, object], complaint: str) -> None:
    """What cannot work is refused before anything is opened."""
    with pytest.raises(UsageError, match=complaint):
        SqliteJournal(**arguments)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def test_text_that_is_none_is_refused(path: Path) -> None:
    """Half of a surrogate pair as it is cannot be stored; JSON has an escape for it."""
    writer = await SqliteJournal(path).claim("run")

    with pytest.raises(UsageError, match="write it as an escape"):
        writer.append_nowait(Row(0, 0.0, '"\ud800"', "[]"))
    writer.append_nowait(Row(0, 0.0, r'"\ud800"', "[]"))

    assert writer.last == 0
    await writer.release()


async def test_a_number_too_high_is_refused(path: Path) -> None:
    """A run has at most four billion events; the last of them is stored, and stays in its run."""
    journal = SqliteJournal(path)
    writer, last = await journal.claim("run"), 2**32 - 1
    other = await journal.claim("other")
    other.append_nowait(row(0))

    writer.append_nowait(row(last))
    with pytest.raises(UsageError, match="the highest number is 4294967295"):
        writer.append_nowait(row(last + 1))

    assert await numbers(journal, "run") == [last]
    assert await numbers(journal, "other") == [0]
    assert await journal.read("run", last) == ()
    assert await journal.read("run", last + 5) == ()
    await writer.release()
    await other.release()


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path) -> None:
    """Whoever has opened a lock file before its holder removes it finds out, and does not take that for the lock."""
    holder = RunLock.take(tmp_path, "run")
    late = RunLock("run", holder.path, connect(holder.path), identity(holder.path))
    holder.release()

    assert not late.hold()
    again = RunLock.take(tmp_path, "run")
    with pytest.raises(RunLocked):
        RunLock.take(tmp_path, "run")
    again.release()


def test_a_lock_file_is_made_by_sqlite_where_the_system_does_not_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no call for that, and elsewhere not everybody may use it."""
    monkeypatch.delattr(os, "mknod", raising=False)

    holder = RunLock.take(tmp_path, "run")

    with pytest.raises(RunLocked):
        RunLock.take(tmp_path, "run")
    holder.release()
    assert [*tmp_path.iterdir()] == []


def test_a_lock_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Where the locks have no folder, the error names the file and says what to do."""
    with pytest.raises(JournalUnavailable, match="Its folder must be there and writable") as caught:
        RunLock.take(tmp_path / "nowhere", "run")

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


# --- what can go wrong -----------------------------------------------------------------------------------------------


async def fails(journal: SqliteJournal, complaint: str) -> None:
    """Everything that a journal does fails with the same complaint, which names the file and keeps the cause."""
    for call in (journal.claim("run"), journal.read("run"), journal.runs(), journal.delete("run")):
        with pytest.raises(JournalUnavailable, match=complaint):
            await call


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A path that is a folder is refused in words."""
    with pytest.raises(JournalUnavailable, match=r"it is a folder\. Name a file") as caught:
        await SqliteJournal(tmp_path).claim("run")

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert str(tmp_path) in str(caught.value)


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """A path below a file is refused in words; so is a file where the locks belong."""
    await anyio.Path(tmp_path / "file").touch()
    await anyio.Path(tmp_path / "runs.db.locks").touch()

    for path in (tmp_path / "file" / "runs.db", tmp_path / "file" / "a" / "runs.db", tmp_path / "runs.db"):
        with pytest.raises(JournalUnavailable, match="a file stands where a folder must be") as caught:
            await SqliteJournal(path).claim("run")

        assert isinstance(caught.value.__cause__, OSError)


UNPRIVILEGED: Final = """
async def main():
    from anyio import to_thread
    await to_thread.run_sync(int)
    if os.getuid() == 0:
        os.setuid(65534)
    for call in (lambda: journal.claim("run"), lambda: journal.read("run"), lambda: journal.delete("run")):
        try:
            await call()
            say("fine")
        except JournalError as error:
            say(type(error).__name__, str(error).replace("\\n", " "), repr(error.__cause__))
"""


@pytest.mark.skipif(os.name == "nt", reason="permissions are another matter there")
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_what_may_not_be_written_is_named(closed: str) -> None:
    """A file or a folder that this user may not write gives a clear error, and nothing is changed."""
    # Not in pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "runs.db"
        prepare(path, range(3))
        before = path.read_bytes()
        folder.chmod(0o555 if closed == "folder" else 0o777)
        (folder / "runs.db.locks").chmod(0o777)
        path.chmod(0o444)

        with beside(UNPRIVILEGED, path) as child:
            answers, refused = [said(child) for _ in range(3)], "JournalUnavailable"
        folder.chmod(0o755)

        # A file alone can be read all the same; without its folder SQLite has no place for what readers share.
        assert [answer.split()[0] for answer in answers] == [refused, "fine" if closed == "file" else refused, refused]
        for answer in (answers[0], answers[2]):
            assert f"{str(path)!r} cannot be used: it can only be read. Allow writing to the file and" in answer
            assert "OperationalError('attempt to write a readonly database')" in answer
        assert path.read_bytes() == before


LIMITED: Final = """
import resource

async def main():
    writer = await journal.claim("run")
    for seq in range(20):
        writer.append_nowait(row(seq, 1000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for seq in range(20, 500):
            writer.append_nowait(row(seq, 1000))
    except JournalUnavailable as error:
        say(writer.last, type(error.__cause__).__name__, str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await writer.release()
    writer = await journal.claim("run")
    say(writer.last)
    await writer.append(row(writer.last + 1))
    say([row.seq for row in await journal.read("run")] == list(range(writer.last + 1)))
"""


@pytest.mark.skipif(os.name == "nt", reason="this system has no limit for the size of a file")
def test_a_write_that_fails_loses_nothing(path: Path) -> None:
    """When the system writes no more, the append fails; what was stored is there, and the run goes on afterwards."""
    with beside(LIMITED, path) as child:
        last, kind, *words = said(child).split()

        assert kind == "OperationalError"
        assert "reading or writing failed. Is the disk full" in " ".join(words)
        assert said(child) == last
        assert said(child) == "True"


def fill(writer: SqliteWriter) -> None:
    """Store rows for as long as there is room."""
    while True:
        writer.append_nowait(row(writer.last + 1, SIZE))


async def test_a_full_disk_loses_nothing(path: Path) -> None:
    """When there is no room, the append fails in words; once there is, the same writer goes on."""
    journal = SqliteJournal(path)
    writer = await journal.claim("run")
    cursor = writer.stores.writing.cursor()
    cursor.connection.execute("PRAGMA max_page_count = 30")

    with pytest.raises(JournalUnavailable, match=r"the disk is full.* Make room, then resume") as caught:
        fill(writer)
    stored = await numbers(journal, "run")
    cursor.connection.execute("PRAGMA max_page_count = 30000")
    writer.append_nowait(row(writer.last + 1, SIZE))

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert len(stored) > 50
    assert await numbers(journal, "run") == list(range(len(stored) + 1))
    await writer.release()


async def test_a_database_that_is_locked_for_long_is_named(path: Path) -> None:
    """When another program keeps the file locked, patience ends in an error; afterwards the same writer goes on."""
    journal = SqliteJournal(path, patience=0.05)
    writer = await journal.claim("run")
    writer.append_nowait(row(0))

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnavailable, match=r"locked for more than 0\.05 s") as caught:
            writer.append_nowait(row(1))
        with pytest.raises(JournalUnavailable, match="locked"):
            await journal.claim("other")
        read = await numbers(journal, "run")
        other.execute("ROLLBACK")
    writer.append_nowait(row(1))

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert read == [0]
    assert await numbers(journal, "run") == [0, 1]
    await store(journal, "other", range(1))
    await writer.release()


async def test_a_file_that_is_no_database_stays_as_it_is(path: Path) -> None:
    """A file that holds something else is refused, and not one byte of it is changed."""
    content = b"dear diary, " * 1000
    await anyio.Path(path).write_bytes(content)

    await fails(SqliteJournal(path), "it is no SQLite database. Name another file")

    assert await anyio.Path(path).read_bytes() == content


async def test_the_database_of_another_program_stays_as_it_is(path: Path) -> None:
    """A database with tables of somebody else is refused."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE customers (name TEXT)")

    await fails(SqliteJournal(path), "is the database of another program. Nothing was changed")

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]


async def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    """A file without a byte is no different from none."""
    await anyio.Path(path).touch()
    journal = SqliteJournal(path)

    assert await journal.read("run") == ()
    assert await journal.runs() == ()
    await store(journal, "run", range(2))
    assert await numbers(journal, "run") == [0, 1]


def test_damage_is_an_error_or_does_no_harm(path: Path) -> None:
    """Whatever bytes of the file are changed or missing, reading gives rows or an error of ours, nothing else."""
    prepare(path, range(60), SIZE)
    content, dice, outcomes = path.read_bytes(), random.Random(3), Counter[str]()

    for trial in range(examples(400)):
        damaged = bytearray(content)
        if trial % 4 == 0:
            del damaged[dice.randrange(len(damaged)) :]
        for _ in range(dice.randrange(1, 20)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        other = path.with_name(f"{trial}.db")
        other.write_bytes(damaged)
        for act in (SqliteJournal(other).read, SqliteJournal(other).claim):
            try:
                anyio.run(act, "run")
                outcomes["fine"] += 1
            except JournalError as error:
                outcomes[type(error).__name__] += 1

    assert {"fine", "JournalUnavailable"} <= set(outcomes) <= {"fine", "JournalUnavailable", "JournalDamaged"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param("UPDATE rows SET fact = x'00ff'", "record 0 .*float, bytes, str", id="bytes"),
        pytest.param("UPDATE rows SET at = 'soon'", "record 0 .*str, str, str", id="a word for a time"),
        pytest.param("UPDATE rows SET decisions = CAST(x'ff' AS TEXT)", "record 0 .*float, str, bytes", id="no text"),
    ],
)
async def test_rows_of_another_shape_are_damage(path: Path, change: str, complaint: str) -> None:
    """A column that somebody has put something else into is refused, naming the run and the record."""
    journal = SqliteJournal(path)
    await store(journal, "run", range(2))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(change)

    with pytest.raises(JournalDamaged, match=complaint):
        await journal.read("run")
    assert [(run.run, run.rows, run.damaged != "") for run in await journal.runs()] == [("run", 2, True)]


# --- formats ---------------------------------------------------------------------------------------------------------


async def test_a_newer_format_is_refused(path: Path) -> None:
    """What a newer version has written is left alone, with a word about which is which."""
    journal = SqliteJournal(path)
    await store(journal, "run", range(2))
    await anyio.to_thread.run_sync(journal.close)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (1,)
        assert other.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        other.execute("PRAGMA user_version = 7")

    await fails(journal, r"was written by a newer graphflow \(format 7; this one knows 1\)")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA user_version = 1")
    assert await numbers(journal, "run") == [0, 1]


async def test_an_older_format_is_brought_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a format is added, files of the one before are changed in one transaction, and keep their rows."""
    await store(SqliteJournal(path), "run", range(3))

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE runs ADD COLUMN half TEXT")
        connection.execute("SELECT nonsense")

    def add(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'from before'")

    monkeypatch.setattr(sqlite_store, "MIGRATIONS", {**MIGRATIONS, 1: fail})
    with pytest.raises(JournalUnavailable, match="SQLite refused it"):
        await SqliteJournal(path).runs()
    monkeypatch.setattr(sqlite_store, "MIGRATIONS", {**MIGRATIONS, 1: add})
    journal = SqliteJournal(path)
    found = await numbers(journal, "run")
    await store(journal, "run", range(3, 5))

    assert found == [0, 1, 2]
    assert await numbers(SqliteJournal(path), "run") == [0, 1, 2, 3, 4]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (2,)
        assert other.execute("SELECT * FROM runs").fetchall()[0][3:] == ("from before",)
