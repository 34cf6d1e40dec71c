"""Values of every kind, and graphs that carry them through every place of a run, for the cases of stored runs."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Brief,
    Call,
    Context,
    Delegate,
    Done,
    FrozenDict,
    Graph,
    Handoff,
    Join,
    Pause,
    Report,
    State,
    Step,
    Update,
    append,
)
from tests.cases.stored import Calls, Plan

T = TypeVar("T")


class Order(BaseModel, frozen=True):
    """A model with an enum inside it, which is the case's."""

    class State(enum.Enum):
        """Where an order stands."""

        OPEN = "open"
        PAID = 2

    number: int
    state: State
    history: tuple[State, ...] = ()


class Size(enum.IntFlag):
    """Flags that can be combined."""

    SMALL = 1
    LARGE = 2


class Word(enum.StrEnum):
    """Texts that are members."""

    YES = "yes"


class Item(BaseModel, frozen=True):
    """What is in a box."""

    name: str
    when: datetime | None = None


class Box(BaseModel, Generic[T]):
    """A generic model."""

    model_config = ConfigDict(frozen=True)
    item: T
    more: tuple[T, ...] = ()


class Point(NamedTuple):
    """A tuple with names."""

    x: float
    y: "Point | None" = None


@dataclass(frozen=True, slots=True)
class Node:
    """A dataclass that holds itself, and a default that is made."""

    name: str
    left: "Node | None" = None
    tags: frozenset[str] = field(default_factory=frozenset[str])


