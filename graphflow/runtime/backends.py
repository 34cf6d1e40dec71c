"""What asyncio and trio do each in their own way.

Also an event and a cancel scope, which anyio has: but it finds out anew each time which of the two runs, and that takes
longer than to make them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, Protocol

import anyio


class Signal(Protocol):
    """What the events of all backends have in common."""

    def set(self) -> object:
        """Wake whoever waits."""
        ...

    def is_set(self) -> bool:
        """Tell whether it is set."""
        ...

    async def wait(self) -> object:
        """Wait until it is set."""
        ...


def in_trio() -> bool:
    """Tell whether trio runs in this thread; another thread may be importing it at this very moment."""
    trio = sys.modules.get("trio")  # a run on trio has imported it already
    if trio is None:
        return False
    asked = getattr(getattr(trio, "lowlevel", None), "in_trio_run", None)
    return asked is not None and bool(asked())


def in_a_loop() -> bool:
    """Tell whether an event loop, asyncio's or trio's, runs in this thread."""
    if in_trio():
        return True
    asyncio = sys.modules.get("asyncio")
    running: object = getattr(asyncio, "_get_running_loop", lambda: None)()  # the one that does not raise
    return running is not None


def new_signal() -> Signal:
    """Return an event of the backend that runs."""
    if in_trio():
        made: Signal = sys.modules["trio"].Event()
        return made
    import asyncio

    return asyncio.Event()


def new_scope() -> anyio.CancelScope:
    """Return a cancel scope of anyio's for the backend that runs."""
    trio = in_trio()
    kind = _scopes.get(trio)
    if kind is None:
        kind = _scopes[trio] = type(anyio.CancelScope())
    return kind()


_scopes: Final[dict[bool, type[anyio.CancelScope]]] = {}
"""The class of a cancel scope, for trio and for asyncio."""


def current_task() -> Any:
    """Return the present task where tasks can be cancelled one by one: on asyncio; else None."""
    if in_trio():
        return None
    import asyncio

    return asyncio.current_task()


def cancelled_classes() -> tuple[type[BaseException], ...]:
    """Return the classes of a cancellation, that of the backend and the one which code for asyncio raises."""
    import asyncio

    return (anyio.get_cancelled_exc_class(), asyncio.CancelledError)


def from_any_thread() -> Callable[..., Any]:
    """Return what has a function called in this loop as soon as it can be, from whatever thread."""
    if in_trio():
        soon: Callable[..., Any] = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon
        return soon
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe


def spawn(fn: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], object]) -> None:
    """Start a task that belongs to no other task, so that a run can be left from anywhere.

    Args:
        fn: what it does.
        then: called when it has ended, or never begun.
    """
    if in_trio():

        async def main() -> None:
            try:
                await fn()
            finally:
                then()

        sys.modules["trio"].lowlevel.spawn_system_task(main, context=copy_context())
        return
    import asyncio

    def done(task: asyncio.Task[None]) -> None:
        _kept.discard(task)
        then()

    task = asyncio.get_running_loop().create_task(fn())
    _kept.add(task)
    task.add_done_callback(done)


_kept: Final[set[object]] = set()
"""The tasks that run: a loop of asyncio keeps none of them alive."""
