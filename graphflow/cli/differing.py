"""`graphflow diff`: where two stored runs part, and what that makes of the state."""

from __future__ import annotations

import dataclasses
import json as json_text
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from graphflow.cli.board import Board
from graphflow.cli.faults import FAILED, text_of
from graphflow.cli.inputs import secrets_from
from graphflow.cli.printing import Screen
from graphflow.cli.results import jsonable
from graphflow.cli.resuming import Again, folded_run
from graphflow.cli.shelf import status_text
from graphflow.cli.showing import spent_data
from graphflow.cli.store import Store, find, opened
from graphflow.cli.stored import Stored, ended_by, read_stored, status_of
from graphflow.cli.targets import graph_of, required
from graphflow.errors import GraphflowError
from graphflow.events import Event, RunStarted, SessionStarted
from graphflow.model.ids import path_text
from graphflow.model.outcome import NOTHING
from graphflow.persistence.lines import event_json
from graphflow.testing.trace import canonical_trace
from graphflow.visualize.text import clip, count, plain, visible

WIDE: Final = 1_000

SIGNS: Final = "ab"

PASSED_OVER: Final = frozenset({"path", "run", "wall", "at", "timer", "hop", "fingerprint", "parts", "forked"})
"""Fields of events that differ without meaning anything, or stand elsewhere."""

Values = dict[str, Any]
Pair = tuple[Stored, Stored]


@dataclass(frozen=True, slots=True)
class Difference:
    """What two runs do not have in common.

    Attributes:
        first: the first event of each that the other does not have; None where it has all.
        events: how many events of each the other does not have.
        state: the values that differ, by name, as JSON data.
        unknown: why the states could not be compared, or "".
    """

    first: tuple[Event | None, Event | None]
    events: tuple[int, int]
    state: Mapping[str, tuple[Any, Any]]
    unknown: str

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.events) and not self.state


def diff_command(screen: Screen, one: Again, other: str, *, json: bool) -> int:
    """Compare two stored runs by what happened, whenever it did; the exit code is 0 if nothing differs, else 1.

    Raises:
        BadUse: if it is not clear which runs are meant.
        UnknownRun: if one is not stored.
        JournalError: if one cannot be read.
    """
    secrets = secrets_from(one.secrets)
    with opened(one.store) as store:
        pair = anyio.run(_read, store, one.run, other)
        found = _differences(store, pair, one, secrets)
    if json:
        screen.document(_data(pair, found))
    else:
        ascii_only = screen.out.ascii
        width = screen.out.width if screen.out.terminal else WIDE
        for line in _lines(pair, found, ascii_only=ascii_only):
            cut = clip(line, width)
            screen.out.line(plain(cut) if ascii_only else cut)
    return 0 if found.equal else FAILED


async def _read(store: Store, one: str, other: str) -> Pair:
    first, second = await find(store, one), await find(store, other)
    return await read_stored(store.journal, first.run), await read_stored(store.journal, second.run)


def _differences(store: Store, pair: Pair, again: Again, secrets: Mapping[str, str]) -> Difference:
    one, other = (list(_canonical(stored)) for stored in pair)
    lost, more = Counter(text for text, _ in one), Counter(text for text, _ in other)
    lost, more = lost - more, more - lost
    first = (_first(one, lost), _first(other, more))
    states: list[Values] = []
    unknown = ""
    for stored in pair:
        state = _outside(stored)
        try:
            state |= anyio.run(_inside, store, stored.run, again, secrets)
        except GraphflowError as error:
            unknown = unknown or text_of(error)
        states.append(state)
    common = states[0].keys() & states[1].keys() if unknown else states[0].keys() | states[1].keys()
    differ = {
        name: (states[0].get(name), states[1].get(name))
        for name in (*states[0], *(name for name in states[1] if name not in states[0]))
        if name in common and states[0].get(name) != states[1].get(name)
    }
    return Difference(first, (lost.total(), more.total()), differ, unknown)


# --- events ----------------------------------------------------------------------------------------------------------


def _canonical(stored: Stored) -> Iterator[tuple[str, Event]]:
    """Yield what is comparable of each event, without times, ids, and which process it was in."""
    for event in stored.events():
        body = event.body
        if isinstance(body, SessionStarted):
            continue
        compared = event
        if isinstance(body, RunStarted):
            began = dataclasses.replace(body, fingerprint="", parts=None, forked=None)
            compared = Event(event.run, event.seq, event.at, began)
        for text in canonical_trace([compared]):
            yield text, event


