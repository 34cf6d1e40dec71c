"""`--json` everywhere: each command of the command line prints one document, whatever becomes of it."""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow.cli import main
from graphflow.cli.app import command
from graphflow.cli.printing import Screen
from graphflow.errors import JournalUnavailable
from graphflow.persistence.sqlite import SqliteJournal
from tests.test_cli_runs import DB, GRAPHS, Printed, Target, rows_of
from tests.test_cli_runs import graphs as graphs  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

TARGET: Final = "graphs_of_tests.py"


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the parser, with the words that lead to it."""
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, *names, name)
        else:
            yield (*names, name), found


COMMANDS: Final = dict(commands(command()))

DOES: Final[dict[tuple[str, ...], tuple[Sequence[str], set[str]]]] = {
    ("run",): ([f"{TARGET}:works", "q"], {"status", "output", "run_id"}),
    ("resume",): (["one"], {"status", "output", "run_id"}),
    ("fork",): (["one", "--at", "4"], {"status", "output", "run_id"}),
    ("replay",): (["one"], {"status", "output", "run_id"}),
    ("diff",): (["one", "two"], {"equal"}),
    ("lint",): (["one"], {"run", "symptoms"}),
    ("rehearse",): ([f"{TARGET}:works", "q", "--runs", "2"], {"runs"}),
    ("check",): ([f"{TARGET}:works"], {"graph", "ok", "problems"}),
    ("bounds",): ([f"{TARGET}:works"], {"graph", "structure"}),
    ("draw",): ([f"{TARGET}:works"], {"graph", "format", "file", "encoding", "picture"}),
    ("runs", "list"): ([], set()),
    ("runs", "show"): (["one"], {"run", "status"}),
    ("runs", "export"): (["one", "-o", "one.jsonl"], {"run", "records", "file"}),
    ("runs", "import"): (["two.jsonl", "--as", "three"], {"run", "records"}),
    ("runs", "delete"): (["two", "--yes"], {"deleted"}),
    ("runs", "pytest"): (["one"], {"run", "test", "rows"}),
}
"""What each command is given to do, and some keys of its document; `mcp` serves, and has a test of its own."""


@pytest.fixture
def runs(graphs: Target, capsys: Printed) -> None:
    """Two stored runs and an exported one in the folder one stands in."""
    with Path(TARGET).open("a", encoding="utf-8") as file:
        file.write('broken = Graph("broken", START >> found >> work >> found, context=Case)\n')
    for run in ("one", "two"):
        assert main(["run", graphs("works"), "q", "--run-id", run, "-q"]) == 0
    assert main(["runs", "export", "two", "-o", "two.jsonl"]) == 0
    capsys.readouterr()


def document(capsys: Printed) -> Any:
    """The one document on the standard output."""
    return json.loads(capsys.readouterr().out)


def error_of(capsys: Printed) -> dict[str, Any]:
    """The error in the one document on the standard output, which stands on one line and has what all errors have."""
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads(out)["error"]
    assert out.count("\n") == 1
    assert [*found][:4] == ["type", "exit_code", "message", "run"]
    return found


def test_every_command_takes_json() -> None:
    """A new command cannot forget it, and has to stand in the table of this test, so that its document is looked at."""
    without = [words for words, found in COMMANDS.items() if not any("--json" in one.opts for one in found.params)]

    assert without == []
    assert COMMANDS.keys() - DOES.keys() == {("mcp",)}


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", DOES, ids=" ".join)
def test_what_was_done_is_one_document(capsys: Printed, words: tuple[str, ...]) -> None:
    """Whatever is told beside it stands on stderr."""
    given, keys = DOES[words]

    code = main([*words, *given, "--json"])

    found = document(capsys)
    assert code in {0, 1}
    assert "error" not in found
    assert keys <= ({*found} if isinstance(found, dict) else set())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_words_that_make_no_sense_are_one_document(capsys: Printed, words: tuple[str, ...]) -> None:
    """An option that nobody knows, and what is needed and missing."""
    for more in (["--no-such-option"], []):
        if not more and not any(one.required for one in COMMANDS[words].params):
            continue
        code = main([*words, *more, "--json"])

        found = error_of(capsys)
        assert (code, found["type"], found["exit_code"]) == (2, "BadUse", 2)
        assert found["message"].startswith(f"graphflow {' '.join(words)}: ")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", [words for words, found in COMMANDS.items() if found.params], ids=" ".join)
def test_what_is_not_there_is_one_document(capsys: Printed, words: tuple[str, ...]) -> None:
    """A graph, a run, a file or a status that nobody has: the exit code is the one that the document says."""
    arguments = [one for one in COMMANDS[words].params if one.param_type_name == "argument" and one.required]
    given = ["nowhere.py"] * len(arguments) if arguments else ["--status", "lost"]

    code = main([*words, *given, "--json"])

    found = error_of(capsys)
    assert (code, found["exit_code"]) == (2, 2)
    assert found["type"] in {"BadUse", "TargetError", "UnknownRun"}


@pytest.mark.usefixtures("runs")
def test_an_error_says_what_a_program_goes_on_with(capsys: Printed) -> None:
    """Which run it is, what is wrong in a graph, which secrets are missing."""
    main(["run", f"{TARGET}:works", "q", "--run-id", "one", "--json"])
    taken = error_of(capsys)
    main(["run", f"{TARGET}:broken", "q", "--json"])
    broken = error_of(capsys)
    main(["run", f"{TARGET}:secret", "q", "--set", "token=abc", "--run-id", "kept", "-q"])
    capsys.readouterr()
    main(["resume", "kept", "--json"])
    secret = error_of(capsys)
    Path(DB).write_bytes(b"no database")
    main(["resume", "one", "--json"])
    unreadable = error_of(capsys)

    assert (taken["type"], taken["run"]) == ("RunExists", "one")
    assert "no-end" in {problem["code"] for problem in broken["problems"]}
    assert {*broken["problems"][0]} == {"code", "severity", "where", "message", "hint"}
    assert (secret["type"], secret["secrets"]) == ("MissingSecrets", ["token"])
    assert (unreadable["type"], unreadable["exit_code"]) == ("JournalUnavailable", 5)


@pytest.mark.usefixtures("runs")
def test_a_run_that_is_deleted_in_part_says_which(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cannot be deleted; that the first is gone stands in the same document."""
    delete = SqliteJournal.delete

    async def fails(self: SqliteJournal, run: str) -> None:
        if run == "two":
            message = "the disk is full."
            raise JournalUnavailable(message)
        await delete(self, run)

    monkeypatch.setattr(SqliteJournal, "delete", fails)

    code = main(["runs", "delete", "one", "two", "--yes", "--json"])

    found = error_of(capsys)
    assert (code, found["deleted"]) == (5, ["one"])
    assert len(rows_of("two")) > 0


