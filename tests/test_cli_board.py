"""The parts of the command line that need no process: the board, the progress, and what is printed."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    FrozenDict,
    Graph,
    Handoff,
    Json,
    Pause,
    Reason,
    Report,
    State,
    Step,
    node,
    run_sync,
)  # fmt: skip
from graphflow.cli.board import Board
from graphflow.cli.faults import BadUse, described, explained
from graphflow.cli.inputs import as_json, budget_from, context_of
from graphflow.cli.printing import Screen, Stream, safe
from graphflow.cli.progress import progress_on
from graphflow.cli.results import as_text, jsonable, to_json
from graphflow.cli.running import recorder
from graphflow.cli.telling import Telling
from graphflow.errors import InternalError
from graphflow.events import Emitted, Event
from graphflow.model.budget import ADDITIVE
from graphflow.persistence.lines import event_json, read_event


class Priced(Report):
    price: int


class Case(Context):
    question: str = ""
    data: Json = None


@node
async def boss(state: State[Case]) -> object:
    """Delegates twice."""
    return Delegate(Call("hand", "one"), Call("hand", "two")) if state.turn == 0 else "done"


@node(retries=1)
async def hand(state: State[Case], step: Step) -> str:
    """Fails, twice."""
    await step.effect("call", lambda: "x", cost=Budget(model_calls=1))
    raise ValueError("no\x1b[2J")


@node
async def fetch(state: State[Case]) -> str:
    """Gives a text."""
    return "fetched"


@node
async def asker(state: State[Case]) -> object:
    """Asks a person."""
    return Pause("May I?") if state.turn == 0 else state.inbox[0].value


def events_of(graph: Graph[Case]) -> list[Event]:
    """All that happens in a run of a graph."""
    events: list[Event] = []
    run_sync(graph, Case(), listeners=[events.append])
    return events


def told_of(graph: Graph[Case]) -> list[str]:
    """The lines of progress of a run of a graph."""
    telling = Telling(graph)
    return [found[1] for event in events_of(graph) if (found := telling.line_of(event)) is not None]


BUDGET = Budget(node_runs=40, model_calls=9, usd="0.50", seconds=60)
TEAM = Graph(
    "team", START >> boss, boss.delegates(hand, max_hops=2), boss >> END, context=Case, budget=BUDGET, max_depth=1
)
CROWD = Graph(
    "crowd", START.map(fetch, over=lambda _: range(20), join=boss, max_items=20), boss.delegates(hand, max_hops=2),
    boss >> END, context=Case, max_depth=1,
)  # fmt: skip
ASKS = Graph("asks", START >> asker >> END, context=Case)


@pytest.mark.parametrize("graph", [TEAM, CROWD, ASKS], ids=lambda graph: graph.name)
def test_the_board_counts_every_visit(graph: Graph[Case]) -> None:
    """However many visits, a node has one row; at the end nothing runs but what waits."""
    board = Board()

    events = events_of(graph)
    for event in events:
        board.fold(event)

    kinds = [event.kind for event in events]
    assert sum(row.started for row in board.rows.values()) == kinds.count("node_started")
    assert sum(row.retries for row in board.rows.values()) == kinds.count("node_retried")
    assert sum(row.running for row in board.rows.values()) == 0
    assert sum(row.waiting for row in board.rows.values()) == kinds.count("paused")
    assert board.node_runs == kinds.count("node_started") + kinds.count("node_retried")
    assert len(board.rows) <= len(graph.nodes)


def test_the_board_shows_who_works_for_whom() -> None:
    """A callee hangs below its caller; spending stands against the budget."""
    board = Board()

    for event in events_of(TEAM):
        board.fold(event)

    assert [line.text for line in board.lines(10, ascii=True)] == [
        "`- + boss",
        "   `- x hand  0 of 2 - 2 failed - 2 retries",
    ]
    assert board.spending(1.25) == "5 of 40 node runs · 4 of 9 model calls · 2 retries · $0 of $0.50 · 1.2 of 60 s"


def test_a_small_terminal_keeps_what_went_wrong() -> None:
    """Rows that do not fit are counted."""
    board = Board()

    for event in events_of(CROWD):
        board.fold(event)

    assert len(board.lines(3)) == 3
    assert [line.text for line in board.lines(2, ascii=True)] == ["`- + fetch  20 of 20", "and 2 more"]


@pytest.mark.parametrize("graph", [TEAM, CROWD, ASKS], ids=lambda graph: graph.name)
def test_a_line_of_progress_is_one_line(graph: Graph[Case]) -> None:
    """Nothing that a name or an error holds moves the cursor."""
    lines = told_of(graph)

    assert lines
    assert all(line.isprintable() for line in lines)


def test_who_ends_a_call_reports_for_it() -> None:
    """A callee that hands off does not report: the node does that got control at last."""

    @node
    async def desk(state: State[Case]) -> object:
        return "done" if state.turn else Delegate(Call("shipping", "go"))

    @node
    async def shipping(state: State[Case]) -> object:
        return Handoff("customs")

    @node
    async def customs(state: State[Case]) -> object:
        return "cleared"

    graph = Graph(
        "g", START >> desk >> END, desk.delegates(shipping, max_hops=1), shipping.hands_off(customs, max_hops=1),
        context=Case, max_depth=1,
    )  # fmt: skip

    lines = told_of(graph)

    assert lines[1:] == [
        "desk starts",
        "desk asks shipping",
        "desk > shipping hands off to customs",
        "desk > customs reports to desk",
    ]


def test_a_call_to_nobody_is_told() -> None:
    """A call to a node that was not declared has a line, as other failures have."""

    @node
    async def desk(state: State[Case]) -> object:
        return "done" if state.turn else Delegate(Call("hand", "go"), Call("nobody", "go"))

    graph = Graph("g", START >> desk >> END, desk.delegates(hand, max_hops=1), context=Case, max_depth=1)

    assert "desk asks nobody, which is not among its targets: hand" in told_of(graph)


def test_a_text_of_several_lines_is_told_on_one() -> None:
    """The lines of a question or an error are set apart, and not by a sign for a new line."""

    @node
    async def asks(state: State[Case]) -> object:
        return Pause("Pay?\n\n  INV-311")

    graph: Graph[Case] = Graph("g", START >> asks >> END, context=Case)

    assert told_of(graph)[-1] == "asks asks: Pay? / INV-311"


def test_a_call_that_takes_too_long_is_told_as_failed() -> None:
    """A report that no failed node accounts for has a line of its own."""

    @node
    async def desk(state: State[Case]) -> object:
        return "done" if state.turn else Delegate(Call("late", "go"))

    @node
    async def late(state: State[Case], step: Step) -> None:
        await step.sleep(60)

    graph = Graph("g", START >> desk >> END, desk.delegates(late, max_hops=1, timeout=0.01), context=Case, max_depth=1)

    lines = told_of(graph)

    assert [line for line in lines if line.startswith(("desk > late failed: ", "desk > late timed out: "))]
    assert not [line for line in lines if "reports to" in line]


def test_what_recurs_is_told_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first visits of a node are told, then no more."""
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    progress = progress_on(Screen(), TEAM, quiet=False)
    looping = next(event for event in events_of(TEAM) if event.kind == "node_started")

    for _ in range(20):
        progress(looping)

    assert err.getvalue().count("boss starts") == 4
    assert "more of this kind is not told" in err.getvalue()


