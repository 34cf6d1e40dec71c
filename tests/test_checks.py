"""Each rule finds what it is for, all problems come at once, and graphs without problems have none."""

import random
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from graphflow import (
    ANY,
    END,
    START,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Report,
    State,
    add,
    append,
    first,
    fork,
    node,
    when,
)
from graphflow.errors import GraphProblems
from graphflow.graphs.checks import Problem, check_graph, require_runnable
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Branch, Chain
from graphflow.nodes.function import FunctionNode
from tests import shapes
from tests.shapes import Choose, Fork, Next, Shape, random_shape
from tests.support import examples


class Case(Context):
    question: str = ""
    total: int = 0
    answer: Report | None = None
    reports: Annotated[tuple[Report, ...], append] = ()


class Needy(Context):
    question: str
    number: int


class Asked(Context):
    question: str


class Summed(Context):
    total: Annotated[int, add] = 0


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str


class Numbers(Context):
    number: int = 0
    answers: Annotated[tuple[Answer, ...], append] = ()


def named(name: str, **options: Any) -> FunctionNode[Any]:
    """A node that does nothing."""

    def body(state: State[Any]) -> None:
        return None

    return node(name=name, **options)(body)


def yes(state: State[Any]) -> bool:
    """A predicate."""
    return True


def items(state: State[Any]) -> tuple[int, ...]:
    """What a map runs over."""
    return ()


def make(state: State[Any]) -> Any:
    """An `enter=` or a `leave=`."""
    return state.context


A, B, C, D, E, F, J, K = (named(name) for name in "abcdefjk")
BOSS = Human("boss")
WIPE = named("wipe", irreversible=True)


def graph_of(*chains: Chain[Any], **options: Any) -> Graph[Any]:
    """A graph of these statements."""
    given_options: dict[str, Any] = {"context": Case, "budget": Budget(node_runs=10**9), **options}
    return Graph("graph", *chains, **given_options)


def found(graph: Graph[Any]) -> list[tuple[str, tuple[str, ...]]]:
    """The code and the place of each problem."""
    return [(problem.code, problem.where) for problem in graph.check()]


