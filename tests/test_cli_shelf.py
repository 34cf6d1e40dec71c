"""What is stored of runs on the command line: listed, shown, compared, exported, imported, deleted, made tests of."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from graphflow import Budget, SqliteJournal
from graphflow.cli import main
from graphflow.cli.board import Board
from graphflow.cli.crossing import crossing_lines, crossings_of
from graphflow.cli.shelf import ago, moment
from graphflow.cli.stored import PlainCodec, read_rows, summary_of
from graphflow.errors import JournalDamaged
from graphflow.events import (
    BudgetAdded,
    EdgeName,
    Event,
    NodeStarted,
    Row,
    RunEnded,
    RunStarted,
    SessionStarted,
    StoredRun,
)
from graphflow.model.contract import Reason
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Segment
from graphflow.persistence.lines import read_run, run_lines
from graphflow.runtime.checksums import chained
from graphflow.testing.stored import plain, read_journal, replayed, rows_in
from graphflow.visualize import run_tree
from tests.support import ROOT
from tests.test_cli_runs import DB, Printed, Target, cut_off, done, rows_of
from tests.test_cli_runs import graphs as graphs  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

DESK: Final = str(ROOT / "examples" / "support_desk.py")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def store_each(graphs: Target, capsys: Printed) -> None:
    """Store a run of each kind."""
    for name in ("works", "asks", "tight", "breaks"):
        done(capsys, "run", graphs(name), "q", "--run-id", name)
    cut_off("works", "cut", 3)


# --- listing ---------------------------------------------------------------------------------------------------------


def test_runs_are_listed_the_newest_first(graphs: Target, capsys: Printed) -> None:
    """Each has a line, with how it stands; what is open may be at work or broken off, which is said."""
    store_each(graphs, capsys)

    code, out, err = done(capsys, "runs", "list")

    head, *lines = out.splitlines()
    assert code == 0
    assert head.split() == ["RUN", "GRAPH", "STATUS", "STARTED", "LAST", "EVENTS"]
    assert [line.split()[:4] for line in lines] == [
        ["cut", "works", "‖", "open"],
        ["breaks", "breaks", "✗", "failed"],
        ["tight", "tight", "✗", "exhausted"],
        ["asks", "asks", "?", "waiting"],
        ["works", "works", "✓", "completed"],
    ]
    assert len({len(line) for line in (head, *lines)}) == 1
    assert "open: at work somewhere, or broken off" in err


def test_the_list_can_be_narrowed(graphs: Target, capsys: Printed) -> None:
    """By status, by graph and in number; what is left out is counted, and nothing that is asked for is code."""
    store_each(graphs, capsys)

    def ids(*words: str) -> list[str]:
        return [run["run"] for run in json.loads(done(capsys, "runs", "list", "--json", *words)[1])]

    assert ids("--status", "open") == ["cut"]
    assert ids("--graph", "works") == ["cut", "works"]
    assert ids("--graph", "works", "--status", "completed") == ["works"]
    assert ids("--graph", "' OR '1'='1") == ids("--graph", "works'; DROP TABLE runs; --") == []
    assert ids("--limit", "2") == ["cut", "breaks"]
    assert "and 3 older runs: --limit 5 shows all." in done(capsys, "runs", "list", "--limit", "2")[2]
    assert done(capsys, "runs", "list", "--status", "waiting", "--graph", "works")[1:] == ("", "no stored run is so.\n")
    assert done(capsys, "runs", "list", "--status", "bad")[0] == 2


def test_a_run_that_waits_waits_whatever_it_was_given(graphs: Target, capsys: Printed) -> None:
    """More budget does not answer a question, nor does a session that ended before the answer was stored."""
    for name in ("more", "answered"):
        done(capsys, "run", graphs("asks"), "q", "--run-id", name)
    done(capsys, "resume", "more", "--budget", "node_runs=1")
    done(capsys, "resume", "answered", "--answer", "which=pear")
    began = next(place for place, row in enumerate(rows_of("answered")) if "session_started" in row.fact)
    cut_off("answered", "cut", began + 1)
    done(capsys, "runs", "export", "more", "-o", "more.jsonl")

    listed = json.loads(done(capsys, "runs", "list", "--json", "--status", "waiting")[1])
    shown = done(capsys, "runs", "show", "more")[1]
    brought = json.loads(done(capsys, "runs", "import", "more.jsonl", "--as", "again", "--json")[1])

    assert {run["run"]: run["status"] for run in listed} == {"more": "waiting", "cut": "waiting"}
    assert done(capsys, "runs", "list", "--status", "open")[1] == ""
    assert "waiting" in shown.splitlines()[1]
    assert brought["status"] == "waiting"


def test_an_empty_list_is_no_trouble(graphs: Target, capsys: Printed) -> None:
    """And makes no database."""
    assert done(capsys, "runs", "list") == (0, "", "no run is stored in .graphflow/runs.db.\n")
    assert done(capsys, "runs", "list", "--json") == (0, "[]\n", "")
    assert not Path(".graphflow").exists()


def test_a_run_that_cannot_be_read_is_listed_all_the_same(graphs: Target, capsys: Printed) -> None:
    """It hides no other."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    store("newer", [Row(0, 0.5, '["run_started/99","newer"]', "[]")])
    store("odd", [Row(0, 0.5, "no JSON", "[]")])

    code, out, _ = done(capsys, "runs", "list")

    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["odd", "!", "unreadable"], ["newer", "!", "unreadable"], ["one", "works", "✓"],
    ]  # fmt: skip
    assert done(capsys, "runs", "show", "newer")[0] == 5


