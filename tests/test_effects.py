"""`Step`: effects and what they cost, sleeps, slots, resources, and what a body says while it runs."""

import functools
import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import anyio
import anyio.from_thread
import pytest

from graphflow import (
    ALL,
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    State,
    Step,
    Update,
    append,
    fork,
    node,
    run,
    start,
)
from graphflow.errors import BoundHit, EffectKeyRequired, UsageError
from graphflow.events import EffectFinished, EffectRequested, EffectStarted, Emitted, Event, Refused, RunEnded
from graphflow.model.ids import path_text
from graphflow.testing import ManualClock, MemoryJournal, fold_again
from tests.cases.helpers import play


class Log(Context):
    """What the nodes of a test saw."""

    log: Annotated[tuple[str, ...], append] = ()


def line(*nodes: Node[Any], budget: Budget | None = None) -> Graph[Log]:
    """Make a graph of nodes one after the other."""
    chain: Any = START
    for one in nodes:
        chain = chain >> one
    return Graph("line", chain >> END, context=Log, budget=budget)


def star(*branches: Node[Any], budget: Budget | None = None) -> Graph[Log]:
    """Make a graph of branches at once that collects their failures."""
    return Graph(
        "star", START >> fork(*branches, failure="collect") >> Join("all", ALL) >> END, context=Log, budget=budget
    )


def body(name: str, work: Callable[[Step], Any], **options: Any) -> Node[Log]:
    """Make an async node of what it does with its step."""

    async def fn(_: State[Log], step: Step) -> Any:
        return await work(step)

    return node(name=name, **options)(fn)


async def nothing() -> None:
    """Do nothing, outside."""


def free_of(step: Step) -> Budget:
    """What is left now."""
    return step.left.budget


# --- what an effect costs ---


async def test_an_effect_gives_what_its_function_gives() -> None:
    """Async functions, plain ones in a worker thread, and what is only awaitable: the result comes back."""

    async def doubled(number: int) -> int:
        return 2 * number

    async def work(step: Step) -> tuple[object, ...]:
        thread = await step.effect("sync", lambda: anyio.from_thread.run(doubled, 4))
        return (
            await step.effect("async", doubled, 2),
            await step.effect("partial", functools.partial(doubled, 3)),
            thread,
        )

    played = await play(line(body("a", work)), Log())

    assert played.result.output == (4, 6, 8)


async def test_counts_are_spent_at_the_start_and_tokens_by_use() -> None:
    """While an effect runs its counts are spent and its tokens reserved; then `usage=` says what it really cost."""

    async def work(step: Step) -> Budget:
        during: list[Budget] = []

        async def ask() -> int:
            during.append(free_of(step))
            return 30

        used = await step.effect(
            "ask", ask, cost=Budget(model_calls=1, tokens=100, usd="0.10"), usage=lambda n: Budget(tokens=n, usd="0.03")
        )
        assert used == 30
        return during[0]

    budget = Budget(model_calls=3, tokens=150, usd="1")
    played = await play(line(body("a", work), budget=budget), Log())

    assert played.result.output == Budget(model_calls=2, tokens=50, usd="0.90")
    total = played.result.spent.total
    assert (total.model_calls, total.tokens, total.usd) == (1, 30, Decimal("0.03"))


async def test_an_effect_without_usage_costs_all_that_it_reserved() -> None:
    """Nobody knows better, so the ledger takes the promise; without `cost=` it spends nothing."""

    async def work(step: Step) -> None:
        await step.effect("priced", nothing, cost=Budget(tokens=40))
        await step.effect("free", nothing)

    played = await play(line(body("a", work)), Log())

    assert played.result.spent.total.tokens == 40
    assert played.result.spent.by_node["a"].tokens == 40


