"""Sequential: a text goes from hand to hand, and a gate stops what must not go on.

    graphflow run examples/strategies/sequential.py # or: python examples/strategies/sequential.py "NEWS"

Take it where each step needs the whole of the one before, in an order that never changes.
"""

import sys

from graphflow import Agent, Budget, ModelRequest, State, run_sync, strategies
from graphflow.testing import RuleModel


class News(strategies.Conversation):
    """What is to be told to the press."""

    task: str = "The bridge opens on 3 May."


def names_a_client(state: State[News]) -> str | None:
    """Stop where a client is named: no translator gets to see that."""
    return "it names a client" if "Acme" in state.values[0] else None


def read(request: ModelRequest) -> str:
    """Return what the stage before said: the line inside <message from="...">."""
    return request.messages[-1].text.split("\n")[1]


writer = Agent(
    "writer",
    model=RuleModel(otherwise=lambda asked: f"{asked.messages[0].text} Everybody is invited."),
    instructions="Write a press release of two sentences.",
    max_turns=1,
)
lawyer = Agent(
    "lawyer",
    model=RuleModel(otherwise=lambda asked: read(asked).replace("Everybody is", "You are")),
    instructions="Change what promises too much.",
    max_turns=1,
)
translator = Agent(
    "translator",
    model=RuleModel(("You are invited.", "Die Brücke wird am 3. Mai eröffnet. Sie sind eingeladen.")),
    instructions="Translate into German.",
    max_turns=1,
)
graph = strategies.sequential(
    "release",
    writer,
    lawyer,
    translator,
    gates={"lawyer": names_a_client},
    context=News,
    budget=Budget(model_calls=3),
)

if __name__ == "__main__":
    for news in sys.argv[1:] or (News().task, "The bridge that Acme ordered opens on 3 May."):
        result = run_sync(graph, News(task=news))
        report = result.output
        print(report if isinstance(report, str) else report.reason.text, f"({result.spent.total.model_calls} calls)")
