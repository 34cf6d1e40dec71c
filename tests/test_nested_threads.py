"""What crosses to a graph inside a graph, and what of its answer stands in the conversation around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Handoff,
    Human,
    MemoryJournal,
    ModelRequest,
    Reason,
    Report,
    Result,
    State,
    Supervisor,
    ToolCall,
    Update,
    fork,
    last,
    node,
    on_active,
    replay,
    resume,
    run,
    start,
    strategies,
    tool,
    when,
)
from graphflow.events import Boundary, Event
from graphflow.model.thread import History, Thread
from graphflow.testing import ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str = ""


class Asked(Context):
    """The context of a graph that knows only what it is asked."""

    what: str = ""


SMALL = Budget(model_calls=30, node_runs=60)
LOOK = tool(lambda: "seen", name="look")

HANDED = ["q", "look", "seen", "transfer_to_team", "Control goes over to team."]
"""The thread of who has looked and handed over."""

NOTE = '<note from="t">\nNOTE\n</note>'
SUMMARY = '<summary from="thread">\nt: look({}) -> seen\n</summary>'


def texts(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return what a model was shown in one of its requests."""
    return [message.text or message.calls[0].name for message in model.requests[number].messages]


def said(result: Result[Any]) -> list[str]:
    """Return the thread of a result."""
    return [message.text or message.calls[0].name for message in result.thread]


def mine(thread: Thread) -> Thread:
    """Let what the user said cross without its end, and nothing else."""
    return tuple(replace(message, text="shortened") for message in thread if message.role == "user")


def nothing(_: Thread) -> Thread:
    """Let nothing cross."""
    return ()


def the_first(thread: Thread) -> Thread:
    """Let the first message cross."""
    return thread[:1]


def seldom(thread: Thread) -> Thread:
    """Fail."""
    raise RuntimeError(f"{len(thread)} messages are too many")


def team_of(model: ScriptedModel, *, context: type[Context] = Talk, history: History | None = None) -> Graph[Any]:
    """A team of one."""
    x = Agent("x", model=model, history=history)
    return Graph("team", START >> x >> END, context=context)


def handing(team: Graph[Any], history: History) -> Graph[Talk]:
    """Somebody looks, and hands over to a team."""
    t = Agent("t", model=ScriptedModel(call("look"), call("transfer_to_team", note="NOTE")), tools=[LOOK])
    handed = t.hands_off(team, max_hops=1, history=history)
    return Graph("g", START >> t >> END, handed, team >> END, context=Talk, budget=SMALL)


def asking(team: Graph[Any], history: History) -> Graph[Talk]:
    """Somebody looks, and asks a team."""
    t = Agent("t", model=ScriptedModel(call("look"), call("ask_team", objective="OBJ"), "done"), tools=[LOOK])
    asked = t.delegates(team, max_hops=1, history=history)
    return Graph("g", START >> t >> END, asked, context=Talk, budget=SMALL, max_depth=1)


async def crossed(graph: Graph[Talk]) -> tuple[Result[Talk], list[Boundary]]:
    """Run a graph; return the records of what crossed to its team too."""
    events: list[Event] = []
    result = await run(graph, Talk(text="q"), listeners=[events.append])
    found = [event.body for event in events if isinstance(event.body, Boundary)]
    return result, [body for body in found if body.path[-1].name == "team"]


# --- history= of an edge to a graph ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "seen", "ranges"),
    [
        ("full", HANDED, (((0, 4),), ())),
        (last(2), ["q", *HANDED[3:]], (((0, 0), (3, 4)), ((1, 2),))),
        ("summary", ["q", SUMMARY, NOTE], (((0, 4),), ())),
        (nothing, ['<message from="t">\nNOTE\n</message>'], ((), ((0, 4),))),
        (mine, ["shortened", '<note from="t">\nNOTE\n</note>'], ((), ((0, 4),))),
    ],
    ids=["full", "last", "summary", "nothing", "mine"],
)
async def test_a_graph_that_is_handed_over_to_begins_with_its_view(
    history: History, seen: list[str], ranges: tuple[object, object]
) -> None:
    """Who begins in it sees what an agent in its place would see, and nothing twice."""
    model = ScriptedModel("X")

    result, boundaries = await crossed(handing(team_of(model), history))

    assert result.output == "X"
    assert texts(model) == seen
    [boundary] = boundaries
    assert (boundary.crossed, boundary.dropped) == ranges


