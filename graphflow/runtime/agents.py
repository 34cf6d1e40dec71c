"""Agents as state machines: ask the model, let its calls run, tell it the results, until it answers.

A turn settles before anything follows: tools and delegations run, at once, then questions go to people, then the first
transfer in call order hands over; every other transfer is answered "not executed". Model and tool calls are effects,
each with an event when it starts and one when it ends, so nothing of an agent is ever done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphflow.errors import ContractError, EmptyAnswer, ModelRefused, NodeTimeout
from graphflow.events import EffectFinished, Failure, Paused
from graphflow.model.contract import Reason, Report
from graphflow.model.cutting import shown_within
from graphflow.model.ids import path_text
from graphflow.model.outcome import NOTHING
from graphflow.model.state import Message, State
from graphflow.model.thread import capped, data, shown, spoken
from graphflow.nodes.agent import Agent, Supervisor
from graphflow.nodes.client import ModelReply
from graphflow.nodes.replies import read_reply
from graphflow.nodes.tools import Tool
from graphflow.runtime.asking import (
    SUPERVISOR_TEXT,
    json_instructions,
    manner_of,
    read_answer,
    with_own_ids,
)
from graphflow.runtime.attempts import may_retry
from graphflow.runtime.commands import CancelBody
from graphflow.runtime.core import thread_of
from graphflow.runtime.modelcalls import length_of
from graphflow.runtime.tables import Asked, Closing, Standing, Talk, Trouble, Visit, Wish
from graphflow.runtime.views import entry_of
from graphflow.runtime.wishes import Wishes

REFUSED: Final = f"{ModelRefused.__module__}.{ModelRefused.__qualname__}"

OWN = (Standing.QUEUED, Standing.RUNNING)
"""Where an agent's visit has something of its own to do, and is counted as busy."""


