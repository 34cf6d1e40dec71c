"""`McpServer`: a tool server as a source of tools for agents."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from graphflow.errors import ToolServerUnavailable, UsageError
from graphflow.mcp.backstage import Backstage, across
from graphflow.mcp.checking import check_of
from graphflow.mcp.connection import Connection
from graphflow.mcp.extra import require_mcp
from graphflow.mcp.offered import chosen, effect_of, names_of, said_of
from graphflow.mcp.places import Address, Launch, Place
from graphflow.mcp.results import text_of
from graphflow.model.addresses import check_address
from graphflow.model.telling import value_text
from graphflow.nodes.given import STEP, tool_of_schema
from graphflow.nodes.tools import Effect, Tool, ToolFailure, ToolStep

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as Offered

KEY: Final = "graphflow/idempotency-key"
"""Where in the `_meta` of a call its idempotency key stands."""

CLOSING: Final = 10.0
"""Seconds that a server gets to end; its process is killed before."""


class McpServer:
    """A server of the Model Context Protocol, as a source of tools for agents.

    It is connected when it is first needed, once for all runs and agents, and again when it was lost. The process of a
    `command` ends with `close()`, with the `with` block, or with this program, however that ends.

    Attributes:
        name: what errors call it; part of the fingerprint of a graph that uses its tools.

    Raises:
        UsageError: if it is neither one command nor one address.
        MissingExtra: if the extra `mcp` is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ) -> None:
        """Say where it is.

        Args:
            name: what it is called.
            command: a program that speaks the protocol on stdin and stdout, and its arguments.
            env: variables of its environment; of this program's it has only `PATH`, `HOME` and a few like them.
            cwd: the folder that it starts in.
            url: instead of a command, the address of a server for streamable HTTP.
            headers: what goes with each request to it, as a token.
            start_timeout: seconds in which it must be ready.
        """
        self.name = name
        where = f"McpServer({name!r})"
        _check_tables(where, name, env, headers)
        if (command is None) == (url is None):
            msg = f"{where}: give either command=[...], a program to start, or url=..., an address."
            raise UsageError(msg)
        if url is None:
            self._place: Place = _launch(where, command, env, cwd, headers)
        else:
            self._place = _address(where, url, headers, env, cwd)
        if not 0 < start_timeout < float("inf"):
            msg = (
                f"McpServer({name!r}, start_timeout={value_text(start_timeout)}): a finite number of seconds above 0 "
                "is needed."
            )
            raise UsageError(msg)
        require_mcp("a tool server")
        self._patience = start_timeout
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._closed = False

    def __repr__(self) -> str:
        """Show the name: the rest may hold secrets."""
        return f"<McpServer {self.name!r}>"

    # --- its tools ---

    def tools(
        self,
        *names: str,
        prefix: str = "",
        effect: Effect | None = None,
        approval: bool = False,
        timeout: float | None = 60.0,
        max_calls: int | None = None,
    ) -> tuple[Tool, ...]:
        """Return tools of the server for an agent's `tools=`. The server is asked what it has, and waited for.

        Args:
            names: which ones the agent may use, as the server calls them; `"*"` for all that it has now.
            prefix: what their names begin with for the model, where two servers have tools of the same name.
            effect: what a call can do. By default what the server says: "read" if it says read-only, "write" if it
                says that nothing is destroyed, else "irreversible", which needs a gate or approval.
            approval: whether a person approves each call.
            timeout: active seconds of one call, or None.
            max_calls: how many calls of each tool one visit of the agent may make, or None.

        Raises:
            UsageError: if a name is not among its tools, or a tool cannot be used.
            ToolServerUnavailable: if the server cannot be asked.
        """
        offered = self._offered()
        made = chosen(self.name, offered, names)
        known = names_of((one.name for one in made), prefix)
        return tuple(
            self._tool(
                one, known[one.name], effect=effect or effect_of(one), approval=approval, timeout=timeout,
                max_calls=max_calls,
            )
            for one in made
        )  # fmt: skip

    def _offered(self) -> list[Offered]:
        line = self._connected()
        future = line.backstage.submit(line.connection.tools())
        try:
            return future.result()
        except CancelledError:
            raise ToolServerUnavailable(self.name, "has been closed.") from None
        finally:
            future.cancel()  # if this thread was interrupted

    def _tool(self, offered: Offered, name: str, **options: Any) -> Tool:
        try:
            check = check_of(offered.input_schema)
        except (ValueError, RecursionError) as error:
            msg = f"the tool {offered.name!r} of the server {self.name!r} cannot be used: {error}."
            raise UsageError(msg) from error
        remote = _Remote(self.name, offered.name, self._call)
        return tool_of_schema(
            remote.call, name, said_of(offered), offered.input_schema, check,
            version=f"mcp {self.name}/{offered.name}", **options,
        )  # fmt: skip

    async def _call(self, tool: str, arguments: dict[str, Any], step: ToolStep | None) -> CallToolResult:
        meta = {} if step is None else {KEY: step.idempotency_key}
        line = self._connected()
        try:
            return await across(line.backstage.submit(line.connection.call(tool, arguments, meta)))
        except CancelledError:
            raise ToolServerUnavailable(self.name, "has been closed.") from None

    # --- its life ---

    def __enter__(self) -> Self:
        """Use it in the block, and close it in the end."""
        with self._lock:
            self._closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the connection, and wait until the process of the server is gone; calls at work fail."""
        with self._lock:
            line, self._line, self._closed = self._line, None, True
        if line is not None:
            line.close()

    def _connected(self) -> Line:
        with self._lock:
            if self._closed:
                raise ToolServerUnavailable(self.name, "has been closed.")
            if self._line is None:
                self._line = line = Line(self.name, self._place, self._patience)
                weakref.finalize(self, line.let_go).atexit = False
            return self._line


class Line:
    """The thread of a server, and the connection in it."""

    def __init__(self, name: str, place: Place, patience: float) -> None:
        """Start the thread, and connect nothing yet."""
        self.backstage = Backstage(f"graphflow-mcp-{name}")
        self.connection = Connection(name, place, patience)
        _open.add(self)
        if len(_open) == 1:
            atexit.unregister(_close_all)
            atexit.register(_close_all)

    def close(self) -> None:
        """End both."""
        _open.discard(self)
        with contextlib.suppress(Exception):  # it is gone then as well
            self.backstage.submit(self.connection.close()).result(CLOSING)
        self.backstage.stop_soon()
        self.backstage.join(1.0)

    def let_go(self) -> None:
        """End both soon: nobody is left who would wait for it."""
        if self not in _open:
            return
        future = self.backstage.submit(self.connection.close())
        future.add_done_callback(lambda _: self._gone())

    def _gone(self) -> None:
        _open.discard(self)
        self.backstage.stop_soon()


_open: set[Line] = set()
"""What has to be closed before this program ends."""


def _close_all() -> None:
    for line in tuple(_open):
        line.close()


class _Remote:
    """One tool of a server, as a function."""

    def __init__(
        self, server: str, name: str, ask: Callable[[str, dict[str, Any], ToolStep | None], Awaitable[CallToolResult]]
    ) -> None:
        self._server, self._name, self._ask = server, name, ask

    async def call(self, /, **arguments: Any) -> str | ToolFailure:
        """Call it; what it says of a failure is told as such."""
        step = arguments.pop(STEP, None)
        try:
            result = await self._ask(self._name, arguments, step)
        except ToolServerUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the protocol's own errors, and answers that break it
            return ToolFailure(f"the tool server {self._server!r} did not do it: {' '.join(str(error).split())}")
        said = text_of(result)
        return ToolFailure(said or "it failed, and did not say why") if result.is_error else said


def _check_tables(where: str, name: object, env: Any, headers: Any) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        msg = f"{where}: a name on one line is needed."
        raise UsageError(msg)
    for what, table in (("env", env), ("headers", headers)):
        if table is None:
            continue
        pairs = cast("Mapping[Any, Any]", table).items() if isinstance(table, Mapping) else [(None, None)]
        if not all(isinstance(part, str) for pair in pairs for part in pair):
            msg = f"{where}: {what}= is a table of texts."
            raise UsageError(msg)


def _launch(where: str, command: Any, env: Any, cwd: str | Path | None, headers: object) -> Launch:
    words: tuple[Any, ...] = () if isinstance(command, str) else tuple(command)
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        msg = f"{where}: command= is a list, the program and its arguments, as ['python', 'server.py']."
        raise UsageError(msg)
    if headers is not None:
        msg = f"{where}: headers= are for a url."
        raise UsageError(msg)
    return Launch(words, dict(env or {}), None if cwd is None else Path(cwd))


def _address(where: str, url: object, headers: Any, env: object, cwd: object) -> Address:
    check_address(f"{where}: url=", url)
    if env is not None or cwd is not None:
        msg = f"{where}: env= and cwd= are for a command."
        raise UsageError(msg)
    return Address(str(url), dict(headers or {}))
