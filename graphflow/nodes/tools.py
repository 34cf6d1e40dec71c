"""Tools: functions that a model may call. `@tool` on a function or a method, `AskUser` for a question to a person."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, overload

from pydantic import TypeAdapter

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.ids import Path
from graphflow.model.state import Left
from graphflow.model.telling import value_text
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_bound, checked_count, checked_seconds, checked_switch, checked_text
from graphflow.nodes.client import ToolSpec
from graphflow.nodes.signatures import Parameters, first_paragraph, home_of, parameters_of

T = TypeVar("T")
Effect = Literal["read", "write", "irreversible"]
OnError = Literal["data", "raise"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolStep(Protocol):
    """What a tool may know of the run and do in it; a parameter with this annotation takes it, unseen by the model."""

    @property
    def path(self) -> Path:
        """Where the agent's visit stands."""
        ...

    @property
    def call_id(self) -> str:
        """The id of this call, unique in its thread; the same when it is tried again."""
        ...

    @property
    def idempotency_key(self) -> str:
        """A text that is the same each time this very call is made: tried again, or made again after a crash.

        Hand it to a service that can tell by it that it has done this already.
        """
        ...

    @property
    def context(self) -> Context:
        """The context as the agent sees it."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether this call has been asked to stop; for sync tools, which cannot be interrupted."""
        ...

    @property
    def left(self) -> Left:
        """What remains of budget, depth and hops, now."""
        ...

    def emit(self, value: Any) -> None:
        """Say something to whoever listens to the run."""
        ...

    def resource(self, kind: type[T]) -> T:
        """Return the one resource of the run that is an instance of a class.

        Raises:
            UsageError: if the run has none of that class, or several.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for active seconds on the run's clock."""
        ...


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """What a tool may return instead of raising: the call failed, and the model is told why.

    Attributes:
        text: what went wrong, and what the model could do about it.
    """

    text: str


