"""Calls of a server's tools in runs: what comes back, what is cancelled, what is lost; over both transports."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from graphflow import Graph, SqliteJournal, Tool, run, run_sync, start
from graphflow.errors import GraphChanged, ToolServerUnavailable
from graphflow.mcp import McpServer
from graphflow.runtime.resuming import resume
from graphflow.testing import call
from tests.mcp.support import Ask, asking, desk, desk_over_http, told

HELLO = call("echo", text="hello")


@pytest.fixture(scope="module", params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    """The desk, at work behind each transport."""
    if request.param == "stdio":
        with desk() as found:
            found.tools("echo")
            yield found
        return
    with desk_over_http() as url, McpServer("desk", url=url) as found:
        found.tools("echo")
        yield found


def says(note: Path, text: str) -> bool:
    """Tell whether a note says something."""
    return note.exists() and note.read_text("utf-8") == text


async def written(note: Path, text: str) -> None:
    """Wait until a note says something."""
    with anyio.fail_after(20):
        while not says(note, text):  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)


@pytest.fixture
def tools(server: McpServer) -> tuple[Tool, ...]:
    """What reads."""
    return server.tools("echo", "sum", "fail", "picture", "meta")


async def test_results_come_as_text(tools: tuple[Tool, ...]) -> None:
    """Texts are the result, structured content is JSON, what is no text is named, and a failure is told as such."""
    calls = [HELLO, call("sum", a=1, b=2), call("picture"), call("fail")]

    result = await run(asking(calls, "done", tools=tools), Ask())

    assert told(result) == [
        "hello",
        '{"sum": 3}',
        "a chart\n[image, image/png, 6 bytes: not shown]",
        "fail failed: no such invoice",
    ]
    assert result.status == "completed"


async def test_arguments_are_held_against_the_schema(tools: tuple[Tool, ...]) -> None:
    """What does not fit is not sent; the model is told what is wrong, and what is wanted."""
    result = await run(asking([call("sum", a=-1, c=2)], "done", tools=tools), Ask())

    (said,) = told(result)
    assert said.startswith("not executed: the arguments of 'sum' do not fit: ")
    assert "'b' is a required property" in said
    assert "a: -1 is less than the minimum of 0" in said
    assert 'Wanted: {"a": integer (required), "b": integer (required)}.' in said


async def test_the_idempotency_key_goes_along(tools: tuple[Tool, ...]) -> None:
    """The server can tell a call that is made again from a new one."""
    result = await run(asking([call("meta"), call("meta")], "done", tools=tools), Ask())

    keys = [json.loads(said)["graphflow/idempotency-key"] for said in told(result)]
    assert len({*keys}) == 2
    assert all(len(key) == 32 for key in keys)


async def test_many_calls_and_runs_share_a_connection(tools: tuple[Tool, ...]) -> None:
    """Several runs at once, each with several calls, get each what is theirs."""
    results: dict[int, list[str]] = {}

    async def one(number: int) -> None:
        calls = [call("echo", text=f"{number}.{position}") for position in range(4)]
        results[number] = told(await run(asking(calls, "done", tools=tools), Ask()))

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, number)

    assert results == {number: [f"{number}.{position}" for position in range(4)] for number in range(6)}


def test_run_sync_uses_it_too(tools: tuple[Tool, ...]) -> None:
    """No loop of the caller's is needed; each run has one of its own."""
    graphs = [asking([HELLO], "done", tools=tools) for _ in range(2)]

    assert [told(run_sync(graph, Ask())) for graph in graphs] == [["hello"], ["hello"]]


async def test_a_cancelled_run_cancels_the_call_at_the_server(server: McpServer, tmp_path: Path) -> None:
    """The server is told, and the run does not wait for it."""
    note = tmp_path / "note"
    tools = await anyio.to_thread.run_sync(server.tools, "wait")

    async with start(asking([call("wait", note=str(note))], "done", tools=tools), Ask()) as going:
        await written(note, "waits")
        going.cancel()
        with anyio.fail_after(5):
            result = await going.result()

    assert result.status == "cancelled"
    await written(note, "cancelled")


async def test_a_call_that_takes_too_long_is_cancelled(server: McpServer, tmp_path: Path) -> None:
    """The tool's `timeout` ends it; the model is told, and the server too."""
    note = tmp_path / "note"
    tools = await anyio.to_thread.run_sync(lambda: server.tools("wait", timeout=1))

    result = await run(asking([call("wait", note=str(note))], "done", tools=tools), Ask())

    assert told(result) == ["wait failed: it took longer than its timeout of 1 s"]
    await written(note, "cancelled")


async def test_a_server_that_dies_is_started_again() -> None:
    """The call in flight fails with what is known of the end; the next one is answered."""
    with desk() as server:
        tools = await anyio.to_thread.run_sync(server.tools, "die", "echo")
        result = await run(
            asking([call("die", code=3)], [HELLO], [call("die", code=0)], [HELLO], "done", tools=tools), Ask()
        )
        await anyio.to_thread.run_sync(server.close)

    died, again, died_again, once_more = told(result)
    assert died.startswith(
        "die failed: ToolServerUnavailable: the tool server 'desk' was lost in the middle of this call"
    )
    assert "(exit code 3; the last on its stderr: 'one / the disk is on fire')" in died
    assert "(exit code 0; " in died_again
    assert (again, once_more) == ("hello", "hello")


