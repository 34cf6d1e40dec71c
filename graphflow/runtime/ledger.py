"""The ledger: who may still spend what.

A *meter* counts spending under a grant. The root's meter and a split child's meter are *accounts*: what a split child
spends stands in its parent's `reserved` as one grant and settles when it closes. Every other meter is a *cap*: what is
spent under it is spent on the meter above it too. For each meter, at every moment::

    granted == spent + reserved + free

Counts are spent at once. Only tokens and money of effects in flight, the grants of split children and what is set aside
for an escalation stand as reserved.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.ids import Path

Amount: TypeAlias = int | Decimal
Amounts: TypeAlias = tuple[Amount, ...]

Snapshot: TypeAlias = "tuple[tuple[Meter, Amount, tuple[Amounts, Amounts]], ...]"
"""Meters as they stood: the node runs of each, and what it had spent and reserved besides."""

RUNS, MODEL_CALLS, TOOL_CALLS, RETRIES, TOKENS, USD = range(6)
_ZERO: Final[list[Amount]] = [0, 0, 0, 0, 0, Decimal(0)]
ONE_RUN: Final[Amounts] = (1, 0, 0, 0, 0, 0)

_additive: Callable[[Budget], tuple[Amount | None, ...]] = operator.attrgetter(*ADDITIVE)


class Meter:
    """A grant and what became of it, one number for each additive dimension of `Budget`.

    Attributes:
        path: whose it is.
        parent: the meter above, or None at the root.
        split: whether this is an account of its own rather than a cap.
        granted: the bound of each dimension, None for no bound.
        bounds: the dimensions that it bounds.
        above: the next meter that a spending here is counted on too, or None.
        money: whether money is bounded here, or on a meter above that counts it too.
        spent: what was used.
        reserved: what may still be used by what was promised.
        kept: both as they were when somebody last asked, None where more than a node run was counted since.
    """

    __slots__ = (
        "above", "bounded", "bounds", "granted", "kept", "money", "parent", "path", "reserved", "spent", "split"
    )  # fmt: skip

    def __init__(self, path: Path, budget: Budget, parent: Meter | None = None, *, split: bool = False) -> None:
        """Open a meter under a budget."""
        self.path, self.parent, self.split = path, parent, split
        self.granted: list[Amount | None] = [*_additive(budget)]
        self.bounds = tuple([index for index, amount in enumerate(self.granted) if amount is not None])
        self.bounded = bool(self.bounds)
        self.spent = list(_ZERO)
        self.reserved = list(_ZERO)
        self.kept: tuple[Amounts, Amounts] | None = None
        self.above = None if split else parent
        self.money: bool = self.granted[USD] is not None or (self.above is not None and self.above.money)

    def free(self, dimension: int) -> Amount | None:
        """Return what is left of one dimension, None for no bound."""
        granted = self.granted[dimension]
        return None if granted is None else granted - self.spent[dimension] - self.reserved[dimension]

    def chain(self) -> tuple[Meter, ...]:
        """Return the meters that a spending here is counted on: this one, its caps, and the account that owns it."""
        found: list[Meter] = [self]
        while found[-1].above is not None:
            found.append(found[-1].above)
        return tuple(found)

    def snapshot(self) -> Snapshot:
        """Return what every meter that counts here has spent and reserved, for `state.left`."""
        if self.parent is None:
            return ((self, self.spent[RUNS], self.kept or self.keep()),)
        return tuple(
            [(meter, meter.spent[RUNS], meter.kept or meter.keep()) for meter in self.chain() if meter.bounded]
        )

    def keep(self) -> tuple[Amounts, Amounts]:
        """Return what is spent and reserved, for as long as only node runs are counted: a hop counts no more."""
        self.kept = kept = tuple(self.spent), tuple(self.reserved)
        return kept

    def refusing(self, wanted: Amounts) -> tuple[Meter, int] | None:
        """Return the first meter and dimension that cannot grant this, or None."""
        meter: Meter | None = self
        while meter is not None:
            granted, spent, reserved = meter.granted, meter.spent, meter.reserved
            for dimension in meter.bounds:
                amount = wanted[dimension]
                if amount and amount > (granted[dimension] or 0) - spent[dimension] - reserved[dimension]:
                    return meter, dimension
            meter = meter.above
        return None

    def refusing_run(self) -> Meter | None:
        """Spend one node run; return the meter that refuses it instead, with nothing spent."""
        meter: Meter | None = self
        while meter is not None:
            granted = meter.granted[RUNS]
            if granted is not None and meter.spent[RUNS] + meter.reserved[RUNS] >= granted:
                return meter
            meter = meter.above
        self.spent[RUNS] += 1
        meter = self.above
        while meter is not None:
            meter.spent[RUNS] += 1
            meter = meter.above
        return None

    def spend(self, amounts: Amounts) -> None:
        """Count amounts as used."""
        for meter in self.chain():
            meter.kept = None
            for dimension, amount in enumerate(amounts):
                meter.spent[dimension] += amount

    def reserve(self, amounts: Amounts) -> None:
        """Promise amounts."""
        for meter in self.chain():
            meter.kept = None
            for dimension, amount in enumerate(amounts):
                meter.reserved[dimension] += amount

    def release(self, amounts: Amounts) -> None:
        """Take a promise back."""
        self.reserve(tuple(-amount for amount in amounts))

    def start(self, wanted: Amounts, also: Iterable[list[Amount]]) -> None:
        """Count what starts: its counts are spent, here and in other tables; its tokens and money are reserved."""
        tokens, usd = wanted[TOKENS], wanted[USD]
        tables = [*also]
        meter: Meter | None = self
        while meter is not None:
            tables.append(meter.spent)
            meter.kept = None
            meter.reserved[TOKENS] += tokens
            if usd:
                meter.reserved[USD] += usd
            meter = meter.above
        for dimension, amount in enumerate(wanted[:TOKENS]):
            if amount:
                for table in tables:
                    table[dimension] += amount

    def start_call(self, tokens: Amount, usd: Amount, also: Iterable[list[Amount]]) -> None:
        """Count the start of one call of a model, as `start` does."""
        for table in also:
            table[MODEL_CALLS] += 1
        meter: Meter | None = self
        while meter is not None:
            meter.spent[MODEL_CALLS] += 1
            meter.kept = None
            meter.reserved[TOKENS] += tokens
            if usd:
                meter.reserved[USD] += usd
            meter = meter.above

    def settle(self, tokens: Amount, usd: Amount, used_tokens: int, used_usd: Amount) -> None:
        """Take back what was reserved, and count what was used."""
        meter: Meter | None = self
        while meter is not None:
            meter.kept = None
            meter.reserved[TOKENS] -= tokens
            meter.spent[TOKENS] += used_tokens
            if usd:
                meter.reserved[USD] -= usd
            if used_usd:
                meter.spent[USD] += used_usd
            meter = meter.above

    def open_split(self, path: Path, grant: Budget) -> Meter:
        """Split an account off for a child; its grant stands here as reserved until `close_split`."""
        self.reserve(amounts_of(grant))
        return Meter(path, grant, self, split=True)

    def close_split(self, grant: Budget) -> None:
        """Settle this split account with its parent: what it spent is spent there, the rest is free again."""
        assert self.parent is not None  # noqa: S101 - split accounts have a parent by construction
        self.parent.release(amounts_of(grant))
        self.parent.spend(tuple(self.spent))

    def _free_budget(self) -> Budget:
        return Budget(**{name: self._least_free(dimension) for dimension, name in enumerate(ADDITIVE)})  # type: ignore[arg-type]  # by name

    def shares(self, parts: int) -> tuple[Budget, ...]:
        """Return equal shares of what is free; they sum to it exactly."""
        return self._free_budget().split(parts)

    def share(self, part: float) -> Budget:
        """Return a fraction of what is free."""
        free = self._free_budget()
        fraction = Decimal(str(part))
        taken: dict[str, int | None] = {}
        for name in ADDITIVE[:-1]:
            amount = getattr(free, name)
            taken[name] = None if amount is None else int(amount * fraction)
        usd = None if free.usd is None else free.usd * fraction
        return Budget(**taken, usd=usd)

    def _least_free(self, dimension: int) -> Amount | None:
        amounts = [free for meter in self.chain() if (free := meter.free(dimension)) is not None]
        return max(min(amounts), type(amounts[0])(0)) if amounts else None


def amounts_of(budget: Budget | None) -> Amounts:
    """Return a budget as amounts, nothing for a dimension that it does not name."""
    if budget is None:
        return tuple(_ZERO)
    return tuple(getattr(budget, name) or zero for name, zero in zip(ADDITIVE, _ZERO, strict=True))


def budget_of(amounts: Sequence[Amount | None]) -> Budget:
    """Return amounts as a budget; None is no bound."""
    usd = amounts[USD]
    return Budget.checked(*amounts[:USD], None if usd is None else Decimal(usd))  # type: ignore[arg-type, call-arg]


def least_free(snapshot: Snapshot) -> Budget:
    """Return what was free on every meter of a snapshot at once; a dimension that none bounds is None."""
    least: list[Amount | None] = [None] * 6
    for meter, runs, (spent, reserved) in snapshot:
        for dimension, granted in enumerate(meter.granted):
            if granted is not None:
                used = runs if dimension == RUNS else spent[dimension]
                free = max(granted - used - reserved[dimension], type(granted)(0))
                seen = least[dimension]
                least[dimension] = free if seen is None else min(seen, free)
    return budget_of(least)
