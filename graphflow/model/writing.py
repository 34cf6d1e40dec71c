"""Values on their way to JSON data: one function for each class, found by the exact class of the value."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from graphflow.model.exact import (
    ATOMS,
    DEEPEST,
    Refused,
    SecretNames,
    changeable,
    key_step,
    refuse_shape,
    same,
    table_of,
)
from graphflow.model.frozen import FrozenDict, class_of
from graphflow.model.kinds import Kinds
from graphflow.model.outcome import Nothing, Update
from graphflow.model.plans import EnumPlan, ModelPlan, Plan, storable
from graphflow.model.reading import Reading
from graphflow.model.scalars import WRITERS, is_text, write_int, write_str
from graphflow.model.secrets import SECRET_TYPES, MissingSecrets
from graphflow.model.typevalues import FORMS, read_type, write_type

Data = dict[str, Any]


class Writing:
    """Values on their way to JSON data, one after the other.

    Attributes:
        how: how the values of each class are written, as far as that has been found out.
        kinds: the classes of the graph.
        names: what the secrets are called.
    """

    __slots__ = ("how", "kinds", "names")

    def __init__(self, kinds: Kinds, names: SecretNames) -> None:
        """Know how the values of the classes are written that every graph has."""
        self.how = dict(HOW)
        self.kinds = kinds
        self.names = names

    def write(self, value: Any, depth: int, name: str | None) -> Any:
        """Write one value.

        Args:
            value: anything.
            depth: how many values it stands in.
            name: the name of the field or key that it belongs to, None in a set.

        Raises:
            Refused: if it cannot be stored.
        """
        kind = class_of(value)
        if kind is str:
            if value.isascii():
                return value
        elif value is None or kind is bool or (kind is int and -_FAR < value < _FAR):
            return value
        how = self.how.get(kind)
        if how is None:
            how = self.how[kind] = _find(kind, self.kinds)
        return how(self, value, depth, name)

    def hide(self, value: Any, name: str | None) -> Data:
        """Write that a secret stands here; two of one name and different values get names of their own.

        Raises:
            Refused: in a set, where it could not be told from others.
        """
        if name is None:
            raise Refused(class_of(value), "a secret in a set or a key could not be found again: use a field")
        data = {"$": "secret", "name": self.names.name_of(name, value)}
        kind = class_of(value)
        return {**data, "kind": kind.__name__} if SECRET_TYPES.get(kind.__name__) is kind else data

    def copied(self, parts: Data, data: Data, depth: int) -> Data:
        """Return the parts of a value, with copies of those that a constructor or a validator could change.

        A copy is read from what was written.
        """
        made: Data | None = None
        if ATOMS.issuperset(map(type, parts.values())):
            return parts
        for name, part in parts.items():
            if type(part) in ATOMS or not changeable(part):
                continue
            if made is None:
                made = parts.copy()
            with contextlib.suppress(MissingSecrets):  # one that holds a secret cannot be read here
                made[name] = Reading(self.kinds, {}).read(data[name], depth)
        return made or parts


_FAR: Final = 1 << 64

How = Callable[[Writing, Any, int, "str | None"], Any]


def _find(kind: type[Any], kinds: Kinds) -> How:
    """Return how the values of a class are written.

    Raises:
        Refused: if they are not.
    """
    try:
        return _found(kind, kinds)
    except Refused:
        raise
    except Exception as error:
        raise Refused(kind, f"its class raised {type(error).__name__} when it was looked at") from error


def _found(kind: type[Any], kinds: Kinds) -> How:
    name = kinds.name_of(kind)
    if name is not None:
        plan = kinds.plan(kind)
        if isinstance(plan, ModelPlan):
            return _writes_model(plan, name) if plan.plain is None else _writes_plain(plan, plan.plain, name)
        return _writes_enum(plan, name) if isinstance(plan, EnumPlan) else _writes_fields(plan, name)
    if issubclass(kind, type) or kind in FORMS:
        return _write_type
    raise Refused(kind, _hint(kind, kinds))


def _hint(kind: type[Any], kinds: Kinds) -> str:
    """Return what can be done about a value of a class that is not stored."""
    mro = kind.__mro__
    if kind in kinds.classes:
        return "another class of the graph has the same module and name: rename one of them"
    if storable(kind):
        return "declare its class: annotate the return type of the node, or the field that holds it"
    if not SECRET_TYPES.keys().isdisjoint(base.__name__ for base in mro):
        return "use SecretStr, SecretBytes or Secret[...] itself"
    for base, instead in _INSTEAD.items():
        if base in mro:
            return f"use {instead}"
    return "use plain data, a frozen dataclass or a pydantic model; what is no data belongs into the run's resources"


_INSTEAD: Final[dict[type[Any], str]] = {
    dict: "FrozenDict, or a plain dict", str: "a plain str", int: "a plain int", float: "a plain float",
    bytes: "plain bytes", tuple: "a plain tuple, or a NamedTuple", list: "a tuple, or a plain list",
    set: "a frozenset, or a plain set", frozenset: "a plain frozenset", FrozenDict: "FrozenDict itself",
    bytearray: "bytes", memoryview: "bytes", BaseException: "its text",
}  # fmt: skip


# --- containers ------------------------------------------------------------------------------------------------------


def _too_deep(value: object) -> Refused:
    return Refused(type(value), f"more than {DEEPEST} values stand inside each other")


def _write_items(writing: Writing, value: Any, depth: int, name: str | None) -> list[Any]:
    if depth >= DEEPEST:
        raise _too_deep(value)
    made: list[Any] = []
    try:
        for item in value:
            made.append(writing.write(item, depth + 1, name))  # noqa: PERF401 - its length says where an error is
    except Refused as refused:
        refused.step(f"[{len(made)}]", value)
        raise
    return made


def _write_list(writing: Writing, value: Any, depth: int, name: str | None) -> Data:
    return {"$": "list", "of": _write_items(writing, value, depth, name)}


def _write_set(writing: Writing, value: Any, depth: int, _: str | None) -> Data:
    if depth >= DEEPEST:
        raise _too_deep(value)
    try:
        made = [writing.write(item, depth + 1, None) for item in value]
    except Refused as refused:
        refused.step("{...}", value)
        raise
    return {"$": type(value).__name__, "of": sorted(made, key=json.dumps)}


def _write_table(writing: Writing, value: dict[Any, Any], depth: int, *, dollar: bool) -> Data | None:
    """Write a dict as an object; None if one of its keys cannot stand there."""
    if depth >= DEEPEST:
        raise _too_deep(value)
    made: Data = {}
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or is_text(key)) or (not dollar and key[:1] == "$"):
                return None
            made[key] = writing.write(item, depth + 1, key)
    except Refused as refused:
        refused.step(key_step(key), value)
        raise
    return made


def _write_pairs(writing: Writing, value: dict[Any, Any], depth: int) -> list[Any]:
    made: list[Any] = []
    key: Any = None
    inside = False
    try:
        for key, item in value.items():
            inside = False
            written = writing.write(key, depth + 1, None)
            inside = True
            name = key if type(key) is str else key_step(key)
            made.append([written, writing.write(item, depth + 1, name)])
    except Refused as refused:
        refused.step(key_step(key) if inside else f"{key_step(key)} (the key)", value)
        raise
    return made


def _write_dict(writing: Writing, value: dict[Any, Any], depth: int, _: str | None) -> Data:
    made = _write_table(writing, value, depth, dollar=True)
    return (
        {"$": "dict", "of": made} if made is not None else {"$": "dict", "pairs": _write_pairs(writing, value, depth)}
    )


def _write_frozen(writing: Writing, value: FrozenDict[Any, Any], depth: int, _: str | None) -> Data:
    items = table_of(value)
    made = _write_table(writing, items, depth, dollar=False)
    return made if made is not None else {"$": "FrozenDict", "pairs": _write_pairs(writing, items, depth)}


def _write_update(writing: Writing, value: Update, depth: int, _: str | None) -> Data:
    if depth >= DEEPEST:
        raise _too_deep(value)
    made: Data = {}
    field = ""
    how, hidden = writing.how, writing.kinds.secrets
    try:
        for field, item in value.fields.items():
            if type(field) is not str or not (field.isascii() or is_text(field)):
                raise Refused(str, "the name of a field is a text without halves of surrogate pairs")
            if field in hidden:
                made[field] = writing.hide(item, field)
            else:
                made[field] = how.get(class_of(item), Writing.write)(writing, item, depth + 1, field)
    except Refused as refused:
        refused.step(f".{field}", value)
        raise
    return {"$": "Update", "of": made}


def _write_type(writing: Writing, value: Any, depth: int, _: str | None) -> Data:
    data = write_type(value, writing.kinds.name_of, lambda item: writing.write(item, depth + 1, None))
    again = read_type(data, writing.kinds.named, lambda item: Reading(writing.kinds, {}).read(item, depth + 1))
    if not same(value, again):
        raise Refused(f"type {str(value)[:80]}", "it comes back in another form: write it with list[...], | and so on")
    return {"$": "type", "is": data}


# --- classes of the graph --------------------------------------------------------------------------------------------


def _writes_plain(plan: ModelPlan, plain: Mapping[str, frozenset[type[Any]]], tag: str) -> How:
    """Return how the values of a model of texts and numbers are written, whose class proves that they come back.

    Fields that are what `plain` says, and short, are their own data. What holds anything else is left to the general
    way, which builds it again to prove that it comes back.
    """
    every, count, fields, general = plan.all_names, len(plain), tuple(plain.items()), _writes_model(plan, tag)

    def write(writing: Writing, value: Any, depth: int, name: str | None) -> Any:
        data: Data = {"$": tag}
        try:
            held: Data = value.__dict__
            usual = len(held) == count and value.__pydantic_fields_set__ == every and value.__pydantic_extra__ is None
            for field, kinds in fields:
                part = data[field] = held[field]
                kind = class_of(part)
                if kind is str:
                    if kind not in kinds or not (part.isascii() or is_text(part)):
                        usual = False
                elif kind not in kinds or not (part is None or -_FAR < part < _FAR):
                    usual = False
        except Exception:  # noqa: BLE001 - there it is said
            usual = False
        return data if usual and depth < DEEPEST else general(writing, value, depth, name)

    return write


def _writes_model(plan: ModelPlan, tag: str) -> How:
    """Return how the values of a pydantic model are written."""
    kind, names, count, hidden, every = plan.kind, plan.names, len(plan.names), plan.hidden, plan.all_names

    def write(writing: Writing, value: Any, depth: int, _: str | None) -> Data:
        if depth >= DEEPEST:
            raise _too_deep(value)
        try:
            held: Data = value.__dict__
            chosen: set[str] = value.__pydantic_fields_set__
            extra: Data | None = value.__pydantic_extra__
        except Exception as error:
            raise Refused(kind, f"it raised {type(error).__name__} when it was read") from error
        if len(held) != count or not held.keys() >= every:
            refuse_shape(kind, held, names)
        data: Data = {"$": tag}
        field = ""
        try:
            for field in names:
                part = held[field]
                if field in hidden:
                    data[field] = writing.hide(part, field)
                else:
                    plain = type(part) is str and part.isascii()
                    data[field] = part if plain else writing.write(part, depth + 1, field)
        except Refused as refused:
            refused.step(f".{field}", value)
            raise
        if extra:
            data["$extra"] = _write_extra(writing, value, depth, every)
        if chosen == every:
            plan.prove_model(value, writing.copied(held, data, depth + 1), None)
        else:
            _write_chosen(data, chosen, [*names, *(extra or ())], kind)
            plan.prove_model(value, writing.copied(held, data, depth + 1), chosen)
        return data

    return write


def _write_extra(writing: Writing, value: Any, depth: int, every: set[str]) -> Data:
    made: Data = {}
    name: Any = None
    try:
        for name, part in value.__pydantic_extra__.items():
            if type(name) is not str or not is_text(name) or name in every:
                raise Refused(class_of(name), "a value besides the fields needs a name that no field has")
            made[name] = writing.write(part, depth + 1, name)
    except Refused as refused:
        refused.step(f".{name}", value)
        raise
    return made


def _write_chosen(data: Data, chosen: set[str], known: list[str], kind: type[Any]) -> None:
    """Write which names count as set, in the shorter of two ways; nothing where all do."""
    if not chosen.issubset(known):
        raise Refused(kind, "it says that fields are set which it does not have")
    unset = [name for name in known if name not in chosen]
    if 2 * len(unset) > len(known):
        data["$set"] = [name for name in known if name in chosen]
    elif unset:
        data["$unset"] = unset


def _writes_fields(plan: Plan, tag: str) -> How:
    """Return how the values of a dataclass or a NamedTuple are written."""
    hidden = plan.hidden

    def write(writing: Writing, value: Any, depth: int, _: str | None) -> Data:
        if depth >= DEEPEST:
            raise _too_deep(value)
        parts = plan.parts(value)
        data: Data = {"$": tag}
        field = ""
        try:
            for field, part in parts.items():
                data[field] = writing.hide(part, field) if field in hidden else writing.write(part, depth + 1, field)
        except Refused as refused:
            refused.step(f".{field}", value)
            raise
        plan.prove(value, parts, writing.copied(parts, data, depth + 1))
        return data

    return write


def _writes_enum(plan: EnumPlan, tag: str) -> How:
    def write(_w: Writing, value: Any, _d: int, _n: str | None) -> Data:
        return {"$": tag, **plan.write(value)}

    return write


def _plain(write: Callable[[Any], Any]) -> How:
    return lambda _w, value, _d, _n: write(value)


def _hides(writing: Writing, value: Any, _: int, name: str | None) -> Data:
    return writing.hide(value, name)


def _write_nothing(_w: Writing, _v: Any, _d: int, _n: str | None) -> Data:
    return {"$": "NOTHING"}


def _write_str(_w: Writing, value: str, _d: int, _n: str | None) -> Any:
    return value if value.isascii() else write_str(value)


def _write_int(_w: Writing, value: int, _d: int, _n: str | None) -> Any:
    return value if -_FAR < value < _FAR else write_int(value)


HOW: Final[dict[type[Any], How]] = {
    **{kind: _plain(write) for kind, write in WRITERS.items()},
    str: _write_str,
    int: _write_int,
    **dict.fromkeys(SECRET_TYPES.values(), _hides),
    tuple: _write_items,
    list: _write_list,
    set: _write_set,
    frozenset: _write_set,
    dict: _write_dict,
    FrozenDict: _write_frozen,
    Update: _write_update,
    Nothing: _write_nothing,
}
"""How a value of exactly this class is written, whatever the graph."""