def store(run: str, rows: Sequence[Row], db: str = DB) -> None:
    """Store rows as they are."""

    async def write() -> None:
        writer = await SqliteJournal(db).claim(run)
        for row in rows:
            await writer.append(row)
        await writer.release()

    anyio.run(write)


def test_times_are_told_for_people() -> None:
    """When a run began as a time of day, what happened last by how long ago it was."""
    told = [ago(0.0, seconds) for seconds in (-5.0, 0.0, 30.0, 61.0, 7_300.0, 90_000.0)]

    assert told == ["just now", "just now", "30 seconds ago", "1 minute ago", "2 hours ago", "1 day ago"]
    assert (ago(None, 1.0), moment(None), moment(1e300)) == ("", "", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", moment(1e9))


# --- showing ---------------------------------------------------------------------------------------------------------


def test_a_run_is_shown_without_its_graph(graphs: Target, capsys: Printed) -> None:
    """Head, tree, and how to go on; the file of the graph may be gone."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    Path("graphs_of_tests.py").unlink()

    code, out, _ = done(capsys, "runs", "show", "one")

    lines = out.splitlines()
    assert code == 0
    assert lines[:1] == ["run one"]
    assert re.fullmatch(
        r"\? waiting · graph asks · started \S+ \S+ · last activity .* · 21 events in 10 records", lines[1]
    )
    assert lines[2:4] == ["target graphs_of_tests.py:asks", ""]
    assert re.sub(r" [\d.]+ s\b", "", "\n".join(lines[4:])) == (
        "? asks  waiting · 2 node runs · 4 tool calls ·\n├─ ✓ work  4 tool calls ·\n└─ ? which  waiting\n"
        "   └─ ? Which fruit?\n\nwhich: Which fruit?\n\nto go on with it: graphflow resume one"
    )


def test_a_run_that_a_bound_stopped_says_what_lifts_it(graphs: Target, capsys: Printed) -> None:
    """More of a budget does; of a bound of the structure it does not, and a resume would only repeat it."""
    done(capsys, "run", graphs("tight"), "q", "--run-id", "one")
    done(capsys, "run", graphs("ring"), "q", "--run-id", "two")

    budget, structure = (done(capsys, "runs", "show", run)[1].splitlines()[-1] for run in ("one", "two"))

    assert budget == "to go on with it: graphflow resume one --budget tool_calls=N"
    assert structure.startswith("max_hops is no budget, so no resume lifts it: change the graph")
    assert structure.endswith("graphflow fork two --at SEQ")


def test_events_are_shown_with_their_numbers(graphs: Target, capsys: Printed) -> None:
    """They are what `fork --at` takes."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")

    _, out, _ = done(capsys, "runs", "show", "one", "--events")
    data = json.loads(done(capsys, "runs", "show", "one", "--events", "--json")[1])

    numbers = [int(line.split()[0]) for line in out.splitlines() if re.match(r" *\d+ ", line)]
    assert numbers == [event["seq"] for event in data["events"]] == list(range(data["events"][-1]["seq"] + 1))
    assert data["events"][0]["body"]["context"] == {"question": "q", "log": []}
    assert data["spent"]["tool_calls"] == 4


