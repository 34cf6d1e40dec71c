"""The command line in one process: what it prints where, its exit codes, and what it says of bad use."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow.cli import main
from graphflow.persistence.lines import read_event

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

TEAM: Final = r'''
"""A team for the tests of the command line."""
import asyncio
import time
from typing import Annotated

from graphflow import (
    END, START, Budget, Call, Context, Delegate, Done, Graph, Human, Json, Report, State, Step, Update, append, fork,
    node, on, when,
)


class Case(Context):
    question: str
    count: int = 3
    data: Json = None
    reports: Annotated[tuple[Report, ...], append] = ()


@node
async def lead(state: State[Case]):
    if state.turn == 0:
        return Delegate(Call("worker", "look"), Call("helper", "listen"))
    return Report(finding="all done", evidence=("a.py:1",), action_needed="ship it")


@node
async def worker(state: State[Case], step: Step) -> str:
    print("printed by a node")
    step.emit("half way")
    return await step.effect("look", lambda: "seen", cost=Budget(tool_calls=1))


@node
async def helper(state: State[Case]) -> str:
    return "heard"


@node
async def keen(state: State[Case]):
    return "enough" if state.turn else Delegate(*(Call("helper", "listen") for _ in range(3)))


@node
async def insistent(state: State[Case]):
    return "enough" if state.turn else Delegate(*(Call("helper", "listen") for _ in range(9)))


@node
async def rambler(state: State[Case]) -> str:
    raise ValueError("one\ntwo")


@node
async def echo(state: State[Case]) -> str:
    return f"{state.context.question!r} {state.context.count!r} {state.context.data!r}"


@node
async def boom(state: State[Case]) -> str:
    raise ValueError("it broke")


@node
async def costly(state: State[Case], step: Step) -> str:
    return await step.effect("buy", lambda: "bought", cost=Budget(tool_calls=5))


@node
async def late(state: State[Case], step: Step) -> str:
    await step.sleep(60)


@node
async def note(state: State[Case]):
    return Update(count=7)


@node
async def merge(state: State[Case]) -> str:
    return "merged"


@node
async def leave(state: State[Case]):
    raise SystemExit(0)


@node(name="evil\x1b[2J\r")
async def evil(state: State[Case], step: Step) -> str:
    step.emit("\a")
    return "\x1b[31mred"


def graph_of(name, *statements, **more):
    return Graph(name, *statements, context=Case, **more)


team = graph_of("team", START >> lead, lead.delegates(worker, helper, max_hops=1), lead >> END, max_depth=1,
                budget=Budget(node_runs=10, tool_calls=4, seconds=60))
eager = graph_of("eager", START >> keen, keen.delegates(helper, max_hops=1), keen >> END, max_depth=1)
insists = graph_of("insists", START >> insistent, insistent.delegates(helper, max_hops=1), insistent >> END,
                   max_depth=1)
rambles = graph_of("rambles", START >> rambler >> END)
echoes = graph_of("echoes", START >> echo >> END)
breaks = graph_of("breaks", START >> boom >> END)
exhausts = graph_of("exhausts", START >> costly >> END, budget=Budget(tool_calls=1))
collects = graph_of("collects", START >> fork(boom, echo, failure="collect") >> merge >> END)
times_out = graph_of("times_out", START >> node(late.fn, name="late", timeout=0.01) >> END)
updates = graph_of("updates", START >> note >> END)
asks = graph_of("asks", START >> Human("approve", "How many?", schema=int) >> END)
says = graph_of("says", START >> Human("approve", "What?", schema=str) >> END)
endless = graph_of("endless", START >> echo >> note >> echo)
leaves = graph_of("leaves", START >> leave >> END)
crew = graph_of("crew", START.map(echo, over=lambda state: range(9), join=merge, failure="collect"), merge >> END)
evil = graph_of("evil\n", START >> evil >> END)
'''


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """A file of graphs in the folder one stands in; gives the target of one of them."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    file = tmp_path / "team_of_tests.py"
    file.write_text(TEAM, "utf-8")
    yield lambda name: f"{file}:{name}"
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


