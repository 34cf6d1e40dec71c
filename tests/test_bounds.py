"""`worst_case` is above everything a run can do, and no higher than it must be where that can be known."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from textwrap import dedent
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    ALL,
    ANY,
    END,
    START,
    Budget,
    Context,
    FrozenDict,
    Graph,
    Human,
    Join,
    Report,
    State,
    Step,
    append,
    first,
    fork,
    node,
    quorum,
    when,
)
from graphflow.events import EffectRequested, EffectStarted, NodeRetried, NodeStarted
from graphflow.graphs.bounds import WorstCase, worst_case
from graphflow.graphs.spend import Spend, all_of, heaviest, plus, times
from graphflow.model.ids import Path, names
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Branch, Chain
from graphflow.nodes.function import FunctionNode
from tests import shapes
from tests.laws.driver import Driver, World
from tests.laws.teams import Book, random_team
from tests.shapes import Choose, Fork, Next, Shape, join_of, random_shape, reach, region_of
from tests.support import examples

INF = float("inf")


class Case(Context):
    question: str = ""
    reports: Annotated[tuple[Report, ...], append] = ()


def named(name: str, **options: Any) -> FunctionNode[Case]:
    """A node that does nothing."""

    def body(state: State[Case]) -> None:
        return None

    return node(name=name, **options)(body)


def spender(name: str, **options: Any) -> FunctionNode[Case]:
    """A node that can have effects."""

    async def body(state: State[Case], step: Step) -> None:
        return None

    return node(name=name, **options)(body)


def yes(state: State[Case]) -> bool:
    """A predicate that always holds."""
    return True


def items(state: State[Case]) -> tuple[int, ...]:
    """Whatever a map runs over."""
    return ()


def numbers(case: WorstCase) -> tuple[float, ...]:
    """The five numbers."""
    return (case.node_runs, case.model_calls, case.tool_calls, case.concurrent, case.depth)


def graph_of(*chains: Chain[Any], **options: Any) -> Graph[Case]:
    """A graph of these statements."""
    return Graph("graph", *chains, context=Case, **options)


A, B, C, D, E, J = (named(name) for name in "abcdej")
BILLING, SHIPPING, DESK, CEO, RESEARCH = (named(name) for name in ("billing", "shipping", "desk", "ceo", "research"))


# --- exact values ----------------------------------------------------------------------------------------------------


def support() -> Graph[Case]:
    """A desk that delegates."""
    return Graph(
        "support",
        START >> DESK,
        DESK.delegates(BILLING, SHIPPING, max_hops=2, into="reports"),
        DESK >> END,
        context=Case,
        budget=Budget(node_runs=4, model_calls=12),
        max_depth=2,
    )


def company() -> Graph[Case]:
    """A supervisor of a supervisor."""
    return graph_of(START >> CEO, CEO.delegates(support(), RESEARCH, max_hops=3), CEO >> END, max_depth=3)


def chat() -> Graph[Case]:
    """Handoffs with a bound for all of them, and somebody to escalate to."""
    return graph_of(
        START >> A,
        A.hands_off(BILLING, SHIPPING, max_hops=2),
        BILLING.hands_off(A, max_hops=1),
        A >> END,
        BILLING >> END,
        SHIPPING >> END,
        max_handoffs=2,
        escalate=Human("human"),
    )


def debate(rounds: int = 2) -> Graph[Case]:
    """A fork in a loop."""
    return graph_of(START >> A >> (B, C) >> D >> E, E.choose(when(yes, A, max_hops=rounds), default=END))


def crawl(join: Node[Any], most: int | None = 50) -> Graph[Case]:
    """A map."""
    return graph_of(START >> A, A.map(B, over=items, join=join, max_items=most), join >> END)


def plan() -> Graph[Case]:
    """Delegations in a loop."""
    return graph_of(
        START >> A >> B,
        B.delegates(BILLING, SHIPPING, max_hops=8),
        B.choose(when(yes, A, max_hops=2), default=C),
        C >> END,
    )


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(graph_of(START >> A >> END), (1, 0, 0, 1, 0), id="one node"),
        pytest.param(support(), (5, 0, 0, 4, 1), id="support"),
        pytest.param(company(), (1 + 3 + 3 * (1 + 5), 0, 0, 15, 2), id="company"),
        pytest.param(chat(), (4, 0, 0, 1, 0), id="chat"),
        pytest.param(debate(), (15, 0, 0, 2, 0), id="debate"),
        pytest.param(crawl(Join("j", quorum(3, within=10))), (52, 0, 0, 50, 0), id="crawl"),
        pytest.param(plan(), (3 + 3 + 16 + 1, 0, 0, 16, 1), id="plan"),
        pytest.param(graph_of(START >> named("a", retries=2) >> END), (3, 0, 0, 1, 0), id="retries"),
        pytest.param(graph_of(START >> Human("a") >> Join("b") >> END), (2, 0, 0, 1, 0), id="every kind counts"),
        pytest.param(
            graph_of(START >> spender("a", costs=Budget(model_calls=2), retries=1) >> END),
            (2, 4, 0, 1, 0),
            id="costs of each attempt",
        ),
        pytest.param(graph_of(START >> A, A.choose(when(yes, B), when(yes, C), default=END), B >> END, C >> D >> END),
                     (3, 0, 0, 1, 0), id="one way of several"),
        pytest.param(graph_of(START >> A >> (B, when(yes, C), D) >> J >> END), (5, 0, 0, 3, 0), id="fork"),
        pytest.param(
            graph_of(START >> A >> (B >> D, C >> D, E) >> J >> END), (6, 0, 0, 3, 0), id="merge inside a fork"
        ),
        pytest.param(
            graph_of(START >> A >> (B, C, D) >> Join("j", ANY) >> E >> END), (6, 0, 0, 3, 0), id="late branches"
        ),
        pytest.param(
            graph_of(
                START >> A >> (B, C, D) >> Join("j", first(2)) >> E,
                E.choose(when(yes, A, max_hops=2), default=END),
            ),
            (18, 0, 0, 3 + 2, 0),
            id="late branches of each round",
        ),
        pytest.param(
            graph_of(START >> A, A.map(B >> C, over=items, join=J, max_items=4), J >> END),
            (1 + 8 + 1, 0, 0, 4, 0),
            id="lanes",
        ),
        pytest.param(
            graph_of(START >> A, A.choose(when(yes, A), default=END), max_hops=5), (6, 0, 0, 1, 0), id="hops of a graph"
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=2), B.delegates(C, max_hops=3), max_depth=2),
            (1 + 2 + 3, 0, 0, 5, 2),
            id="bounds of delegations hold for the whole activation",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(A, max_hops=4), max_depth=3), (5, 0, 0, 4, 3), id="recursion"
        ),
        pytest.param(
            graph_of(
                START >> A, A.choose(when(yes, B, max_hops=6), default=END),
                B.choose(when(yes, C), when(yes, D), default=E), (C, D, E) >> A,
            ),
            (1 + 6 * 3, 0, 0, 1, 0),
            id="nodes that share one bounded edge",
        ),
    ],
)  # fmt: skip
def test_exact_values(graph: Graph[Case], expected: tuple[float, ...]) -> None:
    """For these graphs the bound is what a run can really come to."""
    assert [problem for problem in graph.check() if problem.severity == "error"] == []

    assert numbers(graph.worst_case()) == expected


def swarm(size: int, *, max_hops: int | None, max_handoffs: int | None) -> Graph[Case]:
    """Nodes of which each can hand off to every other."""
    nodes = [named(f"n{number}") for number in range(size)]
    chains: list[Chain[Any]] = [START >> nodes[0], *(one >> END for one in nodes)]
    chains += [one.hands_off(*(other for other in nodes if other is not one), max_hops=max_hops) for one in nodes]
    return graph_of(*chains, max_handoffs=max_handoffs)


@pytest.mark.parametrize(
    ("graph", "runs", "visits"),
    [
        pytest.param(swarm(45, max_hops=None, max_handoffs=9), 10, 10, id="bound of the graph"),
        pytest.param(swarm(45, max_hops=1, max_handoffs=None), 1 + 45 * 44, 1 + 45 * 44, id="bounds of the edges"),
        pytest.param(swarm(45, max_hops=None, max_handoffs=None), INF, INF, id="no bound"),
        pytest.param(swarm(5, max_hops=1, max_handoffs=None), 1 + 5 * 4, 5, id="small enough for flows"),
    ],
)
def test_large_knots_get_a_coarser_bound(graph: Graph[Case], runs: float, visits: float) -> None:
    """Where a flow for each node would take too long, what is bounded in the knot is added up."""
    case = graph.worst_case()

    assert (case.node_runs, case.visits["n0",]) == (runs, visits)


def test_what_cannot_be_reached_costs_nothing() -> None:
    """A map behind an edge that is never taken is not counted, though its lanes have no bound."""
    graph = graph_of(
        START >> A, A.choose(when(yes, B, max_hops=0), default=END), B.map(C, over=items, join=J), J >> END
    )

    assert numbers(graph.worst_case()) == (1, 0, 0, 1, 0)


def test_a_kind_of_node_that_says_nothing_may_spend_anything() -> None:
    """A node of a kind that is not known here has no bound on its calls."""
    graph = graph_of(START >> Node[Case](name="a") >> END)

    assert graph.worst_case().reasons["model_calls"] == "'a' does not say what it spends"


def test_handoffs_and_error_edges_of_callees_are_counted() -> None:
    """What a call comes to is all that control can reach in its frame."""
    graph = graph_of(
        START >> A >> END, A.delegates(B, max_hops=2), B.hands_off(C, D, max_hops=1), B.on_error(END), C.on_error(E)
    )

    case = graph.worst_case()

    assert (case.node_runs, case.visits["a", "b"], case.visits["a", "c"]) == (1 + 2 + 1 + 1 + 1, 2, 2)


def test_graphs_with_errors_are_counted_too() -> None:
    """A branch that leads back to its fork is an error, and counting ends all the same."""
    graph = graph_of(START >> A >> (B, C) >> D >> END, B.on_error(A), max_hops=20)

    assert graph.worst_case().node_runs <= INF


def test_visits_are_listed_by_path() -> None:
    """Visits of nested graphs and of callees stand under the names that lead to them."""
    case = company().worst_case()

    assert case.visits == FrozenDict(
        {
            ("ceo",): 1,
            ("ceo", "research"): 3,
            ("ceo", "support"): 3,
            ("ceo", "support", "desk"): 3,
            ("ceo", "support", "desk", "billing"): 6,
            ("ceo", "support", "desk", "shipping"): 6,
        }
    )


def test_budgets_cap_each_activation() -> None:
    """The budget of a nested graph caps what its activations spend, that of the root the whole."""
    outer = graph_of(
        START >> CEO, CEO.delegates(support(), max_hops=3), CEO >> END, max_depth=3, budget=Budget(node_runs=14)
    )
    unlimited = graph_of(START >> CEO, CEO.delegates(support(), max_hops=3), CEO >> END, max_depth=3)

    assert unlimited.worst_case().node_runs == 1 + 3 * (1 + 5)
    assert unlimited.worst_case().limits["node_runs"] == 1 + 3 * (1 + 4)
    assert outer.worst_case().limits["node_runs"] == 14


def test_depth_is_cut_where_the_graph_says_so() -> None:
    """Delegations that `max_depth` refuses are not counted."""
    deep = graph_of(START >> A >> END, A.delegates(B, max_hops=1), B.delegates(C, max_hops=1), max_depth=1)

    assert numbers(deep.worst_case()) == (2, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("graph", "dimensions", "why"),
    [
        pytest.param(
            graph_of(START >> A, A.choose(when(yes, A), default=END)),
            {"node_runs"},
            "nothing bounds the visits of 'a'",
            id="cycle",
        ),
        pytest.param(
            crawl(J, None), {"node_runs", "concurrent"}, "the map at 'a' has no max_items", id="map without a bound"
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B)),
            {"node_runs", "concurrent"},
            "'a' delegates to 'b' without max_hops",
            id="delegation without a bound",
        ),
        pytest.param(
            graph_of(START >> spender("a") >> END),
            {"model_calls", "tool_calls"},
            "'a' takes a step and has no costs=",
            id="effects without costs",
        ),
    ],
)
def test_what_has_no_bound_is_infinite_with_the_reason(graph: Graph[Case], dimensions: set[str], why: str) -> None:
    """A number without a bound is infinite, and the reason names the node."""
    case = graph.worst_case()

    assert case.reasons == FrozenDict(dict.fromkeys(dimensions, why))
    assert {name for name in ("node_runs", "model_calls", "tool_calls", "concurrent", "depth")
            if getattr(case, name) == INF} == dimensions  # fmt: skip


def test_the_table_shows_structure_and_budget() -> None:
    """As text it is a small table, with the reasons below it."""
    graph = graph_of(
        START >> spender("a", costs=Budget(tool_calls=3)) >> spender("b") >> END, budget=Budget(tool_calls=2)
    )

    assert str(graph.worst_case()) == dedent("""\
        worst case of 'graph'
                       structure  with budget
          node runs            2            2
          model calls   no bound     no bound
          tool calls    no bound            2
          concurrent           1            1
          depth                0            0
          model calls without bound: 'b' takes a step and has no costs=
          tool calls without bound: 'b' takes a step and has no costs=""")


def test_huge_numbers_stay_numbers() -> None:
    """Thousands of digits are counted exactly and shown short."""
    graph = graph_of(START >> A >> END)
    for level in range(600):
        graph = Graph(f"g{level}", START >> A >> END, A.delegates(graph, max_hops=10**9), context=Case)

    case = graph.worst_case()

    assert case.node_runs > 10**5000
    assert "about 10^54" in str(case)


def test_it_is_worked_out_once() -> None:
    """A graph is a value, so its worst case is kept with it."""
    graph = debate()

    assert worst_case(graph) is worst_case(graph)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def test_nothing_times_infinity_is_nothing() -> None:
    """What cannot be visited spends nothing, however much a visit costs; large numbers do not overflow."""
    assert (times(0, INF), times(INF, 0), times(10**400, INF), plus(10**400, INF)) == (0, 0, INF, INF)


def test_the_heaviest_visits_come_first() -> None:
    """Under a common limit, each number is that of the visits that spend most of it."""
    assert heaviest([(Spend(1, 5, 0), 2), (Spend(1, 1, 7), 3)], 3) == Spend(3, 11, 21)
    assert heaviest([(Spend(1, 5, 0), 2)], INF) == Spend(2, 10, 0)
    assert all_of([Spend(1), Spend(2, 3)]) == Spend(3, 3, 0)


# --- soundness: an independent walk over all choices ----------------------------------------------------------------


@dataclass(frozen=True)
class Bounded:
    """A shape with bounds: `hops` of a statement's edges by (node, position), `visits` of nodes."""

    shape: Shape
    hops: tuple[tuple[tuple[str, int], int], ...]
    visits: tuple[tuple[str, int], ...]
    escalate: bool


