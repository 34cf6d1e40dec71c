"""Cases O at a real server: models that invent tools, write arguments that do not fit, or say nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest

from graphflow import END, START, Agent, AskUser, Budget, Graph, Join, fork, tool
from graphflow.events import NodeStarted
from graphflow.nodes.agent import DecisionMode
from graphflow.nodes.client import ModelClient
from tests.cases.agents import results_in
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import ModelServer
from tests.providers.conversations import agent, one
from tests.providers.helpers import (
    WAYS,
    Case,
    Way,
    as_json,
    asked_by,
    asks,
    by_way,
    converse,
    hear,
    places_in,
    ran,
    read_in,
    search,
)

CARRIES_ANYTHING: Final = ("openai, streamed", "openai, whole", "anthropic, streamed")
"""The ways whose protocol carries arguments that are no JSON object."""


# --- O1 --------------------------------------------------------------------------------------------------------------


@by_way()
async def test_o1_an_unknown_tool_is_told_to_the_model(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request names the tools that there are, nothing is run for the wrong name, and the run completes."""
    says: list[Reply] = [Calls(("serch", {"words": "x"})), Calls(("search", {"words": "x"})), Say("done")]

    heard, server = await converse(one(tools=[search]), {"solo": says}, way, monkeypatch)

    assert (heard.result.status, heard.result.output) == ("completed", "done")
    assert ran(heard) == ["search"]
    wrong = "not executed: there is no tool 'serch'; there are: search."
    assert results_in(heard.result.thread) == [(wrong, True), ("found x 3", False)]
    assert -1 not in places_in(server.requests[1], wrong)
    assert heard.result.spent.total.tool_calls == 1


