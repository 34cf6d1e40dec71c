"""Before a run: what is missing is named, nothing runs, and nothing is imported that is not used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from graphflow import END, START, Agent, Context, Graph, ProviderModel, State, node, run
from graphflow.errors import UsageError
from tests.model_replies import Say
from tests.openai_server import ModelServer
from tests.providers.conversations import track
from tests.providers.helpers import Case, at, hear
from tests.support import ROOT


def graph_of(model: Any, **options: Any) -> Graph[Case]:
    """A graph of an agent behind a node that must not run."""
    return Graph("g", START >> never >> Agent("solo", model=model, **options) >> END, context=Case)


ran: list[str] = []


@node
def never(state: State[Context]) -> None:
    """Note that it ran."""
    ran.append(str(state.path))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-responses:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        (ProviderModel("openai:gpt-5", key_from="DESK_KEY"), "DESK_KEY"),
        (ProviderModel("openai:gpt-5", key_from="DESK_KEY", base_url="http://127.0.0.1:9/v1"), "DESK_KEY"),
        ("nobody:gpt-5", "no provider is known as 'nobody'"),
    ],
)
async def test_what_is_missing_is_named_before_anything_runs(
    model: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose model cannot be asked does not begin, also where only a fallback is meant."""
    ran.clear()
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DESK_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(UsageError, match=says):
        await run(graph_of(model), Case())
    with pytest.raises(UsageError, match=says):
        await run(graph_of(ProviderModel("openai:x", base_url="http://127.0.0.1:9/v1"), fallbacks=[model]), Case())

    assert ran == []


async def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a `base_url` nothing need be in the environment."""
    monkeypatch.delenv("OPENAI_API_KEY")

    with ModelServer(Say("Here."), key="api-key-not-set") as server:
        heard = await hear(graph_of(at(server)))

    assert heard.result.output == "Here."


async def test_the_address_can_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_BASE_URL counts where no `base_url` is given."""
    with ModelServer(Say("Here.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = ProviderModel("openai:small")
        heard = await hear(graph_of(model))

    assert heard.result.output == "Here."
    assert model.base_url == server.base_url


NONSENSE: Final[dict[str, Callable[[], object]]] = {
    "no provider": lambda: ProviderModel("gpt-5"),
    "an empty provider": lambda: ProviderModel(":gpt-5"),
    "no model": lambda: ProviderModel("openai:"),
    "a server for another protocol": lambda: ProviderModel("anthropic:x", base_url="http://127.0.0.1/v1"),
    "no address": lambda: ProviderModel("openai:x", base_url="127.0.0.1/v1"),
    "a password in the address": lambda: ProviderModel("openai:x", base_url="http://me:secret@127.0.0.1/v1"),
    "no time": lambda: ProviderModel("openai:x", timeout=0),
    "tokens that are the agent's": lambda: ProviderModel("openai:x", settings={"max_tokens": 3}),
    "no model at all": lambda: ProviderModel(object()),  # type: ignore[arg-type]
    "an agent's model": lambda: Agent("a", model="gpt-5"),
    "an agent's fallback": lambda: Agent("a", model="openai:x", fallbacks=["gpt-5"]),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    """A model that could never be asked is refused where it is described, and no password is shown."""
    with pytest.raises(UsageError) as raised:
        NONSENSE[name]()

    assert "secret" not in str(raised.value)


# --- models of pydantic-ai -------------------------------------------------------------------------------------------


async def test_its_test_model_is_a_model() -> None:
    """`TestModel` calls every tool once, and then says what came."""
    heard = await hear(graph_of(ProviderModel(TestModel()), tools=[track]))

    assert heard.result.status == "completed"
    assert "in transit" in heard.result.output
    assert heard.result.spent.total.tool_calls == 1
    assert (heard.result.spent.total.tokens or 0) > 0


@pytest.mark.parametrize("stream", [True, False])
async def test_its_function_model_is_a_model(stream: bool) -> None:
    """`FunctionModel` is asked as any other, whole or streamed."""

    def says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert [tool.name for tool in info.function_tools] == ["track"]
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("track", {"order": "A-7"})])
        return ModelResponse(parts=[TextPart("Here.")])

    async def streams(_: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        yield "He"
        yield "re." if info.function_tools else ""

    model = ProviderModel(FunctionModel(says, stream_function=streams), stream=stream)
    heard = await hear(graph_of(model, tools=[track]))

    assert heard.result.output == "Here."
    assert ("text_delta" in [event.kind for event in heard.events]) is stream


# --- imports ---------------------------------------------------------------------------------------------------------

DEFINES = """
import sys
from graphflow import END, START, Agent, Context, Graph, Price, ProviderModel
from graphflow.visualize.mermaid import to_mermaid
class Case(Context):
    question: str = "?"
given = ProviderModel("openai:gpt-5", base_url="http://127.0.0.1:9/v1")
a = Agent("a", model="openai:gpt-5", fallbacks=["anthropic:claude-sonnet-5"])
b = Agent("b", model=given, fallbacks=[ProviderModel("openai:gpt-5")])
graph = Graph("g", START >> a >> b >> END, context=Case)
graph.check(), graph.worst_case(), graph.fingerprint(), to_mermaid(graph), graph.with_model("openai:other")
"""


def test_defining_and_drawing_imports_no_provider() -> None:
    """A graph whose agents name their models is defined, checked, proved and drawn without what asks them."""
    program = DEFINES + "print(*sorted({'pydantic_ai', 'genai_prices', 'openai', 'httpx2'} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == []


def test_without_the_extra_there_is_one_clear_error() -> None:
    """Where pydantic-ai is not installed, a graph is defined and drawn; a run names the extra, and nothing else."""
    blocked = "import sys\nsys.modules['pydantic_ai'] = None\n"
    program = blocked + DEFINES + "from graphflow import run_sync\nrun_sync(graph, Case())"

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1
    assert last.startswith("graphflow.errors.MissingExtra: the model of a provider needs the extra 'models'")
    assert "pip install 'graphflow-agents[models]'" in last
