"""A visit's life: it starts, its body returns, it suspends and is entered again, fails, is retried, ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphflow.errors import (
    ContractError,
    NodeTimeout,
    ReportedFailure,
    TurnLimit,
    UnknownTarget,
)
from graphflow.events import (
    CHECKED,
    HookAnswered,
    NodeEnded,
    NodeReentered,
    NodeReturned,
    NodeSkipped,
    NodeStarted,
    Paused,
    VisitStatus,
)
from graphflow.graphs.compiled import ChooseOut, Edge, NextOut
from graphflow.model.context import ContextRules
from graphflow.model.contract import BOUNDS, Brief, Code, Reason, Report
from graphflow.model.frozen import PROVED, class_of, mutable_value
from graphflow.model.ids import Segment, path_text
from graphflow.model.outcome import NOTHING, Delegate, Done, Handoff, Pause, Update
from graphflow.model.secrets import veiled
from graphflow.model.state import Message
from graphflow.nodes.agent import Agent
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.human import Human
from graphflow.nodes.join import Join
from graphflow.runtime.attempts import Attempts
from graphflow.runtime.commands import AskHook
from graphflow.runtime.core import group_of, thread_of, whereabouts
from graphflow.runtime.ledger import RUNS, Meter
from graphflow.runtime.returned import with_reducer
from graphflow.runtime.tables import Asked, Inbox, Standing, Token, Trouble, Visit, Written


class Visits(Attempts):
    """What happens to one entry of a node."""

    __slots__ = ()

    # --- starting ---

    def enter_visit(self, token: Token, name: str, edge: Edge, inbox: Inbox) -> None:
        """Begin a visit: count it, ask the hook, pay a node run."""
        frame = token.frame
        station = frame.tables.stations[name]
        limit = station.node.max_visits
        if limit is not None:
            if token.counters.visits is None:
                token.counters.visits = {}
            seen = token.counters.visits.get(name, 0)
            if seen >= limit:
                token.at = name
                wanted = f"a further visit of {name!r}"
                self.hit_bound(token, self.refuse(whereabouts(token), "max_visits", limit, wanted))
                return
            token.counters.visits[name] = seen + 1
        lanes = token.lanes
        key = (name, lanes) if lanes else name
        number = frame.visits.get(key, 0) + 1
        frame.visits[key] = number
        call = None
        if frame.is_node:
            owner = frame.owner
            assert owner is not None  # noqa: S101 - a callee node has a caller
            call = (owner.turn, frame.call)
        path = (*frame.path, Segment(name, number, lanes, call))
        visit = Visit(token, station, path, edge, inbox)
        if frame.tables.graph.detect and not self._goes_on(visit):
            return
        token.visit = visit
        token.inbox = inbox
        self.visits[path] = visit
        if self.hooked:
            visit.standing = Standing.ASKED
            self.busy += 1
            visit.state = self.state(token, inbox, path)
            self.commands.append(AskHook(path, visit.state, group_of(token)))
            return
        self._pay_and_start(visit)

    def _goes_on(self, visit: Visit) -> bool:
        """Let the detectors look at a visit before it begins; tell whether it may."""
        token, name = visit.token, visit.station.name
        sight = self.node_entered(token, name, visit.path, visit.inbox)
        token.note = sight.note or token.note
        if sight.stop is None:
            return True
        key = (name, token.lanes) if token.lanes else name
        token.frame.visits[key] -= 1
        token.at = name
        self.hit_bound(token, sight.stop)
        return False

    def hook_answered(self, fact: HookAnswered) -> None:
        """Start the visit that the hook allowed, or go on without it."""
        visit = self.visits.get(fact.path)
        if visit is None or visit.standing is not Standing.ASKED:
            return  # it was cancelled meanwhile
        self.busy -= 1
        if fact.failure is not None:
            reason = Reason(
                code="failed", text=f"the before= hook raised: {fact.failure.text}", path=path_text(visit.path),
                error_type=fact.failure.error_type.rpartition(".")[2],
            )  # fmt: skip
            self.forget(visit)
            self.fail(visit.token, Trouble(reason, fact.failure))
        elif fact.skip is None:
            self._pay_and_start(visit)
        else:
            reason = Reason(code="skipped", text=fact.skip, path=path_text(visit.path))
            self.decisions.append(NodeSkipped(visit.path, reason))
            self.forget(visit)
            token = visit.token
            if token.frame.is_node:
                self.finish_node_frame(token, Report.failed(reason))
            else:
                self.leave(token, visit.station.out, visit.station.name, ())

    def _pay_and_start(self, visit: Visit) -> None:
        refusing = visit.token.frame.meter.refusing_run()
        if refusing is None:
            self._start(visit)
        else:
            self.lacks_a_run(visit, refusing)

    def lacks_a_run(self, visit: Visit, refusing: Meter) -> None:
        """Let a visit that cannot pay its node run wait, or refuse it."""
        if self.wait_for_funds(visit, lambda last: self._paid_and_started(visit, last=last)):
            visit.standing = Standing.UNFUNDED
        else:
            self._cannot_pay(visit, refusing)

    def _paid_and_started(self, visit: Visit, *, last: bool) -> bool:
        if visit.standing is not Standing.UNFUNDED:
            return True  # it was cancelled: nothing to wait for
        refusing = visit.token.frame.meter.refusing_run()
        if refusing is None:
            self._start(visit)
        elif last:
            self._cannot_pay(visit, refusing)
        return refusing is None or last

    def _cannot_pay(self, visit: Visit, refusing: Meter) -> None:
        limit = refusing.granted[RUNS]
        assert limit is not None  # noqa: S101 - it refused
        reason = self.refuse(visit.path, "node_runs", float(limit), f"a run of {visit.station.name!r}")
        visit.token.at = visit.station.name
        if self.exhausts(visit.token):
            visit.standing = Standing.UNFUNDED
            self.hit_bound(visit.token, reason, lambda: self._pay_and_start(visit))
        else:
            self.forget(visit)
            self.hit_bound(visit.token, reason)

    def _start(self, visit: Visit) -> None:
        visit.started = True
        self.decisions.append(NodeStarted(visit.path, visit.edge.name))
        self.begin_attempt(visit)

    def begin_attempt(self, visit: Visit) -> None:
        """Do what this kind of node does when an attempt begins."""
        node = visit.station.node
        if type(node) is FunctionNode:
            self.request_slot(visit)
        elif isinstance(node, Agent):
            self.agent_begins(visit)
        elif isinstance(node, Join):
            self.agenda.append(lambda: self._join(visit, node))
        elif isinstance(node, Human):
            shown = "\n".join(f"{message.source}: {_for_people(message.value)}" for message in visit.inbox)
            self._pause(visit, Pause(node.question + ("\n" + shown if shown else ""), node.schema))
        else:
            visit.standing = Standing.NESTED
            self.agenda.append(lambda: self.open_nested(visit))

    def _join(self, visit: Visit, node: Join) -> None:
        if visit.standing is Standing.ENDED:
            return  # cancelled between the two
        output: Any = tuple(message.value for message in visit.inbox)
        if node.reduce is not None:
            try:
                output = node.reduce(output)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.attempt_failed(visit, self.trouble("failed", error, visit.path))
                return
        self.complete(visit, output)

    # --- a body returned ---

    def node_returned(self, fact: NodeReturned) -> None:
        """Look at what a body returned."""
        visit = self.visits.get(fact.path)
        if visit is None or visit.turn != fact.turn or visit.attempt != fact.attempt or not visit.started:
            return  # late: an abandoned thread
        self.let_go(visit)
        if visit.timer is not None:
            self.drop_timer(visit.timer)
            visit.timer = None
        if visit.flying:
            self.drop_effects(visit)
        if visit.naps:
            self.drop_naps(visit)
        visit.due = None
        if visit.closing is not None:
            self.body_gone(visit)
            return
        if visit.deadline is not None and (visit.timed_out or self.at > visit.deadline):
            limit = visit.station.node.timeout or 0.0
            elapsed = limit + self.at - visit.deadline
            error = NodeTimeout(path_text(visit.path), limit, elapsed)
            self.attempt_failed(visit, self.trouble("timeout", error, visit.path, limit=limit))
        elif fact.failure is not None:
            self._body_failed(visit, fact)
        elif fact.cancelled:
            self.attempt_failed(visit, self.stray(visit))
        else:
            self._outcome(visit, fact.outcome)

    def _body_failed(self, visit: Visit, fact: NodeReturned) -> None:
        failure = fact.failure
        assert failure is not None  # noqa: S101 - the caller looked
        reason = Reason(
            code=failure.code, text=failure.text, path=path_text(visit.path),  # type: ignore[arg-type]  # a code by construction
            error_type=failure.error_type.rpartition(".")[2], limit=failure.limit,
        )  # fmt: skip
        if failure.code in BOUNDS and failure.error_type == "graphflow.errors.BoundHit":
            self._body_hit_bound(visit, reason)
        else:
            self.attempt_failed(visit, Trouble(reason, failure))

    def _body_hit_bound(self, visit: Visit, reason: Reason) -> None:
        reports = (message.value for message in visit.inbox)
        done = tuple(r for r in reports if isinstance(r, Report) and r.status == "done")
        self.stop_at_bound(visit, reason, done, lambda: self.request_slot(visit))

    def stop_at_bound(
        self, visit: Visit, reason: Reason, offers: tuple[Report, ...], again: Callable[[], None] | None
    ) -> None:
        """End a visit that a bound has stopped, with what it can offer; an error edge may catch it."""
        if any(edge for edge in visit.station.errors if "graphflow.errors.BoundHit" in edge.catch):
            self.attempt_failed(visit, self.bound_trouble(reason))
            return
        token = visit.token
        token.frame.offers = offers
        if self.exhausts(token):
            visit.standing = Standing.UNFUNDED  # without a terminal event: given more, it enters this turn again
        else:
            self.end_visit(visit, "failed", reason)
        self.hit_bound(token, reason, again)

    def _outcome(self, visit: Visit, outcome: Any) -> None:
        kind = class_of(outcome)
        if kind is Done:
            self._finish(visit, outcome.output, outcome.update)
        elif outcome is None:
            self._finish(visit, NOTHING, None)
        elif kind is Update:
            self._finish(visit, NOTHING, outcome)
        elif kind is Handoff and (found := _changeable(outcome.note)) is not None:
            self.attempt_failed(visit, self._not_frozen(visit, "note", found))
        elif kind is Delegate or kind is Handoff or kind is Pause:
            changed = self._updated(visit, outcome.update, NOTHING)
            if changed is None:
                return
            context, written = changed
            if kind is Delegate:
                self.delegate(visit, outcome, context, written)
            elif kind is Handoff:
                self._handoff(visit, outcome, context, written)
            else:
                self._commit(visit.token, context, written)
                self._pause(visit, outcome)
        else:
            self._finish(visit, outcome, None)

    def _not_frozen(self, visit: Visit, what: str, found: tuple[str, str, str]) -> Trouble:
        """Return the failure of a node that gave something that its receivers could change."""
        where, what_found, instead = found
        error = ContractError(
            f"the {what} of {path_text(visit.path)!r} could be changed by whoever gets it: at {where}, {what_found}; "
            f"use {instead}."
        )
        return self.trouble("invalid_value", error, visit.path)

    def _updated(self, visit: Visit, update: Update | None, output: Any) -> tuple[Any, tuple[Written, ...]] | None:
        """Return the context with an update applied, and what was written; None if the attempt failed on it."""
        token = visit.token
        into = visit.station.node.into
        deltas = [update.fields] if update is not None and update.fields else []
        if into is not None and output is not NOTHING:
            deltas.append({into: output})
        if not deltas:
            return token.context, ()
        rules, context = token.frame.rules, token.context
        written: list[Written] = []
        try:
            for delta in deltas:
                checked = rules.validate(delta)
                context = rules.apply(context, checked)
                written.append(Written(checked, visit.path))
        except Exception as error:  # noqa: BLE001 - a user's reducer may raise anything
            self.update_failed(visit, error, rules, deltas)
            return None
        return context, tuple(written)

    def update_failed(
        self, visit: Visit, error: Exception, rules: ContextRules, deltas: Sequence[Mapping[str, Any]]
    ) -> None:
        """Let an attempt fail whose update does not fit, or whose reducer raised."""
        code: Code = "contract" if isinstance(error, ContractError) else "failed"
        if isinstance(error, ContractError) and self.edition >= CHECKED:
            error = with_reducer(error, rules, deltas)
        self.attempt_failed(visit, self.trouble(code, error, visit.path))

    @staticmethod
    def _commit(token: Token, context: Any, written: tuple[Written, ...]) -> None:
        if written:
            token.context = context
            if token.updates is not None:
                token.updates.extend(written)

    def _finish(self, visit: Visit, output: Any, update: Update | None) -> None:
        """End a visit well, if its update, its report and its next edge allow."""
        token = visit.token
        if output is not NOTHING:
            if (found := _changeable(output)) is not None:
                self.attempt_failed(visit, self._not_frozen(visit, "output", found))
                return
            if isinstance(output, Report) and output.status == "failed":
                text = output.reason.text if output.reason is not None else "no reason given"
                error = ReportedFailure(f"{path_text(visit.path)!r} reported a failure: {text}")
                self.attempt_failed(visit, self.trouble("reported", error, visit.path))
                return
        changed = self._updated(visit, update, output)
        if changed is None:
            return
        context, written = changed
        name = visit.station.name
        inbox: Inbox = () if output is NOTHING else (Message(name, output),)
        if token.frame.is_node:
            self._report(visit, output, context, written)
            return
        out = visit.station.out
        if out is None or type(out) is NextOut:
            self._commit(token, context, written)
            self.end_visit(visit, "completed")
            self.leave(token, out, name, inbox)
            return
        try:
            route = self.route(token, out, inbox, visit.path, context)
        except Exception as error:  # noqa: BLE001 - a user's predicate may raise anything
            self.attempt_failed(visit, self.route_trouble(error, out, name, visit.path))
            return
        self._commit(token, context, written)
        self.end_visit(visit, "completed")
        if route is not None and type(out) is ChooseOut:
            self.take(token, route, inbox)
        else:
            self.follow(token, out, route, inbox, visit.path)

    def _report(self, visit: Visit, output: Any, context: Any, written: tuple[Written, ...]) -> None:
        """End the frame of a callee node with its report."""
        token = visit.token
        try:
            report = self.checked_report(token.frame, output)
        except ContractError as error:
            self.attempt_failed(visit, self.trouble("contract", error, visit.path))
            return
        self._commit(token, context, written)
        self.end_visit(visit, "completed")
        self.finish_node_frame(token, report)

    def complete(self, visit: Visit, output: Any) -> None:
        """End a visit that has no body: a join, a nested graph, a person who answered."""
        self._finish(visit, output, None)

    def end_visit(self, visit: Visit, status: VisitStatus, reason: Reason | None = None) -> None:
        """Say that a visit has ended, and forget it."""
        self.decisions.append(NodeEnded(visit.path, status, reason))
        self.forget(visit)

    def forget(self, visit: Visit) -> None:
        """Forget a visit: nothing of it is left to do."""
        visit.standing = Standing.ENDED
        self.visits.pop(visit.path, None)
        if visit.token.visit is visit:
            visit.token.visit = None
        if not visit.started:  # it has a number, but cost no node run
            table, key = visit.token.frame.visits, (visit.station.name, "unstarted")
            table[key] = table.get(key, 0) - 1

    # --- turns ---

    def reenter(self, visit: Visit, inbox: Inbox) -> None:
        """Begin the next turn of a suspended visit."""
        visit.turn += 1
        visit.fresh = False
        visit.inbox = inbox
        visit.timed_out = False
        self.decisions.append(NodeReentered(visit.path, visit.turn))
        self.request_slot(visit)

    def turns_left(self, visit: Visit) -> bool:
        """Tell whether the visit may have a further turn; answers of people are not counted."""
        node = visit.station.node
        limit = node.max_turns if isinstance(node, FunctionNode) else None
        if limit is None:
            hops = [edge.max_hops for edge in visit.station.delegates.values()]
            if None in hops:
                return True
            limit = 2 + sum(hop for hop in hops if hop is not None)
        return visit.turn - visit.answers + 1 < limit

    def turn_limit(self, visit: Visit) -> Trouble:
        """Return the failure of a visit that wanted one turn too many."""
        error = TurnLimit(
            f"{path_text(visit.path)!r} delegated again in turn {visit.turn}, which would need one turn more than its "
            f"max_turns. Let it answer with the reports it has, or raise max_turns= on the node."
        )
        return self.trouble("turns", error, visit.path)

    def _pause(self, visit: Visit, pause: Pause) -> None:
        visit.standing = Standing.PAUSED
        question = path_text(visit.path) + (f"?{visit.turn}" if visit.turn else "")
        self.questions[question] = Asked(visit, pause.question, pause.schema)
        self.decisions.append(Paused(visit.path, question, pause.question))

    def answered(self, question: str, value: Any) -> None:
        """Go on with a person's answer."""
        asked = self.questions.pop(question, None)
        if asked is None:
            return  # it was withdrawn meanwhile
        self.ended = None
        visit = asked.visit
        node = visit.station.node
        if isinstance(node, Agent):
            self.agent_answered(visit, asked.position, value)
        elif not isinstance(node, Human):
            visit.answers += 1
            self.reenter(visit, (Message("answer", value),))
        elif visit.edge.name.kind == "handoff":
            token, back = visit.token, visit.station.handoffs.get(visit.edge.name.source or "")
            self.end_visit(visit, "completed")
            if back is None:
                self.leave(token, visit.station.out, visit.station.name, (Message(visit.station.name, value),))
            else:
                thread_of(token).noted = ""
                self.move(token, back, (Message(visit.station.name, value),))
        else:
            self.complete(visit, value)

    def _handoff(self, visit: Visit, outcome: Handoff, context: Any, written: tuple[Written, ...]) -> None:
        edge = visit.station.handoffs.get(outcome.to)
        if edge is None:
            error = UnknownTarget(path_text(visit.path), outcome.to, sorted(visit.station.handoffs))
            self.attempt_failed(visit, self.trouble("unknown_target", error, visit.path))
            return
        token = visit.token
        self._commit(token, context, written)
        self.end_visit(visit, "completed")
        if token.thread is not None or token.frame.thread is not None:
            thread_of(token).noted = ""  # the note stands in no call of a model
        note = outcome.note  # without one nothing arrives, as behind a node that returned nothing
        self.take(token, edge, () if note is None and self.edition else (Message(visit.station.name, note),))


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
"""Where an object lies in memory, as its class shows it: a question's text must be the same in another process."""


def _for_people(value: Any) -> str:
    """Return what arrived as a person reads it."""
    if isinstance(value, Brief):
        return value.objective
    if isinstance(value, Report):
        return "; ".join(part for part in (value.finding, value.reason.text if value.reason else "") if part)
    try:
        return _ADDRESS.sub("", str(veiled(value)))
    except Exception as error:  # noqa: BLE001 - a user's class, or a number of too many digits
        return f"(a {type(value).__name__} whose text could not be made: {type(error).__name__})"


def _changeable(value: Any) -> tuple[str, str, str] | None:
    """Find what could be changed in a value, or why that cannot be told."""
    if PROVED.get(class_of(value)):
        return None
    try:
        return mutable_value(value)
    except Exception as error:  # noqa: BLE001 - a user's class may do anything when it is looked at
        return "the value itself", f"it cannot be looked through ({type(error).__name__})", "plain frozen values"
