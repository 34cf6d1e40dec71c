"""What a model's server says, and how it stands in the protocols of OpenAI and of Anthropic.

A `Say` or a `Calls` is a good answer, or one that breaks on the way (`breaks=`). An `Error` is an error of HTTP, a
`Raw` any body at all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Table: TypeAlias = dict[str, Any]

Breaks: TypeAlias = Literal["", "hang", "cut", "end", "garbage"]
"""How an answer breaks: it hangs, its connection is cut, it ends early but in order, or it goes on with nonsense."""

CREATED: Final = 1_700_000_000
GARBAGE: Final = '{"choices": [{"delta": {'


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """How something is said.

    Attributes:
        usage: the tokens read and written; None leaves usage out.
        finish: why it ended, in OpenAI's words; "" for "stop" or "tool_calls".
        pieces: in how many deltas a text, and the arguments of each call, are streamed.
        interleaved: whether the deltas of several calls come in turns; by default call by call.
        trickle: the seconds between two chunks of a stream.
        breaks: how it breaks.
        after: for what breaks: how many chunks of a stream come before that; 0 is before the headers where it hangs.
            An answer that is not streamed breaks in the middle of its body where this is not 0.
    """

    usage: tuple[int, int] | None = (10, 5)
    finish: str = ""
    pieces: int = 1
    interleaved: bool = False
    trickle: float = 0.0
    breaks: Breaks = ""
    after: int = 1


@dataclass(frozen=True, slots=True)
class Say(Manner):
    """An answer in words; "" is an empty answer.

    Attributes:
        text: the words.
        refusal: whether they say why the model refuses.
    """

    text: str
    refusal: bool = False


@dataclass(frozen=True, slots=True, init=False)
class Calls(Manner):
    """An answer that calls tools: `Calls(("track_parcel", {"order": "A-7"}))`.

    Attributes:
        calls: names and arguments; arguments that are a text go out as they are, and need be no JSON.
        text: what is said beside them.
    """

    calls: tuple[tuple[str, str], ...]
    text: str

    def __init__(self, *calls: tuple[str, Mapping[str, Any] | str], text: str = "", **manner: Any) -> None:
        made = tuple((name, given if isinstance(given, str) else json.dumps(given)) for name, given in calls)
        Manner.__init__(self, **manner)
        object.__setattr__(self, "calls", made)
        object.__setattr__(self, "text", text)


@dataclass(frozen=True, slots=True)
class Error:
    """An error of HTTP, in the form that the protocol has for errors.

    Attributes:
        status: the HTTP status.
        text: the message.
        code: a word for programs, or None.
        headers: further headers, such as Retry-After.
    """

    status: int
    text: str = "The server had an error while processing your request."
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Raw:
    """Any body at all.

    Attributes:
        body: the bytes.
        status: the HTTP status.
        kind: the content type.
    """

    body: bytes
    status: int = 200
    kind: str = "application/json"


Reply: TypeAlias = Say | Calls | Error | Raw


def rate_limited(retry_after: str | None = None) -> Error:
    """Say that there were too many requests; `retry_after` is in seconds, or a date of HTTP."""
    headers = () if retry_after is None else (("Retry-After", retry_after),)
    return Error(429, "Rate limit reached for requests.", "rate_limit_exceeded", headers)


def too_long() -> Error:
    """Say that the request is longer than the model reads."""
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    return Error(400, text, "context_length_exceeded")


def pieces_of(text: str, count: int) -> list[str]:
    """Cut a text into about so many pieces."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def openai_error(status: int, text: str, param: str | None = None, code: str | None = None) -> Table:
    """Return an error as OpenAI writes it."""
    kinds = {401: "invalid_request_error", 429: "requests", 500: "server_error", 503: "service_unavailable"}
    kind = kinds.get(status, "invalid_request_error")
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def openai_whole(reply: Say | Calls, ident: str, model: str) -> Table:
    """Return an answer as OpenAI writes it when it does not stream."""
    message: Table = {"role": "assistant", "content": reply.text, "refusal": None, "annotations": []}
    if isinstance(reply, Say) and reply.refusal:
        message |= {"content": None, "refusal": reply.text}
    if isinstance(reply, Calls):
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {"id": f"call_{ident}_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(reply.calls)
        ]
    made: Table = {
        "id": f"chatcmpl-{ident}",
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}],
        "service_tier": "default",
        "system_fingerprint": None,
    }
    return made if reply.usage is None else made | {"usage": _openai_usage(*reply.usage)}


