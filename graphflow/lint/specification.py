"""Rules about what the team was told to do: MAST 1.1 to 1.5."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import Final

from graphflow.lint.advice import at_a_bound, detecting, member_before
from graphflow.lint.symptom import Limits, Sign
from graphflow.lint.trace import Trace
from graphflow.lint.visits import Called, Frame, Turn, Visit
from graphflow.lint.words import content, cut
from graphflow.model.ids import parse_path, path_text
from graphflow.model.thread import normal

UNFIT: Final = frozenset({"contract", "empty_answer", "invalid_value"})
"""Reason codes of answers that were not accepted."""

HOPS: Final = frozenset({"max_hops", "max_visits", "max_handoffs", "max_turns"})
"""Bounds on how often something is done; a budget that is empty says less about the team."""

WATCHED: Final = frozenset({"ping_pong", "repetition", "no_progress"})
"""Bounds of detectors, which rules about repetition tell of."""


def contract_broken(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find visits whose answer did not fit what they owed, after all repairs (1.1)."""
    for visit in trace.visits.values():
        if visit.status == "failed" and visit.reason is not None and visit.reason.code in UNFIT:
            yield Sign(
                visit.where,
                visit.last_turn,
                visit.ended,
                f"{visit.name!r} gave no answer that fits its contract: {cut(visit.reason.text)}.",
                "Say in its instructions what the answer must have, with an example, or ask for less in output=.",
            )


