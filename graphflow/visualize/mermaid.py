"""Mermaid text: what GitHub, editors and documentation tools draw from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from graphflow.events import Event
from graphflow.graphs.graph import Graph
from graphflow.visualize.drawing import (
    EDGE_KINDS,
    Drawing,
    DrawnEdge,
    DrawnGraph,
    DrawnNode,
    ProblemLike,
    drawing_of,
)
from graphflow.visualize.overlay import Overlay, overlay_of
from graphflow.visualize.style import (
    ALARM,
    ARROWS,
    DASHED,
    EDGE_LOOKS,
    GROUNDS,
    INK,
    NODE_LOOKS,
    PALE,
    SOFT,
    STANDING_LOOKS,
    NodeLook,
    node_look,
)
from graphflow.visualize.text import flowed, shown, wrap

NAME_WIDTH: Final = 28
FACT_WIDTH: Final = 34

# Markdown, HTML, entities, icons, comments and links all begin with a sign: every sign becomes an entity, but
# for those inside a word that begin none.
_SIGN: Final = re.compile(r"[\x21-\x2b\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]|(?<!\w)-|-(?!\w)|(?<!\d),|,(?!\d)")
_INNER: Final = re.compile(r"(?<=[^\W_])_(?=[^\W_])|(?<=\d)\.(?=\d)")
# What Mermaid looks for after it has put the signs back: its own marks for them, new lines, and icons.
_OWN: Final = re.compile("(?<=\ufb02)(?=\xb0)|(?<=\xb6)(?=\xdf)|(?<=#58;)(?=fa-)|(?<=#92;)(?=n)")


def to_mermaid(graph: Graph[Any], *, run: Iterable[Event] | None = None, problems: Iterable[ProblemLike] = ()) -> str:
    """Draw a graph as Mermaid text, the same for equal graphs.

    Args:
        graph: what to draw.
        run: the events of a run of it, to be laid over the picture.
        problems: what to mark, such as `graph.check()`.
    """
    drawing = drawing_of(graph, problems)
    return mermaid_of(drawing, overlay_of(drawing, run) if run is not None else None)


def mermaid_of(drawing: Drawing, overlay: Overlay | None = None, *, dialect: Dialect | None = None) -> str:
    """Write a drawing as Mermaid text, with an overlay if there is one."""
    return "\n".join(_Writer(drawing, overlay, dialect or Dialect()).lines()) + "\n"


def escaped(text: str) -> str:
    """Escape a text for a label in quotes, so that it shows literally.

    >>> escaped('<b>"read_file"</b>')
    '#60;b#62;#34;read_file#34;#60;#47;b#62;'
    """
    kept = {found.start() for found in _INNER.finditer(text)}
    safe = _SIGN.sub(lambda found: found[0] if found.start() in kept else f"#{ord(found[0])};", text)
    return _OWN.sub("\N{WORD JOINER}", safe)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between programs that draw Mermaid.

    Attributes:
        line_break: what begins a new line in the label of a node.
        other_break: the same in labels of edges and graphs.
        crosses: whether arrows may end in a cross.
        decorated: whether there are colours, a legend, and the bounds of graphs.
        framed: whether a graph has a frame with its name.
        width: columns that the facts of a node may take.
        spell: writes a line of a label in the characters that the program can take.
    """

    line_break: str = "<br/>"
    other_break: str = "<br/>"
    crosses: bool = True
    decorated: bool = True
    framed: bool = True
    width: int = FACT_WIDTH
    spell: Callable[[str], str] = str


