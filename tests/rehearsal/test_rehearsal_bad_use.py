"""What a rehearsal says of what cannot be, in Python and on the command line: one error, and nothing has run."""

import asyncio
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pydantic import BaseModel

from graphflow import END, START, Agent, Context, Graph, ModelRequest, Node, Price, State, Step, node, run_sync
from graphflow.cli import main
from graphflow.errors import UsageError
from graphflow.rehearsal import Choices, End, Fixed, LogNormal, Recorded, Uniform, rehearse, rehearse_sync
from graphflow.rehearsal.distributions import distribution, said
from graphflow.rehearsal.made import maker
from graphflow.testing import ScriptedModel

HUGE: Final = 10**400
UNWRITABLE: Final = 10**5000
"""Python writes no whole number of so many digits."""


class Case(Context):
    question: str = "Why?"


class Endless(BaseModel, frozen=True):
    name: str
    kid: "Endless"


class Tree(BaseModel, frozen=True):
    name: str
    left: "Tree | None"
    middle: "Tree | None"
    right: "Tree | None"
    more: "tuple[Tree, ...]"


def one(**more: Any) -> Graph[Case]:
    """Return a graph of one agent."""
    return Graph("one", START >> Agent("desk", model=ScriptedModel(), **more) >> END, context=Case)


def of_body(body: Callable[..., Any]) -> Graph[Case]:
    """Return a graph of one function."""
    leaves: Node[Case] = node(name="leaves")(body)
    return Graph("one", START >> leaves >> END, context=Case)


class Draws:
    """A distribution that gives what it is told."""

    def __init__(self, value: object) -> None:
        self.value = value

    def draw(self, _: Random) -> Any:
        return self.value


# --- in Python -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param({"latency": HUGE}, r"latency: Fixed\(value=1000.*at most 1e\+15 is needed", id="latency"),
        pytest.param({"latency": [HUGE]}, r"latency: Recorded\(sample=1000", id="sample"),
        pytest.param({"latency": 1e308}, r"Fixed\(value=1e\+308\): a finite number", id="no sum"),
        pytest.param({"latency": {3: 1}}, r"latency=\{3: ...\}: a name is needed", id="name"),
        pytest.param({"tool_latency": {3: 1}}, r"tool_latency=\{3: ...\}: a name is needed", id="name of a tool"),
        pytest.param({"latency": Draws("x")}, r"gave 'x'; a finite number of at least 0", id="drawn text"),
        pytest.param({"latency": Draws(HUGE)}, r"gave 1000.*at most 1e\+100", id="drawn"),
        pytest.param({"input_tokens": Draws(math.nan)}, r"gave nan; a finite number", id="drawn nan"),
        pytest.param({"resources": 3}, r"resources=3: a list of what `step.resource` finds", id="resources"),
        pytest.param({"resources": None}, r"resources=None: a list", id="no resources"),
        pytest.param({"resources": "abc"}, r"resources='abc': a list", id="letters"),
        pytest.param({"resources": {"a": 1}}, r"resources=\{'a': 1\}: a list", id="table"),
        pytest.param({"backend": "x"}, r"backend='x'\): 'asyncio' or 'trio' is needed", id="backend"),
        pytest.param({"backend": None}, r"backend=None\): 'asyncio' or 'trio' is needed", id="no backend"),
        pytest.param({"backend": ["trio"]}, r"backend=\['trio'\]\): 'asyncio' or 'trio'", id="backends"),
        pytest.param({"seed": UNWRITABLE}, r"seed=\(a value of int that cannot.*at most 100 digits", id="seed"),
        pytest.param({"seed": -UNWRITABLE}, r"seed=.*at most 100 digits", id="negative seed"),
        pytest.param({"runs": -UNWRITABLE}, r"runs=.*of at least 1", id="runs"),
        pytest.param({"max_parallel": UNWRITABLE}, r"max_parallel=.*at most 100 digits", id="max_parallel"),
        pytest.param({"budget": UNWRITABLE}, r"budget=.*a Budget is needed", id="budget"),
        pytest.param({"price": UNWRITABLE}, r"price=.*a Price of two Decimals", id="price"),
        pytest.param(
            {"price": Price(Decimal("1e999999"), Decimal(1))},
            r"price=.*at most 1,000 US dollars for a token",
            id="dear",
        ),
        pytest.param({"approval_rate": UNWRITABLE}, r"approval_rate=.*a probability from 0 to 1", id="approval"),
        pytest.param({"choices": UNWRITABLE}, r"choices=.*Choices\(act=", id="choices"),
        pytest.param({"stand_ins": {1: UNWRITABLE}}, r"stand_ins=.*to functions is needed", id="stand-ins"),
    ],
)
def test_what_cannot_be_rehearsed_is_told(options: dict[str, Any], complaint: str) -> None:
    """With the argument, its value, in short where it is long, and the rule."""
    with pytest.raises(UsageError, match=complaint) as raised:
        rehearse_sync(one(), Case(), **options)

    assert len(str(raised.value)) < 600


