"""Traces: what timing may not change, and the fold of recorded facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from graphflow.errors import JournalMismatch
from graphflow.events import Event, Record, Row, TimerFired, TimerSet, Warned
from graphflow.graphs.graph import Graph
from graphflow.model.ids import path_text
from graphflow.runtime.advance import Fold
from graphflow.runtime.rows import upgraded
from graphflow.runtime.stored import prepared

_TIMING = frozenset({"wall", "run", "at", "timer", "hop"})


def canonical_trace(events: Iterable[Event]) -> tuple[str, ...]:
    """Return a run's events in an order and a form that its timing cannot change.

    Events are sorted by path, turn and kind; run id, numbers, times, hop counts and warnings are left out. Two runs of
    one graph whose nodes answer alike have equal traces, whatever the hash seed, the order of the statements or the
    timing.
    """
    lines = [_line(event) for event in events if not isinstance(event.body, TimerFired | TimerSet | Warned)]
    return tuple(sorted(lines))


def _line(event: Event) -> str:
    body = event.body
    shown = [
        f"{item.name}={_text(getattr(body, item.name))}"
        for item in dataclasses.fields(body)
        if item.name not in _TIMING and item.name != "path"
    ]
    return f"{path_text(event.path)} {event.kind} {' '.join(shown)}"


def _text(value: Any) -> str:
    return repr(sorted(cast("frozenset[Any]", value), key=repr)) if isinstance(value, frozenset) else repr(value)


def records_of(
    graph: Graph[Any], rows: Sequence[Row], *, secrets: Mapping[str, object] | None = None
) -> tuple[Record, ...]:
    """Return the rows of a stored run, all of them or the first ones, as records.

    Args:
        graph: the graph of the run.
        rows: what a journal keeps of it.
        secrets: the values of secret fields, which rows do not have.

    Raises:
        JournalDamaged: at the first row that cannot be read, or was changed since it was written.
        MissingSecrets: if the run had secrets that are not given.
    """
    reader = prepared(graph).rows(secrets)
    return tuple(reader.record("the run", row) for row in upgraded("the run", rows))


def fold_again(
    graph: Graph[Any], records: Sequence[Record] | Sequence[Row], *, secrets: Mapping[str, object] | None = None
) -> Fold:
    """Fold recorded facts again and compare the decisions.

    Args:
        graph: the graph of the run.
        records: its records, or its rows as a journal keeps them.
        secrets: the values of secret fields, which rows do not have.

    Returns:
        The fold in its final state.

    Raises:
        JournalMismatch: at the first record whose decisions differ.
        JournalDamaged: at the first row that cannot be read.
    """
    fold = Fold(graph)
    rows = prepared(graph).rows(secrets)
    found = [entry for entry in records if isinstance(entry, Row)]
    for stored in upgraded("the run", found) if found else cast("Sequence[Record]", records):
        entry = rows.record("the run", stored) if isinstance(stored, Row) else stored
        decisions, _ = fold.advance(entry.fact, entry.at)
        if tuple(decisions) != entry.decisions:
            raise JournalMismatch(entry.seq, entry.decisions, tuple(decisions))
    return fold
