"""Cases L1, L3, L5, L7, L9 and L11 in runs: what is stored comes back exactly, or is refused where it was made."""

import importlib.util
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Context,
    FrozenDict,
    Graph,
    Human,
    SqliteJournal,
    State,
    Step,
    replay,
    resume,
    run,
)
from graphflow.errors import GraphChanged, JournalDamaged, JournalMismatch, NotStorable
from graphflow.testing import ManualClock, MemoryJournal, ScriptedModel, call
from tests.cases.agents import all_results
from tests.cases.processes import run_script
from tests.cases.stored import RUN, Calls, Plan, hold_every_break, play
from tests.cases.stored_functions import Log, merges, says
from tests.cases.stored_values import LOOSE, PLACES, VALUES, Held, Part, Whole, carrying, told

# --- L1, L3: exact ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("name", list(VALUES))
async def test_l1_l3_a_value_comes_back_as_it_was(name: str, place: str) -> None:
    """Enums in classes, generic models, unions, numbers, times, texts: equal and of the same types, from any record."""
    value = VALUES[name]

    whole = await hold_every_break(carrying(value, place), every=3)

    assert whole.result.status == "completed"
    assert whole.result.context.got == (told((value, value) if place == "lanes" else value),)


@pytest.mark.parametrize("place", ["an effect", "an emit"])
@pytest.mark.parametrize("name", list(LOOSE))
async def test_l3_a_value_that_could_be_changed_comes_back_as_it_was(name: str, place: str) -> None:
    """Lists, dicts and sets that an effect gives, or that are said, come back as such, with what they hold."""
    whole = await hold_every_break(carrying(LOOSE[name], place))

    assert whole.result.status == "completed"
    assert whole.result.context.got == (told(LOOSE[name]),)


KILLS = """
import sys
from pathlib import Path
from tests.cases.processes import hold_every_kill
from tests.cases.stored_values import VALUES, carrying

for name in sys.argv[2:]:
    folder = Path(name.replace(" ", "_"))
    folder.mkdir()
    print(hold_every_kill(carrying(VALUES[name], "an effect"), folder, sys.argv[1], every=4))
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_l1_l3_l11_a_fresh_process_gets_the_very_value(backend: str, tmp_path: Path) -> None:
    """The process is killed when the value is stored, and the next one says what it got: value and types."""
    names = ["an enum in a model", "generic models nested", "bytes"]

    lines = run_script(tmp_path, KILLS, backend, *names)

    assert len(lines) == len(names)
    assert all(int(line) > 1 for line in lines)


# --- L5, L9: refused -------------------------------------------------------------------------------------------------


class Id(str):  # noqa: SLOT000 - a class of the user's, as users write them
    """A text of the user's own."""


def circle() -> Any:
    """Make a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


class Rude:
    """What raises whenever somebody looks."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError


def _nothing() -> Iterator[int]:
    yield from ()


BAD: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock, "defaultdict": lambda: defaultdict(int, a=1), "Counter": lambda: Counter("aab"),
    "OrderedDict": lambda: OrderedDict([("b", 1), ("a", 2)]), "deque": lambda: deque([1, 2], maxlen=2),
    "Id": lambda: Id("x"),
    "SimpleNamespace": SimpleNamespace, "bytearray": lambda: bytearray(b"x"), "function": lambda: circle,
    "generator": _nothing, "object": object, "ValueError": lambda: ValueError("x"),
    "Rude": Rude, "list": circle, "module": lambda: threading,
}  # fmt: skip
"""What no journal could give back, by the names of its classes."""


@pytest.mark.parametrize("place", [*PLACES, "an update"])
@pytest.mark.parametrize("kind", list(BAD))
async def test_l5_l9_what_cannot_be_given_back_is_refused_at_the_node_that_made_it(kind: str, place: str) -> None:
    """The error names the place in the value and its class; the node is to blame; what was stored before is intact."""
    value = Whole(items=(1, 2, Part(meta=FrozenDict({"client": BAD[kind]()}))))
    journal = MemoryJournal()
    plan = updating(value) if place == "an update" else carrying(value, place)

    if place == "an answer":
        with pytest.raises(NotStorable, match=r"'give' holds a .* at items\[2\]\.meta\['client'\]"):
            await play(plan, journal)
        assert (await resume(plan.make(Calls()), RUN, journal=journal)).questions[0].text == "q?"
        return
    ended = await play(plan, journal)
    reason = ended.result.reason

    assert ended.result.status == "failed"
    assert reason is not None
    assert "items[2].meta['client']" in reason.text
    assert kind in reason.text
    assert reason.path == {"nested": "outer/inner/give", "a brief": "boss"}.get(place, "give")
    assert not ended.result.context.got
    await hold_every_break(plan, every=3)


def updating(value: Any) -> Plan[Any]:
    """Return the plan of a run in which a node writes a value into a text of its context."""

    def make(calls: Calls) -> Graph[Held]:
        @calls.node(into="got")
        def give(_: State[Held]) -> Whole | Part:
            found: Whole = value
            return found

        return Graph("g", START >> give >> END, context=Held)

    return Plan(make=make, context=Held())


