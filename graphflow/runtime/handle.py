"""The entry points: `run`, `run_sync`, and `start`, which gives a handle on a running graph."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import TypeAdapter

from graphflow.errors import InternalError, UsageError
from graphflow.events import (
    AnswerGiven,
    Before,
    CancelRequested,
    Clock,
    Earlier,
    Event,
    Fact,
    Journal,
    Listener,
    Record,
    RunStarted,
)
from graphflow.graphs.graph import Graph
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.contract import Report
from graphflow.model.frozen import Json
from graphflow.model.ids import new_run_id, parse_path, path_text
from graphflow.model.outcome import NOTHING
from graphflow.model.thread import ThreadMessage
from graphflow.runtime.clock import RealClock
from graphflow.runtime.failures import at_a_bound
from graphflow.runtime.result import Question, Result, Spending

if TYPE_CHECKING:
    from graphflow.runtime.runner import Runner

C = TypeVar("C", bound=Context)


class Run(Generic[C]):
    """A handle on a run: iterate over its events, await its result, answer its questions, cancel it.

    Made by `start`. It may be entered, iterated, awaited and left in different tasks.

    Attributes:
        run_id: the run's id.
    """

    def __init__(self, graph: Graph[C], first: RunStarted, runner: Runner) -> None:
        """Take the parts; `start` makes them."""
        self.run_id = first.run
        self._graph, self._runner = graph, runner
        self._first: Fact | None = first
        self._session: anyio.Event | None = None
        self._ready: deque[Event] = deque()
        self._answered: set[str] = set()

    # --- as a context manager ---

    async def __aenter__(self) -> Self:
        """Begin to run."""
        first, self._first = self._first, None
        if first is None:
            msg = f"the run {self.run_id!r} has been entered already: call start() again for another run."
            raise UsageError(msg)
        self._begin(first)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what still runs, and wait until no task of the run is left."""
        if self._session is not None and not self._session.is_set():
            self.cancel("its caller" if error is not None else "leaving the run")
            with anyio.CancelScope(shield=True):
                await self._quiet()

    def _begin(self, fact: Fact) -> None:
        self._session = session = anyio.Event()
        _spawn(lambda: self._run_session(session, fact), session.set)

    async def _run_session(self, session: anyio.Event, fact: Fact) -> None:
        """Run one session; nothing that happens in it leaves it but through `result()`."""
        from graphflow.runtime.body import cancelled_classes

        try:
            await self._runner.session(fact)
        except cancelled_classes():
            raise  # the host itself is being cancelled, as when its loop ends
        except BaseException as error:  # noqa: BLE001 - `result()` raises it, in the caller's task
            self._runner.crash = self._runner.crash or error
        finally:
            session.set()

    async def _quiet(self) -> None:
        while self._session is not None and not self._session.is_set():
            await self._session.wait()

    # --- events ---

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events, each once, from the first; ends when the run has ended or waits for people."""
        return self

    async def __anext__(self) -> Event:
        """Return the next event; no generator, so that nothing is left to be closed when a loop is left early."""
        records, ready = self._runner.records, self._ready
        assert records is not None  # noqa: S101 - `start` keeps them
        while not ready:
            if records:
                entry = records.popleft()
                ready.extend(entry.events(self.run_id) if isinstance(entry, Record) else (entry,))
            elif self._session is None or self._session.is_set():
                raise StopAsyncIteration
            else:
                await self._runner.news().wait()
                await anyio.lowlevel.checkpoint_if_cancelled()  # news that never end must not keep a cancellation off
        return ready.popleft()

    # --- the result ---

    async def result(self) -> Result[C]:
        """Wait until the run has ended, or waits for people alone, and return its result.

        Raises:
            Exception: the very object that a node's body raised, if it ended the run; its notes name the path.
            KeyboardInterrupt, SystemExit: as a body raised them.
            InternalError: a bug of ours.
        """
        await self._quiet()
        crash = self._runner.crash
        if crash is not None:
            raise crash
        result = self.outcome
        reason = result.reason
        if result.status == "failed" and reason is not None:
            raised = self._runner.errors.get(parse_path(reason.path))
            if raised is not None and type(raised).__qualname__.rpartition(".")[2] == reason.error_type:
                with contextlib.suppress(Exception):  # an exception's own add_note may do anything
                    note = f"raised by the node {reason.path!r} of the graph {self._graph.name!r} in run {self.run_id}"
                    if note not in getattr(raised, "__notes__", ()):
                        raised.add_note(note)
                raise raised
        return result

    @property
    def outcome(self) -> Result[C]:
        """How the run ended or stands, whatever `result()` would raise.

        Raises:
            UsageError: if it still runs.
        """
        fold = self._runner.fold
        ended = fold.ended
        if ended is None:
            if self._runner.crash is not None:
                raise InternalError(str(self._runner.crash)) from self._runner.crash
            msg = f"the run {self.run_id!r} still runs: await run.result() first."
            raise UsageError(msg)
        output = None if fold.output is NOTHING else fold.output
        report = output if isinstance(output, Report) else None
        if report is None and ended.status == "failed" and ended.reason is not None:
            report = Report.failed(ended.reason)
        if ended.status == "exhausted" and ended.reason is not None and fold.root is not None:
            report = at_a_bound(fold.root.offers, ended.reason)
        return Result(
            ended.status, ended.reason, output, fold.context, report, self.questions, tuple(fold.troubles),
            tuple(fold.refusals), self.spent, self.run_id, fold.thread, fold.active,
        )  # fmt: skip

    @property
    def spent(self) -> Spending:
        """What the run has spent so far; the table by edge names what has closed."""
        fold = self._runner.fold
        spent = Spending(fold.total, fold.spending, fold.spent_by_edge.copy)
        if fold.ended is None or fold.ended.status == "waiting":
            _ = (
                spent.total,
                spent.by_node,
                spent.by_edge,
            )  # made now: the run goes on, and what was given stays as it is
        return spent

    # --- people ---

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the run asks now, in order of their ids."""
        asked_now = self._runner.fold.questions
        if not asked_now:
            return ()
        return tuple(
            Question(name, path_text(asked.visit.path), asked.text, asked.schema)
            for name, asked in sorted(asked_now.items())
        )

    def answer(self, question: str, value: Any) -> None:
        """Answer a question; a run that waited goes on.

        Args:
            question: the question's id.
            value: the answer; it is validated by the question's schema.

        Raises:
            UsageError: if there is no such question.
            ValueError: (as pydantic's ValidationError) if the value does not fit; the question stays.
        """
        self._check_thread("answer")
        asked = self._runner.fold.questions.get(question)
        if asked is not None and question in self._answered:
            msg = f"the question {question!r} of the run {self.run_id!r} has been answered already."
            raise UsageError(msg)
        if asked is None or self._session is None:
            known = ", ".join(repr(found.id) for found in self.questions) or "none"
            msg = f"the run {self.run_id!r} has no open question {question!r}; open are: {known}."
            raise UsageError(msg)
        schema: Any = Json if asked.schema is None else asked.schema
        fact = AnswerGiven(question, TypeAdapter(schema).validate_python(value))
        self._answered.add(question)
        if self._session.is_set():
            self._begin(fact)
        else:
            self._runner.record_soon(fact)

    def _check_thread(self, what: str) -> None:
        if threading.get_ident() != self._runner.thread:
            msg = (
                f"run.{what}(...) was called in another thread than that of the run {self.run_id!r}: call it there; a "
                f"worker thread does so with anyio.from_thread.run_sync(run.{what}, ...)."
            )
            raise UsageError(msg)

    def cancel(self, by: str = "its caller") -> None:
        """Cancel the run; `await run.result()` tells when it is over."""
        self._check_thread("cancel")
        if self._session is None or self._runner.fold.cancelling:
            return
        fact = CancelRequested(by)
        if not self._session.is_set():
            self._runner.record_soon(fact)
        elif self._runner.fold.ended is not None and self._runner.fold.ended.status == "waiting":
            self._begin(fact)

    def __repr__(self) -> str:
        """Show graph and id."""
        return f"<Run {self.run_id!r} of {self._graph.name!r}>"


