"""What a model's reply says, in either decision mode: its calls, or its answer."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from graphflow.events import EDITION, record
from graphflow.model.thread import ToolCall, shown
from graphflow.nodes.client import ModelReply
from graphflow.nodes.signatures import check_depth

ANSWER: Final = "answer"
"""What a model calls to answer, in the decision mode "json": one choice among calls comes easier to a small one."""


def answer_name(offered: Collection[str]) -> str:
    """Return what a model calls to answer: "answer", or another name where a tool is called so."""
    name = ANSWER
    while name in offered:
        name = f"final_{name}"
    return name


@record
class Decided:
    """What a model decided: calls, or an answer, or nothing that can be read (`problem` says why)."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    answer_json: str = ""  # an answer that came as JSON, whose text may be read as something else
    nothing: bool = False  # whether it neither calls nor answers, though it can be read


def read_reply(reply: ModelReply, *, native: bool, answer: str = ANSWER, edition: int = EDITION) -> Decided:
    """Read a reply in the mode in which it was asked for.

    In the mode "json" the call named by `answer` answers; `{"reason": ..., "answer": ...}` does too: models were asked
    for that once, and some write it all the same. One that calls nothing and does not answer is a thought: in a run of
    edition 0 it was taken for the answer.
    """
    if native or reply.calls:
        return Decided(reply.text, reply.calls)
    if not reply.text.strip():
        return Decided()
    try:
        check_depth(reply.text)
        found = json.loads(unfenced(reply.text))
    except ValueError as error:
        return Decided(reply.text, problem=f"it is no JSON ({error})")
    if not isinstance(found, dict):
        return Decided(reply.text, problem="it is no JSON object")
    table = cast("dict[str, Any]", found)
    if table.get("calls") == [] and edition:
        if "answer" not in table:
            return Decided(reply.text, problem=f"its 'calls' are empty: call a tool, or {answer}", nothing=True)
        return _answering(table["answer"])
    if "calls" in table:
        return _read_calls(table, reply.text, answer)
    if "answer" in table:
        return _answering(table["answer"])
    return Decided(reply.text, problem="it has neither 'calls' nor 'answer'")


def _answering(said: object) -> Decided:
    written = json.dumps(said, ensure_ascii=False)
    return Decided(said if isinstance(said, str) else written, answer_json=written)


def _read_calls(table: Mapping[str, Any], text: str, answer: str) -> Decided:
    calls: list[ToolCall] = []
    said: list[Any] = []
    given = table["calls"]
    for item in cast("list[Any]", given) if isinstance(given, list) else [None]:
        if not isinstance(item, dict) or not isinstance(cast("dict[str, Any]", item).get("tool"), str):
            return Decided(text, problem="'calls' is no list of objects with 'tool' and 'arguments'")
        call = cast("dict[str, Any]", item)
        if call["tool"] == answer:
            said.append(call.get("arguments", {}))
        else:
            calls.append(ToolCall(call["tool"], json.dumps(call.get("arguments", {}), ensure_ascii=False)))
    if said and not calls:  # with other calls it came too early: they are to be heard first
        if not isinstance(said[-1], dict) or "answer" not in said[-1]:
            return Decided(text, problem=f'the arguments of {answer} are not {{"answer": ...}}')
        return _answering(cast("dict[str, Any]", said[-1])["answer"])
    reason = table.get("reason", "")
    return Decided(reason if isinstance(reason, str) else shown(reason), tuple(calls))


def unfenced(text: str) -> str:
    """Take JSON out of the code fence that many models put around it."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        return bare.partition("\n")[2].removesuffix("```").strip()
    return bare
