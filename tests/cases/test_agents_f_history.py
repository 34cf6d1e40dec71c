"""Cases F: what crosses with a handoff, a delegation or a next edge: calls with their results, each fact once."""

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    Human,
    ModelRequest,
    State,
    ThreadMessage,
    Update,
    last,
    node,
    run,
    start,
    tool,
    when,
)
from graphflow.events import Boundary
from graphflow.model.thread import History, Thread
from graphflow.testing import ManualClock, call
from tests.cases.agents import (
    Talk,
    asked,
    hold_messages,
    hold_requests,
    model_calls,
    play,
    requests_of,
    results_in,
    says,
    tool_runs,
)


class Asked(Context):
    """The context of a graph that stands inside another one, and knows only what it is asked."""

    what: str


EVERY: list[Any] = ["note", "summary", "full", *(last(n) for n in range(1, 12))]


def look(at: str) -> str:
    """Look at something."""
    return f"seen: {at}"


def drops_results(thread: Thread) -> Sequence[ThreadMessage]:
    """A policy that lets calls cross without their results."""
    return [message for message in thread if message.role != "tool"]


def drops_calls(thread: Thread) -> Sequence[ThreadMessage]:
    """A policy that lets results cross without their calls."""
    return [message for message in thread if not message.calls]


def backwards(thread: Thread) -> Sequence[ThreadMessage]:
    """A policy that turns everything round."""
    return thread[::-1]


def doubled(thread: Thread) -> Sequence[ThreadMessage]:
    """A policy that lets everything cross twice."""
    return [*thread, *thread]


# --- F1 --------------------------------------------------------------------------------------------------------------


def relay(history: History, way: str) -> Graph[Talk]:
    """Three agents after each other, each of which looks at two things at once before it gives way to the next."""
    letters = "abc"
    agents: list[Agent] = []
    for index, name in enumerate(letters):
        looks = [call("look", at=f"{name}1"), call("look", at=f"{name}2")]
        end: Any = f"{name} is done"
        if way == "handoff" and index < 2:
            end = [call("look", at=f"{name}3"), call(f"transfer_to_{letters[index + 1]}", note=f"{name} says go on")]
        agents.append(says(name, looks, end, tools=[look], history="note" if way == "handoff" else history))
    a, b, c = agents
    if way == "handoff":
        edges = [a.hands_off(b, max_hops=1, history=history), b.hands_off(c, max_hops=1, history=history)]
        return Graph("relay", START >> a >> END, *edges, b >> END, c >> END, context=Talk)
    return Graph("relay", START >> a >> b >> c >> END, context=Talk)


@pytest.mark.parametrize("way", ["handoff", "next"])
@pytest.mark.parametrize("history", [*EVERY, drops_results, drops_calls, backwards, doubled])
async def test_f1_every_call_in_a_request_has_its_one_result(history: History, way: str) -> None:
    """Whatever a policy lets cross and wherever it cuts, calls and results stay in pairs (`play` looks at all)."""
    played = await play(relay(history, way), Talk())

    assert played.result.status == "completed"
    assert model_calls(played) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("history", [*EVERY, drops_results, drops_calls, backwards, doubled])
async def test_f1_holds_for_what_a_callee_sees_of_its_caller(history: History) -> None:
    """A delegation leaves in the middle of its caller's turn: its call is not answered yet, and does not cross."""
    worker = says("worker", call("look", at="w"), "found it", tools=[look])
    boss = says(
        "boss", call("look", at="b"), [call("look", at="b2"), call("ask_worker", objective="go")], "done", tools=[look]
    )
    graph = Graph(
        "g", START >> boss >> END, boss.delegates(worker, max_hops=1, history=history), context=Talk, max_depth=1
    )

    played = await play(graph, Talk())

    assert played.result.status == "completed"
    assert "ask_worker" not in str(asked(worker, 0).messages)
    assert len([m for m in asked(worker, 0).messages if "objective: go" in m.text]) == 1


@pytest.mark.parametrize("ids", ["same", "none"])
async def test_f1_ids_of_a_model_that_repeats_them_are_made_unique(ids: str) -> None:
    """A model that gives every call one id, or none, is answered under ids that are unique in the thread."""
    given = "call_1" if ids == "same" else ""
    one = says(
        "one", *([call("look", given, at=f"{turn}{n}") for n in range(3)] for turn in range(3)), "done", tools=[look]
    )
    two = says("two", [call("look", given, at="x"), call("look", given, at="y")], "done", tools=[look], history="full")

    played = await play(Graph("g", START >> one >> two >> END, context=Talk), Talk())

    assert [text for text, _ in results_in(asked(two).messages)] == [
        f"seen: {at}" for at in ("00", "01", "02", "10", "11", "12", "20", "21", "22", "x", "y")
    ]
    assert played.result.status == "completed"


