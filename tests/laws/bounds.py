"""What the laws say of bounds: counted from the events of a run and compared with what its graph declares."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphflow.events import EdgeTaken, Event, FrameOpened, NodeRetried, NodeStarted, ScopeOpened
from graphflow.graphs.compiled import MapOut, Out
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.ids import Path, names


class Activation(NamedTuple):
    """One activation of a graph, or one lane of a map in it: where bounds are counted anew."""

    graph: Graph[Any]
    path: Path
    lanes: tuple[int, ...]


def activation(root: Graph[Any], path: Path) -> Activation:
    """The activation that the visit at a path belongs to."""
    return _within(root, path[:-1])._replace(lanes=path[-1].lanes) if path[-1].lanes else _within(root, path[:-1])


def _within(root: Graph[Any], path: Path) -> Activation:
    """The activation in which what is below a path happens."""
    found = Activation(root, (), ())
    for depth, segment in enumerate(path, start=1):
        found = found._replace(lanes=segment.lanes or found.lanes)
        node = found.graph.compiled.stations[segment.name].node
        if isinstance(node, Graph):
            found = Activation(node, path[:depth], ())
    return found


def _maps(root: Graph[Any], scope: ScopeOpened) -> Iterator[tuple[Activation, MapOut]]:
    """The maps that may have opened a scope, each with its activation; none where a fork did.

    The path is that of the node that leads to the branches, or of the graph whose START does; a graph as a node may do
    both, where the join tells them apart.
    """
    path, inner = scope.path, _within(root, scope.path)
    found: list[tuple[Activation, Out | None]] = []
    if inner.path == path:
        found.append((inner, inner.graph.compiled.start))
    if path:
        outer = activation(root, path)
        found.append((outer, outer.graph.compiled.stations[path[-1].name].out))
    for where, out in found:
        if isinstance(out, MapOut) and (scope.join is None or out.region.join == scope.join):
            yield where, out


def overruns(root: Graph[Any], events: Sequence[Event]) -> Iterator[str]:
    """Say which bounds of hops, visits, handoffs, items and depth the events exceed."""
    attempts = Counter(event.path for event in events if isinstance(event.body, NodeRetried))
    yield from _visits(root, events, attempts)
    yield from _hops(root, events, attempts)
    for event in events:
        match event.body:
            case ScopeOpened() as scope:
                yield from _items(root, scope)
            case FrameOpened(path):
                yield from _depth(root, path)
            case _:
                pass


def _visits(root: Graph[Any], events: Sequence[Event], attempts: Counter[Path]) -> Iterator[str]:
    """A lane that is opened again counts anew: so what opens lanes multiplies here."""
    counts: Counter[tuple[Path, tuple[int, ...], str]] = Counter()
    opened: Counter[Path] = Counter()
    for event in events:
        if isinstance(event.body, ScopeOpened):
            opened.update(where.path for where, _ in _maps(root, event.body))
        if isinstance(event.body, NodeStarted):
            where, name = activation(root, event.path), event.path[-1].name
            counts[where.path, where.lanes, name] += 1
            limit = where.graph.compiled.stations[name].node.max_visits
            count = counts[where.path, where.lanes, name]
            lanes = opened[where.path] if where.lanes else 1
            if limit is not None and count > limit * lanes * (1 + attempts[where.path]):
                yield f"{count} visits of {event.path}, which allows {limit}"


def _hops(root: Graph[Any], events: Sequence[Event], attempts: Counter[Path]) -> Iterator[str]:
    """An event of an edge does not say in which lane: so lanes multiply here."""
    hops: Counter[tuple[Path, object]] = Counter()
    lanes: Counter[Path] = Counter()
    for event in events:
        match event.body:
            case ScopeOpened() as scope:
                for where, _ in _maps(root, scope):
                    lanes[where.path] += scope.branches
            case EdgeTaken(path, edge, hop):
                where = _within(root, path)
                declared = next(found for found in where.graph.compiled.edges() if found.name == edge)
                if declared.max_hops is not None and hop > declared.max_hops:
                    yield f"hop {hop} over {edge}, which allows {declared.max_hops}"
                counted: list[tuple[object, int | None]] = [(edge, declared.max_hops), ("all", where.graph.max_hops)]
                if edge.kind == "handoff":
                    counted.append(("handoffs", where.graph.max_handoffs))
                for what, limit in counted:
                    hops[where.path, what] += 1
                    most = None if limit is None else limit * (1 + lanes[where.path]) * (1 + attempts[where.path])
                    if most is not None and hops[where.path, what] > most:
                        yield f"{hops[where.path, what]} hops ({what}) in {where.path}, which allows {limit}"
            case _:
                pass


def _items(root: Graph[Any], scope: ScopeOpened) -> Iterator[str]:
    allowed = [math.inf if out.max_items is None else out.max_items for _, out in _maps(root, scope)]
    if allowed and scope.branches > max(allowed):
        yield f"{scope.branches} lanes at {scope.path}, which allows {max(allowed)}"


def _depth(root: Graph[Any], path: Path) -> Iterator[str]:
    for length in range(len(path)):
        where = _within(root, path[:length])
        calls = sum(segment.call is not None for segment in path[len(where.path) :])
        if where.graph.max_depth is not None and calls > where.graph.max_depth:
            yield f"{calls} delegations below {where.path}, which allows {where.graph.max_depth}"


def excesses(root: Graph[Any], events: Sequence[Event], peak: int, budget: Budget) -> Iterator[str]:
    """Say where a run did more than `worst_case` proved to be the most."""
    case = root.worst_case()
    limits: Mapping[str, float] = case.limits if budget == (root.budget or Budget()) else {}
    visits = Counter(names(event.path) for event in events if isinstance(event.body, NodeStarted))
    runs = sum(isinstance(event.body, (NodeStarted, NodeRetried)) for event in events)
    depth = max((event.body.depth for event in events if isinstance(event.body, FrameOpened)), default=0)
    calls = {"model_calls": 0, "tool_calls": 0}
    for event in events:
        cost = getattr(event.body, "reserved", None)
        for name in calls:
            calls[name] += getattr(cost, name, None) or 0
    for name, count in {"node_runs": runs, "depth": depth, "concurrent": peak, **calls}.items():
        if count > getattr(case, name):
            yield f"{name} came to {count}, and at most {getattr(case, name)} was proved"
        if count > limits.get(name, count):
            yield f"{name} came to {count}, and at most {limits[name]} was proved under its budget"
    for where, count in visits.items():
        if where in case.visits and count > case.visits[where]:
            yield f"{count} visits of {'/'.join(where)}, and at most {case.visits[where]} was proved"
