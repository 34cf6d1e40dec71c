"""Runs that are stored: what a graph needs to be stored, and how a stored run is folded again.

Facts alone are fed to the fold. What it decides is held against what is stored; the first difference ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import anyio.to_thread

from graphflow.errors import GraphChanged, InternalError, JournalDamaged, JournalMismatch, NodeFailed, UnknownRun
from graphflow.events import (
    EDITION,
    Earlier,
    EffectFinished,
    Fact,
    Failure,
    HookAnswered,
    Journal,
    NodeReturned,
    Record,
    Row,
    RunStarted,
)
from graphflow.graphs.graph import Graph
from graphflow.graphs.kinds import kinds_of
from graphflow.model.codec import Codec, Kinds, MissingSecrets, Unreadable
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Path, path_text
from graphflow.runtime.advance import Fold
from graphflow.runtime.checksums import ENTRY, without_checksum
from graphflow.runtime.core import RECORDED
from graphflow.runtime.recall import Recall
from graphflow.runtime.rows import SESSIONS, Rows, Unread, same, upgraded

Changed = Literal["refuse", "compatible"]


class Prepared(NamedTuple):
    """What is worked out once for a graph whose runs are stored.

    Attributes:
        fingerprint: the digest of the graph.
        parts: the digest of each node and edge.
        kinds: the classes that it declares.
    """

    fingerprint: str
    parts: FrozenDict[str, str]
    kinds: Kinds

    def rows(self, secrets: Mapping[str, object] | None = None) -> Rows:
        """Return what writes and reads the rows of a run."""
        return Rows(Codec(self.kinds, secrets))


IN_FACTS: Final = (Failure, Earlier)
"""The classes of ours that stand in facts beside those that every graph declares."""

_KEPT = "_prepared"


def is_prepared(graph: Graph[Any]) -> bool:
    """Tell whether `prepared` would have nothing to do."""
    return _KEPT in vars(graph)


def prepared(graph: Graph[Any]) -> Prepared:
    """Return what a stored run of a graph needs, worked out once; sources are read for it."""
    found: Prepared | None = vars(graph).get(_KEPT)
    if found is None:
        from graphflow.graphs.export import parts

        kinds = kinds_of(graph).with_(IN_FACTS)
        found = vars(graph)[_KEPT] = Prepared(graph.fingerprint(), FrozenDict(parts(graph)), kinds)
    return found


@dataclass(slots=True)
class Folded:
    """A stored run, folded again.

    Attributes:
        fold: its state.
        first: its first fact.
        records: its records; None where nobody wants them.
        seq: the number that its next event has.
        at: the active seconds of its last record.
        recall: what its bodies had asked.
        errors: how bodies failed, by path: these errors may have ended the run.
        parts: the parts of the graph that it last went on with.
        fingerprint: the digest of that graph.
    """

    fold: Fold
    first: RunStarted
    records: list[Record] | None
    seq: int = 0
    at: float = 0.0
    recall: Recall = field(default_factory=Recall)
    errors: dict[Path, BaseException] = field(default_factory=dict[Path, BaseException])
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    fingerprint: str = ""


async def rows_of(journal: Journal, run: str, until: int | None = None) -> Sequence[Row]:
    """Return the rows of a stored run, in the present format.

    Args:
        journal: where it is stored.
        run: its id.
        until: the number behind which nothing is wanted, and nothing looked at; by default all of it is.

    Raises:
        UnknownRun: if there is none.
        JournalDamaged: if they cannot be read.
    """
    try:
        rows = await found_rows(journal, run)
    except JournalDamaged as error:
        if until is None or error.seq is None or error.seq <= until or not error.before:
            raise
        rows = error.before  # what a journal could not give stands behind what is wanted
    wanted = rows if until is None else [row for row in rows if row.seq <= until]
    return await anyio.to_thread.run_sync(upgraded, run, wanted)


async def found_rows(journal: Journal, run: str) -> Sequence[Row]:
    """Return the rows of a stored run as they are stored.

    Raises:
        UnknownRun: if there is none.
        JournalDamaged: if they cannot be read.
    """
    rows = await journal.read(run)
    if not rows:
        raise UnknownRun(run, [known.run for known in await journal.runs()])
    return rows


def fold_rows(
    graph: Graph[Any], run: str, stored: Sequence[Row], rows: Rows, *, changed: Changed = "refuse", keep: bool = False
) -> Folded:
    """Fold the facts of a stored run again.

    Args:
        graph: the graph at hand.
        run: the run's id.
        stored: its rows.
        rows: what reads them.
        changed: whether a graph that has changed is refused, or accepted if it decides as the stored one did.
        keep: whether the records are wanted.

    Raises:
        JournalDamaged: if a row cannot be read.
        GraphChanged: if the graph is another one, and that is refused.
        JournalMismatch: if the fold decides otherwise than is stored.
    """
    before = _graphs_of(run, stored)
    fingerprint, parts = before.fingerprint, before.parts
    if changed != "compatible":  # first of all: values of another graph may not even be readable
        _check_graph(graph, run, fingerprint, parts)
    try:
        first, *others = _facts(graph, run, stored, rows, before, changed=changed)
    except MissingSecrets as error:  # it names those of one row
        raise rows.lacking(stored) or error from None
    if not isinstance(first, RunStarted) or first.run != run:
        raise JournalDamaged(run, stored[0].seq, "it does not start this run.")
    if not 0 <= first.edition <= EDITION:
        what = (
            f"it is decided by edition {first.edition}, and this version of graphflow knows editions up to {EDITION}."
        )
        raise JournalDamaged(run, stored[0].seq, what)
    folded = Folded(Fold(graph), first, [] if keep else None, parts=parts, fingerprint=fingerprint)
    try:
        _feed(folded, run, stored, [first, *others], rows)
    except JournalMismatch:
        if first.edition and changed != "compatible":
            _check_models(graph, run, parts)
        raise
    folded.recall.forget(folded.fold.visits)
    return folded


def _facts(
    graph: Graph[Any], run: str, stored: Sequence[Row], rows: Rows, before: _Before, *, changed: Changed
) -> list[Fact]:
    """Read the facts of a run, some of which another graph may have written: the run may have been gone on with since.

    Whoever says that the graph is compatible may have changed classes that are no part of its fingerprint.

    Raises:
        JournalDamaged: if a row cannot be read.
        GraphChanged: if what another graph has written does not fit the classes of this one.
    """
    mine = prepared(graph)
    by_mine = frozenset[str]() if changed == "compatible" else frozenset({mine.fingerprint})
    if before.all <= by_mine:
        return [rows.fact(run, row) for row in stored]
    found: list[Fact] = []
    older = False
    for row in stored:
        said = rows.said_of_graph(run, row) if row.fact.startswith(SESSIONS) else None
        if said is not None:
            older = said[0] not in by_mine
            rows.reads(older=older)
        try:
            found.append(rows.fact(run, row))
        except JournalDamaged as error:
            if older and isinstance(error.__cause__, Unreadable):
                unfit = f"record {row.seq}: {error.__cause__}"
                raise _changed(run, before.parts, mine.parts, unfit) from error
            raise
    rows.reads(older=False)
    return found


def check_order(run: str, row: Row | Record, fact: Fact, seq: int, at: float) -> None:
    """Look whether a row, or a record, stands in its place.

    Args:
        run: the run's id.
        row: what stands there.
        fact: its fact.
        seq: the number that belongs there.
        at: the active seconds of what stands before it.

    Raises:
        JournalDamaged: if it does not.
    """
    if row.seq != seq or not row.at >= at or (isinstance(fact, RunStarted) and row.seq):
        raise JournalDamaged(run, row.seq, f"it is out of order: number {seq} belongs here.")


def _feed(folded: Folded, run: str, stored: Sequence[Row], facts: Sequence[Fact], rows: Rows) -> None:
    """Feed facts to the fold, one after the other, and hold what it decides against what is stored."""
    fold, recall, records, errors = folded.fold, folded.recall, folded.records, folded.errors
    seq, at = 0, 0.0
    for row, fact in zip(stored, facts, strict=True):
        check_order(run, row, fact, seq, at)
        if type(fact) is EffectFinished:
            _check_result(fold, run, row, fact)
        try:
            decisions, commands = fold.advance(fact, row.at)
            drawn = rows.decisions(decisions)
        except InternalError as error:
            raise JournalMismatch(row.seq, row.decisions, str(error)) from error
        except Exception as error:
            raise JournalMismatch(row.seq, row.decisions, f"{type(error).__name__}: {error}") from error
        as_written = f"{row.decisions[:-ENTRY]}]"  # of what every row has, in most of them
        if as_written != drawn and not same(without_checksum(row.decisions), drawn):
            raise JournalMismatch(row.seq, without_checksum(row.decisions), drawn)
        if records is not None:
            records.append(Record(row.seq, row.at, fact, tuple(decisions)))
        recall.note(fact, commands)
        if isinstance(fact, _MAY_FAIL) and (errors or fact.failure is not None):
            _note_error(errors, fact)
        seq, at = row.seq + 1 + len(decisions), row.at
    folded.seq, folded.at = seq, at


def _check_result(fold: Fold, run: str, row: Row, fact: EffectFinished) -> None:
    """Hold what a call of an agent brought to the type that it has; a function's own body reads the others."""
    visit = fold.visits.get(fact.path)
    if visit is None or visit.talk is None or fact.failure is not None:
        return
    if isinstance(fact.result, Unread) or (fact.key != "model" and not isinstance(fact.result, str)):
        raise JournalDamaged(run, row.seq, f"the result of {fact.key!r} is not what a model or a tool gives.")


