"""Traces that are changed on purpose: what a validator has to notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from graphflow.events import EdgeName, EdgeTaken, Event, NodeReturned, NodeStarted, RunEnded
from graphflow.model.ids import Path
from graphflow.model.outcome import Delegate, Done, Update

Trace = list[Event]
Change = Callable[[Trace], Trace]


def with_body(event: Event, **fields: Any) -> Event:
    """The same event, with other values in it."""
    return dataclasses.replace(event, body=dataclasses.replace(event.body, **fields))


def of_visit(event: Event, name: str, visit: int) -> bool:
    """Whether an event is about one entry of a node at the root."""
    return bool(event.path) and event.path[0].name == name and event.path[0].visit == visit


def renamed(**names: str) -> Change:
    """Others did what these did: their names are changed in paths and edges, and not in what was said."""

    def path_of(path: Path) -> Path:
        return tuple(part._replace(name=names.get(part.name, part.name)) for part in path)

    def edge_of(edge: EdgeName) -> EdgeName:
        return edge._replace(source=_get(names, edge.source), target=_get(names, edge.target))

    def change(trace: Trace) -> Trace:
        found: Trace = []
        for event in trace:
            fields: dict[str, Any] = {"path": path_of(event.path)} if hasattr(event.body, "path") else {}
            edge = getattr(event.body, "edge", None)
            if isinstance(edge, EdgeName):
                fields["edge"] = edge_of(edge)
            found.append(with_body(event, **fields))
        return found

    return change


def _get(names: dict[str, str], name: str | None) -> str | None:
    return None if name is None else names.get(name, name)


def without(name: str, visit: int = 1, kind: str = "") -> Change:
    """One entry of a node did not happen, or one kind of event of it."""
    return lambda trace: [e for e in trace if not (of_visit(e, name, visit) and (not kind or e.kind == kind))]


def twice(name: str, edge: EdgeName | None = None) -> Change:
    """A node was entered once more at the end, over the same edge or another one."""

    def change(trace: Trace) -> Trace:
        ends = max(index for index, event in enumerate(trace) if isinstance(event.body, RunEnded))
        mine = [event for event in trace if of_visit(event, name, 1)]
        entered = next(event.body.edge for event in mine if isinstance(event.body, NodeStarted))
        way = entered if edge is None else edge
        number = 1 + max(event.path[0].visit for event in trace if event.path and event.path[0].name == name)
        again = [dataclasses.replace(mine[0], body=EdgeTaken(path=(), edge=way, hop=9))]
        for event in mine:
            path = (event.path[0]._replace(visit=number), *event.path[1:])
            fields: dict[str, Any] = {"edge": way} if isinstance(event.body, NodeStarted) else {}
            again.append(with_body(event, path=path, **fields))
        return numbered([*trace[:ends], *again, *trace[ends:]])

    return change


def numbered(trace: Trace) -> Trace:
    """The same events, numbered anew."""
    return [dataclasses.replace(event, seq=seq) for seq, event in enumerate(trace)]


def later(kind: str, name: str, than: tuple[str, str], visit: int = 1) -> Change:
    """An event of a node happened after another one."""

    def change(trace: Trace) -> Trace:
        moved = next(event for event in trace if of_visit(event, name, visit) and event.kind == kind)
        rest = [event for event in trace if event is not moved]
        place = next(i for i, event in enumerate(rest) if of_visit(event, than[1], 1) and event.kind == than[0])
        return numbered([*rest[: place + 1], moved, *rest[place + 1 :]])

    return change


def returned(name: str, visit: int = 1, *, output: Any = None, **update: Any) -> Change:
    """A node gave something else, or changed something else in the context."""

    def change(trace: Trace) -> Trace:
        found: Trace = []
        for event in trace:
            body = event.body
            mine = isinstance(body, NodeReturned) and len(event.path) == 1 and of_visit(event, name, visit)
            old = getattr(body, "outcome", None)
            if mine and not isinstance(old, Delegate):
                update_of = getattr(old, "update", None)
                before = update_of.fields if isinstance(update_of, Update) else {}
                given = old.output if isinstance(old, Done) else old
                found.append(
                    with_body(
                        event,
                        outcome=Done(given if output is None else output, update=Update(**{**before, **update})),
                    )
                )
            else:
                found.append(event)
        return found

    return change


def outcome(name: str, change_it: Callable[[Any], Any]) -> Change:
    """A node returned another outcome."""
    return lambda trace: [
        with_body(event, outcome=change_it(event.body.outcome))
        if isinstance(event.body, NodeReturned) and len(event.path) == 1 and event.path[0].name == name
        else event
        for event in trace
    ]


def replied(name: str, reply: Any) -> Change:
    """An agent's model said something else."""
    return lambda trace: [
        with_body(event, result=reply) if event.kind == "effect_finished" and of_visit(event, name, 1) else event
        for event in trace
    ]


def ended_as(status: str) -> Change:
    """The run ended otherwise."""
    return lambda trace: [
        with_body(event, status=status) if isinstance(event.body, RunEnded) else event for event in trace
    ]


def ended_by(name: str) -> Change:
    """Another node led to the end."""

    def change(trace: Trace) -> Trace:
        found: Trace = []
        for event in trace:
            body = event.body
            ends = isinstance(body, EdgeTaken) and not event.path and body.edge.target is None
            found.append(with_body(event, edge=EdgeName(name, "choose", None, 9)) if ends else event)
        return found

    return change


def without_moves(source: str | None, target: str | None) -> Change:
    """An edge was not taken."""
    return lambda trace: [
        event
        for event in trace
        if not (
            isinstance(event.body, EdgeTaken)
            and not event.path
            and (event.body.edge.source, event.body.edge.target) == (source, target)
        )
    ]


def also(*changes: Change) -> Change:
    """Several changes, one after the other."""

    def change(trace: Trace) -> Trace:
        for one in changes:
            trace = one(trace)
        return trace

    return change
