"""The tables of a graph: what the walk looks up, made once from the statements.

Compiling never fails: a graph with problems gives tables too, so that all its problems can be listed and drawn at
once. `run()` refuses such a graph before the tables are used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from graphflow.events import EdgeName
from graphflow.model.state import State
from graphflow.model.thread import History
from graphflow.nodes.base import Node
from graphflow.nodes.edges import (
    Branch,
    ChooseStatement,
    DelegateStatement,
    ErrorStatement,
    FailurePolicy,
    ForkStatement,
    HandoffStatement,
    MapStatement,
    NextStatement,
    Statement,
    Terminal,
)
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.human import Human
from graphflow.nodes.join import ALL, Join, Policy

if TYPE_CHECKING:
    import networkx as nx

    from graphflow.graphs.graph import Graph

Key = str | Terminal
"""A node in the tables: its name, or one of the two ends."""


@dataclass(slots=True, eq=False)
class Edge:
    """One edge, with its bound and its condition.

    Attributes:
        name: its identity.
        source, target: the nodes it joins.
        max_hops: how often it may be taken in one activation, or None.
        bound: what that is called where it is hit, or "".
        test: its condition, or None.
        label: how the condition is drawn.
        catch: for an error edge, the qualified names of the exceptions that it handles.
        contract: for a delegate edge, the statement that declares it.
        history: what of a thread crosses it, or None for what an agent that it leads to says.
        boundary: for a delegate edge, what its briefs say by default is not asked for; made when it is first taken.
        straight: where control can walk straight on: a function that nothing but the budget can keep from being run.
    """

    name: EdgeName
    source: Key
    target: Key
    max_hops: int | None = None
    test: Callable[[State[Any]], bool] | None = None
    label: str = ""
    catch: tuple[str, ...] = ()
    contract: DelegateStatement | None = None
    history: History | None = None
    bound: str = ""
    boundary: str = field(default="", repr=False)  # it holds what instructions say
    straight: Station | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class Region:
    """Where the branches of a fork are before they meet.

    Attributes:
        join: the node at which they meet.
        nodes: every node that a branch can be at.
        merges: for each node, the nodes at which tokens of the scope may have to wait for a token standing there.
        waits: the nodes at which tokens may have to wait for others.
    """

    join: Key
    nodes: frozenset[str]
    merges: dict[str, tuple[str, ...]]
    waits: frozenset[str]


@dataclass(slots=True, eq=False)
class NextOut:
    """The one edge that is always taken."""

    edge: Edge


@dataclass(slots=True, eq=False)
class ForkOut:
    """Edges that are taken at once."""

    edges: tuple[Edge, ...]
    failure: FailurePolicy
    region: Region
    policy: Policy
    losers: Literal["finish", "cancel"]


@dataclass(slots=True, eq=False)
class ChooseOut:
    """Edges of which exactly one is taken."""

    cases: tuple[Edge, ...]
    default: Edge | None

    def chosen(self, state: State[Any]) -> Edge | None:
        """Return the first case that holds, else the default; each condition is asked once at most."""
        for case in self.cases:
            if case.test is None or case.test(state):
                return case
        return self.default


@dataclass(slots=True, eq=False)
class MapOut:
    """One edge that is taken once for each item."""

    edge: Edge
    over: Callable[[State[Any]], Sequence[Any]]
    max_items: int | None
    failure: FailurePolicy
    region: Region
    policy: Policy
    losers: Literal["finish", "cancel"]


Out = NextOut | ForkOut | ChooseOut | MapOut


@dataclass(slots=True, eq=False)
class Station:
    """A node in its graph: the node value with every edge that leaves it.

    Attributes:
        name: its name.
        node: the value; for START there is none.
        out: its next statement, or None.
        onward: the same where a function without `timeout=` and `into=` goes on over one edge, None anywhere else.
        delegates: its delegate edges by the callee's name.
        handoffs: its handoff edges by the target's name.
        errors: its error edges, in canonical order.
        manners: for an agent, how it is asked, by the rights that it has there and what it owes; made as it runs.
    """

    name: str
    node: Node[Any]
    out: Out | None = None
    onward: NextOut | ChooseOut | None = None
    delegates: dict[str, Edge] = field(default_factory=dict[str, Edge])
    handoffs: dict[str, Edge] = field(default_factory=dict[str, Edge])
    errors: tuple[Edge, ...] = ()
    manners: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)  # they hold what instructions say

    def edges(self) -> Iterator[Edge]:
        """Yield every edge that leaves this node."""
        yield from out_edges(self.out)
        yield from self.handoffs.values()
        yield from self.errors
        yield from self.delegates.values()


@dataclass(slots=True, eq=False)
class Compiled:
    """The tables of one graph.

    Attributes:
        graph: the value that they were made from.
        start: the statement of START, or None.
        stations: the nodes by name.
        escalate: the implied edge to the escalate node, or None.
        speaks: whether an agent is somewhere in it; None before somebody has asked.
        views: whether an edge somewhere in it lets more cross to a graph than what arrives; None before somebody asks.
    """

    graph: Graph[Any]
    start: Out | None
    stations: dict[str, Station]
    escalate: Edge | None
    speaks: bool | None = field(default=None, repr=False)
    views: bool | None = field(default=None, repr=False)

    def edges(self) -> Iterator[Edge]:
        """Yield every edge of the graph, those of START first."""
        yield from out_edges(self.start)
        for station in self.stations.values():
            yield from station.edges()
        if self.escalate is not None:
            yield self.escalate

    def flow(self) -> Iterator[Edge]:
        """Yield the edges over which control moves inside a frame: all but delegate and escalate edges."""
        for edge in self.edges():
            if edge.name.kind not in ("delegate", "escalate"):
                yield edge
        for source, out in self.outs():
            if isinstance(out, MapOut):  # an empty map goes to its join at once
                yield Edge(EdgeName(_name(source), "map", _name(out.region.join), 1), source, out.region.join)

    def outs(self) -> Iterator[tuple[Key, Out]]:
        """Yield each next statement with the node that it belongs to."""
        if self.start is not None:
            yield Terminal.START, self.start
        for name, station in self.stations.items():
            if station.out is not None:
                yield name, station.out


def out_edges(out: Out | None) -> tuple[Edge, ...]:
    """Return the edges of a next statement."""
    match out:
        case NextOut() | MapOut():
            return (out.edge,)
        case ForkOut():
            return out.edges
        case ChooseOut():
            return out.cases if out.default is None else (*out.cases, out.default)
        case None:
            return ()


def _name(key: Key) -> str | None:
    return key if isinstance(key, str) else None


def _key(end: Node[Any] | Terminal) -> Key:
    return end if isinstance(end, Terminal) else end.name


NO_REGION = Region(Terminal.END, frozenset(), {}, frozenset())


def compile_graph(graph: Graph[Any]) -> Compiled:
    """Make the tables of a graph."""
    stations: dict[str, Station] = {}
    for mentioned in sorted(graph.mentioned(), key=lambda found: found.name):
        stations.setdefault(mentioned.name, Station(mentioned.name, mentioned))
    start: Out | None = None
    for statement in sorted(graph.statements, key=_by_targets):
        match statement:
            case DelegateStatement():
                _delegates(stations[statement.source.name], statement)
            case HandoffStatement():
                _handoffs(stations[statement.source.name], statement)
            case ErrorStatement():
                pass
            case _ if isinstance(statement.source, Terminal):
                start = start or _out(statement)
            case _:
                station = stations[statement.source.name]
                station.out = station.out or _out(statement)
    for caught in sorted((s for s in graph.statements if isinstance(s, ErrorStatement)), key=_most_exact_first):
        station = stations[caught.source.name]
        station.errors = (*station.errors, _error(caught, len(station.errors)))
    escalate = None
    if graph.escalate is not None:
        escalate = Edge(EdgeName(None, "escalate", graph.escalate.name), Terminal.START, graph.escalate.name)
    compiled = Compiled(graph, start, stations, escalate)
    _give_back_to_givers(compiled)
    _lead_lanes_to_joins(compiled)
    _find_regions(compiled)
    _find_straight_edges(compiled)
    return compiled


def _by_targets(statement: Statement) -> tuple[str, ...]:
    """Order the delegations and handoffs of a node by their targets, and not by where they stand; the rest as it is."""
    if isinstance(statement, DelegateStatement | HandoffStatement):
        return (statement.source.name, *(target.name for target in statement.targets))
    return ()


def _out(statement: NextStatement | ForkStatement | ChooseStatement | MapStatement) -> Out:
    source = _key(statement.source)
    match statement:
        case NextStatement():
            return NextOut(_edge(source, "next", statement.target))
        case ForkStatement():
            branches = tuple(_branch(source, "fork", b, i) for i, b in enumerate(statement.fork.branches))
            return ForkOut(branches, statement.fork.failure, NO_REGION, ALL, "finish")
        case ChooseStatement():
            cases = tuple(_branch(source, "choose", b, i) for i, b in enumerate(statement.cases))
            default = None
            if statement.default is not None:
                default = _edge(source, "choose", statement.default, len(cases))
                default.label = "else"
            return ChooseOut(cases, default)
        case MapStatement():
            edge = _edge(source, "map", statement.lane)
            region = Region(_key(statement.join), frozenset(), {}, frozenset())
            return MapOut(edge, statement.over, statement.max_items, statement.failure, region, ALL, "finish")


_FlowKind = Literal["next", "fork", "choose", "map"]


def _edge(source: Key, kind: _FlowKind, target: Node[Any] | Terminal, position: int = 0) -> Edge:
    to = _key(target)
    return Edge(EdgeName(_name(source), kind, _name(to), position), source, to)


def _branch(source: Key, kind: _FlowKind, branch: Branch[Any], position: int) -> Edge:
    edge = _edge(source, kind, branch.target, position)
    edge.max_hops, edge.test, edge.label, edge.bound = branch.max_hops, branch.test, branch.label, branch.bound
    return edge


def _delegates(station: Station, statement: DelegateStatement) -> None:
    for target in statement.targets:
        name = EdgeName(station.name, "delegate", target.name)
        edge = Edge(name, station.name, target.name, statement.max_hops, contract=statement, history=statement.history)
        station.delegates.setdefault(target.name, edge)


def _handoffs(station: Station, statement: HandoffStatement) -> None:
    for target in statement.targets:
        name = EdgeName(station.name, "handoff", target.name)
        edge = Edge(name, station.name, target.name, statement.max_hops, history=statement.history)
        station.handoffs.setdefault(target.name, edge)


def _error(statement: ErrorStatement, position: int) -> Edge:
    source, target = statement.source.name, _key(statement.target)
    catch = tuple(qualified(kind) for kind in statement.catch)
    edge = Edge(EdgeName(source, "error", _name(target), position), source, target, catch=catch)
    edge.label = "on " + ", ".join(kind.__name__ for kind in statement.catch)
    return edge


def _most_exact_first(statement: ErrorStatement) -> tuple[int, list[str], str]:
    """Order error edges by what they catch, derived classes before their bases, and not by where they stand."""
    target = "" if isinstance(statement.target, Terminal) else statement.target.name
    return (-max(len(kind.__mro__) for kind in statement.catch), sorted(map(qualified, statement.catch)), target)


def qualified(kind: type) -> str:
    """Return the qualified name of a class, as it stands in a recorded failure."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _give_back_to_givers(compiled: Compiled) -> None:
    """A `Human` entered by a handoff gives control back: an edge of its own to each giver that has none to it."""
    for station in compiled.stations.values():
        for edge in station.handoffs.values():
            person = compiled.stations[str(edge.target)]
            if isinstance(person.node, Human):
                name = EdgeName(person.name, "handoff", station.name)
                person.handoffs.setdefault(station.name, Edge(name, person.name, station.name, history="full"))


