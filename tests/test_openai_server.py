"""The server of models that the tests use: it refuses what the real ones refuse, and misbehaves as it is told."""

import copy
import gc
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import openai
import pytest

from tests.model_replies import Breaks, Calls, Error, Raw, Reply, Say, rate_limited, too_long
from tests.openai_server import CHAT, MESSAGES, MODELS, ModelServer

Change = Callable[[dict[str, Any]], object]


def tool(name: str = "track_parcel", **more: Any) -> dict[str, Any]:
    """A tool as OpenAI wants it."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


def made_call(ident: str = "c1", **function: Any) -> dict[str, Any]:
    """A call as OpenAI wants it."""
    return {"id": ident, "type": "function", "function": {"name": "track_parcel", "arguments": "{}", **function}}


USER: Final = {"role": "user", "content": "Where is A-7?"}
CALLING: Final = {"role": "assistant", "content": None, "tool_calls": [made_call()]}
ANSWER: Final = {"role": "tool", "tool_call_id": "c1", "content": "in transit"}
STRICT: Final = {
    "type": "object",
    "properties": {"finding": {"type": "string"}, "evidence": {"type": "array", "items": {"type": "string"}}},
    "required": ["finding", "evidence"],
    "additionalProperties": False,
}
GOOD: Final[dict[str, Any]] = {
    "model": "small",
    "messages": [{"role": "system", "content": "Answer as json."}, USER, CALLING, ANSWER],
    "tools": [tool()],
    "max_completion_tokens": 100,
}


def form(schema: Any, *, strict: bool = True, name: str = "report") -> dict[str, Any]:
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": strict, "schema": schema}}


def post(
    server: ModelServer, body: Any, path: str = CHAT, method: str = "POST", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Ask, and return the status, what came back (JSON or text), and the headers; one that is "" is not sent."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        known = {"Authorization": f"Bearer {server.key}", "x-api-key": server.key, "anthropic-version": "2023-06-01"}
        told = {"Content-Type": "application/json"} | known | headers
        connection.request(method, path, sent, {name: value for name, value in told.items() if value})
        response = connection.getresponse()
        text = response.read().decode()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, json.loads(text) if text.startswith("{") else text, found


def chunks(text: str) -> list[Any]:
    """The chunks of a stream, without the last line, which must be there."""
    lines = [line.removeprefix("data: ") for line in text.strip().split("\n\n")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def with_schema(schema: Any) -> Change:
    """Ask for an answer of a schema that has to be strict."""
    return lambda body: body.update(response_format=form(schema))


def message(*messages: Any) -> Change:
    """Send these messages instead."""
    return lambda body: body.update(messages=list(messages))


def saying(**more: Any) -> Change:
    """Say these parameters too."""
    return lambda body: body.update(more)


VIOLATIONS: Final[dict[str, tuple[Change, str]]] = {
    "no model": (lambda body: body.pop("model"), "must provide a model"),
    "empty model": (saying(model=""), "must provide a model"),
    "unknown parameter": (saying(max_token=3), "Unrecognized request argument"),
    "no messages": (lambda body: body.pop("messages"), "Missing required parameter: 'messages'"),
    "empty messages": (message(), "empty array"),
    "messages that are none": (saying(messages="hello"), "expected an array"),
    "a message that is none": (message("hello"), "expected an object"),
    "unknown role": (message({"role": "bot", "content": "x"}), "Supported values"),
    "unknown key of a message": (message(USER | {"source": "x"}), "Unknown parameter: 'messages[0].source'"),
    "null content of the user": (message({"role": "user", "content": None}), "got null"),
    "null content without calls": (message(USER, {"role": "assistant", "content": None}), "got null"),
    "null content of a tool": (message(USER, CALLING, ANSWER | {"content": None}), "got null"),
    "empty parts": (message({"role": "user", "content": []}), "empty array"),
    "unknown part": (message({"role": "user", "content": [{"type": "video"}]}), "no part"),
    "a call without its answer": (message(USER, CALLING), "must be followed by tool messages"),
    "a user before the answer": (message(USER, CALLING, USER, ANSWER), "must be followed by tool messages"),
    "an answer without its call": (message(USER, ANSWER), "must be a response to a preceeding"),
    "two answers of one call": (message(USER, CALLING, ANSWER, ANSWER), "must be a response to a preceeding"),
    "an answer with another id": (message(USER, CALLING, ANSWER | {"tool_call_id": "c2"}), "must be a response"),
    "an answer with no id": (message(USER, CALLING, {"role": "tool", "content": "x"}), "tool_call_id"),
    "two calls with one id": (
        message(USER, CALLING | {"tool_calls": [made_call(), made_call()]}, ANSWER),
        "Duplicate value for 'tool_call_id'",
    ),
    "one id twice in a thread": (message(USER, CALLING, ANSWER, CALLING, ANSWER), "Duplicate value"),
    "no calls": (message(USER, CALLING | {"tool_calls": []}), "empty array"),
    "a call with no id": (message(USER, CALLING | {"tool_calls": [made_call("")]}), "empty string"),
    "a call of no function": (message(USER, CALLING | {"tool_calls": [{"id": "c1"}]}), "'function'"),
    "arguments that are no text": (
        message(USER, CALLING | {"tool_calls": [made_call(arguments={"order": "A-7"})]}, ANSWER),
        "expected a string",
    ),
    "a call's name": (message(USER, CALLING | {"tool_calls": [made_call(name="ask billing")]}), "does not match"),
    "a tool's name": (saying(tools=[tool("ask billing")]), "does not match pattern"),
    "a tool's long name": (saying(tools=[tool("a" * 65)]), "does not match pattern"),
    "a tool's long description": (saying(tools=[tool(description="a" * 1025)]), "maximum length 1024"),
    "equal names": (saying(tools=[tool(), tool()]), "must be unique"),
    "no tools": (saying(tools=[]), "empty array"),
    "too many tools": (saying(tools=[tool(f"t{i}") for i in range(129)]), "array too long"),
    "a tool of another kind": (saying(tools=[{"type": "web"}]), "Supported values"),
    "parameters that are a text": (saying(tools=[tool(parameters={"type": "string"})]), "must have type 'object'"),
    "parameters without a type": (saying(tools=[tool(parameters={})]), "must have type 'object'"),
    "parameters of two shapes": (
        saying(tools=[tool(parameters={"type": "object", "properties": {}, "anyOf": []})]),
        "at the top level",
    ),
    "parameters without properties": (saying(tools=[tool(parameters={"type": "object"})]), "missing properties"),
    "a list of nothing": (
        saying(tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]),
        "missing items",
    ),
    "a strict tool that is not": (saying(tools=[tool(strict=True)]), "'additionalProperties' is required"),
    "a choice without tools": (lambda body: (body.pop("tools"), body.update(tool_choice="auto")), "only allowed when"),
    "parallel without tools": (
        lambda body: (body.pop("tools"), body.update(parallel_tool_calls=True)),
        "only allowed when",
    ),
    "an unknown choice": (saying(tool_choice={"type": "function", "function": {"name": "x"}}), "Invalid value"),
    "no tokens": (saying(max_completion_tokens=0), "positive integer"),
    "tokens as a text": (saying(max_completion_tokens="10"), "positive integer"),
    "tokens as a truth": (saying(max_completion_tokens=True), "positive integer"),
    "half a token": (saying(max_tokens=0.5), "positive integer"),
    "both kinds of tokens": (saying(max_tokens=5), "at the same time"),
    "old tokens of a new model": (
        lambda body: (body.pop("max_completion_tokens"), body.update(model="o3-mini", max_tokens=5)),
        "'max_completion_tokens'",
    ),
    "too hot": (saying(temperature=2.5), "from 0 to 2"),
    "a seed as a text": (saying(seed="1"), "expected an integer"),
    "a stream as a text": (saying(stream="yes"), "expected a boolean"),
    "options without a stream": (saying(stream_options={"include_usage": True}), "only allowed when 'stream'"),
    "unknown format": (saying(response_format={"type": "yaml"}), "no response format"),
    "json that nobody speaks of": (
        lambda body: body.update(messages=[USER], response_format={"type": "json_object"}),
        "must contain the word 'json'",
    ),
    "a format's name": (saying(response_format=form(STRICT, name="a b")), "does not match pattern"),
    "a format that is no object": (saying(response_format=form({"type": "string"}, strict=False)), "type 'object'"),
    "a format of two shapes": (saying(response_format=form({"anyOf": [STRICT, STRICT]})), "at the top level"),
    "strict, open": (with_schema(STRICT | {"additionalProperties": True}), "'additionalProperties' is required"),
    "strict, something optional": (with_schema(STRICT | {"required": ["finding"]}), "including every key"),
    "strict, open below": (
        with_schema(
            STRICT | {"properties": {"a": {"type": "object", "properties": {}, "required": []}}, "required": ["a"]}
        ),
        "'additionalProperties' is required",
    ),
    "strict, a default": (
        with_schema(STRICT | {"properties": {"a": {"type": "string", "default": ""}}, "required": ["a"]}),
        "'default' is not permitted",
    ),
    "strict, one of": (
        with_schema(STRICT | {"properties": {"a": {"oneOf": [{"type": "string"}]}}, "required": ["a"]}),
        "'oneOf' is not permitted",
    ),
    "strict, no type": (
        with_schema(STRICT | {"properties": {"a": {"const": "x"}}, "required": ["a"]}),
        "must have a 'type' key",
    ),
    "strict, a described reference": (
        with_schema(STRICT | {"properties": {"a": {"$ref": "#/$defs/A", "description": "x"}}, "required": ["a"]}),
        "$ref cannot have keywords",
    ),
}

FINE: Final[dict[str, Change]] = {
    "calls and answers": lambda _: None,
    "words": message(USER, {"role": "assistant", "content": "Which?"}, USER),
    "parts": message({"role": "user", "content": [{"type": "text", "text": "x"}]}),
    "two calls, answered in another order": message(
        USER,
        CALLING | {"tool_calls": [made_call("c1"), made_call("c2")]},
        ANSWER | {"tool_call_id": "c2"},
        ANSWER,
    ),
    "arguments that are no JSON": message(USER, CALLING | {"tool_calls": [made_call(arguments="{")]}, ANSWER),
    "a strict format": saying(response_format=form(STRICT)),
    "a format that is not strict": saying(response_format=form(STRICT | {"required": []}, strict=False)),
    "json": saying(response_format={"type": "json_object"}),
    "a stream": saying(stream=False),
    "a choice": saying(tool_choice={"type": "function", "function": {"name": "track_parcel"}}),
    "numbers": saying(temperature=0, top_p=1, seed=7),
}


@pytest.fixture(name="server")
def a_server() -> Iterator[ModelServer]:
    """A server that always says the same."""
    with ModelServer(lambda _: Say("In transit.")) as server:
        yield server


@pytest.mark.parametrize("name", VIOLATIONS)
def test_what_openai_refuses_is_refused(name: str, server: ModelServer) -> None:
    """Each of these requests is answered with an error in OpenAI's form, and remembered."""
    change, complaint = VIOLATIONS[name]
    body = copy.deepcopy(GOOD)
    change(body)

    status, found, _ = post(server, body)

    assert status == 400
    assert complaint in found["error"]["message"]
    assert found["error"].keys() == {"message", "type", "param", "code"}
    assert len(server.violations) == 1
    assert complaint in server.violations[0]


