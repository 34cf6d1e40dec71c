"""Cases C5, J5 and J13 in processes of their own: killed at any moment, and two that want one run."""

from pathlib import Path

import pytest

from tests.cases.processes import run_script
from tests.support import FULL, examples

HELD = """
import sys
from pathlib import Path
from tests.cases.processes import hold_every_kill
from tests.cases.stored_plans import PLANS

folder = Path("kills")
folder.mkdir()
print(hold_every_kill(PLANS[sys.argv[1]], folder, sys.argv[2], every=int(sys.argv[3])))
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", ["team", "seconds of agents"])
def test_j5_a_killed_process_is_followed_by_one_that_ends_the_run(name: str, backend: str, tmp_path: Path) -> None:
    """A process is killed at a record, a fresh one goes on from the file, and all ends like without a kill."""
    kills = run_script(tmp_path, HELD, name, backend, "1" if FULL else "13")

    assert int(kills[-1]) > 1


CHAIN = """
import os, random, signal, sys
from pathlib import Path
from graphflow import END, START, Context, Graph, SqliteJournal, node, resume, run
from tests.cases.processes import KILLED, in_child, in_loop

PLACES = ("before the effect", "in the effect", "after the effect", "at the end")
deadly = None  # the node and the place where the process is killed

def here(name, place):
    if deadly == (name, place):
        os.kill(os.getpid(), signal.SIGKILL)

class Log(Context):
    total: int = 0

def counting(number, folder):
    name = f"n{number}"

    def count():
        with (folder / name).open("a") as file:
            file.write("x")
        here(name, "in the effect")
        return number

    async def body(state, step):
        here(name, "before the effect")
        found = await step.effect("count", count)
        here(name, "after the effect")
        step.emit(name)
        here(name, "at the end")
        return found + sum(state.values)

    return node(name=name, version="1")(body)

def chain(folder):
    nodes = [counting(number, folder) for number in range(40)]
    statements = START >> nodes[0]
    for found in nodes[1:]:
        statements = statements >> found
    return Graph("chain", statements >> END, context=Log)

async def first(folder):
    result = await run(chain(folder), Log(), journal=SqliteJournal(folder / "runs.db"), run_id="r")
    print(result.output, flush=True)

async def second(folder):
    result = await resume(chain(folder), "r", journal=SqliteJournal(folder / "runs.db"))
    assert (result.status, result.output) == ("completed", sum(range(40))), result

rng = random.Random(7)
for trial in range(int(sys.argv[2])):
    number, place = (23, PLACES[trial]) if trial < 4 else (rng.randrange(40), rng.choice(PLACES))
    folder = Path(f"trial{trial}")
    folder.mkdir()
    deadly = f"n{number}", place
    assert in_child(in_loop(lambda: first(folder), sys.argv[1])) == KILLED
    deadly = None
    assert in_child(in_loop(lambda: second(folder), sys.argv[1])) == 0
    counts = [(folder / f"n{n}").stat().st_size for n in range(40)]
    assert counts[:number] == [1] * number and counts[number + 1:] == [1] * (39 - number), counts
    assert counts[number] == (2 if place == "in the effect" else 1), (place, counts[number])
    print(number, place)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_j5_only_what_was_under_way_is_done_again(backend: str, tmp_path: Path) -> None:
    """Of a chain of 40 counting nodes one is killed inside: the nodes before it count once, it once or twice."""
    trials = examples(50)

    lines = run_script(tmp_path, CHAIN, backend, str(trials))

    assert len(lines) == trials


MOMENTS = """
import random, sys
from pathlib import Path
from graphflow import SqliteJournal
from graphflow.errors import JournalUnavailable, UnknownRun
from graphflow.testing import MemoryJournal
from tests.cases.processes import in_child, in_loop
from tests.cases.stored import go_on, play
from tests.cases.stored_plans import PLANS

plan = PLANS[sys.argv[1]]
rng = random.Random(11)
for trial in range(int(sys.argv[3])):
    file = Path(f"{trial}.db")

    async def first():
        await play(plan, SqliteJournal(file))

    async def second():
        whole = await play(plan, MemoryJournal())
        try:
            found = await go_on(plan, SqliteJournal(file))
        except UnknownRun:
            return  # it was killed before its first record
        assert found.result.status == whole.result.status
        assert (found.result.context, found.result.output) == (whole.result.context, whole.result.output)
        assert found.trace == whole.trace

    in_child(in_loop(first, sys.argv[2]), kill_after=rng.uniform(0.005, 0.1))
    assert in_child(in_loop(second, sys.argv[2])) == 0
    print(trial)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", ["loop", "everything"])
def test_j5_a_process_may_be_killed_at_any_moment(name: str, backend: str, tmp_path: Path) -> None:
    """Whatever the process was doing, the next one ends the run like one that was never killed."""
    trials = examples(40)

    lines = run_script(tmp_path, MOMENTS, name, backend, str(trials))

    assert len(lines) == trials


CYCLE = """
import os, signal, sys
from graphflow import END, START, Context, Graph, SqliteJournal, Update, node, resume, run, when
from graphflow.events import NodeStarted
from graphflow.model.ids import path_text
from graphflow.runtime.stored import prepared
from tests.cases.processes import KILLED, in_child, in_loop

