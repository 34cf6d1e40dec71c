"""What "exactly the same" means, and the odd ends of the codec that no ordinary value comes to."""

import datetime as dt
import re
import sys
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, cast

import pytest
from pydantic import BaseModel, ConfigDict, create_model

from graphflow import END, START, Context, FrozenDict, Graph, State, Update
from graphflow.errors import NotStorable
from graphflow.graphs.kinds import OURS, errors_in, kinds_in, kinds_of
from graphflow.model.codec import Codec, Kinds, Unreadable, secret
from graphflow.model.exact import DEEPEST, changeable, key_step, kind_name, same, short
from graphflow.model.frozen import class_of
from graphflow.model.plans import Plan
from graphflow.model.scalars import read_text
from graphflow.model.secrets import marked, read_hints
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from tests.codec_values import CODEC, Box, Colour, Item, Loose, Pair, Point, Slotted, there_and_back

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (NAN, -NAN),
        (0j, -0j),
        ("a", b"a"),
        ((1,), [1]),
        ((1,), (1, 2)),
        ((1,), (True,)),
        ([0.0], [-0.0]),
        ({1}, {1.0}),
        ({1}, {2}),
        ({1}, {1, 2}),
        (frozenset({1}), {1}),
        ({1.0, NAN}, {1.0, 2.0}),
        ({NAN, (1,)}, {NAN, (1.0,)}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        (FrozenDict({"a": 1}), {"a": 1}),
        (Update(a=1), Update(a=True)),
        (Decimal("1.0"), Decimal("1.00")),
        (range(0), range(1, 1)),
        (dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, fold=1)),  # noqa: DTZ001 - without a zone on purpose
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))),
        (dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
         dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Zulu"))),
        (dt.timezone(dt.timedelta(hours=1)), dt.timezone(dt.timedelta(hours=1), "CET")),
        (Point(1), Point(1, -0.0)),
        (Item(name="a"), Item(name="a", size=1)),
        (Item(name="a"), Item(name="b")),
        (Loose(found=1), Loose.model_validate({"found": 1, "x": 2})),
        (Pair(1), Pair(True)),
        (Slotted("a"), Slotted("b")),
        (list[int], list[str]),
        (list[int], tuple[int]),
        (Literal[1], Literal[True]),
        (Annotated[int, 1], Annotated[int, 1.0]),
        (int | None, int | str),
    ],
)  # fmt: skip
def test_what_is_not_the_same(one: Any, other: Any) -> None:
    """Equal is not enough: class, sign, order, zone, fold and what was set must agree."""
    assert not same(one, other)
    assert not same(other, one)


def one_of_each() -> list[Any]:
    """Make values that are equal to those of another call by what they hold alone."""
    return [
        float("nan"),
        (float("nan"), {"a": [complex(0, float("nan"))]}),
        frozenset({float("nan"), 1, (float("nan"),)}),
        Decimal("NaN"),
        Update(a=Decimal("sNaN")),
        Item(name="a"),
        Pair([Point(1)]),
        Annotated[int, float("nan")],
        dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo.no_cache("UTC")),
    ]


def test_what_is_the_same() -> None:
    """Two values that were made alike are the same, NaN among them."""
    for one, other in zip(one_of_each(), one_of_each(), strict=True):
        assert same(one, other)


def test_texts_for_messages_are_short_and_never_fail() -> None:
    """Whatever stands in a message is cut, and what has no text is called by its class."""
    assert short("a" * 500).endswith("...")
    assert short(1 << 20_000) == "<int>"
    assert key_step(1 << 20_000).startswith("[0x1")
    assert key_step(None) == "[None]"
    assert key_step("k") == "['k']"
    assert kind_name(class_of(zoneinfo.ZoneInfo("UTC"))) == "zoneinfo.ZoneInfo"


def test_a_long_way_is_cut() -> None:
    """The place of a value may be long; a message is not."""
    value: Any = bytearray()
    for _ in range(9):
        value = {"k" * 79: value}

    with pytest.raises(NotStorable) as caught:
        CODEC.encode(value, "it")

    assert caught.value.where.endswith("...")
    assert len(caught.value.where) < 500


