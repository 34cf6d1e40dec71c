"""Stored runs as they can be read without their graph: for display, with the values of users as plain data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from graphflow.errors import JournalDamaged, JournalError, UnknownRun
from graphflow.events import (
    AnswerGiven,
    BudgetAdded,
    CancelRequested,
    EffectFinished,
    Event,
    Journal,
    NodeEnded,
    Paused,
    Record,
    Row,
    RunEnded,
    RunStarted,
    SessionStarted,
    StoredRun,
    Warned,
    kind_of,
)
from graphflow.graphs.kinds import OURS
from graphflow.model.codec import Codec, MissingSecrets, Unreadable
from graphflow.model.contract import Reason
from graphflow.model.exact import DEEPEST
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import path_text
from graphflow.model.secrets import SHOWN
from graphflow.runtime.rows import Rows, upgraded
from graphflow.runtime.stored import IN_FACTS, check_order

OPEN: Final = "open"
"""How a run stands that has not ended: it is at work somewhere, or was broken off."""

UNREADABLE: Final = "unreadable"
"""How a run stands that cannot be read: something of it is not as it was written, or a newer version wrote it."""

_SEQUENCES: Final = frozenset({"list", "set", "frozenset"})
_TABLES: Final = frozenset({"dict", "FrozenDict", "Update"})


class PlainCodec(Codec):
    """Reads our own values exactly, and those of a graph's classes as tables of their fields.

    >>> PlainCodec().decode({"$": "Invoice", "number": "INV-311", "lines": [1, 2]})
    FrozenDict({'number': 'INV-311', 'lines': (1, 2)})
    """

    __slots__ = ()

    def __init__(self) -> None:
        """Take the classes that every graph has."""
        super().__init__(OURS.with_(IN_FACTS))

    def decode(self, data: Any) -> Any:
        """Return a value that was written; never raises."""
        return self._read(data, 0)

    def _read(self, data: Any, depth: int) -> Any:
        try:
            return super().decode(data)
        except (Unreadable, MissingSecrets):
            return self._plain(data, depth + 1) if depth < DEEPEST else "..."

    def _plain(self, data: Any, depth: int) -> Any:
        if isinstance(data, list):
            return tuple(self._read(item, depth) for item in cast("list[Any]", data))
        if not isinstance(data, dict):
            return data
        table = cast("dict[str, Any]", data)
        tag, inside = table.get("$"), table.get("of")
        if tag == "secret":
            return SHOWN
        if tag in _SEQUENCES and isinstance(inside, list):
            return self._plain(inside, depth)
        if tag in _TABLES:
            return FrozenDict(self._items(table, depth))
        fields = {name: item for name, item in table.items() if not name.startswith("$")}
        if fields.keys() == {"is"}:  # the member of an enum
            return self._read(fields["is"], depth)
        more = table.get("$extra")
        fields |= cast("dict[str, Any]", more) if isinstance(more, dict) else {}
        return FrozenDict({name: self._read(item, depth) for name, item in fields.items()})

    def _items(self, table: dict[str, Any], depth: int) -> dict[str, Any]:
        inside, pairs = table.get("of"), table.get("pairs")
        if isinstance(inside, dict):
            return {name: self._read(item, depth) for name, item in cast("dict[str, Any]", inside).items()}
        found = cast("list[Any]", pairs) if isinstance(pairs, list) else []
        items = [cast("list[Any]", pair) for pair in found if isinstance(pair, list)]
        return {_key(self._read(pair[0], depth)): self._read(pair[-1], depth) for pair in items if pair}


def _key(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored run as it can be read without its graph.

    Attributes:
        run: its id.
        rows: its rows, in the present format.
        records: the same as records, values of users as plain data.
    """

    run: str
    rows: Sequence[Row]
    records: Sequence[Record]

    @property
    def first(self) -> RunStarted:
        """How it began."""
        return cast("RunStarted", self.records[0].fact)

    def events(self) -> Iterator[Event]:
        """Yield all events."""
        for entry in self.records:
            yield from entry.events(self.run)


def read_rows(run: str, rows: Sequence[Row]) -> Stored:
    """Read the rows of a run without its graph.

    Raises:
        JournalDamaged: if they are no rows of this run, one after the other.
    """
    present = upgraded(run, rows)
    reader = Rows(PlainCodec())
    records = [reader.record(run, row) for row in present]
    first = records[0].fact if records else None
    if not isinstance(first, RunStarted) or first.run != run:
        raise JournalDamaged(run, None, "it does not begin with the start of this run.")
    wanted, at = 0, 0.0
    for entry in records:
        check_order(run, entry, entry.fact, wanted, at)
        wanted, at = entry.seq + 1 + len(entry.decisions), entry.at
    return Stored(run, present, records)


async def read_stored(journal: Journal, run: str) -> Stored:
    """Read a stored run without its graph.

    Raises:
        UnknownRun: if there is none.
        JournalError: if it cannot be read.
    """
    rows = await journal.read(run)
    if not rows:
        raise UnknownRun(run)
    return read_rows(run, rows)


