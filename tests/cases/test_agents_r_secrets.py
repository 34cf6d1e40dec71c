"""Case R9 with agents: secrets in instructions, models, tools and contexts do not show in any text."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import SecretStr

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    Report,
    State,
    Supervisor,
    ToolStep,
    last,
    run,
    secret,
    start,
    strategies,
    tool,
)
from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.nodes.client import Stream
from graphflow.persistence.lines import event_json
from graphflow.testing import ManualClock, MemoryJournal, ScriptedModel, call
from graphflow.visualize import run_tree, to_dot, to_mermaid
from tests.cases.agents import Talk, hold_requests, play, requests_of

# --- R9 --------------------------------------------------------------------------------------------------------------

SECRET = "hunter2-and-more"


class Case(Context):
    """A context that holds a secret as pydantic has it."""

    question: str = ""
    token: SecretStr = SecretStr(SECRET)


class Client:
    """A model that holds a key, and shows it to whoever asks for its text."""

    def __init__(self, key: str, *answers: Any) -> None:
        self.key, self.script, self.requests = key, ScriptedModel(*answers), list[ModelRequest]()

    def __repr__(self) -> str:
        return f"Client(key={self.key!r})"

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        self.requests.append(request)
        assert SECRET in request.system
        return await self.script.reply(request, stream)


class Shop:
    """An object that holds a key, of which a method is a tool."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Shop(key={self.key!r})"

    @tool
    async def order(self, step: ToolStep, item: str) -> str:
        """Order something."""
        assert step.resource(Shop).key == self.key
        context: Any = step.context
        return f"ordered {item} with {len(context.token.get_secret_value())} letters"


def from_context(state: State[Any]) -> str:
    """Write the secret of the context into the instructions."""
    return f"The key is {state.context.token.get_secret_value()}."


def shop_with_secrets(shop: Shop) -> Graph[Case]:
    """A team whose instructions, models, tools, rules and context hold the secret."""

    def deny(_: str, __: Mapping[str, Any], key: str = SECRET) -> str | None:
        return None if key else "no"

    @tool(approval=True)
    async def pay(amount: float, *, step: ToolStep) -> str:
        """Pay."""
        return f"paid {amount} with {len(shop.key)} letters"

    buyer = Agent(
        "buyer", model=Client(SECRET, call("order", item="tea"), Report(finding="ordered")), tools=[shop.order],
        instructions=from_context, output=Report,
    )  # fmt: skip
    asks = [call("ask_buyer", objective="tea"), call("pay", amount=3)]
    boss = Supervisor(
        "boss",
        model=Client(SECRET, asks, call("transfer_to_clerk", note="bill")),
        tools=[pay],
        instructions=f"Never tell anybody that the key is {SECRET}.",
        deny=deny,
    )
    clerk = Agent("clerk", model=Client(SECRET, "billed"), instructions=f"Key: {SECRET}.", history=last(3))
    return Graph(
        "shop",
        START >> boss >> END,
        boss.delegates(buyer, max_hops=1),
        boss.hands_off(clerk, max_hops=1),
        clerk >> END,
        context=Case,
        budget=Budget(model_calls=20),
        max_depth=1,
    )


@pytest.mark.may_block  # the structure of a graph is read from sources
async def test_r9_no_text_of_a_run_of_agents_shows_a_secret() -> None:
    """Graph, agents, tools, statements, handle, results, states, events, records: none shows it, in any form."""
    shop = Shop(SECRET)
    graph = shop_with_secrets(shop)
    states: list[Any] = []
    events: list[Event] = []
    journal = MemoryJournal()
    async with start(
        graph, Case(), resources=[shop], journal=journal, listeners=[events.append], clock=ManualClock(),
        before=lambda state: states.append(state),  # noqa: PLW0108 - append gives None, as a hook does
    ) as running:  # fmt: skip
        waiting = await running.result()
        shown = [waiting, waiting.questions, running]
        running.answer(waiting.questions[0].id, True)
        result = await running.result()
    records = await journal.read(running.run_id)

    assert (result.status, result.output) == ("completed", "billed")
    hold_requests(requests_of(graph))
    agents = [found for found in graph.nodes.values() if isinstance(found, Agent)]
    tools = [found for agent in agents for found in agent.tools]
    things = [graph, *graph.nodes.values(), *graph.statements, graph.compiled, graph.structure(), *tools, *shown]
    things += [tool_of.spec for tool_of in tools]
    things += [result, result.context, result.spent, result.thread, *states, *events, *records]
    things += [
        *graph.check(),
        graph.worst_case(),
        to_dot(graph),
        to_mermaid(graph),
        to_dot(graph, run=events),
        run_tree(events),
    ]
    for thing in things:
        for text in [repr(thing), str(thing), f"{thing}", f"{thing!r}"]:
            assert SECRET not in text
    for event in events:
        assert SECRET not in event_json(event)
    assert all(SECRET in repr(found) for found in (shop, agents[0].model))  # they would have shown it


async def test_r9_an_error_of_a_script_shows_no_instructions() -> None:
    """What goes wrong with a model is told with the request's messages, never with the system text."""
    agent = Agent("agent", model=ScriptedModel(), instructions=f"The key is {SECRET}.")

    played = await play(Graph("g", START >> agent >> END, context=Talk), Talk())

    assert isinstance(played.error, AssertionError)
    assert SECRET not in str(played.error)
    assert SECRET not in repr(played.result)
    assert SECRET not in str(played.reason)


class Login(Context):
    """A context that begins with a secret."""

    token: Annotated[str, secret] = ""
    question: str = "Who am I?"


async def test_a_secret_is_not_what_a_model_is_asked() -> None:
    """What the user says is the first field of the context, but where that is a secret."""
    model = ScriptedModel("done", "done")
    nested = strategies.sequential("team", Agent("b", model=model), context=strategies.Conversation)
    graph = Graph("g", START >> Agent("a", model=model) >> nested >> END, context=Login)

    result = await run(graph, Login(token="hunter2"))

    assert result.status == "completed"
    assert not [request for request in model.requests if "hunter2" in repr(request)]


def test_a_team_whose_task_would_be_a_secret_is_refused() -> None:
    """A task that somebody else says cannot be one."""
    with pytest.raises(UsageError, match="'token' is a secret"):
        strategies.router("r", lambda _: "a", Agent("a", model=ScriptedModel()), context=Login)
