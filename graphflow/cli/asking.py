"""What a run asks a person: as text, as JSON, and what was answered to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from pydantic import ValidationError

from graphflow.cli.board import names_of, shown_names
from graphflow.cli.calls import AskedCall, with_arguments
from graphflow.cli.faults import text_of
from graphflow.cli.forms import answer_form, is_approval, json_schema, wants_text
from graphflow.cli.inputs import as_json
from graphflow.cli.printing import quoted, safe
from graphflow.cli.results import jsonable
from graphflow.errors import UsageError
from graphflow.model.contract import Approval
from graphflow.model.ids import parse_path
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Question
from graphflow.visualize.text import shown, visible

LONG: Final = 4_000
"""How many characters of one argument a person is shown; what is left out is counted."""

WIDTH: Final = 80
"""Longer values of an argument stand on several lines."""

MOST_HINTS: Final = 10

TEXT: Final = 160

APPROVE: Final = "Approve? (yes; no; no, REASON; or the arguments to change, as JSON)"

_NO: Final = re.compile(r"(?:no|n)(?:\s*[,:;.–-]\s*|\s+)(?P<reason>.*)\Z", re.IGNORECASE | re.DOTALL)

Approvals = Callable[[str], AskedCall | None]
"""Gives the call that a question is about, from the question's id."""


def question_lines(question: Question, approvals: Approvals, *, place: str = "") -> Iterator[str]:
    """Show what a run asks, so that an answer can be written.

    Args:
        question: what is asked.
        approvals: what is known of the call that it is about.
        place: which of several it is.
    """
    head = f"{place}{visible(question.id)}: "
    call = approvals(question.id)
    if call is not None:
        who = shown_names(names_of(parse_path(question.path)))
        about = f" ({shown(call.tool.description, TEXT)})" if call.tool.description else ""
        yield f"{head}{who} wants to call {call.tool.name}{about}"
        yield from _argument_lines(call)
        yield f"  {APPROVE}"
        return
    first, *rest = question.text.splitlines() or [""]
    form = "" if is_approval(question.schema) else answer_form(question.schema)
    lines = [head + safe(first), *(f"  {safe(line)}" for line in rest)]
    yield from lines[:-1]
    yield lines[-1] + form


def _argument_lines(call: AskedCall) -> Iterator[str]:
    arguments = call.arguments()
    for name, value in arguments.items():
        label = f"  {visible(name)}:"
        if isinstance(value, str) and "\n" in value:
            yield label
            yield from (f"    | {safe(line)}" for line in _cut(value).split("\n"))
            continue
        text = visible(json.dumps(value, ensure_ascii=False))
        if len(text) > WIDTH and isinstance(value, dict | list):
            yield label
            yield from (f"    {line}" for line in _cut(json.dumps(value, ensure_ascii=False, indent=2)).split("\n"))
        else:
            yield f"{label} {_cut(text)}"
    if not arguments:
        yield "  without arguments"


def _cut(text: str) -> str:
    more = len(text) - LONG
    return text if more <= 0 else f"{text[:LONG]} ... and {more:,} more characters, which --json shows"


def hint_lines(questions: Sequence[Question], resume: Callable[..., str] | None) -> Iterator[str]:
    """Say how a run is given its answers, so that a shell reads each id as it is.

    Args:
        questions: what it asks.
        resume: writes the command line that goes on with the run, with these options; None if nothing of it is kept.
    """
    if resume is None:
        yield "run it again with --answer ID=VALUE, which starts a new run, or run it in a terminal:"
        yield from (f"  --answer {quoted(f'{question.id}=VALUE')}" for question in questions[:MOST_HINTS])
    else:
        yield "to answer, now or later (without --answer you are asked in a terminal):"
        given = [f"--answer {quoted(f'{question.id}=VALUE')}" for question in questions[:MOST_HINTS]]
        yield "  " + resume(*given)
    if len(questions) > MOST_HINTS:
        yield f"  and {len(questions) - MOST_HINTS:,} more"


def question_data(question: Question, approvals: Approvals) -> dict[str, Any]:
    """Return a question as JSON data: with the schema of its answer, and the call that it is about, if any."""
    call = approvals(question.id)
    return {
        "id": question.id,
        "path": question.path,
        "text": question.text,
        "schema": _schema(question.schema),
        "call": None if call is None else {
            "tool": call.tool.name, "arguments": dict(call.arguments()), "parameters": call.tool.spec.parameters,
        },
    }  # fmt: skip


def _schema(schema: Any) -> dict[str, Any] | None:
    """Return the JSON schema of an answer; that of an approval without the examples of its class."""
    found = json_schema(schema)
    if found is not None and is_approval(schema):
        found["description"] = str(found.get("description", "")).partition("\n\n>>>")[0]
    return found


# --- answers ---------------------------------------------------------------------------------------------------------


def give(run: Run[Any], question: Question, text: str, call: AskedCall | None) -> tuple[str, str]:
    """Give an answer.

    It is JSON if it can be read so and fits, else text; the other way round for a question that wants a text.

    Returns:
        Why it is refused, "" if it is taken; and what it says of a call, in words.
    """
    approval = is_approval(question.schema)
    values = [_approval(text, call)] if approval else _readings(text, question.schema)
    refused = ""
    for value in values:
        try:
            run.answer(question.id, value)
        except UsageError as error:
            cause = error.__cause__
            found = cause.errors(include_url=False) if isinstance(cause, ValidationError) else []
            refused = refused or "; ".join(dict.fromkeys(map(_problem, found))) or text_of(error)
        except Exception as error:  # noqa: BLE001 - a validator of the user may raise anything
            refused = refused or f"{type(error).__name__}: {text_of(error)}"
        else:
            return "", "" if call is None else _decision(Approval.model_validate(value), call)
    return _no_json(text) or refused, ""


def _readings(text: str, schema: Any) -> list[Any]:
    found = as_json(text)
    if schema is str or (isinstance(found, str) and found == text):
        return [text]
    return [text, found] if wants_text(schema) else [found, text]


def _problem(item: Any) -> str:
    where = ".".join(map(str, item["loc"]))
    text = str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _no_json(text: str) -> str:
    """Say what is wrong with a text that was meant as JSON."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"it is no JSON: {error}"
    return ""


def _approval(text: str, call: AskedCall | None) -> Any:
    """Read what a person says to a call: an object without the key `approve` has the arguments to change."""
    found = as_json(text.strip())
    if isinstance(found, dict):
        given = cast("dict[str, Any]", found)
        if "approve" in given or call is None or not given:
            return given or text
        if given.keys() == {"arguments"} and "arguments" not in call.given:
            return {"approve": True, **given}
        return {"approve": True, "arguments": {**call.given, **given}}
    rejected = _NO.match(text.strip())
    if rejected is not None:
        return {"approve": False, "reason": rejected["reason"].strip()}
    return found if isinstance(found, bool) else text


def _decision(approval: Approval, call: AskedCall) -> str:
    """Say in words what was decided about a call."""
    if not approval.approve:
        return f"{call.tool.name} is rejected{f': {shown(approval.reason, TEXT)}' if approval.reason else ''}"
    changed = approval.arguments
    given = call.arguments() if changed is None else AskedCall(call.tool, jsonable(changed)).arguments()
    return f"{with_arguments(call.tool.name, given)} is approved{'' if changed is None else ', changed'}"
