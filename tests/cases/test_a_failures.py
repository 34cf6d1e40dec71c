"""Cases A: what fails in one branch, and what becomes of the others."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

from graphflow import (
    END,
    START,
    Call,
    Context,
    Delegate,
    Graph,
    Report,
    State,
    Step,
    Update,
    append,
    fork,
    node,
    when,
)
from graphflow.nodes.function import FunctionNode
from tests.cases.helpers import play


class Notes(Context):
    """What the branches leave behind."""

    notes: Annotated[tuple[str, ...], append] = ()
    rounds: int = 0


class Broken(Exception):
    """A failure of a user's own, with a field of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"broken with code {code}")
        self.code = code


def sleeper(name: str, seconds: float, value: object = None) -> FunctionNode[Context]:
    """A node that takes its time, then gives a value."""

    @node(name=name)
    async def wait(state: State[Context], step: Step) -> object:
        await step.sleep(seconds)
        return value

    return wait


def raiser(name: str, error: BaseException, seconds: float = 0.0) -> FunctionNode[Context]:
    """A node that takes its time, then raises."""

    @node(name=name)
    async def fail(state: State[Context], step: Step) -> None:
        if seconds:
            await step.sleep(seconds)
        raise error

    return fail


@node
async def source(state: State[Context]) -> None:
    """Leads to the fork."""


@node
async def end(state: State[Context]) -> tuple[Any, ...]:
    """Shows what arrived."""
    return state.values


def no_output(state: State[Notes]) -> None:
    """A graph whose branches meet only at END has no output of its own."""


# --- A1 --------------------------------------------------------------------------------------------------------------


def in_a_fork(bad: FunctionNode[Context], slow: FunctionNode[Context]) -> Graph[Notes]:
    """Two branches that meet in a node."""
    return Graph("main", START >> source >> (bad, slow) >> end, end >> END, context=Notes)


def in_a_fork_at_the_end(bad: FunctionNode[Context], slow: FunctionNode[Context]) -> Graph[Notes]:
    """Two branches that meet at END."""
    return Graph("main", START >> source >> (bad, slow) >> END, context=Notes, leave=no_output)


def in_a_nested_fork(bad: FunctionNode[Context], slow: FunctionNode[Context]) -> Graph[Notes]:
    """One of the two branches is a graph."""
    inner = Graph("inner", START >> bad >> END, context=Notes)
    return Graph("main", START >> source >> (inner, slow) >> end, end >> END, context=Notes)


Shape = Callable[[FunctionNode[Context], FunctionNode[Context]], Graph[Notes]]
FORKS: list[Shape] = [in_a_fork, in_a_fork_at_the_end, in_a_nested_fork]


@pytest.mark.parametrize("shape", FORKS)
async def test_a1_a_stray_cancellation_of_one_branch_is_its_failure(shape: Shape) -> None:
    """A body that was cancelled although nobody asked for it fails its node, and the run with it."""
    graph = shape(raiser("p", asyncio.CancelledError()), sleeper("q", 0.2, 1))

    played = await play(graph, Notes())

    assert played.result.status == "failed"
    assert played.reason.code == "stray_cancellation"
    assert played.reason.path.endswith("p")
    assert played.ended["q"] == "cancelled"
    assert played.events[-1].at < 0.1


# --- A3 --------------------------------------------------------------------------------------------------------------


async def test_a3_one_failing_branch_is_collected_beside_the_results() -> None:
    """With `collect` the join runs once, with the others' results and the failure as a report, in branch order."""
    p, q, r = sleeper("p", 0.01, "p"), raiser("q", ValueError("no luck"), 0.02), sleeper("r", 0.05, "r")
    graph = Graph("main", START >> source >> fork(p, q, r, failure="collect") >> end, end >> END, context=Notes)

    played = await play(graph, Notes())

    first, failure, last = played.result.output
    assert (first, last) == ("p", "r")
    assert isinstance(failure, Report)
    assert failure.reason is not None
    assert (failure.status, failure.reason.text, failure.reason.path) == ("failed", "no luck", "q")
    assert failure.reason.error_type == "ValueError"
    assert played.result.status == "partial"
    assert played.result.failures == (failure.reason,)
    assert played.started.count("end") == 1


