"""How often control can come to each node of a frame: upper bounds from the structure alone.

Forks and maps are collapsed, so that at each *level* a token is at one node: what stands between a fork and its join
is a level of its own, activated as often as the fork is visited. In a level a token passes each strongly connected
part once (inside a branch the readiness rule merges tokens before a cycle), and in such a part the visits of a node
are a maximum flow into it, from the ways in and from the node itself, with the bounds as capacities: the ways by
which a node is reached again and again share no traversal. Lanes of a map count anew, so each is a frame of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphflow.graphs.compiled import Edge, ForkOut, Key, MapOut, Out, out_edges
from graphflow.graphs.knot import Knot, Way, distances
from graphflow.graphs.look import INF, Link, Look, knots, longest, reach
from graphflow.nodes.edges import Terminal


@dataclass(slots=True, eq=False)
class Level:
    """Nodes at which one token is at a time, or one for each branch.

    Attributes:
        source: the fork that it belongs to; None for the outermost level of a frame or lane.
        heads: where its tokens begin, with how often.
        activations: how often it is begun.
        around: the forks and maps that it stands in.
        visits: how often each node can be visited here; a fork's own error edge can lead into its branches too.
        scopes: the level of each fork here.
        parts: its strongly connected parts, in the order of control.
        after: for each part, by number, those that follow it.
        entered: for each part, how often tokens come into it.
        inner: for each part, how often edges inside of it can be taken.
        knots: for each part that has a cycle and can be entered, the ways inside of it.
        most: how many visits there can be in all, where `max_hops` or `max_handoffs` of the graph says so.
    """

    source: Key | None
    heads: list[tuple[Key, float]]
    activations: float
    around: tuple[Key, ...] = ()
    visits: dict[Key, float] = field(default_factory=dict[Key, float])
    scopes: dict[Key, Level] = field(default_factory=dict[Key, "Level"])
    parts: list[tuple[Key, ...]] = field(default_factory=list[tuple[Key, ...]])
    after: list[set[int]] = field(default_factory=list[set[int]])
    entered: list[float] = field(default_factory=list[float])
    inner: list[float] = field(default_factory=list[float])
    knots: list[Knot | None] = field(default_factory=list["Knot | None"])
    most: float = INF


@dataclass(slots=True, eq=False)
class Frame:
    """A frame, or one lane of a map: what has counters of its own.

    Attributes:
        levels: the outermost first; a fork's level comes after the one in which the fork stands.
        visits: how often each node can be visited, at all levels together.
        lanes: for each map, one lane.
        escalate: whether an escalated token can come on top.
    """

    levels: list[Level] = field(default_factory=list[Level])
    visits: dict[Key, float] = field(default_factory=dict[Key, float])
    lanes: dict[Key, Frame] = field(default_factory=dict[Key, "Frame"])
    escalate: str | None = None


class Flows:
    """The frames of one graph, each worked out when it is asked for."""

    def __init__(self, look: Look) -> None:
        """Take the graph."""
        self.look = look
        self._callees: dict[str, Frame] = {}
        self._root: Frame | None = None

    @property
    def root(self) -> Frame:
        """The frame of an activation of the graph."""
        if self._root is None:
            self._root = self._frame([(Terminal.START, 1)], 1, escalate=True)
        return self._root

    def callee(self, name: str) -> Frame:
        """The frame of one call of a node: only its handoff and error edges are live."""
        if name not in self._callees:
            self._callees[name] = self.calls({name: 1})
        return self._callees[name]

    def calls(self, often: Mapping[str, float]) -> Frame:
        """The frames of all calls of nodes, taken together: they share the counters of who called.

        Args:
            often: how often each node is called.
        """
        return self._frame(list(often.items()), sum(often.values()), called=True)

    def out(self, key: Key) -> Out | None:
        """Return the next statement of a node or of START."""
        if isinstance(key, Terminal):
            return self.look.compiled.start if key is Terminal.START else None
        return self.look.compiled.stations[key].out

    def ways(self, key: Key, stop: Key | None, *, called: bool) -> list[Way]:
        """Return the ways on from a node at its level, which ends at END and where its branches meet."""
        out = None if called else self.out(key)
        if isinstance(out, (ForkOut, MapOut)):
            found = [Way(out.region.join, self._passes(key, out))]
        else:
            found = [Way(edge.target, _cap(edge)) for edge in out_edges(out)]
        station = self.look.compiled.stations.get(key) if isinstance(key, str) else None
        if station is not None:
            most = INF if self.look.graph.max_handoffs is None else self.look.graph.max_handoffs
            for name, edge in station.handoffs.items():
                declared = (station.name, name) in self.look.declared_handoffs
                found.append(Way(name, min(most, _cap(edge)), 1) if declared else Way(name, hops=0))
            found += [Way(edge.target) for edge in station.errors]
        found = [way for way in found if way.target not in (Terminal.END, stop)]
        for way in list(found):  # a merge that fails takes the error edges of its node, which is not visited then
            if way.target in self.look.unvisited:
                errors = self.look.compiled.stations[str(way.target)].errors
                found += [Way(edge.target, way.cap, hops=way.hops) for edge in errors]
        return [way for way in found if way.target not in (Terminal.END, stop)]

    def _passes(self, source: Key, out: ForkOut | MapOut) -> float:
        """How often a fork can be passed because of the bounds inside of it; a failure that is collected passes too."""
        if out.failure == "collect" or isinstance(out, MapOut):
            return INF  # a map of nothing goes to its join at once
        graph, stations, region = self.look.graph, self.look.compiled.stations, out.region
        if isinstance(source, Terminal) or isinstance(region.join, Terminal):
            return INF  # not on a cycle

        def free(key: Key) -> bool:
            return key not in region.nodes or stations[str(key)].node.max_visits is None

        def steps(key: Key) -> list[Key]:
            if key not in region.nodes or not free(key):
                return []
            inner = stations[str(key)].out
            jump = [inner.region.join] if isinstance(inner, ForkOut) and inner.failure == "collect" else []
            edges = self.look.after.get(key, ())
            onward = jump + [edge.target for edge in edges if self.look.loose(edge)]
            return onward + self.look.past(onward)

        heads = [edge.target for edge in out.edges if edge.max_hops is None]
        if region.join in reach(heads + self.look.past(heads), steps):
            return INF
        edges = [*out.edges, *(edge for name in region.nodes for edge in self.look.after.get(name, ()))]
        caps = [edge.max_hops for edge in edges if edge.max_hops is not None]
        visits = (stations[name].node.max_visits for name in region.nodes)
        return sum(caps) + sum(most for most in visits if most is not None) + (graph.max_handoffs or 0)

    def _frame(
        self,
        heads: Sequence[tuple[Key, float]],
        activations: float,
        *,
        called: bool = False,
        escalate: bool = False,
    ) -> Frame:
        frame = Frame()
        top = Level(None, [*heads], activations)
        implied = self.look.compiled.escalate
        if escalate and implied is not None:
            frame.escalate = str(implied.target)
            top.heads.append((frame.escalate, 1))
        todo: list[tuple[Frame, Level, Key | None]] = [(frame, top, None)]
        while todo:
            inside, level, end = todo.pop()
            inside.levels.append(level)
            _Counting(self, inside, level, end, called=called).run()
            if called:
                continue
            for key, often in level.visits.items():
                out, around = self.out(key), (*level.around, key)
                if key in level.around:
                    continue  # a branch that leads back to its fork is an error, and no reason to count for ever
                if isinstance(out, ForkOut):
                    starts = [(edge.target, min(often, _cap(edge))) for edge in out.edges]
                    level.scopes[key] = Level(key, starts, often, around)
                    todo.append((inside, level.scopes[key], out.region.join))
                elif isinstance(out, MapOut) and key not in inside.lanes:
                    lane = inside.lanes[key] = Frame()
                    todo.append((lane, Level(None, [(out.edge.target, 1)], 1, around), out.region.join))
        return frame


def _cap(edge: Edge) -> float:
    return INF if edge.max_hops is None else edge.max_hops


class _Counting:
    """Fills one level and the visits of its nodes."""

    def __init__(self, flows: Flows, frame: Frame, level: Level, stop: Key | None, *, called: bool) -> None:
        self.flows, self.frame, self.level = flows, frame, level
        self.graph = flows.look.graph
        self.stations = flows.look.compiled.stations
        outside = (Terminal.END, stop)
        self.heads = [(key, often) for key, often in level.heads if key not in outside]
        self.ways: dict[Key, list[Way]] = {}

        def steps(key: Key) -> list[Key]:
            self.ways[key] = flows.ways(key, stop, called=called)
            return [way.target for way in self.ways[key]]

        self.nodes = reach([key for key, _ in self.heads], steps)
        self.escalated: set[Key] = set()
        self.rooted: set[Key] = set()
        if level.source is None and frame.escalate is not None:
            self.escalated = self._from(frame.escalate)
            self.rooted = self._from(Terminal.START)

    def _from(self, head: Key) -> set[Key]:
        return reach([head], lambda key: [way.target for way in self.ways.get(key, ())])

    def run(self) -> None:
        """Go through the parts in the order of control."""
        pairs = [(key, way.target) for key in self.nodes for way in self.ways[key]]
        part_of: dict[Key, int] = {}
        parts: list[tuple[Key, ...]] = []
        tangled = knots(pairs)
        knotted = set[Key]().union(*tangled)
        for members in (*(tuple(knot) for knot in tangled), *((key,) for key in self.nodes - knotted)):
            part_of.update(dict.fromkeys(members, len(parts)))
            parts.append(members)
        order = _topological(len(parts), ((part_of[a], part_of[b]) for a, b in pairs))
        place = {number: index for index, number in enumerate(order)}
        self.level.parts = [parts[number] for number in order]
        self.level.after = [set() for _ in order]
        self.level.inner = [0 for _ in order]
        self.level.entered = [0 for _ in order]
        self.level.knots = [None for _ in order]
        inflow: dict[Key, float] = dict.fromkeys(self.nodes, 0)
        for key, often in self.heads:
            inflow[key] += often
        starts: dict[Key, int] = dict.fromkeys((key for key, _ in self.heads), 0)
        given = distances(starts, self.ways, handoffs=True) if self.graph.max_handoffs is not None else {}
        if Terminal.START in starts:
            starts[Terminal.START] = -1  # leaving START may not count as a hop
        far = distances(starts, self.ways, handoffs=False) if self.graph.max_hops is not None else {}
        self.level.most = self._most_visits()
        for index, members in enumerate(self.level.parts):
            self._part(index, members, inflow, knotted, (far, given))
            for key in members:
                for way in self.ways[key]:
                    follower = place[part_of[way.target]]
                    if follower != index:
                        self.level.after[index].add(follower)
                        inflow[way.target] += min(way.cap, self.level.visits[key])

    def _part(
        self,
        index: int,
        members: tuple[Key, ...],
        inflow: Mapping[Key, float],
        knotted: set[Key],
        far: tuple[dict[Key, int], dict[Key, int]],
    ) -> None:
        activations = self.level.activations
        if self.rooted:
            activations = sum((members[0] in self.escalated, members[0] in self.rooted))
        supply = min(activations, sum(inflow[key] for key in members))
        counted: dict[Key, float] = dict.fromkeys(members, supply)
        knot = None
        if supply and members[0] in knotted:
            knot = Knot(self.ways, {key: self._most(key) for key in members}, inflow, supply)
            counted = knot.visits()
            self.level.inner[index] = self._inner(knot)
            self.level.knots[index] = knot
        self.level.entered[index] = supply
        bounds = ((self.graph.max_hops, far[0], False), (self.graph.max_handoffs, far[1], True))
        for key in members:
            most = min(counted[key], self._most(key), self.level.most)
            for limit, distance, handoffs in bounds:
                if limit is not None:
                    ahead = distance.get(key, 0) if supply <= 1 and self.level.source is None else 0
                    most = min(
                        most, _limited(limit, supply, ahead, knot.way_back(key, handoffs=handoffs) if knot else None)
                    )
            self.level.visits[key] = most
            self.frame.visits[key] = min(self.frame.visits.get(key, 0) + most, self._most(key))

    def _most_visits(self) -> float:
        begun = sum(often for _, often in self.heads)
        most = INF
        ways = [way for ways in self.ways.values() for way in ways]
        if self.graph.max_hops is not None and all(way.hops for way in ways):
            most = self.graph.max_hops + begun
        if self.graph.max_handoffs is not None:
            lengths: dict[Key, float] = {key: int(isinstance(key, str)) for key in self.nodes}
            kept = [
                Link(key, way.target, int(isinstance(key, str)), INF)
                for key in self.nodes
                for way in self.ways[key]
                if not way.handoffs
            ]
            longest(lengths, kept)  # between two handoffs control goes on over other edges
            if max(lengths.values(), default=INF) < INF:
                most = min(most, (self.graph.max_handoffs + begun) * max(lengths.values()))
        return most

    def _most(self, key: Key) -> float:
        most = self.stations[key].node.max_visits if isinstance(key, str) else 1
        return INF if most is None else most

    def _inner(self, knot: Knot) -> float:
        """How many edges inside a part can be taken in all."""
        inside = [way for ways in knot.inside.values() for way in ways]
        most: float = sum(way.cap for way in inside)
        for limit, counts in (
            (self.graph.max_hops, (way.hops for way in inside)),
            (self.graph.max_handoffs, (way.handoffs for way in inside)),
        ):
            if limit is not None and all(counts):
                most = min(most, limit)
        return most


def _limited(limit: int, supply: float, ahead: int, back: int | None) -> float:
    """How often a node is visited when all edges, or all handoffs, of a frame are bounded together."""
    if ahead > limit:
        return 0
    if back is None:
        return supply
    return INF if back == 0 or supply == INF else supply + (limit - max(ahead, 0)) // back


def _topological(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    after: dict[int, set[int]] = {}
    for a, b in pairs:
        if a != b:
            after.setdefault(a, set()).add(b)
    waiting = [0] * count
    for followers in after.values():
        for b in followers:
            waiting[b] += 1
    order = [number for number in range(count) if not waiting[number]]
    for number in order:
        for b in sorted(after.get(number, ())):
            waiting[b] -= 1
            if not waiting[b]:
                order.append(b)
    return order
