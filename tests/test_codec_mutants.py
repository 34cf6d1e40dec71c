"""Case R1: data that nobody wrote are one typed error or a value that could have been stored; never code that runs."""

import copy
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.model.codec import Codec, Kinds, MissingSecrets, Unreadable
from graphflow.model.exact import same
from graphflow.model.frozen import class_of
from tests.codec_values import CODEC, LONG, VALUES, Colour, Item
from tests.support import examples

ODDITIES: list[Any] = [
    None, True, False, 0, -1, 1.5, "", "a", "$", [], {}, [[]], [1, 2], {"a": 1}, "\ud800", "utc", "Europe/Berlin",
    float("nan"), float("inf"), LONG, {"$": None}, {"$": "list"}, {"$": "dict", "of": []}, {"$": "int", "hex": "0x1"},
    {"$": "Item"}, {"$": "secret", "name": "token"}, {"$": "secret", "name": "token", "kind": "SecretStr"},
    {"$": "NOTHING"}, {"$": "type", "is": "Item"}, {"$": "range", "of": [0, 10**18, 1]}, {"$": "str", "b64": "7aCA"},
    {"$": "float", "is": "nan"}, {"$": "Decimal", "is": "1E+999999999"}, {"$": "Fraction", "of": [1, 0]},
    {"$": "os:system", "command": "touch canary"}, {"$": "builtins:eval", "is": "open('canary', 'w')"},
]  # fmt: skip


def mutated(data: Any, rng: random.Random) -> Any:
    """Change one thing in JSON data."""
    data = copy.deepcopy(data)
    places: list[tuple[Any, Any]] = []
    todo = [data]
    while todo:
        item = todo.pop()
        keys: list[Any] = []
        kind = class_of(item)
        if kind is dict:
            keys = list(item)
        elif kind is list:
            keys = list(range(len(item)))
        places += [(item, key) for key in keys]
        todo += [item[key] for key in keys]
    if not places or rng.random() < 0.1:
        return rng.choice(ODDITIES)
    holder, key = rng.choice(places)
    other, where = rng.choice(places)
    kind = class_of(holder)
    change = rng.randrange(7)
    if change == 0:
        holder[key] = rng.choice(ODDITIES)
    elif change == 1:
        holder[key] = copy.deepcopy(other[where])
    elif change == 2:
        del holder[key]
    elif change == 3 and kind is list:
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(other[where]))
    elif change == 4 and kind is dict:
        holder[rng.choice(["$", "$set", "$unset", "$extra", "of", "is", "name", str(where)])] = holder.pop(key)
    elif change == 5 and kind is dict:
        holder[rng.choice(["$", "$set", "$unset", "$extra", "of", "is", "a", str(where)])] = rng.choice(ODDITIES)
    else:
        holder[key] = changed(holder[key], rng)
    return data


def changed(value: Any, rng: random.Random) -> Any:
    """Change a plain value a little."""
    if isinstance(value, bool) or value is None:
        return rng.choice([0, 1, "None", 0.0])
    if isinstance(value, int | float):
        return rng.choice([value + 1, -value, float(value) if abs(value) < 1e300 else 0, "7", not value])
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return rng.choice(
            [value[:at] + rng.choice("a0$-.:\ud800é") + value[at:], value[:at] + value[at + 1 :], value * 2]
        )
    return [value]


@settings(max_examples=examples(1_000))
@given(VALUES, st.integers(0, 2**32))
def test_r1_a_mutant_is_unreadable_or_a_value_that_could_have_been_stored(value: Any, seed: int) -> None:
    """Whatever is changed in what was written: the one error, or a value that is written and read exactly again."""
    rng = random.Random(seed)
    data = CODEC.encode(value, "it")
    before = set(sys.modules)
    for _ in range(10):
        mutant = mutated(data, rng)
        for _ in range(rng.randrange(3)):
            mutant = mutated(mutant, rng)

        try:
            found = CODEC.decode(mutant)
        except (Unreadable, MissingSecrets):
            continue
        assert same(CODEC.decode(CODEC.encode(found, "it")), found)
    assert set(sys.modules) == before


