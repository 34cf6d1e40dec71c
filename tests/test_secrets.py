"""Secrets: they are stored nowhere, shown nowhere, and asked for by name when something stored is read."""

import copy
import json
import pickle
import traceback
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, NamedTuple, cast

import pydantic_core
import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr, TypeAdapter, field_validator

from graphflow import Context, Done, FrozenDict, Update, append
from graphflow.errors import ContractError, NotStorable, UsageError
from graphflow.graphs.kinds import OURS
from graphflow.model.codec import Codec, MissingSecrets, Unreadable, secret, secrets_asked
from graphflow.model.context import rules_of
from graphflow.model.secrets import SHOWN, hints_of, secret_fields

KEY = "hunter2-and-more"


class Login(Context):
    user: str = ""
    token: Annotated[str, secret] = ""
    key: SecretStr = SecretStr("")
    pins: tuple[Annotated[int, secret], ...] = ()


class Account(BaseModel):
    name: str
    token: SecretStr
    born: Secret[date] | None = None
    raw: SecretBytes = SecretBytes(b"")


@dataclass(frozen=True)
class Card:
    owner: str
    number: Annotated[str, secret]
    code: SecretStr | None = None


class Entry(NamedTuple):
    name: str
    password: Annotated[str, secret]


KINDS = OURS.with_([Login, Account, Card, Entry], [Login])


def text_of(value: Any) -> str:
    """Write a value as the text of its JSON."""
    return json.dumps(Codec(KINDS).encode(value, "it"))


def read(text: str, **secrets: Any) -> Any:
    """Read a text with some secrets."""
    return Codec(KINDS, secrets).decode(json.loads(text))


def test_a_secret_is_stored_by_its_name_alone() -> None:
    """Nothing of the value stands in what is written: its field, and what class of pydantic it is."""
    value = (Login(user="ada", token=KEY, key=SecretStr(KEY), pins=(4711,)), Card("ada", KEY), Entry("a", KEY))
    data = Codec(KINDS).encode(value, "it")

    assert KEY not in json.dumps(data)
    assert "4711" not in json.dumps(data)
    assert data[0] == {
        "$": "Login",
        "user": "ada",
        "token": {"$": "secret", "name": "token"},
        "key": {"$": "secret", "name": "key", "kind": "SecretStr"},
        "pins": {"$": "secret", "name": "pins"},
    }


@pytest.mark.parametrize(
    ("value", "secrets"),
    [
        (Login(user="ada", token=KEY, key=SecretStr(KEY)), {"token": KEY, "key": KEY, "pins": ()}),
        (Login(token=KEY, pins=(4711, 1)), {"token": KEY, "key": SecretStr(""), "pins": (4711, 1)}),
        (Account(name="a", token=SecretStr(KEY)), {"token": KEY, "raw": b""}),
        (Account(name="a", token=SecretStr(KEY), born=Secret(date(2026, 1, 2)), raw=SecretBytes(b"x")),
         {"token": KEY, "born": date(2026, 1, 2), "raw": b"x"}),
        (Card("ada", KEY, SecretStr(KEY)), {"number": KEY, "code": KEY}),
        (Entry("ada", KEY), {"password": KEY}),
        (Update(token=KEY, user="ada", key=SecretStr(KEY)), {"token": KEY, "key": KEY}),
        (SecretStr(KEY), {"": KEY}),
        (Done(output=SecretStr(KEY)), {"output": KEY}),
        ({"a": (SecretStr(KEY), SecretStr("other"), SecretStr(KEY))}, {"a": KEY, "a#2": "other"}),
        ({3: SecretBytes(b"x")}, {"[3]": b"x"}),
        (FrozenDict({"a": Secret((1, 2))}), {"a": (1, 2)}),
    ],
)  # fmt: skip
def test_with_its_secrets_a_value_comes_back_exactly(value: Any, secrets: dict[str, Any]) -> None:
    """What was stored and the secrets by name make the very value again; without them, every name is asked for."""
    text = text_of(value)

    assert KEY not in text
    assert read(text, **secrets) == value
    assert secrets_asked(json.loads(text)) == set(secrets)
    with pytest.raises(MissingSecrets) as caught:
        read(text)
    assert caught.value.names == tuple(sorted(secrets))
    assert isinstance(caught.value, UsageError)
    assert all(repr(name) in str(caught.value) for name in secrets)


