"""Classes and values that the tests of the codec share: one of everything that can be stored."""

import datetime as dt
import enum
import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import pydantic.dataclasses
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, HttpUrl, RootModel, field_validator
from pydantic_core import TzInfo

from graphflow import Budget, Call, Context, Delegate, Done, FrozenDict, Handoff, Pause, Report, Update, append
from graphflow.graphs.kinds import OURS
from graphflow.model.codec import Codec
from graphflow.model.contract import Approval, Reason
from graphflow.model.frozen import Json
from graphflow.model.ids import Segment
from graphflow.model.outcome import NOTHING, Skip
from graphflow.model.thread import ThreadMessage, ToolCall
from graphflow.nodes.client import ModelReply, Usage

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Pair:
    left: Any
    right: "Pair | None" = None


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Derived:
    words: tuple[str, ...]
    count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", len(self.words))


@pydantic.dataclasses.dataclass(frozen=True)
class Checked:
    size: int = Field(alias="Size")


class Item(BaseModel):
    model_config = ConfigDict(frozen=True)

    class Shape(enum.Enum):
        """An enum inside a class."""

        ROUND = 1
        FLAT = 2

    name: str
    shape: Shape = Shape.ROUND
    size: float = 1


class Box(BaseModel, Generic[T]):
    model_config = ConfigDict(frozen=True)

    item: T
    more: tuple[T, ...] = ()


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    found: Any = None
    renamed: int = Field(default=0, alias="Renamed")


class Numbers(RootModel[tuple[int, ...]]):
    pass


class Case(Context):
    question: str = ""
    notes: Annotated[tuple[str, ...], append] = ()
    item: Item | None = None
    table: FrozenDict[str, Json] = FrozenDict()
    at: dt.datetime | None = None

    @field_validator("question")
    @classmethod
    def _not_too_long(cls, text: str) -> str:
        if len(text) > 10_000:
            msg = "too long"
            raise ValueError(msg)
        return text


CLASSES: Final[tuple[type[Any], ...]] = (
    Colour, Level, Mood, Rights, Point, Pair, Slotted, Derived, Checked, Item, Item.Shape, Box[Item], Box[int], Loose,
    Numbers, Case,
)  # fmt: skip
CODEC: Final = Codec(OURS.with_(CLASSES))


def there_and_back(value: Any, codec: Codec = CODEC) -> Any:
    """Write a value as text and read it."""
    text = json.dumps(codec.encode(value, "it"), allow_nan=False)
    return codec.decode(json.loads(text))


# --- strategies ------------------------------------------------------------------------------------------------------

LONG: Final = 1 << 15_000
TEXTS: Final = st.text(alphabet=st.characters(exclude_categories=()), max_size=8)
PLAIN: Final = st.text(max_size=8)  # pydantic takes no halves of surrogate pairs
ZONES: Final = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.integers(-86_399, 86_399).map(TzInfo),
    st.builds(dt.timezone, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))),
    st.builds(dt.timezone, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)), TEXTS),
    st.sampled_from(("Europe/Berlin", "America/New_York", "UTC")).map(zoneinfo.ZoneInfo),
)


def moved(at: Any, zone: dt.tzinfo | None, fold: int) -> Any:
    """Put a time into a zone."""
    return at.replace(tzinfo=zone, fold=fold)


HASHABLE_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.booleans().map(lambda sign: LONG if sign else -LONG),
    st.floats(),
    st.complex_numbers(),
    TEXTS,
    st.binary(max_size=8),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.dates(),
    st.timedeltas(),
    st.builds(moved, st.datetimes(), ZONES, st.integers(0, 1)),
    st.builds(moved, st.times(), ZONES, st.integers(0, 1)),
    st.uuids(),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    st.sampled_from(
        (pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("c:\\x"), pathlib.Path("a\udce4"), dt.UTC,
         ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"), uuid.UUID(int=7), TzInfo(7200),
         re.compile("a+", re.IGNORECASE), re.compile(b"\xff"),
         HttpUrl("https://example.org/a?b=c"), AnyUrl("x:y"), Decimal("1E+999999"),
         Fraction(-1, 3), Colour.BLUE, Level.HIGH, Mood.GOOD, Rights.READ | Rights.RUN,
         Rights(0), Item.Shape.FLAT, NOTHING, Point(1), Slotted("a", ("b",)), Derived(("a", "b")))
    ),
)  # fmt: skip


