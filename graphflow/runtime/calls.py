"""Delegations: a visit suspends on a batch of calls and is entered again when each of them has its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel

from graphflow.errors import ContractError, InvalidDelegate, UnknownTarget
from graphflow.events import EdgeTaken, FrameOpened, Granted
from graphflow.graphs.compiled import Edge
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.context import rebuilt
from graphflow.model.contract import BOUNDS, Brief, Code, Reason, Report
from graphflow.model.ids import Path, Segment, path_text
from graphflow.model.outcome import Delegate
from graphflow.model.state import Message
from graphflow.nodes.agent import Agent, said_of
from graphflow.runtime.frames import Frames
from graphflow.runtime.ledger import ONE_RUN, Amounts, Meter
from graphflow.runtime.tables import CallState, Frame, Inbox, Rights, Standing, Token, Trouble, Visit, Wish, Written

LOSSES: Final = BOUNDS | {"tool"}
"""The reasons for which a report is partial by failure or bound; a partial report for another is the callee's own."""

ONE_AGENT: Final[Amounts] = (1, 1, 0, 0, 1, 0)
"""What an agent needs at the least: a run, a call of its model, a token."""


class Calls(Frames):
    """How batches of calls start and end."""

    __slots__ = ()

    def delegate(self, visit: Visit, outcome: Delegate, context: Any, written: tuple[Written, ...]) -> None:
        """Suspend a visit until every one of its calls has reported."""
        try:
            needs = _ordered_needs(outcome, path_text(visit.path))
        except InvalidDelegate as error:
            self.attempt_failed(visit, self.trouble("delegate", error, visit.path))
            return
        if not self.turns_left(visit):
            self.attempt_failed(visit, self.turn_limit(visit))
            return
        token = visit.token
        if written:
            token.context = context
            if token.updates is not None:
                token.updates.extend(written)
        visit.standing = Standing.SUSPENDED
        edges = visit.station.delegates
        batch = [
            CallState(call.to, call.brief, call.id, edges.get(call.to), need)
            for call, need in zip(outcome.calls, needs, strict=True)
        ]
        self._open_batch(visit, tuple(batch), needy=any(needs))

    def ask_team(self, visit: Visit, wishes: Sequence[Wish]) -> None:
        """Let an agent's delegations of one turn start."""
        batch: list[CallState] = []
        for wish in wishes:
            edge = wish.edge
            assert edge is not None  # noqa: S101 - a delegation has one
            batch.append(CallState(str(edge.target), wish.arguments["brief"], wish.call.id, edge))
        self._open_batch(visit, tuple(batch), needy=False)

    def _open_batch(self, visit: Visit, batch: tuple[CallState, ...], *, needy: bool) -> None:
        visit.batch, visit.undone, visit.needy = batch, 0, needy
        for state in batch:
            self._admit(visit, state)
        self.agenda.append(lambda: self._start_ready(visit, batch))

    def _admit(self, visit: Visit, state: CallState) -> None:
        """Refuse a call that no edge or bound allows; count the hop of one that they do."""
        edge = state.edge
        if edge is None:
            error = UnknownTarget(path_text(visit.path), state.to, sorted(visit.station.delegates), "delegate")
            self._lost(state, self.trouble("unknown_target", error, visit.path).reason)
            return
        contract = edge.contract
        assert contract is not None  # noqa: S101 - delegate edges have one
        state.equal = contract.share == "equal"
        if not isinstance(state.brief, contract.brief):
            text = f"the brief for {state.to!r} is a {type(state.brief).__name__}, not a {contract.brief.__name__}"
            self._lost(state, Reason(code="contract", text=text, path=path_text(visit.path)))
            return
        refused = self._call_refused(visit, edge)
        if refused is not None:
            state.report = Report.failed(refused)
            state.done = True
            return
        counters = visit.token.counters
        counters.total += 1
        counters.hops[edge] = state.hop = counters.hops.get(edge, 0) + 1

    def _lost(self, state: CallState, reason: Reason) -> None:
        """Report the failure of a call that is not started, although no bound refuses it."""
        state.report = Report.failed(reason)
        state.done = True
        self.partial = True
        self.troubles.append(reason)

    @staticmethod
    def _give_back_hop(visit: Visit, edge: Edge) -> None:
        """Uncount the hop of a call that was admitted, but is not started."""
        counters = visit.token.counters
        counters.total -= 1
        counters.hops[edge] -= 1

    def _call_refused(self, visit: Visit, edge: Edge) -> Reason | None:
        frame = visit.token.frame
        counters, graph = visit.token.counters, frame.tables.graph
        code: Code = "max_hops"
        limit: float | None
        if edge.max_hops is not None and counters.hops.get(edge, 0) >= edge.max_hops:
            limit = edge.max_hops
        elif graph.max_hops is not None and counters.total >= graph.max_hops:
            limit = graph.max_hops
        elif frame.depth_left is not None and frame.depth_left <= 0:
            code, limit = "max_depth", _depth_limit(frame)
        else:
            return None
        wanted = f"a further delegation to {edge.target!r}"
        return self.refuse(visit.path, code, None if limit is None else float(limit), wanted)

    def _start_ready(self, visit: Visit, batch: tuple[CallState, ...]) -> None:
        """Start the calls whose needs have reported; enter the caller again when all have."""
        left = [(position, state) for position, state in enumerate(batch) if not (state.done or state.started)]
        again = bool(left)
        while again and _awaits(visit, batch):
            again = False
            equal = [position for position, state in left if state.equal and _is_ready(state, batch)]
            shares = dict(zip(equal, visit.token.frame.meter.shares(len(equal)), strict=True)) if equal else {}
            for position, state in left:
                if _is_ready(state, batch):
                    again = visit.needy  # else nothing can be ready that is not yet
                    self._start_call(visit, position, shares.get(position))
        if _awaits(visit, batch):
            visit.undone = [state.done for state in batch].count(False)
            if not visit.undone:
                self._batch_done(visit)

    def _start_call(self, visit: Visit, position: int, equal: Budget | None) -> None:
        state = visit.batch[position]
        state.started = True
        edge = state.edge
        assert edge is not None and edge.contract is not None  # noqa: S101, PT018 - it was admitted
        if state.needs and (failed := _failed_need(visit.batch, state)) is not None:
            text = f"not started: it needs the report of {failed.id or failed.to!r}, which failed"
            self._give_back_hop(visit, edge)
            self._lost(state, Reason(code="dependency", text=text, path=path_text(visit.path)))
            return
        outer, target, where = visit.token.frame, str(edge.target), (visit.turn, position)
        number = 1 if visit.called is None else visit.called.get(where, {}).get(target, 0) + 1
        path = (*visit.path, Segment(target, number, (), where))
        meter, grant, share = outer.meter, equal, edge.contract.share
        if grant is None and not isinstance(share, str):
            grant = meter.share(float(share))
        if grant is not None:
            meter = meter.open_split(path, grant)
        wanted = ONE_AGENT if isinstance(outer.tables.stations[target].node, Agent) else ONE_RUN
        refusing = meter.refusing(wanted)
        if refusing is not None and (grant is not None or not self.may_be_funded(visit, wanted)):
            if grant is not None:
                meter.close_split(grant)
            self._give_back_hop(visit, edge)
            state.report = Report.failed(self.refused_by(visit, *refusing, f"a delegation to {edge.target!r}"))
            state.done = True
            return
        if grant is not None:
            self.decisions.append(Granted(path, grant, open=True))
        self._open_call(visit, position, edge, path, meter=meter, grant=grant)

    def _open_call(
        self, visit: Visit, position: int, edge: Edge, path: Path, *, meter: Meter, grant: Budget | None
    ) -> None:
        state, token = visit.batch[position], visit.token
        outer = token.frame
        contract = edge.contract
        assert contract is not None  # noqa: S101 - delegate edges have one
        inbox: Inbox = (Message(visit.station.name, self._bounded(state.brief, edge, outer)),)
        if state.needs:
            needed = [visit.batch[need] for need in state.needs]
            inbox += tuple(Message(found.to, found.report) for found in needed)
        left = outer.depth_left
        frame = Frame(
            visit.path, outer.tables, outer.rules, meter, token.counters, outer.depth + 1,
            None if left is None else left - 1, edge.name, visit, position, True, path, grant,  # noqa: FBT003 - as the fields
            _rights_below(visit, edge),
        )  # fmt: skip
        state.frame = frame
        if visit.station.node.attempts > 1:
            visit.called = visit.called or {}
            self._count_on(frame, visit.called.setdefault((visit.turn, position), {}))
        self.decisions.append(EdgeTaken(visit.path, edge.name, state.hop))
        if not isinstance(outer.tables.stations[str(edge.target)].node, Graph):  # a graph says so when it opens
            self.decisions.append(FrameOpened(path, None, frame.depth, edge.name))
        if contract.timeout is not None:
            self._limit_call(frame, contract.timeout, path)
        callee = Token(frame, None, None, token.counters, (), 0, str(edge.target), token.context, [])
        frame.token = callee
        self.enter_visit(callee, str(edge.target), edge, inbox)

    @staticmethod
    def _bounded(brief: Brief, edge: Edge, frame: Frame) -> Brief:
        """Return a brief that says what is not asked for: by default from the callee and what it owes."""
        if brief.boundary:
            return brief
        if not edge.boundary:
            about = said_of(frame.tables.stations[str(edge.target)].node)
            report = edge.contract.report if edge.contract is not None else Report
            edge.boundary = _boundary(str(edge.target), about, report)
        if brief.__pydantic_extra__ is not None or brief.__pydantic_private__ is not None:
            return brief.model_copy(update={"boundary": edge.boundary})
        values = brief.__dict__ | {"boundary": edge.boundary}
        bounded: Brief = rebuilt(brief, values, brief.__pydantic_fields_set__ | {"boundary"})
        return bounded

    def _limit_call(self, frame: Frame, limit: float, path: Path) -> None:
        """Set the timer of a delegate edge's `timeout=`."""
        frame.limit, frame.due = limit, self.at + limit
        frame.timer = self.set_timer(frame.due, path, "call_timeout", lambda: self.call_overdue(frame))
        self.busy += 1
        self.timed_frames.append(frame)

    def call_done(self, visit: Visit, position: int, report: Any, *, counts: bool = True) -> None:
        """Note a call's report; start what waited for it, or enter the caller again."""
        state = visit.batch[position]
        state.report = report
        state.done = True
        status = getattr(report, "status", "done")
        if counts and status != "done":
            reason = getattr(report, "reason", None)
            if status == "failed" or (status == "partial" and reason is not None and reason.code in LOSSES):
                self.partial = True
                if reason is not None:
                    self.troubles.append(reason)
        batch = visit.batch
        visit.undone -= 1
        if visit.undone <= 0 or visit.needy:  # else nothing can follow from one report
            self.agenda.append(lambda: self._start_ready(visit, batch))

    @staticmethod
    def _is_ours(state: CallState) -> bool:
        """Tell whether a call failed with a report of ours where its edge asks for the user's own."""
        contract = state.edge.contract if state.edge is not None else None
        return type(state.report) is Report and contract is not None and contract.report is not Report

    def _batch_done(self, visit: Visit) -> None:
        """Apply what the callees wrote, in call order, and enter the caller again with the reports."""
        token, batch = visit.token, visit.batch
        rules = token.frame.rules
        parts: list[list[Written]] = []
        for state in batch:
            part = list(state.updates)
            into = state.edge.contract.into if state.edge is not None and state.edge.contract is not None else None
            if into is not None:
                try:
                    part.append(Written(rules.validate({into: state.report}), visit.path))
                except ContractError as error:
                    if not self._is_ours(state):  # a failure is always our Report: the inbox has it, the field cannot
                        self._batch_failed(visit, self.trouble("contract", error, visit.path))
                        return
            parts.append(part)
        if any(parts):
            before = token.updates
            conflict = self.combine(token, token.context, parts, visit.station.name)
            if before is not None:
                token.updates = before if conflict is not None else before + (token.updates or [])
            if conflict is not None:
                self._batch_failed(visit, conflict)
                return
        if visit.talk is not None:
            self.agent_reports(visit)
            return
        visit.batch = ()
        self.reenter(visit, tuple(Message(state.to, state.report) for state in batch))

    def _batch_failed(self, visit: Visit, trouble: Trouble) -> None:
        """Let an attempt fail on what its callees brought; an agent's tools may still be under way."""
        visit.batch = ()
        if visit.talk is not None:
            self.break_off(visit, trouble)
        else:
            self.attempt_failed(visit, trouble)


