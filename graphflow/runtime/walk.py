"""The walk: tokens move over edges, forks open scopes, and scopes close at their joins.

One readiness rule: a node at which tokens of a scope wait runs when no other live token of that scope can still reach
it inside the fork's region; it runs once, with all that arrived, in branch order. A token that waits for a scope
inside it stands at that scope's fork, from where everything is reachable that its branches can reach. A counter for
each waiting place makes an arrival cost the same however many branches there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphflow.errors import ConflictError, ContractError, JoinUnmet
from graphflow.events import EdgeTaken, NodeSkipped, ScopeClosed, ScopeOpened, TimerSet
from graphflow.graphs.compiled import ChooseOut, Edge, ForkOut, Key, MapOut, NextOut, Out
from graphflow.model.contract import Code, Reason, Report
from graphflow.model.frozen import mutable_value
from graphflow.model.ids import Path, Segment, path_text
from graphflow.model.state import Message
from graphflow.nodes.edges import Terminal
from graphflow.runtime.commands import CloseGroup, OpenGroup, SetTimer
from graphflow.runtime.core import Core, group_of, impossible, whereabouts
from graphflow.runtime.tables import Closing, Counters, Domain, Frame, Inbox, Scope, Token, Trouble, Written


class Walk(Core):
    """How control moves."""

    # --- leaving a node ---

    def leave(self, token: Token, out: Out | None, name: str | None, inbox: Inbox) -> None:
        """Move a token on over a next statement."""
        if type(out) is NextOut:
            self.take(token, out.edge, inbox)
        elif out is None:
            if name is not None:
                self._leave_nowhere(token, name, inbox)
        else:
            path = whereabouts(token) if name is not None else token.frame.path
            try:
                route = self.route(token, out, inbox, path, token.context)
            except Exception as error:  # noqa: BLE001 - a user's predicate may raise anything
                trouble = self.route_trouble(error, out, name, path)
                if name is None:
                    self.fail(token, trouble)
                else:
                    self.fail_at(token, name, trouble)
                return
            self.follow(token, out, route, inbox, path)

    def _leave_nowhere(self, token: Token, name: str, inbox: Inbox) -> None:
        graph = token.frame.tables.graph
        if graph.escalate is not None and graph.escalate.name == name and token.scope is None:
            self.reach_end(token, inbox)  # an escalate node without a next statement ends its graph
        else:
            self.die(token, (name,))

    def route(self, token: Token, out: Out, inbox: Inbox, path: Path, context: Any) -> Any:
        """Evaluate the conditions of a statement, each once, on what a successor would see.

        Returns:
            For a choose the edge to take or None, for a fork its taken edges, for a map its items.
        """
        state = self.state(token, inbox, path, context=context)
        match out:
            case ChooseOut():
                return next((case for case in out.cases if case.test is None or case.test(state)), out.default)
            case ForkOut():
                return tuple(edge for edge in out.edges if edge.test is None or edge.test(state))
            case MapOut():
                return _frozen_items(tuple(out.over(state)))
            case NextOut():
                return out.edge

    def route_trouble(self, error: Exception, out: Out, name: str | None, path: Path) -> Trouble:
        """Make a failure of a condition that raised, blamed on the node that its edge leaves."""
        source = repr(name) if name is not None else "START"
        error.add_note(f"raised by a condition on an edge that leaves {source}: {_route_text(out)}")
        trouble = self.trouble("failed", error, path)
        text = f"a condition on an edge that leaves {source} raised ({_route_text(out)}): {trouble.reason.text}"
        return trouble._replace(reason=trouble.reason.model_copy(update={"text": text}))

    def follow(self, token: Token, out: Out, route: Any, inbox: Inbox, path: Path) -> None:
        """Move a token on over the edges that were found."""
        match out:
            case ChooseOut() | NextOut():
                if route is None:
                    self.die(token, (path[-1].name if path else "START",))
                else:
                    self.take(token, route, inbox)
            case ForkOut():
                self._fork(token, out, route, inbox, path)
            case MapOut():
                self._map(token, out, route, path)

    # --- taking an edge ---

    def take(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge, if its bounds allow."""
        counters = token.counters
        hop = counters.hops.get(edge, 0)
        if edge.max_hops is not None and hop >= edge.max_hops:
            self._refused(token, "max_hops", edge.max_hops, f"a further hop over {edge.name}")
            return
        graph = token.frame.tables.graph
        if graph.max_hops is not None and counters.total >= graph.max_hops:
            self._refused(token, "max_hops", graph.max_hops, f"a further hop in {graph.name!r}, over {edge.name}")
            return
        if edge.name.kind == "handoff":
            if graph.max_handoffs is not None and counters.handoffs >= graph.max_handoffs:
                trail = " ".join(counters.trail)
                wish = f"a further handoff in {graph.name!r}, over {edge.name}, after {trail}"
                self._refused(token, "max_handoffs", graph.max_handoffs, wish)
                return
            counters.handoffs += 1
            counters.trail.extend((edge.name.source or "",) if not counters.trail else ())
            counters.trail.append(edge.name.target or "")
        counters.total += 1
        counters.hops[edge] = hop + 1
        self.decisions.append(EdgeTaken(token.frame.path, edge.name, hop + 1))
        self.move(token, edge, inbox)

    def _refused(self, token: Token, code: Code, limit: int, wanted: str) -> None:
        self.hit_bound(token, self.refuse(whereabouts(token), code, float(limit), wanted))

    def move(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Let a token arrive where an edge leads."""
        target = edge.target
        token.edge = edge
        token.inbox = inbox
        domain = token.domain
        if domain is None:
            if target is Terminal.END:
                self.reach_end(token, inbox)
            else:
                token.at = target
                self.enter_visit(token, str(target), edge, inbox)
            return
        region = domain.region
        if target == region.join:
            self._arrive_at_join(token)
        elif not region.waits:
            token.at = target
            self.enter_visit(token, str(target), edge, inbox)
        else:
            self._arrive(token, domain, str(target))

    # --- merging inside a region ---

    def _arrive(self, token: Token, domain: Domain, place: str) -> None:
        """Let a token arrive inside a region, where it may have to wait for others."""
        affected = self._unreach(domain, token.at)
        token.at = place
        if place in domain.region.waits:
            domain.waiting.setdefault(place, []).append(token)
            for reached in domain.region.merges.get(place, ()):
                if reached != place:
                    domain.reach[reached] = domain.reach.get(reached, 0) + 1
            self._release(domain, (*affected, place))
        else:
            self._reach(domain, place)
            self._release(domain, affected)
            assert token.edge is not None  # noqa: S101 - it arrived over one
            self.enter_visit(token, place, token.edge, token.inbox)

    @staticmethod
    def _reach(domain: Domain, place: Key) -> None:
        for reached in domain.region.merges.get(str(place), ()):
            domain.reach[reached] = domain.reach.get(reached, 0) + 1

    @staticmethod
    def _unreach(domain: Domain, place: Key) -> tuple[str, ...]:
        affected = domain.region.merges.get(str(place), ())
        for reached in affected:
            domain.reach[reached] -= 1
        return affected

    def _release(self, domain: Domain, places: Iterable[str]) -> None:
        """Let the waiting places run that nothing can reach any more."""
        for place in places:
            tokens = domain.waiting.get(place)
            if tokens and not domain.reach.get(place):
                del domain.waiting[place]
                self._merge(domain, place, tokens)

    def _merge(self, domain: Domain, place: str, tokens: list[Token]) -> None:
        """Go on with one token for all that wait at a place, in branch order."""
        tokens.sort(key=lambda waiting: waiting.branch)
        kept = tokens[0]
        for _ in tokens:
            for reached in domain.region.merges.get(place, ()):
                if reached != place:
                    domain.reach[reached] -= 1
        self._reach(domain, place)
        scope = kept.scope
        assert scope is not None and kept.edge is not None  # noqa: S101, PT018 - only scopes have waiting places
        trouble = None
        if len(tokens) > 1:
            for other in tokens[1:]:
                del scope.live[other.branch]
            kept.inbox = tuple(message for token in tokens for message in token.inbox)
            trouble = self.combine(kept, scope.base, [token.updates or [] for token in tokens], place)
        if trouble is not None:
            kept.context, kept.updates = scope.base, []  # what is in conflict is written by nobody
        self.agenda.append(lambda: self._go_on_from(kept, place, trouble))

    def _go_on_from(self, token: Token, place: str, trouble: Trouble | None) -> None:
        """Enter the place where tokens were merged, unless they were in conflict."""
        if not alive(token) or token.edge is None:
            return
        if trouble is not None:
            self.fail_at(token, place, trouble)
        else:
            self.enter_visit(token, place, token.edge, token.inbox)

    def _move_if_alive(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        if alive(token):
            self.move(token, edge, inbox)

    def combine(self, token: Token, base: Any, parts: Sequence[list[Written]], place: Key) -> Trouble | None:
        """Apply the updates of several branches on their fork's context, in branch order; return a conflict."""
        rules = token.frame.rules
        writers: dict[str, Path] = {}
        context = base
        updates: list[Written] = []
        for part in parts:
            mine: dict[str, Path] = {}
            for fields, writer in part:
                for name in fields:
                    if rules.fields[name].reducer is None:
                        if name in writers:
                            error = ConflictError(name, (path_text(writers[name]), path_text(writer)))
                            path = (*token.frame.path, Segment(str(getattr(place, "value", place))))
                            return self.trouble("conflict", error, path)
                        mine[name] = writer
                try:
                    context = rules.apply(context, fields)
                except Exception as error:  # noqa: BLE001 - a user's reducer may raise anything
                    return self.trouble("failed", error, writer)
                updates.append(Written(fields, writer))
            writers.update(mine)
        token.context = context
        if token.updates is not None:
            token.updates = updates
        return None

    # --- scopes ---

    def _fork(self, token: Token, out: ForkOut, taken: tuple[Edge, ...], inbox: Inbox, path: Path) -> None:
        for edge in out.edges:
            if edge not in taken:
                reason = Reason(code="not_taken", text=f"the condition {edge.label!r} did not hold")
                self.decisions.append(NodeSkipped((*token.frame.path, Segment(str(edge.name.target))), reason))
        scope = self._open_scope(token, out, len(taken), len(out.edges), path)
        domain = Domain(out.region)
        base, counters, lanes = token.context, token.counters, token.lanes
        branches = [
            Token(token.frame, scope, domain, counters, lanes, index, token.at, base, [])
            for index, edge in enumerate(out.edges)
            if edge in taken
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

    def _map(self, token: Token, out: MapOut, items: tuple[Any, ...], path: Path) -> None:
        name = path[-1].name if path else "START"
        if out.max_items is not None and len(items) > out.max_items:
            self._refused(token, "max_items", out.max_items, f"a map of {name!r} over {len(items)} items")
            return
        scope = self._open_scope(token, out, len(items), len(items), path)
        frame, at, base, lanes = token.frame, token.at, token.context, token.lanes
        live: dict[int, Token] = {}
        scope.live = live
        edge = out.edge
        for index in range(len(items)):
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

    def _open_scope(self, token: Token, out: ForkOut | MapOut, branches: int, declared: int, path: Path) -> Scope:
        number = self.next_scope
        self.next_scope += 1
        scope = Scope(number, path, token, out, token.context, declared, outer=token.scope)
        token.inner = scope
        self.scopes[number] = scope
        join = out.region.join
        self.decisions.append(ScopeOpened(path, join if isinstance(join, str) else None, branches))
        self.commands.append(OpenGroup(number, group_of(token)))
        within = out.policy.within
        if within is not None:
            timer = self.set_timer(lambda: self._too_late(scope))
            scope.timer = timer
            self.busy += 1
            self.decisions.append(TimerSet(timer, self.at + within, path, "quorum"))
            self.commands.append(SetTimer(timer, self.at + within))
        return scope

    def _too_late(self, scope: Scope) -> None:
        scope.timer = None
        self.busy -= 1
        if not scope.fired and scope.closing is None:
            self._unmet(scope)

    def _arrive_at_join(self, token: Token) -> None:
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


def alive(token: Token) -> bool:
    """Tell whether a token has not been cancelled since something was put off for it."""
    scope = token.scope
    if scope is not None and (scope.closing is not None or scope.live.get(token.branch) is not token):
        return False
    return not token.frame.closed


def _frozen_items(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a map's items.

    Raises:
        ContractError: if one of them could be changed by its lane.
    """
    found = mutable_value(items)
    if found is not None:
        msg = f"a map's items could be changed by their lanes: at {found[0]}, {found[1]}; use {found[2]}."
        raise ContractError(msg)
    return items


def _route_text(out: Out) -> str:
    """Name the conditions of a statement, for an error."""
    if isinstance(out, NextOut):
        return str(out.edge.name)
    if isinstance(out, MapOut):
        return f"over={getattr(out.over, '__name__', out.over)!r}"
    edges = out.edges if isinstance(out, ForkOut) else out.cases
    return ", ".join(f"{edge.name} if {edge.label}" for edge in edges if edge.test is not None)
