"""Cases M with agents: what models and tools do is heard of in time, all of it, and no reader can break a run."""

from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import END, START, Agent, Graph, Join, ModelReply, ModelRequest, ToolStep, run, start
from graphflow.events import (
    EffectFinished,
    EffectStarted,
    Emitted,
    Event,
    ListenerFailed,
    NodeEnded,
    RunEnded,
    TextDelta,
)
from graphflow.nodes.client import Stream
from graphflow.testing import ManualClock, MemoryJournal, ScriptedModel, call, canonical_trace, records_of
from tests.cases.agents import Talk, hold_requests, requests_of, says
from tests.support import examples

JOURNALS: list[Any] = [pytest.param(False, id="unrecorded"), pytest.param(True, id="recorded")]


def alone(agent: Agent) -> Graph[Talk]:
    """A graph of one agent."""
    return Graph("g", START >> agent >> END, context=Talk)


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


# --- M1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", JOURNALS)
@pytest.mark.parametrize("place", ["root", "callee"])
async def test_m1_a_tool_is_heard_of_before_it_has_ended(recorded: bool, place: str) -> None:
    """A tool that ends only when its start has reached the reader does end; the order is the order of things."""
    heard = anyio.Event()

    async def slow() -> str:
        await heard.wait()
        return "done"

    agent = says("agent", call("slow"), "answered", tools=[slow])
    graph = alone(agent)
    if place == "callee":
        boss = says("boss", call("ask_agent", objective="go"), "done")
        graph = Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)
    events: list[Event] = []
    with anyio.fail_after(10):
        async with start(graph, Talk(), journal=MemoryJournal() if recorded else None) as running:
            async for event in running:
                events.append(event)
                if isinstance(event.body, EffectStarted) and event.body.name == "slow":
                    heard.set()

    middle = [(what, name) for name in ("model", "slow", "model") for what in ("start", "end")]
    around = [("start", "model"), ("end", "model")] if place == "callee" else []
    assert effects(events) == around + middle + around


@pytest.mark.parametrize("recorded", JOURNALS)
async def test_m1_a_call_begins_when_listeners_have_heard_of_it(recorded: bool) -> None:
    """Models and tools are called after their start was recorded and told."""
    order: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event.body, EffectStarted):
            order.append(f"{event.body.name} heard of")

    async def look() -> str:
        order.append("look called")
        return "seen"

    def respond(request: ModelRequest) -> Any:
        order.append("model called")
        return "done" if request.turn else call("look")

    agent = says("agent", respond, respond, tools=[look])
    await run(alone(agent), Talk(), listeners=[listen], journal=MemoryJournal() if recorded else None)

    assert order == [f"{name} {what}" for name in ("model", "look", "model") for what in ("heard of", "called")]


@pytest.mark.parametrize("pieces", [1, 3])
async def test_m1_pieces_of_a_reply_are_heard_before_its_end(pieces: int) -> None:
    """Text deltas come inside their model call, make up its text, and stay out of the journal."""
    journal, events = MemoryJournal(), list[Event]()
    model = ScriptedModel(call("looks"), "the whole answer", stream_pieces=pieces)
    graph = alone(Agent("agent", model=model, tools=[looks]))

    async with start(graph, Talk(), journal=journal, listeners=[events.append]) as running:
        read = [event async for event in running]

    kinds = [event.kind for event in events if event.kind in {"text_delta", "effect_started", "effect_finished"}]
    assert kinds == ["effect_started", "effect_finished"] * 2 + [
        "effect_started",
        *["text_delta"] * pieces,
        "effect_finished",
    ]
    said = [event.body for event in events if isinstance(event.body, TextDelta)]
    assert "".join(body.text for body in said) == "the whole answer"
    assert {(body.path[-1].name, body.turn) for body in said} == {("agent", 1)}
    assert read == events
    records = records_of(graph, await journal.read(running.run_id))
    assert [e for entry in records for e in entry.events(running.run_id)] == [
        e for e in events if e.kind != "text_delta"
    ]


async def looks() -> str:
    """Look."""
    return "seen"


# --- M3 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["fork", "team"])
async def test_m3_tools_of_parallel_agents_are_all_heard_of(shape: str) -> None:
    """Three agents of two tools each, at once: six starts and six ends, every time, each at its path; one trace."""

    def team() -> Graph[Talk]:
        agents = [says(name, [call("look", at="1"), call("look", at="2")], name, tools=[look]) for name in "abc"]
        if shape == "fork":
            return Graph("g", START >> tuple(agents) >> Join("j") >> END, context=Talk)
        boss = says("boss", [call(f"ask_{name}", objective="go") for name in "abc"], "done")
        return Graph("g", START >> boss >> END, boss.delegates(*agents, max_hops=1), context=Talk, max_depth=1)

    async def look(at: str) -> str:
        for _ in range(int(at)):
            await anyio.lowlevel.checkpoint()
        return f"seen {at}"

    traces: set[tuple[str, ...]] = set()
    for _ in range(examples(200)):
        graph, events = team(), list[Event]()
        async with start(graph, Talk(), listeners=[events.append]) as running:
            read = [event async for event in running]

        assert read == events
        started = [event for event in events if isinstance(event.body, EffectStarted) and event.body.name == "look"]
        ended = [event for event in events if isinstance(event.body, EffectFinished) and event.body.key != "model"]
        assert Counter(event.path[-1].name for event in started) == dict.fromkeys("abc", 2)
        assert Counter(event.path[-1].name for event in ended) == dict.fromkeys("abc", 2)
        hold_requests(requests_of(graph))
        traces.add(canonical_trace(events))

    assert len(traces) == 1


