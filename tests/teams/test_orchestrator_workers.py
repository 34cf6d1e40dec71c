"""A lead and its workers: the effort of a tier is enforced, whatever the lead asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import Brief, Call, Context, Delegate, Graph, Human, State, Step, node, run, start, tool
from graphflow.errors import UsageError
from graphflow.graphs.strategies import sequential
from graphflow.graphs.teams import Effort, EffortPolicy, EffortReport, Tier, WorkBrief, orchestrator_workers, overlap
from graphflow.model.budget import Budget
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelRequest, Usage
from graphflow.testing import RuleModel, ScriptedModel, call
from graphflow.testing.models import ScriptStep
from tests.teams.helpers import agent, one, played, problems, says

POLICY = EffortPolicy((Tier("small", workers=1, calls=2), Tier("large", workers=3, calls=4)))


def asks(count: int, worker: str = "") -> list[ScriptStep]:
    """A lead that asks for many workers at once, and then answers."""
    return [[call("ask_workers", objective=f"Part {n} of it", worker=worker) for n in range(count)], "It is so."]


def research(
    *workers: Node[Any], lead: list[ScriptStep], tier: Any = "small", policy: EffortPolicy = POLICY
) -> Graph[Effort]:
    """A lead that follows a script, with the tier said by a rule."""

    def said(_: State[Any]) -> str:
        return str(tier)

    leader = agent("lead", ScriptedModel(*lead))
    return orchestrator_workers(
        "research", leader, *workers, policy=policy, tier=said if isinstance(tier, str) else tier
    )


# --- how many workers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "most"),
    [
        pytest.param("simple", 1, id="simple"),
        pytest.param("comparison", 4, id="comparison"),
        pytest.param("complex", 10, id="complex"),
        pytest.param(says("sizes", "of no tier"), 1, id="fallback"),
    ],
)
async def test_a_lead_that_asks_for_50_gets_refusals_and_answers(tier: Any, most: int) -> None:
    """As many workers work as the tier allows; the rest is refused, the lead is told, and the answer is its own."""
    graph = research(says("worker", "Seen."), lead=asks(50), tier=tier, policy=EffortPolicy())

    found = await played(graph)

    report = found.result.output
    assert isinstance(report, EffortReport)
    assert (found.result.status, report.finding) == ("completed", "It is so.")
    assert [reason.code for reason in found.result.refused] == ["max_hops"] * (50 - most)
    assert [one.objective for one in report.assigned] == [f"Part {n} of it" for n in range(most)]
    assert [one.finding for one in found.result.context.reports] == ["Seen."] * most


async def test_a_function_that_names_no_tier_fails() -> None:
    """A slip in a function is told with the tiers there are; only a node's words fall back."""
    graph = research(says("worker", "Seen."), lead=asks(1), tier="huge")

    with pytest.raises(UsageError, match="tier gave 'huge': a function names one of 'small', 'large'"):
        await run(graph, Effort(task="Is it so?"))


async def test_a_bound_holds_over_all_workers_and_all_turns() -> None:
    """Three workers of a tier of three get three briefs together, however the lead spreads them."""
    script: list[ScriptStep] = [
        [call("ask_workers", objective=f"{n}", worker=name) for name in ("web", "papers", "mail")] for n in range(3)
    ]
    workers = [says(name, f"From {name}.") for name in ("web", "papers", "mail")]
    graph = research(*workers, lead=[*script, "It is so."], tier="large")

    found = await played(graph)

    assert [one.worker for one in found.result.output.assigned] == ["web", "papers", "mail"]
    assert len(found.result.refused) == 6
    assert problems(graph) == []


