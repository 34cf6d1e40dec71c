"""Round robin: a writer and an editor take turns at a headline, until the editor has nothing to say.

    graphflow run examples/strategies/round_robin.py    # or: python examples/strategies/round_robin.py "STORY"

Take it where each should hear what all others said, and nobody needs to lead. It ends when it is over; if it is not
over in six turns, the run says so, and does not call that a result.
"""

import sys

from graphflow import Agent, Budget, ModelRequest, run_sync, strategies
from graphflow.testing import RuleModel


class Story(strategies.Conversation):
    """What the headline is for."""

    task: str = "The ferry did not run for nine weeks, and nobody had checked the engine."


HEADLINES = (
    "Ferry chaos: who is to blame?",
    "Ferry stood still for nine weeks",
    "Nine weeks without a ferry: no check",
)


def writer_says(request: ModelRequest) -> str:
    """Write another headline each time."""
    return HEADLINES[request.messages[-1].text.count("[writer]:")]


def editor_says(request: ModelRequest) -> str:
    """Find what is missing in the last one."""
    last = request.messages[-1].text.rpartition("[writer]: ")[2]
    if "?" in last:
        return "A headline does not ask. What happened?"
    return "Print it." if "check" in last else "And why?"


def is_printed(story: Story) -> bool:
    """Tell whether the editor is content."""
    return story.said[-1].text == "Print it."


writer = Agent("writer", model=RuleModel(otherwise=writer_says), instructions="Write a headline.", max_turns=1)
editor = Agent("editor", model=RuleModel(otherwise=editor_says), instructions="Say what is missing.", max_turns=1)
graph = strategies.round_robin(
    "headline", writer, editor, turns=6, until=is_printed, context=Story, budget=Budget(model_calls=6)
)

if __name__ == "__main__":
    result = run_sync(graph, Story(task=" ".join(sys.argv[1:]) or Story().task))
    for said in result.output.said:
        print(f"{said.speaker}: {said.text}")
