"""Cases I with agents: timeouts of agents and tools, cancellation at any point, tools and models that swallow it."""

import contextlib
import threading
import time
from collections import Counter
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    Run,
    ToolStep,
    run,
    start,
    tool,
)
from graphflow.events import EffectFinished, EffectStarted, Event, NodeEnded, NodeStarted, RunEnded, TextDelta, Warned
from graphflow.nodes.client import Stream
from graphflow.testing import ManualClock, call
from tests.cases.agents import Rules, Talk, asked, hold_requests, models_of, play, requests_of, results_in, says
from tests.laws.agents import random_crew
from tests.support import examples


@tool
async def nap(step: ToolStep, seconds: float) -> str:
    """Sleep."""
    await step.sleep(seconds)
    return f"slept {seconds}"


# --- I1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.may_block
@pytest.mark.parametrize("where", ["tool", "model"])
async def test_i1_a_call_that_blocks_the_loop_is_late_and_warned_of(where: str) -> None:
    """A tool or a model that blocks past its time never counts as done in time, and the run says who kept the loop."""

    async def blocks() -> str:
        time.sleep(0.15)  # noqa: ASYNC251 - blocking is the case
        return "too late"

    async def respond(_: ModelRequest) -> str:
        time.sleep(0.15)  # noqa: ASYNC251 - blocking is the case
        return "too late"

    events: list[Event] = []
    if where == "tool":
        agent = says("agent", call("blocks"), "done", tools=[tool(blocks, timeout=0.05)])
    else:
        agent = Agent("agent", model=Rules(otherwise=respond), timeout=0.05)

    result = await run(Graph("g", START >> agent >> END, context=Talk), Talk(), listeners=[events.append])

    warned = [event.body for event in events if isinstance(event.body, Warned)]
    assert [(found.path[-1].name, found.warning) for found in warned] == [("agent", "loop_blocked")]
    if where == "tool":
        assert results_in(result.thread) == [("blocks failed: it took longer than its timeout of 0.05 s", True)]
    else:
        assert result.reason is not None
        assert (result.status, result.reason.code, result.reason.limit) == ("failed", "timeout", 0.05)


async def test_i1_a_sync_tool_past_its_timeout_is_abandoned() -> None:
    """Its thread cannot be stopped: the call has failed at once, what it brings is dropped, and the run says so."""
    go_on, ended, clock, cancelled = threading.Event(), threading.Event(), ManualClock(), list[bool]()

    @tool(timeout=2)
    def blocks(step: ToolStep) -> str:
        anyio.from_thread.run_sync(clock.advance, 3)
        go_on.wait(10)
        cancelled.append(step.cancelled)
        step.emit("nobody hears this")
        ended.set()
        return "too late"

    events: list[Event] = []
    agent = says("agent", call("blocks"), "done", tools=[blocks])
    result = await run(Graph("g", START >> agent >> END, context=Talk), Talk(), clock=clock, listeners=[events.append])
    go_on.set()

    assert await anyio.to_thread.run_sync(ended.wait, 5)
    assert cancelled == [True]
    assert results_in(result.thread) == [("blocks failed: it took longer than its timeout of 2 s", True)]
    assert [event.body.warning for event in events if isinstance(event.body, Warned)] == ["thread_abandoned"]
    assert "emitted" not in [event.kind for event in events]


# --- I3 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["agents", "tools", "edges"])
async def test_i3_the_nearest_timeout_counts(kind: str) -> None:
    """What has two seconds is fine with a fifth of one, beside something that has a twentieth."""
    quick = {"agents": 0.05, "tools": None, "edges": None}[kind]
    slow = {"agents": 2.0, "tools": None, "edges": None}[kind]
    tools = {name: nap if kind != "tools" else tool(nap, timeout=limit) for name, limit in (("n", 2.0), ("m", 0.05))}
    n = says("n", call("nap", seconds=0.2), "n done", tools=[tools["n"]], timeout=slow)
    m = says("m", call("nap", seconds=0.2), "m done", tools=[tools["m"]], timeout=quick)
    boss = says("boss", [call("ask_n", objective="?"), call("ask_m", objective="?")], "done")
    edges = [
        boss.delegates(n, max_hops=1, timeout=2.0 if kind == "edges" else None),
        boss.delegates(m, max_hops=1, timeout=0.05 if kind == "edges" else None),
    ]

    played = await play(Graph("g", START >> boss >> END, *edges, context=Talk, max_depth=1), Talk())

    fine, late = results_in(asked(boss).messages)
    assert "n done" in fine[0]
    if kind == "tools":
        assert results_in(asked(m).messages) == [("nap failed: it took longer than its timeout of 0.05 s", True)]
        assert played.ended["boss/m@0.1"] == "completed"
    else:
        assert ('"code": "timeout"' in late[0], '"limit": 0.05' in late[0], late[1]) == (True, True, True)
        assert played.ended["boss/n@0.0"] == "completed"
        assert played.ended["boss/m@0.1"] == ("timed_out" if kind == "agents" else "cancelled")


