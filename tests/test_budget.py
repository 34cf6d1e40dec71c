"""Budgets and the ledger: shares sum up, and what is granted is always spent, reserved or free."""

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    State,
    Step,
    fork,
    node,
    start,
)
from graphflow.errors import BoundHit
from graphflow.events import (
    EffectFinished,
    EffectStarted,
    Event,
    Granted,
    NodeRetried,
    NodeReturned,
    NodeStarted,
    Record,
    Spent,
)
from graphflow.model.budget import ADDITIVE, COUNTS
from graphflow.model.ids import Path, Segment
from graphflow.runtime.advance import Fold
from graphflow.runtime.ledger import RETRIES, RUNS, TOKENS, USD, Amount, Amounts, Meter, amounts_of, budget_of
from graphflow.testing import ManualClock, MemoryJournal, records_of
from tests.support import examples

importlib.import_module("networkx")  # the checks import it when first used, and an import blocks the loop

counts = st.none() | st.integers(0, 1000)
money = st.none() | st.decimals(0, 1000, places=6)
budgets = st.builds(
    Budget,
    node_runs=counts,
    model_calls=counts,
    tool_calls=counts,
    retries=counts,
    tokens=counts,
    usd=money,
    seconds=st.none() | st.floats(0, 1000),
)
amounts = st.tuples(
    *(st.integers(0, 40) for _ in COUNTS),
    st.integers(0, 400).map(lambda cents: Decimal(cents) / 100),
)


# --- budgets ---


@given(budgets, st.integers(1, 50))
def test_split_never_creates_or_loses_budget(budget: Budget, parts: int) -> None:
    """However a budget is shared, the shares of each bounded dimension sum to the whole; seconds are everybody's."""
    shares = budget.split(parts)

    assert len(shares) == parts
    for name in ADDITIVE:
        whole = getattr(budget, name)
        given_out = [getattr(share, name) for share in shares]
        assert given_out == [None] * parts if whole is None else sum(given_out) == whole
    assert all(share.seconds == budget.seconds for share in shares)


@given(budgets, st.integers(1, 50))
def test_split_gives_earlier_parts_the_remainder(budget: Budget, parts: int) -> None:
    """The shares of a count differ by one at most, and no later share is larger than an earlier one."""
    for name in COUNTS:
        given_out = [getattr(share, name) or 0 for share in budget.split(parts)]

        assert given_out == sorted(given_out, reverse=True)
        assert given_out[0] - given_out[-1] <= 1


def test_split_between_nobody_is_refused() -> None:
    """A budget is shared between at least one part."""
    with pytest.raises(ValueError, match="at least one part"):
        Budget(tokens=3).split(0)


@pytest.mark.parametrize(
    "amount",
    [
        {"tokens": -1},
        {"node_runs": True},
        {"model_calls": 1.5},
        {"usd": 0.1},
        {"usd": "-1"},
        {"usd": "NaN"},
        {"usd": "ten"},
        {"usd": True},
        {"seconds": -0.1},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
    ],
)
def test_budget_refuses_what_is_no_amount(amount: dict[str, Any]) -> None:
    """Negative, not finite, and for money not exact: each is refused by name, when the budget is written."""
    with pytest.raises(ValueError, match=rf"Budget\({next(iter(amount))}="):
        Budget(**amount)


def test_budget_shows_what_it_bounds() -> None:
    """The text of a budget is what one would write."""
    assert repr(Budget(tokens=5, usd="0.10", seconds=2.0)) == "Budget(tokens=5, usd=Decimal('0.10'), seconds=2.0)"


# --- the ledger alone ---


def balanced(meter: Meter) -> bool:
    """Whether granted == spent + reserved + free, and nothing is reserved that nobody holds."""
    return all(
        granted is None or granted == meter.spent[dimension] + meter.reserved[dimension] + (meter.free(dimension) or 0)
        for dimension, granted in enumerate(meter.granted)
    ) and all(held >= 0 for held in meter.reserved)


@given(budgets, budgets, st.lists(st.tuples(st.integers(0, 3), amounts), max_size=20))
def test_meter_grants_only_what_every_meter_above_can(
    own: Budget, cap: Budget, asked: list[tuple[int, Amounts]]
) -> None:
    """What is granted under a cap stays within the cap and within the account above it, and both stay balanced."""
    account = Meter((), own)
    meter = Meter((Segment("team"),), cap, account)
    held: list[Amounts] = []

    for action, wanted in asked:
        if action == 0 and held:
            meter.release(held.pop())
        elif meter.refusing(wanted) is None and action == 1:
            meter.reserve(wanted)
            held.append(wanted)
        elif meter.refusing(wanted) is None:
            meter.spend(wanted)

        for one in (account, meter):
            assert balanced(one)
            assert all((one.free(dimension) or 0) >= 0 for dimension in range(6))


