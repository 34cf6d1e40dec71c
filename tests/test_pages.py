"""The pages of the documentation speak of what is there: their pictures, links, tests and modules."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from graphflow.events.records import Decision, Fact, Heard, ListenerFailed, kind_of
from graphflow.model.contract import Code
from tests.pictures import FOLDER, PICTURES, PLOTS, draw_all, drawn_from, seal
from tests.support import PACKAGE, ROOT

PAGES: Final = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.is_file()
]

LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
# A file of this repository in code font, with the name of a test in it or without.
NAMED: Final = re.compile(r"`((?:graphflow|tests|examples|benchmarks|scripts|docs)/[\w./-]*)(?:::(\w+))?`")


def page_id(path: Path) -> str:
    """A page by its place in the repository."""
    return str(path.relative_to(ROOT))


def missing(page: str, folder: Path) -> list[str]:
    """What a page names that is not there; links are read from the page's own folder."""
    lost = [link for link in LINK.findall(page) if not (folder / link).exists()]
    for name, test in NAMED.findall(page):
        path = ROOT / name
        if not path.exists():
            lost.append(name)
        elif test and not re.search(rf"^(?:async )?def {test}\(", path.read_text("utf-8"), re.MULTILINE):
            lost.append(f"{name}::{test}")
    return lost


@pytest.mark.parametrize("path", [pytest.param(path, id=page_id(path)) for path in PAGES])
def test_what_a_page_names_is_there(path: Path) -> None:
    """Every link leads to a file, and every module and test that is named exists."""
    assert missing(path.read_text("utf-8"), path.parent) == []


def test_the_page_of_events_has_each_kind_with_its_fields() -> None:
    """Facts, decisions, and what is heard alone: in a row of their own, with the fields that a listener finds."""
    page = (ROOT / "docs" / "events.md").read_text("utf-8")
    rows = {
        row[0]: set(re.findall(r"`(\w+)`", row[2]))
        for row in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)
    }

    kinds: list[Any] = [*get_args(Fact), *get_args(Decision), *get_args(Heard), ListenerFailed]

    assert rows == {kind_of(kind): {field.name for field in fields(kind)} - {"path"} for kind in kinds}


@pytest.mark.parametrize(
    ("page", "lost"),
    [
        pytest.param("[a](README.md#top) [b](https://example.org/a) [c](#here)", [], id="there"),
        pytest.param("[a](nowhere.md)", ["nowhere.md"], id="link"),
        pytest.param("`tests/test_pages.py::missing` `graphflow/model/`", [], id="named"),
        pytest.param("`tests/nowhere.py`", ["tests/nowhere.py"], id="file"),
        pytest.param("`tests/test_pages.py::miss`", ["tests/test_pages.py::miss"], id="test"),
    ],
)
def test_what_is_missing_is_found(page: str, lost: list[str]) -> None:
    """The rule itself, on pages of one line."""
    assert missing(page, ROOT) == lost


def test_the_architecture_page_names_every_module() -> None:
    """Whoever adds a module says in one line what it is; the modules of the command line share a line."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = {name for name, _ in NAMED.findall(page)}
    modules = [path.relative_to(ROOT) for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")]

    silent = sorted(str(path) for path in modules if named.isdisjoint((f"{path}", f"{path.parent}/")))

    assert silent == []


def test_the_errors_page_explains_every_code() -> None:
    """Whoever meets a reason can look up what it means."""
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")

    assert [code for code in get_args(Code) if f"`{code}`" not in page] == []


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_its_graph_as_it_is_now(name: str) -> None:
    """A picture was drawn from what its page defines today; `scripts/pictures` draws all of them again."""
    lines = (FOLDER / name).read_text("utf-8").splitlines()

    assert lines[-1] == seal(*drawn_from(PICTURES[name]))


def test_pictures_can_be_drawn_again(tmp_path: Path) -> None:
    """Drawing gives every picture, and nothing else."""
    draw_all(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*PICTURES, *PLOTS})
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted({*PICTURES, *PLOTS})
