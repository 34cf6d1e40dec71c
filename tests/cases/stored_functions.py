"""Graphs of function nodes for the cases of stored runs: each is made anew as often as somebody goes on with it."""

from typing import Annotated, Any

from graphflow import (
    ANY,
    END,
    START,
    STRICT,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    Human,
    Join,
    Pause,
    Report,
    Skip,
    State,
    Step,
    Update,
    add,
    append,
    fork,
    quorum,
    when,
)
from graphflow.errors import BoundHit
from tests.cases.stored import Calls, Plan


class Log(Context):
    """A context that everybody may write a line into."""

    goal: str = ""
    lines: Annotated[tuple[str, ...], append] = ()
    total: Annotated[int, add] = 0
    rounds: int = 0


def says(calls: Calls, name: str, *, sleep: float | None = None, effects: int = 1, **options: Any) -> Any:
    """Make a node that does some effects, sleeps, and writes what it got."""

    @calls.node(name=name, **options)
    async def body(state: State[Log], step: Step) -> Done:
        found = [await calls.effect(step, f"{name} {n}", n + 1) for n in range(effects)]
        if sleep is not None:
            await step.sleep(sleep)
        step.emit(f"{name} is nearly done")
        return Done(sum(found), Update(lines=name, total=sum(found)))

    return body


def fails(calls: Calls, name: str, *, times: int = 99, sleep: float = 0, **options: Any) -> Any:
    """Make a node whose effect fails in its first attempts."""

    @calls.node(name=name, **options)
    async def body(_: State[Log], step: Any) -> str:
        error = LookupError(f"{name} cannot") if step.command.attempt < times else f"{name} could"
        await step.sleep(sleep)
        found: str = await calls.effect(step, "tried", error)
        return found

    return body


def merges(calls: Calls, name: str = "merge", **options: Any) -> Any:
    """Make a sync node that writes down what arrived."""

    @calls.node(name=name, **options)
    def body(state: State[Log]) -> Done:
        found = tuple(
            value.reason.code if isinstance(value, Report) and value.reason else value for value in state.values
        )
        rounds = {"rounds": state.context.rounds + 1} if name == "merge" else {}
        return Done(found, Update(lines=f"{name} {found}", **rounds))

    return body


def no(_: State[Log]) -> bool:
    """Hold never."""
    return False


def more(state: State[Log]) -> bool:
    """Hold for two more rounds."""
    return state.context.rounds < 3


# --- order -----------------------------------------------------------------------------------------------------------


def chain(calls: Calls) -> Graph[Log]:
    """Sync and async nodes one after the other."""
    a, b, c = says(calls, "a", effects=2), says(calls, "b", sleep=5), says(calls, "c", effects=0)
    return Graph("chain", START >> a >> merges(calls) >> b >> c >> END, context=Log)


def loop(calls: Calls) -> Graph[Log]:
    """A loop with a fork inside it: each round has messages of its own."""
    gate, merge = says(calls, "gate"), merges(calls)
    sides = says(calls, "bull", sleep=2), says(calls, "bear", sleep=1)
    again = merge.choose(when(more, gate, max_hops=2), default=END)
    return Graph("loop", START >> gate >> sides >> merge, again, context=Log)


def branches(calls: Calls) -> Graph[Log]:
    """Branches of unequal length, one that is not taken, one that ends on its own, and a fork inside."""
    a, b, b2, c, d, e, inner = (
        says(calls, name, sleep=n) for n, name in enumerate(["a", "b", "b2", "c", "d", "e", "i"])
    )
    never, stuck, join = says(calls, "never"), says(calls, "stuck"), Join("join", reduce=len)
    return Graph(
        "branches",
        START >> says(calls, "s") >> (a, b >> b2, c >> (d, e) >> inner, when(no, never), stuck),
        *[tail >> join for tail in (a, b2, inner, never)],
        stuck.choose(when(no, join)),
        join >> END,
        context=Log,
    )


def collected(calls: Calls) -> Graph[Log]:
    """A branch fails and is collected, another is retried, a third is handled: the run is partial."""
    broken, shaky = fails(calls, "broken", sleep=3), fails(calls, "shaky", times=2, sleep=1, retries=3)
    handled, helper = fails(calls, "handled"), says(calls, "helper")
    join = merges(calls, "join")
    return Graph(
        "collected",
        START
        >> says(calls, "s")
        >> fork(broken, shaky, handled, says(calls, "fine", sleep=9), failure="collect")
        >> join,
        handled.on_error(helper, catch=LookupError),
        helper >> join >> END,
        context=Log,
    )


def failing(calls: Calls) -> Graph[Log]:
    """A branch fails, the others are cancelled, and the run raises."""
    a, b = says(calls, "a", sleep=9), says(calls, "b", sleep=2)
    return Graph("failing", START >> (a, fails(calls, "f", sleep=5), b) >> Join("j") >> END, context=Log)


