"""The runner: it carries out what the fold commands, and tells the fold what happened.

Bodies return facts and never raise into a group, so that no ExceptionGroup arises.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context as ContextVars
from contextvars import copy_context
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from graphflow.errors import BoundHit, GraphChanged, InternalError, JournalDamaged, UsageError
from graphflow.events import (
    CancelRequested,
    EffectFinished,
    EffectRequested,
    Emitted,
    Fact,
    Failure,
    Heard,
    HookAnswered,
    NodeReturned,
    Warned,
)
from graphflow.model.contract import BOUNDS
from graphflow.model.frozen import class_of
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Skip
from graphflow.model.state import Left
from graphflow.model.telling import value_text
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.agentcall import AgentCall, as_coroutine, awaited, settled
from graphflow.runtime.backends import cancelled_classes, current_task
from graphflow.runtime.body import BLOCKED, BareBody, Body, left_by, resumed
from graphflow.runtime.commands import (
    AskHook,
    CallModel,
    CallTool,
    CancelBody,
    CancelCall,
    CloseGroup,
    Command,
    DropTimer,
    EndRun,
    GoOn,
    OpenGroup,
    RefuseEffect,
    SetTimer,
    StartBody,
)
from graphflow.runtime.core import failure_of, left_now
from graphflow.runtime.recorder import Setup
from graphflow.runtime.returned import SOUND, advise, blocking, looked_at
from graphflow.runtime.sessions import Group, Sessions, Work

if TYPE_CHECKING:
    from graphflow.runtime.recall import Recall
    from graphflow.runtime.stored import Folded

_CANCELLED = Failure("cancelled", "it was cancelled", (), "cancelled")

THREADS = 40
"""How many sync bodies of one run may hold a thread at once, besides those that have a timeout."""

TURNS = 64
"""How many bodies that never wait run before the loop gets a turn."""

SWALLOWED = 5.0
"""Active seconds after which a cancelled body that goes on is reported."""


class Runner(Sessions):
    """One run at work."""

    __slots__ = (
        "_before", "_bodies", "_calling", "_context", "_doomed", "_naps", "_swallowing", "_threads", "errors", "recall",
        "resources", "soon_from_any", "thread",
    )  # fmt: skip

    def __init__(self, setup: Setup) -> None:
        """Begin before the first fact."""
        super().__init__(setup)
        self.resources = tuple(setup.resources)
        self.thread = threading.get_ident()
        self.errors: dict[Path, BaseException] = {}
        self.recall: Recall | None = None  # of a run that was taken up
        self._before = setup.before
        self._context = copy_context()
        self._bodies: dict[Path, BareBody] = {}
        self._doomed: set[Path] = set()  # bodies that were cancelled before a worker took them
        self._calling: dict[Path, dict[str, AgentCall]] = {}  # of agents, by key
        self.soon_from_any: Callable[..., Any] | None = None  # has a function called in the loop, from any thread
        self._naps: dict[int, anyio.Event] = {}  # of tools, by local timer
        self._swallowing: dict[int, BareBody | AgentCall] = {}  # by local timer
        self._threads: anyio.CapacityLimiter | None = None  # made when the first sync body runs

    def take_up(self, folded: Folded) -> None:
        """Go on from a stored run, which has been folded again."""
        self.fold, self.recall, self.errors = folded.fold, folded.recall, folded.errors
        self.seq, self.past = folded.seq, folded.at
        if self.records is not None and folded.records is not None:
            self.records.extend(folded.records)

    # --- commands ---

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if type(command) is StartBody or type(command) is AskHook:
                work: Work = command
                if self._doomed:
                    self._doomed.discard(command.path)  # what was cancelled before cannot have been this
            elif type(command) is CallModel or type(command) is CallTool:
                work = AgentCall(self, command)
                self._calling.setdefault(command.path, {})[command.key] = work
            else:
                self._other(command)
                continue
            group = self._groups[command.group]
            self._awake += 1
            group.ready.append(work)
            if not group.takers:
                self._need_worker(group)

    def _other(self, command: Command) -> None:
        match command:
            case OpenGroup():
                self._groups[command.group] = Group(command.group, self._groups[command.parent])
            case CloseGroup():
                group = self._groups.pop(command.group, None)
                if group is not None and group.closed is not None:
                    group.closed.set()
            case GoOn() | RefuseEffect():
                body = self._bodies.get(command.path)
                if body is not None:
                    body.answer(command)
                elif self.recall is not None:  # a timer that was due before its body could begin again
                    self.recall.answered(command)
            case CancelBody():
                body = self._bodies.get(command.path)
                if body is not None:
                    self._cancel(body)
                elif command.path in self._calling:
                    for key in tuple(self._calling[command.path]):
                        self._cancel_call(command.path, key)
                else:
                    self._doomed.add(command.path)
            case CancelCall():
                self._cancel_call(command.path, command.key)
            case SetTimer():
                self._set_timer(command)
            case DropTimer():
                self._dropped.add(command.timer)
            case EndRun():
                self._finish()
            case _:
                msg = f"{command!r} is no command"
                raise InternalError(msg)

    # --- workers ---

    async def _take(self, group: Group, scope: anyio.CancelScope) -> bool:
        """Take until nothing is ready (True), or until this worker's scope has been used up (False)."""
        ready = group.ready
        turns = 0
        while ready:
            work = ready.popleft()
            used = False
            if type(work) is StartBody:
                if self._doomed and work.path in self._doomed:
                    await self._drop(work)
                else:
                    used = await self._body(group, work, scope)
            elif type(work) is AgentCall:
                used = await self._call(group, work, scope)
            elif type(work) is AskHook:
                await self._ask(group, work)
            if used or self.crash is not None:
                return False
            if self._slowing:
                await self._slow_down()
            turns += 1
            if turns % TURNS == 0:
                self._call_host()
                await anyio.lowlevel.checkpoint()
        if not turns:
            group.burst = 1  # it came in vain: what was ready does not wait
        group.takers -= 1
        return True

    async def _body(self, group: Group, command: StartBody, scope: anyio.CancelScope) -> bool:
        """Run one body and record what became of it; tell whether it has used up its worker's scope."""
        path = command.path
        if self.errors:
            self.errors.pop(path, None)  # of an attempt that was retried
        node = command.node
        body = self._bodies[path] = (Body if node.wants_step else BareBody)(self, command, scope)
        args = (command.state, body) if node.wants_step else (command.state,)
        outcome, failure, waited = None, None, False
        cancelled: BaseException | None = None
        try:
            if node.is_async:
                rest = self._first_stretch(body, node.fn, args)
                if rest is None:
                    outcome = body.found
                else:
                    waited = True
                    self._hand_over(group)
                    outcome = await resumed(body, *rest)
            else:
                waited = True
                self._hand_over(group)
                outcome = await self._in_thread(body, functools.partial(node.fn, *args), node.timeout)
        except Exception as error:  # noqa: BLE001 - whatever a node raises is a fact
            failure = self._raised(error, command)
        except BaseException as error:  # noqa: BLE001 - told apart there
            cancelled = await self._stopped(body, error)
            if cancelled is None:
                return True
        group.takers += waited
        if body.memory is not None and failure is None and cancelled is None:
            await body.look_back(body.memory)
        self._bodies.pop(path, None)
        if failure is None and class_of(outcome) not in SOUND:
            outcome, failure = looked_at(outcome, command)
        body.ended = True
        fact = NodeReturned(path, command.turn, command.attempt, outcome, failure, cancelled is not None)
        if body.cancelled or body.blocked > BLOCKED:
            await self._warn(body, cancelled)
        if self._slow:
            await self.record(fact)
        else:
            self.record_now(fact)
        if body.awake:
            self._awake -= 1
            if not self._awake and self._timers:
                self._asleep()
        if cancelled is not None and scope.cancel_called:
            raise cancelled
        return body.cancelled

    def _raised(self, error: Exception, command: StartBody) -> Failure:
        """Return what a body has raised as a fact, and keep it for who runs the run."""
        advise(error, command.state)
        if not isinstance(error, BoundHit):  # a bound is a result, never raised
            self.errors[command.path] = error
        return failure_of(error, *_bound_of(error))

    def _first_stretch(
        self, work: BareBody | AgentCall, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[ContextVars, Coroutine[Any, Any, Any], Any] | None:
        """Run what is async until it has ended, and has found something (None), or waits: return the rest of it."""
        around = self._context.copy()
        coroutine = around.run(fn, *args)
        if class_of(coroutine) is not CoroutineType:
            coroutine = as_coroutine(coroutine) if type(work) is AgentCall else awaited(coroutine)
        began = perf_counter()
        try:
            return around, coroutine, around.run(coroutine.send, None)
        except StopIteration as stop:
            work.found = stop.value
            return None
        except GeneratorExit as error:
            raise left_by(work) from error
        finally:
            work.blocked = perf_counter() - began

    async def _stopped(self, body: BareBody | AgentCall, error: BaseException) -> BaseException | None:
        """Return the cancellation of a body or a call; None when what it raised ends the run instead."""
        if not isinstance(error, cancelled_classes()):
            self._forget(body)
            self._crashed(error)
            return None
        if self.crash is not None:
            self._forget(body)
            raise error
        if body.cancelled:
            return error
        if self._is_hosts(error):
            await self.record(CancelRequested("its host"))
        else:
            _forgive()
        return error

    async def _drop(self, work: StartBody | AgentCall) -> None:
        """Record that something was cancelled before a worker took it."""
        if isinstance(work, AgentCall):
            self._forget_call(work)
            command = work.command
            fact: Fact = EffectFinished(work.path, command.turn, command.attempt, work.key, failure=_CANCELLED)
        else:
            self._doomed.discard(work.path)
            fact = NodeReturned(work.path, work.turn, work.attempt, cancelled=True)
        await self.record(fact)
        self.awake(-1)

    async def _drop_ready(self) -> None:
        """Drop what no worker has taken, for those that were to do so may have been cancelled before they began."""
        for group in tuple(self._groups.values()):
            while group.ready:
                work = group.ready.popleft()
                if not isinstance(work, AskHook):  # the fold waits for no hook of a run that is cancelled
                    await self._drop(work)

    def _forget(self, body: BareBody | AgentCall) -> None:
        if isinstance(body, BareBody):
            body.ended = True
            self._bodies.pop(body.path, None)
        else:
            self._forget_call(body)

    def _forget_call(self, call: AgentCall) -> None:
        call.ended = True
        calls = self._calling[call.path]
        del calls[call.key]
        if not calls:
            del self._calling[call.path]

    async def _in_thread(self, body: BareBody | AgentCall, fn: Callable[[], Any], limit: float | None) -> Any:
        body.thread = True
        around = self._context.copy()
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:  # a worker thread runs no loop: a body may start one of its own there
            around.run(sniffio.current_async_library_cvar.set, None)
        # A timeout counts from the start of the body, so a body that has one does not wait for a thread.
        limiter = self._places() if limit is None else anyio.CapacityLimiter(1)
        try:
            found = await anyio.to_thread.run_sync(
                lambda: (around.run(_called, body, fn),),  # wrapped: trio refuses what can be awaited
                abandon_on_cancel=True,
                limiter=limiter,
            )
            return found[0]
        except cancelled_classes():
            if limiter is self._threads:
                limiter.total_tokens += 1  # its thread may go on for ever, and hold its place
            raise

    def _places(self) -> anyio.CapacityLimiter:
        """Return the places of the sync bodies of this run."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(THREADS)
        return self._threads

    # --- calls of agents ---

    async def _call(self, group: Group, call: AgentCall, scope: anyio.CancelScope) -> bool:
        """Call a model or a tool, and record what became of it; tell whether that has used up its worker's scope."""
        path, key, command = call.path, call.key, call.command
        if call.cancelled:  # before a worker took it
            await self._drop(call)
            return False
        call.scope = scope
        found, failure, used, waited = None, None, None, False
        cancelled: BaseException | None = None
        try:
            if call.in_thread:
                waited = True
                self._hand_over(group)
                timeout = command.tool.timeout if isinstance(command, CallTool) else None
                found = await settled(await self._in_thread(call, call.start, timeout))
            else:
                rest = self._first_stretch(call, call.start, ())
                if rest is None:
                    found = call.found
                else:
                    waited = True
                    self._hand_over(group)
                    found = await resumed(call, *rest)
            if type(command) is CallTool:
                found, failure = call.told(found)
        except Exception as error:  # noqa: BLE001 - whatever a model or a tool raises is a fact
            if call.keeps_errors:
                self.errors[path] = error
            found, failure, used = None, failure_of(error), call.used_by(error)
        except BaseException as error:  # noqa: BLE001 - told apart there
            cancelled = await self._stopped(call, error)
            if cancelled is None:
                return True
            failure = _CANCELLED
        group.takers += waited
        self._forget_call(call)
        if call.cancelled or call.blocked > BLOCKED:
            await self._warn(call, cancelled)
        fact = EffectFinished(path, command.turn, command.attempt, key, found, failure, used)
        if self._slow:
            await self.record(fact)
        else:
            self.record_now(fact)
        self._awake -= 1
        if not self._awake and self._timers:
            self._asleep()
        if cancelled is not None and scope.cancel_called:
            raise cancelled
        return call.cancelled

    def _cancel_call(self, path: Path, key: str) -> None:
        call = self._calling.get(path, {}).get(key)
        if call is None:
            return
        call.cancel()
        if call.scope is not None:
            self._swallowing[self._set_local_timer(SWALLOWED)] = call

    async def nap(self, seconds: float) -> None:
        """Let a tool sleep on the run's clock."""
        timer = self._set_local_timer(seconds)
        event = self._naps[timer] = anyio.Event()
        self.awake(-1)
        try:
            await event.wait()
        finally:
            if self._naps.pop(timer, None) is not None:
                self._dropped.add(timer)
                self.awake(1)

    def heard(self, body: Heard) -> None:
        """Let a piece of a model's reply be heard; the journal does not keep it.

        Where texts are redacted, nothing is heard of it before it is whole: pieces could not be judged.
        """
        if self.redact is not None:
            return
        if threading.get_ident() == self.thread:
            self.say(body)
        elif self.soon_from_any is not None:
            self.soon_from_any(self.say, body)  # any thread at all: a provider has its own

    async def _warn(self, body: BareBody | AgentCall, cancelled: BaseException | None) -> None:
        """Say what was not in order about a body that has ended."""
        path = body.path
        shown = path_text(path)
        if body.cancelled and body.thread and cancelled is not None:
            await self._warned(path, "thread_abandoned", f"the thread of {shown!r} goes on; its result is dropped")
        elif body.cancelled and cancelled is None:
            await self._warned(path, "cancel_swallowed", f"{shown!r} was cancelled, and ended as if it had not been")
        if body.blocked > BLOCKED:
            why = blocking(body.command)
            text = f"{shown!r} kept the loop for {body.blocked:.3g} s at a stretch; {why}"
            await self._warned(path, "loop_blocked", text)

    async def _warned(self, path: Path, kind: Any, text: str) -> None:
        await self.record(Warned(path, kind, text))

    def _cancel(self, body: BareBody) -> None:
        body.cancel()
        self._swallowing[self._set_local_timer(SWALLOWED)] = body

    async def _local_due(self, timer: int) -> None:
        """Wake a tool that sleeps, or report a body that goes on long after it was cancelled."""
        nap = self._naps.pop(timer, None)
        if nap is not None:
            self.awake(1)
            nap.set()
            return
        body = self._swallowing.pop(timer)
        if not body.ended:
            text = f"{path_text(body.path)!r} was cancelled {SWALLOWED:g} s ago and goes on"
            await self._warned(body.path, "cancel_swallowed", text)

    async def _ask(self, group: Group, command: AskHook) -> None:
        """Ask the `before=` hook about a visit."""
        assert self._before is not None  # noqa: S101 - the fold asks only where there is one
        self._hand_over(group)
        skip: str | None = None
        failure = None
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                found = self._before(command.state)
                answer: object = await found if inspect.isawaitable(found) else found
                if isinstance(answer, Skip):
                    skip = answer.reason
                elif answer is not None:
                    msg = f"a before= hook returns None or Skip(reason), not {value_text(answer)}."
                    raise UsageError(msg)
            except Exception as error:  # noqa: BLE001 - whatever a hook raises is a fact
                self.errors[command.path] = error
                failure = failure_of(error)
            except BaseException as error:
                if isinstance(error, cancelled_classes()) and (scope.cancel_called or self.crash is not None):
                    raise
                self._crashed(error)
            finally:
                self._asking.discard(scope)
        group.takers += 1
        if not scope.cancelled_caught and self.crash is None:
            await self.record(HookAnswered(command.path, skip, failure))
        self.awake(-1)

    # --- what a body asks ---

    def crashed(self, error: BaseException) -> None:
        """End the session because of an error that is nobody's outcome."""
        self._crashed(error)

    def kept(self, value: Any, what: str, fn: Callable[..., Any]) -> Any:
        """Return what an effect gave as the run keeps it.

        Raises:
            NotStorable: if a journal could not give it back exactly.
        """
        if self.redact is not None:
            from graphflow.runtime.redaction import redacted

            value = redacted(value, self.redact)
        if self.store is not None:
            self.store.rows.check_result(value, what, fn)
        return value

    def recorded(self, fact: EffectFinished, fn: Callable[..., Any], node: FunctionNode[Any]) -> Any:
        """Return what is recorded of an effect, or raise what is recorded of its failure."""
        if fact.failure is not None:
            from graphflow.runtime.recall import raised_again

            raise raised_again(fact.failure, path_text(fact.path), node.fn, fn)
        assert self.store is not None  # noqa: S101 - it is where the fact was read
        try:
            return self.store.rows.reread(fact.result, fn)
        except ValueError as error:
            what = f"the result of the effect {fact.key!r} of {path_text(fact.path)!r}: {error}"
            if fact.result.older:
                raise GraphChanged(self.run_id, (), (), (), what) from error
            raise JournalDamaged(self.run_id, None, what) from error

    def idempotency_key(self, request: EffectRequested, name: str, arguments: str) -> str:
        """Return what an effect can be told apart by outside, the same for each of its attempts."""
        from graphflow.runtime.recall import idempotency_key

        return idempotency_key(self.run_id, (request.path, request.turn, request.key), name, arguments)

    def emit(self, fact: Emitted) -> None:
        """Record what a body or a tool says, from the loop or from a worker thread.

        Raises:
            NotStorable: if a journal could not give it back exactly.
        """
        if threading.get_ident() == self.thread:
            self._emit(fact)
        else:
            anyio.from_thread.run_sync(self._emit, fact)

    def _emit(self, fact: Emitted) -> None:
        """Record what is said, in the loop: there is one writer of values for a run."""
        if self.store is not None:
            self.store.rows.check(fact.value, f"what {path_text(fact.path)!r} emits")
        self.record_soon(fact)

    def resource(self, path: Path, kind: type[Any]) -> Any:
        """Return the one resource of a class.

        Raises:
            UsageError: if the run has none of that class, or several.
        """
        if not isinstance(cast("object", kind), type):
            msg = f"{path_text(path)!r} asked for resource({value_text(kind)}): the class itself is needed."
            raise UsageError(msg)
        found = [resource for resource in self.resources if isinstance(resource, kind)]
        if len(found) != 1:
            given = ", ".join(type(resource).__name__ for resource in self.resources) or "none"
            count = "none" if not found else f"{len(found)}"
            msg = (
                f"{path_text(path)!r} asked for a resource of class {kind.__name__}, and the run has {count} of it"
                f" (given: {given}). Give exactly one: run(..., resources=[...])."
            )
            raise UsageError(msg)
        return found[0]

    def left(self, path: Path) -> Left:
        """Return what remains for a visit now."""
        visit = self.fold.visits[path]
        return left_now(visit.token.frame.meter, visit.token.frame, visit.token.counters)


def _called(work: BareBody | AgentCall, fn: Callable[[], Any]) -> Any:
    """Call what is sync, in its thread."""
    try:
        return fn()
    except GeneratorExit as error:
        raise left_by(work) from error


def _forgive() -> None:
    """Take back what a body has asked for that cancelled its own task: the task goes on with other bodies."""
    task = current_task()
    while task is not None and task.uncancel():
        pass


def _bound_of(error: Exception) -> tuple[str, float | None]:
    if not isinstance(error, BoundHit) or error.bound not in BOUNDS:
        return "failed", None
    try:
        return error.bound, None if error.limit is None else float(str(error.limit))
    except ValueError:  # raised by a node of its own accord, with what is no number
        return error.bound, None
