"""What a picture shows, before it has a format: nested graphs, nodes with generated ids, edges, problems.

Names are labels only. Every id is generated, in an order that the graph's meaning fixes: equal graphs give
equal pictures, however their statements were shuffled.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from graphflow.errors import UsageError
from graphflow.events import EdgeName
from graphflow.graphs.building import asks_person
from graphflow.graphs.compiled import Compiled, Edge, ForkOut, Key, MapOut, NextOut, Out, Station, out_edges
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import look_at
from graphflow.nodes.edges import Terminal
from graphflow.visualize.facts import collected_at, edge_facts, graph_facts, node_facts
from graphflow.visualize.text import shown

EdgeKind = Literal["next", "fork", "join", "choose", "map", "delegate", "handoff", "error", "escalate"]
"""The kinds of edges that are told apart; a next edge that ends a fork is a "join"."""

EDGE_KINDS: Final[tuple[EdgeKind, ...]] = (
    "next", "fork", "join", "choose", "map", "delegate", "handoff", "error", "escalate",
)  # fmt: skip

PSEUDO: Final = frozenset({"start", "end", "bound"})
"""The kinds of drawn nodes that are no nodes of the graph."""

MOST_PROBLEMS: Final = 12
"""How many problems are listed below a picture; every one is marked in it."""


class ProblemLike(Protocol):
    """A problem of a graph, as `Graph.check()` lists them."""

    @property
    def code(self) -> str:
        """The name of the rule."""
        ...

    @property
    def where(self) -> Sequence[str]:
        """The names of the nested graphs around it, then of the nodes that it is about."""
        ...

    @property
    def message(self) -> str:
        """What is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node as it is drawn.

    Attributes:
        id: generated; letters and digits only.
        kind: the node's kind, or "start", "end", "bound" or "recursion".
        name: its name in its graph, raw.
        graph: the id of the graph that it stands in.
        facts: short phrases about it.
        problems: the codes of its problems.
    """

    id: str
    kind: str
    name: str
    graph: str
    facts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A graph as it is drawn: around its nodes.

    Attributes:
        id: generated; letters and digits only.
        name: its name in the graph around it, raw.
        parent: the id of the graph around it, or None.
        depth: 0 for the whole picture.
        facts: short phrases about it.
        start, end: the ids of its two ends.
        problems: the codes of its problems.
    """

    id: str
    name: str
    parent: str | None
    depth: int
    facts: tuple[str, ...]
    start: str
    end: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge as it is drawn.

    Attributes:
        id: generated; letters and digits only.
        kind: how it is drawn.
        name: its identity in its graph.
        graph: the id of the graph that it belongs to.
        source, target: the ids of the nodes that it joins.
        out_of, into: the ids of the graphs that it leaves or enters as a whole, or None.
        facts: short phrases about it.
        collected_at: the name of the node at which failures behind it are collected, or None.
    """

    id: str
    kind: EdgeKind
    name: EdgeName
    graph: str
    source: str
    target: str
    out_of: str | None
    into: str | None
    facts: tuple[str, ...]
    collected_at: str | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole picture.

    Attributes:
        graphs: the graphs, each before those inside it.
        nodes: the nodes, in canonical order.
        edges: the edges, in canonical order.
        problems: a line for each problem.
    """

    graphs: tuple[DrawnGraph, ...]
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    problems: tuple[str, ...] = ()

    def nodes_by_graph(self) -> dict[str, list[DrawnNode]]:
        """Return the nodes by the id of the graph that they stand in directly."""
        found: dict[str, list[DrawnNode]] = {graph.id: [] for graph in self.graphs}
        for node in self.nodes:
            found[node.graph].append(node)
        return found

    def edges_by_graph(self) -> dict[str, list[DrawnEdge]]:
        """Return the edges by the id of the graph that they belong to."""
        found: dict[str, list[DrawnEdge]] = {graph.id: [] for graph in self.graphs}
        for edge in self.edges:
            found[edge.graph].append(edge)
        return found

    def names(self) -> dict[tuple[str, str], str]:
        """Return the id of each node and graph by the id of the graph around it and its name there."""
        graphs = {(graph.parent, graph.name): graph.id for graph in self.graphs if graph.parent is not None}
        nodes = {(node.graph, node.name): node.id for node in self.nodes if node.kind not in PSEUDO}
        return {**graphs, **nodes}


