"""What the tests of providers share: models at the tests' server, scripts by agent, and runs with what was heard."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import genai_prices
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai
import pytest

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    MemoryJournal,
    ModelClient,
    ProviderModel,
    Result,
    Run,
    replay,
    start,
    tool,
)
from graphflow.events import EffectFinished, EffectStarted, Event
from graphflow.model.thread import History
from graphflow.nodes.agent import DecisionMode
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
    graph: Graph[Any],
    context: Context | None = None,
    events: list[Event] | None = None,
    more: Sequence[Callable[[Event], None]] = (),
    **options: Any,
) -> Heard:
    """Run a graph, answering every question with yes; return the result and what was heard, also in `events`.

    Listeners that are given as `more` hear it first.
    """
    heard: list[Event] = [] if events is None else events
    async with start(graph, context or graph.context(), listeners=[*more, heard.append], **options) as running:
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


# --- ways to ask -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How a model is asked.

    Attributes:
        name: the provider, and its model.
        stream: whether replies are streamed.
        decision: the decision mode of its agents.
    """

    name: str = "openai:small"
    stream: bool = True
    decision: DecisionMode = "native"

    def model(self, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ProviderModel:
        """The model at a server, which another provider's client finds in the environment."""
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        if self.name == CLAUDE:
            return ProviderModel(self.name, stream=self.stream)
        return at(server, self.name, stream=self.stream)


WAYS: Final[dict[str, Way]] = {
    "openai, streamed": Way(),
    "openai, whole": Way(stream=False),
    "openai, json": Way(decision="json"),
    "openai, json, whole": Way(stream=False, decision="json"),
    "anthropic, streamed": Way(CLAUDE),
    "anthropic, whole": Way(CLAUDE, stream=False),
    "anthropic, json": Way(CLAUDE, stream=False, decision="json"),
}

Make = Callable[[ModelClient, DecisionMode], Graph[Any]]


def by_way(*names: str) -> pytest.MarkDecorator:
    """A test that is run for some ways; for every way, where none is named."""
    return pytest.mark.parametrize("way", [pytest.param(WAYS[name], id=name) for name in names or WAYS])


async def converse(
    make: Make, says: Mapping[str, Sequence[Reply]], way: Way, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Heard, ModelServer]:
    """Run a graph whose models say this, and hold what every run at a real server must hold.

    Nothing that was sent breaks the protocol, the script is used up and no more, every call has its end, what is on
    record is numbered without gaps, and folding it again gives the same result.
    """
    journal = MemoryJournal()
    parts = Parts({who: [streamed(reply) for reply in script] for who, script in says.items()})
    with ModelServer(parts) as server:
        graph = make(way.model(server, monkeypatch), way.decision)
        heard = await hear(graph, journal=journal, run_id="real", **options)
        again = await replay(graph, "real", journal=journal)
    assert server.violations == []
    parts.assert_complete()
    assert heard.result.spent.total.model_calls == len(server.requests)
    assert all(asked.streams == way.stream for asked in server.requests)
    recorded = [event.seq for event in heard.events if event.kind not in {*DELTAS, "listener_failed"}]
    assert recorded == list(range(len(recorded)))
    assert effects_of(heard, EffectStarted) == effects_of(heard, EffectFinished)
    assert (again.status, again.output, again.spent, again.thread) == (
        heard.result.status, heard.result.output, heard.result.spent, heard.result.thread,
    )  # fmt: skip
    return heard, server


def effects_of(heard: Heard, kind: type) -> Counter[Any]:
    """The calls of models and tools that began, or that ended."""
    return Counter((body.path, body.turn, body.key) for body in heard.of(kind))


# --- small teams -----------------------------------------------------------------------------------------------------


@tool
def search(words: str, most: int = 3) -> str:
    """Search."""
    return f"found {words} {most}"


def asks(
    target: Callable[[ModelClient, DecisionMode], Any] | None = None, *, history: History = "note", **options: Any
) -> Make:
    """A boss that can ask one worker, or what `target` makes."""

    def make(model: ModelClient, decision: DecisionMode) -> Graph[Any]:
        boss = Agent("boss", model=model, decision=decision, instructions="You are boss.")
        worker = Agent("worker", model=model, decision=decision, instructions="You are worker.", **options)
        found: Any = worker if target is None else target(model, decision)
        below = boss.delegates(found, max_hops=1, history=history)
        return Graph("g", START >> boss >> END, below, context=Case, max_depth=2)

    return make


def ran(heard: Heard) -> list[str]:
    """The tools that were run, in order."""
    return [body.name for body in heard.of(EffectStarted) if body.key != "model"]


# --- what the server saw ---------------------------------------------------------------------------------------------


def asked_by(server: ModelServer, name: str) -> list[Asked]:
    """The requests of one agent, in order."""
    return [asked for asked in server.requests if told(asked.body).startswith(f"You are {name}.")]


def offered(asked: Asked) -> list[str]:
    """The names of the tools that a request offers; in JSON they stand in its system text."""
    found = asked.body.get("tools")
    if found is not None:
        return [tool.get("function", tool)["name"] for tool in found]
    return [name for name in re.findall(r"^- ([\w-]+)\(", told(asked.body), re.MULTILINE) if name != "answer"]


def read_in(asked: Asked) -> list[str]:
    """Every text of the messages of a request but of the system's, in order, results of calls among them."""
    found: list[str] = []
    for message in asked.body["messages"]:
        texts = _texts(message.get("content"))
        if message["role"] == "tool":  # OpenAI's protocol has no mark for a failure: it is the one property of a table
            found += [json.loads(text)["error"] if text.startswith('{"error":') else text for text in texts]
        elif message["role"] != "system":
            found += texts
    return found


def _texts(content: Any) -> list[str]:
    if isinstance(content, list):
        blocks = cast("list[dict[str, Any]]", content)
        return [text for block in blocks for text in _texts(block.get("text", block.get("content")))]
    return [content] if isinstance(content, str) else []


def places_in(asked: Asked, *texts: str) -> list[int]:
    """Where in a request some texts stand for the first time, each after the one before; -1 for what is missing."""
    whole = "\n".join(read_in(asked))
    found: list[int] = []
    for text in texts:
        found.append(whole.find(text, found[-1] + 1 if found else 0))
    return found