@pytest.mark.parametrize("name", FINE)
def test_what_openai_takes_is_taken(name: str, server: ModelServer) -> None:
    """None of these requests is refused."""
    body = copy.deepcopy(GOOD)
    FINE[name](body)

    status, found, _ = post(server, body)

    assert status == 200, found
    assert server.violations == []
    assert [asked.body for asked in server.requests] == [body]


def test_keys_paths_and_bodies_are_checked(server: ModelServer) -> None:
    """A wrong key, an unknown place, and a body that is no JSON have errors of their own."""
    _, wrong_key, _ = post(server, GOOD, Authorization="Bearer x")
    answers = [
        post(server, GOOD, Authorization="Bearer x")[0],
        post(server, GOOD, "/v1/completions")[0],
        post(server, GOOD, CHAT, "GET")[0],
        post(server, b"{")[0],
        post(server, GOOD, **{"Content-Type": "text/plain"})[0],
    ]

    assert wrong_key["error"]["code"] == "invalid_api_key"
    assert answers == [401, 404, 404, 400, 400]
    assert len(server.violations) == 6


def test_models_are_listed_and_others_are_unknown() -> None:
    """A server that has two models lists them, and knows no third."""
    with ModelServer(Say("x"), models=("small", "large")) as server:
        _, listed, _ = post(server, None, MODELS, "GET")
        status, found, _ = post(server, GOOD | {"model": "huge"})

    assert [row["id"] for row in listed["data"]] == ["small", "large"]
    assert (status, found["error"]["code"]) == (404, "model_not_found")


