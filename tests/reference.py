"""The reference model: the token rules of the design, slow and plain, to compare the library's fold against.

It was written from the text, apart from the fold. Every live token stands in one list; after each step the
one readiness rule is asked again of all of them by a graph search. There are no counters.

Where timing may change what happens (a `fail_fast` scope in which a branch fails) the model says what *may*
happen: a failed token stands still, the others of its scope go on as far as they can without it, and only
then is the scope cancelled. So the visits inside are all that could have run, and the failures all that could
have been the first. `differences` compares such an outcome with what one schedule really did.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeAlias

from tests.shapes import (
    END,
    LOG,
    Act,
    Choose,
    Fork,
    Next,
    Script,
    Shape,
    join_of,
    label,
    reach,
    region_of,
)

Inbox: TypeAlias = tuple[tuple[str, str], ...]
"""What arrived, as (source, output); a failure is ("failed", node), or ("failed", "x|y") for either."""

FAILED = "failed"


# --- What comes out ---


@dataclass(frozen=True, slots=True, order=True)
class End:
    """How a run ended.

    `nodes`: the node that failed; the last nodes, in branch order, of `no_route`; the node that merges of
    `conflict` (with the fields in conflict); the nodes at which tokens wait for ever of `stalled`.
    """

    kind: Literal["completed", "partial", "failed", "conflict", "no_route", "stalled"]
    nodes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """The user's context: the list field, in order, and the plain fields that were written."""

    log: tuple[str, ...] = ()
    plain: tuple[tuple[str, str], ...] = ()

    def after(self, writes: Iterable[tuple[str, str]]) -> "Context":
        log, plain = list(self.log), dict(self.plain)
        for name, value in writes:
            if name == LOG:
                log.append(value)
            else:
                plain[name] = value
        return Context(tuple(log), tuple(sorted(plain.items())))


@dataclass(frozen=True, slots=True, order=True)
class Visit:
    """One visit: what it got, and the context it saw (None where that is not known and not compared)."""

    node: str
    number: int
    inbox: Inbox
    seen: Context | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a run showed. An outcome of the library gives the first five fields and leaves the rest."""

    ends: tuple[End, ...]
    """How it ended; several where timing may decide which failure is the first."""
    visits: tuple[Visit, ...]
    """In the order in which they started."""
    skipped: frozenset[tuple[str, int, str]]
    """(fork, its visit, branch) for each conditional branch that was not taken."""
    context: Context | None
    """The final context; compared only if END was reached."""
    arrived: Inbox
    """What reached END."""
    skipped_joins: frozenset[tuple[str, int, str]] = frozenset()
    """(fork, its visit, join) for each scope in which every branch died."""
    dead: frozenset[tuple[str, int]] = frozenset()
    """Visits after which the token had nowhere to go."""
    maybe: frozenset[tuple[str, int]] = frozenset()
    """Visits in a scope that was cancelled: timing decides whether they ran."""
    timing: bool = False
    """A node of a cancelled scope was entered again later: all that follows is timing."""
    corners: frozenset[str] = frozenset()
    """Where the text leaves room and this model chose; see `Run`."""


def comparable(outcome: Outcome) -> tuple[object, ...]:
    """What no timing may change: equal for all schedules of one shape and script."""
    if outcome.timing:
        return ("timing",)
    reached = any(end.kind in {"completed", "partial"} for end in outcome.ends)
    return (
        outcome.ends,
        tuple(sorted(visit for visit in outcome.visits if (visit.node, visit.number) not in outcome.maybe)),
        tuple(sorted(skip for skip in outcome.skipped if skip[:2] not in outcome.maybe)),
        outcome.context if reached else None,
        outcome.arrived,
    )


def differences(expected: Outcome, actual: Outcome) -> list[str]:
    """What `actual`, one schedule, did that the reference's `expected` does not allow."""
    return [] if expected.timing else [*_ending(expected, actual), *_happenings(expected, actual)]


def _ending(expected: Outcome, actual: Outcome) -> list[str]:
    (end,) = actual.ends
    found: list[str] = []
    if not any(_same_end(allowed, end) for allowed in expected.ends):
        found.append(f"ended {end}, expected {expected.ends}")
    if end.kind in {"completed", "partial"}:
        if actual.context != expected.context:
            found.append(f"final context {actual.context}, expected {expected.context}")
        if not _same_inbox(expected.arrived, actual.arrived):
            found.append(f"{actual.arrived} reached END, expected {expected.arrived}")
    return found


