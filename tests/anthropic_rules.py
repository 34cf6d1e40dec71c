"""What Anthropic's Messages API refuses, as rules over the body of a request; at least as strict as the API."""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from tests.openai_rules import Refused, Table, rows, table, text_of, words

TOOL: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
IDENT: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
KNOWN: Final = words(
    "model max_tokens messages system tools tool_choice stream temperature top_p top_k stop_sequences metadata "
    "thinking service_tier output_config output_format cache_control container context_management mcp_servers"
)
BLOCKS: Final = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def check(body: object) -> None:
    """Check the body of a request.

    Raises:
        Refused: for the first thing that the API would refuse.
    """
    request = table(body, "body")
    for key in ("model", "max_tokens", "messages"):
        if key not in request:
            raise Refused(f"{key}: Field required")
    text_of(request["model"], "model")
    for key in request:
        if key not in KNOWN:
            raise Refused(f"{key}: Extra inputs are not permitted")
    if type(request["max_tokens"]) is not int or request["max_tokens"] < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    number = request.get("temperature", 1)
    if type(number) not in {int, float} or not 0 <= number <= 1:
        raise Refused("temperature: range: 0..1")
    _check_tools(request)
    if isinstance(request.get("system", ""), list):
        for block in rows(request["system"], "system"):
            _check_text(table(block, "system"), "system")
    else:
        text_of(request.get("system", ""), "system", empty=True)
    _check_messages(rows(request["messages"], "messages"))


def _check_tools(request: Table) -> None:
    names: set[str] = set()
    for number, item in enumerate(rows(request.get("tools", []), "tools", least=0)):
        tool = table(item, f"tools.{number}")
        name = text_of(tool.get("name"), f"tools.{number}.name")
        if not TOOL.match(name):
            raise Refused(f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
        schema = table(tool.get("input_schema"), f"tools.{number}.input_schema")
        if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf"} & schema.keys():
            text = "input_schema does not support oneOf, allOf, or anyOf at the top level, and its type is 'object'"
            raise Refused(f"tools.{number}.custom.input_schema: {text}")
    if request.get("tool_choice") is not None:
        choice = table(request["tool_choice"], "tool_choice")
        if not names or (choice.get("type") == "tool" and choice.get("name") not in names):
            raise Refused("tool_choice: Tool not found in provided tools")


def _check_messages(messages: Sequence[Any]) -> None:
    taken: set[str] = set()
    asked: list[str] = []  # by the last message, and to be answered by this one
    for number, item in enumerate(messages):
        where = f"messages.{number}"
        message = table(item, where)
        role = message.get("role")
        if role not in BLOCKS:
            raise Refused(f"{where}.role: Input should be 'user' or 'assistant'")
        if extra := message.keys() - {"role", "content"}:
            raise Refused(f"{where}.{min(extra)}: Extra inputs are not permitted")
        if number == 0 and role != "user":
            raise Refused('messages: first message must use the "user" role')
        blocks = _blocks(message.get("content"), where)
        answered = _check_blocks(blocks, where, role, asked)
        if missing := [ident for ident in asked if ident not in answered]:
            text = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}"
            raise Refused(f"messages.{number - 1}: {text}")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if taken & set(asked) or len(set(asked)) < len(asked):
            raise Refused("messages: `tool_use` ids must be unique")
        taken.update(asked)
    if asked:
        text = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(asked)}"
        raise Refused(f"messages.{len(messages) - 1}: {text}")
    last = _blocks(messages[-1]["content"], "messages")[-1]
    if messages[-1]["role"] == "assistant" and last.get("text", "").rstrip() != last.get("text", ""):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _blocks(content: object, where: str) -> list[Table]:
    if isinstance(content, str):
        if not content:
            raise Refused(f"{where}: all messages must have non-empty content")
        return [{"type": "text", "text": content}]
    return [table(block, f"{where}.content") for block in rows(content, f"{where}.content")]


def _check_blocks(blocks: Sequence[Table], where: str, role: str, asked: Sequence[str]) -> set[str]:
    answered: set[str] = set()
    results_may_come = True
    for place, block in enumerate(blocks):
        at, kind = f"{where}.content.{place}", block.get("type")
        if kind not in BLOCKS[role]:
            raise Refused(f"{at}: {kind!r} is no block of a message of {role!r}")
        if kind == "text":
            _check_text(block, at)
        elif kind == "tool_use":
            _check_use(block, at)
        elif kind == "tool_result":
            ident = text_of(block.get("tool_use_id"), f"{at}.tool_use_id")
            if ident not in asked or ident in answered:
                raise Refused(f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {ident}")
            if not results_may_come:
                raise Refused(f"{at}: `tool_result` blocks must come before other content")
            for part in _parts(block, at):
                if part.get("type") == "text":
                    _check_text(part, f"{at}.content")
            answered.add(ident)
        results_may_come = results_may_come and kind == "tool_result"
    return answered


def _parts(result: Table, at: str) -> list[Table]:
    content = result.get("content", "")
    if isinstance(content, str):
        return []
    return [table(part, f"{at}.content") for part in rows(content, f"{at}.content", least=0)]


def _check_text(block: Table, at: str) -> None:
    if not isinstance(block.get("text"), str):
        raise Refused(f"{at}.text: Input should be a valid string")
    if not cast("str", block["text"]).strip():
        raise Refused(f"{at}: text content blocks must contain non-whitespace text")


def _check_use(block: Table, at: str) -> None:
    ident = text_of(block.get("id"), f"{at}.id")
    if not IDENT.match(ident):
        raise Refused(f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    text_of(block.get("name"), f"{at}.name")
    table(block.get("input"), f"{at}.input")
