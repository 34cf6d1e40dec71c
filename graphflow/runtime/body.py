"""A body at work: the `Step` that a node gets, and how its coroutine is driven in a context of its own."""

from __future__ import annotations

import functools
import re
import time
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as ContextVars
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.lowlevel
import anyio.to_thread

from graphflow.errors import (
    BoundHit,
    EffectKeyRequired,
    EffectMismatch,
    GraphChanged,
    JournalDamaged,
    StrayCancellation,
    UsageError,
)
from graphflow.events import SECRETIVE, EffectFinished, EffectRequested, Emitted, Failure, SleepRequested
from graphflow.model.budget import Budget, is_seconds
from graphflow.model.ids import Path, path_text
from graphflow.model.state import Left
from graphflow.model.telling import value_text
from graphflow.nodes.checked import checked_sync
from graphflow.nodes.function import is_async
from graphflow.runtime.backends import cancelled_classes
from graphflow.runtime.commands import GoOn, RefuseEffect, StartBody
from graphflow.runtime.core import failure_of
from graphflow.runtime.digests import digest

if TYPE_CHECKING:
    from graphflow.runtime.agentcall import AgentCall
    from graphflow.runtime.recall import Memory
    from graphflow.runtime.runner import Runner

BLOCKED = 0.1
"""Seconds of one uninterrupted stretch after which an async body is said to block the loop."""


class BareBody:
    """One attempt of one turn, of a node that wants no `Step`."""

    __slots__ = (
        "_runner", "awake", "blocked", "cancelled", "command", "ended", "found", "memory", "path", "scope", "thread"
    )  # fmt: skip

    found: Any  # what it has returned in its first stretch

    def __init__(self, runner: Runner, command: StartBody, scope: anyio.CancelScope) -> None:
        """Begin for a command of the fold."""
        self._runner = runner
        self.command = command
        self.path: Path = command.path
        self.scope = scope
        self.cancelled = self.ended = self.thread = False
        self.blocked = 0.0
        self.awake = True
        recall = runner.recall  # of a process that has ended
        self.memory: Memory | None = recall.take(self.path, command.turn, command.attempt) if recall else None

    async def look_back(self, memory: Memory) -> None:
        """End the session if a body that ends well has left out what is recorded of it: another had asked for that."""
        unused = memory.unused()
        if unused is not None:
            await self._withdraw()
            self._runner.crashed(EffectMismatch(path_text(self.path), unused, "nothing more"))

    async def _withdraw(self) -> None:
        """Take back what it has added to what is recorded of it: without a `Step` nothing."""

    def cancel(self) -> None:
        """Stop this body as soon as it can be stopped."""
        self.cancelled = True
        self.scope.cancel()

    def answer(self, command: GoOn | RefuseEffect) -> None:
        """Hand over what the fold said to a request: another body, of an earlier process, had made it."""


