"""The rules about forks and maps: where branches start and meet, and what they read and write side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from graphflow.graphs.compiled import Edge, ForkOut, Key, MapOut
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import Look, Problem, Scope, as_graph, kept_inside_out, key_text, knots, names_of, reach
from graphflow.graphs.rules import listed
from graphflow.model.context import reducer_of
from graphflow.nodes.edges import DelegateStatement, Terminal
from graphflow.nodes.join import ALL, Join

MANY = -1
"""The branch of a node that tokens of several branches can come to."""


def fork_reentry(look: Look) -> Iterator[Problem]:
    """No branch leads back to its own fork before the join."""
    for scope in look.scopes:
        if scope.source in scope.out.region.nodes:
            name = key_text(scope.source)
            message = f"a branch of {name!r} leads back to {name!r} before the branches meet."
            hint = "Let the branches meet in one node first, and loop back from there."
            yield Problem("fork-reentry", (name,), message, hint)


def side_entry(look: Look) -> Iterator[Problem]:
    """The nodes between a fork and its join are entered from the fork alone."""
    for scope in look.scopes:
        region = scope.out.region.nodes
        stray = [
            edge
            for name in region
            for edge in look.before.get(name, ())
            if edge.source != scope.source and edge.source not in region and name != scope.source
        ]
        if not stray:
            continue
        name, met = key_text(scope.source), key_text(scope.out.region.join)
        entered = sorted({f"{key_text(edge.source)} → {edge.target}" for edge in stray})
        handoffs = _handoffs_out(look, scope, {edge.target for edge in stray})
        if handoffs:
            giver, to = handoffs[0]
            message = f"{giver!r} stands in a branch of {name!r} and can hand off to {to!r}, which is outside of it."
            hint = f"Inside a branch, hand off only to nodes between {name!r} and {met!r}."
            yield Problem("handoff-leaves-branch", (giver, to), message, hint)
        else:
            message = f"the branches of {name!r}, which meet at {met!r}, are entered from the side: {listed(entered)}."
            hint = "Use a node of its own there (node.named('...')), or lead these edges to the fork or to the join."
            yield Problem("side-entry", (name,), message, hint)


def _handoffs_out(look: Look, scope: Scope, entered: set[Key]) -> list[tuple[str, str]]:
    """The handoff edges over which the region came to hold nodes that do not belong to it."""

    def steps(key: Key) -> list[Key]:
        edges = look.after.get(key, ())
        return [e.target for e in edges if e.name.kind != "handoff" and e.target in scope.out.region.nodes]

    heads: list[Key] = [head for head in scope.heads if head in scope.out.region.nodes]
    own = reach(heads, steps)
    if entered & own:
        return []
    return sorted(
        (str(edge.source), str(edge.target))
        for name in own
        for edge in look.after.get(name, ())
        if edge.name.kind == "handoff" and edge.target in scope.out.region.nodes and edge.target not in own
    )


def loop_entry(look: Look) -> Iterator[Problem]:
    """Each cycle inside a branch, cycles inside cycles too, is entered at one node."""
    cyclic = set[Key]().union(*knots((edge.source, edge.target) for edge in look.flow))
    for scope in look.scopes:
        region = scope.out.region.nodes
        if cyclic.isdisjoint(region):
            continue
        inside: list[tuple[Key, Key]] = [
            (a, edge.target) for a in region for edge in look.after.get(a, ()) if edge.target in region
        ]
        ways_in: list[tuple[Key, Key]] = [(Terminal.START, head) for head in scope.heads]
        for entries in _doubly_entered(inside, [*inside, *ways_in]):
            name = key_text(scope.source)
            message = f"a cycle in a branch of {name!r} is entered at {listed(sorted(entries))}."
            hint = "Let every way into the cycle lead to one node of it."
            yield Problem("loop-entry", (name, *sorted(entries)), message, hint)


def _doubly_entered(inside: list[tuple[Key, Key]], ways: Sequence[tuple[Key, Key]]) -> Iterator[set[str]]:
    todo = [inside]
    while todo:
        edges = todo.pop()
        for knot in knots(edges):
            entries = {b for a, b in ways if b in knot and a not in knot}
            if len(entries) > 1:
                yield names_of(entries)
            else:
                rest = knot - entries
                todo.append([(a, b) for a, b in edges if a in rest and b in rest])


def end_needs_join(look: Look) -> Iterator[Problem]:
    """Branches that meet only at END leave several outputs, so the graph must say what its output is."""
    ends: list[Key] = [Terminal.END]
    found = reach(ends, lambda key: [edge.source for edge in look.before.get(key, ())])
    for scope in look.scopes:
        stray = [edge for edge in look.before.get(Terminal.END, ()) if edge.source in scope.out.region.nodes]
        name = key_text(scope.source)
        ways = listed(sorted({key_text(edge.source) for edge in stray}) or [name])
        if isinstance(scope.out, MapOut):
            if stray:
                message = (
                    f"the lanes of {name!r} can reach END past their join {key_text(scope.out.region.join)!r}: {ways}."
                )
                yield Problem("end-needs-join", (name,), message, "Lead these edges to the join.")
        elif scope.out.region.join is Terminal.END and look.graph.leave is None and found.issuperset(scope.heads):
            message = f"the branches of {name!r} meet only at END ({ways} lead there), so there is no one output."
            hint = "Let them meet in a node before END, or give the graph leave=."
            yield Problem("end-needs-join", (name,), message, hint)


def join_policy(look: Look) -> Iterator[Problem]:
    """A policy stands where branches meet, and can be met."""
    joins = {scope.out.region.join for scope in look.scopes}
    for station in look.compiled.stations.values():
        node = station.node
        if isinstance(node, Join) and node.policy != ALL and station.name not in joins:
            message = f"{station.name!r} waits for {node.policy}, but no fork's branches meet there: it waits for all."
            hint = "Put the policy on the node at which all branches of the fork meet."
            yield Problem("join-misplaced", (station.name,), message, hint, "warning")
    for scope in look.scopes:
        most = len(scope.out.edges) if isinstance(scope.out, ForkOut) else scope.out.max_items
        if scope.out.policy.kind == "first" and most is not None and scope.out.policy.count > most:
            name, met = key_text(scope.source), key_text(scope.out.region.join)
            message = f"{met!r} waits for {scope.out.policy}, but {name!r} starts {most} at most."
            yield Problem("join-unmet", (name, met), message, "Ask for fewer.", "warning")


# --- reads and writes ------------------------------------------------------------------------------------------------


def parallel_fields(look: Look) -> Iterator[Problem]:
    """No two branches declare to write one field without a reducer; none reads what a sibling writes."""
    if not look.scopes:
        return
    writes, reads = _declared(look.graph)
    reduced = {name for name, info in look.graph.context.model_fields.items() if reducer_of(info.metadata)}
    for scope in look.scopes:
        found = _by_field(writes, scope)
        labels = _labels(look, scope) if found else {}
        for field, writers in sorted(found.items()):
            name = key_text(scope.source)
            pair = None if field in reduced else _side_by_side(look, scope, labels, writers, writers)
            if pair is not None:
                message = (
                    f"branches of {name!r} write the field {field!r} side by side ({_pair(pair)}), without a reducer."
                )
                hint = "Let one branch write it, or declare how to combine: Annotated[..., append]."
                yield Problem("writes-conflict", (name, *sorted(set(pair))), message, hint)
            readers = [node for node in scope.out.region.nodes if field in reads.get(node, ())]
            pair = _side_by_side(look, scope, labels, writers, sorted(readers))
            if pair is not None:
                message = f"a branch of {name!r} reads the field {field!r} that another one writes ({_pair(pair)})."
                hint = "A branch does not see what its siblings write: read it after the join."
                yield Problem("reads-conflict", (name, *sorted(set(pair))), message, hint)


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[0]!r} in two lanes" if pair[0] == pair[1] else f"{pair[0]!r} and {pair[1]!r}"


def _by_field(declared: dict[str, frozenset[str]], scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in sorted(scope.out.region.nodes & declared.keys()):
        for field in declared[node]:
            found.setdefault(field, []).append(node)
    return {field: nodes for field, nodes in found.items() if nodes}


class _Declared(NamedTuple):
    """What each node declares to write and to read, with what it calls or holds inside."""

    writes: dict[str, frozenset[str]]
    reads: dict[str, frozenset[str]]


def _declared(graph: Graph[Any]) -> _Declared:
    return kept_inside_out(graph, "_declared", _declared_in)


def _declared_in(graph: Graph[Any]) -> _Declared:
    writes: dict[str, frozenset[str]] = {}
    reads: dict[str, frozenset[str]] = {}
    for name, station in graph.compiled.stations.items():
        node = station.node
        written = (node.writes or frozenset[str]()) | ({node.into} if node.into is not None else set[str]())
        read = node.reads or frozenset[str]()
        inner = as_graph(node)
        if inner is not None and inner.context is graph.context and inner.enter is None:
            held = _declared(inner)
            written, read = written.union(*held.writes.values()), read.union(*held.reads.values())
        if written:
            writes[name] = written
        if read:
            reads[name] = read
    for statement in graph.statements:
        if isinstance(statement, DelegateStatement):
            name = statement.source.name
            if statement.into is not None:
                writes[name] = writes.get(name, frozenset()) | {statement.into}
    _add_callees(graph, writes)
    _add_callees(graph, reads)
    return _Declared(writes, reads)


def _add_callees(graph: Graph[Any], declared: dict[str, frozenset[str]]) -> None:
    """The updates of a callee node are its caller's; the context of a callee graph dies with its frame."""
    if not declared:
        return
    stations = graph.compiled.stations
    own = dict(declared)

    def steps(name: str) -> list[str]:
        station = stations[name]
        edges: list[Edge] = [*station.delegates.values(), *station.handoffs.values(), *station.errors]
        return [t for edge in edges if isinstance(t := edge.target, str) and not isinstance(stations[t].node, Graph)]

    for name, station in stations.items():
        for callee in reach([t for t in station.delegates if not isinstance(stations[t].node, Graph)], steps):
            if callee in own:
                declared[name] = declared.get(name, frozenset()) | own[callee]


