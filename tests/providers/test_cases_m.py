"""Cases M at a real server: a reply is heard while it is written, all of it, and no reader can break a run.

Of M1 and M7 there is more in `test_streams.py`: pieces of calls, of nested graphs, and requests that are closed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest

from graphflow import END, START, Graph, Join, MemoryJournal, ToolStep, replay, run, start, tool
from graphflow.events import (
    CallDelta,
    EffectFinished,
    EffectStarted,
    Event,
    ListenerFailed,
    NodeEnded,
    RunEnded,
    TextDelta,
)
from graphflow.nodes.agent import DecisionMode
from graphflow.nodes.client import ModelClient
from graphflow.testing import ManualClock, canonical_trace
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import ModelServer
from tests.providers.conversations import agent
from tests.providers.helpers import (
    DELTAS,
    WAYS,
    Case,
    Make,
    Parts,
    Way,
    asked_by,
    asks,
    by_way,
    converse,
    hangs,
    is_left,
    places_in,
    search,
    until,
)
from tests.support import examples

STREAMED: Final = ("openai, streamed", "openai, json", "anthropic, streamed")
NATIVE: Final = ("openai, streamed", "anthropic, streamed")


def effects(events: list[Event]) -> list[tuple[str, str]]:
    """The beginnings and ends of the calls of models and tools, in order, by name."""
    found: list[tuple[str, str]] = []
    named: dict[Any, str] = {}
    for event in events:
        if isinstance(event.body, EffectStarted):
            named[event.body.path, event.body.turn, event.body.key] = event.body.name
            found.append(("start", event.body.name))
        elif isinstance(event.body, EffectFinished):
            found.append(("end", named[event.body.path, event.body.turn, event.body.key]))
    return found


def closed(server: ModelServer) -> bool:
    """Whether the server is through with every request."""
    return all(asked.done for asked in server.requests)


def alone(**options: Any) -> Make:
    """A graph of the worker alone."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        return Graph("g", START >> agent("worker", model, decision, **options) >> END, context=Case)

    return make


ASKED: Final[list[Reply]] = [Calls(("ask_worker", {"objective": "go"})), Say("done")]


# --- M1 --------------------------------------------------------------------------------------------------------------