def test_an_interrupt_is_one_document(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and the type says what it was."""

    def interrupted(screen: Screen, words: list[str]) -> int:
        screen.facts["run"] = "mine"
        raise KeyboardInterrupt

    monkeypatch.setattr("graphflow.cli._dispatched", interrupted)

    code = main(["resume", "mine", "--json"])

    found = error_of(capsys)
    assert (code, found["type"], found["run"]) == (130, "KeyboardInterrupt", "mine")


def test_what_fails_after_the_document_adds_none(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed stays one document."""

    def fails(screen: Screen, words: list[str]) -> int:
        screen.document({"status": "completed"})
        raise OSError

    monkeypatch.setattr("graphflow.cli._dispatched", fails)

    code = main(["resume", "one", "--json"])

    assert code == 1
    assert document(capsys) == {"status": "completed"}


@pytest.mark.usefixtures("runs")
def test_a_word_behind_two_dashes_is_no_option(capsys: Printed) -> None:
    """It is the run's id, and the error is for a person."""
    code = main(["resume", "--", "--json"])

    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert "--json" in printed.err


@pytest.mark.usefixtures("runs")
def test_lines_of_a_run_are_json_already(capsys: Printed) -> None:
    """`runs export` without a file prints them, as ever."""
    code = main(["runs", "export", "one", "--json"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines == Path("two.jsonl").read_text("utf-8").replace('"two"', '"one"').splitlines()[:1] + lines[1:]
    assert all(json.loads(line) for line in lines)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("format", ["term", "mermaid", "dot", "svg", "png"])
def test_a_picture_stands_in_the_document_or_in_its_file(capsys: Printed, format: str) -> None:
    """A PNG in base64; where a file is named, its name."""
    main(["draw", f"{TARGET}:works", "--json", "-f", format])
    inside = document(capsys)
    main(["draw", f"{TARGET}:works", "--json", "-f", format, "-o", "picture"])
    outside = document(capsys)

    picture = inside["picture"].encode()
    assert (inside["format"], inside["file"], outside["file"], outside["picture"]) == (format, None, "picture", None)
    assert inside["encoding"] == ("base64" if format == "png" else "text")
    assert Path("picture").read_bytes()[:9] == (base64.b64decode(picture) if format == "png" else picture)[:9]


@pytest.mark.usefixtures("runs")
def test_nobody_who_agrees_is_an_empty_list(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs delete` that a person says no to has deleted nothing."""

    def refuses(screen: Screen, chosen: Sequence[object]) -> bool:
        return False

    monkeypatch.setattr("graphflow.cli.shelf._agreed", refuses)

    code = main(["runs", "delete", "one", "--json"])

    assert code == 0
    assert document(capsys) == {"deleted": []}


def test_a_server_says_where_it_is(capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`mcp --http` prints its address once it can be reached; over stdin and stdout the protocol alone speaks."""

    async def served(server: object, port: int, ready: Callable[[str], object]) -> None:
        ready(f"http://127.0.0.1:{port}/mcp")

    monkeypatch.chdir(tmp_path)
    Path(TARGET).write_text(GRAPHS, "utf-8")
    monkeypatch.setattr("graphflow.mcp.running.over_http", served)

    code = main(["mcp", f"{TARGET}:works", "--http", "80", "--json"])

    assert code == 0
    assert document(capsys) == {"url": "http://127.0.0.1:80/mcp", "graphs": ["works"]}
