"""Case R5: what stands below an agent has no more rights than it, and what is granted is on record."""

from collections.abc import Mapping
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Call,
    Delegate,
    Graph,
    Join,
    ModelRequest,
    State,
    Supervisor,
    fork,
    node,
    tool,
)
from graphflow.events import Boundary
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import Talk, play, requests_of, results_in, says, tool_runs

# --- R5 --------------------------------------------------------------------------------------------------------------


@tool(effect="read")
def read(path: str) -> str:
    """Read a file."""
    return f"read {path}"


@tool
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def not_etc(_: str, arguments: Mapping[str, Any]) -> str | None:
    """Deny what is in /etc."""
    return "it is in /etc" if str(arguments.get("path", "")).startswith("/etc") else None


TRIES = [
    call("read", path="/tmp/a"),
    call("write", path="/tmp/a"),
    call("read", path="/etc/a"),
    call("write", path="/etc/a"),
]

PLACES = ["node", "graph", "graph in graph", "branch", "handoff", "second level", "function between", "escalation"]


def worker(*, deny: Any = None) -> Agent:
    """An agent that may read and write as far as it goes, and tries it all."""
    return says("worker", TRIES, "done", tools=[read, write], deny=deny)


def below(place: str, *, grant: tuple[str, ...] = (), rights: Any = ("read",)) -> Graph[Talk]:
    """A boss with some rights and a rule, and an agent somewhere below it."""
    agent = worker()
    target: Any = agent
    extra: list[Any] = []
    if place in {"graph", "graph in graph"}:
        target = Graph("team", START >> agent >> END, context=Talk)
        if place == "graph in graph":
            target = Graph("outer", START >> target >> END, context=Talk)
    elif place == "branch":
        target = Graph("team", START >> fork(agent, says("other", "x")) >> Join("j") >> END, context=Talk, leave=_text)
    elif place == "handoff":
        target = says("first", call("transfer_to_worker", note="you do it"))
        extra = [target.hands_off(agent, max_hops=1)]
    elif place == "second level":
        target = says("middle", call("ask_worker", objective="go"), "done")
        extra = [target.delegates(agent, max_hops=1)]
    elif place == "function between":

        async def lead(state: State[Any]) -> Any:
            return Delegate(Call("worker", "go")) if state.turn == 0 else "done"

        target = node(name="middle")(lead)
        extra = [target.delegates(agent, max_hops=1)]
    elif place == "escalation":
        loop = says("loop", call("ask_nobody"), max_turns=1)
        target = Graph("team", START >> loop >> END, context=Talk, escalate=agent)
    boss = Supervisor(
        "boss",
        model=ScriptedModel(call(f"ask_{target.name}", objective="go"), "done"),
        tools=[read],
        rights=rights,
        deny=not_etc,
    )
    edges = boss.delegates(target, max_hops=1, grant=grant)
    return Graph("g", START >> boss >> END, edges, *extra, context=Talk, max_depth=3)


def _text(state: State[Talk]) -> str:
    return str(state.values)


def request_of(graph: Graph[Any], name: str, turn: int) -> ModelRequest:
    """What an agent somewhere in a graph was asked in a turn."""
    return next(request for request in requests_of(graph) if request.agent == name and request.turn == turn)


@pytest.mark.parametrize("place", PLACES)
async def test_r5_what_stands_below_has_no_more_rights(place: str) -> None:
    """A child that is defined with more gets what its parent may use, and the parent's rule holds for it."""
    graph = below(place)

    played = await play(graph, Talk())

    assert [spec.name for spec in request_of(graph, "worker", 0).tools] == ["read"]
    assert tool_runs(played) == ["read"]
    assert [failed for _, failed in results_in(request_of(graph, "worker", 1).messages)[-4:]] == [
        False,
        True,
        True,
        True,
    ]
    texts = [text for text, _ in results_in(request_of(graph, "worker", 1).messages)[-4:]]
    assert "there is no tool 'write'" in texts[1]
    assert texts[2] == "not executed: read is denied: it is in /etc"
    assert {body.granted for body in played.of(Boundary)} == {()}


@pytest.mark.parametrize("place", PLACES)
async def test_r5_a_grant_is_explicit_and_on_record_and_no_way_round_a_rule(place: str) -> None:
    """What the edge grants may be used below, the trace says so, and what is denied stays denied."""
    graph = below(place, grant=("write",))

    played = await play(graph, Talk())

    assert [spec.name for spec in request_of(graph, "worker", 0).tools] == ["read", "write"]
    assert tool_runs(played) == ["read", "write"]
    assert [failed for _, failed in results_in(request_of(graph, "worker", 1).messages)[-4:]] == [
        False,
        False,
        True,
        True,
    ]
    granted = {body.path[-1].name: body.granted for body in played.of(Boundary)}
    assert granted["worker"] == ("write",)
    assert granted["boss"] == ()


@pytest.mark.parametrize("rights", [(), ("read", "write"), None, ("write",)])
async def test_r5_rights_are_an_intersection(rights: Any) -> None:
    """Rights give nothing that a child has not got; no rights at all leave only words; None is no limit."""
    graph = below("node", rights=rights)

    played = await play(graph, Talk())

    names = {"read", "write"} if rights is None else set(rights)
    assert {spec.name for spec in request_of(graph, "worker", 0).tools} == names
    assert set(tool_runs(played)) == names


@pytest.mark.parametrize("grant", ["upper", "lower", "both"])
async def test_r5_a_grant_further_up_or_down(grant: str) -> None:
    """A grant holds for what is below its edge; a middle that has rights of its own narrows it again."""
    agent = worker()
    middle = Agent(
        "middle",
        model=ScriptedModel(call("ask_worker", objective="go"), "done"),
        rights=["read"] if grant != "upper" else None,
    )
    boss = Agent("boss", model=ScriptedModel(call("ask_middle", objective="go"), "done"), rights=["read"])
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(middle, max_hops=1, grant=("write",) if grant != "lower" else ()),
        middle.delegates(agent, max_hops=1, grant=("write",) if grant != "upper" else ()),
        context=Talk,
        max_depth=2,
    )

    played = await play(graph, Talk())

    assert [spec.name for spec in request_of(graph, "worker", 0).tools] == ["read", "write"]
    granted = {body.path[-1].name: body.granted for body in played.of(Boundary)}
    assert granted["worker"] == ("write",)


@pytest.mark.parametrize("rule", ["raises", "gives text", "of the child"])
async def test_r5_a_rule_that_cannot_be_asked_allows_nothing(rule: str) -> None:
    """A rule that raises denies; the rules of parent and child both hold."""

    def raises(_: str, __: Mapping[str, Any]) -> str | None:
        raise LookupError("the rule book is lost")

    def never(name: str, __: Mapping[str, Any]) -> str | None:
        return "never" if name == "write" else None

    def no(_: str, __: Mapping[str, Any]) -> str | None:
        return "no"

    agent = worker(deny=never if rule == "of the child" else None)
    deny = {"raises": raises, "gives text": no, "of the child": not_etc}[rule]
    boss = Agent("boss", model=ScriptedModel(call("ask_worker", objective="go"), "done"), deny=deny)
    graph = Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    assert tool_runs(played) == (["read"] if rule == "of the child" else [])
    failures = [failed for _, failed in results_in(request_of(graph, "worker", 1).messages)]
    assert failures == ([False, True, True, True] if rule == "of the child" else [True] * 4)
