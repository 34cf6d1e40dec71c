"""Cases C: loops, what they carry round, and the bounds that end them."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from graphflow import END, START, Budget, Context, Graph, Human, State, Step, Update, append, node, on, when
from graphflow.errors import GraphProblems
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from tests.cases.helpers import play


class Loop(Context):
    """How often the loop has turned, and what its nodes saw."""

    rounds: int = 0
    seen: Annotated[tuple[tuple[str, ...], ...], append] = ()


def plain(name: str, seconds: float = 0.0, **options: Any) -> FunctionNode[Context]:
    """A node that takes its time, then gives its name."""

    @node(name=name, **options)
    async def say(state: State[Context], step: Step) -> str:
        if seconds:
            await step.sleep(seconds)
        return name

    return say


def counts(name: str, **options: Any) -> FunctionNode[Loop]:
    """A node that counts a round."""

    @node(name=name, **options)
    async def count(state: State[Loop]) -> Update:
        return Update(rounds=state.context.rounds + 1)

    return count


def before(rounds: int) -> Callable[[State[Loop]], bool]:
    """A condition that holds until so many rounds are over."""

    def more(state: State[Loop]) -> bool:
        return state.context.rounds < rounds

    return more


def always(state: State[Context]) -> bool:
    """Always holds."""
    return True


# --- C1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["bull", "bear"])
async def test_c1_a_join_in_a_loop_gets_the_messages_of_its_own_round(slow: str) -> None:
    """The merge runs once in each round, each time with exactly the two messages of that round."""

    def speaks(name: str) -> FunctionNode[Loop]:
        @node(name=name)
        async def speak(state: State[Loop], step: Step) -> str:
            if name == slow:
                await step.sleep(1.0)
            return f"{name} {state.context.rounds}"

        return speak

    @node
    async def merge(state: State[Loop]) -> Update:
        return Update(seen=state.values, rounds=state.context.rounds + 1)

    gate, bull, bear, act = plain("gate"), speaks("bull"), speaks("bear"), plain("act")
    graph = Graph(
        "debate",
        START >> gate >> (bull, bear) >> merge >> act,
        act.choose(when(before(3), gate, max_hops=2), default=END),
        context=Loop,
    )

    played = await play(graph, Loop())

    assert played.result.context.seen == (("bull 0", "bear 0"), ("bull 1", "bear 1"), ("bull 2", "bear 2"))
    assert played.started.count("merge") == 3
    assert played.result.status == "completed"


async def test_c1_a_map_in_a_loop_gets_the_items_of_its_own_round() -> None:
    """A map in a loop joins the lanes of each round on their own, and lanes of later rounds have paths of their own."""

    def items(state: State[Loop]) -> range:
        return range(state.context.rounds + 1)

    @node
    async def lane(state: State[Loop]) -> str:
        return f"{state.context.rounds}.{state.values[0]}"

    @node
    async def merge(state: State[Loop]) -> Update:
        return Update(seen=state.values, rounds=state.context.rounds + 1)

    gate = plain("gate")
    graph = Graph(
        "main",
        START >> gate,
        gate.map(lane, over=items, join=merge, max_items=3),
        merge.choose(when(before(3), gate, max_hops=5), default=END),
        context=Loop,
    )

    played = await play(graph, Loop())

    assert played.result.context.seen == (("0.0",), ("1.0", "1.1"), ("2.0", "2.1", "2.2"))
    assert "lane:3~0" in played.ended


async def test_c1_a_loop_inside_a_branch_keeps_its_round_to_itself() -> None:
    """A branch loops while its sibling waits at the join, which then runs once with the last output of the loop."""
    s, turn, done, other = plain("s"), counts("turn"), plain("done"), plain("other")

    @node
    async def j(state: State[Loop]) -> tuple[Any, ...]:
        return state.values

    graph = Graph(
        "main",
        START >> s >> (turn, other),
        turn.choose(when(before(4), turn, max_hops=9), default=done),
        (done, other) >> j >> END,
        context=Loop,
    )

    played = await play(graph, Loop())

    assert played.started.count("turn") == 4
    assert played.result.output == ("done", "other")
    assert played.result.context.rounds == 4


# --- C3, C9 ----------------------------------------------------------------------------------------------------------


async def test_c3_two_cycles_through_one_node() -> None:
    """A node that sends to B, then to C, then ends, runs three times."""
    script = ("b", "c", "stop")

    @node
    async def o(state: State[Loop]) -> str:
        return script[state.visit - 1]

    b, c = plain("b"), plain("c")
    graph = Graph(
        "main",
        START >> o,
        o.choose(on("b", b), on("c", c), default=END),
        (b, c) >> o,
        context=Loop,
        max_hops=20,
    )

    played = await play(graph, Loop())

    assert played.started == ["o", "b", "o", "c", "o"]
    assert played.result.output == "stop"


async def test_c9_a_finished_node_runs_again_over_a_back_edge() -> None:
    """Both nodes of a loop run once for each round."""
    a, b = plain("a"), counts("b")
    graph = Graph("main", START >> a >> b, b.choose(when(before(2), a, max_hops=1), default=END), context=Loop)

    played = await play(graph, Loop())

    assert played.started == ["a", "b", "a", "b"]
    assert played.ended == dict.fromkeys(["a", "b", "a:2", "b:2"], "completed")


async def test_c9_a_node_may_follow_itself() -> None:
    """A self-loop is a loop like any other."""
    n = counts("n")
    graph = Graph("main", START >> n, n.choose(when(before(3), n, max_hops=2), default=END), context=Loop)

    played = await play(graph, Loop())

    assert played.started == ["n", "n", "n"]
    assert played.result.status == "completed"


# --- C7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
async def test_c7_a_node_runs_exactly_its_maximum(limit: int) -> None:
    """The visit after the last allowed one ends the run, and the reason names the node and the limit."""
    n = plain("n", max_visits=limit)
    graph = Graph("main", START >> n, n.choose(when(always, n), default=END), context=Loop)

    played = await play(graph, Loop())

    assert played.started == ["n"] * limit
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_visits", limit)
    assert "'n'" in played.reason.text


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_c7_an_edge_is_taken_exactly_its_maximum(limit: int) -> None:
    """A case of a choose that is used up ends the run; it never falls through to the default."""
    n, other = plain("n"), plain("other")
    graph = Graph(
        "main", START >> n, n.choose(when(always, n, max_hops=limit), default=other), other >> END, context=Loop
    )

    played = await play(graph, Loop())

    assert played.started == ["n"] * (limit + 1)
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_hops", limit)


async def test_c7_the_hops_of_a_graph_are_bounded_together() -> None:
    """`max_hops` of a graph counts every edge that an activation takes, START's too."""
    a, b = plain("a"), plain("b")
    graph = Graph("main", START >> a >> b, b.choose(when(always, a), default=END), context=Loop, max_hops=4)

    played = await play(graph, Loop())

    assert played.started == ["a", "b", "a", "b"]
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_hops", 4)


