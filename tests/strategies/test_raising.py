"""A function that a team was given and that raises: its name, and that of the team, stand beside the path."""

import functools
from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow import END, START, Context, Graph, State, fork, node, run, strategies, teams
from graphflow.errors import UsageError
from graphflow.graphs.blaming import blamed
from graphflow.graphs.export import fingerprint
from tests.strategies.teams import agent, member

A, B = member("a"), member("b")


def raises(state: Any) -> Any:
    """Fail."""
    msg = f"no idea of {type(state).__name__}"
    raise LookupError(msg)


async def raises_later(state: Any) -> Any:
    """Fail, after it was waited for."""
    return raises(state)


def odd(state: Any) -> Any:
    """Give what nobody expects."""
    return "nobody of these"


def seven(state: Any) -> int:
    """Give a number."""
    return 7


Makes = Callable[[Any], Graph[Any]]

EVERY: Final[dict[str, tuple[str, Makes]]] = {
    "manual": ("decide", lambda fn: strategies.manual("t", A, B, turns=2, decide=fn)),
    "round_robin": ("until", lambda fn: strategies.round_robin("t", A, B, turns=2, until=fn)),
    "random": ("until", lambda fn: strategies.random("t", A, B, turns=2, seed=1, until=fn)),
    "sequential": ("gates['b']", lambda fn: strategies.sequential("t", A, B, gates={"b": fn})),
    "router": ("by", lambda fn: strategies.router("t", fn, A, B)),
    "orchestrator_workers": ("tier", lambda fn: teams.orchestrator_workers("t", agent("lead"), A, tier=fn)),
}


def within(team: Graph[Any]) -> Graph[Any]:
    """Return a graph in which a team stands."""
    return Graph("company", START >> team >> END, context=strategies.Task)


@pytest.mark.parametrize("place", ["alone", "inside"])
@pytest.mark.parametrize(("kind", "fn"), [*((kind, raises) for kind in EVERY), ("manual", raises_later)])
async def test_who_raised_is_named(kind: str, fn: Callable[[Any], Any], place: str) -> None:
    """The argument, the function and the team, and beside them the path; the exception is the one that was raised."""
    argument, make = EVERY[kind]
    team = make(fn)
    graph = team if place == "alone" else within(team)

    with pytest.raises(LookupError, match="no idea of") as caught:
        await run(graph, graph.context(task="what?"))

    who = f"{argument}={fn.__name__} of {kind}('t')"
    assert blamed(caught.value) == who
    assert caught.value.__notes__[0] == f"raised by {who}"
    assert f"of the graph {graph.name!r} in run" in caught.value.__notes__[-1]


@pytest.mark.parametrize("kind", ["manual", "round_robin", "sequential", "orchestrator_workers"])
async def test_who_gave_what_cannot_be_is_named_too(kind: str) -> None:
    """An answer that is none is the function's fault as much as an exception is."""
    argument, make = EVERY[kind]
    graph = make(odd if kind != "sequential" else seven)

    with pytest.raises(UsageError) as caught:
        await run(graph, graph.context(task="what?"))

    assert caught.value.__notes__[0].startswith(f"raised by {argument}=")
    assert caught.value.__notes__[0].endswith(f" of {kind}('t')")


async def test_a_members_own_exception_is_not_blamed_on_the_team() -> None:
    """Only what a function of the team's raised is."""
    graph = strategies.round_robin("t", member("a", fails="broken"), B, turns=2, until=lambda _: False)

    with pytest.raises(ValueError, match="broken") as caught:
        await run(graph, strategies.Conversation(task="what?"))

    assert not blamed(caught.value)
    assert len(caught.value.__notes__) == 1


class Mute(Exception):
    """An exception that takes no note."""

    def add_note(self, note: str) -> None:
        """Refuse it."""
        raise TypeError(note)


async def test_an_exception_that_takes_no_note_comes_out_as_it_is() -> None:
    """Whose it was cannot be said then; what it was can."""
    error = Mute("so")

    def mute(_: Any) -> str:
        raise error

    graph = strategies.manual("t", A, B, turns=2, decide=mute)

    with pytest.raises(Mute) as caught:
        await run(graph, strategies.Conversation(task="what?"))

    assert caught.value is error


def test_the_name_of_a_team_is_no_part_of_what_its_functions_do() -> None:
    """So that the mark of a stored run's graph is what it was before errors could name the team."""

    @node(name="x")
    async def x(state: State[Context]) -> str:
        return "so"

    def marks(where: str) -> object:
        found = strategies.manual("t", x, B, turns=2, decide=odd)
        floor = found.nodes["floor"]
        object.__setattr__(floor.fn, "where", where)  # type: ignore[attr-defined]
        return fingerprint(found)

    assert marks("manual('t')") == marks("manual('other')")


@pytest.mark.parametrize("kind", EVERY)
async def test_the_reason_names_who_raised(kind: str) -> None:
    """Where the exception itself does not come out, since somebody collects it, its reason says whose it was."""
    argument, make = EVERY[kind]
    team = make(raises)

    @node(name="sort_out")
    async def sort_out(state: State[Any]) -> str:
        return str(state.values[-1].reason.text)

    graph = Graph(
        "g", START >> fork(A, team, failure="collect") >> sort_out >> END, context=strategies.Task, max_depth=1
    )
    result = await run(graph, strategies.Task(task="what?"))

    assert f"{argument}=raises of {kind}('t') raised: no idea of" in str(result.output)


@pytest.mark.parametrize("argument", ["enter", "leave"])
async def test_the_ways_in_and_out_of_a_graph_are_named(argument: str) -> None:
    """Both are called outside any node."""
    given: dict[str, Any] = {argument: raises}
    inner = Graph("inner", START >> A >> END, context=strategies.Task, **given)

    result = await run(within(inner), strategies.Task(task="what?"))

    assert result.reason is not None
    assert f"{argument}=raises of Graph('inner') raised: no idea of State" in result.reason.text


async def test_who_splits_a_task_is_named() -> None:
    """It is called on an edge, so that the run fails and raises nothing."""
    graph = teams.map_reduce("t", raises, A, B, max_items=3)

    result = await run(graph, graph.context(task="what?"))

    assert result.reason is not None
    assert "split=raises of map_reduce('t') raised: no idea of State" in result.reason.text


async def test_what_a_function_was_given_is_not_told() -> None:
    """A partial function may hold a key, and where an object stands in memory differs between processes."""

    def asks(state: State[Any], *, api_key: str) -> str:
        msg = f"no idea after {len(api_key)}"
        raise LookupError(msg)

    class Ruler:
        def __repr__(self) -> str:
            raise ValueError

        def __call__(self, state: State[Any]) -> str:
            raise LookupError

    for rule, name in ((functools.partial(asks, api_key="sk-live-123"), "asks"), (Ruler(), "Ruler")):
        with pytest.raises(LookupError) as caught:
            await run(within(strategies.manual("t", A, B, decide=rule, turns=2)), strategies.Task(task="what?"))

        notes = " ".join(caught.value.__notes__)
        assert f"decide={name} of manual('t')" in notes
        assert "sk-live" not in notes
