"""plan_execute: plans are checked before anything runs, carried out once, and made again where something went wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Agent, Human, Report, SqliteJournal, State, Step, node, resume, run, strategies, tool
from graphflow.errors import ContractError, UsageError
from graphflow.graphs.planning import Finished, plan_problems, read_plan, verdict_of
from graphflow.graphs.strategies import Plan, PlannedTask, PlanStep, StepBrief, TeamReport, Verdict
from graphflow.model.contract import Reason
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ScriptedModel, strategy_violations
from tests.strategies.teams import ASKED, agent, judged, member, plan_of, planner, played
from tests.support import examples


def report_of(output: object) -> TeamReport:
    """The output, which is a team's report."""
    assert isinstance(output, TeamReport)
    return output


def working(name: str, log: list[str], *, fails: int = 0, seconds: float = 0.0) -> FunctionNode[Any]:
    """A worker that notes what it is asked and fails the first times."""

    @node(name=name)
    async def body(state: State[PlannedTask], step: Step) -> str:
        brief = next(value for value in state.values if isinstance(value, StepBrief))
        log.append(f"{brief.objective} begins")
        if seconds:
            await step.sleep(seconds)
        if sum(line == f"{brief.objective} begins" for line in log) <= fails:
            raise ValueError(f"{name} is ill")
        log.append(f"{brief.objective} ends")
        return f"{brief.objective} done"

    return body


HALF = Reason(code="reported", text="half of it")

# --- the checks of a plan --------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "d", " "])
STEPS = st.builds(
    PlanStep,
    id=IDS,
    to=st.sampled_from(["w", "x", "nobody"]),
    objective=st.sampled_from(["do it", "", " "]),
    needs=st.lists(st.sampled_from(["a", "b", "c", "d", "z"]), max_size=3).map(tuple),
)


def is_right(plan: Plan) -> bool:
    """The rules of a plan, written down a second time, one step after the other."""
    ids = [step.id for step in plan.steps]
    fine = bool(ids) and len({*ids}) == len(ids)
    for step in plan.steps:
        fine = fine and bool(step.id.strip()) and step.to in {"w", "x"} and bool(step.objective.strip())
        fine = fine and len({*step.needs}) == len(step.needs) and {*step.needs} <= {*ids} - {step.id}
    ready: set[str] = set()
    for _ in plan.steps:
        ready |= {step.id for step in plan.steps if {*step.needs} <= ready}
    return fine and ready == {*ids}


@given(st.lists(STEPS, max_size=5))
@settings(max_examples=examples(3000))
def test_a_plan_has_problems_exactly_when_it_cannot_be_carried_out(steps: list[PlanStep]) -> None:
    """The check finds a problem in every plan that breaks a rule, and in no other."""
    plan = Plan(steps=tuple(steps))

    assert (not plan_problems(plan, ("w", "x"))) == is_right(plan)


def test_every_problem_of_a_plan_is_told_at_once() -> None:
    """Duplicate ids, nobody, no work, needs that are unknown, one's own or doubled, and circles, with their steps."""
    plan = Plan(
        steps=(
            PlanStep(id="1", to="w", objective="x", needs=("1",)),
            PlanStep(id="1", to="nobody", objective="x"),
            PlanStep(id="2", to="w", needs=("9",)),
            PlanStep(id="3", to="w", objective="x", needs=("4", "4")),
            PlanStep(id="4", to="w", objective="x", needs=("5",)),
            PlanStep(id="5", to="w", objective="x", needs=("4",)),
            PlanStep(id=" ", to="w", objective="x"),
        )
    )

    problems = plan_problems(plan, ("w",))

    assert problems == (
        "two steps have the id '1'",
        "step '1' needs itself",
        "step '1' goes to 'nobody', which is none of 'w'",
        "step '2' has no work: it needs an objective, or arguments for a tool",
        "step '2' needs '9', which is no step",
        "step '3' needs the same step twice",
        "a step for 'w' has no id",
        "steps need each other in a circle: '4' → '5' → '4'",
    )
    assert plan_problems(Plan(steps=()), ("w",)) == ("the plan has no step",)


