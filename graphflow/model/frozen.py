"""Immutable data: `FrozenDict`, `Json`, and the proof that a type can hold nothing mutable.

Pydantic's `frozen=True` is shallow: a list in a field of a frozen model can still be changed. Contexts are shared by
parallel branches, so each of their fields is looked through, all the way down, when the class is complete.
"""

from __future__ import annotations

import dataclasses
import decimal
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import pydantic
from pydantic import BaseModel
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenDict(Mapping[K, V_co]):
    """A mapping that nobody can change; equal to any mapping with the same items, hashable if its values are.

    >>> FrozenDict({"a": 1}) == {"a": 1}
    True
    >>> FrozenDict({"a": 1}).set("b", 2)
    FrozenDict({'a': 1, 'b': 2})
    """

    __slots__ = ("_hash", "_items")
    _items: dict[K, V_co]
    _hash: int | None

    def __init__(self, items: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = ()) -> None:
        """Copy the items."""
        object.__setattr__(self, "_items", dict(items))
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: this value is frozen.

        Raises:
            AttributeError: always.
        """
        msg = f"{type(self).__name__} is frozen: {name!r} cannot be set; build a new one with .set(key, value)."
        raise AttributeError(msg)

    def __getitem__(self, key: K) -> V_co:
        """Return the value of a key."""
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in order of insertion."""
        return iter(self._items)

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._items)

    def __hash__(self) -> int:
        """Hash the items, whatever their order."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._items.items())))
        return cast("int", self._hash)

    def __repr__(self) -> str:
        """Show the items."""
        return f"FrozenDict({self._items!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by building anew."""
        return (type(self), (self._items,))

    def set(self, key: Any, value: Any) -> FrozenDict[Any, Any]:
        """Return a new mapping with one item more, or replaced."""
        return FrozenDict({**self._items, key: value})

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate as a dict, then freeze; serialise as a dict."""
        key, value = get_args(source) or (Any, Any)
        inner = handler.generate_schema(cast("Any", dict)[key, value])
        thaw = core_schema.plain_serializer_function_ser_schema(dict, return_schema=inner)
        build = core_schema.no_info_after_validator_function(cls, inner)
        from_python = core_schema.no_info_before_validator_function(
            _thawed,
            build,
        )
        return core_schema.json_or_python_schema(build, from_python, serialization=thaw)


def _thawed(found: Any) -> Any:
    return dict(cast("FrozenDict[Any, Any]", found)) if isinstance(found, FrozenDict) else found


Json = TypeAliasType("Json", "bool | int | float | str | tuple[Json, ...] | FrozenDict[str, Json] | None")
"""Any JSON value, frozen: arrays are tuples and objects are `FrozenDict`."""


_SCALARS = frozenset(
    {
        "builtins.str", "builtins.bytes", "builtins.int", "builtins.float", "builtins.complex", "builtins.bool",
        "builtins.NoneType", "builtins.range", "builtins.ellipsis", "enum.Enum", "decimal.Decimal",
        "fractions.Fraction", "datetime.date", "datetime.time", "datetime.timedelta", "datetime.tzinfo", "uuid.UUID",
        "pathlib.PurePath", "pathlib._local.PurePath", "re.Pattern", "ipaddress._IPAddressBase",
        "pydantic.types.SecretStr", "pydantic.types.SecretBytes", "pydantic.networks._BaseUrl",
        "pydantic_core._pydantic_core.Url",
    }
)  # fmt: skip
"""Immutable classes, by name, so that none of their modules is imported for a check alone."""

_INSTEAD: dict[object, str] = {
    list: "tuple[T, ...]", dict: "FrozenDict[K, V]", set: "frozenset[T]", bytearray: "bytes",
    abc.Sequence: "tuple[T, ...]", abc.MutableSequence: "tuple[T, ...]", abc.Iterable: "tuple[T, ...]",
    abc.Collection: "tuple[T, ...]", abc.Mapping: "FrozenDict[K, V]", abc.MutableMapping: "FrozenDict[K, V]",
    abc.Set: "frozenset[T]", abc.MutableSet: "frozenset[T]", Any: "the exact type, or Json",
    object: "the exact type, or Json",
}  # fmt: skip


def mutable_part(annotation: Any) -> tuple[str, str] | None:
    """Find what could be mutable in a type.

    Returns:
        What was found and what to use instead, or None if a value of this type can hold nothing mutable.

    >>> mutable_part(tuple[list[int], ...])
    ('list[int] is mutable', 'tuple[T, ...]')
    >>> mutable_part(tuple[int, ...]) is None
    True
    """
    return _mutable(annotation, frozenset())


def _mutable(kind: Any, seen: frozenset[Any]) -> tuple[str, str] | None:
    if (
        kind is Json or kind is ... or kind is None or isinstance(kind, str) or kind in seen
    ):  # a forward name is looked through where it is defined
        return None
    origin = get_origin(kind)
    if isinstance(kind, TypeAliasType):
        return _mutable(kind.__value__, seen | {kind})
    if origin is typing.Annotated:
        return _mutable(get_args(kind)[0], seen)
    if origin in (typing.Union, types.UnionType, tuple, frozenset, FrozenDict, typing.ClassVar, typing.Final):
        return _first(get_args(kind), seen)
    if origin is typing.Literal:
        return None
    if isinstance(kind, TypeVar):
        return (f"the type variable {kind} is unbound", "a parametrised class, such as Box[Item]")
    base: Any = origin or kind
    if base in _INSTEAD:
        return (f"{_name(kind)} is mutable", _INSTEAD[base])
    if base in (tuple, frozenset, FrozenDict):
        return (f"{_name(kind)} says nothing of its items", f"{base.__name__}[...] with their type")
    if isinstance(base, type):
        return _mutable_class(base, seen | {kind})
    if isinstance(kind, typing.NewType):
        return _mutable(kind.__supertype__, seen)
    return (f"{_name(kind)} may be mutable", "a frozen pydantic model or a frozen dataclass")


def _mutable_class(base: Any, seen: frozenset[Any]) -> tuple[str, str] | None:
    if issubclass(base, BaseModel):
        if not base.model_config.get("frozen"):
            return (
                f"the model {base.__name__} is not frozen",
                "model_config = ConfigDict(frozen=True) on it",
            )
        return _first((info.annotation for info in base.model_fields.values()), seen)
    if hasattr(base, "__dataclass_params__"):
        if not _is_frozen_dataclass(base):
            return (f"the dataclass {_name(base)} is not frozen", "@dataclass(frozen=True) on it")
        return _first(typing.get_type_hints(base).values(), seen)
    if tuple in base.__mro__ and hasattr(base, "_fields"):
        return _first(typing.get_type_hints(base).values(), seen)
    if any(f"{kind.__module__}.{kind.__qualname__}" in _SCALARS for kind in base.__mro__):
        return None
    return (f"{_name(base)} may be mutable", "a frozen pydantic model or a frozen dataclass")


def _is_frozen_dataclass(base: Any) -> bool:
    return bool(base.__dataclass_params__.frozen)


def _first(kinds: Iterable[Any], seen: frozenset[Any]) -> tuple[str, str] | None:
    return next((found for kind in kinds if (found := _mutable(kind, seen)) is not None), None)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


class_of: Final = cast("Callable[[Any], type[Any]]", type)
"""The exact class of a value, whatever the value says of itself."""

PROVED: dict[type, bool] = dict.fromkeys((str, bytes, int, float, complex, bool, type(None), decimal.Decimal), True)
"""What is known of the values of a class: True for immutable as such, False for one that must be looked into."""


def mutable_value(value: Any) -> tuple[str, str, str] | None:
    """Find what could be changed in a value that one node gives to others.

    Returns:
        Where it is, what was found and what to use instead; or None if nothing in the value can be changed.

    >>> mutable_value(("a", [1]))
    ('[1]', 'list is mutable', 'tuple[T, ...]')
    >>> mutable_value(("a", 1)) is None
    True
    """
    if PROVED.get(class_of(value)):
        return None
    found = _mutable_value(value)
    if found is None:
        return None
    where, what, instead = found
    return where or "the value itself", what, instead


def _mutable_value(value: Any) -> tuple[str, str, str] | None:
    kind: Any = cast("Any", type(value))
    known = PROVED.get(kind)
    if known is None:
        known = PROVED[kind] = _proved(kind)
    if known:
        return None
    if isinstance(value, (tuple, frozenset)):
        form, parts = "[{}]", enumerate(cast("Iterable[Any]", value))
    elif isinstance(value, FrozenDict):
        form, parts = "[{!r}]", cast("Any", cast("FrozenDict[Any, Any]", value).items())
    elif isinstance(value, BaseModel) and value.model_config.get("frozen"):
        form, parts = ".{}", cast("Any", ((name, getattr(value, name)) for name in kind.model_fields))
    elif dataclasses.is_dataclass(value) and _is_frozen_dataclass(kind):
        form, parts = ".{}", cast("Any", ((item.name, getattr(value, item.name)) for item in dataclasses.fields(value)))
    else:
        what, instead = mutable_part(kind) or (
            f"{_name(kind)} may be mutable",
            "a frozen pydantic model or a frozen dataclass",
        )
        return "", what, instead
    for step, item in parts:
        inside = _mutable_value(item)
        if inside is not None:
            return form.format(step) + inside[0], inside[1], inside[2]
    return None


def _proved(kind: Any) -> bool:
    """Tell whether no value of a class can hold anything mutable, by its declared types alone."""
    if issubclass(kind, (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType)):
        return not issubclass(kind, types.ModuleType)
    if kind in (tuple, frozenset, FrozenDict):
        return False
    try:
        return mutable_part(kind) is None
    except Exception:  # noqa: BLE001 - annotations that cannot be resolved prove nothing
        return False
