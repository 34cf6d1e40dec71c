"""A `ModelRequest` as pydantic-ai's messages and parameters, and its responses as a `ModelReply`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

from graphflow.errors import ModelError, ModelRefused
from graphflow.model.thread import ThreadMessage, ToolCall
from graphflow.nodes.client import CallPiece, ModelReply, ModelRequest
from graphflow.nodes.providers.prices import usage_of

if TYPE_CHECKING:
    from pydantic_ai import messages as said
    from pydantic_ai.models import ModelRequestParameters

NO_TOOL = "unknown"
"""The name of what a result answers, where the view does not hold the call."""

EMPTY = "(empty)"
"""What a model reads where a text is blank."""


def history_of(request: ModelRequest) -> list[said.ModelMessage]:
    """Return the messages of a request; neighbours that come from the same side are one message."""
    from pydantic_ai import messages as said

    names = {call.id: _tool_name(call.name) for message in request.messages for call in message.calls}
    made: list[said.ModelMessage] = []
    for message in request.messages:
        if message.role == "assistant":
            text = unicode(message.text)  # what is blank, and stands beside calls, would be refused
            spoken: list[said.ModelResponsePart] = [said.TextPart(text)] if text.strip() else []
            spoken += [
                said.ToolCallPart(_tool_name(call.name), _as_object(unicode(call.arguments)), unicode(call.id))
                for call in message.calls
            ]
            last = made[-1] if made else None
            if isinstance(last, said.ModelResponse):
                last.parts = [*last.parts, *spoken]
            elif spoken:
                made.append(said.ModelResponse(parts=spoken))
            continue
        heard = _heard(message, names)
        last = made[-1] if made else None
        if isinstance(last, said.ModelRequest):
            last.parts = [*last.parts, heard]
        else:
            made.append(said.ModelRequest(parts=[heard]))
    if not made or isinstance(made[0], said.ModelResponse):  # providers want the first word to be the user's
        made.insert(0, said.ModelRequest(parts=[said.UserPromptPart("(The beginning is not shown.)")]))
    for asked in made:
        if isinstance(asked, said.ModelRequest):
            asked.instructions = unicode(request.system) if request.system.strip() else None
    return made


def _heard(message: ThreadMessage, names: dict[str, str]) -> said.ModelRequestPart:
    from pydantic_ai import messages as said

    if message.role == "tool":
        return said.ToolReturnPart(
            names.get(message.answers, NO_TOOL), _not_blank(message.text), unicode(message.answers),
            outcome="failed" if message.failed else "success",
        )  # fmt: skip
    return said.UserPromptPart(_not_blank(message.text))


def _not_blank(text: str) -> str:
    """Return a text that can be sent: some providers refuse one that is blank.

    >>> _not_blank("In transit."), _not_blank(" ")
    ('In transit.', '(empty)')
    """
    return unicode(text) if text.strip() else EMPTY


def unicode(text: str) -> str:
    """Return a text that can be sent: half a surrogate pair is no Unicode, and becomes a question mark.

    >>> unicode("half " + chr(0xD800) + " of it")
    'half ? of it'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _tool_name(name: str) -> str:
    """Return a name that providers take: a model may have called something that no tool can be called."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or NO_TOOL


def _as_object(arguments: str) -> str:
    """Return arguments as a JSON object: what a model wrote may be no JSON at all, and some providers read it again.

    >>> _as_object('{"order": "A-7"}'), _as_object("[1e999]")
    ('{"order": "A-7"}', '{"not_an_object": "[1e999]"}')
    """
    try:
        found = from_json(arguments)  # as pydantic-ai reads it again, which is stricter than the standard library
        json.dumps(found, allow_nan=False)  # what is not finite cannot be sent
    except (ValueError, RecursionError):
        found = arguments
    return arguments if isinstance(found, dict) else json.dumps({"not_an_object": found})


def parameters_of(request: ModelRequest, *, schema_mode: str) -> ModelRequestParameters:
    """Return the tools of a request, and the schema of its answer.

    Args:
        request: what is asked.
        schema_mode: "native" where the provider takes a schema, "wrapped" where it takes one of an object alone and
            another is wanted, "prompted" where the model must be told in words.
    """
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=spec.name, description=spec.description, parameters_json_schema=one_type_each(spec.parameters)
        )
        for spec in request.tools
    ]
    schema = one_type_each(request.schema)
    if schema is None:
        return ModelRequestParameters(function_tools=tools)
    if schema_mode == "wrapped":
        schema = _wrapped(schema)
    mode: Any = "prompted" if schema_mode == "prompted" else "native"
    wanted = OutputObjectDefinition(json_schema=schema, name="answer")
    return ModelRequestParameters(
        function_tools=tools, output_mode=mode, output_object=wanted,
        prompted_output_template=None if mode == "native" else PROMPTED,
    )  # fmt: skip


DATA = frozenset({"const", "default", "enum", "examples"})
"""Where a schema holds values, and no schemas."""


def one_type_each(schema: Any) -> Any:
    """Return a schema whose parts have one type each: some providers' own packages read no lists of types.

    >>> one_type_each({"type": ["string", "null"], "description": "Why."})
    {'description': 'Why.', 'anyOf': [{'type': 'string'}, {'type': 'null'}]}
    """
    if isinstance(schema, list):
        return [one_type_each(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    made = {key: value if key in DATA else one_type_each(value) for key, value in table.items()}
    types: object = table.get("type")
    if isinstance(types, list) and "anyOf" not in table:
        del made["type"]
        made["anyOf"] = [{"type": kind} for kind in cast("list[str]", types)]
    return made


WRAPPER = "reply"
"""The one property of what a server writes that takes only schemas of objects, where another schema is wanted."""


def is_object(schema: Mapping[str, Any]) -> bool:
    """Tell whether a schema is one of an object, and says so in its own words: servers want that of the outermost."""
    return schema.get("type") == "object" and not {"anyOf", "oneOf", "allOf", "enum", "not"} & schema.keys()


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose one property has a schema."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    whole: dict[str, Any] = {
        "type": "object", "properties": {WRAPPER: inner}, "required": [WRAPPER], "additionalProperties": False,
    }  # fmt: skip
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole


def unwrapped(text: str) -> str:
    """Return what stands in the one property of a wrapped answer; an answer that is not wrapped as it is.

    >>> unwrapped('{"reply": {"reason": "All is known.", "answer": 7}}'), unwrapped('{"answer": 7}')
    ('{"reason": "All is known.", "answer": 7}', '{"answer": 7}')
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(found, dict) or set(cast("dict[str, Any]", found)) != {WRAPPER}:
        return text
    return json.dumps(found[WRAPPER], ensure_ascii=False)


