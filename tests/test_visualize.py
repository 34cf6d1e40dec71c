"""Pictures of a definition: DOT, Mermaid, SVG and the terminal, for any name, the same for equal graphs."""

import functools
import itertools
import os
import random
import re
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    ANY,
    END,
    START,
    STRICT,
    Brief,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Node,
    Report,
    State,
    append,
    fork,
    node,
    on,
    quorum,
    when,
)
from graphflow.errors import GraphflowError, MissingExtra, UsageError
from graphflow.visualize import draw, svg, to_dot, to_mermaid, to_svg, to_term
from graphflow.visualize.drawing import EDGE_KINDS, MOST_PROBLEMS, drawing_of
from graphflow.visualize.facts import budget_words
from graphflow.visualize.style import (
    EDGE_LOOKS,
    GROUNDS,
    INK,
    NODE_LOOKS,
    NOT_TAKEN,
    SOFT,
    STANDING_LOOKS,
)
from graphflow.visualize.text import cells, clip, shown, visible, wrap
from tests.support import ROOT, examples

SVG: Final = "{http://www.w3.org/2000/svg}"


class Case(Context):
    question: str = ""
    reports: Annotated[tuple[Report, ...], append] = ()


class Verdict(Report):
    pass


class Order(Brief):
    pass


def body(state: State[Case]) -> None:
    """What every node here would do."""


def more(state: State[Case]) -> bool:
    """The condition of some edges."""
    return False  # pragma: no cover - drawn, never asked


def items(state: State[Case]) -> tuple[int, ...]:
    """What some maps go over."""
    return ()  # pragma: no cover - drawn, never asked


def fn(name: str, **options: Any) -> Node[Case]:
    """A function node of any name."""
    return node(name=name, **options)(body)


def chain(*names: str) -> Graph[Case]:
    """A graph whose nodes follow one another."""
    nodes = [fn(name) for name in names]
    links = [before >> after for before, after in itertools.pairwise(nodes)]
    return Graph("chain", START >> nodes[0], *links, nodes[-1] >> END, context=Case)


def four_levels() -> Graph[Case]:
    """Supervisors of supervisors of supervisors, with every kind of edge."""
    read, check, collected, summarise = fn("read files"), fn("check"), Join("collected"), fn("summarise")
    readers = Graph(
        "readers",
        START >> read,
        read.map(check, over=items, join=collected, max_items=20),
        collected >> summarise >> END,
        context=Case,
    )
    lead, fallback = fn("code lead"), fn("fallback")
    code = Graph(
        "code team",
        START >> lead >> END,
        lead.delegates(readers, fallback, max_hops=3, report=Verdict),
        lead.on_error(fallback, catch=ValueError),
        fallback >> END,
        context=Case,
    )
    writer, proof = fn("writer"), fn("proofreader")
    docs = Graph("docs team", START >> writer >> END, writer.hands_off(proof), proof >> END, context=Case)
    manager, tie = fn("manager"), fn("tie break")
    review = Graph(
        "review",
        START >> manager,
        manager.delegates(code, docs, max_hops=2, into="reports"),
        manager.choose(on("again", manager, max_hops=1), when(more, tie), default=END),
        tie >> END,
        context=Case,
        escalate=Human("owner"),
    )
    director, left, right, agreed = fn("director"), fn("security"), fn("licences"), Join("agreed", ANY)
    return Graph(
        "company",
        START >> director >> fork(left, when(more, right), failure="collect") >> agreed >> END,
        director.delegates(review, max_hops=2),
        context=Case,
        budget=Budget(model_calls=100, usd="0.10"),
        max_depth=4,
    )


NAMES_OF_FOUR_LEVELS: Final = {
    "company", "review", "code team", "docs team", "readers", "director", "security", "licences", "agreed",
    "manager", "tie break", "owner", "code lead", "fallback", "writer", "proofreader", "read files", "check",
    "collected", "summarise",
}  # fmt: skip

HOSTILE: Final = (
    "ns::x", "<b>hi</b>", "<> <>", "a < b > c", 'say "hi"', "back\\slash\\", "\\N \\G \\E", "new\nline", "\0\x1b[2J",
    "🙂👩\u200d👩\u200d👧", "שלום עולם", "\u202eturned", "a&amp;b &lt;", "javascript:alert(1)", "graph", "end",
    "subgraph", "START", "END", "x" * 20_000, "  ", "\ud800", "\ufffe", "style:#abc;", "%%{init: {}}%%", "`tick`",
    "1. list", "]]>", "</svg>", "n0", "${x}", "é" * 300,
)  # fmt: skip