@pytest.mark.parametrize("bound", ["visits", "edge", "graph"])
async def test_c7_a_run_that_ends_exactly_at_a_bound_succeeds(bound: str) -> None:
    """A bound refuses what is beyond it, not what reaches it."""
    n = counts("n", max_visits=3 if bound == "visits" else None)
    again = when(before(3), n, max_hops=2 if bound == "edge" else None)
    graph = Graph(
        "main",
        START >> n,
        n.choose(again, default=END),
        context=Loop,
        max_hops=4 if bound == "graph" else None,
    )

    played = await play(graph, Loop())

    assert played.result.status == "completed"
    assert played.refused == []
    assert played.started == ["n"] * 3


@pytest.mark.parametrize("place", ["sequence", "nested", "branch"])
async def test_c7_a_bound_goes_to_the_innermost_escalation(place: str) -> None:
    """Outside a fork a bound goes to `escalate`, through nested graphs too; in a branch it fails that branch."""

    @node
    async def rescue(state: State[Context]) -> str:
        return f"rescued from {state.values[0].reason.code} at {state.inbox[0].source}"

    n = plain("n", max_visits=2)
    statements: tuple[Chain[Any], ...] = (START >> n, n.choose(when(always, n), default=END))
    if place == "sequence":
        graph = Graph("main", *statements, context=Loop, escalate=rescue)
    else:
        inner = Graph("inner", *statements, context=Loop)
        if place == "nested":
            graph = Graph("main", START >> inner >> END, context=Loop, escalate=rescue)
        else:
            s, j = plain("s"), plain("j")
            graph = Graph("main", START >> s >> (inner, plain("other", 9.0)) >> j >> END, context=Loop, escalate=rescue)

    played = await play(graph, Loop())

    if place == "branch":
        assert (played.result.status, played.reason.code) == ("failed", "max_visits")
        assert "rescue" not in played.started
    else:
        source = "n" if place == "sequence" else "inner"
        assert played.result.output == f"rescued from max_visits at {source}"
        assert played.result.status == "completed"


