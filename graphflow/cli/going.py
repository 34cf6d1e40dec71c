"""A run at work for the command line: its sessions, everybody who watches them, and how its end is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, cast

import anyio

from graphflow.cli.asking import Approvals, hint_lines, question_data, question_lines
from graphflow.cli.calls import Calls
from graphflow.cli.faults import BadUse, described, first_of, frame_lines, member_lines, reading, text_of
from graphflow.cli.models import Asked
from graphflow.cli.parts import Opening
from graphflow.cli.people import Answers, Interrupts
from graphflow.cli.printing import Screen, quoted
from graphflow.cli.progress import Progress
from graphflow.cli.results import Refusal, ending, refused_lines, result_data, result_text
from graphflow.cli.store import Store
from graphflow.cli.stored import PASSING, before_failure, read_stored
from graphflow.cli.targets import Noted
from graphflow.errors import GraphflowError, InternalError, JournalError, JournalUnavailable
from graphflow.events import Event, Listener
from graphflow.graphs.graph import Graph
from graphflow.model.contract import Reason
from graphflow.persistence.lines import event_json
from graphflow.runtime.halting import RAISABLE
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Result
from graphflow.visualize.text import visible

TICK: Final = 0.1
"""Seconds between two drawings."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a run is kept.

    Attributes:
        store: the database.
        noted: what its graph is loaded by.
    """

    store: Store
    noted: Noted


class Cast(NamedTuple):
    """What is played.

    Attributes:
        graph: the graph.
        opening: gives the run.
        kept: where it is kept, or None.
        asked: the model that all its agents ask, or None where each asks its own.
    """

    graph: Graph[Any]
    opening: Opening
    kept: Kept | None
    asked: Asked | None


def _nothing_known(_: str) -> None:
    """Know of no call that a question is about."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        result: its result.
        raised: what a node's body raised, if that ended it.
        idle: whether there was nothing to do: it had ended before.
        approvals: what is known of the calls that its questions are about.
        spending: what it cost, in words, unless that has been told.
        told: what bounds refused, as far as that has been told, and how often.
    """

    result: Result[Any]
    raised: BaseException | None = None
    idle: bool = False
    approvals: Approvals = _nothing_known
    spending: str = ""
    told: Counter[Refusal] = field(default_factory=Counter[Refusal])


class Going:
    """One run in this process, from where it stands to its end, with everybody who watches it.

    Attributes:
        calls: what its agents call.
    """

    def __init__(
        self, screen: Screen, played: Cast, progress: Progress, record: Recorder | None, *, quiet: bool
    ) -> None:
        """Take what is played, and those who watch."""
        self.calls = Calls(played.graph)
        self._screen, self._progress, self._record = screen, progress, record
        self._kept, self._asked, self._quiet = played.kept, played.asked, quiet
        self._heard = 0
        self._run_id: str | None = None

    def to_the_end(self, opening: Opening, interrupts: Interrupts, answers: Answers) -> Ended:
        """Run until the run has ended or waits for people who are not here.

        Only what stops the whole process, or the store, is raised, out of the groups that tasks make of it.
        """
        try:
            return anyio.run(self._main, opening, interrupts, answers, backend="asyncio")
        except BaseException as error:
            found = error
            if isinstance(error, BaseExceptionGroup):
                found = first_of(cast("BaseExceptionGroup[BaseException]", error))
            lost = isinstance(found, BadUse) or (isinstance(found, JournalUnavailable) and found.lost)
            if self._kept is not None and self._run_id is not None and not lost:
                line = self._kept.store.command("resume", self._run_id)
                found.add_note(f"What is stored of the run is intact; to go on with it: {line}")
            if found is error:
                raise
            raise found from None
        finally:
            self._progress.pause()

    async def _main(self, opening: Opening, interrupts: Interrupts, answers: Answers) -> Ended:
        listeners: list[Listener] = [self._hear, self.calls, self._progress]
        if self._record is not None:
            listeners.insert(0, self._record)
        async with opening(listeners) as run:
            self._run_id = self._screen.facts["run"] = run.run_id
            loop = asyncio.get_running_loop()

            def cancel(by: str) -> None:  # a signal comes between any two instructions
                if self._kept is not None:  # it can be gone on with
                    loop.call_soon_threadsafe(run.break_off)
                    return
                loop.call_soon_threadsafe(run.cancel, by)
                loop.call_soon_threadsafe(self._progress.note, "cancelling; Ctrl-C once more stops at once")

            interrupts.cancel = cancel  # at once: its bodies begin at the next wait
            self._keep(run.run_id)
            self._say_where(run.run_id)
            await self._taken_up(run)
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
                    if self._kept is not None:
                        raise  # it waits on, and can be answered another time
                    run.cancel("Ctrl-C")

    def _hear(self, _: Event) -> None:
        self._heard += 1

    async def _taken_up(self, run: Run[Any]) -> None:
        """Let those who watch know what is stored of a run: its events begin with that."""
        with anyio.CancelScope() as scope:
            scope.cancel()  # what is there comes without a wait; what would have to be waited for is heard later
            async for event in run:
                if self._record is not None:
                    self._record(event)
                self.calls(event)
                self._progress.past(event)

    def _say_where(self, run_id: str) -> None:
        if self._quiet:
            return
        if self._kept is not None:
            self._screen.say(f"run {visible(run_id)}, stored in {self._kept.store.name}")
        if self._asked is not None:
            self._screen.say(f"every agent asks {self._asked.in_words()}")

    def _keep(self, run_id: str) -> None:
        """Note which graph the run is of, before it begins: nothing is awaited until then."""
        if self._kept is None:
            return
        try:
            self._kept.store.targets.note(run_id, self._kept.noted)
        except (OSError, JournalError) as error:
            why = reading(error) if isinstance(error, OSError) else text_of(error)
            self._progress.note(f"its target could not be noted ({why}): resume it with --target.")

    async def _watched(self, run: Run[Any]) -> Ended:
        """Wait for the end of a session, redrawing the progress meanwhile."""
        ended: Ended | Exception = InternalError("the run has no end")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._redraw)
            ended = await _ended(run)
            tasks.cancel_scope.cancel()
        if isinstance(ended, Ended):
            progress = self._progress
            spending = "" if progress.tells_spending else progress.board.spending()
            return Ended(
                ended.result, ended.raised, not self._heard, self.calls.approval, spending, progress.refusals
            )  # fmt: skip
        raise ended

    async def _redraw(self) -> None:
        while True:
            self._progress.refresh()
            await anyio.sleep(TICK)


async def _ended(run: Run[Any]) -> Ended | Exception:
    """Return how a run ended; an exception if it has no result, which is no body's fault."""
    try:
        return Ended(await run.result())
    except JournalError as error:
        return error  # its last record may not be stored, whatever the fold says
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


