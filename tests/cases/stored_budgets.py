"""Graphs that a budget stops, for the cases of stored runs: with less at first, and the rest when they are resumed."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Human,
    Join,
    Price,
    Report,
    State,
    Step,
    ToolStep,
    Update,
    Usage,
    tool,
    when,
)
from graphflow.testing import call
from tests.cases.agents import all_results
from tests.cases.stored import Calls, Plan
from tests.cases.stored_functions import Log, merges, more, says


@dataclass(frozen=True)
class Short:
    """A run that has too little at first.

    Attributes:
        make: makes the graph.
        first: what it has.
        rest: what it is given, one after the other, each time it stands still.
    """

    make: Callable[[Calls], Graph[Log]]
    first: Budget
    rest: tuple[Budget, ...]

    @property
    def whole(self) -> Budget:
        """All that it is given."""
        parts = (self.first, *self.rest)
        sums: dict[str, Any] = {}
        for name in ("node_runs", "model_calls", "tool_calls", "retries", "tokens", "usd", "seconds"):
            amounts = [getattr(part, name) for part in parts]
            if amounts[0] is not None:
                sums[name] = sum((amount for amount in amounts if amount is not None), type(amounts[0])(0))
        return Budget(**sums)

    @property
    def plan(self) -> Plan[Log]:
        """How it is played with too little at first."""
        return Plan(make=self.make, context=Log(), answers=ANSWERS, more=self.rest, options={"budget": self.first})

    @property
    def rich(self) -> Plan[Log]:
        """How it is played with all of it from the start."""
        return Plan(make=self.make, context=Log(), answers=ANSWERS, options={"budget": self.whole})


ANSWERS = {"ok?": "yes"}


def loop(calls: Calls) -> Graph[Log]:
    """A loop with nodes of a graph inside it."""
    inner = Graph("inner", START >> says(calls, "a") >> says(calls, "b", sleep=1) >> END, context=Log)
    merge = merges(calls)
    again = merge.choose(when(more, inner, max_hops=2), default=END)
    return Graph("loop", START >> inner >> merge, again, context=Log)


def beside(calls: Calls) -> Graph[Log]:
    """A question, and effects that cost, one after the other."""

    @calls.node
    async def buys(state: State[Log], step: Step) -> Done:
        cost = Budget(model_calls=1, tool_calls=1, tokens=10, usd="0.01")
        found = [await calls.effect(step, f"buy {number}", number, cost=cost, usage=real) for number in range(4)]
        return Done(sum(found), Update(total=sum(found)))

    return Graph(
        "beside", START >> says(calls, "s") >> Human("ask", "ok?") >> buys >> merges(calls) >> END, context=Log
    )


def real(_: int) -> Budget:
    """Tell what an effect really cost."""
    return Budget(tokens=7, usd="0.01")


def agents(calls: Calls) -> Graph[Log]:
    """An agent with tools in a graph, then a supervisor with a team."""

    @tool
    async def lookup(what: str, step: ToolStep) -> str:
        """Look up."""
        calls.tool(step)
        await step.sleep(2.5)
        return f"{what}!"

    options: dict[str, Any] = {
        "usage": Usage(10, 5, Decimal("0.01")),
        "price": Price(Decimal("0.0001"), Decimal("0.0001")),
    }
    options["max_tokens"] = 5
    one = calls.agent(
        "one",
        [call("lookup", what="a"), call("lookup", what="b")],
        call("lookup", what="c"),
        all_results,
        tools=[lookup],
        **options,
    )
    inner = Graph("inner", START >> one >> END, context=Log)
    worker = calls.agent("worker", call("lookup", what="w"), all_results, tools=[lookup], **options)
    boss = calls.agent(
        "boss", [call("ask_worker", objective="1"), call("ask_worker", objective="2")], all_results, **options
    )
    return Graph("agents", START >> inner >> boss >> END, boss.delegates(worker, max_hops=2), context=Log, max_depth=1)


def busy(calls: Calls) -> Graph[Log]:
    """Everything that takes time: branches, lanes, a batch, a timeout, a late loser, a quorum."""

    @calls.node
    async def boss(state: State[Log], step: Step) -> Any:
        await step.sleep(2)
        if state.turn == 0:
            return Delegate(Call("works", "3"), Call("works", "6", id="b"), Call("works", "1", needs=("b",)))
        return Done(tuple(message.value.finding for message in state.inbox))

    @calls.node
    async def works(state: State[Log], step: Step) -> Report:
        assert state.brief is not None
        await step.sleep(float(state.brief.objective))
        await calls.effect(step, "work", 1)
        return Report(finding=state.brief.objective)

    merge, join = merges(calls), Join("j", reduce=sum)
    sides = says(calls, "a", sleep=1), says(calls, "b", sleep=4), says(calls, "c", sleep=8, timeout=9)
    return Graph(
        "busy",
        START >> says(calls, "s", sleep=3) >> sides >> merge,
        merge.map(says(calls, "lane", sleep=5, effects=2), over=two, join=join, max_items=2),
        join >> boss >> END,
        boss.delegates(works, max_hops=3),
        context=Log,
        max_depth=1,
    )


def two(_: State[Context]) -> tuple[int, ...]:
    """Give the items of a map."""
    return (1, 2)


SHORT: dict[str, Short] = {
    "node_runs": Short(loop, Budget(node_runs=2), (Budget(node_runs=1), Budget(node_runs=3), Budget(node_runs=9))),
    "node_runs and more": Short(loop, Budget(node_runs=4, tokens=100), (Budget(node_runs=8, tokens=9),)),
    "model_calls of a body": Short(beside, Budget(model_calls=2), (Budget(model_calls=1), Budget(model_calls=1))),
    "tool_calls of a body": Short(beside, Budget(tool_calls=0), (Budget(tool_calls=3), Budget(tool_calls=5))),
    "tokens of a body": Short(beside, Budget(tokens=12), (Budget(tokens=5), Budget(tokens=20))),
    "usd of a body": Short(beside, Budget(usd="0.01"), (Budget(usd="0.02"), Budget(usd="0.02"))),
    "model_calls": Short(agents, Budget(model_calls=1), (Budget(model_calls=2), Budget(model_calls=10))),
    "tokens": Short(agents, Budget(tokens=40), (Budget(tokens=100), Budget(tokens=1000))),
    "usd": Short(agents, Budget(usd="0.015"), (Budget(usd="0.02"), Budget(usd="1"))),
    "seconds of agents": Short(agents, Budget(seconds=1), (Budget(seconds=3), Budget(seconds=30))),
    "seconds": Short(busy, Budget(seconds=2), tuple(Budget(seconds=n) for n in (3, 4, 4, 5, 3, 2, 30))),
    "no seconds": Short(busy, Budget(seconds=0), (Budget(seconds=6), Budget(seconds=100))),
}
"""By the dimension that runs out."""

PLANS = {name: short.plan for name, short in SHORT.items()}
