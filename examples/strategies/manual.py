"""Manual: the rules of procedure say who speaks at a hearing, and not the speakers.

    graphflow run examples/strategies/manual.py     # or: python examples/strategies/manual.py
    graphflow run examples/strategies/manual.py:chaired     # a person says who speaks, or "finish"

Take it where your code knows the order, and it depends on what was said; or where a person should lead.
"""

from graphflow import Agent, Budget, run_sync, strategies
from graphflow.testing import RuleModel


class Hearing(strategies.Conversation):
    """What it is about."""

    task: str = "May the quarry work at night?"


def agent(name: str, words: str) -> Agent:
    """Return somebody who says one thing."""
    return Agent(name, model=RuleModel(otherwise=words), instructions=f"You speak for the {name}.", max_turns=1)


quarry = agent("quarry", "At night the roads are free.")
village = agent("village", "We measured 61 dB at two bedrooms.")
expert = agent("expert", "61 dB is above the limit of 45.")
members = (quarry, village, expert)


def who_speaks(hearing: Hearing) -> str | None:
    """Hear both sides, then the expert if somebody has measured; the side that it speaks against has the last word."""
    order = ["quarry", "village"]
    if any("measured" in said.text for said in hearing.said):
        order += ["expert", "quarry"]
    return order[len(hearing.said)] if len(hearing.said) < len(order) else None


graph = strategies.manual(
    "hearing", *members, turns=6, decide=who_speaks, context=Hearing, budget=Budget(model_calls=6)
)
chaired = strategies.manual("chaired", *members, turns=6, context=Hearing, budget=Budget(model_calls=6))

if __name__ == "__main__":
    for said in run_sync(graph, Hearing()).output.said:
        print(f"{said.speaker}: {said.text}")
