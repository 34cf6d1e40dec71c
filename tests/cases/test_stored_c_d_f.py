"""Cases C5, D1, D5, D7 and F7 after a restart: cycles, equal names, inner states, twin calls and pending results."""

import itertools
from typing import Annotated, Any

import pytest

from graphflow import (
    END,
    START,
    AskUser,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Human,
    Join,
    Pause,
    Report,
    State,
    Step,
    ToolStep,
    Update,
    add,
    append,
    resume,
    when,
)
from graphflow.events import FrameOpened, NodeEnded, NodeReturned, NodeStarted
from graphflow.model.ids import path_text
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import Talk, all_results, hold_messages, results_in
from tests.cases.stored import RUN, Calls, Ended, Plan, Stage, copied, go_on, hold_every_break, hold_same, play
from tests.cases.stored_functions import Log, merges, says

# --- C5 --------------------------------------------------------------------------------------------------------------


def started(ended: Ended[Any]) -> list[str]:
    """Give the paths of the visits, in order."""
    bodies = [event.body for event in ended.events]
    return [path_text(body.path) for body in bodies if isinstance(body, NodeStarted)]


def always(_: State[Any]) -> bool:
    """Hold for ever."""
    return True


def rounds(state: State[Log]) -> bool:
    """Hold until three rounds are over."""
    return state.context.rounds < 3


def cycle(kind: str, bound: str) -> Plan[Log]:
    """Return the plan of a cycle of one kind, which ends on its own or at a bound."""

    def make(calls: Calls) -> Graph[Log]:
        a, b, x = says(calls, "A", sleep=1), merges(calls, "merge"), says(calls, "X")
        test = rounds if bound == "none" else always
        limits: dict[str, Any] = {"max_hops": 3} if bound == "edge" else {"max_hops": 9}
        if bound == "node":
            a = says(calls, "A", sleep=1, max_visits=3)
        own: dict[str, Any] = {"max_hops": 10} if bound == "graph" else {}
        if kind == "plain":
            body = (START >> a >> b, b.choose(when(test, a, **limits), default=x), x >> END)
        elif kind == "fork":
            sides = says(calls, "left", sleep=2), says(calls, "right", sleep=1)
            body = (START >> a >> sides >> b, b.choose(when(test, a, **limits), default=x), x >> END)
        elif kind == "pause":
            ask = Human("ask", "again?")
            body = (START >> a >> ask >> b, b.choose(when(test, a, **limits), default=x), x >> END)
        else:
            inner = Graph("inner", START >> a >> says(calls, "in") >> END, context=Log)
            inner = Graph("inner", START >> a >> END, context=Log, max_visits=3) if bound == "node" else inner
            body = (START >> inner >> b, b.choose(when(test, inner, **limits), default=x), x >> END)
        return Graph("cycle", *body, context=Log, **own)

    return Plan(make=make, context=Log(), answers={"again?": "yes"})


@pytest.mark.parametrize("bound", ["none", "edge", "node", "graph"])
@pytest.mark.parametrize("kind", ["plain", "fork", "pause", "inner"])
async def test_c5_a_cycle_goes_on_where_it_was(kind: str, bound: str) -> None:
    """From every record of every round the rest is the same; the counts of hops and visits begin anew for nobody."""
    whole = await hold_every_break(cycle(kind, bound), every=2)

    if bound == "none":
        assert whole.result.status == "completed"
        assert [path for path in started(whole) if path.startswith(("A", "merge", "X"))] == (
            ["A", "merge", "A:2", "merge:2", "A:3", "merge:3", "X"]
            if kind != "inner"
            else ["merge", "merge:2", "merge:3", "X"]
        )
    else:
        reason = whole.result.reason
        assert whole.result.status == "exhausted"
        assert reason is not None
        assert reason.code == ("max_visits" if bound == "node" else "max_hops")
        assert reason.limit == (10 if bound == "graph" else 3)


# --- D1 --------------------------------------------------------------------------------------------------------------


def team(calls: Calls, first: float, second: float) -> Graph[Log]:
    """Make a graph whose nodes have the names that those of its twin have."""
    start, finish = says(calls, "start", sleep=first), says(calls, "finish")
    return Graph("team", START >> start >> says(calls, "call", sleep=second) >> finish >> END, context=Log)


def twins(calls: Calls) -> Graph[Log]:
    """The same graph twice, side by side, and once more inside another of the same name."""
    again = Graph("team_a", START >> team(calls, 1, 1).named("team_b") >> END, context=Log)
    a, b = team(calls, 1, 2).named("team_a"), team(calls, 2, 4).named("team_b")
    return Graph("outer", START >> (a, b, again.named("team_c")) >> Join("join") >> END, context=Log)


