"""How the values of a class are taken apart and built again: models, dataclasses, NamedTuples, enums."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, ValidationError
from pydantic.dataclasses import rebuild_dataclass
from pydantic_core import ArgsKwargs, PydanticUndefined, SchemaValidator
from typing_extensions import TypedDict

from graphflow.model.exact import Refused, only, same, short
from graphflow.model.frozen import class_of
from graphflow.model.outcome import Delegate
from graphflow.model.scalars import is_text
from graphflow.model.secrets import hints_of, secret_fields

Parts = dict[str, Any]
NONE: Final[frozenset[str]] = frozenset()


class Misfit(Exception):
    """Parts that do not make a value of the class, or not this one.

    Attributes:
        why: the exception behind it, unless it could show a secret.
    """

    why: Exception | None = None


def storable(kind: type[Any]) -> bool:
    """Tell whether the values of a class can be stored, if a graph declares it."""
    mro = kind.__mro__
    if BaseModel in mro:
        return kind is not BaseModel and kind is not RootModel
    if enum.Enum in mro:
        return bool(vars(kind).get("_member_names_"))
    return any("__dataclass_fields__" in vars(base) for base in mro) or (tuple in mro and hasattr(kind, "_fields"))


class Plan:
    """How values of one class are taken apart and built again.

    Attributes:
        kind: the class.
        names: its fields, in order.
        hidden: those that are secrets.
    """

    __slots__ = ("hidden", "kind", "names")

    def __init__(self, kind: type[Any], names: tuple[str, ...]) -> None:
        """Look for secrets among the fields."""
        odd = [name for name in names if name[:1] == "$" or not is_text(name)]
        if odd:
            raise Refused(kind, f"no field that is stored can be called {odd[0]!r}")
        self.kind = kind
        self.names = names
        self.hidden = secret_fields(kind)

    def parts(self, value: Any) -> Parts:
        """Return the values of the fields.

        Raises:
            Refused: if the value holds anything else, or misses one.
        """
        raise NotImplementedError

    def default(self, name: str, parts: Parts) -> Any:
        """Return the default of a field, for a value that was written when its class had no such field.

        Args:
            name: the field.
            parts: the values of those before it.

        Raises:
            Misfit: if it has none.
        """
        raise NotImplementedError

    def build(self, parts: Parts, given: frozenset[str] = NONE, like: Parts | None = None) -> Any:
        """Return a value with exactly these parts.

        Args:
            parts: the values of the fields.
            given: those that are secrets which a person gave, and may be converted.
            like: what the fields must have then, if not the parts: they may be copies.

        Raises:
            Misfit: if there is none.
        """
        raise NotImplementedError

    def prove(self, value: Any, parts: Parts, copied: Parts) -> None:
        """Prove that a value can be built again from its parts.

        Args:
            value: the value.
            parts: the values of its fields.
            copied: the same, with copies of what could be changed while it is built again.

        Raises:
            Refused: if it cannot.
        """
        try:
            self.same_besides(self.build(copied, like=parts), value)
        except Misfit as error:
            raise Refused(self.kind, str(error)) from error.why
        except Exception as error:
            raise Refused(self.kind, f"it raised {type(error).__name__} when it was built again") from error

    def same_besides(self, made: Any, value: Any) -> None:
        """Compare what two values of the same parts hold besides them.

        Raises:
            Misfit: if they differ.
        """

    def told(self, error: Exception) -> Misfit:
        """Return what was wrong, without the value where it may be a secret."""
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"][: 1 if self.hidden else None])) or "whole"
            what, why = f"its {where} is not valid", first["msg"]
        else:
            what, why = f"its class raises {type(error).__name__}", str(error)
        made = Misfit(what if self.hidden else f"{what}: {why[:200]}")
        made.why = None if self.hidden else error
        return made


def _without(name: str) -> Misfit:
    return Misfit(f"it was written without {name!r}, which has no default")


def _compare(found: Parts, wanted: Parts, given: frozenset[str]) -> None:
    for name, value in wanted.items():
        if found[name] is not value and name not in given and not same(found[name], value):
            msg = f"its field {name!r} comes back as another value: a validator changes it, or it was never valid"
            raise Misfit(msg)


class ModelPlan(Plan):
    """How pydantic models are taken apart and built again.

    Attributes:
        all_names: the names of its fields.
        open: whether it takes values that are no fields.
        plain: for each field the classes of which it takes any value, and as it is; None if that cannot be told of all.
    """

    __slots__ = ("_defaults", "_private", "_root", "_validate", "all_names", "open", "plain")

    def __init__(self, kind: type[BaseModel]) -> None:
        """Complete the class.

        Raises:
            Refused: if it imports what its fields name.
        """
        if not kind.__pydantic_complete__:
            kind.model_rebuild()
        _refuse_imports(kind, kind.__pydantic_core_schema__)
        super().__init__(kind, tuple(kind.model_fields))
        self.all_names = set(self.names)
        self.open = kind.model_config.get("extra") == "allow"
        self._validate: Callable[..., Any] = kind.__pydantic_validator__.validate_python
        self._private = bool(kind.__private_attributes__)
        self._root = RootModel in kind.__mro__
        self._defaults: Parts = {
            name: info.default
            for name, info in kind.model_fields.items()
            if info.default is not PydanticUndefined and info.default_factory is None
        }
        self.plain = None if self.hidden or self._private else _plain(kind)

    def default(self, name: str, parts: Parts) -> Any:
        """Return the default of a field as pydantic would."""
        info = cast("type[BaseModel]", self.kind).model_fields[name]
        if info.is_required():
            raise _without(name)
        return info.get_default(call_default_factory=True, validated_data=parts)

    def of_plain(self, data: Parts) -> Any:
        """Return the model that data say whose fields are plain, None where they must be read one by one.

        What pydantic made of the class takes exactly these types, and as they are.
        """
        parts = data.copy()
        del parts["$"]
        if parts.keys() != self.all_names:
            return None
        for part in parts.values():
            kind = class_of(part)
            if kind is str:
                if not part.isascii():
                    return None
            elif kind is int and not -_FAR < part < _FAR:
                return None
        try:
            return self._validate(parts, strict=True, by_alias=False, by_name=True)
        except Exception:  # noqa: BLE001 - there it is said what is wrong
            return None

    def build_model(
        self,
        held: Parts,
        chosen: set[str] | None,
        extra: Parts | None,
        given: frozenset[str] = NONE,
        like: Parts | None = None,
    ) -> Any:
        """Return a model with exactly these values.

        Args:
            held: the values of the fields.
            chosen: the names that count as set; None for all of them.
            extra: values that are no fields; None where the class allows none.
            given: the fields that are secrets which a person gave, and may be converted.
            like: what the fields must have then, if not what is held: that may be copies.

        Raises:
            Misfit: if there is none.
        """
        values: Any = held.copy()
        if chosen is not None:
            for name, default in self._defaults.items():
                if name not in chosen and (values[name] is default or same(values[name], default)):
                    del values[name]  # a default need not be valid, and is not validated
        if extra:
            values.update(extra)
        if self._root:
            values = values.get("root", PydanticUndefined)
        try:
            made = self._validate(values, strict=not given, by_alias=False, by_name=True)
        except Exception as error:
            raise self.told(error) from error
        if type(made) is not self.kind:
            msg = "its validator makes something else of it"
            raise Misfit(msg)
        found = made.__dict__
        if len(found) != len(held):
            msg = "its validators give it more than its fields"
            raise Misfit(msg)
        wanted = like or held
        if not all(map(operator.is_, found.values(), map(wanted.__getitem__, found))):  # else all is well
            _compare(found, wanted, given)
        if (extra or made.__pydantic_extra__) and not same(made.__pydantic_extra__, extra):
            msg = "its extra values come back otherwise"
            raise Misfit(msg)
        if chosen is not None:
            object.__setattr__(made, "__pydantic_fields_set__", chosen)
        return made

    def prove_model(self, value: Any, copied: Parts, chosen: set[str] | None) -> None:
        """Prove that a model can be built again.

        Args:
            value: the model.
            copied: the values of its fields, with copies of what could be changed while it is built again.
            chosen: the names that count as set; None for all of them.

        Raises:
            Refused: if it cannot.
        """
        try:
            made = self.build_model(copied, chosen, value.__pydantic_extra__, like=value.__dict__)
            different = self._private and not same(made.__pydantic_private__, value.__pydantic_private__)
        except Misfit as error:
            raise Refused(self.kind, str(error)) from error.why
        except Exception as error:
            raise Refused(self.kind, f"it raised {type(error).__name__} when it was built again") from error
        if different:
            raise Refused(self.kind, "its private attributes are not stored: make fields of them")


_FAR: Final = 1 << 64
_PLAIN_TYPES: Final[Mapping[str, type[Any]]] = {"str": str, "int": int, "bool": bool, "none": type(None)}
_PLAIN_CONFIG: Final = frozenset({"title", "frozen", "extra_fields_behavior"})


def _plain(kind: type[BaseModel]) -> dict[str, frozenset[type[Any]]] | None:
    """Return for each field of a model the classes of which it takes any value as it is, by what pydantic made of it.

    Where anything of the user's takes part, a validator, a constraint, a setting, nothing is told.
    """
    schema: Any = kind.__pydantic_core_schema__
    if (
        type(kind.__pydantic_validator__) is not SchemaValidator
        or schema["type"] != "model"
        or schema.get("custom_init")
        or schema.get("root_model")
        or schema.get("post_init")
        or not schema.get("config", {}).keys() <= _PLAIN_CONFIG
        or schema.get("config", {}).get("extra_fields_behavior") == "allow"
        or schema["schema"]["type"] != "model-fields"
    ):
        return None
    found: dict[str, frozenset[type[Any]]] = {}
    for name in kind.model_fields:
        field = schema["schema"]["fields"][name]
        part = field["schema"]["schema"] if field["schema"]["type"] == "default" else field["schema"]
        many = part["type"] == "nullable" and part.keys() == {"type", "schema"}
        one = part["schema"] if many else part
        if one.keys() != {"type"} or one["type"] not in _PLAIN_TYPES:
            return None
        found[name] = frozenset({_PLAIN_TYPES[one["type"]], *([type(None)] if many else [])})
    return found


class DataPlan(Plan):
    """How dataclasses are taken apart and built again: by their constructor."""

    __slots__ = ("_build", "_check", "_get", "_more")

    def __init__(self, kind: type[Any]) -> None:
        """Look at the fields."""
        fields = dataclasses.fields(kind)
        super().__init__(kind, tuple(field.name for field in fields))
        self._check = checker(self)
        self._get = getter(self.names)
        self._build = _OWN.get(kind) or self._constructor(tuple(field.name for field in fields if field.init))
        slots = (vars(base).get("__slots__", ()) for base in kind.__mro__)
        flat = [name for found in slots for name in ((found,) if isinstance(found, str) else found)]
        self._more = tuple(name for name in flat if name not in {*self.names, "__weakref__", "__dict__"})

    def parts(self, value: Any) -> Parts:
        """Return the values of the fields, and refuse attributes besides them."""
        try:
            found = dict(zip(self.names, self._get(value), strict=True))
            held = getattr(value, "__dict__", None)
        except Exception as error:
            raise Refused(self.kind, f"one of its fields raised {type(error).__name__}") from error
        if held:
            only(self.kind, held, self.names)
        return found

    def build(self, parts: Parts, given: frozenset[str] = NONE, like: Parts | None = None) -> Any:
        """Return what the constructor makes of them, if it has the same fields."""
        checked = self._check(parts, given)
        try:
            made = self._build(checked)
        except Exception as error:
            raise self.told(error) from error
        if type(made) is not self.kind:
            msg = "its constructor makes something else of it"
            raise Misfit(msg)
        wanted = like or checked
        for name, found in zip(self.names, self._get(made), strict=True):
            if found is not wanted[name] and not same(found, wanted[name]):
                msg = f"its field {name!r} comes back as another value from its constructor"
                raise Misfit(msg)
        return made

    def default(self, name: str, parts: Parts) -> Any:  # noqa: ARG002 - those of pydantic's models may look at others
        """Return the default of a field."""
        field = self.kind.__dataclass_fields__[name]
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        if field.default is dataclasses.MISSING:
            raise _without(name)
        return field.default

    def same_besides(self, made: Any, value: Any) -> None:
        """Compare slots that are no fields."""
        if any(not same(getattr(made, name, None), getattr(value, name, None)) for name in self._more):
            msg = "it has slots that are no fields: make fields of them"
            raise Misfit(msg)

    def _constructor(self, taken: tuple[str, ...]) -> Callable[[Parts], Any]:
        kind: Any = self.kind
        if "__pydantic_validator__" not in vars(kind):
            if taken == self.names:
                return lambda parts: kind(**parts)
            return lambda parts: kind(**{name: parts[name] for name in taken})
        rebuild_dataclass(kind)  # it is a dataclass of pydantic
        _refuse_imports(kind, kind.__pydantic_core_schema__)
        validate = kind.__pydantic_validator__.validate_python
        return lambda parts: validate(
            ArgsKwargs((), {name: parts[name] for name in taken}), by_alias=False, by_name=True
        )


class TuplePlan(Plan):
    """How NamedTuples are taken apart and built again: without their constructor, which may be anything."""

    __slots__ = ("_check",)

    def __init__(self, kind: type[Any]) -> None:
        """Look at the fields."""
        super().__init__(kind, tuple(kind._fields))
        self._check = checker(self)

    def parts(self, value: Any) -> Parts:
        """Return the items by the names of the fields."""
        items: tuple[Any, ...] = tuple(_items(value))
        if len(items) != len(self.names) or getattr(value, "__dict__", None):
            raise Refused(self.kind, "it holds more than its fields, or less")
        return dict(zip(self.names, items, strict=True))

    def default(self, name: str, parts: Parts) -> Any:  # noqa: ARG002 - as above
        """Return the default of an item."""
        defaults = cast("Mapping[str, Any]", self.kind._field_defaults)
        if name not in defaults:
            raise _without(name)
        return defaults[name]

    def build(self, parts: Parts, given: frozenset[str] = NONE, like: Parts | None = None) -> Any:
        """Return a tuple of them."""
        return _new_tuple(self.kind, (like or self._check(parts, given)).values())


_items: Final[Callable[[Any], Any]] = cast("Any", tuple).__iter__
_new_tuple: Final[Callable[..., Any]] = cast("Any", tuple).__new__


class EnumPlan(Plan):
    """How members of enums are named, and found again."""

    __slots__ = ()

    def __init__(self, kind: type[Any]) -> None:
        """Take the class; a member has no fields."""
        super().__init__(kind, ())

    def write(self, member: Any) -> Parts:
        """Return the name of a member, or the value of a combination of flags.

        Raises:
            Refused: if it is neither.
        """
        members = cast("Mapping[str, Any]", self.kind.__members__)
        name = member._name_
        if isinstance(name, str) and members.get(name) is member:
            return {"is": name}
        if isinstance(member, enum.Flag) and type(member._value_) is int:
            return {"value": member._value_}
        raise Refused(self.kind, "it is no member of its enum")

    def read(self, data: Parts) -> Any:
        """Return the member that was written.

        Raises:
            Misfit: if there is none.
        """
        found: Any = None
        match data:
            case {"is": str(name)}:
                found = self.kind.__members__.get(name)
            case {"value": int(value)} if type(value) is int and issubclass(self.kind, enum.Flag):
                with contextlib.suppress(ValueError):
                    found = self.kind(value)
            case _:
                pass
        if type(found) is not self.kind or self.write(found) != data:
            msg = f"no member is {short(data)}"
            raise Misfit(msg)
        return found


# --- parts of plans --------------------------------------------------------------------------------------------------

_OWN: Final[dict[type[Any], Callable[[Parts], Any]]] = {
    Delegate: lambda parts: Delegate(*parts["calls"], update=parts["update"]),
}
"""Classes of ours whose constructor takes something else than the fields by name."""


def plan_of(kind: type[Any]) -> Plan:
    """Return the plan of a class that can be stored.

    Raises:
        Refused: if its values can never be built again.
    """
    try:
        if BaseModel in kind.__mro__:
            return ModelPlan(kind)
        if enum.Enum in kind.__mro__:
            return EnumPlan(kind)
        return DataPlan(kind) if dataclasses.is_dataclass(kind) else TuplePlan(kind)
    except Refused:
        raise
    except Exception as error:
        raise Refused(kind, f"its class cannot be read ({type(error).__name__}: {str(error)[:200]})") from error


def getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets all fields at once."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


_IMPORTS: Final = re.compile(r"\bimport_string\b|\bImportString\._")


def _refuse_imports(kind: type[Any], schema: object) -> None:
    """Refuse a class that imports what a text names: what a journal holds must never be imported."""
    if _IMPORTS.search(repr(schema)):
        raise Refused(kind, "it imports what its ImportString fields name; store the names as str")


def checker(plan: Plan) -> Callable[[Parts, frozenset[str]], Parts]:
    """Return what checks the fields of a class against their annotations, as far as these can be read.

    It raises `Misfit`, and returns the parts, those converted that a person gave.
    """
    hints = hints_of(plan.kind)
    fields = {name: Any if isinstance(hints.get(name), str) else hints.get(name, Any) for name in plan.names}
    if all(hint is Any for hint in fields.values()):
        return lambda parts, _: parts
    if not _readable(fields):  # leave out the annotations that are in the way
        fields = {name: hint if _readable({name: hint}) else Any for name, hint in fields.items()}
    adapter = _adapter(fields)
    _refuse_imports(plan.kind, adapter.core_schema)
    validate = adapter.validator.validate_python

    def check(parts: Parts, given: frozenset[str]) -> Parts:
        try:
            made = validate(parts, strict=not given)
        except Exception as error:
            raise plan.told(error) from error
        return {**parts, **{name: made[name] for name in given}} if given else parts

    return check


def _readable(fields: Mapping[str, Any]) -> bool:
    try:
        _adapter(fields)
    except Exception:  # noqa: BLE001 - annotations are code
        return False
    return True


def _adapter(fields: Mapping[str, Any]) -> TypeAdapter[Any]:
    """Return what validates a dict of fields; raises whatever an annotation makes pydantic raise."""
    make: Any = TypedDict
    table = make("Fields", dict(fields))
    table.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    return TypeAdapter(table)