@dataclass(frozen=True, slots=True)
class Manner:
    """How a result is told.

    Attributes:
        json: as JSON.
        quiet: without what it cost.
        traceback: with where a node's body raised.
    """

    json: bool = False
    quiet: bool = False
    traceback: bool = False


def tell(screen: Screen, manner: Manner, ended: Ended, store: Store | None) -> None:
    """Print a result: itself on stdout, how it came about on stderr.

    Args:
        screen: where to.
        manner: how.
        ended: the result.
        store: where the run is kept, if it is.
    """
    result, approvals = ended.result, ended.approvals
    if manner.json:
        screen.document(result_data(result, [question_data(asked, approvals) for asked in result.questions]))
    else:
        text = result_text(result)
        if text:
            screen.out.line(text)
        for asked in result.questions:
            screen.out.line("\n".join(question_lines(asked, approvals)))
    for line in (*ending(result), *refused_lines(result, ended.told)):
        screen.say(line)
    if not manner.json:
        for line in _ways_on(result, store):
            screen.say(line)
    if ended.raised is not None:
        for line in member_lines(ended.raised):
            screen.say(line)
        frames = list(frame_lines(ended.raised))
        if frames:
            screen.say("\n".join(frames) if manner.traceback else "(--traceback shows where)")
    if not manner.quiet:
        told = ["completed"] * (result.status == "completed")
        over = result.status not in {"waiting", "exhausted"}
        told += ["it had ended before: nothing was done"] * (ended.idle and over)
        told += [ended.spending] * bool(ended.spending)
        screen.say(" · ".join([*told, f"run {result.run_id}"]))


def _ways_on(result: Result[Any], store: Store | None) -> Iterator[str]:
    """Say how a run can be gone on with."""
    if result.status == "waiting":
        yield from hint_lines(
            result.questions, None if store is None else partial(store.command, "resume", result.run_id)
        )
    reason = result.reason
    if store is None or reason is None:
        return
    if result.status == "exhausted" and reason.code in RAISABLE:
        more = f"--budget {quoted(f'{reason.code}=MORE')}"
        yield f"to go on with more of it: {store.command('resume', result.run_id, more)}"
    if reason.error_type.endswith("NotStorable"):
        yield "(--no-store runs it without keeping anything)"
    if result.status == "failed" and reason.error_type.rpartition(".")[2] in PASSING:
        at = anyio.run(_before_failure, store, result.run_id, reason)
        if at is not None:
            fork = store.command("fork", result.run_id, f"--at {at}")
            yield f"it may work later; to go on from before the call that failed: {fork}"


async def _before_failure(store: Store, run: str, reason: Reason) -> int | None:
    with contextlib.suppress(JournalError):
        return before_failure((await read_stored(store.journal, run)).events(), reason)
    return None
