"""Lint of a run: what it promises whatever the run is."""

import json
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import company
from graphflow import (
    END,
    START,
    Agent,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    MemoryJournal,
    ModelReply,
    Report,
    State,
    Update,
    node,
    run,
    run_sync,
)
from graphflow.cli.stored import read_rows
from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.lint import CODES, RULES, Limits, Symptom, lint
from graphflow.lint.replies import read
from graphflow.lint.words import directed_at, is_vague, says
from graphflow.testing import ScriptedModel, call
from tests.laws.test_agent_laws import ran
from tests.lint.builders import BUDGET, Desk, Seed, ask, chat, done, over, played, search, solo, team
from tests.lint.seeds import BAD, GOOD
from tests.support import examples

EVERY = [seed for seeds in BAD.values() for seed in seeds] + list(GOOD)
NAMED = [pytest.param(seed, id=seed.name) for seed in EVERY]


@pytest.mark.parametrize("seed", NAMED[::5])
async def test_a_stored_run_shows_the_same_as_one_that_was_heard(seed: Seed) -> None:
    """What was read without the graph's classes says as much as what a listener heard."""
    graph, journal, heard = seed.make(), MemoryJournal(), list[Event]()
    await run(graph, graph.context(), journal=journal, run_id="r", listeners=[heard.append])

    stored = read_rows("r", await journal.read("r"))

    assert lint(graph, stored.events()) == lint(graph, heard)


@pytest.mark.parametrize("seed", NAMED[::7])
async def test_a_run_can_be_looked_at_while_it_goes_on(seed: Seed) -> None:
    """Wherever the events end, there is an answer, and what it says is about events that are there."""
    graph = seed.make()
    events = await played(graph)

    for end in range(len(events)):
        assert all(-1 < one.seq < max(end, 1) for one in lint(graph, events[:end]))


@pytest.mark.parametrize("seed", NAMED[::7])
async def test_another_graph_breaks_nothing(seed: Seed) -> None:
    """The events of nodes that a graph does not have say little, and raise nothing."""
    events = await played(seed.make())

    found = lint(company.graph, events)

    assert {one.code for one in found} <= set(CODES)


async def test_symptoms_stand_in_the_order_of_their_events() -> None:
    """Whichever rule found them."""
    graph = chat(
        {"a": [call("nowhere"), over("b", "")] + [over("b")] * 5, "b": [over("a")] * 6}, "a", "b", max_handoffs=7
    )

    found = lint(graph, await played(graph))

    assert len({one.code for one in found}) > 1
    assert [one.seq for one in found] == sorted(one.seq for one in found)


async def test_only_some_rules_can_be_asked() -> None:
    """By their codes, one or several."""
    graph = solo(*[call("search", text="invoice")] * 3, call("nowhere"), "Twice.")
    events = await played(graph)

    assert [one.code for one in lint(graph, events)] == ["same-step-again", "not-offered"]
    assert [one.code for one in lint(graph, events, only=["not-offered"])] == ["not-offered"]
    assert lint(graph, events, only="thin-brief") == ()