class Body(BareBody):
    """One attempt of one turn: what its node sees as `Step`."""

    __slots__ = ("_added", "_answers", "_asking", "_count", "_flying", "_sleeps", "_uses", "_waits")

    def __init__(self, runner: Runner, command: StartBody, scope: anyio.CancelScope) -> None:
        """Begin for a command of the fold."""
        super().__init__(runner, command, scope)
        self._count = 0  # of its effects without a key
        self._sleeps: dict[str, int] = {}  # how often it has slept for how long
        self._added: list[str] = []  # what it has asked for beside what is recorded of it, by keys
        self._asking: set[str] = set()  # the keys of its effects that wait to be allowed
        self._flying: set[str] = set()  # the keys of its effects that are being done
        self._uses: dict[str, int] = {}  # how often each key was used
        self._waits: dict[str, tuple[anyio.Event, bool]] = {}  # and whether it is an effect that waits
        self._answers: dict[str, GoOn | RefuseEffect] = {}

    @property
    def left(self) -> Left:
        """What remains now."""
        return self._runner.left(self.path)

    async def _withdraw(self) -> None:
        """Take back what a body has added that is not the one which is recorded: that one asks for none of it."""
        command = self.command
        failure = Failure("cancelled", "withdrawn: its body asked for other effects than are recorded", (), "cancelled")
        for key in self._added:
            fact = EffectFinished(self.path, command.turn, command.attempt, key, failure=failure)
            await self._runner.record(fact)

    def cancel(self) -> None:
        """Stop this body as soon as it can be stopped."""
        super().cancel()
        for key in tuple(self._waits):  # they may be shielded, and the fold will not answer any more
            self.answer(RefuseEffect(self.path, key, "cancelled"))

    def answer(self, command: GoOn | RefuseEffect) -> None:
        """Hand over what the fold said to a request."""
        self._answers[command.key] = command
        waiting = self._waits.pop(command.key, None)
        if waiting is not None:
            self._review()
            waiting[0].set()

    async def _ask(self, fact: EffectRequested | SleepRequested) -> tuple[RefuseEffect | None, EffectFinished | None]:
        """Ask the fold for something and wait for its answer; what was asked before the process ended, it knows.

        Returns:
            The refusal, None if the body may go on; and how an effect has ended already, None if it is to be done.
        """
        known = self.memory.asked.pop(fact.key, None) if self.memory is not None else None
        if known is None:
            if self.memory is not None:
                self._added.append(fact.key)
            await self._runner.record(fact)
            return await self._answer_to(fact.key), None
        try:
            known.check(fact)
        except EffectMismatch as error:
            await self._withdraw()
            await self._give_out(error)
        if known.finished is not None or isinstance(known.answer, GoOn):
            return None, known.finished
        return known.answer or await self._answer_to(fact.key), None

    async def _give_out(self, error: Exception) -> NoReturn:
        """End the session: what is recorded cannot be given back, and that is no failure of the node.

        Raises:
            Exception: the error, if the end of the session is not delivered here.
        """
        self._runner.crashed(error)
        await anyio.lowlevel.checkpoint()
        raise error

    async def _answer_to(self, key: str) -> RefuseEffect | None:
        if key not in self._answers:
            event = anyio.Event()
            self._waits[key] = (event, self._inside() is not None)
            self._review()
            try:
                await event.wait()
            except BaseException:
                self._answers.pop(key, None)
                self._waits.pop(key, None)
                self._review()
                await self._give_up(key, Budget())
                raise
        found = self._answers.pop(key)
        if isinstance(found, RefuseEffect) and found.bound == "cancelled":
            await self._refused()
        return found if isinstance(found, RefuseEffect) else None

    def _review(self) -> None:
        """Tell the runner when this body falls asleep on the clock or wakes: its effects wait, or it does itself."""
        asleep = bool(self._waits) and len(self._flying) <= sum(inside for _, inside in self._waits.values())
        if asleep is self.awake and not self.ended:
            self.awake = not asleep
            self._runner.awake(-1 if asleep else 1)

    async def _refused(self) -> None:
        """Refuse what a body asks for that is no longer wanted."""
        await anyio.lowlevel.checkpoint()  # where the cancellation can be delivered, it says it all
        what = "has ended" if self.ended else "was cancelled"
        msg = f"{path_text(self.path)!r} {what}: it can start no effect and no sleep any more."
        raise UsageError(msg)

    async def _give_up(self, key: str, usage: Budget | None) -> None:
        """Tell the fold that the body itself has cancelled an effect or a sleep, and goes on."""
        if not self.cancelled and not self.ended:
            command = self.command
            failure = Failure("cancelled", "cancelled by its own node", (), "cancelled")
            await self._runner.record(
                EffectFinished(self.path, command.turn, command.attempt, key, failure=failure, usage=usage)
            )

    async def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        cost: Budget | None = None,
        usage: Callable[[Any], Budget] | None = None,
    ) -> Any:
        """Do something outside, once, and have it recorded; see `Step.effect`."""
        _check_effect(name, fn, key, cost, usage)
        if self.cancelled or self.ended:
            await self._refused()
        if self._inside() is not None:
            msg = f"effect({name!r}) of {path_text(self.path)!r} stands inside another: what that does is one effect."
            raise UsageError(msg)
        command = self.command
        if key in self._asking:
            raise EffectKeyRequired(path_text(self.path), name)
        key = self._own_key(key)
        arguments = digest(args, whole=self._runner.fold.edition < SECRETIVE)
        request = EffectRequested(self.path, command.turn, command.attempt, key, name, arguments, cost)
        self._asking.add(key)
        try:
            refused, finished = await self._ask(request)
        finally:
            self._asking.discard(key)
        if refused is not None and refused.bound == "key":
            raise EffectKeyRequired(path_text(self.path), name)
        if refused is not None:
            raise BoundHit(refused.bound, limit=refused.limit, wanted=refused.wanted, left=refused.left)
        if finished is not None:
            try:
                return self._runner.recorded(finished, fn, command.node)
            except (JournalDamaged, GraphChanged) as error:
                await self._give_out(error)
        return await self._perform(request, fn, args, usage)

    def _own_key(self, key: str | None) -> str:
        """Return what an effect of this turn is found again by: its position, or its key and how often that was used.

        A key that is in flight stays as it is, for the fold to refuse.
        """
        if key is None:
            self._count += 1
            return str(self._count - 1)
        if key in self._flying:
            return key
        uses = self._uses[key] = self._uses.get(key, 0) + 1
        return key if uses == 1 else f"{key} ({uses})"

    async def _perform(
        self,
        request: EffectRequested,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        usage: Callable[[Any], Budget] | None,
    ) -> Any:
        """Do an effect that the fold has allowed, and record how it ended."""
        key, name = request.key, request.name
        if takes_key(fn):
            fn = functools.partial(fn, idempotency_key=self._runner.idempotency_key(request, name, request.digest))
        finished = functools.partial(EffectFinished, self.path, request.turn, request.attempt, key)
        outside = _INSIDE.get()
        _INSIDE.set(_Inside(self, key))
        self._flying.add(key)
        try:
            if is_async(fn):
                result = await fn(*args)
            else:
                result = await anyio.to_thread.run_sync(functools.partial(fn, *args), abandon_on_cancel=True)
            used = usage(result) if usage is not None else None
            if used is not None:
                _check_budget(f"effect({name!r}): usage=... gave {used!r}", used)
            result = self._runner.kept(result, f"the result of the effect {name!r} of {path_text(self.path)!r}", fn)
        except Exception as error:
            await self._runner.record(finished(failure=failure_of(error)))
            raise
        except BaseException as error:
            if isinstance(error, cancelled_classes()):
                await self._give_up(key, None)
            raise
        finally:
            self._flying.discard(key)
            if self._waits:
                self._review()
            _INSIDE.set(outside)  # not reset(): a coroutine may be closed in another context
        await self._runner.record(finished(result=result, usage=used))
        return result

    def _inside(self) -> _Inside | None:
        """Return the effect of this body that is being done here, if one is."""
        inside = _INSIDE.get()
        return inside if inside is not None and inside.body is self else None

    async def sleep(self, seconds: float) -> None:
        """Wait on the run's clock; see `Step.sleep`."""
        if not is_seconds(seconds):
            msg = f"sleep({value_text(seconds)}): a finite number of seconds of at least 0 is needed."
            raise UsageError(msg)
        if self.cancelled or self.ended:
            await self._refused()
        inside = self._inside()
        # Known by its length and its number among those of that length, for which of two that run side by side begins
        # first is timing. Inside an effect it is counted there: that is not done again once it is recorded.
        counts = self._sleeps if inside is None else inside.sleeps
        length = f"{float(seconds):g}"
        number = counts[length] = counts.get(length, 0) + 1
        key = f"sleep {length} #{number}" if inside is None else f"sleep {inside.key}/{length} #{number}"
        await self._ask(SleepRequested(self.path, self.command.turn, self.command.attempt, key, float(seconds)))

    def emit(self, value: Any) -> None:
        """Say something to whoever listens; see `Step.emit`."""
        if self.ended:
            return  # nobody listens to an abandoned thread
        if self.memory is not None and self.memory.emitted:
            self.memory.emitted -= 1  # it has been said, and is recorded
            return
        self._runner.emit(Emitted(self.path, self.command.turn, value))

    def resource(self, kind: type[Any]) -> Any:
        """Return the one resource of a class; see `Step.resource`."""
        return self._runner.resource(self.path, kind)


