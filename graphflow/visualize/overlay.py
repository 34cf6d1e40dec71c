"""What a run did, laid over the picture of its graph.

The events come from a run as it happens, or from lines that were stored; the picture of a run that still goes
on shows how far it is. What belongs to nodes that the picture does not have is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from graphflow.errors import UsageError
from graphflow.events import (
    AnswerGiven,
    Body,
    BudgetAdded,
    EdgeName,
    EdgeTaken,
    Event,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeReentered,
    NodeRetried,
    NodeSkipped,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    ScopeClosed,
    SessionStarted,
)
from graphflow.model.ids import Path, Segment
from graphflow.visualize.drawing import Drawing
from graphflow.visualize.tally import Tally
from graphflow.visualize.text import count

Standing = Literal["failed", "running", "waiting", "open", "cancelled", "completed", "refused", "skipped", "idle"]
"""How a node stands after all its visits, the most urgent of them; "open" waits for the run to be resumed."""

STANDINGS: Final[tuple[Standing, ...]] = (
    "completed", "failed", "running", "waiting", "open", "cancelled", "refused", "skipped", "idle",
)  # fmt: skip

_TOLD: Final = ("failed", "timed_out", "cancelled", "running", "waiting")
"""What is said of visits besides their number; the others completed."""

_OPEN: Final = frozenset({"running", "waiting"})
_FAILED: Final = frozenset({"failed", "timed_out"})


@dataclass(slots=True)
class NodeRun:
    """What a node did in a run.

    Attributes:
        visits: each visit by its path, with how it stands or ended.
        retries, refused, skipped: how often that happened.
        spent: what its effects used.
    """

    visits: dict[Path, str] = field(default_factory=dict[Path, str])
    retries: int = 0
    refused: int = 0
    skipped: int = 0
    spent: Tally = field(default_factory=Tally)

    def standing(self, *, over: bool) -> Standing:
        """Say how the node stands; `over` tells that the run goes on no more."""
        ends = set(self.visits.values())
        if ends & _FAILED:
            return "failed"
        if ends & _OPEN:
            return "waiting" if "running" not in ends else "open" if over else "running"
        if "cancelled" in ends:
            return "cancelled"
        if ends:
            return "completed"
        return "refused" if self.refused else "skipped" if self.skipped else "idle"

    def words(self) -> tuple[str, ...]:
        """Say what happened, in short phrases."""
        words = [f"×{len(self.visits):,}"] if self.visits else []
        ends = Counter(self.visits.values())
        one = len(self.visits) == 1
        words += [f"{'' if one else f'{ends[end]:,} '}{_spaced(end)}" for end in _TOLD if ends[end]]
        words += [count(self.retries, "retry", "retries")] * bool(self.retries)
        words += [f"{self.refused:,} refused"] * bool(self.refused)
        words += [f"{self.skipped:,} skipped"] * bool(self.skipped)
        return (*words, *self.spent.words())


@dataclass(slots=True)
class Overlay:
    """A run on a drawing.

    Attributes:
        nodes: what each node and graph did, by its id in the drawing.
        edges: how often each edge was taken, by its id.
        status: how the run ended; "running" as long as it has not.
        reason: the code of why, or "".
        spent: what the whole run used.
        runs: attempts of nodes in the whole run.
        at: active seconds at the last event.
    """

    nodes: dict[str, NodeRun] = field(default_factory=dict[str, NodeRun])
    edges: Counter[str] = field(default_factory=Counter[str])
    status: str = "running"
    reason: str = ""
    spent: Tally = field(default_factory=Tally)
    runs: int = 0
    at: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the run goes on no more, so that what is open stays open until it is resumed."""
        return self.status != "running"

    def standing(self, id: str) -> Standing:
        """Say how a node or graph stands."""
        return self.nodes[id].standing(over=self.over) if id in self.nodes else "idle"

    def words(self, id: str) -> tuple[str, ...]:
        """Say what a node or graph did, in short phrases."""
        return self.nodes[id].words() if id in self.nodes else ()

    def summary(self) -> tuple[str, ...]:
        """Say how the run stands as a whole, in short phrases."""
        status = f"{self.status}: {self.reason}" if self.reason else self.status
        return (status, count(self.runs, "node run"), *self.spent.words(), f"{self.at:.3g} s")


def overlay_of(drawing: Drawing, run: Iterable[Event]) -> Overlay:
    """Fold the events of a run over the drawing of its graph.

    Raises:
        UsageError: if something is no event.
    """
    map_ = _Map(drawing)
    overlay = Overlay()
    for event in run:
        found: object = event
        if not isinstance(found, Event):
            msg = f"run=...: the events of a run are needed, as a listener hears them; {event!r} is none."
            raise UsageError(msg)
        overlay.at = max(overlay.at, event.at)
        _fold(overlay, map_, event)
    return overlay


