"""Random: one customer in four is answered in a new way, to find out which is better.

    graphflow run examples/strategies/random_draw.py    # or: python examples/strategies/random_draw.py

Take it to compare two prompts or two models, or where members should speak in an order that none can foresee. The seed
is recorded, and the same seed draws the same member, so a run can be looked into again.

The file is not called random.py: a program's own folder comes first in Python's search, and whatever imports `random`
would get this file.
"""

from collections import Counter

from graphflow import Agent, Budget, Graph, run_sync, strategies
from graphflow.testing import RuleModel


class Question(strategies.Conversation):
    """What a customer asks."""

    task: str = "Where is my parcel?"


formal = Agent(
    "formal",
    model=RuleModel(otherwise="Your parcel is expected on Friday."),
    instructions="Answer formally.",
    max_turns=1,
)
short = Agent("short", model=RuleModel(otherwise="Friday!"), instructions="Answer in a word.", max_turns=1)


def answering(customer: int) -> Graph[Question]:
    """Return the graph for a customer, whose number is the seed."""
    return strategies.random(
        "trial",
        formal,
        short,
        weights=(3, 1),
        per="run",
        seed=customer,
        context=Question,
        budget=Budget(model_calls=1),
    )


graph = answering(customer=7)

if __name__ == "__main__":
    drawn = [run_sync(answering(customer), Question()).output.said[0].speaker for customer in range(40)]
    again = [run_sync(answering(customer), Question()).output.said[0].speaker for customer in range(40)]
    print(f"of 40 customers: {dict(Counter(drawn))}; the same again: {drawn == again}")