def _happenings(expected: Outcome, actual: Outcome) -> list[str]:
    allowed = {(visit.node, visit.number): visit for visit in expected.visits}
    times = Counter((visit.node, visit.number) for visit in actual.visits)
    found = [f"{label(*key)} ran {count} times" for key, count in times.items() if count > 1]
    found += [f"{label(*key)} did not run" for key in allowed if key not in times and key not in expected.maybe]
    for visit in actual.visits:
        same = allowed.get((visit.node, visit.number))
        if same is None:
            found.append(f"{label(visit.node, visit.number)} ran, with {visit.inbox}")
        elif not _same_inbox(same.inbox, visit.inbox) or visit.seen not in {None, same.seen}:
            found.append(f"{visit}, expected {same}")
    found += [f"{skip} skipped" for skip in sorted(actual.skipped - expected.skipped)]
    missing = {skip for skip in expected.skipped - actual.skipped if skip[:2] not in expected.maybe}
    return found + [f"{skip} not skipped" for skip in sorted(missing)]


def _same_end(expected: End, actual: End) -> bool:
    named = set(actual.fields) <= set(expected.fields) and bool(actual.fields) == bool(expected.fields)
    return expected.kind == actual.kind and expected.nodes == actual.nodes and named


def _same_inbox(expected: Inbox, actual: Inbox) -> bool:
    return len(expected) == len(actual) and all(
        a == b or (a[0] == b[0] == FAILED and b[1] in a[1].split("|")) for a, b in zip(expected, actual, strict=True)
    )


# --- The model ---


@dataclass(frozen=True, slots=True)
class Token:
    """Control at a node. `branch` is the least of the branches that were merged into it."""

    scope: int
    branch: int
    node: str
    state: Literal["waiting", "running", "failed"] = "waiting"
    inbox: Inbox = ()
    writes: tuple[tuple[str, str], ...] = ()
    """Updates since the fork that opened the scope (since the start, in the root scope)."""
    visit: int = 0
    causes: frozenset[End] = frozenset()
    """Of a failed token: how the run would end if this went all the way up."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One activation of a fork; `parent` is the token that opened it and goes on after the join."""

    fork: str
    visit: int
    join: str
    region: frozenset[str]
    collect: bool
    parent: Token


