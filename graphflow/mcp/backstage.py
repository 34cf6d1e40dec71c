"""An event loop in a thread of its own, for what outlives the loops of runs: connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

import anyio

from graphflow.runtime.backends import from_any_thread

T = TypeVar("T")


class Backstage:
    """An event loop of asyncio in a daemon thread.

    Runs come and go, on asyncio and on trio, several at a time and each in a loop of its own; a connection is made
    once and serves them all. So it lives here, and whoever needs it waits for it from wherever they are.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._clear())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @staticmethod
    async def _clear() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something in the loop, from any thread; to cancel the future cancels it there.

        Where the thread has ended, or stayed behind when the process forked, the future is cancelled already.
        """
        if os.getpid() != self._process:
            work.close()
            return _cancelled()
        around = copy_context()  # a trace goes on there
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:  # and nothing there is to believe that it runs on trio
            around.run(sniffio.current_async_library_cvar.set, None)
        try:
            return around.run(asyncio.run_coroutine_threadsafe, work, self._loop)
        except RuntimeError:
            work.close()
            return _cancelled()

    def stop_soon(self) -> None:
        """Let the thread end; what it still does is cancelled."""
        if os.getpid() != self._process:
            return
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most some seconds."""
        if os.getpid() == self._process:
            self._thread.join(seconds)


def _cancelled() -> Future[Any]:
    refused: Future[Any] = Future()
    refused.cancel()
    return refused


async def across(future: Future[T]) -> T:
    """Wait, in whatever loop, for something that happens in another thread; who is cancelled here cancels it there.

    Raises:
        BaseException: what it raises.
    """
    soon = from_any_thread()
    ended = anyio.Event()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop that waited is gone
            soon(ended.set)

    future.add_done_callback(tell)
    try:
        await ended.wait()
    except BaseException:
        future.cancel()
        raise
    return future.result()
