"""Case J7: a stored run and a graph that has changed: refused with the difference, or taken if it decides alike."""

import json
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    ModelRefused,
    ModelRequest,
    Node,
    State,
    Step,
    fork,
    fork_run,
    node,
    replay,
    resume,
    run,
    tool,
    when,
)
from graphflow.errors import GraphChanged, JournalMismatch
from graphflow.testing import ManualClock, MemoryJournal, RuleModel, ScriptedModel, call
from tests.cases.stored import RUN


class Case(Context):
    """What all the versions run on."""

    goal: str = "go"


def wider() -> type[Context]:
    """Make the same class in its next version: it has one more field."""
    namespace = {"__annotations__": {"goal": str, "more": int}, "goal": "go", "more": 0, "__module__": __name__}
    made: type[Context] = types.new_class("Case", (Context,), exec_body=lambda found: found.update(namespace))
    return made


@dataclass
class Parts:
    """The parts of a graph, each of which a version may replace."""

    a: Node[Any]
    b: Node[Any]
    c: Node[Any]
    inner: Node[Any]
    agent: Node[Any]
    ask: Node[Any]
    join: Node[Any]
    test: Callable[[State[Any]], bool]
    max_hops: int = 2
    context: type[Context] = Case
    budget: Budget | None = None
    failure: Any = "fail_fast"
    delegate_hops: int = 1


def yes(state: State[Any]) -> bool:
    """Hold."""
    return bool(state.context.goal == "go")


def also_yes(state: State[Any]) -> bool:
    """Hold, by another way."""
    return bool(state.context.goal)


def no(state: State[Any]) -> bool:
    """Hold never."""
    return not state.context.goal


def says(name: str, value: object, **options: Any) -> Node[Any]:
    """Make a node that gives a value."""

    @node(name=name, **options)
    async def body(_: State[Any], step: Step) -> object:
        return await step.effect(f"make {name}", lambda: value)

    return body


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool
def look_twice() -> str:
    """Look twice."""
    return "seen twice"


def agent(instructions: str = "Look.", tools: Any = (look,), **options: Any) -> Agent:
    """Make the agent of a graph."""
    model = ScriptedModel(*[step for _ in range(4) for step in (call("look"), "done")])
    return Agent("agent", model=model, instructions=instructions, tools=tools, **options)


def inner(name: str = "inner", value: object = "i", context: type[Context] = Case) -> Node[Any]:
    """Make the graph inside."""
    return Graph(name, START >> says("deep", value) >> END, context=context)


def parts(**changes: Any) -> Parts:
    """Give the parts of the first version, some of them replaced."""
    found: dict[str, Any] = {
        "a": says("a", 1), "b": says("b", 2), "c": says("c", 3), "inner": inner(), "agent": agent(),
        "ask": Human("ask", "q?"), "join": Join("join"), "test": yes,
    }  # fmt: skip
    return Parts(**found | changes)


def graph_of(p: Parts, *more: Any) -> Graph[Any]:
    """Make a graph that has been half-way through when the run is stored: `b` and what follows have not run."""
    return Graph(
        "g",
        START >> p.a,
        p.a.choose(when(p.test, p.inner, max_hops=p.max_hops), default=END),
        p.inner >> fork(p.agent, p.c, failure=p.failure) >> p.join >> p.ask >> p.b >> END,
        *more,
        context=p.context,
        budget=p.budget,
    )


async def half_way() -> MemoryJournal:
    """Store a run of the first version that waits for a person."""
    journal = MemoryJournal()
    waiting = await run(graph_of(parts()), Case(), journal=journal, run_id=RUN, clock=ManualClock())
    assert waiting.status == "waiting"
    return journal


def extra(p: Parts) -> tuple[Any, ...]:
    """Give statements that the first version does not have."""
    helper = says("helper", 0)
    return (p.b.on_error(helper), helper >> END)


