"""Conversations of agents of every kind, each a graph and what its models say: whoever asks, however it is asked."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    Join,
    ModelClient,
    Report,
    Supervisor,
    ToolFailure,
    fork,
    last,
    on,
    tool,
)
from graphflow.nodes.agent import DecisionMode
from tests.model_replies import Calls, Reply, Say
from tests.providers.helpers import Case

Make = Callable[[ModelClient, DecisionMode], Graph[Any]]


@dataclass(frozen=True)
class Conversation:
    """A graph, what its models say, and what comes out.

    Attributes:
        make: makes the graph for a model and a decision mode.
        says: what the model says to each agent, in turn.
        output: what comes out.
        status: how it ends.
    """

    make: Make
    says: Mapping[str, Sequence[Reply]]
    output: object
    status: str = "completed"


class Verdict(BaseModel):
    """What a judge says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fits: bool
    grade: Literal["low", "high"] = "low"


@tool
def track(order: str, days: int = 3) -> str:
    """Say where an order is.

    Args:
        order: such as A-7.
        days: how far to look back.
    """
    return f"{order} in transit"


@tool
def invoice(number: str) -> str:
    """Look an invoice up."""
    if number == "INV-0":
        msg = "no such invoice"
        raise LookupError(msg)
    return f"{number} is paid"


@tool
def declared(number: str) -> ToolFailure:
    """Fail as data."""
    return ToolFailure(f"{number} is locked")


@tool(approval=True)
def refund(number: str, amount: float) -> str:
    """Pay back."""
    return f"{amount} of {number} paid back"


def agent(name: str, model: ModelClient, decision: DecisionMode, **options: Any) -> Agent:
    """An agent whose instructions say who it is."""
    return Agent(name, model=model, decision=decision, instructions=f"You are {name}.", **options)


def one(**options: Any) -> Make:
    """A graph of one agent."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        solo = agent("solo", model, decision, **options)
        return Graph("one", START >> solo >> END, context=Case, budget=Budget(model_calls=20))

    return make


def chat(history: Any) -> Make:
    """Triage hands over to billing, which hands back."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        triage = agent("triage", model, decision, tools=[track])
        billing = agent("billing", model, decision, tools=[invoice])
        return Graph(
            "chat",
            START >> triage,
            triage.hands_off(billing, max_hops=2, history=history),
            billing.hands_off(triage, max_hops=1, history=history),
            triage >> END,
            billing >> END,
            context=Case,
            max_handoffs=3,
            budget=Budget(model_calls=20),
        )

    return make


CHAT: Final[Mapping[str, Sequence[Reply]]] = {
    "triage": [
        Calls(("track", {"order": "A-7"}), text="I look."),
        Calls(("transfer_to_billing", {"note": "INV-1?"}), ("track", {"order": "B-8"})),
        Calls(("transfer_to_billing", {"note": "again"}), ("transfer_to_billing", {"note": "twice"})),
    ],
    "billing": [
        Calls(("invoice", {"number": "INV-1"})),
        Calls(("transfer_to_triage", {"note": "it is paid"})),
        Say("Paid."),
    ],
}


