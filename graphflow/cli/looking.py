"""`graphflow check` and `graphflow bounds`: what can be said of a graph without running it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from graphflow.cli.faults import BAD_USE, problem_data
from graphflow.cli.printing import Screen
from graphflow.cli.target import load_graph
from graphflow.errors import GraphProblems
from graphflow.graphs.bounds import DIMENSIONS, WorstCase
from graphflow.graphs.checks import Problem, require_runnable
from graphflow.graphs.graph import Graph
from graphflow.visualize import to_mermaid

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
        found = [problem_data(problem) for problem in problems]
        data: dict[str, Any] = {"graph": graph.name, "ok": not errors, "problems": found}
        if mermaid:
            data["mermaid"] = _picture(graph, problems)
        screen.document(data)
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
    if json:
        screen.document(_case_data(case))
    else:
        screen.out.line(str(case))
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