def test_what_crossed_each_boundary_is_shown(graphs: Target, capsys: Printed) -> None:
    """Messages that crossed and those left out, briefs down, reports up."""
    done(capsys, "run", DESK, "--run-id", "one")

    _, out, _ = done(capsys, "runs", "show", "one", "--boundaries")
    found = json.loads(done(capsys, "runs", "show", "one", "--boundaries", "--json")[1])["boundaries"]

    assert out.partition("\n\n")[2] == (
        "desk  (next: START → desk)\n"
        "  sees    message 0, 57 bytes\n"
        "desk > billing  (delegate: desk → billing)\n"
        "  brief   What is wrong with INV-311, and what should be done?\n"
        "  sees    no message, 259 bytes; left out: message 0\n"
        "  report  done: INV-311 was paid twice\n"
        "          action needed: refund 49.00\n"
        "desk > shipping  (delegate: desk → shipping)\n"
        "  brief   Where is order A-7?\n"
        "  sees    no message, 227 bytes; left out: message 0\n"
        "  report  done: parcel in transit, ETA 2026-09-30\n"
    )
    assert [entry["path"] for entry in found] == ["desk", "desk/billing@0.0", "desk/shipping@0.1"]
    assert found[1]["brief"] == {"objective": "What is wrong with INV-311, and what should be done?"}
    assert (found[1]["crossed"], found[1]["dropped"], found[1]["bytes"]) == ([], [[0, 0]], 259)
    assert found[2]["report"]["finding"] == "parcel in transit, ETA 2026-09-30"


def test_briefs_of_functions_and_notes_of_handoffs_are_shown(graphs: Target, capsys: Printed) -> None:
    """Whoever asks or hands over, what the other was told stands there."""
    done(capsys, "run", graphs("team"), "q", "--run-id", "one")
    done(capsys, "run", f"{DESK}:chat", "I was charged twice on INV-311.", "--run-id", "two")

    asked = done(capsys, "runs", "show", "one", "--boundaries")[1]
    handed = done(capsys, "runs", "show", "two", "--boundaries")[1]

    assert "lead > worker  (delegate: lead → worker)\n  brief   look at it\n  report  done: did: look at it\n" in asked
    assert "  brief   look again\n  report  done: did: look again\n" in asked
    assert "billing  (handoff: triage → billing)\n  note    It seems to be about a bill: charged.\n" in handed


def test_a_fork_says_where_it_comes_from(graphs: Target, capsys: Printed) -> None:
    """And a run of several sessions how many there were."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    done(capsys, "fork", "one", "--run-id", "two", "--answer", "which=pear")

    _, out, _ = done(capsys, "runs", "show", "two")
    data = json.loads(done(capsys, "runs", "show", "two", "--json")[1])

    assert "forked from one after event 20\n" in out
    assert "· 2 sessions\n" in out
    assert (data["forked"], data["sessions"], data["status"]) == ({"run": "one", "at": 20}, 2, "completed")
    assert data["questions"] == []


def test_what_is_stored_is_never_obeyed_by_a_terminal(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, names, questions and values are shown with escapes, whichever command shows them."""
    evil = "id\x1b[2J\u202e"
    done(capsys, "run", graphs("evil_graph"), "q\x1b[1m", "--run-id", "tame")
    cut_off("tame", evil, 99)
    cut_off("tame", f"{evil}2", 2)
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    for words in (
        ["runs", "list"], ["runs", "show", evil], ["runs", "show", evil, "--events"],
        ["runs", "show", evil, "--boundaries"], ["diff", evil, f"{evil}2"], ["resume", evil, "--quiet"],
        ["replay", evil], ["runs", "show", "no\x1b[2J"], ["runs", "delete", f"{evil}2", "--yes"],
        ["runs", "pytest", evil, "-o", "test_evil.py"],
    ):  # fmt: skip
        main(words)

    text = out.getvalue() + err.getvalue()
    assert r"id\x1b[2J\u202e" in text
    assert not set("\x1b\x07\u202e") & set(text)
    assert "\x1b" not in Path("test_evil.py").read_text("utf-8")


# --- reading without the graph ---------------------------------------------------------------------------------------


def table(**fields: Any) -> FrozenDict[str, Any]:
    """What an object of a class that only the graph knows is shown as."""
    return FrozenDict(fields)


