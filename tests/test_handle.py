"""`start`, `run`, `run_sync` and the handle: iterate, answer, cancel, leave early, listen, skip."""

import gc
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Node,
    Pause,
    Report,
    Run,
    Skip,
    State,
    Step,
    node,
    run,
    run_sync,
    start,
)
from graphflow.errors import GraphProblems, InternalError, UsageError
from graphflow.events import Event, ListenerFailed, NodeEnded, NodeSkipped, NodeStarted, Row, RunEnded
from graphflow.runtime.advance import Fold
from graphflow.testing import ManualClock, MemoryJournal, canonical_trace, fold_again, records_of
from tests.cases.helpers import play
from tests.support import SlowingJournal, SlowJournal


class Nothing(Context):
    """A context without fields."""


class Other(Context):
    """Another context."""


def named(name: str, *, seconds: float = 0) -> Node[Nothing]:
    """Make a node that sleeps and gives its name."""

    async def nap(_: State[Nothing], step: Step) -> str:
        await step.sleep(seconds)
        return name

    return node(name=name)(nap)


def line(*nodes: Node[Any], **options: Any) -> Graph[Nothing]:
    """Make a graph of nodes one after the other."""
    chain: Any = START
    for one in nodes:
        chain = chain >> one
    return Graph("line", chain >> END, context=Nothing, **options)


@node
async def hangs(_: State[Nothing]) -> None:
    """Wait until it is cancelled."""
    await anyio.sleep_forever()


@node
def breaks(_: State[Nothing]) -> None:
    """Raise."""
    msg = "broken"
    raise ValueError(msg)


async def until(running: Run[Any], kind: str) -> Event:
    """Iterate until something has happened."""
    async for event in running:
        if event.kind == kind:
            return event
    pytest.fail(f"the run ended without {kind}")


# --- entry points ---


async def test_run_and_start_and_run_sync_give_one_result() -> None:
    """Three entry points, one meaning: output, spending and trace are equal."""
    graph = line(named("a"), named("b"))
    events: list[Event] = []

    whole = await run(graph, Nothing(), listeners=[events.append])
    async with start(graph, Nothing()) as running:
        seen = [event async for event in running]
        handled = await running.result()
    sync = await anyio.to_thread.run_sync(lambda: run_sync(graph, Nothing()))

    assert whole.output == handled.output == sync.output == "b"
    assert whole.spent.total == handled.spent.total == sync.spent.total
    assert canonical_trace(events) == canonical_trace(seen)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_sync_runs_on_either_backend(backend: str) -> None:
    """`backend=` picks the loop; everything else is as in `run`."""
    result = run_sync(line(named("a")), Nothing(), backend=backend, run_id="mine", clock=ManualClock())

    assert (result.status, result.output, result.run_id) == ("completed", "a", "mine")


async def test_a_graph_with_problems_does_not_start() -> None:
    """All problems at once, before anything runs."""
    started: list[Event] = []
    graph = Graph("g", START >> named("a"), named("b") >> END, context=Nothing)

    with pytest.raises(GraphProblems) as caught:
        await run(graph, Nothing(), listeners=[started.append])

    assert len(caught.value.problems) >= 2
    assert started == []


@pytest.mark.parametrize(
    ("graph", "context", "words"),
    [("text", Nothing(), "a Graph is needed"), (line(named("a")), Other(), "runs on a Nothing, not on a Other")],
)
async def test_bad_use_is_told_before_the_start(graph: Any, context: Any, words: str) -> None:
    """What is no graph, or a context of another class, is refused by name."""
    with pytest.raises(UsageError, match=words):
        await run(graph, context)


async def test_a_run_budget_replaces_what_it_names() -> None:
    """`budget=` replaces single dimensions of the graph's own budget, and leaves the others."""
    graph = line(named("a"), named("b"), budget=Budget(node_runs=1, model_calls=0))

    assert (await run(graph, Nothing())).status == "exhausted"
    assert (await run(graph, Nothing(), budget=Budget(node_runs=2))).status == "completed"
    assert (await run(graph, Nothing(), budget=Budget(tokens=5))).status == "exhausted"


