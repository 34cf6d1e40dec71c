"""What can be said of agents before they run: problems, bounds, the structure as data, and the fingerprint."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeAliasType

from graphflow import (
    END,
    START,
    Brief,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Price,
    Report,
    State,
    append,
    node,
    quorum,
    when,
)
from graphflow.errors import UsageError
from graphflow.graphs.agent_rules import ungated_tools
from graphflow.graphs.export import fingerprint, structure
from graphflow.model.frozen import FrozenDict, Json
from graphflow.model.thread import Thread, last
from graphflow.nodes.agent import Agent, Supervisor
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Chain
from graphflow.nodes.tools import AskUser, Tool, tool
from graphflow.testing import ScriptedModel
from tests.support import ROOT

INF = float("inf")
MODEL = ScriptedModel()


class Case(Context):
    question: str = ""
    answer: Report | None = None
    text: str = ""
    reports: Annotated[tuple[Report, ...], append] = ()


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str


class Closer(Report):
    """A report of one's own."""


class Color(StrEnum):
    RED = "red"


class Answers(Context):
    answer: Answer = Answer(text="")
    report: Report = Report(finding="none")
    text: str = ""


@tool
def get_invoice(number: str) -> str:
    """Look an invoice up."""
    return number


@tool
def track_parcel(order: str, days: frozenset[str] = frozenset({"mon", "tue", "wed", "thu"})) -> str:
    """Track a parcel."""
    return order + str(days)


@tool(effect="irreversible")
def refund(number: str) -> str:
    """Pay back."""
    return number


APPROVED = tool(refund.fn, name="refund", effect="irreversible", approval=True)


def over(options: dict[str, Any], /, **usual: Any) -> dict[str, Any]:
    """Options over the usual ones."""
    return {**usual, **options}


def agent(name: str, *tools: Any, kind: type[Agent] = Agent, **options: Any) -> Agent:
    """An agent that is told apart from others by what it is there for."""
    return kind(name, **over(options, model=MODEL, tools=tools, description=f"Does what {name} does."))


def supervisor(name: str, *tools: Any, **options: Any) -> Agent:
    """A supervisor."""
    return agent(name, *tools, kind=Supervisor, **options)


def function(name: str, **options: Any) -> Node[Case]:
    """A node that is no agent."""

    def body(state: State[Case]) -> None:
        """Does nothing."""

    return node(name=name, **options)(body)


def graph_of(*chains: Chain[Any], **options: Any) -> Graph[Any]:
    """A graph of these statements."""
    return Graph("graph", *chains, **over(options, context=Case, budget=Budget(node_runs=10**9)))


def yes(state: State[Any]) -> bool:
    """A predicate."""
    return True


def no(state: State[Any]) -> bool:
    """Another predicate."""
    return False


def urls(state: State[Any]) -> tuple[str, ...]:
    """What a map runs over."""
    return ()


def found(graph: Graph[Any], severity: str) -> list[tuple[str, tuple[str, ...]]]:
    """The code and the place of each problem of one severity."""
    return [(problem.code, problem.where) for problem in graph.check() if problem.severity == severity]


# --- the programs that the library is for -------------------------------------------------------------------------


def programs() -> dict[str, Graph[Case]]:
    """Teams as people write them: supervisors, handoffs, a debate, a map, a plan."""
    billing = Agent("billing", model=MODEL, tools=[get_invoice], output=Report, max_turns=4)
    shipping = Agent("shipping", model=MODEL, tools=[track_parcel], output=Report, max_turns=4)
    desk = Supervisor("desk", model=MODEL, instructions="Split the question, delegate, answer once.")
    ceo, research, triage, bull, bear, planner, execute = (
        kind(name, model=MODEL)
        for kind, name in (
            (Supervisor, "ceo"), (Agent, "research"), (Agent, "triage"), (Agent, "bull"), (Agent, "bear"),
            (Agent, "planner"), (Agent, "execute"),
        )
    )  # fmt: skip
    gate, merge, act, fetch, verify = (function(name) for name in ("gate", "merge", "act", "fetch", "verify"))
    enough = Join("enough", quorum(3, within=10))
    support = Graph(
        "support",
        START >> desk,
        desk.delegates(billing, shipping, max_hops=2, into="reports"),
        desk >> END,
        context=Case,
        budget=Budget(model_calls=12, tokens=20_000, usd="0.10", seconds=60),
        max_depth=2,
    )
    company = Graph(
        "company", START >> ceo, ceo.delegates(support, research, max_hops=3), ceo >> END, context=Case, max_depth=3
    )
    chat = Graph(
        "chat",
        START >> triage,
        triage.hands_off(billing, shipping, max_hops=2),
        billing.hands_off(triage, max_hops=1),
        triage >> END,
        billing >> END,
        shipping >> END,
        context=Case,
        max_handoffs=2,
        escalate=Human("human"),
    )
    debate = Graph(
        "debate",
        START >> gate >> (bull, bear) >> merge >> act,
        act.choose(when(yes, gate, max_hops=2), default=END),
        context=Case,
    )
    crawl = Graph(
        "crawl", START >> gate, gate.map(fetch, over=urls, join=enough, max_items=50), enough >> END, context=Case
    )
    plan = Graph(
        "plan",
        START >> planner >> execute,
        execute.delegates(billing, shipping, max_hops=8),
        execute.choose(when(no, planner, max_hops=2), default=verify),
        verify >> END,
        context=Case,
    )
    return {graph.name: graph for graph in (support, company, chat, debate, crawl, plan)}


