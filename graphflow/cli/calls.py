"""What agents call, as far as the events of a run tell: kept for each visit until it has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from graphflow.cli.faults import text_of
from graphflow.cli.results import jsonable
from graphflow.events import AnswerGiven, EffectFinished, EffectStarted, Event, NodeEnded, Paused
from graphflow.graphs.briefs import arguments_of
from graphflow.graphs.compiled import Station
from graphflow.graphs.graph import Graph
from graphflow.model.contract import Approval
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Path
from graphflow.model.secrets import SHOWN as HIDDEN
from graphflow.model.thread import ToolCall
from graphflow.nodes.agent import ASK, TRANSFER, Agent, generated_names
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelReply
from graphflow.nodes.replies import read_reply
from graphflow.nodes.tools import AskUser, Tool
from graphflow.visualize.text import shown

SHOWN: Final = 100
"""How many characters of the arguments of a call stand in a line."""

_POSITION: Final = re.compile(r"\?\d+\.(\d+)\Z")


@dataclass(slots=True)
class Turn:
    """The turn that an agent is in.

    Attributes:
        number: which one, from 0.
        replied: whether its model has answered.
        calls: what the model wants to be called, in order.
        begun: the positions of the calls that were executed, or that a person is asked about, each with the time.
    """

    number: int
    replied: bool = False
    calls: tuple[ToolCall, ...] = ()
    begun: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call of a tool that a person is asked to approve.

    Attributes:
        tool: the tool.
        given: the arguments as the model wrote them.
    """

    tool: Tool
    given: Mapping[str, Any]

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that it would be called with, defaults filled in, as JSON data."""
        try:
            arguments = self.tool.arguments(json.dumps(self.given))
            found = jsonable({name: HIDDEN if name in self.tool.hidden else arguments[name] for name in arguments})
        except Exception:  # noqa: BLE001 - a validator of the user may raise anything
            return self.given
        return cast("dict[str, Any]", found) if isinstance(found, dict) else self.given


class Calls:
    """Folds the events of a run of a graph into the turns that its agents are in."""

    def __init__(self, graph: Graph[Any]) -> None:
        """Begin with no turn."""
        self._graph = graph
        self._turns: dict[Path, Turn] = {}
        self._questions: dict[str, tuple[Path, int]] = {}

    def __call__(self, event: Event) -> None:
        """Take one event of the run."""
        body = event.body
        match body:
            case EffectStarted(key="model") if self.agent(body.path) is not None:
                self._turns[body.path] = Turn(body.turn)
            case EffectStarted():
                turn = self._turns.get(body.path)
                if turn is not None:
                    turn.begun[int(body.key.partition(".")[0])] = event.at
            case EffectFinished(key="model"):
                self._replied(body)
            case Paused():
                self._asked(body, event.at)
            case AnswerGiven(value=Approval(arguments=FrozenDict() as changed)):
                self._changed(body.question, changed)
            case NodeEnded() if self._turns.pop(body.path, None) is not None:
                self._questions = {name: asked for name, asked in self._questions.items() if asked[0] != body.path}
            case _:
                pass

    def _replied(self, body: EffectFinished) -> None:
        turn, agent = self._turns.get(body.path), self.agent(body.path)
        reply = body.result
        if turn is not None and agent is not None and isinstance(reply, ModelReply):
            turn.replied = True
            found = read_reply(reply, native=agent.native).calls  # of a client that may have no types
            turn.calls = tuple(ToolCall(str(call.name), str(call.arguments)) for call in found)

    def _asked(self, body: Paused, at: float) -> None:
        turn, found = self._turns.get(body.path), _POSITION.search(body.question)
        if turn is not None and found is not None and int(found[1]) < len(turn.calls):
            turn.begun[int(found[1])] = at
            self._questions[body.question] = (body.path, int(found[1]))

    def _changed(self, question: str, arguments: FrozenDict[str, Any]) -> None:
        """Put the arguments of a call that a person changed in the place of the model's."""
        path, position = self._questions.get(question, ((), 0))
        turn, call = self._turns.get(path), self.call(path, position)
        if turn is not None and call is not None:
            text = json.dumps(jsonable(arguments))
            turn.calls = (*turn.calls[:position], replace(call, arguments=text), *turn.calls[position + 1 :])

    def turn(self, path: Path) -> Turn | None:
        """Return the turn that the agent of a visit is in; None if there is no agent, or it has not begun."""
        return self._turns.get(path)

    def station(self, path: Path) -> Station | None:
        """Return the node that a path names, as it stands in its graph."""
        return station_at(self._graph, path)

    def agent(self, path: Path) -> Agent | None:
        """Return the agent that a path names, if it names one."""
        station = self.station(path)
        return station.node if station is not None and isinstance(station.node, Agent) else None

    def call(self, path: Path, position: int) -> ToolCall | None:
        """Return one of the calls of the turn that a visit is in."""
        turn = self._turns.get(path)
        return turn.calls[position] if turn is not None and position < len(turn.calls) else None

    def approval(self, question: str) -> AskedCall | None:
        """Return the call that a question is about, if it asks for an approval."""
        path, position = self._questions.get(question, ((), 0))
        call, agent = self.call(path, position), self.agent(path)
        if call is None or agent is None:
            return None
        tool, given = tool_of(agent, call.name), arguments_of(call)
        return AskedCall(tool, given) if isinstance(tool, Tool) and given is not None else None