async def test_start_is_entered_once() -> None:
    """A second entry, of what `start` gives or of the handle, is refused; the first run is not touched."""
    starting = start(line(named("a")), Nothing())

    async with starting as running:
        with pytest.raises(UsageError, match="has been entered already"):
            await starting.__aenter__()
        with pytest.raises(UsageError, match="has been entered already"):
            await running.__aenter__()
        assert (await running.result()).status == "completed"


async def test_a_run_that_raised_keeps_its_result_on_the_handle() -> None:
    """`result()` raises the very object, with a note that names the node; `outcome` says how the run ended."""
    async with start(line(breaks), Nothing()) as running:
        with pytest.raises(ValueError, match="broken") as first:
            await running.result()
        with pytest.raises(ValueError, match="broken") as second:
            await running.result()

    assert first.value is second.value
    assert len(first.value.__notes__) == 1
    assert "'breaks'" in first.value.__notes__[0]
    assert running.outcome.status == "failed"
    assert running.outcome.report == Report.failed(running.outcome.reason) if running.outcome.reason else False


async def test_outcome_of_a_run_at_work_is_refused() -> None:
    """There is none yet: the error says what to await."""
    async with start(line(hangs), Nothing()) as running:
        with pytest.raises(UsageError, match="still runs"):
            _ = running.outcome


async def test_a_run_has_an_id_of_its_own() -> None:
    """Every run gets a new id; every event carries it."""
    async with start(line(named("a")), Nothing()) as one, start(line(named("a")), Nothing()) as two:
        events = [event async for event in one]

    assert one.run_id != two.run_id
    assert {event.run for event in events} == {one.run_id}


# --- iterating ---


async def test_events_come_once_each_in_order() -> None:
    """An iterator gives each event from the first, numbered without gaps, and ends with the run."""
    async with start(line(named("a"), named("b")), Nothing()) as running:
        events = [event async for event in running]

        assert [event.seq for event in events] == list(range(len(events)))
        assert isinstance(events[-1].body, RunEnded)
        assert [event async for event in running] == []


async def test_events_come_while_the_run_runs() -> None:
    """An event is there as soon as it has happened, not when its node has ended."""
    async with start(line(named("a"), hangs), Nothing()) as running:
        await until(running, "node_ended")
        started = await until(running, "node_started")
        assert started.path[-1].name == "hangs"


async def test_iteration_goes_on_after_an_answer() -> None:
    """It ends where the run waits; after an answer another loop gives the rest."""
    async with start(line(Human("h", "ok?"), named("b")), Nothing()) as running:
        before = [event.seq async for event in running]
        running.answer(running.questions[0].id, True)
        after = [event.seq async for event in running]

    assert before + after == list(range(len(before) + len(after)))
    assert after


async def test_a_late_reader_misses_nothing() -> None:
    """Events are kept for an iterator that begins when the run is over."""
    async with start(line(named("a")), Nothing()) as running:
        await running.result()
        events = [event async for event in running]

    assert events[0].kind == "run_started"
    assert events[-1].kind == "run_ended"


# --- leaving, cancelling, several tasks ---


