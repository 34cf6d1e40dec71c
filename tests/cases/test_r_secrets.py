"""Case R9: what a run, a context or a node holds does not show in their texts."""

import json
from typing import Any

import pydantic_core
import pytest
from pydantic import SecretStr

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    Report,
    State,
    Step,
    node,
    start,
)
from graphflow.events import Event
from graphflow.persistence.lines import event_json
from graphflow.testing import ManualClock, MemoryJournal

SECRET = "hunter2-and-more"  # the case is about a secret


class Client:
    """A resource that holds a key, and shows it to whoever asks for its text."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Client(key={self.key!r})"


class Case(Context):
    """A context that holds a secret as pydantic has it."""

    question: str = ""
    token: SecretStr = SecretStr(SECRET)


class Body:
    """A node's function that holds a key."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, state: State[Case], step: Step) -> str:
        found = step.resource(Client)
        assert found.key == state.context.token.get_secret_value() == self.client.key
        return await step.effect("call", self.ask, found, found.key)

    async def ask(self, client: Client, key: str) -> str:
        return f"asked with {len(key + client.key)} letters"


def graph_with_secrets() -> Graph[Case]:
    """Make a graph whose nodes, conditions and defaults hold the secret wherever a function can hold one."""
    client = Client(SECRET)

    async def lead(state: State[Case], step: Step, *, key: str = SECRET) -> Any:
        del key
        if state.turn == 0:
            return Delegate(Call("worker", "go"))
        return Report(finding=state.inbox[0].value.finding)

    def hook_like(_: State[Case]) -> bool:
        return client.key == SECRET

    worker = node(name="worker")(Body(client))
    boss = node(name="boss")(lead)
    return Graph(
        "secrets",
        START >> boss >> (Human("human", "ok?"), node(name="other")(Body(client))) >> Join("j") >> END,
        boss.delegates(worker, max_hops=1),
        context=Case,
        budget=Budget(node_runs=20),
        leave=lambda _: str(hook_like(_)),
    )


def texts(value: Any) -> list[str]:
    """Give every text that a value has."""
    found = [repr(value), str(value), f"{value}", f"{value!s:>3}", "{0!r}".format(value)]  # noqa: UP032, UP030 - a way of its own
    found.append(json.dumps(pydantic_core.to_jsonable_python(value, serialize_unknown=True, by_alias=True)))
    return found


@pytest.mark.may_block  # the structure of a graph is read from sources
async def test_r9_no_text_of_a_run_shows_a_secret() -> None:
    """Graph, nodes, statements, handle, result, context, states, events, records and errors: none shows it."""
    graph = graph_with_secrets()
    states: list[Any] = []
    events: list[Event] = []
    journal = MemoryJournal()
    async with start(
        graph,
        Case(),
        resources=[Client(SECRET)],
        journal=journal,
        listeners=[events.append],
        clock=ManualClock(),
        before=lambda state: states.append(state),  # noqa: PLW0108 - append gives None, as a hook does
    ) as running:
        waiting = await running.result()
        shown = [waiting, waiting.questions, running]
        running.answer(waiting.questions[0].id, "yes")
        result = await running.result()
    records = await journal.read(running.run_id)

    assert result.status == "completed"
    things = [graph, *graph.nodes.values(), *graph.statements, graph.compiled, graph.structure(), *shown]
    things += [result, result.context, result.spent, *states, *events, *records]
    for thing in things:
        for text in [repr(thing), str(thing), f"{thing}", f"{thing!r}"]:
            assert SECRET not in text
    for event in events:
        assert SECRET not in event_json(event)
    for thing in (result.context, result.reason, result.report, graph.structure()):
        for text in texts(thing):
            assert SECRET not in text


async def test_r9_no_error_of_ours_shows_a_resource() -> None:
    """A resource that is missing or doubled is named by its class alone."""

    async def ask(_: State[Case], step: Step) -> None:
        step.resource(Client)

    graph = Graph("g", START >> node(ask) >> END, context=Case)
    for resources in ([], [Client(SECRET), Client(SECRET)], [SECRET]):
        async with start(graph, Case(), resources=resources) as running:
            with pytest.raises(ValueError, match="resource of class Client") as caught:
                await running.result()

        assert SECRET not in str(caught.value)
        assert SECRET not in repr(running.outcome)
