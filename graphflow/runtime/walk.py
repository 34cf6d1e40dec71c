"""The walk: tokens move over edges, forks open scopes, and scopes close at their joins.

One readiness rule: a node at which tokens of a scope wait runs when no other live token of that scope can still reach
it inside the fork's region; it runs once, with all that arrived, in branch order. A token that waits for a scope
inside it stands at that scope's fork, from where everything is reachable that its branches can reach. A counter for
each waiting place makes an arrival cost the same however many branches there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from graphflow.errors import ConflictError, ContractError
from graphflow.events import CHECKED, EdgeTaken
from graphflow.graphs.compiled import ChooseOut, Edge, ForkOut, Key, MapOut, NextOut, Out
from graphflow.model.contract import Code, Reason
from graphflow.model.frozen import mutable_value
from graphflow.model.ids import Path, Segment, path_text
from graphflow.nodes.edges import Terminal, explained
from graphflow.runtime.core import Core, whereabouts
from graphflow.runtime.tables import Domain, Inbox, Token, Trouble, Written, alive


class Walk(Core):
    """How control moves."""

    __slots__ = ()

    # --- what a scope does (scopes) ---

    def fork(self, token: Token, out: ForkOut, taken: tuple[Edge, ...], inbox: Inbox, path: Path) -> None:
        """Open a scope with a branch for each edge that was taken (scopes)."""
        raise NotImplementedError

    def map_items(self, token: Token, out: MapOut, items: tuple[Any, ...], path: Path) -> None:
        """Open a scope with a lane for each item (scopes)."""
        raise NotImplementedError

    def arrive_at_join(self, token: Token) -> None:
        """Let a token arrive where its scope meets (scopes)."""
        raise NotImplementedError

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
                return out.chosen(state)
            case ForkOut():
                return tuple(edge for edge in out.edges if edge.test is None or edge.test(state))
            case MapOut():
                most = None if out.max_items is None else out.max_items + 1  # one more shows that the bound is hit
                found: Any = out.over(state)
                if self.edition >= CHECKED:
                    _check_order(found)
                return _frozen_items(tuple(itertools.islice(found, most)))
            case NextOut():
                return out.edge

    def route_trouble(self, error: Exception, out: Out, name: str | None, path: Path) -> Trouble:
        """Make a failure of a condition that raised, blamed on the node that its edge leaves."""
        source = repr(name) if name is not None else "START"
        what = "what gives the items of the map at" if isinstance(out, MapOut) else "a condition on an edge that leaves"
        error.add_note(f"raised by {what} {source}: {_route_text(out)}")
        trouble = self.trouble("failed", error, path)
        text = f"{what} {source} raised ({_route_text(out)}): {trouble.reason.text}"
        return trouble.saying(text)

    def follow(self, token: Token, out: Out, route: Any, inbox: Inbox, path: Path) -> None:
        """Move a token on over the edges that were found."""
        match out:
            case ChooseOut() | NextOut():
                if route is None:
                    self.die(token, (path[-1].name if path else "START",))
                else:
                    self.take(token, route, inbox)
            case ForkOut():
                self.fork(token, out, route, inbox, path)
            case MapOut():
                self.map_items(token, out, route, path)

    # --- taking an edge ---

    def take(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge, if its bounds allow."""
        if self.walks_straight_on(token, edge, inbox):
            return
        refused = self.hop_refused(token, edge)
        if refused is None:
            self.hop(token, edge, inbox)
        else:
            self.hit_bound(token, refused)

    def hop_refused(self, token: Token, edge: Edge) -> Reason | None:
        """Return the bound that refuses to let a token pass over an edge, if one does."""
        counters = token.counters
        hop = counters.hops.get(edge, 0)
        if edge.max_hops is not None and hop >= edge.max_hops:
            called = f", which {edge.bound}= bounds" if edge.bound else ""
            why = explained(edge.test, token.context)
            told = f" ({why})" if why else ""
            return self._refusal_at(token, "max_hops", edge.max_hops, f"a further hop over {edge.name}{called}{told}")
        graph = token.frame.tables.graph
        if graph.max_hops is not None and counters.total >= graph.max_hops:
            wish = f"a further hop in {graph.name!r}, over {edge.name}"
            return self._refusal_at(token, "max_hops", graph.max_hops, wish)
        if edge.name.kind != "handoff":
            return None
        if graph.max_handoffs is not None and counters.handoffs >= graph.max_handoffs:
            trail = " ".join(counters.trail or ())
            wish = f"a further handoff in {graph.name!r}, over {edge.name}, after {trail}"
            return self._refusal_at(token, "max_handoffs", graph.max_handoffs, wish)
        if graph.detect:
            sight = self.handing_off(token, whereabouts(token), edge.name.target or "")
            token.note = sight.note
            stop: Reason | None = sight.stop
            return stop
        return None

    def hop(self, token: Token, edge: Edge, inbox: Inbox) -> None:
        """Move a token over an edge that nothing refuses, and count it."""
        counters = token.counters
        if edge.name.kind == "handoff":
            counters.handoffs += 1
            if counters.trail is None:
                counters.trail = [edge.name.source or ""]
            counters.trail.append(edge.name.target or "")
        counters.total += 1
        number = counters.hops[edge] = counters.hops.get(edge, 0) + 1
        self.decisions.append(EdgeTaken(token.frame.path, edge.name, number))
        self.move(token, edge, inbox)

    def _refusal_at(self, token: Token, code: Code, limit: int, wanted: str) -> Reason:
        return self.refuse(whereabouts(token), code, float(limit), wanted)

    def _refused(self, token: Token, code: Code, limit: int, wanted: str) -> None:
        self.hit_bound(token, self._refusal_at(token, code, limit, wanted))

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
            self.arrive_at_join(token)
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
            kept.thread = None  # of branches that meet, only what they brought goes on
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
                    fits = self.edition < CHECKED or not isinstance(error, ContractError)
                    return self.trouble("failed" if fits else "contract", error, writer)
                updates.append(Written(fields, writer))
            writers.update(mine)
        token.context = context
        if token.updates is not None:
            token.updates = updates
        return None


def _check_order(items: object) -> None:
    """Refuse items that have no order, which another process would number otherwise, and texts.

    Raises:
        ContractError: saying what to return instead.
    """
    kind = type(items).__name__
    if isinstance(items, str | bytes | bytearray):
        msg = f"a {kind} would be a lane for each of its letters: return a list or a tuple of items, as [text]."
        raise ContractError(msg)
    if isinstance(items, AbstractSet | MappingView | Mapping):
        msg = (
            f"a {kind} promises no order, and the lanes are known by theirs when a run is taken up again: return "
            f"sorted(...) of it, or another list or tuple."
        )
        raise ContractError(msg)


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