async def test_a_graph_sees_what_an_agent_sees() -> None:
    """The same edge, to an agent and to a graph, lets the same cross."""
    for history in ("full", last(1), last(3), "summary"):
        t = Agent("t", model=ScriptedModel(call("look"), call("transfer_to_team", note="NOTE")), tools=[LOOK])
        alone, within = ScriptedModel("X"), ScriptedModel("X")
        agent = Agent("team", model=alone)
        plain = Graph(
            "g", START >> t >> END, t.hands_off(agent, max_hops=1, history=history), agent >> END,
            context=Talk, budget=SMALL,
        )  # fmt: skip

        await run(plain, Talk(text="q"))
        await run(handing(team_of(within), history), Talk(text="q"))

        assert texts(within) == texts(alone)


async def test_the_record_counts_the_bytes_that_crossed() -> None:
    """The bytes are those of the messages with which the graph begins."""
    _, [boundary] = await crossed(handing(team_of(ScriptedModel("X")), last(2)))

    assert boundary.edge.kind == "handoff"
    assert boundary.bytes == len("q") + len("transfer_to_team") + len('{"note": "NOTE"}') + len(HANDED[4])


async def test_a_result_without_its_call_has_not_crossed() -> None:
    """The record says what is in the view, and not what the policy would have taken."""
    for history, ranges in ((last(1), (((0, 0),), ((1, 4),))), (last(3), (((0, 0), (3, 4)), ((1, 2),)))):
        model = ScriptedModel("X")

        _, [boundary] = await crossed(handing(team_of(model), history))

        assert (boundary.crossed, boundary.dropped) == ranges


async def test_a_handoff_without_a_note_lets_the_same_cross() -> None:
    """The note is not needed for what `history=` lets cross."""
    model = ScriptedModel("X")
    team = team_of(model)
    a = Agent("a", model=ScriptedModel("hello"))

    @node
    async def give(state: State[Talk]) -> Handoff:
        return Handoff(to="team")

    graph = Graph(
        "g", START >> a >> give, give.hands_off(team, max_hops=1, history="full"), team >> END, context=Talk,
        budget=SMALL,
    )  # fmt: skip

    await run(graph, Talk(text="q"))

    assert texts(model) == ["q", "hello"]


async def test_calls_at_once_begin_with_their_own_views() -> None:
    """Two calls of a team in one turn see what was said before it, and nothing of each other."""
    model = ScriptedModel("X", "X")
    team = team_of(model)
    t = Agent(
        "t",
        model=ScriptedModel(call("look"), [call("ask_team", objective="1"), call("ask_team", objective="2")], "done"),
        tools=[LOOK],
    )
    asked = t.delegates(team, max_hops=2, history="full")
    graph = Graph("g", START >> t >> END, asked, context=Talk, budget=SMALL, max_depth=1)

    result = await run(graph, Talk(text="q"))

    assert result.output == "done"
    assert texts(model, 0)[:-1] == texts(model, 1)[:-1] == HANDED[:3]


async def test_the_default_lets_nothing_cross_and_records_nothing() -> None:
    """With "note" a graph begins with what the user said and the note, and its edge has no record of its own."""
    model = ScriptedModel("X")

    _, boundaries = await crossed(handing(team_of(model), "note"))

    assert texts(model) == ["q", '<message from="t">\nNOTE\n</message>']
    assert boundaries == []