def unanswered(calls: Calls) -> Graph[Log]:
    """Every token ends before END is reached."""
    a, b = says(calls, "a"), says(calls, "b")
    return Graph("unanswered", START >> a, a.choose(when(no, b)), b >> END, context=Log)


def three(_: State[Log]) -> tuple[int, ...]:
    """Give the items of a map."""
    return (3, 1, 2)


def lanes(calls: Calls) -> Graph[Log]:
    """A map whose lanes are chains that take turns, and a map over nothing."""

    @calls.node
    async def fetch(state: State[Log], step: Step) -> int:
        await step.sleep(state.values[0])
        found: int = await calls.effect(step, "fetch", state.values[0] * 10)
        return found

    first, join, empty = says(calls, "first"), Join("join", reduce=sum, into="total"), Join("empty", reduce=sum)
    return Graph(
        "lanes",
        START >> first,
        first.map(fetch >> merges(calls, "notes") >> _inner(calls), over=three, join=join, max_items=3),
        join.map(says(calls, "nobody"), over=nothing, join=empty, max_items=1),
        empty >> END,
        context=Log,
    )


def _inner(calls: Calls) -> Any:
    @calls.node
    def inner(state: State[Log]) -> int:
        found: int = state.values[0][0]
        return found

    return inner


def nothing(_: State[Log]) -> tuple[int, ...]:
    """Give no item."""
    return ()


def racing(calls: Calls) -> Graph[Log]:
    """An any-join whose losers finish, then a quorum whose losers are cancelled, then a strict join that is skipped."""
    one = (says(calls, "a", sleep=1), says(calls, "b", sleep=5), says(calls, "c", sleep=3))
    two = (says(calls, "d", sleep=9), says(calls, "e", sleep=2.5), says(calls, "f", sleep=4.5))
    g, h = says(calls, "g"), says(calls, "h")
    return Graph(
        "racing",
        START
        >> one
        >> Join("any", ANY)
        >> two
        >> Join("two", quorum(2, within=20), losers="cancel")
        >> (g, when(no, h)),
        (g, h) >> Join("strict", STRICT) >> merges(calls) >> END,
        context=Log,
    )


def unmet(calls: Calls) -> Graph[Log]:
    """A quorum that is not met in its time."""
    sides = says(calls, "a", sleep=1), says(calls, "b", sleep=9)
    return Graph("unmet", START >> sides >> Join("both", quorum(2, within=5)) >> END, context=Log)


# --- graphs inside, teams --------------------------------------------------------------------------------------------


def nested(calls: Calls) -> Graph[Log]:
    """The same graph twice, side by side, again inside another, and visited twice in a loop."""

    def team() -> Graph[Log]:
        ask = Human("ask", "ok?")
        return Graph(
            "team", START >> says(calls, "start", sleep=1) >> ask >> merges(calls, "finish") >> END, context=Log
        )

    plain = Graph("plain", START >> says(calls, "start", sleep=2) >> merges(calls, "finish") >> END, context=Log)
    outer = Graph("outer", START >> plain >> END, context=Log)
    merge = merges(calls)
    return Graph(
        "nested",
        START >> says(calls, "s") >> (team().named("team_a"), team().named("team_b"), outer) >> merge,
        merge.choose(when(more, plain.named("again"), max_hops=2), default=END),
        plain.named("again") >> merge,
        context=Log,
    )


def batch(calls: Calls) -> Graph[Log]:
    """A batch in which calls need others, one asks a person, one fails, one is refused, one runs out of time."""

    @calls.node(max_turns=3)
    async def boss(state: State[Log], step: Step) -> Any:
        if state.turn == 0:
            first = (
                Call("works", "1", id="x"),
                Call("asks", "2", id="y"),
                Call("works", "3", id="z", needs=("x", "y")),
            )
            return Delegate(*first, Call("breaks", "4"), Call("nobody", "5"), update=Update(lines="asked"))
        if state.turn == 1:
            await calls.effect(step, "between", 1)
            return Delegate(Call("slow", "6"), Call("works", "7"))
        return Done(tuple(message.value.finding for message in state.inbox), Update(lines="told"))

    @calls.node
    async def asks(state: State[Log]) -> Any:
        return Pause("how many?", schema=int) if state.turn == 0 else Report(finding=f"{state.values[0]} of them")

    @calls.node
    async def works(state: State[Log], step: Step) -> Done:
        await step.sleep(len(state.inbox))
        brief = state.brief
        assert brief is not None
        return Done(Report(finding=f"{brief.objective}: {len(state.inbox)}"), Update(lines=brief.objective))

    slow, breaks = says(calls, "slow", sleep=99), fails(calls, "breaks")
    return Graph(
        "batch",
        START >> boss >> END,
        boss.delegates(works, asks, breaks, max_hops=3),
        boss.delegates(slow, max_hops=1, timeout=7),
        context=Log,
        max_depth=1,
    )


