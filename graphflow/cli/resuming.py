"""`graphflow resume`, `fork` and `replay`: from the words of the command line to the exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from graphflow.cli.calls import Calls
from graphflow.cli.faults import BadUse
from graphflow.cli.going import Cast, Ended, Kept, tell
from graphflow.cli.ids import checked_id
from graphflow.cli.inputs import budget_from, secrets_from
from graphflow.cli.parts import Parts
from graphflow.cli.people import Answers, Interrupts
from graphflow.cli.printing import Screen
from graphflow.cli.progress import Silence
from graphflow.cli.results import EXIT_CODES
from graphflow.cli.running import Play, play
from graphflow.cli.store import Store, StoreOptions, find, opened
from graphflow.cli.stored import start_of
from graphflow.cli.targets import GraphWords, Noted, graph_of, played_by, required
from graphflow.errors import JournalError, UsageError
from graphflow.events import Listener, StoredRun
from graphflow.graphs.graph import Graph
from graphflow.runtime.resuming import branch_off, fold_stored, looked_at, reopen
from graphflow.runtime.starting import Starting
from graphflow.runtime.stored import Changed, Folded, rows_of
from graphflow.visualize.text import visible


@dataclass(frozen=True, slots=True)
class Again:
    """What a command line says of a stored run.

    Attributes:
        run: its id, the beginning of one, or "last".
        graph: what stands there about its graph.
        changed: whether a graph that has changed is taken if it decides alike.
        secrets: `FIELD=VARIABLE`, as they stand there.
        store: where it is kept.
    """

    run: str
    graph: GraphWords = field(default_factory=GraphWords)
    changed: Changed = "refuse"
    secrets: tuple[str, ...] = ()
    store: StoreOptions = field(default_factory=StoreOptions)


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a run is forked.

    Attributes:
        at: the number of the last event that both have, None for the last of all.
        run_id: the id of the new run, None for a new one.
    """

    at: int | None = None
    run_id: str | None = None


def resume_command(
    screen: Screen, again: Again, options: Play, budget: Sequence[str], branch: Branch | None = None
) -> int:
    """Go on with a stored run, or with a fork of it; print the result, and return the exit code.

    Raises:
        BadUse: if something on the command line cannot be done.
        TargetError: if there is no such graph.
        UsageError: if a budget has nothing to go to.
        JournalError: if the run cannot be gone on with.
        KeyboardInterrupt: if a person wants to stop at once.
    """
    checked_id("--run-id", None if branch is None else branch.run_id)
    answers = Answers(screen, options.answers)
    more = budget_from(budget)
    secrets = secrets_from(again.secrets)
    with Interrupts(screen) as interrupts, opened(again.store) as store:
        found = anyio.run(find, store, again.run)
        graph, noted, parts = played_by(required(store.targets, found.run, again.graph))
        _check_parts(found, noted, parts)

        def begun(run: str, resources: Sequence[object], listeners: Sequence[Listener]) -> Starting[Any]:
            return reopen(
                graph, run, journal=store.journal, budget=more, changed=again.changed, listeners=listeners,
                secrets=secrets, resources=resources, before=parts.before, redact=parts.redact,
            )  # fmt: skip

        def played(run: str) -> int:
            opening = parts.opening(partial(begun, run))
            return play(screen, options, Cast(graph, opening, Kept(store, noted), noted.model), interrupts, answers)

        if branch is None:
            return played(found.run)
        run = anyio.run(
            partial(
                branch_off, graph, found.run, journal=store.journal, at=branch.at, new_id=branch.run_id,
                changed=again.changed, secrets=secrets,
            )
        )  # fmt: skip
        shared = anyio.run(find, store, run).last.seq
        try:
            return played(run)
        except UsageError:  # it may not even have begun: then there is no such run
            anyio.run(_take_back, store, run, shared)
            raise


def _check_parts(found: StoredRun, noted: Noted, parts: Parts) -> None:
    """Look whether a run is given again what it began with, before anything is done.

    Raises:
        BadUse: if it is not.
    """
    first = start_of(found)
    if first is None:  # whoever reads all of it says what is wrong
        return
    for was, given, option in (
        (first.redacted, parts.redact, "--redact"), (first.hooked, parts.before, "--before"),
    ):  # fmt: skip
        if was and given is None:
            began = "its texts were redacted" if option == "--redact" else "it has a hook, before="
            raise BadUse(
                f"the run {found.run!r} did not begin without {option}: {began}. Add {option} NAME, the function in "
                f"{visible(noted.target)} that it began with."
            )
        if given is not None and not was:
            raise BadUse(f"{option}: the run {found.run!r} began without it, and what is stored of it was decided so.")


async def _take_back(store: Store, run: str, shared: int) -> None:
    """Delete a fork in which nothing has happened; its target may be noted already."""
    if not await store.journal.read(run, after=shared):
        await store.journal.delete(run)
        with contextlib.suppress(OSError, JournalError):
            store.targets.forget([run])


def loaded(store: Store, again: Again) -> tuple[str, Graph[Any]]:
    """Return the id of the run that is meant, and its graph.

    Raises:
        BadUse: if several runs can be meant, or nobody noted the graph.
        UnknownRun: if there is no such run.
        TargetError: if there is no such graph.
    """
    run = anyio.run(find, store, again.run).run
    graph, _ = graph_of(required(store.targets, run, again.graph))
    return run, graph


# --- looking at a run, without going on with it ----------------------------------------------------------------------


def replay_command(screen: Screen, again: Again, options: Play) -> int:
    """Fold a stored run again and print its result as `run` does: nothing is called, and nothing is written.

    Raises:
        BadUse: if something on the command line cannot be done.
        TargetError: if there is no such graph.
        UsageError: if the run was broken off, so that it has no result yet.
        JournalError: if it does not fold to what is stored.
    """
    secrets = secrets_from(again.secrets)
    with opened(again.store) as store:
        run, graph = loaded(store, again)
        folded = anyio.run(partial(folded_run, graph, run, store, again.changed, secrets))
        if folded.fold.ended is None:
            way = store.command("resume", run)
            raise BadUse(f"the run {run!r} has not ended: it is at work, or was broken off; to go on with it: {way}")
        ended = _ended(graph, run, folded)
        tell(screen, options.manner, ended, store)
    return EXIT_CODES[ended.result.status]


async def folded_run(graph: Graph[Any], run: str, store: Store, changed: Changed, secrets: Mapping[str, str]) -> Folded:
    """Fold a stored run again, its records kept.

    Raises:
        JournalError: if it cannot be read, or does not fold to what is stored.
        MissingSecrets: if it asks for secrets that are not given.
    """
    folded, _ = await fold_stored(graph, run, await rows_of(store.journal, run), changed, secrets, keep=True)
    return folded


def _ended(graph: Graph[Any], run: str, folded: Folded) -> Ended:
    """Return how a stored run ended."""
    calls, watching = Calls(graph), Silence()
    for entry in folded.records or ():
        for event in entry.events(run):
            calls(event)
            watching.past(event)
    outcome = looked_at(graph, run, folded).outcome
    return Ended(outcome, approvals=calls.approval, spending=watching.board.spending())
