"""A run as the rules see it: its visits, what each was asked, called, answered and got back, folded from its events.

Nothing is decided here, and nothing is lost on the way that a rule needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from graphflow.events import (
    Boundary,
    Detected,
    EdgeTaken,
    EffectFinished,
    Event,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeReturned,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    RunStarted,
    ScopeOpened,
)
from graphflow.graphs.briefs import Asking, Askings, asked_by_function
from graphflow.graphs.compiled import Station
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import as_graph
from graphflow.lint.replies import as_outcome, read
from graphflow.lint.visits import Asked, Called, Fields, Turn, Visit, reported
from graphflow.lint.words import VERIFIES, named_words
from graphflow.model.ids import Path
from graphflow.model.outcome import NOTHING, Delegate, Done, Handoff, Pause, Update
from graphflow.model.thread import evened, shown
from graphflow.nodes.agent import ASK, TRANSFER, Agent, generated_names
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelReply
from graphflow.nodes.human import Human
from graphflow.nodes.join import Join
from graphflow.nodes.tools import AskUser

MODEL: Final = "model"
"""The key of the effect that asks an agent's model."""


@dataclass(slots=True)
class Trace:
    """A run, for the rules.

    Attributes:
        graph: its graph.
        visits: its visits, in order.
        refused: what bounds refused: the number of the event, and what it says.
        detected: what detectors saw, likewise.
        taken: the edges that were taken, with the numbers of their events and the path of what they belong to.
        scopes: how many branches each fork or map opened, with the path of the node.
        said: what the user gave.
        ended: how the run ended, and the number of that event; None while it goes on.
    """

    graph: Graph[Any]
    visits: dict[Path, Visit] = field(default_factory=dict[Path, Visit])
    refused: list[tuple[int, Refused]] = field(default_factory=list[tuple[int, Refused]])
    detected: list[tuple[int, Detected]] = field(default_factory=list[tuple[int, Detected]])
    taken: list[tuple[int, EdgeTaken]] = field(default_factory=list[tuple[int, EdgeTaken]])
    scopes: list[ScopeOpened] = field(default_factory=list[ScopeOpened])
    said: str = ""
    ended: tuple[int, RunEnded] | None = None
    _open: dict[Path, Asked] = field(default_factory=dict[Path, Asked])
    _offers: dict[Station, dict[str, tuple[str, str]]] = field(
        default_factory=dict[Station, dict[str, tuple[str, str]]]
    )
    _gone: dict[tuple[Path, str], Visit] = field(default_factory=dict[tuple[Path, str], Visit])
    _wanted: dict[Path, dict[int, Askings]] = field(default_factory=dict[Path, dict[int, Askings]])

    def fold(self, event: Event) -> None:
        """Take one event in."""
        body, seq = event.body, event.seq
        match body:
            case RunStarted():
                self.said = shown(body.context)
            case RunEnded():
                self.ended = seq, body
            case NodeStarted():
                self.visits[body.path] = Visit(body.path, seq, body.edge, station_of(self.graph, body.path))
            case Refused():
                self.refused.append((seq, body))
            case Detected():
                self.detected.append((seq, body))
            case ScopeOpened():
                self.scopes.append(body)
            case FrameOpened() if body.path and body.path[-1].call is not None:
                self._opened(seq, body)
            case FrameClosed() if (asked := self._open.get(body.path)) is not None:
                asked.report, asked.closed = reported(body.report), seq
            case EdgeTaken():
                self._taken(seq, body)
            case _ if (visit := self.visits.get(event.path)) is not None:
                self._of(visit, event)
            case _:
                pass

    def _of(self, visit: Visit, event: Event) -> None:
        body, seq = event.body, event.seq
        match body:
            case EffectFinished(key=key) if key == MODEL:
                if body.failure is None and isinstance(body.result, ModelReply):
                    self._replied(visit, seq, body.turn, body.result)
            case EffectFinished():
                call = _call_of(visit, body)
                if call is not None:
                    call.failed = body.failure is not None
                    call.result = str(body.result) if body.failure is None else body.failure.text
            case NodeReturned():
                self._returned(visit, seq, body)
            case NodeEnded():
                visit.status, visit.reason, visit.ended = body.status, body.reason, seq
                self._gone[visit.path[:-1], visit.name] = visit
            case Paused():
                visit.questions += 1
            case Boundary():
                visit.boundary = body
            case _:
                pass

    def _replied(self, visit: Visit, seq: int, turn: int, reply: ModelReply) -> None:
        agent, offered = visit.agent, self._offered(visit.station)
        found = read(reply, native=agent is None or agent.native, offered=offered)
        calls: list[Called] = []
        for position, (name, given) in enumerate(found.calls):
            kind, target = offered.get(name, ("unknown", ""))
            key = f"{name} {shown(evened(given))}"
            calls.append(Called(seq, turn, position, name, kind, target, given, key))
        visit.turns.append(Turn(turn, seq, found.text if calls else "", calls))
        self._wanted.setdefault(visit.path, {})[turn] = Askings(
            [Asking(call.target, call.given, call.position) for call in calls if _is_readable(call, visit.station)]
        )
        if calls:
            over = next((call for call in calls if call.kind == "transfer"), None)
            visit.answer, visit.answered, visit.report = "", -1, None
            visit.to, visit.note = (over.target, str(over.given.get("note", ""))) if over else ("", "")
        else:
            visit.answer, visit.answered = found.text, seq
            visit.report = reported(found.value)

    def _offered(self, station: Station | None) -> Mapping[str, tuple[str, str]]:
        if station is None:
            return {}
        if station not in self._offers:
            self._offers[station] = offered_by(station)
        return self._offers[station]

    def _returned(self, visit: Visit, seq: int, body: NodeReturned) -> None:
        around = graph_at(self.graph, visit.path[:-1])
        fields = () if around is None else around.context.model_fields
        outcome = as_outcome(body.outcome, fields)
        asking = asked_by_function(outcome)
        if asking.calls or isinstance(outcome, Delegate):
            self._wanted.setdefault(visit.path, {})[body.turn] = asking
        elif isinstance(outcome, Handoff):
            visit.to, visit.note = outcome.to, shown(outcome.note) if outcome.note is not None else ""
        elif body.failure is None and outcome is not None and not isinstance(outcome, (Pause, Update)):
            value = cast("object", outcome.output if isinstance(outcome, Done) else outcome)
            if isinstance(outcome, Done) and outcome.update is not None:
                visit.kept = shown(outcome.update.fields)
            visit.report = reported(value)
            if visit.report is not None and isinstance(value, Mapping):  # as it is shown to a model, live
                value = {name: item for name, item in cast("Mapping[str, object]", value).items() if name != "said"}
            visit.words = isinstance(value, str) or visit.report is not None
            visit.answer, visit.answered = "" if value is NOTHING else shown(value), seq

    def _opened(self, seq: int, body: FrameOpened) -> None:
        segment, caller = body.path[-1], self.visits.get(body.path[:-1])
        if caller is None or segment.call is None:
            return
        turn, position = segment.call
        wanted = self._wanted.get(caller.path, {}).get(turn, Askings()).at(position, segment.name)
        brief: Fields = {} if wanted is None else wanted.brief
        asked = Asked(seq, turn, position, segment.name, brief, body.path)
        caller.asked.append(asked)
        self._open[body.path] = asked

    def _taken(self, seq: int, body: EdgeTaken) -> None:
        self.taken.append((seq, body))
        left = self._gone.get((body.path, body.edge.source or ""))
        if left is not None:
            left.left.append((seq, body.edge))

    def names_of_verifiers(self, named: tuple[str, ...] | None, stations: Iterable[str]) -> frozenset[str]:
        """Return which of some nodes verify: those that are named so, or else those whose names say so."""
        if named is not None:
            return frozenset(named).intersection(stations)
        return frozenset(name for name in stations if VERIFIES & named_words(name))


