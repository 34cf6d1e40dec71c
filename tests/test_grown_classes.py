"""A class that has got a field since its values were stored: with a default it is read, without one it is said."""

import dataclasses
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, Field, create_model

from graphflow import (
    END,
    START,
    Budget,
    Context,
    FrozenDict,
    Graph,
    Human,
    MemoryJournal,
    State,
    Step,
    Update,
    fork_run,
    node,
    replay,
    resume,
    run,
)
from graphflow.errors import GraphChanged, JournalDamaged
from graphflow.persistence.memory import MemoryWriter
from graphflow.runtime.checksums import chained

RUN = "run"
make_model: Any = create_model
empty: Any = FrozenDict


class Spot(NamedTuple):
    """An item of a tuple."""

    x: int


@dataclasses.dataclass(frozen=True)
class Size:
    """Part of an order."""

    width: int


class Order(BaseModel, frozen=True):
    """What an effect gives."""

    spot: Spot
    size: Size
    note: str = ""


Parts = tuple[type[Any], type[Any], type[Any]]
OLD: Parts = (Spot, Size, Order)


def grown() -> Parts:
    """Return the same classes, each with a field more that has a default."""

    class Spot(NamedTuple):
        x: int
        y: int = 7

    @dataclasses.dataclass(frozen=True)
    class Size:
        width: int
        heights: tuple[int, ...] = dataclasses.field(default_factory=lambda: (1, 2))

    order: Any = make_model(
        "Order", __config__={"frozen": True}, spot=(Spot, ...), size=(Size, ...), note=(str, ""),
        tags=(FrozenDict[str, int], Field(default_factory=empty)), later=(str, "later"),
    )  # fmt: skip
    for kind in (Spot, Size, order):
        kind.__module__, kind.__qualname__ = __name__, kind.__name__
    return Spot, Size, order


def desk(parts: Parts, **more: Any) -> Graph[Any]:
    """Return a graph whose context and effect hold such values; `more` are fields of the context."""
    spot, size, order = parts
    case: Any = make_model("Case", __base__=Context, found=(order | None, None), **more)

    async def fetch() -> Any:
        return order(spot=spot(1), size=size(2), note="n")

    fetch.__annotations__["return"] = order

    @node(version="1")
    async def take(state: State[Any], step: Step) -> Update:
        return Update(found=await step.effect("fetch", fetch))

    @node(version="1")
    def tell(state: State[Any]) -> str:
        return str(state.context.found)

    return Graph(
        "desk",
        START >> take >> Human("ask", "Go?", schema=bool) >> tell >> END,
        context=case,
        budget=Budget(node_runs=3),
    )


async def stored() -> MemoryJournal:
    """Store a run that waits."""
    journal, graph = MemoryJournal(), desk(OLD)
    await run(graph, graph.context(), journal=journal, run_id=RUN)
    return journal


async def test_older_values_are_read_with_the_defaults_of_new_fields() -> None:
    """In contexts, models, dataclasses and named tuples, at any depth; the run goes on, is forked and looked at."""
    journal, graph = await stored(), desk(grown(), new=(int, 3))

    forked = await fork_run(graph, RUN, journal=journal, answers={"ask": True}, changed="compatible")
    result = await resume(graph, RUN, journal=journal, answers={"ask": True}, changed="compatible")
    again = await replay(graph, RUN, journal=journal)

    assert result.context.new == again.context.new == 3
    assert result.output == forked.output == again.output
    assert result.output == (
        "spot=Spot(x=1, y=7) size=Size(width=2, heights=(1, 2)) note='n' tags=FrozenDict({}) later='later'"
    )
    assert "new" not in result.context.model_fields_set


async def test_without_changed_a_grown_class_is_another_graph() -> None:
    """Nothing is filled in for somebody who has not said that the graph is compatible."""
    journal, graph = await stored(), desk(grown(), new=(int, 3))
    rows = await journal.read(RUN)

    with pytest.raises(GraphChanged, match='say changed="compatible"'):
        await resume(graph, RUN, journal=journal, answers={"ask": True})

    assert await journal.read(RUN) == rows


async def test_a_new_field_without_a_default_is_said() -> None:
    """The record, the field and what to do; nothing is damaged, and nothing is written."""
    journal, graph = await stored(), desk(OLD, new=(int, ...))
    rows = await journal.read(RUN)

    with pytest.raises(GraphChanged) as caught:
        await resume(graph, RUN, journal=journal, answers={"ask": True}, changed="compatible")

    assert caught.value.changed == ("graph 'desk'",)
    assert caught.value.unfit.startswith("record 0: a Case that is not valid: it was written without 'new'")
    assert str(caught.value).endswith(
        "give each field that a class has got since a default, and leave the others as they were."
    )
    assert await journal.read(RUN) == rows


async def test_what_the_run_stores_afterwards_must_have_all_fields() -> None:
    """A row of this very graph that lacks one was changed: that is damage, as ever."""
    journal, graph = MemoryJournal(), desk(OLD, new=(int, 3))
    await run(graph, graph.context(new=5), journal=journal, run_id=RUN)
    first, *others = await journal.read(RUN)
    cut = dataclasses.replace(first, fact=first.fact.replace(',"new":5', ""))
    broken = MemoryJournal()
    writer = await broken.claim(RUN)
    assert isinstance(writer, MemoryWriter)
    for row in chained([cut, *others]):
        await writer.append(row)
    await writer.release()

    with pytest.raises(JournalDamaged, match="fields do not fit: \\['new'\\]"):
        await replay(graph, RUN, journal=broken)

    assert cut != first
