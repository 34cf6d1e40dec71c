"""Time: timeouts of nodes and of calls, deadlines at the root and inside, quorums, pauses, and the clock that jumps."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    MemoryJournal,
    Node,
    Pause,
    Report,
    State,
    Step,
    fork,
    node,
    quorum,
    resume,
    run,
    start,
)
from graphflow.errors import NodeTimeout, UsageError
from graphflow.events import Event, NodeEnded, NodeRetried, RunEnded, TimerSet, Warned
from graphflow.testing import ManualClock
from tests.cases.helpers import play
from tests.support import SlowJournal


class Nothing(Context):
    """A context without fields."""


def napper(name: str, seconds: float, **options: Any) -> Node[Nothing]:
    """Make a node that sleeps and gives its name."""

    async def nap(_: State[Nothing], step: Step) -> str:
        await step.sleep(seconds)
        return name

    return node(name=name, **options)(nap)


def asking(name: str, seconds: float = 0, **options: Any) -> Node[Nothing]:
    """Make a node that asks a person, then sleeps."""

    async def ask(state: State[Nothing], step: Step) -> Any:
        if state.turn == 0:
            return Pause(f"{name}?")
        await step.sleep(seconds)
        return name

    return node(name=name, **options)(ask)


def line(*nodes: Node[Any], **options: Any) -> Graph[Nothing]:
    """Make a graph of nodes one after the other."""
    chain: Any = START
    for one in nodes:
        chain = chain >> one
    return Graph("line", chain >> END, context=Nothing, **options)


def boss_of(*calls: str, **edge: Any) -> Callable[..., Graph[Nothing]]:
    """Make a function that gives a graph whose boss calls workers once each, in one batch."""

    def make(*workers: Node[Any], **options: Any) -> Graph[Nothing]:
        async def lead(state: State[Nothing]) -> Any:
            if state.turn == 0:
                return Delegate(*(Call(name, "go") for name in calls))
            return Report(finding=" ".join(message.value.status for message in state.inbox))

        boss = node(name="boss")(lead)
        delegation = boss.delegates(*workers, max_hops=len(calls), **edge)
        return Graph("desk", START >> boss >> END, delegation, context=Nothing, **options)

    return make


def ends(events: tuple[Event, ...] | list[Event]) -> dict[str, tuple[float, str]]:
    """When and how the visits ended, by the last name of their path."""
    return {
        event.body.path[-1].name: (event.at, event.body.status) for event in events if isinstance(event.body, NodeEnded)
    }


# --- timeouts of nodes ---


async def test_a_node_that_takes_too_long_times_out() -> None:
    """At its timeout an attempt is cancelled, and the visit ends as timed out; the run fails without an exception."""
    played = await play(line(napper("slow", 10, timeout=3)), Nothing())

    assert played.error is None
    assert (played.result.status, played.reason.code, played.reason.limit) == ("failed", "timeout", 3.0)
    assert played.reason.error_type == "NodeTimeout"
    assert ends(played.events) == {"slow": (3, "timed_out")}


async def test_an_attempt_that_takes_exactly_its_time_is_in_time() -> None:
    """A completion at the deadline is no timeout; one after it is."""
    for seconds, status in ((3, "completed"), (3.001, "failed")):
        played = await play(line(napper("a", seconds, timeout=3)), Nothing())

        assert played.result.status == status


async def test_each_attempt_has_its_own_time() -> None:
    """A timeout is a failed attempt: a retry begins anew."""
    attempts = itertools.count()

    async def nap(_: State[Nothing], step: Step) -> str:
        await step.sleep(10 if next(attempts) < 2 else 2)
        return "done"

    played = await play(line(node(name="a", timeout=3, retries=2)(nap)), Nothing())

    assert played.result.status == "completed"
    assert [retried.reason.code for retried in played.of(NodeRetried)] == ["timeout", "timeout"]
    assert played.events[-1].at == 8


async def test_a_timeout_can_be_handled() -> None:
    """`on_error` catches it as `NodeTimeout` and as Python's `TimeoutError`."""
    for caught in (NodeTimeout, TimeoutError):
        slow, after = napper("slow", 10, timeout=1), napper("after", 0)
        graph = Graph("g", START >> slow >> END, slow.on_error(after, catch=caught), after >> END, context=Nothing)

        played = await play(graph, Nothing())

        assert (played.result.status, played.result.output) == ("completed", "after")


