"""What the codec refuses: at the node that made it, with the place in the value and what to do about it."""

import collections
import dataclasses
import enum
import functools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, List, NamedTuple, cast  # noqa: UP035 - an old form of a type

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ImportString, PrivateAttr, model_validator

from graphflow import Context, Done, FrozenDict, Pause, Report, Update
from graphflow.errors import NotStorable
from graphflow.graphs.kinds import OURS
from graphflow.model.codec import Codec, Kinds
from tests.codec_values import CODEC, Item, Loose, Pair, Point, Slotted


def refused(value: Any, *kinds: type[Any]) -> NotStorable:
    """Give the error of a value that cannot be stored, with some classes declared."""
    codec = Codec(CODEC.kinds.with_(kinds)) if kinds else CODEC
    with pytest.raises(NotStorable) as caught:
        codec.encode(value, "the output of 'a/b'")
    assert str(caught.value).startswith(f"the output of 'a/b' holds a {caught.value.kind}")
    return caught.value


class Id(str):
    __slots__ = ()


class Odd(dict[str, int]):
    pass


# --- L5, L9: what is no plain value ----------------------------------------------------------------------------------


def test_l9_a_lock_deep_inside_is_refused_with_its_place() -> None:
    """Case L9: `items[2].meta['client']` holds a lock; the error says so, and nothing was written."""

    @dataclass(frozen=True)
    class Entry:
        meta: FrozenDict[str, Any]

    entries = (Entry(FrozenDict()), Entry(FrozenDict()), Entry(FrozenDict({"client": threading.Lock()})))
    error = refused(Update(items=entries), Entry)

    assert (error.where, error.kind) == ("items[2].meta['client']", "_thread.lock")
    assert "resources" in str(error)


LOST: list[tuple[Any, str]] = [
    (collections.defaultdict(list), "FrozenDict"),
    (collections.Counter("aab"), "FrozenDict"),
    (collections.OrderedDict(a=1), "FrozenDict"),
    (collections.deque([1], maxlen=3), "plain data"),
    (Odd(), "FrozenDict"),
    (Id("a"), "plain str"),
    (type("Int", (int,), {})(1), "plain int"),
    (type("Tuple", (tuple,), {})(), "NamedTuple"),
    (type("List", (list,), {})(), "tuple"),
    (type("Frozen", (FrozenDict,), {})(), "FrozenDict itself"),
    (bytearray(b"a"), "bytes"),
    (memoryview(b"a"), "bytes"),
    (ValueError("a"), "its text"),
    (object(), "plain data"),
    (len, "plain data"),
    (functools.partial(len), "plain data"),
    (..., "plain data"),
    (sys, "plain data"),
    (iter(()), "plain data"),
]


@pytest.mark.parametrize(("value", "hint"), LOST)
def test_l5_what_would_come_back_as_something_else_is_refused(value: Any, hint: str) -> None:
    """Case L5: subclasses of plain classes, and what is no data, are refused by their class, never converted."""
    error = refused({"found": [0, value]})

    assert error.where == "['found'][1]"
    assert error.kind.rpartition(".")[2] == type(value).__qualname__
    assert hint in str(error)


def test_places_of_every_kind() -> None:
    """The place of a value is written as Python would write the way to it."""
    bad = bytearray()

    assert refused(bad).where == ""
    assert refused(([bad],)).where == "[0][0]"
    assert refused({1: {"a": bad}}).where == "[1]['a']"
    assert refused({(1, 2): bad}).where == "[<tuple>]"
    assert refused(FrozenDict({"$": bad})).where == "['$']"
    assert refused(Update(note=(bad,))).where == "note[0]"
    assert refused(Done(output=bad)).where == "output"
    assert refused(Pair(1, Pair([bad]))).where == "right.left[0]"
    assert refused(Loose.model_validate({"found": 1, "more": bad})).where == "more"
    assert refused(Point(1, bad)).where == "y"  # type: ignore[arg-type]
    assert refused({frozenset({Id("a")})}).where == "{...}{...}"
    assert refused({Id("a"): 1}).where == "[<tests.test_codec_refused.Id>] (the key)"
    assert refused({"k" * 500: bad}).where.endswith("k'...]")
    assert refused({1 << 20_000: bad}).where.startswith("[0x1000")


# --- cycles and depth ------------------------------------------------------------------------------------------------


def test_a_value_that_holds_itself_is_refused() -> None:
    """A cycle is named as one, with the way once around it."""
    items: list[Any] = [1]
    items.append({"again": items})
    pair = Pair(0)
    pair.left = (pair,)

    assert refused(items).where == "[1]['again']"
    assert "it holds itself" in str(refused(items))
    assert refused({"a": pair}).where == "['a'].left[0]"


@pytest.mark.parametrize("deep", [101, 5_000, 100_000])
def test_what_is_nested_too_deep_is_refused(deep: int) -> None:
    """Depth is bounded by a number of ours, well before Python's stack ends."""
    value: Any = 1
    for _ in range(deep):
        value = (value,)

    error = refused(value)

    assert "more than 100 values stand inside each other" in str(error)
    assert len(str(error)) < 1_000


