"""`graphflow rehearse`: what it prints, what it writes, and what it says of bad use."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow.cli import main

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

TEAM: Final = r'''
"""Graphs for the tests of `graphflow rehearse`."""
from graphflow import END, START, Agent, Budget, Context, Graph, Report, State, Step, Supervisor, node, tool
from graphflow.testing import ScriptedModel, call


class Case(Context):
    question: str = "Why?"


@tool
def look(number: str) -> str:
    """Look up."""
    return "paid"


says = ScriptedModel({
    "desk": [call("ask_billing", objective="look"), "enough"], "billing": [call("look", number="1"), "paid"],
})
billing = Agent("billing", model=says, tools=[look])
desk = Supervisor("desk", model=says)
graph = Graph(
    "support", START >> desk, desk.delegates(billing, max_hops=2), desk >> END, context=Case, max_depth=1,
    budget=Budget(model_calls=20),
)


def nothing(x):
    return x


@node
async def sends(state: State[Case], step: Step) -> str:
    return await step.effect("send", nothing, 1)


@node
async def breaks(state: State[Case]) -> str:
    raise ValueError("odd\x1b[2J")


sender = Graph("sender", START >> sends >> END, context=Case)
breaker = Graph("breaker", START >> breaks >> END, context=Case)
helpers = {"send": lambda x: f"sent {x}"}
'''


@pytest.fixture(name="team")
def team_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with graphs, in the folder one stands in, where runs are stored too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    (tmp_path / "rehearsed_team.py").write_text(TEAM, "utf-8")
    return "rehearsed_team.py"


def test_it_prints_a_table(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table goes to stdout, nothing to stderr where no code of the user's runs."""
    code = main(["rehearse", team, "--runs", "50", "--latency", "2", "--act", "1,0", "--tool-latency", "look=1"])

    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert said.out.startswith("rehearsal of support: 50 runs, seed 0\n")
    row = next(line for line in said.out.splitlines() if "wall time" in line)
    assert row.split() == ["wall", "time", *["9", "s"] * 6]
    assert "100.0%  completed" in said.out


def test_it_prints_json(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: each measure, the ends, the notes; the same seed gives the same text."""
    words = ["rehearse", team, "Why not?", "--runs", "20", "--seed", "3", "--json", "--budget", "model_calls=3"]

    texts: list[str] = []
    for _ in range(2):
        assert main(words) == 0
        texts.append(capsys.readouterr().out)

    assert texts[0] == texts[1]
    data: dict[str, Any] = json.loads(texts[0])
    assert (data["graph"], data["runs"], data["seed"], data["excesses"]) == ("support", 20, 3, [])
    assert data["measures"]["model_calls"]["budget"] == 3
    assert data["measures"]["model_calls"]["worst_case"] == 30
    assert sum(end["runs"] for end in data["ends"]) == 20


def test_it_draws_a_picture(team: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into the file that is named; one that cannot be written is told."""
    assert main(["rehearse", team, "--runs", "5", "--plot", "plot.svg", "--price", "3,15"]) == 0
    assert (tmp_path / "plot.svg").read_text("utf-8").startswith("<svg xmlns=")
    assert "cost" in capsys.readouterr().out
    assert main(["rehearse", team, "--runs", "5", "--plot", "nowhere/plot.svg"]) == 2
    assert "--plot nowhere/plot.svg: it cannot be written" in capsys.readouterr().err


def test_it_draws_from_a_stored_run(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Times and tokens of a run, of all agents or of one; what comes later on the line counts."""
    assert main(["run", team, "--run-id", "monday", "-q"]) == 0
    recorded = "recorded:monday"
    words = ["rehearse", team, "--runs", "5", "--latency", recorded, "--latency", "desk=3", "--tokens", recorded]

    assert (
        main(
            [
                *words,
                "--tool-latency",
                f"look={recorded}",
                "--input-tokens",
                f"billing={recorded}",
                "--people-latency",
                "5",
                "--approval-rate",
                "1",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "latency of models 4 recorded (desk: 3, billing: 2 recorded) s" in said
    assert "latency of tools lognormal:0.5,0.6 (look: 1 recorded) s" in said
    assert main(["rehearse", team, "--tool-tokens", recorded]) == 2
    assert "nothing that could be drawn from was recorded of tool tokens" in capsys.readouterr().err
    assert main(["rehearse", team, "--latency", "recorded:tuesday"]) != 0
    assert "no run 'tuesday'" in capsys.readouterr().err


def test_it_says_which_code_runs(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it does; and an effect without a stand-in is told."""
    assert main(["rehearse", f"{team}:sender", "--runs", "5"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("the bodies of sends run; what they do outside of step.effect really happens.\n")
    assert "stand_ins={'send': function}" in said
    assert main(["rehearse", f"{team}:sender", "--runs", "5", "--stand-ins", "helpers"]) == 0
    assert "100.0%  completed" in capsys.readouterr().out


def test_how_runs_break_is_told_in_one_line(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The kind of error and its node; the text of one is in the JSON."""
    assert main(["rehearse", f"{team}:breaker", "--runs", "5"]) == 0
    assert "100.0%  failed: ValueError at breaks" in capsys.readouterr().out
    assert main(["rehearse", f"{team}:breaker", "--runs", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ends"][0]["example"] == "odd\x1b[2J"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--latency", "gamma:1"], "--latency gamma:1: the distribution 'gamma:1': there is no 'gamma'"),
        (["--latency", "biling=2"], "Did you mean 'billing'?"),
        (["--act", "often"], "--act often: 'often' is no number."),
        (
            ["--act", "1,0,0,0,0"],
            "--act 1,0,0,0,0: '1,0,0,0,0' has more than four numbers: P, FADING, SEVERAL, HAND_OVER.",
        ),
        (["--act", "desk=2"], "--act desk=2: Choices: act=2.0: a probability from 0 to 1 is needed."),
        (["--failure-rate", "3"], "--failure-rate 3: 3.0: a probability"),
        (["--price", "3"], "--price 3: two amounts of at least 0 are needed, as 3,15"),
        (["--price", "a,b"], "--price a,b: two amounts"),
        (["--plot", "plot.png"], "--plot plot.png: it is drawn as SVG; name a file that ends in .svg."),
        (["--stand-ins", "nobody"], "rehearsed_team.py has no variable of that name"),
        (["--budget", "calls=3"], "a budget has no dimension 'calls'"),
        (["--set", "x=3"], "the context Case has no field 'x'"),
    ],
)
def test_bad_use_is_told(team: str, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with the words that were written and what to write."""
    assert main(["rehearse", team, *words]) == 2

    said = capsys.readouterr()
    assert complaint in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
