"""A run laid over the picture of its graph, and the tree of a run."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Handoff,
    Join,
    Node,
    Pause,
    Reason,
    Report,
    State,
    Step,
    fork,
    node,
    when,
)
from graphflow.events import (
    AnswerGiven,
    Body,
    EdgeName,
    EdgeTaken,
    EffectStarted,
    Event,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeReentered,
    NodeRetried,
    NodeSkipped,
    NodeStarted,
    Paused,
    Refused,
    RunEnded,
    RunStarted,
    Spent,
)
from graphflow.model.ids import Path, Segment, parse_path
from graphflow.persistence.lines import event_json, read_event
from graphflow.runtime.starting import run
from graphflow.visualize import run_tree, to_dot, to_mermaid, to_svg
from graphflow.visualize.drawing import Drawing, drawing_of
from graphflow.visualize.overlay import Overlay, overlay_of
from graphflow.visualize.text import cells
from tests.support import examples

SOME_EDGE: Final = EdgeName(None, "next", "a")


class Case(Context):
    question: str = ""


async def ask(tokens: int) -> int:
    """What stands for a model."""
    return tokens


def used(tokens: int) -> Budget:
    """What that costs."""
    return Budget(tokens=tokens, usd="0.001")


@node
def boss(state: State[Case]) -> Any:
    """Delegates once, then is done."""
    return "done" if state.turn else Delegate(Call("team", "review"), Call("team", "review again"))


@node
def lead(state: State[Case]) -> Any:
    """Delegates to two workers, of which one fails, and once too often."""
    if state.turn:
        return Report(finding="all read")
    return Delegate(Call("worker", "good"), Call("worker", "bad"), Call("worker", "too much"))


@node(retries=1)
async def worker(state: State[Case], step: Step) -> Any:
    """Asks a model, and fails where the brief says so."""
    await step.effect("ask", ask, 60, cost=Budget(model_calls=1, tokens=100), usage=used)
    if state.brief is not None and state.brief.objective == "bad":
        message = "no such file\n\x1b[2J"
        raise ValueError(message)
    return Report(finding="read")


@node
def lane(state: State[Case]) -> Any:
    """Fails for some items."""
    if state.values[0] % 10 == 3:
        message = f"item {state.values[0]}"
        raise KeyError(message)
    return state.values[0]


@node
def never(state: State[Case]) -> None:
    """Is not reached."""


def items(state: State[Case]) -> range:
    """What the map goes over."""
    return range(30)


def no(state: State[Case]) -> bool:
    """Never holds."""
    return False


def company() -> Graph[Case]:
    """A boss, a team whose worker fails, a map whose lanes fail, and a branch that is not taken."""
    team = Graph("team", START >> lead >> END, lead.delegates(worker, max_hops=2), context=Case)
    begin: Node[Case] = node(name="begin")(never.fn)
    enough, after = Join("enough"), Join("after")
    return Graph(
        "company",
        START >> boss >> begin,
        boss.delegates(team, max_hops=2),
        begin.map(lane, over=items, join=enough, max_items=40, failure="collect"),
        enough >> (node(name="audit")(never.fn), when(no, never)) >> after >> END,
        context=Case,
        budget=Budget(node_runs=200),
        max_depth=2,
    )


@pytest.fixture(name="graph")
def _graph() -> Graph[Case]:
    """The company, its tables made: that loads a library, which no event loop has to wait for."""
    made = company()
    assert made.compiled.stations
    return made


async def events_of(graph: Graph[Case]) -> list[Event]:
    """The events of a run."""
    events: list[Event] = []
    await run(graph, Case(), listeners=[events.append])
    return events


def story(*bodies: Body, seconds: float = 0.0) -> list[Event]:
    """Events with these bodies, one after the other."""
    return [Event("run", seq, seq * seconds, body) for seq, body in enumerate(bodies)]


def at(text: str) -> Path:
    """The path that a text names."""
    return parse_path(text)


def laid_over(graph: Graph[Case], events: Iterable[Event]) -> tuple[Drawing, Overlay]:
    """The drawing of a graph and the run on it."""
    drawing = drawing_of(graph)
    return drawing, overlay_of(drawing, events)


def by_name(drawing: Drawing, tell: Callable[[str], Any]) -> dict[str, Any]:
    """What is told of each node and graph, by its name."""
    drawn = {node.name: node.id for node in drawing.nodes if node.kind not in {"start", "end", "bound"}}
    drawn |= {graph.name: graph.id for graph in drawing.graphs[1:]}
    return {name: tell(place) for name, place in drawn.items()}


# --- overlays ----------------------------------------------------------------------------------------------------


async def test_a_run_is_laid_over_its_picture(graph: Graph[Case]) -> None:
    """Visits, failures, refusals and spending stand at the nodes, and traversals at the edges."""
    drawing, overlay = laid_over(graph, await events_of(graph))

    assert by_name(drawing, overlay.standing) == {
        "boss": "completed", "team": "completed", "lead": "completed", "worker": "failed", "begin": "completed",
        "lane": "failed", "enough": "completed", "audit": "completed", "never": "skipped", "after": "completed",
    }  # fmt: skip
    words = by_name(drawing, overlay.words)
    assert words["team"] == ("×2",)
    assert words["lead"] == ("×2", "2 refused")
    assert words["worker"] == ("×4", "2 failed", "2 retries", "6 model calls", "360 tokens", "$0.006")
    assert words["lane"] == ("×30", "3 failed")
    assert words["never"] == ("1 skipped",)
    taken = {str(edge.name): overlay.edges[edge.id] for edge in drawing.edges if edge.graph == "g0"}
    assert taken["boss -delegate-> team"] == 2
    assert taken["begin -map-> lane"] == 30
    assert taken["enough -fork-> audit"] == 1
    assert taken["enough -fork-> never"] == 0
    assert overlay.summary()[:2] == ("partial", "45 node runs")


async def test_failures_that_a_join_collects_arrive_over_edges(graph: Graph[Case]) -> None:
    """An edge over which a collected failure came to a join was taken; lanes that fail are counted there too."""
    drawing, overlay = laid_over(graph, await events_of(graph))

    taken = {str(edge.name): overlay.edges[edge.id] for edge in drawing.edges}
    assert taken["lane -next-> enough"] == 30
    assert taken["audit -next-> after"] == 1


@node
def fails(state: State[Case]) -> None:
    """Fails always."""
    raise ValueError("no")


def branching(**options: Any) -> Graph[Case]:
    """Two branches, of which one fails, inside a graph that another collects failures around."""
    begin: Node[Case] = node(name="begin")(never.fn)
    fine: Node[Case] = node(name="fine")(never.fn)
    inner = Graph("inner", START >> fork(fails, fine, **options) >> Join("met") >> END, context=Case)
    other: Node[Case] = node(name="other")(never.fn)
    return Graph("outer", START >> begin >> fork(inner, other, failure="collect") >> Join("both") >> END, context=Case)


@pytest.mark.parametrize(
    ("failure", "inside", "outside"), [("collect", 1, 1), ("fail_fast", 0, 1)], ids=["collect", "fail_fast"]
)
async def test_only_collected_failures_arrive(failure: str, inside: int, outside: int) -> None:
    """A failure that ends its fork reaches no join there; it passes outward to the join that collects it."""
    graph = branching(failure=failure)

    drawing, overlay = laid_over(graph, await events_of(graph))

    taken = {str(edge.name): overlay.edges[edge.id] for edge in drawing.edges}
    assert taken["fails -next-> met"] == inside
    assert taken["inner -next-> both"] == outside
    assert taken["other -next-> both"] == 1


async def test_a_failure_that_was_handled_reaches_no_join() -> None:
    """An error edge takes the failure instead."""
    begin: Node[Case] = node(name="begin")(never.fn)
    fine: Node[Case] = node(name="fine")(never.fn)
    met = Join("met")
    graph = Graph(
        "g",
        START >> begin >> fork(fails, lane, failure="collect") >> met >> END,
        fails.on_error(fine, catch=ValueError),
        fine >> met,
        context=Case,
    )

    drawing, overlay = laid_over(graph, await events_of(graph))

    taken = {str(edge.name): overlay.edges[edge.id] for edge in drawing.edges}
    assert taken["fails -next-> met"] == 0
    assert taken["fine -next-> met"] == 1
    assert taken["lane -next-> met"] == 1


@pytest.mark.parametrize("pale", [True, False])
async def test_the_legend_explains_pale_edges(graph: Graph[Case], pale: bool) -> None:
    """What a pale edge means is said where there is one."""
    drawn = graph if pale else plain_graph()

    dot = to_dot(drawn, run=await events_of(drawn))

    assert ("not taken" in dot) == pale


async def test_stored_events_give_the_same_picture(graph: Graph[Case]) -> None:
    """Events that were written as JSON and read back give the same pictures and the same tree."""
    events = await events_of(graph)
    stored = [read_event(event_json(event)) for event in events]

    assert to_dot(graph, run=stored) == to_dot(graph, run=events)
    assert to_mermaid(graph, run=stored) == to_mermaid(graph, run=events)
    assert run_tree(stored) == run_tree(events)


@pytest.mark.may_block
async def test_every_beginning_of_a_run_has_a_picture(graph: Graph[Case]) -> None:
    """A run that still goes on is drawn as far as it is."""
    events = await events_of(graph)

    for length in range(0, len(events), 7):
        drawing, overlay = laid_over(graph, events[:length])
        assert overlay.status == "running"
        assert run_tree(events[:length]).startswith("▸ ")
        assert to_mermaid(graph, run=events[:length]).count("subgraph") == len(drawing.graphs)

    assert "running" in to_svg(graph, run=events[:20])


async def test_a_handoff_of_a_callee_is_found() -> None:
    """A callee that hands off stays beside its caller in the picture, wherever its path leads."""

    @node
    def desk(state: State[Case]) -> Any:
        return "done" if state.turn else Delegate(Call("first", "go"))

    @node
    def first(state: State[Case]) -> Any:
        return Handoff("second")

    @node
    def second(state: State[Case]) -> Any:
        return Report(finding="found")

    graph = Graph(
        "g", START >> desk >> END, desk.delegates(first, max_hops=1), first.hands_off(second, max_hops=1), context=Case
    )

    drawing, overlay = laid_over(graph, await events_of(graph))

    assert set(by_name(drawing, overlay.standing).values()) == {"completed"}
    assert {str(edge.name): overlay.edges[edge.id] for edge in drawing.edges} == {
        "START -next-> desk": 1, "desk -next-> END": 1, "desk -delegate-> first": 1, "first -handoff-> second": 1,
    }  # fmt: skip


async def test_a_run_that_waits_is_drawn_as_waiting() -> None:
    """A node that asked a person waits, in the picture and in the tree."""

    @node
    def asks(state: State[Case]) -> Any:
        return Pause("Pay INV-311?")

    graph: Graph[Case] = Graph("g", START >> asks >> END, context=Case)
    events = await events_of(graph)

    drawing, overlay = laid_over(graph, events)

    assert by_name(drawing, overlay.standing) == {"asks": "waiting"}
    assert by_name(drawing, overlay.words) == {"asks": ("×1", "waiting")}
    assert "? Pay INV-311?" in run_tree(events)


def plain_graph() -> Graph[Case]:
    """START >> a >> END."""
    a: Node[Case] = node(name="a")(never.fn)
    return Graph("g", START >> a >> END, context=Case)


BEGUN: Final = NodeStarted(at("a"), SOME_EDGE)
WHY: Final = Reason(code="timeout", text="took too long")


@pytest.mark.parametrize(
    ("bodies", "standing", "words"),
    [
        pytest.param([], "idle", (), id="idle"),
        pytest.param([BEGUN], "running", ("×1", "running"), id="running"),
        pytest.param([BEGUN, RunEnded("exhausted", WHY)], "open", ("×1", "running"), id="open"),
        pytest.param([BEGUN, Paused(at("a"), "q", "?"), RunEnded("waiting")], "waiting", ("×1", "waiting"), id="waits"),
        pytest.param(
            [BEGUN, Paused(at("a"), "q", "?"), RunEnded("waiting"), AnswerGiven("q", 1), NodeReentered(at("a"), 1)],
            "running",
            ("×1", "running"),
            id="answered",
        ),
        pytest.param([BEGUN, NodeEnded(at("a"), "cancelled")], "cancelled", ("×1", "cancelled"), id="cancelled"),
        pytest.param([BEGUN, NodeEnded(at("a"), "timed_out", WHY)], "failed", ("×1", "timed out"), id="timed out"),
        pytest.param([BEGUN, NodeEnded(at("a"), "completed")], "completed", ("×1",), id="completed"),
        pytest.param([NodeSkipped(at("a"), WHY)], "skipped", ("1 skipped",), id="skipped"),
        pytest.param([Refused(at("a"), "max_visits", 1, "a visit")], "refused", ("1 refused",), id="refused"),
        pytest.param(
            [
                BEGUN,
                NodeEnded(at("a"), "failed", WHY),
                NodeStarted(at("a:2"), SOME_EDGE),
                NodeRetried(at("a:2"), 1, WHY),
            ],
            "failed",
            ("×2", "1 failed", "1 running", "1 retry"),
            id="two visits",
        ),
        pytest.param([FrameOpened(at("a"), "a", 0, SOME_EDGE), FrameClosed(at("a"))], "completed", ("×1",), id="frame"),
        pytest.param(
            [FrameOpened(at("a"), "a", 0, SOME_EDGE), FrameClosed(at("a"), Report.failed(WHY))],
            "failed",
            ("×1", "failed"),
            id="failed frame",
        ),
        pytest.param(
            [FrameOpened(at("a"), "a", 0, SOME_EDGE), FrameClosed(at("a"), {"status": "failed"})],
            "failed",
            ("×1", "failed"),
            id="failed frame from JSON",
        ),
        pytest.param(
            [NodeStarted(at("gone/a"), SOME_EDGE), EdgeTaken(at("gone/a"), SOME_EDGE, 1)], "idle", (), id="gone"
        ),
    ],
)
def test_how_a_node_stands(bodies: list[Body], standing: str, words: tuple[str, ...]) -> None:
    """A node's state is the most urgent of its visits; it is shown in every format."""
    graph = plain_graph()

    drawing, overlay = laid_over(graph, story(*bodies))

    assert by_name(drawing, overlay.standing) == {"a": standing}
    assert by_name(drawing, overlay.words) == {"a": words}
    assert f"is_{standing}" in to_mermaid(graph, run=story(*bodies))
    assert ("dashed" in to_dot(graph, run=story(*bodies))) == (standing in {"cancelled", "skipped", "refused"})
    assert run_tree(story(*bodies))


