"""Teams of scripted members, one of each strategy, and how their runs are played and judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from graphflow import Agent, Graph, State, Step, node, strategies
from graphflow.events import Event, FrameOpened
from graphflow.graphs.strategies import Conversation, Plan, PlanStep
from graphflow.model.ids import path_text
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.testing import RuleModel, call, strategy_violations
from graphflow.testing.models import ScriptStep
from graphflow.testing.strategies import Strategy
from tests.cases.helpers import Played, play

NINE: Final[tuple[Strategy, ...]] = get_args(Strategy)
ASKED: Final = "Was INV-311 paid twice?"


def agent(name: str, says: ScriptStep | None = None, **options: Any) -> Agent:
    """An agent that always says the same."""
    model = RuleModel(otherwise=f"{name} says." if says is None else says)
    return Agent(name, model=model, description=f"Knows what {name} knows.", **options)


def hands(name: str, to: str) -> Agent:
    """An agent that always hands over."""
    return agent(name, call(f"transfer_to_{to}", note=f"from {name}"))


def member(name: str, gives: Any = None, *, seconds: float = 0.0, fails: str = "") -> FunctionNode[Any]:
    """A function that gives a value, after a while."""

    @node(name=name)
    async def body(state: State[Any], step: Step) -> Any:
        if seconds:
            await step.sleep(seconds)
        if fails:
            raise ValueError(fails)
        return f"{name} says." if gives is None else gives

    return body


def hears(name: str, heard: list[tuple[str, ...]]) -> FunctionNode[Any]:
    """A function that remembers what it was given."""

    @node(name=name)
    async def body(state: State[Any]) -> str:
        heard.append((name, *map(str, state.values)))
        return f"{name} says."

    return body


def planner(name: str, *plans: Plan) -> FunctionNode[Any]:
    """A function that gives one plan after the other, the last one for ever."""

    @node(name=name)
    async def body(state: State[Any]) -> Plan:
        which: int = min(state.visit, len(plans))
        return plans[which - 1]

    return body


def plan_of(*steps: tuple[str, str] | tuple[str, str, tuple[str, ...]]) -> Plan:
    """A plan from (id, worker, needs)."""
    return Plan(
        steps=tuple(
            PlanStep(id=step[0], to=step[1], objective=f"do {step[0]}", needs=step[2] if len(step) == 3 else ())
            for step in steps
        )
    )


def team(kind: Strategy, name: str, inner: Node[Any] | None = None, **options: Any) -> Graph[Any]:
    """A team of a strategy, in which `inner` does its part; without one, an agent."""
    own = agent(f"{name}_c") if inner is None else inner
    a, b = agent(f"{name}_a"), agent(f"{name}_b")
    about: dict[str, Any] = {"description": f"What {name} does.", **options}
    match kind:
        case "handoff":
            return strategies.handoff(name, hands(f"{name}_p", own.name), a, own, **about)
        case "swarm":
            return strategies.swarm(name, hands(f"{name}_p", own.name), a, own, **about)
        case "router":
            return strategies.router(name, agent(f"{name}_p", f"**{own.name}**"), a, own, **about)
        case "sequential":
            return strategies.sequential(name, a, own, b, see="all", **about)
        case "parallel":
            return strategies.parallel(name, own, a, b, **about)
        case "round_robin":
            return strategies.round_robin(name, a, own, turns=3, **about)
        case "random":
            return strategies.random(name, a, own, turns=3, seed=7, **about)
        case "manual":

            def decide(talk: Conversation) -> str | None:
                return (a.name, own.name, None)[len(talk.said)]

            return strategies.manual(name, a, own, decide=decide, turns=3, **about)
        case _:
            plan = plan_of(("1", a.name), ("2", own.name, ("1",)))
            plans = agent(f"{name}_p", plan, output=Plan)
            return strategies.plan_execute(name, plans, a, own, **about)


async def played(graph: Graph[Any], **options: Any) -> Played[Any]:
    """Play a team's task, with every law held that every run must hold."""
    return await play(graph, graph.context(task=ASKED), **options)


def places(events: tuple[Event, ...] | list[Event], graph: Graph[Any]) -> list[str]:
    """Where a team inside a team was at work."""
    opened = [event for event in events if isinstance(event.body, FrameOpened)]
    return [path_text(event.path) for event in opened if event.path[-1].name == graph.name]


async def judged(kind: Strategy, graph: Graph[Any], **options: Any) -> Played[Any]:
    """Play a team, and hold that it keeps the rules of its strategy."""
    found = await played(graph, **options)
    told = strategy_violations(kind, graph, found.events)
    assert not told, told
    return found


def wrong_body(graph: Graph[Any], name: str, change: Callable[[Any], Any]) -> Graph[Any]:
    """The same graph, one of whose nodes does something else."""
    found: Any = graph.nodes[name]
    object.__setattr__(found, "fn", change(found.fn))
    graph.__dict__.pop("compiled", None)
    return graph
