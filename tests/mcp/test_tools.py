"""What a server offers becomes tools: which ones, by what names, with what effects; and what can be wrong with it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from graphflow import END, START, Agent, Budget, Graph
from graphflow.errors import GraphProblems, ToolServerUnavailable, UsageError
from graphflow.graphs.checks import require_runnable
from graphflow.mcp import McpServer
from graphflow.mcp.offered import chosen
from graphflow.testing import ScriptedModel
from tests.mcp.support import Ask, desk, desk_over_http
from tests.support import ROOT

READING = ("echo", "sum", "fail", "picture", "wait", "die", "meta", "odd_name_here", "wordy")


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    """The desk, at work."""
    with desk() as found:
        yield found


def refusal(server: McpServer) -> str:
    """What a server that cannot be asked is blamed for."""
    with pytest.raises(ToolServerUnavailable) as caught:
        server.tools("*")
    return str(caught.value)


def test_the_tools_are_those_that_are_named(server: McpServer) -> None:
    """An agent gets what was asked for, in that order, with the server's schema as it is."""
    add, echo = server.tools("sum", "echo")

    assert [add.name, echo.name] == ["sum", "echo"]
    assert echo.description == "Say it again."
    assert echo.spec.parameters["properties"] == {"text": {"type": "string", "description": "What to say."}}
    assert (echo.effect, echo.approval, echo.timeout, echo.max_calls) == ("read", False, 60.0, None)


def test_all_tools_are_asked_for_by_a_star() -> None:
    """Whoever wants all of them says so; names that no model takes are made valid."""
    with desk("usable") as server:
        assert tuple(tool.name for tool in server.tools("*") if tool.effect == "read") == READING


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), r"name the tools that the agent may use, or '\*' for all; there are: echo, sum"),
        (("eco",), r"the tool server 'desk' has no tool 'eco'; there are: echo, .*Did you mean 'echo'\?"),
    ],
)
def test_names_are_required_and_known(server: McpServer, names: tuple[str, ...], said: str) -> None:
    """No agent gets tools that nobody chose."""
    with pytest.raises(UsageError, match=said):
        server.tools(*names)


def test_effects_are_what_the_server_says_and_else_the_worst(server: McpServer) -> None:
    """What is not said to be harmless may do what cannot be undone; whoever knows better says so."""
    append, drop = server.tools("append", "drop")
    (known,) = server.tools("drop", effect="write", approval=True, timeout=2, max_calls=3)
    with desk("silent") as silent:
        (unsaid,) = silent.tools("echo")

    assert (append.effect, drop.effect, unsaid.effect) == ("write", "irreversible", "irreversible")
    assert (known.effect, known.approval, known.timeout, known.max_calls) == ("write", True, 2, 3)


def test_a_tool_that_may_destroy_needs_a_gate_or_approval(server: McpServer) -> None:
    """The checks of a graph hold for tools of servers as for others."""
    graphs = [
        Graph(
            "clean", START >> Agent("clerk", model=ScriptedModel("done"), tools=tools) >> END, context=Ask,
            budget=Budget(model_calls=1),
        )
        for tools in (server.tools("drop"), server.tools("drop", approval=True))
    ]  # fmt: skip

    with pytest.raises(GraphProblems, match="irreversible"):
        require_runnable(graphs[0])
    require_runnable(graphs[1])


def test_a_tool_that_cannot_be_called_is_refused(server: McpServer) -> None:
    """Its name and its server stand in the error; the others can be used."""
    with pytest.raises(UsageError, match="the tool 'unusable' of the server 'desk' cannot be used: its schema is none"):
        server.tools("unusable")


def test_a_server_without_tools_says_so() -> None:
    """One that offers other things is no source of tools."""
    code = "import asyncio; from mcp.server import Server; from mcp.server.stdio import stdio_server\n"
    code += "async def main():\n    server = Server('none')\n    async with stdio_server() as streams:\n"
    code += "        await server.run(*streams, server.create_initialization_options())\nasyncio.run(main())"
    with McpServer("none", command=[sys.executable, "-c", code]) as server:
        assert "'none' does not list its tools: MCPError: Method not found" in refusal(server)


def test_two_tools_of_one_name_on_one_server_are_refused() -> None:
    """Which of them is meant cannot be said."""
    twice: Any = [SimpleNamespace(name="echo"), SimpleNamespace(name="echo")]

    with pytest.raises(UsageError, match="offers two tools named 'echo'"):
        chosen("desk", twice, ["echo"])


def test_what_a_server_says_of_a_tool_is_cut(server: McpServer) -> None:
    """A stranger's text does not fill the request of a model."""
    (wordy,) = server.tools("wordy")

    assert len(wordy.description) == 1_000


