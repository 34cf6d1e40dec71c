"""Every command on streams that are closed, narrow, or of few characters: the same exit codes, and nothing garbled."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast
from xml.etree import ElementTree as ET

import pytest

from graphflow.cli import main
from graphflow.visualize.text import cells
from tests.test_cli_json import DOES
from tests.test_cli_json import runs as runs  # noqa: PLC0414 - a fixture
from tests.test_cli_runs import Printed, done
from tests.test_cli_runs import graphs as graphs  # noqa: PLC0414 - a fixture

pytestmark = [
    pytest.mark.may_block,  # the command line is a process of its own: it writes where it runs
    pytest.mark.usefixtures("runs"),
]

COLUMNS: Final = 40

NAMES: Final = """
@node(name="é日本")
async def foreign(state: State[Case]) -> str:
    return "größer 日本"


strange = Graph("größe 日本", START >> foreign >> END, context=Case)
"""


class Gone(io.RawIOBase):
    """A pipe whose reader went away."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise BrokenPipeError


class Terminal(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def words_of_all() -> list[tuple[list[str], set[int]]]:
    """A command line for each command, with the exit codes that are none of a fault."""
    found = [([*words, *given], {0, 1}) for words, (given, _) in DOES.items()]
    return [*found, (["--help"], {0}), (["runs"], {2}), (["resume", "nobody"], {2}), (["check", "nowhere.py"], {2})]


def each(monkeypatch: pytest.MonkeyPatch, made: Callable[[], io.TextIOBase]) -> dict[str, io.TextIOBase]:
    """Give every command streams of its own; return what each has written to, standard output and error alike."""
    found: dict[str, io.TextIOBase] = {}
    for words, codes in words_of_all():
        stream = found[" ".join(words)] = made()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)

            assert main(words) in codes, words
    return found


def test_a_reader_that_went_away_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the standard output nor of stderr; nothing is raised."""
    written = each(monkeypatch, lambda: io.TextIOWrapper(io.BufferedWriter(Gone(), 1), write_through=True))

    assert len(written) == len(DOES) + 4


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_narrow_terminal_shows_tables_and_trees_whole(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """Columns that have no room are left out; no line of a table, a tree or a difference is folded."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", "1")

    written = {words: cast("Terminal", stream).getvalue() for words, stream in each(monkeypatch, Terminal).items()}

    listed = written["runs list"].splitlines()
    assert re.fullmatch(r"RUN +STATUS", listed[0].rstrip())
    assert max(map(cells, listed)) <= COLUMNS
    assert max(map(cells, written["diff one two"].splitlines())) <= COLUMNS
    assert not [words for words, text in written.items() if "Traceback" in text or re.search(r"\x1b\[3\dm", text)]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_few_characters_gets_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed, encoding: str
) -> None:
    """Whatever a name is: it is written as far as it can be, and never in half."""
    with Path("graphs_of_tests.py").open("a", encoding="utf-8") as file:
        file.write(NAMES)
    target = "graphs_of_tests.py:strange"
    assert done(capsys, "run", target, "é", "--run-id", "läuft")[0] == 0
    written: dict[str, str] = {}
    for words in (
        ["run", target, "q"], ["resume", "läuft"], ["replay", "läuft"], ["fork", "läuft"], ["diff", "läuft", "one"],
        ["lint", "läuft"], ["rehearse", target, "q", "--runs", "2"], ["check", target], ["bounds", target],
        ["draw", target], ["draw", target, "--run", "läuft"], ["runs", "list"], ["runs", "show", "läuft"],
        ["runs", "show", "läuft", "--events"], ["runs", "show", "läuft", "--boundaries"],
    ):  # fmt: skip
        content = io.BytesIO()
        stream = io.TextIOWrapper(content, encoding=encoding)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)

            assert main(words) in {0, 1}, words
        stream.flush()
        written[" ".join(words)] = content.getvalue().decode(encoding)

    size = {"ascii": r"gr\xf6\xdfe \u65e5\u672c", "latin-1": r"größe \u65e5\u672c", "utf-8": "größe 日本"}[encoding]
    assert size in written[f"check {target}"]
    assert (size if encoding == "utf-8" else r"gr\xf6\xdfe") in written["runs list"]
    assert (size if encoding == "utf-8" else r"gr\xf6\xdfe") in written[f"draw {target}"]


@pytest.mark.parametrize("format", ["svg", "dot", "mermaid"])
def test_a_picture_for_a_program_is_utf_8(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Whatever the encoding of the standard output: escapes would be others' names, and no XML."""
    with Path("graphs_of_tests.py").open("a", encoding="utf-8") as file:
        file.write(NAMES)
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="ascii")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)

        code = main(["draw", "graphs_of_tests.py:strange", "-f", format])

    text = content.getvalue().decode()
    assert code == 0
    assert "é日本" in text
    assert format != "svg" or ET.fromstring(text).tag.endswith("svg")
