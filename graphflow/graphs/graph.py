"""`Graph`: a frozen value made from statements, and itself a node of other graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from graphflow.errors import MutableContext, UsageError
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.unknown import knowing_options
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_bound, checked_budget, checked_call, checked_sync
from graphflow.nodes.client import ModelClient
from graphflow.nodes.detect import Detector
from graphflow.nodes.edges import (
    Chain,
    ChooseStatement,
    DelegateStatement,
    ErrorStatement,
    ForkStatement,
    HandoffStatement,
    MapStatement,
    NextStatement,
    Statement,
    Terminal,
    checked_node,
)
from graphflow.nodes.join import init_node

if TYPE_CHECKING:
    from graphflow.graphs.bounds import WorstCase
    from graphflow.graphs.checks import Problem
    from graphflow.graphs.compiled import Compiled

C = TypeVar("C", bound=Context)


@dataclass(frozen=True, repr=False, init=False)
class Graph(Node[Any], Generic[C]):
    """A directed graph of nodes, its bounds, and its signature as a node of other graphs.

    The order inside a statement is meaning (the order of branches and merges); the order of the statements is not.

    Attributes:
        statements: what was given, as single statements.
        context: the class of the context that its nodes see.
        output: the type that its output must have, or None.
        budget: the account of a run of this graph; a cap for each activation where it is nested.
        max_depth: how many delegations may be nested below it, or None.
        max_handoffs: how many handoffs one activation may make, or None.
        max_hops: how many edges one activation may traverse, or None.
        escalate: where control goes when a bound is hit, or None.
        detect: the detectors that watch each activation: `ping_pong()`, `repetition()`, `no_progress()`.
        enter: makes the context of a nested activation from the caller's state, or None for the default.
        leave: makes the output from the state at END, or None for the default, the output that reached END.
    """

    statements: tuple[Statement, ...]
    context: type[C]
    output: Any
    budget: Budget | None
    max_depth: int | None
    max_handoffs: int | None
    max_hops: int | None
    escalate: Node[Any] | None
    detect: tuple[Detector, ...]
    enter: Callable[[State[Any]], C] | None
    leave: Callable[[State[C]], Any] | None
    kind: ClassVar[str] = "graph"

    @knowing_options()
    def __init__(
        self,
        name: str,
        *chains: Chain[Any],
        context: type[C],
        output: Any = None,
        budget: Budget | None = None,
        max_depth: int | None = None,
        max_handoffs: int | None = None,
        max_hops: int | None = None,
        escalate: Node[Any] | None = None,
        detect: Sequence[Detector] = (),
        enter: Callable[[State[Any]], C] | None = None,
        leave: Callable[[State[C]], Any] | None = None,
        into: str | None = None,
        retries: int = 0,
        max_visits: int | None = None,
        description: str = "",
    ) -> None:
        """Take the statements; `check()` says what is wrong with them.

        Raises:
            UsageError: if something that is no statement was given, or a bound makes no sense.
        """
        statements: dict[int, Statement] = {}  # one chain may be part of several: each statement counts once
        for chain in chains:
            given: object = chain
            if not isinstance(given, Chain):
                msg = f"Graph({name!r}): {value_text(given)} is no statement; write START >> a, a >> b, a.choose(...)."
                raise UsageError(msg)
            statements.update((id(statement), statement) for statement in chain.statements)
        kind: object = context
        if not (isinstance(kind, type) and issubclass(kind, Context)):
            msg = f"Graph({name!r}, context={value_text(context)}): a class derived from graphflow.Context is needed."
            raise UsageError(msg)
        if context.__pydantic_generic_metadata__["parameters"]:
            raise MutableContext(
                context.__name__, [("(class)", "its type variables are unbound", "a class such as Box[Item]")]
            )
        for function, given in (("enter", enter), ("leave", leave)):
            checked_call(f"Graph {name!r}", given, function, "a function of the state, or None,")
        checked_sync(f"Graph {name!r}", enter=enter, leave=leave)
        if escalate is not None:
            checked_node(f"Graph {name!r}: escalate", escalate)
        checked_budget(f"Graph {name!r}", budget)
        put = object.__setattr__
        put(self, "statements", tuple(statements.values()))
        put(self, "context", context)
        put(self, "output", output)
        put(self, "budget", budget)
        for bound, value in (
            ("max_depth", max_depth),
            ("max_handoffs", max_handoffs),
            ("max_hops", max_hops),
        ):
            put(self, bound, checked_bound(f"Graph {name!r}", value, bound))
        put(self, "escalate", escalate)
        several = isinstance(cast("object", detect), list | tuple)
        watchers: tuple[object, ...] = tuple(detect) if several else (detect,)
        if not all(isinstance(found, Detector) for found in watchers):
            known = "ping_pong(...), repetition(...) and no_progress(...) are detectors"
            msg = f"Graph({name!r}, detect={value_text(detect)}): {known}."
            raise UsageError(msg)
        put(self, "detect", watchers)
        put(self, "enter", enter)
        put(self, "leave", leave)
        init_node(self, name, into=into, retries=retries, max_visits=max_visits, description=description)

    def __hash__(self) -> int:
        """Hash by name and size; equality looks at everything."""
        return hash((self.name, len(self.statements)))

    def named(self, name: str) -> Graph[C]:
        """Return the same graph under another name, so that it can stand in a graph twice."""
        copy = object.__new__(type(self))
        for field in self.__dataclass_fields__:
            object.__setattr__(copy, field, getattr(self, field))
        object.__setattr__(copy, "name", name)
        copy.__post_init__()
        return copy

    def with_model(self, model: ModelClient | str) -> Graph[C]:
        """Return the same graph with one model for all its agents, and those of the graphs inside it.

        It counts as the same graph: who a model is, is no part of an agent's identity. A stored run goes on with it
        where it is asked in the same way, by calls or in JSON.

        Args:
            model: a client, or the name of a provider's model, as "openai:gpt-5".

        Raises:
            UsageError: if it is no model.
        """
        from graphflow.graphs.remodelled import with_model

        return with_model(self, model)

    @functools.cached_property
    def nodes(self) -> dict[str, Node[Any]]:
        """The nodes by name, in the order in which they first appear in a sorted walk over the statements."""
        return {node.name: node for node in self.mentioned()}

    def mentioned(self) -> Iterator[Node[Any]]:
        """Yield every node that the statements mention, as often as they do."""
        for statement in self.statements:
            for end in ends(statement):
                if not isinstance(end, Terminal):
                    yield end
        if self.escalate is not None:
            yield self.escalate

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The tables that the walk uses, made once.

        Raises:
            GraphProblems: if the statements cannot be put into tables; `check()` lists the problems.
        """
        from graphflow.graphs.compiled import compile_graph

        return compile_graph(self)

    def check(self) -> tuple[Problem, ...]:
        """Return every problem of this graph and of the graphs inside it, errors first."""
        from graphflow.graphs.checks import check_graph

        return check_graph(self)

    def worst_case(self) -> WorstCase:
        """Prove upper bounds for any run of this graph, from its structure alone."""
        from graphflow.graphs.bounds import worst_case

        return worst_case(self)

    def fingerprint(self) -> str:
        """Return a digest of everything that gives the graph its meaning; equal for equal graphs."""
        from graphflow.graphs.export import fingerprint

        return fingerprint(self)

    def structure(self) -> dict[str, Any]:
        """Return the whole structure as plain JSON data, in a canonical order."""
        from graphflow.graphs.export import structure

        return structure(self)


def ends(statement: Statement) -> tuple[Node[Any] | Terminal, ...]:
    """Return the source and the targets of a statement, in order."""
    match statement:
        case NextStatement():
            return (statement.source, statement.target)
        case ForkStatement():
            return (statement.source, *(branch.target for branch in statement.fork.branches))
        case ChooseStatement():
            default = () if statement.default is None else (statement.default,)
            return (statement.source, *(case.target for case in statement.cases), *default)
        case MapStatement():
            return (statement.source, statement.lane, statement.join)
        case DelegateStatement() | HandoffStatement():
            return (statement.source, *statement.targets)
        case ErrorStatement():
            return (statement.source, statement.target)