# --- what is said of a run in a few words ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """A stored run in a few words.

    Attributes:
        run: its id.
        graph: the name of its graph.
        status: how it ended or stands: a status of a result, or "open", or "unreadable".
        started: the time of day at which it began, in seconds since 1970; None where it cannot be read.
        last: about when its last record was written, as far as its sessions tell.
        events: how many it has.
        records: how many it has.
        unreadable: why it cannot be read, if it cannot be; else "".
    """

    run: str
    graph: str
    status: str
    started: float | None
    last: float | None
    events: int
    records: int
    unreadable: str = ""


def summary_of(stored: StoredRun, rows: Sequence[Row] | None = None) -> Summary:
    """Say in a few words what a journal holds of a run; never raises for what stands in it.

    Args:
        stored: the run.
        rows: all of its rows, if there is time to look for its sessions.
    """
    if stored.damaged:
        return unreadable_summary(stored, stored.damaged)
    try:
        reader = Rows(PlainCodec())
        present = upgraded(stored.run, rows or (stored.first, stored.last), whole=bool(rows))
        first, *late = [
            reader.record(stored.run, row) for row in (present[0], *(_telling(present) if rows else present[-1:]))
        ]
        last = late[-1]
        began = cast("RunStarted", first.fact)
        session_at, wall = first.at, began.wall
        for row in present:
            if row.fact.startswith('["session_started'):
                session = reader.record(stored.run, row)
                session_at, wall = session.at, cast("SessionStarted", session.fact).wall
    except JournalDamaged as error:
        return unreadable_summary(stored, unreadable_why(error))
    except AttributeError:
        return unreadable_summary(stored, "its first record is no start of a run.")
    return Summary(
        stored.run, began.graph, status_of(late), began.wall, wall + (last.at - session_at),
        last.seq + 1 + len(last.decisions), stored.rows,
    )  # fmt: skip


def start_of(stored: StoredRun) -> RunStarted | None:
    """Return how a run began, read from its first row alone; None where that cannot be read."""
    try:
        first, *_ = upgraded(stored.run, (stored.first, stored.last), whole=False)
        found = Rows(PlainCodec()).record(stored.run, first).fact
    except JournalDamaged:
        return None
    return found if isinstance(found, RunStarted) else None


_SAY_NOTHING: Final = tuple(f'["{kind_of(cast("Hashable", kind))}' for kind in (SessionStarted, BudgetAdded, Warned))
"""How the rows begin that may leave a run as it stood: one that waits for people waits on, whatever it is given."""


def tells(row: Row) -> bool:
    """Tell whether a run's last row says how the run stands, whatever stands before it."""
    return not row.fact.startswith(_SAY_NOTHING)


def _telling(rows: Sequence[Row]) -> Sequence[Row]:
    """Return those at the end of some rows that say how the run stands."""
    place = len(rows) - 1
    while place and not tells(rows[place]):
        place -= 1
    return rows[place:]


def unreadable_summary(stored: StoredRun, why: str) -> Summary:
    """Say that a run cannot be read, and why."""
    return Summary(stored.run, "", UNREADABLE, None, None, 0, stored.rows, why)


def unreadable_why(error: JournalError) -> str:
    """Say in a few words what is wrong with a run that cannot be read."""
    if not isinstance(error, JournalDamaged):
        return str(error)
    return error.what if error.seq is None else f"record {error.seq}: {error.what}"


def status_of(records: Iterable[Record]) -> str:
    """Say how a run ended, or stands, from records up to its last."""
    ended = ended_by(records)
    return OPEN if ended is None else ended.status


def ended_by(records: Iterable[Record]) -> RunEnded | None:
    """Return the decision that ended a run, or let it wait; None if it is open.

    A session that begins changes nothing of that, nor does budget for a run that waits for people.
    """
    found: RunEnded | None = None
    for entry in records:
        more = isinstance(entry.fact, BudgetAdded) and found is not None and found.status == "exhausted"
        if more or isinstance(entry.fact, AnswerGiven | CancelRequested):
            found = None
        found = next((body for body in reversed(entry.decisions) if isinstance(body, RunEnded)), found)
    return found


PASSING: Final = frozenset({"ModelUnavailable", "ToolServerUnavailable"})
"""The errors that say: it may work later."""


def before_failure(events: Iterable[Event], reason: Reason | None) -> int | None:
    """Return the last event before the call that ended a run, if that call may work later; a fork there makes it anew.

    Args:
        events: those of the run.
        reason: why it failed.
    """
    if reason is None or reason.error_type.rpartition(".")[2] not in PASSING:
        return None
    found: int | None = None
    for event in events:
        body = event.body
        if isinstance(body, EffectFinished) and body.failure is not None and path_text(body.path) == reason.path:
            found = event.seq - 1
    return found


def open_questions(events: Iterable[Event]) -> tuple[Paused, ...]:
    """Return the questions that nobody has answered, in order of their ids."""
    found: dict[str, Paused] = {}
    for event in events:
        match event.body:
            case Paused() as asked:
                found[asked.question] = asked
            case AnswerGiven(question=question):
                found.pop(question, None)
            case NodeEnded(path=path):
                found = {name: asked for name, asked in found.items() if asked.path != path}
            case _:
                pass
    return tuple(found[name] for name in sorted(found))


def summary_data(found: Summary) -> dict[str, Any]:
    """Return a summary as JSON data."""
    return {
        "run": found.run,
        "graph": found.graph,
        "status": found.status,
        "started": iso(found.started),
        "last_activity": iso(found.last),
        "events": found.events,
        "records": found.records,
        "unreadable": found.unreadable or None,
    }


def iso(wall: float | None) -> str | None:
    """Write a time of day for a program.

    >>> iso(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    try:
        return None if wall is None else datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None