def test_an_unknown_rule_is_told_with_those_that_there_are() -> None:
    """The error names what was asked, and what could be."""
    with pytest.raises(
        UsageError, match="lint\\(only='loops'\\): there is no such rule; the rules are contract-broken"
    ):
        lint(company.graph, [], only=["loops"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"repeats": 1}, "Limits\\(repeats=1\\): a whole number of at least 2 is needed."),
        ({"rounds": True}, "rounds=True"),
        ({"overlap": 0}, "Limits\\(overlap=0\\): a share is needed"),
        ({"coverage": 1.5}, "coverage=1.5"),
        ({"verifiers": "check"}, "a tuple of names is needed: \\('check',\\)"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    """Where they are made, with the value and the rule."""
    with pytest.raises(UsageError, match=said):
        Limits(**given)


async def test_limits_say_from_how_much_on_it_counts() -> None:
    """The same run with another limit."""
    graph = solo(*[call("search", text="invoice")] * 3, "Twice.")
    events = await played(graph)

    assert len(lint(graph, events, Limits(repeats=3))) == 1
    assert lint(graph, events, Limits(repeats=4)) == ()


async def test_who_verifies_can_be_said() -> None:
    """Where names do not say it."""
    graph = team(
        {"desk": [ask("writer", "Write about INV-311"), "Sent."], "writer": [done("Sent.")], "eyes": []},
        "writer",
        "eyes",
    )
    events = await played(graph)

    assert lint(graph, events) == ()
    assert [one.code for one in lint(graph, events, Limits(verifiers=("eyes",)))] == ["unasked-verifier"]


def test_a_symptom_says_itself_on_one_line() -> None:
    """Code, mode, place, event, what was seen, what to change."""
    found = Symptom("overlapping-briefs", "", "", None, 3, "Twice.", "Once.")

    assert str(found) == "overlapping-briefs at the run, event 3: Twice. Once."


def test_codes_are_kebab_case_and_modes_are_those_of_the_table() -> None:
    """As the codes of problems are."""
    assert all(code == code.lower() and " " not in code and "_" not in code for code in CODES)
    assert {rule.mode for rule in RULES} - {""} == {
        "1.1", "1.2", "1.3", "1.4", "1.5", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "3.1", "3.2", "3.3",
    }  # fmt: skip


# --- functions, nested graphs, reports of the user's own --------------------------------------------------------------


class Own(Report):
    """A report of the user's own."""

    price: int = 0


def asking(answer: str) -> Graph[Desk]:
    """A function that delegates to a graph, and answers."""

    @node
    def lead(state: State[Desk]) -> Delegate | str:
        """Ask once."""
        return Delegate(Call("shop", "What does INV-311 cost?")) if state.turn == 0 else answer

    model = ScriptedModel(call("search", text="invoice"), Own(finding="It costs 49 crowns in all", price=49))
    seller = Agent("seller", model=model, tools=[search], output=Own)
    shop = Graph("shop", START >> seller >> END, context=Desk)
    return Graph(
        "lead",
        START >> lead >> END,
        lead.delegates(shop, max_hops=1, report=Own),
        context=Desk,
        budget=BUDGET,
        max_depth=1,
    )


@pytest.mark.parametrize(("answer", "codes"), [("It costs 49 crowns.", []), ("We will see.", ["unused-report"])])
async def test_a_function_is_looked_at_as_an_agent_is(answer: str, codes: list[str]) -> None:
    """What it asked, what came back from a graph, and what it answered; stored runs too."""
    graph, journal, heard = asking(answer), MemoryJournal(), list[Event]()
    await run(graph, Desk(), journal=journal, run_id="r", listeners=[heard.append])

    stored = read_rows("r", await journal.read("r"))

    assert [one.code for one in lint(graph, heard)] == codes
    assert [one.code for one in lint(graph, stored.events())] == codes


async def test_an_answer_in_json_is_an_answer() -> None:
    """In the decision mode "json" a call of `answer` answers; both of its forms are read."""
    called = json.dumps({"reason": "r", "calls": [{"tool": "answer", "arguments": {"answer": "My guess is INV-311."}}]})
    plain = json.dumps({"reason": "r", "answer": "My guess is INV-311."})

    for said in (called, plain):
        graph = solo(said, native=False)
        assert [one.code for one in lint(graph, await played(graph))] == ["guessed"]


REPLIES: Final[list[tuple[str, tuple[str, ...], str, list[Any]]]] = [
    ('{"reason": "r", "calls": [{"tool": "look", "arguments": {"at": 1}}]}', ("look",), "r", [("look", {"at": 1})]),
    ('{"calls": [{"tool": "answer", "arguments": {"answer": {"a": 1}}}]}', ("look",), '{"a": 1}', []),
    ('{"calls": [{"tool": "answer", "arguments": {}}]}', ("answer",), "", [("answer", {})]),
    ('{"calls": [{"tool": "final_answer", "arguments": {"answer": "x"}}]}', ("answer",), "x", []),
    ('```json\n{"answer": "x"}\n```', ("look",), "x", []),
    ("no JSON", ("look",), "no JSON", []),
    ('{"answer": "x"}', (), '{"answer": "x"}', []),
    ('{"calls": [1, {"tool": 2}]}', ("look",), '{"calls": [1, {"tool": 2}]}', []),
]


@pytest.mark.parametrize(("text", "offered", "said", "calls"), REPLIES)
def test_a_reply_in_json_is_read(text: str, offered: tuple[str, ...], said: str, calls: list[Any]) -> None:
    """Calls, or the call that answers; where nothing is offered the text is the answer."""
    found = read(ModelReply(text), native=False, offered=offered)

    assert (found.text, [(name, dict(given)) for name, given in found.calls]) == (said, calls)


async def test_what_a_function_keeps_counts_as_told() -> None:
    """An update beside its output, live and stored."""

    @node
    def lead(state: State[Desk]) -> Delegate | Done:
        """Ask once, and keep what comes back."""
        if state.turn == 0:
            return Delegate(Call("clerk", "Look up INV-311"))
        return Done("Thank you.", update=Update(draft=str(state.values[0])))

    model = ScriptedModel(Report(finding="three separate charges stand there"))
    clerk = Agent("clerk", model=model, output=Report)
    graph = Graph("keeps", START >> lead >> END, lead.delegates(clerk, max_hops=1), context=Desk, max_depth=1)
    journal, heard = MemoryJournal(), list[Event]()
    await run(graph, Desk(), budget=BUDGET, journal=journal, run_id="r", listeners=[heard.append])

    stored = read_rows("r", await journal.read("r"))

    assert lint(graph, heard) == lint(graph, stored.events()) == ()


async def test_a_function_that_hands_over_without_a_note() -> None:
    """It has found nothing, so nothing is lost."""

    @node
    def route(state: State[Desk]) -> Handoff:
        """Send it on."""
        return Handoff("clerk")

    clerk = Agent("clerk", model=ScriptedModel("Twice."))
    graph = Graph("route", START >> route >> END, route.hands_off(clerk, max_hops=1), clerk >> END, context=Desk)

    assert lint(graph, await played(graph)) == ()


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("I will ask billing about it", {"billing"}),
        ("I hand the conversation over to billing", {"billing"}),
        ("I do not ask billing", set[str]()),
        ("The billing is odd", set[str]()),
        ("Ask the new one in billing", set[str]()),
        ("I use get_invoice, then I ask ship it", set[str]()),
        ("I call get_invoice and ask ship it", {"get_invoice", "ship it"}),
    ],
)
def test_what_a_sentence_wants_called(sentence: str, names: set[str]) -> None:
    """Only a name behind a word that says so, and no sentence about what was, or will not be."""
    assert directed_at(sentence, ["billing", "ship it", "get_invoice"]) == names


