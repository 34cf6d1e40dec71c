"""Tools: the schema that a model sees, the arguments that it writes, and what is refused when a tool is made."""

import dataclasses
import datetime as dt
import functools
import json
import threading
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from graphflow.errors import UsageError
from graphflow.nodes.client import ToolSpec
from graphflow.nodes.signatures import descriptions
from graphflow.nodes.tools import AskUser, Tool, ToolFailure, ToolStep, as_tool, tool
from tests.support import examples


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Money(BaseModel):
    amount: float
    currency: Literal["EUR", "USD"] = "USD"


class Tree(BaseModel):
    name: str
    children: "tuple[Tree, ...]" = ()


@dataclass
class Point:
    x: int
    y: int = 0


@tool
def paint(  # noqa: D417, PLR0917 - a model gives arguments by name, and not each is described
    where: Point,
    colour: Colour = Colour.RED,
    price: Money | None = None,
    tags: tuple[str, ...] = (),
    mode: Literal["fast", "slow"] = "fast",
    tree: Optional[Tree] = None,  # noqa: UP045 - the older spelling works too
    layers: Annotated[int, Field(ge=1, le=9, description="from the bottom")] = 1,
    anything: Any = None,
) -> None:
    """Paint a wall, or a part of it.

    It takes a while.

    Args:
        where (Point): the corner
            to begin with.
        tags: words; see also: labels.
        layers: how many.
    """


@tool
def nothing() -> None:
    """Do nothing."""


@tool
def odd(
    schema: str, copy: bool, model_config: int, _hidden: float | None, json: list[Tree], self_: dict[str, int]
) -> None:
    """Take names that a pydantic model may not have."""


def plain(value: Any, more: Any = 3) -> Any:
    """Take anything."""


plain.__annotations__.clear()


SAMPLES: Final = (paint, nothing, odd, as_tool(plain), AskUser())


def shown(made: Tool | AskUser) -> dict[str, Any]:
    """The schemas of a tool's parameters."""
    found: dict[str, Any] = made.spec.parameters["properties"]
    return found


# --- the schema ---


