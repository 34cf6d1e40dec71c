"""Stored runs on the command line: how they are kept, gone on with, forked and replayed."""

import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from graphflow import SqliteJournal
from graphflow.cli import main
from graphflow.events import Row
from graphflow.model.jsontext import compact_json, load_json
from graphflow.persistence.lines import read_event
from graphflow.runtime.checksums import chained, without_checksum
from tests.servers import Postgres
from tests.servers import shared_postgres as shared_postgres  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

GRAPHS: Final = r'''
"""Graphs for the tests of stored runs; each call of the outside leaves a line in a file."""
import sqlite3
from enum import Enum
from pathlib import Path
from typing import Annotated

from annotated_types import Len
from pydantic import BaseModel, SecretStr

from graphflow import (
    END, START, Budget, Call, Context, Delegate, Graph, Human, Report, State, Step, Update, append, fork, node, when,
)
from graphflow import secret as mark


def called(text: str) -> str:
    with Path("calls.txt").open("a", encoding="utf-8") as file:
        file.write(text + "\n")
    return text


class Case(Context):
    question: str
    log: Annotated[tuple[str, ...], append] = ()


class Login(Context):
    question: str
    token: SecretStr


class Short(Context):
    question: str
    token: Annotated[SecretStr, Len(max_length=2)]


class Hidden(Context):
    question: str = "q"
    pin: Annotated[int, mark] = 1
    login: Login | None = None


class Fruit(Enum):
    apple = "apple"
    pear = "pear"


class Finding(BaseModel, frozen=True):
    text: str
    found: tuple[int, ...] = ()


@node
async def work(state: State[Case], step: Step) -> Update:
    for number in range(4):
        await step.effect(f"look {number}", called, f"look {number}", cost=Budget(tool_calls=1))
    return Update(log="worked")


@node
async def found(state: State[Case]) -> Finding:
    return Finding(text=state.context.question, found=(1, 2))


@node
async def boom(state: State[Case]) -> str:
    raise ValueError("it broke")


@node
async def odd(state: State[Case]) -> object:
    return (print,)


@node
async def lead(state: State[Case]):
    if state.turn == 0:
        return Delegate(Call("worker", "look at it"), Call("worker", "look again"))
    return Report(finding="all done", evidence=("a.py:1",))


@node
async def worker(state: State[Case]) -> str:
    return f"did: {state.brief.objective}"


@node
async def tells(state: State[Login]) -> int:
    return len(state.context.token.get_secret_value())


@node
async def sabotages(state: State[Case], step: Step) -> str:
    with sqlite3.connect(".graphflow/runs.db") as database:
        database.execute("DROP TABLE rows")
    return "done"


@node(name="evil\x1b[2J")
async def evil(state: State[Case], step: Step) -> str:
    return "\x1b[31mred"


def always(state: State[Case]) -> bool:
    return True


saboteur = Graph("saboteur", START >> sabotages >> END, context=Case)
works = Graph("works", START >> work >> found >> END, context=Case)
asks = Graph("asks", START >> work >> Human("which", "Which fruit?", schema=Fruit) >> END, context=Case)
both = Graph(
    "both", START >> (Human("a", "How many?", schema=int), Human("b", "Why?", schema=str)) >> found >> END,
    context=Case,
)
ring = Graph("ring", START >> found, found.choose(when(always, found, max_hops=1), default=END), context=Case)
tight = Graph("tight", START >> work >> found >> END, context=Case, budget=Budget(tool_calls=2, node_runs=9))
breaks = Graph("breaks", START >> work >> boom >> END, context=Case)
odds = Graph("odds", START >> odd >> END, context=Case)
team = Graph("team", START >> lead, lead.delegates(worker, max_hops=2), lead >> END, context=Case, max_depth=2)
secret = Graph("secret", START >> Human("go", "Go?", schema=bool) >> tells >> END, context=Login)
password = Graph(
    "password", START >> (Human("one", "Password?", schema=SecretStr), Human("two", "Pin?", schema=SecretStr)) >>
    Human("go", "Go?", schema=bool) >> found >> END, context=Case,
)
short = Graph("short", START >> found >> END, context=Short)
hidden = Graph("hidden", START >> found >> END, context=Hidden)
evil_graph = Graph("evil\x1b]0;x\x07", START >> evil >> Human("ask\x1b[2J", "\x1b[31m?") >> END, context=Case)
'''

