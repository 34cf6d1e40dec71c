"""The examples of the strategies, and the newsroom that nests them: what they print, and what bounds them."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from benchmarks import strategies_cost
from examples import newsroom
from examples.strategies import handoff, manual, parallel, plan_execute, random_draw, round_robin, router, sequential
from examples.strategies import swarm as travel
from graphflow import Budget, Graph, strategies
from graphflow.events import EdgeTaken, FrameOpened
from graphflow.visualize import to_dot, to_mermaid
from tests.cases.helpers import play
from tests.pictures import PICTURES
from tests.support import ROOT

FOLDER: Final = ROOT / "examples" / "strategies"

PRINTED: Final = {
    "handoff": [
        "✓ hotline  completed · 4 node runs · 4 model calls · …",
        "├─ ✓ reception  1 model call · …",
        "│  └─ · turn 0: transfer_to_moving",
        "├─ ✓ reception (visit 2)  1 model call · …",
        "│  └─ · turn 0: transfer_to_meters",
        "├─ ✓ moving  1 model call · …",
        "│  └─ · turn 0: transfer_to_reception",
        "└─ ✓ meters  1 model call · …",
        "meters answers: A fitter comes on Tuesday, between 8 and 10.",
    ],
    "router": [
        "The tap in the kitchen drips.",
        "  A plumber comes on Monday.",
        "Why is the rent higher than last year?",
        "  The index rose by 2 %.",
        "The heating is out, and so I pay less rent.",
        "  It is on the desk of Ms Abel.",
        "A poem for you.",
        "  It is on the desk of Ms Abel.",
    ],
    "sequential": [
        "Die Brücke wird am 3. Mai eröffnet. Sie sind eingeladen. (3 calls)",
        "stopped after 'lawyer': it names a client (2 calls)",
    ],
    "parallel": [
        "[price]: 36,000 in all, 8 % above the market",
        "[law]: no insurance",
        "partial: not done: 'dates' (failed: the calendar cannot be reached)",
        "to do: insure the crane; evidence: offer-12",
    ],
    "swarm": [
        "flights -> animals",
        "animals -> papers",
        "papers -> flights",
        "flights: Booked: Bern to Tokyo on 14 May, with a place for the dog.",
    ],
    "round_robin": [
        "writer: Ferry chaos: who is to blame?",
        "editor: A headline does not ask. What happened?",
        "writer: Ferry stood still for nine weeks",
        "editor: And why?",
        "writer: Nine weeks without a ferry: no check",
        "editor: Print it.",
    ],
    "random_draw": ["of 40 customers: {'formal': 31, 'short': 9}; the same again: True"],
    "plan_execute": [
        "count: 20 desks",
        "lift: the lift is ours on 3 March",
        "van of 40: a van of 40 m³, 3 March",
        "completed with 2 plans; done, each once: count, lift, van of 12, van of 40",
    ],
    "manual": [
        "quarry: At night the roads are free.",
        "village: We measured 61 dB at two bedrooms.",
        "expert: 61 dB is above the limit of 45.",
        "quarry: At night the roads are free.",
    ],
}
"""What each example prints as a program; what follows "…" depends on the machine."""

ARTICLE: Final = (
    "# Nine weeks without a ferry: its check was put off twice\n"
    "The engine broke on 4 January [log-7]. Its check had been put off twice [minutes-3]. "
    "The money for it was there [ledger-88]."
)

GRAPHS: Final[dict[str, Graph[Any]]] = {
    "handoff": handoff.graph,
    "router": router.graph,
    "sequential": sequential.graph,
    "parallel": parallel.graph,
    "swarm": travel.graph,
    "round_robin": round_robin.graph,
    "random_draw": random_draw.graph,
    "plan_execute": plan_execute.graph,
    "manual": manual.graph,
    "chaired": manual.chaired,
    "newsroom": newsroom.graph,
}


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    """A program of this repository that has ended."""
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=False)


# --- all of them -----------------------------------------------------------------------------------------------------


def test_every_strategy_has_an_example() -> None:
    """One file for each, named after it; that of `random` has another name, which no import can find by mistake."""
    made = {name for name in strategies.__all__ if name[0].islower()}

    assert {path.stem for path in FOLDER.glob("*.py")} == made - {"random"} | {"random_draw"}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(FOLDER.glob("*.py"))])
def test_no_example_hides_a_module_of_python(path: Path) -> None:
    """A program's own folder comes first in the search for modules."""
    assert path.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_is_worth_reading(name: str) -> None:
    """As a program it shows what its strategy is for."""
    done = ran(f"examples/strategies/{name}.py")

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, len(lines)) == (0, "", len(PRINTED[name]))
    for line, expected in zip(lines, PRINTED[name], strict=True):
        start, dots, _ = expected.partition("…")
        assert line.startswith(start) if dots else line == expected


