"""Stages one after the other, and members side by side: sequential and parallel."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict

from graphflow import (
    ALL,
    ANY,
    END,
    START,
    STRICT,
    Budget,
    Graph,
    Human,
    Report,
    State,
    Step,
    Update,
    append,
    first,
    node,
    quorum,
    run,
    strategies,
    when,
)
from graphflow.errors import UsageError
from graphflow.graphs.strategies import Conversation, Said, Task, TeamReport
from graphflow.model.contract import Reason
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.testing import strategy_violations
from tests.strategies.teams import ASKED, agent, hears, judged, member, played


class Price(BaseModel):
    """What is no text."""

    model_config = ConfigDict(frozen=True)

    usd: int = 3


def report_of(output: object) -> TeamReport:
    """The output, which is a team's report."""
    assert isinstance(output, TeamReport)
    return output


def said(output: object) -> list[tuple[str, str]]:
    """Who said what, by a team's report."""
    return [(one.speaker, one.text) for one in report_of(output).said]


def silent(name: str) -> FunctionNode[Any]:
    """A member that gives nothing."""

    @node(name=name)
    async def body(state: State[Task]) -> None:
        return None

    return body


# --- sequential ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("see", "heard"),
    [
        ("previous", [("a",), ("b", "a says."), ("c", "b says.")]),
        ("all", [("a",), ("b", "[a]: a says."), ("c", "[a]: a says.\n[b]: b says.")]),
    ],
)
async def test_what_a_stage_sees(see: Any, heard: list[tuple[str, ...]]) -> None:
    """What the one before it said, or what all before it said, each with its name."""
    got: list[tuple[str, ...]] = []

    found = await judged("sequential", strategies.sequential("t", *(hears(n, got) for n in "abc"), see=see))

    assert got == heard
    assert found.result.output == "c says."


@pytest.mark.parametrize("stage", ["a", "b", "c"])
async def test_a_gate_stops_the_line_and_the_report_says_where(stage: str) -> None:
    """Nothing after it runs; the report is partial and names the stage and the reason."""
    team = strategies.sequential("t", *map(member, "abc"), gates={stage: lambda state: "no evidence"})

    found = await judged("sequential", team)

    report = report_of(found.result.output)
    assert report.status == "partial"
    assert report.reason is not None
    assert report.reason.text == f"stopped after {stage!r}: no evidence"
    assert [name for name in found.started if len(name) == 1] == [*"abc"[: "abc".index(stage) + 1]]
    assert [one.speaker for one in report.said][-1] == stage


async def test_a_gate_that_lets_pass_changes_nothing() -> None:
    """It sees the state after the stage, and the next stage gets what it would have got."""
    seen: list[tuple[Any, ...]] = []

    def gate(state: State[Conversation]) -> None:
        seen.append(state.values)

    found = await judged("sequential", strategies.sequential("t", member("a"), member("b"), gates={"a": gate}))

    assert seen == [("a says.",)]
    assert found.result.output == "b says."


@pytest.mark.parametrize("see", ["previous", "all"])
async def test_the_last_stage_answers_with_its_own_words(see: Any) -> None:
    """A gate behind the last stage lets pass what that stage said, whatever the others saw."""
    team = strategies.sequential("t", member("a"), member("b"), see=see, gates={"b": lambda _: None})

    found = await judged("sequential", team)

    assert found.result.output == "b says."


async def test_a_gate_that_raises_is_visible() -> None:
    """Its error ends the run as it is, and names the node where the gate stands."""

    def gate(state: State[Conversation]) -> str:
        raise LookupError("no such invoice")

    found = await played(strategies.sequential("t", member("a"), member("b"), gates={"a": gate}))

    assert isinstance(found.error, LookupError)
    assert "after a" in found.error.__notes__[-1]
    assert found.result.status == "failed"


@pytest.mark.parametrize("gives", ["", "  ", False, True, 0])
async def test_a_gate_says_why_or_nothing(gives: Any) -> None:
    """Anything but words and None is an error that says so: a stop without a reason would be silent."""
    found = await played(strategies.sequential("t", member("a"), member("b"), gates={"a": lambda _: gives}))

    assert isinstance(found.error, UsageError)
    assert "the gate of 'a' gave" in str(found.error)


def test_gates_and_views_that_make_no_sense_are_refused() -> None:
    """A gate of nobody, an async gate and an unknown view are told with the stages."""

    async def later(state: State[Conversation]) -> Any: ...

    slow: Any = later
    view: Any = "some"
    with pytest.raises(UsageError, match="'z' is no stage; the stages are 'a'"):
        strategies.sequential("t", member("a"), gates={"z": lambda _: None})
    with pytest.raises(UsageError, match="nothing can be awaited"):
        strategies.sequential("t", member("a"), gates={"a": slow})
    with pytest.raises(UsageError, match="see='some': 'previous' or 'all' is needed"):
        strategies.sequential("t", member("a"), see=view)


