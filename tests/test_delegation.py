"""Delegation between function nodes: batches, needs, bounds, contracts, shares, and one report for each call."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    Reason,
    Report,
    Skip,
    State,
    Step,
    Update,
    append,
    node,
    run,
    run_sync,
    when,
)
from graphflow.events import EdgeTaken, FrameClosed, NodeEnded
from graphflow.model.state import Message
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ManualClock
from tests.cases.helpers import Played, play
from tests.support import examples


class Case(Context):
    """What callers and callees write."""

    reports: Annotated[tuple[Report, ...], append] = ()
    notes: Annotated[tuple[str, ...], append] = ()
    k: int = 0


Answer = Callable[[State[Any]], Any]


def worker(name: str, answer: object = "done", seconds: float = 0.0, **options: Any) -> FunctionNode[Context]:
    """A callee that takes its time, then answers, or raises."""

    @node(name=name, **options)
    async def work(state: State[Context], step: Step) -> object:
        if seconds:
            await step.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return work


def asks(*calls: Call, name: str = "boss", **options: Any) -> FunctionNode[Case]:
    """A caller that delegates once, then gives the reports."""

    @node(name=name, **options)
    async def ask(state: State[Case]) -> Any:
        return Delegate(*calls) if state.turn == 0 else state.values

    return ask


def team(boss: FunctionNode[Case], *workers: Node[Any], max_hops: int = 9, **options: Any) -> Graph[Case]:
    """A graph in which one node delegates to others."""
    return Graph(
        "main",
        START >> boss >> END,
        boss.delegates(*workers, max_hops=max_hops, **options),
        context=Case,
        max_depth=3,
    )


def codes(played: Played[Any]) -> list[str]:
    """The status or the reason code of each report in the output."""
    return [report.reason.code if report.reason is not None else report.status for report in played.result.output]


# --- a batch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [0, 1, 2])
async def test_reports_come_back_in_call_order(slow: int) -> None:
    """The caller is entered again, in the same visit and the next turn, with the reports in call order."""
    seen: list[tuple[int, int, tuple[Message, ...]]] = []

    @node
    async def boss(state: State[Case]) -> Delegate | str:
        seen.append((state.visit, state.turn, state.inbox))
        return Delegate(*(Call(name, "work") for name in "abc")) if state.turn == 0 else "end"

    workers = [worker(name, name, float(position == slow)) for position, name in enumerate("abc")]

    played = await play(team(boss, *workers), Case())

    assert seen == [(1, 0, ()), (1, 1, tuple(Message(name, Report(finding=name)) for name in "abc"))]
    assert played.result.status == "completed"
    assert played.started == ["boss", "boss/a", "boss/b", "boss/c"]


async def test_one_callee_may_be_called_several_times_in_a_batch() -> None:
    """Each call is a frame of its own, with the turn and its position in the path, and its own brief."""

    @node
    async def echo(state: State[Context]) -> str:
        assert state.brief is not None
        return f"{state.brief.objective} at depth {state.depth}"

    boss = asks(Call("echo", "one"), Call("echo", "two"))

    played = await play(team(boss, echo), Case())

    assert [report.finding for report in played.result.output] == ["one at depth 1", "two at depth 1"]
    assert set(played.ended) == {"boss", "boss/echo@0.0", "boss/echo@0.1"}


async def test_each_turn_of_a_caller_may_delegate_again() -> None:
    """Calls of later turns have paths of their own."""

    @node
    async def boss(state: State[Case]) -> Delegate | str:
        return Delegate(Call("w", f"part {state.turn}")) if state.turn < 3 else "end"

    played = await play(team(boss, worker("w"), max_hops=3), Case())

    assert sorted(played.ended) == ["boss", "boss/w@0.0", "boss/w@1.0", "boss/w@2.0"]
    assert played.result.output == "end"


async def test_hops_are_numbered_one_by_one() -> None:
    """Each call that starts is one traversal of its edge, counted in call order."""
    boss = asks(Call("w", "1"), Call("v", "2"), Call("w", "3"))

    played = await play(team(boss, worker("w"), worker("v")), Case())

    taken = [(body.edge.target, body.hop) for body in played.of(EdgeTaken) if body.edge.kind == "delegate"]
    assert taken == [("w", 1), ("v", 1), ("w", 2)]


# --- needs -----------------------------------------------------------------------------------------------------------


async def test_a_call_with_needs_starts_when_those_reports_are_there() -> None:
    """It gets them in its inbox after the brief, in the order of its needs, and calls without needs do not wait."""
    seen: list[tuple[Message, ...]] = []

    @node
    async def late(state: State[Context]) -> str:
        seen.append(state.inbox)
        return "late"

    boss = asks(
        Call("late", "sum up", needs=("y", "x")), Call("a", "first", id="x"), Call("b", "second", id="y"), Call("c", "")
    )

    played = await play(team(boss, late, worker("a", "A", 0.2), worker("b", "B", 0.1), worker("c", "C", 0.3)), Case())

    ((brief, *reports),) = seen
    assert (brief.source, brief.value.objective) == ("boss", "sum up")
    assert reports == [Message("b", Report(finding="B")), Message("a", Report(finding="A"))]
    assert [report.finding for report in played.result.output] == ["late", "A", "B", "C"]
    assert played.started == ["boss", "boss/a", "boss/b", "boss/c", "boss/late"]


async def test_the_default_id_of_a_call_is_its_position() -> None:
    """Needs may name positions."""
    boss = asks(Call("a", "first"), Call("b", "then", needs=("0",)))

    played = await play(team(boss, worker("a", seconds=0.1), worker("b")), Case())

    assert played.started == ["boss", "boss/a", "boss/b"]
    assert codes(played) == ["done", "done"]


@pytest.mark.parametrize("cause", ["failed", "unknown", "refused"])
async def test_a_failed_need_is_a_failed_dependency(cause: str) -> None:
    """The dependent call is not started and reports `dependency`, and so does what depends on that."""
    to = "nobody" if cause == "unknown" else "a"
    boss = asks(
        Call(to, "first", id="x"),
        Call("b", "then", id="y", needs=("x",)),
        Call("c", "last", needs=("y",)),
        Call("c", ""),
    )
    a = worker("a", ValueError("no"))
    b, c = worker("b"), worker("c")
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(a, max_hops=0 if cause == "refused" else 1),
        boss.delegates(b, c, max_hops=2),
        context=Case,
        max_depth=1,
    )

    played = await play(graph, Case())

    first = {"failed": "failed", "unknown": "unknown_target", "refused": "max_hops"}[cause]
    assert codes(played) == [first, "dependency", "dependency", "done"]
    assert played.result.status == "partial"
    assert [name for name in played.started if name != "boss/a"] == ["boss", "boss/c"]


async def test_a_call_that_was_not_started_spends_no_hop() -> None:
    """A dependency that failed leaves the hop for a later call."""

    @node
    async def boss(state: State[Case]) -> Any:
        if state.turn == 0:
            return Delegate(Call("a", "", id="x"), Call("b", "", needs=("x",)))
        if state.turn == 1:
            return Delegate(Call("b", "again"))
        return state.values

    a, b = worker("a", ValueError("no")), worker("b")
    graph = Graph("main", START >> boss >> END, boss.delegates(a, b, max_hops=1), context=Case, max_depth=1)

    played = await play(graph, Case())

    assert codes(played) == ["done"]
    assert played.refused == []


# --- what is wrong with a Delegate -----------------------------------------------------------------------------------

INVALID: dict[str, tuple[Call, ...]] = {
    "empty": (),
    "same id": (Call("a", "", id="x"), Call("b", "", id="x")),
    "id of a position": (Call("a", ""), Call("b", "", id="0")),
    "unknown need": (Call("a", "", id="x", needs=("y",)),),
    "needs itself": (Call("a", "", id="x", needs=("x",)),),
    "cycle": (Call("a", "", id="x", needs=("y",)), Call("b", "", id="y", needs=("x",)), Call("a", "")),
}


@pytest.mark.parametrize("kind", INVALID)
async def test_a_delegate_that_makes_no_sense_fails_its_node(kind: str) -> None:
    """It is the node's failure before any call starts, and its update is not applied."""

    @node
    async def boss(state: State[Case]) -> Delegate:
        return Delegate(*INVALID[kind], update=Update(k=1))

    played = await play(team(boss, worker("a"), worker("b")), Case())

    assert (played.result.status, played.reason.code, played.reason.path) == ("failed", "delegate", "boss")
    assert played.started == ["boss"]
    assert played.result.context == Case()


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_a_delegate_that_needs_a_turn_too_many_fails_its_node(limit: int | None) -> None:
    """Turns are bounded by `max_turns`, by default two and the hops of the delegate edges; no call starts beyond."""

    @node(max_turns=limit)
    async def boss(state: State[Case]) -> Delegate:
        return Delegate(Call("a", "more"))

    played = await play(team(boss, worker("a"), max_hops=2), Case())

    assert (played.result.status, played.reason.code) == ("failed", "turns")
    turns = 4 if limit is None else limit
    assert played.started == ["boss", *["boss/a"] * min(turns - 1, 2)]


