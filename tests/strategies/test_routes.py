"""Which name does a text mean: laws of `route_of`, and the router that stands on it."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Context, Human, State, run, strategies
from graphflow.errors import UsageError
from graphflow.graphs.routes import route_of
from graphflow.graphs.strategies import Task
from graphflow.testing import strategy_violations
from tests.strategies.teams import ASKED, agent, hears, judged, member, played
from tests.support import examples

LETTERS = st.characters(categories=("L", "N"))
WORDS = st.text(alphabet=st.one_of(st.sampled_from(string.ascii_lowercase + "_"), LETTERS), min_size=1, max_size=8)
NAMES = st.lists(WORDS, min_size=1, max_size=5, unique_by=str.casefold)
ANY_TEXT = st.text(max_size=40)
MARKS = st.text(alphabet=" .,;:!?*`'\"()[]-\n", max_size=5)


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=examples(2000))
def test_a_route_is_one_of_the_names_or_none(text: str, names: list[str]) -> None:
    """Whatever is said and whatever they are called, nothing is made up."""
    assert route_of(text, names) in {None, *names}


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=5), st.randoms())
@settings(max_examples=examples(2000))
def test_the_order_of_the_names_does_not_matter(text: str, names: list[str], random: Any) -> None:
    """The same text means the same name, however the targets are listed."""
    mixed = [*names]
    random.shuffle(mixed)

    assert route_of(text, mixed) == route_of(text, names)


@given(NAMES, MARKS, MARKS, st.data())
@settings(max_examples=examples(1000))
def test_a_bare_name_means_itself(names: list[str], before: str, after: str, data: st.DataObject) -> None:
    """A name means itself with any punctuation around it, in any case, whatever else it could mean."""
    name = data.draw(st.sampled_from(names))

    assert route_of(f"{before}{name}{after}", names) == name
    assert route_of(name, names) == name


@given(NAMES, st.data())
@settings(max_examples=examples(1000))
def test_two_names_in_prose_are_none(names: list[str], data: st.DataObject) -> None:
    """Where two are named, nobody is meant, in whatever order they stand."""
    two = data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)) if len(names) > 1 else []

    for one, other in (two, two[::-1]) if two else ():
        assert route_of(f"{one}, or {other}?!", [*two]) is None


@given(MARKS, NAMES)
@settings(max_examples=examples(500))
def test_punctuation_is_no_route(text: str, names: list[str]) -> None:
    """A text without a word in it means nobody."""
    assert route_of(text, names) is None


@given(st.text(alphabet=".*+?()[]{}|^$\\ab", min_size=1, max_size=8), ANY_TEXT)
@settings(max_examples=examples(1000))
def test_a_name_is_never_a_pattern(name: str, text: str) -> None:
    """A name with signs of regular expressions is found where it stands, and nowhere else."""
    found = route_of(text, [name])

    assert found in (None, name)
    if found is not None:
        assert name == text.strip() or "".join(filter(str.isalnum, name.casefold())) in text.casefold() + name


@pytest.mark.parametrize(
    ("text", "names", "route"),
    [
        ("done_checker", ("done_checker", "b"), "done_checker"),
        ("DONE", ("done", "b"), "done"),
        ("I am done. Ask b", ("done_checker", "b"), "b"),
        ("Ask billing_eu, not later", ("billing", "billing_eu"), "billing_eu"),
        ("billing_eu or billing", ("billing", "billing_eu"), None),
        ("rebilling is not billing2", ("billing",), None),
        ("billing, billing and billing", ("billing", "b"), "billing"),
        ("Ask the billing team today", ("billing team", "billing"), "billing team"),
        ("**A.**", ("a", "A"), None),
        ("A", ("a", "A"), "A"),
        ("please ask a", ("a", "A"), None),
        ("STRASSE", ("straße", "b"), "straße"),
        ("I ask the cafe\u0301 there", ("café", "cafe"), "café"),
        ("हिन्दू", ("हिन्दी", "हिन्दू"), "हिन्दू"),
        ("हिन्दू", ("हिन्दी",), None),
        ("", ("",), ""),
        ("", ("a",), None),
        ("…", ("a",), None),
        ("a.b", ("a.b", "axb"), "a.b"),
        ("axb", ("a.b",), None),
        ("C++", ("C++", "C"), "C++"),
    ],
)
def test_what_texts_mean(text: str, names: tuple[str, ...], route: str | None) -> None:
    """The cases that peers get wrong, one by one."""
    assert route_of(text, names) == route


# --- the router ------------------------------------------------------------------------------------------------------


class Case(Context):
    """What is asked, under other names."""

    question: str
    urgent: bool = False


def by_urgency(state: State[Case]) -> str:
    """A rule over the state."""
    return "fast" if state.context.urgent else "slow"


@pytest.mark.parametrize("urgent", [True, False])
async def test_a_rule_of_the_state_decides(urgent: bool) -> None:
    """A function router resolves to what it says, and not always to the same."""
    team = strategies.router("t", by_urgency, member("slow"), member("fast"), context=Case)

    result = await run(team, Case(question=ASKED, urgent=urgent))

    assert result.output == ("fast says." if urgent else "slow says.")


@pytest.mark.parametrize("said", ["nobody", "", "a or b", "…"])
async def test_an_unknown_name_goes_to_the_fallback(said: str) -> None:
    """Nothing that a classifier says ends a run silently: it goes to the fallback, a node of its own or a target."""
    own = strategies.router("t", member("c", said or "."), member("a"), member("b"), fallback=member("d"))
    shared = member("b")
    of_targets = strategies.router("t", member("c", said or "."), member("a"), shared, fallback=shared)

    first, second = await judged("router", own), await judged("router", of_targets)

    assert (first.result.output, second.result.output) == ("d says.", "b says.")


async def test_without_a_fallback_an_unknown_name_is_a_failure() -> None:
    """The run fails, and says what was named, and what could be."""
    team = strategies.router("t", member("c", "nobody at all"), member("a"), member("b"))

    found = await judged("router", team)

    assert found.result.status == "failed"
    assert "'nobody at all' names none of 'a', 'b'" in found.reason.text


async def test_the_target_gets_the_task_as_it_came_in() -> None:
    """A function gets it as what arrives; an agent sees the user's message, and nothing of the classification."""
    heard: list[tuple[str, ...]] = []
    to_function = strategies.router("t", agent("c", "h"), member("a"), hears("h", heard))
    to_agent = strategies.router("t", agent("c", "h"), member("a"), agent("h", lambda r: r.messages[-1].text))

    await judged("router", to_function)
    found = await judged("router", to_agent)

    assert heard == [("h", ASKED)]
    assert found.result.output == ASKED


