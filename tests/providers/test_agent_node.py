"""An agent of pydantic-ai as a node: its calls are paid, settled, bounded and recorded as those of any other."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent as Theirs
from pydantic_ai import RunContext, ToolOutput
from pydantic_ai.capabilities.process_event_stream import ProcessEventStream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    Report,
    State,
    Supervisor,
    agent_node,
    fork,
    node,
    replay,
    resume,
    run,
    run_sync,
    start,
)
from graphflow.errors import JournalUnavailable, ModelRefused, UsageError
from graphflow.events import EffectStarted, Row
from graphflow.testing import ScriptedModel, call
from tests.conftest import BACKENDS, Backend
from tests.model_replies import Error, Say
from tests.openai_server import ModelServer
from tests.providers.helpers import KEY, Case, hangs, hear, is_left, until
from tests.support import BreakingJournal


@pytest.fixture(scope="module", params=BACKENDS[:1], ids=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The only backend on which pydantic-ai's agents run."""
    backend: Backend = request.param
    return backend


class City(BaseModel):
    """A typed answer."""

    model_config = ConfigDict(frozen=True)

    name: str
    people: int = 0


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """What an agent was told."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


def echo(name: str = "echo", used: int = 5, **options: Any) -> Theirs[Any, Any]:
    """An agent that repeats what it is told."""

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.model_settings is not None
        usage = RequestUsage(input_tokens=10, output_tokens=used)
        return ModelResponse([TextPart(str(prompts(messages)[-1]))], usage=usage)

    return Theirs(FunctionModel(says), name=name, **options)


def at_small(server: ModelServer) -> OpenAIChatModel:
    """A model at the tests' server, none of whose connections stays open."""
    http = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
    return OpenAIChatModel(
        "small", provider=OpenAIProvider(base_url=server.base_url, api_key=server.key, http_client=http)
    )


def alone(found: Any, **options: Any) -> Graph[Case]:
    """A graph of one node."""
    return Graph("g", START >> found >> END, context=Case, **options)


async def test_an_agent_is_a_node_and_its_output_the_nodes() -> None:
    """It is told the context's first text; its typed output comes out, and its calls and tokens are in the ledger."""
    agent = Theirs(TestModel(custom_output_args={"name": "Paris", "people": 2}), output_type=City, name="geo")

    @agent.tool_plain
    def look(city: str) -> str:
        return f"{city} is large"

    result = await run(alone(agent_node(agent), budget=Budget(model_calls=5)), Case())

    assert result.output == City(name="Paris", people=2)
    assert result.spent.by_node["geo"].model_calls == 2
    assert (result.spent.total.tokens or 0) > 50


async def test_it_is_told_a_brief_as_a_callee() -> None:
    """A supervisor asks it as any other of its team; its text is the finding of a report."""
    model = ScriptedModel(call("ask_echo", objective="Who is late?", guidance="Look twice."), "All told.")
    boss = Supervisor("boss", model=model)
    graph = Graph(
        "g", START >> boss, boss.delegates(agent_node(echo()), max_hops=1), boss >> END, context=Case, max_depth=1
    )

    result = await run(graph, Case(), budget=Budget(model_calls=3))

    assert result.output == "All told."
    assert r"objective: Who is late?\nguidance: Look twice." in model.requests[1].messages[-1].text
    assert result.spent.total.model_calls == 3


async def test_it_is_told_what_arrived_as_data() -> None:
    """What the node before said stands below the user's text, labelled with its source."""

    @node
    async def before(state: State[Context]) -> str:
        return "A-7 is late"

    graph = Graph("g", START >> before >> agent_node(echo()) >> END, context=Case)

    result = await run(graph, Case())

    assert result.output == 'Where is A-7?\n\n<message from="before">\nA-7 is late\n</message>'


async def test_several_at_once_share_a_budget() -> None:
    """In a fork each call is paid by itself; nothing over the budget is sent."""
    nodes = [agent_node(echo(), f"e{number}") for number in range(4)]
    graph = Graph("g", START >> fork(*nodes, failure="collect") >> Join("j") >> END, context=Case)

    result = await run(graph, Case(), budget=Budget(model_calls=3))

    assert result.status == "partial"
    assert result.spent.total.model_calls == 3


def endless() -> tuple[Theirs[Any, Any], list[int]]:
    """An agent that calls its tool for ever, and what each of its calls was allowed to write."""
    allowed: list[int] = []

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.model_settings is not None
        settings: Any = info.model_settings
        allowed.append(settings["max_tokens"])
        usage = RequestUsage(input_tokens=10, output_tokens=20)
        return ModelResponse([ToolCallPart("again", {}, f"c{len(messages)}")], usage=usage)

    agent = Theirs(FunctionModel(says), name="endless")

    @agent.tool_plain
    def again() -> str:
        return "once more"

    return agent, allowed


@pytest.mark.parametrize(
    ("calls", "budget", "bound", "made"),
    [(3, Budget(), "costs", 3), (9, Budget(model_calls=4), "model_calls", 4), (99, Budget(tokens=600), "tokens", None)],
)
async def test_its_calls_are_bounded(calls: int, budget: Budget, bound: str, made: int | None) -> None:
    """It ends at its own bound or at the budget's, whichever comes first, and writes no more than there is."""
    agent, allowed = endless()
    graph = alone(agent_node(agent, model_calls=calls), budget=budget)

    result = await run(graph, Case())

    assert result.status == "exhausted"
    assert result.reason is not None
    assert result.reason.code == bound
    assert made is None or len(allowed) == made
    assert graph.worst_case().model_calls == calls
    assert budget.tokens is None or (result.spent.total.tokens or 0) <= budget.tokens
    assert allowed == sorted(allowed, reverse=True)


