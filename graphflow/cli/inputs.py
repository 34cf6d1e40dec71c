"""What the command line gives to a run: the context, the budget, tighter bounds."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from graphflow.cli.faults import BadUse
from graphflow.graphs.graph import Graph
from graphflow.model.budget import ADDITIVE, COUNTS, Budget
from graphflow.model.context import Context, question_field
from graphflow.model.secrets import holds_secret, secret_fields

C = TypeVar("C", bound=Context)

DIMENSIONS: Final = (*ADDITIVE, "seconds")

MISSING: Final = "missing"
"""What pydantic calls a field that nobody gave."""


def context_of(kind: type[C], text: str | None, sets: Sequence[str]) -> C:
    """Make a context: INPUT is its first field if that is a str, `--set field=value` gives any field.

    A value is JSON where it can be read as such and fits the field, else text.

    Raises:
        BadUse: if a field is unknown, given twice, left over or refused; all that is wrong at once.
    """
    fields = kind.model_fields
    given: dict[str, str] = {}
    for item in sets:
        name, value = pair(item, "--set", "FIELD=VALUE")
        if name not in fields:
            raise BadUse(f"--set {name}=...: the context {kind.__name__} {_known('field', name, fields)}")
        given[name] = value
    values: dict[str, Any] = {name: as_json(value) for name, value in given.items()}
    if text is not None:
        first = _first_text(kind)
        if first is None:
            raise BadUse(_no_input(kind))
        if first in given:
            raise BadUse(f"the field {first!r} is given twice: as INPUT and with --set {first}=....")
        values[first] = text
    try:
        return _made(kind, values)
    except ValidationError as error:
        # A number or null may be meant as text, so what was refused is tried as text once more.
        refused = {str(found["loc"][0]) for found in error.errors(include_url=False) if found["loc"]}
        values |= {name: given[name] for name in refused & given.keys()}
    try:
        return _made(kind, values)
    except ValidationError as error:
        raise BadUse(_refused(kind, error, given)) from None  # the error would show the values


def _made(kind: type[C], values: dict[str, Any]) -> C:
    return kind.model_validate(values, by_alias=False, by_name=True)


def _first_text(kind: type[Context]) -> str | None:
    return question_field(kind)


def _no_input(kind: type[Context]) -> str:
    first = next(iter(kind.model_fields), None)
    if first is None:
        return f"the context {kind.__name__} has no fields, so there is nothing that takes INPUT."
    return (
        f"INPUT goes to the first field of the context if that is a str, and {kind.__name__}.{first} is none: "
        f"give it with --set {first}=VALUE."
    )


def _refused(kind: type[Context], error: ValidationError, given: dict[str, str]) -> str:
    found = error.errors(include_url=False)
    hidden = secret_fields(kind) | {name for name, info in kind.model_fields.items() if holds_secret(info.annotation)}
    missing = [str(item["loc"][0]) for item in found if item["type"] == MISSING and len(item["loc"]) == 1]
    lines: list[str] = []
    if missing:
        first = _first_text(kind)
        ways = ", ".join(
            f"{name} (INPUT, or --set {name}=VALUE)" if name == first else f"{name} (--set {name}=VALUE)"
            for name in missing
        )
        lines.append(f"the context {kind.__name__} needs more: {ways}.")
    for item in found:
        where = item["loc"]
        if item["type"] == MISSING and len(where) == 1:
            continue
        name = str(where[0]) if where else ""
        inner = "".join(f"[{step!r}]" for step in where[1:])
        source = f"--set {name}={given[name]}" if name in given else f"INPUT ({name})" if name else "together"
        what = item["msg"]
        if name in hidden or (not name and hidden):  # a validator may write what it was given into its text
            source = f"--set {name}=..." if name in given else source
            inner, what = "", f"a secret in it does not fit ({item['type']})"
        lines.append(f"the context {kind.__name__} refuses {source}{inner}: {what}.")
    return "\n".join(dict.fromkeys(lines))


def as_json(text: str) -> Any:
    """Read a text as JSON, or return it as it is.

    >>> as_json("[1, 2]"), as_json("true"), as_json("as it is")
    ([1, 2], True, 'as it is')
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def pair(item: str, option: str, form: str) -> tuple[str, str]:
    """Split `name=value` at the first sign.

    Raises:
        BadUse: if there is none.
    """
    name, sign, value = item.partition("=")
    if not sign or not name:
        raise BadUse(f"{option} {item}: write {option} {form}.")
    return name, value


