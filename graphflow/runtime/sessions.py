"""Sessions: the tasks in which a run is at work, from a fact until the run has ended or waits for people.

Each scope of the walk has a task group of its own, hosted by a task in the group around it. Inside a group, workers
take bodies one after the other: a body that never waits costs no task, and when one does wait, another worker takes
over.

The task of a session is the first worker. The host of the outermost group is a task of its own, made when something
waits for the first time: a session in which nothing does needs no group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from graphflow.errors import StrayCancellation
from graphflow.events import CancelRequested, Fact
from graphflow.runtime.agentcall import AgentCall
from graphflow.runtime.backends import Signal, cancelled_classes, current_task, new_scope, new_signal, spawn
from graphflow.runtime.commands import AskHook, StartBody
from graphflow.runtime.recorder import TAKING_UP, Setup
from graphflow.runtime.timekeeper import Timekeeper

BURST = 32
"""How many workers are started at once at most."""

Work = StartBody | AskHook | AgentCall


class Group:
    """The task group of a scope, while anything runs in it."""

    __slots__ = ("burst", "children", "closed", "hosted", "number", "parent", "ready", "takers", "tasks")

    def __init__(self, number: int, parent: Group | None) -> None:
        """Begin without tasks: it is hosted when there is something to run."""
        self.number, self.parent = number, parent
        self.ready: deque[Work] = deque()
        self.takers = 0  # workers that will look at `ready` before they end
        self.burst = 1  # how many to start at once: where bodies wait, a turn of the loop for each would be dear
        self.tasks: TaskGroup | None = None
        self.hosted = False
        self.closed: Signal | None = None  # set when the host may let go
        self.children: list[Group] = []  # to be hosted as soon as the tasks are there


class Sessions(Timekeeper):
    """The part of a runner that hosts its tasks."""

    __slots__ = ("_asking", "_first", "_groups", "_host_gone", "_host_task", "_on", "_over")

    def __init__(self, setup: Setup) -> None:
        """Begin without a session."""
        super().__init__(setup)
        self._groups: dict[int, Group] = {0: Group(0, None)}
        self._asking: set[anyio.CancelScope] = set()  # hooks under way
        self._on = False  # whether there is a session
        self._over: Signal | None = None  # set when the session has nothing left to do; made when the host waits for it
        self._host_task: Any = None  # asyncio's
        self._host_gone: Signal | None = None  # set when the host has ended that the first worker called
        self._first: anyio.CancelScope | None = None  # around what the first worker does

    # --- sessions ---

    async def session(self, first: Sequence[Fact]) -> None:
        """Run from some facts until the run has ended or waits for people; no task is left afterwards."""
        facts: Sequence[Fact] = (*first, *self._early)
        while facts and (not self._ended or isinstance(facts[0], TAKING_UP)):
            self._early = []
            await self._session(facts)
            facts = self._early

    async def _session(self, facts: Sequence[Fact]) -> None:
        self._go_on()
        self._on, self._stopping = True, False
        if self.store is not None:
            self._slow, self._slowing = not self.store.writer.instant, False
        try:
            if self._slow:
                await self._be_host(facts)
            else:
                await self._begin(facts)
        finally:
            self._groups[0].takers = 0
            self._first = self._host_gone = self._host_task = None
            self._resting_since = self._clock.now()
            self._on = False
            self._tell()

    async def _begin(self, facts: Sequence[Fact]) -> None:
        """Be the first worker of a session; whatever waits is hosted by another task, called when it is needed."""
        root = self._groups[0]
        root.takers = 1
        try:
            for fact in facts:
                self._stopping = self.crash is not None  # one fact may end the run, and the next take it up again
                self.record_now(fact)
            if self.fold.ended is not None:
                self._finish()
            await self._work(root, first=True)
        finally:  # also when this task is cancelled, as when its loop ends
            if not self._stopping:
                self._call_host()
            if self._host_gone is not None:
                await self._left_by_host(self._host_gone)

    async def _left_by_host(self, gone: Signal) -> None:
        """Wait for the end of the host, which sees to the end of the run if the loop ends, or do so in its place."""
        try:
            await gone.wait()
        except cancelled_classes():
            with anyio.CancelScope(shield=True):
                await gone.wait()
            raise
        finally:
            if not self._stopping:  # it never began
                with anyio.CancelScope(shield=True):
                    await self._drop_ready()

    def _call_host(self) -> None:
        """See that the session has a host, before anything waits."""
        root = self._groups[0]
        if not root.hosted:
            root.hosted = True
            self._host_gone = gone = new_signal()
            spawn(lambda: self._host_session(gone), lambda: self._host_left(gone))

    def _host_left(self, gone: Signal) -> None:
        """Hear that the host's task is over: if that never began, the loop ends, and nobody else will say so."""
        if not gone.is_set():
            self.record_soon(CancelRequested("its host"))
            gone.set()

    async def _slow_down(self) -> None:
        """Wait for each record from now on: the disk has become slow. What waits needs a host."""
        self._call_host()
        while self._groups[0].tasks is None and not self._stopping:
            await anyio.lowlevel.checkpoint()
        self._slow, self._slowing = True, False

    async def _host_session(self, gone: Signal) -> None:
        try:
            await self._be_host(())
        except cancelled_classes():
            raise
        except BaseException as error:  # noqa: BLE001 - it ends the run, and is raised there
            self._crashed(error)
        finally:
            gone.set()

    async def _be_host(self, facts: Sequence[Fact]) -> None:
        """Keep the outermost group open until the session has nothing left to do.

        No body runs in this task: so a cancellation of it, as when a loop ends, is never a body's own.
        """
        root = self._groups[0]
        self._host_task = current_task()
        try:
            async with anyio.create_task_group() as tasks:
                root.tasks, root.hosted = tasks, True
                for fact in facts:
                    self._stopping = self.crash is not None  # one fact may end the run, and the next take it up again
                    await self.record(fact)
                if self._stopping or self.fold.ended is not None:
                    self._finish()
                if self._timers and not self._stopping:
                    self._need_timer_task()  # those that were set before, or that the last session left
                self._take_up(root, tasks)
                if root.ready and not root.takers:
                    self._need_worker(root)
                try:
                    await self._until_over()
                except BaseException as error:  # whoever runs this session wants it to stop
                    await self._stop("its host", error)
                    raise
        finally:
            root.tasks, root.hosted = None, False
            self._over = None

    def _take_up(self, group: Group, tasks: TaskGroup) -> None:
        """Host the groups that had to wait for this one's tasks."""
        for child in group.children:
            tasks.start_soon(self._host, child)
        group.children.clear()

    async def _until_over(self) -> None:
        """Wait until the session has nothing left to do."""
        if not self._stopping:
            if self._over is None:
                self._over = new_signal()
            await self._over.wait()

    async def _stop(self, by: str, error: BaseException) -> None:
        """Cancel the run and wait for its end, whatever else is being cancelled."""
        with anyio.CancelScope(shield=True):
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                self._crashed(error)
            elif not self._stopping:
                await self.record(CancelRequested(by))
                await self._drop_ready()
                await self._until_over()

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
        return self._on and (not self._slow or self._groups[0].tasks is not None)

    def _tasks(self) -> TaskGroup | None:
        """Return the task group of the session, while there is one."""
        return self._groups[0].tasks

    # --- groups ---

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
        group.closed = new_signal()
        try:
            async with anyio.create_task_group() as tasks:
                group.tasks = tasks
                self._take_up(group, tasks)
                if group.ready and not group.takers:
                    group.takers = 1
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
                with new_scope() as scope:
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
        """Take until nothing is ready, or until this worker's scope has been used up (runner)."""
        raise NotImplementedError

    async def _drop_ready(self) -> None:
        """Drop what no worker has taken (runner)."""
        raise NotImplementedError

    def _hand_over(self, group: Group) -> None:
        """This worker is about to wait: let another take what is ready."""
        self._call_host()
        group.takers -= 1
        if group.ready and not group.takers:
            self._need_worker(group)
            for _ in range(min(group.burst, len(group.ready)) - group.takers):
                self._need_worker(group)
            group.burst = min(2 * group.burst, BURST)

    def _is_hosts(self, error: BaseException) -> bool:
        """Tell whether a cancellation is that of the session, such as when a loop ends, and not a body's own.

        Whoever ends a loop cancels all its tasks, and the host's is one in which no body runs.
        """
        *_, asyncios = cancelled_classes()
        if not isinstance(error, asyncios):
            return True  # trio's own: no scope of ours was cancelled
        return self._host_task is not None and bool(self._host_task.cancelling())