async def test_a3_one_failing_branch_cancels_the_others_by_default() -> None:
    """With `fail_fast` the others are cancelled, the join does not run, and the very error is raised."""
    error = ValueError("no luck")
    p, q, r = sleeper("p", 0.01, "p"), raiser("q", error, 0.02), sleeper("r", 0.05, "r")
    graph = Graph("main", START >> source >> (p, q, r) >> end, end >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.error is error
    assert played.ended == {"source": "completed", "p": "completed", "q": "failed", "r": "cancelled"}
    assert played.result.status == "failed"


@pytest.mark.parametrize("failure", ["collect", "fail_fast"])
async def test_a3_the_policy_of_a_map_is_that_of_a_fork(failure: Literal["collect", "fail_fast"]) -> None:
    """A failed lane is collected in the order of the items, or cancels the other lanes."""

    @node
    async def lane(state: State[Context], step: Step) -> int:
        item = int(state.values[0])
        await step.sleep(item / 100)
        if item == 2:
            raise ValueError(item)
        return item

    def items(state: State[Context]) -> tuple[int, ...]:
        return (3, 2, 1)

    graph = Graph(
        "main",
        START >> source,
        source.map(lane, over=items, join=end, max_items=3, failure=failure),
        end >> END,
        context=Notes,
    )

    played = await play(graph, Notes())

    if failure == "collect":
        three, failed, one = played.result.output
        assert (three, failed.status, one) == (3, "failed", 1)
        assert failed.reason.path == "lane~1"
        assert played.result.status == "partial"
    else:
        assert isinstance(played.error, ValueError)
        assert played.ended == {
            "source": "completed",
            "lane~2": "completed",
            "lane~1": "failed",
            "lane~0": "cancelled",
        }


async def test_a3_every_branch_may_fail_and_the_join_still_runs() -> None:
    """Where all branches fail, `collect` runs the join with the failures alone."""
    p, q = raiser("p", ValueError("p")), raiser("q", KeyError("q"))
    graph = Graph("main", START >> source >> fork(p, q, failure="collect") >> end, end >> END, context=Notes)

    played = await play(graph, Notes())

    assert [report.reason.error_type for report in played.result.output] == ["ValueError", "KeyError"]
    assert played.result.status == "partial"


async def test_a3_the_updates_of_a_failed_branch_are_dropped() -> None:
    """What a branch wrote before it failed does not reach the join; what the others wrote does."""

    @node
    async def writes(state: State[Context]) -> Update:
        return Update(notes="lost")

    @node
    async def other(state: State[Context]) -> Update:
        return Update(notes="kept")

    bad = raiser("bad", ValueError("no"))
    graph = Graph(
        "main",
        START >> source >> fork(writes, other, failure="collect"),
        writes >> bad >> end,
        other >> end,
        end >> END,
        context=Notes,
    )

    played = await play(graph, Notes())

    assert played.result.context.notes == ("kept",)


# --- A5 --------------------------------------------------------------------------------------------------------------


def sequence(bad: FunctionNode[Context]) -> Graph[Notes]:
    """One node after another."""
    return Graph("main", START >> source >> bad >> END, context=Notes)


def branch(bad: FunctionNode[Context]) -> Graph[Notes]:
    """A branch beside one that is slow."""
    return Graph("main", START >> source >> (bad, sleeper("q", 1.0)) >> end, end >> END, context=Notes)


def deep(bad: FunctionNode[Context]) -> Graph[Notes]:
    """Two graphs deep in a branch."""
    inner = Graph("inner", START >> bad >> END, context=Notes)
    middle = Graph("middle", START >> source >> inner >> END, context=Notes)
    return Graph("main", START >> source >> (middle, sleeper("q", 1.0)) >> end, end >> END, context=Notes)


def lanes(bad: FunctionNode[Context]) -> Graph[Notes]:
    """In each lane of a map."""

    def items(state: State[Context]) -> tuple[int, ...]:
        return (1, 2)

    return Graph("main", START >> source, source.map(bad, over=items, join=end, max_items=2), end >> END, context=Notes)


def fork_in_a_fork(bad: FunctionNode[Context]) -> Graph[Notes]:
    """In a branch of a fork in a branch."""
    inner = source.named("inner") >> (bad, sleeper("r", 1.0)) >> end.named("meet")
    return Graph("main", START >> source >> (inner, sleeper("q", 1.0)) >> end, end >> END, context=Notes)


PLACES: dict[str, tuple[Callable[[FunctionNode[Context]], Graph[Notes]], str]] = {
    "sequence": (sequence, "bad"),
    "branch": (branch, "bad"),
    "two graphs deep in a branch": (deep, "middle/inner/bad"),
    "lane": (lanes, "bad~0"),
    "fork in a fork": (fork_in_a_fork, "bad"),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a5_the_same_error_arrives_unwrapped_from_everywhere(place: str) -> None:
    """The instance that a body raised comes out of the run, from however deep, with the path in its notes."""
    shape, path = PLACES[place]
    error = Broken(7)

    played = await play(shape(raiser("bad", error)), Notes())

    assert played.error is error
    assert isinstance(played.error, Broken)
    assert played.error.code == 7
    assert played.reason.path == path
    assert any(repr(path) in note for note in error.__notes__)
    assert not isinstance(played.error, BaseExceptionGroup)


@pytest.mark.parametrize("place", ["a node", "a graph"])
async def test_a5_the_error_of_a_callee_is_a_report_for_its_caller(place: str) -> None:
    """A delegation turns the failure into a report that names the node, and the caller goes on."""
    bad = raiser("bad", Broken(7))
    callee = bad if place == "a node" else Graph("bad", START >> bad.named("inner") >> END, context=Notes)

    @node
    async def boss(state: State[Notes]) -> Delegate | str:
        if state.turn == 0:
            return Delegate(Call("bad", "work"))
        (report,) = state.values
        return f"{report.status}: {report.reason.text}"

    graph = Graph("main", START >> boss >> END, boss.delegates(callee, max_hops=1), context=Notes, max_depth=1)

    played = await play(graph, Notes())

    assert played.result.output == "failed: broken with code 7"
    assert played.result.status == "partial"
    assert [failure.error_type for failure in played.result.failures] == ["Broken"]
    assert played.result.failures[0].path == ("boss/bad@0.0" if place == "a node" else "boss/bad@0.0/inner")


# --- A7 --------------------------------------------------------------------------------------------------------------


async def test_a7_a_hanging_sibling_does_not_hide_a_failure() -> None:
    """A sibling that would wait for ever is cancelled, and sees it."""
    seen: list[str] = []

    @node
    async def q(state: State[Context], step: Step) -> None:
        try:
            await step.sleep(1e6)
        except BaseException as cancelled:
            seen.append(type(cancelled).__name__)
            raise

    error = ValueError("at once")
    graph = Graph("main", START >> source >> (raiser("p", error, 0.01), q) >> END, context=Notes, leave=no_output)

    played = await play(graph, Notes())

    assert played.error is error
    assert seen in (["CancelledError"], ["Cancelled"])
    assert played.events[-1].at < 0.3


async def test_a7_a_failure_outside_ends_what_hangs_inside_a_graph() -> None:
    """A failing branch cancels a sibling graph whose own branches, and their callees, hang."""

    @node
    async def boss(state: State[Notes]) -> Delegate:
        return Delegate(Call("worker", "wait"))

    worker, twin = sleeper("worker", 1e6), sleeper("twin", 1e6)
    inner = Graph(
        "inner",
        START >> source >> (boss, twin) >> end,
        boss.delegates(worker, max_hops=1),
        end >> END,
        context=Notes,
    )
    graph = Graph(
        "main", START >> source >> (raiser("p", ValueError("p"), 0.01), inner) >> end, end >> END, context=Notes
    )

    played = await play(graph, Notes())

    assert played.ended == {
        "source": "completed",
        "p": "failed",
        "inner": "cancelled",
        "inner/source": "completed",
        "inner/boss": "cancelled",
        "inner/boss/worker@0.0": "cancelled",
        "inner/twin": "cancelled",
    }
    assert isinstance(played.error, ValueError)


# --- A11 -------------------------------------------------------------------------------------------------------------


async def test_a11_the_end_of_an_inner_loop_stops_nothing_outside() -> None:
    """A nested graph's loop ends by its default; the sibling completes, and both reach the join."""

    def again(state: State[Notes]) -> bool:
        return state.context.rounds < 3

    @node
    async def turn(state: State[Notes]) -> Update:
        return Update(rounds=state.context.rounds + 1)

    inner = Graph("loop", START >> turn, turn.choose(when(again, turn, max_hops=5), default=END), context=Notes)
    graph = Graph("main", START >> source >> (inner, sleeper("m", 0.1, "m")) >> end, end >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.status == "completed"
    assert played.started.count("loop/turn") == 3
    assert played.result.output == ("m",)
    assert played.result.context.rounds == 3


@pytest.mark.parametrize("failure", ["collect", "fail_fast"])
async def test_a11_a_handled_failure_in_a_branch_stops_nothing(failure: Literal["collect", "fail_fast"]) -> None:
    """What an error edge catches is no failure of the branch: the sibling goes on and the run is completed."""
    bad = raiser("bad", ValueError("no"))
    rescue = sleeper("rescue", 0.0, "rescued")
    graph = Graph(
        "main",
        START >> source >> fork(bad, sleeper("m", 0.1, "m"), failure=failure) >> end,
        bad.on_error(rescue, catch=ValueError),
        rescue >> end,
        end >> END,
        context=Notes,
    )

    played = await play(graph, Notes())

    assert played.result.status == "completed"
    assert played.result.output == ("rescued", "m")
