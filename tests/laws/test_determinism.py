"""What may not change a run: the order of statements, the names of nodes, timing, and the seed of hashes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import run_sync
from graphflow.events import Event, SleepRequested
from graphflow.testing import ManualClock, canonical_trace
from tests.laws.acting import CALM, Team, roll
from tests.laws.driver import Driver
from tests.laws.teams import Book, random_team
from tests.support import ROOT, examples

SEEDS = st.integers(0, 2**48)
SCHEDULES = 4
HASH_SEEDS = ("0", "1", "2", "3")


def played(team: Team, schedule: int) -> Driver:
    """A run of a team under one schedule."""
    return Driver(team.graph, team.author, random.Random(schedule)).go(Book())


def trace(team: Team, events: Iterable[Event]) -> tuple[str, ...]:
    """The canonical trace without how long nodes asked to sleep, with the names from before they were renamed."""
    kept = [event for event in events if not isinstance(event.body, SleepRequested)]
    return tuple(sorted(team.plain(line) for line in canonical_trace(kept)))


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_every_schedule_gives_one_trace(seed: int) -> None:
    """Where timing is no part of what was declared, whoever comes first, trace, end and context are the same."""
    team = random_team(seed, CALM)

    runs = [played(team, schedule) for schedule in range(SCHEDULES)]

    assert len({trace(team, driver.events) for driver in runs}) == 1
    assert len({repr(driver.end) for driver in runs}) == 1
    assert len({driver.fold.context for driver in runs}) == 1


@settings(max_examples=examples(500))
@given(SEEDS)
def test_shuffled_statements_give_the_same_run(seed: int) -> None:
    """The order of the statements is no meaning: fingerprint, trace and context stay, nested graphs included."""
    one = random_team(seed, CALM)
    other = random_team(seed, CALM, order=random.Random(seed))

    runs = [played(one, 0), played(other, 1)]

    assert one.graph.fingerprint() == other.graph.fingerprint()
    assert trace(one, runs[0].events) == trace(other, runs[1].events)
    assert runs[0].fold.context == runs[1].fold.context


@settings(max_examples=examples(500))
@given(SEEDS)
def test_renamed_nodes_give_the_same_run(seed: int) -> None:
    """Names sort nowhere: with other names the trace is the same but for the names."""
    one = random_team(seed, CALM)
    other = random_team(seed, CALM, names=random.Random(seed))

    runs = [played(one, 0), played(other, 1)]

    assert trace(one, runs[0].events) == trace(other, runs[1].events)
    assert one.plain(runs[0].fold.context) == other.plain(runs[1].fold.context)


@settings(max_examples=examples(300))
@given(SEEDS)
def test_backends_and_sleeps_give_one_trace(seed: int) -> None:
    """However long nodes sleep, and on either backend, a real run leaves one trace and one context."""
    team = random_team(seed, CALM)
    traces, contexts = set[tuple[str, ...]](), set[Book]()
    for backend, tempo in (("asyncio", 0), ("asyncio", 1), ("trio", 2), ("trio", 3)):
        events: list[Event] = []
        team.tempo = tempo
        result = run_sync(team.graph, Book(), backend=backend, clock=ManualClock(), listeners=[events.append])
        traces.add(trace(team, events))
        contexts.add(result.context)

    assert len(traces) == len(contexts) == 1


def hashed() -> str:
    """A digest of some runs and of all that their graphs say of themselves."""
    found: list[object] = []
    for seed in range(examples(100)):
        team = random_team(seed, CALM)
        events: list[Event] = []
        result = run_sync(team.graph, Book(), clock=ManualClock(), listeners=[events.append])
        found += [canonical_trace(events), result.context, team.graph.fingerprint(), team.graph.check()]
        found += [team.graph.structure(), str(team.graph.worst_case()), played(team, seed).events]
    return f"{roll(2**60, *found):x}"


def test_hash_seeds_give_one_trace() -> None:
    """Four processes with other seeds for their hashes make the same runs, events in the same order."""
    code = "from tests.laws.test_determinism import hashed; print(hashed())"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]

    found = [process.communicate()[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * len(HASH_SEEDS)
    assert len(set(found)) == 1
