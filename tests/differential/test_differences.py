"""Where graphflow and openai-agents differ on purpose, and in what exactly.

Each test shows one difference, on both sides, so that a change of either shows. The reasons are in
docs/decisions/0012-where-openai-agents-differs.md.
"""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel

from graphflow.errors import GraphProblems, UsageError
from tests.conftest import Backend
from tests.differential.cases import ALIKE, CHAT, DESK, PAID, TICKETS, TOWARDS, Ticket
from tests.differential.ours import play_ours
from tests.differential.script import (
    FAILED,
    IGNORED,
    MOVED,
    Call,
    Line,
    Member,
    Play,
    Reply,
    Seen,
    ask,
    call,
    say,
    transfer,
    use,
)
from tests.differential.theirs import play_theirs

ASKED: Line = ("user", Play((), {}).user)
LOOK = call("look", key=1)


def both(play: Play, backend: Backend) -> tuple[Seen, Seen]:
    """Run a play there and here."""
    return play_theirs(play), play_ours(play, backend[0])


def results(seen: Seen) -> list[str]:
    """The results that the last request of a run shows, in order."""
    return [text for kind, text in seen.requests[-1].lines if kind == "result"]


# --- what crosses a boundary ---


def test_a_handoff_lets_the_note_cross_not_the_whole_thread(anyio_backend: Backend) -> None:
    """By default the target sees everything there; here the user's message and the note, as labelled data."""
    play = Play(
        CHAT,
        {"triage": (use(LOOK), use(transfer("billing", "paid twice?"))), "billing": (say("Yes."),)},
        history="note",
    )

    theirs, ours = both(play, anyio_backend)

    assert [kind for kind, _ in theirs.requests[-1].lines] == ["user", "call", "result", "call", "result"]
    assert ours.requests[-1].lines == (ASKED, ("user", '<note from="triage">\npaid twice?\n</note>'))
    assert ours.path == theirs.path


def test_briefs_and_reports_are_labelled_data(anyio_backend: Backend) -> None:
    """A member gets bare text there and gives bare text back; here both stand between delimiters, with their source."""
    play = Play(DESK, {"desk": (use(ask("billing", "Was it paid?")), say("Yes.")), "billing": (say("paid"),)})

    theirs, ours = both(play, anyio_backend)

    assert theirs.of("billing")[0].texts == ("Was it paid?",)
    assert theirs.of("desk")[-1].texts[-1] == "paid"
    assert ours.of("billing")[0].texts[0].startswith('<brief from="desk">\nobjective: Was it paid?\n')
    assert ours.of("desk")[-1].texts[-1].startswith('<report from="desk/billing@0.0">\n{"finding": "paid"')


def test_what_a_member_answers_must_fit_what_is_asked_for(anyio_backend: Backend) -> None:
    """A structured answer becomes the text of Python's `str` there; here the graph is refused before it runs."""
    members = (Member("desk", team=("billing",)), Member("billing", output=Ticket))
    play = Play(members, {"desk": (use(ask("billing", "Paid?")), say("Yes.")), "billing": (say(PAID),)})

    theirs = play_theirs(play)

    assert results(theirs) == ["ask_billing: code=7 note='paid twice'"]
    with pytest.raises(GraphProblems, match="answer-contract"):
        play_ours(play, anyio_backend[0])


# --- what a model gets wrong ---


def test_a_tool_that_is_not_there_is_told_to_the_model(anyio_backend: Backend) -> None:
    """The run ends there, and the good call beside it never runs; here the model reads it and goes on."""
    play = Play(CHAT, {"triage": (use(call("nope", key=5), LOOK), say("Here."))})

    theirs, ours = both(play, anyio_backend)

    assert (theirs.end, theirs.tools) == ("misbehaved: Tool nope not found in agent triage", ())
    assert (ours.end, ours.tools, results(ours)) == ("done", (LOOK,), [f"nope: {FAILED}", "look: found 1"])


@pytest.mark.parametrize("wrong", [call("nope", key=5), transfer("triage")], ids=["tool", "transfer"])
def test_openai_agents_can_be_told_to_do_the_same(wrong: Call, anyio_backend: Backend) -> None:
    """With `tool_not_found_behavior="return_error_to_model"` both do the same, but for the order of results."""
    play = Play(CHAT, {"triage": (use(wrong, LOOK), say("Here."))}, forgiving=True)

    ours = play_ours(play, anyio_backend[0])

    assert results(play_theirs(play)) == ["look: found 1", f"{wrong.tool}: {FAILED}"]
    assert ours == play_theirs(play, in_call_order=True)