def _frozen(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3))


HASHABLE: Final = st.recursive(HASHABLE_SCALARS, _frozen, max_leaves=4)

TYPES: Final[tuple[Any, ...]] = (
    None, int, str, Any, Json, Item, Colour, list[int], dict[str, tuple[int, ...]], tuple[()], tuple[int, str],
    frozenset[Point], Literal["a", 1, True, b"x"], Literal[Colour.RED], int | None, Optional[str],  # noqa: UP045
    Union[Item, int, None], Item | Point, Annotated[int, "more than none", 3], FrozenDict[str, Json],  # noqa: UP007
    list[Item | None] | None, type[Item], Box[Item], list[Annotated[str, Point(1, 2.0)]],
)  # fmt: skip

INSTANCES: Final = st.one_of(
    st.builds(Item, name=PLAIN, shape=st.sampled_from(Item.Shape), size=st.floats(allow_nan=False)),
    st.builds(Item, name=PLAIN),
    st.builds(Box[int], item=st.integers(), more=st.lists(st.integers(), max_size=3).map(tuple)),
    st.builds(Numbers, st.lists(st.integers(), max_size=3).map(tuple)),
    st.builds(Case, question=PLAIN, notes=st.lists(PLAIN, max_size=2).map(tuple), at=st.datetimes(timezones=ZONES)),
    st.builds(Case, table=st.dictionaries(PLAIN, st.integers(), max_size=2).map(FrozenDict)),
    st.builds(Checked, Size=st.integers()),
    st.builds(Report, finding=st.just("paid twice"), evidence=st.lists(PLAIN, max_size=2).map(tuple)),
    st.builds(Reason, code=st.just("tokens"), text=PLAIN, limit=st.floats(allow_nan=False)),
    st.builds(Report.failed, st.builds(Reason, code=st.just("failed"), text=PLAIN)),
    st.builds(Budget, tokens=st.integers(0, 9), usd=st.sampled_from(("0.10", "1", None))),
    st.builds(ModelReply, TEXTS, st.lists(st.builds(ToolCall, TEXTS, TEXTS, TEXTS), max_size=2).map(tuple)),
    st.builds(ModelReply, TEXTS, usage=st.builds(Usage, st.integers(0, 9), usd=st.just(Decimal("0.10")))),
    st.builds(ThreadMessage, st.sampled_from(("user", "assistant", "tool")), TEXTS),
    st.builds(Segment, TEXTS, st.integers(1), st.lists(st.integers(0, 9), max_size=2).map(tuple), st.just((1, 2))),
    st.sampled_from((Approval(approve=True), Skip("why"), Approval.model_validate("no, it is late"))),
    st.sampled_from(TYPES),
)


def delegated(to: str, update: Update) -> Delegate:
    """Ask one node."""
    return Delegate(Call(to, "do it", needs=(to,)), update=update)


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    updates = st.dictionaries(PLAIN, inner, max_size=2).map(lambda fields: Update(**fields))
    keys = st.one_of(TEXTS, HASHABLE)
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(FrozenDict),
        st.dictionaries(TEXTS, inner, max_size=3).map(FrozenDict),
        st.sets(HASHABLE, max_size=3),
        updates,
        st.builds(Pair, inner),
        st.builds(Pair, inner, st.builds(Pair, inner)),
        st.builds(Loose, found=inner, Renamed=st.integers(), extra=inner),
        st.builds(Loose, found=inner),
        st.builds(Done, inner, st.one_of(st.none(), updates)),
        st.builds(Handoff, TEXTS, inner),
        st.builds(delegated, TEXTS, updates),
        st.builds(Pause, TEXTS, st.sampled_from(TYPES), updates),
    )


VALUES: Final = st.recursive(st.one_of(HASHABLE, INSTANCES, st.decimals()), _holding, max_leaves=8)
"""Any value that can be stored."""
