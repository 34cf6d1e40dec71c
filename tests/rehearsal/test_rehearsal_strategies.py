"""The nine strategies, rehearsed: each is a graph like any other."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from examples import newsroom
from graphflow import END, START, Agent, Graph, ModelRequest, State, first, node, tool
from graphflow.graphs import strategies, teams
from graphflow.graphs.strategies import Plan, PlanStep, Task, Verdict
from graphflow.rehearsal import Choices, rehearse_sync
from graphflow.rehearsal.results import End
from graphflow.rehearsal.steering import who_steers
from graphflow.testing import ScriptedModel


class Case(Task):
    """What a graph of one's own is asked."""


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


def test_a_plan_fits_by_default() -> None:
    """Its steps go to the workers and tools of its team; a stand-in writes another one."""

    def plans(request: ModelRequest) -> Plan:
        first_step = PlanStep(id="a", to="bull", objective="look")
        return Plan(steps=(first_step, PlanStep(id="b", to="bear", objective="judge", needs=("a",))))

    drawn = rehearsed("plan_execute", approval_rate=1.0)
    written = rehearsed("plan_execute", stand_ins={"planner": plans})

    assert {end.status for end in drawn.ends} == {"completed"}
    assert len(set(drawn.numbers("node_runs"))) > 1
    assert "completed" in {end.status for end in written.ends}
    assert written.summary("depth").most == 1


def test_steps_of_tools_have_arguments_and_need_what_others_found() -> None:
    """A tool is called with arguments that fit it, and steps wait for those that they need."""
    asked: list[strategies.StepBrief] = []

    @node
    def writer(state: State[Any]) -> str:
        """Note what it is asked."""
        asked.extend(value for value in state.values if isinstance(value, strategies.StepBrief))
        return f"from {len(state.values) - 1} others"

    def rate(day: str, crowns: int) -> str:
        """Look a rate up."""
        raise AssertionError(day, crowns)

    graph = strategies.plan_execute("team", member("planner", output=Plan), writer, tools=[rate])

    found = rehearse_sync(graph, graph.context(task="Add up."), runs=40)

    assert {str(end) for end in found.ends} == {"completed"}
    assert 0 < sum(found.numbers("tool_calls")) <= 40
    assert max(found.numbers("hops")) > min(found.numbers("hops"))
    assert {brief.objective.split("\n")[0] for brief in asked} == {"stand-in of a step for writer"}
    assert any(note.startswith("the bodies of writer did run") for note in found.notes)


def test_a_plan_of_an_agent_that_nobody_carries_out_is_drawn_by_its_schema() -> None:
    """It is an answer like any other."""
    graph = Graph("plans", START >> member("planner", output=Plan) >> END, context=Case)

    assert {str(end) for end in rehearse_sync(graph, Case(task="Plan."), runs=5).ends} == {"completed"}


@pytest.mark.parametrize(("rate", "ends"), [(1.0, {"completed"}), (0.0, {"exhausted"})])
def test_who_verifies_accepts_as_often_as_is_said(rate: float, ends: set[str]) -> None:
    """Never, and nothing is completed; the output says what it was drawn from."""
    graph = teams.evaluator_optimizer("draft", member("author"), member("reviewer", output=Verdict))

    found = rehearse_sync(graph, graph.context(task="Write."), runs=10, approval_rate=rate)

    assert {end.status for end in found.ends} == ends
    assert f"who verifies accepts {rate:.0%}" in found.assumed


def test_runs_that_all_end_at_one_bound_say_what_is_missing() -> None:
    """Nobody who draws words says "done"; the note names whose words steer, and goes away with a stand-in."""

    def done(talk: strategies.Conversation) -> bool:
        return "done" in talk.said[-1].text

    def says(request: ModelRequest) -> str:
        return f"done, {request.agent}"

    def mute(_: ModelRequest) -> str:
        return "well"

    graph = strategies.round_robin("talk", member("bull"), member("bear"), turns=4, until=done)

    drawn = rehearse_sync(graph, graph.context(task="Agree."), runs=5)
    led = rehearse_sync(graph, graph.context(task="Agree."), runs=5, stand_ins={"bull": says})
    still = rehearse_sync(graph, graph.context(task="Agree."), runs=5, stand_ins=dict.fromkeys(("bull", "bear"), mute))

    wanted = "all runs end at one bound, max_hops at floor, for what is drawn does not lead on there: give a stand-in"
    assert drawn.notes[-1] == f"{wanted} that knows the work, of bear, bull, with stand_ins= or --stand-ins"
    assert not any("one bound" in note for note in led.notes)
    assert "of an agent whose words steer there" in still.notes[-1]


def test_only_bodies_of_the_user_are_named() -> None:
    """Those of a strategy are nobody's business, and a tool as a worker is not run."""
    found = rehearsed("plan_execute")

    assert not any("did run" in note for note in found.notes)


def test_the_newsroom_brings_what_its_rehearsal_needs() -> None:
    """Without it, its citations are never right."""
    options: dict[str, Any] = {"runs": 10}

    drawn = rehearse_sync(newsroom.graph, newsroom.Issue(), **options)
    known = rehearse_sync(newsroom.graph, newsroom.Issue(), stand_ins=newsroom.STAND_INS, **options)

    assert "max_hops at citations" in drawn.notes[-1]
    assert "of citer, with stand_ins=" in drawn.notes[-1]
    assert {str(end) for end in known.ends} == {"completed"}


@pytest.mark.parametrize(
    ("end", "who"),
    [
        (End("exhausted", "max_hops at inner/floor"), ("bear", "bull")),
        (End("exhausted", "max_visits at inner/bull"), ("bear", "bull")),
        (End("exhausted", "max_hops at nowhere/floor"), ()),
        (End("exhausted", "max_hops"), ()),
        (End("exhausted", "usd at inner/floor"), None),
        (End("failed", "ValueError at inner"), None),
        (End("completed"), None),
    ],
)
def test_who_steers_is_told_by_the_graph(end: End, who: tuple[str, ...] | None) -> None:
    """Inside of others too; a budget that is empty says nothing of it."""
    inner = strategies.round_robin("inner", member("bull"), member("bear"), turns=4)
    graph = Graph("outer", START >> inner >> END, context=Case)

    assert who_steers(graph, end, frozenset()) == who


def ends_of_swarm(choices: Choices | None, **options: Any) -> dict[str, int]:
    """How often a swarm of three ended in which way, in a hundred runs."""
    swarm = strategies.swarm("team", *three(), detect=(), **options)
    found = rehearse_sync(swarm, swarm.context(task="Bull or bear?"), runs=100, choices=choices)
    return Counter(end.status for end, count in found.ends.items() for _ in range(count))


def test_a_swarm_comes_to_an_end_by_default() -> None:
    """Peers hand over less the more often they had the task, so that few runs reach the bound."""
    ends = ends_of_swarm(None)

    assert ends["completed"] >= 95


@pytest.mark.parametrize(
    ("choices", "status"),
    [(Choices(1.0, 1.0, 0.4, 1.0), "exhausted"), (Choices(1.0, 1.0, 0.0, 0.0), "completed")],
    ids=["always", "never"],
)
def test_how_likely_a_handover_is_can_be_said(choices: Choices, status: str) -> None:
    """Who always hands over reaches the bound, and who never does answers, or calls what else there is."""
    assert ends_of_swarm(choices, max_handoffs=5) == {status: 100}