def openai_chunks(reply: Say | Calls, ident: str, model: str, *, usage: bool) -> Iterator[str]:
    """Yield the events of an answer as OpenAI streams it, "[DONE]" at last."""
    deltas = [{"role": "assistant", "content": None if isinstance(reply, Calls) and not reply.text else ""}]
    key = "refusal" if isinstance(reply, Say) and reply.refusal else "content"
    deltas += [{key: piece} for piece in pieces_of(reply.text, reply.pieces)]
    head: Table = {
        "id": f"chatcmpl-{ident}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": None,
    }
    none: Table = {"usage": None} if usage else {}
    made: list[Table] = [*deltas, *_call_deltas(reply, ident)]
    for delta in made:
        yield json.dumps(head | {"choices": [_choice(delta, None)]} | none)
    yield json.dumps(head | {"choices": [_choice({}, _finish(reply))]} | none)
    if usage and reply.usage is not None:
        yield json.dumps(head | {"choices": [], "usage": _openai_usage(*reply.usage)})
    yield "[DONE]"


def _call_deltas(reply: Say | Calls, ident: str) -> list[Table]:
    if isinstance(reply, Say):
        return []
    lanes: list[list[Table]] = []
    for place, (name, arguments) in enumerate(reply.calls):
        head: Table = {"id": f"call_{ident}_{place}", "type": "function", "function": {"name": name, "arguments": ""}}
        rest: list[Table] = [{"function": {"arguments": piece}} for piece in pieces_of(arguments, reply.pieces)]
        lanes.append([{"tool_calls": [{"index": place, **part}]} for part in [head, *rest]])
    return in_turns(lanes) if reply.interleaved else [part for lane in lanes for part in lane]


def in_turns(lanes: Sequence[Sequence[Table]]) -> list[Table]:
    """Take one of each lane, and again, until all are empty."""
    longest = max(map(len, lanes), default=0)
    return [lane[place] for place in range(longest) for lane in lanes if place < len(lane)]


def _choice(delta: Table, finish: str | None) -> Table:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(reply: Say | Calls) -> str:
    return reply.finish or ("tool_calls" if isinstance(reply, Calls) else "stop")


def _openai_usage(read: int, written: int) -> Table:
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


# --- Anthropic -------------------------------------------------------------------------------------------------------

STOPS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def anthropic_error(status: int, text: str) -> Table:
    """Return an error as Anthropic writes it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": None}


def anthropic_whole(reply: Say | Calls, ident: str, model: str) -> Table:
    """Return an answer as Anthropic writes it when it does not stream."""
    content: list[Table] = [{"type": "text", "text": reply.text}] if reply.text else []
    if isinstance(reply, Calls):
        content += [
            {"type": "tool_use", "id": f"toolu_{ident}_{place}", "name": name, "input": json.loads(arguments)}
            for place, (name, arguments) in enumerate(reply.calls)
        ]
    read, written = reply.usage or (0, 0)
    return {
        "id": f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": STOPS[_finish(reply)],
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def anthropic_events(reply: Say | Calls, ident: str, model: str) -> Iterator[Table]:
    """Yield the events of an answer as Anthropic streams it; the type of each is its name."""
    read, written = reply.usage or (0, 0)
    start: Table = {
        "id": f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": start}
    blocks: list[tuple[Table, list[Table]]] = []
    if reply.text:
        parts = [{"type": "text_delta", "text": piece} for piece in pieces_of(reply.text, reply.pieces)]
        blocks.append(({"type": "text", "text": ""}, parts))
    for place, (name, arguments) in enumerate(reply.calls if isinstance(reply, Calls) else ()):
        parts = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(arguments, reply.pieces)]
        blocks.append(({"type": "tool_use", "id": f"toolu_{ident}_{place}", "name": name, "input": {}}, parts))
    for index, (block, parts) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "ping"}
        yield from ({"type": "content_block_delta", "index": index, "delta": part} for part in parts)
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": STOPS[_finish(reply)], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": written}}
    yield {"type": "message_stop"}
