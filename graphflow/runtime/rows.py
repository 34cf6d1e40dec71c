"""Records as rows: facts and decisions as compact JSON, and read back strictly.

A fact or a decision is an array: its kind, then its fields in order, without those at the end that have their default.
Paths stand as text and edges as arrays. Values of users go through the codec of the graph's declared types, so that
they come back exactly, or are refused where they are made.
"""

from __future__ import annotations

import functools
import json
import operator
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, cast

import pydantic_core
from pydantic import ConfigDict, PydanticUserError, TypeAdapter

from graphflow.errors import JournalDamaged, NotStorable
from graphflow.events import (
    FORMAT,
    Body,
    Decision,
    EdgeName,
    EffectFinished,
    Fact,
    NodeReturned,
    Record,
    Row,
    RunStarted,
    SessionStarted,
    kind_of,
)
from graphflow.graphs.kinds import kinds_in
from graphflow.model.codec import Codec, MissingSecrets, Unreadable
from graphflow.model.ids import Path, parse_path, path_text
from graphflow.runtime.core import failure_of

MIGRATIONS: Final[dict[int, Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]]] = {}
"""For each older format, what makes a fact and its decisions, as plain data, those of the next one."""


class Plan(NamedTuple):
    """How a kind of fact or decision is written.

    Attributes:
        kind: its class.
        name: what it is called.
        has_path: whether it says where it happened.
        get: returns its other fields, in order.
        names: their names.
        types: their types.
        defaults: their defaults.
        required: how many of them have none.
    """

    kind: type[Any]
    name: str
    has_path: bool
    get: Callable[[Any], tuple[Any, ...]]
    names: tuple[str, ...]
    types: tuple[Any, ...]
    defaults: tuple[Any, ...]
    required: int


class Unread(NamedTuple):
    """What an effect gave, of a class that the graph does not declare: its function may."""

    data: Any


_EXACT: Final = frozenset({int, str, bool})
"""The types of fields whose data are their values, without a further look."""


def _plan(kind: type[Any]) -> Plan:
    found = [item for item in fields(kind) if item.name != "path"]
    names = tuple(item.name for item in found)
    name = kind_of(cast("Hashable", kind)) + (f"/{FORMAT}" if kind in (RunStarted, SessionStarted) else "")
    hints = typing.get_type_hints(kind)
    types = tuple(hints[name] for name in names)
    defaults = tuple(item.default for item in found)
    required = sum(default is MISSING for default in defaults)
    return Plan(kind, name, "path" in hints, _getter(names), names, types, defaults, required)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return cast("Callable[[Any], tuple[Any, ...]]", operator.attrgetter(*names))
    return lambda body: tuple(getattr(body, name) for name in names)


_PLAIN: Final = frozenset({int, bool, type(None), EdgeName})
"""The classes whose values stand as they are; so do texts of ASCII."""