def _labels(look: Look, scope: Scope) -> dict[str, int]:
    """Return for each node of the region the one branch whose tokens can come to it, or MANY."""
    region = scope.out.region.nodes
    labels: dict[str, int] = {}
    todo: list[tuple[Key, int]] = [(head, index) for index, head in enumerate(scope.heads)]
    while todo:
        key, label = todo.pop()
        if not isinstance(key, str) or key not in region or labels.get(key) in (MANY, label):
            continue
        labels[key] = label if key not in labels else MANY
        todo.extend((edge.target, labels[key]) for edge in look.after.get(key, ()))
    return labels


def _side_by_side(
    look: Look, scope: Scope, labels: dict[str, int], writers: Sequence[str], others: Sequence[str]
) -> tuple[str, str] | None:
    """Return a writer and another that tokens of different branches, or lanes, can stand at without an order."""
    if not writers or not others:
        return None
    if scope.lanes:
        return (writers[0], others[0])
    for writer in _one_of_each(labels, writers):
        for other in _one_of_each(labels, others):
            if labels[writer] != labels[other]:
                return (writer, other)
    region = scope.out.region.nodes
    for these, those in ((writers, others), (others, writers)):
        for node in these:
            if labels[node] == MANY:
                ordered = _from(look.after, node, region, ahead=True) | _from(look.before, node, region, ahead=False)
                free = next((other for other in those if other not in ordered), None)
                if free is not None:
                    return (node, free) if these is writers else (free, node)
    return None


def _one_of_each(labels: dict[str, int], nodes: Sequence[str]) -> list[str]:
    """One node for each of the first two branches: a third could show no more."""
    first: dict[int, str] = {}
    for node in nodes:
        if labels[node] != MANY:
            first.setdefault(labels[node], node)
    return list(first.values())[:2]


def _from(table: dict[Key, list[Edge]], node: str, region: frozenset[str], *, ahead: bool) -> set[str]:
    def steps(key: str) -> list[str]:
        ends = [edge.target if ahead else edge.source for edge in table.get(key, ())]
        return [end for end in ends if isinstance(end, str) and end in region]

    return reach([node], steps)
