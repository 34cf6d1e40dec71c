"""The shortest way: one token walks on to a function, and nothing on that way can hold it up.

Most hops of most runs are like this. What `walk`, `visits` and `clockwork` do for any hop in a dozen steps is done here
in one, with the same decisions and commands in the same order. Whatever could make a difference sends the token the
general way, and nothing has happened then.
"""

from __future__ import annotations

from graphflow.events import EdgeTaken, NodeStarted
from graphflow.graphs.compiled import Edge
from graphflow.model.ids import Segment
from graphflow.runtime.commands import StartBody
from graphflow.runtime.core import Core, group_of
from graphflow.runtime.tables import Inbox, Standing, Token, Visit


class Hops(Core):
    """How a token walks straight on."""

    __slots__ = ()

    def walks_straight_on(self, token: Token, edge: Edge, inbox: Inbox) -> bool:
        """Move a token over an edge and start the body that it leads to; False if it has to go the general way."""
        station = edge.straight
        domain = token.domain
        if station is None or self.queues:
            return False
        if domain is not None and (domain.region.waits or station.name == domain.region.join):
            return False  # where branches meet, tokens may have to wait for each other
        frame, counters = token.frame, token.counters
        hops = counters.hops
        hop = hops.get(edge, 0)
        most, most_of_all = edge.max_hops, frame.tables.graph.max_hops
        if frame.is_node or (most is not None and hop >= most):
            return False
        if most_of_all is not None and counters.total >= most_of_all:
            return False
        counters.total += 1
        hops[edge] = hop = hop + 1
        name, lanes, visits, decisions = station.name, token.lanes, frame.visits, self.decisions
        key = (name, lanes) if lanes else name
        decisions.append(EdgeTaken(frame.path, edge.name, hop))
        visits[key] = number = visits.get(key, 0) + 1
        path = (*frame.path, Segment(name, number, lanes))
        token.at, token.edge, token.inbox = name, edge, inbox
        token.visit = self.visits[path] = visit = Visit(token, station, path, edge, inbox)
        refusing = frame.meter.refusing_run()
        if refusing is not None:
            self.lacks_a_run(visit, refusing)
            return True
        visit.started = visit.slot = True
        visit.standing = Standing.RUNNING
        self.busy += 1
        self.slots += 1
        decisions.append(NodeStarted(path, edge.name))
        visit.state = state = self.state(token, inbox, path)
        self.commands.append(StartBody(path, 0, 0, station.node, state, group_of(token)))  # type: ignore[arg-type]  # a function
        return True
