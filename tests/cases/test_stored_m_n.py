"""Cases M7, N9 and N11 with journals: who goes away, memory that stays flat, bytes that grow with what is new."""

import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest

from graphflow import (
    END,
    START,
    AskUser,
    Context,
    Graph,
    Human,
    Join,
    SqliteJournal,
    State,
    Step,
    Update,
    append,
    node,
    replay,
    resume,
    run,
    start,
    when,
)
from graphflow.events import Journal, NodeEnded, NodeStarted, Row, RunEnded, StoredRun
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import Talk
from tests.cases.stored import RUN, Breaking, Calls
from tests.support import FULL

# --- M7 --------------------------------------------------------------------------------------------------------------


class World:
    """What hangs, and what it saw."""

    def __init__(self) -> None:
        self.reached, self.cancelled = anyio.Event(), 0

    async def hang(self) -> Any:
        self.reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled += 1


def hanging(world: World, what: str) -> Graph[Talk]:
    """A graph in the middle of which something hangs."""
    calls = Calls()

    async def answer(_: Any) -> Any:
        return await world.hang()

    async def look() -> str:
        """Look."""
        found: str = await world.hang()
        return found

    @node
    async def body(_: State[Talk], step: Step) -> None:
        if what == "a body":
            await world.hang()
        if what == "an effect":
            await step.effect("hang", world.hang)
        if what == "a sleep":
            world.reached.set()
        await step.sleep(3600)

    agent = calls.agent("agent", answer if what == "a model" else call("look"), "never", tools=[look, AskUser()])
    found: Any = agent if what in {"a model", "a tool"} else body
    if what == "a branch":
        found = Graph("inner", START >> (agent, body, Human("h", "q?")) >> Join("j") >> END, context=Talk)
    if what == "a callee":
        boss = calls.agent("boss", call("ask_agent", objective="?"))
        return Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)
    return Graph("g", START >> found >> END, context=Talk)


def journal_of(store: str, folder: Path) -> Any:
    """Make a journal of one kind."""
    if store == "memory":
        return MemoryJournal()
    if store == "slow":
        return Breaking(MemoryJournal(), 10**6, instant=False)
    return SqliteJournal(folder / "runs.db", fsync=store == "fsync")


GOING = ["its task is cancelled", "its time is over", "it leaves the loop", "it raises", "it cancels the run"]


@pytest.mark.parametrize("store", ["memory", "slow", "sqlite", "fsync"])
@pytest.mark.parametrize("going", GOING)
@pytest.mark.parametrize("what", ["a model", "a tool", "a body", "an effect", "a sleep", "a branch", "a callee"])
async def test_m7_when_the_consumer_goes_away_the_end_is_stored(
    what: str, going: str, store: str, tmp_path: Path
) -> None:
    """What was at work sees the cancellation; each visit that started has its end in the journal, as the run has."""
    if store in {"sqlite", "fsync"} and (what not in {"a model", "a branch"} or going == "it raises"):
        return
    world, journal = World(), journal_of(store, tmp_path)
    graph = hanging(world, what)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_consume, graph, journal, going, world)

    rows = await journal.read(RUN)
    bodies = await bodies_of(graph, rows)
    begun = {body.path for body in bodies if isinstance(body, NodeStarted)}
    over = [body.path for body in bodies if isinstance(body, NodeEnded)]
    assert world.cancelled == (what != "a sleep")
    assert isinstance(bodies[-1], RunEnded)
    assert bodies[-1].status == "cancelled"
    assert begun == set(over)
    assert len(over) == len(set(over))
    again = await resume(graph, RUN, journal=journal)
    assert again.status == "cancelled"
    assert again == await replay(graph, RUN, journal=journal)
    assert await journal.read(RUN) == rows


async def bodies_of(graph: Graph[Any], rows: Sequence[Row]) -> list[Any]:
    """Give all that rows hold."""
    from graphflow.runtime.stored import prepared

    reader = prepared(graph).rows()
    return [event.body for row in rows for event in reader.record(RUN, row).events(RUN)]


async def _consume(graph: Graph[Talk], journal: Journal, going: str, world: World) -> None:
    """Consume the events of a run, and go away in the middle of it."""
    with anyio.CancelScope() as scope:
        try:
            async with start(graph, Talk(), journal=journal, run_id=RUN) as running:
                if going == "its time is over":
                    await world.reached.wait()
                    with anyio.move_on_after(0.01):
                        await running.result()
                elif going == "its task is cancelled":
                    await world.reached.wait()
                    scope.cancel()
                    async for _ in running:
                        await anyio.lowlevel.checkpoint()
                else:
                    async for _ in running:
                        break
                    await world.reached.wait()
                    if going == "it raises":
                        raise LookupError(going)
                    if going == "it cancels the run":
                        running.cancel()
                        await running.result()
        except LookupError as error:
            assert str(error) == going  # noqa: PT017 - its own error, and nothing else


async def test_m7_a_run_that_is_awaited_is_cancelled_and_stored() -> None:
    """A caller of `run` that is cancelled leaves a stored end behind, and the cancellation reaches it."""
    world, journal = World(), MemoryJournal()
    graph = hanging(world, "a model")

    with anyio.move_on_after(0.05) as scope:
        await run(graph, Talk(), journal=journal, run_id=RUN)

    assert scope.cancelled_caught
    assert world.cancelled == 1
    assert (await resume(graph, RUN, journal=journal)).status == "cancelled"


