"""Parallel: three people read one contract at the same time, and one of them does not come back.

    graphflow run examples/strategies/parallel.py   # or: python examples/strategies/parallel.py

Take it where several look at the same thing and none needs what another one says. The reports stand in the order of
the members, whoever was first, and who failed is named.
"""

from graphflow import Agent, Budget, Report, State, node, run_sync, strategies
from graphflow.testing import RuleModel


class Contract(strategies.Task):
    """What is read."""

    task: str = "Rent of a crane: 400 a day from 1 June, 90 days, notice of 30 days, no insurance."


price = Agent(
    "price",
    model=RuleModel(otherwise=Report(finding="36,000 in all, 8 % above the market", evidence=("offer-12",))),
    instructions="What it costs, and whether that is usual.",
    output=Report,
    max_turns=1,
)
law = Agent(
    "law",
    model=RuleModel(otherwise=Report(finding="no insurance", action_needed="insure the crane")),
    instructions="What could go wrong, and who pays then.",
    output=Report,
    max_turns=1,
)


@node
def dates(state: State[Contract]) -> str:
    """Look the days up in a calendar that cannot be reached today."""
    raise ConnectionError("the calendar cannot be reached")


graph = strategies.parallel("readers", price, law, dates, context=Contract, budget=Budget(model_calls=8))

if __name__ == "__main__":
    report = run_sync(graph, Contract()).output
    print(report.finding)
    print(f"{report.status}: {report.reason.text}")
    print(f"to do: {report.action_needed}; evidence: {', '.join(report.evidence)}")
