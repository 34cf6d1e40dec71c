"""What nobody would write on purpose, but a model may: it costs one call, never a run, a loop or a key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    ModelRequest,
    ModelUnavailable,
    ProviderModel,
    ThreadMessage,
    ToolCall,
    run,
)
from graphflow.errors import ModelError, UsageError
from graphflow.mcp import McpServer
from graphflow.mcp.checking import check_of
from graphflow.nodes.providers.failures import without_keys
from graphflow.nodes.providers.messages import history_of

BOMB: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {
        **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
        "d40": {"type": "integer"},
    },
}
"""A small schema whose check has 2 ** 40 steps."""


class Question(Context):
    """What is asked."""

    text: str = "Where is it?"


def one(answer: Any) -> Graph[Question]:
    """Return an agent with a model of one's own."""
    return Graph("g", START >> Agent("desk", model=ProviderModel(FunctionModel(answer))) >> END, context=Question)


@pytest.mark.parametrize("arguments", ["[" * 50_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "\ud800", "7", ""])
def test_arguments_of_any_kind_can_be_sent_back(arguments: str) -> None:
    """A model sees what it has called, whatever that was, and the next request is one that a provider takes."""
    said = ThreadMessage("assistant", "half \ud800", (ToolCall("look (it) up", arguments, "one"),))
    told = ThreadMessage("tool", "not executed \ud800", answers="one", failed=True)

    made = history_of(ModelRequest("desk", "desk", 1, "be kind \ud800", (ThreadMessage("user", "Hi"), said, told)))

    [call] = [part for message in made for part in message.parts if part.part_kind == "tool-call"]
    assert isinstance(json.loads(call.args_as_json_str()), dict)
    assert call.tool_name == "look__it__up"
    assert all("\ud800" not in repr(message) for message in made)


def test_a_schema_cannot_hold_a_run_up() -> None:
    """The check gives up after some steps, always the same, and leaves the arguments to the server."""
    assert check_of(BOMB)({"a": "no number"}) == []


def test_text_that_is_no_unicode_does_not_fit() -> None:
    """It cannot be written to a server, whose connection belongs to others too."""
    assert check_of({"type": "object"})({"text": "\ud800"})


@pytest.mark.parametrize(
    "address", ["http://[::1", "http://127.0.0.1:99999/v1", "http://h:abc/v1", "ftp://h/v1", "", 5]
)
def test_an_address_that_is_none_is_refused_where_it_is_given(address: Any) -> None:
    """And not when the first request is made."""
    with pytest.raises(UsageError, match="an address is needed"):
        ProviderModel("openai:x", base_url=address)
    with pytest.raises(UsageError, match="an address is needed"):
        McpServer("desk", url=address)


@pytest.mark.parametrize("address", ["http://me:hunter2long@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=hunter2long"])
def test_what_is_secret_in_an_address_is_never_shown(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where it is given, and not where it comes from the environment."""
    with pytest.raises(UsageError) as given:
        ProviderModel("openai:x", base_url=address)
    monkeypatch.setenv("OPENAI_BASE_URL", address)

    assert "hunter2long" not in f"{given.value} {ProviderModel('openai:x')!r}"


def test_settings_are_not_repeated_in_an_error() -> None:
    """They may hold headers, and these a token."""
    with pytest.raises(UsageError) as raised:
        ProviderModel("openai:x", settings={"extra_headers": {"Authorization": "Bearer hunter2long"}, "timeout": 3})

    assert "hunter2long" not in str(raised.value)


def broken(messages: object, info: object) -> ModelResponse:
    """A model of one's own with a bug in it."""
    msg = "a bug of mine"
    raise ValueError(msg)


def plain(messages: object, info: object) -> ModelResponse:
    """A model of one's own that cannot stream."""
    return ModelResponse(parts=[TextPart("It is on its way.")])


async def test_a_bug_in_a_model_of_ones_own_is_not_waited_for(anyio_backend: str) -> None:
    """It is no provider that may work later."""
    with pytest.raises(ModelError, match="a bug of mine") as raised:
        await run(one(broken), Question())

    assert not isinstance(raised.value, ModelUnavailable)


async def test_a_model_that_cannot_stream_is_asked_for_the_whole(anyio_backend: str) -> None:
    """Nobody has to know that there are two ways."""
    result = await run(one(plain), Question())

    assert result.output == "It is on its way."


def test_no_key_is_repeated_whatever_its_variable_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the password in the address of a server that stands in the environment."""
    monkeypatch.setenv("MY_CRED", "hunter2long")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:hush-hush@127.0.0.1:9/v1")

    ProviderModel("openai:x", key_from="MY_CRED")

    assert without_keys("hunter2long and hush-hush") == "(MY_CRED) and (OPENAI_BASE_URL)"


@pytest.mark.parametrize("address", ["http://LocalHost:8080/v1", "HTTPS://Example.com/v1/", "http://[::1]:8080/v1"])
def test_an_address_may_be_written_in_any_way(address: str) -> None:
    """Capitals and brackets are no secrets."""
    assert ProviderModel("openai:x", base_url=address).base_url == address