@dataclass(slots=True)
class Run:
    """One run under one schedule.

    Corners, noted in the outcome when a run comes to one:

    - `conflict-handled`: an error edge takes a conflict. Here: the node that merges was not entered (its
      visit does not count), and the branches' updates are dropped.
    - `conflict-before-merge`: a scope closes with a conflict at a node that must still merge further, as the
      join of the enclosing scope or with its other tokens. Here: only that branch of the enclosing scope
      fails. Where the node is the enclosing scope's join, its error edge lies outside that scope and does not
      take the failure.
    - `no-route-at-error-edge`: the run ends `no_route` at a node with an error edge. Here: the edge is not
      taken.
    """

    graph: Shape
    script: Script
    rng: random.Random
    cancel: Literal["late", "now"]
    tokens: list[Token] = field(default_factory=list[Token])
    scopes: list[Scope] = field(default_factory=list[Scope])
    ends: frozenset[End] = frozenset()
    visits: list[tuple[Visit, frozenset[int]]] = field(default_factory=list[tuple[Visit, frozenset[int]]])
    skipped: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    skipped_joins: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    last: dict[int, dict[int, tuple[str, ...]]] = field(default_factory=dict[int, dict[int, tuple[str, ...]]])
    dead: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    maybe: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    cancelled: set[str] = field(default_factory=set[str])
    timing: bool = False
    partial: bool = False
    corners: set[str] = field(default_factory=set[str])
    final: Token = Token(-1, 0, END)

    # Scopes: number -1 is the root, which has a single token and no fork.

    def outward(self, scope: int) -> frozenset[int]:
        """The scope and all that enclose it."""
        around = [scope]
        while around[-1] != -1:
            around.append(self.scopes[around[-1]].parent.scope)
        return frozenset(around)

    def within(self, scope: int) -> list[Token]:
        """The live tokens of the scope, those of inner scopes among them."""
        return [token for token in self.tokens if scope in self.outward(token.scope)]

    def seen_by(self, token: Token) -> Context:
        before = Context() if token.scope == -1 else self.seen_by(self.scopes[token.scope].parent)
        return before.after(token.writes)

    # The readiness rule.

    def ready(self) -> list[tuple[int, str]]:
        waiting = {(token.scope, token.node): None for token in self.tokens if token.state == "waiting"}
        return [(scope, node) for scope, node in waiting if not self.others_can_reach(scope, node)]

    def others_can_reach(self, scope: int, node: str) -> bool:
        return any(
            self.can_reach(token, scope, node)
            for token in self.within(scope)
            if (token.scope, token.node, token.state) != (scope, node, "waiting")
        )

    def can_reach(self, token: Token, scope: int, node: str) -> bool:
        if token.node == node and token.state != "running":
            return True
        region = self.scopes[scope].region  # the root scope has one token, so nobody asks for it
        if token.node not in region:  # at the join
            return False

        def steps(at: str) -> list[str]:
            return [to for to in self.graph.successors(at) if to in region or to == node]

        return node in reach(steps(token.node), steps)

    # One run.

    def go(self) -> Outcome:
        self.tokens.append(Token(-1, 0, self.graph.entry))
        while not self.ends:
            ready = self.ready()
            running = [token for token in self.tokens if token.state == "running"]
            if ready:
                self.arrive(*self.rng.choice(ready))
            elif running:
                token = self.rng.choice(running)
                self.tokens.remove(token)
                self.finish(token, self.script(token.node, token.visit))
            else:
                self.fail_or_stall()
        return Outcome(
            ends=tuple(sorted(self.ends)),
            visits=tuple(visit for visit, _ in self.visits),
            skipped=frozenset(self.skipped),
            context=self.seen_by(self.final),
            arrived=self.final.inbox,
            skipped_joins=frozenset(self.skipped_joins),
            dead=frozenset(self.dead),
            maybe=frozenset(self.maybe),
            timing=self.timing,
            corners=frozenset(self.corners),
        )

    def arrive(self, scope: int, node: str) -> None:
        """No other token of the scope can come to the node: close the scope there, or merge and run."""
        here = [t for t in self.tokens if (t.scope, t.node, t.state) == (scope, node, "waiting")]
        here.sort(key=lambda token: token.branch)
        for token in here:
            self.tokens.remove(token)
        inbox = tuple(entry for token in here for entry in token.inbox)
        writes = tuple(write for token in here for write in token.writes)
        fields = {
            name for a, b in combinations(here, 2) for name, _ in a.writes if name in dict(b.writes) and name != LOG
        }
        merged = replace(here[0], inbox=inbox, writes=() if fields else writes)
        closes = scope != -1 and node == self.scopes[scope].join
        if closes:
            parent = self.scopes[scope].parent
            merged = replace(merged, scope=parent.scope, branch=parent.branch, writes=parent.writes + merged.writes)
        if fields:
            self.conflict(merged, End("conflict", (node,), tuple(sorted(fields))))
        elif closes:
            self.tokens.append(merged)
        elif node == END:
            self.final = merged
            self.ends = frozenset({End("partial" if self.partial else "completed")})
        else:
            self.start(merged)

    def start(self, token: Token) -> None:
        number = 1 + sum(visit.node == token.node for visit, _ in self.visits)
        self.timing |= token.node in self.cancelled
        visit = Visit(token.node, number, token.inbox, self.seen_by(token))
        self.visits.append((visit, self.outward(token.scope)))
        self.tokens.append(replace(token, state="running", visit=number))

    def finish(self, token: Token, act: Act) -> None:
        if act.raises:
            self.fail(token, End("failed", (token.node,)))
            return
        output = label(token.node, token.visit)
        done = replace(
            token,
            state="waiting",
            inbox=((token.node, output),),
            writes=(*token.writes, *((name, output) for name in act.writes)),
        )
        match self.graph.statement(token.node):
            case Next(to):
                self.tokens.append(replace(done, node=to))
            case Choose(cases, default):
                to_or_none = default if act.case is None else cases[act.case]
                if to_or_none is None:
                    self.die(done)
                else:
                    self.tokens.append(replace(done, node=to_or_none))
            case Fork() as fork:
                self.open(done, fork, act.skips)
            case _:
                self.die(done)

    def open(self, token: Token, fork: Fork, skips: frozenset[str]) -> None:
        join = join_of(self.graph, token.node)
        assert join is not None
        number = len(self.scopes)
        region = region_of(self.graph, token.node)
        self.scopes.append(Scope(token.node, token.visit, join, region, fork.failure == "collect", token))
        self.last[number] = {}
        taken = [(i, branch) for i, branch in enumerate(fork.branches) if branch not in skips]
        self.skipped |= {(token.node, token.visit, branch) for branch in fork.branches if branch in skips}
        self.tokens += [Token(number, i, branch, inbox=token.inbox) for i, branch in taken]
        if not taken:
            self.skipped_joins.add((token.node, token.visit, join))
            self.die(token)

    # Tokens that end.

    def die(self, token: Token) -> None:
        self.dead.add((token.node, token.visit))
        self.gone(token, (token.node,))

    def gone(self, token: Token, last: tuple[str, ...]) -> None:
        """The token ended without a failure. If it was the last of its scope, the enclosing one ends too."""
        if token.scope == -1:
            if any(self.graph.error(node) for node in last):
                self.corners.add("no-route-at-error-edge")
            self.final = replace(token, inbox=())
            self.ends = frozenset({End("no_route", last)})
            return
        self.last[token.scope][token.branch] = last
        if not self.within(token.scope):
            scope = self.scopes[token.scope]
            self.skipped_joins.add((scope.fork, scope.visit, scope.join))
            died = self.last[token.scope]
            self.gone(scope.parent, tuple(node for branch in sorted(died) for node in died[branch]))

    def conflict(self, token: Token, cause: End) -> None:
        joins = token.scope != -1 and token.node == self.scopes[token.scope].join
        if joins or (token.scope != -1 and self.others_meet(token)):
            self.corners.add("conflict-before-merge")
        if joins:
            self.pass_on(token, frozenset({cause}))
            return
        if self.graph.error(token.node) is not None:
            self.corners.add("conflict-handled")
        self.fail(token, cause)

    def others_meet(self, token: Token) -> bool:
        return any(
            token.node == other.node or self.can_reach(other, token.scope, token.node)
            for other in self.within(token.scope)
        )

    def fail(self, token: Token, cause: End) -> None:
        """First the node's error edge, then what the scopes say."""
        to = self.graph.error(token.node)
        if to is None:
            self.pass_on(token, frozenset({cause}))
        else:
            self.tokens.append(replace(token, node=to, state="waiting", inbox=((FAILED, token.node),)))

    def pass_on(self, token: Token, causes: frozenset[End]) -> None:
        """The token has failed and no error edge took it: the innermost scope decides, and so on outward."""
        if token.scope == -1:
            self.final = replace(token, inbox=())
            self.ends = causes
            return
        scope = self.scopes[token.scope]
        if scope.collect:
            self.partial = True
            blamed = "|".join(sorted({cause.nodes[0] for cause in causes}))
            failure: Inbox = ((FAILED, blamed),)
            self.tokens.append(replace(token, node=scope.join, state="waiting", inbox=failure, writes=()))
        elif self.cancel == "late":
            self.tokens.append(replace(token, state="failed", causes=causes))
        else:
            self.cancel_scope(token.scope)
            self.pass_on(scope.parent, causes)

    def cancel_scope(self, number: int) -> None:
        for token in self.within(number):
            self.tokens.remove(token)
        self.maybe |= {(visit.node, visit.number) for visit, scopes in self.visits if number in scopes}
        self.cancelled |= self.scopes[number].region

    def fail_or_stall(self) -> None:
        """Nothing can go on: cancel an innermost scope in which a branch failed, or it is a stall."""
        failed = [token for token in self.tokens if token.state == "failed"]
        if not failed:
            self.ends = frozenset({End("stalled", tuple(sorted(token.node for token in self.tokens)))})
            return
        number = max(token.scope for token in failed)  # an inner scope is younger than those around it
        causes = frozenset(cause for token in failed if token.scope == number for cause in token.causes)
        self.cancel_scope(number)
        self.pass_on(self.scopes[number].parent, causes)


def run(graph: Shape, script: Script, rng: random.Random, *, cancel: Literal["late", "now"] = "late") -> Outcome:
    """Run the script on the graph; `rng` chooses which running node finishes next.

    `cancel="late"` (the default) says all that may happen; "now" cancels a `fail_fast` scope at its first
    failure, as a real run does, and what it gives depends on the schedule.
    """
    return Run(graph, script, rng, cancel).go()
