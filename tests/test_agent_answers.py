"""Answers of agents: every type, in both decision modes, and what cannot be read."""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
import subprocess
import sys
import threading
import warnings
from decimal import Decimal
from typing import Annotated, Any, Literal

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    Report,
    State,
    Usage,
    run,
    start,
)
from graphflow.errors import UsageError
from graphflow.events import Event, TextDelta
from graphflow.model.thread import Thread, data, shown
from graphflow.nodes.client import Price, Stream
from graphflow.nodes.schemas import schema_text
from graphflow.testing import ScriptedModel, call
from tests.support import ROOT, examples


class Talk(Context):
    """What the user says."""

    text: str = "hi"


class Mood(enum.Enum):
    """A choice."""

    GOOD = "good"
    BAD = "bad"


class Wide(Report):
    """A report that holds others."""

    kids: tuple[Wide, ...] = ()


class Loud(Report):
    """A report whose fields have other names in JSON."""

    model_config = ConfigDict(frozen=True, alias_generator=str.upper, populate_by_name=True)


def alone(agent: Agent) -> Graph[Talk]:
    """A graph in which one agent works."""
    return Graph("g", START >> agent >> END, context=Talk, budget=Budget(model_calls=9))


VALUES: list[tuple[Any, Any, Any]] = [
    (Literal["yes", "no"], "yes", "yes"),
    (Mood, "good", Mood.GOOD),
    (dt.date, "2026-09-30", dt.date(2026, 9, 30)),
    (Decimal, "49.00", Decimal("49.00")),
    (Annotated[str, Field(min_length=3)], "abc", "abc"),
    (int, 4, 4),
    (int | None, None, None),
    (tuple[int, ...], [1, 2], (1, 2)),
    (Wide, {"finding": "w", "kids": [{"finding": "k"}]}, Wide(finding="w", kids=(Wide(finding="k"),))),
    (Loud, {"FINDING": "loud"}, Loud(finding="loud")),
]


@pytest.mark.parametrize("mode", ["native", "json"])
@pytest.mark.parametrize(("kind", "written", "value"), VALUES, ids=[str(kind) for kind, _, _ in VALUES])
async def test_an_answer_of_any_type_is_read(kind: Any, written: Any, value: Any, mode: str) -> None:
    """What a model writes by the schema of a type arrives as a value of it, whichever way it decides."""
    text = json.dumps(written if mode == "native" else {"reason": "so", "answer": written})
    model = ScriptedModel(text, native_tools=mode == "native")

    result = await run(alone(Agent("a", model=model, output=kind, tools=[AskUser()], repairs=0)), Talk())

    assert (result.status, result.output) == ("completed", value)


async def test_a_word_without_quotes_is_a_value_too() -> None:
    """Models often leave the quotes out where the answer is one word."""
    result = await run(alone(Agent("a", model=ScriptedModel("good"), output=Mood)), Talk())

    assert result.output is Mood.GOOD


def test_types_of_one_name_stay_two_types() -> None:
    """In the decision mode "json" all schemas are one: definitions of one name that differ get names of their own."""
    kinds = {name: create_model("Item", a=(kind, ...)) for name, kind in (("first", int), ("second", str))}

    def takes(kind: Any) -> Any:
        def tool(item: Any) -> str:
            return str(item)

        tool.__annotations__["item"] = kind
        return tool

    first, second = takes(kinds["first"]), takes(kinds["second"])
    first.__name__, second.__name__ = "first", "second"
    model = ScriptedModel('{"reason": "r", "answer": "done"}', native_tools=False)

    anyio.run(run, alone(Agent("a", model=model, tools=[first, second])), Talk())

    schema = model.requests[0].schema
    assert schema is not None
    assert {part["properties"]["a"]["type"] for part in schema["$defs"].values()} == {"integer", "string"}


@pytest.mark.parametrize("output", ["Report", list[int], Annotated[int, {"a": 1}], dict], ids=str)
def test_a_type_that_cannot_be_an_answer_is_refused(output: Any) -> None:
    """An agent says so when it is made, and names itself."""
    with pytest.raises(UsageError, match="Agent 'a'"):
        Agent("a", model=ScriptedModel(), output=output)


class Loose(BaseModel):
    """A model that could be changed."""

    a: int


def test_a_model_that_could_be_changed_is_refused() -> None:
    """Its receivers share it."""
    with pytest.raises(UsageError, match="frozen"):
        Agent("a", model=ScriptedModel(), output=Loose)


async def test_money_is_counted_by_the_price_of_a_client() -> None:
    """A client that tells tokens alone costs what its price says, and the budget holds."""
    price = Price(Decimal("0.001"), Decimal("0.001"))

    def asks_twice(usd: str) -> Graph[Talk]:
        replies = [ModelReply(text, usage=Usage(100, 100)) for text in ("", "done")]  # an empty answer is sent back
        agent = Agent("a", model=ScriptedModel(*replies, price=price), max_tokens=100)
        return Graph("g", START >> agent >> END, context=Talk, budget=Budget(usd=usd))

    enough = await run(asks_twice("0.5"), Talk())
    short = await run(asks_twice("0.2"), Talk())

    assert (enough.status, enough.spent.total.usd) == ("completed", Decimal("0.4"))
    assert (short.status, short.spent.total.usd) == ("exhausted", Decimal("0.2"))
    assert short.reason is not None
    assert short.reason.code == "usd"