def texts(image: str) -> list[str]:
    """Every line of text of an SVG image."""
    root = ET.fromstring(image)
    return ["".join(found.itertext()).replace("\xa0", " ").strip() for found in root.iter(f"{SVG}text")]


def nodes_in(image: str) -> list[list[str]]:
    """The lines of text of each node of an SVG image, in order."""
    groups = [g for g in ET.fromstring(image).iter(f"{SVG}g") if g.get("class") == "node"]
    return [[line for line in texts(ET.tostring(group, "unicode")) if line] for group in groups]


def edges_in(image: str) -> list[str]:
    """The ends of each edge of an SVG image, by the generated ids."""
    groups = [g for g in ET.fromstring(image).iter(f"{SVG}g") if g.get("class") == "edge"]
    return sorted("".join(group.findtext(f"{SVG}title") or "") for group in groups)


def lines_of(name: str) -> list[str]:
    """How a name is written in a picture."""
    return [line.replace("\xa0", " ").strip() for line in wrap(shown(name), 28, 3)]


def mermaid_labels(source: str) -> dict[str, str]:
    """The label of each node of a Mermaid text by its id, with its entities read back."""
    found = re.findall(r'^ *(n\d+)\W{1,2}"(.*)"\W{1,2}$', source, re.MULTILINE)
    return {key: re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) for key, label in found}


# --- the cases ---------------------------------------------------------------------------------------------------


def test_p1_a_colon_in_a_name_is_no_port() -> None:
    """Three nodes with colons in their names are three nodes, with the right edges, in every format."""
    graph = chain("ns::x", "a:b", "team:n")

    dot, mermaid, image = to_dot(graph), to_mermaid(graph), to_svg(graph)

    assert re.findall(r"^ *(\w+ -> \w+) ", dot, re.MULTILINE) == [
        "g0s -> n0", "n0 -> n1", "n1 -> n2", "n2 -> g0e"
    ]  # fmt: skip
    assert re.findall(r"^  (\w+ --> \w+)$", mermaid, re.MULTILINE) == [
        "g0s --> n0", "n0 --> n1", "n1 --> n2", "n2 --> g0e"
    ]  # fmt: skip
    assert mermaid_labels(mermaid) == {"n0": "ns::x", "n1": "a:b", "n2": "team:n"}
    assert nodes_in(image) == [["START"], ["ns::x"], ["a:b"], ["team:n"], ["END"]]
    assert edges_in(image) == ["g0s->n0", "n0->n1", "n1->n2", "n2->g0e"]


def test_p3_labels_that_look_like_html_are_shown_literally() -> None:
    """Markup in a name is text, whoever draws it."""
    names = ["<b>hi</b>", "<> <>", "a < b > c"]
    graph = chain(*names)

    image, mermaid = to_svg(graph), to_mermaid(graph)

    assert [lines for lines in nodes_in(image) if lines not in (["START"], ["END"])] == [[name] for name in names]
    assert list(mermaid_labels(mermaid).values()) == names


def test_p5_handoffs_in_a_circle_are_drawn_once() -> None:
    """A -> B -> C -> A and A -> A: three nodes and four edges, at once."""
    a, b, c = fn("A"), fn("B"), fn("C")
    graph = Graph("circle", START >> a, a.hands_off(b, a), b.hands_off(c), c.hands_off(a), a >> END, context=Case)
    began = time.perf_counter()

    dot, mermaid = to_dot(graph), to_mermaid(graph)

    assert time.perf_counter() - began < 1
    assert set(mermaid_labels(mermaid).values()) == {"A", "B", "C"}
    assert len(re.findall(r"^  n\d -\.-> n\d$", mermaid, re.MULTILINE)) == 4
    assert len(re.findall(r"style=dashed", dot)) == 4