ENVELOPES: list[Any] = [
    {"$": "os:system", "command": "touch canary"},
    {"$": "os.system", "is": "touch canary"},
    {"$": "subprocess:Popen", "args": ["touch", "canary"]},
    {"$": "builtins:eval", "of": ["open('canary', 'w')"]},
    {"$": "pathlib:Path.touch", "of": ["canary"]},
    {"$": "antigravity"},
    {"$": "this:that"},
    {"$": "tests.codec_values:raising", "message": "ran"},
    {"$": "Colour.__members__", "is": "RED"},
    {"$": "Colour", "is": "__class__"},
    {"$": "Colour", "is": "mro"},
    {"$": "Item", "name": "a", "shape": {"$": "Item.Shape", "is": "ROUND"}, "size": 1, "__class__": "os"},
    {"$": "type", "is": "os:system"},
    {"$": "type", "is": "antigravity"},
    {"$": "type", "is": ["os:system", "int"]},
    {"$": "type", "is": ["__import__", "antigravity"]},
    {"$": "type", "is": ["Annotated", "int", {"$": "os:system", "of": []}]},
    {"$": "datetime", "is": "2026-01-01T00:00:00", "zone": "../../etc/passwd"},
    {"$": "datetime", "is": "2026-01-01T00:00:00", "zone": "antigravity"},
    {"$": "zone", "is": "/etc/localtime"},
    {"$": ["list"], "of": []},
    {"$": {"$": "list"}, "of": []},
]
PLAIN: list[Any] = [
    {"py/object": "os.system", "py/reduce": [{"py/type": "os.system"}, ["touch canary"]]},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "touch canary"}},
    {"__class__": "os.system", "__module__": "os", "args": ["touch canary"]},
    {"__reduce__": ["os.system", ["touch canary"]]},
    {"!!python/object/apply:os.system": ["touch canary"]},
]