async def test_l9_a_start_that_cannot_be_stored_does_not_start() -> None:
    """The context of the run is refused before anything runs, with the place of the value."""

    class Case(Context):
        items: tuple[Held | None, ...] = ()
        number: complex = 0

    ran: list[int] = []

    def body(state: State[Case]) -> None:
        ran.append(1)

    graph = Graph("g", START >> Calls().node(body) >> END, context=Case)
    journal = MemoryJournal()

    class Sub(Held):
        """A class that no graph declares."""

    with pytest.raises(NotStorable, match=r"the context of 'g' holds a .*Sub at items\[1\]"):
        await run(graph, Case(items=(None, Sub())), journal=journal, run_id=RUN)

    assert not ran
    assert not await journal.runs()
    with pytest.raises(NotStorable):
        await run(graph, Case.model_construct(items=[threading.Lock()]), journal=journal)


async def test_l9_a_handled_refusal_is_a_failure_like_others() -> None:
    """An error edge takes it, a fork collects it, a retry makes the value anew: the run goes on, and is stored."""

    def make(calls: Calls) -> Graph[Log]:
        bad = calls.node(lambda state: deque([1]), name="bad")

        @calls.node(retries=1)
        async def shaky(_: State[Log], step: Any) -> Any:
            return 7 if step.command.attempt else threading.Lock()

        @calls.node
        async def catches(_: State[Log], step: Step) -> str:
            try:
                await calls.effect(step, "make", Counter("aab"))
            except NotStorable as error:
                return f"caught {'collections.Counter' in str(error)}"
            return "never"

        helper, merge = says(calls, "helper"), merges(calls)
        edges = bad.on_error(helper, catch=NotStorable), helper >> merge >> END
        return Graph("g", START >> says(calls, "s") >> (bad, shaky, catches) >> merge, *edges, context=Log)

    whole = await hold_every_break(Plan(make=make, context=Log()))

    assert whole.result.status == "completed"
    assert whole.result.output == (1, 7, "caught True")


# --- L7: what is gone ------------------------------------------------------------------------------------------------

HEAD = """
import enum
from dataclasses import dataclass
from typing import NamedTuple
from pydantic import BaseModel
from graphflow import END, START, Context, Graph, Human, State, node

class Case(Context):
    goal: str = ""

"""
CLASSES = """
class Item(BaseModel, frozen=True):
    name: str
    size: int = 1

@dataclass(frozen=True)
class Spot:
    x: int

class Pair(NamedTuple):
    one: Spot
    two: Spot

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Box(BaseModel, frozen=True):
    items: tuple[Item, ...]
    color: Color
    pair: Pair

"""
TAIL = """
@node
def give(state):
    return Box(items=(Item(name="i"), Item(name="j", size=2)), color=Color.BLUE, pair=Pair(Spot(1), Spot(2)))

@node
def take(state):
    return "taken"

graph = Graph("g", START >> give >> Human("ask", "q?") >> take >> END, context=Case)
"""

ITEM = "class Item(BaseModel, frozen=True):\n    name: str\n    size: int = 1\n"
COLOR = "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
NO_ITEM = (("class Item(", "class Thing("), ("Item, ...", "Thing, ..."), ("class Box", "Item = Thing\nclass Box"))

GONE: dict[str, tuple[tuple[tuple[str, str], ...], str, str]] = {
    "a class is deleted": (((ITEM, "Item = object\n"),), "'Item'", "items[0]"),
    "a class is renamed": (NO_ITEM, "'Item'", "items[0]"),
    "the outer one is deleted": (
        (("class Box(BaseModel, frozen=True):", "def Box(**_): pass\nclass X:"),),
        "'Box'",
        "",
    ),
    "a field is gone": ((("    size: int = 1\n", ""),), "size", "items[0]"),
    "a field is new": ((("    size: int = 1\n", "    size: int = 1\n    more: int\n"),), "more", "items[0]"),
    "a field has another type": ((("    size: int = 1", "    size: str = ''"),), "size", "items[0]"),
    "a dataclass has more": ((("    x: int\n", "    x: int\n    y: int\n"),), "Spot", "pair.one"),
    "a named tuple is longer": ((("    two: Spot\n", "    two: Spot\n    three: int\n"),), "Pair", "pair"),
    "a member is gone": ((("    BLUE = 2\n", ""),), "BLUE", "color"),
    "an enum became a model": (((COLOR, "class Color(BaseModel, frozen=True):\n    x: int\n"),), "Color", "color"),
}
"""What has changed; what the error names; and the place."""


