"""What crossed each boundary of a run: messages, briefs, notes and reports, read from its events alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from graphflow.cli.board import names_of, shown_names
from graphflow.cli.printing import safe
from graphflow.cli.results import as_text, jsonable
from graphflow.events import (
    Boundary,
    EdgeName,
    EffectFinished,
    Event,
    FrameClosed,
    FrameOpened,
    NodeReturned,
    NodeStarted,
)
from graphflow.graphs.briefs import Askings, arguments_of, asked_by_function, asked_by_model, calls_of, stands_for
from graphflow.model.contract import Report
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Handoff
from graphflow.model.thread import ToolCall
from graphflow.nodes.agent import TRANSFER
from graphflow.visualize.text import ELLIPSIS, count, shown

LONG: Final = 400
"""How many characters of one text are shown."""

Ranges = tuple[tuple[int, int], ...]
Given = dict[str, Any]
Notes = list[tuple[str, str]]


@dataclass(slots=True)
class Crossing:
    """An entry into a node over an edge, and what came back.

    Attributes:
        path: the visit.
        edge: the edge.
        seen: whether it is known what of a thread crossed.
        crossed, dropped, bytes, granted: as in `Boundary`.
        brief: what it was asked, by a delegation.
        note: what it was told, by a handoff.
        report: what came back, if that is known.
    """

    path: Path
    edge: EdgeName
    seen: bool = False
    crossed: Ranges = ()
    dropped: Ranges = ()
    bytes: int = 0
    granted: tuple[str, ...] = ()
    brief: Given | None = None
    note: str = ""
    report: Any = None


@dataclass(slots=True)
class Crossings:
    """Folds the events of a run into its crossings, in order."""

    found: dict[Path, Crossing] = field(default_factory=dict[Path, Crossing])
    _asked: dict[Path, tuple[int, Askings]] = field(default_factory=dict[Path, tuple[int, Askings]])
    _notes: dict[tuple[Path, str], Notes] = field(default_factory=dict[tuple[Path, str], Notes])

    def fold(self, event: Event) -> None:
        """Take one event."""
        body = event.body
        match body:
            case EffectFinished(key="model"):
                self._replied(body.path, body.turn, calls_of(body.result))
            case NodeReturned(outcome=Handoff() as handoff):
                self._note(body.path, handoff.to, handoff.note)
            case NodeReturned():
                self._asked[body.path] = body.turn, asked_by_function(body.outcome)
            case FrameOpened() if body.path and body.path[-1].call is not None:
                self._entry(body.path, body.edge).brief = self._brief(body.path)
            case NodeStarted() if body.edge.kind == "handoff":
                self._entry(body.path, body.edge).note = self._noted(body.path, body.edge)
            case Boundary():
                entry = self._entry(body.path, body.edge)
                entry.seen, entry.crossed, entry.dropped = True, body.crossed, body.dropped
                entry.bytes, entry.granted = body.bytes, body.granted
            case FrameClosed() if body.path in self.found:
                self.found[body.path].report = body.report
            case _:
                pass

    def _entry(self, path: Path, edge: EdgeName) -> Crossing:
        return self.found.setdefault(path, Crossing(path, edge))

    def _replied(self, path: Path, turn: int, calls: Sequence[ToolCall]) -> None:
        self._asked[path] = turn, asked_by_model(calls)
        given = [(call.name, arguments_of(call) or {}) for call in calls if call.name.startswith(TRANSFER)]
        self._notes[path[:-1], path[-1].name] = [(name, str(found.get("note", ""))) for name, found in given]

    def _note(self, path: Path, to: str, note: object) -> None:
        self._notes[path[:-1], path[-1].name] = [(to, note if isinstance(note, str) else "")]

    def _noted(self, path: Path, edge: EdgeName) -> str:
        """Return what the giver told whom it handed over to."""
        notes = self._notes.pop((path[:-1], edge.source or ""), [])
        return next((note for name, note in notes if stands_for(name, path[-1].name, TRANSFER)), "")

    def _brief(self, path: Path) -> Given | None:
        """Return the brief of a callee."""
        last, asked = self._asked.get(path[:-1], (-1, Askings()))
        turn, position = path[-1].call or (-1, 0)
        found = asked.at(position, path[-1].name) if turn == last else None
        return None if found is None else cast("Given", jsonable(dict(found.brief)))


def crossings_of(events: Iterable[Event]) -> list[Crossing]:
    """Return what crossed each boundary, in the order of the entries."""
    made = Crossings()
    for event in events:
        made.fold(event)
    return list(made.found.values())


# --- as text, and as JSON --------------------------------------------------------------------------------------------


def crossing_lines(entry: Crossing, *, ascii: bool = False) -> Iterator[str]:
    """Show what crossed at one entry."""
    edge, arrow = entry.edge, "->" if ascii else "→"
    way = f"{shown(edge.source) if edge.source is not None else 'START'} {arrow} {shown(edge.target or 'END')}"
    yield f"{shown_names(names_of(entry.path))}{_visit(entry.path)}  ({edge.kind}: {way})"
    if entry.brief is not None:
        yield from _labelled("brief", _brief_text(entry.brief))
    if entry.note:
        yield from _labelled("note", entry.note)
    if entry.seen:
        left_out = f"; left out: {_messages(entry.dropped)}" if entry.dropped else ""
        yield f"  sees    {_messages(entry.crossed) or 'no message'}, {count(entry.bytes, 'byte')}{left_out}"
    if entry.granted:
        yield from _labelled("may use", ", ".join(entry.granted))
    if entry.report is not None:
        yield from _labelled("report", _report_text(entry.report))


def _visit(path: Path) -> str:
    segment = path[-1] if path else None
    return "" if segment is None or segment.visit == 1 else f" (visit {segment.visit})"


def _messages(ranges: Ranges) -> str:
    """Name positions in a thread.

    >>> _messages(((0, 2), (5, 5)))
    'messages 0-2, 5'
    """
    names = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    several = sum(high - low + 1 for low, high in ranges) > 1
    return f"message{'s' * several} {names}" if names else ""


def _brief_text(brief: Given) -> str:
    objective = str(brief.get("objective", ""))
    more = [f"{name}: {as_text(value)}" for name, value in brief.items() if name != "objective" and value]
    return "\n".join([objective, *more] if objective else more) or "(empty)"


def _report_text(report: object) -> str:
    if isinstance(report, Report):
        text = as_text(report)
        return text if report.status != "done" else f"done: {text}"
    return as_text(report)


def _labelled(label: str, text: str) -> Iterator[str]:
    cut = text if len(text) <= LONG else f"{text[: LONG - 1]}{ELLIPSIS}"
    first, *rest = safe(cut).splitlines() or [""]
    yield f"  {label:<7} {first}"
    yield from (f"          {line}" for line in rest)


def crossing_data(entry: Crossing) -> Given:
    """Return a crossing as JSON data."""
    return {
        "path": path_text(entry.path),
        "edge": list(entry.edge),
        "crossed": jsonable(entry.crossed) if entry.seen else None,
        "dropped": jsonable(entry.dropped) if entry.seen else None,
        "bytes": entry.bytes if entry.seen else None,
        "granted": list(entry.granted),
        "brief": entry.brief,
        "note": entry.note or None,
        "report": jsonable(entry.report),
    }