@given(budgets, budgets, st.integers(0, 9), st.integers(0, 9))
def test_call_of_a_model_starts_as_any_effect_does(own: Budget, cap: Budget, tokens: int, usd: int) -> None:
    """What the start of a model's call spends and reserves is what the same amounts would as those of any effect."""

    def started(start: Callable[[Meter, list[list[Amount]]], None]) -> object:
        account = Meter((), own)
        meter = Meter((Segment("team"),), cap, account)
        tables: list[list[Amount]] = [[0] * 6, [0] * 6]
        start(meter, tables)
        return [(one.spent, one.reserved) for one in (meter, account)], tables

    as_effect = started(lambda meter, tables: meter.start((0, 1, 0, 0, tokens, usd), tables))
    as_call = started(lambda meter, tables: meter.start_call(tokens, usd, tables))

    assert as_call == as_effect


@given(budgets, st.integers(1, 6), st.lists(st.tuples(st.integers(0, 5), amounts), max_size=20))
def test_split_accounts_settle_exactly(own: Budget, parts: int, asked: list[tuple[int, Amounts]]) -> None:
    """What split children spent is spent by their parent when they close, the rest is free again, nothing is lost."""
    parent = Meter((), own)
    grants = list(parent.shares(parts))
    children = [parent.open_split((Segment(str(index)),), grant) for index, grant in enumerate(grants)]
    assert balanced(parent)
    assert all(parent.free(dimension) in (None, 0) for dimension in range(6))

    for index, wanted in asked:
        child = children[index % parts]
        if child.refusing(wanted) is None:
            child.spend(wanted)
        assert balanced(child)
    for child, grant in zip(children, grants, strict=True):
        child.close_split(grant)

    assert balanced(parent)
    assert parent.reserved == [0, 0, 0, 0, 0, 0]
    for dimension in range(6):
        assert parent.spent[dimension] == sum(child.spent[dimension] for child in children)


@given(budgets, st.floats(0.01, 1))
def test_share_is_never_more_than_what_is_free(own: Budget, part: float) -> None:
    """A fraction of what is free leaves the rest free."""
    meter = Meter((), own)

    meter.open_split((Segment("child"),), meter.share(part))

    assert balanced(meter)
    assert all((meter.free(dimension) or 0) >= 0 for dimension in range(6))


@given(budgets)
def test_amounts_and_budgets_are_two_forms_of_one_thing(budget: Budget) -> None:
    """A budget that bounds everything comes back from its amounts."""
    known = budget_of(amounts_of(budget))

    for name in ADDITIVE:
        assert getattr(known, name) == (getattr(budget, name) or 0)


# --- the account law over whole runs ---


@dataclass
class Books:
    """What the events of a run say about its meters, worked out apart from the ledger, in the most naive way."""

    charges: list[tuple[Path, Amounts]] = field(default_factory=list[tuple[Path, Amounts]])
    flying: dict[tuple[Path, str], Amounts] = field(default_factory=dict[tuple[Path, str], Amounts])
    splits: dict[Path, Amounts] = field(default_factory=dict[Path, Amounts])

    def read(self, entry: Record) -> None:
        """Take in one record."""
        match entry.fact:
            case EffectFinished(path=path, key=key):
                self.flying.pop((path, key), None)
            case NodeReturned(path=path):
                self.flying = {at: held for at, held in self.flying.items() if at[0] != path}
            case _:
                pass
        for decision in entry.decisions:
            match decision:
                case NodeStarted(path=path):
                    self.charges.append((path, (1, 0, 0, 0, 0, Decimal(0))))
                case NodeRetried(path=path):
                    self.charges.append((path, (1, 0, 0, 1, 0, Decimal(0))))
                case EffectStarted(path=path, key=key, reserved=reserved):
                    wanted = amounts_of(reserved)
                    self.charges.append((path, (*wanted[:TOKENS], 0, Decimal(0))))
                    self.flying[path, key] = (0, 0, 0, 0, wanted[TOKENS], wanted[USD])
                case Spent(path=path, usage=usage):
                    self.charges.append((path, amounts_of(usage)))
                case Granted(path=path, budget=budget, open=True):
                    self.splits[path] = amounts_of(budget)
                case Granted(path=path):
                    del self.splits[path]
                case _:
                    pass

    def expected(self, meter: Meter) -> tuple[list[Amount], list[Amount]]:
        """What the meter should have spent and reserved."""
        spent: list[Amount] = [0, 0, 0, 0, 0, Decimal(0)]
        reserved: list[Amount] = [0, 0, 0, 0, 0, Decimal(0)]
        for path, amount in self.charges:
            if self._counts_on(meter, path):
                spent = [a + b for a, b in zip(spent, amount, strict=True)]
        held = [(path, amount, False) for (path, _), amount in self.flying.items()]
        held += [(path, grant, True) for path, grant in self.splits.items()]
        for path, amount, itself in held:
            if self._counts_on(meter, path, itself=itself):
                reserved = [a + b for a, b in zip(reserved, amount, strict=True)]
        return spent, reserved

    def _counts_on(self, meter: Meter, path: Path, *, itself: bool = False) -> bool:
        """Whether something at a path is spent on a meter: no open split account stands between the two."""
        if not covers(meter, path) or (itself and meter.split and meter.path == path):
            return False
        between = [
            split
            for split in self.splits
            if in_call(split, path)
            and not (itself and split == path)
            and covers(meter, split)
            and not (meter.split and meter.path == split)
        ]
        return not between


