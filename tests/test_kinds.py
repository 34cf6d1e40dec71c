"""What a graph declares: the classes that may stand in a journal of its runs, found by walking the graph itself."""

import collections
import enum
import functools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar, cast

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Brief,
    Context,
    FrozenDict,
    Graph,
    Human,
    Join,
    Pause,
    Report,
    State,
    node,
    tool,
)
from graphflow.graphs import kinds as module
from graphflow.graphs.kinds import OURS, kinds_in, kinds_of
from graphflow.model.codec import Codec, secret
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Chain
from graphflow.testing import ScriptedModel
from tests import codec_values
from tests.codec_values import Box, Colour, Item, Pair, Point, Slotted

T = TypeVar("T")


class Plain(Context):
    text: str = ""


class Kind(enum.Enum):
    A = 1


Several = TypeAliasType("Several", tuple[Kind, ...])
Fresh = NewType("Fresh", Slotted)


@node
def idle(state: State[Plain]) -> None:
    """Do nothing."""


def declared(*chains: Chain[Any], context: type[Context] = Plain, **options: Any) -> set[type[Any]]:
    """Give what a graph declares besides our own classes and its context."""
    given: tuple[Chain[Any], ...] = chains or (START >> idle >> END,)
    graph = Graph("g", *given, context=context, **options)
    return set(kinds_of(graph).classes - OURS.classes - {context, Plain})


def of_node(fn: Callable[..., Any]) -> set[type[Any]]:
    """Give what a graph with one node of this function declares."""
    made: Node[Any] = node(name="n")(fn)
    return declared(START >> made >> END)


# --- contexts --------------------------------------------------------------------------------------------------------


def test_the_fields_of_a_context_are_declared_all_the_way_down() -> None:
    """Through unions, tuples, tables, generics, aliases, new types, nested models, dataclasses and NamedTuples."""

    class Inner(BaseModel):
        point: Point

    @dataclass(frozen=True)
    class Data:
        inner: "Inner | None"
        colour: Colour | None = None

    class Deep(Context):
        table: FrozenDict[str, tuple[Box[Item] | None, ...]]
        several: Several
        fresh: Annotated[Fresh, Field(description="x")]

    class Wide(BaseModel):
        data: "list[Data]"

    found = set(kinds_in(Deep, Wide, Data))

    assert found == {Deep, Box[Item], Box, Item, Item.Shape, Kind, Slotted, Wide, Data, Colour}


def test_contexts_of_nested_graphs_are_declared() -> None:
    """A graph inside a graph brings its context, and what its nodes declare."""

    class Below(Context):
        item: Item | None = None

    @node
    def leaf(state: State[Below]) -> Point:
        return Point(1)

    inner = Graph("inner", START >> leaf >> END, context=Below, enter=lambda state: Below())

    found = declared(START >> idle >> inner >> END, idle.delegates(inner, max_hops=1))

    assert found >= {Below, Item, Point}


def test_recursive_classes_end() -> None:
    """A class that speaks of itself is walked once."""
    assert set(kinds_in(Pair)) == {Pair}


# --- functions -------------------------------------------------------------------------------------------------------


def test_return_types_of_nodes_are_declared() -> None:
    """What a node says that it returns, it may return."""

    def one(state: State[Plain]) -> tuple[Item, ...] | None:
        raise NotImplementedError

    def two(state: "State[Plain]") -> "dict[str, Point]":
        raise NotImplementedError

    assert of_node(one) == {Item, Item.Shape}
    assert of_node(two) == {Point}


