"""Handoff: a reception gives the caller to a specialist, who answers in its place.

    graphflow run examples/strategies/handoff.py    # or: python examples/strategies/handoff.py "QUESTION"

Take it where the specialist should talk to the caller, and nobody needs to read the answer first. Who got the wrong
caller may give the call back, once.
"""

import sys

from graphflow import Agent, Budget, ModelRequest, ToolCall, run_sync, strategies
from graphflow.events import Event
from graphflow.testing import RuleModel, call
from graphflow.visualize import run_tree


class Caller(strategies.Task):
    """What somebody calls about."""

    task: str = "I moved in last week, and the meter shows nothing."


def reception_says(request: ModelRequest) -> ToolCall:
    """Hand over by the first word that fits; a note of who gave the call back is worth more."""
    said = " ".join(message.text for message in request.messages)
    if "moved" in said and "not about moving" not in said:
        return call("transfer_to_moving", note="It is about moving in.")
    return call("transfer_to_meters", note="It is about a meter.")


reception = Agent(
    "reception", model=RuleModel(otherwise=reception_says), instructions="Find out who can help.", max_turns=1
)
moving = Agent(
    "moving",
    model=RuleModel(("meter", call("transfer_to_reception", note="This is not about moving.")), otherwise="Welcome!"),
    instructions="Contracts of people who move in or out.",
    max_turns=1,
)
meters = Agent(
    "meters",
    model=RuleModel(otherwise="A fitter comes on Tuesday, between 8 and 10."),
    instructions="Meters that are broken, or show something odd.",
    max_turns=1,
)
graph = strategies.handoff("hotline", reception, moving, meters, back=1, context=Caller, budget=Budget(model_calls=8))

if __name__ == "__main__":
    events: list[Event] = []
    result = run_sync(graph, Caller(task=" ".join(sys.argv[1:]) or Caller().task), listeners=[events.append])
    print(run_tree(events))
    print(f"{result.active} answers: {result.output}")
