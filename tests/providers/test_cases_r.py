"""Case R5 at a real server: what an agent may not use, no request offers, and no call of it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from graphflow import END, START, Agent, Call, Delegate, Graph, Join, State, Supervisor, fork, node, tool
from graphflow.events import Boundary
from graphflow.nodes.agent import DecisionMode
from graphflow.nodes.client import ModelClient
from tests.model_replies import Calls, Reply, Say
from tests.providers.conversations import agent
from tests.providers.helpers import (
    Case,
    Heard,
    Make,
    Way,
    asked_by,
    by_way,
    converse,
    offered,
    places_in,
    ran,
    read_in,
)

PLACES: Final = [
    "node",
    "graph",
    "graph in graph",
    "branch",
    "handoff",
    "second level",
    "function between",
    "escalation",
]
MOST_WAYS: Final = ("openai, streamed", "openai, json", "anthropic, streamed")


@tool(effect="read")
def peek(path: str) -> str:
    """Look into a file."""
    return f"peeked at {path}"


@tool
def erase(path: str) -> str:
    """Take a file away."""
    return f"took {path} away"


def not_etc(_: str, arguments: Mapping[str, Any]) -> str | None:
    """Deny what is in /etc."""
    return "it is in /etc" if str(arguments.get("path", "")).startswith("/etc") else None


TRIES: Final = Calls(
    ("peek", {"path": "/tmp/a"}), ("erase", {"path": "/tmp/a"}), ("peek", {"path": "/etc/a"}),
    ("erase", {"path": "/etc/a"}),
)  # fmt: skip
DENIED: Final = "not executed: peek is denied: it is in /etc"
UNKNOWN: Final = "not executed: there is no tool 'erase'; there are: peek."


def below(place: str, *, grant: tuple[str, ...] = (), rights: Any = ("peek",), deny: Any = not_etc) -> Make:
    """A boss with some rights and a rule, and a worker with more tools somewhere below it."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        worker = agent("worker", model, decision, tools=[peek, erase])
        target, extra = _target(place, worker, model, decision)
        boss = Supervisor(
            "boss", model=model, decision=decision, instructions="You are boss.", tools=[peek], rights=rights, deny=deny
        )
        edges = boss.delegates(target, max_hops=1, grant=grant)
        return Graph("g", START >> boss >> END, edges, *extra, context=Case, max_depth=3)

    return make


def _target(place: str, worker: Agent, model: ModelClient, decision: DecisionMode) -> tuple[Any, list[Any]]:
    match place:
        case "graph":
            return Graph("team", START >> worker >> END, context=Case), []
        case "graph in graph":
            inner = Graph("team", START >> worker >> END, context=Case)
            return Graph("outer", START >> inner >> END, context=Case), []
        case "branch":
            both = fork(worker, agent("other", model, decision))
            return Graph("team", START >> both >> Join("j") >> END, context=Case, leave=_text), []
        case "handoff":
            first = agent("first", model, decision)
            return first, [first.hands_off(worker, max_hops=1)]
        case "second level":
            middle = agent("middle", model, decision)
            return middle, [middle.delegates(worker, max_hops=1)]
        case "function between":

            async def lead(state: State[Any]) -> Any:
                return Delegate(Call("worker", "go")) if state.turn == 0 else "done"

            between = node(name="middle")(lead)
            return between, [between.delegates(worker, max_hops=1)]
        case "escalation":
            loop = agent("loop", model, decision, tools=[peek], max_turns=1)
            return Graph("team", START >> loop >> END, context=Case, escalate=worker), []
        case _:
            return worker, []


def _text(state: State[Case]) -> str:
    return str(state.values)


def says(place: str) -> dict[str, list[Reply]]:
    """What is said on the way to the worker, who tries everything."""
    names = {"graph": "team", "graph in graph": "outer", "branch": "team", "handoff": "first", "escalation": "team"}
    names |= {"second level": "middle", "function between": "middle"}
    more: dict[str, dict[str, list[Reply]]] = {
        "branch": {"other": [Say("x")]},
        "handoff": {"first": [Calls(("transfer_to_worker", {"note": "you do it"}))]},
        "second level": {"middle": [Calls(("ask_worker", {"objective": "go"})), Say("done")]},
        "escalation": {"loop": [Calls(("peek", {"path": "/tmp/b"}))]},
    }
    target = names.get(place, "worker")
    return {
        "boss": [Calls((f"ask_{target}", {"objective": "go"})), Say("done")],
        "worker": [TRIES, Say("done")],
        **more.get(place, {}),
    }


