"""Values that are made by a schema: they fit it, and what cannot be made is refused before anything runs."""

import datetime as dt
import json
import uuid
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, TypeAdapter, conlist

from graphflow import Brief, Report
from graphflow.errors import UsageError
from graphflow.rehearsal.made import maker


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    text: str
    amount: Annotated[float, Field(gt=0, lt=1)]
    count: Annotated[int, Field(ge=3, le=4)]
    even: Annotated[int, Field(multiple_of=2, gt=0)]
    note: str | None = None


class Bill(BaseModel):
    lines: tuple[Line, ...] = Field(min_length=2)
    colour: Colour
    kind: Literal["a", 1]
    when: dt.datetime
    day: dt.date
    at: dt.time
    long: dt.timedelta
    id: uuid.UUID
    file: Path
    pair: tuple[int, str]
    table: dict[str, int]
    either: int | Line | None
    short: Annotated[str, Field(min_length=20, max_length=25)]
    some: Annotated[list[int], Field(min_length=1, max_length=3)]
    anything: Any
    sure: bool


class Tree(BaseModel):
    name: str
    children: "tuple[Tree, ...]"
    parent: "Tree | None"


KINDS: list[Any] = [
    Bill, Tree, Report, Brief, str, int, float, bool, None, list[str], set[int], dict[str, Line], Literal["x"],
    Annotated[int, Field(ge=-5, lt=0)], conlist(Line, min_length=1), int | str,
    Annotated[float, Field(multiple_of=0.5)],
]  # fmt: skip


@given(st.sampled_from(KINDS), st.integers())
def test_what_is_made_fits_its_type(kind: Any, seed: int) -> None:
    """Pydantic takes it, and so does a validator of JSON schemas."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema()

    found = maker(schema, "a test")(Random(seed))

    Draft202012Validator(schema).validate(found)  # pyright: ignore[reportUnknownMemberType]
    if kind is not Report:  # what it asks for beyond its schema is seen to where answers are made
        adapter.validate_json(json.dumps(found))


@given(st.integers())
def test_the_same_generator_makes_the_same_value(seed: int) -> None:
    """Nothing but the generator counts."""
    make = maker(TypeAdapter(Bill).json_schema(), "a test")

    assert make(Random(seed)) == make(Random(seed))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"const": 3}, 3, id="const"),
        pytest.param({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 4}, 3, id="exclusive"),
        pytest.param({"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"const": 1}}, "title": "x"}, 1, id="allOf"),
        pytest.param({"type": ["null"]}, None, id="types"),
        pytest.param({"oneOf": [{"enum": ["a"]}]}, "a", id="oneOf"),
        pytest.param({"type": "array", "prefixItems": [{"const": 1}], "minItems": 1}, [1], id="prefix"),
        pytest.param({"anyOf": [{"type": "string", "pattern": "^a"}, {"const": 2}]}, 2, id="one of them can be made"),
        pytest.param({"type": "object"}, {}, id="nothing is required"),
    ],
)
def test_a_schema_that_leaves_no_choice(schema: dict[str, Any], value: object) -> None:
    """What can be one value alone is that value."""
    assert maker(schema, "a test")(Random(0)) == value


def test_as_many_as_are_needed_are_made() -> None:
    """Bounds on the number of parts are kept, and parts that must differ do."""
    unique = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 3, "uniqueItems": True}
    filled = {"type": "object", "properties": {"a": {"const": 1}}, "minProperties": 3}

    assert sorted(maker(unique, "a test")(Random(3))) == [1, 2, 3]
    assert len(maker(filled, "a test")(Random(3))) == 3


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        pytest.param({"type": "string", "pattern": "^INV-"}, "'pattern': \"\\^INV-\"", id="pattern"),
        pytest.param({"type": "string", "format": "odd"}, "'format': 'odd'", id="format"),
        pytest.param({"type": "odd"}, "'type': \"odd\"", id="type"),
        pytest.param({"not": {}}, "'not'", id="not"),
        pytest.param({"$ref": "#/$defs/nowhere"}, "leads nowhere", id="reference"),
        pytest.param({"allOf": [{"type": "string"}, {"minLength": 3}]}, "'allOf'", id="allOf"),
        pytest.param({"type": "integer", "minimum": 3, "maximum": 2}, "no number is between", id="no number"),
        pytest.param({"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 5}, "no whole number", id="no step"),
        pytest.param({"type": "array", "items": False, "minItems": 1}, "false as a schema", id="false"),
        pytest.param({"anyOf": [{"type": "string", "pattern": "^a"}]}, "'pattern'", id="none of several"),
    ],
)
def test_what_cannot_be_made_is_refused(schema: dict[str, Any], complaint: str) -> None:
    """The error says what stands in the way, and what to give instead."""
    with pytest.raises(UsageError, match=complaint) as raised:
        maker(schema, "the arguments of 'lookup'")

    assert "the arguments of 'lookup': its schema has" in str(raised.value)
    assert "stand_ins={NAME: function}" in str(raised.value)


def test_a_decimal_is_made_of_what_its_schema_allows() -> None:
    """Of a number or a text, the one that can be made is."""
    adapter = TypeAdapter(Decimal)

    found = maker(adapter.json_schema(), "a test")(Random(1))

    assert adapter.validate_python(found) >= 0


class Coded(BaseModel):
    """A part of what is asked for."""

    code: Annotated[str, Field(pattern="^[A-Z]{3}$")]


class Order(BaseModel):
    """What is asked for."""

    lines: Annotated[list[Coded], Field(min_length=1)]


def test_the_error_names_the_field_and_the_stand_in() -> None:
    """However deep the field stands: by the names that lead to it, with `*` for the items of a list."""
    with pytest.raises(UsageError) as raised:
        maker(Order.model_json_schema(), "the answer of 'desk'", "desk")

    said = str(raised.value)
    assert "in the field 'lines.*.code'" in said
    assert said.endswith("Give a function that makes one: stand_ins={'desk': function}.")