@pytest.mark.parametrize(
    ("name", "warnings"),
    [
        pytest.param("support", [("over-budget", ())]),
        pytest.param(
            "company",
            [
                ("no-budget", ()),
                ("same-description", ("ceo", "research", "support")),
            ],
        ),
        pytest.param("chat", [("no-budget", ())]),
        pytest.param("debate", [("no-budget", ())]),
        pytest.param("crawl", [("no-budget", ())]),
        pytest.param("plan", [("no-budget", ())]),
    ],
)
def test_teams_as_people_write_them_have_no_errors(name: str, warnings: list[tuple[str, tuple[str, ...]]]) -> None:
    """What is said of them is little: a budget, and one line for a team of which nothing is said."""
    graph = programs()[name]

    assert found(graph, "error") == []
    assert sorted(found(graph, "warning")) == sorted(warnings)


# --- errors ----------------------------------------------------------------------------------------------------------

DESK, BILLING, SHIPPING, TRIAGE = supervisor("desk"), agent("billing"), agent("shipping"), agent("triage")
ASK_BILLING = tool(get_invoice.fn, name="ask_billing")
TO_BILLING = tool(get_invoice.fn, name="transfer_to_billing")


def team(*members: Node[Any], lead: Agent = DESK, **options: Any) -> Graph[Any]:
    """A supervisor with a team."""
    return graph_of(START >> lead >> END, lead.delegates(*members, **over(options, max_hops=1)))


def peers(lead: Agent, *others: Node[Any], **options: Any) -> Graph[Any]:
    """An agent that hands off to others."""
    ends = [other >> END for other in others]
    return graph_of(START >> lead >> END, lead.hands_off(*others, **over(options, max_hops=1)), *ends)


@pytest.mark.parametrize(
    ("graph", "code", "where"),
    [
        pytest.param(
            team(BILLING, lead=supervisor("desk", ASK_BILLING)), "tool-clash", ("desk", "billing"), id="ask_"
        ),
        pytest.param(
            peers(agent("triage", TO_BILLING), BILLING), "tool-clash", ("triage", "billing"), id="transfer_to_"
        ),
        pytest.param(
            team(agent("a b"), agent("a.b"), lead=supervisor("desk", tool(get_invoice.fn, name="ask_a_b_2"))),
            "tool-clash",
            ("desk", "a.b"),
            id="two names that a tool cannot have",
        ),
        pytest.param(graph_of(START >> DESK >> END), "no-team", ("desk",), id="a supervisor alone"),
        pytest.param(peers(DESK, BILLING), "no-team", ("desk",), id="peers are no team"),
        pytest.param(
            graph_of(START >> BILLING >> END, BILLING.delegates(agent("a", output=Answer), max_hops=1)),
            "answer-contract",
            ("billing", "a"),
            id="another model",
        ),
        pytest.param(team(agent("a", output=int)), "answer-contract", ("desk", "a"), id="no model"),
        pytest.param(team(agent("a", output=tuple[Report, ...])), "answer-contract", ("desk", "a"), id="many reports"),
        pytest.param(team(agent("a", output=str), report=Answer), "answer-contract", ("desk", "a"), id="a text"),
        pytest.param(team(agent("a", output=int | None)), "answer-contract", ("desk", "a"), id="nothing, or a number"),
        pytest.param(
            team(agent("a", output=Report), report=Closer), "answer-contract", ("desk", "a"), id="a wider report"
        ),
        pytest.param(
            graph_of(
                START >> DESK >> END,
                DESK.delegates(BILLING, max_hops=1),
                BILLING.hands_off(agent("a", output=Answer), max_hops=1),
            ),
            "answer-contract",
            ("desk", "a"),
            id="who ends the frame reports",
        ),
        pytest.param(team(Human("h", schema=int)), "answer-contract", ("desk", "h"), id="a person's number"),
        pytest.param(team(Human("h"), report=Answer), "answer-contract", ("desk", "h"), id="whatever a person says"),
        pytest.param(
            graph_of(
                START >> DESK >> END,
                DESK.delegates(BILLING, max_hops=1),
                BILLING.on_error(Human("h", schema=bool), catch=ValueError),
            ),
            "answer-contract",
            ("desk", "h"),
            id="a person after a failure",
        ),
        pytest.param(
            graph_of(START >> agent("a", into="answer") >> END), "into-type", ("a",), id="a text into a report"
        ),
        pytest.param(
            graph_of(START >> agent("a", output=Answer, into="reports") >> END),
            "into-type",
            ("a",),
            id="an answer into reports",
        ),
        pytest.param(team(agent("a", into="answer")), "into-type", ("a",), id="the text of a callee"),
        pytest.param(
            graph_of(START >> agent("a", refund) >> END), "irreversible-ungated", ("a",), id="a tool without a gate"
        ),
        pytest.param(
            team(Graph("g", START >> agent("a", refund) >> END, context=Case, description="Pays.")),
            "irreversible-ungated",
            ("g", "a"),
            id="a tool without a gate, below",
        ),
        pytest.param(
            graph_of(START >> BILLING >> END, BILLING.delegates(agent("billing", model=ScriptedModel()), max_hops=1),
                     max_depth=1),
            "name-clash",
            ("billing",),
            id="one name for two models",
        ),
    ],
)  # fmt: skip
def test_each_rule_finds_its_error(graph: Graph[Any], code: str, where: tuple[str, ...]) -> None:
    """The graph breaks one rule, and that is the one error of it."""
    errors = [problem for problem in graph.check() if problem.severity == "error"]

    assert [(problem.code, problem.where) for problem in errors] == [(code, where)]
    assert errors[0].message.endswith(".")
    assert errors[0].hint.endswith(".")