_MAY_FAIL: Final = (NodeReturned, EffectFinished, HookAnswered)


def _note_error(errors: dict[Path, BaseException], fact: NodeReturned | EffectFinished | HookAnswered) -> None:
    """Remember how a body failed, in case that ends the run."""
    failure = fact.failure
    if failure is None:
        if type(fact) is NodeReturned:
            errors.pop(fact.path, None)
    elif failure.error_type != "graphflow.errors.BoundHit" and failure.code == "failed":
        error = NodeFailed(path_text(fact.path), failure.error_type.rpartition(".")[2], failure.text)
        setattr(error, RECORDED, failure)
        errors[fact.path] = error


class _Before(NamedTuple):
    """Of which graphs a run has been: the last one, its parts, and the digests of all."""

    fingerprint: str
    parts: Mapping[str, str]
    all: frozenset[str]


def _graphs_of(run: str, stored: Sequence[Row]) -> _Before:
    """Return the fingerprint and the parts of the graph that a run last went on with, and the fingerprints of all."""
    fingerprint, parts, every = "", dict[str, str](), set[str]()
    for row in stored:
        said = Rows.said_of_graph(run, row) if row.fact.startswith(SESSIONS) else None
        if said is not None:
            fingerprint, parts = said[0], parts if said[1] is None else said[1]
            every.add(fingerprint)
    return _Before(fingerprint, parts, frozenset(every))


def _check_graph(graph: Graph[Any], run: str, fingerprint: str, before: Mapping[str, str]) -> None:
    mine = prepared(graph)
    if mine.fingerprint != fingerprint:
        raise _changed(run, before, mine.parts)


def _check_models(graph: Graph[Any], run: str, before: Mapping[str, str]) -> None:
    """Look whether models are asked in another way: no part of a graph, and yet what is stored may not fit any more."""
    from graphflow.graphs.export import MODELS

    was, now = (
        {name: how for name, how in parts.items() if name.startswith(MODELS)}
        for parts in (before, prepared(graph).parts)
    )
    if was != now:
        raise _changed(run, was, now)


def _changed(run: str, before: Mapping[str, str], now: Mapping[str, str], unfit: str = "") -> GraphChanged:
    added = [name for name in now if name not in before]
    removed = [name for name in before if name not in now]
    differ = [name for name in now if name in before and before[name] != now[name]]
    return GraphChanged(run, added, removed, differ, unfit)