Team = Callable[[str], str]
Printed = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


# --- results ---------------------------------------------------------------------------------------------------------


def test_the_result_goes_to_stdout_and_the_progress_to_stderr(team: Team, capsys: Printed) -> None:
    """A program reads one, a person the other; what nodes print is not part of the result."""
    code = main(["run", team("team"), "why?"])

    printed = capsys.readouterr()
    assert code == 0
    assert printed.out == "all done\naction needed: ship it\nevidence: a.py:1\n"
    assert "lead asks worker" in printed.err
    assert "lead > worker reports to lead" in printed.err
    assert "lead > worker says: half way" in printed.err
    assert "printed by a node" in printed.err
    assert "completed · 3 of 10 node runs · 1 of 4 tool calls" in printed.err


def test_quiet_leaves_the_result_alone(team: Team, capsys: Printed) -> None:
    """With --quiet nothing is said of a run in which all went well."""
    code = main(["run", team("echoes"), "q", "--quiet"])

    assert code == 0
    assert capsys.readouterr() == ("'q' 3 None\n", "")


@pytest.mark.parametrize(
    ("name", "ended", "said"),
    [
        ("team", (0, "completed"), "completed"),
        ("collects", (1, "partial"), "partial: 1 failure on the way\n  boom: ValueError: it broke"),
        ("breaks", (1, "failed"), "failed: boom: ValueError: it broke"),
        ("times_out", (1, "failed"), "failed: late: NodeTimeout:"),
        ("exhausts", (3, "exhausted"), "exhausted: costly: "),
        ("asks", (4, "waiting"), "waiting for an answer"),
    ],
)
def test_each_end_has_an_exit_code(team: Team, capsys: Printed, name: str, ended: tuple[int, str], said: str) -> None:
    """The exit code and the JSON tell the status; stderr says why."""
    code = main(["run", team(name), "q", "--json"])

    printed = capsys.readouterr()
    assert (code, json.loads(printed.out)["status"]) == ended
    assert said in printed.err


def test_json_holds_the_whole_result(team: Team, capsys: Printed) -> None:
    """What a program needs is there, each part under its name."""
    main(["run", team("team"), "q", "--json", "-q"])

    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "status", "output", "report", "reason", "questions", "failures", "refused", "spent", "run_id", "context",
    }  # fmt: skip
    assert found["report"]["evidence"] == ["a.py:1"]
    assert found["spent"]["tool_calls"] == 1
    assert found["spent"]["by_node"]["lead/worker"]["tool_calls"] == 1
    assert found["context"]["question"] == "q"


def test_what_a_bound_refused_is_told(team: Team, capsys: Printed) -> None:
    """A refused call makes no run partial, so it is told apart: on stderr, and as JSON."""
    code = main(["run", team("eager"), "q", "--json", "--quiet"])

    printed = capsys.readouterr()
    refused = json.loads(printed.out)["refused"]
    assert code == 0
    assert [(reason["code"], reason["limit"]) for reason in refused] == [("max_hops", 1.0)] * 2
    line = "refused: keen: the bound max_hops refuses a further delegation to 'helper': its limit is 1.  ×2\n"
    assert line in printed.err


def test_what_a_bound_refused_is_told_once(team: Team, capsys: Printed) -> None:
    """As it happens, and not again at the end; where nothing is told as it happens, at the end."""
    main(["run", team("eager"), "q"])
    live = capsys.readouterr().err
    main(["run", team("eager"), "q", "--quiet"])
    quiet = capsys.readouterr().err
    main(["run", team("insists"), "q"])
    cut = capsys.readouterr().err

    assert live.count("keen is refused by max_hops (limit 1)") == 2
    assert "refuses" not in live
    assert quiet.count("refused: ") == 1
    assert "(more of this kind is not told)" in cut
    assert "its limit is 1.  ×8\n" in cut


def test_a_bound_is_said_once(team: Team, capsys: Printed) -> None:
    """The line of a run that ended at a bound names it once, and its limit once."""
    main(["run", team("exhausts"), "q"])

    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("exhausted: "))
    assert line.count("tool_calls") == 1
    assert line.count("limit") == 1


