"""The laws that hold in every run: random teams under random schedules, through the fold and a scripted world."""

import dataclasses
import json
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Budget, Delegate, Report
from graphflow.events import NodeEnded, NodeRetried, NodeReturned, NodeStarted, Record
from graphflow.graphs.compiled import Edge
from graphflow.model.ids import Path, path_text
from graphflow.persistence.lines import event_json, read_event
from graphflow.runtime.advance import Fold
from graphflow.runtime.tables import Inbox, Token, Visit
from graphflow.testing import fold_again
from tests.laws.accounts import Tally
from tests.laws.acting import Team, roll
from tests.laws.bounds import excesses, overruns
from tests.laws.driver import Driver, Watch, World
from tests.laws.teams import Book, random_team
from tests.support import examples

SEEDS = st.integers(0, 2**48)
ENDED = {"completed", "partial", "failed", "cancelled"}
"""The ends after which no visit is open."""


def world(team: Team, rng: random.Random) -> World:
    """A random world: limits, hooks, cancellation, timers that are early or late, bodies that will not stop."""
    return World(
        budget=rng.choice((team.graph.budget or Budget(), _tight(rng))),
        max_parallel=rng.choice((None, None, 1, 2)),
        hook=None if rng.randrange(5) else lambda path: "no" if roll(5, team.seed, path_text(path)) == 0 else None,
        cancel=rng.randrange(60) if rng.randrange(3) == 0 else None,
        hurry=rng.choice((2, 20)),
        stubborn=rng.choice((0, 30)),
    )


def _tight(rng: random.Random) -> Budget:
    """A budget for which effects in flight and split accounts are waited for."""
    return Budget(tokens=rng.choice((40, 60, 100)), usd=rng.choice((None, "0.06")), node_runs=rng.choice((None, 8, 20)))


def ran(seed: int, *watches: Watch) -> Driver:
    """A random team that has run under a random schedule."""
    rng = random.Random(seed)
    team = random_team(seed)
    driver = Driver(team.graph, team.author, rng, world(team, rng))
    driver.watches += watches
    return driver.go(Book())


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_every_account_balances_at_every_record(seed: int) -> None:
    """Granted is spent, reserved and free on each meter at each record, never overspent, and as the events say."""
    tally = Tally()
    driver = ran(seed, tally)

    assert driver.fold.root is not None
    if driver.end.status in ENDED:
        assert not any(driver.fold.root.meter.reserved)
        assert driver.fold.root.meter.spent == tally.amounts
    by_node = driver.fold.spending().values()
    assert [sum(amounts) for amounts in zip(*by_node, strict=True)] == (tally.amounts if by_node else [])


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_no_bound_is_exceeded(seed: int) -> None:
    """No hop, visit, handoff, item or level of depth is one too many, and no body runs over the limit of bodies."""
    driver = ran(seed)

    assert list(overruns(driver.graph, driver.events)) == []
    assert driver.world.max_parallel is None or driver.peak <= driver.world.max_parallel


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_no_run_exceeds_the_worst_case(seed: int) -> None:
    """What is proved before the run holds in it: node runs, calls, depth, bodies at one moment, visits of each node."""
    driver = ran(seed)

    assert list(excesses(driver.graph, driver.events, driver.peak, driver.world.budget)) == []


@settings(max_examples=examples(500))
@given(SEEDS, st.integers(0, 30), st.integers(0, 12))
def test_counts_never_overshoot(seed: int, node_runs: int, calls: int) -> None:
    """However branches race for it, a budget of counts is never exceeded, not even by one."""
    rng = random.Random(seed)
    team = random_team(seed)
    budget = Budget(node_runs=node_runs, model_calls=calls, tool_calls=calls, retries=1)

    driver = Driver(team.graph, team.author, rng, World(budget=budget)).go(Book())

    for amount, granted in zip(driver.fold.total(), (node_runs, calls, calls, 1), strict=False):
        assert amount <= granted


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_every_started_visit_ends_once(seed: int) -> None:
    """No visit starts twice or ends twice; when a run has ended, every visit that started has ended."""
    driver = ran(seed)

    started = Counter(event.path for event in driver.events if isinstance(event.body, NodeStarted))
    ended = Counter(event.path for event in driver.events if isinstance(event.body, NodeEnded))
    assert set(started.values()) | set(ended.values()) <= {1}
    assert set(ended) <= set(started)
    if driver.end.status in ENDED:
        assert set(ended) == set(started)


