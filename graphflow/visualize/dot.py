"""DOT text: what graphviz draws from. It names no address, no file and no font that has to be fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from graphflow.events import Event
from graphflow.graphs.graph import Graph
from graphflow.visualize.drawing import (
    PSEUDO,
    Drawing,
    DrawnEdge,
    DrawnGraph,
    DrawnNode,
    ProblemLike,
    drawing_of,
)
from graphflow.visualize.overlay import STANDINGS, Overlay, overlay_of
from graphflow.visualize.stacking import stacked
from graphflow.visualize.style import (
    ALARM,
    DASHED,
    EDGE_LOOKS,
    GROUNDS,
    INK,
    NODE_LOOKS,
    NOT_TAKEN,
    PALE,
    SOFT,
    STANDING_LOOKS,
    STANDING_WORDS,
    NodeLook,
    node_look,
)
from graphflow.visualize.text import flowed, shown, wrap

NAME_WIDTH: Final = 28
FACT_WIDTH: Final = 34
EDGE_WIDTH: Final = 18
_ENDS: Final = frozenset({"start", "end"})
_AGENTS: Final = frozenset({"agent", "supervisor"})

_HEADER: Final = """\
digraph {
  graph [rankdir=TB compound=true newrank=true bgcolor=white pad=0.2 nodesep=0.35 ranksep=0.5 labelloc=b]
  graph [fontname=Helvetica fontsize=10]
  node [fontname=Helvetica fontsize=12 margin="0.14,0.07" height=0.4 width=0.6 penwidth=1.2]
  edge [fontname=Helvetica fontsize=9 arrowsize=0.7 penwidth=1.1]
"""


def to_dot(graph: Graph[Any], *, run: Iterable[Event] | None = None, problems: Iterable[ProblemLike] = ()) -> str:
    """Draw a graph as DOT text, the same for equal graphs.

    Args:
        graph: what to draw.
        run: the events of a run of it, to be laid over the picture.
        problems: what to mark, such as `graph.check()`.
    """
    drawing = drawing_of(graph, problems)
    return "\n".join(_Writer(drawing, overlay_of(drawing, run) if run is not None else None).lines()) + "\n"


_ESCAPES: Final = str.maketrans({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;",
    "\\": "\\\\",  # graphviz puts the node's id in the place of \N here too
    "]": "&#93;",  # graphviz loses its way at one that stands alone
})  # fmt: skip


def escaped(text: str) -> str:
    """Escape a text for an HTML-like label, so that it shows literally."""
    return text.translate(_ESCAPES)


def _font(text: str, color: str, size: int | None = None) -> str:
    points = f' POINT-SIZE="{size}"' if size is not None else ""
    return f'<FONT COLOR="{color}"{points}>{escaped(text)}</FONT>'


class _Writer:
    def __init__(self, drawing: Drawing, overlay: Overlay | None) -> None:
        self.drawing = drawing
        self.overlay = overlay
        self.nodes = drawing.nodes_by_graph()
        self.edges = drawing.edges_by_graph()
        self.stacked = stacked(drawing)
        ways = Counter(edge.target for edge in drawing.edges)
        self.ends = {graph.end for graph in drawing.graphs if ways[graph.end] > 1}

    def lines(self) -> Iterator[str]:
        yield _HEADER.rstrip()
        legend = _legend(self.drawing, self.overlay)
        if legend:
            yield f"  label=<{legend}>"
        around: list[DrawnGraph] = []
        for graph in self.drawing.graphs:
            while len(around) > graph.depth:
                yield from self._close_graph(around.pop())
            yield from self._open_graph(graph)
            around.append(graph)
        while around:
            yield from self._close_graph(around.pop())
        yield "}"

    def _open_graph(self, graph: DrawnGraph) -> Iterator[str]:
        indent = "  " * (graph.depth + 1)
        look = self._look(graph.id) if graph.depth else None
        line = ALARM if graph.problems else look.line if look is not None else PALE
        style = "rounded,filled,dashed" if graph.depth and self._dashed(graph.id) else "rounded,filled"
        # The whole picture has no border: graphviz lets labels of edges at its right side stand over it.
        width = 2 if graph.problems or look is not None else min(graph.depth, 1)
        ground = GROUNDS[graph.depth % len(GROUNDS)]
        yield f"{indent}subgraph cluster_{graph.id} {{"
        yield f"{indent}  graph [label=<{self._graph_label(graph)}> labelloc=t labeljust=l margin=14]"
        yield f'{indent}  graph [style="{style}" color="{line}" fillcolor="{ground}" penwidth={width}]'
        for node in self.nodes[graph.id]:
            yield f"{indent}  {self._node(node)}"

    def _close_graph(self, graph: DrawnGraph) -> Iterator[str]:
        """End a graph with its edges: edges that stand inside it keep their labels inside its border."""
        indent = "  " * (graph.depth + 1)
        for edge in self.edges[graph.id]:
            yield f"{indent}  {self._edge(edge)}"
            if edge.kind == "escalate":  # keeps it below the beginning of its graph
                yield f"{indent}  {graph.start} -> {edge.source} [style=invis]"
        for above, below in self.stacked.get(graph.id, ()):
            yield f"{indent}  {above} -> {below} [style=invis weight=0]"
        yield f"{indent}}}"

    def _graph_label(self, graph: DrawnGraph) -> str:
        lines = [f"<B>{_font(line, INK, 13)}</B>" for line in wrap(shown(graph.name), 40, 3)]
        lines += [_font(line, SOFT, 9) for line in flowed(graph.facts, 52)]
        lines += self._run_lines(graph.id, graph.problems)
        if graph.parent is None and self.overlay is not None:
            lines += [_font(line, INK, 10) for line in flowed(self.overlay.summary(), 52)]
        rows = "".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines)
        return f'<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>'

    def _run_lines(self, id: str, problems: tuple[str, ...]) -> list[str]:
        lines = [_font(line, ALARM, 9) for line in flowed((f"! {code}" for code in problems), FACT_WIDTH)]
        if self.overlay is not None and id != self.drawing.graphs[0].id:
            color = ALARM if self.overlay.standing(id) == "failed" else INK
            lines += [f"<B>{_font(line, color, 10)}</B>" for line in flowed(self.overlay.words(id), FACT_WIDTH)]
        return lines

    def _node(self, node: DrawnNode) -> str:
        if node.kind in _ENDS:
            return self._end(node)
        kind = node_look(node.kind)
        look = self._look(node.id) or kind
        size = 9 if node.kind == "bound" else None
        lines = [_font(line, look.text, size) for line in wrap(shown(node.name), NAME_WIDTH, 3)]
        lines += [_font(line, SOFT, 9) for line in flowed(node.facts, FACT_WIDTH)]
        lines += self._run_lines(node.id, node.problems)
        dashed = ",dashed" if self._dashed(node.id) and "dashed" not in kind.style else ""
        line, width = (ALARM, " penwidth=2.4") if node.problems else (look.line, "")
        drawn = f'shape={kind.shape} style="{kind.style}{dashed}" fillcolor="{look.fill}" color="{line}"{width}'
        return f"{node.id} [label=<{'<BR/>'.join(lines)}> {drawn}]"

    def _end(self, node: DrawnNode) -> str:
        look = node_look(node.kind)
        colours = f'fillcolor="{look.fill}" color="{look.line}" fontcolor="{look.text}"'
        size = 'fontsize=8 height=0.22 width=0.5 margin="0.06,0.02"'
        return f'{node.id} [label={node.name} shape=box style="rounded,filled" {colours} {size}]'

    def _edge(self, edge: DrawnEdge) -> str:
        look = EDGE_LOOKS[edge.kind]
        line, text, facts = look.color, look.color, edge.facts
        if self.overlay is not None:
            taken = self.overlay.edges[edge.id]
            if taken:
                facts = (f"×{taken:,}", *facts)
            else:
                line, text = NOT_TAKEN
        # Space on both sides: graphviz lets labels and lines side by side come as near as their edges.
        words = [f"&#160;{_font(words, text)}&#160;" for words in flowed(facts, EDGE_WIDTH)]
        label = f" label=<{'<BR/>'.join(words)}>" if words else ""
        loops = edge.out_of is not None and edge.out_of == edge.into
        tail = f" ltail=cluster_{edge.out_of}" if edge.out_of is not None and not loops else ""
        head = f" lhead=cluster_{edge.into}" if edge.into is not None and not loops else ""
        # A graph begins with its name. And an END to which several ways lead stands below its neighbours: graphviz
        # keeps labels apart from nodes, but not from a line that has to get past them to the row of their nodes.
        lower = " minlen=2" if head or (label and edge.target in self.ends) else ""
        return f'{edge.source} -> {edge.target} [{look.dot} color="{line}"{lower}{tail}{head}{label}]'

    def _look(self, place: str) -> NodeLook | None:
        return None if self.overlay is None else STANDING_LOOKS[self.overlay.standing(place)]

    def _dashed(self, place: str) -> bool:
        return self.overlay is not None and self.overlay.standing(place) in DASHED


def _legend(drawing: Drawing, overlay: Overlay | None) -> str:
    """Explain the kinds of edges and the states that occur, and list the problems."""
    kinds = {edge.kind for edge in drawing.edges}
    looks = [look for kind, look in EDGE_LOOKS.items() if kind in kinds]
    lines = _in_rows(_sign(look.glyph, look.color, look.meaning) for look in looks)
    if overlay is None:
        lines += _in_rows(_sign(NODE_LOOKS[kind].glyph, NODE_LOOKS[kind].line, kind) for kind in _kinds(drawing))
    else:
        nodes = [node.id for node in drawing.nodes if node.kind not in PSEUDO]
        found = {overlay.standing(place) for place in (*nodes, *(graph.id for graph in drawing.graphs[1:]))}
        signs = [
            (STANDING_LOOKS[standing].line, STANDING_WORDS[standing]) for standing in STANDINGS if standing in found
        ]
        pale = [("──►", NOT_TAKEN[0], "not taken")] * any(not overlay.edges[edge.id] for edge in drawing.edges)
        lines += _in_rows(_sign(*sign) for sign in (*(("■", *sign) for sign in signs), *pale))
    lines += [_font(line, ALARM, 9) for problem in drawing.problems for line in wrap(f"! {problem}", 90, 3)]
    rows = "".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines)
    return f'<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="3">{rows}</TABLE>' if rows else ""


def _kinds(drawing: Drawing) -> list[str]:
    """The kinds of nodes that the legend explains: those of a drawing in which some are agents."""
    found = {node.kind for node in drawing.nodes} - PSEUDO
    return [kind for kind in NODE_LOOKS if kind in found] if found & _AGENTS else []


def _sign(glyph: str, color: str, words: str) -> str:
    return f"{_font(glyph, color, 10)}&#160;{_font(words, SOFT, 9)}"


def _in_rows(signs: Iterable[str], columns: int = 4) -> list[str]:
    every = list(signs)
    return [("&#160;" * 5).join(every[at : at + columns]) for at in range(0, len(every), columns)]
