"""Big teams, drawn so that a picture of them is no band: the members of a team stand in as many columns as is best.

All side by side, a supervisor's team is as wide as its members together, and a hierarchy as wide as all its leaves. So
for each team, from the innermost to the outermost, columns are chosen by what the sizes are likely to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from graphflow.visualize.drawing import Drawing, DrawnEdge, DrawnGraph

LEAST_NODES: Final = 40
"""A picture of fewer nodes is left as it is."""

LEAST_TEAM: Final = 3
"""So is a team of fewer members."""

LEAST_NODES_OF_TEAM: Final = 7
"""And one of fewer members, where none of them is a graph: one row of nodes is read at a glance."""

MOST_COLUMNS: Final = 50
"""No more columns are tried, unless all members stand side by side."""

SHAPE: Final = 1.4
"""How wide a picture is for its height, at best."""

NODE: Final = (170.0, 75.0)
"""About how wide and high a node is, with what is around it."""


class _Box(NamedTuple):
    """What a member takes: its size, where it begins, and the nodes that may stand lowest in it."""

    width: float
    height: float
    top: str
    bottoms: tuple[str, ...]


def stacked(drawing: Drawing) -> dict[str, list[tuple[str, str]]]:
    """Return, by the id of a graph, pairs of nodes of which the first stands above the second."""
    if len(drawing.nodes) < LEAST_NODES:
        return {}
    return _Stacking(drawing).pairs


class _Stacking:
    def __init__(self, drawing: Drawing) -> None:
        self.edges = drawing.edges_by_graph()
        self.nodes = drawing.nodes_by_graph()
        self.boxes: dict[str, _Box] = {}
        self.pairs: dict[str, list[tuple[str, str]]] = {}
        for graph in reversed(drawing.graphs):  # each stands before those inside it
            self.boxes[graph.id] = self._graph(graph)

    def _graph(self, graph: DrawnGraph) -> _Box:
        """Place the teams of a graph, and return what it takes."""
        width, height = NODE
        taken = [_Box(NODE[0], 2 * NODE[1], graph.start, (graph.end,))]
        for team in self._teams(graph.id):
            members = [self._member(edge) for edge in team]
            columns = _columns(members)
            taken.append(_in_columns(members, columns))
            for above, below in zip(members, members[columns:], strict=False):
                self.pairs.setdefault(graph.id, []).extend((end, below.top) for end in above.bottoms)
        width = max(width, *(one.width for one in taken))
        height = sum(one.height for one in taken)
        return _Box(width, height, graph.start, tuple(end for one in taken for end in one.bottoms))

    def _teams(self, graph: str) -> Iterator[list[DrawnEdge]]:
        """Yield the delegate edges of each node of a graph, those to members that nobody else leads to."""
        found: dict[str, list[DrawnEdge]] = {}
        leading: dict[str, int] = {}
        for edge in self.edges[graph]:
            leading[edge.target] = leading.get(edge.target, 0) + 1
            if edge.kind == "delegate":
                found.setdefault(edge.source, []).append(edge)
        own = ([edge for edge in team if leading[edge.target] == 1] for team in found.values())
        return filter(None, own)

    def _member(self, edge: DrawnEdge) -> _Box:
        inside = None if edge.into is None else self.boxes.get(edge.into)
        return _Box(*NODE, edge.target, (edge.target,)) if inside is None else inside


def _columns(members: list[_Box]) -> int:
    """Return in how many columns members stand best: all in one row, or in rows of about the same length."""
    count = len(members)
    small = all(one.height <= NODE[1] for one in members) and count < LEAST_NODES_OF_TEAM
    if count < LEAST_TEAM or small:
        return count
    ways = [-(-count // rows) for rows in range(1, count + 1) if rows == 1 or count / rows <= MOST_COLUMNS]
    return min(dict.fromkeys(ways), key=lambda columns: _bend(_in_columns(members, columns)))


def _in_columns(members: list[_Box], columns: int) -> _Box:
    """Return what members take that stand in some columns."""
    rows = [members[at : at + columns] for at in range(0, len(members), columns)]
    width = max(sum(one.width for one in row) for row in rows)
    height = sum(max(one.height for one in row) for row in rows)
    return _Box(width, height, members[0].top, tuple(end for one in members[-columns:] for end in one.bottoms))


def _bend(box: _Box) -> float:
    """How far a box is from the best shape, as a picture of a graph with its supervisor above it."""
    return abs(math.log(box.width / (box.height + 2 * NODE[1]) / SHAPE))