class Rows:
    """Writes and reads the rows of one graph's runs."""

    def __init__(self, codec: Codec) -> None:
        """Take what stores values."""
        self._codec = codec
        self._results = codec  # for what effects give
        self._path: Path = ()
        self._text = ""

    # --- writing ---

    def storable(self, fact: Fact) -> tuple[Fact, str]:
        """Return a fact and its text; what came of a node becomes a failure of that node if it cannot be stored.

        Raises:
            NotStorable: if a value in another fact cannot be stored.
        """
        try:
            return fact, _text(self._array(fact))
        except NotStorable as error:
            if not isinstance(fact, NodeReturned | EffectFinished):
                what = type(fact).__name__
                raise NotStorable(f"the fact {what}", error.where, error.kind, error.hint) from error
            what = "the outcome" if isinstance(fact, NodeReturned) else f"the result of {fact.key!r}"
            named = NotStorable(f"{what} of {path_text(fact.path)!r}", error.where, error.kind, error.hint)
            failure = failure_of(named, "invalid_value")
            if isinstance(fact, NodeReturned):
                fact = NodeReturned(fact.path, fact.turn, fact.attempt, failure=failure)
            else:
                fact = EffectFinished(fact.path, fact.turn, fact.attempt, fact.key, failure=failure, usage=fact.usage)
            return fact, _text(self._array(fact))

    def decisions(self, decisions: Sequence[Decision]) -> str:
        """Return decisions as text."""
        return _text([self._array(decision) for decision in decisions])

    def check_result(self, value: object, what: str, fn: Callable[..., Any]) -> None:
        """Find out whether what an effect gave can be stored; the classes that its function declares can.

        Raises:
            NotStorable: if it cannot.
        """
        try:
            self._results.encode(value, what)
        except NotStorable:
            self._learn(fn)
            self._results.encode(value, what)

    def _learn(self, fn: Callable[..., Any]) -> None:
        """Let the classes that the function of an effect declares be written and read in results of effects.

        They are called by their full names: which others have been learnt before is a matter of the moment.
        """
        kinds = self._results.kinds.with_(kinds_in(fn), briefly=False)
        self._results = Codec(kinds, self._codec.secrets)

    def check(self, value: object, what: str) -> None:
        """Find out whether a value can be stored.

        Raises:
            NotStorable: if it cannot.
        """
        self._codec.encode(value, what)

    def _array(self, body: Any) -> list[Any]:
        """Return a fact or a decision as an array: its kind, its path if it has one, its other fields."""
        plan = PLANS[type(body)]
        values = plan.get(body)
        count, defaults = len(values), plan.defaults
        while count > plan.required and values[count - 1] is defaults[count - 1]:
            count -= 1
        made: list[Any] = [plan.name]
        if plan.has_path:
            if body.path is not self._path:
                self._path, self._text = body.path, path_text(body.path)
            made.append(self._text)
        for value in values[:count]:
            kind = cast("type[Any]", type(value))
            if kind in _PLAIN or (kind is str and value.isascii()):
                made.append(value)
            else:
                codec = self._results if plan.kind is EffectFinished else self._codec
                made.append(codec.encode(value, "a value"))
        return made

    # --- reading ---

    def fact(self, run: str, row: Row) -> Fact:
        """Return the fact of a row.

        Raises:
            JournalDamaged: if it is none.
        """
        return cast("Fact", self._read(run, row, _data(run, row, row.fact), _FACTS))

    @staticmethod
    def said_of_graph(run: str, row: Row) -> tuple[str, Any] | None:
        """Return what a fact that begins a session says of its graph, without reading its values.

        Returns:
            The fingerprint and the parts, None for parts that are not said; None for any other fact.

        Raises:
            JournalDamaged: if the row holds no fact.
        """
        if not row.fact.startswith(_SESSIONS):
            return None
        name, *values = _data(run, row, row.fact)
        plan = _FACTS.get(name)
        said: dict[str, Any] = {} if plan is None else dict(zip(plan.names, values, strict=False))
        found, parts = said.get("fingerprint"), said.get("parts")
        if not isinstance(found, str) or not (parts is None or isinstance(parts, dict)):
            raise JournalDamaged(run, row.seq, "it does not say of which graph it is.")
        return found, cast("Any", parts)

    def record(self, run: str, row: Row) -> Record:
        """Return a row as a record.

        Raises:
            JournalDamaged: if it is none.
        """
        found = _data(run, row, row.decisions)
        decisions = tuple(cast("Decision", self._read(run, row, item, _DECISIONS)) for item in found)
        return Record(row.seq, row.at, self.fact(run, row), decisions)

    def _read(self, run: str, row: Row, data: Any, kinds: Mapping[str, Plan]) -> Body:
        name: Any = None
        path: Path | None = None
        try:
            name, *values = data
            plan = kinds[name]
            if plan.has_path:
                path = _exactly(parse_path(values[0]), values.pop(0))
            if not plan.required <= len(values) <= len(plan.names):
                msg = f"{name} has {len(values)} values"
                raise ValueError(msg)
            made = {
                field: self._value(plan, field, kind, item)
                for field, kind, item in zip(plan.names, plan.types, values, strict=False)
            }
            return cast("Body", plan.kind(**made) if path is None else plan.kind(path=path, **made))
        except MissingSecrets:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            where = f" of {path_text(path)!r}" if path else ""
            what = f"there is no {name!r}" if isinstance(error, KeyError) else f"in the {name}{where}: {error}"
            raise JournalDamaged(run, row.seq, _short(what)) from error

    def _result(self, data: Any) -> Any:
        """Return what an effect gave; where only its function declares the class, not yet."""
        try:
            return self._codec.decode(data)
        except Unreadable:
            return Unread(data)

    def reread(self, value: Any, fn: Callable[..., Any]) -> Any:
        """Return what an effect gave; where only its function declares the class, it is read now.

        Raises:
            ValueError: if it cannot be read even so.
        """
        if type(value) is not Unread:
            return value
        self._learn(fn)
        return self._results.decode(value.data)

    def _value(self, plan: Plan, name: str, kind: Any, data: Any) -> Any:
        if kind is EdgeName:
            return _adapter(EdgeName).validate_python(EdgeName(*data), strict=True)
        if plan.kind is EffectFinished and name == "result":
            return self._result(data)
        if type(data) is kind and kind in _EXACT:
            return data
        value: Any = self._codec.decode(data)
        return value if kind is Any else _adapter(kind).validate_python(value, strict=True)