def desk(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
    """A supervisor with two specialists, one of which owes a type of its own."""
    boss = Supervisor("desk", model=model, decision=decision, instructions="You are desk.")
    billing = agent("billing", model, decision, tools=[invoice], output=Report)
    shipping = agent("shipping", model, decision, tools=[track])
    return Graph(
        "desk",
        START >> boss,
        boss.delegates(billing, shipping, max_hops=3),
        boss >> END,
        context=Case,
        max_depth=1,
        budget=Budget(model_calls=30),
    )


DESK: Final[Mapping[str, Sequence[Reply]]] = {
    "desk": [
        Calls(("ask_billing", {"objective": "INV-1?"}), ("ask_shipping", {"objective": "A-7?"})),
        Calls(("ask_billing", {"objective": "INV-2?"}), ("ask_billing", {"objective": 7})),
        Say("Paid, and on its way."),
    ],
    "billing": [
        Calls(("invoice", {"number": "INV-1"})),
        Say(json.dumps({"finding": "paid", "evidence": ["INV-1"]})),
        Say(json.dumps({"finding": "unknown", "status": "partial", "reason": "no such number"})),
    ],
    "shipping": [Calls(("track", {"order": "A-7"}), ("track", {"order": "A-8"})), Say("in transit")],
}


def company(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
    """A supervisor whose team is a supervisor with a team, and a graph inside that graph."""
    ceo = Supervisor("ceo", model=model, decision=decision, instructions="You are ceo.")
    inner = desk(model, decision).named("support")
    return Graph(
        "company",
        START >> ceo,
        ceo.delegates(inner, max_hops=2),
        ceo >> END,
        context=Case,
        max_depth=3,
        budget=Budget(model_calls=40),
    )


def loop(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
    """A writer that is entered again until a judge is content."""
    writer = agent("writer", model, decision, history="full", tools=[track])
    judge = agent("judge", model, decision, output=Verdict, history=last(4))
    return Graph(
        "loop",
        START >> writer >> judge,
        judge.choose(on(Verdict(fits=False), writer, max_hops=2), default=END),
        context=Case,
        budget=Budget(model_calls=20),
    )


class Notes(Context):
    """What two who work at once found."""

    question: str = "Where is A-7?"
    left: str = ""
    right: str = ""


def both(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
    """Two agents at once, and one who reads what both found."""
    left = agent("left", model, decision, tools=[track], into="left")
    right = agent("right", model, decision, tools=[invoice], into="right")
    ends = agent("ends", model, decision)
    return Graph(
        "both",
        START >> fork(left, right) >> Join("join") >> ends >> END,
        context=Notes,
        budget=Budget(model_calls=20),
    )


CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    "words": Conversation(one(), {"solo": [Say("Hello.")]}, "Hello."),
    "parallel tools": Conversation(
        one(tools=[track, invoice]),
        {
            "solo": [
                Calls(("track", {"order": "A-7"}), ("invoice", {"number": "INV-1"}), ("track", {"order": "B-8"})),
                Say("Done."),
            ]
        },
        "Done.",
    ),
    "failures are data": Conversation(
        one(tools=[track, invoice, declared]),
        {
            "solo": [
                Calls(("invoice", {"number": "INV-0"}), ("declared", {"number": "INV-9"}), ("trakc", {"order": "A-7"})),
                Calls(("track", {}), ("track", {"order": 7})),
                Calls(("track", {"order": "A-7"}), ("invoice", {"number": "INV-1"})),
                Say("Some of it failed."),
            ]
        },
        "Some of it failed.",
    ),
    "malformed arguments": Conversation(
        one(tools=[track]),
        {
            "solo": [
                Calls(("track", '{"order": "A-7"')),
                Calls(("track", '["A-7"]')),
                Calls(("track", '"A-7"'), ("track", "null")),
                Calls(("track", {"order": "A-7"})),
                Say("There."),
            ]
        },
        "There.",
    ),
    "chat, full": Conversation(chat("full"), CHAT, "Paid."),
    "chat, last": Conversation(chat(last(2)), CHAT, "Paid."),
    "chat, note": Conversation(chat("note"), CHAT, "Paid."),
    "desk": Conversation(desk, DESK, "Paid, and on its way."),
    "company": Conversation(
        company,
        {"ceo": [Calls(("ask_support", {"objective": "INV-1 and A-7?"})), Say("All well.")], **DESK},
        "All well.",
    ),
    "loop": Conversation(
        loop,
        {
            "writer": [Calls(("track", {"order": "A-7"})), Say("Draft."), Say("Better.")],
            "judge": [Say('{"fits": false}'), Say('{"fits": true, "grade": "high"}')],
        },
        Verdict(fits=True, grade="high"),
    ),
    "both": Conversation(
        both,
        {
            "left": [Calls(("track", {"order": "A-7"})), Say("It comes.")],
            "right": [Calls(("invoice", {"number": "INV-1"})), Say("It is paid.")],
            "ends": [Say("All known.")],
        },
        "All known.",
    ),
    "repairs": Conversation(
        one(output=Verdict, tools=[track], repairs=2),
        {
            "solo": [
                Say('{"fits": "perhaps"}'),
                Calls(("track", {"order": "A-7"})),
                Say('{"grade": "high"}'),
                Say('{"fits": true}'),
            ]
        },
        Verdict(fits=True),
    ),
    "an empty answer": Conversation(one(tools=[track]), {"solo": [Say(""), Say("Here I am.")]}, "Here I am."),
    "approvals": Conversation(
        one(tools=[refund, track, AskUser()]),
        {
            "solo": [
                Calls(("refund", {"number": "INV-1", "amount": 5}), ("track", {"order": "A-7"})),
                Calls(("ask_user", {"question": "Which one?"})),
                Say("Paid back."),
            ]
        },
        "Paid back.",
    ),
}
