"""The parts of the command line that need no process: the board, the progress, and what is printed."""

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from graphflow import (
    END,
    START,
    Agent,
    Approval,
    AskUser,
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
    Result,
    State,
    Step,
    Supervisor,
    node,
    run_sync,
    start,
    tool,
)  # fmt: skip
from graphflow.cli.asking import give
from graphflow.cli.board import Board
from graphflow.cli.calls import AskedCall, Calls
from graphflow.cli.faults import BadUse, described, explained
from graphflow.cli.forms import answer_form
from graphflow.cli.going import recorder
from graphflow.cli.inputs import as_json, budget_from, context_of
from graphflow.cli.printing import Screen, Stream, safe
from graphflow.cli.progress import progress_on
from graphflow.cli.results import as_text, jsonable, to_json
from graphflow.cli.telling import Telling
from graphflow.errors import InternalError
from graphflow.events import (
    AnswerGiven,
    Body,
    Earlier,
    EdgeName,
    EffectFinished,
    EffectStarted,
    Emitted,
    Event,
    ListenerFailed,
    NodeStarted,
    RunStarted,
    TextDelta,
)
from graphflow.model.budget import ADDITIVE
from graphflow.model.ids import Segment
from graphflow.model.thread import ToolCall
from graphflow.nodes.client import ModelReply, ModelRequest
from graphflow.persistence.lines import event_json, read_event
from graphflow.testing import ScriptedModel, call


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
        "desk asks shipping: go",
        "desk > shipping hands off to customs",
        "desk > customs reports to desk: cleared",
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


def test_silence_is_told_ever_more_rarely_and_by_the_present_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five minutes in which nothing happens are a dozen lines, and their clock goes on."""
    err, now = io.StringIO(), [1_000.0]
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setattr("graphflow.cli.progress.time.monotonic", lambda: now[0])
    progress = progress_on(Screen(), TEAM, quiet=False)
    for event in events_of(TEAM)[:3]:
        progress(event)
    err.truncate(0)

    for _ in range(3_000):
        now[0] += 0.1
        progress.refresh()

    lines = [line for line in err.getvalue().splitlines() if "... " in line]
    seconds = [float(found[1].replace(",", "")) for line in lines if (found := re.search(r"([\d.,]+) of 60 s\b", line))]
    assert 10 <= len(lines) <= 14
    assert seconds == sorted(set(seconds))
    assert 270 <= seconds[-1] <= 301


def test_a_chat_counts_from_its_first_message() -> None:
    """What an earlier message has spent is of the same budget."""
    first = events_of(TEAM)[0]
    spent = Budget(node_runs=3, model_calls=2, tokens=10, usd="0.01")
    earlier = Earlier("before", (), None, spent, FrozenDict(), FrozenDict())
    board = Board()

    board.fold(Event("later", 0, 0.0, dataclasses.replace(cast("RunStarted", first.body), after=earlier)))

    assert "3 of 40 node runs" in board.spending()
    assert "2 of 9 model calls" in board.spending()


# --- agents -----------------------------------------------------------------------------------------------------------


class Way(Enum):
    """A choice."""

    CARD = "card"
    BANK = 2


class Place(BaseModel):
    """An answer of several parts."""

    street: str
    way: Way = Way.CARD
    rooms: list["Place"] = []
    tags: dict[str, int] = {}


Wide: Any = create_model("Wide", **cast("dict[str, Any]", dict.fromkeys("abcdefghijklm", (int, ...))))
PLACE = (
    'JSON: {"street": str, "way"?: "card" or 2, '
    '"rooms"?: [{"street": str, "way"?: "card" or 2, "rooms"?: [...], "tags"?: {...}}, ...], "tags"?: {...}}'
)
WIDE = "JSON: {" + ", ".join(f'"{letter}": int' for letter in "abcdefghijkl") + ", and 1 more}"


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        (None, ""),
        (str, "str"),
        (bool, "yes or no"),
        (Way, "card or 2"),
        (Literal["one"], "one"),
        (date, "date"),
        (int | None, "int or null"),
        (Any, "any JSON value"),
        (list[Way], 'JSON: ["card" or 2, ...]'),
        (dict[str, int], "JSON: {...}"),
        (list[Any], "JSON: [...]"),
        (Place, PLACE),
        (Wide, WIDE),
        (Literal[tuple(range(22))], " or ".join(map(str, range(20))) + " or 2 more"),
        (Callable[[], int], "collections.abc.Callable[[], int]"),
    ],
)
def test_a_form_says_what_fits(schema: Any, form: str) -> None:
    """Whatever type an answer must have, there are words for it."""
    assert answer_form(schema) == (f" ({form})" if form else "")


class Wild:
    """A model that says anything: what it says depends on who asks, where and when, and on nothing else."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    async def reply(self, request: ModelRequest, stream: Callable[[str], None]) -> ModelReply:
        dice = Random(f"{self.seed} {request.path} {request.turn}")
        if dice.random() < 0.1:
            raise ConnectionError("\x1b[2J\n reset")
        if dice.random() < 0.4:
            text = dice.choice(["", "\x1b[2J done\n", '{"finding": "so"}', "\u202e", "{"])
            stream(text)
            return ModelReply(text)
        return ModelReply("", tuple(self.call(dice, request) for _ in range(dice.randint(1, 4))))

    @staticmethod
    def call(dice: Random, request: ModelRequest) -> ToolCall:
        name = dice.choice([*(tool.name for tool in request.tools), "\x1bnobody\n", ""])
        good = {"objective": "go\n on", "note": "\x07", "invoice": "I", "amount": 3, "question": "?\n!", "number": 1}
        wanted = [key for tool in request.tools if tool.name == name for key in tool.parameters["properties"]]
        given = json.dumps({key: value for key, value in good.items() if key in wanted})
        return ToolCall(name, dice.choice([given, given, given, "{", "[]", '{"amount": "\x00"}', ""]))