def test_p7_every_level_is_drawn_and_edges_are_told_apart() -> None:
    """All nodes of four levels are there, each kind of edge has a style of its own, and the legend explains it."""
    graph = four_levels()

    image, dot, mermaid = to_svg(graph), to_dot(graph), to_mermaid(graph)

    assert set(texts(image)) >= NAMES_OF_FOUR_LEVELS
    assert {edge.kind for edge in drawing_of(graph).edges} == set(EDGE_KINDS)
    assert len({look.dot for look in EDGE_LOOKS.values()}) == len(EDGE_KINDS)
    for kind in EDGE_KINDS:
        look = EDGE_LOOKS[kind]
        assert f"[{look.dot} color" in dot
        assert look.glyph in image.replace("&gt;", ">").replace("&#45;", "-")
        assert look.meaning.split(":")[0] in mermaid


def test_p9_without_dot_the_extra_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without `dot` on PATH the renderer of the extra draws the same nodes, though it is not on PATH either."""
    drawn_by_dot = nodes_in(to_svg(four_levels()))
    monkeypatch.setenv("PATH", str(tmp_path))

    image = to_svg(four_levels())

    assert nodes_in(image) == drawn_by_dot


def test_p9_without_any_renderer_the_error_names_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a renderer text can still be written, and an image is one clear error; nothing is asked of the net."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(svg, "SCRIPTS", str(tmp_path))
    monkeypatch.setattr(socket, "socket", None)  # any use of the network fails
    graph = chain("a")

    draw(graph, tmp_path / "a.dot")
    draw(graph, tmp_path / "a.mmd")
    with pytest.raises(MissingExtra) as refused:
        draw(graph, tmp_path / "a.svg")

    assert (tmp_path / "a.dot").read_text("utf-8") == to_dot(graph)
    assert (tmp_path / "a.mmd").read_text("utf-8") == to_mermaid(graph)
    assert not (tmp_path / "a.svg").exists()
    assert "`dot`" in str(refused.value)
    assert "graphflow-agents[render]" in str(refused.value)


def test_p9_pictures_point_nowhere() -> None:
    """No picture holds a link, a script or an address, but for the names of XML's own formats."""
    graph = chain("javascript:alert(1)", "http://example.org/x", "<a href='x'>y</a>")

    image = to_svg(graph)

    addresses = {f"{key} {value}" for found in ET.fromstring(image).iter() for key, value in found.attrib.items()}
    assert not [
        found for found in ET.fromstring(image).iter() if found.tag in {f"{SVG}a", f"{SVG}script", f"{SVG}image"}
    ]
    assert not [found for found in addresses if "href" in found or "http" in found]
    assert "URL" not in to_dot(graph)
    assert not re.search(r"\bclick\b|\bhref\b\s|http:", to_mermaid(graph))


def test_r9_pictures_and_reprs_hold_no_secret() -> None:
    """What a node's function or a context holds stands in no picture and in no repr of a node."""
    secret = "sk-4711-do-not-show"

    def call(key: str, state: State[Case]) -> None:
        """What holds a secret is the partial, not the function."""

    keyed = node(name="caller")(functools.partial(call, secret))
    graph: Graph[Case] = Graph("team", START >> keyed >> END, context=Case)
    state: State[Case] = State(Case(question=secret), (), (), 0, 0)

    shows = [to_dot(graph), to_mermaid(graph), to_svg(graph), to_term(graph), repr(graph), repr(keyed), str(keyed)]

    assert secret in repr(state.context)
    assert not [text for text in shows if secret in text]


# --- any name ----------------------------------------------------------------------------------------------------


def test_hostile_names_are_shown() -> None:
    """Names that break other drawings are shown, cut and escaped, by both renderers and in Mermaid."""
    graph = chain(*HOSTILE)

    image, mermaid = to_svg(graph), to_mermaid(graph)

    expected = [lines_of(name) for name in HOSTILE]
    assert nodes_in(image)[1:-1] == expected
    drawn = [label.replace("\u2060", "").split("<br/>") for label in mermaid_labels(mermaid).values()]
    assert [[line.strip() for line in lines] for lines in drawn] == expected


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=8, unique=True), st.text(min_size=1))
@settings(max_examples=examples(200))
def test_any_text_is_a_name(names: list[str], title: str) -> None:
    """Whatever the names are, `dot` accepts the text and shows each; ids in Mermaid are letters and digits."""
    nodes = [fn(name) for name in names]
    links = [before >> after for before, after in itertools.pairwise(nodes)]
    graph = Graph(title, START >> nodes[0], *links, nodes[-1] >> END, context=Case)

    image, mermaid = to_svg(graph), to_mermaid(graph)

    drawn = [[line.strip() for line in lines] for lines in nodes_in(image)[1:-1]]
    assert drawn == [lines_of(name) for name in names]
    for line in mermaid.splitlines():
        outside = re.sub(r'"[^"]*"', "", line)
        assert outside.isascii()
        assert not line.count('"') % 2


