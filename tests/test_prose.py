"""The repository speaks of itself alone, and leaves nothing unsaid for later."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support import ROOT

# Written in pieces, so that this file does not find itself.
MARKER: Final = f"TO{'DO'}"
HOME: Final = f"/{'work'}/"
FORBIDDEN: Final = (
    (re.compile(rf"\b(?:{MARKER}|FIX[M]E|X[X]X)\b"), "a marker for later: do it, or write an issue"),
    (re.compile(rf"(?<![\w.~-])(?:{HOME}|/roo[t]/)"), "a path of one developer's machine"),
)


def complaints(text: str) -> list[str]:
    """What a text may not contain, a line for each."""
    return [
        f"{number}: {reason}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, reason in FORBIDDEN
        if pattern.search(line)
    ]


def text_of(path: Path) -> str | None:
    """The content of a file, None if it is no text."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return None


def files() -> list[Path]:
    """What git tracks, or would if it were added now."""
    # A checkout may belong to another user than the one who runs the tests, in a container for instance.
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_the_repository_speaks_of_itself_alone() -> None:
    """No file has markers for later or paths of a developer's machine in it."""
    found = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in files()
        if (text := text_of(path)) is not None
        for complaint in complaints(text)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(f"# {MARKER}: later", 1, id="marker"),
        pytest.param(f"mktemp a.{'X' * 6}", 0, id="longer word"),
        pytest.param(f"see {HOME}notes.md", 1, id="path"),
        pytest.param(f"https://example.org{HOME}notes.md", 0, id="address"),
        pytest.param("all is well", 0, id="prose"),
    ],
)
def test_what_is_forbidden_is_found(text: str, count: int) -> None:
    """The rules themselves, on texts of one line."""
    assert len(complaints(text)) == count
