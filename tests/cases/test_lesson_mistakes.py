"""The lesson on supervisors and handoffs: what crosses, what the trace holds, and the mistakes, each as a test."""

from collections.abc import Callable
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Delegate,
    Graph,
    Human,
    Join,
    State,
    Supervisor,
    fork,
    node,
    tool,
)
from graphflow.events import Boundary, EdgeTaken, FrameClosed, FrameOpened, NodeStarted
from graphflow.model.ids import path_text
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import (
    Talk,
    always,
    asked,
    model_calls,
    play,
    results_in,
    says,
    tool_runs,
)
from tests.cases.desk import QUESTION, Case, codes, desk_of, specialist, track_parcel

# --- what crosses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1, 5, 40])
async def test_the_supervisors_thread_does_not_grow_with_its_teams_steps(looks: int) -> None:
    """Question, calls, two reports, answer: with the system text six messages, however long the specialists work."""
    graph = desk_of(specialist("billing", looks), specialist("shipping", looks), last="All is well.")

    played = await play(graph, Case())

    assert [message.role for message in played.result.thread] == ["user", "assistant", "tool", "tool", "assistant"]
    request = asked(graph.nodes["desk"])
    size = sum(message.size for message in request.messages)
    still = desk_of(specialist("billing", 0), specialist("shipping", 0), last="All is well.")
    await play(still, Case())
    assert size == sum(message.size for message in asked(still.nodes["desk"]).messages)
    assert len(model_calls(played)) == 2 * looks + 4


@pytest.mark.parametrize("looks", [0, 3, 20])
async def test_a_handoff_starts_afresh_with_the_note_and_the_users_message(looks: int) -> None:
    """The target sees two messages, whose bytes do not depend on what its predecessor did."""
    triage = says(
        "triage",
        *[call("track_parcel", order="A-7")] * looks,
        call("transfer_to_billing", note="paid twice?"),
        tools=[track_parcel],
        max_turns=99,
    )
    billing = says("billing", "yes")
    graph = Graph("g", START >> triage >> END, triage.hands_off(billing, max_hops=1), billing >> END, context=Case)

    played = await play(graph, Case())

    assert [message.text for message in asked(billing).messages] == [
        QUESTION,
        '<note from="triage">\npaid twice?\n</note>',
    ]
    boundary = next(body for body in played.of(Boundary) if body.path[-1].name == "billing")
    assert boundary.bytes == len(QUESTION) + len('<note from="triage">\npaid twice?\n</note>')


async def test_a_brief_is_all_that_a_specialist_sees_and_none_of_its_parts_is_empty() -> None:
    """The model writes the objective; the boundary defaults from the callee; nothing of the desk's thread crosses."""
    graph = desk_of(specialist("billing", description="Invoices and payments."))

    await play(graph, Case())

    first = asked(graph.nodes["billing"], 0)
    (message,) = first.messages
    assert message.text.startswith('<brief from="desk">\nobjective: Your part of: ')
    assert "boundary: Only what 'billing' is for: Invoices and payments." in message.text
    assert first.system == ""


# --- the trace -------------------------------------------------------------------------------------------------------


async def test_parent_child_and_finding_are_linked_in_the_trace() -> None:
    """Every record has the run, every path leads back to one root, and each call's report stands at its path."""
    graph = desk_of(specialist("billing"), specialist("shipping"))

    played = await play(graph, Case())

    assert {event.run for event in played.events} == {played.result.run_id}
    opened = {body.path: body for body in played.of(FrameOpened)}
    closed = {body.path: body.report for body in played.of(FrameClosed)}
    assert [path_text(path) for path in opened] == ["desk/billing@0.0", "desk/shipping@0.1"]
    assert {path_text(path): report.finding for path, report in closed.items()} == {
        "desk/billing@0.0": "billing found it", "desk/shipping@0.1": "shipping found it"
    }  # fmt: skip
    started = {body.path for body in played.of(NodeStarted)}
    for event in played.events:
        for length in range(1, len(event.path) + 1):
            assert event.path[:length] in started
    hops = [
        (body.edge.source, body.edge.target, body.hop) for body in played.of(EdgeTaken) if body.edge.kind == "delegate"
    ]
    assert hops == [("desk", "billing", 1), ("desk", "shipping", 1)]


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["delegates", "hands_off", "agent"])
def test_whole_histories_are_warned_of(where: str) -> None:
    """An edge or an agent that lets everything cross is a warning."""
    a = says("a", "x", history="full" if where == "agent" else "note")
    b = says("b", "x")
    history: Any = "note" if where == "agent" else "full"
    edges = (
        [a.delegates(b, max_hops=1, history=history)]
        if where == "delegates"
        else [a.hands_off(b, max_hops=1, history=history), b >> END]
    )
    graph = Graph("g", START >> a >> END, *edges, context=Talk, max_depth=1, budget=Budget(model_calls=9, node_runs=9))

    assert "full-history" in codes(graph)