def _lead_lanes_to_joins(compiled: Compiled) -> None:
    """Give every open end of a lane an edge to the map's join, the innermost map first."""
    maps = [out for _, out in compiled.outs() if isinstance(out, MapOut)]
    for out in sorted(maps, key=lambda found: len(_reachable(compiled, [found.edge.target], found.region.join))):
        for name in sorted(_reachable(compiled, [out.edge.target], out.region.join)):
            station = compiled.stations[name]
            if station.out is None:
                join = out.region.join
                station.out = NextOut(Edge(EdgeName(name, "next", _name(join)), name, join))


def _reachable(compiled: Compiled, heads: Sequence[Key], stop: Key) -> set[str]:
    """Return the nodes that control can reach from some nodes, themselves included, without passing another."""
    found: set[str] = set()
    todo = [head for head in heads if head != stop and isinstance(head, str)]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        station = compiled.stations[name]
        edges = (*out_edges(station.out), *station.handoffs.values(), *station.errors)
        todo.extend(edge.target for edge in edges if isinstance(edge.target, str) and edge.target != stop)
        if (
            isinstance(station.out, MapOut)
            and isinstance(station.out.region.join, str)
            and station.out.region.join != stop
        ):
            todo.append(station.out.region.join)
    return found


def _find_regions(compiled: Compiled) -> None:
    """Find each fork's join and region; a map names its join."""
    scopes = [(source, out) for source, out in compiled.outs() if isinstance(out, (ForkOut, MapOut))]
    if not scopes:
        return
    ancestors = _post_dominators(compiled) if any(isinstance(out, ForkOut) for _, out in scopes) else {}
    for _, out in scopes:
        heads = [edge.target for edge in out_edges(out)]
        join = out.region.join if isinstance(out, MapOut) else _meeting(heads, ancestors)
        out.region = _region(compiled, heads, join)
        station = compiled.stations.get(join) if isinstance(join, str) else None
        if station is not None and isinstance(station.node, Join):
            out.policy, out.losers = station.node.policy, station.node.losers


