"""Conversations: round_robin, random and manual, with everything that may end them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Human, SqliteJournal, State, Update, node, resume, run, run_sync, strategies
from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.graphs.strategies import Conversation, TeamReport
from graphflow.graphs.turns import drawn
from graphflow.testing import ManualClock, MemoryJournal, strategy_violations
from tests.strategies.drawing import lines
from tests.strategies.teams import ASKED, agent, hears, judged, member, played
from tests.support import ROOT, examples


def speakers(output: object) -> list[str]:
    """Who spoke, by the report of a conversation."""
    assert isinstance(output, TeamReport)
    return [one.speaker for one in output.said]


def never(talk: Conversation) -> bool:
    """A conversation that does not end by itself."""
    return False


# --- round_robin -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 9))
@settings(max_examples=examples(200))
def test_members_speak_in_turn_and_the_first_begins(size: int, turns: int) -> None:
    """For every number of members and of turns, the speaker of turn n is member n modulo their number."""
    names = [f"m{number}" for number in range(size)]
    team = strategies.round_robin("t", *map(member, names), turns=turns)
    events: list[Event] = []

    result = run_sync(team, Conversation(task=ASKED), listeners=[events.append], clock=ManualClock())

    assert speakers(result.output) == [names[turn % size] for turn in range(turns)]
    assert strategy_violations("round_robin", team, events) == ()


async def test_each_speaker_hears_all_that_was_said() -> None:
    """The first hears nothing but the task; the third hears both who spoke before it, with their names."""
    heard: list[tuple[str, ...]] = []
    team = strategies.round_robin("t", hears("a", heard), hears("b", heard), turns=3)

    await judged("round_robin", team)

    assert heard == [("a",), ("b", "[a]: a says."), ("a", "[a]: a says.\n[b]: b says.")]


async def test_agents_hear_the_others_as_data_and_the_user_as_the_user() -> None:
    """What others said stands in a message from the node that gives the floor, and not in the user's words."""
    seen: list[list[str]] = []

    def listen(request: Any) -> str:
        seen.append([message.text for message in request.messages])
        return f"{request.agent} says."

    await judged("round_robin", strategies.round_robin("t", agent("a", listen), agent("b", listen), turns=2))

    assert seen[0] == [ASKED]
    assert seen[1][0] == ASKED
    assert seen[1][1].startswith("<message from=")
    assert "[a]: a says." in seen[1][1]


async def test_somebody_speaks_before_it_can_be_over() -> None:
    """A predicate is asked after each turn, and not before the first."""
    asked: list[int] = []

    def at_once(talk: Conversation) -> bool:
        asked.append(len(talk.said))
        return True

    found = await judged("round_robin", strategies.round_robin("t", member("a"), turns=3, until=at_once))

    assert speakers(found.result.output) == ["a"]
    assert 0 not in asked


@pytest.mark.parametrize("over_after", [1, 2, 3])
async def test_a_predicate_ends_it(over_after: int) -> None:
    """It ends at the turn after which the predicate holds, at the bound too."""
    team = strategies.round_robin(
        "t", member("a"), member("b"), turns=3, until=lambda talk: len(talk.said) == over_after
    )

    found = await judged("round_robin", team)

    assert found.result.status == "completed"
    assert len(speakers(found.result.output)) == over_after


async def test_a_bound_is_no_success() -> None:
    """A conversation that is not over when its turns are is exhausted, with what was said; somebody may take over."""
    bounded = strategies.round_robin("t", member("a"), turns=2, until=never)
    escalated = strategies.round_robin("t", member("a"), turns=2, until=never, escalate=member("boss"))

    first, second = await judged("round_robin", bounded), await judged("round_robin", escalated)

    assert (first.result.status, first.reason.code, first.reason.limit) == ("exhausted", "max_hops", 2)
    assert [one.text for one in first.result.context.said] == ["a says.", "a says."]
    assert second.result.output == "boss says."


@pytest.mark.parametrize("outer_turns", [1, 3])
async def test_inside_another_team_a_bound_is_no_success_either(outer_turns: int) -> None:
    """The bound of an inner conversation passes outward, and each activation has its own bound."""
    inner = strategies.round_robin("inner", member("a"), turns=2, until=never)
    within = strategies.round_robin("inner", member("a"), turns=2)

    bounded = await played(strategies.sequential("t", inner, member("after")))
    fresh = await judged("round_robin", strategies.round_robin("t", within, turns=outer_turns))

    assert bounded.result.status == "exhausted"
    assert "after" not in bounded.started
    assert Counter(fresh.started)["inner/a"] == 2 * outer_turns