async def test_a_caller_may_answer_in_its_last_turn() -> None:
    """A visit that ends exactly at `max_turns` succeeds."""
    played = await play(team(asks(Call("a", ""), max_turns=2), worker("a")), Case())

    assert played.result.status == "completed"


# --- targets and bounds ----------------------------------------------------------------------------------------------


async def test_an_undeclared_target_is_a_failed_report() -> None:
    """The report names the targets that there are; the other calls go on."""
    boss = asks(Call("billng", ""), Call("billing", ""))

    played = await play(team(boss, worker("billing")), Case())

    assert codes(played) == ["unknown_target", "done"]
    assert "Did it mean 'billing'?" in played.result.output[0].reason.text
    assert played.result.status == "partial"


async def test_calls_over_the_bound_are_refused_one_by_one_in_call_order() -> None:
    """The first calls start, the rest are reports that say which bound; refusals alone leave the run completed."""
    boss = asks(Call("a", "1"), Call("b", "2"), Call("a", "3"), Call("a", "4"), Call("b", "5"))

    played = await play(team(boss, worker("a"), worker("b"), max_hops=2), Case())

    assert codes(played) == ["done", "done", "done", "max_hops", "done"]
    assert played.result.output[3].reason.limit == 2
    assert played.refused == ["max_hops"]
    assert played.result.status == "completed"