def _find_straight_edges(compiled: Compiled) -> None:
    """Mark the edges that control can walk straight on over if their bounds allow it, and what functions go on by."""
    if compiled.graph.detect:
        return
    for source, out in compiled.outs():
        for edge in out_edges(out):
            station = compiled.stations.get(str(edge.target)) if isinstance(edge.target, str) else None
            node = None if station is None else station.node
            if type(node) is FunctionNode and node.max_visits is None and node.timeout is None:
                edge.straight = station
        before = compiled.stations.get(source) if isinstance(source, str) else None
        function: Any = None if before is None else before.node
        if before is None or not isinstance(out, (NextOut, ChooseOut)):
            continue
        if type(function) is FunctionNode and function.timeout is None and function.into is None:
            before.onward = out


def _post_dominators(compiled: Compiled) -> dict[Hashable, Hashable]:
    import networkx as nx

    backwards: nx.DiGraph[Any] = nx.DiGraph()
    backwards.add_node(Terminal.END)
    backwards.add_edges_from((edge.target, edge.source) for edge in compiled.flow())
    above: dict[Hashable, Hashable] = dict(nx.immediate_dominators(backwards, Terminal.END))
    return above


def _meeting(heads: Sequence[Key], above: dict[Hashable, Hashable]) -> Key:
    """Return the first node that every path from every head to END passes; a head may be that node itself."""
    lines: list[list[Hashable]] = []
    for head in heads:
        line: list[Hashable] = [head]
        while (up := above.get(line[-1])) is not None and up != line[-1]:
            line.append(up)
        if line[-1] is Terminal.END:  # a head with no way to END is a problem of its own
            lines.append(line)
    if not lines:
        return Terminal.END
    shared = set(lines[0]).intersection(*lines[1:])
    met = next(key for key in lines[0] if key in shared)
    return met if isinstance(met, (str, Terminal)) else Terminal.END