def test_a_backend_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trio is none, asyncio does."""
    monkeypatch.setitem(sys.modules, "trio", None)

    with pytest.raises(
        UsageError, match=r"backend='trio'\): it is not installed; install it, or leave it at 'asyncio'"
    ):
        rehearse_sync(one(), Case(), backend="trio")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(HUGE),
        lambda: Uniform(0, UNWRITABLE),
        lambda: LogNormal(1, HUGE),
        lambda: Recorded(3),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: Choices(act=HUGE),
        lambda: distribution(3),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
    ids=["fixed", "uniform", "lognormal", "recorded", "choices", "text"],
)
def test_a_value_that_makes_no_sense_is_told_where_it_is_made(make: Callable[[], object]) -> None:
    """A distribution of what is too large, or of no numbers, is none."""
    with pytest.raises(UsageError, match="needed"):
        make()


def test_what_cannot_be_written_is_said_in_other_words() -> None:
    """An error is told whatever the `__repr__` of a value does, and is short."""

    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    assert said(Odd()) == "(a value of Odd that cannot be written)"
    assert said("x" * 1000).endswith("... (1,002 characters)")


# --- what holds itself -----------------------------------------------------------------------------------------------


def test_an_output_that_holds_itself_without_an_end_is_refused_before_the_first_run() -> None:
    """No value has such a type, and the error says what to give instead."""
    with pytest.raises(UsageError, match=r"the answer of 'desk'.*'#/\$defs/Endless', which holds itself.*stand_ins="):
        rehearse_sync(one(output=Endless), Case())


def test_an_effect_that_gives_what_has_no_end_is_told() -> None:
    """As of any effect that no value can be drawn for."""

    def grows() -> Endless:
        raise AssertionError

    async def body(_: State[Case], step: Step) -> None:
        await step.effect("grow", grows)

    with pytest.raises(UsageError, match=r"the effect 'grow' of 'leaves'.*holds itself without an end"):
        rehearse_sync(of_body(body), Case(), runs=2)


def test_an_output_that_may_hold_itself_is_drawn_with_an_end() -> None:
    """However many parts may hold it: it is never drawn inside of itself."""
    schema = Tree.model_json_schema()

    found = [Tree.model_validate(maker(schema, "a test")(Random(seed))) for seed in range(50)]

    assert all((tree.left, tree.middle, tree.right, tree.more) == (None, None, None, ()) for tree in found)


def test_many_classes_that_hold_each_other_are_drawn_soon() -> None:
    """The parts of an expression may be any other: not all ways through them are looked at."""
    names = [f"Node{number}" for number in range(10)]
    any_of = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in [*names, "Leaf"]]}
    two = {"type": "object", "required": ["left", "right"], "properties": {"left": any_of, "right": any_of}}
    schema = {**any_of, "$defs": {**dict.fromkeys(names, two), "Leaf": {"const": 1}}}

    found = str(maker(schema, "a test")(Random(1)))

    assert 1 <= found.count("1") <= 8


def test_a_part_that_cannot_be_drawn_leaves_others_that_can() -> None:
    """A type that was given up on in one place is drawn in another."""
    schema = {
        "anyOf": [{"$ref": "#/$defs/A"}, {"const": 1}],
        "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}},
    }

    assert maker(schema, "a test")(Random(0)) == 1
    with pytest.raises(UsageError, match="a choice with nothing simple"):
        maker({"anyOf": []}, "a test")


# --- what ends a program ---------------------------------------------------------------------------------------------

ENDS: Final = [KeyboardInterrupt("stop"), SystemExit(3)]


@pytest.mark.parametrize("error", ENDS, ids=["interrupt", "exit"])
@pytest.mark.parametrize("where", ["body", "sync body", "effect", "model", "cleanup"])
async def test_what_ends_a_program_passes_in_no_group(anyio_backend: object, where: str, error: BaseException) -> None:
    """KeyboardInterrupt and SystemExit end a rehearsal wherever they are raised; the very object comes out."""

    def throw(*_: object) -> Any:
        raise error

    async def body(_: State[Case], step: Step) -> None:
        if where == "body":
            throw()
        await step.effect("throw", throw)

    def says(_: ModelRequest) -> Any:
        throw()

    def in_a_thread(_: State[Case]) -> None:
        throw()

    async def cleans(_: State[Case], step: Step) -> None:
        try:
            await step.sleep(10)
        finally:
            throw()

    bodies: dict[str, Callable[..., Any]] = {"sync body": in_a_thread}
    graph = one() if where == "model" else of_body(bodies.get(where, body))
    if where == "cleanup":
        graph = Graph("one", START >> node(name="leaves", timeout=1)(cleans) >> END, context=Case)

    with pytest.raises(type(error)) as raised:
        await rehearse(graph, Case(), runs=2, stand_ins={"desk": says, "throw": throw})

    assert anyio_backend
    assert raised.value is error


def test_a_cancellation_that_nobody_asked_for_fails_its_node_as_in_a_run() -> None:
    """A body that raises one is told by name."""

    async def body(_: State[Case]) -> None:
        raise asyncio.CancelledError

    graph = of_body(body)

    found = rehearse_sync(graph, Case(), runs=2)
    ran = run_sync(graph, Case())

    assert ran.reason is not None
    assert dict(found.ends) == {End(ran.status, f"{ran.reason.code} at leaves"): 2}


# --- on the command line ---------------------------------------------------------------------------------------------

TEAM: Final = '''
"""Graphs that are rehearsed badly."""
from pydantic import BaseModel
from graphflow import END, START, Agent, Context, Graph, State, node, tool
from graphflow.testing import ScriptedModel


class Case(Context):
    question: str = "Why?"


class Endless(BaseModel, frozen=True):
    kid: "Endless"


@tool
def look(number: str) -> str:
    """Look up."""
    return "paid"


@node
async def leaves(state: State[Case]) -> str:
    raise SystemExit(3)


@node
def leaves_in_a_thread(state: State[Case]) -> str:
    raise SystemExit(3)


@node
async def breaks(state: State[Case]) -> str:
    raise KeyboardInterrupt


model = ScriptedModel()
graph = Graph("one", START >> Agent("desk", model=model, tools=[look]) >> END, context=Case)
endless = Graph("endless", START >> Agent("desk", model=model, output=Endless) >> END, context=Case)
leave = Graph("leave", START >> leaves >> END, context=Case)
thread = Graph("thread", START >> leaves_in_a_thread >> END, context=Case)
stop = Graph("stop", START >> breaks >> END, context=Case)
'''


@pytest.fixture(name="folder")
def folder_with_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that one stands in, with a file of graphs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    (tmp_path / "badly_rehearsed.py").write_text(TEAM, "utf-8")
    (tmp_path / "folder.svg").mkdir()
    return tmp_path


MONEY: Final = "two amounts of at least 0 are needed, as 3,15"


@pytest.mark.may_block
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--approval-rate", "x=1"], "--approval-rate x=1: there is one for all, which takes no name; write"),
        (["--people-latency", "x=1"], "which takes no name; write --people-latency 1."),
        (["--approval-rate", ""], "--approval-rate : '' is no number."),
        (["--price", "1e999999999,1"], f"--price 1e999999999,1: {MONEY}"),
        (["--price", "1e400,1"], f"--price 1e400,1: {MONEY}"),
        (["--price", "inf,1"], f"--price inf,1: {MONEY}"),
        (["--price", "snan,1"], f"--price snan,1: {MONEY}"),
        (["--price", "1,2,3"], f"--price 1,2,3: {MONEY}"),
        (["--latency", "1e400"], "--latency 1e400: Fixed(value=inf): a finite number"),
        (["--latency", "1e308"], "--latency 1e308: Fixed(value=1e+308): a finite number"),
        (["--latency", "des=2"], "--latency des=2: nothing here has the name 'des'; there are 'desk'. Did you mean"),
        (["--act", "x=1"], "--act x=1: nothing here has the name 'x'; there are 'desk'."),
        (["--tool-tokens", "x=1"], "--tool-tokens x=1: nothing here has the name 'x'; there are 'look'."),
        (["--failure-rate", "x=1"], "--failure-rate x=1: nothing here has the name 'x'"),
        (["--tool-failure-rate", "desk=1"], "--tool-failure-rate desk=1: nothing here has the name 'desk'"),
        (["--plot", "nowhere/plot.svg"], "--plot nowhere/plot.svg: it cannot be written: No such file or directory."),
        (["--plot", "folder.svg"], "--plot folder.svg: it cannot be written: Is a directory."),
        (["--plot", "a\0.svg"], "it cannot be written: embedded null byte."),
        (["--seed", "9" * 5000], "--seed"),
        (["--seed", "9" * 200], "at most 100 digits is needed"),
    ],
)
def test_bad_words_are_told(folder: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, before anything runs, with the words that were written and what to write."""
    before = sorted(folder.iterdir())

    code = main(["rehearse", "badly_rehearsed.py", *words])

    said = capsys.readouterr()
    assert code == 2
    assert complaint in said.err
    assert "bug in graphflow" not in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before


