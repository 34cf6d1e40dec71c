"""Cases A9, G7 and I11: tools that fail, tools that are shared, tools that want the whole program to stop."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Context,
    Graph,
    Join,
    Result,
    State,
    Step,
    Tool,
    ToolStep,
    fork,
    node,
    tool,
    when,
)
from graphflow import run as run_graph
from graphflow.events import EffectFinished, EffectStarted, Emitted, Event, Warned
from graphflow.testing import ManualClock, call
from tests.cases.agents import Rules, Talk, asked, last_text, play, results_in, says, tool_runs

# --- A9 --------------------------------------------------------------------------------------------------------------


class Oops(Exception):
    """What a tool raises."""


def three(kind: str, on_error: Any, log: list[str]) -> Graph[Talk]:
    """An agent that asks for something that fails at once and for two things that take their time."""

    @tool(on_error=on_error)
    async def breaks(step: ToolStep) -> str:
        await step.sleep(0.01)
        raise Oops("at once")

    async def slow(name: str, step: ToolStep) -> str:
        await step.sleep(0.1)
        log.append(name)
        return name

    async def helps(_: State[Context], step: Step) -> str:
        await step.sleep(0.1)
        log.append("team")
        return "team"

    calls = {
        "tools": [call("breaks"), call("slow", name="two"), call("slow", name="three")],
        "failing last": [call("slow", name="one"), call("slow", name="two"), call("breaks")],
        "team": [call("breaks"), call("ask_helper", objective="go"), call("slow", name="three")],
        "agents": [call("breaks"), call("ask_worker", objective="go"), call("slow", name="three")],
        "person": [call("breaks"), call("ask_user", question="?"), call("slow", name="three")],
        "transfer": [call("breaks"), call("transfer_to_other", note="?"), call("slow", name="three")],
    }[kind]
    worker = says("worker", call("slow", name="deep"), "found it", tools=[slow])
    agent = says("agent", calls, "answered", tools=[breaks, slow, AskUser()])
    other = says("other", "other answered")
    return Graph(
        "g",
        START >> agent >> END,
        agent.delegates(node(name="helper")(helps), worker, max_hops=1),
        agent.hands_off(other, max_hops=1),
        other >> END,
        context=Talk,
        max_depth=1,
    )


KINDS = ["tools", "failing last", "team", "agents", "person", "transfer"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a9_a_tool_that_raises_leaves_no_orphans(kind: str) -> None:
    """With on_error="raise" the very error ends the run, the siblings are cancelled, and nothing goes on afterwards."""
    before = {task.id for task in anyio.get_running_tasks()}
    log: list[str] = []

    played = await play(three(kind, "raise", log), Talk(), answers={"?": "yes"})

    assert isinstance(played.error, Oops)
    assert (played.result.status, played.reason.code, played.reason.error_type) == ("failed", "failed", "Oops")
    assert played.events[-1].at == 0.01
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    assert log == []
    assert {task.id for task in anyio.get_running_tasks()} <= before
    assert not played.result.questions


@pytest.mark.parametrize("kind", KINDS)
async def test_a9_by_default_the_model_is_told_and_the_others_finish(kind: str) -> None:
    """A tool's exception is data: the turn settles, each call has its result, and the run completes."""
    log: list[str] = []
    graph = three(kind, "data", log)

    played = await play(graph, Talk(), answers={"?": "yes"})

    assert played.result.status == "completed"
    results = results_in(played.result.thread)
    assert len(results) == 3
    assert [text for text, failed in results if failed] == ["breaks failed: Oops: at once"]
    assert len(log) == 2 if kind in {"tools", "failing last", "team", "agents"} else log == ["three"]


@pytest.mark.parametrize("place", ["branch", "callee", "nested"])
async def test_a9_the_failure_goes_the_way_of_any_failure(place: str) -> None:
    """In a branch it cancels the others, for a caller it is a report, in a nested graph it passes outward unchanged."""
    log: list[str] = []
    inner = three("tools", "raise", log)
    if place == "branch":
        graph = Graph("o", START >> fork(inner, says("other", "fine")) >> Join("j") >> END, context=Talk)
    elif place == "callee":
        boss = says("boss", call("ask_g", objective="go"), "it failed")
        graph = Graph("o", START >> boss >> END, boss.delegates(inner, max_hops=1), context=Talk, max_depth=2)
    else:
        graph = Graph("o", START >> inner >> END, context=Talk)

    played = await play(graph, Talk())

    assert log == []
    if place != "callee":
        assert isinstance(played.error, Oops)
        return
    assert (played.result.status, played.result.output) == ("partial", "it failed")
    ((text, failed),) = results_in(asked(graph.nodes["boss"]).messages)
    assert failed
    assert "at once" in text


async def test_a9_a_retry_of_the_agent_begins_when_the_siblings_are_gone() -> None:
    """The next attempt's turn starts after the cancelled tools of the last one have ended."""
    ended: list[str] = []

    @tool(on_error="raise")
    async def breaks() -> str:
        raise Oops("at once")

    async def slow(step: ToolStep) -> None:
        try:
            await step.sleep(1)
        finally:
            ended.append("slow")

    agent = says("agent", [call("slow"), call("breaks")], lambda _: f"{ended}", tools=[breaks, slow], retries=1)

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert (played.result.status, played.result.output) == ("completed", "['slow']")
    assert played.result.spent.total.retries == 1


# --- G7 --------------------------------------------------------------------------------------------------------------


