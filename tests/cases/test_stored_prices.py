"""Prices are facts of a run: what a model costs later, or elsewhere, changes nothing that is stored."""

from __future__ import annotations

from decimal import Decimal

import pytest

from graphflow import END, START, Agent, Budget, Context, Graph, MemoryJournal, Price, Usage, replay, resume, run
from graphflow.testing import ScriptedModel

CHEAP, DEAR = Price(Decimal("0.00001"), Decimal("0.00001")), Price(Decimal("0.001"), Decimal("0.0002"))


class Case(Context):
    question: str = ""


def desk(price: Price | None) -> Graph[Case]:
    """Return an agent whose model costs that much."""
    model = ScriptedModel({"desk": ["It is on its way."]}, price=price, usage=Usage(10, 10))
    return Graph("g", START >> Agent("desk", model=model) >> END, context=Case, budget=Budget(model_calls=5, usd="1"))


@pytest.mark.parametrize("later", [None, CHEAP, DEAR])
async def test_a_stored_run_is_read_with_the_prices_that_it_was_run_with(
    anyio_backend: str, later: Price | None
) -> None:
    """A price list that is newer, or gone, makes no stored run another one."""
    journal = MemoryJournal()
    first = await run(desk(DEAR), Case(), journal=journal, run_id="r")

    again = await replay(desk(later), "r", journal=journal)

    assert (
        (again.status, again.spent.total.usd) == ("completed", first.spent.total.usd) == ("completed", Decimal("0.012"))
    )


async def test_a_run_that_is_taken_up_with_another_model_goes_by_its_price(anyio_backend: str) -> None:
    """What a bound refused at the old price is asked at the new one, and read back so by anybody."""
    journal = MemoryJournal()
    stopped = await run(desk(DEAR), Case(), journal=journal, run_id="r", budget=Budget(usd="0.0001"))

    went_on = await resume(desk(CHEAP), "r", journal=journal, budget=Budget(usd="1"))
    again = await replay(desk(None), "r", journal=journal)

    assert (stopped.status, stopped.reason.code if stopped.reason else "") == ("exhausted", "usd")
    assert went_on.spent.total.usd == again.spent.total.usd == Decimal("0.0002")
