"""What a predicate may say of itself: how its edge is drawn, and why control wants to pass where a bound refuses."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from graphflow import END, START, Context, Graph, State, node, run_sync, when
from graphflow.errors import UsageError
from graphflow.nodes.edges import Explains, Labelled, explained
from graphflow.visualize import to_mermaid


class Case(Context):
    count: int = 0


@dataclass(frozen=True)
class Wanting:
    """Goes on, and says why."""

    label: str = "too few"

    def __call__(self, state: State[Case]) -> bool:
        return True

    def why(self, context: Case) -> str:
        return f"{context.count} of 3"


@dataclass(frozen=True)
class Quiet:
    """Goes on, and says nothing of itself."""

    def __call__(self, state: State[Case]) -> bool:
        return True


@node
async def work(state: State[Case]) -> str:
    """Answer something."""
    return "so"


def round_of(test: Any) -> Graph[Case]:
    """Return a graph that goes round while a predicate holds, once at most."""
    return Graph("g", START >> work, work.choose(when(test, work, max_hops=1), default=END), context=Case)


def plain(state: State[Case]) -> bool:
    """Go on."""
    return True


@pytest.mark.may_block
@pytest.mark.parametrize(
    ("test", "label", "why"),
    [(Wanting(), "too few", " (0 of 3)"), (Quiet(), "Quiet", ""), (plain, "plain", "")],
    ids=["both", "neither", "a function"],
)
def test_a_predicate_says_how_it_is_drawn_and_why_it_wants_to_pass(test: Any, label: str, why: str) -> None:
    """The label stands at the edge, the reason in that of the bound."""
    graph = round_of(test)

    result = run_sync(graph, Case())

    assert label in to_mermaid(graph)
    assert result.reason is not None
    assert result.reason.text == (
        f"the bound max_hops refuses a further hop over work -choose-> work{why}: its limit is 1."
    )


def test_the_types_tell_who_says_what() -> None:
    """Each has a type of its own: a predicate may do one and not the other."""
    assert isinstance(Wanting(), Labelled)
    assert isinstance(Wanting(), Explains)
    assert not isinstance(Quiet(), (Labelled, Explains))


async def slow(context: Case) -> str:
    """Say it too late."""
    await asyncio.sleep(0)
    return ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("label", 3, "its label is 3"), ("why", "so", "its why is 'so'"), ("why", slow, "it is called where nothing")],
)
def test_what_says_nothing_is_refused_where_the_edge_is_made(name: str, value: object, said: str) -> None:
    """A label that is no text, a why that is no plain function."""
    odd = type("Odd", (Quiet,), {name: staticmethod(value) if callable(value) else value})()

    with pytest.raises(UsageError, match=said):
        when(odd, work)


def test_a_why_that_raises_does_not_replace_the_bound() -> None:
    """The reason is the bound; that its explanation failed is said beside it."""

    class Broken(Quiet):
        def why(self, context: Case) -> str:
            msg = "no idea"
            raise LookupError(msg)

    assert explained(Broken(), Case()) == "its why raised LookupError: no idea"
    assert explained(Wanting(), Case(count=2)) == "2 of 3"
    assert not explained(None, Case())


@pytest.mark.may_block
def test_a_run_whose_bound_cannot_be_explained_ends_at_the_bound() -> None:
    """A why that raises ends no run otherwise than one that says something."""

    class Broken(Quiet):
        def why(self, context: Case) -> str:
            msg = "no idea"
            raise LookupError(msg)

    result = run_sync(round_of(Broken()), Case())

    assert result.status == "exhausted"
    assert result.reason is not None
    assert "(its why raised LookupError: no idea)" in result.reason.text