async def test_a_failed_effect_costs_all_that_it_reserved_and_raises() -> None:
    """What an effect raises comes out of `effect`, and its failure is recorded."""

    async def broken() -> None:
        msg = "down"
        raise OSError(msg)

    async def work(step: Step) -> str:
        with pytest.raises(OSError, match="down"):
            await step.effect("call", broken, cost=Budget(model_calls=1, tokens=10))
        return "went on"

    played = await play(line(body("a", work)), Log())

    assert (played.result.status, played.result.output) == ("completed", "went on")
    assert (played.result.spent.total.model_calls, played.result.spent.total.tokens) == (1, 10)
    (finished,) = played.of(EffectFinished)
    assert finished.failure is not None
    assert (finished.failure.error_type, finished.failure.text) == ("builtins.OSError", "down")


async def test_usage_that_raises_is_the_failure_of_its_effect() -> None:
    """A broken `usage=` does not leave its reservation behind."""

    async def work(step: Step) -> None:
        with pytest.raises(ZeroDivisionError):
            await step.effect("call", nothing, cost=Budget(tokens=10), usage=lambda _: Budget(tokens=1 // 0))
        assert free_of(step).tokens == 10

    played = await play(line(body("a", work), budget=Budget(tokens=20)), Log())

    assert played.result.status == "completed"


@pytest.mark.parametrize(("bound", "amount"), [("model_calls", 3), ("tool_calls", 3), ("tokens", 30), ("usd", "3")])
async def test_a_refused_effect_costs_nothing_and_says_why(bound: str, amount: Any) -> None:
    """An effect that would exceed the budget raises `BoundHit` in the body, with the numbers, and spends nothing."""
    caught: list[BoundHit] = []

    async def work(step: Step) -> str:
        try:
            await step.effect("dear", nothing, cost=Budget(**{bound: amount}))
        except BoundHit as hit:
            caught.append(hit)
        await step.effect("cheap", nothing, cost=Budget(**{bound: 1}))
        return "went on"

    played = await play(line(body("a", work), budget=Budget(**{bound: 2})), Log())

    (hit,) = caught
    assert (hit.bound, str(hit.limit), str(hit.wanted), str(hit.left)) == (bound, "2", str(amount), "2")
    assert played.result.status == "completed"
    assert getattr(played.result.spent.total, bound) == 1
    assert [(refused.bound, refused.limit) for refused in played.of(Refused)] == [(bound, 2.0)]


async def test_a_bound_that_a_body_lets_pass_ends_the_run_exhausted() -> None:
    """`BoundHit` out of a body is a bound, never an exception of `run()`."""

    async def work(step: Step) -> None:
        await step.effect("call", nothing, cost=Budget(model_calls=2))

    result = await run(line(body("a", work), budget=Budget(model_calls=1)), Log(), clock=ManualClock())

    assert result.status == "exhausted"
    assert result.reason is not None
    assert (result.reason.code, result.reason.limit, result.reason.path) == ("model_calls", 1.0, "a")


async def test_a_bound_in_a_branch_that_fails_fast_is_a_failed_result() -> None:
    """Inside a fork a bound is its branch's failure; it is the library's, so it is not raised either."""

    async def work(step: Step) -> None:
        await step.effect("call", nothing, cost=Budget(model_calls=2))

    graph = Graph(
        "g", START >> (body("a", work), body("b", lambda step: step.sleep(1))) >> Join("j") >> END, context=Log
    )
    played = await play(graph, Log(), budget=Budget(model_calls=1))

    assert played.error is None
    assert (played.result.status, played.reason.code) == ("failed", "model_calls")


async def test_costs_bound_one_attempt_and_a_retry_begins_anew() -> None:
    """`costs=` is what one attempt may spend; what is more is refused as `costs`, whatever the budget has."""
    attempts = itertools.count()

    async def work(step: Step) -> str:
        attempt = next(attempts)
        await step.effect("one", nothing, cost=Budget(model_calls=1))
        await step.effect("two", nothing, cost=Budget(model_calls=1))
        if attempt == 0:
            msg = "again"
            raise ValueError(msg)
        with pytest.raises(BoundHit, match="costs"):
            await step.effect("three", nothing, cost=Budget(model_calls=1))
        with pytest.raises(BoundHit, match="costs"):
            await step.effect("undeclared", nothing, cost=Budget(tokens=1))
        return "done"

    played = await play(line(body("a", work, costs=Budget(model_calls=2), retries=1)), Log())

    assert played.result.status == "completed"
    assert played.result.spent.total.model_calls == 4
    assert played.refused == ["costs", "costs"]


async def test_overshoot_of_tokens_is_paid_and_refuses_what_follows() -> None:
    """An effect that used more than it said takes what is free below zero by exactly that."""

    async def work(step: Step) -> str:
        await step.effect("a", nothing, cost=Budget(tokens=10), usage=lambda _: Budget(tokens=25))
        assert free_of(step).tokens == 0
        with pytest.raises(BoundHit) as caught:
            await step.effect("b", nothing, cost=Budget(tokens=1))
        return str(caught.value.left)

    played = await play(line(body("a", work), budget=Budget(tokens=20)), Log())

    assert played.result.output == "-5"
    assert played.result.spent.total.tokens == 25


async def test_state_left_is_a_snapshot_and_step_left_is_live() -> None:
    """`state.left` stays what it was at the start of the turn, whatever the body spends."""

    async def fn(state: State[Log], step: Step) -> tuple[int | None, ...]:
        await step.effect("e", nothing, cost=Budget(tokens=7))
        return (state.left.budget.tokens, step.left.budget.tokens)

    played = await play(line(node(name="a")(fn), budget=Budget(tokens=20)), Log())

    assert played.result.output == (20, 13)


# --- keys ---


async def test_two_effects_at_once_need_keys() -> None:
    """Without keys their order would be timing: the second is refused; the first goes on."""
    texts: list[str] = []

    async def work(step: Step) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(step.effect, "first", step.sleep, 5))
            await step.sleep(1)
            with pytest.raises(EffectKeyRequired) as caught:
                await step.effect("second", nothing)
            texts.append(str(caught.value))
        await step.effect("third", nothing)
        return "done"

    played = await play(line(body("a", work)), Log())

    assert played.result.status == "completed"
    assert "'second'" in texts[0]
    assert [effect.name for effect in played.of(EffectStarted)] == ["first", "third"]


async def test_effects_with_keys_run_at_once() -> None:
    """Ten effects with keys take as long as one."""

    async def work(step: Step) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(functools.partial(step.effect, "nap", step.sleep, 3, key=f"nap {number}"))

    played = await play(line(body("a", work)), Log())

    assert played.events[-1].at == 3
    assert {effect.key for effect in played.of(EffectStarted)} == {f"nap {number}" for number in range(10)}


async def test_one_key_is_for_one_effect_at_a_time() -> None:
    """A key in flight is refused; when its effect has ended it may be used again."""

    async def work(step: Step) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(step.effect, "nap", step.sleep, 3, key="k"))
            await step.sleep(1)
            with pytest.raises(EffectKeyRequired):
                await step.effect("nap", step.sleep, 1, key="k")
        await step.effect("nap", step.sleep, 1, key="k")

    played = await play(line(body("a", work)), Log())

    assert played.result.status == "completed"


