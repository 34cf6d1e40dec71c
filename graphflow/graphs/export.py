"""The structure of a graph as plain JSON data, and its fingerprint.

The data are in a canonical order: that of names and positions, never that of statements, sets or memory. Two graphs
have one fingerprint if nothing that gives them their meaning differs, the code of their functions included.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import math
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Final

from pydantic import BaseModel, PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from typing_extensions import TypeAliasType

from graphflow.errors import GraphflowError
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import as_graph, nested_graphs
from graphflow.model.context import Context, add, append, extend, reducer_of, union
from graphflow.model.contract import CODES, LATER_CODES
from graphflow.model.secrets import hides, holds_secret, in_order, read_hints, veiled
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.edges import (
    Branch,
    ChooseStatement,
    DelegateStatement,
    ErrorStatement,
    ForkStatement,
    HandoffStatement,
    MapStatement,
    NextStatement,
    Statement,
    Terminal,
)
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.signatures import home_of
from graphflow.nodes.tools import AskUser, Tool

Data = dict[str, Any]

_OWN_FIELDS: Final = frozenset({"name", "statements", "context", "escalate"})
"""Fields of a graph that have a place of their own in its structure."""

_NO_PART: Final = frozenset({"name", "model", "fallbacks"})
"""Fields of a node that have a place of their own, or no part in its meaning: which clients ask a model."""

_DATA: Final = (bool, int, float, str, bytes, Decimal)

_SAID_ONLY: Final = frozenset({"description"})
"""Fields that a fingerprint leaves out where no model reads them: they change no decision of a run."""


def structure(graph: Graph[Any]) -> Data:
    """Return all that defines a graph as plain JSON data, in a canonical order.

    The order of statements makes no difference; the order inside a statement is in the positions of its edges. START as
    a source and END as a target are None.

    >>> class Case(Context):
    ...     question: str
    >>> from graphflow.nodes.base import END, START
    >>> from graphflow.nodes.join import Join
    >>> both = Join("both")
    >>> [edge["target"] for edge in structure(Graph("g", START >> both >> END, context=Case))["edges"]]
    ['both', None]
    """
    known: dict[int, Any] = {}
    showing = _SHOWING.set(True)
    try:
        for inner in nested_graphs(graph):
            known[id(inner)] = _structure(inner, known, said=True)
    finally:
        _SHOWING.reset(showing)
    found: Data = known[id(graph)]
    return found


def fingerprint(graph: Graph[Any]) -> str:
    """Return a digest of all that gives a graph its meaning.

    It is the same in every process and for every order of statements. A function counts by its source, or by `version=`
    where its node or tool has one. Which model an agent has does not count.
    """
    kept: str | None = vars(graph).get("_fingerprint")
    if kept is not None:
        return kept
    known: dict[int, Any] = {}
    for inner in nested_graphs(graph):
        known[id(inner)] = _digest(_structure(inner, known, said=False))
    found: str = known[id(graph)]
    vars(graph)["_fingerprint"] = found  # a graph is frozen, and sources are read for it
    return found


def parts(graph: Graph[Any]) -> dict[str, str]:
    """Return a short digest of each node and edge, of those inside nested graphs too, to tell what has changed.

    Every change of a graph's fingerprint is a change of one of them, or of the graph's own bounds and context, which
    stand under "graph <name>". How the models of an agent are asked, in JSON or several in line, is a part that a
    fingerprint leaves out.
    """
    known: dict[int, Any] = {}
    found: dict[str, str] = {}
    for inner in nested_graphs(graph):
        data = _structure(inner, known, said=False)
        known[id(inner)] = ""  # what is inside a node is told as parts of its own
        where = "" if inner is graph else f"{inner.name}/"
        nodes, edges = data.pop("nodes"), data.pop("edges")
        found[f"graph {inner.name!r}"] = _digest(data)[:_SHORT]
        for node in nodes:
            found[f"node {where}{node['name']}"] = _digest(node)[:_SHORT]
        for agent in inner.mentioned():
            if isinstance(agent, Agent) and (asked := _asked(agent)):
                found[f"{MODELS}{where}{agent.name}"] = asked
        for edge in edges:
            place = f" ({edge['position'] + 1})" if edge["position"] else ""
            name = f"{where}{edge['source'] or 'START'} -{edge['kind']}-> {edge['target'] or 'END'}{place}"
            found[f"edge {name}"] = _digest(edge)[:_SHORT]
    return dict(sorted(found.items()))


MODELS: Final = "models of "
"""How the names of the parts begin that say how models are asked."""

_SHORT: Final = 12
"""How many digits of a digest tell two versions of a part apart."""


def _asked(agent: Agent) -> str:
    """Say how the models of an agent are asked; "" for the plain way, and where that cannot be known."""
    try:
        native = agent.native
    except GraphflowError:  # of a provider whose library is missing: it is told when it is asked
        return ""
    return "" if native and not agent.fallbacks else f"{'native' if native else 'json'} {len(agent.models)}"


def _digest(data: object) -> str:
    return hashlib.sha256(_written(data).encode("utf-8", "surrogatepass")).hexdigest()


def _written(data: object) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _structure(graph: Graph[Any], known: Mapping[int, Any], *, said: bool) -> Data:
    nodes = {node.name: node for node in sorted(graph.mentioned(), key=lambda node: node.name)}
    told = _told(graph)
    edges = [edge for statement in graph.statements for edge in _edges(statement)]
    edges += [{"source": edge[0], "kind": "escalate", "target": edge[1], "position": 0} for edge in _escalates(graph)]
    own = {field.name for field in dataclasses.fields(graph)} - _OWN_FIELDS - (set[str]() if said else _SAID_ONLY)
    return {
        "name": graph.name,
        "kind": graph.kind,
        **{name: plain(getattr(graph, name)) for name in sorted(own)},
        "context": _context(graph.context),
        "nodes": [_node(node, known, said=said or node.name in told) for node in nodes.values()],
        "edges": list({_written(edge): edge for edge in sorted(edges, key=_place)}.values()),
    }


def _escalates(graph: Graph[Any]) -> list[tuple[None, str]]:
    return [] if graph.escalate is None else [(None, graph.escalate.name)]


def _place(edge: Data) -> tuple[str, str, int, str]:
    # By source first; what two statements of one source would leave open is settled by the whole text.
    return (edge["source"] or "", edge["kind"], edge["position"], _written(edge))


def _told(graph: Graph[Any]) -> set[str]:
    """The nodes among which a model chooses: it reads what is said of them."""
    statements = [found for found in graph.statements if isinstance(found, DelegateStatement | HandoffStatement)]
    return {target.name for found in statements if isinstance(found.source, Agent) for target in found.targets}


def _node(node: Node[Any], known: Mapping[int, Any], *, said: bool) -> Data:
    found: Data = {"name": node.name, "kind": node.kind}
    if as_graph(node) is not None:
        # The bounds that it has as a node stand in its own structure, under its own name.
        return {**found, "graph": known[id(node)], **({"description": node.description} if said else {})}
    for field in sorted(field.name for field in dataclasses.fields(node)):
        if field not in _NO_PART and (said or field not in _SAID_ONLY):
            found[field] = plain(getattr(node, field))
    if isinstance(node, FunctionNode) and node.version is not None:
        found["fn"] = {"version": node.version}
    if isinstance(node, Agent):
        found["tools"] = [_tool(tool) for tool in node.tools]
        if isinstance(node.instructions, str):  # they may say what only its model may read
            found["instructions"] = {"digest": _digest(node.instructions)}
    return found


def _tool(tool: Tool | AskUser) -> Data:
    """A tool as a model sees it, and what becomes of a call."""
    found: Data = {"name": tool.name, "description": tool.description}
    if isinstance(tool, AskUser):
        return {**found, "answer": schema(tool.schema)}
    found["parameters"] = _settled(json.loads(tool.parameters_json), docs=True)
    if _SHOWING.get():
        home = home_of(tool.fn)
        for name, hint in read_hints(home, getattr(home, "__globals__", {})).items():
            if holds_secret(hint):
                found["parameters"]["properties"].get(name, {}).pop("default", None)
    names = ("effect", "approval", "sequential", "timeout", "max_calls", "retries", "on_error")
    body = code(tool.fn) if tool.version is None else {"version": tool.version}
    return {**found, **{name: plain(getattr(tool, name)) for name in names}, "fn": body}


def _edges(statement: Statement) -> Iterable[Data]:
    source = _end(statement.source)
    match statement:
        case NextStatement():
            yield {"source": source, "kind": "next", "target": _end(statement.target), "position": 0}
        case ForkStatement():
            for position, branch in enumerate(statement.fork.branches):
                yield {**_branch(source, "fork", branch, position), "failure": statement.fork.failure}
        case ChooseStatement():
            for position, case in enumerate(statement.cases):
                yield _branch(source, "choose", case, position)
            if statement.default is not None:
                position, target = len(statement.cases), _end(statement.default)
                yield {"source": source, "kind": "choose", "target": target, "position": position, "default": True}
        case MapStatement():
            more = {"over": plain(statement.over), "join": _end(statement.join), "max_items": statement.max_items}
            target = _end(statement.lane)
            yield {
                "source": source,
                "kind": "map",
                "target": target,
                "position": 0,
                **more,
                "failure": statement.failure,
            }
        case DelegateStatement():
            names = ("max_hops", "into", "brief", "report", "share", "timeout", "history")
            more = {name: plain(getattr(statement, name)) for name in names}
            more["grant"] = sorted(set(statement.grant))
            for position, callee in enumerate(statement.targets):
                yield {"source": source, "kind": "delegate", "target": callee.name, "position": position, **more}
        case HandoffStatement():
            for position, taker in enumerate(statement.targets):
                edge = {"source": source, "kind": "handoff", "target": taker.name, "position": position}
                yield {**edge, "max_hops": statement.max_hops, "history": plain(statement.history)}
        case ErrorStatement():
            caught = sorted(kind.__qualname__ for kind in statement.catch)
            yield {"source": source, "kind": "error", "target": _end(statement.target), "position": 0, "catch": caught}


def _branch(source: str | None, kind: str, branch: Branch[Any], position: int) -> Data:
    edge: Data = {"source": source, "kind": kind, "target": _end(branch.target), "position": position}
    return {**edge, "test": plain(branch.test), "label": branch.label, "max_hops": branch.max_hops}


def _end(end: Node[Any] | Terminal) -> str | None:
    return None if isinstance(end, Terminal) else end.name


# --- values ----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value of a definition as JSON data; types by their schema and functions by their code."""
    held: Any = value
    match value:
        case enum.Enum():
            return {"enum": type(value).__qualname__, "name": value.name}
        case None | bool() | int() | str():
            return held
        case float():
            return held if math.isfinite(held) else repr(held)
        case Decimal():
            return str(held)
        case bytes():
            return held.hex()
        case tuple() | list():
            return [plain(item) for item in held]
        case set() | frozenset():
            return sorted((plain(item) for item in held), key=_written)
        case Mapping():
            return {str(key): plain(item) for key, item in sorted(held.items(), key=lambda pair: str(pair[0]))}
        case Node():
            return held.name
        case BaseModel():
            return plain(dict(held))
        case _ if _is_type(held):
            return schema(held)
        case _ if dataclasses.is_dataclass(value):
            marks = [field for field in dataclasses.fields(held) if field.metadata.get("fingerprint", True)]
            fields = {field.name: plain(getattr(held, field.name)) for field in marks}
            return {"type": type(held).__qualname__, **fields}
        case _:
            return code(held) if callable(held) else {"type": type(held).__qualname__}