@pytest.mark.parametrize("where", ["delegates", "hands_off"])
def test_by_default_no_history_crosses(where: str) -> None:
    """Without a word about it, an edge is no reason for a warning."""
    a, b = says("a", "x"), says("b", "x")
    edges = [a.delegates(b, max_hops=1)] if where == "delegates" else [a.hands_off(b, max_hops=1), b >> END]
    graph = Graph("g", START >> a >> END, *edges, context=Talk, max_depth=1)

    assert "full-history" not in codes(graph)


def refund(invoice: str) -> str:
    """Pay back."""
    return f"paid {invoice}"


@pytest.mark.parametrize("gate", ["none", "approval", "human", "gate"])
def test_what_cannot_be_undone_needs_a_gate_before_it(gate: str) -> None:
    """An irreversible tool without one is an error; an approval, a person or a gate before it is none."""
    payer = says("payer", "x", tools=[tool(refund, effect="irreversible", approval=gate == "approval")])
    before: Any = {"human": Human("ok"), "gate": says("gate", "x", gate=True)}.get(gate, says("other", "x"))
    graph = Graph("g", START >> before >> payer >> END, context=Talk)

    assert ("irreversible-ungated" in codes(graph)) == (gate == "none")


@pytest.mark.parametrize("answer", [None, "no", "yes"])
async def test_a_person_stands_between_a_model_and_what_cannot_be_undone(answer: str | None) -> None:
    """The call waits for the person; it is made when they say yes, and only then."""
    payer = says(
        "payer",
        call("refund", invoice="INV-311"),
        "done",
        tools=[tool(refund, effect="irreversible", approval=True)],
    )
    answers = {"'payer' wants to call refund(invoice=\"INV-311\"). Approve it?": answer}

    played = await play(Graph("g", START >> payer >> END, context=Talk), Talk(), answers=answers if answer else {})

    assert tool_runs(played) == (["refund"] if answer == "yes" else [])
    assert played.result.status == ("completed" if answer else "waiting")


def test_a_run_without_a_budget_is_warned_of() -> None:
    """No global budget is a warning; any bound on the calls takes it away."""
    agent = says("a", "x")

    assert "no-budget" in codes(Graph("g", START >> agent >> END, context=Talk))
    assert "no-budget" not in codes(Graph("g", START >> agent >> END, context=Talk, budget=Budget(model_calls=3)))


async def test_dependent_tasks_are_declared_and_run_one_after_the_other() -> None:
    """A call that needs another's report starts when that is there, gets it, and fails if that failed."""
    order: list[str] = []

    def notes(name: str) -> Callable[[Any], str]:
        def respond(request: Any) -> str:
            order.append(name)
            return f"{name} saw {sum('a saw 0' in message.text for message in request.messages)}"

        return respond

    a, b = says("a", notes("a")), says("b", notes("b"))

    async def lead(state: State[Any]) -> Any:
        if state.turn == 0:
            return Delegate(Call("b", "second", needs=("first",)), Call("a", "first", id="first"))
        return " ".join(value.finding for value in state.values)

    boss = node(name="boss")(lead)
    graph = Graph("g", START >> boss >> END, boss.delegates(a, b, max_hops=1), context=Talk)

    played = await play(graph, Talk())

    assert order == ["a", "b"]
    assert played.result.output == "b saw 1 a saw 0"


def test_a_branch_that_reads_what_its_sibling_writes_is_an_error() -> None:
    """Agents that declare what they read and write cannot depend on each other in one fork."""
    a, b = says("a", "x", writes=["reports"]), says("b", "x", reads=["reports"])

    graph = Graph("g", START >> fork(a, b) >> Join("meet") >> END, context=Case)

    assert any(problem.severity == "error" for problem in graph.check())


# --- too many at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [3, 50])
async def test_a_model_that_asks_for_fifty_gets_what_its_bounds_allow(wanted: int) -> None:
    """Over-bound calls of one turn are refused one by one in call order; the others are answered."""
    worker = always("worker", "found it")
    desk = Supervisor(
        "desk", model=ScriptedModel([call("ask_worker", objective=f"{n}") for n in range(wanted)], "done")
    )
    graph = Graph("g", START >> desk >> END, desk.delegates(worker, max_hops=5), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    assert [failed for _, failed in results_in(asked(desk).messages)] == [False] * min(wanted, 5) + [True] * max(
        wanted - 5, 0
    )
    assert model_calls(played).count("worker") == min(wanted, 5)
    assert played.refused == ["max_hops"] * max(wanted - 5, 0)
    assert played.result.status == "completed"
