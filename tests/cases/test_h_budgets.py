"""Cases H: shared budgets, depth, retries and deadlines hold over the whole tree."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    State,
    Step,
    fork,
    node,
)
from graphflow.events import EffectRequested, EffectStarted, NodeRetried, NodeStarted
from graphflow.model.budget import ADDITIVE
from tests.cases.helpers import Played, play
from tests.support import examples


class Nothing(Context):
    """A context without fields."""


class Many(Context):
    """A context with items to share out."""

    items: tuple[int, ...] = tuple(range(8))


def items(state: State[Many]) -> tuple[int, ...]:
    """Give the items."""
    return state.context.items


async def nothing() -> None:
    """Do nothing, outside."""


def caller(name: str, chance: random.Random, cost: Budget, calls: int = 2) -> Node[Any]:
    """Make a worker that makes calls of one cost after random delays."""
    delays = [chance.random() for _ in range(2 * calls)]

    async def work(_: State[Any], step: Step) -> str:
        for number in range(calls):
            await step.sleep(delays[2 * number])
            await step.effect(f"call {number}", step.sleep, delays[2 * number + 1], cost=cost)
        return name

    return node(name=name)(work)


Shape = Callable[[random.Random, Budget, Budget], Graph[Any]]


def forked(chance: random.Random, cost: Budget, budget: Budget) -> Graph[Any]:
    """Make a fork of eight workers."""
    workers = [caller(f"w{number}", chance, cost) for number in range(8)]
    return Graph(
        "forked", START >> fork(*workers, failure="collect") >> Join("j") >> END, context=Nothing, budget=budget
    )


def mapped(chance: random.Random, cost: Budget, budget: Budget) -> Graph[Any]:
    """Make a map over eight items."""

    @node
    async def gate(_: State[Many]) -> None:
        """Let everything through."""

    lane, join = caller("w", chance, cost), Join("j")
    statements = gate.map(lane, over=items, join=join, max_items=8, failure="collect")
    return Graph("mapped", START >> gate, statements, join >> END, context=Many, budget=budget)


def delegated(chance: random.Random, cost: Budget, budget: Budget, share: Any = "pool") -> Graph[Any]:
    """Make a boss that calls eight workers in one batch, of which half stand in a team of their own."""
    workers = [caller(f"w{number}", chance, cost) for number in range(6)]
    inner = [caller(f"v{number}", chance, cost) for number in range(2)]
    team = Graph("team", START >> fork(*inner, failure="collect") >> Join("j") >> END, context=Nothing, leave=_left)

    async def lead(state: State[Any]) -> Any:
        calls = [Call(worker.name, "go") for worker in (*workers, team)]
        return Delegate(*calls) if state.turn == 0 else Report(finding="done")

    boss = node(name="boss")(lead)
    delegation = boss.delegates(*workers, team, max_hops=1, share=share)
    return Graph("delegated", START >> boss >> END, delegation, context=Nothing, budget=budget)


def _left(state: State[Any]) -> str:
    return f"{len(state.inbox)} came"


SHAPES: list[Any] = [
    pytest.param(forked, id="fork"),
    pytest.param(mapped, id="map"),
    pytest.param(delegated, id="pool"),
    pytest.param(partial(delegated, share="equal"), id="equal"),
    pytest.param(partial(delegated, share=0.3), id="part"),
]


def within(played: Played[Any], bound: str, limit: int) -> None:
    """No more was spent than the limit, and the parts sum up to the whole."""
    spent = played.result.spent
    assert getattr(spent.total, bound) <= limit
    for name in ADDITIVE:
        assert getattr(spent.total, name) == sum(getattr(part, name) for part in spent.by_node.values())


@settings(max_examples=examples(250))
@given(seed=st.integers(0, 2**32), parallel=st.sampled_from((None, 1, 3)))
async def test_h1_parallel_workers_never_overshoot(seed: int, parallel: int | None) -> None:
    """Five calls for eight workers of two: in every schedule five are made, and who is refused says so."""
    graph = forked(random.Random(seed), Budget(model_calls=1), Budget(model_calls=5))

    played = await play(graph, Nothing(), max_parallel=parallel)

    within(played, "model_calls", 5)
    assert played.result.spent.total.model_calls == len(played.of(EffectStarted)) == 5
    assert played.result.status == "partial"
    assert {reason.code for reason in played.result.failures} == {"model_calls"}
    assert {reason.limit for reason in played.result.failures} == {5.0}
    assert len(played.result.failures) == 8 - len([v for v in played.result.output if isinstance(v, str)])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("bound", "cost", "limit"),
    [
        ("model_calls", Budget(model_calls=1), 5),
        ("tool_calls", Budget(tool_calls=2), 7),
        ("tokens", Budget(tokens=10), 55),
        ("usd", Budget(usd="0.5"), 2),
    ],
)
async def test_h1_holds_for_every_bound_and_every_way_to_run_at_once(
    shape: Shape, bound: str, cost: Budget, limit: int
) -> None:
    """Forks, maps and delegations, from the pool and from shares: each bound of the root holds over all of them."""
    for seed in range(examples(20)):
        graph = shape(random.Random(seed), cost, Budget(**{bound: limit}))

        played = await play(graph, graph.context())

        within(played, bound, limit)
        assert played.result.status == "partial"
        assert bound in {reason.code for reason in played.result.failures} | set(played.refused)


@pytest.mark.parametrize("shape", SHAPES)
async def test_h1_node_runs_never_overshoot(shape: Shape) -> None:
    """Attempts are counted before they start, joins included; what is refused is a bound."""
    for seed in range(examples(20)):
        graph = shape(random.Random(seed), Budget(), Budget(node_runs=4))

        played = await play(graph, graph.context())

        within(played, "node_runs", 4)
        assert len(played.of(NodeStarted)) <= 4
        assert "node_runs" in played.refused


def twin(**options: Any) -> Graph[Nothing]:
    """Make a graph of one node that always delegates to two copies of itself."""

    async def split(state: State[Nothing]) -> Any:
        if state.turn == 0:
            return Delegate(Call("twin", "left"), Call("twin", "right"))
        reasons = [message.value.reason for message in state.inbox if message.value.reason is not None]
        return Report(finding=", ".join(sorted({reason.code for reason in reasons})) or "all done")

    self_caller = node(name="twin")(split)
    return Graph(
        "g", START >> self_caller >> END, self_caller.delegates(self_caller, max_hops=99), context=Nothing, **options
    )


@pytest.mark.parametrize(
    ("depth", "runs", "expected", "bound"),
    [
        (3, 20, 15, "max_depth"),
        (3, 10, 10, "node_runs"),
        (2, 20, 7, "max_depth"),
        (1, 20, 3, "max_depth"),
        (9, 20, 20, "node_runs"),
    ],
)
async def test_h5_width_to_the_depth_is_bounded(depth: int, runs: int, expected: int, bound: str) -> None:
    """Depth and node runs bound a recursion; each refusal is a report that says which bound."""
    played = await play(twin(max_depth=depth, budget=Budget(node_runs=runs)), Nothing())

    assert len(played.of(NodeStarted)) == played.result.spent.total.node_runs == expected
    assert max(len(body.path) for body in played.of(NodeStarted)) <= depth + 1
    assert bound in played.refused
    assert played.result.status in {"completed", "partial"}


def test_h5_a_recursion_without_depth_is_refused_at_build() -> None:
    """Nothing bounds it, so it does not start."""
    assert "delegation-cycle" in [problem.code for problem in twin().check()]


def flaky(**options: Any) -> Node[Nothing]:
    """Make a node whose effect always fails."""

    async def broken() -> None:
        msg = "always"
        raise OSError(msg)

    async def work(_: State[Nothing], step: Step) -> None:
        await step.effect("tool", broken)

    return node(name="flaky", **options)(work)


def nested(levels: int, retries: int, budget: Budget) -> Graph[Nothing]:
    """Make a flaky node inside graphs inside each other, each with retries."""
    inner: Node[Any] = flaky(retries=retries)
    for level in range(levels):
        inner = Graph(f"level{level}", START >> inner >> END, context=Nothing, retries=retries)
    return Graph("root", START >> inner >> END, context=Nothing, budget=budget)


@pytest.mark.parametrize(("budget", "made"), [(5, 5), (0, 0), (None, 26), (26, 26)])
async def test_h9_retries_multiply_only_as_far_as_the_budget(budget: int | None, made: int) -> None:
    """Node times graph times graph, two retries each: 26 in all, and never more than a budget has."""
    played = await play(nested(2, 2, Budget(retries=budget)), Nothing())

    assert isinstance(played.error, OSError)
    assert len(played.of(NodeRetried)) == played.result.spent.total.retries == made
    assert len(played.of(EffectRequested)) <= made + 1


async def test_h9_the_error_shows_the_attempts_of_each_level() -> None:
    """The reason says how often each level tried, and that the budget refused more."""
    played = await play(nested(2, 3, Budget(retries=5)), Nothing())

    assert played.reason.code == "failed"
    assert played.reason.text.count("attempt") == 3
    assert "retries" in played.reason.text


async def test_h11_hung_children_do_not_eat_the_deadline() -> None:
    """Two children that hang lose a tenth of a second each, are reported as timed out, and the third delivers."""

    async def hang(_: State[Nothing], step: Step) -> None:
        await step.sleep(1000)

    async def fine(_: State[Nothing]) -> str:
        return "found it"

    async def lead(state: State[Nothing]) -> Any:
        if state.turn:
            reports.append(state.inbox[0].value)
        team = ("hang", "hang", "fine")
        return Delegate(Call(team[state.turn], "go")) if state.turn < 3 else Report(finding="three reports")

    reports: list[Report] = []
    boss = node(name="boss")(lead)
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(node(hang), max_hops=2, timeout=0.1),
        boss.delegates(node(fine), max_hops=1),
        context=Nothing,
        budget=Budget(seconds=1),
    )

    played = await play(graph, Nothing())

    assert [(report.status, report.reason and report.reason.code) for report in reports] == [
        ("failed", "timeout"),
        ("failed", "timeout"),
        ("done", None),
    ]
    assert played.result.status == "partial"
    assert round(played.events[-1].at, 9) == 0.2


async def test_h11_a_node_timeout_is_its_callers_report() -> None:
    """The same with the timeout on the node: the visit ends as timed out, the caller goes on."""

    async def hang(_: State[Nothing], step: Step) -> None:
        await step.effect("hang", step.sleep, 1000)

    async def lead(state: State[Nothing]) -> Any:
        return Delegate(Call("hang", "go")) if state.turn == 0 else state.inbox[0].value.reason.code

    boss = node(name="boss")(lead)
    graph = Graph(
        "g", START >> boss >> END, boss.delegates(node(name="hang", timeout=0.1)(hang), max_hops=1), context=Nothing
    )

    played = await play(graph, Nothing(), budget=Budget(seconds=1))

    assert played.result.output == "timeout"
    assert played.ended["boss/hang@0.0"] == "timed_out"
