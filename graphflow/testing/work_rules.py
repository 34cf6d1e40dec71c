"""What traces must hold where work is done one after the other or side by side: sequential, parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphflow.graphs.compiled import ChooseOut, ForkOut, NextOut
from graphflow.graphs.conversation import Said, TeamReport, said_by, transcript
from graphflow.graphs.graph import Graph
from graphflow.graphs.stages import AfterStage, Says
from graphflow.model.contract import Report
from graphflow.model.thread import words_of
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.join import ALL, Join, Policy
from graphflow.testing.activation import UNTOLD, Activation, Visit, WrongShape

# --- sequential ------------------------------------------------------------------------------------------------------


def _line(graph: Graph[Any]) -> list[str]:
    """Return the nodes of a sequential team in their order, read from its edges.

    Raises:
        WrongShape: if they stand in no line.
    """
    out, found = graph.compiled.start, list[str]()
    while True:
        edge = out.edge if isinstance(out, NextOut) else None
        if isinstance(out, ChooseOut) and found and _between(graph, found[-1]) is not None:
            edge = out.default
        if edge is None or edge.target in found:
            raise WrongShape(f"after {', '.join(map(repr, found)) or 'START'} no line of stages goes on")
        if not isinstance(edge.target, str):
            return found
        found.append(edge.target)
        out = graph.compiled.stations[edge.target].out


def _between(graph: Graph[Any], name: str) -> AfterStage | None:
    """Return what a node between two stages was made with; None for a stage."""
    node = graph.nodes[name]
    return node.fn if isinstance(node, FunctionNode) and isinstance(node.fn, AfterStage) else None


def in_order(seen: Activation) -> Iterator[str]:
    """The stages work one after the other, each once; only a gate stops them before the last."""
    line = _line(seen.graph)
    own = seen.of(*line)
    for visit, wanted in zip(own, line, strict=False):
        if visit.name != wanted:
            yield f"{visit} came where {wanted!r} had to"
            return
    for visit in own[len(line) :]:
        yield f"{visit} came after the last stage, {line[-1]!r}"
    last = seen.last()
    if last is not None and last.name != line[-1] and not last.update.get("over"):
        yield f"{last} ended it before {line[-1]!r}, and no gate had said so"


def gives_on(seen: Activation) -> Iterator[str]:
    """A stage gets what the one before it said, or what all before it said."""
    said: list[Said] = []
    before: Visit | None = None
    for visit in seen.of(*_line(seen.graph)):
        between = _between(seen.graph, visit.name)
        gave = UNTOLD if before is None else seen.gave(before)
        if between is not None and before is not None and visit.update.get("said") is not None:
            noted: Said = visit.update["said"]
            said.append(noted)
            if noted.speaker != before.name or (gave is not UNTOLD and noted != said_by(before.name, gave)):
                yield f"{visit} noted {noted.text!r} of {noted.speaker!r}, and {before} had said {words_of(gave)!r}"
            given = seen.gave(visit)
            if visit.update.get("over") or given is UNTOLD:
                pass
            elif between.see == "all" and not between.last:
                if given != transcript(said):
                    yield f"{visit} gave on {words_of(given)!r}, and not all that was said"
            elif gave is not UNTOLD and given != gave:
                yield f"{visit} gave on {words_of(given)!r}, and {before} had said {words_of(gave)!r}"
        before = visit if between is None else before


def names_the_stop(seen: Activation) -> Iterator[str]:
    """What is stopped is partial, says after which stage, and stops there."""
    line = _line(seen.graph)
    for visit in seen.of(*line):
        between = _between(seen.graph, visit.name)
        if not visit.update.get("over") or between is None:
            continue
        report = seen.gave(visit)
        reason = report.reason.text if isinstance(report, Report) and report.reason is not None else ""
        if between.gate is None:
            yield f"{visit} stopped the line, and has no gate"
        if not isinstance(report, Report) or report.status != "partial" or repr(between.stage) not in reason:
            yield f"{visit} stopped the line, and its report does not say so of {between.stage!r}"
        later = [one for one in seen.of(*line) if one.began > visit.began]
        if later:
            yield f"{later[0]} came after {visit} had stopped the line"


SEQUENTIAL = (in_order, gives_on, names_the_stop)

# --- parallel --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lanes:
    """The parts of a parallel team: its branches in their order, where they meet, what makes the report."""

    branches: tuple[str, ...]
    join: str
    together: str
    policy: Policy

    @classmethod
    def of(cls, graph: Graph[Any]) -> _Lanes:
        """Find the parts.

        Raises:
            WrongShape: if START is no fork whose branches meet.
        """
        start = graph.compiled.start
        if isinstance(start, NextOut) and isinstance(start.edge.target, str):
            out = graph.compiled.stations[start.edge.target].out
            if isinstance(out, NextOut) and isinstance(out.edge.target, str):
                return cls((start.edge.target,), out.edge.target, out.edge.target, ALL)
        if not isinstance(start, ForkOut) or not isinstance(start.region.join, str):
            raise WrongShape("START does not fork into branches that meet")
        branches = tuple(str(edge.name.target) for edge in start.edges)
        together = branches[0]
        while together in branches or _carries(graph.nodes[together]):
            out = graph.compiled.stations[together].out
            if not isinstance(out, NextOut) or not isinstance(out.edge.target, str):
                raise WrongShape(f"{together!r} leads to nobody who reports")
            together = out.edge.target
        join = start.region.join if start.region.join not in branches else together
        return cls(branches, join, together, start.policy)


def _carries(node: Node[Any]) -> bool:
    """Tell whether a node only carries on what a branch said."""
    return isinstance(node, Join) or (isinstance(node, FunctionNode) and isinstance(node.fn, Says))


def begins_at_once(seen: Activation) -> Iterator[str]:
    """Every branch begins once, in the order of the definition, before the branches meet."""
    lanes = _Lanes.of(seen.graph)
    began = seen.of(*lanes.branches)
    skipped = {event.path[-1].name for event in seen.events if event.kind == "node_skipped" and event.path}
    wanted = [name for name in lanes.branches if name not in skipped]
    if seen.finished and [visit.name for visit in began] != wanted:
        yield f"{', '.join(visit.name for visit in began) or 'nobody'} began, and {', '.join(wanted)} had to"
    met = seen.of(lanes.join)
    for visit in began:
        if met and visit.began > met[0].began:
            yield f"{visit} began after the branches had met at {met[0]}"


def _joint(seen: Activation) -> tuple[Visit, TeamReport] | None:
    for visit in seen.of(_Lanes.of(seen.graph).together):
        report = seen.gave(visit)
        if isinstance(report, TeamReport):
            return visit, report
    return None


def reports_in_order(seen: Activation) -> Iterator[str]:
    """The joint report holds what each branch said, in the order of the definition."""
    lanes, found = _Lanes.of(seen.graph), _joint(seen)
    if found is None:
        if seen.finished:
            yield f"it ended without a report of {lanes.together!r}"
        return
    visit, report = found
    speakers = [one.speaker for one in report.said]
    if speakers != [name for name in lanes.branches if name in speakers]:
        yield f"{visit} reports {', '.join(speakers)}, and the order is {', '.join(lanes.branches)}"
    began = [one.name for one in seen.of(*lanes.branches)]
    missing = [name for name in began if name not in speakers]
    if lanes.policy.kind != "first" and missing:
        yield f"{visit} does not report what {missing[0]!r} said"
    if lanes.policy.kind == "first" and len(speakers) < lanes.policy.count:
        yield f"{visit} reports {len(speakers)} branches, and {lanes.policy.count} had to arrive"
    for one in report.said:
        spoke = seen.of(one.speaker)[-1:]
        gave = seen.gave(spoke[0]) if spoke and spoke[0].status == "completed" else UNTOLD
        if gave is not UNTOLD and said_by(one.speaker, gave) != one:
            yield f"{visit} reports {one.text!r} of {spoke[0]}, who had said {words_of(gave)!r}"


def names_the_failed(seen: Activation) -> Iterator[str]:
    """Who has failed stands in the joint report as failed, and the report does not say that it is done."""
    lanes, found = _Lanes.of(seen.graph), _joint(seen)
    failed = [one for one in seen.of(*lanes.branches) if one.status in ("failed", "timed_out")]
    if found is None:
        return
    visit, report = found
    for one in (one for one in failed if one.over is not None and one.over < visit.began):
        told = [said.report.status for said in report.said if said.speaker == one.name]
        reason = report.reason.text if report.reason is not None else ""
        if told != ["failed"] or report.status == "done" or repr(one.name) not in reason:
            yield f"{visit} does not say that {one} has failed"
    if failed and lanes.policy.kind != "first" and not seen.at and seen.status == "completed":
        yield f"the run is completed, and {failed[0]} has failed"


PARALLEL = (begins_at_once, reports_in_order, names_the_failed)