PLAIN: Final[tuple[tuple[Any, Any], ...]] = (
    ({"$": "Bill", "number": "I-1", "lines": [1, {"$": "list", "of": [2]}]}, table(number="I-1", lines=(1, [2]))),
    ({"$": "Bill", "$unset": ["a"], "a": 1, "$extra": {"b": 2}}, table(a=1, b=2)),
    ({"$": "dict", "of": {"a": {"$": "X"}}}, table(a=table())),
    ({"$": "dict", "pairs": [[{"$": "X", "n": 1}, 2], "odd", []]}, table(**{"FrozenDict({'n': 1})": 2})),
    ({"$": "Fruit", "is": "pear"}, "pear"),
    ({"$": "secret", "name": "token"}, "**********"),
    ({"$": "X", "at": {"$": "secret", "name": "token"}}, table(at="**********")),
    ({"$": "os:system", "of": "ls"}, table(of="ls")),
    ({"$": 3, "of": "ls"}, table(of="ls")),
    ([{"$": "Report", "finding": 3}], (table(finding=3),)),
)
"""Stored data, and what is shown of it."""


@pytest.mark.parametrize(("data", "value"), PLAIN)
def test_values_of_unknown_classes_are_plain_data(data: Any, value: Any) -> None:
    """Whatever stands there, it is shown and nothing else."""
    assert PlainCodec().decode(data) == value


def test_values_that_are_nested_too_deep_are_cut() -> None:
    """A stored value may be as deep as it likes."""
    data: Any = {"$": "X"}
    for _ in range(3000):
        data = {"$": "X", "a": data}

    found: Any = PlainCodec().decode(data)

    depth = 0
    while found != "...":
        found, depth = found["a"], depth + 1
    assert depth == 100


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (chained([Row(0, 0.5, '["run_started/2","two"]', "[]")]), "run_started/2 has 1 values"),
        ([Row(0, 0.5, '["run_started/2","two"]', "[]")], "it has no checksum"),
        ([Row(0, 0.5, '["run_started/1","two"]', '["01234567"]')], "it has a checksum, and rows of format 1 have none"),
        ([Row(0, 0.5, '["node_returned","a",0,0]', "[]")], "it does not begin with the start of a run"),
        ([Row(0, 0.5, '["run_started/99"]', "[]")], "it is of format 99"),
        ([Row(3, 0.5, '["run_started/2"]', "[]")], "it does not begin with the start of a run"),
    ],
)
def test_rows_that_are_no_run_are_refused(rows: list[Row], complaint: str) -> None:
    """A display is no reason to believe anything."""
    with pytest.raises(JournalDamaged, match=re.escape(complaint)):
        read_rows("one", rows)


def test_a_summary_says_what_it_can() -> None:
    """What cannot be read is unreadable, and that is no error."""
    odd = Row(0, 0.5, "[]", "[]")

    summary = summary_of(StoredRun("one", odd, odd, 7))

    assert (summary.status, summary.graph, summary.records, summary.started) == ("unreadable", "", 7, None)


# --- comparing -------------------------------------------------------------------------------------------------------


def test_runs_that_did_the_same_differ_in_nothing(graphs: Target, capsys: Printed) -> None:
    """Times, ids, sessions and the order in which branches took turns are no difference."""
    for run in ("one", "two"):
        done(capsys, "run", graphs("both"), "q", "--run-id", run)
    done(capsys, "resume", "one", "--answer", "a=1", "--answer", "b=x")
    done(capsys, "resume", "two", "--answer", "b=x")
    done(capsys, "resume", "two", "--answer", "a=1")

    waited = done(capsys, "diff", "one", "two", "--json")
    same = done(capsys, "diff", "one", "one", "--json")

    assert (same[0], json.loads(same[1])["equal"]) == (0, True)
    assert json.loads(waited[1])["state"] == {}


