"""Ids of runs on the command line: each that it gives can be named by it again, and each that is stored be read."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.cli import main
from graphflow.cli.ids import why_not
from graphflow.cli.printing import quoted
from graphflow.visualize.text import visible
from tests.test_cli_runs import Printed, Target, cut_off, done, rows_of
from tests.test_cli_runs import graphs as graphs  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

REFUSED = [
    ("", "at least one character"),
    ("  \t", "nothing but blanks"),
    ("last", "`last` always means the run that was begun last"),
    ("-x", "would be read as an option"),
    ("--json", "would be read as an option"),
    (" a", "blanks at the ends"),
    ("a\nb", "no terminal shows"),
    ("a\x1b[2Jb", "no terminal shows"),
    ("a\u202eb", "no terminal shows"),
]


@pytest.mark.parametrize(("run", "why"), REFUSED)
def test_an_id_that_could_not_be_named_is_refused(graphs: Target, capsys: Printed, run: str, why: str) -> None:
    """By every command that gives one; nothing has run then, and nothing is stored."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    done(capsys, "runs", "export", "one", "-o", "one.jsonl")
    before = len(Path("calls.txt").read_text("utf-8"))

    for words in (
        ["run", graphs("works"), "q", f"--run-id={run}"],
        ["run", graphs("works"), "q", f"--run-id={run}", "--no-store"],
        ["fork", "one", f"--run-id={run}"],
        ["runs", "import", "one.jsonl", f"--as={run}"],
    ):
        code, out, err = done(capsys, *words)

        assert (code, out) == (2, "")
        assert why in err
        assert "choose another id" in err
    assert len(Path("calls.txt").read_text("utf-8")) == before


@pytest.mark.parametrize(("run", "why"), [("last", "always means"), ("-x", "as an option"), ("a\nb", "no terminal")])
def test_a_run_of_another_program_is_imported_under_another_id(
    graphs: Target, capsys: Printed, run: str, why: str
) -> None:
    """The library takes any text for an id; what is imported here can be named here."""
    done(capsys, "run", graphs("works"), "q", "--run-id", "one")
    cut_off("one", run, 99)
    done(capsys, "runs", "export", "-o", "odd.jsonl", "--", run)

    refused = done(capsys, "runs", "import", "odd.jsonl")
    taken = done(capsys, "runs", "import", "odd.jsonl", "--as", "even")

    assert refused[0] == 2
    assert why in refused[2]
    assert "import it --as another" in refused[2]
    assert taken[0] == 0
    assert len(rows_of("even")) == len(rows_of("one"))


@pytest.mark.parametrize("run", ["-x", "a\nb", "it's\x07", "\u202eé日本", "\x85"])
def test_what_is_told_can_be_typed(graphs: Target, capsys: Printed, run: str) -> None:
    """A run that the library has stored under an odd id is gone on with by the line that is told."""
    done(capsys, "run", graphs("asks"), "q", "--run-id", "one")
    cut_off("one", run, 99)

    _, _, err = done(capsys, "resume", "--", run)

    (line,) = (line.strip() for line in err.splitlines() if line.startswith("  graphflow resume "))
    shell = subprocess.run(
        ["bash", "-c", f"graphflow() {{ printf '%s\\0' \"$@\"; }}; {line}"], capture_output=True, check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    words = shell.stdout.decode().rstrip("\0").split("\0")
    assert words[0] == "resume"
    assert words[-1 if "--" in words else 1] == run
    assert main([word.replace("VALUE", "apple") for word in words]) == 0


@given(st.text())
def test_a_word_that_can_be_seen_is_quoted_as_ever(text: str) -> None:
    """And one that cannot be seen has nothing in it that a terminal obeys."""
    word = quoted(text)

    assert word == visible(word)
    assert visible(text) != text or word == shlex.quote(text)
    assert visible(text) == text or why_not(text)
