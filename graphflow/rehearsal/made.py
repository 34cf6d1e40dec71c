"""Values that fit a JSON schema, drawn from a generator: what a stand-in writes as arguments and as answers.

The schemas are those that are made of annotations here, and those of tool servers. What a schema may say beyond that, a
pattern above all, cannot be met by drawing; it is refused before anything runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias, cast

from graphflow.errors import UsageError

Make: TypeAlias = Callable[[Random], Any]
"""Draws a value."""

WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbour", "islet", "juniper", "kelp")

FORMATS: Final[Mapping[str, Make]] = {
    "date": lambda rng: f"20{rng.randrange(10, 40)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
    "time": lambda rng: f"{rng.randrange(24):02}:{rng.randrange(60):02}:00Z",
    "date-time": lambda rng: f"{FORMATS['date'](rng)}T{FORMATS['time'](rng)}",
    "duration": lambda rng: f"PT{rng.randrange(1, 60)}M",
    "email": lambda rng: f"{_word(rng)}@example.com",
    "uri": lambda rng: f"https://example.com/{_word(rng)}",
    "uuid": lambda rng: f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}-4{rng.getrandbits(12):03x}-8000-"
    f"{rng.getrandbits(48):012x}",
    "path": lambda rng: f"{_word(rng)}.txt",
    "file-path": lambda rng: f"{_word(rng)}.txt",
    "binary": lambda rng: rng.choice(WORDS),
    "ipv4": lambda rng: f"192.0.2.{rng.randrange(1, 255)}",
}  # fmt: skip

REFUSED: Final = frozenset(
    ("pattern", "not", "if", "patternProperties", "dependentRequired", "dependentSchemas", "contains", "propertyNames",
     "contentMediaType", "contentSchema", "unevaluatedProperties", "dependencies")
)  # fmt: skip
"""What no value is drawn for."""

SAID: Final = frozenset(("description", "default", "title", "examples", "$defs"))
"""What a schema says to a reader, and nothing of what fits."""

EMPTY: Final[Mapping[str, Any]] = {}

DEEPEST: Final = 6
"""How deep parts of a schema that may be left out are drawn inside each other, as in one that refers to itself."""


def maker(schema: Mapping[str, Any], where: str, name: str = "") -> Make:
    """Return what draws values that fit a JSON schema; worked out once.

    Args:
        schema: the schema.
        where: what it is the schema of, for errors.
        name: whose stand-in a function of the user's would be, for errors; "" where there may be several.

    Raises:
        UsageError: if it asks for what cannot be drawn; the text says of which field, and what to give instead.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 3}}}
    >>> maker({**schema, "required": ["n"]}, "a test")(Random(0))
    {'n': 3}
    """
    return _Maker(schema, where, instead(name)).of(schema, 0)


def instead(name: str) -> str:
    """Say what to give where nothing can be drawn.

    >>> instead("desk")
    "Give a function that makes one: stand_ins={'desk': function}."
    """
    return (
        f"Give a function that makes one: stand_ins={{{name!r}: function}}."
        if name
        else ("Give a function that makes one: stand_ins={NAME: function}.")
    )


class _Maker:
    """Makes the makers of the parts of one schema."""

    def __init__(self, root: Mapping[str, Any], where: str, instead: str) -> None:
        self._root, self._where, self._instead = root, where, instead
        self._at: list[str] = []  # the field that is looked at, by the names that lead to it
        self._under_way: set[str] = set()  # the references that are followed now

    def of(self, part: object, depth: int) -> Make:
        if part is True:
            return _word
        if not isinstance(part, dict):
            raise self._cannot(f"{json.dumps(part, default=str)} as a schema")
        schema = cast("dict[str, Any]", part)
        refused = sorted(REFUSED & schema.keys())
        if refused:
            raise self._cannot(f"{refused[0]!r}: {json.dumps(schema[refused[0]], default=str)}")
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), depth)
        if "const" in schema:
            constant = schema["const"]
            return lambda _: constant
        if "enum" in schema:
            return _one_of([_always(value) for value in schema["enum"]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._several(schema[key], depth)
        if "allOf" in schema:
            return self._all(schema, depth)
        return self._typed(schema, depth)

    def _cannot(self, what: str) -> UsageError:
        field = f", in the field {'.'.join(self._at)!r}" if self._at else ""
        return UsageError(
            f"{self._where}: its schema has {what}{field}, and no value is drawn for that. {self._instead}"
        )

    def _within(self, name: str, part: object, depth: int) -> Make:
        """Make what draws a field, or the items of a list."""
        self._at.append(name)
        try:
            return self.of(part, depth)
        finally:
            self._at.pop()

    def _referred(self, name: str, depth: int) -> Make:
        """Follow a reference, and never inside of itself: whatever has an end has one without that."""
        if name in self._under_way:
            raise self._cannot(f"the reference {name!r}, which holds itself without an end")
        target: Any = self._root
        for step in name.removeprefix("#/").split("/"):
            known = cast("Mapping[str, Any]", target) if isinstance(target, Mapping) else EMPTY
            target = known.get(step.replace("~1", "/").replace("~0", "~"))
        if target is None:
            raise self._cannot(f"the reference {name!r}, which leads nowhere")
        self._under_way.add(name)
        try:
            return self.of(target, depth)
        finally:
            self._under_way.remove(name)

    def _several(self, parts: Sequence[Any], depth: int) -> Make:
        """Draw any of several that can be; deep inside, those without parts of their own, or it takes too long."""
        if depth >= DEEPEST:
            parts = [part for part in parts if _is_plain(part)]
        made: list[Make] = []
        trouble: UsageError | None = None
        for part in parts:
            try:
                made.append(self.of(part, depth + 1))
            except UsageError as error:  # another of them will do
                trouble = error
        if not made:
            raise trouble or self._cannot("a choice with nothing simple to choose")
        return _one_of(made)

    def _all(self, schema: Mapping[str, Any], depth: int) -> Make:
        whole: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if whole.keys() - SAID and part.keys() - SAID:
                raise self._cannot("'allOf' of several parts")
            whole |= part
        return self.of(whole, depth)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Make:
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._several([{**schema, "type": one} for one in cast("list[Any]", kind)], depth)
        match kind:
            case "string":
                return self._text(schema)
            case "integer":
                return self._whole(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return lambda rng: rng.random() < 0.5  # noqa: PLR2004 - a coin
            case "null":
                return _always(None)
            case "array":
                return self._list(schema, depth)
            case "object":
                return self._object(schema, depth)
            case None if "properties" in schema:
                return self._object(schema, depth)
            case None:
                return _word
            case _:
                raise self._cannot(f"'type': {json.dumps(kind, default=str)}")

    def _text(self, schema: Mapping[str, Any]) -> Make:
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        found = schema.get("format")
        if found is not None and least == 0 and most is None:
            form = FORMATS.get(found)
            if form is None:
                raise self._cannot(f"'format': {found!r}")
            return form

        def text(rng: Random) -> str:
            said = _word(rng)
            said = said if len(said) >= least else (said * (least // len(said) + 1))[:least]
            return said if most is None else said[: int(most)]

        return text

    def _whole(self, schema: Mapping[str, Any]) -> Make:
        low, high, step = self._range(schema, whole=True)
        first, last = math.ceil(low / step), math.floor(high / step)
        if first > last:
            raise self._cannot("bounds that no whole number is between")
        return lambda rng: int(rng.randint(first, last) * step)

    def _number(self, schema: Mapping[str, Any]) -> Make:
        low, high, step = self._range(schema, whole=False)
        if step:
            first, last = math.ceil(low / step), math.floor(high / step)
            return lambda rng: rng.randint(first, last) * step
        return lambda rng: low + (high - low) * rng.uniform(0.01, 0.99)  # open at both ends

    def _range(self, schema: Mapping[str, Any], *, whole: bool) -> tuple[Any, Any, Any]:
        """Return from where to where a number lies, and the step, by which whole ones are counted."""
        step = schema.get("multipleOf", 1 if whole else 0)
        edge = step or 0
        low = schema.get("minimum", schema.get("exclusiveMinimum", None))
        high = schema.get("maximum", schema.get("exclusiveMaximum", None))
        if low is not None and "minimum" not in schema:
            low += edge
        if high is not None and "maximum" not in schema:
            high -= edge
        wide = max(100, 100 * edge)
        if low is None:
            low = min(0, high - wide) if high is not None else 0
        if high is None:
            high = low + wide
        if low > high:
            raise self._cannot("bounds that no number is between")
        return low, high, step

    def _list(self, schema: Mapping[str, Any], depth: int) -> Make:
        parts: Sequence[Any] = schema.get("prefixItems", ())
        first = [self._within(str(index), part, depth + 1) for index, part in enumerate(parts)]
        least = int(schema.get("minItems", 0))
        most = int(schema.get("maxItems", max(least, len(first)) if depth >= DEEPEST else max(least, 2)))
        most = max(most, least) if not self._under_way else least  # what stands inside of itself ends
        if first and schema.get("items", True) in (True, False):
            return lambda rng: [make(rng) for make in first]
        item = self._within("*", schema.get("items", True), depth + 1) if most else _word
        unique = bool(schema.get("uniqueItems"))

        def several(rng: Random) -> list[Any]:
            count = rng.randint(least, most)
            found = [make(rng) for make in first]
            for _ in range(20 * count):
                if len(found) >= count:
                    break
                one = item(rng)
                if not unique or one not in found:
                    found.append(one)
            return found

        return several

    def _object(self, schema: Mapping[str, Any], depth: int) -> Make:
        """Draw what is required; what may be left out is left out, for its default holds then."""
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = [str(name) for name in schema.get("required", ())]
        fields = {name: self._within(name, properties.get(name, True), depth + 1) for name in required}
        rest = schema.get("additionalProperties", True)
        lacking = int(schema.get("minProperties", 0)) - len(fields)
        if lacking > 0:
            spare = [name for name in properties if name not in fields][:lacking]
            fields |= {name: self._within(name, properties[name], depth + 1) for name in spare}
            other = _word if rest in (True, False) else self._within("*", rest, depth + 1)
            fields |= {f"{WORDS[index % len(WORDS)]}{index}": other for index in range(lacking - len(spare))}
        return lambda rng: {name: make(rng) for name, make in fields.items()}


def _is_plain(part: object) -> bool:
    """Tell whether a schema has no parts of its own."""
    found = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else EMPTY
    return not found.keys() & {"$ref", "anyOf", "oneOf", "allOf"} and found.get("type") not in ("object", "array")


def _word(rng: Random) -> str:
    number = int(rng.random() * 1000 * len(WORDS))
    return f"{WORDS[number // 1000]}-{number % 1000}"


def _always(value: object) -> Make:
    return lambda _: value


def _one_of(made: Sequence[Make]) -> Make:
    if len(made) == 1:
        return made[0]
    return lambda rng: made[int(rng.random() * len(made))](rng)
