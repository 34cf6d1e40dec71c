"""Edges as values: the statements that a graph is made from.

`a >> b`, `a.choose(...)`, `a.map(...)`, `a.delegates(...)`, `a.hands_off(...)` and `a.on_error(...)` each make a
`Chain`: a tuple of statements, together with the ends that a further `>>` continues from.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.contract import Brief
from graphflow.model.secrets import veiled
from graphflow.model.state import State
from graphflow.model.thread import History
from graphflow.nodes.checked import checked_bound, checked_failure, checked_sync, checked_text

if TYPE_CHECKING:
    from pydantic import BaseModel

    from graphflow.nodes.base import Node

C_contra = TypeVar("C_contra", bound=Context, contravariant=True)
D = TypeVar("D", bound=Context)

FailurePolicy = Literal["fail_fast", "collect"]


@runtime_checkable
class Labelled(Protocol):
    """A predicate that says itself how its edge is drawn; of any other, its name is."""

    @property
    def label(self) -> str:
        """What stands at the edge."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A predicate that says why control wants to pass, for the reason where the bound of its edge refuses that.

    It is asked then alone, so that it costs nothing where nothing is refused.

    >>> @dataclass(frozen=True)
    ... class MorePages:
    ...     label: str = "more pages"
    ...
    ...     def __call__(self, state: State[Any]) -> bool:
    ...         return state.context.page < state.context.pages
    ...
    ...     def why(self, context: Any) -> str:
    ...         return f"{context.pages - context.page} pages are left"
    >>> isinstance(MorePages(), Labelled), isinstance(MorePages(), Explains)
    (True, True)
    """

    def why(self, context: Any, /) -> str:
        """Say it, from the context that the predicate saw; pure and sync, like the predicate."""
        ...


class Terminal(enum.Enum):
    """The two ends of every graph, which are no nodes."""

    START = "START"
    END = "END"

    def __repr__(self) -> str:
        """Show the constant's name."""
        return self.value

    def __rrshift__(self, other: tuple[Node[D] | Branch[D] | Chain[D], ...]) -> Chain[D]:
        """Let several nodes lead to END: `(b, c) >> END`."""
        return lead_together(other, self)


@dataclass(frozen=True, slots=True)
class Branch(Generic[C_contra]):
    """An edge that may have a condition: a branch of a fork or a case of a choose.

    Attributes:
        target: where it leads.
        test: holds or not, for the state that the target would see; None always holds.
        max_hops: how often it may be taken in one activation of the graph.
        label: how the condition is drawn.
        chain: the chain that starts at the target, if one was given.
        bound: what `max_hops` is called where it is hit, if not that: the argument that it comes from.
    """

    target: Node[Any] | Terminal
    test: Callable[[State[Any]], bool] | None = None
    max_hops: int | None = None
    label: str = ""
    chain: Chain[Any] | None = None
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Equals:
    """The test of `on(value, ...)`: the output equals a value."""

    value: Any

    def __call__(self, state: State[Any]) -> bool:
        """Compare the first output of the inbox."""
        return bool(state.inbox) and bool(state.inbox[0].value == self.value)


@dataclass(frozen=True, slots=True)
class IsActive:
    """The test of `on_active(agent)`: that agent spoke last."""

    name: str

    def __call__(self, state: State[Any]) -> bool:
        """Compare who spoke last."""
        return state.active == self.name


@dataclass(frozen=True, slots=True)
class Fork:
    """Branches that start at once, with what to do when one fails. `(b, c)` is `fork(b, c)`.

    Attributes:
        branches: in the order in which their results are merged.
        failure: "fail_fast" cancels the others; "collect" puts the failure into the join's inbox.
    """

    branches: tuple[Branch[Any], ...]
    failure: FailurePolicy = "fail_fast"


# --- statements ------------------------------------------------------------------------------------------------------


class NextStatement(NamedTuple):
    """`a >> b`."""

    source: Node[Any] | Terminal
    target: Node[Any] | Terminal


class ForkStatement(NamedTuple):
    """`a >> (b, c)`."""

    source: Node[Any] | Terminal
    fork: Fork


class ChooseStatement(NamedTuple):
    """`a.choose(...)`."""

    source: Node[Any] | Terminal
    cases: tuple[Branch[Any], ...]
    default: Node[Any] | Terminal | None


class MapStatement(NamedTuple):
    """`a.map(...)`."""

    source: Node[Any] | Terminal
    lane: Node[Any]
    over: Callable[[State[Any]], Sequence[Any]]
    join: Node[Any]
    max_items: int | None
    failure: FailurePolicy


class DelegateStatement(NamedTuple):
    """`a.delegates(...)`."""

    source: Node[Any]
    targets: tuple[Node[Any], ...]
    max_hops: int | None
    into: str | None
    brief: type[Brief]
    report: type[BaseModel]
    share: Literal["pool", "equal"] | float
    timeout: float | None
    history: History = "note"
    grant: tuple[str, ...] = ()