@pytest.mark.parametrize(
    ("objective", "vague"),
    [
        ("Please handle this", True),
        ("", True),
        ("Look into it", True),
        ("INV-311?", False),
        ("Check the invoice", False),
    ],
)
def test_what_is_vague(objective: str, vague: bool) -> None:
    """An objective without a word that says what it is about."""
    assert is_vague(objective) is vague


@pytest.mark.parametrize(("text", "said"), [("I  GUESS so", "i guess"), ("I guessed", ""), ("Hi guess", "")])
def test_phrases_are_whole_words(text: str, said: str) -> None:
    """Without regard to case and spaces."""
    assert says(text, ("i guess",)) == said


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=40))
@settings(max_examples=examples(60))
def test_any_text_can_be_looked_at(texts: list[str], last: str) -> None:
    """Whatever models, tools and reports say."""
    events: list[Event] = []
    script: dict[str, list[Any]] = {
        "desk": [ask("a", text) for text in texts] + [last or "."],
        "a": [done(text.strip() or ".", text, action=text) for text in texts],
    }
    graph = team(script, "a", max_hops=9)
    run_sync(graph, Desk(question=last), listeners=[events.append])

    assert {one.code for one in lint(graph, events)} <= set(CODES)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(300))
def test_any_run_of_any_team_can_be_looked_at(seed: int) -> None:
    """Random teams under random schedules, whose models say anything: to their end, and up to some event."""
    driver = ran(seed)
    events = driver.events

    whole = lint(driver.crew.graph, events)

    assert [one.seq for one in whole] == sorted(one.seq for one in whole)
    assert all(
        one.seq < seed % (len(events) + 1) for one in lint(driver.crew.graph, events[: seed % (len(events) + 1)])
    )


# --- size ------------------------------------------------------------------------------------------------------------


async def test_a_large_run_is_looked_at_in_a_moment() -> None:
    """A thousand calls of one function, each with a report."""

    @node
    def lead(state: State[Context]) -> Delegate | str:
        """Ask for a thousand things."""
        return (
            Delegate(*(Call("clerk", f"Look up INV-{n}") for n in range(1_000))) if state.turn == 0 else "Nothing else."
        )

    @node
    def clerk(state: State[Context]) -> Report:
        """Say what was found."""
        asked = state.brief.objective if state.brief else ""
        return Report(finding=f"{asked}: three separate charges stand there", evidence=(asked,))

    graph = Graph("large", START >> lead >> END, lead.delegates(clerk, max_hops=1_000), context=Context, max_depth=1)
    events: list[Event] = []
    await run(graph, Context(), listeners=[events.append])
    began = time.perf_counter()

    found = lint(graph, events)

    assert len(found) == 1_000
    assert time.perf_counter() - began < 5
