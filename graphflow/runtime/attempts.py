"""Attempts: a visit whose attempt failed is retried, takes an error edge, or fails outward."""

from __future__ import annotations

from graphflow.events import NodeRetried
from graphflow.graphs.compiled import Edge
from graphflow.model.contract import Code, Reason, Report
from graphflow.model.state import Message
from graphflow.runtime.core import Core
from graphflow.runtime.ledger import RETRIES
from graphflow.runtime.tables import Standing, Token, Trouble, Visit

ONE_RETRY = (1, 0, 0, 1, 0, 0)
"""What one retry costs, as amounts: a node run and a retry."""


def may_retry(visit: Visit) -> bool:
    """Tell whether a visit has retries left; each fallback of an agent's model has those of the agent anew."""
    spare = 0 if visit.talk is None else visit.talk.moved
    return visit.attempt < visit.station.node.retries + spare


class Attempts(Core):
    """What follows when an attempt of a visit has failed."""

    __slots__ = ()

    def attempt_failed(self, visit: Visit, trouble: Trouble, *, final: bool = False) -> None:
        """Retry a visit if its retries and the budget allow, now or when something in flight settles; else fail.

        Args:
            visit: whose attempt it was.
            trouble: what went wrong.
            final: whether a further attempt could only fail in the same way.
        """
        if final or not may_retry(visit):
            self._give_up(visit, trouble, None)
        elif self._paid(visit):
            self._retry(visit, trouble.reason)
        elif self.wait_for_funds(visit, lambda last: self._retried(visit, trouble, last=last), ONE_RETRY):
            visit.standing = Standing.UNFUNDED
        else:
            self._give_up(visit, trouble, self._refused_retry(visit))

    def _paid(self, visit: Visit) -> bool:
        """Spend a retry and a node run, if nothing refuses them."""
        frame = visit.token.frame
        if frame.meter.refusing(ONE_RETRY) is not None:
            return False
        frame.meter.spend(ONE_RETRY)
        key = (visit.station.name, "retries")
        frame.visits[key] = frame.visits.get(key, 0) + 1
        return True

    def _retried(self, visit: Visit, trouble: Trouble, *, last: bool) -> bool:
        """Try again to pay for a retry that waits; tell whether the wait is over."""
        if visit.standing is not Standing.UNFUNDED or visit.closing is not None:
            return True  # it was cancelled: nothing to wait for
        if self._paid(visit):
            self._retry(visit, trouble.reason)
        elif last:
            self._give_up(visit, trouble, self._refused_retry(visit))
        else:
            return False
        return True

    def _refused_retry(self, visit: Visit) -> Reason:
        refusing = visit.token.frame.meter.refusing(ONE_RETRY)
        assert refusing is not None  # noqa: S101 - it has just refused
        meter, dimension = refusing
        limit = meter.granted[dimension]
        code: Code = "retries" if dimension == RETRIES else "node_runs"
        wish = f"a retry of {visit.station.name!r}"
        return self.refuse(visit.path, code, None if limit is None else float(limit), wish)

    def _retry(self, visit: Visit, reason: Reason) -> None:
        visit.attempt += 1
        visit.fresh = False
        visit.timed_out = False
        visit.used = None
        self.decisions.append(NodeRetried(visit.path, visit.attempt, reason))
        self.begin_attempt(visit)

    def _give_up(self, visit: Visit, trouble: Trouble, refused: Reason | None) -> None:
        """End a visit as failed; its reason says how many attempts there were, and what refused a further one."""
        text, attempts = trouble.reason.text, visit.attempt + 1
        if refused is not None:
            trouble = trouble.saying(f"{text} (after {attempts} attempts; {refused.text})")
        elif attempts > 1 and "attempts)" not in text[-20:]:
            trouble = trouble.saying(f"{text} (after {attempts} attempts)")
        token, station = visit.token, visit.station
        self.end_visit(visit, "timed_out" if trouble.timed_out else "failed", trouble.reason)
        if not self._handled(token, station.errors, station.name, trouble):
            self.fail(token, trouble)

    def _handled(self, token: Token, errors: tuple[Edge, ...], name: str, trouble: Trouble) -> bool:
        """Take the error edge that catches a failure, if there is one."""
        lineage = trouble.failure.lineage
        for edge in errors:
            if any(kind in lineage for kind in edge.catch):
                self.take(token, edge, (Message(name, Report.failed(trouble.reason)),))
                return True
        return False

    def fail_at(self, token: Token, name: str, trouble: Trouble) -> None:
        """Let a failure that a node is to blame for, but no visit of it, take its error edges or go outward."""
        station = token.frame.tables.stations.get(name)
        if token.domain is None:
            token.at = name
        elif name not in token.domain.region.nodes:
            station = None  # the join of the scope around it too: its error edges lie outside of that scope
        if station is None or not self._handled(token, station.errors, name, trouble):
            self.fail(token, trouble)