Target = Callable[[str], str]
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A file of graphs in the folder one stands in; gives the target of one of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    path, modules = list(sys.path), set(sys.modules)
    Path("graphs_of_tests.py").write_text(GRAPHS, "utf-8")
    yield lambda name: f"graphs_of_tests.py:{name}"
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


DB: Final = ".graphflow/runs.db"


def rows_of(run: str, db: str = DB) -> list[Row]:
    """The rows of a stored run."""
    return list(anyio.run(SqliteJournal(db).read, run))


def calls() -> list[str]:
    """What was done outside."""
    file = Path("calls.txt")
    return file.read_text("utf-8").splitlines() if file.exists() else []


def done(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """Do what stands on a command line; its exit code, and what it printed."""
    capsys.readouterr()
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_every_run_is_stored_and_says_where(graphs: Target, capsys: Printed) -> None:
    """The id stands at the beginning and at the end, the database in a folder that git passes over."""
    code, out, err = done(capsys, "run", graphs("works"), "q")

    found = re.match(r"run (\S+), stored in \.graphflow/runs\.db\n", err)
    assert found is not None
    assert code == 0
    assert err.endswith(f"run {found[1]}\n")
    assert json.loads(out) == {"text": "q", "found": [1, 2]}
    assert len(rows_of(found[1])) > 4
    assert Path(".graphflow/.gitignore").read_text("utf-8") == "*\n"


def test_the_id_of_a_run_can_be_chosen_once(graphs: Target, capsys: Printed) -> None:
    """A second run of that id is refused before it begins, and the way on is told."""
    first = done(capsys, "run", graphs("works"), "q", "--run-id", "my run", "--json")
    before = rows_of("my run")

    code, out, err = done(capsys, "run", graphs("works"), "q", "--run-id", "my run")

    assert json.loads(first[1])["run_id"] == "my run"
    assert (code, out) == (2, "")
    assert "a run 'my run' is stored already: `graphflow resume 'my run'` goes on with it" in err
    assert rows_of("my run") == before
    assert len(calls()) == 4


def test_nothing_is_kept_if_so_asked(graphs: Target, capsys: Printed) -> None:
    """With --no-store there is no database, and no way on but another run."""
    code, _, err = done(capsys, "run", graphs("asks"), "q", "--no-store")

    assert code == 4
    assert "stored in" not in err
    assert "run it again with --answer ID=VALUE, which starts a new run" in err
    assert not Path(".graphflow").exists()


def test_another_database_can_be_named(graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By --db, which the commands that are suggested have too, or by an environment variable, which is there anyhow."""
    _, _, named = done(capsys, "run", graphs("asks"), "q", "--run-id", "one", "--db", "here/a b.db")
    monkeypatch.setenv("GRAPHFLOW_DB", "there.db")
    _, _, around = done(capsys, "run", graphs("asks"), "q", "--run-id", "two", "--fsync")

    assert "graphflow resume one --db 'here/a b.db' --answer which=VALUE" in named
    assert "graphflow resume two --answer which=VALUE" in around
    assert (len(rows_of("one", "here/a b.db")), len(rows_of("two", "there.db"))) == (10, 10)
    assert not Path(DB).exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--db", "."], "--db .: that is a folder; name a file in it."),
        (["--db", ":memory:"], "--db :memory: would keep nothing"),
        (["--db", "postgresql://localhost/x", "--fsync"], "--fsync is for a file"),
    ],
)
def test_what_is_no_database_is_refused(graphs: Target, capsys: Printed, words: list[str], complaint: str) -> None:
    """Nothing has run then."""
    code, _, err = done(capsys, "run", graphs("works"), "q", *words)

    assert code == 2
    assert complaint in err
    assert calls() == []


def test_a_database_that_cannot_be_used_has_an_exit_code_of_its_own(graphs: Target, capsys: Printed) -> None:
    """One line says what is wrong; there is no traceback, and nothing has run."""
    Path("text.db").write_text("this is no database, but a text that is long enough to be looked at", "utf-8")
    with sqlite3.connect("other.db") as other:
        other.execute("CREATE TABLE mine (x)")

    broken = done(capsys, "run", graphs("works"), "q", "--db", "text.db")
    foreign = done(capsys, "run", graphs("works"), "q", "--db", "other.db")
    listed = done(capsys, "runs", "list", "--db", "other.db")

    assert [code for code, _, _ in (broken, foreign, listed)] == [5, 5, 5]
    assert broken[2].startswith("graphflow: the journal 'text.db' cannot be used")
    assert "'other.db' is the database of another program" in foreign[2]
    assert all(err.count("\n") == 1 and "Traceback" not in err for _, _, err in (broken, foreign, listed))
    assert calls() == []


def test_a_place_that_cannot_be_written_has_ways_on(graphs: Target, capsys: Printed) -> None:
    """Another file, or nothing that is kept."""
    code, out, err = done(capsys, "run", graphs("works"), "q", "--db", "/dev/null/runs.db")

    assert (code, out) == (5, "")
    assert "a file stands where a folder must be" in err
    assert "with --db or GRAPHFLOW_DB; `run` can also keep nothing, with --no-store" in err


def test_what_cannot_be_stored_fails_at_its_node(graphs: Target, capsys: Printed) -> None:
    """The node is named and the place in its value; without the store the same run is well."""
    stored = done(capsys, "run", graphs("odds"), "q")
    kept_nowhere = done(capsys, "run", graphs("odds"), "q", "--no-store")

    assert (stored[0], kept_nowhere[0]) == (1, 0)
    assert "the outcome of 'odd' holds a builtin_function_or_method at [0]" in stored[2]
    assert "(--no-store runs it without keeping anything)" in stored[2]


def test_a_store_that_fails_under_way_ends_the_command(graphs: Target, capsys: Printed) -> None:
    """With its exit code, whatever the fold had decided, and with the way on."""
    code, out, err = done(capsys, "run", graphs("saboteur"), "q", "--run-id", "one")

    assert (code, out) == (5, "")
    assert "graphflow: the journal '.graphflow/runs.db' cannot be used" in err
    assert "to go on with it: graphflow resume one\n" in err
    assert "Traceback" not in err


def test_a_target_that_cannot_be_noted_is_no_reason_to_stop(graphs: Target, capsys: Printed) -> None:
    """It is said, and the run goes on."""
    Path(".graphflow/targets.json").mkdir(parents=True)

    code, _, err = done(capsys, "run", graphs("works"), "q", "--run-id", "one")

    assert code == 0
    assert "its target could not be noted (Is a directory): resume it with --target." in err
    assert done(capsys, "replay", "one", "--target", graphs("works"))[0] == 0
    assert [path.name for path in Path(".graphflow").glob("*.new")] == []


# --- going on --------------------------------------------------------------------------------------------------------


def test_a_waiting_run_is_answered_by_another_process(graphs: Target, capsys: Printed) -> None:
    """What was done is not done again, and the answer is read by the schema of its question."""
    waiting = done(capsys, "run", graphs("asks"), "q", "--run-id", "one")

    code, out, err = done(capsys, "resume", "one", "--answer", "which=pear")

    assert waiting[:2] == (4, "which: Which fruit? (apple or pear)\n")
    assert "  graphflow resume one --answer which=VALUE\n" in waiting[2]
    assert (code, out) == (0, '"pear"\n')
    assert "taken up again after" in err
    assert len(calls()) == 4


def test_an_answer_that_does_not_fit_changes_nothing(graphs: Target, capsys: Printed) -> None:
    """It is refused with the reason, the question stays, and no row is written."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    before = rows_of("one")

    refused = done(capsys, "resume", "one", "--answer", "which=plum")
    unknown = done(capsys, "resume", "one", "--answer", "what=pear")
    none = done(capsys, "resume", "one")

    assert [code for code, _, _ in (refused, unknown, none)] == [2, 4, 4]
    assert "--answer which=plum does not fit the question: Input should be 'apple' or 'pear'" in refused[2]
    assert "--answer what=pear was not needed: no question has this id." in unknown[2]
    assert rows_of("one") == before


def test_several_questions_are_answered_one_by_one(graphs: Target, capsys: Printed) -> None:
    """Each answer is kept; the run goes on with the last."""
    first = done(capsys, "run", graphs("both"), "q", "--run-id", "one")
    second = done(capsys, "resume", "one", "--answer", "a=3")
    third = done(capsys, "resume", "one", "--answer", 'b="5"')

    assert "  graphflow resume one \\\n    --answer a=VALUE \\\n    --answer b=VALUE\n" in first[2]
    assert (second[0], second[1]) == (4, "b: Why? (str)\n")
    assert (third[0], json.loads(third[1])["text"]) == (0, "q")


def test_a_run_at_its_bound_goes_on_with_more(graphs: Target, capsys: Printed) -> None:
    """The dimension that is lacking is named, and the calls that were made are not made again."""
    short = done(capsys, "run", graphs("tight"), "q", "--run-id", "one")
    wrong = done(capsys, "resume", "one", "--budget", "tokens=5")
    still = done(capsys, "resume", "one", "--budget", "tool_calls=1")
    enough = done(capsys, "resume", "one", "--budget", "tool_calls=1", "--budget", "seconds=60")

    assert [code for code, _, _ in (short, wrong, still, enough)] == [3, 2, 3, 0]
    assert "to go on with more of it: graphflow resume one --budget tool_calls=MORE" in short[2]
    assert "was stopped for the lack of tool_calls; the budget gives tokens" in wrong[2]
    assert "more budget: 1 tool call\n" in still[2]
    assert "4 of 4 tool calls" in enough[2]
    assert calls() == ["look 0", "look 1", "look 2", "look 3"]


def test_a_run_that_has_ended_is_shown_and_not_changed(graphs: Target, capsys: Printed) -> None:
    """Its result is what it was, its exit code too."""
    first = done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    failed = done(capsys, "run", graphs("breaks"), "q", "--run-id", "two")
    before = rows_of("one") + rows_of("two")

    again = done(capsys, "resume", "one")
    broken = done(capsys, "resume", "two")
    more = done(capsys, "resume", "one", "--budget", "tokens=5")

    assert (again[0], again[1], broken[0], more[0]) == (first[0], first[1], failed[0], 2)
    assert "completed · it had ended before: nothing was done" in again[2]
    assert "failed: boom: ValueError: it broke" in broken[2]
    assert rows_of("one") + rows_of("two") == before
    assert len(calls()) == 8


def test_the_events_of_a_resumed_run_are_complete(graphs: Target, capsys: Printed) -> None:
    """`--events` writes what is stored and what comes, without gaps, so that the whole can be drawn."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    done(capsys, "resume", "one", "--answer", "which=pear", "--events", "run.jsonl")

    events = [read_event(line) for line in Path("run.jsonl").read_text("ascii").splitlines()]
    drawn = done(capsys, "draw", graphs("asks"), "--run", "run.jsonl", "-f", "dot")
    stored = done(capsys, "draw", graphs("asks"), "--run", "one", "-f", "dot")
    nowhere = done(capsys, "draw", graphs("asks"), "--run", "none", "-f", "dot")

    assert [event.seq for event in events] == list(range(len(events)))
    assert (events[0].kind, events[-1].kind) == ("run_started", "run_ended")
    assert drawn == stored
    assert nowhere[0] == 2
    assert "--run none: there is no such file, and no run 'none' is stored" in nowhere[2]


def test_a_run_is_named_by_the_beginning_of_its_id(graphs: Target, capsys: Printed) -> None:
    """Or by `last`; an id itself comes first, and what could mean two runs means none."""
    for run in ("ab", "abc", "abd", "x"):
        done(capsys, "run", graphs("works"), run, "--run-id", run)

    def meant(asked: str) -> Any:
        code, out, err = done(capsys, "replay", asked, "--json")
        return json.loads(out)["run_id"] if code == 0 else (code, err)

    assert [meant(asked) for asked in ("ab", "abc", "x", "last")] == ["ab", "abc", "x", "x"]
    assert meant("a") == (2, "graphflow: 'a' is the beginning of 3 ids: ab, abc, abd. Write more of it.\n")
    assert meant("abdd") == (2, "graphflow: no run 'abdd' is stored in this journal. Did you mean 'abd'?\n")
    assert meant("") == (2, "graphflow: no run '' is stored in this journal. `graphflow runs list` tells which are.\n")


def test_where_nothing_is_stored_that_is_said(graphs: Target, capsys: Printed) -> None:
    """And no database is made for it."""
    code, _, err = done(capsys, "resume", "last")

    assert (code, err) == (2, "graphflow: no run is stored in .graphflow/runs.db.\n")
    assert not Path(".graphflow").exists()


def test_a_run_at_work_elsewhere_is_left_alone(graphs: Target, capsys: Printed) -> None:
    """One line and the exit code of the store; it can be looked at all the same."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    journal = SqliteJournal(DB)
    writer = anyio.run(journal.claim, "one")

    resumed = done(capsys, "resume", "one", "--answer", "which=pear")
    deleted = done(capsys, "runs", "delete", "one", "--yes")
    shown = done(capsys, "runs", "show", "one")
    anyio.run(writer.release)

    assert [code for code, _, _ in (resumed, deleted, shown)] == [5, 5, 0]
    assert "the run 'one' is at work elsewhere" in resumed[2]
    assert "the run 'one' is at work elsewhere" in deleted[2]
    assert done(capsys, "resume", "one", "--answer", "which=pear")[0] == 0


# --- which graph -----------------------------------------------------------------------------------------------------


def test_the_graph_of_a_run_is_noted_beside_the_database(
    graphs: Target, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in it; a file below the folder is noted from there, so that the whole can be moved."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    noted = json.loads(Path(".graphflow/targets.json").read_text("utf-8"))
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in (".graphflow", "graphs_of_tests.py"):
        Path(name).rename(moved / name)
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")

    code, out, _ = done(capsys, "resume", "one", "--answer", "which=pear", "--db", "../moved/.graphflow/runs.db")

    assert noted == {"one": {"file": "graphs_of_tests.py", "name": "asks"}}
    assert all("graphs_of_tests" not in row.fact + row.decisions for row in rows_of("one", str(moved / DB)))
    assert (code, out) == (0, '"pear"\n')


def test_modules_and_lower_depths_are_noted_too(graphs: Target, capsys: Printed) -> None:
    """A run with --max-depth is of a graph that has this depth, whoever takes it up."""
    done(capsys, "run", "graphs_of_tests:team", "q", "--run-id", "one", "--max-depth", "1")

    replayed = done(capsys, "replay", "one")
    otherwise = done(capsys, "replay", "one", "--max-depth", "2")
    notes = json.loads(Path(".graphflow/targets.json").read_text("utf-8"))

    assert notes == {"one": {"module": "graphs_of_tests:team", "max_depth": 1}}
    assert (replayed[0], otherwise[0]) == (0, 5)
    assert "the graph has changed since the run 'one' was stored" in otherwise[2]


@pytest.mark.parametrize(
    "notes", [None, "", "[]", "no JSON", '{"one": 7}', '{"one": {}}', '{"one": {"file": 3}}', "[" * 99_999]
)
def test_without_a_note_the_graph_is_to_be_named(graphs: Target, capsys: Printed, notes: str | None) -> None:
    """However the notes were lost; and then it is noted again."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    file = Path(".graphflow/targets.json")
    if notes is None:
        file.unlink()
    else:
        file.write_text(notes, "utf-8")

    lost = done(capsys, "resume", "one", "--answer", "which=pear")
    given = done(capsys, "resume", "one", "--answer", "which=pear", "--target", graphs("asks"))

    assert (lost[0], given[0]) == (2, 0)
    assert "nobody noted which graph the run 'one' is of: add --target path.py[:name]." in lost[2]
    assert done(capsys, "replay", "one")[0] == 0


def test_a_changed_graph_is_refused_with_what_changed(graphs: Target, capsys: Printed) -> None:
    """And taken if it is said to be compatible and decides alike; one that does not is refused even so."""
    file = Path("graphs_of_tests.py")
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    file.write_text(GRAPHS.replace("range(4)", "range(3)"), "utf-8")
    refused = done(capsys, "resume", "one", "--answer", "which=pear")
    taken = done(capsys, "resume", "one", "--answer", "which=pear", "--changed", "compatible")
    file.write_text(GRAPHS.replace("START >> work >> Human(", "START >> found >> Human("), "utf-8")
    other = done(capsys, "replay", "one", "--changed", "compatible")

    assert [code for code, _, _ in (refused, taken, other)] == [5, 0, 5]
    assert "changed: node work" in refused[2]
    assert "--changed compatible" in refused[2]
    assert other[2].startswith("graphflow: record 0 holds ")


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_secrets_are_asked_for_and_come_from_the_environment(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in no file and in no message."""
    done(capsys, "run", graphs("secret"), "q", "--set", "token=hunter22", "--run-id", "one")
    monkeypatch.setenv("THE_TOKEN", "hunter22")
    monkeypatch.setenv("token", "hunter22")

    missing = done(capsys, "resume", "one", "--answer", "go=true")
    unknown = done(capsys, "resume", "one", "--answer", "go=true", "--secret", "token=NOT_THERE")
    shown = done(capsys, "runs", "show", "one", "--json", "--events")
    resumed = done(capsys, "resume", "one", "--answer", "go=true", "--secret", "token=THE_TOKEN")
    replayed = done(capsys, "replay", "one", "--secret", "token")
    compared = done(capsys, "diff", "one", "one", "--secret", "token")

    assert [code for code, _, _ in (missing, unknown, shown, resumed, replayed, compared)] == [2, 2, 0, 0, 0, 0]
    assert "secrets are never stored: give them again, out of the environment: --secret token=VARIABLE." in missing[2]
    assert "--secret token: the environment has no variable 'NOT_THERE'." in unknown[2]
    assert resumed[1] == replayed[1] == "8\n"
    assert not any(b"hunter22" in file.read_bytes() for file in Path(".graphflow").rglob("*") if file.is_file())
    assert "hunter22" not in "".join(out + err for _, out, err in (missing, unknown, shown, resumed, replayed))


def test_a_run_whose_people_answered_with_secrets_is_gone_on_with(
    graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is asked for by its question, is resumed and replayed, and stands in no file."""
    words = ("--answer", "one=hunter22", "--answer", "two=hunter33")
    monkeypatch.setenv("ONE", "hunter22")
    monkeypatch.setenv("TWO", "hunter33")
    given = ("--secret", "one=ONE", "--secret", "two=TWO")
    first = done(capsys, "run", graphs("password"), "q", "--run-id", "one", *words)

    missing = done(capsys, "resume", "one", "--answer", "go=true")
    resumed = done(capsys, "resume", "one", "--answer", "go=true", *given)
    replayed = done(capsys, "replay", "one", *given)

    assert [code for code, _, _ in (first, missing, resumed, replayed)] == [4, 2, 0, 0]
    assert "out of the environment: --secret one=VARIABLE --secret two=VARIABLE." in missing[2]
    assert resumed[1] == replayed[1]
    assert not any(b"hunter" in file.read_bytes() for file in Path(".graphflow").rglob("*") if file.is_file())


def test_a_secret_without_a_name_is_given_too(graphs: Target, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions called answers of people nothing; what the error says can be written as it stands."""
    done(capsys, "run", graphs("password"), "q", "--run-id", "one", "--answer", "one=hunter22", "--answer", "two=x")
    nameless()
    monkeypatch.setenv("WORD", "hunter22")

    missing = done(capsys, "resume", "one", "--answer", "go=true")
    resumed = done(capsys, "resume", "one", "--answer", "go=true", "--secret", "=WORD")

    assert (missing[0], resumed[0]) == (2, 0)
    assert "--secret =VARIABLE." in missing[2]
    assert "write --secret FIELD=VARIABLE" in done(capsys, "resume", "one", "--secret", "=")[2]


def nameless() -> None:
    """Take the names of secrets out of the one stored run, as if an older version had written it."""
    with sqlite3.connect(".graphflow/runs.db") as database:
        found = database.execute("SELECT id, at, fact, decisions FROM rows ORDER BY id").fetchall()
        facts = [re.sub('"name":"(one|two)"', '"name":""', row[2]) for row in found]
        rows = chained(
            Row(key % (1 << 32), at, fact, without_checksum(decisions))
            for (key, at, _, decisions), fact in zip(found, facts, strict=True)
        )
        for (key, *_), row in zip(found, rows, strict=True):
            database.execute("UPDATE rows SET fact = ?, decisions = ? WHERE id = ?", (row.fact, row.decisions, key))


@pytest.mark.parametrize(
    ("target", "item"),
    [
        ("hidden", "pin=hunter22"), ("hidden", 'pin={"hunter22": 1}'), ("hidden", 'login={"token": ["hunter22"]}'),
        ("hidden", "login=hunter22"), ("hidden", "pn=hunter22"), ("short", "token=hunter22"),
    ],
)  # fmt: skip
def test_a_secret_that_does_not_fit_is_not_repeated(graphs: Target, capsys: Printed, target: str, item: str) -> None:
    """What is wrong with `--set` names the field, and not the value that was written."""
    code, out, err = done(capsys, "run", graphs(target), "--set", item, "--set", "question=q")

    assert code == 2
    assert "hunter22" not in out + err
    assert f"--set {item.partition('=')[0]}=..." in err


# --- replaying and forking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"), [("works", 0), ("team", 0), ("breaks", 1), ("tight", 3), ("asks", 4), ("both", 4)]
)
def test_a_replay_shows_what_the_run_showed(graphs: Target, capsys: Printed, name: str, code: int) -> None:
    """Result and exit code are the same; nothing is called, and no row is written."""
    ran = done(capsys, "run", graphs(name), "q", "--run-id", "one", "--json")
    made, before = calls(), rows_of("one")

    replayed = done(capsys, "replay", "one", "--json")

    assert (replayed[0], json.loads(replayed[1])) == (code, json.loads(ran[1]))
    assert (calls(), rows_of("one")) == (made, before)


def test_a_run_that_has_not_ended_has_nothing_to_replay(graphs: Target, capsys: Printed) -> None:
    """It is told how to go on with it."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    cut_off("one", "cut", 3)

    code, _, err = done(capsys, "replay", "cut")

    assert code == 2
    assert "the run 'cut' has not ended: it is at work, or was broken off" in err
    assert "graphflow resume cut" in err


def cut_off(run: str, new_id: str, rows: int) -> None:
    """Store the first rows of a run under another id, as a process leaves them that is killed."""

    async def store() -> None:
        journal = SqliteJournal(DB)
        writer = await journal.claim(new_id)
        first, *others = (await journal.read(run))[:rows]
        kind, _, *fields = load_json(first.fact)
        renamed = Row(0, first.at, compact_json([kind, new_id, *fields]), first.decisions)
        for row in chained([renamed, *others]):
            await writer.append(row)
        await writer.release()

    anyio.run(store)
    notes = Path(".graphflow/targets.json")
    known = json.loads(notes.read_text("utf-8"))
    notes.write_text(json.dumps({**known, new_id: known[run]}), "utf-8")


@pytest.mark.parametrize("rows", range(1, 11))
def test_a_run_that_was_broken_off_is_gone_on_with(graphs: Target, capsys: Printed, rows: int) -> None:
    """Wherever that was, the result is the same, and no recorded call is made again."""
    _, out, _ = done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    cut_off("one", "cut", rows)
    finished = sum('"effect_finished"' in row.fact for row in rows_of("cut"))
    Path("calls.txt").unlink()

    resumed = done(capsys, "resume", "cut")

    assert resumed[:2] == (0, out)
    assert calls() == [f"look {number}" for number in range(finished, 4)]


def test_a_fork_shares_the_past_and_goes_its_own_way(graphs: Target, capsys: Printed) -> None:
    """The first run is not changed; the effects before the fork are taken over, those behind it are made anew."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    done(capsys, "resume", "one", "--answer", "which=pear")
    before = rows_of("one")
    asked = next(row for row in before if '["answer_given"' in row.fact).seq - 1

    code, out, err = done(capsys, "fork", "one", "--at", str(asked), "--run-id", "two", "--answer", "which=apple")

    assert (code, out) == (0, '"apple"\n')
    assert "run two, stored in .graphflow/runs.db\n" in err
    assert rows_of("one") == before
    assert len(calls()) == 4
    assert done(capsys, "replay", "two")[1] == out


def test_a_fork_of_a_run_at_its_bound_can_have_more(graphs: Target, capsys: Printed) -> None:
    """Without --at it begins where the first run stands."""
    done(capsys, "run", graphs("tight"), "q", "--run-id", "one")

    forked = done(capsys, "fork", "one", "--budget", "tool_calls=2", "--json")

    assert (forked[0], json.loads(forked[1])["status"]) == (0, "completed")
    assert done(capsys, "replay", "one")[0] == 3
    assert len(calls()) == 4


def test_a_fork_that_makes_no_sense_is_refused(graphs: Target, capsys: Printed) -> None:
    """An event that is not there, an id that is taken, a number that is none: nothing is stored."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")

    far = done(capsys, "fork", "one", "--at", "999", "--run-id", "two")
    taken = done(capsys, "fork", "one", "--at", "3", "--run-id", "one")
    none = done(capsys, "fork", "one", "--at", "-1")

    assert [code for code, _, _ in (far, taken, none)] == [2, 2, 2]
    assert "the run 'one' has no event 999" in far[2]
    assert "a run 'one' is stored already" in taken[2]
    assert rows_of("two") == []


# --- any store -------------------------------------------------------------------------------------------------------


def test_runs_can_be_stored_in_postgresql(graphs: Target, capsys: Printed, postgres: Postgres) -> None:
    """By an address, which is written down nowhere; targets are noted in the folder one stands in."""
    user = re.search(r"user=(\S+)", postgres.conninfo)
    assert user is not None
    address = f"postgresql://{user[1]}:hunter22@127.0.0.1:{postgres.port}/postgres"
    at = ["--db", address]
    do = partial(done, capsys)

    waiting = do("run", graphs("asks"), "q", "--run-id", "of the command line", *at)
    resumed = do("resume", "of the", "--answer", "which=pear", *at)
    listed = do("runs", "list", "--graph", "asks", *at)
    shown = do("runs", "show", "of the", *at)
    deleted = do("runs", "delete", "of the command line", "--yes", *at)

    assert [code for code, _, _ in (waiting, resumed, listed, shown, deleted)] == [4, 0, 0, 0, 0]
    assert "graphflow resume 'of the command line' --db ... --answer which=VALUE" in waiting[2]
    assert resumed[1] == '"pear"\n'
    assert "of the command line" in listed[1]
    assert "hunter22" not in "".join(out + err for _, out, err in (waiting, resumed, listed, shown, deleted))
    assert json.loads(Path(".graphflow/targets.json").read_text("utf-8")) == {}
    assert not Path(DB).exists()


def test_a_server_that_is_not_there_is_told(graphs: Target, capsys: Printed) -> None:
    """One line, without the address, and the exit code of the store."""
    code, _, err = done(capsys, "runs", "list", "--db", "postgresql://me:hunter22@127.0.0.1:1/x")

    assert code == 5
    assert "Traceback" not in err
    assert "hunter22" not in err
