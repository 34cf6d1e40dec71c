"""The page about failure detectors says what is measured."""

import re

from graphflow.lint import CODES
from tests.lint.rates import alarms, rates
from tests.support import ROOT

PAGE = ROOT / "docs" / "failure-detectors.md"
ROW = re.compile(r"^\| `([\w-]+)` \| ([\d.]*) ?\|.*\| (\d+) of (\d+) \|$", re.MULTILINE)


def test_the_page_says_what_is_measured() -> None:
    """A row for each rule, with how many of its seeds it flags."""
    said = {
        code: (mode, int(flagged), int(seeded)) for code, mode, flagged, seeded in ROW.findall(PAGE.read_text("utf-8"))
    }

    assert said == {rate.code: (rate.mode, rate.flagged, rate.seeded) for rate in rates()}
    assert tuple(said) == CODES


def test_the_page_says_the_sums_and_the_false_alarms() -> None:
    """In one sentence each."""
    text = " ".join(PAGE.read_text("utf-8").split())
    flagged, seeded = sum(rate.flagged for rate in rates()), sum(rate.seeded for rate in rates())
    wrong = sum(bool(codes) for codes in alarms())

    assert f"In all, {flagged} of {seeded} seeded runs are flagged." in text
    assert (
        f"Of {len(alarms())} good runs, many of them made to look much like bad ones, {wrong} are flagged wrongly"
        in text
    )


def test_the_rules_are_worth_having() -> None:
    """Each flags three quarters of its seeds at least, and few good runs are flagged."""
    assert all(rate.flagged / rate.seeded >= 0.75 for rate in rates())
    assert sum(bool(codes) for codes in alarms()) / len(alarms()) < 0.05