def drawing_of(graph: Graph[Any], problems: Iterable[ProblemLike] = ()) -> Drawing:
    """Make the picture of a graph and of the graphs inside it, to any depth.

    A graph that is used twice is drawn twice; one inside itself is cut there by a leaf that says so.

    Raises:
        UsageError: if it is no graph, or something is no problem of one.
    """
    given: object = graph
    if not isinstance(given, Graph):
        msg = f"{graph!r} cannot be drawn: a Graph is needed, not {type(graph).__name__}."
        raise UsageError(msg)
    marks = tuple(problems)
    if not all(hasattr(mark, "code") for mark in marks):
        msg = f"problems={problems!r}: what graph.check() returns is needed."
        raise UsageError(msg)
    pen = _Pen()
    todo = [_Task(graph, "g0")]
    while todo:
        todo.extend(reversed(pen.draw(todo.pop())))
    drawing = Drawing(tuple(pen.graphs), tuple(pen.nodes), tuple(pen.edges))
    return _marked(drawing, marks)


@dataclass(frozen=True, slots=True)
class _Task:
    """A graph to draw, its id, where it stands, and the graphs that it stands inside of."""

    graph: Graph[Any]
    id: str
    station: Station | None = None
    parent: str | None = None
    inside: tuple[int, ...] = ()


class _Place(NamedTuple):
    """Where edges of a node begin and end, and the graph that it is."""

    entry: str
    exit: str
    graph: str | None = None


@dataclass(slots=True)
class _Pen:
    """Draws one graph after the other, an outer one before those inside it, and gives out ids."""

    graphs: list[DrawnGraph] = field(default_factory=list[DrawnGraph])
    nodes: list[DrawnNode] = field(default_factory=list[DrawnNode])
    edges: list[DrawnEdge] = field(default_factory=list[DrawnEdge])
    node_ids: Iterator[str] = field(default_factory=lambda: (f"n{number}" for number in itertools.count()))
    graph_ids: Iterator[str] = field(default_factory=lambda: (f"g{number}" for number in itertools.count(1)))

    def draw(self, task: _Task) -> list[_Task]:
        """Draw one graph; return those inside it."""
        graph, compiled = task.graph, task.graph.compiled
        start, end = f"{task.id}s", f"{task.id}e"
        facts = graph_facts(graph, task.station)
        self.graphs.append(DrawnGraph(task.id, graph.name, task.parent, len(task.inside), facts, start=start, end=end))
        inside = (*task.inside, id(graph.statements))
        places: dict[Key, _Place] = {Terminal.START: _Place(start, start), Terminal.END: _Place(end, end)}
        inner: list[_Task] = []
        self.nodes.append(DrawnNode(start, "start", "START", task.id))
        for station in in_canonical_order(compiled):
            is_graph = isinstance(station.node, Graph)
            nested = cast("Graph[Any]", station.node) if is_graph else None
            if nested is not None and id(nested.statements) not in inside:
                below = _Task(nested, next(self.graph_ids), station, task.id, inside)
                inner.append(below)
                places[station.name] = _Place(f"{below.id}s", f"{below.id}e", below.id)
            else:
                places[station.name] = self._node(station, task.id, recursive=nested is not None)
        self.nodes.append(DrawnNode(end, "end", "END", task.id))
        self._edges(compiled, task.id, places)
        return inner

    def _node(self, station: Station, graph: str, *, recursive: bool) -> _Place:
        made = next(self.node_ids)
        if recursive:
            self.nodes.append(DrawnNode(made, "recursion", station.name, graph, ("as drawn around it",)))
        else:
            kind = "human" if asks_person(station.node) else station.node.kind
            self.nodes.append(DrawnNode(made, kind, station.name, graph, node_facts(station)))
        return _Place(made, made)

    def _edges(self, compiled: Compiled, graph: str, places: dict[Key, _Place]) -> None:
        joins = set(_join_edges(compiled))
        declared = look_at(compiled.graph).declared_handoffs
        for edge in out_edges(compiled.start):
            self._edge(edge, compiled.start, graph, places, joins)
        for name in list(places):
            if isinstance(name, str):
                station = compiled.stations[name]
                for edge in canonical_edges(station):
                    implied = edge.name.kind == "handoff" and (name, edge.target) not in declared
                    self._edge(edge, station.out, graph, places, joins, implied=implied)
        if compiled.escalate is not None:  # it leads from anywhere: a place of its own stands for that
            bound = next(self.node_ids)
            self.nodes.append(DrawnNode(bound, "bound", "at a bound", graph))
            self._edge(compiled.escalate, None, graph, {**places, Terminal.START: _Place(bound, bound)}, joins)

    def _edge(
        self,
        edge: Edge,
        out: Out | None,
        graph: str,
        places: dict[Key, _Place],
        joins: set[EdgeName],
        *,
        implied: bool = False,
    ) -> None:
        source, target = places[edge.source], places[edge.target]
        collected = collected_at(edge, out)
        self.edges.append(
            DrawnEdge(
                id=f"e{len(self.edges)}",
                kind="join" if edge.name in joins else edge.name.kind,
                name=edge.name,
                graph=graph,
                source=source.exit,
                target=target.entry,
                out_of=source.graph,
                into=target.graph,
                facts=edge_facts(edge, out, implied=implied),
                collected_at=collected if isinstance(collected, str) else None,
            )
        )


