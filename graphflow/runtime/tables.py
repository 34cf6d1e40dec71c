"""The private tables of the fold. They are changed in place, by the fold alone; nobody else holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast

from pydantic import BaseModel

from graphflow.events import EdgeName, Fact, Failure
from graphflow.graphs.compiled import Compiled, Edge, ForkOut, Key, MapOut, Region, Station
from graphflow.model.budget import Budget
from graphflow.model.context import Context, ContextRules
from graphflow.model.contract import Brief, Reason, Report
from graphflow.model.ids import Path
from graphflow.model.state import Message
from graphflow.model.thread import Thread, ThreadMessage, ToolCall
from graphflow.nodes.agent import Agent, Deny
from graphflow.nodes.client import ModelClient
from graphflow.nodes.tools import AskUser, Tool
from graphflow.runtime.asking import Manner
from graphflow.runtime.commands import CallModel, CallTool, Command
from graphflow.runtime.ledger import Amounts, Meter

Inbox = tuple[Message, ...]


_table = cast("Callable[[], dict[Any, Any]]", dict)  # to call `dict[K, V]` itself takes ten times as long
_list = cast("Callable[[], list[Any]]", list)
_set = cast("Callable[[], set[Any]]", set)


class Written(NamedTuple):
    """A validated update and who wrote it."""

    fields: dict[str, Any]
    writer: Path


class Trouble(NamedTuple):
    """A failure on its way outward.

    Attributes:
        reason: what is reported.
        failure: the exception as a fact, for `on_error`.
        timed_out: whether the visit ends as timed out.
    """

    reason: Reason
    failure: Failure
    timed_out: bool = False

    def saying(self, text: str) -> Trouble:
        """Return the same failure whose reason has another text."""
        return self._replace(reason=self.reason.model_copy(update={"text": text}))


class Seen(NamedTuple):
    """A thread as it stood at a moment: it only grows, so its length is enough."""

    items: list[ThreadMessage]
    length: int
    active: str | None

    def up_to_now(self) -> Thread:
        """Return what had been said."""
        return tuple(self.items[: self.length])


@dataclass(slots=True, eq=False)
class ThreadLog:
    """The thread of a frame, or of a branch in it.

    Attributes:
        items: what was said, in order; it only grows.
        ids: the ids of all calls, so that each is unique.
        finals: what each agent answered last, so that it is not shown twice to who follows.
        user: what the user said last, or what the frame was asked; None before an agent needed it.
        user_at: the position of that message.
        noted: the id of the call that made the last handoff, if an agent made it.
        active: the agent that spoke last, or the graph that was handed over to.
        begun: with how many messages it began, in a graph inside a graph: with what crossed to that.
        told: whether what crossed to it is all that the user has said there.
    """

    items: list[ThreadMessage] = field(default_factory=_list)
    ids: set[str] = field(default_factory=_set)
    finals: dict[str, Any] = field(default_factory=_table)
    user: ThreadMessage | None = None
    user_at: int = -1
    noted: str = ""
    active: str | None = None
    watch: Any = None  # what the detectors of the graph have seen in it
    begun: int = 0
    told: bool = False

    def branch(self) -> ThreadLog:
        """Return the thread of a branch: what it says, and what is seen in it, stays in it."""
        return ThreadLog(
            list(self.items), set(self.ids), dict(self.finals), self.user, self.user_at, self.noted, self.active,
            None if self.watch is None else self.watch.branch(), self.begun, self.told,
        )  # fmt: skip

    def seen(self) -> Seen:
        """Return the thread as it stands."""
        return Seen(self.items, len(self.items), self.active)


@dataclass(slots=True, eq=False)
class Counters:
    """What bounds are counted on: one for each activation of a graph and for each lane of a map."""

    hops: dict[Edge, int] = field(default_factory=_table)
    visits: dict[str, int] | None = None  # of nodes that have a bound on them
    total: int = 0
    handoffs: int = 0
    trail: list[str] | None = None  # who handed over to whom, for the reason of a bound


class Standing:
    """Where a visit is in its life.

    Texts and no enum: on Python 3.11, to look up a member of one takes ten times as long, and each hop does so often.
    """

    ASKED: Final = "waits for the hook"
    UNFUNDED: Final = "waits for a node run"
    QUEUED: Final = "waits for a slot"
    RUNNING: Final = "its body runs"
    SUSPENDED: Final = "waits for reports"
    NESTED: Final = "a graph inside it runs"
    PAUSED: Final = "waits for a person"
    ENDED: Final = "has ended"


@dataclass(slots=True, eq=False)
class Domain:
    """Where tokens may merge: a fork's branches together, or one lane of a map.

    Attributes:
        region: the region of the fork or map.
        reach: for each waiting place, how many tokens that do not wait there can still reach it.
        waiting: the tokens that wait, by place.
    """

    region: Region
    reach: dict[str, int] = field(default_factory=_table)
    waiting: dict[str, list[Token]] = field(default_factory=_table)


class Rights(NamedTuple):
    """What the agents of a frame may do, by those above it.

    Attributes:
        allowed: the tools that they may use, or None for all.
        granted: those of them that an edge grants.
        denies: the rules that deny calls of tools.
    """

    allowed: frozenset[str] | None = None
    granted: frozenset[str] = frozenset()
    denies: tuple[Deny, ...] = ()


NO_LIMIT: Final = Rights()


@dataclass(slots=True, eq=False)
class Frame:
    """A delegation, a nested graph's activation, or the root."""

    path: Path
    tables: Compiled
    rules: ContextRules
    meter: Meter
    counters: Counters
    depth: int
    depth_left: int | None
    edge: EdgeName | None = None
    owner: Visit | None = None
    call: int = -1  # the position in the owner's batch; -1 for a nested graph and the root
    is_node: bool = False  # a callee node of its caller's graph: no next statement is live in it
    opened: Path = ()  # for a call, the path under which it is said to open and close
    grant: Budget | None = None  # of a split account
    rights: Rights = NO_LIMIT  # what those above it leave to its agents
    visits: dict[Any, int] = field(default_factory=_table)
    earlier: dict[Any, int] | None = None  # what of `visits` an earlier attempt has made, and accounted for
    token: Token | None = None
    detached: list[Scope] = field(default_factory=_list)  # scopes whose join has run while losers go on
    ending: Callable[[], None] | None = None
    escalated: bool = False
    offers: tuple[Report, ...] = ()  # what a callee that a bound stops can still report
    closing: Closing | None = None
    set_aside: bool = False
    closed: bool = False
    spent: list[Any] | None = None  # what its effects and those of its frames used, for the result
    limit: float | None = None  # the call's `timeout=`
    timer: int | None = None
    due: float = 0.0  # when the timer fires
    left: float | None = None  # what is left of the timeout while the frame only waits for answers
    deadline: int | None = None  # the timer of its graph's `Budget(seconds=)`
    thread: ThreadLog | None = None  # made when an agent first speaks in it


