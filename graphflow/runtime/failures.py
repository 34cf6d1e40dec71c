"""What goes wrong, and the end: failures on their way outward, bounds, cancellation, and how a run ends."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, cast

from graphflow.errors import NoRoute
from graphflow.events import CancelRequested, EdgeName, Failure, RunEnded, RunStatus
from graphflow.model.contract import Reason, Report
from graphflow.model.ids import Path, names, names_text, parse_path, path_text
from graphflow.model.state import Message
from graphflow.nodes.agent import Agent
from graphflow.runtime.commands import CancelBody, EndRun
from graphflow.runtime.core import Core
from graphflow.runtime.ledger import ONE_RUN, RETRIES, RUNS, Amount
from graphflow.runtime.tables import Closing, Frame, Scope, Standing, Token, Trouble, Visit


class Failures(Core):
    """How failures, bounds and cancellation travel."""

    __slots__ = ()

    # --- failures ---

    def fail(self, token: Token, trouble: Trouble) -> None:
        """Pass a failure outward from a token: to its scope, else to its frame."""
        scope = token.scope
        if scope is None:
            self.fail_frame(token.frame, trouble)
        elif scope.closing is not None:
            return  # it is being cancelled already: the first failure counts
        elif scope.fired:
            self.drop(token)  # a loser: its failure is an event only
            self.settle_scope(scope)
        elif scope.out.failure == "collect":
            self.partial = True
            self.troubles.append(trouble.reason)
            scope.failed[token.branch] = (_blamed(token, scope, trouble), trouble)
            self.drop(token)
            self.settle_scope(scope)
        else:
            self._fail_fast(scope, token, trouble)

    def _fail_fast(self, scope: Scope, token: Token, trouble: Trouble) -> None:
        def closed() -> None:
            self.scope_gone(scope)
            self.fail(scope.token, trouble)

        scope.failed[token.branch] = ("", trouble)
        scope.live.pop(token.branch, None)
        scope.closing = closing = Closing(closed)
        self.cancel_scope(scope, closing)
        self.proceed(closing)

    def scope_gone(self, scope: Scope) -> None:
        """Close a scope whose join will not run."""
        scope.live.clear()
        self.scope_closed(scope)
        scope.token.inner = None

    def fail_frame(self, frame: Frame, trouble: Trouble) -> None:
        """Pass a failure outward from a frame, when what is left in it has been cancelled."""
        if not frame.closed and frame.closing is None:
            self._empty(frame, lambda: self._failed(frame, trouble))

    def _failed(self, frame: Frame, trouble: Trouble) -> None:
        owner = frame.owner
        if owner is None:
            self.finish("failed", trouble.reason)
        elif frame.is_node:
            report = Report.failed(trouble.reason)
            self.close_frame(frame, report)
            self.call_done(owner, frame.call, report, counts=trouble.reason.code != "skipped")
        else:
            self.close_frame(frame)
            owner.frame = None
            self.agenda.append(lambda: self._nested_failed(owner, trouble))  # put off, so that depth costs no stack

    def _nested_failed(self, owner: Visit, trouble: Trouble) -> None:
        if owner.standing is Standing.NESTED and owner.closing is None:
            self.attempt_failed(owner, trouble)

    def no_route(self, frame: Frame, last: tuple[str, ...]) -> None:
        """Fail a frame in which every token has ended before END."""
        shown = ", ".join(map(repr, dict.fromkeys(last)))
        name = frame.tables.graph.name
        error = NoRoute(
            f"in {name!r} no token reached END; the last nodes were {shown}. After them no edge held, or the join was "
            f"skipped: give the choose a default=, or the join another policy."
        )
        self.fail_frame(frame, self.trouble("no_route", error, frame.path))

    # --- bounds ---

    def hit_bound(self, token: Token, reason: Reason, again: Callable[[], None] | None = None) -> None:
        """Stop a token at a bound: a failure of its branch in a fork, else the innermost escalation, report or end."""
        if token.scope is not None:
            self.fail(token, self.bound_trouble(reason))
        elif self.exhausts(token):
            self.halt(reason, token.frame.offers, again)
        else:
            self._frame_bound(token.frame, reason)

    def exhausts(self, token: Token) -> bool:
        """Tell whether a bound that stops a token ends the whole run: nobody on the way outward takes it."""
        while token.scope is None:
            frame = token.frame
            if frame.is_node or (frame.tables.escalate is not None and not frame.escalated):
                return False
            if frame.closed or frame.closing is not None:
                return False
            if frame.owner is None:
                return True
            token = frame.owner.token
        return False

    def _frame_bound(self, frame: Frame, reason: Reason) -> None:
        if frame.closed or frame.closing is not None:
            return
        can_escalate = not frame.is_node and not frame.escalated
        if can_escalate and frame.tables.escalate is not None:
            self._empty(frame, lambda: self._escalate(frame, reason))
        else:
            self._empty(frame, lambda: self._bound_outward(frame, reason))

    def _escalate(self, frame: Frame, reason: Reason) -> None:
        edge = frame.tables.escalate
        token = frame.token
        assert edge is not None and token is not None  # noqa: S101, PT018 - the caller looked
        frame.escalated = True
        frame.closing = None
        if frame.set_aside:
            frame.set_aside = False
            frame.meter.release(ONE_RUN)
        token.visit = token.inner = None
        at = token.at if isinstance(token.at, str) else frame.tables.graph.name
        self.move(token, edge, (Message(at, Report.failed(reason)),))

    def _bound_outward(self, frame: Frame, reason: Reason) -> None:
        owner = frame.owner
        assert owner is not None  # noqa: S101 - at the root the run stands still instead
        if frame.is_node:
            report = at_a_bound(frame.offers, reason)
            self.close_frame(frame, report)
            self.call_done(owner, frame.call, report)
        else:
            self.close_frame(frame)
            owner.frame = None
            token = owner.token
            self.end_visit(owner, "failed", reason)
            self.hit_bound(token, reason)

    def frame_overdue(self, frame: Frame, seconds: float) -> None:
        """End a nested graph whose seconds are over."""
        frame.deadline = None
        if not frame.closed and frame.closing is None:
            reason = self.refuse(frame.path, "seconds", seconds, f"more time for {frame.tables.graph.name!r}")
            if frame.token is not None and self.exhausts(frame.token):
                self.halt(reason, frame.offers, None)
            else:
                self._frame_bound(frame, reason)

    def run_overdue(self) -> None:
        """End the run whose seconds are over; what ran can be entered again with more."""
        root, seconds = self.root, self.deadline
        self.deadline = float("inf")
        over = self.ended is not None and self.ended.status != "waiting"
        if root is None or over or self.halted is not None or root.closing is not None:
            return
        self.halt(self.refuse((), "seconds", seconds, "more time for the run"), root.offers, None)

    def call_overdue(self, frame: Frame) -> None:
        """End a call that took longer than its edge's timeout."""
        frame.timer = None
        self.busy -= 1
        if frame in self.timed_frames:
            self.timed_frames.remove(frame)
        if frame.closed or frame.closing is not None:
            return
        owner = frame.owner
        assert owner is not None  # noqa: S101 - a call has a caller
        edge = frame.edge
        target = edge.target if edge is not None else "?"
        text = f"the call of {target!r} took longer than its timeout of {frame.limit:g} s"
        reason = Reason(
            code="timeout", text=text, path=path_text(owner.path), error_type="NodeTimeout", limit=frame.limit
        )
        failure = Failure("graphflow.errors.NodeTimeout", text, (), "timeout", frame.limit)
        self._empty(frame, lambda: self._failed(frame, Trouble(reason, failure, timed_out=True)))

    # --- cancellation ---

    def _empty(self, frame: Frame, then: Any) -> None:
        """Cancel what is left of a frame, then go on."""
        closing = Closing(then)
        self.cancel_frame(frame, closing)
        self.proceed(closing)

    def proceed(self, closing: Closing) -> None:
        """Go on if nothing is awaited any more."""
        if closing.outstanding == 0:
            after, closing.after = closing.after, []
            for close in after:
                close()
            closing.then()

    def end_cancelled(self, visit: Visit) -> None:
        """End a visit that was cancelled."""
        if visit.started:
            self.end_visit(visit, "cancelled")
        else:
            self.forget(visit)

    def body_gone(self, visit: Visit) -> None:
        """Note that a body that was being cancelled has ended."""
        closing = visit.closing
        assert closing is not None  # noqa: S101 - the caller looked
        visit.closing = None
        visit.standing = Standing.ENDED
        self.end_cancelled(visit)
        closing.outstanding -= 1
        self.proceed(closing)

    def cancel_frame(self, frame: Frame, closing: Closing) -> None:
        """Cancel every token and every late scope of a frame."""
        under_way, frame.closing = frame.closing, closing
        if under_way is not None and under_way is not closing and under_way.outstanding:
            self.wait_for(under_way, closing)
            return
        for scope in list(frame.detached):
            self._cancel_late(scope, closing)
        frame.ending = None
        if frame.token is not None:
            self._cancel_token(frame.token, closing)

    def _cancel_late(self, scope: Scope, closing: Closing) -> None:
        """Cancel a scope whose join has run; one that lies inside another late one is met twice, and cancelled once."""
        late = scope.token.frame.detached
        if scope not in late:
            return
        late.remove(scope)

        def closed() -> None:
            scope.live.clear()
            self.scope_closed(scope)

        self.cancel_scope(scope, closing)
        closing.after.append(closed)

    def cancel_scope(self, scope: Scope, closing: Closing) -> None:
        """Cancel every live branch of a scope, and the late scopes inside it."""
        under_way, scope.closing = scope.closing, closing
        if under_way is not None and under_way is not closing and under_way.outstanding:
            self.wait_for(under_way, closing)
            return
        for late in [found for found in scope.token.frame.detached if _inside(found, scope)]:
            self._cancel_late(late, closing)
        for token in list(scope.live.values()):
            self._cancel_token(token, closing)

    def wait_for(self, inner: Closing, outer: Closing) -> None:
        """Let a wider cancellation wait for one that is under way; what would have followed that one is void."""

        def joined() -> None:
            outer.outstanding -= 1
            self.proceed(outer)

        outer.outstanding += 1
        inner.then = joined

    def _cancel_token(self, token: Token, closing: Closing) -> None:
        inner = token.inner
        if inner is not None:
            self._cancel_inner(inner, closing)
            return
        visit = token.visit
        if visit is None:
            return
        if isinstance(visit.station.node, Agent):
            under_way = visit.closing is not None  # what it had under way is being cancelled already
            if under_way or visit.standing in (Standing.RUNNING, Standing.SUSPENDED, Standing.PAUSED):
                self.cancel_agent(visit, closing)
                return
        if visit.standing is Standing.ENDED:
            return
        match visit.standing:
            case Standing.RUNNING:
                self._cancel_body(visit, closing)
                return
            case Standing.ASKED | Standing.QUEUED:
                self.busy -= 1
            case Standing.SUSPENDED:
                for state in visit.batch:
                    if state.frame is not None and not state.done:
                        self.cancel_child(state.frame, closing)
            case Standing.NESTED if visit.frame is not None:
                self.cancel_child(visit.frame, closing)
            case Standing.PAUSED:
                for question in [name for name, asked in self.questions.items() if asked.visit is visit]:
                    del self.questions[question]
            case _:
                pass  # unfunded, or nested and not open yet: nothing of it runs
        visit.standing = Standing.ENDED  # nothing that was put off for it goes on
        closing.after.append(lambda: self.end_cancelled(visit))

    def cancel_child(self, frame: Frame, closing: Closing) -> None:
        """Cancel a frame that a visit waits for, and close it when everything in it has ended."""
        self.cancel_frame(frame, closing)
        closing.after.append(lambda: self.close_frame(frame))

    def _cancel_inner(self, scope: Scope, closing: Closing) -> None:
        self.cancel_scope(scope, closing)
        closing.after.append(lambda: self.scope_gone(scope))

    def _cancel_body(self, visit: Visit, closing: Closing) -> None:
        if visit.closing is None:
            visit.closing = closing
            closing.outstanding += 1
            self.commands.append(CancelBody(visit.path))

    def cancel_requested(self, fact: CancelRequested) -> None:
        """Cancel the whole run."""
        root = self.root
        if root is None or self.cancelling or (self.ended is not None and self.ended.status != "waiting"):
            return
        self.cancelling = True
        self.ended = None
        reason = Reason(code="cancelled", text=f"cancelled by {fact.by}")
        self.finish_when_empty(root, reason)

    def finish_when_empty(self, root: Frame, reason: Reason) -> None:
        """Cancel everything, then end as cancelled."""
        under_way = root.closing
        if under_way is not None and under_way.outstanding:
            under_way.then = lambda: self.finish("cancelled", reason)
        else:
            self._empty(root, lambda: self.finish("cancelled", reason))

    # --- the end ---

    def finish_run(self, output: Any, context: Any) -> None:
        """End a run that has reached END."""
        root = self.root
        assert root is not None and root.token is not None  # noqa: S101, PT018 - it has run
        root.token.context = context
        self.output = output
        self.finish("partial" if self.partial else "completed", None)

    def finish(self, status: RunStatus, reason: Reason | None) -> None:
        """End the run."""
        if self.ended is not None and self.ended.status != "waiting":
            return
        root = self.root
        if root is not None and not root.closed:
            if root.set_aside and status != "exhausted":
                root.set_aside = False
                root.meter.release(ONE_RUN)
            if status != "exhausted":
                root.closed = True
                self.final, root.token = root.token, None  # see `close_frame`
        self.ended = RunEnded(status, reason)
        self.decisions.append(self.ended)
        self.commands.append(EndRun())

    def account(self, frame: Frame) -> None:
        """Add a closed frame's spending to the tables by node and by edge, and to the frame around it."""
        owner = frame.owner
        assert owner is not None  # noqa: S101 - the root's frame is added when somebody asks
        total = self._add_visits(frame, self.spent_by_node)
        outer = owner.token.frame
        if outer.spent is None:
            outer.spent = _nothing()
        _add(outer.spent, total)
        if frame.edge is not None:
            _add(self.spent_by_edge.setdefault(_edge_text(outer.path, frame.edge), _nothing()), total)

    def spending(self) -> dict[str, list[Amount]]:
        """Return what every node has spent so far, by the names of its path."""
        table = {name: list(spent) for name, spent in self.spent_by_node.items()}
        for frame in self.open_frames():
            self._add_visits(frame, table)
        for visit in self.visits.values():
            if not visit.started:
                table[names_text(visit.path)][RUNS] -= 1
        return table

    def total(self) -> list[Amount]:
        """Return what the run has spent so far, that of accounts which are still split off too."""
        total = _nothing()
        for frame in self.open_frames():
            if frame.owner is None or frame.grant is not None:
                total = [a + b for a, b in zip(total, frame.meter.spent, strict=True)]
        return total

    def open_frames(self) -> list[Frame]:
        """Return the frames that are open; the root's always."""
        found = [] if self.root is None else [self.root]
        for visit in self.visits.values():
            inside = [state.frame for state in visit.batch if not state.done]
            found += [frame for frame in (*inside, visit.frame) if frame is not None and not frame.closed]
        return found

    @staticmethod
    def _add_visits(frame: Frame, table: dict[str, list[Amount]]) -> list[Amount]:
        """Add the node runs of a frame's own nodes to a table; return what was spent in the frame in all."""
        total: list[Amount] = [*frame.spent] if frame.spent else _nothing()
        where = names_text(frame.path) + "/" if frame.path else ""
        earlier = frame.earlier
        for key, all_visits in frame.visits.items():
            count = all_visits if earlier is None else all_visits - earlier.get(key, 0)
            name, retries = (key, False) if isinstance(key, str) else (key[0], key[1] == "retries")
            spent = table.setdefault(where + name, _nothing())
            spent[RUNS] += count
            total[RUNS] += count
            if retries:
                spent[RETRIES] += count
                total[RETRIES] += count
        return total