def bounded_shape(rng: random.Random) -> Bounded:
    """A shape that passes the rules with random bounds, at least one on every cycle."""
    while True:
        shape = random_shape(rng)
        if len(shape.nodes) <= 8:
            break
    hops: dict[tuple[str, int], int] = {}
    visits: dict[str, int] = {}
    for name, statement in shape.statements:
        edges = len(statement.branches) if isinstance(statement, Fork) else len(shape.nexts(name))
        for position in range(edges):
            is_default = isinstance(statement, Choose) and position == len(statement.cases)
            if not isinstance(statement, Next) and not is_default and rng.randrange(3) == 0:
                hops[name, position] = rng.randrange(3)
        if rng.randrange(6) == 0:
            visits[name] = rng.randrange(1, 4)
    bounded = Bounded(shape, tuple(hops.items()), tuple(visits.items()), rng.randrange(4) == 0)
    while True:
        cycles = [found for found in build(bounded).check() if found.code == "unbounded-cycle"]
        if not cycles:
            return bounded
        visits[cycles[0].where[0]] = rng.randrange(1, 3)
        bounded = replace(bounded, visits=tuple(visits.items()))


def build(bounded: Bounded) -> Graph[Case]:
    """The shape as a graph."""
    shape, hops, visits = bounded.shape, dict(bounded.hops), dict(bounded.visits)
    nodes: dict[str, Node[Any]] = {name: named(name, max_visits=visits.get(name)) for name in shape.nodes}

    def end(name: str) -> Any:
        return END if name == shapes.END else nodes[name]

    def branch(name: str, position: int, to: str) -> Branch[Any]:
        return when(yes, end(to), max_hops=hops.get((name, position)))

    chains: list[Chain[Any]] = [START >> nodes[shape.entry]]
    for name, statement in shape.statements:
        match statement:
            case Next(to):
                chains.append(nodes[name] >> end(to))
            case Choose(cases, default):
                found = [branch(name, i, to) for i, to in enumerate(cases)]
                chains.append(nodes[name].choose(*found, default=None if default is None else end(default)))
            case Fork(branches, _, failure):
                chains.append(
                    nodes[name] >> fork(*(branch(name, i, to) for i, to in enumerate(branches)), failure=failure)
                )
    chains += [nodes[name].on_error(end(to)) for name, to in shape.errors]
    return graph_of(*chains, escalate=named("escalate") if bounded.escalate else None)


