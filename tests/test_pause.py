"""Questions to people: at any depth and in parallel, answered in any order, refused where the answer does not fit."""

from collections.abc import Callable
from itertools import permutations
from typing import Annotated, Any

import anyio
import pytest

from graphflow import (
    ANY,
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    Pause,
    State,
    Step,
    Update,
    append,
    node,
    start,
)
from graphflow.errors import UsageError
from graphflow.events import NodeReentered, NodeStarted, Paused
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ManualClock
from tests.cases.helpers import play


class Talk(Context):
    """What was noted."""

    notes: Annotated[tuple[str, ...], append] = ()


def asker(name: str, schema: Any = str, *, first: int = 0) -> FunctionNode[Context]:
    """A node that asks once, then gives its name and the answer."""

    @node(name=name)
    async def ask(state: State[Context]) -> Pause | str:
        if state.turn == first:
            return Pause(f"{name}?", schema=schema, update=Update(notes=f"{name} asked"))
        return f"{name}={state.values[0]!r}"

    return ask


def plain(name: str, seconds: float = 0.0) -> FunctionNode[Context]:
    """A node that takes its time and gives what arrived."""

    @node(name=name)
    async def give(state: State[Context], step: Step) -> object:
        if seconds:
            await step.sleep(seconds)
        return state.values

    return give


# --- one question ----------------------------------------------------------------------------------------------------