def test_a_finished_step_stands_for_itself_alone() -> None:
    """Its id may be needed, and cannot be given to other work."""
    done = Finished(step=PlanStep(id="1", to="w", objective="x"), report=Report(finding="done"))

    assert plan_problems(Plan(steps=(PlanStep(id="2", to="w", objective="y", needs=("1",)),)), ("w",), (done,)) == ()
    assert plan_problems(Plan(steps=(PlanStep(id="1", to="w", objective="other"),)), ("w",), (done,)) == (
        "step '1' is finished already; other work needs another id",
    )


@pytest.mark.parametrize(
    "value", ["no json", "{}", '{"steps": [{"id": 1}]}', None, 3, Report(finding="words"), {"steps": [], "more": 1}]
)
def test_what_is_no_plan_is_told_in_words(value: Any) -> None:
    """A planner is told what is wrong with what it wrote, in a line."""
    assert str(read_plan(value)).startswith("it is no plan (")


@pytest.mark.parametrize("value", ["yes", None, 1, "", ("a",)])
def test_a_verdict_is_clear(value: Any) -> None:
    """A text does not say whether it accepts."""
    with pytest.raises(ContractError, match="is no verdict"):
        verdict_of(value)


# --- plans at work ---------------------------------------------------------------------------------------------------


async def test_steps_wait_for_what_they_need_and_the_rest_runs_side_by_side() -> None:
    """Two steps that need nothing overlap; the third begins when both have reported, and hears them."""
    log: list[str] = []
    plan = plan_of(("3", "w", ("1", "2")), ("1", "w"), ("2", "x"))
    team = strategies.plan_execute("t", planner("p", plan), working("w", log, seconds=2), working("x", log, seconds=1))

    found = await judged("plan_execute", team)

    assert log == ["do 1 begins", "do 2 begins", "do 2 ends", "do 1 ends", "do 3 begins", "do 3 ends"]
    assert [one.speaker for one in report_of(found.result.output).said] == ["3", "1", "2"]


async def test_a_bad_plan_never_runs_and_its_planner_is_told_everything() -> None:
    """Nothing of it begins; the next plan is made knowing every problem of the last."""
    log: list[str] = []
    bad = plan_of(("1", "nobody"), ("2", "w", ("7",)))
    model = ScriptedModel(bad, plan_of(("1", "w")))

    team = strategies.plan_execute("t", Agent("p", model=model, output=Plan), working("w", log))

    found = await judged("plan_execute", team)

    assert log == ["do 1 begins", "do 1 ends"]
    told = ["\n".join(message.text for message in request.messages) for request in model.requests]
    assert "goes to 'nobody', which is none of 'w'" in told[1]
    assert "needs '7', which is no step" in told[1]
    assert found.result.status == "completed"


async def test_a_function_that_gives_no_plan_is_told() -> None:
    """Words that are no plan go back to their planner, like a plan that cannot be right."""
    heard: list[str] = []

    @node(name="p")
    async def plans(state: State[PlannedTask]) -> str:
        heard.extend(state.context.problems)
        return "no plan" if state.visit == 1 else plan_of(("1", "w")).model_dump_json()

    found = await judged("plan_execute", strategies.plan_execute("t", plans, member("w")))

    assert heard[0].startswith("it is no plan (")
    assert found.result.status == "completed"


async def test_what_is_finished_is_not_done_again() -> None:
    """After a failed step, the next plan keeps what was done, and may need it."""
    log: list[str] = []
    plans = planner("p", plan_of(("1", "w"), ("2", "x", ("1",))), plan_of(("1", "w"), ("3", "w", ("1",))))
    team = strategies.plan_execute("t", plans, working("w", log), working("x", log, fails=9))

    found = await judged("plan_execute", team)

    begun = Counter(line.split("\n")[0] for line in log if "begins" in line)
    assert begun["do 1 begins"] == 1
    assert "[1]: do 1 done" in log[-1]
    assert [one.speaker for one in report_of(found.result.output).said] == ["1", "3"]
    assert found.result.status == "partial"  # a step had failed on the way


