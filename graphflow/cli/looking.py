"""`graphflow check`, `graphflow bounds` and `graphflow draw`: what can be seen without running anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import anyio

from graphflow.cli.faults import BAD_USE, BadUse, explained, reading
from graphflow.cli.printing import Screen
from graphflow.cli.results import to_json
from graphflow.cli.store import StoreOptions, find, opened
from graphflow.cli.stored import read_stored
from graphflow.cli.target import load_graph
from graphflow.errors import GraphProblems, UnknownRun
from graphflow.events import Event, RunStarted
from graphflow.graphs.bounds import DIMENSIONS, WorstCase
from graphflow.graphs.checks import Problem, require_runnable
from graphflow.graphs.graph import Graph
from graphflow.persistence.lines import read_event
from graphflow.visualize import run_tree, to_dot, to_mermaid, to_svg, to_term
from graphflow.visualize.svg import has_dot, render

Format = Literal["svg", "png", "dot", "mermaid", "term"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)

IMAGES: Final = frozenset({"svg", "png"})
"""What a renderer draws."""

SUFFIXES: Final[dict[str, Format]] = {
    ".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "term",
}  # fmt: skip

SHAPES: Final = frozenset(
    ("ambiguous-next", "dead-edge", "double-edge", "end-needs-join", "fork-reentry", "handoff-leaves-branch",
     "handoff-to-caller", "irreversible-ungated", "join-misplaced", "loop-entry", "no-end", "no-start", "side-entry",
     "unbounded-cycle", "unreachable")
)  # fmt: skip
"""The rules about the shape of a graph: a picture says more about them than words."""

INF: Final = float("inf")


def check_command(screen: Screen, target: str, *, json: bool, mermaid: bool = False) -> int:
    """Print every problem of a graph; the exit code says whether it can run.

    With `mermaid` the graph is drawn too: above the problems, so that these do not scroll away.

    Raises:
        TargetError: if there is no such graph.
    """
    graph = load_graph(target)
    problems = problems_of(graph)
    errors = sum(problem.severity == "error" for problem in problems)
    if json:
        found = [
            {
                "code": problem.code,
                "severity": problem.severity,
                "where": list(problem.where),
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in problems
        ]
        data: dict[str, Any] = {"graph": graph.name, "ok": not errors, "problems": found}
        if mermaid:
            data["mermaid"] = _picture(graph, problems)
        screen.out.line(to_json(data))
    else:
        picture = _picture(graph, problems) if mermaid else None
        if picture is not None:
            screen.out.line(picture)
        screen.out.line("\n".join(_problem_lines(graph, problems)))
        if not mermaid and any(problem.code in SHAPES and problem.severity == "error" for problem in problems):
            screen.say("a picture says more about its shape: --mermaid draws it.")
    return BAD_USE if errors else 0


def problems_of(graph: Graph[Any]) -> tuple[Problem, ...]:
    """Return every problem of a graph, also of one that cannot be put into tables."""
    try:
        return graph.check()
    except GraphProblems as error:
        return tuple(problem for problem in error.problems if isinstance(problem, Problem))


def _problem_lines(graph: Graph[Any], problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems:
        yield f"{problem.severity} {problem.code}: {problem.message}"
        yield f"  {problem.hint}"
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    counts = [f"{errors:,} error{'s' * (errors != 1)}"] * bool(errors)
    counts += [f"{warnings:,} warning{'s' * (warnings != 1)}"] * bool(warnings)
    yield f"{graph.name}: {', '.join(counts) or 'no problems'}"


def _picture(graph: Graph[Any], problems: Sequence[Problem]) -> str | None:
    try:
        return to_mermaid(graph, problems=problems)
    except GraphProblems:  # it cannot be drawn; the problems say why
        return None


def bounds_command(screen: Screen, target: str, *, json: bool) -> int:
    """Print what a run of a graph can do at most.

    Raises:
        TargetError: if there is no such graph.
        GraphProblems: if it has errors: nothing is proved about what cannot run.
    """
    graph = load_graph(target)
    require_runnable(graph)
    case = graph.worst_case()
    screen.out.line(to_json(_case_data(case)) if json else str(case))
    return 0


def _case_data(case: WorstCase) -> dict[str, Any]:
    """Return bounds as JSON data; no bound is null."""
    return {
        "graph": case.graph,
        "structure": {name: _number(getattr(case, name)) for name in DIMENSIONS},
        "with_budget": {name: _number(case.limits[name]) for name in DIMENSIONS},
        "unbounded": dict(case.reasons),
        "visits": [{"path": list(path), "visits": _number(most)} for path, most in case.visits.items()],
    }


def _number(value: float) -> float | None:
    return None if value == INF else value


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw_command(
    screen: Screen, target: str, format: str | None, run: str | None, output: str | None,
    *, store: StoreOptions | None = None,
) -> int:  # fmt: skip
    """Draw a graph, with a run laid over it if there is one.

    Args:
        screen: where to, if there is no `output`.
        target: the graph.
        format: one of the formats, or None.
        run: a file with the events of a run, or a stored run, or None.
        output: the file to write, or None.
        store: where runs are stored.

    Raises:
        BadUse: if format, events or output make no sense.
        TargetError: if there is no such graph.
        GraphProblems: if the graph is so broken that it has no picture.
        MissingExtra: if there is no renderer.
    """
    wanted = chosen_format(format, output)
    graph = load_graph(target)
    events = None if run is None else events_of(run, graph, store or StoreOptions())
    problems = [problem for problem in problems_of(graph) if problem.severity == "error"]  # a warning is no red mark
    to_file = output is not None and output != "-"
    width = 100 if to_file else min(screen.out.width, 100)
    if wanted == "png" and not to_file and screen.out.terminal:
        raise BadUse("--format png: a terminal cannot show that; add -o FILE.")
    picture = _drawn(graph, wanted, events, problems, ascii=screen.out.ascii and not to_file, width=width)
    if output is not None and to_file:
        try:
            Path(output).write_bytes(
                picture if isinstance(picture, bytes) else picture.encode("utf-8", "backslashreplace")
            )
        except (OSError, ValueError) as error:
            why = reading(error) if isinstance(error, OSError) else str(error)
            raise BadUse(f"-o {output}: it cannot be written: {why}.") from error
    elif isinstance(picture, bytes):
        screen.out.data(picture)
    else:
        screen.out.line(picture)
    if wanted in IMAGES and not has_dot():
        screen.say("drawn without graphviz's `dot`, which gives a better picture where it is installed.")
    if problems:
        count = f"{len(problems):,} error{'s' * (len(problems) != 1)}"
        screen.say(f"{graph.name} has {count}, so it cannot run: `graphflow check` tells which.")
    return 0


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
