"""A graph drawn with characters, for the terminal: a flat picture for each graph that is nested in it.

Frames inside one another are more than characters can show: lines would run across them. So a nested graph is a
single box, and has a picture of its own below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, TypeAlias

from graphflow.errors import MissingExtra
from graphflow.graphs.graph import Graph
from graphflow.visualize.drawing import Drawing, DrawnEdge, DrawnGraph, DrawnNode, EdgeKind, drawing_of
from graphflow.visualize.mermaid import Dialect, mermaid_of
from graphflow.visualize.text import plain, shown

_LEGEND: Final[tuple[tuple[frozenset[EdgeKind], tuple[str, str], str], ...]] = (
    (frozenset({"next"}), ("──▶", "-->"), "control goes on"),
    (frozenset({"choose"}), ("──▶ ◊", "--> <>"), "choose: exactly one of those that leave a node"),
    (frozenset({"error"}), ("──▶ on", "--> on"), "on error"),
    (frozenset({"fork", "map", "join"}), ("━━▶", "==>"), "all at once, until they meet"),
    (frozenset({"delegate"}), ("◀─▶", "<->"), "delegates: a report comes back"),
    (frozenset({"handoff"}), ("┄┄▶", "..>"), "hands off control"),
    (frozenset({"escalate"}), ("┄┄▶", "..>"), "escalates at a bound"),
)
_CHOICE: Final = ("◊", "<>")
"""What marks an edge of a choice, for it has the arrow of any other edge."""

_WORDS: Final[dict[EdgeKind, str]] = {
    "next": "next", "delegate": "delegates", "handoff": "hands off", "escalate": "escalates", "fork": "at once",
    "map": "for each", "join": "join",
}  # fmt: skip
"""What an edge is called where its line may run together with others."""

NAME: Final = 40

LABEL: Final = 18
"""How wide labels get: four boxes side by side fit a terminal."""

Shape: TypeAlias = tuple[object, ...]


def to_term(graph: Graph[Any], *, ascii: bool = False) -> str:
    """Draw a graph for a terminal: itself, then each graph inside it, then a legend.

    A nested graph is a box in the picture around it; its own picture stands below, headed by its bounds and by the
    names that lead to it. Of graphs that look the same only the first is drawn.

    Args:
        graph: what to draw.
        ascii: whether to use ASCII characters alone.

    Raises:
        MissingExtra: if the extra `cli` is not installed.
    """
    try:
        import termaid
    except ImportError as error:
        raise MissingExtra("drawing in the terminal", "cli") from error
    drawing = drawing_of(graph)
    lines = [line for part in _parts(drawing) for line in _part_lines(termaid, part, ascii=ascii)]
    drawn = {edge.kind for edge in drawing.edges}
    width = max((len(glyphs[ascii]) for kinds, glyphs, _ in _LEGEND if kinds & drawn), default=0)
    legend = [f"  {glyphs[ascii]:<{width}}  {meaning}" for kinds, glyphs, meaning in _LEGEND if kinds & drawn]
    return "\n".join([*lines, *legend, ""])


def _part_lines(termaid: ModuleType, part: tuple[str, Drawing | None], *, ascii: bool) -> Iterator[str]:
    """Yield the heading of a graph and its picture."""
    heading, flat = part
    yield plain(heading) if ascii else heading
    yield ""
    if flat is None:
        return
    spell = _plain if ascii else _spelled
    dialect = Dialect(
        line_break="\\n", other_break=" · ", crosses=False, decorated=False, framed=False, width=LABEL,
        spell=spell,
    )  # fmt: skip
    beside = _beside(flat.edges)
    known = {edge.id for edge in beside}
    edges = tuple(_marked(edge, beside=edge.id in known, ascii=ascii) for edge in flat.edges)
    source = mermaid_of(replace(flat, edges=edges), dialect=dialect)
    picture: str = termaid.render(source, use_ascii=ascii, padding_x=2, padding_y=0, max_label_width=LABEL)
    yield from (line.rstrip() for line in picture.strip("\n").splitlines())
    yield ""
    yield from _side_by_side(flat, beside, ascii=ascii)


def _beside(edges: Sequence[DrawnEdge]) -> list[DrawnEdge]:
    """Return the edges whose lines may run together: between the same two nodes, or of several kinds out of one."""
    times = Counter(frozenset({edge.source, edge.target}) for edge in edges)
    kinds: dict[str, set[EdgeKind]] = {}
    for edge in edges:
        kinds.setdefault(edge.source, set()).add(edge.kind)
    return [
        edge for edge in edges if times[frozenset({edge.source, edge.target})] > 1 or len(kinds[edge.source]) > 1
    ]  # fmt: skip


def _marked(edge: DrawnEdge, *, beside: bool, ascii: bool) -> DrawnEdge:
    """Say in the label of an edge what its line alone does not tell."""
    mark = _CHOICE[ascii] if edge.kind == "choose" else _WORDS.get(edge.kind, "") if beside else ""
    first, *rest = edge.facts or ("",)
    facts = (f"{mark} {first}".strip(), *rest) if mark else edge.facts
    return replace(edge, facts=facts)


def _side_by_side(flat: Drawing, beside: Sequence[DrawnEdge], *, ascii: bool) -> Iterator[str]:
    """List the edges whose lines may run together: in the picture one can hide another, or seem to go on in it."""
    names = {node.id: shown(node.name, NAME) for node in flat.nodes}
    found: dict[tuple[str, str], list[str]] = {}
    for edge in beside:
        words = " · ".join(_marked(edge, beside=True, ascii=ascii).facts)
        found.setdefault((edge.source, edge.target), []).append(words)
    arrow = "->" if ascii else "→"
    for (source, target), edges in found.items():
        line = f"  {names[source]} {arrow} {names[target]}: {', '.join(edges)}"
        yield plain(line) if ascii else line
    if found:
        yield ""


def _parts(drawing: Drawing) -> Iterator[tuple[str, Drawing | None]]:
    """Yield a heading and a flat drawing for each graph, an outer one first; None for one that was drawn already."""
    shapes = _shapes(drawing)
    nodes, edges = drawing.nodes_by_graph(), drawing.edges_by_graph()
    inside = _inside(drawing)
    first: dict[int, str] = {}
    paths: dict[str, str] = {}
    hidden: set[str] = set()
    for graph in drawing.graphs:
        name = shown(graph.name, NAME)
        around = "" if graph.parent is None else paths[graph.parent]
        paths[graph.id] = path = f"{around} > {name}" if around else name if graph.parent is not None else ""
        if graph.parent in hidden:
            hidden.add(graph.id)
            continue
        place = f"in {path}" if path else name
        before = first.setdefault(shapes[graph.id], place)
        if before != place:
            hidden.add(graph.id)
            yield f"{place}: the same as {before}", None
        else:
            yield (
                f"{place}: {' · '.join(graph.facts)}" if graph.facts else f"{place}:",
                _flat(graph, inside[graph.id], nodes[graph.id], edges[graph.id]),
            )


def _inside(drawing: Drawing) -> dict[str, list[DrawnGraph]]:
    found: dict[str, list[DrawnGraph]] = {graph.id: [] for graph in drawing.graphs}
    for graph in drawing.graphs:
        if graph.parent is not None:
            found[graph.parent].append(graph)
    return found


def _shapes(drawing: Drawing) -> dict[str, int]:
    """Return a number for each graph, equal for those with the same picture, also of all graphs inside."""
    nodes, edges, inside = drawing.nodes_by_graph(), drawing.edges_by_graph(), _inside(drawing)
    numbers: dict[Shape, int] = {}
    found: dict[str, int] = {}
    for graph in reversed(drawing.graphs):  # what is inside comes before what is around it
        shape: Shape = (
            graph.facts,
            tuple((node.kind, node.name, node.facts) for node in nodes[graph.id]),
            tuple((edge.kind, edge.name, edge.facts) for edge in edges[graph.id]),
            tuple((inner.name, found[inner.id]) for inner in inside[graph.id]),
        )
        found[graph.id] = numbers.setdefault(shape, len(numbers))
    return found


def _flat(graph: DrawnGraph, inside: list[DrawnGraph], nodes: list[DrawnNode], edges: list[DrawnEdge]) -> Drawing:
    """Return the drawing of one graph alone, with the graphs inside it as nodes."""
    ends = [
        replace(edge, source=edge.out_of or edge.source, target=edge.into or edge.target, out_of=None, into=None)
        for edge in edges
    ]
    boxes = {node.id: node for node in nodes}
    boxes |= {inner.id: DrawnNode(inner.id, "graph", inner.name, graph.id, ("graph",)) for inner in inside}
    order = [graph.start, *(end for edge in ends for end in (edge.source, edge.target) if end != graph.end), *boxes]
    shown_in_order = [boxes[place] for place in dict.fromkeys(order) if place != graph.end]
    return Drawing(
        (replace(graph, parent=None, depth=0),), (*shown_in_order, boxes[graph.end]), tuple(ends)
    )  # fmt: skip


def _spelled(line: str) -> str:
    r"""Write a line without `\n`, which termaid takes for a new line however it was escaped."""
    return line.replace("\\n", "\N{SET MINUS}n")


def _plain(line: str) -> str:
    return plain(line).replace("\\n", "\\ n")
