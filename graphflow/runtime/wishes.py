"""What a model wants done: its calls are read, paid for, run, approved, and answered, each exactly once."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from graphflow.errors import UnknownTarget, UnknownTool
from graphflow.events import SECRETIVE, EffectFinished, Failure
from graphflow.model.budget import Budget
from graphflow.model.contract import Approval, Bound, Reason
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import path_text
from graphflow.model.secrets import SHOWN
from graphflow.model.thread import ToolCall, capped, evened, shown
from graphflow.nodes.agent import ASK, TRANSFER, Agent
from graphflow.nodes.tools import AskUser, Tool
from graphflow.runtime.asking import Offer, problems_text, validator_of
from graphflow.runtime.commands import CallTool, CancelCall
from graphflow.runtime.core import group_of
from graphflow.runtime.ledger import Amounts
from graphflow.runtime.modelcalls import ModelCalls, is_at_work
from graphflow.runtime.tables import Standing, Talk, Trouble, Visit, Wish

WRONG_NAMES = 3
"""How many wrong names in a row fail an agent."""

ONE_TOOL: Amounts = (0, 0, 1, 0, 0, 0)
ONE_TOOL_AGAIN: Amounts = (0, 0, 1, 1, 0, 0)


class Wishes(ModelCalls):
    """The calls that a model wants made."""

    __slots__ = ()

    # --- reading its calls ---

    def make_wishes(self, visit: Visit, calls: Sequence[ToolCall]) -> Trouble | None:
        """Read the calls of a reply; return the failure of too many wrong names in a row."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        wishes: list[Wish] = []
        talk.wishes, talk.has_tools = wishes, False
        for position, call in enumerate(calls):
            offer = talk.manner.offers.get(call.name)
            talk.unknown = talk.unknown + 1 if offer is None else 0
            wish = self._unknown(visit, call) if offer is None else self._known(call, offer)
            wish.position = position
            if wish.kind == "tool":
                talk.has_tools = True
            wishes.append(wish)
            if talk.unknown >= WRONG_NAMES:
                return self._too_many_wrong_names(visit, call)
        return None

    def repeats(self, visit: Visit) -> Reason | None:
        """Let the detectors look at the calls of a turn; return the bound that stops the agent."""
        talk, token = visit.talk, visit.token
        if talk is None or not token.frame.tables.graph.detect:
            return None
        for wish in talk.wishes:
            if wish.kind in ("tool", "ask"):
                given = shown(evened(wish.arguments))
                wish.key = (wish.kind, visit.station.name, wish.call.name, given)
                sight = self.step_taken(token, visit.path, wish.key, f"{wish.call.name} with the same arguments")
                if sight.stop is not None:
                    stop: Reason = sight.stop
                    return stop
                wish.note = sight.note
        return None

    def _unknown(self, visit: Visit, call: ToolCall) -> Wish:
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        prefix = next((start for start in (TRANSFER, ASK) if call.name.startswith(start)), "")
        known = [name for name in talk.manner.offers if name.startswith(prefix)] or list(talk.manner.offers)
        names = ", ".join(known) or "none: answer in words"
        return _answered(call, f"not executed: there is no tool {capped(call.name, 80)!r}; there are: {names}.")

    def _too_many_wrong_names(self, visit: Visit, call: ToolCall) -> Trouble:
        path, name = path_text(visit.path), capped(call.name, 80)
        if name.startswith(TRANSFER):
            error = UnknownTarget(path, name.removeprefix(TRANSFER), sorted(visit.station.handoffs))
            return self.trouble("unknown_target", error, visit.path)
        if name.startswith(ASK) and visit.station.delegates:
            error = UnknownTarget(path, name.removeprefix(ASK), sorted(visit.station.delegates), "delegate")
            return self.trouble("unknown_target", error, visit.path)
        talk = visit.talk
        return self.trouble("unknown_tool", UnknownTool(path, name, talk.manner.offers if talk else ()), visit.path)

    def _known(self, call: ToolCall, offer: Offer) -> Wish:
        """Read the arguments of a call; what cannot be read is told to the model, and not executed."""
        try:
            match offer.kind:
                case "tool" | "person" if offer.tool is not None:
                    arguments = offer.tool.arguments(call.arguments, whole=self.edition < SECRETIVE)
                    wish = Wish(call, offer.kind, arguments)
                    wish.tool, wish.written = offer.tool, call.arguments
                    return wish
                case "ask" if offer.edge is not None and offer.edge.contract is not None:
                    brief = _read(offer.edge.contract.brief, call)
                    return Wish(call, "ask", {"brief": brief}, edge=offer.edge)
                case _:
                    return Wish(call, "transfer", {"note": _read(_Note, call).note}, edge=offer.edge)
        except ValueError as error:
            return _answered(call, f"not executed: {capped(str(error), 2_000)}")

    # --- running them ---

    def start_wishes(self, visit: Visit) -> None:
        """Start the tools and the delegations of a turn, all at once but the sequential ones."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        asks: list[Wish] = []
        for wish in talk.wishes:
            if wish.kind == "ask":
                asks.append(wish)
            elif wish.kind == "tool" and not wish.needs_person and not getattr(wish.tool, "sequential", False):
                self.start_tool(visit, wish)
        if asks:
            self.ask_team(visit, asks)

    def start_next_in_line(self, visit: Visit) -> None:
        """Start the next sequential tool when the last one has ended; one that a person must approve holds the line."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        for wish in talk.wishes:
            if not isinstance(wish.tool, Tool) or not wish.tool.sequential:
                continue
            if wish.needs_person and wish.result is None:
                return
            if wish.result is None and not wish.under_way:
                self.start_tool(visit, wish)
            if wish.result is None:  # it is under way, or waits for what a person says about others
                return

    def start_tool(self, visit: Visit, wish: Wish) -> None:
        """Run a tool, if nothing speaks against it and it can be paid."""
        if not self.speaks_against(visit, wish):
            self._run_when_paid(visit, wish)

    def speaks_against(self, visit: Visit, wish: Wish) -> bool:
        """Tell whether a call must not be made: a rule denies it, or it is over a limit, and then it is answered.

        Those count that wait for a person before it. Where only they make it too many, it waits, too.
        """
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        against = self._against(visit, wish)
        if against:
            wish.result, wish.failed = f"not executed: {against}", True
        elif not wish.asked:
            before = [other for other in talk.wishes if other.asked and other.result is None and other.kind == "tool"]
            over = self._over_limit(visit, wish, before)
            if over and self.edition:
                sure = [other for other in before if not other.needs_person]
                if not self._over_limit(visit, wish, sure):
                    return True  # of the others one may be rejected: it waits for that
            if over:
                self._over(visit, wish, over)
        return wish.result is not None

    def may_be_asked(self, visit: Visit, wish: Wish) -> bool:
        """Tell whether a person may be asked about a call now, or for it; one that may never be asked is answered."""
        if wish.kind != "person":
            return not self.speaks_against(visit, wish)
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        if not self.edition:  # nothing bounded questions then
            return True
        free = not self.speaks_against(visit, wish)
        talk.tools_run += free
        return free

    def _over(self, visit: Visit, wish: Wish, why: str) -> None:
        """Answer a call that is over a limit of its agent or its tool, and say so as of every bound."""
        talk, tool = visit.talk, wish.tool
        assert talk is not None and tool is not None  # noqa: S101, PT018 - it is a call of one
        if self.edition:
            agent = talk.agent
            all_used = talk.tools_run >= agent.max_tool_calls
            bound: Bound = "max_tool_calls" if all_used else "max_calls"
            limit = agent.max_tool_calls if all_used else tool.max_calls
            self.refuse(visit.path, bound, limit, f"a call of the tool {tool.name!r}")
        self._not_run(visit, wish, why)

    def _run_when_paid(self, visit: Visit, wish: Wish) -> None:
        """Run a tool now, when somebody gives back what it costs, or not at all."""
        wish.under_way = True
        if visit.standing is not Standing.RUNNING:  # it waited for a person
            self.busy += 1
            visit.standing = Standing.RUNNING
        wanted = _tool_costs(wish)
        if not self.is_behind(visit, wanted) and self._tool_paid(visit, wish, last=False):
            return
        funder = functools.partial(self._tool_funded, visit, visit.turn, wish)
        if not self.wait_for_funds(visit, funder, wanted, str(wish.position)):
            self._tool_refused(visit, wish)

    def _tool_funded(self, visit: Visit, turn: int, wish: Wish, last: bool) -> bool:  # noqa: FBT001 - as `Waiting.attempt` is called
        if not is_at_work(visit, turn):
            return True  # it was cancelled
        paid = self._tool_paid(visit, wish, last=last)
        if paid:
            self.agenda.append(lambda: self._settle_if_open(visit, turn))
        return paid

    def _settle_if_open(self, visit: Visit, turn: int) -> None:
        if is_at_work(visit, turn):
            self.settle_turn(visit)

    def _tool_paid(self, visit: Visit, wish: Wish, *, last: bool) -> bool:
        """Try to pay a tool call; tell whether there is nothing to wait for."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has replied
        over = self._over_limit(visit, wish, ())
        if over:  # others came first while it waited
            wish.under_way = False
            self._over(visit, wish, over)
            return True
        wanted = _tool_costs(wish)
        if visit.token.frame.meter.refusing(wanted) is not None:
            if last:
                self._tool_refused(visit, wish)
            return last
        tool = wish.tool
        assert isinstance(tool, Tool)  # noqa: S101 - the others do not run
        talk.tools_run += 1
        if not wish.attempt:
            talk.used[tool.name] = talk.used.get(tool.name, 0) + 1
        key = f"{wish.position}.{wish.attempt}" if wish.attempt else str(wish.position)
        cost = Budget.checked(None, None, 1, 1 if wish.attempt else None, None, None)
        self.start_effect(visit, key, tool.name, wanted, cost)
        self._time_tool(visit, wish, tool, key)
        wish.command = CallTool(
            visit.path, visit.turn, visit.attempt, key, tool, wish.call.id, wish.arguments, visit.token.context,
            group_of(visit.token),
        )  # fmt: skip
        self.with_slot(visit, wish.command)
        return True

    def _time_tool(self, visit: Visit, wish: Wish, tool: Tool, key: str) -> None:
        """Set the time that one call of a tool may take."""
        if tool.timeout is not None:
            self.drop_timer(wish.timer)
            wish.due = self.at + tool.timeout
            wish.timer = self.set_timer(wish.due, visit.path, "timeout", lambda: self._tool_overdue(visit, wish, key))

    # --- a call that was cut off ---

    def call_again(self, visit: Visit, key: str, *, fresh: bool) -> None:
        """Make a call of an agent once more, under the same identity; `fresh`: its time begins anew."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has asked
        wish = _wish_of(talk, key)
        if wish is None:
            if fresh:
                self.time_turn(visit)
            assert talk.asked is not None  # noqa: S101 - that is the call
            self.commands.append(talk.asked)
            return
        assert wish.command is not None  # noqa: S101 - that is the call
        if fresh:
            self._time_tool(visit, wish, wish.command.tool, key)
        self.commands.append(wish.command)

    def call_is_late(self, visit: Visit, key: str) -> bool:
        """Tell whether a call of an agent was being stopped for its timeout."""
        wish = None if visit.talk is None else _wish_of(visit.talk, key)
        return wish is not None and wish.late

    def _tool_refused(self, visit: Visit, wish: Wish) -> None:
        refusing = visit.token.frame.meter.refusing(_tool_costs(wish))
        assert refusing is not None  # noqa: S101 - it has just refused
        reason = self.refused_by(visit, *refusing, f"a call of the tool {wish.call.name!r}")
        wish.under_way = False
        self._not_run(visit, wish, reason.text)

    def _not_run(self, visit: Visit, wish: Wish, why: str) -> None:
        """Answer a call that something refuses: one more attempt of a tool that has failed, or the first."""
        if wish.failure is not None:
            self._tool_failed(visit, wish, wish.failure, f" (after {wish.attempt} attempts; {why})")
        else:
            wish.result, wish.failed = f"not executed: {why} Answer with what you have.", True
            if visit.talk is not None:
                visit.talk.worked.setdefault(wish.call.name, False)  # what it would have found is not known

    @staticmethod
    def _over_limit(visit: Visit, wish: Wish, before: Sequence[Wish]) -> str:
        """Say which limit of the agent or the tool a call is over, with those that come before it; "" if none."""
        talk, tool = visit.talk, wish.tool
        assert talk is not None and tool is not None  # noqa: S101, PT018 - it is a call of one
        if talk.tools_run + len(before) >= talk.agent.max_tool_calls:
            return f"the limit of {talk.agent.max_tool_calls} tool calls is reached."
        used = talk.used.get(tool.name, 0) + sum(other.tool is tool for other in before)
        if not wish.attempt and tool.max_calls is not None and used >= tool.max_calls:
            return f"{tool.name} may be called {tool.max_calls} times, and has been."
        return ""

    def _against(self, visit: Visit, wish: Wish) -> str:
        """Say why a rule denies a tool call; "" if none does."""
        node, tool = visit.station.node, wish.tool
        assert isinstance(node, Agent) and tool is not None  # noqa: S101, PT018 - it is a call of one
        denies = (*visit.token.frame.rights.denies, *(() if node.deny is None else (node.deny,)))
        for deny in denies:
            try:
                why = deny(tool.name, FrozenDict(tool.arguments(wish.written)))  # its own: it could change them
            except Exception as error:  # noqa: BLE001 - a rule that cannot be asked does not allow
                why = f"a rule could not be asked ({type(error).__name__}: {error})"
            if why:
                return f"{tool.name} is denied: {why}"
        return ""

    def _tool_overdue(self, visit: Visit, wish: Wish, key: str) -> None:
        """Stop a tool that takes too long."""
        wish.timer = None
        if wish.under_way and visit.closing is None:
            if any(getattr(command, "key", "") == key for command in visit.due or ()):
                return  # it waits for a slot and has not begun: what it brings is late anyway
            wish.late = True
            self.commands.append(CancelCall(visit.path, key))

    def tool_ended(self, visit: Visit, fact: EffectFinished) -> None:
        """Take what a tool brought: a result, a failure to tell the model, one more attempt, or a failed node."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has called
        wish = talk.wishes[int(fact.key.partition(".")[0])]
        tool = wish.tool
        assert isinstance(tool, Tool)  # noqa: S101 - the others do not run
        self.drop_timer(wish.timer)
        wish.timer, wish.under_way = None, False
        failure = fact.failure
        if tool.timeout is not None and (wish.late or self.at > wish.due):
            text = f"it took longer than its timeout of {tool.timeout:g} s"
            failure = Failure("graphflow.errors.NodeTimeout", text, (), "timeout", tool.timeout)
        wish.late = False
        talk.worked[tool.name] = talk.worked.get(tool.name, False) or failure is None
        if failure is None:
            wish.result, wish.failed = capped(str(fact.result)), False
            wish.evidence = f"{tool.name}: {wish.result}"
        elif wish.attempt < tool.retries:
            wish.failure = failure
            wish.attempt += 1
            wish.arguments = tool.arguments(wish.written)  # what the last attempt did to them is gone
            self._run_when_paid(visit, wish)
        else:
            tried = f" (after {wish.attempt + 1} attempts)" if wish.attempt else ""
            self._tool_failed(visit, wish, failure, tried)
        if is_at_work(visit, fact.turn):
            self.settle_turn(visit)

    def _tool_failed(self, visit: Visit, wish: Wish, failure: Failure, tried: str) -> None:
        """Tell the model that a tool has failed, or let it fail the agent's attempt."""
        tool = wish.tool
        assert isinstance(tool, Tool)  # noqa: S101 - the others do not run
        if tool.on_error == "raise" and failure.code != "declared":
            trouble = self.raised(visit, failure)
            self.break_off(visit, trouble.saying(f"{tool.name}: {trouble.reason.text}{tried}"))
        else:
            wish.result, wish.failed = _failed_text(tool, failure) + tried, True

    def raised(self, visit: Visit, failure: Failure) -> Trouble:
        """Make the failure of a node of what its model or its tool raised."""
        if failure.code == "cancelled":
            return self.stray(visit)
        late = failure.code == "timeout"
        reason = Reason(
            code="timeout" if late else "failed", text=failure.text, path=path_text(visit.path),
            error_type=failure.error_type.rpartition(".")[2], limit=failure.limit,
        )  # fmt: skip
        return Trouble(reason, failure, timed_out=late)

    # --- people ---

    def question_of(self, visit: Visit, wish: Wish) -> tuple[str, Any]:
        """Return what a person is asked about a call, and the type of the answer."""
        tool = wish.tool
        if isinstance(tool, AskUser):
            return str(wish.arguments["question"]), tool.schema
        assert isinstance(tool, Tool)  # noqa: S101 - only these two ask
        text = f"{visit.station.name!r} wants to call {tool.name}({_shown_arguments(wish)}). Approve it?"

        def checked(approval: Approval) -> Approval:
            if approval.arguments is not None:
                tool.arguments(_edited(wish, approval.arguments))
            return approval

        return text, Annotated[Approval, AfterValidator(checked)]

    def decided(self, visit: Visit, wish: Wish, value: object) -> None:
        """Run the tool that a person approved, or tell the model why not."""
        approval, tool = Approval.model_validate(value), wish.tool
        assert isinstance(tool, Tool)  # noqa: S101 - only tools are approved
        wish.approved = True
        if not approval.approve:
            why = f": {approval.reason}" if approval.reason else ". Do not call it again for this"
            wish.result, wish.failed = f"not executed: a person rejected this call{why}.", True
            return
        if approval.arguments is not None:
            wish.written = _edited(wish, approval.arguments)
            wish.arguments = tool.arguments(wish.written)
        if not tool.sequential:  # which has its turn in the line
            self.start_tool(visit, wish)


