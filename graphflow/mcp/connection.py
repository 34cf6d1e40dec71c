"""The connection to a tool server: made when it is needed, made again when it was lost, used by all at once.

Everything here happens in the loop of one `Backstage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import time
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

from graphflow.errors import ToolServerUnavailable
from graphflow.mcp.places import Address, LastWords, Place

if TYPE_CHECKING:
    import mcp.types
    from mcp import Client

IN_A_ROW: Final = 3
"""How often a server is started in a row that ends each time before it has answered a call."""

PAUSE: Final = 60.0
"""Seconds until it is started again after that."""

PAGES: Final = 100
"""How many pages of tools are asked for."""

FAREWELL: Final = 1.0
"""Seconds that a lost server gets to say how it ended."""

GARBAGE: Final = 80
"""How many characters of what is no message an error shows."""


class Life:
    """One connection, from its start to its end.

    Attributes:
        client: the client, once it has begun.
        last: what is known of the server when it is gone.
        begun: set when it can be used, or has ended before.
        over: whether it has ended.
        answered: whether a call was answered.
        error: why it ended, or None.
        task: the task that holds it; only that may leave what it has entered.
    """

    def __init__(self, place: Place) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

        def gone() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, too
                loop.call_soon_threadsafe(self._stop.set)

        self.client: Client | None = None
        self.last = LastWords(gone)
        self.begun = asyncio.Event()
        self.over = self.answered = self.counted = False
        self.error: BaseException | None = None
        self.task = loop.create_task(self._hold(place), context=Context())  # it outlives the call that began it

    async def _hold(self, place: Place) -> None:
        try:
            from mcp import Client
            from mcp.types import Implementation

            about = Implementation(name="graphflow", version=version_of_graphflow())
            streams = place.streams(self.last)
            async with Client(streams, cache=None, message_handler=self._heard, client_info=about) as client:
                self.client = client
                self.begun.set()
                await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - what a transport raises is why it ended
            self.error = _first(error)
        finally:
            self.over = True
            self.begun.set()

    async def _heard(self, message: object) -> None:
        """Remember what was no message; notifications are not for us."""
        if isinstance(message, Exception):
            given: Any = getattr(message, "errors", list[Any])()
            text = str(given[0].get("input", message)) if given else str(message)
            self.last.garbage = text if len(text) <= GARBAGE else f"{text[: GARBAGE - 1]}…"

    def stop(self) -> None:
        """End it soon."""
        if not self._stop.is_set() and not self.begun.is_set():
            self.task.cancel()  # once: a second one would break the end of its process off
        self._stop.set()

    async def ended(self, seconds: float) -> None:
        """Wait until it has ended and all is known of it, at most some seconds."""
        await asyncio.wait((self.task,), timeout=seconds)
        thread = self.last.thread
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # no new threads: the program ends
                await asyncio.to_thread(thread.join, FAREWELL / 2)


class Connection:
    """What all tools of a server share."""

    def __init__(self, name: str, place: Place, patience: float) -> None:
        """Connect nothing yet.

        Args:
            name: the server's name, for errors.
            place: where it is.
            patience: seconds in which a server must be ready.
        """
        version_of_graphflow()  # which reads a file, once
        self._name, self._place, self._patience = name, place, patience
        self._starting: asyncio.Task[Life] | None = None
        self._life: Life | None = None
        self._lives: set[Life] = set()
        self._failed, self._again_at = 0, 0.0
        self._closed = False

    async def tools(self) -> list[mcp.types.Tool]:
        """Ask the server what it offers.

        Raises:
            ToolServerUnavailable: if it cannot be asked.
        """
        from mcp import MCPError

        found: list[mcp.types.Tool] = []
        life = await self._alive()
        assert life.client is not None  # noqa: S101 - it is alive
        try:
            async with asyncio.timeout(self._patience):
                cursor: str | None = None
                for _ in range(PAGES):
                    page = await life.client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except MCPError as error:
            if self._is_lost(life, error):
                raise await self._lost(life, "ended while it was asked for its tools", error) from error
            raise ToolServerUnavailable(self._name, f"does not list its tools: {_told(error)}.") from error
        except TimeoutError as error:
            raise self._unavailable(life, f"did not list its tools within {self._patience:g} s") from error
        except ValueError as error:  # of pydantic
            raise ToolServerUnavailable(self._name, f"lists what are no tools: {_told(error)}.") from error
        return found

    async def call(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> mcp.types.CallToolResult:
        """Call a tool; who is cancelled here cancels the request at the server.

        Raises:
            ToolServerUnavailable: if the server cannot be reached, or is lost meanwhile.
            Exception: as the client raises, if the server refuses the call, or its answer breaks the protocol.
        """
        from mcp import MCPError

        life = await self._alive()
        assert life.client is not None  # noqa: S101 - it is alive
        try:
            given: Any = meta
            result = await life.client.call_tool(tool, arguments, meta=given)
        except MCPError as error:
            if self._is_lost(life, error):
                raise await self._lost(life, "was lost in the middle of this call", error) from error
            life.answered = True
            raise
        life.answered = True
        return result

    async def close(self) -> None:
        """End it, and wait for the end of its process."""
        self._closed = True
        for life in self._lives:
            life.stop()
        if self._lives:
            await asyncio.wait([life.task for life in self._lives])

    # --- its lives ---

    async def _alive(self) -> Life:
        """Return a connection that can be used; all who wait for one wait for the same."""
        if self._closed:
            raise ToolServerUnavailable(self._name, "has been closed.")
        if self._life is not None and not self._life.over:
            return self._life
        if self._starting is None or self._starting.done():
            if self._life is not None:
                self._count(self._life)
            self._check_row()
            self._starting = asyncio.create_task(self._begin())
            self._starting.add_done_callback(_heed)
        return await asyncio.shield(self._starting)  # who gives up does not give it up for the others

    async def _begin(self) -> Life:
        life = Life(self._place)
        self._lives.add(life)
        life.task.add_done_callback(lambda _: self._lives.discard(life))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await life.begun.wait()
        if not life.begun.is_set():
            self._count(life)
            life.stop()
            raise self._unavailable(life, f"was not ready within {self._patience:g} s of its start")
        if life.over:
            self._count(life)
            await life.ended(FAREWELL)
            where = "" if not isinstance(self._place, Address) else f" at {self._place.shown}"
            what = "could not be started" if self._place.starts else f"could not be reached{where}"
            raise self._unavailable(life, what, life.error)
        self._life = life
        return life

    def _is_lost(self, life: Life, error: Any) -> bool:
        from mcp.types import CONNECTION_CLOSED

        # A server that has forgotten its session says so with a code of its own, and no better sign.
        return life.over or error.code == CONNECTION_CLOSED or error.message == "Session terminated"

    async def _lost(self, life: Life, what: str, error: BaseException) -> ToolServerUnavailable:
        life.stop()
        await life.ended(FAREWELL)
        if self._closed:
            return ToolServerUnavailable(self._name, "has been closed.")
        if self._life is life:
            self._life = None
        self._count(life)
        return self._unavailable(life, what, life.error or error)

    def _unavailable(self, life: Life, what: str, error: BaseException | None = None) -> ToolServerUnavailable:
        known = str(life.last) or (_told(error) if error is not None else "")
        return ToolServerUnavailable(self._name, f"{what}{f' ({known})' if known else ''}.")

    def _count(self, life: Life) -> None:
        """Count the starts in a row that led to nothing."""
        if life.counted or not self._place.starts:
            return
        life.counted = True
        self._failed = 0 if life.answered else self._failed + 1
        if self._failed >= IN_A_ROW:
            self._again_at = time.monotonic() + PAUSE

    def _check_row(self) -> None:
        left = self._again_at - time.monotonic()
        if self._failed >= IN_A_ROW and left > 0:
            raise ToolServerUnavailable(
                self._name,
                f"has ended {self._failed} times in a row before it answered a call; it is started again in "
                f"{left:.0f} s at the earliest.",
            )


@functools.cache
def version_of_graphflow() -> str:
    """Return the version of the distribution, or "" where it is not installed."""
    try:
        return importlib.metadata.version("graphflow-agents")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _heed(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for any more, or the loop would write it into the terminal."""
    if not task.cancelled():
        task.exception()


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of groups: the others follow from it."""
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def _told(error: BaseException) -> str:
    """Say on one short line what an error is."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
