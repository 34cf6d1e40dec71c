"""Programs that are wrong; each line marked with `# wrong` must be refused by both checkers."""

from __future__ import annotations

from graphflow import END, START, Budget, Call, Context, Graph, State, Step, node, run_sync, when


class Case(Context):
    """What the nodes see."""

    question: str


class Other(Context):
    """What other nodes see."""

    number: int


@node
async def gate(state: State[Case]) -> str:
    return state.context.question


@node
async def field(state: State[Case]) -> str:
    return state.context.answer  # wrong: no such field


@node
async def effect(state: State[Case], step: Step) -> int:
    return await step.effect("text", str, 1)  # wrong: a str is no int


@node  # wrong: a node takes a State
async def number(state: int) -> str:
    return str(state)


def about_other(state: State[Other]) -> bool:
    return state.context.number > 0


def not_a_test(state: State[Case]) -> str:
    return state.context.question


graph = Graph("graph", START >> gate >> END, context=Case)
run_sync(graph, Other(number=1))  # wrong: the graph runs on a Case
Graph("graph", START >> gate >> END, context=int)  # wrong: a context class is needed
Graph("graph", gate, context=Case)  # wrong: a node is no statement
when(not_a_test, gate)  # wrong: a condition gives a bool
gate >> 3  # wrong: a number is no node
gate >> START  # wrong: nothing leads to START
gate.delegates(gate, max_hops="two")  # wrong: a bound is a number
gate.map(gate, over=lambda state: 3, join=gate)  # wrong: over gives a sequence
Budget(usd=0.1)  # wrong: money is exact
Call("gate", 3)  # wrong: a brief is a Brief or a str
END >> gate  # wrong: nothing follows END
graph.name = "other"  # wrong: a graph is frozen
