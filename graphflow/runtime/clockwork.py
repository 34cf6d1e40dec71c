"""Slots, timers, and effects: what a body may do, when, and at whose cost."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import cast

from graphflow.events import (
    EffectFinished,
    EffectRequested,
    EffectStarted,
    SleepRequested,
    Spent,
    TimerFired,
)
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.contract import Code, Reason
from graphflow.model.ids import names_text
from graphflow.nodes.client import ModelReply, Price
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.commands import (
    CallModel,
    CallTool,
    CancelBody,
    Command,
    DropTimer,
    GoOn,
    RefuseEffect,
    StartBody,
)
from graphflow.runtime.core import group_of
from graphflow.runtime.funding import Funding
from graphflow.runtime.ledger import TOKENS, USD, Amount, Amounts, Meter, amounts_of
from graphflow.runtime.tables import Standing, Visit

EFFECTS = (GoOn, CallModel, CallTool)
"""The commands that let an effect begin, and `GoOn` a sleep end."""


class Clockwork(Funding):
    """When bodies run and what they may do."""

    __slots__ = ()

    # --- slots ---

    def request_slot(self, visit: Visit) -> None:
        """Start a visit's body as soon as a slot is free."""
        self.busy += 1
        visit.standing = Standing.QUEUED
        if self.max_parallel is not None and self.slots >= self.max_parallel:
            self.queue.append((visit, visit.turn, visit.attempt))
        else:
            self._give_slot(visit)

    def with_slot(self, visit: Visit, command: Command) -> None:
        """Let a body, or an agent, go on as soon as it holds a slot; all that it waits for shares one.

        A body that waits for a reservation too goes on without one, unless with an effect: what it waits for may be
        waiting for that slot.
        """
        if visit.slot:
            self.commands.append(command)
            return
        effect = isinstance(command, EFFECTS) and command.key in visit.flying
        if not effect and any(waiting.visit is visit for waiting in self.unfunded):
            self.commands.append(command)
        elif visit.due is not None:
            visit.due.append(command)
        else:
            visit.due = [command]
            if self.max_parallel is not None and self.slots >= self.max_parallel:
                self.queue.append((visit, visit.turn, visit.attempt))
            else:
                self._give_slot(visit)

    def _give_slot(self, visit: Visit) -> None:
        self.slots += 1
        visit.slot = True
        if visit.standing is Standing.RUNNING:
            self.commands.extend(visit.due or ())
            visit.due = None
            return
        visit.standing = Standing.RUNNING
        node = visit.station.node
        if not isinstance(node, FunctionNode):
            turn = visit.turn  # put off: what frees a slot is not done yet, and a refused turn may cancel it
            self.agenda.append(lambda: self.agent_turn(visit, turn))
            return
        if node.timeout is not None:
            self.time_turn(visit)
        token = visit.token
        state = visit.state = self.state(token, visit.inbox, visit.path, visit.turn)
        self.commands.append(StartBody(visit.path, visit.turn, visit.attempt, node, state, group_of(token)))

    def time_turn(self, visit: Visit) -> None:
        """Set the time that one turn of a node may take."""
        limit = visit.station.node.timeout
        if limit is None:
            return
        self.drop_timer(visit.timer)
        visit.deadline = self.at + limit
        visit.timer = self.set_timer(visit.deadline, visit.path, "timeout", lambda: self._overdue(visit))

    def free_slot(self, visit: Visit) -> None:
        """Take a visit's slot back; the first in the queue gets it."""
        if not visit.slot:
            return
        visit.slot = False
        self.slots -= 1
        while self.queue and (self.max_parallel is None or self.slots < self.max_parallel):
            waiting, turn, attempt = self.queue.popleft()
            wanted = waiting.standing is Standing.QUEUED or (waiting.standing is Standing.RUNNING and waiting.due)
            stale = (waiting.turn, waiting.attempt) != (turn, attempt) or waiting.timed_out
            if wanted and not stale and waiting.closing is None:
                self._give_slot(waiting)

    # --- timers ---

    def drop_timer(self, timer: int | None) -> None:
        """Forget a timer."""
        if timer is not None and self.timers.pop(timer, None) is not None:
            self.commands.append(DropTimer(timer))

    def timer_fired(self, fact: TimerFired) -> None:
        """Do what a timer was set for."""
        timer = self.timers.pop(fact.timer, None)
        if timer is not None:
            timer.fire()

    def _overdue(self, visit: Visit) -> None:
        visit.timer = None
        if visit.talk is not None:
            self.agent_overdue(visit)
        elif visit.standing is not Standing.ENDED and visit.closing is None:
            visit.timed_out = True
            self.commands.append(CancelBody(visit.path))

    def sleep_requested(self, fact: SleepRequested) -> None:
        """Let a body sleep; its slot is free for others meanwhile."""
        visit = self._running(fact)
        if visit is None:
            return
        naps = visit.naps = visit.naps or {}

        def over() -> None:
            naps.pop(fact.key, None)
            if self._running(fact) is visit:
                self.with_slot(visit, GoOn(visit.path, fact.key))

        naps[fact.key] = self.set_timer(self.at + fact.seconds, visit.path, "sleep", over)
        self._rest(visit)

    def drop_naps(self, visit: Visit) -> None:
        """Forget the sleeps that an attempt left behind."""
        for timer in (visit.naps or {}).values():
            self.drop_timer(timer)
        visit.naps = None

    def _running(self, fact: EffectRequested | SleepRequested) -> Visit | None:
        """Return the visit that asks for something, if it is this body of it that runs, and it is wanted."""
        visit = self.visits.get(fact.path)
        if visit is None or visit.standing is not Standing.RUNNING or visit.closing is not None:
            return None
        return visit if (visit.turn, visit.attempt) == (fact.turn, fact.attempt) else None

    def _rest(self, visit: Visit) -> None:
        """Free the slot of a body that waits, unless an effect of its own still runs under it."""
        if not visit.flying:
            self.free_slot(visit)

    def review_call_timers(self) -> None:
        """Stop the timeouts of calls that only wait for answers, and start them again when they do not."""
        for frame in self.timed_frames:
            active = self._is_active(frame)
            if not active and frame.timer is not None:
                frame.left = frame.due - self.at
                self.drop_timer(frame.timer)
                frame.timer = None
                self.busy -= 1
            elif active and frame.timer is None and frame.left is not None:
                frame.due = self.at + frame.left
                frame.left = None
                overdue = functools.partial(self.call_overdue, frame)
                frame.timer = self.set_timer(frame.due, frame.path, "call_timeout", overdue)
                self.busy += 1

    # --- effects ---

    def effect_requested(self, fact: EffectRequested) -> None:
        """Let an effect run, wait, or be refused."""
        visit = self._running(fact)
        if visit is None:
            return
        key, flying = fact.key, visit.flying
        if flying and (key in flying or key.isdigit() or any(other.isdigit() for other in flying)):
            self.commands.append(RefuseEffect(visit.path, key, "key"))
            return
        wanted = amounts_of(fact.cost)
        refused = self._over_costs(visit, key, wanted)
        if refused is not None:
            self.commands.append(refused)
            return
        funded = not self.is_behind(visit, wanted) and self._try_effect(visit, fact, wanted)
        if not funded:
            funder = functools.partial(self._effect_funded, visit, fact, wanted)
            if self.wait_for_funds(visit, funder, wanted, key):
                self._rest(visit)
            else:
                self.commands.append(self._refusal(visit, key, wanted))

    def _effect_funded(self, visit: Visit, fact: EffectRequested, wanted: Amounts, last: bool) -> bool:  # noqa: FBT001 - as `Waiting.attempt` is called
        if self._running(fact) is not visit or visit.timed_out:
            return True  # it is gone: nothing to wait for
        refused = self._over_costs(visit, fact.key, wanted)  # others of the attempt may have come first
        if refused is not None:
            self.with_slot(visit, refused)
            return True
        if not self._try_effect(visit, fact, wanted):
            if last:
                self.with_slot(visit, self._refusal(visit, fact.key, wanted))
            return last
        return True

    def _over_costs(self, visit: Visit, key: str, wanted: Amounts) -> Command | None:
        """Return the refusal of what is more than one attempt of the node may spend by its own declaration."""
        node = visit.station.node
        costs = node.costs if isinstance(node, FunctionNode) else None
        if costs is None:
            return None
        used = visit.used or [0, 0, 0, 0, 0, 0]
        for dimension, name in enumerate(ADDITIVE):
            limit = getattr(costs, name)
            amount = wanted[dimension]
            if amount and used[dimension] + amount > (limit or 0):
                left = (limit or 0) - used[dimension]
                self.refuse(visit.path, "costs", float(limit or 0), f"{amount} {name} of an effect, over its costs=")
                return RefuseEffect(visit.path, key, "costs", limit or 0, f"{amount} {name}", left)
        return None

    def _try_effect(self, visit: Visit, fact: EffectRequested, wanted: Amounts) -> bool:
        if visit.token.frame.meter.refusing(wanted) is not None:
            return False
        if fact.cost is not None:
            visit.used = [a + b for a, b in zip(visit.used or [0, 0, 0, 0, 0, 0], wanted, strict=True)]
        self.start_effect(visit, fact.key, fact.name, wanted, fact.cost)
        self.with_slot(visit, GoOn(visit.path, fact.key))
        return True

    def start_effect(self, visit: Visit, key: str, name: str, wanted: Amounts, cost: Budget | None) -> None:
        """Spend an effect's counts, reserve its tokens and money, and say that it has started."""
        visit.token.frame.meter.start(wanted, visit.tables or self._tables_of(visit))
        visit.flying[key] = (0, 0, 0, 0, wanted[TOKENS], wanted[USD])
        self.decisions.append(EffectStarted(visit.path, visit.turn, key, name, cost))

    def start_model_call(self, visit: Visit, tokens: int, usd: Amount) -> None:
        """Spend a model call, reserve its tokens and money, and say that it has started, as `start_effect` does."""
        visit.token.frame.meter.start_call(tokens, usd, visit.tables or self._tables_of(visit))
        visit.flying["model"] = (0, 0, 0, 0, tokens, usd)
        cost = Budget.checked(None, 1, None, None, tokens, Decimal(usd) if usd else None)
        self.decisions.append(EffectStarted(visit.path, visit.turn, "model", "model", cost))

    def settle_unused(self, visit: Visit, key: str) -> None:
        """Settle an effect that was allowed and has not begun."""
        self._settle_effect(visit, key, (0, 0))

    def refused_by(self, visit: Visit, meter: Meter, dimension: int, wish: str) -> Reason:
        """Say that a meter refuses something."""
        limit, left = meter.granted[dimension], meter.free(dimension)
        if left is not None and dimension in (TOKENS, USD):
            wish = f"{wish}, with {max(left, 0)} left"
        return self.refuse(visit.path, cast("Code", ADDITIVE[dimension]), None if limit is None else float(limit), wish)

    def _refusal(self, visit: Visit, key: str, wanted: Amounts) -> Command:
        refusing = visit.token.frame.meter.refusing(wanted)
        assert refusing is not None  # noqa: S101 - it has just refused
        meter, dimension = refusing
        self.refused_by(visit, meter, dimension, f"{wanted[dimension]} of an effect")
        return RefuseEffect(
            visit.path, key, ADDITIVE[dimension], meter.granted[dimension], wanted[dimension], meter.free(dimension)
        )

    def effect_finished(self, fact: EffectFinished) -> None:
        """Settle an effect with what it really used."""
        visit = self.visits.get(fact.path)
        if visit is None or visit.turn != fact.turn or visit.attempt != fact.attempt:
            return
        if fact.key not in visit.flying:
            if visit.talk is None:
                self._withdrawn(visit, fact.key)
            return
        self._settle_effect(visit, fact.key, self._used(visit, fact))
        if visit.talk is not None:
            self.agent_effect(visit, fact)
            return
        if self.unfunded and any(waiting.visit is visit for waiting in self.unfunded):
            self._rest(visit)  # else those whose effects it waits for could wait for its slot

    def _withdrawn(self, visit: Visit, key: str) -> None:
        """Forget what a body asked for and has itself given up; it goes on, over the limit of slots at worst."""
        if visit.naps and key in visit.naps:
            self.drop_timer(visit.naps.pop(key))
        for waiting in [found for found in self.unfunded if found.visit is visit and found.key == key]:
            self.unfunded.remove(waiting)
        visit.due = [command for command in visit.due or () if getattr(command, "key", key) != key] or None
        if not visit.slot and not visit.due:
            self.slots += 1
            visit.slot = True

    def _settle_effect(self, visit: Visit, key: str, used: tuple[int, Amount] | None) -> None:
        """Settle an effect that has used so many tokens and so much money; None is all that it has reserved."""
        tokens, usd = visit.flying.pop(key)[TOKENS:]
        used_tokens, used_usd = (tokens, usd) if used is None else used
        visit.token.frame.meter.settle(tokens, usd, used_tokens, used_usd)
        if used_tokens or used_usd:
            of_frame, of_node = visit.tables or self._tables_of(visit)
            of_frame[TOKENS] += used_tokens
            of_node[TOKENS] += used_tokens
            if used_usd:
                of_frame[USD] += used_usd
                of_node[USD] += used_usd
            spent = Budget.checked(None, None, None, None, used_tokens, Decimal(used_usd) if used_usd else None)
            self.decisions.append(Spent(visit.path, spent))

    def drop_effects(self, visit: Visit) -> None:
        """Settle the effects that an attempt left in flight: nobody knows what they used, so all they reserved."""
        for key in list(visit.flying):
            self._settle_effect(visit, key, None)

    def _tables_of(self, visit: Visit) -> tuple[list[Amount], list[Amount]]:
        """Return where what a visit spends is counted: its frame's table and its node's."""
        frame = visit.token.frame
        if frame.spent is None:
            frame.spent = [0, 0, 0, 0, 0, 0]
        node = self.spent_by_node.setdefault(names_text(visit.path), [0, 0, 0, 0, 0, 0])
        visit.tables = frame.spent, node
        return visit.tables

    def _used(self, visit: Visit, fact: EffectFinished) -> tuple[int, Amount] | None:
        """Return the tokens and the money that an effect has used; None where neither it nor its reply says so.

        Money is by the model's price where the reply does not say.
        """
        if fact.usage is not None:
            return fact.usage.tokens or 0, fact.usage.usd or 0
        usage = fact.result.usage if type(fact.result) is ModelReply else None
        if usage is None:
            return None
        tokens = usage.input_tokens + usage.output_tokens
        if usage.usd is not None:
            return tokens, usage.usd
        price = self.price_of(visit)
        return tokens, 0 if price is None else usage.input_tokens * price.input + usage.output_tokens * price.output

    def price_of(self, visit: Visit) -> Price | None:
        """Return what the model of an agent's visit costs, as the run has recorded it."""
        talk = visit.talk
        if talk is None:
            return None
        if self.prices is None:  # a run that was stored before prices were recorded
            return getattr(talk.client, "price", None)
        if not self.prices:
            return None
        return self.prices.get((id(visit.token.frame.tables.graph), visit.station.name, talk.model))