def test_a_rotation_that_is_not_allowed_is_refused_at_once() -> None:
    """The order of the members is held against the declared transitions when the team is made."""
    a, b, c = member("a"), member("b"), member("c")

    strategies.round_robin("t", a, b, c, turns=3, allowed_transitions={"a": ["b"], "c": ["a"]})
    with pytest.raises(UsageError, match="'b' speaks after 'a', and allowed_transitions lets only 'c' follow it"):
        strategies.round_robin("t", a, b, c, turns=3, allowed_transitions={"a": ["c"]})
    with pytest.raises(UsageError, match="'a' needs a list of at least 1"):
        strategies.round_robin("t", a, turns=3, allowed_transitions={"a": []})
    with pytest.raises(UsageError, match="'nobody' is none; the members are 'a'"):
        strategies.round_robin("t", a, turns=3, allowed_transitions={"a": ["nobody"]})


@pytest.mark.parametrize("turns", [0, -1, None, True, 2.5])
def test_a_conversation_is_bounded(turns: Any) -> None:
    """Turns are a whole number of at least one."""
    for make in (strategies.round_robin, strategies.random, strategies.manual):
        with pytest.raises(UsageError):
            make("t", member("a"), turns=turns)


# --- random ----------------------------------------------------------------------------------------------------------


@given(st.integers(), st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=3, max_size=3).filter(any))
@settings(max_examples=examples(300))
def test_the_same_seed_gives_the_same_path(seed: int, weights: list[float]) -> None:
    """Whatever the seed and the weights; who has no weight never speaks; the seed stands in the context."""
    names = ("a", "b", "c")

    def path() -> list[str]:
        team = strategies.random("t", *map(member, names), turns=5, seed=seed, weights=weights)
        events: list[Event] = []
        result = run_sync(team, Conversation(task=ASKED), listeners=[events.append], clock=ManualClock())
        assert strategy_violations("random", team, events) == ()
        assert result.context.seed == seed
        return speakers(result.output)

    first = path()

    assert path() == first
    assert {name for name, weight in zip(names, weights, strict=True) if not weight}.isdisjoint(first)


def test_draws_are_the_same_in_every_version() -> None:
    """Stored runs and seeds that somebody has written down stay what they are; turns differ."""
    even, uneven = (1, 1, 1, 1), (5, 0, 1, 1)

    assert "".join(drawn(7, turn, "abcd", even) for turn in range(12)) == "cacaaccabbca"
    assert "".join(drawn(7, turn, "abcd", uneven) for turn in range(12)) == "aaaaaaaaaaaa"


async def test_a_seed_from_outside_is_recorded() -> None:
    """Without a seed one is taken, once; a replay, and a team with that seed, go the same way."""
    from graphflow import replay

    journal = MemoryJournal()
    team = strategies.random("t", *map(member, "abcd"), turns=6)

    result = await run(team, Conversation(task=ASKED), journal=journal, run_id="r")
    again = await replay(team, "r", journal=journal)
    seeded = await judged("random", strategies.random("t", *map(member, "abcd"), turns=6, seed=result.context.seed))

    assert result.context.seed is not None
    assert speakers(again.output) == speakers(result.output) == speakers(seeded.result.output)


async def test_a_seed_of_the_context_is_taken() -> None:
    """Who starts the run may give the seed, too."""
    team = strategies.random("t", *map(member, "abcd"), turns=6)

    first = await run(team, Conversation(task=ASKED, seed=5))
    second = await run(team, Conversation(task=ASKED, seed=5))

    assert speakers(first.output) == speakers(second.output)


async def test_one_draw_for_the_whole_run() -> None:
    """With per="run" one member has every turn, and over many seeds each member has its share."""
    drawn: Counter[str] = Counter()
    for seed in range(40):
        team = strategies.random("t", member("a"), member("b"), turns=3, seed=seed, per="run", weights=(3, 1))
        found = await judged("random", team)
        assert len({*speakers(found.result.output)}) == 1
        drawn[speakers(found.result.output)[0]] += 1

    assert drawn["a"] > drawn["b"] > 0


