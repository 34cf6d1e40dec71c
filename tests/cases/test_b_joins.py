"""Cases B: joins, and branches that are not taken, unequal, chained, empty or late."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from graphflow import (
    ANY,
    END,
    START,
    STRICT,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    Pause,
    Report,
    Skip,
    State,
    Step,
    Update,
    append,
    first,
    fork,
    node,
    on,
    quorum,
    run,
    start,
    when,
)
from graphflow.errors import InternalError
from graphflow.events import NodeReturned, RunStarted, ScopeClosed
from graphflow.model.budget import Budget
from graphflow.model.ids import Segment
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.advance import Fold
from graphflow.testing import ManualClock
from tests.cases.helpers import Played, play


class Notes(Context):
    """What the nodes write down."""

    notes: Annotated[tuple[str, ...], append] = ()
    pick: str = ""


def plain(name: str, seconds: float = 0.0) -> FunctionNode[Context]:
    """A node that takes its time, then gives its name."""

    @node(name=name)
    async def say(state: State[Context], step: Step) -> str:
        if seconds:
            await step.sleep(seconds)
        return name

    return say


def shows(name: str) -> FunctionNode[Context]:
    """A node that gives what arrived, sources too."""

    @node(name=name)
    async def show(state: State[Context]) -> tuple[tuple[str, Any], ...]:
        return tuple((message.source, message.value) for message in state.inbox)

    return show


def picks(name: str) -> Callable[[State[Notes]], bool]:
    """A condition that holds when the context picks a name."""

    def picked(state: State[Notes]) -> bool:
        return state.context.pick == name

    return picked


def never(state: State[Context]) -> bool:
    """Never holds."""
    return False


def once_each(played: Played[Any], *expected: str) -> bool:
    """Whether exactly these visits started, each once, in whatever order."""
    return sorted(played.started) == sorted(expected)


# --- B1 --------------------------------------------------------------------------------------------------------------


async def test_b1_a_branch_not_taken_is_skipped_and_the_join_goes_on() -> None:
    """The join runs with the taken branch alone, and what follows it runs too."""
    a, b, c, d = plain("a"), plain("b"), shows("c"), shows("d")
    graph = Graph(
        "main",
        START >> (when(picks("a"), a), when(picks("b"), b)),
        (a, b) >> c >> d >> END,
        context=Notes,
    )

    played = await play(graph, Notes(pick="a"))

    assert played.result.status == "completed"
    assert once_each(played, "a", "c", "d")
    assert played.result.output == (("c", (("a", "a"),)),)
    assert played.skipped["b"].code == "not_taken"


async def test_b1_a_node_behind_a_choice_waits_for_nothing() -> None:
    """A node that either of two alternatives leads to runs once, with the one that was chosen."""
    a, b, c, d = plain("a"), plain("b"), shows("c"), shows("d")
    graph = Graph(
        "main",
        START.choose(when(picks("a"), a), default=b),
        (a, b) >> c >> d >> END,
        context=Notes,
    )

    played = await play(graph, Notes(pick="a"))

    assert played.result.status == "completed"
    assert once_each(played, "a", "c", "d")
    assert played.result.output == (("c", (("a", "a"),)),)


async def test_b1_no_branch_taken_skips_the_join_and_finds_no_route() -> None:
    """Where no branch is taken the join is skipped with the reason, and the run has no route to END."""
    a, b, c = plain("a"), plain("b"), shows("c")
    graph = Graph("main", START >> (when(never, a), when(never, b)), (a, b) >> c >> END, context=Notes)

    played = await play(graph, Notes())

    assert (played.result.status, played.reason.code) == ("failed", "no_route")
    assert played.skipped["c"].code == "all_dead"
    assert played.started == []


# --- B3, B5, B7 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["a", "b", "b2"])
async def test_b3_a_join_waits_for_the_longer_branch(slow: str) -> None:
    """The join runs once, after the last of the longer branch, with both inputs in branch order."""
    s, a, b, b2 = (plain(name, 1.0 if name == slow else 0.0) for name in ("s", "a", "b", "b2"))
    j = shows("j")
    graph = Graph("main", START >> s >> (a, b >> b2) >> j >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("a", "a"), ("b2", "b2"))
    assert once_each(played, "s", "a", "b", "b2", "j")
    assert played.started[-1] == "j"


@pytest.mark.parametrize("slow", ["a", "b", "b2a"])
async def test_b5_a_node_with_plain_and_conditional_parents_runs_once(slow: str) -> None:
    """A node that is a branch itself and the end of another waits for the path that was chosen, and runs once."""
    a, b, b2a, b2b = (plain(name, 1.0 if name == slow else 0.0) for name in ("a", "b", "b2a", "b2b"))
    c = shows("c")
    graph = Graph(
        "main",
        START >> a >> (b, c),
        b.choose(when(picks("b2a"), b2a), default=b2b),
        (b2a, b2b) >> c >> END,
        context=Notes,
    )

    played = await play(graph, Notes(pick="b2a"))

    assert played.result.output == (("b2a", "b2a"), ("a", "a"))
    assert once_each(played, "a", "b", "b2a", "c")


async def test_b5_a_diamond_inside_a_branch_merges_before_the_join() -> None:
    """A node inside the region that two branches can reach waits for both and runs once, as one input of the join."""
    s, a, b, c = plain("s"), plain("a", 0.3), plain("b", 0.1), plain("c", 0.2)
    m, j = shows("m"), shows("j")
    graph = Graph("main", START >> s >> (a, b, c), (a, b) >> m >> j, c >> j >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("m", (("a", "a"), ("b", "b"))), ("c", "c"))
    assert once_each(played, "s", "a", "b", "c", "m", "j")


@pytest.mark.parametrize("slow", ["a", "b"])
@pytest.mark.parametrize("strict", [False, True])
async def test_b7_one_readiness_rule_whatever_finishes_first(slow: str, strict: bool) -> None:
    """A branch that ends on its own blocks no join; a strict join is skipped, with the reason, in either order."""
    s, a, b = (plain(name, 1.0 if name == slow else 0.0) for name in ("s", "a", "b"))
    c = Join("c", STRICT) if strict else Join("c")
    graph = Graph("main", START >> s >> (a, b), a.choose(when(never, c)), b >> c >> END, context=Notes)

    played = await play(graph, Notes())

    if strict:
        assert played.skipped["c"].code == "join_strict"
        assert "1 of 2" in played.skipped["c"].text
        assert (played.result.status, played.reason.code) == ("failed", "no_route")
    else:
        assert played.result.output == ("b",)
        assert once_each(played, "s", "a", "b", "c")


async def test_b7_a_strict_join_runs_when_every_declared_branch_arrives() -> None:
    """A strict join that has all its parents is a join like any other."""
    s, a, b = plain("s"), plain("a", 0.2), plain("b", 0.1)
    graph = Graph("main", START >> s >> (a, b) >> Join("c", STRICT) >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == ("a", "b")


async def test_b7_a_strict_join_inside_a_branch_ends_that_branch_alone() -> None:
    """A strict join that is skipped ends its token; the branches around it go on."""
    s, inner, x, y, other = plain("s"), plain("inner"), plain("x"), plain("y"), plain("other", 0.1)
    j = shows("j")
    graph = Graph(
        "main",
        START >> s >> (inner, other),
        inner >> (x, when(never, y)) >> Join("meet", STRICT) >> j,
        other >> j >> END,
        context=Notes,
    )

    played = await play(graph, Notes())

    assert played.result.output == (("other", "other"),)
    assert played.result.status == "completed"


# --- B9 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("items", "total"), [((1, 2, 3), 6), ((), 0), ((5,), 5)])
async def test_b9_the_join_of_a_map_runs_once(items: tuple[int, ...], total: int) -> None:
    """The join runs once with the sum, of no items too, and what follows runs once."""

    @node
    async def w(state: State[Context], step: Step) -> int:
        item = int(state.values[0])
        await step.sleep(1.0 / item)
        return item

    def over(state: State[Context]) -> tuple[int, ...]:
        return items

    s, e = plain("s"), shows("e")
    j = Join("j", reduce=sum)
    graph = Graph("main", START >> s, s.map(w, over=over, join=j, max_items=3) >> e >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("j", total),)
    assert once_each(played, "s", *["w"] * len(items), "j", "e")
    assert [closed.arrived for closed in played.of(ScopeClosed)] == [len(items)]


async def test_b9_arrivals_of_a_map_come_in_the_order_of_its_items() -> None:
    """However long each lane takes, its result stands where its item stood."""

    @node
    async def w(state: State[Context], step: Step) -> int:
        item = int(state.values[0])
        await step.sleep(item)
        return item * 10

    def over(state: State[Context]) -> list[int]:
        return [3, 1, 2]

    @node
    async def second(state: State[Context]) -> str:
        return f"{state.path[-1].lanes}: {state.values[0]}"

    s, e = plain("s"), shows("e")
    graph = Graph("main", START >> s, s.map(w >> second, over=over, join=e, max_items=3) >> END, context=Notes)

    played = await play(graph, Notes())

    assert [value for _, value in played.result.output] == ["(0,): 30", "(1,): 10", "(2,): 20"]


async def test_b9_a_map_inside_a_map_keeps_its_lanes_apart() -> None:
    """Each lane's own map has its own join, and nothing merges across lanes."""

    def rows(state: State[Context]) -> tuple[tuple[int, ...], ...]:
        return ((1, 2), (), (3,))

    def cells(state: State[Context]) -> tuple[int, ...]:
        return tuple(state.values[0])

    @node
    async def cell(state: State[Context], step: Step) -> int:
        await step.sleep(1.0 / int(state.values[0]))
        return int(state.values[0])

    @node
    async def row(state: State[Context]) -> Any:
        return state.values[0]

    s, total, table = plain("s"), Join("total", reduce=sum), Join("table")
    lane = row.map(cell, over=cells, join=total, max_items=2)
    graph = Graph("main", START >> s, s.map(lane, over=rows, join=table, max_items=3) >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (3, 0, 3)
    assert played.ended["cell~0.1"] == "completed"


async def test_b9_more_items_than_allowed_start_no_lane() -> None:
    """More than `max_items` is a bound hit at the map, before any lane starts."""

    def over(state: State[Context]) -> range:
        return range(4)

    s, w, e = plain("s"), plain("w"), shows("e")
    graph = Graph("main", START >> s, s.map(w, over=over, join=e, max_items=3) >> END, context=Notes)

    played = await play(graph, Notes())

    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_items", 3)
    assert played.started == ["s"]


# --- B11 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["x", "y", "z"])
async def test_b11_chained_joins_lose_nothing(slow: str) -> None:
    """The second join runs once and sees what all three branches gave, in the order in which they were declared."""
    s, x, y, z = (plain(name, 1.0 if name == slow else 0.0) for name in ("s", "x", "y", "z"))
    j1, j2 = shows("j1"), shows("j2")
    graph = Graph("main", START >> s >> (x, y, z), (x, y) >> j1 >> j2, z >> j2 >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("j1", (("x", "x"), ("y", "y"))), ("z", "z"))
    assert once_each(played, "s", "x", "y", "z", "j1", "j2")


async def test_b11_scopes_that_close_at_one_node_run_it_once() -> None:
    """A fork in a branch whose join is that of the outer fork closes first, and the node runs once with everything."""
    s, x, a, b, y = plain("s"), plain("x"), plain("a", 0.3), plain("b", 0.1), plain("y", 0.2)
    j = shows("j")
    graph = Graph("main", START >> s >> (x, y), x >> (a, b) >> j, y >> j >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("a", "a"), ("b", "b"), ("y", "y"))
    assert played.started.count("j") == 1


# --- B13 -------------------------------------------------------------------------------------------------------------


def halfway() -> Fold:
    """A fold in which one branch has arrived at the join and another still runs."""
    s, a, b, j = plain("s"), plain("a"), plain("b"), shows("j")
    graph = Graph("main", START >> s >> (a, b) >> j >> END, context=Notes)
    fold = Fold(graph)
    fold.advance(RunStarted("run", "main", "", Notes(), Budget(), None, hooked=False, wall=0.0), 0.0)
    fold.advance(NodeReturned((Segment("s"),), 0, 0), 0.0)
    fold.advance(NodeReturned((Segment("a"),), 0, 0, "a"), 0.0)
    return fold


def test_b13_a_run_in_which_a_node_still_waits_does_not_end() -> None:
    """A state in which nothing runs and a join waits is a bug of ours: the error names the join and what is missing."""
    fold = halfway()
    (lost,) = fold.visits.values()
    fold.visits.clear()
    lost.token.visit = None
    fold.busy = 0

    with pytest.raises(InternalError, match="stalled") as caught:
        fold.advance(NodeReturned((Segment("a"),), 0, 0, "again"), 0.0)

    assert "'j'" in str(caught.value)
    assert "'b'" in str(caught.value)
    assert fold.ended is None


# --- B15 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("losers", ["finish", "cancel"])
async def test_b15_the_slower_branch_of_an_any_join_completes_unless_cancelled(losers: Any) -> None:
    """The join goes on with the first; the late branch finishes by default and is cancelled only where that is said."""
    done: list[str] = []

    @node
    async def slow(state: State[Context], step: Step) -> str:
        await step.sleep(0.08)
        done.append("slow")
        return "slow"

    s, fast, e = plain("s"), plain("fast", 0.01), shows("e")
    graph = Graph("main", START >> s >> (fast, slow) >> Join("j", ANY, losers=losers) >> e >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == (("j", ("fast",)),)
    assert played.result.status == "completed"
    assert played.started.count("j") == 1
    assert done == (["slow"] if losers == "finish" else [])
    assert played.ended["slow"] == ("completed" if losers == "finish" else "cancelled")


async def test_b15_what_a_late_branch_wrote_or_raised_is_dropped() -> None:
    """A loser's updates do not reach the context, and its failure is an event only."""

    @node
    async def writer(state: State[Context], step: Step) -> Update:
        await step.sleep(0.2)
        return Update(notes="late")

    @node
    async def breaker(state: State[Context], step: Step) -> None:
        await step.sleep(0.1)
        raise ValueError("late")

    s, fast = plain("s"), plain("fast")
    graph = Graph("main", START >> s >> (writer, fast, breaker) >> Join("j", ANY) >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.status == "completed"
    assert played.result.context.notes == ()
    assert played.ended["breaker"] == "failed"
    assert played.ended["writer"] == "completed"


async def test_b15_the_first_two_of_three_and_their_order() -> None:
    """`first(2)` goes on with the first two that arrive, in branch order."""
    s, a, b, c = plain("s"), plain("a", 0.3), plain("b", 0.2), plain("c", 0.1)
    graph = Graph("main", START >> s >> (a, b, c) >> Join("j", first(2)) >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.output == ("b", "c")


@pytest.mark.parametrize("failure", ["collect", "fail_fast"])
async def test_b15_a_quorum_that_can_no_longer_be_met_fails(failure: Any) -> None:
    """When too few branches are left, or the time is over, the join is to blame, and an error edge may catch it."""

    @node
    async def breaker(state: State[Context]) -> None:
        raise ValueError("no")

    s, a = plain("s"), plain("a", 0.1)
    graph = Graph("main", START >> s >> fork(a, breaker, failure=failure) >> Join("j", quorum(2)) >> END, context=Notes)

    played = await play(graph, Notes())

    assert played.result.status == "failed"
    if failure == "collect":
        assert played.reason.code == "join_unmet"
        assert played.reason.path == "j"
    else:
        assert isinstance(played.error, ValueError)


async def test_b15_a_quorum_that_is_too_late_fails_and_can_be_handled() -> None:
    """`within=` ends the wait: what runs is cancelled, and the join's error edge is taken."""
    s, a, b, e = plain("s"), plain("a", 0.1), plain("b", 9.0), shows("e")
    j = Join("j", quorum(2, within=1.0))
    graph = Graph("main", START >> s >> (a, b) >> j >> e, j.on_error(e), e >> END, context=Notes)

    played = await play(graph, Notes())

    ((source, report),) = played.result.output
    assert source == "j"
    assert isinstance(report, Report)
    assert report.reason is not None
    assert report.reason.code == "join_unmet"
    assert played.ended["b"] == "cancelled"
    assert played.result.status == "completed"


# --- a scope inside a branch that fails at its join ------------------------------------------------------------------


class Plain(Context):
    """A field that branches may not share."""

    k: int = 0


def writes(name: str, value: int) -> FunctionNode[Context]:
    """A node that writes the plain field."""

    @node(name=name)
    async def write(state: State[Context]) -> Update:
        return Update(k=value)

    return write


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("cause", ["conflict", "unmet"])
async def test_b13_a_join_that_fails_in_a_branch_leaves_nobody_waiting(cause: str, handled: bool) -> None:
    """What waits in a sibling branch goes on when an inner join fails, handled or collected."""
    s, b, x, w, z = plain("s"), plain("b"), plain("x"), shows("w"), shows("z")
    if cause == "conflict":
        one, two, meet = writes("one", 1), writes("two", 2), Join("meet")
    else:

        @node(name="two")
        async def broken(state: State[Context]) -> None:
            raise ValueError("no")

        one, two, meet = plain("one"), broken, Join("meet", quorum(2))
    inner = plain("inner")
    graph = Graph(
        "main",
        START >> s >> fork(inner, b, failure="collect"),
        inner >> fork(one, two, failure="collect") >> meet >> z,
        inner.on_error(x),
        x >> w,
        b >> w >> z >> END,
        *((meet.on_error(z),) if handled else ()),
        context=Plain,
    )

    played = await play(graph, Plain())

    (source, report), late = played.result.output
    assert (source, report.status) == ("meet", "failed")
    assert report.reason.code == ("conflict" if cause == "conflict" else "join_unmet")
    assert late == ("w", (("b", "b"),))
    assert played.result.status == ("completed" if handled and cause == "conflict" else "partial")


# --- failures at a fork's first step ---------------------------------------------------------------------------------


@pytest.mark.parametrize("merges", [False, True])
async def test_b3_a_branch_whose_edge_is_used_up_is_a_failure_of_that_branch(merges: bool) -> None:
    """A bound on a fork's edge fails that branch alone, and the join hears that it came from the fork."""

    def always(state: State[Context]) -> bool:
        return True

    @node
    async def gate(state: State[Context]) -> str:
        return "gate"

    @node
    async def act(state: State[Context]) -> tuple[tuple[str, Any], ...]:
        return tuple((message.source, message.value) for message in state.inbox)

    def seen_twice(state: State[Context]) -> bool:
        return any(isinstance(value, Report) for _, value in state.values[0])

    a, b, c = plain("a"), plain("b"), plain("c")
    graph = Graph(
        "main",
        START >> gate >> fork(when(always, a, max_hops=1), b, *((c,) if merges else ()), failure="collect"),
        (a, b) >> act,
        *((c >> b,) if merges else ()),
        act.choose(when(seen_twice, END), default=gate),
        context=Notes,
        max_hops=20,
    )

    played = await play(graph, Notes())

    (source, report), rest = played.result.output
    assert (source, report.reason.code) == ("gate", "max_hops")
    assert rest == ("b", "b")
    assert played.started.count("act") == 2


async def test_b1_a_callee_takes_no_next_statement() -> None:
    """A node that a delegation entered reports to its caller, whatever statement leads on from it."""

    @node
    async def boss(state: State[Notes]) -> Delegate | str:
        return Delegate(Call("worker", "work")) if state.turn == 0 else f"got {state.values[0].finding}"

    worker, other = plain("worker"), plain("other")
    graph = Graph(
        "main",
        START.choose(on("never", worker), default=boss),
        boss >> END,
        worker >> (other, plain("more")) >> shows("meet") >> END,
        boss.delegates(worker, max_hops=1),
        context=Notes,
        max_depth=1,
    )

    played = await play(graph, Notes())

    assert played.result.output == "got worker"
    assert played.started == ["boss", "boss/worker"]


# --- conditions that raise -------------------------------------------------------------------------------------------


def broken(state: State[Any]) -> Any:
    """A condition, or the items of a map, that cannot be made."""
    raise LookupError("no such key")


def statement(kind: str, source: Any, join: Node[Any]) -> tuple[Chain[Any], ...]:
    """A statement whose condition raises."""
    a, b = plain("a"), plain("b")
    match kind:
        case "fork":
            return (source >> (when(broken, a), b), a >> join, b >> join)
        case "choose":
            return (source.choose(when(broken, a), default=b), a >> join, b >> join)
        case _:
            return (source.map(a, over=broken, join=join, max_items=2),)


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("kind", ["fork", "choose", "map"])
@pytest.mark.parametrize("place", ["node", "person", "join", "graph", "branch"])
async def test_b7_a_condition_that_raises_fails_the_node_that_its_edge_leaves(
    place: str, kind: str, caught: bool
) -> None:
    """The failure names the edge; the node's error edge may catch it, whatever kind of node it is."""
    j, x, s, q = shows("j"), plain("x"), plain("s"), plain("q")
    src: Node[Any] = plain("src")
    if place == "person":
        src = Human("src", "Yes?", schema=str)
    elif place == "join":
        src = Join("src")
    elif place == "graph":
        src = Graph("src", START >> plain("inside") >> END, context=Notes)
    before: tuple[Chain[Any], ...] = (START >> src,)
    if place == "join":
        before = (START >> s >> (plain("p"), q) >> src,)
    elif place == "branch":
        before = (START >> s >> fork(src, q, failure="collect"), q >> j)
    handled = (src.on_error(x, catch=LookupError), x >> j) if caught else ()
    graph = Graph("main", *before, *statement(kind, src, j), *handled, j >> END, context=Notes)

    played = await play(graph, Notes(), answers={"Yes?": "yes"})

    assert played.error is None
    assert played.ended["src"] == "failed"
    if caught:
        assert played.result.status == "completed"
        assert played.result.output[0] == ("x", "x")
    elif place == "branch":
        assert played.result.output[0][1].reason.error_type == "LookupError"
        assert played.result.status == "partial"
    else:
        assert (played.result.status, played.reason.path, played.reason.error_type) == ("failed", "src", "LookupError")
        assert "no such key" in played.reason.text
        assert "broken" in played.reason.text


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("kind", ["fork", "choose", "map"])
async def test_b7_a_condition_that_raises_after_a_skip_is_blamed_on_the_node(kind: str, caught: bool) -> None:
    """A node that the hook skipped did not run, but the edge that leaves it is still its own."""

    def hook(state: State[Any]) -> Skip | None:
        return Skip("not today") if state.path[-1].name == "src" else None

    j, x, src = shows("j"), plain("x"), plain("src")
    handled = (src.on_error(x), x >> j) if caught else ()
    graph = Graph("main", START >> src, *statement(kind, src, j), *handled, j >> END, context=Notes)

    result = await run(graph, Notes(), before=hook, clock=ManualClock())

    assert result.status == ("completed" if caught else "failed")
    if result.reason is not None:
        assert (result.reason.path, result.reason.error_type) == ("src", "LookupError")
        assert "broken" in result.reason.text


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["fork", "choose", "map"])
async def test_b7_a_condition_that_raises_at_start_fails_the_graph(kind: str, nested: bool) -> None:
    """START has no error edge: the graph fails, and a graph around it may catch that."""
    j, x = shows("j"), plain("x")
    graph = Graph("main", *statement(kind, START, j), j >> END, context=Notes)
    if nested:
        graph = Graph("outer", START >> graph >> END, graph.on_error(x), x >> END, context=Notes)

    played = await play(graph, Notes())

    if nested:
        assert played.result.output == "x"
        assert played.ended["main"] == "failed"
    else:
        assert (played.result.status, played.reason.error_type) == ("failed", "LookupError")
        assert "START" in played.reason.text


async def test_b15_a_quorum_that_is_met_holds_nothing_up() -> None:
    """The time of a quorum ends with its wait: a late branch that asks a person lets the run wait at once."""

    @node
    async def late(state: State[Context]) -> Pause | str:
        return Pause("q?") if state.turn == 0 else "late"

    s, fast, clock = plain("s"), plain("fast"), ManualClock()
    join = Join("j", quorum(1, within=3600))
    graph = Graph("main", START >> s >> (fast, late) >> join >> END, context=Notes)

    async with start(graph, Notes(), clock=clock) as handle:
        waiting = await handle.result()
        handle.answer(waiting.questions[0].id, "x")
        result = await handle.result()

    assert waiting.status == "waiting"
    assert clock.now() == 0
    assert (result.status, result.output) == ("completed", ("fast",))