def test_a_cancelled_graph_has_a_broken_border() -> None:
    """The state of a nested graph is told by its border."""
    graph = Graph("outer", START >> plain_graph() >> END, context=Case)
    events = story(NodeStarted(at("g"), SOME_EDGE), NodeEnded(at("g"), "cancelled"))

    dot = to_dot(graph, run=events)

    assert 'style="rounded,filled,dashed"' in dot


# --- the tree ----------------------------------------------------------------------------------------------------


TREE: Final = """\
~ company  partial · 45 node runs · 6 model calls · 360 tokens · $0.006
├─ ✓ boss  2 turns · 6 model calls · 360 tokens · $0.006
│  ├─ ✓ team  3 model calls · 180 tokens · $0.003
│  │  └─ ✓ lead  2 turns · 3 model calls · 180 tokens · $0.003
│  │     ├─ ! refused by max_hops (limit 2):
│  │     ├─ ✓ worker  1 model call · 60 tokens · $0.001
│  │     └─ ✗ worker  failed · 1 retry · 2 model calls · 120 tokens · $0.002
│  │        └─ ! ValueError: no such file\\n\\x1b[2J
│  └─ ✓ team  3 model calls · 180 tokens · $0.003
│     └─ ✓ lead  2 turns · 3 model calls · 180 tokens · $0.003
│        ├─ ! refused by max_hops (limit 2):
│        ├─ ✓ worker  1 model call · 60 tokens · $0.001
│        └─ ✗ worker  failed · 1 retry · 2 model calls · 120 tokens · $0.002
│           └─ ! ValueError: no such file\\n\\x1b[2J
├─ ✓ begin
├─ ✗ lane ×30  27 completed · 3 failed
│  ├─ ✗ lane[3]  failed
│  │  └─ ! KeyError: 'item 3'
│  ├─ ✗ lane[13]  failed
│  │  └─ ! KeyError: 'item 13'
│  └─ ✗ lane[23]  failed
│     └─ ! KeyError: 'item 23'
├─ ✓ enough
├─ – never  skipped
│  └─ – not_taken:
├─ ✓ audit
└─ ✓ after"""
"""How each line of the company's tree begins, when no time passes."""