def test_the_first_event_that_differs_is_shown(graphs: Target, capsys: Printed) -> None:
    """With what differs in it, and what that makes of the end."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    done(capsys, "fork", "one", "--run-id", "two", "--answer", "which=apple")
    done(capsys, "resume", "one", "--answer", "which=pear")

    code, out, _ = done(capsys, "diff", "one", "two")

    assert code == 1
    assert out == (
        "a  one · asks · ✓ completed\n"
        "b  two · asks · ✓ completed · forked from one after event 20\n"
        "\n"
        "1 event only in a, 1 event only in b; the first:\n"
        "a  event 22  answer_given\n"
        "b  event 22  answer_given\n"
        "   value\n"
        "a    pear\n"
        "b    apple\n"
        "in the end:\n"
        "   output\n"
        "a    pear\n"
        "b    apple\n"
    )


def test_a_run_differs_from_its_own_beginning(graphs: Target, capsys: Printed) -> None:
    """One side has no other event; and what the state is stays unknown where the graph is."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    cut_off("one", "cut", 3)
    Path("graphs_of_tests.py").unlink()

    code, out, _ = done(capsys, "diff", "one", "cut", "--json")

    found = json.loads(out)
    assert code == 1
    assert found["first_difference"][1] is None
    assert found["events_only_in"][1] == 0
    assert found["state"]["status"] == ["completed", "open"]
    assert "there is no file 'graphs_of_tests.py'" in found["not_compared"]
    assert "context and output are not compared" in done(capsys, "diff", "one", "cut")[1]


def test_runs_of_different_graphs_can_be_compared(graphs: Target, capsys: Printed) -> None:
    """Each is folded by its own graph."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    done(capsys, "run", graphs("tight"), "other", "--run-id", "two")

    code, out, _ = done(capsys, "diff", "one", "two", "--json")

    state = json.loads(out)["state"]
    assert code == 1
    assert state["graph"] == ["works", "tight"]
    assert state["context.question"] == ["q", "other"]
    assert state["spent tool_calls"] == [4, 2]
    assert state["output"] == [{"text": "q", "found": [1, 2]}, None]


# --- files -----------------------------------------------------------------------------------------------------------


def test_an_exported_run_comes_back_as_it_was(graphs: Target, capsys: Printed) -> None:
    """Row by row, in another database; it is gone on with once its graph is named."""
    done(capsys, "run", graphs("asks"), "q é \u2028 \x7f", "--run-id", "one")
    exported = done(capsys, "runs", "export", "one")
    written = done(capsys, "runs", "export", "one", "-o", "one.jsonl")

    code, out, err = done(capsys, "runs", "import", "one.jsonl", "--db", "other.db")
    resumed = done(capsys, "resume", "one", "--db", "other.db", "--target", graphs("asks"), "--answer", "which=pear")

    assert Path("one.jsonl").read_text("utf-8") == exported[1]
    assert (written[1], written[2]) == ("", "one: 10 records written to one.jsonl\n")
    assert (code, out) == (0, "run one: asks, waiting, 10 records; stored in other.db\n")
    assert "graphflow resume one --db other.db --target path.py" in err
    assert rows_of("one", "other.db")[:10] == rows_of("one")
    assert resumed[:2] == (0, '"pear"\n')


def test_a_run_can_be_imported_under_another_id(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So two copies can be compared; an id that is taken is refused."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    _, text, _ = done(capsys, "runs", "export", "one")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    Path("one.jsonl").write_text(text, "utf-8")

    renamed = done(capsys, "runs", "import", "-", "--as", "two", "--json")
    taken = done(capsys, "runs", "import", "one.jsonl")

    assert (renamed[0], json.loads(renamed[1])) == (
        0, {"run": "two", "graph": "works", "status": "completed", "records": 11},
    )  # fmt: skip
    assert (taken[0], taken[2]) == (
        2, "graphflow: a run 'one' is stored already in .graphflow/runs.db: import it --as another.\n",
    )  # fmt: skip
    assert done(capsys, "diff", "one", "two", "--target", graphs("works"))[0] == 0


Lines = list[str]
Change = Callable[[Lines], Lines]


def uncounted(head: str) -> str:
    """The first line of an export as older versions wrote it."""
    return head.partition(',"records"')[0] + "}"


NO_RUNS: Final[tuple[tuple[Change, int, str], ...]] = (
    (lambda _: [], 2, "there is no line in it"),
    (lambda lines: ["{}", *lines[1:]], 2, "line 1 is no line of a stored run: its format is None"),
    (lambda lines: lines[1:], 2, "line 1 is no line of a stored run"),
    (lambda lines: [*lines[:3], "}", *lines[3:]], 2, "line 4 is no line of a stored run"),
    (lambda lines: [*lines[:2], lines[2].replace('"seq"', '"s"')], 2, "line 3 is no line of a stored run: a row"),
    (lambda lines: [*lines[:2], lines[2].replace('"at":', '"at":"')], 2, "line 3 is no line of a stored run"),
    (lambda lines: lines[:1], 2, "it was cut off: its first line tells of 11 records, and 0 are there, so all are"),
    (lambda lines: lines[:-1], 2, "11 records, and 10 are there, so the last is missing. Export the run again"),
    (lambda lines: [*lines, lines[-1]], 2, "its first line tells of 11 records, and 12 are there. Export the run"),
    (lambda lines: [lines[0].replace("11", '"11"'), *lines[1:]], 2, "the number of its records is '11'"),
    (lambda lines: [uncounted(lines[0])], 5, "cannot be read"),
    (lambda lines: [*lines[:2], *lines[3:]], 2, "and 10 are there"),
    (
        lambda lines: [uncounted(lines[0]), lines[1], *lines[3:]],
        5,
        "its checksum does not fit what stands there and before it",
    ),
    (
        lambda lines: [uncounted(lines[0]), lines[1], *lines[1:]],
        5,
        "record 0 cannot be read: its checksum does not fit",
    ),
    (
        lambda lines: [*lines[:2], lines[2].replace('"at":', '"at":1'), *lines[3:]],
        5,
        "its checksum does not fit what stands",
    ),
    (lambda lines: [lines[0].replace("one", "two"), *lines[1:]], 5, "it does not begin with the start of this run"),
    (lambda lines: [line.replace("run_started/2", "run_started/3") for line in lines], 5, "it is of format 3"),
    (lambda lines: [line.replace("effect_requested", "guessed") for line in lines], 5, "its checksum does not fit"),
)
"""What is done to the lines of a run, the exit code, and what is said."""


@pytest.mark.parametrize(("change", "code", "complaint"), NO_RUNS)
def test_a_file_that_is_no_run_is_refused_whole(
    graphs: Target, capsys: Printed, change: Change, code: int, complaint: str
) -> None:
    """All of it is looked at before anything is stored, and one line says what is wrong."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    lines = done(capsys, "runs", "export", "one")[1].splitlines()
    Path("one.jsonl").write_text("\n".join(change(lines)) + "\n", "utf-8")

    ended = done(capsys, "runs", "import", "one.jsonl", "--db", "other.db")

    assert ended[0] == code
    assert complaint in ended[2]
    assert ended[2].count("\n") == 1
    assert not Path("other.db").exists()


