"""Graphs as tools: for the protocol's own client, for other graphs, and as a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult

from graphflow import END, START, Budget, Context, Graph, MemoryJournal, State, node, resume, run, secret
from graphflow.errors import GraphProblems, UsageError
from graphflow.events import Emitted, Event, RunEnded
from graphflow.mcp import McpServer, serve
from graphflow.testing import call
from tests.mcp.served import asks, bill, fails, greet, spends, waits
from tests.mcp.support import Ask, asking, told
from tests.support import ROOT

SERVED = Path(__file__).with_name("served.py")
serve(greet)  # what it loads would block the loop of the first test
COMMAND = [sys.executable, "-m", "graphflow.cli", "mcp"]


async def called(graph: Graph[Any], arguments: dict[str, Any], **options: Any) -> CallToolResult:
    """Call a graph by way of the protocol, in this process."""
    async with Client(serve(graph, **options)) as client:
        return await client.call_tool(graph.name, arguments)


def text(result: CallToolResult) -> str:
    """All texts of a result."""
    return "\n".join(getattr(part, "text", "?") for part in result.content)


async def test_graphs_are_listed_with_what_they_take() -> None:
    """A context that begins with a text and needs nothing else takes `input`; any other, its fields."""
    async with Client(serve(greet, bill)) as client:
        one, two = (await client.list_tools()).tools

    assert (one.name, one.description) == ("greet", "Greet somebody.")
    assert one.input_schema["properties"] == {"input": {"type": "string"}}
    assert one.input_schema["required"] == ["input"]
    assert two.input_schema["required"] == ["invoice", "amounts"]
    assert two.input_schema["properties"]["invoice"] == {"type": "string", "description": "its number."}


async def test_a_run_is_a_call() -> None:
    """The output is the result: a text as it is, a model as structured content, too."""
    said = await called(greet, {"input": "Ada"})
    made = await called(bill, {"invoice": "INV-311", "amounts": [1, 2.5]})

    assert (text(said), said.structured_content, said.is_error) == ("Hello, Ada!", None, False)
    assert made.structured_content == {"invoice": "INV-311", "total": 3.5}
    assert text(made) == '{"invoice": "INV-311", "total": 3.5}'


@pytest.mark.parametrize(
    ("graph", "arguments", "said"),
    [
        (greet, {}, "the arguments of 'greet' do not fit: input: Field required"),
        (greet, {"input": "Ada", "loud": True}, "loud: Extra inputs are not permitted"),
        (bill, {"invoice": "INV-311", "amounts": "much"}, "amounts: Input should be a valid"),
        (fails, {"input": "Ada"}, "the graph 'fails' has failed at 'broken': nobody is called Ada."),
        (
            spends,
            {"input": "Ada"},
            "the graph 'spends' has stopped at a bound at 'pay': the bound 'tool_calls' refuses",
        ),
        (asks, {"input": "Ada"}, "the graph 'asks' waits for people:\n- approve: Pay it?\nNobody can answer"),
    ],
)
async def test_what_did_not_end_well_is_an_error_that_says_so(
    graph: Graph[Any], arguments: dict[str, Any], said: str
) -> None:
    """A client, and its model, can tell a result from a failure, and why."""
    result = await called(graph, arguments)

    assert result.is_error
    assert said in text(result)


async def test_a_tool_that_is_not_there_is_refused() -> None:
    """As the protocol wants it."""
    async with Client(serve(greet)) as client:
        with pytest.raises(MCPError, match="there is no tool 'gret'; there are: greet"):
            await client.call_tool("gret", {})


async def test_a_run_that_waits_can_be_answered_by_its_id() -> None:
    """With a journal, the error says what to go on with; the same call made again finds the run, and its end."""
    journal = MemoryJournal()
    meta: Any = {"graphflow/idempotency-key": "k-1"}
    async with Client(serve(asks, journal=journal)) as client:
        asked = await client.call_tool("asks", {"input": "Ada"}, meta=meta)
        (stored,) = await journal.runs()
        await resume(asks, stored.run, journal=journal, answers={"approve": "yes"})
        again = await client.call_tool("asks", {"input": "Ada"}, meta=meta)
        other = await client.call_tool("asks", {"input": "Bob"}, meta=meta)

    assert asked.is_error
    assert f"The run is stored as {stored.run!r}" in text(asked)
    assert text(again) == "Hello, Ada!"
    assert "waits for people" in text(other)


async def test_a_client_that_wants_to_know_hears_how_far_it_is() -> None:
    """Each node that starts is a progress notification."""
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with Client(serve(greet)) as client:
        await client.call_tool("greet", {"input": "Ada"}, progress_callback=hear)

    assert heard == [(1.0, "hello starts")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_gives_up_cancels_the_run(mode: str) -> None:
    """Nothing goes on for nobody."""
    waiting, over = anyio.Event(), anyio.Event()
    ends: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event.body, Emitted):
            waiting.set()
        if isinstance(event.body, RunEnded):
            ends.append(event.body.status)
            over.set()

    async with Client(serve(waits, listeners=[hear]), mode=mode) as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "waits", {"input": "Ada"})
                await waiting.wait()
                tasks.cancel_scope.cancel()
            await over.wait()

    assert ends == ["cancelled"]


def test_what_cannot_be_offered_is_refused() -> None:
    """No graph, two of one name, one with errors, one that needs a secret."""

    class Login(Context):
        token: Annotated[str, secret]

    @node
    def use(state: State[Login]) -> str:
        return state.context.token

    login = Graph("login", START >> use >> END, context=Login, budget=Budget(node_runs=1))
    unfinished = Graph("unfinished", START >> use, context=Login, budget=Budget(node_runs=1))

    with pytest.raises(UsageError, match="one Graph is needed"):
        serve()
    with pytest.raises(UsageError, match="two graphs have the name 'greet'"):
        serve(greet, greet)
    with pytest.raises(GraphProblems):
        serve(unfinished)
    with pytest.raises(UsageError, match="token is a secret"):
        serve(login)


# --- the command ---


async def test_a_graph_calls_a_graph_over_a_process() -> None:
    """A round trip: an agent here calls the tool that a graph in another process is."""
    command = [*COMMAND, "--no-store", f"{SERVED}:greet", f"{SERVED}:fails"]
    with McpServer("graphs", command=command, cwd=ROOT) as graphs:
        tools = await anyio.to_thread.run_sync(lambda: graphs.tools("greet", "fails", effect="read"))
        calls = [call("greet", input="Ada"), call("fails", input="Bob")]
        result = await run(asking(calls, "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(graphs.close)

    assert told(result) == [
        "Hello, Ada!", "fails failed: the graph 'fails' has failed at 'broken': nobody is called Bob.",
    ]  # fmt: skip


async def test_the_command_keeps_runs_where_it_is_told(tmp_path: Path) -> None:
    """`graphflow resume` answers a run that a client has started, without being told its graph."""
    db = tmp_path / "runs.db"
    parameters = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "--db", str(db), f"{SERVED}:asks"], cwd=ROOT
    )
    async with Client(parameters) as client:
        result = await client.call_tool("asks", {"input": "Ada"})
    command = [sys.executable, "-m", "graphflow.cli", "resume", "last", "--db", str(db), "--answer", "approve=yes"]
    answered = await anyio.run_process(command, check=False, cwd=ROOT)

    assert "The run is stored as" in text(result)
    assert answered.stdout.decode().strip() == "Hello, Ada!"


def test_the_command_serves_over_http_on_loopback() -> None:
    """The address is said on stderr, and tools of it are used as others are; Ctrl-C ends it."""
    environment = {key: value for key, value in os.environ.items() if key != "GRAPHFLOW_DB"}
    command = [*COMMAND, "--http", "0", f"{SERVED}:greet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            with McpServer("graphs", url=line.rpartition(" ")[2].strip()) as graphs:
                (tool,) = graphs.tools("greet", effect="read")
        finally:
            process.send_signal(signal.SIGINT)
        process.wait(20)

    assert line.startswith("serving at http://127.0.0.1:")
    assert tool.description == "Greet somebody."


def test_bodies_may_print() -> None:
    """What is printed while a graph is loaded or runs never comes between the messages."""
    code = (
        "import sys; from graphflow.cli import main\n"
        "import tests.mcp.served as served, builtins\n"
        "print('loaded')\n"
        "sys.exit(main(['mcp', 'tests.mcp.served:greet']))"
    )
    with McpServer("graphs", command=[sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}) as graphs:
        (tool,) = graphs.tools("greet")

    assert tool.name == "greet"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        ([f"{SERVED}:greet", f"{SERVED}:greet"], "two graphs have the name 'greet'"),
    ],
)
def test_the_command_says_what_is_wrong(words: list[str], said: str) -> None:
    """In a line, and with the exit code of bad use."""
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, cwd=ROOT, input="")

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