async def test_leaving_early_cancels_and_reaps() -> None:
    """When the block is left, the body has seen its cancellation and the run has its last record."""
    seen: list[str] = []

    async def body(_: State[Nothing]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            seen.append("cleaned up")

    async with start(line(node(body)), Nothing()) as running:
        await until(running, "node_started")

    assert running.outcome.status == "cancelled"
    assert running.outcome.reason is not None
    assert running.outcome.reason.text == "cancelled by leaving the run"
    assert seen in (["cleaned up"], [])  # it may have been cancelled before its first step


async def test_an_error_in_the_block_leaves_the_run_and_passes() -> None:
    """The caller's own exception comes out, and the run is cancelled."""
    running: Run[Nothing] | None = None
    with pytest.raises(KeyError, match="mine"):
        async with start(line(hangs), Nothing()) as running:
            raise KeyError("mine")

    assert running is not None
    assert running.outcome.status == "cancelled"


async def test_a_run_that_is_left_unread_is_completed_or_cancelled() -> None:
    """Entering and leaving at once is no error."""
    async with start(line(named("a")), Nothing()) as running:
        pass

    assert running.outcome.status in {"completed", "cancelled"}


async def test_cancel_says_by_whom_and_may_be_said_twice() -> None:
    """The reason names who cancelled; a second cancellation, and one after the end, change nothing."""
    async with start(line(hangs), Nothing()) as running:
        await until(running, "node_started")
        running.cancel("the owner")
        running.cancel("somebody else")
        result = await running.result()
        running.cancel()

    assert result.status == "cancelled"
    assert result.reason is not None
    assert result.reason.text == "cancelled by the owner"
    assert running.outcome == result


async def test_a_waiting_run_can_be_cancelled() -> None:
    """Its question is withdrawn, and its visit ends as cancelled."""
    async with start(line(Human("h", "ok?")), Nothing()) as running:
        assert (await running.result()).status == "waiting"
        running.cancel()
        result = await running.result()

    assert (result.status, result.questions) == ("cancelled", ())


async def test_leaving_a_waiting_run_leaves_it_waiting() -> None:
    """A run that waits holds no task: there is nothing to cancel."""
    async with start(line(Human("h", "ok?")), Nothing()) as running:
        await running.result()

    assert running.outcome.status == "waiting"


async def test_several_tasks_may_await_one_run() -> None:
    """Each gets the same result; a task that is cancelled while it awaits does not cancel the run."""
    results: list[Any] = []

    async def wait(running: Run[Nothing]) -> None:
        results.append(await running.result())

    async with start(line(named("a", seconds=0.02)), Nothing()) as running, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait, running)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await running.result()

    assert len(results) == 3
    assert {result.status for result in results} == {"completed"}


async def test_a_run_is_entered_in_one_task_and_left_in_another() -> None:
    """The handle belongs to no task: whoever has it may leave it."""
    starting = start(line(hangs), Nothing())
    entered: list[Run[Nothing]] = []

    async def enter() -> None:
        entered.append(await starting.__aenter__())

    async def leave() -> None:
        await starting.__aexit__(None, None, None)

    for step in (enter, leave):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)

    assert entered[0].outcome.status == "cancelled"


async def test_cancelling_the_caller_cancels_the_run() -> None:
    """`run` is one await: the caller's cancellation ends it when the run is reaped, and nothing else comes out."""
    ended: list[Event] = []
    with anyio.CancelScope() as scope:

        def listen(event: Event) -> None:
            ended.append(event)
            if event.kind == "node_started":
                scope.cancel()

        await run(line(hangs), Nothing(), listeners=[listen])

    assert scope.cancelled_caught
    assert ended[-1].body == RunEnded(
        "cancelled", ended[-1].body.reason if isinstance(ended[-1].body, RunEnded) else None
    )


async def test_many_runs_at_once_do_not_meet() -> None:
    """Fifty runs of one graph in one loop: each has its own events and its own end."""
    graph = line(named("a"), named("b"))
    outputs: list[tuple[str, str]] = []

    async def one(number: int) -> None:
        events: list[Event] = []
        result = await run(graph, Nothing(), run_id=f"run {number}", listeners=[events.append])
        assert {event.run for event in events} == {f"run {number}"}
        outputs.append((result.run_id, result.output))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)

    assert sorted(outputs) == sorted((f"run {number}", "b") for number in range(50))


# --- questions ---


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays() -> None:
    """The answerer gets the error; the run does not hear of it."""
    async with start(line(Human("h", "how many?", schema=int)), Nothing()) as running:
        (question,) = (await running.result()).questions
        with pytest.raises(UsageError, match="the answer 'many' to 'h' does not fit int: Input"):
            running.answer(question.id, "many")
        assert running.questions == (question,)
        running.answer(question.id, 3)
        result = await running.result()

    assert (result.status, result.output) == ("completed", 3)


