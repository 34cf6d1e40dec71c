"""Stored runs that are damaged: they hide no other run, whichever command looks, and can be forked from before."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import pytest

from graphflow import SqliteJournal
from tests.test_cli_runs import DB, Printed, Target, done, rows_of
from tests.test_cli_runs import graphs as graphs  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

FIRST: Final = "(SELECT min(id) FROM rows WHERE id >= 2 << 32 AND id < 3 << 32)"
LAST: Final = "(SELECT max(id) FROM rows WHERE id >= 2 << 32 AND id < 3 << 32)"
MIDDLE: Final = f"(SELECT id FROM rows WHERE id > {FIRST} ORDER BY id LIMIT 1 OFFSET 2)"

DAMAGE: Final = (
    ("decisions = CAST(x'ff' AS TEXT)", "text is UTF-8"),
    ("fact = CAST(x'5bfffe' AS TEXT)", "text is UTF-8"),
    ("fact = x'00ff'", "float, bytes, str"),
    ("fact = NULL", "NoneType"),
    ("at = 'soon'", "str, str, str"),
    ("fact = 'no JSON'", "does not"),
    ("decisions = replace(decisions, '\"', '''')", "checksum"),
)
"""What becomes of a row, and what is said of it."""


def damage(change: str, where: str) -> None:
    """Change a row of the second run in the database, past every check."""
    with closing(sqlite3.connect(DB, isolation_level=None)) as database:
        schema = "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'rows'"
        for statement in ("PRAGMA writable_schema = ON", schema):
            database.execute(statement)
    with closing(sqlite3.connect(DB, isolation_level=None)) as database:
        assert database.execute(f"UPDATE rows SET {change} WHERE id = {where}").rowcount == 1


def three_runs(graphs: Target, capsys: Printed) -> None:
    """Store three runs, the second of which is to be damaged."""
    for run in ("one", "two", "three"):
        done(capsys, "run", graphs("works"), "q", "--run-id", run)


@pytest.mark.parametrize(
    ("change", "says", "where"),
    [*((*kind, MIDDLE) for kind in DAMAGE), *((*kind, where) for kind in DAMAGE[:3] for where in (FIRST, LAST))],
)
def test_a_damaged_run_hides_no_other(graphs: Target, capsys: Printed, change: str, says: str, where: str) -> None:
    """The list names it and says why it cannot be read; the others are listed, shown and exported as ever."""
    three_runs(graphs, capsys)
    whole = done(capsys, "runs", "export", "one")
    damage(change, where)

    code, out, err = done(capsys, "runs", "list")

    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["three", "works", "✓"], ["two", "!", "unreadable"], ["one", "works", "✓"],
    ]  # fmt: skip
    assert "two is unreadable: " in err
    assert says in err
    assert done(capsys, "runs", "export", "one") == whole
    assert done(capsys, "runs", "show", "three")[0] == done(capsys, "replay", "last")[0] == 0
    asked = json.loads(done(capsys, "runs", "list", "--status", "unreadable", "--json")[1])
    assert [(run["run"], run["unreadable"] is not None) for run in asked] == [("two", True)]


@pytest.mark.parametrize(("change", "says"), DAMAGE)
def test_a_damaged_run_is_told_in_one_line_and_can_be_deleted(
    graphs: Target, capsys: Printed, change: str, says: str
) -> None:
    """By each command that needs all of it; what stands before the record can be forked from."""
    three_runs(graphs, capsys)
    damage(change, MIDDLE)
    ends = [rows_of("one")[number].seq for number in (1, 2)]

    told = [done(capsys, *words) for words in (("runs", "show", "two"), ("replay", "two"), ("resume", "two"))]
    forked = done(capsys, "fork", "two", "--at", str(ends[0]), "--run-id", "four")
    removed = done(capsys, "runs", "delete", "two", "--yes")

    assert [(code, out, err.count("\n")) for code, out, err in told] == [(5, "", 1)] * 3
    assert all(f"the stored run 'two', record {rows_of('one')[3].seq} cannot be read: " in err for _, _, err in told)
    assert forked[0] == 0, forked[2]
    assert removed[:2] == (0, "deleted two\n")
    assert [run.run for run in anyio.run(SqliteJournal(DB).runs)] == ["one", "three", "four"]


@pytest.mark.parametrize("change", [change for change, _ in DAMAGE[:5]])
def test_an_export_of_a_row_that_is_none_is_refused(graphs: Target, capsys: Printed, change: str) -> None:
    """With one line, and without half a file."""
    three_runs(graphs, capsys)
    damage(change, MIDDLE)

    code, out, err = done(capsys, "runs", "export", "two", "-o", "two.jsonl")

    assert (code, out, err.count("\n")) == (5, "", 1)
    assert not Path("two.jsonl").exists()


def test_an_id_that_is_no_text_hides_no_run(graphs: Target, capsys: Printed) -> None:
    """It is shown by its bytes."""
    three_runs(graphs, capsys)
    with closing(sqlite3.connect(DB, isolation_level=None)) as database:
        database.execute("UPDATE runs SET run = CAST(x'74ff6f' AS TEXT) WHERE run = 'two'")

    code, out, _ = done(capsys, "runs", "list")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["three", r"t\xffo", "one"]


def test_pages_that_are_none_hide_no_run_on_others(graphs: Target, capsys: Printed) -> None:
    """A run whose rows lie on them is named as damaged, and each other one is listed."""
    for run in ("one", "two", "three"):
        done(capsys, "run", graphs("works"), "q" * 40_000, "--run-id", run)
    with closing(sqlite3.connect(DB, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE").fetchall()
        size = database.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(Path(DB).read_bytes())
    leaves = [start for start in range(size, len(content), size) if content[start] == LEAF and start > 3 * size]
    middle = leaves[len(leaves) // 2]
    content[middle : middle + size] = bytes(size)
    Path(DB).write_bytes(content)

    code, out, err = done(capsys, "runs", "list")

    status = [line.split()[1:3] for line in out.splitlines()[1:]]
    assert code == 0, err
    assert len(status) == 3
    assert ["!", "unreadable"] in status
    assert ["works", "✓"] in status
    assert "is unreadable: the " in err


LEAF: Final = 13
"""How a page of a table begins that holds rows."""
