"""Graphs of agents for the cases of stored runs: their models answer by what they are asked, so new ones can go on."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Done,
    Graph,
    Human,
    Join,
    Json,
    ModelRequest,
    State,
    Step,
    Supervisor,
    ToolFailure,
    ToolStep,
    Update,
    append,
    fork,
    ping_pong,
    repetition,
    tool,
    when,
)
from graphflow.testing import call
from tests.cases.agents import all_results
from tests.cases.stored import Calls, Minded, Plan


class Desk(Context):
    """A question, and what was found out."""

    question: str = "What now?"
    found: Annotated[tuple[Json, ...], append] = ()
    rounds: int = 0


class Finding(BaseModel, frozen=True):
    """What an agent answers by contract."""

    text: str
    size: int
    kind: Literal["good", "bad"] = "good"


def tools(calls: Calls) -> list[Any]:
    """Make tools of every kind: slow, sync, failing, for approval, in sequence."""

    @tool(effect="read")
    async def lookup(what: str, step: ToolStep) -> str:
        """Look something up."""
        calls.tool(step)
        await step.sleep(len(what))
        step.emit(f"looked {what} up")
        return f"{what} found"

    @tool
    def plain(number: int, step: ToolStep) -> int:
        """Count."""
        calls.tool(step)
        return number + 1

    @tool(retries=1)
    async def broken(step: ToolStep) -> str:
        """Break."""
        calls.tool(step)
        msg = "out of order"
        raise OSError(msg)

    @tool
    async def declines(step: ToolStep) -> ToolFailure:
        """Decline."""
        calls.tool(step)
        return ToolFailure("not today")

    @tool(approval=True, effect="irreversible")
    async def pay(amount: float, step: ToolStep) -> str:
        """Pay."""
        calls.tool(step)
        return f"paid {amount}"

    @tool(sequential=True, timeout=3)
    async def writes(text: str, step: ToolStep) -> str:
        """Write."""
        calls.tool(step)
        await step.sleep(len(text))
        return f"wrote {text}"

    return [lookup, plain, broken, declines, pay, writes]


def everything(calls: Calls) -> Graph[Desk]:
    """One agent that calls tools of every kind, wrong names, bad arguments, asks a person, and answers."""
    agent = calls.agent(
        "agent",
        [call("lookup", what="abc"), call("plain", number=1), call("broken"), call("declines")],
        [call("serch"), call("plain", number="much"), call("lookup", what="x")],
        [call("pay", amount=5), call("ask_user", question="sure?"), call("writes", text="12")],
        [call("writes", text="1"), call("writes", text="12345"), call("writes", text="12")],
        all_results,
        tools=[*tools(calls), AskUser()],
        instructions="Do all.",
    )
    return Graph("everything", START >> agent >> END, context=Desk)


def team(calls: Calls) -> Graph[Desk]:
    """A supervisor over agents and graphs at once, one of which asks a person, one fails, one is a supervisor."""
    billing = calls.agent("billing", call("lookup", what="ab"), all_results, tools=tools(calls)[:2])
    asking = calls.agent("asking", call("ask_user", question="who?"), all_results, tools=[AskUser()])
    broken = calls.agent("broken", LookupError("no model"))
    inner = Graph("inner", START >> calls.agent("one", "one") >> calls.agent("two", "two") >> END, context=Desk)
    low = Supervisor(
        "low", model=Minded(calls, [call("ask_inner", objective="i"), call("ask_billing", objective="b")], all_results)
    )
    boss = Supervisor(
        "boss",
        model=Minded(
            calls,
            [call("ask_low", objective="1"), call("ask_asking", objective="2"), call("ask_broken", objective="3")],
            [call("ask_low", objective="4"), call("ask_nobody", objective="5"), call("ask_asking", objective="6")],
            all_results,
        ),
    )
    return Graph(
        "team",
        START >> boss >> END,
        boss.delegates(low, asking, broken, max_hops=2),
        low.delegates(inner, billing, max_hops=2),
        context=Desk,
        max_depth=2,
    )


def handed(calls: Calls) -> Graph[Desk]:
    """Handoffs with notes and every history, one to a person, and a tool in the turn of a transfer."""
    pieces = tools(calls)
    a = calls.agent("a", [call("lookup", what="ab"), call("transfer_to_b", note="yours")], tools=pieces[:1])
    b = calls.agent("b", twice)
    c = calls.agent(
        "c",
        [call("transfer_to_nobody")],
        [call("ask_user", question="sure?"), call("transfer_to_d")],
        tools=[AskUser()],
    )
    d = calls.agent("d", spoken)
    human = Human("human", "what now?")
    return Graph(
        "handed",
        START >> a >> END,
        a.hands_off(b, max_hops=1, history="full"),
        b.hands_off(human, c, max_hops=1, history="summary"),
        c.hands_off(d, max_hops=1, history="full"),
        *(agent >> END for agent in (b, c, d)),
        context=Desk,
        max_handoffs=5,
    )


def twice(request: ModelRequest) -> list[Any]:
    """Hand over to a person, and after that to the next; a responder."""
    if request.path.endswith(":2"):
        return [call("transfer_to_c", note="c!")]
    return [call("transfer_to_human", note="help?"), call("transfer_to_c")]


def spoken(request: ModelRequest) -> str:
    """Say all that is seen; a responder."""
    return " | ".join(f"{message.role}: {message.text}" for message in request.messages)


def asked_in_parallel(calls: Calls) -> Graph[Desk]:
    """Agents in branches and lanes, each of which asks; their answers meet in a join."""

    def asks(name: str) -> Agent:
        return calls.agent(name, call("ask_user", question=f"{name}?"), all_results, tools=[AskUser()], into="found")

    @calls.node
    def merge(state: State[Desk]) -> Done:
        return Done(len(state.values), Update(rounds=state.context.rounds + 1))

    lane = calls.agent("lane", call("lookup", what="abc"), spoken, tools=tools(calls)[:1])
    return Graph(
        "asked",
        START >> (asks("x"), asks("y") >> calls.agent("then", spoken), asks("z")) >> merge,
        merge.map(lane, over=three, join=Join("all"), max_items=3),
        Join("all") >> END,
        context=Desk,
    )


def three(_: State[Desk]) -> tuple[str, ...]:
    """Give the items of a map."""
    return ("c", "a", "b")


def debate(calls: Calls) -> Graph[Desk]:
    """Agents in a loop that see more of the thread each round, with detectors that watch."""
    gate = calls.agent("gate", spoken, history="full")
    bull, bear = calls.agent("bull", "up", history="full"), calls.agent("bear", "down")

    @calls.node
    async def merge(state: State[Desk], step: Step) -> Update:
        await calls.effect(step, "publish", 1)
        return Update(found=str(state.values), rounds=state.context.rounds + 1)

    again = merge.choose(when(more, gate, max_hops=2), default=END)
    return Graph(
        "debate", START >> gate >> (bull, bear) >> merge, again, context=Desk, detect=[ping_pong(), repetition()]
    )  # fmt: skip


def more(state: State[Desk]) -> bool:
    """Hold for one more round."""
    return state.context.rounds < 2


def contracted(calls: Calls) -> Graph[Desk]:
    """Answers by contract, one of which must be repaired, one in JSON that says what to call; and an empty one."""
    agent = calls.agent("agent", '{"text": 1}', Finding(text="ok", size=3), output=Finding, into="found")
    said = '{"reason": "r", "call": {"tool": "plain", "arguments": {"number": 1}}}'
    old = calls.agent("old", said, "", all_results, tools=tools(calls)[1:2], decision="native")
    empty = calls.agent("empty", "", "there", repairs=1)
    return Graph("contracted", START >> agent >> old >> empty >> END, context=Desk)


def failing_agent(calls: Calls) -> Graph[Desk]:
    """A model that raises, retried, in a branch that is collected; a tool that raises ends the other branch."""

    @tool(on_error="raise")
    async def fatal(step: ToolStep) -> str:
        """Break."""
        calls.tool(step)
        await step.sleep(2)
        msg = "fatal"
        raise LookupError(msg)

    one = calls.agent("one", ValueError("no model"), retries=2)
    two = calls.agent("two", [call("fatal"), call("lookup", what="abcde")], "never", tools=[fatal, *tools(calls)[:1]])
    return Graph("failing", START >> fork(one, two, failure="collect") >> Join("j") >> END, context=Desk)


def raising_agent(calls: Calls) -> Graph[Desk]:
    """A model that raises ends the run."""
    one, two = (
        calls.agent("one", "fine"),
        calls.agent("two", call("plain", number=1), ValueError("no"), tools=tools(calls)[1:2]),
    )
    return Graph("raising", START >> one >> two >> END, context=Desk)


def bounded(calls: Calls) -> Graph[Desk]:
    """Turns, tool calls and a shared budget run out inside a team; what was found is reported as partial."""
    worker = calls.agent(
        "worker", *[[call("plain", number=n)] for n in range(9)], "never", tools=tools(calls)[1:2], max_turns=3
    )
    chatty = calls.agent(
        "chatty", [call("plain", number=n) for n in range(5)], "enough", tools=tools(calls)[1:2], max_tool_calls=2
    )
    boss = calls.agent(
        "boss",
        [call("ask_worker", objective="1"), call("ask_chatty", objective="2")],
        call("ask_worker", objective="3"),
        all_results,
    )
    return Graph(
        "bounded",
        START >> boss >> END,
        boss.delegates(worker, chatty, max_hops=1, share="equal"),
        context=Desk,
        max_depth=1,
        budget=Budget(model_calls=20, tokens=9000),
    )


def timed(calls: Calls) -> Graph[Desk]:
    """An agent and a delegation that are too slow."""
    slow = calls.agent("slow", *[call("lookup", what="abcdefghij")] * 2, tools=tools(calls)[:1], timeout=5, retries=1)
    callee = calls.agent("callee", call("lookup", what="abcdefghij"), "late", tools=tools(calls)[:1])
    boss = calls.agent("boss", call("ask_callee", objective="?"), all_results)
    return Graph(
        "timed",
        START >> slow >> END,
        slow.on_error(boss),
        boss >> END,
        boss.delegates(callee, max_hops=1, timeout=4),
        context=Desk,
        max_depth=1,
    )


ANSWERS: dict[str, Any] = {"sure?": "yes", "who?": "me", "what now?": "go on", "x?": "1", "y?": "2", "z?": "3"}
ANSWERS["'agent' wants to call pay(amount=5.0). Approve it?"] = {"approve": True, "arguments": {"amount": 4}}

PLANS: dict[str, Plan[Desk]] = {
    made.__name__: Plan(make=made, context=Desk(), answers=ANSWERS)
    for made in (
        everything, team, handed, asked_in_parallel, debate, contracted, failing_agent, raising_agent, bounded, timed,
    )
}  # fmt: skip
PLANS["two at a time"] = Plan(make=asked_in_parallel, context=Desk(), answers=ANSWERS, options={"max_parallel": 2})
PLANS["waiting agents"] = Plan(make=asked_in_parallel, context=Desk(), answers={"y?": "2"})