class HandoffStatement(NamedTuple):
    """`a.hands_off(...)`."""

    source: Node[Any]
    targets: tuple[Node[Any], ...]
    max_hops: int | None
    history: History = "note"


class ErrorStatement(NamedTuple):
    """`a.on_error(...)`."""

    source: Node[Any]
    target: Node[Any] | Terminal
    catch: tuple[type[Exception], ...]


Statement = (
    NextStatement
    | ForkStatement
    | ChooseStatement
    | MapStatement
    | DelegateStatement
    | HandoffStatement
    | ErrorStatement
)

# --- chains ----------------------------------------------------------------------------------------------------------

Item = Any  # a Node, a Chain, a Branch, END, a Fork, or a tuple of them: the overloads below give the exact types


@dataclass(frozen=True, slots=True)
class Chain(Generic[C_contra]):
    """Statements, and the ends that a further `>>` continues from.

    Attributes:
        statements: in the order in which they were written.
        head: where the chain begins.
        tails: the nodes that the next `>>` leads on from.
    """

    statements: tuple[Statement, ...]
    head: Node[Any] | Terminal
    tails: tuple[Node[Any], ...]

    @overload
    def __rshift__(self, other: Literal[Terminal.END]) -> Chain[C_contra]: ...
    @overload
    def __rshift__(self, other: Node[D] | Chain[D] | Fork | tuple[Node[D] | Branch[D] | Chain[D], ...]) -> Chain[D]: ...
    def __rshift__(self, other: Any) -> Any:
        """Lead on from every tail of this chain."""
        if not self.tails:
            msg = f"nothing can follow {self.statements[-1]!r}: it has no open end to lead on from."
            raise UsageError(msg)
        joined: Chain[Any] = self
        tails: tuple[Node[Any], ...] = ()
        for index, tail in enumerate(self.tails):
            link = connect(tail, other)
            new = link.statements if index == 0 else link.statements[:1]
            joined = Chain((*joined.statements, *new), self.head, ())
            tails = link.tails
        made: Chain[Any] = Chain(joined.statements, self.head, tails)
        return made


def connect(source: Node[Any] | Terminal, other: Item) -> Chain[Any]:
    """Make the chain of `source >> other`.

    Raises:
        UsageError: if nothing can lead from the one to the other.
    """
    if isinstance(other, tuple):
        other = Fork(tuple(as_branch(item) for item in cast("tuple[Item, ...]", other)))
    if isinstance(other, Fork):
        if not other.branches:
            msg = f"{source!r} >> (): a fork needs at least one branch."
            raise UsageError(msg)
        statements: tuple[Statement, ...] = (ForkStatement(source, other),)
        tails: tuple[Node[Any], ...] = ()
        for branch in other.branches:
            if branch.chain is not None:
                statements += branch.chain.statements
                tails += branch.chain.tails
            elif not isinstance(branch.target, Terminal):
                tails += (branch.target,)
        return Chain(statements, source, tails)
    if isinstance(other, Chain):
        chain = cast("Chain[Any]", other)
        return Chain((NextStatement(source, chain.head), *chain.statements), source, chain.tails)
    if other is Terminal.END:
        return Chain((NextStatement(source, other),), source, ())
    if other is Terminal.START or not is_node(other):
        given = type(other).__name__
        what = f"a node, a tuple of branches, a chain or END can follow, not {given}"
        msg = f"{source!r} >> {other!r}: {what}.{_hint(other)}"
        raise UsageError(msg)
    return Chain((NextStatement(source, other),), source, (other,))


def lead_together(heads: Sequence[Item], target: Node[Any] | Terminal) -> Chain[Any]:
    """Make the chain of `(b, c) >> target`.

    Raises:
        UsageError: if something is no node and no chain.
    """
    if not isinstance(cast("object", heads), tuple):
        msg = f"{heads!r} >> {target!r}: a node, a chain or a tuple of them can lead to it."
        raise UsageError(msg)
    branches = tuple(as_branch(item) for item in heads)
    if not branches:
        msg = f"() >> {target!r}: at least one node must lead there."
        raise UsageError(msg)
    statements: tuple[Statement, ...] = ()
    for branch in branches:
        tails = branch.chain.tails if branch.chain is not None else (branch.target,)
        statements += branch.chain.statements if branch.chain is not None else ()
        for tail in tails:
            statements += connect(tail, target).statements
    return Chain(statements, branches[0].target, () if isinstance(target, Terminal) else (target,))


def as_branch(item: Item, where: str = "") -> Branch[Any]:
    """Make a branch of a node, a chain or END, which stands somewhere.

    Raises:
        UsageError: if it is none of them.
    """
    if isinstance(item, Branch):
        return cast("Branch[Any]", item)
    if isinstance(item, Chain):
        chain = cast("Chain[Any]", item)
        return Branch(chain.head, chain=chain)
    if item is Terminal.END or is_node(item):
        return Branch(item)
    shown = f"{where}: {item!r}" if where else repr(item)
    msg = f"{shown} is no branch: a node, when(...), on(...), a chain or END is needed.{_hint(item)}"
    raise UsageError(msg)