Named = TypeAliasType("Named", Closer | None)  # a name for a union, as `type` makes one


@pytest.mark.parametrize(
    ("output", "report"),
    [
        (None, Report), (None, Answer), (str, Report), (Color, Report), (Report, Report), (Closer, Report),
        (Answer, Answer), (Report | None, Report), (int | Closer, Report),
        (Annotated[Report, "checked"], Report), (Named, Report), (Literal["yes", "no"], Report),
    ],
)  # fmt: skip
def test_an_answer_that_can_be_a_report_is_fine(output: Any, report: type[BaseModel]) -> None:
    """Whatever may fit, or cannot be told from the type, is no problem before the run."""
    graph = team(agent("a", output=output), report=report)

    assert found(graph, "error") == []


@pytest.mark.parametrize(
    ("schema", "report"), [(None, Report), (str, Report), (Report, Report), (Answer, Answer), (int | Closer, Report)]
)
def test_what_a_person_says_can_be_a_report(schema: Any, report: type[BaseModel]) -> None:
    """By the same rule; what they say without a schema may be words."""
    assert found(team(Human("h", schema=schema), report=report), "error") == []


def test_a_person_who_is_handed_control_gives_it_back() -> None:
    """Their answer is no report, so it may be of any type."""
    back = BILLING.hands_off(Human("h", schema=int), max_hops=1)
    graph = graph_of(START >> DESK >> END, DESK.delegates(BILLING, max_hops=1), back)

    assert found(graph, "error") == []


@dataclass
class Changeable:
    """What somebody could change."""

    size: int = 1


@pytest.mark.parametrize(
    ("schema", "use"),
    [
        (list[int], "tuple[T, ...]"), (dict[str, int], "FrozenDict[K, V]"), (set[str], "frozenset[T]"),
        (tuple[list[int], ...], "tuple[T, ...]"), (int | list[str], "tuple[T, ...]"),
        (Changeable, "@dataclass(frozen=True)"), (Any, "Json"),
    ],
)  # fmt: skip
def test_what_a_person_answers_can_be_changed_by_nobody(schema: Any, use: str) -> None:
    """It is the output of a node: a type that could be changed is refused where the person is made."""
    with pytest.raises(UsageError, match="what it gives to others must be frozen") as caught:
        Human("h", schema=schema)

    assert use in str(caught.value)


