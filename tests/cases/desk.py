"""The support desk of the lesson: a supervisor with specialists for invoices and for parcels."""

from typing import Annotated, Any

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    Report,
    Supervisor,
    append,
    tool,
)
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import (
    results_in,
)

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
    return Agent(
        name, model=ScriptedModel(*[step] * looks, finding), tools=[used], output=Report, max_turns=99, **options
    )


def codes(graph: Graph[Any]) -> list[str]:
    """The codes of what is wrong with a graph."""
    return [problem.code for problem in graph.check()]