def test_every_kind_of_value_counts_for_the_depth() -> None:
    """Containers, models, dataclasses and updates count alike."""

    def nested(wrap: Any, levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = wrap(value)
        return value

    wraps: list[Callable[[Any], Any]] = [
        lambda value: {"a": value},
        lambda value: frozenset({value}),
        Pair,
        lambda value: Update(a=value),
        lambda value: Loose(found=value),
        lambda value: FrozenDict({1: value}),
    ]
    for wrap in wraps:
        assert same(there_and_back(nested(wrap, DEEPEST)), nested(wrap, DEEPEST))
        with pytest.raises(NotStorable, match="inside each other"):
            CODEC.encode(nested(wrap, DEEPEST + 1), "it")


def test_zones_alone_and_zones_that_nobody_knows() -> None:
    """A time zone is a value too; one that could not be found again is refused."""

    class Own(zoneinfo.ZoneInfo):
        pass

    own = Own("UTC")
    for zone in (dt.UTC, dt.timezone(dt.timedelta(seconds=-1), "x"), zoneinfo.ZoneInfo("Europe/Berlin")):
        assert same(there_and_back(zone), zone)
    for moment in (dt.datetime(2026, 1, 1, tzinfo=own), dt.time(tzinfo=own)):
        with pytest.raises(NotStorable, match=r"use timezone\.utc"):
            CODEC.encode((moment,), "it")
    odd: list[Any] = ["Mars/Phobos", ["TzInfo", 10**9], ["TzInfo", 1.0], [1, 2], [True], {}, ["utc"]]
    for data in odd:
        with pytest.raises(Unreadable):
            CODEC.decode({"$": "zone", "is": data})


def test_parts_of_scalars_are_read_strictly() -> None:
    """A part of another class than the one that is written is refused."""
    long = {"$": "int", "hex": hex(1 << 14_000)}

    assert read_text({"$": "str", "b64": "7aCA"}) == "\ud800"
    assert CODEC.decode({"$": "Fraction", "of": [long, 1]}) == 1 << 14_000
    assert CODEC.decode({"$": "complex", "of": [{"$": "float", "is": "inf"}, 0.0]}) == complex("inf")
    assert same(CODEC.decode({"$": "float", "is": "fff8000000000000"}), -NAN)
    odd: list[Any] = [
        {"$": "complex", "of": [1, 0.0]},
        {"$": "complex", "of": [0.0]},
        {"$": "complex", "of": "ab"},
        {"$": "range", "of": [0, "1", 1]},
        {"$": "Pattern", "is": "(", "flags": 32},
        {"$": "Pattern", "is": "a", "flags": True},
        {"$": "Pattern", "is": {"$": "bytes", "b64": "YQ=="}, "flags": 32},
        {"$": "float", "is": 3},
        {"$": "int", "hex": 3},
        {"$": "Decimal", "is": None},
        {"$": "Decimal"},
        {"$": "Decimal", "is": "1", "of": 1},
        {"$": "PosixPath", "is": 3},
        {"$": "HttpUrl", "is": "HTTP://example.org"},
        {"$": "type", "is": ["Literal", 1.5]},
        {"$": "type", "is": ["Literal"]},
        {"$": "type", "is": ["Annotated", "int"]},
        {"$": "type", "is": ["Union"]},
        {"$": "type", "is": ["Optional", "int"]},
        {"$": "Update", "of": {"\ud800": 1}},
        {"$": "Update", "of": []},
    ]
    for data in odd:
        with pytest.raises(Unreadable):
            CODEC.decode(data)


def test_an_update_of_a_field_that_no_text_can_name_is_refused() -> None:
    """No field of a context is called so; it is said where the update was made."""
    with pytest.raises(NotStorable, match="halves of surrogate pairs"):
        CODEC.encode(Update(**{"\ud800": 1}), "it")


# --- classes at the edge ---------------------------------------------------------------------------------------------


def test_classes_that_cannot_be_read_are_refused() -> None:
    """Names of fields that mean something else, a model that was never complete, a schema that fails."""
    odd = create_model("odd", **cast("Any", {"$set": (int, 1)}))

    class Incomplete(BaseModel):
        other: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    for value, says in ((odd(), "can be called"), (Incomplete.model_construct(other=1), "cannot be read")):
        codec = Codec(Kinds([type(value)]))
        with pytest.raises(NotStorable, match=says):
            codec.encode(value, "it")
        with pytest.raises(Unreadable, match="cannot be read"):
            codec.decode({"$": codec.kinds.name_of(type(value)), "other": 1})


def test_a_constructor_that_gives_something_else_is_refused() -> None:
    """What `__new__` gives need not be of the class."""

    @dataclass
    class Turned:
        a: int

        def __new__(cls, a: int) -> Any:
            return Point(a) if a else object.__new__(cls)

    value = Turned(0)
    value.a = 1

    with pytest.raises(NotStorable, match="makes something else"):
        Codec(Kinds([Turned])).encode(value, "it")


def test_a_model_that_is_given_more_than_its_fields_is_refused() -> None:
    """A validator may put attributes beside the fields, or change what is extra."""

    class Growing(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

        def model_post_init(self, _: Any) -> None:
            if self.a == 1:
                cast("dict[str, Any]", self.__dict__)["more"] = 1
            elif self.a == 2:
                cast("dict[str, Any]", self.__pydantic_extra__).clear()

    codec = Codec(Kinds([Growing]))

    assert there_and_back(Growing.model_validate({"a": 3, "x": 1}), codec).x == 1
    for data in ({"a": 1}, {"a": 2, "x": 1}):
        with pytest.raises(Unreadable, match=r"more than its fields|come back otherwise"):
            codec.decode(
                {"$": codec.kinds.name_of(Growing), "a": data["a"], **({"$extra": {"x": 1}} if "x" in data else {})}
            )


def test_values_that_cannot_be_compared_are_refused() -> None:
    """A private attribute, or a slot, whose comparison raises."""

    class Raising:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("eq")

        __hash__ = None  # type: ignore[assignment]

    class Private(BaseModel):
        _held: Any = None

        def model_post_init(self, _: Any) -> None:
            self._held = Raising()

    @dataclass
    class Slots:
        __slots__ = ("a", "held")
        a: int

        def __post_init__(self) -> None:
            self.held = Raising()

    for value in (Private(), Slots(1)):
        with pytest.raises(NotStorable, match="RuntimeError"):
            Codec(Kinds([type(value)])).encode(value, "it")


def test_a_value_that_cannot_be_looked_at_once_it_is_built_is_unreadable() -> None:
    """A class may raise at any time, when something stored is read too."""

    @dataclass
    class Falling:
        a: int

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise RuntimeError(name)
            return super().__getattribute__(name)

    kinds = Kinds([Falling])

    with pytest.raises(Unreadable, match=r"cannot be built \(RuntimeError\)") as caught:
        Codec(kinds).decode([{"$": kinds.name_of(Falling), "a": 1}])
    assert caught.value.where == "[0]"


def test_patterns_of_both_kinds_come_back() -> None:
    """A regular expression is a value: its text or bytes, and its flags."""
    for pattern in (re.compile("a+é", re.IGNORECASE), re.compile(b"\xff", re.DOTALL), re.compile("\ud800")):
        assert there_and_back(pattern) == pattern


def test_what_cannot_be_changed_needs_no_copy() -> None:
    """A value is copied for its proof only if something in it could be changed, or if nobody can tell."""

    @dataclass(frozen=True)
    class Odd:
        a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    for fixed in (1, "a", (1, ("b",)), frozenset({Point(1)}), FrozenDict({"a": (Item(name="a"),)}), Colour.RED, dt.UTC):
        assert not changeable(fixed)
    free: list[Any] = [[], {}, ([],), FrozenDict({"a": [1]}), Pair(1), Update(), Odd(1)]
    for value in free:
        assert changeable(value)


def test_annotations_that_pydantic_cannot_read_check_nothing() -> None:
    """A field may be annotated with what is no type at all."""
    odd = make_dataclass("odd", [("a", 3)])
    fine = make_dataclass("fine", [("a", 3), ("b", int)])
    codec = Codec(Kinds([odd, fine]))

    assert same(there_and_back((odd(1), fine("x", 2)), codec), (odd(1), fine("x", 2)))


def test_the_base_of_all_plans_builds_nothing() -> None:
    """Each kind of class has a plan of its own."""
    plan = Plan(Point, ("x",))

    with pytest.raises(NotImplementedError):
        plan.parts(Point(1))
    with pytest.raises(NotImplementedError):
        plan.build({})


def test_a_class_that_breaks_when_it_is_asked_for_its_bases() -> None:
    """A metaclass may do anything; one typed error comes out."""

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name == "__mro__":
                raise RuntimeError(name)
            return super().__getattribute__(name)

    class Hostile(metaclass=Meta):
        pass

    with pytest.raises(NotStorable, match="its class raised RuntimeError") as caught:
        CODEC.encode((Hostile(),), "it")
    assert caught.value.where == "[0]"


def test_whatever_else_goes_wrong_is_a_refusal_too() -> None:
    """A secret whose comparison raises has no place, but still the one error."""

    class Raising(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("eq")

        __hash__ = str.__hash__

    class Login(Context):
        token: Annotated[str, secret] = ""

    value = (Update(token=Raising("a")), Update(token=Raising("b")))
    with pytest.raises(NotStorable, match="RuntimeError"):
        Codec(Kinds([Login])).encode(value, "it")


# --- annotations -----------------------------------------------------------------------------------------------------


def test_annotations_in_any_state_are_looked_at() -> None:
    """Forward references, what has no annotations, and lists of parameters."""

    def annotations(_: object) -> Any:
        raise RuntimeError("annotations")

    closed = type("Closed", (), {"__annotations__": property(annotations)})()
    assert marked(ForwardRef("Annotated[str, secret]"))
    assert not marked(Literal["secret"])
    assert read_hints(closed, {}) == {}
    assert read_hints(3, {}) == {}


def test_a_declaration_may_be_anything() -> None:
    """Parameters of a Callable, a cell that is not filled, a node of a class that nobody knows."""

    def empty() -> Any:
        return later

    found = set(kinds_in(Callable[[Point], Item], empty))
    later = Slotted("a")

    class Bare(Node[Context]):
        pass

    graph = Graph("g", START >> Bare(name="n") >> END, context=Context)

    assert found == {Point, Item, Item.Shape}
    assert set(kinds_in(empty)) == {Slotted}
    assert later.name == "a"
    assert Point not in kinds_of(graph).classes


def test_exceptions_that_functions_name_are_found() -> None:
    """A function declares the exceptions that it, or what it calls, speaks of."""

    class Sold(Exception):
        pass

    def check() -> None:
        raise Sold

    def body() -> None:
        try:
            check()
        except (KeyError, Sold) as error:
            raise RuntimeError from error

    assert set(errors_in(body)) == {Sold}
    assert errors_in() == ()


def test_one_graph_in_two_places_is_walked_once() -> None:
    """Two graphs may hold the same one, and a field may hold any model: that declares none."""
    leaf = FunctionNode[Context](name="leaf", fn=any_model)
    inner = Graph("inner", START >> leaf >> END, context=Context)
    middle = Graph("middle", START >> inner >> END, context=Context)
    graph = Graph("g", START >> inner >> middle >> END, context=Context)

    assert kinds_of(graph).classes == kinds_of(inner).classes == OURS.classes


def any_model(_: State[Context]) -> BaseModel:
    """Say little of what it returns."""
    raise NotImplementedError


def test_generic_models_are_declared_with_their_parts() -> None:
    """`Box[Item]` brings `Box` and `Item`; a type variable brings its bound."""

    class Tall(NamedTuple):
        x: int

    assert set(kinds_in(Box[Item])) == {Box[Item], Box, Item, Item.Shape}
    assert set(kinds_in(Box[Tall])) == {Box[Tall], Box, Tall}
    assert "antigravity" not in sys.modules