@dataclass(frozen=True, repr=False)
class Tool:
    """A function that a model may call. Made by `@tool`, or by an agent from a plain function in its `tools=`.

    Attributes:
        name: letters, digits, `_` and `-`, at most 64 of them.
        description: what it does; the first paragraph of the function's docstring.
        parameters_json: the JSON schema of its arguments, as text.
        fn: the function; a sync one runs in a worker thread.
        effect: "read" changes nothing, "irreversible" cannot be undone and needs a gate before it.
        approval: whether a person approves each call.
        sequential: whether the sequential calls of one turn run one after the other, in call order.
        timeout: active seconds of one call, or None; a call that takes longer has failed.
        max_calls: how many calls one visit of the agent may make, or None.
        retries: how many further attempts follow one that failed; each costs a retry and a tool call.
        on_error: "data" tells the model of an exception, "raise" lets it fail the agent's attempt.
        version: stands for the function's source in the graph's fingerprint.
        step: the name of the parameter that takes the `ToolStep`, or None; it is not in the schema.
    """

    name: str
    description: str
    parameters_json: str
    fn: Callable[..., Any]
    effect: Effect = "write"
    approval: bool = False
    sequential: bool = False
    timeout: float | None = None
    max_calls: int | None = None
    retries: int = 0
    on_error: OnError = "data"
    version: str | None = None
    step: str | None = None
    _parameters: Parameters | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check what was given."""
        where = checked_name(self.name)
        checked_text(where, self.description, "description")
        if self.effect not in ("read", "write", "irreversible"):
            msg = f"{where}: effect={value_text(self.effect)}: 'read', 'write' or 'irreversible'."
            raise UsageError(msg)
        if self.on_error not in ("data", "raise"):
            msg = (
                f"{where}: on_error={value_text(self.on_error)}: 'data' tells the model, 'raise' fails the agent's "
                "attempt."
            )
            raise UsageError(msg)
        checked_switch(where, self.approval, "approval")
        checked_switch(where, self.sequential, "sequential")
        checked_seconds(where, self.timeout)
        checked_bound(where, self.max_calls, "max_calls", least=1)
        checked_count(where, self.retries, "retries")
        checked_text(where, self.version, "version", none=True)
        if self._parameters is None or self._parameters.home is not home_of(self.fn):
            object.__setattr__(self, "_parameters", parameters_of(self.fn, self.name, ToolStep))

    def __repr__(self) -> str:
        """Show the name."""
        return f"<Tool {self.name!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were no tool."""
        return self.fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """Return the tool of an object, where this is one of its class's methods."""
        if instance is None or not self.unbound:
            return self
        return dataclasses.replace(self, fn=types.MethodType(self.fn, instance))

    @property
    def unbound(self) -> bool:
        """Whether this is the tool of a method that has no object yet: `obj.method` has one."""
        return self._parameters is not None and self._parameters.unbound and not inspect.ismethod(self.fn)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it, without defaults that are secrets."""
        found = self._parameters
        known = found is not None and found.json == self.parameters_json
        return ToolSpec(self.name, self.description, found.shown if found and known else self.parameters_json)

    @property
    def hidden(self) -> frozenset[str]:
        """The names of its parameters that are marked as secrets."""
        return self._parameters.hidden if self._parameters is not None else frozenset()

    def arguments(self, text: str, *, whole: bool = False) -> dict[str, Any]:
        """Read what a model wrote as the arguments of a call.

        Args:
            text: anything at all; an empty text means no arguments.
            whole: whether an error tells defaults that are secrets, as in runs of older editions.

        Returns:
            The function's keyword arguments, defaults filled in, without the `ToolStep`.

        Raises:
            ValueError: if they do not fit; the text says what is wrong with each, and what is wanted.

        >>> @tool
        ... def refund(invoice: str, amount: float = 49.0) -> str:
        ...     "Pay back."
        ...     return "paid back"
        >>> refund.arguments('{"invoice": "INV-311"}')
        {'invoice': 'INV-311', 'amount': 49.0}
        >>> refund.arguments('{"amount": "much"}')
        Traceback (most recent call last):
        ...
        ValueError: the arguments of 'refund' do not fit: invoice: is missing; amount: Input should be a valid number,
        unable to parse string as a number (given "much"). Wanted: {"invoice": string (required), "amount": number
        (default 49.0)}.
        """
        assert self._parameters is not None  # noqa: S101 - for the checker; it is set when the tool is made
        return self._parameters.read(self.name, text, whole=whole)


@dataclass(frozen=True, repr=False)
class AskUser:
    """A tool whose result is a person's answer: the agent pauses until it is there.

    Attributes:
        name: letters, digits, `_` and `-`, at most 64 of them.
        schema: the type that the answer must have.
        description: when a model should use it.

    >>> AskUser().arguments('{"question": "Which of the two?"}')
    {'question': 'Which of the two?'}
    """

    name: str = "ask_user"
    _: KW_ONLY
    schema: Any = dataclasses.field(default=str, hash=False)
    description: str = "Ask the person whom this is for, and wait for the answer. Use it only when nothing else helps."
    effect: ClassVar[Effect] = "read"
    approval: ClassVar[bool] = False
    sequential: ClassVar[bool] = False
    timeout: ClassVar[float | None] = None
    max_calls: ClassVar[int | None] = None
    retries: ClassVar[int] = 0
    on_error: ClassVar[OnError] = "data"
    step: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        """Check the name and the type of the answer."""
        where = checked_name(self.name)
        checked_text(where, self.description, "description")
        try:
            if isinstance(self.schema, str):
                msg = "the type itself, not its name"
                raise TypeError(msg)
            TypeAdapter(self.schema)
        except Exception as error:
            why = f" ({error})" if isinstance(self.schema, type) else ""  # of a value it shows the value
            need = "a type that a person's answer can be read as is needed"
            msg = f"{where}: schema={value_text(self.schema)}: {need}{why}."
            raise UsageError(msg) from error

    def __repr__(self) -> str:
        """Show the name."""
        return f"<AskUser {self.name!r}>"

    @property
    def parameters_json(self) -> str:
        """The JSON schema of its arguments, as text: one question."""
        return _question().json

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self.parameters_json)

    def arguments(self, text: str, *, whole: bool = False) -> dict[str, Any]:
        """Read what a model wrote, as `Tool.arguments` does.

        Raises:
            ValueError: if it is not one question.
        """
        return _question().read(self.name, text, whole=whole)


def _ask(question: str) -> None:
    """Ask.

    Args:
        question: What the person is asked; it says all that they need to know.
    """


@functools.cache
def _question() -> Parameters:
    return parameters_of(_ask, "ask_user", ToolStep)


def checked_name(name: object) -> str:
    """Return how errors call a tool, if its name is one that every model accepts.

    Raises:
        UsageError: if it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = f"tool {name!r}: a name of 1 to 64 letters (a-z, A-Z), digits, '_' and '-' is needed: tool(name=...)."
        raise UsageError(msg)
    return f"tool {name!r}"


