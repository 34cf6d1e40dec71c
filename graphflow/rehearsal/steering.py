"""Where nearly all runs of a rehearsal end at one bound, because what is drawn never leads out of a loop."""

from __future__ import annotations

from typing import Any, Final

from graphflow.graphs.graph import Graph
from graphflow.graphs.look import as_graph, look_at, names_of, reach
from graphflow.nodes.agent import Agent
from graphflow.rehearsal.results import End

NEARLY_ALL: Final = 0.9

OF_LOOPS: Final = frozenset(("max_hops", "max_visits"))
"""Bounds that are hit where what somebody says never leads out of a loop."""


def who_steers(graph: Graph[Any], end: End, stand_ins: frozenset[str]) -> tuple[str, ...] | None:
    """Return the agents whose words led to an end, nearest to it, if stand-ins that know the work would end otherwise.

    Args:
        graph: what was rehearsed.
        end: how runs end.
        stand_ins: the names that have one already.

    Returns:
        Their names, none where nobody is known; None where the end has nothing to do with what was drawn.
    """
    what, _, where = end.why.partition(" at ")
    if end.status != "exhausted" or what not in OF_LOOPS:
        return None
    here: Graph[Any] | None = graph
    *around, last = where.split("/")
    for name in around:
        here = as_graph(here.nodes.get(name)) or here if here is not None else None
    if here is None or last not in here.nodes:
        return ()
    stations, before = here.compiled.stations, look_at(here).before

    def steps(name: Any) -> list[Any]:
        agent = isinstance(stations[name].node, Agent) and name != last
        return [] if agent else [edge.source for edge in before.get(name, ()) if isinstance(edge.source, str)]

    found = names_of(reach([last], steps))
    agents = {name for name in found if isinstance(stations[name].node, Agent)}
    return tuple(sorted(agents - stand_ins))
