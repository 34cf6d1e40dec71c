"""What every test stands on: both backends, the size of properties, no blocking call in the event loop."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import networkx as nx
import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from tests.support import FULL, examples

# The checks import networkx when they are first used; in a test that would block the loop.
assert nx.__name__

# The name of a backend and its options, as anyio takes them.
Backend: TypeAlias = tuple[str, dict[str, Any]]

# CI repeats the same examples, so that no change is refused for what an example that nobody has seen finds elsewhere.
# Every run on somebody's machine looks for new ones, and GRAPHFLOW_FULL=1 for many.
settings.register_profile("dev", max_examples=examples(100), deadline=None)
settings.register_profile(
    "ci", max_examples=examples(100), deadline=None, derandomize=True, database=None, print_blob=True
)
settings.register_profile("full", max_examples=100, deadline=None, derandomize=False, print_blob=True)
settings.load_profile("full" if FULL else "ci" if os.environ.get("CI") else "dev")


# What tests start on the command line keeps its runs here, and not in the checkout.
os.environ.setdefault("GRAPHFLOW_DB", str(Path(tempfile.mkdtemp(prefix="graphflow-runs-")) / "runs.db"))

BACKENDS: Final[tuple[Backend, ...]] = (("asyncio", {}), ("trio", {}))


@pytest.fixture(
    scope="module",
    params=BACKENDS,
    ids=[name for name, _ in BACKENDS],
)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The backend of a test; every async test runs once on each, without asking for it."""
    backend: Backend = request.param
    return backend


SHORT_WORK: Final = {"append_nowait", "_claim_at_once", "_read_at_once", "leave"}
"""What a journal in a SQLite file does in the event loop's thread."""


@pytest.fixture(scope="session")
def blockbuster() -> Iterator[BlockBuster]:
    """Raises BlockingError where graphflow, or a node it runs, blocks asyncio's event loop.

    Worker threads have no running loop, so what blocks there is not reported.
    """
    guard = BlockBuster("graphflow")
    # A SQLite journal writes in the loop on purpose, and takes and gives back the lock of a run there: decision 0019.
    for name in (
        "sqlite3.Cursor.execute",
        "sqlite3.Cursor.fetchone",
        "sqlite3.Cursor.fetchall",
        "sqlite3.Connection.execute",
        "sqlite3.Connection.executescript",
        "os.path.abspath",
        "os.stat",
        "os.unlink",
    ):
        guard.functions[name].can_block_in("graphflow/persistence/sqlite.py", SHORT_WORK)
    guard.activate()
    yield guard
    guard.deactivate()


@pytest.fixture(autouse=True)
def _no_blocking_calls(request: pytest.FixtureRequest, blockbuster: BlockBuster) -> Iterator[None]:
    """Lifts the guard for the tests that are marked `may_block`."""
    if "may_block" not in request.keywords:
        yield
        return
    blockbuster.deactivate()
    yield
    blockbuster.activate()