# --- N9, N11 ---------------------------------------------------------------------------------------------------------


class Sizes:
    """A journal that keeps nothing but sizes, in order, and takes a moment for each row."""

    def __init__(self, delay: float) -> None:
        self.delay, self.instant, self.last = delay, False, -1
        self.bytes, self.rows, self.at_work = 0, 0, 0

    async def claim(self, run: str) -> Any:
        return self

    def append_nowait(self, row: Row) -> None:
        raise NotImplementedError

    async def append(self, row: Row) -> None:
        assert not self.at_work, "one row at a time"
        assert row.seq > self.last, "in order"
        self.at_work += 1
        await anyio.sleep(self.delay)
        self.at_work -= 1
        self.last = row.seq
        self.rows += 1
        self.bytes += len(row.fact) + len(row.decisions)

    async def release(self) -> None:
        pass

    async def read(self, run: str, after: int = -1) -> Sequence[Row]:
        return ()

    async def runs(self) -> Sequence[StoredRun]:
        return ()

    async def delete(self, run: str) -> bool:
        return False


class Steps(Context):
    """Counts steps, and keeps nothing of them."""

    steps: int = 0


def stepping(total: int, mark: Any) -> Graph[Steps]:
    """A loop of many steps."""

    def more(state: State[Steps]) -> bool:
        return state.context.steps < total

    @node
    async def step(state: State[Steps], _: Step) -> Update:
        mark(state.context.steps)
        return Update(steps=state.context.steps + 1)

    return Graph("loop", START >> step, step.choose(when(more, step, max_hops=total), default=END), context=Steps)


async def test_n9_memory_stays_flat_however_many_rows_are_saved() -> None:
    """Thousands of steps, each of which waits until it is saved: no saved row keeps another alive."""
    total, delay = (5000, 0.001) if FULL else (1200, 0)
    journal = Sizes(delay)
    sizes: dict[int, int] = {}

    def mark(step: int) -> None:
        if step in {total // 4, total - 1}:
            gc.collect()
            sizes[step], _ = tracemalloc.get_traced_memory()

    tracemalloc.start()
    result = await run(stepping(total, mark), Steps(), journal=journal)
    tracemalloc.stop()

    first, second = sizes[total // 4], sizes[total - 1]
    assert result.context.steps == total
    assert journal.rows >= total + 1
    assert (second - first) / (total - total // 4) < 1000


class Messages(Context):
    """Collects messages."""

    messages: Annotated[tuple[str, ...], append] = ()


def appending(total: int, kind: str) -> Graph[Messages]:
    """A graph of many steps, each of which adds a message of 200 bytes in one way or another."""
    text = "m" * 200

    if kind in {"one agent", "agents"}:
        calls = Calls()

        def note(text: str) -> str:
            """Note."""
            return text

        script = [call("note", text=text)] * (total if kind == "one agent" else 1)
        agent = calls.agent("agent", *script, text, tools=[note], max_turns=total + 2, max_tool_calls=total + 1)
        if kind == "one agent":
            return Graph("g", START >> agent >> END, context=Messages)
        gate = calls.node(lambda state: state.visit, name="gate")

        def again(state: State[Messages]) -> bool:
            return bool(state.values[0] < total)

        return Graph(
            "g", START >> agent >> gate, gate.choose(when(again, agent, max_hops=total), default=END), context=Messages
        )

    @node
    async def step(state: State[Messages], at: Step) -> Any:
        if kind == "effects":
            await at.effect("say", lambda: text)
            return state.visit
        if kind == "emits":
            at.emit(text)
            return state.visit
        if kind == "outputs":
            return f"{state.visit:05} {text}"
        return Update(messages=f"{text}{state.visit}")

    def goes_on(state: State[Messages]) -> bool:
        if kind == "messages":
            return len(state.context.messages) < total
        return int(str(state.values[0])[:5]) < total

    return Graph("g", START >> step, step.choose(when(goes_on, step, max_hops=total), default=END), context=Messages)


@pytest.mark.parametrize("kind", ["messages", "effects", "emits", "outputs", "agents", "one agent"])
async def test_n11_only_what_is_new_is_stored(kind: str) -> None:
    """Twice the steps are twice the bytes: no row holds the history, neither of a context nor of a thread."""
    short = 500 if FULL else 100
    bytes_of: dict[int, int] = {}

    for total in (short, 2 * short):
        journal = MemoryJournal()
        result = await run(appending(total, kind), Messages(), journal=journal, run_id=RUN, clock=ManualClock())
        assert result.status == "completed"
        rows = await journal.read(RUN)
        bytes_of[total] = sum(len(row.fact) + len(row.decisions) for row in rows)

    assert bytes_of[2 * short] / bytes_of[short] < 2.2
    assert bytes_of[2 * short] / (2 * short) < 4000


async def test_n11_a_file_grows_with_what_is_new(tmp_path: Path) -> None:
    """The SQLite file of twice as many steps is twice as large at most, and a little."""
    sizes: list[int] = []
    for total in (400, 800):
        file = tmp_path / f"{total}.db"
        journal = SqliteJournal(file)
        await run(appending(total, "messages"), Messages(), journal=journal)
        journal.close()
        sizes.append(file.stat().st_size)

    assert sizes[1] / sizes[0] < 2.2