@tool(approval=True)
def pay(invoice: str, amount: int = 1) -> str:
    """Pay."""
    return invoice * amount


@tool(retries=1, max_calls=2)
def look(number: int) -> str:
    """Look."""
    if number % 2:
        raise ValueError("\x1b odd")
    return "even"


def wild_team(seed: int) -> Graph[Case]:
    """A supervisor with a team that hands over and asks people."""
    model = Wild(seed)
    boss = Supervisor("boss\n", model=model, tools=[look])
    payer, asker = Agent("payer", model=model, tools=[pay, look]), Agent("asker?", model=model, tools=[AskUser()])
    last = Agent("last", model=model, tools=[pay], output=Report)
    return Graph(
        "wild", START >> boss >> END, boss.delegates(payer, asker, max_hops=4), payer.hands_off(last, max_hops=2),
        boss.hands_off(last, max_hops=1), last >> END, context=Case, budget=Budget(model_calls=30), max_depth=2,
    )  # fmt: skip


async def played(graph: Graph[Case], seed: int, listeners: list[Callable[[Event], None]]) -> Result[Case]:
    """Run a team, with a person who answers most questions."""
    dice = Random(seed)
    async with start(graph, Case(), listeners=listeners) as run:
        while True:
            with contextlib.suppress(ConnectionError):
                await run.result()
            if run.outcome.status != "waiting" or dice.random() < 0.1:
                return run.outcome
            for question in run.questions:
                give(run, question, dice.choice(("no, never", "yes")), None)


@given(st.integers(0, 10**6))
def test_whatever_agents_do_can_be_told(seed: int) -> None:
    """Each line is one line, each count is right, and of a run that is over nothing is kept."""
    graph = wild_team(seed)
    board, telling, calls = Board(), Telling(graph), Calls(graph)
    lines: list[str] = []
    failures: list[Event] = []

    def tell(event: Event) -> None:
        found = telling.line_of(event)
        lines.extend([found[1]] if found is not None else [])
        failures.extend([event] if isinstance(event.body, ListenerFailed) else [])

    result = anyio.run(lambda: played(graph, seed, [tell, board.fold, calls]))

    rows = board.rows.values()
    spent = result.spent.total
    assert not failures
    assert lines
    assert all(line.isprintable() for line in [*lines, *(line.text for line in board.lines(40))])
    assert sum(row.model_calls for row in rows) == spent.model_calls
    assert sum(row.tool_calls for row in rows) == spent.tool_calls
    assert sum(row.thinking for row in rows) == sum(row.tools.total() for row in rows) == 0
    assert sum(row.waiting for row in rows) == len({question.path for question in result.questions})
    assert result.status == "waiting" or sum(row.running for row in rows) == 0
    if result.status in {"completed", "partial", "failed"}:
        assert not any(calls.turn((Segment(name),)) for name in ("boss\n", "last"))