CHANGES: dict[str, tuple[Callable[[], Graph[Any]], dict[str, list[str]]]] = {
    "the body of a node that ran": (lambda: graph_of(parts(a=says("a", 9))), {"changed": ["node a"]}),
    "the body of a node to come": (lambda: graph_of(parts(b=says("b", 9))), {"changed": ["node b"]}),
    "a node's retries": (lambda: graph_of(parts(b=says("b", 2, retries=1))), {"changed": ["node b"]}),
    "a condition": (lambda: graph_of(parts(test=also_yes)), {"changed": ["edge a -choose-> inner"]}),
    "a bound": (lambda: graph_of(parts(max_hops=3)), {"changed": ["edge a -choose-> inner"]}),
    "the failure policy": (
        lambda: graph_of(parts(failure="collect")),
        {"changed": ["edge inner -fork-> agent", "edge inner -fork-> c (2)"]},
    ),
    "instructions": (lambda: graph_of(parts(agent=agent("Look well."))), {"changed": ["node agent"]}),
    "a tool": (lambda: graph_of(parts(agent=agent(tools=[look, look_twice]))), {"changed": ["node agent"]}),
    "the body inside": (lambda: graph_of(parts(inner=inner(value=8))), {"changed": ["node inner/deep"]}),
    "the question": (lambda: graph_of(parts(ask=Human("ask", "r?"))), {"changed": ["node ask"]}),
    "the context": (
        lambda: graph_of(parts(context=(found := wider()), inner=inner(context=found))),
        {"changed": ["graph 'g'", "graph 'inner'"]},
    ),
    "the budget": (lambda: graph_of(parts(budget=Budget(tokens=5000))), {"changed": ["graph 'g'"]}),
    "a node more": (
        lambda: graph_of(p := parts(), *extra(p)),
        {"added": ["edge b -error-> helper", "edge helper -next-> END", "node helper"]},
    ),
    "another name": (
        lambda: graph_of(parts(b=says("bb", 2))),
        {
            "added": ["edge ask -next-> bb", "edge bb -next-> END", "node bb"],
            "removed": ["edge ask -next-> b", "edge b -next-> END", "node b"],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", list(CHANGES))
async def test_j7_a_changed_graph_is_refused_with_all_that_differs(change: str) -> None:
    """Nodes and edges that were added, removed or changed are listed by name; nothing is written, nothing is called."""
    journal = await half_way()
    rows = await journal.read(RUN)
    make, expected = CHANGES[change]

    for act in (resume, replay, fork_run):
        with pytest.raises(GraphChanged) as caught:
            await act(make(), RUN, journal=journal)

        error = caught.value
        assert error.run == RUN
        for kind in ("added", "removed", "changed"):
            assert sorted(getattr(error, kind)) == sorted(expected.get(kind, [])), kind
        assert all(name in str(error) for names in expected.values() for name in names)
    assert await journal.read(RUN) == rows
    assert [found.run for found in await journal.runs()] == [RUN]


ALIKE = {
    "the body of a node that ran": 2, "the body of a node to come": 9, "a node's retries": 2, "a condition": 2,
    "a bound": 2, "the failure policy": 2, "the body inside": 2, "the budget": 2,
    "a node more": 2, "another name": 2,
}  # fmt: skip


@pytest.mark.parametrize("change", list(ALIKE))
async def test_j7_a_graph_that_decides_alike_is_compatible(change: str) -> None:
    """What is stored was decided as this graph decides: it goes on with it, and the journal remembers which graph."""
    journal = await half_way()
    make, _ = CHANGES[change]
    waiting = await resume(make(), RUN, journal=journal, changed="compatible", clock=ManualClock())
    before = await journal.read(RUN)

    result = await resume(
        make(), RUN, journal=journal, changed="compatible", answers={"ask": 1}, clock=ManualClock()
    )  # fmt: skip

    assert waiting.status == "waiting"
    assert (result.status, result.output) == ("completed", ALIKE[change])
    assert (await journal.read(RUN))[: len(before)] == before
    assert await replay(make(), RUN, journal=journal) == result
    with pytest.raises(GraphChanged):
        await replay(graph_of(parts()), RUN, journal=journal)


def fewer() -> Graph[Any]:
    """Make a graph that leaves the fork out."""
    p = parts()
    return Graph("g", START >> p.a >> p.inner >> p.ask >> p.b >> END, context=Case)


OTHERWISE: dict[str, Callable[[], Graph[Any]]] = {
    "a condition that does not hold": lambda: graph_of(parts(test=no)),
    "fewer nodes": fewer,
    "another order of branches": lambda: graph_of(parts(agent=says("c", 3), c=agent())),
    "another name of what ran": lambda: graph_of(parts(a=says("aa", 1))),
    "no hop allowed": lambda: graph_of(parts(max_hops=0)),
    "another question": lambda: graph_of(parts(ask=Human("ask", "r?"))),
    "another graph inside": lambda: graph_of(parts(inner=inner("other"))),
    "instructions of an agent that ran": lambda: graph_of(parts(agent=agent("Look very well."))),
}


@pytest.mark.parametrize("change", list(OTHERWISE))
async def test_j7_a_graph_that_decides_otherwise_is_never_compatible(change: str) -> None:
    """The first record that it would decide otherwise is named; nothing is written and nothing is called."""
    journal = await half_way()
    rows = await journal.read(RUN)

    for act in (resume, replay, fork_run):
        with pytest.raises((JournalMismatch, GraphChanged)):
            await act(OTHERWISE[change](), RUN, journal=journal, changed="compatible")

    assert await journal.read(RUN) == rows


async def test_j7_what_says_nothing_to_a_run_may_change() -> None:
    """Descriptions, comments, models, the order of statements and equal new objects make no other graph."""
    journal = await half_way()
    p = parts()
    statements = [
        p.inner >> fork(p.agent, p.c) >> p.join >> p.ask >> p.b >> END,
        p.a.choose(when(p.test, p.inner, max_hops=p.max_hops), default=END),
        START >> p.a,
    ]

    same = Graph("g", *statements, context=Case, description="the same")

    assert (await resume(same, RUN, journal=journal, answers={"ask": 1})).output == 2


def in_a_way(native: bool, fallbacks: int, *, spare: bool = False) -> Graph[Any]:
    """Make a graph of one agent that asks a person, and a model that is asked in some way."""

    def says_so(request: ModelRequest) -> Any:
        answered = any("so be it" in message.text for message in request.messages)
        if request.decision == "native":
            return "done" if answered else call("ask_user", question="?")
        named = {"tool": "answer", "arguments": {"answer": "done"}}
        asking = {"tool": "ask_user", "arguments": {"question": "?"}}
        return json.dumps({"reason": "r", "calls": [named if answered else asking]})

    def fails(_: ModelRequest) -> Any:
        msg = "down"
        raise ModelRefused(msg)

    works = RuleModel(otherwise=says_so, native_tools=native)
    models = [works] if not fallbacks else [RuleModel(otherwise=fails, native_tools=native), works]
    asked = Agent("a", model=models[0], fallbacks=[*models[1:], *[works] * spare], tools=[AskUser()])
    return Graph("g", START >> asked >> END, context=Case, budget=Budget(model_calls=9, tokens=100_000))


WAYS: dict[str, tuple[tuple[bool, int], tuple[bool, int], list[str]]] = {
    "in JSON from now on": ((True, 0), (False, 0), ["added"]),
    "in JSON no more": ((False, 0), (True, 0), ["removed"]),
    "without its fallback": ((True, 1), (True, 0), ["removed"]),
    "in JSON, with its fallback": ((True, 1), (False, 1), ["changed"]),
}


@pytest.mark.parametrize("way", list(WAYS))
async def test_j7_models_that_are_asked_in_another_way_are_named(way: str) -> None:
    """They are no part of a graph's identity; where what is stored does not fit any more, they are what has changed."""
    before, after, what = WAYS[way]
    journal = MemoryJournal()
    waiting = await run(in_a_way(*before), Case(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    assert in_a_way(*before).fingerprint() == in_a_way(*after).fingerprint()

    with pytest.raises(GraphChanged) as caught:
        await resume(in_a_way(*after), RUN, journal=journal, answers={waiting.questions[0].id: "so be it"})

    error = caught.value
    assert [name for name in ("added", "removed", "changed") if getattr(error, name)] == what
    assert (*error.added, *error.removed, *error.changed) == ("models of a",)
    assert await journal.read(RUN) == rows
    with pytest.raises(JournalMismatch):
        await replay(in_a_way(*after), RUN, journal=journal, changed="compatible")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("fallbacks", [0, 1])
async def test_j7_models_that_make_no_difference_may_change(native: bool, fallbacks: int) -> None:
    """One more fallback that is never asked, and other models that are asked alike."""
    journal = MemoryJournal()
    waiting = await run(in_a_way(native, fallbacks), Case(), journal=journal, run_id=RUN, clock=ManualClock())
    answers = {waiting.questions[0].id: "so be it"}

    result = await resume(in_a_way(native, fallbacks, spare=True), RUN, journal=journal, answers=answers)

    assert (result.status, result.output) == ("completed", "done")
    assert await replay(in_a_way(native, fallbacks), RUN, journal=journal) == result
