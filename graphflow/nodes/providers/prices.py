"""What models cost: tokens and money of a response, and the price from which a call's money is reserved."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from graphflow.nodes.client import Price, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

MILLION = Decimal(1_000_000)


def usage_of(response: ModelResponse, *, money: bool = True) -> Usage | None:
    """Return what a response says of its tokens, with their price where it is known; None where it says nothing.

    Args:
        response: what came.
        money: whether the price is looked for.
    """
    used = response.usage
    if not used.input_tokens and not used.output_tokens:
        return None
    return Usage(max(used.input_tokens, 0), max(used.output_tokens, 0), _money(response) if money else None)


def _money(response: ModelResponse) -> Decimal | None:
    try:
        return max(Decimal(response.cost().total_price), Decimal(0))
    except (LookupError, ValueError, AssertionError):  # a model that nobody has a price of
        return None


@functools.lru_cache(maxsize=256)
def price_of(model: str) -> Price | None:
    """Return the most that a token of a model costs, or None where nobody knows.

    Args:
        model: its name with its provider's, as "openai:gpt-5".
    """
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    provider, _, name = model.partition(":")
    try:
        found = calc_price(Tokens(input_tokens=1, output_tokens=1), name, provider_id=provider.partition("-")[0])
    except (LookupError, ValueError):
        return None
    return Price(_dearest(found.model_price.input_mtok), _dearest(found.model_price.output_mtok))


def _dearest(rate: Any) -> Decimal:
    """Return the price of a token by a rate for a million, the highest where it grows with the size of the request."""
    tiers = getattr(rate, "tiers", None)
    highest = rate if tiers is None else max([rate.base, *(tier.price for tier in tiers)])
    return Decimal(highest or 0) / MILLION