# --- M5 --------------------------------------------------------------------------------------------------------------

STAGES = ["run_started", "boundary", "effect_started", "text_delta", "effect_finished", "frame_opened", "emitted"]


@pytest.mark.parametrize("until", STAGES)
async def test_m5_stopping_the_iteration_early_is_no_error(until: str) -> None:
    """A loop over a team's events that is left half-way: no exception, everything cancelled at once, no task left."""
    before = {task.id for task in anyio.get_running_tasks()}

    async def hang(step: ToolStep) -> None:
        step.emit("hanging")
        await anyio.sleep_forever()

    model = ScriptedModel(
        {"boss": [[call("ask_worker", objective="go"), call("hang")]], "worker": [ModelReply("so", (call("hang"),))]},
        stream_pieces=2,
    )
    worker, boss = Agent("worker", model=model, tools=[hang]), Agent("boss", model=model, tools=[hang])
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk, max_depth=1)
    events: list[Event] = []
    with anyio.fail_after(5):
        async with start(graph, Talk(), listeners=[events.append]) as running:
            async for event in running:
                if event.kind == until:
                    break

    assert running.outcome.status == "cancelled"
    assert {event.body.status for event in events if isinstance(event.body, NodeEnded)} <= {"cancelled"}
    assert {task.id for task in anyio.get_running_tasks()} <= before
    begun = [event for event in events if isinstance(event.body, EffectStarted)]
    assert len(begun) == len([event for event in events if isinstance(event.body, EffectFinished)])


# --- M7 --------------------------------------------------------------------------------------------------------------


class Provider:
    """A provider that never answers, and notes when it is let go."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.let_go = 0

    async def reply(self, request: ModelRequest, stream: Stream) -> Any:
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.let_go += 1


@pytest.mark.parametrize("place", ["root", "callee", "branch"])
@pytest.mark.parametrize("way", ["run", "iterate", "result"])
async def test_m7_a_consumer_that_goes_away_takes_the_model_call_with_it(way: str, place: str) -> None:
    """The consumer's task is cancelled in the middle of a turn: the provider sees it, and the end is on record."""
    provider, journal, events = Provider(), MemoryJournal(), list[Event]()
    agent = Agent("agent", model=provider)
    graph = alone(agent)
    if place == "callee":
        boss = says("boss", call("ask_agent", objective="go"))
        graph = Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)
    elif place == "branch":
        graph = Graph("g", START >> (agent, says("b", "b")) >> Join("j") >> END, context=Talk)

    async def consume() -> None:
        if way == "run":
            await run(graph, Talk(), journal=journal, listeners=[events.append], run_id="r")
        async with start(graph, Talk(), journal=journal, listeners=[events.append], run_id="r") as running:
            if way == "result":
                await running.result()
            async for _ in running:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await provider.asked.wait()
        tasks.cancel_scope.cancel()

    assert provider.let_go == 1
    assert isinstance(events[-1].body, RunEnded)
    assert events[-1].body.status == "cancelled"
    records = records_of(graph, await journal.read("r"))
    assert isinstance(records[-1].decisions[-1], RunEnded)
    ended = {event.path[-1].name: event.body.status for event in events if isinstance(event.body, NodeEnded)}
    assert ended["agent"] == "cancelled"


# --- M9 --------------------------------------------------------------------------------------------------------------


def chatty() -> Graph[Talk]:
    """A team that streams, uses tools and emits."""

    async def look(step: ToolStep) -> str:
        step.emit("looking")
        return "seen"

    model = ScriptedModel(
        {
            "boss": [[call("ask_worker", objective="go"), call("look")], "all in all"],
            "worker": [call("look"), "in part"],
        },
        stream_pieces=3,
    )
    worker, boss = Agent("worker", model=model, tools=[look]), Agent("boss", model=model, tools=[look])
    return Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk, max_depth=1)


@pytest.mark.parametrize("when", ["always", "text_delta", "emitted", "effect_started", "run_ended"])
async def test_m9_a_listener_that_throws_changes_nothing(when: str) -> None:
    """Whatever event it is that a listener throws at: one event about it, no retry, and the same result and trace."""
    thrown: list[str] = []

    def broken(event: Event) -> None:
        if when in {"always", event.kind}:
            thrown.append(event.kind)
            raise ValueError(event.kind)

    quiet_events: list[Event] = []
    events: list[Event] = []
    quiet = await run(chatty(), Talk(), listeners=[quiet_events.append], clock=ManualClock())
    loud = await run(chatty(), Talk(), listeners=[broken, events.append], clock=ManualClock())

    assert (loud.status, loud.output, loud.thread, loud.spent) == (
        quiet.status,
        quiet.output,
        quiet.thread,
        quiet.spent,
    )
    assert len(thrown) == 1
    failed = [event.body for event in events if isinstance(event.body, ListenerFailed)]
    assert len(failed) == 1
    assert "broken" in failed[0].listener
    assert canonical_trace(e for e in events if not isinstance(e.body, ListenerFailed)) == canonical_trace(quiet_events)
    assert [event.body.value for event in events if isinstance(event.body, Emitted)] == ["looking", "looking"]


async def test_m9_events_have_numbers_without_gaps() -> None:
    """What is on record is numbered from 0 without gaps; pieces of text in between do not take numbers away."""
    events: list[Event] = []

    await run(chatty(), Talk(), listeners=[events.append])

    recorded = [event.seq for event in events if not isinstance(event.body, TextDelta)]
    assert recorded == list(range(len(recorded)))
    assert [event.seq for event in events] == sorted(event.seq for event in events)