@pytest.mark.parametrize("history", ["note", "summary", "full", last(3)])
async def test_f1_holds_for_an_agent_that_a_loop_enters_again(history: History) -> None:
    """Each round is a new view of the whole thread, never the view of the last round and more."""

    @node
    async def judge(state: State[Talk]) -> Update:
        return Update(question=state.context.question + "!")

    def again(state: State[Talk]) -> bool:
        return len(state.context.question) < 4

    steps = [step for turn in range(3) for step in (call("look", at=f"{turn}"), f"round {turn}")]
    writer = says("writer", *steps, tools=[look], history=history)
    graph = Graph(
        "g", START >> writer >> judge, judge.choose(when(again, writer, max_hops=9), default=END), context=Talk
    )

    played = await play(graph, Talk(question="?"))

    assert played.result.status == "completed"
    firsts = [request for request in requests_of(graph) if request.turn == 0]
    sizes = {"note": [1, 1, 1], "summary": [1, 2, 2], "full": [1, 4, 7]}
    if isinstance(history, str):
        assert [len(request.messages) for request in firsts] == sizes[history]


# --- F3 --------------------------------------------------------------------------------------------------------------


def facts_in(request: ModelRequest, *facts: str) -> list[int]:
    """Count how often each fact stands in what an agent was sent."""
    text = "\n".join(message.text + "".join(found.arguments for found in message.calls) for message in request.messages)
    return [text.count(fact) for fact in facts]


@pytest.mark.parametrize("way", ["handoff", "next", "delegate"])
@pytest.mark.parametrize("parallel", [True, False])
async def test_f3_a_summary_stands_instead_of_what_it_covers(way: str, parallel: bool) -> None:
    """One summary, no raw item of the other agent, and each fact once: calls, results, the note, the question."""
    looks = [call("look", at="fact one"), call("look", at="fact two")]
    steps: list[Any] = [looks] if parallel else looks
    end = {"handoff": call("transfer_to_b", note="fact three"), "next": "fact three"}
    turns = [*steps, call("ask_b", objective="fact three"), "done"] if way == "delegate" else [*steps, end[way]]
    a = says("a", *turns, tools=[look])
    b = says("b", "done", history="summary")
    routes = {
        "handoff": [START >> a >> END, a.hands_off(b, max_hops=1, history="summary"), b >> END],
        "next": [START >> a >> b >> END],
        "delegate": [START >> a >> END, a.delegates(b, max_hops=1, history="summary")],
    }
    graph = Graph("g", *routes[way], context=Talk, max_depth=1)

    await play(graph, Talk(question="fact zero"))

    messages = asked(b, 0).messages
    assert [message.role for message in messages if message.role != "user"] == []
    assert [message.text.startswith("<summary") for message in messages].count(True) == 1
    assert facts_in(asked(b, 0), "seen: fact one", "seen: fact two", "fact three", "fact zero") == [1, 1, 1, 1]


async def test_f3_a_summary_covers_the_thread_and_no_earlier_summary() -> None:
    """In a chain of summaries the last one has every fact once, from the thread itself."""
    await play(graph := relay("summary", "handoff"), Talk(question="fact zero"))

    request = next(found for found in requests_of(graph) if found.agent == "c" and found.turn == 0)
    facts = [f"seen: {name}{number}" for name in "ab" for number in "123"]
    assert facts_in(request, *facts, "a says go on", "b says go on", "fact zero") == [1] * 9
    assert facts_in(request, "<summary") == [1]


# --- F5 --------------------------------------------------------------------------------------------------------------


