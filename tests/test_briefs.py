"""Which brief belongs to which callee, as the three tell it that read it from events: boundaries, tree and lint."""

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Agent,
    Brief,
    Call,
    Context,
    Delegate,
    Graph,
    Handoff,
    ModelReply,
    State,
    node,
    run_sync,
)
from graphflow.cli.crossing import crossings_of
from graphflow.events import Event
from graphflow.graphs.briefs import calls_of, stands_for
from graphflow.lint.trace import trace_of
from graphflow.model.thread import ToolCall
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ScriptedModel, call
from graphflow.visualize import run_tree
from tests.support import examples

NAMES: Final = ("a", "b")


class Case(Context):
    question: str = ""


class Priced(Brief):
    """A brief that asks for more."""

    limit: int


class Wish(NamedTuple):
    """A call that a model or a function makes: `sound` ones can be read."""

    to: str
    objective: str
    sound: bool = True


def echo(state: State[Case]) -> str:
    """Answer with what is asked."""
    return str(state.inbox[0].value.objective)


def team(desk: Any, hops: int = 20) -> Graph[Any]:
    """Return a team in which a node delegates to two others, which say what they were asked."""
    callees = [FunctionNode[Any](fn=echo, name=name) for name in NAMES]
    return Graph("g", START >> desk >> END, desk.delegates(*callees, max_hops=hops), context=Case, max_depth=1)


def heard(graph: Graph[Any]) -> list[Event]:
    """Run a team and return its events."""
    events = list[Event]()
    run_sync(graph, Case(), listeners=[events.append])
    return events


def written(wish: Wish, odd: str = '{"about": "nothing"}') -> ToolCall:
    """Write a call as a model does."""
    sound = json.dumps({"objective": wish.objective})
    return ToolCall(f"ask_{wish.to}", sound if wish.sound else odd)


def in_json(calls: Sequence[ToolCall]) -> ModelReply:
    """Write calls as a model without tool calls of its own does."""
    found = [{"tool": one.name, "arguments": json.loads(one.arguments)} for one in calls]
    return ModelReply(json.dumps({"reason": "both", "calls": found}))


wishes: Final = st.lists(
    st.builds(Wish, st.sampled_from(NAMES), st.sampled_from(("one", "two", "three")), st.booleans()),
    min_size=1,
    max_size=6,
)


