"""The runner: it carries out what the fold commands, and tells the fold what happened.

Each scope of the walk has a task group of its own, hosted by a task in the group around it. Inside a group, workers
take bodies one after the other: a body that never waits costs no task, and when one does wait, another worker takes
over. Bodies return facts and never raise into a group, so that no ExceptionGroup arises.
"""

from __future__ import annotations

import heapq
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from contextvars import Context as ContextVars
from contextvars import copy_context
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from graphflow.errors import BoundHit, InternalError, UsageError
from graphflow.events import (
    AnswerGiven,
    Before,
    CancelRequested,
    Clock,
    Event,
    Fact,
    HookAnswered,
    Journal,
    Listener,
    ListenerFailed,
    NodeReturned,
    Record,
    TimerFired,
    Warned,
)
from graphflow.graphs.graph import Graph
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import Skip
from graphflow.model.state import Left
from graphflow.runtime.advance import Fold
from graphflow.runtime.body import BLOCKED, Body, cancelled_classes, current_task, resumed
from graphflow.runtime.commands import (
    AskHook,
    CancelBody,
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

TURNS = 64
"""How many bodies that never wait run before the loop gets a turn."""

QUIET = 8
"""How many turns of the loop in which nothing happens let a clock jump that jumps."""

SWALLOWED = 5.0
"""Active seconds after which a cancelled body that goes on is reported."""


class Group:
    """The task group of a scope, while anything runs in it."""

    __slots__ = ("children", "closed", "hosted", "number", "parent", "ready", "takers", "tasks")

    def __init__(self, number: int, parent: Group | None) -> None:
        """Begin without tasks: it is hosted when there is something to run."""
        self.number, self.parent = number, parent
        self.ready: deque[StartBody | AskHook] = deque()
        self.takers = 0  # workers that will look at `ready` before they end
        self.tasks: TaskGroup | None = None
        self.hosted = False
        self.closed: anyio.Event | None = None  # set when the host may let go
        self.children: list[Group] = []  # to be hosted as soon as the tasks are there


class Runner:
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
        """
        self.fold = Fold(graph)
        self.run_id = run_id
        self.resources = tuple(resources)
        self.thread = threading.get_ident()
        self.errors: dict[Path, BaseException] = {}
        self.crash: BaseException | None = None
        self.records: deque[Record | Event] | None = deque() if keep else None
        self.seq = 0
        self._clock, self._journal, self._before = clock, journal, before
        self._listeners = dict(enumerate(listeners))
        self._context = copy_context()
        self._groups: dict[int, Group] = {0: Group(0, None)}
        self._bodies: dict[Path, Body] = {}
        self._timers: list[tuple[float, bool, int]] = []  # in active seconds: a wait for people moves them all
        self._dropped: set[int] = set()
        self._doomed: set[Path] = set()  # bodies that were cancelled before a worker took them
        self._swallowing: dict[int, Body] = {}  # local timers, with negative numbers
        self._timing: anyio.CancelScope | None = None
        self._timer_task = False
        self._local_timer = 0
        self._began = 0.0
        self._rested = 0.0
        self._resting_since: float | None = None
        self._awake = 0
        self._lock = anyio.Lock()
        self._soon: deque[Fact] = deque()  # to be recorded as soon as the record under way is done
        self._early: list[Fact] = []  # what people want of a session that has not begun
        self._recording = False
        self._asking: set[anyio.CancelScope] = set()  # hooks under way
        self._news: list[anyio.Event] = []
        self._over: anyio.Event | None = None  # set when the session has nothing left to do
        self._stopping = False
        self._host_task: Any = None  # asyncio's

    # --- sessions ---

    async def session(self, first: Fact) -> None:
        """Run from a fact until the run has ended or waits for people; no task is left afterwards."""
        facts = [first, *self._early]
        while facts and not self._ended:
            self._early = []
            await self._session(facts)
            facts = self._early

    @property
    def _ended(self) -> bool:
        """Whether nothing more can be recorded."""
        ended = self.fold.ended
        return self.crash is not None or (ended is not None and ended.status != "waiting")

    async def _session(self, facts: Sequence[Fact]) -> None:
        root = self._groups[0]
        self._host_task = current_task()
        self._over = over = anyio.Event()
        self._stopping = False
        if self._resting_since is None:
            self._began = self._clock.now()
        else:
            self._rested += self._clock.now() - self._resting_since
            self._resting_since = None
        try:
            async with anyio.create_task_group() as tasks:
                root.tasks, root.hosted = tasks, True
                for fact in facts:
                    await self.record(fact)
                if self.fold.ended is not None:
                    self._finish()
                if self._timers and not over.is_set():
                    self._need_timer_task()  # those that the last session left
                try:
                    await over.wait()
                except BaseException as error:  # whoever runs this session wants it to stop
                    await self._stop("its host", error)
                    raise
        finally:
            root.tasks, root.hosted, root.takers = None, False, 0
            self._resting_since = self._clock.now()
            self._over = None
            self._tell()

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
            self.crash = error
        self._finish()
        root = self._groups[0]
        if root.tasks is not None:
            root.tasks.cancel_scope.cancel()

    # --- facts ---

    async def record(self, fact: Fact) -> None:
        """Advance the fold, store the record, then carry out the commands."""
        if self._journal is None:
            self.record_now(fact)
            return
        with anyio.CancelScope(shield=True):  # what the fold has decided is stored and carried out, come what may
            self._soon.append(fact)  # before the lock is waited for, so that facts keep their order
            async with self._lock:
                await self._store(self._journal)

    async def _store(self, journal: Journal) -> None:
        """Advance the fold by what is to be recorded, in order."""
        while self._soon:
            made = self._advance(self._soon.popleft())
            if made is not None:
                entry, commands = made
                try:
                    await journal.append(self.run_id, entry)
                except Exception as error:  # noqa: BLE001 - whatever the store raises ends the run, and is raised
                    self._crashed(error)
                    return
                self._publish(entry)
                self._carry_out(commands)

    def record_now(self, fact: Fact) -> None:
        """Do what `record` does when there is no journal to wait for."""
        if self._recording:
            self._soon.append(fact)  # a listener's doing: its turn comes when this record is done
            return
        made = self._advance(fact)
        if made is not None:
            entry, commands = made
            if self.records is not None or self._listeners:
                self._recording = True
                self._publish(entry)
                self._recording = False
            if commands:
                self._carry_out(commands)
        if self._soon:
            self.record_now(self._soon.popleft())

    def record_soon(self, fact: Fact) -> None:
        """Record from where nothing can be awaited."""
        tasks = self._groups[0].tasks
        if tasks is None or self._stopping:
            self._put_off(fact)
        elif self._journal is None:
            self.record_now(fact)
        else:
            self._soon.append(fact)
            self._awake += 1
            tasks.start_soon(self._flush, self._journal)

    async def _flush(self, journal: Journal) -> None:
        """Record what was put off, unless somebody else has done so meanwhile."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._store(journal)
        self.awake(-1)

    def _put_off(self, fact: Fact) -> None:
        """Keep what people want for the next session; nothing else is recorded between sessions."""
        if isinstance(fact, AnswerGiven | CancelRequested):
            self._early.append(fact)

    def _advance(self, fact: Fact) -> tuple[Record, list[Command]] | None:
        if self._ended:
            return None
        if self._stopping:
            self._put_off(fact)
            return None
        at = self._active()
        try:
            decisions, commands = self.fold.advance(fact, at)
        except Exception as error:  # noqa: BLE001 - a bug of ours ends the run, and is raised
            self._crashed(error if isinstance(error, InternalError) else _internal(error))
            return None
        entry = Record(self.seq, at, fact, tuple(decisions))
        self.seq += 1 + len(decisions)
        return entry, commands

    def _publish(self, entry: Record) -> None:
        if self.records is not None:
            self.records.append(entry)
            self._tell()
        for number in tuple(self._listeners):
            for event in entry.events(self.run_id):
                if not self._heard(number, event):
                    break

    def _heard(self, number: int, event: Event) -> bool:
        """Tell a listener something; one that raises hears nothing more."""
        listener = self._listeners.get(number)
        if listener is None:
            return False
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a listener cannot break a run
            del self._listeners[number]
            self._listener_failed(listener, error, event.at)
            return False
        except (KeyboardInterrupt, SystemExit) as error:
            self._crashed(error)
            return False
        return True

    def _listener_failed(self, listener: Listener, error: Exception, at: float) -> None:
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        event = Event(self.run_id, self.seq, at, ListenerFailed(name, f"{type(error).__name__}: {error}"))
        if self.records is not None:
            self.records.append(event)
            self._tell()
        for other in tuple(self._listeners):
            self._heard(other, event)

    def _tell(self) -> None:
        news, self._news = self._news, []
        for event in news:
            event.set()

    def news(self) -> anyio.Event:
        """Return an event that is set when there are new records, or the session ends."""
        event = anyio.Event()
        self._news.append(event)
        return event

    # --- commands ---

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            kind = type(command)
            if kind is StartBody or kind is AskHook:
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
                if body is None:
                    self._doomed.add(command.path)
                else:
                    self._cancel(body)
            case SetTimer():
                self._set_timer(command)
            case DropTimer():
                self._dropped.add(command.timer)
            case EndRun():
                self._finish()
            case _:
                msg = f"{command!r} is no command"
                raise InternalError(msg)

    def _push(self, group: Group, command: StartBody | AskHook) -> None:
        self._awake += 1
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
                for child in group.children:
                    tasks.start_soon(self._host, child)
                group.children.clear()
                group.takers += 1
                await self._work(group)
                if group.number in self._groups and not self._stopping:
                    await group.closed.wait()
        finally:
            group.tasks, group.hosted, group.closed, group.takers = None, False, None, 0

    # --- workers ---

    async def _work(self, group: Group) -> None:
        """Take what is ready, one after the other, until nothing is; the caller has counted this taker."""
        done = False
        while not done:
            with anyio.CancelScope() as scope:
                done = await self._take(group, scope)

    async def _take(self, group: Group, scope: anyio.CancelScope) -> bool:
        """Take until nothing is ready (True), or until this worker's scope has been used up (False)."""
        ready = group.ready
        turns = 0
        while ready:
            command = ready.popleft()
            if type(command) is AskHook:
                await self._ask(group, command)
            else:
                await self._body(group, command, scope)  # type: ignore[arg-type]  # told apart by class
                if scope.cancel_called:
                    return False
            turns += 1
            if turns % TURNS == 0:
                await anyio.lowlevel.checkpoint()
        group.takers -= 1
        return True

    def _hand_over(self, group: Group) -> None:
        """This worker is about to wait: let another take what is ready."""
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
        body = Body(self, command)
        body.scope = scope
        self._bodies[path] = body
        outcome: Any = None
        failure = None
        cancelled: BaseException | None = None
        waited = False
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
                outcome = await self._in_thread(body, command)
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
            coroutine = _awaited(coroutine)
        began = time.perf_counter()
        try:
            return False, around.run(coroutine.send, None), around, coroutine
        except StopIteration as stop:
            return True, stop.value, around, coroutine
        finally:
            body.blocked = time.perf_counter() - began

    async def _stopped(self, body: Body, error: BaseException) -> BaseException | None:
        """Return the cancellation of a body; None when what it raised ends the run instead."""
        if not isinstance(error, cancelled_classes()):
            self._bodies.pop(body.path, None)
            self._crashed(error)
            return None
        if self.crash is not None:
            self._bodies.pop(body.path, None)
            raise error
        if not body.cancelled and self._is_hosts(error):
            await self.record(CancelRequested("its host"))
        return error

    def _is_hosts(self, error: BaseException) -> bool:
        """Tell whether a cancellation is that of the task that runs this session, such as when a loop ends."""
        if self._host_task is None:
            return isinstance(error, anyio.get_cancelled_exc_class())
        return bool(self._host_task.cancelling())

    async def _in_thread(self, body: Body, command: StartBody) -> Any:
        node = command.node
        body.thread = True
        around = self._context.copy()
        args = (command.state, body) if node.wants_step else (command.state,)
        return await anyio.to_thread.run_sync(lambda: around.run(node.fn, *args), abandon_on_cancel=True)

    async def _warn(self, body: Body, cancelled: BaseException | None) -> None:
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
        self._local_timer -= 1
        timer = self._local_timer
        self._swallowing[timer] = body
        heapq.heappush(self._timers, (self._active() + SWALLOWED, True, timer))
        self._need_timer_task()

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
            except (KeyboardInterrupt, SystemExit) as error:
                self._crashed(error)
            finally:
                self._asking.discard(scope)
        group.takers += 1
        if not scope.cancelled_caught:
            await self.record(HookAnswered(command.path, skip, failure))
        self.awake(-1)

    # --- time ---

    def awake(self, change: int) -> None:
        """Count the tasks of the run that do not sleep on the clock."""
        self._awake += change
        if not self._awake and self._timers:
            self._asleep()

    def _asleep(self) -> None:
        if self._clock.jumps and self._timing is not None:
            self._timing.cancel()

    def _active(self) -> float:
        """Return the active seconds since the run began."""
        return self._clock.now() - self._began - self._rested

    def _set_timer(self, command: SetTimer) -> None:
        heapq.heappush(self._timers, (command.at, command.limit, command.timer))
        self._need_timer_task()

    def _need_timer_task(self) -> None:
        tasks = self._groups[0].tasks
        if not self._timer_task and tasks is not None:
            self._timer_task = True
            tasks.start_soon(self._tick)
        elif self._timing is not None:
            self._timing.cancel()

    async def _tick(self) -> None:
        """Report timers as they come due; ends when there are none."""
        try:
            while self._timers and not self._stopping:
                at, limit, timer = self._timers[0]
                deadline = at + self._began + self._rested
                if timer in self._dropped:
                    self._dropped.discard(timer)
                    heapq.heappop(self._timers)
                    continue
                if not self._awake:
                    if self._clock.jumps and not await self._quiet():
                        continue
                    self._clock.all_asleep(deadline)
                if self._clock.now() < deadline:
                    with anyio.CancelScope() as scope:
                        self._timing = scope
                        await self._clock.sleep_until(deadline)
                    self._timing = None
                    continue
                if limit and self._clock.jumps and not await self._quiet(asleep=False):
                    continue
                heapq.heappop(self._timers)
                await self._due(timer)
        finally:
            self._timer_task = False
            self._timing = None

    async def _quiet(self, *, asleep: bool = True) -> bool:
        """Tell whether nothing more comes of itself, before a clock that jumps does so, or before a limit is reached.

        A body of several tasks, one of which sleeps, may have others that go on: each gets its turns here.
        """
        for _ in range(QUIET):
            seen = self.seq, self._timers[0]
            await anyio.lowlevel.checkpoint()
            if (asleep and self._awake) or self._stopping or not self._timers or (self.seq, self._timers[0]) != seen:
                return False
        return True

    async def _due(self, timer: int) -> None:
        body = self._swallowing.pop(timer, None)
        if timer >= 0:
            await self.record(TimerFired(timer))
        elif body is not None and self._bodies.get(body.path) is body:
            text = f"{path_text(body.path)!r} was cancelled {SWALLOWED:g} s ago and goes on"
            await self._warned(body.path, "cancel_swallowed", text)

    def left(self, path: Path) -> Left:
        """Return what remains for a visit now."""
        visit = self.fold.visits[path]
        return left_now(visit.token.frame.meter, visit.token.frame, visit.token.counters)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _bound_of(error: Exception) -> tuple[str, float | None]:
    if isinstance(error, BoundHit):
        limit = error.limit
        return error.bound, None if limit is None else float(str(limit))
    return "failed", None


def _internal(error: Exception) -> InternalError:
    made = InternalError(f"the fold raised {type(error).__name__}: {error}")
    made.__cause__ = error
    return made
