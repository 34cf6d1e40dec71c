"""What is too long for a model is cut where it is long: the short fields stay."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Reason, Report
from graphflow.model.cutting import SHORT, most, shown_within, within
from graphflow.model.thread import shown
from tests.support import examples


def repeated(text: str, times: int) -> str:
    """Make a long text of a short one."""
    return text * times


TEXTS = st.text(max_size=40) | st.builds(repeated, st.text(min_size=1, max_size=3), st.integers(0, 900))
PLAIN: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | TEXTS


def holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return lists and objects of some values."""
    return st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner, max_size=6)


OBJECTS = st.dictionaries(st.text(max_size=5), st.recursive(PLAIN, holding, max_leaves=40), max_size=6)


def shape(value: Any) -> Any:
    """Return a value without its texts and the ends of its lists: what a cut leaves."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return [] if isinstance(value, list) else "" if isinstance(value, str) else value


@settings(max_examples=examples(300))
@given(OBJECTS, st.integers(0, 4_000))
def test_what_is_cut_fits_and_keeps_its_fields(value: dict[str, Any], cap: int) -> None:
    """It is JSON of at most so many characters, with every field and every number as it was, or "" if none can be."""
    text = json.dumps(value, ensure_ascii=False)

    cut = within(text, cap)

    assert len(cut) <= cap
    if cut:
        assert shape(json.loads(cut)) == shape(value)
    if len(text) <= cap:
        assert cut == text


@settings(max_examples=examples(200))
@given(st.integers(16_000, 60_000), st.integers(0, 60), st.sampled_from(("done", "partial", "needs_input")))
def test_a_report_keeps_its_short_fields(length: int, ids: int, status: Any) -> None:
    """However long a finding is, what the caller must do, the evidence and the status stand in what it reads."""
    why = None if status == "done" else Reason(code="reported", text="half of it")
    report = Report(
        finding="f\n" * length, action_needed="CALL", evidence=tuple(f"e-{n}" for n in range(ids)), status=status,
        reason=why,
    )  # fmt: skip

    found = json.loads(shown_within(report))

    assert {**found, "finding": ""} == {**json.loads(shown(report)), "finding": ""}
    assert 7_000 < len(found["finding"]) < 16_000


def test_short_values_and_texts_are_as_they_are_shown() -> None:
    """Only what is too long is cut, and a text is no object to be cut inside."""
    for value in ("x" * 20_000, {"a": 1}, Report(finding="f"), None, 7):
        assert shown_within(value) == shown(value)


def test_long_lists_lose_their_ends() -> None:
    """Texts that are short are whole, and it says how many are gone."""
    report = Report(finding="found", evidence=tuple(f"evidence-{n}" for n in range(5_000)))

    found = json.loads(shown_within(report))

    assert (found["finding"], found["status"], found["evidence"][0]) == ("found", "done", "evidence-0")
    assert found["evidence"][-1] == f"[{5_000 - len(found['evidence']) + 1} more were left out]"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 900,
        '"' + "x" * 900 + '"',
        "[" * 900,
        "[" * 100_000,
        '{"a": ' + "9" * 9_000 + "}",
        "[" + "1," * 30_000 + "1]",
    ],
    ids=["text", "string", "open", "deep", "number", "many"],
)
def test_what_cannot_be_cut_inside_is_none(text: str) -> None:
    """No JSON, no object or list, too deep, too many parts: nothing is made of it, and nothing raises."""
    assert within(text, 300) == ""


def test_the_greatest_number_is_found() -> None:
    """Of the numbers whose text fits, the greatest is taken."""
    assert most(lambda number: "x" * number, 5, 0, 100) == "xxxxx"
    assert most(lambda number: "x" * (number + SHORT), 5, 0, 100) == ""
