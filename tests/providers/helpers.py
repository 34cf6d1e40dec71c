"""What the tests of providers share: models at the tests' server, scripts by agent, and runs with what was heard."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.to_thread
import genai_prices
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai

from graphflow import Context, Graph, ProviderModel, Result, Run, start
from graphflow.events import Event
from graphflow.testing import canonical_trace
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import Asked, ModelServer

# They are imported when the first request is made; in a test that would block the loop.
READY: Final = (pydantic_ai.models.anthropic.__name__, pydantic_ai.models.openai.__name__, genai_prices.__name__)

KEY: Final = "key-of-the-tests"
DELTAS: Final = {"text_delta", "call_delta"}
CLAUDE: Final = "anthropic:claude-sonnet-5"


class Case(Context):
    """What is asked."""

    question: str = "Where is A-7?"


def at(server: ModelServer, name: str = "openai:small", **options: Any) -> ProviderModel:
    """A model at the tests' server."""
    return ProviderModel(name, base_url=server.base_url, **options)


# --- scripts by agent ------------------------------------------------------------------------------------------------


def told(body: Mapping[str, Any]) -> str:
    """The system text of a request."""
    found: Any = body.get("system", "")
    if "system" not in body:
        found = next((message["content"] for message in body["messages"] if message["role"] == "system"), "")
    return found if isinstance(found, str) else "\n".join(block["text"] for block in found)


def as_json(reply: Reply) -> Reply:
    """The same, as a model says it that cannot call tools."""
    if isinstance(reply, Calls):
        calls = [{"tool": name, "arguments": _loaded(arguments)} for name, arguments in reply.calls]
        said: Any = {"reason": reply.text, "calls": calls}
    elif isinstance(reply, Say):
        answer = {"tool": "answer", "arguments": {"answer": _loaded(reply.text)}}
        said = {"reason": "", "calls": [answer]} if reply.text else ""
    else:
        return reply
    if not said:
        return reply
    return Say(json.dumps(said), usage=reply.usage, pieces=reply.pieces, breaks=reply.breaks, after=reply.after)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Parts:
    """Answers the requests of each agent with its own script; each is told `You are NAME.` first."""

    def __init__(self, scripts: Mapping[str, Sequence[Reply]]) -> None:
        self.scripts = {name: list(script) for name, script in scripts.items()}
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        """Answer with the next step of whoever asks."""
        system = told(asked.body)
        name = next(found for found in self.scripts if system.startswith(f"You are {found}."))
        with self._lock:
            step = self.scripts[name][self.asked[name]]
            self.asked[name] += 1
        chooses = '"calls": [{"tool": "NAME"' in system
        return as_json(step) if chooses else step

    def assert_complete(self) -> None:
        """Every step was used."""
        assert dict(self.asked) == {name: len(script) for name, script in self.scripts.items()}


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """A run that is over, and what was heard of it."""

    result: Result[Any]
    events: tuple[Event, ...]

    @property
    def kinds(self) -> list[str]:
        """The kinds of its events in order, without the pieces of replies."""
        return [event.kind for event in self.events if event.kind not in DELTAS]

    @property
    def trace(self) -> list[str]:
        """What happened where, in an order that timing cannot change, without what a model read, wrote and cost."""
        plain = [event for event in self.events if event.kind not in {*DELTAS, "spent"}]
        return [" ".join(line.split(" ")[:2]) for line in canonical_trace(plain)]

    def of(self, kind: type) -> list[Any]:
        """The events of a kind."""
        return [event.body for event in self.events if isinstance(event.body, kind)]


async def hear(
    graph: Graph[Any], context: Context | None = None, events: list[Event] | None = None, **options: Any
) -> Heard:
    """Run a graph, answering every question with yes; return the result and what was heard, also in `events`."""
    heard: list[Event] = [] if events is None else events
    async with start(graph, context or graph.context(), listeners=[heard.append], **options) as running:
        result = await answered(running)
    return Heard(result, tuple(heard))


async def until(server: ModelServer, holds: Callable[[ModelServer], bool]) -> None:
    """Wait until something holds of a server."""
    assert await anyio.to_thread.run_sync(server.wait_until, holds)


def hangs(server: ModelServer) -> bool:
    """Whether an answer hangs."""
    return server.hanging > 0


def is_left(server: ModelServer) -> bool:
    """Whether a client went away."""
    return bool(server.disconnects)


async def answered(running: Run[Any]) -> Result[Any]:
    """The result of a run, whose questions are all answered with yes."""
    result = await running.result()
    while result.questions:
        for question in result.questions:
            running.answer(question.id, True if "bool" in repr(question.schema) else "yes")
        result = await running.result()
    return result


def streamed(reply: Reply, pieces: int = 3) -> Reply:
    """The same in more pieces."""
    if isinstance(reply, Calls):
        return Calls(*reply.calls, text=reply.text, usage=reply.usage, pieces=pieces, interleaved=True)
    return replace(reply, pieces=pieces) if isinstance(reply, Say) else reply
