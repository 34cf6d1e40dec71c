"""Records as rows: facts and decisions as compact JSON, and read back strictly.

A fact or a decision is an array: its kind, then its fields in order, without those at the end that have their default.
Paths stand as text and edges as arrays. Values of users go through the codec of the graph's declared types, so that
they come back exactly, or are refused where they are made.
"""

from __future__ import annotations

import functools
import json
import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, Literal, NamedTuple, cast

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json

from graphflow.errors import JournalDamaged, NotStorable, UsageError
from graphflow.events import (
    FORMAT,
    AnswerGiven,
    Decision,
    EdgeName,
    EdgeTaken,
    EffectFinished,
    Fact,
    NodeEnded,
    NodeReturned,
    NodeStarted,
    Record,
    Row,
    RunStarted,
    SessionStarted,
    kind_of,
)
from graphflow.graphs.kinds import kinds_in
from graphflow.model.codec import Codec, MissingSecrets, Unreadable, secrets_asked
from graphflow.model.frozen import class_of
from graphflow.model.ids import Path, Segment, parse_path, path_text
from graphflow.model.jsontext import compact_json, load_json
from graphflow.model.plans import getter
from graphflow.model.secrets import SHOWN
from graphflow.runtime.checksums import (
    carried,
    chained,
    checksum,
    fitting,
    has_checksum,
    with_checksum,
    without_checksum,
)
from graphflow.runtime.core import failure_of


def _from_1(fact: list[Any], decisions: list[Any]) -> tuple[list[Any], list[Any]]:
    """Bring a row up from the format that had no checksums: they are no part of what a row says."""
    begins = fact[:1] in (["run_started/1"], ["session_started/1"])
    return ([fact[0].replace("/1", "/2"), *fact[1:]] if begins else fact), decisions


MIGRATIONS: Final[dict[int, Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]]] = {1: _from_1}
"""For each older format, what makes a fact and its decisions, as plain data, those of the next one."""


class Plan(NamedTuple):
    """How a kind of fact or decision is read.

    Attributes:
        kind: its class.
        name: what it is called.
        path_at: the position of the field that says where it happened, or None.
        names: the names of its other fields, in order.
        types: their types.
        required: how many of them have no default.
    """

    kind: type[Any]
    name: str
    path_at: int | None
    names: tuple[str, ...]
    types: tuple[Any, ...]
    required: int


class Form(NamedTuple):
    """How a kind of fact or decision is written.

    Attributes:
        name: what it is called.
        has_path: whether it says where it happened.
        get: returns its other fields, in order.
        defaults: their defaults.
        required: how many of them have none.
        coded: the positions of those that the codec writes, unless they are plain; the rest are.
        edges: the positions of those that name an edge.
    """

    name: str
    has_path: bool
    get: Callable[[Any], tuple[Any, ...]]
    defaults: tuple[Any, ...]
    required: int
    coded: tuple[int, ...]
    edges: tuple[int, ...]


class Unread(NamedTuple):
    """What an effect gave, of a class that the graph does not declare: its function may.

    Attributes:
        data: as it is stored.
        older: whether another graph has written it.
    """

    data: Any
    older: bool = False


def _text_of(rows: Rows, body: Decision) -> str:
    return rows.of(body)


def _ended_text(rows: Rows, body: NodeEnded) -> str:
    return f'["node_ended",{rows.place(body.path)},"{body.status}"]' if body.reason is None else rows.of(body)


def _taken_text(rows: Rows, body: EdgeTaken) -> str:
    path = body.path
    place = to_json(path_text(path)).decode() if path else '""'  # beside those of visits, of which the last is kept
    return f'["edge_taken",{place},{rows.edge(body.edge)},{body.hop}]'


def _started_text(rows: Rows, body: NodeStarted) -> str:
    return f'["node_started",{rows.place(body.path)},{rows.edge(body.edge)}]'


_HOP: Final = len((NodeEnded, EdgeTaken, NodeStarted))
"""How many decisions a hop has."""

_TEXTS: Final[dict[type[Any], Callable[[Rows, Any], str]]] = {
    NodeEnded: _ended_text, EdgeTaken: _taken_text, NodeStarted: _started_text
}  # fmt: skip
"""How the decisions of a hop are written: as `Rows.of` writes them, in less time."""

_EXACT: Final = frozenset({int, str, bool})
"""The types of fields whose data are their values, without a further look."""

_PLAIN: Final = frozenset({int, bool, EdgeName, type(None)})
"""The types of fields whose values stand as they are: they are the library's own, never a user's."""

_FAR: Final = 1 << 64

