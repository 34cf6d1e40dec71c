"""A result as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import pydantic_core

from graphflow.graphs.conversation import TeamReport, transcript
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.contract import Reason, Report
from graphflow.model.frozen import FrozenDict
from graphflow.model.secrets import veiled
from graphflow.persistence.lines import writable
from graphflow.runtime.result import Result

EXIT_CODES: Final = {
    "completed": 0, "partial": 1, "failed": 1, "exhausted": 3, "waiting": 4, "cancelled": 130,
}  # fmt: skip
"""The exit code for each way in which a run can end."""

MOST_FAILURES: Final = 10


def jsonable(value: object) -> Any:
    """Return a value as plain JSON data; what has no such form is shown as text.

    >>> jsonable({"a": (1, Decimal("0.10"))})
    {'a': [1, '0.10']}
    """
    try:
        return pydantic_core.to_jsonable_python(veiled(value), fallback=_shown, inf_nan_mode="strings")
    except Exception:  # noqa: BLE001 - bytes, cycles, a serializer that raises: the rest of a result still counts
        return _shown(value)


def _shown(value: object) -> object:
    """Return something simpler for a value that has no JSON form of its own."""
    if isinstance(value, FrozenDict):
        return dict(cast("FrozenDict[Any, Any]", value))
    try:
        return repr(veiled(value))
    except Exception:  # noqa: BLE001 - a user's __repr__ may do anything
        return f"<{type(value).__name__}>"


def to_json(data: object) -> str:
    """Write JSON data as text in ASCII."""
    try:
        return json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        return json.dumps(writable(data), indent=2)


def result_data(result: Result[Any], questions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a result as JSON data, with its questions as such."""
    spent = result.spent
    return {
        "status": result.status,
        "output": jsonable(result.output),
        "report": jsonable(result.report),
        "reason": jsonable(result.reason),
        "questions": list(questions),
        "failures": [jsonable(reason) for reason in result.failures],
        "refused": [jsonable(reason) for reason in result.refused],
        "spent": {
            **_amounts(spent.total),
            "by_node": {name: _amounts(budget) for name, budget in spent.by_node.items()},
            "by_edge": {name: _amounts(budget) for name, budget in spent.by_edge.items()},
        },
        "run_id": result.run_id,
        "context": jsonable(result.context),
    }


def _amounts(budget: Budget) -> dict[str, Any]:
    found = {name: getattr(budget, name) for name in ADDITIVE}
    return {name: str(n) if isinstance(n, Decimal) else n for name, n in found.items() if n is not None}


def result_text(result: Result[Any]) -> str:
    """Return what a run gave, as text; where it gave no output, the context that it ended with."""
    match result.output:
        case None if result.status in {"completed", "partial"}:
            return as_text(result.context)
        case None:
            return ""
        case output:
            return as_text(output)


def as_text(value: object) -> str:
    """Show an output: a text as it is, a report by its parts, anything else as JSON.

    >>> print(as_text(Report(finding="paid twice", evidence=("INV-311",))))
    paid twice
    evidence: INV-311
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Report):
        return "\n".join(_report_lines(value))
    if isinstance(value, Context) and not type(value).model_fields:
        return ""
    return to_json(jsonable(value))


def _report_lines(report: Report) -> Iterator[str]:
    if report.finding:
        yield report.finding
    if report.status != "done":
        yield f"{report.status}: {because(report.reason)}"
    if report.action_needed is not None:
        yield f"action needed: {report.action_needed}"
    if report.evidence:
        yield f"evidence: {', '.join(report.evidence)}"
    own = {name: getattr(report, name) for name in type(report).model_fields if name not in Report.model_fields}
    if isinstance(report, TeamReport):
        said = own.pop("said")
        found = transcript(one for one in said if one.report.finding.strip())
        if len(said) > 1 and found != report.finding:  # of members side by side, the finding says all
            yield f"\n{transcript(said)}"
    if own:
        yield to_json(jsonable(own))


def because(reason: Reason | None, *, at: str = "") -> str:
    """Say why: where (if that is not `at`), which error or bound, and its text.

    >>> because(Reason(code="failed", text="too small", path="a/b", error_type="ValueError"))
    'a/b: ValueError: too small'

    A bound is said once, however often it stands in the reason:

    >>> because(Reason(code="node_runs", text="the bound node_runs refuses a run: its limit is 3.", limit=3))
    'the bound node_runs refuses a run: its limit is 3.'
    """
    if reason is None:
        return "no reason is known"
    where = "" if reason.path == at else reason.path
    kind = reason.error_type.rpartition(".")[2] or reason.code
    if f" {kind} " in f" {reason.text} ":
        kind = ""
    told = reason.limit is None or f"limit is {reason.limit:g}" in reason.text
    limit = "" if told else f" (limit {reason.limit:g})"
    return ": ".join(part for part in (where, kind, reason.text) if part) + limit


def ending(result: Result[Any]) -> Iterator[str]:
    """Say how a run ended if it is not completed, a line for each thing that went wrong."""
    match result.status:
        case "completed":
            return
        case "partial":
            count = len(result.failures)
            yield f"partial: {f'{count:,} failures' if count != 1 else '1 failure'} on the way"
            yield from (f"  {_indented(because(reason), 4)}" for reason in result.failures[:MOST_FAILURES])
            if count > MOST_FAILURES:
                yield f"  and {count - MOST_FAILURES:,} more"
        case "waiting":
            count = len(result.questions)
            yield f"waiting for {f'{count:,} answers' if count != 1 else 'an answer'}"
        case "cancelled" if result.reason is not None:
            yield result.reason.text
        case _:
            yield f"{result.status}: {_indented(because(result.reason), 2)}"


Refusal: TypeAlias = tuple[str, str]
"""What tells one refusal from others: the path of who was refused, and the bound."""

NOTHING_TOLD: Final[Counter[Refusal]] = Counter()


def refusal(reason: Reason) -> Refusal:
    """Return which refusal a reason is about."""
    return reason.path, reason.code


def refused_lines(result: Result[Any], told: Counter[Refusal] = NOTHING_TOLD) -> Iterator[str]:
    """Say what bounds refused on the way, unless that is said already: as the end of the run, a failure, or before.

    Args:
        result: the result.
        told: what was told while it ran, and how often.
    """
    failures = result.failures[:MOST_FAILURES] if result.status == "partial" else ()
    ends = {because(reason) for reason in (result.reason, *failures) if reason is not None}
    all_of = Counter(refusal(reason) for reason in result.refused)
    lines = Counter(because(reason) for reason in result.refused if told[refusal(reason)] < all_of[refusal(reason)])
    left = [(line, times) for line, times in lines.items() if line not in ends]
    for line, times in left[:MOST_FAILURES]:
        yield f"refused: {_indented(line, 2)}" + (f"  ×{times:,}" if times > 1 else "")
    if len(left) > MOST_FAILURES:
        yield f"refused: and {len(left) - MOST_FAILURES:,} more"


def _indented(text: str, by: int) -> str:
    """Let the further lines of a text stand below its first."""
    return "\n".join(text.splitlines()).replace("\n", "\n" + " " * by)