async def test_every_bound_of_a_tier_is_reached_and_none_passed() -> None:
    """A lead and workers that want more than they may do exactly what was proved to be the most."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def greedy(request: ModelRequest) -> Any:
        return "Seen." if request.turn == 5 else [call("look"), call("look")] if request.turn < 2 else call("look")

    lead = agent("lead", ScriptedModel(*[asks(9)[0]] * 9, "It is so."))
    worker = agent("worker", RuleModel(otherwise=greedy), tools=[look], max_turns=6)
    graph = orchestrator_workers("research", lead, worker, policy=POLICY, tier=lambda _: "large")

    found = await played(graph)

    worst, total = graph.worst_case(), found.result.spent.total
    assert (worst.model_calls, worst.tool_calls) == (10 + 3 * 6, 3 * 4)
    assert (total.model_calls, total.tool_calls) == (10 + 3 * 6, 3 * 4)
    assert total.node_runs == worst.node_runs
    assert found.result.output.finding == "It is so."


# --- what a worker may do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "calls"), [("small", 2), ("large", 4)])
async def test_a_worker_makes_no_more_calls_than_its_tier_allows(tier: str, calls: int) -> None:
    """The next is "not executed", the worker is told, and reports; bounds of its own that are less stay."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = RuleModel(
        (lambda request: not request.messages[-1].text.startswith("not executed"), call("look")), otherwise="Seen."
    )
    wide = agent("worker", model, tools=[look], max_turns=99, max_tool_calls=99)
    narrow = agent("worker", model, tools=[look], max_tool_calls=1)

    many = await played(research(wide, lead=asks(1), tier=tier))
    few = await played(research(narrow, lead=asks(1), tier=tier))

    assert many.result.spent.total.tool_calls == calls
    assert few.result.spent.total.tool_calls == 1
    assert [found.result.context.reports[0].finding for found in (many, few)] == ["Seen."] * 2


async def test_what_a_function_or_a_team_spends_is_capped_too() -> None:
    """The cap of the tier refuses it, the lead gets a failed report, and answers."""

    @node(costs=Budget(tool_calls=9))
    async def hungry(_: State[Context], step: Step) -> str:
        for number in range(9):
            await step.effect("look", int, number, cost=Budget(tool_calls=1))
        return "Seen."

    team = sequential("team", *(one(f"member {number}") for number in range(9)))

    function = await played(research(hungry, lead=asks(1)))
    graph = await played(research(team, lead=asks(1)))

    assert function.result.context.reports[0].reason.code == "tool_calls"
    assert function.result.spent.total.tool_calls == 2
    assert graph.result.context.reports[0].reason.code == "model_calls"
    for found in (function, graph):
        assert (found.result.status, found.result.output.finding) == ("partial", "It is so.")


async def test_a_worker_takes_no_more_tokens_than_its_tier_allows() -> None:
    """It is stopped, the lead gets its report, and answers; what is asked arrives all the same."""
    model = ScriptedModel("Seen.", usage=Usage(40, 10))
    policy = EffortPolicy((Tier("small", workers=2, calls=2, tokens=150),))
    poor = EffortPolicy((Tier("small", workers=1, calls=2, tokens=5),))

    enough = await played(research(agent("worker", model), lead=asks(1), policy=policy))
    less = await played(research(agent("worker", model), lead=asks(1), policy=poor))

    assert enough.result.context.reports[0].finding == "Seen."
    assert "objective: Part 0 of it" in model.requests[0].messages[-1].text
    assert less.result.context.reports[0].reason.code == "tokens"
    assert less.result.output.finding == "It is so."
    assert len(model.requests) == 1


async def test_a_person_may_be_a_worker() -> None:
    """The run waits for the answer, and gives it to the lead as a report."""
    graph = research(Human("expert", question="Is it so?"), lead=asks(1))

    async with start(graph, Effort(task="Ask.")) as running:
        waiting = await running.result()
        running.answer(waiting.questions[0].id, "It is, I saw it.")
        result = await running.result()

    assert waiting.status == "waiting"
    assert [one.finding for one in result.context.reports] == ["It is, I saw it."]
    assert (result.status, result.output.finding) == ("completed", "It is so.")
    assert problems(graph) == []


# --- which worker ----------------------------------------------------------------------------------------------------