def in_canonical_order(compiled: Compiled) -> list[Station]:
    """Return the nodes of a graph in the order in which control gets to them, then the others by name."""
    found: dict[str, Station] = {}
    todo = deque(edge.target for edge in out_edges(compiled.start))
    rest = deque(sorted(compiled.stations))
    while todo or rest:
        name = todo.popleft() if todo else rest.popleft()
        if isinstance(name, Terminal) or name in found:
            continue
        station = found[name] = compiled.stations[name]
        todo.extend(edge.target for edge in canonical_edges(station))
    return list(found.values())


def canonical_edges(station: Station) -> list[Edge]:
    """Return the edges of a node in an order that does not depend on the order of the statements."""
    delegates = sorted(station.delegates.values(), key=_order_of_call)
    handoffs = sorted(station.handoffs.values(), key=lambda edge: str(edge.target))
    errors = sorted(station.errors, key=lambda edge: (edge.label, edge.name.target or ""))
    return [*out_edges(station.out), *delegates, *handoffs, *errors]


def _order_of_call(edge: Edge) -> tuple[list[str], int]:
    """Order by statement, and within a statement as it was written, which is meaning."""
    team = [] if edge.contract is None else [target.name for target in edge.contract.targets]
    return sorted(team), team.index(str(edge.target)) if str(edge.target) in team else 0


def _join_edges(compiled: Compiled) -> Iterator[EdgeName]:
    """Yield the next edges that end a branch of a fork or a lane of a map."""
    for _, out in compiled.outs():
        if isinstance(out, (ForkOut, MapOut)):
            for name in out.region.nodes:
                last = compiled.stations[name].out
                if isinstance(last, NextOut) and last.edge.target == out.region.join:
                    yield last.edge.name


def _marked(drawing: Drawing, problems: Sequence[ProblemLike]) -> Drawing:
    """Mark what has problems."""
    if not problems:
        return drawing
    within = drawing.names()
    codes: dict[str, list[str]] = {}
    for problem in problems:
        for place in dict.fromkeys(_places(problem.where, within, drawing.graphs[0].id)):
            codes.setdefault(place, []).append(shown(problem.code, 32))

    def of(place: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(codes.get(place, ())))

    return Drawing(
        tuple(replace(graph, problems=of(graph.id)) for graph in drawing.graphs),
        tuple(replace(node, problems=of(node.id)) for node in drawing.nodes),
        drawing.edges,
        _problem_lines(problems),
    )


def _places(where: Sequence[str], within: dict[tuple[str, str], str], root: str) -> Iterator[str]:
    """Yield what a problem is about: its names lead through graphs to nodes; others mark their graph."""
    names = deque((where,) if isinstance(where, str) else where)
    graph = root
    while len(names) > 1 and (within.get((graph, names[0])), names[1]) in within:
        graph = within[graph, names.popleft()]
    for name in names or ("",):
        yield within.get((graph, name), graph)


def _problem_lines(problems: Sequence[ProblemLike]) -> tuple[str, ...]:
    lines = tuple(f"{shown(problem.code, 32)}: {shown(problem.message, 200)}" for problem in problems)
    more = len(lines) - MOST_PROBLEMS
    return lines if more <= 0 else (*lines[:MOST_PROBLEMS], f"and {more} more")
