"""What every node is: a named, frozen value with bounds of its own, and the verbs that make edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.contract import Brief, Report
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import History, checked_history
from graphflow.nodes.checked import (
    checked_bound,
    checked_call,
    checked_count,
    checked_failure,
    checked_names,
    checked_seconds,
    checked_switch,
    checked_sync,
    checked_text,
)
from graphflow.nodes.edges import (
    Branch,
    Chain,
    ChooseStatement,
    DelegateStatement,
    ErrorStatement,
    FailurePolicy,
    Fork,
    HandoffStatement,
    MapStatement,
    Terminal,
    as_branch,
    checked_node,
    connect,
    lead_together,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

C_contra = TypeVar("C_contra", bound=Context, contravariant=True)
D = TypeVar("D", bound=Context)


@dataclass(frozen=True, kw_only=True, repr=False)
class Node(Generic[C_contra]):
    """A node of a graph: its name there, its bounds, and how its output reaches the context.

    Attributes:
        name: any text but the empty one; a node is its name in its graph.
        description: what it does, for drawings and for models that choose among nodes.
        retries: how many further attempts follow one that failed; each costs a retry and a node run.
        timeout: active seconds for one attempt of one turn, or None.
        max_visits: how often it may be entered in one activation of its graph, or None.
        into: the field of the context that takes its output, or None.
        gate: whether it is a gate that must come before irreversible tools.
        irreversible: whether what it does cannot be undone, so that a gate must come before it on every path.
        reads: the fields that it declares to read, or None where it says nothing.
        writes: the fields that it declares to write, or None where it says nothing.
    """

    name: str
    description: str = ""
    retries: int = 0
    timeout: float | None = None
    max_visits: int | None = None
    into: str | None = None
    gate: bool = False
    irreversible: bool = False
    reads: frozenset[str] | None = None
    writes: frozenset[str] | None = None
    kind: ClassVar[str] = "node"

    def __post_init__(self) -> None:
        """Check name and bounds."""
        if not isinstance(self.name, str) or not self.name:
            msg = f"{type(self).__name__}(name={self.name!r}): a name is needed, any text but the empty one."
            raise UsageError(msg)
        where = f"{type(self).__name__} {self.name!r}"
        checked_count(where, self.retries, "retries")
        checked_bound(where, self.max_visits, "max_visits", least=1)
        checked_text(where, self.description, "description")
        checked_text(where, self.into, "into", none=True)
        checked_switch(where, self.gate, "gate")
        checked_switch(where, self.irreversible, "irreversible")
        checked_seconds(where, self.timeout)
        for name, fields in (("reads", self.reads), ("writes", self.writes)):
            if fields is not None:
                object.__setattr__(self, name, checked_names(where, fields, name, "fields"))

    def __repr__(self) -> str:
        """Show kind and name; never what the node holds."""
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def attempts(self) -> int:
        """How many attempts one visit may have at most."""
        return 1 + self.retries

    def named(self, name: str) -> Self:
        """Return the same node under another name, so that it can stand in a graph twice."""
        return dataclasses.replace(self, name=name)

    @overload
    def __rshift__(self, other: Literal[Terminal.END]) -> Chain[C_contra]: ...
    @overload
    def __rshift__(self, other: Node[D] | Chain[D] | Fork | tuple[Node[D] | Branch[D] | Chain[D], ...]) -> Chain[D]: ...
    def __rshift__(self, other: Any) -> Any:
        """Lead to a node, to several at once, or to END."""
        return connect(self, other)

    def __rrshift__(self, other: tuple[Node[D] | Branch[D] | Chain[D], ...]) -> Chain[D]:
        """Let several nodes lead to this one: `(b, c) >> d`."""
        return lead_together(other, self)

    def choose(
        self, *cases: Branch[D], default: Node[Any] | Chain[Any] | Literal[Terminal.END] | None = None
    ) -> Chain[D]:
        """Take exactly one edge: the first case that holds, else the default.

        Args:
            cases: `when(...)` or `on(...)`, tried in order.
            default: taken when no case holds; without one the token ends there.

        Raises:
            UsageError: if there is no case, or something is no case.
        """
        return choose_from(self, cases, default)

    def map(
        self,
        lane: Node[Any] | Chain[Any],
        *,
        over: Callable[[State[D]], Sequence[object]],
        join: Node[Any],
        max_items: int | None = None,
        failure: FailurePolicy = "fail_fast",
    ) -> Chain[D]:
        """Run a lane for each item of a sequence, all at once, and go on at the join.

        Args:
            lane: a node or a chain; its first inbox is `((this node, item),)`.
            over: pure and sync; gives the items from the state: in an order, so no set and no dict, nor one text.
            join: where the lanes meet; results arrive in the order of the items.
            max_items: more items are a bound hit here, before any lane starts.
            failure: what a failed lane does to the others, as in `fork`.

        Raises:
            UsageError: if the lane has no node, or the bound or the policy makes no sense.
        """
        return map_from(self, lane, over=over, join=join, max_items=max_items, failure=failure)

    def delegates(
        self,
        *team: Node[Any],
        max_hops: int | None = None,
        into: str | None = None,
        brief: type[Brief] = Brief,
        report: type[BaseModel] = Report,
        share: Literal["pool", "equal"] | float = "pool",
        timeout: float | None = None,
        history: History = "note",
        grant: Sequence[str] = (),
    ) -> Chain[Context]:
        """Let this node delegate to others: ask, get a report back, keep control.

        Args:
            team: the callees.
            max_hops: how often each of these edges may be used in one activation of the graph.
            into: the field of the context that takes the reports, through its reducer.
            brief: the contract of what goes down.
            report: the contract of what comes back; a failure always comes back as `Report`.
            share: "pool" spends from the caller's account; "equal" splits what is free between the calls of a batch;
                a number above 0 and at most 1 is the part of what is free that each call gets.
            timeout: active seconds for one call, without the time in which it only waits for answers.
            history: what of this node's thread an agent that is called sees, or the thread of a graph begins with,
                besides the brief.
            grant: names of tools that the callees may use although the rights of this node do not name them.

        Raises:
            UsageError: if there is no callee, or a bound makes no sense.
        """
        if not team:
            msg = f"{self!r}.delegates(): at least one callee is needed."
            raise UsageError(msg)
        for callee in team:
            checked_node(f"{self!r}.delegates", callee)
        if share not in ("pool", "equal") and not (isinstance(share, (int, float)) and 0 < share <= 1):
            msg = f"{self!r}.delegates: share={value_text(share)}: 'pool', 'equal' or a part above 0 and at most 1."
            raise UsageError(msg)
        checked_seconds(f"{self!r}.delegates", timeout)
        checked_text(f"{self!r}.delegates", into, "into", none=True)
        checked_history(f"{self!r}.delegates", history)
        checked_sync(f"{self!r}.delegates", history=history)
        several = isinstance(cast("object", grant), list | tuple)
        granted: tuple[Any, ...] = tuple(grant) if several else (grant,)
        if not all(isinstance(name, str) for name in granted):
            msg = f"{self!r}.delegates: grant={value_text(grant)}: names of tools are needed."
            raise UsageError(msg)
        bound = checked_bound(f"{self!r}.delegates", max_hops)
        statement = DelegateStatement(self, team, bound, into, brief, report, share, timeout, history, granted)
        return Chain((statement,), self, ())

    def hands_off(self, *to: Node[Any], max_hops: int | None = None, history: History = "note") -> Chain[Context]:
        """Let this node hand control over to others, for good.

        Args:
            to: the possible targets.
            max_hops: how often each of these edges may be taken in one activation of the graph.
            history: what of the thread a target that is an agent sees, or the thread of a graph begins with, besides
                the note and the user's message.

        Raises:
            UsageError: if there is no target, or the bound makes no sense.
        """
        if not to:
            msg = f"{self!r}.hands_off(): at least one target is needed."
            raise UsageError(msg)
        for target in to:
            checked_node(f"{self!r}.hands_off", target)
        checked_history(f"{self!r}.hands_off", history)
        checked_sync(f"{self!r}.hands_off", history=history)
        bound = checked_bound(f"{self!r}.hands_off", max_hops)
        return Chain((HandoffStatement(self, to, bound, history),), self, ())

    def on_error(
        self,
        to: Node[Any] | Literal[Terminal.END],
        *,
        catch: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> Chain[Context]:
        """Go on elsewhere when this node has failed; the failure counts as handled.

        Args:
            to: where to go; its inbox holds the failed report.
            catch: the exceptions that are handled, those of this library too.

        Raises:
            UsageError: if `catch` is no exception class.
        """
        checked_node(f"{self!r}.on_error", to, end=True)
        kinds = catch if isinstance(catch, tuple) else (catch,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            msg = f"{self!r}.on_error: catch={value_text(catch)}: exception classes are needed."
            raise UsageError(msg)
        return Chain((ErrorStatement(self, to, kinds),), self, ())


def choose_from(
    source: Node[Any] | Terminal, cases: Sequence[Branch[Any]], default: Node[Any] | Chain[Any] | Terminal | None
) -> Chain[Any]:
    """Make the chain of a choose.

    Raises:
        UsageError: if there is no case, or something is no case.
    """
    if not cases or not all(isinstance(case, Branch) for case in cases):
        msg = f"{source!r}.choose{value_text(tuple(cases))}: one or more of when(...) and on(...) are needed."
        raise UsageError(msg)
    otherwise = None if default is None else as_branch(default, f"{source!r}.choose: default")
    target = None if otherwise is None else otherwise.target
    statements: tuple[Any, ...] = (ChooseStatement(source, tuple(cases), target),)
    for case in (*cases, *(() if otherwise is None else (otherwise,))):
        statements += case.chain.statements if case.chain is not None else ()
    return Chain(statements, source, ())


def map_from(
    source: Node[Any] | Terminal,
    lane: Node[Any] | Chain[Any],
    *,
    over: Callable[[State[Any]], Sequence[object]],
    join: Node[Any],
    max_items: int | None,
    failure: FailurePolicy,
) -> Chain[Any]:
    """Make the chain of a map: every open end of the lane leads to the join.

    Raises:
        UsageError: if the lane has no node, or a bound or the policy makes no sense.
    """
    bound = checked_bound(f"{source!r}.map", max_items, "max_items")
    checked_call(f"{source!r}.map", over, "over", "a function from the state to a sequence")
    checked_sync(f"{source!r}.map", over=over)
    checked_failure(f"{source!r}.map", failure)
    checked_node(f"{source!r}.map: join", join)
    checked_node(f"{source!r}.map", lane.head if isinstance(lane, Chain) else lane)
    inner = lane.statements if isinstance(lane, Chain) else ()
    head = lane.head if isinstance(lane, Chain) else lane
    if isinstance(head, Terminal):
        msg = f"{source!r}.map({value_text(lane)}): a lane begins with a node."
        raise UsageError(msg)
    statement = MapStatement(source, head, over, join, bound, failure)
    return Chain((statement, *inner), source, (join,))


class Start:
    """Where every run of a graph begins; `START >> a`."""

    def __repr__(self) -> str:
        """Show the constant's name."""
        return "START"

    def __rshift__(self, other: Node[D] | Chain[D] | Fork | tuple[Node[D] | Branch[D] | Chain[D], ...]) -> Chain[D]:
        """Begin with a node, or with several at once."""
        return connect(Terminal.START, other)

    def choose(self, *cases: Branch[D], default: Node[Any] | Chain[Any] | None = None) -> Chain[D]:
        """Begin with the first case that holds, else the default."""
        return choose_from(Terminal.START, cases, default)

    def map(
        self,
        lane: Node[Any] | Chain[Any],
        *,
        over: Callable[[State[D]], Sequence[object]],
        join: Node[Any],
        max_items: int | None = None,
        failure: FailurePolicy = "fail_fast",
    ) -> Chain[D]:
        """Begin with a lane for each item, as `Node.map`."""
        return map_from(Terminal.START, lane, over=over, join=join, max_items=max_items, failure=failure)


START = Start()
END: Literal[Terminal.END] = Terminal.END
