"""Agents at a strict server: nothing that they say is refused, and how they are asked changes nothing."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from graphflow import ProviderModel
from graphflow.nodes.agent import DecisionMode
from tests.openai_server import ModelServer
from tests.providers.conversations import CONVERSATIONS, Conversation
from tests.providers.helpers import CLAUDE, Heard, Parts, at, hear, streamed

# How a model is asked: the provider, whether its replies are streamed, and the decision mode.
WAYS: Final[dict[str, tuple[str, bool, DecisionMode]]] = {
    "openai, streamed": ("openai:small", True, "native"),
    "openai, whole": ("openai:small", False, "native"),
    "openai, json": ("openai:small", True, "json"),
    "anthropic, streamed": (CLAUDE, True, "native"),
    "anthropic, whole": (CLAUDE, False, "native"),
    "anthropic, json": (CLAUDE, False, "json"),
}
NATIVE: Final = ("openai, streamed", "openai, whole")
UNREADABLE: Final = {"malformed arguments"}  # what Anthropic's protocol cannot carry, and what is no call in JSON


async def held(conversation: Conversation, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Heard, ModelServer]:
    """Hold a conversation in one of the ways."""
    name, stream, decision = WAYS[way]
    parts = Parts({who: [streamed(reply) for reply in script] for who, script in conversation.says.items()})
    with ModelServer(parts) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        openai = name.startswith("openai")
        model = at(server, name, stream=stream) if openai else ProviderModel(name, stream=stream)
        heard = await hear(conversation.make(model, decision))
    assert server.violations == []
    assert heard.result.status == conversation.status, heard.result.reason
    parts.assert_complete()
    return heard, server


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_no_request_is_refused_and_every_way_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever agents say to each other, tools and people, each request keeps the protocol of its provider.

    Native calls and constrained JSON, whole or streamed, give the same events, outcome and spending.
    """
    conversation = CONVERSATIONS[name]

    found = [await held(conversation, way, monkeypatch) for way in (NATIVE if name in UNREADABLE else WAYS)]

    first = found[0][0]
    for heard, server in found:
        assert heard.result.output == conversation.output
        assert heard.trace == first.trace
        assert replace(heard.result.spent.total, usd=None) == replace(first.result.spent.total, usd=None)
        assert heard.result.spent.total.model_calls == len(server.requests)
        assert heard.result.spent.total.tokens == 15 * len(server.requests)


async def test_what_cannot_be_decided_natively_is_asked_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """`decision="auto"` asks a model for JSON that cannot call tools, and offers it none."""
    conversation = CONVERSATIONS["parallel tools"]
    parts = Parts(conversation.says)

    with ModelServer(parts) as server:
        heard = await hear(conversation.make(at(server, native_tools=False), "auto"))

    assert heard.result.output == conversation.output
    assert server.violations == []
    assert all("tools" not in asked.body for asked in server.requests)
    assert all(asked.body["response_format"]["type"] == "json_schema" for asked in server.requests)


async def test_results_stand_in_call_order_right_after_their_calls() -> None:
    """What a model reads of a turn is its calls and their results, in the order of the calls."""
    conversation = CONVERSATIONS["parallel tools"]

    with ModelServer(Parts(conversation.says)) as server:
        await hear(conversation.make(at(server), "native"))

    messages: list[Any] = server.requests[1].body["messages"]
    calls = [call["id"] for call in messages[-4]["tool_calls"]]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool", "tool"]
    assert [message["tool_call_id"] for message in messages[-3:]] == calls
    assert [message["content"] for message in messages[-3:]] == ["A-7 in transit", "INV-1 is paid", "B-8 in transit"]


async def test_what_was_no_json_is_told_as_an_object() -> None:
    """Arguments that no provider would read again are sent back as an object that holds them."""
    conversation = CONVERSATIONS["malformed arguments"]

    with ModelServer(Parts(conversation.says)) as server:
        await hear(conversation.make(at(server), "native"))

    calls = [
        json.loads(call["function"]["arguments"])
        for message in server.requests[-1].body["messages"]
        for call in message.get("tool_calls", ())
    ]
    assert calls[:2] == [{"not_an_object": '{"order": "A-7"'}, {"not_an_object": ["A-7"]}]
    assert calls[-1] == {"order": "A-7"}