async def test_a_question_that_is_not_open_is_refused_by_name() -> None:
    """The error lists what is open; an answered question is open no more."""
    async with start(line(Human("h", "ok?")), Nothing()) as running:
        (question,) = (await running.result()).questions
        with pytest.raises(UsageError, match=r"no open question 'nope'; open are: 'h'"):
            running.answer("nope", 1)
        running.answer(question.id, 1)
        await running.result()
        with pytest.raises(UsageError, match="no open question"):
            running.answer(question.id, 2)


async def test_questions_may_be_answered_one_by_one_while_others_run() -> None:
    """Two open questions and a sleeping sibling: answers come in any order, at any time."""

    async def twice(state: State[Nothing]) -> Any:
        return state.inbox[0].value if state.turn == 2 else Pause(f"q{state.turn}")

    graph = Graph(
        "g",
        START >> (Human("x", "x?"), node(name="y")(twice), named("z", seconds=0.01)) >> Join("j") >> END,
        context=Nothing,
    )
    async with start(graph, Nothing()) as running:
        await until(running, "paused")
        await until(running, "paused")
        running.answer(next(question.id for question in running.questions if question.path == "y"), "one")
        await until(running, "paused")
        running.answer(next(question.id for question in running.questions if question.path == "y"), "two")
        waiting = await running.result()
        assert [question.text.partition("\n")[0] for question in waiting.questions] == ["x?"]
        running.answer(waiting.questions[0].id, "x")
        result = await running.result()

    assert result.output == ("x", "two", "z")


async def test_a_result_stays_what_it_was() -> None:
    """What a waiting run had spent is no other number when the run has gone on."""
    async with start(line(named("a"), Human("h", "ok?"), named("b")), Nothing()) as running:
        waiting = await running.result()
        running.answer(waiting.questions[0].id, 1)
        result = await running.result()

    assert waiting.spent.total.node_runs == 2
    assert sorted(waiting.spent.by_node) == ["a", "h"]
    assert sorted(result.spent.by_node) == ["a", "b", "h"]
    assert waiting.spent != result.spent
    assert hash(result.spent) == hash(running.spent)


# --- listeners and journals ---


async def test_a_listener_that_raises_hears_nothing_more() -> None:
    """The run goes on, one event says what became of the listener, and the others hear on."""
    heard: list[str] = []
    seen: list[Event] = []

    def broken(event: Event) -> None:
        heard.append(event.kind)
        raise RuntimeError("no")

    result = await run(line(named("a")), Nothing(), listeners=[broken, seen.append])

    assert result.status == "completed"
    assert heard == ["run_started"]
    failed = [event.body for event in seen if isinstance(event.body, ListenerFailed)]
    assert [(body.listener.rpartition(".")[2], body.text) for body in failed] == [("broken", "RuntimeError: no")]


async def test_a_listener_may_cancel_the_run() -> None:
    """What a listener does comes after the record that it hears of, for all listeners alike."""
    seen: list[Event] = []

    def listen(event: Event) -> None:
        if event.kind == "node_started":
            running.cancel("a listener")

    async with start(line(named("a"), named("b")), Nothing(), listeners=[listen, seen.append]) as running:
        result = await running.result()

    assert result.status == "cancelled"
    assert [event.seq for event in seen] == list(range(len(seen)))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_a_listener_cannot_hide_an_interrupt(error: BaseException) -> None:
    """KeyboardInterrupt and SystemExit end the run, whoever raises them."""

    def listen(event: Event) -> None:
        if event.kind == "node_started":
            raise error

    with pytest.raises(type(error)) as caught:
        await run(line(hangs), Nothing(), listeners=[listen])

    assert caught.value is error


async def test_a_journal_holds_what_listeners_hear() -> None:
    """Records, events and the fold of the recorded facts agree."""
    journal, events = MemoryJournal(), list[Event]()
    graph = line(named("a"), named("b"))
    result = await run(graph, Nothing(), journal=journal, listeners=[events.append])

    records = records_of(graph, await journal.read(result.run_id))
    assert [event for entry in records for event in entry.events(result.run_id)] == events
    assert fold_again(graph, records).ended.status == "completed"