@dataclass(frozen=True, slots=True)
class _Writer:
    drawing: Drawing
    overlay: Overlay | None
    dialect: Dialect

    def lines(self) -> Iterator[str]:
        yield "flowchart TB"
        nodes = self.drawing.nodes_by_graph()
        around: list[DrawnGraph] = []
        for graph in self.drawing.graphs:
            while len(around) > graph.depth:
                yield from self._close(around)
            yield from self._open_graph(graph, nodes[graph.id])
            around.append(graph)
        while around:
            yield from self._close(around)
        for edge in self.drawing.edges:
            yield "  " + self._edge(edge)
        if self.dialect.decorated:
            yield from self._legend()
            yield from self._colours()

    def _open_graph(self, graph: DrawnGraph, nodes: Iterable[DrawnNode]) -> Iterator[str]:
        indent = "  " * (graph.depth + 1)
        if self.dialect.framed:
            yield f"{indent}subgraph {graph.id} [{self._title(graph)}]"
        for node in nodes:
            yield f"{indent}  {self._node(node)}"

    def _close(self, around: list[DrawnGraph]) -> Iterator[str]:
        if self.dialect.framed:
            yield "  " * len(around) + "end"
        around.pop()

    def _title(self, graph: DrawnGraph) -> str:
        facts = graph.facts if self.dialect.decorated else ()
        lines = [*wrap(shown(graph.name), 40, 3), *flowed(facts, 52), *self._notes(graph.id, graph.problems)]
        if graph.parent is None and self.overlay is not None:
            lines += flowed(self.overlay.summary(), 52)
        return self._label(lines, self.dialect.other_break)

    def _notes(self, id: str, problems: tuple[str, ...]) -> list[str]:
        notes = [*flowed([f"! {code}" for code in problems], FACT_WIDTH)]
        if self.overlay is not None and id != self.drawing.graphs[0].id:
            notes += flowed(self.overlay.words(id), FACT_WIDTH)
        return notes

    def _node(self, node: DrawnNode) -> str:
        left, right = node_look(node.kind).mermaid
        lines = [*wrap(shown(node.name), NAME_WIDTH, 3), *flowed(node.facts, self.dialect.width)]
        return f"{node.id}{left}{self._label([*lines, *self._notes(node.id, node.problems)])}{right}"

    def _label(self, lines: Iterable[str], line_break: str | None = None) -> str:
        spelled = (escaped(self.dialect.spell(line)) for line in lines)
        return f'"{(line_break or self.dialect.line_break).join(spelled)}"'

    def _edge(self, edge: DrawnEdge) -> str:
        arrow = EDGE_LOOKS[edge.kind].mermaid
        if not self.dialect.crosses:
            arrow = arrow.replace("x", ">")
        taken = self.overlay.edges[edge.id] if self.overlay is not None else 0
        facts = (f"×{taken:,}", *edge.facts) if taken else edge.facts
        label = f"|{self._label(flowed(facts, FACT_WIDTH), self.dialect.other_break)}|" if facts else ""
        return f"{edge.source} {arrow}{label} {edge.target}"

    def _legend(self) -> Iterator[str]:
        kinds = {edge.kind for edge in self.drawing.edges}
        meanings: dict[str, list[str]] = {}
        for kind in EDGE_KINDS:
            if kind in kinds:
                meanings.setdefault(EDGE_LOOKS[kind].mermaid, []).append(EDGE_LOOKS[kind].meaning)
        lines = [f"{ARROWS[arrow]} {' · '.join(found)}" for arrow, found in meanings.items()]
        lines += [line for problem in self.drawing.problems for line in wrap(f"! {problem}", 60, 4)]
        if lines:
            yield f"  legend[{self._label(lines)}]"
            yield f"  style legend fill:#ffffff,stroke:{PALE},color:{SOFT},text-align:left"

    def _colours(self) -> Iterator[str]:
        for kind in EDGE_KINDS:
            numbers = [str(number) for number, edge in enumerate(self.drawing.edges) if edge.kind == kind]
            if numbers:
                color = EDGE_LOOKS[kind].color
                yield f"  linkStyle {','.join(numbers)} stroke:{color},color:{color}"
        members: dict[str, list[str]] = {}
        looks: dict[str, NodeLook] = {}
        for node in self.drawing.nodes:
            name, look = self._class_of(node)
            members.setdefault(name, []).append(node.id)
            looks[name] = look
        for name in sorted(members):
            look = looks[name]
            dashes = ",stroke-dasharray:4 3" if name in DASHED else ""
            yield f"  classDef is_{name} fill:{look.fill},stroke:{look.line},color:{look.text}{dashes}"
            yield f"  class {','.join(members[name])} is_{name}"
        wrong = [graph.id for graph in self.drawing.graphs if graph.problems]
        wrong += [node.id for node in self.drawing.nodes if node.problems]
        if wrong:
            yield f"  classDef has_problem stroke:{ALARM},stroke-width:3px"
            yield f"  class {','.join(wrong)} has_problem"
        for graph in self.drawing.graphs:
            yield f"  style {graph.id} {self._ground(graph)}"

    def _class_of(self, node: DrawnNode) -> tuple[str, NodeLook]:
        if self.overlay is not None and node.kind not in {"start", "end", "bound"}:
            standing = self.overlay.standing(node.id)
            return standing, STANDING_LOOKS[standing]
        kind = node.kind if node.kind in NODE_LOOKS else "function"
        return kind, NODE_LOOKS[kind]

    def _ground(self, graph: DrawnGraph) -> str:
        line = PALE if self.overlay is None else STANDING_LOOKS[self.overlay.standing(graph.id)].line
        line = ALARM if graph.problems else line
        return f"fill:{GROUNDS[graph.depth % len(GROUNDS)]},stroke:{line},color:{INK}"
