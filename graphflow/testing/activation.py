"""One activation of a graph as its events tell it: who was entered over which edge, what it gave, how it ended."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError

from graphflow.events import (
    AnswerGiven,
    EdgeName,
    EdgeTaken,
    EffectFinished,
    Event,
    FrameClosed,
    NodeEnded,
    NodeReturned,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    RunStarted,
)
from graphflow.graphs.graph import Graph
from graphflow.model.context import Context
from graphflow.model.ids import Path
from graphflow.model.outcome import NOTHING, Delegate, Done, Update
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelReply


class Untold:
    """The type of `UNTOLD`: what the events do not tell."""


UNTOLD: Final = Untold()


@dataclass(eq=False)
class Visit:
    """One entry of a node.

    Attributes:
        name: the node.
        path: where it stands.
        edge: what it was entered over.
        began: the number of the event with which it began.
        over: the number of the event with which it ended, or None.
        status: how it ended, or "".
        outcomes: what its body returned, by turn.
        replies: what its model said, in order.
        answers: what people answered it, in order.
    """

    name: str
    path: Path
    edge: EdgeName
    began: int
    over: int | None = None
    status: str = ""
    outcomes: dict[int, Any] = field(default_factory=dict[int, Any])
    replies: list[ModelReply] = field(default_factory=list[ModelReply])
    answers: list[Any] = field(default_factory=list[Any])

    @property
    def outcome(self) -> Any:
        """What its body returned last, or `UNTOLD`."""
        return self.outcomes[max(self.outcomes)] if self.outcomes else UNTOLD

    @property
    def update(self) -> dict[str, Any]:
        """What it changed in the context, in all its turns."""
        found: dict[str, Any] = {}
        for turn in sorted(self.outcomes):
            outcome = self.outcomes[turn]
            update = outcome if isinstance(outcome, Update) else getattr(outcome, "update", None)
            if isinstance(update, Update):
                found |= update.fields
        return found

    def __str__(self) -> str:
        """Name it, and where it stands in the trace."""
        return f"{self.name!r} (visit {self.path[-1].visit}, seq {self.began})"


@dataclass(frozen=True, eq=False)
class Move:
    """One traversal of an edge.

    Attributes:
        seq: the number of its event.
        edge: the edge.
    """

    seq: int
    edge: EdgeName


@dataclass(eq=False)
class Activation:
    """What happened in one activation of a graph.

    Attributes:
        graph: the graph.
        at: where it stands; () for the root.
        events: the events of the whole run.
        context: what its nodes saw first; None where the events do not tell.
        visits: the entries of its own nodes, in the order in which they began.
        moves: the edges that were taken, in order.
        refused: what a bound refused of it, or of one of its own nodes, with the number of the event.
        status: how it ended: the run's status at the root, else that of its visit; "" while it goes on.
        report: what a caller got for it; None where nobody called it.
        reason: the code of why it did not complete, or "".
    """

    graph: Graph[Any]
    at: Path
    events: Sequence[Event]
    context: Context | None = None
    visits: list[Visit] = field(default_factory=list[Visit])
    moves: list[Move] = field(default_factory=list[Move])
    refused: list[tuple[int, Path, Refused]] = field(default_factory=list[tuple[int, Path, Refused]])
    status: str = ""
    report: Any = None
    reason: str = ""

    @property
    def finished(self) -> bool:
        """Whether it came to its end by itself, and not at a bound or by a failure."""
        return any(move.edge.target is None for move in self.moves)

    @property
    def escalated(self) -> bool:
        """Whether a bound led to the escalate node."""
        return any(visit.edge.kind == "escalate" for visit in self.visits)

    @property
    def where(self) -> str:
        """Its graph's name, for a sentence."""
        return repr(self.graph.name)

    def of(self, *names: str) -> list[Visit]:
        """Return the visits of some nodes, in order."""
        if len(names) != 1:
            return [visit for visit in self.visits if visit.name in names]
        return [self.visits[index] for index in self._places.get(names[0], ())]

    @functools.cached_property
    def _places(self) -> dict[str, list[int]]:
        """Where the visits of each node stand; looked up once all are there."""
        found: dict[str, list[int]] = {}
        for index, visit in enumerate(self.visits):
            found.setdefault(visit.name, []).append(index)
        return found

    def last(self) -> Visit | None:
        """Return the visit that led to END, or None."""
        ends = [move for move in self.moves if move.edge.target is None]
        found = [one for one in self.visits if ends and one.name == ends[-1].edge.source and one.began < ends[-1].seq]
        return found[-1] if found else None

    def gave(self, visit: Visit) -> Any:
        """Return what a visit gave to whoever came next; `UNTOLD` where the events do not tell."""
        return _given(self.graph.nodes.get(visit.name), visit, self.events)

    def began_with(self) -> str | None:
        """Return the first text of its context; None where the events do not tell."""
        if self.context is None:
            return None
        first = next(iter(self.context.__dict__.values()), None)
        return first if isinstance(first, str) else ""