_RETURNED: Final = f'["{kind_of(NodeReturned)}",'


def _plan(kind: type[Any]) -> Plan:
    every = [item.name for item in fields(kind)]
    found = [item for item in fields(kind) if item.name != "path"]
    name = kind_of(cast("Hashable", kind)) + (f"/{FORMAT}" if kind in (RunStarted, SessionStarted) else "")
    hints = typing.get_type_hints(kind)
    kinds = tuple(hints[item.name] for item in found)
    path_at = every.index("path") if "path" in hints else None
    required = sum(item.default is MISSING for item in found)
    return Plan(kind, name, path_at, tuple(item.name for item in found), kinds, required)


def _form(plan: Plan) -> Form:
    defaults = tuple(item.default for item in fields(plan.kind) if item.name != "path")
    coded = tuple(place for place, hint in enumerate(plan.types) if not _is_plain(hint))
    edges = tuple(place for place, hint in enumerate(plan.types) if hint is EdgeName)
    return Form(plan.name, plan.path_at is not None, getter(plan.names), defaults, plan.required, coded, edges)


def _is_plain(hint: Any) -> bool:
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return all(map(_is_plain, typing.get_args(hint)))
    return hint in _PLAIN or typing.get_origin(hint) is Literal


def _failed(fact: Fact, error: NotStorable) -> Fact:
    """Return what is recorded in place of a fact with a value that cannot be stored: that it failed.

    Raises:
        NotStorable: if the fact is none that can fail.
    """
    if not isinstance(fact, NodeReturned | EffectFinished):
        what = type(fact).__name__
        raise NotStorable(f"the fact {what}", error.where, error.kind, error.hint) from error
    what = "the outcome" if isinstance(fact, NodeReturned) else f"the result of {fact.key!r}"
    named = NotStorable(f"{what} of {path_text(fact.path)!r}", error.where, error.kind, error.hint)
    failure = failure_of(named, "invalid_value")
    if isinstance(fact, NodeReturned):
        return NodeReturned(fact.path, fact.turn, fact.attempt, failure=failure)
    return EffectFinished(fact.path, fact.turn, fact.attempt, fact.key, failure=failure, usage=fact.usage)


def _name_in(body: Any, kind: str) -> str:
    """Return what the value in a fact is called if it is a secret itself: by its question, its effect, or its kind."""
    if type(body) is AnswerGiven:
        return body.question
    if type(body) is EffectFinished:
        return body.key
    return "output" if type(body) is NodeReturned else kind


