"""What happened in a run: facts from outside, decisions of the fold, and the record that joins them.

A *fact* comes from outside the fold: a node returned, a timer fired, a person answered. A *decision* is what the fold
says about a fact. One fact with its decisions is one `Record`; a journal stores records, and folding the facts of a
journal again draws the same decisions. Listeners see both, flattened into `Event` values.

The classes here are plain slotted dataclasses: the type checkers hold them frozen (see `record`), because a frozen
dataclass costs four times as much to build and a run builds several of them for each hop.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast, dataclass_transform

from graphflow.model.budget import Budget
from graphflow.model.contract import Reason
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Path, path_text
from graphflow.model.secrets import veiled
from graphflow.model.telling import value_text
from graphflow.model.thread import Thread

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a slotted dataclass that checkers treat as frozen.

    Equality and repr are shared functions: generating them for each class anew would take half of the import time.
    """
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    for name, method in (("__eq__", _equal), ("__repr__", _shown), ("__hash__", None)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _equal(one: Any, other: object) -> bool:
    slots: tuple[str, ...] = one.__slots__
    return type(one) is type(other) and all(getattr(one, name) == getattr(other, name) for name in slots)


def _shown(one: Any) -> str:
    return f"{type(one).__name__}({', '.join(f'{name}={veiled(getattr(one, name))!r}' for name in one.__slots__)})"


class EdgeName(NamedTuple):
    """The identity of an edge in its graph.

    Attributes:
        source: the node that it leaves, None for START.
        kind: what it means.
        target: the node that it leads to, None for END.
        position: its place among the edges of one statement.
    """

    source: str | None
    kind: Literal["next", "fork", "choose", "map", "delegate", "handoff", "error", "escalate"]
    target: str | None
    position: int = 0

    def __str__(self) -> str:
        """Show the edge as an arrow."""
        return f"{self.source or 'START'} -{self.kind}-> {self.target or 'END'}"


@record
class Failure:
    """An exception as a fact: what remains of it when the object is gone.

    Attributes:
        error_type: the qualified name of its class.
        text: its message.
        lineage: the qualified names of its class and the classes above it, for `catch=`.
        code: the reason code it stands for.
        limit: the bound that it speaks of, if any.
    """

    error_type: str
    text: str
    lineage: tuple[str, ...] = ()
    code: str = "failed"
    limit: float | None = None


FORMAT: Final = 2
"""The version of the form in which records are stored."""

EDITION: Final = 2
"""By what a run is decided that begins now, where versions of graphflow have decided otherwise; see decision 0027."""

SECRETIVE: Final = 2
"""The edition from which on models are told no defaults that are secrets, and digests are of none."""

CHECKED: Final = 2
"""The edition from which on what functions of the user's make is held to its types, and a map says its items."""

# --- facts -----------------------------------------------------------------------------------------------------------


@record
class Earlier:
    """The run that a run continues: what was said, who spoke last, and what was spent."""

    run: str
    thread: Thread
    active: str | None
    spent: Budget
    by_node: FrozenDict[str, Budget]
    by_edge: FrozenDict[str, Budget]


@record
class RunStarted:
    """A run began.

    Attributes:
        run: its id.
        graph: the name of its graph.
        fingerprint: the digest of that graph, "" where nothing is stored.
        context: what its nodes see first.
        budget: what the root may spend.
        max_parallel: how many bodies may run at once, or None.
        hooked: whether a `before=` hook is asked.
        wall: the time of day, in seconds since 1970.
        after: the run that it continues, if any.
        forked: the run that it was forked from, and the number of the last record that both have.
        parts: the digest of each node and edge of the graph, to tell what has changed; None where nothing is stored.
        redacted: whether its texts pass a `redact=`.
        prices: what a token read and a token written cost, by the place of each model in the graph; None in runs that
            were stored before prices were recorded, which go by what the models say.
        edition: by what it is decided, to its end; 0 in runs that were stored before editions were recorded.
    """

    run: str
    graph: str
    fingerprint: str
    context: Any
    budget: Budget
    max_parallel: int | None
    hooked: bool
    wall: float
    after: Earlier | None = None
    forked: tuple[str, int] | None = None
    parts: FrozenDict[str, str] | None = None
    redacted: bool = False
    prices: FrozenDict[str, tuple[Decimal, Decimal]] | None = None
    edition: int = 0


@record
class SessionStarted:
    """A stored run was taken up again, in this or another process.

    Attributes:
        wall: the time of day, in seconds since 1970.
        fingerprint: the digest of the graph that it goes on with.
        parts: the digest of each node and edge of it, where it differs from that of the run's start.
        prices: what the models cost from now on; None where that has not changed.
    """

    wall: float
    fingerprint: str
    parts: FrozenDict[str, str] | None = None
    prices: FrozenDict[str, tuple[Decimal, Decimal]] | None = None


@record
class BudgetAdded:
    """Somebody gave the root more to spend."""

    budget: Budget


@record
class NodeReturned:
    """A body ended: with an outcome, with a failure, or because it was cancelled."""

    path: Path
    turn: int
    attempt: int
    outcome: Any = None
    failure: Failure | None = None
    cancelled: bool = False


@record
class EffectRequested:
    """A body asks to do something outside."""

    path: Path
    turn: int
    attempt: int
    key: str
    name: str
    digest: str
    cost: Budget | None


@record
class EffectFinished:
    """An effect ended; `usage` is what it really cost."""

    path: Path
    turn: int
    attempt: int
    key: str
    result: Any = None
    failure: Failure | None = None
    usage: Budget | None = None


@record
class SleepRequested:
    """A body asks to sleep for active seconds."""

    path: Path
    turn: int
    attempt: int
    key: str
    seconds: float


@record
class TimerFired:
    """The clock reached the time of a timer."""

    timer: int


@record
class Emitted:
    """A body said something for whoever listens."""

    path: Path
    turn: int
    value: Any


@record
class HookAnswered:
    """The `before=` hook let a visit start (`skip` is None) or skipped it."""

    path: Path
    skip: str | None = None
    failure: Failure | None = None


@record
class AnswerGiven:
    """A person answered a question, in a form that its schema accepts."""

    question: str
    value: Any


@record
class CancelRequested:
    """Somebody cancelled the run."""

    by: str


@record
class Warned:
    """The runner saw something that is not in order, such as a body that swallowed its cancellation."""

    path: Path
    warning: Literal["thread_abandoned", "cancel_swallowed", "loop_blocked"]
    text: str


Fact = (
    RunStarted | SessionStarted | BudgetAdded | NodeReturned | EffectRequested | EffectFinished | SleepRequested
    | TimerFired | Emitted | HookAnswered | AnswerGiven | CancelRequested | Warned
)  # fmt: skip

# --- decisions -------------------------------------------------------------------------------------------------------

VisitStatus = Literal["completed", "failed", "cancelled", "timed_out"]
RunStatus = Literal["completed", "partial", "failed", "waiting", "cancelled", "exhausted"]


@record
class NodeStarted:
    """A visit began; one node run is spent. Once for each visit."""

    path: Path
    edge: EdgeName


@record
class NodeReentered:
    """A suspended visit goes on with its next turn."""

    path: Path
    turn: int


@record
class NodeRetried:
    """An attempt failed and another begins; one retry and one node run are spent."""

    path: Path
    attempt: int
    reason: Reason


@record
class NodeEnded:
    """A visit ended: its terminal event."""

    path: Path
    status: VisitStatus
    reason: Reason | None = None


@record
class NodeSkipped:
    """A node was not run: a branch not taken, a join that nothing reached, a hook's Skip."""

    path: Path
    reason: Reason


@record
class EdgeTaken:
    """Control moved over an edge; `hop` counts its traversals in this activation of the graph."""

    path: Path
    edge: EdgeName
    hop: int


@record
class EffectStarted:
    """An effect may run; its counts are spent, its tokens and money reserved."""

    path: Path
    turn: int
    key: str
    name: str
    reserved: Budget | None


TimerPurpose = Literal["sleep", "timeout", "call_timeout", "quorum", "deadline"]
"""What a timer is for."""


@record
class TimerSet:
    """The clock is asked to tell when `at` is reached."""

    timer: int
    at: float
    path: Path
    purpose: TimerPurpose


@record
class ScopeOpened:
    """A fork or a map started its branches.

    Attributes:
        path: the node at which they part.
        join: where they meet, if in a node.
        branches: how many they are.
        items: the digest of a map's items, so that no run goes on over others; None of a fork, where nothing is stored,
            and in runs of an edition before 2.
    """

    path: Path
    join: str | None
    branches: int
    items: str | None = None


@record
class ScopeClosed:
    """All branches of a fork have ended."""

    path: Path
    join: str | None
    arrived: int
    failed: int


@record
class FrameOpened:
    """A delegation or a nested graph began."""

    path: Path
    graph: str | None
    depth: int
    edge: EdgeName


@record
class FrameClosed:
    """A delegation or a nested graph ended; a delegation with the report that its caller gets."""

    path: Path
    report: Any = None


@record
class Boundary:
    """An agent was entered, or a graph to which more can cross: what of a thread crossed to it, and what did not.

    Attributes:
        path: the visit.
        edge: the edge that it was entered over.
        crossed: the positions of the messages that crossed, as ranges with both ends.
        dropped: the positions of those that did not.
        bytes: the size of what it sees, as UTF-8; for a graph, of the messages that its thread begins with.
        granted: the tools that it has only because an edge grants them.
    """

    path: Path
    edge: EdgeName
    crossed: tuple[tuple[int, int], ...]
    dropped: tuple[tuple[int, int], ...]
    bytes: int
    granted: tuple[str, ...] = ()


@record
class Detected:
    """A detector of the graph saw a pattern that leads nowhere.

    Attributes:
        path: where it was seen.
        detector: which one.
        text: what was seen.
        then: what follows: "warn" nothing, "note" the agent is told, "stop" it counts as a bound.
    """

    path: Path
    detector: str
    text: str
    then: Literal["warn", "note", "stop"]


@record
class Refused:
    """A bound refused something; nothing was spent on it."""

    path: Path
    bound: str
    limit: float | None
    wanted: str


@record
class Spent:
    """An effect settled: what it really used."""

    path: Path
    usage: Budget


@record
class Granted:
    """An account was split off (`open`), or settled and its rest given back."""

    path: Path
    budget: Budget
    open: bool


@record
class Paused:
    """A visit waits for a person."""

    path: Path
    question: str
    text: str


@record
class RunEnded:
    """The run came to an end, or waits."""

    status: RunStatus
    reason: Reason | None = None
    path: Path = ()


Decision = (
    NodeStarted | NodeReentered | NodeRetried | NodeEnded | NodeSkipped | EdgeTaken | EffectStarted
    | TimerSet | ScopeOpened | ScopeClosed | FrameOpened | FrameClosed | Boundary | Detected | Refused | Spent | Granted
    | Paused | RunEnded
)  # fmt: skip


@record
class ListenerFailed:
    """A listener raised; it hears nothing more, and the run goes on. Not part of the journal."""

    listener: str
    text: str


@record
class TextDelta:
    """A model wrote a piece of its reply. Not part of the journal: the reply stands there, whole.

    Its event has the number of the record that comes next.
    """

    path: Path
    turn: int
    text: str


@record
class CallDelta:
    """A model wrote a piece of a call. Not part of the journal: the reply stands there, whole.

    Attributes:
        path: where the agent's visit stands.
        turn: its model call.
        position: the number of the call in the reply, from 0.
        name: the name of what is called, in the first piece of a call; "" in the others.
        arguments: the next piece of the arguments, as text.
    """

    path: Path
    turn: int
    position: int
    name: str
    arguments: str


Heard = TextDelta | CallDelta
"""What is heard while a model writes, and kept nowhere."""

Body = Fact | Decision | ListenerFailed | Heard

# --- records and events ----------------------------------------------------------------------------------------------


@record
class Record:
    """One fact with the decisions that it led to: what a journal stores in one piece.

    Attributes:
        seq: the number of the fact's event; its decisions follow it.
        at: active seconds since the run began.
        fact: what happened.
        decisions: what the fold said, in order.
    """

    seq: int
    at: float
    fact: Fact
    decisions: tuple[Decision, ...]

    def events(self, run: str) -> Iterator[Event]:
        """Flatten into events, the fact first."""
        yield Event(run, self.seq, self.at, self.fact)
        for offset, decision in enumerate(self.decisions, start=1):
            yield Event(run, self.seq + offset, self.at, decision)


@record
class Event:
    """One thing that happened in a run.

    Attributes:
        run: the run's id.
        seq: its number in the run, from 0, without gaps.
        at: active seconds since the run began.
        body: the fact or decision itself.
    """

    run: str
    seq: int
    at: float
    body: Body

    @property
    def kind(self) -> str:
        """The name of what happened, such as "node_started"."""
        return kind_of(cast("Hashable", type(self.body)))

    @property
    def path(self) -> Path:
        """Where it happened; the root is ()."""
        path: Path = getattr(self.body, "path", ())
        return path

    @property
    def visit(self) -> int:
        """The visit that it belongs to, from 1."""
        return self.path[-1].visit if self.path else 1

    def __str__(self) -> str:
        """Show one line for a person."""
        rest = ", ".join(
            f"{item.name}={_short(getattr(self.body, item.name))}"
            for item in fields(self.body)
            if item.name != "path" and getattr(self.body, item.name) is not None
        )
        line = f"{self.seq:>4} {self.at:8.3f}  {self.kind:<16} {path_text(self.path)}  {rest}".rstrip()
        return line.encode("utf-8", "backslashreplace").decode()  # a model may write what no terminal can show


def _short(value: object) -> str:
    try:
        text = str(veiled(value))
    except Exception:  # noqa: BLE001 - it is the user's code
        text = value_text(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - a width for a person's eye


@functools.lru_cache(maxsize=256)
def kind_of(body: Hashable) -> str:
    """Return the name of a kind of event: its class's name in snake case.

    >>> kind_of(NodeStarted)
    'node_started'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", getattr(body, "__name__", "")).lower()


@record
class Row:
    """One record as it is stored: a fact with its decisions, in one piece.

    Attributes:
        seq: the number of the fact's event; its decisions follow it.
        at: active seconds since the run began.
        fact: the fact as JSON.
        decisions: the decisions as a JSON array, and behind them the checksum of the row.
    """

    seq: int
    at: float
    fact: str
    decisions: str
