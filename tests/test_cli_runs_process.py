"""Stored runs on the command line, in processes: killed, interrupted, several at once, and a person at a terminal."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.test_cli_process import PATIENCE, command, shown_until, until

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

GRAPHS: Final = r"""
import time
from pathlib import Path

from graphflow import END, START, Context, Graph, Human, State, Step, Update, node


class Case(Context):
    question: str


def called(number: int) -> int:
    with Path("calls.txt").open("a") as file:
        file.write(f"{number}\n")
    return number


@node
async def work(state: State[Case], step: Step) -> int:
    total = 0
    for number in range(6):
        total += await step.effect("add", called, number)
        step.emit(f"did {number}")
        await step.sleep(0.3)
    return total


@node
async def block(state: State[Case], step: Step) -> None:
    await step.effect("add", called, 1)
    step.emit("at rest")
    time.sleep(600)


works = Graph("works", START >> work >> END, context=Case)
blocks = Graph("blocks", START >> block >> END, context=Case)
asks = Graph("asks", START >> work >> Human("approve", "How many?", schema=int) >> END, context=Case)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of graphs, in which every process begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    (tmp_path / "graphs.py").write_text(GRAPHS, "utf-8")
    return tmp_path


def begun(*words: str) -> subprocess.Popen[str]:
    """A process that does what stands on a command line."""
    return subprocess.Popen(
        command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ran(*words: str) -> tuple[int, str, str]:
    """Run such a process to its end."""
    with begun(*words) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


def calls() -> list[int]:
    """What was done outside."""
    return [int(line) for line in Path("calls.txt").read_text("utf-8").split()]


def killed_after(words: str, *command_line: str) -> None:
    """Kill a process as soon as it has said something."""
    with begun(*command_line) as process:
        assert process.stderr is not None
        until(process.stderr, words)
        process.kill()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL


def test_a_run_survives_two_kills(folder: Path) -> None:
    """What is recorded is not done again; the process that takes it up need not be told which graph it is of."""
    killed_after("did 1", "run", "graphs.py:works", "q", "--run-id", "one")
    killed_after("did 3", "resume", "one")

    code, out, err = ran("resume", "last")

    assert (code, out) == (0, "15\n")
    assert "taken up again after" in err
    assert sorted(set(calls())) == list(range(6))
    assert len(calls()) <= 6 + 2  # in the window between an effect and its record there is one at the most
    assert ran("replay", "one")[:2] == (0, "15\n")


def test_of_two_that_take_up_a_run_one_goes_on(folder: Path) -> None:
    """The other is told so, with the exit code of the store."""
    killed_after("did 1", "run", "graphs.py:works", "q", "--run-id", "one")

    both = [begun("resume", "one", "--json"), begun("resume", "one", "--json")]
    ends = [process.communicate(timeout=PATIENCE) for process in both]

    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 5]
    assert json.loads(ends[codes.index(0)][0])["output"] == 15
    assert "the run 'one' is at work elsewhere" in ends[codes.index(5)][1]


def test_many_runs_begin_at_once_in_one_folder(folder: Path) -> None:
    """Each is stored, and each is noted with its graph."""
    processes = [begun("run", "graphs.py:works", "q", "--run-id", f"run {number}", "-q") for number in range(6)]

    ends = [process.communicate(timeout=PATIENCE) for process in processes]

    notes = json.loads((folder / ".graphflow" / "targets.json").read_text("utf-8"))
    assert ends == [("15\n", "")] * 6
    assert notes == {f"run {number}": {"file": "graphs.py", "name": "works"} for number in range(6)}
    assert sorted(path.name for path in (folder / ".graphflow").iterdir() if path.is_file()) == [
        ".gitignore", "runs.db", "targets.json",
    ]  # fmt: skip


def test_a_run_that_was_stopped_at_once_says_how_it_goes_on(folder: Path) -> None:
    """A second Ctrl-C leaves a body behind that cannot be cancelled; what it had done is stored."""
    with begun("run", "graphs.py:blocks", "q", "--run-id", "one") as process:
        assert process.stderr is not None
        until(process.stderr, "at rest")
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:  # two that come together count as one
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert "What is stored of the run is intact; to go on with it: graphflow resume one" in err
    assert "effect_finished" in ran("runs", "show", "one", "--events")[1]


def test_a_person_at_a_terminal_is_asked_by_resume(folder: Path) -> None:
    """As by `run`: the question is shown, what was done stands in the tree, and the answer goes on with the run."""
    assert ran("run", "graphs.py:asks", "q", "--run-id", "one")[0] == 4
    master, slave = pty.openpty()
    around = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command("resume", "one"), env=around, stdin=slave, stdout=subprocess.PIPE, stderr=slave
    ) as process:
        os.close(slave)
        seen = shown_until(master, b"> ")
        os.write(master, b"3\n")
        seen += shown_until(master, b"run one")
        out, _ = process.communicate(timeout=PATIENCE)
        os.close(master)

    assert (process.returncode, out) == (0, b"3\n")
    assert b"approve: How many?\r\n  work: 15 (int)\r\n> " in seen
    assert "✓ work".encode() in seen
    assert "✓ approve".encode() in seen


def test_a_folder_that_cannot_be_made_is_told(folder: Path) -> None:
    """One line, with the way out; nothing has run."""
    (folder / "file").write_text("in the way", "utf-8")  # which nobody may make a folder of, not even root

    code, _, err = ran("run", "graphs.py:works", "q", "--db", "file/runs.db")

    assert code == 5
    assert "Traceback" not in err
