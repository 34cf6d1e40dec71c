"""Cases N1 and N5 with tools: sync tools do not block the loop, and context variables reach every call."""

import threading
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    Join,
    ModelRequest,
    Result,
    State,
    ToolStep,
    run,
    run_sync,
    tool,
)
from graphflow.testing import ManualClock, call
from tests.cases.agents import Rules, Talk, hold_requests, last_text, play, requests_of, results_in, says

caller: ContextVar[str] = ContextVar("caller", default="nobody")


# --- N1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["one turn", "branches", "team"])
async def test_n1_sync_tools_do_not_block_the_loop(shape: str) -> None:
    """Three sync tools that wait for each other and for turns of the loop: they run at once, and the loop goes on."""
    together, ticked, ticks = threading.Barrier(3), threading.Event(), list[int]()

    def blocks() -> str:
        together.wait(10)
        assert ticked.wait(10)
        return "done"

    async def beat() -> None:
        while together.n_waiting < 3 and not together.broken and not ticked.is_set():
            ticks.append(1)
            await anyio.lowlevel.checkpoint()
            if len(ticks) >= 10:
                ticked.set()

    def blocker(name: str) -> Agent:
        return says(name, call("blocks"), "done", tools=[blocks])

    if shape == "one turn":
        graph = Graph("g", START >> says("agent", [call("blocks")] * 3, "done", tools=[blocks]) >> END, context=Talk)
    elif shape == "branches":
        graph = Graph("g", START >> tuple(map(blocker, "abc")) >> Join("j") >> END, context=Talk)
    else:
        boss = says("boss", [call(f"ask_{name}", objective="go") for name in "abc"], "done")
        graph = Graph(
            "g", START >> boss >> END, boss.delegates(*map(blocker, "abc"), max_hops=1), context=Talk, max_depth=1
        )
    results: list[Result[Talk]] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        results.append(await run(graph, Talk()))
        ticked.set()

    assert [result.status for result in results] == ["completed"]
    assert len(ticks) >= 10
    hold_requests(requests_of(graph))


@pytest.mark.parametrize("limit", [1, 2, None])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_n1_no_limit_of_concurrency_loses_a_call(limit: int | None, kind: str) -> None:
    """Six calls of one turn under every limit: each is run once, and answered in its place."""
    ran: list[int] = []

    async def work(number: int, step: ToolStep) -> str:
        await step.sleep(6 - number)
        ran.append(number)
        return f"{number}"

    def sync_work(number: int) -> str:
        ran.append(number)
        return f"{number}"

    tools = [tool(name="work")(sync_work if kind == "sync" else work)]
    agent = says("agent", [call("work", number=number) for number in range(6)], "done", tools=tools)

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk(), max_parallel=limit)

    assert sorted(ran) == list(range(6))
    assert [text for text, _ in results_in(played.result.thread)] == list("012345")


# --- N5 --------------------------------------------------------------------------------------------------------------


async def test_n5_everything_of_an_agent_sees_its_callers_context_variables() -> None:
    """Models, sync and async tools, retries, instructions, rules and callees: all see the caller's value."""
    seen, attempts = dict[str, str](), list[int]()

    def note(where: str) -> str:
        seen[where] = caller.get()
        return where

    async def in_loop() -> str:
        await anyio.lowlevel.checkpoint()
        return note("async tool")

    def in_thread() -> str:
        return note("sync tool")

    @tool(retries=1)
    async def fails(step: ToolStep) -> str:
        attempts.append(len(attempts))
        note(f"attempt {attempts[-1]}")
        await step.sleep(1)
        note(f"attempt {attempts[-1]} after a sleep")
        raise ValueError("no")

    @tool(timeout=1)
    async def late(step: ToolStep) -> None:
        note("a tool with a timeout")
        await step.sleep(100)

    def instructions(_: State[Context]) -> str:
        return note("instructions")

    def deny(_: str, __: Any) -> None:
        note("deny")

    def respond(request: ModelRequest) -> Any:
        note(f"the model of {request.agent}")
        if request.turn or request.agent != "boss":
            return "done"
        names = ("in_loop", "in_thread", "fails", "late")
        return [*(call(name) for name in names), call("ask_worker", objective="go")]

    model = Rules(otherwise=respond)
    boss = Agent("boss", model=model, tools=[in_loop, in_thread, fails, late], instructions=instructions, deny=deny)
    worker = Agent("worker", model=model)
    inner = Graph("inner", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk)
    graph = Graph("g", START >> inner >> END, context=Talk, max_depth=1)
    token = caller.set("me")
    try:
        result = await run(graph, Talk(), clock=ManualClock())
    finally:
        caller.reset(token)

    assert result.status == "completed"
    assert set(seen) == {
        "async tool", "sync tool", "attempt 0", "attempt 0 after a sleep", "attempt 1", "attempt 1 after a sleep",
        "a tool with a timeout", "instructions", "deny", "the model of boss", "the model of worker",
    }  # fmt: skip
    assert set(seen.values()) == {"me"}


@pytest.mark.parametrize("way", ["async", "sync", "waiting"])
async def test_n5_what_a_call_sets_nobody_else_sees(way: str) -> None:
    """Each tool and each model sets the variable: not the other calls, not the next turn, not the caller see it."""
    seen: list[str] = []

    async def setter(name: str, step: ToolStep) -> str:
        seen.append(caller.get())
        caller.set(name)
        if way == "waiting":
            await step.sleep(1)
            assert caller.get() == name
        return name

    def sync_setter(name: str) -> str:
        seen.append(caller.get())
        caller.set(name)
        return name

    def respond(request: ModelRequest) -> Any:
        seen.append(caller.get())
        caller.set("the model")
        return "done" if request.turn else [call("setter", name=name) for name in "abc"]

    tools = [tool(name="setter")(sync_setter if way == "sync" else setter)]
    agents = [Agent(name, model=Rules(otherwise=respond), tools=tools) for name in ("one", "two")]
    graph = Graph("g", START >> tuple(agents) >> Join("j") >> END, context=Talk)
    token = caller.set("me")
    try:
        result = await run(graph, Talk(), clock=ManualClock())
        assert caller.get() == "me"
    finally:
        caller.reset(token)

    assert result.status == "completed"
    assert seen == ["me"] * 10


def test_n5_context_variables_reach_the_tools_of_a_sync_run() -> None:
    """`run_sync` passes them on too."""

    def who() -> str:
        return caller.get()

    agent = says("agent", call("who"), last_text, tools=[who])
    token = caller.set("me")
    try:
        result = run_sync(Graph("g", START >> agent >> END, context=Talk), Talk())
    finally:
        caller.reset(token)

    assert result.output == "me"
