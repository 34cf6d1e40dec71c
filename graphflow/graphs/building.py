"""What every ready-made team is put together with: its own nodes named, its graph made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict

from typing_extensions import TypeVar

from graphflow.graphs.conversation import Enter, begins_with_text
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.state import State
from graphflow.nodes.base import Node
from graphflow.nodes.detect import Detector
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode

K = TypeVar("K", bound=Context)


HOME: Final = f"{__name__.rpartition('.')[0]}."
"""Where the functions stand that ready-made teams add to the members that they are given."""


class Options(TypedDict, total=False):
    """What every ready-made team passes on to its `Graph`, where it has its meaning."""

    budget: Budget | None
    max_depth: int | None
    max_hops: int | None
    escalate: Node[Any] | None
    enter: Callable[[State[Any]], Any] | None
    leave: Callable[[State[Any]], Any] | None
    detect: Sequence[Detector]
    output: Any
    into: str | None
    retries: int
    max_visits: int | None
    description: str


def teams_among(members: Sequence[Node[Any]]) -> frozenset[str]:
    """Return the names of the members that are graphs, and know nothing but what they are given."""
    return frozenset(member.name for member in members if isinstance(member, Graph))


def unused(name: str, taken: Sequence[Node[Any]]) -> str:
    """Return a name for a node of a team's own that none of its members has."""
    names = {member.name for member in taken}
    made, number = name, 1
    while made in names:
        number += 1
        made = f"{name}_{number}"
    return made


def own_node(
    name: str,
    fn: Callable[..., Any],
    taken: Sequence[Node[Any]],
    max_visits: int | None = None,
    description: str = "",
) -> FunctionNode[Any]:
    """Return a node of a team's own, which spends nothing, under a name that no member has."""
    made = FunctionNode[Any](fn=fn, name=unused(name, taken), max_visits=max_visits, description=description)
    return dataclasses.replace(made, costs=Budget()) if made.wants_step else made


def is_added(node: Node[Any] | None) -> bool:
    """Tell whether a node is a function that a ready-made team has added to the members that it was given.

    >>> is_added(own_node("floor", teams_among, ()))
    True
    """
    return isinstance(node, FunctionNode) and str(getattr(node.fn, "__module__", "")).startswith(HOME)


def asks_person(node: Node[Any] | None) -> bool:
    """Tell whether a node that a ready-made team has added asks a person, as the floor of `manual` without `decide`."""
    return isinstance(node, FunctionNode) and is_added(node) and getattr(node.fn, "asks_person", False) is True


def team_graph(
    name: str, chains: Sequence[Chain[Any]], context: type[K], options: Options, max_handoffs: int | None = None
) -> Graph[K]:
    """Return the graph. Inside another one it begins with a context of its own, whose first field is what arrives."""
    enter = Enter(context) if begins_with_text(context) else None
    options.setdefault("enter", enter)
    return Graph(name, *chains, context=context, max_handoffs=max_handoffs, **options)
