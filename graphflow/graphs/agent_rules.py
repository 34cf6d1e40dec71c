"""The rules about agents: their tools and teams, what they answer with, and what they may use."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypeAliasType

from graphflow.graphs.compiled import Edge, Key, Station
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import Look, Problem, as_graph, kept_inside_out, names_of, nested_graphs, reach
from graphflow.graphs.rules import is_model, listed
from graphflow.model.contract import Report
from graphflow.nodes.agent import ASK, TRANSFER, Agent, Supervisor, generated_names, said_of
from graphflow.nodes.base import Node
from graphflow.nodes.edges import DelegateStatement, HandoffStatement
from graphflow.nodes.human import Human
from graphflow.nodes.tools import Tool


def tool_clash(look: Look) -> Iterator[Problem]:
    """No tool of an agent has the name of a tool that stands for its team or for a handoff."""
    for station, agent in _agents(look):
        own = {tool.name for tool in agent.tools}
        for name, target in _generated(station).items():
            if name in own:
                message = f"{station.name!r} has a tool {name!r}, and so is called what leads to {target!r}."
                hint = "Rename the tool or the node: a model could not tell them apart."
                yield Problem("tool-clash", (station.name, target), message, hint)


def no_team(look: Look) -> Iterator[Problem]:
    """A supervisor has somebody to delegate to."""
    for station, agent in _agents(look):
        if isinstance(agent, Supervisor) and not station.delegates:
            message = f"the supervisor {station.name!r} has no team: no delegate edge leaves it."
            hint = f"Write {station.name}.delegates(..., max_hops=...), or make it an Agent."
            yield Problem("no-team", (station.name,), message, hint)


def answer_contract(look: Look) -> Iterator[Problem]:
    """What an agent or a person answers with can be the report that the edge by which it is called asks for."""
    stations = look.compiled.stations

    def steps(key: Key) -> list[Key]:  # whoever ends the frame reports to its caller
        station = stations[str(key)]
        takers = [edge for edge in station.handoffs.values() if not isinstance(stations[str(edge.target)].node, Human)]
        edges: list[Edge] = [*takers, *station.errors]  # a person gives control back
        return [edge.target for edge in edges if isinstance(edge.target, str)]

    for statement in look.graph.statements:
        if not isinstance(statement, DelegateStatement) or not is_model(statement.report):
            continue
        caller, wanted = statement.source.name, statement.report
        heads: list[Key] = [target.name for target in statement.targets]
        for name in sorted(str(key) for key in reach(heads, steps)):
            node = stations[name].node
            if isinstance(node, Agent) and not _can_be(node.output, wanted):
                given, fits = type_name(node.output), f"the agent output={wanted.__name__} or none"
            elif isinstance(node, Human) and not _can_be(str if node.schema is None else node.schema, wanted):
                given = "any JSON value" if node.schema is None else type_name(node.schema)
                fits = f"the person schema={wanted.__name__}{' or str' if wanted is Report else ''}"
            else:
                continue
            message = f"{name!r} answers with {given}, and {caller!r} wants {wanted.__name__} from it."
            hint = f"Give {fits}, or the edge a report= that fits."
            yield Problem("answer-contract", (caller, name), message, hint)


def _can_be(answer: Any, wanted: type[BaseModel]) -> bool:
    """Tell whether an answer of some type can be a report: None takes the contract of the edge, a text is a finding."""
    while isinstance(answer, TypeAliasType):
        answer = answer.__value__
    origin = typing.get_origin(answer)
    if origin is typing.Annotated:
        return _can_be(typing.get_args(answer)[0], wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_can_be(each, wanted) for each in typing.get_args(answer) if each is not types.NoneType)
    if answer is None or answer is Any or origin is typing.Literal:
        return answer is None or wanted is Report or answer is Any
    kind = origin or answer
    if not isinstance(kind, type):
        return True  # what nobody can tell from the type is told when it comes
    return issubclass(kind, wanted) or (wanted is Report and issubclass(kind, str))


def type_name(kind: Any) -> str:
    """Return how a type is written.

    >>> type_name(int), type_name(int | None)
    ('int', 'int | None')
    """
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)


def ungated_tools(node: Node[Any]) -> tuple[str, ...]:
    """Return the tools of a node that cannot be undone and that nobody approves."""
    tools = node.tools if isinstance(node, Agent) else ()
    found = [tool for tool in tools if isinstance(tool, Tool) and tool.effect == "irreversible" and not tool.approval]
    return tuple(tool.name for tool in found)


# --- warnings --------------------------------------------------------------------------------------------------------


def unknown_right(look: Look) -> Iterator[Problem]:
    """The rights of an agent name tools that it or somebody below it has."""
    for station, agent in _agents(look):
        known = _tools_from(look, station.delegates) | _names(station)
        wrong = sorted((agent.rights or frozenset[str]()) - known)
        if wrong:
            message = f"the rights of {station.name!r} name {listed(wrong)}: no tool of it or below it is called so."
            yield Problem("unknown-right", (station.name,), message, _known(known), "warning")


def unknown_grant(look: Look) -> Iterator[Problem]:
    """What an edge grants are tools that a callee or somebody below it has."""
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement) and statement.grant:
            name, team = statement.source.name, [target.name for target in statement.targets]
            known = _tools_from(look, team)
            wrong = sorted(set(statement.grant) - known)
            if wrong:
                message = f"{name!r} grants {listed(wrong)} to {listed(team)}: no tool there or below is called so."
                yield Problem("unknown-grant", (name, *team), message, _known(known), "warning")


def full_history(look: Look) -> Iterator[Problem]:
    """Nobody gets a whole thread unasked: it grows with each step, and every model call reads all of it."""
    hint = "Let less cross: 'note', last(n) or 'summary'."
    for station, agent in _agents(look):
        if agent.history == "full":
            message = f"{station.name!r} sees the whole thread each time it is entered (history='full')."
            yield Problem("full-history", (station.name,), message, hint, "warning")
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement | HandoffStatement) and statement.history == "full":
            name, team = statement.source.name, [target.name for target in statement.targets]
            verb = "delegates to" if isinstance(statement, DelegateStatement) else "hands off to"
            message = f"{name!r} {verb} {listed(team)} with the whole thread (history='full')."
            yield Problem("full-history", (name, *team), message, hint, "warning")


def unpriced(graph: Graph[Any]) -> Iterator[Problem]:
    """Money that is bounded is known before it is spent, by the price of a model; else the tokens are bounded."""
    budget = graph.budget
    if budget is None or budget.usd is None or budget.tokens is not None:
        return
    nodes = (node for inner in nested_graphs(graph) for node in inner.nodes.values())
    agents = (node for node in nodes if isinstance(node, Agent))
    names = sorted({node.name for node in agents if getattr(node.model, "price", None) is None})
    if names:
        message = f"the budget bounds usd, and the models of {listed(names)} have no price: they cost what they report."
        hint = "Give the client an attribute price=Price(...), or bound the tokens too."
        yield Problem("unpriced-model", tuple(names), message, hint, "warning")


def overlapping_tools(look: Look) -> Iterator[Problem]:
    """The members of one team have tools of their own."""
    stations = look.compiled.stations
    for name, team in _teams(look):
        owners: dict[str, list[str]] = {}
        for member in team:
            node = stations[member].node
            for tool in node.tools if isinstance(node, Agent) else ():
                if isinstance(tool, Tool):
                    owners.setdefault(tool.name, []).append(member)
        shared: dict[tuple[str, ...], list[str]] = {}
        for tool_name, members in sorted(owners.items()):
            if len(members) > 1:
                shared.setdefault(tuple(members), []).append(tool_name)
        for same, tools in sorted(shared.items()):
            message = f"in the team of {name!r}, {listed(same)} have the same tools: {listed(tools)}."
            hint = "Give each tool to one of them: what an agent can do is how a task finds it."
            yield Problem("overlapping-tools", (name, *same), message, hint, "warning")


def same_description(look: Look) -> Iterator[Problem]:
    """The members of one team are told apart by what is said of them; where a model chooses, something is."""
    stations = look.compiled.stations
    for name, team in _teams(look):
        chooses = isinstance(stations[name].node, Agent)
        words: dict[str, list[str]] = {}
        for member in team:
            words.setdefault(_said(stations[member].node, chooses=chooses), []).append(member)
        for text, same in sorted(words.items()):
            if len(same) < 2:  # noqa: PLR2004 - a pair
                continue
            if text:
                message = f"in the team of {name!r}, {listed(same)} have one description."
                hint = "Say in each what only it does: who delegates chooses by it."
            elif chooses:
                message = f"the model of {name!r} has to choose between {listed(same)}, and nothing is said of them."
                hint = "Give each a description=, or instructions that begin with what only it does."
            else:
                continue
            yield Problem("same-description", (name, *same), message, hint, "warning")


def _said(node: Node[Any], *, chooses: bool) -> str:
    """What is said of a node to who chooses it."""
    return (said_of(node) if chooses else node.description).strip()


# --- what several rules ask ------------------------------------------------------------------------------------------


def _agents(look: Look) -> Iterator[tuple[Station, Agent]]:
    for station in look.compiled.stations.values():
        if isinstance(station.node, Agent):
            yield station, station.node


def _teams(look: Look) -> Iterator[tuple[str, list[str]]]:
    """Each node with those it delegates to, and with those it hands off to."""
    for station in look.compiled.stations.values():
        for team in (station.delegates, station.handoffs):
            if len(team) > 1:
                yield station.name, sorted(team)


def _generated(station: Station) -> dict[str, str]:
    return {**generated_names(ASK, station.delegates), **generated_names(TRANSFER, station.handoffs)}


def _names(station: Station) -> set[str]:
    """The names of all tools that the model of an agent is offered; none for another node."""
    agent = station.node
    return {*(tool.name for tool in agent.tools), *_generated(station)} if isinstance(agent, Agent) else set()


def _tools_from(look: Look, team: Iterable[str]) -> set[str]:
    """The names of all tools of some callees and of everything below them."""
    found: set[str] = set()
    stations = look.compiled.stations
    for name in names_of(reach(list[Key](team), look.in_frame)):
        inner = as_graph(stations[name].node)
        found |= _names(stations[name]) if inner is None else _tools_of(inner)
    return found


def _tools_of(graph: Graph[Any]) -> frozenset[str]:
    return kept_inside_out(graph, "_tools", _tools_in)


def _tools_in(graph: Graph[Any]) -> frozenset[str]:
    found: set[str] = set()
    for station in graph.compiled.stations.values():
        inner = as_graph(station.node)
        found |= _names(station) if inner is None else _tools_of(inner)
    return frozenset(found)


def _known(names: Iterable[str]) -> str:
    return f"The tools there are {listed(sorted(names)) or 'none'}."
