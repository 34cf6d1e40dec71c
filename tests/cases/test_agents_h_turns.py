"""Cases H7, H9 and H11 with agents: declared turns, retries on several levels, and callees that hang."""

from typing import Any

import anyio
import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Graph,
    Join,
    ModelReply,
    ToolStep,
    fork,
    run,
    tool,
)
from graphflow.events import EffectRequested, EffectStarted, NodeRetried, Refused
from graphflow.testing import call
from tests.cases.agents import Rules, Talk, asked, model_calls, play, results_in, says, tool_runs


@tool
async def look(step: ToolStep, number: int) -> str:
    """Look at something for a while."""
    await step.sleep(number)
    return f"seen {number}"


# --- H7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["root", "callee", "branch"])
@pytest.mark.parametrize("max_turns", [1, 2, 10])
async def test_h7_an_agent_has_exactly_its_turns(max_turns: int, place: str) -> None:
    """A script of 72 tool turns: so many model calls, a reason that says max_turns, and the last results are kept."""
    agent = says("agent", *[call("look", number=0)] * 72, tools=[look], max_turns=max_turns, max_tool_calls=72)
    if place == "root":
        graph = Graph("g", START >> agent >> END, context=Talk)
    elif place == "callee":
        boss = says("boss", call("ask_agent", objective="go"), "done")
        graph = Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)
    else:
        graph = Graph("g", START >> fork(agent, says("b", "b"), failure="collect") >> Join("j") >> END, context=Talk)

    played = await play(graph, Talk())

    assert model_calls(played).count("agent") == max_turns
    assert tool_runs(played) == ["look"] * max_turns
    if place == "root":
        assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_turns", max_turns)
        assert results_in(played.result.thread) == [("seen 0", False)] * max_turns
    else:
        assert played.result.status == "partial"
        assert [(reason.code, reason.limit) for reason in played.result.failures] == [("max_turns", max_turns)]


@pytest.mark.parametrize("offer", ["a finding", "a report", "nothing"])
async def test_h7_a_callee_at_its_bound_reports_what_it_has(offer: str) -> None:
    """Partial with what it said or what its team reported, failed where there is nothing."""
    helper = says("helper", "half of it")
    said: dict[str, Any] = {
        "a finding": ModelReply("I think it is blue", (call("look", number=0),)),
        "a report": call("ask_helper", objective="go"),
        "nothing": call("look", number=0),
    }
    middle = says("middle", said[offer], tools=[look], max_turns=1)
    boss = says("boss", call("ask_middle", objective="go"), "done")
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(middle, max_hops=1),
        middle.delegates(helper, max_hops=1),
        context=Talk,
        max_depth=2,
    )

    await play(graph, Talk())

    ((text, failed),) = results_in(asked(boss).messages)
    assert failed == (offer == "nothing")
    assert ('"status": "failed"' if offer == "nothing" else '"status": "partial"') in text
    assert {"a finding": "I think it is blue", "a report": "half of it", "nothing": "max_turns"}[offer] in text


async def test_h7_tool_calls_over_their_limit_are_not_executed() -> None:
    """`max_tool_calls` refuses the calls over it, in call order, and the agent goes on to answer."""
    calls = [call("look", number=0) for _ in range(5)]
    agent = says("agent", calls, calls, "answered", tools=[look], max_tool_calls=7)

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert tool_runs(played) == ["look"] * 7
    assert [failed for _, failed in results_in(played.result.thread)] == [False] * 7 + [True] * 3
    assert played.result.output == "answered"
    refused = played.of(Refused)
    assert [(body.bound, body.limit, body.wanted) for body in refused] == [
        ("max_tool_calls", 7.0, "a call of the tool 'look'")
    ] * 3
    assert [(reason.code, reason.limit) for reason in played.result.refused] == [("max_tool_calls", 7.0)] * 3


# --- H9 --------------------------------------------------------------------------------------------------------------


def flaky(levels: int, retries: int, on_error: Any, budget: Budget, tries: list[int]) -> Graph[Talk]:
    """A tool that always fails, in an agent, in graphs inside each other, each with retries."""

    @tool(retries=retries, on_error=on_error)
    async def breaks() -> str:
        tries.append(1)
        msg = "always"
        raise OSError(msg)

    model = Rules(("failed", "could not be done"), otherwise=call("breaks"))
    inner: Any = Agent("agent", model=model, tools=[breaks], retries=retries, max_turns=99)
    for level in range(levels):
        inner = Graph(f"level{level}", START >> inner >> END, context=Talk, retries=retries)
    return Graph("root", START >> inner >> END, context=Talk, budget=budget)