class Rounds(Context):
    rounds: int = 0

killed = True

@node(version="1")
async def a(state, step):
    if state.visit == 2 and killed:
        os.kill(os.getpid(), signal.SIGKILL)
    return await step.effect("look", lambda: state.visit)

@node
def b(state):
    return Update(rounds=state.context.rounds + 1)

@node
def x(state):
    return state.context.rounds

def again(state):
    return state.context.rounds < 3

graph = Graph("g", START >> a >> b, b.choose(when(again, a, max_hops=2), default=x), x >> END, context=Rounds)
journal = SqliteJournal("runs.db")

async def first():
    await run(graph, Rounds(), journal=SqliteJournal("runs.db"), run_id="r")

async def second():
    result = await resume(graph, "r", journal=SqliteJournal("runs.db"))
    assert (result.status, result.output, result.context) == ("completed", 3, Rounds(rounds=3)), result
    rows = await SqliteJournal("runs.db").read("r")
    records = [prepared(graph).rows().record("r", row) for row in rows]
    started = [found for record in records for found in record.decisions if isinstance(found, NodeStarted)]
    print(" ".join(path_text(found.path) for found in started), flush=True)

assert in_child(in_loop(first, sys.argv[1])) == KILLED
killed = False
assert in_child(in_loop(second, sys.argv[1])) == 0
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_c5_a_cycle_goes_on_in_a_fresh_process(backend: str, tmp_path: Path) -> None:
    """A loop is killed after its first round; the next process runs what is left, and each visit starts once."""
    lines = run_script(tmp_path, CYCLE, backend)

    assert lines == ["a b a:2 b:2 a:3 b:3 x"]


RACE = """
import sys, time
from pathlib import Path
import anyio
from graphflow import END, START, Context, Graph, SqliteJournal, node, resume
from graphflow.errors import RunLocked
from tests.cases.processes import KILLED, begun_in_child, ended, in_child, in_loop
from tests.cases.processes import Killing
from graphflow import run

@node
async def once(state, step):
    def act():
        with (Path(state.context.folder) / "effects").open("a") as file:
            file.write("x")

    await step.effect("act", act)
    deadline = time.monotonic() + 20
    while not (Path(state.context.folder) / "locked").exists() and time.monotonic() < deadline:
        await anyio.sleep(0.002)  # until the other one has tried
    return "done"

class Folder(Context):
    folder: str

graph = Graph("g", START >> once >> END, context=Folder)

async def broken(folder):
    await run(graph, Folder(folder=str(folder)), journal=Killing(SqliteJournal("runs.db"), 1), run_id=folder.name)

async def resumer(folder, number, begin):
    while time.monotonic() < begin:
        pass  # both begin at the same moment
    try:
        result = await resume(graph, folder.name, journal=SqliteJournal("runs.db"))
    except RunLocked:
        (folder / "locked").touch()
        (folder / f"locked{number}").touch()
    else:
        assert result.output == "done"
        (folder / f"proceeded{number}").touch()

for trial in range(int(sys.argv[2])):
    folder = Path(f"trial{trial}")
    folder.mkdir()
    assert in_child(in_loop(lambda: broken(folder), sys.argv[1])) == KILLED
    begin = time.monotonic() + 0.05
    pids = [
        begun_in_child(in_loop(lambda number=number: resumer(folder, number, begin), sys.argv[1])) for number in (1, 2)
    ]
    assert [ended(pid) for pid in pids] == [0, 0]
    assert (folder / "effects").read_text() == "x"
    assert len(list(folder.glob("proceeded*"))) == 1 and len(list(folder.glob("locked?"))) == 1
    print(trial)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_j13_of_two_that_take_up_a_run_exactly_one_proceeds(backend: str, tmp_path: Path) -> None:
    """Two processes resume one run at the same moment, 100 times: one runs its effect once, the other is refused."""
    trials = 100 if FULL else 4

    lines = run_script(tmp_path, RACE, backend, str(trials))

    assert len(lines) == trials