def test_tools_of_one_name_get_a_prefix(server: McpServer) -> None:
    """Two servers with equal tools fit in one agent; without a prefix the error says how."""
    with desk(name="other") as other:
        with pytest.raises(UsageError, match=r"two tools have the name 'echo'.*prefix="):
            Agent("clerk", model=ScriptedModel("done"), tools=[*server.tools("echo"), *other.tools("echo")])
        agent = Agent(
            "clerk", model=ScriptedModel("done"), tools=[*server.tools("echo"), *other.tools("echo", prefix="other_")]
        )

    assert [tool.name for tool in agent.tools] == ["echo", "other_echo"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give either command=.* or url="),
        ({"command": ["a"], "url": "http://127.0.0.1:1/mcp"}, "give either command=.* or url="),
        ({"command": "python server.py"}, "command= is a list"),
        ({"command": []}, "command= is a list"),
        ({"command": ["a"], "headers": {}}, "headers= are for a url"),
        ({"command": ["a"], "env": {"PORT": 1}}, "env= is a table of texts"),
        ({"url": "ftp://127.0.0.1/mcp"}, "an address is needed"),
        ({"url": "http://127.0.0.1/mcp", "cwd": "."}, "are for a command"),
        ({"command": ["a"], "start_timeout": 0}, "a finite number of seconds"),
    ],
)
def test_a_server_is_one_command_or_one_address(options: dict[str, Any], said: str) -> None:
    """What makes no sense is refused before anything is started."""
    with pytest.raises(UsageError, match=said):
        McpServer("desk", **options)


def test_a_name_is_one_line() -> None:
    """It stands in errors."""
    with pytest.raises(UsageError, match="a name on one line"):
        McpServer("two\nlines", command=["a"])


def test_nothing_of_its_environment_is_shown() -> None:
    """Variables and headers may hold keys."""
    shown = repr(
        McpServer("desk", url="http://ada:tok-1@127.0.0.1:1/mcp?key=tok-2", headers={"Authorization": "tok-3"})
    )

    assert shown == "<McpServer 'desk'>"


def test_a_command_that_does_not_exist_says_so() -> None:
    """The error names the server and what the system says."""
    with (
        McpServer("desk", command=["no-such-program-anywhere"]) as server,
        pytest.raises(ToolServerUnavailable, match=r"'desk' could not be started \(cannot be started: No such file"),
    ):
        server.tools("*")


def test_a_server_that_ends_at_once_says_why() -> None:
    """The last that it said on stderr is part of the error; it is not started for ever."""
    with desk("short") as server:
        said = [refusal(server) for _ in range(4)]

    assert "exit code 1; the last on its stderr: 'the configuration is missing'" in said[0]
    assert "has ended 3 times in a row before it answered a call; it is started again in" in said[3]


def test_a_server_that_says_nothing_is_given_up() -> None:
    """`start_timeout` bounds the wait for it."""
    with (
        desk("mute", start_timeout=0.5) as server,
        pytest.raises(ToolServerUnavailable, match=r"was not ready within 0\.5 s of its start"),
    ):
        server.tools("*")


def test_garbage_and_a_slow_start_do_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    """What is no message is passed over, and nothing of it comes into the terminal."""
    with desk("garbage", "late") as server:
        names = [tool.name for tool in server.tools("echo")]

    assert names == ["echo"]
    assert capfd.readouterr() == ("", "")


def test_garbage_stands_in_the_error() -> None:
    """A program that is no tool server is known by what it writes."""
    with (
        McpServer("desk", command=[sys.executable, "-c", "print('Hello, I am a web server')"]) as server,
        pytest.raises(ToolServerUnavailable, match="it wrote what is no message on stdout: 'Hello, I am a web server'"),
    ):
        server.tools("*")


def test_an_address_without_a_server_says_so() -> None:
    """The error names the address, without what may be secret in it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with McpServer("desk", url=f"http://ada:tok-1@127.0.0.1:{port}/mcp?key=tok-2") as server:
        found = refusal(server)

    assert f"'desk' could not be reached at http://127.0.0.1:{port}/mcp" in found
    assert "tok" not in found


def test_an_address_of_something_else_says_so() -> None:
    """Where no protocol is spoken, no tools are found."""
    with desk_over_http() as url, McpServer("desk", url=url.replace("/mcp", "/other")) as server:
        found = refusal(server)

    assert "could not be reached at http://127.0.0.1" in found
    assert "Not Found" in found


def test_the_missing_extra_is_named() -> None:
    """Without the library everything else works, and the first use says what to install."""
    program = (
        "import sys; sys.modules['mcp'] = None\n"
        "from graphflow.mcp import McpServer, serve\n"
        "try: McpServer('desk', command=['a'])\n"
        "except ImportError as error: print(error)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.stdout.strip() == "a tool server needs the extra 'mcp': pip install 'graphflow-agents[mcp]'."