# --- one graph for each rule ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "code", "where"),
    [
        pytest.param(graph_of(), "no-nodes", (), id="empty"),
        pytest.param(graph_of(A >> END), "no-start", (), id="no START"),
        pytest.param(graph_of(START >> A >> END, A >> B >> END), "ambiguous-next", ("a",), id="two next"),
        pytest.param(graph_of(START >> A >> END, START >> B >> END), "ambiguous-next", ("START",), id="two starts"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1), A.delegates(B, max_hops=2)),
            "double-edge",
            ("a", "b"),
            id="two delegate edges",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.on_error(END, catch=ValueError), A.on_error(B, catch=ValueError), B >> END),
            "double-edge",
            ("a",),
            id="two error edges for one exception",
        ),
        pytest.param(
            graph_of(START >> A >> B >> END, B.delegates(named("a"), max_hops=1)),
            "name-clash",
            ("a",),
            id="two nodes, one name",
        ),
        pytest.param(graph_of(START >> A >> END, B >> END), "unreachable", ("b",), id="unreachable"),
        pytest.param(graph_of(START >> A), "no-end", ("a",), id="no way to END"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1), B >> C >> END), "dead-edge", ("b",), id="dead edge"
        ),
        pytest.param(
            graph_of(START >> A >> B, B.choose(when(yes, A), default=END)), "unbounded-cycle", ("a", "b"), id="cycle"
        ),
        pytest.param(
            graph_of(START >> A >> END, A.hands_off(B), B.hands_off(A), B >> END),
            "unbounded-cycle",
            ("a", "b"),
            id="cycle of handoffs",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.on_error(A)), "unbounded-cycle", ("a",), id="cycle of an error edge"
        ),
        pytest.param(
            graph_of(
                START >> A >> fork(when(yes, B, max_hops=1), when(yes, C, max_hops=1), failure="collect") >> D,
                D.choose(when(yes, A), default=END),
            ),
            "unbounded-cycle",
            ("a", "d"),
            id="a fork that collects failures goes on past a bound",
        ),
        pytest.param(
            graph_of(
                START >> A,
                A.map(named("b", max_visits=1), over=items, join=J, max_items=2),
                J.choose(when(yes, A), default=END),
            ),
            "unbounded-cycle",
            ("a", "j"),
            id="the bounds of lanes count anew",
        ),
        pytest.param(graph_of(START >> named("a", into="nothing") >> END), "into-unknown", ("a",), id="into"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1, into="nothing")),
            "into-unknown",
            ("a",),
            id="into of a delegate edge",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1, into="answers"), context=Numbers),
            "into-type",
            ("a",),
            id="a report that the field cannot take",
        ),
        pytest.param(
            graph_of(
                START >> Graph("g", START >> A >> END, context=Case, output=Report, into="answers") >> END,
                context=Numbers,
            ),
            "into-type",
            ("g",),
            id="an output that the field cannot take",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1, brief=Report)),  # type: ignore[arg-type]  # wrong on purpose
            "contract-type",
            ("a",),
            id="brief",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1, report=int)),  # type: ignore[arg-type]  # wrong on purpose
            "contract-type",
            ("a",),
            id="report",
        ),
        pytest.param(graph_of(START >> named("a", reads={"x"}) >> END), "unknown-field", ("a",), id="reads"),
        pytest.param(
            graph_of(START >> Graph("g", START >> A >> END, context=Needy) >> END),
            "enter-missing",
            ("g",),
            id="another context",
        ),
        pytest.param(
            graph_of(
                START >> A >> END, A.delegates(Graph("g", START >> B >> END, context=Needy), max_hops=1), context=Needy
            ),
            "enter-missing",
            ("g",),
            id="a delegated graph has a fresh context",
        ),
        pytest.param(
            graph_of(START >> A >> (B, C) >> D >> END, B.on_error(A), max_hops=9),
            "fork-reentry",
            ("a",),
            id="fork re-entered",
        ),
        pytest.param(
            graph_of(START >> A, A.choose(when(yes, D), default=B), B >> (C, D) >> E >> END),
            "side-entry",
            ("b",),
            id="entered from the side",
        ),
        pytest.param(
            graph_of(
                START >> A >> K, A.hands_off(E, max_hops=1), K >> (B, C) >> D >> END, C.hands_off(E, max_hops=1), E >> D
            ),
            "handoff-leaves-branch",
            ("c", "e"),
            id="handoff out of a branch",
        ),
        pytest.param(
            graph_of(
                START >> A >> (B, C, K),
                B >> D,
                C >> E,
                D.choose(when(yes, E, max_hops=1), default=J),
                E.choose(when(yes, D, max_hops=1), default=J),
                K >> J >> END,
            ),
            "loop-entry",
            ("a", "d", "e"),
            id="a loop with two entries",
        ),
        pytest.param(graph_of(START >> A >> (B, C), B >> END, C >> END), "end-needs-join", ("a",), id="no join"),
        pytest.param(
            graph_of(START >> A >> (B, C) >> D >> END, B.on_error(END)),
            "end-needs-join",
            ("a",),
            id="an error edge out of a branch",
        ),
        pytest.param(
            graph_of(START >> A, A.map(B, over=items, join=J, max_items=2), B.on_error(END), J >> END, leave=make),
            "end-needs-join",
            ("a",),
            id="an error edge out of a lane",
        ),
        pytest.param(
            graph_of(START >> A >> (named("b", writes={"total"}), named("c", writes={"total"})) >> D >> END),
            "writes-conflict",
            ("a", "b", "c"),
            id="two branches write one field",
        ),
        pytest.param(
            graph_of(START >> A >> (named("b", into="answer"), C >> named("d", writes={"answer"})) >> E >> END),
            "writes-conflict",
            ("a", "b", "d"),
            id="into is a write",
        ),
        pytest.param(
            graph_of(
                START >> A >> (named("b", writes={"total"}), C, D) >> E >> END,
                C.delegates(named("f", writes={"total"}), max_hops=1),
            ),
            "writes-conflict",
            ("a", "b", "c"),
            id="a callee writes for its caller",
        ),
        pytest.param(
            graph_of(
                START >> A >> (B >> E, C >> E, named("d", writes={"total"})) >> J >> END,
                E.delegates(named("f", writes={"total"}), max_hops=1),
            ),
            "writes-conflict",
            ("a", "d", "e"),
            id="a merge inside writes too",
        ),
        pytest.param(
            graph_of(START >> A, A.map(named("b", writes={"total"}), over=items, join=J, max_items=2), J >> END),
            "writes-conflict",
            ("a", "b"),
            id="two lanes write one field",
        ),
        pytest.param(
            graph_of(
                START
                >> A
                >> (
                    Graph("g", START >> named("b", writes={"total"}) >> END, context=Case),
                    named("c", writes={"total"}),
                )
                >> D
                >> END
            ),
            "writes-conflict",
            ("a", "c", "g"),
            id="a nested graph writes too",
        ),
        pytest.param(
            graph_of(START >> A >> (named("b", writes={"reports"}), named("c", reads={"reports"})) >> D >> END),
            "reads-conflict",
            ("a", "b", "c"),
            id="a branch reads what another writes",
        ),
        pytest.param(graph_of(START >> A >> END, A.delegates(B)), "delegate-unbounded", ("a", "b"), id="no max_hops"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1), B.delegates(A, max_hops=1)),
            "delegation-cycle",
            ("a", "b"),
            id="delegations that recur",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1), B.delegates(C, max_hops=1), max_depth=1),
            "too-deep",
            ("a",),
            id="deeper than max_depth",
        ),
        pytest.param(
            graph_of(
                START >> A >> END,
                A.delegates(B, max_hops=1),
                B.hands_off(C, max_hops=1),
                C.hands_off(A, max_hops=1),
                max_depth=2,
            ),
            "handoff-to-caller",
            ("c", "a"),
            id="handoff to the caller",
        ),
        pytest.param(graph_of(START >> A >> WIPE >> END), "irreversible-ungated", ("wipe",), id="no gate"),
        pytest.param(
            graph_of(START >> A, A.choose(when(yes, BOSS), default=WIPE), BOSS >> WIPE >> END),
            "irreversible-ungated",
            ("wipe",),
            id="a way around the gate",
        ),
        pytest.param(graph_of(START >> BOSS >> END, escalate=WIPE), "irreversible-ungated", ("wipe",), id="escalation"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1), B.hands_off(WIPE, max_hops=1)),
            "irreversible-ungated",
            ("wipe",),
            id="a callee that hands off",
        ),
        pytest.param(
            graph_of(START >> BOSS >> END, BOSS.on_error(WIPE), WIPE >> END),
            "irreversible-ungated",
            ("wipe",),
            id="a gate that fails",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(Graph("g", START >> WIPE >> END, context=Case), max_hops=1)),
            "irreversible-ungated",
            ("g", "wipe"),
            id="no gate in a nested graph",
        ),
        pytest.param(
            graph_of(
                START >> Graph("g", START >> A >> END, context=Case) >> END,
                Graph("g", START >> A >> END, context=Case).hands_off(B, max_hops=1),
                B >> END,
            ),
            "graph-source",
            ("g",),
            id="a graph hands off",
        ),
    ],
)
def test_each_rule_finds_its_error(graph: Graph[Any], code: str, where: tuple[str, ...]) -> None:
    """The graph breaks one rule, and that is the one error of it."""
    errors = [problem for problem in graph.check() if problem.severity == "error"]

    assert [(problem.code, problem.where) for problem in errors] == [(code, where)]
    assert errors[0].message.endswith(".")
    assert errors[0].hint.endswith(".")


