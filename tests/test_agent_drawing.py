"""Pictures of agents, and what a run of theirs shows: in the picture, and turn by turn in the tree."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import END, START, Budget, Context, Graph, Human, Join, Node, Report, State, Step, node, run, start
from graphflow.events import (
    AnswerGiven,
    Body,
    Detected,
    EdgeName,
    EffectFinished,
    EffectRequested,
    EffectStarted,
    Event,
    Failure,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeStarted,
    Paused,
    RunEnded,
)
from graphflow.model.ids import parse_path
from graphflow.model.thread import Thread, ToolCall, last
from graphflow.nodes.agent import Agent, Supervisor
from graphflow.nodes.client import ModelReply
from graphflow.nodes.tools import AskUser, tool
from graphflow.persistence.lines import event_json, read_event
from graphflow.testing import ScriptedModel, call
from graphflow.visualize import run_tree, to_dot, to_mermaid, to_svg, to_term
from graphflow.visualize.drawing import drawing_of
from graphflow.visualize.facts import NAMES
from graphflow.visualize.overlay import overlay_of
from graphflow.visualize.style import GROUNDS, NODE_LOOKS
from graphflow.visualize.talk import MOST_CALLS, MOST_TURNS
from graphflow.visualize.text import cells
from tests.support import examples
from tests.test_agent_definition import programs
from tests.test_visualize import contrast, texts

MODEL: Final = ScriptedModel()


class Case(Context):
    question: str = ""
    reports: tuple[Report, ...] = ()


class Verdict(Report):
    """A report of one's own."""


@tool
def get_invoice(number: str) -> str:
    """Look an invoice up."""
    return f"{number}: paid twice"


@tool
def broken(order: str) -> str:
    """Track a parcel."""
    raise ValueError(order)


REFUND: Final = tool(get_invoice.fn, name="refund", effect="irreversible", approval=True)


def newest(thread: Thread) -> Thread:
    """A history policy."""
    return thread[-1:]


def forbid(name: str, arguments: Mapping[str, Any]) -> str | None:
    """A rule."""
    return None


def body(state: State[Case]) -> None:
    """What a node that is no agent would do."""


def fn(name: str) -> Node[Case]:
    """A node that is no agent."""
    return node(name=name)(body)


def agent(name: str = "x", *tools: Any, kind: type[Agent] = Agent, **options: Any) -> Agent:
    """An agent that is never run."""
    return kind(name, model=MODEL, tools=tools, **options)


def alone(one: Node[Any]) -> Graph[Case]:
    """A graph of one node."""
    return Graph("g", START >> one >> END, context=Case)


def facts_of(one: Node[Any]) -> str:
    """What is written on a node below its name."""
    (drawn,) = (drawn for drawn in drawing_of(alone(one)).nodes if drawn.name == one.name)
    return " · ".join(drawn.facts)


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "facts"),
    [
        pytest.param(agent(), "agent · ≤ 10 turns", id="agent"),
        pytest.param(agent(kind=Supervisor, max_turns=1), "supervisor · ≤ 1 turn", id="supervisor"),
        pytest.param(agent("x", get_invoice), "agent · ≤ 10 turns · tool get_invoice · ≤ 32 tool calls", id="a tool"),
        pytest.param(
            agent("x", get_invoice, REFUND, broken, AskUser(), max_tool_calls=3),
            "agent · ≤ 10 turns · tools get_invoice, refund (approval), broken +1 · ≤ 3 tool calls",
            id="tools",
        ),
        pytest.param(agent("x", AskUser()), "agent · ≤ 10 turns · tool ask_user (a person)", id="a person"),
        pytest.param(agent(output=Verdict), "agent · ≤ 10 turns · gives Verdict", id="contract"),
        pytest.param(
            agent(output=tuple[int, ...]), "agent · ≤ 10 turns · gives tuple[int, ...]", id="contract of a generic"
        ),
        pytest.param(agent(output=int | None), "agent · ≤ 10 turns · gives int | None", id="contract of a union"),
        pytest.param(agent(history="full"), "agent · ≤ 10 turns · history full", id="history"),
        pytest.param(agent(history=last(3)), "agent · ≤ 10 turns · history last 3", id="a part of the history"),
        pytest.param(agent(history=newest), "agent · ≤ 10 turns · history newest", id="history by a function"),
        pytest.param(agent(rights=[]), "agent · ≤ 10 turns · no rights", id="no rights"),
        pytest.param(agent(rights=["b", "a"]), "agent · ≤ 10 turns · rights a, b", id="rights"),
        pytest.param(agent(deny=forbid), "agent · ≤ 10 turns · denies some calls", id="deny"),
        pytest.param(
            agent("x", tool(get_invoice.fn, effect="irreversible"), retries=2, into="reports", gate=True),
            "agent · 2 retries · ≤ 10 turns · tool get_invoice · ≤ 32 tool calls · gate · irreversible · into reports",
            id="what any node may have",
        ),
    ],
)
def test_facts_of_an_agent(one: Agent, facts: str) -> None:
    """An agent says its bounds, what it may use and what it answers with; the usual is not said."""
    assert facts_of(one) == facts


