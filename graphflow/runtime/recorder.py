"""The recorder: what is told to the fold becomes a record, is stored, and is heard by whoever listens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from graphflow.errors import InternalError, NotStorable, UsageError
from graphflow.events import (
    AnswerGiven,
    Before,
    BudgetAdded,
    CancelRequested,
    Clock,
    Event,
    Fact,
    Heard,
    Listener,
    ListenerFailed,
    Record,
    Row,
    SessionStarted,
    Writer,
)
from graphflow.graphs.graph import Graph
from graphflow.runtime.advance import Fold
from graphflow.runtime.commands import Command
from graphflow.runtime.core import failure_of

if TYPE_CHECKING:
    from graphflow.runtime.redaction import Redact
    from graphflow.runtime.rows import Rows

TAKING_UP: Final = (SessionStarted, BudgetAdded)
"""The facts that a run which has ended can take."""


class Store(NamedTuple):
    """Where the records of one run go, and how they are written."""

    rows: Rows
    writer: Writer


class Setup(NamedTuple):
    """What a run is given from outside.

    Attributes:
        graph: what to run.
        run_id: its id.
        clock: where time comes from.
        store: where records go, or None.
        listeners: called with each event.
        before: asked before each visit.
        resources: what `step.resource` finds.
        redact: what is done to each text that comes from outside, or None.
        keep: whether records are kept for an iterator over the events.
    """

    graph: Graph[Any]
    run_id: str
    clock: Clock
    store: Store | None
    listeners: Sequence[Listener]
    before: Before | None
    resources: Sequence[object]
    redact: Redact | None
    keep: bool


class Recorder:
    """The part of a runner that records; it names the calls to the other parts."""

    __slots__ = (
        "_awake", "_clock", "_early", "_latest", "_listeners", "_lock", "_news", "_origin", "_recording", "_slow",
        "_slowing", "_soon", "_stopping", "crash", "fold", "records", "redact", "run_id", "seq", "store",
    )  # fmt: skip

    def __init__(self, setup: Setup) -> None:
        """Begin before the first fact."""
        self.fold = Fold(setup.graph)
        self.run_id = setup.run_id
        self.crash: BaseException | None = None
        self.records: deque[Record | Event] | None = deque() if setup.keep else None
        self.seq = 0
        self._origin = 0.0  # what the clock would have shown as the run began, had it stood still between sessions
        self._latest = 0.0  # the active seconds of the last record
        self.redact = setup.redact
        self.store = setup.store
        self._slow = setup.store is not None and not setup.store.writer.instant  # storing is to be waited for
        self._slowing = False  # it will be, as soon as this session has a host
        self._clock = setup.clock
        self._listeners = dict(enumerate(setup.listeners))
        self._soon: deque[Fact] = deque()  # to be recorded as soon as the record under way is done
        self._early: list[Fact] = []  # what people want of a session that has not begun
        self._recording = False
        self._stopping = False
        self._news: list[anyio.Event] = []
        self._awake: int = 0
        self._lock: anyio.Lock | None = None  # made when a record is first to be waited for

    def _active(self) -> float:
        """Return the active seconds since the run began."""
        return self._clock.now() - self._origin

    def _one_at_a_time(self) -> anyio.Lock:
        """Return the lock of the records, where storing is to be waited for."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    @property
    def _ended(self) -> bool:
        """Whether nothing more can be recorded."""
        ended = self.fold.ended
        return self.crash is not None or (ended is not None and ended.status != "waiting")

    async def record(self, fact: Fact) -> None:
        """Advance the fold, store the record, then carry out the commands."""
        if not self._slow:
            self.record_now(fact)
            return
        with anyio.CancelScope(shield=True):  # what the fold has decided is stored and carried out, come what may
            self._soon.append(fact)  # before the lock is waited for, so that facts keep their order
            async with self._one_at_a_time():
                await self._store_soon()

    async def _store_soon(self) -> None:
        """Advance the fold by what is to be recorded, in order."""
        store = self.store
        assert store is not None  # noqa: S101 - it is what is waited for
        while self._soon:
            made = self._advance(self._soon.popleft())
            if made is not None:
                entry, row, commands = made
                assert entry is not None and row is not None  # noqa: S101, PT018 - a journal takes them all
                try:
                    await store.writer.append(row)
                except BaseException as error:  # noqa: BLE001 - whatever the store raises ends the run, and is raised
                    self._crashed(error)
                    return
                self._publish(entry)
                self._carry_out(commands)

    def record_now(self, fact: Fact) -> None:
        """Do what `record` does when there is nothing to wait for."""
        soon = self._soon
        if soon or self._recording:
            soon.append(fact)
            if self._recording:  # what a listener does now has its turn when this record is done
                return
            fact = soon.popleft()
        while True:
            made = self._advance(fact)
            if made is not None:
                entry, row, commands = made
                if row is not None and self.store is not None:
                    writer = self.store.writer
                    try:
                        writer.append_nowait(row)
                    except BaseException as error:  # noqa: BLE001 - whatever the store raises ends the run, and is raised
                        self._crashed(error)
                        entry, commands = None, []
                    if not writer.instant:
                        self._slowing = True
                if entry is not None:
                    self._recording = True
                    self._publish(entry)
                    self._recording = False
                if commands:
                    self._carry_out(commands)
            if not soon:
                return
            fact = soon.popleft()

    def record_soon(self, fact: Fact) -> None:
        """Record from where nothing can be awaited."""
        tasks = self._tasks()
        if not self._in_session() or self._stopping:
            self._put_off(fact)
        elif not self._slow:
            self.record_now(fact)
        elif tasks is not None:
            self._soon.append(fact)
            self._awake += 1
            tasks.start_soon(self._flush)

    async def _flush(self) -> None:
        """Record what was put off, unless somebody else has done so meanwhile."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time():
                await self._store_soon()
        self.awake(-1)

    def _put_off(self, fact: Fact) -> None:
        """Keep what people want for the next session; nothing else is recorded between sessions."""
        once = isinstance(fact, CancelRequested) and fact not in self._early
        if once or isinstance(fact, AnswerGiven):
            self._early.append(fact)

    def _advance(self, fact: Fact) -> tuple[Record | None, Row | None, list[Command]] | None:
        """Advance the fold; return the record and its row, if anybody takes them, and what is to be done."""
        if self.crash is not None or (self.fold.ended is not None and self._ended and not isinstance(fact, TAKING_UP)):
            return None
        if self._stopping:
            self._put_off(fact)
            return None
        at, now = self._latest, self._clock.now() - self._origin
        if not now <= at:  # a clock that is set back does not undo what was
            if not now < _ENDLESS:
                self._crashed(no_time(self._clock, now + self._origin))
                return None
            at = self._latest = now
        row, text, store = None, "", self.store
        try:
            if self.redact is not None:
                from graphflow.runtime.redaction import redacted_fact

                fact = redacted_fact(fact, self.redact)
            if store is not None:
                fact, text = store.rows.storable(fact)
            decisions, commands = self.fold.advance(fact, at)
            if store is not None:
                row = store.rows.row(self.seq, at, text, decisions)
        except (NotStorable, UsageError) as error:
            self._crashed(error)
            return None
        except Exception as error:  # noqa: BLE001 - a bug of ours ends the run, and is raised
            self._crashed(error if isinstance(error, InternalError) else _internal(error))
            return None
        except BaseException as error:  # noqa: BLE001 - out of a user's function; it passes unchanged
            self._crashed(error)
            return None
        entry = None
        if self.records is not None or self._listeners or self._slow:
            entry = Record(self.seq, at, fact, tuple(decisions))
        self.seq += 1 + len(decisions)
        return entry, row, commands

    def _publish(self, entry: Record) -> None:
        if self.records is not None:
            self.records.append(entry)
            self._tell()
        for number in tuple(self._listeners):
            for event in entry.events(self.run_id):
                if not self._heard(number, event):
                    break

    def say(self, body: Heard) -> None:
        """Tell whoever listens something that no journal keeps."""
        if self._ended or self._stopping:
            return
        event = Event(self.run_id, self.seq, self._active(), body)
        if self.records is not None:
            self.records.append(event)
            self._tell()
        for number in tuple(self._listeners):
            self._heard(number, event)

    def _heard(self, number: int, event: Event) -> bool:
        """Tell a listener something; one that raises hears nothing more."""
        listener = self._listeners.get(number)
        if listener is None:
            return False
        try:
            listener(event)
        except (KeyboardInterrupt, SystemExit) as error:
            self._crashed(error)
            return False
        except BaseException as error:  # noqa: BLE001 - a listener cannot break a run
            del self._listeners[number]
            self._listener_failed(listener, error, event.at)
            return False
        return True

    def _listener_failed(self, listener: Listener, error: BaseException, at: float) -> None:
        import logging  # only where something went wrong

        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        logging.getLogger("graphflow").error("a listener failed and hears nothing more: %s", name, exc_info=error)
        text = f"{type(error).__name__}: {failure_of(error).text}"
        event = Event(self.run_id, self.seq, at, ListenerFailed(name, text))
        if self.records is not None:
            self.records.append(event)
            self._tell()
        for other in tuple(self._listeners):
            self._heard(other, event)

    def _tell(self) -> None:
        news, self._news = self._news, []
        for event in news:
            event.set()

    def news(self) -> anyio.Event:
        """Return an event that is set when there are new records, or the session ends."""
        event = anyio.Event()
        self._news.append(event)
        return event

    # --- calls to the other parts ---

    def awake(self, change: int) -> None:
        """Count the tasks of the run that do not sleep on the clock (timekeeper)."""
        raise NotImplementedError

    def _in_session(self) -> bool:
        """Tell whether facts are taken now (sessions)."""
        raise NotImplementedError

    def _tasks(self) -> TaskGroup | None:
        """Return the task group of the session (sessions)."""
        raise NotImplementedError

    def _carry_out(self, commands: list[Command]) -> None:
        """Do what the fold says (runner)."""
        raise NotImplementedError

    def _crashed(self, error: BaseException) -> None:
        """Stop everything at once, without a further record (sessions)."""
        raise NotImplementedError


_ENDLESS: Final = float("inf")


def no_time(clock: Clock, shown: object) -> UsageError:
    """Return the error for a clock that shows no time: nothing of the run is lost, and a stored one can be resumed."""
    return UsageError(
        f"clock={clock!r}: now() gave {shown!r}: a finite number of seconds is needed, from a clock that goes on. The "
        f"run was broken off; if it is stored, it can be resumed with another clock."
    )


def _internal(error: Exception) -> InternalError:
    made = InternalError(f"the fold raised {type(error).__name__}: {error}")
    made.__cause__ = error
    return made
