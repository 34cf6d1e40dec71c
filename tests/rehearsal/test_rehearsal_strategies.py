"""The nine strategies, rehearsed: each is a graph like any other."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow import Agent, Graph, ModelRequest, first, tool
from graphflow.graphs import strategies
from graphflow.graphs.strategies import Plan, PlanStep, Task, Verdict
from graphflow.rehearsal import rehearse_sync
from graphflow.testing import ScriptedModel


@tool
async def look(number: str) -> str:
    """Look something up."""
    raise AssertionError(number)


def member(name: str, **options: Any) -> Agent:
    """An agent whose model has nothing to say."""
    return Agent(name, model=ScriptedModel(), description=f"does {name}", **options)


def three() -> tuple[Agent, Agent, Agent]:
    """Three of them, one of whom has a tool."""
    return member("bull"), member("bear", tools=[look]), member("owl")


STRATEGIES: Final[dict[str, Callable[[], Graph[Any]]]] = {
    "handoff": lambda: strategies.handoff("team", *three()),
    "router": lambda: strategies.router("team", *three(), fallback=member("other")),
    "swarm": lambda: strategies.swarm("team", *three(), max_handoffs=4),
    "sequential": lambda: strategies.sequential("team", *three()),
    "parallel": lambda: strategies.parallel("team", *three(), join=first(2), synthesis=member("last")),
    "round_robin": lambda: strategies.round_robin("team", *three(), turns=5),
    "random": lambda: strategies.random("team", *three(), turns=4),
    "manual": lambda: strategies.manual("team", *three(), turns=3),
    "plan_execute": lambda: strategies.plan_execute(
        "team", member("planner", output=Plan), *three(), verify=member("verify", output=Verdict)
    ),
}


def rehearsed(name: str, **options: Any) -> Any:
    """Rehearse a strategy a few times."""
    graph = STRATEGIES[name]()
    context = graph.context(task="Bull or bear?") if issubclass(graph.context, Task) else graph.context()
    return rehearse_sync(graph, context, runs=20, **options)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_can_be_rehearsed(name: str) -> None:
    """Nothing exceeds what is proved, and both backends give the same numbers."""
    found = rehearsed(name)

    assert list(found.excesses()) == []
    assert {end.status for end in found.ends} <= {"completed", "exhausted"}
    assert found == rehearsed(name, backend="trio")


def test_a_planner_needs_a_stand_in_that_plans() -> None:
    """What is drawn by the schema of a plan names nobody; a function writes a real one."""

    def plans(request: ModelRequest) -> Plan:
        first_step = PlanStep(id="a", to="bull", objective="look")
        return Plan(steps=(first_step, PlanStep(id="b", to="bear", objective="judge", needs=("a",))))

    drawn = rehearsed("plan_execute")
    written = rehearsed("plan_execute", stand_ins={"planner": plans})

    assert {end.status for end in drawn.ends} == {"exhausted"}
    assert "completed" in {end.status for end in written.ends}
    assert written.summary("depth").most == 1