async def test_a_graph_with_a_context_of_its_own_is_asked_behind_what_crossed() -> None:
    """The note is what it is asked; the conversation comes before."""
    model = ScriptedModel("X")

    await run(handing(team_of(model, context=Asked), "full"), Talk(text="q"))

    assert texts(model) == [*HANDED, '<message from="t">\nNOTE\n</message>']


@pytest.mark.parametrize(
    ("history", "before"),
    [
        ("note", []),
        ("full", HANDED[:3]),
        (last(2), HANDED[1:3]),
        ("summary", ['<summary from="thread">\nuser: q\nt: look({}) -> seen\n</summary>']),
        (nothing, []),
        (the_first, ["q"]),
    ],
    ids=["note", "full", "last", "summary", "nothing", "first"],
)
async def test_a_graph_that_is_asked_begins_with_its_view(history: History, before: list[str]) -> None:
    """What crosses stands before the brief."""
    model = ScriptedModel("X")

    result, boundaries = await crossed(asking(team_of(model), history))

    assert result.output == "done"
    assert texts(model)[:-1] == before
    assert texts(model)[-1].startswith('<brief from="t">\nobjective: OBJ')
    assert len(boundaries) == (history != "note")


async def test_functions_and_people_in_a_graph_stand_in_its_thread() -> None:
    """A function that begins there sees what crossed; an agent behind it sees what the user said."""
    seen: list[int] = []

    @node
    async def count(state: State[Talk]) -> str:
        seen.append(len(state.thread))
        return "counted"

    model = ScriptedModel("X")
    x = Agent("x", model=model)
    team = Graph("team", START >> count >> x >> END, context=Talk)

    await run(handing(team, "full"), Talk(text="q"))

    assert seen == [5]
    assert texts(model) == ["q", '<message from="team/count">\ncounted\n</message>']


async def test_branches_of_a_graph_begin_with_its_view_too() -> None:
    """Each branch that begins at START sees what crossed."""
    left, right = ScriptedModel("L"), ScriptedModel("R")
    a, b = Agent("a", model=left), Agent("b", model=right)

    @node
    async def both(state: State[Talk]) -> str:
        return "+".join(map(str, state.values))

    team = Graph("team", START >> fork(a, b) >> both >> END, context=Talk)

    result = await run(handing(team, "full"), Talk(text="q"))

    assert texts(left) == texts(right) == HANDED
    assert result.output == "L+R"


async def test_an_agent_in_a_graph_may_say_that_it_wants_less() -> None:
    """`history=` of who begins there counts, as in a chat."""
    model = ScriptedModel("X")

    await run(handing(team_of(model, history="note"), "full"), Talk(text="q"))

    assert texts(model) == ["q", NOTE]


async def test_a_graph_inside_that_graph_begins_with_it_too() -> None:
    """Who begins in the innermost graph sees what crossed, as if its agents stood in the outer one."""
    model = ScriptedModel("X")
    x = Agent("x", model=model)
    inner = Graph("inner", START >> x >> END, context=Talk)
    team = Graph("team", START >> inner >> END, context=Talk)

    await run(handing(team, "full"), Talk(text="q"))

    assert texts(model) == HANDED


async def test_a_history_function_that_fails_is_a_failure_of_the_graph() -> None:
    """It names the argument and the graph, and an error edge may take it."""

    @node
    async def caught(state: State[Talk]) -> str:
        return str(state.values[0].reason.text)

    team = team_of(ScriptedModel("X"))
    t = Agent("t", model=ScriptedModel(call("transfer_to_team", note="NOTE")))
    graph = Graph(
        "g", START >> t >> END, t.hands_off(team, max_hops=1, history=seldom), team >> END, team.on_error(caught),
        caught >> END, context=Talk, budget=SMALL,
    )  # fmt: skip

    result = await run(graph, Talk(text="q"))

    assert result.output == "history= of 'team' raised: 3 messages are too many"