async def test_a_person_and_a_failing_stage_in_the_line() -> None:
    """What a person says goes on like any output; a stage that fails stops the line with its error."""
    heard: list[tuple[str, ...]] = []

    answered = await judged(
        "sequential", strategies.sequential("t", Human("boss", "Well?"), hears("b", heard)), answers={"Well?": "Yes."}
    )
    failed = await played(strategies.sequential("t", member("a", fails="broken"), member("b")))

    assert heard == [("b", "Yes.")]
    assert answered.result.status == "completed"
    assert (str(failed.error), failed.started) == ("broken", ["a"])


# --- what members may give -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gives", "text"),
    [
        ("fine", "fine"),
        ((1, 2), "[1, 2]"),
        (("x",), '["x"]'),
        ((), "[]"),
        (Price(), '{"usd": 3}'),
        (0, "0"),
        (False, "false"),
        (Said(speaker="b", report=Report(finding="not me")), None),
        (Report(finding="paid", evidence=("INV-1",), action_needed="refund"), "paid"),
    ],
)
async def test_whatever_a_member_gives_is_reported_as_its_own(gives: Any, text: str | None) -> None:
    """One entry for each member, under its name, whatever the type of what it gave, in every kind of team."""
    for kind, team in (
        ("round_robin", strategies.round_robin("t", member("a", gives), member("b"), turns=2)),
        ("parallel", strategies.parallel("t", member("a", gives), member("b"))),
        ("parallel", strategies.parallel("t", member("a", gives), member("b"), join=quorum(2))),
    ):
        found = await judged(kind, team)  # type: ignore[arg-type]  # the names of strategies
        entries = said(found.result.output)
        assert [speaker for speaker, _ in entries] == ["a", "b"]
        assert text is None or entries[0][1] == text


@pytest.mark.parametrize("gives", ["", "  \n", None])
async def test_who_says_nothing_is_told_so(gives: Any) -> None:
    """An empty answer is a partial report that says so; it does not vanish, and is no success."""
    mute = silent("a") if gives is None else member("a", gives)

    found = await judged("parallel", strategies.parallel("t", mute, member("b")))

    assert said(found.result.output)[0] == ("a", "(partial: 'a' said nothing.)")
    assert report_of(found.result.output).status == "partial"


async def test_nothing_of_a_report_is_lost_on_the_way_to_the_join() -> None:
    """A report crosses exactly: fields that are None, too."""
    given = Report(finding="paid twice", action_needed=None, evidence=("INV-311", "p:3"))
    partial = Report(finding="", status="partial", reason=Reason(code="reported", text="half"), action_needed="call")
    for join in (quorum(2), None):
        options = {} if join is None else {"join": join}
        team = strategies.parallel("t", member("a", given), member("b", partial), **options)  # type: ignore[arg-type]
        report = report_of((await judged("parallel", team)).result.output)
        assert [one.report for one in report.said] == [given, partial]
        assert (report.evidence, report.action_needed) == (("INV-311", "p:3"), "call")


# --- parallel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [(3, 2, 1), (1, 2, 3), (2, 3, 1)])
async def test_reports_stand_in_the_order_of_the_definition(seconds: tuple[int, ...]) -> None:
    """Whoever is first, the report is the same."""
    late = [member(name, seconds=wait) for name, wait in zip("abc", seconds, strict=True)]

    for join in (strategies.parallel("t", *late), strategies.parallel("t", *late, join=quorum(3))):
        found = await judged("parallel", join)
        assert said(found.result.output) == [("a", "a says."), ("b", "b says."), ("c", "c says.")]


async def test_a_failure_is_collected_and_named() -> None:
    """The others finish; the report is partial and says who failed and why; the run is no success."""
    for options in ({}, {"join": quorum(2)}):
        team = strategies.parallel(
            "t",
            member("a"),
            member("b", fails="broken"),
            member("c", seconds=1),
            **options,  # type: ignore[arg-type]
        )
        found = await judged("parallel", team)
        report = report_of(found.result.output)
        assert found.result.status == "partial"
        assert [one.speaker for one in report.said] == ["a", "b", "c"]
        assert report.reason is not None
        assert report.reason.text == "not done: 'b' (failed: broken)"