@given(st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), min_size=1, max_size=40, unique=True))
@settings(max_examples=examples(200))
def test_any_number_of_tools_is_one_short_phrase(names: list[str]) -> None:
    """The first tools are named, the others counted, so that a picture stays small."""
    one = agent("x", *(tool(get_invoice.fn, name=name) for name in names))

    (phrase,) = (fact for fact in facts_of(one).split(" · ") if fact.startswith("tool"))

    listed, _, more = phrase.partition(" ")[2].partition(" +")
    assert len(listed.split(", ")) + int(more or 0) == len(names)
    assert len(listed) <= NAMES


def connected(lead: Agent, **options: Any) -> Graph[Case]:
    """An agent with a callee and two it can hand over to."""
    member, peer, boss = fn("member"), fn("peer"), Human("boss")
    history = options.get("history", "note")
    return Graph(
        "g",
        START >> lead >> END,
        lead.delegates(member, max_hops=1, **options),
        lead.hands_off(peer, boss, max_hops=2, history=history),
        peer >> END,
        context=Case,
    )


@pytest.mark.parametrize(
    ("options", "delegate", "handoff"),
    [
        pytest.param({}, "≤ 1 hop", "≤ 2 hops", id="the usual"),
        pytest.param({"history": "full"}, "≤ 1 hop · history full", "≤ 2 hops · history full", id="full"),
        pytest.param({"history": last(2)}, "≤ 1 hop · history last 2", "≤ 2 hops · history last 2", id="last"),
        pytest.param({"history": "summary"}, "≤ 1 hop · history summary", "≤ 2 hops · history summary", id="summary"),
        pytest.param(
            {"grant": ("write", "read", "write"), "report": Verdict},
            "≤ 1 hop · gets Verdict · grants read, write",
            "≤ 2 hops",
            id="grants",
        ),
    ],
)
def test_facts_of_the_edges_of_agents(options: dict[str, Any], delegate: str, handoff: str) -> None:
    """An edge says what of the thread crosses it, and what it grants; the way back from a person says nothing."""
    drawn = {str(edge.name): " · ".join(edge.facts) for edge in drawing_of(connected(agent(), **options)).edges}

    assert drawn["x -delegate-> member"] == delegate
    assert drawn["x -handoff-> peer"] == drawn["x -handoff-> boss"] == handoff
    assert drawn["boss -handoff-> x"] == ""


# --- told apart ------------------------------------------------------------------------------------------------------


def mixed() -> Graph[Case]:
    """A graph with a node of each kind."""
    lead, member, plain, boss, met = (
        agent("lead", kind=Supervisor),
        agent("member"),
        fn("plain"),
        Human("boss"),
        Join("met"),
    )
    inner = Graph("inner", START >> fn("inside") >> END, context=Case)
    return Graph(
        "mixed", START >> lead >> (plain, boss, inner) >> met >> END, lead.delegates(member, max_hops=1), context=Case
    )