@pytest.mark.may_block
def test_an_endless_output_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to give instead."""
    assert folder.is_dir()
    assert main(["rehearse", "badly_rehearsed.py:endless"]) == 2

    said = capsys.readouterr().err
    assert said.startswith("graphflow: the answer of 'desk': its schema has the reference '#/$defs/Endless'")
    assert "in the field 'kid'" in said
    assert "stand_ins={'desk': function}" in said


@pytest.mark.may_block
@pytest.mark.parametrize("graph", ["leave", "thread", "stop"])
def test_a_body_that_ends_a_program_ends_a_rehearsal_as_it_ends_a_run(
    folder: Path, graph: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The same code, the same words, and no traceback, not in a log either."""
    assert folder.is_dir()
    ran = main(["run", f"badly_rehearsed.py:{graph}", "--no-store", "-q"]), capsys.readouterr().err

    code = main(["rehearse", f"badly_rehearsed.py:{graph}", "--runs", "5"])
    first, _, rest = capsys.readouterr().err.partition("\n")

    assert first.endswith("run; what they do outside of step.effect really happens.")
    assert (code, rest) == ran
    assert caplog.records == []


@pytest.mark.may_block
def test_trying_a_picture_keeps_what_stands_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the rehearsal does not come to its end, the file is as it was."""
    (folder / "plot.svg").write_text("<svg/>", "utf-8")

    assert main(["rehearse", "badly_rehearsed.py", "--plot", "plot.svg", "--price", "x,1"]) == 2
    assert (folder / "plot.svg").read_text("utf-8") == "<svg/>"
    assert main(["rehearse", "badly_rehearsed.py", "--plot", "new.svg", "--runs", "3"]) == 0
    assert (folder / "new.svg").read_text("utf-8").startswith("<svg xmlns=")
    assert "how they end" in capsys.readouterr().out
