"""JSON data on their way to values: what is not exactly what was written is `Unreadable`, with its place.

Nothing here imports a module or calls a name that stands in the data: names are looked up in frozen tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar, cast

from graphflow.model.exact import DEEPEST, Refused, SecretNames, Unreadable, key_step, kind_name, short
from graphflow.model.frozen import FrozenDict, class_of
from graphflow.model.kinds import Kinds
from graphflow.model.outcome import NOTHING, Update
from graphflow.model.plans import EnumPlan, Misfit, ModelPlan, Plan
from graphflow.model.scalars import READERS, WRITERS, is_text, read_scalar, read_text
from graphflow.model.secrets import SECRET_TYPES, MissingSecrets
from graphflow.model.typevalues import read_type

T = TypeVar("T")
Data = dict[str, Any]


class Reading:
    """JSON data on their way to a value.

    Attributes:
        fills: whether a field that is missing is given its default: what is read may be older than its class.
    """

    __slots__ = ("_kinds", "_names", "_plain", "_secrets", "fills")

    def __init__(self, kinds: Kinds, secrets: Mapping[str, object], names: SecretNames | None = None) -> None:
        """Take the classes of the graph, the values of secrets by name, and who takes note of those that were found."""
        self._kinds = kinds
        self._secrets = secrets
        self._names = names
        self.fills = False
        self._plain: dict[str, ModelPlan] = {}  # of the classes met so far, those whose models are plain

    def read(self, data: Any, depth: int) -> Any:
        """Read one value.

        Args:
            data: JSON data.
            depth: how many values it stands in.

        Raises:
            Unreadable: if the data are none.
            MissingSecrets: if a secret is asked for that was not given.
        """
        kind = class_of(data)
        if kind is str:
            return data if data.isascii() else read_text(data)
        if kind is dict or kind is list:
            if depth >= DEEPEST:
                msg = f"more than {DEEPEST} values stand inside each other"
                raise Unreadable(msg)
            if kind is list:
                return tuple(self.items(data, depth))
            if "$" not in data:
                return FrozenDict(self._table(data, depth, dollar=False))
            tag = data["$"]
            if type(tag) is not str:
                msg = f"{short(tag)} is no tag"
                raise Unreadable(msg)
            plain = self._plain.get(tag)
            made = None if plain is None else plain.of_plain(data)
            return self._tagged(tag, data, depth) if made is None else made
        if data is None or kind is bool:
            return data
        if kind is not int and kind is not float:
            msg = f"{kind_name(kind)} is no JSON"
            raise Unreadable(msg)
        if not -_FAR < data < _FAR and WRITERS[kind](data) is not data:  # so is NaN, which is not less
            msg = "a number that is not written so"
            raise Unreadable(msg)
        return data

    def _tagged(self, tag: str, data: Data, depth: int) -> Any:
        if tag == "Update" and len(data) == 2 and "of" in data:  # noqa: PLR2004 - as below
            return self.update(data["of"], depth)
        readers = _READ.get(tag)
        if readers is None:
            if tag in READERS:
                return read_scalar(data)
            if tag == "secret":
                return self._wrapped(data)
            if tag == "NOTHING" and len(data) == 1:
                return NOTHING
            return self._instance(self._kinds.named(tag), data, depth)
        first, *more = data
        form = more[0] if more and first == "$" else first
        read = readers.get(form)
        if read is None or len(data) != 2:  # noqa: PLR2004 - the tag, and what stands in it
            msg = f"a {tag} with {short(sorted(map(str, data)))}"
            raise Unreadable(msg)
        return read(self, data[form], depth)

    # --- containers ---

    def items(self, data: Any, depth: int) -> list[Any]:
        """Read the items of an array.

        Raises:
            Unreadable: if it is none, or one of them is no value.
        """
        made: list[Any] = []
        try:
            for item in _array(data):
                made.append(self.read(item, depth + 1))  # noqa: PERF401 - its length says where an error is
        except Unreadable as error:
            error.step(f"[{len(made)}]")
            raise
        return made

    def _table(self, data: Any, depth: int, *, dollar: bool) -> Data:
        items = _object(data).items()
        made: Data = {}
        key = ""
        try:
            for key, item in items:
                if not (key.isascii() or is_text(key)) or (not dollar and key[:1] == "$"):
                    msg = f"{short(key)} is no key"
                    raise Unreadable(msg)
                made[key] = self.read(item, depth + 1)
        except Unreadable as error:
            error.step(key_step(key))
            raise
        return made

    def table(self, data: Any, depth: int) -> Data:
        """Read a dict whose keys are texts."""
        return self._table(data, depth, dollar=True)

    def pairs(self, data: Any, depth: int) -> dict[Any, Any]:
        """Read a dict of any keys."""
        pairs: list[tuple[Any, Any]] = []
        for pair in _array(data):
            pairs.append(self._pair(pair, depth, len(pairs)))
        return _hashed(lambda: dict(pairs), len(pairs))

    def _pair(self, pair: Any, depth: int, place: int) -> tuple[Any, Any]:
        """Read a key and its value."""
        parts = _array(pair)
        if len(parts) != 2:  # noqa: PLR2004 - a pair
            msg = "a pair is needed"
            raise Unreadable(msg)
        step = f"[{place}] (the key)"
        try:
            key = self.read(parts[0], depth + 1)
            step = key_step(key)
            return key, self.read(parts[1], depth + 1)
        except Unreadable as error:
            error.step(step)
            raise

    def members(self, data: Any, depth: int) -> set[Any]:
        """Read a set."""
        items = self.items(data, depth)
        return _hashed(lambda: set(items), len(items))

    def update(self, data: Any, depth: int) -> Update:
        """Read an update."""
        parts = _object(data).items()
        made: Data = {}
        field = ""
        try:
            for field, part in parts:
                if not (field.isascii() or is_text(field)):
                    msg = "this is no name of a field"
                    raise Unreadable(msg)
                if field in self._kinds.secrets and _is_secret(part):
                    made[field] = self._secret(part)
                else:
                    made[field] = self.read(part, depth + 1)
        except Unreadable as error:
            error.step(f".{field}")
            raise
        return Update(**made)

    def type_value(self, data: Any, depth: int) -> Any:
        """Read a type."""
        return read_type(data, self._kinds.named, lambda item: self.read(item, depth + 1))

    # --- secrets ---

    def _secret(self, data: Data) -> Any:
        """Return the value of a secret as it was given, in pydantic's class for it if it was one."""
        name, kind = data.get("name"), data.get("kind", "")
        if (
            type(name) is not str
            or data.keys() - {"$", "name", "kind"}
            or (kind != "" and (type(kind) is not str or kind not in SECRET_TYPES))
        ):
            msg = "this asks for no secret"
            raise Unreadable(msg)
        if name not in self._secrets:
            raise MissingSecrets([name])
        value = self._secrets[name]
        if not kind or isinstance(value, SECRET_TYPES[kind]):
            return value
        if kind != "Secret" and not isinstance(value, bytes if kind == "SecretBytes" else str):
            msg = f"the secret {name!r} was given as {kind_name(type(value))}"
            raise Unreadable(msg)
        return SECRET_TYPES[kind](value)

    def _wrapped(self, data: Data) -> Any:
        """Return a secret in its class; one without a class stands in marked fields alone, lest it be shown."""
        if not data.get("kind"):
            msg = "a secret stands where none belongs"
            raise Unreadable(msg)
        return self._secret(data)

    # --- classes of the graph ---

    def _instance(self, kind: type[Any], data: Data, depth: int) -> Any:
        """Read a value of a class of the graph."""
        try:
            plan = self._kinds.plan(kind)
            if isinstance(plan, ModelPlan):
                if plan.plain is not None:
                    self._plain[data["$"]] = plan  # the next one may be read at once
                return self._model(plan, data, depth)
            if isinstance(plan, EnumPlan):
                return plan.read({name: part for name, part in data.items() if name != "$"})
            return self._fields(plan, data, depth)
        except Misfit as error:
            msg = f"a {data['$']} that is not valid: {error}"
            raise Unreadable(msg) from error.why
        except Refused as error:
            msg = f"the class {data['$']!r} cannot be read: {error.hint}"
            raise Unreadable(msg) from error.__cause__
        except (Unreadable, MissingSecrets, RecursionError):
            raise
        except Exception as error:
            msg = f"a {data['$']} that cannot be built ({type(error).__name__})"
            raise Unreadable(msg) from error

    def _fields(self, plan: Plan, data: Data, depth: int) -> Any:
        others = len(data) != len(plan.names) + 1 or not data.keys() >= set(plan.names)
        if others and not (self.fills and data.keys() - _TAG <= set(plan.names)):
            raise _other_fields(plan, data)
        parts, given = self._parts(plan, data, depth)
        return self._known(plan.build(parts, given), data, given)

    def _model(self, plan: ModelPlan, data: Data, depth: int) -> Any:
        more: AbstractSet[str] = _TAG
        if len(data) != len(plan.names) + 1 or not data.keys() >= plan.all_names:
            more = data.keys() - plan.all_names
            if not more <= _BESIDES or not (self.fills or len(data) - len(more) == len(plan.names)):
                raise _other_fields(plan, data)
        parts, given = self._parts(plan, data, depth)
        extra: Data | None = {} if plan.open else None
        if len(more) > 1 and "$extra" in more:
            extra = self._table(data["$extra"], depth, dollar=True)
            if not extra or not extra.keys().isdisjoint(plan.all_names):
                msg = "values besides the fields that are fields, or none"
                raise Unreadable(msg)
        known = [*plan.names, *(extra or ())]
        chosen = _chosen(data, known) if len(more) > 1 else None
        if len(data) - len(more) < len(plan.names):  # what has its default was not set
            chosen = {name for name in (known if chosen is None else chosen) if name in data or name in (extra or ())}
        return self._known(plan.build_model(parts, chosen, extra, given), data, given)

    def _known(self, made: Any, data: Data, given: frozenset[str]) -> Any:
        """Take note of the secrets in an instance, for its class may have made something else of what was given."""
        if given and self._names is not None:
            for name in given:
                self._names.learn(data[name]["name"], getattr(made, name))
        return made

    def _parts(self, plan: Plan, data: Data, depth: int) -> tuple[Data, frozenset[str]]:
        """Read the fields of an instance, and say which of them a person gave."""
        parts: Data = {}
        hidden = plan.hidden
        name = ""
        try:
            for name in plan.names:
                if name not in data:
                    parts[name] = plan.default(name, parts)
                    hidden -= {name}
                    continue
                part = data[name]
                if name not in hidden:
                    plain = type(part) is str and part.isascii()
                    parts[name] = part if plain else self.read(part, depth + 1)
                elif _is_secret(part):
                    parts[name] = self._secret(part)
                else:
                    msg = "a secret is needed"
                    raise Unreadable(msg)
        except Unreadable as error:
            error.step(f".{name}")
            raise
        return parts, hidden


