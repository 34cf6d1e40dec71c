"""How the cases play agents: as `helpers.play` does, and every request of every model has its calls answered once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from graphflow import Agent, Context, Graph, ModelReply, ModelRequest, ThreadMessage
from graphflow.events import EdgeTaken, EffectStarted
from graphflow.graphs.look import as_graph
from graphflow.nodes.client import Stream
from graphflow.testing import RuleModel, ScriptedModel
from graphflow.testing.models import ScriptStep
from tests.cases import helpers
from tests.cases.helpers import Played

C = TypeVar("C", bound=Context)


class Talk(Context):
    """A context that a user opens with a question."""

    question: str = "What now?"


class Rules(RuleModel):
    """A model of rules that keeps what it was asked."""

    def __init__(self, *rules: Any, **options: Any) -> None:
        super().__init__(*rules, **options)
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        self.requests.append(request)
        return await super().reply(request, stream)


async def play(graph: Graph[C], context: C, **options: Any) -> Played[C]:
    """Run a graph of agents to its end, hold what every run must hold, and what every request must."""
    played = await helpers.play(graph, context, **options)
    hold_requests(requests_of(graph))
    hold_messages(played.result.thread)
    return played


def models_of(graph: Graph[Any]) -> Iterator[Any]:
    """Give the models of the agents of a graph and of the graphs inside it, each once."""
    seen: set[int] = set()
    for node in graph.nodes.values():
        inner = as_graph(node)
        found = (node.model,) if isinstance(node, Agent) else () if inner is None else models_of(inner)
        for model in found:
            if id(model) not in seen:
                seen.add(id(model))
                yield model


def requests_of(graph: Graph[Any]) -> tuple[ModelRequest, ...]:
    """Give every request that the models of a graph were sent."""
    return tuple(request for model in models_of(graph) for request in model.requests)


def hold_requests(requests: Iterable[ModelRequest]) -> None:
    """Each call in a request is followed by exactly one result, and no result lacks its call (case F1)."""
    for request in requests:
        hold_messages(request.messages)
        assert request.decision == "native" or not any(found.calls or found.answers for found in request.messages)


def hold_messages(messages: Sequence[ThreadMessage]) -> None:
    """The results of a message's calls stand right behind it, in call order, each once; ids are used once."""
    expected: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert expected, f"a result without a call: {message}"
            assert message.answers == expected.pop(0)
            continue
        assert not expected, f"no result for {expected}"
        expected = [found.id for found in message.calls]
        assert all(expected)
        assert not seen & set(expected)
        assert len(set(expected)) == len(expected)
        seen.update(expected)
    assert not expected, f"no result for {expected}"


def results_in(messages: Iterable[ThreadMessage]) -> list[tuple[str, bool]]:
    """Give the results of calls: what was said, and whether it counts as failed."""
    return [(message.text, message.failed) for message in messages if message.role == "tool"]


def handoffs(played: Played[Any]) -> list[tuple[str | None, str | None]]:
    """Give the handoffs that were made, in order."""
    return [(body.edge.source, body.edge.target) for body in played.of(EdgeTaken) if body.edge.kind == "handoff"]


def model_calls(played: Played[Any]) -> list[str]:
    """Give the agents whose models were called, in order."""
    return [body.path[-1].name for body in played.of(EffectStarted) if body.key == "model"]


def tool_runs(played: Played[Any]) -> list[str]:
    """Give the tools that were run, in order."""
    return [body.name for body in played.of(EffectStarted) if body.key != "model"]


def says(name: str, *steps: ScriptStep, **options: Any) -> Agent:
    """Make an agent with a script of its own."""
    return Agent(name, model=ScriptedModel(*steps), **options)


def always(name: str, step: ScriptStep, **options: Any) -> Agent:
    """Make an agent whose model always says the same."""
    return Agent(name, model=Rules(otherwise=step), **options)


def last_text(request: ModelRequest) -> str:
    """Say what was said last; a responder."""
    return request.messages[-1].text


def all_results(request: ModelRequest) -> str:
    """Say what the calls have brought, in order; a responder."""
    return str([text for text, _ in results_in(request.messages)])


def asked(node: Any, number: int = -1) -> ModelRequest:
    """Give one request that the model of a scripted agent was sent; the last by default."""
    assert isinstance(node, Agent)
    model: Any = node.model
    found: ModelRequest = model.requests[number]
    return found
