"""Cases G: what branches share, what they do not, and what the order of things may change."""

import random
import re
from collections.abc import Sequence
from typing import Annotated, Any

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
    Done,
    FrozenDict,
    Graph,
    Join,
    State,
    Step,
    Update,
    add,
    append,
    extend,
    fork,
    node,
    on,
    run_sync,
    union,
    when,
)
from graphflow.errors import ConflictError, GraphProblems
from graphflow.events import Event, SleepRequested
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ManualClock, canonical_trace
from tests.cases.helpers import play
from tests.support import examples


class Keys(Context):
    """Plain fields and fields with each reducer."""

    k: int = 0
    other: int = 0
    items: Annotated[tuple[str, ...], append] = ()
    many: Annotated[tuple[str, ...], extend] = ()
    total: Annotated[int, add] = 0
    tags: Annotated[frozenset[str], union] = frozenset()


def plain(name: str) -> FunctionNode[Context]:
    """A node that does nothing."""

    @node(name=name)
    async def nothing(state: State[Context]) -> None:
        return None

    return nothing


def writes(
    name: str, *, seconds: float = 0.0, declared: Sequence[str] | None = None, **fields: Any
) -> FunctionNode[Keys]:
    """A node that takes its time, then writes fields."""

    @node(name=name, writes=declared)
    async def write(state: State[Keys], step: Step) -> Update:
        if seconds:
            await step.sleep(seconds)
        return Update(**fields)

    return write


# --- G1 --------------------------------------------------------------------------------------------------------------


def forked(one: FunctionNode[Keys], two: FunctionNode[Keys]) -> Graph[Keys]:
    """The two are branches of a fork."""
    return Graph("main", START >> plain("s") >> (one, two) >> plain("j") >> END, context=Keys)


def merged(one: FunctionNode[Keys], two: FunctionNode[Keys]) -> Graph[Keys]:
    """The two meet at a node inside the region of a fork with a third branch."""
    c, m, j = plain("c"), plain("m"), plain("j")
    return Graph("main", START >> plain("s") >> (one, two, c), (one, two) >> m >> j, c >> j >> END, context=Keys)


def nested(one: FunctionNode[Keys], two: FunctionNode[Keys]) -> Graph[Keys]:
    """The two stand in graphs, which are the branches."""
    a, b = (Graph(f"in_{body.name}", START >> body >> END, context=Keys) for body in (one, two))
    return Graph("main", START >> plain("s") >> (a, b) >> plain("j") >> END, context=Keys)


def called(one: FunctionNode[Keys], two: FunctionNode[Keys]) -> Graph[Keys]:
    """The two are callees of one batch."""

    @node
    async def j(state: State[Keys]) -> Any:
        return Delegate(Call(one.name, "work"), Call(two.name, "work")) if state.turn == 0 else "never"

    def callee(body: FunctionNode[Keys]) -> FunctionNode[Keys]:
        @node(name=body.name)
        async def reports(state: State[Keys], step: Step) -> Any:
            return Done("done", await body.fn(state, step))

        return reports

    return Graph(
        "main", START >> j >> END, j.delegates(callee(one), callee(two), max_hops=1), context=Keys, max_depth=1
    )


SHAPES = {"fork": (forked, "j"), "merge": (merged, "m"), "nested": (nested, "j"), "batch": (called, "j")}


@pytest.mark.parametrize("values", [(1, 2), (2, 2)])
@pytest.mark.parametrize("place", SHAPES)
async def test_g1_two_branches_that_write_one_plain_field_conflict(place: str, values: tuple[int, int]) -> None:
    """Equal values too: the failure names the field and both writers, and the committed context is unchanged."""
    shape, blamed = SHAPES[place]
    one, two = writes("a", seconds=0.2, k=values[0]), writes("b", seconds=0.1, k=values[1])

    played = await play(shape(one, two), Keys(k=7))

    assert (played.result.status, played.reason.code, played.reason.error_type) == (
        "failed",
        "conflict",
        "ConflictError",
    )
    assert played.reason.path == blamed
    assert re.search(r"'k' .*\('[^']*\ba\b[^']*', '[^']*\bb\b[^']*'\)", played.reason.text)
    assert played.result.context == Keys(k=7)
    assert played.error is None


async def test_g1_a_conflict_can_be_caught_at_the_join() -> None:
    """The join is blamed, so its error edge catches `ConflictError`."""
    caught = plain("caught")
    j = plain("j")
    graph = Graph(
        "main",
        START >> plain("s") >> (writes("a", k=1), writes("b", k=2)) >> j >> END,
        j.on_error(caught, catch=ConflictError),
        caught >> END,
        context=Keys,
    )

    played = await play(graph, Keys())

    assert played.result.status == "completed"
    assert played.started == ["s", "a", "b", "caught"]
    assert played.result.context == Keys()


