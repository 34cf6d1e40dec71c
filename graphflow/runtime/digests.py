"""Digests of arguments: equal for equal arguments in every process, and of nothing that is secret."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import fractions
import hashlib
import json
import pathlib
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from pydantic import BaseModel

from graphflow.model.secrets import MARKED, SECRET_TYPES, marks_of

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
    text = json.dumps(_plain(value, 0, whole), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_PLAINEST: Final[frozenset[type]] = frozenset({str, bool, int})
_DEEPEST: Final = 100


def _plain(value: Any, depth: int, whole: bool) -> Any:  # noqa: FBT001 - private
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
        return {name: sorted((_plain(item, below, whole) for item in cast("Any", value)), key=json.dumps)}
    if isinstance(value, Mapping):
        pairs = [[_plain(key, below, whole), _plain(item, below, whole)] for key, item in cast("Any", value).items()]
        return {name: sorted(pairs, key=json.dumps)}
    hidden = frozenset[str]() if whole else marks_of(kind)
    if isinstance(value, tuple) and hidden:
        return {name: _fields(cast("Any", value)._asdict(), below, hidden, whole)}
    if isinstance(value, list | tuple):
        return {name: [_plain(item, below, whole) for item in cast("Any", value)]}
    if isinstance(value, BaseModel):
        return {name: _fields(dict(value), below, hidden, whole)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        return {name: _fields(parts, below, hidden, whole)}
    return {name: None}


def _fields(table: dict[str, Any], depth: int, hidden: frozenset[str], whole: bool) -> dict[str, Any]:  # noqa: FBT001
    return {
        name: None if name in hidden or name in MARKED else _plain(item, depth, whole) for name, item in table.items()
    }
