"""What the journals share: which ids they take, which rows they refuse, and threads that nobody else can use up."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, sleep, to_thread
from anyio.lowlevel import RunVar

from graphflow.errors import JournalDamaged, UsageError
from graphflow.events import Row, StoredRun
from graphflow.model.telling import value_text

T = TypeVar("T")
Args = TypeVarTuple("Args")

LAST_SEQ: Final = 2**32 - 1
"""The highest number that a row can have: a run of four billion events."""

_WORKERS: Final = 40
_LOOK_SECONDS: Final = 0.001
_LOOKS: Final = 10_000  # ten seconds: a disk or a server that takes longer keeps nobody from ending
_THREADS: Final[RunVar[CapacityLimiter]] = RunVar("graphflow.persistence.threads")


async def in_thread(work: Callable[[*Args], T], *args: *Args) -> T:
    """Do what may wait for a disk or a server in a worker thread.

    The threads are the journals' own. The bodies of a run share others, and all of those may be waiting for a record
    to be stored.
    """
    try:
        limiter = _THREADS.get()
    except LookupError:
        limiter = CapacityLimiter(_WORKERS)
        _THREADS.set(limiter)
    return await to_thread.run_sync(work, *args, limiter=limiter)


async def left_in_thread(leave: Callable[[], object]) -> None:
    """Give something back in a worker thread; a task that is cancelled meanwhile gives it back all the same.

    A task of asyncio can be cancelled in a way that no scope shields from, and then the thread may never have begun. It
    ends when the thing is free: whoever takes it next, as after Ctrl-C, would be told that it is somebody's.
    """
    guard = threading.Lock()

    def work() -> None:
        with guard:  # the first thread may be at it still
            leave()

    try:
        with CancelScope(shield=True):
            await in_thread(work)
    except BaseException as error:
        await _until_over(_another(work), error)
        raise


async def taken_in_thread(take: Callable[[str], T], run: str, give_back: Callable[[T], object]) -> T:
    """Take something in a worker thread; what nobody waits for any more when it is there is given back.

    A task of asyncio can be cancelled in a way that no scope shields from, and the thread knows nothing of it. It ends
    when the thing is free again.
    """
    guard, taken = threading.Lock(), list[T]()
    begun, over, gone = False, threading.Event(), False

    def work() -> T:
        nonlocal begun
        begun = True
        try:
            found = take(run)
            with guard:
                taken.append(found)
                late = gone
            if late:
                give_back(found)
            return found
        finally:
            over.set()

    try:
        return await in_thread(work)
    except BaseException as error:
        with guard:
            gone = True
        ends = [_another(give_back, found) for found in taken]
        for end in ends or ([over] if begun else []):
            await _until_over(end, error)
        raise


def _another(work: Callable[[*Args], object], *args: *Args) -> threading.Event:
    """Do something in a thread of its own, which no cancellation keeps from beginning; return what tells its end."""
    over = threading.Event()

    def whole() -> None:
        try:
            work(*args)
        finally:
            over.set()

    threading.Thread(target=whole, name="graphflow release").start()
    return over


async def _until_over(over: threading.Event, error: BaseException) -> None:
    """Wait for a thread after an error, for a while; if that is a cancellation, then however many more there are."""
    cancelled = get_cancelled_exc_class()
    if not isinstance(error, cancelled):
        return
    with CancelScope(shield=True):
        for _ in range(_LOOKS):
            if over.is_set():
                return
            with contextlib.suppress(cancelled):  # asyncio's own, which no shield keeps off; the first is raised
                await sleep(_LOOK_SECONDS)


def checked_id(run: str) -> str:
    r"""Return the id of a run if every journal can store it.

    Any text is one, but for two characters that a database has no place for.

    Raises:
        UsageError: if it is no text, or holds a NUL or half of a surrogate pair.

    >>> checked_id("'; DROP TABLE rows; --")
    "'; DROP TABLE rows; --"
    >>> checked_id("a\0b")
    Traceback (most recent call last):
        ...
    graphflow.errors.UsageError: 'a\x00b' cannot be the id of a run: it holds a NUL character, which no journal stores.
    """
    if not isinstance(run, str):
        raise UsageError(f"{value_text(run)} cannot be the id of a run: an id is text, this is a {type(run).__name__}.")
    if "\0" in run:
        raise UsageError(
            f"{value_text(run)} cannot be the id of a run: it holds a NUL character, which no journal stores."
        )
    if not _is_text(run):
        raise UsageError(
            f"{value_text(run)} cannot be the id of a run: it holds half of a surrogate pair, which is not text."
        )
    return run


def checked_row(run: str, last: int, row: Row) -> Row:
    """Return a row if every journal can store it behind the row `last`.

    Raises:
        UsageError: if its number is taken or too high, or its text is none.
    """
    if not last < row.seq <= LAST_SEQ:
        misnumbered(run, last, row)
    for text in (row.fact, row.decisions):
        if "\0" in text or not (text.isascii() or _is_text(text)):
            not_text(run, row)
    return row


def misnumbered(run: str, last: int, row: Row) -> NoReturn:
    """Refuse a row whose number is not above that of the last one."""
    if row.seq > LAST_SEQ:
        raise UsageError(f"row {row.seq} of the run {value_text(run)} has no place: the highest number is {LAST_SEQ}.")
    raise UsageError(
        f"row {row.seq} of the run {value_text(run)} cannot follow row {last}: rows are stored once and in order."
    )


def not_text(run: str, row: Row) -> NoReturn:
    """Refuse a row whose text a database cannot hold."""
    raise UsageError(
        f"row {row.seq} of the run {value_text(run)} holds a NUL character or half of a surrogate pair as it is: "
        f"write it as an escape, which JSON has for both."
    )


def released(run: str) -> NoReturn:
    """Refuse an append by a writer that has given its place back."""
    raise UsageError(f"this writer of the run {value_text(run)} was released: claim the run again to write.")


def row_of(run: str, seq: object, at: object, fact: object, decisions: object) -> Row:
    """Return a stored row; only its shape is checked.

    Raises:
        JournalDamaged: if a column does not hold what it must.
    """
    if not isinstance(seq, int):
        raise JournalDamaged(run, None, f"a number of a row is a {type(seq).__name__}.")
    if isinstance(at, float) and isinstance(fact, str) and isinstance(decisions, str):
        return Row(seq, at, fact, decisions)
    kinds = ", ".join(type(column).__name__ for column in (at, fact, decisions))
    hint = ", and text is UTF-8" if isinstance(fact, bytes) or isinstance(decisions, bytes) else ""
    raise JournalDamaged(run, seq, f"its columns are {kinds} instead of float, str, str{hint}.")


def stored_run(run: str, rows: int, first: Sequence[object], last: Sequence[object]) -> StoredRun:
    """Return what a journal knows of a run, from the columns of its first and its last row.

    A row that is not what it must be hides no other run: it is said of this one.
    """
    try:
        head, tail = (row_of(run, *columns) for columns in (first, last))
    except JournalDamaged as error:
        return damaged_run(run, rows, error.what if error.seq is None else f"record {error.seq}: {error.what}")
    return StoredRun(run, head, tail, rows)


def damaged_run(run: str, rows: int, what: str) -> StoredRun:
    """Return what is known of a run whose first or last row cannot be given: rows that say nothing stand for them."""
    return StoredRun(run, _NO_ROW, _NO_ROW, rows, what)


_NO_ROW: Final = Row(0, 0.0, "[]", "[]")


def rows_from(run: str, found: Sequence[tuple[Any, ...]]) -> Sequence[Row]:
    """Return stored rows, as `row_of` returns each of them.

    Raises:
        JournalDamaged: if a column of one does not hold what it must; it has the rows before that one.
    """
    kinds = [set(map(type, column)) for column in zip(*found, strict=True)]
    if kinds == _COLUMNS:
        return tuple(starmap(Row, found))
    rows: list[Row] = []
    try:
        rows.extend(row_of(run, *columns) for columns in found)  # those before one that raises stay in it
    except JournalDamaged as error:
        raise JournalDamaged(run, error.seq, error.what, rows) from error
    return tuple(rows)


_COLUMNS: Final[list[set[type]]] = [{int}, {float}, {str}, {str}]


def new_epoch() -> int:
    """Return what a claim is known by in the store.

    By chance, and not one more than before: where a store was removed and made anew under a writer, the count would
    begin anew as well, and a row could get into another run.
    """
    return secrets.randbits(62)


def digest(text: str) -> bytes:
    """Return 32 bytes that stand for a text of any length.

    >>> digest("a run").hex()[:16]
    '7666f0507e9b2d38'
    """
    return hashlib.sha256(text.encode()).digest()


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
