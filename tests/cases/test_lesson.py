"""The lesson on supervisors and handoffs: its exercises, its contract, and its mistakes, each as a test."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Report,
    State,
    Supervisor,
    ToolStep,
    append,
    fork,
    node,
    tool,
)
from graphflow.events import Boundary, EdgeTaken, EffectStarted, FrameClosed, FrameOpened, Granted, NodeStarted, Refused
from graphflow.model.ids import names, path_text
from graphflow.testing import RuleModel, ScriptedModel, call
from tests.cases.agents import Rules, Talk, always, asked, handoffs, hold_requests, model_calls, play, requests_of, results_in, says
from tests.cases.helpers import Played

QUESTION = "I was charged twice on INV-311 and where is my order A-7?"


class Case(Context):
    """A question, and the reports of those who were asked about it."""

    question: str = QUESTION
    reports: Annotated[tuple[Report, ...], append] = ()


@tool(effect="read")
def get_invoice(number: str) -> dict[str, Any]:
    """Look an invoice up."""
    return {"amount": 49.0, "note": f"{number} was paid twice"}


@tool(effect="read")
def track_parcel(order: str) -> str:
    """Look where a parcel is."""
    return f"{order}: in transit, ETA 2026-09-30"


TWO = [call("ask_billing", objective="Was INV-311 paid twice?"), call("ask_shipping", objective="Where is A-7?")]


def desk_of(*team: Agent, last: Any = None, **options: Any) -> Graph[Case]:
    """A desk that asks its whole team at once, and answers with what came back."""
    asks = [call(f"ask_{agent.name}", objective=f"Your part of: {QUESTION}") for agent in team]
    desk = Supervisor("desk", model=ScriptedModel(asks, last or _sums_up))
    return Graph(
        "support",
        START >> desk >> END,
        desk.delegates(*team, max_hops=2, into="reports", **options.pop("edge", {})),
        context=Case,
        max_depth=1,
        **options,
    )


def _sums_up(request: Any) -> str:
    return " | ".join(text.splitlines()[1] for text, _ in results_in(request.messages) if "\n" in text)


def specialist(name: str, looks: int = 1, *, report: Any = None, **options: Any) -> Agent:
    """A specialist that looks some times and then reports."""
    used = get_invoice if name == "billing" else track_parcel
    step = call("get_invoice", number="INV-311") if name == "billing" else call("track_parcel", order="A-7")
    finding = report or Report(finding=f"{name} found it", evidence=("INV-311",))
    return Agent(name, model=ScriptedModel(*[step] * looks, finding), tools=[used], output=Report, max_turns=99, **options)


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
        steps = [call("get_invoice_down", number="INV-311"), Report(finding="I could not look it up")]
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
    assert [report.status for report in played.result.context.reports] == ["failed" if how != "tells" else "partial", "done"]


# --- exercise 2: one budget ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", range(1, 8))
async def test_an_empty_budget_refuses_a_delegation_before_any_model_call(limit: int) -> None:
    """The desk needs one call, each specialist two, the answer one: whatever is left, no more is spent than there was."""
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
        specialist("billing", 3), specialist("shipping", 1), edge={"share": share}, budget=Budget(model_calls=20, tokens=50_000)
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
    graph = desk_of(specialist("billing"), specialist("shipping"), edge={"share": "equal"}, budget=Budget(model_calls=7))

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
    triage = says("triage", call("transfer_to_shipping", note="a parcel?"), call("transfer_to_billing", note="an invoice"))
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


# --- what crosses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1, 5, 40])
async def test_the_supervisors_thread_does_not_grow_with_its_teams_steps(looks: int) -> None:
    """Question, two calls, two reports, answer: with the system text six messages, however long the specialists work."""
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
    triage = says("triage", *[call("track_parcel", order="A-7")] * looks, call("transfer_to_billing", note="paid twice?"), tools=[track_parcel], max_turns=99)
    billing = says("billing", "yes")
    graph = Graph("g", START >> triage >> END, triage.hands_off(billing, max_hops=1), billing >> END, context=Case)

    played = await play(graph, Case())

    assert [message.text for message in asked(billing).messages] == [QUESTION, '<note from="triage">\npaid twice?\n</note>']
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
    hops = [(body.edge.source, body.edge.target, body.hop) for body in played.of(EdgeTaken) if body.edge.kind == "delegate"]
    assert hops == [("desk", "billing", 1), ("desk", "shipping", 1)]


# --- mistakes --------------------------------------------------------------------------------------------------------


def codes(graph: Graph[Any]) -> list[str]:
    """The codes of what is wrong with a graph."""
    return [problem.code for problem in graph.check()]


@pytest.mark.parametrize("where", ["delegates", "hands_off", "agent"])
def test_whole_histories_are_warned_of(where: str) -> None:
    """An edge or an agent that lets everything cross is a warning."""
    a = says("a", "x", history="full" if where == "agent" else "note")
    b = says("b", "x")
    history: Any = "note" if where == "agent" else "full"
    edges = [a.delegates(b, max_hops=1, history=history)] if where == "delegates" else [a.hands_off(b, max_hops=1, history=history), b >> END]
    graph = Graph("g", START >> a >> END, *edges, context=Talk, max_depth=1, budget=Budget(model_calls=9, node_runs=9))

    assert "full-history" in codes(graph)


@pytest.mark.parametrize("where", ["delegates", "hands_off"])
def test_by_default_no_history_crosses(where: str) -> None:
    """Without a word about it, an edge is no reason for a warning."""
    a, b = says("a", "x"), says("b", "x")
    edges = [a.delegates(b, max_hops=1)] if where == "delegates" else [a.hands_off(b, max_hops=1), b >> END]
    graph = Graph("g", START >> a >> END, *edges, context=Talk, max_depth=1)

    assert "full-history" not in codes(graph)


@pytest.mark.parametrize("gate", ["none", "approval", "human", "gate"])
def test_what_cannot_be_undone_needs_a_gate_before_it(gate: str) -> None:
    """An irreversible tool without one is an error; an approval, a person or a gate before it is none."""

    def refund(invoice: str) -> str:
        return f"paid {invoice}"

    payer = says("payer", "x", tools=[tool(refund, effect="irreversible", approval=gate == "approval")])
    before: Any = {"human": Human("ok"), "gate": says("gate", "x", gate=True)}.get(gate, says("other", "x"))
    graph = Graph("g", START >> before >> payer >> END, context=Talk)

    assert ("irreversible-ungated" in codes(graph)) == (gate == "none")


async def test_a_person_stands_between_a_model_and_what_cannot_be_undone() -> None:
    """The call waits for the person; rejected it is not made."""
    paid: list[str] = []

    @tool(effect="irreversible", approval=True)
    def refund(invoice: str) -> str:
        paid.append(invoice)
        return f"paid {invoice}"

    agent = says("payer", call("refund", invoice="INV-311"), "done", tools=[refund])
    graph = Graph("g", START >> agent >> END, context=Talk)

    waiting = await play(graph, Talk())

    assert (waiting.result.status, paid) == ("waiting", [])


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
            return f"{name} saw {sum('found by a' in message.text for message in request.messages)}"

        return respond

    a = says("a", lambda request: order.append("a") or "found by a")
    b = says("b", notes("b"))

    async def lead(state: State[Any]) -> Any:
        if state.turn == 0:
            return Delegate(Call("b", "second", needs=("first",)), Call("a", "first", id="first"))
        return " ".join(value.finding for value in state.values)

    boss = node(name="boss")(lead)
    graph = Graph("g", START >> boss >> END, boss.delegates(a, b, max_hops=1), context=Talk)

    played = await play(graph, Talk())

    assert order == ["a", "b"]
    assert played.result.output == "b saw 1 found by a"


def test_a_branch_that_reads_what_its_sibling_writes_is_an_error() -> None:
    """Agents that declare what they read and write cannot depend on each other in one fork."""
    a, b = says("a", "x", writes=["reports"]), says("b", "x", reads=["reports"])

    @node
    async def meet(_: State[Any]) -> str:
        return "met"

    graph = Graph("g", START >> fork(a, b) >> meet >> END, context=Case)

    assert any(problem.severity == "error" for problem in graph.check())


# --- too many at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [3, 50])
async def test_a_model_that_asks_for_fifty_gets_what_its_bounds_allow(wanted: int) -> None:
    """Over-bound calls of one turn are refused one by one in call order; the others are answered."""
    worker = always("worker", "found it")
    desk = Supervisor("desk", model=ScriptedModel([call("ask_worker", objective=f"{n}") for n in range(wanted)], "done"))
    graph = Graph("g", START >> desk >> END, desk.delegates(worker, max_hops=5), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    assert [failed for _, failed in results_in(asked(desk).messages)] == [False] * min(wanted, 5) + [True] * max(wanted - 5, 0)
    assert model_calls(played).count("worker") == min(wanted, 5)
    assert played.refused == ["max_hops"] * max(wanted - 5, 0)
    assert played.result.status == "completed"