def trace_of(graph: Graph[Any], events: Iterable[Event]) -> Trace:
    """Fold the events of a run of a graph."""
    trace = Trace(graph)
    for event in events:
        trace.fold(event)
    return trace


def graph_at(graph: Graph[Any], path: Path) -> Graph[Any] | None:
    """Return the graph that the nodes right below a path belong to; None where the graph has no such path."""
    here = graph
    for segment in path:
        station = here.compiled.stations.get(segment.name)
        if station is None:
            return None
        here = as_graph(station.node) or here
    return here


def station_of(graph: Graph[Any], path: Path) -> Station | None:
    """Return the node that a visit is one of."""
    around = graph_at(graph, path[:-1])
    return None if around is None else around.compiled.stations.get(path[-1].name)


def offered_by(station: Station) -> dict[str, tuple[str, str]]:
    """Return what an agent may call, by name: what that does ("tool", "person", "ask", "transfer"), and which node."""
    if not isinstance(station.node, Agent):
        return {}
    others = [target for target in station.handoffs if target != station.name]
    found = {name: ("transfer", target) for name, target in generated_names(TRANSFER, others).items()}
    found |= {name: ("ask", target) for name, target in generated_names(ASK, station.delegates).items()}
    return found | {tool.name: ("person" if isinstance(tool, AskUser) else "tool", "") for tool in station.node.tools}


def works(node: Node[Any] | None) -> bool:
    """Tell whether a node makes something that could be verified: not a person, and not a join."""
    return node is not None and not isinstance(node, (Human, Join))


def _is_readable(call: Called, station: Station | None) -> bool:
    """Tell whether a call delegates: one whose brief does not fit its contract is answered, and starts nobody."""
    edge = None if station is None else station.delegates.get(call.target)
    if call.kind != "ask" or edge is None or edge.contract is None:
        return call.kind == "ask"
    try:
        edge.contract.brief.model_validate(call.given)
    except Exception:  # noqa: BLE001 - a validator of the user may raise anything
        return False
    return True


def _call_of(visit: Visit, body: EffectFinished) -> Called | None:
    """Return the call that a tool's effect belongs to: a further attempt has a number behind a dot."""
    first = body.key.partition(".")[0]
    turn = next((one for one in reversed(visit.turns) if one.number == body.turn), None)
    if turn is None or not (first.isdecimal() and first.isascii()) or int(first) >= len(turn.calls):
        return None
    return turn.calls[int(first)]