def fork(*branches: Node[Any] | Branch[Any] | Chain[Any], failure: FailurePolicy = "fail_fast") -> Fork:
    """Start several branches at once.

    Args:
        branches: nodes, chains, or `when(...)`; in the order in which their results are merged.
        failure: "fail_fast" cancels the others when one fails and passes the failure outward; "collect" lets them
            finish and puts the failure into the join's inbox as a failed report.

    Raises:
        UsageError: if something is no branch, or the policy is unknown.
    """
    checked_failure("fork", failure)
    return Fork(tuple(as_branch(item) for item in branches), failure)


def when(
    test: Callable[[State[D]], bool],
    to: Node[Any] | Chain[Any] | Terminal,
    *,
    max_hops: int | None = None,
    bound: str = "",
) -> Branch[D]:
    """Take an edge only where a predicate holds.

    Args:
        test: pure and sync; it sees the state that the target would see. Its name is drawn, or its `label` if it is
            `Labelled`; if it `Explains` itself, what its `why(context)` says stands in the reason of a hit bound.
        to: where the edge leads.
        max_hops: how often it may be taken in one activation of the graph.
        bound: what that is called where it is hit: the argument of your own function that it comes from.

    Raises:
        UsageError: if the predicate, the target or the bound makes no sense.
    """
    if not callable(cast("object", test)):
        msg = f"when({test!r}, ...): a function from state to bool is needed; on(value, node) compares the output."
        raise UsageError(msg)
    checked_sync("when", test=test)
    checked_text("when", bound, "bound")
    branch = as_branch(to, "when: to")
    return Branch(branch.target, test, checked_bound("when", max_hops), _label_of(test), branch.chain, bound)


def _label_of(test: object) -> str:
    """Return how an edge with a predicate is drawn.

    Raises:
        UsageError: if the predicate has a `label` or a `why` that says nothing.
    """
    why: object = test.why if isinstance(test, Explains) else None
    if why is not None and not callable(why):
        msg = f"when({test!r}): its why is {why!r}; a function from the context to words is needed, or none."
        raise UsageError(msg)
    checked_sync("when", why=why)
    if not isinstance(test, Labelled):
        return str(getattr(test, "__name__", type(test).__name__))
    label: object = test.label
    if not isinstance(label, str):
        msg = f"when({test!r}): its label is {label!r}; words are needed, or none."
        raise UsageError(msg)
    return label


def explained(test: object, context: object) -> str:
    """Return why control wants to pass over an edge, as its predicate says, or "" if it does not say.

    >>> explained(Equals(3), None)
    ''
    """
    if not isinstance(test, Explains):
        return ""
    try:
        return str(test.why(context))
    except Exception as error:  # noqa: BLE001 - the bound is the reason: what explains it must not replace it
        return f"its why raised {type(error).__name__}: {error}"


def on(value: Any, to: Node[Any] | Chain[Any] | Terminal, *, max_hops: int | None = None) -> Branch[Any]:
    """Take an edge only where the output equals a value.

    Args:
        value: compared with the node's output by `==`.
        to: where the edge leads.
        max_hops: how often it may be taken in one activation of the graph.

    Raises:
        UsageError: if the target or the bound makes no sense.
    """
    branch = as_branch(to, "on: to")
    return Branch(branch.target, Equals(value), checked_bound("on", max_hops), f"= {veiled(value)!r}", branch.chain)


def on_active(agent: Node[Any], *, max_hops: int | None = None) -> Branch[Any]:
    """Go on with who spoke last, agent or graph: a case of START's choose, for the next message of a chat.

    Args:
        agent: where the edge leads, if that agent or graph spoke last in the run that this one continues (`after=`).
        max_hops: how often it may be taken in one activation of the graph.

    Raises:
        UsageError: if it is no node, or the bound makes no sense.
    """
    checked_node("on_active", agent)
    bound = checked_bound("on_active", max_hops)
    return Branch(agent, IsActive(agent.name), bound, f"{agent.name!r} spoke last")


def checked_node(where: str, found: object, *, end: bool = False) -> None:
    """Refuse what is no node.

    Raises:
        UsageError: if it is neither a node nor, where that is allowed, END.
    """
    if not is_node(found) and not (end and found is Terminal.END):
        what = f"a node is needed{', or END' if end else ''}, not {type(found).__name__}"
        msg = f"{where}: {found!r}: {what}.{_hint(found)}"
        raise UsageError(msg)


def is_node(found: object) -> bool:
    """Whether something is a node: what has its verbs, and is no class of nodes."""
    return hasattr(found, "delegates") and not isinstance(found, type)


def _hint(found: object) -> str:
    if hasattr(found, "delegates"):
        return f" This is a class; make a node of it: {getattr(found, '__name__', 'Class')}(...)."
    return " Put @node above the function." if inspect.isfunction(found) else ""
