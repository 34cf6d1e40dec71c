"""Types as values: a `Pause` holds the type that its answer must have."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import types
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Optional, Union, cast, get_args, get_origin

from pydantic import SecretBytes, SecretStr
from typing_extensions import TypeAliasType

from graphflow.model.exact import Refused, Unreadable, kind_name, short
from graphflow.model.frozen import FrozenDict, Json

_PLAIN: Final[tuple[Any, ...]] = (
    str, int, float, bool, bytes, complex, list, dict, tuple, set, frozenset, range, object, type(None),
    decimal.Decimal, fractions.Fraction, uuid.UUID,
    dt.datetime, dt.date, dt.time, dt.timedelta,
    pathlib.Path, pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath,
    pathlib.WindowsPath,
    SecretStr, SecretBytes, FrozenDict,
)  # fmt: skip

NAMED: Final[dict[str, Any]] = {**{kind.__name__: kind for kind in _PLAIN}, "Any": Any, "Json": Json}
"""The types that every graph knows, by name."""

_NAMES: Final[dict[int, str]] = {id(kind): name for name, kind in NAMED.items()}

_CONTAINERS: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (list, dict, tuple, set, frozenset, type, FrozenDict)
}

FORMS: Final = frozenset(
    map(
        type,
        (list[int], int | str, Union[int, str], Optional[int], Literal[1], Annotated[int, 1], typing.List[int], Any),  # noqa: UP006, UP007, UP045
    )
) | {TypeAliasType, type(FrozenDict[str, int]), getattr(typing, "TypeAliasType", TypeAliasType)}
"""The classes of what a type can be besides a class."""

Write = Callable[[Any], Any]
Name = Callable[[type[Any]], "str | None"]


def write_type(kind: Any, name_of: Name, write: Write) -> Any:
    """Write a type.

    Args:
        kind: the type.
        name_of: gives the name of a class that the graph declares.
        write: writes a value inside the type, as in a `Literal`.

    Raises:
        Refused: if it could not be made again from its parts alone.
    """
    known = _NAMES.get(id(kind))
    if known is not None:
        return known
    origin, args = get_origin(kind), get_args(kind)
    if origin is None or is_class(kind):
        name = name_of(kind) if is_class(kind) else None
        if name is None:
            raise Refused(_shown(kind), "a type can be stored if it is a plain one, or a class that the graph declares")
        return name
    if origin is Annotated:
        return ["Annotated", write_type(args[0], name_of, write), *map(write, kind.__metadata__)]
    if origin is Literal and all(map(_is_literal, args)):
        return ["Literal", *map(write, args)]
    if origin is Union or origin is types.UnionType:
        form = "|" if type(kind) is types.UnionType else "Union"
        return [form, *(write_type(arg, name_of, write) for arg in args)]
    form = getattr(origin, "__name__", "")
    if _CONTAINERS.get(form) is not origin:
        raise Refused(_shown(kind), "write it with list[...], tuple[...], dict[...], Literal, | or Annotated")
    return [form, *(_write_argument(arg, name_of, write) for arg in args)]


def is_class(kind: Any) -> bool:
    """Tell whether a type is a class, and not one with parameters, such as `list[int]`."""
    return isinstance(kind, type) and not isinstance(kind, types.GenericAlias)


def _write_argument(arg: Any, name_of: Name, write: Write) -> Any:
    return "..." if arg is ... else write_type(arg, name_of, write)


def _is_literal(value: object) -> bool:
    return value is None or type(value) in (str, int, bool, bytes) or isinstance(value, enum.Enum)


def _shown(kind: Any) -> str:
    return f"type {kind_name(kind) if isinstance(kind, type) else str(kind)[:80]}"


def read_type(data: Any, named: Callable[[str], Any], read: Callable[[Any], Any]) -> Any:
    """Read what `write_type` wrote.

    Args:
        data: what it wrote.
        named: gives the class of a name.
        read: reads a value inside the type.

    Raises:
        Unreadable: if it is anything else.
    """
    if type(data) is str:
        return NAMED[data] if data in NAMED else named(data)
    parts = cast("list[Any]", data) if type(data) is list else []
    form: Any = parts[0] if parts else None
    try:
        if type(form) is str:
            return _make(form, parts[1:], named, read)
    except (Unreadable, RecursionError):
        raise
    except Exception as error:
        msg = f"no type is made of {short(parts)}"
        raise Unreadable(msg) from error
    msg = f"this is no type: {short(parts)}"
    raise Unreadable(msg)


def _make(form: str, args: list[Any], named: Callable[[str], Any], read: Callable[[Any], Any]) -> Any:
    def inner(data: Any) -> Any:
        return read_type(data, named, read)

    if form == "Literal":
        values = tuple(map(read, args))
        if not values or not all(map(_is_literal, values)):
            raise TypeError
        return Literal[values]
    if form == "Annotated":
        return Annotated[(inner(args[0]), *map(read, args[1:]))]
    if form == "|":
        made = inner(args[0])
        for arg in args[1:]:
            made = made | inner(arg)
        return made
    if form == "Union":
        return Union[tuple(map(inner, args))]  # noqa: UP007 - it is another type than |
    if form not in _CONTAINERS:
        msg = f"{form[:80]!r} is no form of a type"
        raise Unreadable(msg)
    return _CONTAINERS[form][tuple(... if arg == "..." else inner(arg) for arg in args)]