def test_a_stack_that_is_nearly_used_up_is_no_crash() -> None:
    """Where the caller has left no stack, a value is refused as well."""
    value: Any = 1
    for _ in range(90):
        value = (value,)

    def below() -> Any:
        try:
            return below()
        except RecursionError:
            return CODEC.encode(value, "it")

    with pytest.raises(NotStorable, match="nested too deep"):
        below()


# --- classes that are not declared, or that change what they are given -----------------------------------------------


def test_a_class_that_is_not_declared_is_refused_with_the_way_out() -> None:
    """What a node returns must be declared: the hint says how."""

    class Unknown(BaseModel):
        pass

    error = refused((Unknown(),))

    assert error.kind.endswith("<locals>.Unknown")
    assert "annotate the return type of the node" in str(error)


def test_a_subclass_of_a_declared_class_is_not_declared() -> None:
    """Only the exact class counts: a subclass may hold more."""

    class More(Item):
        more: int = 1

    assert refused(More(name="a")).kind.endswith("More")


def test_two_classes_of_one_name_and_module_are_refused() -> None:
    """Nobody could tell their values apart."""

    def make() -> type[Any]:
        class Twin(BaseModel):
            pass

        return Twin

    one, two = make(), make()

    assert "rename" in str(refused(one(), one, two))


def _doubled(number: int) -> int:
    return 2 * number


class Changing(BaseModel):
    number: Annotated[int, AfterValidator(_doubled)]


class Private(BaseModel):
    number: int
    _seen: int = PrivateAttr(default=0)


class Cached(BaseModel):
    number: int

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.number


class Strange(BaseModel):
    @model_validator(mode="wrap")
    @classmethod
    def _other(cls, given: Any, handler: Any) -> Any:
        return handler(given) if isinstance(given, cls) else Item(name="a")


class Mutable(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int = 1


@dataclass
class Filled:
    number: int
    made: int = dataclasses.field(init=False, default=0)


@dataclass
class Turning:
    items: Any

    def __post_init__(self) -> None:
        self.items = tuple(self.items)


@dataclass
class Plain:
    number: int


@dataclass(slots=True)
class Slots:
    number: int


class More(Slots):
    __slots__ = ("hidden",)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.hidden = None


def with_(value: Any, **attributes: Any) -> Any:
    """Set attributes past every guard."""
    for name, part in attributes.items():
        object.__setattr__(value, name, part)
    return value


def with_private() -> Any:
    """Make a model whose private attribute is not as at first."""
    made: Any = Private(number=1)
    made._seen = 3
    return made


def cached() -> Cached:
    """Make a model whose cached property has been asked for."""
    made = Cached(number=2)
    assert made.twice == 4
    return made


def without(value: Any, name: str) -> Any:
    """Take a field away."""
    object.__delattr__(value, name)
    return value


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Changing(number=2), "'number' comes back as another value"),
        (lambda: Item.model_construct(name=3), "name is not valid"),
        (lambda: Item.model_construct(name="a", size="1.5"), "size is not valid"),
        (Item.model_construct, "'name' has no value"),
        (lambda: Item.model_construct(_fields_set={"name", "x"}, name="a"), "which it does not have"),
        (with_private, "private attributes"),
        (cached, "'twice' besides its fields"),
        (Strange.model_construct, "makes something else of it"),
        (lambda: with_(Mutable(), __pydantic_extra__={"number": 3}), "a name that no field has"),
        (lambda: with_(Mutable(), __pydantic_extra__={3: 3}), "needs a name"),
        (lambda: with_(Filled(1), made=2), "'made' comes back as another value"),
        (lambda: with_(Turning(()), items=[]), "'items' comes back as another value"),
        (lambda: with_(Plain(1), more=2), "'more' besides its fields"),
        (lambda: Plain("x"), "number is not valid"),  # type: ignore[arg-type]
        (lambda: without(Plain(1), "number"), "one of its fields raised AttributeError"),
        (lambda: with_(More(1), hidden=2), "slots that are no fields"),
        (lambda: with_(Report(finding="x"), __dict__={"finding": ""}), "has no value"),
        (lambda: Report.model_construct(finding=" ", action_needed=None, evidence=(), status="done", reason=None),
         "needs a finding"),
    ],
)  # fmt: skip
def test_what_a_class_would_not_build_again_is_refused_at_once(make: Callable[[], Any], says: str) -> None:
    """A value that is built again otherwise than it is, is refused when it is made, never late at a resume."""
    kinds = (Changing, Private, Cached, Strange, Mutable, Filled, Turning, Plain, Slots, More)

    error = refused({"it": make()}, *kinds)

    assert error.where.startswith("['it']")
    assert says in str(error)


def test_a_constructor_that_changes_what_it_is_given_is_found() -> None:
    """The proof builds a value from copies: a constructor that appends to a list changes nothing, and is refused."""

    @dataclass
    class Log:
        lines: list[str]
        first: Any = None

        def __post_init__(self) -> None:
            self.lines.append("made")

    class Page(BaseModel):
        log: Any

        def model_post_init(self, _: Any) -> None:
            self.log["seen"] = len(self.log)

    log, page = Log([]), Page(log={})

    assert "'lines' comes back" in str(refused(log, Log))
    assert "'log' comes back" in str(refused(page, Page))
    assert (log.lines, page.log) == (["made"], {"seen": 0})


