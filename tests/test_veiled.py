"""Values as they may be shown: what is marked as a secret stands in no text of ours, wherever it lies."""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

from graphflow import (
    END,
    START,
    Agent,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    Human,
    Report,
    State,
    Step,
    Supervisor,
    Update,
    node,
    resume,
    run,
    secret,
    tool,
)
from graphflow.cli.results import jsonable
from graphflow.errors import ContractError
from graphflow.events import Event
from graphflow.graphs.planning import verdict_of
from graphflow.graphs.rounds import items_of
from graphflow.model.frozen import FrozenDict
from graphflow.model.secrets import SHOWN, veiled
from graphflow.model.state import Message
from graphflow.model.thread import shown
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.providers.agents import prompt_of
from graphflow.persistence.lines import event_json
from graphflow.testing import MemoryJournal, ScriptedModel, call
from graphflow.testing.stored import plain
from graphflow.visualize import run_tree

KEY = "hunter2"


class Creds(BaseModel, frozen=True):
    """A plain model."""

    token: Annotated[str, secret] = KEY
    n: int = 1


class Tagged(Creds, frozen=True):
    """A plain model that holds a set."""

    tags: frozenset[str] = frozenset({"a", "b", "c"})
    plain: SecretStr = SecretStr(KEY)


class Login(Context):
    """A context that holds a set."""

    token: Annotated[str, secret] = KEY
    tags: frozenset[str] = frozenset({"a"})


class Sealed(Report):
    """A report."""

    finding: str = "found"
    token: Annotated[str, secret] = KEY
    tags: frozenset[str] = frozenset({"a"})


class Asked(Brief):
    """A brief."""

    objective: str = "look"
    token: Annotated[str, secret] = KEY


@dataclasses.dataclass(frozen=True)
class Data:
    """A dataclass."""

    token: Annotated[str, secret] = KEY
    n: int = 1

    @functools.cached_property
    def header(self) -> str:
        """What is made of the secret."""
        return f"Bearer {self.token}"


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    """A dataclass with slots."""

    token: Annotated[str, secret] = KEY
    n: int = 1


class Pair(NamedTuple):
    """A NamedTuple."""

    token: Annotated[str, secret] = KEY
    n: int = 1


class Holder(BaseModel, frozen=True):
    """A model that holds others, some of which its types do not tell of."""

    creds: Creds = Creds()
    data: Data = Data()
    pair: Pair = Pair()
    anything: Any = Data()
    tags: frozenset[int] = frozenset({1, 2})


class Odd(BaseModel, frozen=True):
    """A model whose own serializer shows what is marked."""

    token: Annotated[str, secret] = KEY

    @field_serializer("token")
    def _plain(self, token: str) -> str:
        return token


class Open(BaseModel, frozen=True):
    """A model that takes more than its fields."""

    model_config = ConfigDict(extra="allow")


KINDS: list[Callable[[], Any]] = [
    Creds, Tagged, Login, Sealed, Asked, Data, Slotted, Pair, Holder, Odd,
    lambda: Open.model_validate({"more": Data()}),
]  # fmt: skip