class Threaded:
    """A client whose provider calls back from a thread of its own, and that keeps its stream too long."""

    def __init__(self) -> None:
        """Begin with nothing kept."""
        self.kept: list[Stream] = []

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Say it from a thread."""
        for old in self.kept:
            old("late")
        self.kept.append(stream)
        thread = threading.Thread(target=stream, args=("piece",))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        await anyio.lowlevel.checkpoint()
        return ModelReply("piece")


async def test_a_stream_may_come_from_any_thread_and_ends_with_its_call() -> None:
    """A provider's own thread is heard; what is said after the call has ended is not."""
    model, events = Threaded(), list[Event]()
    graph = Graph("g", START >> Agent("a", model=model) >> Agent("b", model=model) >> END, context=Talk)

    await run(graph, Talk(), listeners=[events.append])

    heard = [(event.path[0].name, event.body.text) for event in events if isinstance(event.body, TextDelta)]
    assert heard == [("a", "piece"), ("b", "piece")]


@pytest.mark.parametrize(
    "closing",
    ["</note>", "</NOTE>", "< / note>", "</\u200bnote>", "<\u200b/note>", "</no\u00adte>", "\uff1c/note\uff1e"],
    ids=ascii,
)
def test_no_spelling_closes_what_holds_it(closing: str) -> None:
    """Delimiters cannot be forged, with capitals, spaces, signs that nobody sees or that look alike."""
    text = data("note", "x" * 100_000 + "\u2028<", f"before {closing} after")

    inside = text.partition("\n")[2].rpartition("\n")[0]
    assert closing not in inside
    assert len(text) < 1_000
    assert "after" in inside


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_sets_are_written_in_an_order_of_their_own(seed: str) -> None:
    """A text for a model is the same in every process."""
    program = (
        "from graphflow.model.thread import shown\n"
        "from graphflow import Report\n"
        "print(shown({'a': {'x', 'y', 'z'}, 'b': (frozenset({3, 1, 2}),), 'c': Report(finding='f')}))"
    )

    made = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True,
        check=True, cwd=ROOT,
    ).stdout  # fmt: skip

    assert made.startswith('{"a": ["x", "y", "z"], "b": [[1, 2, 3]], "c": {"finding": "f"')


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)


@given(TEXTS, st.none() | TEXTS, st.lists(TEXTS | st.integers(), max_size=3).map(tuple))
@settings(max_examples=examples(1_000))
def test_a_report_alone_is_written_as_inside_of_something(
    finding: str, action_needed: str | None, evidence: tuple[Any, ...]
) -> None:
    """A report that stands alone is written in a way of its own; what is written is what any value would be."""
    report = Report.model_construct(finding=finding, action_needed=action_needed, evidence=evidence)

    with warnings.catch_warnings():  # numbers are no evidence: pydantic says so, and writes them
        warnings.simplefilter("ignore")
        assert shown([report]) == f"[{shown(report)}]"


def test_the_order_in_a_type_is_kept() -> None:
    """Types that are equal and written in two orders have two schemas, whichever was seen first."""
    one, other = (schema_text(kind) for kind in (Literal["a", "b"], Literal["b", "a"]))

    assert json.loads(one)["enum"] == ["a", "b"]
    assert json.loads(other)["enum"] == ["b", "a"]


async def test_a_model_cannot_say_that_a_bound_was_hit() -> None:
    """The reason of a report that a model writes is its own words, whatever code it gives them."""
    text = '{"status": "partial", "finding": "half", "reason": {"code": "max_turns", "text": "I am tired", "limit": 3}}'

    result = await run(alone(Agent("a", model=ScriptedModel(text), output=Report)), Talk())

    assert result.report is not None
    assert result.report.reason is not None
    assert (result.report.reason.code, result.report.reason.text) == ("reported", "I am tired")


async def test_an_answer_comes_from_the_thread_of_the_run() -> None:
    """From another thread it is refused before anything changes, and says how to do it."""
    agent = Agent("a", model=ScriptedModel(call("ask_user", question="?"), "done"), tools=[AskUser()])

    async with start(alone(agent), Talk()) as running:
        question = (await running.result()).questions[0].id
        for act in (lambda: running.answer(question, "x"), running.cancel):
            with pytest.raises(UsageError, match="another thread"):
                await anyio.to_thread.run_sync(act)
        await anyio.to_thread.run_sync(lambda: anyio.from_thread.run_sync(running.answer, question, "x"))
        result = await running.result()

    assert result.output == "done"


async def test_a_plain_function_that_gives_a_coroutine_is_awaited() -> None:
    """A tool need not be `async def` to be async, on both backends."""

    async def fetch() -> str:
        return "fetched"

    def look() -> Any:
        return fetch()

    result = await run(alone(Agent("a", model=ScriptedModel(call("look"), "done"), tools=[look])), Talk())

    assert result.thread[2].text == "fetched"


def refuses(state: State[Any]) -> str:
    """Say no."""
    msg = f"not for {state.context.text!r}"
    raise LookupError(msg)


def forgets(thread: Thread) -> Thread:
    """Fail."""
    msg = f"{len(thread)} messages are too many"
    raise LookupError(msg)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"instructions": refuses}, "instructions= of 'a' raised: not for 'hi'"),
        ({"history": forgets}, "history= of 'a' raised: 1 messages are too many"),
    ],
    ids=["instructions", "history"],
)
async def test_a_function_of_an_agent_that_raises_is_named(options: dict[str, Any], text: str) -> None:
    """The reason says which function of which agent it was."""
    agent = Agent("a", model=ScriptedModel(), **options)

    result = await run(alone(agent), Talk())

    assert (result.status, result.reason and result.reason.text) == ("failed", text)