class _Note(BaseModel):
    model_config = ConfigDict(extra="forbid")

    note: str = ""


def _read(kind: Any, call: ToolCall) -> Any:
    """Read the arguments of a call.

    Raises:
        ValueError: with a text that a model can act on.
    """
    try:
        return validator_of(kind).validate_json(call.arguments if call.arguments.strip() else "{}")
    except ValidationError as error:
        fields = ", ".join(
            f"{name}{' (required)' if field.is_required() else ''}" for name, field in kind.model_fields.items()
        )
        msg = f"the arguments of {call.name} do not fit: {problems_text(error)}. Wanted: {fields}."
        raise ValueError(msg) from None


def _answered(call: ToolCall, text: str) -> Wish:
    wish = Wish(call, "none", {})
    wish.result, wish.failed = text, True
    return wish


def _wish_of(talk: Talk, key: str) -> Wish | None:
    """Return the call of a tool that has a key; None for the call of the model."""
    return None if key == "model" else talk.wishes[int(key.partition(".")[0])]


def _tool_costs(wish: Wish) -> Amounts:
    return ONE_TOOL_AGAIN if wish.attempt else ONE_TOOL


def _failed_text(tool: Tool, failure: Failure) -> str:
    if failure.code in ("declared", "timeout"):
        return f"{tool.name} failed: {capped(failure.text)}"
    return f"{tool.name} failed: {failure.error_type.rpartition('.')[2]}: {capped(failure.text)}"


def _shown_arguments(wish: Wish) -> str:
    hidden = wish.tool.hidden if isinstance(wish.tool, Tool) else frozenset[str]()

    def text(name: str, value: object) -> str:
        if name in hidden:
            return SHOWN
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else shown(value)

    return capped(", ".join(f"{name}={text(name, value)}" for name, value in wish.arguments.items()), 400)


def _thaw(value: Any) -> Any:
    return dict(cast("FrozenDict[str, Any]", value)) if isinstance(value, FrozenDict) else list(value)


def _edited(wish: Wish, changes: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON, with what a person changes."""
    given: Any = json.loads(wish.call.arguments) if wish.call.arguments.strip() else {}
    return json.dumps({**given, **changes}, default=_thaw, ensure_ascii=False)
