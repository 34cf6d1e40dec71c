"""The shapes of programs that people write; both checkers hold every line in strict mode."""

from __future__ import annotations

from typing import Annotated, assert_type

from graphflow import (
    ANY,
    END,
    START,
    Agent,
    AskUser,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    ModelClient,
    ModelRequest,
    Report,
    Result,
    State,
    Step,
    Supervisor,
    ThreadMessage,
    Tool,
    ToolCall,
    ToolStep,
    Update,
    append,
    fork,
    last,
    node,
    on,
    on_active,
    quorum,
    run,
    run_sync,
    tool,
    when,
)
from graphflow.testing import RuleModel, ScriptedModel, call


class Case(Context):
    """What the nodes see."""

    question: str
    round: int = 0
    urls: tuple[str, ...] = ()
    reports: Annotated[tuple[Report, ...], append] = ()


@node
async def gate(state: State[Case]) -> str:
    """Give a text."""
    return state.context.question


@node(retries=2, timeout=1.0, into="round")
async def count(state: State[Case], step: Step) -> int:
    """Give a number, through an effect."""
    return await step.effect("count", len, state.context.question)


@node
def plain(state: State[Case]) -> Update:
    """Change the context, from a thread."""
    return Update(round=state.context.round + 1)


@node
async def lead(state: State[Case]) -> Delegate | str:
    """Delegate, then answer."""
    if state.turn:
        return ", ".join(str(message.value.finding) for message in state.inbox)
    return Delegate(Call("gate", Brief(objective="x"), id="a"), Call("plain", "y", id="b", needs=("a",)))


def more(state: State[Case]) -> bool:
    """Tell whether to go round again."""
    return state.context.round < 3


human = Human("human", "Go on?", schema=bool)
bull, bear, merge, final = (gate.named(name) for name in ("bull", "bear", "merge", "final"))
enough = Join("enough", quorum(3, within=10))

crawl_inline = Graph(
    "crawl_inline",
    START >> gate,
    gate.map(bull, over=lambda state: state.context.urls, join=enough, max_items=50),
    enough >> END,
    context=Case,
)
inclusive = Graph("inclusive", START >> gate >> (bull, when(more, bear)) >> merge >> END, context=Case)
collected = Graph("collected", START >> gate >> fork(bull, bear, failure="collect") >> merge >> END, context=Case)
joined = Graph("joined", START >> gate >> (bull, bear) >> Join("first", ANY, losers="cancel") >> END, context=Case)
backwards = Graph("backwards", START >> gate >> (bull, bear), (bull, bear) >> merge, merge >> END, context=Case)
routed = Graph(
    "routed", START >> gate, gate.choose(on("x", bull), default=bear), (bull, bear) >> merge >> END, context=Case
)
team = Graph("team", START >> lead, lead.delegates(gate, plain, max_hops=2), lead >> END, context=Case, max_depth=1)
lead_company = Graph(
    "lead_company",
    START >> lead.named("ceo"),
    lead.named("ceo").delegates(team, max_hops=3, into="reports"),
    lead.named("ceo") >> END,
    context=Case,
    budget=Budget(node_runs=50, usd="0.10"),
    max_depth=2,
    escalate=human,
)
gate_chat = Graph(
    "gate_chat",
    START >> gate,
    gate.hands_off(bull, human, max_hops=2),
    bull.hands_off(gate, max_hops=1),
    (gate, bull) >> final >> END,
    gate.on_error(final, catch=ValueError),
    context=Case,
    max_handoffs=2,
)


# --- agents ----------------------------------------------------------------------------------------------------------


@tool
def get_invoice(number: str) -> dict[str, object]:
    """Look an invoice up."""
    return {"number": number, "amount": 49.0}


@tool(effect="read", retries=1, timeout=5.0)
async def track_parcel(order: str, step: ToolStep) -> str:
    """Say where a parcel is."""
    step.emit(order)
    return "in transit"


class Ledger:
    """An object with tools."""

    @tool
    def entry(self, number: int) -> str:
        """Look an entry up."""
        return f"{self}: {number}"

    def total(self) -> float:
        """Add up; a plain method is a tool too."""
        return 49.0


