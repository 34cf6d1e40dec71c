"""What the codec gives back: the same value, of the same types all the way down, whatever it is made of."""

import datetime as dt
import json
import math
import os
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from decimal import Decimal
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ConfigDict, Field, HttpUrl

from graphflow import Brief, Budget, Call, Context, Delegate, Done, FrozenDict, Handoff, Pause, Report, Update
from graphflow.graphs.kinds import OURS
from graphflow.model.codec import Codec, Kinds, Unreadable
from graphflow.model.exact import DEEPEST, same
from graphflow.model.outcome import NOTHING
from tests.codec_values import (
    CODEC,
    TYPES,
    VALUES,
    Box,
    Case,
    Checked,
    Colour,
    Derived,
    Item,
    Loose,
    Pair,
    Point,
    Rights,
    there_and_back,
)
from tests.support import ROOT, examples

T = TypeVar("T")


@settings(max_examples=examples(3_000))
@given(VALUES)
def test_any_value_comes_back_exactly(value: Any) -> None:
    """Whatever can be stored comes back equal and of the same types, through the text of its JSON."""
    assert same(there_and_back(value), value)


@settings(max_examples=examples(500))
@given(VALUES)
def test_what_is_written_is_plain_json(value: Any) -> None:
    """What is written is made of the seven plain classes alone, so that text gives the same data again."""
    data = CODEC.encode(value, "it")

    assert {type(part) for part in parts(data)} <= {dict, list, str, int, float, bool, type(None)}
    assert json.loads(json.dumps(data, allow_nan=False)) == data


@settings(max_examples=examples(500))
@given(VALUES)
def test_what_comes_back_is_written_alike(value: Any) -> None:
    """A value that was read is written by the same data: a stored run that is written anew does not drift."""
    data = CODEC.encode(value, "it")

    assert json.dumps(CODEC.encode(CODEC.decode(data), "it")) == json.dumps(data)


def parts(data: Any) -> Iterator[Any]:
    """Give everything that JSON data are made of."""
    yield data
    if isinstance(data, dict):
        for key, value in cast("dict[str, Any]", data).items():
            yield key
            yield from parts(value)
    elif isinstance(data, list):
        for item in cast("list[Any]", data):
            yield from parts(item)


# --- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        (3, 3),
        (-0.0, -0.0),
        ((1, ("a",)), [1, ["a"]]),
        (FrozenDict({"a": 1}), {"a": 1}),
        (FrozenDict({"$a": 1}), {"$": "FrozenDict", "pairs": [["$a", 1]]}),
        ({"$a": 1}, {"$": "dict", "of": {"$a": 1}}),
        ({1: "a"}, {"$": "dict", "pairs": [[1, "a"]]}),
        ([1], {"$": "list", "of": [1]}),
        ({"b", "a"}, {"$": "set", "of": ["a", "b"]}),
        (b"\xff\xfe", {"$": "bytes", "b64": "//4="}),
        (math.inf, {"$": "float", "is": "inf"}),
        (Decimal("1.00"), {"$": "Decimal", "is": "1.00"}),
        (dt.datetime(2026, 3, 4, tzinfo=dt.UTC), {"$": "datetime", "is": "2026-03-04T00:00:00", "zone": "utc"}),
        (Colour.RED, {"$": "Colour", "is": "RED"}),
        (Rights.READ | Rights.WRITE, {"$": "Rights", "value": 3}),
        (Point(1, 2.0), {"$": "Point", "x": 1, "y": 2.0}),
        (Item(name="a"), {"$": "Item", "name": "a", "shape": {"$": "Item.Shape", "is": "ROUND"}, "size": 1,
                          "$set": ["name"]}),
        (Update(count=3), {"$": "Update", "of": {"count": 3}}),
        (Done(), {"$": "Done", "output": {"$": "NOTHING"}, "update": None}),
        (int | None, {"$": "type", "is": ["|", "int", "NoneType"]}),
    ],
    ids=str,
)  # fmt: skip
def test_the_forms_of_values(value: Any, data: Any) -> None:
    """Each kind of value has one form, which does not change: journals that are stored must be readable for ever."""
    assert json.dumps(CODEC.encode(value, "it")) == json.dumps(data)
    assert same(CODEC.decode(data), value)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_come_back_as_they_were_written(kind: Any) -> None:
    """A type as a value comes back in the same form: `int | None` is not `Optional[int]`."""
    back = there_and_back(Pause("which?", schema=kind)).schema

    assert type(back) is type(kind)
    assert back == kind
    assert repr(back) == repr(kind)


def test_l11_halves_of_surrogate_pairs_come_back() -> None:
    """Case L11: a lone surrogate is written without loss, and two halves side by side do not become one character."""
    for text in ("\ud800", "\ud83d\ude00", "a\udfff", "\U0001f600"):
        assert there_and_back(text) == text
        assert there_and_back({text: text}) == {text: text}
        assert there_and_back(FrozenDict({text: 1})) == {text: 1}
    assert there_and_back(b"\xff\xfe") == b"\xff\xfe"
    assert there_and_back("\ud83d\ude00") != "\U0001f600"


