"""Stored runs: `resume` goes on with one, `reopen` gives a handle on it, `fork_run` branches off, `replay` looks.

There is no second way of running: the stored facts are folded again, and the runner goes on from there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from graphflow.errors import RunExists, UsageError
from graphflow.events import (
    Before,
    BudgetAdded,
    Clock,
    Fact,
    Journal,
    Listener,
    SessionStarted,
)
from graphflow.graphs.graph import Graph
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.ids import new_run_id
from graphflow.runtime.clock import RealClock
from graphflow.runtime.handle import Run, answer_to, spawn
from graphflow.runtime.result import Result
from graphflow.runtime.starting import Starting, check_journal, to_the_end

if TYPE_CHECKING:
    from graphflow.runtime.recorder import Setup
    from graphflow.runtime.redaction import Redact
    from graphflow.runtime.stored import Changed, Folded

C = TypeVar("C", bound=Context)

NO_ANSWERS: Mapping[str, Any] = {}


async def resume(
    graph: Graph[C],
    run_id: str,
    *,
    journal: Journal,
    budget: Budget | None = None,
    answers: Mapping[str, Any] = NO_ANSWERS,
    resources: Sequence[object] = (),
    changed: Changed = "refuse",
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    clock: Clock | None = None,
    redact: Redact | None = None,
    secrets: Mapping[str, object] | None = None,
) -> Result[C]:
    """Go on with a stored run until it has ended, or waits for people.

    What is recorded is not done again: the facts are folded, and bodies and calls that were under way when its process
    ended are begun again, their recorded effects given back to them. A run that has ended is not changed.

    Args:
        graph: the graph of the run.
        run_id: the run's id.
        journal: where it is stored.
        budget: what is added to the root's budget; a run that a bound had stopped goes on with it.
        answers: answers to open questions, by the ids of these.
        resources: clients and pools, as in `run`; they are never stored.
        changed: "refuse" a graph that differs from the stored one, or take it as "compatible" if it decides alike.
        before: the hook, if the run has one.
        listeners: called with each event from now on.
        clock: where time comes from.
        redact: as in `run`.
        secrets: the values of secret fields of contexts, by name; they are never stored.

    Raises:
        UnknownRun: if no such run is stored.
        RunLocked: if somebody else is at work on it.
        GraphChanged, JournalMismatch, JournalDamaged: if it cannot be folded; nothing is written then.
        NodeFailed: if an exception had ended the run in a process that is gone.
        UsageError: if an answer or a budget has nothing to go to, or a secret or the hook is missing.
        Exception: what `run` raises.
    """
    opened = reopen(
        graph, run_id, journal=journal, budget=budget, answers=answers, resources=resources, changed=changed,
        before=before, listeners=listeners, clock=clock, redact=redact, secrets=secrets,
    )  # fmt: skip
    return await to_the_end(opened)


def reopen(
    graph: Graph[C],
    run_id: str,
    *,
    journal: Journal,
    budget: Budget | None = None,
    answers: Mapping[str, Any] = NO_ANSWERS,
    resources: Sequence[object] = (),
    changed: Changed = "refuse",
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    clock: Clock | None = None,
    redact: Redact | None = None,
    secrets: Mapping[str, object] | None = None,
) -> Starting[C]:
    """Go on with a stored run and give a handle on it.

    Use it as `async with reopen(graph, run_id, journal=...) as run`. Its events begin with the stored ones. The
    arguments are those of `resume`.
    """
    from graphflow.graphs.checks import require_runnable

    _check_use(graph, journal, changed, answers, secrets)
    require_runnable(graph)
    heard: object = listeners
    if not isinstance(heard, Sequence) or not all(map(callable, listeners)):
        msg = f"listeners={listeners!r}: a list of functions is needed, each of which takes an Event."
        raise UsageError(msg)
    amount: object = budget
    if amount is not None and not isinstance(amount, Budget):
        msg = f"budget={budget!r}: a Budget is needed, or None."
        raise UsageError(msg)

    async def opened(*, keep: bool) -> Run[C]:
        from graphflow.runtime.recorder import Setup, Store

        writer = await journal.claim(run_id)
        try:
            folded, rows = await _folded(graph, run_id, journal, changed, secrets, keep=keep)
            if folded.first.hooked is not (before is not None):
                has = "has a before= hook: give it again." if folded.first.hooked else "has no before= hook: give none."
                msg = f"the run {run_id!r} {has}"
                raise UsageError(msg)
            if folded.first.redacted is not (redact is not None):
                has = "was redacted: give redact= again." if folded.first.redacted else "has no redact=: give none."
                msg = f"the run {run_id!r} {has}"
                raise UsageError(msg)
            setup = Setup(
                graph=graph, run_id=run_id, clock=clock or RealClock(), store=Store(rows, writer),
                listeners=listeners, before=before, resources=resources, redact=redact, keep=keep, spawn=spawn,
            )  # fmt: skip
            return _taken_up(setup, folded, budget, answers)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await writer.release()
            raise

    return Starting(opened)


async def fork_run(
    graph: Graph[C],
    run_id: str,
    *,
    journal: Journal,
    at: int | None = None,
    new_id: str | None = None,
    budget: Budget | None = None,
    answers: Mapping[str, Any] = NO_ANSWERS,
    resources: Sequence[object] = (),
    changed: Changed = "refuse",
    before: Before | None = None,
    listeners: Sequence[Listener] = (),
    clock: Clock | None = None,
    redact: Redact | None = None,
    secrets: Mapping[str, object] | None = None,
) -> Result[C]:
    """Begin a run that shares the past of a stored one, and go on with it; the stored one is not changed.

    Args:
        graph: the graph to go on with.
        run_id: the stored run.
        journal: where it is stored, and the new one will be.
        at: the number of an event; the record that it belongs to is the last that both runs have. By default the last
            of all.
        new_id: the id of the new run; a new one by default. Idempotency keys are made of it, so effects are new ones.
        budget: as in `resume`, and so are the others.
        answers: as in `resume`.
        resources: as in `resume`.
        changed: as in `resume`.
        before: as in `resume`.
        listeners: as in `resume`.
        clock: as in `resume`.
        redact: as in `resume`.
        secrets: as in `resume`.

    Raises:
        UnknownRun: if no such run is stored.
        RunExists: if the new id is taken.
        UsageError: if the run has no event of that number.
        Exception: what `resume` raises.
    """
    made = await branch_off(graph, run_id, journal=journal, at=at, new_id=new_id, changed=changed, secrets=secrets)
    shared = (await journal.read(made))[-1].seq
    try:
        return await resume(
            graph, made, journal=journal, budget=budget, answers=answers, resources=resources, changed=changed,
            before=before, listeners=listeners, clock=clock, redact=redact, secrets=secrets,
        )  # fmt: skip
    except (UsageError, ValueError, TypeError):  # it may not even have begun: then there is no such run
        with anyio.CancelScope(shield=True):
            if not await journal.read(made, after=shared):
                await journal.delete(made)
        raise


async def branch_off(
    graph: Graph[Any],
    run_id: str,
    *,
    journal: Journal,
    at: int | None = None,
    new_id: str | None = None,
    changed: Changed = "refuse",
    secrets: Mapping[str, object] | None = None,
) -> str:
    """Store a run that shares the past of another, and return its id; `resume` goes on with it.

    Raises:
        Exception: what `fork_run` raises before it goes on.
    """
    from graphflow.runtime.stored import fold_rows, prepared, rows_of

    _check_use(graph, journal, changed, NO_ANSWERS, secrets)
    number: object = at
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        msg = f"fork_run(at={at!r}): the number of an event is needed, or None for the last."
        raise UsageError(msg)
    stored = await rows_of(journal, run_id)
    if at is not None:
        cut = [row for row in stored if row.seq <= at]
        if not cut or at < 0:
            msg = f"fork_run(at={at}): the run {run_id!r} has no event {at}; its first is 0."
            raise UsageError(msg)
        stored = cut
    rows = (await anyio.to_thread.run_sync(prepared, graph)).rows(secrets)
    fold = partial(fold_rows, graph, run_id, stored, rows, changed=changed)
    folded = await anyio.to_thread.run_sync(fold)
    if at is not None and at >= folded.seq:
        msg = f"fork_run(at={at}): the run {run_id!r} has no event {at}; its last is {folded.seq - 1}."
        raise UsageError(msg)
    chosen = new_id or new_run_id()
    first = dataclasses.replace(folded.first, run=chosen, forked=(run_id, folded.seq - 1))
    writer = await journal.claim(chosen)
    whole = False
    try:
        if writer.last >= 0:
            whole = True  # it is another's
            raise RunExists(chosen)
        await writer.append(dataclasses.replace(stored[0], fact=rows.storable(first)[1]))
        for row in stored[1:]:
            await writer.append(row)
        whole = True
    finally:
        with anyio.CancelScope(shield=True):
            await writer.release()
            if not whole:
                await journal.delete(chosen)  # half a past is none
    return chosen


async def replay(
    graph: Graph[C],
    run_id: str,
    *,
    journal: Journal,
    changed: Changed = "refuse",
    secrets: Mapping[str, object] | None = None,
) -> Result[C]:
    """Fold a stored run again and return its result: nothing is called, and nothing is written.

    Args:
        graph: the graph of the run.
        run_id: the run's id.
        journal: where it is stored.
        changed: as in `resume`.
        secrets: as in `resume`.

    Raises:
        UnknownRun: if no such run is stored.
        GraphChanged, JournalMismatch, JournalDamaged: if it does not fold to what is stored.
        NodeFailed: if an exception had ended the run.
        UsageError: if the run was broken off, so that it has no result yet.
    """
    from graphflow.runtime.recorder import Setup

    _check_use(graph, journal, changed, NO_ANSWERS, secrets)
    folded, _ = await _folded(graph, run_id, journal, changed, secrets, keep=False)
    setup = Setup(
        graph=graph, run_id=run_id, clock=RealClock(), store=None, listeners=(), before=None, resources=(),
        redact=None, keep=False, spawn=spawn,
    )  # fmt: skip
    return await _taken_up(setup, folded, None, NO_ANSWERS).result()


async def _folded(
    graph: Graph[Any],
    run_id: str,
    journal: Journal,
    changed: Changed,
    secrets: Mapping[str, object] | None,
    *,
    keep: bool,
) -> tuple[Folded, Any]:
    """Fold a stored run, off the loop: a long one takes a while."""
    from graphflow.runtime.stored import fold_rows, prepared, rows_of

    stored = await rows_of(journal, run_id)
    rows = (await anyio.to_thread.run_sync(prepared, graph)).rows(secrets)
    fold = partial(fold_rows, graph, run_id, stored, rows, changed=changed, keep=keep)
    return await anyio.to_thread.run_sync(fold), rows


def _check_use(graph: object, journal: object, changed: object, answers: object, secrets: object) -> None:
    """Look at what was given before anything is opened.

    Raises:
        UsageError: if something of it makes no sense.
    """
    if not isinstance(graph, Graph):
        msg = f"{graph!r} is no graph: resume(graph, run_id, journal=...)."
        raise UsageError(msg)
    check_journal(journal)
    if changed not in ("refuse", "compatible"):
        msg = f'changed={changed!r}: "refuse" or "compatible" is needed.'
        raise UsageError(msg)
    if not isinstance(answers, Mapping):
        msg = f"answers={answers!r}: a table of answers by the ids of their questions is needed."
        raise UsageError(msg)
    if secrets is not None and not isinstance(secrets, Mapping):
        msg = f"secrets={type(secrets).__name__}: a table of values by the names of their fields is needed."
        raise UsageError(msg)


def _taken_up(setup: Setup, folded: Folded, budget: Budget | None, answers: Mapping[str, Any]) -> Run[Any]:
    """Return a handle on a run that has been folded again."""
    from graphflow.runtime.runner import Runner
    from graphflow.runtime.stored import prepared

    runner = Runner(setup)
    runner.take_up(folded)
    facts: list[Fact] = []
    if budget is not None:
        facts.append(_more(setup.run_id, folded, budget))
    taken_up = bool(facts)
    facts += [answer_to(runner, question, value, taken_up=taken_up) for question, value in answers.items()]
    graph = prepared(setup.graph)
    parts = graph.parts if graph.fingerprint != folded.fingerprint else None
    return Run(setup.graph, runner, facts, taken_up=SessionStarted(time.time(), graph.fingerprint, parts))


def _more(run_id: str, folded: Folded, budget: Budget) -> BudgetAdded:
    """Return the fact that the root has more to spend, if that makes sense."""
    from graphflow.runtime.halting import RAISABLE

    ended = folded.fold.ended
    if ended is None or ended.status == "waiting":
        return BudgetAdded(budget)
    if ended.status != "exhausted":
        msg = f"resume(budget=...): the run {run_id!r} has ended as {ended.status}, and budget changes nothing of that."
        raise UsageError(msg)
    code = ended.reason.code
    if code not in RAISABLE:
        msg = (
            f"resume(budget=...): the run {run_id!r} was stopped by the bound {code!r}, which is no budget: "
            f"{ended.reason.text} Change the graph, and fork the run before that point."
        )
        raise UsageError(msg)
    if not folded.fold.can_be_lifted(ended.reason):
        msg = (
            f"resume(budget=...): the run {run_id!r} was stopped by the budget of a graph inside it, which more for "
            f"all does not lift: {ended.reason.text} Raise budget= of that graph, and fork the run before that point."
        )
        raise UsageError(msg)
    if getattr(budget, code) is None:
        named = ", ".join(name for name in (*ADDITIVE, "seconds") if getattr(budget, name) is not None) or "nothing"
        msg = f"resume(budget=...): the run {run_id!r} was stopped for the lack of {code}; the budget gives {named}."
        raise UsageError(msg)
    return BudgetAdded(budget)
