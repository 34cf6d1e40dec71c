"""`graphflow runs export` and `runs import`: a stored run as a file, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio

from graphflow.cli.faults import BadUse, reading
from graphflow.cli.ids import checked_id, why_not
from graphflow.cli.printing import Screen
from graphflow.cli.store import Store, StoreOptions, find, opened
from graphflow.cli.stored import OPEN, Stored, read_rows, status_of
from graphflow.errors import JournalDamaged, JournalError, RunExists
from graphflow.events import Journal, Row
from graphflow.model.jsontext import compact_json, load_json
from graphflow.persistence.lines import Exported, read_export, run_lines
from graphflow.runtime.checksums import chained
from graphflow.visualize.text import count, visible


def export_command(screen: Screen, options: StoreOptions, asked: str, output: str | None, *, json: bool) -> int:
    """Write a stored run as lines of JSON, to a file or to the standard output.

    Args:
        screen: where to, if there is no `output`.
        options: where the run is stored.
        asked: which one it is.
        output: the file to write, or None.
        json: whether to say as JSON what stands in the file; lines on the standard output are JSON already.

    Raises:
        BadUse: if the file cannot be written.
        JournalError: if the run cannot be read.
    """
    with opened(options) as store:
        run, rows = anyio.run(stored_rows, store, asked)
    text = "".join(f"{line}\n" for line in lines_of(run, rows))
    if output is None or output == "-":
        screen.out.data(text.encode())
    else:
        write_file(output, text)
        if json:
            screen.document({"run": run, "records": len(rows), "file": output})
        screen.say(f"{visible(run)}: {count(len(rows), 'record')} written to {visible(output)}")
    return 0


async def stored_rows(store: Store, asked: str) -> tuple[str, Sequence[Row]]:
    """Return the id and the rows of a stored run, as they are stored.

    Raises:
        JournalError: if it cannot be read.
    """
    found = await find(store, asked)
    return found.run, await store.journal.read(found.run)


def lines_of(run: str, rows: Sequence[Row]) -> list[str]:
    """Return a stored run as lines of JSON.

    Raises:
        JournalDamaged: if a row is no JSON.
    """
    try:
        return list(run_lines(run, rows))
    except ValueError as error:
        raise JournalDamaged(run, None, f"{error}.") from error


def write_file(name: str, text: str) -> None:
    """Write a text file, with the same ends of lines on every system.

    Raises:
        BadUse: if that is not possible.
    """
    try:
        Path(name).write_bytes(text.encode())
    except (OSError, ValueError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        raise BadUse(f"-o {name}: it cannot be written: {why}.") from error


# --- importing -------------------------------------------------------------------------------------------------------


def import_command(screen: Screen, options: StoreOptions, name: str, new_id: str | None, *, json: bool) -> int:
    """Store a run that was exported; all of it is looked at before anything is written, and nothing of it is executed.

    Raises:
        BadUse: if the file cannot be read.
        JournalDamaged: if it is no stored run.
        RunExists: if a run of its id is stored already.
        JournalError: if it cannot be stored.
    """
    checked_id("--as", new_id)
    run, stored, counted = _read_file(name)
    why = "" if new_id is not None else why_not(run)
    if why:
        raise BadUse(f"{visible(name)}: the id of its run is {run!r}, and {why}: import it --as another.")
    rows: Sequence[Row] = stored
    if new_id is not None and new_id != run:
        rows = _renamed(run, rows, new_id)
        run = new_id
    found = read_rows(run, rows)
    with opened(options) as store:
        try:
            anyio.run(_store, store.journal, run, rows)
        except RunExists as error:
            raise BadUse(f"a run {run!r} is stored already in {store.name}: import it --as another.") from error
        status = status_of(found.records)
        if not counted:
            early = " It ends before its run does." if status == OPEN else ""
            screen.say(
                f"{visible(name)}: an older graphflow wrote it, without the number of its records, so nothing tells "
                f"whether the last are missing.{early}"
            )
        if json:
            screen.document(_data(found, status))
        else:
            facts = f"{found.first.graph}, {status}, {count(len(rows), 'record')}"
            screen.out.line(visible(f"run {run}: {facts}; stored in {store.name}"))
            screen.say(f"its graph is not noted: {store.command('resume', run, '--target path.py')}")
    return 0


def _data(found: Stored, status: str) -> dict[str, Any]:
    return {"run": found.run, "graph": found.first.graph, "status": status, "records": len(found.rows)}


def _read_file(name: str) -> Exported:
    try:
        with contextlib.ExitStack() as stack:
            if name == "-":
                return read_export(sys.stdin)
            return read_export(stack.enter_context(Path(name).open(encoding="utf-8", newline="\n")))
    except OSError as error:
        raise BadUse(f"{name}: it cannot be read: {reading(error)}.") from error
    except ValueError as error:
        raise BadUse(f"{name}: {error}.") from error


def _renamed(run: str, rows: Sequence[Row], new_id: str) -> Sequence[Row]:
    """Return rows under another id, which stands in the first of them."""
    read_rows(run, rows)
    fact = cast("list[Any]", load_json(rows[0].fact))
    fact[1] = new_id
    return chained([dataclasses.replace(rows[0], fact=compact_json(fact)), *rows[1:]])


async def _store(journal: Journal, run: str, rows: Sequence[Row]) -> None:
    writer = await journal.claim(run)
    try:
        if writer.last >= 0:
            raise RunExists(run)
        for row in rows:
            await writer.append(row)
    except RunExists:
        raise
    except BaseException:  # the beginning of a run would look like one that was broken off
        with anyio.CancelScope(shield=True), contextlib.suppress(JournalError):
            await writer.release()
            await journal.delete(run)
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await writer.release()
