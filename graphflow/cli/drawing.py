"""`graphflow draw`: a picture of a graph, with a run laid over it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import anyio

from graphflow.cli.faults import BadUse, explained, reading
from graphflow.cli.looking import problems_of
from graphflow.cli.printing import Screen
from graphflow.cli.store import StoreOptions, find, opened
from graphflow.cli.stored import read_stored
from graphflow.cli.target import load_graph
from graphflow.errors import UnknownRun
from graphflow.events import Event, RunStarted
from graphflow.graphs.checks import Problem
from graphflow.graphs.graph import Graph
from graphflow.persistence.lines import read_event
from graphflow.visualize import run_tree, to_dot, to_mermaid, to_svg, to_term
from graphflow.visualize.svg import has_dot, render
from graphflow.visualize.text import cells

Format = Literal["svg", "png", "dot", "mermaid", "term"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)

IMAGES: Final = frozenset({"svg", "png"})
"""What a renderer draws."""

SUFFIXES: Final[dict[str, Format]] = {
    ".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "term",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawWords:
    """What stands on the command line of `graphflow draw`.

    Attributes:
        target: the graph.
        format: one of the formats, or None.
        run: a file with the events of a run, or a stored run, or None.
        output: the file to write, or None.
        store: where runs are stored.
    """

    target: str
    format: str | None = None
    run: str | None = None
    output: str | None = None
    store: StoreOptions = field(default_factory=StoreOptions)

    @property
    def file(self) -> str | None:
        """The file to write, None for the standard output."""
        return None if self.output == "-" else self.output


def draw_command(screen: Screen, words: DrawWords, *, json: bool) -> int:
    """Draw a graph, with a run laid over it if there is one.

    Raises:
        BadUse: if format, events or output make no sense.
        TargetError: if there is no such graph.
        GraphProblems: if the graph is so broken that it has no picture.
        MissingExtra: if there is no renderer.
    """
    wanted = chosen_format(words.format, words.output)
    graph = load_graph(words.target)
    events = None if words.run is None else events_of(words.run, graph, words.store)
    problems = [problem for problem in problems_of(graph) if problem.severity == "error"]  # a warning is no red mark
    to_file = words.file is not None
    width = 100 if to_file or json else min(screen.out.width, 100)
    if wanted == "png" and not to_file and not json and screen.out.terminal:
        raise BadUse("--format png: a terminal cannot show that; add -o FILE.")
    plain = screen.out.ascii and not to_file and not json
    picture = _drawn(graph, wanted, events, problems, ascii=plain, width=width)
    if words.file is not None:
        _write(words.file, picture)
    if json:
        screen.document(_data(graph, wanted, words.file, picture))
    elif not to_file:
        if isinstance(picture, bytes):
            screen.out.data(picture)
        elif wanted != "term" and not screen.out.terminal and not screen.out.unicode:
            screen.out.data(_encoded(picture))  # it is for a program, and what a terminal would be shown is no picture
        else:
            screen.out.line(picture)
    if wanted == "term" and screen.out.terminal and not json and not to_file:
        _say_if_wide(screen, str(picture))
    if wanted in IMAGES and not has_dot():
        screen.say("drawn without graphviz's `dot`, which gives a better picture where it is installed.")
    if problems:
        count = f"{len(problems):,} error{'s' * (len(problems) != 1)}"
        screen.say(f"{graph.name} has {count}, so it cannot run: `graphflow check` tells which.")
    return 0


def _say_if_wide(screen: Screen, picture: str) -> None:
    wide = max(map(cells, picture.splitlines()), default=0)
    if wide > screen.out.width:
        screen.say(
            f"the picture is {wide} columns wide, and this terminal has {screen.out.width}: add `| less -S`, or "
            f"-o FILE.svg."
        )


def _write(name: str, picture: str | bytes) -> None:
    try:
        Path(name).write_bytes(_encoded(picture))
    except (OSError, ValueError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        raise BadUse(f"-o {name}: it cannot be written: {why}.") from error


def _encoded(picture: str | bytes) -> bytes:
    return picture if isinstance(picture, bytes) else picture.encode("utf-8", "backslashreplace")


def _data(graph: Graph[Any], format: Format, file: str | None, picture: str | bytes) -> dict[str, Any]:
    """Return a picture as JSON data: where it was written, or else itself."""
    binary = isinstance(picture, bytes)
    text = base64.b64encode(picture).decode() if isinstance(picture, bytes) else picture
    return {
        "graph": graph.name, "format": format, "file": file, "encoding": "base64" if binary else "text",
        "picture": None if file is not None else text,
    }  # fmt: skip


def chosen_format(format: str | None, output: str | None) -> Format:
    """Return the format that is asked for: by name, by the suffix of the file, else for the terminal.

    >>> chosen_format(None, "team.svg"), chosen_format(None, None)
    ('svg', 'term')

    Raises:
        BadUse: if there is no such format.
    """
    for known in FORMATS:
        if format == known:
            return known
    if format is not None:
        raise BadUse(f"--format {format}: the formats are {', '.join(FORMATS)}.")
    if output is None or output == "-":
        return "term"
    found = SUFFIXES.get(Path(output).suffix.lower())
    if found is None:
        suffixes = ", ".join(SUFFIXES)
        raise BadUse(f"-o {output}: the suffix tells no format: add --format, or use one of {suffixes}.")
    return found


def _drawn(
    graph: Graph[Any], format: Format, events: Sequence[Event] | None, problems: Sequence[Problem], *, ascii: bool,
    width: int,
) -> str | bytes:  # fmt: skip
    match format:
        case "png":
            return render(to_dot(graph, run=events, problems=problems), "png")
        case "svg":
            return to_svg(graph, run=events, problems=problems)
        case "dot":
            return to_dot(graph, run=events, problems=problems)
        case "mermaid":
            return to_mermaid(graph, run=events, problems=problems)
        case "term":
            picture = to_term(graph, ascii=ascii)
            return picture if events is None else picture + "\n" + run_tree(events, ascii=ascii, width=width)


def events_of(name: str, graph: Graph[Any], options: StoreOptions) -> list[Event]:
    """Read the events of one run of a graph: from a file, from the standard input, or from where runs are stored.

    Raises:
        BadUse: if they cannot be read, or are no events of one run of this graph.
        JournalError: if the run is stored and cannot be read.
    """
    if name == "-" or _is_there(name):
        return read_events(name, graph)
    with opened(options) as store:
        try:
            run = anyio.run(find, store, name).run
        except (BadUse, UnknownRun) as error:
            raise BadUse(f"--run {name}: there is no such file, and {explained(error)[1]}") from error
        stored = anyio.run(read_stored, store.journal, run)
    return _of_one_run(name, graph, list(stored.events()))


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def read_events(name: str, graph: Graph[Any]) -> list[Event]:
    """Read the events of one run of a graph; "-" is the standard input.

    A last line that is not complete is left out: the run was stopped while it was written.

    Raises:
        BadUse: if they cannot be read, or are no events of one run of this graph.
    """
    try:
        if name == "-":
            lines = sys.stdin.readlines()
        else:
            with Path(name).open(encoding="utf-8", errors="surrogateescape") as file:
                lines = file.readlines()
    except (OSError, ValueError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        raise BadUse(f"--run {name}: it cannot be read: {why}.") from error
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            events.append(read_event(line))
        except ValueError as error:
            if number == len(lines) and not line.endswith("\n") and events:
                break
            raise BadUse(f"--run {name}: line {number} is {error}.") from error
    return _of_one_run(name, graph, events)


def _of_one_run(name: str, graph: Graph[Any], events: list[Event]) -> list[Event]:
    first = events[0].body if events else None
    if not isinstance(first, RunStarted):
        raise BadUse(f"--run {name}: these are no events of a run: graphflow run --events writes them.")
    if first.graph != graph.name:
        raise BadUse(f"--run {name}: these are events of the graph {first.graph!r}, not of {graph.name!r}.")
    if len({event.run for event in events}) > 1:
        raise BadUse(f"--run {name}: these are events of more than one run.")
    return events