async def test_only_who_may_follow_is_drawn() -> None:
    """The declared transitions hold at each draw."""
    allowed = {"a": ["b"], "b": ["c", "a"], "c": ["a"]}
    for seed in range(10):
        team = strategies.random("t", *map(member, "abc"), turns=6, seed=seed, allowed_transitions=allowed)
        spoke = speakers((await judged("random", team)).result.output)
        assert all(after in allowed[one] for one, after in pairwise(spoke))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": (1,)}, "one for each of the 2 members is needed, in the order 'a', 'b'"),
        ({"weights": (0, 0)}, "not all of them are 0"),
        ({"weights": (-1, 2)}, "at least 0"),
        ({"weights": (float("nan"), 1)}, "at least 0"),
        ({"weights": (float("inf"), 1)}, "their sum is finite"),
        ({"weights": (1e308, 1e308)}, "their sum is finite"),
        ({"seed": True}, "a whole number"),
        ({"seed": 1.5}, "a whole number"),
        ({"seed": "x"}, "a whole number"),
        ({"per": "day"}, "'turn' or 'run'"),
        ({"per": "run", "allowed_transitions": {"a": ["b"]}}, "Leave one of them out"),
        ({"weights": (1, 0), "allowed_transitions": {"a": ["b"]}}, "nobody who may follow 'a'"),
    ],
)
def test_a_draw_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    """When the team is made, and not at some turn of some run."""
    with pytest.raises(UsageError, match=words):
        strategies.random("t", member("a"), member("b"), **options)


@pytest.mark.may_block
def test_hash_seeds_change_nothing() -> None:
    """The path of a seed is the same in processes that hash texts differently."""
    program = "import sys; from tests.strategies.drawing import lines; sys.stdout.write(lines())"

    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT, env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip

    assert said == {lines()}


# --- manual ----------------------------------------------------------------------------------------------------------


async def test_code_says_who_speaks_and_when_it_ends() -> None:
    """A plain function and an async one decide alike; None ends it."""

    def plain(talk: Conversation) -> str | None:
        return ("b", "b", "a", None)[len(talk.said)]

    async def later(talk: Conversation) -> str | None:
        return plain(talk)

    for decide in (plain, later):
        team = strategies.manual("t", member("a"), member("b"), turns=5, decide=decide)
        found = await judged("manual", team)
        assert speakers(found.result.output) == ["b", "b", "a"]
        assert found.result.status == "completed"


@pytest.mark.parametrize("named", ["c", "", "A", 3, ["a"]])
async def test_an_unknown_name_is_an_error_with_the_valid_ones(named: Any) -> None:
    """Nobody speaks, and the error says who may."""
    team = strategies.manual("t", member("a"), member("b"), turns=2, decide=lambda _: named)

    found = await judged("manual", team)

    assert isinstance(found.error, UsageError)
    assert str(found.error).endswith("one of 'a', 'b' may speak; None ends it.")
    assert not {"a", "b"} & {*found.started}


async def test_code_is_held_to_the_declared_transitions() -> None:
    """A member who may not follow is no more valid than one who does not exist."""
    team = strategies.manual(
        "t", member("a"), member("b"), turns=4, decide=lambda _: "a", allowed_transitions={"a": ["b"]}
    )

    found = await judged("manual", team)

    assert str(found.error) == "decide gave 'a': one of 'b' may speak after 'a'; None ends it."


async def test_code_that_never_ends_it_is_exhausted() -> None:
    """The bound on its turns holds, and is no success."""
    team = strategies.manual("t", member("a"), turns=3, decide=lambda _: "a")

    found = await judged("manual", team)

    assert (found.result.status, Counter(found.started)["a"]) == ("exhausted", 3)


async def test_a_person_says_who_speaks() -> None:
    """They are asked with the conversation so far and the valid names, and say "finish" in the end."""
    team = strategies.manual("t", member("a"), member("b"), turns=3)
    journal = MemoryJournal()
    events: list[Event] = []

    waiting = await run(team, Conversation(task=ASKED), journal=journal, run_id="r", listeners=[events.append])
    first = waiting.questions[0]
    waiting = await resume(team, "r", journal=journal, answers={first.id: "b"}, listeners=[events.append])
    second = waiting.questions[0]
    result = await resume(team, "r", journal=journal, answers={second.id: "finish"}, listeners=[events.append])

    assert first.text == f"{ASKED}\n\nWho speaks next? a, b, finish."
    assert second.text == f"{ASKED}\n[b]: b says.\n\nWho speaks next? a, b, finish."
    assert speakers(result.output) == ["b"]
    assert result.status == "completed"


