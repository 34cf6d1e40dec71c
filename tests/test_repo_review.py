"""The example that reviews a folder: its rules, hostile folders, and reports that a stranger can check."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.repo_review import (
    CREW_FILES,
    CREWS,
    MAX_BYTES,
    RULES,
    SHOWN,
    Case,
    Review,
    Unread,
    graph,
    holds,
    inspect,
    is_test,
    merged,
    span,
    walk,
    write,
)
from graphflow import Budget, Reason, Report, Result, State, run, run_sync
from tests.support import ROOT

LATER: Final = f"TO{'DO'}"  # the mark itself may not stand in this repository

# Root may read everything, unless it gives that up.
GIVE_UP: Final = "-dac_override,-dac_read_search"
PLAIN_USER: Final = () if os.geteuid() else ("setpriv", f"--bounding-set={GIVE_UP}", f"--inh-caps={GIVE_UP}")


def fill(folder: Path, files: Mapping[str, str]) -> Path:
    """Write text files into a folder, with the folders that they need."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return folder


def review(folder: Path) -> Result[Case]:
    """The team's work on a folder."""
    return run_sync(graph, Case(folder=str(folder)))


# --- the report, as a stranger reads it ------------------------------------------------------------------------------


class Citation(NamedTuple):
    """A finding in a report: its headings, and what it cites."""

    desk: str
    kind: str
    path: str
    line: int
    quote: str


CODE: Final = r"(?P<fence>`+)(?P<text>.*?[^`])(?P=fence)"
BULLET: Final = re.compile(rf"- {CODE}(?:: .*)?")
QUOTE: Final = re.compile(rf"  {CODE}")