async def test_a_team_is_asked_what_was_asked() -> None:
    """A team as a target begins with the original task, not with what the classifier said."""
    heard: list[tuple[str, ...]] = []
    inner = strategies.sequential("inner", hears("h", heard), agent("last", lambda r: r.messages[0].text))
    team = strategies.router("t", agent("c", "I would say: inner."), member("a"), inner)

    found = await judged("router", team)

    assert heard == [("h", ASKED)]
    assert ASKED in found.result.output
    assert strategy_violations("sequential", inner, found.events, at="inner") == ()


async def test_the_one_who_is_asked_who_may_be_a_person() -> None:
    """A person may classify, in their own words."""
    team = strategies.router("t", Human("desk", "Who?"), member("billing"), member("shipping"))

    found = await judged("router", team, answers={"Who?": "That is for billing!"})

    assert found.result.output == "billing says."


async def later(state: State[Task]) -> Any:
    """A rule that nobody could wait for."""


@pytest.mark.parametrize(
    ("by", "targets", "words"),
    [
        (by_urgency, (), "targets: at least one is needed"),
        ("a", (member("a"),), "a function from the state to a name"),
        (later, (member("a"),), "nothing can be awaited"),
        (agent("a"), (member("a"),), "two members are called 'a'"),
    ],
)
def test_a_router_that_makes_no_sense_is_refused(by: Any, targets: tuple[Any, ...], words: str) -> None:
    """No target, no rule, an async rule, a name twice: each is told when the router is made."""
    with pytest.raises(UsageError, match=words):
        strategies.router("t", by, *targets)


async def test_a_rule_that_raises_is_the_runs_error() -> None:
    """What a rule raises comes out as it is."""

    def broken(state: State[Task]) -> str:
        raise LookupError(state.context.task)

    found = await played(strategies.router("t", broken, member("a")))

    assert isinstance(found.error, LookupError)
