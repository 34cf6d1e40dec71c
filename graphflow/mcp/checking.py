"""Arguments are held against the schema of a stranger, before they leave the program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from graphflow.nodes.given import Check
from graphflow.nodes.signatures import check_depth

LONGEST: Final = 50_000
"""How many characters the schema of one tool may have: all of them are sent to a model, at each turn."""

MOST: Final = 20
"""How many complaints are looked for."""

MOST_STEPS: Final = 20_000
"""How many steps a check may take before it is left to the server: it runs where a run decides."""

_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Where schemas stand under names of any kind."""

_VALUES: Final = frozenset({"const", "enum", "default", "examples", "required", "type"})
"""Where no schemas stand."""


def check_of(schema: Mapping[str, Any]) -> Check:
    """Return what says what is wrong with arguments; it is pure, and asks nobody.

    Patterns are left to the server: a regular expression of a stranger can take forever. So is what a schema refers to
    outside of itself.

    Raises:
        ValueError: if it is no schema of an object, or too much of one.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    text = json.dumps(schema)
    if len(text) > LONGEST:
        msg = f"its schema has {len(text):,} characters, more than {LONGEST:,}"
        raise ValueError(msg)
    check_depth(text)
    if schema.get("type") != "object":
        msg = f"its schema is one of {schema.get('type', 'anything')!r}, and not of an object"
        raise ValueError(msg)
    kind: Any = cast("Any", validator_for)(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        msg = f"its schema is none: {' '.join(str(error.message).split())[:200]}"
        raise ValueError(msg) from error
    counted, steps = _counting(kind)
    return _complaints_of(counted(_without_patterns(schema), registry=cast("Any", Registry)()), steps)


class _TooMuch(Exception):
    """A check has taken too many steps."""


def _counting(kind: Any) -> tuple[Any, list[int]]:
    """Return a class of validators that gives up after so many steps, and the counter of the steps that are left.

    A small schema can take longer than anybody lives: forty definitions, each one of which is two times the next.
    """
    from jsonschema import validators

    left = [0]

    def counted(check: Any) -> Any:
        def step(*given: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise _TooMuch
            return check(*given)

        return step

    checks: dict[str, Any] = {name: counted(check) for name, check in kind.VALIDATORS.items()}
    return cast("Any", validators).extend(kind, checks), left


def _complaints_of(validator: Any, left: list[int]) -> Callable[[dict[str, Any]], list[str]]:
    from referencing.exceptions import Unresolvable

    def wrong(arguments: dict[str, Any]) -> list[str]:
        found: list[tuple[list[str], str]] = []
        try:
            json.dumps(arguments, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return ["it holds text that is no Unicode (half a surrogate pair), which no server can be sent"]
        left[0] = MOST_STEPS
        try:
            for error in validator.iter_errors(arguments):
                found.append(([str(step) for step in error.absolute_path], _said(error)))
                if len(found) >= MOST:
                    break
        except (Unresolvable, _TooMuch):
            return []  # the server knows what it means
        return [f"{'.'.join(path)}: {said}" if path else said for path, said in sorted(found)]

    return wrong


def _said(error: Any) -> str:
    text = " ".join(str(error.message).split())
    return text if len(text) <= 200 else f"{text[:199]}…"  # noqa: PLR2004 - one line


def _without_patterns(schema: Any) -> Any:
    """Return a schema without regular expressions, and without what would mean something else without them."""
    if isinstance(schema, list):
        return [_without_patterns(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    left_out = {"pattern"}
    if "patternProperties" in table:
        left_out |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
    made: dict[str, Any] = {}
    for key, value in table.items():
        if key in left_out:
            continue
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _without_patterns(part) for name, part in cast("dict[str, Any]", value).items()}
        else:
            made[key] = value if key in _VALUES else _without_patterns(value)
    return made
