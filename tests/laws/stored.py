"""Runs that are broken off and taken up again, through the fold and a scripted world: no process has to end for it."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from graphflow import Graph
from graphflow.events import CancelRequested, Fact, Record, Row
from graphflow.runtime.advance import Fold
from graphflow.runtime.stored import fold_rows, prepared
from tests.laws import test_agent_laws, test_run_laws
from tests.laws.acting import Mood
from tests.laws.agents import Temper, random_crew
from tests.laws.driver import Driver, Watch, World
from tests.laws.teams import Book, random_team

Kind = Literal["functions", "agents"]

KINDS: tuple[Kind, ...] = ("functions", "agents")


@dataclass(slots=True)
class Case:
    """A random team in a random world.

    Attributes:
        seed: what it is made of.
        kind: what stands in it.
        mood: how its nodes behave; drawn from the seed by default.
        world: what it runs in; drawn from the seed by default.
        watches: what looks at every record of every driver.
        rng: what happens next is drawn from it.
    """

    seed: int
    kind: Kind
    mood: Mood | None = None
    world: World | None = None
    watches: tuple[Watch, ...] = ()
    rng: random.Random = field(init=False)
    graph: Graph[Any] = field(init=False)
    _new: Callable[[World], Driver] = field(init=False)

    def __post_init__(self) -> None:
        """Make the team and its world."""
        rng = self.rng = random.Random(self.seed)
        if self.kind == "agents":
            assert self.mood is None or isinstance(self.mood, Temper)
            crew = random_crew(self.seed, self.mood)
            self.graph = crew.graph
            self.world = self.world or test_agent_laws.world(crew, rng)
            self._new = lambda world: test_agent_laws.CrewDriver(crew, rng, world)
        else:
            team = random_team(self.seed, self.mood)
            self.graph = team.graph
            self.world = self.world or test_run_laws.world(team, rng)
            self._new = lambda world: Driver(team.graph, team.author, rng, world)

    def driver(self, *watches: Watch) -> Driver:
        """A driver that writes rows and has done nothing yet."""
        assert self.world is not None
        made = self._new(replace(self.world))
        made.rows = prepared(self.graph).rows()
        made.watches += (*self.watches, *watches)
        return made

    def ran(self, *watches: Watch) -> Driver:
        """The run, without a break."""
        return self.driver(*watches).go(Book())

    def resumed(self, stored: Sequence[Row], *facts: Fact, watches: Sequence[Watch] = ()) -> Driver:
        """The run, gone on with after some rows to an end, as a new process does."""
        rows = prepared(self.graph).rows()
        folded = fold_rows(self.graph, "run", stored, rows, changed="compatible", keep=True)
        driver = self.driver(*watches)
        if any(isinstance(record.fact, CancelRequested) for record in folded.records or ()):
            driver.world.cancel = None
        return driver.take_up(folded, stored, *facts)


class Moments:
    """Remembers what a run was in the middle of after each record."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}

    def __call__(self, driver: Driver, record: Record) -> None:
        """Look at a run after a record."""
        for name in moments(driver.fold):
            self.found.setdefault(name, []).append(len(driver.records))

    def draw(self, rng: random.Random) -> int:
        """Draw how many rows a journal has when a process ends: what happens seldom is drawn as often as the rest."""
        return rng.choice(self.found[rng.choice(sorted(self.found))])


def moments(fold: Fold) -> Iterator[str]:
    """Say what a run is in the middle of."""
    yield "any"
    if fold.halted is not None:
        yield "halted" if fold.ended is None else "exhausted"
    elif fold.ended is not None:
        yield "waiting" if fold.ended.status == "waiting" else "ended"
    if fold.cancelling:
        yield "cancelling"
    if fold.unfunded:
        yield "unfunded"
    if fold.queue:
        yield "queued"
    for visit in fold.visits.values():
        if visit.closing is not None:
            yield "closing a scope"
        if visit.timed_out:
            yield "timed out"
        if visit.naps:
            yield "sleeping"
        if visit.attempt:
            yield "retrying"


def broken(case: Case, times: int = 2, *, seen: Callable[[Sequence[Row]], object] | None = None) -> Driver:
    """A run that was broken off some times at random moments, and taken up again each time, to its end."""
    moments = Moments()
    driver = case.ran(moments)
    for _ in range(times):
        kept = driver.stored[: moments.draw(case.rng)]
        if seen is not None:
            seen(kept)
        moments = Moments()
        driver = case.resumed(kept, watches=[moments])
        moments.found = moments.found or {"any": [len(driver.stored)]}
    return driver


def tables(fold: Fold) -> dict[str, object]:
    """What a fold holds, as far as it can be compared."""
    return {
        "at": fold.at,
        "visits": {
            path: (visit.turn, visit.attempt, visit.standing, visit.slot, visit.timed_out, sorted(visit.flying))
            for path, visit in fold.visits.items()
        },
        "questions": {name: asked.text for name, asked in fold.questions.items()},
        "scopes": sorted(fold.scopes),
        "timers": {number: (timer.at, timer.limit) for number, timer in fold.timers.items()},
        "counts": (fold.busy, fold.slots, len(fold.queue), len(fold.unfunded), fold.cancelling, fold.partial),
        "ended": fold.ended,
        "halted": None if fold.halted is None else (fold.halted.reason, sorted(fold.halted.awaited), fold.halted.late),
        "context": fold.context,
        "output": fold.output,
        "thread": fold.thread,
        "active": fold.active,
        "troubles": (fold.troubles, fold.refusals),
        "spent": (fold.total(), fold.spending(), fold.spent_by_edge),
    }
