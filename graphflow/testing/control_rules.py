"""What traces must hold where control moves from one to another: handoff, swarm, router."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphflow.events import Boundary, RunStarted
from graphflow.graphs.compiled import ChooseOut, NextOut
from graphflow.graphs.graph import Graph
from graphflow.graphs.routes import route_of
from graphflow.model.outcome import Handoff
from graphflow.model.thread import words_of
from graphflow.nodes.agent import TRANSFER, Agent, generated_names
from graphflow.nodes.function import FunctionNode
from graphflow.testing.activation import UNTOLD, Activation, Move, Visit, WrongShape, asked_of

_LONG = 1000  # a note may be capped; up to here it never is


def _wish(seen: Activation, visit: Visit) -> str | None:
    """Return whom a visit wants to hand over to; None for nobody, or where the events do not tell."""
    node = seen.graph.nodes[visit.name]
    if not isinstance(node, Agent):
        return visit.outcome.to if isinstance(visit.outcome, Handoff) else None
    others = [target for target in seen.graph.compiled.stations[visit.name].handoffs if target != visit.name]
    tools = generated_names(TRANSFER, others)
    calls = visit.replies[-1].calls if visit.replies else ()
    return next((tools[call.name] for call in calls if call.name in tools), None)


def _handoffs(seen: Activation) -> Iterator[tuple[Move, Visit | None, Visit | None]]:
    """Yield each handoff with the visit that made it and the visit that it led to."""
    for move in seen.moves:
        if move.edge.kind == "handoff":
            givers = [one for one in seen.of(move.edge.source or "") if one.began < move.seq]
            takers = [one for one in seen.of(move.edge.target or "") if one.began > move.seq]
            yield move, givers[-1] if givers else None, takers[0] if takers else None


def transfers_as_wished(seen: Activation) -> Iterator[str]:
    """Control goes to the first one that the giver asked for, once for each visit."""
    givers: set[int] = set()
    for move, giver, _ in _handoffs(seen):
        if giver is None:
            yield f"seq {move.seq}: {move.edge.source!r} handed over, and had not been entered"
            continue
        wish, asks = _wish(seen, giver), giver.replies and giver.replies[-1].calls
        if wish != move.edge.target and (wish is not None or asks or not giver.replies):
            yield f"seq {move.seq}: {giver} handed over to {move.edge.target!r}, and had asked for {wish!r}"
        if giver.began in givers:
            yield f"seq {move.seq}: {giver} handed over twice"
        givers.add(giver.began)


def only_hands_over(seen: Activation) -> Iterator[str]:
    """Control moves by handoffs alone, from where it begins to where it ends."""
    for move in seen.moves:
        if move.edge.source is not None and move.edge.target is not None and move.edge.kind != "handoff":
            yield f"seq {move.seq}: control went over {move.edge}, and nobody had handed it over"


def delivers_the_note(seen: Activation) -> Iterator[str]:
    """An agent that gets control sees at least the note that came with it."""
    crossings = {event.path: event.body for event in seen.events if isinstance(event.body, Boundary)}
    for move, giver, taker in _handoffs(seen):
        note = giver.outcome.note if giver is not None and isinstance(giver.outcome, Handoff) else None
        if taker is None:
            if seen.finished:
                yield f"seq {move.seq}: {move.edge.target!r} got control, and was not entered"
        elif isinstance(seen.graph.nodes[taker.name], Agent) and (taker.replies or taker.over):
            crossed = crossings.get(taker.path)
            least = len(words_of(note).encode()) if note is not None else 0
            if crossed is None or crossed.edge != move.edge or crossed.bytes < min(least, _LONG):
                yield f"{taker} did not see the note of {move.edge.source!r}"


def ends_with_the_last(seen: Activation) -> Iterator[str]:
    """It ends with the one who did not hand over."""
    last = seen.last()
    if last is None:
        return
    if last is not seen.visits[-1]:
        yield f"{last} ended it, and {seen.visits[-1]} had control"
    wish = _wish(seen, last)
    if wish is not None:
        yield f"{last} ended it, and had asked to hand over to {wish!r}"


def parent_is_silent(seen: Activation) -> Iterator[str]:
    """The parent speaks first, and not again unless the task is given back to it."""
    start = seen.graph.compiled.start
    if not isinstance(start, NextOut):
        raise WrongShape("START does not lead to one parent")
    parent = start.edge.target
    if seen.visits and seen.visits[0].name != parent:
        yield f"{seen.visits[0]} was first, and {parent!r} is the parent"
    for visit in seen.visits[1:]:
        if visit.name == parent and visit.edge.kind != "handoff":
            yield f"{visit} spoke again over {visit.edge}, and nobody had given the task back"


def first_or_active_begins(seen: Activation) -> Iterator[str]:
    """The first peer begins; in a chat that goes on, who spoke last."""
    start = seen.graph.compiled.start
    if isinstance(start, ChooseOut) and start.default is not None:
        first, others = start.default.target, {case.target for case in start.cases}
    elif isinstance(start, NextOut):
        first, others = start.edge.target, set[Any]()
    else:
        raise WrongShape("START leads to no first peer")
    after = next((event.body.after for event in seen.events if isinstance(event.body, RunStarted)), None)
    active = after.active if after is not None and not seen.at else None
    wanted = active if active in others else first
    if seen.visits and seen.visits[0].name != wanted:
        yield f"{seen.visits[0]} was first, and {wanted!r} had to be"


def _router(graph: Graph[Any]) -> tuple[str, str | None]:
    """Return the names of the node that routes, and of the one who says where to, if that is a node.

    Raises:
        WrongShape: if the graph is no router.
    """
    start, stations = graph.compiled.start, graph.compiled.stations
    first = start.edge.target if isinstance(start, NextOut) else None
    if isinstance(first, str) and stations[first].handoffs and isinstance(stations[first].node, FunctionNode):
        return first, None
    out = stations[first].out if isinstance(first, str) else None
    second = out.edge.target if isinstance(out, NextOut) else None
    if (
        not isinstance(first, str)
        or not isinstance(second, str)
        or not stations[second].handoffs
        or stations[first].handoffs
    ):
        raise WrongShape("START does not lead to a node that routes")
    return second, first


def classifies_once(seen: Activation) -> Iterator[str]:
    """One says once where the task goes, and one gets it."""
    route, classifier = _router(seen.graph)
    gone = [move for move in seen.moves if move.edge.source == route and move.edge.kind == "handoff"]
    for visit in seen.of(*([] if classifier is None else [classifier]))[1:]:
        yield f"{visit} classified again"
    for move in gone[1:]:
        yield f"seq {move.seq}: the task went to {move.edge.target!r} too, after {gone[0].edge.target!r} had got it"
    if seen.finished and not gone:
        yield f"it ended at {seen.last()}, and nobody had got the task"


def goes_where_it_was_said(seen: Activation) -> Iterator[str]:
    """Who gets the task is the one who was named, else the fallback."""
    route, classifier = _router(seen.graph)
    routes: Any = getattr(seen.graph.nodes[route], "fn", None)
    names = getattr(routes, "names", tuple(seen.graph.compiled.stations[route].handoffs))
    fallback = getattr(routes, "fallback", None)
    said = [visit for visit in seen.of(classifier or "") if seen.gave(visit) is not UNTOLD]
    for visit in seen.of(route)[:1]:
        to = visit.outcome.to if isinstance(visit.outcome, Handoff) else None
        named = route_of(words_of(seen.gave(said[0])), names) if said else to if to in names else None
        wanted = named or fallback
        if visit.status == "completed" and to != wanted:
            yield f"{visit} gave the task to {to!r}, and {wanted!r} was named"


def gives_the_task_as_it_was(seen: Activation) -> Iterator[str]:
    """Who gets the task gets what was asked, and nothing of the classification."""
    route, classifier = _router(seen.graph)
    asked = asked_of(seen)
    said = [words_of(seen.gave(visit)) for visit in seen.of(classifier or "") if seen.gave(visit) is not UNTOLD]
    for visit in seen.of(route)[:1]:
        note = visit.outcome.note if isinstance(visit.outcome, Handoff) else None
        if note is None:
            continue
        if (asked is not None and note != asked) or (asked is None and said and note == said[0]):
            yield f"{visit} gave on {note!r}, and {'what was asked' if asked is None else repr(asked)} had to cross"


HANDOFF = (only_hands_over, transfers_as_wished, delivers_the_note, ends_with_the_last, parent_is_silent)
SWARM = (only_hands_over, transfers_as_wished, delivers_the_note, ends_with_the_last, first_or_active_begins)
ROUTER = (classifies_once, goes_where_it_was_said, gives_the_task_as_it_was)
