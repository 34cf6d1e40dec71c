"""Cases O1, O3 and O5: models that invent tools, write arguments that do not fit, or say nothing."""

import json
from typing import Any, Literal

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Graph,
    Join,
    ToolCall,
    fork,
)
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import Talk, model_calls, play, results_in, says, tool_runs

MODES: list[Literal["native", "json"]] = ["native", "json"]


def search(words: str, most: int = 3) -> str:
    """Search."""
    return f"found {words} {most}"


def alone(*steps: Any, decision: Any = "native", **options: Any) -> Graph[Talk]:
    """A graph of one agent; in the mode "json" its calls are written as that mode has them."""
    said = [_as_json(step) for step in steps] if decision == "json" else steps
    agent = Agent("agent", model=ScriptedModel(*said), decision=decision, **options)
    return Graph("g", START >> agent >> END, context=Talk)


def _as_json(step: Any) -> Any:
    wanted: list[ToolCall] = [step] if isinstance(step, ToolCall) else step
    if not isinstance(step, str):
        calls = [{"tool": found.name, "arguments": json.loads(found.arguments)} for found in wanted]
        return json.dumps({"reason": "because", "calls": calls})
    return json.dumps({"reason": "because", "answer": step})


# --- O1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", MODES)
async def test_o1_an_unknown_tool_is_told_to_the_model(decision: str) -> None:
    """The wrong name gets an error that names the tools, nothing is run for it, and the run completes."""
    graph = alone(call("serch", words="x"), call("search", words="x"), "done", tools=[search], decision=decision)

    played = await play(graph, Talk())

    assert (played.result.status, played.result.output) == ("completed", "done")
    assert tool_runs(played) == ["search"]
    assert results_in(played.result.thread) == [
        ("not executed: there is no tool 'serch'; there are: search.", True), ("found x 3", False)
    ]  # fmt: skip
    assert played.result.spent.total.tool_calls == 1


@pytest.mark.parametrize("decision", MODES)
@pytest.mark.parametrize("name", ["serch", "x" * 5000, "a b", "ask_nobody", "transfer_to_nobody", "Search", ""])
async def test_o1_the_third_wrong_name_in_a_row_fails_the_node(name: str, decision: str) -> None:
    """The failure is a result, names the tools that there are, and the last name that was wrong."""
    played = await play(alone(*[call(name)] * 3, tools=[search], decision=decision), Talk())

    kind = ("unknown_target", "UnknownTarget") if name == "transfer_to_nobody" else ("unknown_tool", "UnknownTool")
    assert (played.result.status, played.reason.code, played.reason.error_type) == ("failed", *kind)
    assert played.error is None
    assert kind[0] == "unknown_target" or "'search'" in played.reason.text
    assert len(played.reason.text) < 500
    assert model_calls(played) == ["agent"] * 3


async def test_o1_an_agent_without_tools_is_told_to_answer() -> None:
    """There may be nothing to name: the model is asked for words."""
    played = await play(alone(call("search"), "done"), Talk())

    assert results_in(played.result.thread) == [
        ("not executed: there is no tool 'search'; there are: none: answer in words.", True)
    ]
    assert played.result.status == "completed"


# --- O3 --------------------------------------------------------------------------------------------------------------

BAD = {
    "cut off": '{"words": "a",',
    "no JSON": "words=a",
    "a list": '["a"]',
    "a text": '"a"',
    "null": "null",
    "missing": "{}",
    "empty": "",
    "a wrong type": '{"words": {"a": 1}}',
    "one too many": '{"words": "a", "color": "red"}',
    "a number that is none": '{"words": "a", "most": NaN}',
    "too deep": "[" * 100_000,
    "a surrogate": '{"words": "a", "most": "\\ud800"}',
    "a huge number": '{"words": "a", "most": ' + "9" * 5000 + ".5}",
}


CALLS = [
    pytest.param(kind, text, id=f"{kind} {name}")
    for kind in ("tool", "ask", "transfer", "person")
    for name, text in BAD.items()
    if not (kind == "transfer" and name in {"missing", "empty"})  # a note may be left out
]


