"""The next message of a chat: `run(graph, context, after=result)`."""

from __future__ import annotations

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Human,
    Result,
    State,
    last,
    node,
    on_active,
    run,
)
from graphflow.errors import UsageError
from graphflow.model.thread import History
from graphflow.testing import ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str


def texts(model: ScriptedModel, number: int) -> list[str]:
    """Return what a model was shown in one of its requests."""
    return [message.text or message.calls[0].name for message in model.requests[number].messages]


def chat(model: ScriptedModel, *, history: History | None = None) -> Graph[Talk]:
    """A chat with triage and billing."""
    triage = Agent("triage", model=ScriptedModel(call("transfer_to_billing", note="money"), "triage again"))
    billing = Agent("billing", model=model, history=history)
    return Graph(
        "chat",
        START.choose(on_active(billing), default=triage),
        triage.hands_off(billing, max_hops=1),
        triage >> END,
        billing >> END,
        context=Talk,
        budget=Budget(model_calls=4),
    )


async def both(graph: Graph[Talk]) -> tuple[Result[Talk], Result[Talk]]:
    """Say two things, one after the other."""
    first = await run(graph, Talk(text="I was charged twice."))
    return first, await run(graph, Talk(text="When do I get it?"), after=first)


async def test_the_next_message_goes_to_who_spoke_last() -> None:
    """Triage is asked once: the second message begins with billing, which knows the conversation."""
    model = ScriptedModel("You get it back.", "Tomorrow.")

    first, second = await both(chat(model))

    assert (first.active, second.active) == ("billing", "billing")
    assert second.output == "Tomorrow."
    assert texts(model, 1) == [
        "I was charged twice.",
        "transfer_to_billing",
        "Control goes over to billing.",
        "You get it back.",
        "When do I get it?",
    ]


async def test_the_thread_goes_on_and_holds_each_message_once() -> None:
    """The second result's thread begins with the first's, and nothing in it is there twice."""
    first, second = await both(chat(ScriptedModel("You get it back.", "Tomorrow.")))

    assert second.thread[: len(first.thread)] == first.thread
    assert [message.text for message in second.thread[len(first.thread) :]] == ["When do I get it?", "Tomorrow."]


@pytest.mark.parametrize(("history", "seen"), [("note", 1), (last(1), 2), ("summary", 2), ("full", 5)])
async def test_history_says_how_much_of_a_chat_crosses(history: History, seen: int) -> None:
    """Who wants less than the whole conversation says so."""
    model = ScriptedModel("You get it back.", "Tomorrow.")

    await both(chat(model, history=history))

    assert len(texts(model, 1)) == seen
    assert texts(model, 1)[-1] == "When do I get it?" or history == "summary"


async def test_what_was_spent_counts_on() -> None:
    """The budget is that of the conversation: the spending of a chat is the sum, in all and by node."""
    first, second = await both(chat(ScriptedModel("You get it back.", "Tomorrow.")))

    assert (first.spent.total.model_calls, second.spent.total.model_calls) == (2, 3)
    assert second.spent.by_node["billing"].model_calls == 2
    total = sum(spent.model_calls or 0 for spent in second.spent.by_node.values())
    assert total == second.spent.total.model_calls


async def test_a_chat_ends_when_its_budget_is_spent() -> None:
    """A third and a fourth message find less, and a fifth nothing: it is refused before any call."""
    model = ScriptedModel("one", "two", "three")
    graph = chat(model)
    result = await run(graph, Talk(text="1"))
    for text in "23":
        result = await run(graph, Talk(text=text), after=result)

    over = await run(graph, Talk(text="4"), after=result)

    assert result.spent.total.model_calls == 4
    assert (over.status, over.reason and over.reason.code) == ("exhausted", "model_calls")
    assert len(model.requests) == 3


async def test_functions_see_the_thread_and_who_spoke_last() -> None:
    """`state.thread` and `state.active` are there for predicates and functions too."""
    seen: list[tuple[int, str | None]] = []

    @node
    async def look(state: State[Talk]) -> str:
        seen.append((len(state.thread), state.active))
        return "looked"

    agent = Agent("agent", model=ScriptedModel("hello", "hello again"))
    graph = Graph("g", START >> look >> agent >> END, context=Talk, budget=Budget(model_calls=9))

    first = await run(graph, Talk(text="hi"))
    await run(graph, Talk(text="hi"), after=first)

    assert seen == [(0, None), (len(first.thread), "agent")]


async def test_a_run_that_waits_cannot_be_continued() -> None:
    """Its questions come first, and anything that is no result is refused."""
    graph = Graph("g", START >> Human("person") >> END, context=Talk)
    waiting = await run(graph, Talk(text="hi"))

    with pytest.raises(UsageError, match="waits for people"):
        await run(graph, Talk(text="hi"), after=waiting)
    with pytest.raises(UsageError, match="Result of an earlier run"):
        await run(graph, Talk(text="hi"), after="last time")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on purpose


async def test_an_agent_is_not_offered_a_handoff_to_itself() -> None:
    """A declared handoff to itself is for functions: a model that asks for one is told what it can do."""
    model = ScriptedModel(call("transfer_to_agent", note="me"), "done")
    agent = Agent("agent", model=model)
    other = Agent("other", model=ScriptedModel("hello"))
    graph = Graph(
        "g",
        START >> agent >> END,
        agent.hands_off(agent, other, max_hops=2),
        other >> END,
        context=Talk,
        budget=Budget(model_calls=9),
    )

    result = await run(graph, Talk(text="hi"))

    assert [spec.name for spec in model.requests[0].tools] == ["transfer_to_other"]
    assert result.thread[2].text.endswith("there are: transfer_to_other.")
    assert result.output == "done"
