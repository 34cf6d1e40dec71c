"""How often each node of one strongly connected part can be visited: a maximum flow for each node.

And what these visits weigh together at most: one flow through all of them, for a way that uses one edge up leaves less
of it for the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from graphflow.graphs.compiled import Key
from graphflow.graphs.look import INF, knots

FLOW_LIMIT: Final = 40
"""Parts with more nodes, chains counted as one, get a coarser bound: a flow for each node would be quadratic."""


class Way(NamedTuple):
    """One way on from a node, a whole fork or map taken as one.

    Attributes:
        target: where it leads.
        cap: how often it can be taken.
        handoffs: how many handoffs it counts as at least.
        hops: how many hops it counts as at least; a person who gives control back makes none.
    """

    target: Key
    cap: float = INF
    handoffs: int = 0
    hops: int = 1


class Knot:
    """One strongly connected part, and the flow into each of its nodes."""

    def __init__(
        self, ways: Mapping[Key, list[Way]], most: dict[Key, float], inflow: Mapping[Key, float], supply: float
    ) -> None:
        self.most, self.supply = most, supply
        self.inside = {key: [way for way in ways[key] if way.target in most] for key in most}
        self.entries = {key: inflow[key] for key in most if inflow[key]}
        self.chain = self._chains()

    def _chains(self) -> dict[Key, Key]:
        """Return for each node the first of its chain: where each leads to the next alone, visits are equal."""
        into: dict[Key, list[tuple[Key, Way]]] = {}
        for key, ways in self.inside.items():
            for way in ways:
                into.setdefault(way.target, []).append((key, way))
        before: dict[Key, Key] = {}
        for key, found in into.items():
            (other, way) = found[0]
            alone = len(found) == 1 and len(self.inside[other]) == 1 and key not in self.entries and other != key
            if alone and way.cap == self.most[key] == INF:
                before[key] = other
        first: dict[Key, Key] = {}
        for key in self.most:
            line = [key]
            while line[-1] in before and line[-1] not in first:
                line.append(before[line[-1]])
            home = first.get(line[-1], line[-1])
            first.update(dict.fromkeys(line, home))
        return first

    def visits(self) -> dict[Key, float]:
        """Return how often each node can be visited."""
        firsts = sorted(set(self.chain.values()), key=str)
        counted = self._coarse(firsts) if len(firsts) > FLOW_LIMIT else self._exact(firsts)
        return {key: counted[self.chain[key]] for key in self.most}

    def _exact(self, firsts: list[Key]) -> dict[Key, float]:
        import networkx as nx

        numbers = {key: number for number, key in enumerate(firsts)}
        pipes: dict[tuple[int, int], float] = {}

        def pipe(a: int, b: int, cap: float) -> None:
            pipes[a, b] = pipes.get((a, b), 0) + cap

        source, shared = -1, -2
        pipe(source, shared, self.supply)
        for key, often in self.entries.items():
            pipe(shared, 2 * numbers[self.chain[key]], often)
        for key in self.most:
            for way in self.inside[key]:
                if self.chain[way.target] == way.target:
                    pipe(2 * numbers[self.chain[key]] + 1, 2 * numbers[way.target], way.cap)
        for key, number in numbers.items():
            pipe(2 * number, 2 * number + 1, self.most[key])
        network: nx.DiGraph[int] = nx.DiGraph()
        for (a, b), cap in pipes.items():
            network.add_edge(a, b, **({} if cap == INF else {"capacity": cap}))
        # the stub leaves some of its options open
        unknown: Any = nx
        largest: Callable[..., float] = unknown.maximum_flow_value
        counted: dict[Key, float] = {}
        for key, number in numbers.items():
            network.add_edge(source, 2 * number + 1)
            try:
                counted[key] = min(largest(network, source, 2 * number), self.most[key])
            except nx.NetworkXUnbounded:
                counted[key] = self.most[key]
            network.remove_edge(source, 2 * number + 1)
        return counted

    def _coarse(self, firsts: list[Key]) -> dict[Key, float]:
        """Between two visits of a node something bounded is used up, unless a cycle without a bound holds it."""
        loose = [
            (key, way.target)
            for key, ways in self.inside.items()
            for way in ways
            if way.cap == INF and self.most[key] == self.most[way.target] == INF
        ]
        endless = set[Key]().union(*knots(loose))
        caps = [way.cap for ways in self.inside.values() for way in ways if way.cap < INF]
        bounded = self.supply + sum(caps) + sum(most for most in self.most.values() if most < INF)
        return {key: min(self.most[key], INF if key in endless else bounded) for key in firsts}

    def heaviest(self, weights: Mapping[Key, float], visits: Mapping[Key, float]) -> float:
        """Return what all visits weigh together at most: the heaviest circulation.

        Control that comes in goes on over edges as often as they can be taken, and stops anywhere; so its walk is a
        flow, and no flow weighs more than the heaviest.

        Args:
            weights: what one visit of each node weighs.
            visits: how often each node can be visited.
        """
        if len(self.most) > FLOW_LIMIT or any(INF in (weights[key], visits[key]) for key in self.most):
            return INF
        import networkx as nx

        numbers = {key: number for number, key in enumerate(self.most)}
        pipes: dict[tuple[int, int], float] = {}

        def pipe(a: int, b: int, cap: float) -> None:
            pipes[a, b] = pipes.get((a, b), 0) + cap

        bounded = int(self.supply + sum(visits.values()))  # no edge is taken more often than all nodes are visited
        outside, inside = -1, -2
        pipe(outside, inside, min(self.supply, bounded))
        for key, number in numbers.items():
            pipe(2 * number, 2 * number + 1, visits[key])
            pipe(2 * number + 1, outside, bounded)
            pipe(inside, 2 * number, min(self.entries.get(key, 0), bounded))
            for way in self.inside[key]:
                pipe(2 * number + 1, 2 * numbers[way.target], min(way.cap, bounded))
        network: nx.DiGraph[int] = nx.DiGraph()
        network.add_edges_from((a, b, {"capacity": int(cap)}) for (a, b), cap in pipes.items())
        for key, number in numbers.items():
            network.edges[2 * number, 2 * number + 1]["weight"] = -int(weights[key])
        unknown: Any = nx  # as above
        least: Callable[..., int] = unknown.min_cost_flow_cost
        return -least(network)

    def way_back(self, key: Key, *, handoffs: bool) -> int:
        """Return the fewest hops, or handoffs, of a way from a node back to it."""
        if len(self.most) > FLOW_LIMIT:
            return 0 if handoffs else min(way.hops for ways in self.inside.values() for way in ways)
        starts: dict[Key, int] = {}
        for way in self.inside[key]:
            step = way.handoffs if handoffs else way.hops
            starts[way.target] = min(step, starts.get(way.target, step))
        return distances(starts, self.inside, handoffs=handoffs)[key]


def distances(starts: Mapping[Key, int], ways: Mapping[Key, Iterable[Way]], *, handoffs: bool) -> dict[Key, int]:
    """Return the fewest hops, or handoffs, to each node that can be reached, from nodes with a number to begin with."""
    found: dict[Key, int] = {}
    heap = [(cost, number, key) for number, (key, cost) in enumerate(starts.items())]
    heapq.heapify(heap)
    count = len(heap)
    while heap:
        cost, _, key = heapq.heappop(heap)
        if key in found:
            continue
        found[key] = cost
        for way in ways.get(key, ()):
            count += 1
            heapq.heappush(heap, (cost + (way.handoffs if handoffs else way.hops), count, way.target))
    return found