async def test_a_journal_that_fails_ends_the_run_with_its_error() -> None:
    """What cannot be stored did not happen: the store's own error comes out, and no body runs on."""

    def full(row: Row) -> None:
        if row.seq > 3:
            raise OSError("full")

    events: list[Event] = []
    with pytest.raises(OSError, match="full"):
        await run(line(named("a"), named("b")), Nothing(), journal=SlowJournal(before=full), listeners=[events.append])

    assert "run_ended" not in [event.kind for event in events]


async def test_a_journal_may_become_slow_in_the_middle_of_a_run() -> None:
    """A run goes on as before when each record has to be waited for all at once, whether its bodies wait or not."""
    naps = (named("a", seconds=1), *(named(f"n{number}") for number in range(6)), named("z", seconds=1))
    graph = line(*naps)
    traces: list[list[Event]] = []

    for journal in (MemoryJournal(), SlowingJournal()):
        async with start(graph, Nothing(), journal=journal, clock=ManualClock()) as running:
            traces.append([event async for event in running])

    assert canonical_trace(traces[0]) == canonical_trace(traces[1])


async def test_a_bug_in_the_fold_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fold should never raise comes out as `InternalError`, with its cause, and the run is reaped."""
    async with start(line(named("a")), Nothing()) as running:
        monkeypatch.setattr(Fold, "advance", _broken_advance)
        with pytest.raises(InternalError, match="report it") as caught:
            await running.result()

    assert isinstance(caught.value.__cause__, KeyError)


def _broken_advance(*_: object) -> Any:
    raise KeyError("oops")


# --- the before= hook ---


async def test_the_hook_is_asked_before_each_visit() -> None:
    """It sees the state that the node would see; None lets it start; it may be async."""
    asked: list[tuple[str, Any]] = []

    def sync_hook(state: State[Any]) -> None:
        asked.append((state.path[-1].name, state.values))

    async def async_hook(state: State[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        asked.append((state.path[-1].name, state.values))

    for hook in (sync_hook, async_hook):
        asked.clear()
        result = await run(line(named("a"), named("b")), Nothing(), before=hook)
        assert result.status == "completed"
        assert asked == [("a", ()), ("b", ("a",))]


async def test_a_skipped_node_is_no_node_run() -> None:
    """A skip costs nothing, is recorded with its reason, and the token goes on with an empty inbox."""
    seen: list[Any] = []

    async def last(state: State[Nothing]) -> None:
        seen.append(state.inbox)

    def hook(state: State[Any]) -> Skip | None:
        return Skip("not approved") if state.path[-1].name == "b" else None

    events: list[Event] = []
    graph = line(named("a"), named("b"), node(last))
    result = await run(graph, Nothing(), before=hook, listeners=[events.append])

    assert result.status == "completed"
    assert result.spent.total.node_runs == 2
    assert seen == [()]
    skipped = [event.body for event in events if isinstance(event.body, NodeSkipped)]
    assert [(body.path[-1].name, body.reason.code, body.reason.text) for body in skipped] == [
        ("b", "skipped", "not approved")
    ]


async def test_a_hook_that_raises_or_answers_nonsense_fails_the_node() -> None:
    """What the hook raised comes out of the run; an answer that is none is a `UsageError`."""

    def broken(_: State[Any]) -> None:
        raise LookupError("who?")

    def odd(_: State[Any]) -> Any:
        return "skip it"

    with pytest.raises(LookupError, match=r"who\?"):
        await run(line(named("a")), Nothing(), before=broken)
    with pytest.raises(UsageError, match="returns None or Skip"):
        await run(line(named("a")), Nothing(), before=odd)


async def test_a_hook_that_hangs_does_not_outlive_its_run() -> None:
    """Cancelling a run ends a hook that waits."""
    seen: list[str] = []

    async def hook(_: State[Any]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("ended")

    async with start(line(named("a")), Nothing(), before=hook) as running:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        running.cancel()
        result = await running.result()

    assert result.status == "cancelled"
    assert seen == ["ended"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_a_hook_may_interrupt(error: BaseException) -> None:
    """KeyboardInterrupt and SystemExit out of a hook end the run, unchanged."""

    def hook(_: State[Any]) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await run(line(named("a")), Nothing(), before=hook)

    assert caught.value is error


# --- handles that nobody leaves ---


async def stream(graph: Graph[Nothing], kept: list[Run[Nothing]]) -> AsyncIterator[Event]:
    """Give a run's events from a generator that owns the run."""
    async with start(graph, Nothing()) as running:
        kept.append(running)
        async for event in running:
            yield event


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
async def test_a_generator_that_owns_a_run_may_be_collected() -> None:
    """A run inside a generator that is dropped half-way is cancelled and reaped, without an error."""
    kept: list[Run[Nothing]] = []
    events = stream(line(hangs), kept)
    await anext(events)
    del events
    gc.collect()

    with anyio.fail_after(5):
        while "cancelled" not in str(_status(kept[0])):  # noqa: ASYNC110 - a finalizer tells nobody
            await anyio.sleep(0.001)

    assert _status(kept[0]) == "cancelled"


