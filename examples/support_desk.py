"""A support desk, twice: a supervisor that delegates, and a chat that hands over.

    graphflow run examples/support_desk.py              # or: python examples/support_desk.py "QUESTION"
    graphflow run examples/support_desk.py:chat "I was charged twice on INV-311."

In the first, `desk` asks billing and shipping at once, keeps control, and answers once from their reports. In the
second, `triage` gives control away: whoever gets it answers the customer, and after two handoffs a person does.
The models are rules that read their requests, so this needs no key and no network. A real model is a `ModelClient`.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Human,
    ModelRequest,
    Reason,
    Report,
    Supervisor,
    Tool,
    ToolCall,
    append,
    run_sync,
    tool,
)
from graphflow.testing import RuleModel, call

QUESTION: Final = "I was charged twice on INV-311 and where is my order A-7?"
INVOICE, ORDER = r"\bINV-\d+", r"\bA-\d+"
INVOICES: Final = {"INV-311": (49.0, "paid twice"), "INV-312": (12.5, "paid once")}
PARCELS: Final = {"A-7": ("in transit", "2026-09-30")}
BUDGET: Final = Budget(model_calls=12, tokens=20_000, usd="0.10", seconds=60)


class Case(Context):
    """What a desk knows; the first field is the command line's INPUT."""

    question: str = QUESTION
    reports: Annotated[tuple[Report, ...], append] = ()


@tool(effect="read", retries=2)
def get_invoice(number: str) -> dict[str, object]:
    """Look an invoice up.

    Args:
        number: such as INV-311.
    """
    amount, note = INVOICES.get(number, (0.0, "not found"))
    return {"amount": amount, "note": note}


@tool(effect="read")
def track_parcel(order: str) -> dict[str, object]:
    """Say where the parcel of an order is.

    Args:
        order: such as A-7.
    """
    status, eta = PARCELS.get(order, ("not found", "unknown"))
    return {"status": status, "eta": eta}


# --- the two desks -------------------------------------------------------------------------------------------


def support(lookup: Tool = get_invoice, looks: int = 1) -> Graph[Case]:
    """Return the desk that delegates: a supervisor with two specialists, who report to it."""
    desk = Supervisor(
        "desk",
        model=RuleModel(otherwise=desk_says),
        instructions="Split the question, delegate, answer once.",
        max_turns=3,
    )
    team = specialists(lookup, looks, output=Report)
    return Graph(
        "support",
        START >> desk >> END,
        desk.delegates(*team, max_hops=1, into="reports"),
        context=Case,
        budget=BUDGET,
        max_depth=1,
    )


def desk_that_hands_over(max_handoffs: int = 2) -> Graph[Case]:
    """Return the desk that hands over: a triage, two specialists, and a person when it has gone on for too long."""
    triage = Agent(
        "triage",
        model=RuleModel(otherwise=triage_says),
        instructions="Hand the conversation over to who can answer it.",
        max_turns=2,
    )
    billing, shipping = specialists(get_invoice, 1, output=None)
    return Graph(
        "chat",
        START >> triage >> END,
        triage.hands_off(billing, shipping, max_hops=2),
        billing.hands_off(triage, max_hops=1),
        billing >> END,
        shipping >> END,
        context=Case,
        budget=BUDGET,
        max_handoffs=max_handoffs,
        escalate=Human("person", "The agents could not settle this. What do you answer?", schema=str),
    )


def specialists(lookup: Tool, looks: int, output: type[Report] | None) -> tuple[Agent, Agent]:
    """Return billing and shipping; without `output` they answer in words, as a customer wants it."""
    billing = Agent(
        "billing",
        model=RuleModel(otherwise=billing_that_looks(looks)),
        instructions="What is wrong with an invoice, a payment or a refund. Look it up before you answer.",
        tools=[lookup],
        output=output,
        max_turns=looks + 1,
        max_tool_calls=max(looks, 3),
    )
    shipping = Agent(
        "shipping",
        model=RuleModel(otherwise=shipping_says),
        instructions="Where an order or a parcel is, and when it will come. Track it before you answer.",
        tools=[track_parcel],
        output=output,
        max_turns=2,
    )
    return billing, shipping


