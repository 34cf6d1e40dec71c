"""What every journal must do, as checks for yours: run all of them over it, and a run can be stored in it.

```python
@pytest.mark.parametrize("check", journal_checks())
async def test_my_journal(check: JournalCheck, tmp_path: Path) -> None:
    await check(lambda: MyJournal(tmp_path / "runs"))
```
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar, cast

import anyio

from graphflow.errors import GraphflowError, RunLocked, UsageError
from graphflow.events import Journal, Row, StoredRun, Writer
from graphflow.testing.samples import DOUBTFUL, NAMES, TEXTS, TIMES

T = TypeVar("T")
E = TypeVar("E", bound=GraphflowError)

Make: TypeAlias = Callable[[], Journal]
"""Gives a journal on one store that is empty when a check begins; called again, another one on the same store."""

JournalCheck: TypeAlias = Callable[[Make], Awaitable[None]]
"""One check; it raises AssertionError, which says what is wrong."""

Lose: TypeAlias = Callable[[Writer], Awaitable[None]]
"""Takes the lock of a writer away behind its back, as a server does that believes it dead."""

_BIG: Final = 3_000_000
_MANY: Final = 300


def journal_checks(lose: Lose | None = None) -> list[JournalCheck]:
    """Return all checks; each has a name, and a sentence that says what must hold.

    Args:
        lose: takes a writer's lock away; without it, what a writer does that lost its lock is not checked.

    >>> [check.__name__ for check in journal_checks()][:2]
    ['rows_come_back_exactly', 'times_come_back_exactly']
    """
    checks: list[JournalCheck] = [
        rows_come_back_exactly,
        times_come_back_exactly,
        large_rows_come_back,
        rows_come_in_order,
        reading_can_begin_behind_a_row,
        what_was_appended_is_seen_by_others,
        runs_do_not_mix,
        nothing_is_known_of_an_unknown_run,
        a_run_has_one_writer,
        one_of_many_claims_succeeds,
        a_released_run_is_gone_on_with,
        a_writer_is_released_once,
        a_released_writer_stores_nothing,
        a_number_is_stored_once,
        a_claim_alone_stores_no_run,
        runs_are_listed_in_the_order_of_their_beginnings,
        a_deleted_run_is_gone,
        a_run_at_work_is_not_deleted,
        any_text_is_an_id_or_is_refused,
        many_runs_are_written_at_once,
    ]
    if lose is not None:
        checks.append(_with(lose, a_late_writer_stores_nothing))
        checks.append(_with(lose, a_writer_of_a_deleted_run_stores_nothing))
    return checks


# --- rows ------------------------------------------------------------------------------------------------------------


async def rows_come_back_exactly(make: Make) -> None:
    """Facts and decisions come back character by character, whatever JSON they are."""
    rows = [Row(seq, 0.5, text, text[::-1]) for seq, text in enumerate(TEXTS)]

    await _store(make(), "run", rows)

    _same(await make().read("run"), rows, "the rows")


async def times_come_back_exactly(make: Make) -> None:
    """Times come back as the very same numbers."""
    rows = [Row(seq, at, "{}", "[]") for seq, at in enumerate(TIMES)]

    await _store(make(), "run", rows)

    _same([row.at for row in await make().read("run")], list(TIMES), "the times")


async def large_rows_come_back(make: Make) -> None:
    """A row may have megabytes."""
    rows = [_row(0), Row(1, 0.5, "1" * _BIG, "ä" * _BIG), _row(2)]

    await _store(make(), "run", rows)

    found = await make().read("run")
    _same([len(row.fact) for row in found], [len(row.fact) for row in rows], "the sizes")
    if list(found) != rows:
        raise AssertionError("the rows are not equal")


async def rows_come_in_order(make: Make) -> None:
    """Rows come in the order of their numbers, however many they are, and numbers may be left out."""
    rows = [_row(seq * 3 + seq % 2) for seq in range(_MANY)]

    await _store(make(), "run", rows)

    _same(await make().read("run"), rows, "the rows")


async def reading_can_begin_behind_a_row(make: Make) -> None:
    """`after=` leaves out what was read before."""
    journal = make()
    await _store(journal, "run", [_row(0), _row(3), _row(4)])

    for after, expected in ((-1, [0, 3, 4]), (0, [3, 4]), (1, [3, 4]), (3, [4]), (4, []), (10**9, [])):
        _same([row.seq for row in await journal.read("run", after)], expected, f"the rows after {after}")


async def what_was_appended_is_seen_by_others(make: Make) -> None:
    """Once an append has returned, every journal on the store has the row."""
    writer, reader = await make().claim("run"), make()

    for seq in range(5):
        await writer.append(_row(seq))
        _same([row.seq for row in await reader.read("run")], list(range(seq + 1)), "the rows so far")
    if writer.instant:
        writer.append_nowait(_row(5))
        _same(len(await reader.read("run")), 6, "the number of rows after append_nowait")
    await writer.release()


async def runs_do_not_mix(make: Make) -> None:
    """Two runs that are written in turn keep to themselves."""
    one, two = await make().claim("one"), await make().claim("two")

    for seq in range(20):
        await one.append(Row(seq, 0.5, '"one"', "[]"))
        await two.append(Row(seq * 2, 0.5, '"two"', "[]"))

    _same(await make().read("one"), [Row(seq, 0.5, '"one"', "[]") for seq in range(20)], "the rows of one")
    _same(await make().read("two"), [Row(seq * 2, 0.5, '"two"', "[]") for seq in range(20)], "the rows of two")
    await one.release()
    await two.release()


async def nothing_is_known_of_an_unknown_run(make: Make) -> None:
    """A run that was never stored has no rows, is in no list, and cannot be deleted."""
    journal = make()

    _same(await journal.read("run"), [], "its rows")
    _same(await journal.runs(), [], "the list")
    await _delete(journal, "run", there=False)
    _same(await journal.read("run"), [], "its rows afterwards")


async def a_number_is_stored_once(make: Make) -> None:
    """A row whose number is not above the last is refused, and the row that is there stays."""
    journal = make()
    await _store(journal, "run", [_row(0), _row(4)])
    writer = await journal.claim("run")

    for seq in (4, 2, 0, -1):
        await _raises(GraphflowError, writer.append, Row(seq, 9.0, '"again"', "[]"))
    await writer.append(_row(5))

    _same(await journal.read("run"), [_row(0), _row(4), _row(5)], "the rows")
    await writer.release()


# --- writers ---------------------------------------------------------------------------------------------------------


async def a_run_has_one_writer(make: Make) -> None:
    """A second claim is refused, through this journal or another, until the first is released; other runs are free."""
    journal = make()
    first = await journal.claim("run")

    refused = [await _raises(RunLocked, other.claim, "run") for other in (journal, make(), make())]
    other = await make().claim("other")
    await first.append(_row(0))
    await first.release()
    second = await make().claim("run")

    _same([error.run for error in refused], ["run"] * 3, "the run that the error names")
    _same(second.last, 0, "the last row that the second writer sees")
    await second.release()
    await other.release()


async def one_of_many_claims_succeeds(make: Make) -> None:
    """Of many claims at once exactly one succeeds."""
    journals = [make() for _ in range(4)]
    won: list[Writer] = []
    lost: list[RunLocked] = []

    async def claim(journal: Journal) -> None:
        try:
            won.append(await journal.claim("run"))
        except RunLocked as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for journal in journals * 3:
            tasks.start_soon(claim, journal)

    _same((len(won), len(lost)), (1, 11), "how many claims succeeded and failed")
    await won[0].release()


async def a_released_run_is_gone_on_with(make: Make) -> None:
    """The next writer knows the last row and stores behind it."""
    expected: list[Row] = []

    for turn in range(4):
        writer = await make().claim("run")
        _same(writer.last, expected[-1].seq if expected else -1, f"the last row of writer {turn}")
        for seq in (turn * 10, turn * 10 + 7):
            expected.append(_row(seq))
            await writer.append(expected[-1])
            _same(writer.last, seq, "the last row after an append")
        await writer.release()

    _same(await make().read("run"), expected, "the rows")


async def a_writer_is_released_once(make: Make) -> None:
    """To release a writer again does nothing, not even to the next one."""
    journal = make()
    first = await journal.claim("run")
    await first.append(_row(0))

    await first.release()
    await first.release()
    second = await journal.claim("run")
    await first.release()

    await _raises(RunLocked, make().claim, "run")
    await second.append(_row(1))
    _same(await journal.read("run"), [_row(0), _row(1)], "the rows")
    await second.release()


async def a_released_writer_stores_nothing(make: Make) -> None:
    """Whoever gave its place back cannot write, whether or not another has it."""
    journal = make()
    first = await journal.claim("run")
    await first.append(_row(0))
    await first.release()

    await _raises(GraphflowError, first.append, _row(1))
    second = await journal.claim("run")
    await _raises(GraphflowError, first.append, _row(1))

    _same(await journal.read("run"), [_row(0)], "the rows")
    await second.release()


async def a_late_writer_stores_nothing(make: Make, lose: Lose) -> None:
    """A writer that lost its lock stores nothing once another has the run, and takes nothing from it at its end."""
    late = await make().claim("run")
    await late.append(_row(0))
    await lose(late)
    writer = await make().claim("run")

    await _raises(RunLocked, late.append, Row(1, 9.0, '"late"', "[]"))
    await writer.append(_row(1))
    await _raises(RunLocked, late.append, Row(2, 9.0, '"late"', "[]"))
    await late.release()

    await _raises(RunLocked, make().claim, "run")
    await writer.append(_row(2))
    _same(await make().read("run"), [_row(0), _row(1), _row(2)], "the rows")
    await writer.release()


async def a_writer_of_a_deleted_run_stores_nothing(make: Make, lose: Lose) -> None:
    """A writer that lost its lock stores nothing once the run is deleted, not into a new run of that name either."""
    late = await make().claim("run")
    await late.append(_row(0))
    await lose(late)

    await _delete(make(), "run", there=True)
    await _raises(RunLocked, late.append, Row(1, 9.0, '"late"', "[]"))
    writer = await make().claim("run")
    await _raises(RunLocked, late.append, Row(2, 9.0, '"late"', "[]"))
    await writer.append(_row(0))

    _same(await make().read("run"), [_row(0)], "the rows")
    await late.release()
    await writer.release()


async def many_runs_are_written_at_once(make: Make) -> None:
    """Writers of different runs do not hinder each other."""
    journals = [make(), make()]

    async def work(number: int) -> None:
        await _store(journals[number % 2], f"run {number}", [_row(seq) for seq in range(20)])

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(work, number)

    for number in range(10):
        _same(len(await make().read(f"run {number}")), 20, f"the number of rows of run {number}")


# --- runs ------------------------------------------------------------------------------------------------------------


async def a_claim_alone_stores_no_run(make: Make) -> None:
    """A run is there once it has a row; a claim without one leaves nothing behind."""
    writer = await make().claim("run")
    _same(await make().runs(), [], "the list during the claim")
    await writer.release()

    _same(await make().runs(), [], "the list after the claim")
    await _delete(make(), "run", there=False)


async def runs_are_listed_in_the_order_of_their_beginnings(make: Make) -> None:
    """The list has each run with its first and its last row and how many there are, whenever it was written last."""
    journal = make()
    expected: list[StoredRun] = []
    for run, numbers in (("b", [0, 5, 9]), ("c", [2]), ("a", [0, 1])):
        rows = [Row(seq, seq / 3, f'"{run}{seq}"', f"[{seq}]") for seq in numbers]
        await _store(journal, run, rows)
        expected.append(StoredRun(run, rows[0], rows[-1], len(rows)))
    await _store(make(), "b", [_row(11)])
    expected[0] = StoredRun("b", expected[0].first, _row(11), 4)

    _same(await make().runs(), expected, "the list")


async def a_deleted_run_is_gone(make: Make) -> None:
    """Deleting takes all rows of a run and no others; its id can be used again, from the start."""
    journal = make()
    for run in ("one", "run", "two"):
        await _store(journal, run, [_row(seq) for seq in range(50)])

    await _delete(make(), "run", there=True)
    _same(await journal.read("run"), [], "its rows")
    _same([stored.run for stored in await journal.runs()], ["one", "two"], "the list")
    _same([len(await journal.read(run)) for run in ("one", "two")], [50, 50], "the rows of the others")
    await _delete(journal, "run", there=False)
    await _store(make(), "run", [_row(0)])
    _same(await journal.read("run"), [_row(0)], "its new rows")
    _same([stored.run for stored in await journal.runs()], ["one", "two", "run"], "the list with the new run")


async def a_run_at_work_is_not_deleted(make: Make) -> None:
    """While a run has a writer, deleting it is refused, and the writer goes on."""
    journal = make()
    writer = await journal.claim("run")
    await writer.append(_row(0))

    for other in (journal, make()):
        await _raises(RunLocked, other.delete, "run")
    await writer.append(_row(1))

    _same(await make().read("run"), [_row(0), _row(1)], "the rows")
    await writer.release()
    await _delete(make(), "run", there=True)


async def any_text_is_an_id_or_is_refused(make: Make) -> None:
    """Ids are text and nothing else: no character has a meaning, and one that cannot be stored is refused."""
    journal = make()
    for number, run in enumerate(NAMES):
        await _store(journal, run, [_row(number)])
    for run in DOUBTFUL:
        await _raises(UsageError, journal.claim, run)
        await _raises(UsageError, journal.read, run)
        await _raises(UsageError, journal.delete, run)

    other = make()
    _same([stored.run for stored in await other.runs()], list(NAMES), "the ids in the list")
    for number, run in enumerate(NAMES):
        _same(await other.read(run), [_row(number)], f"the rows of {run[:40]!r}")
    for run in NAMES:
        await _delete(other, run, there=True)
    _same(await journal.runs(), [], "the list at the end")


# --- helpers ---------------------------------------------------------------------------------------------------------


def _row(seq: int) -> Row:
    return Row(seq, seq / 7, f'{{"seq": {seq}}}', f"[{seq}]")


async def _store(journal: Journal, run: str, rows: Sequence[Row]) -> None:
    writer = await journal.claim(run)
    for row in rows:
        await writer.append(row)
    await writer.release()


async def _delete(journal: Journal, run: str, *, there: bool) -> None:
    if await journal.delete(run) != there:
        raise AssertionError(f"delete({run[:40]!r}) did not say {there}, which is whether there was such a run")


def _same(found: object, expected: object, what: str) -> None:
    if _listed(found) != _listed(expected):
        raise AssertionError(f"{what}: {_short(found)} instead of {_short(expected)}")


def _listed(value: object) -> object:
    return [*cast("Sequence[object]", value)] if isinstance(value, Sequence) else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 2000 else f"{text[:1000]} ... {text[-1000:]}"  # noqa: PLR2004 - what a person reads


async def _raises(kind: type[E], call: Callable[[T], Awaitable[object]], argument: T) -> E:
    try:
        await call(argument)
    except kind as error:
        return error
    raise AssertionError(f"{getattr(call, '__name__', call)}({argument!r}) was not refused with {kind.__name__}")


def _with(lose: Lose, check: Callable[[Make, Lose], Awaitable[None]]) -> JournalCheck:
    @functools.wraps(check)
    async def bound(make: Make) -> None:
        await check(make, lose)

    return bound
