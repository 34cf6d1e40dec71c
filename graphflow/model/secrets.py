"""Fields whose values are secrets: they are shown nowhere, and stored nowhere."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast, final

import pydantic
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import core_schema

from graphflow.errors import UsageError

SHOWN: Final = "**********"
"""What stands in a text instead of a secret."""

MARKED: Final[set[str]] = set()
"""The names of all fields of contexts that are marked; values by these names are shown nowhere."""

SECRET_TYPES: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in (SecretStr, SecretBytes, Secret)}
"""The classes of pydantic whose values are secrets, by name."""


@final
class _Mark:
    """The type of `secret`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the constant's name."""
        return "secret"

    def __reduce__(self) -> str:
        """Copy and pickle as the constant: there is one of it."""
        return "secret"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate as if it were not there; in JSON, show nothing of the value."""
        schema: Any = handler(source)
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(
            _hidden, return_schema=core_schema.str_schema(), when_used="json"
        )
        return cast("core_schema.CoreSchema", schema)


def _hidden(_: object) -> str:
    return SHOWN


def hides(schema: Any) -> bool:
    """Tell whether pydantic's schema of a field is that of a secret; a model that has one in it is another's."""
    if isinstance(schema, list | tuple):
        return any(map(hides, cast("Iterable[Any]", schema)))
    if not isinstance(schema, dict):
        return False
    table = cast("dict[str, Any]", schema)
    if table.get("type") in {"model", "dataclass", "typed-dict", "call", "definition-ref"}:
        return False
    return table.get("function") is _hidden or any(map(hides, table.values()))


secret: Final = _Mark()
"""Marks a field as a secret: `token: Annotated[str, secret]`. It is asked for again when a stored run is resumed."""


class MissingSecrets(UsageError):
    """What is stored says that secrets belong in it, and they were not given.

    Attributes:
        names: the names that are asked for.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Name every one of them."""
        self.names = tuple(sorted(set(names)))
        table = ", ".join(f"{name!r}: ..." for name in self.names)
        super().__init__(
            f"secrets are never stored, and this run was given some: give them again, secrets={{{table}}}."
        )


def secret_fields(kind: type[Any]) -> frozenset[str]:
    """Return the names of the fields of a class that are marked as secrets, wherever in their type the mark stands.

    >>> from typing import Annotated
    >>> class Login(BaseModel):
    ...     user: str
    ...     token: Annotated[str, secret]
    >>> secret_fields(Login)
    frozenset({'token'})
    """
    if BaseModel in kind.__mro__:
        fields = cast("type[BaseModel]", kind).model_fields.items()
        return frozenset(name for name, info in fields if secret in info.metadata or marked(info.annotation))
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
        return frozenset()
    return frozenset(name for name, hint in hints_of(kind).items() if marked(hint))


@functools.lru_cache(maxsize=1024)
def marks_of(kind: type[Any]) -> frozenset[str]:
    """Return what `secret_fields` does, found once for each class; never raises."""
    try:
        return secret_fields(kind)
    except Exception:  # noqa: BLE001 - a class that looks like one with fields
        return frozenset()


_SAYS_SECRET: Final = re.compile(r"\bsecret\b")


def marked(hint: Any) -> bool:
    """Tell whether a type is marked as a secret; one that nobody can read is, if it speaks of one."""
    if isinstance(hint, str):
        return _SAYS_SECRET.search(hint) is not None
    if isinstance(hint, typing.ForwardRef):
        return marked(hint.__forward_arg__)
    if any(found is secret for found in getattr(hint, "__metadata__", ())):
        return True
    if typing.get_origin(hint) is typing.Literal:
        return False
    return any(marked(part) for part in typing.get_args(hint))


def holds_secret(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Tell whether a value of a type can hold a secret, at whatever depth.

    >>> holds_secret(SecretStr | None), holds_secret(list[int])
    (True, False)
    """
    if marked(hint):
        return True
    if not isinstance(hint, type) or typing.get_origin(hint) is not None:
        origin: Any = typing.get_origin(hint)
        inside = typing.get_args(hint)[: 1 if origin is typing.Annotated else None]
        parts = (origin, *inside) if isinstance(origin, type) else inside
        return origin is not typing.Literal and any(holds_secret(part, seen) for part in parts)
    kind = cast("Any", hint)
    if kind in seen:
        return False
    if not SECRET_TYPES.keys().isdisjoint(base.__name__ for base in kind.__mro__) or marks_of(kind):
        return True
    return any(holds_secret(part, seen | {kind}) for part in _hints_inside(kind))