def _awaits(visit: Visit, batch: tuple[CallState, ...]) -> bool:
    """Tell whether a visit still waits for a batch."""
    waits = visit.standing is Standing.SUSPENDED or (visit.standing is Standing.RUNNING and visit.talk is not None)
    return waits and visit.batch is batch and visit.closing is None


def _depth_limit(frame: Frame) -> float | None:
    """Return the `max_depth` of the innermost graph around a frame that leaves no further delegation below it."""
    around: Frame | None = frame
    while around is not None:
        limit = around.tables.graph.max_depth
        if not around.is_node and limit is not None and frame.depth - around.depth >= limit:
            return float(limit)
        around = around.owner.token.frame if around.owner is not None else None
    return None


def _boundary(target: str, about: str, report: type[BaseModel]) -> str:
    only = f"Only what {target!r} is for{': ' if about else ''}{about.removesuffix('.')}. "
    return only + f"Nothing beyond a {report.__name__}: {', '.join(report.model_fields)}."


def _is_ready(state: CallState, batch: tuple[CallState, ...]) -> bool:
    if state.done or state.started:
        return False
    return not state.needs or all(batch[need].done for need in state.needs)


def _rights_below(visit: Visit, edge: Edge) -> Rights:
    """Let a callee use no tool that its caller may not use, but for those that the edge grants."""
    outer, caller = visit.token.frame.rights, visit.station.node
    rights, deny = (caller.rights, caller.deny) if isinstance(caller, Agent) else (None, None)
    allowed, granted, denies = outer
    if deny is not None:
        denies = (*denies, deny)
    elif rights is None and allowed is None:
        return outer
    if rights is not None:
        allowed = rights if allowed is None else allowed & rights
    if allowed is not None:
        by_edge = frozenset(edge.contract.grant if edge.contract is not None else ())
        granted = (granted & allowed) | (by_edge - allowed)  # also by an edge further up
        allowed |= by_edge
    return Rights(allowed, granted, denies)


