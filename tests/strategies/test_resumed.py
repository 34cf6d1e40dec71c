"""Teams that were broken off go on as if they had not been, inside a loop too; what hangs loses its own time alone."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from graphflow import END, START, Call, Delegate, Graph, Report, State, append, node, resume, run, strategies
from graphflow.cli.stored import read_rows
from graphflow.graphs.strategies import Task
from graphflow.testing import MemoryJournal
from graphflow.testing.strategies import Strategy
from tests.cases.stored import RUN, copied, steady
from tests.strategies.teams import ASKED, NINE, judged, member, played, team


@pytest.mark.parametrize("kind", NINE)
async def test_a_team_that_is_broken_off_anywhere_ends_like_one_that_is_not(kind: Strategy) -> None:
    """C5: inside a cycle too, what is recorded is kept, and the trace is that of a run that nobody broke off."""
    graph, journal = team(kind, "t"), MemoryJournal()
    whole = await run(graph, graph.context(task=ASKED), journal=journal, run_id=RUN)
    rows = await journal.read(RUN)
    trace = steady(tuple(read_rows(RUN, rows).events()))

    for count in range(1, len(rows), 2):
        again = await copied(rows[:count], MemoryJournal())
        result = await resume(graph, RUN, journal=again)
        seen = tuple(read_rows(RUN, await again.read(RUN)).events())
        assert (result.status, result.output) == (whole.status, whole.output)
        assert steady(seen) == trace
    assert whole.status == "completed"
    assert len(trace) > len(rows) > 2


async def test_a_conversation_with_two_cycles_takes_both() -> None:
    """C3: control comes back from each of the members, and goes on to the other, to the end."""
    order = ["b", "c", None]
    talk = strategies.manual("t", member("b"), member("c"), turns=2, decide=lambda said: order[len(said.said)])

    found = await judged("manual", talk)

    assert found.result.status == "completed"
    assert [name for name in found.started if name in {"floor", "b", "c"}] == ["floor", "b", "floor", "c", "floor"]


class Asked(Task):
    """What somebody asks several teams, and what they report."""

    reports: Annotated[tuple[Report, ...], append] = ()


async def test_a_member_that_hangs_loses_its_own_time_alone() -> None:
    """H11: each call has a deadline of its own, what hangs is reported as late, and the next one still answers."""

    @node
    async def lead(state: State[Asked]) -> Any:
        if state.turn < 3:
            return Delegate(Call(("slow", "slower", "quick")[state.turn], "now"))
        return "done"

    teams = (
        strategies.sequential("slow", member("one", seconds=9)),
        strategies.sequential("slower", member("two", seconds=9)),
        strategies.sequential("quick", member("three")),
    )
    edges = [lead.delegates(one, max_hops=1, timeout=0.1, into="reports") for one in teams]

    found = await played(Graph("g", START >> lead >> END, *edges, context=Asked))

    reports = found.result.context.reports
    assert [(report.status, report.reason.code if report.reason else "") for report in reports] == [
        ("failed", "timeout"), ("failed", "timeout"), ("done", ""),
    ]  # fmt: skip
    assert found.events[-1].at == pytest.approx(0.2, abs=0.01)
