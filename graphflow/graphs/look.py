"""What the checks look at: a graph with its tables, how control can reach its nodes, and the problems found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from graphflow.graphs.compiled import Compiled, Edge, ForkOut, Key, MapOut, out_edges
from graphflow.graphs.graph import Graph
from graphflow.nodes.edges import HandoffStatement, Terminal

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

INF = float("inf")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, or doubtful, in a graph.

    Attributes:
        code: the rule that found it.
        where: the names of the nested graphs around it, then of the nodes that it is about.
        message: what was found.
        hint: what to do about it.
        severity: "error" refuses the graph, "warning" does not.

    >>> print(Problem("unreachable", ("audit",), "nothing leads to 'audit'.", "Lead an edge to it."))
    error unreachable: nothing leads to 'audit'. Lead an edge to it.
    """

    code: str
    where: tuple[str, ...]
    message: str
    hint: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """Say it on one line."""
        return f"{self.severity} {self.code}: {self.message} {self.hint}"


@dataclass(frozen=True, slots=True)
class Scope:
    """A fork or map with the node that it belongs to."""

    source: Key
    out: ForkOut | MapOut

    @property
    def heads(self) -> tuple[Key, ...]:
        """Where the branches or lanes begin."""
        return tuple(edge.target for edge in out_edges(self.out))

    @property
    def lanes(self) -> bool:
        """Whether several lanes can stand at the same nodes at once."""
        return isinstance(self.out, MapOut) and (self.out.max_items is None or self.out.max_items > 1)


class Look:
    """One graph as the rules see it; what several rules need is worked out once, and kept with the graph.

    Attributes:
        graph: the graph.
        compiled: its tables.
        max_depth: the least `max_depth` of it and of the graphs around it.
    """

    def __init__(self, graph: Graph[Any], max_depth: float) -> None:
        """Take a graph, and the least `max_depth` of the graphs around it."""
        self.graph = graph
        self.compiled: Compiled = graph.compiled
        self.max_depth = min(max_depth, INF if graph.max_depth is None else graph.max_depth)

    @functools.cached_property
    def flow(self) -> tuple[Edge, ...]:
        """The edges over which control moves inside a frame."""
        return tuple(self.compiled.flow())

    @functools.cached_property
    def after(self) -> dict[Key, list[Edge]]:
        """The flow by source."""
        return grouped(self.flow, lambda edge: edge.source)

    @functools.cached_property
    def before(self) -> dict[Key, list[Edge]]:
        """The flow by target."""
        return grouped(self.flow, lambda edge: edge.target)

    @functools.cached_property
    def reached(self) -> set[str]:
        """The nodes that the root token of an activation can come to."""
        heads = [edge.target for edge in self.after.get(Terminal.START, ())]
        if self.compiled.escalate is not None:
            heads.append(self.compiled.escalate.target)
        return names_of(reach(heads, lambda key: [edge.target for edge in self.after.get(key, ())]))

    @functools.cached_property
    def callees(self) -> set[str]:
        """The nodes that can be entered in the frame of a callee node: by delegation, handoff or error edge."""
        stations = self.compiled.stations
        heads = [target for station in stations.values() for target in station.delegates]
        return names_of(reach(heads, self.in_frame))

    @functools.cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The forks and maps that are live somewhere."""
        return tuple(
            Scope(source, out)
            for source, out in self.compiled.outs()
            if isinstance(out, (ForkOut, MapOut)) and (source in self.reached or source is Terminal.START)
        )

    @functools.cached_property
    def declared_handoffs(self) -> set[tuple[str, str]]:
        """The handoff edges that stand in a statement; a person gives control back without one."""
        return {
            (statement.source.name, target.name)
            for statement in self.graph.statements
            if isinstance(statement, HandoffStatement)
            for target in statement.targets
        }

    @functools.cached_property
    def unvisited(self) -> set[Key]:
        """The nodes at which a merge can fail and take an error edge although `max_visits` allows no visit."""
        stations = self.compiled.stations
        merging: set[Key] = set()
        for scope in self.scopes:
            merging |= {scope.out.region.join, *scope.out.region.waits}
        return {key for key in names_of(merging) if stations[key].errors and stations[key].node.max_visits is not None}

    def past(self, keys: Iterable[Key]) -> list[Key]:
        """Return where merges that fail at some nodes lead."""
        failing = [key for key in keys if key in self.unvisited]
        return [edge.target for key in failing for edge in self.compiled.stations[str(key)].errors]

    def loose(self, edge: Edge) -> bool:
        """Tell whether neither the edge nor `max_handoffs` bounds how often an edge can be taken."""
        if edge.name.kind != "handoff" or self.graph.max_handoffs is None:
            return edge.max_hops is None
        return (edge.name.source, edge.name.target) not in self.declared_handoffs

    def in_frame(self, key: Key) -> list[Key]:
        """Where control can go from a node in the frame of a callee node, into the frames of its callees too."""
        station = self.compiled.stations.get(key) if isinstance(key, str) else None
        if station is None:
            return []
        edges = (*station.handoffs.values(), *station.errors, *station.delegates.values())
        return [edge.target for edge in edges]


def look_at(graph: Graph[Any], max_depth: float = INF) -> Look:
    """Look at a graph, once for each least `max_depth` of the graphs around it."""
    kept: dict[float, Look] = graph.__dict__.setdefault("_looks", {})
    if max_depth not in kept:
        kept[max_depth] = Look(graph, max_depth)
        for other in kept.values():  # only the limit differs
            kept[max_depth].__dict__ = {**other.__dict__, **kept[max_depth].__dict__}
    return kept[max_depth]


def as_graph(node: object) -> Graph[Any] | None:
    """Return a node that is a graph, typed as one, or None."""
    found: Any = node
    return found if isinstance(node, Graph) else None


def grouped(edges: Iterable[Edge], key: Callable[[Edge], Key]) -> dict[Key, list[Edge]]:
    """Return the edges by one of their ends."""
    found: dict[Key, list[Edge]] = {}
    for edge in edges:
        found.setdefault(key(edge), []).append(edge)
    return found


def reach(starts: Iterable[H], steps: Callable[[H], Iterable[H]]) -> set[H]:
    """Return all that steps lead to, the starts included."""
    found: set[H] = set()
    todo = list(starts)
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo.extend(steps(at))
    return found


def names_of(keys: Iterable[Key]) -> set[str]:
    """Return the nodes among some keys, without START and END."""
    return {key for key in keys if isinstance(key, str)}


def key_text(key: Key) -> str:
    """Return a node's name, START or END, as messages show it."""
    return key if isinstance(key, str) else key.value


