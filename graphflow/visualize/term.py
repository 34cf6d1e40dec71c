"""A graph drawn with characters, for the terminal."""

from __future__ import annotations

from typing import Any, Final

from graphflow.errors import MissingExtra
from graphflow.graphs.graph import Graph
from graphflow.visualize.drawing import drawing_of
from graphflow.visualize.mermaid import Dialect, mermaid_of
from graphflow.visualize.style import EDGE_LOOKS
from graphflow.visualize.text import plain, shown

_LEGEND: Final = (
    ("-->", ("──▶", "-->"), "control goes on"),
    ("==>", ("━━▶", "==>"), "all at once, until they meet"),
    ("<-->", ("◀─▶", "<->"), "delegates: a report comes back"),
    ("-.->", ("┄┄▶", "..>"), "hands off control, or escalates at a bound"),
)


def to_term(graph: Graph[Any], *, ascii: bool = False) -> str:
    """Draw a graph for a terminal, with a legend and the bounds of its graphs below it.

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
    spell = _plain if ascii else _spelled
    dialect = Dialect(line_break="\\n", other_break=" · ", crosses=False, decorated=False, spell=spell)
    picture = termaid.render(mermaid_of(drawing, dialect=dialect), use_ascii=ascii, padding_x=2, padding_y=0)
    drawn = {EDGE_LOOKS[edge.kind].mermaid.replace("x", ">") for edge in drawing.edges}
    legend = [f"  {glyphs[ascii]}  {meaning}" for arrow, glyphs, meaning in _LEGEND if arrow in drawn]
    bounds = [f"  {shown(graph.name, 40)}: {' · '.join(graph.facts)}" for graph in drawing.graphs if graph.facts]
    if ascii:
        bounds = [plain(line) for line in bounds]
    return "\n".join([*(line.rstrip() for line in picture.splitlines()), "", *legend, *bounds, ""])


def _spelled(line: str) -> str:
    r"""Write a line without `\n`, which termaid takes for a new line however it was escaped."""
    return line.replace("\\n", "\N{SET MINUS}n")


def _plain(line: str) -> str:
    return plain(line).replace("\\n", "\\ n")
