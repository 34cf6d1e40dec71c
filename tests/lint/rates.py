"""How many seeded runs each rule flags, and how many good runs show something that is not there."""

import functools
from typing import Any, Final, NamedTuple

import anyio

from graphflow import Context, Graph, run_sync
from graphflow.cli.stored import Stored, read_rows
from graphflow.events import Event
from graphflow.lint import RULES, lint
from graphflow.testing.stored import rows_in
from tests.journals.make import FOLDER, OF_OLD, RUNS
from tests.lint.builders import played
from tests.lint.seeds import BAD, GOOD

SHOWN_IN_CORPUS: Final = {
    "chat_forked": ("bound-for-an-end",),
    "chat_waiting": ("bound-for-an-end",),
    "refused": ("unused-report",),
    "support_desk_exhausted": ("bound-for-an-end",),
}
"""What stored runs of the corpus really show: they were made to end at a bound, or to be refused."""


class Rate(NamedTuple):
    """What a rule makes of its seeds: how many there are, and how many it flags."""

    code: str
    mode: str
    flagged: int
    seeded: int


async def _rate(code: str, mode: str) -> Rate:
    flagged = 0
    for seed in BAD[code]:
        graph = seed.make()
        flagged += bool(lint(graph, await played(graph), only=[code]))
    return Rate(code, mode, flagged, len(BAD[code]))


@functools.cache
def rates() -> tuple[Rate, ...]:
    """Measure every rule on its seeds."""
    return tuple(anyio.run(_rate, rule.code, rule.mode) for rule in RULES)


@functools.cache
def alarms() -> tuple[tuple[str, ...], ...]:
    """Return the codes that each good run shows: seeded ones, and those of the corpus beyond what they really show."""
    found: list[tuple[str, ...]] = []
    for seed in GOOD:
        graph = seed.make()
        found.append(tuple(one.code for one in lint(graph, anyio.run(played, graph))))
    good = [name for name in RUNS if name not in OF_OLD]  # those are kept for what went wrong in them
    corpus = [tuple(code for code in codes_of(name) if code not in SHOWN_IN_CORPUS.get(name, ())) for name in good]
    return (*found, *corpus)


def stored(name: str) -> Stored:
    """Read a run of the corpus without its graph."""
    return read_rows(*rows_in(FOLDER / f"{name}.jsonl"))


def codes_of(name: str) -> tuple[str, ...]:
    """Return what a run of the corpus shows."""
    return tuple(one.code for one in lint(RUNS[name].graph, stored(name).events()))


def happened(graph: Graph[Any], context: Context) -> list[Event]:
    """Run a graph, and return what happened."""
    events: list[Event] = []
    run_sync(graph, context, listeners=[events.append])
    return events
