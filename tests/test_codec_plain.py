"""Models of texts and numbers: their class proves that they come back, so that none need be built again for it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator

from graphflow.errors import NotStorable
from graphflow.model.codec import Codec, Kinds
from graphflow.model.exact import SecretNames
from graphflow.model.plans import ModelPlan
from graphflow.model.writing import (
    Writing,
    _writes_model,  # pyright: ignore[reportPrivateUsage]
    _writes_plain,  # pyright: ignore[reportPrivateUsage]
)
from tests.support import examples


class Words(BaseModel):
    """Nothing but plain fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    count: int = 0
    sure: bool | None = None


class Short(BaseModel):
    """A constraint."""

    text: str = Field(max_length=3)


class Stripped(BaseModel):
    """A setting that changes texts."""

    model_config = ConfigDict(str_strip_whitespace=True)

    text: str


class Upper(BaseModel):
    """A validator of a field."""

    text: str

    @field_validator("text")
    @classmethod
    def _upper(cls, text: str) -> str:
        return text.upper()


class Whole(BaseModel):
    """A validator of the whole."""

    text: str

    @model_validator(mode="after")
    def _same(self) -> Whole:
        return self


class Initialised(BaseModel):
    """A constructor of its own."""

    text: str

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


class Marked(BaseModel):
    """A private attribute."""

    text: str
    _mark: int = PrivateAttr(default=0)


class Open(BaseModel):
    """Values that are no fields."""

    model_config = ConfigDict(extra="allow")

    text: str


class Hidden(BaseModel):
    """A secret."""

    text: SecretStr


class Strict(BaseModel):
    """An annotation that says more than its type."""

    text: Annotated[str, Field(pattern="a*")]


class Afterwards(BaseModel):
    """Something is done once it is there."""

    text: str

    def model_post_init(self, _: Any, /) -> None:
        """Do nothing."""


@pytest.mark.parametrize("kind", [Short, Stripped, Upper, Whole, Initialised, Marked, Open, Hidden, Strict, Afterwards])
def test_a_class_with_anything_of_its_own_proves_nothing(kind: type[BaseModel]) -> None:
    """Wherever a user's code or setting takes part in building, each value is built again."""
    assert ModelPlan(kind).plain is None


def test_a_class_of_plain_fields_says_what_each_takes() -> None:
    """What pydantic made of a class tells which values pass unchanged."""
    text, count, sure = frozenset({str}), frozenset({int}), frozenset({bool, type(None)})

    assert ModelPlan(Words).plain == {"text": text, "count": count, "sure": sure}


@pytest.mark.parametrize(
    "value",
    [
        Words(text="a"),
        Words(text="a", count=-(2**70), sure=True),
        Words(text="\u00e4\U0001f600", count=1, sure=None),
        Words(text="a", count=0, sure=None),
        Words.model_construct(text="a", count=3, sure=False, _fields_set={"text"}),
    ],
)
def test_a_plain_model_comes_back(value: Words) -> None:
    """It comes back equal, and which of its fields were set comes back too."""
    codec = Codec(Kinds([Words]))

    found = codec.decode(codec.encode(value, "it"))

    assert (found, found.model_fields_set) == (value, value.model_fields_set)
    assert [type(part) for part in found.__dict__.values()] == [type(part) for part in value.__dict__.values()]


@given(st.builds(Words, text=st.text(), count=st.integers(), sure=st.none() | st.booleans()))
@settings(max_examples=examples(300))
def test_a_plain_model_is_written_as_any_other(value: Words) -> None:
    """What is left out is the proof that it comes back: what is written is the same, whatever the language."""
    plan, writing = ModelPlan(Words), Writing(Kinds([Words]), SecretNames({}))
    assert plan.plain is not None

    written = _writes_plain(plan, plan.plain, "Words")(writing, value, 0, "")

    assert written == _writes_model(plan, "Words")(writing, value, 0, "")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"text": 1, "count": 0, "sure": None}, id="a number for a text"),
        pytest.param({"text": "a", "count": True, "sure": None}, id="a bool for a number"),
        pytest.param({"text": "a", "count": 0, "sure": 1}, id="a number for a bool"),
        pytest.param({"text": "a", "count": 0}, id="a field less"),
    ],
)
def test_what_was_never_valid_is_refused(parts: dict[str, Any]) -> None:
    """A value that was made without validation is refused as before, where it is made."""
    value = Words.model_construct(_fields_set={"text", "count", "sure"}, **parts)
    vars(value).clear()  # of the defaults that it has put in
    vars(value).update(parts)

    with pytest.raises(NotStorable):
        Codec(Kinds([Words])).encode(value, "it")
