"""Plan and execute: a move of offices, planned in steps; one step goes wrong, and only that one is planned again.

    graphflow run examples/strategies/plan_execute.py   # or: python examples/strategies/plan_execute.py

Take it where the steps are not known before, and need each other's results. Steps that do not need each other run at
the same time. A plan that cannot be right is never run: it goes back to the planner with all its errors. So does one
whose results are not accepted; what is finished is not done again.
"""

from graphflow import Agent, Budget, FrozenDict, ModelRequest, Report, State, node, run_sync, strategies
from graphflow.testing import RuleModel


class Move(strategies.PlannedTask):
    """What is to be done."""

    task: str = "Move the office of 20 people in March."


def planner_says(request: ModelRequest) -> strategies.Plan:
    """Plan the move; take a larger van if the first is too small."""
    size = 40 if "too small" in request.messages[-1].text else 12
    return strategies.Plan(
        steps=(
            strategies.PlanStep(id="count", to="caretaker", objective="Count the desks."),
            strategies.PlanStep(id="lift", to="caretaker", objective="Reserve the lift."),
            strategies.PlanStep(
                id=f"van of {size}", to="hire", arguments=FrozenDict({"size": size}), needs=("count", "lift")
            ),
        )
    )


def hire(size: int) -> str:
    """Hire a van of a size in cubic metres."""
    return f"a van of {size} m³, 3 March"


@node
def caretaker(state: State[Move]) -> Report:
    """Do what the brief says."""
    lift = state.brief is not None and "lift" in state.brief.objective
    return Report(finding="the lift is ours on 3 March" if lift else "20 desks")


@node
def mover(state: State[Move]) -> strategies.Verdict:
    """Refuse what cannot work: 20 desks do not fit into 12 cubic metres."""
    fits = "12 m³" not in state.values[0].finding
    return strategies.Verdict(accepted=fits, why="" if fits else "12 m³ is too small for 20 desks")


planner = Agent("planner", model=RuleModel(otherwise=planner_says), output=strategies.Plan, max_turns=1)
graph = strategies.plan_execute(
    "move", planner, caretaker, tools=[hire], verify=mover, max_replans=1, context=Move, budget=Budget(model_calls=2)
)

if __name__ == "__main__":
    result = run_sync(graph, Move())
    for said in result.output.said:
        print(f"{said.speaker}: {said.text}")
    done = ", ".join(finished.step.id for finished in result.context.finished)
    print(f"{result.status} with {result.spent.total.model_calls} plans; done, each once: {done}")