@pytest.mark.parametrize("schema", [None, int, tuple[int, ...], frozenset[str], FrozenDict[str, int], Json, Report])
def test_what_a_person_answers_may_be_any_frozen_type(schema: Any) -> None:
    """With one for each of those that are refused."""
    assert Human("h", schema=schema).named("other").schema == schema


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(graph_of(START >> agent("a", into="text") >> END), id="a text into a text"),
        pytest.param(graph_of(START >> agent("a", output=Closer, into="reports") >> END), id="a report into reports"),
        pytest.param(
            Graph("g", START >> DESK >> END, DESK.delegates(agent("a", into="answer"), max_hops=1, report=Answer),
                  context=Answers, budget=Budget(node_runs=99)),
            id="a callee answers as its edge asks",
        ),
        pytest.param(graph_of(START >> Human("boss") >> agent("a", refund) >> END), id="a gate before the tool"),
        pytest.param(graph_of(START >> agent("a", APPROVED) >> END), id="a person approves each call"),
        pytest.param(graph_of(START >> agent("a", refund, gate=True) >> END), id="an agent that is a gate"),
        pytest.param(graph_of(START >> agent("a", tool(refund.fn, effect="write")) >> END), id="a tool that writes"),
        pytest.param(team(BILLING, lead=supervisor("desk", AskUser())), id="a question to a person"),
        pytest.param(team(BILLING, lead=supervisor("desk", TO_BILLING)), id="the name of a transfer that is not there"),
    ],
)  # fmt: skip
def test_good_agents_have_no_problem(graph: Graph[Any]) -> None:
    """None of the rules is stricter than it says."""
    assert graph.check() == ()


def test_a_tool_that_cannot_be_undone_is_named() -> None:
    """The problem says which tools it is about, and that they can be approved."""
    wipe = tool(refund.fn, name="wipe", effect="irreversible")
    graph = graph_of(START >> agent("a", refund, wipe, tool(APPROVED, name="pay")) >> END)

    (problem,) = graph.check()

    assert problem.message == (
        "'a' has 'refund', 'wipe', which cannot be undone, and a path from START reaches it without a gate."
    )
    assert "approval=True" in problem.hint
    assert ungated_tools(function("f", irreversible=True)) == ()


def test_a_node_that_cannot_be_undone_is_told_as_before() -> None:
    """For a node without tools nothing is said of tools."""
    (problem,) = graph_of(START >> function("f", irreversible=True) >> END).check()

    assert problem.message == "'f' cannot be undone, and a path from START reaches it without a gate."
    assert "tool" not in problem.hint


# --- warnings --------------------------------------------------------------------------------------------------------


def said(name: str, description: str = "", instructions: str = "", *tools: Any) -> Agent:
    """An agent of which this is said."""
    return agent(name, *tools, description=description, instructions=instructions)


@pytest.mark.parametrize(
    ("graph", "code", "where"),
    [
        pytest.param(
            graph_of(START >> agent("a", get_invoice, rights=["get_invoice", "get_invoce"]) >> END),
            "unknown-right",
            ("a",),
            id="a right",
        ),
        pytest.param(
            team(agent("a", get_invoice), grant=["get_invoice", "pay"]), "unknown-grant", ("desk", "a"), id="a grant"
        ),
        pytest.param(
            team(BILLING, lead=supervisor("desk", get_invoice), grant=["get_invoice"]),
            "unknown-grant",
            ("desk", "billing"),
            id="a grant of the giver's own tool",
        ),
        pytest.param(
            graph_of(START >> agent("a", history="full") >> END), "full-history", ("a",), id="an agent sees all"
        ),
        pytest.param(
            team(BILLING, history="full"), "full-history", ("desk", "billing"), id="a callee sees all"
        ),
        pytest.param(
            peers(TRIAGE, BILLING, history="full"), "full-history", ("triage", "billing"), id="a target sees all"
        ),
        pytest.param(
            team(agent("a", get_invoice), agent("b", track_parcel, get_invoice)),
            "overlapping-tools",
            ("desk", "a", "b"),
            id="a tool in two hands",
        ),
        pytest.param(
            peers(TRIAGE, agent("a", get_invoice), agent("b", get_invoice)),
            "overlapping-tools",
            ("triage", "a", "b"),
            id="a tool at two targets",
        ),
        pytest.param(
            team(said("a"), said("b"), said("c", "Helps.")), "same-description", ("desk", "a", "b"), id="nothing said"
        ),
        pytest.param(
            team(said("a", "", "You bill. Be kind."), said("b", "", "You bill. Be quick.")),
            "same-description",
            ("desk", "a", "b"),
            id="instructions that begin alike",
        ),
        pytest.param(
            peers(TRIAGE, said("a", "You bill"), said("b", "", "You bill. Be quick.")),
            "same-description",
            ("triage", "a", "b"),
            id="a description like the instructions of another",
        ),
        pytest.param(
            team(said("a"), Graph("g", START >> BILLING >> END, context=Case)),
            "same-description",
            ("desk", "a", "g"),
            id="a graph of which nothing is said",
        ),
    ],
)  # fmt: skip
def test_each_rule_finds_its_warning(graph: Graph[Any], code: str, where: tuple[str, ...]) -> None:
    """A warning is listed and refuses nothing."""
    problems = graph.check()

    assert [(problem.code, problem.where, problem.severity) for problem in problems] == [(code, where, "warning")]
    assert problems[0].message.endswith(".")
    assert problems[0].hint.endswith(".")