async def test_a_failure_deep_inside_is_named_by_the_member() -> None:
    """Where a nested team fails, the report says which member that was."""
    inner = strategies.sequential("inner", member("x"), member("y", fails="deep"))
    for options in ({}, {"join": quorum(1)}):
        team = strategies.parallel("t", inner, member("b", seconds=1), **options)  # type: ignore[arg-type]
        whole = strategies.sequential("whole", member("first"), team)
        found = await played(whole)
        report = report_of(found.result.output)
        assert strategy_violations("parallel", team, found.events, at="t") == ()
        assert [one.speaker for one in report.said] == ["inner", "b"]


async def test_all_have_failed() -> None:
    """A team of which nobody has anything to say has failed, and says whom."""
    found = await judged("parallel", strategies.parallel("t", member("a", fails="x"), member("b", fails="y")))

    assert found.result.status == "failed"
    assert "'a' (failed: x); 'b' (failed: y)" in found.reason.text


@pytest.mark.parametrize("options", [{}, {"join": ANY}])
async def test_a_team_of_one_keeps_its_word(options: Any) -> None:
    """A single branch is reported, and its failure is collected, as among several."""
    fine = await judged("parallel", strategies.parallel("t", member("a"), **options))
    failed = await judged("parallel", strategies.parallel("t", member("a", fails="broken"), **options))

    assert said(fine.result.output) == [("a", "a says.")]
    assert failed.result.status == "failed"
    assert "not done: 'a' (failed: broken)" in failed.reason.text


def test_a_join_that_nobody_could_meet_is_refused() -> None:
    """More branches than there are, and a time for one that meets nobody."""
    with pytest.raises(UsageError, match="waits for 3 branches, and the team has 2"):
        strategies.parallel("t", member("a"), member("b"), join=quorum(3))
    with pytest.raises(UsageError, match="failure='fail_fast'"):
        strategies.parallel("t", member("a"), member("b"), join=STRICT)
    with pytest.raises(UsageError, match="within 1 s, and the team has 1"):
        strategies.parallel("t", member("a"), join=quorum(1, within=1))


async def test_fail_fast_stops_the_others() -> None:
    """The first failure cancels the rest, and comes out as it is."""
    team = strategies.parallel("t", member("a", fails="x"), member("b", seconds=9), failure="fail_fast")

    found = await played(team)

    assert str(found.error) == "x"
    assert found.ended["b"] == "cancelled"


@pytest.mark.parametrize(("losers", "ended"), [("finish", "completed"), ("cancel", "cancelled")])
@pytest.mark.parametrize("join", [ANY, first(1)])
async def test_the_first_is_enough_and_losers_are_told(join: Any, losers: Any, ended: str) -> None:
    """The report holds who was in time; the others finish or are cancelled, and change nothing."""
    team = strategies.parallel("t", member("a", seconds=5), member("b"), join=join, losers=losers)

    found = await judged("parallel", team)

    assert said(found.result.output) == [("b", "b says.")]
    assert found.ended["a"] == ended


async def test_a_quorum_in_time_and_one_that_cannot_be_met() -> None:
    """Two of three within a second; and a quorum that is late is a failure that says so."""
    members = [member("a"), member("b", seconds=0.5), member("c", seconds=9)]

    met = await judged("parallel", strategies.parallel("t", *members, join=quorum(2, within=1)))
    unmet = await judged("parallel", strategies.parallel("t", *members, join=quorum(3, within=1)))

    assert [speaker for speaker, _ in said(met.result.output)] == ["a", "b"]
    assert (unmet.result.status, unmet.reason.code) == ("failed", "join_unmet")


async def test_a_synthesis_answers_in_the_teams_place() -> None:
    """It gets the joint report, once, after everybody."""
    heard: list[tuple[str, ...]] = []
    team = strategies.parallel("t", member("a"), member("b", seconds=2), synthesis=hears("s", heard))

    found = await judged("parallel", team)

    assert found.result.output == "s says."
    assert len(heard) == 1
    assert "[a]: a says.\\n[b]: b says." in heard[0][1]


class Findings(Task):
    """A task with a list to which branches add."""

    notes: Annotated[tuple[str, ...], append] = ()
    mark: str = ""


async def test_updates_of_branches_are_merged_by_reducers() -> None:
    """In the order of the definition, whoever was first; and a conflict is an error with its field."""

    def notes(name: str, seconds: float, **update: Any) -> FunctionNode[Any]:
        @node(name=name)
        async def body(state: State[Findings], step: Any) -> Any:
            await step.sleep(seconds)
            return Update(notes=name, **update)

        return body

    merged = strategies.parallel("t", notes("a", 3), notes("b", 1), context=Findings)
    clash = strategies.parallel("t", notes("a", 3, mark="x"), notes("b", 1, mark="x"), context=Findings)

    result, conflict = await run(merged, Findings(task=ASKED)), await run(clash, Findings(task=ASKED))

    assert result.context.notes == ("a", "b")
    assert (conflict.status, conflict.reason and conflict.reason.code) == ("failed", "conflict")


