"""Detectors: ping-pong between agents, and the same step again."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import END, START, Agent, Budget, Context, Graph, Result, ping_pong, repetition, run
from graphflow.errors import UsageError
from graphflow.events import Detected, Event
from graphflow.nodes.detect import Detector, Then
from graphflow.testing import ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str = "hi"


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at.casefold()}"


async def watched(graph: Graph[Talk]) -> tuple[Result[Talk], list[Detected]]:
    """Run a graph, and return what its detectors saw."""
    events: list[Event] = []
    result = await run(graph, Talk(), listeners=[events.append])
    return result, [event.body for event in events if isinstance(event.body, Detected)]


def to_and_fro(*detectors: Detector, tools: list[Any] | None = None) -> Graph[Talk]:
    """Two agents that hand over to each other for ever; with tools they look at something new each time."""
    counts = {"left": 0, "right": 0}

    def always(other: str) -> ScriptedModel:
        def decide(request: Any) -> Any:
            counts[request.agent] += 1
            if tools and request.messages[-1].role != "tool":
                return call("look", at=f"{request.agent} {counts[request.agent]}")
            return call(f"transfer_to_{other}", note="yours")

        return ScriptedModel(*[decide] * 40)

    left = Agent("left", model=always("right"), tools=tools or [])
    right = Agent("right", model=always("left"), tools=tools or [])
    return Graph(
        "g",
        START >> left >> END,
        left.hands_off(right, max_hops=50),
        right.hands_off(left, max_hops=50),
        right >> END,
        context=Talk,
        max_handoffs=12,
        detect=detectors,
        budget=Budget(model_calls=99),
    )


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_ping_pong_stops_after_its_rounds(rounds: int) -> None:
    """So many times control comes back to the first; the handoff after that is refused, with the trail."""
    result, seen = await watched(to_and_fro(ping_pong(rounds)))

    assert (result.status, result.reason and result.reason.code) == ("exhausted", "ping_pong")
    assert result.spent.total.model_calls == 2 * rounds + 1
    assert len(seen) == 1
    assert result.reason is not None
    assert "left right left" in result.reason.text


async def test_new_evidence_is_no_ping_pong() -> None:
    """Agents that find something new on each visit may hand over until the bound of the graph."""
    result, seen = await watched(to_and_fro(ping_pong(1), tools=[look]))

    assert (result.status, result.reason and result.reason.code) == ("exhausted", "max_handoffs")
    assert seen == []


async def test_a_note_reaches_the_next_agent() -> None:
    """With "note" nobody is stopped, and who takes over reads what was seen."""
    graph = to_and_fro(ping_pong(1, then="note"))

    result, seen = await watched(graph)

    assert result.reason is not None
    assert result.reason.code == "max_handoffs"
    assert len(seen) == 12 - 2
    models = [node.model for node in graph.nodes.values() if isinstance(node, Agent)]
    requests = [request for model in models if isinstance(model, ScriptedModel) for request in model.requests]
    shown = [message.text for request in requests for message in request.messages]
    assert any("hand over to each other" in text for text in shown)


def again(times: int, detector: Detector, **arguments: Any) -> tuple[Graph[Talk], ScriptedModel]:
    """An agent that calls one tool again and again."""
    model = ScriptedModel(*[call("look", **(arguments or {"at": "it"}))] * times, "done")
    agent = Agent("agent", model=model, tools=[look])
    graph = Graph("g", START >> agent >> END, context=Talk, detect=[detector], budget=Budget(model_calls=99))
    return graph, model


@pytest.mark.parametrize(
    ("then", "status", "requests"), [("warn", "completed", 6), ("note", "completed", 6), ("stop", "exhausted", 3)]
)
async def test_the_same_call_again_is_detected(then: Then, status: str, requests: int) -> None:
    """From the third time on it is an event; the agent is told, or stopped, as the detector says."""
    graph, model = again(5, repetition(3, then=then))

    result, seen = await watched(graph)

    assert result.status == status
    assert len(model.requests) == requests
    assert [found.then for found in seen] == [then] * (1 if then == "stop" else 3)
    told = any("was done 3 times" in message.text for message in model.requests[-1].messages)
    assert told is (then == "note")


async def test_case_and_spaces_do_not_make_a_call_another() -> None:
    """A model that only writes it differently does the same again."""
    model = ScriptedModel(call("look", at="The  Invoice"), call("look", at="the invoice"), "done")
    agent = Agent("agent", model=model, tools=[look])
    graph = Graph("g", START >> agent >> END, context=Talk, detect=[repetition(2)], budget=Budget(model_calls=9))

    _, seen = await watched(graph)

    assert [found.detector for found in seen] == ["repetition"]


async def test_new_evidence_begins_the_count_anew() -> None:
    """The same call after something new was found is no repetition."""
    steps = [
        call("look", at="a"),
        call("look", at="b"),
        call("look", at="a"),
        call("look", at="c"),
        call("look", at="a"),
    ]
    agent = Agent("agent", model=ScriptedModel(*steps, "done"), tools=[look])
    graph = Graph("g", START >> agent >> END, context=Talk, detect=[repetition(2)], budget=Budget(model_calls=9))

    _, seen = await watched(graph)

    assert seen == []


def find(at: str) -> str:
    """Find nothing, which is no evidence."""
    raise LookupError(at)


@pytest.mark.parametrize(("size", "detected"), [(1, []), (2, []), (3, ["repetition"]), (5, ["repetition"])])
async def test_the_window_forgets(size: int, detected: list[str]) -> None:
    """Repetitions further apart than the window are not counted together; those within it are."""
    steps = [call("find", at="a"), call("find", at="b"), call("find", at="a")]
    agent = Agent("agent", model=ScriptedModel(*steps, "done"), tools=[find])
    graph = Graph(
        "g", START >> agent >> END, context=Talk, detect=[repetition(2, window=size)], budget=Budget(model_calls=9)
    )

    _, seen = await watched(graph)

    assert [found.detector for found in seen] == detected


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (ping_pong, {"rounds": 0}),
        (ping_pong, {"rounds": None}),
        (repetition, {"window": 0}),
        (repetition, {"then": "shout"}),
        (Graph, {"name": "g", "context": Talk, "detect": ["loops"]}),
    ],
    ids=["no rounds", "rounds without end", "no window", "an unknown reaction", "no detector"],
)
def test_what_makes_no_sense_is_refused(make: Any, given: dict[str, Any]) -> None:
    """A detector says what it needs where it is made."""
    with pytest.raises(UsageError):
        make(**given)


async def test_blanks_in_an_argument_make_no_other_call() -> None:
    """Texts are compared without regard to case and spaces, wherever in the arguments they stand."""
    asked = [call("look_it_up", at=text) for text in ("Invoice", "invoice ", " INVOICE", "invoice")]

    def look_it_up(at: str) -> str:
        """Look."""
        return f"nothing about {at.strip().casefold()}"

    agent = Agent("agent", model=ScriptedModel(*asked, "It is there."), tools=[look_it_up])

    _, seen = await watched(Graph("g", START >> agent >> END, context=Talk, detect=[repetition(times=2)]))

    assert [found.detector for found in seen][:1] == ["repetition"]