SHARED = Graph("shared", START >> A >> END, context=Case)


@pytest.mark.parametrize(
    ("graph", "code", "where"),
    [
        pytest.param(graph_of(START >> A >> END, budget=None), "no-budget", (), id="no budget"),
        pytest.param(graph_of(START >> A >> B >> END, budget=Budget(node_runs=1)), "over-budget", (), id="budget"),
        pytest.param(
            graph_of(START >> A, A.choose(when(yes, B)), B >> END), "no-default", ("a",), id="choose without a default"
        ),
        pytest.param(
            graph_of(START >> A, A.map(B, over=items, join=J), J >> END, budget=Budget(tokens=1)),
            "no-max-items",
            ("a",),
            id="map without a bound",
        ),
        pytest.param(
            graph_of(
                START >> A >> END,
                A.delegates(named("b", description="Helps."), named("c", description="Helps."), max_hops=1),
            ),
            "same-description",
            ("a", "b", "c"),
            id="equal descriptions",
        ),
        pytest.param(
            graph_of(START >> A >> Join("j", ANY) >> END), "join-misplaced", ("j",), id="policy without a fork"
        ),
        pytest.param(
            graph_of(START >> A >> (B, C) >> Join("j", first(3)) >> END),
            "join-unmet",
            ("a", "j"),
            id="too many awaited",
        ),
    ],
)
def test_each_rule_finds_its_warning(graph: Graph[Any], code: str, where: tuple[str, ...]) -> None:
    """A warning is listed and refuses nothing."""
    problems = graph.check()

    assert [(problem.code, problem.where, problem.severity) for problem in problems] == [(code, where, "warning")]
    require_runnable(graph)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(graph_of(START >> A >> (B >> D, C >> D) >> E >> END), id="a chain that says a statement twice"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=2), B.hands_off(C, max_hops=1), C.on_error(D)),
            id="callees need no way to END",
        ),
        pytest.param(graph_of(START >> A >> END, escalate=BOSS), id="nor does escalate"),
        pytest.param(
            graph_of(START >> A >> END, A.hands_off(BOSS, max_hops=2)),
            id="a person gives control back, within the bound",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.hands_off(B), B.hands_off(A), B >> END, max_handoffs=3), id="max_handoffs"
        ),
        pytest.param(graph_of(START >> A >> B, B.choose(when(yes, A), default=END), max_hops=9), id="max_hops"),
        pytest.param(
            graph_of(START >> K >> B, B.choose(when(yes, K, max_hops=1), default=END)),
            id="a bound on the edge",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(A, max_hops=2), max_depth=3), id="recursion with a depth limit"
        ),
        pytest.param(
            graph_of(
                START >> A >> END,
                A.delegates(Graph("g", START >> B >> END, B.delegates(B, max_hops=2), context=Case), max_hops=1),
                max_depth=3,
            ),
            id="the depth limit of the graph around it",
        ),
        pytest.param(graph_of(START >> BOSS >> WIPE >> END), id="a gate"),
        pytest.param(
            graph_of(START >> Graph("g", START >> BOSS >> END, context=Case) >> WIPE >> END),
            id="a gate in a nested graph",
        ),
        pytest.param(
            graph_of(START >> BOSS >> Graph("g", START >> WIPE >> END, context=Case) >> END),
            id="a gate around a nested graph",
        ),
        pytest.param(graph_of(START >> A >> (B, C), B >> END, C >> END, leave=make), id="leave"),
        pytest.param(
            graph_of(START >> A >> (named("b", writes={"reports"}), named("c", writes={"reports"})) >> D >> END),
            id="writes of a field with a reducer",
        ),
        pytest.param(
            graph_of(
                START
                >> A
                >> (named("b", writes={"total"}) >> named("c", writes={"total"}, reads={"total"}), D)
                >> E
                >> END
            ),
            id="writes one after the other",
        ),
        pytest.param(
            graph_of(START >> A >> (named("b", writes={"total"}) >> K, C >> K) >> named("e", reads={"total"}) >> END),
            id="reads after the join",
        ),
        pytest.param(
            graph_of(START >> A >> (named("b", writes={"total"}) >> named("k", writes={"total"}), C, D) >> E >> END),
            id="a merge writes after a branch",
        ),
        pytest.param(
            graph_of(START >> Graph("g", START >> A >> END, context=Needy) >> END, context=Needy), id="the same context"
        ),
        pytest.param(graph_of(START >> Graph("g", START >> A >> END, context=Needy, enter=make) >> END), id="enter"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(Graph("g", START >> B >> END, context=Asked), max_hops=1)),
            id="a first field that takes the objective",
        ),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(B, max_hops=1, report=Answer, into="answers"), context=Numbers),
            id="a report that the field takes",
        ),
        pytest.param(
            graph_of(START >> named("a", into="reports") >> END, escalate=named("boss", into="answer")), id="into"
        ),
        pytest.param(
            graph_of(START >> named("a", into="total") >> END, context=Summed), id="into a field with a reducer"
        ),
        pytest.param(graph_of(START >> BOSS >> WIPE >> END, escalate=named("help")), id="escalate is no way to it"),
        pytest.param(graph_of(START >> SHARED.named("x") >> SHARED.named("y") >> END), id="one graph twice"),
        pytest.param(
            graph_of(
                START >> A, A.map(B, over=items, join=Join("j", first(2)), max_items=3), Join("j", first(2)) >> END
            ),
            id="a policy at the join of a map",
        ),
    ],
)
def test_good_graphs_have_no_problem(graph: Graph[Any]) -> None:
    """None of the rules is stricter than it says."""
    assert graph.check() == ()


