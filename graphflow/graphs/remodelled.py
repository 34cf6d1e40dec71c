"""A graph with another model for its agents: what `Graph.with_model` returns."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from graphflow.graphs.graph import Graph
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelClient
from graphflow.nodes.edges import Branch, Fork


def with_model(graph: Graph[Any], model: ModelClient | str) -> Graph[Any]:
    """Return a graph whose agents, and those of the graphs inside it, all ask one model.

    Raises:
        UsageError: if it is no model.
    """
    made: dict[int, Node[Any]] = {}  # by the id of what each replaces: one value twice stays one value

    def node(found: Node[Any]) -> Node[Any]:
        key = id(found)
        if key not in made:
            if isinstance(found, Agent):
                made[key] = found.with_model(model)
            else:
                made[key] = whole(cast("Graph[Any]", found)) if isinstance(found, Graph) else found
        return made[key]

    def part(found: Any) -> Any:
        """Return a part of a statement with its nodes replaced."""
        match found:
            case Node():
                return node(cast("Node[Any]", found))
            case Branch() | Fork():
                whole_one = cast("Branch[Any] | Fork", found)
                names = [item.name for item in dataclasses.fields(whole_one)]
                return dataclasses.replace(whole_one, **{name: part(getattr(whole_one, name)) for name in names})
            case tuple():
                several = cast("tuple[Any, ...]", found)
                parts = [part(item) for item in several]
                kind: Any = type(several)
                return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
            case _:
                return found

    def whole(found: Graph[Any]) -> Graph[Any]:
        copy = found.named(found.name)
        object.__setattr__(copy, "statements", part(found.statements))
        object.__setattr__(copy, "escalate", part(found.escalate))
        return copy

    return whole(graph)
