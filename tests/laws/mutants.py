"""Rows of a stored run with something wrong in them."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from graphflow.events import Row

Rows = list[Row]

TEXTS: Final = (
    "", "null", "[]", "{}", '""', "[[]]", "NaN", "-Infinity", "1e400", "9" * 5000, "[" * 100_000, '{"a":' * 50_000,
    '["run_started/1"]', '["run_started/2"]', '["run_started/999999999999"]', '["no_such_kind"]', '["node_returned"]',
    '[["node_ended","a","completed",null,1,2,3]]', '{"$":"Report"}', "\ufeff[]", "[1,]", "'[]'", '"\\ud800"', "\x00",
    '["session_started",0.0,""]', '["cancel_requested","nobody"]', '["timer_fired",0]', '["answer_given","a",1]',
    '["budget_added",{"$":"Budget"}]', '["effect_finished","a",0,0,"model"]', '["' + "a" * 2_000_000 + '"]',
)  # fmt: skip
"""Texts in the place of a fact or of decisions."""

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, 1e308, -0.0, "", "a", "§", "\ud800", "a" * 100_000, [], {}, [[]],
    {"": ""}, "../../etc/passwd", "/", "a/b:2@0.0~1", "completed", "cancelled", "graphflow.model.contract.Report",
    {"$": "Report"}, {"$": "Budget", "tokens": -1}, {"$": "os.system", "is": "touch canary"}, {"$": "Path", "is": "/"},
    {"$": "type", "is": "os.system"}, {"$": "builtins.eval", "is": "1"}, {"$": ["Report"]}, {"$": None}, {"$": "tuple"},
    {"$": "Decimal", "is": "NaN"}, {"$": "Decimal", "is": "1e999999999"}, {"$": "bytes", "is": "!"}, {"$": "datetime"},
    {"py/object": "subprocess.Popen", "args": "touch canary"}, {"__reduce__": ["os.system", ["touch canary"]]},
    {"$": "frozenset", "is": [["a"]]}, {"$": "FrozenDict", "is": [[1]]}, {"$": "ModelReply", "$unset": ["text", "no"]},
)  # fmt: skip
"""JSON in the place of other JSON."""


def mutated(rows: Sequence[Row], rng: random.Random, others: Sequence[Sequence[Row]]) -> Rows:
    """The rows with one to three things wrong in them."""
    found = list(rows)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = rng.choice(WAYS)(found, rng, others) or found
    return found


# --- whole rows ------------------------------------------------------------------------------------------------------


def _dropped(rows: Rows, rng: random.Random, _others: object) -> Rows:
    at = rng.randrange(len(rows))
    return rows[:at] + rows[at + 1 :]


def _doubled(rows: Rows, rng: random.Random, _others: object) -> Rows:
    at = rng.randrange(len(rows))
    return [*rows[: at + 1], *rows[at:]]


def _swapped(rows: Rows, rng: random.Random, _others: object) -> Rows:
    """Two rows change places, with their numbers or without."""
    one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    found = list(rows)
    found[one], found[other] = rows[other], rows[one]
    if rng.randrange(2):
        found[one], found[other] = replace(found[one], seq=rows[one].seq), replace(found[other], seq=rows[other].seq)
    return found


def _foreign(rows: Rows, rng: random.Random, others: Sequence[Sequence[Row]]) -> Rows:
    """A row of another run."""
    at, strange = rng.randrange(len(rows)), rng.choice(rng.choice(others))
    return [*rows[:at], replace(strange, seq=rows[at].seq, at=rows[at].at), *rows[at + rng.randrange(2) :]]


def _renumbered(rows: Rows, rng: random.Random, _others: object) -> Rows:
    at = rng.randrange(len(rows))
    seq = rng.choice((-1, 0, 1, rows[at].seq + 1, 2**62, 2**80))
    return [*rows[:at], replace(rows[at], seq=seq), *rows[at + 1 :]]


def _at_another_time(rows: Rows, rng: random.Random, _others: object) -> Rows:
    at = rng.randrange(len(rows))
    seconds = rng.choice((-1.0, 0.0, 1e-9, 3600.0, 1e300, float("inf"), float("nan"), rows[at].at + 0.5))
    return [*rows[:at], replace(rows[at], at=seconds), *rows[at + 1 :]]


# --- texts -----------------------------------------------------------------------------------------------------------


def _with_text(rows: Rows, rng: random.Random, change: Callable[[str], str]) -> Rows:
    at = rng.randrange(len(rows))
    row = rows[at]
    fact, decisions = (change(row.fact), row.decisions) if rng.randrange(2) else (row.fact, change(row.decisions))
    return [*rows[:at], Row(row.seq, row.at, fact, decisions), *rows[at + 1 :]]


def _other_text(rows: Rows, rng: random.Random, _others: object) -> Rows:
    return _with_text(rows, rng, lambda _: rng.choice(TEXTS))


def _other_characters(rows: Rows, rng: random.Random, _others: object) -> Rows:
    def change(text: str) -> str:
        at = rng.randrange(len(text) + 1)
        more = rng.choice(("", "", rng.choice('"[]{},:\\0123e.-ntf'), chr(rng.randrange(1, 0x250)), "\ud800", "\x00"))
        return text[:at] + more + text[at + rng.choice((0, 1, 1, 2, len(text))) :]

    return _with_text(rows, rng, change)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _other_value(rows: Rows, rng: random.Random, others: Sequence[Sequence[Row]]) -> Rows:
    """Some value in the JSON of a row is another one."""

    def change(text: str) -> str:
        try:
            return changed(json.loads(text))
        except (ValueError, RecursionError):  # too wrong already
            return text

    def changed(data: Any) -> str:
        holders = [data]
        for holder in holders:
            holders += [found for found in _items(holder) if _items(found)]
        if _items(data):
            _spoil(rng.choice(holders), rng, others)
        return json.dumps(data, separators=(",", ":"))

    return _with_text(rows, rng, change)


def _items(data: object) -> list[Any]:
    """What stands in an array or an object; nothing stands in anything else."""
    if isinstance(data, dict):
        return list(cast("dict[str, Any]", data).values())
    return cast("list[Any]", data) if isinstance(data, list) else []


def _spoil(holder: list[Any] | dict[str, Any], rng: random.Random, others: Sequence[Sequence[Row]]) -> None:
    """Change one item of an array or an object."""
    where: Any = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    kind = rng.randrange(6)
    if kind == 0:
        del holder[where]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("$", "$unset", "$set", "$extra", "is", "", where + "x"))] = holder.pop(where)
    elif kind == 1:
        holder = cast("list[Any]", holder)
        holder.insert(where, holder[where])
    elif kind == 2:
        holder[where] = _somewhere(rng, others)
    elif kind == 3:
        deep: Any = holder[where]
        for _ in range(rng.choice((1, 5, 500))):
            deep = [deep] if rng.randrange(2) else {"$": deep}
        holder[where] = deep
    else:
        holder[where] = rng.choice(VALUES)


def _somewhere(rng: random.Random, others: Sequence[Sequence[Row]]) -> Any:
    """Some value that stands somewhere in another run."""
    row = rng.choice(rng.choice(others))
    found: Any = json.loads(rng.choice((row.fact, row.decisions)))
    while _items(found) and rng.randrange(4):
        found = rng.choice(_items(found))
    return found


WAYS: Final[tuple[Callable[[Rows, random.Random, Sequence[Sequence[Row]]], Rows], ...]] = (
    _dropped, _doubled, _swapped, _foreign, _renumbered, _at_another_time, _other_text,
    _other_characters, _other_characters, _other_value, _other_value, _other_value, _other_value, _other_value,
)  # fmt: skip
