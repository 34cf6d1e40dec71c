"""A company of supervisors, three levels deep: agents, functions and graphs in its teams, and one budget over all.

    graphflow run examples/company.py                   # or: python examples/company.py "QUESTION"
    graphflow draw examples/company.py -o company.svg

`ceo` delegates to a graph whose `head` delegates to a graph whose `desk` delegates to agents: depth 3, and a bound on
it. Beside them work two functions, and a graph of functions with an agent at its end. Who asks does not see which is
which. One model of rules serves all of them: a supervisor gives each sentence to those of its team whose description
has a word of it, an agent looks up what it is asked about. It needs no key and no network.
"""

import re
import sys
from collections import Counter
from typing import Final

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelRequest,
    Report,
    State,
    Supervisor,
    ToolCall,
    Update,
    node,
    run_sync,
    tool,
)
from graphflow.events import Event
from graphflow.testing import RuleModel, call
from graphflow.visualize import run_tree

QUESTION: Final = "Order A-7 is late. INV-311 was paid twice. Do such complaints grow? Can we afford the refund?"
COMPLAINTS: Final = (("May", "late"), ("June", "late"), ("June", "paid twice"), ("June", "late"))
REFUND, CASH = 49.0, 1_200.0


class Task(Context):
    """What somebody is asked; a graph that is delegated to finds the objective of its brief here."""

    question: str = QUESTION


class Numbers(Context):
    """What `insight` works with: its context is its own, and ends with it."""

    question: str
    complaints: tuple[tuple[str, str], ...] = ()


# --- the model -----------------------------------------------------------------------------------------------


def think(request: ModelRequest) -> list[ToolCall] | ToolCall | str:
    """Say what a model would: split the task, or look its number up; then answer from what came back."""
    task, *arrived = [inside(message.text) for message in request.messages if message.role == "user"]
    results = [message for message in request.messages if message.role == "tool"]
    if results or not request.tools:
        arrived += [inside(message.text) for message in results if not message.failed]
        return "; ".join(arrived) or "nobody could say"
    parts = {spec.name: matching(task, spec.description) for spec in request.tools if spec.name.startswith("ask_")}
    if parts:
        return [call(name, objective=part) for name, part in parts.items() if part] or "nobody here knows about this"
    return call(request.tools[0].name, number=first_number(task))


def inside(text: str) -> str:
    """Return what a text from somebody else says: the objective of a brief, the finding of a report, a message."""
    found = re.fullmatch(r"<(\w+) from=.*?>\n(.*)\n</\1>", text, re.DOTALL)
    kind, said = found.groups() if found else ("", text)
    if kind == "brief":
        return said.partition("\n")[0].removeprefix("objective: ")
    return Report.model_validate_json(said).finding if kind == "report" else said


def matching(task: str, description: str) -> str:
    """Return the sentences of a task that share a word of four letters or more with a description."""
    words = set(re.findall(r"\w{4,}", description.casefold()))
    sentences = re.split(r"(?<=[.?!])\s+", task)
    return " ".join(each for each in sentences if words & set(re.findall(r"\w{4,}", each.casefold())))


def first_number(text: str) -> str:
    """Return the first number of an order or an invoice in a text."""
    found = re.search(r"\b[A-Z]+-\d+", text)
    return found[0] if found else ""


MODEL: Final = RuleModel(otherwise=think)


# --- service: a supervisor over a graph, in which a supervisor is over agents --------------------------------


@tool(effect="read")
def get_invoice(number: str) -> str:
    """Look an invoice up."""
    return f"{number} was charged twice, refund {REFUND:.2f}"


@tool(effect="read")
def track_parcel(number: str) -> str:
    """Say where the parcel of an order is."""
    return f"the parcel of {number} is in transit, ETA 2026-09-30"


@node(description="Whether an order can be sent again")
def stock(state: State[Task]) -> str:
    """Look into the stock: a function works in a team as an agent does."""
    objective = state.brief.objective if state.brief else ""
    return f"{first_number(objective)} can be sent again, 3 are in stock"


billing = Agent("billing", model=MODEL, tools=[get_invoice], instructions="What was paid, by invoice.", max_turns=2)
shipping = Agent("shipping", model=MODEL, tools=[track_parcel], instructions="Where an order is.", max_turns=2)
desk = Supervisor("desk", model=MODEL, max_turns=2)
support = Graph(
    "support",
    START >> desk >> END,
    desk.delegates(billing, shipping, max_hops=1),
    context=Task,
    description="What happened to an order, and what was paid",
)
head = Supervisor("head", model=MODEL, max_turns=2)
service = Graph(
    "service",
    START >> head >> END,
    head.delegates(support, stock, max_hops=1),
    context=Task,
    description="One customer: the order, and what was paid",
)


# --- insight: functions side by side, then an agent ----------------------------------------------------------


@node
def read(state: State[Numbers]) -> Update:
    """Read the complaints."""
    return Update(complaints=COMPLAINTS)


@node
def by_month(state: State[Numbers]) -> str:
    """Count the complaints of each month."""
    months = Counter(month for month, _ in state.context.complaints)
    return "complaints: " + ", ".join(f"{count} in {month}" for month, count in months.items())


@node
def by_cause(state: State[Numbers]) -> str:
    """Find out what most of them are about."""
    cause, count = Counter(cause for _, cause in state.context.complaints).most_common(1)[0]
    return f"{count} of {len(state.context.complaints)} because of {cause!r}"


analyst = Agent("analyst", model=MODEL, instructions="Say what the numbers mean.", max_turns=1)
insight = Graph(
    "insight",
    START >> read >> (by_month, by_cause) >> analyst >> END,
    context=Numbers,
    description="How many complaints there are, and whether they grow",
)


# --- the company ---------------------------------------------------------------------------------------------


@node(description="What we can afford")
def cash(state: State[Task]) -> str:
    """Compare what is wanted with what is there."""
    return f"{REFUND:.2f} is {'well within' if REFUND < CASH / 10 else 'too much of'} {CASH:,.2f}"


ceo = Supervisor("ceo", model=MODEL, max_turns=2)
graph = Graph(
    "company",
    START >> ceo >> END,
    ceo.delegates(service, insight, cash, max_hops=1),
    context=Task,
    budget=Budget(node_runs=15, model_calls=15, tokens=30_000, usd="0.25", seconds=120),
    max_depth=3,
)


if __name__ == "__main__":
    events: list[Event] = []
    result = run_sync(graph, Task(question=" ".join(sys.argv[1:]) or QUESTION), listeners=[events.append])
    print(result.output)
    print()
    print(run_tree(events))