async def test_the_hops_of_the_graph_bound_delegations_too() -> None:
    """A delegation is a traversal of an edge, so the graph's `max_hops` counts it."""
    boss = asks(*(Call("a", str(n)) for n in range(4)))
    graph = Graph(
        "main", START >> boss >> END, boss.delegates(worker("a"), max_hops=9), context=Case, max_depth=1, max_hops=4
    )

    played = await play(graph, Case())

    assert played.started == ["boss", "boss/a", "boss/a", "boss/a"]
    assert played.refused == ["max_hops", "max_hops"]  # the fourth call, and the way to END
    assert (played.result.status, played.reason.code) == ("exhausted", "max_hops")


def recursive(max_depth: int) -> Graph[Case]:
    """A node that always delegates to itself, twice."""

    @node
    async def boss(state: State[Case]) -> Any:
        if state.turn == 0:
            return Delegate(Call("boss", "deeper"), Call("boss", "deeper"))
        return " ".join(str(value.reason.code if value.reason else value.finding) for value in state.values)

    return Graph("main", START >> boss >> END, boss.delegates(boss, max_hops=99), context=Case, max_depth=max_depth)


@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_depth_is_bounded_and_the_refusal_says_so(depth: int) -> None:
    """No delegation is nested deeper than `max_depth`; the innermost callers hear of the bound and its value."""
    played = await play(recursive(depth), Case())

    assert max(name.count("/") for name in played.started) == depth
    assert len(played.started) == 2 ** (depth + 1) - 1
    assert set(played.refused) == {"max_depth"}
    assert played.result.status == "completed"
    assert played.result.output == " ".join(["max_depth"] * 2 ** (depth + 1))


async def test_the_depth_of_a_nested_graph_is_the_least_of_all_around() -> None:
    """A graph's `max_depth` counts from where its frame opened; the refusal carries the limit that refused."""
    limits: list[float | None] = []

    @node
    async def inner_boss(state: State[Case]) -> Any:
        if state.turn == 0:
            limits.append(state.left.depth)
            return Delegate(Call("inner_boss", "deeper"))
        (report,) = state.values
        limits.append(report.reason.limit if report.reason is not None else None)
        return "end"

    inner = Graph(
        "inner",
        START >> inner_boss >> END,
        inner_boss.delegates(inner_boss, max_hops=9),
        context=Case,
        max_depth=1,
    )
    graph = team(asks(Call("inner", "")), inner)

    await run(graph, Case(), clock=ManualClock())

    assert limits == [1, 0, 1, None]


