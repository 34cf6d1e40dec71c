"""Ready-made teams inside each other, and inside every strategy: they check, are bounded, drawn, run and stored."""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphflow import Agent, Graph
from graphflow.visualize import to_dot, to_mermaid
from tests.teams.helpers import STRATEGIES, TEAMS, Makes, one, played, problems, says

PAIRS = [
    pytest.param(outer, inner, id=f"{name}-{name_inside}")
    for name, outer in TEAMS.items()
    for name_inside, inner in TEAMS.items()
]
MIXED = [
    *(pytest.param(o, i, id=f"{a}-{b}") for a, o in STRATEGIES.items() for b, i in TEAMS.items()),
    *(pytest.param(o, i, id=f"{a}-{b}") for a, o in TEAMS.items() for b, i in STRATEGIES.items()),
]


def nested(outer: Makes, inner: Makes) -> Graph[Any]:
    """A team with another one as its member."""
    return outer("outer", inner("inner", one("member")))


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
async def test_a_team_inside_a_team_runs_within_what_was_proved(outer: Makes, inner: Makes) -> None:
    """The run is completed, the inner team has worked in it, and its journal folds to the same end."""
    graph = nested(outer, inner)

    found = await played(graph)

    assert found.result.status == "completed"
    assert any(where[-1] == "member" and "inner" in where for where in found.visited)


@pytest.mark.parametrize(("outer", "inner"), [*PAIRS, *MIXED])
def test_a_nested_team_passes_the_checks_with_a_finite_worst_case(outer: Makes, inner: Makes) -> None:
    """Nothing but the missing budget is to be said of it."""
    graph = nested(outer, inner)

    worst = graph.worst_case()

    assert problems(graph) == []
    assert max(worst.node_runs, worst.model_calls, worst.tool_calls, worst.concurrent, worst.depth) < math.inf


@pytest.mark.parametrize(("outer", "inner"), MIXED[::3])
async def test_teams_and_strategies_stand_in_each_other(outer: Makes, inner: Makes) -> None:
    """The run is completed, and the inner one has worked in it."""
    graph = nested(outer, inner)

    found = await played(graph)

    assert found.result.status == "completed"
    assert any("inner" in where for where in found.visited)


ODD = (" ", "a/b", "workers", "draft", "together", '"]>\n名')


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in TEAMS.items()])
async def test_any_text_is_the_name_of_a_member(make: Makes, name: str) -> None:
    """A member may be called as a node of the team's own, or as anything: the team works, and the picture shows it."""
    graph = make(name, says(name, "It is so."))

    found = await played(graph)

    assert found.result.status == "completed"
    assert problems(graph) == []
    assert to_dot(graph)
    assert to_mermaid(graph)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in TEAMS.items()])
def test_equal_teams_are_equal_graphs(make: Makes) -> None:
    """Made twice, a team has one fingerprint: a stored run of the one goes on with the other."""
    member = Agent("member", model=one("any").model)

    first, second = make("team", member), make("team", member)

    assert first.fingerprint() == second.fingerprint()
