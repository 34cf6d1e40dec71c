"""The classes that a graph declares: what may stand in a journal of its runs.

A journal is read with a frozen table of classes, and this is where it comes from: from the graph itself. Its contexts,
the annotations of its nodes and tools, its contracts and schemas, and the classes that its functions name. Nothing is
imported for it, and nothing is called.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

from pydantic import BaseModel
from typing_extensions import TypeAliasType

from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.codec import Kinds
from graphflow.model.context import Context, reducer_of
from graphflow.model.contract import Approval, Brief, Reason, Report
from graphflow.model.frozen import class_of
from graphflow.model.ids import Segment
from graphflow.model.outcome import Call, Delegate, Done, Handoff, Pause, Skip
from graphflow.model.plans import storable
from graphflow.model.secrets import hints_of, read_hints
from graphflow.model.state import Message
from graphflow.model.thread import Last, ThreadMessage, ToolCall
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.client import ModelReply, ModelRequest, Price, ToolSpec, Usage
from graphflow.nodes.edges import DelegateStatement, MapStatement
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.human import Human
from graphflow.nodes.join import Join
from graphflow.nodes.tools import AskUser, ToolFailure

OURS: Final = Kinds(
    (
        Context, Message, Brief, Report, Reason, Approval,
        Done, Handoff, Delegate, Call, Pause, Skip,
        ThreadMessage, ToolCall, Last, Budget, Segment,
        ModelRequest, ModelReply, Usage, Price, ToolSpec, ToolFailure,
    )
)  # fmt: skip
"""The classes of ours whose values can be in a journal; every graph has them."""

_INNER: Final = ("graphflow.model.", "graphflow.nodes.", "graphflow.runtime.", "graphflow.events")
"""Modules of ours whose other classes are no values of a run, such as `State`, though functions speak of them."""

_KEY: Final = "_kinds"


def kinds_of(graph: Graph[Any]) -> Kinds:
    """Return the classes that a graph declares, found once for each graph value.

    Declared are the models, dataclasses, NamedTuples and enums in: the contexts of the graph and of every graph inside
    it, annotations of nodes, tools, joins and reducers, outputs, schemas and contracts; and those that a node's
    function, or one that it calls from its own module, names in its body. What a field of them holds is declared too;
    a subclass is not, unless it is named. Annotations that cannot be read declare nothing.
    """
    found: Kinds | None = vars(graph).get(_KEY)
    if found is None:
        walk = _Walk()
        walk.graph(graph)
        walk.finish()
        found = vars(graph)[_KEY] = OURS.with_(walk.found, walk.contexts)
    return found


def kinds_in(*annotations: Any) -> tuple[type[Any], ...]:
    """Return the classes that annotations, or the signature of a function, declare."""
    walk = _Walk()
    for annotation in annotations:
        if inspect.isroutine(annotation) or isinstance(annotation, functools.partial):
            walk.function(annotation)
        else:
            walk.annotation(annotation)
    walk.finish()
    return tuple(walk.found)


def errors_in(*functions: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that functions name, and those that they call from their own modules."""
    walk = _Walk()
    for function in functions:
        walk.function(function)
    walk.finish()
    return tuple(walk.errors)


