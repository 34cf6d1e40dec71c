"""Cases E: agents that hand over: ping-pong, several transfers in one turn, wrong names, people, late tools."""

from typing import Any, Literal

import pytest

from graphflow import END, START, Budget, Context, Graph, Human, State, ToolCall, ToolStep, fork, node
from graphflow.events import NodeEnded, NodeStarted, Refused
from graphflow.model.ids import names
from graphflow.testing import call
from tests.cases.agents import (
    Talk,
    always,
    asked,
    handoffs,
    last_text,
    model_calls,
    play,
    results_in,
    says,
    tool_runs,
)
from tests.cases.helpers import Played

# --- E1 --------------------------------------------------------------------------------------------------------------


def ring(size: int, **options: Any) -> Graph[Talk]:
    """Some agents of which each always hands over to the next."""
    letters = "abc"[:size]
    agents = {
        name: always(name, call(f"transfer_to_{letters[(i + 1) % size]}", note="yours"))
        for i, name in enumerate(letters)
    }
    edges = [agents[name].hands_off(agents[letters[(i + 1) % size]]) for i, name in enumerate(letters)]
    ends = [agent >> END for agent in agents.values()]
    return Graph("ring", START >> agents["a"], *edges, *ends, context=Talk, **options)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("limit", [0, 1, 4])
async def test_e1_agents_that_hand_over_for_ever_end_at_the_bound(size: int, limit: int) -> None:
    """Exactly so many handoffs, one model call more, and a reason that has the limit and the whole way."""
    played = await play(ring(size, max_handoffs=limit), Talk())

    way = [("abc"[:size] * 5)[i] for i in range(limit + 1)]
    assert model_calls(played) == way
    assert len(handoffs(played)) == limit
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_handoffs", limit)
    assert limit == 0 or " ".join(way) in played.reason.text
    assert played.result.spent.total.model_calls == limit + 1


@pytest.mark.parametrize("rescuer", ["human", "agent", "function"])
async def test_e1_the_bound_gives_the_conversation_to_the_escalation(rescuer: str) -> None:
    """With `escalate` somebody gets the failed report, and what they say is the graph's output."""

    @node(name="rescue")
    async def function(state: State[Talk]) -> str:
        return f"rescued after {state.values[0].reason.code}"

    rescues: dict[str, Any] = {
        "human": Human("rescue", "They cannot agree."),
        "agent": says("rescue", lambda request: f"rescued after {request.messages[-1].text.count('max_handoffs')}"),
        "function": function,
    }
    graph = ring(2, max_handoffs=4, escalate=rescues[rescuer])

    played = await play(graph, Talk(), answers={"They cannot agree.": "rescued by hand"})

    assert played.result.status == "completed"
    assert str(played.result.output).startswith("rescued")
    assert len(handoffs(played)) == 4
    assert model_calls(played)[:5] == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("bound", ["edge", "visits", "hops", "model_calls"])
async def test_e1_every_other_bound_ends_it_too(bound: str) -> None:
    """Hops of an edge or a graph, visits of a node, and a budget each stop the ping-pong at their limit."""
    limit = 2 if bound in {"edge", "visits"} else 4
    a = always("a", call("transfer_to_b", note="yours"), max_visits=limit if bound == "visits" else None)
    b = always("b", call("transfer_to_a", note="yours"))
    graph = Graph(
        "g",
        START >> a >> END,
        b >> END,
        a.hands_off(b, max_hops=limit if bound == "edge" else 99),
        b.hands_off(a, max_hops=99),
        context=Talk,
        max_hops=limit if bound == "hops" else None,
    )

    played = await play(graph, Talk(), budget=Budget(model_calls=limit if bound == "model_calls" else None))

    codes = {"edge": "max_hops", "visits": "max_visits", "hops": "max_hops", "model_calls": "model_calls"}
    ways = {"edge": "ababa", "visits": "abab", "hops": "abab", "model_calls": "abab"}
    assert "".join(model_calls(played)) == ways[bound]
    assert (played.result.status, played.reason.code) == ("exhausted", codes[bound])