def not_offered(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find calls of what is not in an agent's hands: another's tool, or nobody's (1.2)."""
    for visit in trace.visits.values():
        agent = visit.agent
        unknown = [] if agent is None else [call for call in visit.calls if call.kind == "unknown"]
        for name in dict.fromkeys(call.name for call in unknown):
            call = next(one for one in unknown if one.name == name)
            owners = sorted(owner for owner, tools in _tools(trace).items() if name in tools and owner != visit.name)
            whose = f", which is a tool of {', '.join(map(repr, owners))}" if owners else ", which nobody here has"
            yield Sign(
                visit.where,
                call.turn,
                call.seq,
                f"{visit.name!r} called {name!r}{whose}.",
                f"Give {visit.name!r} the tool, or say in its instructions whom to ask for it."
                if owners
                else "Take the name out of its instructions, or give it such a tool.",
            )


def _tools(trace: Trace) -> dict[str, set[str]]:
    return {
        visit.name: {tool.name for tool in visit.agent.tools} for visit in trace.visits.values() if visit.agent
    }  # fmt: skip


def same_step_again(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find equal calls of a tool in one visit, all with the same result (1.3)."""
    told: set[str] = set()
    for visit in trace.visits.values():
        alike: dict[tuple[str, str, bool], list[Called]] = defaultdict(list)
        for call in visit.calls:
            if call.kind == "tool" and call.result is not None:
                alike[call.key, normal(call.result), call.failed].append(call)
        for calls in alike.values():
            if len(calls) >= limits.repeats:
                last = calls[limits.repeats - 1]
                told.add(visit.where)
                yield Sign(
                    visit.where,
                    last.turn,
                    last.seq,
                    f"{visit.name!r} called {last.name} with the same arguments {len(calls)} times, and it "
                    f"{'failed' if last.failed else 'brought the same'} each time.",
                    "Say in its instructions when enough is known"
                    f"{_as_it_runs(trace, visit, 'repetition', 'tells it so')}",
                )
    for seq, body in trace.detected:
        where = path_text(body.path)
        if body.detector == "repetition" and where not in told:
            told.add(where)
            yield Sign(
                where,
                None,
                seq,
                f"{cut(body.text)}.",
                "Say in the instructions when enough is known, or change what leads back to it.",
            )


def asked_again(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find briefs that were given to a callee again after it was done with them (1.3)."""
    for visit in trace.visits.values():
        done: Counter[str] = Counter()
        turns: dict[str, int] = {}
        for asked in sorted(visit.asked, key=lambda one: (one.turn, one.position)):
            fields = sorted(f"{name}={normal(str(value))}" for name, value in asked.brief.items() if value)
            key = f"{asked.to} {fields}"
            if fields and asked.report is not None and asked.report.status == "done" and turns.get(key) != asked.turn:
                done[key] += 1
                turns[key] = asked.turn
                if done[key] == limits.asked_again:
                    yield Sign(
                        visit.where,
                        asked.turn,
                        asked.seq,
                        f"{visit.name!r} asked {asked.to!r} for {cut(asked.objective)} again, after it was done.",
                        f"Say in the instructions of {member_before(trace, visit)!r} "
                        "to answer from the reports it has, or lower "
                        "max_hops of the edge.",
                    )


def to_and_fro(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find two nodes that hand over to each other, with nothing new between (1.3)."""
    for visits in by_frame(trace).values():
        run: list[Visit] = []
        for visit in visits:
            between = run[-2].name if len(run) > 1 else None
            goes_on = bool(run) and visit.edge.kind == "handoff" and between in (None, visit.name)
            run = [*run, visit] if goes_on else [*run[-1:], visit] if visit.edge.kind == "handoff" else [visit]
            if len(run) == 2 * limits.rounds + 1:
                yield Sign(
                    visit.where,
                    None,
                    visit.seq,
                    f"{run[0].name!r} and {run[1].name!r} handed over to each other {len(run) - 1} times, and nothing "
                    "new came of it.",
                    "Say in both instructions whose case it is; lower max_handoffs=, and add escalate= for what "
                    f"neither can settle{_as_it_runs(trace, visit, 'ping_pong', 'stops it')}",
                )
            if any(True for _ in visit.brought()):
                run = []


def _as_it_runs(trace: Trace, visit: Visit, kind: str, what: str) -> str:
    """Name the detector that would act in the run, unless it watches there already; end the sentence."""
    found = detecting(trace, visit, kind)
    if found is None:
        return f"; Graph(detect={kind}()) {what} as it runs."
    return f'; {kind}(then="stop") ends it as it runs.' if found.then == "warn" else "."


def bare_handoff(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find handoffs by somebody who had found something, that leave it behind and say nothing in their note (1.4)."""
    givers: dict[tuple[Frame, str], Visit] = {}
    for visit in trace.visits.values():
        giver = givers.get((visit.frame, visit.edge.source or ""))
        givers[visit.frame, visit.name] = visit
        dropped = () if visit.boundary is None else visit.boundary.dropped
        if visit.edge.kind != "handoff" or not dropped or giver is None or giver.to != visit.name:
            continue
        if not content(giver.note) and (giver.questions or any(True for _ in giver.brought())):
            lost = sum(high - low + 1 for low, high in dropped)
            yield Sign(
                giver.where,
                giver.last_turn,
                visit.seq,
                f"{giver.name!r} handed over to {visit.name!r} with the note {cut(giver.note)}; {lost} "
                f"message{'s were' if lost != 1 else ' was'} left behind.",
                f"Say in the instructions of {giver.name!r} what a note must hold, or add history=last(n) to the edge.",
            )


def bound_for_an_end(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find visits that ended at a bound instead of with an answer, and a run that did (1.5)."""
    told: set[tuple[str, str]] = set()
    escalating = _escalating(trace)
    for seq, body in trace.refused:
        where = path_text(body.path)
        ends = body.bound == "max_turns" or (body.bound in HOPS and seq in escalating)
        if ends and (where, body.bound) not in told:
            told.add((where, body.bound))
            name = body.path[-1].name if body.path else trace.graph.name
            hint = (
                f"Say in the instructions of {name!r} when it is done and must answer; if the work needs more, raise "
                f"{body.bound}."
            )
            had, hint = at_a_bound(trace, body.path, hint)
            what = f"{body.bound} ({_number(body.limit)}) ended it{had}."
            yield Sign(where, None, seq, f"{name!r} did not come to an end by itself: {what}", hint)
    if trace.ended is None:
        return
    seq, ended = trace.ended
    code = "" if ended.reason is None else ended.reason.code
    if ended.status == "exhausted" and code not in {bound for _, bound in told} | WATCHED:
        limit = None if ended.reason is None else ended.reason.limit
        at = ended.path if ended.reason is None or not ended.reason.path else parse_path(ended.reason.path)
        hint = (
            "Say in the instructions when the work is done, give the loop an exit, or raise the bound: `graphflow "
            "bounds` shows what the graph can need."
        )
        had, hint = at_a_bound(trace, at, hint)
        what = f"{code} ({_number(limit)}) ended it{had}."
        yield Sign(path_text(ended.path), None, seq, f"the run did not come to an end by itself: {what}", hint)


def _escalating(trace: Trace) -> frozenset[int]:
    """Return what was refused right before a graph escalated, by the numbers of the events."""
    starts = sorted((visit.seq, visit.edge.kind == "escalate") for visit in trace.visits.values())
    found: set[int] = set()
    for seq, _ in trace.refused:
        at = bisect(starts, (seq, True))
        if at < len(starts) and starts[at][1]:
            found.add(seq)
    return frozenset(found)


def goes_on_without_news(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find agents whose last calls brought nothing new, after others had brought something (1.5)."""
    repeated = {one.where for one in same_step_again(trace, limits)}
    for visit in trace.visits.values():
        news: set[int] = set()
        seen: set[str] = set()
        for number, _, text in visit.brought():
            if text not in seen:
                news.add(number)
            seen.add(text)
        called = [turn for turn in visit.turns if turn.calls]
        idle = list(takewhile(partial(_is_idle, news), reversed(called)))
        if visit.where not in repeated and len(seen) > 1 and len(idle) >= limits.idle_turns:
            yield Sign(
                visit.where,
                idle[0].number,
                idle[0].seq,
                f"the last {len(idle)} turns in which {visit.name!r} called something brought nothing new, after what "
                "it had found.",
                "Say in its instructions to answer with what is known when a search brings nothing new; lower "
                "max_turns=.",
            )


def _is_idle(news: set[int], turn: Turn) -> bool:
    """Tell whether a turn called tools or colleagues, and nothing that was new came back."""
    back = all(call.kind in {"tool", "ask"} and (call.kind == "ask" or call.result is not None) for call in turn.calls)
    return back and turn.number not in news


def by_frame(trace: Trace) -> dict[Frame, list[Visit]]:
    """Return the visits by the thread that they share."""
    found: dict[Frame, list[Visit]] = defaultdict(list)
    for visit in trace.visits.values():
        found[visit.frame].append(visit)
    return found


def _number(limit: float | None) -> str:
    return "no limit known" if limit is None else f"{limit:g}"