def visible(text: str) -> str:
    """A text as a report shows it: what cannot be printed is escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def code(text: str) -> str:
    """What stands between two fences, as CommonMark reads it: one space on each side belongs to them."""
    return text[1:-1] if text.startswith(" ") and text.endswith(" ") and text.strip() else text


def cited(report: str) -> list[Citation]:
    """The citations of a report, read from its Markdown alone."""
    found: list[Citation] = []
    desk = kind = ""
    lines = report.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("## "):
            desk = line.removeprefix("## ").partition(":")[0]
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
        elif (bullet := BULLET.fullmatch(line)) and (quote := QUOTE.fullmatch(after)):
            path, _, number = code(bullet["text"]).rpartition(":")
            found.append(Citation(desk, kind, path, int(number), code(quote["text"])))
    return found


def complaints(report: str, folder: Path) -> list[str]:
    """What a stranger with the folder at hand says against a report."""
    files = {visible(path.relative_to(folder).as_posix()): path for path in folder.rglob("*") if path.is_file()}
    citations = cited(report)
    found = [f"{each} stands twice" for each in set(citations) if citations.count(each) > 1]
    for each in citations:
        lines = files[each.path].read_text("utf-8-sig").split("\n") if each.path in files else []
        if not 1 <= each.line <= len(lines):
            found.append(f"{each} cites a line that is not there")
        elif visible(lines[each.line - 1].strip()[:160]) != each.quote:
            found.append(f"{each} quotes something else than {lines[each.line - 1]!r}")
    return found


# --- rules -----------------------------------------------------------------------------------------------------------

FOUND: Final = {
    "does not parse": ("code", "a.py", "x = 1\nif x\n    pass\n", [2]),
    "merge conflict": ("code", "a.js", "a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n", [2, 6]),
    "lost comparison": ("tests", "test_a.py", "def test_a():\n    f() == 1\n    assert f() < f() < 2\n", [2]),
    "dead assert": ("tests", "test_a.py", "with pytest.raises(E):\n    x = f()\n    assert x == 1\n", [3]),
    "lost error": ("code", "a.py", "try:\n    f()\nexcept Exception:\n    pass\n", [3]),
    "lost task": ("code", "a.py", "async def f():\n    asyncio.create_task(g())\n    t = create_task(g())\n", [2]),
    "shared default": ("code", "a.py", "def f(a, b=(), *, c=[]):\n    pass\n\n\nlambda x=None: x\n", [1]),
    "wrong default": ("docs", "a.py", 'def f(*, a=1, b=2):\n    """F.\n\n    a: default 2\n    b: default 2"""\n', [4]),
    "dead link": ("docs", "a.md", "[a](a.md) [b](b.md)\n\n```\n[c](c.md)\n```\n[d](https://d.org/e)\n[f](#g)\n", [1]),
    "doubled word": ("docs", "a.md", "This is is it.\n\n    the the code\n", [1]),
    "undocumented": ("docs", "a.py", "x = 1\ndef f(): ...\ndef g(): ...\nclass H: ...\ndef _i(): ...\n", [2]),
    "not named by a test": ("tests", "a/b.py", "import x\n\n\nclass A:\n    pass\n", [4]),
    "tangled": ("code", "a.py", "def f(x):\n" + "    if x: pass\n" * 41, [1]),
    "left behind": ("code", "a.c", f"// {LATER} free it\n// {LATER}(ann) free it\n// {LATER} see #12\n", [1]),
}  # fmt: skip

NOT_FOUND: Final = {
    "a comparison that should raise": ("tests", "test_a.py", "with raises(TypeError):\n    a < b\n"),
    "an assert that is to raise": ("tests", "test_a.py", "with raises(E):\n    x = 1\n    assert f(x)\n"),
    "an assert that is to fail": ("tests", "test_a.py", "with raises(AssertionError):\n    x = 1\n    assert x == 2\n"),
    "an error dropped with a reason": ("code", "a.py", "try:\n    f()\nexcept Exception:  # a luxury\n    pass\n"),
    "an error that is named": ("code", "a.py", "try:\n    f()\nexcept KeyError:\n    pass\n"),
    "an error that is told": ("code", "a.py", "try:\n    f()\nexcept Exception:\n    print_exc()\n"),
    "a default made in the body": ("docs", "a.py", 'def f(a=None):\n    """F.\n\n    a : int, default 2\n    """\n'),
    "a default in words": ("docs", "a.py", 'def f(a=1):\n    """F.\n\n    a : int, default 10^-6\n    """\n'),
    "a doubled word that is meant": ("docs", "a.md", "I know that that is it, and x-the the-y.\n"),
    "a link that is quoted": ("docs", "a.md", "Write `[a](b.md)`.\n"),
    "a private module without docstrings": ("docs", "_a.py", "def f(): ...\ndef g(): ...\ndef h(): ...\n"),
    "a heading in reStructuredText": ("docs", "a.rst", "Title\n=======\n\n`a <b_>`_\n"),
    "code in a test's folder": ("tests", "tests/helper.py", "class A:\n    pass\n"),
    "a mark in a string": ("code", "a.py", f"x = '# {LATER}'\n"),
    "an empty file": ("code", "a.py", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOUND)
def test_what_each_rule_finds(kind: str, tmp_path: Path) -> None:
    """Every kind of finding has a small file in which it is found, on these lines and nowhere else."""
    desk, name, text, lines = FOUND[kind]
    fill(tmp_path, {name: text})

    found = inspect(str(tmp_path), desk, name).findings

    assert [(each.kind, each.line) for each in found] == [(kind, line) for line in lines]


@pytest.mark.parametrize("case", NOT_FOUND)
def test_what_no_rule_finds(case: str, tmp_path: Path) -> None:
    """What looks alike and is right is left alone."""
    desk, name, text = NOT_FOUND[case]
    fill(tmp_path, {name: text})

    seen = inspect(str(tmp_path), desk, name)

    assert (seen.findings, seen.unread) == ((), ())


@given(text=st.text(st.characters(exclude_categories=["Cs"])), desk=st.sampled_from(sorted(RULES)))
def test_whatever_a_file_holds_its_review_can_be_checked(
    text: str, desk: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any text is either unread, with the reason, or each of its findings stands on a line that is there."""
    folder = tmp_path_factory.mktemp("any")
    (folder / "test_a.py").write_bytes(text.encode())

    seen = inspect(str(folder), desk, "test_a.py")

    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert all(lines[found.line - 1].strip()[:160] == found.quote for found in seen.findings)
    assert all(found.reason for found in seen.unread)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_shown_as_code_on_one_line(text: str) -> None:
    """No name of a file and no line can break the page: what cannot be printed is escaped, the fence is longer."""
    shown = span(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]

    assert shown.isprintable()
    assert shown.endswith(fence)
    assert fence not in re.findall("`+", shown[len(fence) : -len(fence)])


