"""Cases I: timeouts, cancellation, and interrupts; effects stand where agents have tools."""

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    Result,
    Run,
    Skip,
    State,
    Step,
    node,
    run,
    start,
)
from graphflow.errors import UsageError
from graphflow.events import Event, NodeEnded, NodeSkipped, NodeStarted, RunEnded, Warned
from graphflow.testing import ManualClock
from tests.cases.helpers import play
from tests.support import examples
from tests.test_budget import Nothing as TreeContext
from tests.test_budget import tree


class Nothing(Context):
    """A context without fields."""


def line(*nodes: Node[Any]) -> Graph[Nothing]:
    """Make a graph of nodes one after the other."""
    chain: Any = START
    for one in nodes:
        chain = chain >> one
    return Graph("line", chain >> END, context=Nothing)


def named(name: str) -> Node[Nothing]:
    """Make a node that gives its name."""

    async def say(_: State[Nothing]) -> str:
        return name

    return node(name=name)(say)


async def turns(number: int = 20) -> None:
    """Let everything else go on."""
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


# --- I1 ---


@pytest.mark.may_block
async def test_i1_a_blocking_body_past_its_timeout_is_late() -> None:
    """A call that blocks the loop past the timeout ends in a NodeTimeout that says so, and in a warning."""

    @node(timeout=0.1)
    async def blocks(_: State[Nothing]) -> str:
        time.sleep(0.15)  # noqa: ASYNC251 - blocking is the case
        return "too late"

    events: list[Event] = []
    result = await run(line(blocks), Nothing(), listeners=[events.append])

    assert result.status == "failed"
    assert result.reason is not None
    assert (result.reason.code, result.reason.error_type) == ("timeout", "NodeTimeout")
    assert re.search(r"took 0\.(1[5-9]|[2-9])", result.reason.text)  # at least as long as it blocked
    warnings = [event.body for event in events if isinstance(event.body, Warned)]
    assert [warning.warning for warning in warnings] == ["loop_blocked"]
    assert re.search(r"kept the loop for 0\.(1[5-9]|[2-9])", warnings[0].text)


@pytest.mark.may_block
async def test_i1_a_body_that_blocks_within_its_time_is_warned_of() -> None:
    """No timeout, but never without a word: whichever stretch of the body it was."""

    @node
    async def blocks(_: State[Nothing]) -> str:
        await anyio.lowlevel.checkpoint()
        time.sleep(0.12)  # noqa: ASYNC251 - blocking is the case
        await anyio.lowlevel.checkpoint()
        return "done"

    events: list[Event] = []
    result = await run(line(blocks), Nothing(), listeners=[events.append])

    assert result.status == "completed"
    assert [event.body.warning for event in events if isinstance(event.body, Warned)] == ["loop_blocked"]


async def test_i1_a_sync_body_past_its_timeout_is_abandoned() -> None:
    """A thread cannot be stopped: its node times out at once, its result is dropped, and the run says so."""
    go_on, stopped = threading.Event(), threading.Event()

    @node(timeout=0.02)
    def blocks(_: State[Nothing], step: Step) -> str:
        go_on.wait(10)
        if step.cancelled:
            stopped.set()
        step.emit("nobody hears this")
        return "too late"

    events: list[Event] = []
    result = await run(line(blocks), Nothing(), listeners=[events.append])
    go_on.set()

    assert result.reason is not None
    assert result.reason.code == "timeout"
    assert [event.body.warning for event in events if isinstance(event.body, Warned)] == ["thread_abandoned"]
    assert await anyio.to_thread.run_sync(stopped.wait, 5)
    assert "emitted" not in [event.kind for event in events]


async def test_i1_an_abandoned_thread_cannot_start_effects() -> None:
    """What it asks for is refused in the thread; nothing waits for an answer."""
    go_on, ended, found = threading.Event(), threading.Event(), list[BaseException]()

    async def nothing() -> None:
        pass

    @node(timeout=0.02)
    def blocks(_: State[Nothing], step: Step) -> None:
        go_on.wait(10)
        try:
            anyio.from_thread.run(step.effect, "late", nothing)
        except BaseException as error:  # noqa: BLE001 - which one it is, is the question
            found.append(error)
        ended.set()

    events: list[Event] = []
    await run(line(blocks), Nothing(), listeners=[events.append])
    go_on.set()

    assert await anyio.to_thread.run_sync(ended.wait, 5)
    assert isinstance(found[0], UsageError) or "Cancel" in type(found[0]).__name__
    assert "effect_requested" not in [event.kind for event in events]


# --- I3 ---


async def test_i3_the_nearest_timeout_counts() -> None:
    """A default that is given with every node is overridden where a node has its own."""

    def quick(name: str, fn: Callable[[State[Nothing], Step], Any], *, timeout: float = 0.05) -> Node[Nothing]:
        return node(name=name, timeout=timeout)(fn)

    async def nap(_: State[Nothing], step: Step) -> str:
        await step.sleep(0.2)
        return "done"

    patient, hasty = quick("n", nap, timeout=2.0), quick("m", nap)
    played = await play(line(patient, hasty), Nothing())

    assert played.ended == {"n": "completed", "m": "timed_out"}
    assert (played.reason.code, played.reason.limit) == ("timeout", 0.05)