@pytest.mark.parametrize("envelope", ENVELOPES, ids=lambda found: json.dumps(found)[:60])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
def test_r1_an_envelope_with_a_name_is_unreadable(
    envelope: Any, inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that the graph does not declare is no class: nothing is imported, called or written."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    with pytest.raises(Unreadable):
        CODEC.decode([{"$": "dict", "of": {"a": envelope}}] if inside else envelope)

    assert not list(tmp_path.iterdir())
    assert set(sys.modules) == before


@pytest.mark.parametrize("envelope", PLAIN, ids=lambda found: next(iter(found)))
def test_r1_an_envelope_of_somebody_else_is_plain_data(
    envelope: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What means a constructor to other libraries is a table of texts here."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    found = CODEC.decode(envelope)

    assert CODEC.encode(found, "it") == envelope
    assert not list(tmp_path.iterdir())
    assert set(sys.modules) == before


ODD: list[tuple[Any, str]] = [
    ({"$": "dict", "of": {"items": [1, {"$": "Item", "name": 3, "shape": None, "size": 1.0}]}}, "['items'][1]"),
    ({"$": "Pair", "left": 1, "right": {"$": "Pair", "left": {"$": "nope"}, "right": None}}, "right.left"),
    ({"$": "Update", "of": {"items": [{"meta": {"client": {"$": "Lock"}}}]}}, "items[0]['meta']['client']"),
    ({"$": "dict", "pairs": [[[1], {"$": "x"}]]}, "[<tuple>]"),
    ({"$": "dict", "pairs": [[{"$": "x"}, 1]]}, "[0] (the key)"),
    ({"$": "dict", "pairs": [[1, 2], [3, {"$": "x"}]]}, "[3]"),
    ({"a": {"b": {"$x": 1}}}, "['a']['b']['$x']"),
    ({"$": "set", "of": [1, {"$": "list", "of": []}]}, ""),
    ({"$": "set", "of": [1, 1]}, ""),
    ({"$": "dict", "pairs": [[1, 2], [1, 3]]}, ""),
    ({"$": "dict", "pairs": [[1, 2, 3]]}, ""),
    ({"$": "dict", "pairs": {}}, ""),
    ({"$": "dict", "of": [], "pairs": []}, ""),
    ({"$": "Loose", "found": {"$": "Colour", "is": "GREEN"}, "renamed": 1}, "found"),
    ({"$": "Loose", "found": 1, "renamed": 1, "$extra": {}}, ""),
    ({"$": "Loose", "found": 1, "renamed": 1, "$extra": {"found": 1}}, ""),
    ({"$": "Loose", "found": 1, "renamed": 1, "$unset": ["other"]}, ""),
    ({"$": "Loose", "found": 1, "renamed": 1, "$unset": ["renamed", "found"]}, ""),
    ({"$": "Loose", "found": 1, "renamed": 1, "$set": ["found"], "$unset": ["renamed"]}, ""),
    ({"$": "Loose", "found": 1, "renamed": "1"}, ""),
    ({"$": "Loose", "found": 1}, ""),
    ({"$": "Loose", "found": 1, "Renamed": 1}, ""),
    ({"$": "Slotted", "name": "a", "tags": [1]}, ""),
    ({"$": "Slotted", "name": "a", "tags": [], "$set": []}, ""),
    ({"$": "Derived", "words": ["a"], "count": 2}, ""),
    ({"$": "Point", "x": 1.0, "y": 2.0}, ""),
    ({"$": "Rights", "value": 64}, ""),
    ({"$": "Rights", "value": 1}, ""),
    ({"$": "Rights", "value": True}, ""),
    ({"$": "Report", "finding": "", "action_needed": None, "evidence": [], "status": "done", "reason": None}, ""),
    ({"$": "Budget", "node_runs": -1, "model_calls": None, "tool_calls": None, "retries": None, "tokens": None,
      "usd": None, "seconds": None}, ""),
    ({"$": "Call", "to": "a", "brief": "do", "id": "", "needs": []}, ""),
    ({"$": "Delegate", "calls": [1], "update": None}, ""),
    ("\ud800", ""),
    (float("nan"), ""),
    ([LONG], "[0]"),
    ({1: 2}, ""),
    ((1,), ""),
    ({"$": "int", "hex": "0x10"}, ""),
    ({"$": "int", "hex": "0x" + "F" * 9_999}, ""),
    ({"$": "float", "is": "1.5"}, ""),
    ({"$": "float", "is": "NaN"}, ""),
    ({"$": "bytes", "b64": "AA"}, ""),
    ({"$": "bytes", "b64": "AA=="  "\n"}, ""),
    ({"$": "str", "b64": "YQ=="}, ""),
    ({"$": "timedelta", "of": [0, 90_000, 0]}, ""),
    ({"$": "timedelta", "of": [10**30, 0, 0]}, ""),
    ({"$": "Fraction", "of": [2, 4]}, ""),
    ({"$": "datetime", "is": "2026-01-01"}, ""),
    ({"$": "datetime", "is": "2026-01-01T00:00:00", "fold": 0}, ""),
    ({"$": "datetime", "is": "2026-01-01T00:00:00+01:00"}, ""),
    ({"$": "datetime", "is": "2026-01-01T00:00:00", "zone": [0]}, ""),
    ({"$": "datetime", "is": "2026-01-01T00:00:00", "zone": [10**20]}, ""),
    ({"$": "date", "is": 3}, ""),
    ({"$": "UUID", "is": "{00000000-0000-0000-0000-000000000007}"}, ""),
    ({"$": "WindowsPath" if sys.platform != "win32" else "PosixPath", "is": "a"}, ""),
    ({"$": "PurePosixPath", "is": "a//b"}, ""),
    ({"$": "range", "of": [0, 1, 0]}, ""),
    ({"$": "range", "of": [0, 1.0, 1]}, ""),
    ({"$": "IPv4Address", "is": "1.2.3"}, ""),
    ({"$": "type", "is": []}, ""),
    ({"$": "type", "is": ["FrozenDict", 3]}, ""),
    ({"$": "type", "is": ["|", 3]}, ""),
    ({"$": "type", "is": 3}, ""),
    ({"$": "NOTHING", "of": 1}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("data", "where"), ODD)
def test_what_is_odd_is_named_with_its_place(data: Any, where: str) -> None:
    """Every form that no value is written in is refused; the error says where it stands."""
    with pytest.raises(Unreadable) as caught:
        CODEC.decode(data)

    assert caught.value.where == where
    assert len(str(caught.value)) < 600


def test_data_that_are_nested_too_deep_are_unreadable() -> None:
    """Depth never takes the stack, in whatever it stands."""
    wraps: list[Callable[[Any], Any]] = [
        lambda data: [data],
        lambda data: {"a": data},
        lambda data: {"$": "list", "of": [data]},
        lambda data: ["list", data],
    ]
    for wrap in wraps:
        data: Any = "int"
        for _ in range(100_000):
            data = wrap(data)
        with pytest.raises(Unreadable, match=r"deep|inside each other"):
            CODEC.decode({"$": "type", "is": data} if wrap is wraps[-1] else data)


def test_numbers_that_stand_for_much_take_little() -> None:
    """A range, a decimal or a time says much in few signs; reading it makes nothing of that size."""
    found = CODEC.decode([{"$": "range", "of": [0, 10**18, 1]}, {"$": "Decimal", "is": "1E+999999999"}])

    assert len(found[0]) == 10**18
    assert found[1].adjusted() == 999_999_999


def test_l7_a_class_that_is_gone_is_named_with_its_place() -> None:
    """Case L7: without the class nothing is read as a dict or None: the error names the class and the place."""
    data = CODEC.encode({"found": (Item(name="a"), Colour.RED)}, "it")

    with pytest.raises(Unreadable, match=r"no class 'Item' is declared .*\['found'\]\[0\]"):
        Codec(Kinds([Colour])).decode(data)


def test_a_class_that_changed_is_named() -> None:
    """A class that no longer takes what is stored is named, with what is wrong."""
    data = CODEC.encode(Item(name="a"), "it")
    other = Codec(Kinds([type("Item", (Item,), {"__annotations__": {"size": str}, "size": "", "__qualname__": "Item"}),
                         Item.Shape]))  # fmt: skip

    with pytest.raises(Unreadable, match="a Item that is not valid: its size is not valid"):
        other.decode(data)