async def test_d1_two_graphs_with_equal_names_are_told_apart_at_every_checkpoint() -> None:
    """After every record the next process enters again what was at work in the very copy, and nothing of its twin."""
    plan = Plan(make=twins, context=Log())
    stage = Stage(plan)
    whole = await play(plan, MemoryJournal(), stage)
    over: set[str] = set()

    for count, row in enumerate(whole.rows, start=1):
        ended = [event.body for event in whole.events if row.seq <= event.seq and _within(whole, count, event.seq)]
        over |= {path_text(body.path) for body in ended if isinstance(body, NodeEnded)}
        again = await go_on(plan, await copied(whole.rows[:count], MemoryJournal()), stage)
        hold_same(whole, again, count)
        assert not over & {path for _, path, _ in again.calls}

    assert len(over) == len(set(started(whole))) == 14
    assert {"team_a/call", "team_b/call", "team_c/team_b/call"} <= over
    assert whole.result.status == "completed"


def _within(whole: Ended[Any], count: int, seq: int) -> bool:
    return count == len(whole.rows) or seq < whole.rows[count].seq


# --- D5 --------------------------------------------------------------------------------------------------------------


class Inner(Context):
    """The state of the graph inside: another class than the outer one's, with a field of the same name."""

    total: str = ""
    visits: Annotated[int, add] = 0
    seen: Annotated[tuple[str, ...], append] = ()


def counting(calls: Calls, entered: str) -> Graph[Log]:
    """A loop that visits a graph three times; that counts its inner rounds in a state of its own."""

    @calls.node
    async def count(state: State[Inner], step: Step) -> Update:
        assert type(state.context) is Inner
        await calls.effect(step, "count", 1, cost=Budget(tool_calls=1))
        return Update(visits=1, seen=f"{state.context.visits}{state.context.total}", total="x")

    @calls.node
    def tell(state: State[Inner]) -> str:
        return f"{state.context.visits}: {' '.join(state.context.seen)}"

    def twice(state: State[Inner]) -> bool:
        return state.context.visits < 2

    chosen = count.choose(when(twice, count, max_hops=1), default=tell)
    inner = Graph("N", START >> count, chosen, tell >> END, context=Inner, enter=lambda _: Inner())
    merge = merges(calls, "merge")
    budget = Budget(tool_calls=9)
    if entered == "next":
        again = merge.choose(when(rounds, inner, max_hops=2), default=END)
        return Graph("g", START >> inner >> merge, again, context=Log, budget=budget)

    @calls.node(max_turns=4)
    def boss(state: State[Log]) -> Any:
        found = tuple(value.finding for value in state.values if isinstance(value, Report))
        return Delegate(Call("N", "?"), update=Update(lines=str(found))) if state.turn < 3 else Done(found)

    delegates = boss.delegates(inner, max_hops=3)
    return Graph("g", START >> boss >> merge >> END, delegates, context=Log, budget=budget, max_depth=1)


@pytest.mark.parametrize("entered", ["next", "delegation"])
async def test_d5_each_visit_begins_with_the_inner_state_of_its_class(entered: str) -> None:
    """The second visit of a graph begins from its first state, whatever was restored; the budget is the run's."""
    whole = await hold_every_break(Plan(make=lambda calls: counting(calls, entered), context=Log()))

    assert whole.result.status == "completed"
    said = "2: 0 1x"
    expected = [f"merge ({said!r},)"] * 3 if entered == "next" else ["()", f"({said!r},)", f"({said!r},)"]
    assert list(whole.result.context.lines[:3]) == expected
    assert whole.result.spent.total.tool_calls == 6


# --- D7 --------------------------------------------------------------------------------------------------------------


def doubled(kind: str) -> Any:
    """Return what makes a graph that calls one graph twice at once, which asks for each of its inputs."""

    def make(calls: Calls) -> Graph[Talk]:
        @calls.node
        async def asks(state: State[Talk], step: Step) -> Any:
            await calls.effect(step, f"turn {state.turn}", 1)
            if state.turn == 0:
                return Pause(f"for {state.context.question}?")
            return f"{state.context.question}={state.values[0]}"

        g = Graph("g", START >> asks >> END, context=Talk, enter=lambda state: Talk(question=_input(state)))
        if kind == "agent":
            boss: Any = calls.agent("boss", [call("ask_g", objective="1"), call("ask_g", objective="2")], all_results)
        elif kind == "map":
            first = says_talk(calls)
            lanes = first.map(g, over=one_two, join=Join("j", reduce=str), max_items=2)
            return Graph("outer", START >> first, lanes, Join("j", reduce=str) >> END, context=Talk)
        else:

            @calls.node(name="boss")
            def delegates(state: State[Talk]) -> Any:
                if state.turn == 0:
                    return Delegate(Call("g", "1"), Call("g", "2"))
                return str([message.value.finding for message in state.inbox])

            boss = delegates

        return Graph("outer", START >> boss >> END, boss.delegates(g, max_hops=2), context=Talk, max_depth=1)

    return make


