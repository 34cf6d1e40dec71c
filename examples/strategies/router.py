"""Router: a small model says once whose letter it is; nobody talks to it.

    graphflow run examples/strategies/router.py     # or: python examples/strategies/router.py "LETTER"

Take it where one look is enough to tell who is right. A letter that names nobody, or two, goes to a person's desk, and
never into the void.
"""

import sys

from graphflow import Agent, Budget, State, node, run_sync, strategies
from graphflow.testing import RuleModel

LETTERS = (
    "The tap in the kitchen drips.",
    "Why is the rent higher than last year?",
    "The heating is out, and so I pay less rent.",
    "A poem for you.",
)


class Letter(strategies.Task):
    """What a tenant writes."""

    task: str = LETTERS[0]


classifier = Agent(
    "classifier",
    model=RuleModel(  # the second says more than one word; it is read like the first
        (lambda asked: "rent" in asked.messages[0].text and "heating" in asked.messages[0].text, "repairs or accounts"),
        ("rent", "This is for **Accounts**."),
        ("poem", "I cannot tell."),
        otherwise="repairs",
    ),
    instructions="Whose letter is this: repairs or accounts? Answer with one word.",
    max_turns=1,
)
repairs = Agent("repairs", model=RuleModel(otherwise="A plumber comes on Monday."), max_turns=1)
accounts = Agent("accounts", model=RuleModel(otherwise="The index rose by 2 %."), max_turns=1)


@node
def desk(state: State[Letter]) -> str:
    """Put a letter where somebody reads it."""
    return "It is on the desk of Ms Abel."


graph = strategies.router(
    "letters", classifier, repairs, accounts, fallback=desk, context=Letter, budget=Budget(model_calls=4)
)

if __name__ == "__main__":
    for letter in sys.argv[1:] or LETTERS:
        result = run_sync(graph, Letter(task=letter))
        print(f"{letter}\n  {result.output}")
