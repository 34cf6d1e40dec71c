"""The nodes of a citation pass: ids are put behind the claims of a text, and nothing else of it is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from graphflow.graphs.citations import Citations, check_citations, cited, same_text
from graphflow.graphs.conversation import Task, TeamReport
from graphflow.model.contract import Reason, Report
from graphflow.model.outcome import NOTHING, Done, Update
from graphflow.model.state import State
from graphflow.model.thread import words_of

_TOLD: Final = (
    "Write the text again, word for word, and put behind each claim the id of what supports it, in brackets. Change "
    "nothing else, and give the text alone."
)


class Cited(Task):
    """A text whose claims are to be cited.

    Attributes:
        text: what was written.
        evidence: the ids that stand in some report.
        problems: what is wrong with the citations.
    """

    text: str = ""
    evidence: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class CitedReport(Report):
    """A text with its citations.

    Attributes:
        coverage: which share of the claims is cited, from 0 to 1.
        claims: how many claims there are.
        uncited: those that nothing known stands behind.
        dangling: ids that stand in the text and in no report.
    """

    coverage: float = 1
    claims: int = 0
    uncited: tuple[str, ...] = ()
    dangling: tuple[str, ...] = ()


def evidence_of(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the ids of evidence in some values: those of reports, and of the reports that they are made from.

    >>> evidence_of([Report(finding="Paid twice.", evidence=("INV-311",)), "a text"])
    ('INV-311',)
    """
    return tuple(dict.fromkeys(_ids(values)))


def _ids(values: Iterable[Any]) -> Iterator[str]:
    todo = list(values)
    while todo:
        value = todo.pop(0)
        if isinstance(value, Report):
            yield from value.evidence
        if isinstance(value, TeamReport):
            todo += [one.report for one in value.said]


@dataclass(frozen=True)
class Takes:
    """Note a text and what is known, and say what is to be done.

    Attributes:
        known: further ids.
        asks: whether somebody is asked to put the ids in.
    """

    known: tuple[str, ...]
    asks: bool

    async def __call__(self, state: State[Cited]) -> Done:
        """Give the text on, with the ids and what to do where somebody is asked."""
        text = "\n\n".join(part for value in state.values if (part := words_of(value)).strip())
        evidence = tuple(dict.fromkeys((*evidence_of(state.values), *self.known)))
        told = asked_to_cite(text, evidence) if self.asks else text
        return Done(told or NOTHING, update=Update(text=text, evidence=evidence))


def asked_to_cite(text: str, evidence: Iterable[str], problems: Iterable[str] = ()) -> str:
    """Return what somebody who cites is asked."""
    wrong = "\n".join(f"- {one}" for one in problems)
    ids = ", ".join(f"[{one}]" for one in evidence)
    parts = (
        f"This was wrong with your answer:\n{wrong}" if wrong else "",
        _TOLD,
        f"The ids are: {ids or 'none'}.",
        f"The text:\n{text}",
    )
    return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Checks:
    """Check the citations of a text.

    Attributes:
        least: which share of the claims must be cited.
    """

    least: float

    async def __call__(self, state: State[Cited]) -> Done:
        """Give the report, with what is wrong where something is; a text that was changed is not taken."""
        context = state.context
        given = "\n\n".join(part for value in state.values if (part := words_of(value)).strip())
        kept = same_text(context.text, given, context.evidence)
        text = given if kept else context.text
        found = check_citations(text, context.evidence)
        problems = tuple(self._problems(found, kept=kept))
        ids = [one for one in cited(text, context.evidence) if one not in found.dangling]
        return Done(_report(text, found, tuple(ids), problems), update=Update(problems=problems))

    def _problems(self, found: Citations, *, kept: bool) -> Iterator[str]:
        if not kept:
            yield "the text was changed: without what stands in brackets it must be equal to the one that was given"
        if found.dangling:
            yield f"these ids stand in no report: {', '.join(found.dangling)}"
        if found.coverage < self.least:
            yield (
                f"{found.coverage:.0%} of the claims are cited, and {self.least:.0%} must be; without a known id are: "
                f"{' | '.join(found.uncited)}"
            )


def _report(text: str, found: Citations, ids: tuple[str, ...], problems: tuple[str, ...]) -> CitedReport:
    parts: dict[str, Any] = {
        "finding": text,
        "evidence": ids,
        "coverage": found.coverage,
        "claims": len(found.claims),
        "uncited": found.uncited,
        "dangling": found.dangling,
    }
    if text.strip() and not problems:
        return CitedReport(**parts)
    why = "; ".join(problems) or "there is no text."
    return CitedReport(**parts, status="partial", reason=Reason(code="reported", text=why))


def is_wrong(state: State[Cited]) -> bool:
    """Tell whether something is wrong with the citations."""
    return bool(state.context.problems)


async def cite_again(state: State[Cited]) -> str:
    """Say what was wrong."""
    return asked_to_cite(state.context.text, state.context.evidence, state.context.problems)
