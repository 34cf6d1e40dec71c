"""Graphs that the tests offer as tools: `graphflow mcp served.py:greet served.py:bill ...`."""

from __future__ import annotations

from typing import Literal

import anyio
from pydantic import BaseModel, ConfigDict

from graphflow import END, START, Budget, Context, Graph, Human, State, Step, node

ONE = Budget(node_runs=1)


class Named(Context):
    """A context that begins with a text and needs nothing else."""

    name: str
    loud: bool = False


class Amounts(Context):
    """A context that needs more than a text.

    Attributes:
        invoice: its number.
        amounts: what is on it.
    """

    invoice: str
    amounts: tuple[float, ...]


class Bill(BaseModel):
    """What a bill comes to."""

    model_config = ConfigDict(frozen=True)

    invoice: str
    total: float


@node
def hello(state: State[Named]) -> str:
    """Greet."""
    return f"Hello, {state.context.name}!"


@node
def add_up(state: State[Amounts]) -> Bill:
    """Add up."""
    return Bill(invoice=state.context.invoice, total=sum(state.context.amounts))


@node
def broken(state: State[Named]) -> str:
    """Fail."""
    msg = f"nobody is called {state.context.name}"
    raise LookupError(msg)


@node
async def slow(state: State[Named], step: Step) -> str:
    """Wait until somebody cancels it."""
    step.emit("waits")
    await anyio.sleep(120)
    return state.context.name


@node
async def pay(state: State[Named], step: Step) -> str:
    """Pay once."""
    return await step.effect("pay", lambda: f"paid {state.context.name}", cost=Budget(tool_calls=1))


approve = Human("approve", "Pay it?", schema=Literal["yes", "no"])

greet = Graph("greet", START >> hello >> END, context=Named, budget=ONE, description="Greet somebody.")
bill = Graph("bill", START >> add_up >> END, context=Amounts, budget=ONE, description="Add a bill up.")
fails = Graph("fails", START >> broken >> END, context=Named, budget=ONE)
waits = Graph("waits", START >> slow >> END, context=Named, budget=ONE)
spends = Graph("spends", START >> pay >> END, context=Named, budget=Budget(node_runs=1, tool_calls=0))
asks = Graph("asks", START >> approve >> hello >> END, context=Named, budget=Budget(node_runs=2))
