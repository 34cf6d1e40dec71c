"""Rules about how work is checked before it counts: MAST 3.1 to 3.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from graphflow.graphs.building import is_added
from graphflow.graphs.compiled import ForkOut, Key, MapOut, Station
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import Look, as_graph, look_at, names_of, reach
from graphflow.lint.advice import member_before
from graphflow.lint.misalignment import report_of
from graphflow.lint.symptom import Limits, Sign
from graphflow.lint.trace import Trace, graph_at, works
from graphflow.lint.visits import Asked, Visit
from graphflow.lint.words import LOSSES, VERIFIES, content, cut, mentions, named_words, says, tokens
from graphflow.model.ids import Path, path_text
from graphflow.nodes.agent import Agent
from graphflow.nodes.join import ALL

LEAST_SHARED: Final = 3
"""So many words of a finding must stand in a brief before it speaks of that finding."""


def loss_not_told(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find answers that hide that a part of the work was not done: a callee's, or that of a branch or an item (3.1)."""
    yield from _lost_by_callees(trace)
    yield from _lost_by_branches(trace)


def _lost_by_callees(trace: Trace) -> Iterator[Sign]:
    for visit in trace.visits.values():
        if not visit.answer or visit.answered < 0 or (visit.report is not None and visit.report.status != "done"):
            continue
        for asked in visit.asked:
            report = asked.report
            if report is None or report.status not in {"failed", "partial"}:
                continue
            made_up_for = any(
                one.to == asked.to and one.seq > asked.closed and one.report is not None
                and one.report.status == "done" for one in visit.asked
            )  # fmt: skip
            if not made_up_for and not _tells(visit, asked.to, report.why):
                yield Sign(
                    visit.where,
                    visit.last_turn,
                    visit.answered,
                    f"{asked.to!r} was {report.status} ({cut(report.why)}), and the answer of {visit.name!r} does not "
                    "say so.",
                    f"Say in the instructions of {member_before(trace, visit)!r} "
                    "to name each part that is missing; let it ask once "
                    "more, or retry the callee.",
                )


def _lost_by_branches(trace: Trace) -> Iterator[Sign]:
    """Find an agent, or a function that writes a text, with the last word of a graph behind branches that failed."""
    for path, ended in _ends(trace).items():
        graph = graph_at(trace.graph, path)
        collected = frozenset[str]() if graph is None else _collected(graph)
        if not collected:
            continue
        here = [one for one in trace.visits.values() if one.path[:-1] == path and one.path[-1].call is None]
        last = next((one for one in reversed(here) if any(seq == ended for seq, _ in one.left)), None)
        silent = last is None or not _speaks(last) or not last.answer
        if last is None or silent or (last.report is not None and last.report.status != "done"):
            continue
        done = {(one.name, one.path[-1].lanes) for one in here if one.status == "completed"}
        told: set[tuple[str, str]] = set()
        for lost in here:
            why = "" if lost.reason is None else lost.reason.text
            caught = any(edge.kind == "error" for _, edge in lost.left)
            counts = lost.status == "failed" and lost.name in collected and not caught and lost.ended < last.seq
            if not counts or (lost.name, lost.path[-1].lanes) in done or (lost.name, why) in told:
                continue
            told.add((lost.name, why))
            item = "".join(f" for item {lane + 1}" for lane in lost.path[-1].lanes[-1:])
            if not _tells(last, lost.name, why):
                yield Sign(
                    last.where,
                    last.last_turn,
                    last.answered,
                    f"{lost.name!r} failed{item} ({cut(why)}), and the answer of {last.name!r} does not say so.",
                    f"{_saying(last)} name each part that is missing; retries= tries {lost.name!r} again.",
                )


def _speaks(visit: Visit) -> bool:
    """Tell whether a visit answers in words of its own: a value of another kind says nothing of what is missing."""
    return visit.agent is not None or (visit.words and not is_added(visit.node))


def _saying(visit: Visit) -> str:
    if visit.agent is not None:
        return f"Say in the instructions of {visit.name!r} to"
    return f"What failed is in the inbox of {visit.name!r}: let it"


def _tells(visit: Visit, name: str, why: str) -> bool:
    """Tell whether an answer says that something is missing, or speaks of who failed or of the reason."""
    known = content(why) | named_words(name)
    return bool(says(visit.told, LOSSES) or mentions(content(visit.told), known))


