"""What is heard of a reply while it is written, and what becomes of one that breaks off."""

from __future__ import annotations

import time
from typing import Any, Final

import anyio
import pytest

from graphflow import ANY, END, START, Agent, Graph, Join, ModelUnavailable, State, fork, node, start
from graphflow.events import CallDelta, EffectFinished, Event, TextDelta
from graphflow.model.ids import path_text
from graphflow.testing import ManualClock
from tests.model_replies import Breaks, Calls, Raw, Reply, Say
from tests.openai_server import ModelServer
from tests.providers.conversations import CONVERSATIONS, track
from tests.providers.helpers import Case, Parts, at, hangs, hear, is_left, streamed, until


def solo(server: ModelServer, model: dict[str, Any] | None = None, **options: Any) -> Graph[Case]:
    """A graph of one agent with a tool."""
    agent = Agent("solo", model=at(server, **(model or {})), tools=[track], **options)
    return Graph("g", START >> agent >> END, context=Case)


@pytest.mark.parametrize("interleaved", [False, True])
async def test_pieces_of_calls_are_heard_in_order(interleaved: bool) -> None:
    """The pieces of each call put together are its arguments, also where two calls are written in turns."""
    calls = Calls(("track", {"order": "A-7"}), ("track", {"order": "B-8"}), pieces=4, interleaved=interleaved)

    with ModelServer(calls, Say("In transit.", pieces=4)) as server:
        heard = await hear(solo(server))

    pieces: list[CallDelta] = heard.of(CallDelta)
    written = ["".join(piece.arguments for piece in pieces if piece.position == position) for position in (0, 1)]
    assert written == ['{"order": "A-7"}', '{"order": "B-8"}']
    assert [piece.name for piece in pieces if piece.name] == ["track", "track"]
    assert [piece.position for piece in pieces][:2] == ([0, 1] if interleaved else [0, 0])
    assert "".join(piece.text for piece in heard.of(TextDelta)) == "In transit."


async def test_pieces_are_heard_through_nested_graphs_before_their_reply() -> None:
    """Each reply of each agent, however deep, is heard in pieces, between its start and its end, at its own path."""
    conversation = CONVERSATIONS["company"]
    parts = Parts({who: [streamed(reply) for reply in script] for who, script in conversation.says.items()})

    with ModelServer(parts) as server:
        heard = await hear(conversation.make(at(server), "native"))

    texts: dict[tuple[str, int], str] = {}
    for event in heard.events:
        match event.body:
            case TextDelta(path, turn, text):
                texts[path_text(path), turn] = texts.get((path_text(path), turn), "") + text
            case EffectFinished(path, turn, key="model", result=reply):
                assert texts.get((path_text(path), turn), "") == reply.text
            case _:
                pass
    assert {path.count("/") for path, _ in texts} == {0, 2, 3}
    assert texts["ceo", 1] == "All well."


async def test_a_reply_that_is_not_streamed_is_heard_when_it_is_there() -> None:
    """`stream=False` asks for whole replies, and nothing is heard of one before."""
    with ModelServer(Say("In transit.", pieces=3)) as server:
        heard = await hear(solo(server, {"stream": False}))

    assert heard.result.output == "In transit."
    assert heard.of(TextDelta) == []
    assert not server.requests[0].streams


BROKEN: Final[dict[str, Reply]] = {
    "cut": Say("In transit.", pieces=4, breaks="cut", after=3),
    "cut early": Say("In transit.", breaks="cut", after=0),
    "ended": Say("In transit.", pieces=4, breaks="end", after=3),
    "ended, a call": Calls(("track", {"order": "A-7"}), pieces=4, breaks="end", after=3),
    "garbage": Say("In transit.", pieces=4, breaks="garbage", after=3),
    "hanging": Say("In transit.", breaks="hang", after=0),
    "hanging, begun": Say("In transit.", pieces=4, breaks="hang", after=3),
    "no protocol": Raw(b"<html>It works!</html>", kind="text/html"),
    "nothing": Raw(b""),
    "an empty object": Raw(b"{}"),
    "no choices": Raw(b'{"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}'),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_reply_is_asked_for_again(name: str, stream: bool) -> None:
    """A reply that is cut, late or garbled counts as none: a retry asks again, and its words are the answer."""
    clock = ManualClock()

    with ModelServer(BROKEN[name], Say("In transit.")) as server:
        heard = await hear(solo(server, {"stream": stream, "timeout": 0.3}, retries=1), clock=clock)

    spent = heard.result.spent.total
    assert heard.result.output == "In transit."
    assert (spent.model_calls, spent.retries, spent.node_runs) == (2, 1, 2)
    assert clock.now() >= 0.5
    assert heard.of(EffectFinished)[0].failure.error_type == "graphflow.errors.ModelUnavailable"


async def test_a_broken_reply_without_a_retry_fails_with_what_happened() -> None:
    """Without a retry the error comes out as it is, and names the model and the seconds."""
    with ModelServer(BROKEN["hanging"]) as server, pytest.raises(ModelUnavailable, match=r"openai:small.*0\.2 s"):
        await hear(solo(server, {"timeout": 0.2}))


# --- stopping --------------------------------------------------------------------------------------------------------

HANGS: Final[tuple[tuple[Breaks, int], ...]] = (("hang", 0), ("hang", 3))


@pytest.mark.parametrize(("breaks", "after"), HANGS)
@pytest.mark.parametrize("how", ["cancel", "leave", "cancel the task"])
async def test_stopping_a_run_closes_the_request(how: str, breaks: Breaks, after: int) -> None:
    """Whoever stops a run, the provider sees it at once, before its first byte and in the middle of a stream."""
    reply = Say("In transit.", pieces=4, breaks=breaks, after=after)
    events: list[Event] = []

    with ModelServer(reply) as server:
        began = 0.0
        with anyio.CancelScope() as scope:
            async with start(solo(server), Case(), listeners=[events.append]) as running:
                await until(server, hangs)
                began = time.monotonic()
                if how == "cancel":
                    running.cancel()
                    assert (await running.result()).status == "cancelled"
                elif how == "cancel the task":
                    scope.cancel()
                    await running.result()
        await until(server, is_left)

    assert server.disconnects[0].left_at is not None
    assert server.disconnects[0].left_at - began < 0.5
    assert [event.kind for event in events].count("run_ended") == 1


async def test_a_losing_branch_stops_asking() -> None:
    """The model call of a branch that lost a race is closed, and the others are not."""
    parts = {"quick": [Say("First.")], "slow": [Say("Never.", breaks="hang", after=0)]}

    with ModelServer(Parts(parts)) as server:
        model = at(server)
        quick, slow = (Agent(name, model=model, instructions=f"You are {name}.") for name in ("quick", "slow"))

        @node
        async def later(state: State[Case]) -> None:
            await until(server, lambda server: bool(server.requests))  # or the slow one may be stopped before it asks

        graph = Graph("g", START >> fork(later >> quick, slow) >> Join("j", ANY, losers="cancel") >> END, context=Case)
        heard = await hear(graph)
        await until(server, is_left)

    assert heard.result.status == "completed"
    assert len(server.disconnects) == 1


async def test_a_timeout_of_the_agent_closes_the_request() -> None:
    """The agent's own `timeout=` counts on the run's clock, and closes the request too."""
    with ModelServer(Say("x", breaks="hang", after=0)) as server:
        heard = await hear(solo(server, timeout=0.2))
        await until(server, is_left)

    assert heard.result.status == "failed"
    assert heard.result.reason is not None
    assert heard.result.reason.code == "timeout"
    assert len(server.disconnects) == 1
