"""What can still be read of a SQLite journal in which some rows are damaged: one of them hides no other run."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Sequence
from typing import Any, Final

from graphflow.events import StoredRun
from graphflow.persistence.sqlite_store import SEQ_BITS, is_corrupt
from graphflow.persistence.storing import LAST_SEQ, damaged_run, stored_run

_RUNS: Final = "SELECT key, run FROM runs ORDER BY key"
_COUNT: Final = "SELECT count(*) FROM rows WHERE id BETWEEN ? AND ?"
_ROW: Final = f"SELECT id & {LAST_SEQ}, at, fact, decisions FROM rows WHERE id BETWEEN ? AND ? ORDER BY id"  # noqa: S608 - of a constant


def is_damage(error: Exception) -> bool:
    """Whether reading failed because of what stands in a row: text that is none, or a page that is none."""
    # The one error that Python raises here itself, when a column holds text that is none, has no code.
    undecodable = isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")
    return undecodable or isinstance(error, UnicodeDecodeError) or is_corrupt(error)


@contextlib.contextmanager
def any_text(cursor: sqlite3.Cursor) -> Generator[None]:
    """Give text that is none as its bytes, so that its row can be named; the store's lock is held meanwhile."""
    connection = cursor.connection
    before = connection.text_factory
    connection.text_factory = _text_or_bytes
    try:
        yield
    finally:
        connection.text_factory = before


def runs_one_by_one(cursor: sqlite3.Cursor) -> tuple[StoredRun, ...]:
    """Return all runs that have a row, each looked at apart from the others.

    Raises:
        sqlite3.Error: not even the list of runs can be read.
    """
    with any_text(cursor):
        found = cursor.execute(_RUNS).fetchall()
        runs = [_run(cursor, key, _name(run)) for key, run in found]
    return tuple(run for run in runs if run is not None)


def _run(cursor: sqlite3.Cursor, key: int, run: str) -> StoredRun | None:
    low = key << SEQ_BITS
    place = (low, low + LAST_SEQ)
    count = 0
    try:
        count = cursor.execute(_COUNT, place).fetchone()[0]
        first, last = (_one(cursor, f"{_ROW}{order} LIMIT 1", place) for order in ("", " DESC"))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        return damaged_run(run, count, f"the database is damaged where its rows lie ({error}).")
    if first is None or last is None:
        return None
    return stored_run(run, count, first, last)


def _one(cursor: sqlite3.Cursor, statement: str, place: tuple[int, int]) -> Sequence[object] | None:
    found: Sequence[object] | None = cursor.execute(statement, place).fetchone()
    return found


def _name(run: Any) -> str:
    return run if isinstance(run, str) else bytes(run).decode("utf-8", "backslashreplace")


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