# --- the models: each reads its request, and says what a model would -----------------------------------------


class Came(NamedTuple):
    """What came of one call: the name of its tool, and what the model was told."""

    tool: str
    text: str
    failed: bool


def came_back(request: ModelRequest) -> list[Came]:
    """Return what came of the calls that stand in a request, in order."""
    names = {made.id: made.name for message in request.messages for made in message.calls}
    return [Came(names[one.answers], one.text, one.failed) for one in request.messages if one.role == "tool"]


def named_in(request: ModelRequest, pattern: str) -> str:
    """Return the first text of some form that the user, the brief or the note says; "" if none does."""
    said = "\n".join(message.text for message in request.messages if message.role == "user")
    found = re.search(pattern, said)
    return found[0] if found else ""


def desk_says(request: ModelRequest) -> list[ToolCall] | str:
    """Ask who knows about each number in the question; then answer from what came back."""
    if reports := came_back(request):
        return " ".join(map(told, reports))
    calls: list[ToolCall] = []
    if invoice := named_in(request, INVOICE):
        calls.append(call("ask_billing", objective=f"What is wrong with {invoice}, and what should be done?"))
    if order := named_in(request, ORDER):
        calls.append(call("ask_shipping", objective=f"Where is order {order}?"))
    return calls or "Which invoice or which order is it about?"


def told(came: Came) -> str:
    """Say what a specialist reported; where there is no finding, say that."""
    who = came.tool.removeprefix("ask_").capitalize()
    if came.failed:
        return f"{who} {'could not be asked' if came.text.startswith('not executed') else 'is unavailable'}."
    report = Report.model_validate_json(came.text.split("\n")[1])  # the line inside <report from="...">
    return f"{who}: {report.finding}{f' (next: {report.action_needed})' if report.action_needed else ''}."


def triage_says(request: ModelRequest) -> ToolCall | str:
    """Hand over by the first word that fits, which can be wrong; a note of who gave it back is worth more."""
    order, bill = named_in(request, ORDER), named_in(request, rf"{INVOICE}|charged|refund")
    if bill and not (order and named_in(request, "<note from")):
        return call("transfer_to_billing", note=f"It seems to be about a bill: {bill}.")
    if order:
        return call("transfer_to_shipping", note=f"It is about order {order}.")
    return "Which invoice or which order is it about?"


def billing_that_looks(times: int) -> Callable[[ModelRequest], ToolCall | Report | str]:
    """Return what billing says: it looks an invoice up so many times before it believes what it sees."""

    def says(request: ModelRequest) -> ToolCall | Report | str:
        number, seen = named_in(request, INVOICE), came_back(request)
        if not number:
            return call("transfer_to_triage", note="There is no invoice in this.")
        if len(seen) < times:
            return call("get_invoice", number=number)
        if seen[-1].failed:
            return Report.failed(Reason(code="reported", text="the ledger cannot be reached"))
        invoice = json.loads(seen[-1].text)
        refund = f"refund {invoice['amount']:.2f}" if invoice["note"] == "paid twice" else None
        return as_asked(request, Report(finding=f"{number} was {invoice['note']}", action_needed=refund))

    return says


def shipping_says(request: ModelRequest) -> ToolCall | Report | str:
    """Track the parcel, then say where it is."""
    seen = came_back(request)
    if not seen:
        return call("track_parcel", order=named_in(request, ORDER))
    parcel = json.loads(seen[-1].text)
    return as_asked(request, Report(finding=f"parcel {parcel['status']}, ETA {parcel['eta']}"))


def as_asked(request: ModelRequest, report: Report) -> Report | str:
    """Answer with a report where the request has the schema of one, else in words."""
    if request.schema_json:
        return report
    words = f"{report.finding[0].upper()}{report.finding[1:]}."
    return f"{words} We will {report.action_needed}." if report.action_needed else words


graph = support()
chat = desk_that_hands_over()


if __name__ == "__main__":
    print(run_sync(graph, Case(question=" ".join(sys.argv[1:]) or QUESTION)).output)
