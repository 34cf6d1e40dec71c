"""Lint of ready-made teams: what their own functions do, and whom advice is for."""

from typing import Any

import pytest

from graphflow import (
    Agent,
    Graph,
    Human,
    MemoryJournal,
    ping_pong,
    repetition,
    run,
    strategies,
)
from graphflow.cli.stored import read_rows
from graphflow.events import Event
from graphflow.graphs.planning import Plan, PlanStep
from graphflow.lint import lint
from graphflow.lint.replies import as_outcome
from graphflow.model.outcome import Done, Handoff, Pause, Update
from graphflow.testing import RuleModel, call
from tests.lint.builders import BUDGET, Desk, Seed, solo
from tests.lint.rates import happened
from tests.lint.seeds_of_steps import INVOICE
from tests.lint.seeds_of_teams import GOOD_TEAMS, Planned, readers, regions, says


@pytest.mark.parametrize("seed", [pytest.param(seed, id=seed.name) for seed in GOOD_TEAMS])
async def test_a_team_shows_nothing_heard_or_stored(seed: Seed) -> None:
    """What is read back has the values of the team's own classes as tables, which are looked into all the same."""
    graph, journal, heard = seed.make(), MemoryJournal(), list[Event]()
    await run(graph, graph.context(), journal=journal, run_id="r", listeners=[heard.append])

    stored = read_rows("r", await journal.read("r"))

    assert lint(graph, heard) == lint(graph, stored.events()) == ()


def wrong_plan(**options: Any) -> Graph[Any]:
    """A planner that always names somebody who is not there."""
    plan = Plan(steps=(PlanStep(id="1", to="zed", objective="look"),))
    planner = says("planner", plan, output=Plan)
    return strategies.plan_execute(
        "planned", planner, says("clerk", "Twice."), max_replans=1, context=Planned, budget=BUDGET, **options
    )


@pytest.mark.parametrize("options", [{}, {"escalate": Human("person", "What now?", schema=str)}])
def test_a_plan_that_is_never_right_is_the_planners(options: dict[str, Any]) -> None:
    """What `execute` said of it is told, and the planner is who can change something."""
    graph = wrong_plan(**options)

    found = lint(graph, happened(graph, Planned()))

    assert [one.code for one in found] == ["bound-for-an-end"]
    assert "'execute' said \"- step '1' goes to 'zed'" in found[0].message
    assert "change what 'planner' is told or gives" in found[0].hint


def swarm(*detect: Any, max_handoffs: int = 8) -> Graph[Any]:
    """Two who hand over to each other."""
    stone = Agent("stone", model=RuleModel(otherwise=call("transfer_to_paper", note="Yours.")), max_turns=2)
    paper = Agent("paper", model=RuleModel(otherwise=call("transfer_to_stone", note="Yours.")), max_turns=2)
    return strategies.swarm("game", stone, paper, max_handoffs=max_handoffs, detect=detect, context=Desk, budget=BUDGET)


@pytest.mark.parametrize(
    ("detect", "advice"),
    [
        ((ping_pong(),), None),
        ((ping_pong(then="warn"),), 'ping_pong(then="stop") ends it'),
        ((ping_pong(then="warn"), ping_pong()), None),
        ((repetition(times=9),), "Graph(detect=ping_pong()) stops it"),
    ],
)
def test_a_detector_that_watches_already_is_not_advised(detect: tuple[Any, ...], advice: str | None) -> None:
    """One that only warns might stop it."""
    graph = swarm(*detect)

    found = next(one for one in lint(graph, happened(graph, Desk())) if one.code == "to-and-fro")

    assert (advice in found.hint) if advice else ("ping_pong" not in found.hint)


def test_a_repetition_that_is_watched_is_not_advised_either() -> None:
    """It names the detector where nothing watches."""
    graph = solo(INVOICE, INVOICE, INVOICE, "Twice.")

    found = lint(graph, happened(graph, Desk()))

    assert [one.hint for one in found] == [
        "Say in its instructions when enough is known; Graph(detect=repetition()) tells it so as it runs."
    ]


def test_a_verifier_in_a_conversation_has_the_last_word() -> None:
    """Its edges are the team's, so that turns or order are what can be changed."""
    graph = strategies.round_robin(
        "headline", says("writer", "Ferry scandal!"), says("critic", "Too short."), turns=3, budget=BUDGET
    )

    found = lint(graph, happened(graph, graph.context(task="The ferry.")))

    assert [one.code for one in found] == ["unverified-end"]
    assert found[0].hint.startswith("Let 'critic' have the last word: give the team another number of turns")


def test_advice_about_steps_is_for_the_planner() -> None:
    """Who wrote the plan left the reviewer out; `execute` only carries it out."""
    plan = Plan(steps=(PlanStep(id="1", to="writer", objective="Write about the lost invoice INV-311"),))
    graph = strategies.plan_execute(
        "planned", says("planner", plan, output=Plan), says("writer", "It was paid twice."), says("reviewer", "Fine."),
        context=Planned, budget=BUDGET,
    )  # fmt: skip

    found = lint(graph, happened(graph, Planned()))

    assert [(one.code, one.where) for one in found] == [("unasked-verifier", "execute")]
    assert found[0].hint.startswith("Say in the instructions of 'planner' to have the last version checked")


def test_a_member_whose_giver_is_not_there_is_advised_itself() -> None:
    """As in a run of a graph that has changed."""
    graph = wrong_plan()
    events = [one for one in happened(graph, Planned()) if not str(one.path).count("planner")]

    found = lint(graph, events)

    assert "change what 'execute' is told or gives" in found[-1].hint


def test_a_loss_is_told_of_once() -> None:
    """It names who failed, why, and who kept quiet about it."""
    graph = readers("It costs 400 a day.")

    found = lint(graph, happened(graph, Desk()))

    assert [(one.code, one.where) for one in found] == [("loss-not-told", "editor")]
    assert found[0].message == (
        "'dates' failed ('the calendar cannot be reached'), and the answer of 'editor' does not say so."
    )


def test_an_item_that_is_lost_has_its_number() -> None:
    """Its worker has only one name."""
    graph = regions("There are 12 cranes.")

    found = lint(graph, happened(graph, Desk()))

    assert [one.message for one in found] == [
        "'count' failed for item 2 ('no road leads there'), and the answer of 'writer' does not say so."
    ]


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({"output": 1, "update": {"draft": "x"}}, Done(1, update=Update(draft="x"))),
        ({"to": "a", "note": None, "update": None}, Handoff("a")),
        ({"to": "", "note": None, "update": None}, {"to": "", "note": None, "update": None}),
        ({"question": "Who?", "schema": None, "update": None}, Pause("Who?")),
        ({"draft": "x"}, Update(draft="x")),
        ({"number": "x"}, {"number": "x"}),
        ({}, {}),
        ("x", "x"),
    ],
)
def test_an_outcome_that_was_read_back_is_one(data: Any, outcome: Any) -> None:
    """A table that has the fields of an outcome is it; anything else is a value of the user's."""
    assert as_outcome(data, Desk.model_fields) == outcome