# --- all at once -----------------------------------------------------------------------------------------------------


def test_all_problems_come_at_once_errors_first() -> None:
    """They come in one order, whatever the order of the statements."""
    chains = [START >> A >> B, C >> END, A.delegates(D), B.choose(when(yes, A)), D.delegates(E, max_hops=1, into="x")]
    expected = [
        ("no-end", ("a", "b")),
        ("unbounded-cycle", ("a", "b")),
        ("delegate-unbounded", ("a", "d")),
        ("unreachable", ("c",)),
        ("into-unknown", ("d",)),
        ("no-budget", ()),
        ("no-default", ("b",)),
    ]

    for seed in range(5):
        random.Random(seed).shuffle(chains)

        assert found(graph_of(*chains, budget=None)) == expected


def test_nested_graphs_are_checked_with_their_names_in_front() -> None:
    """Each distinct graph once, as a node and as a callee, however deep."""
    bad = Graph("bad", START >> A, context=Case)
    middle = Graph("middle", START >> bad >> END, context=Case)
    outer = graph_of(START >> middle >> C >> END, C.delegates(bad, Graph("other", C >> END, context=Case), max_hops=1))

    problems = [problem for problem in outer.check() if problem.severity == "error"]

    assert [(problem.code, problem.where) for problem in problems] == [
        ("no-end", ("bad", "a")),
        ("no-start", ("other",)),
    ]
    assert str(problems[0]) == "error no-end: in 'bad': there is no way from 'a' to END. Lead it on, as a >> END."