def test_a_schema_comes_from_types_defaults_and_the_docstring() -> None:
    """What a model sees of a function says all that the function says of itself."""
    schema = paint.spec.parameters

    assert paint.spec == ToolSpec("paint", "Paint a wall, or a part of it.", paint.parameters_json)
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["where"], False)
    assert schema["properties"]["where"] == {"$ref": "#/$defs/Point", "description": "the corner to begin with."}
    assert schema["properties"]["tags"]["description"] == "words; see also: labels."
    assert schema["properties"]["layers"]["description"] == "from the bottom"
    assert schema["properties"]["mode"] == {"default": "fast", "enum": ["fast", "slow"], "type": "string"}
    assert schema["properties"]["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert schema["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["$defs"]["Money"]["properties"]["currency"]["default"] == "USD"
    assert "title" not in paint.parameters_json


def test_a_parameter_may_have_any_name() -> None:
    """Names that models reserve are names like any other here."""
    assert list(shown(odd)) == ["schema", "copy", "model_config", "_hidden", "json", "self_"]


def test_a_parameter_without_an_annotation_takes_any_value() -> None:
    """Nothing said means any JSON."""
    made = as_tool(plain)

    assert shown(made) == {"value": {}, "more": {"default": 3}}
    assert made.arguments('{"value": [1, {"a": null}]}') == {"value": [1, {"a": None}], "more": 3}


def test_the_default_of_a_set_is_written_in_an_order() -> None:
    """The schema is a part of a graph's fingerprint, and no hash seed may change it."""

    def choose(letters: frozenset[str] = frozenset("hgfedcba")) -> None: ...

    assert shown(tool(choose))["letters"]["default"] == list("abcdefgh")


def test_a_default_that_is_no_json_is_left_out() -> None:
    """A default stays the function's own affair."""
    nobody = threading.Lock()

    def lock(name: Any = nobody) -> None: ...

    assert shown(tool(lock)) == {"name": {}}
    assert tool(lock).arguments("")["name"] is nobody


def test_a_title_that_the_user_wrote_stays() -> None:
    """Only titles that repeat a name are left out, and a property may be called title."""

    class Sheet(BaseModel, title="A sheet of paper"):
        pass

    def show(title: str, sheet: Sheet | None = None, page: int = Field(4, title="Page number", ge=1)) -> None: ...

    made = tool(show)

    assert made.spec.parameters["$defs"]["Sheet"]["title"] == "A sheet of paper"
    assert {name: part for name, part in shown(made).items() if name != "sheet"} == {
        "title": {"type": "string"},
        "page": {"default": 4, "minimum": 1, "title": "Page number", "type": "integer"},
    }
    assert made.arguments('{"title": "x"}') == {"title": "x", "sheet": None, "page": 4}


def test_types_of_a_function_around_it_are_found_by_name() -> None:
    """An annotation that is text may name what stands beside the function."""

    class Order(BaseModel):
        id: str

    def ship(order: "Order", urgent: "bool" = False) -> None: ...

    ship.__annotations__["return"] = "Nobody knows"  # and nobody needs to

    class Desk:
        @tool
        def take(self, order: "Order") -> None: ...

    assert as_tool(ship).arguments('{"order": {"id": "A-7"}}') == {"order": Order(id="A-7"), "urgent": False}
    assert Desk().take.arguments('{"order": {"id": "A-7"}}') == {"order": Order(id="A-7")}


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(ToolStep, id="class"),
        pytest.param("ToolStep", id="text"),
        pytest.param(ToolStep | None, id="or None"),
        pytest.param("ToolStep | None", id="text or None"),
        pytest.param(Annotated[ToolStep, "mine"], id="annotated"),
    ],
)
def test_the_step_is_never_in_the_schema(annotation: Any) -> None:
    """What the run gives is not the model's to give."""

    def look(number: str, at: Any = None) -> None: ...

    look.__annotations__["at"] = annotation
    made = tool(look)

    assert (made.step, list(shown(made))) == ("at", ["number"])
    assert made.arguments('{"number": "1"}') == {"number": "1"}
    with pytest.raises(ValueError, match="at: is not known"):
        made.arguments('{"number": "1", "at": null}')


def test_a_step_inside_something_else_is_no_step() -> None:
    """Only a parameter that takes the step itself is given it."""

    def look(steps: list[ToolStep]) -> None: ...

    with pytest.raises(UsageError, match=r"'steps' cannot be given as JSON: .*; ToolStep for what the run gives"):
        tool(look)


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param("Look.\n\nReturns:\n    a: b", {}, id="another section"),
        pytest.param(
            "Look.\n\nArguments:\n  a: b\n  **c (int, optional): d", {"a": "b", "c": "d"}, id="stars and types"
        ),
        pytest.param("Args:\n    a: b\n\n    c: d\n      e\nRaises:\n    f: g", {"a": "b", "c": "d e"}, id="its end"),
        pytest.param("Args:\n    a: b\nArgs:\n  c: d", {"a": "b", "c": "d"}, id="twice"),
        pytest.param("Args:\n    a:\n    no entry\n    b : c", {"b": "c"}, id="nothing said"),
        pytest.param("Args:\n\n        a: b\n    c: d", {"a": "b", "c": "d"}, id="uneven"),
        pytest.param("Args:\na: b\n  c\nReturns:\nd: e", {"a": "b c"}, id="nothing before it"),
    ],
)
def test_descriptions_are_read_from_the_docstring(doc: str, found: dict[str, str]) -> None:
    """The style is Google's, and what is not written in it is passed over."""
    assert descriptions(doc) == found


# --- methods and other callables ---


