"""What a person would want to hear of a run: a line for an event, or none."""

from __future__ import annotations

from typing import Any, Final, cast

from graphflow.cli.board import Board, names_of, shown_names
from graphflow.cli.results import because
from graphflow.events import (
    Emitted,
    Event,
    FrameClosed,
    ListenerFailed,
    NodeEnded,
    NodeRetried,
    NodeReturned,
    NodeSkipped,
    NodeStarted,
    Paused,
    Refused,
    RunStarted,
    ScopeOpened,
    Warned,
)
from graphflow.graphs.compiled import Station
from graphflow.graphs.graph import Graph
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Delegate
from graphflow.visualize.overlay import report_status
from graphflow.visualize.text import shown

TEXT: Final = 160

_FAILED: Final = frozenset({"failed", "timed_out"})

Call = tuple[Path, tuple[int, int]]
"""A call: who made it, in which turn and position."""


class Telling:
    """Turns the events of one run into lines; it keeps only what it needs of calls that have no report yet."""

    def __init__(self, graph: Graph[Any]) -> None:
        """Tell of a run of a graph."""
        self._graph = graph
        self._last: dict[Call, NodeEnded] = {}

    def line_of(self, event: Event) -> tuple[str, str] | None:
        """Return what a person would want to hear of an event, with its kind; None for most events."""
        body, path = event.body, event.path
        match body:
            case NodeStarted() if not path[-1].lanes:
                return "started", _started(body, path)
            case NodeReturned(outcome=Delegate() as outcome):
                return self._unknown(outcome, path)
            case NodeEnded():
                call = _call_of(path)
                if call is not None:
                    self._last[call] = body
                return ("failed", _ended(body, path)) if body.status in _FAILED else None
            case FrameClosed():
                return self._reported(body, path)
            case _:
                return _line_of(event)

    def _unknown(self, outcome: Delegate, path: Path) -> tuple[str, str] | None:
        """Tell of calls to nodes that nobody declared; they have no event of their own."""
        station = _station_at(self._graph, path)
        if station is None:
            return None
        wrong = dict.fromkeys(shown(call.to, TEXT) for call in outcome.calls if call.to not in station.delegates)
        if not wrong:
            return None
        known = ", ".join(shown(name, TEXT) for name in sorted(station.delegates)) or "none"
        who = shown_names(names_of(path))
        return "failed", f"{who} asks {', '.join(wrong)}, which is not among its targets: {known}"

    def _reported(self, body: FrameClosed, path: Path) -> tuple[str, str] | None:
        """Tell of a report: it is that of the node that ended the frame, to which others may have led."""
        call = _call_of(path)
        if call is None:
            return None
        last = self._last.pop(call, None)
        who = shown_names(names_of(path if last is None else last.path))
        status = report_status(body.report)
        if status == "failed":
            told = last is not None and last.status in _FAILED
            reason = getattr(body.report, "reason", None)
            return None if told else ("failed", f"{who} failed: {_why(because(reason, at=path_text(path)))}")
        partly = " in part" if status == "partial" else ""
        return "reported", f"{who} reports{partly} to {shown(path[-2].name, TEXT)}"


def _line_of(event: Event) -> tuple[str, str] | None:
    body, path = event.body, event.path
    who = shown_names(names_of(path))
    match body:
        case RunStarted():
            board = Board(budget=body.budget)
            return "run", f"{shown(body.graph, TEXT)}: started, {board.bounds()}"
        case ScopeOpened() if body.branches:
            join = f", to meet at {shown(body.join, TEXT)}" if body.join is not None else ""
            return "scope", f"{f'{who}: ' if who else ''}{body.branches:,} branches{join}"
        case NodeRetried():
            return "retried", f"{who} is tried again: {_why(because(body.reason, at=path_text(path)))}"
        case NodeSkipped() if body.reason.code not in {"not_taken", "all_dead"}:
            return "skipped", f"{who} is skipped: {_why(body.reason.text)}"
        case Refused():
            limit = f" (limit {body.limit:g})" if body.limit is not None else ""
            return "refused", f"{who or 'the run'} is refused by {body.bound}{limit}: {_why(body.wanted)}"
        case Paused():
            return "paused", f"{who} asks: {_why(body.text)}"
        case Warned():
            return "warned", f"{who}: {body.warning.replace('_', ' ')}: {_why(body.text)}"
        case Emitted():
            return "emitted", f"{who} says: {_why(_said(body.value))}"
        case ListenerFailed():
            return "listener", f"a listener failed: {_why(body.text)}"
        case _:
            return None


def _ended(body: NodeEnded, path: Path) -> str:
    who = shown_names(names_of(path))
    return f"{who} {body.status.replace('_', ' ')}: {_why(because(body.reason, at=path_text(path)))}"


def _started(body: NodeStarted, path: Path) -> str:
    *above, name = (shown(segment.name, TEXT) for segment in path)
    around = shown_names(names_of(path[:-1]))
    inside = f"{around} > " if above else ""
    match body.edge.kind:
        case "delegate":
            return f"{around} asks {name}"
        case "handoff" if body.edge.source is not None:
            return f"{inside}{shown(body.edge.source, TEXT)} hands off to {name}"
        case kind:
            via = {"error": " handles a failure", "escalate": " decides at a bound"}
            return f"{inside}{name}{via.get(kind, ' starts')}"


def _call_of(path: Path) -> Call | None:
    call = path[-1].call if path else None
    return None if call is None else (path[:-1], call)


def _station_at(graph: Graph[Any], path: Path) -> Station | None:
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


def _said(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type(value).__name__}>"


def _why(text: str) -> str:
    """Write a text on one line."""
    return shown(" / ".join(line.strip() for line in text.splitlines() if line.strip()), TEXT)