class Rows:
    """Writes and reads the rows of one graph's runs."""

    def __init__(self, codec: Codec) -> None:
        """Take what stores values."""
        self._codec = codec
        self._results = codec  # for what effects give
        self._older = False
        self._path: Path = ()
        self._text = ""
        self._before = 0  # the checksum of the last row
        self._place: Path = ()
        self._placed = '""'
        self._names: dict[str, str] = {}
        self._edges: dict[EdgeName, str] = {}

    # --- writing ---

    def storable(self, fact: Fact) -> tuple[Fact, str]:
        """Return a fact and its text; what came of a node becomes a failure of that node if it cannot be stored.

        Raises:
            NotStorable: if a value in another fact cannot be stored.
        """
        try:
            if type(fact) is NodeReturned and fact.failure is None and fact.cancelled is False:
                outcome, path = fact.outcome, fact.path
                data = None if outcome is None else self._codec.encode(outcome, "a value", "output")
                try:
                    place = self._placed if path is self._place else self.place(path)
                    if data is None:
                        return fact, f'["node_returned",{place},{fact.turn},{fact.attempt}]'
                    return fact, f'["node_returned",{place},{fact.turn},{fact.attempt},{to_json(data).decode()}]'
                except PydanticSerializationError:  # text that is no Unicode
                    pass
            return fact, compact_json(self._array(fact))
        except NotStorable as error:
            fact = _failed(fact, error)
            return fact, compact_json(self._array(fact))

    def decisions(self, decisions: Sequence[Decision]) -> str:
        """Return decisions as text; those of a hop in the root are put together at once."""
        try:
            if len(decisions) == _HOP:
                ended, taken, started = decisions
                if (
                    type(ended) is NodeEnded and type(taken) is EdgeTaken and type(started) is NodeStarted
                    and ended.reason is None and not taken.path
                ):  # fmt: skip
                    place = self._placed if ended.path is self._place else self.place(ended.path)
                    edge = self._edges.get(taken.edge) or self.edge(taken.edge)
                    onto = edge if started.edge is taken.edge else self.edge(started.edge)
                    return (
                        f'[["node_ended",{place},"{ended.status}"],["edge_taken","",{edge},{taken.hop}],'
                        f'["node_started",{self.place(started.path)},{onto}]]'
                    )
            return f"[{','.join([_TEXTS.get(type(body), _text_of)(self, body) for body in decisions])}]"
        except PydanticSerializationError:  # text that is no Unicode
            return compact_json([*map(self._array, decisions)])

    # What comes at every hop is put together from texts that are made once, or once for each visit.

    def place(self, path: Path) -> str:
        """Return a path as JSON; a visit's own is asked for again and again.

        Raises:
            PydanticSerializationError: if it holds text that is no Unicode.
        """
        if path is self._place:
            return self._placed
        if len(path) == 1:
            name, visit, lanes, call = path[0]
            if call is None and not lanes and visit > 1:
                text = f'{self._names.get(name) or self._named(name)}:{visit}"'
                self._place, self._placed = path, text
                return text
        text = to_json(path_text(path)).decode()
        self._place, self._placed = path, text
        return text

    def _named(self, name: str) -> str:
        """Return the beginning of a path as JSON that ends in a node, up to its name."""
        text = self._names[name] = to_json(path_text((Segment(name),))).decode()[:-1]
        return text

    def edge(self, edge: EdgeName) -> str:
        """Return the name of an edge as JSON.

        Raises:
            PydanticSerializationError: if it holds text that is no Unicode.
        """
        text = self._edges.get(edge)
        if text is None:
            text = self._edges[edge] = to_json((*edge,)).decode()
        return text

    def of(self, body: Fact | Decision) -> str:
        """Return a fact or a decision as JSON.

        Raises:
            PydanticSerializationError: if it holds text that is no Unicode.
        """
        return to_json(self._array(body)).decode()

    def row(self, seq: int, at: float, fact: str, decisions: Sequence[Decision]) -> Row:
        """Return a record as the row that follows the last one, whose checksum its own is chained to."""
        text = self.decisions(decisions)
        self._before = found = checksum(self._before, seq, at, fact, text)
        return Row(seq, at, fact, with_checksum(text, found))

    def follow(self, row: Row) -> None:
        """Let the next row be the one that follows a stored row, in the present format."""
        self._before = carried(row)

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
        self._results = Codec(kinds, self._codec.secrets, self._codec.names)

    def check(self, value: object, what: str) -> None:
        """Find out whether a value can be stored.

        Raises:
            NotStorable: if it cannot.
        """
        self._codec.encode(value, what)

    def _array(self, body: Any) -> list[Any]:
        """Return a fact or a decision as an array: its kind, its path if it has one, its other fields."""
        name, has_path, get, defaults, required, coded, edges = _FORMS[type(body)]
        values = get(body)
        count = len(values)
        while count > required and values[count - 1] is defaults[count - 1]:
            count -= 1
        if has_path:
            if body.path is not self._path:
                self._path, self._text = body.path, path_text(body.path)
            made = [name, self._text, *values[:count]]
        else:
            made = [name, *values[:count]]
        first = len(made) - count
        for place in edges:
            made[first + place] = (*values[place],)  # the serializer is slow where it meets a class of ours
        for place in coded:
            if place >= count:
                break
            value = values[place]
            kind = class_of(value)
            if kind is str:
                if value.isascii():
                    continue
            elif value is None or kind is bool or (kind is int and -_FAR < value < _FAR):
                continue
            codec = self._results if type(body) is EffectFinished else self._codec
            made[first + place] = codec.encode(value, "a value", _name_in(body, name))
        return made

    # --- reading ---

    def reads(self, *, older: bool) -> None:
        """Say whether another graph has written what is read next: fields that are missing have their defaults."""
        self._older = older
        self._codec.reads(older=older)

    def fact(self, run: str, row: Row) -> Fact:
        """Return the fact of a row.

        Raises:
            JournalDamaged: if it is none.
        """
        text = row.fact
        if text.startswith(_RETURNED):
            found = self._returned_in(text)
            if found is not None:
                return found
        fact: Fact = self._read(run, row, _data(run, row, text), _FACTS)
        return fact

    def _returned_in(self, text: str) -> NodeReturned | None:
        """Return the end of a node that has not failed: as `_read` does, in less time; None where it must tell more."""
        try:
            _, place, turn, attempt, *rest = from_json(text, allow_inf_nan=False)
            if type(turn) is not int or type(attempt) is not int or len(rest) > 1:
                return None
            return NodeReturned(_exactly(place), turn, attempt, self._codec.decode(rest[0]) if rest else None)
        except (TypeError, ValueError):
            return None

    @staticmethod
    def said_of_graph(run: str, row: Row) -> tuple[str, Any] | None:
        """Return what a fact that begins a session says of its graph, without reading its values.

        Returns:
            The fingerprint and the parts, None for parts that are not said; None for any other fact.

        Raises:
            JournalDamaged: if the row holds no fact.
        """
        if not row.fact.startswith(SESSIONS):
            return None
        name, *values = _data(run, row, row.fact)
        plan = _FACTS.get(name)
        said: dict[str, Any] = {} if plan is None else dict(zip(plan.names, values, strict=False))
        found, parts = said.get("fingerprint"), said.get("parts")
        if not isinstance(found, str) or not (parts is None or isinstance(parts, dict)):
            raise JournalDamaged(run, row.seq, "it does not say of which graph it is.")
        return found, cast("Any", parts)

    def lacking(self, stored: Sequence[Row]) -> MissingSecrets | None:
        """Return the error that names every secret that rows ask for and that was not given; None if there is none."""
        asked = frozenset[str]().union(*(secrets_asked(load_json(row.fact)) for row in stored))
        missing = asked.difference(self._codec.secrets)
        return MissingSecrets(missing) if missing else None

    def record(self, run: str, row: Row) -> Record:
        """Return a row as a record.

        Raises:
            JournalDamaged: if it is none.
        """
        found = _data(run, row, without_checksum(row.decisions))
        decisions = tuple(self._read(run, row, item, _DECISIONS) for item in found)
        return Record(row.seq, row.at, self.fact(run, row), decisions)

    def _read(self, run: str, row: Row, data: Any, kinds: Mapping[str, Plan]) -> Any:
        name: Any = None
        path: Path | None = None
        try:
            name, *values = data
            plan = kinds[name]
            path = _exactly(values.pop(0)) if plan.path_at is not None else None
            if not plan.required <= len(values) <= len(plan.names):
                msg = f"{name} has {len(values)} values"
                raise ValueError(msg)
            for place, kind in enumerate(plan.types[: len(values)]):
                item = values[place]
                if type(item) is not kind or kind not in _EXACT:
                    values[place] = self._value(plan, plan.names[place], kind, item)
            if path is None:
                return plan.kind(*values)
            if plan.path_at == 0:
                return plan.kind(path, *values)
            return plan.kind(path=path, **dict(zip(plan.names, values, strict=False)))
        except MissingSecrets:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            where = f" of {path_text(path)!r}" if path else ""
            if self._codec.secrets and secrets_asked(data):
                msg = f"a secret that was given does not fit the {name}{where} of the run {run!r}: {_short(str(error))}"
                raise UsageError(msg) from error
            what = f"there is no {name!r}" if isinstance(error, KeyError) else f"in the {name}{where}: {error}"
            raise JournalDamaged(run, row.seq, _short(what)) from error

    def _result(self, data: Any) -> Any:
        """Return what an effect gave; where only its function declares the class, not yet."""
        try:
            return self._codec.decode(data)
        except Unreadable:
            return Unread(data, self._older)

    def reread(self, value: Any, fn: Callable[..., Any]) -> Any:
        """Return what an effect gave; where only its function declares the class, it is read now.

        Raises:
            ValueError: if it cannot be read even so.
        """
        if type(value) is not Unread:
            return value
        self._learn(fn)
        self._results.reads(older=value.older)
        try:
            return self._results.decode(value.data)
        finally:
            self._results.reads(older=False)

    def _value(self, plan: Plan, name: str, kind: Any, data: Any) -> Any:
        if kind is EdgeName:
            return _adapter(EdgeName).validate_python(EdgeName(*data), strict=True)
        if plan.kind is EffectFinished and name == "result":
            return self._result(data)
        value: Any = self._codec.decode(data)
        return value if kind is Any else _adapter(kind).validate_python(value, strict=True)