class Desk:
    """An object whose methods are tools."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    @tool(effect="read")
    def convert(self, amount: int, step: ToolStep | None = None) -> int:
        """Convert dollars."""
        return amount * self.rate

    @staticmethod
    @tool
    def inner(amount: int) -> int:
        return amount

    @tool
    @staticmethod
    def outer(amount: int) -> int:
        return amount

    @classmethod
    def of(cls, rate: int) -> str:
        """Make another."""
        return f"{cls.__name__} {rate}"

    def plain(self, amount: int) -> int:
        """Add."""
        return amount + self.rate


class FrontDesk(Desk):
    @tool
    def convert(self, amount: float) -> float:
        """Convert politely."""
        return amount


def test_the_tool_of_a_method_belongs_to_its_object() -> None:
    """Two objects have two tools; one object has one, however often it is asked."""
    one, two = Desk(2), Desk(3)

    assert (one.convert.fn(10), two.convert(10)) == (20, 30)
    assert one.convert == one.convert
    assert hash(one.convert) == hash(one.convert)
    assert one.convert != two.convert
    assert (one.convert.effect, one.convert.step, list(shown(one.convert))) == ("read", "step", ["amount"])
    assert as_tool(one.convert) == one.convert
    assert list(shown(FrontDesk(1).convert)) == ["amount"]
    assert (FrontDesk(1).convert.description, FrontDesk(1).convert(2.5)) == ("Convert politely.", 2.5)


def test_every_kind_of_method_works() -> None:
    """Static ones under the decorator or over it, and bound ones, whatever they are bound to."""
    desk = Desk(4)

    assert [found(amount=1) for found in (desk.inner, Desk.inner, desk.outer, Desk.outer)] == [1, 1, 1, 1]
    assert (tool(desk.plain)(1), as_tool(desk.plain).name) == (5, "plain")
    assert as_tool(Desk.of).spec == ToolSpec("of", "Make another.", as_tool(Desk.of).parameters_json)
    assert as_tool(FrontDesk.of).arguments('{"rate": 1}') == {"rate": 1}
    assert tool(FrontDesk.of)(1) == "FrontDesk 1"


def test_the_tool_of_a_method_needs_an_object() -> None:
    """A class has no tools, only its objects do."""
    with pytest.raises(UsageError, match=r"obj\.convert"):
        as_tool(Desk.convert)
    with pytest.raises(UsageError, match=r"obj\.plain"):
        as_tool(Desk.plain)


def test_what_partial_has_fixed_is_not_the_models_to_give() -> None:
    """The rest of its parameters are."""

    def look(table: object, number: str, limit: int = 5, deep: bool = False) -> Any:
        """Look it up."""
        return table, number, limit, deep

    made = tool(functools.partial(look, {}, limit=7))

    assert (made.name, made.description, list(shown(made))) == ("look", "Look it up.", ["number", "deep"])
    assert made(**made.arguments('{"number": "1"}')) == ({}, "1", 7, False)


def test_an_object_that_can_be_called_needs_a_name() -> None:
    """It has none of its own."""

    class Search:
        def __call__(self, words: str) -> str:
            """Search."""
            return words

    made = tool(Search(), name="search")

    assert (made.description, made(**made.arguments('{"words": "a"}'))) == ("Search.", "a")
    with pytest.raises(UsageError, match="name="):
        tool(Search())


def test_a_wrapped_function_is_seen_through() -> None:
    """The signature that counts is the one that was written."""

    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner

    @tool
    @logged
    def look(number: str) -> str:
        """Look."""
        return number

    assert (look.description, look.arguments('{"number": "1"}'), look("2")) == ("Look.", {"number": "1"}, "2")


# --- what is refused ---


def _positional(a: int, /) -> None: ...


def _many(*numbers: int) -> None: ...


def _named(**numbers: int) -> None: ...


def _unknown(a: int) -> None: ...


_unknown.__annotations__["a"] = "Nowhere"


def _no_json(a: int, b: threading.Thread) -> None: ...


def _calls_back(b: Callable[[], int]) -> None: ...


def _two_steps(a: ToolStep, b: ToolStep) -> None: ...


def _generator() -> Any:
    yield 1  # pragma: no cover - refused, never called


async def _async_generator() -> AsyncIterator[int]:
    yield 1  # pragma: no cover - refused, never called


@pytest.mark.parametrize(
    ("fn", "complaint"),
    [
        pytest.param(_positional, "'a: int' is positional-only; a model gives arguments by name", id="positional-only"),
        pytest.param(_many, r"'\*numbers: int' takes any number", id="args"),
        pytest.param(_named, r"'\*\*numbers: int' takes any number", id="kwargs"),
        pytest.param(_unknown, "the annotation 'Nowhere' of 'a' cannot be read .NameError", id="unknown annotation"),
        pytest.param(_no_json, "'b' cannot be given as JSON: Unable to generate", id="no JSON"),
        pytest.param(_calls_back, "'b' cannot be given as JSON: Cannot generate", id="a function"),
        pytest.param(_two_steps, "'a' and 'b' are both a ToolStep", id="two steps"),
        pytest.param(_generator, "is a generator", id="generator"),
        pytest.param(_async_generator, "is a generator", id="async generator"),
        pytest.param(functools.partial(lambda: 1), "a name of 1 to 64 letters", id="lambda"),
        pytest.param(len, "positional-only", id="built in"),
        pytest.param(dict.fromkeys, "nothing is known of the parameters|positional-only", id="unknown signature"),
        pytest.param(iter, "nothing is known of the parameters", id="no signature"),
        pytest.param(Money, "a function or a method is needed", id="class"),
        pytest.param(classmethod(plain), r"tool\(Class.method\)", id="class method"),
        pytest.param(3, "a function or a method is needed", id="number"),
    ],
)
def test_what_no_model_could_call_is_refused_where_it_is_defined(fn: Any, complaint: str) -> None:
    """One error says which parameter, and what to do."""
    with pytest.raises(UsageError, match=complaint):
        tool(fn)


def test_a_static_method_may_leave_its_types_out() -> None:
    """Nobody takes its first parameter for an object."""
    space: dict[str, Any] = {"tool": tool}

    exec("class Desk:\n  @tool\n  @staticmethod\n  def look(number): return number", space)

    assert space["Desk"]().look.arguments('{"number": 1}') == {"number": 1}


@pytest.mark.parametrize("first", ["cls", "this"])
def test_a_method_names_its_object_self(first: str) -> None:
    """Nothing else tells a method from a static one."""
    space: dict[str, Any] = {"tool": tool}

    with pytest.raises(UsageError, match=f"called 'self', not '{first}'"):
        exec(f"class Desk:\n  @tool\n  def look({first}, number: str): ...", space)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": ""}, "a name of 1 to 64"),
        ({"name": "a b"}, "a name of 1 to 64"),
        ({"name": "a" * 65}, "a name of 1 to 64"),
        ({"name": "a\n"}, "a name of 1 to 64"),
        ({"name": "grün"}, "a name of 1 to 64"),
        ({"effect": "none"}, "'read', 'write' or 'irreversible'"),
        ({"on_error": "ignore"}, "'data' tells the model"),
        ({"approval": "yes"}, "True or False"),
        ({"sequential": 1}, "True or False"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": float("inf")}, "finite"),
        ({"max_calls": 0}, "at least 1"),
        ({"max_calls": True}, "at least 1"),
        ({"retries": -1}, "at least 0"),
        ({"fn": plain}, "the options are approval, description, effect"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], complaint: str) -> None:
    """Both by the decorator and when a tool is changed."""
    with pytest.raises(UsageError, match=complaint):
        tool(**options)(plain)


@pytest.mark.parametrize("found", ["lookup", None, 3, Money, functools.partial(plain, 1), ToolFailure("no")])
def test_an_agent_takes_tools_and_functions_alone(found: object) -> None:
    """The error names what is needed."""
    with pytest.raises(UsageError, match="is no tool: a function, a bound method, @tool or AskUser"):
        as_tool(found)


def test_a_tool_keeps_its_options() -> None:
    """They are the attributes of the value, and a tool is changed by making another of it."""
    made = tool(
        plain, name="get", description="", effect="irreversible", approval=True, sequential=True, timeout=2.5,
        max_calls=3, retries=1, on_error="raise", version="7",
    )  # fmt: skip
    other = tool(made, name="fetch", approval=False)

    assert repr(made) == "<Tool 'get'>"
    assert (made.name, made.description, made.effect, made.approval) == ("get", "", "irreversible", True)
    assert (made.sequential, made.timeout, made.max_calls, made.retries) == (True, 2.5, 3, 1)
    assert (made.on_error, made.version, made.step) == ("raise", "7", None)
    assert (other.name, other.approval, other.timeout) == ("fetch", False, 2.5)
    with pytest.raises(ValueError, match="the arguments of 'fetch'"):
        other.arguments("[]")


def test_a_tool_is_its_function() -> None:
    """Two tools of one function with the same options are equal; of two functions they are not."""

    def make() -> Callable[[], None]:
        def look() -> None: ...

        return look

    first = tool(make())

    assert tool(plain) == tool(plain)
    assert len({tool(plain), tool(plain)}) == 1
    assert first != tool(make())
    assert dataclasses.replace(first, fn=nothing.fn).arguments("") == {}


# --- what a model writes ---


def test_arguments_arrive_as_the_function_declares_them() -> None:
    """Models as instances, enums as members, defaults filled in."""
    text = (
        '{"where": {"x": 1}, "colour": "blue", "price": {"amount": "4.5"}, "tags": ["a"],'
        ' "tree": {"name": "r", "children": [{"name": "c"}]}}'
    )
    expected = {
        "where": Point(1, 0), "colour": Colour.BLUE, "price": Money(amount=4.5), "tags": ("a",), "mode": "fast",
        "tree": Tree(name="r", children=(Tree(name="c"),)), "layers": 1, "anything": None,
    }  # fmt: skip

    assert paint.arguments(text) == expected


@pytest.mark.parametrize("text", ["", "  \n", "{}", " {} "])
def test_no_arguments_are_no_arguments(text: str) -> None:
    """An empty text is an empty object."""
    assert nothing.arguments(text) == {}


def test_each_call_gets_a_default_of_its_own() -> None:
    """What one call does to a default reaches no other."""

    def collect(into: list[int] = []) -> None: ...  # noqa: B006 - that is what is tried

    made = tool(collect)
    made.arguments("")["into"].append(1)

    assert made.arguments("") == {"into": []}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", 'they are no JSON: Expecting value at character 0, near "nonsense"'),
        ('{"where": {"x": 1}', "they are no JSON: Expecting ',' delimiter"),
        (
            '{"mode": "a\nb"}',
            'they are no JSON: Invalid control character at character 11, near "{\\"mode\\": \\"a\\nb',
        ),
        ('{"mode": "\\ud800"}', "they are no JSON: "),
        ("\ud800", 'they are no JSON: Expecting value at character 0, near "\\ud800"'),
        ('{"mode": "\ud800"}', "they are no JSON: "),
        ("[1]", "they are an array, not an object"),
        ('"{}"', "they are a string, not an object"),
        ("true", "they are a boolean, not an object"),
        ("3", "they are a number, not an object"),
        ("null", "they are null, not an object"),
        ('{"anything": NaN}', "NaN is no JSON number"),
        ('{"anything": -Infinity}', "-Infinity is no JSON number"),
        ('{"anything": [1e999]}', "1e999 is no JSON number"),
        (f'{{"anything": {"9" * 5000}}}', "a number of 5000 digits is too long"),
        ('{"anything": 1, "anything": 2}', '"anything" is given twice'),
        ('{"anything": {"a": 1, "a": 1}}', '"a" is given twice'),
        ("[" * 100_000, "they are nested too deeply"),
        (f'{{"anything": {"[" * 500}{"]" * 500}}}', "they are nested too deeply"),
        ("{}", "where: is missing. Wanted:"),
        ('{"where": {"x": 1}, "wher": 1}', "wher: is not known"),
        ('{"where": {"x": 1}, "a\\nb": 1}', '"a\\nb": is not known'),
        ('{"where": {"x": "one"}}', "where.x: Input should be a valid integer"),
        ('{"where": {"x": 1, "z": 1}}', "where.z: "),
        ('{"where": {"x": 1}, "tree": {"name": "a", "children": [{}]}}', "tree.children[0].name: is missing"),
        ('{"where": {"x": 1}, "layers": 0}', "layers: Input should be greater than or equal to 1 (given 0)"),
        ('{"where": {"x": 1}, "mode": "odd"}', "mode: Input should be 'fast' or 'slow' (given \"odd\")"),
        ('{"where": {"x": 1}, "colour": null}', "colour: Input should be 'red' or 'blue' (given null)"),
        (json.dumps({"where": "x" * 500}), f'where: Input should be an object (given "{"x" * 58}…)'),
        (json.dumps(dict.fromkeys("abcdefghij", 0)), "; and 3 more. Wanted:"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(text: str, complaint: str) -> None:
    """The model is told what is wrong with each argument."""
    with pytest.raises(ValueError, match="the arguments of 'paint' do not fit: ") as caught:
        paint.arguments(text)

    assert complaint in str(caught.value)


def test_a_complaint_says_what_is_wanted() -> None:
    """Names, types, what is required and what the defaults are; nested ones too, up to a depth."""
    with pytest.raises(ValueError, match="Wanted") as caught:
        paint.arguments("{}")

    assert str(caught.value).partition("Wanted: ")[2] == (
        '{"where": {"x": integer (required), "y": integer (default 0)} (required)'
        ', "colour": "red" or "blue" (default "red")'
        ', "price": {"amount": number (required), "currency": "EUR" or "USD" (default "USD")} or null (default null)'
        ', "tags": array of string (default []), "mode": "fast" or "slow" (default "fast")'
        ', "tree": {"name": string (required), "children": array of Tree (default [])} or null (default null)'
        ', "layers": integer (default 1), "anything": any JSON (default null)}.'
    )


def test_types_are_told_in_words() -> None:
    """Formats, constants, unions and tables too."""

    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    def adopt(
        pet: Annotated[Cat | Dog, Field(discriminator="kind")],
        day: dt.date,
        more: dict[str, int],
        either: int | str | None,
        things: list[Any],
    ) -> None: ...

    with pytest.raises(ValueError, match="Wanted") as caught:
        tool(adopt).arguments("{}")

    assert str(caught.value).partition("Wanted: ")[2] == (
        '{"pet": {"kind": "cat" (required)} or {"kind": "dog" (required)} (required), "day": string (date) (required), '
        '"more": object (required), "either": integer or string or null (required), "things": array (required)}.'
    )


def test_whatever_a_validator_raises_is_told() -> None:
    """A check of the user's own may say no in any way."""

    class Picky(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _check(cls, text: str) -> str:
            if text == "value":
                raise ValueError("not\nthis one")
            if text == "deep":
                raise RecursionError
            raise KeyError(text)

    def look(it: Picky) -> None: ...

    made = tool(look)

    with pytest.raises(ValueError, match=r"it\.text: Value error, not this one \(given .value"):
        made.arguments('{"it": {"text": "value"}}')
    with pytest.raises(ValueError, match="KeyError: 'odd'") as caught:
        made.arguments('{"it": {"text": "odd"}}')
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ValueError, match="nested too deeply"):
        made.arguments('{"it": {"text": "deep"}}')


