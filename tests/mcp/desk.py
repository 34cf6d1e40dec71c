"""A tool server for the tests, and one that misbehaves on demand: `python desk.py [--http [PORT]] [HABIT...]`.

The habits: `garbage` writes what is no message before it serves, `deaf` ignores that its input has ended and that it is
asked to stop, `mute` never answers, `late` waits a moment, `newer` has another schema, `silent` says nothing of what
its tools do, `short` ends at once.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

HABITS = set(sys.argv[1:])
if "short" in HABITS:
    sys.exit("the configuration is missing")
while "mute" in HABITS:
    time.sleep(60)

from mcp import types  # noqa: E402 - it takes a second or two
from mcp.server import Server  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402

TEXT = {"type": "string"}


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def hints(**given: bool) -> types.ToolAnnotations | None:
    """What is said of what a tool does."""
    return None if "silent" in HABITS else types.ToolAnnotations.model_validate(given)


READ = hints(read_only_hint=True)
NEWER = {"loud": {"type": "boolean"}} if "newer" in HABITS else {}
NAMES = {"echo": schema("text", text={**TEXT, "description": "What to say."}, **NEWER)}
TOOLS = [
    types.Tool(name="echo", description="Say it\n\nagain.", input_schema=NAMES["echo"], annotations=READ),
    types.Tool(name="sum", input_schema=schema("a", "b", a={"type": "integer", "minimum": 0}, b={"type": "integer"}),
               annotations=READ),
    types.Tool(name="fail", input_schema=schema(), annotations=READ),
    types.Tool(name="picture", input_schema=schema(), annotations=READ),
    types.Tool(name="wait", input_schema=schema("note", note=TEXT), annotations=READ),
    types.Tool(name="die", input_schema=schema("code", code={"type": "integer"}), annotations=READ),
    types.Tool(name="meta", input_schema=schema(), annotations=READ),
    types.Tool(name="append", input_schema=schema(), annotations=hints(read_only_hint=False, destructive_hint=False)),
    types.Tool(name="drop", input_schema=schema(), annotations=hints(destructive_hint=True)),
    types.Tool(name="odd name/here", input_schema={"type": "object"}, annotations=READ),
    types.Tool(name="unusable", input_schema=schema(a={"type": "text"}), annotations=READ),
    types.Tool(name="wordy", description="x" * 5_000, input_schema={"type": "object"}, annotations=READ),
]  # fmt: skip


async def listed(_: Any, __: Any) -> types.ListToolsResult:
    """Say what there is."""
    return types.ListToolsResult(tools=[tool for tool in TOOLS if tool.name != "unusable" or "usable" not in HABITS])


def said(text: str, *, error: bool = False) -> types.CallToolResult:
    """A result of one text."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=error)


async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Do it."""
    given = params.arguments or {}
    match params.name:
        case "echo":
            return said(f"{given['text']}{'!' if given.get('loud') else ''}")
        case "sum":
            found = {"sum": given["a"] + given["b"]}
            return types.CallToolResult(content=[types.TextContent(text=json.dumps(found))], structured_content=found)
        case "fail":
            return said("no such invoice", error=True)
        case "picture":
            return types.CallToolResult(
                content=[types.TextContent(text="a chart"), types.ImageContent(data="aGVsbG8h", mime_type="image/png")]
            )
        case "wait":
            return await waited(Path(given["note"]))
        case "die":
            sys.stderr.write("one\nthe disk is on fire\n")
            sys.stderr.flush()
            os._exit(given["code"])
        case "meta":
            return said(json.dumps(dict(ctx.meta or {})))
        case _:
            return said(params.name)


async def waited(note: Path) -> types.CallToolResult:
    """Wait to be cancelled, and write down that it was."""
    note.write_text("waits", "utf-8")  # noqa: ASYNC240 - nothing else is done here
    try:
        await asyncio.sleep(120)
    except asyncio.CancelledError:
        note.write_text("cancelled", "utf-8")  # noqa: ASYNC240
        raise
    return said("not cancelled")


async def over_stdio(server: Server[Any]) -> None:
    """Serve over stdin and stdout."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def over_http(server: Server[Any]) -> None:
    """Serve over HTTP on loopback; the port is the first line of stdout."""
    import uvicorn

    port = next((int(habit) for habit in HABITS if habit.isdigit()), 0)
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the test reads it
    app = server.streamable_http_app()
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


if __name__ == "__main__":
    if "garbage" in HABITS:
        print("Welcome to the desk!", flush=True)  # noqa: T201 - on purpose
    if "deaf" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "late" in HABITS:
        time.sleep(0.5)
    asyncio.run(
        (over_http if "--http" in HABITS else over_stdio)(Server("desk", on_list_tools=listed, on_call_tool=called))
    )
    while "deaf" in HABITS:
        time.sleep(60)
