"""Amounts that may be infinite: node runs, model calls and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from graphflow.graphs.look import INF

CALLS: Final = ("node_runs", "model_calls", "tool_calls")
"""What adds up and can be budgeted."""


def plus(a: float, b: float) -> float:
    """Add; infinity and a number too large for a float too.

    >>> plus(2, INF), plus(10**400, INF)
    (inf, inf)
    """
    return INF if INF in (a, b) else a + b


def times(a: float, b: float) -> float:
    """Multiply; nothing at all stays nothing, however often.

    >>> times(0, INF), times(2, INF)
    (0, inf)
    """
    if not a or not b:
        return 0
    return INF if INF in (a, b) else a * b


def total(amounts: Iterable[float]) -> float:
    """Add up.

    >>> total([1, 2])
    3
    """
    found: float = 0
    for amount in amounts:
        found = plus(found, amount)
    return found


class Spend(NamedTuple):
    """Node runs, model calls and tool calls."""

    node_runs: float = 0
    model_calls: float = 0
    tool_calls: float = 0

    def and_(self, other: Spend) -> Spend:
        """Return the sum."""
        if other is NOTHING_SPENT:
            return self
        return other if self is NOTHING_SPENT else Spend(*map(plus, self, other))

    def by(self, often: float) -> Spend:
        """Return the multiple."""
        return self if often == 1 else Spend(*(times(each, often) for each in self))

    def under(self, other: Iterable[float | None]) -> Spend:
        """Return the lesser of each, where there is another."""
        return Spend(*(a if b is None else min(a, b) for a, b in zip(self, other, strict=True)))

    def over(self, other: Spend) -> Spend:
        """Return the greater of each."""
        return Spend(*map(max, self, other))


NOTHING_SPENT: Final = Spend()


def all_of(spends: Iterable[Spend]) -> Spend:
    """Add up."""
    found = NOTHING_SPENT
    for spend in spends:
        found = found.and_(spend)
    return found


def heaviest(each: Sequence[tuple[Spend, float]], most: float) -> Spend:
    """Return what visits spend at most: each node's as many as it can have, and so many all together."""
    if len(each) == 1:
        return each[0][0].by(min(each[0][1], most))
    found: list[float] = []
    for dimension in range(len(CALLS)):
        left: float = most
        amount: float = 0
        for weight, often in sorted(((spend[dimension], often) for spend, often in each), reverse=True):
            amount = plus(amount, times(weight, min(often, left)))
            left -= min(often, left) if left < INF else 0
        found.append(amount)
    return Spend(*found)