def _fold(overlay: Overlay, map_: _Map, event: Event) -> None:
    body = event.body
    match body:
        case EdgeTaken():
            edge = map_.edge(body.path, body.edge)
            overlay.edges.update([edge] if edge is not None else [])
            map_.handled(body)
            return
        case ScopeClosed():
            overlay.edges.update(map_.collected(body))
            return
        case SessionStarted() | BudgetAdded():
            overlay.status, overlay.reason = "running", ""  # a run that was broken off, or stood still, goes on
            return
        case RunEnded():
            overlay.status = body.status
            overlay.reason = body.reason.code if body.reason is not None else ""
            return
        case AnswerGiven():
            overlay.status = "running"  # a run that waited goes on
            _answered(overlay, map_, body.question)
            return
        case Paused():
            map_.asked[body.question] = body.path
        case _:
            pass
    if isinstance(body, (NodeStarted, NodeRetried)):
        overlay.runs += 1
    if isinstance(body, NodeEnded) and body.status in _FAILED:
        map_.failed.append(body.path)
    overlay.spent.add(body)
    place = map_.place(event.path)
    if place is not None:
        node = overlay.nodes.setdefault(place, NodeRun())
        node.spent.add(body)
        _fold_node(node, body)


def _answered(overlay: Overlay, map_: _Map, question: str) -> None:
    """Let a visit go on whose last open question was answered: no other event says so of an agent."""
    path = map_.asked.pop(question, None)
    place = map_.place(path) if path is not None and path not in map_.asked.values() else None
    if path is not None and place in overlay.nodes and overlay.nodes[place].visits.get(path) == "waiting":
        overlay.nodes[place].visits[path] = "running"


def _fold_node(node: NodeRun, body: Body) -> None:
    match body:
        case NodeStarted() | FrameOpened():
            node.visits.setdefault(body.path, "running")
        case NodeReentered():
            node.visits[body.path] = "running"
        case Paused():
            node.visits[body.path] = "waiting"
        case NodeEnded():
            node.visits[body.path] = body.status
        case FrameClosed():
            if node.visits.get(body.path) in _OPEN:
                node.visits[body.path] = "failed" if report_status(body.report) == "failed" else "completed"
        case NodeRetried():
            node.retries += 1
        case NodeSkipped():
            node.skipped += 1
        case Refused():
            node.refused += 1
        case _:
            pass


def _spaced(word: str) -> str:
    return word.replace("_", " ")


def report_status(report: object) -> object:
    """Return the status of a report, also of one that was read back as plain JSON; None if it has none."""
    if isinstance(report, dict):
        return cast("dict[str, object]", report).get("status")
    return getattr(report, "status", None)


class _Map:
    """Finds what the paths of a run name in a drawing.

    Attributes:
        failed: the visits that failed in scopes that have not closed.
        asked: the visit that asked each open question.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.root = drawing.graphs[0].id
        self.within = drawing.names()
        self.around = {place: graph for (graph, _), place in self.within.items()}
        self.edges = {(edge.graph, edge.name): edge.id for edge in drawing.edges}
        self.graphs = {graph.id for graph in drawing.graphs}
        self.collecting = {(edge.graph, edge.name.source, edge.collected_at) for edge in drawing.edges}
        self.failed: list[Path] = []
        self.asked: dict[str, Path] = {}

    def place(self, path: Path) -> str | None:
        """Return the id of the node or graph that a path names, or None."""
        place: str | None = self.root
        for segment in path:
            if place is None:
                break
            place = self._below(place, segment)
        return place

    def _below(self, above: str, segment: Segment) -> str | None:
        """Find a segment below another: a callee stands beside its caller, all else inside the graph."""
        around = self.around.get(above, self.root)
        inside_first = above in self.graphs and segment.call is None
        for graph in (above, around) if inside_first else (around, above):
            if (graph, segment.name) in self.within:
                return self.within[graph, segment.name]
        return None

    def edge(self, path: Path, name: EdgeName) -> str | None:
        """Return the id of a taken edge: a path is that of the caller for a delegation, else of the frame."""
        place = self.place(path)
        if place is None:
            return None
        graph = place if place in self.graphs and name.kind != "delegate" else self.around.get(place, self.root)
        return self.edges.get((graph, name))

    def handled(self, taken: EdgeTaken) -> None:
        """Forget a failure that went over an error edge: no join gets it."""
        if taken.edge.kind == "error" and self.failed and self.failed[-1][-1].name == taken.edge.source:
            self.failed.pop()

    def collected(self, closed: ScopeClosed) -> list[str]:
        """Return the edges to a join over which failures arrived; no event of their own tells of these."""
        if not closed.failed or closed.join is None:
            return []
        path = closed.path
        frame, source = (path[:-1], path[-1].name) if path else (path, None)
        if (self._inside(frame), source, closed.join) not in self.collecting:
            frame, source = path, None  # the scope of a graph's START is told with the path of the graph
        graph = self._inside(frame)
        lanes = path[-1].lanes if source is not None else ()
        found: list[str] = []
        left: list[Path] = []
        for failed in self.failed:
            edge = self.edges.get((graph or "", EdgeName(failed[-1].name, "next", closed.join)))
            if edge is None or failed[:-1] != frame or failed[-1].lanes[: len(lanes)] != lanes:
                left.append(failed)
            else:
                found.append(edge)
        self.failed = left
        return found if (graph, source, closed.join) in self.collecting else []

    def _inside(self, frame: Path) -> str | None:
        """Return the id of the graph whose nodes stand in a frame, or None."""
        place = self.place(frame)
        return place if place in self.graphs else None
