"""A journal in one SQLite file: what the command line uses, and enough for one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final

from graphflow.errors import JournalUnavailable, RunLocked
from graphflow.events import Row, StoredRun
from graphflow.persistence.sqlite_damaged import any_text, is_damage, runs_one_by_one
from graphflow.persistence.sqlite_lock import RunLock
from graphflow.persistence.sqlite_store import CHECKPOINT_BYTES, PAGE_BYTES, SEQ_BITS, Place, Stores
from graphflow.persistence.sqlite_watch import Watch
from graphflow.persistence.storing import (
    LAST_SEQ,
    checked_id,
    in_thread,
    left_in_thread,
    misnumbered,
    new_epoch,
    not_text,
    released,
    rows_from,
    stored_run,
    taken_in_thread,
)

# The epoch of the run stands in the same statement, so that a writer whose place was taken stores nothing.
_INSERT: Final = """
    INSERT INTO rows (id, at, fact, decisions) SELECT ?, ?, ?, ? FROM runs WHERE runs.key = ? AND runs.epoch = ?
"""
_OF_RUN: Final = f"id >= runs.key << {SEQ_BITS} AND id < (runs.key + 1) << {SEQ_BITS}"
_CLAIM: Final = "INSERT INTO runs (run, epoch) VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch"
_CLAIMED: Final = f"""
    SELECT key, (SELECT max(id) & {LAST_SEQ} FROM rows WHERE {_OF_RUN}) FROM runs WHERE run = ?
"""  # noqa: S608 - of constants
_FORGET: Final = f"""
    DELETE FROM runs WHERE key = ? AND epoch = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE {_OF_RUN})
"""  # noqa: S608 - of constants
_READ: Final = f"""
    SELECT id & {LAST_SEQ}, at, fact, decisions FROM runs JOIN rows ON {_OF_RUN}
    WHERE run = ? AND id > (runs.key << {SEQ_BITS}) + ? ORDER BY id
"""  # noqa: S608 - of constants
_RUNS: Final = f"""
    SELECT run, (SELECT count(*) FROM rows WHERE {_OF_RUN}),
        head.id & {LAST_SEQ}, head.at, head.fact, head.decisions,
        tail.id & {LAST_SEQ}, tail.at, tail.fact, tail.decisions
    FROM runs
    JOIN rows AS head ON head.id = (SELECT min(id) FROM rows WHERE {_OF_RUN})
    JOIN rows AS tail ON tail.id = (SELECT max(id) FROM rows WHERE {_OF_RUN})
    ORDER BY runs.key
