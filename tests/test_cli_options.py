"""The page about the command line has every option of every command, and no other."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support import ROOT
from tests.test_cli_json import COMMANDS

PAGE: Final = (ROOT / "docs" / "command-line.md").read_text("utf-8")
REHEARSAL: Final = (ROOT / "docs" / "rehearsal.md").read_text("utf-8")
LONG: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
CODE: Final = re.compile(r"`([^`]+)`")


def options() -> Iterator[tuple[str, str, str]]:
    """Every option of the parser: its command, itself, and what its help says."""
    for words, found in COMMANDS.items():
        for one in found.params:
            if one.param_type_name == "option":
                yield from ((" ".join(words), option, one.help or "") for option in one.opts)


def table() -> Iterator[tuple[str, str]]:
    """Every option of the page's table, with each of its commands."""
    everywhere = {" ".join(words) for words in COMMANDS}
    for line in PAGE.partition("## Every option")[2].splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        if len(cells) != 3 or not cells[0].startswith("`-"):
            continue
        named = set(CODE.findall(cells[1]))
        commands = everywhere - named if cells[1].startswith("all") else named
        yield from ((command, option.split()[0]) for option in CODE.findall(cells[0]) for command in commands)


def test_the_page_has_every_option_and_no_other() -> None:
    """What an option is of stands in a table; those of `rehearse` alone have a page of their own."""
    known, listed = {(command, option) for command, option, _ in options()}, set(table())
    elsewhere = {(command, option) for command, option in known - listed if option in LONG.findall(REHEARSAL)}

    assert {command for command, _ in elsewhere} == {"rehearse"}
    assert known - listed - elsewhere == set()
    assert listed - known == set()


def test_pages_name_no_option_that_is_not_there() -> None:
    """Also in the text around the table, and on the pages that speak of commands."""
    known = {option for _, option, _ in options()} | {"--help", "--version"}
    others = [
        (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("durable-runs", "mcp", "failure-detectors")
    ]

    assert {option for page in (PAGE, REHEARSAL, *others) for option in LONG.findall(page)} - known == set()


def test_every_option_has_help() -> None:
    """A sentence each, which ends as one does, or with its default."""
    bare = [(command, option) for command, option, text in options() if not re.search(r"[.\]]\Z", text)]

    assert bare == []


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_what_it_does(words: tuple[str, ...]) -> None:
    """In its help, which begins with a sentence."""
    assert re.match(r"[A-Z][^\n]*\.", COMMANDS[words].help or "")
