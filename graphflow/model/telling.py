"""Values and errors of users in texts of ours: without secrets, and whatever their own code does when it is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from graphflow.model.secrets import NAMED, SHOWN, veiled

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})

_PASSWORD: Final = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:'\"]*):[^\s/]+@")
"""The beginning of an address that holds a password, which may hold another @."""


def value_text(value: object) -> str:
    """Return a value as an error shows it: its repr, without marked fields and without the passwords of addresses.

    Never raises: of a value whose own repr raises, it names the class.

    >>> value_text("postgresql://me:hunter2@example.com/runs")
    "'postgresql://me:**********@example.com/runs'"
    >>> class Broken:
    ...     def __repr__(self) -> str:
    ...         return self.name
    >>> value_text(Broken())
    '<Broken, whose repr raises AttributeError>'
    """
    try:
        text = repr(veiled(value))
    except Exception as error:  # noqa: BLE001 - it is the user's code
        return f"<{type(value).__qualname__}, whose repr raises {type(error).__name__}>"
    return without_passwords(text)


def without_passwords(text: str) -> str:
    """Return a text without the passwords of the addresses in it.

    >>> without_passwords("no server at http://me:a@b@example.com/v1")
    'no server at http://me:**********@example.com/v1'
    """
    return _PASSWORD.sub(rf"\1:{SHOWN}@", text) if "://" in text else text


def error_text(error: BaseException, *, whole: bool = False) -> str:
    """Return the text of an error; of pydantic's, without what was given where a secret may stand in it.

    Never raises: a class of the user may do anything when it is asked for its text.

    Args:
        error: the error.
        whole: whether nothing is left out, as in runs of older editions.

    >>> error_text(ValueError("too small"))
    'too small'
    """
    try:
        return _validation_text(error) if isinstance(error, ValidationError) and not whole else str(error)
    except BaseException as broken:  # noqa: BLE001 - it is the user's code
        return f"(its text could not be made: {type(broken).__name__})"


def _validation_text(error: ValidationError) -> str:
    found: list[Any] = error.errors(include_url=False, include_context=False)
    if not any(map(_may_show, found)):
        return str(error)
    lines = [f"{len(found)} validation error{'s' * (len(found) > 1)} for {error.title}"]
    for one in found:
        lines += [".".join(map(str, one["loc"])), f"  {one['msg']} [type={one['type']}]"]
    return "\n".join(filter(None, lines))


def _may_show(found: Mapping[str, Any]) -> bool:
    """Tell whether what was given may hold a secret: it stands in a marked field, or is no plain value."""
    return type(cast("object", found["input"])) not in _SCALARS or not NAMED.isdisjoint(found["loc"])


def without_input(error: ValidationError) -> ValidationError:
    """Return the same error without what was given, where that is a secret or has one in it."""
    found: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    lines: list[Any] = [
        {"type": PydanticCustomError(one["type"], one["msg"]), "loc": one["loc"], "input": SHOWN} for one in found
    ]
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