def knots(edges: Iterable[tuple[H, H]]) -> list[set[H]]:
    """Return the strongly connected parts that hold a cycle.

    What cannot lie on a cycle is taken away first: most graphs are done then, without the import of networkx.
    """
    rest = _trimmed(_trimmed(list(edges)), backwards=True)
    if not rest:
        return []
    import networkx as nx

    made: nx.DiGraph[H] = nx.DiGraph(rest)
    return [set(part) for part in nx.strongly_connected_components(made) if len(part) > 1 or _loops(made, part)]


def _loops(made: Any, part: Iterable[Any]) -> bool:
    return any(made.has_edge(node, node) for node in part)


def _trimmed(edges: Sequence[tuple[H, H]], *, backwards: bool = False) -> list[tuple[H, H]]:
    """Return the edges without those that leave a node into which, again and again, nothing leads."""
    pairs = [(b, a) for a, b in edges] if backwards else list(edges)
    after: dict[H, list[H]] = {}
    count: dict[H, int] = {}
    for a, b in pairs:
        after.setdefault(a, []).append(b)
        count[b] = count.get(b, 0) + 1
    todo = [node for node in after if node not in count]
    gone: set[H] = set()
    while todo:
        node = todo.pop()
        gone.add(node)
        for other in after.get(node, ()):
            count[other] -= 1
            if not count[other]:
                todo.append(other)
    return [(a, b) for a, b in edges if a not in gone and b not in gone]


