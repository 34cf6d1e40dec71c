"""Calls of an agent's model: paid for, shortened to what can be paid, put in line, and sent."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from graphflow.model.thread import ThreadMessage
from graphflow.nodes.client import ModelRequest, Price
from graphflow.runtime.asking import asked_in_json
from graphflow.runtime.attempts import ONE_RETRY, may_retry
from graphflow.runtime.commands import CallModel
from graphflow.runtime.core import Core, group_of
from graphflow.runtime.ledger import TOKENS, USD, Amount, Amounts, Meter
from graphflow.runtime.offered import used_up
from graphflow.runtime.tables import Standing, Visit

SOMETHING: Final = Decimal("1e-9")
"""What must be left of the money for a call whose price nobody knows; it is not reserved."""

ONE_MORE: Final = (ONE_RETRY[0], 1, *ONE_RETRY[2:])
"""What one more attempt of an agent costs at the least: a retry and a call of its model."""


class ModelCalls(Core):
    """How an agent asks its model."""

    __slots__ = ()

    def ask_model(self, visit: Visit) -> None:
        """Ask the model, when its call can be paid."""
        wanted, max_tokens, payable = self._wanted(visit)
        turn = visit.turn
        if payable and not (self.unfunded and self.is_behind(visit, wanted)):
            self._send(visit, wanted, max_tokens)
            return
        least, _, _ = self._wanted(visit, least=True)
        if self.wait_for_funds(visit, lambda last: self._asked(visit, turn, last=last), least, "model"):
            self.free_slot(visit)
        else:
            self._cannot_ask(visit)

    def _asked(self, visit: Visit, turn: int, *, last: bool) -> bool:
        """Try to pay a call of the model; tell whether there is nothing to wait for."""
        if not is_at_work(visit, turn):
            return True  # it was cancelled
        wanted, max_tokens, payable = self._wanted(visit)
        if payable:
            self._send(visit, wanted, max_tokens)
            return True
        if last:
            self._cannot_ask(visit)
        return last

    def _send(self, visit: Visit, wanted: Amounts, max_tokens: int) -> None:
        """Pay for a call of the model, and make its request."""
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has been entered
        node, manner = talk.agent, talk.manner
        if node.timeout is not None:
            self.time_turn(visit)
        usd = wanted[USD]
        self.start_model_call(visit, int(wanted[TOKENS]), 0 if usd is SOMETHING else usd)
        messages, schema = talk.messages, manner.schema
        if not manner.native:
            gone = used_up(visit, self.edition)
            messages, schema = asked_in_json(messages, manner, gone), manner.schema_without(gone)
        request = ModelRequest(
            node.name, talk.source, visit.turn, talk.system, messages, manner.specs, schema, max_tokens,
            "native" if manner.native else "json",
        )  # fmt: skip
        again = may_retry(visit) and visit.token.frame.meter.refusing(ONE_MORE) is None
        talk.asked = CallModel(
            visit.path, visit.turn, visit.attempt, "model", talk.client, request, group_of(visit.token), again
        )
        self.with_slot(visit, talk.asked)

    def _wanted(self, visit: Visit, *, least: bool = False) -> tuple[Amounts, int, bool]:
        """Return what a call of the model may cost, how many tokens it may write for that, and whether it can be paid.

        Where not all that it may write can be paid, it may write as much as can.

        Args:
            visit: whose call it is.
            least: whether to return what it needs at the least, be there as much or not: that is what it waits for.
        """
        talk = visit.talk
        assert talk is not None  # noqa: S101 - it has been entered
        reads = talk.size // 4 + 1  # a guess: tokens have about four characters
        writes = 1 if least else talk.agent.max_tokens
        price = self.price_of(visit)
        account = visit.token.frame.meter
        wanted = _cost(account, price, reads, writes)
        if least or account.refusing(wanted) is None:
            return wanted, writes, True
        for meter in account.chain():
            tokens = meter.free(TOKENS)
            if tokens is not None and tokens < reads + writes:
                writes = min(writes, int(self._at_hand(meter, TOKENS)) - reads)
            if price is not None and price.output and meter.granted[USD] is not None:
                money = Decimal(self._at_hand(meter, USD)) - reads * price.input
                writes = min(writes, int(money / price.output))
        writes = max(writes, 1)
        wanted = _cost(account, price, reads, writes)
        return wanted, writes, account.refusing(wanted) is None

    def _at_hand(self, meter: Meter, dimension: int) -> Any:
        """Return what of a dimension is free, or is held by effects that are in flight."""
        held = sum(
            amounts[dimension]
            for visit in self.visits.values()
            if visit.flying and meter in visit.token.frame.meter.chain()
            for amounts in visit.flying.values()
        )
        return (meter.free(dimension) or 0) + held

    def _cannot_ask(self, visit: Visit) -> None:
        least = self._wanted(visit, least=True)[0]
        refusing = visit.token.frame.meter.refusing(least) or visit.token.frame.meter.refusing(self._wanted(visit)[0])
        assert refusing is not None  # noqa: S101 - it has just refused
        wish = f"a call of the model of {visit.station.name!r}"
        if refusing[1] == TOKENS:
            wish += f", which needs {least[TOKENS]} at least"
        reason = self.refused_by(visit, *refusing, wish)
        self.agent_bound(visit, reason, lambda: self.request_slot(visit))


def is_at_work(visit: Visit, turn: int) -> bool:
    """Tell whether a visit still does its turn, after something was put off for it."""
    return visit.turn == turn and visit.standing is Standing.RUNNING and visit.closing is None


def _cost(meter: Meter, price: Price | None, reads: int, writes: int) -> Amounts:
    """Return what a call costs; money is `SOMETHING` where models cost some, and this one does not say how much."""
    usd: Amount = 0 if price is None else reads * price.input + writes * price.output
    if meter.money and not usd and any(one.granted[USD] is not None and one.spent[USD] > 0 for one in meter.chain()):
        usd = SOMETHING
    return (0, 1, 0, 0, reads + writes, usd)


def length_of(messages: Iterable[ThreadMessage]) -> int:
    """Return how long messages are in a request, in characters and a few for each message and call."""
    size = 0
    for message in messages:
        size += len(message.text) + 16
        for call in message.calls:
            size += len(call.name) + len(call.arguments) + 16
    return size
