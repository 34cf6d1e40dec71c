"""Cases H1, H3 and H5 with agents: shared budgets, a parent's limits, and the width and depth of a tree."""

import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    Price,
    State,
    Supervisor,
    ToolStep,
    fork,
    node,
    tool,
)
from graphflow.events import FrameOpened
from graphflow.model.budget import ADDITIVE
from graphflow.testing import call
from tests.cases.agents import Rules, Talk, asked, model_calls, play, results_in, says
from tests.cases.helpers import Played
from tests.support import examples

# --- H1 --------------------------------------------------------------------------------------------------------------


class Many(Context):
    """A context with items to share out."""

    question: str = "What now?"
    items: tuple[int, ...] = tuple(range(8))


def items(state: State[Many]) -> tuple[int, ...]:
    """Give the items."""
    return state.context.items


@tool
async def look(step: ToolStep, number: int) -> str:
    """Look at something for a while."""
    await step.sleep(number)
    return f"seen {number}"


def worker(name: str, chance: random.Random) -> Agent:
    """An agent that looks once, for a random time, and then answers; its model takes random turns of the loop."""
    waits = [chance.randrange(6) for _ in range(60)]

    async def respond(request: Any) -> Any:
        for _ in range(waits.pop() if waits else 0):
            await anyio.lowlevel.checkpoint()
        if request.messages[-1].role == "tool":
            return f"{name} is done"
        return call("look", number=chance.randrange(5))

    model = Rules(otherwise=respond, price=Price(Decimal("0.001"), Decimal("0.001")))
    return Agent(name, model=model, tools=[look], max_tokens=20)


Shape = Callable[[random.Random, Budget], Graph[Any]]


def forked(chance: random.Random, budget: Budget) -> Graph[Any]:
    """Eight agents at once."""
    workers = [worker(f"w{number}", chance) for number in range(8)]
    return Graph("g", START >> fork(*workers, failure="collect") >> Join("j") >> END, context=Many, budget=budget)


def mapped(chance: random.Random, budget: Budget) -> Graph[Any]:
    """One agent for each of eight items."""

    @node
    async def gate(_: State[Many]) -> None:
        """Let everything through."""

    join = Join("j")
    lanes = gate.map(worker("w", chance), over=items, join=join, max_items=8, failure="collect")
    return Graph("g", START >> gate, lanes, join >> END, context=Many, budget=budget)


def delegated(chance: random.Random, budget: Budget, share: Any = "pool") -> Graph[Any]:
    """A boss with a team of eight, two of them in a graph of their own, asked in one turn."""
    workers = [worker(f"w{number}", chance) for number in range(6)]
    inner = [worker(f"v{number}", chance) for number in range(2)]
    team = Graph("team", START >> fork(*inner, failure="collect") >> Join("j") >> END, context=Talk, leave=str)
    calls = [call(f"ask_{name}", objective="go") for name in ("w0", "w1", "w2", "w3", "w4", "w5", "team")]

    def lead(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else calls

    boss = Agent("boss", model=Rules(otherwise=lead), max_tokens=20)
    edges = boss.delegates(*workers, team, max_hops=1, share=share)
    return Graph("g", START >> boss >> END, edges, context=Many, budget=budget, max_depth=1)


SHAPES: list[Any] = [
    pytest.param(forked, id="fork"),
    pytest.param(mapped, id="map"),
    pytest.param(delegated, id="pool"),
    pytest.param(partial(delegated, share="equal"), id="equal"),
    pytest.param(partial(delegated, share=0.4), id="part"),
]


def within(played: Played[Any], bound: str, limit: Any) -> None:
    """No more was spent than the limit, and the parts sum up to the whole."""
    spent = played.result.spent
    assert getattr(spent.total, bound) <= limit
    for name in ADDITIVE:
        assert getattr(spent.total, name) == sum(getattr(part, name) for part in spent.by_node.values())


@settings(max_examples=examples(500))
@given(seed=st.integers(0, 2**32), parallel=st.sampled_from((None, 1, 3)))
async def test_h1_parallel_agents_never_overshoot(seed: int, parallel: int | None) -> None:
    """Five model calls for eight agents that need two: in every schedule five are made, and who is refused says so."""
    played = await play(forked(random.Random(seed), Budget(model_calls=5)), Many(), max_parallel=parallel)

    within(played, "model_calls", 5)
    assert len(model_calls(played)) == played.result.spent.total.model_calls == 5
    assert played.result.status == "partial"
    assert {(reason.code, reason.limit) for reason in played.result.failures} == {("model_calls", 5.0)}
    done = [value for value in played.result.output if isinstance(value, str)]
    assert len(played.result.failures) == 8 - len(done)
    assert len(done) <= 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("bound", "limit"), [("model_calls", 6), ("tool_calls", 3), ("node_runs", 4), ("tokens", 700), ("usd", "0.7")]
)
async def test_h1_holds_for_every_bound_and_every_way_to_run_at_once(shape: Shape, bound: str, limit: Any) -> None:
    """Forks, maps and teams, from the pool and from shares: each bound of the root holds over all of them."""
    for seed in range(examples(30)):
        graph = shape(random.Random(seed), Budget(**{bound: limit}))

        played = await play(graph, Many())

        within(played, bound, Decimal(limit))
        codes = {reason.code for reason in (*played.result.failures, *played.result.refused)} | {
            played.result.reason.code if played.result.reason else None
        }
        assert bound in codes
        assert played.result.status in {"partial", "completed", "exhausted"}