@dataclass(slots=True, eq=False)
class Token:
    """Control: where it stands, and what it has done since its fork."""

    frame: Frame
    scope: Scope | None
    domain: Domain | None
    counters: Counters
    lanes: tuple[int, ...]
    branch: int
    at: Key
    context: Any
    updates: list[Written] | None
    edge: Edge | None = None
    inbox: Inbox = ()
    visit: Visit | None = None
    inner: Scope | None = None  # the scope that this token waits for
    thread: ThreadLog | None = None  # a branch's own
    note: str = ""  # what the detectors want the next agent to know


@dataclass(slots=True, eq=False)
class Scope:
    """The branches of a fork, or the lanes of a map, until they meet."""

    number: int
    path: Path
    token: Token
    out: ForkOut | MapOut
    base: Context
    declared: int
    live: dict[int, Token] = field(default_factory=_table)
    arrived: dict[int, Token] = field(default_factory=_table)
    last: dict[int, tuple[str, ...]] = field(default_factory=_table)  # of each branch that died, its last nodes
    failed: dict[int, tuple[str, Trouble]] = field(default_factory=_table)
    fired: bool = False
    closing: Closing | None = None
    timer: int | None = None
    outer: Scope | None = None
    around: int = 0  # the task group around its own


@dataclass(slots=True, eq=False)
class CallState:
    """One call of a batch: what is asked of whom, and what came of it."""

    to: str
    brief: Brief
    id: str  # in its batch, or ""
    edge: Edge | None
    needs: tuple[int, ...] = ()
    frame: Frame | None = None
    report: Any = None
    updates: Sequence[Written] = ()
    equal: bool = False  # whether it gets an equal share of the budget
    done: bool = False
    started: bool = False
    hop: int = 0  # which traversal of its edge it is