async def test_the_tree_of_a_run(graph: Graph[Case]) -> None:
    """The tree shows who works for whom; a large fan-out is a count with what is not in order."""
    timeless = [Event(event.run, event.seq, 0.0, event.body) for event in await events_of(graph)]

    lines = run_tree(timeless).splitlines()

    expected = TREE.splitlines()
    assert [line[: len(begins)] for line, begins in zip(lines, expected, strict=True)] == expected


def test_a_row_tells_visit_lane_turns_and_time() -> None:
    """Each row says which visit it is, how many turns it had, and how long it took."""
    events = story(
        RunStarted("r", "g", "", {}, Budget(), None, hooked=False, wall=0.0),
        NodeStarted(at("a:2~4.7"), SOME_EDGE),
        EffectStarted(at("a:2~4.7"), 0, "k", "ask", Budget(model_calls=1, tool_calls=2, tokens=50)),
        Spent(at("a:2~4.7"), Budget(tokens=40)),
        NodeReentered(at("a:2~4.7"), 2),
        NodeEnded(at("a:2~4.7"), "completed"),
        NodeSkipped(at("b"), Reason(code="not_taken", text="the condition 'x' did not hold")),
        NodeSkipped(at("a:2~4.7"), Reason(code="not_taken", text="said of the same path")),
        RunEnded("completed"),
        seconds=0.5,
    )

    assert run_tree(events).splitlines() == [
        "✓ g  completed · 1 node run · 1 model call · 2 tool calls · 40 tokens · 4 s",
        "├─ ✓ a[7] (visit 2)  3 turns · 1 model call · 2 tool calls · 40 tokens · 2 s",
        "└─ – b  skipped",
        "   └─ – not_taken: the condition 'x' did not hold",
    ]