async def test_a_call_that_the_budget_refuses_costs_nothing() -> None:
    """A delegation without a node run left is a report that says so, and its hop is given back."""
    boss = asks(*(Call("a", str(n)) for n in range(4)))

    played = await play(team(boss, worker("a")), Case(), budget=Budget(node_runs=3))

    assert codes(played) == ["done", "done", "node_runs", "node_runs"]
    assert played.result.spent.total.node_runs == 3


# --- one report each -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ValueError("no"), "failed"),
        (None, "contract"),
        (7, "contract"),
        ("", "contract"),
        (Done(None), "contract"),
        (Update(notes="x"), "contract"),
        (Handoff("nobody"), "unknown_target"),
        (Report.failed(Reason(code="failed", text="I could not")), "reported"),
        (Report(status="needs_input", reason=Reason(code="failed", text="which?")), "failed"),
        (Report(finding="half", status="partial", reason=Reason(code="failed", text="time")), "failed"),
        (Done("fine", Update(nmber=1)), "contract"),
    ],
)
async def test_whatever_a_callee_answers_its_call_ends_in_one_report(answer: object, code: str) -> None:
    """What is no report is the callee's failure, with the callee's path; the caller hears of it and goes on."""
    played = await play(team(asks(Call("a", "")), worker("a", answer)), Case())

    (report,) = played.result.output
    assert report.reason is not None
    assert report.reason.code == code
    if report.status == "failed":
        assert report.reason.path == "boss/a@0.0"
        assert played.result.status == "partial"
        assert played.ended["boss/a@0.0"] == "failed"


async def test_a_callee_that_was_cancelled_by_nobody_reports_that() -> None:
    """A stray cancellation is the callee's failure, on either backend."""

    @node
    async def a(state: State[Context]) -> str:
        raise asyncio.CancelledError

    played = await play(team(asks(Call("a", ""), Call("b", "")), a, worker("b", seconds=0.1)), Case())

    assert codes(played) == ["stray_cancellation", "done"]


async def test_an_invalid_report_fails_the_attempt_so_a_retry_may_mend_it() -> None:
    """A function node gets no repairs, but its retries apply."""
    attempts: list[int] = []

    @node(retries=1)
    async def a(state: State[Context]) -> object:
        attempts.append(1)
        return 7 if len(attempts) == 1 else "words"

    result = await run(team(asks(Call("a", "")), a), Case(), clock=ManualClock())

    assert result.output == (Report(finding="words"),)
    assert (result.status, result.spent.total.retries) == ("completed", 1)


async def test_a_partial_report_makes_the_run_partial_only_by_failure_or_bound() -> None:
    """needs_input is an answer; a partial report for a bound is a loss."""
    asked = Report(status="needs_input", reason=Reason(code="failed", text="which?"))
    bound = Report(finding="half", status="partial", reason=Reason(code="tokens", text="no more tokens"))

    first = await play(team(asks(Call("a", "")), worker("a", asked)), Case())
    second = await play(team(asks(Call("a", "")), worker("a", bound)), Case())

    assert first.result.status == "completed"
    assert second.result.status == "partial"


async def test_a_callee_is_tried_again_before_its_call_fails() -> None:
    """Retries come first; the report counts the attempts."""
    played = await play(team(asks(Call("a", "")), worker("a", ValueError("no"), retries=2)), Case())

    (report,) = played.result.output
    assert report.reason.text == "no (after 3 attempts)"
    assert played.result.spent.total.retries == 2