class Settings:
    """What a tool keeps for one run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.level = 0


@tool
async def tune(step: ToolStep, by: int = 1) -> str:
    """Change a setting of the run, and say what the call sees of it."""
    settings = step.resource(Settings)
    settings.level += by
    step.emit(f"{step.path[-1].name} {step.call_id}")
    await step.sleep(1)
    context: Any = step.context
    return f"{step.path[-1].name}/{step.call_id}/{context.question}/{settings.name}/{settings.level}"


def tuners() -> Graph[Talk]:
    """Two agents that share one tool, and use it at once."""
    agents = [
        says(name, call("tune", f"id-{name}", by=by), last_text, tools=[tune]) for name, by in (("a", 1), ("b", 10))
    ]
    return Graph("g", START >> tuple(agents) >> Join("j") >> END, context=Talk)


async def test_g7_a_shared_tool_holds_nothing_of_a_call() -> None:
    """Each call sees its own path, id and context; the tool is the same value afterwards; two runs do not mix."""
    spec, fields = tune.spec, {name: getattr(tune, name) for name in Tool.__dataclass_fields__}
    results: dict[str, Result[Talk]] = {}
    said: list[Any] = []

    def listen(event: Event) -> None:
        if isinstance(event.body, Emitted):
            said.append(event.body.value)

    async def one(name: str) -> None:
        results[name] = await run_graph(
            tuners(), Talk(question=name), resources=[Settings(name.upper())], clock=ManualClock(), listeners=[listen]
        )

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second"):
            tasks.start_soon(one, name)

    for name, result in results.items():
        assert result.output == tuple(f"{agent}/id-{agent}/{name}/{name.upper()}/11" for agent in "ab")
    assert sorted(said) == ["a id-a", "a id-a", "b id-b", "b id-b"]
    assert (tune.spec, {name: getattr(tune, name) for name in Tool.__dataclass_fields__}) == (spec, fields)


async def test_g7_limits_of_a_shared_tool_are_counted_per_visit() -> None:
    """`max_calls` of one tool in two agents: each visit of each has its own count."""

    @tool(max_calls=1)
    def once() -> str:
        return "done once"

    twice: list[Any] = [[call("once"), call("once")], "and so on"]
    a, b = says("a", *twice, *twice, tools=[once], max_visits=2), says("b", *twice, *twice, tools=[once], max_visits=2)

    def first_round(state: State[Context]) -> bool:
        return state.path[-1].visit == 1

    graph = Graph("g", START >> a >> b, b.choose(when(first_round, a), default=END), context=Talk)

    played = await play(graph, Talk())

    assert tool_runs(played) == ["once"] * 4
    assert [failed for _, failed in results_in(played.result.thread)] == [False, True] * 4


# --- I11 -------------------------------------------------------------------------------------------------------------


def raiser(where: str, error: BaseException) -> Agent:
    """An agent of which something raises."""

    async def breaks_async() -> str:
        await anyio.lowlevel.checkpoint()
        raise error

    def breaks() -> str:
        raise error

    def respond(_: Any) -> str:
        raise error

    if where == "model":
        return Agent("agent", model=Rules(otherwise=respond))
    functions: dict[str, Callable[..., Any]] = {"tool": breaks_async, "sync tool": breaks}
    return says("agent", call("breaks"), "answered", tools=[tool(name="breaks")(functions[where])])


@pytest.mark.parametrize("where", ["tool", "sync tool", "model"])
@pytest.mark.parametrize("place", ["alone", "branch", "callee"])
@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=["interrupt", "exit"])
async def test_i11_interrupts_of_tools_pass_unchanged(where: str, place: str, error: BaseException) -> None:
    """KeyboardInterrupt and SystemExit are no tool errors: the very object comes out of the run, in no group."""
    agent, events = raiser(where, error), list[Event]()
    if place == "branch":
        graph = Graph("g", START >> fork(agent, says("b", "b"), failure="collect") >> Join("j") >> END, context=Talk)
    elif place == "callee":
        boss = says("boss", call("ask_agent", objective="go"), "done")
        graph = Graph("g", START >> boss >> END, boss.delegates(agent, max_hops=1), context=Talk, max_depth=1)
    else:
        graph = Graph("g", START >> agent >> END, context=Talk)

    with pytest.raises(type(error)) as caught:
        await run_graph(graph, Talk(), listeners=[events.append])

    assert caught.value is error
    assert "run_ended" not in [event.kind for event in events]


@pytest.mark.parametrize("where", ["tool", "sync tool"])
@pytest.mark.parametrize("error", [ValueError("no"), Oops("no"), TimeoutError("no"), LookupError("no")])
async def test_i11_any_exception_of_a_tool_is_told_to_the_model(where: str, error: Exception) -> None:
    """What is an Exception becomes a result that says so, and the run completes."""
    agent = raiser(where, error)

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert (played.result.status, played.result.output) == ("completed", "answered")
    assert results_in(played.result.thread) == [(f"breaks failed: {type(error).__name__}: no", True)]


async def test_i11_a_tool_that_cancels_itself_is_no_cancelled_run() -> None:
    """A backend's cancellation that nobody asked for is the failure of that call, told to the model."""
    cancelled = anyio.get_cancelled_exc_class()

    async def breaks() -> str:
        if "trio" in cancelled.__module__:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anyio.sleep_forever()
            return "went on"
        raise cancelled

    agent = says("agent", call("breaks"), "answered", tools=[breaks])

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert played.result.status == "completed"
    finished = [body for body in played.of(EffectFinished) if body.key == "0"]
    assert len(finished) == len([body for body in played.of(EffectStarted) if body.key == "0"]) == 1
    said = {body.warning for body in played.of(Warned)}
    assert said <= {"loop_blocked"}  # which is wall time: a busy machine has it too
