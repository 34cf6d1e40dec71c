"""What the OpenAI chat-completions API refuses, as rules over the body of a request.

They are at least as strict as the API: a request that passes here passes there.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

Table = dict[str, Any]


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
ROLES: Final = ("developer", "system", "user", "assistant", "tool")
KNOWN: Final = words(
    "model messages tools tool_choice parallel_tool_calls response_format stream stream_options max_tokens "
    "max_completion_tokens temperature top_p n stop seed user store metadata logprobs top_logprobs logit_bias "
    "frequency_penalty presence_penalty reasoning_effort service_tier modalities prediction verbosity "
    "safety_identifier prompt_cache_key prompt_cache_retention web_search_options audio"
)
OF_A_MESSAGE: Final[Mapping[str, frozenset[str]]] = {
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal", "audio"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}
MOST_TOOLS: Final = 128
LONGEST_TEXT: Final = 1024  # of what a tool does
DEEPEST: Final = 10  # of a strict schema

# The keywords that a strict schema may have; all others are refused by name.
STRICT: Final = words(
    "type properties required additionalProperties items enum const anyOf $ref $defs definitions description title "
    "pattern format multipleOf maximum exclusiveMaximum minimum exclusiveMinimum minItems maxItems "
    "minLength maxLength $schema"
)


class Refused(Exception):
    """A request that the API refuses.

    Attributes:
        status: the HTTP status.
        text: the message.
        param: the place in the request, or None.
        code: a word for programs, or None.
    """

    def __init__(self, text: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        self.status, self.text, self.param, self.code = status, text, param, code
        super().__init__(text)


def table(value: object, where: str) -> Table:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise Refused(f"Invalid type for '{where}': expected an object, but got {value!r} instead.", where)
    return cast("Table", value)


def rows(value: object, where: str, *, least: int = 1) -> list[Any]:
    """Return a JSON array that is long enough."""
    if not isinstance(value, list):
        raise Refused(f"Invalid type for '{where}': expected an array, but got {value!r} instead.", where)
    found = cast("list[Any]", value)
    if len(found) < least:
        raise Refused(f"Invalid '{where}': empty array. Expected an array with minimum length {least}.", where)
    return found


def text_of(value: object, where: str, *, empty: bool = False) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise Refused(f"Invalid type for '{where}': expected a string, but got {value!r} instead.", where)
    if not value and not empty:
        raise Refused(f"Invalid '{where}': empty string.", where)
    return value


def check(body: object) -> None:
    """Check the body of a request.

    Raises:
        Refused: for the first thing that the API would refuse.
    """
    request = table(body, "body")
    if not request.get("model"):
        raise Refused("you must provide a model parameter")
    text_of(request["model"], "model")
    for key in request:
        if key not in KNOWN:
            raise Refused(f"Unrecognized request argument supplied: {key}", key)
    if "messages" not in request:
        raise Refused("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    _check_numbers(request)
    _check_messages(rows(request["messages"], "messages"))
    _check_tools(request)
    if request.get("response_format") is not None:
        _check_format(table(request["response_format"], "response_format"), request)
    for key in ("stream", "store", "logprobs", "parallel_tool_calls"):
        if not isinstance(request.get(key, False), bool | None):
            raise Refused(f"Invalid type for '{key}': expected a boolean.", key)
    if request.get("stream_options") is not None and not request.get("stream"):
        raise Refused("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")


# --- numbers ---------------------------------------------------------------------------------------------------------


def _check_numbers(request: Table) -> None:
    for key in ("max_tokens", "max_completion_tokens", "n"):
        count = request.get(key)
        if count is not None and (type(count) is not int or count < 1):
            raise Refused(f"Invalid '{key}': a positive integer is needed, not {count!r}.", key, "invalid_value")
    if request.get("max_tokens") is not None and request.get("max_completion_tokens") is not None:
        raise Refused("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    if re.match(r"o\d|gpt-5", request["model"]) and request.get("max_tokens") is not None:
        text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
        raise Refused(text, "max_tokens", "unsupported_parameter")
    for key, least, most in (
        ("temperature", 0, 2), ("top_p", 0, 1), ("frequency_penalty", -2, 2), ("presence_penalty", -2, 2)
    ):  # fmt: skip
        number = request.get(key)
        if number is not None and (type(number) not in {int, float} or not least <= number <= most):
            raise Refused(f"Invalid '{key}': a number from {least} to {most} is needed, not {number!r}.", key)
    if type(request.get("seed", 0)) not in {int, type(None)}:
        raise Refused("Invalid type for 'seed': expected an integer.", "seed")


# --- messages --------------------------------------------------------------------------------------------------------


def _check_messages(messages: Sequence[Any]) -> None:
    taken: set[str] = set()
    open_calls: list[str] = []  # of the last assistant message, and not answered yet
    for number, item in enumerate(messages):
        where = f"messages[{number}]"
        message = table(item, where)
        role = message.get("role")
        if role not in ROLES:
            known = ", ".join(f"'{known}'" for known in ROLES)
            text = f"Invalid value: {role!r}. Supported values are: {known}."
            raise Refused(text, f"{where}.role", "invalid_value")
        for key in message:
            if key not in OF_A_MESSAGE.get(role, {"role", "content", "name"}):
                raise Refused(f"Unknown parameter: '{where}.{key}'.", f"{where}.{key}", "unknown_parameter")
        if role == "tool":
            _check_answer(message, where, open_calls)
            continue
        _check_answered(open_calls, where)
        if role == "assistant" and message.get("tool_calls") is not None:
            open_calls = _check_calls(message, where, taken)
        _check_content(message, where, role)
    _check_answered(open_calls, f"messages[{len(messages)}]")


def _check_answer(message: Table, where: str, open_calls: list[str]) -> None:
    ident = message.get("tool_call_id")
    if not isinstance(ident, str):
        raise Refused(f"Missing required parameter: '{where}.tool_call_id'.", f"{where}.tool_call_id")
    if ident not in open_calls:
        text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise Refused(f"Invalid parameter: {text} (tool_call_id {ident!r})", f"{where}.role")
    open_calls.remove(ident)
    _check_content(message, where, "tool")


def _check_answered(open_calls: Sequence[str], where: str) -> None:
    if open_calls:
        text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        missing = ", ".join(open_calls)
        raise Refused(f"{text} 'tool_call_id'. The following did not have response messages: {missing}", where)


def _check_calls(message: Table, where: str, taken: set[str]) -> list[str]:
    made: list[str] = []
    for number, item in enumerate(rows(message["tool_calls"], f"{where}.tool_calls")):
        place = f"{where}.tool_calls[{number}]"
        call = table(item, place)
        if call.get("type") != "function":
            raise Refused(f"Invalid value: {call.get('type')!r}. Supported values are: 'function'.", f"{place}.type")
        ident = text_of(call.get("id"), f"{place}.id")
        if ident in taken:
            raise Refused(f"Duplicate value for 'tool_call_id' of '{ident}'", f"{place}.id")
        taken.add(ident)
        made.append(ident)
        function = table(call.get("function"), f"{place}.function")
        _check_name(function.get("name"), f"{place}.function.name")
        text_of(function.get("arguments"), f"{place}.function.arguments", empty=True)
    return made


def _check_content(message: Table, where: str, role: str) -> None:
    content, place = message.get("content"), f"{where}.content"
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal") or message.get("audio")):
            return
        raise Refused(f"Invalid value for 'content': expected a string, got null. ({where})", place)
    if isinstance(content, str):
        return
    for number, item in enumerate(rows(content, place)):
        part = table(item, f"{place}[{number}]")
        kind = part.get("type")
        if kind not in PARTS.get(role, ("text",)):
            raise Refused(f"Invalid value: {kind!r} is no part of a message of {role!r}.", f"{place}[{number}].type")
        if kind == "text":
            text_of(part.get("text"), f"{place}[{number}].text", empty=True)


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str) or not NAME.match(name):
        text = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]{1,64}$'."
        raise Refused(f"Invalid '{where}': {text}", where, "invalid_value")
    return name


# --- tools -----------------------------------------------------------------------------------------------------------


def _check_tools(request: Table) -> None:
    names: list[str] = []
    if request.get("tools") is not None:
        tools = rows(request["tools"], "tools")
        if len(tools) > MOST_TOOLS:
            raise Refused(f"Invalid 'tools': array too long. Expected at most {MOST_TOOLS}.", "tools")
        for number, item in enumerate(tools):
            name = _check_tool(table(item, f"tools[{number}]"), f"tools[{number}]")
            if name in names:
                raise Refused(f"Tool names must be unique: {name!r} stands twice.", f"tools[{number}].function.name")
            names.append(name)
    for key in ("tool_choice", "parallel_tool_calls"):
        if request.get(key) is not None and not names:
            raise Refused(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", key)
    choice = request.get("tool_choice", "auto")
    if isinstance(choice, dict):
        function = table(cast("Table", choice).get("function"), "tool_choice.function")
        choice = "auto" if function.get("name") in names else function.get("name")
    if choice not in {"none", "auto", "required", None}:
        raise Refused(f"Invalid value for 'tool_choice': {choice!r}.", "tool_choice")


def _check_tool(tool: Table, where: str) -> str:
    if tool.get("type") != "function":
        raise Refused(f"Invalid value: {tool.get('type')!r}. Supported values are: 'function'.", f"{where}.type")
    function = table(tool.get("function"), f"{where}.function")
    name = _check_name(function.get("name"), f"{where}.function.name")
    said = text_of(function.get("description", ""), f"{where}.function.description", empty=True)
    if len(said) > LONGEST_TEXT:
        text = f"string too long. Expected a string with maximum length {LONGEST_TEXT}, got one of {len(said)}."
        raise Refused(f"Invalid '{where}.function.description': {text}", f"{where}.function.description")
    if "parameters" in function:
        schema = function["parameters"]
        _check_object(schema, f"function '{name}'", f"{where}.function.parameters")
        if function.get("strict"):
            _check_strict(schema, f"function '{name}'", f"{where}.function.parameters")
    return name


# --- schemas ---------------------------------------------------------------------------------------------------------


def _check_format(given: Table, request: Table) -> None:
    kind = given.get("type")
    if kind not in {"text", "json_object", "json_schema"}:
        raise Refused(f"Invalid value: {kind!r} is no response format.", "response_format.type")
    if kind == "json_object" and "json" not in json.dumps(request["messages"]).lower():
        text = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        raise Refused(text, "messages")
    if kind == "json_schema":
        asked = table(given.get("json_schema"), "response_format.json_schema")
        name = _check_name(asked.get("name"), "response_format.json_schema.name")
        where = "response_format.json_schema.schema"
        if asked.get("strict"):
            _check_strict(table(asked.get("schema"), where), f"response_format '{name}'", where)
        _check_object(asked.get("schema"), f"response_format '{name}'", where)


def _check_object(schema: object, what: str, where: str) -> None:
    """Check what holds for every schema: it is one of an object, and complete."""
    top = cast("Table", schema) if isinstance(schema, dict) else {}
    if top.get("type") != "object" or {"anyOf", "oneOf", "allOf", "enum", "not"} & top.keys():
        text = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        raise _bad_schema(what, text, where)
    if "properties" not in top:
        raise _bad_schema(what, "In context=(), object schema missing properties.", where)
    for part, path in parts_of(top):
        if part.get("type") == "array" and "items" not in part:
            raise _bad_schema(what, f"In context={path!r}, array schema missing items.", where)


def _check_strict(schema: Table, what: str, where: str) -> None:
    for part, path in parts_of(schema):
        at = f"In context={path!r}"
        if unknown := sorted(part.keys() - STRICT):
            raise _bad_schema(what, f"{at}, {', '.join(map(repr, unknown))} is not permitted.", where)
        if "$ref" in part:
            if len(part) > 1:
                raise _bad_schema(what, f"{at}, $ref cannot have keywords {sorted(part.keys() - {'$ref'})}.", where)
            continue
        if not {"type", "anyOf"} & part.keys():
            raise _bad_schema(what, f"{at}, schema must have a 'type' key.", where)
        kinds = part.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
            if part.get("additionalProperties") is not False:
                raise _bad_schema(what, f"{at}, 'additionalProperties' is required to be supplied and false.", where)
            if set(part.get("required", ())) != set(part.get("properties", {})):
                text = f"{at}, 'required' is required to be an array including every key in properties."
                raise _bad_schema(what, text, where)
        if sum(step == "properties" for step in path) > DEEPEST:
            raise _bad_schema(what, f"{at}, the schema is nested more than {DEEPEST} levels deep.", where)


def parts_of(schema: Table, path: tuple[str, ...] = ()) -> Iterator[tuple[Table, tuple[str, ...]]]:
    """Yield a schema and every schema in it, with its place."""
    yield schema, path
    for key in ("properties", "$defs", "definitions"):
        for name, part in cast("Table", schema.get(key) or {}).items():
            if isinstance(part, dict):
                yield from parts_of(cast("Table", part), (*path, key, name))
    if isinstance(schema.get("items"), dict):
        yield from parts_of(schema["items"], (*path, "items"))
    for key in ("anyOf", "oneOf", "allOf"):
        for number, part in enumerate(schema.get(key) or ()):
            if isinstance(part, dict):
                yield from parts_of(cast("Table", part), (*path, key, str(number)))


def _bad_schema(what: str, text: str, where: str) -> Refused:
    return Refused(f"Invalid schema for {what}: {text}", where, "invalid_function_parameters")