@pytest.mark.parametrize("to", ["node", "graph", "end"])
async def test_an_error_edge_of_a_callee_handles_its_failure(to: str) -> None:
    """A failure that the callee's error edge catches is no failure of the call; END reports what arrived there."""
    boss, a = asks(Call("a", "")), worker("a", ValueError("no"))
    rescue: Node[Any] = worker("rescue", "rescued")
    if to == "graph":
        rescue = Graph("rescue", START >> worker("inside", "rescued") >> END, context=Case)
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(a, max_hops=1),
        a.on_error(END if to == "end" else rescue),
        context=Case,
        max_depth=1,
    )

    played = await play(graph, Case())

    assert played.result.status == "completed"
    (report,) = played.result.output
    if to == "end":
        assert (report.status, report.reason.text) == ("failed", "no")
    else:
        assert report == Report(finding="rescued")


async def test_a_call_over_its_time_is_a_timeout_report() -> None:
    """The edge's `timeout=` ends the call with everything in it; the caller goes on."""
    inner = asks(Call("slow", ""), name="inner")
    boss = asks(Call("inner", ""), Call("quick", ""))
    slow, quick = worker("slow", seconds=100.0), worker("quick", seconds=0.5)
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(inner, quick, max_hops=1, timeout=1.0),
        inner.delegates(slow, max_hops=1),
        context=Case,
        max_depth=2,
    )

    played = await play(graph, Case())

    assert codes(played) == ["timeout", "done"]
    assert played.result.output[0].reason.limit == 1.0
    assert played.result.status == "partial"
    assert played.ended["boss/inner@0.0"] == "cancelled"
    assert played.ended["boss/inner@0.0/slow@0.0"] == "cancelled"


async def test_a_callee_that_times_out_by_its_own_limit_reports_it() -> None:
    """The node's `timeout=` is a failed attempt; its visit ends timed out."""
    played = await play(team(asks(Call("a", "")), worker("a", seconds=9.0, timeout=1.0)), Case())

    assert codes(played) == ["timeout"]
    assert played.ended["boss/a@0.0"] == "timed_out"


async def test_a_hook_that_skips_a_callee_gives_a_skipped_report() -> None:
    """The call ends in a failed report with the hook's reason."""

    def hook(state: State[Any]) -> Skip | None:
        return Skip("not today") if state.path[-1].name == "a" else None

    boss = asks(Call("a", ""), Call("b", ""))
    result = await run(team(boss, worker("a"), worker("b")), Case(), before=hook, clock=ManualClock())

    first, second = result.output
    assert (first.status, first.reason.code, first.reason.text) == ("failed", "skipped", "not today")
    assert second.status == "done"


async def test_a_cancelled_caller_hears_nothing_and_its_calls_are_cancelled() -> None:
    """A branch that fails cancels its sibling's batch with every callee in it."""
    boss = asks(Call("a", ""), Call("b", ""))
    bad = worker("bad", ValueError("no"), 0.1)
    s, j = worker("s"), worker("j")
    graph = Graph(
        "main",
        START >> s >> (boss, bad) >> j >> END,
        boss.delegates(worker("a", seconds=9.0), worker("b"), max_hops=1),
        context=Case,
        max_depth=1,
    )

    played = await play(graph, Case())

    assert isinstance(played.error, ValueError)
    assert played.ended["boss"] == "cancelled"
    assert played.ended["boss/a@0.0"] == "cancelled"
    assert played.ended["boss/b@0.1"] == "completed"


# --- the law: N delegations give N reports ---------------------------------------------------------------------------


def fate(name: str, kind: str) -> FunctionNode[Context]:
    """A callee that meets one of the fates that a call can have."""
    match kind:
        case "ok":
            return worker(name, "fine")
        case "slow":
            return worker(name, "fine", 0.3)
        case "raise":
            return worker(name, ValueError("no"))
        case "hang":
            return worker(name, "never", 50.0)
        case "own timeout":
            return worker(name, "never", 50.0, timeout=0.2)
        case _:
            return worker(name, None)


FATES = ("ok", "slow", "raise", "hang", "own timeout", "silent")


