"""How each kind of node, edge and state looks: one table for every format.

Text on its ground has a contrast of at least 4.5 to 1; in DOT no two kinds of edges differ by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphflow.visualize.drawing import EdgeKind
from graphflow.visualize.overlay import Standing

INK: Final = "#1f2937"
SOFT: Final = "#4b5563"
PALE: Final = "#9ca3af"
ALARM: Final = "#b91c1c"
GROUNDS: Final = ("#ffffff", "#f3f4f6", "#e5e7eb")
"""The ground of the outermost graph and of those inside it, in turn."""


@dataclass(frozen=True, slots=True)
class NodeLook:
    """How a kind of node looks.

    Attributes:
        fill, line: its colours.
        text: the colour of its name.
        shape: its shape in DOT.
        style: how its shape is drawn in DOT.
        mermaid: what stands around its label in Mermaid.
        glyph: what stands for it in a legend, a character that most fonts have.
    """

    fill: str
    line: str
    text: str = INK
    shape: str = "box"
    style: str = "rounded,filled"
    mermaid: tuple[str, str] = ("[", "]")
    glyph: str = "□"


NODE_LOOKS: Final = {
    "function": NodeLook("#f8fafc", "#475569"),
    "agent": NodeLook("#e0f2fe", "#0369a1", mermaid=("(", ")"), glyph="■"),
    "supervisor": NodeLook(
        "#dbeafe", "#1d4ed8", shape="box peripheries=2", style="filled", mermaid=("[[", "]]"), glyph="▣"
    ),
    "human": NodeLook("#fef3c7", "#b45309", shape="house", style="filled", mermaid=("[/", "\\]"), glyph="▲"),
    "join": NodeLook("#ede9fe", "#6d28d9", style="filled", mermaid=("{{", "}}"), glyph="◆"),
    "graph": NodeLook("#f3f4f6", "#475569", style="filled", mermaid=("[[", "]]")),
    "start": NodeLook("#1f2937", "#1f2937", "#ffffff", mermaid=("([", "])")),
    "end": NodeLook("#ffffff", "#1f2937", mermaid=("([", "])")),
    "bound": NodeLook(
        "#ffedd5", "#c2410c", shape="octagon margin=0.02 height=0.3", style="filled", mermaid=("{{", "}}")
    ),
    "recursion": NodeLook("#f3f4f6", "#6b7280", style="filled,dashed", mermaid=("[(", ")]")),
}
"""By kind; a kind that is not here looks like a function."""


@dataclass(frozen=True, slots=True)
class EdgeLook:
    """How a kind of edge looks.

    Attributes:
        color: its line and its label.
        dot: its line and heads in DOT.
        mermaid: its arrow in Mermaid.
        glyph: its picture in one line of text, of characters that most fonts have.
        meaning: what it means, in a few words.
    """

    color: str
    dot: str
    mermaid: str
    glyph: str
    meaning: str


EDGE_LOOKS: Final[dict[EdgeKind, EdgeLook]] = {
    "next": EdgeLook("#374151", "arrowhead=normal", "-->", "──►", "next"),
    "fork": EdgeLook(
        "#111827", "penwidth=2.4 dir=both arrowtail=tee arrowhead=normal", "==>", "╞═►", "fork: all at once"
    ),
    "join": EdgeLook("#111827", "penwidth=2.4 arrowhead=teenormal", "==>", "══►│", "join: they meet"),
    "choose": EdgeLook("#115e59", "dir=both arrowtail=odiamond arrowhead=normal", "-->", "◊─►", "choose: one of these"),
    "map": EdgeLook(
        "#111827",
        "penwidth=2.4 dir=both arrowtail=tee arrowhead=normalnormal",
        "==>",
        "╞═►►",
        "map: once for each item",
    ),
    "delegate": EdgeLook(
        "#1d4ed8",
        "penwidth=1.3 dir=both arrowtail=odot arrowhead=onormal",
        "<-->",
        "○─>",
        "delegates: a report comes back",
    ),
    "handoff": EdgeLook("#7e22ce", "style=dashed penwidth=1.3 arrowhead=vee", "-.->", "- ->", "hands off control"),
    "error": EdgeLook(ALARM, "arrowhead=normal dir=both arrowtail=dot", "--x", "●─►", "on error"),
    "escalate": EdgeLook("#9a3412", "style=dotted penwidth=1.6 arrowhead=normal", "-.->", "···►", "escalates"),
}

ARROWS: Final = {"-->": "──►", "==>": "━━►", "<-->": "◄──►", "-.->": "╌╌►", "--x": "──×"}
"""How Mermaid draws its arrows, in one line of text; several kinds of edges may share one."""

STANDING_LOOKS: Final[dict[Standing, NodeLook]] = {
    "completed": NodeLook("#dcfce7", "#15803d"),
    "failed": NodeLook("#fee2e2", "#b91c1c"),
    "running": NodeLook("#dbeafe", "#2563eb"),
    "waiting": NodeLook("#fef9c3", "#a16207"),
    "open": NodeLook("#ffedd5", "#c2410c"),
    "cancelled": NodeLook("#e5e7eb", "#4b5563"),
    "refused": NodeLook("#ffedd5", "#c2410c"),
    "skipped": NodeLook("#f9fafb", "#9ca3af", "#6b7280"),
    "idle": NodeLook("#ffffff", "#d1d5db", "#6b7280"),
}
"""By how a node stands in a run."""

NOT_TAKEN: Final = ("#cbd5e1", "#59616e")
"""The colours of an edge, and of what is written on it, that a run did not take."""

STANDING_WORDS: Final[dict[Standing, str]] = {
    "completed": "completed",
    "failed": "failed",
    "running": "running",
    "waiting": "waits for a person",
    "open": "open: can be resumed",
    "cancelled": "cancelled",
    "refused": "refused by a bound",
    "skipped": "skipped",
    "idle": "not reached",
}

DASHED: Final[frozenset[Standing]] = frozenset({"skipped", "cancelled", "refused"})
"""What is drawn with a broken line, so that it can be told without its colour."""


def node_look(kind: str) -> NodeLook:
    """Return the look of a kind of node."""
    return NODE_LOOKS.get(kind, NODE_LOOKS["function"])
