"""A run may be cancelled at any point, in any way: no task is left, every visit ends once, nothing else comes out."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import trio
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Result, run, start
from graphflow.events import CancelRequested, Event, Fact, NodeEnded, NodeStarted, RunEnded
from graphflow.testing import ManualClock, MemoryJournal
from tests.laws.acting import Mood, Team
from tests.laws.teams import Book, random_team
from tests.support import SlowingJournal, SlowJournal, examples

RUNS = examples(700)
"""Of each of the three tests, on each backend: 4,200 runs in the full size, of which half end before their point."""

SEEDS = st.integers(0, 2**48)
POINTS = st.integers(0, 60)
CLOSED = {"completed", "partial", "failed", "cancelled"}


def team_of(seed: int) -> Team:
    """A random team of some size whose nodes wait a lot, and raise now and then."""
    return random_team(seed, Mood(sleeps=60, raises=2, size=16))


_ = team_of(0)  # what checking a graph imports is read here, and not where it would block the event loop


def tasks_alive() -> int:
    """How many tasks the backend has."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return trio.lowlevel.current_statistics().tasks_living


def journaled(seed: int) -> bool:
    """Whether a run has a journal: half of them do."""
    return bool(seed % 2)


def options(seed: int, *listeners: Callable[[Event], None]) -> dict[str, Any]:
    """What a run gets: a journal or not, a limit of bodies or not, and time that is virtual."""
    return {
        "clock": ManualClock(),
        "journal": (MemoryJournal, SlowJournal, SlowingJournal)[seed % 6 // 2]() if journaled(seed) else None,
        "max_parallel": (None, 1, 3)[seed % 3],
        "listeners": list(listeners),
    }


class Watch:
    """A listener that keeps the events and does something at one of them."""

    def __init__(self, point: int, act: Callable[[], object]) -> None:
        self.point, self.act = point, act
        self.events: list[Event] = []
        self.asked = False

    def __call__(self, event: Event) -> None:
        """Keep an event; act at the chosen one, if the run has not ended before."""
        self.events.append(event)
        if len(self.events) > self.point and not self.asked and self.end is None:
            self.asked = True
            self.act()

    @property
    def end(self) -> RunEnded | None:
        """How the run has ended, if it has."""
        body = self.events[-1].body if self.events else None
        return body if isinstance(body, RunEnded) else None


def check(events: list[Event]) -> None:
    """The events are whole: numbered without gaps, one end, one end for each visit; cancelled if that was asked."""
    started = Counter(event.path for event in events if isinstance(event.body, NodeStarted))
    ended = Counter(event.path for event in events if isinstance(event.body, NodeEnded))
    assert [event.seq for event in events] == list(range(len(events)))
    assert set(started.values()) | set(ended.values()) <= {1}
    end = events[-1].body
    assert isinstance(end, RunEnded)
    if end.status in CLOSED:
        assert set(ended) == set(started)
    if requested(events):
        assert end.status == "cancelled"


def requested(events: list[Event]) -> bool:
    """Whether the run was asked to cancel before it had ended."""
    return any(isinstance(event.body, CancelRequested) for event in events)


@settings(max_examples=RUNS)
@given(SEEDS, POINTS)
async def test_cancelling_the_handle(seed: int, point: int) -> None:
    """`run.cancel()`, at any event, ends the run as cancelled; no error of a body comes out then."""
    before = tasks_alive()
    team = team_of(seed)
    watch = Watch(point, lambda: running.cancel())  # noqa: PLW0108 - the handle is there when the event is
    result: Result[Book] | None = None
    try:
        async with start(team.graph, Book(), **options(seed, watch)) as running:
            result = await running.result()
    except ValueError:
        assert not requested(watch.events)

    check(watch.events)
    assert tasks_alive() == before
    if watch.asked and not journaled(seed):  # the record of that event is heard to its end, which may be the run's
        assert requested(watch.events) or not any(isinstance(event.body, Fact) for event in watch.events[point + 1 :])
    if requested(watch.events):
        assert result is not None
        assert result.status == "cancelled"


@settings(max_examples=RUNS)
@given(SEEDS, POINTS)
async def test_cancelling_the_caller(seed: int, point: int) -> None:
    """A caller that is cancelled itself, at any event, gets its cancellation and nothing else."""
    before = tasks_alive()
    team = team_of(seed)
    raised = None
    scope = anyio.CancelScope()
    watch = Watch(point, scope.cancel)
    with scope:
        try:
            await run(team.graph, Book(), **options(seed, watch))
        except ValueError as error:
            raised = error

    check(watch.events)
    assert tasks_alive() == before
    if requested(watch.events):
        assert raised is None
        assert scope.cancelled_caught


@settings(max_examples=RUNS)
@given(SEEDS, POINTS)
async def test_leaving_early(seed: int, point: int) -> None:
    """Leaving the run after any number of turns of the event loop reaps it and raises nothing."""
    before = tasks_alive()
    team = team_of(seed)
    watch = Watch(0, lambda: None)
    async with start(team.graph, Book(), **options(seed, watch)):
        for _ in range(point):
            await checkpoint()

    check(watch.events)
    assert tasks_alive() == before
