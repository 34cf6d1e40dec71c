"""Ctrl-C before the command line is loaded and while it leaves, and a server without its wires: never a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.test_cli_process import PATIENCE, command, until

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

GRAPH: Final = """
from graphflow import END, START, Context, Graph, State, Step, node


class Case(Context):
    question: str = "q"


@node
async def rest(state: State[Case], step: Step) -> None:
    step.emit("at rest")
    await step.sleep(600)


rests = Graph("rests", START >> rest >> END, context=Case)
"""

INTERRUPTED: Final = """
import json, os, signal, sys

when, called, argv = json.loads(sys.argv[1])
sys.argv[:] = argv


class Interrupts:
    '''Interrupts this process as soon as a module is looked for.'''

    def find_spec(self, name, path=None, target=None):
        if name == when:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupts())
exec(called)
"""
"""A program that gets a Ctrl-C where it would import a module."""

SCRIPT: Final = "from graphflow.cli import main; sys.exit(main())"
"""What the installed `graphflow` does."""


def interrupted_at(when: str, called: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run such a program to its end."""
    program = [sys.executable, "-c", INTERRUPTED, json.dumps([when, called, argv])]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    "when",
    [
        "pydantic", "graphflow.errors", "graphflow.graphs.graph", "graphflow.cli", "graphflow.cli.faults",
        "graphflow.cli.printing", "typer", "graphflow.cli.app", "graphflow.cli.running", "resting",
    ],
)  # fmt: skip
def test_an_interrupt_while_the_command_line_is_loaded_leaves_no_traceback(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first module and at its last, up to that of the user: a line, and the exit code of an interrupt."""
    monkeypatch.chdir(tmp_path)
    Path("resting.py").write_text(GRAPH, "utf-8")

    ended = interrupted_at(when, SCRIPT, ["/usr/bin/graphflow", "run", "resting:rests", "--no-store"])

    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "graphflow: cancelled.\n"


@pytest.mark.parametrize("when", ["graphflow.errors", "graphflow.model.budget"])
def test_a_program_that_imports_the_library_hears_its_own_interrupts(when: str) -> None:
    """Only the command line is ended at once."""
    ended = interrupted_at(when, "import graphflow", ["mine.py"])

    assert ended.returncode != 130
    assert "KeyboardInterrupt" in ended.stderr


@pytest.mark.parametrize("name", ["mine.py", "graphflow", "graphflow.exe"])
def test_an_ignored_interrupt_stays_ignored(name: str) -> None:
    """As `nohup` and a shell's background want it."""
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN); import graphflow"
    called = f"{ignoring}; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"

    ended = interrupted_at("graphflow.errors", called, [name])

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "True\n"


def test_an_interrupt_of_a_server_that_has_just_begun_leaves_no_traceback(tmp_path: Path) -> None:
    """Over HTTP, as soon as the address is said, which is before it is all there."""
    (tmp_path / "resting.py").write_text(GRAPH, "utf-8")
    words = command("mcp", str(tmp_path / "resting.py"), "--http", "0")

    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        until(process.stderr, "serving at")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(PATIENCE)

    assert (process.returncode, rest) == (130, "graphflow: cancelled.\n")


@pytest.mark.parametrize(("number", "name"), [(0, "stdin"), (1, "stdout")])
def test_a_server_that_was_started_without_a_wire_says_so(tmp_path: Path, number: int, name: str) -> None:
    """A closed stdin or stdout is no bug of ours, and no server."""
    (tmp_path / "resting.py").write_text(GRAPH, "utf-8")
    words = command("mcp", str(tmp_path / "resting.py"))

    process = subprocess.run(
        words, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE, preexec_fn=lambda: os.close(number),
    )  # fmt: skip

    assert process.returncode == 2
    assert process.stderr == (
        f"graphflow: mcp: {name} is closed, and the protocol is spoken over stdin and stdout: let an MCP client start "
        f"this command, or serve over HTTP with --http PORT.\n"
    )
