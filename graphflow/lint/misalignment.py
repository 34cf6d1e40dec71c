"""Rules about how the members of a team deal with each other: MAST 2.1 to 2.6."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphflow.graphs.building import is_added
from graphflow.graphs.compiled import ChooseOut, Edge
from graphflow.lint.advice import member_before
from graphflow.lint.specification import by_frame
from graphflow.lint.symptom import Limits, Sign
from graphflow.lint.trace import Trace, station_of
from graphflow.lint.visits import Reported, Turn, Visit
from graphflow.lint.words import GUESSES, MISSING, content, cut, directed_at, is_vague, says, sentences
from graphflow.model.ids import path_text
from graphflow.model.thread import normal
from graphflow.nodes.function import FunctionNode

TALKS: Final = 5
"""An answer of fewer words may well be the same twice."""


PAIR: Final = 2
"""What goes on between two is told as to-and-fro."""


def starts_over(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find a later visit of an agent that did and answered just what an earlier one had (2.1)."""
    for visits in by_frame(trace).values():
        before: dict[str, dict[str, Visit]] = {}
        for visit in visits:
            if visit.agent is None or not visit.calls or len(visit.answer.split()) < TALKS:
                continue
            key = f"{[call.key for call in visit.calls]} {normal(visit.answer)}"
            first = before.setdefault(visit.name, {}).setdefault(key, visit)
            if first is not visit:
                yield Sign(
                    visit.where,
                    visit.turns[0].number,
                    visit.turns[0].seq,
                    f"{visit.name!r} made the same {len(visit.calls)} calls as in visit {first.path[-1].visit}, and "
                    "answered the same.",
                    f"Let it see what was said: the whole history of {visit.name!r}, or of the edge that leads "
                    "back to it.",
                )