Scope = tuple[Any, ...]
"""() is the root; else (scope of the fork's token, its branch, the fork, a number)."""


@dataclass(frozen=True)
class Token:
    """Control at a node: on its way in, or running there."""

    node: str
    scope: Scope
    branch: int
    state: Literal["waiting", "running"] = "waiting"


@dataclass(frozen=True)
class Standing:
    """Where everything stands."""

    tokens: tuple[Token, ...]
    visits: tuple[int, ...]
    hops: tuple[int, ...]
    opened: int


class Walks:
    """Every way in which a bounded shape can run, up to a number of worlds: what was seen at most.

    It knows nothing of the bounds that are tested: tokens move one at a time, in every order, by every choice.
    """

    def __init__(self, bounded: Bounded, most: int) -> None:
        self.shape = bounded.shape
        self.numbers = {name: i for i, name in enumerate(self.shape.nodes)}
        self.visit_bounds = dict(bounded.visits)
        self.hop_bounds = dict(bounded.hops)
        self.edges = {edge: i for i, edge in enumerate(self.hop_bounds)}
        self.visits: Counter[str] = Counter()
        self.runs = 0
        self.running = 0
        self.complete = self._explore(most)

    def _explore(self, most: int) -> bool:
        entry = Token(self.shape.entry, (), 0)
        todo = [Standing((entry,), (0,) * len(self.numbers), (0,) * len(self.edges), 0)]
        seen = set(todo)
        while todo:
            world = todo.pop()
            self._note(world)
            for after in self._after(world):
                if after not in seen:
                    if len(seen) >= most:
                        return False
                    seen.add(after)
                    todo.append(after)
        return True

    def _note(self, world: Standing) -> None:
        for name, number in self.numbers.items():
            self.visits[name] = max(self.visits[name], world.visits[number])
        self.runs = max(self.runs, sum(world.visits))
        self.running = max(self.running, sum(token.state == "running" for token in world.tokens))

    def _after(self, world: Standing) -> Iterator[Standing]:
        for token in world.tokens:
            if token.state == "running":
                yield from self._finish(without(world, token), replace(token, state="waiting"))
        for scope, place in {(t.scope, t.node) for t in world.tokens if t.state == "waiting"}:
            here = [t for t in world.tokens if (t.scope, t.node, t.state) == (scope, place, "waiting")]
            others = [t for t in world.tokens if inside(t, scope) and t not in here]
            if not any(self._can_reach(other, scope, place) for other in others):
                yield from self._arrive(without(world, *here), min(here, key=lambda t: t.branch))

    def _can_reach(self, token: Token, scope: Scope, place: str) -> bool:
        region = region_of(self.shape, scope[2])
        return place in reachable(self.shape, token.node, region | {place}, token.state == "waiting")

    def _arrive(self, world: Standing, token: Token) -> Iterator[Standing]:
        if token.scope and token.node == join_of(self.shape, token.scope[2]):
            outer, branch = token.scope[:2]
            yield with_(world, Token(token.node, outer, branch))
        elif token.node != shapes.END:
            number = self.numbers[token.node]
            if world.visits[number] >= self.visit_bounds.get(token.node, 10**9):
                yield from self._fail(world, token)
                return
            counted = tuple(count + (i == number) for i, count in enumerate(world.visits))
            yield with_(replace(world, visits=counted), replace(token, state="running"))

    def _finish(self, world: Standing, token: Token) -> Iterator[Standing]:
        error = self.shape.error(token.node)
        if error is not None:
            yield with_(world, replace(token, node=error))
        match self.shape.statement(token.node):
            case Next(to):
                yield with_(world, replace(token, node=to))
            case Fork(branches):
                yield from self._fork(world, token, branches)
            case Choose(cases, default):
                for position in range(len(cases)):
                    yield from self._take(world, token, position, cases[position])
                yield from [with_(world, replace(token, node=default))] if default else self._die(world, token)
            case _:
                yield from self._die(world, token)

    def _take(self, world: Standing, token: Token, position: int, to: str) -> Iterator[Standing]:
        counted = self._counted(world, token.node, position)
        if counted is None:
            yield from self._fail(world, token)
        else:
            yield with_(counted, replace(token, node=to))

    def _counted(self, world: Standing, name: str, position: int) -> Standing | None:
        edge = self.edges.get((name, position))
        if edge is None:
            return world
        if world.hops[edge] >= self.hop_bounds[name, position]:
            return None
        return replace(world, hops=tuple(count + (i == edge) for i, count in enumerate(world.hops)))

    def _fork(self, world: Standing, token: Token, branches: tuple[str, ...]) -> Iterator[Standing]:
        for taken in range(1, 2 ** len(branches)):
            scope = (token.scope, token.branch, token.node, world.opened)
            chosen = [(i, to) for i, to in enumerate(branches) if taken >> i & 1]
            opened = replace(
                world,
                opened=world.opened + 1,
                tokens=(*world.tokens, *(Token(token.node, scope, i) for i, _ in chosen)),
            )
            worlds = [opened]
            for i, to in chosen:
                worlds = [after for each in worlds for after in self._begin(each, Token(token.node, scope, i), to)]
            yield from worlds
        yield from self._die(world, token)

    def _begin(self, world: Standing, token: Token, to: str) -> Iterator[Standing]:
        if token not in world.tokens:  # an earlier branch failed and took it along
            yield world
        else:
            yield from self._take(without(world, token), token, token.branch, to)

    def _die(self, world: Standing, token: Token) -> Iterator[Standing]:
        if not token.scope:
            yield replace(world, tokens=())
        elif any(inside(other, token.scope) for other in world.tokens):
            yield world
        else:
            outer, branch, name, _ = token.scope
            yield from self._die(world, Token(name, outer, branch))

    def _fail(self, world: Standing, token: Token) -> Iterator[Standing]:
        if not token.scope:
            yield replace(world, tokens=())
            return
        outer, branch, name, _ = token.scope
        statement, join = self.shape.statement(name), join_of(self.shape, name)
        assert isinstance(statement, Fork)
        assert join is not None
        if statement.failure == "collect":
            yield with_(world, replace(token, node=join))
        else:
            gone = [other for other in world.tokens if inside(other, token.scope)]
            yield from self._fail(without(world, *gone), Token(name, outer, branch))