@by_way("openai, streamed", "openai, json", "anthropic, streamed", "anthropic, whole")
@pytest.mark.parametrize("name", ["serch", "x" * 5000, "a b", "ask_nobody", "transfer_to_nobody", "Search", "süch"])
async def test_o1_the_third_wrong_name_in_a_row_fails_the_node(
    name: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the name, it can be sent back to its provider; the failure is a result, and names the tools."""
    heard, server = await converse(one(tools=[search]), {"solo": [Calls((name, {}))] * 3}, way, monkeypatch)

    reason = heard.result.reason
    assert reason is not None
    kind = ("unknown_target", "UnknownTarget") if name == "transfer_to_nobody" else ("unknown_tool", "UnknownTool")
    assert (heard.result.status, reason.code, reason.error_type) == ("failed", *kind)
    assert kind[0] == "unknown_target" or "'search'" in reason.text
    assert len(reason.text) < 500
    assert len(server.requests) == 3


@by_way()
async def test_o1_a_call_without_a_name_is_no_answer(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of nothing runs nothing, whether the client hears of it or not; the model is told, and goes on."""
    says: list[Reply] = [Calls(("", {"words": "x"})), Say("done")]

    heard, server = await converse(one(tools=[search]), {"solo": says}, way, monkeypatch)

    assert (heard.result.status, heard.result.output) == ("completed", "done")
    assert ran(heard) == []
    assert len(server.requests) == 2


@by_way(*CARRIES_ANYTHING, "anthropic, whole")
async def test_o1_an_agent_without_tools_is_told_to_answer(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be nothing to name: the model is asked for words."""
    heard, server = await converse(one(), {"solo": [Calls(("search", {})), Say("done")]}, way, monkeypatch)

    assert -1 not in places_in(server.requests[1], "there is no tool 'search'; there are: none: answer in words.")
    assert heard.result.output == "done"


# --- O3 --------------------------------------------------------------------------------------------------------------

BAD: Final = {
    "cut off": '{"words": "a",',
    "no JSON": "words=a",
    "a list": '["a"]',
    "a text": '"a"',
    "null": "null",
    "missing": "{}",
    "nothing": "",
    "a wrong type": '{"words": {"a": 1}}',
    "one too many": '{"words": "a", "color": "red"}',
    "a number that is none": '{"words": "a", "most": NaN}',
    "a number that is too large": '{"words": "a", "most": 1e999}',
    "a list of such": '["a", -Infinity]',
    "too deep": "[" * 100_000,
    "a surrogate": '{"words": "a", "most": "\\ud800"}',
    "a huge number": '{"words": "a", "most": ' + "9" * 5000 + ".5}",
}
FIELDS: Final = {
    "search": "words",
    "ask_helper": "objective",
    "transfer_to_other": "note",
    "ask_user": "question",
}
WRONG: Final = [
    pytest.param(name, text.replace("words", field), WAYS[way], id=f"{name}, {kind}, {way}")
    for name, field in FIELDS.items()
    for kind, text in BAD.items()
    if not (name == "transfer_to_other" and kind in {"missing", "nothing"})  # a note may be left out
    for way in (CARRIES_ANYTHING if name == "search" else CARRIES_ANYTHING[:1])
]


def desk(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
    """An agent that can use a tool, ask somebody, hand over, and ask the user."""
    solo = agent("solo", model, decision, tools=[search, AskUser()])
    helper, other = agent("helper", model, decision), agent("other", model, decision)
    edges = (solo.delegates(helper, max_hops=1), solo.hands_off(other, max_hops=1))
    return Graph("g", START >> solo >> END, *edges, other >> END, context=Case, max_depth=1)


@pytest.mark.parametrize(("name", "arguments", "way"), WRONG)
async def test_o3_arguments_that_do_not_fit_are_not_executed(
    name: str, arguments: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces or whole: the call is answered with what is wrong, costs its model call, and can be sent back."""
    says: dict[str, list[Reply]] = {"solo": [Calls((name, arguments)), Calls((name, {FIELDS[name]: "which?"}))]}
    if name == "transfer_to_other":
        says["other"] = [Say("done")]
    else:
        says["solo"].append(Say("done"))
    if name == "ask_helper":
        says["helper"] = [Say("helped")]

    heard, server = await converse(desk, says, way, monkeypatch)

    assert (heard.result.status, heard.result.output) == ("completed", "done")
    (text, failed), (_, failed_again) = results_in(heard.result.thread)
    assert (failed, failed_again) == (True, False)
    assert text.startswith("not executed: ")
    assert len(text) < 2_500
    assert -1 not in places_in(server.requests[1], text)
    assert len(heard.of(NodeStarted)) == (2 if name in {"ask_helper", "transfer_to_other"} else 1)
    assert len(server.requests) == sum(map(len, says.values()))


@by_way(*CARRIES_ANYTHING)
async def test_o3_bad_arguments_among_good_ones_stop_nobody(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three calls whose pieces come in turns the second is broken: the others are executed, in order."""
    calls = Calls(("search", {"words": "a"}), ("search", '{"words": "b'), ("search", {"words": "c"}))

    heard, server = await converse(one(tools=[search]), {"solo": [calls, Say("done")]}, way, monkeypatch)

    assert ran(heard) == ["search", "search"]
    assert [failed for _, failed in results_in(heard.result.thread)] == [False, True, False]
    assert -1 not in places_in(server.requests[1], "found a 3", "not executed: ", "found c 3")


IN_JSON: Final = ("missing", "a wrong type", "one too many", "a number that is none", "a number that is too large")


@by_way("openai, json", "openai, json, whole", "anthropic, json")
@pytest.mark.parametrize("kind", IN_JSON)
async def test_o3_arguments_that_do_not_fit_are_told_in_json_too(
    kind: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply in JSON can be read, and the arguments in it be wrong: the call is answered, as a native one is."""
    says: list[Reply] = [Calls(("search", BAD[kind])), Calls(("search", {"words": "x"})), Say("done")]

    heard, server = await converse(one(tools=[search]), {"solo": says}, way, monkeypatch)

    (text, failed), right = results_in(heard.result.thread)
    assert text.startswith("not executed: ")
    assert (failed, right) == (True, ("found x 3", False))
    assert -1 not in places_in(server.requests[2], text, "found x 3")
    assert ran(heard) == ["search"]


UNREADABLE: Final = [
    "no JSON at all", "[]", "7", '{"reason": "only"}', '{"reason": "x", "calls": "search"}',
    '{"reason": "x", "calls": [{"arguments": {}}]}', '{"reason": "x", "calls": [7]}', '{"calls": [{"tool": 7}]}',
    '{"reason": "x", "calls": [{"tool": "sear', "[" * 100_000,
]  # fmt: skip


@by_way("openai, json", "openai, json, whole", "anthropic, json")
@pytest.mark.parametrize("reply", UNREADABLE, ids=lambda text: text[:50])
async def test_o3_a_json_reply_that_cannot_be_read_is_sent_back(
    reply: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the mode "json" the whole reply may be wrong: it is sent back once, then the node fails."""
    good = Say('{"reason": "x", "calls": [{"tool": "answer", "arguments": {"answer": "done"}}]}', pieces=3)
    bad = Say(reply, pieces=3)

    with ModelServer(bad, good, bad, bad) as server:
        graph = one(tools=[search])(way.model(server, monkeypatch), "json")
        fine, failed = await hear(graph), await hear(graph)

    assert server.violations == []
    assert (fine.result.status, fine.result.output, fine.result.spent.total.model_calls) == ("completed", "done", 2)
    assert failed.result.reason is not None
    assert (failed.result.status, failed.result.reason.code) == ("failed", "contract")


# --- O5 --------------------------------------------------------------------------------------------------------------


@by_way()
@pytest.mark.parametrize("empty", ["", "  \n\t "])
@pytest.mark.parametrize("repairs", [0, 2])
async def test_o5_an_empty_answer_is_sent_back_and_then_fails(
    empty: str, repairs: int, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `repairs` nudges it is the failure `empty_answer`; an answer before that counts; each is a model call."""
    make = one(tools=[search], repairs=repairs)
    steps: list[Reply] = [Calls(("search", {"words": "x"})), *[Say(empty)] * repairs]

    fine, _ = await converse(make, {"solo": [*steps, Say("ok")]}, way, monkeypatch)
    bad, _ = await converse(make, {"solo": [*steps, Say(empty)]}, way, monkeypatch)

    assert (fine.result.status, fine.result.output) == ("completed", "ok")
    assert fine.result.spent.total.model_calls == bad.result.spent.total.model_calls == 2 + repairs
    reason = bad.result.reason
    assert reason is not None
    assert (bad.result.status, reason.code, reason.error_type) == ("failed", "empty_answer", "EmptyAnswer")


@by_way()
async def test_o5_what_is_blank_can_be_sent_back(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks beside a call, a question of blanks, instructions and results that are empty: no provider refuses them."""

    @tool
    def nothing(said: str = "") -> str:
        """Say nothing."""
        return said

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        blank = Agent("blank", model=model, decision=decision, tools=[nothing], instructions=" \n")
        return Graph("g", START >> blank >> agent("solo", model, decision, history="full") >> END, context=Case)

    calls: list[Reply] = [Calls(("nothing", {}), ("nothing", {"said": " \n"}), text=" "), Say("done"), Say("ok")]
    script = iter([as_json(found) for found in calls[:2]] + calls[2:] if way.decision == "json" else calls)

    with ModelServer(lambda _: next(script)) as server:
        graph = make(way.model(server, monkeypatch), way.decision)
        heard = await hear(graph, Case(question=" \n"))

    assert server.violations == []
    assert (heard.result.status, heard.result.output) == ("completed", "ok")
    assert places_in(server.requests[0], "(empty)") == [0]


@by_way()
async def test_o5_a_nudge_costs_a_model_call_of_the_budget(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the budget has no further call, an empty answer ends at that bound."""
    heard, server = await converse(one(), {"solo": [Say("")]}, way, monkeypatch, budget=Budget(model_calls=1))

    assert heard.result.reason is not None
    assert (heard.result.status, heard.result.reason.code) == ("exhausted", "model_calls")
    assert len(server.requests) == 1


@by_way()
@pytest.mark.parametrize("place", ["callee", "branch"])
async def test_o5_an_empty_answer_below_is_a_failure_there(
    place: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller gets a failed report with that code; a branch fails with it."""

    def branches(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        both = fork(agent("worker", model, decision), agent("boss", model, decision), failure="collect")
        return Graph("g", START >> both >> Join("j") >> END, context=Case)

    boss: list[Reply] = [Calls(("ask_worker", {"objective": "go"})), Say("it said nothing")]
    says: dict[str, list[Reply]] = {"worker": [Say(""), Say("")], "boss": boss if place == "callee" else [Say("b")]}

    heard, server = await converse(asks() if place == "callee" else branches, says, way, monkeypatch)

    assert heard.result.status == "partial"
    assert [reason.code for reason in heard.result.failures] == ["empty_answer"]
    if place == "callee":
        assert any("empty_answer" in text for text in read_in(asked_by(server, "boss")[1]))