@pytest.mark.parametrize(
    ("what", "status"),
    [("a failed step", "partial"), ("a plan that is none", "completed"), ("results that are refused", "completed")],
)
async def test_of_what_is_planned_anew_a_failed_step_alone_makes_the_run_partial(what: str, status: str) -> None:
    """Each failed report of a delegation counts, whoever made up for it; the team's own report is done all the same."""
    log: list[str] = []
    firsts = {"a failed step": plan_of(("1", "x")), "a plan that is none": plan_of(("1", "nobody"))}
    plans = planner("p", firsts.get(what, plan_of(("1", "w"))), plan_of(("2", "w")))

    @node(name="check")
    async def check(state: State[Any]) -> bool:
        return what != "results that are refused" or state.visit > 1

    found = await judged(
        "plan_execute",
        strategies.plan_execute("t", plans, working("w", log), working("x", log, fails=9), verify=check),
    )

    assert found.result.status == status
    assert report_of(found.result.output).status == "done"
    assert len(found.result.failures) == (status == "partial")


@pytest.mark.parametrize("max_replans", [0, 1, 2])
async def test_planning_again_is_bounded_and_no_success(max_replans: int) -> None:
    """One plan and so many more; then the run is exhausted, or somebody takes over."""
    plans = planner("p", plan_of(("1", "nobody")))
    team = strategies.plan_execute("t", plans, member("w"), max_replans=max_replans)
    escalated = strategies.plan_execute("t", plans, member("w"), max_replans=max_replans, escalate=member("boss"))

    first, second = await judged("plan_execute", team), await judged("plan_execute", escalated)

    assert Counter(first.started)["p"] == 1 + max_replans
    assert first.result.status == "exhausted"
    assert first.result.output is None
    assert second.result.output == "boss says."


@pytest.mark.parametrize("refused", [False, Verdict(accepted=False, why="no"), Report(status="partial", reason=HALF)])
async def test_what_is_not_accepted_is_planned_again(refused: Any) -> None:
    """The planner hears why; the second result is accepted."""
    heard: list[str] = []

    @node(name="p")
    async def plans(state: State[PlannedTask]) -> Plan:
        heard.extend(state.context.problems)
        return plan_of((f"{state.visit}", "w"))

    @node(name="v")
    async def verify(state: State[PlannedTask]) -> Any:
        return refused if state.visit == 1 else True

    team = strategies.plan_execute("t", plans, member("w"), verify=verify)

    found = await judged("plan_execute", team)

    assert heard[0].startswith("the results were not accepted")
    assert [one.speaker for one in report_of(found.result.output).said] == ["2"]


@pytest.mark.parametrize("gives", ["fine!", None, 7])
async def test_an_unclear_verdict_is_no_acceptance(gives: Any) -> None:
    """What does not say whether it accepts fails the run, and is told."""

    @node(name="v")
    async def verify(state: State[PlannedTask]) -> Any:
        return gives

    found = await judged(
        "plan_execute", strategies.plan_execute("t", planner("p", plan_of(("1", "w"))), member("w"), verify=verify)
    )

    assert found.result.status == "failed"
    assert "is no verdict" in str(found.error or found.reason.text)


async def test_verdicts_that_never_accept_are_bounded() -> None:
    """Plans that are carried out and not accepted come to an end, which is no success."""
    team = strategies.plan_execute(
        "t",
        planner("p", *(plan_of((str(number), "w")) for number in range(9))),
        member("w"),
        verify=member("v", Verdict(accepted=False, why="no")),
    )

    found = await judged("plan_execute", team)

    assert (found.result.status, Counter(found.started)["p"]) == ("exhausted", 3)