@overload
def tool(
    fn: Callable[..., Any],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    effect: Effect = ...,
    approval: bool = ...,
    sequential: bool = ...,
    timeout: float | None = ...,
    max_calls: int | None = ...,
    retries: int = ...,
    on_error: OnError = ...,
    version: str | None = ...,
) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    effect: Effect = ...,
    approval: bool = ...,
    sequential: bool = ...,
    timeout: float | None = ...,
    max_calls: int | None = ...,
    retries: int = ...,
    on_error: OnError = ...,
    version: str | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function or a method, sync or async.

    The schema comes from the annotations (a parameter without one takes any JSON value) and the defaults, the
    descriptions from the docstring and its `Args:`. A parameter annotated `ToolStep` is not the model's to give. On a
    method it makes the tool of each object: `Agent(tools=[desk.lookup])`.

    Args:
        fn: the function.
        options: the attributes of `Tool`; the name is the function's by default.

    Raises:
        UsageError: if a model could not call the function by keyword with JSON values, or an option makes no sense.

    >>> @tool(effect="read")
    ... def get_invoice(number: str) -> str:
    ...     '''Look an invoice up.
    ...
    ...     Args:
    ...         number: such as INV-311.
    ...     '''
    ...     return "paid twice"
    >>> get_invoice, get_invoice.description
    (<Tool 'get_invoice'>, 'Look an invoice up.')
    >>> get_invoice.spec.parameters["properties"]
    {'number': {'description': 'such as INV-311.', 'type': 'string'}}
    """
    if fn is None:
        return functools.partial(_make, options)
    return _make(options, fn)


def _make(options: dict[str, Any], fn: Any) -> Tool:
    given: dict[str, Any] = {
        key: value for key, value in options.items() if not (value is None and key in ("name", "description"))
    }
    known = {field.name for field in dataclasses.fields(Tool)} - {"fn", "parameters_json", "step", "_parameters"}
    if strange := given.keys() - known:
        msg = f"tool({', '.join(sorted(strange))}): the options are {', '.join(sorted(known))}."
        raise UsageError(msg)
    if isinstance(fn, Tool):
        return dataclasses.replace(fn, **given)
    static = isinstance(fn, staticmethod)
    function: Any = fn.__func__ if static else fn
    if isinstance(function, Node):
        raise UsageError(f"tool(...): {_no_tool(cast('Node[Any]', function))}")
    if inspect.isclass(function) or not callable(function):
        msg = (
            f"tool({value_text(function)}): a function or a method is needed. Of a class method, make the tool of "
            f"what the class gives: tool(Class.method)."
        )
        raise UsageError(msg)
    name: Any = given.pop("name", None)
    if name is None:
        name = _name_of(function)
    checked_name(name)
    found = parameters_of(function, name, ToolStep, static=static)
    description = given.pop("description", None)
    if description is None:
        description = first_paragraph(found.home)
    return Tool(name, description, found.json, function, **given, step=found.step, _parameters=found)


def _no_tool(node: Node[Any]) -> str:
    return (
        f"{node!r} is a node, and no tool. Another node asks it by delegation: write s.delegates({node.name}, "
        f"max_hops=...), where s is the node that asks; the model of an agent is offered it then."
    )


def _name_of(function: Any) -> str:
    if inspect.isroutine(function) or isinstance(function, functools.partial):
        return str(getattr(home_of(function), "__name__", ""))
    return ""  # an object that can be called has no name of its own


def as_tool(found: object, where: str = "") -> Tool | AskUser:
    """Return a tool as it is, and make one of a plain function or a bound method.

    Args:
        found: what was given.
        where: how an error begins.

    Raises:
        UsageError: if it is none of them, or the tool of a method that has no object.
    """
    if isinstance(found, Tool) and found.unbound:
        msg = (
            f"{where}{value_text(found)} is the tool of a method, and has no object: give obj.{found.name}, the tool "
            f"of an object."
        )
        raise UsageError(msg)
    if isinstance(found, (Tool, AskUser)):
        return found
    if inspect.isfunction(found) or inspect.ismethod(found):
        return as_tool(_make({}, found))
    if isinstance(found, Node):
        raise UsageError(f"{where}{_no_tool(cast('Node[Any]', found))}")
    msg = (
        f"{where}{value_text(found)} is no tool: a function, a bound method, @tool or AskUser() is needed, not "
        f"{type(found).__name__}. Any other callable becomes one by tool(it, name=...)."
    )
    raise UsageError(msg)