"""  # noqa: S608 - of constants


class SqliteJournal:
    """Keeps runs in one SQLite file, which several processes may use at once.

    The file, and the folder that it lies in, are made when they are first needed. Each record is one row and one
    transaction. What was stored survives the end of the process, `kill -9` too. With `fsync=False` a power cut, or a
    crash of the operating system, may take the last records before it, never one out of the middle; with `fsync=True`
    each record waits for the disk, and nothing is lost; where that takes more than a moment, in a worker thread.

    The file must lie on a disk of this machine: the locks of SQLite do not hold over network file systems. Beside it
    lie its log (`-wal`, `-shm`) and the locks of the runs at work (`.locks`), which belong to it while it is in use.
    With `fsync=True` the log has 4 MB from the beginning: a commit that makes no file longer is twice as quick.

    One object serves any number of runs, threads and event loops.

    >>> journal = SqliteJournal(":memory:")
    >>> journal
    SqliteJournal(':memory:')
    """

    def __init__(
        self, path: str | os.PathLike[str] = ".graphflow/runs.db", *, fsync: bool = False, patience: float = 5.0
    ) -> None:
        """Name the file; nothing is opened yet.

        Args:
            path: the file, or ":memory:" for one that ends with this object.
            fsync: whether each record waits until the disk has it.
            patience: how many seconds to wait while another process writes.

        Raises:
            UsageError: the path is empty, or the patience negative.
        """
        self._place = Place(path, fsync=fsync, patience=patience)
        self._stores = Stores(self._place)
        self._held: set[str] = set()
        self._holding = threading.Lock()
        weakref.finalize(self, self._stores.close)

    async def claim(self, run: str) -> SqliteWriter:
        """Become the writer of a run, stored or new; the claim dies with its process.

        Raises:
            RunLocked: somebody else is its writer.
            JournalUnavailable: the file cannot be used.
            UsageError: the id cannot be stored.
        """
        with contextlib.suppress(sqlite3.OperationalError):  # another process writes just now
            writer = self._claim_at_once(checked_id(run))
            if writer is not None:
                return writer
        return await taken_in_thread(self._claim, run, SqliteWriter.leave)

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        """Return the rows of a run whose number is above `after`, in order; none for an unknown run.

        Raises:
            JournalDamaged: a row is not what a row must be.
            JournalUnavailable: the file cannot be used.
        """
        return await in_thread(self._read, checked_id(run), min(max(after, -1), LAST_SEQ))

    async def runs(self) -> Sequence[StoredRun]:
        """Return all runs that have a row, in the order in which they were begun; one that is damaged hides no other.

        Raises:
            JournalUnavailable: the file cannot be used.
        """
        return await in_thread(self._runs)

    async def delete(self, run: str) -> bool:
        """Remove a run and all of its rows, and overwrite them in the file; tell whether there was one.

        While another process reads the database, its log keeps the rows until that is over and somebody writes.

        Raises:
            RunLocked: somebody is its writer.
            JournalUnavailable: the file cannot be used.
        """
        return await in_thread(self._delete, checked_id(run))

    def close(self) -> None:
        """Close the file, which folds its log into it; whoever uses the journal again opens it again.

        A journal that is forgotten is closed too.
        """
        self._stores.close()

    def __repr__(self) -> str:
        """Name the file."""
        return f"SqliteJournal({str(self._place.path)!r})"

    def _claim_at_once(self, run: str) -> SqliteWriter | None:
        """Claim a run in the loop's thread, where rows are written too; None where that could take a moment.

        Raises:
            sqlite3.OperationalError: another process writes just now.
        """
        lock = None
        try:
            with self._stores.writing.at_once() as cursor:
                if cursor is None:
                    return None
                lock = self._lock(run)
                writer = self._claimed(run, lock, cursor)
                writer.watch = Watch(self._stores.writing, writer.last)
                return writer
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def _claim(self, run: str) -> SqliteWriter:
        lock = self._lock(run)
        try:
            with self._stores.aside.transaction() as cursor:
                writer = self._claimed(run, lock, cursor)
            self._stores.writing.ready()
            writer.watch = Watch(self._stores.writing, writer.last)
        except BaseException:
            lock.release()
            raise
        return writer

    def _claimed(self, run: str, lock: RunLock | HeldHere, cursor: sqlite3.Cursor) -> SqliteWriter:
        """Draw a new epoch for a run that is locked, in a transaction."""
        epoch = new_epoch()
        cursor.execute(_CLAIM, (run, epoch))
        key, last = cursor.execute(_CLAIMED, (run,)).fetchone()
        return SqliteWriter(self, self._stores, run, lock, key=key, epoch=epoch, last=-1 if last is None else last)

    def _there(self) -> bool:
        try:
            return self._place.exists()
        except OSError as error:
            raise self._stores.aside.failed(error) from error

    def _lock(self, run: str) -> RunLock | HeldHere:
        if self._place.memory:
            return HeldHere(self._held, self._holding, run)
        try:
            folder = self._place.make_locks()
        except OSError as error:
            raise self._stores.aside.failed(error) from error
        return RunLock.take(folder, run)

    def _read(self, run: str, after: int) -> Sequence[Row]:
        if not self._there():
            return ()
        with self._stores.aside.use() as cursor:
            try:
                found = cursor.execute(_READ, (run, after)).fetchall()
            except sqlite3.OperationalError as error:
                if not is_damage(error):
                    raise
                with any_text(cursor):
                    found = cursor.execute(_READ, (run, after)).fetchall()
        return rows_from(run, found)

    def _runs(self) -> Sequence[StoredRun]:
        if not self._there():
            return ()
        with self._stores.aside.use() as cursor:
            try:
                found = cursor.execute(_RUNS).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not is_damage(error):
                    raise
                return runs_one_by_one(cursor)
        return tuple(stored_run(run, count, columns[:4], columns[4:]) for run, count, *columns in found)

    def _delete(self, run: str) -> bool:
        if not self._there():
            return False
        lock = self._lock(run)
        try:
            with self._stores.aside.transaction() as cursor:
                found = cursor.execute("SELECT key FROM runs WHERE run = ?", (run,)).fetchone()
                if found is None:
                    return False
                low = found[0] << SEQ_BITS
                cursor.execute("DELETE FROM rows WHERE id BETWEEN ? AND ?", (low, low + LAST_SEQ))
                rows = cursor.rowcount
                cursor.execute("DELETE FROM runs WHERE run = ?", (run,))
            self._stores.aside.scrub()
            return rows > 0
        finally:
            lock.release()


class SqliteWriter:
    """The writer of a run in a SQLite file.

    Attributes:
        run: the id of the run.
        last: the number of the last stored row, -1 if there is none.
        instant: false where each row waits for the disk, and the disk takes more than a moment.
        lock: what makes it the only one, None once it is released.
        stores: what it writes with.
        watch: what looks now and then whether the file is still there.
    """

    watch: Watch

    def __init__(
        self,
        journal: SqliteJournal,
        stores: Stores,
        run: str,
        lock: RunLock | HeldHere,
        *,
        key: int,
        epoch: int,
        last: int,
    ) -> None:
        """Write under an epoch of a run; made by `SqliteJournal.claim`."""
        self.last = last
        self._fsync = stores.writing.place.fsync
        self.instant: bool = not self._fsync or stores.writing.prompt
        self.lock: RunLock | HeldHere | None = lock
        self.run = run
        self._journal = journal  # it closes its connections when nobody has it any more
        self.stores = stores
        self._writing = stores.writing
        self._base, self._key, self._epoch = key << SEQ_BITS, key, epoch
        self._gone: JournalUnavailable | None = None

    def append_nowait(self, row: Row) -> None:
        """Store one row, all of it or nothing.

        Raises:
            RunLocked: another writer has taken the run over meanwhile.
            JournalUnavailable: the file cannot be used, or is not there any more.
            UsageError: the row cannot follow the last one, or the writer was released.
        """
        if self.lock is None:
            released(self.run)
        seq, fact, decisions = row.seq, row.fact, row.decisions
        if not self.last < seq <= LAST_SEQ:
            misnumbered(self.run, self.last, row)
        if "\0" in fact or "\0" in decisions:  # SQLite could hold it; whoever moves the run elsewhere could not
            not_text(self.run, row)
        at, writing = row.at, self._writing
        if at >= self.watch.due and self.watch.is_gone(at):
            raise self.watch.error(self.run)
        with writing.lock:
            began = time.perf_counter() if self._fsync else 0.0
            try:
                cursor = writing.opened or writing.cursor()
                cursor.execute(_INSERT, (self._base + seq, at, fact, decisions, self._key, self._epoch))
            except (sqlite3.Error, OSError) as error:
                raise writing.failed(error) from error
            except UnicodeEncodeError:
                not_text(self.run, row)
            if cursor.rowcount != 1:
                raise self.watch.error(self.run) if self.watch.is_gone(at) else RunLocked(self.run)
            self.last = seq
            if self._fsync:
                writing.took(time.perf_counter() - began)
                self.instant = writing.prompt
            stores = self.stores
            stores.grown += len(fact) + len(decisions) + PAGE_BYTES
            if stores.grown >= CHECKPOINT_BYTES:
                stores.fold_log()

    async def append(self, row: Row) -> None:
        """Store one row; raises what `append_nowait` raises."""
        if self.instant:
            self.append_nowait(row)
        else:
            await in_thread(self.append_nowait, row)

    async def release(self) -> None:
        """Give the writer's place back, whoever cancels it meanwhile.

        Raises:
            JournalUnavailable: the file is not there any more, and with it what the run has stored.
        """
        if self.instant and self.last >= 0:
            self.leave()
        else:
            await left_in_thread(self.leave)
        gone, self._gone = self._gone, None
        if gone is not None:
            raise gone

    def leave(self) -> None:
        """Give the writer's place back in this thread."""
        lock, self.lock = self.lock, None
        if lock is None:
            return
        try:
            if self.last < 0:
                self._forget()
            elif not self.watch.told and self.watch.is_gone(0.0):
                self._gone = self.watch.error(self.run)
        finally:
            lock.release()

    def _forget(self) -> None:
        """Remove the entry of a run that has no row: it was never begun."""
        with contextlib.suppress(JournalUnavailable), self.stores.aside.transaction() as cursor:
            cursor.execute(_FORGET, (self._key, self._epoch))


class HeldHere:
    """The lock of a run in a database that nobody outside of this journal can see."""

    def __init__(self, held: set[str], holding: threading.Lock, run: str) -> None:
        """Take it.

        Raises:
            RunLocked: it is taken.
        """
        with holding:
            if run in held:
                raise RunLocked(run)
            held.add(run)
        self._held, self._run = held, run

    def release(self) -> None:
        """Let it go."""
        self._held.discard(self._run)