@pytest.mark.parametrize("max_replans", [1, 2])
async def test_bad_plans_and_bad_results_share_one_bound(max_replans: int) -> None:
    """Whether a plan was wrong or what came of it was not accepted: the planner plans again so often in all."""
    plans = planner("p", plan_of(("1", "nobody")), plan_of(("1", "w")), plan_of(("1", "nobody")), plan_of(("2", "w")))
    refuses = member("v", Verdict(accepted=False, why="no"))
    team = strategies.plan_execute("t", plans, member("w"), verify=refuses, max_replans=max_replans)

    found = await judged("plan_execute", team)

    assert (found.result.status, Counter(found.started)["p"]) == ("exhausted", 1 + max_replans)


async def test_a_person_verifies_a_stored_plan(tmp_path: Path) -> None:
    """The question is stored; after a No the plan is made again, and after a Yes it is done."""
    plans = planner("p", plan_of(("1", "w")), plan_of(("2", "w")))
    team = strategies.plan_execute("t", plans, member("w"), verify=Human("boss", "Good?", schema=bool))
    path = tmp_path / "runs.db"

    waiting = await run(team, PlannedTask(task=ASKED), journal=SqliteJournal(path), run_id="r")
    waiting = await resume(team, "r", journal=SqliteJournal(path), answers={waiting.questions[0].id: False})
    result = await resume(team, "r", journal=SqliteJournal(path), answers={waiting.questions[0].id: True})

    assert result.status == "completed"
    assert [one.speaker for one in report_of(result.output).said] == ["2"]


async def test_a_synthesis_answers_with_the_reports_of_the_steps() -> None:
    """It gets the joint report, in the order of the plan."""
    plan = plan_of(("2", "w", ("1",)), ("1", "w"))
    team = strategies.plan_execute("t", planner("p", plan), member("w"), synthesis=agent("s", "In short: yes."))

    found = await judged("plan_execute", team)

    assert found.result.output == "In short: yes."


# --- tools in plans --------------------------------------------------------------------------------------------------


@tool
def price(invoice: str, tax: bool = False) -> str:
    """Tell the price of an invoice."""
    return f"{invoice} costs {12 if tax else 10}"


async def test_a_tool_is_a_worker() -> None:
    """It is called once, with the arguments of its step; what it needs arrives before."""
    plan = Plan(
        steps=(
            PlanStep(id="1", to="price", arguments={"invoice": "INV-1", "tax": True}),  # type: ignore[arg-type]
            PlanStep(id="2", to="w", objective="say it", needs=("1",)),
        )
    )
    team = strategies.plan_execute("t", planner("p", plan), member("w"), tools=[price])

    found = await judged("plan_execute", team)

    assert [one.text for one in report_of(found.result.output).said] == ["INV-1 costs 12", "w says."]
    assert found.result.spent.total.tool_calls == 1


async def test_bad_arguments_of_a_tool_are_a_problem_of_the_plan() -> None:
    """The tool is not called; the planner hears of it and plans again."""
    wrong = Plan(steps=(PlanStep(id="1", to="price", arguments={"voice": 3}),))  # type: ignore[arg-type]
    right = Plan(steps=(PlanStep(id="1", to="price", arguments={"invoice": "INV-1"}),))  # type: ignore[arg-type]
    team = strategies.plan_execute("t", planner("p", wrong, right), tools=[price])

    found = await judged("plan_execute", team)

    assert report_of(found.result.output).said[0].text == "INV-1 costs 10"
    assert found.result.spent.total.tool_calls == 1
    assert Counter(found.started)["p"] == 2


@tool
async def total(prices: dict[str, list[int]]) -> int:
    """Add up prices."""
    return sum(sum(group) for group in prices.values())


async def test_an_async_tool_gets_nested_arguments_as_they_are() -> None:
    """Lists and tables in a plan arrive as lists and tables."""
    step = PlanStep(id="1", to="total", arguments={"prices": {"a": [1, 2], "b": [3]}})  # type: ignore[arg-type]

    found = await judged("plan_execute", strategies.plan_execute("t", planner("p", Plan(steps=(step,))), tools=[total]))

    assert report_of(found.result.output).said[0].text == "6"
    assert found.result.spent.total.tool_calls == 1


