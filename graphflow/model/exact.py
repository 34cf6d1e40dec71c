"""What "exactly the same" means for a stored value, and how its place in a larger one is told."""

from __future__ import annotations

import dataclasses
import operator
import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, time, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel

from graphflow.model.frozen import FrozenDict, class_of, mutable_part
from graphflow.model.outcome import Update
from graphflow.model.secrets import SECRET_TYPES

DEEPEST: Final = 100
"""How many values may stand inside each other: each level takes stack, and JSON readers have a limit of their own."""


table_of: Final = cast("Callable[[Any], dict[Any, Any]]", operator.attrgetter("_items"))
"""The items of a `FrozenDict`, not copied: a `Mapping` is walked much more slowly. Nobody may change them."""


class Unreadable(ValueError):
    """Stored data that are not what was written, or that belong to another graph.

    Attributes:
        where: the place in the value, such as "items[2].name"; "" for the value itself.
        what: what is wrong there.
    """

    def __init__(self, what: str) -> None:
        """Say what is wrong; the place grows on the way out."""
        self.what = what
        self._steps: list[str] = []
        super().__init__(what)

    @property
    def where(self) -> str:
        """The place in the value."""
        return "".join(reversed(self._steps)).removeprefix(".")

    def step(self, step: str) -> None:
        """Put the place of what it was found in before its own."""
        self._steps.append(step)

    def __str__(self) -> str:
        """Say what is wrong, and where."""
        return f"{self.what} (at {self.where})" if self._steps else self.what


class Refused(Exception):
    """A value that cannot be stored exactly, on its way to the one who asked; `steps` lead to it, innermost first."""

    def __init__(self, kind: type[Any] | str, hint: str) -> None:
        """Take the class of the value, or what to call it, and what can be done."""
        self.kind = kind if isinstance(kind, str) else kind_name(kind)
        self.hint = hint
        self.steps: list[tuple[str, int, str]] = []
        super().__init__(hint)

    def step(self, step: str, holder: object) -> None:
        """Put the place of what it was found in before its own."""
        self.steps.append((step, id(holder), kind_name(type(holder))))


