"""Graphs as tools: whoever speaks the protocol can run them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pydantic_core
from pydantic import BaseModel, ValidationError

from graphflow.errors import GraphflowError, RunExists, UsageError
from graphflow.events import Journal, Listener, NodeStarted
from graphflow.graphs.checks import require_runnable
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import nested_graphs
from graphflow.mcp.connection import version_of_graphflow
from graphflow.mcp.extra import require_mcp
from graphflow.mcp.offered import names_of
from graphflow.mcp.server import KEY
from graphflow.model.context import Context, question_field
from graphflow.model.contract import Reason
from graphflow.model.ids import path_text
from graphflow.model.secrets import secret_fields, veiled
from graphflow.model.telling import value_text
from graphflow.model.thread import shown
from graphflow.nodes.schemas import schema_text
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Result
from graphflow.runtime.starting import start

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult
    from mcp.types import Tool as Offered

INPUT: Final = "input"
"""The one argument of a graph whose context begins with a text and needs nothing else."""


class Served(NamedTuple):
    """A graph as a tool.

    Attributes:
        graph: the graph.
        offered: how it is listed.
        first: the field of the context that gets the one argument `input`, or None where arguments are fields.
    """

    graph: Graph[Any]
    offered: Offered
    first: str | None


def serve(
    *graphs: Graph[Any],
    journal: Journal | None = None,
    name: str = "graphflow",
    resources: Sequence[object] = (),
    listeners: Sequence[Listener] = (),
) -> Server[Any]:
    """Make a server whose tools are graphs; `graphflow mcp TARGET` runs it, and so does whatever runs an mcp `Server`.

    A tool takes the fields of its graph's context, or one text, `input`, if the context begins with a `str` and needs
    nothing else. Its result is the output of the run. A run that failed, has met a bound or waits for people is an
    error that says so. A client that cancels its request cancels the run.

    Args:
        graphs: what is offered; name and description are theirs.
        journal: where runs are stored. A call that is made again with the same idempotency key then goes on with its
            run, and a run that waits can be answered by its id.
        name: what the server calls itself.
        resources: as those of `run`.
        listeners: as those of `run`.

    Raises:
        UsageError: if there is no graph, two have one name, or one needs a secret, which no client should know.
        GraphProblems: if a graph cannot run.
        MissingExtra: if the extra `mcp` is not installed.
    """
    require_mcp("to offer a graph as a tool")
    from mcp import types
    from mcp.server import Server

    served = _served(graphs)
    host = _Host(served, journal, tuple(resources), tuple(listeners))

    async def listed(_: Any, __: Any) -> ListToolsResult:
        return types.ListToolsResult(tools=[one.offered for one in served.values()])

    return Server(name, version=version_of_graphflow(), on_list_tools=listed, on_call_tool=host.call)


def _served(graphs: Sequence[Graph[Any]]) -> dict[str, Served]:
    if not graphs or not all(isinstance(graph, Graph) for graph in graphs):
        msg = f"serve({', '.join(map(repr, graphs))}): one Graph is needed, or several."
        raise UsageError(msg)
    names = names_of((graph.name for graph in graphs), "")
    if len(names) < len(graphs):
        double = next(graph.name for graph in graphs if sum(other.name == graph.name for other in graphs) > 1)
        msg = f"serve(...): two graphs have the name {double!r}, and a tool is known by its name."
        raise UsageError(msg)
    return {names[graph.name]: _one(graph, names[graph.name]) for graph in graphs}


def _one(graph: Graph[Any], name: str) -> Served:
    from mcp import types

    require_runnable(graph)
    fields = graph.context.model_fields
    secrets = secret_fields(graph.context)
    needed = [field for field, info in fields.items() if info.is_required()]
    if lost := secrets.intersection(needed):
        msg = (
            f"serve({value_text(graph)}): {', '.join(sorted(lost))} is a secret, and a client of the protocol must "
            "know none."
        )
        raise UsageError(msg)
    first = question_field(cast("type[Context]", graph.context))
    if first is not None and set(needed) <= {first}:
        said = fields[first].description
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {INPUT: {"type": "string", **({"description": said} if said else {})}},
            "required": [INPUT],
            "additionalProperties": False,
        }
    else:
        first = None
        schema = {"properties": {}, **json.loads(schema_text(graph.context))}
        hidden = _hidden(graph.context)
        schema["properties"] = {key: part for key, part in schema["properties"].items() if key not in hidden}
    harmful = any(node.irreversible for inner in nested_graphs(graph) for node in inner.mentioned())
    hints = types.ToolAnnotations(read_only_hint=False, destructive_hint=True) if harmful else None
    described = " ".join((graph.description or "").split()) or f"Run the graph {graph.name!r}."
    return Served(graph, types.Tool(name=name, description=described, input_schema=schema, annotations=hints), first)


class _Host:
    """Runs graphs for clients."""

    def __init__(
        self, served: dict[str, Served], journal: Journal | None, resources: Sequence[object],
        listeners: Sequence[Listener],
    ) -> None:  # fmt: skip
        self._served, self._journal = served, journal
        self._resources, self._listeners = resources, listeners

    async def call(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        """Run a graph to its end."""
        from mcp import MCPError
        from mcp.types import INVALID_PARAMS

        served = self._served.get(params.name)
        if served is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; there are: {', '.join(self._served)}.")
        arguments = params.arguments or {}
        if forbidden := sorted(_hidden(served.graph.context) & arguments.keys()):
            return _answer(f"{', '.join(forbidden)}: no client may set what is secret.", error=True)
        try:
            context = _context(served, arguments)
        except ValidationError as error:
            return _answer(f"the arguments of {params.name!r} do not fit: {_complaints(error)}.", error=True)
        key: object = dict[str, Any](ctx.meta or {}).get(KEY)
        try:
            return self._told(served, await self._run(ctx, served, context, _run_id(params, key)))
        except GraphflowError as error:
            return _answer(f"{type(error).__name__}: {error}", error=True)

    async def _run(self, ctx: Any, served: Served, context: Context, run_id: str | None) -> Result[Any]:
        try:
            return await self._watched(ctx, self._new(served, context, run_id))
        except RunExists:
            if run_id is None or self._journal is None:
                raise
            from graphflow.runtime.resuming import reopen

            # The client asks again for what it had asked for before it, or we, were broken off.
            return await self._watched(
                ctx,
                reopen(
                    served.graph, run_id, journal=self._journal, resources=self._resources, listeners=self._listeners
                ),
            )

    def _new(self, served: Served, context: Context, run_id: str | None) -> AbstractAsyncContextManager[Run[Any]]:
        return start(
            served.graph, context, journal=self._journal, resources=self._resources, listeners=self._listeners,
            run_id=run_id if self._journal is not None else None,
        )  # fmt: skip

    @staticmethod
    async def _watched(ctx: Any, opening: AbstractAsyncContextManager[Run[Any]]) -> Result[Any]:
        """Wait for the end, and tell a client that wants to know how far it is."""
        async with opening as run:
            started = 0
            async for event in run:
                if isinstance(event.body, NodeStarted):
                    started += 1
                    await ctx.session.report_progress(float(started), None, f"{path_text(event.path)} starts")
            try:
                return await run.result()
            except GraphflowError:
                raise
            except Exception:  # noqa: BLE001 - what a node's body raised is in the outcome, too
                return run.outcome

    def _told(self, served: Served, result: Result[Any]) -> CallToolResult:
        name = served.graph.name
        stored = self._journal is not None
        match result.status:
            case "completed" | "partial":
                return _answer(result.output, note=_lost(result))
            case "waiting":
                asked = "\n".join(f"- {question.id}: {question.text}" for question in result.questions)
                how = (
                    f"The run is stored as {result.run_id!r}: somebody answers with graphflow resume, or resume()."
                    if stored
                    else "Nobody can answer: the server keeps no runs."
                )
                return _answer(f"the graph {name!r} waits for people:\n{asked}\n{how}", error=True)
            case status:
                more = f" The run is stored as {result.run_id!r}." if stored else ""
                return _answer(f"the graph {name!r} has {_ended(status)}{_why(result.reason)}.{more}", error=True)


def _hidden(context: type[Context]) -> frozenset[str]:
    """Return the names of the fields that are secret, and their other names: a schema has these."""
    fields = context.model_fields
    secrets = secret_fields(context)
    others = (name for field in secrets for name in (fields[field].alias, fields[field].validation_alias))
    return secrets | {name for name in others if isinstance(name, str)}


def _context(served: Served, arguments: dict[str, Any]) -> Context:
    """Make the context of a run; the first field gets `input` where that is all there is.

    Raises:
        ValidationError: if the arguments do not fit.
    """
    kind: type[Context] = served.graph.context
    if served.first is None:
        return kind.model_validate_json(json.dumps(arguments))
    known = _Input.model_validate(arguments)
    return kind.model_validate({served.first: known.input}, by_alias=False, by_name=True)


class _Input(BaseModel, extra="forbid"):
    input: str


def _run_id(params: CallToolRequestParams, key: object) -> str | None:
    """Return the id of the run of a call that can be told from others, so that it can be found again."""
    if not isinstance(key, str) or not key:
        return None
    whole = json.dumps([params.name, params.arguments, key], sort_keys=True)
    return f"mcp-{hashlib.sha256(whole.encode()).hexdigest()[:32]}"


def _answer(output: object, *, note: str = "", error: bool = False) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    text = "" if output is None else shown(output)
    content: list[Any] = [TextContent(text=text)] if text or not note else []
    if note:
        content.append(TextContent(text=note))
    plain: Any = None
    if isinstance(output, BaseModel):
        with contextlib.suppress(pydantic_core.PydanticSerializationError):  # told in words
            plain = pydantic_core.to_jsonable_python(veiled(output), by_alias=True, inf_nan_mode="strings")
    return CallToolResult(content=content, structured_content=plain, is_error=error)


def _lost(result: Result[Any]) -> str:
    """Say what a partial run lost on its way; "" of one that lost nothing."""
    if result.status != "partial":
        return ""
    lost = "; ".join(f"{reason.path}: {reason.text}" if reason.path else reason.text for reason in result.failures)
    return f"[partial: {lost or 'something was lost on the way'}]"


def _ended(status: str) -> str:
    return {"failed": "failed", "exhausted": "stopped at a bound", "cancelled": "been cancelled"}.get(status, status)


def _why(reason: Reason | None) -> str:
    if reason is None:
        return ""
    where = f" at {reason.path!r}" if reason.path else ""
    return f"{where}: {reason.text.rstrip('.')}"


def _complaints(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"] for one in found)
