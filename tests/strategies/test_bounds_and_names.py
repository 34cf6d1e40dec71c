"""Loops, bounds and budgets through strategies, members of any name, and what is refused when a team is made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Agent, Budget, Context, Graph, Human, State, node, run, run_sync, strategies
from graphflow.errors import GraphProblems, UsageError
from graphflow.events import Event, NodeStarted
from graphflow.graphs.strategies import Conversation, Plan, PlanStep, Task, TeamReport
from graphflow.testing import ManualClock, ScriptedModel, call, strategy_violations
from graphflow.testing.strategies import Strategy
from tests.strategies.teams import ASKED, NINE, agent, hands, hears, judged, member, planner, played, team
from tests.support import examples

# --- loops (group C) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3])
async def test_each_round_of_a_loop_joins_its_own_messages(rounds: int) -> None:
    """C1: a fork inside a loop meets once in each round, with what was said in that round."""
    debate = strategies.parallel("debate", member("bull"), member("bear"))

    found = await judged("round_robin", strategies.round_robin("t", debate, turns=rounds))

    report = found.result.output
    assert isinstance(report, TeamReport)
    assert [one.text for one in report.said] == ["[bull]: bull says.\n[bear]: bear says."] * rounds
    assert Counter(found.started)["debate/together"] == rounds


async def test_a_member_runs_as_often_as_declared_and_not_once_more() -> None:
    """C7, C9: whoever is named again and again speaks so often as there are turns; it is entered again each time."""
    for turns in (1, 2, 4):
        never = strategies.manual("t", member("a"), turns=turns, decide=lambda _: "a")
        found = await judged("manual", never)
        assert (found.result.status, Counter(found.started)["a"]) == ("exhausted", turns)
        assert found.reason.limit == turns


@pytest.mark.parametrize("kind", NINE)
def test_no_strategy_has_a_cycle_without_a_bound(kind: Strategy) -> None:
    """C11: every one of them has a worst case that is finite, in all dimensions, however it is nested."""
    worst = team(kind, "outer", team(kind, "inner")).worst_case()

    for bound in (worst.node_runs, worst.model_calls, worst.tool_calls, worst.depth):
        assert bound < math.inf


# --- budgets, turns, depth (group H) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", NINE)
async def test_a_budget_holds_over_the_whole_tree(kind: Strategy, calls: int) -> None:
    """H1: an inner team has no fresh limit; no more calls are made than there are, and that is no success."""
    whole = team(kind, "outer", team("sequential", "inner"))
    needed = (await played(whole)).result.spent.total.model_calls

    found = await played(whole, budget=Budget(model_calls=calls))

    assert needed is not None
    assert (found.result.spent.total.model_calls or 0) == min(calls, needed)
    assert (found.result.status == "completed") == (calls >= needed)
    assert strategy_violations(kind, whole, found.events) == ()


@pytest.mark.parametrize("kind", ["round_robin", "random", "manual"])
async def test_a_limit_of_tokens_fires_inside_a_loop(kind: Strategy) -> None:
    """A conversation that goes on for long ends when its tokens are spent, in the middle of its turns."""
    talkers = [agent(name, "word " * 50, max_tokens=100) for name in "ab"]
    makes: dict[str, Callable[..., Graph[Any]]] = {
        "round_robin": lambda: strategies.round_robin("t", *talkers, turns=50),
        "random": lambda: strategies.random("t", *talkers, turns=50, seed=1),
        "manual": lambda: strategies.manual("t", *talkers, turns=50, decide=lambda _: "a"),
    }

    found = await judged(kind, makes[kind](), budget=Budget(tokens=2000))

    assert (found.result.status, found.reason.code) == ("exhausted", "tokens")
    assert 1 < len(found.result.context.said) < 50
    assert (found.result.spent.total.tokens or 0) <= 2000


async def test_max_turns_of_a_member_is_no_success() -> None:
    """H3, H7: an agent that never answers is stopped at its bound; the team is exhausted, and says by whom."""
    looks = Agent("a", model=ScriptedModel(*[call("look")] * 9), tools=[look], max_turns=3)

    found = await judged("sequential", strategies.sequential("t", looks, member("b")))

    assert (found.result.status, found.reason.code, found.reason.path) == ("exhausted", "max_turns", "a")
    assert found.result.spent.total.model_calls == 3
    assert "b" not in found.started


def look() -> str:
    """Look at something."""
    return "seen"


async def test_depth_is_bounded_over_nested_plans() -> None:
    """H5: plans within plans are delegations, and deeper than declared is refused before anything runs."""

    def nested(levels: int) -> Graph[Any]:
        worker: Any = member("w")
        for level in range(levels):
            step = PlanStep(id="1", to=worker.name, objective="go on")
            worker = strategies.plan_execute(f"t{level}", planner("p", Plan(steps=(step,))), worker, max_replans=0)
        return strategies.sequential("top", worker, max_depth=2)

    fine = await played(nested(2))

    assert fine.result.status == "completed"
    with pytest.raises(GraphProblems, match="max_depth"):
        await run(nested(3), Conversation(task=ASKED))


async def test_retries_of_all_levels_come_from_one_budget() -> None:
    """H9: a member inside a team inside a team is tried again as the budget allows."""
    tries: list[int] = []

    @node(name="a", retries=3)
    async def broken(state: State[Any]) -> str:
        tries.append(1)
        raise ValueError("no")

    inner = strategies.sequential("inner", broken, retries=3)
    whole = strategies.sequential("t", inner, retries=3, budget=Budget(retries=5))

    found = await played(whole)

    assert found.result.status in ("failed", "exhausted")
    assert len(tries) <= 6


async def test_a_detector_of_your_own_watches_a_strategy() -> None:
    """What is passed on to the graph has its meaning there: detectors, bounds on hops, an escalate node."""
    hops = strategies.round_robin("t", member("a"), turns=9, max_hops=5)
    boss = strategies.round_robin("t", member("a"), turns=9, max_hops=5, escalate=member("boss"))

    first, second = await judged("round_robin", hops), await judged("round_robin", boss)

    assert (first.result.status, first.reason.code) == ("exhausted", "max_hops")
    assert second.result.output == "boss says."


# --- names, numbers of members, contexts -----------------------------------------------------------------------------

OWN = ["floor", "next_speaker", "route", "execute", "replan", "verdict", "gather", "together", "after a", "a says"]


@pytest.mark.parametrize("name", [*OWN, "ü ñ", "a/b:c~1@2", "x\ny", "transfer_to_a", "START"])
async def test_members_may_have_any_name(name: str) -> None:
    """Names of a strategy's own nodes give way; any text is a name; every validator still knows who is who."""
    plan = Plan(steps=(PlanStep(id="1", to=name, objective="x"), PlanStep(id="2", to="b", objective="y")))
    teams: dict[Strategy, Graph[Any]] = {
        "round_robin": strategies.round_robin("t", member(name), member("b"), turns=3),
        "random": strategies.random("t", member(name), member("b"), turns=3, seed=1),
        "manual": strategies.manual(
            "t", member(name), member("b"), turns=3, decide=lambda talk: None if talk.said else name
        ),
        "sequential": strategies.sequential("t", member("b"), member(name), see="all", gates={name: lambda _: None}),
        "parallel": strategies.parallel("t", member(name), member("b")),
        "router": strategies.router("t", lambda _: name, member(name), member("b")),
        "plan_execute": strategies.plan_execute("t", planner("p", plan), member(name), member("b"), verify=yes()),
        "swarm": strategies.swarm("t", member(name), member("b")),
        "handoff": strategies.handoff("t", agent("p", call(_tool(name), note="yours")), member(name), member("b")),
    }

    for kind, made in teams.items():
        found = await judged(kind, made)
        assert found.result.status == "completed", kind
        started = [event.path for event in found.events if isinstance(event.body, NodeStarted)]
        assert name in {segment.name for path in started for segment in path}, kind