async def test_waiting_for_a_slot_is_no_time_of_a_node() -> None:
    """A timeout counts from the start of the body: with one slot, three nodes of two seconds pass one of three."""

    def work() -> Node[Nothing]:
        async def fn(_: State[Nothing], step: Step) -> str:
            await step.effect("work", step.sleep, 2)
            return "done"

        return node(name=f"n{next(numbers)}", timeout=3)(fn)

    numbers = itertools.count()
    graph = Graph("g", START >> (work(), work(), work()) >> Join("j") >> END, context=Nothing)

    played = await play(graph, Nothing(), max_parallel=1)

    assert played.result.status == "completed"
    assert played.events[-1].at == 6


async def test_each_turn_has_its_own_time_and_suspension_has_none() -> None:
    """A caller that waits for its reports, or for a person, does not use up its timeout."""

    async def lead(state: State[Nothing], step: Step) -> Any:
        await step.sleep(2)
        return (Delegate(Call("worker", "go")), Pause("sure?"), Report(finding="done"))[state.turn]

    boss, worker = node(name="boss", timeout=3)(lead), napper("worker", 50)
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Nothing)

    played = await play(graph, Nothing(), answers={"sure?": True})

    assert played.result.status == "completed"
    assert played.events[-1].at == 56


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(timeout: float) -> None:
    """A node's timeout is a finite number above zero."""
    with pytest.raises(UsageError, match="timeout"):
        napper("a", 1, timeout=timeout)


# --- timeouts of calls ---


async def test_a_call_that_takes_too_long_is_a_failed_report() -> None:
    """A delegate edge's `timeout=` ends the call, with all that runs in it; the others are not touched."""
    graph = boss_of("slow", "quick", timeout=5)(napper("slow", 10), napper("quick", 4))

    played = await play(graph, Nothing())

    assert played.result.output.finding == "failed done"
    assert played.result.status == "partial"
    assert [(reason.code, reason.limit) for reason in played.result.failures] == [("timeout", 5.0)]
    assert ends(played.events)["slow"] == (5, "cancelled")


async def test_a_call_timeout_covers_everything_in_its_frame() -> None:
    """Two nodes of a delegated graph share the time of the call."""
    team = Graph("team", START >> napper("one", 3) >> napper("two", 3) >> END, context=Nothing)

    played = await play(boss_of("team", timeout=5)(team), Nothing())

    assert played.result.output.finding == "failed"
    assert ends(played.events)["one"] == (3, "completed")
    assert ends(played.events)["two"] == (5, "cancelled")


async def test_waiting_for_an_answer_is_no_time_of_a_call() -> None:
    """A call's time stands still while nothing in its frame does anything but wait for a person."""
    graph = boss_of("ask", "slow", timeout=5)(asking("ask", 4), napper("slow", 4.5))

    played = await play(graph, Nothing(), answers={"ask?": 1})

    assert played.result.output.finding == "done done"
    assert played.events[-1].at == 8.5


async def test_a_call_may_time_out_after_its_answer() -> None:
    """The time that a call had left before its question is what it has after the answer."""
    graph = boss_of("ask", timeout=5)(asking("ask", 6))

    played = await play(graph, Nothing(), answers={"ask?": 1})

    assert played.result.output.finding == "failed"
    assert played.events[-1].at == 5


# --- deadlines ---