# --- the walk --------------------------------------------------------------------------------------------------------


def test_what_is_not_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Links, pipes, hidden and huge things are named, never entered, opened or followed."""
    folder = fill(tmp_path / "in", {"a.py": "", ".git/b.py": "", "env/pyvenv.cfg": "", "node_modules/c.js": ""})
    fill(tmp_path, {"out.py": ""})
    (folder / "within").symlink_to(folder / "a.py")
    (folder / "out").symlink_to(tmp_path / "out.py")
    (folder / "loop").symlink_to(folder)
    (folder / "nothing").symlink_to(folder / "gone")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.py")).touch()

    found = walk(str(folder))

    assert found.files == ("a.py",)
    assert {each.path: each.reason for each in found.unread} == {
        ".git": "folder that is left out",
        "env": "folder that is left out",
        "node_modules": "folder that is left out",
        "within": "symbolic link within the folder",
        "loop": "symbolic link within the folder",
        "out": "symbolic link out of the folder",
        "nothing": "symbolic link to nothing",
        "pipe": "neither a file nor a folder",
        r"caf\xe9.py": "its name is not UTF-8",
    }


def test_the_outermost_files_come_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    """A folder with more files than the team may read: the first by depth and name, exact counts for the others."""
    limit = CREWS * CREW_FILES
    fill(tmp_path, {f"a/b/{number:04}.txt": "" for number in range(limit)} | {"z.txt": "", "y/x.txt": ""})

    found = walk(str(tmp_path))

    assert found.files[:3] == ("z.txt", "y/x.txt", "a/b/0000.txt")
    assert len(found.files) == limit
    assert found.unread == tuple(
        Unread(f"a/b/{number:04}.txt", f"over the limit of {limit:,} files") for number in (limit - 2, limit - 1)
    )


def test_a_folder_that_is_nested_deeply_is_walked(tmp_path: Path) -> None:
    """Depth is no recursion."""
    deep = "/".join("d" * 300)
    fill(tmp_path, {f"{deep}/a.py": ""})

    assert walk(str(tmp_path)).files == (f"{deep}/a.py",)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x7fELF\0\0", "binary", id="binary"),
        pytest.param("café".encode("latin-1"), "not UTF-8", id="latin-1"),
        pytest.param(b"-" * 200_000 + b"1", "nested too deeply to be parsed", id="deep"),
    ],
)
def test_a_file_that_is_no_text_is_unread(data: bytes, reason: str, tmp_path: Path) -> None:
    """A reader says why it could not read its file."""
    (tmp_path / "a.py").write_bytes(data)

    assert inspect(str(tmp_path), "code", "a.py").unread == (Unread("a.py", reason),)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """Of a file with holes of 10 GB only as much is read as shows that it is too large."""
    with (tmp_path / "a.log").open("wb") as huge:
        huge.truncate(10 * 2**30)

    assert inspect(str(tmp_path), "code", "a.log").unread == (Unread("a.log", f"larger than {MAX_BYTES:,} bytes"),)


def test_a_file_that_is_gone_is_unread(tmp_path: Path) -> None:
    """What vanished between the walk and the reader is listed."""
    assert inspect(str(tmp_path), "code", "a.py").unread == (Unread("a.py", "No such file or directory"),)


def test_what_may_not_be_opened_is_listed(tmp_path: Path) -> None:
    """Files and folders without permission are named in the report."""
    fill(tmp_path, {"a.py": "", "b/c.py": ""})
    (tmp_path / "a.py").chmod(0)
    (tmp_path / "b").chmod(0)

    run_example = [*PLAIN_USER, sys.executable, str(ROOT / "examples" / "repo_review.py"), str(tmp_path)]
    report = subprocess.run(run_example, capture_output=True, text=True, check=True).stdout

    (tmp_path / "b").chmod(0o700)
    assert "- Permission denied, 1 in all: `a.py`" in report
    assert "- folder that cannot be opened (Permission denied), 1 in all: `b/`" in report


# --- the whole team --------------------------------------------------------------------------------------------------

ODD: Final = ("a\nb.py", "``.py", "c:7:.py", " d .py", "\N{SNAKE}.py", "# e.py", "[f](g).py", "\u202eh.py")

SHOP: Final = {
    "shop/cart.py": """
        def total(prices=[]):
            try:
                return sum(prices)
            except:
                pass


        def count(prices): ...
        def empty(prices): ...
        """,
    "shop/till.py": 'def pay(amount=3):\n    """Pay.\n\n    amount: how much; default 5\n    """\n',
    "tests/test_cart.py": "from shop.cart import total\n\n\ndef test_total():\n    total([1]) == 1\n",
    "README.md": "# The the shop\n\nSee [the guide](docs/guide.md).\n",
    "run.sh": f"echo 1  # {LATER} more\n",
    "logo.png": "\0",
}


def test_the_team_is_sound() -> None:
    """The graph has no problem, calls no model, and nothing in it is without a bound."""
    worst = graph.worst_case()

    assert graph.check() == ()
    assert (worst.model_calls, worst.tool_calls, worst.depth) == (0, 0, 2)
    assert worst.node_runs < 4_000


async def test_a_review_names_what_is_wrong(tmp_path: Path) -> None:
    """Each lead reports; every citation holds for a reader who knows only the report and the folder."""
    result = await run(graph, Case(folder=str(fill(tmp_path, SHOP))))

    found = {(each.desk, each.kind, each.path, each.line) for each in cited(result.output)}
    assert result.status == "completed"
    assert found == {
        ("Code", "Shared default", "shop/cart.py", 2),
        ("Code", "Lost error", "shop/cart.py", 5),
        ("Code", "Left behind", "run.sh", 1),
        ("Docs", "Wrong default", "shop/till.py", 4),
        ("Docs", "Undocumented", "shop/cart.py", 2),
        ("Docs", "Dead link", "README.md", 3),
        ("Tests", "Lost comparison", "tests/test_cart.py", 5),
        ("Tests", "Not named by a test", "shop/till.py", 1),
    }
    assert complaints(result.output, tmp_path) == []
    assert "- binary, 1 in all: `logo.png`" in result.output
    assert result.spent.total.model_calls == 0


def test_reports_carry_their_evidence(tmp_path: Path) -> None:
    """What comes back from a lead is a report like any other: a finding, and ids of what supports it."""
    reports = review(fill(tmp_path, SHOP)).context.reports

    assert [report.finding for report in reports] == [
        "3 findings in 3 files",
        "3 findings in 3 files",
        "2 findings in 3 files",
    ]
    assert reports[2].evidence == ("tests/test_cart.py:5", "shop/till.py:1")


def test_two_reviews_of_one_folder_are_equal(tmp_path: Path) -> None:
    """Whoever reads first: the report is the same."""
    fill(tmp_path, SHOP)

    assert review(tmp_path).output == review(tmp_path).output


def test_odd_names_are_cited_so_that_they_can_be_found(tmp_path: Path) -> None:
    """Line breaks, backticks, colons, brackets and signs that turn the writing around stay what they are."""
    for name in ODD:
        (tmp_path / name).write_text("try:\n    f()\nexcept:\n    pass\n", "utf-8")

    report = review(tmp_path).output

    assert len(cited(report)) == SHOWN
    assert complaints(report, tmp_path) == []
    assert f"- and {len(ODD) - SHOWN} more like these" in report
    for name in ODD:  # each of them alone, so that it is among those that are shown
        alone = fill(tmp_path / "alone" / str(ODD.index(name)), {})
        alone.mkdir(parents=True)
        (tmp_path / name).rename(alone / name)
        assert complaints(review(alone).output, alone) == []
        assert len(cited(review(alone).output)) == 1


def test_an_empty_folder_gives_a_report_that_says_so(tmp_path: Path) -> None:
    """Nothing to read is no error."""
    result = review(tmp_path)

    assert result.status == "completed"
    assert cited(result.output) == []
    assert "## Code: 0 findings in 0 files" in result.output


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    """The run ends with an error that names the folder."""
    with pytest.raises(FileNotFoundError, match=r"gone' is neither a folder nor a file"):
        review(tmp_path / "gone")


def test_a_single_file_can_be_reviewed(tmp_path: Path) -> None:
    """INPUT may be a file; what lies beside it is not read."""
    fill(tmp_path, {"a.py": "try:\n    f()\nexcept:\n    pass\n", "b.py": "try:\n    f()\nexcept:\n    pass\n"})

    report = review(tmp_path / "a.py").output

    assert [(each.path, each.line) for each in cited(report)] == [("a.py", 3)]


def test_a_citation_that_no_longer_holds_is_struck_out(tmp_path: Path) -> None:
    """The check reads the file anew, and the tests too where a test would settle it."""
    fill(tmp_path, {"a.py": "class Cart: ...\n", "tests/test_b.py": "x = 1\n"})
    [finding] = inspect(str(tmp_path), "tests", "a.py").findings

    assert holds(str(tmp_path), "tests", finding, ("tests/test_b.py",))
    fill(tmp_path, {"tests/test_b.py": "x = Cart()\n"})
    assert not holds(str(tmp_path), "tests", finding, ("tests/test_b.py",))
    fill(tmp_path, {"a.py": "\nclass Cart: ...\n"})
    assert not holds(str(tmp_path), "tests", finding, ())


def test_a_reader_that_failed_is_named_as_unread() -> None:
    """One failure costs one file, and the report says which reader it was."""
    failed = Report.failed(Reason(code="failed", text="boom", path="code/crew/read~3"))

    assert merged((Review(finding="a.py"), failed)).unread == (Unread("code/crew/read~3", "boom"),)


def test_a_lead_that_failed_says_why() -> None:
    """The report has its section all the same, with the reason in place of findings."""
    failed = Report.failed(Reason(code="timeout", text="too slow"))
    case = Case(folder="a", reports=(failed, Review(finding="none"), failed))

    report = write.fn(State(case, inbox=(), path=(), turn=0, depth=0))

    assert [line for line in report.splitlines() if line.startswith("## ")] == [
        "## Code: too slow",
        "## Docs: none",
        "## Tests: too slow",
    ]


def test_a_review_stops_at_its_budget(tmp_path: Path) -> None:
    """With fewer node runs than it takes, the run ends as exhausted and names the bound."""
    result = run_sync(graph, Case(folder=str(fill(tmp_path, SHOP))), budget=Budget(node_runs=9))

    assert result.status == "exhausted"
    assert result.reason is not None
    assert result.reason.code == "node_runs"
    assert result.spent.total.node_runs == 9


@pytest.mark.parametrize("path", ["tests/a.py", "a/tests/b.json", "a/test_b.py", "a/b_test.py", "conftest.py"])
def test_tests_are_known_by_their_names(path: str) -> None:
    """By the name of the file, or of a folder above it."""
    assert is_test(path)


@pytest.mark.parametrize("path", ["a/testing.py", "contest.py", "tests.py", "latest/a.py"])
def test_other_files_are_no_tests(path: str) -> None:
    """A name that only looks alike makes no test."""
    assert not is_test(path)


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        pytest.param("anyio", {"Lost task", "Undocumented", "Not named by a test"}, id="anyio"),
        pytest.param(
            "networkx",
            {"Lost error", "Wrong default", "Lost comparison", "Dead assert", "Not named by a test"},
            id="networkx",
        ),
    ],
)
def test_each_lead_finds_something_in_installed_sources(package: str, expected: set[str]) -> None:
    """On the sources of our own dependencies each lead has a finding, and every citation holds."""
    folder = Path(str(__import__(package).__file__)).parent

    report = review(folder).output

    found = cited(report)
    assert {each.desk for each in found} == {"Code", "Docs", "Tests"}
    assert expected <= {each.kind for each in found}
    assert complaints(report, folder) == []
