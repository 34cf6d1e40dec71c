"""Cases D: graphs inside graphs, their names, and what crosses their boundaries."""

from typing import Annotated, Any

import pytest

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Pause,
    Report,
    State,
    Step,
    Update,
    append,
    node,
    start,
    when,
)
from graphflow.events import FrameClosed, FrameOpened, NodeStarted
from graphflow.model.ids import names, parse_path, path_text, selects
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ManualClock
from tests.cases.helpers import play


class Outer(Context):
    """The context around."""

    topic: str = ""
    results: Annotated[tuple[str, ...], append] = ()
    rounds: int = 0


class Inner(Context):
    """A context of another class, with fields that the outer one has too."""

    task: str = ""
    results: int = 0
    rounds: tuple[str, ...] = ()


def plain(name: str) -> FunctionNode[Context]:
    """A node that gives its name."""

    @node(name=name)
    async def say(state: State[Context]) -> str:
        return name

    return say


def appends(name: str, text: str, seconds: float = 0.0) -> FunctionNode[Outer]:
    """A node that appends a text to the results."""

    @node(name=name)
    async def write(state: State[Outer], step: Step) -> Update:
        if seconds:
            await step.sleep(seconds)
        return Update(results=text)

    return write


# --- D3 --------------------------------------------------------------------------------------------------------------


async def test_d3_names_that_share_a_prefix_are_told_apart() -> None:
    """Paths, selectors and the tables of the result match whole segments only."""
    child = Graph("child", START >> plain("step") >> END, context=Outer)
    sub = Graph("child_sub", START >> plain("step") >> END, context=Outer)
    graph = Graph("main", START >> child >> sub >> END, context=Outer)

    played = await play(graph, Outer())
    chosen = [body.path for body in played.of(NodeStarted) if selects(("child",), body.path)]

    assert [names(path) for path in chosen] == [("child",), ("child", "step")]
    assert played.result.spent.by_node["child/step"] == Budget(
        node_runs=1, model_calls=0, tool_calls=0, retries=0, tokens=0, usd=0
    )
    assert played.result.spent.total.node_runs == 4


@pytest.mark.parametrize("name", ["a/b", "a:2", "a~1", "a@0.1", "%2F", "child step", "ß\n\t\0"])
async def test_d3_any_text_is_a_name_and_its_path_can_be_read(name: str) -> None:
    """A name of any characters comes back from the text of its path, at every level."""
    inner = Graph(name, START >> plain(name) >> END, context=Outer)
    graph = Graph("main", START >> inner >> END, context=Outer)

    played = await play(graph, Outer())

    paths = [body.path for body in played.of(NodeStarted)]
    assert [names(path) for path in paths] == [(name,), (name, name)]
    assert [parse_path(path_text(path)) for path in paths] == paths


# --- D5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["enter", "default"])
async def test_d5_a_second_visit_of_a_graph_starts_from_its_own_beginning(way: str) -> None:
    """Each activation has a fresh context of the right type; the budget of the run goes on counting."""
    seen: list[tuple[Inner, int]] = []

    @node
    async def count(state: State[Inner]) -> Update:
        seen.append((state.context, state.left.budget.node_runs or 0))
        return Update(results=state.context.results + 1)

    def again(state: State[Inner]) -> bool:
        return state.context.results < 2

    def more(state: State[Outer]) -> bool:
        return state.context.rounds < 2

    def enter(state: State[Outer]) -> Inner:
        return Inner(task="go")

    @node
    async def turn(state: State[Outer]) -> Update:
        return Update(rounds=state.context.rounds + 1)

    inner = Graph(
        "inner",
        START >> count,
        count.choose(when(again, count, max_hops=9), default=END),
        context=Inner,
        enter=enter if way == "enter" else None,
    )
    graph = Graph(
        "main",
        START >> plain("go") >> inner >> turn,
        turn.choose(when(more, inner, max_hops=1), default=END),
        context=Outer,
        budget=Budget(node_runs=20),
    )

    played = await play(graph, Outer())

    task = "go" if way == "enter" else ""
    assert [(context.task or task, context.results) for context, _ in seen] == [
        ("go", 0),
        ("go", 1),
        (task, 0),
        (task, 1),
    ]
    left = [budget for _, budget in seen]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == 4
    assert played.result.context == Outer(rounds=2)
    assert "inner:2/count:2" in played.ended


