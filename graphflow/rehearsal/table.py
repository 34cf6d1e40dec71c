"""A rehearsal as text and as data: what the runs were like, beside the worst case and the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from graphflow.rehearsal.results import MEASURES, Rehearsal, Summary
from graphflow.visualize.text import cells, shown

WORDS: Final = {
    "seconds": "wall time", "active": "active time", "model_calls": "model calls", "tool_calls": "tool calls",
    "input_tokens": "tokens read", "output_tokens": "tokens written", "tokens": "tokens", "usd": "cost",
    "node_runs": "node runs", "retries": "retries", "hops": "hops", "depth": "depth", "concurrent": "at once",
    "questions": "questions",
}  # fmt: skip
"""The measures in the order in which they are shown, and what they are called."""

UNLESS_NOTHING: Final = frozenset(("tool_calls", "usd", "retries", "depth", "questions", "tokens"))
"""What is not worth a line where it is nothing in every run and nothing bounds it."""

NAME: Final = 60


def written(measure: str, number: float | None) -> str:
    """Write a number of a measure.

    >>> written("seconds", 93.2), written("usd", 0.01234), written("tokens", 5344.0), written("depth", float("inf"))
    ('1 min 33 s', '$0.0123', '5,344', 'no bound')
    """
    if number is None:
        return ""
    if number == float("inf"):
        return "no bound"
    if measure in {"seconds", "active"}:
        return _time(number)
    if measure == "usd":
        return "$0" if not number else f"${number:,.2f}" if number >= 0.1 else f"${number:.3g}"  # noqa: PLR2004 - digits
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.2f}"  # noqa: PLR2004 - digits


def _time(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - digits
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:  # noqa: PLR2004 - digits
        return f"{hours:,} h"
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"


def shown_measures(found: Rehearsal) -> Iterator[str]:
    """Return the measures that are worth a line."""
    for measure in WORDS:
        bounded = found.budget_of(measure) is not None
        if measure == "active" and all_active(found):
            continue
        if measure in UNLESS_NOTHING and not bounded and not any(found.numbers(measure)):
            continue
        yield measure


def all_active(found: Rehearsal) -> bool:
    """Tell whether no run waited for people alone: then a budget's seconds bound the wall time."""
    return found.numbers("active") == found.numbers("seconds")


def table(found: Rehearsal) -> str:
    """Return a rehearsal as text: a head, a table, the ends of the runs, what was assumed, and what to know of it."""
    lines = [
        f"rehearsal of {shown(found.graph, NAME)}: {found.runs:,} run{'s' * (found.runs != 1)}, seed {found.seed}",
        "",
    ]
    rows: list[tuple[str, ...]] = [("", "min", "p50", "p90", "p99", "max", "mean", "worst case", "budget")]
    rows += [_row(found, measure, found.summary(measure)) for measure in shown_measures(found)]
    lines += _aligned(rows)
    lines += ["", "how they end"]
    ends = [(f"{count / found.runs:.1%}", shown(str(end), 2 * NAME)) for end, count in found.ends.items()]
    width = max(len(share) for share, _ in ends)
    lines += [f"  {share.rjust(width)}  {end}" for share, end in ends]
    if found.assumed:
        lines += ["", "drawn from"]
        lines += [f"  {line}" for line in found.assumed]
    lines += ["", "to know"]
    lines += [f"  {note}" for note in found.notes]
    lines += [f"  A BUG: {excess}; please report it" for excess in found.excesses()]
    return "\n".join(lines)


def _row(found: Rehearsal, measure: str, summary: Summary) -> tuple[str, ...]:
    numbers = (summary.least, summary.p50, summary.p90, summary.p99, summary.most, summary.mean)
    worst, budget = found.worst_of(measure), found.budget_of(measure)
    if measure == "seconds" and all_active(found):
        budget = found.budget_of("active")
    return (WORDS[measure], *(written(measure, number) for number in (*numbers, worst, budget)))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        numbers = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True) if width]
        yield "  ".join(["", first.ljust(widths[0]), *numbers]).rstrip()


def data(found: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal as JSON data; no bound is null."""
    return {
        "graph": found.graph,
        "runs": found.runs,
        "seed": found.seed,
        "measures": {measure: _measure(found, measure) for measure in MEASURES},
        "ends": list(_ends(found)),
        "assumed": list(found.assumed),
        "notes": list(found.notes),
        "excesses": list(found.excesses()),
    }


def _measure(found: Rehearsal, measure: str) -> dict[str, float | None]:
    summary, worst = found.summary(measure), found.worst_of(measure)
    return {
        "min": summary.least, "p50": summary.p50, "p90": summary.p90, "p99": summary.p99, "max": summary.most,
        "mean": summary.mean, "worst_case": None if worst == float("inf") else worst,
        "budget": found.budget_of(measure),
    }  # fmt: skip


def _ends(found: Rehearsal) -> Iterator[dict[str, Any]]:
    texts = {sample.end: sample.text for sample in reversed(found.samples)}
    for end, count in found.ends.items():
        yield {
            "status": end.status, "why": end.why, "runs": count, "share": count / found.runs, "example": texts[end],
        }  # fmt: skip