def test_deep_nesting_is_no_problem() -> None:
    """A thousand graphs in one another, and a graph that holds another twice at each of many levels."""
    graph = Graph("g", START >> A >> END, context=Case)
    for level in range(1_000):
        graph = Graph(f"g{level}", START >> graph >> END, context=Case)
    twice = Graph("g", START >> A >> END, context=Case)
    for level in range(30):
        twice = Graph(f"g{level}", START >> twice.named("x") >> twice.named("y") >> END, context=Case)

    assert found(graph) == [("no-budget", ())]
    assert found(twice) == [("no-budget", ())]


def test_the_weakest_depth_limit_counts() -> None:
    """A graph that recurs needs a limit in every place where it stands."""
    recurs = Graph("recurs", START >> A >> END, A.delegates(A, max_hops=2), context=Case)
    limited = Graph("limited", START >> recurs >> END, context=Case, max_depth=2)

    assert found(graph_of(START >> limited >> END)) == []
    assert found(graph_of(START >> limited >> recurs >> END)) == [("delegation-cycle", ("recurs", "a"))]


def test_require_runnable_lists_the_errors_and_keeps_its_answer() -> None:
    """The error holds every problem that refuses the graph, and a second look costs nothing."""
    graph = graph_of(START >> A, C >> END, budget=None)

    with pytest.raises(GraphProblems, match="has 2 problems") as raised:
        require_runnable(graph)

    assert raised.value.problems == tuple(p for p in check_graph(graph) if p.severity == "error")
    with pytest.raises(GraphProblems) as again:
        require_runnable(graph)
    assert again.value.problems is raised.value.problems