async def test_e1_a_transfer_that_is_refused_is_not_said_to_be_made() -> None:
    """What stands in the thread is what happened: the last transfer was refused, and by which bound."""
    seen = says("rescue", "sorry", history="full")

    played = await play(ring(2, max_handoffs=1, escalate=seen), Talk())

    first, second = results_in(asked(seen).messages)
    assert first == ("Control goes over to b.", False)
    assert second[1]
    assert "max_handoffs" in second[0]
    assert played.result.output == "sorry"


@pytest.mark.parametrize("place", ["branch", "callee"])
async def test_e1_a_ping_pong_below_ends_only_itself(place: str) -> None:
    """In a branch it is that branch's failure; in a called graph it is the report that the caller gets."""
    inner = ring(2, max_handoffs=3)
    if place == "branch":
        graph = Graph(
            "g", START >> fork(inner, says("other", "fine"), failure="collect") >> _listing() >> END, context=Talk
        )
    else:
        boss = says("boss", call("ask_ring", objective="try"), "they could not agree")
        graph = Graph("g", START >> boss >> END, boss.delegates(inner, max_hops=1), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    assert played.result.status == "partial"
    assert [reason.code for reason in played.result.failures] == ["max_handoffs"]
    assert len(handoffs(played)) == 3
    if place == "callee":
        ((text, failed),) = results_in(asked(graph.nodes["boss"]).messages)
        assert failed
        assert "max_handoffs" in text


def _listing() -> Any:
    @node
    async def listing(state: State[Talk]) -> str:
        return f"{len(state.inbox)} came"

    return listing


# --- E3, E5 ----------------------------------------------------------------------------------------------------------


def triage(*steps: Any, **options: Any) -> Graph[Talk]:
    """A triage that may hand over to two others, who answer with what they were told."""

    def told(request: Any) -> str:
        return f"{request.agent} was told: {request.messages[-1].text}"

    first = says("triage", *steps, **options)
    others = [always(name, told) for name in ("billing", "shipping")]
    return Graph(
        "desk",
        START >> first >> END,
        first.hands_off(*others, max_hops=3),
        *(other >> END for other in others),
        context=Talk,
    )


TWO = [
    pytest.param(["billing", "shipping"], id="two targets"),
    pytest.param(["shipping", "billing"], id="the other order"),
    pytest.param(["billing", "billing"], id="one twice"),
    pytest.param(["billing", "shipping", "billing"], id="three"),
]


@pytest.mark.parametrize("ids", ["own", "none", "equal"])
@pytest.mark.parametrize("targets", TWO)
async def test_e3_e5_the_first_transfer_of_a_turn_counts(targets: list[str], ids: str) -> None:
    """One handoff is made, its target starts once; the other calls are answered "not executed", each under its id."""
    given = {"own": ["x", "y", "z"], "none": ["", "", ""], "equal": ["x", "x", "x"]}[ids]
    calls = [
        call(f"transfer_to_{target}", given[position], note=f"note {position}")
        for position, target in enumerate(targets)
    ]

    played = await play(triage(calls), Talk())

    assert handoffs(played) == [("triage", targets[0])]
    assert played.started == ["triage", targets[0]]
    assert "note 0" in played.result.output
    said = played.result.thread[1]
    assert [found.name for found in said.calls] == [found.name for found in calls]
    first, *others = results_in(played.result.thread)
    assert not first[1]
    assert len(others) == len(targets) - 1
    for text, failed in others:
        assert failed
        assert text == f"not executed: the first transfer of a turn counts, which went to {targets[0]}."
    assert played.result.status == "completed"
    told = [(f"a second transfer of a turn, by 'transfer_to_{target}'", 1.0) for target in targets[1:]]
    assert [(body.wanted, body.limit) for body in played.of(Refused) if body.bound == "transfers"] == told
    assert [(reason.code, reason.path) for reason in played.result.refused] == [("transfers", "triage")] * len(told)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_e3_a_transfer_among_other_calls_comes_last(place: int) -> None:
    """Tools of the turn are run wherever the transfer stands among the calls; every call is answered in call order."""
    ran: list[int] = []

    def look(number: int) -> str:
        ran.append(number)
        return f"saw {number}"

    calls: list[ToolCall] = [call("look", number=1), call("look", number=2)]
    calls.insert(place, call("transfer_to_billing", note="please"))

    played = await play(triage(calls, tools=[look]), Talk())

    assert sorted(ran) == [1, 2]
    wanted = ["saw 1", "saw 2"]
    wanted.insert(place, "Control goes over to billing.")
    assert [text for text, _ in results_in(played.result.thread)] == wanted


@pytest.mark.parametrize("wrong", [ToolCall("transfer_to_billing", "{"), call("transfer_to_nobody", note="x")])
async def test_e3_a_transfer_that_makes_no_sense_is_not_the_first(wrong: ToolCall) -> None:
    """The first transfer that can be made counts; the one before it is answered with what is wrong."""
    played = await play(triage([wrong, call("transfer_to_shipping", note="please")]), Talk())

    assert handoffs(played) == [("triage", "shipping")]
    assert [failed for _, failed in results_in(played.result.thread)] == [True, False]


# --- E7 --------------------------------------------------------------------------------------------------------------


async def test_e7_an_invented_name_is_told_to_the_model() -> None:
    """The first call is answered with the valid names and is no hop; the second, spelled well, hands over."""
    graph = triage(call("transfer_to_billng", note="x"), call("transfer_to_billing", note="y"))

    played = await play(graph, Talk())

    ((text, failed),) = results_in(asked(graph.nodes["triage"]).messages)
    assert failed
    assert "transfer_to_billng" in text
    assert "transfer_to_billing, transfer_to_shipping" in text
    assert handoffs(played) == [("triage", "billing")]
    assert played.result.status == "completed"


WRONG = call("transfer_to_billng", note="x")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([WRONG, WRONG, WRONG], id="in three turns"),
        pytest.param([[WRONG, WRONG, WRONG]], id="in one turn"),
        pytest.param([[WRONG, WRONG], WRONG], id="in two turns"),
        pytest.param([call("serch"), call("ask_billing"), WRONG], id="of any kind"),
        pytest.param(
            [WRONG, WRONG, [call("transfer_to_nobody"), call("transfer_to_billing")]], id="before a right one"
        ),
    ],
)
async def test_e7_three_wrong_names_in_a_row_fail_the_node(steps: list[Any]) -> None:
    """The failure is UnknownTarget, names the declared targets and is no exception of the run; nobody gets control."""
    played = await play(triage(*steps), Talk())

    assert (played.result.status, played.reason.code) == ("failed", "unknown_target")
    assert (played.reason.error_type, played.reason.path) == ("UnknownTarget", "triage")
    assert "'billing', 'shipping'" in played.reason.text
    assert played.error is None
    assert handoffs(played) == []