class Cat(BaseModel, frozen=True):
    """One of two, told apart by a field."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel, frozen=True):
    """The other."""

    kind: Literal["dog"] = "dog"


class Zoo(BaseModel, frozen=True):
    """A model of unions, defaults that were not set, and aliases of nothing."""

    animals: tuple[Cat | Dog, ...]
    best: Cat | None = None


@dataclass(frozen=True)
class Part:
    """A part that may hold anything."""

    meta: Any


@dataclass(frozen=True)
class Whole:
    """What holds parts."""

    items: tuple[Any, ...]


EMPTY: FrozenDict[str, int] = FrozenDict({})

VALUES: dict[str, Any] = {
    "an enum in a class": Order.State.PAID,
    "an enum in a model": Order(number=1, state=Order.State.PAID, history=(Order.State.OPEN,)),
    "flags": (Size.SMALL | Size.LARGE, Size(0), Word.YES, "yes"),
    "a generic model": Box[Item](item=Item(name="i"), more=(Item(name="j", when=datetime(2024, 2, 29, tzinfo=UTC)),)),
    "generic models nested": Box[Box[Item]](item=Box[Item](item=Item(name="x"))),
    "a generic model of an enum": Box[Order.State](item=Order.State.OPEN),
    "a named tuple": Point(1.0, Point(-0.0)),
    "a dataclass": Node("a", Node("b", tags=frozenset({"x", "y"}))),
    "a union": Zoo(animals=(Cat(), Dog(), Cat(lives=1)), best=Cat()),
    "numbers": (0, -0.0, 1e300, 10**40, -(10**4000), True, 1.0, 1, Decimal("1.10"), Decimal("NaN"), Fraction(1, 3), 2j),
    "no numbers": (math.inf, -math.inf, math.nan),
    "times": (
        datetime(2024, 3, 31, 2, 30, tzinfo=timezone(timedelta(hours=2)), fold=1), date(1, 1, 1), timedelta(-1, 3, 7),
    ),
    "bytes": (b"\xff\xfe", b"", "\ud800", "\udc00\ud800", "a\x00b", "\u2028", "é" * 3),
    "a high and a low surrogate": ("\ud83d" + "\ude00", "\U0001f600", "\ud83d", "\ude00"),
    "containers": (
        (), ((),), FrozenDict({"a": (1, EMPTY)}), FrozenDict({1: 2, (1, "x"): None}), frozenset({1, 2}),
        FrozenDict({"$": "secret", "$ref": 1, "": 2}),
    ),
    "a uuid and a path": (UUID(int=5), PurePosixPath("/etc/../x"), range(1, 9, 2)),
    "nothing": (None,),
    "types of ours": (
        Report(finding="f", evidence=("e",)), Brief(objective="o", sources=("s",)),
    ),
    "a deep one": (((((((((((((((((((1,),),),),),),),),),),),),),),),),),),),
}  # fmt: skip
"""Values that must come back exactly, types and all."""


LOOSE: dict[str, Any] = {
    "plain data": [1, {"a": [None, {"b": {2, 3}}]}, {3: 4}, [[]], {"$": "Report"}],
    "like an envelope": {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"py/object": "x"}},
    "models in a list": [Box[Item](item=Item(name="i")), {"x": Point(1.0), Order.State.OPEN: frozenset({Word.YES})}],
    "an update": Update(a=(1,)),
}
"""Values that could be changed: what comes from outside may be such a one, and so may what is said."""

Declared = (
    Order | Order.State | Size | Word | Box[Item] | Box[Box[Item]] | Box[Order.State] | Point | Node | Zoo
)  # fmt: skip


class Held(Context):
    """What carries texts, says which values a node got, and declares their classes."""

    declared: tuple[Declared, ...] = ()
    got: Annotated[tuple[str, ...], append] = ()


def told(value: Any) -> str:
    """Say a value and its types all the way down, in an order that no hash changes."""
    what: Any = value.__class__
    kind = f"{what.__module__}.{what.__qualname__}"
    if issubclass(what, (frozenset, set)):
        return f"{kind}({sorted(map(told, value))})"
    if issubclass(what, (dict, FrozenDict)):
        return f"{kind}({sorted((told(key), told(item)) for key, item in value.items())})"
    if issubclass(what, BaseModel):
        fields = {name: told(getattr(value, name)) for name in what.model_fields}
        return f"{kind}({fields}, {sorted(value.model_fields_set)})"
    if issubclass(what, (tuple, list)):
        return f"{kind}({[told(item) for item in value]})"
    if issubclass(what, datetime):
        return f"{kind}({value!r}, {value.fold})"
    return f"{kind}({value!r})"


def carrying(value: Any, place: str) -> Plan[Held]:
    """Return the plan of a run that carries a value through one place, to a node that says what it got."""

    def make(calls: Calls) -> Graph[Held]:
        @calls.node
        async def get(state: State[Held], step: Step) -> Update | Part | Whole:
            await step.sleep(1)
            found = state.inbox[-1].value
            return Update(got=found if isinstance(found, str) and place in AS_TEXT else told(found))

        return PLACES[place](calls, value, get)

    return Plan(make=make, context=Held(), answers={"q?": value})


def _output(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    give = calls.node(lambda state: Done(value), name="give")
    return Graph("g", START >> give >> get >> END, context=Held)


def _effect(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    async def give(_: State[Held], step: Step) -> Done:
        found = await calls.effect(step, "make", value)
        await step.sleep(1)
        return Done(told(found))

    return Graph("g", START >> calls.node(give) >> get >> END, context=Held)


def _emit(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    async def give(_: State[Held], step: Step) -> Done:
        step.emit(value)
        await step.sleep(1)
        return Done(told(value))

    return Graph("g", START >> calls.node(give) >> get >> END, context=Held)


def _note(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    give = calls.node(lambda state: Handoff("get", value), name="give")
    return Graph("g", START >> give >> END, give.hands_off(get, max_hops=1), get >> END, context=Held)


def _answer(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    give = calls.node(lambda state: Pause("q?", schema=Any) if state.turn == 0 else Done(state.values[0]), name="give")
    return Graph("g", START >> give >> get >> END, context=Held)


def _lanes(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    give, join = calls.node(lambda state: Done((value, value)), name="give"), Join("join", reduce=tuple)
    lane = calls.node(lambda state: Done(state.inbox[-1].value), name="lane")
    lanes = give.map(lane, over=_items, join=join, max_items=2)
    return Graph("g", START >> give, lanes, join >> get >> END, context=Held)


def _items(state: State[Held]) -> tuple[Any, ...]:
    found: tuple[Any, ...] = state.values[0]
    return found


def _nested(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    give = calls.node(lambda state: Done(value), name="give")
    inner = Graph("inner", START >> give >> END, context=Held)
    return Graph("g", START >> Graph("outer", START >> inner >> END, context=Held) >> get >> END, context=Held)


def _brief(calls: Calls, value: Any, get: Any) -> Graph[Held]:
    class Own(Brief):
        carried: Any

    @calls.node
    def boss(state: State[Held]) -> Any:
        return (
            Delegate(Call("takes", Own(objective="o", carried=value)))
            if state.turn == 0
            else Done(state.values[0].finding)
        )

    @calls.node
    async def takes(state: State[Held], step: Step) -> Any:
        await step.sleep(1)
        carried: Any = state.brief
        return Report(finding=told(carried.carried))

    return Graph(
        "g",
        START >> boss >> get >> END,
        boss.delegates(takes, max_hops=1, brief=Own),
        context=Held,
        max_depth=1,
    )


PLACES: dict[str, Callable[[Calls, Any, Any], Graph[Held]]] = {
    "an output": _output, "an effect": _effect, "an emit": _emit, "a note": _note, "an answer": _answer,
    "lanes": _lanes, "nested": _nested, "a brief": _brief,
}  # fmt: skip
AS_TEXT = frozenset({"an effect", "an emit", "a brief"})
"""The places from which a text comes that tells the value."""
