"""Rules about what crosses a boundary: equal briefs, reports nobody used, claims nobody can trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final, NamedTuple

from graphflow.graphs.building import is_added
from graphflow.graphs.citations import Citations, check_citations
from graphflow.graphs.compiled import NextOut, Station
from graphflow.lint.advice import member_before
from graphflow.lint.symptom import Limits, Sign
from graphflow.lint.trace import Trace
from graphflow.lint.visits import Asked, Visit
from graphflow.lint.words import SMALL, content, cut, mentions, named_words, tokens
from graphflow.model.thread import normal
from graphflow.nodes.agent import Agent

MOST_ALIKE: Final = 200
"""More briefs of one turn that could be equal are not compared each with each."""


def overlapping_briefs(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find calls of one turn that ask the same of the same, or of two agents that are alike but for their names."""
    for visit in trace.visits.values():
        groups: dict[tuple[int, str], list[tuple[Asked, Words]]] = defaultdict(list)
        for asked in sorted(visit.asked, key=lambda found: (found.turn, found.position)):
            rest = {name: value for name, value in asked.brief.items() if name != "objective"}
            groups[asked.turn, repr(rest)].append((asked, _words(asked.objective)))
        for group in groups.values():
            for (one, mine), (other, yours) in combinations(group[:MOST_ALIKE], 2):
                if _overlap(mine, yours) >= limits.overlap and _alike(visit, one.to, other.to):
                    yield Sign(
                        visit.where,
                        one.turn,
                        other.seq,
                        f"{visit.name!r} asked {one.to!r} for {cut(one.objective)} and at once {other.to!r} for "
                        f"{cut(other.objective)}.",
                        f"Say in the instructions of {member_before(trace, visit)!r} "
                        "that each brief has a part of its own, and what it "
                        "leaves to the others.",
                    )


class Words(NamedTuple):
    """The words of a brief: those that say something, and single letters, which may be names, "a" too."""

    said: frozenset[str]
    letters: frozenset[str]


def _words(objective: str) -> Words:
    letters = frozenset(word for word in tokens(objective) if len(word) == 1)
    return Words(content(objective) | letters - SMALL, letters)


def _overlap(mine: Words, yours: Words) -> float:
    """Return the share of the words that two briefs have in common; 0 if each has one of its own: that is a task."""
    if mine.letters - yours.letters and yours.letters - mine.letters:
        return 0.0
    one, other = mine.said, yours.said
    if not one or not other or not (one <= other or other <= one):
        return 0.0
    return len(one & other) / len(one | other)


def _alike(visit: Visit, one: str, other: str) -> bool:
    if one == other:
        return True
    found = [_agent(visit.station, name) for name in (one, other)]
    first, second = found
    if first is None or second is None:
        return False
    return bool(first.tools) and (first.tools, first.instructions) == (second.tools, second.instructions)


def _agent(station: Station | None, name: str) -> Agent | None:
    edge = None if station is None else station.delegates.get(name)
    target = None if edge is None or edge.contract is None else next(t for t in edge.contract.targets if t.name == name)
    return target if isinstance(target, Agent) else None


def unused_report(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find reports that were done, and of which nothing stands in their caller's answer (2.5)."""
    for visit in trace.visits.values():
        if not visit.answer or visit.answered < 0 or _kept_elsewhere(visit) or is_added(visit.node):
            continue  # what a team adds puts every report together
        answer, words = normal(visit.told), content(visit.told)
        for asked in visit.asked:
            report = asked.report
            if report is None or report.status != "done" or asked.turn < 0:
                continue
            own = content(f"{report.finding} {report.action}") - content(asked.objective) - content(trace.said)
            ids = [one for one in report.evidence if normal(one) in answer]
            again = any(one.to == asked.to and one.seq > asked.closed for one in visit.asked)
            passed_on = any(mentions(content(str(one.brief)), own) for one in visit.asked if one.seq > asked.closed)
            named = mentions(words, named_words(asked.to))
            if len(own) < limits.finding_words or ids or again or passed_on or named or mentions(words, own):
                continue
            yield Sign(
                visit.where,
                visit.last_turn,
                visit.answered,
                f"{asked.to!r} found {cut(report.finding)}, and nothing of it stands in the answer of {visit.name!r}.",
                f"Say in the instructions of {visit.name!r} to answer from every report, or to say why one is left "
                f"out; if {asked.to!r} is not needed, do not ask it.",
            )


def _kept_elsewhere(visit: Visit) -> bool:
    """Tell whether the reports are kept in the context for nodes that come later."""
    station = visit.station
    if station is None:
        return True
    kept = any(edge.contract is not None and edge.contract.into is not None for edge in station.delegates.values())
    return kept and isinstance(station.out, NextOut) and isinstance(station.out.edge.target, str)


# --- citations -------------------------------------------------------------------------------------------------------


def uncited_claims(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find an answer that cites, and leaves too many of its claims uncited (3.2)."""
    found = _last_answer(trace)
    if found is None:
        return
    visit, seen = found
    if seen.uncited and seen.coverage < limits.coverage:
        yield Sign(
            visit.where,
            visit.last_turn,
            visit.answered,
            f"{len(seen.uncited)} of {len(seen.claims)} claims of {visit.name!r} are not cited; the first is "
            f"{cut(seen.uncited[0])}.",
            "Say in its instructions that each claim has an id behind it, or add a node that cites as the last pass.",
        )


def dangling_citations(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find an answer that cites what no report has as evidence (3.3)."""
    found = _last_answer(trace)
    if found is None:
        return
    visit, seen = found
    if seen.dangling:
        yield Sign(
            visit.where,
            visit.last_turn,
            visit.answered,
            f"{visit.name!r} cites {', '.join(map(cut, seen.dangling[:3]))}, which no report has as evidence.",
            "Check the ids in a function before END, and send the answer back where one is not known.",
        )


def _last_answer(trace: Trace) -> tuple[Visit, Citations] | None:
    """Return the answer of the run, if it cites at least one id that a report has as evidence."""
    evidence = [
        one for visit in trace.visits.values() for asked in visit.asked if asked.report is not None
        for one in asked.report.evidence
    ]  # fmt: skip
    evidence += [one for visit in trace.visits.values() if visit.report is not None for one in visit.report.evidence]
    outer = [visit for visit in trace.visits.values() if len(visit.path) == 1 and visit.answer]
    if not evidence or not outer:
        return None
    visit = max(outer, key=lambda one: one.answered)
    text = visit.report.finding if visit.report is not None else visit.answer
    if text.lstrip().startswith(("{", "[{")):  # data, whose lists are no citations
        return None
    seen = check_citations(text, evidence)
    known = len(seen.uncited) < len(seen.claims)
    return (visit, seen) if known or _like(seen.dangling, evidence) else None


def _like(dangling: Iterable[str], evidence: Iterable[str]) -> bool:
    """Tell whether ids that nobody knows have a word of known ones: a list of numbers in a text cites nothing."""
    words = {word for one in evidence for word in named_words(one)}
    return any(words & named_words(one) for one in dangling)