@given(
    st.lists(st.tuples(st.sampled_from(FATES), st.lists(st.integers(0, 5), max_size=2)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 6)),
    st.one_of(st.none(), st.integers(1, 3)),
)
@settings(max_examples=examples(300))
def test_n_delegations_give_n_reports(
    drawn: list[tuple[str, list[int]]], max_hops: int, runs: int | None, parallel: int | None
) -> None:
    """Whatever fails, times out, is refused or depends on what failed: each call has one report, in call order."""
    calls = [
        Call(
            f"w{position % 3}",
            kind,
            id=f"id{position}",
            needs=tuple({f"id{need}" for need in needs if need < position}),
        )
        for position, (kind, needs) in enumerate(drawn)
    ]
    workers = [fate(f"w{number}", drawn[number][0] if number < len(drawn) else "ok") for number in range(3)]
    boss = asks(*calls)
    graph = team(boss, *workers, max_hops=max_hops, timeout=1.0)
    events: list[Any] = []

    result = run_sync(
        graph,
        Case(),
        clock=ManualClock(),
        listeners=[events.append],
        budget=Budget(node_runs=runs),
        max_parallel=parallel,
    )

    assert result.status in {"completed", "partial"}
    assert len(result.output) == len(calls)
    assert all(isinstance(report, Report) for report in result.output)
    ended = [event.body for event in events if isinstance(event.body, NodeEnded)]
    closed = [event.body for event in events if isinstance(event.body, FrameClosed)]
    assert len(closed) == len(ended) - 1
    assert result.spent.total.node_runs == len(ended)
    assert runs is None or len(ended) <= runs


# --- updates and the context -----------------------------------------------------------------------------------------


async def test_an_update_of_a_delegate_is_applied_before_its_callees_start() -> None:
    """The callees see it, and so does the caller's next turn."""
    seen: list[int] = []

    @node
    async def boss(state: State[Case]) -> Any:
        seen.append(state.context.k)
        return Delegate(Call("a", ""), update=Update(k=5)) if state.turn == 0 else "end"

    @node
    async def a(state: State[Case]) -> str:
        seen.append(state.context.k)
        return "ok"

    await run(team(boss, a), Case())

    assert seen == [0, 5, 5]


@pytest.mark.parametrize("slow", ["a", "b"])
async def test_the_updates_of_callees_are_applied_in_call_order(slow: str) -> None:
    """A callee node reads the caller's snapshot; what the callees wrote is applied in call order when all are back."""
    seen: list[tuple[str, ...]] = []

    def writer(name: str) -> FunctionNode[Case]:
        @node(name=name)
        async def write(state: State[Case], step: Step) -> Done:
            await step.sleep(float(name == slow))
            seen.append(state.context.notes)
            return Done("ok", Update(notes=name))

        return write

    played = await play(team(asks(Call("a", ""), Call("b", "")), writer("a"), writer("b")), Case(notes=("q",)))

    assert seen == [("q",), ("q",)]
    assert played.result.context.notes == ("q", "a", "b")


async def test_the_updates_of_a_failed_callee_are_dropped() -> None:
    """What a callee's own callees wrote is lost with it; the reports that came through are kept."""

    @node
    async def middle(state: State[Case]) -> Any:
        if state.turn == 0:
            return Delegate(Call("low", ""))
        raise ValueError("no")

    low = worker("low", Done("ok", Update(notes="lost")))
    boss = asks(Call("middle", ""), Call("other", ""))
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(middle, worker("other", Done("ok", Update(notes="kept"))), max_hops=1),
        middle.delegates(low, max_hops=1),
        context=Case,
        max_depth=2,
    )

    played = await play(graph, Case())

    assert played.result.context.notes == ("kept",)


async def test_into_takes_the_reports_in_call_order() -> None:
    """The edge's `into=` takes each report through the field's reducer, refusals and failures too."""
    boss = asks(Call("a", "1"), Call("b", "2"), Call("a", "3"))
    graph = team(boss, worker("a", "A"), worker("b", ValueError("no")), max_hops=1, into="reports")

    played = await play(graph, Case())

    assert played.result.context.reports == played.result.output
    assert [report.status for report in played.result.context.reports] == ["done", "failed", "failed"]


async def test_a_caller_whose_batch_conflicted_may_try_again() -> None:
    """A retry repeats the turn, and every visit of its callees has a path of its own."""

    @node
    async def a(state: State[Case]) -> Done:
        return Done("ok", Update(k=1))

    boss = asks(Call("a", ""), Call("a", ""), retries=1)

    played = await play(team(boss, a), Case())

    assert (played.result.status, played.reason.code) == ("failed", "conflict")
    assert played.started.count("boss/a") == 4
    assert len(played.ended) == 5


class Last(Context):
    """A field that takes one report."""

    last: Report | None = None