@pytest.mark.parametrize(("kind", "arguments"), CALLS)
async def test_o3_arguments_that_do_not_fit_are_not_executed(kind: str, arguments: str) -> None:
    """The call is answered with what is wrong; it costs its one model call; the next, right one is executed."""
    names = {"tool": "search", "ask": "ask_helper", "transfer": "transfer_to_other", "person": "ask_user"}
    fields = {"tool": "words", "ask": "objective", "transfer": "note", "person": "question"}
    text = arguments.replace("words", fields[kind])
    right = call(names[kind], **{fields[kind]: "which?"})
    agent = says("agent", ToolCall(names[kind], text), right, "done", tools=[search, AskUser()])
    helper, other = says("helper", "helped"), says("other", "done")
    graph = Graph(
        "g",
        START >> agent >> END,
        agent.delegates(helper, max_hops=1),
        agent.hands_off(other, max_hops=1),
        other >> END,
        context=Talk,
        max_depth=1,
    )

    played = await play(graph, Talk(), answers={"which?": "that"})

    assert played.result.status == "completed"
    (text, failed), (_, failed_again) = results_in(played.result.thread)
    assert (failed, failed_again) == (True, False)
    assert text.startswith("not executed: ")
    assert len(text) < 2_500
    assert len(played.started) == {"tool": 1, "person": 1, "ask": 2, "transfer": 2}[kind]
    assert played.result.spent.total.model_calls == {"tool": 3, "person": 3, "ask": 4, "transfer": 3}[kind]


async def test_o3_bad_arguments_among_good_ones_stop_nobody() -> None:
    """The other calls of the turn are executed, and every call has its own result, in order."""
    calls = [call("search", words="a"), ToolCall("search", "{"), call("search", words="c")]

    played = await play(alone(calls, "done", tools=[search]), Talk())

    assert tool_runs(played) == ["search", "search"]
    assert [failed for _, failed in results_in(played.result.thread)] == [False, True, False]


@pytest.mark.parametrize(
    "reply",
    [
        "no JSON at all", "[]", "7", '{"reason": "only"}', '{"reason": "x", "calls": "search"}',
        '{"reason": "x", "calls": [{"arguments": {}}]}', '{"reason": "x", "calls": [7]}', '{"calls": [{"tool": 7}]}',
        "[" * 100_000,
    ],
)  # fmt: skip
async def test_o3_a_json_reply_that_cannot_be_read_is_sent_back(reply: str) -> None:
    """In the mode "json" the whole reply may be wrong: it is sent back once, then the node fails."""
    good = '{"reason": "x", "answer": "done"}'
    agent = Agent("agent", model=ScriptedModel(reply, good), decision="json", tools=[search])
    graph = Graph("g", START >> agent >> END, context=Talk)

    played = await play(graph, Talk())

    assert (played.result.status, played.result.output) == ("completed", "done")
    assert played.result.spent.total.model_calls == 2
    twice = Agent("agent", model=ScriptedModel(reply, reply), decision="json", tools=[search])
    played = await play(Graph("g", START >> twice >> END, context=Talk), Talk())
    assert (played.result.status, played.reason.code) == ("failed", "contract")


# --- O5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", MODES)
@pytest.mark.parametrize("empty", ["", "  \n\t "])
@pytest.mark.parametrize("repairs", [0, 1, 3])
async def test_o5_an_empty_answer_is_sent_back_and_then_fails(empty: str, decision: str, repairs: int) -> None:
    """After `repairs` nudges it is the failure `empty_answer`; an answer before that counts; each is a model call."""
    steps = [call("search", words="x"), *[empty] * repairs]

    fine = await play(alone(*steps, "ok", tools=[search], decision=decision, repairs=repairs), Talk())
    bad = await play(alone(*steps, empty, tools=[search], decision=decision, repairs=repairs), Talk())

    assert (fine.result.status, fine.result.output) == ("completed", "ok")
    assert fine.result.spent.total.model_calls == bad.result.spent.total.model_calls == 2 + repairs
    assert (bad.result.status, bad.reason.code, bad.reason.error_type) == ("failed", "empty_answer", "EmptyAnswer")
    assert bad.error is None


async def test_o5_a_nudge_costs_a_model_call_of_the_budget() -> None:
    """Where the budget has no further call, an empty answer ends at that bound."""
    played = await play(alone("", "ok"), Talk(), budget=Budget(model_calls=1))

    assert (played.result.status, played.reason.code) == ("exhausted", "model_calls")


@pytest.mark.parametrize("place", ["callee", "branch"])
async def test_o5_an_empty_answer_below_is_a_failure_there(place: str) -> None:
    """A caller gets a failed report with that code; a branch fails with it."""
    quiet = says("quiet", "", "")
    if place == "callee":
        boss = says("boss", call("ask_quiet", objective="go"), "it said nothing")
        graph = Graph("g", START >> boss >> END, boss.delegates(quiet, max_hops=1), context=Talk, max_depth=1)
    else:
        graph = Graph("g", START >> fork(quiet, says("b", "b"), failure="collect") >> Join("j") >> END, context=Talk)

    played = await play(graph, Talk())

    assert played.result.status == "partial"
    assert [reason.code for reason in played.result.failures] == ["empty_answer"]
