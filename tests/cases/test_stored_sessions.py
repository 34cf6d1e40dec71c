"""Runs of many sessions: crash after crash, cancelled, interrupted, chats, other loops, other seeds, other bodies."""

import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter

from graphflow import (
    END,
    START,
    AskUser,
    Graph,
    Human,
    Pause,
    Result,
    SqliteJournal,
    State,
    Step,
    fork_run,
    node,
    on_active,
    reopen,
    replay,
    resume,
    run,
    start,
)
from graphflow.errors import EffectMismatch, UsageError
from graphflow.events import CancelRequested, NodeEnded, NodeStarted
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.processes import run_script
from tests.cases.stored import RUN, Calls, Plan, Stage, copied, go_on, hold_crash_loop, hold_same, play
from tests.cases.stored_agents import spoken
from tests.cases.stored_functions import Log, merges, says
from tests.cases.stored_plans import PLANS
from tests.support import ROOT

# --- crash after crash -----------------------------------------------------------------------------------------------


LOOPED = [
    ("loop", 2), ("collected", 2), ("batch", 3), ("nested", 2), ("asking", 3), ("late", 2), ("gathers", 2),
    ("everything", 3), ("team", 4),  # a tool says again what it has said, which takes a record
]  # fmt: skip


@pytest.mark.parametrize(("name", "rows"), LOOPED)
async def test_j5_a_run_comes_to_its_end_however_often_its_process_ends(name: str, rows: int) -> None:
    """Each session stores two records, or a few, and ends: the run gets on with each, and ends as it would have."""
    sessions = await hold_crash_loop(PLANS[name], rows)

    assert sessions > 3


# --- cancellation ----------------------------------------------------------------------------------------------------


async def cancelled(plan: Plan[Any], at: int, stage: Stage[Any], journal: Any) -> Result[Any]:
    """Play a run that is cancelled as soon as it has had some events."""
    running: list[Any] = []
    heard: list[Any] = []

    def listen(event: Any) -> None:
        heard.append(event)
        if len(heard) == at and running:
            running[0].cancel("somebody")

    options: dict[str, Any] = {**plan.options, "listeners": [listen]}
    async with start(stage.graph, plan.context, journal=journal, run_id=RUN, clock=ManualClock(), **options) as one:
        running.append(one)
        result: Result[Any] = await one.result()
    return result


@pytest.mark.parametrize("at", [9, 17, 26])
@pytest.mark.parametrize("name", ["branches", "batch", "team", "nested", "lanes", "crowded"])
async def test_i7_a_cancelled_run_stays_cancelled_wherever_its_process_ends(name: str, at: int) -> None:
    """After the record of the cancellation nothing begins any more; before it, the next process knows nothing of it."""
    plan, journal = PLANS[name], MemoryJournal()
    stage = Stage(plan)
    result = await cancelled(plan, at, stage, journal)
    rows = await journal.read(RUN)
    events, _ = await stage.stored(journal)
    seq = next((event.seq for event in events if isinstance(event.body, CancelRequested)), None)
    if seq is None:
        assert result.status != "cancelled"
        return
    whole = await play(plan, MemoryJournal(), stage)

    for count in range(1, len(rows) + 1):
        again = await go_on(plan, await copied(rows[:count], MemoryJournal()), stage)
        if rows[count - 1].seq < seq:
            hold_same(whole, again, count, same_rows=False, same_calls=False)
        else:
            assert again.result.status == "cancelled"
            assert dataclasses.replace(again.result, failures=(), refused=()) == dataclasses.replace(
                result, failures=(), refused=()
            )
            assert not again.calls
            begun = {event.body.path for event in again.events if isinstance(event.body, NodeStarted)}
            assert begun == {event.body.path for event in again.events if isinstance(event.body, NodeEnded)}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["body", "effect", "branch", "tool"])