@pytest.mark.parametrize("key", ["", "7", "sleep 0"])
async def test_a_key_is_not_taken_for_a_position(key: str) -> None:
    """A key that reads like the number of an effect, or like none, is refused."""

    async def work(step: Step) -> None:
        with pytest.raises(UsageError, match="key="):
            await step.effect("e", nothing, key=key)

    assert (await play(line(body("a", work)), Log())).result.status == "completed"


async def test_an_effect_inside_an_effect_is_refused() -> None:
    """What happens inside an effect is part of it: one that waited for the other's reservation would wait for ever."""

    async def work(step: Step) -> None:
        async def outer() -> None:
            with pytest.raises(UsageError, match="inside another"):
                await step.effect("inner", nothing, key="inner", cost=Budget(tokens=5))

        await step.effect("outer", outer, key="outer", cost=Budget(tokens=10))
        await step.effect("after", nothing)

    played = await play(line(body("a", work), budget=Budget(tokens=12)), Log())

    assert played.result.status == "completed"


async def test_arguments_leave_a_digest() -> None:
    """Equal arguments have equal digests, others another; the arguments themselves are in no record."""

    async def take(*_: object) -> None:
        pass

    async def work(step: Step) -> None:
        for args in (("x", 1), ("x", 1), ("x", 2)):
            await step.effect("e", take, *args)

    one, two, three = (await play(line(body("a", work)), Log())).of(EffectRequested)

    assert one.digest == two.digest != three.digest


