"""What people get wrong, and what the world does: one clear error where it was written; nothing hangs or is lost."""

import asyncio
import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import pytest
from pydantic import ConfigDict, field_validator

from graphflow import (
    END,
    START,
    Agent,
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
    Run,
    Skip,
    State,
    Update,
    append,
    fork,
    node,
    ping_pong,
    run,
    run_sync,
    start,
    when,
)
from graphflow.errors import BoundHit, MutableContext, StrayCancellation, UsageError
from graphflow.events import Event, Row
from graphflow.testing import ManualClock, ScriptedModel
from tests.support import BreakingJournal, SlowJournal


class Case(Context):
    """What the nodes see."""

    n: int = 0


@node
async def a(state: State[Case]) -> str:
    """Give a text."""
    return "a"


@node
async def b(state: State[Case]) -> str:
    """Give another."""
    return "b"


def graph(*chains: Any, **options: Any) -> Graph[Case]:
    """Make a graph of statements."""
    return Graph("graph", *chains, context=Case, budget=Budget(node_runs=10_000), **options)


def never(state: State[Case]) -> bool:
    """Hold for nothing."""
    return False


async def later(state: State[Any]) -> bool:
    """Answer where nobody awaits."""
    return False


WRONG: list[Callable[[], object]] = [
    lambda: Delegate([Call("b", "x")]),  # type: ignore[arg-type]
    lambda: Delegate("b"),  # type: ignore[arg-type]
    lambda: Call(b, "x"),  # type: ignore[arg-type]
    lambda: Call("b", 5),  # type: ignore[arg-type]
    lambda: Call("b", "x", needs="ids"),  # type: ignore[arg-type]
    lambda: Handoff(b),  # type: ignore[arg-type]
    lambda: Handoff("b", update={"n": 1}),  # type: ignore[arg-type]
    lambda: Done(update={"n": 1}),  # type: ignore[arg-type]
    lambda: Pause(5),  # type: ignore[arg-type]
    lambda: Skip(5),  # type: ignore[arg-type]
    lambda: a.choose(when(later, b), default=END),  # type: ignore[arg-type]
    lambda: a.choose(when(bool, b), default="b"),  # type: ignore[arg-type]
    lambda: a.map(b, over=later, join=Join("j")),  # type: ignore[arg-type]
    lambda: a.map(b, over=lambda _: (), join=Join("j"), failure="ignore"),  # type: ignore[arg-type]
    lambda: fork(a, b, failure="ignore"),  # type: ignore[arg-type]
    lambda: Join("j", reduce=later),  # type: ignore[arg-type]
    lambda: a.delegates("b", max_hops=1),  # type: ignore[arg-type]
    lambda: a.hands_off(END, max_hops=1),  # type: ignore[arg-type]
    lambda: a.on_error("b"),  # type: ignore[arg-type]
    lambda: graph(START >> a >> END, escalate="b"),
    lambda: graph(START >> a >> END, leave=later),
    lambda: Graph("graph", START >> a >> END, context=Case, budget=5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG, ids=map(str, range(len(WRONG))))
def test_what_makes_no_sense_is_refused_where_it_is_written(wrong: Callable[[], object]) -> None:
    """An outcome, an edge or a graph with the wrong kind of thing in it is a `UsageError` at once."""
    with pytest.raises(UsageError):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: node(retries=-1)(later), "FunctionNode 'later': retries=-1: a whole number of at least 0 is needed"),
        (lambda: Join("j", reduce=later), "Join 'j': reduce=<function later at "),  # type: ignore[arg-type]
        (lambda: a.delegates(b, max_hops=-1), "<FunctionNode 'a'>.delegates: max_hops=-1: a whole number"),
        (lambda: a.delegates(b, max_hops=1, share=2), "<FunctionNode 'a'>.delegates: share=2: 'pool', 'equal'"),
        (lambda: graph(START >> a >> END, max_depth=-1), "Graph 'graph': max_depth=-1: a whole number"),
        (lambda: ping_pong(0), "ping_pong: rounds=0: a whole number of at least 1 is needed"),
        (lambda: Agent("desk", model=ScriptedModel(), max_turns=0), "Agent 'desk': max_turns=0: a whole number"),
        (lambda: Agent("desk", model=ScriptedModel(), tools=5), "Agent 'desk': tools=5: a list of functions"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_is_told_in_one_form(wrong: Callable[[], object], text: str) -> None:
    """Whoever refuses an argument says where it was given, then the argument, then the rule."""
    with pytest.raises(UsageError) as caught:
        wrong()

    assert str(caught.value).startswith(text)


def test_a_default_may_be_a_chain() -> None:
    """As the cases of a choose do, its default takes a chain."""
    made = graph(START >> a, a.choose(when(never, b), default=b >> END))

    assert run_sync(made, Case()).output == "b"


def test_every_function_is_a_reducer() -> None:
    """A built-in function and a partial one combine a field as a function of one's own does."""

    class Sums(Context):
        total: Annotated[int, operator.add] = 0
        best: Annotated[int, max] = 0
        scaled: Annotated[int, functools.partial(operator.add)] = 0

    @node
    async def adds(state: State[Sums]) -> Update:
        return Update(total=1, best=1, scaled=1)

    made = Graph("graph", START >> adds >> END, context=Sums, budget=Budget(node_runs=1))

    assert run_sync(made, Sums(total=10, best=5, scaled=2)).context == Sums(total=11, best=5, scaled=3)


def test_a_context_that_gives_up_its_frozenness_is_refused() -> None:
    """Neither a setting nor an async reducer opens a hole in a context class."""
    with pytest.raises(MutableContext, match="not frozen"):

        class Loose(Context):  # pyright: ignore[reportUnusedClass]
            model_config = ConfigDict(frozen=False)

    with pytest.raises(MutableContext, match="async"):

        class Late(Context):  # pyright: ignore[reportUnusedClass]
            n: Annotated[int, later] = 0


def test_an_update_stands_in_the_fields_that_were_set() -> None:
    """What pydantic knows of a model's fields is true of an updated context too."""

    @node
    async def sets(state: State[Case]) -> Update:
        return Update(n=1)

    result = run_sync(graph(START >> sets >> END), Case())

    assert result.context.model_dump(exclude_unset=True) == {"n": 1}


def test_a_field_validator_holds_for_updates_too() -> None:
    """What a context's own validator refuses at the start, it refuses in an update, and the producer is blamed."""

    class Positive(Context):
        n: int = 1

        @field_validator("n")
        @classmethod
        def positive(cls, value: int) -> int:
            if value < 1:
                msg = "it must be positive"
                raise ValueError(msg)
            return value

    @node
    async def sets(state: State[Positive]) -> Update:
        return Update(n=-1)

    made = Graph("graph", START >> sets >> END, context=Positive, budget=Budget(node_runs=1))

    result = run_sync(made, Positive())

    assert (result.status, result.context.n) == ("failed", 1)
    assert result.reason is not None
    assert "it must be positive" in result.reason.text


async def test_an_error_without_a_text_is_raised_as_any_other() -> None:
    """A broken __str__ neither hangs the run nor hides which object was raised."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    raised = Broken()

    @node
    async def breaks(state: State[Case]) -> None:
        raise raised

    with anyio.fail_after(20), pytest.raises(Broken) as caught:
        await run(graph(START >> breaks >> END), Case())

    assert caught.value is raised


async def test_a_bound_that_a_node_makes_up_is_a_failure() -> None:
    """A BoundHit of a node's own, with nonsense in it, is told like any failure."""

    @node
    async def makes_up(state: State[Case]) -> None:
        raise BoundHit("tokens", limit="many", wanted=1, left=0)

    with anyio.fail_after(20):
        result = await run(graph(START >> makes_up >> END), Case())

    assert result.status == "exhausted"


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("kind", [SlowJournal, BreakingJournal])
async def test_what_a_journal_raises_comes_out(kind: type[SlowJournal], which: int, error: type[BaseException]) -> None:
    """Whatever the store raises, at the first record or a later one, ends the run and is raised."""
    rows: list[Row] = []

    def breaks(row: Row) -> None:
        rows.append(row)
        if len(rows) == which:
            raise error

    with anyio.fail_after(20), pytest.raises(error):
        await run(graph(START >> a >> END), Case(), journal=kind(before=breaks))


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyboardInterrupt, KeyboardInterrupt), (SystemExit, SystemExit), (asyncio.CancelledError, StrayCancellation)],
)
@pytest.mark.parametrize("where", ["condition", "reduce", "leave", "enter", "hook"])
async def test_what_passes_everything_passes_unchanged(
    where: str, error: type[BaseException], expected: type[BaseException]
) -> None:
    """KeyboardInterrupt and SystemExit leave the run as they are; a cancellation that nobody asked for is named."""

    def raises(*_: Any) -> Any:
        raise error

    def condition(state: State[Case]) -> bool:
        return bool(raises(state))

    graphs: dict[str, Callable[[], Graph[Case]]] = {
        "condition": lambda: graph(START >> a, a.choose(when(condition, b), default=END), b >> END),
        "reduce": lambda: graph(START >> a >> (b, b.named("c")) >> Join("j", reduce=raises) >> END),
        "leave": lambda: graph(START >> a >> END, leave=raises),
        "enter": lambda: graph(START >> graph(START >> a >> END, enter=raises).named("inner") >> END),
        "hook": lambda: graph(START >> a >> END),
    }

    with anyio.fail_after(20), pytest.raises(expected):
        await run(graphs[where](), Case(), before=raises if where == "hook" else None)


