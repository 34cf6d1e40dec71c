"""A process that has imported everything and forks children which run a graph; it kills them when it is told to.

It reads orders from its input, one line of JSON each, and answers with a line. `Killer` is the other end of it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import psycopg

from graphflow import resume, run, run_sync
from graphflow.errors import RunLocked
from graphflow.persistence.memory import MemoryJournal
from graphflow.persistence.postgres import PostgresJournal
from graphflow.persistence.sqlite import SqliteJournal
from graphflow.runtime import recall
from graphflow.runtime.stored import prepared
from tests.kill.shapes import MINDS, SHAPES, Log, Seen
from tests.support import ROOT

PATIENCE: Final = 10.0
"""Seconds in which a server must notice that a process is gone."""


@dataclass(frozen=True)
class Order:
    """What a child is to do.

    Attributes:
        shape: which graph.
        store: "sqlite", or where PostgreSQL is.
        folder: where the lines and the end go.
        pace: how many seconds an effect takes before and after what it does.
        backend: which event loop.
        life: after how many seconds it is killed, None for never.
        effects: after how many effects it kills itself, None for never.
        rivals: how many children do it at once.
    """

    shape: str
    store: str
    folder: str
    pace: float
    backend: Literal["asyncio", "trio"] = "asyncio"
    life: float | None = None
    effects: int | None = None
    rivals: int = 1


def journal_at(store: str, folder: Path) -> SqliteJournal | PostgresJournal:
    """The journal of a run, whose id is the name of its folder: a file in there, or a database."""
    return SqliteJournal(folder / "runs.db") if store == "sqlite" else PostgresJournal(store, schema="killed")


# --- the children ----------------------------------------------------------------------------------------------------


def _child(order: Order, number: int) -> None:
    """Begin the run or go on with it, and write down how it ended."""
    folder = Path(order.folder)
    log = Log(folder / "lines", order.pace, contested=order.rivals > 1, last=order.effects)
    for mind in MINDS:
        mind.log = log
    try:
        end = anyio.run(_run, order, folder, log, backend=order.backend)
    except RunLocked:
        end = {"error": "RunLocked"}
        log.write("locked", str(number), "")
    except Exception:  # noqa: BLE001 - whatever it is, the test shows it
        end = {"error": traceback.format_exc()}
    (folder / f"end{number}.new").write_text(json.dumps(end))
    (folder / f"end{number}.new").replace(folder / f"end{number}")


async def _run(order: Order, folder: Path, log: Log) -> dict[str, Any]:
    graph, journal, name = GRAPHS[order.shape], journal_at(order.store, folder), folder.name
    patience = time.monotonic() + PATIENCE
    while True:
        try:
            if await journal.read(name):
                result = await resume(graph, name, journal=journal, resources=[log])
            else:
                result = await run(graph, Seen(), journal=journal, run_id=name, resources=[log])
        except RunLocked:
            if order.store == "sqlite" or order.rivals > 1 or time.monotonic() > patience:
                raise
            await anyio.sleep(0.01)  # the server has not noticed yet that the last process is gone
        else:
            return {"status": result.status, "seen": result.context.seen}


GRAPHS: Final = {name: make() for name, make in SHAPES.items()}


# --- the process that forks ------------------------------------------------------------------------------------------


def _fork(order: Order, number: int) -> tuple[int, int]:
    """Make a child; return its id, and a file that can be read when it is gone."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        _child(order, number)
    finally:
        os._exit(0)


def _obey(order: Order) -> bool:
    """Let children do something, and kill them when their time is over; tell whether one was killed."""
    over = None if order.life is None else time.monotonic() + order.life
    children = [_fork(order, number) for number in range(order.rivals)]
    killed = False
    for pid, gone in children:
        left = None if over is None else max(0.0, over - time.monotonic())
        if not select.select([gone], [], [], left)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(gone)
        killed = killed or os.WIFSIGNALED(status)
    return killed


def _main() -> None:
    """Import all that a child needs, and no thread: a process that has threads must not fork. Then obey."""
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder) / "lines", 0.0)
        for (name, graph), backend in product(GRAPHS.items(), ("asyncio", "trio")):
            prepared(graph)
            for mind in MINDS:
                mind.log = log
            run_sync(graph, Seen(), run_id=name, journal=MemoryJournal(), resources=[log], backend=backend)
    assert recall.__name__ in sys.modules
    assert psycopg.__name__ in sys.modules
    assert threading.active_count() == 1
    for line in sys.stdin:
        print(json.dumps(_obey(Order(**json.loads(line)))), flush=True)  # noqa: T201 - that is the answer


# --- the other end ---------------------------------------------------------------------------------------------------


class Killer:
    """Has orders carried out by the process that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, order: Order) -> bool:
        """Have an order carried out; return whether it ended by a kill."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return bool(json.loads(self._process.stdout.readline()))


@contextmanager
def killer() -> Generator[Killer]:
    """The process that forks, while it is needed."""
    command: Sequence[str] = [sys.executable, "-m", "tests.kill.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Killer(process)
        finally:
            process.kill()


def ended(folder: Path, number: int = 0) -> dict[str, Any]:
    """How a child has ended."""
    found: dict[str, Any] = json.loads((folder / f"end{number}").read_text())
    return found


if __name__ == "__main__":
    _main()
