"""Our product in the benchmark of the field: each workload written as a user would write it, all defaults on.

`CASES` maps a workload to a factory that builds what a user builds once and returns a case whose `run()` is timed. What
each workload must do stands beside its factory.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import anyio
from common import Case, hier, msg, rmtree, tmpdir, tree_bytes  # type: ignore[import-not-found]  # the measuring side's own module

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    MemoryJournal,
    ModelReply,
    ModelRequest,
    Report,
    SqliteJournal,
    State,
    Supervisor,
    ToolCall,
    Update,
    Usage,
    append,
    node,
    replay,
    run,
    when,
)

BUDGET = Budget(node_runs=1_000_000, tokens=1_000_000_000)


class Items(Context):
    """What the walks append to."""

    items: Annotated[tuple[int, ...], append] = ()


class Message(BaseModel):
    """One message of about 1 KB."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str


class Talk(Context):
    """A state that grows."""

    items: Annotated[tuple[Message, ...], append] = ()


class Empty(Context):
    """Nothing: the branches only give outputs."""


@node
async def step(state: State[Items]) -> Update:
    """Append the int 1."""
    return Update(items=1)


def case(graph: Graph[Any], context: Context, read: Callable[[Any], Any], expect: Any) -> Any:
    """Return a case that runs a graph and reads its answer."""

    async def once() -> Any:
        return read(await run(graph, context))

    return Case(once, expect)


def w1_chain(n: int) -> Any:
    """Build `n` different nodes in a row; each appends the int 1."""
    chain = START >> step.named("n0")
    for index in range(1, n):
        chain = chain >> step.named(f"n{index}")
    graph = Graph("chain", chain >> END, context=Items, budget=BUDGET)
    return case(graph, Items(), lambda result: len(result.context.items), n)


def w1_loop(n: int) -> Any:
    """Build one node that is visited `n` times."""

    def more(state: State[Items]) -> bool:
        return len(state.context.items) < n

    loop = step.choose(when(more, step, max_hops=n), default=END)
    graph = Graph("loop", START >> step, loop, context=Items, budget=BUDGET)
    return case(graph, Items(), lambda result: len(result.context.items), n)


def fan(n: int, body: Callable[[State[Empty]], Awaitable[int]], expect: int) -> Any:
    """Build a map of `n` lanes whose join sums."""
    total = Join("total", reduce=sum)
    spread = node(name="spread")(_nothing)
    lane = node(name="lane")(body)
    mapped: Any = spread.map(lane, over=lambda _: range(n), join=total, max_items=n)
    graph = Graph("fan", START >> spread, mapped, total >> END, context=Empty, budget=BUDGET)
    return case(graph, Empty(), lambda result: result.output, expect)


async def _nothing(state: State[Empty]) -> None:
    """Do nothing: the map does the work."""


def w2(n: int) -> Any:
    """One to `n` branches; branch i yields i."""

    async def give(state: State[Empty]) -> int:
        value: int = state.inbox[0].value
        return value

    return fan(n, give, sum(range(n)))


def w3(n: int, ms: int = 50) -> Any:
    """As W2; each branch sleeps and yields 1."""

    async def sleep(state: State[Empty]) -> int:
        await anyio.sleep(ms / 1000)
        return 1

    return fan(n, sleep, n)


@node
async def leaf(state: State[Empty]) -> int:
    """Yield 1."""
    return 1


def w4(b: int = 4, d: int = 4) -> Any:
    """Build supervisors of supervisors: every level a graph, `b` children in parallel, summed on the way up."""

    def level(depth: int, name: str) -> Graph[Empty]:
        children = [
            leaf.named(f"leaf{index}") if depth == 1 else level(depth - 1, f"team{index}") for index in range(b)
        ]
        total = Join("total", reduce=sum)
        budget = BUDGET if depth == d else None
        return Graph(name, START >> tuple(children) >> total >> END, context=Empty, budget=budget)

    return case(level(d, "company"), Empty(), lambda result: result.output, hier(b, d)[1])


def w5(n: int) -> Any:
    """Build a loop whose every hop appends a message of 1 KB."""

    def more(state: State[Talk]) -> bool:
        return len(state.context.items) < n

    @node
    async def say(state: State[Talk]) -> Update:
        text: dict[str, str] = msg(len(state.context.items))
        return Update(items=Message(**text))

    graph = Graph(
        "talk", START >> say, say.choose(when(more, say, max_hops=n), default=END), context=Talk, budget=BUDGET
    )
    return case(graph, Talk(), lambda result: len(result.context.items), n)


