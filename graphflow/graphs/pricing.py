"""What the models of a graph cost, as data that a run records: a price that changes later changes no stored run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, cast

from graphflow.errors import UsageError
from graphflow.graphs.graph import Graph
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Segment, path_text
from graphflow.nodes.agent import Agent
from graphflow.nodes.client import ModelClient, Price

Prices = FrozenDict[str, tuple[Decimal, Decimal]]
"""What a token read and a token written cost, by the place of a model."""


class Place(NamedTuple):
    """Where a model stands in a graph.

    Attributes:
        text: the names on the way to its agent, and its number in the agent, if it is a fallback.
        graph: the id of the graph that the agent stands in.
        agent: the agent's name.
        number: 0 for the agent's own model, then the fallbacks.
        model: the model.
    """

    text: str
    graph: int
    agent: str
    number: int
    model: ModelClient


def places_of(graph: Graph[Any]) -> tuple[Place, ...]:
    """Return every model of a graph and of the graphs inside it; kept with the graph, which is a value."""
    kept: tuple[Place, ...] | None = graph.__dict__.get("_places")
    if kept is None:
        found: list[Place] = []
        _collect(graph, "", found, set())
        kept = graph.__dict__["_places"] = tuple(found)
    return kept


def readiness_of(graph: Graph[Any]) -> tuple[Callable[[], None], ...]:
    """Return what looks whether a model can be asked, of each model that has it; kept with the graph."""
    kept: tuple[Callable[[], None], ...] | None = graph.__dict__.get("_readiness")
    if kept is None:
        models: dict[int, Place] = {}
        for place in places_of(graph):
            models.setdefault(id(place.model), place)
        found = [(place, getattr(place.model, "ready", None)) for place in models.values()]
        kept = tuple(functools.partial(_ready, place, look) for place, look in found if look is not None)
        graph.__dict__["_readiness"] = kept
    return kept


def _ready(place: Place, look: Callable[[], None]) -> None:
    """Look whether a model can be asked.

    Raises:
        UsageError: if it cannot, naming the first agent that has it.
    """
    try:
        look()
    except UsageError as error:
        msg = f"the agent {place.text!r}: {error}"
        raise UsageError(msg) from error


MOST = 10_000
"""How many places are told apart; beyond, one graph that stands in several places counts once."""


def _collect(graph: Graph[Any], above: str, places: list[Place], seen: set[int]) -> None:
    """Add the models of a graph, at each of its places: an equal graph may stand there when the run is read."""
    if id(graph) in seen and len(places) >= MOST:
        return
    seen.add(id(graph))
    for name, node in sorted(graph.nodes.items()):
        text = f"{above}{path_text((Segment(name),))}"
        if isinstance(node, Graph):
            _collect(cast("Graph[Any]", node), f"{text}/", places, seen)
        elif isinstance(node, Agent):
            places += [
                Place(f"{text}~{number}" if number else text, id(graph), name, number, model)
                for number, model in enumerate(node.models)
            ]


def prices_of(graph: Graph[Any]) -> Prices:
    """Return what the models of a graph cost now; those of which nobody knows are left out."""
    found = {place.text: price for place in places_of(graph) if (price := getattr(place.model, "price", None))}
    return FrozenDict({text: (price.input, price.output) for text, price in found.items()}) if found else NO_PRICES


NO_PRICES: Prices = FrozenDict({})


def by_agent(graph: Graph[Any], prices: Prices) -> dict[tuple[int, str, int], Price]:
    """Return recorded prices by the id of an agent's graph, its name, and the number of the model."""
    return {
        (place.graph, place.agent, place.number): Price(*prices[place.text])
        for place in places_of(graph)
        if place.text in prices
    }