def _status(running: Run[Nothing]) -> str | None:
    try:
        return running.outcome.status
    except UsageError:
        return None


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_nobody_leaves_is_reaped_with_its_loop(backend: str) -> None:
    """A handle that was entered and forgotten: when the loop ends, its body is cancelled, and nothing is reported."""
    seen: list[str] = []
    problems: list[object] = []

    async def body(_: State[Nothing]) -> None:
        seen.append("started")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")

    async def main() -> None:
        running = await start(line(node(body)), Nothing()).__aenter__()
        del running
        gc.collect()
        while not seen:
            await anyio.lowlevel.checkpoint()

    before, sys.unraisablehook = sys.unraisablehook, problems.append
    try:
        anyio.run(main, backend=backend)
        gc.collect()
    finally:
        sys.unraisablehook = before

    assert seen == ["started", "cancelled"]
    assert problems == []


async def test_every_started_visit_of_a_left_run_has_ended() -> None:
    """Wherever a run is left, each visit that started has one terminal event."""
    graph = Graph("g", START >> (named("a"), named("b"), hangs) >> Join("j") >> END, context=Nothing)
    for number in range(12):
        events: list[Event] = []
        async with start(graph, Nothing(), listeners=[events.append]) as running:
            async for event in running:
                if event.seq == number:
                    break

        started = [event.path for event in events if isinstance(event.body, NodeStarted)]
        ended = [event.path for event in events if isinstance(event.body, NodeEnded)]
        assert sorted(started) == sorted(ended)


async def test_no_result_is_the_same_as_its_text() -> None:
    """A handle shows its id, a result how the run ended and what came out."""
    played = await play(line(named("a")), Nothing())

    assert repr(played.result) == f"Result(status='completed', output='a', run_id='{played.result.run_id}')"
    async with start(line(named("a")), Nothing(), run_id="mine") as running:
        assert repr(running) == "<Run 'mine' of 'line'>"


async def test_an_awaitable_hook_of_any_kind_is_awaited() -> None:
    """A hook may return whatever can be awaited."""

    class Later:
        def __await__(self) -> Any:
            return self._answer().__await__()

        async def _answer(self) -> Skip:
            return Skip("later")

    def hook(_: State[Any]) -> Awaitable[Skip | None]:
        return Later()

    events: list[Event] = []
    await run(line(named("a")), Nothing(), before=hook, listeners=[events.append])

    assert any(isinstance(event.body, NodeSkipped) for event in events)


async def test_run_sync_in_a_running_loop_says_what_to_write_instead() -> None:
    """Whoever calls run_sync from async code is told to await run."""

    @node
    async def hello(state: State[Nothing]) -> str:
        return "hello"

    graph = Graph("graph", START >> hello >> END, context=Nothing)

    with pytest.raises(UsageError, match="await run"):
        run_sync(graph, Nothing())