async def test_a_pause_suspends_the_visit_until_the_answer() -> None:
    """The run waits; the node goes on in the same visit and the next turn, with the answer as its inbox."""
    seen: list[tuple[int, int, tuple[Any, ...]]] = []

    @node
    async def ask(state: State[Talk]) -> Pause | str:
        seen.append((state.visit, state.turn, tuple(state.inbox)))
        return Pause("how many?", schema=int) if state.turn == 0 else "done"

    graph = Graph("main", START >> ask >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as run:
        waiting = await run.result()
        (question,) = waiting.questions
        run.answer(question.id, 3)
        result = await run.result()

    assert waiting.status == "waiting"
    assert (question.text, question.path, question.schema) == ("how many?", "ask", int)
    assert seen == [(1, 0, ()), (1, 1, (("answer", 3),))]
    assert (result.status, result.output, result.questions) == ("completed", "done", ())
    assert result.spent.total.node_runs == 1


async def test_the_update_of_a_pause_is_applied_before_it_suspends() -> None:
    """The waiting result shows it."""
    async with start(Graph("main", START >> asker("a") >> END, context=Talk), Talk()) as run:
        waiting = await run.result()

    assert waiting.context.notes == ("a asked",)


@pytest.mark.parametrize(
    ("schema", "bad", "good"), [(int, "many", 4), (None, object(), {"a": [1]}), (tuple[int, ...], "x", [1, 2])]
)
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(schema: Any, bad: Any, good: Any) -> None:
    """The answerer hears why; the run still waits with the same question, and a good answer goes on."""
    async with start(Graph("main", START >> asker("a", schema) >> END, context=Talk), Talk()) as run:
        (question,) = (await run.result()).questions
        with pytest.raises(UsageError, match="does not fit"):
            run.answer(question.id, bad)
        still = run.questions
        run.answer(question.id, good)
        result = await run.result()

    assert still == (question,)
    assert result.status == "completed"


async def test_an_answer_to_no_question_is_refused() -> None:
    """The error names the open questions; an answer cannot be given twice."""
    async with start(Graph("main", START >> asker("a") >> END, context=Talk), Talk()) as run:
        (question,) = (await run.result()).questions
        with pytest.raises(UsageError, match="open are: 'a'"):
            run.answer("b", "x")
        run.answer(question.id, "x")
        await run.result()
        with pytest.raises(UsageError, match="open are: none"):
            run.answer(question.id, "again")


async def test_a_node_may_ask_as_often_as_it_likes() -> None:
    """Answers are no turns that `max_turns` counts, and each question has an id of its own."""

    @node(max_turns=1)
    async def ask(state: State[Talk]) -> Pause | int:
        return Pause(f"question {state.turn}?", schema=int) if state.turn < 5 else state.turn

    played = await play(
        Graph("main", START >> ask >> END, context=Talk), Talk(), answers={f"question {n}?": n for n in range(5)}
    )

    assert played.result.output == 5
    assert len({body.question for body in played.of(Paused)}) == 5
    assert played.result.spent.total.node_runs == 1


async def test_a_person_as_a_node_gives_the_answer_as_output() -> None:
    """`Human` asks, shows what arrived below its question, and its output takes `into=` and the next statement."""
    s, human, e = plain("s"), Human("human", "Good?", schema=bool), plain("e")
    noted = Human("noted", "Why?", schema=str, into="notes")
    graph = Graph("main", START >> s >> human >> noted >> e >> END, context=Talk)

    played = await play(graph, Talk(), answers={"Good?": True, "Why?": "it is"})

    assert [body.text for body in played.of(Paused)] == ["Good?\ns: ()", "Why?\nhuman: True"]
    assert played.result.output == ("it is",)
    assert played.result.context.notes == ("it is",)


# --- depth and order -------------------------------------------------------------------------------------------------


def boss_of(*names: str) -> FunctionNode[Talk]:
    """A caller that asks all its callees at once."""

    @node
    async def boss(state: State[Talk]) -> Any:
        if state.turn == 0:
            return Delegate(*(Call(name, "ask") for name in names))
        return tuple(report.finding for report in state.values)

    return boss


def forked() -> Graph[Talk]:
    """Three branches ask."""
    a, b, c = asker("a"), asker("b"), asker("c")
    return Graph("main", START >> plain("s") >> (a, b, c) >> plain("j") >> END, context=Talk)


def mapped() -> Graph[Talk]:
    """Three lanes ask."""

    @node
    async def lane(state: State[Talk]) -> Pause | str:
        if state.turn == 0:
            return Pause(f"{state.values[0]}?", schema=str)
        return f"{'abc'[state.path[-1].lanes[0]]}={state.values[0]!r}"

    def items(state: State[Talk]) -> tuple[str, ...]:
        return tuple("abc")

    s, j = plain("s"), plain("j")
    return Graph("main", START >> s, s.map(lane, over=items, join=j, max_items=3) >> END, context=Talk)


def nested() -> Graph[Talk]:
    """Three graphs in three branches ask."""
    a, b, c = (Graph(f"in_{name}", START >> asker(name) >> END, context=Talk) for name in "abc")
    return Graph("main", START >> plain("s") >> (a, b, c) >> plain("j") >> END, context=Talk)


def called() -> Graph[Talk]:
    """Three callees of one batch ask."""
    boss = boss_of("a", "b", "c")
    workers = [asker(name) for name in "abc"]
    return Graph("main", START >> boss >> END, boss.delegates(*workers, max_hops=1), context=Talk, max_depth=1)


def deep() -> Graph[Talk]:
    """A fork in a graph that is called, and a call beside it."""
    team = Graph("team", START >> plain("s") >> (asker("a"), asker("b")) >> plain("j") >> END, context=Talk, leave=said)
    boss = boss_of("team", "c")
    return Graph("main", START >> boss >> END, boss.delegates(team, asker("c"), max_hops=1), context=Talk, max_depth=1)


def said(state: State[Talk]) -> str:
    """What both said."""
    return ", ".join(state.values[0])


SHAPES: dict[str, Callable[[], Graph[Talk]]] = {
    "fork": forked,
    "map": mapped,
    "nested": nested,
    "calls": called,
    "fork in a call": deep,
}


@pytest.mark.parametrize("order", list(permutations("abc")))
@pytest.mark.parametrize("place", SHAPES)
async def test_parallel_questions_are_answered_in_any_order(place: str, order: tuple[str, ...]) -> None:
    """All questions are open at once; each answer reaches the one that asked, and the output has branch order."""
    async with start(SHAPES[place](), Talk(), clock=ManualClock()) as run:
        result = await run.result()
        ids = {question.text.removesuffix("?"): question.id for question in result.questions}
        assert sorted(ids) == ["a", "b", "c"]
        for position, name in enumerate(order):
            run.answer(ids[name], name.upper())
            result = await run.result()
            assert len(result.questions) == 2 - position

    expected = ("a='A', b='B'", "c='C'") if place == "fork in a call" else ("a='A'", "b='B'", "c='C'")
    assert result.output == expected
    assert result.status == "completed"


@pytest.mark.parametrize("order", ["abc", "cba"])
@pytest.mark.parametrize("place", SHAPES)
async def test_several_answers_may_come_at_once(place: str, order: str) -> None:
    """Answers that are given one after the other without waiting all arrive."""
    async with start(SHAPES[place](), Talk(), clock=ManualClock()) as run:
        result = await run.result()
        ids = {question.text.removesuffix("?"): question.id for question in result.questions}
        for name in order:
            run.answer(ids[name], name.upper())
        with anyio.fail_after(5):
            result = await run.result()

    assert result.status == "completed"
    assert len(result.output) == (2 if place == "fork in a call" else 3)


async def test_siblings_and_timers_go_on_while_a_branch_waits() -> None:
    """A question may be answered while others still run; the run waits only when nothing else can happen."""
    graph = Graph("main", START >> plain("s") >> (asker("a"), plain("b", 5.0)) >> plain("j") >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as run:
        async for event in run:
            if isinstance(event.body, Paused):
                run.answer(event.body.question, "early")
        result = await run.result()
    async with start(graph, Talk(), clock=ManualClock()) as run:
        waiting = await run.result()
        (question,) = waiting.questions
        run.answer(question.id, "late")
        later = await run.result()

    assert result.output[0] == "a='early'"
    assert later.output[0] == "a='late'"
    assert waiting.status == "waiting"


async def test_k1_the_answer_of_one_question_is_not_taken_for_the_next() -> None:
    """In a nested graph two nodes ask one after the other; each gets its own answer."""
    inner = Graph("inner", START >> asker("n1") >> asker("n2") >> END, context=Talk)
    graph = Graph("main", START >> inner >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as run:
        first = await run.result()
        run.answer(first.questions[0].id, "x")
        second = await run.result()
        run.answer(second.questions[0].id, "y")
        result = await run.result()

    assert [question.path for question in (*first.questions, *second.questions)] == ["inner/n1", "inner/n2"]
    assert second.status == "waiting"
    assert result.output == "n2='y'"


@pytest.mark.parametrize("way", ["next", "call"])
async def test_k3_a_nested_graph_goes_on_where_it_waited(way: str) -> None:
    """What ran before the question does not run again, whether the graph was entered by an edge or a call."""
    counted: list[str] = []

    @node
    async def n1(state: State[Talk]) -> None:
        counted.append("n1")

    inner = Graph("inner", START >> n1 >> asker("n2") >> END, context=Talk)
    if way == "next":
        graph = Graph("main", START >> inner >> END, context=Talk)
    else:
        boss = boss_of("inner")
        graph = Graph("main", START >> boss >> END, boss.delegates(inner, max_hops=1), context=Talk, max_depth=1)

    played = await play(graph, Talk(), answers={"n2?": "go"})

    assert counted == ["n1"]
    assert len(played.of(NodeStarted)) == (3 if way == "next" else 4)
    assert len(played.of(NodeReentered)) == (1 if way == "next" else 2)
    assert played.result.output == ("n2='go'" if way == "next" else ("n2='go'",))


# --- withdrawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["failure", "loser", "bound"])
async def test_a_cancelled_branch_withdraws_its_question(cause: str) -> None:
    """When its branch is cancelled, the question is no longer open, and the visit ends as cancelled."""

    @node
    async def bad(state: State[Talk], step: Step) -> str:
        await step.sleep(1.0)
        if cause == "failure":
            raise ValueError("no")
        return "fast"

    limited = Graph("limited", START >> bad >> END, context=Talk, max_hops=1)
    inner = Graph("inner", START >> asker("deep") >> END, context=Talk)
    boss = boss_of("a")
    j = Join("j", ANY, losers="cancel") if cause == "loser" else plain("j")
    graph = Graph(
        "main",
        START >> plain("s") >> (boss, inner, limited if cause == "bound" else bad) >> j >> END,
        boss.delegates(asker("a"), max_hops=1),
        context=Talk,
        max_depth=1,
    )

    played = await play(graph, Talk())

    assert len(played.of(Paused)) == 2
    assert played.result.questions == ()
    assert played.ended["boss/a@0.0"] == "cancelled"
    assert played.ended["inner/deep"] == "cancelled"
    assert played.ended["boss"] == "cancelled"
    expected = {"failure": ("failed", ValueError), "loser": ("completed", type(None)), "bound": ("failed", type(None))}
    assert (played.result.status, type(played.error)) == expected[cause]


async def test_a_waiting_run_may_be_cancelled() -> None:
    """Cancelling ends every visit, and withdraws the questions."""
    async with start(nested(), Talk(), clock=ManualClock()) as run:
        waiting = await run.result()
        run.cancel("somebody")
        result = await run.result()

    assert len(waiting.questions) == 3
    assert (result.status, result.questions) == ("cancelled", ())
    assert result.reason is not None
    assert "somebody" in result.reason.text


async def test_a_call_that_only_waits_for_an_answer_is_not_out_of_time() -> None:
    """The time of a call stands still while it waits for people alone; what follows has what was left."""

    @node
    async def a(state: State[Talk], step: Step) -> Any:
        if state.turn == 0:
            await step.sleep(0.6)
            return Pause("a?", schema=str)
        await step.sleep(0.3 if state.values[0] == "short" else 0.6)
        return "in time"

    @node
    async def boss(state: State[Talk]) -> Any:
        if state.turn == 0:
            return Delegate(Call("a", ""))
        report = state.values[0]
        return report.reason.code if report.reason is not None else report.finding

    graph = Graph("main", START >> boss >> END, boss.delegates(a, max_hops=1, timeout=1.0), context=Talk, max_depth=1)
    outputs: dict[str, Any] = {}

    for answer in ("short", "long"):
        clock = ManualClock()
        async with start(graph, Talk(), clock=clock) as run:
            (question,) = (await run.result()).questions
            clock.advance(3600.0)
            run.answer(question.id, answer)
            outputs[answer] = (await run.result()).output

    assert outputs == {"short": "in time", "long": "timeout"}


async def test_the_seconds_of_a_run_stand_still_while_it_waits() -> None:
    """A budget of seconds counts active time only."""
    graph = Graph("main", START >> plain("s", 0.6) >> asker("a") >> plain("e", 0.3) >> END, context=Talk)
    clock = ManualClock()

    async with start(graph, Talk(), clock=clock, budget=Budget(seconds=1.0)) as run:
        (question,) = (await run.result()).questions
        clock.advance(3600.0)
        run.answer(question.id, "x")
        result = await run.result()

    assert result.status == "completed"


@pytest.mark.parametrize("place", ["branch", "lane", "call"])
async def test_a_paused_token_holds_no_slot(place: str) -> None:
    """With room for a single body, those that wait for people let all others run."""
    shape = {"branch": forked, "lane": mapped, "call": called}[place]

    played = await play(shape(), Talk(), max_parallel=1, answers={f"{name}?": name for name in "abc"})

    assert played.result.output == ("a='a'", "b='b'", "c='c'")