def yes() -> Any:
    """Somebody who accepts whatever they see."""
    return member("v", gives=True)


def _tool(name: str) -> str:
    from graphflow.nodes.agent import generated_names

    return next(made for made, target in generated_names("transfer_to_", sorted([name, "b"])).items() if target == name)


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
@settings(max_examples=examples(300))
def test_names_never_clash_with_a_strategys_own(names: list[str]) -> None:
    """Whatever members are called, a conversation of them is a graph without problems, and runs."""
    made = strategies.round_robin("t", *map(member, names), turns=len(names))
    events: list[Event] = []

    problems = [problem.code for problem in made.check() if problem.code != "no-budget"]
    result = run_sync(made, Conversation(task=ASKED), listeners=[events.append], clock=ManualClock())

    assert problems == []
    assert isinstance(result.output, TeamReport)
    assert [one.speaker for one in result.output.said] == names
    assert strategy_violations("round_robin", made, events) == ()


def of_any_size(kind: Strategy, *members: Any) -> Graph[Any]:
    """A team of as many as are given."""
    match kind:
        case "sequential":
            return strategies.sequential("t", *members)
        case "parallel":
            return strategies.parallel("t", *members)
        case "round_robin":
            return strategies.round_robin("t", *members, turns=2)
        case "random":
            return strategies.random("t", *members, turns=2, seed=1)
        case "router":
            return strategies.router("t", lambda _: "a", *members)
        case _:
            return strategies.manual("t", *members, turns=1, decide=lambda _: None)