def test_kinds_of_nodes_are_told_apart() -> None:
    """Shape, colour and a word tell them apart in DOT and SVG, brackets and the word in Mermaid."""
    dot, mermaid, image = to_dot(mixed()), to_mermaid(mixed()), to_svg(mixed())

    looks = {kind: NODE_LOOKS[kind] for kind in ("function", "agent", "supervisor", "human", "join")}
    assert len({(look.fill, look.line) for look in looks.values()}) == len(looks)
    assert len({look.mermaid for look in looks.values()}) == len(looks)
    for look in looks.values():
        assert look.line in dot
        assert f'{look.mermaid[0]}"' in mermaid
    assert re.search(r'peripheries=2 .*fillcolor="#dbeafe"', dot)
    lines = texts(image)
    assert {"supervisor · ≤ 10 turns", "agent · ≤ 10 turns", "human", "join"} <= set(lines)


def test_the_legend_explains_kinds_where_there_are_agents() -> None:
    """Each kind that occurs stands in it; a picture without agents needs no such line."""
    signs = [look.glyph for look in NODE_LOOKS.values()]

    lines = [line for line in texts(to_svg(mixed())) if line]

    explained = [(one, word) for one, word in itertools.pairwise(lines) if one in signs]
    assert explained == [
        ("□", "function"), ("■", "agent"), ("▣", "supervisor"), ("▲", "human"), ("◆", "join")
    ]  # fmt: skip
    assert "function" not in "".join(texts(to_svg(alone(fn("a")))))
    for look in NODE_LOOKS.values():
        assert look.fill == GROUNDS[0] or contrast(look.line, GROUNDS[0]) >= 3


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_terminal_tells_kinds_apart(ascii_only: bool) -> None:
    """A word below the name says what each node is, and its bounds stand on lines of their own."""
    drawn = to_term(mixed(), ascii=ascii_only)

    assert not [word for word in ("supervisor", "agent", "human", "join", "graph") if word not in drawn]
    assert "turns" in drawn
    assert drawn.isascii() == ascii_only


@pytest.mark.parametrize("name", sorted(programs()))
def test_teams_as_people_write_them_are_drawn(name: str) -> None:
    """Every node of them stands in every format, with all its problems."""
    graph = programs()[name]
    problems = graph.check()
    names = {drawn.name for drawn in drawing_of(graph).nodes if drawn.kind not in {"start", "end", "bound"}}

    image, term = to_svg(graph, problems=problems), to_term(graph)

    assert names <= set(texts(image))
    assert not [one for one in names if one not in term]
    assert {f"! {problem.code}" for problem in problems} <= {line.strip() for line in texts(image)}
    assert "has_problem" in to_mermaid(graph, problems=problems)


def test_pictures_hold_nothing_that_is_secret() -> None:
    """Instructions, models, rules and the functions of tools stand in no picture."""
    secret = "sk-4711-do-not-show"

    class Keyed(ScriptedModel):
        def __repr__(self) -> str:
            return secret

    one = Agent("x", model=Keyed(), instructions=f"Use {secret}.", tools=[tool(lambda: secret, name="t")])
    graph = alone(one)

    assert not [text for text in (to_dot(graph), to_mermaid(graph), to_svg(graph), to_term(graph)) if secret in text]


# --- turn by turn ----------------------------------------------------------------------------------------------------

EDGE: Final = EdgeName(None, "next", "a")
A: Final = parse_path("a")
WRONG: Final = Failure("builtins.ValueError", "no")


def asks(turn: int) -> EffectStarted:
    """The model is asked."""
    return EffectStarted(A, turn, "model", "model", Budget(model_calls=1, tokens=10))


def replies(turn: int, *names: str) -> EffectFinished:
    """The model answers, and calls tools of these names."""
    return EffectFinished(A, turn, 0, "model", ModelReply("", tuple(ToolCall(name) for name in names)))


def runs(turn: int, key: str, name: str) -> EffectStarted:
    """A tool runs."""
    return EffectStarted(A, turn, key, name, Budget(tool_calls=1))