# --- what a body gives up itself ---


async def test_a_body_may_give_up_an_effect_and_go_on() -> None:
    """An effect that the body itself cancels is over: its reservation is paid, and the next one needs no key."""

    async def work(step: Step) -> str:
        with anyio.CancelScope() as scope:

            async def long() -> None:
                scope.cancel()
                await anyio.sleep_forever()

            await step.effect("long", long, cost=Budget(tokens=10))
        assert free_of(step).tokens == 10
        await step.effect("next", nothing, cost=Budget(tokens=10))
        return "done"

    played = await play(line(body("a", work), budget=Budget(tokens=20)), Log())

    assert played.result.output == "done"
    assert played.result.spent.total.tokens == 20


@pytest.mark.parametrize("parallel", [None, 1])
async def test_a_body_may_give_up_a_sleep_and_go_on(parallel: int | None) -> None:
    """A sleep that the body itself cancels leaves no timer behind, and nobody waits for its end."""

    async def work(step: Step) -> float:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(step.sleep, 1000)
                await step.sleep(1)
                scope.cancel()
        await step.sleep(1)
        return step.path[-1].visit

    events: list[Event] = []
    graph = line(body("a", work), body("b", lambda step: step.sleep(1)))
    await run(graph, Log(), clock=ManualClock(), listeners=[events.append], max_parallel=parallel)

    assert events[-1].at == 3


async def test_a_body_may_give_up_waiting_for_a_reservation() -> None:
    """A request that was given up is out of the line: it is never granted, and who is behind it is served."""

    async def holder(step: Step) -> None:
        await step.effect("hold", step.sleep, 10, cost=Budget(tokens=10), usage=lambda _: Budget(tokens=1))

    async def waverer(step: Step) -> str:
        await step.sleep(1)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(step.effect, "wish", nothing, key="w", cost=Budget(tokens=5)))
                await step.sleep(1)
                scope.cancel()
        await step.sleep(20)
        return "went on"

    async def other(step: Step) -> str:
        await step.sleep(3)
        await step.effect("late", nothing, cost=Budget(tokens=9))
        return "served"

    played = await play(star(body("h", holder), body("w", waverer), body("o", other), budget=Budget(tokens=10)), Log())

    assert played.result.output == (*(), "went on", "served")
    assert [effect.name for effect in played.of(EffectStarted)] == ["hold", "late"]


async def test_a_retry_sleeps_its_own_time() -> None:
    """A sleep that an attempt left behind does not wake the next attempt."""
    attempts = itertools.count()

    async def work(step: Step) -> None:
        if next(attempts) == 0:
            await step.sleep(6)
        else:
            await step.sleep(4)

    played = await play(line(body("a", work, retries=1, timeout=5)), Log())

    assert played.result.status == "completed"
    assert played.events[-1].at == 9


