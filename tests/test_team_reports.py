"""What of a team's report crosses to whom: a program has all that was said, the model of a caller the finding alone."""

from graphflow import END, START, Agent, Graph, MemoryJournal, Supervisor, replay, run, strategies
from graphflow.graphs.conversation import joint_report, last_report, said_by
from graphflow.model.thread import shown
from graphflow.testing import ScriptedModel, call


def test_a_model_does_not_read_what_a_team_said() -> None:
    """The steps of a team stay with it, wherever in a value its report stands."""
    report = last_report([said_by("bull", "Buy."), said_by("bear", "Sell.")])

    assert "Buy." not in shown(report) + shown((report,)) + shown({"of": report})
    assert '"finding": "Sell."' in shown(report)
    assert "Buy." in report.model_dump_json()


def test_a_joint_report_keeps_what_is_not_done() -> None:
    """A member without an answer is named, and nulls stay."""
    report = joint_report([said_by("bull", "Buy."), said_by("bear", None)])

    assert (report.status, report.finding, report.action_needed) == ("partial", "[bull]: Buy.", None)
    assert "'bear'" in (report.reason.text if report.reason else "")


async def test_a_team_that_is_delegated_to_reports_its_finding(anyio_backend: str) -> None:
    """The supervisor's model gets one report, and a replay of the stored run has all of it."""
    members = [Agent(name, model=ScriptedModel(f"{name} says")) for name in ("bull", "bear")]
    team = strategies.round_robin("team", *members, turns=2)
    model = ScriptedModel(call("ask_team", objective="Buy or sell?"), "Sell.")
    desk = Supervisor("desk", model=model)
    graph = Graph("desk", START >> desk >> END, desk.delegates(team, max_hops=1), context=strategies.Task)
    journal = MemoryJournal()

    result = await run(graph, strategies.Task(task="What now?"), journal=journal)

    told = model.requests[1].messages[-1].text
    assert result.output == "Sell."
    assert "bear says" in told
    assert "bull says" not in told
    assert (await replay(graph, result.run_id, journal=journal)).output == "Sell."
