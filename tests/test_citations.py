"""Citations in a text: markers, claims, and whether a text is the same without its markers."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.graphs.citations import check_citations, cited, same_text
from tests.support import examples

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
ODD_IDS = st.text("ab1[](), :.", min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
WORDS = st.lists(st.text("abcXYZ'é", min_size=1, max_size=6), min_size=1, max_size=12)
TEXTS = st.text(max_size=120) | st.text("ab.[]()?! \n-#:,1`", max_size=80)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Paid twice [INV-311].", ["INV-311"]),
        ("Paid twice [INV-311][notes.md:12].", ["INV-311", "notes.md:12"]),
        ("Paid twice [INV-311, notes.md:12; 7].", ["INV-311", "notes.md:12", "7"]),
        ("Paid twice [INV-311] [INV-311].", ["INV-311"]),
        ("Twice [sic], see [this](https://example.org/a-1) or [ ] or [x].", []),
        ("Twice [a b-1] [not closed-1", []),
        ("Twice [over-\nline]", []),
        ("[]", []),
    ],
)
def test_what_is_a_marker(text: str, ids: list[str]) -> None:
    """What stands in brackets and looks like an id; no link, no remark, nothing that is not closed."""
    assert list(cited(text)) == ids


@pytest.mark.parametrize("odd", ["a[0]", "x]y", "[", "page 3", "a, b", "a;b", "(", "Käse", "a [b", "sic"])
def test_a_known_id_may_have_any_form(odd: str) -> None:
    """What is known is found, with brackets, commas and blanks in it, alone and beside others."""
    alone, beside = check_citations(f"It was paid twice [{odd}].", [odd]), f"It was paid twice [{odd}, INV-1][INV-1]."

    assert (alone.uncited, alone.dangling, alone.bare) == ((), (), "It was paid twice.")
    assert set(cited(beside, [odd, "INV-1"])) == {odd, "INV-1"}


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("It was paid twice. The parcel is lost.", ["It was paid twice.", "The parcel is lost."]),
        ("# It was paid twice\n\nWas it paid twice? Thank you!\n\nHere is what we found:", []),
        ("- It was paid twice\n- The parcel is lost\n", ["It was paid twice", "The parcel is lost"]),
        ("1. It was paid twice.\n2) The parcel is lost.", ["It was paid twice.", "The parcel is lost."]),
        (
            "Dr. Who paid it twice, e.g. in May. It cost 3.5 crowns.",
            ["Dr. Who paid it twice, e.g. in May.", "It cost 3.5 crowns."],
        ),
        ("```\nthis is code here\n```\nIt was paid twice", ["It was paid twice"]),
        ("It was paid twice! “It was so.” He said that…", ["It was paid twice!", "“It was so.”", "He said that…"]),
        ("one two. three four five", ["one two. three four five"]),
        ("", []),
    ],
)
def test_what_is_a_claim(text: str, claims: list[str]) -> None:
    """A sentence of three words or more; no heading, no question, no code, nothing that leads to a list."""
    assert list(check_citations(text, ()).claims) == claims


@pytest.mark.parametrize(
    ("text", "uncited"),
    [
        ("It was paid twice [A-1]. The parcel is lost.", ["The parcel is lost."]),
        ("It was paid twice. [A-1] The parcel is lost.", ["The parcel is lost."]),
        ("It was paid twice.[A-1] The parcel is lost [A-1].", []),
        ("[A-1] It was paid twice. The parcel is lost.", ["The parcel is lost."]),
        ("It was [A-1] paid twice. The parcel is lost. [A-1]", []),
        ("It was paid twice [B-2].", ["It was paid twice."]),
        ("It was paid twice [B-2, A-1].", []),
        ("It was paid twice.\n[A-1]\nThe parcel is lost.", ["It was paid twice.", "The parcel is lost."]),
    ],
)
def test_what_stands_behind_a_claim(text: str, uncited: list[str]) -> None:
    """A marker in a sentence, or right behind its full stop, that names a known id."""
    assert list(check_citations(text, ["A-1"]).uncited) == uncited


def test_coverage_is_the_share_of_the_claims() -> None:
    """None of none is all of them."""
    assert (
        check_citations(
            "It was paid twice [A-1]. It is lost now. We are so sorry. It was late [A-1].", ["A-1"]
        ).coverage
        == 0.5
    )
    assert check_citations("Hello!", ["A-1"]).coverage == 1
    assert check_citations("It was paid twice [B-1].", ["A-1"]).coverage == 0


def test_what_nobody_knows_dangles_once() -> None:
    """In the order of the text."""
    assert check_citations("It is so [b-2][a-1]. It is [a-1, c-3].", ["c-3"]).dangling == ("b-2", "a-1")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Twice.", "Twice [A-1].", True),
        ("Twice.", "[A-1] Twice. [B-2]", True),
        ("Twice, in May", "Twice [A-1], in [B-2] May[C-3]", True),
        ("a\n\n- b", "a [A-1]\n\n- b [A-1]", True),
        ("Twice.", "Once [A-1].", False),
        ("Twice in May", "Twice [A-1]inMay", False),
        ("therapist", "the [A-1] rapist", False),
        ("Twice [sic].", "Twice.", False),
        ("a\nb", "a b [A-1]", False),
    ],
)
def test_what_is_the_same_text(one: str, other: str, same: bool) -> None:
    """Markers may come and go with their blanks; nothing else may."""
    assert same_text(one, other) is same
    assert same_text(other, one) is same


@given(TEXTS, st.lists(IDS | ODD_IDS, max_size=4))
@settings(max_examples=examples(1000))
def test_any_text_and_any_ids(text: str, ids: list[str]) -> None:
    """What is said holds together, whatever the text is."""
    found = check_citations(text, ids)
    known = {one.strip() for one in ids}

    assert set(found.uncited) <= set(found.claims)
    assert known.isdisjoint(found.dangling)
    assert 0 <= found.coverage <= 1
    assert len(found.bare) <= len(text)
    assert check_citations(found.bare, ids).bare == found.bare
    assert cited(found.bare, ids) == ()
    assert same_text(text, found.bare, ids)


@given(WORDS, st.lists(IDS | ODD_IDS, min_size=1, max_size=4), st.data())
@settings(max_examples=examples(1000))
def test_markers_that_are_put_in_are_found_and_change_nothing(
    words: list[str], ids: list[str], data: st.DataObject
) -> None:
    """Behind any word, any known id, in one bracket of its own."""
    ids = [one.strip() for one in ids]
    at = data.draw(st.integers(1, len(words)))
    put = data.draw(st.sampled_from(ids))
    text = " ".join(words)
    marked = " ".join([*words[:at], f"[{put}]", *words[at:]])

    found = check_citations(marked, ids)

    assert found.bare == text
    assert found.dangling == ()
    assert cited(marked, ids) == (put,)
    assert same_text(text, marked, ids)


@given(WORDS, WORDS)
@settings(max_examples=examples(300))
def test_other_words_are_another_text(one: list[str], other: list[str]) -> None:
    """With markers or without."""
    assert same_text(" ".join(one), f"{' '.join(other)} [A-1]") is (one == other)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[a-1" * 20_000, "[1, " * 9_000 + "[2]" + " 3]" * 9_000, "x [A-1] " * 9_000]
)
def test_a_hostile_text_takes_no_time(text: str) -> None:
    """However many brackets there are."""
    began = time.perf_counter()

    check_citations(text, ["A-1"])

    assert time.perf_counter() - began < 5