@dataclass(slots=True, eq=False)
class Visit:
    """One entry of a node."""

    token: Token
    station: Station
    path: Path
    edge: Edge
    inbox: Inbox
    turn: int = 0
    attempt: int = 0
    answers: int = 0
    standing: str = Standing.QUEUED
    started: bool = False
    fresh: bool = True  # whether it has asked for nothing, and is in its first turn and attempt
    deadline: float | None = None
    timer: int | None = None
    timed_out: bool = False
    closing: Closing | None = None
    batch: tuple[CallState, ...] = ()
    undone: int = 0  # how many calls of the batch have not reported
    needy: bool = False  # whether some call of the batch needs another
    frame: Frame | None = None
    inner_visits: dict[Any, int] | None = None  # kept over a nested graph's attempts, so that paths stay unique
    called: dict[tuple[int, int], dict[Any, int]] | None = None  # the same for its calls, by turn and position
    slot: bool = False  # whether it holds one of the run's slots
    naps: dict[str, int] | None = None  # the timers of its sleeps by key, this turn
    due: list[Command] | None = None  # what its body may go on with once it holds a slot
    flying: dict[str, tuple[Any, ...]] = field(default_factory=_table)  # effects in flight: what each has reserved
    used: list[Any] | None = None  # of `costs=`, this attempt
    state: Any = None  # what its body, or the hook, was given this turn
    talk: Talk | None = None  # an agent's
    tables: tuple[list[Any], list[Any]] | None = None  # where its spending is counted, once it has spent something


@dataclass(slots=True, eq=False)
class Asked:
    """An open question to a person."""

    visit: Visit
    text: str
    schema: Any
    position: int = -1  # of the call that asks, for an agent


@dataclass(slots=True, eq=False)
class Wish:
    """One call of a model's turn, until it has its result.

    Attributes:
        call: what the model asked for, with an id of its own.
        kind: what becomes of it; "none" for one that is answered at once, as an unknown name.
        tool: the tool, for "tool" and "person".
        arguments: what it is called with.
        edge: the edge, for "ask" and "transfer".
        result: what the model is told, once it is known.
        failed: whether the result says that it failed.
        under_way: whether it runs, or waits for something to run.
        attempt: how often its tool has been tried again.
        failure: what the last of these attempts failed with.
        timer: the timer of its `timeout=`.
        due: when its `timeout=` is over.
        late: whether it was stopped because of that.
        asked: whether a person was asked about it.
        approved: whether a person has let it run.
        source: who the result is from, for a report.
        note: what the detectors want the agent to know.
        key: how they tell it from other steps.
        position: its place among the calls of its turn.
        written: the arguments as JSON, to be read anew for each attempt.
        evidence: what it has brought, for the detectors.
        command: what its tool was last called with.
    """

    call: ToolCall
    kind: Literal["tool", "person", "ask", "transfer", "none"]
    arguments: dict[str, Any]
    tool: Tool | AskUser | None = None
    edge: Edge | None = None
    result: str | None = None
    failed: bool = False
    under_way: bool = False
    attempt: int = 0
    failure: Failure | None = None
    timer: int | None = None
    due: float = 0.0
    late: bool = False
    asked: bool = False
    approved: bool = False
    source: str = ""
    note: str = ""
    key: tuple[str, ...] = ()
    position: int = 0
    written: str = ""
    evidence: str = ""
    command: CallTool | None = None

    @property
    def needs_person(self) -> bool:
        """Whether a person must say something before it can be done."""
        return self.kind == "person" or (isinstance(self.tool, Tool) and self.tool.approval and not self.approved)