ANY_TEXT: Final = st.text(alphabet=st.characters(exclude_categories=()))
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES: Final = st.sampled_from([name for made in SAMPLES for name in shown(made)])


@st.composite
def garbage(draw: st.DrawFn) -> str:
    """Text that is nearly what a tool wants, and often is not."""
    match draw(st.integers(0, 3)):
        case 0:
            return draw(ANY_TEXT)
        case 1:
            return json.dumps(draw(JSON), ensure_ascii=draw(st.booleans()))
        case 2:
            return json.dumps(draw(st.dictionaries(NAMES, JSON, max_size=4)), ensure_ascii=draw(st.booleans()))
        case _:
            whole = json.dumps(draw(st.dictionaries(NAMES, JSON, max_size=4)))
            at = draw(st.integers(0, len(whole)))
            return whole[:at] + draw(st.text('{}[]",:\\u0d8e1N-', max_size=5)) + whole[at + draw(st.integers(0, 3)) :]


@given(st.sampled_from(SAMPLES), garbage())
@settings(max_examples=examples(2000))
def test_whatever_a_model_writes_is_read_or_explained(made: Tool | AskUser, text: str) -> None:
    """There are the function's own parameters, or one short line of text that can be sent; nothing else."""
    found: dict[str, Any] | Exception
    try:
        found = made.arguments(text)
    except ValueError as error:
        found = error

    if isinstance(found, Exception):
        said = str(found)
        assert type(found) is ValueError
        assert said.startswith(f"the arguments of {made.name!r} do not fit: ")
        assert len(said) < 2_000
        assert len(said.splitlines()) == 1
        assert "pydantic.dev" not in said
        said.encode("utf-8")
    else:
        assert list(found) == list(shown(made))