def takes_key(fn: Callable[..., Any]) -> bool:
    """Tell whether a function has a parameter for an idempotency key that is not given yet."""
    while isinstance(fn, functools.partial):
        if "idempotency_key" in fn.keywords:
            return False
        fn = fn.func
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return code is not None and "idempotency_key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


_TAKEN = re.compile(r"^sleep | \(\d+\)$")
"""How a key begins that is a sleep's, and how one ends that was used before in its turn."""


def _check_effect(name: object, fn: object, key: object, cost: object, usage: object) -> None:
    """Refuse what a body asks for in words that could not be recorded, or read back.

    Raises:
        UsageError: naming the argument.
    """
    if not isinstance(name, str):
        msg = f"effect(name={name!r}): a text is needed, by which the effect is known in the record."
        raise UsageError(msg)
    if not callable(fn):
        msg = f"effect({name!r}, {fn!r}): a function is needed that does it, and its arguments after it."
        raise UsageError(msg)
    if key is not None and not (isinstance(key, str) and key and not key.isdigit() and not _TAKEN.search(key)):
        msg = f"effect({name!r}, key={key!r}): a key is any text but a number, nothing, one of a sleep, or 'k (2)'."
        raise UsageError(msg)
    if cost is not None:
        _check_budget(f"effect({name!r}, cost={cost!r})", cost)
    if usage is not None and not callable(usage):
        msg = f"effect({name!r}, usage={usage!r}): a function from the result to a Budget is needed, or None."
        raise UsageError(msg)
    if usage is not None:
        checked_sync(f"effect({name!r})", usage=usage)