# --- H3 --------------------------------------------------------------------------------------------------------------


def nested(child: Agent, levels: int) -> Graph[Talk]:
    """A boss that asks a child, through some graphs between them."""
    target: Any = child
    for level in range(levels):
        target = Graph(f"level{level}", START >> target >> END, context=Talk)
    boss = says("boss", call(f"ask_{target.name}", objective="go"), "done")
    return Graph("g", START >> boss >> END, boss.delegates(target, max_hops=1), context=Talk, max_depth=1)


def looker(turns: int, **options: Any) -> Agent:
    """An agent that looks in every turn but the last."""
    return says("child", *[call("look", number=0)] * (turns - 1), "found it", tools=[look], **options)


@pytest.mark.parametrize("levels", [0, 2])
async def test_h3_a_child_may_use_what_its_parent_has(levels: int) -> None:
    """Thirty calls in the budget, fourteen turns for the child: it completes."""
    played = await play(nested(looker(14, max_turns=20), levels), Talk(), budget=Budget(model_calls=30))

    assert played.result.status == "completed"
    assert model_calls(played).count("child") == 14


@pytest.mark.parametrize("levels", [0, 2])
async def test_h3_a_child_is_stopped_by_what_its_parent_has_left(levels: int) -> None:
    """Nine calls are left: the child is stopped after nine, and its report names it and the limit."""
    graph = nested(looker(14, max_turns=20), levels)

    played = await play(graph, Talk(), budget=Budget(model_calls=10))

    assert model_calls(played).count("child") == 9
    assert (played.result.status, played.reason.code) == ("exhausted", "model_calls")  # the boss has no call left
    reason = next(found for found in played.result.refused if "child" in found.path)
    assert (reason.code, reason.limit) == ("model_calls", 10)


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("turns", [None, 3])
async def test_h3_a_child_has_its_own_declared_turns_too(levels: int, turns: int | None) -> None:
    """An agent's `max_turns` is 10 where nothing is said: that it is less than the parent's budget changes nothing."""
    child = looker(14) if turns is None else looker(14, max_turns=turns)
    graph = nested(child, levels)

    played = await play(graph, Talk(), budget=Budget(model_calls=30))

    assert model_calls(played).count("child") == (turns or 10)
    ((text, _),) = results_in(asked(graph.nodes["boss"]).messages)
    assert "max_turns" in text
    assert "child" in text
    assert played.result.status == "partial"


# --- H5 --------------------------------------------------------------------------------------------------------------


def twin(**options: Any) -> Graph[Talk]:
    """An agent that always delegates to two copies of itself."""

    def lead(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "all done"
        return [call("ask_twin", objective="left"), call("ask_twin", objective="right")]

    agent = Supervisor("twin", model=Rules(otherwise=lead))
    return Graph("g", START >> agent >> END, agent.delegates(agent, max_hops=99), context=Talk, **options)


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
    """Depth and node runs bound a recursion of agents; what a model is told says which bound refused it."""
    graph = twin(max_depth=depth, budget=Budget(node_runs=runs))

    played = await play(graph, Talk())

    assert len(played.started) == played.result.spent.total.node_runs == expected
    assert max(body.depth for body in played.of(FrameOpened)) <= depth
    model: Any = graph.nodes["twin"]
    refusals = {text for request in model.model.requests for text, failed in results_in(request.messages) if failed}
    assert any(text.startswith("not executed: ") and bound in text for text in refusals)
    assert played.result.status == "completed"