def version(folder: Path, name: str, *changes: tuple[str, str]) -> ModuleType:
    """Write a module with a graph and its classes, some of which have changed, and load it."""
    classes = CLASSES
    for old, new in changes:
        assert old in classes
        classes = classes.replace(old, new)
    file = folder / f"{name}.py"
    file.write_text(HEAD + classes + TAIL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.may_block  # modules are loaded
@pytest.mark.parametrize("change", list(GONE))
async def test_l7_a_class_that_is_gone_or_different_is_said_with_its_place(change: str, tmp_path: Path) -> None:
    """Nothing becomes a dict or None: the error names what does not fit and where; nothing is resumed."""
    changes, named, place = GONE[change]
    one, two = version(tmp_path, "one"), version(tmp_path, "two", *changes)
    journal = MemoryJournal()
    await run(one.graph, one.Case(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    heard: list[Any] = []

    with pytest.raises((JournalDamaged, JournalMismatch, GraphChanged)):
        await resume(two.graph, RUN, journal=journal, answers={"ask": 1}, listeners=[heard.append])
    with pytest.raises(GraphChanged) as caught:
        await resume(two.graph, RUN, journal=journal, changed="compatible", answers={"ask": 1})
    with pytest.raises(GraphChanged):
        await replay(two.graph, RUN, journal=journal, changed="compatible")

    assert caught.value.unfit.startswith(f"record {rows[1].seq}: ")
    assert "whole" in str(caught.value)
    assert named in str(caught.value)
    assert place in str(caught.value)
    assert not heard
    assert await journal.read(RUN) == rows


@pytest.mark.may_block  # modules are loaded
async def test_l7_a_class_that_says_the_same_is_found_again(tmp_path: Path) -> None:
    """Another module with equal classes, comments and other classes in it: the values come back."""
    one = version(tmp_path, "one")
    two = version(tmp_path, "two", (ITEM, ITEM.replace("\n", "  # one more\n")), (COLOR, f"Shade = None\n{COLOR}"))
    journal = MemoryJournal()
    await run(one.graph, one.Case(), journal=journal, run_id=RUN)

    result = await resume(two.graph, RUN, journal=journal, answers={"ask": 1}, changed="compatible")

    assert result.output == "taken"


# --- L11: texts that are no Unicode ----------------------------------------------------------------------------------

ODD = "\ud800"
"""Half of a surrogate pair, which no UTF-8 can hold."""


def odd(calls: Calls) -> Graph[Log]:
    """Put odd texts everywhere: names, notes, errors, questions, answers, keys, replies, arguments, reports."""

    @calls.node(name=f"body {ODD}")
    async def body(state: State[Log], step: Step) -> Any:
        step.emit({ODD: b"\xff\xfe"})
        text: Any = None
        try:
            await calls.effect(step, f"fails {ODD}", LookupError(ODD))
        except LookupError as error:
            text = await calls.effect(step, f"name {ODD}", (str(error), b"\xff\xfe"), key=ODD)
        await step.sleep(1)
        return text

    agent = calls.agent(
        f"agent {ODD}",
        [call("ask_user", question=f"who {ODD}?"), call(f"tool{ODD}", x=ODD)],
        all_results,
        f"{ODD}!",
        tools=[AskUser()],
        instructions=f"{ODD}",
    )
    human = Human(f"human {ODD}", f"what {ODD}?")
    broken = calls.node(name=f"broken {ODD}")(_raises)
    helper = says(calls, f"helper {ODD}")
    return Graph(
        f"graph {ODD}",
        START >> body >> agent >> human >> broken >> END,
        broken.on_error(helper, catch=OSError),
        helper >> END,
        context=Log,
    )


async def _raises(_: State[Log]) -> None:
    raise OSError(ODD)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_l11_half_a_surrogate_pair_is_stored_as_it_is(store: str, tmp_path: Path) -> None:
    """One form for all texts: whatever holds one, in whatever place, the run ends alike from every record."""
    numbers = iter(range(1000))
    answers = {f"who {ODD}?": f"me {ODD}", f"what {ODD}?": {f"{ODD}": [f"{ODD}\x00"]}}
    plan = Plan(make=odd, context=Log(goal=ODD, lines=(ODD,)), answers=answers)

    whole = await hold_every_break(
        plan,
        MemoryJournal if store == "memory" else lambda: SqliteJournal(tmp_path / f"{next(numbers)}.db"),
        every=1 if store == "memory" else 4,
    )

    assert (whole.result.status, whole.result.output) == ("completed", 1)
    assert whole.result.context.lines == (ODD, f"helper {ODD}")
    for row in whole.rows:
        row.fact.encode()
        row.decisions.encode()


async def test_l11_a_model_and_a_tool_that_say_odd_texts_are_stored() -> None:
    """What a tool gives, what a model writes, arguments and ids of calls: a replay has them letter by letter."""
    journal = MemoryJournal()

    def look(what: str) -> str:
        """Look."""
        return f"{what}{ODD}\x00"

    model = ScriptedModel(call("look", what="x"), lambda request: request.messages[-1].text + "\ude00")
    agent = Agent("agent", model=model, tools=[look])
    graph = Graph("g", START >> agent >> END, context=Log)
    result = await run(graph, Log(goal=ODD), journal=journal, run_id=RUN)

    again = await replay(graph, RUN, journal=journal)

    assert again == result
    assert result.output == f"x{ODD}\x00\ude00"