def in_call(call: Path, path: Path) -> bool:
    """Whether a path stands in the frame that a call opened."""
    depth = len(call) - 1
    return len(path) > depth and path[:depth] == call[:depth] and path[depth].call == call[depth].call


def covers(meter: Meter, path: Path) -> bool:
    """Whether a path stands under a meter."""
    if not meter.path:
        return True
    if meter.split:
        return in_call(meter.path, path)
    return len(path) > len(meter.path) and path[: len(meter.path)] == meter.path


def meters(fold: Fold) -> Iterator[Meter]:
    """Yield every meter that a fold holds now."""
    assert fold.root is not None
    found = {id(fold.root.meter): fold.root.meter}
    frames = [visit.token.frame for visit in fold.visits.values()]
    frames += [call.frame for visit in fold.visits.values() for call in visit.batch if call.frame and not call.done]
    for frame in frames:
        meter: Meter | None = frame.meter
        while meter is not None:
            found[id(meter)] = meter
            meter = meter.parent
    yield from found.values()


def audit(graph: Graph[Any], records: list[Record] | tuple[Record, ...]) -> int:
    """Fold a run again and hold the law at each record; returns how many meters were looked at."""
    fold, books, looked = Fold(graph), Books(), 0
    for entry in records:
        fold.advance(entry.fact, entry.at)
        books.read(entry)
        if fold.root is None or fold.root.closed:
            continue
        for meter in meters(fold):
            looked += 1
            spent, reserved = books.expected(meter)
            assert (meter.spent, meter.reserved) == (spent, reserved), (entry, meter.path, meter.split)
            assert balanced(meter)
            for dimension in (RUNS, 1, 2, RETRIES):
                assert (meter.free(dimension) or 0) >= 0, (entry, meter.path)
    return looked


class Nothing(Context):
    """A context without fields."""