@pytest.mark.parametrize("calls", [1, 2])
async def test_into_a_plain_field_takes_one_report_of_a_batch(calls: int) -> None:
    """Two calls that write one plain field are a conflict, as two branches are, and the caller is to blame."""

    @node
    async def boss(state: State[Last]) -> Any:
        return Delegate(*(Call("a", "") for _ in range(calls))) if state.turn == 0 else "end"

    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(worker("a"), max_hops=2, into="last"),
        context=Last,
        max_depth=1,
    )

    played = await play(graph, Last())

    if calls == 1:
        assert played.result.context == Last(last=Report(finding="done"))
    else:
        assert (played.result.status, played.reason.code, played.reason.path) == ("failed", "conflict", "boss")
        assert "'last'" in played.reason.text


async def test_who_took_over_in_a_call_may_delegate_in_turn() -> None:
    """Delegate edges are live in a callee's frame, also those of a node that it handed over to."""

    @node
    async def b(state: State[Case]) -> Any:
        return Delegate(Call("c", "deep")) if state.turn == 0 else f"b heard {state.values[0].finding}"

    @node
    async def c(state: State[Case]) -> str:
        return f"c at depth {state.depth}"

    boss, a = asks(Call("a", "")), worker("a", Handoff("b"))
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(a, max_hops=1),
        a.hands_off(b, max_hops=1),
        b.delegates(c, max_hops=1),
        context=Case,
        max_depth=2,
    )

    played = await play(graph, Case())

    assert played.result.output == (Report(finding="b heard c at depth 2"),)
    assert "boss/b@0.0/c@0.0" in played.ended


# --- contracts -------------------------------------------------------------------------------------------------------


class Invoice(Brief):
    """A brief with a field of our own."""

    number: str


class Finding(BaseModel):
    """A report of our own."""

    model_config = ConfigDict(frozen=True)

    paid: bool
    note: str | None


async def test_a_brief_crosses_with_a_boundary_that_is_never_empty() -> None:
    """Only the objective must be written: what is not asked for comes from the callee's description and contract."""
    seen: list[Brief] = []

    @node(description="Looks up invoices.")
    async def billing(state: State[Context]) -> str:
        assert state.brief is not None
        seen.append(state.brief)
        return "ok"

    full = Brief(objective="o", output="f", guidance="g", sources=("s",), boundary="b")

    await run(team(asks(Call("billing", "Was it paid?"), Call("billing", full)), billing), Case())

    first, second = seen
    assert first.model_copy(update={"boundary": ""}) == Brief(objective="Was it paid?")
    assert "Looks up invoices." in first.boundary
    assert "Report" in first.boundary
    assert second == full


async def test_contracts_of_ones_own_cross_exactly() -> None:
    """Brief and report of the user's own classes arrive as they were sent, nulls too."""
    seen: list[object] = []
    answer = Finding(paid=True, note=None)

    @node
    async def billing(state: State[Context]) -> Finding:
        seen.append(state.values[0])
        return answer

    sent = Invoice(objective="Was it paid?", number="INV-311", boundary="no refunds")
    boss = asks(Call("billing", sent))

    played = await play(team(boss, billing, brief=Invoice, report=Finding), Case())

    assert seen == [sent]
    assert played.result.output == (answer,)
    assert played.result.status == "completed"


@pytest.mark.parametrize("answer", ["text", Report(finding="ok"), ("paid",), None])
async def test_what_is_not_the_declared_report_fails_the_callee(answer: object) -> None:
    """Where the edge asks for a class of its own, nothing else will do; a failure is always our Report."""
    boss = asks(Call("a", ""))

    played = await play(team(boss, worker("a", answer), report=Finding), Case())

    (report,) = played.result.output
    assert isinstance(report, Report)
    assert report.reason is not None
    assert (report.status, report.reason.code, report.reason.path) == ("failed", "contract", "boss/a@0.0")
    assert "Finding" in report.reason.text


async def test_a_brief_of_the_wrong_class_is_the_callers_mistake() -> None:
    """The call is not started; its report says which class the edge asks for, and blames the caller."""
    boss = asks(Call("a", "plain words"))

    played = await play(team(boss, worker("a"), brief=Invoice), Case())

    assert codes(played) == ["contract"]
    assert played.result.output[0].reason.path == "boss"
    assert "Invoice" in played.result.output[0].reason.text
    assert played.started == ["boss"]


