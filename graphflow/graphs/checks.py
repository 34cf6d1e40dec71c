"""The checks of a graph: a table of rules, all problems at once.

To add one, write a function that takes a `Look` and yields problems, and add it to the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from graphflow.errors import GraphProblems
from graphflow.graphs import agent_rules, fork_rules, rules, team_rules
from graphflow.graphs.bounds import worst_case
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import INF, Look, Problem, as_graph, look_at
from graphflow.graphs.spend import CALLS

__all__ = ("Problem", "check_graph", "require_runnable")

Rule = Callable[[Look], Iterable[Problem]]

RULES: Final[tuple[Rule, ...]] = (
    rules.start_missing,
    rules.ambiguous_next,
    rules.double_edge,
    rules.name_clash,
    rules.unreachable,
    rules.no_end,
    rules.dead_edge,
    rules.unbounded_cycle,
    rules.into_field,
    rules.contract_types,
    rules.unknown_field,
    rules.enter_missing,
    fork_rules.fork_reentry,
    fork_rules.side_entry,
    fork_rules.loop_entry,
    fork_rules.end_needs_join,
    fork_rules.parallel_fields,
    team_rules.delegate_unbounded,
    team_rules.graph_source,
    team_rules.delegation_cycle,
    team_rules.too_deep,
    team_rules.handoff_to_caller,
    agent_rules.tool_clash,
    agent_rules.no_team,
    agent_rules.answer_contract,
)
"""The rules of every graph, nested ones too."""

FOLLOWS: Final = frozenset(
    {
        "ambiguous-next", "double-edge", "unreachable", "no-end", "dead-edge", "unbounded-cycle", "fork-reentry",
        "side-entry", "loop-entry", "end-needs-join",
    }
)  # fmt: skip
"""What is said of the ways through a graph; of nodes that are named twice, or lead on twice, it is not meant."""

ROOT_RULES: Final[tuple[Rule, ...]] = (team_rules.irreversible_ungated,)
"""Rules that look through nested graphs by themselves: what is gated outside needs no gate inside."""

ADVICE: Final[tuple[Rule, ...]] = (
    rules.no_default,
    rules.context_type,
    rules.no_max_items,
    fork_rules.join_policy,
    agent_rules.same_description,
    agent_rules.overlapping_tools,
    agent_rules.full_history,
    agent_rules.unknown_right,
    agent_rules.unknown_grant,
)
"""The warnings of every graph."""


def check_graph(graph: Graph[Any]) -> tuple[Problem, ...]:
    """Return every problem of a graph and of the graphs inside it, errors first, in an order of their own.

    Each distinct nested graph is looked at once; `where` begins with the names that lead to it.
    """
    errors = _errors(graph)
    return errors + _sorted([*_everywhere(graph, ADVICE), *_budget(graph, proved=not errors)])


def require_runnable(graph: Graph[Any]) -> None:
    """Make sure that a graph has no errors. A graph is a value, so the answer is kept with it.

    Raises:
        GraphProblems: with all errors, if it has any.
    """
    problems = _errors(graph)
    if problems:
        raise GraphProblems(graph.name, problems)


def _errors(graph: Graph[Any]) -> tuple[Problem, ...]:
    kept = graph.__dict__.get("_errors")
    if kept is None:
        root = look_at(graph)
        found = [problem for rule in ROOT_RULES for problem in rule(root)]
        kept = graph.__dict__["_errors"] = _sorted([*_everywhere(graph, RULES), *found])
    problems: tuple[Problem, ...] = kept
    return problems


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(set(problems), key=lambda found: (found.where, found.code, found.message)))


def _everywhere(graph: Graph[Any], table: Iterable[Rule]) -> Iterator[Problem]:
    """Apply rules to a graph and to each distinct graph inside it."""
    for names, look in _looks(graph):
        for problem in _causes([problem for rule in table for problem in rule(look)]):
            yield _within(names, problem)


def _causes(problems: list[Problem]) -> list[Problem]:
    """Leave out what only follows from another problem of the same nodes.

    Of two nodes with one name, or two next statements of one node, the tables hold what nobody has meant.
    """
    for cause in ("name-clash", "ambiguous-next"):
        about = {name for problem in problems if problem.code == cause for name in problem.where}
        if about:
            follows = FOLLOWS - {cause}
            problems = [one for one in problems if one.code not in follows or not about.intersection(one.where)]
    return problems


def _looks(graph: Graph[Any]) -> list[tuple[tuple[str, ...], Look]]:
    """Look at each distinct graph once: by its shortest way, and under the weakest depth limit that it stands below."""
    names: dict[int, tuple[str, ...]] = {id(graph): ()}
    looks: dict[int, Look] = {id(graph): look_at(graph)}
    line = [graph]
    for outer in line:
        above = looks[id(outer)]
        mentioned = above.graph.mentioned()
        inner = {id(node): found for node in mentioned if (found := as_graph(node)) is not None}
        for key, node in sorted(inner.items(), key=lambda item: item[1].name):
            names.setdefault(key, (*names[id(outer)], node.name))
            if key not in looks or (looks[key].max_depth < INF and above.max_depth == INF and node.max_depth is None):
                looks[key] = look_at(node, above.max_depth)
                line.append(node)
    return [(names[key], look) for key, look in looks.items()]


def _within(names: tuple[str, ...], problem: Problem) -> Problem:
    if not names:
        return problem
    message = f"in {'/'.join(names)!r}: {problem.message}"
    return dataclasses.replace(problem, where=(*names, *problem.where), message=message)


def _budget(graph: Graph[Any], *, proved: bool) -> Iterator[Problem]:
    """The root has a budget, and its structure, if anything is proved about it, cannot want more."""
    if graph.budget is None:
        message = f"the graph {graph.name!r} has no budget, so only its structure limits what a run spends."
        yield Problem("no-budget", (), message, "Add budget=Budget(...), here or to run(...).", "warning")
    if graph.budget is not None:
        yield from agent_rules.unpriced(graph)
    if graph.budget is None or not proved:
        return
    case = worst_case(graph)
    for name in CALLS:
        limit, most = getattr(graph.budget, name), getattr(case, name)
        if limit is not None and most > limit:
            what = name.replace("_", " ")
            message = f"a run can want {most} {what}, and its budget allows {limit}."
            hint = "It may end exhausted: raise the budget, or lower the bounds."
            if most == INF:
                message = f"nothing but its budget, which allows {limit}, bounds the {what} of a run."
                hint = f"It may end exhausted: give it a bound, for {case.reasons[name]}."
            yield Problem("over-budget", (), message, hint, "warning")