def test_very_many_failures_are_counted() -> None:
    """Of very many siblings that failed only the first are listed; equal refusals are one line."""
    bodies: list[Body] = []
    for number in range(40):
        path = (Segment("lane", 1, (number,)),)
        bodies += [NodeStarted(path, SOME_EDGE), NodeEnded(path, "failed", WHY)]
    bodies += [Refused((), "node_runs", 40, "a visit")] * 3

    lines = run_tree(story(*bodies)).splitlines()

    assert lines[1] == "├─ ! refused by node_runs (limit 40): a visit  ×3"
    assert lines[2] == "└─ ✗ lane ×40  40 failed"
    assert lines[-1] == "   └─ and 28 more"
    assert len(lines) == 3 + 2 * 12 + 1


def test_a_stopped_run_shows_what_is_open() -> None:
    """What still ran when the run stopped is open until the run is resumed."""
    tree = run_tree(story(BEGUN, Refused(at("a"), "tokens", None, "a call"), RunEnded("exhausted", WHY)))

    assert tree.splitlines() == [
        "✗ run  exhausted · 1 node run",
        "├─ ! timeout: took too long",
        "└─ ‖ a  open",
        "   └─ ! refused by tokens: a call",
    ]


def test_the_tree_in_ascii() -> None:
    """With `ascii` there is no other character, whatever the names are."""
    path = (Segment("é×\u202e\n"),)

    tree = run_tree(story(NodeStarted(path, SOME_EDGE), NodeEnded(path, "failed", WHY), RunEnded("failed")), ascii=True)

    assert tree.splitlines() == [
        "[failed] run  1 node run",
        "`- [failed] \\xe9x\\u202e\\n",
        "   `- ! timeout: took too long",
    ]


