"""`graphflow runs list` and `runs delete`: the runs that are stored."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import anyio

from graphflow.cli.faults import BadUse, reading
from graphflow.cli.printing import Screen, Stream
from graphflow.cli.results import EXIT_CODES
from graphflow.cli.store import Store, StoreOptions, opened
from graphflow.cli.stored import (
    OPEN,
    UNREADABLE,
    Summary,
    summary_data,
    summary_of,
    tells,
    unreadable_summary,
    unreadable_why,
)
from graphflow.errors import JournalError, UnknownRun
from graphflow.events import StoredRun
from graphflow.visualize.text import cells, clip, count, plain, shown, visible
from graphflow.visualize.tree import GLYPHS

STATUSES: Final = (*EXIT_CODES, OPEN, UNREADABLE)

NAME: Final = 40

_HEAD: Final = ("RUN", "GRAPH", "STATUS", "STARTED", "LAST", "EVENTS")

_SPARED: Final = (5, 3, 4, 1)
"""Which columns a narrow terminal can do without, the first ones first; the id and the status stay."""

_APART: Final = "  "

_SHORTEST: Final = 8
"""Columns of an id that stay: its beginning names a run."""

WIDE: Final = 1_000

_UNITS: Final = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"))
_JUST_NOW: Final = 2.0


def list_command(
    screen: Screen, options: StoreOptions, only: tuple[str | None, str | None], limit: int, *, json: bool
) -> int:  # fmt: skip
    """Print the stored runs, the newest first.

    Args:
        screen: where to.
        options: where they are.
        only: the status and the graph that they must have, None for any.
        limit: how many at most.
        json: whether as JSON.

    Raises:
        BadUse: if there is no such status.
        JournalError: if the database cannot be read.
    """
    status, graph = only
    if status is not None and status not in STATUSES:
        raise BadUse(f"--status {status}: a run is one of {', '.join(STATUSES)}.")
    with opened(options) as store:
        found, more = anyio.run(_found, store, status, graph, limit)
        if json:
            screen.document([summary_data(run) for run in found])
        elif found:
            screen.out.line("\n".join(_table(found, time.time(), ascii=screen.out.ascii, width=_columns(screen.out))))
        elif status is None and graph is None:
            screen.say(f"no run is stored in {store.name}.")
        else:
            screen.say("no stored run is so.")
    if more:
        screen.say(f"and {count(more, 'older run')}: --limit {len(found) + more} shows all.")
    if not json and any(run.status == OPEN for run in found):
        screen.say("open: at work somewhere, or broken off; `graphflow resume` goes on with what was broken off.")
    if not json:
        for run in found:
            if run.unreadable:
                screen.say(f"{shown(run.run, NAME)} is unreadable: {visible(run.unreadable)}")
    return 0


async def _found(store: Store, status: str | None, graph: str | None, limit: int) -> tuple[list[Summary], int]:
    """Return the newest runs that are asked for, and how many more there are."""
    chosen: list[StoredRun] = []
    for run in reversed(await store.journal.runs()):
        # One row in the middle is no reason to read all of each, unless just that is asked for.
        closely = status == UNREADABLE or (status is not None and not tells(run.last))
        known = await _summed_up(store, run) if closely else summary_of(run)
        if status in {None, known.status} and graph in {None, known.graph}:
            chosen.append(run)
    return [await _summed_up(store, run) for run in chosen[:limit]], max(0, len(chosen) - limit)


async def _summed_up(store: Store, run: StoredRun) -> Summary:
    """Say in a few words what is stored of a run, after a look at all of it; damage of one run hides no other."""
    if run.damaged:
        return summary_of(run)
    try:
        return summary_of(run, await store.journal.read(run.run))
    except JournalError as error:
        return unreadable_summary(run, unreadable_why(error))


def _table(found: Sequence[Summary], now: float, *, ascii: bool, width: int) -> Iterator[str]:
    """Yield the lines of a table, as wide as what stands in it; what a narrow terminal has no room for is left out."""
    lines = [_HEAD, *(_cells(run, now, ascii=ascii) for run in found)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(_HEAD))]
    kept = list(range(len(_HEAD)))
    for column in _SPARED:
        if sum(widths[one] + len(_APART) for one in kept) - len(_APART) > width:
            kept.remove(column)
    others = sum(widths[one] + len(_APART) for one in kept[1:])
    widths[0] = min(widths[0], max(_SHORTEST, width - others))
    for line in lines:
        padded = [_padded(line[one], widths[one]) for one in kept]
        if kept[-1] == len(_HEAD) - 1:
            padded[-1] = padded[-1].strip().rjust(widths[-1])  # a number
        yield clip(_APART.join(padded).rstrip(), width)


def _padded(text: str, width: int) -> str:
    cut = clip(text, width)
    return cut + " " * (width - cells(cut))


def _columns(stream: Stream) -> int:
    return stream.width if stream.terminal else WIDE


def _cells(run: Summary, now: float, *, ascii: bool) -> tuple[str, ...]:
    made = (
        clip(shown(run.run, NAME), NAME), clip(shown(run.graph, NAME), NAME) if run.graph else "",
        status_text(run.status, ascii=ascii), moment(run.started), ago(run.last, now), f"{run.events:,}",
    )  # fmt: skip
    return tuple(map(plain, made)) if ascii else made


def status_text(status: str, *, ascii: bool) -> str:
    """Write a status with its sign.

    >>> status_text("completed", ascii=False), status_text("waiting", ascii=True)
    ('✓ completed', 'waiting')
    """
    return status if ascii else f"{GLYPHS.get(status, '!')} {status}"


def moment(wall: float | None) -> str:
    """Write a time of day as people here write it; "" where it is not known."""
    try:
        return "" if wall is None else datetime.fromtimestamp(wall).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


def ago(wall: float | None, now: float) -> str:
    """Say how long ago something was.

    >>> ago(0.0, 1.0), ago(0.0, 75.0), ago(0.0, 200_000.0)
    ('just now', '1 minute ago', '2 days ago')
    """
    if wall is None:
        return ""
    seconds = now - wall
    for size, noun in _UNITS:
        if seconds >= size:
            return f"{count(int(seconds // size), noun)} ago"
    return "just now" if seconds < _JUST_NOW else f"{count(int(seconds), 'second')} ago"


# --- deleting --------------------------------------------------------------------------------------------------------


def delete_command(screen: Screen, options: StoreOptions, asked: Sequence[str], *, yes: bool, json: bool) -> int:
    """Remove stored runs for good, once a person has agreed.

    Raises:
        BadUse: if nobody is there to agree.
        JournalError: if a run is at work, or the database cannot be written.
    """
    with opened(options) as store:
        chosen = anyio.run(_meant, store, asked)
        if not yes and not _agreed(screen, chosen):
            screen.say("nothing was deleted.")
            chosen = []
        gone: list[str] = []
        screen.facts["deleted"] = gone
        try:
            anyio.run(_delete, store, chosen, gone)
        finally:
            _forget(screen, store, gone)
            if gone and not json:
                screen.out.line("\n".join(f"deleted {shown(run, NAME)}" for run in gone))
    if json:
        screen.document({"deleted": gone})
    return 0


async def _meant(store: Store, asked: Sequence[str]) -> list[StoredRun]:
    """Return the runs of whole ids: what is deleted is not guessed at."""
    runs = {run.run: run for run in await store.journal.runs()}
    unknown = next((name for name in asked if name not in runs), None)
    if unknown is not None:
        raise UnknownRun(unknown, list(runs))
    return list({name: runs[name] for name in asked}.values())


async def _delete(store: Store, chosen: Sequence[StoredRun], gone: list[str]) -> None:
    for run in chosen:
        await store.journal.delete(run.run)
        gone.append(run.run)


def _agreed(screen: Screen, chosen: Sequence[StoredRun]) -> bool:
    if sys.stdin is None or not sys.stdin.isatty() or not screen.err.terminal:  # pyright: ignore[reportUnnecessaryComparison]  # a process may have no stdin
        raise BadUse("runs delete: add --yes, for nobody can be asked here.")
    found = [summary_of(run) for run in chosen]
    for line in _table(found, time.time(), ascii=screen.err.ascii, width=_columns(screen.err)):
        screen.say(line)
    screen.err.write(f"Delete {'it' if len(chosen) == 1 else f'all {len(chosen)}'} for good? [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _forget(screen: Screen, store: Store, gone: Sequence[str]) -> None:
    try:
        store.targets.forget(gone)
    except (OSError, JournalError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        screen.say(f"the notes of targets could not be changed: {why}")
