"""SVG and PNG: drawn by graphviz's `dot`, or where there is none by the renderer of the extra `render`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from graphflow.errors import GraphflowError, MissingExtra, UsageError
from graphflow.events import Event
from graphflow.graphs.graph import Graph
from graphflow.visualize.dot import to_dot
from graphflow.visualize.drawing import ProblemLike
from graphflow.visualize.mermaid import to_mermaid

ImageFormat = Literal["svg", "png"]
Format = Literal["svg", "png", "dot", "mermaid"]

_PURE: Final = "graphviz-pure"

SCRIPTS: Final = sysconfig.get_path("scripts")
"""Where the extra `render` puts its program; often not on PATH."""

SUFFIXES: Final[dict[str, Format]] = {
    ".svg": "svg",
    ".png": "png",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
}
"""Which format a file's name asks for."""


def to_svg(graph: Graph[Any], *, run: Iterable[Event] | None = None, problems: Iterable[ProblemLike] = ()) -> str:
    """Draw a graph as SVG text; nothing in it points outside.

    Args:
        graph: what to draw.
        run: the events of a run of it, to be laid over the picture.
        problems: what to mark, such as `graph.check()`.

    Raises:
        MissingExtra: if there is neither `dot` nor the extra `render`.
        GraphflowError: if the renderer gives up on this graph.
    """
    return render(to_dot(graph, run=run, problems=problems), "svg").decode()


def draw(
    graph: Graph[Any],
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    run: Iterable[Event] | None = None,
    problems: Iterable[ProblemLike] = (),
) -> Path:
    """Draw a graph into a file, and return the file's path.

    Args:
        graph: what to draw.
        path: the file; its suffix tells the format: .svg, .png, .dot, .gv, .mmd or .mermaid.
        format: the format where the suffix does not tell it.
        run: the events of a run of it, to be laid over the picture.
        problems: what to mark, such as `graph.check()`.

    Raises:
        UsageError: if neither suffix nor `format` names a format.
        MissingExtra: if an image needs a renderer and there is none.
        GraphflowError: if the renderer gives up on this graph.
        OSError: if the file cannot be written.
    """
    file = Path(path)
    wanted = format or SUFFIXES.get(file.suffix.lower())
    match wanted:
        case "mermaid":
            content = to_mermaid(graph, run=run, problems=problems).encode()
        case "dot":
            content = to_dot(graph, run=run, problems=problems).encode()
        case "svg" | "png":
            content = render(to_dot(graph, run=run, problems=problems), wanted)
        case _:
            suffixes = ", ".join(SUFFIXES)
            msg = f"draw({str(file)!r}, format={format!r}): a suffix out of {suffixes}, or format=, is needed."
            raise UsageError(msg)
    file.write_bytes(content)
    return file


def has_dot() -> bool:
    """Tell whether graphviz's `dot` draws images here, and not the renderer of the extra."""
    return shutil.which("dot") is not None


def render(dot: str, format: ImageFormat) -> bytes:
    """Draw DOT text as an image.

    Raises:
        MissingExtra: if there is neither `dot` nor the extra `render`.
        GraphflowError: if the renderer gives up.
    """
    import graphviz  # pyright: ignore[reportMissingTypeStubs]

    source = dot.encode()
    try:
        try:
            image: bytes = graphviz.pipe("dot", format, source, quiet=True)
            return image
        except graphviz.ExecutableNotFound as missing:
            program = shutil.which(_PURE, path=os.pathsep.join([*os.get_exec_path(), SCRIPTS]))
            if program is None:
                wanted = f"drawing {format.upper()} (`dot` of graphviz was not found on PATH)"
                raise MissingExtra(wanted, "render", "install graphviz, which brings `dot`") from missing
        command = [program, f"-T{format}"]
        return subprocess.run(command, input=source, capture_output=True, check=True).stdout  # noqa: S603 - a program found by its fixed name
    except subprocess.CalledProcessError as error:
        said = bytes(error.stderr or b"").decode(errors="replace").strip()[:500]
        msg = f"graphviz could not draw this as {format}: {said}\nDOT and Mermaid text can still be written."
        raise GraphflowError(msg) from error
