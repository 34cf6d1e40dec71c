"""Journals with something wrong in them: a typed error, or the run that they held; nothing else happens for them."""

import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice
from typing import Any, Final

import anyio
import pytest

from graphflow import Graph, replay, resume, run_sync
from graphflow.errors import JournalError, NodeFailed, UsageError
from graphflow.events import Row, StoredRun
from graphflow.runtime.checksums import chained, without_checksum
from graphflow.runtime.rows import same
from graphflow.runtime.stored import prepared
from graphflow.testing import ManualClock, MemoryJournal
from tests.laws.agents import Temper, random_crew
from tests.laws.mutants import mutated
from tests.laws.teams import Book, random_team
from tests.support import examples

MUTANTS: Final = examples(5000)
"""On each of both backends."""

FORGED: Final = examples(2000)
"""Those whose checksums fit, on each of both backends."""

RUNS: Final = 16
"""How many runs there are to spoil."""


class Held:
    """A journal that holds whatever rows it was given."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.last, self.instant = rows[-1].seq if rows else -1, True

    async def claim(self, run: str) -> "Held":
        return self

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return tuple(self.rows)

    async def runs(self) -> Sequence[StoredRun]:
        return ()

    async def delete(self, run: str) -> bool:
        return False

    def append_nowait(self, row: Row) -> None:
        self.rows.append(row)

    async def append(self, row: Row) -> None:
        self.rows.append(row)

    async def release(self) -> None:
        pass


class Stored:
    """A run of a random team, whole or broken off, and what comes of it."""

    def __init__(self, seed: int) -> None:
        self.graph: Graph[Any] = (
            random_crew(seed, Temper(size=3, people=10)).graph if seed % 2 else random_team(seed).graph
        )
        journal = MemoryJournal()
        with suppress(ValueError):  # of a node or a model: it ended the run
            run_sync(self.graph, Book(), journal=journal, run_id="run", clock=ManualClock())
        rows = anyio.run(journal.read, "run")
        self.rows = rows[: random.Random(seed).randint(1, len(rows))] if seed % 3 == 0 else rows

    async def outcome(self, rows: Sequence[Row], *, go_on: bool) -> object:
        """What comes of rows: a result, or the name of an error that may be."""
        journal = Held(rows)
        try:
            if go_on:
                return await resume(self.graph, "run", journal=journal, clock=ManualClock())
            return await replay(self.graph, "run", journal=journal)
        except (JournalError, UsageError) as error:
            return type(error).__name__
        except NodeFailed as error:  # it had ended the run
            return f"raised {error.text}"
        except ValueError as error:  # it ends the run now
            return f"raised {error}"

    def holds(self, rows: Sequence[Row]) -> bool:
        """Whether each row is as it is written, so that all of them are the journal of a run."""
        written = prepared(self.graph).rows()
        records = [written.record("run", row) for row in rows]
        return all(
            same(written.storable(record.fact)[1], row.fact)
            and same(written.decisions(record.decisions), without_checksum(row.decisions))
            for row, record in zip(rows, records, strict=True)
        )


@pytest.fixture(scope="module")
def runs() -> list[Stored]:
    """Runs to spoil."""
    made = (Stored(seed) for seed in count())
    return list(islice((run for run in made if 6 <= len(run.rows) < 90), RUNS))


class Watched:
    """Notes what the process does outside while it is watched: files, imports, programs."""

    DOINGS: Final = (
        "open",
        "import",
        "subprocess.",
        "os.",
        "shutil.",
        "ctypes.",
        "pickle.",
        "socket.",
    )

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []

    def __call__(self, doing: str, arguments: object) -> None:
        """Hear of something; called for all that Python does, so nothing else may happen here."""
        if self.on and doing.startswith(self.DOINGS):
            self.seen.append(f"{doing} {arguments!r:.100}")


WATCHED: Final = Watched()
"""The only one: an audit hook is never taken away."""


@contextmanager
def watched() -> Generator[None]:
    """Nothing is opened, imported or started in here."""
    if WATCHED not in _HOOKED:
        _HOOKED.append(WATCHED)
        sys.addaudithook(WATCHED)
    WATCHED.seen.clear()
    WATCHED.on = True
    try:
        yield
    finally:
        WATCHED.on = False


_HOOKED: list[Watched] = []


Allowed = Callable[[Stored, Sequence[Row], str], bool]
"""Whether a mutant of a run may come to an end, which is said in a word."""


async def ends_of(runs: list[Stored], numbers: range, allowed: Allowed, *, fitting: bool = False) -> Counter[str]:
    """Replay mutants, and go on with them; count what comes of it.

    Whatever stands in them: it comes soon, takes little memory, and touches nothing.
    """
    whole = {(run, go_on): await run.outcome(run.rows, go_on=go_on) for run in runs for go_on in (False, True)}
    modules, memory, ends = set(sys.modules), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, Counter[str]()
    for number in numbers:
        rng = random.Random(number)
        run = rng.choice(runs)
        rows = mutated(run.rows, rng, [other.rows for other in runs])
        if fitting:
            rows = chained(rows)
        for go_on in (False, True):
            began = time.monotonic()
            with watched():
                found = await run.outcome(rows, go_on=go_on)
            assert time.monotonic() - began < 10, number
            assert not WATCHED.seen, (number, WATCHED.seen)
            equal, refused = found == whole[run, go_on], isinstance(found, str) and not found.startswith("raised")
            word = "equal" if equal else str(found) if refused else "another run"
            assert allowed(run, rows, word), (number, found)
            ends[word] += 1
    assert set(sys.modules) == modules
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000
    return ends


async def test_a_mutated_journal_is_refused_or_holds_its_run(runs: list[Stored], anyio_backend_name: str) -> None:
    """Whatever is wrong with its rows: a typed error or an equal run, and nothing else."""
    first = 0 if anyio_backend_name == "asyncio" else MUTANTS

    ends = await ends_of(runs, range(first, first + MUTANTS), lambda run, rows, word: word != "another run")

    assert ends["JournalDamaged"] > MUTANTS
    assert ends["equal"] > 0


async def test_a_mutant_whose_checksums_fit_does_no_more(runs: list[Stored], anyio_backend_name: str) -> None:
    """Whoever writes checksums too can make it another run, if it is one as it is written; nothing else happens."""
    first = 0 if anyio_backend_name == "asyncio" else FORGED

    ends = await ends_of(
        runs,
        range(first, first + FORGED),
        lambda run, rows, word: word != "another run" or run.holds(rows),
        fitting=True,
    )

    assert ends["another run"] < FORGED // 25
    assert {"JournalDamaged", "JournalMismatch", "equal"} <= set(ends)
