"""Models without a model: what a script may say, what is recorded, and what is refused."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from graphflow.errors import UsageError
from graphflow.model.thread import Thread, ThreadMessage, ToolCall
from graphflow.nodes.client import CallPiece, ModelClient, ModelReply, ModelRequest, Price, ToolSpec, Usage
from graphflow.nodes.tools import tool
from graphflow.testing import RuleModel, ScriptedModel, call
from graphflow.testing.models import as_reply, news, usage_of
from tests.support import examples

TRACK: Final = ToolSpec("track_parcel", "Find a parcel.")


class Finding(BaseModel):
    text: str = Field(alias="finding")


def request(text: str = "hello", agent: str = "desk", messages: Thread | None = None) -> ModelRequest:
    """Make a request of an agent."""
    return ModelRequest(
        agent, f"{agent}:1", 0, "Be kind.", (ThreadMessage("user", text),) if messages is None else messages, (TRACK,)
    )


async def ask(model: ModelClient, *requests: ModelRequest) -> list[ModelReply]:
    """Ask one after the other; nobody listens to the stream."""
    return [await model.reply(one, lambda _: None) for one in requests or (request(),)]


async def said(step: Any, **options: Any) -> ModelReply:
    """What a model says whose script is one step."""
    return (await ask(ScriptedModel(step, **options)))[0]


# --- calls ---


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(call("look"), ToolCall("look"), id="no arguments"),
        pytest.param(call("look", "c1", text="ü"), ToolCall("look", '{"text": "ü"}', "c1"), id="an id"),
        pytest.param(call("look", id=1, tool_name=2), ToolCall("look", '{"id": 1, "tool_name": 2}'), id="any name"),
        pytest.param(call("look", it=Finding(finding="x")), ToolCall("look", '{"it": {"finding": "x"}}'), id="a model"),
        pytest.param(call("look", it=(1, None)), ToolCall("look", '{"it": [1, null]}'), id="a tuple"),
    ],
)
def test_a_call_is_written_as_a_model_writes_it(made: ToolCall, expected: ToolCall) -> None:
    """Its arguments are JSON text, and no name of an argument is taken."""
    assert made == expected


@pytest.mark.parametrize("value", [object(), float("nan"), [float("inf")]])
def test_a_call_needs_values_with_a_json_form(value: object) -> None:
    """Garbage is written by hand."""
    with pytest.raises(UsageError, match=r"write ToolCall\('look', text\)"):
        call("look", it=value)


# --- what a script says ---


async def test_each_step_becomes_a_reply() -> None:
    """A text, calls, a value as its JSON text, a reply as it stands."""
    one, two = call("a"), call("b")
    whole = ModelReply("both", (one,), Usage(7, 8))

    assert (await said("hello")).text == "hello"
    assert (await said(one)).calls == (one,)
    assert (await said([one, two])).calls == (one, two)
    assert (await said(())) == ModelReply(usage=Usage(27, 1))
    assert (await said(Finding(finding="paid"))).text == '{"finding":"paid"}'
    assert await said(whole) is whole


async def test_an_exception_is_raised() -> None:
    """It is that very object, and its step is used."""
    error = ConnectionError("gone")
    model = ScriptedModel(error, "back")

    with pytest.raises(ConnectionError) as caught:
        await ask(model)

    assert caught.value is error
    assert (await ask(model))[0].text == "back"
    model.assert_complete()


async def test_a_responder_makes_the_answer_from_the_request() -> None:
    """Sync or async, any answer, an exception too."""

    def echo(asked: ModelRequest) -> str:
        return asked.messages[-1].text

    async def later(asked: ModelRequest) -> Sequence[ToolCall]:
        await anyio.lowlevel.checkpoint()
        return [call(asked.agent)]

    def fail(asked: ModelRequest) -> Exception:
        return LookupError(asked.path)

    def wrong(asked: ModelRequest) -> None: ...

    assert (await said(echo)).text == "hello"
    assert (await said(later)).calls == (call("desk"),)
    with pytest.raises(LookupError, match="desk:1"):
        await said(fail)
    with pytest.raises(UsageError, match="a responder's answer: None is nothing that a model could say"):
        await said(wrong)


async def test_requests_are_recorded_in_order() -> None:
    """Also those that had no answer."""
    model = ScriptedModel("a", ValueError("b"))

    await ask(model, request("1"))
    with pytest.raises(ValueError, match="b"):
        await ask(model, request("2"))
    with pytest.raises(AssertionError):
        await ask(model, request("3"))

    assert [one.messages[0].text for one in model.requests] == ["1", "2", "3"]


async def test_agents_have_scripts_of_their_own() -> None:
    """In whatever order they ask, each gets its own steps."""
    model = ScriptedModel({"desk": ["d1", "d2"], "billing": [call("look"), "b2"]})

    replies = await ask(model, request(agent="billing"), request(), request(agent="billing"), request())

    assert [reply.text for reply in replies] == ["", "d1", "b2", "d2"]
    model.assert_complete()


async def test_a_request_without_a_step_shows_itself() -> None:
    """The error says who asked what, and how long the script was."""
    messages = (
        ThreadMessage("user", "0"), ThreadMessage("user", "Where is it?"),
        ThreadMessage("assistant", calls=(call("track_parcel", "c1"),)), ThreadMessage("tool", "x" * 300, answers="c1"),
    )  # fmt: skip
    model = ScriptedModel("only")
    await ask(model)

    with pytest.raises(AssertionError, match=r"the script has no step left after 1\.") as caught:
        await ask(model, request(messages=messages))

    shown = str(caught.value)
    assert "of 'desk' at 'desk:1', turn 0, with the tools track_parcel, and 4 messages" in shown
    assert "user: Where is it?\n  assistant: (ToolCall(name='track_parcel'" in shown
    assert "[100 more characters were left out]" in shown
    assert "user: 0" not in shown


async def test_an_agent_without_a_script_is_named() -> None:
    """And so are those that have one."""
    with pytest.raises(AssertionError, match=r"no script for the agent 'desk', only for 'a', 'b'\. The request is of"):
        await ask(ScriptedModel({"a": [], "b": []}))
    with pytest.raises(AssertionError, match="only for nobody"):
        await ask(ScriptedModel({}))


async def test_a_script_is_complete_when_every_step_was_used() -> None:
    """What is left is named, with its agent."""
    model = ScriptedModel({"desk": ["a", "b"], "billing": []})
    await ask(model)

    with pytest.raises(AssertionError, match=r"the script of 'desk' .*: 1 of 2 steps are left, the next is 'b'\."):
        model.assert_complete()


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        pytest.param((None,), "None is nothing that a model could say", id="None"),
        pytest.param((3,), "3 is nothing", id="number"),
        pytest.param((["a", "b"],), "is nothing", id="list of texts"),
        pytest.param((ValueError,), "is nothing", id="class"),
        pytest.param((tool(name="look")(lambda: None),), "<Tool 'look'> is nothing", id="tool"),
        pytest.param(("a", {"desk": ["b"]}), "is nothing", id="a table beside steps"),
        pytest.param(({"desk": "text"},), "a list of steps is needed", id="text for a list"),
        pytest.param(({"desk": call("a")},), "a list of steps is needed", id="call for a list"),
        pytest.param(({"desk": [None]},), "None is nothing", id="None in a table"),
    ],
)
def test_a_step_that_is_nothing_known_is_refused_at_once(steps: tuple[Any, ...], complaint: str) -> None:
    """A wrong script fails where it is written, not in the run."""
    with pytest.raises(UsageError, match=complaint):
        ScriptedModel(*steps)


@pytest.mark.parametrize(
    "options", [{"delay": -1}, {"delay": float("inf")}, {"stream_pieces": 0}, {"stream_pieces": True}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """For both kinds of model."""
    with pytest.raises(UsageError, match="is needed, or None"):
        ScriptedModel("a", **options)
    with pytest.raises(UsageError, match="is needed, or None"):
        RuleModel(**options)


# --- what it costs, how it comes ---


async def test_usage_is_worked_out_from_the_texts() -> None:
    """Four characters are a token; the price makes money of them; what a step says itself counts first."""
    price = Price(Decimal("0.01"), Decimal("0.1"))
    own = ModelReply("x", usage=None)

    assert (await said("x" * 40)).usage == Usage(27, 11)
    assert (await said("x" * 40, price=price)).usage == Usage(27, 11, Decimal("1.37"))
    assert (await said("x", usage=Usage(1, 2), price=price)).usage == Usage(1, 2)
    assert (await said(own, usage=Usage(1, 2))).usage is None


@given(st.text(max_size=50), st.lists(st.text(max_size=50), max_size=4))
@settings(max_examples=examples(200))
def test_a_longer_request_uses_no_less(text: str, more: list[str]) -> None:
    """Usage depends on the texts alone, and grows with them."""
    messages = tuple(ThreadMessage("user", one) for one in more)
    small, large = request(messages=messages[:1]), request(messages=messages)

    assert usage_of(small, as_reply(text)).input_tokens <= usage_of(large, as_reply(text)).input_tokens
    assert usage_of(large, as_reply(text)) == usage_of(large, as_reply(text))
    assert usage_of(large, as_reply(text)).output_tokens == len(text) // 4 + 1


def test_calls_and_tools_count_too() -> None:
    """Whatever a model reads or writes is text."""
    spoken = request(messages=(ThreadMessage("assistant", calls=(ToolCall("look", "x" * 36),)),))

    assert usage_of(spoken, as_reply("")).input_tokens == usage_of(request(""), as_reply("")).input_tokens + 10
    assert usage_of(request(), as_reply(ToolCall("look", "x" * 36))).output_tokens == 11


@pytest.mark.parametrize(
    ("pieces", "streamed"),
    [
        (None, []),
        (1, ["abcdefg"]),
        (3, ["abc", "def", "g"]),
        (4, ["ab", "cd", "ef", "g"]),
        (99, list("abcdefg")),
    ],
)
async def test_a_text_is_streamed_in_pieces(pieces: int | None, streamed: list[str]) -> None:
    """They are the text, and no more than wanted; a call is not streamed."""
    heard: list[str | CallPiece] = []
    model = ScriptedModel("abcdefg", call("look"), stream_pieces=pieces)

    await model.reply(request(), heard.append)
    await model.reply(request(), heard.append)

    assert heard == streamed


async def test_a_reply_may_take_time() -> None:
    """It is real time: a model with a delay can be cancelled while it thinks."""
    model = ScriptedModel("soon", "never", delay=0.001)
    slow = ScriptedModel("never", delay=3600)

    assert (await ask(model))[0].text == "soon"
    with anyio.move_on_after(0.001) as scope:
        await ask(slow)
    assert scope.cancelled_caught


def test_both_are_model_clients() -> None:
    """With the attributes that a client may have."""
    price = Price(Decimal(1), Decimal(2))
    models = (ScriptedModel(price=price, native_tools=False), RuleModel(price=price, native_tools=False))

    for model in models:
        assert isinstance(model, ModelClient)
        assert (model.price, model.native_tools) == (price, False)


# --- rules ---


async def test_the_first_rule_that_holds_is_said() -> None:
    """A text looks at what is new, a predicate at the whole request."""
    model = RuleModel(
        ("charged twice", [call("ask_billing"), call("ask_shipping")]),
        ("twice", "never"),
        (lambda asked: asked.agent == "billing", lambda asked: f"Hello, {asked.messages[0].text}"),
        otherwise="What?",
    )

    replies = await ask(model, request("I was charged twice."), request("x", agent="billing"), request("x"))

    assert [reply.text for reply in replies] == ["", "Hello, x", "What?"]
    assert [one.name for one in replies[0].calls] == ["ask_billing", "ask_shipping"]
    assert replies[2].usage == Usage(26, 2)


async def test_a_rule_sees_only_what_is_new() -> None:
    """A question that has been answered does not ask again."""
    messages = (
        ThreadMessage("user", "parcel?"), ThreadMessage("assistant", calls=(call("track_parcel", "c1"),)),
        ThreadMessage("tool", "in transit", answers="c1"), ThreadMessage("user", "and now?"),
    )  # fmt: skip
    model = RuleModel(("parcel", call("track_parcel")), ("transit", "It comes."))

    assert news(request(messages=messages)) == "in transit\nand now?"
    assert news(request(messages=())) == ""
    assert (await ask(model, request(messages=messages)))[0].text == "It comes."


async def test_a_request_that_no_rule_holds_for_shows_itself() -> None:
    """Unless there is something to say otherwise."""
    with pytest.raises(AssertionError, match=r"no rule holds, and there is no otherwise=\. The request is of 'desk'"):
        await ask(RuleModel(("parcel", "yes")))


@pytest.mark.parametrize(
    "rule", [pytest.param("when", id="text"), ("when",), ("when", "then", "more"), (3, "then"), ("when", None)]
)
def test_what_is_no_rule_is_refused(rule: Any) -> None:
    """A rule is a pair of when and then."""
    with pytest.raises(UsageError, match=r"a rule is|is nothing that a model could say"):
        RuleModel(rule)
    with pytest.raises(UsageError, match=r"RuleModel\(otherwise=\): 3 is nothing"):
        RuleModel(otherwise=3)  # type: ignore[arg-type]  # that is what is tried


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
@settings(max_examples=examples(200))
def test_what_a_call_writes_is_what_was_given(arguments: dict[str, Any]) -> None:
    """Arguments come back from their text as they were."""
    assert json.loads(call("look", "", **arguments).arguments) == arguments
