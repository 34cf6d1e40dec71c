"""Whose function raised: what a team was given is named where it fails, and not the node of the team that called it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final

UNMARKED: Final[Mapping[str, Any]] = MappingProxyType({"fingerprint": False})
"""Of a field of a function that says nothing of what the function does, so that a graph's fingerprint is without it."""

_BLAMED: Final = "__graphflow_raised_by__"


@dataclass(frozen=True, slots=True)
class Blaming:
    """Name the function that raises what leaves this block; the exception stays the same object.

    Attributes:
        where: how errors name the call that made the team.
        argument: what the function was given as.
        fn: the function.

    >>> try:
    ...     with Blaming("manual('panel')", "decide", len):
    ...         raise KeyError("who")
    ... except KeyError as error:
    ...     print(error.__notes__, blamed(error))
    ["raised by decide=len of manual('panel')"] decide=len of manual('panel')
    """

    where: str
    argument: str
    fn: object

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        """Note on an exception whose it is."""
        if isinstance(error, Exception):
            what = f"{self.argument}={_name(self.fn)}" + (f" of {self.where}" if self.where else "")
            with contextlib.suppress(Exception):  # a class of the user's may refuse notes and attributes
                note = f"raised by {what}"
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
                setattr(error, _BLAMED, what)


def _name(fn: object) -> str:
    """Return a function's name, and nothing of what it was given: that may be a secret."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name: object = None
    with contextlib.suppress(Exception):  # a user's class may do anything
        name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__


def blamed(error: BaseException) -> str:
    """Return which function of a team raised an exception; "" where none is known."""
    found: object = getattr(error, _BLAMED, "")
    return found if isinstance(found, str) else ""