def test_a_bound_leaves_its_agent_open() -> None:
    """When the time is over, nobody thinks any more, and the row says that it could go on."""
    solo = Agent("solo", model=ScriptedModel("late", delay=60))
    graph = Graph("g", START >> solo >> END, context=Case, budget=Budget(seconds=0.01))
    board = Board()

    for event in events_of(graph):
        board.fold(event)

    assert [line.text for line in board.lines(9, ascii=True)] == ["`- = solo  open - 1 model call"]


def test_tools_that_their_agent_takes_with_it_are_not_told() -> None:
    """One tool fails its agent; that the other was stopped goes without saying."""

    @tool(on_error="raise")
    async def fail() -> None:
        raise ConnectionError("reset")

    @tool
    async def rest() -> None:
        await anyio.sleep_forever()

    solo = Agent("solo", model=ScriptedModel([call("rest"), call("fail")]), tools=[rest, fail])
    graph = Graph("g", START >> solo >> END, context=Case, budget=BUDGET)
    lines: list[str] = []
    telling = Telling(graph)

    def tell(event: Event) -> None:
        found = telling.line_of(event)
        lines.extend([found[1]] if found is not None else [])

    with pytest.raises(ConnectionError):
        run_sync(graph, Case(), listeners=[tell])

    assert [line for line in lines if "rest" in line] == ["solo calls rest()"]
    assert "solo: fail failed: ConnectionError: reset" in lines


def test_a_function_is_no_agent() -> None:
    """What a function calls its effects makes no agent of it."""

    @node
    async def solo(state: State[Case], step: Step) -> str:
        await step.effect("model", lambda: ModelReply("", (ToolCall("look"),)), key="model")
        return await step.effect("look", lambda: "x")

    graph = Graph("g", START >> solo >> END, context=Case)
    board = Board()
    for event in events_of(graph):
        board.fold(event)

    assert told_of(graph)[1:] == ["solo starts"]
    assert [line.text for line in board.lines(9, ascii=True)] == ["`- + solo"]


def test_what_nobody_knows_of_is_nothing() -> None:
    """A path that the graph does not have, a question that nobody asked, arguments that do not fit."""
    board, calls = Board(), Calls(TEAM)
    answer = Event("run", 0, 0.0, AnswerGiven("boss?0.0", Approval(approve=True, arguments=FrozenDict({"a": 1}))))

    board.fold(answer)
    calls(answer)

    assert not board.rows
    assert calls.station((Segment("nobody"),)) is None
    assert calls.station((Segment("boss"), Segment("nobody"))) is None
    assert calls.approval("boss?0.0") is None
    assert AskedCall(pay, {"amount": "much"}).arguments() == {"amount": "much"}


def test_a_row_shows_what_its_agent_does_now() -> None:
    """The tools that run, the end of what is written, how many think."""
    board, path = Board(), (Segment("solo"),)
    edge = EdgeName(None, "next", "solo")
    bodies: list[Body] = [
        NodeStarted(path, edge), EffectStarted(path, 0, "model", "model", None), TextDelta(path, 0, "one\n" * 30),
    ]  # fmt: skip

    def row() -> str:
        while bodies:
            board.fold(Event("run", 0, 0.0, bodies.pop(0)))
        return board.lines(9, ascii=True)[0].text

    writes = row()
    bodies += [EffectFinished(path, 0, 1, "model", ModelReply())]
    bodies += [EffectStarted(path, 0, str(position), name, None) for position, name in enumerate(("look", "look", "x"))]
    calls = row()
    other = (Segment("solo", 2),)
    bodies += [EffectStarted(path, 1, "model", "model", None), EffectStarted(other, 0, "model", "model", None)]
    think = row()

    assert writes == "`- > solo  1 model call - writes: …" + " one" * 15
    assert calls == "`- > solo  1 model call - 3 tool calls - calls look ×2, x"
    assert think.endswith("2 think")


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

    assert jsonable(loop) == ["<list>"]
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