def test_one_text_for_each_value_whatever_the_seed_of_hashes(tmp_path: Any) -> None:
    """Sets are written in an order of their own, so the text is the same in every process."""
    program = (
        "import enum, json\n"
        "from graphflow import Report, Update\n"
        "from graphflow.model.codec import Codec, Kinds\n"
        "class Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
        "value = ({'b', 'a', 'c', 1, None, (1, 'x')}, frozenset({*Colour, b'x', frozenset({'p', 'q'})}),\n"
        "         Report(finding='x', evidence=('a',)), Update(b={'y', 'z'}, a=1))\n"
        "print(json.dumps(Codec(Kinds([Colour, Report])).encode(value, 'it')))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(texts) == 1


def test_long_numbers_are_not_written_in_decimal_digits() -> None:
    """A whole number of any length comes back, although Python writes and reads no more than some thousand digits."""
    for number in (1 << 12_999, -(1 << 13_000), 1 << 60_000):
        assert there_and_back(number) == number


def test_moments_keep_their_zone_and_their_fold() -> None:
    """The second of two equal wall times, a zone by key, a fixed one with a name: each comes back as it was."""
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    late = dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1)
    named = dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=330), "India"))

    back, other = there_and_back((late, named))

    assert (back, back.fold, back.tzinfo) == (late, 1, berlin)
    assert back.utcoffset() == dt.timedelta(hours=1)
    assert (other, other.tzname()) == (named, "India")


# --- classes of the graph --------------------------------------------------------------------------------------------


def test_l1_an_enum_inside_a_class_inside_a_model() -> None:
    """Case L1: an enum that is defined inside a class comes back as its very member."""
    value = Case(item=Item(name="a", shape=Item.Shape.FLAT))

    back: Case = there_and_back(value)

    assert back == value
    assert type(back) is Case
    assert back.item is not None
    assert back.item.shape is Item.Shape.FLAT


def test_l3_a_generic_model_keeps_its_class() -> None:
    """Case L3: `Box[Item]`, nested, comes back as that class, and never as a dict."""
    value = ({"box": Box[Item](item=Item(name="a"), more=(Item(name="b"),))},)

    back = there_and_back(value)

    assert back == value
    assert type(back[0]["box"]) is Box[Item]
    assert type(back[0]["box"].item) is Item


def test_which_fields_were_set_comes_back() -> None:
    """What was given and what is a default stay told apart: `exclude_unset` says the same after a restart."""
    for value in (Brief(objective="a"), Brief(objective="a", output="b", guidance="", sources=(), boundary="")):
        assert there_and_back(value).model_fields_set == value.model_fields_set


def test_defaults_that_were_never_validated_come_back() -> None:
    """A default need not be valid (1 for a float): it comes back as it is, and so does a value of a factory."""

    class Made(BaseModel):
        number: float = 1
        at: list[int] = Field(default_factory=lambda: [len(seen)])
        odd: int = "none"  # type: ignore[assignment]  # pydantic does not look at defaults

    seen: list[Any] = []
    codec = Codec(Kinds([Made]))
    first, second = Made(), Made(number=2.5)
    seen.append(first)

    for value in (first, second):
        back = there_and_back(value, codec)
        assert same(back, value)
    assert type(there_and_back(first, codec).number) is int


def test_extra_values_and_aliases_come_back() -> None:
    """Values that are no fields, and fields that are given by another name, are stored by their own names."""
    value = Loose.model_validate({"found": 1, "Renamed": 7, "one": [1], "$set": 2})

    back = there_and_back(value)

    assert same(back, value)
    assert (back.renamed, back.one, back.model_fields_set) == (7, [1], {"found", "renamed", "one", "$set"})
    assert there_and_back(Checked(Size=3)) == Checked(Size=3)


def test_fields_that_a_constructor_fills_come_back() -> None:
    """A dataclass field with init=False is stored if the constructor makes the same of it."""
    assert there_and_back(Derived(("a", "b"))).count == 2


def test_a_class_without_fields_and_an_empty_model() -> None:
    """A value may hold nothing at all."""

    class Empty(BaseModel):
        pass

    @dataclass
    class Bare:
        pass

    codec = Codec(Kinds([Empty, Bare]))

    assert same(there_and_back((Empty(), Bare()), codec), (Empty(), Bare()))


def test_generic_dataclasses_and_init_only_arguments() -> None:
    """A generic dataclass is one class; an argument that is no field needs a default to be built without it."""

    @dataclass
    class Held(Generic[T]):
        it: T
        scale: InitVar[int] = 1

        def __post_init__(self, scale: int) -> None:
            if scale != 1:
                self.it = None  # type: ignore[assignment]  # what the argument does is its own

    codec = Codec(Kinds([Held]))

    assert same(there_and_back(Held[int](3), codec), Held(3))
    assert same(there_and_back(Held(3, 2), codec), Held(cast("int", None)))


