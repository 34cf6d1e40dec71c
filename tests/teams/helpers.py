"""What the tests of ready-made teams share: agents of a script, and runs that are held against what was proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphflow import Agent, Budget, Graph, MemoryJournal, Report, Result, State, node, replay, run, strategies
from graphflow.events import Event, NodeStarted
from graphflow.graphs import teams
from graphflow.model.ids import names
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelClient, ModelRequest
from graphflow.nodes.function import FunctionNode
from graphflow.testing import RuleModel, call
from tests.laws.bounds import excesses


class Played(NamedTuple):
    """A run, and what happened in it."""

    result: Result[Any]
    events: Sequence[Event]

    @property
    def visited(self) -> list[tuple[str, ...]]:
        """The names of the paths of all visits, in order."""
        return [names(event.path) for event in self.events if isinstance(event.body, NodeStarted)]


async def played(graph: Graph[Any], asked: str = "Is it so?") -> Played:
    """Run a graph; nothing exceeds what was proved, and its journal folds to the same end."""
    events: list[Event] = []
    journal = MemoryJournal()
    first = next(iter(graph.context.model_fields))
    result = await run(
        graph, graph.context(**{first: asked}), listeners=[events.append], journal=journal, run_id="the-run"
    )

    assert list(excesses(graph, events, 0, Budget())) == []
    again = await replay(graph, "the-run", journal=journal)
    assert (again.status, again.output, again.context) == (result.status, result.output, result.context)
    return Played(result, events)


def agent(name: str, model: ModelClient, **options: Any) -> Agent:
    """An agent that can be told from others."""
    return Agent(name, model=model, description=f"Knows all of {name}", **options)


def problems(graph: Graph[Any]) -> list[str]:
    """What the checks say of a graph, but for its missing budget."""
    return [str(problem) for problem in graph.check() if problem.code != "no-budget"]


def says(name: str, answer: object) -> FunctionNode[Any]:
    """A function that gives the same each time."""

    @node(name=name)
    async def say(_: State[Any]) -> object:
        return answer

    return say


def reports(name: str, **fields: Any) -> FunctionNode[Any]:
    """A function that gives a report."""

    @node(name=name)
    async def report(_: State[Any]) -> Report:
        return Report(**fields)

    return report


def asks_once(tool: str) -> Callable[[ModelRequest], bool]:
    """Tell whether a request is the first of somebody who has a tool."""
    return lambda request: request.turn == 0 and any(spec.name == tool for spec in request.tools)


def text_to_cite(request: ModelRequest) -> str:
    """The text that somebody who cites is given, as it stands."""
    return request.messages[-1].text.partition("The text:\n")[2].removesuffix("\n</message>")


ANYBODY = RuleModel(
    (lambda request: request.agent == "verifier", teams.Verdict(accepted=True)),
    (asks_once("ask_workers"), call("ask_workers", objective="Find out.")),
    (asks_once("ask_inner"), call("ask_inner", objective="Find out.")),
    (asks_once("ask_member"), call("ask_member", objective="Find out.")),
    (asks_once("transfer_to_inner"), call("transfer_to_inner", note="Find out.")),
    (lambda request: request.agent == "citer", text_to_cite),
    otherwise="It is so.",
)
"""A model for every agent of the teams below."""

Makes = Callable[[str, Node[Any]], Graph[Any]]


def one(name: str, **options: Any) -> Agent:
    """An agent of that model."""
    return agent(name, ANYBODY, **options)


TEAMS: dict[str, Makes] = {
    "hierarchy": lambda name, member: teams.hierarchy(name, {one("head"): [member, one("other")]}),
    "orchestrator_workers": lambda name, member: teams.orchestrator_workers(name, one("lead"), member),
    "citation_pass": lambda name, member: teams.citation_pass(name, member, one("citer"), least=0),
    "map_reduce": lambda name, member: teams.map_reduce(name, one("split"), member, one("reduce"), max_items=3),
    "debate": lambda name, member: teams.debate(name, member, one("other"), judge=one("judge")),
    "evaluator_optimizer": lambda name, member: teams.evaluator_optimizer(
        name, member, one("verifier", output=teams.Verdict)
    ),
}
"""Each of the teams, with some node in it."""

STRATEGIES: dict[str, Makes] = {
    "handoff": lambda name, member: strategies.handoff(name, one("desk"), member),
    "router": lambda name, member: strategies.router(name, lambda _: member.name, member),
    "sequential": lambda name, member: strategies.sequential(name, member, one("last")),
    "parallel": lambda name, member: strategies.parallel(name, member, one("other")),
    "swarm": lambda name, member: strategies.swarm(name, one("desk"), member),
    "round_robin": lambda name, member: strategies.round_robin(name, member, one("other"), turns=2),
    "random": lambda name, member: strategies.random(name, member, one("other"), turns=2, seed=1),
    "manual": lambda name, member: strategies.manual(
        name, member, one("other"), turns=2, decide=lambda talk: None if talk.said else member.name
    ),
    "plan_execute": lambda name, member: strategies.plan_execute(
        name,
        says("planner", strategies.Plan(steps=(strategies.PlanStep(id="1", to=member.name, objective="Do it."),))),
        member,
    ),
}
"""Each of the nine strategies, with some node in it."""
