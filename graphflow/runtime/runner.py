"""The runner: it carries out what the fold commands, and tells the fold what happened.

Each scope of the walk has a task group of its own, hosted by a task in the group around it. Inside a group, workers
take bodies one after the other: a body that never waits costs no task, and when one does wait, another worker takes
over. Bodies return facts and never raise into a group, so that no ExceptionGroup arises.

The task of a session is the first worker. The host of the outermost group is a task of its own, made when something
waits for the first time: a session in which nothing does needs no group.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context as ContextVars
from contextvars import copy_context
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from graphflow.errors import BoundHit, InternalError, StrayCancellation, UsageError
from graphflow.events import (
    Before,
    CancelRequested,
    Clock,
    EffectFinished,
    Fact,
    Failure,
    HookAnswered,
    Journal,
    Listener,
    NodeReturned,
    TextDelta,
    Warned,
)
from graphflow.graphs.graph import Graph
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Skip
from graphflow.model.state import Left
from graphflow.runtime.agentcall import AgentCall, as_coroutine, awaited
from graphflow.runtime.body import BLOCKED, Body, cancelled_classes, current_task, resumed
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
from graphflow.runtime.timekeeper import Timekeeper
from graphflow.runtime.visits import BOUNDS

Work = StartBody | AskHook | CallModel | CallTool
WORK = frozenset({StartBody, AskHook, CallModel, CallTool})
"""The commands that a worker takes."""

Spawn = Callable[[Callable[[], Awaitable[None]], Callable[[], object]], None]
"""Starts a task that belongs to no other; the second function is called when it has ended, or never begun."""

_CALLS = (CallModel, CallTool)

_CANCELLED = Failure("cancelled", "it was cancelled", (), "cancelled")

THREADS = 40
"""How many sync bodies of one run may hold a thread at once, besides those that have a timeout."""

TURNS = 64
"""How many bodies that never wait run before the loop gets a turn."""

SWALLOWED = 5.0
"""Active seconds after which a cancelled body that goes on is reported."""


class Group:
    """The task group of a scope, while anything runs in it."""

    __slots__ = ("children", "closed", "hosted", "number", "parent", "ready", "takers", "tasks")

    def __init__(self, number: int, parent: Group | None) -> None:
        """Begin without tasks: it is hosted when there is something to run."""
        self.number, self.parent = number, parent
        self.ready: deque[Work] = deque()
        self.takers = 0  # workers that will look at `ready` before they end
        self.tasks: TaskGroup | None = None
        self.hosted = False
        self.closed: anyio.Event | None = None  # set when the host may let go
        self.children: list[Group] = []  # to be hosted as soon as the tasks are there


class Runner(Timekeeper):
    """One run at work."""

    def __init__(
        self,
        graph: Graph[Any],
        run_id: str,
        *,
        clock: Clock,
        journal: Journal | None,
        listeners: Sequence[Listener],
        before: Before | None,
        resources: Sequence[object],
        keep: bool,
        spawn: Spawn,
    ) -> None:
        """Begin before the first fact.

        Args:
            graph: what to run.
            run_id: its id.
            clock: where time comes from.
            journal: where records go, or None.
            listeners: called with each event.
            before: asked before each visit.
            resources: what `step.resource` finds.
            keep: whether records are kept for an iterator over the events.
            spawn: starts a task that belongs to no other.
        """
        super().__init__(graph, run_id, clock=clock, journal=journal, listeners=listeners, keep=keep)
        self.resources = tuple(resources)
        self.thread = threading.get_ident()
        self.errors: dict[Path, BaseException] = {}
        self._before, self._spawn = before, spawn
        self._context = copy_context()
        self._groups: dict[int, Group] = {0: Group(0, None)}
        self._bodies: dict[Path, Body] = {}
        self._doomed: set[Path] = set()  # bodies that were cancelled before a worker took them
        self._calling: dict[Path, dict[str, AgentCall | None]] = {}  # of agents, by key; None before a worker takes it
        self._doomed_calls: set[tuple[Path, str]] = set()  # calls that were cancelled before a worker took them
        self._naps: dict[int, anyio.Event] = {}  # of tools, by local timer
        self._swallowing: dict[int, Body | AgentCall] = {}  # by local timer
        self._asking: set[anyio.CancelScope] = set()  # hooks under way
        self._over: anyio.Event | None = None  # set when the session has nothing left to do
        self._host_task: Any = None  # asyncio's
        self._host_gone: anyio.Event | None = None  # set when the host has ended that the first worker called
        self._first: anyio.CancelScope | None = None  # around what the first worker does

    # --- sessions ---

    async def session(self, first: Fact) -> None:
        """Run from a fact until the run has ended or waits for people; no task is left afterwards."""
        facts = [first, *self._early]
        while facts and not self._ended:
            self._early = []
            await self._session(facts)
            facts = self._early

    async def _session(self, facts: Sequence[Fact]) -> None:
        self._over = anyio.Event()
        self._stopping = False
        self._go_on()
        try:
            if self._journal is None:
                await self._begin(facts)
            else:
                await self._be_host(facts)
        finally:
            self._groups[0].takers = 0
            self._first = self._host_gone = self._host_task = None
            self._resting_since = self._clock.now()
            self._over = None
            self._tell()

    async def _begin(self, facts: Sequence[Fact]) -> None:
        """Be the first worker of a session; whatever waits is hosted by another task, called when it is needed."""
        root, over = self._groups[0], self._over
        assert over is not None  # noqa: S101 - the session has begun
        root.takers = 1
        try:
            for fact in facts:
                self.record_now(fact)
            if self.fold.ended is not None:
                self._finish()
            await self._work(root, first=True)
        finally:  # also when this task is cancelled, as when its loop ends
            if not over.is_set():
                self._call_host()
            if self._host_gone is not None:
                await self._left_by_host(self._host_gone)

    @staticmethod
    async def _left_by_host(gone: anyio.Event) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await gone.wait()
            except cancelled_classes():  # the loop ends: the host hears of that too, and sees to the end of the run
                await gone.wait()
                raise

    def _call_host(self) -> None:
        """See that the session has a host, before anything waits."""
        root = self._groups[0]
        if not root.hosted:
            root.hosted = True
            self._host_gone = anyio.Event()
            self._spawn(self._host_session, self._host_gone.set)

    async def _host_session(self) -> None:
        try:
            await self._be_host(())
        except cancelled_classes():
            raise
        except BaseException as error:  # noqa: BLE001 - it ends the run, and is raised there
            self._crashed(error)

    async def _be_host(self, facts: Sequence[Fact]) -> None:
        """Keep the outermost group open until the session has nothing left to do."""
        root, over = self._groups[0], self._over
        assert over is not None  # noqa: S101 - the session has begun
        self._host_task = current_task()
        try:
            async with anyio.create_task_group() as tasks:
                root.tasks, root.hosted = tasks, True
                for fact in facts:
                    await self.record(fact)
                if self.fold.ended is not None:
                    self._finish()
                self._take_up(root, tasks)
                if self._timers and not over.is_set():
                    self._need_timer_task()  # those that were set before, or that the last session left
                try:
                    await over.wait()
                except BaseException as error:  # whoever runs this session wants it to stop
                    await self._stop("its host", error)
                    raise
        finally:
            root.tasks, root.hosted = None, False

    def _take_up(self, group: Group, tasks: TaskGroup) -> None:
        """Start what had to wait for a group's tasks."""
        for child in group.children:
            tasks.start_soon(self._host, child)
        group.children.clear()
        if group.ready and not group.takers:
            self._need_worker(group)

    async def _stop(self, by: str, error: BaseException) -> None:
        """Cancel the run and wait for its end, whatever else is being cancelled."""
        with anyio.CancelScope(shield=True):
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                self._crashed(error)
            elif self._over is not None and not self._over.is_set():
                await self.record(CancelRequested(by))
                await self._over.wait()

    def _finish(self) -> None:
        """Let every host go: nothing runs any more."""
        self._stopping = True
        for group in self._groups.values():
            if group.closed is not None:
                group.closed.set()
        for scope in (self._timing, *self._asking):
            if scope is not None:
                scope.cancel()
        if self._over is not None:
            self._over.set()

    def _crashed(self, error: BaseException) -> None:
        """Stop everything at once, without a further record."""
        if self.crash is None:
            stray = isinstance(error, (*cancelled_classes(), GeneratorExit))
            text = f"{type(error).__name__} was raised outside of a body, but nobody had cancelled the run."
            self.crash = StrayCancellation(text) if stray else error
        self._finish()
        root = self._groups[0]
        if root.tasks is not None:
            root.tasks.cancel_scope.cancel()
        if self._first is not None:
            self._first.cancel()

    def _in_session(self) -> bool:
        """Tell whether facts are taken now."""
        return self._over is not None and (self._journal is None or self._groups[0].tasks is not None)

    def _tasks(self) -> TaskGroup | None:
        """Return the task group of the session, while there is one."""
        return self._groups[0].tasks

    # --- commands ---

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            kind = type(command)
            if kind in WORK:
                self._push(self._groups[command.group], command)  # type: ignore[union-attr, arg-type]  # told apart by class
            else:
                self._other(command)

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

    def _push(self, group: Group, command: Work) -> None:
        self._awake += 1
        if isinstance(command, _CALLS):
            self._calling.setdefault(command.path, {})[command.key] = None
        group.ready.append(command)
        if not group.takers:
            self._need_worker(group)

    def _need_worker(self, group: Group) -> None:
        """See that somebody takes what is ready in a group."""
        if group.tasks is not None:
            group.takers += 1
            group.tasks.start_soon(self._work, group)
        elif not group.hosted and group.parent is not None:
            group.hosted = True
            self._need_host(group, group.parent)

    def _need_host(self, group: Group, parent: Group) -> None:
        if parent.tasks is not None:
            parent.tasks.start_soon(self._host, group)
            return
        parent.children.append(group)
        if not parent.hosted and parent.parent is not None:
            parent.hosted = True
            self._need_host(parent, parent.parent)

    async def _host(self, group: Group) -> None:
        """Keep a scope's task group open until the scope has closed."""
        group.closed = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                group.tasks = tasks
                group.takers += 1
                self._take_up(group, tasks)
                await self._work(group)
                if group.number in self._groups and not self._stopping:
                    await group.closed.wait()
        finally:
            group.tasks, group.hosted, group.closed, group.takers = None, False, None, 0

    # --- workers ---

    async def _work(self, group: Group, *, first: bool = False) -> None:
        """Take what is ready, one after the other, until nothing is; the caller has counted this taker."""
        done = False
        try:
            while not done and self.crash is None:
                with anyio.CancelScope() as scope:
                    if first:
                        self._first = scope  # no group is around it that a crash could cancel
                    done = await self._take(group, scope)
        except cancelled_classes():
            if self.crash is None:
                self._hand_over(group)
            raise
        except BaseException as error:  # noqa: BLE001 - whatever escapes here ends the run, and is raised there
            self._crashed(error)

    async def _take(self, group: Group, scope: anyio.CancelScope) -> bool:
        """Take until nothing is ready (True), or until this worker's scope has been used up (False)."""
        ready = group.ready
        turns = 0
        while ready:
            command = ready.popleft()
            kind = type(command)
            if kind is AskHook:
                await self._ask(group, command)  # type: ignore[arg-type]  # told apart by class
            else:
                if kind is StartBody:
                    await self._body(group, command, scope)  # type: ignore[arg-type]  # told apart by class
                else:
                    await self._call(group, command, scope)  # type: ignore[arg-type]  # told apart by class
                if scope.cancel_called:
                    return False
            turns += 1
            if turns % TURNS == 0:
                self._call_host()
                await anyio.lowlevel.checkpoint()
        group.takers -= 1
        return True

    def _hand_over(self, group: Group) -> None:
        """This worker is about to wait: let another take what is ready."""
        self._call_host()
        group.takers -= 1
        if group.ready and not group.takers:
            self._need_worker(group)

    async def _body(self, group: Group, command: StartBody, scope: anyio.CancelScope) -> None:
        """Run one body and record what became of it."""
        path = command.path
        if path in self._doomed:
            self._doomed.discard(path)
            await self.record(NodeReturned(path, command.turn, command.attempt, cancelled=True))
            self.awake(-1)
            return
        self.errors.pop(path, None)  # of an attempt that was retried
        body = self._bodies[path] = Body(self, command, scope)
        outcome, failure, waited = None, None, False
        cancelled: BaseException | None = None
        try:
            if command.node.is_async:
                over, item, around, coroutine = self._first_stretch(body, command)
                if over:
                    outcome = item
                else:
                    waited = True
                    self._hand_over(group)
                    outcome = await resumed(body, around, coroutine, item)
            else:
                waited = True
                self._hand_over(group)
                node = command.node
                args = (command.state, body) if node.wants_step else (command.state,)
                outcome = await self._in_thread(body, lambda: node.fn(*args), node.timeout)
        except Exception as error:  # noqa: BLE001 - whatever a node raises is a fact
            if not isinstance(error, BoundHit):  # a bound is a result, never raised
                self.errors[path] = error
            failure = failure_of(error, *_bound_of(error))
        except BaseException as error:  # noqa: BLE001 - told apart there
            cancelled = await self._stopped(body, error)
            if cancelled is None:
                return
        if waited:
            group.takers += 1
        self._bodies.pop(path, None)
        body.ended = True
        fact = NodeReturned(path, command.turn, command.attempt, outcome, failure, cancelled is not None)
        if body.cancelled or body.blocked > BLOCKED:
            await self._warn(body, cancelled)
        if self._journal is None:
            self.record_now(fact)
        else:
            await self.record(fact)
        if body.awake:
            self._awake -= 1
            if not self._awake and self._timers:
                self._asleep()
        if cancelled is not None and scope.cancel_called:
            raise cancelled

    def _first_stretch(self, body: Body, command: StartBody) -> tuple[bool, Any, ContextVars, Coroutine[Any, Any, Any]]:
        """Run a coroutine until it has ended (True, and what it returned) or waits (False, and for what)."""
        node, around = command.node, self._context.copy()
        args = (command.state, body) if node.wants_step else (command.state,)
        coroutine = around.run(node.fn, *args)
        if not inspect.iscoroutine(coroutine):
            coroutine = awaited(coroutine)
        began = time.perf_counter()
        try:
            return False, around.run(coroutine.send, None), around, coroutine
        except StopIteration as stop:
            return True, stop.value, around, coroutine
        finally:
            body.blocked = time.perf_counter() - began

    async def _stopped(self, body: Body | AgentCall, error: BaseException) -> BaseException | None:
        """Return the cancellation of a body or a call; None when what it raised ends the run instead."""
        if not isinstance(error, cancelled_classes()):
            self._forget(body)
            self._crashed(error)
            return None
        if self.crash is not None:
            self._forget(body)
            raise error
        if not body.cancelled and self._is_hosts(error):
            await self.record(CancelRequested("its host"))
        return error

    def _forget(self, body: Body | AgentCall) -> None:
        body.ended = True
        if isinstance(body, Body):
            self._bodies.pop(body.path, None)
            return
        calls = self._calling.get(body.path, {})
        calls.pop(body.key, None)
        if not calls:
            self._calling.pop(body.path, None)

    def _is_hosts(self, error: BaseException) -> bool:
        """Tell whether a cancellation is that of the task that runs this session, such as when a loop ends."""
        *_, asyncios = cancelled_classes()
        if not isinstance(error, asyncios):
            return True  # trio's own: no scope of ours was cancelled
        return self._host_task is not None and bool(self._host_task.cancelling())

    @functools.cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        """The places of the sync bodies of this run; made when the first of them runs."""
        return anyio.CapacityLimiter(THREADS)

    async def _in_thread(self, body: Body | AgentCall, fn: Callable[[], Any], timeout: float | None) -> Any:
        body.thread = True
        around = self._context.copy()
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:  # a worker thread runs no loop: a body may start one of its own there
            around.run(sniffio.current_async_library_cvar.set, None)
        # A timeout counts from the start of the body, so a body that has one does not wait for a thread.
        limiter = self._threads if timeout is None else anyio.CapacityLimiter(1)
        try:
            return await anyio.to_thread.run_sync(lambda: around.run(fn), abandon_on_cancel=True, limiter=limiter)
        except cancelled_classes():
            self._threads.total_tokens += limiter is self._threads  # its thread may go on for ever, and hold its place
            raise

    # --- calls of agents ---

    async def _call(self, group: Group, command: CallModel | CallTool, scope: anyio.CancelScope) -> None:
        """Call a model or a tool, and record what became of it."""
        path, key = command.path, command.key
        call = AgentCall(self, command, scope)
        if (path, key) in self._doomed_calls:
            self._doomed_calls.discard((path, key))
            self._forget(call)
            await self._call_ended(call, None, _CANCELLED)
            self.awake(-1)
            return
        self._calling[path][key] = call
        found, failure, waited = None, None, False
        cancelled: BaseException | None = None
        try:
            if call.is_sync:
                waited = True
                self._hand_over(group)
                timeout = command.tool.timeout if isinstance(command, CallTool) else None
                found = await self._in_thread(call, call.start, timeout)
            else:
                around = self._context.copy()
                coroutine = as_coroutine(around.run(call.start))
                over, item = self._stretch(call, around, coroutine)
                if over:
                    found = item
                else:
                    waited = True
                    self._hand_over(group)
                    found = await resumed(call, around, coroutine, item)
            found, failure = call.outcome(found)
        except Exception as error:  # noqa: BLE001 - whatever a model or a tool raises is a fact
            if call.keeps_errors:
                self.errors[path] = error
            failure = failure_of(error)
        except BaseException as error:  # noqa: BLE001 - told apart there
            cancelled = await self._stopped(call, error)
            if cancelled is None:
                return
            failure = _CANCELLED
        if waited:
            group.takers += 1
        self._forget(call)
        if call.cancelled or call.blocked > BLOCKED:
            await self._warn(call, cancelled)
        await self._call_ended(call, found, failure)
        self.awake(-1)
        if cancelled is not None and scope.cancel_called:
            raise cancelled

    async def _call_ended(self, call: AgentCall, found: Any, failure: Failure | None) -> None:
        command = call.command
        await self.record(EffectFinished(command.path, command.turn, command.attempt, command.key, found, failure))

    @staticmethod
    def _stretch(call: AgentCall, around: ContextVars, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
        """Run a coroutine until it has ended (True, and what it returned) or waits (False, and for what)."""
        began = time.perf_counter()
        try:
            return False, around.run(coroutine.send, None)
        except StopIteration as stop:
            return True, stop.value
        finally:
            call.blocked = time.perf_counter() - began

    def _cancel_call(self, path: Path, key: str) -> None:
        calls = self._calling.get(path, {})
        if key not in calls:
            return
        call = calls[key]
        if call is None:
            self._doomed_calls.add((path, key))
        else:
            call.cancel()
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

    def heard(self, path: Path, turn: int, text: str) -> None:
        """Let a piece of a model's reply be heard; the journal does not keep it."""
        if threading.get_ident() == self.thread:
            self.say(TextDelta(path, turn, text))
        else:
            anyio.from_thread.run_sync(self.say, TextDelta(path, turn, text))

    async def _warn(self, body: Body | AgentCall, cancelled: BaseException | None) -> None:
        """Say what was not in order about a body that has ended."""
        path = body.path
        shown = path_text(path)
        if body.cancelled and body.thread and cancelled is not None:
            await self._warned(path, "thread_abandoned", f"the thread of {shown!r} goes on; its result is dropped")
        elif body.cancelled and cancelled is None:
            await self._warned(path, "cancel_swallowed", f"{shown!r} was cancelled, and ended as if it had not been")
        if body.blocked > BLOCKED:
            text = f"{shown!r} kept the loop for {body.blocked:.3g} s at a stretch; await, or make it a sync function"
            await self._warned(path, "loop_blocked", text)

    async def _warned(self, path: Path, kind: Any, text: str) -> None:
        await self.record(Warned(path, kind, text))

    def _cancel(self, body: Body) -> None:
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
                    msg = f"a before= hook returns None or Skip(reason), not {answer!r}."
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

    def resource(self, path: Path, kind: type[Any]) -> Any:
        """Return the one resource of a class.

        Raises:
            UsageError: if the run has none of that class, or several.
        """
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


def _bound_of(error: Exception) -> tuple[str, float | None]:
    if not isinstance(error, BoundHit) or error.bound not in BOUNDS:
        return "failed", None
    try:
        return error.bound, None if error.limit is None else float(str(error.limit))
    except ValueError:  # raised by a node of its own accord, with what is no number
        return error.bound, None
