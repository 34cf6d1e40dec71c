"""What may not change a run: the order of statements, the names of nodes, timing, and the seed of hashes."""

import hashlib
import os
import random
import subprocess
import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Graph, Node, run
from graphflow.events import Event, SleepRequested
from graphflow.testing import ManualClock, canonical_trace
from tests.laws.driver import Driver, World
from tests.laws.teams import CALM, Book, Team, random_team
from tests.support import ROOT, examples

SEEDS = st.integers(0, 2**48)


def played(team: Team, graph: Graph[Book], schedule: int) -> Driver:
    """A run of a graph of the team's under one schedule."""
    return Driver(graph, team.author, random.Random(schedule), World()).go(Book())


def trace(driver: Driver) -> tuple[str, ...]:
    """What timing may not change of a run."""
    return canonical_trace(driver.events)


def shuffled(graph: Graph[Book], rng: random.Random) -> Graph[Book]:
    """The same graph with the statements in another order, those of graphs inside it too."""
    copy = graph.named(graph.name)
    statements = list(graph.statements)
    rng.shuffle(statements)
    object.__setattr__(copy, "statements", tuple(statements))
    return copy


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_schedules_and_timings_give_one_trace(seed: int) -> None:
    """Where timing is no part of what was declared, every schedule gives one trace and one final state."""
    team = random_team(seed, CALM)

    runs = [played(team, team.graph, schedule) for schedule in range(4)]

    assert len({trace(driver) for driver in runs}) == 1
    assert len({driver.fold.context for driver in runs}) == 1
    assert len({repr(driver.end) for driver in runs}) == 1
