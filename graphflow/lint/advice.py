"""Whom advice is for: what a strategy or a team adds to a graph is not the user's to change."""

from __future__ import annotations

from collections.abc import Iterable

from graphflow.graphs.building import is_added
from graphflow.lint.trace import Trace, graph_at
from graphflow.lint.visits import Visit
from graphflow.lint.words import cut
from graphflow.model.ids import Path
from graphflow.nodes.detect import Detector


def member_before(trace: Trace, visit: Visit) -> str:
    """Return who gave an added function what it had: the last node before it that is the user's; else its own name."""
    here = visit
    while is_added(here.node):
        earlier = [
            one for one in trace.visits.values()
            if one.frame.path == here.frame.path and one.name == here.edge.source and one.seq < here.seq
        ]  # fmt: skip
        if not earlier:
            return visit.name
        here = earlier[-1]
    return here.name


def at_a_bound(trace: Trace, path: Path, otherwise: str) -> tuple[str, str]:
    """Return what more to say of a visit that a bound ended, and what to change; of the user's own, `otherwise`."""
    visit = trace.visits.get(path)
    if visit is None or not is_added(visit.node):
        return "", otherwise
    who, words = member_before(trace, visit), f", after {visit.name!r} said {cut(visit.answer)}" if visit.answer else ""
    return words, (
        f"{visit.name!r} is a part of its team: change what {who!r} is told or gives; if that needs more rounds, raise "
        "their number where the team is made."
    )


def detecting(trace: Trace, visit: Visit, kind: str) -> Detector | None:
    """Return the detector of a kind that watches a visit's graph, the one that stops before others."""
    around = graph_at(trace.graph, visit.path[:-1])
    found: Iterable[Detector] = () if around is None else around.detect
    return min((one for one in found if one.kind == kind), key=lambda one: one.then != "stop", default=None)