def test_the_lines_of_an_error_stand_below_its_first(team: Team, capsys: Printed) -> None:
    """An error of several lines is told in full, indented."""
    main(["run", team("rambles"), "q"])

    err = capsys.readouterr().err
    assert "rambler failed: ValueError: one / two" in err
    assert "failed: rambler: ValueError: one\n  two\n" in err


def test_a_run_without_output_shows_its_context(team: Team, capsys: Printed) -> None:
    """A graph whose nodes only update the context still has a result."""
    code = main(["run", team("updates"), "q", "-q"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["count"] == 7


def test_a_failed_node_is_shown_without_a_traceback(team: Team, capsys: Printed) -> None:
    """Path, type and text; with --traceback also the user's own lines, and no file of ours."""
    main(["run", team("breaks"), "q"])
    short = capsys.readouterr().err
    main(["run", team("breaks"), "q", "--traceback"])
    long = capsys.readouterr().err

    assert "failed: boom: ValueError: it broke\n(--traceback shows where)\n" in short
    assert 'in boom: raise ValueError("it broke")' in long
    assert "Traceback" not in short + long
    assert "runner.py" not in long


def test_a_node_that_leaves_python_is_a_failure(team: Team, capsys: Printed) -> None:
    """SystemExit of a node is no exit code of ours."""
    code = main(["run", team("leaves"), "q"])

    assert code == 1
    assert "in leave: raise SystemExit(0)" in capsys.readouterr().err


def test_lanes_are_told_once(team: Team, capsys: Printed) -> None:
    """Nine lanes are one line: nobody reads nine hundred."""
    main(["run", team("crew"), "q"])

    err = capsys.readouterr().err
    assert "9 branches, to meet at merge" in err
    assert "echo starts" not in err


# --- what goes in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["q"], "'q' 3 None"),
        (["--set", "question=q"], "'q' 3 None"),
        (["--set", "question=42"], "'42' 3 None"),
        (["--set", 'question="42"'], "'42' 3 None"),
        (["--set", "question=null"], "'null' 3 None"),
        (["42", "--set", "count=5", "--set", "count=6"], "'42' 6 None"),
        (["", "--set", "data=[1, [2]]"], "'' 3 (1, (2,))"),
        (["q", "--set", "data=a=b"], "'q' 3 'a=b'"),
        (["--", "-q"], "'-q' 3 None"),
        (["日本 \n\x1b"], r"'日本 \n\x1b' 3 None"),
    ],
)
def test_the_context_comes_from_the_words(team: Team, capsys: Printed, words: list[str], output: str) -> None:
    """INPUT is the first field; --set is JSON where that fits the field, else text."""
    code = main(["run", team("echoes"), *words])

    assert (code, capsys.readouterr().out) == (0, output + "\n")


def test_a_budget_replaces_the_dimensions_it_names(team: Team, capsys: Printed) -> None:
    """--budget wins over the graph's own bound, and leaves the others."""
    code = main(["run", team("exhausts"), "q", "--budget", "tool_calls=5", "--budget", "usd=0.10"])

    printed = capsys.readouterr()
    assert (code, printed.out) == (0, "bought\n")
    assert "5 of 5 tool calls · $0 of $0.10" in printed.err


def test_bounds_can_only_be_tightened(team: Team, capsys: Printed) -> None:
    """--max-depth below what the graph needs is a problem of the graph; above its own it is bad use."""
    codes = [main(["run", team("team"), "q", "--max-depth", depth]) for depth in ("0", "1", "2")]

    err = capsys.readouterr().err
    assert codes == [2, 0, 2]
    assert "error too-deep" in err
    assert "max_depth=1, which can only be lowered here" in err


def test_fewer_bodies_at_once_give_the_same_result(team: Team, capsys: Printed) -> None:
    """--max-parallel changes when, not what."""
    code = main(["run", team("team"), "q", "--max-parallel", "1"])

    assert (code, capsys.readouterr().out.splitlines()[0]) == (0, "all done")


