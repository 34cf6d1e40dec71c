"""How the cases play a graph: on a clock that jumps, into a journal in memory, with the standing laws held."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from graphflow import Budget, Context, Graph, Reason, Result, Run, start
from graphflow.events import Event, NodeEnded, NodeReentered, NodeSkipped, NodeStarted, Record, Refused
from graphflow.model.ids import names, path_text
from graphflow.runtime.advance import Fold
from graphflow.testing import ManualClock, MemoryJournal, fold_again

C = TypeVar("C", bound=Context)
B = TypeVar("B")

CLOSED = {"completed", "partial", "failed", "cancelled"}
"""How a run ends for good; a run that waits or is exhausted leaves visits open."""


@dataclass(frozen=True)
class Played(Generic[C]):
    """A run that has ended: its result, what it raised, and everything that happened."""

    result: Result[C]
    error: Exception | None
    events: tuple[Event, ...]

    def of(self, kind: type[B]) -> list[B]:
        return [event.body for event in self.events if isinstance(event.body, kind)]

    @property
    def started(self) -> list[str]:
        """The visits that started, in order, as the names of their paths."""
        return ["/".join(names(body.path)) for body in self.of(NodeStarted)]

    @property
    def ended(self) -> dict[str, str]:
        """The terminal event of each visit, by the text of its path."""
        return {path_text(body.path): body.status for body in self.of(NodeEnded)}

    @property
    def skipped(self) -> dict[str, Reason]:
        """What was not run, and why, by the text of its path."""
        return {path_text(body.path): body.reason for body in self.of(NodeSkipped)}

    @property
    def refused(self) -> list[str]:
        """The bounds that refused something, in order."""
        return [body.bound for body in self.of(Refused)]

    @property
    def reason(self) -> Reason:
        """Why the run did not complete."""
        assert self.result.reason is not None
        return self.result.reason


async def play(
    graph: Graph[C],
    context: C,
    *,
    answers: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    max_parallel: int | None = None,
    meanwhile: Callable[[Run[C]], None] | None = None,
) -> Played[C]:
    """Run a graph to its end, answering questions by their text's first line, and hold what every run must hold."""
    journal = MemoryJournal()
    events: list[Event] = []
    error: Exception | None = None
    handle = start(
        graph,
        context,
        budget=budget,
        max_parallel=max_parallel,
        journal=journal,
        listeners=[events.append],
        clock=ManualClock(),
    )
    async with handle as run:
        if meanwhile is not None:
            meanwhile(run)
        result = None
        while result is None:
            try:
                result = await run.result()
            except Exception as raised:  # noqa: BLE001 - whatever a case raises is looked at by the case
                result, error = run.outcome, raised
            asked = {question.text.partition("\n")[0]: question.id for question in result.questions}
            known = [text for text in asked if text in (answers or {})]
            if known and answers is not None:
                run.answer(asked[known[0]], answers[known[0]])
                result = None
        run_id = run.run_id
    records = await journal.read(run_id)
    fold = fold_again(graph, records)
    _hold(result, fold, records, events)
    return Played(result, error, tuple(events))


def _hold(result: Result[Any], fold: Fold, records: tuple[Record, ...] | Any, events: list[Event]) -> None:
    """Each visit that started ends once, and does nothing afterwards; folding again gives the same result."""
    assert fold.ended is not None
    assert fold.ended.status == result.status
    assert fold.context == result.context
    assert [event.seq for event in events] == list(range(len(events)))
    started = Counter(event.body.path for event in events if isinstance(event.body, NodeStarted))
    ended = Counter(event.body.path for event in events if isinstance(event.body, NodeEnded))
    assert set(started.values()) <= {1}
    assert set(ended.values()) <= {1}
    assert ended.keys() <= started.keys()
    if result.status in CLOSED:
        assert ended.keys() == started.keys()
        assert not fold.visits
        assert not fold.questions
        assert not fold.scopes
    over: set[Any] = set()
    for event in events:
        if isinstance(event.body, (NodeStarted, NodeReentered)):
            assert event.body.path not in over
        elif isinstance(event.body, NodeEnded):
            over.add(event.body.path)
