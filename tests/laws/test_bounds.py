"""What counts bounds for the laws, on graphs in which it is not said whose branches a fork or a map opens."""

from collections.abc import Sequence
from typing import Any

import pytest

from graphflow import END, START, Context, Graph, State, fork, node, run_sync
from graphflow.events import EdgeTaken, Event, ScopeOpened
from graphflow.nodes.function import FunctionNode
from tests.laws.bounds import overruns


class Case(Context):
    items: int = 3


def says(name: str, **options: Any) -> FunctionNode[Any]:
    """A node that gives its name."""

    @node(name=name, **options)
    async def body(state: State[Any]) -> str:
        return name

    return body


def each(state: State[Case]) -> Sequence[int]:
    """Give the items."""
    return range(state.context.items)


A, B, J, K, LANE = says("a"), says("b"), says("j"), says("k"), says("lane", max_visits=1)
FORKED = Graph("inner", START >> fork(A, B) >> J >> END, context=Case, max_hops=9)
MAPPED = Graph("inner", START.map(LANE, over=each, join=J, max_items=3), J >> END, context=Case)


def around(inner: Graph[Any]) -> Graph[Any]:
    """A graph in which another one begins, forks and ends."""
    return Graph("g", START >> inner >> fork(says("c"), says("d")) >> K >> END, context=Case)


EVERY = [
    pytest.param(FORKED, id="a fork after START"),
    pytest.param(MAPPED, id="a map after START"),
    pytest.param(around(FORKED), id="a graph that forks, and one within that does"),
    pytest.param(around(MAPPED), id="a graph that forks, and one within that maps"),
]


def events_of(graph: Graph[Any]) -> list[Event]:
    """Run a graph, and return what happened."""
    events = list[Event]()
    assert run_sync(graph, Case(), listeners=[events.append]).status == "completed"
    return events


@pytest.mark.may_block
@pytest.mark.parametrize("graph", EVERY)
def test_a_run_within_its_bounds_exceeds_none(graph: Graph[Any]) -> None:
    """Whatever stands right after START, at the top and within."""
    assert list(overruns(graph, events_of(graph))) == []


@pytest.mark.may_block
@pytest.mark.parametrize("graph", [MAPPED, around(MAPPED)], ids=["at the top", "within"])
def test_a_map_after_start_with_too_many_lanes_is_told(graph: Graph[Any]) -> None:
    """It is counted by the bound of the map that opened them."""
    events = events_of(graph)
    scopes = [event for event in events if isinstance(event.body, ScopeOpened)]
    at = next(event for event in scopes if isinstance(event.body, ScopeOpened) and event.body.branches == 3)
    more = Event(at.run, at.seq, at.at, ScopeOpened(at.path, at.body.join, 4))  # type: ignore[union-attr]

    assert any("4 lanes" in one for one in overruns(graph, [more]))


@pytest.mark.may_block
def test_branches_of_a_fork_count_together() -> None:
    """Only lanes count anew: a hop more than the graph allows is told, however many branches there were."""
    events = events_of(FORKED)
    taken = [event for event in events if isinstance(event.body, EdgeTaken)]

    assert any("in (), which allows 9" in one for one in overruns(FORKED, [*events, *taken]))
