"""`graphflow runs list` and `runs delete`: the runs that are stored."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import anyio

from graphflow.cli.faults import BadUse, reading
from graphflow.cli.printing import Screen
from graphflow.cli.results import EXIT_CODES, to_json
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
            screen.out.line(to_json([summary_data(run) for run in found]))
        elif found:
            screen.out.line("\n".join(_table(found, time.time(), ascii=screen.out.ascii)))
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


def _table(found: Sequence[Summary], now: float, *, ascii: bool) -> Iterator[str]:
    """Yield the lines of a table, as wide as what stands in it."""
    lines = [_HEAD, *(_cells(run, now, ascii=ascii) for run in found)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(_HEAD))]
    for line in lines:
        padded = [text + " " * (width - cells(text)) for text, width in zip(line, widths, strict=True)]
        padded[-1] = padded[-1].strip().rjust(widths[-1])  # a number
        yield "  ".join(padded).rstrip()


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
            return 0
        gone: list[str] = []
        try:
            anyio.run(_delete, store, chosen, gone)
        finally:
            _forget(screen, store, gone)
            if json:
                screen.out.line(to_json({"deleted": gone}))
            elif gone:
                screen.out.line("\n".join(f"deleted {shown(run, NAME)}" for run in gone))
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
    for line in _table([summary_of(run) for run in chosen], time.time(), ascii=screen.err.ascii):
        screen.say(line)
    screen.err.write(f"Delete {'it' if len(chosen) == 1 else f'all {len(chosen)}'} for good? [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _forget(screen: Screen, store: Store, gone: Sequence[str]) -> None:
    try:
        store.targets.forget(gone)
    except (OSError, JournalError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        screen.say(f"the notes of targets could not be changed: {why}")