def deep(calls: Calls) -> Graph[Log]:
    """A node that delegates to itself until the depth refuses it, with shares of the budget."""

    @calls.node
    async def splits(state: State[Log], step: Step) -> Any:
        await step.sleep(1)
        if state.turn == 0:
            return Delegate(Call("splits", "left"), Call("splits", "right"))
        return Report(finding=f"({' '.join(m.value.finding or m.value.status for m in state.inbox)})")

    return Graph(
        "deep",
        START >> splits >> END,
        splits.delegates(splits, max_hops=20, share="equal"),
        context=Log,
        max_depth=2,
        budget=Budget(node_runs=40),
    )


def handing(calls: Calls) -> Graph[Log]:
    """Handoffs until a bound, then to the person for whom the graph escalates."""

    @calls.node
    async def ping(state: State[Log], step: Step) -> Handoff:
        return Handoff("pong", await calls.effect(step, "note", state.visit), Update(lines="ping"))

    @calls.node
    def pong(state: State[Log]) -> Handoff:
        return Handoff("ping", state.values, Update(lines="pong"))

    return Graph(
        "handing",
        START >> ping,
        ping.hands_off(pong),
        pong.hands_off(ping),
        ping >> END,
        pong >> END,
        context=Log,
        max_handoffs=3,
        escalate=Human("human", "what now?"),
    )


# --- time, bounds, people --------------------------------------------------------------------------------------------


def late(calls: Calls) -> Graph[Log]:
    """An attempt that is too slow, twice; then an error edge."""
    slow = says(calls, "slow", sleep=10, timeout=3, retries=1)
    quick = says(calls, "quick", sleep=2, timeout=3)
    return Graph("late", START >> slow >> END, slow.on_error(quick), quick >> END, context=Log)


def thrifty(calls: Calls) -> Graph[Log]:
    """Effects that cost, one that is refused, and a body that catches that."""

    @calls.node(costs=Budget(tool_calls=3))
    async def spends(_: State[Log], step: Step) -> Done:
        done = 0
        try:
            for number in range(5):
                done += await calls.effect(step, f"buy {number}", 1, cost=Budget(tool_calls=1, tokens=10), usage=real)
        except BoundHit as hit:
            await calls.effect(step, f"gave up at {hit.bound}", 1)
        return Done(done, Update(total=done))

    return Graph("thrifty", START >> spends >> END, context=Log, budget=Budget(tokens=1000))


def real(_: int) -> Budget:
    """Tell what an effect really cost."""
    return Budget(tokens=4, usd="0.01")


def crowded(calls: Calls) -> Graph[Log]:
    """More branches than may run at once."""
    sides = tuple(says(calls, name, sleep=n) for n, name in enumerate("abcdef"))
    return Graph("crowded", START >> sides >> merges(calls) >> END, context=Log)


def asking(calls: Calls) -> Graph[Log]:
    """Questions in a chain, in branches, twice in one node, in lanes."""

    @calls.node
    async def twice(state: State[Log], step: Step) -> Any:
        await calls.effect(step, f"before {state.turn}", 1)
        if state.turn < 2:
            return Pause(f"twice {state.turn}?", update=Update(lines=f"asked {state.turn}"))
        return Done(state.values[0], Update(lines=str(state.values[0])))

    a, b = Human("a", "a?", schema=int, into="rounds"), Human("b", "b?")
    merge = merges(calls)
    return Graph(
        "asking",
        START >> says(calls, "s") >> (a, b >> says(calls, "after b"), twice) >> merge,
        merge.map(says(calls, "lane", sleep=1) >> Human("each", "each?"), over=three, join=Join("j"), max_items=3),
        Join("j") >> END,
        context=Log,
    )


def skipping(calls: Calls) -> Any:
    """Make a hook that skips the nodes called `b`, and takes its time."""

    async def hook(state: State[Log]) -> Skip | None:
        calls.made["the hook", str(state.path), state.turn] += 1
        return Skip("not approved") if state.path[-1].name in {"b", "bull"} else None

    return hook


ANSWERS: dict[str, Any] = {
    "ok?": "yes", "how many?": 7, "what now?": "stop", "a?": 3, "b?": "b!", "each?": [1, {"x": None}],
    "twice 0?": "one", "twice 1?": "two",
}  # fmt: skip

PLANS: dict[str, Plan[Log]] = {
    made.__name__: Plan(make=made, context=Log(goal="all"), answers=ANSWERS)
    for made in (
        chain, loop, branches, collected, failing, unanswered, lanes, racing, unmet, nested, batch, deep, handing, late,
        thrifty, asking,
    )
}  # fmt: skip
PLANS["crowded"] = Plan(make=crowded, context=Log(), options={"max_parallel": 2})
PLANS["one at a time"] = Plan(make=branches, context=Log(), options={"max_parallel": 1})
PLANS["hooked"] = Plan(make=loop, context=Log(), hook=skipping)
PLANS["hooked chain"] = Plan(make=chain, context=Log(), hook=skipping)
PLANS["waiting"] = Plan(make=asking, context=Log(), answers={"a?": 1, "twice 0?": "one"})
