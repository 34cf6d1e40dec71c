"""Long values for models: the cut falls on what is long, so that what is short stays.

A report whose finding fills a page still says whether it is done, and what must be done about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, cast

from graphflow.model.thread import DATA_CAP, capped, shown

SHORT: Final = 200
"""Texts of so many characters are not cut: lists lose their ends first."""

_PARTS: Final = 20_000
"""A value of more parts is cut as the text that it is written as: to weigh each of them would take too long."""


def shown_within(value: Any, cap: int = DATA_CAP) -> str:
    """Write a value for a model as `shown` does; of one that is too long, its longest texts and lists are cut.

    >>> shown_within({"finding": "f" * 900, "status": "done"}, 300).endswith('"status": "done"}')
    True
    """
    text = shown(value)
    return text if len(text) <= cap or isinstance(value, str) else within(text, cap) or text


def within(text: str, cap: int = DATA_CAP) -> str:
    """Return a JSON object or array in at most `cap` characters, with every field; "" where that cannot be done.

    >>> within("no object", 5), within('["short"]')
    ('', '["short"]')
    """
    if len(text) <= cap:
        return text
    try:
        plain: object = json.loads(text)
        if type(plain) not in (dict, list) or _parts(plain) > _PARTS:
            return ""
        whole = len(text)
        return most(lambda longest: _written(plain, longest, whole), cap, SHORT, cap) or most(
            lambda items: _written(plain, SHORT, items), cap, 0, cap
        )
    except (ValueError, RecursionError):  # no JSON, or nothing that anybody has written by hand
        return ""


def most(write: Callable[[int], str], cap: int, least: int, greatest: int) -> str:
    """Return what is written with the greatest number for which it has at most `cap` characters; "" if none has."""
    found = ""
    while least <= greatest:
        middle = (least + greatest) // 2
        text = write(middle)
        if len(text) <= cap:
            found, least = text, middle + 1
        else:
            greatest = middle - 1
    return found


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _written(plain: object, longest: int, items: int) -> str:
    return _encode(_cut(plain, longest, items))


def _cut(plain: Any, longest: int, items: int) -> Any:
    """Return JSON with its longer texts and lists cut, and how much of each was left out."""
    if isinstance(plain, str):
        return capped(plain, longest)
    if isinstance(plain, dict):
        return {name: _cut(value, longest, items) for name, value in cast("dict[str, Any]", plain).items()}
    if not isinstance(plain, list):
        return plain
    found = cast("list[Any]", plain)
    kept = [_cut(value, longest, items) for value in found[:items]]
    return kept if len(found) <= items else [*kept, f"[{len(found) - items} more were left out]"]


def _parts(plain: object) -> int:
    """Count the values of which a JSON value is made."""
    if isinstance(plain, dict):
        return 1 + sum(map(_parts, cast("dict[str, Any]", plain).values()))
    return 1 + sum(map(_parts, cast("list[Any]", plain))) if isinstance(plain, list) else 1
