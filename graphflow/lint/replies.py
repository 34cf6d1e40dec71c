"""What a model's reply says: its reason, its calls, its answer, in either decision mode."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from graphflow.nodes.client import ModelReply

Given = Mapping[str, Any]


class Said(NamedTuple):
    """A reply: the text beside its calls or its answer, its calls, and an answer that is JSON as data."""

    text: str
    calls: tuple[tuple[str, Given], ...] = ()
    value: Any = None


class Asking(NamedTuple):
    """What is about to be asked of whom."""

    to: str
    brief: Given


def read(reply: ModelReply, *, native: bool, offered: Collection[str] = ()) -> Said:
    """Read a reply, whatever stands in it.

    Args:
        reply: the reply.
        native: whether the model was offered tools to call; else its text says what to call.
        offered: the names of all that the agent may call.
    """
    if reply.calls:
        return Said(reply.text, tuple((call.name, _table(_loaded(call.arguments))) for call in reply.calls))
    found = _loaded(_unfenced(reply.text))
    if native or not offered or not isinstance(found, dict):
        return Said(reply.text, value=found)
    table = cast("dict[str, Any]", found)
    calls = table.get("calls")
    if isinstance(calls, list):
        made = [_table(call) for call in cast("list[object]", calls)]
        named = [(str(call.get("tool")), _table(call.get("arguments"))) for call in made]
        last = _answer_name(offered)
        others = tuple(call for call in named if call[0] != last)
        if others or not named:
            reason = table.get("reason")
            return Said(reason if isinstance(reason, str) else "", others)
        table = dict(named[-1][1])
    answer = table.get("answer", found)
    if isinstance(answer, str):
        return Said(answer, value=_loaded(answer))
    return Said(json.dumps(answer, ensure_ascii=False), value=answer)


def _answer_name(offered: Collection[str]) -> str:
    """Return what a model calls to answer where its text says what to call: another name if a tool is called so."""
    name = "answer"
    while name in offered:
        name = f"final_{name}"
    return name


def asking_of(outcome: object) -> list[Asking]:
    """Return what a function's `Delegate` asks, also of one that was read back as plain data."""
    calls = _field(outcome, "calls")
    found = cast("Iterable[object]", calls) if isinstance(calls, (tuple, list)) else ()
    return [Asking(str(_field(call, "to")), _brief(_field(call, "brief"))) for call in found]


def _brief(brief: object) -> Given:
    if isinstance(brief, BaseModel):
        return {name: getattr(brief, name) for name in type(brief).model_fields}
    return {"objective": brief} if isinstance(brief, str) else _table(brief)


def _field(value: object, name: str) -> object:
    return cast("Given", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _table(value: object) -> Given:
    return cast("Given", value) if isinstance(value, Mapping) else {}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unfenced(text: str) -> str:
    """Take JSON out of the code fence that many models put around it."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        return bare.partition("\n")[2].removesuffix("```").strip()
    return bare