async def test_a_retry_does_not_get_what_an_attempt_had_asked_for() -> None:
    """A request that a failed attempt left in line is void: the next attempt's effect of the same number waits anew."""
    attempts = itertools.count()

    async def holder(step: Step) -> None:
        await step.effect("hold", step.sleep, 10, cost=Budget(tokens=10), usage=lambda _: Budget(tokens=1))

    async def work(step: Step) -> str:
        await step.sleep(1)
        if next(attempts) == 0:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(step.effect, "wish", nothing, cost=Budget(tokens=5)))
                await step.sleep(1)
                msg = "enough"
                raise ValueError(msg)
        await step.effect("second", nothing, cost=Budget(tokens=6))
        return "served"

    graph = star(body("h", holder), body("w", work, retries=1), budget=Budget(tokens=10))
    played = await play(graph, Log())

    assert played.result.output == ("served",)
    assert [effect.name for effect in played.of(EffectStarted)] == ["hold", "second"]
    assert played.result.spent.total.tokens == 7


async def test_a_cancelled_body_starts_nothing_more() -> None:
    """A body that cleans up under a shield is told that it can start no effect, instead of waiting for ever."""
    texts: list[str] = []

    async def work(step: Step) -> None:
        try:
            await step.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                for ask in (functools.partial(step.effect, "e", nothing), functools.partial(step.sleep, 1)):
                    with pytest.raises(UsageError) as caught:
                        await ask()
                    texts.append(str(caught.value))

    played = await play(line(body("a", work, timeout=1)), Log())

    assert played.reason.code == "timeout"
    assert len(texts) == 2
    assert "was cancelled" in texts[0]


async def test_a_shielded_wait_is_told_when_its_body_is_cancelled() -> None:
    """A body that waits for the fold under a shield is woken when it is cancelled."""

    async def work(step: Step) -> None:
        with anyio.CancelScope(shield=True), pytest.raises(UsageError, match="was cancelled"):
            await step.sleep(100)

    played = await play(line(body("a", work, timeout=1)), Log())

    assert played.reason.code == "timeout"
    assert played.events[-1].at == 1


async def test_a_step_that_outlives_its_body_starts_nothing() -> None:
    """A step that was kept is refused when its visit has ended."""
    kept: list[Step] = []

    async def first(step: Step) -> None:
        kept.append(step)

    async def second(_: Step) -> None:
        with pytest.raises(UsageError, match="has ended"):
            await kept[0].effect("late", nothing)
        kept[0].emit("late")

    played = await play(line(body("a", first), body("b", second)), Log())

    assert played.result.status == "completed"
    assert played.of(Emitted) == []


# --- waiting for reservations ---


async def order_of(graph: Graph[Log], parallel: int | None = None) -> tuple[list[str], float, Any]:
    """Run a graph; return the effects in the order in which they started, the end's time, and the result."""
    played = await play(graph, Log(), max_parallel=parallel)
    return [effect.name for effect in played.of(EffectStarted)], played.events[-1].at, played.result


def asker(name: str, tokens: int, *, after: float = 0, takes: float = 1, used: int = 0) -> Node[Log]:
    """Make a node that asks for tokens at a time, holds them for a while and uses few."""

    async def work(step: Step) -> str:
        await step.sleep(after)
        await step.effect(name, step.sleep, takes, cost=Budget(tokens=tokens), usage=lambda _: Budget(tokens=used))
        return name

    return body(name, work)


@pytest.mark.parametrize("parallel", [None, 1, 2, 4])
async def test_reservations_wait_in_line(parallel: int | None) -> None:
    """Who cannot be granted now, but could when those in flight settle, waits; first come, first served."""
    askers = [asker(name, 8, after=number) for number, name in enumerate("abcd")]

    order, at, result = await order_of(star(*askers, budget=Budget(tokens=10)), parallel)

    assert result.status == "completed"
    assert order == ["a", "b", "c", "d"]
    assert at == 4


