"""Cases O7, O9 and O11 at a real server: tools that fail, callees that cannot start, dependent calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow import END, START, Agent, Call, Delegate, Graph, Report, State, ToolFailure, ToolStep, node, start, tool
from graphflow.events import EffectFinished, FrameOpened, NodeStarted
from graphflow.model.thread import History, Thread
from graphflow.nodes.agent import DecisionMode
from graphflow.nodes.client import ModelClient
from graphflow.testing import ManualClock
from tests.cases.agents import results_in
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import ModelServer
from tests.providers.conversations import agent, one
from tests.providers.helpers import (
    Case,
    Make,
    Parts,
    Way,
    asked_by,
    asks,
    by_way,
    converse,
    places_in,
    read_in,
    search,
)  # fmt: skip

# --- O7 --------------------------------------------------------------------------------------------------------------


@tool
def declared() -> ToolFailure:
    """Fail by saying so."""
    return ToolFailure("the shop is closed")


@tool
def raised() -> str:
    """Fail by raising."""
    msg = "the shop is closed"
    raise LookupError(msg)


@by_way()
@pytest.mark.parametrize("broken", [declared, raised], ids=["declared", "raised"])
async def test_o7_a_tool_that_fails_says_so_in_its_events_and_its_report(
    broken: Any, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five calls fail, each event says failed, and so does what the model reads; the report is partial at most."""
    says: dict[str, list[Reply]] = {
        "worker": [*[Calls((broken.name, {}))] * 5, Say(json.dumps({"finding": "all is well"}))],
        "boss": [Calls(("ask_worker", {"objective": "go"})), Say("done")],
    }

    heard, server = await converse(asks(tools=[broken], output=Report), says, way, monkeypatch)

    calls = [body for body in heard.of(EffectFinished) if body.path[-1].name == "worker" and body.key != "model"]
    assert [body.failure is not None for body in calls] == [True] * 5
    assert "\n".join(read_in(asked_by(server, "worker")[-1])).count("the shop is closed") == 5
    read = "\n".join(read_in(asked_by(server, "boss")[1]))
    assert '"status": "partial"' in read
    assert f"every call of {broken.name!r}" in read