# --- printing --------------------------------------------------------------------------------------------------------


@given(st.text(st.characters()))
def test_a_terminal_obeys_nothing_in_a_text(text: str) -> None:
    """Of control characters only line ends and tabs get through."""
    shown = safe(text)

    assert all(
        char.isprintable() or char in "\n\t" or char in "\u200c\u200d" or char.isspace()
        for char in shown
        if char.isascii()
    )
    assert "\x1b" not in shown
    assert "\x9b" not in shown


@given(st.text(st.characters()), st.sampled_from(["ascii", "utf-8", "latin-1", "cp1252", "utf-16"]))
def test_a_stream_takes_any_text(text: str, encoding: str) -> None:
    """Writing never raises, whatever the encoding."""
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    stream = Stream(file)

    stream.write(text)

    assert stream.trouble is None
    file.close()
    stream.write("and nothing happens when it is closed")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("a\x1b", "a\x1b", id="text"),
        pytest.param((1, "a"), '[\n  1,\n  "a"\n]', id="data"),
        pytest.param(Decimal("0.10"), '"0.10"', id="decimal"),
        pytest.param(b"\xff", "\"b'\\\\xff'\"", id="bytes"),
        pytest.param(float("inf"), '"inf"', id="infinite"),
        pytest.param(Context(), "", id="empty context"),
        pytest.param(Report(finding="so", action_needed="go"), "so\naction needed: go", id="report"),
        pytest.param(
            Report.failed(Reason(code="tokens", text="no more", path="a", limit=9)),
            "failed: a: tokens: no more (limit 9)",
            id="failed report",
        ),
        pytest.param(Priced(finding="so", price=3), 'so\n{\n  "price": 3\n}', id="report of one's own"),
    ],
)
def test_any_output_can_be_shown(value: object, shown: str) -> None:
    """A text as it is, everything else as JSON."""
    assert as_text(value) == shown


