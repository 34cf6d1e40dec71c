"""Cases O7, O9 and O11: tools that fail, callees that cannot start, and calls that depend on each other."""

from collections.abc import Callable
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Call,
    Context,
    Delegate,
    Graph,
    Report,
    State,
    ToolFailure,
    ToolStep,
    node,
    start,
    tool,
)
from graphflow.events import EffectFinished, EffectStarted, FrameOpened, NodeStarted
from graphflow.model.thread import History, Thread
from graphflow.testing import ManualClock, call
from tests.cases.agents import Talk, asked, model_calls, play, results_in, says


def single(*steps: Any, **options: Any) -> Graph[Talk]:
    """A graph of one agent."""
    return Graph("g", START >> says("agent", *steps, **options) >> END, context=Talk)


# --- O7 --------------------------------------------------------------------------------------------------------------


def declared() -> ToolFailure:
    """Fail by saying so."""
    return ToolFailure("the shop is closed")


def reported() -> Report:
    """Fail with a report."""
    return Report(status="failed", reason="the shop is closed")  # type: ignore[arg-type]  # a text is taken as a reason


def raised() -> str:
    """Fail by raising."""
    msg = "the shop is closed"
    raise LookupError(msg)


@tool(timeout=5)
async def too_late(step: ToolStep) -> None:
    """Take too long."""
    await step.sleep(10)


@pytest.mark.parametrize("broken", [declared, reported, raised, too_late], ids=lambda fn: str(getattr(fn, "name", fn)))
@pytest.mark.parametrize("answer", ["text", "done", "partial"])
async def test_o7_a_tool_that_fails_says_so_in_its_events_and_its_report(broken: Any, answer: str) -> None:
    """Five calls fail, each event and result says failed; the agent's report is at most partial, whatever it claims."""
    name = getattr(broken, "name", None) or broken.__name__
    answers: dict[str, Any] = {
        "text": "all is well",
        "done": Report(finding="all is well"),
        "partial": '{"finding": "half", "status": "partial", "reason": "half of it"}',
    }
    worker = says("worker", *[call(name)] * 5, answers[answer], tools=[broken], output=Report)
    boss = says("boss", call("ask_worker", objective="go"), "done")
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    calls = [body for body in played.of(EffectFinished) if body.path[-1].name == "worker" and body.key != "model"]
    assert [body.failure is not None for body in calls] == [True] * 5
    assert [failed for _, failed in results_in(asked(worker).messages)] == [True] * 5
    ((report, _),) = results_in(asked(boss).messages)
    assert '"status": "partial"' in report
    assert (f"every call of {name!r}" in report) == (answer != "partial")


@pytest.mark.parametrize("output", [Report, None])
async def test_o7_a_tool_that_worked_in_the_end_did_work(output: Any) -> None:
    """One failure that a later call makes good does not make a report partial."""
    tries: list[int] = []

    def flaky() -> str | ToolFailure:
        tries.append(1)
        return ToolFailure("not yet") if len(tries) < 3 else "there it is"

    worker = says("worker", *[call("flaky")] * 3, "found it", tools=[flaky], output=output)
    boss = says("boss", call("ask_worker", objective="go"), "done")
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=1), context=Talk, max_depth=1)

    await play(graph, Talk())

    ((report, _),) = results_in(asked(boss).messages)
    assert '"status": "done"' in report


async def test_o7_an_agent_at_the_root_is_partial_too() -> None:
    """The report that a graph gives is held to the same."""
    agent = says("agent", call("declared"), Report(finding="all is well"), tools=[declared], output=Report)

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert played.result.output.status == "partial"
    assert played.result.output.reason.code == "tool"


# --- O9 --------------------------------------------------------------------------------------------------------------


class Other(Context):
    """A context that a text cannot make."""

    number: int = 0


def breaks_up(state: State[Context]) -> Any:
    """Raise in a callee's set-up."""
    msg = f"no set-up at depth {state.depth}"
    raise RuntimeError(msg)


def no_such_message(thread: Thread) -> Thread:
    """Raise when a history is made."""
    return (thread[99],)


def launches(kind: str) -> tuple[Agent, Graph[Talk]]:
    """A boss that asks somebody who cannot be started."""
    worker = says("worker", "helped")
    if kind == "instructions":
        worker = says("worker", "helped", instructions=breaks_up)
    target: Any = worker
    if kind == "enter":
        target = Graph("worker", START >> worker.named("inside") >> END, context=Other, enter=breaks_up)
    name = "ask_wrker" if kind == "missing" else "ask_worker"
    boss = says("boss", call(name, objective="go"), "it could not be started")
    history: History = no_such_message if kind == "history" else "note"
    edges = boss.delegates(target, max_hops=1, history=history)
    return worker, Graph("g", START >> boss >> END, edges, context=Talk, max_depth=1)


@pytest.mark.parametrize("kind", ["missing", "instructions", "enter", "history"])
async def test_o9_a_callee_that_cannot_start_is_a_failed_call(kind: str) -> None:
    """A missing specialist, or one whose set-up raises: the tool's result says failed, and its model is never asked."""
    worker, graph = launches(kind)

    played = await play(graph, Talk())

    ((text, failed),) = results_in(asked(graph.nodes["boss"]).messages)
    assert failed
    assert model_calls(played) == ["boss", "boss"]
    model: Any = worker.model
    assert model.requests == ()
    assert played.result.output == "it could not be started"
    assert played.result.status == ("completed" if kind == "missing" else "partial")
    assert kind == "missing" or "failed" in text
    if kind == "missing":
        assert played.of(FrameOpened) == []
        assert len(played.of(NodeStarted)) == 1