def test_only_the_missing_names_are_asked_for() -> None:
    """Names that were given are not asked for again."""
    text = text_of(Login(token=KEY))

    with pytest.raises(MissingSecrets) as caught:
        read(text, token=KEY, other="x")

    assert caught.value.names == ("key", "pins")


def test_a_secret_of_another_kind_is_not_taken() -> None:
    """A secret that is given is validated by the class it belongs to, and its value stands in no error."""
    text = text_of(Account(name="a", token=SecretStr(KEY)))

    for wrong in (4711, b"4711", SecretBytes(b"4711"), ["4711"]):
        with pytest.raises(Unreadable) as caught:
            read(text, token=wrong, raw=b"")
        assert "4711" not in "".join(traceback.format_exception(caught.value))
    wrong_pins = (KEY,)
    with pytest.raises(Unreadable) as caught:
        read(text_of(Login(pins=(1,))), token="", key="", pins=wrong_pins)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert read(text_of(Login(pins=(1,))), token="", key="", pins=("1",)).pins == (1,)


def test_two_secrets_of_one_name_are_told_apart() -> None:
    """Two fields of one name and different values have two names; equal ones share theirs."""
    both = (Account(name="a", token=SecretStr(KEY)), Account(name="b", token=SecretStr("other")))

    assert secrets_asked(json.loads(text_of(both))) == {"token", "token#2", "raw"}
    assert read(text_of(both), **{"token": KEY, "token#2": "other", "raw": b""}) == both


def test_a_secret_in_a_set_is_refused() -> None:
    """The members of a set have no names."""
    for value in ({SecretStr(KEY)}, {SecretStr(KEY): 1}, frozenset({(SecretStr(KEY),)})):
        with pytest.raises(NotStorable, match="use a field") as caught:
            Codec(KINDS).encode(value, "it")
        assert KEY not in str(caught.value)


def test_a_class_of_secrets_of_one_s_own_is_refused() -> None:
    """It could not be told from its base when it is read."""

    class Token(SecretStr):
        pass

    with pytest.raises(NotStorable, match="SecretStr, SecretBytes or Secret"):
        Codec(KINDS).encode(Token(KEY), "it")


@pytest.mark.parametrize(
    "data",
    [
        {"$": "secret", "name": "token"},
        [{"$": "secret", "name": "token"}],
        {"$": "Done", "output": {"$": "secret", "name": "token"}, "update": None},
        {"$": "Card", "owner": {"$": "secret", "name": "token"}, "number": {"$": "secret", "name": "token"},
         "code": None},
        {"$": "Card", "owner": {"$": "secret", "name": "token", "kind": "SecretStr"},
         "number": {"$": "secret", "name": "token"}, "code": None},
        {"$": "Card", "owner": "ada", "number": "4711", "code": None},
        {"$": "Update", "of": {"user": {"$": "secret", "name": "token"}}},
        {"$": "secret", "name": "token", "kind": "str"},
        {"$": "secret", "name": "token", "kind": ["SecretStr"]},
        {"$": "secret", "name": 3, "kind": "SecretStr"},
        {"$": "secret", "name": "token", "kind": "SecretStr", "more": 1},
    ],
)  # fmt: skip
def test_data_that_were_changed_bring_no_secret_to_light(data: Any) -> None:
    """Where a secret was put in another place it is not given as a plain text, which would be shown and stored."""
    with pytest.raises(Unreadable):
        Codec(KINDS, {"token": KEY}).decode(data)


# --- shown nowhere ---------------------------------------------------------------------------------------------------


def test_r9_a_marked_field_of_a_context_shows_in_no_text() -> None:
    """Case R9: repr, str, format and JSON of a context show stars where a secret is."""
    value = Login(user="ada", token=KEY, key=SecretStr(KEY), pins=(4711,))
    shown = [repr(value), str(value), f"{value}", f"{value!r}", value.model_dump_json()]
    shown += [json.dumps(pydantic_core.to_jsonable_python(value)), json.dumps(value.model_dump(mode="json"))]
    shown += [repr({"a": (value,)}), repr(Done(value))]

    for text in shown:
        assert KEY not in text
        assert "4711" not in text
        assert "ada" in text
    assert f"token='{SHOWN}'" in repr(value)
    assert value.model_dump()["token"] == KEY