async def test_f5_a_chain_of_handoffs_stores_each_message_once() -> None:
    """Nine messages over three hops: the store holds nine, and the last agent is sent those nine and no more."""
    a = says("a", call("look", at="it"), call("transfer_to_b", note="one"), tools=[look])
    b, c = says("b", call("transfer_to_c", note="two")), says("c", call("transfer_to_d", note="three"))
    d = says("d", "answer")
    graph = Graph(
        "g",
        START >> a >> END,
        a.hands_off(b, max_hops=1, history="full"),
        b.hands_off(c, max_hops=1, history="full"),
        c.hands_off(d, max_hops=1, history="full"),
        *(one >> END for one in (b, c, d)),
        context=Talk,
    )

    played = await play(graph, Talk())

    stored, answer = played.result.thread[:-1], played.result.thread[-1]
    assert len(stored) == 9
    assert asked(d).messages == stored
    assert (answer.text, answer.source) == ("answer", "d")
    assert all(one is other for one, other in zip(asked(d).messages, stored, strict=True))


@pytest.mark.parametrize("hops", [1, 2, 5])
@pytest.mark.parametrize("way", ["handoff", "next"])
async def test_f5_requests_never_hold_a_message_twice(way: str, hops: int) -> None:
    """With the whole thread crossing each edge, every agent of a chain sees each message once, in order."""
    names = [f"n{index}" for index in range(hops + 1)]
    chain: list[Agent] = []
    for index, name in enumerate(names):
        gives = call(f"transfer_to_n{index + 1}", note=f"to {index + 1}") if way == "handoff" else f"{name} said so"
        chain.append(says(name, gives if index < hops else "the end", history="full"))
    if way == "handoff":
        edges = [one.hands_off(other, max_hops=1, history="full") for one, other in pairwise(chain)]
        graph = Graph("g", START >> chain[0] >> END, *edges, *(one >> END for one in chain[1:]), context=Talk)
    else:
        statements: Any = START >> chain[0]
        for one in chain[1:]:
            statements = statements >> one
        graph = Graph("g", statements >> END, context=Talk)

    played = await play(graph, Talk())

    thread = played.result.thread
    for number, agent in enumerate(chain):
        assert asked(agent).messages == thread[: 1 + number * (2 if way == "handoff" else 1)]
    assert len(set(map(id, thread))) == len(thread)
    assert thread[-1].text == "the end"


async def test_f5_what_crossed_and_what_did_not_is_on_record() -> None:
    """A handoff with a note lets the question cross and drops the rest, and the record says so with bytes."""
    a = says("a", call("look", at="it"), call("transfer_to_b", note="one"), tools=[look])
    b = says("b", "answer")
    graph = Graph("g", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Talk)

    played = await play(graph, Talk(question="Where is it?"))

    boundary = next(body for body in played.of(Boundary) if body.path[-1].name == "b")
    assert (boundary.crossed, boundary.dropped) == (((0, 0),), ((1, 4),))
    assert boundary.bytes == sum(message.size for message in asked(b).messages)
    assert [message.text for message in asked(b).messages] == ["Where is it?", '<note from="a">\none\n</note>']


# --- F7 --------------------------------------------------------------------------------------------------------------


def team(first: str, second: str) -> Graph[Talk]:
    """A boss that asks two workers and looks something up in one turn; each worker finds out by itself or asks."""

    def worker(name: str, kind: str) -> Any:
        if kind == "asks":
            return says(
                name,
                call("ask_user", question=f"{name}?"),
                lambda r: f"{name}: {r.messages[-1].text}",
                tools=[AskUser()],
            )
        if kind == "person":
            return Graph(name, START >> Human("person", f"{name}?") >> END, context=Talk)
        return says(name, f"{name}: by itself")

    one, two = worker("one", first), worker("two", second)
    calls = [
        call("ask_one", "id-1", objective="go"),
        call("look", "id-2", at="it"),
        call("ask_two", "id-3", objective="go"),
    ]
    boss = says("boss", calls, "done", tools=[look])
    return Graph("g", START >> boss >> END, boss.delegates(one, two, max_hops=1), context=Talk, max_depth=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [("knows", "asks"), ("asks", "knows"), ("asks", "asks"), ("person", "asks"), ("knows", "person")],
)
@pytest.mark.parametrize("order", ["one first", "two first"])
async def test_f7_results_from_before_a_pause_are_there_after_it(first: str, second: str, order: str) -> None:
    """Both reports and the tool's result reach the boss under the right ids, and nothing was done twice."""
    graph = team(first, second)
    answers = {
        f"{name}?": f"the answer of {name}" for name in (("one", "two") if order == "one first" else ("two", "one"))
    }

    waiting = await play(team(first, second), Talk())
    played = await play(graph, Talk(), answers=answers)

    asking = [kind for kind in (first, second) if kind != "knows"]
    assert waiting.result.status == "waiting"
    assert len(waiting.result.questions) == len(asking)
    request = asked(graph.nodes["boss"])
    results = {message.answers: message.text for message in request.messages if message.role == "tool"}
    assert list(results) == ["id-1", "id-2", "id-3"]
    assert ("by itself" if first == "knows" else "the answer of one") in results["id-1"]
    assert results["id-2"] == "seen: it"
    assert ("by itself" if second == "knows" else "the answer of two") in results["id-3"]
    assert tool_runs(played) == ["look"]
    assert played.started[0] == "boss"
    assert len(set(played.started)) == len(played.started)