@given(st.text(min_size=1))
def test_visible_text_stays_on_its_line(text: str) -> None:
    """What is shown has no control character, nothing that turns a line around, and no lone surrogate."""
    line = visible(text)

    assert line.encode()
    assert not [char for char in line if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0]
    assert not set(line) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff\u2028\u2029")


@given(st.text(min_size=1), st.integers(4, 40), st.integers(1, 4))
def test_wrapped_text_fits(text: str, width: int, most: int) -> None:
    """However a text is broken or cut, no line is wider than asked for and there are not too many."""
    line = shown(text)

    lines = wrap(line, width, most)

    assert 1 <= len(lines) <= most
    assert all(cells(part) <= width for part in lines)
    assert cells(clip(line, width)) <= width


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ("short",)),
        ("check every citation", ("check every", "citation")),
        ("read_files_of_a_folder", ("read_files_", "of_a_folder")),
        ("a-verylongwordindeed", ("a-verylongwo", "rdindeed")),
        ("日本語のとても長い名前", ("日本語のとて", "も長い名前")),
        ("x" * 30, ("x" * 12, "x" * 11 + "…")),
    ],
)
def test_where_a_name_is_broken(text: str, lines: tuple[str, ...]) -> None:
    """A name is broken after a space or a sign where one is near, and cut when it is too long."""
    assert wrap(text, 12, 2) == lines


# --- the same picture for the same graph -------------------------------------------------------------------------


def statements() -> list[Any]:
    """The statements of one graph, one by one."""
    a, b, c, d = fn("a"), fn("b"), fn("c"), fn("d")
    e, f, g = fn("e"), fn("f"), fn("g")
    return [
        START >> a, a >> (b, c), b >> d, c >> d, d >> END, a.delegates(f, e), d.delegates(g), b.hands_off(c, b),
        a.delegates(g), c.on_error(d, catch=KeyError), c.on_error(END, catch=ValueError), b.hands_off(d),
    ]  # fmt: skip


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_shuffled_statements_give_the_same_picture(order: random.Random) -> None:
    """The order of the statements is no meaning, so no picture shows it."""
    given_in_order: Graph[Case] = Graph("g", *statements(), context=Case)
    shuffled = statements()
    order.shuffle(shuffled)
    other: Graph[Case] = Graph("g", *shuffled, context=Case)

    assert to_dot(other) == to_dot(given_in_order)
    assert to_mermaid(other) == to_mermaid(given_in_order)


def test_every_hash_seed_gives_the_same_picture() -> None:
    """A picture is the same text in every process."""
    program = (
        "from tests.test_visualize import four_levels; from graphflow.visualize import *; import sys;"
        "sys.stdout.buffer.write((to_dot(four_levels()) + to_mermaid(four_levels())).encode())"
    )

    drawn = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(drawn) == 1
    assert drawn == {(to_dot(four_levels()) + to_mermaid(four_levels())).encode()}


# --- graphs in graphs --------------------------------------------------------------------------------------------


def test_a_graph_that_is_used_twice_is_drawn_twice() -> None:
    """Each use of a graph has its own frame and its own nodes."""
    team = chain("worker").named("left")
    graph = Graph("twice", START >> (team, team.named("right")) >> Join("both") >> END, context=Case)

    drawing = drawing_of(graph)

    assert [drawn.name for drawn in drawing.graphs] == ["twice", "left", "right"]
    assert [drawn.name for drawn in drawing.nodes if drawn.kind == "function"] == ["worker", "worker"]
    assert to_dot(graph).count("lhead=cluster_") == 2
    assert to_dot(graph).count("ltail=cluster_") == 2


def test_a_graph_inside_itself_is_cut() -> None:
    """A graph that stands inside itself ends in a leaf that says so."""
    worker, again = fn("worker"), chain("x").named("again")
    graph = Graph("loop", START >> worker >> END, worker.delegates(again, max_hops=1), context=Case)
    object.__setattr__(again, "statements", graph.statements)

    drawing = drawing_of(graph)

    assert len(drawing.graphs) == 1
    assert [(drawn.name, drawn.kind) for drawn in drawing.nodes if drawn.name == "again"] == [("again", "recursion")]
    assert "as drawn around it" in to_mermaid(graph)