@pytest.mark.parametrize(("budget", "made"), [(5, 5), (0, 0), (None, 63), (63, 63), (1, 1)])
async def test_h9_retries_on_every_level_share_one_budget(budget: int | None, made: int) -> None:
    """Tool in agent in graph, three retries each: 63 in all, and never more than a budget has."""
    tries: list[int] = []

    played = await play(flaky(1, 3, "raise", Budget(retries=budget), tries), Talk())

    assert isinstance(played.error, OSError)
    assert played.result.spent.total.retries == made
    assert len(tries) == made + 1
    again = [body for body in played.of(EffectStarted) if body.key.startswith("0.")]
    assert len(played.of(NodeRetried)) + len(again) == made
    assert not played.of(EffectRequested)


async def test_h9_the_error_shows_the_attempts_of_each_level() -> None:
    """The reason says how often each level tried, the tool's too, and that the budget refused more."""
    played = await play(flaky(1, 3, "raise", Budget(retries=5), []), Talk())

    assert played.reason.text.count("attempt") == 3
    assert "retries" in played.reason.text


@pytest.mark.parametrize(("budget", "made"), [(None, 3), (2, 2), (0, 0)])
async def test_h9_a_failure_that_is_told_is_tried_on_one_level_only(budget: int | None, made: int) -> None:
    """With on_error="data" the tool's own retries are all: the model is told how often, and the node has not failed."""
    tries: list[int] = []

    played = await play(flaky(1, 3, "data", Budget(retries=budget), tries), Talk())

    assert played.result.status == "completed"
    assert len(tries) == made + 1
    assert played.result.spent.total.retries == made


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_h9_the_attempts_of_a_tool_are_tool_calls(limit: int) -> None:
    """Each attempt is paid as a tool call, and `max_tool_calls` and the budget bound them."""
    tries: list[int] = []

    played = await play(flaky(0, 9, "data", Budget(tool_calls=limit), tries), Talk())

    assert len(tries) == played.result.spent.total.tool_calls == limit
    assert played.result.status == "completed"


# --- H11 -------------------------------------------------------------------------------------------------------------


@tool
async def hang(step: ToolStep) -> None:
    """Take for ever."""
    await step.sleep(10_000)


@pytest.mark.parametrize("where", ["edge", "agent", "tool"])
async def test_h11_hung_agents_do_not_eat_the_deadline(where: str) -> None:
    """Two callees that hang lose a tenth of a second each and are reported as timed out; the third delivers."""
    hangs = tool(hang, timeout=0.1) if where == "tool" else hang
    hung = Agent(
        "hung",
        model=Rules(("hang failed", "it hangs"), otherwise=call("hang")),
        tools=[hangs],
        timeout=0.1 if where == "agent" else None,
    )
    fine = says("fine", "found it")
    boss = says(
        "boss",
        call("ask_hung", objective="1"),
        call("ask_hung", objective="2"),
        call("ask_fine", objective="3"),
        "done",
    )
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(hung, max_hops=2, timeout=0.1 if where == "edge" else None),
        boss.delegates(fine, max_hops=1),
        context=Talk,
        max_depth=1,
        budget=Budget(seconds=1),
    )

    played = await play(graph, Talk())

    first, second, third = results_in(asked(boss).messages)
    if where == "tool":
        assert [text.count('"status": "partial"') for text, _ in (first, second)] == [1, 1]
    else:
        assert [(text.count('"code": "timeout"'), failed) for text, failed in (first, second)] == [(1, True)] * 2
    assert "found it" in third[0]
    assert round(played.events[-1].at, 9) == 0.2
    assert played.result.output == "done"
    assert played.result.status == "partial"


async def test_h11_hung_agents_at_once_lose_the_time_of_one() -> None:
    """In one turn the same: both are stopped at their timeout, and the turn settles then."""
    hung = Agent("hung", model=Rules(otherwise=call("hang")), tools=[hang], timeout=0.1)
    boss = says(
        "boss",
        [call("ask_hung", objective="1"), call("ask_fine", objective="2"), call("ask_hung", objective="3")],
        "done",
    )
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(hung, max_hops=2),
        boss.delegates(says("fine", "found it"), max_hops=1),
        context=Talk,
        max_depth=1,
        budget=Budget(seconds=1),
    )

    played = await play(graph, Talk())

    assert [failed for _, failed in results_in(asked(boss).messages)] == [True, False, True]
    assert round(played.events[-1].at, 9) == 0.1
    assert sorted(status for status in played.ended.values()) == ["completed", "completed", "timed_out", "timed_out"]


async def test_h11_a_model_that_hangs_is_stopped_too() -> None:
    """The provider never answers: the call is cancelled at the timeout, and the caller is told."""
    stopped: list[str] = []

    async def never(_: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("model")

    hung = Agent("hung", model=Rules(otherwise=never), timeout=0.02)
    boss = says("boss", call("ask_hung", objective="1"), "done")
    graph = Graph("g", START >> boss >> END, boss.delegates(hung, max_hops=1), context=Talk, max_depth=1)

    result = await run(graph, Talk())

    assert stopped == ["model"]
    assert [reason.code for reason in result.failures] == ["timeout"]
    assert result.output == "done"