@by_way("anthropic, streamed", "anthropic, whole")
async def test_o7_a_failed_result_is_marked_where_the_protocol_has_a_mark(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anthropic's protocol says of each result whether it is an error."""
    says: list[Reply] = [Calls(("declared", {}), ("search", {"words": "x"})), Say("done")]

    _, server = await converse(one(tools=[declared, search]), {"solo": says}, way, monkeypatch)

    blocks = [block for block in server.requests[1].body["messages"][-1]["content"] if block["type"] == "tool_result"]
    assert [bool(block.get("is_error")) for block in blocks] == [True, False]


# --- O9 --------------------------------------------------------------------------------------------------------------


def breaks_up(state: State[Any]) -> Any:
    """Raise in a callee's set-up."""
    msg = f"no set-up at depth {state.depth}"
    raise RuntimeError(msg)


def no_such_message(thread: Thread) -> Thread:
    """Raise when a history is made."""
    return (thread[99],)


def launches(kind: str) -> Make:
    """A boss that asks somebody who cannot be started."""

    def target(model: ModelClient, decision: DecisionMode) -> Any:
        if kind == "instructions":
            return Agent("worker", model=model, decision=decision, instructions=breaks_up)
        worker = agent("worker", model, decision)
        if kind == "enter":
            return Graph("worker", START >> worker.named("inside") >> END, context=Case, enter=breaks_up)
        return worker

    history: History = no_such_message if kind == "history" else "note"
    return asks(target, history=history)


@by_way()
@pytest.mark.parametrize("kind", ["missing", "instructions", "enter", "history"])
async def test_o9_a_callee_that_cannot_start_is_a_failed_call(
    kind: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing specialist, or one whose set-up raises: the result says failed, and no request is made for it."""
    name = "ask_wrker" if kind == "missing" else "ask_worker"
    says: dict[str, list[Reply]] = {"boss": [Calls((name, {"objective": "go"})), Say("it could not be started")]}

    heard, server = await converse(launches(kind), says, way, monkeypatch)

    assert len(server.requests) == len(asked_by(server, "boss")) == 2
    assert heard.result.output == "it could not be started"
    assert heard.result.status == ("completed" if kind == "missing" else "partial")
    ((text, failed),) = results_in(heard.result.thread)
    assert failed
    assert -1 not in places_in(server.requests[1], text)
    if kind == "missing":
        assert heard.of(FrameOpened) == []
        assert len(heard.of(NodeStarted)) == 1


@by_way()
async def test_o9_a_function_that_delegates_to_nobody_gets_a_failed_report(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undeclared target of a function node is a report, and the agent that could have been asked is not."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        async def lead(state: State[Case]) -> Any:
            return Delegate(Call("nobody", "go")) if state.turn == 0 else state.values[0].reason.code

        boss = node(name="boss")(lead)
        worker = agent("worker", model, decision)
        return Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Case, max_depth=1)

    heard, server = await converse(make, {}, way, monkeypatch)

    assert heard.result.output == "unknown_target"
    assert server.requests == []


# --- O11 -------------------------------------------------------------------------------------------------------------


def shelf(log: list[str], fails: str = "") -> list[Any]:
    """Tools that take their time, and note when they begin and end."""

    def make(name: str, seconds: float, *, sequential: bool) -> Any:
        async def work(step: ToolStep) -> str:
            log.append(f"{name} begins")
            await step.sleep(seconds)
            log.append(f"{name} ends")
            if fails == name:
                raise ValueError(name)
            return f"({name})"

        return tool(name=name, sequential=sequential)(work)

    return [
        make("fill", 3, sequential=True), make("drain", 1, sequential=True),
        make("look", 2, sequential=False), make("smell", 2, sequential=False),
    ]  # fmt: skip


@by_way()
@pytest.mark.parametrize("order", [("fill", "drain"), ("drain", "fill"), ("fill", "fill", "drain")], ids="-".join)
@pytest.mark.parametrize("fails", ["", "fill", "drain"])
async def test_o11_sequential_tools_run_in_call_order(
    order: tuple[str, ...], fails: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the calls of one reply each begins when the one before it has ended; the model reads results in call order."""
    log: list[str] = []
    says: dict[str, list[Reply]] = {"solo": [Calls(*((name, "{}") for name in order)), Say("done")]}

    heard, server = await converse(one(tools=shelf(log, fails)), says, way, monkeypatch, clock=ManualClock())

    assert log == [f"{name} {what}" for name in order for what in ("begins", "ends")]
    results = results_in(heard.result.thread)
    assert [failed for _, failed in results] == [name == fails for name in order]
    assert -1 not in places_in(server.requests[1], *(text for text, _ in results))


@by_way()
@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_o11_the_other_tools_of_the_turn_still_overlap(
    limit: int | None, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unmarked tools begin beside the sequential ones where there is room; results stand in call order all the same."""
    log: list[str] = []
    order = ("look", "fill", "smell", "drain")
    says: dict[str, list[Reply]] = {"solo": [Calls(*((name, "{}") for name in order)), Say("done")]}

    heard, server = await converse(
        one(tools=shelf(log)), says, way, monkeypatch, clock=ManualClock(), max_parallel=limit
    )

    assert [entry for entry in log if entry[0] in "fd"] == ["fill begins", "fill ends", "drain begins", "drain ends"]
    if limit is None:
        assert sorted(log[:3]) == ["fill begins", "look begins", "smell begins"]
        assert sorted(log[3:5]) == ["look ends", "smell ends"]
    assert [text for text, _ in results_in(heard.result.thread)] == [f"({name})" for name in order]
    assert -1 not in places_in(server.requests[1], *(f"({name})" for name in order))


@by_way()
@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_o11_what_comes_after_an_approval_waits_for_it(
    answer: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequential tool that a person must approve keeps its place; no request is made before all is decided."""
    log: list[str] = []

    def fill() -> str:
        log.append("fill")
        return "filled"

    def drain() -> str:
        log.append("drain")
        return "drained"

    make = one(tools=[tool(fill, sequential=True, approval=True), tool(drain, sequential=True)])
    parts = Parts({"solo": [Calls(("fill", {}), ("drain", {})), Say("done")]})
    with ModelServer(parts) as server:
        graph = make(way.model(server, monkeypatch), way.decision)
        async with start(graph, Case(), clock=ManualClock()) as running:
            waiting = await running.result()
            before = (list(log), len(server.requests))
            running.answer(waiting.questions[0].id, answer)
            await running.result()

    assert server.violations == []
    assert before == ([], 1)
    assert log == (["fill", "drain"] if answer == "yes" else ["drain"])
    parts.assert_complete()
