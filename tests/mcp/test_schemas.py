"""The schema of a stranger: what is checked by it, what is left to the server, and what is refused."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.mcp.checking import check_of
from graphflow.mcp.offered import LONGEST_NAME, names_of
from graphflow.mcp.results import text_of
from graphflow.nodes.given import STEP, tool_of_schema


def given_back(**arguments: Any) -> str:
    """Say what was given."""
    return str(arguments)


def tool_with(schema: dict[str, Any]) -> Any:
    """A tool with a schema, that says what it was given."""
    return tool_of_schema(given_back, "found", "", schema, check_of(schema))


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "arguments", "complaint"),
    [
        ({"properties": {"a": {"type": "string", "enum": ["x", "y"]}}}, {"a": "z"}, "a: 'z' is not one of"),
        ({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, {"a": [1, "2"]}, "a.1: '2' is not"),
        ({"additionalProperties": False}, {"a": 1}, "Additional properties are not allowed"),
        (
            {"$defs": {"A": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/A"}}},
            {"a": "x"},
            "a: 'x' is not",
        ),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 2}, "is valid under each of"),
        ({"properties": {"a": True}}, {"a": 1}, None),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}, None),
        ({"properties": {"pattern": {"type": "string", "pattern": "^a$"}}}, {"pattern": "b"}, None),
        ({"patternProperties": {"^a": OBJECT}, "additionalProperties": False}, {"b": 1}, None),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}}, {"a": 1}, None),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}, {}, None),
    ],
)
def test_arguments_are_checked_as_far_as_it_can_be_done(
    schema: dict[str, Any], arguments: dict[str, Any], complaint: str | None
) -> None:
    """Patterns, and what stands elsewhere, are left to the server; nothing is fetched."""
    tool = tool_with({**OBJECT, **schema})

    if complaint is None:
        assert tool.arguments(json.dumps(arguments)) == arguments
    else:
        with pytest.raises(ValueError, match=r"the arguments of 'found' do not fit: ") as caught:
            tool.arguments(json.dumps(arguments))
        assert complaint in str(caught.value)


def test_what_is_wanted_is_said_of_any_schema() -> None:
    """A definition that leads to itself, and a schema that is True, are no trap for the text."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}, "any": True, "one": {"type": ["string", "null"]}},
        "required": ["tree"],
        "$defs": {
            "Tree": {"anyOf": [{"anyOf": [{"$ref": "#/$defs/Tree"}]}, {"$ref": "#/$defs/Loop"}]},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }

    with pytest.raises(ValueError, match=r'"any": any JSON, "one": string or null'):
        tool_with(schema).arguments("{}")


def test_a_pattern_of_a_stranger_costs_nothing() -> None:
    """A regular expression that takes forever is never tried."""
    tool = tool_with({**OBJECT, "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    begun = time.monotonic()

    tool.arguments(json.dumps({"a": "a" * 60 + "b"}))

    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, "is one of 'string', and not of an object"),
        ({}, "is one of 'anything'"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "its schema is none: 'text' is not valid"),
        ({"type": "object", "description": "x" * 60_000}, "its schema has 60,"),
    ],
)
def test_what_is_no_schema_of_arguments_is_refused(schema: dict[str, Any], said: str) -> None:
    """A tool that could not be called is not offered to a model."""
    with pytest.raises(ValueError, match=said):
        check_of(schema)


def test_the_step_is_nobodys_to_give() -> None:
    """A model cannot take the place of the run."""
    with pytest.raises(ValueError, match="'tool step': is not known"):
        tool_with(OBJECT).arguments(json.dumps({STEP: 1}))


@given(st.lists(st.text(min_size=1, max_size=100), unique=True, max_size=6), st.sampled_from(["", "files_"]))
def test_any_names_become_names_that_a_model_takes(names: list[str], prefix: str) -> None:
    """Whatever a server calls its tools, each gets one valid name of its own."""
    made = names_of(names, prefix)

    assert list(made) == names
    assert len({*made.values()}) == len(names)
    assert all(len(name) <= LONGEST_NAME and name.isascii() and " " not in name for name in made.values())


def result(*content: Any, structured: Any = None) -> Any:
    """A result of a call."""
    return SimpleNamespace(content=[SimpleNamespace(**part) for part in content], structured_content=structured)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (result({"type": "text", "text": "a"}, {"type": "text", "text": "b"}), "a\nb"),
        (result({"type": "text", "text": "a"}, structured={"result": "a"}), "a"),
        (result({"type": "text", "text": '{"a": 1}'}, structured={"a": 1}), '{"a": 1}'),
        (result({"type": "text", "text": "one"}, structured={"a": 1}), 'one\n{"a": 1}'),
        (result(structured={"a": "é"}), '{"a": "é"}'),
        (result(), ""),
        (result({"type": "audio", "mime_type": "audio/wav", "data": "AAAA"}), "[audio, audio/wav, 3 bytes: not shown]"),
        (
            result({"type": "resource_link", "name": "log", "uri": "file:///log", "description": "The\nlog."}),
            "[a resource, log, at file:///log: The log.]",
        ),
        (
            result({"type": "resource", "resource": SimpleNamespace(uri="file:///log", text="lines")}),
            "[the resource file:///log]\nlines",
        ),
        (
            result({"type": "resource", "resource": SimpleNamespace(uri="file:///x", mime_type=None, blob="AAAA")}),
            "[the resource file:///x, bytes, 3 bytes: not shown]",
        ),
        (result({"type": "hologram"}), "[hologram: not shown]"),
    ],
)
def test_nothing_of_a_result_is_dropped_without_a_word(found: Any, text: str) -> None:
    """Texts and structured content are shown, once; everything else is named."""
    assert text_of(found) == text