def values(schema: Mapping[str, Any], known: Mapping[str, Any], depth: int = 3) -> st.SearchStrategy[Any]:
    """JSON values that a schema allows."""
    again = functools.partial(values, known=known, depth=depth - 1)
    if "$ref" in schema:
        return again(known[schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([again(part) for part in schema["anyOf"]])
    match schema.get("type"):
        case "array":
            return st.lists(again(schema["items"]), max_size=2) if depth > 0 else st.just([])
        case "object" if "properties" in schema:
            required = {name: again(schema["properties"][name]) for name in schema.get("required", ())}
            rest = [name for name in schema["properties"] if name not in required and depth > 0]
            return st.fixed_dictionaries(required, optional={name: again(schema["properties"][name]) for name in rest})
        case "object":
            return st.dictionaries(st.text(), again(schema["additionalProperties"]), max_size=2)
        case kind:
            integers = st.integers(schema.get("minimum"), schema.get("maximum"))
            floats = st.floats(allow_nan=False, allow_infinity=False)
            plain = {"string": st.text(), "integer": integers, "boolean": st.booleans(), "null": st.none()}
            return plain.get(kind or "", floats)


@given(st.data(), st.sampled_from(SAMPLES), st.booleans())
@settings(max_examples=examples(1000))
def test_what_the_schema_allows_is_taken(data: st.DataObject, made: Tool | AskUser, ascii_only: bool) -> None:
    """A model that keeps to the schema is never sent back."""
    given_ = data.draw(values(made.spec.parameters, made.spec.parameters.get("$defs", {})))

    found = made.arguments(json.dumps(given_, ensure_ascii=ascii_only))

    assert list(found) == list(shown(made))


# --- the rest ---


def test_a_question_is_a_tool() -> None:
    """It takes one question; what the answer must be is not the model's affair."""
    ask = AskUser("ask_boss", schema=list[int], description="Ask the boss.")

    assert repr(ask) == "<AskUser 'ask_boss'>"
    assert (ask.spec.name, ask.spec.description, list(shown(ask))) == ("ask_boss", "Ask the boss.", ["question"])
    assert ask == AskUser("ask_boss", schema=list[int], description="Ask the boss.") != AskUser()
    assert hash(AskUser(schema=str)) == hash(AskUser(schema=int))
    assert as_tool(ask) is ask
    with pytest.raises(ValueError, match="the arguments of 'ask_boss' do not fit: question: is missing"):
        ask.arguments("")
    with pytest.raises(UsageError, match="a name of 1 to 64"):
        AskUser("ask me")
    with pytest.raises(UsageError, match="a type that a person's answer can be read as"):
        AskUser(schema={"type": "string"})


def test_a_question_has_what_every_tool_has() -> None:
    """Whoever looks at the tools of an agent need not tell them apart."""
    both = {field.name for field in dataclasses.fields(Tool)} - {"fn", "version", "_parameters"}

    assert all(hasattr(AskUser(), name) for name in both)


def test_types_say_the_same_to_whoever_reads_them() -> None:
    """The decorator gives a tool, with and without options."""
    assert isinstance(tool(plain), Tool)
    assert isinstance(tool(effect="read")(plain), Tool)
    assert typing.get_type_hints(ToolFailure) == {"text": str}