async def test_g1_one_branch_may_write_a_field_as_often_as_it_likes() -> None:
    """Writes of one branch after another are no conflict, and different fields never are."""
    graph = Graph(
        "main",
        START >> plain("s") >> (writes("a", k=1) >> writes("a2", k=2), writes("b", other=3)) >> plain("j") >> END,
        context=Keys,
    )

    played = await play(graph, Keys())

    assert played.result.context == Keys(k=2, other=3)


async def test_g1_two_lanes_that_write_one_plain_field_conflict() -> None:
    """Lanes of a map are branches too."""

    def items(state: State[Keys]) -> range:
        return range(2)

    s, j = plain("s"), plain("j")
    graph = Graph("main", START >> s, s.map(writes("w", k=1), over=items, join=j, max_items=2) >> END, context=Keys)

    played = await play(graph, Keys())

    assert played.reason.code == "conflict"
    assert "'w~0', 'w~1'" in played.reason.text


def test_g1_branches_that_declare_to_write_one_field_are_refused_at_build() -> None:
    """Where both say `writes=`, the graph is refused before it runs."""
    graph = forked(writes("a", declared=["k"], k=1), writes("b", declared=["k"], k=2))

    with pytest.raises(GraphProblems, match="writes-conflict"):
        run_sync(graph, Keys())


@pytest.mark.parametrize("slow", ["a", "b"])
async def test_g1_reducers_combine_in_branch_order(slow: str) -> None:
    """Fields with a reducer take both updates, in the order of the branches, whichever came first."""
    one = writes("a", seconds=float(slow == "a"), items="a", many=("a", "A"), total=1, tags=frozenset({"a"}))
    two = writes("b", seconds=float(slow == "b"), items="b", many=("b",), total=2, tags=frozenset({"b"}))

    played = await play(forked(one, two), Keys(items=("q",), total=10))

    assert played.result.context == Keys(
        items=("q", "a", "b"), many=("a", "A", "b"), total=13, tags=frozenset({"a", "b"})
    )


# --- G3 --------------------------------------------------------------------------------------------------------------


def eight(seconds: dict[str, float], order: Sequence[int]) -> Graph[Keys]:
    """A graph of eight nodes, forks and a loop in it, whose statements stand in a given order."""

    def body(name: str) -> FunctionNode[Keys]:
        @node(name=name, version="1")
        async def work(state: State[Keys], step: Step) -> Any:
            await step.sleep(seconds[name])
            values = tuple(str(value) for value in state.values)
            output = f"{name}:{state.visit}({','.join(values)})" if len(str(values)) < 200 else name
            return Done(output, Update(items=f"{name}:{state.visit}", total=state.visit))

        return work

    s, a, b, c, d, e, m, j = (body(name) for name in "sabcdemj")

    def again(state: State[Keys]) -> bool:
        return state.context.total < 40

    chains: list[Chain[Any]] = [
        START >> s,
        s >> (a, b, c),
        a >> m,
        b >> m,
        m >> (d, e),
        d >> j,
        e >> j,
        c >> j,
        j.choose(when(again, s, max_hops=3), default=END),
    ]
    return Graph("main", *(chains[position] for position in order), context=Keys)


def played_in(order: Sequence[int], seed: int) -> tuple[Keys, tuple[str, ...]]:
    """The final context and the canonical trace under some order of statements and some delays."""
    chance = random.Random(seed)
    events: list[Event] = []
    graph = eight({name: chance.randint(0, 5) / 1000 for name in "sabcdemj"}, order)
    result = run_sync(graph, Keys(), listeners=[events.append], clock=ManualClock())
    assert result.status == "completed"
    told = [event for event in events if not isinstance(event.body, SleepRequested)]  # they hold the delays
    assert len(told) < len(events)
    return result.context, canonical_trace(told)


@given(st.permutations(range(9)), st.integers(0, 10_000))
@settings(max_examples=examples(100))
def test_g3_neither_the_order_of_statements_nor_timing_changes_anything(order: list[int], seed: int) -> None:
    """One final state and one canonical trace for every order of the statements and every timing."""
    assert played_in(order, seed) == played_in(range(9), 0)


@given(st.permutations(range(9)))
@settings(max_examples=examples(50))
def test_g3_the_fingerprint_does_not_know_the_order_of_statements(order: list[int]) -> None:
    """The same statements in another order are the same graph."""
    seconds = dict.fromkeys("sabcdemj", 0.0)
    assert eight(seconds, order).fingerprint() == eight(seconds, range(9)).fingerprint()