def test_a_named_tuple_with_a_constructor_of_its_own() -> None:
    """A NamedTuple is put together from its items: what a subclass does in `__new__` is not called again."""

    class Base(NamedTuple):
        a: int

    class Doubling(Base):
        __slots__ = ()

        def __new__(cls, a: int) -> Self:
            return super().__new__(cls, 2 * a)

    back = there_and_back(Doubling(2), Codec(Kinds([Doubling])))

    assert type(back) is Doubling
    assert back == (4,)


def test_annotations_that_nobody_can_read_check_nothing() -> None:
    """A dataclass whose annotations name what is not there is stored all the same."""

    @dataclass
    class Odd:
        a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821
        b: int

    codec = Codec(Kinds([Odd]))

    assert there_and_back(Odd("x", 2), codec) == Odd("x", 2)
    with pytest.raises(Unreadable, match="b is not valid"):
        codec.decode({"$": codec.kinds.name_of(Odd), "a": "x", "b": "two"})


def test_what_our_own_outcomes_hold_comes_back() -> None:
    """Every outcome, brief, report and budget is a value like any other, in any graph."""
    codec = Codec(OURS)
    brief = Brief(objective="look", sources=("a",))
    outcomes: list[Any] = [
        None,
        NOTHING,
        Update(a=1),
        Done((1,), Update(b=())),
        Handoff("b", note={"x": 1}),
        Delegate(Call("a", brief), Call("b", "do", id="two", needs=("0",)), update=Update(c=1)),
        Pause("what?", schema=Report | None),
        Report(finding="x"),
        Budget(usd="0.10", seconds=3),
        Context(),
    ]

    for value in outcomes:
        assert same(there_and_back(value, codec), value)
    assert there_and_back(NOTHING) is NOTHING


def test_a_value_as_deep_as_allowed_comes_back_from_a_deep_stack() -> None:
    """The deepest value that is written can be read, from a stack that is in use already."""
    value: Any = {1: "end"}
    for _ in range(DEEPEST // 2 - 1):
        value = {1: [value]}

    def below(levels: int) -> Any:
        return there_and_back(value) if levels == 0 else below(levels - 1)

    assert below(200) == value


# --- names -----------------------------------------------------------------------------------------------------------


def made(name: str, module: str) -> type[Any]:
    """Make a model of any name."""
    return type(name, (BaseModel,), {"__module__": module, "__qualname__": name})


def test_names_are_short_where_they_are_unique() -> None:
    """A class is called by its qualified name, by its module too where two have it, and either form is read."""
    one, two, three = made("A", "m"), made("A", "n"), made("B", "m")
    kinds = Kinds([one, two, three])

    assert [kinds.name_of(kind) for kind in (one, two, three)] == ["m:A", "n:A", "B"]
    assert (kinds.named("B"), kinds.named("m:B"), kinds.named("n:A")) == (three, three, two)
    with pytest.raises(Unreadable, match="no class 'A'"):
        kinds.named("A")


def test_names_that_mean_something_else_take_their_module() -> None:
    """A class of a user may be called `list`."""
    kind = made("list", "m")
    codec = Codec(Kinds([kind]))

    assert codec.kinds.name_of(kind) == "m:list"
    assert same(there_and_back((kind(), [1]), codec), (kind(), [1]))


def test_more_classes_leave_names_as_they_are() -> None:
    """What was written with fewer classes can be read with more of them."""
    one, two = made("A", "m"), made("A", "n")
    few = Kinds([one])
    many = few.with_([two])

    assert (few.name_of(one), few.name_of(two)) == ("A", None)
    assert (many.name_of(one), many.name_of(two), many.named("A")) == ("A", "n:A", one)
    assert many.with_([one, two]) is many
    assert Codec(many).decode(Codec(few).encode(one(), "it")) == one()


def test_only_classes_of_values_are_kinds() -> None:
    """Models, dataclasses, NamedTuples and enums with members are kinds; whatever else is given is left out."""
    kinds = Kinds([int, BaseModel, type("Plain", (), {}), type(Colour), Point, Pair])

    assert kinds.classes == {Point, Pair}


def test_a_frozen_setting_of_pydantic_makes_no_difference() -> None:
    """Strings that pydantic cleans are stored once they are clean."""

    class Clean(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True)
        text: str

    assert there_and_back(Clean(text=" a "), Codec(Kinds([Clean]))) == Clean(text="a")


def test_what_pydantic_makes_of_json_can_be_stored() -> None:
    """Models that were read from JSON hold pydantic's own time zones and URLs."""

    class Seen(BaseModel):
        at: dt.datetime
        link: HttpUrl

    codec = Codec(Kinds([Seen]))
    value = Seen.model_validate_json('{"at": "2026-01-01T00:00:00+02:30", "link": "https://example.org/a"}')

    assert same(there_and_back(value, codec), value)
    assert json.dumps(codec.encode(value.at, "it")).count('"zone": ["TzInfo", 9000]') == 1