def test_a_graph_may_lead_back_to_itself() -> None:
    """A loop around a nested graph is drawn at its two ends."""
    team = chain("worker").named("team")
    graph = Graph("loop", START >> team, team.choose(when(more, team, max_hops=2), default=END), context=Case)

    image = to_svg(graph)

    assert "g1e->g1s" in edges_in(image)


def test_nesting_has_no_limit() -> None:
    """Three hundred graphs inside one another are drawn as text."""
    graph = chain("innermost")
    for _ in range(300):
        graph = Graph("around", START >> graph >> END, context=Case)

    assert to_dot(graph).count("subgraph") == 301
    assert to_mermaid(graph).count("subgraph") == 301


def test_a_graph_that_is_not_finished_is_drawn() -> None:
    """A graph with problems has a picture too, so that they can be seen in it."""
    lost = fn("lost")
    graph = Graph("open", START >> fn("a"), lost.hands_off(lost), context=Case)
    empty: Graph[Case] = Graph("empty", context=Case)

    assert {"a", "lost"} <= set(texts(to_svg(graph)))
    assert nodes_in(to_svg(empty)) == [["START"], ["END"]]
    assert "legend" not in to_mermaid(empty)


# --- what is written ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A problem, as the checks of a graph list them."""

    code: str
    where: tuple[str, ...]
    message: str


def test_problems_are_marked_and_listed() -> None:
    """A problem marks the node that its names lead to, or the graph, and is listed below the picture."""
    team = chain("worker", "other").named("team")
    graph = Graph("all", START >> fn("worker") >> team >> END, context=Case)
    problems = [
        Found("dead-edge", ("team", "worker", "other"), "that edge"),
        Found("no-budget", (), "nothing bounds it"),
        Found("ambiguous-next", ("START",), "two beginnings"),
        Found("odd", ("worker",), "the outer one"),
    ]

    drawing = drawing_of(graph, problems)

    marked = {(drawn.graph, drawn.name): drawn.problems for drawn in drawing.nodes if drawn.problems}
    assert marked == {("g1", "worker"): ("dead-edge",), ("g1", "other"): ("dead-edge",), ("g0", "worker"): ("odd",)}
    assert drawing.graphs[0].problems == ("no-budget", "ambiguous-next")
    lines = texts(to_svg(graph, problems=problems))
    assert {"! dead-edge", "! no-budget: nothing bounds it", "! dead-edge: that edge"} <= set(lines)
    assert "has_problem" in to_mermaid(graph, problems=problems)


def test_very_many_problems_are_counted() -> None:
    """Of very many problems only the first are listed; the rest are a number."""
    problems = [Found("odd", ("a",), f"number {number}") for number in range(MOST_PROBLEMS + 5)]

    drawing = drawing_of(chain("a"), problems)

    assert len(drawing.problems) == MOST_PROBLEMS + 1
    assert drawing.problems[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("made", "facts"),
    [
        pytest.param(
            lambda: fn("x", retries=2, timeout=5, max_visits=3), "2 retries · ≤ 3 visits · ≤ 5 s", id="bounds"
        ),
        pytest.param(lambda: fn("x", max_turns=1, into="reports"), "≤ 1 turn · into reports", id="turns"),
        pytest.param(lambda: fn("x", gate=True, irreversible=True), "gate · irreversible", id="gate"),
        pytest.param(lambda: fn("x", costs=Budget(model_calls=2)), "costs ≤ 2 model calls", id="costs"),
        pytest.param(lambda: fn("x", costs=Budget(model_calls=0)), "costs nothing", id="costs nothing"),
        pytest.param(lambda: Human("x", "Sure?"), "human", id="human"),
        pytest.param(lambda: Join("x"), "join", id="join"),
        pytest.param(lambda: Join("x", STRICT), "join · waits for every declared branch", id="strict"),
        pytest.param(
            lambda: Join("x", quorum(2, within=3), losers="cancel"),
            "join · waits for 2 branches within 3 s · cancels the others",
            id="quorum",
        ),
    ],
)
def test_facts_of_a_node(made: Callable[[], Node[Any]], facts: str) -> None:
    """A node says what it is and what bounds it."""
    graph = Graph("g", START >> made() >> END, context=Case)

    (drawn,) = (drawn for drawn in drawing_of(graph).nodes if drawn.name == "x")

    assert " · ".join(drawn.facts) == facts


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("delegate", "≤ 2 hops · asks Order · gets Verdict · into reports · share equal · ≤ 9 s"),
        ("handoff", "≤ 1 hop"),
        ("error", "on ValueError, KeyError"),
        ("map", "each of items · ≤ 7 items"),
        ("escalate", ""),
        ("next", ""),
    ],
)
def test_facts_of_an_edge(kind: str, facts: str) -> None:
    """An edge says its condition, its bound, and its contract where that is not the usual one."""
    a, b, met = fn("a"), fn("b"), Join("met")
    graph = Graph(
        "g",
        START >> a,
        a.map(fn("lane"), over=items, join=met, max_items=7),
        met >> END,
        a.delegates(b, max_hops=2, brief=Order, report=Verdict, into="reports", share="equal", timeout=9),
        a.hands_off(b, max_hops=1),
        a.on_error(met, catch=(ValueError, KeyError)),
        context=Case,
        escalate=Human("owner"),
    )

    drawn = [edge for edge in drawing_of(graph).edges if edge.kind == kind]

    assert drawn
    assert {" · ".join(edge.facts) for edge in drawn} == {facts}