def test_a_private_attribute_that_is_as_at_first_is_no_hindrance() -> None:
    """What a rebuilt value has by itself need not be stored."""
    codec = Codec(Kinds([Private, More]))

    assert codec.decode(codec.encode(Private(number=1), "it")) == Private(number=1)
    assert codec.decode(codec.encode(More(1), "it")) == More(1)


def test_a_wrong_value_deep_inside_a_valid_model_is_found() -> None:
    """Each instance is proved on its own, so the place is that of the instance that is wrong."""
    value = {"all": (Item(name="a"), Loose(found=(Item.model_construct(name=None),)))}

    assert refused(value).where == "['all'][1].found[0]"


def test_a_tuple_with_more_items_than_fields_is_refused() -> None:
    """A NamedTuple can be made with any number of items, past its constructor."""

    class Open(NamedTuple):
        a: int

    assert "more than its fields" in str(refused(cast("Any", tuple).__new__(Open, (1, 2)), Open))


def test_a_class_that_needs_more_than_its_fields_is_refused() -> None:
    """An argument without a default that is no field cannot be given again."""

    @dataclass
    class Needs:
        a: int
        scale: dataclasses.InitVar[int]

    assert "TypeError" in str(refused(Needs(1, 2), Needs))


def test_a_class_that_imports_by_name_is_refused() -> None:
    """A journal must never say what is imported, not even by way of a declared class."""

    class Loading(BaseModel):
        what: ImportString[Any]

    @dataclass
    class AlsoLoading:
        what: ImportString[Any]

    assert "imports" in str(refused(Loading(what="math.pi"), Loading))
    assert "imports" in str(refused(AlsoLoading(1), AlsoLoading))


def test_a_member_that_no_enum_has_is_refused() -> None:
    """Members are found by their names; one that was made past the enum has none."""

    class Lone(enum.Enum):
        A = 1

    stray: Any = object.__new__(Lone)
    stray._name_, stray._value_ = "B", 2

    assert "no member of its enum" in str(refused(stray, Lone))


# --- classes that raise ----------------------------------------------------------------------------------------------


class Raising(BaseModel):
    number: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("dict")
        return super().__getattribute__(name)


@dataclass(eq=False)
class Falling:
    number: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "number":
            raise RuntimeError("number")
        return super().__getattribute__(name)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        return 1


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in {"__qualname__", "__module__"}:
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Nameless(metaclass=Meta):
    pass


@pytest.mark.parametrize("kind", [Raising, Falling, Unequal, Nameless], ids=["dict", "field", "eq", "name"])
def test_a_class_that_raises_gives_the_one_error_too(kind: type[Any]) -> None:
    """Whatever a user's class does when it is looked at, one typed error comes out."""
    assert refused([kind()], Raising, Falling).where.startswith("[0]")


def test_a_validator_that_raises_anything_is_a_refusal() -> None:
    """A validator may raise what it likes when a value is built again."""
    calls: list[int] = []

    class Once(BaseModel):
        number: int

        @model_validator(mode="after")
        def _once(self) -> "Once":
            calls.append(1)
            if len(calls) > 1:
                raise LookupError("again")
            return self

    assert "LookupError" in str(refused(Once(number=1), Once))


def test_interrupts_pass() -> None:
    """KeyboardInterrupt is no error of a value."""

    @dataclass
    class Stopping:
        number: int = 1

        def __getattribute__(self, name: str) -> Any:
            if name == "number":
                raise KeyboardInterrupt
            return super().__getattribute__(name)

    with pytest.raises(KeyboardInterrupt):
        Codec(Kinds([Stopping])).encode(Stopping(), "it")


# --- types -----------------------------------------------------------------------------------------------------------


class Undeclared(BaseModel):
    pass


@pytest.mark.parametrize(
    "kind",
    [
        Undeclared,
        list[Undeclared],
        List[int],  # noqa: UP006
        collections.OrderedDict[str, int],
        Callable[[int], str],
        Annotated[int, Field(gt=0)],
        threading.Thread,
    ],
    ids=str,
)
def test_types_that_could_not_be_made_again_are_refused(kind: Any) -> None:
    """A type is stored if it is a plain one, a class of the graph, or made of such."""
    assert refused(Pause("which?", schema=kind)).where.startswith("schema")


def test_a_context_that_is_not_the_graph_s_is_refused() -> None:
    """Our own classes are known in every graph; a context of a user only in his."""

    class Other(Context):
        pass

    with pytest.raises(NotStorable, match="declare its class"):
        Codec(OURS).encode(Other(), "it")
    assert Codec(OURS).decode(Codec(OURS).encode(Context(), "it")) == Context()
    assert Codec(OURS.with_([Slotted])).encode(Slotted("a"), "it") == {"$": "Slotted", "name": "a", "tags": []}
