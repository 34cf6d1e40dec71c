"""The command line as a process: signals, closed pipes, encodings, and a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

import pytest

from graphflow.persistence.lines import read_event
from tests.support import ROOT

GRAPHS: Final = r"""
import time

from graphflow import END, START, Budget, Context, Graph, Human, State, Step, node


class Case(Context):
    question: str


@node
async def rest(state: State[Case], step: Step):
    step.emit("at rest")
    await step.sleep(600)


@node
def stuck(state: State[Case], step: Step):
    step.emit("at rest")
    time.sleep(600)


@node
async def block(state: State[Case], step: Step):
    step.emit("at rest")
    time.sleep(600)


@node(name="evil\x1b[2J\n\u202e\ud800é")
async def evil(state: State[Case]):
    return "out \x1b[31mred\x07 é日本 \udcff"


def made(name, work):
    return Graph(name, START >> work >> END, context=Case, budget=Budget(node_runs=5))


rests, sticks, blocks = made("rests", rest), made("sticks", stuck), made("blocks", block)
asks = made("asks", Human("approve", "How many?", schema=int))
evil_graph = made("evil\x1b]0;x\x07", evil)
"""

PATIENCE: Final = 30.0
"""Seconds after which a process that should have ended is a failure."""


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the runs of a test in a place of its own."""
    monkeypatch.setenv("GRAPHFLOW_DB", str(tmp_path / "runs.db"))


@pytest.fixture
def graphs(tmp_path: Path) -> Callable[[str], str]:
    """A file of graphs; gives the target of one of them."""
    file = tmp_path / "graphs.py"
    file.write_text(GRAPHS, "utf-8")
    return lambda name: f"{file}:{name}"


def command(*words: str) -> list[str]:
    """The words of a process that does what `graphflow` does."""
    return [sys.executable, "-m", "graphflow.cli", *words]


