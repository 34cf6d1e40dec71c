"""Supervisors of supervisors: a nested mapping becomes graphs inside graphs, each with its supervisor and its team."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from graphflow.errors import UsageError
from graphflow.graphs.arguments import members_of
from graphflow.graphs.conversation import Enter, begins_with_text
from graphflow.graphs.graph import Graph
from graphflow.model.context import Context
from graphflow.model.telling import value_text
from graphflow.nodes.agent import Agent, Supervisor, said_of
from graphflow.nodes.base import END, START, Node
from graphflow.nodes.client import ModelClient
from graphflow.nodes.edges import Chain

Team: TypeAlias = "Mapping[Any, Any]"
"""Supervisors, each with its team: a sequence of nodes, names and further mappings, or one mapping."""


@dataclass(frozen=True)
class Makes:
    """Makes agents of names.

    Attributes:
        where: what is being made, for errors.
        model: the model of agents that are made, or None where no name may stand.
        max_turns: how often one visit of such an agent may ask it.
    """

    where: str
    model: ModelClient | str | None
    max_turns: int

    def leaf(self, found: object) -> Node[Any]:
        """Return a member that leads nobody.

        Raises:
            UsageError: if it is no node and no name, or a name and there is no model.
        """
        if not isinstance(found, str):
            return self._node(found)
        told = f"You are {found!r}. Do what you are asked, and nothing else, and report what you found."
        about = f"Takes what concerns {found}"
        return self._made(Agent, found, told, about)

    def head(self, found: object, team: Sequence[str]) -> Node[Any]:
        """Return a supervisor.

        Raises:
            UsageError: if it cannot lead anybody: no node and no name, a name where there is no model, or a graph.
        """
        if not isinstance(found, str):
            node = self._node(found)
            if not isinstance(node, Graph):
                return node
            msg = (
                f"{self.where}: the graph {node.name!r} cannot lead {', '.join(map(repr, team))}: a graph has nobody "
                f"that delegates from outside of it; give an agent, a function or a name, and the graph as a member."
            )
            raise UsageError(msg)
        told = (
            f"You are {found!r}, and lead a team. Split what you are asked between its members, say to each all that "
            f"it must know, and answer once, from their reports."
        )
        about = _about(found, team)
        return self._made(Supervisor, found, told, about)

    def _made(self, kind: type[Agent], name: str, told: str, about: str) -> Agent:
        if self.model is None:
            msg = f"{self.where}: {name!r} is a name, and an agent is made of it only where there is model=..."
            raise UsageError(msg)
        try:
            return kind(name, model=self.model, instructions=told, description=about, max_turns=self.max_turns)
        except UsageError as error:
            msg = f"{self.where}: {error}"
            raise UsageError(msg) from None

    def _node(self, found: object) -> Node[Any]:
        if isinstance(found, Node):
            return cast("Node[Any]", found)
        msg = (
            f"{self.where}: {found!r} is no member: a name, a node, or a mapping from a supervisor to its team is "
            f"needed, as {{'desk': ['billing', 'shipping']}}."
        )
        raise UsageError(msg)


@dataclass
class _Open:
    """A supervisor whose team is being looked at."""

    head: object
    team: object
    todo: Iterator[tuple[object, object]]
    members: list[Node[Any]] = field(default_factory=list[Node[Any]])


_NOBODY = object()
"""Behind the last member of a team."""


def led(makes: Makes, team: object, max_calls: int, context: type[Context]) -> list[Chain[Any]]:
    """Return the statements of the supervisor at the top; every supervisor below leads a graph of its own.

    Args:
        makes: makes agents of names.
        team: a mapping from the one supervisor at the top to its team.
        max_calls: how often each supervisor may ask each member, in one activation.
        context: the class of the context of the graphs below.

    Raises:
        UsageError: if it is no such mapping, or two members of one team have one name.
    """
    top = _pairs(makes.where, team)
    if not isinstance(team, Mapping) or len(top) != 1:
        found = ", ".join(map(repr, [head for head, _ in top])) or "nobody"
        msg = (
            f"{makes.where}: one supervisor stands at the top, not {found}; write {{'chief': [...]}}, a mapping from "
            f"it to its team."
        )
        raise UsageError(msg)
    line = [_Open(*top[0], iter(_pairs(makes.where, top[0][1])))]  # a walk that calls itself would take stack
    while True:
        here = line[-1]
        head, below = next(here.todo, (_NOBODY, None))
        if head is not _NOBODY:
            if not _leads(below):
                here.members.append(makes.leaf(head))
                continue
            if any(below is around.team for around in line):
                msg = f"{makes.where}: the team of {head!r} stands inside itself; a hierarchy has an end."
                raise UsageError(msg)
            line.append(_Open(head, below, iter(_pairs(makes.where, below))))
            continue
        names = [member.name for member in here.members]
        node = makes.head(here.head, names)
        members_of(f"{makes.where}, the team of {node.name!r}", "members", tuple(here.members), (node,))
        chains = [START >> node >> END, node.delegates(*here.members, max_hops=max_calls)]
        line.pop()
        if not line:
            return chains
        about = said_of(node) or _about(node.name, names)
        enter = Enter(context) if begins_with_text(context) else None
        line[-1].members.append(Graph(node.name, *chains, context=context, enter=enter, description=about))


def _about(name: str, team: Sequence[str]) -> str:
    """Say what a supervisor is for, so that it can be told from others that lead such a team."""
    return f"Takes what concerns {name}, with {', '.join(team)}"


def _leads(below: object) -> bool:
    """Tell whether there is anybody in a team."""
    return not (below is None or (isinstance(below, Mapping | list | tuple) and not below))


def _pairs(where: str, team: object) -> list[tuple[object, object]]:
    """Return the members of a team, each with its own team or None.

    Raises:
        UsageError: if it is no team.
    """
    if isinstance(team, Mapping):
        return list(cast("Mapping[object, object]", team).items())
    if isinstance(team, str | Node):
        return [(cast("object", team), None)]
    if not isinstance(team, list | tuple):
        msg = f"{where}: {value_text(team)} is no team: a list of names, nodes and mappings is needed, or one mapping."
        raise UsageError(msg)
    found: list[tuple[object, object]] = []
    for one in cast("Sequence[object]", team):
        found += _pairs(where, cast("object", one)) if isinstance(one, Mapping) else [(one, None)]
    return found