async def test_i11_an_interrupted_run_can_be_gone_on_with(place: str, error: type[BaseException]) -> None:
    """Ctrl-C ends the process, not the run: its visits stay open, and the next process enters them again."""
    interrupt = [True]

    def make(calls: Calls) -> Graph[Log]:
        async def stop() -> int:
            if interrupt.pop() if interrupt else False:
                raise error
            return 7

        @calls.node
        async def n(_: State[Log], step: Step) -> int:
            await calls.effect(step, "before", 1)
            return await (step.effect("stop", stop) if place == "effect" else stop())

        agent = calls.agent("n", call("stop"), spoken, tools=[stop])
        found = agent if place == "tool" else n
        parts: Any = (found, says(calls, "slow", sleep=9)) if place == "branch" else found
        return Graph("g", START >> says(calls, "a") >> parts >> merges(calls) >> END, context=Log)

    plan, journal = Plan(make=make, context=Log()), MemoryJournal()
    with pytest.raises(error):
        await play(plan, journal)

    again = await go_on(plan, journal)

    assert again.result.status == "completed"
    assert "7" in str(again.result.output)
    assert not any(path == "a" for _, path, _ in again.calls)
    assert not any(name == "before" for name, _, _ in again.calls)


# --- chats -----------------------------------------------------------------------------------------------------------


async def test_f7_the_next_message_of_a_chat_may_be_broken_off_anywhere() -> None:
    """A run that continues another has its thread, its speaker and its spending, in whatever process it goes on."""

    def make(calls: Calls) -> Graph[Any]:
        a = calls.agent("a", lambda request: call("transfer_to_b") if len(request.messages) < 2 else spoken(request))
        b = calls.agent("b", call("ask_user", question="more?"), spoken, tools=[AskUser()])
        return Graph(
            "chat",
            START.choose(on_active(b), default=a),
            a.hands_off(b, max_hops=1),
            a >> END,
            b >> END,
            context=Log,
        )

    plan = Plan(make=make, context=Log(goal="first"), answers={"more?": "no"})
    first = await play(plan, MemoryJournal())
    second = dataclasses.replace(plan, context=Log(goal="second"), options={"after": first.result})

    whole = await play(second, MemoryJournal())

    for count in range(1, len(whole.rows) + 1):
        again = await go_on(second, await copied(whole.rows[:count], MemoryJournal()))
        hold_same(whole, again, count)
    assert whole.result.thread[: len(first.result.thread)] == first.result.thread
    assert (whole.result.spent.total.model_calls or 0) > (first.result.spent.total.model_calls or 0)


# --- other backends, other seeds -------------------------------------------------------------------------------------

