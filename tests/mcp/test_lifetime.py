"""The process of a server never outlives the program that wanted it, however that ends."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.mcp.support import DESK, children, desk, eventually, gone
from tests.support import ROOT

PROGRAM = f"""
import os, sys, time
from graphflow.mcp import McpServer
server = McpServer("desk", command=[sys.executable, {str(DESK)!r}, *sys.argv[2:]])
print(server.tools("echo")[0].name, flush=True)
if sys.argv[1] == "wait":
    time.sleep(60)
"""


def started(before: set[int]) -> set[int]:
    """The processes of a desk that has just been asked for its tools: the guard and the server."""
    return children() - before


@pytest.mark.parametrize("habits", [(), ("deaf",)])
def test_closing_ends_the_process(habits: tuple[str, ...]) -> None:
    """Also that of a server which hears neither that its input has ended nor that it is asked to stop."""
    before = children()
    server = desk(*habits)
    server.tools("echo")
    at_work = started(before)
    server.close()

    assert at_work
    assert eventually(lambda: all(map(gone, at_work)))


def test_a_server_that_nobody_holds_any_more_ends() -> None:
    """Who lets go of it without closing it leaves nothing behind, and does not wait."""
    before, threads = children(), threading.active_count()
    server = desk()
    tools = server.tools("echo")
    at_work = started(before)
    begun = time.monotonic()
    del server, tools
    gc.collect()
    seconds = time.monotonic() - begun

    assert seconds < 1
    assert eventually(lambda: all(map(gone, at_work)))
    assert eventually(lambda: threading.active_count() <= threads)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["end"], None),
        (["end", "deaf"], None),
        (["wait"], signal.SIGTERM),
        (["wait"], signal.SIGKILL),
        (["wait", "deaf"], signal.SIGKILL),
        (["wait", "deaf"], signal.SIGINT),
    ],
)
def test_no_process_outlives_the_program(words: list[str], number: signal.Signals | None) -> None:
    """It ends by itself, by Ctrl-C, by a signal, or is killed: the server is gone a little later."""
    before = children()
    command = [sys.executable, "-c", PROGRAM, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        said = program.stdout.readline()
        at_work = started(before) - {program.pid} if number is not None else set[int]()
        if number is not None:
            program.send_signal(number)
        program.wait(30)

    assert said == "echo\n"
    assert number is None or len(at_work) >= 2
    assert eventually(lambda: all(map(gone, at_work)))
    assert eventually(lambda: not [pid for pid in children() - before if not gone(pid)])
