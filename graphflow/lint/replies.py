"""What a model's reply says: its reason, its calls, its answer, in either decision mode."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from graphflow.model.outcome import Done, Handoff, Pause, Update
from graphflow.nodes.client import ModelReply
from graphflow.nodes.replies import answer_name, read_reply, unfenced

Given = Mapping[str, Any]


class Said(NamedTuple):
    """A reply: the text beside its calls or its answer, its calls, and an answer that is JSON as data."""

    text: str
    calls: tuple[tuple[str, Given], ...] = ()
    value: Any = None


def read(reply: ModelReply, *, native: bool, offered: Collection[str] = ()) -> Said:
    """Read a reply, whatever stands in it.

    Args:
        reply: the reply.
        native: whether the model was offered tools to call; else its text says what to call.
        offered: the names of all that the agent may call.
    """
    decided = read_reply(reply, native=native or not offered, answer=answer_name(offered))
    if decided.calls:
        return Said(decided.text, tuple((call.name, _table(_loaded(call.arguments))) for call in decided.calls))
    return Said(decided.text, value=_loaded(unfenced(decided.answer_json or decided.text)))


def as_outcome(outcome: object, fields: Collection[str]) -> object:
    """Return an outcome, also of one that was read back as a table since it holds a value of the user's.

    Args:
        outcome: what a body returned.
        fields: those of the context; a table with such names alone is an update.

    >>> as_outcome({"output": "Paid twice.", "update": None}, ())
    Done(output='Paid twice.', update=None)
    """
    if not isinstance(outcome, Mapping):
        return outcome
    table = cast("Given", outcome)
    names, changed = set(table), table.get("update")
    update = Update(**cast("Given", changed)) if isinstance(changed, Mapping) else None
    if names == {"output", "update"}:
        return Done(table["output"], update=update)
    if names == {"to", "note", "update"} and isinstance(table["to"], str) and table["to"]:
        return Handoff(table["to"], table["note"], update=update)
    if names == {"question", "schema", "update"} and isinstance(table["question"], str) and table["question"]:
        return Pause(table["question"], update=update)
    return Update(**table) if names and names.issubset(fields) else table


def _table(value: object) -> Given:
    return cast("Given", value) if isinstance(value, Mapping) else {}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