def one_two(_: State[Talk]) -> tuple[str, ...]:
    """Give the items of a map."""
    return ("1", "2")


def _input(state: State[Any]) -> str:
    value = state.inbox[-1].value
    return str(getattr(value, "objective", value))


def says_talk(calls: Calls) -> Any:
    """Make a node that says nothing."""
    return calls.node(lambda state: None, name="first")


@pytest.mark.parametrize("order", list(itertools.permutations("12")))
@pytest.mark.parametrize("kind", ["function", "agent", "map"])
async def test_d7_two_calls_of_one_graph_are_two_runs_of_it(kind: str, order: tuple[str, ...]) -> None:
    """Both pause; each is answered in a process of its own, in any order; each answer comes back to its own call."""
    make, journal = doubled(kind), MemoryJournal()
    waiting = await play(Plan(make=make, context=Talk()), journal)
    questions = {found.text: found for found in waiting.result.questions}

    for number in order:
        answers = {questions[f"for {number}?"].id: f"a{number}"}
        await resume(make(Calls()), RUN, journal=journal, answers=answers, clock=ManualClock())
    stage = Stage(Plan(make=make, context=Talk()))
    ended = await go_on(stage.plan, journal, stage)

    assert len({found.path for found in questions.values()}) == 2
    frames = [event.body for event in ended.events if isinstance(event.body, FrameOpened)]
    assert len({frame.path for frame in frames}) == 2
    output = str(ended.result.output)
    assert output.index("1=a1") < output.index("2=a2")
    assert not ended.calls


@pytest.mark.parametrize("kind", ["function", "agent", "map"])
async def test_d7_two_calls_of_one_graph_may_be_broken_off_anywhere(kind: str) -> None:
    """Between the two questions, and between the two answers, nothing is mixed up."""
    answers = {"for 1?": "a1", "for 2?": "a2"}

    whole = await hold_every_break(Plan(make=doubled(kind), context=Talk(), answers=answers))

    assert whole.result.status == "completed"
    returned = [event.body for event in whole.events if isinstance(event.body, NodeReturned)]
    assert len([body for body in returned if path_text(body.path).endswith("asks")]) == 4


# --- F7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["quick", "asking"])
@pytest.mark.parametrize("others", [(), ("ask_user",), ("look", "ask_user", "nobody")])
async def test_f7_results_from_before_a_pause_are_there_after_it(others: tuple[str, ...], first: str) -> None:
    """One child is done, another asks; the next process gives the model both results, each under its own call's id."""

    def make(calls: Calls) -> Graph[Talk]:
        quick = calls.agent("quick", "quick result")
        asking = calls.agent("asking", call("ask_user", question="who?"), all_results, tools=[AskUser()])

        async def look(step: ToolStep) -> str:
            """Look."""
            calls.tool(step)
            return "seen"

        team = [call("ask_quick", objective="q"), call("ask_asking", objective="a")]
        mine = [call(name, **({"question": "mine?"} if name == "ask_user" else {})) for name in others]
        boss = calls.agent(
            "boss", [*(team if first == "quick" else team[::-1]), *mine], all_results, tools=[look, AskUser()]
        )
        return Graph("g", START >> boss >> END, boss.delegates(quick, asking, max_hops=1), context=Talk, max_depth=1)

    journal = MemoryJournal()
    await play(Plan(make=make, context=Talk()), journal)
    stage = Stage(Plan(make=make, context=Talk(), answers={"who?": "me", "mine?": "myself"}))
    ended = await go_on(stage.plan, journal, stage)
    await hold_every_break(stage.plan)

    last: Any = stage.graph.nodes["boss"]
    request = last.model.requests[-1]
    hold_messages(request.messages)
    said = next(message for message in request.messages if message.calls)
    results = [message for message in request.messages if message.role == "tool"]
    assert [message.answers for message in results] == [found.id for found in said.calls]
    found = {call.name: message.text for call, message in zip(said.calls, results, strict=True)}
    assert "quick result" in found["ask_quick"]
    assert "me" in found["ask_asking"]
    assert found.get("ask_user", "myself") == "myself"
    assert found.get("look", "seen") == "seen"
    assert ended.result.status == "completed"
    assert len(results_in(ended.result.thread)) == 2 + len(others)
    assert {name for name, path, _ in ended.calls if path == "boss"} == {"a model"}
    assert {path for _, path, _ in ended.calls} == {"boss", next(p for p in started(ended) if "asking" in p)}