class Trees:
    """Random trees of teams, each made from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made = 0

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def worker(self) -> Node[Any]:
        """Make a node that spends on effects, sleeps, fails at times, and takes a bound well or not."""
        chance = self.chance
        efforts = [
            (
                Budget(
                    model_calls=chance.choice((0, 1)),
                    tool_calls=chance.choice((0, 0, 1)),
                    tokens=chance.choice((None, 10, 25)),
                    usd=chance.choice((None, "0.02")),
                ),
                None if chance.random() < 0.3 else Budget(tokens=chance.randrange(30), usd="0.01"),
                chance.choice((0, 0, 0.5, 2)),
            )
            for _ in range(chance.randrange(4))
        ]
        patient, failures = chance.random() < 0.6, chance.choice((0, 0, 0, 1, 2))
        attempts: dict[Path, int] = {}

        async def work(_: State[Nothing], step: Step) -> str:
            attempts[step.path] = attempts.get(step.path, 0) + 1
            for number, (cost, used, seconds) in enumerate(efforts):
                try:
                    await step.effect(f"e{number}", step.sleep, seconds, cost=cost, usage=partial(_give, used))
                except BoundHit:
                    if not patient:
                        raise
                await step.sleep(seconds / 2)
            if attempts[step.path] <= failures:
                msg = "not yet"
                raise ValueError(msg)
            return "done"

        timeout = chance.choice((None, None, None, 1.0))
        return node(name=self.name("worker"), retries=chance.randrange(3), timeout=timeout)(work)

    def team(self, depth: int) -> list[Any]:
        """Make a node that delegates, as the statements around it; it comes first."""
        chance = self.chance
        members = [self.part(depth - 1) for _ in range(chance.randint(1, 3))]
        order = [chance.randrange(len(members)) for _ in range(chance.randint(1, 4))]

        def lead(state: State[Nothing]) -> Any:
            if state.turn == 0:
                return Delegate(*(Call(members[index].name, "go") for index in order))
            return Report(finding=f"{len(state.inbox)} reports")

        async def ask(state: State[Nothing]) -> Any:
            return lead(state)

        boss = node(name=self.name("lead"), retries=chance.choice((0, 0, 1)))(ask)
        share: Any = chance.choice(("pool", "equal", 0.5))
        return [boss, boss.delegates(*members, max_hops=4, share=share)]

    def part(self, depth: int) -> Node[Any]:
        """Make one node: a worker, or a graph with more inside."""
        return self.worker() if depth <= 0 or self.chance.random() < 0.4 else self.graph(depth)

    def graph(self, depth: int, budget: Budget | None = None) -> Graph[Nothing]:
        """Make a graph of a few parts one after the other."""
        chance = self.chance
        statements: list[Any] = []
        chain: Any = START
        for _ in range(chance.randint(1, 2)):
            kind = chance.choice(("part", "team", "fork"))
            if kind == "part":
                chain = chain >> self.part(depth - 1)
            elif kind == "team":
                boss, delegation = self.team(depth)
                statements.append(delegation)
                chain = chain >> boss
            else:
                branches = [self.part(depth - 1) for _ in range(chance.randint(1, 3))]
                failure: Any = chance.choice(("collect", "fail_fast"))
                chain = chain >> fork(*branches, failure=failure) >> Join(self.name("join"))
        if budget is None and chance.random() < 0.5:
            budget = Budget(
                node_runs=chance.choice((None, 6)),
                model_calls=chance.choice((None, 3)),
                tokens=chance.choice((None, 60)),
                usd=chance.choice((None, "0.10")),
                retries=chance.choice((None, 2)),
            )
        return Graph(
            self.name("graph"), chain >> END, *statements, context=Nothing, budget=budget, max_depth=4, leave=_leave
        )


def _give(used: Budget | None, _: object) -> Budget:
    return Budget() if used is None else used


def _leave(_: State[Nothing]) -> str:
    return "left"


async def record_of(graph: Graph[Nothing], *, parallel: int | None, cancel_at: int | None = None) -> tuple[Record, ...]:
    """Run a graph, cancel it at one of its events perhaps, and return its records."""
    journal = MemoryJournal()

    def listen(event: Event) -> None:
        if event.seq == cancel_at:
            running.cancel()

    async with start(
        graph, Nothing(), journal=journal, clock=ManualClock(), max_parallel=parallel, listeners=[listen]
    ) as running:
        try:
            await running.result()
        except ValueError:
            assert running.outcome.status == "failed"
    return records_of(graph, await journal.read(running.run_id))


def tree(seed: int) -> Graph[Nothing]:
    """Make a random tree whose budget runs out at times."""
    budget = Budget(node_runs=30, model_calls=12, tool_calls=6, retries=5, tokens=220, usd="0.60")
    return Trees(random.Random(seed)).graph(3, budget)


parallels = st.sampled_from((None, 1, 3))


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), parallel=parallels)
async def test_account_law_holds_at_every_record(seed: int, parallel: int | None) -> None:
    """In random trees with effects, shares, failures and retries, each meter holds what the events say, always."""
    records = await record_of(tree(seed), parallel=parallel)

    assert audit(tree(seed), records) > 0


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), parallel=parallels, cancel_at=st.integers(0, 120))
async def test_account_law_holds_while_a_run_is_cancelled(seed: int, parallel: int | None, cancel_at: int) -> None:
    """The same when the run is cancelled at any of its events; every account that was split off has closed."""
    records = await record_of(tree(seed), parallel=parallel, cancel_at=cancel_at)

    assert audit(tree(seed), records) > 0
    grants = [decision for entry in records for decision in entry.decisions if isinstance(decision, Granted)]
    assert sum(grant.open for grant in grants) * 2 == len(grants)


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32))
async def test_result_accounts_for_every_node_run(seed: int) -> None:
    """The table by node sums up to the total, and the total is what the events say."""
    graph = tree(seed)
    async with start(graph, Nothing(), clock=ManualClock()) as running:
        events = [event async for event in running]
    spent = running.spent

    started = sum(isinstance(event.body, NodeStarted) for event in events)
    retried = sum(isinstance(event.body, NodeRetried) for event in events)
    assert (spent.total.node_runs, spent.total.retries) == (started + retried, retried)
    for name in ADDITIVE:
        assert getattr(spent.total, name) == sum(getattr(part, name) for part in spent.by_node.values())