def test_classes_that_a_body_names_are_declared() -> None:
    """No annotation is needed where the body names the class: in globals, closures, modules, defaults, lambdas."""

    class Local(BaseModel):
        pass

    def by_global(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Point(1)

    def by_closure(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Local()

    def by_module(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return codec_values.Slotted("a")

    def by_class(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Outer.Inner.A

    def by_default(state: State[Plain], *, kind: Any = Point):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return kind(1)

    def by_lambda(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return tuple(map(lambda _: Colour.RED, (1, 2)))  # noqa: C417 - its body is a function of its own

    def by_pause(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Pause("which?", schema=Item | None)

    assert of_node(by_global) == {Point}
    assert of_node(by_closure) == {Local}
    assert of_node(by_module) == {Slotted}
    assert of_node(by_class) == {Outer.Inner}
    assert of_node(by_default) == {Point}
    assert of_node(by_lambda) == {Colour}
    assert of_node(by_pause) == {Item, Item.Shape}


class Outer:
    class Inner(enum.Enum):
        """An enum inside a class."""

        A = 1


STANDARD = Slotted("standard")
EITHER = Colour | Point


def helper() -> Any:
    """Make a point where nobody sees it."""
    return (deeper(), STANDARD)


def deeper() -> Any:
    """Make a point."""
    return Point(1)


def test_functions_that_a_body_calls_are_looked_at_too() -> None:
    """What a node gives may be made by a helper in its package; constants and types that it names count as well."""

    def by_helper(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return helper()

    def by_type(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Pause("which?", schema=EITHER)

    assert of_node(by_helper) == {Point, Slotted}
    assert of_node(by_type) == {Colour, Point}


def test_long_chains_of_helpers_take_no_stack() -> None:
    """The walk is a loop: thousands of functions that call each other are no matter."""
    scope: dict[str, Any] = {"Point": Point, "__name__": __name__}
    calls = "\n".join(f"def f{i}(state): return f{i + 1}(state)" for i in range(3_000))
    exec(f"{calls}\ndef f3000(state): return Point(1)", scope)

    assert of_node(scope["f0"]) == {Point}


def test_methods_partials_and_callables_are_functions_too() -> None:
    """Whatever can be the function of a node is walked: a bound method, a partial, an object with `__call__`."""

    class Body:
        kind = Colour

        def __init__(self, made: Any) -> None:
            self.made = made

        def __call__(self, state: State[Plain]) -> Any:
            return self.helped()

        def helped(self, state: State[Plain] | None = None) -> Any:
            return (Point(1), self.also(), self.made(name="a"))

        @staticmethod
        def also() -> Any:
            return Outer.Inner.A

        @classmethod
        def bound(cls, state: State[Plain]) -> Any:
            return cls.kind

    def with_kind(kind: Any, state: State[Plain]) -> Any:
        return kind(1)

    assert of_node(Body(Item)) == {Point, Outer.Inner, Item, Item.Shape}
    assert of_node(Body(Item).helped) == {Point, Outer.Inner, Item, Item.Shape}
    assert of_node(functools.partial(with_kind, Point)) == {Point}
    assert of_node(Body.bound) == {Colour}


def test_decorated_functions_are_looked_through() -> None:
    """A decorator hides a function in a closure, with `functools.wraps` or without."""

    def wrapping(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(state: State[Plain]) -> Any:
            return fn(state)

        return inner

    def hiding(fn: Callable[..., Any]) -> Callable[..., Any]:
        def inner(state: State[Plain]) -> Any:
            return fn(state)

        return inner

    def body(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return Point(1)

    assert of_node(wrapping(body)) == {Point}
    assert of_node(hiding(body)) == {Point}


# --- everything else that declares -----------------------------------------------------------------------------------


def test_agents_tools_questions_and_people_declare() -> None:
    """Outputs, parameters and results of tools, and the types of answers."""

    class Answer(BaseModel):
        model_config = {"frozen": True}
        item: Item

    @tool
    def look_up(point: Point) -> Slotted:
        """Look it up."""
        raise NotImplementedError

    class Form(BaseModel):
        colour: Colour

    agent = Agent("a", model=ScriptedModel([]), output=Answer, tools=[look_up, AskUser(schema=Form)])
    person = Human("p", schema=Outer.Inner)

    assert declared(START >> agent >> person >> END) >= {Answer, Item, Point, Slotted, Form, Colour, Outer.Inner}


def test_edges_and_graphs_declare() -> None:
    """Contracts of delegations, what a map goes over, joins, outputs, `enter` and `leave`."""

    class Order(Brief):
        shape: Item.Shape = Item.Shape.FLAT

    class Found(Report):
        point: Point | None = None

    def over(state: State[Plain]) -> list[Colour]:
        raise NotImplementedError

    def reduce(values: tuple[Any, ...]) -> Slotted:
        raise NotImplementedError

    def leave(state: State[Plain]) -> Box[int]:
        raise NotImplementedError

    helper_node = idle.named("helper")
    join = Join("join", reduce=reduce)
    graph = Graph(
        "g",
        START >> idle,
        idle.map(idle.named("lane"), over=over, join=join, max_items=3),
        idle.delegates(helper_node, max_hops=1, brief=Order, report=Found),
        join >> END,
        context=Plain,
        leave=leave,
        output=Outer.Inner,
    )

    assert kinds_of(graph).classes - OURS.classes == {
        Plain, Order, Item.Shape, Found, Point, Colour, Slotted, Box[int], Box, Outer.Inner,
    }  # fmt: skip


def test_reducers_declare_what_they_take() -> None:
    """The second annotation of a reducer is the type of an update."""

    def latest(old: tuple[int, ...], new: Point) -> tuple[int, ...]:
        raise NotImplementedError

    class Reduced(Context):
        items: Annotated[tuple[int, ...], latest] = ()

    assert declared(context=Reduced) == {Point}


# --- what is not declared, and what never raises ---------------------------------------------------------------------


def test_classes_of_ours_that_are_no_values_stay_out() -> None:
    """Functions speak of `State`, tools and graphs, which no journal holds."""

    def body(state: State[Plain]) -> Any:
        return (State, Agent, Graph, Join, tool, ScriptedModel, node)

    assert of_node(body) == set()


def test_a_subclass_is_declared_by_name_alone() -> None:
    """A field may hold any subclass, but nobody has named it."""

    class More(Item):
        pass

    def body(state: State[Plain]) -> Item:
        raise NotImplementedError

    assert More not in of_node(body)


def test_other_classes_are_left_out() -> None:
    """Only models, dataclasses, NamedTuples and enums are kinds; a TypedDict says what is in a plain dict."""

    class Table(TypedDict):
        point: Point

    class Bare(Generic[T]):
        pass

    def body(state: State[Plain]) -> tuple[Table, Bare[Colour], int, collections.Counter[str]]:
        raise NotImplementedError

    assert of_node(body) == {Point, Colour}


class Broken(NamedTuple):
    fine: Point
    odd: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


def test_annotations_that_cannot_be_read_declare_nothing() -> None:
    """A name that is nowhere, or code that raises, is passed over; what stands beside it counts."""

    def body(state: Any, extra: Any = 1) -> "tuple[Broken, int]":
        return (Broken(Point(1), 1), 1)

    body.__annotations__ |= {"state": "State[Nowhere]", "extra": "1 / 0"}

    class Unfinished(BaseModel):
        other: "Elsewhere"  # type: ignore[name-defined]  # noqa: F821
        point: Point

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in {"__mro__", "__annotations__"}:
                raise RuntimeError(name)
            return super().__getattribute__(name)

    class Hostile(metaclass=Meta):
        pass

    def other(state: State[Plain]) -> tuple[Unfinished, Hostile, Slotted]:
        raise NotImplementedError

    assert of_node(body) == {Broken, Point}
    assert of_node(other) >= {Unfinished, Slotted}


def test_nothing_is_imported_and_nothing_is_called() -> None:
    """The walk looks at what is there: a lazy module is not asked, a property is not read."""
    lazy = types.ModuleType("lazy")
    asked: list[str] = []
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]  # as a lazy module has it

    class Holder:
        @property
        def thing(self) -> Any:
            asked.append("thing")
            return Point

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    holder = Holder()

    def body(state: State[Plain]) -> Any:
        return (lazy.thing, holder.thing, holder.other)

    before = set(sys.modules)

    assert of_node(body) == set()
    assert asked == []
    assert set(sys.modules) == before


def test_the_classes_of_a_graph_are_found_once() -> None:
    """Each graph value keeps its table, and copies under another name have one of their own."""
    graph = Graph("g", START >> idle >> END, context=Plain)

    assert kinds_of(graph) is kinds_of(graph)
    assert kinds_of(graph.named("h")) is not kinds_of(graph)
    assert kinds_of(graph.named("h")).classes == kinds_of(graph).classes
    assert graph == Graph("g", START >> idle >> END, context=Plain)


def test_marked_fields_of_contexts_are_known_to_the_table() -> None:
    """The secrets of every context in the graph are hidden in updates; those of contexts elsewhere are not."""

    class Hidden(Context):
        token: Annotated[str, secret] = ""

    class Elsewhere(Context):
        other: Annotated[str, secret] = ""

    def body(state: State[Hidden]) -> Any:
        return Elsewhere()

    graph = Graph("g", START >> node(name="n")(body) >> END, context=Hidden)

    assert kinds_of(graph).secrets == {"token"}


def test_a_value_of_a_node_is_stored_with_the_table_of_its_graph() -> None:
    """The table and the codec together: what an unannotated node gives comes back."""

    def body(state: State[Plain]):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return {"found": (Point(1), Box[int](item=1), Colour.RED)}

    codec = Codec(kinds_of(Graph("g", START >> node(name="n")(body) >> END, context=Plain)).with_([Box[int]]))
    value = cast("Any", body)(None)

    assert codec.decode(codec.encode(value, "it")) == value


def test_classes_of_the_function_of_an_effect() -> None:
    """`kinds_in` takes functions as well as types: what an effect returns is declared by its function."""

    def fetch(url: str) -> list[Point]:
        raise NotImplementedError

    assert set(kinds_in(fetch)) == {Point}
    assert set(kinds_in(functools.partial(fetch, "x"))) == {Point}
    assert set(kinds_in(fetch, Item)) == {Point, Item, Item.Shape}


@pytest.mark.parametrize("name", ["Brief", "Report", "Pause", "ModelReply", "ToolCall", "Budget", "Message"])
def test_our_own_classes_have_short_names_in_every_graph(name: str) -> None:
    """A user's class of the same name gets its module beside it; ours keep theirs."""
    theirs = type(name, (BaseModel,), {"__module__": "m", "__qualname__": name})
    kinds = OURS.with_([theirs])

    assert kinds.named(name) in OURS.classes
    assert kinds.name_of(theirs) == f"m:{name}"


def test_every_class_of_ours_that_an_outcome_can_be_is_there() -> None:
    """Whatever stands in the table of our classes can be stored."""
    for kind in OURS.classes:
        assert OURS.name_of(kind)
        assert OURS.plan(kind).kind is kind
    assert module.OURS is OURS