def test_a_script_is_played_once() -> None:
    """Answers come in turn; a request past the last, and a responder that raises, are violations."""

    def raising(_: object) -> Reply:
        raise LookupError

    with ModelServer(Say("one"), lambda asked: Say(str(asked.number)), raising) as server:
        texts = [post(server, GOOD)[1]["choices"][0]["message"]["content"] for _ in range(2)]
        errors = [post(server, GOOD)[0] for _ in range(2)]

    assert texts == ["one", "1"]
    assert errors == [400, 400]
    assert ["LookupError" in server.violations[0], "no answer left" in server.violations[1]] == [True, True]


# --- good answers ----------------------------------------------------------------------------------------------------


def test_an_answer_in_words_and_its_usage(server: ModelServer) -> None:
    """An answer that is not streamed has OpenAI's form."""
    _, found, headers = post(server, GOOD)

    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["content"] == "In transit."
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"]["total_tokens"] == 15
    assert headers["content-type"] == "application/json"


def test_usage_can_be_missing_and_calls_can_be_malformed() -> None:
    """What a call's arguments are is up to the test; without usage there is none, whole or streamed."""
    reply = Calls(("get", '{"a": 1,'), usage=None)
    with ModelServer(reply, reply) as server:
        _, found, _ = post(server, GOOD)
        _, streamed, _ = post(server, GOOD | {"stream": True, "stream_options": {"include_usage": True}})

    assert "usage" not in found
    assert found["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "get", "arguments": '{"a": 1,'}
    assert found["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(chunk["usage"] for chunk in chunks(streamed))


@pytest.mark.parametrize(
    ("reply", "finish", "content", "refusal"),
    [
        (Say(""), "stop", "", None),
        (Say("In tra", finish="length"), "length", "In tra", None),
        (Say("", finish="content_filter"), "content_filter", "", None),
        (Say("I will not.", refusal=True), "stop", None, "I will not."),
    ],
)
def test_answers_that_are_none(reply: Say, finish: str, content: str | None, refusal: str | None) -> None:
    """An empty answer, one that is cut off, filtered or a refusal, whole and streamed."""
    with ModelServer(reply, reply) as server:
        _, found, _ = post(server, GOOD)
        _, streamed, _ = post(server, GOOD | {"stream": True})
    parts = [chunk["choices"][0]["delta"] for chunk in chunks(streamed)]
    said = found["choices"][0]

    assert (said["finish_reason"], said["message"]["content"], said["message"]["refusal"]) == (finish, content, refusal)
    assert "".join(part.get("content") or "" for part in parts) == (content or "")
    assert "".join(part.get("refusal") or "" for part in parts) == (refusal or "")
    assert chunks(streamed)[-1]["choices"][0]["finish_reason"] == finish


def test_a_text_is_streamed_in_pieces_with_its_usage_last() -> None:
    """The first chunk has the role, the last the usage, if it was asked for; the text comes in pieces between them."""
    with ModelServer(Say("In transit.", pieces=4), Say("x")) as server:
        _, text, headers = post(server, GOOD | {"stream": True, "stream_options": {"include_usage": True}})
        _, without, _ = post(server, GOOD | {"stream": True})
    found = chunks(text)

    assert headers["content-type"].startswith("text/event-stream")
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"].get("content") for chunk in found[1:-2]] == ["In ", "tra", "nsi", "t."]
    assert [chunk["usage"] for chunk in found[:-1]] == [None] * 6
    assert (found[-1]["choices"], found[-1]["usage"]["completion_tokens"]) == ([], 5)
    assert not any("usage" in chunk for chunk in chunks(without))


@pytest.mark.parametrize("interleaved", [False, True])
def test_two_calls_are_streamed_in_many_deltas(interleaved: bool) -> None:
    """The pieces of two calls come one call after the other, or in turns; put together they are the same."""
    reply = Calls(("one", {"a": "1234"}), ("two", {"b": "5678"}), pieces=3, interleaved=interleaved)
    with ModelServer(reply) as server:
        _, text, _ = post(server, GOOD | {"stream": True})
    parts = [part for chunk in chunks(text) for part in chunk["choices"][0]["delta"].get("tool_calls", ())]
    joined = ["".join(part["function"]["arguments"] for part in parts if part["index"] == place) for place in (0, 1)]

    assert [part["index"] for part in parts] == ([0, 1] * 4 if interleaved else [0] * 4 + [1] * 4)
    assert [part["function"]["name"] for part in parts if "id" in part] == ["one", "two"]
    assert [json.loads(arguments) for arguments in joined] == [{"a": "1234"}, {"b": "5678"}]


def test_the_official_client_understands_it() -> None:
    """The client that OpenAI publishes reads what the server writes, whole and streamed."""
    reply = Calls(("track_parcel", {"order": "A-7"}), text="I look.", pieces=4)
    with (
        ModelServer(reply, reply) as server,
        openai.OpenAI(base_url=server.base_url, api_key=server.key, max_retries=0) as client,
    ):
        whole = client.chat.completions.create(model="small", messages=[{"role": "user", "content": "Where?"}])
        with client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "Where?"}],
            stream=True,
            stream_options={"include_usage": True},
        ) as stream:
            parts = list(stream)
    written = [call for part in parts for choice in part.choices for call in choice.delta.tool_calls or ()]

    assert whole.choices[0].message.content == "I look."
    assert whole.usage is not None
    assert whole.usage.total_tokens == 15
    assert "".join(call.function.arguments or "" for call in written if call.function) == '{"order": "A-7"}'
    assert parts[-1].usage == whole.usage
    assert server.violations == []


