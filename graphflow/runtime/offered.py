"""What an agent has used up: the calls that a bound would refuse if its model asked for them now.

It is decided from the tables of the fold alone, so a run that is folded again asks the same.
"""

from __future__ import annotations

from graphflow.events import EDITION
from graphflow.graphs.compiled import Edge
from graphflow.nodes.tools import AskUser, Tool
from graphflow.runtime.tables import Talk, Token, Visit


def used_up(visit: Visit, edition: int = EDITION) -> frozenset[str]:
    """Return the names of the tools and delegations that an agent's bounds refuse by now.

    A transfer is never among them: where its bound is hit, the graph escalates. Nor is a question in a run of edition
    0, where nothing bounded it.
    """
    talk = visit.talk
    assert talk is not None  # noqa: S101 - it has been entered
    found: set[str] = set()
    for name, offer in talk.manner.offers.items():
        if offer.kind == "ask" and offer.edge is not None:
            gone = _is_refused(visit.token, offer.edge)
        else:
            gone = offer.tool is not None and (offer.kind == "tool" or edition > 0) and _is_spent(talk, offer.tool)
        if gone:
            found.add(name)
    return frozenset(found)


def _is_refused(token: Token, edge: Edge) -> bool:
    """Tell whether a delegation would be refused, as `calls` refuses it."""
    counters, frame = token.counters, token.frame
    hops = frame.tables.graph.max_hops
    return (
        (edge.max_hops is not None and counters.hops.get(edge, 0) >= edge.max_hops)
        or (hops is not None and counters.total >= hops)
        or (frame.depth_left is not None and frame.depth_left <= 0)
    )


def _is_spent(talk: Talk, tool: Tool | AskUser) -> bool:
    """Tell whether a tool may not be called any more, as `wishes` refuses it."""
    if talk.tools_run >= talk.agent.max_tool_calls:
        return True
    return tool.max_calls is not None and talk.used.get(tool.name, 0) >= tool.max_calls