_TEXT: Final = frozenset({str})

_TAG: Final = frozenset({"$"})

_BESIDES: Final = frozenset({"$", "$set", "$unset", "$extra"})
"""What may stand in a model beside its fields."""


def _chosen(data: Data, known: list[str]) -> set[str] | None:
    """Return the names that were set, None for all of them."""
    said = "$set" in data
    if not said and "$unset" not in data:
        return None
    some = _array(data["$set" if said else "$unset"])
    if some != [name for name in known if name in some] or (said and "$unset" in data) or not (said or some):
        msg = "it says that fields are set which it does not have"
        raise Unreadable(msg)
    return {name for name in known if (name in some) == said}


def _is_secret(data: Any) -> bool:
    return type(data) is dict and cast("Data", data).get("$") == "secret"


def _other_fields(plan: Plan, data: Data) -> Unreadable:
    odd = sorted((data.keys() - _BESIDES).symmetric_difference(plan.names)) or sorted(data.keys() & _BESIDES - {"$"})
    return Unreadable(f"a {data['$']} whose fields do not fit: {short(odd)}")


def _array(data: Any) -> list[Any]:
    if class_of(data) is not list:
        msg = "an array is needed"
        raise Unreadable(msg)
    found: list[Any] = data
    return found


def _object(data: Any) -> Data:
    if class_of(data) is not dict or not _TEXT.issuperset(map(class_of, data)):
        msg = "an object is needed"
        raise Unreadable(msg)
    found: Data = data
    return found


def _hashed(make: Callable[[], T], count: int) -> T:
    try:
        made = make()
    except TypeError as error:
        msg = "something in it has no hash"
        raise Unreadable(msg) from error
    if len(cast("Sized", made)) != count:
        msg = "something stands in it twice"
        raise Unreadable(msg)
    return made


_FAR: Final = 1 << 64
_Read = Callable[[Reading, Any, int], Any]

_READ: Final[dict[str, dict[str, _Read]]] = {
    "list": {"of": Reading.items},
    "set": {"of": Reading.members},
    "frozenset": {"of": lambda reading, data, depth: frozenset(reading.members(data, depth))},
    "dict": {"of": Reading.table, "pairs": Reading.pairs},
    "FrozenDict": {"pairs": lambda reading, data, depth: FrozenDict(reading.pairs(data, depth))},
    "type": {"is": Reading.type_value},
    "Update": {"of": Reading.update},
}
"""For each tag the name that stands beside it, and what reads what it holds."""
