"""Cases K with agents: questions to people at any depth, several at once, beside transfers, and approvals."""

import itertools
from typing import Any

import pytest
from pydantic import BaseModel

from graphflow import END, START, Agent, AskUser, Context, Graph, Human, Join, State, fork, node, start, tool
from graphflow.errors import UsageError
from graphflow.events import NodeEnded, Paused
from graphflow.testing import ManualClock, call
from tests.cases.agents import (
    Talk,
    all_results,
    handoffs,
    hold_requests,
    last_text,
    model_calls,
    play,
    requests_of,
    results_in,
    says,
    tool_runs,
)

# --- K1, K3 ----------------------------------------------------------------------------------------------------------


def asks(name: str, *questions: str, into: str | None = None) -> Agent:
    """An agent that asks its questions one after the other, and says what it was told."""
    steps = [call("ask_user", question=question) for question in questions]

    def told(request: Any) -> str:
        return " ".join([name, *(text for text, _ in results_in(request.messages))])

    return says(name, *steps, told, tools=[AskUser()], into=into)


def nest(agent: Agent, levels: int) -> Any:
    """Put an agent into graphs inside each other."""
    found: Any = agent
    for level in range(levels):
        found = Graph(f"{agent.name}{level}", START >> found >> END, context=Talk)
    return found


@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("way", ["next", "delegate", "handoff", "fork"])
async def test_k1_an_answer_goes_to_the_question_that_was_asked(way: str, levels: int) -> None:
    """Two agents ask one question each: the first gets the first answer, the run asks again, the second the second."""
    one, two = nest(asks("one", "a?"), levels), nest(asks("two", "b?"), levels)
    if way == "next":
        graph = Graph("g", START >> one >> two >> END, context=Talk)
    elif way == "fork":
        graph = Graph("g", START >> (one, two) >> Join("j") >> END, context=Talk)
    elif way == "handoff":
        first = says("first", [call("ask_user", question="a?"), call(f"transfer_to_{two.name}")], tools=[AskUser()])
        graph = Graph("g", START >> first >> END, first.hands_off(two, max_hops=1), two >> END, context=Talk)
    else:
        boss = says("boss", call(f"ask_{one.name}", objective="1"), call(f"ask_{two.name}", objective="2"), "done")
        graph = Graph("g", START >> boss >> END, boss.delegates(one, two, max_hops=1), context=Talk, max_depth=1)
    told: list[list[str]] = []

    async with start(graph, Talk(), clock=ManualClock()) as running:
        for answer in ("x", "y"):
            waiting = await running.result()
            told.append(sorted(question.text for question in waiting.questions))
            chosen = min(waiting.questions, key=lambda question: question.text)
            running.answer(chosen.id, answer)
        result = await running.result()

    hold_requests(requests_of(graph))
    assert told == ([["a?", "b?"], ["b?"]] if way == "fork" else [["a?"], ["b?"]])
    assert result.status == "completed"
    said = {request.agent: request.messages for request in requests_of(graph)}
    for name, answer in (("first" if way == "handoff" else "one", "x"), ("two", "y")):
        if name != "first":
            assert [text for text, _ in results_in(said[name])][-1:] == [answer]
    if way == "handoff":
        assert results_in(result.thread)[0] == ("x", False)


@pytest.mark.parametrize("levels", [0, 2])
async def test_k1_an_agent_that_asks_twice_gets_two_answers(levels: int) -> None:
    """The second question of one visit is a question of its own: the first answer does not stand for it."""
    agent = asks("one", "a?", "b?", "c?")
    graph = Graph("g", START >> nest(agent, levels) >> END, context=Talk)

    played = await play(graph, Talk(), answers={"a?": "x", "b?": "y", "c?": "z"})

    assert played.result.output == "one x y z"
    assert len({body.question for body in played.of(Paused)}) == 3
    assert model_calls(played) == ["one"] * 4


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("turns", ["one turn", "branches", "team"])
async def test_k1_questions_at_once_are_answered_in_any_order(turns: str, order: tuple[str, ...]) -> None:
    """Three questions are open; whatever order they are answered in, each answer is where it belongs."""
    if turns == "one turn":
        agent = says(
            "agent",
            [call("ask_user", question=f"{q}?") for q in "abc"],
            all_results,
            tools=[AskUser()],
        )
        graph = Graph("g", START >> agent >> END, context=Talk)
    elif turns == "branches":
        graph = Graph("g", START >> tuple(asks(q, f"{q}?") for q in "abc") >> Join("j") >> END, context=Talk)
    else:
        boss = says(
            "boss",
            [call(f"ask_{q}", objective="go") for q in "abc"],
            all_results,
        )
        graph = Graph(
            "g",
            START >> boss >> END,
            boss.delegates(*(asks(q, f"{q}?") for q in "abc"), max_hops=1),
            context=Talk,
            max_depth=1,
        )

    async with start(graph, Talk(), clock=ManualClock()) as running:
        first = await running.result()
        ids = {question.text: question.id for question in first.questions}
        for q in order:
            running.answer(ids[f"{q}?"], f"<{q}>")
        result = await running.result()

    hold_requests(requests_of(graph))
    assert sorted(ids) == ["a?", "b?", "c?"]
    text = str(result.output)
    assert [text.index(f"<{q}>") for q in "abc"] == sorted(text.index(f"<{q}>") for q in "abc")
    assert result.status == "completed"