async def test_a_brief_goes_to_the_worker_that_it_names() -> None:
    """What the lead wrote arrives there, and nothing of what the others were asked."""
    model = ScriptedModel({"web": ["From the web."], "papers": ["From papers."]})
    script: list[ScriptStep] = [
        [call("ask_workers", objective="Look at the web", worker="web"),
         call("ask_workers", objective="Look at papers", worker="Papers.")],
        "It is so.",
    ]  # fmt: skip
    graph = research(agent("web", model), agent("papers", model), lead=script, tier="large")

    found = await played(graph)

    assert [one.worker for one in found.result.output.assigned] == ["web", "papers"]
    for request, words in zip(model.requests, ("the web", "papers"), strict=True):
        assert f"objective: Look at {words}" in request.messages[-1].text
        assert len(request.messages) == 1


@pytest.mark.parametrize("worker", ["", "nobody", "web or papers"])
async def test_a_brief_for_nobody_is_a_failed_report_that_says_who_there_is(worker: str) -> None:
    """No worker works, and the lead can put it right."""
    graph = research(says("web", "-"), says("papers", "-"), lead=asks(1, worker))

    found = await played(graph)

    assert found.result.output.assigned == ()
    reason = found.result.context.reports[0].reason
    assert (reason.code, found.result.output.finding) == ("reported", "It is so.")
    assert "'web', 'papers'" in reason.text


async def test_a_function_may_lead() -> None:
    """It delegates to "workers"; without a tier of its own the fallback of the policy holds."""

    @node
    async def lead(state: State[Effort]) -> Delegate | str:
        if state.turn == 0:
            return Delegate(*(Call("workers", WorkBrief(objective=f"{n}", worker="web")) for n in range(5)))
        return f"{[value.status for value in state.values].count('done')} of {len(state.values)}"

    policy = EffortPolicy(POLICY.tiers, fallback="large")
    graph = orchestrator_workers("research", lead, says("web", "Seen."), policy=policy)

    found = await played(graph)

    assert (found.result.output.finding, found.result.output.tier) == ("3 of 5", "large")
    assert problems(graph) == []


# --- which tier ------------------------------------------------------------------------------------------------------


async def test_the_leads_model_says_the_tier_before_it_begins() -> None:
    """It is asked once, told what the tiers are for, and its answer is noted; then the lead is told its limits."""
    model = ScriptedModel({"effort": ["I think **comparison**."], "lead": asks(0)[1:]})
    graph = orchestrator_workers("research", agent("lead", model), says("worker", "-"))

    found = await played(graph, "Which of two is older?")

    assert found.result.context.tier == "comparison"
    first, second = model.requests
    assert "comparison: a few things are compared" in first.system
    assert [message.text for message in first.messages] == ["Which of two is older?"]
    assert "2 to 4 workers, with 10 to 15 calls of tools each" in second.messages[-1].text
    assert "asked 4 times" in second.tools[0].description


@pytest.mark.parametrize(
    "tier",
    [
        pytest.param("large", id="a rule"),
        pytest.param(says("sizer", "It is large, I think."), id="a node"),
        pytest.param(sequential("sizer", says("inner", "large")), id="a team"),
    ],
)
async def test_a_rule_or_a_node_says_the_tier(tier: Any) -> None:
    """Whatever says it, the tier is noted, and its bounds hold."""
    graph = research(says("worker", "Seen."), lead=asks(9), tier=tier)

    found = await played(graph)

    assert (found.result.context.tier, len(found.result.output.assigned)) == ("large", 3)
    assert problems(graph) == []


async def test_a_policy_may_have_one_tier_and_any_names() -> None:
    """Tiers may be called as nodes of the team are."""
    for names in (("one",), ("lead", "worker"), ("tier", "answer"), ("a/b", "~")):
        policy = EffortPolicy(tuple(Tier(name, workers=2, calls=1) for name in names), fallback=names[-1])
        graph = research(says("worker", "Seen."), lead=asks(3), tier=names[0], policy=policy)

        found = await played(graph)

        assert (found.result.status, found.result.context.tier) == ("completed", names[0])
        assert problems(graph) == []


# --- overlap ---------------------------------------------------------------------------------------------------------