async def test_i3_the_timeout_of_an_agent_is_that_of_one_turn() -> None:
    """Three turns of 40 ms under a timeout of 50: each is in time; one that takes 60 is not."""
    fine = says("a", *[call("nap", seconds=0.04)] * 3, "done", tools=[nap], timeout=0.05)
    late = says("a", call("nap", seconds=0.04), call("nap", seconds=0.06), "done", tools=[nap], timeout=0.05)

    good = await play(Graph("g", START >> fine >> END, context=Talk), Talk())
    bad = await play(Graph("g", START >> late >> END, context=Talk), Talk())

    assert good.result.status == "completed"
    assert (bad.result.status, bad.reason.code, bad.ended) == ("failed", "timeout", {"a": "timed_out"})
    assert round(bad.events[-1].at, 9) == 0.09


async def test_i3_waiting_for_a_team_or_a_person_is_not_the_agents_time() -> None:
    """What an agent waits for has time of its own: only its model and its tools count."""
    worker = says("worker", call("nap", seconds=10), "found it", tools=[nap])
    boss = says(
        "boss",
        [call("ask_worker", objective="?"), call("ask_user", question="ok?")],
        "done",
        tools=[AskUser()],
        timeout=0.05,
    )
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk, max_depth=1)

    played = await play(graph, Talk(), answers={"ok?": "yes"})

    assert played.result.status == "completed"
    assert played.events[-1].at == 10