# --- G5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sequence", "nested", "branch"])
async def test_g5_a_run_does_not_leak_into_the_next(place: str) -> None:
    """One graph run twice with one context ends equal, and the caller's own value is unchanged."""
    body = writes("w", items="x", total=1)
    if place == "sequence":
        graph = Graph("main", START >> body >> END, context=Keys)
    elif place == "nested":
        inner = Graph("inner", START >> body >> END, context=Keys)
        graph = Graph("main", START >> inner >> END, context=Keys)
    else:
        graph = Graph("main", START >> plain("s") >> (body, plain("b")) >> plain("j") >> END, context=Keys)
    given_context = Keys()

    first = await play(graph, given_context)
    second = await play(graph, given_context)

    assert first.result.context == second.result.context == Keys(items=("x",), total=1)
    assert given_context == Keys()
    assert first.started == second.started


async def test_g5_what_the_caller_changes_afterwards_is_not_seen() -> None:
    """A table given as a dict is copied into the frozen context."""

    class Table(Context):
        table: FrozenDict[str, int]

    @node
    async def read(state: State[Table]) -> int:
        return state.context.table["a"]

    mine = {"a": 1}
    context = Table.model_validate({"table": mine})
    mine["a"] = 2

    played = await play(Graph("main", START >> read >> END, context=Table), context)

    assert played.result.output == 1


# --- G9 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["p1", "q"])
async def test_g9_a_branch_sees_its_own_writes_at_once_and_no_others(slow: str) -> None:
    """The next step of a branch sees what it wrote, the sibling does not, and the join does."""
    seen: dict[str, int] = {}

    def reads(name: str, seconds: float = 0.0) -> FunctionNode[Keys]:
        @node(name=name)
        async def read(state: State[Keys], step: Step) -> None:
            await step.sleep(seconds)
            seen[name] = state.context.k

        return read

    p1 = writes("p1", seconds=float(slow == "p1"), k=1)
    graph = Graph(
        "main",
        START >> plain("s") >> (p1 >> reads("p2"), reads("q", 0.5)) >> reads("j") >> END,
        context=Keys,
    )

    await play(graph, Keys())

    assert seen == {"p2": 1, "q": 0, "j": 1}


async def test_g9_a_condition_sees_what_its_successor_would_see() -> None:
    """A predicate sees the node's update applied and the node's output as the inbox."""
    seen: list[tuple[int, tuple[Any, ...]]] = []

    def look(state: State[Keys]) -> bool:
        seen.append((state.context.k, tuple(state.inbox)))
        return True

    @node
    async def a(state: State[Keys]) -> Done:
        return Done("out", Update(k=5))

    b = plain("b")
    graph = Graph("main", START >> a, a.choose(when(look, b), default=END), b >> END, context=Keys)

    await play(graph, Keys())

    assert set(seen) == {(5, (("a", "out"),))}


@pytest.mark.parametrize("kind", ["field", "value", "reducer"])
async def test_g9_a_wrong_update_is_the_failure_of_its_producer(kind: str) -> None:
    """An unknown field, a value of the wrong type, or a reducer that raises fails the node that returned it."""

    def broken(old: int, new: int) -> int:
        raise ArithmeticError(new)

    class Odd(Context):
        number: int = 0
        odd: Annotated[int, broken] = 0

    updates = {"field": Update(nmber=1), "value": Update(number="many"), "reducer": Update(odd=1)}

    @node
    async def producer(state: State[Odd]) -> Update:
        return updates[kind]

    played = await play(Graph("main", START >> producer >> END, context=Odd), Odd())

    assert played.result.status == "failed"
    assert played.reason.path == "producer"
    assert played.reason.code == ("failed" if kind == "reducer" else "contract")
    assert played.result.context == Odd()


async def test_g9_an_inner_fork_starts_from_what_its_branch_wrote() -> None:
    """A fork in a branch sees the branch's writes; at its join they are kept, and the outer join has them all once."""
    meet = Join("meet")
    seen: list[tuple[str, ...]] = []

    @node
    async def look(state: State[Keys]) -> None:
        seen.append(state.context.items)

    inner = writes("x", items="x") >> (writes("y", items="y", seconds=0.2), writes("z", items="z")) >> meet >> look
    graph = Graph("main", START >> plain("s") >> (inner, writes("b", items="b")) >> plain("j") >> END, context=Keys)

    played = await play(graph, Keys(items=("q",)))

    assert seen == [("q", "x", "y", "z")]
    assert played.result.context.items == ("q", "x", "y", "z", "b")


async def test_g9_what_a_failed_attempt_would_have_written_is_lost() -> None:
    """An update belongs to the outcome that carried it: a failed attempt and a dead branch leave nothing."""
    dead, j = writes("dead", items="dead"), plain("j")

    @node(retries=1)
    async def unsure(state: State[Keys], step: Step) -> Update:
        if step.left.budget.retries == 1:
            raise ValueError("first attempt")
        return Update(items="second")

    graph = Graph(
        "main",
        START >> plain("s") >> fork(dead, unsure, failure="collect"),
        dead.choose(on("never", j)),
        unsure >> j >> END,
        context=Keys,
        budget=Budget(retries=1),
    )

    played = await play(graph, Keys())

    assert played.result.context.items == ("second",)