@pytest.mark.parametrize("failure", ["collect", "fail_fast"])
def test_an_edge_says_that_failures_behind_it_are_collected(failure: Any) -> None:
    """The edges of the fork or map that declares it say so, also those of START; no node or other edge does."""
    a, b, met, ends = fn("a"), fn("b"), Join("met"), Join("ends")
    graph = Graph(
        "g",
        START.map(a, over=items, join=met, max_items=7, failure=failure),
        met >> fork(b, when(more, fn("c")), failure=failure) >> ends >> END,
        b.hands_off(b, max_hops=1),
        context=Case,
    )

    drawing = drawing_of(graph)

    said = {str(edge.name) for edge in drawing.edges if "collects failures" in edge.facts}
    collecting = {"START -map-> a", "met -fork-> b", "met -fork-> c"}
    assert said == (collecting if failure == "collect" else set())
    assert not [drawn for drawn in drawing.nodes if "collects failures" in drawn.facts]


def test_the_legend_of_mermaid_shows_the_arrows_of_mermaid() -> None:
    """Each arrow that the picture uses stands once in the legend, with all that it means there."""
    source = to_mermaid(four_levels())

    (legend,) = re.findall(r'^  legend\["(.*)"\]$', source, re.MULTILINE)
    lines = re.sub(r"#(\d+);", lambda code: chr(int(code[1])), legend).split("<br/>")
    assert lines == [
        "──► next · choose: one of these",
        "━━► fork: all at once · join: they meet · map: once for each item",
        "◄──► delegates: a report comes back",
        "╌╌► hands off control · escalates",
        "──× on error",
    ]


def test_facts_of_a_graph() -> None:
    """A graph says its bounds, and those it has as a node of another graph."""
    team = Graph(
        "team",
        START >> fn("a") >> END,
        context=Case,
        output=Report,
        budget=Budget(node_runs=1, tokens=20_000, usd="0.10", seconds=60),
        max_depth=2,
        max_handoffs=1,
        max_hops=9,
        retries=1,
    )
    graph = Graph("g", START >> team >> END, context=Case)

    drawn = drawing_of(graph).graphs[1]

    assert drawn.facts == (
        "≤ 1 node run", "≤ 20,000 tokens", "≤ $0.10", "≤ 60 s", "depth ≤ 2", "≤ 1 handoff", "≤ 9 hops", "gives Report",
        "1 retry",
    )  # fmt: skip
    assert budget_words(None) == ()


