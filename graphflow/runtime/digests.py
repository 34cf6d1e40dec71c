"""Digests of arguments: equal for equal arguments in every process, and of nothing that is secret."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import fractions
import functools
import hashlib
import json
import pathlib
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel

from graphflow.model.secrets import MARKED, SECRET_TYPES, holds_secret, marks_of, veiled

_TEXTS: Final = (Decimal, fractions.Fraction, complex, dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID)
"""Classes whose text says all."""


def digest(value: object, *, whole: bool = False) -> str:
    """Return a digest of arguments.

    Values are looked through all the way down, sets in an order that does not depend on their hashes. Of secrets, and
    of objects that have no value that could be written, the type alone counts.

    Args:
        value: the arguments.
        whole: whether marked fields of other classes than contexts count by their values, as in runs of older editions.

    >>> digest(({"b", "a"}, 1)) == digest(({"a", "b"}, 1)), digest((1,)) == digest((1.0,))
    (True, False)
    """
    return _digest(value, _Way(whole=whole, named=MARKED))


def items_digest(items: tuple[Any, ...], context: type[Any]) -> str | None:
    """Return a digest of a map's items, as `digest` does; None where a context can hold secrets, of which they may be.

    What is marked is known by its class alone, so that it matters not which other classes a process has met.

    >>> class Case:
    ...     pass
    >>> items_digest(("a", "b"), Case) == items_digest(("b", "a"), Case)
    False
    """
    return (
        None
        if _can_hold_secrets(cast("Any", context))
        else _digest(veiled(items), _Way(whole=False, named=frozenset()))
    )


@functools.lru_cache(maxsize=256)
def _can_hold_secrets(kind: type[Any]) -> bool:
    return holds_secret(kind)


class _Way(NamedTuple):
    """How a digest is made: of everything, or without marked fields; and which names are marked in whatever class."""

    whole: bool
    named: AbstractSet[str]


def _digest(value: object, way: _Way) -> str:
    text = json.dumps(_plain(value, 0, way), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_PLAINEST: Final[frozenset[type]] = frozenset({str, bool, int})
_DEEPEST: Final = 100


def _plain(value: Any, depth: int, way: _Way) -> Any:
    kind = cast("Any", type(value))
    name = kind.__qualname__
    if kind is int and value.bit_length() >= 64:  # noqa: PLR2004 - of any length
        return {name: hex(value)}
    if value is None or kind in _PLAINEST:
        return value
    if depth >= _DEEPEST or any(base in kind.__mro__ for base in SECRET_TYPES.values()):
        return {name: None}
    below = depth + 1
    if kind in (float, bytes, *_TEXTS) or isinstance(value, pathlib.PurePath):
        return {name: repr(value)}
    if isinstance(value, enum.Enum):
        return {name: str(value.name)}
    if isinstance(value, set | frozenset):
        return {name: sorted((_plain(item, below, way) for item in cast("Any", value)), key=json.dumps)}
    if isinstance(value, Mapping):
        pairs = [[_plain(key, below, way), _plain(item, below, way)] for key, item in cast("Any", value).items()]
        return {name: sorted(pairs, key=json.dumps)}
    hidden = frozenset[str]() if way.whole else marks_of(kind)
    if isinstance(value, tuple) and hidden:
        return {name: _fields(cast("Any", value)._asdict(), below, hidden, way)}
    if isinstance(value, list | tuple):
        return {name: [_plain(item, below, way) for item in cast("Any", value)]}
    if isinstance(value, BaseModel):
        return {name: _fields(dict(value), below, hidden, way)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        return {name: _fields(parts, below, hidden, way)}
    return {name: None}


def _fields(table: dict[str, Any], depth: int, hidden: frozenset[str], way: _Way) -> dict[str, Any]:
    return {
        name: None if name in hidden or name in way.named else _plain(item, depth, way) for name, item in table.items()
    }
