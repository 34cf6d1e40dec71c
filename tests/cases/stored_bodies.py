"""Graphs whose bodies do unusual things, for the cases of stored runs: parallel effects, errors caught, hooks."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import anyio
from pydantic import SecretStr

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Join,
    Pause,
    Report,
    Skip,
    State,
    Step,
    Update,
    append,
    fork,
    repetition,
)
from graphflow.errors import NodeTimeout
from graphflow.model.codec import secret
from graphflow.testing import call
from tests.cases.agents import all_results
from tests.cases.stored import Calls, Plan
from tests.cases.stored_functions import Log, fails, merges, says


class OwnError(Exception):
    """An error of the user's own."""


class Deeper(LookupError):
    """An error that only the service knows."""


@dataclass(frozen=True)
class Found:
    """What an effect gives; only its function says so."""

    name: str
    sizes: tuple[int, ...]


class Pair(NamedTuple):
    """Two of them."""

    one: Found
    two: Found


def gathers(calls: Calls) -> Graph[Log]:
    """Effects and sleeps of one body at the same time, one of which the body itself gives up."""

    @calls.node
    async def many(_: State[Log], step: Step) -> Done:
        got: dict[str, Any] = {}

        async def one(name: str, seconds: float) -> None:
            got[name] = await calls.effect(step, name, seconds, key=name)
            await step.sleep(seconds)
            got[name] += await calls.effect(step, name, seconds, key=f"{name} again")

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(one, f"e{number}", number + 1)
        return Done(tuple(sorted(got.items())))

    return Graph("gathers", START >> many >> merges(calls) >> END, context=Log)


def gives_up(calls: Calls) -> Graph[Log]:
    """A body cancels an effect of its own that would never end, and goes on."""

    @calls.node
    async def many(_: State[Log], step: Step) -> str:
        async def never() -> None:
            await anyio.sleep_forever()

        async def slow() -> None:
            await step.effect("never", never, key="never")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await step.sleep(1)
            await calls.effect(step, "quick", 1, key="quick")
            tasks.cancel_scope.cancel()
        await step.sleep(2)
        found: str = await calls.effect(step, "after", "done", key="after")
        return found

    return Graph("gives_up", START >> (many, says(calls, "b", sleep=2)) >> merges(calls) >> END, context=Log)


def catches(calls: Calls) -> Graph[Log]:
    """A body catches what its effects raise: errors of Python, of its own, and of a base."""

    @calls.node
    async def tries(_: State[Log], step: Step) -> tuple[str, ...]:
        caught: list[str] = []
        for error in (ValueError("v"), OwnError("own"), KeyError("k"), Deeper("deep"), TimeoutError("t")):
            try:
                await calls.effect(step, type(error).__name__, error)
            except OwnError as found:
                caught.append(f"own {found}")
            except (ValueError, TimeoutError) as found:
                caught.append(f"{type(found).__name__} {found}")
            except LookupError as found:
                caught.append(f"lookup {found}")
            await step.sleep(1)
        return tuple(caught)

    return Graph("catches", START >> tries >> merges(calls) >> END, context=Log)


def lets_pass(calls: Calls) -> Graph[Log]:
    """A body does not catch what its effects raise; an edge does, by the class of the error, which no body names."""

    def one(name: str, error: Exception) -> Any:
        @calls.node(name=name)
        async def body(_: State[Log], step: Step) -> None:
            await calls.effect(step, "raises", error)
            await step.sleep(1)

        return body

    a, b, c = one("a", Deeper("deep")), one("b", OwnError("own")), one("c", json.JSONDecodeError("no", "text", 2))
    helper, other = says(calls, "helper"), says(calls, "other")
    join = merges(calls)
    return Graph(
        "lets_pass",
        START >> fork(a, b, c, failure="collect") >> join,
        a.on_error(helper, catch=Deeper),
        b.on_error(other, catch=OwnError),
        helper >> join,
        other >> join >> END,
        context=Log,
    )


def typed(calls: Calls) -> Graph[Log]:
    """Results of classes that only the effects' functions declare."""

    @calls.node
    async def finds(_: State[Log], step: Step) -> str:
        def look(name: str) -> Found:
            calls.made["look", "finds", 0] += 1
            return Found(name, (1, 2))

        async def pair(one: str, two: str) -> Pair:
            calls.made["pair", "finds", 0] += 1
            return Pair(Found(one, ()), Found(two, (3,)))

        first = await step.effect("look", look, "a")
        await step.sleep(1)
        both = await step.effect("pair", pair, "b", "c")
        await step.sleep(1)
        return f"{first.name} {sum(first.sizes)} {both.one.name} {both.two.sizes}"

    return Graph("typed", START >> finds >> END, context=Log)


class Secretive(Context):
    """A context with secrets of both kinds."""

    token: SecretStr
    key: Annotated[str, secret] = ""
    lines: Annotated[tuple[str, ...], append] = ()


def secretive(calls: Calls) -> Graph[Secretive]:
    """Nodes that use secrets, and write something else."""

    @calls.node
    async def uses(state: State[Secretive], step: Step) -> Update:
        size = len(state.context.token.get_secret_value() + state.context.key)
        await calls.effect(step, "use", size)
        await step.sleep(1)
        return Update(lines=f"{size} letters")

    @calls.node
    def again(state: State[Secretive]) -> int:
        return len(state.context.token.get_secret_value())

    return Graph("secretive", START >> uses >> again >> END, context=Secretive)