def ran(
    words: Sequence[str | bytes],
    *,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a process to its end."""
    return subprocess.run(
        words, cwd=ROOT, check=False, timeout=PATIENCE, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )


def interrupted(words: list[str], number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
    """Run a process, interrupt it as soon as its node is at rest, and return how it ended."""
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = until(process.stderr, "at rest")
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, said + err


def until(stream: IO[str], words: str) -> str:
    """Read lines until one holds the words."""
    said = ""
    for line in stream:
        said += line
        if words in line:
            return said
    message = f"{words!r} was never said, only: {said}"
    raise AssertionError(message)


@pytest.mark.parametrize("name", ["rests", "sticks"])
def test_ctrl_c_cancels_the_run_and_keeps_what_was_done(
    graphs: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    """Exit code 130, a result, a complete file of events, and no wait for a thread that nobody can stop."""
    file = tmp_path / "run.jsonl"

    code, out, err = interrupted(command("run", graphs(name), "q", "--json", "--no-store", "--events", str(file)))

    events = [read_event(line) for line in file.read_text("ascii").splitlines()]
    assert code == 130
    assert json.loads(out)["status"] == "cancelled"
    assert json.loads(out)["spent"]["node_runs"] == 1
    assert "cancelled by Ctrl-C" in err
    assert "Traceback" not in err
    assert events[-1].kind == "run_ended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_breaks_a_stored_run_off_which_can_be_gone_on_with(
    graphs: Callable[[str], str], number: signal.Signals
) -> None:
    """Nothing is recorded of it, the way on is said, and the run is open."""
    code, out, err = interrupted(command("run", graphs("rests"), "q", "--run-id", "mine"), number)

    shown = ran(command("runs", "show", "mine", "--json"))
    assert (code, out) == (130, "")
    assert "to go on with it: graphflow resume mine" in err
    assert "Traceback" not in err
    assert json.loads(shown.stdout)["status"] == "open"


def test_a_second_ctrl_c_stops_at_once(graphs: Callable[[str], str]) -> None:
    """A body that blocks the loop cannot be cancelled, only left."""
    words = command("run", graphs("blocks"), "q")
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        until(process.stderr, "at rest")
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:  # two that come together count as one
            process.send_signal(signal.SIGINT)
            select.select([process.stderr], [], [], 0.2)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [["--help"], ["run", "-h"], ["--version"], ["check", "GRAPH"], ["draw", "GRAPH"], ["run", "ECHO", "q", "--json"]],
    ids=" ".join,
)
@pytest.mark.parametrize("closed", ["stdout", "both"])
def test_a_reader_that_went_away_is_no_trouble(graphs: Callable[[str], str], words: list[str], closed: str) -> None:
    """`graphflow ... | head -1` ends with the command's own exit code, and says nothing of pipes."""
    reader, writer = os.pipe()
    os.close(reader)
    names = {"GRAPH": graphs("rests"), "ECHO": graphs("evil_graph")}
    try:
        stderr = writer if closed == "both" else subprocess.PIPE
        process = ran(command(*[names.get(word, word) for word in words]), stdout=writer, stderr=stderr)
    finally:
        os.close(writer)

    assert process.returncode == 0
    for sign in (b"Traceback", b"Broken", b"Exception", b"could not"):
        assert sign not in (process.stderr or b"")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_streams_may_be_missing(graphs: Callable[[str], str], redirection: str) -> None:
    """A process can be started without a stdout or stderr; the run is the same."""
    shell = f'exec "$@" {redirection}'

    process = ran(["sh", "-c", shell, "sh", *command("run", graphs("evil_graph"), "q")])

    assert process.returncode == 0
    assert b"Traceback" not in process.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_result_that_cannot_be_written_is_told(graphs: Callable[[str], str]) -> None:
    """A full disk is no success."""
    with Path("/dev/full").open("wb") as full:
        process = ran(command("run", graphs("evil_graph"), "q"), stdout=full)
    events = ran(command("run", graphs("evil_graph"), "q", "--events", "/dev/full"))

    assert (process.returncode, events.returncode) == (1, 1)
    assert b"the result could not be written: No space left on device." in process.stderr
    assert b"--events /dev/full: No space left on device" in events.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=str,
)
def test_any_encoding_will_do(graphs: Callable[[str], str], environment: dict[str, str]) -> None:
    """What cannot be written in it is escaped."""
    around = os.environ | environment

    run = ran(command("run", graphs("evil_graph"), "q"), env=around)
    draw = ran(command("draw", graphs("evil_graph")), env=around)

    assert (run.returncode, draw.returncode) == (0, 0)
    assert rb"\u65e5\u672c \udcff" in run.stdout
    assert rb"evil\x1b[2J\n\u202e\ud800" in run.stderr
    assert b"\x1b" not in run.stderr + draw.stdout


def test_names_of_files_need_be_no_text(tmp_path: Path) -> None:
    """A path of bytes that are no UTF-8 works, and so does INPUT."""
    file = os.fsencode(tmp_path) + b"/\xff.py"
    try:
        Path(os.fsdecode(file)).write_text(GRAPHS, "utf-8")
    except OSError:
        pytest.skip("this file system wants names that are text")

    process = ran([*map(os.fsencode, command("run")), file + b":evil_graph", b"\xff"])

    assert process.returncode == 0, process.stderr


def test_a_terminal_shows_a_tree_and_takes_the_answer(graphs: Callable[[str], str]) -> None:
    """On a real terminal the progress is drawn, the question asked, and nothing of a name obeyed."""
    master, slave = pty.openpty()
    around = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command("run", graphs("asks"), "q"), cwd=ROOT, env=around, stdin=slave, stdout=subprocess.PIPE, stderr=slave
    ) as process:
        os.close(slave)
        seen = shown_until(master, b"> ")
        os.write(master, b"3\n")
        seen += shown_until(master, b"run ")
        out, _ = process.communicate(timeout=PATIENCE)
        os.close(master)

    assert (process.returncode, out) == (0, b"3\n")
    assert b"approve: How many? (int)" in seen
    assert b"? approve  waiting" in seen
    assert "✓ approve".encode() in seen


def shown_until(terminal: int, words: bytes) -> bytes:
    """Read from a terminal until the words are there."""
    seen = b""
    end = time.monotonic() + PATIENCE
    while words not in seen and time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        if not ready:
            break
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
    return seen