# --- people ----------------------------------------------------------------------------------------------------------


def test_a_waiting_run_prints_its_questions(team: Team, capsys: Printed) -> None:
    """Where nobody can be asked, the questions are the result."""
    code = main(["run", team("asks"), "q"])

    printed = capsys.readouterr()
    assert (code, printed.out) == (4, "approve: How many? (int)\n")
    assert "graphflow resume" in printed.err


@pytest.mark.parametrize(
    ("name", "answer", "output"),
    [("asks", "3", "3"), ("says", "3", "3"), ("says", '"x"', '"x"'), ("says", "a=b", "a=b")],
)
def test_questions_are_answered_on_the_command_line(
    team: Team, capsys: Printed, name: str, answer: str, output: str
) -> None:
    """An answer is JSON where that fits, and for a question that wants a text it is the text as it stands."""
    code = main(["run", team(name), "q", "--answer", f"approve={answer}"])

    assert (code, capsys.readouterr().out) == (0, output + "\n")


def test_an_answer_that_nobody_wanted_is_told(team: Team, capsys: Printed) -> None:
    """A mistyped id is not lost without a word."""
    code = main(["run", team("asks"), "q", "--answer", "aprove=3"])

    assert code == 4
    assert "--answer aprove=3 was not needed" in capsys.readouterr().err


def test_a_second_answer_to_one_question_is_told(team: Team, capsys: Printed) -> None:
    """A question that was asked and answered is not said to be unknown."""
    code = main(["run", team("asks"), "q", "--answer", "approve=3", "--answer", "approve=4"])

    printed = capsys.readouterr()
    assert (code, printed.out) == (0, "3\n")
    assert "--answer approve=4 was not used: the question approve had its answer already." in printed.err
    assert "no question has this id" not in printed.err


def test_a_person_at_the_terminal_is_asked(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question stays until an answer fits, and the run goes on with it."""
    out, err = io.StringIO(), Terminal()
    monkeypatch.setenv("TERM", "dumb")
    for name, stream in (("stdin", Terminal("many\n3\n")), ("stdout", out), ("stderr", err)):
        monkeypatch.setattr(sys, name, stream)

    code = main(["run", team("asks"), "q"])

    assert (code, out.getvalue()) == (0, "3\n")
    assert err.getvalue().count("> ") == 2
    assert "Input should be a valid integer" in err.getvalue()


def test_the_end_of_the_input_is_no_answer(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D leaves the run waiting."""
    monkeypatch.setenv("TERM", "dumb")
    for name, stream in (("stdin", Terminal()), ("stdout", io.StringIO()), ("stderr", Terminal())):
        monkeypatch.setattr(sys, name, stream)

    assert main(["run", team("asks"), "q"]) == 4


# --- events and pictures ---------------------------------------------------------------------------------------------


def test_events_are_kept_as_lines(team: Team, tmp_path: Path, capsys: Printed) -> None:
    """The file holds every event of the run, each readable again, and can be laid over a drawing."""
    file = tmp_path / "run.jsonl"

    main(["run", team("team"), "q", "--events", str(file), "-q"])
    capsys.readouterr()
    codes = [main(["draw", team("team"), "--run", str(file), "--format", f]) for f in ("dot", "mermaid", "term")]

    events = [read_event(line) for line in file.read_text("ascii").splitlines()]
    printed = capsys.readouterr().out
    assert [event.seq for event in events] == list(range(len(events)))
    assert (events[0].kind, events[-1].kind) == ("run_started", "run_ended")
    assert codes == [0, 0, 0]
    assert "completed · 3 node runs" in printed


def test_a_last_line_that_was_cut_off_is_left_out(team: Team, tmp_path: Path, capsys: Printed) -> None:
    """A run that was killed while it wrote can still be drawn."""
    file = tmp_path / "run.jsonl"
    main(["run", team("team"), "q", "--events", str(file), "-q"])
    file.write_text(file.read_text("ascii")[:-30], "ascii")

    code = main(["draw", team("team"), "--run", str(file)])

    assert code == 0
    assert "running" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["--format", "mermaid"], "flowchart"),
        (["--format", "dot"], "digraph"),
        (["-o", "team.mmd"], "flowchart"),
        (["-o", "team.dot"], "digraph"),
        (["-o", "picture", "-f", "dot"], "digraph"),
        (["-o", "-", "-f", "dot"], "digraph"),
        ([], "team: ≤ 10 node runs"),
    ],
)
def test_a_graph_is_drawn(team: Team, tmp_path: Path, capsys: Printed, words: list[str], begins: str) -> None:
    """The format is what is asked for, or what the file's suffix says."""
    code = main(["draw", team("team"), *words])

    made = [file.read_text("utf-8") for file in tmp_path.iterdir() if file.suffix != ".py" and file.is_file()]
    text = "".join(made) or capsys.readouterr().out
    assert code == 0
    assert any(line.startswith(begins) for line in text.splitlines())
    assert "worker" in text