@pytest.mark.parametrize("who", ["agent", "person"])
async def test_k3_a_nested_graph_goes_on_where_it_waited(who: str) -> None:
    """What ran before the question does not run again: neither models nor tools nor functions."""
    counts = {"n1": 0, "look": 0}

    @node
    async def n1(_: State[Context]) -> str:
        counts["n1"] += 1
        return "n1"

    def look() -> str:
        counts["look"] += 1
        return "seen"

    n2: Any = Human("n2", "a?")
    if who == "agent":
        n2 = says("n2", call("look"), [call("look"), call("ask_user", question="a?")], "done", tools=[look, AskUser()])
    inner = Graph("inner", START >> n1 >> n2 >> END, context=Talk)
    graph = Graph("g", START >> inner >> END, context=Talk)

    played = await play(graph, Talk(), answers={"a?": "x"})

    assert played.result.status == "completed"
    assert counts == {"n1": 1, "look": 2 if who == "agent" else 0}
    assert played.started == ["inner", "inner/n1", "inner/n2"]
    assert model_calls(played) == (["n2"] * 3 if who == "agent" else [])


class Size(BaseModel, frozen=True):
    """What a person says about a size."""

    number: int


async def test_k3_an_answer_that_does_not_fit_is_refused_and_the_question_stays() -> None:
    """The schema of the question is enforced before anything goes on."""
    agent = says("agent", call("ask_user", question="how many?"), last_text, tools=[AskUser(schema=Size)])
    graph = Graph("g", START >> agent >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as running:
        waiting = await running.result()
        with pytest.raises(UsageError):
            running.answer(waiting.questions[0].id, {"number": "many"})
        assert running.questions == waiting.questions
        running.answer(waiting.questions[0].id, {"number": 3})
        result = await running.result()

    assert result.output == '{"number": 3}'
    hold_requests(requests_of(graph))


@pytest.mark.parametrize("cause", ["a failing branch", "cancellation"])
async def test_k3_an_agent_that_is_cancelled_withdraws_its_question(cause: str) -> None:
    """Nobody is asked for an answer that nothing waits for any more."""

    @node
    async def breaks(_: State[Context], step: Any) -> None:
        await step.sleep(1)
        msg = "no"
        raise LookupError(msg)

    asking = asks("asking", "a?")
    if cause == "a failing branch":
        graph = Graph("g", START >> fork(asking, breaks) >> Join("j") >> END, context=Talk)
    else:
        graph = Graph("g", START >> asking >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as running:
        try:
            await running.result()
        except LookupError:
            assert cause == "a failing branch"
        if cause != "a failing branch":
            assert len(running.questions) == 1
            running.cancel()
            await running.result()

    assert running.questions == ()
    assert running.outcome.status == ("failed" if cause == "a failing branch" else "cancelled")


# --- K5 --------------------------------------------------------------------------------------------------------------


@tool(approval=True)
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount}"


SURE = "'a' wants to call pay(amount=5.0). Approve it?"


def giver(kind: str, first: str) -> Graph[Talk]:
    """An agent that hands over and has questions in one turn."""
    questions = {
        "ask": [call("ask_user", question="sure?")],
        "approval": [call("pay", amount=5)],
        "rejected": [call("pay", amount=5)],
        "all": [call("ask_user", question="sure?"), call("pay", amount=5)],
    }[kind]
    transfer = [call("transfer_to_b", note="go on")]
    calls = [*questions, *transfer] if first == "question" else [*transfer, *questions]
    a, b = says("a", calls, tools=[pay, AskUser()]), says("b", "done")
    return Graph("g", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Talk)


@pytest.mark.parametrize("first", ["question", "transfer"])
@pytest.mark.parametrize("kind", ["ask", "approval", "rejected", "all"])
async def test_k5_a_transfer_waits_for_the_questions_of_its_turn(kind: str, first: str) -> None:
    """The run waits with the giver active; after the answer the handoff happens, and every call is answered once."""
    answers = {"sure?": "yes", SURE: "no" if kind == "rejected" else "yes"}

    waiting = await play(giver(kind, first), Talk())
    played = await play(giver(kind, first), Talk(), answers=answers)

    assert (waiting.result.status, waiting.result.active) == ("waiting", "a")
    assert len(waiting.result.questions) == (2 if kind == "all" else 1)
    assert handoffs(waiting) == []
    assert played.result.active == "b"
    assert handoffs(played) == [("a", "b")]
    assert played.started == ["a", "b"]
    results = results_in(played.result.thread)
    assert len(results) == (3 if kind == "all" else 2)
    assert ("Control goes over to b.", False) in results
    assert tool_runs(played) == ([] if kind in {"ask", "rejected"} else ["pay"])
    kinds = [type(event.body) for event in played.events if event.path and event.path[-1].name == "a"]
    assert kinds.index(Paused) < kinds.index(NodeEnded)


# --- approvals -------------------------------------------------------------------------------------------------------


@tool(approval=True, effect="irreversible")
def refund(invoice: str, amount: float) -> str:
    """Pay back."""
    return f"paid {amount} for {invoice}"


def approving() -> Graph[Talk]:
    """An agent that wants to pay something back."""
    agent = says("agent", call("refund", invoice="INV-311", amount=49), "done", tools=[refund])
    return Graph("g", START >> agent >> END, context=Talk)


@pytest.mark.parametrize(
    ("answer", "result", "failed"),
    [
        (True, "paid 49.0 for INV-311", False),
        ("yes", "paid 49.0 for INV-311", False),
        (False, "not executed: a person rejected this call. Do not call it again for this.", True),
        ("no, it was refunded already", "not executed: a person rejected this call: it was refunded already.", True),
        ({"approve": False, "reason": "too much"}, "not executed: a person rejected this call: too much.", True),
        ({"approve": True, "arguments": {"invoice": "INV-311", "amount": 4}}, "paid 4.0 for INV-311", False),
    ],
)
async def test_k5_a_call_is_approved_rejected_or_edited(answer: Any, result: str, failed: bool) -> None:
    """A person decides on the very call, and may change its arguments; the model is told what came of it."""
    text = (await play(approving(), Talk())).result.questions[0].text

    played = await play(approving(), Talk(), answers={text: answer})

    assert all(part in text for part in ("'agent'", "refund", "INV-311", "49.0"))
    assert results_in(played.result.thread) == [(result, failed)]
    assert tool_runs(played) == ([] if failed else ["refund"])
    assert played.result.output == "done"


async def test_k5_edited_arguments_must_fit_too() -> None:
    """Arguments that the tool does not take are refused to the person, and the question stays."""
    async with start(approving(), Talk(), clock=ManualClock()) as running:
        waiting = await running.result()
        for arguments in ({"amount": None}, {"invoice": 7, "amount": "much"}, {"color": "red"}):
            with pytest.raises(UsageError):
                running.answer(waiting.questions[0].id, {"approve": True, "arguments": arguments})
        assert len(running.questions) == 1


async def test_k5_the_other_calls_of_the_turn_do_not_wait_for_the_approval() -> None:
    """A tool beside it runs before the person has answered, and is not run again."""
    ran: list[str] = []

    def look() -> str:
        ran.append("look")
        return "seen"

    agent = says("agent", [call("refund", invoice="I", amount=1), call("look")], "done", tools=[refund, look])
    graph = Graph("g", START >> agent >> END, context=Talk)

    async with start(graph, Talk(), clock=ManualClock()) as running:
        waiting = await running.result()
        assert ran == ["look"]
        running.answer(waiting.questions[0].id, True)
        result = await running.result()

    assert ran == ["look"]
    assert [text for text, _ in results_in(result.thread)] == ["paid 1.0 for I", "seen"]
    hold_requests(requests_of(graph))