def deep_team() -> Agent:
    """An agent below which several others have tools, at every kind of edge."""
    return supervisor("top", AskUser("ask_boss"), rights=[
        "ask_boss", "get_invoice", "track_parcel", "refund", "ask_lead", "ask_helper", "transfer_to_taker",
    ])  # fmt: skip


def below(top: Agent) -> Graph[Any]:
    """Its team: an agent with a helper and one it hands over to, and a graph with an agent and a graph in it."""
    lead, helper, taker = agent("lead", APPROVED), agent("helper", get_invoice), agent("taker")
    inner = Graph("inner", START >> agent("x", track_parcel) >> END, context=Case)
    crew = Graph("crew", START >> function("f") >> inner >> END, context=Case, description="A crew.")
    return graph_of(
        START >> top >> END,
        top.delegates(lead, crew, max_hops=1, grant=["get_invoice", "refund", "track_parcel"]),
        lead.delegates(helper, max_hops=1),
        lead.hands_off(taker, max_hops=1),
    )


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(below(deep_team()), id="rights and grants name what stands anywhere below"),
        pytest.param(graph_of(START >> agent("a", rights=[]) >> END), id="no rights at all"),
        pytest.param(team(agent("a", AskUser()), agent("b", AskUser())), id="all may ask a person"),
        pytest.param(
            team(said("a"), said("b", "Helps."), said("c", "", "You bill.")), id="one of which nothing is said"
        ),
        pytest.param(
            graph_of(START >> function("f") >> END, function("f").delegates(said("a"), said("b"), max_hops=1)),
            id="code chooses by name",
        ),
        pytest.param(team(BILLING, history=last(3)), id="a part of the thread"),
        pytest.param(peers(TRIAGE, Human("boss"), history="summary"), id="a person gives control back"),
    ],
)
def test_nothing_is_said_of_what_is_in_order(graph: Graph[Any]) -> None:
    """None of the warnings is given where there is nothing to warn of."""
    assert [problem for problem in graph.check() if problem.code != "name-clash"] == []


def test_who_shares_tools_is_told_once() -> None:
    """All tools that the same members share are one problem."""
    (problem,) = team(agent("a", get_invoice, track_parcel), agent("b", get_invoice, track_parcel)).check()

    assert problem.message == "in the team of 'desk', 'a', 'b' have the same tools: 'get_invoice', 'track_parcel'."


# --- bounds ----------------------------------------------------------------------------------------------------------


def numbers(graph: Graph[Any]) -> tuple[float, ...]:
    """The five numbers of the worst case."""
    case = graph.worst_case()
    return (case.node_runs, case.model_calls, case.tool_calls, case.concurrent, case.depth)


def lanes(lane: Node[Any], most: int) -> Graph[Any]:
    """A map over a lane."""
    begin, met = function("begin"), Join("met")
    return graph_of(START >> begin, begin.map(lane, over=urls, join=met, max_items=most), met >> END)