_PLAIN_STEP: Final = re.compile(r"([^%/:~@]+)(?::([2-9]|[1-9][0-9]{1,17}))?")
"""A path of one step that can only be written like this."""


def _exactly(text: str) -> Path:
    plain = _PLAIN_STEP.fullmatch(text)
    if plain is not None:
        name, visit = plain.groups()
        return (Segment(name, 1 if visit is None else int(visit)),)
    path = parse_path(text)
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


def upgraded(run: str, rows: Sequence[Row], *, whole: bool = True) -> Sequence[Row]:
    """Return the rows of a run in the present format; each session of it says in which it has written.

    Args:
        run: the run's id.
        rows: its rows as they are stored, from the first on.
        whole: whether none is left out: then their checksums are looked at, and older rows get theirs.

    Raises:
        JournalDamaged: if the first is not the start of a run, a format is not known, or a checksum does not fit.
    """
    if rows and (rows[0].seq != 0 or not rows[0].fact.startswith(SESSIONS[0])):
        raise JournalDamaged(run, rows[0].seq, "it does not begin with the start of a run.")
    made: list[Row] = []
    version, before = 0, 0
    for row in rows:
        present = row
        if row.fact.startswith(SESSIONS):
            version = _format_of(run, row, version)
        if version != FORMAT:
            present = _migrated(run, row, version, before) if whole or not has_checksum(row.decisions) else row
            before = carried(present) if whole else 0
        elif whole:
            before = fitting(run, row, before)
        made.append(present)
    return made


