"""A server of graphs at work: over stdin and stdout, or over HTTP on this machine alone."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.to_thread

from graphflow.errors import UsageError

if TYPE_CHECKING:
    from mcp.server import Server

HOST: Final = "127.0.0.1"
"""Who can reach this machine's loopback may run the graphs: there is no other check."""


async def over_stdio(server: Server[Any]) -> None:
    """Serve over stdin and stdout until stdin ends; what the program prints meanwhile goes to stderr."""
    from mcp.server.stdio import stdio_server

    with _wires() as (given, taken):
        lines: Any = _Lines(given)
        async with stdio_server(lines, anyio.wrap_file(taken)) as (read, write):
            await server.run(read, write, server.create_initialization_options())


async def over_http(server: Server[Any], port: int, ready: Callable[[str], object]) -> None:
    """Serve over streamable HTTP on loopback.

    Args:
        server: what is served.
        port: where; 0 for one that is free.
        ready: is told the address.

    Raises:
        UsageError: if the port cannot be had.
    """
    import uvicorn

    try:
        listener = socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        msg = f"the port {port} of {HOST} cannot be had: {getattr(error, 'strerror', None) or error}."
        raise UsageError(msg) from error
    with listener:
        ready(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
        config = uvicorn.Config(
            server.streamable_http_app(host=HOST), log_level="error", timeout_graceful_shutdown=2, lifespan="on"
        )
        at_work = uvicorn.Server(config)
        over = False

        def still_wanted(_: logging.LogRecord) -> bool:
            return not over and not at_work.should_exit

        # What is cut off because somebody stops the server is no error, and some of it is told when the loop is closed:
        # so the filter stays.
        logging.getLogger("uvicorn.error").addFilter(still_wanted)
        try:
            await at_work.serve(sockets=[listener])
        finally:
            over = True


class _Lines:
    """The lines of a file, read in a thread that is left behind when nobody waits for them any more."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._file = file

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await anyio.to_thread.run_sync(self._file.readline, abandon_on_cancel=True)
        if not line:
            raise StopAsyncIteration
        return line


@contextlib.contextmanager
def _wires() -> Generator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Take stdin and stdout for the protocol alone: bodies, tools and their processes may print."""
    kept = [os.dup(0), os.dup(1)]
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(nothing, 1)
    os.close(nothing)
    # Not closed: a thread may still read.
    given = io.TextIOWrapper(os.fdopen(kept[0], "rb", closefd=False), encoding="utf-8", errors="replace")
    taken = io.TextIOWrapper(os.fdopen(kept[1], "wb", closefd=False), encoding="utf-8", newline="\n")
    try:
        yield given, taken
    finally:
        with contextlib.suppress(OSError, ValueError):
            taken.flush()
        for number, own in enumerate(kept):
            os.dup2(own, number)
