"""Events and stored runs as lines of JSON.

Events are written so that one odd value never loses a trace, and read back strictly. A stored run is written row by row
below a line that names it, and comes back as it was.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple, cast

import pydantic_core
from pydantic import TypeAdapter

from graphflow.events import (
    AnswerGiven,
    Decision,
    EffectFinished,
    Emitted,
    Event,
    Fact,
    FrameClosed,
    Heard,
    ListenerFailed,
    NodeReturned,
    Row,
    RunStarted,
    kind_of,
)
from graphflow.model.frozen import FrozenDict
from graphflow.model.jsontext import compact_json, load_json
from graphflow.model.secrets import veiled

BODIES: Final[dict[str, type]] = {
    kind_of(kind): kind for kind in (*Fact.__args__, *Decision.__args__, ListenerFailed, *Heard.__args__)
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
        body = (_plain if type(event.body) in _HOLDING else _as_json)(event.body)
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


_HOLDING: Final = frozenset({RunStarted, NodeReturned, EffectFinished, Emitted, AnswerGiven, FrameClosed})
"""The events that hold values of users; of these alone it is looked what may be shown."""


def _plain(value: object) -> Any:
    return _as_json(veiled(value))


def _as_json(value: object) -> Any:
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


# --- stored runs -----------------------------------------------------------------------------------------------------

RUN_FORMAT: Final = "graphflow-run/1"
"""What the first line of a stored run says it is; the form of its records stands in the first of them."""

_COLUMNS: Final = frozenset({"seq", "at", "fact", "decisions"})


def run_lines(run: str, rows: Sequence[Row]) -> Iterator[str]:
    r"""Write a stored run as lines of JSON: what it is and how many rows it has, then a line for each of them.

    Raises:
        ValueError: if a row is no JSON.

    >>> print(*run_lines("r1", [Row(0, 0.5, '["run_started/2"]', "[]")]), sep="\n")
    {"format":"graphflow-run/1","run":"r1","records":1}
    {"seq":0,"at":0.5,"fact":["run_started/2"],"decisions":[]}
    """
    yield compact_json({"format": RUN_FORMAT, "run": run, "records": len(rows)})
    for row in rows:
        try:
            fact, decisions = (_on_a_line(text) for text in (row.fact, row.decisions))
            yield f'{{"seq":{row.seq},"at":{compact_json(row.at)},"fact":{fact},"decisions":{decisions}}}'
        except (ValueError, RecursionError) as error:
            msg = f"row {row.seq} is no JSON ({error})"
            raise ValueError(msg) from error


def _on_a_line(text: str) -> str:
    data = load_json(text)
    return text if "\n" not in text and "\r" not in text else compact_json(data)


class Exported(NamedTuple):
    """A stored run out of its lines.

    Attributes:
        run: its id.
        rows: its rows.
        counted: whether the lines say how many rows there are, so that none is missing at the end.
    """

    run: str
    rows: tuple[Row, ...]
    counted: bool


def read_run(lines: Iterable[str]) -> tuple[str, tuple[Row, ...]]:
    """Read what `run_lines` wrote: the id of the run, and its rows.

    Raises:
        ValueError: what `read_export` raises.

    >>> read_run(['{"format": "graphflow-run/1", "run": "r1"}'])
    ('r1', ())
    """
    run, rows, _ = read_export(lines)
    return run, rows


def read_export(lines: Iterable[str]) -> Exported:
    """Read what `run_lines` wrote, of this version or an older one. What the rows say is not looked at.

    Raises:
        ValueError: if these are no lines of a stored run, naming the line, or not as many as there were.
    """
    head: dict[str, Any] | None = None
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found: Any = load_json(line)
            if head is None:
                head = _head(found)
            else:
                rows.append(_row(found))
        except (ValueError, OverflowError, RecursionError) as error:
            cut = "" if line.endswith("\n") else "; the last line has no end, so something may be missing behind it"
            msg = f"line {number} is no line of a stored run: {str(error).partition(chr(10))[0]}{cut}"
            raise ValueError(msg) from error
    if head is None:
        msg = "there is no line in it"
        raise ValueError(msg)
    _check_count(head, rows)
    return Exported(head["run"], tuple(rows), "records" in head)


def _check_count(head: dict[str, Any], rows: Sequence[Row]) -> None:
    """Look whether all rows are there.

    Raises:
        ValueError: if they are not.
    """
    wanted = head.get("records", len(rows))
    if wanted == len(rows):
        return
    if len(rows) < wanted:
        last = "the last is" if wanted == len(rows) + 1 else f"the last {wanted - len(rows)} are"
        end = f"{last} missing" if rows else "all are missing"
        msg = f"it was cut off: its first line tells of {wanted} records, and {len(rows)} are there, so {end}"
    else:
        msg = f"its first line tells of {wanted} records, and {len(rows)} are there"
    msg = f"{msg}. Export the run again, or copy the whole file"
    raise ValueError(msg)


def _head(found: Any) -> dict[str, Any]:
    head = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if head.get("format") == RUN_FORMAT and isinstance(head.get("run"), str):
        if type(head.get("records", 0)) is not int:  # exports of older versions have no number
            msg = f"the number of its records is {head['records']!r}"
            raise ValueError(msg)
        return head
    msg = f"its format is {head.get('format')!r}, and {RUN_FORMAT!r} with the id of a run is wanted"
    raise ValueError(msg)


def _row(found: Any) -> Row:
    row = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if row.keys() != _COLUMNS:
        msg = f"a row has {', '.join(sorted(_COLUMNS))}"
        raise ValueError(msg)
    seq, at = row["seq"], row["at"]
    if type(seq) is not int or type(at) not in (int, float) or not math.isfinite(at):
        msg = "the number of a row is a whole one, and its time a number"
        raise ValueError(msg)
    return Row(seq, float(at), compact_json(row["fact"]), compact_json(row["decisions"]))
