"""TARGET: which graph a command is about, and what is said where there is none."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.cli import main
from graphflow.cli.target import load_graph, split_file
from graphflow.errors import TargetError

GRAPH: Final = """
from graphflow import END, START, Context, Graph, State, node

class Case(Context):
    question: "str"

@node
def work(state: State[Case]) -> str:
    return "done"

def made(name):
    return Graph(name, START >> work >> END, context=Case)

"""

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes files into the folder one stands in, and forgets afterwards what was loaded from it."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)

    def write_file(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", errors="surrogateescape")
        return file

    yield write_file
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        found = sys.modules[name]
        places = [str(getattr(found, "__file__", "")), *map(str, getattr(found, "__path__", []))]
        if any(place.startswith(str(tmp_path)) for place in places) or name.startswith("_target_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("code", "target", "name"),
    [
        pytest.param("graph = made('a'); other = made('b')", "team.py", "a", id="the variable graph"),
        pytest.param("other = made('b')", "team.py", "b", id="the only graph"),
        pytest.param("one = two = made('b')", "team.py", "b", id="one graph under two names"),
        pytest.param("graph = 3; other = made('b')", "team.py", "b", id="graph is no graph"),
        pytest.param("_inner = made('a'); team = made('b')", "team.py", "b", id="private ones do not count"),
        pytest.param("_inner = made('a')", "team.py", "a", id="unless there is no other"),
        pytest.param(
            "inner = made('a'); team = Graph('b', START >> inner >> END, context=Case)",
            "team.py",
            "b",
            id="the one around the other",
        ),
        pytest.param("graph = made('a'); other = made('b')", "team.py:other", "b", id="by name"),
        pytest.param("graph = made('a')", "./team.py", "a", id="by a longer path"),
        pytest.param("graph = made('a')", "team", "a", id="as a module"),
        pytest.param("graph = made('a'); other = made('b')", "team:other", "b", id="in a module"),
    ],
)
def test_a_target_is_one_graph(write: Write, code: str, target: str, name: str) -> None:
    """With a name that variable; without one `graph`, else the only graph, or the one in which all others stand."""
    write("team.py", GRAPH + code)

    assert load_graph(target).name == name


@pytest.mark.parametrize(
    "file", ["a:b.py", "C:x.py", "two words.py", "no_suffix", "json.py", "日本.py", "x.py:y", "-.py"]
)
def test_a_path_may_look_odd(write: Write, file: str) -> None:
    """A colon separates only where a name follows it and a file stands before it."""
    write(file, GRAPH + "graph = made('a'); other = made('b')")

    assert load_graph(file).name == "a"
    assert load_graph(f"{file}:other").name == "b"


def test_a_module_of_a_package_is_a_target(write: Write) -> None:
    """Relative imports work there, and the message says so where a file of it is named."""
    write("pack/__init__.py", "")
    write("pack/base.py", GRAPH + "made_here = made('a')")
    file = write("pack/team.py", "from .base import made_here\n")

    assert load_graph("pack.team:made_here").name == "a"
    with pytest.raises(TargetError, match="named as a module: package"):
        load_graph(str(file))


def test_a_file_finds_its_neighbours(write: Write) -> None:
    """The folder of the file comes first, as with `python path`."""
    write("there/shared_by_tests.py", GRAPH)
    file = write("there/team.py", "from shared_by_tests import made\ngraph = made('a')")

    assert load_graph(str(file)).name == "a"


def test_a_main_guard_does_not_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Loading is not running."""
    write("team.py", GRAPH + "graph = made('a')\nif __name__ == '__main__':\n    print('ran')\n")

    load_graph("team.py")

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param("", "defines no Graph: bind one to the variable 'graph'", id="none"),
        pytest.param(GRAPH + "a = made('a'); b = made('b')", "name one: team.py:a, team.py:b", id="many"),
        pytest.param("def f(:", "SyntaxError: invalid syntax\n  team.py:1: def f(:", id="syntax"),
        pytest.param("x = 1\n\0", "null bytes", id="binary"),
        pytest.param("x = '\udcff'", "SyntaxError", id="encoding"),
        pytest.param("import nowhere_at_all", "team.py:1 in <module>: import nowhere_at_all", id="import"),
        pytest.param("\n1 / 0", "ZeroDivisionError: division by zero\n  team.py:2 in <module>: 1 / 0", id="error"),
        pytest.param("def f():\n  raise KeyError(3)\nf()", "team.py:2 in f: raise KeyError(3)", id="deep"),
        pytest.param("raise SystemExit(3)", "wanted to leave Python while it was loaded (SystemExit: 3)", id="exit"),
        pytest.param("def f(): f()\nf()", "RecursionError", id="recursion"),
        pytest.param(
            "from graphflow import Context\nclass C(Context):\n  x: list[int]",
            "x: list[int] is mutable; use tuple[T, ...]",
            id="mutable context",
        ),
        pytest.param(
            "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
            "(its text could not be made: ValueError)",
            id="an error without a text",
        ),
    ],
)
def test_what_cannot_be_loaded_is_shown_with_the_users_own_line(
    write: Write, capsys: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    """Exit code 2, and neither a traceback nor a file of ours."""
    write("team.py", code)

    assert main(["check", "team.py"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert "target.py" not in err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("nowhere.py:team", "there is no file 'nowhere.py'"),
        ("no/where", "there is no file 'no/where'"),
        ("nowhere", "neither a file nor a module: No module named 'nowhere'"),
        ("nowhere.at.all:x", "neither a file nor a module"),
        ("not a module", "neither a file nor a module"),
        ("", "is a folder"),
        (".", "'.' is a folder"),
        ("./", "'./' is a folder"),
        (".:graph", "'.' is a folder"),
        ("team.py:other", "no variable 'other'; its graphs: team. "),
        ("team.py:taem", "Did you mean team.py:team?"),
        ("team.py:Case", "team.py:Case is no Graph but of class ModelMetaclass; the graphs there: team"),
        ("team.py:my-graph", "which is no name of a variable"),
        ("team.py:", "which is no name of a variable"),
        ("a\0b", "neither a file nor a module"),
        ("x" * 5000, "neither a file nor a module"),
        ("json:dumps", "is no Graph but of class function"),
        ("\x1b[2J.py", r"there is no file '\x1b[2J.py'"),
    ],
)
def test_what_is_no_target_is_one_clear_error(
    write: Write, capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    """The message says what was looked for and how a target is written."""
    write("team.py", GRAPH + "team = made('a')")

    assert main(["check", target]) == 2
    err = capsys.readouterr().err
    assert said in f"{err.strip()} "
    assert "Traceback" not in err


@given(st.text())
def test_any_text_is_a_target_or_a_target_error(text: str) -> None:
    """Whatever is written, splitting it raises nothing else; a module is only what is no path."""
    try:
        path, _ = split_file(text)
    except TargetError:
        return
    assert path is None or path.exists()