def test_a_server_that_dies_at_each_call_is_not_started_for_ever() -> None:
    """After three ends in a row it is left alone for a while, and the model is told so."""
    with desk() as server:
        graph = asking(*[[call("die", code=1)] for _ in range(4)], "done", tools=server.tools("die"))
        result = run_sync(graph, Ask())

    *died, refused = told(result)
    assert all("exit code 1" in said for said in died)
    assert "has ended 3 times in a row before it answered a call; it is started again in" in refused


async def test_others_in_flight_fail_with_it() -> None:
    """All calls of a server that dies fail at once, and the run goes on."""
    with desk() as server:
        tools = await anyio.to_thread.run_sync(server.tools, "die", "meta", "wait")
        calls = [call("wait", note="/dev/null"), call("die", code=1)]
        result = await run(asking(calls, [call("meta")], "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(server.close)

    waited, died, answered = told(result)
    assert "was lost in the middle of this call" in waited
    assert "was lost in the middle of this call" in died
    assert "idempotency-key" in answered


async def test_an_http_server_that_is_gone_is_data() -> None:
    """A call to a server that can no longer be reached fails, and says where it was looked for."""
    with desk_over_http() as url, McpServer("desk", url=url) as server:
        tools = await anyio.to_thread.run_sync(server.tools, "die", "echo")
        result = await run(asking([call("die", code=1)], [HELLO], "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(server.close)

    died, refused = told(result)
    assert "the tool server 'desk' was lost in the middle of this call" in died
    assert f"the tool server 'desk' could not be reached at {url}" in refused


async def test_a_closed_server_starts_nothing() -> None:
    """Who has closed it has closed it; in a new `with` block it is opened again."""
    with desk() as server:
        tools = await anyio.to_thread.run_sync(server.tools, "echo")
        await anyio.to_thread.run_sync(server.close)
    graph = asking([HELLO], [HELLO], "done", tools=tools)

    closed = await run(graph, Ask())
    with server:
        opened = await run(asking([HELLO], "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(server.close)

    assert told(closed) == ["echo failed: ToolServerUnavailable: the tool server 'desk' has been closed."] * 2
    assert told(opened) == ["hello"]


async def test_who_closes_it_fails_the_calls_at_work(tmp_path: Path) -> None:
    """A call in flight does not keep the server, nor is it kept by it."""
    note = tmp_path / "note"
    server = desk()
    tools = await anyio.to_thread.run_sync(server.tools, "wait")

    async with start(asking([call("wait", note=str(note))], "done", tools=tools), Ask()) as going:
        await written(note, "waits")
        await anyio.to_thread.run_sync(server.close)
        result = await going.result()

    assert told(result) == ["wait failed: ToolServerUnavailable: the tool server 'desk' has been closed."]


def test_tools_that_have_changed_are_noticed_when_a_run_is_taken_up(tmp_path: Path) -> None:
    """The schemas are part of the graph: a run goes on with those that it was begun with, or says what has changed."""
    journal = SqliteJournal(tmp_path / "runs.db")

    def graph_with(server: McpServer) -> Graph[Ask]:
        return asking([HELLO], "done", tools=server.tools("echo", approval=True))

    with desk() as server:
        first = run_sync(graph_with(server), Ask(), journal=journal, run_id="may")
    (question,) = first.questions
    yes = {question.id: True}
    with desk("newer") as newer, pytest.raises(GraphChanged, match="changed: node clerk"):
        asyncio.run(resume(graph_with(newer), "may", journal=journal, answers=yes))
    with desk() as server:
        result = asyncio.run(resume(graph_with(server), "may", journal=journal, answers=yes))
    journal.close()

    assert first.status == "waiting"
    assert told(result) == ["hello"]


def test_an_http_server_that_is_back_is_used_again() -> None:
    """A server that was started anew is found at its old address."""
    with desk_over_http() as url:
        server = McpServer("desk", url=url)
        tools = server.tools("echo")
        before = told(run_sync(asking([HELLO], "done", tools=tools), Ask()))
    without = told(run_sync(asking([HELLO], "done", tools=tools), Ask()))
    with desk_over_http(str(urlsplit(url).port)), server:
        after = told(run_sync(asking([HELLO], "done", tools=tools), Ask()))

    assert (before, after) == (["hello"], ["hello"])
    assert f"could not be reached at {url}" in without[0] or "was lost in the middle of this call" in without[0]


async def test_a_tool_that_the_server_has_no_longer_is_data() -> None:
    """During a run the graph stays as it is; what the server refuses is told to the model."""
    code = (
        "from mcp.server import MCPServer\n"
        "server = MCPServer('brief')\n"
        "@server.tool()\n"
        "def once() -> str:\n"
        "    server.remove_tool('once')\n"
        "    return 'there'\n"
        "server.run()"
    )
    with McpServer("brief", command=[sys.executable, "-c", code]) as server:
        tools = await anyio.to_thread.run_sync(lambda: server.tools("once", effect="read"))
        result = await run(asking([call("once")], [call("once")], "done", tools=tools), Ask())
        await anyio.to_thread.run_sync(server.close)

    first, second = told(result)
    assert first == "there"
    assert second == "once failed: Unknown tool: once"


def test_the_error_has_the_name_of_the_server() -> None:
    """Programs need not read the text."""
    with desk("short", name="files") as server, pytest.raises(ToolServerUnavailable) as caught:
        server.tools("*")

    assert caught.value.server == "files"