@pytest.mark.parametrize("words", [["-o", "team.png"], ["--format", "png"]])
def test_a_graph_is_drawn_as_png(team: Team, capfdbinary: pytest.CaptureFixture[bytes], words: list[str]) -> None:
    """An image goes into the file, or to stdout as it is."""
    code = main(["draw", team("team"), *words])

    printed = capfdbinary.readouterr().out
    assert code == 0
    assert (printed or Path("team.png").read_bytes()).startswith(b"\x89PNG")


def test_a_picture_that_is_too_wide_says_so(
    team: Team, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:  # fmt: skip
    """It is drawn all the same, and the way on is told."""
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "10")

    code = main(["draw", team("team")])

    assert code == 0
    assert "worker" in out.getvalue()
    assert "columns wide, and this terminal has 10: add `| less -S`, or -o FILE.svg" in capsys.readouterr().err


def test_a_terminal_gets_no_image(team: Team, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """Bytes of an image are nothing for a terminal."""
    monkeypatch.setattr(sys, "stdout", Terminal())

    code = main(["draw", team("team"), "-f", "png"])

    assert code == 2
    assert "add -o FILE" in capsys.readouterr().err


def test_the_lesser_renderer_is_told(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """Where graphviz is not installed its picture is recommended, in one line."""
    with_dot = main(["draw", team("echoes"), "-f", "svg"])
    first = capsys.readouterr()
    monkeypatch.setenv("PATH", str(tmp_path))
    without = main(["draw", team("echoes"), "-f", "svg"])
    second = capsys.readouterr()

    assert (with_dot, without) == (0, 0)
    assert first.err == ""
    assert second.err == "drawn without graphviz's `dot`, which gives a better picture where it is installed.\n"


def test_a_broken_graph_is_drawn_with_its_problems(team: Team, capsys: Printed) -> None:
    """A picture helps most where something is wrong."""
    code = main(["draw", team("endless"), "--format", "mermaid"])

    printed = capsys.readouterr()
    assert code == 0
    assert "no-end" in printed.out
    assert "cannot run" in printed.err


# --- checks and bounds -----------------------------------------------------------------------------------------------


def test_check_lists_every_problem(team: Team, capsys: Printed) -> None:
    """A graph with errors has the exit code 2; nothing but its problems is on stdout."""
    codes = [main(["check", team(name)]) for name in ("endless", "team")]

    printed = capsys.readouterr()
    assert codes == [2, 0]
    assert "error no-end: " in printed.out
    assert "flowchart" not in printed.out
    assert "team: " in printed.out
    assert "--mermaid draws it" in printed.err


def test_check_draws_where_that_is_asked_for(team: Team, capsys: Printed) -> None:
    """With --mermaid the picture stands above the problems, which so stay in sight; as JSON it has a key."""
    main(["check", team("endless"), "--mermaid"])
    text = capsys.readouterr().out
    main(["check", team("endless"), "--mermaid", "--json"])
    data = json.loads(capsys.readouterr().out)

    assert text.startswith("flowchart")
    assert text.index("flowchart") < text.index("error no-end: ")
    assert data["mermaid"].startswith("flowchart")


def test_check_speaks_json(team: Team, capsys: Printed) -> None:
    """Each problem with its rule, its place and what to do."""
    main(["check", team("endless"), "--json"])

    found = json.loads(capsys.readouterr().out)
    assert (found["graph"], found["ok"]) == ("endless", False)
    assert all(set(one) == {"code", "severity", "where", "message", "hint"} for one in found["problems"])


def test_a_graph_with_errors_does_not_run(team: Team, capsys: Printed) -> None:
    """Nothing has run, and all errors are listed; nor is anything proved about it."""
    codes = [main([command, team("endless"), *more]) for command, more in (("run", ["q"]), ("bounds", []))]

    printed = capsys.readouterr()
    assert codes == [2, 2]
    assert printed.out == ""
    assert printed.err.count("no way from 'echo', 'note' to END") == 2


def test_bounds_are_numbers_or_null(team: Team, capsys: Printed) -> None:
    """What has no bound is null, with the reason beside it."""
    main(["bounds", team("team")])
    text = capsys.readouterr().out
    main(["bounds", team("team"), "--json"])

    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert "worst case of 'team'" in text
    assert (found["structure"]["depth"], found["with_budget"]["tool_calls"]) == (1, 4)
    assert found["structure"]["tool_calls"] is None
    assert "worker" in found["unbounded"]["tool_calls"]


# --- bad use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ""),
        (["run"], "Missing argument 'TARGET'"),
        (["fly"], "No such command 'fly'"),
        (["run", "TEAM:team", "q", "--fast"], "No such option: --fast"),
        (["run", "TEAM:team", "q", "--max-parallel", "0"], "--max-parallel"),
        (["run", "TEAM:team"], "the context Case needs more: question (INPUT, or --set question=VALUE)"),
        (["run", "TEAM:team", "q", "--set", "question=x"], "given twice"),
        (["run", "TEAM:team", "q", "--set", "cuont=1"], "no field 'cuont'; its fields are question, count"),
        (["run", "TEAM:team", "q", "--set", "cuont=1"], "Did you mean 'count'?"),
        (["run", "TEAM:team", "q", "--set", "count"], "write --set FIELD=VALUE"),
        (["run", "TEAM:team", "q", "--set", "count=many"], "refuses --set count=many: Input should be"),
        (["run", "TEAM:team", "q", "--budget", "token=1"], "Did you mean 'tokens'?"),
        (["run", "TEAM:team", "q", "--budget", "tokens=1.5"], "tokens is a whole number of at least 0"),
        (["run", "TEAM:team", "q", "--budget", "usd=nan"], "usd is an amount"),
        (["run", "TEAM:team", "q", "--budget", "seconds=inf"], "seconds is a number"),
        (["run", "TEAM:team", "q", "--answer", "x"], "write --answer ID=VALUE"),
        (["run", "TEAM:asks", "q", "--answer", "approve=x"], "does not fit the question: Input should be"),
        (["run", "TEAM:team", "q", "--events", "."], "--events .: it cannot be written: Is a directory"),
        (["run", "TEAM:team", "q", "--events", "no/where"], "cannot be written: No such file"),
        (["run", "TEAM:team", "q", "--events", "a\0b"], "cannot be written"),
        (["run", "TEAM:team", "q", "--events", "-"], "the standard output is for the result"),
        (["draw", "TEAM:team", "--run", "."], "cannot be read: Is a directory"),
        (["draw", "TEAM:team", "--run", "TEAM"], "line 2 is not an event of a run"),
        (["draw", "TEAM:team", "--run", "empty"], "no events of a run"),
        (["draw", "TEAM:team", "--format", "gif"], "the formats are svg, png, dot, mermaid, term"),
        (["draw", "TEAM:team", "-o", "team.gif"], "the suffix tells no format"),
        (["draw", "TEAM:team", "-f", "dot", "-o", "."], "-o .: it cannot be written: Is a directory"),
    ],
)
def test_bad_use_is_one_clear_error(team: Team, tmp_path: Path, capsys: Printed, words: list[str], said: str) -> None:
    """Exit code 2, nothing on stdout but help, what is wrong on stderr, and no traceback."""
    (tmp_path / "empty").touch()
    file = team("").removesuffix(":")

    code = main([word.replace("TEAM", file) for word in words])

    printed = capsys.readouterr()
    assert code == 2
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert not words or printed.out == ""