def _check_budget(what: str, found: object) -> None:
    if not isinstance(found, Budget):
        msg = f"{what}: a Budget is needed, or None."
        raise UsageError(msg)


class _Inside:
    """The effect that is being done."""

    __slots__ = ("body", "key", "sleeps")

    def __init__(self, body: Body, key: str) -> None:
        self.body, self.key = body, key
        self.sleeps: dict[str, int] = {}


_INSIDE: ContextVar[_Inside | None] = ContextVar("graphflow_inside_effect", default=None)


def left_by(work: BareBody | AgentCall) -> StrayCancellation:
    """Return the error for what raised GeneratorExit by itself; from the loop, it would mean that the loop ends."""
    return StrayCancellation(f"{path_text(work.path)!r} raised GeneratorExit, but nobody had closed it.")


@types.coroutine
def resumed(
    body: BareBody | AgentCall, around: ContextVars, coroutine: Coroutine[Any, Any, Any], item: Any
) -> Generator[Any, Any, Any]:
    """Drive a coroutine that has begun to wait, each stretch in its own context variables."""
    while True:
        try:
            sent = yield item
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever is thrown in belongs to the coroutine
            go_on: Callable[[], Any] = functools.partial(coroutine.throw, error)
        else:
            go_on = functools.partial(coroutine.send, sent)
        began = time.perf_counter()
        try:
            item = around.run(go_on)
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as error:
            raise left_by(body) from error
        finally:
            body.blocked = max(body.blocked, time.perf_counter() - began)