# --- the next message of a chat --------------------------------------------------------------------------------------


def breaks() -> str:
    """Fail."""
    msg = "no"
    raise LookupError(msg)


def ends_as(how: str) -> Graph[Talk]:
    """A chat whose first run ends in some way in the middle of things."""
    turns: dict[str, list[Any]] = {
        "completed": [call("look", at="1"), "done"],
        "max_turns": [[call("look", at=f"{number}"), call("look", at="x")] for number in range(3)],
        "model_calls": [call("look", at=f"{number}") for number in range(5)],
        "failed": [call("look", at="1"), [call("look", at="2"), call("breaks"), call("ask_user", question="?")]],
        "cancelled": [call("look", at="1"), [call("look", at="2"), call("ask_user", question="?")]],
        "max_handoffs": [call("look", at="1"), [call("transfer_to_b", note="go"), call("look", at="2")]],
        "contract": [call("look", at="1"), "", ""],
    }
    tools = [look, tool(breaks, on_error="raise"), AskUser()]
    a = says("a", *turns[how], tools=tools, max_turns=3 if how == "max_turns" else 9)
    b = says("b", "b is done")
    edges = [a.hands_off(b, max_hops=1), b >> END]
    most = 0 if how == "max_handoffs" else None
    budget = Budget(model_calls=3) if how == "model_calls" else None
    return Graph("g", START >> a >> END, *edges, context=Talk, max_handoffs=most, budget=budget)


@pytest.mark.parametrize("history", ["full", "summary", last(2), drops_results])
@pytest.mark.parametrize(
    "how", ["completed", "max_turns", "model_calls", "failed", "cancelled", "max_handoffs", "contract"]
)
async def test_f1_holds_for_the_next_message_whatever_became_of_the_last(how: str, history: History) -> None:
    """However a run ended, its thread has every call with its result, and the run after it sees them so."""
    async with start(ends_as(how), Talk(), clock=ManualClock()) as running:
        with contextlib.suppress(LookupError):
            await running.result()
        running.cancel()
        with contextlib.suppress(LookupError):
            await running.result()
        first = running.outcome
    c = says("c", call("look", "call_0_0", at="c"), "c is done", tools=[look], history=history)
    graph = Graph("g", START >> c >> END, context=Talk)

    second = await run(graph, Talk(question="And now?"), after=first)

    hold_messages(first.thread)
    hold_messages(second.thread)
    hold_requests(requests_of(graph))
    assert second.status == "completed"
    assert second.thread[: len(first.thread)] == first.thread
    assert any(message.text == "And now?" for message in asked(c, 0).messages) or callable(history)


async def test_f_what_comes_into_a_nested_graph_is_said_once_with_its_sender() -> None:
    """A graph with a context of its own is asked by a node, and not by a user: as data, labelled, and once."""
    first, inner, second = says("first", "A finding."), says("inner", "Seen."), says("second", "Done.")
    nested = Graph("nested", START >> inner >> second >> END, context=Asked)
    graph = Graph("g", START >> first >> nested >> END, context=Talk)

    await run(graph, Talk(question="What?"))

    told = [message.text for message in asked(inner, 0).messages]
    assert told == ['<message from="first">\nA finding.\n</message>']
    assert asked(second, 0).messages[0].text == told[0]


async def test_f_a_nested_graph_with_the_same_context_is_still_asked_by_the_user() -> None:
    """Where the context goes on, its first text is what the user said, whatever arrives."""
    first, inner = says("first", "What"), says("inner", "Seen.")
    graph = Graph("g", START >> first >> Graph("nested", START >> inner >> END, context=Talk) >> END, context=Talk)

    await run(graph, Talk(question="What?"))

    told = [message.text for message in asked(inner, 0).messages]
    assert told == ["What?", '<message from="first">\nWhat\n</message>']