async def test_branches_do_not_see_each_other() -> None:
    """Each gets the original input, with nothing of its siblings; a person may be one."""
    heard: list[tuple[str, ...]] = []
    team = strategies.parallel("t", hears("a", heard), hears("b", heard), Human("boss", "Well?"))

    found = await judged("parallel", team, answers={"Well?": "Yes."})

    assert heard == [("a",), ("b",)]
    assert said(found.result.output)[2] == ("boss", "Yes.")


@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_a_budget_holds_over_all_branches(calls: int) -> None:
    """Members that no call is left for fail, and are named; no more calls are made than there are."""
    team = strategies.parallel("t", *map(agent, "abcd"), budget=Budget(model_calls=calls))

    found = await judged("parallel", team)

    report = report_of(found.result.output)
    assert found.result.spent.total.model_calls == calls
    assert found.result.status == "partial"
    assert sum(one.report.status == "done" for one in report.said) == calls
    assert [one.speaker for one in report.said] == ["a", "b", "c", "d"]


async def test_a_gate_sees_what_its_stage_has_just_said() -> None:
    """The state after a stage is the state that the next one would see."""
    heard: list[tuple[str, ...]] = []

    def listens(state: State[strategies.Conversation]) -> None:
        heard.append(tuple(one.text for one in state.context.said))

    team = strategies.sequential("t", member("a"), member("b"), gates={"a": listens, "b": listens})

    await played(team)

    assert heard == [("a says.",), ("a says.", "b says.")]


async def test_members_that_a_bound_stops_have_not_failed() -> None:
    """More of the budget would help, so what they have not done is a part that is missing."""
    team = strategies.parallel("t", agent("a"), agent("b"), budget=Budget(model_calls=0))

    found = await played(team)

    assert found.result.status == "partial"
    assert report_of(found.result.output).status == "partial"
    assert "'a'" in report_of(found.result.output).reason.text  # type: ignore[union-attr]  # it is partial


def always(state: State[Task]) -> bool:
    """Go on."""
    return True


def stopped(bound: str, seconds: float) -> Node[Any]:
    """A member called "b" that hits a bound after a while."""
    if bound == "max_hops":
        work = member("work", seconds=seconds)
        chains = (START >> work, work.choose(when(always, work, max_hops=0), default=END))
        return Graph("b", *chains, context=Task)
    if bound == "node_runs":
        two = member("first", seconds=seconds) >> member("second")
        return Graph("b", START >> two >> END, context=Task, budget=Budget(node_runs=1))

    @node(name="b")
    async def spends(state: State[Any], step: Step) -> str:
        await step.sleep(seconds)
        return str(await step.effect("ask", len, (), cost=Budget(model_calls=99)))

    return spends


@pytest.mark.parametrize("join", [ALL, ANY, first(2), quorum(1, within=9)], ids=str)
@pytest.mark.parametrize("bound", ["max_hops", "node_runs", "model_calls"])
async def test_who_is_stopped_by_a_bound_before_the_join_is_met_is_named(bound: str, join: Any) -> None:
    """Whatever the join waits for: by its own name, with the bound, where the report is made."""
    team = (member("a", seconds=2), stopped(bound, 1), member("c", seconds=3))

    found = await played(strategies.parallel("t", *team, join=join, budget=Budget(model_calls=9, node_runs=30)))

    report = report_of(found.result.output)
    assert report.status == "partial"
    assert [one.speaker for one in report.said][:2] == ["a", "b"]
    assert report.reason is not None
    assert "not done: 'b' (failed: the bound" in report.reason.text
    assert bound in report.reason.text


@pytest.mark.parametrize("losers", ["finish", "cancel"])
@pytest.mark.parametrize("bound", ["max_hops", "node_runs", "model_calls"])
async def test_who_is_stopped_after_the_join_was_met_is_late_like_any_other(bound: str, losers: Any) -> None:
    """The report is made by then: what a late member came to is in the result's refusals, and in its events."""
    team = (member("a", seconds=1), stopped(bound, 2))

    found = await played(
        strategies.parallel("t", *team, join=ANY, losers=losers, budget=Budget(model_calls=9, node_runs=30))
    )

    assert found.result.status == "completed"
    assert said(found.result.output) == [("a", "a says.")]
    assert [one.code for one in found.result.refused] == [bound] * (losers == "finish")