@pytest.mark.parametrize("kind", ["sequential", "parallel", "round_robin", "random", "router", "manual"])
async def test_one_member_is_a_team_and_none_is_not(kind: Strategy) -> None:
    """A team of one does what it does; without anybody it is refused when it is made, in a sentence."""
    found = await judged(kind, of_any_size(kind, member("a")))

    assert found.result.status == "completed"
    with pytest.raises(UsageError, match="at least one is needed, and there is none"):
        of_any_size(kind)
    with pytest.raises(UsageError, match=r"give one another name with \.named"):
        of_any_size(kind, member("a"), member("a"))


class Ticket(Context):
    """A context of somebody's own, whose first field is what is asked."""

    question: str
    priority: int = 1


class Strict(Context):
    """A context that cannot be made from a text alone."""

    question: str
    priority: int


async def test_a_context_of_your_own_is_asked_by_its_first_field() -> None:
    """At the root it is yours; inside another team it begins with what arrives, and its defaults."""
    heard: list[Any] = []

    @node(name="a")
    async def listens(state: State[Ticket]) -> str:
        heard.append((state.context.question, state.context.priority))
        return "a says."

    own = strategies.parallel("own", listens, context=Ticket)
    outer = strategies.sequential("outer", member("b"), own)

    await run(own, Ticket(question=ASKED, priority=3))
    await played(outer)

    assert heard == [(ASKED, 3), ("b says.", 1)]


async def test_a_context_that_needs_more_is_told_where_it_is_nested() -> None:
    """Alone it runs; inside another team the check says which field is missing, until `enter=` gives it."""
    strict = strategies.parallel("own", member("a"), context=Strict)
    entered = strategies.parallel(
        "own", member("a"), context=Strict, enter=lambda state: Strict(question="q", priority=1)
    )

    alone = await run(strict, Strict(question=ASKED, priority=1))
    inside = await played(strategies.sequential("t", member("b"), entered))

    assert (alone.status, inside.result.status) == ("completed", "completed")
    with pytest.raises(GraphProblems, match="priority"):
        await run(strategies.sequential("t", member("b"), strict), Conversation(task=ASKED))


async def test_a_person_may_stand_anywhere() -> None:
    """In every strategy the run waits for them, and goes on with what they say."""
    plan = Plan(steps=(PlanStep(id="1", to="boss", objective="x"),))
    boss = Human("boss", "Well?", description="The boss.")
    teams: dict[Strategy, Graph[Any]] = {
        "round_robin": strategies.round_robin("t", member("a"), boss, turns=2),
        "random": strategies.random("t", boss, turns=1, seed=1),
        "manual": strategies.manual("t", boss, turns=2, decide=lambda talk: None if talk.said else "boss"),
        "sequential": strategies.sequential("t", member("a"), boss),
        "parallel": strategies.parallel("t", member("a"), boss),
        "router": strategies.router("t", lambda _: "boss", member("a"), boss),
        "plan_execute": strategies.plan_execute("t", planner("p", plan), boss),
        "swarm": strategies.swarm("t", agent("a", asks_once("boss")), boss),
        "handoff": strategies.handoff("t", agent("a", asks_once("boss")), boss),
    }

    for kind, made in teams.items():
        waiting = await judged(kind, made)
        assert waiting.result.status == "waiting", kind
        found = await judged(kind, made, answers={"Well?": "Yes."})
        assert found.result.status == "completed", kind


def asks_once(peer: str) -> Callable[[Any], Any]:
    """A model that hands over, and answers once it has heard something back."""
    return lambda request: call(f"transfer_to_{peer}", note="?") if len(request.messages) == 1 else "I see."


async def test_a_member_that_fails_is_tried_again_as_declared() -> None:
    """The retries of a member hold in a conversation; what it said at last is what is noted."""
    tries: list[int] = []

    @node(name="a", retries=2)
    async def shaky(state: State[Conversation]) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "at last"

    found = await judged("round_robin", strategies.round_robin("t", shaky, member("b"), turns=2))

    report = found.result.output
    assert isinstance(report, TeamReport)
    assert [one.text for one in report.said] == ["at last", "b says."]


async def test_teams_three_deep_keep_their_rules() -> None:
    """A swarm in a conversation in a plan: each activation of each is judged on its own."""
    heard: list[tuple[str, ...]] = []
    swarm = strategies.swarm("swarm", hands("x", "y"), hears("y", heard))
    talk = strategies.round_robin("talk", swarm, member("b"), turns=3)
    plan = Plan(steps=(PlanStep(id="1", to="talk", objective="x"), PlanStep(id="2", to="talk", objective="y")))

    found = await judged("plan_execute", strategies.plan_execute("t", planner("p", plan), talk))

    for at in ("execute/talk@0.0", "execute/talk:2@0.1"):
        assert strategy_violations("round_robin", talk, found.events, at=at) == ()
        for visit in ("", ":2"):
            assert strategy_violations("swarm", swarm, found.events, at=f"{at}/swarm{visit}") == ()
    assert len(heard) == 4
    assert Task(task=ASKED).task == ASKED