class Reports:
    """Compares what a node is entered again with to what it had delegated."""

    def __init__(self) -> None:
        self.asked: dict[Path, tuple[int, Delegate]] = {}
        self.compared = 0

    def __call__(self, driver: Driver, record: Record) -> None:
        """Remember what was asked, and look at the turns that begin."""
        fact = record.fact
        if isinstance(fact, NodeReturned) and isinstance(fact.outcome, Delegate):
            self.asked[fact.path] = fact.turn + 1, fact.outcome
        for decision in record.decisions:
            if isinstance(decision, NodeRetried):
                self.asked.pop(decision.path, None)  # the delegation itself was the failure
        for path, body in driver.bodies.items():
            turn, asked = self.asked.get(path, (0, Delegate()))
            if body.command.turn == turn and asked.calls:
                del self.asked[path]
                inbox = body.command.state.inbox
                assert [message.source for message in inbox] == [call.to for call in asked.calls]
                for position, (_, report) in enumerate(inbox):
                    assert isinstance(report, Report)
                    told = report.reason.path if report.reason is not None else report.finding
                    assert report.status == "failed" or f"@{turn - 1}.{position}" in told
                self.compared += 1


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_delegations_bring_one_report_each_in_call_order(seed: int) -> None:
    """A caller is entered again with one report for each of its calls, in their order, whatever became of them."""
    ran(seed, Reports())


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_recorded_facts_fold_to_the_same_decisions(seed: int) -> None:
    """Folding the facts of a run again gives the same decisions, the same end and the same context."""
    driver = ran(seed)

    again = fold_again(driver.graph, driver.records)

    assert again.ended == driver.end
    assert again.context == driver.fold.context
    assert again.output == driver.fold.output
    assert again.troubles == driver.fold.troubles
    assert again.spending() == driver.fold.spending()


class Roundabout(Fold):
    """A fold in which no token walks straight on."""

    def hops_on(self, fact: NodeReturned) -> bool:
        return False

    def walks_straight_on(self, token: Token, edge: Edge, inbox: Inbox, ended: Visit | None = None) -> bool:
        return False


UNTOLD = {"token", "edge", "fresh", "batch", "frame", "closing", "talk", "inner_visits", "called", "flying", "due"}
"""What of a visit refers to others, is compared by its name, or tells the two ways apart."""

TOLD = [item.name for item in dataclasses.fields(Visit) if item.name not in UNTOLD]


def tables(fold: Fold) -> list[object]:
    """What a fold counts, and what it knows of each open visit and its token."""
    counts = [fold.busy, fold.slots, len(fold.queue), len(fold.unfunded), fold.partial]
    visits = [[path, visit.edge.name, *(getattr(visit, name) for name in TOLD)] for path, visit in fold.visits.items()]
    tokens = [(visit.token.visit is visit, visit.token.at, visit.token.inbox) for visit in fold.visits.values()]
    return [counts, visits, tokens]


@settings(max_examples=examples(2000))
@given(SEEDS)
def test_walking_straight_on_comes_to_the_same_as_the_general_way(seed: int) -> None:
    """Each fact has the same decisions and commands, and leaves the same tables, whichever way a token goes."""
    driver = ran(seed)
    straight, roundabout = Fold(driver.graph), Roundabout(driver.graph)

    for record in driver.records:
        assert straight.advance(record.fact, record.at) == roundabout.advance(record.fact, record.at)
        assert tables(straight) == tables(roundabout)

    assert straight.spending() == roundabout.spending()


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_events_are_numbered_without_gaps_and_survive_json(seed: int) -> None:
    """The events of a run are numbered from 0, and each line of JSON reads back as the event that it was made of."""
    events = ran(seed).events

    assert [event.seq for event in events] == list(range(len(events)))
    for event in events:
        line = event_json(event)
        read = read_event(line)
        assert (read.run, read.seq, read.at, read.kind, read.path) == (
            event.run, event.seq, event.at, event.kind, event.path
        )  # fmt: skip
        assert json.loads(event_json(read)) == json.loads(line)
