"""The shapes of programs that people write; both checkers hold every line in strict mode."""

from __future__ import annotations

from typing import Annotated, assert_type

from graphflow import (
    ANY,
    END,
    START,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    Report,
    Result,
    State,
    Step,
    Update,
    append,
    fork,
    node,
    on,
    quorum,
    run_sync,
    when,
)


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
bull, bear, merge, act, final = (gate.named(name) for name in ("bull", "bear", "merge", "act", "final"))
enough = Join("enough", quorum(3, within=10))

debate = Graph(
    "debate",
    START >> gate >> (bull, bear) >> merge >> act,
    act.choose(when(more, gate, max_hops=2), default=END),
    context=Case,
)
crawl = Graph(
    "crawl",
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
company = Graph(
    "company",
    START >> lead.named("ceo"),
    lead.named("ceo").delegates(team, max_hops=3, into="reports"),
    lead.named("ceo") >> END,
    context=Case,
    budget=Budget(node_runs=50, usd="0.10"),
    max_depth=2,
    escalate=human,
)
chat = Graph(
    "chat",
    START >> gate,
    gate.hands_off(bull, human, max_hops=2),
    bull.hands_off(gate, max_hops=1),
    (gate, bull) >> final >> END,
    gate.on_error(final, catch=ValueError),
    context=Case,
    max_handoffs=2,
)


def typed() -> None:
    """Hold what the checkers infer."""
    result = run_sync(debate, Case(question="?"))
    assert_type(result, Result[Case])
    assert_type(result.context.question, str)
    assert_type(crawl, Graph[Case])
