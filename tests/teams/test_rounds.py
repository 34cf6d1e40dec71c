"""Debates, drafts that somebody else verifies, maps and reductions: what they do, and what their bounds do."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Agent, Context, Graph, Human, Report, State, node
from graphflow.errors import UsageError
from graphflow.graphs.conversation import TeamReport
from graphflow.graphs.strategies import sequential
from graphflow.graphs.teams import Debate, Drafts, Items, Verdict, debate, evaluator_optimizer, map_reduce
from graphflow.model.contract import Reason
from graphflow.testing import RuleModel, ScriptedModel
from tests.teams.helpers import agent, one, played, problems, says


@node
async def broken(_: State[Context]) -> str:
    """Somebody who raises."""
    msg = "no line"
    raise OSError(msg)


def texts(model: ScriptedModel, who: str) -> list[str]:
    """What an agent was told last, request by request."""
    return [request.messages[-1].text for request in model.requests if request.agent == who]


# --- a debate --------------------------------------------------------------------------------------------------------


async def test_debaters_see_what_was_said_before_and_not_beside_them() -> None:
    """In the first round nobody sees anything, in the second everybody the first; the judge sees all."""
    model = ScriptedModel({"bull": ["Buy.", "Buy more."], "bear": ["Sell.", "Sell all."], "judge": ["Hold."]})
    graph = debate("acme", agent("bull", model), agent("bear", model), judge=agent("judge", model))

    found = await played(graph, "Buy Acme?")

    assert (found.result.status, found.result.output) == ("completed", "Hold.")
    first, second = texts(model, "bear")
    assert first == "Buy Acme?"
    assert "[bull]: Buy.\n[bear]: Sell." in second
    assert "more" not in second
    assert "[bull]: Buy.\n[bear]: Sell.\n[bull]: Buy more.\n[bear]: Sell all." in texts(model, "judge")[0]
    assert [said.speaker for said in found.result.context.said] == ["bull", "bear"] * 2


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("width", [2, 5])
async def test_everybody_speaks_in_every_round(rounds: int, width: int) -> None:
    """N debaters speak m times each, no more than was proved."""
    debaters = [says(f"debater {number}", "I say so.") for number in range(width)]
    graph = debate("talk", *debaters, judge=says("judge", "So be it."), rounds=rounds)

    found = await played(graph)

    assert len(found.result.context.said) == rounds * width
    assert found.result.context.rounds == rounds
    assert graph.worst_case().node_runs == found.result.spent.total.node_runs


async def test_a_debater_that_fails_is_said_to_have_failed() -> None:
    """The others go on, the judge is told, and the run is partial; with "fail_fast" it fails."""
    model = ScriptedModel("So be it.")
    graph = debate("talk", says("sure", "Yes."), broken, judge=agent("judge", model), rounds=1)
    strict = debate("talk", says("sure", "Yes."), broken, judge=says("judge", "-"), rounds=1, failure="fail_fast")

    found = await played(graph)

    assert (found.result.status, found.result.output) == ("partial", "So be it.")
    assert "[broken]: (failed:" in texts(model, "judge")[0]
    with pytest.raises(OSError, match="no line"):
        await played(strict)


async def test_a_graph_that_debates_is_told_the_task_and_what_was_said() -> None:
    """A team of its own knows nothing else, so both are in what it gets, in each round and as a judge."""
    model = ScriptedModel({"reader": ["Yes.", "Yes!"], "last": ["So be it."]})
    team = sequential("team", agent("reader", model))
    court = sequential("court", agent("last", model))
    graph = debate("talk", team, says("other", "No."), judge=court)

    found = await played(graph, "Is it so?")

    assert found.result.status == "completed"
    assert [text.count("Is it so?") for text in texts(model, "reader")] == [1, 1]
    assert "Is it so?\n\n[team]: Yes.\n[other]: No." in texts(model, "reader")[1]
    assert "Is it so?" in texts(model, "last")[0]
    assert problems(graph) == []


def test_what_is_no_debate_is_refused() -> None:
    """One alone does not debate, two of one name cannot be told apart, and rounds are counted from one."""
    a, b, judge = says("a", ""), says("b", ""), says("judge", "")

    with pytest.raises(UsageError, match="at least two are needed, and there is only 'a'"):
        debate("talk", a, judge=judge)
    with pytest.raises(UsageError, match="two members are called 'a'"):
        debate("talk", a, b, judge=a)
    with pytest.raises(UsageError, match="is needed"):
        debate("talk", a, b, judge="judge")  # type: ignore[arg-type]  # that is the point
    for rounds in (0, None, True, 2.0):
        with pytest.raises(UsageError, match="rounds"):
            debate("talk", a, b, judge=judge, rounds=rounds)  # type: ignore[arg-type]  # that is the point


async def test_a_debate_may_have_a_context_of_its_own() -> None:
    """What else is in it is there for everybody."""

    class Sided(Debate):
        side: str = "left"

    @node
    async def partisan(state: State[Sided]) -> str:
        return state.context.side

    graph: Graph[Any] = debate("talk", partisan, says("b", "right"), judge=says("judge", "-"), context=Sided, rounds=1)

    found = await played(graph)

    assert [said.text for said in found.result.context.said] == ["left", "right"]


# --- drafts, verified ------------------------------------------------------------------------------------------------


def letter(model: ScriptedModel, **options: Any) -> Graph[Drafts]:
    """An author and a verifier."""
    verifier = agent("verifier", model, output=Verdict)
    return evaluator_optimizer("letter", agent("author", model), verifier, **options)


async def test_an_author_writes_again_with_the_reasons() -> None:
    """The author gets the verdict and the draft it is about; the output is the draft that was accepted."""
    model = ScriptedModel(
        {
            "author": ["Dear Sir", "Dear Sir, sorry."],
            "verifier": [Verdict(accepted=False, why="It does not say sorry."), Verdict(accepted=True)],
        }
    )

    found = await played(letter(model), "Write a letter.")

    assert found.result.status == "completed"
    assert isinstance(found.result.output, TeamReport)
    assert found.result.output.finding == "Dear Sir, sorry."
    assert [draft.text for draft in found.result.output.said] == ["Dear Sir", "Dear Sir, sorry."]
    again = texts(model, "author")[1]
    assert "It does not say sorry." in again
    assert "Dear Sir" in again
    assert [text.splitlines()[1] for text in texts(model, "verifier")] == ["Dear Sir", "Dear Sir, sorry."]


@pytest.mark.parametrize("rounds", [1, 2, 4])
async def test_nothing_is_accepted_because_the_rounds_are_used_up(rounds: int) -> None:
    """After the last rejected draft the run is exhausted: no output, the drafts in the context, all that was proved."""
    model = ScriptedModel({"author": ["Dear Sir"] * rounds, "verifier": [Verdict(accepted=False, why="No.")] * rounds})
    graph = letter(model, max_rounds=rounds)

    found = await played(graph)

    assert (found.result.status, found.result.output) == ("exhausted", None)
    assert found.result.reason is not None
    assert (found.result.reason.code, found.result.reason.limit) == ("max_hops", rounds - 1)
    assert len(found.result.context.drafts) == rounds
    model.assert_complete()


async def test_used_up_rounds_inside_another_team_are_no_success_either() -> None:
    """A nested one exhausts the run around it, or is a failed branch of a fork."""
    reject = says("verifier", Verdict(accepted=False, why="No."))
    inner = evaluator_optimizer("inner", says("author", "Dear Sir"), reject)

    alone = await played(sequential("outer", inner, says("last", "Sent.")))
    beside = await played(debate("talk", inner, says("b", "No."), judge=says("judge", "So be it."), rounds=1))

    assert alone.result.status == "exhausted"
    assert beside.result.status == "partial"
    assert beside.result.context.said[0].report.status == "failed"


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        pytest.param(True, "completed", id="true"),
        pytest.param(False, "exhausted", id="false"),
        pytest.param(Report(finding="Fine."), "completed", id="a report"),
        pytest.param(Report(finding="Bad.", status="partial", reason=Reason(code="reported", text="No date.")),
                     "exhausted", id="a partial report"),
        pytest.param("Fine.", "failed", id="a text"),
        pytest.param(None, "failed", id="nothing"),
    ],
)  # fmt: skip
async def test_a_verdict_has_more_than_one_form(verdict: Any, status: str) -> None:
    """A bool, a verdict, a report; a text does not say whether it accepts, and fails the run."""
    graph = evaluator_optimizer("letter", says("author", "Dear Sir"), says("verifier", verdict), max_rounds=1)

    found = await played(graph)

    assert found.result.status == status


async def test_a_person_may_verify() -> None:
    """The run waits for the verdict."""
    graph = evaluator_optimizer("letter", says("author", "Dear Sir"), Human("boss", question="Send it?", schema=bool))

    found = await played(graph)

    assert (found.result.status, found.result.questions[0].text) == (
        "waiting",
        "Send it?\ndraft: Dear Sir",
    )


async def test_a_graph_may_write_and_another_verify() -> None:
    """Both are told the task; the author gets the reasons too."""
    model = ScriptedModel({"pen": ["Dear Sir", "Dear Sir, sorry."]})
    verdicts = iter([Verdict(accepted=False, why="No."), Verdict(accepted=True)])

    @node
    async def judge(state: State[Context]) -> Verdict:
        return next(verdicts)

    author = sequential("author", agent("pen", model))
    graph = evaluator_optimizer("letter", author, sequential("verifier", judge))

    found = await played(graph, "Write a letter.")

    assert found.result.status == "completed"
    assert "Write a letter.\n\nDo it again. This was not accepted: No." in texts(model, "pen")[1]
    assert problems(graph) == []


def test_nobody_verifies_work_of_their_own() -> None:
    """The same node, the same name, and the same node under another name are refused."""
    model = RuleModel(otherwise="-")
    author = agent("author", model, output=Verdict)

    for verifier in (author, agent("author", RuleModel(otherwise="?"), output=Verdict), author.named("verifier")):
        with pytest.raises(UsageError, match="nobody accepts work of their own"):
            evaluator_optimizer("letter", author, verifier)
    other = Agent("verifier", model=RuleModel(otherwise="?"), output=Verdict, description=author.description)
    assert problems(evaluator_optimizer("letter", author, other)) == []


def test_what_cannot_verify_is_refused() -> None:
    """An agent that answers with a text is, before it runs; so is what is no node, and rounds that make no sense."""
    with pytest.raises(UsageError, match="a node is needed"):
        evaluator_optimizer("letter", "author", "verifier")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(UsageError, match="output=Verdict"):
        evaluator_optimizer("letter", one("author"), one("verifier"))
    for rounds in (0, None, True):
        with pytest.raises(UsageError, match="max_rounds"):
            evaluator_optimizer("letter", one("author"), says("v", True), max_rounds=rounds)  # type: ignore[arg-type]


# --- maps and reductions ---------------------------------------------------------------------------------------------


@node
async def shout(state: State[Context]) -> str:
    """Somebody who does a part."""
    return str(state.values[0]).upper()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(("a", "b", "c"), id="a tuple"),
        pytest.param(Items(items=("a", "b", "c")), id="items"),
        pytest.param("a\n\n  b\nc\n", id="lines"),
        pytest.param(Report(finding="a\nb\nc"), id="a report"),
    ],
)
async def test_each_part_is_done_in_order(parts: Any) -> None:
    """Whatever form the parts have, the joint report has one report for each."""

    def split(_: State[Context]) -> list[str]:
        return ["a", "b", "c"]

    by_rule = await played(map_reduce("map", split, shout))
    by_node = await played(map_reduce("map", says("split", parts), shout))

    for found in (by_rule, by_node):
        assert found.result.status == "completed"
        said = [(one.speaker, one.text) for one in found.result.output.said]
        assert said == [("shout 1", "A"), ("shout 2", "B"), ("shout 3", "C")]


async def test_a_reduction_answers_from_all_parts() -> None:
    """It gets the joint report, and its answer is the output."""
    model = ScriptedModel({"split": [Items(items=("north", "south"))], "sum": ["Both."]})
    graph = map_reduce("map", agent("split", model, output=Items), shout, agent("sum", model))

    found = await played(graph)

    assert found.result.output == "Both."
    assert "[shout 1]: NORTH" in texts(model, "sum")[0]
    assert problems(graph) == []


async def test_more_parts_than_are_allowed_exhaust_the_run_before_any_is_done() -> None:
    """As many as are allowed are done; one more is a bound."""
    graph = map_reduce("map", says("split", ("a",) * 4), shout, max_items=3)
    enough = map_reduce("map", says("split", ("a",) * 3), shout, max_items=3)

    found, fits = await played(graph), await played(enough)

    assert found.result.status == "exhausted"
    assert found.visited == [("split",)]
    assert fits.result.status == "completed"
    assert fits.result.spent.total.node_runs == enough.worst_case().node_runs


async def test_no_part_is_a_partial_report() -> None:
    """There was nothing to do: the run ends, and says so."""
    found = await played(map_reduce("map", says("split", ()), shout))

    assert (found.result.status, found.result.output.status) == ("completed", "partial")
    assert "no item" in found.result.output.reason.text


async def test_a_part_that_fails_is_named() -> None:
    """The others are done, the report says which failed, and the run is partial."""

    @node
    async def picky(state: State[Context]) -> Report:
        if state.values[0] == "b":
            return Report(status="failed", reason=Reason(code="reported", text="I do not do b."))
        return Report(finding="Done.")

    found = await played(map_reduce("map", says("split", ("a", "b", "c")), picky))

    assert found.result.status == "partial"
    assert "'picky 2' (failed: " in found.result.output.reason.text


async def test_what_is_no_list_of_parts_fails_the_node_that_gave_it() -> None:
    """The reason says what was given and what is needed."""
    found = await played(map_reduce("map", says("split", 7), shout))

    assert found.result.status == "failed"
    assert found.result.reason is not None
    assert "7 is no list of items" in found.result.reason.text


async def test_a_team_does_a_part_and_knows_the_task() -> None:
    """A graph as a worker gets the task and its part."""
    model = RuleModel(otherwise="Done.")
    graph = map_reduce("map", says("split", ("north", "south")), sequential("team", agent("reader", model)))

    found = await played(graph, "Read the files.")

    assert found.result.status == "completed"
    assert len(found.result.output.said) == 2


def test_what_is_no_map_is_refused() -> None:
    """No function, an async one, a bound that makes no sense, and two of one name."""

    async def later(_: State[Context]) -> tuple[str, ...]:
        return ()

    for split in (7, "split", None):
        with pytest.raises(UsageError, match="split="):
            map_reduce("map", split, shout)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(UsageError, match="write a plain function"):
        map_reduce("map", later, shout)  # type: ignore[arg-type]  # that is the point
    for most in (0, None, True):
        with pytest.raises(UsageError, match="max_items"):
            map_reduce("map", says("split", ()), shout, max_items=most)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two members are called"):
        map_reduce("map", says("a", ()), says("a", ""))