async def test_d5_a_graph_that_is_tried_again_starts_from_its_own_beginning() -> None:
    """A retry of a nested graph drops what the failed attempt wrote, and its visits have paths of their own."""

    @node
    async def unsure(state: State[Outer]) -> Update:
        if len(state.context.results) < 2 and state.visit == 1:
            raise ValueError("no")
        return Update(results="second")

    inner = Graph("inner", START >> appends("first", "first") >> unsure >> END, context=Outer, retries=1)
    graph = Graph("main", START >> inner >> END, context=Outer)

    played = await play(graph, Outer())

    assert played.result.status == "completed"
    assert played.result.context.results == ("first", "second")
    assert played.ended == {
        "inner": "completed",
        "inner/first": "completed",
        "inner/unsure": "failed",
        "inner/first:2": "completed",
        "inner/unsure:2": "completed",
    }
    assert played.result.spent.total.retries == 1
    assert {name: spent.node_runs for name, spent in played.result.spent.by_node.items()} == {
        "inner": 2,
        "inner/first": 2,
        "inner/unsure": 2,
    }


# --- D7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_d7_two_calls_of_one_graph_pause_and_get_their_own_answers(order: tuple[int, int]) -> None:
    """Two activations of one graph in one batch ask each its question, and each answer reaches the one that asked."""

    @node
    async def ask(state: State[Inner]) -> Pause | str:
        if state.turn == 0:
            return Pause(f"what about {state.context.task}?", schema=int)
        return f"{state.context.task} is {state.values[0]}"

    g = Graph("g", START >> ask >> END, context=Inner)

    @node
    async def n(state: State[Outer]) -> Any:
        if state.turn == 0:
            return Delegate(Call("g", "one"), Call("g", "two"))
        return tuple(report.finding for report in state.values)

    graph = Graph("main", START >> n >> END, n.delegates(g, max_hops=2), context=Outer, max_depth=1)

    async with start(graph, Outer(), clock=ManualClock()) as run:
        waiting = await run.result()
        assert waiting.status == "waiting"
        assert [question.text for question in waiting.questions] == ["what about one?", "what about two?"]
        for position in order:
            run.answer(waiting.questions[position].id, position + 1)
            await run.result()
        result = await run.result()

    assert result.output == ("one is 1", "two is 2")
    assert result.status == "completed"


# --- D9 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["c1", "c2"])
async def test_d9_parallel_graphs_do_not_double_what_was_there(slow: str) -> None:
    """Updates flow out of nested graphs, never final values: each adds its own item, in branch order."""
    one = Graph("one", START >> appends("w", "c1", float(slow == "c1")) >> END, context=Outer)
    two = Graph("two", START >> appends("w", "c2", float(slow == "c2")) >> END, context=Outer)
    graph = Graph("main", START >> plain("s") >> (one, two) >> plain("j") >> END, context=Outer)

    played = await play(graph, Outer(results=("q",)))

    assert played.result.context.results == ("q", "c1", "c2")


async def test_d9_updates_flow_out_through_every_level() -> None:
    """A graph in a graph in a branch, a fork inside it, and a lane: what each wrote arrives once, in order."""
    deep = Graph(
        "deep",
        START >> plain("s") >> (appends("x", "x", 1.0), appends("y", "y")) >> plain("j") >> END,
        context=Outer,
    )
    middle = Graph(
        "middle", START >> appends("first", "first") >> deep >> appends("last", "last") >> END, context=Outer
    )

    def items(state: State[Outer]) -> range:
        return range(2)

    lane = appends("lane", "lane")
    meet = plain("meet")
    side = plain("side")
    end = plain("join")
    graph = Graph(
        "main",
        START >> plain("begin") >> (middle, side),
        side.map(lane, over=items, join=meet, max_items=2) >> end >> END,
        middle >> end,
        context=Outer,
    )

    played = await play(graph, Outer(results=("q",)))

    assert played.result.context.results == ("q", "first", "x", "y", "last", "lane", "lane")