def guessed(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find reports and answers that miss something in what was asked, where nobody was asked for it (2.2)."""
    for visit in trace.visits.values():
        report = report_of(trace, visit)
        if visit.questions or visit.agent is None or (report is not None and report.status == "needs_input"):
            continue
        text = visit.answer if report is None else report.words
        phrase = says(text, GUESSES)
        if not phrase and report is not None and report.status in {"partial", "failed"} and _own_words(report):
            phrase = says(f"{report.why} {report.finding}", MISSING)
        if phrase and visit.answered >= 0:
            yield Sign(
                visit.where,
                visit.last_turn,
                visit.answered,
                f"{visit.name!r} says {phrase!r}, and asked nobody.",
                f"Say in the instructions of {visit.name!r} to report needs_input with a question where something is "
                "missing, or give it AskUser().",
            )


def _own_words(report: Reported) -> bool:
    return report.code in {"reported", ""}


def thin_brief(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find briefs that do not say what they are about, to callees that see nothing else (2.2)."""
    for visit in trace.visits.values():
        for asked in visit.asked:
            others = [value for name, value in asked.brief.items() if name != "objective" and value]
            callee = station_of(trace.graph, asked.path)
            blind = callee is not None and not isinstance(callee.node, FunctionNode)  # that one sees the context too
            if blind and "objective" in asked.brief and not others and is_vague(asked.objective):
                yield Sign(
                    visit.where,
                    asked.turn,
                    asked.seq,
                    f"{visit.name!r} asked {asked.to!r} for {cut(asked.objective)}, which does not say what it is "
                    f"about; {asked.to!r} sees nothing else.",
                    f"Say in the instructions of {member_before(trace, visit)!r} "
                    "that a brief names the things it is about; brief= of "
                    "the edge can ask for more fields.",
                )


def no_progress(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find handoffs among three or more nodes, one after the other, that brought nothing new (2.3)."""
    for visits in by_frame(trace).values():
        idle: list[Visit] = []
        for visit in visits:
            if visit.edge.kind != "handoff":
                idle = [visit]
            else:
                idle.append(visit)
            names = {one.name for one in idle}
            if len(idle) == limits.idle_hops + 1 and PAIR < len(names) < len(idle):
                yield Sign(
                    visit.where,
                    None,
                    visit.seq,
                    f"control went on {limits.idle_hops} times, over {' '.join(one.name for one in idle)}, and brought "
                    "nothing new.",
                    "Say in the instructions who settles what nobody owns; lower max_handoffs=, and add escalate=.",
                )
            if any(True for _ in visit.brought()) or (visit.answer and not visit.to):
                idle = []


def evidence_withheld(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find reports without evidence beside some with it, by callees whose tools had brought something (2.4)."""
    for visit in trace.visits.values():
        done = [one for one in visit.asked if one.report is not None and one.report.status == "done"]
        gave = [one for one in done if one.report is not None and one.report.evidence]
        for asked in done:
            callee = trace.visits.get(asked.path)
            looked = callee is not None and any(True for _ in callee.brought())
            if gave and looked and asked.report is not None and not asked.report.evidence:
                yield Sign(
                    path_text(asked.path),
                    None,
                    asked.closed,
                    f"{asked.to!r} reported {cut(asked.report.finding)} with no evidence; its tools had brought some, "
                    f"and {gave[0].to!r} gave its own.",
                    f"Say in the instructions of {asked.to!r} to name in evidence what each finding stands on.",
                )


def question_ignored(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find callees that asked for something, and a caller that neither answered nor passed the question on (2.5)."""
    for visit in trace.visits.values():
        if visit.answered < 0 or not visit.answer or visit.questions or visit.to:
            continue
        for asked in visit.asked:
            report = asked.report
            if report is None or report.status != "needs_input":
                continue
            again = any(one.to == asked.to and one.seq > asked.closed for one in visit.asked)
            own = visit.report
            passed_on = "?" in visit.answer or (own is not None and own.status == "needs_input")
            if not again and not passed_on:
                yield Sign(
                    visit.where,
                    visit.last_turn,
                    visit.answered,
                    f"{asked.to!r} needed an answer to {cut(report.why or report.finding)}, and {visit.name!r} "
                    "answered without one.",
                    f"Say in the instructions of {member_before(trace, visit)!r} "
                    "to ask again with what was missing, or to pass the "
                    "question on; AskUser() asks a person.",
                )


def says_one_does_another(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find turns whose reason names one tool or colleague, and whose calls go to others (2.6)."""
    for visit in trace.visits.values():
        for turn in visit.turns:
            said, done = _meant(visit, turn), {call.target or call.name for call in turn.calls}
            if said and done and not said & done:
                yield Sign(
                    visit.where,
                    turn.number,
                    turn.seq,
                    f"{visit.name!r} says {cut(turn.reason)} and calls {', '.join(sorted(done))}, not "
                    f"{', '.join(sorted(said))}.",
                    "Give tools and colleagues descriptions that tell them apart; a reason before the choice "
                    "helps small models: decision='json'.",
                )


def _meant(visit: Visit, turn: Turn) -> set[str]:
    """Return the tools and nodes that the reason of a turn wants called."""
    if not turn.calls or not turn.reason or visit.station is None or visit.agent is None:
        return set()
    names = {tool.name: tool.name for tool in visit.agent.tools}
    names |= {name: name for name in (*visit.station.delegates, *visit.station.handoffs)}
    names |= {f"ask_{name}": name for name in visit.station.delegates}
    names |= {f"transfer_to_{name}": name for name in visit.station.handoffs}
    return {names[name] for sentence in sentences(turn.reason) for name in directed_at(sentence, names)}


def action_not_taken(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find reports that say which of the next nodes should act, where control went to another (2.6)."""
    for visit in trace.visits.values():
        out = None if visit.station is None else visit.station.out
        report = report_of(trace, visit)
        if not isinstance(out, ChooseOut) or report is None or not report.action or is_added(visit.node):
            continue  # where a team goes is not up to what its members want done
        edges = (*out.cases, *((out.default,) if out.default is not None else ()))
        wanted = _wanted(report.action, edges)
        taken = next(((seq, edge) for seq, edge in visit.left if edge.kind == "choose"), None)
        if len(wanted) == 1 and taken is not None and taken[1].target not in wanted:
            yield Sign(
                visit.where,
                None,
                taken[0],
                f"{visit.name!r} reports the action {cut(report.action)}, and control went over {taken[1]}.",
                f"Let a condition of {visit.name!r}.choose(...) read action_needed, or make the output a Literal and "
                "use on(...).",
            )


def _wanted(action: str, edges: tuple[Edge, ...]) -> set[str]:
    names = [edge.target for edge in edges if isinstance(edge.target, str)]
    exact = {name for name in names if normal(name) == normal(action)}
    return exact or {name for one in sentences(action) for name in directed_at(one, names)}


def report_of(trace: Trace, visit: Visit) -> Reported | None:
    """Return the report that a visit gave: to its caller, or as its answer."""
    if visit.report is not None:
        return visit.report
    caller = trace.visits.get(visit.path[:-1])
    asked = next((one for one in caller.asked if one.path == visit.path), None) if caller is not None else None
    return None if asked is None or not content(visit.answer) else asked.report
