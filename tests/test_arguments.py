"""What nodes, edges, graphs and steps are given: what makes no sense is refused where it stands, by its name."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    MemoryJournal,
    PostgresJournal,
    SqliteJournal,
    State,
    Step,
    node,
    on,
    on_active,
    quorum,
    run,
    run_sync,
    tool,
    when,
)
from graphflow.errors import UsageError
from graphflow.testing import ScriptedModel
from graphflow.visualize import draw, to_dot


def short(value: object) -> str:
    """Name a case."""
    return repr(value)[:18]


WRONG_SECONDS = (10**400, float("inf"), float("nan"), Decimal("NaN"), Decimal("Infinity"), "5", True, 0, -1)
MODEL = ScriptedModel({})


class Case(Context):
    """What the nodes see."""

    question: str = "q"


@node
async def a(state: State[Case]) -> int:
    """Give a number."""
    return 1


@node
async def b(state: State[Case]) -> int:
    """Give a number too."""
    return 1


def items(state: State[Case]) -> tuple[int, ...]:
    """Give what a map runs over."""
    return (1,)


def body(state: State[Any]) -> None:
    """Do nothing."""


def look(name: str) -> str:
    """Look something up."""
    return name


def graph(end: Any = a, **options: Any) -> Graph[Case]:
    """Make a graph of one node."""
    return Graph("g", START >> end >> END, context=Case, budget=Budget(node_runs=5), **options)


def never(state: State[Case]) -> bool:
    """Hold for nothing."""
    return False


def wrong(value: object) -> Any:
    """Give a value as if it had the right type."""
    return cast("Any", value)


TIMED: dict[str, Callable[[Any], object]] = {
    "node": lambda seconds: node(timeout=seconds)(body),
    "agent": lambda seconds: Agent("x", model=MODEL, timeout=seconds),
    "tool": lambda seconds: tool(timeout=seconds)(look),
    "delegates": lambda seconds: a.delegates(b, max_hops=1, timeout=seconds),
    "quorum": lambda seconds: quorum(2, within=seconds),
}


@pytest.mark.parametrize("seconds", WRONG_SECONDS, ids=short)
@pytest.mark.parametrize("made", TIMED)
def test_a_time_that_cannot_be_waited_for_is_refused(made: str, seconds: object) -> None:
    """One rule holds for every time: a finite number of seconds above 0, or None."""
    name = "within=" if made == "quorum" else "timeout="

    with pytest.raises(UsageError) as refused:
        TIMED[made](seconds)

    assert f"{name}{seconds!r}: a finite number of seconds above 0 is needed, or None." in str(refused.value)


@pytest.mark.parametrize("seconds", [10**400, float("inf"), Decimal(1), "5", True, -1], ids=short)
def test_a_budget_and_a_script_take_no_such_time_either(seconds: object) -> None:
    """There, 0 is allowed; the rest is refused."""
    for make in (lambda: Budget(seconds=wrong(seconds)), lambda: ScriptedModel({}, delay=wrong(seconds))):
        with pytest.raises(ValueError, match="a finite number") as refused:
            make()

        assert f"={seconds!r}" in str(refused.value)


NODES: dict[str, tuple[Callable[[], object], str]] = {
    "a person's question": (lambda: Human("h", wrong(5)), "question=5: a text is needed"),
    "the name of a type": (lambda: Human("h", schema="Nope"), "schema='Nope': the type itself"),
    "a schema without a hash": (lambda: Human("h", schema=[]), "schema=[]: a type is needed"),
    "the name of an answer's type": (lambda: AskUser(schema="Nope"), "schema='Nope': a type"),
    "a description": (lambda: AskUser(description=wrong(3)), "description=3: a text is needed"),
    "a policy": (lambda: a.map(b, over=items, join=b, failure=wrong("colect")), "failure='colect'"),
    "what is mapped over": (lambda: a.map(b, over=wrong(5), join=b), "over=5: a function"),
    "a class as a lane": (lambda: a.map(wrong(Agent), over=items, join=b), "make a node of it: Agent(...)"),
    "a class as a join": (lambda: a.map(b, over=items, join=wrong(Agent)), "map: join: <class"),
    "costs": (lambda: node(costs=wrong({"model_calls": 1}))(body), "costs={'model_calls': 1}: a Budget"),
    "no function": (lambda: node(wrong(5)), "node(5): a function is needed"),
    "a name in place of a function": (lambda: node(wrong("name")), "as @node(name=...)"),
    "a gate": (lambda: Agent("x", model=MODEL, gate=wrong("x")), "gate='x': True or False."),
    "reduce": (lambda: Join("j", reduce=wrong(5)), "reduce=5: a function of what arrived"),
    "the version of a node": (lambda: node(version=wrong(b"1"))(body), "version=b'1': a text is needed, or None."),
    "the version of a tool": (lambda: tool(version=wrong(3))(look), "version=3: a text is needed, or None."),
    "the field of an agent": (lambda: Agent("x", model=MODEL, into=wrong([])), "into=[]: a text is needed"),
    "the field of a person": (lambda: Human("h", into=wrong({})), "into={}: a text is needed"),
    "the field of a team": (lambda: a.delegates(b, into=wrong({})), "into={}: a text is needed"),
    "the field of a graph": (lambda: graph(into=[]), "into=[]: a text is needed"),
    "the retries of an agent": (lambda: Agent("x", model=MODEL, retries=wrong(None)), "retries=None: a whole number"),
    "the retries of a node": (lambda: node(retries=wrong(None))(body), "retries=None: a whole number"),
    "rights": (lambda: Agent("x", model=MODEL, rights=wrong({"a": 1})), "rights={'a': 1}: names of tools"),
    "fields": (lambda: Agent("x", model=MODEL, reads=wrong(5)), "reads=5: names of fields"),
    "a class as a target": (lambda: when(never, wrong(Agent)), "when: to: <class"),
    "a class after a node": (lambda: a >> wrong(Agent), "make a node of it: Agent(...)"),
    "who spoke": (lambda: on_active(wrong(Agent)), "on_active: <class"),
    "a default": (lambda: a.choose(on(1, b), default=wrong(5)), "choose: default: 5 is no branch"),
    "what is escalated to": (lambda: graph(escalate=Agent), "escalate: <class"),
    "detectors": (lambda: graph(detect=5), "detect=5"),
    "no detectors": (lambda: graph(detect=None), "detect=None"),
    "enter": (lambda: graph(enter=5), "enter=5: a function of the state"),
    "a tool": (lambda: Agent("x", model=MODEL, tools=[wrong(None)]), "Agent 'x': tools: None is no tool"),
    "a fallback": (lambda: Agent("x", model=MODEL, fallbacks=[wrong(None)]), "fallbacks=None: a ModelClient"),
    "an id": (lambda: run_sync(graph(), Case(), run_id=wrong(5)), "run_id=5 cannot be the id of a run"),
    "no graph to draw": (lambda: draw(wrong("x"), "x.svg"), "'x' cannot be drawn: a Graph is needed"),
    "no events": (lambda: to_dot(graph(), run=wrong("x")), "run=...: the events of a run are needed"),
    "no problems": (lambda: to_dot(graph(), problems=wrong("x")), "problems='x'"),
    "a path": (lambda: SqliteJournal(wrong(5)), "path=5 is no path"),
    "patience": (lambda: SqliteJournal("x.db", patience=wrong("5")), "patience='5'"),
    "an address": (lambda: PostgresJournal(wrong(5)), "conninfo= and schema= are texts"),
    "an address that is no text": (lambda: PostgresJournal("\ud800"), "conninfo is not a connection string"),
    "a schema": (lambda: PostgresJournal(schema=wrong(5)), "conninfo= and schema= are texts"),
    "pieces": (lambda: ScriptedModel({}, stream_pieces=wrong("5")), "stream_pieces='5': a whole number"),
}


@pytest.mark.parametrize("case", NODES)
def test_what_is_given_is_refused_by_its_name(case: str) -> None:
    """The error says which argument, its value, and what is needed."""
    make, words = NODES[case]

    with pytest.raises(UsageError) as refused:
        make()

    assert words in str(refused.value)


def test_one_name_may_stand_for_itself() -> None:
    """A text in place of a list of names is one name, and not its letters."""
    assert Agent("x", model=MODEL, reads="question").reads == frozenset(["question"])
    assert node(writes="question")(body).writes == frozenset(["question"])


EFFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "a number as its name": ({"name": 1}, "effect(name=1): a text is needed"),
    "no name": ({"name": None}, "effect(name=None): a text is needed"),
    "a number as its key": ({"key": 5}, "effect('pay', key=5): a key is any text"),
    "no function": ({"fn": 3}, "effect('pay', 3): a function is needed"),
    "a cost that is no budget": ({"cost": {"tool_calls": 1}}, "cost={'tool_calls': 1}): a Budget"),
    "a usage that is no function": ({"usage": 4}, "usage=4): a function from the result"),
    "a usage that gives no budget": ({"usage": len}, "usage=... gave 4: a Budget is needed"),
}


@pytest.mark.parametrize("case", EFFECTS)
async def test_an_effect_that_could_not_be_recorded_is_refused(case: str, anyio_backend: str) -> None:
    """The body hears it as its own error, and what is stored can be read."""
    options, words = EFFECTS[case]
    heard: list[str] = []

    @node
    async def pays(state: State[Case], step: Step) -> str:
        asked: dict[str, Any] = {"name": "pay", "fn": lambda: "paid", **options}
        try:
            return str(await step.effect(asked.pop("name"), asked.pop("fn"), **asked))
        except UsageError as error:
            heard.append(str(error))
            return "refused"

    journal = MemoryJournal()
    result = await run(graph(pays), Case(), journal=journal, run_id="r")

    assert result.output == "refused"
    assert len(heard) == 1
    assert words in heard[0]
    assert (await journal.read("r"))[-1].seq > 0


async def test_a_step_refuses_what_is_no_time_and_no_class(anyio_backend: str) -> None:
    """`sleep` takes seconds, `resource` takes a class."""

    @node
    async def asks(state: State[Case], step: Step) -> tuple[str, ...]:
        heard: list[str] = []
        for seconds in (None, "5", True, 10**400):
            with pytest.raises(UsageError) as refused:
                await step.sleep(wrong(seconds))
            heard.append(str(refused.value))
        with pytest.raises(UsageError) as refused:
            step.resource(wrong("Ledger"))
        return (*heard, str(refused.value))

    result = await run(graph(asks), Case())

    assert all("a finite number of seconds" in text for text in result.output[:-1])
    assert result.output[-1] == "'asks' asked for resource('Ledger'): the class itself is needed."