def _hints_inside(kind: Any) -> list[Any]:
    if BaseModel in kind.__mro__:
        return [info.annotation for info in kind.model_fields.values()]
    return (
        list(hints_of(cast("Any", kind)).values()) if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") else []
    )


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """Return the annotations of a class and its bases; never raises.

    Each is read on its own, so that one that is broken takes no other with it: it stays as it was written.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules.get(base.__module__)
        known: dict[str, Any] = {base.__name__: base, **vars(base), **(vars(module) if module is not None else {})}
        found.update(read_hints(base, known))
    return found


def read_hints(holder: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of a function or of one class, with names as far as they are known; never raises."""
    try:
        given = inspect.get_annotations(holder)
    except Exception:  # noqa: BLE001 - annotations are code
        return {}
    return {name: _read(hint, known) for name, hint in given.items()}


def _read(hint: Any, known: dict[str, Any]) -> Any:
    alone: Any = types.SimpleNamespace(__annotations__={"it": hint})
    try:
        return typing.get_type_hints(alone, known, known, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - a name that is not there, or code that raises
        return hint


# --- values without their secrets ------------------------------------------------------------------------------------

_BARE: Final[frozenset[type[Any]]] = frozenset({str, int, float, bool, bytes, type(None)})
_DEEPEST: Final = 100


def veiled(value: Any) -> Any:
    """Return a value as it may be shown: a copy without the values of marked fields, wherever in it they stand.

    Where there is nothing to hide it is the value itself. A class of the user shows the copy in its own way. Sets are
    shown in a fixed order: a text that is decided must be the same in another process, whose hashes are others. Never
    raises: what cannot be copied is the name of its class.

    >>> from typing import Annotated, NamedTuple
    >>> class Login(NamedTuple):
    ...     user: str
    ...     token: Annotated[str, secret]
    >>> veiled([Login("me", "hunter2")])
    [Login(user='me', token='**********')]
    """
    if type(value) in _BARE:
        return value
    try:
        return _veiled(value, _Way(hide=True))
    except Exception:  # noqa: BLE001 - a user's class may do anything when it is copied, and nothing of it may be shown
        return f"<{type(value).__qualname__}>"


def in_order(value: Any) -> Any:
    """Return a value with the sets in it in a fixed order, whatever the hashes of this process are.

    >>> in_order({"a": frozenset("cab")})
    {'a': frozenset({'a', 'b', 'c'})}
    """
    if type(value) in _BARE:
        return value
    try:
        return _veiled(value, _Way(hide=False))
    except Exception:  # noqa: BLE001 - a user's class may do anything when it is copied
        return value


def veiled_args(kind: type[Any], args: Iterable[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """Return what the text of a model shows of its fields, without its secrets."""
    hidden = marks_of(cast("Any", kind))
    return [(name, SHOWN if name in hidden else veiled(value)) for name, value in args]


def veiled_repr(value: Any) -> str:
    """Return the text of a dataclass as its class would make it, without secrets in what it holds."""
    names = [item.name for item in dataclasses.fields(value) if item.repr]
    return f"{type(value).__qualname__}({', '.join(f'{name}={veiled(getattr(value, name))!r}' for name in names)})"


class _Way(set[int]):
    """The values that one stands in, so that one that holds itself has an end; and whether secrets are hidden."""

    __slots__ = ("hide",)

    def __init__(self, *, hide: bool) -> None:
        super().__init__()
        self.hide = hide

    def marks_of(self, kind: type[Any]) -> frozenset[str]:
        """The fields of a class that are hidden here."""
        return marks_of(cast("Any", kind)) if self.hide else frozenset()


class _InOrder(frozenset[Any]):
    """A set that is gone through, and shown, in a fixed order."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_place_of))

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, self))}}})"


class _OpenInOrder(_InOrder):
    """The same of a set that can be changed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}"


def _place_of(item: object) -> tuple[str, int, str]:
    """By what the items of a set are put in order: whole numbers by the length of their text, then all by the text."""
    text = repr(item)
    return type(item).__qualname__, len(text) if type(item) is int else 0, text


def _veiled(value: Any, way: _Way) -> Any:
    """Return a value without its secrets, and with its sets in order."""
    kind = cast("Any", type(value))
    if kind in _BARE or isinstance(value, type):
        return value
    how = _how(kind)
    if how is None:
        return value
    if len(way) > _DEEPEST or id(value) in way:
        return f"<{kind.__qualname__}>"
    way.add(id(value))
    made = how(kind, value, way)
    way.discard(id(value))
    return made


def _how(kind: Any) -> Callable[[Any, Any, _Way], Any] | None:
    if issubclass(kind, BaseModel):
        return _veiled_model
    if issubclass(kind, Mapping):
        return _veiled_table
    if issubclass(kind, tuple | list | set | frozenset):
        return _veiled_items
    return _veiled_fields if dataclasses.is_dataclass(kind) else None


def _veiled_model(kind: Any, value: Any, way: _Way) -> Any:
    hidden = way.marks_of(kind)
    held: dict[str, Any] = value.__dict__
    parts: dict[str, Any] = {name: held[name] for name in kind.model_fields if name in held}
    changed: dict[str, Any] = {}
    parts |= value.model_extra or {}
    for name, part in parts.items():
        if name in hidden:
            changed[name] = SHOWN
        elif (made := _veiled(part, way)) is not part:
            changed[name] = made
    if not changed:
        return value
    copied: Any = BaseModel.model_copy(value, update=changed)
    inside: dict[str, Any] = copied.__dict__
    for name in [name for name in inside if name not in kind.model_fields]:
        del inside[name]  # what was computed of the secret is computed again, of what hides it
    return copied


def _veiled_table(kind: Any, value: Any, way: _Way) -> Any:
    table = cast("Mapping[Any, Any]", value)
    pairs = [(_veiled(key, way), _veiled(item, way)) for key, item in table.items()]
    same = all(k is key and v is item for (k, v), (key, item) in zip(pairs, table.items(), strict=True))
    return value if same else _remade(kind, dict(pairs))


def _veiled_items(kind: Any, value: Any, way: _Way) -> Any:
    names: tuple[str, ...] = getattr(kind, "_fields", ()) if tuple in kind.__mro__ else ()
    hidden: frozenset[str] = way.marks_of(kind) if names else frozenset()
    places = {place for place, name in enumerate(names) if name in hidden}
    items: list[Any] = [SHOWN if place in places else _veiled(item, way) for place, item in enumerate(value)]
    same = all(map(operator.is_, items, value))
    if same and kind not in (set, frozenset):
        return value
    if tuple in kind.__mro__:
        make = cast("Any", tuple).__new__  # past a constructor of its own
        return make(kind, items)
    if kind in (set, frozenset) and len(items) > 1:
        return (_OpenInOrder if kind is set else _InOrder)(items)
    return value if same else _remade(kind, items)


def _remade(kind: Any, parts: Any) -> Any:
    """Make a container of a class again; a plain one where the class takes something else."""
    try:
        return kind(parts)
    except Exception:  # noqa: BLE001 - such as a defaultdict, or a set of what has no hash now
        return parts


def _veiled_fields(kind: Any, value: Any, way: _Way) -> Any:
    hidden = way.marks_of(kind)
    parts = {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if hasattr(value, item.name)}
    changed: dict[str, Any] = {name: SHOWN if name in hidden else _veiled(part, way) for name, part in parts.items()}
    if all(changed[name] is part for name, part in parts.items()):
        return value
    copied: Any = object.__new__(kind)
    held: dict[str, Any] = getattr(value, "__dict__", {})
    for name, part in held.items():
        if not isinstance(getattr(kind, name, None), functools.cached_property):
            object.__setattr__(copied, name, part)
    for name, part in changed.items():
        object.__setattr__(copied, name, part)
    return copied