def _migrated(run: str, row: Row, version: int, before: int) -> Row:
    """Return a row of an older format, none of which had checksums, in the present one."""
    if has_checksum(row.decisions):
        raise JournalDamaged(run, row.seq, f"it has a checksum, and rows of format {version} have none.")
    fact, decisions = _data(run, row, row.fact), _data(run, row, row.decisions)
    for older in range(version, FORMAT):
        fact, decisions = MIGRATIONS[older](fact, decisions)
    return chained([Row(row.seq, row.at, compact_json(fact), compact_json(decisions))], before)[0]


def _format_of(run: str, row: Row, before: int) -> int:
    name = str(_data(run, row, row.fact)[0])
    _, _, version = name.partition("/")
    if not version.isdecimal() or len(version) > 6:  # noqa: PLR2004 - enough for any
        raise JournalDamaged(run, row.seq, f"it begins with {_short(name)!r}, which says no format.")
    found = int(version)
    if found > FORMAT or any(older not in MIGRATIONS for older in range(found, FORMAT)):
        what = f"it is of format {found}, and this version of graphflow reads formats up to {FORMAT}."
        raise JournalDamaged(run, row.seq, what)
    if found < before:
        raise JournalDamaged(run, row.seq, f"it is of format {found}, and what stands before it of format {before}.")
    return found


SESSIONS: Final = tuple(f'["{kind_of(cast("Hashable", kind))}/' for kind in (RunStarted, SessionStarted))
"""How the rows begin that say in which format what follows them is written."""


def _data(run: str, row: Row, text: str) -> list[Any]:
    try:
        found = load_json(text)
    except (ValueError, RecursionError) as error:
        raise JournalDamaged(run, row.seq, f"it is no JSON ({_short(str(error))}).") from error
    if class_of(found) is not list:
        raise JournalDamaged(run, row.seq, "it is no array.")
    parts: list[Any] = found
    return parts


def same(one: str, other: str) -> bool:
    """Tell whether two texts of decisions say the same, the stored one and the one that is drawn now."""
    if one == other:
        return True
    try:
        stored, drawn = json.loads(one, object_hook=_unnamed), json.loads(other, object_hook=_unnamed)
        return bool(stored == drawn) or (SHOWN in other and _alike(stored, drawn))
    except (ValueError, RecursionError):
        return False


def _alike(stored: Any, drawn: Any) -> bool:
    """Tell whether data say the same but for secrets: older versions showed some of them in questions."""
    if isinstance(stored, str) and isinstance(drawn, str):
        parts = map(re.escape, _VEIL.split(drawn))
        return stored == drawn or re.fullmatch(".*".join(parts), stored, re.DOTALL) is not None
    if isinstance(stored, list) and isinstance(drawn, list):
        one, other = cast("list[Any]", stored), cast("list[Any]", drawn)
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(stored == drawn)


_VEIL: Final = re.compile(f"[\"']?{re.escape(SHOWN)}[\"']?")
"""What stands in a text instead of a secret, with the quotes of a text around it, which a number had not."""


def _unnamed(table: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a secret is called, for it is not compared: older versions named it in each value anew."""
    return {**table, "name": ""} if table.get("$") == "secret" else table


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 200 else line[:197] + "..."  # noqa: PLR2004 - a line of an error


PLANS: Final[dict[type[Any], Plan]] = {kind: _plan(kind) for kind in (*Fact.__args__, *Decision.__args__)}
_FORMS: Final[dict[type[Any], Form]] = {kind: _form(plan) for kind, plan in PLANS.items()}
_FACTS: Final = {PLANS[kind].name: PLANS[kind] for kind in Fact.__args__}
_DECISIONS: Final = {PLANS[kind].name: PLANS[kind] for kind in Decision.__args__}
