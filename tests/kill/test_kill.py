"""Processes that are killed at any moment, again and again: nothing is lost, nothing doubled but what was in flight."""

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from graphflow.events import Row, SessionStarted
from graphflow.runtime.stored import prepared
from graphflow.testing import canonical_trace
from tests.kill.shapes import MARK, SHAPES, WIDTH, Line, lines_of
from tests.kill.worker import GRAPHS, Killer, Order, ended, journal_at, killer
from tests.servers import Postgres
from tests.servers import shared_postgres as shared_postgres  # noqa: PLC0414 - a fixture
from tests.support import FULL, examples

pytestmark = pytest.mark.may_block  # its effects write files, and nobody else waits

KILLS: Final = 64 if FULL else 5
"""Of each shape in each store: 512 in all, or 40."""

PACE: Final = {"chain": 0.002, "loop": 0.002, "fan": 0.01, "agents": 0.007}
"""How long an effect takes twice, in seconds: a run lives some times longer than its process takes to begin."""


@pytest.fixture(scope="module")
def kill() -> Generator[Killer]:
    """Has orders carried out, and kills."""
    with killer() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    """Where runs are stored."""
    if request.param == "sqlite":
        return "sqlite"
    server: Postgres = request.getfixturevalue("postgres")
    return server.conninfo


def plain(text: str) -> str:
    """A text without what makes results unlike each other."""
    return MARK.sub("#", text)


def trace(shape: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """What happened in a run, but for its sessions and for what its effects gave in it."""
    written = prepared(GRAPHS[shape]).rows()
    events = [event for row in rows for event in written.record("run", row).events("run")]
    return tuple(map(plain, canonical_trace(event for event in events if not isinstance(event.body, SessionStarted))))


class Undisturbed:
    """A run that nobody kills: how it ends, what happened in it, and how long its process lives."""

    def __init__(self, kill: Killer, order: Order) -> None:
        """Run it twice: what is new the first time takes longer."""
        lives = [Life(replace(order, folder=tempfile.mkdtemp(dir=order.folder))) for _ in range(2)]
        took: list[float] = []
        for life in lives:
            began = time.monotonic()
            assert not kill(life.order)
            took.append(time.monotonic() - began)
            life.look()
        self.seconds = took[-1]
        self.seen = [plain(text) for text in ended(lives[-1].folder)["seen"]]
        self.trace = trace(order.shape, lives[-1].rows)


@dataclass
class Life:
    """One run, and what is seen of it after each of its processes."""

    order: Order
    kills: int = 0
    rows: Sequence[Row] = ()
    lines: Sequence[Line] = ()

    @property
    def folder(self) -> Path:
        """Where its lines are."""
        return Path(self.order.folder)

    def look(self) -> None:
        """Look at what is stored and what was left behind, and hold the new against what was there before."""
        with closing(journal_at(self.order.store, self.folder)) as journal:
            rows = anyio.run(journal.read, self.folder.name)
        lines = lines_of(self.folder / "lines")
        new = Counter((line.kind, line.key) for line in lines[len(self.lines) :])
        assert rows[: len(self.rows)] == self.rows, "a row has changed"
        assert not self.recorded() & set(new), "what is recorded was done again"
        assert set(new.values()) <= {1}, "something was done twice between two kills"
        self.rows, self.lines = rows, lines
        flying = {(line.kind, line.key) for line in lines if line.kind != "body"} - self.recorded()
        assert len(flying) <= WIDTH[self.order.shape], "more is not recorded than can have been in flight"

    def recorded(self) -> set[tuple[str, str]]:
        """The effects and bodies whose ends are stored."""
        facts = [json.loads(row.fact) for row in self.rows]
        bodies = {f"{fact[1]}.{fact[2]}" for fact in facts if fact[0] == "node_returned"}
        results = self.results
        return {
            (line.kind, line.key)
            for line in self.lines
            if (line.key in bodies if line.kind == "body" else not results.isdisjoint(MARK.findall(line.what)))
        }

    @property
    def results(self) -> set[str]:
        """The results of effects that are stored."""
        return set(MARK.findall("".join(row.fact for row in self.rows if row.fact.startswith('["effect_finished"'))))

    @property
    def doubled(self) -> int:
        """How often something was done that had been done, and could not be recorded."""
        counts = Counter((line.kind, line.key) for line in self.lines if line.kind != "body")
        return counts.total() - len(counts)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    kill: Killer, store: str, shape: str, tmp_path: Path
) -> None:
    """Each recorded result is used, nothing recorded is done again, and the end is that of an undisturbed run."""
    rng, kills, doubled = random.Random(shape), 0, 0
    order = Order(shape, store, str(tmp_path), PACE[shape])
    whole = Undisturbed(kill, order)

    while kills < KILLS:
        life = Life(replace(order, folder=tempfile.mkdtemp(prefix=shape, dir=tmp_path)))
        while kill(_next(rng, life, whole)):
            life.look()
            life.kills += bool(life.rows)
        life.look()

        end = ended(life.folder)
        assert end.get("status") == "completed", end
        assert [plain(text) for text in end["seen"]] == whole.seen
        assert life.results == set(MARK.findall("".join(end["seen"])))
        assert trace(shape, life.rows) == whole.trace
        kills, doubled = kills + life.kills, doubled + life.doubled

    sys.stdout.write(f"{shape}: killed {kills} times; {doubled} effects done again that had not been recorded\n")


def _next(rng: random.Random, life: Life, whole: Undisturbed) -> Order:
    """The next process of a run: it is killed at any moment, unless the run has been killed often enough."""
    seconds = None if life.kills > 20 else rng.uniform(0.0, whole.seconds)
    return replace(life.order, backend=rng.choice(("asyncio", "trio")), life=seconds)


@pytest.mark.parametrize("trial", range(examples(100)))
def test_one_of_two_resumers_proceeds(kill: Killer, store: str, trial: int, tmp_path: Path) -> None:
    """Of two processes that go on with one run at once, one completes it, and the other is told that it is locked."""
    folder = Path(tempfile.mkdtemp(prefix="rivals", dir=tmp_path))
    life = Life(Order([*SHAPES][trial % 4], store, str(folder), 0.001))
    assert kill(replace(life.order, effects=trial % 5))
    life.look()

    kill(replace(life.order, rivals=2, backend=("asyncio", "trio")[trial % 2]))

    life.look()
    ends = [ended(folder, number) for number in (0, 1)]
    assert sorted(end.get("status") or end["error"] for end in ends) == ["RunLocked", "completed"]
    assert [line.kind for line in life.lines].count("locked") == 1
    assert [row.fact[:12] for row in life.rows].count('["session_st') == 1