def budget_from(items: Sequence[str]) -> Budget | None:
    """Read `--budget dimension=amount`; None where nothing is given.

    >>> budget_from(["tokens=20_000", "usd=0.10"])
    Budget(tokens=20000, usd=Decimal('0.10'))

    Raises:
        BadUse: if a dimension is unknown, or an amount is no amount of it.
    """
    chosen: dict[str, Any] = {}
    for item in items:
        name, text = pair(item, "--budget", "DIMENSION=AMOUNT")
        if name not in DIMENSIONS:
            raise BadUse(f"--budget {item}: a budget {_known('dimension', name, DIMENSIONS)}")
        chosen[name] = _amount(name, text, item)
    return Budget(**chosen) if chosen else None


def _amount(name: str, text: str, item: str) -> Any:
    kind = "a whole number" if name in COUNTS else 'an amount such as "0.10"' if name == "usd" else "a number"
    try:
        amount: Any = int(text) if name in COUNTS else text if name == "usd" else float(text)
        Budget(**{name: amount})
    except (ValueError, OverflowError):
        raise BadUse(f"--budget {item}: {name} is {kind} of at least 0.") from None
    return amount


def secrets_from(items: Sequence[str]) -> Mapping[str, str]:
    """Read `--secret FIELD=VARIABLE`, or `FIELD` for the variable of the same name.

    Raises:
        BadUse: if there is no such variable; its value is never shown.
    """
    found: dict[str, str] = {}
    for item in items:
        name, variable = name_and_variable(item)
        value = os.environ.get(variable)
        if not variable:
            raise BadUse(f"--secret {item}: write --secret FIELD=VARIABLE.")
        if value is None:
            raise BadUse(f"--secret {name}: the environment has no variable {variable!r}.")
        found[name] = value
    return found


def name_and_variable(item: str) -> tuple[str, str]:
    """Split `NAME=VARIABLE`; a name may hold any sign, and is empty for a secret that older versions called nothing.

    >>> name_and_variable("token"), name_and_variable("a=b=TOKEN"), name_and_variable("=TOKEN")
    (('token', 'token'), ('a=b', 'TOKEN'), ('', 'TOKEN'))
    """
    name, sign, variable = item.rpartition("=")
    return (name, variable or name) if sign else (item, item)


def tightened(graph: Graph[C], max_depth: int | None) -> Graph[C]:
    """Return the same graph with a lower `max_depth`; itself if none is given.

    Raises:
        BadUse: if it would be higher than the graph's own.
    """
    if max_depth is None or max_depth == graph.max_depth:
        return graph
    if graph.max_depth is not None and max_depth > graph.max_depth:
        raise BadUse(
            f"--max-depth {max_depth}: the graph {graph.name!r} has max_depth={graph.max_depth}, which can only "
            f"be lowered here."
        )
    copy: Graph[C] = object.__new__(type(graph))
    for field in graph.__dataclass_fields__:
        object.__setattr__(copy, field, getattr(graph, field))
    object.__setattr__(copy, "max_depth", max_depth)
    copy.__post_init__()
    return copy


def _known(noun: str, asked: str, names: Iterable[str]) -> str:
    known = list(names)
    near = difflib.get_close_matches(asked, known, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"has no {noun} {asked!r}; its {noun}s are {', '.join(known) or 'none'}.{guess}"
