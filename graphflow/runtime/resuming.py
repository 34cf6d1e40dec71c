"""Stored runs: `resume` goes on with one, `reopen` gives a handle on it, `fork_run` branches off, `replay` looks.

There is no second way of running: the stored facts are folded again, and the runner goes on from there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

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
    Row,
    SessionStarted,
)
from graphflow.graphs.checks import require_runnable
from graphflow.graphs.graph import Graph
from graphflow.graphs.pricing import by_agent, prices_of
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.ids import new_run_id
from graphflow.model.telling import value_text
from graphflow.runtime.checksums import chained
from graphflow.runtime.clock import RealClock
from graphflow.runtime.given import check_answers, check_parts
from graphflow.runtime.halting import RAISABLE
from graphflow.runtime.handle import Run, answer_to, give_back
from graphflow.runtime.recorder import Setup, Store
from graphflow.runtime.redaction import Redact
from graphflow.runtime.result import Result
from graphflow.runtime.rows import Rows, upgraded
from graphflow.runtime.runner import Runner
from graphflow.runtime.starting import Starting, check_given, check_journal, check_models, to_the_end
from graphflow.runtime.stored import Changed, Folded, fold_rows, found_rows, is_prepared, prepared, rows_of

C = TypeVar("C", bound=Context)
T = TypeVar("T")

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
    _check_use(graph, journal, changed, answers, secrets)
    require_runnable(graph)
    check_given(budget, listeners)
    check_parts(resources, before, clock, redact, run_id)

    async def opened(*, keep: bool) -> Run[C]:
        await check_models(graph)
        writer = await journal.claim(run_id)
        try:
            found = await found_rows(journal, run_id)
            folded, rows, last = await _fold_found(graph, run_id, found, changed, secrets, keep=keep)
            _check_same(run_id, folded, before, redact)
            rows.follow(last)
            setup = Setup(
                graph=graph, run_id=run_id, clock=clock or RealClock(), store=Store(rows, writer),
                listeners=listeners, before=before, resources=resources, redact=redact, keep=keep,
            )  # fmt: skip
            return _taken_up(setup, folded, budget, answers)
        except BaseException:
            await give_back(writer)
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
    _check_use(graph, journal, changed, answers, secrets)
    check_given(budget, listeners)
    check_parts(resources, before, clock, redact, new_id)
    made, shared = await _branch(graph, run_id, journal, at, new_id, changed=changed, secrets=secrets)
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
    made, _ = await _branch(graph, run_id, journal, at, new_id, changed=changed, secrets=secrets)
    return made


async def _branch(
    graph: Graph[Any],
    run_id: str,
    journal: Journal,
    at: int | None,
    new_id: str | None,
    *,
    changed: Changed,
    secrets: Mapping[str, object] | None,
) -> tuple[str, int]:
    """Store the fork of a run; return its id, and the number of its last row."""
    _check_use(graph, journal, changed, NO_ANSWERS, secrets)
    number: object = at
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        msg = f"fork_run(at={value_text(at)}): the number of an event is needed, or None for the last."
        raise UsageError(msg)
    stored = await rows_of(journal, run_id, at)  # what has gone wrong behind that number is left behind
    if not stored:
        msg = f"fork_run(at={at}): the run {run_id!r} has no event {at}; its first is 0."
        raise UsageError(msg)
    folded, rows = await fold_stored(graph, run_id, stored, changed, secrets)
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
        for row in chained([dataclasses.replace(stored[0], fact=rows.storable(first)[1]), *stored[1:]]):
            await writer.append(row)
        whole = True
    finally:
        await give_back(writer)
        if not whole:
            with anyio.CancelScope(shield=True):
                await journal.delete(chosen)  # half a past is none
    return chosen, stored[-1].seq


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
    _check_use(graph, journal, changed, NO_ANSWERS, secrets)
    folded, _, _ = await _fold_found(graph, run_id, await found_rows(journal, run_id), changed, secrets)
    return await looked_at(graph, run_id, folded).result()


def looked_at(graph: Graph[C], run_id: str, folded: Folded) -> Run[C]:
    """Return a handle on a folded run that shows how it stands; it has no journal to go on with."""
    setup = Setup(
        graph=graph, run_id=run_id, clock=RealClock(), store=None, listeners=(), before=None, resources=(),
        redact=None, keep=False,
    )  # fmt: skip
    return _taken_up(setup, folded, None, NO_ANSWERS)


async def fold_stored(
    graph: Graph[Any],
    run_id: str,
    stored: Sequence[Row],
    changed: Changed,
    secrets: Mapping[str, object] | None,
    *,
    keep: bool = False,
) -> tuple[Folded, Rows]:
    """Fold the rows of a stored run.

    Args:
        graph: the graph at hand.
        run_id: the run's id.
        stored: its rows, in the present format.
        changed: as in `resume`.
        secrets: as in `resume`.
        keep: whether its records are wanted.

    Returns:
        The run, folded again, and what has read its rows.

    Raises:
        Exception: what `resume` raises of rows that cannot be folded.
    """

    def work() -> tuple[Folded, Rows]:
        rows = prepared(graph).rows(secrets)
        return fold_rows(graph, run_id, stored, rows, changed=changed, keep=keep), rows

    return await _aside(work, graph, stored)


async def _fold_found(
    graph: Graph[Any],
    run_id: str,
    found: Sequence[Row],
    changed: Changed,
    secrets: Mapping[str, object] | None,
    *,
    keep: bool = False,
) -> tuple[Folded, Rows, Row]:
    """Do what `fold_stored` does with rows as they are stored; return their last one too."""

    def work() -> tuple[Folded, Rows, Row]:
        stored, rows = upgraded(run_id, found), prepared(graph).rows(secrets)
        return fold_rows(graph, run_id, stored, rows, changed=changed, keep=keep), rows, stored[-1]

    return await _aside(work, graph, found)


_AT_ONCE: Final = 256
_AT_ONCE_TEXT: Final = 1_000_000


async def _aside(work: Callable[[], T], graph: Graph[Any], rows: Sequence[Row]) -> T:
    """Fold rows off the loop, for many take a while, and sources are read for a graph that is new.

    A few are folded at once: that takes no longer than the interpreter lets a thread keep all others waiting, and the
    way to the thread and back is saved.
    """
    short = len(rows) <= _AT_ONCE and is_prepared(graph) and sum([len(row.fact) for row in rows]) <= _AT_ONCE_TEXT
    return work() if short else await anyio.to_thread.run_sync(work)


def _check_same(run_id: str, folded: Folded, before: Before | None, redact: Redact | None) -> None:
    """Look whether a run is given again what it was started with, which no journal keeps.

    Raises:
        UsageError: if it is not.
    """
    first = folded.first
    for had, given, has, has_none in (
        (first.hooked, before, "has a before= hook: give it again.", "has no before= hook: give none."),
        (first.redacted, redact, "was redacted: give redact= again.", "has no redact=: give none."),
    ):
        if had is not (given is not None):
            msg = f"the run {run_id!r} {has if had else has_none}"
            raise UsageError(msg)


def _check_use(graph: object, journal: object, changed: object, answers: object, secrets: object) -> None:
    """Look at what was given before anything is opened.

    Raises:
        UsageError: if something of it makes no sense.
    """
    if not isinstance(graph, Graph):
        msg = f"{value_text(graph)} is no graph: resume(graph, run_id, journal=...)."
        raise UsageError(msg)
    check_journal(journal)
    if changed not in ("refuse", "compatible"):
        msg = f'changed={value_text(changed)}: "refuse" or "compatible" is needed.'
        raise UsageError(msg)
    check_answers(answers)
    if secrets is not None and not isinstance(secrets, Mapping):
        msg = f"secrets={type(secrets).__name__}: a table of values by the names of their fields is needed."
        raise UsageError(msg)


def _taken_up(setup: Setup, folded: Folded, budget: Budget | None, answers: Mapping[str, Any]) -> Run[Any]:
    """Return a handle on a run that has been folded again."""
    runner = Runner(setup)
    runner.take_up(folded)
    facts: list[Fact] = []
    if budget is not None:
        facts.append(_more(setup.run_id, folded, budget))
    taken_up = bool(facts)
    facts += [answer_to(runner, question, value, taken_up=taken_up) for question, value in answers.items()]
    graph = prepared(setup.graph)
    parts = graph.parts if graph.fingerprint != folded.fingerprint or graph.parts != folded.parts else None
    prices = prices_of(setup.graph)
    now = None if folded.fold.prices == by_agent(setup.graph, prices) else prices
    session = SessionStarted(time.time(), graph.fingerprint, parts, now)
    return Run(setup.graph, runner, facts, taken_up=session)


def _more(run_id: str, folded: Folded, budget: Budget) -> BudgetAdded:
    """Return the fact that the root has more to spend, if that makes sense."""
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
