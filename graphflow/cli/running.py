"""`graphflow run`: from the words of the command line to the exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from graphflow.cli.faults import FAILED, BadUse, text_of
from graphflow.cli.going import Cast, Going, Kept, Manner, recorder, tell
from graphflow.cli.ids import checked_id
from graphflow.cli.inputs import budget_from, context_of, secrets_from
from graphflow.cli.models import ModelWords
from graphflow.cli.parts import PartWords
from graphflow.cli.people import Answers, Interrupts
from graphflow.cli.printing import Screen
from graphflow.cli.progress import progress_on
from graphflow.cli.results import EXIT_CODES
from graphflow.cli.store import Store, StoreOptions, find, opened
from graphflow.cli.targets import GraphWords, noted_by, played_by, required
from graphflow.errors import NodeFailed
from graphflow.events import Listener
from graphflow.graphs.checks import require_runnable
from graphflow.graphs.graph import Graph
from graphflow.runtime.result import Result
from graphflow.runtime.resuming import replay
from graphflow.runtime.starting import Starting, start
from graphflow.visualize.text import visible


@dataclass(frozen=True, slots=True)
class Play:
    """What a command line says of a run at work, be it new or stored.

    Attributes:
        answers: `ID=VALUE`, as they stand there.
        events: the file that every event is written to, or None.
        manner: how its result is told.
    """

    answers: tuple[str, ...] = ()
    events: str | None = None
    manner: Manner = field(default_factory=Manner)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What stands on the command line of `graphflow run`; `store` is None where nothing is kept.

    `after` is the run whose chat goes on, and `secrets` are those of that run.
    """

    target: str
    input: str | None = None
    sets: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    max_depth: int | None = None
    model: ModelWords = field(default_factory=ModelWords)
    parts: PartWords = field(default_factory=PartWords)
    after: str | None = None
    secrets: tuple[str, ...] = ()
    max_parallel: int | None = None
    run_id: str | None = None
    store: StoreOptions | None = field(default_factory=StoreOptions)
    play: Play = field(default_factory=Play)


def run_command(screen: Screen, options: RunOptions) -> int:
    """Run a graph, print its result, and return the exit code.

    Raises:
        BadUse: if something on the command line cannot be done.
        TargetError: if there is no such graph.
        GraphProblems: if the graph has errors.
        MissingExtra: if an extra is needed and not installed.
        JournalError: if the run cannot be stored.
        KeyboardInterrupt: if a person wants to stop at once.
    """
    checked_id("--run-id", options.run_id)
    answers = Answers(screen, options.play.answers)
    budget = budget_from(options.budget)
    with Interrupts(screen) as interrupts, contextlib.ExitStack() as stack:
        store = None if options.store is None else stack.enter_context(opened(options.store))
        words = GraphWords(options.target, options.max_depth, options.model, options.parts)
        after = _after(store, options)
        wanted = noted_by(words) if after is None or store is None else required(store.targets, after, words)
        graph, noted, parts = played_by(wanted)
        require_runnable(graph)
        context = context_of(graph.context, options.input, options.sets)
        earlier = None if after is None or store is None else _earlier(graph, store, after, options.secrets)

        def begun(resources: Sequence[object], listeners: Sequence[Listener]) -> Starting[Any]:
            return start(
                graph, context, budget=budget, max_parallel=options.max_parallel, listeners=listeners,
                journal=None if store is None else store.journal, run_id=options.run_id, after=earlier,
                resources=resources, before=parts.before, redact=parts.redact,
            )  # fmt: skip

        kept = None if store is None else Kept(store, noted)
        return play(screen, options.play, Cast(graph, parts.opening(begun), kept, noted.model), interrupts, answers)


def _after(store: Store | None, options: RunOptions) -> str | None:
    """Return the id of the run whose chat goes on, or None.

    Raises:
        BadUse: if it is not clear which is meant.
        UnknownRun: if there is no such run.
    """
    if options.after is None:
        if options.secrets:
            raise BadUse("--secret: it is for the run that --after names; a field of this one is given with --set.")
        return None
    if store is None:
        raise BadUse("--after: with --no-store nothing is stored that a run could go on after.")
    return anyio.run(find, store, options.after).run


def _earlier(graph: Graph[Any], store: Store, run: str, secrets: Sequence[str]) -> Result[Any]:
    """Return the result of the run whose chat goes on, worked out from what is stored of it.

    Raises:
        BadUse: if it has failed, so that nothing can follow.
        JournalError: if the run cannot be read, or is not of this graph.
    """
    again = partial(
        replay, graph, run, journal=store.journal, changed="compatible", secrets=secrets_from(secrets)
    )  # fmt: skip
    try:
        return anyio.run(again)
    except NodeFailed as error:
        raise BadUse(f"--after {visible(run)}: that run has failed, so nothing follows: {text_of(error)}") from None


def play(screen: Screen, options: Play, cast: Cast, interrupts: Interrupts, answers: Answers) -> int:
    """Let a run go on to its end, print its result, and return the exit code.

    Raises:
        BadUse: if an answer does not fit, or the events cannot be written.
        JournalError: if the run cannot be stored.
        KeyboardInterrupt: if a person wants to stop at once.
    """
    progress = progress_on(screen, cast.graph, quiet=options.manner.quiet)
    with recorder(options.events) as record:
        going = Going(screen, cast, progress, record, quiet=options.manner.quiet)
        ended = going.to_the_end(cast.opening, interrupts, answers)
    if record is not None and record.trouble is not None:
        screen.say(f"--events {options.events}: {record.trouble}; the events after that are not there.")
    tell(screen, options.manner, ended, None if cast.kept is None else cast.kept.store)
    for line in answers.unused():
        screen.say(line)
    code = EXIT_CODES[ended.result.status]
    return code or (FAILED if record is not None and record.trouble is not None else 0)