def only(kind: type[Any], held: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse a value that has attributes which are no fields.

    Raises:
        Refused: naming the first.
    """
    more = [name for name in held if name not in names and name != "__orig_class__"]  # the mark of `Box[int](...)`
    if more:
        raise Refused(
            kind, f"it holds {more[0]!r} besides its fields, as a cached property does: make a property of it"
        )


def refuse_shape(kind: type[Any], held: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse a model whose attributes are not its fields.

    Raises:
        Refused: saying which is missing, or too much.
    """
    missing = [name for name in names if name not in held]
    if missing:
        raise Refused(kind, f"its field {missing[0]!r} has no value")
    only(kind, held, names)


def kind_name(kind: type[Any]) -> str:
    """Return the name of a class for a message; never raises.

    >>> kind_name(int), kind_name(Decimal)
    ('int', 'decimal.Decimal')
    """
    try:
        name = f"{kind.__module__}.{kind.__qualname__}"
    except Exception:  # noqa: BLE001 - a metaclass may do anything
        return "object"
    return name.removeprefix("builtins.")


def short(data: object) -> str:
    """Return a text for a message that shows some of what was found; never raises, except for a want of stack."""
    try:
        text = repr(data)
    except ValueError:  # a whole number of thousands of digits
        text = f"<{kind_name(class_of(data))}>"
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def key_step(key: object) -> str:
    """Return the step to the item of a key, short enough for a message.

    >>> key_step("a"), key_step(("a",))
    ("['a']", '[<tuple>]')
    """
    if type(key) is str:
        return f"[{key!r}]" if len(key) <= _WIDEST else f"[{key[:_WIDEST]!r}...]"
    if type(key) in (int, float, bool, type(None)):
        text = hex(key) if isinstance(key, int) and key.bit_length() > _WIDEST else repr(key)
        return f"[{text[:_WIDEST]}]"
    return f"[<{kind_name(type(key))}>]"


_WIDEST: Final = 80


# --- what can be changed ---------------------------------------------------------------------------------------------

ATOMS: Final[frozenset[type[Any]]] = frozenset({str, int, float, bool, bytes, type(None), Decimal, datetime, Fraction})
"""Classes of values that hold nothing."""

_FIXED: dict[type[Any], bool] = dict.fromkeys(ATOMS, True)


def changeable(value: Any) -> bool:
    """Tell whether something in a value could be changed, as a constructor may do that is given it.

    >>> changeable(("a", 1)), changeable(("a", [1]))
    (False, True)
    """
    kind = class_of(value)
    fixed = _FIXED.get(kind)
    if fixed is None:
        fixed = _FIXED[kind] = _holds_nothing(kind)
    if fixed:
        return False
    if kind is FrozenDict:
        return any(changeable(item) for pair in table_of(value).items() for item in pair)
    if tuple in kind.__mro__ or kind is frozenset:
        return any(map(changeable, value))
    return True


def _holds_nothing(kind: type[Any]) -> bool:
    """Tell whether no value of a class can be changed, by its declared types alone."""
    try:
        return kind not in (tuple, frozenset, FrozenDict) and mutable_part(kind) is None
    except Exception:  # noqa: BLE001 - annotations that cannot be resolved prove nothing
        return False


# --- sameness --------------------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal and of the same types all the way down, NaN being the same as itself.

    >>> same((1, float("nan")), (1, float("nan"))), same(1, True), same(Decimal("1.0"), Decimal("1.00"))
    (True, False, False)
    """
    if one is other:
        return True
    kind = class_of(one)
    if type(other) is not kind:
        return False
    test = _TESTS.get(kind)
    if test is not None:
        return test(one, other)
    if tuple in kind.__mro__:  # a NamedTuple
        return _items(one, other) and same(getattr(one, "__dict__", None), getattr(other, "__dict__", None))
    if BaseModel in kind.__mro__:
        return (
            _table(one.__dict__, other.__dict__)
            and one.__pydantic_fields_set__ == other.__pydantic_fields_set__
            and same(one.__pydantic_extra__, other.__pydantic_extra__)
            and same(one.__pydantic_private__, other.__pydantic_private__)
        )
    if dataclasses.is_dataclass(kind):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(kind))
    return _same_type(one, other) if get_origin(one) is not None else bool(one == other)


def _same_type(one: Any, other: Any) -> bool:
    """Tell whether two types with parameters are written alike; values may stand among these."""
    if get_origin(one) is not get_origin(other):
        return False
    mine, theirs = get_args(one), get_args(other)
    return len(mine) == len(theirs) and all(map(same, mine, theirs))


def _items(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _table(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one.items(), other.items(), strict=True)
    return all((a is b or same(a, b)) and (x is y or same(x, y)) for (a, x), (b, y) in pairs)


def _members(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    found = {item: item for item in other}
    rest: list[Any] = []
    for item in one:
        if item not in found:
            rest.append(item)  # it holds NaN, which is found by identity alone
        elif not same(item, found.pop(item)):
            return False
    for item in rest:
        match = next((known for known in found if same(item, known)), found)
        if match is found:
            return False
        del found[match]
    return True


def bits(number: float) -> bytes:
    """Return a float as it lies in memory: it tells 0.0 from -0.0, and one NaN from another."""
    return struct.pack(">d", number)


def _same_moment(one: Any, other: Any) -> bool:
    return bool(
        one.replace(tzinfo=None) == other.replace(tzinfo=None)
        and one.fold == other.fold
        and _same_zone(one.tzinfo, other.tzinfo)
    )


def _same_zone(one: Any, other: Any) -> bool:
    """Tell whether two time zones are the same, by name and all; equal ones may have two names."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if hasattr(one, "key"):
        return bool(one.key == other.key)
    return bool(one == other and one.tzname(None) == other.tzname(None))


_TESTS: Final[dict[type[Any], Callable[[Any, Any], bool]]] = {
    **dict.fromkeys((str, int, bytes, bool), lambda one, other: bool(one == other)),
    float: lambda one, other: bits(one) == bits(other),
    complex: lambda one, other: bits(one.real) == bits(other.real) and bits(one.imag) == bits(other.imag),
    Decimal: lambda one, other: bool(one.as_tuple() == other.as_tuple()),
    Fraction: lambda one, other: bool(one.as_integer_ratio() == other.as_integer_ratio()),
    range: lambda one, other: (one.start, one.stop, one.step) == (other.start, other.stop, other.step),
    datetime: _same_moment,
    time: _same_moment,
    timezone: _same_zone,
    **dict.fromkeys((tuple, list), _items),
    dict: _table,
    **dict.fromkeys((set, frozenset), _members),
    FrozenDict: lambda one, other: _table(table_of(one), table_of(other)),
    Update: lambda one, other: _table(one.fields, other.fields),
}


# --- what secrets are called -----------------------------------------------------------------------------------------


class SecretNames:
    """What the secrets of a run are called: by their fields, and by numbers where a field has several values.

    A name means one value in all of the run's records, so that each comes back as what it was.

    >>> names = SecretNames({})
    >>> [names.name_of("token", value) for value in ("a", "b", "a")]
    ['token', 'token#2', 'token']
    >>> SecretNames({"token#2": "b"}).name_of("token", "b")
    'token#2'
    """

    __slots__ = ("_atoms", "_last", "_others", "_taken", "_texts")

    def __init__(self, given: Mapping[str, object]) -> None:
        """Know those that were given."""
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        self._atoms: dict[tuple[str, Any], str] = {}
        self._others: dict[str, list[tuple[Any, str]]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        for name in sorted(given, key=lambda name: (len(name), name)):
            self.learn(name, given[name])
            if isinstance(value := _bare(given[name]), str):
                self._texts.update(dict.fromkeys([(field, value) for field in _fields_of(name)], name))

    def name_of(self, field: str, value: Any) -> str:
        """Return the name of a secret: the one that it has, or a new one.

        Args:
            field: what it would be called if it were alone.
            value: its value.
        """
        bare = _bare(value)
        found = self._known(field, bare)
        if found is None:
            number = self._last.get(field, 0) + 1
            found = field if number == 1 else f"{field}#{number}"
            while found in self._taken:
                number += 1
                found = f"{field}#{number}"
            self._last[field] = number
            self._put(field, bare, found)
        return found

    def learn(self, name: str, value: Any) -> None:
        """Take note of a value that was found by a name, as it was given or as its class made it."""
        for field in _fields_of(name):
            if self._known(field, bare := _bare(value)) is None:
                self._put(field, bare, name)

    def _known(self, field: str, bare: Any) -> str | None:
        kind = class_of(bare)
        if kind is str or kind is bytes:
            return self._atoms.get((field, bare))
        found = next((name for known, name in self._others.get(field, ()) if same(known, bare)), None)
        if found is None and self._texts and kind in ATOMS:  # people give numbers as texts, too
            found = self._texts.get((field, str(bare)))
        return found

    def _put(self, field: str, bare: Any, name: str) -> None:
        self._taken.add(name)
        if class_of(bare) in (str, bytes):
            self._atoms[field, bare] = name
        else:
            self._others.setdefault(field, []).append((bare, name))


_NUMBERED: Final = re.compile(r"#[1-9][0-9]*\Z")


def _fields_of(name: str) -> set[str]:
    """Return what a secret of this name may have been called alone: keys of tables may look as if they had a number."""
    return {name, _NUMBERED.sub("", name)}


def _bare(value: Any) -> Any:
    """Return a secret without the class of pydantic around it."""
    return value.get_secret_value() if class_of(value) in _WRAPPING else value


_WRAPPING: Final[frozenset[type[Any]]] = frozenset(SECRET_TYPES.values())
