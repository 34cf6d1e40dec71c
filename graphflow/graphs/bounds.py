"""`worst_case`: upper bounds for any run of a graph, proved from its structure before it runs.

Everything is counted inside out. A frame adds up its nodes, each as often as control can come to it (`flows`), with
what nested graphs and delegations spend; what one delegation spends is the frame of its callee, one level less deep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from graphflow.graphs.compiled import ForkOut, Key, MapOut, Station
from graphflow.graphs.flows import Flows, Frame, Level
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import INF, Look, delegation_depths, nested_graphs
from graphflow.model.budget import Budget
from graphflow.model.frozen import FrozenDict
from graphflow.nodes.function import FunctionNode

CALLS: Final = ("node_runs", "model_calls", "tool_calls")
"""What adds up and can be budgeted."""

DIMENSIONS: Final = (*CALLS, "concurrent", "depth")

DEEPEST: Final = 100
"""Recursion that may go deeper is counted as endless: its numbers would have as many digits."""

MOST_PATHS: Final = 50_000
"""How many paths `visits` lists at most."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """What a run of a graph can do at most; each number is a whole number, or infinite.

    Attributes:
        graph: the name of the graph.
        node_runs: attempts of nodes, of every kind.
        model_calls: calls of models.
        tool_calls: calls of tools.
        concurrent: bodies of nodes that run at one moment, those of branches that come too late for a join among them.
        depth: delegations nested in each other.
        limits: the same five, where budgets end a run before its structure does.
        reasons: for each number that is infinite, why.
        visits: for each node, by the names of its path, how often it is entered; of very many paths only the first.
    """

    graph: str
    node_runs: float
    model_calls: float
    tool_calls: float
    concurrent: float
    depth: float
    limits: FrozenDict[str, float]
    reasons: FrozenDict[str, str]
    visits: FrozenDict[tuple[str, ...], float]

    def __str__(self) -> str:
        """Show a small table."""
        rows = [("", "structure", "with budget")]
        for name in DIMENSIONS:
            rows.append((name.replace("_", " "), _number(getattr(self, name)), _number(self.limits[name])))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"worst case of {self.graph!r}"]
        for first, *numbers in rows:
            cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join(["", first.ljust(widths[0]), *cells]).rstrip())
        lines += [f"  {name.replace('_', ' ')} without bound: {why}" for name, why in self.reasons.items()]
        return "\n".join(lines)


def worst_case(graph: Graph[Any]) -> WorstCase:
    """Prove what any run of a graph can do at most, from its structure alone.

    The numbers hold for graphs without errors; of one with errors they say what its statements allow.
    """
    structure = _Counter(graph, budgets=False)
    found = structure.run()
    limited = _Counter(graph, budgets=True).run()
    numbers = dict(zip(DIMENSIONS, (*found.spend, found.concurrent, found.depth), strict=True))
    limits = dict(zip(DIMENSIONS, (*limited.spend, limited.concurrent, limited.depth), strict=True))
    reasons = {name: structure.why(name) for name, number in numbers.items() if number == INF}
    return WorstCase(
        graph=graph.name,
        **numbers,
        limits=FrozenDict(limits),
        reasons=FrozenDict(reasons),
        visits=FrozenDict(structure.visits()),
    )


def _number(value: float) -> str:
    return "no bound" if value == INF else f"{value:,}" if value < 10**15 else f"about 10^{len(str(value)) - 1}"


# --- numbers that may be infinite ------------------------------------------------------------------------------------


def plus(a: float, b: float) -> float:
    """Add; infinity and a number too large for a float too.

    >>> plus(2, INF), plus(10**400, INF)
    (inf, inf)
    """
    return INF if INF in (a, b) else a + b


def times(a: float, b: float) -> float:
    """Multiply; nothing at all stays nothing, however often.

    >>> times(0, INF), times(2, INF)
    (0, inf)
    """
    if not a or not b:
        return 0
    return INF if INF in (a, b) else a * b


class Spend(NamedTuple):
    """Node runs, model calls and tool calls."""

    node_runs: float = 0
    model_calls: float = 0
    tool_calls: float = 0

    def and_(self, other: Spend) -> Spend:
        """Return the sum."""
        return Spend(*map(plus, self, other))

    def by(self, times_: float) -> Spend:
        """Return the multiple."""
        return Spend(*(times(each, times_) for each in self))

    def under(self, other: Iterable[float | None]) -> Spend:
        """Return the lesser of each, where there is another."""
        return Spend(*(a if b is None else min(a, b) for a, b in zip(self, other, strict=True)))

    def over(self, other: Spend) -> Spend:
        """Return the greater of each."""
        return Spend(*map(max, self, other))


class Case(NamedTuple):
    """What one frame can do at most."""

    spend: Spend
    concurrent: float
    depth: float


# --- counting --------------------------------------------------------------------------------------------------------


class _Counter:
    """The cases of a graph and of all inside it, each worked out once for each depth that is left."""

    def __init__(self, graph: Graph[Any], *, budgets: bool) -> None:
        self.graph = graph
        self.budgets = budgets
        self.graphs = nested_graphs(graph)
        self.static: dict[int, float] = {}
        self.below = {id(inner): delegation_depths(inner, self.static) for inner in self.graphs}
        self.flows = {id(inner): Flows(Look(inner)) for inner in self.graphs}
        self.cases: dict[tuple[int, str | None, float], Case] = {}
        self.structural: dict[str, None] = {}
        self.open_costs: dict[str, str] = {}
        wanted = INF if graph.max_depth is None else graph.max_depth
        self.left = min(wanted, self.static[id(graph)])
        self.endless = self.static[id(graph)] == INF and self.left > DEEPEST
        if self.static[id(graph)] < INF:
            self.left = self.static[id(graph)]  # a limit below it is an error of its own
        elif self.endless:
            self.left = 3

    def run(self) -> Case:
        """Count, the inner and the less deep first, so that nothing recurs."""
        for inner in self.graphs:
            below = self.below[id(inner)]
            called = {name for station in inner.compiled.stations.values() for name in station.delegates}
            for name in sorted(called, key=lambda name: below[name]):
                if below[name] < INF:
                    self.callee(inner, name, below[name])
            if self.static[id(inner)] < INF:
                self.activation(inner, self.static[id(inner)])
        if self.static[id(self.graph)] == INF:
            for left in range(int(self.left)):
                self.activation(self.graph, left)
        case = self.activation(self.graph, self.left)
        if self.endless:
            names = sorted(name for name, depth in self.below[id(self.graph)].items() if depth == INF)
            limit = "no finite max_depth" if self.graph.max_depth is None else f"max_depth={self.graph.max_depth}"
            self.structural[f"delegations below {names[0]!r} recur, with {limit}"] = None
            case = Case(Spend(*(INF if each else 0 for each in case.spend)), INF, INF if self.graph.max_depth is None else self.graph.max_depth)
        if self.budgets and self.graph.budget is not None:
            case = case._replace(spend=case.spend.under(_caps(self.graph.budget)))
        return case

    def why(self, dimension: str) -> str:
        """Say why a number is infinite."""
        reasons = list(self.structural)
        if dimension in self.open_costs:
            reasons = [self.open_costs[dimension], *reasons]
        return "; ".join(reasons[:3]) or "its parts have no bound"

    def activation(self, graph: Graph[Any], left: float) -> Case:
        """Return the case of one activation of a graph."""
        left = min(left, self.static[id(graph)])
        return self._case(graph, None, self.flows[id(graph)].root, left)

    def callee(self, graph: Graph[Any], name: str, left: float) -> Case:
        """Return the case of one call of a node of a graph."""
        left = min(left, self.below[id(graph)][name])
        return self._case(graph, name, self.flows[id(graph)].callee(name), left)

    def _case(self, graph: Graph[Any], name: str | None, frame: Frame, left: float) -> Case:
        key = (id(graph), name, left)
        if key not in self.cases:
            self.cases[key] = _FrameCount(self, graph, left).count(frame)
        return self.cases[key]

    def inner(self, graph: Graph[Any], left: float) -> Case:
        """Return the case of one activation of a nested graph, its node left out."""
        case = self.activation(graph, min(left, INF if graph.max_depth is None else graph.max_depth))
        if self.budgets and graph.budget is not None:
            return case._replace(spend=case.spend.under(_caps(graph.budget)))
        return case

    def visits(self) -> dict[tuple[str, ...], float]:
        """Return how often each node is entered, by the names of its path."""
        found: dict[tuple[str, ...], float] = {}
        start: tuple[Graph[Any], Frame, tuple[str, ...], float, float]
        start = (self.graph, self.flows[id(self.graph)].root, (), 1, self.left)
        line = deque([start])
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
                    if not entered or len(found) + len(line) > MOST_PATHS:
                        continue
                    station = flows.look.compiled.stations[key]
                    node = station.node
                    if isinstance(node, Graph):
                        deep = min(left, INF if node.max_depth is None else node.max_depth)
                        inner = self.flows[id(node)].root
                        line.append((node, inner, where, times(entered, 1 + node.retries), deep))
                    for name, edge in station.delegates.items() if left >= 1 else ():
                        calls = times(opened, INF if edge.max_hops is None else edge.max_hops)
                        line.append((graph, flows.callee(name), where, calls, left - 1))
        return found


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


class _Sum(NamedTuple):
    """What one frame, or one lane, comes to."""

    spend: Spend
    running: float
    late: float
    depth: float


class _FrameCount:
    """Adds up one frame, its levels from the innermost to the outermost."""

    def __init__(self, counter: _Counter, graph: Graph[Any], left: float) -> None:
        self.counter, self.graph, self.left = counter, graph, left
        self.flows = counter.flows[id(graph)]
        self.stations = graph.compiled.stations

    def count(self, frame: Frame) -> Case:
        """Return the case of a frame."""
        found = self._domain(frame)
        return Case(found.spend, plus(found.running, found.late), found.depth)

    def _domain(self, frame: Frame) -> _Sum:
        scopes: dict[Key, _Sum] = {key: self._lanes(frame, key) for key in frame.lanes}
        total = _Sum(Spend(), 0, 0, 0)
        for level in reversed(frame.levels):
            parts = [self._part(frame, level, index, scopes) for index in range(len(level.parts))]
            total = self._level(frame, level, parts)
            if level.source is not None:
                scopes[level.source] = total
        late = _total(found.late for found in scopes.values())
        depth = max(total.depth, *(found.depth for found in scopes.values())) if scopes else total.depth
        return _Sum(total.spend, total.running, late, depth)

    def _lanes(self, frame: Frame, key: Key) -> _Sum:
        """All lanes of a map, for all its visits."""
        out = self.flows.out(key)
        lane, often, items = self._domain(frame.lanes[key]), frame.visits[key], _items(out)
        if not often:
            return _Sum(Spend(), 0, 0, 0)
        if items == INF:
            self.counter.structural[f"the map at {_shown(key)!r} has no max_items"] = None
        late = times(items, lane.late)
        if isinstance(out, MapOut) and out.policy.kind == "first":
            late = plus(late, times(max(0, items - out.policy.count), lane.running))
        return _Sum(
            lane.spend.by(times(often, items)), times(items, lane.running), times(often, late), lane.depth
        )

    def _part(self, frame: Frame, level: Level, index: int, scopes: dict[Key, _Sum]) -> _Sum:
        """One strongly connected part of a level: its visits together are limited too."""
        each: list[tuple[Spend, float]] = []
        extra, running, depth = Spend(), 0, 0
        for key in level.parts[index]:
            often = frame.visits[key]
            if not often:
                continue
            if isinstance(key, str):
                if often == INF:
                    self.counter.structural[f"nothing bounds the visits of {key!r}"] = None
                node, calls = self._node(self.stations[key]), self._calls(self.stations[key])
                each.append((node.spend, often))
                extra = extra.and_(calls.spend)
                running = max(running, node.running, calls.running)
                depth = max(depth, node.depth, calls.depth)
            if key in scopes:
                extra = extra.and_(scopes[key].spend)
                running = max(running, scopes[key].running)
        most = plus(level.entered[index], level.inner[index])
        return _Sum(_heaviest(each, most).and_(extra), running, 0, depth)

    def _level(self, frame: Frame, level: Level, parts: Sequence[_Sum]) -> _Sum:
        best: list[Spend] = [Spend()] * len(parts)
        peak: list[float] = [0] * len(parts)
        whole, depth = Spend(), 0
        for index in reversed(range(len(parts))):
            onward = Spend()
            for follower in level.after[index]:
                onward = onward.over(best[follower])
                peak[index] = max(peak[index], peak[follower])
            best[index] = parts[index].spend.and_(onward)
            peak[index] = max(peak[index], parts[index].running)
            whole = whole.and_(parts[index].spend)
            depth = max(depth, parts[index].depth)
        place = {key: index for index, part in enumerate(level.parts) for key in part}
        heads = [place[key] for key, _ in level.heads if key in place]
        peaks = [peak[head] for head in heads]
        if level.source is None:
            return _Sum(_sum(best[head] for head in heads).under(whole), max(peaks, default=0), 0, depth)
        if level.activations <= 1:  # one token for each branch, and each takes one way
            whole = _sum(best[head] for head in heads).under(whole)
        late = 0
        out = self.flows.out(level.source)
        if isinstance(out, ForkOut) and out.policy.kind == "first":
            waited = sorted([*peaks, *[0] * (len(level.heads) - len(heads))])[out.policy.count :]
            late = times(frame.visits[level.source], _total(waited))
        return _Sum(whole, _total(peaks), late, depth)

    def _node(self, station: Station) -> _Sum:
        """One visit of a node, without what it delegates."""
        node = station.node
        attempts = 1 + node.retries
        if isinstance(node, Graph):
            inner = self.counter.inner(node, self.left)
            return _Sum(inner.spend.and_(Spend(1)).by(attempts), max(1, inner.concurrent), 0, inner.depth)
        return _Sum(Spend(1, self._cost(station, "model_calls"), self._cost(station, "tool_calls")).by(attempts), 1, 0, 0)

    def _cost(self, station: Station, dimension: str) -> float:
        """What one attempt may spend on its own."""
        node = station.node
        if node.kind in ("join", "human"):
            return 0
        if isinstance(node, FunctionNode):
            if not node.wants_step:
                return 0
            cost = None if node.costs is None else getattr(node.costs, dimension)
            why = "has no costs=" if node.costs is None else f"leaves {dimension} out of its costs="
        else:
            cost, why = None, "does not say what it spends"
        if cost is None:
            self.counter.open_costs.setdefault(dimension, f"{station.name!r} {why}")
            return INF
        return cost

    def _calls(self, station: Station) -> _Sum:
        """All that a node delegates in one frame: its edges count there, whatever its visits."""
        spend, running, depth = Spend(), 0, 0
        for name, edge in station.delegates.items() if self.left >= 1 else ():
            calls = INF if edge.max_hops is None else edge.max_hops
            if calls == INF:
                self.counter.structural[f"{station.name!r} delegates to {name!r} without max_hops"] = None
            case = self.counter.callee(self.graph, name, self.left - 1)
            spend = spend.and_(case.spend.by(calls))
            running = plus(running, times(calls, case.concurrent))
            depth = max(depth, 1 + case.depth if calls else 0)
        return _Sum(spend, running, 0, depth)


def _heaviest(each: Sequence[tuple[Spend, float]], most: float) -> Spend:
    """Return what visits spend at most, each node visited as often as it can, and all together at most so often."""
    found: list[float] = []
    for dimension in range(len(CALLS)):
        left, amount = most, 0
        for weight, often in sorted(((s[dimension], often) for s, often in each), reverse=True):
            amount = plus(amount, times(weight, min(often, left)))
            left -= min(often, left) if left < INF else 0
        found.append(amount)
    return Spend(*found)


def _sum(spends: Iterable[Spend]) -> Spend:
    total = Spend()
    for spend in spends:
        total = total.and_(spend)
    return total


def _total(amounts: Iterable[float]) -> float:
    total: float = 0
    for amount in amounts:
        total = plus(total, amount)
    return total


def _shown(key: Key) -> str:
    return key if isinstance(key, str) else key.value
