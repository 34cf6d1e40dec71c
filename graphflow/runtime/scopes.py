"""Scopes: the branches of a fork and the lanes of a map, from where they part to where they meet.

A scope closes at its fork's join. How many must arrive is the join's policy; what comes late is absorbed. Scopes that
close at one node close inside-out, and the node runs once.
"""

from __future__ import annotations

from typing import Any

from graphflow.errors import JoinUnmet
from graphflow.events import CHECKED, NodeSkipped, ScopeClosed, ScopeOpened
from graphflow.graphs.compiled import Edge, ForkOut, Key, MapOut
from graphflow.model.contract import Code, Reason, Report
from graphflow.model.frozen import class_of
from graphflow.model.ids import Path, Segment
from graphflow.model.state import Message
from graphflow.runtime.commands import CloseGroup, OpenGroup
from graphflow.runtime.core import group_of, impossible
from graphflow.runtime.items import items_digest
from graphflow.runtime.tables import Closing, Counters, Domain, Frame, Inbox, Scope, Token
from graphflow.runtime.walk import Walk


class Scopes(Walk):
    """How branches part and meet."""

    __slots__ = ()

    def fork(self, token: Token, out: ForkOut, taken: tuple[Edge, ...], inbox: Inbox, path: Path) -> None:
        """Open a scope with a branch for each edge that was taken; the others are skipped."""
        chosen = set(taken)  # a fork may have ten thousand branches
        for edge in out.edges:
            if edge not in chosen:
                reason = Reason(code="not_taken", text=f"the condition {edge.label!r} did not hold")
                self.decisions.append(NodeSkipped((*token.frame.path, Segment(str(edge.name.target))), reason))
        scope = self._open_scope(token, out, len(taken), path, None)
        domain = Domain(out.region)
        base, counters, lanes = token.context, token.counters, token.lanes
        branches = [
            Token(token.frame, scope, domain, counters, lanes, index, token.at, base, [])
            for index, edge in enumerate(out.edges)
            if edge in chosen
        ]
        scope.live = {branch.branch: branch for branch in branches}
        if domain.region.waits:
            self._stand_before(domain, branches, out.edges)
        for branch in branches:
            if scope.live.get(branch.branch) is not branch or scope.closing is not None:
                continue  # an earlier branch failed at once and took this one with it
            self.take(branch, out.edges[branch.branch], inbox)
        if not branches:
            self.settle_scope(scope)

    @staticmethod
    def _stand_before(domain: Domain, branches: list[Token], edges: tuple[Edge, ...]) -> None:
        """Count the branches that have not begun: each can reach its head and all behind it."""
        merges = dict(domain.region.merges)
        domain.region = type(domain.region)(domain.region.join, domain.region.nodes, merges, domain.region.waits)
        for branch in branches:
            head = str(edges[branch.branch].target)
            reached = set(merges.get(head, ())) | ({head} & domain.region.waits)
            branch.at = f"\0{branch.branch}"
            merges[branch.at] = tuple(sorted(reached))
            for place in merges[branch.at]:
                domain.reach[place] = domain.reach.get(place, 0) + 1

    def map_items(self, token: Token, out: MapOut, items: tuple[Any, ...], path: Path) -> None:
        """Open a scope with a lane for each item."""
        name = path[-1].name if path else "START"
        if out.max_items is not None and len(items) > out.max_items:
            self._refused(token, "max_items", out.max_items, f"a map of {name!r} over more than {out.max_items} items")
            return
        told = items_digest(items, class_of(token.context)) if self.stored and self.edition >= CHECKED else None
        scope = self._open_scope(token, out, len(items), path, told)
        frame, at, base, lanes = token.frame, token.at, token.context, token.lanes
        live: dict[int, Token] = {}
        scope.live = live
        edge = out.edge
        domain = Domain(out.region)  # lanes share one where none of their nodes waits for others
        for index in range(len(items)):
            if out.region.waits:
                domain = Domain(out.region)
            live[index] = Token(frame, scope, domain, Counters(), (*lanes, index), index, at, base, [])
        for index, item in enumerate(items):
            if scope.closing is not None:
                break
            branch = live.get(index)
            if branch is not None:
                self.take(branch, edge, (Message(name, item),))
        if not items:
            self.settle_scope(scope)

    def _open_scope(self, token: Token, out: ForkOut | MapOut, branches: int, path: Path, items: str | None) -> Scope:
        declared = len(out.edges) if isinstance(out, ForkOut) else branches
        number = self.next_scope
        self.next_scope += 1
        around = group_of(token)
        scope = Scope(number, path, token, out, token.context, declared, outer=token.scope, around=around)
        token.inner = scope
        self.scopes[number] = scope
        join = out.region.join
        self.decisions.append(ScopeOpened(path, join if isinstance(join, str) else None, branches, items))
        self.commands.append(OpenGroup(number, around))
        within = out.policy.within
        if within is not None:
            scope.timer = self.set_timer(self.at + within, path, "quorum", lambda: self._too_late(scope))
            self.busy += 1
        return scope

    def _too_late(self, scope: Scope) -> None:
        scope.timer = None
        self.busy -= 1
        if not scope.fired and scope.closing is None:
            self._unmet(scope)

    def arrive_at_join(self, token: Token) -> None:
        """Let a token arrive where its scope meets."""
        scope = token.scope
        assert scope is not None  # noqa: S101 - a domain belongs to a scope
        self.drop(token)
        if not scope.fired:
            scope.arrived[token.branch] = token
        self.settle_scope(scope)

    def drop(self, token: Token) -> None:
        """Take a token out of its scope's counts; others may be free to go on."""
        scope, domain = token.scope, token.domain
        if scope is None or domain is None or scope.live.get(token.branch) is not token:
            return
        del scope.live[token.branch]
        if domain.region.waits and scope.closing is None:
            self._release(domain, self._unreach(domain, token.at))

    def die(self, token: Token, last: tuple[str, ...]) -> None:
        """End a token that has nowhere to go, after some last nodes; it blocks nothing."""
        scope = token.scope
        if scope is None:
            if token.frame.is_node:
                self.finish_node_frame(token, None)
            else:
                self.no_route(token.frame, last)
            return
        scope.last[token.branch] = last
        self.drop(token)
        self.settle_scope(scope)

    def settle_scope(self, scope: Scope) -> None:
        """Look whether a scope's join can run, or never will."""
        if scope.closing is not None:
            return
        live, arrived, policy = len(scope.live), len(scope.arrived), scope.out.policy
        if scope.fired:
            if not live:
                self._close_late(scope)
        elif policy.kind == "first":
            if arrived >= policy.count:
                self._fire(scope)
            elif arrived + live < policy.count:
                self._unmet(scope)
        elif live:
            return
        elif policy.kind == "strict" and arrived < scope.declared:
            text = f"it waits for every declared branch, and {arrived} of {scope.declared} arrived"
            self._skip_join(scope, "join_strict", text)
        elif arrived or scope.failed or (not scope.declared and isinstance(scope.out, MapOut)):
            self._fire(scope)
        else:
            self._skip_join(scope, "all_dead", "no branch reached it")

    def _fire(self, scope: Scope) -> None:
        """Let the join run: merge what arrived and go on with the token that opened the scope."""
        scope.fired = True
        token = scope.token
        token.inner = None
        arrived = [scope.arrived[branch] for branch in sorted(scope.arrived)]
        inbox: list[Message] = []
        for branch in sorted({*scope.arrived, *scope.failed}):
            if branch in scope.arrived:
                inbox.extend(scope.arrived[branch].inbox)
            else:
                name, trouble = scope.failed[branch]
                inbox.append(Message(name, Report.failed(trouble.reason)))
        join = scope.out.region.join
        before = list(token.updates) if token.updates is not None else None
        conflict = self.combine(token, scope.base, [found.updates or [] for found in arrived], join)
        if before is not None and conflict is None:
            token.updates = before + (token.updates or [])
        edge = self._entry(scope, arrived, join)
        self._forget_timer(scope)
        if scope.live and scope.out.losers == "cancel":
            self._cancel_losers(scope)
        if scope.live:
            token.frame.detached.append(scope)
        else:
            self.scope_closed(scope)
        scope.arrived = dict.fromkeys(scope.arrived, token)  # only the count is still needed
        if conflict is not None:
            if isinstance(join, str):
                self.fail_at(token, join, conflict)
            else:
                self.fail(token, conflict)
            return
        self.agenda.append(lambda: self._move_if_alive(token, edge, tuple(inbox)))

    @staticmethod
    def _entry(scope: Scope, arrived: list[Token], join: Key) -> Edge:
        """Return the edge that a join was entered over: that of the first branch that arrived."""
        if arrived and arrived[0].edge is not None:
            return arrived[0].edge
        first = scope.out.edges[0] if isinstance(scope.out, ForkOut) else scope.out.edge
        return Edge(first.name._replace(target=join if isinstance(join, str) else None), first.source, join)

    def _forget_timer(self, scope: Scope) -> None:
        """Stop the time of a quorum that has been met, or that nobody waits for any more."""
        if scope.timer is not None:
            self.busy -= 1
            self.drop_timer(scope.timer)
            scope.timer = None

    def scope_closed(self, scope: Scope) -> None:
        """Say that a scope has closed."""
        self._forget_timer(scope)
        join = scope.out.region.join
        name = join if isinstance(join, str) else None
        self.decisions.append(ScopeClosed(scope.path, name, len(scope.arrived), len(scope.failed)))
        self.scopes.pop(scope.number, None)
        self.commands.append(CloseGroup(scope.number))

    def _close_late(self, scope: Scope) -> None:
        frame = scope.token.frame
        frame.detached.remove(scope)
        self.scope_closed(scope)
        self._maybe_end(frame)

    def _maybe_end(self, frame: Frame) -> None:
        if frame.ending is not None and not frame.detached:
            ending, frame.ending = frame.ending, None
            self.agenda.append(ending)

    def _cancel_losers(self, scope: Scope) -> None:
        def closed() -> None:
            scope.live.clear()
            scope.closing = None
            if scope in scope.token.frame.detached:
                self._close_late(scope)

        scope.closing = closing = Closing(closed)
        self.cancel_scope(scope, closing)
        self.proceed(closing)

    def _skip_join(self, scope: Scope, code: Code, text: str) -> None:
        self.scope_closed(scope)
        token = scope.token
        token.inner = None
        join = scope.out.region.join
        if isinstance(join, str):
            reason = Reason(code=code, text=f"{join!r} was skipped: {text}")
            self.decisions.append(NodeSkipped((*token.frame.path, Segment(join)), reason))
        last = tuple(name for branch in sorted(scope.last) for name in scope.last[branch])
        self.die(token, last or (str(getattr(token.at, "value", token.at)),))

    def _unmet(self, scope: Scope) -> None:
        join = scope.out.region.join
        name = join if isinstance(join, str) else "END"
        error = JoinUnmet(name, str(scope.out.policy), len(scope.arrived))
        trouble = self.trouble("join_unmet", error, (*scope.token.frame.path, Segment(name)))

        def closed() -> None:
            self.scope_closed(scope)
            scope.token.inner = None
            self.fail_at(scope.token, name, trouble)

        scope.closing = closing = Closing(closed)
        self.cancel_scope(scope, closing)
        self.proceed(closing)

    def stalled(self) -> Exception:
        """Return the error of a run in which nothing runs and nothing can."""
        for scope in self.scopes.values():
            join = scope.out.region.join
            missing = [
                f"{token.at!r} of branch {branch}" for branch, token in scope.live.items() if token.visit is None
            ]
            if scope.live and not scope.fired:
                text = f"stalled: the join {join!r} holds {len(scope.arrived)} of {scope.declared} inputs"
                return impossible(f"{text}; missing: {', '.join(missing) or 'nothing'}")
        return impossible("stalled: nothing runs, nothing waits for a person, and END was not reached")