def test_values_without_a_json_form_are_told_by_name() -> None:
    """One odd value never loses a result."""

    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    loop: list[Any] = []
    loop.append(loop)

    assert jsonable(loop) == "[[...]]"
    assert jsonable((Odd(), 1)) == ["<Odd>", 1]
    assert json.loads(to_json(jsonable("\ud800"))) == "\ud800"


def test_numbers_may_be_very_large() -> None:
    """Python writes no number of thousands of digits, and JSON none that is not finite: they become text."""
    assert json.loads(to_json({"a": 16**5000, "b": [float("nan")]})) == {"a": f"0x1{'0' * 5000}", "b": ["nan"]}


# --- what goes in ----------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), JSON)
def test_what_is_given_arrives_exactly(text: str, data: object) -> None:
    """INPUT as it is, JSON as the value that it writes."""
    made = context_of(Case, text, [f"data={json.dumps(data)}"])

    assert made.question == text
    assert json.loads(to_json(jsonable(made.data))) == data


@given(st.text())
def test_any_text_is_a_value(text: str) -> None:
    """What is no JSON is text, and a field that wants a text gets it."""
    made = context_of(Case, None, [f"question={text}"])

    assert made.question in {text, as_json(text)}


@given(st.dictionaries(st.sampled_from([*ADDITIVE[:-1]]), st.integers(0, 10**12)))
def test_a_budget_is_what_was_written(amounts: dict[str, int]) -> None:
    """Each dimension with its amount."""
    made = budget_from([f"{name}={amount}" for name, amount in amounts.items()])

    assert made == (Budget(**cast("Any", amounts)) if amounts else None)


@given(st.lists(st.text()), st.text())
def test_any_words_are_a_context_or_bad_use(sets: list[str], text: str) -> None:
    """Nothing else is raised."""
    try:
        made = context_of(Case, text, sets)
    except BadUse:
        return
    assert isinstance(made, Case)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_the_members_of_a_group_are_told() -> None:
    """An ExceptionGroup says little by itself."""
    group = ExceptionGroup("many", [ValueError("a"), ExceptionGroup("more", [KeyError("b")])])

    assert described(group).splitlines() == [
        "ExceptionGroup: many (2 sub-exceptions)",
        "  ValueError: a",
        "  ExceptionGroup: more (1 sub-exception)",
        "    KeyError: 'b'",
    ]


def test_a_bug_of_ours_asks_for_a_report() -> None:
    """It is told apart from what the user can mend."""
    code, said = explained(InternalError("two and two were five"))

    assert code == 1
    assert "please report it" in said


def test_a_recorder_survives_what_it_cannot_write(tmp_path: Path) -> None:
    """An event that cannot be written ends the file, not the run, and is told."""
    events = events_of(ASKS)

    with recorder(str(tmp_path / "run.jsonl")) as record:
        assert record is not None
        record(events[0])
        record(cast("Event", None))
        record(events[1])

    assert record.trouble is not None
    assert record.trouble.startswith("AttributeError")
    assert (tmp_path / "run.jsonl").read_text("ascii").count("\n") == 1


@pytest.mark.parametrize(
    "value",
    [FrozenDict({"a": (1,)}), b"\xff", 16**5000, float("nan"), "\ud800", object()],
    ids=["frozen dict", "bytes", "large", "nan", "surrogate", "object"],
)
def test_an_event_with_any_value_can_be_written_and_read(value: object) -> None:
    """One odd value never loses a trace."""
    line = event_json(Event("run", 0, 0.0, Emitted((), 0, value)))

    json.loads(line, parse_constant=pytest.fail)
    assert isinstance(read_event(line).body, Emitted)