HELPED = agent("lead", get_invoice, max_turns=2, max_tool_calls=3)
BUSY = supervisor("desk", get_invoice, max_turns=2, max_tool_calls=1)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(graph_of(START >> agent("a") >> END), (1, 10, 0, 1, 0), id="a model alone"),
        pytest.param(graph_of(START >> agent("a", get_invoice) >> END), (1, 10, 32, 1, 0), id="with a tool"),
        pytest.param(graph_of(START >> agent("a", AskUser()) >> END), (1, 10, 0, 1, 0), id="a question is no call"),
        pytest.param(
            graph_of(START >> agent("a", get_invoice, max_turns=3, max_tool_calls=0) >> END),
            (1, 3, 0, 1, 0),
            id="no calls allowed",
        ),
        pytest.param(
            graph_of(START >> agent("a", get_invoice, max_turns=3, max_tool_calls=5, retries=2, repairs=4) >> END),
            (3, 3, 5, 1, 0),
            id="the bounds of a visit hold for all its attempts",
        ),
        pytest.param(
            graph_of(START >> agent("a", tool(get_invoice.fn, retries=9), max_tool_calls=5) >> END),
            (1, 10, 5, 1, 0),
            id="further attempts of a tool count as calls",
        ),
        pytest.param(
            graph_of(
                START >> HELPED, HELPED.choose(when(yes, HELPED, max_hops=2), default=END)
            ),
            (3, 6, 9, 1, 0),
            id="a loop",
        ),
        pytest.param(lanes(HELPED, 5), (7, 10, 15, 5, 0), id="lanes"),
        pytest.param(
            graph_of(START >> Graph("g", START >> HELPED >> END, context=Case, retries=1) >> END),
            (4, 4, 6, 1, 0),
            id="a graph that is tried again enters it again",
        ),
        pytest.param(team(HELPED, max_hops=4), (1 + 4, 10 + 4 * 2, 4 * 3, 4, 1), id="a team"),
        pytest.param(
            team(HELPED, lead=BUSY, max_hops=4), (1 + 4, 2 + 4 * 2, 1 + 4 * 3, 1 + 4, 1), id="tools beside the team"
        ),
        pytest.param(
            graph_of(START >> BUSY >> END, BUSY.delegates(HELPED, max_hops=2), HELPED.delegates(TRIAGE, max_hops=3)),
            (1 + 2 + 3, 2 + 2 * 2 + 3 * 10, 1 + 2 * 3, 1 + 2 + 3, 2),
            id="tools beside a team, twice",
        ),
        pytest.param(
            graph_of(START >> (team(TRIAGE, lead=BUSY).named("x"), function("f")) >> Join("j") >> END),
            (1 + 1 + 1 + 1 + 1, 2 + 10, 1, 1 + 1 + 1, 1),
            id="tools beside a team, in a branch",
        ),
        pytest.param(
            graph_of(START >> TRIAGE >> HELPED >> END, HELPED.hands_off(TRIAGE, max_hops=2)),
            (6, 3 * 10 + 3 * 2, 3 * 3, 1, 0),
            id="handoffs",
        ),
        pytest.param(programs()["support"], (5, 10 + 4 * 4, 4 * 32, 4, 1), id="support"),
        pytest.param(
            programs()["company"], (1 + 3 + 3 * (1 + 5), 10 + 3 * 10 + 3 * 26, 3 * 128, 3 * 4 + 3, 2), id="company"
        ),
        pytest.param(programs()["debate"], (15, 6 * 10, 0, 2, 0), id="debate"),
        pytest.param(programs()["crawl"], (52, 0, 0, 50, 0), id="crawl"),
        pytest.param(programs()["plan"], (3 + 3 + 16 + 1, 6 * 10 + 16 * 4, 16 * 32, 16, 1), id="plan"),
    ],
)  # fmt: skip
def test_what_agents_come_to_at_most(graph: Graph[Any], expected: tuple[float, ...]) -> None:
    """An agent's visit is `max_turns` model calls and `max_tool_calls` tool calls, and its tools share its slot."""
    assert found(graph, "error") == []

    assert numbers(graph) == expected
    assert graph.worst_case().reasons == {}


def test_a_budget_limits_what_agents_spend() -> None:
    """The bound beside the structure is that of the budget."""
    case = programs()["support"].worst_case()

    assert (case.model_calls, case.limits["model_calls"]) == (26, 12)
    assert case.limits["tool_calls"] == 128


def test_tokens_have_no_structural_bound() -> None:
    """No structure says how much an agent reads, so no number is given for tokens, and the docstring says why."""
    case = programs()["support"].worst_case()

    assert not hasattr(case, "tokens")
    assert "how much an agent reads" in (type(case).__doc__ or "")


# --- structure and fingerprint ---------------------------------------------------------------------------------------


def speak(state: State[Any]) -> str:
    """Instructions."""
    return "Be kind."


def speak_otherwise(state: State[Any]) -> str:
    """Other instructions."""
    return "Be quick."


def forbid(name: str, arguments: Mapping[str, Any]) -> str | None:
    """A rule."""
    return None


