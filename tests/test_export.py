"""The structure as data, and the fingerprint: equal for equal graphs, in every process, and for no others."""

import functools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Brief,
    Budget,
    Context,
    FrozenDict,
    Graph,
    Human,
    Join,
    Json,
    Report,
    State,
    add,
    append,
    extend,
    fork,
    node,
    on,
    quorum,
    union,
    when,
)
from graphflow.graphs.export import code, fingerprint, plain, schema, structure
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from tests.support import ROOT, examples


class Case(Context):
    question: str = ""
    tags: frozenset[str] = frozenset({"a", "b", "c", "d"})
    reports: Annotated[tuple[Report, ...], append] = ()


class Other(Context):
    question: str = ""
    tags: frozenset[str] = frozenset({"a", "b", "c", "d"})
    reports: Annotated[tuple[Report, ...], extend] = ()


class Wider(Case):
    more: int = 0


class Order(Brief):
    number: int = 0


class Color(Enum):
    RED = object()


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str


def body(state: State[Case]) -> None:
    """Does nothing."""


def another(state: State[Case]) -> None:
    """Does nothing, elsewhere."""


def named(name: str, fn: Callable[[State[Case]], None] = body, **options: Any) -> FunctionNode[Case]:
    """A node that does nothing."""
    return node(name=name, **options)(fn)


def yes(state: State[Case]) -> bool:
    """A predicate."""
    return True


def no(state: State[Case]) -> bool:
    """Another predicate."""
    return False


def items(state: State[Case]) -> tuple[int, ...]:
    """What a map runs over."""
    return (1, 2)


def at_least(least: int) -> Callable[[State[Case]], bool]:
    """A predicate with a number in it."""
    return lambda state: len(state.inbox) >= least


A, B, C, D, E = (named(name) for name in "abcde")


def statements() -> list[Chain[Any]]:
    """One statement of each kind."""
    return [
        START >> A >> fork(B, when(yes, C, max_hops=2), failure="collect") >> D,
        D.choose(on("again", A, max_hops=1), when(no, E), default=END),
        D.delegates(named("f"), named("g"), max_hops=2, into="reports", brief=Order, report=Answer, timeout=2.5),
        E.map(named("h"), over=items, join=Join("j", quorum(2, within=1.5), losers="cancel"), max_items=5),
        E.hands_off(Human("k", "Well?", schema=Literal["yes", "no"]), named("l"), max_hops=1),
        E.on_error(D, catch=(ValueError, KeyError)),
        Join("j", quorum(2, within=1.5), losers="cancel") >> END,
    ]


def whole(*more: Chain[Any], **options: Any) -> Graph[Any]:
    """A graph with one statement of each kind, and others."""
    given_options: dict[str, Any] = {"context": Case, "budget": Budget(usd="0.10"), "max_depth": 2, **options}
    return Graph("whole", *statements(), *more, **given_options)


def test_the_structure_of_a_small_graph() -> None:
    """It names all that defines the graph, in an order of its own."""
    graph = Graph("small", B >> END, START >> A >> (B, when(yes, END, max_hops=1)), context=Other, max_hops=9)

    found = structure(graph)

    assert [(edge["source"], edge["kind"], edge["target"], edge["position"]) for edge in found["edges"]] == [
        (None, "next", "a", 0),
        ("a", "fork", "b", 0),
        ("a", "fork", None, 1),
        ("b", "next", None, 0),
    ]
    assert found["edges"][2]["label"] == "yes"
    assert found["edges"][2]["max_hops"] == 1
    assert [item["name"] for item in found["nodes"]] == ["a", "b"]
    assert found["max_hops"] == 9
    assert found["context"]["reducers"]["reports"]["name"] == "extend"


def test_it_is_plain_data() -> None:
    """It survives JSON unchanged, strictly."""
    found = structure(Graph("outer", START >> whole() >> END, context=Case))

    assert json.loads(json.dumps(found, allow_nan=False)) == found


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False))
def test_the_order_of_statements_is_no_meaning(dice: random.Random) -> None:
    """However statements are shuffled, structure and fingerprint stay."""
    shuffled = statements()
    dice.shuffle(shuffled)

    graph = Graph("whole", *shuffled, context=Case, budget=Budget(usd="0.10"), max_depth=2)

    assert structure(graph) == structure(whole())
    assert fingerprint(graph) == fingerprint(whole())