def station_at(graph: Graph[Any], path: Path) -> Station | None:
    """Find the node that a path names: a callee stands beside its caller, all else in the graph above it."""
    tables, station = graph.compiled, None
    for segment in path:
        if station is not None and segment.call is None:
            around: object = station.node
            if not isinstance(around, Graph):
                return None
            tables = cast("Graph[Any]", around).compiled
        station = tables.stations.get(segment.name)
        if station is None:
            return None
    return station


def targets_of(station: Station, prefix: str) -> dict[str, str]:
    """Return the tools that stand for an agent's team (`ask_`) or its peers (`transfer_to_`), each with its node."""
    edges = station.delegates if prefix == ASK else station.handoffs
    own = {tool.name for tool in station.node.tools} if isinstance(station.node, Agent) else set[str]()
    return {name: target for name, target in generated_names(prefix, edges).items() if name not in own}


def why_not(station: Station, call: ToolCall) -> str:
    """Say why a call cannot be executed, as far as its name and its arguments tell; "" if they are in order."""
    tool = tool_of(station.node, call.name)
    if tool is None:
        if call.name in targets_of(station, TRANSFER):
            return ""
        known = call.name in targets_of(station, ASK)
        return "" if _brief_of(station, call) is not None else "its brief does not fit" if known else "unknown tool"
    try:
        tool.arguments(call.arguments)
    except Exception as error:  # noqa: BLE001 - a validator of the user may raise anything
        text = text_of(error).partition(" Wanted: ")[0].rstrip(".")
        text = text.removeprefix(f"the arguments of {call.name!r} do not fit: ")
        return text.replace("they are no JSON", "the arguments are no JSON", 1)
    return ""


def tool_of(node: Node[Any], name: str) -> Tool | AskUser | None:
    """Return a tool of an agent by its name."""
    tools = node.tools if isinstance(node, Agent) else ()
    return next((tool for tool in tools if tool.name == name), None)


def briefs_of(station: Station, calls: tuple[ToolCall, ...]) -> tuple[str, ...]:
    """Return what an agent asks of its team in a turn, in the order of the delegations."""
    return tuple(brief for call in calls if (brief := _brief_of(station, call)) is not None)


def _brief_of(station: Station, call: ToolCall) -> str | None:
    """Return the objective of a delegation; None if the call is none, or its brief cannot be read."""
    edge = station.delegates.get(targets_of(station, ASK).get(call.name, ""))
    if edge is None or edge.contract is None:
        return None
    try:
        brief = edge.contract.brief.model_validate_json(call.arguments if call.arguments.strip() else "{}")
    except Exception:  # noqa: BLE001 - a validator of the user may raise anything
        return None
    return brief.objective


def note_of(station: Station, calls: tuple[ToolCall, ...]) -> tuple[str, str] | None:
    """Return whom an agent hands over to in a turn, and what it tells them; None if it keeps control."""
    peers = targets_of(station, TRANSFER)
    for call in calls:
        target, given = peers.get(call.name), arguments_of(call)
        if target is not None and given is not None and target != station.name:
            return target, str(given.get("note", ""))
    return None


def call_text(call: ToolCall) -> str:
    """Write a call as one line.

    >>> call_text(ToolCall("refund", '{"invoice": "INV-311", "amount": 49.0}'))
    'refund(invoice="INV-311", amount=49.0)'
    """
    given = arguments_of(call)
    return with_arguments(call.name, given) if given is not None else f"{shown(call.name)}({shown(call.arguments)})"


def with_arguments(name: str, given: Mapping[str, Any]) -> str:
    """Write a tool with its arguments as one line."""
    inside = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
    return f"{shown(name)}({shown(inside, SHOWN) if inside else ''})"