def test_a_marked_field_is_a_field_like_any_other() -> None:
    """The mark changes neither the schema nor what is valid; constraints beside it hold."""

    class Bounded(BaseModel):
        token: Annotated[str, Field(min_length=3), secret]

    assert Bounded(token=KEY).token == KEY
    assert Bounded.model_json_schema()["properties"]["token"]["minLength"] == 3
    with pytest.raises(ValueError, match="at least 3"):
        Bounded(token="x")
    assert TypeAdapter(Annotated[int, secret]).validate_python("3") == 3


@pytest.mark.parametrize("update", [{"token": 4711}, {"pins": ("4711x",)}, {"token": ["4711"]}])
def test_an_update_that_does_not_fit_shows_no_secret(update: dict[str, Any]) -> None:
    """The error of an update of a marked field tells its type alone, and no exception behind it tells more."""
    with pytest.raises(ContractError, match="a secret, does not fit") as caught:
        rules_of(Login).validate(update)

    assert "4711" not in "".join(traceback.format_exception(caught.value))


def test_an_update_that_could_be_changed_shows_no_secret() -> None:
    """The place of what is mutable in a secret would show its keys."""

    @dataclass(frozen=True)
    class Entry:
        pass

    @dataclass(frozen=True)
    class Longer(Entry):
        items: list[int]

    class Table(Context):
        table: Annotated[FrozenDict[str, Entry], secret] = FrozenDict()

    with pytest.raises(ContractError, match="could be changed") as caught:
        rules_of(Table).validate({"table": FrozenDict({KEY: Longer([])})})

    assert KEY not in str(caught.value)


def test_values_that_are_refused_show_no_secret() -> None:
    """The error of a value that is not stored tells nothing of secrets beside it, nor of a validator's text."""

    class Picky(BaseModel):
        token: Annotated[str, secret]

        @field_validator("token")
        @classmethod
        def _known(cls, token: str) -> str:
            msg = f"bad token {token}"
            raise ValueError(msg)

    codec = Codec(KINDS.with_([Picky]))
    for value in (Picky.model_construct(token=KEY), Picky.model_construct(token=[KEY])):
        with pytest.raises(NotStorable) as caught:
            codec.encode(value, "it")
        assert KEY not in "".join(traceback.format_exception(caught.value))


# --- the mark --------------------------------------------------------------------------------------------------------


def test_the_mark_is_one_value() -> None:
    """It shows as its name, and copies of it are itself."""
    assert repr(secret) == "secret"
    assert copy.deepcopy(secret) is secret
    assert pickle.loads(pickle.dumps(secret)) is secret


def test_marks_are_found_wherever_they_stand() -> None:
    """A mark counts beside the field, inside its type, beside a reducer, and in an annotation nobody can read."""

    class Fields(BaseModel):
        plain: str
        inner: Annotated[str, secret] | None
        items: Annotated[tuple[Annotated[str, secret], ...], append]
        beside: Annotated[str, append, secret]

    @dataclass
    class Unread:
        a: "Annotated[Nowhere, secret]"  # type: ignore[name-defined]  # noqa: F821
        b: "Nowhere"  # type: ignore[name-defined]  # noqa: F821
        c: "Annotated[int, secret]"

    assert secret_fields(Fields) == {"inner", "items", "beside"}
    assert secret_fields(Unread) == {"a", "c"}
    assert secret_fields(int) == frozenset()
    assert hints_of(cast("Any", Unread))["b"] == "Nowhere"


def test_marked_fields_of_a_graph_s_contexts_are_hidden_in_updates_alone() -> None:
    """Another class may have a plain field of the same name; an update speaks of the context."""

    @dataclass(frozen=True)
    class Other:
        token: str

    kinds = KINDS.with_([Other])

    assert kinds.secrets == {"token", "pins"}
    assert json.dumps(Codec(kinds).encode(Other(KEY), "it")).count(KEY) == 1
    assert OURS.with_([Login]).secrets == frozenset()