def _blamed(token: Token, scope: Scope, trouble: Trouble) -> str:
    """Return the name of the node of the token's own frame that a failure came from."""
    depth = len(token.frame.path)
    path = parse_path(trouble.reason.path)
    if len(path) > depth:
        return path[depth].name
    return scope.path[-1].name if len(scope.path) > depth else "START"  # a bound of the edge out of the fork


def at_a_bound(offers: tuple[Report, ...], reason: Reason) -> Report:
    """Return the report of a callee that a bound stopped: partial if its own callees have found something."""
    if not offers:
        return Report.failed(reason)
    evidence = tuple(dict.fromkeys(item for report in offers for item in report.evidence))
    finding = "\n".join(report.finding for report in offers)
    return Report(finding=finding, evidence=evidence, status="partial", reason=reason)


@functools.lru_cache(maxsize=1024)
def _edge_text(path: Path, edge: EdgeName) -> str:
    return "/".join((*names(path), str(edge)))


def _nothing() -> list[Amount]:
    return [0, 0, 0, 0, 0, 0]


def _add(total: list[Amount], amounts: list[Amount]) -> None:
    total[:] = map(_plus, total, amounts)


_plus: Callable[[Amount, Amount], Amount] = cast("Any", operator.add)


def _inside(scope: Scope, around: Scope) -> bool:
    """Tell whether a scope was opened inside another."""
    outer = scope.outer
    while outer is not None and outer is not around:
        outer = outer.outer
    return outer is around
