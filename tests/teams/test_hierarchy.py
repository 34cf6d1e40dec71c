"""Supervisors of supervisors: what a mapping means, what is refused, and a company of 341 nodes."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Agent, Call, Context, Delegate, Graph, Report, State, node, run, run_sync, tool
from graphflow.errors import UsageError
from graphflow.graphs.conversation import Task
from graphflow.graphs.teams import hierarchy
from graphflow.nodes.client import ModelRequest
from graphflow.testing import RuleModel, ScriptedModel, call
from graphflow.testing.models import ScriptStep
from graphflow.visualize import to_dot, to_mermaid
from tests.support import examples
from tests.teams.helpers import agent, asks_once, one, played, problems, says

MODEL = RuleModel(otherwise="It is so.")


async def test_reports_go_up_from_level_to_level() -> None:
    """The chief asks the desk, the desk asks billing; each answers from the report that it got."""
    model = ScriptedModel(
        {
            "chief": [call("ask_desk", objective="Was INV-311 paid twice?"), "Yes, on 3 and 4 May."],
            "desk": [call("ask_billing", objective="Look at INV-311."), "Paid twice."],
            "billing": ["Two payments of 49.00."],
        }
    )
    graph = hierarchy("company", {"chief": [{"desk": ["billing", "shipping"]}, "press"]}, model=model)

    found = await played(graph, "Was INV-311 paid twice?")

    assert found.result.output == "Yes, on 3 and 4 May."
    assert found.visited == [
        ("chief",),
        ("chief", "desk"),
        ("chief", "desk", "desk"),
        ("chief", "desk", "desk", "billing"),
    ]
    model.assert_complete()
    assert "Two payments of 49.00." not in str(model.requests[-1].messages)


def test_every_form_of_a_team_means_the_same() -> None:
    """A mapping in a mapping is a mapping in a list; one member needs no list; a team of nobody is no team."""
    teams: list[dict[str, Any]] = [
        {"chief": {"desk": ["billing"], "press": None}},
        {"chief": [{"desk": "billing"}, "press"]},
        {"chief": ({"desk": ("billing",)}, {"press": []})},
        {"chief": [{"desk": {"billing": ()}}, "press"]},
    ]

    graphs = [hierarchy("company", team, model=MODEL) for team in teams]

    assert len({graph.fingerprint() for graph in graphs}) == 1
    assert problems(graphs[0]) == []


async def test_a_supervisor_may_be_a_function_and_a_member_any_node() -> None:
    """A function leads; a graph, a function and a name are its team."""

    @node
    async def chief(state: State[Context]) -> Delegate | str:
        if state.turn == 0:
            return Delegate(Call("desk", "Ask."), Call("press", "Ask."), Call("legal", "Ask."))
        return " ".join(value.finding for value in state.values)

    inner = hierarchy("desk", {"head": ["x"]}, model=ScriptedModel("From the desk."))
    graph = hierarchy("company", {chief: [inner, says("press", "From the press."), "legal"]}, model=MODEL)

    found = await played(graph)

    assert found.result.output == "From the desk. From the press. It is so."
    assert problems(graph) == []


async def test_one_name_may_stand_in_every_team() -> None:
    """Names are told apart by their teams: two readers are two nodes."""
    both = [call("ask_north", objective="Read."), call("ask_south", objective="Read.")]
    model = RuleModel(
        (asks_once("ask_north"), both), (asks_once("ask_reader"), call("ask_reader", objective="Read.")),
        otherwise="Read.",
    )  # fmt: skip
    graph = hierarchy("company", {"chief": {"north": ["reader"], "south": ["reader"]}}, model=model)

    found = await played(graph)

    assert [where for where in found.visited if where[-1] == "reader"] == [
        ("chief", "north", "north", "reader"),
        ("chief", "south", "south", "reader"),
    ]


async def test_a_supervisor_that_asks_once_more_is_refused_and_answers() -> None:
    """`max_calls` holds for each task that a team gets, and a refusal is no failure."""
    asks: list[ScriptStep] = [call("ask_desk", objective="Again?")] * 3
    graph = hierarchy("company", {agent("chief", ScriptedModel(*asks, "Enough.")): ["desk"]}, model=MODEL, max_calls=2)

    found = await played(graph)

    assert (found.result.status, found.result.output) == ("completed", "Enough.")
    assert [reason.code for reason in found.result.refused] == ["max_hops"]


async def test_a_team_that_fails_is_a_report_to_its_supervisor() -> None:
    """The chief is told who failed, and answers; the run is partial."""

    @node
    async def billing(_: State[Context]) -> Report:
        msg = "the ledger is down"
        raise OSError(msg)

    model = ScriptedModel(
        {
            "chief": [call("ask_desk", objective="?"), "Billing is down."],
            "desk": [call("ask_billing", objective="?"), Report(status="failed", reason="no ledger")],  # type: ignore[arg-type]  # a text is taken
        }
    )
    desk = agent("desk", model, output=Report)
    graph = hierarchy("company", {agent("chief", model): {desk: [billing]}})

    found = await played(graph)

    assert (found.result.status, found.result.output) == ("partial", "Billing is down.")
    assert {reason.code for reason in found.result.failures} >= {"reported"}


@pytest.mark.parametrize(
    ("team", "said"),
    [
        pytest.param({}, "one supervisor stands at the top, not nobody", id="nobody"),
        pytest.param({"a": ["b"], "c": ["d"]}, "not 'a', 'c'", id="two at the top"),
        pytest.param(["a"], "a mapping from it to its team", id="a list"),
        pytest.param("a", "a mapping from it to its team", id="a text"),
        pytest.param(7, "7 is no team", id="a number"),
        pytest.param({"a": 7}, "7 is no team", id="a number as team"),
        pytest.param({"a": [7]}, "7 is no member", id="a number as member"),
        pytest.param({7: ["a"]}, "7 is no member", id="a number as supervisor"),
        pytest.param({"a": ["b", "b"]}, "two members are called 'b'", id="twice in a team"),
        pytest.param({"a": ["a"]}, "two members are called 'a'", id="in its own team"),
        pytest.param({"a": []}, "at least one is needed, and there is none", id="nobody to lead"),
        pytest.param({hierarchy("g", {"h": ["i"]}, model=MODEL): ["a"]}, "the graph 'g' cannot lead 'a'", id="a graph"),
        pytest.param({"a": [""]}, "a name is needed", id="no name"),
    ],
)
def test_what_is_no_hierarchy_is_refused(team: Any, said: str) -> None:
    """The error says what is wrong and what is needed."""
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        hierarchy("company", team, model=MODEL)


def test_a_name_without_a_model_is_refused() -> None:
    """The error names the name and what is missing."""
    with pytest.raises(UsageError, match=r"'billing' is a name, .*model="):
        hierarchy("company", {one("chief"): ["billing"]})


@pytest.mark.parametrize("bound", ["max_calls", "max_turns"])
@pytest.mark.parametrize("number", [0, -1, None, 1.5, True])
def test_a_bound_that_makes_no_sense_is_refused(bound: str, number: Any) -> None:
    """A whole number of at least one is needed."""
    with pytest.raises(UsageError, match=bound):
        hierarchy("company", {"chief": ["desk"]}, model=MODEL, **{bound: number})


def test_a_team_inside_itself_is_refused() -> None:
    """A mapping that holds itself has no end."""
    team: dict[str, Any] = {}
    team["desk"] = [team]

    with pytest.raises(UsageError, match="stands inside itself"):
        hierarchy("company", {"chief": team}, model=MODEL)


def test_one_team_may_stand_at_two_places() -> None:
    """The same mapping in two teams is two teams."""
    team = {"desk": ["billing"]}

    graph = hierarchy("company", {"chief": {"north": [team], "south": [team]}}, model=MODEL)

    assert problems(graph) == []
    assert graph.worst_case().node_runs == 11


def test_a_hierarchy_may_be_a_hundred_deep() -> None:
    """There is no bound on the depth; the proof says what it is."""
    team: dict[str, Any] = {"level 100": ["leaf"]}
    for level in reversed(range(100)):
        team = {f"level {level}": team}

    graph = hierarchy("company", team, model=MODEL)

    assert problems(graph) == []
    assert graph.worst_case().depth == 101


async def test_a_context_that_needs_more_than_a_task_stays_at_the_top() -> None:
    """The teams below begin with what they are asked, which is all that they get."""

    class Order(Context):
        number: int
        text: str = ""

    @node
    async def chief(state: State[Order]) -> Delegate | str:
        return state.values[0].finding if state.turn else Delegate(Call("desk", f"Look at {state.context.number}."))

    @node
    async def billing(state: State[Context]) -> str:
        return f"{type(state.context).__name__}: {state.brief.objective if state.brief else ''}"

    @node
    async def desk(state: State[Task]) -> Delegate | str:
        return state.values[0].finding if state.turn else Delegate(Call("billing", state.context.task))

    graph = hierarchy("company", {chief: {desk: [billing]}}, context=Order)

    result = await run(graph, Order(number=7))

    assert result.output == "Task: Look at 7."


TREES = st.recursive(
    st.just(None), lambda below: st.lists(below, min_size=1, max_size=3), max_leaves=8
).filter(bool)  # fmt: skip


def named(tree: Any, name: str) -> dict[str, Any]:
    """A team of some shape, in which every name says where it stands."""
    below = {f"{name}{at}": one_below for at, one_below in enumerate(tree)}
    return {name: [named(part, place) if part else place for place, part in below.items()]}


@settings(max_examples=examples(40))
@given(tree=TREES, calls=st.integers(1, 2))
def test_of_any_shape_the_worst_case_is_reached(tree: Any, calls: int) -> None:
    """In a hierarchy of any shape, where everybody asks everybody as often as they may, what was proved is done."""

    def asks(request: ModelRequest) -> Any:
        team = [call(spec.name, objective="?") for spec in request.tools]
        return "Done." if request.turn == 1 or not team else team * calls

    graph = hierarchy("company", named(tree, "n"), model=RuleModel(otherwise=asks), max_calls=calls)
    worst = graph.worst_case()

    result = run_sync(graph, Task(task="?"))

    assert problems(graph) == []
    assert result.status == "completed"
    assert result.spent.total.node_runs == worst.node_runs


# --- depth 4, width 4: 341 nodes -------------------------------------------------------------------------------------

TURNS = 5
NODES = 1 + 4 + 16 + 64 + 256


def company(model: RuleModel) -> Graph[Any]:
    """A company in which each of 256 has a tool of its own."""

    def team(name: str, depth: int) -> list[Any]:
        names = [f"{name}{letter}" for letter in "abcd"]
        if depth == 1:
            return [leaf(below) for below in names]
        return [{below: team(below, depth - 1)} for below in names]

    def leaf(name: str) -> Agent:
        @tool(name=f"look_{name}")
        def look() -> str:
            """Look."""
            return "seen"

        return agent(name, model, tools=[look], max_turns=TURNS, max_tool_calls=TURNS - 1)

    return hierarchy("company", {"chief": team("", 4)}, model=model, max_turns=TURNS)


class Everybody:
    """Uses up every bound: all members are asked at once, then more of what is refused, and one answer in the end."""

    def __init__(self) -> None:
        self.waiting = 0
        self.arrived: anyio.Event | None = None

    async def __call__(self, request: ModelRequest) -> Any:
        """Answer only in the last turn that is allowed."""
        if request.turn == TURNS - 1:
            return "Done."
        if request.tools[0].name.startswith("look_"):
            await self.all_leaves()
            return call(request.tools[0].name)
        return [call(spec.name, objective=f"Turn {request.turn}") for spec in request.tools] or call("nobody")

    async def all_leaves(self) -> None:
        """Wait until 256 of them ask at once."""
        self.arrived = self.arrived or anyio.Event()
        self.waiting += 1
        if self.waiting == 4**4:
            self.arrived.set()
        await self.arrived.wait()


async def test_the_worst_case_of_341_nodes_is_proved_and_reached() -> None:
    """At depth 4 and width 4, where everybody uses every bound, a run does exactly what was proved to be the most."""
    everybody = Everybody()
    graph = company(RuleModel(otherwise=everybody))
    worst = graph.worst_case()

    found = await played(graph)

    assert problems(graph) == []
    graphs = 4 + 16 + 64  # each supervisor below the chief leads one, and control that enters it is a run too
    assert (worst.node_runs, worst.depth, worst.concurrent) == (NODES + graphs, 4, 4**4)
    assert (worst.model_calls, worst.tool_calls) == (NODES * TURNS, 4**4 * (TURNS - 1))
    total = found.result.spent.total
    assert (total.node_runs, total.model_calls, total.tool_calls) == (NODES + graphs, NODES * TURNS, 4**4 * (TURNS - 1))
    assert everybody.waiting == 4**4 * (TURNS - 1)
    assert max(len(where) for where in found.visited) == 8
    assert found.result.output == "Done."


def test_341_nodes_are_checked_proved_and_drawn_in_seconds() -> None:
    """And the picture is no band: no team stands beside more than one other level of teams."""
    started = time.perf_counter()

    graph = company(RuleModel(otherwise="It is so."))
    found, worst, dot, mermaid = problems(graph), graph.worst_case(), to_dot(graph), to_mermaid(graph)

    assert time.perf_counter() - started < 20
    assert found == []
    assert worst.depth == 4
    for name in ("chief", "a", "dddd"):
        assert f">{name}</FONT>" in dot
        assert name in mermaid
    assert dot.count("style=invis") >= 200  # what holds the teams below each other


@pytest.mark.parametrize("team", [{"chief": ["a", None, "b"]}, {"chief": {"a": [], None: [], "b": []}}])
def test_nobody_is_no_member(team: Any) -> None:
    """What is no member is told, and none behind it is lost."""
    with pytest.raises(UsageError, match="None is no member"):
        hierarchy("h", team, model=ScriptedModel())