def _is_type(value: Any) -> bool:
    if isinstance(value, type | TypeAliasType) or value is Any:
        return True
    return typing.get_origin(value) is not None and not isinstance(value, Node)


class _Schema(GenerateJsonSchema):
    """A default that is no JSON is left out, and not warned of; sets in it stand in a fixed order."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def encode_default(self, dft: Any) -> Any:
        """Write a default, in every process alike."""
        return super().encode_default(in_order(dft))


class _Shown(_Schema):
    """A default that is a secret is left out: it has its part in a fingerprint, and is shown to nobody."""

    def default_schema(self, schema: Any) -> Any:
        """Leave out the default of a field that is marked."""
        made = super().default_schema(schema)
        if hides(schema["schema"]):
            made.pop("default", None)
        return made

    def encode_default(self, dft: Any) -> Any:
        """Hide what is marked in the default of another field."""
        return super().encode_default(veiled(dft))


_SHOWING: Final[ContextVar[bool]] = ContextVar("graphflow_showing", default=False)
"""Whether schemas are made to be shown, and not for a fingerprint."""


def schema(kind: Any) -> Any:
    """Return the JSON schema of a type; its name, where it has none."""
    return json.loads(_schema_text(kind, repr(kind), _SHOWING.get()))  # equal types may be written in two orders


@functools.lru_cache(maxsize=256)
def _schema_text(kind: Any, _: str, showing: bool) -> str:  # noqa: FBT001 - it is a part of the key
    try:
        found = TypeAdapter(kind).json_schema(schema_generator=_Shown if showing else _Schema)
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return _written({"type": getattr(kind, "__qualname__", str(kind))})
    return _written(_settled(found))


_CODES: Final = [*CODES]


def _settled(found: Any, *, docs: bool = False) -> Any:
    """Put the defaults of sets in an order, for pydantic writes them in that of their hashes; leave docstrings out.

    With `docs` they stay, as where a model reads them. Of the codes of a reason those are left out that came later.
    """
    held: Any = found
    if isinstance(found, dict):
        table: dict[str, Any] = held
        if table.get("enum") == _CODES:
            table = {**table, "enum": [each for each in _CODES if each not in LATER_CODES]}
        if table.get("uniqueItems") and isinstance(table.get("default"), list):
            table = {**table, "default": sorted(table["default"], key=_written)}
        said = not docs and "properties" in table and isinstance(table.get("description"), str)
        return {key: _settled(item, docs=docs) for key, item in table.items() if not (said and key == "description")}
    if isinstance(found, list):
        items: list[Any] = held
        return [_settled(item, docs=docs) for item in items]
    return found


def _context(context: type[Context]) -> Data:
    reducers = {name: reducer_of(info.metadata) for name, info in context.model_fields.items()}
    found = {name: code(reducer) for name, reducer in sorted(reducers.items()) if reducer is not None}
    return {"name": context.__qualname__, "schema": schema(context), "reducers": found}


# --- code ------------------------------------------------------------------------------------------------------------


def code(fn: Callable[..., Any]) -> Data:
    """Return what identifies a function: its name, and digests of its source and of what it closes over.

    The values themselves are left out, since they may be secret. Where there is no source, as at an interactive
    prompt, the digest is that of its compiled code.
    """
    if isinstance(fn, functools.partial):
        return {"partial": code(fn.func), "given": _digest([plain(fn.args), plain(fn.keywords)])}
    if inspect.ismethod(fn):
        return {"method": code(fn.__func__), "of": type(fn.__self__).__qualname__}
    if not inspect.isfunction(fn):
        named = fn if inspect.isroutine(fn) else type(fn)
        return {"name": named.__qualname__, **({} if inspect.isroutine(fn) else {"digest": _source(type(fn))})}
    found: Data = {"name": fn.__qualname__, "digest": _source(fn)}
    held = [cell.cell_contents for cell in fn.__closure__ or () if _is_filled(cell)]
    given = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    for name, values in (("closure", held), ("defaults", given)):
        if values:
            found[name] = _digest([_held(value, fn) for value in values])
    return found


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name that is bound later
        return False
    return True


def _held(value: Any, holder: Any) -> Any:
    """What a function closes over, one level deep: data by value, code by its digest, all else by its type."""
    if inspect.isfunction(value):
        return {"name": value.__qualname__, "digest": _source(value)} if value is not holder else "itself"
    items: Any = [*value] if type(value) in (tuple, frozenset) else [value]
    if all(item is None or isinstance(item, _DATA) for item in items):
        return plain(value)
    return value.__qualname__ if isinstance(value, type) else type(value).__qualname__


_SETTLED: Final[Mapping[Callable[..., Any], str]] = {
    append: "3979d23e52f19ce7e84c77334b17301625ba15640332dfd1bb6761bf2c83a638",
    extend: "d1e213bf5af4ae88687079d7a607080deae6bd795d166dde6d94c713efaf5052",
    add: "dbf1b3f137dcf9b8db64f154209e73776095600c0a36740317752cd45fc11bd2",
    union: "d98fe7ddd2772805735f8579483fb2ed5331a1da8834ee39b7a25bb63e961e9d",
}
"""The digests by which stored runs know our own reducers: how they are written may change, what they do may not."""


def _source(found: Any) -> str:
    if inspect.isfunction(found) and found in _SETTLED:
        return _SETTLED[found]
    try:
        plainly = inspect.unwrap(found) if inspect.isfunction(found) else None
        text = _text(found) if plainly is None else _function_text(plainly.__code__.co_filename, plainly.__code__)
    except (OSError, TypeError):
        compiled = getattr(found, "__code__", None)
        return _digest(_compiled(compiled)) if compiled is not None else ""
    if getattr(found, "__name__", "") == "<lambda>":  # its line may hold several of them
        return _digest([text, _compiled(found.__code__)])
    return _digest(text)


def _text(found: Any) -> str:
    return textwrap.dedent(inspect.getsource(found))


@functools.lru_cache(maxsize=4096)
def _function_text(file: str, made: types.CodeType) -> str:  # noqa: ARG001 - equal code can stand in two files
    return _text(made)


def _compiled(made: types.CodeType) -> list[Any]:
    """The compiled code, without what depends on memory or on the file it stands in."""
    return [made.co_code.hex(), list(made.co_names), [_constant(value) for value in made.co_consts]]


def _constant(value: Any) -> Any:
    held: Any = value
    if isinstance(value, types.CodeType):
        return _compiled(value)
    if isinstance(value, tuple | frozenset):
        items = [_constant(item) for item in held]
        return items if isinstance(value, tuple) else sorted(items, key=_written)
    return plain(held) if held is None or isinstance(held, _DATA) else repr(held)