async def test_seconds_at_the_root_exhaust_the_run() -> None:
    """At its deadline a run is exhausted; what ran is cancelled, and its visits stay open for more time."""
    events: list[Event] = []
    result = await run(
        line(napper("a", 3), napper("b", 10)),
        Nothing(),
        budget=Budget(seconds=5),
        clock=ManualClock(),
        listeners=[events.append],
    )

    assert result.status == "exhausted"
    assert result.reason is not None
    assert (result.reason.code, result.reason.limit) == ("seconds", 5.0)
    assert ends(events) == {"a": (3, "completed")}
    assert (events[-1].kind, events[-1].at) == ("run_ended", 5)


async def test_a_run_that_takes_exactly_its_seconds_succeeds() -> None:
    """A run that finishes exactly at a bound succeeds."""
    result = await run(line(napper("a", 5)), Nothing(), budget=Budget(seconds=5), clock=ManualClock())

    assert result.status == "completed"


async def test_a_nested_deadline_is_a_bound_of_its_activation() -> None:
    """A nested graph's `seconds` end it; each activation has them anew."""
    inner = Graph("inner", START >> napper("nap", 3) >> END, context=Nothing, budget=Budget(seconds=4))
    result = await run(line(inner, inner.named("again")), Nothing(), clock=ManualClock())
    assert result.status == "completed"

    late = Graph("late", START >> napper("nap", 9) >> END, context=Nothing, budget=Budget(seconds=4))
    graph = Graph("g", START >> fork(late, napper("other", 6), failure="collect") >> Join("j") >> END, context=Nothing)
    played = await play(graph, Nothing())

    assert played.result.status == "partial"
    assert [(reason.code, reason.limit) for reason in played.result.failures] == [("seconds", 4.0)]
    assert ends(played.events)["nap"] == (4, "cancelled")
    assert played.events[-1].at == 6


async def test_a_child_can_only_shorten_a_deadline() -> None:
    """An inner deadline beyond the outer one changes nothing: the outer ends the run first."""
    inner = Graph("inner", START >> napper("nap", 9) >> END, context=Nothing, budget=Budget(seconds=60))
    result = await run(line(inner, budget=Budget(seconds=5)), Nothing(), clock=ManualClock())

    assert result.status == "exhausted"
    assert result.reason is not None
    assert result.reason.limit == 5.0


async def test_a_deadline_reaches_a_callee_as_its_report() -> None:
    """A delegated graph that runs out of its own seconds reports that to its caller, which goes on."""
    team = Graph("team", START >> napper("nap", 9) >> END, context=Nothing, budget=Budget(seconds=2))

    played = await play(boss_of("team")(team), Nothing())

    assert played.result.status == "partial"
    assert [reason.code for reason in played.result.failures] == ["seconds"]
    assert played.events[-1].at == 2


# --- pauses ---


async def test_waiting_for_people_is_no_time_of_a_run() -> None:
    """Active seconds stand still while a run waits: an hour between question and answer counts for nothing."""
    clock = ManualClock()
    graph = line(napper("a", 2), asking("b", 2), budget=Budget(seconds=5))
    async with start(graph, Nothing(), clock=clock) as running:
        waiting = await running.result()
        assert waiting.status == "waiting"
        clock.advance(3600)
        running.answer(waiting.questions[0].id, 1)
        result = await running.result()

    assert result.status == "completed"


async def test_a_deadline_goes_on_after_a_pause() -> None:
    """What was left of the seconds before a pause is what is left after it, also for a body that sets no timer."""
    clock = ManualClock()

    async def ask(state: State[Nothing]) -> Any:
        if state.turn == 0:
            return Pause("b?")
        clock.advance(4)
        return await anyio.sleep_forever()

    graph = line(napper("a", 2), node(name="b")(ask), budget=Budget(seconds=5))
    async with start(graph, Nothing(), clock=clock) as running:
        waiting = await running.result()
        clock.advance(3600)
        running.answer(waiting.questions[0].id, 1)
        result = await running.result()

    assert result.status == "exhausted"


