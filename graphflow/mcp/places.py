"""Where a tool server is: a command that is started, or an address. Each gives the streams of the protocol."""

from __future__ import annotations

import collections
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from graphflow.mcp import guard
from graphflow.model.addresses import shown_address

LINES: Final = 20
"""How many of the last lines of a server's stderr are kept."""

SAID: Final = 500
"""How many characters of them an error shows."""


class Place(Protocol):
    """Where a server is."""

    @property
    def starts(self) -> bool:
        """Whether a process is started for each connection."""
        ...

    def streams(self, last: LastWords) -> Any:
        """Return the context manager of a connection's two streams."""
        ...


class LastWords:
    """What is known of a server that is gone.

    Attributes:
        ended: how its process ended, "" while it runs or where there is none.
        garbage: the last that it wrote and that was no message.
    """

    def __init__(self, then: Callable[[], object]) -> None:
        """Know nothing; `then` is called, in a thread, once its process has ended."""
        self._then = then
        self.ended = ""
        self.garbage = ""
        self.thread: threading.Thread | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=LINES)

    def listen(self, number: int) -> None:
        """Read the stderr of a server, in a thread, until it ends."""
        self.thread = threading.Thread(target=self._listen, args=(number,), name="graphflow-mcp-stderr", daemon=True)
        self.thread.start()

    def _listen(self, number: int) -> None:
        with os.fdopen(number, "rb") as file:
            for line in iter(lambda: file.readline(2_000), b""):
                text = line.decode("utf-8", "replace").rstrip()
                if text.startswith(guard.MARK):
                    self.ended = text.removeprefix(guard.MARK)
                    self._then()
                elif text:
                    self._lines.append(text)

    @property
    def said(self) -> str:
        """The last of what it said on stderr, on one line."""
        text = " / ".join(line.strip() for line in tuple(self._lines))
        return text if len(text) <= SAID else f"…{text[-SAID:]}"

    def __str__(self) -> str:
        """Say all that is known."""
        parts = [self.ended] if self.ended else []
        if self.garbage:
            parts.append(f"it wrote what is no message on stdout: {self.garbage!r}")
        if self.said:
            parts.append(f"the last on its stderr: {self.said!r}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Launch:
    """A command whose stdin and stdout speak the protocol.

    Attributes:
        command: the program and its arguments.
        env: variables of its environment, beside the few that every program needs.
        cwd: the folder that it starts in.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None
    starts: bool = True

    @asynccontextmanager
    async def streams(self, last: LastWords) -> AsyncGenerator[Any]:
        """Start the command, and stop it in the end."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        command = list(self.command)
        if sys.executable:  # a program that Python is embedded in may have none
            command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(self.env), cwd=self.cwd)
        read, write = os.pipe()
        last.listen(read)
        with os.fdopen(write, "w", encoding="utf-8") as errors:
            async with stdio_client(parameters, errlog=errors) as streams:
                errors.close()  # the server has its own: so the end of it is seen here
                yield streams


@dataclass(frozen=True, slots=True)
class Address:
    """A server that is reached by streamable HTTP.

    Attributes:
        url: where it is.
        headers: what goes with each request, as a token.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    starts: bool = False

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        return shown_address(self.url)

    @asynccontextmanager
    async def streams(self, last: LastWords) -> AsyncGenerator[Any]:  # noqa: ARG002 - nobody hears its stderr
        """Connect."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        limits = httpx2.Timeout(30.0, read=None)  # how long an answer may take is the tool's `timeout`
        async with (
            httpx2.AsyncClient(headers=dict(self.headers), timeout=limits) as client,
            streamable_http_client(self.url, http_client=client) as streams,
        ):
            yield streams