class _Walk:
    """A walk over everything that a graph declares."""

    def __init__(self) -> None:
        self.found: dict[type[Any], None] = {}
        self.errors: dict[type[Exception], None] = {}
        self.contexts: list[type[Context]] = []
        self._seen: dict[int, Any] = {}  # by identity, because not everything has a hash; held, so that ids stay
        self._todo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # a walk into depth would take stack

    def finish(self) -> None:
        """Walk everything that was found on the way; what cannot be looked through declares nothing."""
        while self._todo:
            step, given = self._todo.pop()
            with contextlib.suppress(Exception):  # annotations are code, and classes may do anything
                step(*given)

    def _new(self, thing: Any) -> bool:
        if id(thing) in self._seen:
            return False
        self._seen[id(thing)] = thing
        return True

    # --- a graph and its nodes ---

    def graph(self, graph: Graph[Any]) -> None:
        """Walk a graph, and those inside it."""
        if not self._new(graph):
            return
        self.contexts.append(graph.context)
        self.annotation(graph.context)
        self.annotation(graph.output)
        self.function(graph.enter)
        self.function(graph.leave)
        for node in graph.nodes.values():
            self.node(node)
        for statement in graph.statements:
            if isinstance(statement, DelegateStatement):
                self.annotation(statement.brief)
                self.annotation(statement.report)
            elif isinstance(statement, MapStatement):
                self.function(statement.over)

    def node(self, node: Node[Any]) -> None:
        """Walk what a node declares."""
        match node:
            case Graph():
                self.graph(cast("Graph[Any]", node))
            case FunctionNode():
                self.function(node.fn)
            case Agent():
                self.annotation(node.output)
                for tool in node.tools:
                    if isinstance(tool, AskUser):
                        self.annotation(tool.schema)
                    else:
                        self.function(tool.fn)
            case Human():
                self.annotation(node.schema)
            case Join():
                self.function(node.reduce)
            case _:
                pass

    # --- functions ---

    def function(self, fn: Any, owner: type[Any] | None = None) -> None:
        """Walk a function: its annotations, what its body names, and what it holds.

        Args:
            fn: a function, a method, a partial one, or an object that can be called; anything else is left alone.
            owner: the class that it is a method of.
        """
        if fn is not None and self._new(fn):
            self._todo.append((self._look, (fn, owner)))

    def _look(self, fn: Any, owner: type[Any] | None) -> None:
        if isinstance(fn, functools.partial):
            held = cast("functools.partial[Any]", fn)
            for given in (*held.args, *held.keywords.values()):
                self.value(given)
            self.function(held.func)
        elif inspect.ismethod(fn):
            self._method(fn.__func__, fn.__self__)
        elif inspect.isfunction(fn):
            self._function(fn, owner)
        else:
            self._method(_in_class(class_of(fn), "__call__"), fn)

    def _method(self, fn: Any, holder: Any) -> None:
        """Walk a method, and what its object holds."""
        for value in getattr(holder, "__dict__", {}).values():
            self.value(value)
        self.function(fn, holder if isinstance(holder, type) else class_of(holder))

    def _function(self, fn: types.FunctionType, owner: type[Any] | None) -> None:
        around = _cells(fn)
        for hint in read_hints(fn, {**fn.__globals__, **around}).values():
            self.annotation(hint)
        for value in (*around.values(), *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            if inspect.isfunction(value):
                self.function(value)
            self.value(value)
        for code in _codes(fn.__code__):
            self._names(code.co_names, fn, owner)
        self.function(fn.__dict__.get("__wrapped__"))

    def _names(self, names: tuple[str, ...], fn: types.FunctionType, owner: type[Any] | None) -> None:
        """Walk what the names of a body stand for, and attributes of modules and classes among them."""
        for name in names:
            if owner is not None:
                self._member(_in_class(owner, name), owner)
            if name not in fn.__globals__:
                continue
            value = fn.__globals__[name]
            self.value(value, fn)
            if isinstance(value, types.ModuleType):
                inside = vars(value)
                for other in names:
                    self.value(inside.get(other), fn)
            elif inspect.isclass(value):
                for other in names:
                    self._member(_in_class(cast("Any", value), other), cast("Any", value))

    def _member(self, member: Any, owner: type[Any]) -> None:
        """Walk an attribute of a class: a method that a body calls, or a class in it."""
        if isinstance(member, (staticmethod, classmethod)):
            member = cast("Any", member).__func__
        if inspect.isfunction(member) and not str(member.__module__).startswith("pydantic"):
            self.function(member, owner)
        elif inspect.isclass(member):
            self.annotation(member)

    def value(self, value: Any, fn: types.FunctionType | None = None) -> None:
        """Walk a value that a function knows: a class, a type, another function, or an instance of a class.

        Of a function of the same package its body is looked at too, of others what they say that they return.
        """
        if value is None or isinstance(value, (types.ModuleType, Node)):
            return  # a node is declared by the graph that it stands in
        if inspect.isfunction(value):
            if fn is not None and _package(value) == _package(fn):
                self.function(value)
            else:
                self.annotation(read_hints(value, {**value.__globals__, **_cells(value)}).get("return"))
        elif inspect.isclass(value) or typing.get_origin(value) is not None or isinstance(value, TypeAliasType):
            self.annotation(value)
        else:
            self._class_of(value)

    # --- types ---

    def annotation(self, hint: Any) -> None:
        """Walk a type."""
        if hint is not None and not isinstance(hint, str) and self._new(hint):
            self._todo.append((self._annotation, (hint,)))

    def _annotation(self, hint: Any) -> None:
        if isinstance(hint, TypeAliasType) or type(hint).__name__ == "TypeAliasType":
            self.annotation(hint.__value__)
        elif isinstance(hint, typing.TypeVar):
            for part in (hint.__bound__, *hint.__constraints__):
                self.annotation(part)
        elif isinstance(hint, typing.NewType):
            self.annotation(hint.__supertype__)
        elif typing.get_origin(hint) is typing.Literal:
            for value in typing.get_args(hint):
                self.annotation(type(value))
        elif typing.get_origin(hint) is not None and not (inspect.isclass(hint) and BaseModel in hint.__mro__):
            self.annotation(typing.get_origin(hint))
            for part in _flat(typing.get_args(hint)):
                self.annotation(part)
        elif inspect.isclass(hint):
            self._class(hint)
        else:
            self._class_of(hint)  # what stands beside a type in Annotated

    def _class_of(self, value: Any) -> None:
        kind = class_of(value)
        if storable(kind):
            self.annotation(kind)

    def _class(self, kind: type[Any]) -> None:
        if Exception in kind.__mro__:
            self.errors[kind] = None
            return
        if Node in kind.__mro__ or (kind.__module__.startswith(_INNER) and kind not in OURS.classes):
            return
        if storable(kind):
            self.found[kind] = None
        elif not hasattr(kind, "__total__"):  # a TypedDict says what is in a dict
            return
        if BaseModel in kind.__mro__:
            self._model(cast("type[BaseModel]", kind))
        for hint in hints_of(kind).values():
            self.annotation(hint)

    def _model(self, kind: type[BaseModel]) -> None:
        if not kind.__pydantic_complete__:
            kind.model_rebuild(raise_errors=False)
        metadata = kind.__pydantic_generic_metadata__
        for part in (metadata["origin"], *metadata["args"]):
            self.annotation(part)
        for info in kind.model_fields.values():
            self.annotation(info.annotation)
            for found in info.metadata:
                if inspect.isroutine(found) or isinstance(found, functools.partial):
                    continue
                self.annotation(found)
            reducer = reducer_of(info.metadata)
            if reducer is not None:
                self.function(reducer)


def _in_class(kind: type[Any], name: str) -> Any:
    """Return an attribute of a class as it stands there, without asking the class for it."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _cells(fn: types.FunctionType) -> dict[str, Any]:
    """Return what a function sees of the functions around it."""
    found: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def _package(fn: types.FunctionType) -> str:
    return str(fn.__globals__.get("__name__", "")).partition(".")[0]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _flat(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, list):  # the parameters of a Callable
            yield from _flat(cast("list[Any]", part))
        else:
            yield part
