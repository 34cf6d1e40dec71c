"""What refuses the calls of a model: limits, each with its event; rights and rules, for questions to people too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    MemoryJournal,
    ModelRequest,
    Report,
    Result,
    Supervisor,
    ToolStep,
    resume,
    run,
    start,
    tool,
)
from graphflow.errors import EmptyAnswer
from graphflow.events import Event, Refused
from graphflow.testing import ManualClock, ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str = "hi"


@tool
def look(at: int) -> str:
    """Look."""
    return f"saw {at}"


ENOUGH = Budget(model_calls=20)


def alone(agent: Agent, budget: Budget = ENOUGH) -> Graph[Talk]:
    """A graph of one agent."""
    return Graph("g", START >> agent >> END, context=Talk, budget=budget)


async def watched(graph: Graph[Talk], *answers: Any) -> tuple[Result[Talk], list[Refused], list[str]]:
    """Run a graph, answer the first question there is each time; return what was refused and what was asked too."""
    events, asked = list[Event](), list[str]()
    async with start(graph, Talk(), clock=ManualClock(), listeners=[events.append]) as running:
        result = await running.result()
        for answer in answers:
            asked.append(" ".join(question.text for question in result.questions))
            running.answer(result.questions[0].id, answer)
            result = await running.result()
    return result, [event.body for event in events if isinstance(event.body, Refused)], asked


def told(request: ModelRequest) -> str:
    """Say what the calls have brought."""
    return " | ".join(message.text for message in request.messages if message.role == "tool")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "options", "each", "budget"),
    [
        ("max_tool_calls", {"max_tool_calls": 2}, {}, ENOUGH),
        ("max_calls", {}, {"max_calls": 2}, ENOUGH),
        ("tool_calls", {}, {}, Budget(model_calls=20, tool_calls=2)),
    ],
)
async def test_a_call_that_a_bound_refuses_is_an_event(
    bound: str, options: dict[str, Any], each: dict[str, Any], budget: Budget
) -> None:
    """Whichever bound it is: with its limit and what was wanted, and the result lists it."""
    model = ScriptedModel([call("look", at=at) for at in range(4)], call("look", at=4), "done")
    agent = Agent("a", model=model, tools=[tool(look.fn, name="look", **each)], **options)

    result, refused, _ = await watched(alone(agent, budget))

    assert result.status == "completed"
    assert [(body.bound, body.limit, body.wanted) for body in refused] == [
        (bound, 2.0, "a call of the tool 'look'")
    ] * 3
    assert [(reason.code, reason.limit, reason.path) for reason in result.refused] == [(bound, 2.0, "a")] * 3


async def test_one_more_attempt_of_a_tool_that_a_limit_refuses_is_an_event() -> None:
    """The attempts of a call count, and the one that is over is refused as any call."""

    @tool(retries=3)
    def breaks() -> str:
        raise LookupError("no")

    model = ScriptedModel(call("breaks"), told)

    result, refused, _ = await watched(alone(Agent("a", model=model, tools=[breaks], max_tool_calls=2)))

    assert [body.bound for body in refused] == ["max_tool_calls"]
    assert "after 2 attempts" in str(result.output)


async def test_a_tool_that_no_limit_let_run_leaves_a_report_partial() -> None:
    """What it would have found is not known: a report that all is done is not taken at its word."""
    worker = Agent("worker", model=ScriptedModel(call("look", at=1), "all done"), tools=[look], max_tool_calls=0)
    boss = Supervisor("boss", model=ScriptedModel(call("ask_worker", objective="look"), told))
    team = boss.delegates(worker, max_hops=1)

    result = await run(Graph("g", START >> boss >> END, team, context=Talk, budget=ENOUGH, max_depth=1), Talk())

    assert '"status": "partial"' in str(result.output)
    assert "every call of 'look' failed" in str(result.output)


# --- people ----------------------------------------------------------------------------------------------------------


def payer(
    limit: str, most: int, *wanted: Any, tools: Sequence[Any] = (), sequential: bool = False
) -> tuple[Agent, list[float]]:
    """An agent that wants several things at once, among them to pay; and what was paid."""
    paid: list[float] = []

    @tool(approval=True, max_calls=most if limit == "max_calls" else None, sequential=sequential)
    def pay(amount: float) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount:g}"

    options: Any = {"max_tool_calls": most} if limit == "max_tool_calls" else {}
    return Agent("a", model=ScriptedModel([*wanted], told), tools=[pay, *tools], **options), paid


PAYS = [call("pay", amount=amount) for amount in (1, 2, 3)]


LIMITS = pytest.mark.parametrize("limit", ["max_calls", "max_tool_calls"])


@LIMITS
@pytest.mark.parametrize("sequential", [False, True])
async def test_an_approval_that_is_rejected_leaves_its_place_to_the_next(limit: str, sequential: bool) -> None:
    """A call that a person must approve waits while those before it could use the limit up, and is asked for then."""
    agent, paid = payer(limit, 1, *PAYS, sequential=sequential)

    result, refused, asked = await watched(alone(agent), "no", "yes")

    assert [text.count("Approve") for text in asked] == [1, 1]
    assert ["amount=1.0" in asked[0], "amount=2.0" in asked[1]] == [True, True]
    assert paid == [2.0]
    assert [body.bound for body in refused] == [limit]
    first, second, third = str(result.output).split(" | ")
    assert (first[:36], second) == ("not executed: a person rejected this", "paid 2")
    assert third.startswith("not executed: ")


@LIMITS
async def test_approvals_are_asked_for_together_as_far_as_the_limit_goes(limit: str) -> None:
    """Two of three: the third waits for what becomes of them, and is refused when both have run."""
    agent, paid = payer(limit, 2, *PAYS)

    result, refused, asked = await watched(alone(agent), "yes", "yes")

    assert [text.count("Approve") for text in asked] == [2, 1]
    assert paid == [1.0, 2.0]
    assert [(body.bound, body.limit) for body in refused] == [(limit, 2.0)]
    assert result.status == "completed"


async def test_the_line_waits_for_an_approval_that_could_use_the_limit_up() -> None:
    """A sequential tool is not refused for a call that may never run; it waits, and those behind it with it."""
    noted: list[int] = []

    @tool(sequential=True)
    def note() -> str:
        noted.append(len(paid))
        return "noted"

    @tool(approval=True)
    def sign() -> str:
        return "signed"

    wanted = [PAYS[0], call("note"), PAYS[1], call("sign")]
    agent, paid = payer("max_tool_calls", 3, *wanted, tools=[note, sign], sequential=True)

    result, refused, asked = await watched(alone(agent), "yes", "yes", "no")

    assert [text.count("Approve") for text in asked] == [3, 2, 1]
    assert (paid, noted) == ([1.0, 2.0], [1])
    assert refused == []
    assert str(result.output).startswith("paid 1 | noted | paid 2 | not executed: a person rejected")


async def test_questions_of_an_agent_are_calls_of_a_tool() -> None:
    """As many as `max_tool_calls` allows are asked, with the tools that ran; each other is refused with its event."""
    questions = [call("ask_user", question=f"{number}?") for number in range(50)]
    model = ScriptedModel(call("look", at=1), questions, call("ask_user", question="more?"), told)

    agent = Agent("a", model=model, tools=[look, AskUser()], max_tool_calls=3)
    result, refused, asked = await watched(alone(agent), "x", "y")

    assert asked == ["0? 1?", "1?"]
    assert [(body.bound, body.limit, body.wanted) for body in refused] == [
        ("max_tool_calls", 3.0, "a call of the tool 'ask_user'")
    ] * 49
    assert result.status == "completed"
    assert "y | not executed: the limit of 3 tool calls is reached." in str(result.output)


async def test_a_question_that_may_not_be_asked_any_more_is_not_offered_in_json() -> None:
    """A small model that decides in JSON sees only what it may still call."""
    asks = json.dumps({"reason": "r", "calls": [{"tool": "ask_user", "arguments": {"question": "?"}}]})
    answers = json.dumps({"reason": "r", "calls": [{"tool": "answer", "arguments": {"answer": "done"}}]})
    model = ScriptedModel(asks, answers, native_tools=False)

    await watched(alone(Agent("a", model=model, tools=[AskUser()], max_tool_calls=1)), "x")

    offered = ['"ask_user"' in request.schema_json for request in model.requests]
    assert offered == [True, False]


async def test_an_answered_question_is_a_tool_that_has_worked() -> None:
    """Another that a limit refuses does not make the report partial."""
    questions = [call("ask_user", question=f"{number}?") for number in range(2)]
    worker = Agent("worker", model=ScriptedModel(questions, "known"), tools=[AskUser()], max_tool_calls=1)
    boss = Supervisor("boss", model=ScriptedModel(call("ask_worker", objective="ask"), told))
    team = boss.delegates(worker, max_hops=1)
    graph = Graph("g", START >> boss >> END, team, context=Talk, budget=ENOUGH, max_depth=1)

    result, _, _ = await watched(graph, "x")

    assert '"status": "done"' in str(result.output)


@pytest.mark.parametrize("rights", [None, ("look",), ("look", "ask_user")])
@pytest.mark.parametrize("grant", [(), ("ask_user",)])
async def test_rights_name_who_may_ask_a_person(rights: tuple[str, ...] | None, grant: tuple[str, ...]) -> None:
    """What is not named is not offered; an edge may give it, as any other tool."""
    model = ScriptedModel(call("ask_user", question="?"), "done")
    worker = Agent("worker", model=model, tools=[look, AskUser()])
    boss = Supervisor("boss", model=ScriptedModel(call("ask_worker", objective="ask"), "done"), rights=rights)
    team = boss.delegates(worker, max_hops=1, grant=grant)
    graph = Graph("g", START >> boss >> END, team, context=Talk, budget=ENOUGH, max_depth=1)
    may_ask = rights is None or "ask_user" in (*rights, *grant)

    result = await run(graph, Talk())

    assert ("ask_user" in [spec.name for spec in model.requests[0].tools]) is may_ask
    assert [question.text for question in result.questions] == (["?"] if may_ask else [])


async def test_a_rule_is_asked_before_a_question_too() -> None:
    """With the question, here and below; what it denies is told to the model, and nobody is asked."""
    seen: list[tuple[str, Any]] = []

    def deny(name: str, arguments: Any) -> str | None:
        seen.append((name, arguments["question"]))
        return "not about money" if "money" in arguments["question"] else None

    questions = [call("ask_user", question=text) for text in ("money?", "time?")]
    worker = Agent("worker", model=ScriptedModel(questions, told), tools=[AskUser()])
    boss = Supervisor("boss", model=ScriptedModel(call("ask_worker", objective="ask"), told), deny=deny)
    team = boss.delegates(worker, max_hops=1)
    graph = Graph("g", START >> boss >> END, team, context=Talk, budget=ENOUGH, max_depth=1)

    result, _, asked = await watched(graph, "noon")

    assert asked == ["time?"]
    assert seen == [("ask_user", "money?"), ("ask_user", "time?")]
    assert "not executed: ask_user is denied: not about money | noon" in str(result.output)


# --- a reply that neither calls nor answers --------------------------------------------------------------------------


THOUGHT = json.dumps({"reason": "I must look first.", "calls": []})
ANSWER = json.dumps({"reason": "r", "calls": [{"tool": "answer", "arguments": {"answer": "done"}}]})


def thinker(*steps: str, **options: Any) -> Agent:
    """An agent that decides in JSON."""
    return Agent("a", model=ScriptedModel(*steps, native_tools=False), tools=[look], **options)


@pytest.mark.parametrize("output", [None, str, Report])
async def test_a_thought_is_no_answer(output: Any) -> None:
    """It is sent back, with what the model wrote and what is wanted, whatever the answer has to be."""
    answer = ANSWER.replace('"done"', '{"finding": "done"}') if output is Report else ANSWER
    agent = thinker(THOUGHT, answer, output=output)

    result = await run(alone(agent), Talk())

    assert getattr(result.output, "finding", result.output) == "done"
    model: Any = agent.model
    wrote, asked = model.requests[1].messages[-2:]
    assert (wrote.role, wrote.text) == ("assistant", THOUGHT)
    assert "'calls' are empty: call a tool, or answer" in asked.text


@pytest.mark.parametrize("repairs", [0, 2])
async def test_thoughts_alone_are_an_empty_answer(repairs: int) -> None:
    """They are sent back as often as the agent says, then it has answered nothing."""
    agent = thinker(*[THOUGHT] * 9, repairs=repairs)

    result = await run(alone(agent), Talk())

    assert (result.status, result.reason and result.reason.code) == ("failed", "empty_answer")
    assert result.reason is not None
    assert result.reason.error_type == EmptyAnswer.__name__
    assert result.spent.total.model_calls == repairs + 1


async def test_thoughts_cost_turns() -> None:
    """As any reply that is sent back."""
    result = await run(alone(thinker(*[THOUGHT] * 9, repairs=9, max_turns=3)), Talk())

    assert (result.status, result.reason and result.reason.code) == ("exhausted", "max_turns")


async def test_an_answer_beside_empty_calls_is_one() -> None:
    """A model that writes all fields there are has answered."""
    said = json.dumps({"reason": "r", "calls": [], "answer": "done"})

    assert (await run(alone(thinker(said)), Talk())).output == "done"


# --- keys ------------------------------------------------------------------------------------------------------------


def keeps(keys: list[str]) -> Any:
    """A tool that keeps its idempotency key."""

    @tool(name="pay")
    async def pay(amount: int, step: ToolStep) -> str:
        keys.append(step.idempotency_key)
        return f"paid {amount}"

    return pay


def fails_once() -> Any:
    """A tool whose first call fails its agent."""
    calls: list[int] = []

    @tool(name="flaky", on_error="raise")
    async def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("gone")
        return "ok"

    return flaky


def down(_: ModelRequest) -> str:
    """Fail, as a model that cannot be reached."""
    raise LookupError("down")


def pays_and_fails(keys: list[str], *between: Any) -> Agent:
    """An agent that looks, then pays beside a tool that fails it once, then pays again."""
    both = [call("pay", amount=1), call("flaky")]
    model = ScriptedModel(call("look", at=1), both, *between, both, call("pay", amount=1), "done")
    return Agent("a", model=model, tools=[look, keeps(keys), fails_once()], retries=2)


@pytest.mark.parametrize("between", [(), (down,)], ids=["at once", "after its model failed too"])
async def test_a_call_that_an_agent_makes_again_has_its_key_again(between: tuple[Any, ...]) -> None:
    """An attempt that failed does its turn again, and nothing is paid twice; what another turn asks for is another."""
    keys: list[str] = []

    result = await run(alone(pays_and_fails(keys, *between)), Talk())

    assert result.status == "completed"
    first, again, other = keys
    assert first == again != other


async def test_a_run_of_an_older_edition_keeps_the_keys_that_it_has_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its effects may be under way, and would be made twice under others."""
    monkeypatch.setattr("graphflow.runtime.starting.EDITION", 0)
    keys: list[str] = []

    await run(alone(pays_and_fails(keys)), Talk())

    assert len(set(keys)) == 3


async def test_the_key_of_a_call_is_the_same_in_another_process() -> None:
    """One that was under way when a process ended is made again under its key, also after an attempt that failed."""
    keys, again = list[str](), list[str]()
    journal, cut = MemoryJournal(), MemoryJournal()
    await run(alone(pays_and_fails(keys)), Talk(), journal=journal, run_id="r")
    rows = await journal.read("r")
    last = max(row.seq for row in rows if '"effect_started","a",3,"0","pay"' in row.decisions)
    writer = await cut.claim("r")
    for row in rows:
        if row.seq <= last:
            await writer.append(row)
    await writer.release()
    agent = pays_and_fails(again)
    rest = Agent("a", model=ScriptedModel("done"), tools=agent.tools, retries=2)

    result = await resume(alone(rest), "r", journal=cut, changed="compatible")

    assert result.output == "done"
    assert again == keys[2:]