def ends(turn: int, key: str, failure: Failure | None = None) -> EffectFinished:
    """A tool is done."""
    return EffectFinished(A, turn, 0, key, "result", failure)


def reports(place: str, report: Any) -> list[Body]:
    """Somebody of the team works and reports."""
    path = parse_path(f"a/{place}")
    edge = EdgeName("a", "delegate", path[-1].name)
    return [
        FrameOpened(path, None, 1, edge), NodeStarted(path, edge), NodeEnded(path, "completed"),
        FrameClosed(path, report),
    ]  # fmt: skip


def story(*bodies: Body) -> list[Event]:
    """Events with these bodies, one after the other."""
    return [Event("run", seq, 0.0, one) for seq, one in enumerate(bodies)]


def turns(events: Sequence[Event], **options: Any) -> list[str]:
    """The lines of a tree that tell of turns."""
    return [line.partition("· ")[2] for line in run_tree(events, **options).splitlines() if "─ · " in line]


BEGUN: Final = NodeStarted(A, EDGE)
DONE: Final = NodeEnded(A, "completed")


@pytest.mark.parametrize(
    ("bodies", "lines"),
    [
        pytest.param([asks(0), replies(0), DONE], [], id="an answer alone says nothing"),
        pytest.param([asks(0)], ["turn 0: asks its model"], id="asking"),
        pytest.param([asks(0), RunEnded("exhausted")], [], id="stopped while asking"),
        pytest.param(
            [asks(0), replies(0, "t"), runs(0, "0", "t"), ends(0, "0"), asks(1), replies(1), DONE],
            ["turn 0: t(…) ✓"],
            id="a tool",
        ),
        pytest.param([asks(0), replies(0, "t"), runs(0, "0", "t")], ["turn 0: t(…) ▸"], id="a tool that runs"),
        pytest.param(
            [asks(0), replies(0, "t"), runs(0, "0", "t"), ends(0, "0", WRONG)], ["turn 0: t(…) ✗"], id="a failed tool"
        ),
        pytest.param(
            [
                asks(0), replies(0, "t"), runs(0, "0", "t"), ends(0, "0", WRONG), runs(0, "0.1", "t"), ends(0, "0.1"),
            ],
            ["turn 0: t(…) ✓"],
            id="a tool that is tried again",
        ),
        pytest.param(
            [
                asks(0), replies(0, "ask_b", "t", "ask_c"), runs(0, "1", "t"), *reports("c@0.1", Report(finding="x")),
                *reports("b@0.0", {"status": "failed"}), ends(0, "1"),
            ],
            ["turn 0: ask_b → failed, t(…) ✓, ask_c → done"],
            id="a team, in the order of the calls",
        ),
        pytest.param(
            [asks(0), replies(0, "ask_b", "ask_b"), *reports("b@0.0", Report(finding="x")), DONE],
            ["turn 0: ask_b → done, ask_b"],
            id="a call that was refused",
        ),
        pytest.param(
            [asks(0), replies(0, "ask_a_b", "ask_a_b_2"), *reports("a b@0.0", None), *reports("a.b@0.1", None)],
            ["turn 0: ask_a_b → completed, ask_a_b_2 → completed"],
            id="names that a tool cannot have, and no report",
        ),
        pytest.param(
            [asks(0), replies(0), asks(1), replies(1), DONE], ["turn 0: its answer was sent back"], id="sent back"
        ),
        pytest.param(
            [asks(0), EffectFinished(A, 0, 0, "model", None, WRONG), NodeEnded(A, "failed")],
            ["turn 0: its model failed: ValueError"],
            id="a model that fails",
        ),
        pytest.param(
            [asks(0), EffectFinished(A, 0, 0, "model", {"text": "{}", "calls": []}), runs(0, "0", "t"), ends(0, "0"),
             *reports("b@0.0", Report(finding="x"))],
            ["turn 0: t(…) ✓, ask_b → done"],
            id="calls that the reply does not list",
        ),
        pytest.param(
            [asks(0), EffectFinished(A, 0, 0, "model", {"calls": [{"name": "transfer_to_b"}, 7]})],
            ["turn 0: transfer_to_b, None"],
            id="a reply that was read back",
        ),
        pytest.param([asks(0), EffectFinished(A, 0, 0, "model", 7), DONE], [], id="a reply that is none"),
        pytest.param([ends(0, "0"), EffectFinished(parse_path("b/c"), 0, 0, "model")], [], id="no beginning"),
        pytest.param([asks(0), ends(3, "model"), ends(0, "odd"), ends(0, "9"), runs(0, "odd", "t"), DONE], [], id="?"),
        pytest.param(
            [
                EffectRequested(A, 0, 0, "model", "model", "", None), asks(0), ends(0, "model"),
                EffectRequested(A, 0, 0, "0", "t", "", None), runs(0, "0", "t"), ends(0, "0"),
            ],
            [],
            id="a function whose effect is called so",
        ),
    ],
)  # fmt: skip
def test_the_tree_tells_what_an_agent_called(bodies: list[Body], lines: list[str]) -> None:
    """Each turn in which an agent did more than to answer is a line below it; read back it is the same."""
    events = story(BEGUN, *bodies)

    stored = [read_event(event_json(event)) for event in events]

    assert turns(events) == lines
    assert run_tree(stored) == run_tree(events)


