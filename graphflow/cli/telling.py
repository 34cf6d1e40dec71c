"""What a person would want to hear of a run: a line for an event, or none."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from graphflow.cli.board import Board, names_of, shown_names
from graphflow.cli.calls import (
    Calls,
    briefs_of,
    call_text,
    note_of,
    targets_of,
    tool_of,
    why_not,
    with_arguments,
)
from graphflow.cli.results import because
from graphflow.events import (
    Boundary,
    BudgetAdded,
    Detected,
    EffectFinished,
    EffectStarted,
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
    SessionStarted,
    Warned,
)
from graphflow.graphs.graph import Graph
from graphflow.model.contract import Reason
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Delegate, Handoff
from graphflow.model.secrets import veiled
from graphflow.nodes.agent import ASK, TRANSFER
from graphflow.visualize.facts import budget_words
from graphflow.visualize.overlay import report_status
from graphflow.visualize.talk import MODEL
from graphflow.visualize.text import shown

TEXT: Final = 160

_FAILED: Final = frozenset({"failed", "timed_out"})

Told: TypeAlias = tuple[str, str]
"""A kind of lines, and a line."""

Call: TypeAlias = tuple[Path, tuple[int, int]]
"""A call: who made it, in which turn and position."""

Giver: TypeAlias = tuple[Path, tuple[int, int] | None, tuple[int, ...], str]
"""Who handed over: in which frame, call and lane, and its name."""


class Telling:
    """Turns the events of one run into lines; it keeps only what it needs of calls that have no report yet."""

    def __init__(self, graph: Graph[Any]) -> None:
        """Tell of a run of a graph."""
        self._calls = Calls(graph)
        self._last: dict[Call, NodeEnded] = {}
        self._briefs: dict[Path, tuple[str, ...]] = {}
        self._notes: dict[Giver, str] = {}
        self._refused: set[tuple[str, str]] = set()

    def line_of(self, event: Event) -> Told | None:
        """Return what a person would want to hear of an event, with its kind; None for most events."""
        body, path = event.body, event.path
        before = self._before(body) if isinstance(body, EffectStarted) else None
        self._calls(event)
        match body:
            case EffectStarted():
                return before or self._tool_started(body)
            case EffectFinished():
                return self._model_replied(body) if body.key == MODEL else self._tool_ended(body, event.at)
            case NodeStarted() if not path[-1].lanes or body.edge.kind == "handoff":
                return "started", self._started(body, path)
            case NodeReturned():
                return self._returned(body, path)
            case NodeEnded():
                self._briefs.pop(path, None)
                call = _call_of(path)
                if call is not None:
                    self._last[call] = body
                return ("failed", self._ended(body, path)) if body.status in _FAILED else None
            case FrameClosed():
                return self._reported(body, path)
            case Refused():
                self._refused.add((path_text(path), body.bound))
                return _line_of(event)
            case Paused():
                return "paused", self._paused(body, path)
            case _:
                return _line_of(event)

    # --- agents ---

    def _before(self, body: EffectStarted) -> Told | None:
        """Tell what became of the last turn of an agent whose model is asked again."""
        turn = self._calls.turn(body.path) if body.key == MODEL else None
        station = self._calls.station(body.path) if turn is not None else None
        if turn is None or station is None or turn.number >= body.turn:
            return None
        who = _who(body.path)
        if not turn.calls:
            return ("repaired", f"{who} has to answer again: its answer did not fit") if turn.replied else None
        team = (*targets_of(station, ASK), *targets_of(station, TRANSFER))
        left = [
            shown(call.name, TEXT) for position, call in enumerate(turn.calls)
            if position not in turn.begun and call.name not in team and not why_not(station, call)
        ]  # fmt: skip
        if not left:
            return None
        return "refused", f"{who}: not executed: {', '.join(dict.fromkeys(left))} (denied, or a limit is reached)"

    def _tool_started(self, body: EffectStarted) -> Told | None:
        position, dot, attempt = body.key.partition(".")
        call = self._calls.call(body.path, int(position)) if position.isdecimal() else None
        if call is None:
            return None  # the effect of a function
        again = f" again, attempt {int(attempt) + 1}" if dot else ""
        return f"calls {call.name}", f"{_who(body.path)} calls {call_text(call)}{again}"

    def _model_replied(self, body: EffectFinished) -> Told | None:
        """Remember what an agent asks of others, and tell of calls that cannot be executed."""
        path, turn, station = body.path, self._calls.turn(body.path), self._calls.station(body.path)
        if turn is None or station is None:
            return None
        self._briefs[path] = briefs_of(station, turn.calls)
        note = note_of(station, turn.calls)
        if note is not None:
            self._notes[_giver(path, path[-1].name)] = note[1]
        wrong = [(call, why) for call in turn.calls if (why := why_not(station, call))]
        if not wrong:
            return None
        told = "; ".join(f"{shown(call.name, TEXT)} ({why})" for call, why in wrong)
        return "not executed", f"{_who(path)}: not executed: {_why(told)}"

    def _tool_ended(self, body: EffectFinished, at: float) -> Told | None:
        position = int(body.key.partition(".")[0]) if body.key[:1].isdecimal() else -1
        turn, call = self._calls.turn(body.path), self._calls.call(body.path, position)
        agent, failure = self._calls.agent(body.path), body.failure
        if turn is None or call is None or agent is None or failure is None:
            return None
        who = f"{_who(body.path)}: {shown(call.name, TEXT)} failed"
        limit = getattr(tool_of(agent, call.name), "timeout", None)
        if limit is not None and at - turn.begun.get(position, at) >= limit:
            return "tool", f"{who}: it took longer than its timeout of {limit:g} s"
        if failure.code == "cancelled":
            return None  # its agent was cancelled
        kind = "" if failure.code == "declared" else failure.error_type.rpartition(".")[2]
        return "tool", f"{who}: {_why(': '.join(part for part in (kind, failure.text) if part))}"

    # --- nodes ---

    def _started(self, body: NodeStarted, path: Path) -> str:
        *_, name = (shown(segment.name, TEXT) for segment in path)
        around = _who(path[:-1])
        inside = f"{around} > " if around else ""
        match body.edge.kind:
            case "delegate" if path[-1].call is not None:
                briefs, position = self._briefs.get(path[:-1], ()), path[-1].call[1]
                return f"{around} asks {name}" + _said_to(briefs[position] if position < len(briefs) else "")
            case "handoff" if body.edge.source is not None:
                note = self._notes.pop(_giver(path, body.edge.source), "")
                return f"{inside}{shown(body.edge.source, TEXT)} hands off to {name}{_said_to(note)}"
            case kind:
                via = {"error": " handles a failure", "escalate": " decides at a bound"}
                return f"{inside}{name}{via.get(kind, ' starts')}"

    def _returned(self, body: NodeReturned, path: Path) -> Told | None:
        """Remember what a function asks of others; tell of calls to nodes that nobody declared."""
        match body.outcome:
            case Delegate(calls=calls):
                self._briefs[path] = tuple(call.brief.objective for call in calls)
            case Handoff(note=str() as note):
                self._notes[_giver(path, path[-1].name)] = note
                return None
            case _:
                return None
        station = self._calls.station(path)
        targets = station.delegates if station is not None else {}
        wrong = dict.fromkeys(shown(call.to, TEXT) for call in calls if call.to not in targets)
        if not wrong:
            return None
        known = ", ".join(shown(name, TEXT) for name in sorted(targets)) or "none"
        return "failed", f"{_who(path)} asks {', '.join(wrong)}, which is not among its targets: {known}"

    def _reported(self, body: FrameClosed, path: Path) -> Told | None:
        """Tell of a report: it is that of the node that ended the frame, to which others may have led."""
        call = _call_of(path)
        if call is None:
            return None
        last = self._last.pop(call, None)
        who = _who(path if last is None else last.path)
        status, reason = report_status(body.report), getattr(body.report, "reason", None)
        if status == "failed":
            told = last is not None and last.status in _FAILED
            return None if told else ("failed", f"{who} failed{self._because(reason, path)}")
        partly = {"partial": " in part", "needs_input": " what it needs"}.get(str(status), "")
        said = _said_to(_gist(body.report))
        why = f" ({_why(reason.text)})" if isinstance(reason, Reason) else ""
        return "reported", f"{who} reports{partly} to {shown(path[-2].name, TEXT)}{said}{why}"

    def _ended(self, body: NodeEnded, path: Path) -> str:
        return f"{_who(path)} {body.status.replace('_', ' ')}{self._because(body.reason, path)}"

    def _because(self, reason: Reason | None, path: Path) -> str:
        """Say why, unless the line before it was that a bound refuses this."""
        if reason is not None and (reason.path, reason.code) in self._refused:
            return ""
        return f": {_why(because(reason, at=path_text(path)))}"

    def _paused(self, body: Paused, path: Path) -> str:
        call = self._calls.approval(body.question)
        if call is None:
            return f"{_who(path)} asks: {_why(body.text)}"
        return f"{_who(path)} asks for approval of {with_arguments(call.tool.name, call.arguments())}"


def _giver(path: Path, name: str) -> Giver:
    """Return what tells apart who handed over: the frame and lane of a visit, and the giver's name."""
    return path[:-1], path[-1].call, path[-1].lanes, name