async def test_a_listener_cannot_break_a_run_whatever_it_raises() -> None:
    """Not even an exception that has no text."""

    class Bad(Exception):
        def __str__(self) -> str:
            msg = "no text"
            raise RuntimeError(msg)

    def listener(event: Event) -> None:
        raise Bad

    result = await run(graph(START >> a >> END), Case(), listeners=[listener])

    assert result.output == "a"


async def test_a_listener_may_answer_any_number_of_questions() -> None:
    """Fifteen hundred lanes ask, and each is answered as it asks."""
    ask, join = Human("ask", "?"), Join("j")
    made = graph(START.map(ask, over=lambda state: range(1_500), join=join, max_items=1_500), join >> END)
    running: list[Run[Case]] = []

    def answers(event: Event) -> None:
        if event.kind == "paused":
            running[0].answer(getattr(event.body, "question", ""), "yes")

    async with start(made, Case(), listeners=[answers]) as handle:
        running.append(handle)
        result = await handle.result()

    assert result.output == ("yes",) * 1_500


async def test_the_error_that_ended_the_run_is_raised_and_no_earlier_one() -> None:
    """What a retried attempt raised is not taken for what a condition raised after it."""
    tries: list[int] = []

    @node(retries=1)
    async def twice(state: State[Case]) -> str:
        tries.append(1)
        if len(tries) == 1:
            msg = "first attempt"
            raise ValueError(msg)
        return "fine"

    def raises(state: State[Case]) -> bool:
        msg = "the condition"
        raise ValueError(msg)

    result = await run(graph(START >> twice, twice.choose(when(raises, b), default=END), b >> END), Case())

    assert result.status == "failed"
    assert result.reason is not None
    assert "the condition" in result.reason.text


