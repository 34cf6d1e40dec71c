"""One call that an agent makes, at work: of its model, or of a tool, for which it is the `ToolStep`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphflow.errors import ModelError, ModelUnavailable, UsageError
from graphflow.events import CallDelta, Emitted, Failure, TextDelta
from graphflow.model.budget import Budget, is_seconds
from graphflow.model.contract import Report
from graphflow.model.ids import Path
from graphflow.model.state import Left
from graphflow.model.telling import value_text
from graphflow.model.thread import shown
from graphflow.nodes.client import CallPiece
from graphflow.nodes.function import is_async
from graphflow.nodes.tools import ToolFailure
from graphflow.runtime.backends import from_any_thread
from graphflow.runtime.commands import CallModel, CallTool
from graphflow.runtime.digests import digest

if TYPE_CHECKING:
    from graphflow.runtime.runner import Runner

FIRST_WAIT: Final = 0.5
"""Active seconds before the second attempt where a provider does not say how long; they double each time."""

NOTHING_USED: Final = Budget()

LONGEST_WAIT: Final = 60.0
"""The most active seconds that a further attempt waits, whatever a provider says."""


class AgentCall:
    """A call of a model or of a tool."""

    __slots__ = (
        "__dict__", "_runner", "blocked", "cancelled", "command", "ended", "found", "in_thread", "key", "path",
        "scope", "thread",
    )  # fmt: skip

    found: Any  # what it has brought in its first stretch

    def __init__(self, runner: Runner, command: CallModel | CallTool) -> None:
        """Begin for a command of the fold."""
        self._runner = runner
        self.command = command
        self.path: Path = command.path
        self.key = command.key
        self.in_thread = type(command) is CallTool and not is_async(command.tool.fn)
        self.scope: anyio.CancelScope | None = None  # there as soon as a worker takes it
        self.cancelled = False
        self.ended = False
        self.thread = False
        self.blocked = 0.0

    def cancel(self) -> None:
        """Stop this call as soon as it can be stopped."""
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()

    # --- what is called ---

    @property
    def keeps_errors(self) -> bool:
        """Whether what it raises can end the run: a model's error, and that of a tool that asks for it."""
        return isinstance(self.command, CallModel) or self.command.tool.on_error == "raise"

    def start(self) -> Any:
        """Call the model or the tool; return what it returns, an awaitable if it is async."""
        command = self.command
        if isinstance(command, CallModel):
            if self._runner.soon_from_any is None:
                self._runner.soon_from_any = from_any_thread()  # its provider may call back from a thread of its own
            asked = command.client.reply(command.request, self._stream)
            return self._patient(asked) if command.again and inspect.isawaitable(asked) else asked
        arguments = command.arguments
        if command.tool.step is not None:
            arguments = {**arguments, command.tool.step: self}
        return command.tool.fn(**arguments)

    @staticmethod
    def told(found: Any) -> tuple[str | None, Failure | None]:
        """Return what is recorded of a tool's value: the text that the model is told, or the failure."""
        if isinstance(found, ToolFailure):
            return None, Failure("graphflow.nodes.tools.ToolFailure", shown(found.text), (), "declared")
        if isinstance(found, Report) and found.status == "failed":
            return None, Failure("graphflow.model.contract.Report", shown(found), (), "declared")
        return "" if found is None else shown(found), None

    @staticmethod
    def used_by(error: Exception) -> Budget | None:
        """Return what a call used that raised: nothing where that is sure, else None, for all that was reserved."""
        return NOTHING_USED if isinstance(error, ModelError) and error.unused else None

    def _stream(self, piece: str | CallPiece) -> None:
        if not piece or self.ended:  # a client may keep what it was given
            return
        path, turn = self.path, self.command.turn
        if isinstance(piece, CallPiece):
            self._runner.heard(CallDelta(path, turn, piece.position, piece.name, piece.arguments))
        else:
            self._runner.heard(TextDelta(path, turn, str(piece)))

    async def _patient(self, asked: Awaitable[Any]) -> Any:
        """Wait for a model; where it may work later and will be asked again, wait until then, too.

        The wait belongs to the call that failed: it ends with it when the agent is cancelled, is late or has no
        seconds left, and a run that is taken up again asks at once.
        """
        try:
            return await asked
        except ModelUnavailable as error:
            tries = self.command.attempt
            wait = FIRST_WAIT * 2.0**tries if error.retry_after is None else error.retry_after
            await self._runner.nap(min(max(wait, 0.0), LONGEST_WAIT))
            raise

    # --- what a tool sees ---

    @property
    def call_id(self) -> str:
        """The id of this call, unique in its thread."""
        return self.command.call_id if isinstance(self.command, CallTool) else ""

    @functools.cached_property
    def idempotency_key(self) -> str:
        """What this call can be told apart by outside; see `ToolStep.idempotency_key`."""
        from graphflow.runtime.recall import idempotency_key

        command = self.command
        assert isinstance(command, CallTool)  # noqa: S101 - a model sees no step
        runner, position = self._runner, command.key.partition(".")[0]
        # A failed attempt of the agent lets the same turn be done again, under the next number.
        turn = command.turn - command.attempt if runner.fold.edition else command.turn
        where = (self.path, turn, position)
        return idempotency_key(runner.run_id, where, command.tool.name, digest(command.arguments))

    @property
    def context(self) -> Any:
        """The context as the agent sees it."""
        return self.command.context if isinstance(self.command, CallTool) else None

    @property
    def left(self) -> Left:
        """What remains now."""
        return self._runner.left(self.path)

    def emit(self, value: Any) -> None:
        """Say something to whoever listens; see `ToolStep.emit`."""
        if not self.ended:  # nobody listens to an abandoned thread
            self._runner.emit(Emitted(self.path, self.command.turn, value))

    def resource(self, kind: type[Any]) -> Any:
        """Return the one resource of a class; see `ToolStep.resource`."""
        return self._runner.resource(self.path, kind)

    async def sleep(self, seconds: float) -> None:
        """Wait on the run's clock; see `ToolStep.sleep`."""
        if not is_seconds(seconds):
            msg = f"sleep({value_text(seconds)}): a finite number of seconds of at least 0 is needed."
            raise UsageError(msg)
        await self._runner.nap(seconds)


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Make a coroutine of anything that can be awaited."""
    return await awaitable


async def settled(found: Any) -> Any:
    """Return what a sync tool gave, awaited where it is a plain function that gave a coroutine."""
    return await found if inspect.isawaitable(found) else found


def as_coroutine(found: Any) -> Any:
    """Return a coroutine that gives what was found, awaited if it can be."""
    if isinstance(found, _COROUTINE):
        return found
    return awaited(found) if inspect.isawaitable(found) else _given(found)


_COROUTINE: type = CoroutineType  # without type variables, which a checker would miss


async def _given(found: Any) -> Any:
    return found