@pytest.mark.parametrize(
    "between",
    [call("look"), [WRONG, call("look")], [call("look"), WRONG]],
    ids=["alone", "after a wrong one", "before"],
)
async def test_e7_a_right_name_in_between_starts_the_count_anew(between: Any) -> None:
    """Two wrong names, a right one, and a wrong one again: no three in a row."""

    def look() -> str:
        return "seen"

    graph = triage(WRONG, between, WRONG, call("transfer_to_billing", note="at last"), tools=[look])

    played = await play(graph, Talk())

    assert played.result.status == "completed"
    assert handoffs(played) == [("triage", "billing")]


async def test_e7_an_attempt_counts_its_wrong_names_anew() -> None:
    """A retry repeats the turn that failed: names that were wrong in it are not held against it."""
    graph = triage([WRONG, WRONG, WRONG], [WRONG, call("transfer_to_billing", note="at last")], retries=1)

    played = await play(graph, Talk())

    assert played.result.status == "completed"
    assert handoffs(played) == [("triage", "billing")]


# --- E9 --------------------------------------------------------------------------------------------------------------


def asks_a_person(place: str) -> Graph[Talk]:
    """An agent that hands over to a person and says what it got, at some place."""
    human = Human("human", "The agent needs you.")
    asker = says(
        "asker", call("transfer_to_human", note="which of the two?"), lambda request: request.messages[-1].text
    )
    inner = Graph("inner", START >> asker >> END, asker.hands_off(human, max_hops=1), context=Talk)
    if place == "nested":
        return Graph("outer", START >> inner >> END, context=Talk)
    if place == "callee":
        boss = says("boss", call("ask_inner", objective="find out"), last_text)
        return Graph("outer", START >> boss >> END, boss.delegates(inner, max_hops=1), context=Talk, max_depth=1)
    return inner