def runs_of(heard: Heard, place: str) -> list[str]:
    """The tools that were run for the worker's calls."""
    return ran(heard)[1:] if place == "escalation" else ran(heard)


@by_way(*MOST_WAYS)
@pytest.mark.parametrize("place", PLACES)
async def test_r5_what_stands_below_has_no_more_rights(place: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the boss may not use stands nowhere in the worker's request; a call of it anyway is refused, and so told."""
    heard, server = await converse(below(place), says(place), way, monkeypatch)

    first, second = asked_by(server, "worker")
    assert offered(first) == ["peek"]
    assert "erase" not in json.dumps(first.body)
    assert runs_of(heard, place) == ["peek"]
    assert -1 not in places_in(second, "peeked at /tmp/a", UNKNOWN, DENIED, UNKNOWN)
    assert "took" not in "".join(read_in(second))
    assert {body.granted for body in heard.of(Boundary)} == {()}


@by_way(*MOST_WAYS)
@pytest.mark.parametrize("place", PLACES)
async def test_r5_a_grant_is_explicit_and_on_record_and_no_way_round_a_rule(
    place: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the edge grants is offered below, the trace says so, and what is denied stays denied."""
    heard, server = await converse(below(place, grant=("erase",)), says(place), way, monkeypatch)

    first, second = asked_by(server, "worker")
    assert offered(first) == ["peek", "erase"]
    assert "erase" not in offered(asked_by(server, "boss")[0])
    assert runs_of(heard, place) == ["peek", "erase"]
    denied = DENIED.replace("peek", "erase")
    assert -1 not in places_in(second, "peeked at /tmp/a", "took /tmp/a away", DENIED, denied)
    granted = {body.path[-1].name: body.granted for body in heard.of(Boundary)}
    assert granted["worker"] == ("erase",)
    assert granted["boss"] == ()


@by_way()
@pytest.mark.parametrize("rights", [(), ("peek", "erase"), None, ("erase",)])
async def test_r5_rights_are_an_intersection(rights: Any, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights give nothing that a child has not got; without any, no request of it knows of a tool; None is no limit."""
    script = says("node")
    if rights == ():
        del script["worker"][1:]  # the third wrong name in a row is one too many

    heard, server = await converse(below("node", rights=rights), script, way, monkeypatch)

    names = {"peek", "erase"} if rights is None else set(rights)
    assert set(offered(asked_by(server, "worker")[0])) == names
    assert ("tools" in asked_by(server, "worker")[0].body) == (bool(names) and way.decision == "native")
    assert set(ran(heard)) == names


@by_way(*MOST_WAYS)
@pytest.mark.parametrize("grant", ["upper", "lower", "both"])
async def test_r5_a_grant_further_up_or_down(grant: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant holds for what is below its edge; a middle that has rights of its own narrows it again."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        worker = agent("worker", model, decision, tools=[peek, erase])
        middle = agent("middle", model, decision, rights=["peek"] if grant != "upper" else None)
        boss = agent("boss", model, decision, rights=["peek"])
        edges = (
            boss.delegates(middle, max_hops=1, grant=("erase",) if grant != "lower" else ()),
            middle.delegates(worker, max_hops=1, grant=("erase",) if grant != "upper" else ()),
        )
        return Graph("g", START >> boss >> END, *edges, context=Case, max_depth=2)

    heard, server = await converse(make, says("second level"), way, monkeypatch)

    assert offered(asked_by(server, "worker")[0]) == ["peek", "erase"]
    granted = {body.path[-1].name: body.granted for body in heard.of(Boundary)}
    assert granted["worker"] == ("erase",)


@by_way(*MOST_WAYS)
@pytest.mark.parametrize("rule", ["raises", "gives text"])
async def test_r5_a_rule_that_cannot_be_asked_allows_nothing(
    rule: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that raises denies; what it denies is told to the model, and no tool is run."""

    def raises(_: str, __: Mapping[str, Any]) -> str | None:
        raise LookupError("the rule book is lost")

    def no(_: str, __: Mapping[str, Any]) -> str | None:
        return "never"

    deny = raises if rule == "raises" else no
    heard, server = await converse(below("node", rights=None, deny=deny), says("node"), way, monkeypatch)

    assert ran(heard) == []
    assert -1 not in places_in(asked_by(server, "worker")[1], *["not executed: "] * 4)
