"""The decision mode "json": what a bound would refuse is offered no more, and the answer is a call among calls."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import anyio
import pytest
from jsonschema import Draft202012Validator

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelRequest,
    Report,
    Result,
    Supervisor,
    run,
    tool,
)
from graphflow.testing import ScriptedModel, call

Said = dict[str, Any]

ANSWERED: Said = {"tool": "answer", "arguments": {"answer": "done"}}


class Talk(Context):
    """What the user says."""

    text: str = "hi"


@tool(name="look_up", max_calls=1)
def look_up(what: str) -> str:
    """Look something up."""
    return f"{what} is known"


@tool(name="search")
def search(what: str) -> str:
    """Search for something."""
    return f"{what} is found"


@tool(name="answer")
def called_answer(question: str) -> str:
    """Answer a question."""
    return f"{question} is answered"


def says(*calls: Said) -> str:
    """A reply in JSON: these calls."""
    return json.dumps({"reason": "r", "calls": list(calls)})


def asks(name: str, **arguments: str) -> Said:
    """A call, as a small model writes it."""
    return {"tool": name, "arguments": arguments}


def small(*steps: str) -> ScriptedModel:
    """A model that decides in JSON."""
    return ScriptedModel(*steps, native_tools=False)


async def alone(*steps: str, **options: Any) -> tuple[Result[Talk], list[ModelRequest]]:
    """Run one agent, and return what it was asked too."""
    model = small(*steps)
    agent = Agent("a", model=model, **options)
    result = await run(Graph("g", START >> agent >> END, context=Talk, budget=Budget(model_calls=9)), Talk())
    return result, list(model.requests)


def desk(model: ScriptedModel, *, max_hops: int = 1, in_all: int | None = None) -> Graph[Talk]:
    """A supervisor of two."""
    boss = Supervisor("boss", model=model, max_turns=4)
    team = [Agent(name, model=ScriptedModel({name: ["found"] * 3})) for name in ("one", "two")]
    return Graph(
        "g",
        START >> boss >> END,
        boss.delegates(*team, max_hops=max_hops),
        context=Talk,
        max_depth=1,
        max_hops=in_all,
        budget=Budget(model_calls=20),
    )


def offered(request: ModelRequest) -> list[str]:
    """The names that the schema of a request lets a model call, in order."""
    return re.findall(r'"const": "(\w+)"', request.schema_json)


def last_line(request: ModelRequest) -> str:
    """What a model reads last."""
    return request.messages[-1].text.rpartition("\n")[2]


# --- what is used up -------------------------------------------------------------------------------------------------


async def test_a_colleague_who_has_been_asked_is_offered_no_more() -> None:
    """Once per edge is once: the next turn offers the other and the answer, and says so below the report."""
    model = small(says(asks("ask_one", objective="x")), says(asks("ask_two", objective="y")), says(ANSWERED))

    result = await run(desk(model), Talk())

    assert (result.status, result.output, result.refused) == ("completed", "done", ())
    assert [offered(request) for request in model.requests] == [
        ["ask_one", "ask_two", "answer"], ["ask_two", "answer"], ["answer"],
    ]  # fmt: skip
    assert [last_line(request) for request in model.requests] == [
        "hi",
        "ask_one cannot be called any more. If this is all you need, call answer now.",
        "The other tools are used up. Call answer now.",
    ]
    assert len({request.system for request in model.requests}) == 1  # what a server has read, it need not read again


async def test_who_asks_all_the_same_is_told_the_bound() -> None:
    """A server that does not hold its model to the schema lets it ask again: that is refused, and no wrong name."""
    again = says(asks("ask_one", objective="x"))
    model = small(again, again, again, says(ANSWERED))

    result = await run(desk(model), Talk())

    assert (result.status, result.output) == ("completed", "done")
    assert [reason.code for reason in result.refused] == ["max_hops", "max_hops"]
    told = model.requests[-1].messages[-1].text
    assert "the bound max_hops refuses a further delegation to 'one': its limit is 1." in told


async def test_the_hops_of_the_graph_use_up_the_whole_team() -> None:
    """A bound on all hops together refuses everybody at once."""
    model = small(says(asks("ask_one", objective="x")), says(ANSWERED))

    await run(desk(model, max_hops=3, in_all=2), Talk())  # the first hop led to the supervisor

    assert [offered(request) for request in model.requests] == [["ask_one", "ask_two", "answer"], ["answer"]]


async def test_who_may_go_no_deeper_is_offered_nobody() -> None:
    """At the depth where a delegation is refused, there is the answer alone, from the first turn on."""
    model = small(says(asks("ask_boss", objective="x")), says(ANSWERED), says(ANSWERED))
    boss = Supervisor("boss", model=model, max_turns=2)
    graph = Graph(
        "g", START >> boss >> END, boss.delegates(boss, max_hops=2), context=Talk, max_depth=1, budget=Budget()
    )  # fmt: skip

    await run(graph, Talk())

    assert [offered(request) for request in model.requests[:2]] == [["ask_boss", "answer"], ["answer"]]
    assert last_line(model.requests[1]) == "The other tools are used up. Call answer now."


async def test_a_tool_is_offered_as_often_as_it_may_be_called() -> None:
    """`max_calls` of a tool takes that one away, `max_tool_calls` of the agent all."""
    steps = (says(asks("look_up", what="a")), says(asks("search", what="b")), says(ANSWERED))

    _, requests = await alone(*steps, tools=[look_up, search], max_tool_calls=2)

    assert [offered(request) for request in requests] == [
        ["look_up", "search", "answer"], ["search", "answer"], ["answer"],
    ]  # fmt: skip


async def test_a_transfer_is_never_used_up() -> None:
    """Where its bound is hit the graph escalates, which it could not do if the model were not let there."""
    model = small(says(asks("transfer_to_b", note="n")), says(asks("transfer_to_b", note="n")))
    back = small(says(asks("transfer_to_a", note="n")))
    a, b = Agent("a", model=model), Agent("b", model=back)
    graph = Graph(
        "g", START >> a >> END, a.hands_off(b, max_hops=1), b.hands_off(a, max_hops=1), b >> END, context=Talk
    )  # fmt: skip

    result = await run(graph, Talk())

    assert result.status == "exhausted"
    assert [offered(request) for request in model.requests] == [["transfer_to_b", "answer"]] * 2


async def test_native_tools_stay_what_they_are() -> None:
    """Providers refuse a thread of calls without tools, and read all of it anew when the tools change."""
    model = ScriptedModel(call("ask_one", objective="x"), "done")

    await run(desk(model), Talk())

    assert [[spec.name for spec in request.tools] for request in model.requests] == [["ask_one", "ask_two"]] * 2
    assert [request.schema_json for request in model.requests] == ["", ""]


# --- the answer as a call --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({"reason": "r", "calls": [ANSWERED]}, id="a call"),
        pytest.param({"calls": [{"tool": "answer", "arguments": {"answer": "no"}}, ANSWERED]}, id="twice"),
        pytest.param({"reason": "r", "answer": "done"}, id="as it was asked for once"),
    ],
)
async def test_an_answer_is_read_however_it_is_given(reply: Said) -> None:
    """As a call, the last of several, or beside the reason, as models of earlier runs were told to write it."""
    result, _ = await alone(json.dumps(reply), tools=[search])

    assert (result.status, result.output) == ("completed", "done")


async def test_an_answer_beside_calls_comes_too_early() -> None:
    """It cannot know what they will bring: they are made, and the model is asked again."""
    early = {"tool": "answer", "arguments": {"answer": "early"}}

    result, requests = await alone(says(asks("search", what="b"), early), says(ANSWERED), tools=[search])

    assert (result.output, len(requests)) == ("done", 2)
    assert "b is found" in requests[1].messages[-1].text


@pytest.mark.parametrize("arguments", [{"text": "done"}, "done", None, {}])
async def test_an_answer_that_is_not_there_is_sent_back(arguments: object) -> None:
    """The model is told what its call lacks."""
    bad = says({"tool": "answer", "arguments": arguments})

    result, requests = await alone(bad, says(ANSWERED), tools=[search])

    assert result.output == "done"
    assert 'the arguments of answer are not {"answer": ...}' in requests[1].messages[-1].text


async def test_a_tool_may_be_called_answer() -> None:
    """Then what answers has another name, and both do what they say."""
    final = {"tool": "final_answer", "arguments": {"answer": "done"}}

    result, requests = await alone(
        says(asks("answer", question="q")), says(final), tools=[called_answer], instructions="Be brief."
    )

    assert (result.status, result.output) == ("completed", "done")
    assert "q is answered" in requests[1].messages[-1].text
    assert last_line(requests[1]) == "If this is all you need, call final_answer now."
    assert offered(requests[0]) == ["answer", "final_answer"]
    assert "- final_answer(answer): Give your answer" in requests[0].system


@pytest.mark.parametrize("kind", [None, Report, Literal["a", "b"]], ids=["words", "a report", "a word"])
def test_the_schema_is_of_an_object_and_takes_one_answer_or_calls(kind: Any) -> None:
    """Servers take schemas of objects alone; an answer stands by itself in it."""
    model = small(says({"tool": "answer", "arguments": {"answer": "a"}}))
    agent = Agent("a", model=model, tools=[search], output=kind)
    anyio.run(run, Graph("g", START >> agent >> END, context=Talk), Talk())
    schema = json.loads(model.requests[0].schema_json)
    answer: Any = {"finding": "f"} if kind is Report else "a"
    alone_, called = asks("answer", answer=answer), asks("search", what="b")
    validator: Any = Draft202012Validator(schema)

    fits = [
        validator.is_valid({"reason": "r", "calls": calls})
        for calls in ([alone_], [called], [called, called], [], [alone_, alone_], [called, alone_], [asks("x")])
    ]

    assert schema["type"] == "object"
    assert fits == [True, True, True, False, False, False, False]