async def test_cancelling_reaches_its_request() -> None:
    """A request under way is closed when the run is cancelled."""
    with ModelServer(Say("Never.", breaks="hang", after=0)) as server:
        agent = Theirs(at_small(server), name="slow")
        async with start(alone(agent_node(agent)), Case()) as running:
            await until(server, hangs)
            running.cancel()
            result = await running.result()
        await until(server, is_left)

    assert result.status == "cancelled"
    assert len(server.disconnects) == 1


async def test_what_a_provider_refuses_is_told_as_ours() -> None:
    """An error of its provider comes out as ours, without the key."""
    with (
        ModelServer(Error(401, f"Incorrect API key provided: {KEY}")) as server,
        pytest.raises(ModelRefused, match=r"bad: HTTP 401") as raised,
    ):
        await run(alone(agent_node(Theirs(at_small(server), name="bad"))), Case())

    assert KEY not in str(raised.value)


class Db:
    """A resource."""

    rows = 7


async def test_its_deps_are_the_resource_of_their_class() -> None:
    """An agent with a `deps_type` gets the run's resource of that class."""
    agent = Theirs(TestModel(), deps_type=Db, name="counts")

    @agent.tool
    def rows(ctx: RunContext[Db]) -> int:
        return ctx.deps.rows

    result = await run(alone(agent_node(agent)), Case(), resources=[Db()])

    assert "7" in result.output


async def test_an_agent_that_streams_is_heard_by_its_own_listener() -> None:
    """Its own handler of events still hears of each reply, which is asked for as a whole."""
    heard: list[Any] = []

    async def listen(_: RunContext[Any], events: AsyncIterable[Any]) -> None:
        heard.extend([event async for event in events])

    result = await run(alone(agent_node(echo(capabilities=[ProcessEventStream(listen)]))), Case())

    assert result.output == "Where is A-7?"
    assert heard
    assert result.spent.total.model_calls == 1


# --- stored ----------------------------------------------------------------------------------------------------------


async def test_a_run_that_is_taken_up_makes_no_model_call_twice() -> None:
    """After a crash between two calls the first one's reply is read from the journal, and only the second is made."""
    asked: list[int] = []
    full: list[str] = []

    def before(_: Row) -> None:
        if full == ["full"]:
            raise JournalUnavailable(full[0])

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        usage = RequestUsage(input_tokens=10, output_tokens=5)
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("look", {"city": "Paris"}, "c1")], usage=usage)
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"name": "Paris"}, "c2")], usage=usage)

    agent = Theirs(FunctionModel(says), output_type=City, name="geo")

    @agent.tool_plain
    async def look(city: str) -> str:
        full.append("full")
        return f"{city} is large"

    graph, journal = alone(agent_node(agent)), BreakingJournal(before)

    with pytest.raises(JournalUnavailable):
        await run(graph, Case(), journal=journal, run_id="r")
    full.append("emptied")
    result = await resume(graph, "r", journal=journal)
    again = await replay(graph, "r", journal=journal)

    assert asked == [1, 3]
    assert result.output == again.output == City(name="Paris")
    assert (result.spent.total.model_calls, result.spent.total.tokens) == (2, 30)


# --- what makes no sense ---------------------------------------------------------------------------------------------


class Loose(BaseModel):
    """What could be changed."""

    names: list[str] = []


def test_trio_is_refused_before_anything_is_sent() -> None:
    """pydantic-ai's agents need asyncio; on trio nothing is sent, and the error says what to do."""
    agent, allowed = endless()

    with pytest.raises(UsageError, match=r"asyncio alone"):
        run_sync(alone(agent_node(agent)), Case(), backend="trio")

    assert allowed == []


@pytest.mark.parametrize(
    ("agent", "options", "says"),
    [
        pytest.param(Agent("a", model=ScriptedModel()), {}, "of graphflow is a node already", id="ours"),
        pytest.param(Theirs(TestModel()), {}, "has no name", id="no name"),
        pytest.param(Theirs(name="a"), {}, "has no model", id="no model"),
        pytest.param(Theirs(TestModel(), name="a", output_type=Loose), {}, "must be frozen", id="not frozen"),
        pytest.param(Theirs(TestModel(), name="a", output_type=ToolOutput(City)), {}, "output=str", id="a marker"),
        pytest.param(Theirs(TestModel(), name="a"), {"model_calls": None}, "model_calls=None", id="no bound"),
        pytest.param(Theirs(TestModel(), name="a"), {"max_tokens": 0}, "max_tokens", id="no tokens"),
    ],
)
def test_what_makes_no_sense_is_refused(agent: Any, options: Any, says: str) -> None:
    """An agent that could not be a node is refused where the node is made."""
    with pytest.raises(UsageError, match=says):
        agent_node(agent, **options)


def test_an_output_can_be_declared() -> None:
    """Where the agent's output is no plain type, `output=` says what comes out; a list of types is any of them."""
    marked = agent_node(Theirs(TestModel(), name="a", output_type=ToolOutput(City)), output=City)
    either = agent_node(Theirs(TestModel(), name="b", output_type=[City, str]))

    assert marked.fn.__annotations__["return"] is City
    assert either.fn.__annotations__["return"] == City | str


async def test_each_call_says_what_it_may_cost() -> None:
    """A call's reservation is what it reads and may write; the rest comes back when it has ended."""
    heard = await hear(alone(agent_node(echo(), max_tokens=50)))

    reserved = heard.of(EffectStarted)[0].reserved
    assert reserved.model_calls == 1
    assert 50 < reserved.tokens < 300
    assert heard.result.spent.total.tokens == 15
    assert isinstance(heard.result.report, Report | None)