def test_events_of_another_graph_are_refused(team: Team, tmp_path: Path, capsys: Printed) -> None:
    """An overlay of another graph's run would say nothing true."""
    file = tmp_path / "run.jsonl"
    main(["run", team("echoes"), "q", "--events", str(file)])

    code = main(["draw", team("team"), "--run", str(file)])

    assert code == 2
    assert "of the graph 'echoes', not of 'team'" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed, missing: str
) -> None:
    """Without the extra `cli` there is one line that says how to get it."""
    monkeypatch.setitem(sys.modules, missing, None)

    code = main(["check", "team.py"])

    assert code == 2
    assert "pip install 'graphflow-agents[cli]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--version"], ["--version", "check"]])
def test_the_version_is_told(capsys: Printed, words: list[str]) -> None:
    """Also beside other words."""
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("graphflow ")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["run", "--help"], ["draw", "-h"]])
def test_help_is_no_error(capsys: Printed, words: list[str]) -> None:
    """Help goes to stdout."""
    assert main(words) == 0
    assert "Usage: graphflow" in capsys.readouterr().out


# --- a terminal ------------------------------------------------------------------------------------------------------


def test_a_terminal_gets_a_tree_that_obeys_no_name(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal progress is drawn; of control characters only those of the drawing itself are in it."""
    out, err = Terminal(), Terminal()
    monkeypatch.setenv("TERM", "xterm")
    for name, stream in (("stdin", Terminal()), ("stdout", out), ("stderr", err)):
        monkeypatch.setattr(sys, name, stream)

    code = main(["run", team("evil"), "q"])

    drawn = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", err.getvalue())
    assert code == 0
    assert r"- + evil\x1b[2J\r" in drawn.replace("`", "").replace("|", "")
    assert r"says: \x07" in drawn
    assert {char for char in drawn if not char.isprintable()} <= {"\n", "\r"}
    assert out.getvalue() == "\\x1b[31mred\n"


def test_a_tree_stays_as_lines_when_the_run_is_over(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn last can be read afterwards, the spending below it."""
    err = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    for name, stream in (("stdin", Terminal()), ("stdout", io.StringIO()), ("stderr", err)):
        monkeypatch.setattr(sys, name, stream)

    main(["run", team("team"), "q", "--events", "run.jsonl"])

    last = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", err.getvalue()).rpartition("team\n")[2]
    assert last.startswith("`- + lead\n   |- + worker\n   `- + helper\n3 of 10 node runs - 1 of 4 tool calls - ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "numbers.py", "q"], "Numbers.count is none: give it with --set count=VALUE"),
        (["run", "numbers.py"], "the context Numbers needs more: count (--set count=VALUE)"),
        (["run", "numbers.py", "--set", "count=1", "--set", "pair=[1]"], "refuses together: Value error, no pair"),
        (["run", "numbers.py:empty", "q"], "the context Context has no fields, so there is nothing that takes INPUT"),
    ],
)
def test_contexts_that_take_no_input_say_so(team: Team, capsys: Printed, words: list[str], said: str) -> None:
    """Every context says how it is filled."""
    Path("numbers.py").write_text(NUMBERS, "utf-8")

    assert main(words) == 2
    assert said in capsys.readouterr().err


NUMBERS: Final = """
from graphflow import END, START, Context, Graph, State, node
from pydantic import model_validator
from graphflow.persistence.lines import read_event

class Numbers(Context):
    count: int
    pair: tuple[int, ...] = (1, 2)

    @model_validator(mode="after")
    def _paired(self):
        if len(self.pair) != 2:
            raise ValueError("no pair")
        return self

@node
async def work(state):
    return 1

graph = Graph("numbers", START >> work >> END, context=Numbers)
empty = Graph("empty", START >> work >> END, context=Context)
"""