def forbid_more(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Another rule."""
    return "no"


def newest(thread: Thread) -> Thread:
    """A history policy."""
    return thread[-1:]


def oldest(thread: Thread) -> Thread:
    """Another."""
    return thread[:1]


def look_up(number: str) -> str:
    """Look an invoice up."""
    return number * 2


def by_order(order: str) -> str:
    """Look an invoice up."""
    return order


def small(*tools: Any, kind: type[Agent] = Agent, **options: Any) -> Graph[Any]:
    """A graph of one agent, the options of which are said."""
    return Graph("g", START >> kind("a", **over(options, model=MODEL, tools=tools)) >> END, context=Case)


def asked(*names: str, **options: Any) -> Graph[Any]:
    """A graph with delegate edges, the options of which are said."""
    members = [agent(name, get_invoice) for name in names or ("billing",)]
    return Graph(
        "g", START >> DESK >> END, DESK.delegates(*members, **over(options, max_hops=1)), context=Case
    )  # fmt: skip


def member(description: str, *, lead: Node[Any], call: bool = True) -> Graph[Any]:
    """A graph in which somebody is called, or control is given to them, of whom this is said."""
    other = Graph("m", START >> TRIAGE >> END, context=Case, description=description)
    edge = lead.delegates(other, max_hops=1) if call else lead.hands_off(other, max_hops=1)
    return Graph("g", START >> lead >> END, edge, other >> END, context=Case)


def handed(**options: Any) -> Graph[Any]:
    """A graph with a handoff edge, the options of which are said."""
    return Graph("g", START >> TRIAGE >> END, TRIAGE.hands_off(BILLING, **options), BILLING >> END, context=Case)


def tooled(fn: Callable[..., Any] = get_invoice.fn, **options: Any) -> Graph[Any]:
    """A graph of one agent with one tool, the options of which are said."""
    return small(tool(fn, **over(options, name="get_invoice")))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(small(), small(instructions="Be kind."), id="instructions"),
        pytest.param(small(instructions=speak), small(instructions=speak_otherwise), id="code of instructions"),
        pytest.param(small(instructions=speak), small(instructions="Be kind."), id="code or text"),
        pytest.param(small(), small(get_invoice), id="a tool"),
        pytest.param(small(get_invoice, track_parcel), small(track_parcel, get_invoice), id="order of tools"),
        pytest.param(tooled(), tooled(name="get"), id="name of a tool"),
        pytest.param(tooled(), tooled(description="Looks it up."), id="description of a tool"),
        pytest.param(tooled(), tooled(look_up), id="source of a tool"),
        pytest.param(tooled(version="1"), tooled(version="2"), id="version of a tool"),
        pytest.param(tooled(version="1"), tooled(by_order, version="1"),
                     id="schema of a tool"),
        pytest.param(tooled(), tooled(effect="read"), id="effect"),
        pytest.param(tooled(), tooled(approval=True), id="approval"),
        pytest.param(tooled(), tooled(sequential=True), id="sequential"),
        pytest.param(tooled(), tooled(timeout=1.0), id="timeout of a tool"),
        pytest.param(tooled(), tooled(max_calls=1), id="max_calls"),
        pytest.param(tooled(), tooled(retries=1), id="retries of a tool"),
        pytest.param(tooled(), tooled(on_error="raise"), id="on_error"),
        pytest.param(small(AskUser()), small(AskUser(schema=int)), id="schema of an answer"),
        pytest.param(small(AskUser()), small(AskUser("ask")), id="name of a question"),
        pytest.param(small(AskUser()), small(AskUser(description="Ask.")), id="description of a question"),
        pytest.param(small(), small(output=Report), id="output"),
        pytest.param(small(output=Report), small(output=Closer), id="name of the output"),
        pytest.param(small(output=Report), small(output=Answer), id="schema of the output"),
        pytest.param(small(), small(max_turns=3), id="max_turns"),
        pytest.param(small(), small(max_tool_calls=3), id="max_tool_calls"),
        pytest.param(small(), small(repairs=3), id="repairs"),
        pytest.param(small(), small(max_tokens=3), id="max_tokens"),
        pytest.param(small(), small(retries=1), id="retries"),
        pytest.param(small(), small(decision="json"), id="decision"),
        pytest.param(small(), small(history="full"), id="history"),
        pytest.param(small(history=last(1)), small(history=last(2)), id="length of the history"),
        pytest.param(small(history=newest), small(history=oldest), id="code of the history"),
        pytest.param(small(), small(rights=[]), id="no rights"),
        pytest.param(small(rights=["a", "b"]), small(rights=["a", "c"]), id="rights"),
        pytest.param(small(deny=forbid), small(deny=forbid_more), id="deny"),
        pytest.param(small(), small(kind=Supervisor), id="kind"),
        pytest.param(asked(), asked(history="full"), id="history of a delegate edge"),
        pytest.param(asked(), asked(grant=["get_invoice"]), id="grant"),
        pytest.param(asked(), asked(brief=type("Order", (Brief,), {})), id="brief"),
        pytest.param(handed(), handed(history="summary"), id="history of a handoff edge"),
        pytest.param(member("Bills.", lead=TRIAGE), member("Ships.", lead=TRIAGE), id="what a caller's model reads"),
        pytest.param(
            member("Bills.", lead=TRIAGE, call=False), member("Ships.", lead=TRIAGE, call=False),
            id="what a giver's model reads",
        ),
    ],
)  # fmt: skip
def test_a_change_of_meaning_is_another_fingerprint(one: Graph[Any], other: Graph[Any]) -> None:
    """Whatever an agent may depend on changes it."""
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(small(), small(model=ScriptedModel("hello", native_tools=False)), id="model"),
        pytest.param(small(rights=["a", "b"]), small(rights=["b", "a"]), id="order of rights"),
        pytest.param(asked(grant=["a", "b"]), asked(grant=["b", "a", "b"]), id="order of grants"),
        pytest.param(tooled(version="1"), tooled(look_up, version="1"), id="source behind a version"),
        pytest.param(small(), small(description="Bills."), id="what no model reads"),
        pytest.param(
            member("Bills.", lead=function("f")), member("Ships.", lead=function("f")), id="what only code could read"
        ),
    ],
)
def test_what_changes_nothing_leaves_the_fingerprint(one: Graph[Any], other: Graph[Any]) -> None:
    """The model may be another, and a set has no order."""
    assert fingerprint(one) == fingerprint(other)


def test_a_description_that_a_model_reads_is_meaning() -> None:
    """It is part of the tool by which the model asks; of the same agent alone it is only said."""
    told, untold = (
        [Graph("g", START >> DESK >> END, DESK.delegates(said("a", words), max_hops=1), context=Case) for words in
         ("Bills.", "Ships.")],
        [Graph("g", START >> said("a", words) >> END, context=Case) for words in ("Bills.", "Ships.")],
    )  # fmt: skip

    assert fingerprint(told[0]) != fingerprint(told[1])
    assert fingerprint(untold[0]) == fingerprint(untold[1])
    assert structure(untold[0]) != structure(untold[1])


def test_the_structure_of_an_agent() -> None:
    """It names what defines the agent, with its tools as a model sees them; its model has no part in it."""
    graph = small(tool(get_invoice.fn, version="3"), AskUser(schema=bool), history=last(2), rights=["b", "a"])

    (data,) = structure(graph)["nodes"]

    assert "model" not in data
    assert (data["kind"], data["rights"], data["history"]) == ("agent", ["a", "b"], {"type": "Last", "count": 2})
    assert data["tools"][0] == {
        "name": "get_invoice", "description": "Look an invoice up.", "fn": {"version": "3"}, "effect": "write",
        "approval": False, "sequential": False, "timeout": None, "max_calls": None, "retries": 0, "on_error": "data",
        "parameters": {
            "type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"],
            "additionalProperties": False,
        },
    }  # fmt: skip
    assert data["tools"][1]["answer"] == {"type": "boolean"}


def rich() -> Graph[Any]:
    """A graph with everything in it of which memory or hashes could make an order."""
    payer = agent(
        "payer", get_invoice, track_parcel, APPROVED, AskUser(schema=frozenset[Color]), rights=["refund", "x", "y"],
        deny=forbid, history=newest, output=Report, instructions=speak,
    )  # fmt: skip
    return Graph(
        "rich",
        START >> payer,
        payer.delegates(BILLING, SHIPPING, max_hops=1, history=last(3), grant=["z", "y", "x"]),
        payer.hands_off(TRIAGE, max_hops=1, history=oldest),
        payer >> END,
        TRIAGE >> END,
        context=Case,
    )


def test_every_process_finds_the_same() -> None:
    """Neither the seed of hashes nor memory has a part in it."""
    program = (
        "import json; from tests.test_agent_definition import *;"
        "print(fingerprint(rich()), json.dumps(structure(rich())), [str(p) for p in rich().check()])"
    )

    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(outputs) == 1
    assert isinstance(APPROVED, Tool)


def asks(state: State[Any]) -> bool:
    """Tell whether the question is one."""
    return "?" in state.context.question


@pytest.mark.parametrize("entered", ["by handoff alone", "by a next edge too", "by escalation too"])
def test_a_person_who_gives_control_back_goes_on_nowhere(entered: str) -> None:
    """A next statement of a person whom only handoffs reach is a dead edge; one that can be taken is none."""
    giver, person, after = agent("giver"), Human("person"), agent("after")
    chains: list[Any] = [giver.hands_off(person, max_hops=1), person >> after >> END]
    if entered == "by a next edge too":
        chains.append(START.choose(when(asks, person), default=giver))
    else:
        chains.append(START >> giver)
    graph = Graph(
        "g",
        *chains,
        giver >> END,
        context=Case,
        budget=Budget(model_calls=99),
        escalate=person if entered == "by escalation too" else None,
    )

    found = [problem.where for problem in graph.check() if problem.code == "dead-edge"]

    assert found == ([("person",)] if entered == "by handoff alone" else [])


@pytest.mark.parametrize(
    ("budget", "price", "warned"),
    [
        (Budget(usd="0.5"), None, True),
        (Budget(usd="0.5"), Price(Decimal("0.001"), Decimal("0.002")), False),
        (Budget(usd="0.5", tokens=1000), None, False),
        (Budget(tokens=1000), None, False),
    ],
    ids=["money alone", "with a price", "with tokens", "no money"],
)
def test_money_that_nobody_knows_is_told(budget: Budget, price: Price | None, warned: bool) -> None:
    """A budget of money alone bounds little where no price is known before a call."""
    inner = Graph("inner", START >> Agent("a", model=ScriptedModel(price=price)) >> END, context=Case)
    graph = Graph("g", START >> inner >> END, context=Case, budget=budget)

    found = [problem.where for problem in graph.check() if problem.code == "unpriced-model"]

    assert found == ([("a",)] if warned else [])
