"""`graphflow lint RUN` on the command line."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from graphflow.cli import main

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

GRAPHS: Final = r'''
"""A guard that looks three times, and one that looks once."""
from graphflow import END, START, Agent, Context, Graph
from graphflow.testing import RuleModel, call


class Case(Context):
    question: str


def look(at: str) -> str:
    """Look at something."""
    return "nothing new"


def guard(times: int) -> Graph[Case]:
    def says(request):
        seen = sum(message.role == "tool" for message in request.messages)
        return "It is\x1b[2J closed." if seen == times else call("look\x1b[2J" if seen > 9 else "look", at="the door")

    return Graph(
        f"guard{times}", START >> Agent("guard\x1b", model=RuleModel(otherwise=says), tools=[look]) >> END, context=Case
    )


once, thrice = guard(1), guard(3)
'''

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file of graphs, in which one stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    path, modules = list(sys.path), set(sys.modules)
    Path("guards.py").write_text(GRAPHS, "utf-8")
    yield tmp_path
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def done(capsys: Printed, *words: str) -> tuple[int, str, str]:
    """Do what stands on a command line; its exit code, and what it printed."""
    capsys.readouterr()
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_good_run_shows_nothing(here: Path, capsys: Printed) -> None:
    """It says so, and the exit code is 0."""
    done(capsys, "run", "guards.py:once", "q", "--run-id", "monday", "-q")

    assert done(capsys, "lint", "monday") == (0, "monday: no symptoms\n", "")


def test_a_symptom_is_told_with_its_place_and_what_to_change(here: Path, capsys: Printed) -> None:
    """The exit code is 1; what could move a cursor is shown as an escape."""
    done(capsys, "run", "guards.py:thrice", "q", "--run-id", "monday", "-q")

    code, out, err = done(capsys, "lint", "last")

    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "guard\\x1b, turn 2, event 15: same-step-again (MAST 1.3)",
        "  'guard\\x1b' called look with the same arguments 3 times, and it brought the same each time.",
        "  Say in its instructions when enough is known; Graph(detect=repetition()) tells it so as it runs.",
        "monday: 1 symptom",
    ]


def test_the_same_as_json(here: Path, capsys: Printed) -> None:
    """For programs."""
    done(capsys, "run", "guards.py:thrice", "q", "--run-id", "monday", "-q")

    code, out, _ = done(capsys, "lint", "mon", "--json")
    found = json.loads(out)

    assert code == 1
    assert (found["run"], found["graph"]) == ("monday", "guard3")
    assert [(one["code"], one["mode"], one["where"], one["turn"]) for one in found["symptoms"]] == [
        ("same-step-again", "1.3", "guard\x1b", 2)
    ]


def test_only_some_can_be_asked_for(here: Path, capsys: Printed) -> None:
    """The exit code is about those alone."""
    done(capsys, "run", "guards.py:thrice", "q", "--run-id", "monday", "-q")

    assert done(capsys, "lint", "monday", "--only", "thin-brief", "--only", "guessed")[0] == 0
    assert done(capsys, "lint", "monday", "--only", "same-step-again")[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["monday", "--only", "loops"],
            "--only loops: there is no such symptom; there are contract-broken, not-offered",
        ),
        (["tuesday"], "tuesday"),
        (["monday", "--target", "guards.py:thrice"], "the run 'monday' is of the graph 'guard1', not of 'guard3'"),
        (["monday", "--target", "nowhere.py"], "nowhere.py"),
    ],
)
def test_what_cannot_be_done_is_told(here: Path, capsys: Printed, words: list[str], said: str) -> None:
    """In one line, without a traceback."""
    done(capsys, "run", "guards.py:once", "q", "--run-id", "monday", "-q")

    code, out, err = done(capsys, "lint", *words)

    assert code in {2, 5}
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_a_graph_that_has_changed_is_told(here: Path, capsys: Printed) -> None:
    """What is said of its nodes may be of another version."""
    done(capsys, "run", "guards.py:once", "q", "--run-id", "monday", "-q")
    Path("guards.py").write_text(GRAPHS.replace("tools=[look]", "tools=[look], max_turns=7"), "utf-8")
    for name in [name for name in sys.modules if name.endswith("guards")]:
        del sys.modules[name]

    code, out, err = done(capsys, "lint", "monday")

    assert (code, out) == (0, "monday: no symptoms\n")
    assert "the graph has changed since" in err