def a_cycle(knot: set[str], edges: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return a shortest cycle through the first node of a knot, in order."""
    after: dict[str, list[str]] = {}
    for a, b in edges:
        if a in knot and b in knot:
            after.setdefault(a, []).append(b)
    home = min(knot)
    came: dict[str, str] = {}
    line = [home]
    for at in line:
        for to in sorted(after.get(at, ())):
            if to == home:
                way = [at]
                while way[-1] != home:
                    way.append(came[way[-1]])
                return tuple(reversed(way))
            if to not in came:
                came[to] = at
                line.append(to)
    return (home,)


def nested_graphs(graph: Graph[Any]) -> list[Graph[Any]]:
    """Return each distinct graph inside a graph once and the graph itself last; inner ones come before outer ones."""
    found: dict[int, Graph[Any]] = {}
    seen: set[int] = set()
    todo: list[tuple[Graph[Any], bool]] = [(graph, False)]
    while todo:
        at, done = todo.pop()
        if done:
            found.setdefault(id(at), at)
        elif id(at) not in seen:
            seen.add(id(at))
            todo.append((at, True))
            inner = {id(node): held for node in at.mentioned() if (held := as_graph(node)) is not None}
            todo.extend((held, False) for held in inner.values())
    return list(found.values())


def kept_inside_out(graph: Graph[Any], name: str, make: Callable[[Graph[Any]], T]) -> T:
    """Return what is worked out of a graph and of the graphs inside it, once for each; inner ones come first."""
    if name not in graph.__dict__:
        for inner in nested_graphs(graph):
            if name not in inner.__dict__:
                inner.__dict__[name] = make(inner)
    found: T = graph.__dict__[name]
    return found


def delegation_depths(graph: Graph[Any]) -> dict[str, float]:
    """Return for each node how deep delegations can be nested below a frame that begins with it."""
    return kept_inside_out(graph, "_delegation_depths", _delegation_depths)


def _delegation_depths(graph: Graph[Any]) -> dict[str, float]:
    stations = graph.compiled.stations
    depths: dict[str, float] = {}
    for name, station in stations.items():
        node = as_graph(station.node)
        inside = 0 if node is None else max(delegation_depths(node).values(), default=0)
        depths[name] = inside if node is None or node.max_depth is None else min(inside, node.max_depth)
    links = [
        Link(name, edge.target, *((1, INF) if edge.name.kind == "delegate" else (0, 0)))
        for name, station in stations.items()
        for edge in (*station.delegates.values(), *station.handoffs.values(), *station.errors)
        if isinstance(edge.target, str)
    ]
    if any(link.weight for link in links):
        longest(depths, links)
    return depths


class Link(NamedTuple):
    """One step of a way whose length is asked.

    Attributes:
        source, target: from where to where.
        weight: what it adds.
        within: what it adds in all where it lies on a cycle.
    """

    source: Hashable
    target: Hashable
    weight: int
    within: float


def longest(lengths: dict[H, float], links: Sequence[Link]) -> None:
    """Raise each length to that of the longest way from there, where each way ends with the length of its last node.

    >>> lengths = {"a": 0.0, "b": 5.0}
    >>> longest(lengths, [Link("a", "b", 1, 1)])
    >>> lengths
    {'a': 6.0, 'b': 5.0}
    """
    part: dict[Hashable, Hashable] = {name: name for name in lengths}
    for knot in knots((link.source, link.target) for link in links):
        part.update(dict.fromkeys(knot, min(knot, key=str)))
    found: dict[Hashable, float] = {}
    for name, length in lengths.items():
        found[part[name]] = max(length, found.get(part[name], 0))
    cycles: dict[Hashable, float] = {}
    before: dict[Hashable, list[tuple[Hashable, int]]] = {}
    open_ends: dict[Hashable, int] = dict.fromkeys(found, 0)
    for source, target, weight, within in links:
        if part[source] == part[target]:
            cycles[part[source]] = cycles.get(part[source], 0) + within
        else:
            before.setdefault(part[target], []).append((part[source], weight))
            open_ends[part[source]] += 1
    todo = [at for at, count in open_ends.items() if not count]
    while todo:
        at = todo.pop()
        found[at] += cycles.get(at, 0)
        for other, weight in before.get(at, ()):
            found[other] = max(found[other], found[at] + weight)
            open_ends[other] -= 1
            if not open_ends[other]:
                todo.append(other)
    lengths.update((name, found[part[name]]) for name in lengths)


def loose_edges(look: Look) -> list[tuple[str, str]]:
    """Return the flow between nodes that no bound limits.

    A branch that fails at a bound inside a scope which collects failures leads on to the join all the same, so such a
    scope counts as an edge of its own.
    """
    graph, stations = look.graph, look.compiled.stations
    if graph.max_hops is not None:
        return []
    pairs = [(edge.source, edge.target) for edge in look.flow if look.loose(edge)]
    pairs += [(scope.source, scope.out.region.join) for scope in look.scopes if scope.out.failure == "collect"]
    pairs += [(a, to) for a, b in pairs for to in look.past([b])]
    free = {name for name, station in stations.items() if station.node.max_visits is None}
    return [(a, b) for a, b in pairs if isinstance(a, str) and isinstance(b, str) and a in free and b in free]