@by_way()
@pytest.mark.parametrize("place", ["root", "callee"])
async def test_m1_a_tool_is_heard_of_before_it_has_ended(place: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that ends only when its start has reached the reader does end; the order is the order of things."""
    heard = anyio.Event()
    events: list[Event] = []

    @tool
    async def slow() -> str:
        await heard.wait()
        return "seen"

    make = alone(tools=[slow]) if place == "root" else asks(tools=[slow])
    parts = Parts({"worker": [Calls(("slow", {})), Say("answered")], "boss": ASKED})
    with ModelServer(parts) as server, anyio.fail_after(20):
        async with start(make(way.model(server, monkeypatch), way.decision), Case()) as running:
            async for event in running:
                events.append(event)
                if isinstance(event.body, EffectStarted) and event.body.name == "slow":
                    heard.set()

    middle = [(what, name) for name in ("model", "slow", "model") for what in ("start", "end")]
    around = [("start", "model"), ("end", "model")] if place == "callee" else []
    assert effects(events) == around + middle + around
    assert server.violations == []
    assert -1 not in places_in(asked_by(server, "worker")[1], "seen")


@by_way(*STREAMED)
@pytest.mark.parametrize("place", ["root", "callee"])
async def test_m1_pieces_reach_the_reader_while_the_reply_is_written(
    place: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on only when the reader has gone: the pieces before that were heard before the reply's end."""
    events: list[Event] = []
    make = alone() if place == "root" else asks()
    said = Say("in the middle of it", pieces=4, breaks="hang", after=4)

    with ModelServer(Parts({"worker": [said], "boss": ASKED})) as server, anyio.fail_after(20):
        async with start(make(way.model(server, monkeypatch), way.decision), Case()) as running:
            async for event in running:
                events.append(event)
                if isinstance(event.body, TextDelta) and event.path[-1].name == "worker":
                    break
        await until(server, is_left)

    body = events[-1].body
    assert isinstance(body, TextDelta)
    assert body.text
    assert "in the middle of it".startswith(body.text)
    assert effects(events)[-1] == ("start", "model")
    assert server.violations == []


@by_way()
async def test_m1_pieces_make_up_the_reply_and_stay_out_of_the_journal(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the start and the end of each call: its pieces, which make up its text; whole replies have none."""
    says: dict[str, list[Reply]] = {"worker": [Calls(("search", {"words": "x"})), Say("the whole answer")]}

    heard, _ = await converse(alone(tools=[search]), says, way, monkeypatch)

    kinds = [event.kind for event in heard.events if event.kind in {*DELTAS, "effect_started", "effect_finished"}]
    texts = [body for body in heard.of(TextDelta) if body.turn == 1]
    replies = [body.result.text for body in heard.of(EffectFinished) if body.key == "model"]
    if not way.stream:
        assert kinds == ["effect_started", "effect_finished"] * 3
        return
    first, second = kinds.index("effect_finished"), len(kinds) - 1
    assert set(kinds[1:first]) == {"call_delta" if way.decision == "native" else "text_delta"}
    assert kinds[first : first + 4] == ["effect_finished", "effect_started", "effect_finished", "effect_started"]
    assert set(kinds[first + 4 : second]) == {"text_delta"}
    assert "".join(body.text for body in texts) == replies[1]
    assert len(texts) > 1
    assert way.decision == "json" or "".join(piece.arguments for piece in heard.of(CallDelta)) == '{"words": "x"}'


# --- M3 --------------------------------------------------------------------------------------------------------------


@by_way(*STREAMED, "openai, whole")
@pytest.mark.parametrize("shape", ["fork", "team"])
async def test_m3_tools_of_parallel_agents_are_all_heard_of(
    shape: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three agents of two tools each, in one reply, at once: six starts, six ends, each at its path; one trace."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        agents = [agent(name, model, decision, tools=[look]) for name in "abc"]
        if shape == "fork":
            return Graph("g", START >> tuple(agents) >> Join("j") >> END, context=Case)
        boss = agent("boss", model, decision)
        return Graph("g", START >> boss >> END, boss.delegates(*agents, max_hops=1), context=Case, max_depth=1)

    @tool
    async def look(at: str) -> str:
        await anyio.lowlevel.checkpoint()
        return f"seen {at}"

    says: dict[str, list[Reply]] = {
        name: [Calls(("look", {"at": f"{name}1"}), ("look", {"at": f"{name}2"})), Say(name)] for name in "abc"
    }
    if shape == "team":
        says["boss"] = [Calls(*((f"ask_{name}", {"objective": "go"}) for name in "abc")), Say("done")]
    traces: set[tuple[str, ...]] = set()
    for _ in range(examples(40)):
        heard, server = await converse(make, says, way, monkeypatch)

        for kind in (EffectStarted, EffectFinished):
            tools = [body for body in heard.of(kind) if body.key != "model"]
            assert Counter(body.path[-1].name for body in tools) == dict.fromkeys("abc", 2)
        for name in "abc":
            assert -1 not in places_in(asked_by(server, name)[1], f"seen {name}1", f"seen {name}2")
        traces.add(tuple(heard.trace))

    assert len(traces) == 1


# --- M5 --------------------------------------------------------------------------------------------------------------

STAGES: Final = ("run_started", "boundary", "effect_started", "effect_finished", "frame_opened", "emitted")


def hanging() -> tuple[Make, dict[str, list[Reply]]]:
    """A team whose boss waits in a tool that never ends, beside a worker whose reply never does."""

    @tool
    async def hang(step: ToolStep) -> None:
        step.emit("hanging")
        await anyio.sleep_forever()

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        boss, worker = agent("boss", model, decision, tools=[hang]), agent("worker", model, decision, tools=[hang])
        return Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Case, max_depth=1)

    both = Calls(("ask_worker", {"objective": "go"}), ("hang", {}), pieces=3)
    never = Say("in the middle of it", pieces=4, breaks="hang", after=4)
    return make, {"boss": [both], "worker": [never]}


STOPS: Final = [
    pytest.param(WAYS[name], kind, id=f"{name}, {kind}")
    for names, kinds in (
        ((*STREAMED, "openai, whole"), STAGES),
        (STREAMED, ("text_delta",)),
        (NATIVE, ("call_delta",)),
    )
    for name in names
    for kind in kinds
]


@pytest.mark.parametrize(("way", "until_kind"), STOPS)
async def test_m5_stopping_the_iteration_early_is_no_error(
    way: Way, until_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is left half-way: no exception, no task and no request left, and what was recorded folds again."""
    before = {task.id for task in anyio.get_running_tasks()}
    journal, events = MemoryJournal(), list[Event]()
    make, says = hanging()

    with ModelServer(Parts(says)) as server, anyio.fail_after(20):
        graph = make(way.model(server, monkeypatch), way.decision)
        async with start(graph, Case(), listeners=[events.append], journal=journal, run_id="r") as running:
            async for event in running:
                if event.kind == until_kind:
                    break
        await anyio.wait_all_tasks_blocked()  # trio closes generators that the providers' packages left in tasks
        assert {task.name for task in anyio.get_running_tasks() if task.id not in before} == set()
        await until(server, closed)

    assert running.outcome.status == "cancelled"
    assert {event.body.status for event in events if isinstance(event.body, NodeEnded)} <= {"cancelled"}
    kinds = Counter(event.kind for event in events)
    assert kinds["effect_started"] == kinds["effect_finished"]
    assert (await replay(graph, "r", journal=journal)).status == "cancelled"
    assert server.violations == []


# --- M7 --------------------------------------------------------------------------------------------------------------


@by_way("openai, streamed", "openai, json, whole", "anthropic, streamed")
@pytest.mark.parametrize("place", ["root", "callee", "branch"])
@pytest.mark.parametrize("how", ["run", "iterate", "result"])
@pytest.mark.parametrize("after", [0, 4], ids=["before the first byte", "in the middle"])
async def test_m7_a_consumer_that_goes_away_takes_the_request_with_it(
    after: int, how: str, place: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer's task is cancelled while the provider answers: the provider sees it, and the end is on record."""
    journal, events = MemoryJournal(), list[Event]()
    never = Say("in the middle of it", pieces=4, breaks="hang", after=after)
    parts = Parts({"worker": [never], "boss": ASKED})

    def branches(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        both = (agent("worker", model, decision), agent("boss", model, decision))
        return Graph("g", START >> both >> Join("j") >> END, context=Case)

    make = {"root": alone(), "callee": asks(), "branch": branches}[place]
    if place == "branch":
        parts.scripts["boss"] = [Say("b")]

    async def consume(graph: Graph[Any]) -> None:
        options: dict[str, Any] = {"journal": journal, "listeners": [events.append], "run_id": "r"}
        if how == "run":
            await run(graph, Case(), **options)
        async with start(graph, Case(), **options) as running:
            if how == "result":
                await running.result()
            async for _ in running:
                pass

    with ModelServer(parts) as server, anyio.fail_after(20):
        graph = make(way.model(server, monkeypatch), way.decision)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume, graph)
            await until(server, lambda server: hangs(server) and _others_are_done(server, 1 if place == "root" else 2))
            tasks.cancel_scope.cancel()
        await until(server, is_left)

    assert [asked.number for asked in server.disconnects] == [asked_by(server, "worker")[0].number]
    assert server.violations == []
    assert isinstance(events[-1].body, RunEnded)
    assert events[-1].body.status == "cancelled"
    assert (await replay(graph, "r", journal=journal)).status == "cancelled"
    ended = {event.path[-1].name: event.body.status for event in events if isinstance(event.body, NodeEnded)}
    assert ended["worker"] == "cancelled"


def _others_are_done(server: ModelServer, count: int) -> bool:
    return len(server.requests) == count and sum(asked.done for asked in server.requests) == count - 1


# --- M9 --------------------------------------------------------------------------------------------------------------


@by_way(*STREAMED, "openai, whole")
@pytest.mark.parametrize("when", ["always", "text_delta", "call_delta", "emitted", "effect_started", "run_ended"])
async def test_m9_a_listener_that_throws_changes_nothing(when: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it throws at: one event about it, the same result, and the same requests, none of them twice."""
    thrown: list[str] = []

    def broken(event: Event) -> None:
        if when in {"always", event.kind}:
            thrown.append(event.kind)
            raise ValueError(event.kind)

    @tool
    async def look(step: ToolStep) -> str:
        step.emit("looking")
        return "seen"

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        boss, worker = agent("boss", model, decision, tools=[look]), agent("worker", model, decision, tools=[look])
        return Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Case, max_depth=1)

    says: dict[str, list[Reply]] = {
        "boss": [Calls(("ask_worker", {"objective": "go"}), ("look", {})), Say("all in all")],
        "worker": [Calls(("look", {})), Say("in part")],
    }
    quiet, first = await converse(make, says, way, monkeypatch, clock=ManualClock())
    loud, second = await converse(make, says, way, monkeypatch, clock=ManualClock(), more=[broken])

    assert (loud.result.status, loud.result.output, loud.result.thread, loud.result.spent) == (
        quiet.result.status, quiet.result.output, quiet.result.thread, quiet.result.spent,
    )  # fmt: skip
    happens = when == "always" or when in {event.kind for event in quiet.events}
    assert len(thrown) == happens
    failed = [body.listener for body in loud.of(ListenerFailed)]
    assert len(failed) == happens
    assert all("broken" in name for name in failed)
    assert [asked.body for asked in first.requests] == [asked.body for asked in second.requests]
    calm = [event for event in loud.events if not isinstance(event.body, ListenerFailed)]
    assert canonical_trace(calm) == canonical_trace(quiet.events)