@pytest.mark.parametrize(
    ("name", "first", "code"),
    [
        ("handoff", "A fitter comes on Tuesday, between 8 and 10.", 0),
        ("router", "A plumber comes on Monday.", 0),
        ("sequential", "Die Brücke wird am 3. Mai eröffnet. Sie sind eingeladen.", 0),
        ("parallel", "[price]: 36,000 in all, 8 % above the market", 1),  # partial: one of three has failed
        ("swarm", "Booked: Bern to Tokyo on 14 May, with a place for the dog.", 0),
        ("round_robin", "Print it.", 0),
        ("random_draw", "Your parcel is expected on Friday.", 0),
        ("plan_execute", "[count]: 20 desks", 0),
        ("manual", "At night the roads are free.", 0),
    ],
)
def test_an_example_runs_by_the_command_line(name: str, first: str, code: int) -> None:
    """Without an input it has one of its own, and the output is that of its graph."""
    done = ran("-m", "graphflow.cli", "run", "-q", "--no-store", f"examples/strategies/{name}.py")

    assert (done.stdout.splitlines()[0], done.returncode) == (first, code)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_example_checks_without_a_warning(name: str) -> None:
    """What a reader copies is right, and its budget is no smaller than what its structure can want."""
    assert GRAPHS[name].check() == ()


@pytest.mark.parametrize("name", GRAPHS)
def test_a_drawing_of_an_example_names_all_its_nodes(name: str) -> None:
    """In both formats, those of nested teams too."""
    graph = GRAPHS[name]

    for text in (to_dot(graph), to_mermaid(graph)):
        assert [node for node in every_name(graph) if node not in text] == []


def every_name(graph: Graph[Any]) -> list[str]:
    """The names of the nodes of a graph and of the graphs inside it."""
    inside: list[Graph[Any]] = [node for node in graph.nodes.values() if isinstance(node, Graph)]
    return [*graph.nodes, *(name for team in inside for name in every_name(team))]


def test_every_example_has_a_picture() -> None:
    """Each is drawn into the documentation."""
    drawn = {picture.source for picture in PICTURES.values()}

    assert {f"examples/strategies/{name}.py" for name in PRINTED} | {"examples/newsroom.py"} <= drawn


# --- what some of them are for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", router.LETTERS)
async def test_a_letter_that_names_nobody_or_two_is_read_by_a_person(letter: str) -> None:
    """The fallback is taken where the classifier is not clear, and a run never ends without an answer."""
    played = await play(router.graph, router.Letter(task=letter))

    taken = [body.edge.target for body in played.of(EdgeTaken) if body.edge.kind == "handoff"]
    clear = {router.LETTERS[0]: "repairs", router.LETTERS[1]: "accounts"}
    assert (played.result.status, taken) == ("completed", [clear.get(letter, "desk")])


async def test_a_caller_who_went_to_the_wrong_one_comes_back() -> None:
    """The note of who gave the call back is worth more to the reception than the word that it fell for."""
    played = await play(handoff.graph, handoff.Caller(task="I moved the meter."))

    taken = [(body.edge.source, body.edge.target) for body in played.of(EdgeTaken) if body.edge.kind == "handoff"]
    assert taken == [("reception", "moving"), ("moving", "reception"), ("reception", "meters")]
    assert played.result.active == "meters"


async def test_a_headline_that_is_not_found_in_time_is_no_result() -> None:
    """A story that never mentions a check stops at the bound of its turns."""
    short = strategies.round_robin(
        "headline", round_robin.writer, round_robin.editor, turns=4, until=round_robin.is_printed,
        context=round_robin.Story, budget=Budget(model_calls=8),
    )  # fmt: skip

    played = await play(short, round_robin.Story())

    assert (played.result.status, played.reason.code) == ("exhausted", "max_hops")
    assert [said.speaker for said in played.result.context.said] == ["writer", "editor"] * 2