async def test_timers_go_on_while_somebody_is_asked() -> None:
    """A question blocks its own token alone: the sibling's sleep ends, and only then does the run wait."""
    human, nap = Human("human", "ok?"), napper("nap", 7)
    graph = Graph("g", START >> (human, nap) >> Join("j") >> END, context=Nothing)
    events: list[Event] = []

    async with start(graph, Nothing(), clock=ManualClock(), listeners=[events.append]) as running:
        waiting = await running.result()
        assert (waiting.status, events[-1].at) == ("waiting", 7)
        running.answer(waiting.questions[0].id, "yes")
        result = await running.result()

    assert result.output == ("yes", "nap")


# --- quorums ---


async def test_a_quorum_within_its_time_goes_on() -> None:
    """Two of three within five seconds: the join runs at the second; the late one finishes, and is dropped."""
    branches = (napper("a", 1), napper("b", 4), napper("c", 9))
    graph = Graph("g", START >> branches >> Join("j", quorum(2, within=5)) >> END, context=Nothing)

    played = await play(graph, Nothing())

    assert played.result.output == ("a", "b")
    assert ends(played.events) == {
        "a": (1, "completed"),
        "b": (4, "completed"),
        "j": (4, "completed"),
        "c": (9, "completed"),
    }


async def test_a_quorum_past_its_time_is_unmet() -> None:
    """When the time is over first, the join fails with its policy and how many had arrived; what runs is cancelled."""
    branches = (napper("a", 1), napper("b", 8), napper("c", 9))
    join = Join("j", quorum(2, within=5))
    graph = Graph("g", START >> branches >> join >> END, context=Nothing)

    played = await play(graph, Nothing())

    assert (played.result.status, played.reason.code) == ("failed", "join_unmet")
    assert "2 branches within 5 s" in played.reason.text
    assert ends(played.events) == {"a": (1, "completed"), "b": (5, "cancelled"), "c": (5, "cancelled")}


async def test_a_quorum_waits_for_its_time_though_nothing_runs() -> None:
    """A pending quorum is a timer: a run whose branches all ask people waits only when its time is over."""
    branches = (asking("a"), asking("b"))
    graph = Graph("g", START >> branches >> Join("j", quorum(1, within=5)) >> END, context=Nothing)

    played = await play(graph, Nothing())

    assert (played.reason.code, played.events[-1].at) == ("join_unmet", 5)


# --- clocks ---


async def test_the_manual_clock_jumps_over_hours() -> None:
    """Five one-hour sleeps in a row, beside a minute's timeout that is never reached, take no time at all."""
    naps = [napper(f"n{number}", 3600) for number in range(5)]
    began = time.perf_counter()

    played = await play(line(*naps), Nothing())

    assert played.events[-1].at == 5 * 3600
    assert time.perf_counter() - began < 5


async def test_the_manual_clock_waits_for_what_runs() -> None:
    """While a body does something outside, the clock stands still, although another sleeps."""
    clock, seen = ManualClock(), list[float]()

    async def busy(_: State[Nothing], step: Step) -> None:
        async def outside() -> None:
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            await anyio.sleep(0.01)

        await step.effect("outside", outside)
        seen.append(clock.now())

    graph = Graph("g", START >> (node(busy), napper("nap", 10)) >> Join("j") >> END, context=Nothing)
    await run(graph, Nothing(), clock=clock)

    assert seen == [0]
    assert clock.now() == 10


async def test_the_manual_clock_waits_for_a_slow_journal() -> None:
    """A record that is still being stored is not slept over."""
    events: list[Event] = []
    graph = Graph("g", START >> (napper("a", 1), napper("b", 5)) >> Join("j") >> napper("c", 2) >> END, context=Nothing)
    await run(graph, Nothing(), clock=ManualClock(), journal=SlowJournal(0.002), listeners=[events.append])

    assert events[-1].at == 7
    assert [event.at for event in events if isinstance(event.body, TimerSet)] == [0, 0, 5]


