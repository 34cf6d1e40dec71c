"""`graphflow run`: from the words of the command line to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import anyio

from graphflow.cli.asking import Approvals, hint_lines, question_data, question_lines
from graphflow.cli.calls import Calls
from graphflow.cli.faults import FAILED, BadUse, described, first_of, frame_lines, member_lines, reading
from graphflow.cli.inputs import budget_from, context_of, tightened
from graphflow.cli.people import Answers, Interrupts
from graphflow.cli.printing import Screen
from graphflow.cli.progress import Progress, progress_on
from graphflow.cli.results import EXIT_CODES, ending, refused_lines, result_data, result_text, to_json
from graphflow.cli.target import load_graph
from graphflow.errors import GraphflowError, InternalError
from graphflow.events import Event
from graphflow.graphs.checks import require_runnable
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.persistence.lines import event_json
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Result
from graphflow.runtime.starting import start

TICK: Final = 0.1
"""Seconds between two drawings."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What stands on the command line of `graphflow run`."""

    target: str
    input: str | None = None
    sets: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()
    max_depth: int | None = None
    max_parallel: int | None = None
    json: bool = False
    events: str | None = None
    answers: tuple[str, ...] = ()
    quiet: bool = False
    traceback: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended, and what a node's body raised if that ended it."""

    result: Result[Any]
    raised: BaseException | None


def run_command(screen: Screen, options: RunOptions) -> int:
    """Run a graph, print its result, and return the exit code.

    Raises:
        BadUse: if something on the command line cannot be done.
        TargetError: if there is no such graph.
        GraphProblems: if the graph has errors.
        MissingExtra: if the extra `cli` is not installed.
        KeyboardInterrupt: if a person wants to stop at once.
    """
    answers = Answers(screen, options.answers)
    budget = budget_from(options.budget)
    with Interrupts(screen) as interrupts:
        graph = tightened(load_graph(options.target), options.max_depth)
        require_runnable(graph)
        context = context_of(graph.context, options.input, options.sets)
        progress = progress_on(screen, graph, quiet=options.quiet)
        with recorder(options.events) as record:
            session = _Session(
                graph=graph, context=context, budget=budget, max_parallel=options.max_parallel, progress=progress,
                record=record,
            )  # fmt: skip
            try:
                ended = session.run(interrupts, answers)
            finally:
                progress.pause()
        if record is not None and record.trouble is not None:
            screen.say(f"--events {options.events}: {record.trouble}; the events after that are not there.")
        _show(screen, options, ended, progress, session.calls.approval)
        for line in answers.unused():
            screen.say(line)
    code = EXIT_CODES[ended.result.status]
    return code or (FAILED if record is not None and record.trouble is not None else 0)


# --- running ---------------------------------------------------------------------------------------------------------


class _Session:
    """One run, with everybody who watches it.

    Attributes:
        calls: what its agents call.
    """

    def __init__(
        self,
        *,
        graph: Graph[Any],
        context: Any,
        budget: Budget | None,
        max_parallel: int | None,
        progress: Progress,
        record: Recorder | None,
    ) -> None:
        self._graph, self._context, self._budget = graph, context, budget
        self._max_parallel, self._progress, self._record = max_parallel, progress, record
        self.calls = Calls(graph)

    def run(self, interrupts: Interrupts, answers: Answers) -> Ended:
        """Run to the end; only what stops the whole process is raised, out of the groups that tasks make of it."""
        try:
            return anyio.run(self._main, interrupts, answers, backend="asyncio")
        except BaseExceptionGroup as group:
            raise first_of(group) from None

    async def _main(self, interrupts: Interrupts, answers: Answers) -> Ended:
        listeners: list[Callable[[Event], None]] = [self.calls, self._progress]
        if self._record is not None:
            listeners.insert(0, self._record)
        async with start(
            self._graph, self._context, budget=self._budget, max_parallel=self._max_parallel, listeners=listeners
        ) as run:
            loop = asyncio.get_running_loop()

            def cancel(by: str) -> None:
                loop.call_soon_threadsafe(run.cancel, by)  # a signal comes between any two instructions
                loop.call_soon_threadsafe(self._progress.note, "cancelling; Ctrl-C once more stops at once")

            while True:
                interrupts.cancel = cancel
                ended = await self._watched(run)
                interrupts.cancel = None
                if ended.result.status != "waiting":
                    return ended
                self._progress.pause()
                try:
                    if not answers.answer(run, self.calls.approval, self._progress.note):
                        return ended
                except KeyboardInterrupt:
                    run.cancel("Ctrl-C")

    async def _watched(self, run: Run[Any]) -> Ended:
        """Wait for the end of a session, redrawing the progress meanwhile."""
        ended: Ended | Exception = InternalError("the run has no end")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._redraw)
            ended = await _ended(run)
            tasks.cancel_scope.cancel()
        if isinstance(ended, Ended):
            return ended
        raise ended

    async def _redraw(self) -> None:
        while True:
            self._progress.refresh()
            await anyio.sleep(TICK)


async def _ended(run: Run[Any]) -> Ended | Exception:
    """Return how a run ended; an exception if it has no result, which is no body's fault."""
    try:
        return Ended(await run.result(), None)
    except Exception as error:  # noqa: BLE001 - whatever a body raised
        try:
            return Ended(run.outcome, error)
        except GraphflowError:
            return error


# --- events ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes each event as a line of JSON, at once, so that the file is complete wherever the run stops.

    Attributes:
        trouble: why it writes no more, or None.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to an open file."""
        self._file = file
        self.trouble: str | None = None

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if self.trouble is not None:
            return
        try:
            self._file.write(event_json(event) + "\n")
            self._file.flush()
        except Exception as error:  # noqa: BLE001 - a listener that raises is forgotten; this trouble is told
            self.trouble = reading(error) if isinstance(error, OSError) else described(error)


@contextlib.contextmanager
def recorder(name: str | None) -> Generator[Recorder | None]:
    """Open the file of `--events`, or nothing.

    Raises:
        BadUse: if it cannot be written.
    """
    if name is None:
        yield None
        return
    if name == "-":
        raise BadUse("--events -: name a file; the standard output is for the result.")
    try:
        file = Path(name).open("w", encoding="ascii", newline="\n")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        raise BadUse(f"--events {name}: it cannot be written: {why}.") from error
    record = Recorder(file)
    try:
        yield record
    finally:
        try:
            file.close()
        except OSError as error:
            record.trouble = record.trouble or reading(error)


# --- the result ------------------------------------------------------------------------------------------------------


def _show(screen: Screen, options: RunOptions, ended: Ended, progress: Progress, approvals: Approvals) -> None:
    """Print a result: itself on stdout, how it came about on stderr."""
    result = ended.result
    if options.json:
        screen.out.line(to_json(result_data(result, [question_data(asked, approvals) for asked in result.questions])))
    else:
        text = result_text(result)
        if text:
            screen.out.line(text)
        for asked in result.questions:
            screen.out.line("\n".join(question_lines(asked, approvals)))
    for line in (*ending(result), *refused_lines(result)):
        screen.say(line)
    if result.questions and not options.json:
        screen.say("\n".join(hint_lines(result.questions)))
    if ended.raised is not None:
        for line in member_lines(ended.raised):
            screen.say(line)
        frames = list(frame_lines(ended.raised))
        if frames:
            screen.say("\n".join(frames) if options.traceback else "(--traceback shows where)")
    if not options.quiet:
        told = ["completed"] * (result.status == "completed")
        told += [progress.board.spending()] * (not progress.tells_spending)
        screen.say(" · ".join([*told, f"run {result.run_id}"]))