async def test_o9_a_function_that_delegates_to_nobody_gets_a_failed_report() -> None:
    """An undeclared target of a function node is a report, no failure of the node, and nothing is started."""

    async def lead(state: State[Talk]) -> Any:
        return Delegate(Call("nobody", "go")) if state.turn == 0 else state.values[0].reason.code

    boss = node(name="boss")(lead)
    graph = Graph("g", START >> boss >> END, boss.delegates(says("worker", "x"), max_hops=1), context=Talk)

    played = await play(graph, Talk())

    assert played.result.output == "unknown_target"
    assert played.started == ["boss"]


# --- O11 -------------------------------------------------------------------------------------------------------------


def shelf(log: list[str], **options: Any) -> list[Any]:
    """Tools that take their time, and note when they begin and end."""

    def make(name: str, seconds: float, *, sequential: bool) -> Any:
        async def work(step: ToolStep) -> str:
            log.append(f"{name} begins")
            await step.sleep(seconds)
            log.append(f"{name} ends")
            if options.get("fails") == name:
                msg = name
                raise ValueError(msg)
            return name

        return tool(name=name, sequential=sequential)(work)

    return [
        make("write", 3, sequential=True), make("read", 1, sequential=True),
        make("look", 2, sequential=False), make("smell", 2, sequential=False),
    ]  # fmt: skip


@pytest.mark.parametrize("order", [("write", "read"), ("read", "write"), ("write", "write", "read")])
@pytest.mark.parametrize("fails", ["", "write", "read"])
async def test_o11_sequential_tools_run_in_call_order(order: tuple[str, ...], fails: str) -> None:
    """Each begins when the one before it has ended, whether it failed or not; results stand in call order."""
    log: list[str] = []

    played = await play(single([call(name) for name in order], "done", tools=shelf(log, fails=fails)), Talk())

    assert log == [f"{name} {what}" for name in order for what in ("begins", "ends")]
    results = results_in(played.result.thread)
    assert [failed for _, failed in results] == [name == fails for name in order]
    assert all(name in text for (text, _), name in zip(results, order, strict=True))


async def test_o11_the_other_tools_of_the_turn_still_overlap() -> None:
    """Unmarked tools begin at once beside the sequential ones; the turn takes as long as the sequence."""
    log: list[str] = []
    calls = [call("look"), call("write"), call("smell"), call("read")]

    played = await play(single(calls, "done", tools=shelf(log)), Talk())

    assert sorted(log[:3]) == ["look begins", "smell begins", "write begins"]
    assert log[3:] in (
        ["look ends", "smell ends", "write ends", "read begins", "read ends"],
        ["smell ends", "look ends", "write ends", "read begins", "read ends"],
    )
    assert [text for text, _ in results_in(played.result.thread)] == ["look", "write", "smell", "read"]
    assert played.events[-1].at == 4


@pytest.mark.parametrize("limit", [1, 2, None])
async def test_o11_no_limit_of_concurrency_changes_the_order(limit: int | None) -> None:
    """With one slot or many: the sequential tools in order, all results in call order."""
    log: list[str] = []
    calls = [call("write"), call("look"), call("read"), call("smell")]

    played = await play(single(calls, "done", tools=shelf(log)), Talk(), max_parallel=limit)

    assert [entry for entry in log if entry[0] in "wr"] == ["write begins", "write ends", "read begins", "read ends"]
    assert [text for text, _ in results_in(played.result.thread)] == ["write", "look", "read", "smell"]


async def test_o11_retries_of_a_sequential_tool_stay_in_their_place() -> None:
    """A tool that is tried again keeps its turn: the next one begins when its last attempt has ended."""
    log: list[str] = []

    def once_more(name: str, failures: int) -> Callable[..., Any]:
        async def work() -> str:
            log.append(name)
            if log.count(name) <= failures:
                raise ValueError(name)
            return name

        return tool(name=name, sequential=True, retries=2)(work)

    played = await play(single([call("a"), call("b")], "done", tools=[once_more("a", 2), once_more("b", 1)]), Talk())

    assert log == ["a", "a", "a", "b", "b"]
    assert [text for text, _ in results_in(played.result.thread)] == ["a", "b"]
    assert played.result.spent.total.retries == 3
    assert [body.key for body in played.of(EffectStarted) if body.key != "model"] == ["0", "0.1", "0.2", "1", "1.1"]


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_o11_what_comes_after_an_approval_waits_for_it(answer: str) -> None:
    """A sequential tool that a person must approve keeps its place: what follows it runs when it is decided."""
    log: list[str] = []

    def write() -> str:
        log.append("write")
        return "written"

    def read() -> str:
        log.append("read")
        return "read"

    tools = [tool(write, sequential=True, approval=True), tool(read, sequential=True)]
    graph = single([call("write"), call("read")], "done", tools=tools)

    async with start(graph, Talk(), clock=ManualClock()) as running:
        waiting = await running.result()
        before = list(log)
        running.answer(waiting.questions[0].id, answer)
        await running.result()

    assert before == []
    assert log == (["write", "read"] if answer == "yes" else ["read"])