def says(request: ModelRequest) -> list[ToolCall] | ToolCall | Report | str:
    """Call everything once, then answer."""
    if any(message.role == "tool" for message in request.messages):
        return Report(finding="found") if request.schema else "done"
    calls = [call(spec.name, objective="look") for spec in request.tools if spec.name.startswith("ask_")]
    if calls or not request.tools:
        return calls or "done"
    first = request.tools[0]
    return call(first.name, **dict.fromkeys(first.parameters["properties"], "A-7"))


def newest(thread: tuple[ThreadMessage, ...]) -> tuple[ThreadMessage, ...]:
    """Let one message cross."""
    return thread[-1:]


def never(name: str, arguments: object) -> str | None:
    """Deny one tool."""
    return "not today" if name == "refund" else None


def instructed(state: State[Case]) -> str:
    """Make instructions from the state."""
    return f"Round {state.context.round}."


m: ModelClient = RuleModel(otherwise=says)
scripted = ScriptedModel(
    call("get_invoice", number="INV-311"), [call("a"), call("b")], Report(finding="x"), "done", says
)
careful = Agent(
    "careful",
    model=scripted,
    instructions=instructed,
    tools=[Ledger().entry, Ledger().total, AskUser(schema=int), get_invoice, track_parcel],
    output=Report,
    history=last(3),
    rights=["entry", "total"],
    deny=never,
    decision="json",
)
assistant = Graph(
    "assistant",
    START.choose(on_active(careful), default=careful),
    careful.delegates(gate, max_hops=1, history="summary", grant=["refund"]),
    careful.hands_off(gate, max_hops=1, history=newest),
    careful >> END,
    gate >> END,
    context=Case,
)


# The programs with which the design of the library begins, as they stand there.

ceo, execute = Supervisor("ceo", model=m), Supervisor("execute", model=m)
triage, planner, verify = Agent("triage", model=m), Agent("planner", model=m), Agent("verify", model=m)
research = Graph("research", START >> Agent("reader", model=m) >> END, context=Case)
act, fetch = plain.named("act"), gate.named("fetch")


def urls(state: State[Case]) -> tuple[str, ...]:
    """Give a lane to each."""
    return state.context.urls


def bad(state: State[Case]) -> bool:
    """Tell whether to plan again."""
    return state.values == ("bad",)


billing = Agent("billing", model=m, tools=[get_invoice], output=Report, max_turns=4)
shipping = Agent("shipping", model=m, tools=[track_parcel], output=Report, max_turns=4)
desk = Supervisor("desk", model=m, instructions="Split the question, delegate, answer once.")

support = Graph(
    "support",
    START >> desk,
    desk.delegates(billing, shipping, max_hops=2, into="reports"),
    desk >> END,
    context=Case,
    budget=Budget(model_calls=12, tokens=20_000, usd="0.10", seconds=60),
    max_depth=2,
)
company = Graph(
    "company", START >> ceo, ceo.delegates(support, research, max_hops=3), ceo >> END, context=Case, max_depth=3
)
chat = Graph(
    "chat",
    START >> triage,
    triage.hands_off(billing, shipping, max_hops=2),
    billing.hands_off(triage, max_hops=1),
    triage >> END,
    billing >> END,
    shipping >> END,
    context=Case,
    max_handoffs=2,
    escalate=human,
)
debate = Graph(
    "debate",
    START >> gate >> (bull, bear) >> merge >> act,
    act.choose(when(more, gate, max_hops=2), default=END),
    context=Case,
)
crawl = Graph(
    "crawl", START >> gate, gate.map(fetch, over=urls, join=enough, max_items=50), enough >> END, context=Case
)
plan = Graph(
    "plan_execute",
    START >> planner >> execute,
    execute.delegates(billing, shipping, max_hops=8),
    execute.choose(when(bad, planner, max_hops=2), default=verify),
    verify >> END,
    context=Case,
)


async def typed() -> None:
    """Hold what the checkers infer."""
    result = run_sync(debate, Case(question="?"))
    assert_type(result, Result[Case])
    assert_type(result.context.question, str)
    assert_type(crawl, Graph[Case])
    assert_type(get_invoice, Tool)
    assert_type(Ledger().entry, Tool)
    assert_type(result.thread, tuple[ThreadMessage, ...])
    assert_type(await run(chat, Case(question="and now?"), after=result), Result[Case])
