"""A company of supervisors, three levels deep: agents, functions and graphs in one team, under one budget.

    graphflow run examples/company.py "QUESTION"        # or: python examples/company.py "QUESTION"
    graphflow draw examples/company.py -o company.svg

`ceo` delegates to a graph whose `head` delegates to a graph whose `desk` delegates to agents: depth 3, and a bound on
it. Beside them work a function and a graph of functions with an agent at its end. Who asks does not see which is which.
One rule-based model serves them all: a supervisor gives each sentence to the members of its team whose description
has a word of it, and an agent looks up the number it is asked about. It needs no key and no network.
"""

import re
import sys
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
    node,
    run_sync,
    tool,
)
from graphflow.events import Event
from graphflow.testing import RuleModel, call
from graphflow.visualize import run_tree

QUESTION: Final = "Order A-7 is late. INV-311 was paid twice. Do such complaints grow? Can we afford the refund?"
COMPLAINTS: Final = (("May", "late parcel"), ("June", "late parcel"), ("June", "paid twice"), ("June", "late parcel"))
CASH, REFUND = 1_200.0, 49.0


class Task(Context):
    """What somebody is asked; in a graph that is delegated to it is the objective of the brief."""

    question: str = QUESTION


# --- the model that all of them share ------------------------------------------------------------------------


def think(request: ModelRequest) -> list[ToolCall] | ToolCall | str:
    """Say what a model would: split the task or look the number up, then answer from what came back."""
    came = [message for message in request.messages if message.role == "tool"]
    if came:
        said = [re.sub(r"</?report[^>]*>", "", message.text).strip() for message in came if not message.failed]
        found = [Report.model_validate_json(one).finding if one.startswith("{") else one for one in said]
        return "; ".join(found) or "nobody could say"
    task = "\n".join(message.text for message in request.messages)
    team = [spec for spec in request.tools if spec.name.startswith("ask_")]
    if team:
        parts = {spec.name: sentences_about(spec.description, task) for spec in team}
        return [call(name, objective=part) for name, part in parts.items() if part] or "nobody here knows about this"
    if not request.tools:
        return "; ".join(re.findall(r"\w[\w ,]*\d[\w ,]*", re.sub(r"<[^>]*>", "", task)))
    number = re.search(r"\b(?:A|INV)-\d+", task)
    return call(request.tools[0].name, number=number[0]) if number else "no number was given"


def sentences_about(description: str, task: str) -> str:
    """Return the sentences of a task that have a word of a description in them, longer than three letters."""
    words = set(re.findall(r"\w{4,}", description.casefold()))
    sentences = re.findall(r"[A-Z][^.?!]*[.?!]", task)
    return " ".join(one for one in sentences if words & set(re.findall(r"\w{4,}", one.casefold())))


MODEL: Final = RuleModel(otherwise=think)


# --- service: a supervisor over a graph, which has a supervisor over agents ----------------------------------


@tool(effect="read")
def get_invoice(number: str) -> str:
    """Look an invoice up."""
    return f"{number} was charged twice, refund {REFUND:.2f}"


@tool(effect="read")
def track_parcel(number: str) -> str:
    """Say where the parcel of an order is."""
    return f"the parcel of {number} is in transit, ETA 2026-09-30"


@node(description="Whether a replacement for an order is in stock")
def stock(state: State[Task]) -> str:
    """Look into the stock; a function works in a team like an agent."""
    asked = state.brief.objective if state.brief else state.context.question
    return f"1 replacement is in stock ({', '.join(re.findall(r'A-[0-9]+', asked))})"


def agent(name: str, lookup: object) -> None: ...


billing = Agent("billing", model=MODEL, tools=[get_invoice], instructions="What was paid, by invoice.", max_turns=2)
shipping = Agent("shipping", model=MODEL, tools=[track_parcel], instructions="Where an order is.", max_turns=2)