class Agents(Wishes):
    """The life of an agent's visit."""

    __slots__ = ()

    # --- turns ---

    def agent_begins(self, visit: Visit) -> None:
        """Begin an attempt: the first turn, or, after a failure, one more."""
        if visit.talk is not None:
            visit.talk.wishes, visit.talk.turn_said = (), ()
            visit.talk.unknown = visit.talk.unknown_before  # the turn is done again
            if self._turns_are_over(visit):
                return
            visit.turn += 1
        self.request_slot(visit)

    def agent_turn(self, visit: Visit, turn: int) -> None:
        """Ask the model in a turn, now that the visit holds a slot, unless it was cancelled meanwhile."""
        if visit.turn != turn or visit.standing is not Standing.RUNNING or visit.closing is not None:
            return
        if visit.talk is not None or self._entered(visit):
            self.ask_model(visit)

    def _entered(self, visit: Visit) -> bool:
        """Work out what an agent sees; tells whether it can go on."""
        node, token = visit.station.node, visit.token
        assert isinstance(node, Agent)  # noqa: S101 - only agents come here
        frame = token.frame
        log = thread_of(token)
        allowed, given, _ = frame.rights
        if node.rights is not None:
            allowed = node.rights if allowed is None else allowed & node.rights
        owed = self.contract_of(frame) if frame.is_node else None
        manner = manner_of(visit.station, frame.tables.stations, allowed, owed, self.edition)
        asked, instructions = "instructions=", node.instructions
        try:
            system = instructions if isinstance(instructions, str) else self._system(visit, node.name, instructions)
            asked = "history="
            granted = tuple(sorted(name for name in given if name in manner.offers)) if given else ()
            view, boundary = entry_of(visit, log, granted)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._own_done(visit)
            trouble = self.trouble("failed", error, visit.path)
            self.attempt_failed(visit, trouble.saying(f"{asked} of {node.name!r} raised: {trouble.reason.text}"))
            return False
        self.decisions.append(boundary)
        if not system and isinstance(node, Supervisor):
            system = SUPERVISOR_TEXT
        if not manner.native:
            system = json_instructions(system, manner.offers)
        size = len(system) + manner.size + length_of(view)
        visit.talk = Talk(path_text(visit.path), log, system, view, node, node.model, manner, owed, size)
        log.active = node.name
        return True

    def _system(self, visit: Visit, name: str, instructions: Callable[[State[Any]], str]) -> str:
        """Return what a function of instructions makes of the state.

        Raises:
            Exception: whatever that function raises.
        """
        text: object = instructions(self.state(visit.token, visit.inbox, visit.path))
        if not isinstance(text, str):
            msg = f"instructions= of {name!r} gave a {type(text).__name__}, not a text."
            raise TypeError(msg)
        return text

    def _next_turn(self, visit: Visit) -> None:
        """Tell the model what came of its calls, if it may be asked again."""
        self._commit_turn(visit)
        if self._turns_are_over(visit):
            return
        visit.turn += 1
        if visit.standing is Standing.RUNNING and visit.slot:
            self.drop_timer(visit.timer)
            visit.timer = visit.deadline = None
            self.ask_model(visit)
        else:
            self._own_done(visit)
            self.request_slot(visit)

    def _commit_turn(self, visit: Visit) -> None:
        """Put what a settled turn has said into the thread."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has a turn
        made = talk.turn_said
        for wish in talk.wishes:
            text = (wish.result or "") + (f"\n[{wish.note}]" if wish.note else "")
            if wish.evidence:  # noted here, in call order, whichever came first
                self.new_evidence(visit.token, wish.key, wish.evidence)
            made += (spoken("tool", text, (), wish.call.id, wish.failed, wish.source),)
        talk.messages += made
        talk.size += length_of(made)
        talk.log.items.extend(made)
        talk.turn_said, talk.wishes = (), ()
        talk.unknown_before = talk.unknown

    def _turns_are_over(self, visit: Visit) -> bool:
        """End a visit at its `max_turns` if it has had them all."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has a turn
        node = talk.agent
        if visit.turn + 1 < node.max_turns:
            return False
        wanted = f"a further call of the model of {node.name!r}"
        self._own_done(visit)
        self.agent_bound(visit, self.refuse(visit.path, "max_turns", float(node.max_turns), wanted))
        return True

    # --- what an effect brought ---

    def agent_effect(self, visit: Visit, fact: EffectFinished) -> None:
        """Go on with what a model or a tool brought."""
        if visit.closing is not None:
            if not visit.flying:
                self._agent_gone(visit)
        elif visit.deadline is not None and self.at > visit.deadline:
            self.agent_overdue(visit)
        elif fact.key == "model":
            self._replied(visit, fact)
        else:
            self.tool_ended(visit, fact)

    def _replied(self, visit: Visit, fact: EffectFinished) -> None:
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        if fact.failure is not None:
            self._unanswered(visit, fact.failure)
            return
        reply = fact.result
        if not isinstance(reply, ModelReply):
            error = ContractError(f"the model of {talk.agent.name!r} gave a {type(reply).__name__}, not a ModelReply.")
            self.fail_agent(visit, self.trouble("contract", error, visit.path))
            return
        text, wanted, answer_json = reply.text, reply.calls, ""
        if not wanted and not talk.manner.native:
            decided = read_reply(reply, native=False, answer=talk.manner.answer, edition=self.edition)
            if decided.problem:
                self._send_back(visit, decided.text, decided.problem, nothing=decided.nothing)
                return
            text, wanted, answer_json = decided.text, decided.calls, decided.answer_json
        if not wanted:
            self._answered(visit, text, answer_json)
            return
        calls = with_own_ids(wanted, talk.log.ids, visit.turn)
        talk.turn_said += (spoken("assistant", text, calls, "", False, talk.source),)  # noqa: FBT003 - as the fields
        talk.finding = text.strip() or talk.finding
        trouble = self.make_wishes(visit, calls)
        if trouble is not None:
            self.fail_agent(visit, trouble)
            return
        stopped = self.repeats(visit)
        if stopped is not None:
            self.agent_bound(visit, stopped)
            return
        self.start_wishes(visit)
        self.settle_turn(visit)

    def _unanswered(self, visit: Visit, failure: Failure) -> None:
        """Ask again, or the next model in line, or fail: the model gave no reply."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        refused = REFUSED in failure.lineage
        trouble = self.raised(visit, failure)
        if (refused or not may_retry(visit)) and failure.code != "cancelled":
            following, models = talk.model + 1, talk.agent.models
            if following < len(models):
                talk.model, talk.client = following, models[following]
                talk.moved, refused = visit.attempt + 1, False
        self.fail_agent(visit, trouble, final=refused)

    # --- a turn settles ---

    def settle_turn(self, visit: Visit) -> None:
        """See what is left to do in a turn: tools, reports, questions, a transfer, the next call of the model."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has a turn
        if talk.has_tools:
            self.start_next_in_line(visit)
            if any(wish.under_way for wish in talk.wishes):
                if not visit.flying:
                    self.free_slot(visit)  # it waits for funds: who holds them may be waiting for its slot
                return
        if visit.batch:
            self._wait_for_others(visit, Standing.SUSPENDED)
            return
        transfer, waits = None, False
        for wish in talk.wishes:
            if wish.kind == "transfer":
                transfer = transfer or wish
            elif wish.result is None and wish.needs_person:
                if not wish.asked and self.may_be_asked(visit, wish):
                    self._ask_person(visit, wish)
                waits = waits or wish.result is None
        if waits:
            self._wait_for_others(visit, Standing.PAUSED)
        elif transfer is not None:
            self._transfer(visit, transfer)
        else:
            self._next_turn(visit)

    def _wait_for_others(self, visit: Visit, standing: str) -> None:
        """Hold nothing while a visit waits for others."""
        self._own_done(visit)
        visit.standing = standing

    def _own_done(self, visit: Visit) -> None:
        """Note that a visit has nothing of its own to do any more."""
        if visit.standing in OWN:
            self.busy -= 1
            visit.standing = Standing.SUSPENDED
        self.free_slot(visit)
        visit.deadline = None
        if visit.timer is not None:
            self.drop_timer(visit.timer)
            visit.timer = None

    def agent_reports(self, visit: Visit) -> None:
        """Give the model the reports of its team, in call order."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        asks = [wish for wish in talk.wishes if wish.kind == "ask"]
        for wish, state in zip(asks, visit.batch, strict=True):
            report = state.report
            wish.failed = getattr(report, "status", "done") == "failed"
            if state.frame is None and isinstance(report, Report) and report.reason is not None:  # it never started
                wish.result = f"not executed: {report.reason.text} Work with what you have."
            else:
                wish.source = path_text(state.frame.opened) if state.frame is not None else ""
                wish.result = data("report", wish.source, shown_within(report))
            if isinstance(report, Report) and report.status == "done":
                talk.reports += (report,)
                if visit.token.frame.tables.graph.detect:
                    wish.evidence = f"{report.finding} {report.evidence}"
        visit.batch = ()
        self.settle_turn(visit)

    def _ask_person(self, visit: Visit, wish: Wish) -> None:
        wish.asked = True
        text, schema = self.question_of(visit, wish)
        question = f"{path_text(visit.path)}?{visit.turn}.{wish.position}"
        self.questions[question] = Asked(visit, text, schema, wish.position)
        self.decisions.append(Paused(visit.path, question, text))

    def agent_answered(self, visit: Visit, position: int, value: object) -> None:
        """Go on with a person's answer to one of the calls of a turn."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        wish = talk.wishes[position]
        visit.answers += 1
        if isinstance(wish.tool, Tool):
            self.decided(visit, wish, value)
        else:
            wish.result = capped(shown(value))
            talk.worked[wish.call.name] = True
        self.settle_turn(visit)

    def _transfer(self, visit: Visit, wish: Wish) -> None:
        """Hand over; the other transfers of the turn are not executed."""
        talk, token = visit.talk, visit.token
        edge = wish.edge
        assert talk is not None and edge is not None  # noqa: S101, PT018 - it has a turn, and a transfer has one
        refused = self.hop_refused(token, edge)
        wish.failed = refused is not None
        wish.result = f"Control goes over to {edge.target}." if refused is None else f"not executed: {refused.text}"
        for other in talk.wishes:
            if other.result is None:
                if self.edition:
                    second = f"a second transfer of a turn, by {other.call.name!r}"
                    self.refuse(visit.path, "transfers", 1.0, second)
                other.result = f"not executed: the first transfer of a turn counts, which went to {edge.target}."
                if refused is not None:
                    other.result = wish.result
                other.failed = True
        note = wish.arguments["note"]
        talk.log.noted = wish.call.id
        self._commit_turn(visit)
        self._own_done(visit)
        token.frame.offers = self._offers(visit)
        self.end_visit(visit, "completed")
        if refused is None:
            self.hop(token, edge, (Message(visit.station.name, note),) if note or not self.edition else ())
        else:
            self.hit_bound(token, refused)

    # --- answers ---

    def _answered(self, visit: Visit, text: str, answer_json: str) -> None:
        """Take an answer, or send it back."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        if not text.strip():
            self._send_back(visit, "", "it is empty", nothing=True)
            return
        try:
            output = read_answer(talk.manner.kind, text, answer_json)
            if not isinstance(output, str):
                output = _own_words(output)
            if talk.worked:
                output = self._honest(visit, output)
            fits = talk.agent.into is None and (talk.owed is None or isinstance(output, talk.owed))
            problem = "" if fits else self._unfit(visit, output)
        except ValueError as error:
            problem, output = str(error), NOTHING
        if problem:
            self._send_back(visit, text, problem)
            return
        talk.turn_said += (spoken("assistant", text, (), "", False, talk.source),)  # noqa: FBT003 - as the fields
        self._commit_turn(visit)
        talk.log.finals[talk.agent.name] = (talk.source, output)
        self._own_done(visit)
        self.complete(visit, output)

    def _honest(self, visit: Visit, output: object) -> object:
        """Let an answer be at most partial where a tool that it called has never worked."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has answered
        if all(talk.worked.values()):
            return output
        broken = sorted(name for name, worked in talk.worked.items() if not worked)
        if isinstance(output, str) and talk.owed is Report:
            output = Report(finding=output)
        if not isinstance(output, Report) or output.status != "done":
            return output
        text = f"every call of {', '.join(map(repr, broken))} failed"
        reason = Reason(code="tool", text=text, path=path_text(visit.path))
        return output.model_copy(update={"status": "partial", "reason": reason})

    def _unfit(self, visit: Visit, output: object) -> str:
        """Say why an answer does not fit where it goes; "" if it does."""
        frame, into = visit.token.frame, visit.station.node.into
        try:
            if frame.is_node:
                self.checked_report(frame, output)
            if into is not None:
                frame.rules.validate({into: output})
        except ContractError as error:
            return str(error)
        return ""

    def _send_back(self, visit: Visit, text: str, problem: str, *, nothing: bool = False) -> None:
        """Ask for a better answer, or fail when that has been done often enough; `nothing`: it says none at all."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has answered
        if talk.repairs >= talk.agent.repairs:
            times = (
                f" It was told so {'once' if talk.repairs == 1 else f'{talk.repairs} times'}." if talk.repairs else ""
            )
            shown_path, code = path_text(visit.path), "contract"
            if not nothing:
                why = problem.rstrip(".")
                error: Exception = ContractError(f"the answer of {shown_path!r} does not fit: {why}.{times}")
            else:
                code, error = "empty_answer", EmptyAnswer(f"{shown_path!r} answered nothing.{times}")
            self.fail_agent(visit, self.trouble(code, error, visit.path))  # type: ignore[arg-type]  # both are codes
            return
        talk.repairs += 1
        if text:
            talk.turn_said += (spoken("assistant", text, source=talk.source),)
        ask = f"Your answer was not accepted: {capped(problem, 2_000).rstrip('.')}. Answer again."
        talk.turn_said += (spoken("user", ask, source="graphflow"),)
        self._next_turn(visit)

    # --- how it goes wrong ---

    def fail_agent(self, visit: Visit, trouble: Trouble, *, final: bool = False) -> None:
        """Let the attempt fail, for good if it is final; nothing of the agent is under way."""
        self._own_done(visit)
        self.attempt_failed(visit, trouble, final=final)

    def agent_bound(self, visit: Visit, reason: Reason, again: Callable[[], None] | None = None) -> None:
        """Stop an agent at a bound, with what it can offer."""
        self._own_done(visit)
        self.stop_at_bound(visit, reason, self._offers(visit), again)

    @staticmethod
    def _offers(visit: Visit) -> tuple[Report, ...]:
        talk = visit.talk
        if talk is None:
            return ()
        found = (Report(finding=talk.finding),) if talk.finding else ()
        return (*found, *talk.reports)

    def agent_overdue(self, visit: Visit) -> None:
        """Let the attempt fail because its turn took too long."""
        limit = visit.station.node.timeout or 0.0
        late = 0.0 if visit.deadline is None else self.at - visit.deadline
        error = NodeTimeout(path_text(visit.path), limit, limit + late)
        self.break_off(visit, self.trouble("timeout", error, visit.path, limit=limit))

    def break_off(self, visit: Visit, trouble: Trouble) -> None:
        """Cancel all that an agent has under way, then let its attempt fail."""
        if visit.closing is not None:
            return

        def broken() -> None:
            visit.closing = None
            visit.batch = ()
            self.fail_agent(visit, trouble)

        closing = Closing(broken)
        self._stop(visit, closing)
        self.proceed(closing)

    def cancel_agent(self, visit: Visit, closing: Closing) -> None:
        """Cancel an agent with all that it has under way."""
        under_way = visit.closing
        if under_way is closing:
            return  # a late scope inside another is met twice
        if under_way is not None and under_way.outstanding:
            self.wait_for(under_way, closing)
        else:
            self._stop(visit, closing)
        closing.after.append(lambda: self.end_cancelled(visit))

    def _stop(self, visit: Visit, closing: Closing) -> None:
        for state in visit.batch:
            if state.frame is not None and not state.done:
                self.cancel_child(state.frame, closing)
        for question in [name for name, asked in self.questions.items() if asked.visit is visit]:
            del self.questions[question]
        for wish in visit.talk.wishes if visit.talk is not None else ():
            self.drop_timer(wish.timer)
        for command in visit.due or ():
            key = getattr(command, "key", "")
            if key in visit.flying:  # it was allowed, and has not begun: it used nothing
                self.settle_unused(visit, key)
        visit.due = None
        visit.closing = closing
        if visit.flying:
            closing.outstanding += 1
            self.commands.append(CancelBody(visit.path))
        else:
            self._own_done(visit)
            visit.standing = Standing.ENDED

    def _agent_gone(self, visit: Visit) -> None:
        """Note that the last effect of an agent that was being cancelled has ended."""
        closing = visit.closing
        assert closing is not None  # noqa: S101 - the caller looked
        self._own_done(visit)
        visit.standing = Standing.ENDED
        closing.outstanding -= 1
        self.proceed(closing)


def _own_words(output: object) -> object:
    """Let a report of a model say why in its own words alone: a bound that it names has not been hit."""
    if not isinstance(output, Report) or output.reason is None or output.reason.code == "reported":
        return output
    return output.model_copy(update={"reason": Reason(code="reported", text=output.reason.text)})