# --- I5 ---


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), cancel_at=st.integers(0, 150), parallel=st.sampled_from((None, 1, 2)))
async def test_i5_every_started_visit_has_one_terminal_event(seed: int, cancel_at: int, parallel: int | None) -> None:
    """Random trees, cancelled at a random event: one end for each visit that started, and no end of another."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event.seq == cancel_at:
            running.cancel()

    graph = tree(seed)
    async with start(graph, TreeContext(), clock=ManualClock(), listeners=[listen], max_parallel=parallel) as running:
        try:
            result = await running.result()
        except ValueError:
            result = running.outcome

    started = [event.path for event in events if isinstance(event.body, NodeStarted)]
    ended = [event.path for event in events if isinstance(event.body, NodeEnded)]
    assert len(set(ended)) == len(ended)
    if result.status == "exhausted":
        assert set(ended) <= set(started)
    else:
        assert sorted(started) == sorted(ended)
    assert [isinstance(event.body, RunEnded) for event in events].count(True) == 1


# --- I7 ---


@pytest.mark.parametrize("times", [1, 3])
async def test_i7_a_swallowed_cancellation_commits_nothing(times: int) -> None:
    """A body that catches everything and returns is waited for; what it returned is dropped, and the run says so."""

    @node(into="kept")
    async def swallows(_: State[Any], step: Step) -> int:
        for _time in range(times):
            with contextlib.suppress(BaseException):  # swallowing it is the case
                await anyio.sleep_forever()
        return step.path[-1].visit

    class Kept(Context):
        kept: int = 0

    events: list[Event] = []
    graph = Graph("g", START >> swallows >> named("after") >> END, context=Kept)
    async with start(graph, Kept(), listeners=[events.append]) as running:
        async for event in running:
            if isinstance(event.body, NodeStarted):
                break
        await turns()
        running.cancel()
        result = await running.result()

    assert result.status == "cancelled"
    assert result.context.kept == 0
    assert [event.path[-1].name for event in events if isinstance(event.body, NodeStarted)] == ["swallows"]
    warned = [event.body for event in events if isinstance(event.body, Warned) and event.body.warning != "loop_blocked"]
    assert [(warning.path[-1].name, warning.warning) for warning in warned] == [("swallows", "cancel_swallowed")]


# --- I9 ---


@settings(max_examples=examples(1000))
@given(
    seed=st.integers(0, 2**32), how=st.sampled_from(("scope", "break", "raise", "timeout")), after=st.integers(0, 60)
)
async def test_i9_cancelling_a_stream_leaks_nothing(seed: int, how: str, after: int) -> None:
    """Whatever stops a reader, and wherever: its own cancellation or error comes out, and no task is left."""
    before = {task.id for task in anyio.get_running_tasks()}
    found: BaseException | None = None
    try:
        with anyio.CancelScope() as scope:
            await _read(tree(seed), how, after, scope)
    except (LookupError, TimeoutError) as error:
        found = error

    assert not isinstance(found, TimeoutError) or how == "timeout"
    assert not isinstance(found, LookupError) or how == "raise"
    assert {task.id for task in anyio.get_running_tasks()} <= before


async def _read(graph: Graph[Any], how: str, after: int, scope: anyio.CancelScope) -> None:
    async with start(graph, TreeContext(), clock=ManualClock()) as running:
        async for event in running:
            if event.seq < after:
                continue
            if how == "break":
                break
            if how == "raise":
                raise LookupError(how)
            if how == "timeout":
                with anyio.fail_after(-1):
                    await anyio.sleep_forever()
            scope.cancel()


# --- I11 ---


def raising(where: str, error: BaseException) -> Node[Nothing]:
    """Make a node that raises an error in its body or in an effect, on the loop or in a thread."""

    def throw() -> None:
        raise error

    async def throw_async() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    async def body(_: State[Nothing], step: Step) -> None:
        if where == "body":
            throw()
        with contextlib.suppress(Exception):  # a bare except is the case
            await step.effect("tool", throw_async if where == "effect" else throw)

    def sync_body(_: State[Nothing]) -> None:
        throw()

    return node(name="n")(sync_body if where == "sync body" else body)


@pytest.mark.parametrize("where", ["body", "sync body", "effect", "sync effect"])
@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=["interrupt", "exit"])
async def test_i11_interrupts_pass_unchanged(where: str, error: BaseException) -> None:
    """KeyboardInterrupt and SystemExit end the run wherever they are raised; the very object comes out, in no group."""
    events: list[Event] = []
    graph = Graph("g", START >> (raising(where, error), forever("m")) >> Join("j") >> END, context=Nothing)

    with pytest.raises(type(error)) as caught:
        await run(graph, Nothing(), listeners=[events.append])

    assert caught.value is error
    assert "run_ended" not in [event.kind for event in events]


@pytest.mark.parametrize("where", ["effect", "sync effect"])
async def test_i11_an_exception_of_an_effect_is_data_for_its_body(where: str) -> None:
    """A ValueError is caught by the body that asked for the effect, and the run completes."""
    played = await play(line(raising(where, ValueError("no"))), Nothing())

    assert played.result.status == "completed"


def forever(name: str) -> Node[Nothing]:
    """Make a node that waits until it is cancelled."""

    async def wait(_: State[Nothing]) -> None:
        await anyio.sleep_forever()

    return node(name=name)(wait)


# --- I13 ---


def skip(*names: str) -> Callable[[State[Any]], Skip | None]:
    """Make a hook that skips nodes by name."""
    return lambda state: Skip("not approved") if state.path[-1].name in names else None


async def skipping(graph: Graph[Nothing], *names: str) -> tuple[Result[Nothing], list[Event]]:
    """Run a graph with a hook that skips nodes."""
    events: list[Event] = []
    result = await run(graph, Nothing(), before=skip(*names), listeners=[events.append])
    return result, events


async def test_i13_a_skipped_node_is_passed() -> None:
    """In a -> b -> c, b is skipped with the reason, recorded as a fact, and c runs with an empty inbox."""
    inboxes: list[Any] = []

    @node
    async def c(state: State[Nothing]) -> str:
        inboxes.append(state.inbox)
        return "c"

    result, events = await skipping(line(named("a"), named("b"), c), "b")

    assert (result.status, result.output) == ("completed", "c")
    assert inboxes == [()]
    skipped = [event.body for event in events if isinstance(event.body, NodeSkipped)]
    assert [(body.path[-1].name, body.reason.text) for body in skipped] == [("b", "not approved")]
    assert [event.kind for event in events].count("hook_answered") == 3


async def test_i13_any_part_of_a_graph_can_be_skipped() -> None:
    """A branch, a join, a nested graph, the last node: the token goes on each time."""
    inner = Graph("inner", START >> named("x") >> END, context=Nothing)
    graph = Graph("g", START >> (named("a"), named("b")) >> Join("j") >> inner >> named("z") >> END, context=Nothing)

    for names, started in (
        (("a",), ["b", "j", "inner", "x", "z"]),
        (("a", "b"), ["j", "inner", "x", "z"]),
        (("j",), ["a", "b", "inner", "x", "z"]),
        (("inner",), ["a", "b", "j", "z"]),
        (("x",), ["a", "b", "j", "inner", "z"]),
        (("z",), ["a", "b", "j", "inner", "x"]),
    ):
        result, events = await skipping(graph, *names)

        assert result.status == "completed"
        assert sorted(e.path[-1].name for e in events if isinstance(e.body, NodeStarted)) == sorted(started)


async def test_i13_a_skipped_callee_reports_that_it_was_skipped() -> None:
    """Its caller gets a failed report with the reason, and goes on."""

    async def lead(state: State[Nothing]) -> Any:
        return Delegate(Call("b", "go")) if state.turn == 0 else Report(finding=state.inbox[0].value.reason.code)

    boss = node(name="boss")(lead)
    graph = Graph("g", START >> boss >> END, boss.delegates(named("b"), max_hops=1), context=Nothing)

    result, _ = await skipping(graph, "b")

    assert result.output.finding == "skipped"


async def test_i13_random_skips_never_break_a_run() -> None:
    """Any set of nodes may be skipped: the run ends, and nothing that was skipped ran."""
    chance = random.Random(5)
    graph = Graph(
        "g",
        START >> named("a") >> (named("b"), named("c") >> named("d")) >> Join("j") >> named("e") >> END,
        context=Nothing,
    )
    for _ in range(40):
        names = [name for name in "abcdje" if chance.random() < 0.4]
        result, events = await skipping(graph, *names)

        assert result.status == "completed"
        assert not {e.path[-1].name for e in events if isinstance(e.body, NodeStarted)} & set(names)


async def test_i_cancelling_from_another_task_is_prompt() -> None:
    """Every body sees its cancellation, wherever it waits, and the run ends as cancelled."""
    seen: list[str] = []

    def waits(name: str, wait: Callable[[Step], Any]) -> Node[Nothing]:
        async def body(_: State[Nothing], step: Step) -> None:
            try:
                await wait(step)
            finally:
                seen.append(name)

        return node(name=name)(body)

    async def forever_outside() -> None:
        await anyio.sleep_forever()

    nodes = (
        waits("outside", lambda _: anyio.sleep_forever()),
        waits("asleep", lambda step: step.sleep(1e6)),
        waits("effect", lambda step: step.effect("e", forever_outside)),
    )
    graph = Graph("g", START >> nodes >> Join("j") >> END, context=Nothing)

    async def cancel(running: Run[Nothing]) -> None:
        await turns()
        running.cancel()

    async with start(graph, Nothing()) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(cancel, running)
        await running.result()

    assert running.outcome.status == "cancelled"
    assert sorted(seen) == ["asleep", "effect", "outside"]
