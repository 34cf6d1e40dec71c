"""The lesson on supervisors and handoffs: its exercises and its contract, each as a test."""

from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Graph,
    Human,
    Report,
    Supervisor,
    tool,
)
from graphflow.events import Granted, Refused
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import (
    Rules,
    Talk,
    always,
    asked,
    handoffs,
    model_calls,
    play,
    results_in,
    says,
)
from tests.cases.desk import QUESTION, Case, codes, desk_of, specialist

TWO = [call("ask_billing", objective="Was INV-311 paid twice?"), call("ask_shipping", objective="Where is A-7?")]


# --- exercise 1: a specialist that is down ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raises", "tells", "model"])
async def test_a_specialist_that_is_down_leaves_the_other_half(how: str) -> None:
    """Its tool raises three times: the desk gets a report that says so beside the other's, and names who failed."""
    tries: list[int] = []

    @tool(retries=2, on_error="raise" if how == "raises" else "data")
    async def get_invoice_down(number: str) -> str:
        tries.append(1)
        raise ConnectionError(f"no {number} today")

    def down(_: Any) -> str:
        tries.append(1)
        raise ConnectionError("no model today")

    if how == "model":
        billing = Agent("billing", model=Rules(otherwise=down), output=Report, retries=2)
    else:
        steps: list[Any] = [call("get_invoice_down", number="INV-311"), Report(finding="I could not look it up")]
        billing = Agent("billing", model=ScriptedModel(*steps), tools=[get_invoice_down], output=Report)
    graph = desk_of(billing, specialist("shipping"))

    played = await play(graph, Case())

    assert len(tries) == 3
    (first, failed), (second, fine) = results_in(asked(graph.nodes["desk"]).messages)
    assert failed == (how != "tells")
    assert ("failed" if how != "tells" else "partial") in first
    assert "billing" in first
    assert ("shipping found it" in second, fine) == (True, False)
    assert played.result.status == "partial"
    assert [reason.path for reason in played.result.failures] == ["desk/billing@0.0"]
    assert played.ended["desk/shipping@0.1"] == "completed"
    assert [report.status for report in played.result.context.reports] == [
        "failed" if how != "tells" else "partial",
        "done",
    ]


# --- exercise 2: one budget ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", range(1, 8))
async def test_an_empty_budget_refuses_a_delegation_before_any_model_call(limit: int) -> None:
    """Two calls for the desk, two for each specialist: whatever is left, no more is spent than there was."""
    graph = desk_of(specialist("billing"), specialist("shipping"), budget=Budget(model_calls=limit))

    played = await play(graph, Case())

    assert len(model_calls(played)) == played.result.spent.total.model_calls == min(limit, 6)
    assert (played.result.status == "completed") == (limit >= 6)
    if limit == 1:  # the budget is gone when the desk has asked: neither specialist is started
        assert played.started == ["desk"]
        assert [reason.code for reason in played.result.refused][:2] == ["model_calls", "model_calls"]


async def test_a_refused_delegation_is_told_with_its_bound_and_its_limit() -> None:
    """What the desk is told names the bound, so that it can answer with what it has."""
    desk = Supervisor("desk", model=ScriptedModel(*TWO, "Only billing was asked."))
    edges = desk.delegates(specialist("billing"), specialist("shipping"), max_hops=1)
    graph = Graph("g", START >> desk >> END, edges, context=Case, max_depth=1, budget=Budget(node_runs=2))

    played = await play(graph, Case())

    text, failed = results_in(asked(desk).messages)[-1]
    assert failed
    assert text.startswith("not executed: the bound node_runs refuses")
    assert "2" in text
    assert [(body.bound, body.limit) for body in played.of(Refused)] == [("node_runs", 2)]
    assert "shipping" not in model_calls(played)
    assert (played.result.status, played.result.output) == ("completed", "Only billing was asked.")


@pytest.mark.parametrize("share", ["pool", "equal", 0.4])
async def test_what_children_use_is_what_the_tree_uses(share: Any) -> None:
    """No child gets more than is left, the parts sum up to the whole, and what a child leaves over comes back."""
    graph = desk_of(
        specialist("billing", 3),
        specialist("shipping", 1),
        edge={"share": share},
        budget=Budget(model_calls=20, tokens=50_000),
    )

    played = await play(graph, Case())

    assert played.result.status == "completed"
    spent = played.result.spent
    for bound in ("model_calls", "tokens", "tool_calls", "node_runs"):
        assert getattr(spent.total, bound) == sum(getattr(part, bound) for part in spent.by_node.values())
    assert [spent.by_node[name].model_calls for name in ("desk", "desk/billing", "desk/shipping")] == [2, 4, 2]
    opened = [body.budget.model_calls for body in played.of(Granted) if body.open]
    assert opened == {"pool": [], "equal": [10, 9], 0.4: [7, 4]}[share]  # of 19 and of 19, of 19 and of 12
    assert len([body for body in played.of(Granted) if not body.open]) == len(opened)


async def test_what_a_child_leaves_over_comes_back() -> None:
    """Shared out to the last call, the budget still has what the specialists did not use: the desk can answer."""
    graph = desk_of(
        specialist("billing"), specialist("shipping"), edge={"share": "equal"}, budget=Budget(model_calls=7)
    )

    played = await play(graph, Case())

    assert [body.budget.model_calls for body in played.of(Granted) if body.open] == [3, 3]
    assert (played.result.status, played.result.spent.total.model_calls) == ("completed", 6)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_team_deeper_than_its_depth_is_an_error_before_it_runs(depth: int) -> None:
    """Two levels below the first: a graph that allows fewer is refused; a recursion is stopped when it runs (H5)."""
    first, second, third = says("first", "x"), says("second", "x"), says("third", "x")
    edges = [first.delegates(second, max_hops=1), second.delegates(third, max_hops=1)]
    graph = Graph("g", START >> first >> END, *edges, context=Talk, max_depth=depth)

    assert ("too-deep" in codes(graph)) == (depth < 2)


