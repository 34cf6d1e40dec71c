"""The page about the command line shows what its commands print, but for times."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import ROOT
from tests.test_doc_snippets import FENCE

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

PAGE: Final = ROOT / "docs" / "command-line.md"

TIMES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "2026-01-01 12:00:00"),
    (re.compile(r"\b[\d.]+(?:e-\d+)?( of 60)? s\b"), r"0.0\1 s"),
    (re.compile(r"just now|\d+ seconds? ago|1 minute ago"), "just now"),
    (re.compile(r"(?m)^\.\.\. .*\n"), ""),  # what is told of a run that takes long
    (re.compile(r"\(\d+ node runs? · .*\)"), "(...)"),  # what had been spent when one of two branches was done
    (re.compile(r" {2,}"), "  "),  # columns are as wide as the times in them
)
"""What differs from one time to the next, and what stands there instead."""


def settled(text: str) -> list[str]:
    """The lines of a text, without times; in an order of their own, for branches take turns as they come."""
    for pattern, instead in TIMES:
        text = pattern.sub(instead, text)
    return sorted(text.splitlines())


def commands(page: str) -> list[tuple[str, str]]:
    """The commands of a page, each with what it prints."""
    found: list[tuple[str, str]] = []
    for block in FENCE.finditer(page):
        if block["language"] == "console":
            _, *parts = re.split(r"(?m)^\$ ", block["body"])
            found += [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]
    return found


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """Its commands, one after the other in one folder."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = tmp_path / "graphflow"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m graphflow.cli "$@"\n', "utf-8")
    program.chmod(0o700)
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"}

    shown = commands(PAGE.read_text("utf-8"))
    printed = [
        subprocess.run(
            ["sh", "-c", f"({command}) 2>&1"], cwd=tmp_path, env=around, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, encoding="utf-8", check=False,
        ).stdout
        for command, _ in shown
    ]  # fmt: skip

    assert len(shown) == 16
    assert [settled(text) for text in printed] == [settled(text) for _, text in shown]