@pytest.mark.parametrize("length", [0.1, 0.5, 0.9, 0.999])
def test_an_export_that_was_cut_off_anywhere_is_refused(graphs: Target, capsys: Printed, length: float) -> None:
    """In the middle of a line or between two: nothing is stored, and one line says what to do or where it ends."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    text = done(capsys, "runs", "export", "one")[1]
    for cut in (text[: int(len(text) * length)], text[: text.rindex("\n", 0, int(len(text) * length)) + 1]):
        Path("one.jsonl").write_text(cut, "utf-8")

        code, out, err = done(capsys, "runs", "import", "one.jsonl", "--as", "two")

        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "it was cut off" in err or "the last line has no end" in err
    assert rows_of("two") == []


def test_an_export_of_an_older_version_is_taken_with_a_note(graphs: Target, capsys: Printed) -> None:
    """It has no number of records: nothing tells whether the last are missing, unless the run goes on behind them."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    head, *rows = done(capsys, "runs", "export", "one")[1].splitlines(keepends=True)
    Path("one.jsonl").write_text("".join([uncounted(head) + "\n", *rows]), "utf-8")
    Path("two.jsonl").write_text("".join([uncounted(head) + "\n", *rows[:-1]]), "utf-8")

    whole = done(capsys, "runs", "import", "one.jsonl", "--as", "whole")
    half = done(capsys, "runs", "import", "two.jsonl", "--as", "half")

    note = "an older graphflow wrote it, without the number of its records, so nothing tells whether the last are "
    assert (whole[0], half[0]) == (0, 0)
    assert f"one.jsonl: {note}missing.\n" in whole[2]
    assert f"two.jsonl: {note}missing. It ends before its run does.\n" in half[2]
    assert rows_of("whole")[1:] != rows_of("half")[1:]


