"""The laws of stored runs: broken off at any record and taken up again, they stay the runs that they were."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Budget
from graphflow.events import (
    BudgetAdded,
    EdgeTaken,
    EffectFinished,
    EffectStarted,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeStarted,
    Record,
    Refused,
    ScopeClosed,
    ScopeOpened,
    SessionStarted,
)
from graphflow.model.budget import ADDITIVE
from graphflow.model.ids import Path
from graphflow.runtime.checksums import without_checksum
from graphflow.runtime.rows import same
from graphflow.runtime.stored import fold_rows, prepared
from graphflow.testing import canonical_trace, fold_again
from tests.laws.accounts import Tally
from tests.laws.accounts import _said as said  # pyright: ignore[reportPrivateUsage] - what happened before is counted
from tests.laws.acting import CALM
from tests.laws.agents import QUIET
from tests.laws.bounds import excesses, overruns
from tests.laws.driver import Driver, World
from tests.laws.stored import KINDS, Case, Kind, broken, tables
from tests.laws.test_agent_laws import CrewDriver, too_many_calls
from tests.laws.test_run_laws import Reports
from tests.support import examples

SEEDS = st.integers(0, 2**48)
ENDED = {"completed", "partial", "failed", "cancelled"}
"""The ends after which no visit is open."""

both = pytest.mark.parametrize("kind", KINDS)


# --- rows ------------------------------------------------------------------------------------------------------------


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS, share=st.integers(0, 100))
def test_rows_read_back_as_the_records_and_fold_to_what_was(kind: Kind, seed: int, share: int) -> None:
    """What is written reads back as the very records; wherever the rows end, they fold to what the run was then."""
    case = Case(seed, kind)
    driver = case.ran()
    count = 1 + (len(driver.stored) - 1) * share // 100

    rows = prepared(case.graph).rows()
    folded = fold_rows(case.graph, "run", driver.stored[:count], rows, changed="compatible", keep=True)

    records = [rows.record("run", row) for row in driver.stored]
    assert records == driver.records
    for row, record in zip(driver.stored, records, strict=True):
        assert rows.storable(record.fact) == (record.fact, row.fact)
        assert same(rows.decisions(record.decisions), without_checksum(row.decisions))
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


def faults(driver: Driver, budget: Budget) -> Iterator[str]:
    """Say which laws a run does not keep that has come to an end."""
    yield from overruns(driver.graph, driver.events)
    yield from excesses(driver.graph, driver.events, driver.peak, budget)
    yield from ends(driver)
    fold, limit = driver.fold, driver.world.max_parallel
    if limit is not None and driver.peak > limit:
        yield f"{driver.peak} bodies ran at once, and {limit} may"
    if driver.end.status in ENDED:
        if (fold.busy, fold.slots, len(fold.unfunded)) != (0, 0, 0):
            yield f"it ended, and counts {fold.busy} busy, {fold.slots} slots and {len(fold.unfunded)} that wait"
        if fold.visits or fold.questions or fold.scopes:
            yield f"it ended, and left {list(fold.visits)}, {list(fold.questions)}, {list(fold.scopes)}"
        if fold.root is not None and (any(fold.root.meter.reserved) or fold.root.meter.spent != fold.total()):
            yield "it ended, and its root has something reserved, or spent what nobody has"
    by_node = list(fold.spending().values())
    if by_node and [sum(amounts) for amounts in zip(*by_node, strict=True)] != fold.total():
        yield "what the nodes have spent is not what the run has spent"
    if [event.seq for event in driver.events] != list(range(len(driver.events))):
        yield "the events have gaps"


def ends(driver: Driver) -> Iterator[str]:
    """Say which visits, calls and effects did not end once, as those that had to."""
    events = driver.events
    started = Counter(event.path for event in events if isinstance(event.body, NodeStarted))
    ended = Counter(event.path for event in events if isinstance(event.body, NodeEnded))
    delegated = [
        event for event in events if isinstance(event.body, FrameOpened) and event.body.edge.kind == "delegate"
    ]
    closed = Counter(event.path for event in events if isinstance(event.body, FrameClosed))
    if (set(started.values()) | set(ended.values()) | {closed[event.path] for event in delegated}) - {0, 1}:
        yield "a visit started or ended twice, or a call did"
    if driver.end.status in ENDED and set(started) != set(ended):
        yield f"{set(started) ^ set(ended)} have no end, or no beginning"
    if isinstance(driver, CrewDriver):
        yield from too_many_calls(driver)
    begun = {(event.path, event.body.turn, event.body.key) for event in events if isinstance(event.body, EffectStarted)}
    for (path, turn, attempt, key), count in _finished(driver).items():
        if count > 1 or (path, turn, key) not in begun:
            yield f"the effect {key!r} of {path}, turn {turn}, attempt {attempt}, ended {count} times"


def _finished(driver: Driver) -> Counter[tuple[Path, int, int, str]]:
    """How often each effect ended, but for those that were stopped: they may have been made again later."""
    bodies = [event.body for event in driver.events]
    return Counter(
        (body.path, body.turn, body.attempt, body.key)
        for body in bodies
        if isinstance(body, EffectFinished) and (body.failure is None or body.failure.code != "cancelled")
    )


@both
@settings(max_examples=examples(1500))
@given(seed=SEEDS)
def test_a_run_that_was_broken_off_keeps_every_law(kind: Kind, seed: int) -> None:
    """Broken off twice at any moment, a run ends, balances at every record, exceeds no bound and leaves nothing."""
    driver = broken(Case(seed, kind, watches=(Audits(),)))

    assert list(faults(driver, driver.world.budget)) == []
    assert tables(fold_again(driver.graph, driver.stored)) == tables(driver.fold)


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_delegations_bring_one_report_each_in_call_order(seed: int) -> None:
    """A caller is entered again with one report for each call, in order, though its process has ended meanwhile."""
    case, reports = Case(seed, "functions"), Reports()
    driver = case.ran()
    count = case.rng.randint(1, len(driver.stored))
    for record in driver.records[:count]:
        reports(case.driver(), record)

    case.resumed(driver.stored[:count], watches=[reports])


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS)
def test_a_run_that_was_broken_off_ends_as_if_it_had_not_been(kind: Kind, seed: int) -> None:
    """Where timing is no part of what was declared, trace, end, context, thread and spending are those of one run."""
    case = Case(seed, kind, QUIET if kind == "agents" else CALM, World(max_parallel=(None, 1, 2)[seed % 3]))

    whole, parts = case.ran(), broken(case, times=3)

    assert trace(parts) == trace(whole)
    assert parts.end == whole.end
    one, other = parts.fold, whole.fold
    assert (one.context, one.output, one.thread, one.active) == (
        other.context,
        other.output,
        other.thread,
        other.active,
    )
    assert (one.total(), one.spending(), one.spent_by_edge) == (other.total(), other.spending(), other.spent_by_edge)


def trace(driver: Driver) -> tuple[str, ...]:
    """What happened, but for the sessions in which it did."""
    return canonical_trace(event for event in driver.events if not isinstance(event.body, SessionStarted))


# --- more budget -----------------------------------------------------------------------------------------------------


def some_budget(rng: random.Random) -> Budget:
    """A budget that does not last."""
    return Budget(
        node_runs=rng.choice((None, 2, 5)),
        model_calls=rng.choice((None, 0, 1, 3)),
        tool_calls=rng.choice((None, 0, 1, 3)),
        retries=rng.choice((None, 0, 1)),
        tokens=rng.choice((None, 10, 60, 300)),
        usd=rng.choice((None, "0.01", "0.1")),
        seconds=rng.choice((None, 0.05, 0.5)),
    )


def more_of(name: str, rng: random.Random) -> Budget:
    """Some more of what was lacking, and of something else perhaps."""
    few: dict[str, tuple[Any, ...]] = {
        "tokens": (30, 200, 1000),
        "usd": ("0.005", "0.1", "1"),
        "seconds": (0.1, 1.0, 5.0),
    }
    more: dict[str, Any] = {name: rng.choice(few.get(name, (1, 3)))}
    return Budget(**more if rng.randrange(3) else {"node_runs": 2, **more})


def given_more(case: Case) -> tuple[Driver, Budget, int]:
    """A run that was given more whenever a budget had stopped it; what it was given in all, and how often."""
    driver, times = case.ran(), 0
    total: dict[str, Any] = {name: getattr(driver.world.budget, name) for name in (*ADDITIVE, "seconds")}
    while driver.end.status == "exhausted" and (reason := driver.end.reason) and driver.fold.can_be_lifted(reason):
        more = more_of(reason.code, case.rng)
        for name, amount in total.items():
            added = getattr(more, name)
            total[name] = amount if amount is None or added is None else amount + added
        driver, times = case.resumed(driver.stored, BudgetAdded(more)), times + 1
        assert times < 300, "whatever it is given, it does not end"
    return driver, Budget(**total), times


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS)
def test_a_run_that_is_given_more_keeps_every_law(kind: Kind, seed: int) -> None:
    """Stopped by its budget and given more until it ends, a run balances, exceeds no bound and leaves nothing."""
    case = Case(seed, kind, watches=(Audits(),))
    assert case.world is not None
    case.world = replace(case.world, budget=some_budget(case.rng))

    driver, total, times = given_more(case)

    note(f"{min(times, 3)} times")
    assert list(faults(driver, total if times else driver.world.budget)) == []
    assert tables(fold_again(case.graph, driver.stored)) == tables(driver.fold)


@both
@settings(max_examples=examples(1000))
@given(seed=SEEDS)
def test_a_run_that_is_given_more_ends_as_one_that_had_it(kind: Kind, seed: int) -> None:
    """Where nobody races for what is counted, it ends as the run that had all of it from the start."""
    rng = random.Random(seed)
    mood = replace(QUIET if kind == "agents" else CALM, catches=0)
    budget = Budget(node_runs=rng.choice((1, 2, 5)), model_calls=rng.choice((None, 0, 1, 3)))
    case = Case(seed, kind, mood, World(max_parallel=(None, 1, 2)[seed % 3], budget=budget))

    driver, total, times = given_more(case)
    case.world = World(max_parallel=(None, 1, 2)[seed % 3], budget=total)
    whole = case.ran()

    refused = sum(isinstance(event.body, Refused) for event in driver.events)
    raced = refused != times or any(isinstance(event.body, Refused) for event in whole.events)
    note("raced" if raced else f"{min(times, 3)} times")
    if not raced:
        one, other = driver.fold, whole.fold
        assert driver.end == whole.end
        assert (one.context, one.output, one.thread) == (other.context, other.output, other.thread)
        assert way(driver) == way(whole)


def way(driver: Driver) -> tuple[str, ...]:
    """Which way a run has taken."""
    kinds = (NodeStarted, NodeEnded, EdgeTaken, ScopeOpened, ScopeClosed, FrameOpened, FrameClosed)
    return canonical_trace(event for event in driver.events if isinstance(event.body, kinds))
