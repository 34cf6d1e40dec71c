"""Seeing: pictures of graphs in DOT, Mermaid, SVG and the terminal; runs laid over them; a tree of runs."""

from graphflow.visualize.dot import to_dot as to_dot
from graphflow.visualize.mermaid import to_mermaid as to_mermaid
from graphflow.visualize.svg import draw as draw
from graphflow.visualize.svg import to_svg as to_svg
from graphflow.visualize.term import to_term as to_term
from graphflow.visualize.tree import run_tree as run_tree

__all__ = ("draw", "run_tree", "to_dot", "to_mermaid", "to_svg", "to_term")
