"""Cases C1, C7, D3 and D9 with agents: loops, bounds on visits, names that begin alike, graphs side by side."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    ModelRequest,
    Report,
    State,
    Supervisor,
    ToolCall,
    ToolStep,
    Update,
    append,
    fork,
    node,
    when,
)
from graphflow.events import EffectStarted
from graphflow.model.ids import names
from graphflow.testing import ScriptedModel, call
from tests.cases.agents import Talk, always, asked, handoffs, model_calls, play, results_in, says


class Debate(Context):
    """A question, and what was said about it in each round."""

    question: str = "Buy?"
    rounds: int = 0
    seen: Annotated[tuple[tuple[str, ...], ...], append] = ()


def more(state: State[Debate]) -> bool:
    """Hold until three rounds are over."""
    return state.context.rounds < 3


def both(_: State[Debate]) -> tuple[str, ...]:
    """Give the two sides."""
    return ("bull", "bear")


# --- C1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["note", "full"])
@pytest.mark.parametrize("shape", ["fork", "map", "team"])
async def test_c1_agents_in_a_loop_meet_with_the_messages_of_their_round(shape: str, history: Any) -> None:
    """The merge runs once in each round, with exactly the two messages of that round, whatever the agents still see."""
    bull = says("bull", *(f"bull {number}" for number in range(3)), history=history)
    bear = says("bear", *(f"bear {number}" for number in range(3)), history=history)

    @node
    async def gate(_: State[Debate]) -> None:
        """Begin a round."""

    @node
    async def merge(state: State[Debate]) -> Update:
        found = tuple(getattr(value, "finding", value) for value in state.values)
        return Update(seen=found, rounds=state.context.rounds + 1)

    again = merge.choose(when(more, gate, max_hops=2), default=END)
    if shape == "fork":
        graph = Graph("g", START >> gate >> (bull, bear) >> merge, again, context=Debate)
    elif shape == "map":
        lane = always("lane", lambda request: f"{request.messages[-1].text.splitlines()[1]} {_rounds(request)}")
        lanes = gate.map(lane, over=both, join=merge, max_items=2)
        graph = Graph("g", START >> gate, lanes, again, context=Debate)
    else:
        asks = [call("ask_bull", objective="?"), call("ask_bear", objective="?")]
        boss = says("boss", *[step for number in range(3) for step in (asks, f"boss {number}")], history=history)
        graph = Graph(
            "g",
            START >> gate >> boss >> merge,
            boss.delegates(bull, bear, max_hops=3),
            again,
            context=Debate,
            max_depth=1,
        )

    played = await play(graph, Debate())

    rounds = [(f"boss {n}",) if shape == "team" else (f"bull {n}", f"bear {n}") for n in range(3)]
    assert played.result.context.seen == tuple(rounds)
    assert played.started.count("merge") == 3
    assert played.result.status == "completed"
    if shape == "team":
        for number in range(3):
            results = results_in(asked(graph.nodes["boss"], 2 * number + 1).messages)[-2:]
            assert [f"{who} {number}" in text for who, (text, _) in zip(("bull", "bear"), results, strict=True)] == [
                True
            ] * 2


def _rounds(request: Any) -> int:
    _, _, visit = request.path.partition(":")
    return int(visit.partition("~")[0] or 1) - 1


# --- C7 --------------------------------------------------------------------------------------------------------------


def always_more(_: State[Context]) -> bool:
    """Hold for ever."""
    return True


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("way", ["choose", "handoff", "self"])
async def test_c7_an_agent_is_visited_exactly_its_maximum(way: str, limit: int) -> None:
    """The visit after the last allowed one ends the run, without a model call; the reason names node and limit."""
    if way == "choose":
        n = always("n", "again", max_visits=limit)
        graph = Graph("g", START >> n, n.choose(when(always_more, n), default=END), context=Talk)
    elif way == "handoff":
        n, m = always("n", call("transfer_to_m"), max_visits=limit), always("m", call("transfer_to_n"))
        graph = Graph("g", START >> n >> END, n.hands_off(m), m.hands_off(n), m >> END, context=Talk, max_hops=99)
    else:
        n = always("n", "again", max_visits=limit)
        gate = always("gate", "go")
        graph = Graph("g", START >> gate >> n, n.choose(when(always_more, gate), default=END), context=Talk)

    played = await play(graph, Talk())

    assert model_calls(played).count("n") == played.started.count("n") == limit
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_visits", limit)
    assert "'n'" in played.reason.text


@pytest.mark.parametrize("limit", [1, 2])
async def test_c7_a_callee_is_asked_exactly_its_maximum(limit: int) -> None:
    """A call over `max_hops` of its edge is refused: the model is told so, and nobody is started."""
    worker = always("worker", "found it")
    boss = says("boss", *[call("ask_worker", objective=f"{n}") for n in range(3)], "done")
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=limit), context=Talk, max_depth=1)

    played = await play(graph, Talk())

    assert model_calls(played).count("worker") == limit
    refused = [text for text, failed in results_in(asked(boss).messages) if failed]
    assert len(refused) == 3 - limit
    assert all(text.startswith("not executed: ") and "max_hops" in text for text in refused)
    assert (played.result.status, played.result.output) == ("completed", "done")


@pytest.mark.parametrize("limit", [1, 3])
async def test_c7_a_run_that_ends_exactly_at_a_bound_succeeds(limit: int) -> None:
    """Turns, visits, hops and the budget may be used up to the last one."""
    worker = says("worker", *["found it"] * limit, max_turns=1)
    boss = says("boss", *[call("ask_worker", objective="?")] * limit, "done", max_turns=limit + 1, max_visits=1)
    graph = Graph("g", START >> boss >> END, boss.delegates(worker, max_hops=limit), context=Talk, max_depth=1)

    played = await play(graph, Talk(), budget=Budget(model_calls=2 * limit + 1, node_runs=limit + 1))

    assert (played.result.status, played.refused) == ("completed", [])


# --- D3 --------------------------------------------------------------------------------------------------------------

ALIKE = [
    ("child", "child_sub"),
    ("child_sub", "child"),
    ("a", "a a"),
    ("a!", "a?"),
    ("x/y", "x:y"),
    ("é", "è"),
    ("1", "11"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_d3_a_team_whose_names_begin_alike_is_told_apart(one: str, other: str, kind: str) -> None:
    """Each call reaches the one that it names; paths, events, spending and what each is offered keep them apart."""

    def member(name: str) -> Any:
        agent = always(name, f"{name} here")
        return agent if kind == "agent" else Graph(name, START >> agent >> END, context=Talk)

    boss = Supervisor(
        "boss",
        model=ScriptedModel(lambda request: [call(spec.name, objective="?") for spec in request.tools], "done"),
    )
    graph = Graph(
        "g", START >> boss >> END, boss.delegates(member(one), member(other), max_hops=1), context=Talk, max_depth=1
    )

    played = await play(graph, Talk())

    texts = [text for text, _ in results_in(asked(boss).messages)]
    assert [f'"finding": "{name} here"' in text for name, text in zip((one, other), texts, strict=True)] == [True, True]
    for name in (one, other):
        calls = [body for body in played.of(EffectStarted) if names(body.path)[1:2] == (name,)]
        assert len(calls) == 1
        assert played.result.spent.by_node["/".join(names(calls[0].path))].model_calls == 1


def _transfer(position: int) -> Callable[[ModelRequest], ToolCall]:
    """Hand over to the one that stands there among the tools."""
    return lambda request: call(request.tools[position].name, note="go")


@pytest.mark.parametrize(("one", "other"), ALIKE)
async def test_d3_handoffs_to_names_that_begin_alike_are_told_apart(one: str, other: str) -> None:
    """Each transfer tool leads to its own target."""
    for position, name in enumerate((one, other)):
        triage = says("triage", _transfer(position))
        targets = [always(name, f"{name} here") for name in (one, other)]
        graph = Graph(
            "g",
            START >> triage >> END,
            triage.hands_off(*targets, max_hops=1),
            *(t >> END for t in targets),
            context=Talk,
        )

        played = await play(graph, Talk())

        assert handoffs(played) == [("triage", name)]
        assert played.result.output == f"{name} here"


# --- D9 --------------------------------------------------------------------------------------------------------------


class Findings(Context):
    """Texts that are appended."""

    question: str = "What now?"
    found: Annotated[tuple[str, ...], append] = ("q",)
    reports: Annotated[tuple[Report, ...], append] = ()


@pytest.mark.parametrize("kind", ["agents", "graphs", "deep graphs"])
async def test_d9_agents_side_by_side_do_not_double_what_was_there(kind: str) -> None:
    """Two branches append one text each: the list has what it had, and those two in branch order."""

    def member(name: str) -> Any:
        found: Any = says(name, name, into="found")
        for level in range({"agents": 0, "graphs": 1, "deep graphs": 3}[kind]):
            found = Graph(f"{name}{level}", START >> found >> END, context=Findings)
        return found

    graph = Graph("g", START >> (member("c1"), member("c2")) >> Join("j") >> END, context=Findings)

    played = await play(graph, Findings())

    assert played.result.context.found == ("q", "c1", "c2")


@pytest.mark.parametrize("slow", ["one", "two"])
async def test_d9_reports_reach_the_context_once_in_call_order(slow: str) -> None:
    """A team's reports are appended in the order of the calls, whoever was quicker, and once each."""

    async def wait(step: ToolStep) -> str:
        await step.sleep(5)
        return "waited"

    def member(name: str) -> Agent:
        return says(name, *([call("wait")] if name == slow else []), f"{name} here", tools=[wait])

    boss = says(
        "boss", [call("ask_two", objective="?"), call("ask_one", objective="?")], call("ask_one", objective="!"), "done"
    )
    one = says("one", *([call("wait")] if slow == "one" else []), "one here", "one again", tools=[wait])
    edges = boss.delegates(one, member("two"), max_hops=2, into="reports")
    graph = Graph("g", START >> boss >> END, edges, context=Findings, max_depth=1)

    played = await play(graph, Findings())

    assert [report.finding for report in played.result.context.reports] == ["two here", "one here", "one again"]


async def test_d9_a_team_in_a_branch_keeps_to_its_branch_until_the_join() -> None:
    """Two supervisors at once, each with a team that reports into the context: all four, in branch order."""

    def desk(name: str) -> tuple[Agent, Any]:
        team = [always(f"{name}{number}", f"{name}{number} here") for number in (1, 2)]
        boss = says(
            name, [call(f"ask_{name}{number}", objective="?") for number in (2, 1)], f"{name} done", into="found"
        )
        return boss, boss.delegates(*team, max_hops=1, into="reports")

    (a, team_a), (b, team_b) = desk("a"), desk("b")
    graph = Graph("g", START >> fork(a, b) >> Join("j") >> END, team_a, team_b, context=Findings, max_depth=1)

    played = await play(graph, Findings())

    assert [report.finding for report in played.result.context.reports] == [
        f"{x} here" for x in ("a2", "a1", "b2", "b1")
    ]
    assert played.result.context.found == ("q", "a done", "b done")