async def test_a_function_that_hands_over_to_a_graph_lets_its_thread_cross() -> None:
    """The note of a function stands in no call, so it is shown; without a thread nothing crosses."""
    for speaks_first in (True, False):
        model = ScriptedModel("X")
        team = team_of(model)

        @node
        async def give(state: State[Talk]) -> Handoff:
            return Handoff(to="team", note="NOTE")

        a = Agent("a", model=ScriptedModel("hello"))
        way = START >> a >> give if speaks_first else START >> give
        graph = Graph(
            "g", way, give.hands_off(team, max_hops=1, history="full"), team >> END, context=Talk, budget=SMALL
        )

        await run(graph, Talk(text="q"))

        shown = texts(model)
        assert shown[: len(shown) - 1] == (["q", "hello"] if speaks_first else ["q"])
        assert "NOTE" in shown[-1]


async def test_strategies_hand_over_to_graphs_with_history() -> None:
    """`strategies.handoff(history=)` reaches a specialist that is a graph."""
    model = ScriptedModel("X")
    p = Agent("p", model=ScriptedModel(call("look"), call("transfer_to_team", note="NOTE")), tools=[LOOK])

    await run(strategies.handoff("h", p, team_of(model), history="full", context=Talk), Talk(text="q"))

    assert texts(model) == HANDED


def looks_then_hands_over(request: ModelRequest) -> ToolCall:
    """Do what has not been done, whichever process does it."""
    return call("look") if len(request.messages) == 1 else call("transfer_to_team", note="NOTE")


def again(history: History, model: ScriptedModel) -> Graph[Talk]:
    """The graph of `handing`, whose model can be asked from anywhere on."""
    t = Agent("t", model=ScriptedModel(looks_then_hands_over, looks_then_hands_over), tools=[LOOK])
    team = team_of(model)
    handed = t.hands_off(team, max_hops=1, history=history)
    return Graph("g", START >> t >> END, handed, team >> END, context=Talk, budget=SMALL)


async def cut(journal: MemoryJournal, count: int) -> MemoryJournal:
    """Return a journal that was broken off after some rows."""
    made = MemoryJournal()
    writer = await made.claim("r")
    for row in (await journal.read("r"))[:count]:
        await writer.append(row)
    await writer.release()
    return made


async def test_a_stored_run_goes_on_with_what_crossed() -> None:
    """Taken up from each of its rows, and replayed, it decides the same."""
    journal = MemoryJournal()
    first = await run(again("full", ScriptedModel("X")), Talk(text="q"), journal=journal, run_id="r")
    rows = await journal.read("r")

    played = await replay(again("full", ScriptedModel()), "r", journal=journal)

    assert (played.thread, played.active) == (first.thread, first.active)
    for count in range(1, len(rows)):
        result = await resume(again("full", ScriptedModel("X")), "r", journal=await cut(journal, count))
        assert result.thread == first.thread


