"""What is said where a function of the user's made what is no value of a field of the context."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from graphflow.errors import ContractError
from graphflow.model.thread import shown

_SHOWN: Final = 80
"""So many characters of a value are shown."""

Found: TypeAlias = ValidationError | tuple[str, str, str]
"""Why a value does not fit; or where it could be changed, what is there and what to use instead."""


def misfit(
    reducer: Callable[..., Any], context: type[BaseModel], field: str, made: object, found: Found, *, hidden: bool
) -> ContractError:
    """Return the error of a reducer that made what does not fit its field, or could be changed.

    The text is the same in every process, whatever the order of sets in it: it becomes a part of what is stored.

    Args:
        reducer: the function.
        context: the class of the context.
        field: the name of the field.
        made: what the reducer returned.
        found: what is wrong with that.
        hidden: whether the field is a secret, of whose values nothing is shown.
    """
    while isinstance(reducer, functools.partial):
        reducer = reducer.func
    name = getattr(reducer, "__name__", type(reducer).__name__)
    what = f"the reducer {name!r} of {context.__name__}.{field} gave {_told(made, hidden=hidden)}"
    rule = f"A reducer returns the field's next value, of exactly its type, {_type_of(context, field)}"
    forgotten = "; has it a return?" if made is None else "."
    return ContractError(f"{what}: {_why(found, hidden=hidden)}. {rule}{forgotten}")


def ill_kept(context: type[BaseModel], field: str, value: object, found: Found, *, hidden: bool) -> ContractError:
    """Return the error of a context that holds what does not fit one of its fields; its text is as that of `misfit`."""
    what = f"{context.__name__}.{field} holds {_told(value, hidden=hidden)}"
    rule = f"Its type is {_type_of(context, field)}"
    hint = f"model_copy(update=...) looks at nothing, {context.__name__}(...) does"
    return ContractError(f"{what}: {_why(found, hidden=hidden)}. {rule}; {hint}.")


def place_text(loc: Iterable[int | str]) -> str:
    """Return where in a value something is wrong, as it is written behind the value.

    >>> place_text(("pages", 0, "title"))
    '.pages[0].title'
    """
    return "".join(f"[{step!r}]" if isinstance(step, int) else f".{step}" for step in loc)


def _told(value: object, *, hidden: bool) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    text = f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"
    if hidden:
        return text
    found = " ".join(shown(value).split())
    return f"{text} ({found if len(found) <= _SHOWN else f'{found[:_SHOWN]} ...'})"


def _why(found: Found, *, hidden: bool) -> str:
    if isinstance(found, tuple):
        where, what, instead = found
        return f"it could be changed: {f'at {where}, ' if not hidden else ''}{what}; use {instead}"
    first = found.errors(include_url=False, include_input=False)[0]
    where = place_text(first["loc"])
    return "it does not fit" if hidden else f"{f'at {where}: ' if where else ''}{first['msg']}"


def _type_of(context: type[BaseModel], field: str) -> str:
    kind = context.model_fields[field].annotation
    text = str(kind) if typing.get_origin(kind) is not None else str(getattr(kind, "__name__", kind))
    return text.replace("typing.", "")
