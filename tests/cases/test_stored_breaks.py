"""Runs of many shapes, broken off after every record: what goes on ends as if nothing had happened (cases J5, J11)."""

from pathlib import Path

import pytest

from graphflow import SqliteJournal
from graphflow.events import Journal
from graphflow.testing import MemoryJournal
from tests.cases.stored import hold_every_break, hold_every_crash, hold_two_crashes, play
from tests.cases.stored_plans import PLANS
from tests.conftest import Backend

LONG = {"seconds", "no seconds", "node_runs"}

plans = pytest.mark.parametrize("name", list(PLANS))


@plans
async def test_j11_a_run_that_is_broken_off_anywhere_ends_like_one_that_is_not(
    name: str, anyio_backend: Backend
) -> None:
    """Result, trace and spending are equal, and nothing that is recorded is done again, whatever has been recorded."""
    every = 1 if anyio_backend[0] == "asyncio" and name not in LONG else 7

    whole = await hold_every_break(PLANS[name], every=every)

    assert whole.rows


@plans
@pytest.mark.parametrize("instant", [True, False], ids=["at once", "after a wait"])
async def test_j5_what_was_under_way_at_a_crash_is_done_at_most_once_more(name: str, instant: bool) -> None:
    """The store fails at any record, while bodies and calls are at work: what had ended is never done again."""
    await hold_every_crash(PLANS[name], instant=instant, every=17)


@plans
async def test_j5_a_second_crash_changes_nothing(name: str) -> None:
    """The process that goes on ends too, soon after, and a third one finishes the run."""
    await hold_two_crashes(PLANS[name], every=17)


@pytest.mark.parametrize("name", ["chain", "batch", "everything", "handed", "tokens"])
async def test_j11_a_run_in_a_file_goes_on_like_one_in_memory(name: str, tmp_path: Path) -> None:
    """The journal makes no difference: another object on the same file finds the rows, and goes on."""
    numbers = iter(range(1000))

    def store() -> Journal:
        return SqliteJournal(tmp_path / f"{next(numbers)}.db")

    in_memory = await play(PLANS[name], MemoryJournal())
    whole = await hold_every_break(PLANS[name], store, every=6)

    assert whole.result == in_memory.result
    assert whole.trace == in_memory.trace
