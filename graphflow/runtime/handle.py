"""`Run`: a handle on a run, which iterates over its events, gives its result, answers its questions, cancels it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import anyio.lowlevel
from pydantic import TypeAdapter, ValidationError

from graphflow.errors import InternalError, StrayCancellation, UsageError
from graphflow.events import (
    AnswerGiven,
    CancelRequested,
    Event,
    Fact,
    Failure,
    Record,
    SessionStarted,
    Writer,
)
from graphflow.graphs.graph import Graph
from graphflow.model.context import Context
from graphflow.model.contract import Reason, Report
from graphflow.model.exact import short
from graphflow.model.frozen import Json
from graphflow.model.ids import parse_path, path_text
from graphflow.model.outcome import NOTHING
from graphflow.model.secrets import holds_secret
from graphflow.model.telling import without_input
from graphflow.runtime.backends import Signal, cancelled_classes, new_signal, spawn
from graphflow.runtime.core import RECORDED
from graphflow.runtime.failures import at_a_bound
from graphflow.runtime.result import Question, Result, Spending

if TYPE_CHECKING:
    from graphflow.runtime.interrupts import Interrupts
    from graphflow.runtime.runner import Runner

C = TypeVar("C", bound=Context)


class Run(Generic[C]):
    """A handle on a run: iterate over its events, await its result, answer its questions, cancel it.

    Made by `start`, and by `reopen` for a stored run. It may be entered, iterated, awaited and left in different tasks.

    Attributes:
        run_id: the run's id.
    """

    def __init__(
        self, graph: Graph[C], runner: Runner, first: Sequence[Fact], *, taken_up: SessionStarted | None = None
    ) -> None:
        """Take the parts; `start` and `reopen` make them.

        Args:
            graph: what runs.
            runner: what runs it.
            first: the facts to begin with.
            taken_up: the fact that comes before any other of a stored run.
        """
        self.run_id = runner.run_id
        self._graph, self._runner = graph, runner
        self._first, self._taken_up = first, taken_up
        self._entered = False
        self._session: Signal | None = None
        self._ready: deque[Event] = deque()
        self._answered: set[str] = set()
        self.interrupts: Interrupts | None = None  # of a stored run

    # --- as a context manager ---

    async def __aenter__(self) -> Self:
        """Begin to run."""
        if self._entered:
            msg = f"the run {self.run_id!r} has been entered already: call start() again for another run."
            raise UsageError(msg)
        self._entered = True
        if self._first or self._runner.fold.ended is None:
            self._begin(*self._first)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what still runs, and wait until no task of the run is left."""
        try:
            if self._session is not None and not self._session.is_set():
                watch = self.interrupts
                if watch is not None and (watch.came or isinstance(error, KeyboardInterrupt)):
                    self.break_off()
                else:
                    self.cancel("its caller" if error is not None else "leaving the run")
                await self._over()
        finally:
            if self.interrupts is not None:
                self.interrupts.leave()
            if self._runner.store is not None:
                await give_back(self._runner.store.writer)

    async def _over(self) -> None:
        """Wait until no task of the run is left, however often this task is cancelled meanwhile."""
        cancelled: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while self._session is not None and not self._session.is_set():
                try:
                    await self._session.wait()
                except cancelled_classes() as error:  # asyncio's own, which no shield keeps off
                    cancelled = error
        if cancelled is not None:
            raise cancelled

    def _begin(self, *facts: Fact) -> None:
        if self._taken_up is not None:
            facts = (self._taken_up, *facts)
            self._taken_up = None
        self._session = session = new_signal()
        spawn(lambda: self._run_session(session, facts), lambda: self._session_over(session))

    async def _run_session(self, session: Signal, facts: Sequence[Fact]) -> None:
        """Run one session; nothing that happens in it leaves it but through `result()`."""
        try:
            await self._runner.session(facts)
        except BaseException as error:
            if isinstance(error, cancelled_classes()):
                raise  # the host itself is being cancelled, as when its loop ends
            self._runner.crash = self._runner.crash or error  # `result()` raises it, in the caller's task
        finally:
            self._session_over(session)

    def _session_over(self, session: Signal) -> None:
        """Hear that no task of a session is left, or that its first one was cancelled before it began."""
        runner = self._runner
        if not session.is_set() and runner.fold.ended is None and runner.crash is None:
            text = f"the tasks of the run {self.run_id!r} were cancelled by another than the run: its loop ends."
            runner.crash = StrayCancellation(text)
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
            NodeFailed: if that was in a process that has ended.
            JournalError: if the journal could not be written.
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
            if raised is not None and _name_of(raised) == reason.error_type:
                with contextlib.suppress(Exception):  # an exception's own add_note may do anything
                    note = f"raised by the node {reason.path!r} of the graph {self._graph.name!r} in run {self.run_id}"
                    note += _tries(reason.text)
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
            broken = self._taken_up is not None and not self._entered
            how = "was broken off: resume it." if broken else "still runs: await run.result() first."
            msg = f"the run {self.run_id!r} {how}"
            raise UsageError(msg)
        output = None if fold.output is NOTHING else fold.output
        report = output if isinstance(output, Report) else None
        if report is None and ended.status == "failed" and ended.reason is not None:
            report = Report.failed(ended.reason)
        if ended.status == "exhausted" and ended.reason is not None and fold.halted is not None:
            report = at_a_bound(fold.halted.offers, ended.reason)
        return Result(
            ended.status, ended.reason, output, fold.context, report, self.questions, _in_order(fold.troubles),
            _in_order(fold.refusals), self.spent, self.run_id, fold.thread, fold.active,
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
            UsageError: if there is no such question, or the value does not fit; the question stays.
        """
        self._check_thread("answer")
        if question in self._answered and question in self._runner.fold.questions:
            msg = f"the question {question!r} of the run {self.run_id!r} has been answered already."
            raise UsageError(msg)
        fact = answer_to(self._runner, question, value, entered=self._entered)
        self._answered.add(question)
        if self._session is None or self._session.is_set():
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
        if not self._entered or self._runner.fold.cancelling:
            return
        fact = CancelRequested(by)
        if self._session is not None and not self._session.is_set():
            self._runner.record_soon(fact)
        elif self._runner.fold.ended is not None and self._runner.fold.ended.status == "waiting":
            self._begin(fact)

    def break_off(self) -> None:
        """Stop at once, without a further record: a stored run can be resumed from where it stands.

        `result()` raises KeyboardInterrupt then, unless the run has ended before.
        """
        self._check_thread("break_off")
        if self._session is not None and not self._session.is_set():
            self._runner.crashed(KeyboardInterrupt())

    def __repr__(self) -> str:
        """Show graph and id."""
        return f"<Run {self.run_id!r} of {self._graph.name!r}>"


def answer_to(
    runner: Runner, question: str, value: Any, *, entered: bool = True, taken_up: bool = False
) -> AnswerGiven:
    """Return the fact of an answer.

    Args:
        runner: what runs the run.
        question: the question's id.
        value: the answer.
        entered: whether the run has been entered.
        taken_up: whether a run that has ended is taken up before the answer comes.

    Raises:
        UsageError: if there is no such question, the run has ended, or the value does not fit.
        NotStorable: if a journal could not give the answer back.
    """
    asked = runner.fold.questions.get(question)
    if asked is None or not entered:
        known = ", ".join(map(repr, sorted(runner.fold.questions))) or "none"
        msg = f"the run {runner.run_id!r} has no open question {question!r}; open are: {known}."
        raise UsageError(msg)
    ended = runner.fold.ended
    if ended is not None and ended.status != "waiting" and not taken_up:
        msg = (
            f"the run {runner.run_id!r} has ended as {ended.status}: it takes no answer to {question!r}. One that a "
            f"bound has stopped takes it together with more budget: resume(..., budget=..., answers=...)."
        )
        raise UsageError(msg)
    schema: Any = Json if asked.schema is None else asked.schema
    given = _fitting(question, schema, value)
    if runner.store is not None:
        runner.store.rows.check(given, f"the answer to {question!r}")
    return AnswerGiven(question, given)


def _fitting(question: str, schema: Any, value: Any) -> Any:
    """Return an answer as its question wants it.

    Raises:
        UsageError: if it does not fit, from what pydantic says; alone where that holds what may be a secret.
    """
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        from graphflow.runtime.asking import problems_text  # where something is wrong already

        hidden = holds_secret(schema) or "input_value=" not in str(error)  # a class that holds secrets forbids it
        why = problems_text(without_input(error) if hidden else error).removeprefix("the whole: ")
        told = f" to {question!r}, a {type(value).__name__}," if hidden else f" {short(value)} to {question!r}"
        refused = UsageError(f"the answer{told} does not fit {_named(schema)}: {why}.")
        if not hidden:
            raise refused from error
    raise refused


def _named(schema: Any) -> str:
    """Return the name of the type that an answer must have."""
    return "JSON" if schema is Json else schema.__name__ if isinstance(schema, type) else str(schema)


def _tries(text: str) -> str:
    """Return what a reason says beyond its exception: how many attempts there were, and what refused a further one."""
    _, mark, rest = text.rpartition(" (after ")
    return f"{mark}{rest}" if rest.endswith(")") and " attempts" in rest else ""


def _name_of(raised: BaseException) -> str:
    """Return the name of an error's class, that of the recorded one where the object is gone."""
    recorded: Failure | None = getattr(raised, RECORDED, None)
    if recorded is not None:
        return recorded.error_type.rpartition(".")[2]
    return type(raised).__qualname__.rpartition(".")[2]


def _in_order(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Return reasons by their paths, those of one path as they came: timing does not change their order."""
    return tuple(sorted(reasons, key=lambda reason: reason.path)) if reasons else ()


async def give_back(writer: Writer) -> None:
    """Give the claim of a run back, whoever cancels meanwhile."""
    with anyio.CancelScope(shield=True):
        await writer.release()
