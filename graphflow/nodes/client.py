"""`ModelClient`: the one door to a model. A request goes in, a reply comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, dataclass_transform, runtime_checkable

from graphflow.errors import UsageError
from graphflow.model.telling import value_text
from graphflow.model.thread import Thread, ToolCall

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def _frozen_for_checkers(cls: type[T]) -> type[T]:
    """Make a slotted dataclass that checkers hold frozen: it costs a third, and there is one for each model call."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it.

    Attributes:
        name: its name; letters, digits, `_` and `-`.
        description: what it does.
        parameters_json: the JSON schema of its arguments, as text.
    """

    name: str
    description: str
    parameters_json: str = '{"type": "object", "properties": {}, "additionalProperties": false}'

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments; a new object each time, so that nobody's change reaches anybody else."""
        found: dict[str, Any] = json.loads(self.parameters_json)
        return found


@dataclass(frozen=True, slots=True)
class Usage:
    """What a model call used.

    Attributes:
        input_tokens: tokens read.
        output_tokens: tokens written.
        usd: what it cost, or None where nobody knows.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        parts: tuple[object, object, object] = (self.input_tokens, self.output_tokens, self.usd)
        read, written, usd = parts
        counts = type(read) is int and type(written) is int and read >= 0 and written >= 0
        if not counts or not (usd is None or _is_money(usd)):
            msg = f"{self!r}: tokens are whole numbers of at least 0, usd is a Decimal of at least 0, or None."
            raise UsageError(msg)


class Price(NamedTuple):
    """What one token costs, in US dollars."""

    input: Decimal
    output: Decimal


def checked_price(where: str, price: object) -> None:
    """Look whether something is a price, or None.

    Raises:
        UsageError: if it is not.
    """
    if price is None or (isinstance(price, Price) and all(map(_is_money, price))):
        return
    msg = (
        f"{where}: the price of its model is {value_text(price)}: a Price of two Decimals of at least 0 is needed, "
        "or None."
    )
    raise UsageError(msg)


def _is_money(part: object) -> bool:
    return isinstance(part, Decimal) and part.is_finite() and part >= 0


@_frozen_for_checkers
class ModelRequest:
    """What a model is asked.

    Attributes:
        agent: the name of the agent that asks.
        path: the text of the path of its visit.
        turn: the number of this model call in the visit, from 0.
        system: the agent's instructions; nothing that another agent said ever stands in it.
        messages: the view of the thread, and what the visit has said; every call has exactly one result.
        tools: what it may call; empty in the decision mode "json".
        schema_json: the JSON schema that its text must have, as text; "" for free text.
        max_tokens: how many tokens it may write.
        decision: "native" for tool calls of the model's own, "json" where its text says what to call.
    """

    agent: str
    path: str
    turn: int
    system: str
    messages: Thread
    tools: tuple[ToolSpec, ...] = ()
    schema_json: str = ""
    max_tokens: int = 1024
    decision: Literal["native", "json"] = "native"

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that its text must have, or None; a new object each time."""
        return json.loads(self.schema_json) if self.schema_json else None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered.

    Attributes:
        text: what it said.
        calls: what it wants to be called, in order.
        usage: what it used; None where it does not say, which counts as all that was reserved.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None

    def __post_init__(self) -> None:
        """Check the types: a client gets its data from far away."""
        given: object = self.calls
        if isinstance(given, list):
            object.__setattr__(self, "calls", tuple(self.calls))
        parts: tuple[object, object, object] = (self.text, self.calls, self.usage)
        text, calls, usage = parts
        fits = isinstance(text, str) and isinstance(calls, tuple) and (usage is None or isinstance(usage, Usage))
        if not fits or (calls and not all(map(_is_call, self.calls))):
            msg = (
                f"{self!r}: text is a str, calls are ToolCalls whose name, arguments and id are texts (arguments is "
                f"JSON: json.dumps(...)), and usage is a Usage or None."
            )
            raise UsageError(msg)


def _is_call(call: object) -> bool:
    if not isinstance(call, ToolCall):
        return False
    parts: tuple[object, object, object] = (call.name, call.arguments, call.id)
    name, arguments, ident = parts
    if type(name) is str and type(arguments) is str and type(ident) is str:
        return True
    return isinstance(name, str) and isinstance(arguments, str) and isinstance(ident, str)


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a call that a model is writing.

    Attributes:
        position: the number of the call in its reply, from 0.
        name: the name of what it calls, in the first piece of the call; "" in the others.
        arguments: the next piece of its arguments, as text; no JSON before all pieces are there.
    """

    position: int
    name: str = ""
    arguments: str = ""


Stream = Callable[[str | CallPiece], None]
"""Takes a piece of a reply, text or a call, as soon as it is there; listeners hear it, no journal keeps it."""


@runtime_checkable
class Readied(Protocol):
    """A model that can say, before a run begins, whether it can be asked: `ready()` raises if its key is missing."""

    def ready(self) -> None:
        """Look whether the model can be asked; nothing is sent.

        Raises:
            GraphflowError: if it cannot; the text says what to do.
        """
        ...


@runtime_checkable
class ModelClient(Protocol):
    """A model. One client may serve many agents and many runs at once, so it keeps nothing of a run.

    A client may have an attribute `price`, a `Price`, from which the money of a call is reserved, and an attribute
    `native_tools`, False for a model that cannot call tools: `decision="auto"` then picks constrained JSON. One that
    has a `ready()` is asked before a run begins.
    """

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Answer a request.

        Args:
            request: what is asked.
            stream: takes pieces of the reply as they come; need not be called.

        Raises:
            ModelUnavailable: if it may work later; a retry of the agent waits first.
            ModelRefused: if the same request would be refused again; it is not retried.
            Exception: whatever else goes wrong; it fails the agent's turn, and the agent's `retries` apply.
        """
        ...
