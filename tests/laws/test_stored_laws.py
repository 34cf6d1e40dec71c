"""The laws of stored runs: broken off at any record and taken up again, they stay the runs that they were."""

from collections import Counter
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Budget
from graphflow.events import FrameClosed, FrameOpened, NodeEnded, NodeStarted, Record, SessionStarted
from graphflow.runtime.halting import RAISABLE
from graphflow.runtime.stored import fold_rows, prepared
from graphflow.testing import canonical_trace, fold_again
from tests.laws.accounts import Tally
from tests.laws.accounts import _said as said  # pyright: ignore[reportPrivateUsage] - what happened before is counted
from tests.laws.acting import CALM
from tests.laws.agents import QUIET
from tests.laws.bounds import excesses, overruns
from tests.laws.driver import Driver, World
from tests.laws.stored import KINDS, Case, Kind, broken, tables
from tests.laws.test_agent_laws import CrewDriver, loose_ends, too_many_calls
from tests.laws.test_run_laws import Reports
from tests.support import examples

SEEDS = st.integers(0, 2**48)
ENDED = {"completed", "partial", "failed", "cancelled"}
"""The ends after which no visit is open."""

both = pytest.mark.parametrize("kind", KINDS)


# --- rows ------------------------------------------------------------------------------------------------------------


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS)
def test_rows_read_back_as_the_records(kind: Kind, seed: int) -> None:
    """What is written of a run reads back as the very records, and is written again as it was."""
    case = Case(seed, kind)
    driver = case.ran()

    rows = prepared(case.graph).rows()
    records = [rows.record("run", row) for row in driver.stored]
    assert records == driver.records
    for row, record in zip(driver.stored, records, strict=True):
        assert rows.storable(record.fact) == (record.fact, row.fact)
        assert rows.decisions(record.decisions) == row.decisions


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS, share=st.integers(0, 100))
def test_any_prefix_folds_to_what_it_was(kind: Kind, seed: int, share: int) -> None:
    """Wherever the rows of a run end, they fold to what the run was at that moment."""
    case = Case(seed, kind)
    driver = case.ran()
    count = 1 + (len(driver.stored) - 1) * share // 100

    rows = prepared(case.graph).rows()
    folded = fold_rows(case.graph, "run", driver.stored[:count], rows, changed="compatible", keep=True)

    assert folded.records == driver.records[:count]
    assert tables(folded.fold) == tables(fold_again(case.graph, driver.records[:count]))


# --- taken up again --------------------------------------------------------------------------------------------------


class Audits:
    """Audits the accounts at every record, in whatever process it is."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.tally = Tally()

    def __call__(self, driver: Driver, record: Record) -> None:
        """Count a record, those of earlier processes first."""
        if driver is not self.driver:
            self.driver, self.tally = driver, Tally()
            for earlier in driver.records[:-1]:
                for amounts in said(earlier):
                    self.tally.amounts = [a + b for a, b in zip(self.tally.amounts, amounts, strict=True)]
        self.tally(driver, record)


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_every_account_balances_at_every_record(kind: Kind, seed: int) -> None:
    """Granted is spent, reserved and free on each meter at each record, before a break and after it."""
    audits = Audits()
    driver = broken(Case(seed, kind, watches=(audits,)))

    assert driver.fold.root is not None
    if driver.end.status in ENDED:
        assert not any(driver.fold.root.meter.reserved)
        assert driver.fold.root.meter.spent == driver.fold.total()
    by_node = driver.fold.spending().values()
    assert [sum(amounts) for amounts in zip(*by_node, strict=True)] == (driver.fold.total() if by_node else [])


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_no_bound_is_exceeded(kind: Kind, seed: int) -> None:
    """No hop, visit, turn, item or level of depth is one too many, and what was proved before the run holds."""
    driver = broken(Case(seed, kind))

    assert list(overruns(driver.graph, driver.events)) == []
    assert list(excesses(driver.graph, driver.events, driver.peak, driver.world.budget)) == []
    assert driver.world.max_parallel is None or driver.peak <= driver.world.max_parallel
    if isinstance(driver, CrewDriver):
        assert list(too_many_calls(driver)) == []


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_nothing_is_left_over(kind: Kind, seed: int) -> None:
    """When a run has ended, nothing of it runs, waits or is counted as running, however often it was broken off."""
    driver = broken(Case(seed, kind), times=3)

    fold = driver.fold
    assert not driver.bodies
    if driver.end.status in ENDED:
        assert (fold.busy, fold.slots, len(fold.unfunded)) == (0, 0, 0)
        assert (fold.visits, fold.questions, fold.scopes) == ({}, {}, {})


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_visits_and_calls_end_once(kind: Kind, seed: int) -> None:
    """Every visit and every delegation that was opened is closed once, and none is opened again by taking up."""
    driver = broken(Case(seed, kind))

    started = Counter(event.path for event in driver.events if isinstance(event.body, NodeStarted))
    ended = Counter(event.path for event in driver.events if isinstance(event.body, NodeEnded))
    opened = Counter(
        event.path
        for event in driver.events
        if isinstance(event.body, FrameOpened) and event.body.edge.kind == "delegate"
    )
    closed = Counter(event.path for event in driver.events if isinstance(event.body, FrameClosed))
    assert set(started.values()) | set(ended.values()) | set(opened.values()) <= {1}
    assert {closed[path] for path in opened} <= {0, 1}
    if driver.end.status in ENDED:
        assert set(ended) == set(started)
        assert {closed[path] for path in opened} <= {1}
    if kind == "agents":
        assert list(loose_ends(driver.events)) == []


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_delegations_bring_one_report_each_in_call_order(seed: int) -> None:
    """A caller is entered again with one report for each call, in order, though its process has ended meanwhile."""
    case = Case(seed, "functions")
    first = Reports()
    driver = case.ran(first)
    kept = driver.stored[: case.rng.randint(1, len(driver.stored))]
    again = Reports()
    for record in driver.records[: len(kept)]:
        again(_idle(case), record)

    case.resumed(kept, watches=[again])


def _idle(case: Case) -> Driver:
    """A driver of which nothing runs."""
    return case.driver()


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_recorded_facts_fold_to_the_same_decisions(kind: Kind, seed: int) -> None:
    """The records of all processes together fold again to the same run."""
    case = Case(seed, kind)
    driver = broken(case, times=3)

    again = fold_again(case.graph, driver.records)

    assert tables(again) == tables(driver.fold)
    assert [event.seq for event in driver.events] == list(range(len(driver.events)))
    assert tables(fold_again(case.graph, driver.stored)) == tables(driver.fold)


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_a_run_that_was_broken_off_ends_as_if_it_had_not_been(kind: Kind, seed: int) -> None:
    """Where timing is no part of what was declared, trace, end, context, thread and spending are those of one run."""
    case = Case(seed, kind, QUIET if kind == "agents" else CALM, World(max_parallel=(None, 1, 2)[seed % 3]))

    whole, parts = case.ran(), broken(case, times=3)

    assert trace(parts) == trace(whole)
    assert parts.end == whole.end
    one, other = parts.fold, whole.fold
    assert (one.context, one.output, one.thread, one.active) == (other.context, other.output, other.thread, other.active)
    assert (one.total(), one.spending(), one.spent_by_edge) == (other.total(), other.spending(), other.spent_by_edge)


def trace(driver: Driver) -> tuple[str, ...]:
    """What happened, but for the sessions in which it did."""
    return canonical_trace(event for event in driver.events if not isinstance(event.body, SessionStarted))
