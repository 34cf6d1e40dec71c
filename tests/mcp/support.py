"""What the tests of tool servers share: the desk as a process, and an agent that calls its tools."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from graphflow import END, START, Agent, Budget, Context, Graph, ModelReply, Result, Tool, ToolCall
from graphflow.mcp import McpServer
from graphflow.testing import ScriptedModel
from tests.support import ROOT

DESK: Final = Path(__file__).with_name("desk.py")


class Ask(Context):
    """A context that begins with a text."""

    text: str = ""


def desk(*habits: str, name: str = "desk", **options: Any) -> McpServer:
    """The desk, as a process that is started when it is needed."""
    return McpServer(name, command=[sys.executable, str(DESK), *habits], **options)


@contextlib.contextmanager
def desk_over_http(*habits: str) -> Generator[str]:
    """The desk as a process that serves over HTTP; gives its address."""
    command = [sys.executable, str(DESK), "--http", *habits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


def asking(*turns: list[ToolCall] | ToolCall | str | ModelReply, tools: tuple[Tool, ...]) -> Graph[Ask]:
    """A graph of one agent, whose model makes some calls."""
    agent = Agent("clerk", model=ScriptedModel(*turns), tools=tools, max_turns=20)
    return Graph(
        "asking", START >> agent >> END, context=Ask,
        budget=Budget(model_calls=20, tool_calls=20, retries=5, tokens=1_000_000),
    )  # fmt: skip


def told(result: Result[Any]) -> list[str]:
    """What the model was told of its calls, in order."""
    return [message.text for message in result.thread if message.role == "tool"]


def children() -> set[int]:
    """The processes that this one has started, and theirs."""
    shown = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    above = {int(pid): int(parent) for pid, parent in map(str.split, shown.splitlines())}
    found: set[int] = set()
    for pid in above:
        parent = above.get(pid)
        while parent and parent != os.getpid():
            parent = above.get(parent)
        if parent:
            found.add(pid)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text("utf-8").rpartition(")")[2].split()[0] == "Z"


def eventually(condition: Any, seconds: float = 15.0) -> bool:
    """Wait in a thread of no loop until something holds; tell whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