@pytest.mark.parametrize("place", ["root", "nested", "callee"])
async def test_e9_a_person_gives_control_back_to_the_giver(place: str) -> None:
    """The run waits for the person; the answer goes to the agent that asked, and the handoff is counted once."""
    waiting = await play(asks_a_person(place), Talk())
    played = await play(asks_a_person(place), Talk(), answers={"The agent needs you.": "the blue one"})

    assert waiting.result.status == "waiting"
    assert len(waiting.result.questions) == 1
    assert waiting.result.questions[0].text.startswith("The agent needs you.")
    assert "which of the two?" in waiting.result.questions[0].text
    assert played.result.status == "completed"
    assert "the blue one" in str(played.result.output)
    assert handoffs(played) == [("asker", "human")]
    assert [name.rpartition("/")[2] for name in played.started][-3:] == ["asker", "human", "asker"]


# --- E11 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["transfer first", "tool first"])
@pytest.mark.parametrize("kind", ["tool", "team", "failing tool"])
async def test_e11_a_handoff_waits_for_the_turn(kind: str, order: Literal["transfer first", "tool first"]) -> None:
    """The target begins after everything else of the giver's turn is settled, and the giver has ended before."""

    async def slow(step: ToolStep) -> str:
        await step.sleep(80)
        if kind == "failing tool":
            msg = "no"
            raise ValueError(msg)
        return "slow but sure"

    async def nap(_: State[Context], step: Any) -> str:
        await step.sleep(80)
        return "slow but sure"

    work = call("ask_helper", objective="go") if kind == "team" else call("slow")
    calls = [call("transfer_to_b", note="yours"), work]
    a, b = says("a", calls[:: 1 if order == "transfer first" else -1], tools=[slow]), says("b", "done")
    graph = Graph(
        "g",
        START >> a >> END,
        a.hands_off(b, max_hops=1),
        a.delegates(node(name="helper")(nap), max_hops=1),
        b >> END,
        context=Talk,
        max_depth=1,
    )

    played = await play(graph, Talk())

    started = next(
        event for event in played.events if isinstance(event.body, NodeStarted) and event.path[-1].name == "b"
    )
    ended = next(event for event in played.events if isinstance(event.body, NodeEnded) and event.path[-1].name == "a")
    assert started.at == 80
    assert ended.seq < started.seq
    late = [event for event in played.events if event.seq > started.seq and names(event.path)[:1] == ("a",)]
    assert late == []
    assert played.result.active == "b"


# --- E13 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["note", "summary", "full"])
async def test_e13_a_tool_that_was_only_seen_in_the_history_is_not_run(history: Any) -> None:
    """An agent that calls the tool of the one before it gets an error that lists its own; nothing runs or crashes."""
    ran: list[str] = []

    def get_x() -> str:
        ran.append("x")
        return "x"

    def get_y() -> str:
        ran.append("y")
        return "y"

    a = says("a", call("get_x"), call("transfer_to_b", note="go on"), tools=[get_x])
    b = says("b", call("get_x"), call("get_y"), "done", tools=[get_y])
    graph = Graph("g", START >> a >> END, a.hands_off(b, max_hops=1, history=history), b >> END, context=Talk)

    played = await play(graph, Talk())

    assert ran == tool_names(played) == ["x", "y"]
    text, failed = results_in(asked(b, 1).messages)[-1]
    assert failed
    assert text == "not executed: there is no tool 'get_x'; there are: get_y."
    assert played.result.output == "done"


def tool_names(played: Played[Any]) -> list[str]:
    """The letters of the tools that ran."""
    return [name.removeprefix("get_") for name in tool_runs(played)]


async def test_e13_a_transfer_that_was_only_seen_in_the_history_is_not_made() -> None:
    """The transfers of the agent before it are not those of the next."""
    a = says("a", call("transfer_to_b", note="go on"))
    b = says("b", call("transfer_to_b", note="again"), call("transfer_to_a", note="back"), "done")
    graph = Graph("g", START >> a >> END, a.hands_off(b, max_hops=1, history="full"), b >> END, context=Talk)

    played = await play(graph, Talk())

    assert handoffs(played) == [("a", "b")]
    assert [failed for _, failed in results_in(asked(b).messages)[-2:]] == [True, True]
    assert played.result.output == "done"