def test_the_order_inside_a_statement_is_meaning() -> None:
    """Branches, cases and teams in another order make another graph."""
    graphs = [
        Graph("g", START >> A >> (B, C) >> D >> END, context=Case),
        Graph("g", START >> A >> (C, B) >> D >> END, context=Case),
        Graph("g", START >> A >> END, A.delegates(B, C, max_hops=1), context=Case),
        Graph("g", START >> A >> END, A.delegates(C, B, max_hops=1), context=Case),
        Graph("g", START >> A, A.choose(when(yes, B), when(no, C)), B >> END, C >> END, context=Case),
        Graph("g", START >> A, A.choose(when(no, C), when(yes, B)), B >> END, C >> END, context=Case),
    ]

    assert len({fingerprint(graph) for graph in graphs}) == len(graphs)


def test_what_was_said_twice_counts_once() -> None:
    """A statement that a chain repeats makes no other graph."""
    once = Graph("g", START >> A >> (B, C), B >> D, C >> D >> END, context=Case)
    twice = Graph("g", START >> A >> (B >> D, C >> D) >> END, context=Case)

    assert fingerprint(twice) == fingerprint(once)


def small(**options: Any) -> Graph[Any]:
    """A graph of one node, the options of which are said."""
    return Graph("g", START >> named("a", **options) >> END, context=Case)


def nested(**options: Any) -> Graph[Any]:
    """A graph with a graph in it, the options of which are said."""
    given_options: dict[str, Any] = {"context": Case, **options}
    return Graph("outer", START >> Graph("g", START >> A >> END, **given_options) >> END, context=Case)


def team(**options: Any) -> Graph[Any]:
    """A graph with a delegate edge, the options of which are said."""
    given_options: dict[str, Any] = {"max_hops": 2, **options}
    return Graph("g", START >> A >> END, A.delegates(B, **given_options), context=Case)


def looped(test: Any = yes, **options: Any) -> Graph[Any]:
    """A graph with a loop, the options of which are said."""
    given_options: dict[str, Any] = {"max_hops": 2, **options}
    return Graph("g", START >> A, A.choose(when(test, A, **given_options), default=END), context=Case)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(small(), small(retries=1), id="retries"),
        pytest.param(small(), small(timeout=1.0), id="timeout"),
        pytest.param(small(), small(max_visits=1), id="max_visits"),
        pytest.param(small(), small(costs=Budget(model_calls=1)), id="costs"),
        pytest.param(small(), small(gate=True), id="gate"),
        pytest.param(small(), small(writes={"question"}), id="writes"),
        pytest.param(small(), small(fn=another), id="source"),
        pytest.param(small(version="1"), small(version="2"), id="version"),
        pytest.param(team(), team(max_hops=3), id="max_hops of a delegate edge"),
        pytest.param(team(), team(brief=Order), id="brief"),
        pytest.param(team(), team(report=Answer), id="report"),
        pytest.param(team(), team(share="equal"), id="share"),
        pytest.param(looped(), looped(max_hops=3), id="max_hops"),
        pytest.param(looped(), looped(no), id="predicate"),
        pytest.param(looped(at_least(1)), looped(at_least(2)), id="what a predicate closes over"),
        pytest.param(looped(functools.partial(pow, 2)), looped(functools.partial(pow, 3)), id="arguments of a partial"),
        pytest.param(nested(), nested(context=Wider), id="context"),
        pytest.param(nested(), nested(context=Other), id="reducer"),
        pytest.param(nested(), nested(max_handoffs=1), id="bound of a nested graph"),
        pytest.param(nested(), nested(output=int), id="output"),
        pytest.param(nested(), nested(leave=yes), id="leave"),
        pytest.param(nested(enter=yes), nested(enter=no), id="enter"),
        pytest.param(nested(), nested(escalate=Human("boss")), id="escalate"),
        pytest.param(whole(), whole(budget=Budget(usd="0.20")), id="budget"),
        pytest.param(whole(), whole(A.hands_off(B)), id="edge"),
        pytest.param(whole(), whole().named("other"), id="name"),
    ],
)
def test_a_change_of_meaning_is_another_fingerprint(one: Graph[Any], other: Graph[Any]) -> None:
    """Whatever a run may depend on changes it."""
    assert fingerprint(one) != fingerprint(other)


def test_what_is_only_said_is_no_meaning() -> None:
    """Descriptions are part of the structure and not of the fingerprint."""
    one, other = small(description="One."), small(description="Another.")

    assert structure(one) != structure(other)
    assert fingerprint(one) == fingerprint(other)


def test_a_version_stands_for_the_source() -> None:
    """Where a node has a version, its function may change."""
    assert fingerprint(small(version="1")) == fingerprint(small(version="1", fn=another))