def test_a_path_of_any_length_has_a_tree() -> None:
    """Three thousand delegations below one another are drawn, cut at the width."""
    path = tuple(Segment("a", 1, (), (0, 0)) for _ in range(3000))

    events = story(NodeStarted(path, SOME_EDGE))

    lines = run_tree(events, width=60).splitlines()

    assert len(lines) == 3001
    assert max(map(cells, lines)) == 60
    assert to_dot(plain_graph(), run=events).count("×1") == 1


@st.composite
def any_path(draw: st.DrawFn) -> Path:
    """A path of any names."""
    lanes = st.lists(st.integers(0, 20), max_size=2)
    return tuple(
        Segment(draw(st.text(min_size=1)), draw(st.integers(1, 3)), tuple(draw(lanes)))
        for _ in range(draw(st.integers(0, 4)))
    )


@st.composite
def any_body(draw: st.DrawFn) -> Body:
    """An event of any names and texts."""
    path, text = draw(any_path()), draw(st.text(min_size=1))
    bodies: list[Body] = [
        NodeStarted(path, SOME_EDGE),
        NodeEnded(path, "failed", Reason(code="failed", text=text, error_type=text)),
        Paused(path, "q", text),
        Refused(path, text, 1, text),
        RunStarted("r", text, "", {}, Budget(), None, hooked=False, wall=0.0),
    ]
    return draw(st.sampled_from(bodies))


@given(st.lists(any_body(), max_size=30), st.integers(20, 120), st.booleans())
@settings(max_examples=examples(300))
def test_no_name_moves_the_cursor(bodies: list[Body], width: int, ascii_only: bool) -> None:
    """Whatever names and texts hold, each line of a tree has only visible characters and fits the width."""
    tree = run_tree(story(*bodies), ascii=ascii_only, width=width)

    assert tree.encode()
    assert tree.isascii() or not ascii_only
    for line in tree.split("\n"):
        assert cells(line) <= width
        assert not [char for char in line if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or char in "\u202e\u2028"]
