"""Swarm: peers pass a traveller on among themselves, until one can answer.

    graphflow run examples/strategies/swarm.py      # or: python examples/strategies/swarm.py "QUESTION"

Take it where nobody knows at the start who is needed, and each peer knows best who comes next. The number of handoffs
is bounded, and two who only send a traveller back and forth are stopped before that.
"""

import sys

from graphflow import Agent, Budget, ModelRequest, ToolCall, run_sync, strategies
from graphflow.events import EdgeTaken, Event
from graphflow.testing import RuleModel, call


class Trip(strategies.Task):
    """What a traveller wants."""

    task: str = "From Bern to Tokyo in May, with my dog."


def flights_say(request: ModelRequest) -> ToolCall | str:
    """Ask the vet first, then take what is free."""
    if "dog" in request.messages[0].text and "vet:" not in request.messages[-1].text:
        return call("transfer_to_animals", note="May the dog enter Japan?")
    return "Booked: Bern to Tokyo on 14 May, with a place for the dog."


flights = Agent("flights", model=RuleModel(otherwise=flights_say), instructions="Flights and their seats.", max_turns=1)
animals = Agent(
    "animals",
    model=RuleModel(otherwise=call("transfer_to_papers", note="A dog needs a certificate; who has the form?")),
    instructions="What animals need on a journey.",
    max_turns=1,
)
papers = Agent(
    "papers",
    model=RuleModel(otherwise=call("transfer_to_flights", note="vet: certificate is filed, the dog may fly.")),
    instructions="Forms, visas and certificates.",
    max_turns=1,
)
graph = strategies.swarm("travel", flights, animals, papers, max_handoffs=4, context=Trip, budget=Budget(model_calls=8))

if __name__ == "__main__":
    events: list[Event] = []
    result = run_sync(graph, Trip(task=" ".join(sys.argv[1:]) or Trip().task), listeners=[events.append])
    for edge in [event.body.edge for event in events if isinstance(event.body, EdgeTaken)]:
        if edge.kind == "handoff":
            print(f"{edge.source} -> {edge.target}")
    print(f"{result.active}: {result.output}")