async def test_c7_an_escalation_has_its_node_run_set_aside() -> None:
    """The budget that is used up keeps one node run for the escalation, and no more."""

    @node
    async def rescue(state: State[Context]) -> str:
        return f"rescued from {state.values[0].reason.code}"

    n = plain("n")
    graph = Graph(
        "main",
        START >> n,
        n.choose(when(always, n), default=END),
        context=Loop,
        max_hops=100,
        escalate=rescue,
    )

    played = await play(graph, Loop(), budget=Budget(node_runs=4))

    assert played.started == ["n", "n", "n", "rescue"]
    assert played.result.output == "rescued from node_runs"
    assert played.result.status == "completed"


async def test_c7_a_bound_hit_in_the_escalation_is_not_escalated_again() -> None:
    """An activation escalates once: a second bound ends the run."""
    n, rescue = plain("n", max_visits=1), plain("rescue", max_visits=1)
    graph = Graph(
        "main",
        START >> n,
        n.choose(when(always, n), default=END),
        rescue.choose(when(always, rescue), default=END),
        context=Loop,
        escalate=rescue,
    )

    played = await play(graph, Loop())

    assert played.started == ["n", "rescue"]
    assert (played.result.status, played.reason.code) == ("exhausted", "max_visits")


async def test_c7_a_person_may_be_the_escalation() -> None:
    """The run waits for the person, whose answer is the graph's output."""
    n = plain("n", max_visits=1)
    graph = Graph(
        "main",
        START >> n,
        n.choose(when(always, n), default=END),
        context=Loop,
        escalate=Human("human", "What now?", schema=str),
    )

    played = await play(graph, Loop(), answers={"What now?": "stop"})

    assert played.result.output == "stop"
    assert played.result.status == "completed"


async def test_c7_the_lanes_of_a_map_count_anew() -> None:
    """Each lane has counters of its own for the bounds inside it."""

    @node(max_visits=2)
    async def lane(state: State[Loop]) -> Update | None:
        return Update(rounds=state.context.rounds + 1)

    def items(state: State[Loop]) -> range:
        return range(3)

    s, j = plain("s"), plain("j")
    graph = Graph(
        "main",
        START >> s,
        s.map(lane, over=items, join=j, max_items=3),
        lane.choose(when(before(2), lane, max_hops=1), default=j),
        j >> END,
        context=Loop,
    )

    played = await play(graph, Loop())

    assert played.reason.code == "conflict"  # each lane wrote the plain field; none hit its bound
    assert played.refused == []
    assert played.started.count("lane") == 6


async def test_c7_a_nested_activation_counts_anew() -> None:
    """Each activation of a nested graph counts its hops and visits for itself."""
    n = plain("n", max_visits=1)
    inner = Graph("inner", START >> n >> END, context=Loop, max_hops=2)
    turn = counts("turn")
    graph = Graph(
        "main", START >> inner >> turn, turn.choose(when(before(3), inner, max_hops=2), default=END), context=Loop
    )

    played = await play(graph, Loop())

    assert played.result.status == "completed"
    assert played.started.count("inner/n") == 3


# --- C11 -------------------------------------------------------------------------------------------------------------


async def test_c11_a_cycle_without_a_bound_is_refused() -> None:
    """The run is refused before it starts, with the cycle's nodes; a bound on the edge mends it."""
    a, b = plain("a"), counts("b")

    def graph(max_hops: int | None) -> Graph[Loop]:
        back = when(before(2), a, max_hops=max_hops)
        return Graph("main", START >> a >> b, b.choose(back, default=END), context=Loop)

    with pytest.raises(GraphProblems) as caught:
        await play(graph(None), Loop())
    played = await play(graph(1), Loop())

    assert "unbounded-cycle" in str(caught.value)
    assert "'a'" in str(caught.value)
    assert "'b'" in str(caught.value)
    assert played.result.status == "completed"


@pytest.mark.parametrize("mended_by", ["edge", "node", "graph"])
async def test_c11_any_of_the_three_bounds_mends_a_cycle(mended_by: str) -> None:
    """An edge, a node or the graph may carry the bound."""
    n = counts("n", max_visits=9 if mended_by == "node" else None)
    again = when(before(2), n, max_hops=9 if mended_by == "edge" else None)
    graph = Graph(
        "main",
        START >> n,
        n.choose(again, default=END),
        context=Loop,
        max_hops=9 if mended_by == "graph" else None,
    )

    played = await play(graph, Loop())

    assert played.result.status == "completed"