def luminance(color: str) -> float:
    """The relative luminance of a colour, as the web's rules for contrast define it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_can_be_read() -> None:
    """All text has enough contrast to the ground that it stands on."""
    looks = [*NODE_LOOKS.values(), *STANDING_LOOKS.values()]
    pairs = [(look.text, look.fill) for look in looks]
    pairs += [(SOFT, look.fill) for kind, look in NODE_LOOKS.items() if kind != "start"]
    colours = [INK, SOFT, NOT_TAKEN[1], *(look.color for look in EDGE_LOOKS.values())]
    pairs += [(color, ground) for ground in GROUNDS for color in colours]

    assert not [pair for pair in pairs if contrast(*pair) < 4.5]


# --- files and the terminal --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".svg", b"<?xml"), (".PNG", b"\x89PNG"), (".dot", b"digraph"), (".gv", b"digraph"), (".mmd", b"flowchart")],
)
def test_the_suffix_tells_the_format(tmp_path: Path, suffix: str, begins: bytes) -> None:
    """A picture goes into the file that was named, in the format that its suffix tells."""
    path = draw(four_levels(), tmp_path / f"picture{suffix}")

    assert path == tmp_path / f"picture{suffix}"
    assert path.read_bytes().startswith(begins)


def test_the_format_can_be_given(tmp_path: Path) -> None:
    """Where the suffix tells nothing the format must be given."""
    with pytest.raises(UsageError, match=r"\.svg"):
        draw(chain("a"), tmp_path / "picture.txt")

    path = draw(chain("a"), tmp_path / "picture.txt", format="mermaid")

    assert path.read_text("utf-8") == to_mermaid(chain("a"))


@pytest.mark.parametrize("there_is_dot", [True, False])
def test_a_renderer_that_gives_up_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there_is_dot: bool
) -> None:
    """What a renderer says when it gives up stands in the error."""
    if not there_is_dot:
        monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GraphflowError, match="syntax error"):
        svg.render("digraph {{{", "svg")


def test_the_terminal_shows_every_node() -> None:
    """The drawing in the terminal names each node and graph, explains its arrows, and lists the bounds."""
    drawn = to_term(four_levels())

    assert not [name for name in NAMES_OF_FOUR_LEVELS if name not in drawn]
    assert "delegates: a report comes back" in drawn
    assert drawn.startswith("company: ≤ 100 model calls · ≤ $0.10 · depth ≤ 4\n")
    assert "choose: exactly one of those that leave a node" in drawn
    assert "◊ = 'again'" in drawn


def test_each_graph_has_a_flat_picture_of_its_own() -> None:
    """A nested graph is a box in the picture around it, and is drawn below under the names that lead to it."""
    drawn = to_term(four_levels())

    headings = [line.partition(":")[0] for line in drawn.splitlines() if line.startswith("in ")]
    assert headings == [
        "in review", "in review > code team", "in review > code team > readers", "in review > docs team"
    ]  # fmt: skip
    parts = re.split(r"^in .*:$", drawn, flags=re.MULTILINE)
    assert "director" in parts[0]
    assert "review" in parts[0]
    assert not [name for name in ("manager", "code lead", "writer") if name in parts[0]]
    assert max(cells(line) for line in drawn.splitlines()) < 120


def test_graphs_that_look_the_same_are_drawn_once_in_the_terminal() -> None:
    """The second use of a graph, with all inside it, is a line that says where it is drawn; other bounds are told."""
    inner = chain("worker").named("inner")
    team = Graph("left", START >> inner >> END, context=Case)
    bounded = Graph("third", START >> inner >> END, context=Case, max_hops=9)
    graph = Graph("all", START >> (team, team.named("right"), bounded) >> Join("both") >> END, context=Case)

    lines = [line for line in to_term(graph).splitlines() if line.startswith(("all", "in "))]

    assert lines == [
        "all:", "in left:", "in left > inner:", "in right: the same as in left", "in third: ≤ 9 hops",
        "in third > inner: the same as in left > inner",
    ]  # fmt: skip


def test_nesting_in_the_terminal_has_no_limit() -> None:
    """Forty graphs inside one another have a picture each."""
    graph = chain("innermost")
    for number in range(40):
        graph = Graph(f"around {number}", START >> graph >> END, context=Case)

    assert to_term(graph).count("in around") == 39 + 1


def test_the_terminal_can_be_plain() -> None:
    """With `ascii` a graph of plain names is drawn in ASCII alone."""
    graph = Graph("g×", START >> fn("back\\new") >> END, context=Case, max_hops=3)

    drawn, plain = to_term(graph), to_term(graph, ascii=True)

    assert "back\N{SET MINUS}new" in drawn
    assert "choose" not in drawn
    assert plain.isascii()
    assert "back\\ new" in plain
    assert "gx: <= 3 hops" in plain


def test_the_terminal_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error names it."""
    monkeypatch.setitem(sys.modules, "termaid", None)

    with pytest.raises(MissingExtra, match=r"graphflow-agents\[cli\]"):
        to_term(chain("a"))