def told(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What each callee was asked, as `runs show --boundaries` says, in the order of the calls."""
    found = sorted((one.path[-1].call or (0, 0), one) for one in crossings_of(events) if one.brief is not None)
    return [(one.path[-1].name, str((one.brief or {})["objective"])) for _, one in found]


def brought(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What each callee got, as it says itself."""
    found = [one for one in crossings_of(events) if one.report is not None and one.edge.kind == "delegate"]
    found.sort(key=lambda one: one.path[-1].call or (0, 0))
    return [(one.path[-1].name, one.report.finding) for one in found]


@pytest.mark.may_block
@pytest.mark.parametrize("decision", ["native", "json"])
@settings(max_examples=examples(100))
@given(wishes)
def test_each_callee_of_a_model_is_shown_with_its_own_brief(
    decision: Literal["native", "json"], all: list[Wish]
) -> None:
    """Equal calls, calls that could not be read, in either mode: the brief that is told is the one that was given."""
    calls = [written(wish) for wish in all]
    first = ModelReply(calls=tuple(calls)) if decision == "native" else in_json(calls)
    answer = "so" if decision == "native" else json.dumps({"reason": "", "answer": "so"})
    graph = team(Agent("desk", model=ScriptedModel(first, answer), decision=decision))

    events = heard(graph)

    sound = [(wish.to, wish.objective) for wish in all if wish.sound]
    assert told(events) == brought(events) == sound
    asked = [one for visit in trace_of(graph, events).visits.values() for one in visit.asked]
    assert [(one.to, one.objective) for one in asked] == sound


@pytest.mark.may_block
@settings(max_examples=examples(100))
@given(wishes, st.data())
def test_each_callee_of_a_function_is_shown_with_its_own_brief(all: list[Wish], data: st.DataObject) -> None:
    """Calls that wait for later ones open their frames in another order than they stand in."""
    order = data.draw(st.permutations(range(len(all))))
    needs = {one: tuple(str(other) for other in order[:place][-1:]) for place, one in enumerate(order)}
    calls = [
        Call(wish.to, Brief(objective=wish.objective), id=str(index), needs=needs[index])
        for index, wish in enumerate(all)
    ]

    @node
    def desk(state: State[Case]) -> Delegate | str:
        return "so" if state.turn else Delegate(*calls)

    graph = team(desk)
    events = heard(graph)

    wanted = [(wish.to, wish.objective) for wish in all]
    assert told(events) == brought(events) == wanted
    asked = [one for visit in trace_of(graph, events).visits.values() for one in visit.asked]
    assert sorted((one.position, one.to, one.objective) for one in asked) == [
        (position, *wish) for position, wish in enumerate(wanted)
    ]


@pytest.mark.may_block
def test_a_brief_that_only_the_contract_refuses_is_known_to_lint() -> None:
    """It has the graph, so that it tells which of two calls to one callee had a brief that fits."""
    callee = FunctionNode[Any](fn=echo, name="a")
    model = ScriptedModel([call("ask_a", objective="one"), call("ask_a", objective="two", limit=3)], "so")
    desk = Agent("desk", model=model)
    graph = Graph(
        "g", START >> desk >> END, desk.delegates(callee, max_hops=3, brief=Priced), context=Case, max_depth=1
    )

    (asked,) = [one for visit in trace_of(graph, heard(graph)).visits.values() for one in visit.asked]

    assert (asked.position, asked.objective) == (0, "two")


@pytest.mark.may_block
def test_the_tree_says_which_call_could_not_be_read() -> None:
    """The report stands beside the call that started the callee, whatever stands before it."""
    calls = [written(Wish("a", "one")), written(Wish("a", "two", sound=False)), written(Wish("a", "three"))]
    graph = team(Agent("desk", model=ScriptedModel(ModelReply(calls=tuple(calls)), "so")))

    tree = run_tree(heard(graph))

    assert "turn 0: ask_a → done, ask_a, ask_a → done\n" in tree


@pytest.mark.may_block
def test_of_several_handoffs_the_note_of_the_taken_one_is_shown() -> None:
    """The first that a model calls is taken; what it told the others crosses nowhere."""
    model = ScriptedModel([call("transfer_to_a", note="for a"), call("transfer_to_b", note="for b")])
    desk = Agent("desk", model=model)
    a, b = (FunctionNode[Any](fn=said, name=name) for name in NAMES)
    graph = Graph(
        "g", START >> desk >> END, desk.hands_off(a, b, max_hops=1), a >> END, b >> END, context=Case, max_handoffs=2
    )

    assert [one.note for one in crossings_of(heard(graph)) if one.edge.kind == "handoff"] == ["for a"]


def said(state: State[Case]) -> str:
    """Answer something."""
    return f"so {state.visit}"


@pytest.mark.parametrize(
    ("name", "callee", "so"),
    [("ask_a", "a", True), ("ask_a_2", "a", True), ("a", "a", True), ("ask_ab", "a", False), ("ask_a_b", "a", False)],
)
def test_a_tool_stands_for_its_node(name: str, callee: str, so: bool) -> None:
    """Also one with the number that tools of equal names get."""
    assert stands_for(name, callee) is so


@pytest.mark.parametrize(
    "reply", [None, 3, "text", {}, {"calls": []}, {"text": "{"}, {"text": '{"calls": 3}'}, Handoff("a")]
)
def test_what_is_no_reply_calls_nothing(reply: object) -> None:
    """Whatever an effect with the key of a model's brought."""
    assert calls_of(reply) == ()


def test_a_reply_that_was_read_as_plain_data_has_its_calls() -> None:
    """As a journal gives it that was read without the graph."""
    assert calls_of({"calls": [{"name": "ask_a", "arguments": "{}"}]}) == (ToolCall("ask_a", "{}"),)
