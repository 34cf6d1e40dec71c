"""The rules about who works for whom: delegation, handoff, depth, and gates before what cannot be undone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from graphflow.graphs.agent_rules import ungated_tools
from graphflow.graphs.compiled import Edge, Key
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import (
    INF,
    Look,
    Problem,
    a_cycle,
    as_graph,
    delegation_depths,
    kept_inside_out,
    knots,
    look_at,
    nested_graphs,
    reach,
)
from graphflow.graphs.rules import listed
from graphflow.nodes.edges import DelegateStatement, HandoffStatement, Terminal


def delegate_unbounded(look: Look) -> Iterator[Problem]:
    """Every delegate edge has a bound."""
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement) and statement.max_hops is None:
            name, team = statement.source.name, [target.name for target in statement.targets]
            message = f"{name!r} delegates to {listed(team)} without a bound."
            yield Problem("delegate-unbounded", (name, *team), message, "Add max_hops= to delegates(...).")


def graph_source(look: Look) -> Iterator[Problem]:
    """A graph has no decider that could delegate or hand off: its nodes do, inside."""
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement | HandoffStatement) and as_graph(statement.source):
            verb = "delegates" if isinstance(statement, DelegateStatement) else "hands_off"
            name = statement.source.name
            message = f"{name!r} is a graph, and {verb}(...) needs a node that decides."
            yield Problem("graph-source", (name,), message, f"Write {verb}(...) at a node inside of it.")


def delegation_cycle(look: Look) -> Iterator[Problem]:
    """Where delegations can come back to where they began, a depth limit ends it."""
    if look.max_depth < INF:
        return
    edges = _team_edges(look)
    pairs = [(edge.source, edge.target) for edge in edges]
    named = [(a, b) for a, b in pairs if isinstance(a, str) and isinstance(b, str)]
    for knot in knots(named):
        if any(e.name.kind == "delegate" and e.source in knot and e.target in knot for e in edges):
            cycle = a_cycle(knot, named)
            message = f"delegations can recur for ever, as {' → '.join(map(repr, (*cycle, cycle[0])))}."
            yield Problem("delegation-cycle", cycle, message, "Give the graph max_depth=.")


def too_deep(look: Look) -> Iterator[Problem]:
    """Delegations that the statements nest are allowed by `max_depth`."""
    limit = look.graph.max_depth
    if limit is None:
        return
    depths = delegation_depths(look.graph)
    deepest = max(sorted(depths), key=lambda name: depths[name], default="")
    depth = depths.get(deepest, 0)
    if limit < depth < INF:
        message = f"delegations below {deepest!r} are nested {depth:g} deep, more than max_depth={limit}."
        hint = f"Set max_depth={depth:g}, or take a level out."
        yield Problem("too-deep", (deepest,), message, hint)


def handoff_to_caller(look: Look) -> Iterator[Problem]:
    """No handoff reaches a node that waits as a caller for the very frame in which it happens."""
    stations = look.compiled.stations
    targets = {target for _, target in look.declared_handoffs}
    for name in sorted(targets & stations.keys()):
        if not stations[name].delegates:
            continue
        working = reach(list[Key](stations[name].delegates), look.in_frame)
        for giver, target in sorted(look.declared_handoffs):
            if target == name and giver in working:
                message = f"{giver!r} can hand off to {name!r} while {name!r} waits for its report."
                hint = "A callee gives back by finishing: take the handoff edge out."
                yield Problem("handoff-to-caller", (giver, name), message, hint)


def _team_edges(look: Look) -> list[Edge]:
    return [
        edge
        for station in look.compiled.stations.values()
        for edge in (*station.delegates.values(), *station.handoffs.values(), *station.errors)
    ]


# --- gates -----------------------------------------------------------------------------------------------------------


def irreversible_ungated(look: Look) -> Iterator[Problem]:
    """On every path from START, a gate comes before what cannot be undone, however deep it stands."""
    if not any(node.irreversible for graph in nested_graphs(look.graph) for node in graph.mentioned()):
        return
    for where, tools in _paths_past_gates(look.graph).leaks:
        cannot = f"has {listed(tools)}, which cannot be undone" if tools else "cannot be undone"
        message = f"{'/'.join(where)!r} {cannot}, and a path from START reaches it without a gate."
        hint = "Let a Human, or a node with gate=True, come before it on every path."
        if tools:
            hint = "Give the tool approval=True, or let" + hint.removeprefix("Let")
        yield Problem("irreversible-ungated", where, message, hint)


class _Leak(NamedTuple):
    """A node that cannot be undone, by the names that lead to it; of an agent, the tools that make it so."""

    where: tuple[str, ...]
    tools: tuple[str, ...]


class _PastGates(NamedTuple):
    """What paths without a gate lead to: what cannot be undone, and whether END."""

    leaks: tuple[_Leak, ...]
    end: bool


def _paths_past_gates(graph: Graph[Any]) -> _PastGates:
    return kept_inside_out(graph, "_past_gates", _past_gates)


def _past_gates(graph: Graph[Any]) -> _PastGates:
    look = look_at(graph)
    stations = look.compiled.stations

    def steps(at: tuple[Key, bool]) -> list[tuple[Key, bool]]:
        key, called = at
        if not isinstance(key, str):
            return [(edge.target, False) for edge in look.after.get(key, ())]
        station = stations[key]
        inner = as_graph(station.node)
        if station.node.gate or (
            inner is not None and not _paths_past_gates(inner).end
        ):  # what goes on after it was let through; its failure and its callees were not
            onward: list[Key] = [edge.target for edge in station.errors]
        elif called:
            onward = [edge.target for edge in (*station.handoffs.values(), *station.errors)]
        else:
            onward = [edge.target for edge in look.after.get(key, ())]
        return [(to, called) for to in onward] + [(to, True) for to in station.delegates]

    heads: list[tuple[Key, bool]] = [(Terminal.START, False)]
    if look.compiled.escalate is not None:
        heads.append((look.compiled.escalate.target, False))
    found = reach(heads, steps)
    leaks: list[_Leak] = []
    for name in sorted({key for key, _ in found if isinstance(key, str)}):
        node = stations[name].node
        if node.irreversible and not node.gate:
            leaks.append(_Leak((name,), ungated_tools(node)))
        inner = as_graph(node)
        if inner is not None:
            leaks += [_Leak((name, *leak.where), leak.tools) for leak in _paths_past_gates(inner).leaks]
    return _PastGates(tuple(leaks), (Terminal.END, False) in found)