VALUES: list[Any] = [
    *(kind() for kind in KINDS),
    *((kind(), {"inside": [kind()], "set": {1, 2}}) for kind in KINDS),
    frozenset({Data(), Pair()}),
    {Pair(): 1},
    FrozenDict({"a": Slotted()}),
    collections.defaultdict(list, {"a": [Creds()]}),
    Done(Creds(), Update(login=Data())),
    Handoff("b", note=Pair()),
    Delegate(Call("b", Asked())),
    Message("a", Data()),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_text_of_ours_shows_what_is_marked(value: Any) -> None:
    """Neither what a model reads, nor JSON of events and of the command line, nor the text of a veiled value."""
    texts = [
        shown(value),
        json.dumps(jsonable(value)),
        json.dumps(plain(value)),
        repr(veiled(value)),
        str(veiled(value)),
    ]

    for text in texts:
        assert KEY not in text
    assert SHOWN in texts[3]


OURS: list[Any] = [
    Done(Creds()), Handoff("b", Data()), Message("a", Pair()), Update(x=Data()), Sealed(), Asked(),
    Delegate(Call("b", Asked())),
]  # fmt: skip


@pytest.mark.parametrize("value", OURS, ids=lambda value: type(value).__name__)
def test_our_own_classes_show_no_secret_of_what_they_hold(value: Any) -> None:
    """What a body writes of its inbox or its outcome into a text holds none."""
    assert KEY not in f"{value} {value!r} {[value]}"


def test_a_value_without_secrets_is_shown_as_it_is() -> None:
    """It is not copied; and beside a secret, all else stays."""
    values: list[Any] = ["a", 1, ("a", [1]), {"a": {1}}, Report(finding="a"), Open(), Done(1), FrozenDict({"a": (1,)})]

    for value in values:
        assert veiled(value) is value
    assert veiled(Data(n=7)) == Data(token=SHOWN, n=7)
    assert repr(veiled(Holder())).count(SHOWN) == 4
    assert shown(Tagged(n=3)) == f'{{"token": "{SHOWN}", "n": 3, "tags": ["a", "b", "c"], "plain": "{SHOWN}"}}'
    assert Data().header.endswith(KEY)


def test_what_was_computed_of_a_secret_is_computed_again() -> None:
    """A cached property is no field, and would stay with the copy."""
    value = Data()
    assert KEY in value.header

    assert veiled(value).header == f"Bearer {SHOWN}"


def test_what_cannot_be_copied_is_named() -> None:
    """A class may refuse to be copied; nothing of it is shown then, and nothing raises."""

    class Stubborn(Creds, frozen=True):
        def __copy__(self) -> Any:
            raise LookupError(self.token)

    deep: Any = Creds()
    for _ in range(5_000):
        deep = [deep]

    round_about: list[Any] = [Creds()]
    round_about += [round_about, round_about, round_about]

    assert repr(veiled(round_about)) == f"[Creds(token='{SHOWN}', n=1), '<list>', '<list>', '<list>']"
    assert veiled(Stubborn()).endswith("Stubborn>")
    assert KEY not in str(veiled(deep))


class Case(Context):
    """What a run begins with, with a plain model in it."""

    question: str = "q"
    login: Creds = Creds()


BUDGET = Budget(node_runs=9, model_calls=9)


def giving(name: str, make: Callable[[], Any]) -> FunctionNode[Any]:
    """Make a node that gives what a function makes."""

    async def gives(state: State[Any]) -> Any:
        return make()

    return node(name=name)(gives)


def to_a_person(kind: Any) -> Graph[Case]:
    """A value arrives at a person."""
    gives = giving("gives", kind)
    return Graph("g", START >> gives >> Human("h", "ok?", schema=bool) >> END, context=Case, budget=BUDGET)


def to_an_agent(kind: Any) -> Graph[Case]:
    """A value arrives at an agent."""
    gives = giving("gives", kind)
    return Graph("g", START >> gives >> Agent("a", model=ScriptedModel("done")) >> END, context=Case, budget=BUDGET)


def of_a_tool(kind: Any) -> Graph[Case]:
    """A value is what a tool gives."""

    @tool
    def get() -> Any:
        """Get it."""
        return kind()

    agent = Agent("a", model=ScriptedModel(call("get"), "done"), tools=[get])
    return Graph("g", START >> agent >> END, context=Case, budget=BUDGET)


def said(kind: Any) -> Graph[Case]:
    """A value is emitted, noted, and stands in the text of an error, in an inbox."""

    @node
    def says(state: State[Case], step: Step) -> Any:
        step.emit(kind())
        return kind()

    @node
    def breaks(state: State[Case]) -> str:
        msg = f"what is {state.inbox} of {state}"
        raise ValueError(msg)

    last = giving("last", lambda: "x")
    return Graph("g", START >> says >> breaks >> END, breaks.on_error(last), last >> END, context=Case, budget=BUDGET)


def delegated(_: Any) -> Graph[Case]:
    """A brief goes down, and a report comes back."""
    works = giving("works", Sealed)
    boss = Supervisor("boss", model=ScriptedModel(call("ask_works", objective="x"), "done"))
    edge = boss.delegates(works, max_hops=1, report=Sealed)
    return Graph("g", START >> boss >> END, edge, context=Case, budget=BUDGET, max_depth=1)


@pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("make", [to_a_person, to_an_agent, of_a_tool, said, delegated])
async def test_r9_a_marked_field_stands_in_nothing_that_a_run_says(
    make: Callable[[Any], Graph[Case]], kind: Any, anyio_backend: str
) -> None:
    """Journal, events, requests, thread, questions, tree and result show it nowhere, whatever class the field has.

    What no journal could give back is looked at without one.
    """
    stores = kind is not Holder and kind is not Odd
    journal, heard = MemoryJournal(), list[Event]()
    graph = make(kind)

    result = await run(graph, Case(), journal=journal if stores else None, run_id="r", listeners=[heard.append])

    rows = await journal.read("r") if stores else ()
    models = [found.model for found in graph.nodes.values() if isinstance(found, Agent)]
    requests = [found.requests for found in models if isinstance(found, ScriptedModel)]
    things: list[Any] = [result, result.context, result.questions, result.thread, result.failures, result.reason]
    things += [*heard, *map(str, heard), *map(event_json, heard), *rows, requests, run_tree(heard)]
    for thing in things:
        assert KEY not in (thing if isinstance(thing, str) else repr(thing))


async def test_a_run_that_asked_a_person_about_a_marked_field_is_taken_up(anyio_backend: str) -> None:
    """The question is the same when it is asked again with the secret at hand."""
    journal = MemoryJournal()
    waiting = await run(to_a_person(Creds), Case(), journal=journal, run_id="r")
    assert SHOWN in waiting.questions[0].text

    result = await resume(to_a_person(Creds), "r", journal=journal, answers={"h": True}, secrets={"token": KEY})

    assert result.status == "completed"


def test_an_error_of_a_strategy_shows_no_secret() -> None:
    """What a node gave that is no list, or no verdict, is shown without what is marked."""
    for act, wrong in ((items_of, "no list"), (verdict_of, "no verdict")):
        with pytest.raises(ContractError, match=wrong) as caught:
            act(Creds())

        assert KEY not in str(caught.value)


def test_what_an_agent_of_another_library_is_told_holds_no_secret() -> None:
    """Neither a marked field of its brief, nor that of a context that begins with one."""
    for context, message in ((Login(), Message("boss", Asked())), (Login(), Message("a", Data()))):
        assert KEY not in prompt_of(State(context, (message,), (), 0, 0))


async def test_a_brief_is_read_without_its_marked_fields(anyio_backend: str) -> None:
    """What an agent is asked by a function is told in lines, and says nothing of the secret."""
    model = ScriptedModel("done")
    works = Agent("works", model=model)

    @node(max_turns=2)
    async def boss(state: State[Case]) -> Any:
        return Delegate(Call("works", Asked())) if state.turn == 0 else "end"

    graph = Graph(
        "g", START >> boss >> END, boss.delegates(works, max_hops=1, brief=Asked), context=Case, budget=BUDGET,
        max_depth=1,
    )  # fmt: skip

    result = await run(graph, Case())

    assert result.status == "completed"
    assert SHOWN in repr(model.requests)
    assert KEY not in repr(model.requests)


def test_the_structure_of_a_graph_shows_no_default_that_is_a_secret() -> None:
    """Of contexts, contracts, answers, outputs and tools; all other defaults stand there."""

    class Wide(Context):
        question: str = "q"
        token: Annotated[str, secret] = KEY
        many: tuple[Annotated[str, secret], ...] = (KEY,)
        maybe: Annotated[str, secret] | None = Field(default=KEY, description="d")
        creds: Creds = Creds()
        pair: Pair = Pair()
        plain: SecretStr = SecretStr(KEY)
        count: int = 7

    def pay(amount: int = 5, token: Annotated[str, secret] = KEY) -> str:
        """Pay."""
        return f"{amount} {token}"

    agent = Agent("a", model=ScriptedModel(), output=Creds, tools=[pay])
    helper = Agent("b", model=ScriptedModel())
    asks = Human("h", "?", schema=Creds)
    edge = agent.delegates(helper, max_hops=1, brief=Asked, report=Sealed)
    graph = Graph("g", START >> agent >> asks >> END, edge, context=Wide, budget=BUDGET, max_depth=1)

    text = json.dumps(graph.structure())

    assert KEY not in text
    assert '"default": 7' in text
    assert '"default": 5' in text
