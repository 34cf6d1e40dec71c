"""JSON as the rows of runs have it: compact, and also with text that is no Unicode."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core


def load_json(text: str) -> Any:
    """Read JSON.

    Raises:
        ValueError: if it is none.
        RecursionError: if it is nested too deeply.

    >>> load_json('["a", 1]')
    ['a', 1]
    """
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):  # half a surrogate pair is a ValueError as an escape, and a TypeError as it is
        return json.loads(text)  # slower, and reads both


def compact_json(data: Any) -> str:
    """Write JSON data without a space.

    >>> compact_json(["a", 1])
    '["a",1]'
    """
    try:
        return pydantic_core.to_json(data).decode()
    except pydantic_core.PydanticSerializationError:  # text that is no Unicode
        return json.dumps(data, allow_nan=False)
