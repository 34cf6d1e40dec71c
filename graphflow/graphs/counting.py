"""What the visits of a graph add up to: node runs, calls, bodies at one moment, depth.

Everything is counted inside out, first the graphs inside a graph. A node counts as often as it is visited, once for
each attempt. Calls of callee nodes share the counters of the activation, or lane, that their caller stands in, so the
bounds of its delegate edges limit all calls in it together, however deep they are nested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from graphflow.graphs.compiled import Edge, ForkOut, Key, MapOut, Station
from graphflow.graphs.flows import Flows, Frame, Level
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import INF, Link, as_graph, key_text, longest, look_at, nested_graphs
from graphflow.graphs.spend import CALLS, NOTHING_SPENT, Spend, all_of, heaviest, plus, times, total
from graphflow.model.budget import Budget
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.tools import Tool

MOST_PATHS: Final = 20_000
"""How many paths `visits` looks below of at most."""

LONGEST_PATH: Final = 32
"""How many names a path may have for `visits` to look below it."""

MANY_CALLERS: Final = 50
"""With more callers than this the calls of all of them are counted together only."""


class AtMost(NamedTuple):
    """What one activation of a graph can do at most."""

    spend: Spend
    concurrent: float
    depth: float


class _Sum(NamedTuple):
    """What a part of an activation comes to; `late` are bodies that run on after the join they came too late for."""

    spend: Spend = NOTHING_SPENT
    running: float = 0
    late: float = 0
    depth: float = 0


class _Part(NamedTuple):
    """A strongly connected part of a level: its sum, and what it is the sum of, visits and the rest.

    The visits of a part, and those of a level, are limited together too.
    """

    sum: _Sum
    each: tuple[tuple[Spend, float], ...]
    extra: Spend


class Counter:
    """The cases of a graph and of all inside it, each worked out once for each depth that is left."""

    def __init__(self, graph: Graph[Any], structure: Counter | None = None) -> None:
        """Take a graph.

        Args:
            graph: the graph.
            structure: the counter of its structure alone, where budgets shall limit what is spent.
        """
        self.graph = graph
        self.budgets = structure is not None
        self.graphs = nested_graphs(graph)
        self.flows: dict[int, Flows] = (
            structure.flows if structure else {id(inner): Flows(look_at(inner)) for inner in self.graphs}
        )
        self.structural: set[str] = set()
        self.open_costs: dict[str, set[str]] = {}
        self._cases: dict[tuple[int, float], AtMost] = {}

    def run(self) -> AtMost:
        """Count, inner graphs first, so that nothing recurs."""
        for inner in self.graphs:
            self._case(inner, INF)
        return self.activation(self.graph, INF)

    def activation(self, graph: Graph[Any], left: float) -> AtMost:
        """Return the case of one activation of a graph, with a depth that is left around it."""
        left = min(left, INF if graph.max_depth is None else graph.max_depth)
        if left >= self._case(graph, INF).depth:
            left = INF
        case = self._case(graph, left)
        if self.budgets and graph.budget is not None:
            return case._replace(spend=case.spend.under(_caps(graph.budget)))
        return case

    def _case(self, graph: Graph[Any], left: float) -> AtMost:
        key = (id(graph), left)
        if key not in self._cases:
            self._cases[key] = _Activation(self, graph, left).case()
        return self._cases[key]

    def why(self, dimension: str) -> str:
        """Say why a number is infinite."""
        reasons = [*sorted(self.open_costs.get(dimension, ())), *sorted(self.structural)]
        more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""  # noqa: PLR2004 - fits a line
        return "; ".join(reasons[:3]) + more

    def visits(self) -> dict[tuple[str, ...], float]:
        """Return how often each node is entered, by the names of its path."""
        found: dict[tuple[str, ...], float] = {}
        line: deque[tuple[Graph[Any], Frame, tuple[str, ...], float, float]] = deque()
        deep = INF if self.graph.max_depth is None else self.graph.max_depth
        line.append((self.graph, self.flows[id(self.graph)].root, (), 1, deep))
        while line:
            graph, frame, prefix, often, left = line.popleft()
            flows = self.flows[id(graph)]
            for domain, lanes in _domains(flows, frame):
                opened = times(often, lanes)
                for key, count in domain.visits.items():
                    if not isinstance(key, str):
                        continue
                    where, entered = (*prefix, key), times(opened, count)
                    found[where] = plus(found.get(where, 0), entered)
                    if not entered or len(found) + len(line) > MOST_PATHS or len(where) > LONGEST_PATH:
                        continue
                    station = flows.look.compiled.stations[key]
                    node = as_graph(station.node)
                    if node is not None:
                        deep = min(left, INF if node.max_depth is None else node.max_depth)
                        inner = self.flows[id(node)].root
                        line.append((node, inner, where, times(entered, node.attempts), deep))
                    for name, edge in station.delegates.items() if left >= 1 else ():
                        calls = times(opened, calls_over(graph, edge))
                        line.append((graph, flows.callee(name), where, calls, left - 1))
        return dict(sorted(found.items()))


def _domains(flows: Flows, frame: Frame) -> list[tuple[Frame, float]]:
    """Return a frame and all lanes inside of it, each with how many there are of it."""
    found: list[tuple[Frame, float]] = [(frame, 1)]
    for domain, often in found:
        for key, lane in domain.lanes.items():
            found.append((lane, times(often, times(domain.visits[key], _items(flows.out(key))))))
    return found


def _items(out: object) -> float:
    return INF if not isinstance(out, MapOut) or out.max_items is None else out.max_items


def _caps(budget: Budget) -> tuple[float | None, ...]:
    return tuple(getattr(budget, name) for name in CALLS)


def calls_over(graph: Graph[Any], edge: Edge) -> float:
    """Return how often a delegate edge can be used in one activation or lane."""
    most = INF if edge.max_hops is None else edge.max_hops
    return most if graph.max_hops is None else min(most, graph.max_hops)


class _Activation:
    """Adds up one activation of a graph, its levels from the innermost to the outermost."""

    def __init__(self, counter: Counter, graph: Graph[Any], left: float) -> None:
        self.counter, self.graph, self.left = counter, graph, left
        self.flows = counter.flows[id(graph)]
        self.stations = graph.compiled.stations
        self.lanes: dict[int, _Sum] = {}

    def case(self) -> AtMost:
        """Return the case."""
        found = self._domain(self.flows.root)
        return AtMost(found.spend, plus(found.running, found.late), min(found.depth, self.left))

    def _domain(self, frame: Frame) -> _Sum:
        """Add up what shares its counters: the frame, or one lane, and the calls from there.

        The calls of each caller are counted with the caller, which is less where not all callers are visited, and all
        together, which is less where they share callees. The lesser holds.
        """
        callers = [key for key in frame.visits if self._delegates(key) and frame.visits[key]]
        together = _Calls(self, callers)
        found = self._levels(frame, {})
        found = found._replace(
            spend=found.spend.and_(together.spend),
            # Where branches can be late for a join, so can their calls.
            running=found.running if found.late else plus(found.running, together.running),
            late=plus(found.late, together.running) if found.late else 0,
            depth=max(found.depth, together.depth),
        )
        if 1 <= len(callers) <= MANY_CALLERS:
            each = self._levels(frame, {key: _Calls(self, [key]) for key in callers})
            fewer = min(found, each, key=lambda way: plus(way.running, way.late))
            spend = found.spend.under(each.spend)
            found = found._replace(spend=spend, running=fewer.running, late=fewer.late)
        return found

    def _delegates(self, key: Key) -> bool:
        return isinstance(key, str) and bool(self.stations[key].delegates) and self.left >= 1

    def _levels(self, frame: Frame, calls: dict[Key, _Calls]) -> _Sum:
        sums: dict[int, _Sum] = {}
        late: float = 0
        found = _Sum()
        for level in reversed(frame.levels):
            scopes = {key: sums[id(scope)] for key, scope in level.scopes.items()}
            scopes |= {key: self._lanes(frame, level, key) for key in frame.lanes if key in level.visits}
            parts = [self._part(level, index, scopes, calls) for index in range(len(level.parts))]
            found = sums[id(level)] = self._level(level, parts)
            late = total((late, found.late, *(scopes[key].late for key in frame.lanes if key in scopes)))
        return found._replace(late=late)

    def _lanes(self, frame: Frame, level: Level, key: Key) -> _Sum:
        """All lanes of a map, for all its visits at one level."""
        out, often = self.flows.out(key), level.visits[key]
        if not often:
            return _Sum()
        items = _items(out)
        if items == INF:
            self.counter.structural.add(f"the map at {key_text(key)!r} has no max_items")
        if id(frame.lanes[key]) not in self.lanes:
            self.lanes[id(frame.lanes[key])] = self._domain(frame.lanes[key])
        lane = self.lanes[id(frame.lanes[key])]
        awaited = items
        if isinstance(out, MapOut) and out.policy.kind == "first":
            awaited = min(items, out.policy.count)
        late = plus(times(items, lane.late), times(0 if awaited == items else items - awaited, lane.running))
        spend = lane.spend.by(times(often, items))
        return _Sum(spend, times(awaited, lane.running), times(often, late), lane.depth)

    def _part(self, level: Level, index: int, scopes: dict[Key, _Sum], calls: dict[Key, _Calls]) -> _Part:
        """Add up one strongly connected part of a level."""
        each: list[tuple[Spend, float]] = []
        beside: list[_Sum] = []
        for key in level.parts[index]:
            often = level.visits[key]
            if not often:
                continue
            if isinstance(key, str):
                if often == INF:
                    self.counter.structural.add(f"nothing bounds the visits of {key!r}")
                node = self.node(key, self.left)
                each.append((node.spend, often))
                beside.append(node._replace(spend=NOTHING_SPENT))
                if key in calls:
                    own = node.running if _works_beside_its_team(self.stations[key].node) else 0
                    beside.append(_Sum(calls[key].spend, plus(own, calls[key].running)))
            if key in scopes:
                beside.append(scopes[key])
        extra = all_of(found.spend for found in beside if found.spend is not NOTHING_SPENT)
        spend = heaviest(each, plus(level.entered[index], level.inner[index]))
        spend = spend.under(self._circulating(level, index, spend)).and_(extra)
        running = max((found.running for found in beside), default=0)
        return _Part(_Sum(spend, running, 0, max((found.depth for found in beside), default=0)), tuple(each), extra)

    def _circulating(self, level: Level, index: int, spend: Spend) -> tuple[float | None, ...]:
        """What the visits of a part spend when they share its edges; None where that is no news."""
        knot = level.knots[index]
        if knot is None:
            return (None,) * len(spend)
        part = level.parts[index]
        each = [self.node(key, self.left).spend if isinstance(key, str) else NOTHING_SPENT for key in part]
        found: list[float | None] = []
        for dimension, amount in enumerate(spend):
            weights = {key: spent[dimension] for key, spent in zip(part, each, strict=True)}
            shared = sum(weight > 0 for weight in weights.values()) > 1
            found.append(knot.heaviest(weights, level.visits) if shared and 0 < amount < INF else None)
        return tuple(found)

    def _level(self, level: Level, found: Sequence[_Part]) -> _Sum:
        parts = [part.sum for part in found]
        best: list[Spend] = [NOTHING_SPENT] * len(parts)
        peak: list[float] = [0] * len(parts)
        for index in reversed(range(len(parts))):
            onward = NOTHING_SPENT
            for follower in level.after[index]:
                onward = onward.over(best[follower])
                peak[index] = max(peak[index], peak[follower])
            best[index] = parts[index].spend.and_(onward)
            peak[index] = max(peak[index], parts[index].running)
        whole = all_of(part.spend for part in parts)
        if level.most < INF:
            visited = [each for part in found for each in part.each]
            extra = all_of(part.extra for part in found)
            whole = heaviest(visited, level.most).and_(extra).under(whole)
        depth = max((part.depth for part in parts), default=0)
        place = {key: index for index, part in enumerate(level.parts) for key in part}
        heads = [place[key] for key, _ in level.heads if key in place]
        peaks = [peak[head] for head in heads]
        if level.source is None:
            return _Sum(all_of(best[head] for head in heads).under(whole), max(peaks, default=0), 0, depth)
        if level.activations <= 1:  # one token for each branch, and each takes one way
            whole = all_of(best[head] for head in heads).under(whole)
        out = self.flows.out(level.source)
        awaited = out.policy.count if isinstance(out, ForkOut) and out.policy.kind == "first" else len(level.heads)
        ordered = sorted([*peaks, *[0] * (len(level.heads) - len(heads))])
        # The least that can have arrived leaves the most that are late: of all branches, those that count twice are
        # the late ones, so what runs before the join is counted without them.
        late = times(level.activations, total(ordered[awaited:]))
        return _Sum(whole, total(ordered[:awaited]), late, depth)

    def node(self, name: str, left: float) -> _Sum:
        """One visit of a node, without what it delegates."""
        station = self.stations[name]
        node = station.node
        attempts = node.attempts
        graph = as_graph(node)
        if graph is not None:
            inner = self.counter.activation(graph, left)
            spend = inner.spend.and_(Spend(1)).by(attempts)
            return _Sum(spend, max(1, inner.concurrent), 0, inner.depth)
        if isinstance(node, Agent):
            return _Sum(_spend_of_agent(node), 1)
        spend = Spend(1, self._cost(station, "model_calls"), self._cost(station, "tool_calls"))
        return _Sum(spend.by(attempts), 1)

    def _cost(self, station: Station, dimension: str) -> float:
        """What one attempt may spend on its own."""
        node = station.node
        why = "does not say what it spends"
        if node.kind in ("join", "human"):
            return 0
        if isinstance(node, FunctionNode):
            if not node.wants_step:
                return 0
            if node.costs is not None:  # what `costs=` leaves out is refused
                amount: int | None = getattr(node.costs, dimension)
                return amount or 0
            why = "takes a step and has no costs="
        self.counter.open_costs.setdefault(dimension, set()).add(f"{station.name!r} {why}")
        return INF


class _Calls:
    """All that some callers of one activation, or lane, delegate, and what is delegated from there."""

    def __init__(self, inside: _Activation, callers: Sequence[Key]) -> None:
        self.inside = inside
        self.stations = inside.stations
        self.away = self._distances([key for key in callers if isinstance(key, str)])
        self.edges = self._edges(callers)
        often: dict[str, float] = {}
        for edge in self.edges:
            target = str(edge.target)
            often[target] = plus(often.get(target, 0), calls_over(inside.graph, edge))
        self.spend = NOTHING_SPENT
        self.running: float = 0
        self.depth: float = 0
        if often:
            self._add_up(inside.flows.calls(often))

    def _distances(self, callers: Sequence[str]) -> dict[str, int]:
        """How many delegations lie at least between the callers and each node that works for them."""
        away: dict[str, int] = {}
        line = deque((target, 1) for name in callers for target in self.stations[name].delegates)
        while line:
            name, distance = line.popleft()
            if distance > self.inside.left or away.get(name, INF) <= distance:
                continue
            away[name] = distance
            station = self.stations[name]
            for edge in (*station.handoffs.values(), *station.errors):
                if isinstance(edge.target, str):
                    line.appendleft((edge.target, distance))
            line.extend((target, distance + 1) for target in station.delegates)
        return away

    def _edges(self, callers: Sequence[Key]) -> list[Edge]:
        """The delegate edges that can be used."""
        found: list[Edge] = []
        for name in sorted({*self.away, *(key for key in callers if isinstance(key, str))}):
            near = 0 if name in callers else self.away[name]
            if near + 1 <= self.inside.left:
                found += self.stations[name].delegates.values()
        return [edge for edge in found if edge.max_hops != 0]

    def _add_up(self, frame: Frame) -> None:
        graph, counter = self.inside.graph, self.inside.counter
        level = frame.levels[0]
        values: dict[str, _Sum] = {}
        for index, part in enumerate(level.parts):
            each: list[tuple[Spend, float]] = []
            for key in part:
                name, often = str(key), frame.visits[key]
                if often:
                    values[name] = self.inside.node(name, self.inside.left - self.away.get(name, 1))
                    each.append((values[name].spend, often))
            spend = heaviest(each, plus(level.entered[index], level.inner[index]))
            self.spend = self.spend.and_(spend)
        for edge in self.edges:
            calls = calls_over(graph, edge)
            if calls == INF:
                message = f"{edge.source!r} delegates to {edge.target!r} without max_hops"
                counter.structural.add(message)
            self.running = plus(self.running, times(calls, self._busiest(str(edge.target), values)))
        self.depth = self._deepest(values)

    def _busiest(self, name: str, values: dict[str, _Sum]) -> float:
        """How many bodies one call can have running, without those that it delegates to in turn."""
        own = self.inside.flows.callee(name).visits
        return max((values[str(key)].running for key in own if str(key) in values), default=0)

    def _deepest(self, values: dict[str, _Sum]) -> float:
        depths: dict[str, float] = {name: value.depth for name, value in values.items()}
        depths.update((str(edge.source), 0) for edge in self.edges if edge.source not in depths)
        graph = self.inside.graph
        links = [Link(str(edge.source), str(edge.target), 1, calls_over(graph, edge)) for edge in self.edges]
        for name in values:
            station = self.stations[name]
            edges = (*station.handoffs.values(), *station.errors)
            links += [Link(name, str(edge.target), 0, 0) for edge in edges if edge.target in values]
        longest(depths, links)
        return min(self.inside.left, max(depths.values(), default=0))


def _spend_of_agent(agent: Agent) -> Spend:
    """One visit of an agent, without what it delegates; its bounds hold for all attempts of the visit together."""
    tools = any(isinstance(tool, Tool) for tool in agent.tools)
    return Spend(agent.attempts, agent.max_turns, agent.max_tool_calls if tools else 0)


def _works_beside_its_team(node: Node[Any]) -> bool:
    """Whether a node can be at work while its callees are: the tools and the delegations of one turn run at once."""
    return isinstance(node, Agent) and any(isinstance(tool, Tool) for tool in node.tools)
