"""Any strategy inside any other: the 81 pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, SqliteJournal, replay, run
from graphflow.events import NodeStarted
from graphflow.model.ids import names, parse_path
from graphflow.testing import MemoryJournal, records_of, strategy_violations
from graphflow.testing.strategies import Strategy
from graphflow.visualize import to_dot, to_mermaid
from tests.strategies.teams import ASKED, NINE, places, played, team

PAIRS = [(outer, inner) for outer in NINE for inner in NINE]
IDS = [f"{outer}-{inner}" for outer, inner in PAIRS]


def pair(outer: Strategy, inner: Strategy) -> tuple[Graph[Any], Graph[Any]]:
    """A team of one strategy, with a team of another one in it."""
    team_inside = team(inner, "inner")
    return team(outer, "outer", team_inside), team_inside


@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=IDS)
async def test_both_strategies_of_a_pair_are_kept(outer: Strategy, inner: Strategy) -> None:
    """The run is completed, both validators accept its trace, and its worst case is not exceeded."""
    graph, inside = pair(outer, inner)
    worst = graph.worst_case()

    found = await played(graph)

    assert found.result.status == "completed"
    assert strategy_violations(outer, graph, found.events) == ()
    where = places(found.events, inside)
    assert where
    assert [strategy_violations(inner, inside, found.events, at) for at in where] == [()] * len(where)
    total = found.result.spent.total
    assert (total.node_runs or 0) <= worst.node_runs < math.inf
    assert (total.model_calls or 0) <= worst.model_calls < math.inf


@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=IDS)
def test_a_pair_passes_the_checks_and_can_be_drawn(outer: Strategy, inner: Strategy) -> None:
    """Nothing but the missing budget is to be said of it; every member stands in both pictures."""
    graph, inside = pair(outer, inner)

    problems = [problem.code for problem in graph.check()]
    pictures = (to_dot(graph), to_mermaid(graph))

    assert problems == ["no-budget"]
    for picture in pictures:
        assert all(name in picture for name in (*graph.nodes, *inside.nodes))


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("kind", NINE)
async def test_a_replay_is_what_the_run_was(kind: Strategy, backend: str, tmp_path: Path) -> None:
    """Each strategy, stored with another one inside it, is worked out again from its journal with nothing called."""
    graph, _ = pair(kind, NINE[NINE.index(kind) - 4])
    journal: Any = MemoryJournal() if backend == "memory" else SqliteJournal(tmp_path / "runs.db")

    result = await run(graph, graph.context(task=ASKED), journal=journal, run_id="once")
    replayed = await replay(graph, "once", journal=journal)
    records = records_of(graph, await journal.read("once"))
    events = [event for record in records for event in record.events("once")]

    assert (replayed.status, replayed.output, replayed.context) == (result.status, result.output, result.context)
    assert replayed.spent == result.spent
    assert strategy_violations(kind, graph, events) == ()


@pytest.mark.parametrize("kind", NINE)
async def test_a_team_inside_knows_nothing_of_who_is_around_it(kind: Strategy) -> None:
    """The same inner team does the same inside every strategy, and each of its activations begins anew."""
    traces: list[tuple[str, ...]] = []
    for outer in NINE:
        graph, inside = pair(outer, kind)
        found = await played(graph)
        for at in places(found.events, inside):
            started = [event.body.path for event in found.events if isinstance(event.body, NodeStarted)]
            depth = at.count("/") + 1
            traces.append(tuple("/".join(names(path[depth:])) for path in started if path[:depth] == parse_path(at)))

    assert len(traces) >= len(NINE)
    assert set(traces) == {traces[0]}