async def test_a_small_request_does_not_pass_a_large_one() -> None:
    """One that could be granted at once queues behind one that waits for the same tokens."""
    askers = [asker("a", 8, takes=10), asker("large", 9, after=1), asker("small", 1, after=2)]

    order, _, _ = await order_of(star(*askers, budget=Budget(tokens=10)))

    assert order == ["a", "large", "small"]


async def test_the_line_is_kept_for_each_account() -> None:
    """Somebody who waits on one nested graph's budget does not hold up another's."""
    inner = [
        Graph(
            f"g{number}",
            START
            >> fork(asker(f"{number}a", 8, takes=10 * number), asker(f"{number}b", 8, after=1), failure="collect")
            >> Join("j")
            >> END,
            context=Log,
            budget=Budget(tokens=10),
        )
        for number in (2, 1)
    ]

    order, at, result = await order_of(star(*inner))

    assert result.status == "completed"
    assert order[2:] == ["1b", "2b"]
    assert at == 21


async def test_what_nothing_in_flight_can_help_is_refused_at_once() -> None:
    """A request for more than could ever come back does not wait for it."""

    async def work(step: Step) -> str:
        await step.sleep(1)
        with pytest.raises(BoundHit):
            await step.effect("huge", nothing, cost=Budget(tokens=11))
        with pytest.raises(BoundHit):
            await step.effect("calls", nothing, cost=Budget(model_calls=2, tokens=1))
        return str(step.left.budget.tokens)

    graph = star(asker("a", 8, takes=10), body("b", work), budget=Budget(tokens=10, model_calls=1))
    played = await play(graph, Log())

    refusals = [event.at for event in played.events if isinstance(event.body, Refused)]
    assert refusals == [1, 1]


async def test_who_waited_in_vain_is_refused() -> None:
    """When what was in flight has used too much, those who waited for it are refused in turn."""
    askers = [asker("a", 8, used=8), asker("b", 8, after=0.5), asker("c", 2, after=0.7)]

    played = await play(star(*askers, budget=Budget(tokens=10)), Log())

    assert played.result.status == "partial"
    assert [reason.path for reason in played.result.failures] == ["b"]
    assert [effect.name for effect in played.of(EffectStarted)] == ["a", "c"]


async def test_an_effect_waits_for_its_own_siblings() -> None:
    """Two effects of one body share its tokens: the second waits until the first has settled."""

    async def work(step: Step) -> None:
        async with anyio.create_task_group() as tasks:
            for key in ("x", "y", "z"):
                ask = functools.partial(
                    step.effect, key, step.sleep, 1, key=key, cost=Budget(tokens=8), usage=lambda _: Budget(tokens=1)
                )
                tasks.start_soon(ask)

    order, at, result = await order_of(line(body("a", work), budget=Budget(tokens=10)), 1)

    assert result.status == "completed"
    assert sorted(order) == ["x", "y", "z"]
    assert at == 3


async def test_nobody_waits_for_a_suspended_caller() -> None:
    """What stands reserved above a callee never makes it wait: it is refused."""
    worker = asker("worker", 6)

    async def lead(state: State[Log]) -> Any:
        return Delegate(Call("worker", "a"), Call("worker", "b")) if state.turn == 0 else Report(finding="done")

    boss = node(name="boss")(lead)
    graph = Graph(
        "g", START >> boss >> END, boss.delegates(worker, max_hops=2, share=0.5), context=Log, budget=Budget(tokens=10)
    )

    played = await play(graph, Log())

    assert played.result.status == "partial"
    assert {reason.code for reason in played.result.failures} == {"tokens"}
    assert played.events[-1].at == 0


