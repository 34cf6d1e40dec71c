"""`redact=` sees each text as it is, also where it stands in JSON; what it does not change stays as it was written."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Human,
    ModelReply,
    Report,
    Skip,
    State,
    Supervisor,
    ToolCall,
    Update,
    node,
    resume,
    run,
    secret,
)
from graphflow.events import Event
from graphflow.model.frozen import FrozenDict
from graphflow.nodes.function import FunctionNode
from graphflow.persistence.lines import event_json
from graphflow.runtime.redaction import redacted
from graphflow.testing import MemoryJournal, ScriptedModel, call
from tests.cases.agents import Talk
from tests.support import examples

CARD = "4111 1111 1111 1111"
NAME = 'Mü"ll\ner'
BUDGET = Budget(model_calls=9, node_runs=9)


def no_cards(text: str) -> str:
    """Take cards out, as the docs do, and a name that JSON writes with escapes."""
    return re.sub(r"\b(?:\d{4} ?){4}\b", "[card]", text).replace(NAME, "[name]")


def spaced(text: str) -> str:
    """Write JSON in another way: with spaces, and in ASCII."""
    return json.dumps(json.loads(text), indent=1, ensure_ascii=True)


TEXTS = [
    f"Card:\n{CARD}", f"tab\t{CARD}\n\\{CARD}", NAME, f"{NAME} {CARD}", json.dumps({"in": f"deep\n{CARD} {NAME}"}),
]  # fmt: skip


def fenced(text: str) -> str:
    """Write JSON in a code fence, as many models do."""
    return f"```json\n{text}\n```"


def among(text: str) -> str:
    """Write JSON among other words."""
    return f"Here: {text} and"


@pytest.mark.parametrize("form", [str, spaced, fenced, among])
@pytest.mark.parametrize("said", TEXTS, ids=range(len(TEXTS)))
def test_texts_in_json_are_seen_without_their_escapes(said: str, form: Callable[[str], str]) -> None:
    """Whatever way it is written, fenced, nested, or among other words; and it is JSON as before."""
    for escaped in (False, True):
        text = form(json.dumps({"a": [said, {said: 1}], "b": 2.50}, ensure_ascii=escaped))

        made = redacted(text, no_cards)

        for word in ("4111", "ller", "ll\\ner"):
            assert word not in made
        inside = made.removeprefix("```json\n").removesuffix("\n```").removeprefix("Here: ").removesuffix(" and")
        clean = redacted(said, no_cards)
        assert json.loads(inside) == {"a": [clean, {clean: 1}], "b": 2.5}
        assert redacted(made, no_cards) == made


def test_what_is_not_changed_stays_as_it_was_written() -> None:
    """Spaces, escapes, doubled keys, numbers: all but the text that was found."""
    text = f'{{ "a" : "\\u00fc\\/" , "n": 1.50e2, "n": 10000000000000000000001,\n"b":"x\\n{CARD}"}}'

    assert redacted(text, no_cards) == text.replace(CARD, "[card]")
    assert redacted(text.replace(CARD, "x"), no_cards) == text.replace(CARD, "x")


def test_a_number_that_is_found_becomes_a_text() -> None:
    """It would be no JSON otherwise."""

    def no_numbers(text: str) -> str:
        return re.sub(r"4\d{15}", "[card]", text)

    assert redacted('{"card": 4111111111111111, "n": 1}', no_numbers) == '{"card": "[card]", "n": 1}'


@pytest.mark.parametrize("end", ["", "\\", "\\u", "\\u00f", '"', '", "b'])
def test_arguments_that_were_cut_off_are_seen_too(end: str) -> None:
    """A model that is cut off writes no JSON, and what it wrote is stored all the same."""
    made = redacted(ToolCall("note", f'{{"text": "Card:\\n{CARD}{end}', "id 4111"), no_cards)

    assert "4111" not in made.arguments
    assert made.arguments.startswith('{"text": "Card:\\n[card]')
    assert (made.name, made.id) == ("note", "id 4111")


def test_keys_of_tables_are_texts_too() -> None:
    """Two that become one are told apart; names of fields are left alone."""
    table = {f"{CARD}": 1, "1111 1111 1111 1111": 2, ("a", CARD): 3, 4: CARD}

    assert redacted(table, no_cards) == {"[card]": 1, "[card] (2)": 2, ("a", "[card]"): 3, 4: "[card]"}
    assert redacted(FrozenDict({CARD: (CARD,)}), no_cards) == FrozenDict({"[card]": ("[card]",)})
    assert redacted(Update(question=CARD), no_cards) == Update(question="[card]")
    same = {"a": ("b",)}
    assert redacted(same, no_cards) is same


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(JSON, st.booleans(), st.text())
def test_a_function_that_changes_nothing_changes_nothing(data: Any, escaped: bool, more: str) -> None:
    """Whatever is JSON, or none: the very text comes back."""
    text = json.dumps(data, ensure_ascii=escaped)
    for written in (text, text[: len(text) // 2], f"{more}{text}", more):
        assert redacted(written, str) == written
        assert redacted(ToolCall("a", written), str).arguments == written


@settings(max_examples=examples(300))
@given(st.lists(st.text() | st.text('aä"\\n'), min_size=1, max_size=4), st.booleans())
def test_every_text_in_json_is_seen(said: list[str], escaped: bool) -> None:
    """The function is given each of them, and the JSON says what it returned."""
    seen: list[str] = []

    def sees(text: str) -> str:
        seen.append(text)
        return text.replace("ä", "b")

    made = redacted(json.dumps({"x": said}, ensure_ascii=escaped), sees)

    assert {one for one in said if '"' not in one} <= set(seen)
    assert json.loads(made)["x"] == [redacted(one, sees) for one in said]


# --- runs ------------------------------------------------------------------------------------------------------------

WORDS = f"Card:\n{CARD} of {NAME}"


def team() -> Graph[Talk]:
    """The text stands in briefs, arguments, results, a report and an answer as JSON, and in what is noted of a key."""

    def note(text: str) -> Mapping[str, str]:
        """Note something."""
        return {"saved": text, WORDS: WORDS}

    works = Agent(
        "works", model=ScriptedModel(call("note", text=WORDS), Report(finding=WORDS)), tools=[note], output=Report
    )
    boss = Supervisor("boss", model=ScriptedModel(call("ask_works", objective=WORDS), "done"))
    edge = boss.delegates(works, max_hops=1)
    return Graph("team", START >> boss >> END, edge, context=Talk, budget=BUDGET, max_depth=1)


def giving(name: str, make: Callable[[], Any]) -> FunctionNode[Any]:
    """Make a node that gives what a function makes."""

    async def gives(state: State[Any]) -> Any:
        return make()

    return node(name=name)(gives)


def held(rows: Any, *things: Any) -> str:
    """Give all that rows and things say, as one text."""
    return " ".join([*(row.fact + row.decisions for row in rows), *map(repr, things)])


async def test_r9_texts_in_json_are_gone_before_anything_is_written(anyio_backend: str) -> None:
    """Briefs, arguments, structured results and answers: journal, events, thread and output hold none of it."""
    journal, heard = MemoryJournal(), list[Event]()

    result = await run(
        team(), Talk(question=WORDS), redact=no_cards, journal=journal, run_id="r", listeners=[heard.append]
    )

    assert result.status == "completed"
    text = held(await journal.read("r"), result, result.thread, *heard, *map(event_json, heard))
    assert "[card]" in text
    assert "4111" not in text
    assert "ller" not in text


async def test_r9_what_a_hook_answers_is_redacted(anyio_backend: str) -> None:
    """Why a node was skipped, and the error of a hook, are texts from outside."""

    async def skips(_: Any) -> Skip:
        return Skip(f"no {CARD}")

    async def breaks(_: Any) -> None:
        msg = f"not for {CARD}"
        raise ValueError(msg)

    for hook in (skips, breaks):
        journal, heard = MemoryJournal(), list[Event]()
        graph = Graph("g", START >> giving("a", lambda: "x") >> END, context=Talk, budget=BUDGET)
        try:
            await run(
                graph, Talk(), before=hook, redact=no_cards, journal=journal, run_id="r", listeners=[heard.append]
            )
        except ValueError as error:
            assert CARD in str(error)  # noqa: PT017 - the very object, as its hook raised it

        text = held(await journal.read("r"), *heard, *map(event_json, heard))
        assert "[card]" in text
        assert CARD not in text


async def test_r9_what_an_earlier_run_said_is_redacted(anyio_backend: str) -> None:
    """A run that was not redacted is continued by one that is: the thread that it is given passes the function."""
    agent = Agent("a", model=ScriptedModel(call("note", text=WORDS), f"It is {CARD}.", "Again."), tools=[_note])
    graph = Graph("g", START >> agent >> END, context=Talk, budget=BUDGET)
    journal, heard = MemoryJournal(), list[Event]()
    first = await run(graph, Talk(question=f"My card: {CARD}"))

    second = await run(
        graph, Talk(question="And?"), after=first, redact=no_cards, journal=journal, run_id="r",
        listeners=[heard.append],
    )  # fmt: skip

    text = held(await journal.read("r"), second.thread, *heard, *map(event_json, heard))
    assert CARD in repr(first.thread)
    assert text.count("[card]") > 3
    assert CARD not in text
    assert second.thread[-1].text == "Again."


def _note(text: str) -> str:
    """Note something."""
    return text


async def test_a_redacted_run_is_taken_up_with_what_was_written(anyio_backend: str) -> None:
    """The fold sees on resume what it saw at first, keys and JSON included."""
    gives = giving("gives", lambda: FrozenDict({CARD: WORDS, "json": json.dumps([WORDS])}))
    says = node(name="says")(_last_text)
    graph = Graph("g", START >> gives >> Human("h", "?", schema=bool) >> says >> END, context=Talk, budget=BUDGET)
    journal = MemoryJournal()
    waiting = await run(graph, Talk(), redact=no_cards, journal=journal, run_id="r")

    result = await resume(graph, "r", journal=journal, redact=no_cards, answers={"h": True})

    assert (waiting.status, result.status) == ("waiting", "completed")
    assert "4111" not in held(await journal.read("r"), waiting.questions)


def _last_text(state: State[Talk]) -> str:
    return str(state.values)


def test_replies_are_redacted_part_by_part() -> None:
    """A reply of a model: its text and the arguments of its calls."""
    reply = ModelReply(json.dumps({"finding": WORDS}), (ToolCall("a", json.dumps({"x": WORDS})),))

    made = redacted(reply, no_cards)

    assert json.loads(made.text) == json.loads(made.calls[0].arguments.replace('"x"', '"finding"'))
    assert "4111" not in str(dataclasses.asdict(made))


# --- what Python has written -----------------------------------------------------------------------------------------

SECRETS = [
    "two\nlines",
    "both \"kinds\" of 'quotes'",
    "a\ttab",
    "back\\slash",
    "\x1b[31mred",
    "caf\u00e9\u2028",
    "no\xa0break",
]
FORMS: list[Callable[[Any], str]] = [
    repr, ascii, lambda text: repr([{"it": text}]), lambda text: repr(repr(text)), lambda text: repr(text.encode())
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_a_repr_is_seen_without_its_escapes(form: Callable[[Any], str], secret: str) -> None:
    """Errors say what was wrong by a repr; a function finds there what it finds in the value itself."""
    text = f"KeyError: no {form(secret)} is known"

    made = redacted(text, lambda found: found.replace(secret, "[it]"))

    assert "[it]" in made
    assert secret not in made
    assert made.startswith("KeyError: no ")
    assert redacted(made, lambda found: found.replace(secret, "[it]")) == made


@pytest.mark.parametrize("text", [r"C:\new\table\x41", r"\d{4}\b", r"a\\nb", "don't \\ do 'it'", r"\ud800 \U99999999"])
def test_what_looks_like_an_escape_stays_as_it_was(text: str) -> None:
    """A path or a pattern in which the function finds nothing is not written anew, whatever it does to blanks."""
    assert redacted(text, lambda found: found) == text
    assert redacted(text, lambda found: " ".join(found.split())) == text
    assert redacted(f"{text} {CARD}", no_cards) == f"{text} [card]"


async def test_r9_the_repr_in_an_error_is_redacted(anyio_backend: str) -> None:
    """The journal, the events and the reason hold none of a text that an error shows by its repr."""

    @node
    def looks_up(state: State[Talk]) -> str:
        return {"a": "b"}[NAME]

    graph = Graph("g", START >> looks_up >> END, context=Talk, budget=BUDGET)
    journal, events = MemoryJournal(), list[Event]()

    with pytest.raises(KeyError):
        await run(graph, Talk(question="q"), journal=journal, redact=no_cards, listeners=[events.append], run_id="r")

    told = held(await journal.read("r"), *map(event_json, events))
    assert "[name]" in told
    assert "ller" not in told


class Login(Context):
    """A context with a secret."""

    said: str
    token: Annotated[str, secret]


class Pass(NamedTuple):
    """A pair with a secret."""

    said: str
    token: Annotated[str, secret]


async def test_a_secret_keeps_its_name_and_its_value(anyio_backend: object) -> None:
    """It is stored nowhere, so there is nothing to redact: `resume` asks for it by the name of its field."""

    @node
    def renew(state: State[Login]) -> Update:
        return Update(said=f"{state.context.token} again", token="tok-2")

    graph = Graph("g", START >> renew >> Human("ok") >> END, context=Login, budget=Budget(node_runs=2))
    journal = MemoryJournal()

    def hide(text: str) -> str:
        return re.sub("tok-[0-9]", "[token]", text)

    first = await run(graph, Login(said="tok-1", token="tok-1"), journal=journal, run_id="r", redact=hide)
    again = await resume(
        graph, "r", journal=journal, redact=hide, answers={"ok": "yes"}, secrets={"token": "tok-1", "token#2": "tok-2"}
    )

    assert (first.context.said, first.context.token) == (again.context.said, again.context.token)
    assert (again.context.said, again.context.token) == ("[token] again", "tok-2")
    assert redacted(Pass("tok-1", "tok-1"), hide) == Pass("[token]", "tok-1")
    assert "tok-" not in str(await journal.read("r"))
