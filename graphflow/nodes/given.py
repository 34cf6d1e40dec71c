"""Tools whose schema is given, and not read from a signature: those of other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from graphflow.nodes.signatures import Misfits, Parameters, home_of
from graphflow.nodes.tools import Tool

STEP: Final = "tool step"
"""The keyword by which the function of such a tool gets its `ToolStep`: a name that no schema has."""

Check = Callable[[dict[str, Any]], Sequence[str]]
"""What is wrong with arguments, a text for each complaint. Pure: it is asked again when a run is folded again."""


class GivenParameters(Parameters):
    """What a tool takes whose schema is given."""

    __slots__ = ("_check",)

    def __init__(self, home: Any, schema: Mapping[str, Any], check: Check) -> None:
        """Take the schema as it is."""
        self.home, self.step, self.unbound = home, STEP, False
        self._schema, self._check = dict(schema), check
        self.json = self.shown = json.dumps(self._schema, ensure_ascii=False)
        self.hidden = frozenset[str]()

    def _fitting(self, text: str, found: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as it is called
        wrong = [f"{STEP!r}: is not known"] if STEP in found else self._check(found)
        if wrong:
            raise Misfits(wrong)
        return found


def tool_of_schema(
    fn: Callable[..., Any], name: str, description: str, schema: Mapping[str, Any], check: Check, **options: Any
) -> Tool:
    """Make a tool whose schema is given, as that of a tool in another program.

    Args:
        fn: takes the arguments, and the `ToolStep` as `STEP`, by keyword.
        name: the tool's name.
        description: what it does.
        schema: the JSON schema of its arguments, which a model sees as it is.
        check: what is wrong with arguments.
        options: further attributes of `Tool`.

    Raises:
        UsageError: if an option makes no sense.

    >>> def asked(**arguments: object) -> str:
    ...     return str(arguments["number"])
    >>> schema = {"type": "object", "properties": {"number": {"type": "string"}}}
    >>> found = tool_of_schema(asked, "lookup", "", schema, lambda given: [] if "number" in given else ["no number"])
    >>> found.arguments('{"number": "INV-311"}')
    {'number': 'INV-311'}
    >>> found.arguments("{}")
    Traceback (most recent call last):
    ...
    ValueError: the arguments of 'lookup' do not fit: no number. Wanted: {"number": string}.
    """
    found = GivenParameters(home_of(fn), schema, check)
    return Tool(name, description, found.json, fn, **options, step=STEP, _parameters=found)