async def test_a_graph_reports_like_a_node() -> None:
    """The output of a delegated graph is checked by the edge's contract too."""
    good = Graph("good", START >> worker("inner", "fine") >> END, context=Case)
    bad = Graph("bad", START >> worker("inner", None) >> END, context=Case)
    boss = asks(Call("good", ""), Call("bad", ""))

    played = await play(team(boss, good, bad), Case())

    assert codes(played) == ["done", "contract"]
    assert played.result.output[1].reason.path == "boss/bad@0.1"


# --- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "expected"), [("pool", [9, 9, 9]), ("equal", [3, 3, 3]), (0.25, [2, 1, 1])])
async def test_a_share_is_what_a_callee_may_spend(share: Any, expected: list[int]) -> None:
    """`pool` spends from the caller's account, `equal` splits it between the calls, a number gives each its part."""
    free: list[int | None] = []

    @node
    async def a(state: State[Context]) -> str:
        free.append(state.left.budget.model_calls)
        return "ok"

    boss = asks(*(Call("a", str(n)) for n in range(3)))

    played = await play(team(boss, a, share=share), Case(), budget=Budget(model_calls=9))

    assert free == expected
    assert played.result.status == "completed"


async def test_what_a_share_does_not_spend_comes_back() -> None:
    """A split account settles when its call is done: the next turn may spend the rest."""
    free: list[int | None] = []

    async def think() -> str:
        return "thought"

    @node
    async def a(state: State[Context], step: Step) -> str:
        await step.effect("think", think, cost=Budget(model_calls=1))
        return "ok"

    @node
    async def boss(state: State[Case]) -> Any:
        free.append(state.left.budget.model_calls)
        return Delegate(Call("a", ""), Call("a", "")) if state.turn == 0 else "end"

    played = await play(team(boss, a, share="equal"), Case(), budget=Budget(model_calls=9))

    assert free == [9, 7]
    assert played.result.spent.total.model_calls == 2
    assert played.result.spent.by_node["boss/a"].model_calls == 2


async def test_loops_count_the_hops_of_one_activation() -> None:
    """A caller that a loop enters again goes on with the same counters."""

    @node
    async def boss(state: State[Case]) -> Any:
        if state.turn == 0:
            return Delegate(Call("a", ""))
        (report,) = state.values
        return Done(report.status, Update(k=state.context.k + 1, notes=report.status))

    def again(state: State[Case]) -> bool:
        return state.context.k < 3

    graph = Graph(
        "main",
        START >> boss,
        boss.choose(when(again, boss, max_hops=5), default=END),
        boss.delegates(worker("a"), max_hops=2),
        context=Case,
        max_depth=1,
    )

    played = await play(graph, Case())

    assert played.result.context.notes == ("done", "done", "failed")
    assert played.refused == ["max_hops"]
    assert "boss:2/a@0.0" in played.ended


async def test_a_caller_that_a_bound_stops_reports_what_its_callees_found() -> None:
    """With reports done in its inbox a callee at a bound is partial, with their findings and evidence; else failed."""

    @node
    async def leaf(state: State[Case]) -> Report:
        return Report(finding="found it", evidence=("a:1",))

    @node
    async def middle(state: State[Case], step: Step) -> Delegate | str:
        if state.turn == 0 and state.brief is not None and state.brief.objective == "ask":
            return Delegate(Call("leaf", "look"))
        return await step.effect("think", str, 1, cost=Budget(model_calls=1))

    @node
    async def top(state: State[Case]) -> Delegate | str:
        if state.turn == 0:
            return Delegate(Call("middle", "ask"), Call("middle", "do it alone"))
        return " ".join(f"{report.status}:{report.finding}:{report.evidence}" for report in state.values)

    graph = Graph(
        "graph",
        START >> top >> END,
        top.delegates(middle, max_hops=2),
        middle.delegates(leaf, max_hops=2),
        context=Case,
        budget=Budget(model_calls=0),
        max_depth=2,
    )

    result = await run(graph, Case())

    assert result.status == "partial"
    assert result.output == "partial:found it:('a:1',) failed::()"
