"""Cases R1, R3 and R9 with journals: a stored run cannot run code, an id is only an id, a secret is nowhere."""

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Graph,
    Human,
    SqliteJournal,
    fork_run,
    replay,
    resume,
    run,
)
from graphflow.errors import JournalError, NodeFailed, RunExists, UnknownRun, UsageError
from graphflow.events import Journal, Row
from graphflow.runtime.checksums import chained, without_checksum
from graphflow.testing import MemoryJournal
from tests.cases.stored import RUN, Plan, Stage, copied, play
from tests.cases.stored_functions import Log, says
from tests.cases.stored_plans import PLANS
from tests.cases.stored_values import VALUES, carrying
from tests.support import examples

# --- R1 --------------------------------------------------------------------------------------------------------------


def envelopes(canary: Path) -> list[Any]:
    """Give what other loaders would run: calls, constructors, modules, paths, types, in every form that is known."""
    code = f"open({str(canary)!r}, 'w').close()"
    touch = f"touch {canary}"
    return [
        {"$": "os:system", "is": touch},
        {"$": "builtins:exec", "is": code},
        {"$": "builtins.eval", "args": [code]},
        {"$": "subprocess:Popen", "args": [touch], "shell": True},
        {"$": "type", "is": "os:system"},
        {"$": "type", "name": "builtins:eval", "of": [code]},
        {"$": "Report", "finding": {"$": "os:system", "is": touch}},
        {"$": "PurePosixPath", "is": str(canary)},
        {"$": "PosixPath", "is": str(canary)},
        {"$": "function", "code": code},
        {"$": "secret", "name": "__class__"},
        {"$": "Update", "of": {"__class__": "os", "__init__": code}},
        {"$": "Enum", "is": "__import__"},
        {"$": "Budget", "usd": {"$": "Decimal", "is": "__import__('os')"}},
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": touch}},
        {"py/object": "subprocess.Popen", "py/newargs": [touch]},
        {"py/reduce": [{"py/type": "os.system"}, {"py/tuple": [touch]}]},
        {"__reduce__": ["os.system", [touch]], "__class__": "os", "__module__": "os"},
        {"$type": "os.system, os", "$values": [touch]},
        {"@class": "os.system", "args": [touch]},
        f"!!python/object/apply:os.system [{touch!r}]",
        f"__import__('os').system({touch!r})",
        f"cos\nsystem\n({touch!r}\ntR.",
        {"$": {"$": "os:system"}},
        {"$": None},
        {"$": "graphflow.runtime.runner:Runner", "setup": None},
        {"$": "tests.cases.stored_values:Order", "number": 1},
        [["os", "system"], touch],
        10**400,
        "x" * 100_000,
        -1,
        True,
        None,
        [],
        {},
    ]


def mutants(rows: tuple[Row, ...], canary: Path, rng: random.Random) -> Iterator[tuple[Row, ...]]:
    """Give rows with one piece replaced, taken out, doubled or renamed, for ever; their checksums fit.

    Whoever can write into a store can write checksums, and must not make anything run all the same.
    """
    while True:
        changed = list(rows)
        at = rng.randrange(len(rows))
        row = rows[at]
        part = rng.choice(["fact", "decisions"])
        data = json.loads(row.fact if part == "fact" else without_checksum(row.decisions))
        _mutate(data, canary, rng)
        text = json.dumps(data)
        changed[at] = Row(
            row.seq, row.at, text if part == "fact" else row.fact, text if part != "fact" else row.decisions
        )
        yield tuple(chained(changed))


def _mutate(data: Any, canary: Path, rng: random.Random) -> None:
    """Change one place in JSON data."""
    places: list[tuple[Any, Any]] = []
    todo = [data]
    while todo:
        item = todo.pop()
        keys: list[Any] = [*item] if isinstance(item, dict) else [*range(len(item))]
        places += [(item, key) for key in keys]
        todo += [item[key] for key in keys if isinstance(item[key], (dict, list))]
    if not places:
        data.append(rng.choice(envelopes(canary)))
        return
    holder, key = rng.choice(places)
    how, table = rng.randrange(5), type(holder) is dict
    if how == 0:
        del holder[key]
    elif how == 1 and table:
        holder[rng.choice(["$", "__class__", "more", "os:system", ""])] = holder.pop(key)
    elif how == 2 and not table:
        holder.insert(key, rng.choice(envelopes(canary)))
    else:
        holder[key] = rng.choice(envelopes(canary))


STORED = ["everything", "team", "batch", "nested", "handing", "seconds of agents", "waiting", "failing"]


@pytest.mark.parametrize("name", [*STORED, "a generic model", "an enum in a model", "types of ours", "containers"])
async def test_r1_a_journal_that_was_tampered_with_runs_nothing(name: str, tmp_path: Path) -> None:
    """A mutated run is refused by a typed error or ends as it did; no file is made, no module imported, none called."""
    plan = PLANS[name] if name in PLANS else carrying(VALUES[name], "an output")
    stage, canary, rng = Stage(plan), tmp_path / "canary", random.Random(name)
    whole = await play(plan, MemoryJournal(), stage)
    with contextlib.suppress(NodeFailed):
        await replay_of(stage, whole.rows)  # all that is needed is imported now
    modules, trials = set(sys.modules), examples(1000)
    refused = raised = 0

    for rows in (found for found, _ in zip(mutants(whole.rows, canary, rng), range(trials), strict=False)):
        stage.calls.made.clear()
        try:
            again = await replay_of(stage, rows)
        except NodeFailed:
            raised += 1
        except (JournalError, UsageError):
            refused += 1
        else:
            assert again.status == whole.result.status
        assert not stage.calls.made

    assert refused > trials / 2
    assert not raised or whole.error is not None
    assert not canary.exists()
    assert set(sys.modules) == modules
    assert not files_of(tmp_path)


