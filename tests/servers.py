"""What runs beside the tests: a PostgreSQL server, and programs in processes of their own.

A test module that needs the server imports `shared_postgres`, which is the fixture `postgres`.
"""

import atexit
import functools
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tests.support import ROOT

MISSING: Final = (
    "These tests start a PostgreSQL server of their own, and its programs (initdb, pg_ctl, postgres) were not found. "
    "On Debian and Ubuntu: apt-get install postgresql. On macOS: brew install postgresql. It need not be running."
)

_TRIES: Final = 3


class Postgres:
    """A server on loopback, with its data in a folder of its own, for nobody but the tests.

    Attributes:
        port: where it listens.
    """

    def __init__(self, programs: Path) -> None:
        """Make the data; nothing runs yet."""
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="graphflow-postgres-"))
        self.port = 0
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self._folder, "postgres", "postgres")
        self._name = "postgres" if self._user else getpass.getuser()
        made = self._run("initdb", "-U", self._name, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        assert made.returncode == 0, made.stderr

    @property
    def conninfo(self) -> str:
        """Where it listens."""
        return f"host=127.0.0.1 port={self.port} dbname=postgres user={self._name}"

    def start(self, *, fsync: bool = False) -> None:
        """Run it, on the port that it had before, and return when it takes connections."""
        log = self._folder / "log"
        for _ in range(_TRIES):  # somebody else may take a port that was free a moment ago
            self.port = self.port or _free_port()
            options = (
                f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1 "
                f"-c fsync={'on' if fsync else 'off'} "
                f"-c max_connections=200 -c shared_buffers=32MB"
            )
            if self._run("pg_ctl", "start", "-w", "-l", str(log), "-o", options).returncode == 0:
                return
        pytest.fail("PostgreSQL did not start:\n" + log.read_text("utf-8"))

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: ending all sessions in order, or as a crash does."""
        self._run("pg_ctl", "stop", "-w", "-m", how)

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Into a file: the server inherits it, and would keep a pipe open for ever.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [self._programs / program, "-D", self._folder / "data", *arguments],
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                **self._user,
            )
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, "", output.read())


@pytest.fixture(scope="session", name="postgres")
def shared_postgres() -> Postgres:
    """A PostgreSQL server that runs as long as the tests do, one for all modules."""
    return running()


@functools.cache
def running() -> Postgres:
    """Start a server that runs until the process ends."""
    found = programs()
    if found is None:
        pytest.fail(MISSING)
    server = Postgres(found)
    atexit.register(server.remove)
    server.start()
    return server


def programs() -> Path | None:
    """Where the programs of the newest PostgreSQL server are; a client brings no initdb."""
    folders = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    config = shutil.which("pg_config")
    if config is not None:
        folders.append(Path(subprocess.check_output([config, "--bindir"], text=True).strip()))
    for pattern in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql*/bin"):
        folders += sorted(Path("/").glob(pattern), key=_number, reverse=True)
    return next((found for found in folders if (found / "initdb").exists() and (found / "pg_ctl").exists()), None)


def _number(folder: Path) -> int:
    return int("".join(filter(str.isdigit, str(folder))) or 0)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def process(program: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """A Python program in a process of its own, which is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def said(child: subprocess.Popen[str]) -> str:
    """The next line that a process says, or its complaint if there is none."""
    assert child.stdout is not None
    assert child.stderr is not None
    return child.stdout.readline().strip() or child.stderr.read()


def tell(child: subprocess.Popen[str], line: str) -> None:
    """Say a line to a process."""
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()
