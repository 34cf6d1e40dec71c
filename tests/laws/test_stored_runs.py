"""Real runs that are broken off at any record, or cancelled, and gone on with by a new runner, on both backends."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Budget, Graph, Result, Run, Skip, State, reopen, replay, resume, run, start
from graphflow.errors import JournalUnavailable, NodeFailed
from graphflow.events import (
    CancelRequested,
    Emitted,
    Event,
    NodeEnded,
    NodeStarted,
    Row,
    RunEnded,
    SessionStarted,
)
from graphflow.model.ids import path_text
from graphflow.runtime.advance import Fold
from graphflow.runtime.halting import RAISABLE
from graphflow.runtime.starting import Starting
from graphflow.runtime.stored import prepared
from graphflow.testing import ManualClock, MemoryJournal, canonical_trace, fold_again
from tests.laws.acting import CALM, Mood, roll
from tests.laws.agents import QUIET, Temper, random_crew
from tests.laws.bounds import excesses, overruns
from tests.laws.stored import KINDS, Kind
from tests.laws.teams import Book, random_team
from tests.laws.test_agent_laws import answer_to
from tests.laws.test_cancellation import Watch, tasks_alive
from tests.support import BreakingJournal, SlowJournal, examples

SEEDS = st.integers(0, 2**48)
BREAKS = st.lists(st.integers(1, 40), max_size=3)
"""After how many records of each process it ends."""

ENDED = {"completed", "partial", "failed", "cancelled"}
MORE = Budget(node_runs=9, model_calls=9, tool_calls=9, retries=9, tokens=2000, usd="1", seconds=60.0)


@dataclass
class Life:
    """A run and the processes that it lives through.

    Attributes:
        graph: what runs.
        breaks: after how many records each process ends, but for the last.
        slow: whether its journal is to be waited for.
        answer: what people say.
        before: its hook, if it has one.
        first: what else its first process gives.
        cancel: after how many events somebody cancels it, or None.
        error: what was raised instead of a result.
    """

    graph: Graph[Any]
    breaks: list[int]
    slow: bool = False
    answer: Callable[[str, Any], object] = lambda question, _schema: question
    before: Callable[[State[Any]], Skip | None] | None = None
    first: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cancel: int | None = None
    error: str = ""
    journal: MemoryJournal = field(init=False)
    _left: float = 0
    _heard: int = 0
    _running: Run[Any] | None = None

    def __post_init__(self) -> None:
        """Make the journal."""
        self.journal = SlowJournal(0.0, self._store) if self.slow else BreakingJournal(self._store)

    def _store(self, _row: Row) -> None:
        if not self._left:
            msg = "the process ends here"
            raise JournalUnavailable(msg)
        self._left -= 1

    def _listen(self, _event: Event) -> None:
        self._heard += 1
        if self.cancel is not None and self._heard > self.cancel and self._running is not None:
            self.cancel = None
            self._running.cancel()

    async def live(self) -> Result[Any] | None:
        """Run to an end, in as many processes as that takes; return the result, None if an error came instead."""
        for left in (*self.breaks, *[float("inf")] * 200):
            self._left = left
            try:
                async with await self._process() as self._running:
                    result = await self._running.result()
            except JournalUnavailable:
                continue
            except (ValueError, NodeFailed) as error:  # of a model or a node: it ended the run
                self.error = str(error)
                return None
            if result.status != "waiting" and not _lacks(result):
                return result
        raise AssertionError(self.graph)

    async def _process(self) -> Starting[Any]:
        stored = await self.journal.read("run")
        given: dict[str, Any] = {"journal": self.journal, "clock": ManualClock(), "before": self.before}
        given["listeners"] = [self._listen]
        if not stored:
            return start(self.graph, Book(), run_id="run", **given, **self.first)
        return reopen(self.graph, "run", **given, **self._wanted(fold_again(self.graph, stored)))

    def _wanted(self, fold: Fold) -> dict[str, Any]:
        """What a run that waits, or stands still, needs."""
        ended: RunEnded | None = fold.ended
        if ended is not None and ended.status == "waiting":
            return {"answers": {name: self.answer(name, fold.questions[name].schema) for name in [*fold.questions][:2]}}
        return {"budget": MORE} if _lacks(ended) else {}

    async def fold(self) -> Fold:
        """The stored run, folded again."""
        return fold_again(self.graph, await self.journal.read("run"))

    async def events(self) -> list[Event]:
        """What is stored."""
        rows = prepared(self.graph).rows()
        records = [rows.record("run", row) for row in await self.journal.read("run")]
        return [event for record in records for event in record.events("run")]


def _lacks(end: Result[Any] | RunEnded | None) -> bool:
    """Whether more budget lets a run go on."""
    return end is not None and end.status == "exhausted" and end.reason is not None and end.reason.code in RAISABLE


def life(seed: int, kind: Kind, breaks: list[int], mood: Mood | None = None) -> Life:
    """A random team, or one of agents, in a random world."""
    rng = random.Random(seed)
    limit = rng.choice((None, None, 1, 3))
    if kind == "agents":
        assert mood is None or isinstance(mood, Temper)
        crew = random_crew(seed, mood)
        made = Life(crew.graph, breaks, answer=lambda question, schema: answer_to(crew, question, schema))
    else:
        made = Life(random_team(seed, mood).graph, breaks)
    made.slow, made.first = rng.randrange(3) == 0, {"max_parallel": limit}
    return made


# --- where timing has no say -----------------------------------------------------------------------------------------


@settings(max_examples=examples(700))
@given(SEEDS, BREAKS, st.sampled_from(KINDS))
async def test_a_real_run_that_was_broken_off_ends_as_if_it_had_not_been(
    seed: int, breaks: list[int], kind: Kind
) -> None:
    """Where timing has no say, result and trace are those of a run in one process, whatever the journal is like."""
    before = tasks_alive()
    calm = QUIET if kind == "agents" else CALM
    whole, parts = life(seed, kind, [], calm), life(seed, kind, breaks, calm)

    one, other = await whole.live(), await parts.live()

    assert parts.error == whole.error
    assert other == one
    assert trace(await parts.events()) == trace(await whole.events())
    assert tasks_alive() == before


def trace(events: list[Event]) -> tuple[str, ...]:
    """What happened, but for the sessions in which it did, and what tools say: they may say it again."""
    return canonical_trace(event for event in events if not isinstance(event.body, SessionStarted | Emitted))


# --- anything at all -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(1000))
@given(SEEDS, BREAKS, st.sampled_from(KINDS))
async def test_a_real_run_that_was_broken_off_keeps_every_law(seed: int, breaks: list[int], kind: Kind) -> None:
    """Whatever happens in it, a run that was broken off, waited or stood still ends, and what is stored is whole."""
    before = tasks_alive()
    made = life(seed, kind, breaks)
    rng = random.Random(seed)
    budget = rng.choice((None, Budget(node_runs=5, model_calls=4), Budget(tokens=200, seconds=0.5)))
    made.first = {**made.first, "budget": budget}
    made.cancel = rng.randrange(100) if rng.randrange(3) == 0 else None
    if rng.randrange(4) == 0:
        made.before = lambda state: Skip("no") if roll(5, seed, path_text(state.path)) == 0 else None

    result = await made.live()

    events, fold = await made.events(), await made.fold()
    started = Counter(event.path for event in events if isinstance(event.body, NodeStarted))
    ended = Counter(event.path for event in events if isinstance(event.body, NodeEnded))
    assert [event.seq for event in events] == list(range(len(events)))
    assert set(started.values()) | set(ended.values()) <= {1}
    assert list(overruns(made.graph, events)) == []
    assert list(excesses(made.graph, events, 0, Budget(node_runs=10**6))) == []
    assert tasks_alive() == before
    if fold.ended.status in ENDED:
        assert set(started) == set(ended)
        assert (fold.busy, fold.slots, fold.visits, fold.questions) == (0, 0, {}, {})
    if any(isinstance(event.body, CancelRequested) for event in events):
        assert fold.ended.status == "cancelled"
    if result is not None:
        assert await replay(made.graph, "run", journal=made.journal) == result


@settings(max_examples=examples(300))
@given(SEEDS, st.integers(0, 80), st.sampled_from(KINDS))
async def test_a_run_whose_caller_was_cancelled_is_over(seed: int, point: int, kind: Kind) -> None:
    """A caller that is cancelled at any event leaves a run that has ended, and to go on with it changes nothing."""
    before = tasks_alive()
    made = life(seed, kind, [])
    scope, journal = anyio.CancelScope(), MemoryJournal()
    watch = Watch(point, scope.cancel)
    with scope, suppress(ValueError):  # of a model or a node: it ended the run
        await run(made.graph, Book(), journal=journal, run_id="run", listeners=[watch], clock=ManualClock())
    rows = await journal.read("run")

    with suppress(NodeFailed):
        await resume(made.graph, "run", journal=journal, clock=ManualClock())

    assert await journal.read("run") == rows
    assert tasks_alive() == before
    asked = any(row.fact.startswith('["cancel_requested"') for row in rows)
    assert status(made.graph, rows) in ({"cancelled"} if asked else {*ENDED, "exhausted", "waiting"})


def status(graph: Graph[Any], rows: Sequence[Row]) -> str:
    """How a stored run has ended, or what it waits for."""
    ended: RunEnded = fold_again(graph, rows).ended
    return ended.status