def files_of(folder: Path) -> set[str]:
    """Give the names in a folder."""
    return {path.name for path in folder.iterdir()}


async def replay_of(stage: Stage[Any], rows: tuple[Row, ...]) -> Any:
    """Replay rows."""
    return await replay(stage.graph, RUN, journal=await copied(rows, MemoryJournal()), changed="compatible")


@pytest.mark.parametrize("part", ["fact", "decisions"])
@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", "[[]]", "[null]", '["os:system","x"]', "[" * 5000, '["run_started/1"]',
     '["run_started/9"]', '["run_started/-1","x"]', "NaN", "[NaN]", '"x"', '["node_returned"]',
     '["node_returned","a",1e999,0]', "\ufeff[]"],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 3])
async def test_r1_a_row_that_is_none_is_damage(at: int, text: str, part: str) -> None:
    """Whatever stands there instead of a row, the error is one of ours, and names the run; nothing is written."""
    stage = Stage(PLANS["chain"])
    whole = await play(PLANS["chain"], MemoryJournal(), stage)
    row = whole.rows[at]
    changed = Row(row.seq, row.at, text if part == "fact" else row.fact, text if part != "fact" else row.decisions)
    journal = await copied(chained((*whole.rows[:at], changed, *whole.rows[at + 1 :])), MemoryJournal())
    rows = await journal.read(RUN)
    if part == "decisions" and at == 3 and text == "[]":
        return  # the very decisions of that row

    for act in (resume, replay, fork_run):
        with pytest.raises(JournalError):
            await act(stage.graph, RUN, journal=journal)

    assert await journal.read(RUN) == rows
    assert [found.run for found in await journal.runs()] == [RUN]


async def test_r1_rows_that_are_missing_doubled_or_out_of_order_are_damage() -> None:
    """A row that was taken out, put elsewhere or has another number or time is found, also if the checksums fit."""
    stage = Stage(PLANS["chain"])
    rows = (await play(PLANS["chain"], MemoryJournal(), stage)).rows
    late, early = rows[5], rows[2]
    wrong = [
        rows[1:],
        (*rows[:3], *rows[4:]),
        (*rows[:4], Row(rows[4].seq + 1, rows[4].at, rows[4].fact, rows[4].decisions)),
        (*rows[:2], Row(early.seq, 99.0, early.fact, early.decisions), *rows[3:]),
        (*rows[:3], Row(rows[3].seq, late.at, late.fact, late.decisions), *rows[4:]),
        (*rows[:1], Row(rows[1].seq, rows[0].at, rows[0].fact, rows[0].decisions)),
    ]

    for found in wrong:
        for stored in (found, tuple(chained(found))):
            with pytest.raises(JournalError):
                await replay_of(stage, stored)


# --- R3 --------------------------------------------------------------------------------------------------------------

HOSTILE = [
    "x') OR '1'='1", "'; DROP TABLE rows; --", '"', "'", "`", "\\", "%", "_", "*", "?", "a b", " a", "a ", "..",
    ".", "/", "../../etc/passwd", "/tmp/x", "C:\\x", "con", "a\nb", "\t", "é", "e\u0301", "🙂", "\u202e",
    "$(touch x)", "{}", "%s",
    "x" * 5000, ":memory:", "-1", "0", "NULL", "run; rm -rf .", "\x7f", "\ufeff",
]  # fmt: skip


def store(kind: str, folder: Path) -> Journal:
    """Make a journal of a kind."""
    return MemoryJournal() if kind == "memory" else SqliteJournal(folder / "inside" / "runs.db")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_r3_an_id_is_only_an_id(kind: str, tmp_path: Path) -> None:
    """Hostile ids are ids like others: each finds its own run alone, and no file is made outside of the journal."""
    journal = store(kind, tmp_path)
    graph = Graph("g", START >> Human("ask", "q?") >> END, context=Log)
    for name in HOSTILE:
        with pytest.raises(UnknownRun):
            await resume(graph, name, journal=journal)
        await run(graph, Log(goal=name), journal=journal, run_id=name)

    for name in HOSTILE:
        with pytest.raises(RunExists):
            await run(graph, Log(), journal=journal, run_id=name)
        result = await resume(graph, name, journal=journal, answers={"ask": name})
        assert (result.run_id, result.output, result.context.goal) == (name, name, name)
        assert await replay(graph, name, journal=journal) == result
    assert [found.run for found in await journal.runs()] == HOSTILE
    for name in HOSTILE[::2]:
        assert await journal.delete(name)
    assert [found.run for found in await journal.runs()] == HOSTILE[1::2]
    for name in HOSTILE:
        assert bool(await journal.read(name)) == (name in HOSTILE[1::2])
    assert files_of(tmp_path) <= {"inside"}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "\x00", 7, b"run", ("x",)])
async def test_r3_what_is_no_id_is_refused_before_anything_runs(name: Any, kind: str, tmp_path: Path) -> None:
    """What no journal can store is refused everywhere, and the graph is not begun."""
    journal = store(kind, tmp_path)
    stage = Stage(Plan(make=lambda calls: Graph("g", START >> says(calls, "a") >> END, context=Log), context=Log()))

    with pytest.raises(UsageError, match="cannot be the id of a run"):
        await run(stage.graph, Log(), journal=journal, run_id=name)
    for act in (resume, replay, fork_run):
        with pytest.raises(UsageError, match="cannot be the id of a run"):
            await act(stage.graph, name, journal=journal)
    for ask in (journal.read, journal.claim, journal.delete):
        with pytest.raises(UsageError, match="cannot be the id of a run"):
            await ask(name)

    assert not stage.calls.made
    assert not await journal.runs()