# --- exercise 3: a triage that picks wrong ---------------------------------------------------------------------------


def triage_desk(**options: Any) -> Graph[Talk]:
    """A triage that sends a question to shipping, which sends it back, for ever."""
    triage = always("triage", call("transfer_to_shipping", note="where is it?"))
    shipping = always("shipping", call("transfer_to_triage", note="not mine"))
    return Graph(
        "chat",
        START >> triage >> END,
        triage.hands_off(shipping),
        shipping.hands_off(triage),
        shipping >> END,
        context=Talk,
        **options,
    )


async def test_a_wrong_transfer_can_be_given_back() -> None:
    """Triage errs, shipping transfers back with a note, and triage picks right the second time."""
    triage = says(
        "triage", call("transfer_to_shipping", note="a parcel?"), call("transfer_to_billing", note="an invoice")
    )
    shipping = says("shipping", call("transfer_to_triage", note="this is about an invoice"))
    billing = says("billing", "it was paid twice")
    graph = Graph(
        "chat",
        START >> triage >> END,
        triage.hands_off(billing, shipping, max_hops=2),
        shipping.hands_off(triage, max_hops=1),
        billing >> END,
        shipping >> END,
        context=Talk,
        max_handoffs=3,
    )

    played = await play(graph, Talk(question=QUESTION))

    assert handoffs(played) == [("triage", "shipping"), ("shipping", "triage"), ("triage", "billing")]
    assert (played.result.status, played.result.output) == ("completed", "it was paid twice")
    assert asked(triage).messages[-1].text == '<note from="shipping">\nthis is about an invoice\n</note>'
    assert played.result.active == "billing"


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_ping_pong_is_stopped_by_its_bound_and_goes_to_a_person(limit: int) -> None:
    """Exactly so many handoffs, then the person that the graph names; what they say is the answer."""
    graph = triage_desk(max_handoffs=limit, escalate=Human("human", "Please take over."))

    waiting = await play(graph, Talk())
    played = await play(graph, Talk(), answers={"Please take over.": "I called them."})

    assert waiting.result.status == "waiting"
    assert "max_handoffs" in waiting.result.questions[0].text
    assert (played.result.status, played.result.output) == ("completed", "I called them.")
    assert len(handoffs(played)) == limit
    assert len(model_calls(played)) == limit + 1


# --- the contract ----------------------------------------------------------------------------------------------------

INVALID = {
    "no finding": '{"finding": "  "}',
    "nothing": "{}",
    "partial without a reason": '{"finding": "half", "status": "partial"}',
    "failed without a reason": '{"status": "failed"}',
    "an unknown status": '{"finding": "x", "status": "great"}',
    "an unknown field": '{"finding": "x", "mood": "good"}',
    "no JSON": '{"finding": "x"',
    "a null": '{"finding": null}',
}


@pytest.mark.parametrize("report", INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("repairs", [0, 1, 2])
async def test_an_invalid_report_is_sent_back_and_then_failed(report: str, repairs: int) -> None:
    """After so many repairs it is failed, and blames who wrote it; one that is repaired in time counts."""
    good = Report(finding="paid twice")
    fixed = Agent("billing", model=ScriptedModel(*[report] * repairs, good), output=Report, repairs=repairs)
    broken = Agent("billing", model=ScriptedModel(*[report] * (repairs + 1)), output=Report, repairs=repairs)

    fine, bad = await play(desk_of(fixed), Case()), await play(desk_of(broken), Case())

    assert fine.result.context.reports == (good,)
    assert fine.result.status == "completed"
    (failed,) = bad.result.context.reports
    assert (failed.status, failed.reason and failed.reason.code) == ("failed", "contract")
    assert failed.reason is not None
    assert failed.reason.path == "desk/billing@0.0"
    assert bad.result.status == "partial"
    assert model_calls(bad).count("billing") == repairs + 1


@pytest.mark.parametrize(
    "report",
    [
        Report(finding="paid twice", action_needed=None, evidence=("INV-311", "A-7")),
        Report(finding="half", status="partial", reason="no time"),  # type: ignore[arg-type]  # a text is taken too
        Report(status="needs_input", reason="which one?", action_needed="ask"),  # type: ignore[arg-type]
    ],
)
async def test_a_report_crosses_exactly(report: Report) -> None:
    """What the specialist wrote is what the desk reads and the context keeps, nulls too."""
    graph = desk_of(Agent("billing", model=ScriptedModel(report), output=Report))

    played = await play(graph, Case())

    assert played.result.context.reports == (report,)
    ((text, _),) = results_in(asked(graph.nodes["desk"]).messages)
    assert Report.model_validate_json(text.splitlines()[1]) == report


async def test_a_text_is_the_finding_of_a_report() -> None:
    """A specialist that answers in words has reported: the text is its finding, whole."""
    played = await play(desk_of(Agent("billing", model=ScriptedModel("It was paid twice."), output=Report)), Case())

    assert played.result.context.reports == (Report(finding="It was paid twice."),)