PROGRAM = "from tests.test_export import fingerprint, structure, whole; import json; "


@pytest.mark.parametrize("show", ["fingerprint(whole())", "json.dumps(structure(whole()))"])
def test_every_process_finds_the_same(show: str) -> None:
    """Neither the seed of hashes nor memory has a part in it."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", f"{PROGRAM}print({show})"],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(outputs) == 1


def made(text: str) -> Any:
    """A function without a source, as at an interactive prompt."""
    space: dict[str, Any] = {}
    exec(text, space)
    return space["f"]


def test_code_without_a_source_counts_by_what_was_compiled() -> None:
    """Constants, names and nested functions make a difference; where it was compiled makes none."""
    same = [made("def f(s): return s in {'a', 'b'}"), made("def f(s): return s in {'a', 'b'}")]
    others = [
        made("def f(s): return s in {'a', 'c'}"),
        made("def f(s): return (lambda: s + 1)()"),
        made("def f(s): return (lambda: s + 2)()"),
    ]

    assert code(same[0]) == code(same[1])
    assert len({json.dumps(code(fn)) for fn in [*same, *others]}) == 4


class Threshold:
    """A predicate that is an object."""

    def __call__(self, state: State[Case]) -> bool:
        return True

    def holds(self, state: State[Case]) -> bool:
        return True


def calls_itself(depth: int) -> Callable[[int], int]:
    """A function that closes over itself, over data, a class, code and something else."""
    data, kind, thing = (1, "a"), Case, Threshold()

    def inner(number: int) -> int:
        return inner(number - 1) + len(str((data, kind, thing, yes))) if number else depth

    return inner


def test_every_kind_of_callable_has_a_name() -> None:
    """Builtins, objects, methods and closures are told apart without their address."""
    found = [code(fn) for fn in (sum, Threshold(), Threshold().holds, calls_itself(1), functools.partial(sum, start=1))]

    assert len({json.dumps(item) for item in found}) == 5
    assert " at 0x" not in json.dumps(found)


def test_a_name_that_is_bound_later_is_left_out() -> None:
    """A function may close over something that is not there yet."""

    def early() -> int:
        return later

    found = code(early)
    later = 1

    assert "closure" not in found
    assert "closure" in code(early)


def test_two_lambdas_of_one_line_differ() -> None:
    """Their source is the same line, so their compiled code decides."""
    made_at_once: list[Callable[[Any], int]] = [lambda state: 1, lambda state: 2]

    one, other = made_at_once
    assert code(one) != code(other)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(float("inf"), "inf", id="infinity"),
        pytest.param(Decimal("0.10"), "0.10", id="decimal"),
        pytest.param(b"\xff", "ff", id="bytes"),
        pytest.param(frozenset({2, 1}), [1, 2], id="set"),
        pytest.param(FrozenDict({"b": 1, "a": (2,)}), {"a": [2], "b": 1}, id="mapping"),
        pytest.param(Answer(text="x"), {"text": "x"}, id="model"),
        pytest.param(A, "a", id="node"),
        pytest.param(Color.RED, {"enum": "Color", "name": "RED"}, id="enum"),
        pytest.param(int, {"type": "integer"}, id="type"),
        pytest.param(tuple[int, ...], {"items": {"type": "integer"}, "type": "array"}, id="generic"),
        pytest.param(Any, {}, id="any"),
        pytest.param(object(), {"type": "object"}, id="something else"),
        pytest.param(Threshold, {"type": "Threshold"}, id="class without a schema"),
    ],
)
def test_values_as_data(value: object, expected: object) -> None:
    """Every value of a definition has one form as JSON."""
    assert plain(value) == expected


def test_schemas_keep_sets_in_order_and_leave_docstrings_out() -> None:
    """What pydantic writes in the order of hashes is sorted; what a class says of itself is no contract."""
    found = schema(Case)

    assert found["properties"]["tags"]["default"] == ["a", "b", "c", "d"]
    assert "description" not in found["$defs"]["Report"]
    assert schema(Json) == schema(Json)


def test_stored_runs_know_our_reducers_for_good() -> None:
    """How `append` is written may change: a run that was stored before still has the fingerprint of its graph."""
    known = {reducer.__name__: code(reducer) for reducer in (append, extend, add, union)}

    assert {name: str(found["digest"])[:8] for name, found in known.items()} == {
        "append": "3979d23e", "extend": "d1e213bf", "add": "dbf1b3f1", "union": "d98fe7dd",
    }  # fmt: skip
