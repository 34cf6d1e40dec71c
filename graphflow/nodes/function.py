"""Function nodes: `@node` on a plain function, sync or async."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin, overload

from graphflow.errors import UsageError
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.ids import Path
from graphflow.model.secrets import read_hints
from graphflow.model.state import Left, State
from graphflow.model.telling import value_text
from graphflow.model.unknown import refuse_unknown
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_bound, checked_budget, checked_call, checked_text

C = TypeVar("C", bound=Context)
C_contra = TypeVar("C_contra", bound=Context, contravariant=True)
T = TypeVar("T")


class Step(Protocol):
    """The only door from a node's body to the outside; everything that passes it is recorded.

    Attributes:
        path: where this visit stands.
        cancelled: whether the run wants this body to stop; for sync bodies, which cannot be interrupted.
        left: what remains now (`state.left` is the snapshot of the turn's start); not recorded.
    """

    path: Path

    @property
    def cancelled(self) -> bool:
        """Whether this body has been asked to stop."""
        ...

    @property
    def left(self) -> Left:
        """What remains of budget, depth and hops, now."""
        ...

    @overload
    async def effect(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        key: str | None = None,
        cost: Budget | None = None,
        usage: Callable[[T], Budget] | None = None,
    ) -> T: ...
    @overload
    async def effect(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        key: str | None = None,
        cost: Budget | None = None,
        usage: Callable[[T], Budget] | None = None,
    ) -> T: ...
    async def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        cost: Budget | None = None,
        usage: Callable[[Any], Budget] | None = None,
    ) -> Any:
        """Do something outside, once, and have it recorded.

        Args:
            name: what it is, for the record.
            fn: what does it; async, or sync, which then runs in a worker thread. If it has a parameter
                `idempotency_key`, it is given a text that is the same each time this very effect is done: by a
                further attempt, or again after a crash.
            args: passed on to `fn`; their digest is recorded.
            key: the effect's identity in its turn; needed when two of them are in flight at once.
            cost: what it may cost at most. Counts are spent at once; tokens and usd are reserved until it ends.
            usage: reads from the result what it really cost.

        Raises:
            BoundHit: if the budget or the node's `costs=` refuses it; nothing is spent then.
            EffectKeyRequired: if another effect of the turn is in flight and one of them has no key.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for active seconds on the run's clock; the node's slot is free for others meanwhile."""
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


@dataclass(frozen=True, kw_only=True, repr=False)
class FunctionNode(Node[C_contra]):
    """A node whose body is a function.

    Attributes:
        fn: the function.
        costs: what one attempt may spend on its effects at most; more is refused as `BoundHit(costs)`.
        max_turns: how many turns one visit may have, answers of people not counted; None for the default, which is 2
            and the bounds of its delegate edges.
        version: stands for the function's source in the graph's fingerprint.
    """

    fn: Callable[..., Any]
    costs: Budget | None = None
    max_turns: int | None = None
    version: str | None = None
    kind: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        """Look at the function once, not at every visit."""
        super().__post_init__()
        where = f"node {self.name!r}"
        checked_call(where, self.fn, "fn", "a function")
        checked_bound(where, self.max_turns, "max_turns", least=1)
        checked_budget(where, self.costs, "costs")
        checked_text(where, self.version, "version", none=True)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return is_async(self.fn)

    @functools.cached_property
    def wants_step(self) -> bool:
        """Whether the function takes a `Step` beside the state."""
        return _wants_step(self.fn, self.name)


_OPTIONS = tuple(item.name for item in fields(FunctionNode) if item.name != "fn")


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether calling something gives an awaitable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004 - the bound method is wanted
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def context_of(fn: Callable[..., Any]) -> type[Context] | None:
    """Return the class of context that a function says it runs on, as `state: State[Case]`.

    None where it says nothing, or what cannot be read.
    """
    home = inspect.unwrap(getattr(fn, "__func__", fn))
    if not inspect.isfunction(home):
        return None
    known = {**home.__globals__, **inspect.getclosurevars(home).nonlocals}
    for hint in read_hints(home, known).values():
        given = get_args(hint)
        if get_origin(hint) is State and isinstance(given[0], type) and issubclass(given[0], Context):
            return given[0]
    return None


def _wants_step(fn: Callable[..., Any], name: str) -> bool:
    try:
        parameters = [
            p
            for p in inspect.signature(fn).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return False
    required = [p for p in parameters if p.default is p.empty]
    if not len(parameters) >= 1 or len(required) > 2:  # noqa: PLR2004 - state and step
        msg = f"node {name!r}: its function takes (state) or (state, step), not {inspect.signature(fn)}."
        raise UsageError(msg)
    return len(required) == 2 or (len(parameters) > 1 and parameters[1].name == "step")  # noqa: PLR2004


@overload
def node(fn: Callable[[State[C]], Any], /) -> FunctionNode[C]: ...
@overload
def node(fn: Callable[[State[C], Step], Any], /) -> FunctionNode[C]: ...
@overload
def node(
    *,
    name: str = ...,
    description: str = ...,
    retries: int = ...,
    timeout: float | None = ...,
    max_visits: int | None = ...,
    max_turns: int | None = ...,
    into: str | None = ...,
    costs: Budget | None = ...,
    gate: bool = ...,
    irreversible: bool = ...,
    reads: Iterable[str] | None = ...,
    writes: Iterable[str] | None = ...,
    version: str | None = ...,
) -> NodeDecorator: ...
def node(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a node of a function `f(state)` or `f(state, step)`, sync or async.

    Sync functions run in a worker thread, with the caller's context variables. What a function returns is described in
    `graphflow.model.outcome`.

    Args:
        fn: the function.
        options: the attributes of `FunctionNode`; the name is the function's name by default, the description the
            first line of its docstring.

    Raises:
        UsageError: if the function's parameters or an option make no sense.

    >>> @node(retries=2)
    ... async def fetch(state: State[Context]) -> str:
    ...     "Fetch the page."
    ...     return "page"
    >>> fetch, fetch.description
    (<FunctionNode 'fetch'>, 'Fetch the page.')
    """
    if fn is None:
        return functools.partial(_make, options)
    return _make(options, fn)


class NodeDecorator(Protocol):
    """What `@node(...)` gives: a decorator for a function of either form."""

    @overload
    def __call__(self, fn: Callable[[State[C]], Any], /) -> FunctionNode[C]: ...
    @overload
    def __call__(self, fn: Callable[[State[C], Step], Any], /) -> FunctionNode[C]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Make the node."""
        ...


def _make(options: dict[str, Any], fn: Callable[..., Any]) -> FunctionNode[Any]:
    function: object = fn
    if not callable(function):
        msg = f"node({value_text(function)}): a function is needed; the options are given by name, as @node(name=...)."
        raise UsageError(msg)
    given = dict(options)
    refuse_unknown("@node", given, _OPTIONS)
    name = given.pop("name", None) or getattr(fn, "__name__", type(fn).__name__)
    first_line = (inspect.getdoc(fn) or "").partition("\n")[0] if inspect.isroutine(fn) else ""
    made = FunctionNode[Any](fn=fn, name=name, description=given.pop("description", first_line), **given)
    _ = made.wants_step  # wrong parameters are said here, where the function is defined
    return made