def _who(path: Path) -> str:
    return shown_names(names_of(path))


def _said_to(text: str) -> str:
    return f": {_why(text)}" if text.strip() else ""


def _gist(report: object) -> str:
    """Return what a report says, and what somebody should do now."""
    finding, action = getattr(report, "finding", ""), getattr(report, "action_needed", None)
    return f"{finding} (next: {action})" if action else str(finding)


def _line_of(event: Event) -> tuple[str, str] | None:
    body, path = event.body, event.path
    who = shown_names(names_of(path))
    match body:
        case RunStarted():
            board = Board(budget=body.budget)
            return "run", f"{shown(body.graph, TEXT)}: started, {board.bounds()}"
        case SessionStarted():
            return "run", f"taken up again after {event.at:.1f} s of work"
        case BudgetAdded():
            return "budget", f"more budget: {' · '.join(budget_words(body.budget)) or 'nothing'}"
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
        case Detected():
            then = {"note": " (the agent is told)", "stop": " (that stops it)"}.get(body.then, "")
            return "detected", f"{who or 'the run'}: {body.detector.replace('_', ' ')}: {_why(body.text)}{then}"
        case Boundary() if body.granted:
            return "granted", f"{who} may use {', '.join(body.granted)}, which the edge grants"
        case Warned():
            return "warned", f"{who}: {body.warning.replace('_', ' ')}: {_why(body.text)}"
        case Emitted():
            return "emitted", f"{who} says: {_why(_said(body.value))}"
        case ListenerFailed():
            return "listener", f"a listener failed: {_why(body.text)}"
        case _:
            return None


def _call_of(path: Path) -> Call | None:
    call = path[-1].call if path else None
    return None if call is None else (path[:-1], call)


def _said(value: object) -> str:
    try:
        return str(veiled(value))
    except Exception:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type(value).__name__}>"


def _why(text: str) -> str:
    """Write a text on one line."""
    return shown(" / ".join(line.strip() for line in text.splitlines() if line.strip()), TEXT)
