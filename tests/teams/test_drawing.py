"""Pictures of big teams: members stand below each other where a picture would be a band otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import END, START, Graph
from graphflow.graphs.conversation import Task
from graphflow.graphs.teams import hierarchy
from graphflow.testing import RuleModel
from graphflow.visualize import to_dot, to_svg
from graphflow.visualize.drawing import drawing_of
from graphflow.visualize.stacking import LEAST_NODES, stacked
from tests.teams.helpers import ANYBODY, agent, says

MODEL = RuleModel(otherwise="-")


def company(depth: int, width: int) -> Graph[Any]:
    """A hierarchy of equal teams."""

    def team(name: str, left: int) -> list[Any]:
        names = [f"{name}{number}" for number in range(width)]
        return [{below: team(below, left - 1)} if left > 1 else below for below in names]

    return hierarchy("company", {"chief": team("n", depth)}, model=MODEL)


def size(svg: str) -> tuple[float, float]:
    """The width and the height of a picture, in points."""
    box = svg.partition('viewBox="')[2].partition('"')[0].split()
    return float(box[2]), float(box[3])


@pytest.mark.parametrize(("depth", "width"), [(4, 4), (3, 4), (2, 7), (1, 60), (3, 5)])
def test_a_picture_of_a_big_team_is_no_band(depth: int, width: int) -> None:
    """It is at most six times as high as wide, and as wide as high, however many stand in it."""
    wide, high = size(to_svg(company(depth, width)))

    assert 1 / 6 < wide / high < 6


def test_small_pictures_are_left_as_they_are() -> None:
    """Nothing is moved in a picture that has few nodes."""
    graph = company(2, 3)

    assert len(drawing_of(graph).nodes) < LEAST_NODES
    assert stacked(drawing_of(graph)) == {}
    assert "invis" not in to_dot(graph)


def test_equal_companies_have_equal_pictures() -> None:
    """The picture depends on the graph alone."""
    assert to_dot(company(3, 4)) == to_dot(company(3, 4))


def test_a_member_that_others_lead_to_as_well_is_not_moved() -> None:
    """Only those stand below each other whom nobody but their supervisor leads to."""
    members = [agent(f"member {number}", ANYBODY) for number in range(LEAST_NODES)]
    shared = says("shared", "-")
    head = agent("head", ANYBODY)
    chains = [START >> head >> END, head.delegates(*members, shared, max_hops=1)]
    graph = Graph("team", *chains, members[0].hands_off(shared, max_hops=1), context=Task)

    pairs = stacked(drawing_of(graph))["g0"]

    drawn = {node.name: node.id for node in drawing_of(graph).nodes}
    assert pairs
    assert all(drawn["shared"] not in pair for pair in pairs)