def _spawn(fn: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], object]) -> None:
    """Start a task that belongs to no other task, so that a run can be left from anywhere."""
    trio = sys.modules.get("trio")  # a run on trio has imported it already
    if trio is not None and _in_trio_run(trio):

        async def main() -> None:
            try:
                await fn()
            finally:
                then()

        trio.lowlevel.spawn_system_task(main, context=copy_context())
        return
    import asyncio

    def done(task: asyncio.Task[None]) -> None:
        _kept.discard(task)
        then()

    task = asyncio.get_running_loop().create_task(fn())
    _kept.add(task)
    task.add_done_callback(done)


_kept: set[object] = set()
"""The tasks that run: a loop of asyncio keeps none of them alive."""


def start(
    graph: Graph[C],
    context: C,
    *,
    budget: Budget | None = None,
    max_parallel: int | None = None,
    resources: Sequence[object] = (),
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    journal: Journal | None = None,
    clock: Clock | None = None,
    run_id: str | None = None,
    after: Result[C] | None = None,
) -> _Starting[C]:
    """Begin a run and give a handle on it.

    Use it as `async with start(graph, context) as run`. Leaving early cancels the run and waits for its end. The
    arguments are those of the function `run`.
    """
    wrong = not isinstance(max_parallel, int) or isinstance(max_parallel, bool) or max_parallel < 1
    if max_parallel is not None and wrong:
        msg = f"max_parallel={max_parallel!r}: at least 1, or None for no limit."
        raise UsageError(msg)
    given: object = graph
    if not isinstance(given, Graph):
        msg = f"run({graph!r}): a Graph is needed."
        raise UsageError(msg)
    amount: object = budget
    if amount is not None and not isinstance(amount, Budget):
        msg = f"budget={budget!r}: a Budget is needed, or None."
        raise UsageError(msg)
    heard: object = listeners
    if not isinstance(heard, Sequence) or not all(map(callable, listeners)):
        msg = f"listeners={listeners!r}: a list of functions is needed, each of which takes an Event."
        raise UsageError(msg)
    if not isinstance(context, graph.context):
        msg = f"the graph {graph.name!r} runs on a {graph.context.__name__}, not on a {type(context).__name__}."
        raise UsageError(msg)
    from graphflow.graphs.checks import require_runnable
    from graphflow.runtime.runner import Runner

    require_runnable(graph)
    earlier = None if after is None else _earlier(graph, after)
    chosen = run_id or new_run_id()

    def make(fingerprint: str, *, keep: bool) -> Run[C]:
        first = RunStarted(
            chosen, graph.name, fingerprint, context, _merged(graph.budget, budget), max_parallel,
            before is not None, time.time(), earlier,
        )  # fmt: skip
        runner = Runner(
            graph, chosen, clock=clock or RealClock(), journal=journal, listeners=listeners, before=before,
            resources=resources, keep=keep, spawn=_spawn,
        )  # fmt: skip
        return Run(graph, first, runner)

    return _Starting(make, graph.fingerprint if journal is not None else None)