PROMPTED = "When you answer, write one JSON object that fits this schema, and nothing else:\n\n{schema}"
"""How a model is told the schema of its answer, where its provider does not take one."""


def _as_written(arguments: object) -> str:
    """Return arguments as the model wrote them; what is no JSON is for the agent to judge."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments else ""


class Pieces:
    """Turns the events of a stream into the pieces that a listener hears."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._positions: dict[int, int] = {}  # of calls, by the number of the part

    def of(self, event: said.ModelResponseStreamEvent) -> Iterable[str | CallPiece]:
        """Return what an event brings."""
        from pydantic_ai import messages as said

        match event:
            case said.PartStartEvent(part=said.TextPart() as part):
                yield part.content
            case said.PartStartEvent(part=said.ToolCallPart() as part):
                position = self._positions.setdefault(event.index, len(self._positions))
                yield CallPiece(position, part.tool_name, _as_written(part.args))
            case said.PartDeltaEvent(delta=said.TextPartDelta() as delta):
                yield delta.content_delta
            case said.PartDeltaEvent(delta=said.ToolCallPartDelta() as delta):
                position = self._positions.setdefault(event.index, len(self._positions))
                yield CallPiece(position, delta.tool_name_delta or "", _as_written(delta.args_delta))
            case _:
                return


def reply_of(
    response: said.ModelResponse, request: ModelRequest, model: str, *, money: bool = True, wrapped: bool = False
) -> ModelReply:
    """Return a response as a reply.

    Args:
        response: what came.
        request: what was asked.
        model: the name of the model, for errors.
        money: whether what it cost can be told from the response.
        wrapped: whether its text was asked for as the one property of an object.

    Raises:
        ModelRefused: if the provider filtered the answer, or a part of it.
        ModelError: if the model wrote all tokens that it may, and nothing of it is an answer.
    """
    from pydantic_ai import messages as said

    text = "".join(part.content for part in response.parts if isinstance(part, said.TextPart))
    if wrapped:
        text = unwrapped(text)
    calls = tuple(
        ToolCall(part.tool_name, _as_written(part.args) or "{}", part.tool_call_id)
        for part in response.parts
        if isinstance(part, said.ToolCallPart)
    )
    if response.finish_reason == "content_filter":
        msg = f"{model}: the provider filtered the answer of {request.agent!r}."
        raise ModelRefused(msg)
    if response.finish_reason == "length" and not text.strip() and not calls:
        msg = (
            f"{model} wrote the {request.max_tokens:,} tokens that {request.agent!r} may write, and no answer: give it "
            f"more max_tokens=, or the run more of a budget."
        )
        raise ModelError(msg)
    return ModelReply(text, calls, usage_of(response, money=money))
