"""What an answer may look like, in words: read from the JSON schema of the type that it must have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, cast, get_args, get_origin

from pydantic import TypeAdapter

from graphflow.model.contract import Approval
from graphflow.model.hiding import HidingSchema
from graphflow.visualize.text import shown

MOST_CHOICES: Final = 20
MOST_FIELDS: Final = 12
MOST_LEVELS: Final = 3

CHOICE: Final = 40
"""How many characters of a choice or of a field's name are shown."""

FORM: Final = 400

_WORDS: Final = {"string": "str", "integer": "int", "number": "float", "null": "null"}

Schema = Mapping[str, Any]


def is_approval(schema: Any) -> bool:
    """Tell whether a question is about a tool call that a person has to approve.

    >>> is_approval(Annotated[Approval, "checked"]), is_approval(bool)
    (True, False)
    """
    while get_origin(schema) is Annotated:
        schema = get_args(schema)[0]
    return schema is Approval


def json_schema(schema: Any) -> dict[str, Any] | None:
    """Return the JSON schema of the type of an answer, or None where there is none.

    >>> json_schema(int), json_schema(None)
    ({'type': 'integer'}, None)
    """
    if schema is None:
        return None
    try:
        return TypeAdapter(schema).json_schema(schema_generator=HidingSchema)
    except Exception:  # noqa: BLE001 - not every type has one
        return None


def wants_text(schema: Any) -> bool:
    """Tell whether a text is taken as it stands, even if it could be read as JSON.

    >>> wants_text(str), wants_text(int)
    (True, False)
    """
    found = json_schema(schema)
    return found is not None and _Form(found).resolved(found).get("type") == "string"


def answer_form(schema: Any) -> str:
    """Say in brackets what an answer must be, or nothing where anything will do.

    >>> answer_form(int), answer_form(None)
    (' (int)', '')
    >>> from typing import Literal
    >>> answer_form(Literal["card", "bank"]), answer_form(list[Literal["card", "bank"]])
    (' (card or bank)', ' (JSON: ["card" or "bank", ...])')
    """
    found = json_schema(schema)
    if found is not None:
        return f" ({shown(_Form(found).words(found), FORM)})"
    if schema is None:
        return ""
    return f" ({schema.__name__ if isinstance(schema, type) else str(schema).replace('typing.', '')})"


class _Form:
    """Writes parts of one JSON schema as words."""

    def __init__(self, root: Schema) -> None:
        self._defs: Mapping[str, Schema] = root.get("$defs", {})

    def resolved(self, part: Schema) -> Schema:
        """Follow references to what they stand for."""
        for _ in self._defs:
            if "$ref" in part:
                part = self._defs.get(str(part["$ref"]).rpartition("/")[2], {})
        return part

    def words(self, part: Schema, level: int = 0) -> str:
        """Say what a value must be; inside of a JSON value, texts stand in quotes."""
        part = self.resolved(part)
        choices = [part["const"]] if "const" in part else part.get("enum")
        if choices is not None:
            return " or ".join(_choices(choices, quoted=level > 0))
        several = part.get("anyOf") or part.get("oneOf")
        if several is not None:
            return " or ".join(dict.fromkeys(self.words(item, level) for item in several))
        match part.get("type"):
            case "boolean":
                return "true or false" if level else "yes or no"
            case "object":
                found = self._object(part, level)
            case "array":
                found = self._list(part, level)
            case kind:
                return str(part.get("format") or _WORDS.get(str(kind), "any JSON value"))
        return found if level else f"JSON: {found}"

    def _list(self, part: Schema, level: int) -> str:
        items: Schema = part.get("items", {})
        return f"[{self.words(items, level + 1)}, ...]" if items and level < MOST_LEVELS else "[...]"

    def _object(self, part: Schema, level: int) -> str:
        fields: Mapping[str, Schema] = part.get("properties", {})
        if not fields or level >= MOST_LEVELS:
            return "{...}"
        return f"{{{', '.join(self._fields(fields, part.get('required', ()), level))}}}"

    def _fields(self, fields: Mapping[str, Schema], needed: Any, level: int) -> Iterator[str]:
        for name in list(fields)[:MOST_FIELDS]:
            optional = "" if name in needed else "?"
            key = json.dumps(shown(name, CHOICE), ensure_ascii=False)
            yield f"{key}{optional}: {self.words(fields[name], level + 1)}"
        if len(fields) > MOST_FIELDS:
            yield f"and {len(fields) - MOST_FIELDS:,} more"


def _choices(choices: Any, *, quoted: bool) -> Iterator[str]:
    found = cast("list[Any]", choices)
    for choice in found[:MOST_CHOICES]:
        plain = isinstance(choice, str) and not quoted
        yield shown(choice if plain else json.dumps(choice, ensure_ascii=False), CHOICE)
    if len(found) > MOST_CHOICES:
        yield f"{len(found) - MOST_CHOICES:,} more"
