"""Values and errors of users in our texts: no secret, no password of an address, and nothing that their code raises."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Brief,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Report,
    SqliteJournal,
    State,
    Update,
    node,
    quorum,
    resume,
    run,
    secret,
    tool,
    when,
)
from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.mcp import McpServer
from graphflow.model.telling import error_text, value_text
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.providers.model import ProviderModel
from graphflow.persistence.lines import event_json
from graphflow.persistence.postgres import PostgresJournal
from graphflow.testing import MemoryJournal, ScriptedModel

KEY = "hunter2"


class Login(BaseModel, frozen=True):
    """A model of the user with secrets."""

    user: str
    token: Annotated[str, secret]
    plain: SecretStr = SecretStr(KEY)


class Case(Context):
    """A context."""

    question: str = "q"


class Broken:
    """A value whose own text cannot be made."""

    def __repr__(self) -> str:
        """Raise."""
        raise LookupError

    __str__ = __repr__


@node
def first(state: State[Case]) -> str:
    """Answer."""
    return state.context.question


asks = Human("asks", "Who?", schema=Login)
BUDGET = Budget(node_runs=3, model_calls=3)
GRAPH = Graph("g", START >> asks >> END, context=Case, budget=BUDGET)
ODD: Any = Broken()
SEALED: Any = Login(user="me", token=KEY)

DEFINED: dict[str, Callable[[Any], object]] = {
    "Agent(model=)": lambda odd: Agent("a", model=odd),
    "Agent(tools=)": lambda odd: Agent("a", model=ScriptedModel(), tools=odd),
    "Agent(tools=[])": lambda odd: Agent("a", model=ScriptedModel(), tools=[odd]),
    "Agent(instructions=)": lambda odd: Agent("a", model=ScriptedModel(), instructions=odd),
    "Agent(deny=)": lambda odd: Agent("a", model=ScriptedModel(), deny=odd),
    "Agent(timeout=)": lambda odd: Agent("a", model=ScriptedModel(), timeout=odd),
    "AskUser(schema=)": lambda odd: AskUser(schema=odd),
    "Budget(tokens=)": lambda odd: Budget(tokens=odd),
    "Budget(usd=)": lambda odd: Budget(usd=odd),
    "Graph(context=)": lambda odd: Graph("g", START >> first >> END, context=odd),
    "Graph(budget=)": lambda odd: Graph("g", START >> first >> END, context=Case, budget=odd),
    "Graph(statement)": lambda odd: Graph("g", odd, context=Case),
    "Join(policy)": lambda odd: Join("j", odd),
    "quorum(k)": quorum,
    "when(test)": lambda odd: when(odd, first),
    "a >> b": lambda odd: first >> odd,
    "delegates": lambda odd: first.delegates(odd, max_hops=1),
    "on_error(catch=)": lambda odd: first.on_error(first, catch=odd),
    "tool": tool,
    "McpServer(url=)": lambda odd: McpServer("x", url=odd),
    "McpServer(headers=)": lambda odd: McpServer("x", url="http://127.0.0.1:1", headers=odd),
    "ProviderModel": ProviderModel,
    "ProviderModel(timeout=)": lambda odd: ProviderModel("openai:x", timeout=odd),
}

RUN: dict[str, Callable[[Any], Awaitable[object]]] = {
    "journal": lambda odd: run(GRAPH, Case(), journal=odd),
    "budget": lambda odd: run(GRAPH, Case(), budget=odd),
    "resources": lambda odd: run(GRAPH, Case(), resources=odd),
    "redact": lambda odd: run(GRAPH, Case(), redact=odd),
    "clock": lambda odd: run(GRAPH, Case(), clock=odd),
    "before": lambda odd: run(GRAPH, Case(), before=odd),
    "listeners": lambda odd: run(GRAPH, Case(), listeners=[odd]),
    "run_id": lambda odd: run(GRAPH, Case(), run_id=odd),
    "after": lambda odd: run(GRAPH, Case(), after=odd),
    "graph": lambda odd: run(odd, Case()),
    "context": lambda odd: run(GRAPH, odd),
    "answers": lambda odd: resume(GRAPH, "r", journal=MemoryJournal(), answers=odd),
    "changed": lambda odd: resume(GRAPH, "r", journal=MemoryJournal(), changed=odd),
}


@pytest.mark.parametrize("odd", [ODD, SEALED], ids=["broken", "secret"])
@pytest.mark.parametrize("what", list(DEFINED))
def test_an_argument_of_a_definition_is_told_whatever_it_is(what: str, odd: Any) -> None:
    """The error is ours and says what is wrong, even of a value that cannot be shown; and it shows no secret."""
    with pytest.raises((UsageError, ValueError, TypeError)) as caught:
        DEFINED[what](odd)

    assert KEY not in str(caught.value)


@pytest.mark.parametrize("odd", [ODD, SEALED], ids=["broken", "secret"])
@pytest.mark.parametrize("what", list(RUN))
async def test_an_argument_of_a_run_is_told_whatever_it_is(what: str, odd: Any, anyio_backend: str) -> None:
    """The same for what a run is given."""
    with pytest.raises(UsageError) as caught:
        await RUN[what](odd)

    assert KEY not in str(caught.value)


def test_a_value_is_shown_as_it_is_unless_it_holds_a_secret() -> None:
    """The helper adds nothing and takes nothing else away."""
    shown = [value_text(found) for found in (7, "a", [1], first, {"u": "http://example.com/a:b@c"}, ODD, SEALED)]

    assert shown[:5] == ["7", "'a'", "[1]", "<FunctionNode 'first'>", "{'u': 'http://example.com/a:b@c'}"]
    assert shown[5] == "<Broken, whose repr raises LookupError>"
    assert shown[6] == "Login(user='me', token='**********', plain=SecretStr('**********'))"


@pytest.mark.parametrize("scheme", ["postgresql", "postgress", "POSTGRESQL", "mysql+driver"])
def test_an_address_is_no_path_of_a_file(scheme: str) -> None:
    """It would make folders with the password in their names; the error does not tell it either."""
    with pytest.raises(UsageError, match="is an address, and no path") as caught:
        SqliteJournal(f"{scheme}://me:{KEY}@127.0.0.1/runs")

    assert KEY not in str(caught.value)


ADDRESSES: dict[str, Callable[[], object]] = {
    "another provider": lambda: ProviderModel("anthropic:x", base_url=f"http://me:{KEY}@127.0.0.1/v1"),
    "a password": lambda: ProviderModel("openai:x", base_url=f"http://me:{KEY}@127.0.0.1/v1"),
    "a query": lambda: ProviderModel("openai:x", base_url=f"127.0.0.1?key={KEY}"),
    "as the model": lambda: ProviderModel(f"http://me:{KEY}@127.0.0.1/v1:x", base_url="http://127.0.0.1"),
    "a server": lambda: McpServer("x", url=f"htp://me:{KEY}@127.0.0.1"),
    "a server's query": lambda: McpServer("x", url=f"127.0.0.1?key={KEY}"),
    "a database": lambda: PostgresJournal(f"mysql://me:{KEY}@127.0.0.1/runs"),
}


@pytest.mark.parametrize("where", list(ADDRESSES))
def test_no_error_shows_the_password_of_an_address(where: str) -> None:
    """Nor what stands in its query."""
    with pytest.raises(UsageError) as caught:
        ADDRESSES[where]()

    assert KEY not in str(caught.value)


async def test_a_journal_that_is_an_address_is_told_without_its_password(anyio_backend: str) -> None:
    """As where somebody thought that an address is a journal."""
    with pytest.raises(UsageError, match="journal='postgresql://me:") as caught:
        await run(GRAPH, Case(), journal=cast("Any", f"postgresql://me:{KEY}@127.0.0.1/runs"))

    assert KEY not in str(caught.value)


@pytest.mark.parametrize("answer", [{"token": KEY}, KEY, [KEY], {"user": "u", "token": [KEY]}])
async def test_an_answer_that_does_not_fit_shows_no_secret(answer: Any, anyio_backend: str) -> None:
    """Where the schema has a secret in it, the error says what is wrong and not what was given; the question stays."""
    journal = MemoryJournal()
    await run(GRAPH, Case(), journal=journal, run_id="r")

    with pytest.raises(UsageError, match="does not fit Login") as caught:
        await resume(GRAPH, "r", journal=journal, answers={"asks": answer})

    assert KEY not in str(caught.value)
    assert caught.value.__context__ is None
    assert (await resume(GRAPH, "r", journal=journal)).status == "waiting"


def failing(make: Callable[[], Any]) -> FunctionNode[Any]:
    """Make a node whose body does something that fails."""

    @node(name="fails")
    def fails(state: State[Case]) -> Any:
        return Update(question=state.context.question) if make() is None else make()

    return fails


MADE: dict[str, Callable[[], Any]] = {
    "a dict with one": lambda: Login.model_validate({"token": KEY}),
    "a marked field": lambda: Login.model_validate({"user": "u", "token": [KEY]}),
    "another model": lambda: Login.model_validate([KEY]),
}


@pytest.mark.parametrize("what", list(MADE))
async def test_what_pydantic_was_given_stands_in_no_event(what: str, anyio_backend: str) -> None:
    """A body that builds a model wrongly has failed with pydantic's words, and with no value that may be a secret."""
    graph = Graph("g", START >> failing(MADE[what]) >> END, context=Case, budget=BUDGET)
    journal, events = MemoryJournal(), list[Event]()

    with pytest.raises(ValidationError):
        await run(graph, Case(), journal=journal, listeners=[events.append], run_id="r")

    told = "".join(map(event_json, events)) + repr(await journal.read("r")) + "".join(map(str, events))
    assert KEY not in told
    assert "validation error for Login" in told


def test_what_is_no_secret_stays_in_the_words_of_pydantic() -> None:
    """A plain value at a plain place helps whoever reads the error."""
    with pytest.raises(ValidationError) as caught:
        Login(user=cast("Any", 7), token=KEY)

    assert error_text(caught.value) == str(caught.value)
    assert error_text(ValueError(ODD)) == "(its text could not be made: LookupError)"


class Hidden(Context):
    """A context with a secret."""

    token: SecretStr
    count: int


class HiddenReport(Report):
    """A report with a secret."""

    token: SecretStr
    count: int


class HiddenBrief(Brief):
    """A brief with a secret."""

    token: tuple[Annotated[str, secret], ...]
    count: int


@pytest.mark.parametrize("kind", [Hidden, HiddenReport, HiddenBrief])
def test_our_own_classes_hide_what_was_given(kind: type[BaseModel]) -> None:
    """A context, a report and a brief that hold any secret say in no error what they were given."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({"token": KEY})

    assert KEY not in str(caught.value)