async def test_one_clock_may_serve_two_runs() -> None:
    """Two runs that sleep on one clock both come to their end."""
    clock, results = ManualClock(), list[str]()

    async def one(seconds: float) -> None:
        result = await run(line(napper("a", seconds), napper("b", seconds)), Nothing(), clock=clock)
        results.append(result.status)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, 3)
        tasks.start_soon(one, 5)

    assert results == ["completed", "completed"]


async def test_real_time_passes_by_itself() -> None:
    """Without a clock a run takes the machine's time: a sleep is a sleep and a timeout a timeout."""
    began = time.monotonic()
    result = await run(line(napper("a", 0.02), napper("b", 5, timeout=0.02)), Nothing())

    assert (result.status, result.reason and result.reason.code) == ("failed", "timeout")
    assert 0.03 < time.monotonic() - began < 2


async def test_a_body_that_goes_on_after_its_cancellation_is_reported() -> None:
    """Five seconds after it was cancelled, a body that still goes on is said to swallow it; it is waited for."""
    clock = ManualClock()

    async def stubborn(_: State[Nothing]) -> None:
        with anyio.CancelScope(shield=True):
            for _second in range(8):
                clock.advance(1)
                for _turn in range(20):
                    await anyio.lowlevel.checkpoint()

    events: list[Event] = []
    async with start(line(node(stubborn)), Nothing(), clock=clock, listeners=[events.append]) as running:
        async for event in running:
            if event.kind == "node_started":
                break
        await anyio.lowlevel.checkpoint()
        running.cancel()
        result = await running.result()

    assert result.status == "cancelled"
    warned = [event.body for event in events if isinstance(event.body, Warned) and event.body.warning != "loop_blocked"]
    assert {warning.warning for warning in warned} == {"cancel_swallowed"}
    assert "goes on" in warned[0].text
    assert isinstance(events[-1].body, RunEnded)


class Shows:
    """A clock that shows one time after the other, and never waits."""

    jumps = False

    def __init__(self, times: Iterator[float]) -> None:
        self.times = times

    def now(self) -> float:
        return next(self.times)

    async def sleep_until(self, deadline: float) -> None:
        await anyio.lowlevel.checkpoint()

    def all_asleep(self, deadline: float) -> None:
        pass


NAN, ENDLESS = float("nan"), float("inf")
NO_TIMES: dict[str, Callable[[], Iterator[float]]] = {
    "no number": lambda: itertools.chain([1.0, 1.0], itertools.repeat(NAN)),
    "endless": lambda: itertools.chain([1.0, 1.0, 1.0], itertools.repeat(ENDLESS)),
    "backwards": lambda: itertools.count(1000.0, -1.0),
    "stands still": lambda: itertools.repeat(3.0),
}


@pytest.mark.parametrize("times", list(NO_TIMES))
async def test_a_clock_that_shows_no_time_breaks_the_run_off(times: str) -> None:
    """It says so instead of storing what cannot be read, or waiting for ever; another clock goes on with the run."""
    journal = MemoryJournal()
    sleeper = Graph("g", START >> napper("nap", 1.0) >> END, context=Nothing, budget=Budget(node_runs=1))

    with anyio.fail_after(20), pytest.raises(UsageError, match=r"now\(\) gave .* a finite number of seconds is needed"):
        await run(sleeper, Nothing(), journal=journal, run_id="r", clock=Shows(NO_TIMES[times]()))
    result = await resume(sleeper, "r", journal=journal, clock=ManualClock())

    assert result.output == "nap"


@pytest.mark.parametrize("shown", [NAN, ENDLESS, "5"])
async def test_a_run_does_not_begin_without_a_time(shown: Any) -> None:
    """Nothing is stored of it."""
    journal = MemoryJournal()
    sleeper = Graph("g", START >> napper("nap", 1.0) >> END, context=Nothing, budget=Budget(node_runs=1))

    with pytest.raises(UsageError, match=r"now\(\) gave"):
        await run(sleeper, Nothing(), journal=journal, run_id="r", clock=Shows(itertools.repeat(shown)))

    assert not await journal.runs()
