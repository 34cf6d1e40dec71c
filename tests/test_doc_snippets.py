"""Every snippet of the documentation runs, and prints what the page says it prints.

In Markdown, the ```python blocks of one file run one after the other in one namespace, as the main program. A
```text block directly after one, with the line `<!-- output -->` before it, is what that block prints.

In docstrings, the examples run as if typed into a console that has the names of the module they stand in.
"""

import __future__

import contextlib
import doctest
import importlib
import io
import linecache
import re
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import pytest

from tests.support import PACKAGE, ROOT

FENCE: Final = re.compile(
    r"(?P<mark>^<!-- output -->\n)?^(?P<fence>`{3,})(?P<language>[^\s`]*)[^\n`]*\n"
    r"(?P<body>.*?)^(?P=fence)`*[ ]*$",
    re.DOTALL | re.MULTILINE,
)
MARK: Final = "<!-- output -->"
# Blocks that would be passed over without a word.
ASTRAY: Final = re.compile(r"^(?:[ \t]+`{3,}py|`{3,}(?:py|python3|pycon|Python)\b)", re.MULTILINE)

PAGES: Final = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.is_file()
]
DOCTESTED: Final = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Snippet(NamedTuple):
    """A ```python block, the line its first line stands on, and what it is to print (None: anything)."""

    code: str
    line: int
    output: str | None


def snippets(text: str) -> list[Snippet]:
    """The Python blocks of a page, in order.

    Raises:
        ValueError: if a block is written so that it would not run, or an output belongs to no block.
    """
    if stray := ASTRAY.search(text):
        line = text.count("\n", 0, stray.start()) + 1
        message = f"line {line}: write a Python block as ```python, at the beginning of the line"
        raise ValueError(message)
    found: list[Snippet] = []
    marks, end = 0, -1
    for block in FENCE.finditer(text):
        is_output = block["mark"] is not None and block["language"] == "text"
        if is_output and found and end >= 0 and not text[end : block.start()].strip():
            found[-1] = found[-1]._replace(output=block["body"])
            marks += 1
        is_python = block["language"] == "python"
        if is_python:
            found.append(Snippet(block["body"], text.count("\n", 0, block.start("body")) + 1, None))
        end = block.end() if is_python else -1
    if marks != sum(line == MARK for line in text.splitlines()):
        message = f"each {MARK} stands on the line before a ```text block that directly follows a ```python block"
        raise ValueError(message)
    return found


@contextlib.contextmanager
def module_named(name: str) -> Generator[ModuleType, None, None]:
    """A module for snippets to run in; it can be found by name, as annotations that are text need it."""
    module = ModuleType(re.sub(r"\W", "_", name))
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield module
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


def run_page(text: str, name: str) -> None:
    """Run the Python blocks of a page and compare what they print with what the page says."""
    page = snippets(text)
    # One source in which each block keeps its line, so that tracebacks and `inspect.getsource` find the code.
    lines = [""] * (text.count("\n") + 1)
    for snippet in page:
        block = snippet.code.splitlines()
        lines[snippet.line - 1 : snippet.line - 1 + len(block)] = block
    source = f"<{name}>"
    linecache.cache[source] = (len(text), None, [f"{line}\n" for line in lines], source)
    with module_named("__main__") as module:  # a reader saves the page as a file and runs that
        for code, line, expected in page:
            printed = io.StringIO()
            compiled = compile("\n" * (line - 1) + code, source, "exec", dont_inherit=True)
            with contextlib.redirect_stdout(printed):
                exec(compiled, module.__dict__)
            if expected is not None:
                assert printed.getvalue().rstrip("\n") == expected.rstrip("\n"), f"{name}, line {line}"


def run_docstrings(module: ModuleType) -> list[str]:
    """Run the examples in the docstrings of a module; what doctest says of those that failed."""
    complaints: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        with module_named(f"examples of {test.name}") as place:
            # Without the module's `from __future__ import annotations`: the reader's console has none.
            names = {key: value for key, value in test.globs.items() if value is not __future__.annotations}
            test.globs = place.__dict__
            place.__dict__.update(names | {"__name__": place.__name__})
            runner.run(test, out=complaints.append, clear_globs=False)
    return complaints


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES])
def test_page_does_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page run and print what stands there."""
    monkeypatch.chdir(tmp_path)

    run_page(path.read_text("utf-8"), str(path.relative_to(ROOT)))


def test_the_readme_shows_code_that_runs() -> None:
    """The first thing a reader sees is an example."""
    readme = ROOT / "README.md"
    assert snippets(readme.read_text("utf-8"))


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in DOCTESTED])
def test_docstrings_do_what_they_say(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples in the docstrings of a module run and print what stands there."""
    monkeypatch.chdir(tmp_path)
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))

    complaints = run_docstrings(module)

    assert not complaints, "".join(complaints)


PYTHON = "```python\nprint('a')\n```\n"


@pytest.mark.parametrize(
    ("page", "outputs"),
    [
        pytest.param("no code", [], id="none"),
        pytest.param(PYTHON, [None], id="any output"),
        pytest.param(f"{PYTHON}\n{MARK}\n```text\na\n```\n", ["a\n"], id="output"),
        pytest.param(f"{PYTHON}\n```text\nb\n```\n", [None], id="text that is not marked"),
        pytest.param(f"````markdown\n{PYTHON}````\n{PYTHON}", [None], id="quoted"),
    ],
)
def test_blocks_are_read(page: str, outputs: list[str | None]) -> None:
    """Which blocks run, and what they are to print."""
    assert [snippet.output for snippet in snippets(page)] == outputs


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(f"{PYTHON}\nand so\n\n{MARK}\n```text\na\n```\n", id="not directly after"),
        pytest.param(f"{MARK}\n```text\na\n```\n", id="no code before it"),
        pytest.param("```py\n1\n```\n", id="another name"),
        pytest.param("- one\n  ```python\n  1\n  ```\n", id="indented"),
    ],
)
def test_blocks_that_would_be_passed_over_are_refused(page: str) -> None:
    """No snippet is left out without a word."""
    with pytest.raises(ValueError, match="block"):
        snippets(page)


def test_a_page_that_says_something_else_fails() -> None:
    """Output is compared, names live on in the next block, and source is found."""
    page = (
        "```python\ndef f():\n    return 1\n```\n\n"
        f"```python\nimport inspect\nprint(inspect.getsource(f), f())\n```\n{MARK}\n"
    )

    run_page(f"{page}```text\ndef f():\n    return 1\n 1\n```\n", "page")
    with pytest.raises(AssertionError, match="page, line 7"):
        run_page(f"{page}```text\n2\n```\n", "page")


def test_a_page_runs_as_the_main_program() -> None:
    """What a page guards against being imported runs, and the main program of the tests is back afterwards."""
    before = sys.modules["__main__"]
    page = f'```python\nif __name__ == "__main__":\n    print("runs")\n```\n\n{MARK}\n```text\nruns\n```\n'

    run_page(page, "page")

    assert sys.modules["__main__"] is before


def test_examples_in_docstrings_may_define_models() -> None:
    """An example is a place of its own, where annotations are found, and one that is wrong is reported."""
    documented = ModuleType(
        "documented",
        """
    >>> from pydantic import BaseModel
    >>> class A(BaseModel):
    ...     x: int
    >>> class B(BaseModel):
    ...     a: "A"
    >>> B(a=A(x=1))
    B(a=A(x=1))
    >>> 1
    2
    """,
    )
    vars(documented)["annotations"] = __future__.annotations

    complaints = run_docstrings(documented)

    assert len(complaints) == 1
    assert "Expected:\n    2" in complaints[0]