def skipped(calls: Calls) -> Graph[Log]:
    """Branches that a hook skips, one that it breaks, and a callee that it skips."""

    @calls.node
    async def boss(state: State[Log]) -> Any:
        if state.turn == 0:
            return Delegate(Call("b", "1"), Call("c", "2"))
        return tuple(message.value.status for message in state.inbox)

    a, d = says(calls, "a", sleep=3), says(calls, "d")
    return Graph(
        "skipped",
        START >> fork(a >> boss, d, failure="collect") >> merges(calls) >> END,
        boss.delegates(says(calls, "b"), says(calls, "c"), max_hops=1),
        context=Log,
        max_depth=1,
    )


def hook(calls: Calls) -> Any:
    """Make a hook that takes a while, skips `b`, and fails at `d`."""

    async def asked(state: State[Log]) -> Skip | None:
        calls.made["the hook", str(state.path), 0] += 1
        await anyio.lowlevel.checkpoint()
        name = state.path[-1].name
        if name == "d":
            msg = "the hook broke"
            raise LookupError(msg)
        return Skip("not now") if name == "b" else None

    return asked


def retrying(calls: Calls) -> Graph[Log]:
    """Retries of a node inside retries of a graph, timeouts among them; and a bound on items, escalated."""

    @calls.node(retries=1, timeout=4)
    async def shaky(_: State[Log], step: Any) -> int:
        found: int = await calls.effect(step, "first", step.command.attempt)
        await step.sleep(6 if found == 0 else 1)
        return found

    inner = Graph("inner", START >> shaky >> fails(calls, "last", times=1, retries=2) >> END, context=Log)
    person = says(calls, "person")
    join = Join("j")
    return Graph(
        "retrying",
        START >> inner,
        inner.map(says(calls, "lane"), over=five, join=join, max_items=3),
        join >> END,
        context=Log,
        escalate=person,
    )


def five(_: State[Log]) -> tuple[int, ...]:
    """Give more items than are allowed."""
    return (1, 2, 3, 4, 5)


def collected_lanes(calls: Calls) -> Graph[Log]:
    """Lanes of which one fails, one pauses, one is slow; failures are collected."""

    @calls.node
    async def lane(state: State[Log], step: Step) -> Any:
        item = state.inbox[0].value
        if state.turn == 0:
            await calls.effect(step, "begin", LookupError("no") if item == 2 else 1)
            if item == 3:
                return Pause("three?")
            await step.sleep(item)
        return item

    first, join = says(calls, "first"), merges(calls)
    return Graph(
        "collected_lanes",
        START >> first,
        first.map(lane, over=five, join=join, failure="collect", max_items=9),
        join >> END,
        context=Log,
    )


def shared(calls: Calls) -> Graph[Log]:
    """Shares of a budget by part, one of which runs out inside; a timeout of a callee; and a caught NodeTimeout."""

    @calls.node(max_turns=3)
    async def boss(state: State[Log], step: Step) -> Any:
        if state.turn == 0:
            return Delegate(Call("spends", "1"), Call("spends", "2"), update=Update(lines="go"))
        if state.turn == 1:
            await calls.effect(step, "between", 1)
            return Delegate(Call("slow", "3"))
        return tuple(message.value.status for message in state.inbox)

    @calls.node
    async def spends(_: State[Log], step: Step) -> Report:
        for number in range(6):
            await calls.effect(step, f"buy {number}", 1, cost=Budget(tool_calls=1))
            await step.sleep(1)
        return Report(finding="all")

    slow, helper = says(calls, "slow", sleep=9, timeout=5), says(calls, "helper")
    return Graph(
        "shared",
        START >> boss >> END,
        boss.delegates(spends, max_hops=2, share=0.5),
        boss.delegates(slow, max_hops=1),
        slow.on_error(helper, catch=NodeTimeout),
        context=Log,
        max_depth=1,
        budget=Budget(tool_calls=9),
    )


def watched(calls: Calls) -> Graph[Log]:
    """A detector stops an agent that repeats itself."""
    agent = calls.agent("agent", *[call("ask_worker", objective="same")] * 8, all_results)
    worker = calls.agent("worker", "same")
    return Graph(
        "watched",
        START >> agent >> END,
        agent.delegates(worker, max_hops=9),
        context=Log,
        max_depth=1,
        detect=[repetition(3, then="stop")],
    )


PLANS: dict[str, Plan[Any]] = {
    made.__name__: Plan(make=made, context=Log(), answers={"three?": "3!"})
    for made in (
        gathers, gives_up, catches, lets_pass, typed, retrying, collected_lanes, shared, watched,
    )
}  # fmt: skip
PLANS["skipped"] = Plan(make=skipped, context=Log(), hook=hook)
PLANS["secretive"] = Plan(
    make=secretive,
    context=Secretive(token=SecretStr("hunter2-and-more"), key="hunter3-and-more"),
    again={"secrets": {"token": "hunter2-and-more", "key": "hunter3-and-more"}},
)