async def test_a_run_that_began_without_views_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stored before graphs had views has none, to its end."""
    monkeypatch.setattr("graphflow.runtime.starting.EDITION", 0)
    journal = MemoryJournal()
    await run(again("full", ScriptedModel("X")), Talk(text="q"), journal=journal, run_id="r")
    monkeypatch.undo()
    model = ScriptedModel("X")
    rows = await journal.read("r")

    result = await resume(again("full", model), "r", journal=await cut(journal, len(rows) - 2))

    assert result.output == "X"
    assert texts(model) == ["q", '<message from="t">\nNOTE\n</message>']


# --- the answer of a run ---------------------------------------------------------------------------------------------


def desk(model: ScriptedModel, *, context: type[Context] = Talk) -> tuple[Graph[Talk], ScriptedModel]:
    """A chat with triage and a team."""
    first = ScriptedModel(call("transfer_to_team", note="n"), "triage again")
    triage, team = Agent("triage", model=first), team_of(model, context=context)
    graph = Graph(
        "chat", START.choose(on_active(team), default=triage), triage.hands_off(team, max_hops=2), triage >> END,
        team >> END, context=Talk, budget=SMALL,
    )  # fmt: skip
    return graph, first


TOLD = ["one", "transfer_to_team", "Control goes over to team.", '<message from="team">\nfirst\n</message>']


@pytest.mark.parametrize("context", [Talk, Asked])
async def test_a_chat_goes_on_with_the_graph_that_was_handed_over_to(context: type[Context]) -> None:
    """It is active, its answer is in the thread, and the next message reaches it with the whole conversation."""
    model = ScriptedModel("first", "second", "third")
    graph, triage = desk(model, context=context)

    one = await run(graph, Talk(text="one"))
    two = await run(graph, Talk(text="two"), after=one)
    three = await run(graph, Talk(text="three"), after=two)

    assert (one.active, two.active, three.active) == ("team", "team", "team")
    assert said(one) == TOLD
    assert texts(model, 1) == [*TOLD, "two"]
    assert said(two) == [*TOLD, "two", '<message from="team">\nsecond\n</message>']
    assert texts(model, 2) == [*said(two), "three"]
    assert (three.output, len(triage.requests)) == ("third", 1)


async def test_a_chat_with_a_graph_alone_knows_what_was_said() -> None:
    """A graph that is entered by a next edge answers in the thread around it, and knows it the next time."""
    model = ScriptedModel("first", "second")
    team = team_of(model)
    graph = Graph("chat", START >> team >> END, context=Talk, budget=SMALL)

    one = await run(graph, Talk(text="one"))
    two = await run(graph, Talk(text="two"), after=one)

    assert (said(one), one.active) == (["one", '<message from="team">\nfirst\n</message>'], "team")
    assert texts(model, 1) == [*said(one), "two"]
    assert said(two) == [*said(one), "two", '<message from="team">\nsecond\n</message>']


async def test_a_graph_that_says_what_it_begins_with_does_not_get_the_chat() -> None:
    """With `enter=` a graph begins with that alone, in the next message of a chat too."""
    model = ScriptedModel("first", "second")
    x = Agent("x", model=model)
    team = Graph(
        "team", START >> x >> END, context=Asked, enter=lambda state: Asked(what=f"about {state.context.text}")
    )
    graph = Graph("chat", START >> team >> END, context=Talk, budget=SMALL)

    one = await run(graph, Talk(text="one"))
    two = await run(graph, Talk(text="two"), after=one)

    assert texts(model, 1) == ["about two"]
    assert said(two)[-2:] == ["two", '<message from="team">\nsecond\n</message>']


async def test_what_a_person_answered_last_is_known_the_next_time() -> None:
    """The answer of who a bound escalated to is the end of the conversation."""
    again = ScriptedModel(call("transfer_to_y", note="n"), "I know")
    x, y = Agent("x", model=again), Agent("y", model=ScriptedModel(call("transfer_to_x", note="n")))
    graph = Graph(
        "chat", START >> x >> END, x.hands_off(y, max_hops=9), y.hands_off(x, max_hops=9), y >> END, context=Talk,
        budget=SMALL, max_handoffs=1, escalate=Human("clerk", "What now?"),
    )  # fmt: skip

    async with start(graph, Talk(text="one")) as running:
        waiting = await running.result()
        running.answer(waiting.questions[0].id, "We call you.")
        one = await running.result()
    two = await run(graph, Talk(text="two"), after=one)

    assert (one.output, one.thread[-1].source) == ("We call you.", "clerk")
    assert texts(again, 1)[-2:] == ['<message from="clerk">\nWe call you.\n</message>', "two"]
    assert two.output == "I know"


async def test_what_a_function_answered_last_is_known_the_next_time() -> None:
    """What the user was told stands in the thread, whoever said it, once."""
    model = ScriptedModel("x1", "x2")
    x = Agent("x", model=model)

    @node
    async def finish(state: State[Talk]) -> str:
        return f"[{state.values[0]}]"

    graph = Graph("chat", START >> x >> finish >> END, context=Talk, budget=SMALL)

    one = await run(graph, Talk(text="one"))
    two = await run(graph, Talk(text="two"), after=one)

    assert (said(one), one.active) == (["one", "x1", '<message from="finish">\n[x1]\n</message>'], "x")
    assert texts(model, 1) == [*said(one), "two"]
    assert two.thread[: len(one.thread)] == one.thread


async def test_what_was_said_before_any_agent_spoke_is_known() -> None:
    """A message that a function answers alone is a part of the conversation too."""
    model = ScriptedModel("x")
    x = Agent("x", model=model)

    @node
    async def greet(state: State[Talk]) -> str:
        return "Hello."

    graph = Graph(
        "chat", START.choose(when(lambda state: state.context.text == "hi", greet), default=x), greet >> END,
        x >> END, context=Talk, budget=SMALL,
    )  # fmt: skip

    one = await run(graph, Talk(text="hi"))
    await run(graph, Talk(text="two"), after=one)

    assert said(one) == ["hi", '<message from="greet">\nHello.\n</message>']
    assert texts(model) == [*said(one), "two"]


def in_a_form(_: State[Talk]) -> str:
    """Give something else than what arrived."""
    return "FORM"


def as_it_is(state: State[Talk]) -> object:
    """Give what arrived."""
    return state.values[0]


@pytest.mark.parametrize(("leave", "more"), [(in_a_form, ['<message from="chat">\nFORM\n</message>']), (as_it_is, [])])
async def test_an_answer_that_leaves_in_another_form_is_known(
    leave: Callable[[State[Talk]], object], more: list[str]
) -> None:
    """With `leave=` the answer is what left; one that an agent said as it is stands there once."""
    x = Agent("x", model=ScriptedModel("said"))
    graph = Graph("chat", START >> x >> END, context=Talk, budget=SMALL, leave=leave)

    result = await run(graph, Talk(text="one"))

    assert said(result) == ["one", "said", *more]


async def test_the_answers_of_branches_are_known() -> None:
    """What agents in branches say stays in them; what they answered is in the thread around."""
    a, b = Agent("a", model=ScriptedModel("A")), Agent("b", model=ScriptedModel("B"))
    graph = Graph(
        "chat", START >> (a, b), a >> END, b >> END, context=Talk, budget=SMALL, leave=lambda state: state.values
    )

    result = await run(graph, Talk(text="one"))

    assert said(result) == ["one", '<message from="chat">\n["A", "B"]\n</message>']


async def test_an_agents_answer_stands_in_the_thread_once() -> None:
    """What an agent said last is in the thread as its own words, a report too, and no message beside it."""
    for answer in ("said", Report(finding="found")):
        x = Agent("x", model=ScriptedModel(answer), output=Report if isinstance(answer, Report) else str)
        result = await run(Graph("chat", START >> x >> END, context=Talk, budget=SMALL), Talk(text="one"))

        assert [message.role for message in result.thread] == ["user", "assistant"]


async def test_a_graph_without_agents_has_no_thread() -> None:
    """Where no model takes part there is no conversation to keep."""

    @node
    async def f(state: State[Talk]) -> Update:
        return Update(text="done")

    @node
    async def g(state: State[Talk]) -> str:
        return "done"

    inner = Graph("inner", START >> g >> END, context=Talk)
    graph = Graph("chat", START >> f >> inner >> END, context=Talk, budget=SMALL)

    result = await run(graph, Talk(text="one"))

    assert (result.output, result.thread, result.active) == ("done", (), None)


async def test_who_is_handed_over_to_is_active_in_the_graph() -> None:
    """A condition behind the graph sees that it has control."""
    team = team_of(ScriptedModel("X"))
    seen: list[str | None] = []

    @node
    async def look_at(state: State[Talk]) -> str:
        seen.append(state.active)
        return "end"

    t = Agent("t", model=ScriptedModel(call("transfer_to_team", note="NOTE")))
    graph = Graph(
        "g", START >> t >> END, t.hands_off(team, max_hops=1), team >> look_at >> END, context=Talk, budget=SMALL
    )

    await run(graph, Talk(text="q"))

    assert seen == ["team"]


# --- long texts ------------------------------------------------------------------------------------------------------


async def test_a_long_finding_leaves_the_other_fields() -> None:
    """The model of the caller reads status, reason, action and evidence, and how much of the finding was cut."""

    @node
    async def w(state: State[Talk]) -> Report:
        why = Reason(code="reported", text="half of it")
        return Report(finding="f" * 20_000, action_needed="CALL", evidence=("e-1",), status="partial", reason=why)

    model = ScriptedModel(call("ask_w", objective="o"), "done")
    s = Supervisor("s", model=model)
    graph = Graph("g", START >> s >> END, s.delegates(w, max_hops=1), context=Talk, budget=SMALL, max_depth=1)

    await run(graph, Talk(text="q"))

    shown = texts(model)[-1]
    assert len(shown) < 16_100
    for field in (
        "half of it",
        '"action_needed": "CALL"',
        '"evidence": ["e-1"]',
        '"status": "partial"',
        "were left out]",
    ):
        assert field in shown


async def test_a_long_brief_keeps_its_other_fields() -> None:
    """An objective that is too long is cut, and the guidance and the boundary stay."""
    model = ScriptedModel("ok")
    b = Agent("b", model=model)
    s = Supervisor("s", model=ScriptedModel(call("ask_b", objective="o" * 30_000, guidance="IMPORTANT"), "done"))
    graph = Graph("g", START >> s >> END, s.delegates(b, max_hops=1), context=Talk, budget=SMALL, max_depth=1)

    await run(graph, Talk(text="q"))

    shown = texts(model)[0]
    assert len(shown) < 16_100
    assert "guidance: IMPORTANT" in shown
    assert "boundary: Only what 'b' is for" in shown


async def test_a_long_note_crosses_within_the_cap() -> None:
    """Under "full" a note stands in the call that handed over: it is cut there, and not lost."""
    model = ScriptedModel("Y")
    y = Agent("y", model=model)
    x = Agent("x", model=ScriptedModel(call("transfer_to_y", note="N" * 100_000)))
    graph = Graph(
        "g", START >> x >> END, x.hands_off(y, max_hops=1, history="full"), y >> END, context=Talk, budget=SMALL
    )

    await run(graph, Talk(text="q"))

    [made] = model.requests[0].messages[1].calls
    assert 15_900 < len(made.arguments) <= 16_000
    assert made.arguments.startswith('{"note": "NNN')
    assert "more characters were left out" in made.arguments


async def test_a_long_question_is_asked_once() -> None:
    """What the user says is not cut, and under "full" it does not stand there a second time."""
    model = ScriptedModel("Y")
    y = Agent("y", model=model)
    x = Agent("x", model=ScriptedModel(call("transfer_to_y", note="n")))
    graph = Graph(
        "g", START >> x >> END, x.hands_off(y, max_hops=1, history="full"), y >> END, context=Talk, budget=SMALL
    )

    await run(graph, Talk(text="q" * 20_000))

    assert [len(text) for text in texts(model)] == [20_000, len("transfer_to_y"), len("Control goes over to y.")]


async def test_data_that_was_cut_keeps_its_delimiters_when_it_crosses_again() -> None:
    """A report that was cut on its way to the caller ends as data does, wherever it crosses to."""

    @node
    async def w(state: State[Talk]) -> Report:
        return Report(finding="f" * 20_000)

    model = ScriptedModel("Y")
    y = Agent("y", model=model)
    s = Supervisor("s", model=ScriptedModel(call("ask_w", objective="o"), call("transfer_to_y", note="n")))
    graph = Graph(
        "g", START >> s >> END, s.delegates(w, max_hops=1), s.hands_off(y, max_hops=1, history="full"), y >> END,
        context=Talk, budget=SMALL, max_depth=1,
    )  # fmt: skip

    await run(graph, Talk(text="q"))

    assert texts(model)[2].endswith("</report>")