def test_very_many_turns_and_calls_are_counted() -> None:
    """Of many calls, and of many turns, the first are told."""
    names = [f"t{number}" for number in range(MOST_CALLS + 2)]
    bodies = [one for turn in range(MOST_TURNS + 3) for one in (asks(turn), replies(turn, *names))]

    lines = turns(story(BEGUN, *bodies))

    assert len(lines) == MOST_TURNS + 1
    assert lines[0] == "turn 0: t0, t1, t2, t3, t4, t5, +2"
    assert lines[-1] == "and 3 more turns"


def test_a_detector_speaks_in_the_tree() -> None:
    """What a detector saw stands at the agent, once with its number."""
    seen = Detected(A, "ping_pong", "a and b hand over to each other", "warn")

    tree = run_tree(story(BEGUN, seen, seen))

    assert "! ping_pong: a and b hand over to each other  ×2" in tree


def test_who_was_answered_goes_on() -> None:
    """An agent waits until the last of its questions is answered; no other event says that it goes on."""
    events = story(
        BEGUN, Paused(A, "q1", "One?"), Paused(A, "q2", "Two?"), RunEnded("waiting"), AnswerGiven("q1", 1),
        AnswerGiven("q2", 2), AnswerGiven("gone", 3),
    )  # fmt: skip
    drawing = drawing_of(alone(agent("a")))
    (place,) = (drawn.id for drawn in drawing.nodes if drawn.name == "a")

    standings = [overlay_of(drawing, events[:length]).standing(place) for length in (4, 5, 6, 7)]

    assert standings == ["waiting", "waiting", "running", "running"]
    assert "? Two?" in run_tree(events[:5])
    assert run_tree(events).splitlines()[1] == "└─ ▸ a  running"


@given(st.lists(st.text(max_size=60), max_size=9), st.integers(20, 120), st.booleans())
@settings(max_examples=examples(300))
def test_no_name_that_a_model_writes_moves_the_cursor(names: list[str], width: int, ascii_only: bool) -> None:
    """Whatever a model calls, each line has only visible characters and fits the width."""
    events = story(BEGUN, asks(0), replies(0, *names), *[runs(0, str(i), name) for i, name in enumerate(names[::2])])

    tree = run_tree(events, ascii=ascii_only, width=width)

    assert tree.encode()
    assert tree.isascii() or not ascii_only
    for line in tree.split("\n"):
        assert cells(line) <= width
        assert not [char for char in line if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or char in "\u202e\u2028"]


# --- real runs -------------------------------------------------------------------------------------------------------