def _first(events: Sequence[tuple[str, Event]], only: Counter[str]) -> Event | None:
    """Return the first event that the other run does not have; of equal ones, those that are too many are the last."""
    left = Counter(text for text, _ in events)
    for text, event in events:
        if left[text] <= only[text]:
            return event
        left[text] -= 1
    return None


# --- states ----------------------------------------------------------------------------------------------------------


def _outside(stored: Stored) -> Values:
    """Return what can be said of a run without its graph."""
    ended = ended_by(stored.records)
    reason = None if ended is None or ended.reason is None else f"{ended.reason.code}: {ended.reason.text}"
    board = Board()
    for event in stored.events():
        board.fold(event)
    spent = {f"spent {name}": amount for name, amount in spent_data(board).items() if name != "seconds"}
    return {"graph": stored.first.graph, "status": status_of(stored.records), "reason": reason, **spent}


async def _inside(store: Store, run: str, again: Again, secrets: Mapping[str, str]) -> Values:
    """Return the context and the output of a run, which its graph makes of what is stored.

    Raises:
        GraphflowError: if the graph is not there, or makes something else of it.
    """
    try:
        noted = required(store.targets, run, again.graph)
    except Exception as error:
        raise GraphflowError(text_of(error)) from error
    graph, _ = graph_of(noted)
    folded = await folded_run(graph, run, store, "compatible", secrets)
    fold = folded.fold
    context = jsonable(fold.context)
    fields = cast("Values", context) if isinstance(context, dict) else {"": context}
    output = None if fold.output is NOTHING else jsonable(fold.output)
    return {"output": output, **{f"context.{name}": value for name, value in fields.items()}}


# --- as text, and as JSON --------------------------------------------------------------------------------------------


def _lines(pair: Pair, found: Difference, *, ascii_only: bool) -> Iterator[str]:
    for sign, stored in zip(SIGNS, pair, strict=True):
        yield f"{sign}  {_title(stored, ascii_only=ascii_only)}"
    yield ""
    if found.equal:
        yield "nothing differs: the same happened, and the same came of it"
    yield from _event_lines(found)
    if found.state:
        yield "in the end:"
    for name, values in found.state.items():
        yield from _values(name, *values)
    if found.unknown:
        yield f"context and output are not compared: {visible(found.unknown)}"


def _event_lines(found: Difference) -> Iterator[str]:
    """Show the first event of each that the other does not have; where these are alike, only what differs in them."""
    if not any(found.events):
        return
    yield f"{count(found.events[0], 'event')} only in a, {count(found.events[1], 'event')} only in b; the first:"
    alike = _alike(*found.first)
    for sign, event in zip(SIGNS, found.first, strict=True):
        if event is not None:
            told = f"event {event.seq}  {event.kind}  {visible(path_text(event.path))}".rstrip()
            rest = (
                "" if alike else f"  {', '.join(f'{name}={_value(value)}' for name, value in _fields(event).items())}"
            )
            yield f"{sign}  {told}{rest}"
    if alike:
        one, other = (_fields(event) for event in found.first if event is not None)
        for name, value in one.items():
            if value != other.get(name):
                yield from _values(name, value, other.get(name))


def _alike(one: Event | None, other: Event | None) -> bool:
    return one is not None and other is not None and (one.kind, one.path) == (other.kind, other.path)


def _fields(event: Event) -> Values:
    """Return what an event says, as JSON data, without what timing may change."""
    found = {item.name: jsonable(getattr(event.body, item.name)) for item in dataclasses.fields(event.body)}
    return {name: value for name, value in found.items() if name not in PASSED_OVER and value is not None}


def _values(name: str, before: Any, after: Any) -> Iterator[str]:
    yield f"   {visible(name)}"
    yield f"a    {_value(before)}"
    yield f"b    {_value(after)}"


def _title(stored: Stored, *, ascii_only: bool) -> str:
    first = stored.first
    facts = [visible(stored.run), visible(first.graph), status_text(status_of(stored.records), ascii=ascii_only)]
    if first.forked is not None:
        facts.append(f"forked from {visible(first.forked[0])} after event {first.forked[1]}")
    return " · ".join(facts)


def _value(value: Any) -> str:
    return visible(value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False))


def _data(pair: Pair, found: Difference) -> Values:
    return {
        "equal": found.equal,
        "runs": [stored.run for stored in pair],
        "first_difference": [None if event is None else json_text.loads(event_json(event)) for event in found.first],
        "events_only_in": list(found.events),
        "state": {name: list(values) for name, values in found.state.items()},
        "not_compared": found.unknown or None,
    }