def test_files_that_cannot_be_used_are_told(graphs: Target, capsys: Printed) -> None:
    """One line each."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")

    assert done(capsys, "runs", "import", "none.jsonl") == (
        2, "", "graphflow: none.jsonl: it cannot be read: No such file or directory.\n",
    )  # fmt: skip
    store("odd", [Row(0, 0.5, "no JSON", "[]")])
    assert done(capsys, "runs", "export", "odd")[0] == 5
    assert done(capsys, "runs", "export", "one", "-o", "no/where") == (
        2, "", "graphflow: -o no/where: it cannot be written: No such file or directory.\n",
    )  # fmt: skip


def test_lines_of_a_run_keep_what_a_row_holds() -> None:
    """Texts that have lines of their own too; only what is no JSON is refused."""
    rows = [
        Row(0, 0.5, '["é\u2028",1.0,1e+22,12345678901234567890123]', "[]"),
        Row(3, 0.5, '["\\ud800", "\\u2028"]', "[]"),
        Row(4, 1.5, "[\n1]", "[ ]"),
    ]

    run, found = read_run(run_lines("a\nb", rows))

    assert (run, found[:2]) == ("a\nb", tuple(rows[:2]))
    assert (found[2].fact, found[2].decisions) == ("[1]", "[]")
    with pytest.raises(ValueError, match="row 0 is no JSON"):
        list(run_lines("one", [Row(0, 0.5, "[", "[]")]))


# --- deleting --------------------------------------------------------------------------------------------------------


def test_a_run_is_deleted_for_good(graphs: Target, capsys: Printed) -> None:
    """With the note of its target, and without a word of it in the files."""
    for run in ("one", "two", "three"):
        done(capsys, "run", graphs("works"), f"the question of {run}", "--run-id", run)

    code, out, _ = done(capsys, "runs", "delete", "one", "two", "one", "--yes")

    assert (code, out) == (0, "deleted one\ndeleted two\n")
    assert json.loads(Path(".graphflow/targets.json").read_text("utf-8")).keys() == {"three"}
    assert not any(b"question of one" in file.read_bytes() for file in Path(".graphflow").rglob("*") if file.is_file())
    code, _, err = done(capsys, "runs", "delete", "thr", "-y")
    assert (code, "no run 'thr' is stored" in err) == (2, True)  # what is deleted is not guessed at
    assert json.loads(done(capsys, "runs", "delete", "three", "-y", "--json")[1]) == {"deleted": ["three"]}


@pytest.mark.parametrize(
    ("typed", "gone"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_person_is_asked_before_anything_is_deleted(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch, typed: str, gone: bool
) -> None:
    """Where nobody can be asked, --yes is needed."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    nobody = done(capsys, "runs", "delete", "one")
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)

    code = main(["runs", "delete", "one"])

    assert (nobody[0], nobody[2]) == (2, "graphflow: runs delete: add --yes, for nobody can be asked here.\n")
    assert code == 0
    assert "Delete it for good? [y/N] " in err.getvalue()
    assert (rows_of("one") == []) is gone


# --- tests of runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["works", "breaks", "tight", "asks", "team"])
def test_a_run_becomes_a_test(graphs: Target, capsys: Printed, name: str) -> None:
    """It passes with the graph as it is, calls nothing, and fails once the graph decides otherwise."""
    done(capsys, "run", graphs(name), "q", "--run-id", "one")
    Path("calls.txt").write_text("", "utf-8")

    written = done(capsys, "runs", "pytest", "one", "-o", "test_one.py")
    passed = pytested("test_one.py")
    code = GRAPHS_CHANGED[name]
    Path("graphs_of_tests.py").write_text(Path("graphs_of_tests.py").read_text("utf-8").replace(*code), "utf-8")
    failed = pytested("test_one.py")

    assert written[:2] == (0, "test_one.py\ntest_one.jsonl\n")
    assert (passed.returncode, failed.returncode) == (0, 1), passed.stdout + failed.stdout
    assert "2 passed" in passed.stdout
    assert "JournalMismatch" in failed.stdout
    assert Path("calls.txt").read_text("utf-8") == ""


GRAPHS_CHANGED: Final = {
    "works": ("START >> work >> found >> END", "START >> work >> END"),
    "breaks": ("START >> work >> boom", "START >> boom"),
    "tight": ('"tight", START >> work >> found', '"tight", START >> found'),
    "asks": ("START >> work >> Human(", "START >> Human("),
    "team": ("max_hops=2), lead >> END", "max_hops=1), lead >> END"),
}