def _exactly(path: Path, text: object) -> Path:
    if path_text(path) != text:
        msg = f"{text!r} is no path as it is written"
        raise ValueError(msg)
    return path


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    config = ConfigDict(arbitrary_types_allowed=True)
    try:
        return TypeAdapter(kind, config=config)
    except PydanticUserError:  # a class that brings a configuration of its own
        return TypeAdapter(kind)


def upgraded(run: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of a run in the present format; each session of it says in which it has written.

    Raises:
        JournalDamaged: if the first is not the start of a run, or a format is not known.
    """
    if rows and (rows[0].seq != 0 or not rows[0].fact.startswith(_SESSIONS[0])):
        raise JournalDamaged(run, rows[0].seq, "it does not begin with the start of a run.")
    made: list[Row] = []
    version = FORMAT
    for row in rows:
        if row.fact.startswith(_SESSIONS):
            version = _format_of(run, row)
        made.append(row if version == FORMAT else _migrated(run, row, version))
    return made


def _migrated(run: str, row: Row, version: int) -> Row:
    fact, decisions = _data(run, row, row.fact), _data(run, row, row.decisions)
    for older in range(version, FORMAT):
        fact, decisions = MIGRATIONS[older](fact, decisions)
    return Row(row.seq, row.at, _text(fact), _text(decisions))


def _format_of(run: str, row: Row) -> int:
    name = str(_data(run, row, row.fact)[0])
    _, _, version = name.partition("/")
    if not version.isdecimal() or len(version) > 6:  # noqa: PLR2004 - enough for any
        raise JournalDamaged(run, row.seq, f"it begins with {_short(name)!r}, which says no format.")
    found = int(version)
    if found > FORMAT or any(older not in MIGRATIONS for older in range(found, FORMAT)):
        what = f"it is of format {found}, and this version of graphflow reads formats up to {FORMAT}."
        raise JournalDamaged(run, row.seq, what)
    return found


_SESSIONS: Final = tuple(f'["{kind_of(cast("Hashable", kind))}/' for kind in (RunStarted, SessionStarted))
"""How the rows begin that say in which format what follows them is written."""


def _data(run: str, row: Row, text: str) -> list[Any]:
    try:
        try:
            found: Any = pydantic_core.from_json(text, allow_inf_nan=False)
        except (ValueError, TypeError):
            found = json.loads(text)  # slower, and reads text that is no Unicode
    except (ValueError, RecursionError) as error:
        raise JournalDamaged(run, row.seq, f"it is no JSON ({_short(str(error))}).") from error
    if not isinstance(found, list):
        raise JournalDamaged(run, row.seq, "it is no array.")
    return cast("list[Any]", found)


def same(one: str, other: str) -> bool:
    """Tell whether two texts of decisions say the same."""
    if one == other:
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _text(data: Any) -> str:
    try:
        return pydantic_core.to_json(data).decode()
    except pydantic_core.PydanticSerializationError:  # a name that is no Unicode
        return json.dumps(data, allow_nan=False)


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 200 else line[:197] + "..."  # noqa: PLR2004 - a line of an error


PLANS: Final[dict[type[Any], Plan]] = {kind: _plan(kind) for kind in (*Fact.__args__, *Decision.__args__)}
_FACTS: Final = {PLANS[kind].name: PLANS[kind] for kind in Fact.__args__}
_DECISIONS: Final = {PLANS[kind].name: PLANS[kind] for kind in Decision.__args__}
