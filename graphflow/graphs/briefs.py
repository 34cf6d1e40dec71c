"""What was asked of whom in a turn, as events tell it, and which frame of a callee belongs to which of the calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel

from graphflow.model.thread import ToolCall
from graphflow.nodes.agent import ASK, generated_names
from graphflow.nodes.client import ModelReply
from graphflow.nodes.replies import read_reply

Given = Mapping[str, Any]

NEEDED: Final = "objective"
"""The field that every brief has; a call without it starts nobody, unless a class of the user's has a default."""


class Asking(NamedTuple):
    """What is about to be asked of whom.

    Attributes:
        to: the callee, or the tool that stands for it.
        brief: the fields of the brief.
        place: where the call stands among all calls of its turn.
    """

    to: str
    brief: Given
    place: int = 0


@dataclass(slots=True)
class Askings:
    """The delegations of one turn, and which of them the frames of its callees belong to.

    A frame says its position among the calls that could be read. A call that could not be read has none, so that those
    after it stand further on than their positions say.

    Attributes:
        calls: in order.
        odd: those that most likely could not be read.

    >>> asked = Askings([Asking("ask_a", {"objective": "one"}), Asking("ask_a", {"objective": "two"})])
    >>> asked.at(1, "a").brief
    {'objective': 'two'}
    """

    calls: list[Asking] = field(default_factory=list[Asking])
    odd: list[Asking] = field(default_factory=list[Asking])
    _found: dict[int, Asking] = field(default_factory=dict[int, Asking])
    _shifts: dict[int, int] = field(default_factory=dict[int, int])

    def at(self, position: int, callee: str) -> Asking | None:
        """Return the call that a callee's frame at a position belongs to; None where no such call is known."""
        if position in self._found:
            return self._found[position]
        shift = max((shift for before, shift in self._shifts.items() if before < position), default=0)
        for index in range(position + shift, len(self.calls)):
            if stands_for(self.calls[index].to, callee):
                self._shifts[position] = index - position
                return self._found.setdefault(position, self.calls[index])
        left = (one for one in self.odd if stands_for(one.to, callee) and one not in self._found.values())
        found = next(left, None)
        return None if found is None else self._found.setdefault(position, found)


def stands_for(name: str, node: str, prefix: str = ASK) -> bool:
    """Tell whether a name is that of a node, or of the tool for it: tools of equal names have a number.

    >>> stands_for("ask_billing_2", "billing"), stands_for("ask_billing", "shipping")
    (True, False)
    """
    base = next(iter(generated_names(prefix, [node])))
    return name in {node, base} or (name.startswith(base) and name[len(base) :].lstrip("_").isdecimal())


def asked_by_function(outcome: object) -> Askings:
    """Return what a function's `Delegate` asks, also of one that was read back as plain data."""
    calls = _field(outcome, "calls")
    found = cast("Iterable[object]", calls) if isinstance(calls, (tuple, list)) else ()
    return Askings(
        [Asking(str(_field(call, "to")), _fields(_field(call, "brief")), place) for place, call in enumerate(found)]
    )


def asked_by_model(calls: Iterable[ToolCall]) -> Askings:
    """Return what a model's calls ask of others."""
    asked = Askings()
    for place, call in enumerate(calls):
        if call.name.startswith(ASK):
            given = arguments_of(call)
            fits = given is not None and isinstance(given.get(NEEDED), str)
            (asked.calls if fits else asked.odd).append(Asking(call.name, given or {}, place))
    return asked


def calls_of(reply: object) -> tuple[ToolCall, ...]:
    """Return the calls of a model's reply in either decision mode, also of one that was read back as plain data."""
    if not isinstance(reply, (ModelReply, Mapping)):
        return ()
    calls, text = _field(cast("object", reply), "calls"), _field(cast("object", reply), "text")
    if isinstance(calls, (tuple, list)) and calls:
        every = cast("Iterable[object]", calls)
        return tuple(ToolCall(str(_field(call, "name")), str(_field(call, "arguments") or "")) for call in every)
    return read_reply(ModelReply(text), native=False).calls if isinstance(text, str) else ()


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call as a model wrote them; None if they are no JSON object.

    >>> arguments_of(ToolCall("refund", '{"amount": 49.0}')), arguments_of(ToolCall("refund", "49"))
    ({'amount': 49.0}, None)
    """
    try:
        found = json.loads(call.arguments if call.arguments.strip() else "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _fields(brief: object) -> Given:
    if isinstance(brief, BaseModel):
        return {name: getattr(brief, name) for name in type(brief).model_fields}
    if isinstance(brief, Mapping):
        return cast("Given", brief)
    return {NEEDED: brief} if isinstance(brief, str) else {}


def _field(value: object, name: str) -> object:
    return cast("Given", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)