@dataclass(slots=True, eq=False)
class Talk:
    """An agent's visit: what it sees, what it has said, and the turn that it is in.

    Attributes:
        source: the text of its path.
        log: the thread that it speaks in.
        system: its system text.
        messages: what of the thread it saw when it was entered, what arrived, and what it has said in settled turns.
        agent: who speaks.
        client: its model that is asked now.
        manner: how it is asked: what it is offered, what its answer must be.
        owed: the type of the report that it owes a caller, or None.
        size: how long its next request is, in characters and a few for each message.
        turn_said: what the present turn has said so far.
        wishes: the calls of the present turn, in order.
        has_tools: whether one of them runs a tool.
        unknown: how many names in a row were wrong.
        unknown_before: how many there were when the present turn began.
        tools_run: how many tools this visit has run.
        used: how often each tool was called in it.
        worked: for each tool whether any call of it has worked.
        repairs: how many answers were sent back.
        finding: what it said last, to offer if a bound stops it.
        reports: the reports of its team that are done, to offer too.
        asked: what its model was last asked.
        model: the place of `client` among its agent's models, the first of which is its own.
        moved: how many attempts there were before the present model was asked.
    """

    source: str
    log: ThreadLog
    system: str
    messages: Thread
    agent: Agent
    client: ModelClient
    manner: Manner
    owed: type[BaseModel] | None
    size: int
    turn_said: Thread = ()
    wishes: Sequence[Wish] = ()
    has_tools: bool = False
    unknown: int = 0
    unknown_before: int = 0
    tools_run: int = 0
    used: dict[str, int] = field(default_factory=_table)
    worked: dict[str, bool] = field(default_factory=_table)
    repairs: int = 0
    finding: str = ""
    reports: tuple[Report, ...] = ()
    asked: CallModel | None = None
    model: int = 0
    moved: int = 0


class Waiting(NamedTuple):
    """Somebody who waits for what others may give back.

    Attributes:
        visit: who waits.
        attempt: tries again and tells whether the wait is over; its argument says that this is the last try.
        wanted: what for.
        key: the effect's key, or "" for a node run.
    """

    visit: Visit
    attempt: Callable[[bool], bool]
    wanted: Amounts
    key: str


class Timer(NamedTuple):
    """A timer that is set.

    Attributes:
        at: when, in active seconds.
        limit: whether it ends something.
        fire: what is done then.
    """

    at: float
    limit: bool
    fire: Callable[[], None]


@dataclass(slots=True, eq=False)
class Halt:
    """A run that a bound has stopped: everything in it stands still and can go on, given more.

    Attributes:
        reason: which bound.
        offers: what was found until then.
        again: does once more what was refused, None where nothing was.
        awaited: the bodies (by path) and the calls of agents (by path and key) that are still being cancelled.
        held: those of them that were cut off.
        late: what else has happened meanwhile.
        begun: whether what ran has been told to stop.
    """

    reason: Reason
    offers: tuple[Report, ...]
    again: Callable[[], None] | None
    awaited: set[tuple[Path, str]] = field(default_factory=set[tuple[Path, str]])
    held: list[tuple[Path, str]] = field(default_factory=_list)
    late: list[Fact] = field(default_factory=_list)
    begun: bool = False


@dataclass(slots=True, eq=False)
class Closing:
    """A part of the run that is being cancelled: what is awaited, and what follows.

    Attributes:
        then: what follows when the last body has ended.
        outstanding: how many bodies are awaited.
        after: ends the visits and closes the scopes and frames inside, inside-out; a wider cancellation that comes
            meanwhile makes `then` void, not this.
    """

    then: Callable[[], None]
    outstanding: int = 0
    after: list[Callable[[], None]] = field(default_factory=_list)


def alive(token: Token) -> bool:
    """Tell whether a token has not been cancelled since something was put off for it."""
    scope = token.scope
    if scope is not None and (scope.closing is not None or scope.live.get(token.branch) is not token):
        return False
    return not token.frame.closed