FIRST = """
import sys
import anyio
from graphflow import SqliteJournal
from tests.cases.processes import Killing
from tests.cases.stored import play
from tests.cases.stored_plans import PLANS
from tests.cases.stored_values import VALUES, carrying

name, backend, count = sys.argv[1:]
plan = PLANS.get(name) or carrying(VALUES[name], "an effect")
anyio.run(play, plan, Killing(SqliteJournal(f"{count}.db"), int(count)), backend=backend)
"""
SECOND = """
import sys
import anyio
from graphflow import SqliteJournal
from tests.cases.stored import go_on, hold_same, play
from tests.cases.stored_plans import PLANS
from tests.cases.stored_values import VALUES, carrying

name, backend, count = sys.argv[1:]

async def main():
    plan = PLANS.get(name) or carrying(VALUES[name], "an effect")
    whole = await play(plan, SqliteJournal("whole.db"))
    again = await go_on(plan, SqliteJournal(f"{count}.db"))
    hold_same(whole, again, int(count), same_rows=False, same_calls=False)
    print(again.result.status)

anyio.run(main, backend=backend)
"""


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio")], ids="-".join)
@pytest.mark.parametrize("name", ["everything", "containers"])
def test_j11_another_interpreter_with_another_seed_and_loop_goes_on(
    name: str, backends: tuple[str, str], tmp_path: Path
) -> None:
    """Begun on one event loop and one hash seed, killed, and ended by another interpreter on the others."""
    count = "4"
    (tmp_path / "first.py").write_text(FIRST, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1"}
    command = [sys.executable, "first.py", name, backends[0], count]
    killed = subprocess.run(command, cwd=tmp_path, env=env, check=False, timeout=60)

    lines = run_script(tmp_path, SECOND, name, backends[1], count)

    assert killed.returncode == -9
    assert lines == ["completed"]


# --- other bodies ----------------------------------------------------------------------------------------------------


def first_effects(*, order: str) -> Graph[Log]:
    """A body of version 1 that asks for effects in one order or another, whatever its version says."""

    @node(version="1")
    async def works(_: State[Log], step: Step) -> int:
        async def one(number: int) -> int:
            return number

        if order == "another name":
            return await step.effect("b", one, 1)
        if order in {"other arguments", "a key, then other arguments"}:
            if order != "other arguments":
                await step.effect("a", one, 1, key="k")
            return await step.effect("a", one, 2)
        if order == "a sleep":
            await step.sleep(3)
        elif order == "a key":
            return await step.effect("a", one, 1, key="k")
        total = await step.effect("a", one, 1)
        if order == "fewer":
            return total
        await step.sleep(2)
        if order == "more":
            total += await step.effect("c", one, 5)
        return total + await step.effect("b", one, 2)

    return Graph("g", START >> works >> END, context=Log)


@pytest.mark.parametrize(
    "order", ["another name", "other arguments", "more", "fewer", "a key", "a key, then other arguments"]
)
async def test_j7_a_body_that_asks_otherwise_is_told_so_or_does_as_it_says(order: str) -> None:
    """An effect that is asked for differently is a mismatch, after which the right body goes on; new ones are done."""
    journal = MemoryJournal()
    whole = await run(first_effects(order=""), Log(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    broken = await copied(rows[:4], MemoryJournal())

    if order not in {"more", "fewer"}:
        for _ in range(2):
            with pytest.raises(EffectMismatch, match="'works' asked for"):
                await resume(first_effects(order=order), RUN, journal=broken, clock=ManualClock())
        result = await resume(first_effects(order=""), RUN, journal=broken, clock=ManualClock())
        assert result == whole
    else:
        result = await resume(first_effects(order=order), RUN, journal=broken, clock=ManualClock())
        assert result.output == {"more": 8, "fewer": 1}[order]


# --- schemas of questions --------------------------------------------------------------------------------------------


class Form(BaseModel, frozen=True):
    """A form."""

    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spot:
    """A place."""

    x: float


SCHEMAS: dict[str, tuple[Any, Any, Any]] = {
    "none": (None, {"a": [1]}, None),
    "int": (int, 3, "x"),
    "literal": (Literal["yes", "no"], "yes", "maybe"),
    "union": (int | str | None, "x", [1]),
    "tuple": (tuple[int, ...], (1, 2), ("x",)),
    "dict": (dict[str, list[int]], {"a": [1]}, {"a": 1}),
    "model": (Form, Form(name="n", sizes=(1,)), {"sizes": 1}),
    "dataclass": (Spot, Spot(1.5), {"x": "y"}),
    "list of models": (list[Form], [Form(name="n")], [1]),
}


@pytest.mark.parametrize("kind", ["human", "pause", "agent"])
@pytest.mark.parametrize("name", list(SCHEMAS))
async def test_k1_a_question_has_its_schema_after_a_restart(name: str, kind: str) -> None:
    """The next process asks the same question, with the same type of answer, and refuses what the first one would."""
    schema, good, bad = SCHEMAS[name]
    if (kind, name) in {("agent", "none"), ("human", "dict"), ("human", "list of models")}:
        return  # an agent always asks for something; an output must be frozen

    def make(calls: Calls) -> Graph[Log]:
        @calls.node(name="a")
        async def asks(state: State[Log]) -> Any:
            return Pause("q?", schema=schema) if state.turn == 0 else repr(state.values[0])

        found: Any = asks
        if kind == "human":
            found = Human("a", "q?", schema=schema)
        elif kind == "agent":
            found = calls.agent("a", call("ask_user", question="q?"), spoken, tools=[AskUser(schema=schema)])
        tells = calls.node(lambda state: repr(state.values[0]), name="tells")
        return Graph("g", START >> found >> tells >> END, context=Log)

    journal = MemoryJournal()
    waiting = await play(Plan(make=make, context=Log()), journal)

    async with reopen(make(Calls()), RUN, journal=journal) as running:
        question = running.questions[0]
        assert question.schema == schema
        if bad is not None:
            with pytest.raises(ValueError, match="does not fit"):
                running.answer(question.id, bad)
        running.answer(question.id, good)
        result = await running.result()

    assert waiting.result.questions == (question,)
    assert result.status == "completed"
    assert kind == "agent" or str(result.output).count("Form") == ("Form" in repr(good))
    assert await replay(make(Calls()), RUN, journal=journal) == result
    if schema is not None:
        assert TypeAdapter[Any](schema).validate_python(good) == good


async def test_k1_a_schema_that_cannot_be_stored_is_refused_at_the_node_that_asks() -> None:
    """A type with a rule of the user's own in it has no form in a journal: the node fails, and nobody is asked."""

    def positive(number: int) -> int:
        assert number > 0
        return number

    def make(calls: Calls) -> Graph[Log]:
        rule: Any = Annotated[int, AfterValidator(positive), Field(title="t")]
        asks = calls.node(lambda state: Pause("q?", schema=rule) if state.turn == 0 else 1, name="asks")
        return Graph("g", START >> asks >> END, context=Log)

    ended = await play(Plan(make=make, context=Log()), MemoryJournal())

    assert (ended.result.status, ended.result.questions) == ("failed", ())
    assert ended.result.reason is not None
    assert "schema" in ended.result.reason.text


# --- what a resume needs ---------------------------------------------------------------------------------------------


class Db:
    """A resource."""


async def test_d7_resources_are_given_again_and_listeners_may_fail() -> None:
    """A body that needs a resource is told that it is missing; a listener that raises changes nothing of the resume."""

    def make(calls: Calls) -> Graph[Log]:
        @calls.node
        async def uses(_: State[Log], step: Step) -> str:
            await calls.effect(step, "before", 1)
            await step.sleep(1)
            return type(step.resource(Db)).__name__

        return Graph("g", START >> uses >> END, context=Log)

    journal = MemoryJournal()
    whole = await play(Plan(make=make, context=Log(), options={"resources": [Db()]}), journal)
    broken = await copied(whole.rows[:3], MemoryJournal())

    def raises(_: Any) -> None:
        raise LookupError

    result = await resume(
        make(Calls()), RUN, journal=broken, resources=[Db()], listeners=[raises], clock=ManualClock()
    )  # fmt: skip
    lacking = await copied(whole.rows[:3], MemoryJournal())
    with pytest.raises(UsageError, match="resource of class Db"):
        await resume(make(Calls()), RUN, journal=lacking, clock=ManualClock())

    assert result == whole.result


@pytest.mark.parametrize("name", ["chain", "batch", "everything"])
async def test_a_run_of_several_sessions_is_forked_at_any_of_its_records(name: str, tmp_path: Path) -> None:
    """The markers of sessions are records like others: a fork at one, or after one, ends like the origin."""
    plan, journal = PLANS[name], SqliteJournal(tmp_path / "runs.db")
    stage = Stage(plan)
    whole = await play(plan, MemoryJournal(), stage)
    await copied(whole.rows[:6], journal)
    again = await go_on(plan, journal, stage)

    for row in again.rows[::2]:
        result = await fork_run(stage.graph, RUN, journal=journal, at=row.seq, clock=ManualClock())
        while result.questions:
            found = {question.text.partition("\n")[0]: question.id for question in result.questions}
            answers = {found[text]: plan.answers[text] for text in found}
            result = await resume(stage.graph, result.run_id, journal=journal, answers=answers, clock=ManualClock())
        assert dataclasses.replace(result, run_id=RUN) == whole.result