# --- I5 --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), cancel_at=st.integers(0, 200), parallel=st.sampled_from((None, 1, 2)))
async def test_i5_every_started_visit_has_one_terminal_event(seed: int, cancel_at: int, parallel: int | None) -> None:
    """Random teams, cancelled at a random event: one end for each visit and each effect that started, and no other."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event.seq == cancel_at:
            running.cancel()

    crew = random_crew(seed)
    graph = crew.graph
    async with start(graph, graph.context(), clock=ManualClock(), listeners=[listen], max_parallel=parallel) as running:
        with contextlib.suppress(Exception):  # what a node raised ends the run
            await running.result()
        running.cancel()
        with contextlib.suppress(Exception):
            await running.result()
        result = running.outcome

    hold_requests(requests_of(graph))
    started = [event.path for event in events if isinstance(event.body, NodeStarted)]
    ended = [event.path for event in events if isinstance(event.body, NodeEnded)]
    assert len(set(ended)) == len(ended)
    if result.status == "exhausted":
        assert set(ended) <= set(started)
    else:
        assert sorted(started) == sorted(ended)
    calls = [event.body for event in events if event.path and event.path[-1].name in crew.agents]
    begun = Counter((body.path, body.turn, body.key) for body in calls if isinstance(body, EffectStarted))
    over = Counter((body.path, body.turn, body.key) for body in calls if isinstance(body, EffectFinished))
    assert set(begun.values()) <= {1}
    assert over == begun or (over <= begun and result.status == "exhausted")
    assert not [event for event in events[:-1] if isinstance(event.body, RunEnded) and event.body.status != "waiting"]


# --- I7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("where", ["tool", "model"])
async def test_i7_a_call_that_swallows_its_cancellation_commits_nothing(where: str, times: int) -> None:
    """What it returns is dropped, nothing follows, and the run says who did it."""
    working = anyio.Event()

    async def swallows() -> str:
        working.set()
        for _ in range(times):
            with contextlib.suppress(BaseException):  # swallowing it is the case
                await anyio.sleep_forever()
        return "went on"

    async def respond(_: ModelRequest) -> str:
        return await swallows()

    class Kept(Context):
        question: str = "What now?"
        kept: str = ""

    if where == "tool":
        agent = says("agent", call("swallows"), "done", tools=[swallows], into="kept")
    else:
        agent = Agent("agent", model=Rules(otherwise=respond), into="kept")
    after = says("after", "never")
    events: list[Event] = []

    async with start(
        Graph("g", START >> agent >> after >> END, context=Kept), Kept(), listeners=[events.append]
    ) as running:
        await working.wait()
        running.cancel()
        result = await running.result()

    assert result.status == "cancelled"
    assert result.context.kept == ""
    assert "went on" not in str(result.thread)
    assert [event.path[-1].name for event in events if isinstance(event.body, NodeStarted)] == ["agent"]
    warned = [event.body for event in events if isinstance(event.body, Warned) and event.body.warning != "loop_blocked"]
    assert [(found.path[-1].name, found.warning) for found in warned] == [("agent", "cancel_swallowed")]


# --- I9 --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(1000))
@given(
    seed=st.integers(0, 2**32), how=st.sampled_from(("scope", "break", "raise", "timeout")), after=st.integers(0, 80)
)
async def test_i9_cancelling_while_a_team_streams_leaks_nothing(seed: int, how: str, after: int) -> None:
    """Whatever stops a reader, and wherever: its own cancellation or error comes out, and no task is left."""
    before = {task.id for task in anyio.get_running_tasks()}
    graph = random_crew(seed).graph
    found: BaseException | None = None
    try:
        with anyio.CancelScope() as scope:
            await _read(graph, how, after, scope)
    except (LookupError, TimeoutError) as error:
        found = error

    assert not isinstance(found, TimeoutError) or how == "timeout"
    assert not isinstance(found, LookupError) or how == "raise"
    assert {task.id for task in anyio.get_running_tasks()} <= before
    hold_requests(requests_of(graph))


async def _read(graph: Graph[Any], how: str, after: int, scope: anyio.CancelScope) -> None:
    async with start(graph, graph.context(), clock=ManualClock()) as running:
        async for event in running:
            if event.seq < after:
                continue
            if how == "break":
                break
            if how == "raise":
                raise LookupError(how)
            if how == "timeout":
                with anyio.fail_after(-1):
                    await anyio.sleep_forever()
            scope.cancel()


PIECES = 500


class Talker:
    """A model that streams piece by piece until it is stopped."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.cancelled = 0

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        self.requests.append(request)
        try:
            for _ in range(PIECES):
                stream("and ")
                await anyio.lowlevel.checkpoint()
        except BaseException:
            self.cancelled += 1
            raise
        return ModelReply("and " * PIECES)


@pytest.mark.parametrize("pieces", [1, 2, 10])
@pytest.mark.parametrize("how", ["break", "scope", "cancel", "nobody"])
async def test_i9_a_reply_that_is_stopped_in_the_middle_is_no_error(how: str, pieces: int) -> None:
    """The reader stops after some pieces of a reply: the model's call is cancelled, and so ends the run."""
    model, events, heard = Talker(), list[Event](), 0
    graph = Graph("g", START >> Agent("agent", model=model) >> END, context=Talk)

    handles: list[Run[Talk]] = []
    with anyio.CancelScope() as scope:
        async with start(graph, Talk(), listeners=[events.append]) as running:
            handles.append(running)
            async for event in running:
                heard += isinstance(event.body, TextDelta)
                if not isinstance(event.body, TextDelta) or heard != pieces:
                    continue
                if how == "break":
                    break
                if how == "scope":
                    scope.cancel()
                elif how == "cancel":
                    running.cancel()

    status = "completed" if how == "nobody" else "cancelled"
    assert model.cancelled == (how != "nobody")
    assert handles[0].outcome.status == status
    assert [event.body.status for event in events if isinstance(event.body, NodeEnded)] == [status]


def test_the_random_teams_have_models() -> None:
    """The laws above look at what models were asked: there are some."""
    crews = [random_crew(seed).graph for seed in range(5)]

    assert all(list(models_of(graph)) for graph in crews)
