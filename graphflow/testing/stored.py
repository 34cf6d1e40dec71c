"""Stored runs in tests: a file that `graphflow runs export` wrote, read into a journal and played again."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pydantic_core

from graphflow.errors import InternalError, JournalDamaged
from graphflow.events import Row
from graphflow.graphs.graph import Graph
from graphflow.model.context import Context
from graphflow.model.secrets import veiled
from graphflow.persistence.lines import read_run
from graphflow.persistence.memory import MemoryJournal
from graphflow.runtime.result import Result
from graphflow.runtime.resuming import replay
from graphflow.runtime.rows import upgraded

C = TypeVar("C", bound=Context)
T = TypeVar("T")

StrPath = str | os.PathLike[str]


def read_journal(*paths: StrPath) -> MemoryJournal:
    """Read stored runs, one from each file, into a journal in memory.

    Args:
        paths: files that `graphflow runs export` or `graphflow runs pytest` wrote.

    Raises:
        JournalDamaged: if a file is no stored run.
        OSError: if a file cannot be read.
    """
    journal = MemoryJournal()
    for path in paths:
        run, rows = rows_in(path)
        writer = _at_once(journal.claim(run))
        for row in rows:
            writer.append_nowait(row)
        _at_once(writer.release())
    return journal


def rows_in(path: StrPath) -> tuple[str, Sequence[Row]]:
    """Return the id and the rows of the stored run in a file, in the present format.

    Raises:
        JournalDamaged: if it is no stored run.
        OSError: if it cannot be read.
    """
    name = Path(path).name
    try:
        with Path(path).open(encoding="utf-8", newline="\n") as file:
            run, rows = read_run(file)
    except ValueError as error:
        raise JournalDamaged(name, None, f"{error}.") from error
    if not rows:
        raise JournalDamaged(run, None, f"{name!r} has no row.")
    return run, upgraded(run, rows)


def replayed(graph: Graph[C], path: StrPath, *, secrets: Mapping[str, object] | None = None) -> Result[C]:
    """Return the result of the stored run in a file, worked out again from what is recorded: nothing is called.

    The graph may have changed, as long as it draws the same decisions from the recorded facts. Call it where no event
    loop runs.

    Args:
        graph: the graph of the run.
        path: the file.
        secrets: the values of secret fields of contexts, by name.

    Raises:
        JournalMismatch: if the graph decides otherwise now, naming the record.
        JournalDamaged: if the file is no stored run.
        NodeFailed: if an exception had ended the run.
        UsageError: if the run was broken off.
    """
    run, _ = rows_in(path)
    journal = read_journal(path)
    return anyio.run(partial(replay, graph, run, journal=journal, changed="compatible", secrets=secrets))


def plain(value: object) -> Any:
    """Return a value as plain JSON data, to compare it with what a file says.

    >>> from graphflow import Report
    >>> plain((Report(finding="paid twice").finding, 3))
    ['paid twice', 3]
    """
    return pydantic_core.to_jsonable_python(veiled(value), inf_nan_mode="strings", fallback=repr)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Do what a journal in memory does, which never waits, with or without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    raise InternalError("a journal in memory waited")