def test_results_stand_in_the_order_of_the_calls(anyio_backend: Backend) -> None:
    """Those of transfers come last there, and ignored ones before the one that counts; here each has its place."""
    play = Play(CHAT, {"triage": (use(transfer("billing"), LOOK, transfer("shipping")),), "billing": (say("Paid."),)})

    theirs, ours = both(play, anyio_backend)

    assert results(theirs) == [
        "look: found 1",
        f"transfer_to_shipping: {IGNORED}",
        f"transfer_to_billing: {MOVED}",
    ]
    assert results(ours) == [f"transfer_to_billing: {MOVED}", "look: found 1", f"transfer_to_shipping: {IGNORED}"]
    assert ours == play_theirs(play, in_call_order=True)


def test_arguments_that_nobody_asked_for_are_refused(anyio_backend: Backend) -> None:
    """They are dropped there, and the tool runs; here the model is told, as the schema says that there are none."""
    play = Play(CHAT, {"triage": (use(call("look", key=1, limit=2)), say("Here."))})

    theirs, ours = both(play, anyio_backend)

    assert (theirs.tools, results(theirs)) == ((LOOK,), ["look: found 1"])
    assert (ours.tools, results(ours)) == ((), [f"look: {FAILED}"])


def test_an_id_that_comes_twice_is_made_anew(anyio_backend: Backend) -> None:
    """The run ends there, or the second call never runs if it is the same; here every call is a call."""
    other = Call("look", '{"key": 2}', "a")
    first = dataclasses.replace(LOOK, id="a")
    clash = Play(CHAT, {"triage": (use(first, other), say("Here."))})
    again = Play(CHAT, {"triage": (use(first), use(first), say("Here."))})

    theirs, ours = both(clash, anyio_backend)
    theirs_again, ours_again = both(again, anyio_backend)

    assert theirs.end.startswith("misbehaved: Model reused a tool call ID")
    assert results(ours) == ["look: found 1", "look: found 2"]
    assert (theirs_again.calls, len(theirs_again.tools), results(theirs_again)) == (3, 1, ["look: found 1"])
    assert (ours_again.calls, len(ours_again.tools), results(ours_again)) == (3, 2, ["look: found 1", "look: found 1"])


def test_a_transfer_without_its_note_still_counts(anyio_backend: Backend) -> None:
    """Its arguments do not fit, so the run ends there; here control goes over, as where to is clear."""
    play = Play(CHAT, {"triage": (use(Call("transfer_to_billing", "{}")),), "billing": (say("Paid."),)})

    theirs, ours = both(play, anyio_backend)

    assert theirs.end == "misbehaved: Invalid JSON when parsing model output"
    assert (ours.end, ours.path, ours.output) == ("done", ("triage", "billing"), "Paid.")


# --- answers ---


def test_an_answer_that_does_not_fit_is_sent_back(anyio_backend: Backend) -> None:
    """The run ends there, and what it used is lost; here the model may repair it once, and both calls are counted."""
    play = Play(TICKETS, {"triage": (say('{"code": "seven"}'), say(PAID))})

    theirs, ours = both(play, anyio_backend)

    assert (theirs.end, theirs.calls) == ("misbehaved: Invalid JSON when parsing model output", 0)
    assert (ours.end, ours.calls, ours.output) == ("done", 2, Ticket(code=7, note="paid twice"))
    assert "code: Input should be a valid integer" in ours.requests[-1].texts[-1]


def test_an_answer_that_never_fits_is_a_failure_with_its_cost(anyio_backend: Backend) -> None:
    """It is an exception there; here a result that names the contract, and what was spent."""
    play = Play(TICKETS, {"triage": (say("seven"), say("eight"))})

    theirs, ours = both(play, anyio_backend)

    assert (theirs.end, theirs.calls) == ("misbehaved: Invalid JSON when parsing model output", 0)
    assert (ours.end, ours.status, ours.calls, ours.tokens) == ("contract", "failed", 2, 26)


def test_a_code_fence_around_an_answer_is_taken_off(anyio_backend: Backend) -> None:
    """Many models write one; it ends the run there."""
    play = Play(TICKETS, {"triage": (say(f"```json\n{PAID}\n```"),)})

    theirs, ours = both(play, anyio_backend)

    assert theirs.end == "misbehaved: Invalid JSON when parsing model output"
    assert (ours.end, ours.output) == ("done", Ticket(code=7, note="paid twice"))