def activation(graph: Graph[Any], events: Iterable[Event], at: Path = ()) -> Activation:
    """Read what happened in one activation of a graph."""
    told = [*events]
    found = Activation(graph, at, told)
    open_visits: dict[Path, Visit] = {}
    questions: dict[str, Path] = {}
    for event in told:
        _note(found, open_visits, questions, event)
    return found


def _note(found: Activation, visits: dict[Path, Visit], questions: dict[str, Path], event: Event) -> None:
    """Take one event in."""
    body, seq, at = event.body, event.seq, found.at
    match body:
        case RunStarted() if not at:
            found.context = body.context
        case EdgeTaken() if body.path == at:
            found.moves.append(Move(seq, body.edge))
        case NodeStarted() if body.path[:-1] == at:
            visits[body.path] = Visit(body.path[-1].name, body.path, body.edge, seq)
            found.visits.append(visits[body.path])
        case NodeEnded() if body.path == at:
            found.status, found.reason = body.status, body.reason.code if body.reason is not None else ""
        case FrameClosed() if body.path == at:
            found.report = body.report
        case RunEnded() if not at:
            found.status, found.reason = body.status, body.reason.code if body.reason is not None else ""
        case Refused() if body.path in (at, *visits):
            found.refused.append((seq, body.path, body))
        case AnswerGiven() if questions.get(body.question) in visits:
            visits[questions[body.question]].answers.append(body.value)
        case NodeReturned() | NodeEnded() | EffectFinished() | Paused() if body.path in visits:
            _note_visit(visits[body.path], questions, seq, body)
        case _:
            pass


def _note_visit(
    visit: Visit,
    questions: dict[str, Path],
    seq: int,
    body: NodeReturned | NodeEnded | EffectFinished | Paused,
) -> None:
    match body:
        case NodeReturned():
            if body.failure is None and not body.cancelled:
                visit.outcomes[body.turn] = body.outcome
        case NodeEnded():
            visit.over, visit.status = seq, body.status
        case EffectFinished():
            if isinstance(body.result, ModelReply):
                visit.replies.append(body.result)
        case _:
            questions[body.question] = visit.path


def _given(node: Node[Any] | None, visit: Visit, events: Sequence[Event]) -> Any:
    """Return what a node gave on, as far as events tell."""
    if isinstance(node, Graph):
        team = cast("Graph[Any]", node)
        inner = activation(team, events, visit.path)
        ending = inner.last()
        return UNTOLD if ending is None or team.leave is not None or team.output else inner.gave(ending)
    if isinstance(node, Agent):
        return _answer(node, visit)
    outcome = visit.outcome
    if isinstance(outcome, Done):
        return outcome.output
    if outcome is UNTOLD:
        return visit.answers[-1] if visit.answers else UNTOLD
    return NOTHING if outcome is None or isinstance(outcome, Update) else outcome


def _answer(agent: Agent, visit: Visit) -> Any:
    """Return the answer of an agent, as its contract reads it; `UNTOLD` where its reply was none."""
    if not visit.replies or visit.replies[-1].calls or visit.status != "completed":
        return UNTOLD
    text = visit.replies[-1].text
    if agent.output in (None, str):
        return text if agent.decision != "json" else UNTOLD
    try:
        return TypeAdapter[Any](agent.output).validate_json(text)
    except ValidationError:
        return UNTOLD


def calls_of(found: Activation, visit: Visit) -> Iterator[tuple[int, int | None, Path, Any]]:
    """Yield the frames that a visit opened by calls: where each began and ended, its path, and its report."""
    opened: dict[Path, int] = {}
    closed: dict[Path, tuple[int, Any]] = {}
    for event in found.events:
        if event.path[:-1] == visit.path and event.path and event.path[-1].call is not None:
            if event.kind == "frame_opened":
                opened[event.path] = event.seq
            elif isinstance(event.body, FrameClosed):
                closed[event.path] = (event.seq, event.body.report)
    for path, seq in opened.items():
        over, report = closed.get(path, (None, None))
        yield seq, over, path, report


def asked_of(seen: Activation) -> str | None:
    """Return what an activation was asked; None where the events do not tell."""
    if not seen.at:
        return seen.began_with()
    edge = next(
        (one.body.edge for one in seen.events if isinstance(one.body, NodeStarted) and one.path == seen.at), None
    )
    if edge is None or edge.source is None:
        return None
    before: Any = UNTOLD
    for event in itertools.takewhile(lambda one: one.path != seen.at, seen.events):
        if isinstance(event.body, NodeReturned) and event.path and event.path[-1].name == edge.source:
            before = event.body.outcome if event.path[:-1] in (seen.at[:-1], seen.at[:-2]) else before
    place = seen.at[-1].call
    if isinstance(before, Delegate) and place is not None and place[1] < len(before.calls):
        return before.calls[place[1]].brief.objective
    return None


class WrongShape(Exception):
    """A graph does not have the parts of the strategy that it is said to be."""