def inside(token: Token, scope: Scope) -> bool:
    """Whether a token stands in a scope, or in one inside of it."""
    around = token.scope
    while around and around != scope:
        around = around[0]
    return around == scope


def without(world: Standing, *gone: Token) -> Standing:
    """The world without some tokens."""
    return replace(world, tokens=tuple(token for token in world.tokens if token not in gone))


def with_(world: Standing, token: Token) -> Standing:
    """The world with one token more."""
    return replace(world, tokens=tuple(sorted((*world.tokens, token), key=repr)))


@lru_cache(maxsize=10_000)
def reachable(shape: Shape, start: str, within: frozenset[str], at_once: bool) -> frozenset[str]:
    """The nodes that control at a node can come to; the node itself too, if it has not run yet."""

    def steps(name: str) -> list[str]:
        return [to for to in shape.successors(name) if to in within] if name != shapes.END else []

    return reach([start] if at_once else steps(start), steps)


@settings(max_examples=examples(400))
@given(st.integers(0, 2**32))
def test_no_walk_exceeds_the_bounds(seed: int) -> None:
    """Whatever is chosen, in whatever order, in graphs with forks, loops and error edges: the bounds hold."""
    bounded = bounded_shape(random.Random(seed))
    case = build(bounded).worst_case()

    seen = Walks(bounded, 3_000)

    assert {name: count for name, count in seen.visits.items() if count > case.visits[name,]} == {}
    assert seen.runs <= case.node_runs < INF
    assert seen.running <= case.concurrent < INF