@pytest.mark.parametrize(
    ("replies", "end", "output"),
    [(("", "Here."), "done", "Here."), (("", " "), "empty_answer", None)],
    ids=["once", "twice"],
)
def test_an_empty_answer_is_no_answer(
    replies: tuple[str, ...], end: str, output: str | None, anyio_backend: Backend
) -> None:
    """It is the output there; here it is sent back, and a second one is a failure."""
    play = Play(CHAT, {"triage": tuple(map(say, replies))})

    theirs, ours = both(play, anyio_backend)

    assert (theirs.end, theirs.output, theirs.calls) == ("done", "", 1)
    assert (ours.end, ours.output, ours.calls) == (end, output, 2)


def test_a_structured_answer_is_frozen(anyio_backend: Backend) -> None:
    """A type of answer that its receivers could change passes there; here the agent is refused when it is made."""

    class Loose(BaseModel):
        code: int

    play = Play((Member("triage", output=Loose),), {"triage": (say('{"code": 7}'),)})

    theirs = play_theirs(play)

    assert (theirs.end, theirs.output) == ("done", Loose(code=7))
    with pytest.raises(UsageError, match="the model Loose is not frozen"):
        play_ours(play, anyio_backend[0])


# --- bounds, failures and counts ---


def test_turns_are_counted_for_each_visit_of_an_agent(anyio_backend: Backend) -> None:
    """They are one bound of the whole run there; here of an agent, and the run has a budget."""
    play = Play(CHAT, {"triage": (use(LOOK), TOWARDS), "billing": (use(LOOK), say("Paid."))}, max_turns=2)

    theirs, ours = both(play, anyio_backend)

    assert (theirs.end, theirs.calls, theirs.path) == ("max_turns", 2, ("triage", "triage"))
    assert (ours.end, ours.calls, ours.output) == ("done", 4, "Paid.")


def test_a_bound_is_a_result(anyio_backend: Backend) -> None:
    """The last turn is an exception there; here a result that is exhausted, with the same counts."""
    play = Play(CHAT, {"triage": (use(LOOK), use(LOOK))}, max_turns=2)

    theirs, ours = both(play, anyio_backend)

    assert theirs == ours
    assert (ours.end, ours.status) == ("max_turns", "exhausted")


def test_what_failed_and_why_is_told(anyio_backend: Backend) -> None:
    """Every failure has one fixed text there; here a model reads the error, or the bound that a member hit."""
    tool = Play(CHAT, {"triage": (TOWARDS,), "billing": (use(call("broken", key=1)), say("Sorry."))})
    member = ALIKE["a member without an end"]
    fixed = "An error occurred while running the tool. Please try again."

    theirs, ours = both(tool, anyio_backend)
    theirs_member, ours_member = both(member, anyio_backend)

    assert (theirs.requests[-1].texts[-1], theirs_member.requests[-1].texts[-1]) == (fixed, fixed)
    assert ours.requests[-1].texts[-1] == "broken failed: RuntimeError: no luck with 1"
    assert '"code": "max_turns"' in ours_member.requests[-1].texts[-1]


def test_a_run_with_a_failed_member_is_partial(anyio_backend: Backend) -> None:
    """Nothing tells it from a whole answer there."""
    theirs, ours = both(ALIKE["a member without an end"], anyio_backend)

    assert (theirs.end, theirs.output) == (ours.end, ours.output) == ("done", "Nobody knows.")
    assert ours.status == "partial"


def test_a_tool_may_raise_its_very_exception(anyio_backend: Backend) -> None:
    """It comes wrapped there; here as it was raised."""
    play = Play(CHAT, {"triage": (TOWARDS,), "billing": (use(call("fatal", key=1)),)})

    theirs, ours = both(play, anyio_backend)

    assert theirs.end == "UserError: Error running tool fatal: no more after 1"
    assert ours.end == "LookupError: no more after 1"
    assert theirs.requests == ours.requests


def test_a_call_that_failed_was_still_a_call(anyio_backend: Backend) -> None:
    """Only replies are counted there; here the call is, with all that was reserved, as nobody said what it used."""
    play = Play(
        DESK, {"desk": (use(ask("billing", "Paid?")), say("Nobody knows.")), "billing": (Reply(error="overloaded"),)}
    )

    theirs, ours = both(play, anyio_backend)

    assert ours.path == theirs.path == ("desk", "billing", "desk")
    assert results(ours) == results(theirs) == [f"ask_billing: {FAILED}"]
    assert (theirs.calls, theirs.tokens) == (2, 26)
    assert ours.calls == 3
    assert ours.tokens > 26 + 1024
