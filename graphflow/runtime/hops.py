"""The shortest way: a function ends, and its token walks on to the next one, and nothing on that way can hold it up.

Most hops of most runs are like this. What `visits`, `walk` and `clockwork` do for any hop in two dozen steps is done
here in two, with the same decisions and commands in the same order. Whatever could make a difference sends the token
the general way, and nothing has happened then. A law holds the two ways to each other, table by table.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

from graphflow.events import EdgeTaken, NodeEnded, NodeReturned, NodeStarted
from graphflow.graphs.compiled import Edge, NextOut
from graphflow.model.frozen import class_of
from graphflow.model.ids import new_segment
from graphflow.model.outcome import Update
from graphflow.model.state import Message
from graphflow.runtime.commands import StartBody
from graphflow.runtime.core import Core, group_of
from graphflow.runtime.tables import Inbox, Standing, Token, Visit, Written

_PLAIN: Final = frozenset({Update, NoneType, str, int, float, bool})
"""What a function may give on the short way: nobody can change it, and nothing of it has to be looked through."""


class Hops(Core):
    """How a token walks straight on."""

    __slots__ = ()

    def hops_on(self, fact: NodeReturned) -> bool:
        """End the fresh visit of a function that gives an update, a plain output or nothing, and take its next edge.

        Returns:
            Whether it is done; False if what the body returned has to go the general way.
        """
        path, outcome = fact.path, fact.outcome
        kind = class_of(outcome)
        if kind not in _PLAIN or fact.failure is not None or fact.cancelled:
            return False
        visit = self.visits.get(path)
        if visit is None or not visit.fresh or not visit.slot or visit.closing is not None:
            return False
        out, token = visit.station.onward, visit.token
        if out is None or token.frame.is_node or fact.turn or fact.attempt:
            return False
        inbox: Inbox = () if kind is Update or kind is NoneType else (Message(visit.station.name, outcome),)
        context: Any = token.context
        fields: dict[str, Any] | None = None
        if kind is Update and outcome.fields:
            rules = token.frame.rules
            try:
                fields = rules.validate(outcome.fields)
                context = rules.apply(context, fields)
            except Exception as error:  # noqa: BLE001 - a user's reducer may raise anything
                self.let_go(visit)
                self.update_failed(visit, error, rules, (outcome.fields,))
                return True
        try:
            edge = out.edge if isinstance(out, NextOut) else out.chosen(self.state(token, inbox, path, 0, context))
        except Exception as error:  # noqa: BLE001 - a user's predicate may raise anything
            self.let_go(visit)
            self.attempt_failed(visit, self.route_trouble(error, out, visit.station.name, path))
            return True
        if fields is not None:
            token.context = context
            if token.updates is not None:
                token.updates.append(Written(fields, path))
        if edge is None or not self.walks_straight_on(token, edge, inbox, visit):
            self.let_go(visit)
            self.end_visit(visit, "completed")
            self.follow(token, out, edge, inbox, path)
        return True

    def walks_straight_on(self, token: Token, edge: Edge, inbox: Inbox, ended: Visit | None = None) -> bool:
        """Move a token over an edge and start the body that it leads to.

        Args:
            token: the token.
            edge: the edge.
            inbox: what arrives.
            ended: the fresh visit that ends with this, if one does: its slot, and all that is counted, goes to the next
                visit, and so does the object.

        Returns:
            Whether it is done; False if the token has to go the general way.
        """
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
        decisions, visits, open_visits = self.decisions, frame.visits, self.visits
        if ended is not None:
            decisions.append(NodeEnded(ended.path, "completed"))
            del open_visits[ended.path]
        counters.total += 1
        hops[edge] = hop = hop + 1
        name, lanes = station.name, token.lanes
        key = (name, lanes) if lanes else name
        decisions.append(EdgeTaken(frame.path, edge.name, hop))
        visits[key] = number = visits.get(key, 0) + 1
        path = (*frame.path, new_segment((name, number, lanes, None)))
        token.at, token.edge, token.inbox = name, edge, inbox
        refusing = frame.meter.refusing_run()
        if ended is not None and refusing is None:
            visit = ended
            visit.station, visit.path, visit.edge, visit.inbox = station, path, edge, inbox
        else:
            visit = Visit(token, station, path, edge, inbox)
            if ended is not None:
                self.let_go(ended)
                ended.standing = Standing.ENDED
            token.visit = open_visits[path] = visit
            if refusing is not None:
                self.lacks_a_run(visit, refusing)
                return True
            visit.started = visit.slot = True
            visit.standing = Standing.RUNNING
            self.busy += 1
            self.slots += 1
        open_visits[path] = visit
        decisions.append(NodeStarted(path, edge.name))
        visit.state = state = self.state(token, inbox, path)
        group = 0 if token.scope is None and frame.owner is None else group_of(token)
        self.commands.append(StartBody(path, 0, 0, station.node, state, group))  # type: ignore[arg-type]  # a function
        return True