async def test_a_worker_with_a_question_leads_to_another_plan() -> None:
    """The planner hears the question; what a worker did in part counts as done."""
    asks = Report(status="needs_input", reason=Reason(code="reported", text="which invoice?"))
    half = Report(finding="half", status="partial", reason=HALF)
    heard: list[str] = []

    @node(name="p")
    async def plans(state: State[PlannedTask]) -> Plan:
        heard.extend(state.context.problems)
        return plan_of(("1", "x"), ("2", "w")) if state.visit == 1 else plan_of(("2", "w"))

    team = strategies.plan_execute("t", plans, member("w", half), member("x", asks))

    found = await judged("plan_execute", team)

    assert heard == ["step '1' of 'x' has an open question: which invoice?"]
    assert Counter(found.started)["execute/w"] == 1
    assert report_of(found.result.output).status == "partial"


def test_tools_that_a_step_cannot_call_are_refused() -> None:
    """One that needs a person's approval belongs to an agent, and a name twice is told."""

    @tool(approval=True)
    def refund(invoice: str) -> Any: ...

    with pytest.raises(UsageError, match="needs approval"):
        strategies.plan_execute("t", planner("p", plan_of(("1", "w"))), tools=[refund])
    with pytest.raises(UsageError, match="two members are called 'price'"):
        strategies.plan_execute("t", planner("p", plan_of(("1", "w"))), member("price"), tools=[price])
    with pytest.raises(UsageError, match="workers and tools: at least one is needed, and there is none"):
        strategies.plan_execute("t", planner("p", plan_of(("1", "w"))))


# --- workers of every kind -------------------------------------------------------------------------------------------


async def test_a_failed_need_fails_its_dependents_and_not_the_others() -> None:
    """The step that needs it never begins; the one beside it is finished and kept."""
    log: list[str] = []
    plans = planner("p", plan_of(("1", "x"), ("2", "w", ("1",)), ("3", "w")), plan_of(("3", "w"), ("4", "w", ("3",))))
    team = strategies.plan_execute("t", plans, working("w", log), working("x", log, fails=9))

    found = await judged("plan_execute", team)

    assert "do 2 begins" not in log
    assert Counter(log)["do 3 begins"] == 1
    assert [one.speaker for one in report_of(found.result.output).said] == ["3", "4"]


async def test_more_steps_than_a_worker_may_do_lead_to_another_plan() -> None:
    """What a bound refuses goes back to the planner as a problem; what was done is kept."""
    many = plan_of(*((str(number), "w") for number in range(3)))
    fewer = plan_of(("0", "w"), ("1", "w"))
    team = strategies.plan_execute("t", planner("p", many, fewer), member("w"), max_steps=2)

    found = await judged("plan_execute", team)

    assert [one.speaker for one in report_of(found.result.output).said] == ["0", "1"]


async def test_a_team_is_a_worker_that_is_asked_its_step() -> None:
    """A team as a worker begins with the objective of its step, and its own rules are kept."""
    heard: list[str] = []

    @node(name="x")
    async def listens(state: State[Any]) -> str:
        heard.append(state.context.task)
        return "x says."

    inner = strategies.round_robin("inner", listens, turns=1)
    team = strategies.plan_execute("t", planner("p", plan_of(("1", "inner"), ("2", "inner", ("1",)))), inner)

    found = await judged("plan_execute", team)

    assert heard[0] == "do 1"
    assert "do 2" in heard[1]
    for at in ("execute/inner@0.0", "execute/inner:2@0.1"):
        assert strategy_violations("round_robin", inner, found.events, at=at) == ()


async def test_a_person_is_a_worker() -> None:
    """They are asked their step, and what they say is its report."""
    team = strategies.plan_execute("t", planner("p", plan_of(("1", "boss"))), Human("boss", "Please:"))

    found = await judged("plan_execute", team, answers={"Please:": "It was paid."})

    assert report_of(found.result.output).said[0].text == "It was paid."


async def test_a_planner_that_raises_is_the_runs_error() -> None:
    """Nothing is planned, nothing is run."""
    found = await played(strategies.plan_execute("t", member("p", fails="no idea"), member("w")))

    assert (str(found.error), found.started) == ("no idea", ["p"])