def desk(**scripts: Any) -> Graph[Case]:
    """A supervisor with two agents, on a script for each."""
    model = ScriptedModel(scripts)
    billing = Agent("billing", model=model, tools=[get_invoice], output=Report, description="Knows invoices.")
    shipping = Agent("shipping", model=model, tools=[broken], output=Report, description="Knows parcels.")
    lead = Supervisor("desk", model=model, tools=[AskUser()])
    return Graph(
        "support",
        START >> lead >> END,
        lead.delegates(billing, shipping, max_hops=1),
        context=Case,
        budget=Budget(model_calls=20),
        max_depth=1,
    )


TREE: Final = """\
✓ support  completed
└─ ✓ desk  8 model calls · 2 tool calls
   ├─ ! refused by max_hops (limit 1)
   ├─ · turn 0: ask_billing → done, ask_shipping → partial
   ├─ · turn 1: ask_billing, no_such_tool
   ├─ ✓ billing  2 model calls · 1 tool call
   │  └─ · turn 0: get_invoice(…) ✓
   └─ ✓ shipping  3 model calls · 1 tool call
      ├─ · turn 0: broken(…) ✗
      └─ · turn 1: its answer was sent back"""
"""How each line of the tree begins, but for the status of the run."""


async def test_the_tree_of_a_real_run() -> None:
    """Tools, delegations, refusals and repairs of agents stand where they happened; stored events tell the same."""
    graph = desk(
        desk=[
            [call("ask_billing", objective="b"), call("ask_shipping", objective="s")],
            [call("ask_billing", objective="again"), call("no_such_tool")],
            "Paid twice.",
        ],
        billing=[call("get_invoice", number="INV-311"), Report(finding="paid twice")],
        shipping=[call("broken", order="A-7"), "{", "unknown"],
    )
    events: list[Event] = []

    await run(graph, Case(question="?"), listeners=[events.append])

    timeless = [Event(event.run, event.seq, 0.0, event.body) for event in events]
    lines, expected = run_tree(timeless).splitlines()[1:], TREE.splitlines()[1:]
    assert [line[: len(begins)] for line, begins in zip(lines, expected, strict=True)] == expected
    assert run_tree([read_event(event_json(event)) for event in timeless]) == run_tree(timeless)


async def test_a_picture_of_a_real_run() -> None:
    """What agents spend stands at each of them."""
    graph = desk(
        desk=[call("ask_billing", objective="b"), "Paid twice."],
        billing=[call("get_invoice", number="INV-311"), Report(finding="paid twice")],
    )
    events: list[Event] = []

    await run(graph, Case(question="?"), listeners=[events.append])

    drawing = drawing_of(graph)
    overlay = overlay_of(drawing, events)
    words = {
        drawn.name: overlay.words(drawn.id)[:3] for drawn in drawing.nodes if drawn.kind in {"agent", "supervisor"}
    }
    assert words["billing"] == ("×1", "2 model calls", "1 tool call")
    assert words["desk"][:2] == ("×1", "2 model calls")
    assert words["shipping"] == ()


async def test_an_agent_that_asks_a_person_waits_and_goes_on() -> None:
    """Its question stands in the tree as long as it is open."""
    graph = desk(desk=[call("ask_user", question="Which invoice?"), "Paid twice."])
    events: list[Event] = []

    async with start(graph, Case(question="?"), listeners=[events.append]) as handle:
        waiting = await handle.result()
        before = run_tree(events)
        handle.answer(waiting.questions[0].id, "INV-311")
        done = await handle.result()

    assert (waiting.status, done.output) == ("waiting", "Paid twice.")
    assert "? Which invoice?" in before
    assert "Which invoice?" not in run_tree(events)
    assert turns(events) == ["turn 0: ask_user"]


async def test_a_function_has_no_turns_in_the_tree() -> None:
    """An effect of a function stays what it was, whatever it is called."""

    @node
    async def asker(state: State[Case], step: Step) -> str:
        return await step.effect("model", str, 1, key="model")

    events: list[Event] = []

    await run(alone(asker), Case(), listeners=[events.append])

    assert turns(events) == []