async def test_briefs_that_overlap_are_in_the_report() -> None:
    """The work is done, and the report says which two asked for the same."""
    script: list[ScriptStep] = [
        [call("ask_workers", objective=text) for text in ("Revenue of Acme in 2023", "The revenue of Acme in 2023",
                                                          "Revenue of Bolt in 2023")],
        "It is so.",
    ]  # fmt: skip

    found = await played(research(says("worker", "Seen."), lead=script, tier="large"))

    assert found.result.output.overlaps == ((0, 1),)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("Find the revenue", "find  the REVENUE!", True, id="case and signs"),
        pytest.param("Revenue of Acme in 2022", "Revenue of Acme in 2023", False, id="a number"),
        pytest.param("Look at the file a.txt of today", "Look at the file b.txt of today", False, id="far apart"),
        pytest.param("Who founded Acme", "What is the weather", False, id="nothing in common"),
        pytest.param("", "", False, id="nothing"),
        pytest.param("東京の天気", "東京の天気", True, id="no Latin letters"),
    ],
)
def test_two_briefs_overlap_where_they_ask_for_the_same(one: str, other: str, same: bool) -> None:
    """Words count, not their case; a name or a number of its own makes a brief another one."""
    assert overlap([one, Brief(objective=other)]) == (((0, 1),) if same else ())


@given(st.lists(st.text(max_size=12), max_size=5))
def test_overlap_is_between_two_in_order(texts: list[str]) -> None:
    """Pairs are in order, and equal briefs with a word in them overlap whatever they say."""
    pairs = overlap(texts)

    assert list(pairs) == sorted(pairs)
    assert all(a < b < len(texts) for a, b in pairs)
    twice = overlap([*texts, *texts])
    assert {(n, n + len(texts)) for n, text in enumerate(texts) if any(map(str.isalnum, text))} <= set(twice)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""}, {"name": 7}, {"workers": 0}, {"workers": None}, {"workers": True}, {"calls": -1},
        {"calls": None}, {"tokens": 0}, {"least_workers": 4}, {"least_calls": 9}, {"least_workers": -1},
    ],
)  # fmt: skip
def test_a_tier_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    """The error says what was given."""
    values: dict[str, Any] = {"name": "tier", "workers": 3, "calls": 3, **fields}

    with pytest.raises(UsageError, match="Tier"):
        Tier(**values)


@pytest.mark.parametrize("tiers", [(), 7, (7,), (Tier("a", 1, 1), Tier("a", 2, 2))])
def test_a_policy_that_makes_no_sense_is_refused(tiers: Any) -> None:
    """It has a tier at least, of different names, and the fallback is one of them."""
    with pytest.raises(UsageError, match="EffortPolicy"):
        EffortPolicy(tiers)
    with pytest.raises(UsageError, match="'huge': it is one of the tiers"):
        EffortPolicy(fallback="huge")


def test_a_team_that_makes_no_sense_is_refused() -> None:
    """Nobody to ask, a graph that leads, two of one name, no policy, no tier."""

    async def later(_: State[Context]) -> str:
        return "small"

    lead, worker = one("lead"), says("worker", "-")
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((lead,), {}, "workers: at least one is needed"),
        ((sequential("lead", worker), worker), {}, "a graph has nobody"),
        ((lead, worker, worker), {}, "two members are called 'worker'"),
        ((lead, worker), {"policy": 7}, "an EffortPolicy is needed, or None"),
        ((lead, worker), {"tier": 7}, "a function from the state to a name"),
        ((lead, worker), {"tier": lead}, "two members are called 'lead'"),
        ((lead, "worker"), {}, "a node is needed"),
        ((lead, worker), {"tier": later}, "write a plain function"),
    ]

    for nodes, options, said in wrong:
        with pytest.raises(UsageError, match=said):
            orchestrator_workers("research", *nodes, **options)


async def test_a_lead_that_does_not_come_to_an_end_is_exhausted() -> None:
    """A lead that only asks uses up its turns; that is no success."""
    lead = agent("lead", RuleModel(otherwise=call("ask_workers", objective="More.")), max_turns=3)
    graph = orchestrator_workers("research", lead, says("worker", "Seen."), policy=POLICY, tier=lambda _: "large")

    found = await played(graph)

    assert found.result.status == "exhausted"
    assert found.result.reason is not None
    assert found.result.reason.code == "max_turns"