def pytested(file: str) -> subprocess.CompletedProcess[str]:
    """Run a test in a process of its own."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_test_has_a_name_of_its_own_and_finds_its_graph_from_there(graphs: Target, capsys: Printed) -> None:
    """Wherever it lies; a run that was broken off is only folded."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "Ä run/1")
    cut_off("Ä run/1", "cut", 4)
    Path("tests of mine").mkdir()

    named = done(capsys, "runs", "pytest", "Ä run/1")
    folded = done(capsys, "runs", "pytest", "cut", "-o", "tests of mine/test_cut.py")

    assert named[1] == "test_works_run_1.py\ntest_works_run_1.jsonl\n"
    assert folded[0] == 0
    assert "1 passed" in pytested("tests of mine/test_cut.py").stdout
    assert done(capsys, "runs", "pytest", "cut", "-o", "cut.txt")[0] == 2
    assert json.loads(done(capsys, "runs", "pytest", "cut", "--json")[1]) == {
        "run": "cut", "test": "test_works_cut.py", "rows": "test_works_cut.jsonl",
    }  # fmt: skip


def test_a_test_of_a_run_with_secrets_takes_them_from_the_environment(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in no file."""
    done(capsys, "run", graphs("secret"), "q", "--set", "token=hunter22", "--run-id", "one")
    monkeypatch.setenv("THE_TOKEN", "hunter22")
    done(capsys, "resume", "one", "--answer", "go=true", "--secret", "token=THE_TOKEN")

    done(capsys, "runs", "pytest", "one", "-o", "test_one.py", "--secret", "token=THE_TOKEN")

    passed = pytested("test_one.py")
    assert (passed.returncode, "2 passed" in passed.stdout) == (0, True), passed.stdout
    assert b"hunter22" not in Path("test_one.py").read_bytes() + Path("test_one.jsonl").read_bytes()


def test_stored_runs_are_read_into_a_journal(graphs: Target, capsys: Printed) -> None:
    """Inside of an event loop too, several of them; what is no run is refused by the name of its file."""
    for run in ("one", "two"):
        done(capsys, "run", graphs("works"), "q", "--run-id", run)
        done(capsys, "runs", "export", run, "-o", f"{run}.jsonl")
    Path("none.jsonl").write_text("{}", "utf-8")
    Path("empty.jsonl").write_text('{"format":"graphflow-run/1","run":"x"}\n', "utf-8")

    async def read() -> list[str]:
        return [found.run for found in await read_journal("one.jsonl", "two.jsonl").runs()]

    assert anyio.run(read) == ["one", "two"]
    run, rows = rows_in("one.jsonl")
    assert (run, list(rows)) == ("one", rows_of("one"))
    for name in ("none", "empty"):
        with pytest.raises(JournalDamaged, match=name if name == "none" else "'empty.jsonl' has no row"):
            read_journal(f"{name}.jsonl")
    assert plain(frozenset({1})) == [1]
    assert callable(replayed)


# --- what progress makes of later sessions ---------------------------------------------------------------------------


def later(*bodies: Any) -> list[Event]:
    """A run that a bound had stopped, and what came then."""
    path = (Segment("work"),)
    began = RunStarted("one", "tight", "", None, Budget(tool_calls=2), None, False, 0.0)
    reason = Reason(code="tool_calls", text="no more", path="work", limit=2)
    stopped = (began, NodeStarted(path, EdgeName(None, "next", "work")), RunEnded("exhausted", reason))
    return [Event("one", seq, float(seq), body) for seq, body in enumerate((*stopped, *bodies))]


def test_a_board_goes_on_with_more_budget() -> None:
    """What stood still runs again, and the amounts are said against the sum."""
    board = Board()
    for event in later():
        board.fold(event)
    before = board.lines(9)[0].text

    for event in later(SessionStarted(9.0, ""), BudgetAdded(Budget(tool_calls=3, usd="0.10")))[3:]:
        board.fold(event)

    assert before == "└─ ‖ work  open"
    assert board.lines(9)[0].text == "└─ ▸ work"
    assert board.bounds() == "5 tool calls"
    assert not board.over


def test_the_tree_of_a_run_that_goes_on_says_so() -> None:
    """It runs, and the number of its sessions is told."""
    stopped = run_tree(later())
    again = run_tree(later(SessionStarted(9.0, ""), BudgetAdded(Budget(tool_calls=3))))

    assert stopped.startswith("✗ tight  exhausted")
    assert "no more" in stopped
    assert again == "▸ tight  running · 1 node run · 4 s · 2 sessions\n└─ ▸ work  running"


def test_crossings_of_nothing_are_none() -> None:
    """A run that has only begun has no boundary yet."""
    assert crossings_of(later()) == []
    assert [line for entry in crossings_of(later()) for line in crossing_lines(entry)] == []
