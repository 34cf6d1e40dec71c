"""Frames: the root, delegations and graphs inside graphs: how each opens, and what comes back when it closes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from graphflow.errors import ContractError
from graphflow.events import CHECKED, Earlier, FrameClosed, FrameOpened, Granted
from graphflow.graphs.blaming import Blaming
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.context import Context, ContextRules, question_field, question_of, rules_of
from graphflow.model.contract import Brief, Reason, Report
from graphflow.model.frozen import class_of
from graphflow.model.ids import Path, path_text
from graphflow.model.outcome import NOTHING
from graphflow.nodes.edges import Terminal
from graphflow.runtime.core import Core, thread_of
from graphflow.runtime.ledger import ONE_RUN, Meter, amounts_of
from graphflow.runtime.nesting import begun_with, note_answer
from graphflow.runtime.tables import Counters, Frame, Inbox, Standing, ThreadLog, Token, Visit, Written, alive


class Frames(Core):
    """How frames open and close."""

    __slots__ = ()

    # --- opening ---

    def open_root(self, graph: Graph[Any], context: Context, budget: Budget, after: Earlier | None) -> None:
        """Open the root's frame and let its token begin; what an earlier run said and spent counts on."""
        meter = Meter((), budget)
        tables = graph.compiled
        frame = Frame((), tables, self._rules(graph), meter, Counters(), depth=0, depth_left=graph.max_depth)
        self.root = frame
        if after is not None:
            self._continue(frame, after)
        self._set_aside(frame)
        self._begin_frame(frame, context, (), None)

    def _rules(self, graph: Graph[Any]) -> ContextRules:
        """Return how updates are taken; a run that was stored before edition 2 has trusted its reducers."""
        rules = rules_of(graph.context)
        return rules if self.edition >= CHECKED else rules.trusting()

    def _continue(self, frame: Frame, after: Earlier) -> None:
        """Go on with the thread and the spending of an earlier run."""
        frame.meter.spend(amounts_of(after.spent))
        self.spent_by_node = {name: list(amounts_of(spent)) for name, spent in after.by_node.items()}
        self.spent_by_edge = {name: list(amounts_of(spent)) for name, spent in after.by_edge.items()}
        calls = {call.id for message in after.thread for call in message.calls}
        frame.thread = ThreadLog(list(after.thread), calls, active=after.active)

    def _begin_frame(self, frame: Frame, context: Any, inbox: Inbox, updates: list[Written] | None) -> None:
        """Put a graph frame's token at START and let it go."""
        token = Token(frame, None, None, frame.counters, (), 0, Terminal.START, context, updates)
        frame.token = token
        self.leave(token, frame.tables.start, None, inbox)

    def _set_aside(self, frame: Frame) -> None:
        """Reserve the one node run of an escalation, if the account has it."""
        if frame.tables.graph.escalate is not None and frame.meter.refusing(ONE_RUN) is None:
            frame.meter.reserve(ONE_RUN)
            frame.set_aside = True

    def _graph_frame(self, visit: Visit, graph: Graph[Any], path: Path, meter: Meter, *, delegated: bool) -> Frame:
        outer = visit.token.frame
        depth = outer.depth + delegated
        left = outer.depth_left
        if delegated and left is not None:
            left -= 1
        if graph.max_depth is not None:
            left = graph.max_depth if left is None else min(left, graph.max_depth)
        if graph.budget is not None:
            meter = Meter(path, graph.budget, meter)
        rules = self._rules(graph)
        frame = Frame(path, graph.compiled, rules, meter, Counters(), depth=depth, depth_left=left)
        frame.owner = visit
        frame.edge = visit.edge.name
        frame.rights = outer.rights
        self._set_aside(frame)
        self._set_deadline(frame, graph)
        return frame

    def _set_deadline(self, frame: Frame, graph: Graph[Any]) -> None:
        """A nested graph's seconds end its activation, as a bound that it hits."""
        if graph.budget is None or graph.budget.seconds is None:
            return
        seconds = graph.budget.seconds
        frame.deadline = self.set_timer(
            self.at + seconds, frame.path, "deadline", lambda: self.frame_overdue(frame, seconds)
        )

    def open_nested(self, visit: Visit) -> None:
        """Open the frame of a graph that a token entered by next, map, handoff or error edge."""
        if visit.standing is not Standing.NESTED:
            return  # cancelled between the two
        graph: Graph[Any] | Any = visit.station.node
        token = visit.token
        outer = token.frame
        try:
            context, shared = self._nested_context(graph, visit, outer)
        except Exception as error:  # noqa: BLE001 - a user's enter= may raise anything
            fits = self.edition < CHECKED or not isinstance(error, ContractError)
            self.attempt_failed(visit, self.trouble("failed" if fits else "contract", error, visit.path))
            return
        try:
            begun = begun_with(visit, graph, shared=shared) if self.views else None
        except Exception as error:  # noqa: BLE001 - a user's history= may raise anything
            trouble = self.trouble("failed", error, visit.path)
            self.attempt_failed(visit, trouble.saying(f"history= of {graph.name!r} raised: {trouble.reason.text}"))
            return
        frame = self._graph_frame(visit, graph, visit.path, outer.meter, delegated=False)
        visit.frame = frame
        if visit.inner_visits is not None:
            self._count_on(frame, visit.inner_visits)
        visit.inner_visits = frame.visits
        self.decisions.append(FrameOpened(frame.path, graph.name, frame.depth, visit.edge.name))
        if begun is not None:
            frame.thread, boundary = begun
            self.decisions.append(boundary)
        if visit.edge.name.kind == "handoff":
            thread_of(token).active = visit.station.name
        self._begin_frame(frame, context, visit.inbox, [] if shared else None)

    @staticmethod
    def _count_on(frame: Frame, visits: dict[Any, int]) -> None:
        """Let the visits of a further attempt count on from those of the last, so that every path stays unique."""
        frame.visits, frame.earlier = visits, dict(visits)

    def _nested_context(self, graph: Graph[Any], visit: Visit, outer: Frame) -> tuple[Any, bool]:
        """Return the context that a nested graph starts with, and whether its updates flow out."""
        if graph.enter is not None:
            with Blaming(f"Graph({graph.name!r})", "enter", graph.enter):
                entered: Any = graph.enter(self.state(visit.token, visit.inbox, visit.path))
            if not isinstance(entered, graph.context):
                msg = f"enter= of {graph.name!r} gave a {type(entered).__name__}, not a {graph.context.__name__}."
                raise ContractError(msg)
            if self.edition >= CHECKED:
                try:
                    rules_of(class_of(entered)).check(entered)
                except ContractError as error:
                    msg = f"what enter= of {graph.name!r} gave does not fit: {error}"
                    raise ContractError(msg) from error
            return entered, False
        if graph.context is outer.tables.graph.context and visit.edge.name.kind != "delegate":
            return visit.token.context, True
        by_handoff = visit.edge.name.kind == "handoff" and self.edition > 0
        return fresh_context(graph.context, visit.inbox, visit.token.context if by_handoff else None), False

    # --- closing ---

    def reach_end(self, token: Token, inbox: Inbox) -> None:
        """End a graph's frame with what reached END, when its losers have ended too."""
        frame = token.frame
        token.at = Terminal.END
        if frame.is_node:  # over an error edge: the failure is handled, and what arrived here is the report
            self.finish_node_frame(token, inbox[0].value, counts=False)
        elif frame.detached:
            frame.ending = lambda: self._finish_graph_frame(frame, token, inbox)
        else:
            self._finish_graph_frame(frame, token, inbox)

    def _finish_graph_frame(self, frame: Frame, token: Token, inbox: Inbox) -> None:
        if not alive(token):
            return
        graph = frame.tables.graph
        try:
            output = self._output(graph, token, inbox)
        except Exception as error:  # noqa: BLE001 - a user's leave= may raise anything
            code = "contract" if isinstance(error, ContractError) else "failed"
            self.fail_frame(frame, self.trouble(code, error, frame.path))  # type: ignore[arg-type]  # both are codes
            return
        owner = frame.owner
        if owner is None:
            note_answer(frame, token, inbox, output)
            self.finish_run(output, token.context)
            return
        self.close_frame(frame)
        if token.updates:
            owner.token.context = token.context
            if owner.token.updates is not None:
                owner.token.updates.extend(token.updates)
        self.agenda.append(lambda: self._complete_if_open(owner, output))

    def _complete_if_open(self, owner: Visit, output: Any) -> None:
        if owner.standing is Standing.NESTED:
            owner.frame = None
            self.complete(owner, output)

    def _output(self, graph: Graph[Any], token: Token, inbox: Inbox) -> Any:
        if graph.leave is not None:
            with Blaming(f"Graph({graph.name!r})", "leave", graph.leave):
                output: Any = graph.leave(self.state(token, inbox, token.frame.path))
        elif len(inbox) > 1:
            output = tuple(message.value for message in inbox)
        else:
            output = inbox[0].value if inbox else NOTHING
        if graph.output is not None:
            try:
                output = TypeAdapter(graph.output).validate_python(None if output is NOTHING else output)
            except ValidationError as error:
                wanted = getattr(graph.output, "__name__", graph.output)
                msg = f"the output of {graph.name!r} is no {wanted}: {error.errors()[0]['msg']}."
                raise ContractError(msg) from error
        return output

    def finish_node_frame(self, token: Token, report: Any, *, counts: bool = True) -> None:
        """End a callee node's frame with its report."""
        frame = token.frame
        owner = frame.owner
        assert owner is not None  # noqa: S101 - a callee has a caller
        if report is None:
            reason = Reason(code="no_route", text="it ended without a report", path=path_text(frame.path))
            report = Report.failed(reason)
        owner.batch[frame.call].updates = token.updates or ()
        self.close_frame(frame, report)
        self.call_done(owner, frame.call, report, counts=counts)

    def close_frame(self, frame: Frame, report: Any = None) -> None:
        """Settle a frame's accounts, and say that it has closed."""
        if frame.closed:
            return
        frame.closed = True
        if frame.timer is not None:
            self.drop_timer(frame.timer)
            self.busy -= frame.left is None
            self.timed_frames.remove(frame)
            frame.timer = None
        elif frame.left is not None:
            self.timed_frames.remove(frame)
        if frame.deadline is not None:
            self.drop_timer(frame.deadline)
        if frame.set_aside:
            frame.set_aside = False
            frame.meter.release(ONE_RUN)
        path = frame.opened or frame.path
        if frame.grant is not None:
            frame.meter.close_split(frame.grant)
            self.decisions.append(Granted(path, frame.grant, open=False))
        self.account(frame)
        frame.token = None  # nothing refers to itself, so that nothing waits for the garbage collector
        if frame.owner is None or frame.is_node or frame.owner.edge.name.kind != "delegate":
            self.decisions.append(FrameClosed(path, report))  # a delegated graph closes with its call's report

    def contract_of(self, frame: Frame) -> type[BaseModel] | None:
        """Return the report that a callee owes its caller; None for a frame that is no callee node's."""
        if not frame.is_node or frame.owner is None:
            return None
        edge = frame.owner.batch[frame.call].edge
        return edge.contract.report if edge is not None and edge.contract is not None else Report

    def checked_report(self, frame: Frame, value: Any) -> Any:
        """Return a value as the report that a callee frame's edge asks for.

        Raises:
            ContractError: if it is none.
        """
        owner = frame.owner
        assert owner is not None  # noqa: S101 - a callee has a caller
        edge = owner.batch[frame.call].edge
        wanted = Report if edge is None or edge.contract is None else edge.contract.report
        if isinstance(value, wanted):
            return value
        if isinstance(value, Report) and value.status == "failed":
            return value
        if wanted is Report and isinstance(value, str) and value.strip():
            return Report(finding=value)
        shown = "nothing" if value is NOTHING else f"a {type(value).__name__}"
        msg = (
            f"{edge.target if edge is not None else '?'!r} reports to {owner.station.name!r} and owes it a "
            f"{wanted.__name__}{' or a str that is not empty' if wanted is Report else ''}, not {shown}."
        )
        raise ContractError(msg)


def fresh_context(kind: type[Context], inbox: Inbox, giver: Context | None = None) -> Any:
    """Return a nested graph's own context: its first field, if a str, gets the objective, note or text.

    With a handoff goes the user's message too, so that a handoff without a note, of a `giver`, brings that.

    Raises:
        ValidationError: if a required field is left over.
    """
    first = question_field(kind)
    if first is None:
        return kind()
    value = inbox[0].value if inbox else None
    text = value.objective if isinstance(value, Brief) else value if isinstance(value, str) else None
    if giver is not None and value in (None, ""):
        text = question_of(giver) or text
    if text is None and isinstance(value, Report):
        text = value.finding
    if text is None and not kind.model_fields[first].is_required():
        return kind()
    return kind(**{first: "" if text is None else text})
