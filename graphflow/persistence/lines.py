"""Events as lines of JSON: written so that one odd value never loses a trace, read back strictly."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import fields
from typing import Any, Final, cast

import pydantic_core
from pydantic import TypeAdapter

from graphflow.events import Decision, Event, Fact, ListenerFailed, TextDelta, kind_of
from graphflow.model.frozen import FrozenDict

BODIES: Final[dict[str, type]] = {
    kind_of(kind): kind for kind in (*Fact.__args__, *Decision.__args__, ListenerFailed, TextDelta)
}
"""Every kind of event by its name."""


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def event_json(event: Event) -> str:
    """Write an event as one line of JSON.

    Values of users are written as JSON, by their own pydantic types where they have one; what has no JSON form is
    written as its type's name, so that one odd value never loses a trace.
    """
    try:
        body = _plain(event.body)
    except Exception:  # noqa: BLE001 - bytes, a cycle, a serializer of the user that raises
        body = {item.name: _plain_or_type(getattr(event.body, item.name)) for item in fields(event.body)}
    line = {"run": event.run, "seq": event.seq, "at": event.at, "kind": event.kind, "body": body}
    try:
        return json.dumps(line, allow_nan=False)
    except ValueError:
        return json.dumps(writable(line))


def writable(data: Any) -> Any:
    """Return JSON data with numbers that cannot be written as JSON, infinite or of thousands of digits, as text.

    >>> writable({"a": [float("inf"), 1]})
    {'a': ['inf', 1]}
    """
    match data:
        case dict():
            return {key: writable(value) for key, value in cast("dict[str, Any]", data).items()}
        case list():
            return [writable(value) for value in cast("list[Any]", data)]
        case float() if not math.isfinite(data):
            return str(data)
        case int() if data.bit_length() > _MOST_BITS:
            return hex(data)
        case _:
            return data


_MOST_BITS = 14_000
"""Python writes no longer number in decimal digits."""


def _plain(value: object) -> Any:
    return pydantic_core.to_jsonable_python(value, fallback=_without_form, inf_nan_mode="strings", by_alias=True)


def _without_form(value: object) -> Any:
    if isinstance(value, FrozenDict):
        return dict(cast("FrozenDict[Any, Any]", value))
    return f"<{type(value).__qualname__}>"


def _plain_or_type(value: object) -> Any:
    try:
        return _plain(value)
    except Exception:  # noqa: BLE001 - the one value that has no JSON form
        return f"<{type(value).__qualname__}>"


def read_event(line: str) -> Event:
    """Read what `event_json` wrote; values of users come back as plain JSON.

    Raises:
        ValueError: if the line is no event.
    """
    try:
        found = json.loads(line)
        body = _adapter(BODIES[found["kind"]]).validate_python(found["body"])
        return Event(str(found["run"]), int(found["seq"]), float(found["at"]), body)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"not an event of a run: {line.strip()[:80]!r} ({error})"
        raise ValueError(msg) from error