def _failed_need(batch: tuple[CallState, ...], state: CallState) -> CallState | None:
    """Return the first of the calls that a call needs whose report is a failure; None if there is none."""
    needed = (batch[need] for need in state.needs)
    return next((found for found in needed if getattr(found.report, "status", "done") == "failed"), None)


def _ordered_needs(outcome: Delegate, path: str) -> list[tuple[int, ...]]:
    """Return the positions that each call needs.

    Raises:
        InvalidDelegate: if the batch is empty, an id stands twice, a need is unknown, or the needs form a cycle.
    """
    ids: dict[str, int] = {}
    for position, call in enumerate(outcome.calls):
        name = call.id or str(position)
        if name in ids:
            msg = f"{path!r} delegated two calls with the id {name!r}: ids are unique in a batch."
            raise InvalidDelegate(msg)
        ids[name] = position
    if not ids:
        msg = f"{path!r} returned an empty Delegate: it needs at least one Call; return an output to go on instead."
        raise InvalidDelegate(msg)
    needs: list[tuple[int, ...]] = []
    for call in outcome.calls:
        unknown = [need for need in call.needs if need not in ids]
        if unknown:
            known = ", ".join(map(repr, ids))
            msg = (
                f"{path!r}: the call {call.id or call.to!r} needs {unknown[0]!r}, which is no id of its batch: {known}."
            )
            raise InvalidDelegate(msg)
        needs.append(tuple(ids[need] for need in call.needs))
    done: set[int] = set()
    while len(done) < len(needs):
        free = [i for i, need in enumerate(needs) if i not in done and done.issuperset(need)]
        if not free:
            stuck = ", ".join(repr(name) for name, position in ids.items() if position not in done)
            msg = f"{path!r}: the needs of the calls {stuck} form a cycle, so none of them could start."
            raise InvalidDelegate(msg)
        done.update(free)
    return needs