def test_a_problem_reads_as_one_line() -> None:
    """Severity, rule, what was found, what to do."""
    problem = Problem("no-default", ("a",), "choose at 'a' has no default.", "Add default=.", "warning")

    assert str(problem) == "warning no-default: choose at 'a' has no default. Add default=."


def test_many_names_are_cut() -> None:
    """A message about very many nodes names the first of them."""
    graph = graph_of(START >> A >> END, A.delegates(*(named(f"n{i}") for i in range(20))))

    (problem,) = graph.check()

    assert problem.message.endswith("'n7' and 12 more without a bound.")


# --- against rules that were written apart from these ---------------------------------------------------------------


def graph_from(shape: Shape) -> Graph[Any]:
    """A random shape as a graph; its cycles are bounded by the graph."""
    nodes: dict[str, Node[Any]] = {name: named(name) for name in shape.nodes}

    def end(name: str) -> Any:
        return END if name == shapes.END else nodes[name]

    chains: list[Chain[Any]] = [START >> nodes[shape.entry]]
    for name, statement in shape.statements:
        match statement:
            case Next(to):
                chains.append(nodes[name] >> end(to))
            case Choose(cases, default):
                tests: list[Branch[Any]] = [when(yes, end(to)) for to in cases]
                chains.append(nodes[name].choose(*tests, default=None if default is None else end(default)))
            case Fork(branches):
                chains.append(nodes[name] >> fork(*(end(to) for to in branches)))
    chains += [nodes[name].on_error(end(to)) for name, to in shape.errors]
    return graph_of(*chains, max_hops=100)


STRUCTURE = {"unreachable", "no-end", "end-needs-join", "fork-reentry", "side-entry", "loop-entry"}


@settings(max_examples=examples(600))
@given(st.integers(0, 2**32), st.sampled_from([None, "side-entry", "loop-entry", "end-needs-join"]))
def test_structure_rules_agree_with_others_written_from_the_text(seed: int, breaking: str | None) -> None:
    """For random graphs that pass and random graphs that break one rule, both say the same."""
    shape = random_shape(random.Random(seed), breaking=breaking)

    errors = [problem for problem in graph_from(shape).check() if problem.severity == "error"]

    assert {f"{problem.code} {problem.where[0]}" for problem in errors} == set(shapes.passes_rules(shape))
    assert {problem.code for problem in errors} <= STRUCTURE


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(graph_of(START >> A >> tuple(named(f"n{i}") for i in range(10_000)) >> J >> END), id="fork"),
        pytest.param(
            graph_of(START >> A >> END, A.delegates(*(named(f"n{i}") for i in range(2_000)), max_hops=1)),
            id="team",
        ),
    ],
)
def test_large_graphs_are_checked(graph: Graph[Any]) -> None:
    """Ten thousand branches and a team of two thousand are nothing special."""
    assert graph.check() == ()
