"""JSON schemas as a model should read them: no titles, and of each docstring what it says of a field."""

from __future__ import annotations

import functools
import json
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from graphflow.model.contract import Report
from graphflow.model.hiding import HidingSchema
from graphflow.nodes.signatures import descriptions


def answer_schema(kind: Any, *, whole: bool = False) -> str:
    """Return the JSON schema of an answer, as text; "" for free text."""
    return "" if kind is None or kind is str else schema_text(kind, whole=whole)


def schema_text(kind: Any, *, whole: bool = False) -> str:
    """Return the JSON schema of a type, as text, without defaults that are secrets.

    The first paragraph of a class's docstring describes it, and its `Attributes:` describe its fields.

    Args:
        kind: the type.
        whole: whether such defaults stay, as in runs of older editions.

    >>> from graphflow.model.contract import Brief
    >>> schema = json.loads(schema_text(Brief))
    >>> schema["description"], schema["properties"]["boundary"]["description"]
    ('What a caller asks of a callee. Derive from it to add fields of your own.', 'what is not asked for.')
    """
    return _schema_text(kind, repr(kind), whole)


@functools.lru_cache(maxsize=256)
def _schema_text(kind: Any, _: str, whole: bool) -> str:  # noqa: FBT001 - it is a part of the key
    """Make the schema of a type once; types that are equal may be written in two orders, and have two schemas."""
    generator = GenerateJsonSchema if whole else HidingSchema
    schema: Any = _readable(TypeAdapter(kind).json_schema(schema_generator=generator))
    if isinstance(kind, type) and issubclass(kind, Report) and "reason" in schema.get("properties", {}):
        # a model gives its reason in words
        why = schema["properties"]["reason"].get("description", "")
        schema["properties"]["reason"] = {"type": ["string", "null"], "description": why}
        parts = {name: part for name, part in schema.pop("$defs", {}).items() if name != "Reason"}
        schema.update({"$defs": parts} if parts else {})
    return json.dumps(schema, ensure_ascii=False)


def _readable(schema: Any) -> Any:
    """Leave out the titles that pydantic makes of names, and say of each field what its docstring says."""
    if isinstance(schema, list):
        return [_readable(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    made: dict[str, Any] = {}
    for key, value in table.items():
        if key == "properties" and isinstance(value, dict):
            made[key] = {name: _readable(item) for name, item in cast("dict[str, Any]", value).items()}
        elif key != "title" or not isinstance(value, str):
            made[key] = _readable(value)
    text = made.get("description")
    if isinstance(text, str) and "properties" in made:
        made["description"] = " ".join(text.partition("\n\n")[0].split())
        for name, said in descriptions(text).items():
            if isinstance(made["properties"].get(name), dict):
                made["properties"][name].setdefault("description", said)
    return made
