"""What is written beside the edges of a picture can be read: no two labels touch, and no line runs over one."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest

from graphflow import strategies
from graphflow.graphs.graph import Graph
from graphflow.testing.strategies import Strategy
from graphflow.visualize import to_dot, to_mermaid
from tests.strategies.teams import NINE, agent, team

APART: Final = 9.0
"""How far apart labels stand that stand side by side, in points."""

HAS_DOT: Final = shutil.which("dot") is not None


class Box(NamedTuple):
    """What a label takes."""

    left: float
    low: float
    right: float
    high: float

    def touches(self, other: "Box") -> bool:
        """Tell whether two labels are read as one."""
        aside = max(self.left - other.right, other.left - self.right)
        above = max(self.low - other.high, other.low - self.high)
        return aside < APART and above < 1

    def holds(self, x: float, y: float) -> bool:
        """Tell whether a point lies on the label."""
        return self.left + 1 < x < self.right - 1 and self.low + 1 < y < self.high - 1


def label_of(edge: Mapping[str, Any]) -> Box | None:
    """Return what the words of an edge's label take, as graphviz reckons it."""
    size, boxes = 0.0, list[Box]()
    for drawn in edge.get("_ldraw_", []):
        size = drawn["size"] if drawn["op"] == "F" else size
        if drawn["op"] == "T" and drawn["text"].strip("\u00a0 "):
            (x, y), width = drawn["pt"], float(drawn["width"])
            left = float(x) - {"l": 0.0, "c": 0.5, "r": 1.0}[drawn["align"]] * width
            boxes.append(Box(left, y - 0.2 * size, left + width, y + 0.75 * size))
    if not boxes:
        return None
    lefts, lows, rights, highs = zip(*boxes, strict=True)
    return Box(min(lefts), min(lows), max(rights), max(highs))


def line_of(edge: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    """Yield points on the line of an edge."""
    parts = [part for part in edge["pos"].split() if part[0] not in "es"]
    points = [complex(*map(float, part.split(","))) for part in parts]
    for at in range(0, len(points) - 3, 3):
        a, b, c, d = points[at : at + 4]
        for step in range(41):
            t, u = step / 40, 1 - step / 40
            point = u**3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t**3 * d
            yield point.real, point.imag


def laid_out(graph: Graph[Any]) -> list[Mapping[str, Any]]:
    """Return the edges of a picture, as graphviz lays them out."""
    done = subprocess.run(["dot", "-Tjson"], input=to_dot(graph), capture_output=True, text=True, check=True)
    return [edge for edge in json.loads(done.stdout)["edges"] if edge.get("style") != "invis"]


TEAMS: Final[list[tuple[Strategy, Strategy | None]]] = [
    *((kind, None) for kind in NINE),
    ("swarm", "manual"), ("swarm", "random"), ("swarm", "round_robin"), ("swarm", "swarm"), ("plan_execute", "swarm"),
    ("manual", "swarm"), ("round_robin", "plan_execute"), ("handoff", "sequential"), ("parallel", "router"),
]  # fmt: skip


@pytest.mark.may_block
@pytest.mark.skipif(not HAS_DOT, reason="there is no graphviz")
@pytest.mark.parametrize(("outer", "inner"), TEAMS)
def test_labels_touch_nothing(outer: Strategy, inner: Strategy | None) -> None:
    """Of any strategy, alone and inside another one."""
    edges = laid_out(team(outer, "t", None if inner is None else team(inner, "inner")))
    labels = [(edge, box) for edge in edges if (box := label_of(edge)) is not None]

    assert labels or outer == "sequential"
    for (_, one), (_, other) in combinations(labels, 2):
        assert not one.touches(other)
    for edge, box in labels:
        assert not any(box.holds(*point) for other in edges if other is not edge for point in line_of(other))


def test_a_floor_that_a_person_rules_is_drawn_as_one() -> None:
    """Who decides can be told from the picture, in each format; where a function does, the floor is a function."""
    members = (agent("a"), agent("b"))
    by_person = strategies.manual("t", *members, turns=2)
    by_code = strategies.manual("t", *members, turns=2, decide=lambda _: None)

    assert "floor</FONT><BR/><FONT" in to_dot(by_person)
    assert "asks a person" in to_dot(by_person)
    assert "shape=house" in to_dot(by_person)
    assert "asks a person" in to_mermaid(by_person)
    assert "asks a person" not in to_dot(by_code)
    assert "shape=house" not in to_dot(by_code)