async def test_d9_a_delegated_graph_keeps_its_context_to_itself() -> None:
    """By delegation a graph has a fresh context even of the caller's class, and it dies with its frame."""

    @node
    async def inside(state: State[Outer]) -> str:
        return f"{state.context.topic}, {len(state.context.results)} results"

    team = Graph("team", START >> appends("w", "lost") >> inside >> END, context=Outer)

    @node
    async def boss(state: State[Outer]) -> Any:
        return Delegate(Call("team", "the objective")) if state.turn == 0 else state.values[0].finding

    graph = Graph("main", START >> boss >> END, boss.delegates(team, max_hops=1), context=Outer, max_depth=1)

    played = await play(graph, Outer(results=("q",)))

    assert played.result.output == "the objective, 1 results"
    assert played.result.context.results == ("q",)


# --- what a nested graph gives and takes -----------------------------------------------------------------------------


class NoText(Context):
    """A first field that is no text, though text stands in its type."""

    words: tuple[str, ...] = ()
    task: str = "none"


@pytest.mark.parametrize("kind", [Inner, NoText])
async def test_d5_the_first_field_takes_the_text_if_it_is_a_str(kind: type[Context]) -> None:
    """A fresh context's first field gets the objective if it is a str, and nothing otherwise."""

    @node
    async def show(state: State[Context]) -> str:
        return repr(state.context)

    team = Graph("team", START >> show >> END, context=kind)

    @node
    async def boss(state: State[Outer]) -> Any:
        return Delegate(Call("team", "work")) if state.turn == 0 else state.values[0].finding

    graph = Graph("main", START >> boss >> END, boss.delegates(team, max_hops=1), context=Outer, max_depth=1)

    played = await play(graph, Outer())

    assert played.result.output == repr(Inner(task="work") if kind is Inner else NoText())


async def test_d5_leave_makes_the_output_and_into_takes_it_out() -> None:
    """`leave=` sees the context at END; `into=` writes the output into the context around."""

    @node
    async def work(state: State[Inner]) -> Update:
        return Update(results=41)

    def leave(state: State[Inner]) -> str:
        return f"result {state.context.results + 1}"

    inner = Graph("inner", START >> work >> END, context=Inner, leave=leave, into="results")
    graph = Graph("main", START >> inner >> END, context=Outer)

    played = await play(graph, Outer())

    assert played.result.output == "result 42"
    assert played.result.context.results == ("result 42",)


@pytest.mark.parametrize("part", ["enter", "leave", "output"])
async def test_d5_what_fails_at_the_boundary_is_the_graphs_failure(part: str) -> None:
    """A raising `enter=` or `leave=`, or an output of the wrong type, fails the nested graph's node."""

    def broken(state: State[Any]) -> Any:
        raise LookupError(part)

    inner = Graph(
        "inner",
        START >> plain("step") >> END,
        context=Inner,
        enter=broken if part == "enter" else None,
        leave=broken if part == "leave" else None,
        output=int if part == "output" else None,
    )
    caught = plain("caught")
    graph = Graph("main", START >> inner >> END, inner.on_error(caught), caught >> END, context=Outer)

    played = await play(graph, Outer())

    assert played.result.output == "caught"
    assert played.ended["inner"] == "failed"
    assert played.result.status == "completed"


async def test_d7_every_frame_that_opens_closes_once() -> None:
    """A nested graph and a delegation open a frame each, at their depth, and each closes once."""
    inner = Graph("inner", START >> plain("step") >> END, context=Inner)
    team = Graph("team", START >> inner >> END, context=Inner)

    @node
    async def boss(state: State[Outer]) -> Any:
        return Delegate(Call("team", "work"), Call("worker", "work")) if state.turn == 0 else len(state.values)

    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(team, plain("worker"), max_hops=2),
        context=Outer,
        max_depth=1,
    )

    played = await play(graph, Outer())

    opened = {path_text(body.path): body.depth for body in played.of(FrameOpened)}
    closed = [path_text(body.path) for body in played.of(FrameClosed)]
    assert opened == {"boss/team@0.0": 1, "boss/team@0.0/inner": 1, "boss/worker@0.1": 1}
    assert sorted(closed) == sorted(opened)
    reports = {path_text(body.path): body.report for body in played.of(FrameClosed)}
    assert reports["boss/team@0.0"] == Report(finding="step")
    assert played.result.output == 2
