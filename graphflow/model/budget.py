"""What may be spent: counts that add up over a whole run, and active seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from graphflow.model.telling import value_text
from graphflow.model.unknown import knowing_options

COUNTS: Final = ("node_runs", "model_calls", "tool_calls", "retries", "tokens")
"""The dimensions that are whole numbers."""

ADDITIVE: Final = (*COUNTS, "usd")
"""The dimensions that add up over a tree; `seconds` is a deadline."""


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """An amount to spend, or a bound on spending; a dimension that is None is not bounded.

    Attributes:
        node_runs: attempts of nodes.
        model_calls: calls of models.
        tool_calls: calls of tools.
        retries: attempts after the first.
        tokens: tokens in and out.
        usd: money, as an exact decimal.
        seconds: active seconds; time spent waiting for people does not count.

    Raises:
        ValueError: if an amount is negative or not a number of its kind, or (as UsageError) of no dimension.

    >>> Budget(model_calls=12, usd="0.10")
    Budget(model_calls=12, usd=Decimal('0.10'))
    """

    node_runs: int | None
    model_calls: int | None
    tool_calls: int | None
    retries: int | None
    tokens: int | None
    usd: Decimal | None
    seconds: float | None

    @knowing_options()
    def __init__(
        self,
        *,
        node_runs: int | None = None,
        model_calls: int | None = None,
        tool_calls: int | None = None,
        retries: int | None = None,
        tokens: int | None = None,
        usd: Decimal | str | int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Check every amount."""
        put = object.__setattr__
        counts = (node_runs, model_calls, tool_calls, retries, tokens)
        for name, amount in zip(COUNTS, counts, strict=True):
            if amount is not None and (type(amount) is not int or amount < 0):
                msg = (
                    f"Budget({name}={value_text(amount)}): a whole number of at least 0 is needed, or None for no "
                    "bound."
                )
                raise ValueError(msg)
            put(self, name, amount)
        put(self, "usd", _money(usd))
        if seconds is not None and not is_seconds(seconds):
            msg = (
                f"Budget(seconds={value_text(seconds)}): a finite number of at least 0 is needed, or None for no bound."
            )
            raise ValueError(msg)
        put(self, "seconds", seconds)

    @classmethod
    def checked(  # noqa: PLR0917 - as amounts, in their order
        cls, node_runs: int | None, model_calls: int | None, tool_calls: int | None, retries: int | None,
        tokens: int | None, usd: Decimal | None, seconds: float | None = None,
    ) -> Budget:  # fmt: skip
        """Make a budget of amounts that have been checked already: a run makes several for each call of a model."""
        made: Any = _new(_Open)  # filled while it is open, and frozen then, at a third of the price
        made.node_runs = node_runs
        made.model_calls = model_calls
        made.tool_calls = tool_calls
        made.retries = retries
        made.tokens = tokens
        made.usd = usd
        made.seconds = seconds
        made.__class__ = cls
        budget: Budget = made
        return budget

    def __repr__(self) -> str:
        """Show the dimensions that are bounded."""
        shown = ((name, getattr(self, name)) for name in (*ADDITIVE, "seconds"))
        return f"Budget({', '.join(f'{name}={value_text(amount)}' for name, amount in shown if amount is not None)})"

    def split(self, parts: int) -> tuple[Budget, ...]:
        """Share this budget between `parts`; the shares of each bounded count sum to it exactly.

        Earlier parts receive the remainder. Seconds are a deadline, so each part keeps all of them.

        Raises:
            ValueError: if `parts` is less than one.

        >>> Budget(model_calls=7).split(3)
        (Budget(model_calls=3), Budget(model_calls=2), Budget(model_calls=2))
        """
        if parts < 1:
            msg = f"split({parts}): a budget is shared between at least one part."
            raise ValueError(msg)
        return tuple(self._share(parts, index) for index in range(parts))

    def _share(self, parts: int, index: int) -> Budget:
        shares: dict[str, int | None] = {}
        for name in COUNTS:
            amount = getattr(self, name)
            shares[name] = None if amount is None else amount // parts + (index < amount % parts)
        usd = None
        if self.usd is not None:
            millionths = self.usd.scaleb(6)
            whole = int(millionths)
            usd = Decimal(whole // parts + (index < whole % parts)).scaleb(-6)
            if index == 0:
                usd += (millionths - whole).scaleb(-6)
        return Budget(**shares, usd=usd, seconds=self.seconds)


class _Open:
    """A budget that is not frozen yet."""

    __slots__ = (*ADDITIVE, "seconds")


_new: Callable[[type], Any] = object.__new__


def is_seconds(found: object) -> bool:
    """Whether something is a finite number of seconds, of at least 0.

    >>> is_seconds(2.5), is_seconds(float("inf")), is_seconds("2.5"), is_seconds(True), is_seconds(10**400)
    (True, False, False, False, False)
    """
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    return 0 <= found <= sys.float_info.max


def _money(usd: Decimal | str | int | None) -> Decimal | None:
    if usd is None:
        return None
    try:
        amount = Decimal(usd) if isinstance(usd, (str, int, Decimal)) and not isinstance(usd, bool) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or amount < 0:
        msg = (
            f"Budget(usd={value_text(usd)}): an exact amount of at least 0 is needed, as "
            f'"0.10", Decimal or int; not a float.'
        )
        raise ValueError(msg)
    return amount