async def test_a_stored_conversation_goes_on_as_the_person_says(tmp_path: Path) -> None:
    """The question outlives its process; an answer that is nobody is refused, and the question stays."""
    team = strategies.manual("t", member("a"), member("b"), turns=3)
    path = tmp_path / "runs.db"

    waiting = await run(team, Conversation(task=ASKED), journal=SqliteJournal(path), run_id="r")
    with pytest.raises(ValueError, match="nobody"):
        await resume(team, "r", journal=SqliteJournal(path), answers={waiting.questions[0].id: "nobody"})
    waiting = await resume(team, "r", journal=SqliteJournal(path), answers={waiting.questions[0].id: "a"})
    result = await resume(team, "r", journal=SqliteJournal(path), answers={waiting.questions[0].id: "finish"})

    assert (result.status, speakers(result.output)) == ("completed", ["a"])


def test_nobody_is_called_finish_where_a_person_decides() -> None:
    """A name that would end the conversation is refused; code ends it with None, and may call a member so."""
    with pytest.raises(UsageError, match="which is what a person says to end it"):
        strategies.manual("t", member("finish"), turns=2)

    strategies.manual("t", member("finish"), turns=2, decide=lambda _: "finish")


# --- members of every kind -------------------------------------------------------------------------------------------


class Deal(Conversation):
    """A conversation about a price."""

    price: int = 10


async def test_members_write_to_a_context_of_your_own() -> None:
    """What members change in the context is seen by the next, and by the predicate that ends the conversation."""

    @node
    async def haggle(state: State[Deal]) -> Update:
        return Update(price=state.context.price - 3)

    team = strategies.round_robin("t", haggle, turns=9, until=lambda deal: deal.price <= 4, context=Deal)

    result = await run(team, Deal(task=ASKED))

    assert (result.status, result.context.price) == ("completed", 4)


async def test_a_person_may_be_a_member() -> None:
    """They are asked when it is their turn, and what they say is heard."""
    heard: list[tuple[str, ...]] = []
    team = strategies.round_robin("t", Human("boss", "Well?"), hears("a", heard), turns=2)

    found = await judged("round_robin", team, answers={"Well?": "Go on."})

    assert heard == [("a", "[boss]: Go on.")]
    assert speakers(found.result.output) == ["boss", "a"]


@pytest.mark.parametrize("raises", ["until", "decide", "member"])
async def test_what_is_raised_comes_out_as_it_is(raises: str) -> None:
    """A predicate, a decider and a member that raise end the run with that very error."""

    def broken(talk: Conversation) -> Any:
        raise LookupError(talk.task)

    team = {
        "until": strategies.round_robin("t", member("a"), turns=2, until=broken),
        "decide": strategies.manual("t", member("a"), turns=2, decide=broken),
        "member": strategies.round_robin("t", member("a", fails=ASKED), member("b"), turns=2),
    }[raises]

    found = await played(team)

    assert ASKED in str(found.error)
    assert found.result.status == "failed"


def test_an_async_predicate_is_refused() -> None:
    """What is called where nothing can be awaited would always hold."""

    async def later(talk: Conversation) -> Any: ...

    wrong: Any = later
    with pytest.raises(UsageError, match="nothing can be awaited"):
        strategies.round_robin("t", member("a"), turns=2, until=wrong)


async def later() -> bool:
    """An answer that has to be waited for."""
    return False


@pytest.mark.parametrize("waits", [False, True])
async def test_until_that_counts_as_true_whatever_it_says_is_refused(waits: bool) -> None:
    """A text, or something to wait for, is no answer; nobody's conversation ends because of it."""

    def over(_: Conversation) -> Any:
        return later() if waits else "no"

    found = await played(strategies.round_robin("t", member("a"), turns=3, until=over))

    assert isinstance(found.error, UsageError)
    assert "True where the conversation is over" in str(found.error)


async def test_a_conversation_that_has_ended_may_begin_anew() -> None:
    """The context of a run that is over can be given to another one."""
    team = strategies.round_robin("t", member("a"), member("b"), turns=2)
    ended = Conversation(task=ASKED, over=True)

    result = await run(team, ended)

    assert [one.speaker for one in result.context.said] == ["a", "b"]


def test_transitions_in_a_set_are_in_the_order_of_the_members() -> None:
    """A set has another order in each process, and a team is the same in all of them."""
    members = [member(name) for name in "abcd"]

    def team(allowed: Any) -> str:
        return strategies.random("t", *members, seed=1, allowed_transitions={"a": allowed}).fingerprint()

    assert team({"d", "b", "c"}) == team(["b", "c", "d"]) == team(("d", "c", "b"))