class _Starting(Generic[C]):
    """What `start` returns: a context manager that makes the run when it is entered."""

    def __init__(self, make: Callable[..., Run[C]], fingerprint: Callable[[], str] | None) -> None:
        self._make = make
        self._fingerprint = fingerprint
        self._run: Run[C] | None = None
        self.keep = True

    def __getattr__(self, name: str) -> Any:
        msg = f"start(...).{name}: it is a context manager; write `async with start(...) as run:`, and run.{name}."
        raise UsageError(msg)

    async def __aenter__(self) -> Run[C]:
        if self._run is not None:
            msg = "this start() has been entered already: call start() again for another run."
            raise UsageError(msg)
        fingerprint = ""  # it stands in a journal only, and sources must be read for it: not in the loop
        if self._fingerprint is not None:
            fingerprint = await anyio.to_thread.run_sync(self._fingerprint)
        self._run = self._make(fingerprint, keep=self.keep)
        return await self._run.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            await self._run.__aexit__(kind, error, trace)


async def run(
    graph: Graph[C],
    context: C,
    *,
    budget: Budget | None = None,
    max_parallel: int | None = None,
    resources: Sequence[object] = (),
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    journal: Journal | None = None,
    clock: Clock | None = None,
    run_id: str | None = None,
    after: Result[C] | None = None,
) -> Result[C]:
    """Run a graph to its end.

    Args:
        graph: what to run.
        context: what its nodes see first; it is never changed.
        budget: replaces the dimensions that it names of the graph's own budget.
        max_parallel: how many bodies may run at once, or None for no limit.
        resources: clients and pools, found by `step.resource(kind)` and never stored.
        before: asked before each visit, with the state; returns None or `Skip(reason)`; may be async.
        listeners: called with each event; one that raises hears nothing more.
        journal: where the records are kept, or None to keep them nowhere.
        clock: where time comes from; tests use `ManualClock`.
        run_id: the run's id; a new one by default.
        after: the result of the last message of a chat: its thread goes on, and what it spent counts on.

    Returns:
        The result. Failures that the library finds, bounds and questions are results too.

    Raises:
        GraphProblems: before the start, if the graph has errors; nothing has run then.
        UsageError: before the start, if an argument makes no sense.
        Exception: the very object that a node's body raised, if it ended the run.
        InternalError: a bug of ours.
    """
    starting = start(
        graph, context, budget=budget, max_parallel=max_parallel, resources=resources, before=before,
        listeners=listeners, journal=journal, clock=clock, run_id=run_id, after=after,
    )  # fmt: skip
    return await _to_the_end(starting)