class Question(Context):
    """What the team is asked."""

    question: str


class Specialist:
    """A model that answers with a report, after a while or at once."""

    def __init__(self, role: str, ms: int) -> None:
        """Take what it finds and how long it takes."""
        self.seconds = ms / 1000
        self.answer = ModelReply(json.dumps({"finding": role, "evidence": [role]}), usage=Usage(100, 20))

    async def reply(self, request: ModelRequest, stream: Callable[[str], None]) -> ModelReply:  # noqa: ARG002 - a script
        """Answer."""
        if self.seconds:
            await anyio.sleep(self.seconds)
        return self.answer


class Lead:
    """A model that asks both specialists at once, and then answers with what came back."""

    calls = (
        ToolCall("ask_billing", json.dumps({"objective": "a"}), "b"),
        ToolCall("ask_shipping", json.dumps({"objective": "b"}), "s"),
    )

    async def reply(self, request: ModelRequest, stream: Callable[[str], None]) -> ModelReply:  # noqa: ARG002 - a script
        """Ask, or answer."""
        reports = [message.text for message in request.messages if message.role == "tool"]
        return ModelReply("; ".join(reports), () if reports else self.calls, Usage(200, 40))


def w8(runs: int = 100, ms: int = 0) -> Any:
    """Run a supervisor that calls two specialists in parallel and then answers, `runs` times."""
    billing = Agent("billing", model=Specialist("billing", ms), output=Report)
    shipping = Agent("shipping", model=Specialist("shipping", ms), output=Report)
    lead = Supervisor("lead", model=Lead(), instructions="Split the question, delegate, answer once.")
    graph = Graph(
        "team",
        START >> lead >> END,
        lead.delegates(billing, shipping, max_hops=2),
        context=Question,
        budget=Budget(model_calls=12, tokens=20_000),
        max_depth=1,
    )

    async def all_of_them() -> bool:
        found = True
        for _ in range(runs):
            answer: str = (await run(graph, Question(question="help"))).output
            found = found and "billing" in answer and "shipping" in answer
        return found

    return Case(all_of_them, expect=True)


def w8_sleep(runs: int = 10, ms: int = 50) -> Any:
    """As W8; each specialist's model takes a while."""
    return w8(runs, ms)


async def w6(n: int, *, fsync: bool = False) -> Any:
    """Loop `n` times, each hop appends a message of 1 KB, and each is committed to a SQLite journal before the next."""
    folder = tmpdir()
    path = f"{folder}/runs.db"
    journal = SqliteJournal(path, fsync=fsync)

    @node
    async def say(state: State[Talk]) -> Update:
        return Update(items=Message.model_validate(msg(len(state.context.items))))

    def more(state: State[Talk]) -> bool:
        return len(state.context.items) < n

    loop = say.choose(when(more, say, max_hops=n), default=END)
    graph = Graph("w6", START >> say, loop, context=Talk, budget=BUDGET)
    # As for any run but the first of a program: the graph has run before (the other workloads do that in a run before
    # the timed ones; this case is built anew for each), and the database is open.
    await run(graph, Talk(), journal=MemoryJournal())
    await (await journal.claim("another")).release()

    async def once() -> int:
        return len((await run(graph, Talk(), journal=journal, run_id="w6")).context.items)

    async def extra() -> dict[str, float]:
        database = sqlite3.connect(path)
        database.execute("pragma wal_checkpoint(truncate)")
        database.close()
        began = time.perf_counter()
        found = await replay(graph, "w6", journal=SqliteJournal(path))
        took = time.perf_counter() - began
        assert len(found.context.items) == n
        return {"bytes": tree_bytes(folder), "resume_ms": round(took * 1e3, 2)}

    return Case(once, n, fresh=True, close=partial(rmtree, folder), extra=extra)


CASES = {
    "W1_chain": w1_chain,
    "W1_loop": w1_loop,
    "W2": w2,
    "W3": w3,
    "W4": w4,
    "W5": w5,
    "W6": w6,
    "W6_walfull": partial(w6, fsync=True),
    "W8": w8,
    "W8_sleep": w8_sleep,
}