async def test_a_pool_call_waits_for_a_split_sibling() -> None:
    """What a running split sibling holds may come back: a call that spends from the pool waits for it."""
    split, pool = asker("split", 6, takes=5, used=1), asker("pool", 6, after=1)

    async def lead(state: State[Log]) -> Any:
        return Delegate(Call("split", "a"), Call("pool", "b")) if state.turn == 0 else Report(finding="done")

    boss = node(name="boss")(lead)
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(split, max_hops=1, share=0.6),
        boss.delegates(pool, max_hops=1),
        context=Log,
        budget=Budget(tokens=10),
    )

    order, at, result = await order_of(graph)

    assert result.status == "completed"
    assert order == ["split", "pool"]
    assert at == 6


# --- slots ---


def busy_node(name: str, running: list[int], peaks: list[int], *, nap: float = 0) -> Node[Log]:
    """Make a node that counts how many of its kind are at work at once, around a nap."""

    async def work(step: Step) -> str:
        async def busy() -> None:
            running[0] += 1
            peaks.append(running[0])
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            running[0] -= 1

        await busy()
        await step.sleep(nap)
        await step.effect("work", busy)
        return name

    return body(name, work)


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_no_more_bodies_work_than_there_are_slots(limit: int) -> None:
    """A body and its effects share one slot; asleep it holds none; the peak is the limit, and all come through."""
    running, peaks = [0], [0]
    nodes = [busy_node(f"n{number}", running, peaks, nap=number % 3) for number in range(8)]

    played = await play(star(*nodes), Log(), max_parallel=limit)

    assert played.result.status == "completed"
    assert played.result.output == tuple(f"n{number}" for number in range(8))
    assert max(peaks) == limit


async def test_a_sleeping_body_leaves_its_slot_to_others() -> None:
    """With one slot, eight bodies that sleep take as long as one."""
    nodes = [body(f"n{number}", lambda step: step.sleep(5)) for number in range(8)]

    played = await play(star(*nodes), Log(), max_parallel=1)

    assert played.events[-1].at == 5


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_no_limit_of_slots_deadlocks(limit: int) -> None:
    """Effects in flight, waits for reservations, sleeps, delegations, nested graphs and pauses in one run."""

    async def work(step: Step) -> str:
        async with anyio.create_task_group() as tasks:
            for key in ("x", "y"):
                ask = functools.partial(
                    step.effect, key, step.sleep, 1, key=key, cost=Budget(tokens=8), usage=lambda _: Budget(tokens=1)
                )
                tasks.start_soon(ask)
            tasks.start_soon(step.sleep, 2)
        return "done"

    workers = [body(f"w{number}", work) for number in range(3)]

    async def lead(state: State[Log]) -> Any:
        calls = [Call(worker.name, "go") for worker in workers]
        return Delegate(*calls) if state.turn == 0 else Report(finding="done")

    boss = node(name="boss")(lead)
    inner = Graph("inner", START >> boss >> END, boss.delegates(*workers, max_hops=1), context=Log)

    played = await play(star(inner, *workers, budget=Budget(tokens=20)), Log(), max_parallel=limit)

    assert played.result.status == "completed"
    assert played.result.spent.total.tokens == 12


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
async def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    """`max_parallel` is a whole number of at least one."""
    with pytest.raises(UsageError, match="max_parallel"):
        await run(line(body("a", lambda step: step.sleep(0))), Log(), max_parallel=limit)


# --- sync bodies and threads ---


async def test_a_sync_body_reaches_its_step_through_the_loop() -> None:
    """A sync body runs in a worker thread; effects and sleeps go through `anyio.from_thread`."""

    def fn(_: State[Log], step: Step) -> int:
        ask = functools.partial(step.effect, "count", len, "four", cost=Budget(tool_calls=1))
        length: int = anyio.from_thread.run(ask)
        anyio.from_thread.run(step.sleep, 60)
        return length

    played = await play(line(node(name="a")(fn)), Log())

    assert played.result.output == 4
    assert played.result.spent.total.tool_calls == 1
    assert played.events[-1].at == 60


