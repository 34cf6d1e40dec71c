"""Model calls and money: who waits, who is refused, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    Usage,
    fork,
    run,
    start,
    tool,
)
from graphflow.testing import RuleModel, ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str = "hi"


@pytest.mark.parametrize("max_parallel", [None, 1, 2])
async def test_who_waits_for_tokens_gets_fewer_rather_than_none(max_parallel: int | None) -> None:
    """Six agents share a budget for which each could ask alone: they take turns, and none is refused."""
    model = RuleModel(otherwise="x", usage=Usage(10, 20), delay=0.001)
    agents = [Agent(f"a{number}", model=model, max_tokens=200) for number in range(6)]
    graph = Graph(
        "g",
        START >> fork(*agents, failure="collect") >> Join("j") >> END,
        context=Talk,
        budget=Budget(tokens=250),
    )

    result = await run(graph, Talk(), max_parallel=max_parallel)

    assert (result.status, result.spent.total.tokens) == ("completed", 180)


async def test_a_refusal_says_what_was_needed_and_what_was_left() -> None:
    """A request that is larger than the budget says so, with both numbers."""
    agent = Agent("a", model=ScriptedModel("never"), instructions="word " * 400)
    graph = Graph("g", START >> agent >> END, context=Talk, budget=Budget(tokens=300))

    result = await run(graph, Talk())

    assert result.status == "exhausted"
    assert result.reason is not None
    assert "which needs 5" in result.reason.text
    assert "with 300 left: its limit is 300" in result.reason.text


def paying(ran: list[float], **options: Any) -> Graph[Talk]:
    """An agent that wants to pay three times, each of which a person must approve."""

    @tool(approval=True)
    def pay(amount: float) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    model = ScriptedModel([call("pay", amount=500), call("pay", amount=5), call("pay", amount=7)], "done")
    return Graph(
        "g",
        START >> Agent("a", model=model, tools=[pay], **options) >> END,
        context=Talk,
        budget=Budget(model_calls=9),
    )


def too_much(name: str, arguments: Any) -> str | None:
    """Deny what is over a hundred."""
    return f"{name} of more than 100" if arguments["amount"] > 100 else None


@pytest.mark.parametrize(
    ("options", "asked"), [({"deny": too_much}, [5.0, 7.0]), ({"max_tool_calls": 1}, [500.0]), ({}, [500.0, 5.0, 7.0])]
)
async def test_nobody_is_asked_to_approve_what_cannot_run(options: dict[str, Any], asked: list[float]) -> None:
    """Rules and limits are looked at before a person is, so that a yes means that it runs."""
    ran: list[float] = []

    async with start(paying(ran, **options), Talk()) as running:
        questions = (await running.result()).questions
        for question in questions:
            running.answer(question.id, True)
        result = await running.result()

    assert len(questions) == len(asked)
    assert sorted(ran) == sorted(asked)
    assert result.status == "completed"