def _region(compiled: Compiled, heads: Sequence[Key], join: Key) -> Region:
    nodes = _reachable(compiled, heads, join)
    entries: dict[str, int] = dict.fromkeys(nodes, 0)
    inner: list[tuple[str, str]] = []
    for head in heads:
        if head in entries:
            entries[str(head)] += 1
    for name in nodes:
        station = compiled.stations[name]
        targets = [edge.target for edge in (*out_edges(station.out), *station.handoffs.values(), *station.errors)]
        if isinstance(station.out, MapOut):
            targets.append(station.out.region.join)
        for target in targets:
            if target in entries:
                entries[str(target)] += 1
                inner.append((name, str(target)))
    waits = frozenset(name for name, count in entries.items() if count > 1)
    return Region(join, frozenset(nodes), _merges(inner, waits), waits)


def _merges(inner: Sequence[tuple[str, str]], waits: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """For each node of a region, the waiting places that a token standing there can still reach."""
    if not waits:
        return {}
    import networkx as nx

    flow: nx.DiGraph[Any] = nx.DiGraph(inner)
    flow.add_nodes_from(waits)
    found: dict[str, list[str]] = {}
    for place in sorted(waits):
        before: set[str] = set(cast("Any", nx).ancestors(flow, place))
        if any(after == place or after in before for after in flow.successors(place)):  # it lies on a cycle
            before.add(place)
        for name in before:
            found.setdefault(name, []).append(place)
    return {name: tuple(places) for name, places in found.items()}
