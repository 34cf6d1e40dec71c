"""The fold's tables and the calls between its parts.

`Fold` (in `advance`) is one class in several files, one concern each: `visits` (a node's life), `walk` (edges, waiting
places), `scopes` (forks, maps, joins), `frames` and `calls` (nested graphs, delegations), `failures` (failures, bounds,
cancellation, the end) and `clockwork` (effects, timers, slots). This module holds what they share, and names the calls
that cross from one to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from graphflow.errors import InternalError, StrayCancellation
from graphflow.events import (
    SECRETIVE,
    CancelRequested,
    Decision,
    EffectFinished,
    Fact,
    Failure,
    Refused,
    RunStatus,
    TimerPurpose,
    TimerSet,
)
from graphflow.graphs.blaming import blamed
from graphflow.graphs.compiled import Edge, Out
from graphflow.graphs.pricing import Prices
from graphflow.model.budget import Budget
from graphflow.model.context import ContextRules
from graphflow.model.contract import Code, Reason, Report
from graphflow.model.ids import Path, Segment, path_text
from graphflow.model.state import Left, State, open_state
from graphflow.model.telling import error_text
from graphflow.nodes.client import Price
from graphflow.runtime.commands import Command, SetTimer
from graphflow.runtime.ledger import ONE_RUN, RUNS, Amount, Amounts, Meter, Snapshot, least_free
from graphflow.runtime.tables import (
    Asked,
    Closing,
    Counters,
    Frame,
    Halt,
    Inbox,
    Scope,
    ThreadLog,
    Timer,
    Token,
    Trouble,
    Visit,
    Waiting,
    Wish,
    Written,
)


class Core:
    """Tables, the two lists that `advance` returns, and the calls between the parts."""

    __slots__ = (
        "agenda", "at", "busy", "cancelling", "commands", "deadline", "deadline_timer", "decisions", "edition", "ended",
        "final", "halted", "hooked", "max_parallel", "next_scope", "next_timer", "output", "partial", "prices",
        "questions", "queue", "queues", "refusals", "root", "scopes", "seconds", "slots", "spent_by_edge",
        "spent_by_node", "stored", "timed_frames", "timers", "troubles", "unfunded", "views", "visits",
    )  # fmt: skip

    def __init__(self) -> None:
        """Begin with nothing."""
        self.decisions: list[Decision] = []
        self.commands: list[Command] = []
        self.agenda: deque[Callable[[], None]] = deque()  # what follows at once; a list, so that chains do not nest
        self.at = 0.0
        self.root: Frame | None = None
        self.visits: dict[Path, Visit] = {}
        self.questions: dict[str, Asked] = {}
        self.scopes: dict[int, Scope] = {}
        self.next_scope = 1
        self.timers: dict[int, Timer] = {}
        self.next_timer = 0
        self.seconds: float | None = None  # of the root
        self.deadline = float("inf")
        self.deadline_timer: int | None = None
        self.max_parallel: int | None = None
        self.hooked = False
        self.edition: int = 0  # by what the run is decided
        self.stored = False  # whether anybody will draw its decisions again
        self.prices: dict[tuple[int, str, int], Price] | None = None  # by an agent's graph, its name, and the model
        self.views = False  # whether more than what arrives can cross to a graph in the graph
        self.queues = True  # whether a visit may have to wait for a hook or a slot
        self.busy: int = 0  # bodies, hooks and waits that will bring a fact of their own accord
        self.slots: int = 0
        self.queue: deque[tuple[Visit, int, int]] = deque()
        self.unfunded: deque[Waiting] = deque()
        self.timed_frames: list[Frame] = []
        self.partial = False
        self.troubles: list[Reason] = []
        self.refusals: list[Reason] = []
        self.cancelling = False  # whether somebody has cancelled the run
        self.ended: Any = None  # the RunEnded decision
        self.halted: Halt | None = None  # while a bound holds everything up, and afterwards
        self.output: Any = None
        self.final: Token | None = None  # the root's token, once the root has closed
        self.spent_by_node: dict[str, list[Amount]] = {}
        self.spent_by_edge: dict[str, list[Amount]] = {}

    # --- what every part uses ---

    def refuse(self, path: Path, code: Code, limit: float | None, wanted: str) -> Reason:
        """Say that a bound refuses something; return the reason."""
        limit = None if limit is None else float(limit)
        self.decisions.append(Refused(path, code, limit, wanted))
        text = f"the bound {code} refuses {wanted}" + (f": its limit is {limit:g}." if limit is not None else ".")
        reason = Reason(code=code, text=text, path=path_text(path), limit=limit)
        self.refusals.append(reason)
        return reason

    def trouble(self, code: Code, error: Exception, path: Path, *, limit: float | None = None) -> Trouble:
        """Make a failure of an error that the library found."""
        blame, whole = self.edition > 0, self.edition < SECRETIVE
        failure = failure_of(error, code, limit, blame=blame, whole=whole)
        text = failure.text if blame and blamed(error) else str(error) if whole else error_text(error)
        reason = Reason(code=code, text=text, path=path_text(path), error_type=type(error).__name__, limit=limit)
        return Trouble(reason, failure, timed_out=code == "timeout")

    def stray(self, visit: Visit) -> Trouble:
        """Make a failure of a cancellation that nobody asked for."""
        error = StrayCancellation(f"{path_text(visit.path)!r} was cancelled, but nobody had asked for that.")
        return self.trouble("stray_cancellation", error, visit.path)

    def bound_trouble(self, reason: Reason) -> Trouble:
        """Make a failure of a bound that was hit."""
        lineage = ("graphflow.errors.BoundHit", "graphflow.errors.GraphflowError", "builtins.Exception")
        return Trouble(reason, Failure("graphflow.errors.BoundHit", reason.text, lineage, reason.code, reason.limit))

    def state(self, token: Token, inbox: Inbox, path: Path, turn: int = 0, context: Any = None) -> State[Any]:
        """Return what a node standing there sees."""
        frame, counters = token.frame, token.counters
        meter = frame.meter
        if meter.parent is not None:
            snapshot = meter.snapshot()
        else:  # as that says for a root, two times at every hop
            snapshot = ((meter, meter.spent[RUNS], meter.kept or meter.keep()),) if meter.bounded else ()
        log = token.thread or (frame.thread if token.scope is None else thread_above(token))
        seen = None if log is None else log.seen()
        made = open_state()
        made.context = token.context if context is None else context
        made.inbox, made.path, made.turn, made.depth = inbox, path, turn, frame.depth
        made._more = (seen, _left, snapshot, frame, counters.total, counters.handoffs)  # noqa: SLF001 - it is made here
        made.__class__ = State
        return made  # type: ignore[no-any-return]  # now it is one

    def set_timer(self, at: float, path: Path, purpose: TimerPurpose, fire: Callable[[], None]) -> int:
        """Have something done at a time, in active seconds; return the timer's number."""
        timer = self.next_timer
        self.next_timer += 1
        limit = purpose != "sleep"
        self.timers[timer] = Timer(at, limit, fire)
        self.decisions.append(TimerSet(timer, at, path, purpose))
        self.commands.append(SetTimer(timer, at, limit))
        return timer

    def set_deadline(self, at: float) -> None:
        """Have the run end at a time, in active seconds."""
        self.drop_timer(self.deadline_timer)
        self.deadline = at
        self.deadline_timer = self.set_timer(at, (), "deadline", self.run_overdue)

    @property
    def context(self) -> Any:
        """The root's context as it stands."""
        token = self.final or (None if self.root is None else self.root.token)
        return None if token is None else token.context

    # --- calls between the parts ---

    def take_in(self, fact: Fact) -> None:
        """Do what one fact means (advance)."""
        raise NotImplementedError

    def run_overdue(self) -> None:
        """End the run whose seconds are over (failures)."""
        raise NotImplementedError

    def finish(self, status: RunStatus, reason: Reason | None) -> None:
        """End the run (failures)."""
        raise NotImplementedError

    def cancel_requested(self, fact: CancelRequested) -> None:
        """Cancel the whole run (failures)."""
        raise NotImplementedError

    def call_again(self, visit: Visit, key: str, *, fresh: bool) -> None:
        """Make a call of an agent once more (wishes)."""
        raise NotImplementedError

    def call_is_late(self, visit: Visit, key: str) -> bool:
        """Tell whether a call of an agent was being stopped for its timeout (wishes)."""
        raise NotImplementedError

    def leave(self, token: Token, out: Out | None, name: str | None, inbox: Inbox) -> None:
        """Move a token on over a next statement (walk)."""
        raise NotImplementedError

    def take(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge, if its bounds allow (walk)."""
        raise NotImplementedError

    def hop_refused(self, token: Token, edge: Edge) -> Reason | None:
        """Return the bound that refuses to let a token pass over an edge (walk)."""
        raise NotImplementedError

    def hop(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge that nothing refuses (walk)."""
        raise NotImplementedError

    def move(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge (walk)."""
        raise NotImplementedError

    def die(self, token: Token, last: tuple[str, ...]) -> None:
        """End a token that has nowhere to go (scopes)."""
        raise NotImplementedError

    def drop(self, token: Token) -> None:
        """Take a token out of its scope's counts (scopes)."""
        raise NotImplementedError

    def settle_scope(self, scope: Scope) -> None:
        """Look whether a scope's join can run, or never will (scopes)."""
        raise NotImplementedError

    def reach_end(self, token: Token, inbox: Inbox) -> None:
        """A token has reached END (frames)."""
        raise NotImplementedError

    def finish_node_frame(self, token: Token, report: Any, *, counts: bool = True) -> None:
        """A callee node's frame ends with a report (frames)."""
        raise NotImplementedError

    def open_nested(self, visit: Visit) -> None:
        """Open the frame of a graph that a token entered (frames)."""
        raise NotImplementedError

    def delegate(self, visit: Visit, outcome: Any, context: Any, written: tuple[Written, ...]) -> None:
        """Suspend a visit on a batch of calls (calls)."""
        raise NotImplementedError

    def call_done(self, visit: Visit, position: int, report: Any, *, counts: bool = True) -> None:
        """A call of a batch has its report (calls)."""
        raise NotImplementedError

    def checked_report(self, frame: Frame, value: Any) -> Any:
        """Return a value as the report that a callee frame's edge asks for (frames)."""
        raise NotImplementedError

    def close_frame(self, frame: Frame, report: Any = None) -> None:
        """Settle a frame's accounts and say that it has closed (frames)."""
        raise NotImplementedError

    def walks_straight_on(self, token: Token, edge: Edge, inbox: Inbox, ended: Visit | None = None) -> bool:
        """Move a token over an edge and start the body that it leads to, if nothing can hold it up (hops)."""
        raise NotImplementedError

    def update_failed(
        self, visit: Visit, error: Exception, rules: ContextRules, deltas: Sequence[Mapping[str, Any]]
    ) -> None:
        """Let an attempt fail whose update does not fit (visits)."""
        raise NotImplementedError

    def let_go(self, visit: Visit) -> None:
        """Await the end of a visit's body no more, and take its slot back (clockwork)."""
        raise NotImplementedError

    def lacks_a_run(self, visit: Visit, refusing: Meter) -> None:
        """Let a visit that cannot pay its node run wait, or refuse it (visits)."""
        raise NotImplementedError

    def enter_visit(self, token: Token, name: str, edge: Edge, inbox: Inbox) -> None:
        """Begin a visit of a node (visits)."""
        raise NotImplementedError

    def complete(self, visit: Visit, output: Any) -> None:
        """End a visit well, with its output (visits)."""
        raise NotImplementedError

    def reenter(self, visit: Visit, inbox: Inbox) -> None:
        """Begin the next turn of a suspended visit (visits)."""
        raise NotImplementedError

    def begin_attempt(self, visit: Visit) -> None:
        """Do what this kind of node does when an attempt begins (visits)."""
        raise NotImplementedError

    def priced(self, prices: Prices | None) -> None:
        """Go by other prices from now on (advance)."""
        raise NotImplementedError

    def price_of(self, visit: Visit) -> Price | None:
        """Return what the model of an agent's visit costs (clockwork)."""
        raise NotImplementedError

    def attempt_failed(self, visit: Visit, trouble: Trouble, *, final: bool = False) -> None:
        """Retry a visit, or let it fail (attempts)."""
        raise NotImplementedError

    def stop_at_bound(
        self, visit: Visit, reason: Reason, offers: tuple[Report, ...], again: Callable[[], None] | None
    ) -> None:
        """End a visit that a bound has stopped, with what it can offer (visits)."""
        raise NotImplementedError

    def agent_begins(self, visit: Visit) -> None:
        """Begin an attempt of an agent (agents)."""
        raise NotImplementedError

    def agent_turn(self, visit: Visit, turn: int) -> None:
        """Ask an agent's model in a turn, now that the visit holds a slot (agents)."""
        raise NotImplementedError

    def agent_effect(self, visit: Visit, fact: EffectFinished) -> None:
        """Go on with what a model or a tool brought (agents)."""
        raise NotImplementedError

    def agent_answered(self, visit: Visit, position: int, value: object) -> None:
        """Go on with a person's answer to a call of a turn (agents)."""
        raise NotImplementedError

    def agent_reports(self, visit: Visit) -> None:
        """Give an agent's model the reports of its team (agents)."""
        raise NotImplementedError

    def agent_bound(self, visit: Visit, reason: Reason, again: Callable[[], None] | None = None) -> None:
        """Stop an agent at a bound, with what it can offer (agents)."""
        raise NotImplementedError

    def agent_overdue(self, visit: Visit) -> None:
        """Let an agent's attempt fail because its turn took too long (agents)."""
        raise NotImplementedError

    def settle_turn(self, visit: Visit) -> None:
        """See what is left to do in an agent's turn (agents)."""
        raise NotImplementedError

    def break_off(self, visit: Visit, trouble: Trouble) -> None:
        """Cancel all that an agent has under way, then let its attempt fail (agents)."""
        raise NotImplementedError

    def cancel_agent(self, visit: Visit, closing: Closing) -> None:
        """Cancel an agent with all that it has under way (agents)."""
        raise NotImplementedError

    def ask_team(self, visit: Visit, wishes: Sequence[Wish]) -> None:
        """Let an agent's delegations of one turn start (calls)."""
        raise NotImplementedError

    def contract_of(self, frame: Frame) -> type[BaseModel] | None:
        """Return the report that a callee owes its caller (frames)."""
        raise NotImplementedError

    def new_evidence(self, token: Token, key: tuple[str, ...], text: str) -> None:
        """Note what a step has brought, for the detectors (watching)."""
        raise NotImplementedError

    def step_taken(self, token: Token, path: Path, key: tuple[str, ...], what: str) -> Any:
        """Note a step for the detectors (watching)."""
        raise NotImplementedError

    def node_entered(self, token: Token, name: str, path: Path, inbox: Inbox) -> Any:
        """Note that a node is entered, for the detectors (watching)."""
        raise NotImplementedError

    def handing_off(self, token: Token, path: Path, target: str) -> Any:
        """Note a handoff for the detectors (watching)."""
        raise NotImplementedError

    def forget(self, visit: Visit) -> None:
        """Forget a visit (visits)."""
        raise NotImplementedError

    def end_visit(self, visit: Visit, status: Any, reason: Reason | None = None) -> None:
        """Say that a visit has ended (visits)."""
        raise NotImplementedError

    def fail(self, token: Token, trouble: Trouble) -> None:
        """Pass a failure outward from a token (failures)."""
        raise NotImplementedError

    def fail_frame(self, frame: Frame, trouble: Trouble) -> None:
        """Pass a failure outward from a frame (failures)."""
        raise NotImplementedError

    def hit_bound(self, token: Token, reason: Reason, again: Callable[[], None] | None = None) -> None:
        """A bound stops a token (failures)."""
        raise NotImplementedError

    def halt(self, reason: Reason, offers: tuple[Report, ...], again: Callable[[], None] | None) -> None:
        """Let everything stand still at a bound that ends the run (halting)."""
        raise NotImplementedError

    def exhausts(self, token: Token) -> bool:
        """Tell whether a bound that stops a token ends the whole run (failures)."""
        raise NotImplementedError

    def cancel_scope(self, scope: Scope, closing: Closing) -> None:
        """Cancel what is left of a scope (failures)."""
        raise NotImplementedError

    def cancel_frame(self, frame: Frame, closing: Closing) -> None:
        """Cancel what is left of a frame (failures)."""
        raise NotImplementedError

    def cancel_child(self, frame: Frame, closing: Closing) -> None:
        """Cancel a frame that a visit waits for (failures)."""
        raise NotImplementedError

    def wait_for(self, inner: Closing, outer: Closing) -> None:
        """Let a wider cancellation wait for one that is under way (failures)."""
        raise NotImplementedError

    def end_cancelled(self, visit: Visit) -> None:
        """End a visit that was cancelled (failures)."""
        raise NotImplementedError

    def proceed(self, closing: Closing) -> None:
        """Go on if nothing is awaited any more (failures)."""
        raise NotImplementedError

    def body_gone(self, visit: Visit) -> None:
        """A body that was being cancelled has ended (failures)."""
        raise NotImplementedError

    def no_route(self, frame: Frame, last: tuple[str, ...]) -> None:
        """Every token of a frame has ended before END (failures)."""
        raise NotImplementedError

    def request_slot(self, visit: Visit) -> None:
        """Start a visit's body as soon as a slot is free (clockwork)."""
        raise NotImplementedError

    def with_slot(self, visit: Visit, command: Command) -> None:
        """Let a visit go on as soon as it holds a slot (clockwork)."""
        raise NotImplementedError

    def time_turn(self, visit: Visit) -> None:
        """Set the time that one turn of a node may take (clockwork)."""
        raise NotImplementedError

    def is_behind(self, visit: Visit, wanted: Amounts) -> bool:
        """Tell whether others are in line for what a visit wants (funding)."""
        raise NotImplementedError

    def start_effect(self, visit: Visit, key: str, name: str, wanted: Amounts, cost: Budget | None) -> None:
        """Pay for an effect and say that it has started (clockwork)."""
        raise NotImplementedError

    def start_model_call(self, visit: Visit, tokens: int, usd: Amount) -> None:
        """Pay for a call of a model and say that it has started (clockwork)."""
        raise NotImplementedError

    def settle_unused(self, visit: Visit, key: str) -> None:
        """Settle an effect that was allowed and has not begun (clockwork)."""
        raise NotImplementedError

    def refused_by(self, visit: Visit, meter: Meter, dimension: int, wish: str) -> Reason:
        """Say that a meter refuses something (clockwork)."""
        raise NotImplementedError

    def free_slot(self, visit: Visit) -> None:
        """Take a visit's slot back (clockwork)."""
        raise NotImplementedError

    def drop_timer(self, timer: int | None) -> None:
        """Forget a timer (clockwork)."""
        raise NotImplementedError

    def drop_naps(self, visit: Visit) -> None:
        """Forget the sleeps that an attempt left behind (clockwork)."""
        raise NotImplementedError

    def drop_effects(self, visit: Visit) -> None:
        """Settle the effects that an attempt left in flight (clockwork)."""
        raise NotImplementedError

    def wait_for_funds(
        self, visit: Visit, attempt: Callable[[bool], bool], wanted: Amounts = ONE_RUN, key: str = ""
    ) -> bool:
        """Wait until something in flight settles, if that could help (funding)."""
        raise NotImplementedError

    def may_be_funded(self, visit: Visit, wanted: Amounts = ONE_RUN) -> bool:
        """Tell whether what is lacking now may come back from what is in flight (funding)."""
        raise NotImplementedError

    def route(self, token: Token, out: Any, inbox: Inbox, path: Path, context: Any) -> Any:
        """Evaluate the conditions of a statement (walk)."""
        raise NotImplementedError

    def route_trouble(self, error: Exception, out: Any, name: str | None, path: Path) -> Trouble:
        """Make a failure of a condition that raised (walk)."""
        raise NotImplementedError

    def follow(self, token: Token, out: Any, route: Any, inbox: Inbox, path: Path) -> None:
        """Move a token on over the edges that were found (walk)."""
        raise NotImplementedError

    def fail_at(self, token: Token, name: str, trouble: Trouble) -> None:
        """Let a node be blamed for a failure before any visit of it (attempts)."""
        raise NotImplementedError

    def frame_overdue(self, frame: Frame, seconds: float) -> None:
        """End a frame whose seconds are over (failures)."""
        raise NotImplementedError

    def turns_left(self, visit: Visit) -> bool:
        """Tell whether a visit may have a further turn (visits)."""
        raise NotImplementedError

    def turn_limit(self, visit: Visit) -> Any:
        """Return the failure of one turn too many (visits)."""
        raise NotImplementedError

    def call_overdue(self, frame: Frame) -> None:
        """End a call that took too long (failures)."""
        raise NotImplementedError

    def combine(self, token: Token, base: Any, parts: Any, place: Any) -> Any:
        """Apply the updates of several branches (walk)."""
        raise NotImplementedError

    def finish_run(self, output: Any, context: Any) -> None:
        """End the run with its output (failures)."""
        raise NotImplementedError

    def account(self, frame: Frame) -> None:
        """Add a closed frame's spending to the result's tables (failures)."""
        raise NotImplementedError

    def scope_closed(self, scope: Scope) -> None:
        """Say that a scope has closed (scopes)."""
        raise NotImplementedError


RECORDED: Final = "_graphflow_recorded"
"""The attribute of an exception that stands for a recorded failure."""


def failure_of(
    error: BaseException, code: str = "failed", limit: float | None = None, *, blame: bool = True, whole: bool = False
) -> Failure:
    """Return an exception as a fact, with who raised it; one that stands for a recorded failure as that failure."""
    recorded: Failure | None = getattr(error, RECORDED, None)
    if recorded is not None and code == "failed":
        return recorded
    lineage = tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__[:-2])
    text = error_text(error, whole=whole)
    who = blamed(error) if blame else ""
    text = f"{who} raised: {text}" if who else text
    return Failure(f"{type(error).__module__}.{type(error).__qualname__}", text, lineage, code, limit)


def _left(snapshot: Snapshot, frame: Frame, hops: int, handoffs: int) -> Left:
    graph = frame.tables.graph
    return Left(
        least_free(snapshot),
        frame.depth_left,
        None if graph.max_hops is None else graph.max_hops - hops,
        None if graph.max_handoffs is None else graph.max_handoffs - handoffs,
    )


def thread_above(token: Token) -> ThreadLog | None:
    """Return the thread that a token in a scope stands in, if there is one yet."""
    around: Token | None = token
    while around is not None:
        if around.thread is not None:
            return around.thread
        around = around.scope.token if around.scope is not None else None
    return token.frame.thread


def thread_of(token: Token) -> ThreadLog:
    """Return the thread that a token speaks in: its frame's, or its branch's own."""
    if token.scope is None:
        if token.frame.thread is None:
            token.frame.thread = ThreadLog()
        return token.frame.thread
    if token.thread is None:
        above = thread_above(token)
        token.thread = ThreadLog() if above is None else above.branch()
    return token.thread


def left_now(meter: Meter, frame: Frame, counters: Counters) -> Left:
    """Return what remains at this moment, for `step.left`."""
    return _left(meter.snapshot(), frame, counters.total, counters.handoffs)


def group_of(token: Token) -> int:
    """Return the number of the task group in which a token's bodies run."""
    scope = token.scope
    frame = token.frame
    while scope is None:
        owner = frame.owner
        if owner is None:
            return 0
        scope, frame = owner.token.scope, owner.token.frame
    return scope.number


def whereabouts(token: Token) -> Path:
    """Return the path of the visit that a token has come from: of its fork if it has not begun."""
    frame, at = token.frame, token.at
    if token.edge is None and token.scope is not None:
        return token.scope.path
    if not isinstance(at, str):
        return frame.path
    number = frame.visits.get((at, token.lanes) if token.lanes else at, 1)
    call = (frame.owner.turn, frame.call) if frame.is_node and frame.owner is not None else None
    return (*frame.path, Segment(at, number, token.lanes, call))


def impossible(what: str) -> InternalError:
    """Return the error of a state that should never be reached."""
    return InternalError(what)