async def test_an_error_comes_out_of_any_depth() -> None:
    """Two hundred graphs inside each other pass the very object on."""

    @node
    async def breaks(state: State[Case]) -> None:
        raise LookupError

    made = graph(START >> breaks >> END)
    for depth in range(200):
        made = graph(START >> made.named(f"g{depth}") >> END)

    with pytest.raises(LookupError):
        await run(made, Case())


async def test_a_failed_report_of_ours_stands_in_the_inbox_where_the_field_cannot_hold_it() -> None:
    """Where an edge asks for the user's own report, a failure comes back as `Report` and the caller goes on."""

    class Mine(Report):
        extra: int = 0

    class Kept(Context):
        reports: Annotated[tuple[Mine, ...], append] = ()

    @node
    async def breaks(state: State[Kept]) -> None:
        raise LookupError

    @node
    async def boss(state: State[Kept]) -> Delegate | str:
        return f"saw {state.values[0].status}" if state.turn else Delegate(Call("breaks", "x"))

    team = boss.delegates(breaks, max_hops=1, report=Mine, into="reports")
    made = Graph("graph", START >> boss >> END, team, context=Kept, budget=Budget(node_runs=9), max_depth=1)

    result = await run(made, Kept())

    assert (result.status, result.output, result.context.reports) == ("partial", "saw failed", ())


@pytest.mark.may_block
async def test_a_sync_body_may_run_a_loop_of_its_own() -> None:
    """A worker thread has no loop, so `anyio.run` and `run_sync` work there."""

    async def five() -> int:
        return 5

    @node
    def inner(state: State[Case]) -> int:
        return anyio.run(five)

    assert (await run(graph(START >> inner >> END), Case())).output == 5


async def test_many_calls_of_one_batch_report_in_order() -> None:
    """A thousand calls with equal shares each get their part, and their reports come in call order."""

    @node
    async def leaf(state: State[Case]) -> str:
        return state.brief.objective if state.brief is not None else ""

    @node
    async def boss(state: State[Case]) -> Delegate | tuple[str, ...]:
        if state.turn:
            return tuple(report.finding for report in state.values)
        return Delegate(*(Call("leaf", f"part {index}") for index in range(1_000)))

    made = graph(START >> boss >> END, boss.delegates(leaf, max_hops=1_000, share="equal"), max_depth=1)

    result = await run(made, Case(), clock=ManualClock())

    assert result.output == tuple(f"part {index}" for index in range(1_000))


@pytest.mark.parametrize("how", ["async", "waits", "sync"])
async def test_a_body_that_raises_generator_exit_has_failed(how: str) -> None:
    """By its name: of itself, it does not mean that somebody has closed it."""

    @node
    async def odd(state: State[Case]) -> None:
        if how == "waits":
            await anyio.lowlevel.checkpoint()
        raise GeneratorExit

    def sync(state: State[Case]) -> None:
        raise GeneratorExit

    body = node(name="odd")(sync) if how == "sync" else odd
    with pytest.raises(StrayCancellation, match="'odd' raised GeneratorExit, but nobody had closed it") as caught:
        await run(graph(START >> body >> END), Case())

    assert isinstance(caught.value.__cause__, GeneratorExit)