async def _to_the_end(starting: _Starting[C]) -> Result[C]:
    starting.keep = False  # nobody will iterate
    async with starting as running:
        if anyio.current_effective_deadline() == -math.inf:  # the caller is cancelled already: no body runs
            running.cancel()
        return await running.result()


def run_sync(
    graph: Graph[C],
    context: C,
    *,
    backend: str = "asyncio",
    budget: Budget | None = None,
    max_parallel: int | None = None,
    resources: Sequence[object] = (),
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    journal: Journal | None = None,
    clock: Clock | None = None,
    run_id: str | None = None,
    after: Result[C] | None = None,
) -> Result[C]:
    """Run a graph to its end from code that is not async; `backend` is "asyncio" or "trio", the rest as in `run`.

    Raises:
        UsageError: also when it is called from async code, which awaits `run` instead.
    """
    if in_a_loop():
        msg = "run_sync(...) was called where an event loop is running: write `await run(...)` there."
        raise UsageError(msg)
    starting = start(  # outside the loop, so that the graph's checks do not hold it up
        graph, context, budget=budget, max_parallel=max_parallel, resources=resources, before=before,
        listeners=listeners, journal=journal, clock=clock, run_id=run_id, after=after,
    )  # fmt: skip
    return anyio.run(_to_the_end, starting, backend=backend)


def in_a_loop() -> bool:
    """Tell whether an event loop, asyncio's or trio's, runs in this thread."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if trio is not None and _in_trio_run(trio):
        return True
    running: object = getattr(asyncio, "_get_running_loop", lambda: None)()  # the one that does not raise
    return running is not None


def _in_trio_run(trio: Any) -> bool:
    """Tell whether trio runs in this thread; another thread may be importing it at this very moment."""
    asked = getattr(getattr(trio, "lowlevel", None), "in_trio_run", None)
    return asked is not None and bool(asked())


def _earlier(graph: Graph[Any], after: Result[Any]) -> Earlier:
    """Return what a run continues.

    Raises:
        UsageError: if it is no result, that of a run that is not over, or that of another graph.
    """
    given: object = after
    if not isinstance(given, Result):
        msg = f"run(after={after!r}): the Result of an earlier run is needed."
        raise UsageError(msg)
    if after.status == "waiting":
        msg = f"run(after=...): the run {after.run_id!r} waits for people: answer its questions, or cancel it."
        raise UsageError(msg)
    thread: tuple[object, ...] = after.thread
    if not all(isinstance(message, ThreadMessage) for message in thread):
        msg = f"run(after=...): the thread of the run {after.run_id!r} holds what is no ThreadMessage."
        raise UsageError(msg)
    if type(after.context) is not graph.context:
        was, now = type(after.context).__name__, graph.context.__name__
        msg = f"run(after=...): the run {after.run_id!r} was on a {was}; {graph.name!r} runs on a {now}."
        raise UsageError(msg)
    spent = after.spent
    return Earlier(after.run_id, after.thread, after.active, spent.total, spent.by_node, spent.by_edge)


NO_BOUND = Budget()


def _merged(own: Budget | None, given: Budget | None) -> Budget:
    """Return the root's budget: the given dimensions in place of the graph's own."""
    if given is None:
        return NO_BOUND if own is None else own
    chosen: dict[str, Any] = {}
    for name in (*ADDITIVE, "seconds"):
        replaced = getattr(given, name)
        chosen[name] = replaced if replaced is not None else getattr(own, name, None)
    return Budget.checked(**chosen)