async def test_a_person_can_lead_the_hearing() -> None:
    """Who chairs says a name, or that it is over, and may say nothing else."""
    question = "May the quarry work at night?"

    played = await play(manual.chaired, manual.Hearing(), answers={question: "finish"})

    assert (played.result.status, played.result.output.status) == ("completed", "partial")


# --- the newsroom ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["examples/newsroom.py"], ["-m", "graphflow.cli", "run", "examples/newsroom.py"]])
def test_the_newsroom_prints_its_article(command: list[str]) -> None:
    """As a program and by the command line; as a program it shows who worked for it, too."""
    done = ran(*command)

    assert done.returncode == 0
    assert done.stdout.startswith(f"{ARTICLE}\n")
    assert ("100% of 3 claims are cited, 15 model calls" in done.stdout) is (len(command) == 1)


async def test_the_newsroom_is_four_levels_deep_and_nests_its_teams() -> None:
    """Each level was asked by the one above, and what the deepest found is cited in the article."""
    played = await play(newsroom.graph, newsroom.Issue())

    assert max(body.depth for body in played.of(FrameOpened)) == 3
    inside: Graph[Any] = newsroom.graph
    for name in ("article", "city_desk", "investigation", "sources"):
        found = inside.nodes[name]
        assert isinstance(found, Graph)
        inside = cast("Graph[Any]", found)
    assert (played.result.status, played.result.output.finding) == ("completed", ARTICLE)
    assert played.result.output.evidence == ("log-7", "minutes-3", "ledger-88")
    assert set(played.result.output.evidence) < set(played.result.context.evidence)


async def test_a_claim_without_a_source_goes_back_once() -> None:
    """The first version lacks one; the second has it, and not another word was changed."""
    played = await play(newsroom.graph, newsroom.Issue())

    taken = [body.edge for body in played.of(EdgeTaken) if body.edge.kind == "choose"]
    assert [edge.target for edge in taken if edge.source == "citations"] == ["repair", None]
    assert played.result.output.coverage == 1.0


@pytest.mark.parametrize("calls", [1, 3, 7, 12, 14])
async def test_one_budget_holds_over_the_newsroom(calls: int) -> None:
    """However deep somebody spends: with fewer calls than it needs, it stops there, and does not say it is done."""
    played = await play(newsroom.graph, newsroom.Issue(), budget=Budget(model_calls=calls))

    assert (played.result.spent.total.model_calls or 0) <= calls
    assert played.result.status != "completed"


# --- what the page says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [strategies_cost.table, strategies_cost.again_table])
def test_the_costs_on_the_page_are_those_of_its_program(made: Callable[[], list[str]]) -> None:
    """With its seed the program gives the same table everywhere."""
    page = (ROOT / "docs" / "strategies.md").read_text("utf-8")

    assert "\n".join(("```text", *made(), "```")) in page


def test_the_table_to_choose_from_has_the_calls_of_the_table_of_costs() -> None:
    """The column of calls says the same as the figures further down."""
    page = (ROOT / "docs" / "strategies.md").read_text("utf-8")
    rows = {line.split()[0]: line.split() for line in page.split("```text\n   ")[1].splitlines()[2:12]}
    costs = {name: (row[1], "–" if "cannot" in row else row[4]) for name, row in rows.items()}

    chosen = re.findall(r"^\| \[([\w ]+)\].*\| ([\d.]+) / ([\d.–]+) \|$", page, re.MULTILINE)

    found = {name.replace(" and ", "_").replace(" ", "_"): (one, three) for name, one, three in chosen}
    assert found == {name: cost for name, cost in costs.items() if name != "delegation"}


def test_a_handoff_saves_two_calls_for_each_further_message() -> None:
    """What is said of repeated requests: 40 to 50 % fewer calls, where the specialist is the same."""
    for messages in (1, 2, 5):
        asks, hands = (
            strategies_cost.conversation(strategies_cost.chat(hands_over=way), messages, others=False)
            for way in (False, True)
        )
        assert asks - hands == 2 * messages - 1


def test_every_graph_whose_cost_is_told_checks() -> None:
    """What is measured has no problem, and is of every strategy."""
    told = {name for name in strategies.__all__ if name[0].islower()} | {"delegation"}

    assert {name: graph.check() for name, graph in strategies_cost.GRAPHS.items()} == dict.fromkeys(told, ())
