"""The entry points: `run`, `run_sync`, and `start`, which gives a handle on a running graph."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio
import anyio.to_thread

from graphflow.errors import RunExists, UsageError
from graphflow.events import EDITION, Before, Clock, Earlier, Journal, Listener, RunStarted
from graphflow.graphs.graph import Graph
from graphflow.graphs.pricing import prices_of, readiness_of
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.frozen import FrozenDict, class_of
from graphflow.model.ids import new_run_id
from graphflow.model.telling import value_text
from graphflow.model.thread import ThreadMessage
from graphflow.nodes.checked import checked_sync
from graphflow.runtime.backends import in_a_loop
from graphflow.runtime.clock import RealClock
from graphflow.runtime.given import check_backend, check_parts
from graphflow.runtime.handle import Run, give_back
from graphflow.runtime.result import Result

if TYPE_CHECKING:
    from graphflow.runtime.recorder import Setup, Store
    from graphflow.runtime.redaction import Redact
    from graphflow.runtime.runner import Runner
    from graphflow.runtime.stored import Prepared

C = TypeVar("C", bound=Context)


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
    redact: Redact | None = None,
) -> Starting[C]:
    """Begin a run and give a handle on it.

    Use it as `async with start(graph, context) as run`. Leaving early cancels the run and waits for its end. The
    arguments are those of the function `run`.
    """
    wrong = not isinstance(max_parallel, int) or isinstance(max_parallel, bool) or max_parallel < 1
    if max_parallel is not None and wrong:
        msg = f"max_parallel={value_text(max_parallel)}: at least 1, or None for no limit."
        raise UsageError(msg)
    given: object = graph
    if not isinstance(given, Graph):
        msg = f"run({value_text(graph)}): a Graph is needed."
        raise UsageError(msg)
    check_given(budget, listeners)
    check_parts(resources, before, clock, redact, run_id)
    if journal is not None:
        check_journal(journal)
    if not isinstance(context, graph.context):
        wanted = graph.context.__name__
        msg = f"the graph {graph.name!r} runs on a {wanted}, not on {_not_a_context(graph.context, context)}"
        raise UsageError(msg)
    require_runnable, setup_of, runner_of = _engine()
    require_runnable(graph)
    earlier = None if after is None else _earlier(graph, after)
    chosen = run_id or new_run_id()

    def make(store: Store | None, made: Prepared | None, *, keep: bool) -> Run[C]:
        prices = prices_of(graph)  # a price list may have been loaded just now
        first = RunStarted(
            chosen, graph.name, "" if made is None else made.fingerprint, context, _merged(graph.budget, budget),
            max_parallel, before is not None, time.time(), earlier, parts=None if made is None else made.parts,
            prices=prices, edition=EDITION,
        )  # fmt: skip
        setup = setup_of(
            graph=graph, run_id=chosen, clock=clock or RealClock(), store=store, listeners=listeners, before=before,
            resources=resources, redact=redact, keep=keep,
        )  # fmt: skip
        return Run(graph, runner_of(setup), (first,))

    async def opened(*, keep: bool) -> Run[C]:
        await check_models(graph)
        if journal is None:
            return make(None, None, keep=keep)
        from graphflow.runtime.recorder import Store
        from graphflow.runtime.stored import is_prepared, prepared

        made = prepared(graph) if is_prepared(graph) else await anyio.to_thread.run_sync(prepared, graph)
        rows = made.rows()
        rows.check(context, f"the context of {graph.name!r}")
        writer = await journal.claim(chosen)
        try:
            if writer.last >= 0:
                raise RunExists(chosen)
            return make(Store(rows, writer), made, keep=keep)
        except BaseException:
            await give_back(writer)
            raise

    return Starting(opened, stored=journal is not None)


def _not_a_context(kind: type[Context], given: object) -> str:
    """Return what was given in place of a context, and how to write that one."""
    first = next(iter(kind.model_fields), None)
    if isinstance(given, type):
        return f"the class {given.__name__} itself. Write {kind.__name__}({'' if first is None else f'{first}=...'})."
    if isinstance(given, (dict, FrozenDict)):
        return f"a {class_of(given).__name__}. Write {kind.__name__}(**it)."
    hint = f" Write {kind.__name__}({first}=...)." if isinstance(given, str) and first else ""
    return f"a {type(given).__name__}.{hint}"


@functools.cache
def _engine() -> tuple[Callable[[Graph[Any]], None], type[Setup], type[Runner]]:
    """Load what only a run needs, once: an import inside a function takes as long as a short node, each time."""
    from graphflow.graphs.checks import require_runnable
    from graphflow.runtime.recorder import Setup
    from graphflow.runtime.runner import Runner

    return require_runnable, Setup, Runner


def check_given(budget: object, listeners: object) -> None:
    """Look at what a run is given, whether it begins or is taken up.

    Raises:
        UsageError: if the budget is none, or the listeners are no plain functions.
    """
    if budget is not None and not isinstance(budget, Budget):
        msg = f"budget={value_text(budget)}: a Budget is needed, or None."
        raise UsageError(msg)
    if listeners == ():
        return
    if not isinstance(listeners, Sequence) or not all(map(callable, cast("Sequence[object]", listeners))):
        shown = value_text(cast("object", listeners))
        msg = f"listeners={shown}: a list of functions is needed, each of which takes an Event."
        raise UsageError(msg)
    for listener in cast("Sequence[object]", listeners):
        checked_sync("run", listener=listener)


async def check_models(graph: Graph[Any]) -> None:
    """Look whether the models of a graph can be asked, before a run begins; beside the loop, as they may load much.

    Raises:
        GraphflowError: if one cannot: its key is not set, or an extra is missing.
    """
    for look in readiness_of(graph):
        await anyio.to_thread.run_sync(look)


def check_journal(journal: object) -> None:
    """Look whether something is a journal.

    Raises:
        UsageError: if it is none.
    """
    a_class = isinstance(journal, type)  # it has the methods too
    if not a_class and all(callable(getattr(journal, name, None)) for name in ("claim", "read", "runs", "delete")):
        return
    hint = (
        f" Did you mean SqliteJournal({value_text(journal)})?"
        if isinstance(journal, str) and "://" not in journal
        else ""
    )
    msg = f"journal={value_text(journal)}: a journal is needed, such as SqliteJournal() or MemoryJournal().{hint}"
    raise UsageError(msg)


class Starting(Generic[C]):
    """What `start` and `reopen` return: a context manager that makes the run when it is entered."""

    def __init__(self, opened: Callable[..., Awaitable[Run[C]]], *, stored: bool = True) -> None:
        """Take what makes the run."""
        self._opened, self._stored = opened, stored
        self._run: Run[C] | None = None
        self._entered = False
        self.keep = True

    def __getattr__(self, name: str) -> Any:
        """Say that a context manager is no run."""
        msg = f"start(...).{name}: it is a context manager; write `async with start(...) as run:`, and run.{name}."
        raise UsageError(msg)

    async def __aenter__(self) -> Run[C]:
        """Make the run and begin it."""
        if self._entered:
            msg = "this start() has been entered already: call start() again for another run."
            raise UsageError(msg)
        self._entered = True
        interrupts = None
        if self._stored:
            from graphflow.runtime.interrupts import Interrupts

            interrupts = Interrupts()
            interrupts.watch()  # before its place is claimed: what comes meanwhile is heard of later
        try:
            made = await self._opened(keep=self.keep)
        except BaseException:
            if interrupts is not None:
                interrupts.leave()
            raise
        self._run = made
        made.interrupts = interrupts
        try:
            return await made.__aenter__()
        except BaseException as error:
            await made.__aexit__(type(error), error, None)  # it has claimed its place in the journal
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the run."""
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
    redact: Redact | None = None,
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
        redact: each text that comes from outside, out of the context, a body, a model, a tool or a person, is replaced
            by what this returns before anything else sees it; it must leave alone what it has returned.

    Returns:
        The result. Failures that the library finds, bounds and questions are results too.

    Raises:
        GraphProblems: before the start, if the graph has errors; nothing has run then.
        UsageError: before the start, if an argument makes no sense.
        Exception: the very object that a node's body raised, if it ended the run.
        RunLocked, RunExists: before the start, if the journal has a run of that id, or somebody else writes it.
        NotStorable: before the start, if the context cannot be stored.
        JournalUnavailable: if the journal fails; what is stored can be resumed.
        InternalError: a bug of ours.
    """
    starting = start(
        graph, context, budget=budget, max_parallel=max_parallel, resources=resources, before=before,
        listeners=listeners, journal=journal, clock=clock, run_id=run_id, after=after, redact=redact,
    )  # fmt: skip
    return await to_the_end(starting)


async def to_the_end(starting: Starting[C]) -> Result[C]:
    """Return the result of a run, and leave it."""
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
    redact: Redact | None = None,
) -> Result[C]:
    """Run a graph to its end from code that is not async; `backend` is "asyncio" or "trio", the rest as in `run`.

    Raises:
        UsageError: also when it is called from async code, which awaits `run` instead.
    """
    if in_a_loop():
        msg = "run_sync(...) was called where an event loop is running: write `await run(...)` there."
        raise UsageError(msg)
    check_backend(backend)
    starting = start(  # outside the loop, so that the graph's checks do not hold it up
        graph, context, budget=budget, max_parallel=max_parallel, resources=resources, before=before,
        listeners=listeners, journal=journal, clock=clock, run_id=run_id, after=after, redact=redact,
    )  # fmt: skip
    return anyio.run(to_the_end, starting, backend=backend)


def _earlier(graph: Graph[Any], after: Result[Any]) -> Earlier:
    """Return what a run continues.

    Raises:
        UsageError: if it is no result, that of a run that is not over, or that of another graph.
    """
    given: object = after
    if not isinstance(given, Result):
        msg = f"run(after={value_text(after)}): the Result of an earlier run is needed."
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