async def test_a_bound_reaches_a_sync_body() -> None:
    """`BoundHit` is raised in the thread, with its numbers."""

    def fn(_: State[Log], step: Step) -> str:
        try:
            anyio.from_thread.run(functools.partial(step.effect, "e", nothing, cost=Budget(tokens=2)))
        except BoundHit as hit:
            return hit.bound
        return "granted"

    played = await play(line(node(name="a")(fn), budget=Budget(tokens=1)), Log())

    assert played.result.output == "tokens"


@pytest.mark.parametrize("journal", [None, MemoryJournal()], ids=["unrecorded", "recorded"])
async def test_what_a_body_says_is_heard_in_its_order(journal: MemoryJournal | None) -> None:
    """`emit` from the loop, from a sync body and from an effect's thread: in order, before its node has ended."""

    def aloud(_: State[Log], step: Step) -> None:
        step.emit("sync 1")
        step.emit("sync 2")

    async def work(step: Step) -> None:
        step.emit("async 1")
        await step.effect("e", lambda: step.emit("effect"))
        step.emit("async 2")

    events: list[Event] = []
    graph = line(node(name="a")(aloud), body("b", work))
    result = await run(graph, Log(), clock=ManualClock(), listeners=[events.append], journal=journal)

    said = [event.body.value for event in events if isinstance(event.body, Emitted)]
    assert said == ["sync 1", "sync 2", "async 1", "effect", "async 2"]
    assert isinstance(events[-1].body, RunEnded)
    if journal is not None:
        fold_again(graph, await journal.read(result.run_id))


# --- resources ---


class Pool:
    """A resource."""


class SmallPool(Pool):
    """A resource of a narrower class."""


async def test_resources_are_found_by_class() -> None:
    """The one resource that is an instance of a class is found, from async and from sync bodies."""
    pool = SmallPool()

    async def work(step: Step) -> bool:
        return step.resource(Pool) is step.resource(SmallPool) is pool

    def fn(_: State[Log], step: Step) -> bool:
        return step.resource(Pool) is pool

    for one in (body("a", work), node(name="a")(fn)):
        result = await run(line(one), Log(), resources=[pool, "a text"])
        assert result.output is True


@pytest.mark.parametrize(("resources", "found"), [([], "none"), ([Pool(), SmallPool()], "2"), (["x"], "none")])
async def test_a_resource_that_is_not_exactly_one_is_an_error(resources: list[object], found: str) -> None:
    """None or several: the error names the class and what was given."""

    async def work(step: Step) -> None:
        step.resource(Pool)

    with pytest.raises(UsageError, match=f"class Pool, and the run has {found} of it"):
        await run(line(body("a", work)), Log(), resources=resources)


async def test_an_update_after_effects_is_kept() -> None:
    """Effects do not stand in the way of what the node returns."""

    async def work(step: Step) -> Update:
        await step.effect("e", nothing)
        return Update(log=path_text(step.path))

    played = await play(line(body("a", work), body("b", work)), Log())

    assert played.result.context.log == ("a", "b")


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
async def test_a_sleep_that_makes_no_sense_is_refused(seconds: float) -> None:
    """Only a finite number of seconds of at least zero can be slept."""

    async def work(step: Step) -> None:
        with pytest.raises(UsageError, match="sleep"):
            await step.sleep(seconds)

    assert (await play(line(body("a", work)), Log())).result.status == "completed"


async def test_no_effect_is_left_in_flight_by_a_handle() -> None:
    """A run that is left while effects are in flight cancels them; what they reserved is paid."""
    seen: list[str] = []

    async def long() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")

    async def work(step: Step) -> None:
        await step.effect("long", long, cost=Budget(tokens=7))

    async with start(line(body("a", work), budget=Budget(tokens=10)), Log(), clock=ManualClock()) as running:
        async for event in running:
            if isinstance(event.body, EffectStarted):
                break

    assert seen == ["cancelled"]
    assert running.outcome.status == "cancelled"
    assert running.spent.total.tokens == 7