@settings(max_examples=examples(1_000))
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_no_run_exceeds_the_bounds(seed: int, schedule: int) -> None:
    """The fold never does more than `worst_case` says, in random teams with all that a graph can have."""
    team = random_team(seed)
    case = team.graph.worst_case()
    world = World(budget=team.graph.budget or Budget())

    driver = Driver(team.graph, team.author, random.Random(schedule), world).go(Book(task="x"))

    runs, visits, spent = counted(driver)
    for name, amount in {"node_runs": runs, "concurrent": driver.peak, **spent}.items():
        assert amount <= case.limits[name] <= getattr(case, name)
    assert {path: count for path, count in visits.items() if count > case.visits[path]} == {}
    assert max(sum(step.call is not None for step in path) for path in paths(driver)) <= case.depth


def paths(driver: Driver) -> list[Path]:
    """Where visits began."""
    return [event.body.path for event in driver.events if isinstance(event.body, NodeStarted)]


def counted(driver: Driver) -> tuple[int, Counter[tuple[str, ...]], dict[str, int]]:
    """Node runs, visits by names, and calls of a run."""
    asked: dict[tuple[Path, str], Budget | None] = {}
    spent = {"model_calls": 0, "tool_calls": 0}
    retried = 0
    for event in driver.events:
        match event.body:
            case EffectRequested(path=path, key=key, cost=cost):
                asked[path, key] = cost
            case EffectStarted(path=path, key=key):
                cost = asked[path, key]
                for name in spent:
                    spent[name] += (getattr(cost, name) if cost is not None else None) or 0
            case NodeRetried():
                retried += 1
            case _:
                pass
    started = paths(driver)
    return len(started) + retried, Counter(map(names, started)), spent


def test_all_is_a_policy_that_leaves_nothing_late() -> None:
    """Only a join that goes on early leaves branches behind."""
    branches = graph_of(START >> A >> (B, C) >> Join("all", ALL) >> (D, E) >> J >> END)

    assert branches.worst_case().concurrent == 2