def _collected(graph: Graph[Any]) -> frozenset[str]:
    """Return the nodes of branches that must all be there, and whose failures arrive beside what the others bring."""
    found: set[str] = set()
    for _, out in graph.compiled.outs():
        if isinstance(out, (ForkOut, MapOut)) and out.failure == "collect" and out.policy == ALL:
            found |= out.region.nodes
    return frozenset(found)


# --- nodes that verify -----------------------------------------------------------------------------------------------


def unverified_end(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find a way to END past a node that verifies, or with work that it did not see (3.2)."""
    for path, ended in _ends(trace).items():
        graph = graph_at(trace.graph, path)
        if graph is None:
            continue
        stations = graph.compiled.stations
        look = look_at(graph)
        verifiers = _in_flow(look, trace.names_of_verifiers(limits.verifiers, stations))
        if not verifiers:
            continue
        work = _work(look, verifiers)
        visits = [
            one for one in trace.visits.values()
            if one.path[:-1] == path and one.path[-1].call is None and one.seq < ended and one.status == "completed"
        ]  # fmt: skip
        rank = max((_rank(stations[one.name]) for one in visits if one.name in work), default=0)
        made = [one for one in visits if one.name not in verifiers and works(one.node) and _rank_of(one) >= rank]
        last = made[-1] if made else None
        seen = [one for one in visits if one.name in verifiers]
        if last is None or not _is_work(last, work, stations) or any(one.seq > last.seq for one in seen):
            continue
        names = ", ".join(map(repr, sorted(verifiers)))
        what = f"{names} had seen an earlier version" if seen else f"{names} saw none of it"
        yield Sign(
            last.where,
            None,
            ended,
            f"the last work of {last.name!r} went to END, and {what}.",
            _way_round(look, last.name, verifiers),
        )


def _ends(trace: Trace) -> dict[Path, int]:
    """Return the activations of graphs that came to END, with the number of the event."""
    return {body.path: seq for seq, body in trace.taken if body.edge.target is None}


def _in_flow(look: Look, verifiers: frozenset[str]) -> frozenset[str]:
    """Leave out what only looks at the items of a map: there may be none, and then there is nothing to verify."""
    lanes: set[str] = set()
    for _, out in look.compiled.outs():
        if isinstance(out, MapOut):
            lanes |= out.region.nodes
    return verifiers & look.reached - lanes


def _rank(station: Station) -> int:
    """What a model made counts for more than what a function did."""
    return 1 if isinstance(station.node, Agent) or as_graph(station.node) is not None else 0


def _rank_of(visit: Visit) -> int:
    return 0 if visit.station is None else _rank(visit.station)


def _work(look: Look, verifiers: frozenset[str]) -> frozenset[str]:
    """Return the nodes whose work a verifier gets: those before it, past functions and joins."""
    stations = look.compiled.stations
    before: dict[Key, list[Key]] = {
        key: [edge.source for edge in edges] for key, edges in look.before.items()
    }  # fmt: skip

    def upwards(rank: int) -> frozenset[str]:
        def steps(key: Key) -> list[Key]:
            stop = isinstance(key, str) and key not in verifiers and works(stations[key].node)
            return [] if stop and _rank(stations[str(key)]) >= rank else before.get(key, [])

        found = names_of(reach(verifiers, steps)) - verifiers
        return frozenset(name for name in found if works(stations[name].node) and _rank(stations[name]) >= rank)

    return upwards(1) or upwards(0)


def _is_work(visit: Visit, work: frozenset[str], stations: dict[str, Station]) -> bool:
    fields = {stations[name].node.into for name in work} - {None}
    return visit.name in work or (visit.node is not None and visit.node.into in fields)


def _way_round(look: Look, worker: str, verifiers: frozenset[str]) -> str:
    """Say which edge leads past the verifiers, or that a bound did."""
    stations = look.compiled.stations
    edges = [edge for edge in look.after.get(worker, ()) if edge.target not in verifiers]
    direct = [edge for edge in edges if not isinstance(edge.target, str)]
    verifier = repr(min(verifiers))
    if direct:
        return f"Lead every way from {worker!r} over {verifier}: the edge {direct[0].name} goes round it."
    if any(isinstance(edge.target, str) and is_added(stations[edge.target].node) for edge in edges):
        return (
            f"Let {verifier} have the last word: give the team another number of turns or another order, or let a node "
            f"behind it verify."
        )
    return f"Lead every way from {worker!r} to END over {verifier}, also when a loop has had all its rounds."


def unasked_verifier(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find callers with a verifier in their team that never saw the last version of the work (3.2)."""
    for visit in trace.visits.values():
        station = visit.station
        if station is None or visit.status != "completed" or not visit.answer:
            continue
        verifiers = trace.names_of_verifiers(limits.verifiers, station.delegates)
        done = [one for one in visit.asked if one.to not in verifiers and one.report and one.report.status == "done"]
        if not verifiers or not done:
            continue
        looked = [one for one in visit.asked if one.to in verifiers]
        last = looked[-1].seq if looked else -1
        redone = [one for one in done if one.seq > last and any(o.to == one.to and o.seq < last for o in done)]
        if looked and not redone:
            continue
        names = ", ".join(map(repr, sorted(verifiers)))
        what = (
            f"{redone[-1].to!r} worked again after {names} had looked" if looked
            else f"{names} was never asked, though {done[-1].to!r} was done"
        )  # fmt: skip
        yield Sign(
            visit.where,
            visit.last_turn,
            visit.answered,
            f"{visit.name!r} answered, and {what}.",
            f"Say in the instructions of {member_before(trace, visit)!r} "
            "to have the last version checked, or make the verifier a node "
            "that every way to END passes.",
        )


def cites_nothing_known(trace: Trace, limits: Limits) -> Iterator[Sign]:
    """Find verifiers whose evidence stands in nothing that was found before (3.3)."""
    said = sorted(_said(trace))
    known: set[str] = set()
    at = 0
    for visit in sorted(_verifying(trace, limits), key=lambda one: one.answered):
        report = report_of(trace, visit)
        if report is None or not report.evidence:
            continue
        while at < len(said) and said[at][0] < visit.answered:
            known.update((*tokens(said[at][1]), *_parts(said[at][1])))
            at += 1
        unknown = [one for one in report.evidence if tokens(one) and not known.issuperset(tokens(one))]
        if unknown:
            yield Sign(
                visit.where,
                visit.last_turn,
                visit.answered,
                f"{visit.name!r} verified by {', '.join(map(cut, unknown[:3]))}, which no report, result or brief had "
                "named.",
                f"Check the ids in a function before {visit.name!r}, and say in its instructions to cite what it was "
                "given.",
            )


def _verifying(trace: Trace, limits: Limits) -> Iterator[Visit]:
    named: dict[int, frozenset[str]] = {}
    for visit in trace.visits.values():
        graph = graph_at(trace.graph, visit.path[:-1])
        if graph is None or visit.answered < 0:
            continue
        if id(graph) not in named:
            named[id(graph)] = trace.names_of_verifiers(limits.verifiers, graph.compiled.stations)
        if visit.name in named[id(graph)]:
            yield visit


def _said(trace: Trace) -> Iterator[tuple[int, str]]:
    """Yield everything that was said or found, with the numbers of the events."""
    yield -1, trace.said
    for visit in trace.visits.values():
        yield from ((call.seq, call.result) for call in visit.calls if call.result is not None)
        yield from ((one.seq, f"{one.brief}") for one in visit.asked)
        for one in visit.asked:
            if one.report is not None:
                yield one.closed, f"{one.report.words} {' '.join(one.report.evidence)}"
        if visit.answered >= 0:
            yield visit.answered, visit.answer


def _parts(text: str) -> list[str]:
    """Return the parts of ids and paths too: "notes.md" is known where "notes.md:12" is."""
    return [part for word in tokens(text) for part in word.replace(":", " ").split()]


def verifies_itself(trace: Trace, _: Limits) -> Iterator[Sign]:
    """Find callees that were asked to verify what they had found themselves (3.3)."""
    for visit in trace.visits.values():
        for asked in visit.asked:
            if not VERIFIES.intersection(tokens(asked.objective)):
                continue
            own = next((one for one in visit.asked if one.to == asked.to and 0 <= one.closed < asked.seq), None)
            if own is not None and _is_about(asked, own):
                yield Sign(
                    path_text(asked.path),
                    None,
                    asked.seq,
                    f"{asked.to!r} was asked for {cut(asked.objective)}, which is its own finding.",
                    f"Let another node verify it, with tools of its own, or a function: {asked.to!r} will agree with "
                    "itself.",
                )


def _is_about(asked: Asked, own: Asked) -> bool:
    """Tell whether a brief speaks of what a report had found, and not only of what it was about."""
    if own.report is None or VERIFIES.intersection(tokens(own.objective)):
        return False
    objective = content(asked.objective)
    ids = {one.casefold() for one in own.report.evidence}
    new = content(own.report.finding) - content(own.objective)
    return bool(ids & set(tokens(asked.objective))) or len(mentions(objective, new)) >= LEAST_SHARED