# --- misbehaviour ----------------------------------------------------------------------------------------------------

DATE: Final = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("reply", "status", "code", "retry_after"),
    [
        (rate_limited("2"), 429, "rate_limit_exceeded", "2"),
        (rate_limited(DATE), 429, "rate_limit_exceeded", DATE),
        (rate_limited(), 429, "rate_limit_exceeded", None),
        (Error(500), 500, None, None),
        (Error(503, "Overloaded."), 503, None, None),
        (Error(401, "No.", "invalid_api_key"), 401, "invalid_api_key", None),
        (too_long(), 400, "context_length_exceeded", None),
    ],
)
def test_errors_are_as_scripted(reply: Error, status: int, code: str | None, retry_after: str | None) -> None:
    """An error that the script wants has its status, its code and its headers, and is no violation."""
    with ModelServer(reply) as server:
        found = post(server, GOOD | {"stream": True})

    assert (found[0], found[1]["error"]["code"], found[2].get("retry-after")) == (status, code, retry_after)
    assert server.violations == []


@pytest.mark.parametrize("body", [b'{"choices": [', b'{"hello": "world"}', b"<html>Bad gateway</html>", b"[]", b""])
def test_any_body_can_be_sent(body: bytes) -> None:
    """A body that is no JSON, or no completion, goes out as it is."""
    with ModelServer(Raw(body)) as server, closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
        connection.request("POST", CHAT, json.dumps(GOOD), headers)

        assert connection.getresponse().read() == body


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("after", [0, 2])
def test_a_call_hangs_until_its_client_goes(streams: bool, after: int) -> None:
    """An answer hangs before its headers or in the middle; the server sees that the client has gone."""
    with ModelServer(Say("In transit.", pieces=3, breaks="hang", after=after)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
        connection.request("POST", CHAT, json.dumps(GOOD | {"stream": streams}), headers)
        hung = server.wait_until(lambda server: server.hanging == 1)
        before = list(server.disconnects)
        gone_at = time.monotonic()
        connection.close()
        seen = server.wait_until(lambda server: server.requests[0].done)

        assert hung
        assert seen
        assert before == []
        assert server.disconnects == server.requests
        assert server.requests[0].left_at is not None
        assert server.requests[0].left_at - gone_at < 1
        assert server.requests[0].status == (200 if after else 0)
        assert server.hanging == 0


@pytest.mark.parametrize("streams", [False, True])
def test_a_connection_is_cut(streams: bool) -> None:
    """A stream, or a body, that is cut in the middle is no complete answer of HTTP."""
    with ModelServer(Say("In transit.", pieces=3, breaks="cut", after=2)) as server:
        with pytest.raises(http.client.IncompleteRead):
            post(server, GOOD | {"stream": streams})
        server.wait_until(lambda server: server.requests[0].done)

    assert server.disconnects == []


@pytest.mark.parametrize(("breaks", "last"), [("end", '"content": "In t"'), ("garbage", '{"choices": [{"delta": {')])
def test_a_stream_ends_early_or_in_nonsense(breaks: Breaks, last: str) -> None:
    """A stream can end in order before its finish, and can end with a chunk that is no JSON."""
    with ModelServer(Say("In transit.", pieces=3, breaks=breaks, after=2)) as server:
        _, text, _ = post(server, GOOD | {"stream": True})
    lines = text.strip().split("\n\n")

    assert last in lines[-1]
    assert len(lines) == (2 if breaks == "end" else 3)
    assert "finish" not in lines[-1] or '"finish_reason": null' in lines[-1]


@pytest.mark.parametrize("breaks", ["end", "garbage"])
def test_a_body_ends_early_or_in_nonsense(breaks: Breaks) -> None:
    """An answer that is not streamed is no JSON then."""
    with (
        ModelServer(Say("In transit.", breaks=breaks)) as server,
        pytest.raises(json.JSONDecodeError),
    ):
        post(server, GOOD)


def test_a_stream_trickles() -> None:
    """Between two chunks the server waits; a client that goes away while it does is seen at once."""
    reply = Say("abcd", pieces=4, trickle=0.02)
    with ModelServer(reply, Say("abcd", pieces=4, trickle=60)) as server:
        began = time.monotonic()
        post(server, GOOD | {"stream": True})
        took = time.monotonic() - began
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
        connection.request("POST", CHAT, json.dumps(GOOD | {"stream": True}), headers)
        response = connection.getresponse()
        response.readline()
        response.close()
        connection.close()
        seen = server.wait_until(lambda server: len(server.requests) == 2 and server.requests[1].done)

    assert took >= 0.02 * 7
    assert seen
    assert server.disconnects == [server.requests[1]]


def test_nothing_is_left_when_it_closes() -> None:
    """A server that closes while an answer hangs, and while a connection idles, leaves no thread and no socket."""
    before = threading.active_count()
    with ModelServer(Say("x"), Say("y", breaks="hang", after=0)) as server:
        idle, hung = (http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(2))
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
        idle.request("POST", CHAT, json.dumps(GOOD), headers)
        idle.getresponse().read()
        hung.request("POST", CHAT, json.dumps(GOOD), headers)
        server.wait_until(lambda server: server.hanging == 1)
    idle.close()
    hung.close()
    gc.collect()

    assert threading.active_count() <= before  # threads of earlier tests may have ended meanwhile
    assert server.disconnects == []


# --- Anthropic -------------------------------------------------------------------------------------------------------

USE: Final[dict[str, Any]] = {"type": "tool_use", "id": "t1", "name": "track_parcel", "input": {}}
RESULT: Final = {"type": "tool_result", "tool_use_id": "t1", "content": "in transit"}
CLAUDE: Final[dict[str, Any]] = {
    "model": "small",
    "max_tokens": 100,
    "system": "Answer.",
    "messages": [
        USER,
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
        {"role": "user", "content": [RESULT]},
    ],
    "tools": [{"name": "track_parcel", "input_schema": {"type": "object", "properties": {}}}],
}


def using(*blocks: Any) -> dict[str, Any]:
    """A message of the assistant."""
    return {"role": "assistant", "content": list(blocks)}


def resulting(*blocks: Any) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": list(blocks)}


CLAUDE_VIOLATIONS: Final[dict[str, tuple[Change, str]]] = {
    "no model": (lambda body: body.pop("model"), "model: Field required"),
    "no tokens": (lambda body: body.pop("max_tokens"), "max_tokens: Field required"),
    "zero tokens": (saying(max_tokens=0), "greater than or equal to 1"),
    "unknown parameter": (saying(n=1), "Extra inputs"),
    "too hot": (saying(temperature=1.5), "temperature"),
    "unknown role": (message({"role": "system", "content": "x"}), "'user' or 'assistant'"),
    "unknown key of a message": (message(USER | {"name": "x"}), "Extra inputs"),
    "an assistant first": (message(using({"type": "text", "text": "x"})), "first message"),
    "empty messages": (message(), "empty array"),
    "empty content": (message({"role": "user", "content": ""}), "non-empty content"),
    "blank text": (message(resulting({"type": "text", "text": " "})), "non-whitespace"),
    "text that is none": (message(resulting({"type": "text", "text": 1})), "valid string"),
    "a blank result": (
        message(USER, using(USE), resulting(RESULT | {"content": [{"type": "text", "text": " "}]})),
        "non-whitespace",
    ),
    "a block that the role has not": (message(USER, using(RESULT)), "is no block"),
    "a call without its result": (message(USER, using(USE)), "without `tool_result` blocks"),
    "a user before the result": (message(USER, using(USE), USER, resulting(RESULT)), "without `tool_result`"),
    "a result without its call": (message(resulting(RESULT)), "unexpected `tool_use_id`"),
    "two results of one call": (message(USER, using(USE), resulting(RESULT, RESULT)), "unexpected `tool_use_id`"),
    "a text before the result": (
        message(USER, using(USE), resulting({"type": "text", "text": "x"}, RESULT)),
        "must come before",
    ),
    "one id twice": (message(USER, using(USE, USE), resulting(RESULT)), "must be unique"),
    "a bad id": (message(USER, using(USE | {"id": "a b"}), resulting(RESULT)), "match pattern"),
    "input that is a text": (message(USER, using(USE | {"input": "{}"}), resulting(RESULT)), "expected an object"),
    "a blank at the end": (message(USER, using({"type": "text", "text": "x "})), "trailing whitespace"),
    "a tool's name": (saying(tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "match pattern"),
    "equal names": (saying(tools=CLAUDE["tools"] * 2), "must be unique"),
    "a schema that is no object": (saying(tools=[{"name": "a", "input_schema": {"type": "string"}}]), "'object'"),
    "an unknown choice": (saying(tool_choice={"type": "tool", "name": "x"}), "Tool not found"),
}


@pytest.mark.parametrize("name", CLAUDE_VIOLATIONS)
def test_what_anthropic_refuses_is_refused(name: str, server: ModelServer) -> None:
    """Each of these requests is answered with an error in Anthropic's form, and remembered."""
    change, complaint = CLAUDE_VIOLATIONS[name]
    body = copy.deepcopy(CLAUDE)
    change(body)

    status, found, _ = post(server, body, MESSAGES)

    assert status == 400
    assert found["type"] == "error"
    assert found["error"]["type"] == "invalid_request_error"
    assert complaint in found["error"]["message"]
    assert len(server.violations) == 1


def test_anthropic_answers_whole_and_streamed() -> None:
    """Words and calls come back in Anthropic's form, and its stream tells the same in events with names."""
    reply = Calls(("track_parcel", {"order": "A-7"}), text="I look.", pieces=3)
    with ModelServer(reply, reply, rate_limited("1")) as server:
        _, whole, _ = post(server, CLAUDE, MESSAGES)
        _, text, _ = post(server, CLAUDE | {"stream": True}, MESSAGES)
        status, error, headers = post(server, CLAUDE, MESSAGES)
    events = [json.loads(part.partition("data: ")[2]) for part in text.strip().split("\n\n")]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]

    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert (whole["stop_reason"], whole["usage"]["output_tokens"]) == ("tool_use", 5)
    assert "".join(delta.get("text", "") for delta in deltas) == "I look."
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"order": "A-7"}
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert events[-2]["usage"] == {"output_tokens": 5}
    assert text.startswith("event: message_start\n")
    assert (status, error["error"]["type"], headers["retry-after"]) == (429, "rate_limit_error", "1")
    assert server.violations == []


def test_anthropic_wants_its_headers(server: ModelServer) -> None:
    """A wrong key, and no version, are refused."""
    wrong_key = post(server, CLAUDE, MESSAGES, Authorization="", **{"x-api-key": "x"})
    no_version = post(server, CLAUDE, MESSAGES, **{"anthropic-version": ""})
    good = [post(server, CLAUDE, MESSAGES, **{name: ""})[0] for name in ("Authorization", "x-api-key")]

    assert [wrong_key[0], no_version[0], *good] == [401, 400, 200, 200]
    assert wrong_key[1]["error"]["type"] == "authentication_error"
    assert "anthropic-version" in no_version[1]["error"]["message"]
