"""The rules about single statements and about the way from START to END: each a function that yields problems."""

from __future__ import annotations

import types
import typing
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from graphflow.graphs.compiled import ChooseOut, Key, MapOut, out_edges, qualified
from graphflow.graphs.graph import ends
from graphflow.graphs.look import Look, Problem, a_cycle, as_graph, key_text, knots, loose_edges, names_of, reach
from graphflow.model.context import Context, append, reducer_of
from graphflow.model.contract import Brief, Report
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.edges import (
    ChooseStatement,
    DelegateStatement,
    ErrorStatement,
    ForkStatement,
    HandoffStatement,
    MapStatement,
    NextStatement,
    Statement,
    Terminal,
)
from graphflow.nodes.function import FunctionNode, context_of
from graphflow.nodes.human import Human

NextLike = NextStatement | ForkStatement | ChooseStatement | MapStatement


def listed(names: typing.Iterable[str], most: int = 8) -> str:
    """Write names as text; of very many only the first."""
    all_names = list(names)
    shown = ", ".join(map(repr, all_names[:most]))
    return shown if len(all_names) <= most else f"{shown} and {len(all_names) - most} more"


def start_missing(look: Look) -> Iterator[Problem]:
    """A run begins at START, and there is a node for it to come to."""
    if not look.compiled.stations:
        yield Problem("no-nodes", (), f"the graph {look.graph.name!r} has no node.", "Write START >> node >> END.")
    elif look.compiled.start is None:
        message = f"no statement of the graph {look.graph.name!r} begins with START, so no run of it could begin."
        yield Problem("no-start", (), message, "Write START >> node.")


def distinct(look: Look) -> Iterator[tuple[str, Statement]]:
    """Yield each statement with its source; once where it was said twice, as `(b >> d, c >> d) >> j` says d >> j."""
    said: dict[tuple[str, type], list[Statement]] = {}
    for statement in look.graph.statements:
        source = statement.source
        name = "START" if isinstance(source, Terminal) else source.name
        known = said.setdefault((name, type(statement)), [])
        if statement not in known:
            known.append(statement)
            yield name, statement


def ambiguous_next(look: Look) -> Iterator[Problem]:
    """A node, and START, has at most one next statement."""
    counts = Counter(
        (isinstance(statement.source, Terminal), name)
        for name, statement in distinct(look)
        if isinstance(statement, NextLike)
    )
    for (terminal, name), count in counts.items():
        if count > 1:
            shown = name if terminal else repr(name)
            message = f"{shown} has {count} next statements, and which of them holds is not said."
            hint = "Write one: a tuple starts several at once, choose(...) takes exactly one of several."
            if not terminal and name in _met_again(look):
                again = f"To run it a second time, give the second a name of its own: {name}.named('again')."
                hint = f"{again} Else w{hint[1:]}"
            yield Problem("ambiguous-next", (name,), message, hint)


def _met_again(look: Look) -> set[str]:
    """Return the nodes that plain statements lead back to, as `a >> b >> a` does."""
    plain = [ends(made) for made in look.graph.statements if isinstance(made, NextStatement)]
    pairs = [
        (source.name, target.name)
        for source, *targets in plain
        for target in targets
        if not isinstance(source, Terminal) and not isinstance(target, Terminal)
    ]
    return {name for knot in knots(pairs) for name in knot}


def double_edge(look: Look) -> Iterator[Problem]:
    """No two statements declare the same delegate, handoff or error edge differently: their order is no meaning."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for name, statement in distinct(look):
        match statement:
            case DelegateStatement() | HandoffStatement():
                verb = "delegates" if isinstance(statement, DelegateStatement) else "hands_off"
                seen.update((name, verb, target.name) for target in statement.targets)
            case ErrorStatement():
                seen.update((name, "on_error", qualified(kind)) for kind in statement.catch)
            case _:
                pass
    for (name, verb, what), count in seen.items():
        if count > 1:
            where = (name,) if verb == "on_error" else (name, what)
            message = f"{name!r}.{verb}(...) names {what!r} {count} times, and which of them holds is not said."
            yield Problem("double-edge", where, message, "Keep one of them.")


def name_clash(look: Look) -> Iterator[Problem]:
    """Two nodes of one graph do not share a name."""
    first: dict[str, Node[Any]] = {}
    clashes: set[str] = set()
    for node in look.graph.mentioned():
        other = first.setdefault(node.name, node)
        same = other is node or (other == node and _model_of(other) is _model_of(node))
        if not same and node.name not in clashes:
            clashes.add(node.name)
            message = f"two different nodes have the name {node.name!r}."
            hint = f"Rename one, as {node.name}.named('...'); a node is its name in its graph."
            yield Problem("name-clash", (node.name,), message, hint)


def _model_of(node: Node[Any]) -> object:
    """What an agent asks: no part of what it is, but of two with one name only one could be asked."""
    return node.model if isinstance(node, Agent) else None


def unreachable(look: Look) -> Iterator[Problem]:
    """Every node can be reached from START."""
    if look.compiled.start is None:
        return

    said: dict[Key, list[Key]] = {}  # of two next statements the tables hold one, and that is a problem of its own
    for statement in look.graph.statements:
        source, *targets = (end if isinstance(end, Terminal) else end.name for end in ends(statement))
        said.setdefault(source, []).extend(targets)
    heads: list[Key] = [Terminal.START]
    if look.compiled.escalate is not None:
        heads.append(look.compiled.escalate.target)
    found = reach(heads, lambda key: said.get(key, ()))
    for name in look.compiled.stations:
        if name not in found:
            hint = "Lead an edge to it, or take its statements out."
            yield Problem("unreachable", (name,), f"nothing that begins at START leads to {name!r}.", hint)


def no_end(look: Look) -> Iterator[Problem]:
    """Every node that the token of an activation can come to has a way to END; callees report instead."""
    ends: list[Key] = [Terminal.END]
    escalate = look.compiled.escalate
    if escalate is not None and look.compiled.stations[str(escalate.target)].out is None:
        ends.append(escalate.target)
    found = reach(ends, lambda key: [edge.source for edge in look.before.get(key, ())])
    stuck = [
        name for name in look.compiled.stations
        if name not in found and (name in look.reached or name not in look.callees)
    ]  # fmt: skip
    after = {name: names_of(edge.target for edge in look.after.get(name, ())) for name in stuck}
    told: set[str] = set()
    for name in stuck:
        ring = names_of(reach([name], lambda key: after.get(str(key), ())))
        if name in told or not all(name in reach([other], lambda key: after.get(str(key), ())) for other in ring):
            continue  # it leads to one that is to blame
        told |= ring
        if not after[name]:
            hint = f"Lead it on, as {name} >> END."
            yield Problem("no-end", (name,), f"there is no way from {name!r} to END.", hint)
        else:
            nodes = tuple(sorted(ring))
            message = f"there is no way from {listed(nodes)} to END: what is led there goes round for ever."
            yield Problem("no-end", nodes, message, f"Let one of them choose, as {name}.choose(when(..., END), ...).")


def dead_edge(look: Look) -> Iterator[Problem]:
    """A node that always gives control back has no next statement: a callee, and a person who is handed to."""
    only_called = look.callees - look.reached
    handed = _only_handed_to(look)
    sources = (statement.source for statement in look.graph.statements if isinstance(statement, NextLike))
    for name in sorted({source.name for source in sources if not isinstance(source, Terminal)}):
        targets = {edge.target for edge in out_edges(look.compiled.stations[name].out)}
        if name in only_called:
            message = f"{name!r} is entered by delegation alone, so its next statement is never taken."
            hint = "Take the statement out, or make a Graph of its steps and delegate to that."
            yield Problem("dead-edge", (name,), message, hint)
        elif name in handed and isinstance(look.compiled.stations[name].node, Human) and targets != {Terminal.END}:
            message = f"{name!r} is a person whom only handoffs reach: it gives control back, and never goes on."
            hint = "Take the statement out, and let who handed over go on; or ask the person over a next edge."
            yield Problem("dead-edge", (name,), message, hint)


def _only_handed_to(look: Look) -> set[str]:
    """Return the nodes that only handoffs lead to."""
    compiled = look.compiled
    handed = {name for station in compiled.stations.values() for name in station.handoffs}
    others = {str(edge.target) for edge in out_edges(compiled.start)}
    if compiled.escalate is not None:
        others.add(str(compiled.escalate.target))
    for station in compiled.stations.values():
        others.update(str(edge.target) for edge in (*out_edges(station.out), *station.errors))
        others.update(station.delegates)
        if isinstance(station.out, MapOut):
            others.add(str(station.out.region.join))
    return handed - others


def unbounded_cycle(look: Look) -> Iterator[Problem]:
    """Every cycle of control has a bound on an edge, on a node or on the graph."""
    edges = loose_edges(look)
    for knot in knots(edges):
        cycle = a_cycle(knot, edges)
        message = f"the cycle {' → '.join(map(repr, (*cycle, cycle[0])))} has no bound."
        hint = "Give one of its edges max_hops=, one of its nodes max_visits=, or the graph max_hops=."
        yield Problem("unbounded-cycle", cycle, message, hint)


# --- the context and the contracts -----------------------------------------------------------------------------------


def into_field(look: Look) -> Iterator[Problem]:
    """What `into=` names is a field of the context that can take what comes."""
    for station in look.compiled.stations.values():
        node = station.node
        if node.into is not None:
            said = f"{station.name!r} has into={node.into!r}"
            yield from _into(look, node.into, _output_of(look, node), (station.name,), said)
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement) and statement.into is not None:
            said = f"{statement.source.name!r}.delegates(...) has into={statement.into!r}"
            yield from _into(look, statement.into, statement.report, (statement.source.name,), said)


def _output_of(look: Look, node: Node[Any]) -> Any:
    """Return the type of what a node puts into its field, or None where nothing is known of it."""
    if isinstance(node, Agent) and node.output is None:
        # Where it is called, a contract of the edge's own stands in for the output that it does not name.
        calls = [made for made in look.graph.statements if isinstance(made, DelegateStatement)]
        own = node.name in look.callees and any(made.report is not Report for made in calls)
        return None if own else str
    if isinstance(node, Agent):
        return node.output
    inner = as_graph(node)
    return None if inner is None else inner.output


def _into(look: Look, field: str, comes: Any, where: tuple[str, ...], said: str) -> Iterator[Problem]:
    context = look.graph.context
    info = context.model_fields.get(field)
    if info is None:
        message = f"{said}, which is no field of {context.__name__}."
        hint = f"Its fields are {listed(context.model_fields) or 'none'}."
        yield Problem("into-unknown", where, message, hint)
        return
    takes: Any = info.annotation
    reducer = reducer_of(info.metadata)
    if reducer is append and typing.get_origin(takes) is tuple:
        takes = typing.get_args(takes)[0]
    elif reducer is not None:
        return  # what another reducer takes is said by its own annotation, and validated when it comes
    kinds = [kind for kind in _members(takes) if kind is not types.NoneType]
    if kinds and all(_never_fits(comes, kind) for kind in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        message = f"{said}, and that field takes {wanted}, not {comes.__name__}."
        yield Problem("into-type", where, message, "Change the field's type, or the contract.")


def _never_fits(comes: Any, takes: Any) -> bool:
    """Tell whether no value of one type is ever taken as another, as far as that can be said of plain types."""
    if is_model(takes):
        return (is_model(comes) and not issubclass(comes, takes)) or comes in _PLAIN or _is_text(comes)
    return (takes in _PLAIN and is_model(comes)) or (takes is str and comes in (int, float, bool))


_PLAIN = (str, int, float, bool)


def _is_text(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, str)


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; a type alone is its only member."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def is_model(kind: Any) -> bool:
    """Tell whether a type is a class of pydantic models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def contract_types(look: Look) -> Iterator[Problem]:
    """What crosses a delegate edge is a `Brief` downwards and a pydantic model upwards."""
    for statement in look.graph.statements:
        if isinstance(statement, DelegateStatement):
            name, brief, report = statement.source.name, statement.brief, statement.report
            if not (is_model(brief) and issubclass(brief, Brief)):
                message = f"{name!r}.delegates(brief={brief!r}): a class derived from Brief is needed."
                yield Problem("contract-type", (name,), message, "Derive it from Brief; it may add fields.")
            if not is_model(report):
                message = f"{name!r}.delegates(report={report!r}): a pydantic model is needed."
                yield Problem("contract-type", (name,), message, "Give a class derived from pydantic.BaseModel.")


def unknown_field(look: Look) -> Iterator[Problem]:
    """What a node declares to read and write are fields of the context."""
    known = set(look.graph.context.model_fields)
    for station in look.compiled.stations.values():
        declared = (station.node.reads or frozenset[str]()) | (station.node.writes or frozenset[str]())
        for field in sorted(declared - known):
            message = f"{station.name!r} declares the field {field!r}, which {look.graph.context.__name__} has not."
            hint = f"Its fields are {listed(look.graph.context.model_fields) or 'none'}."
            yield Problem("unknown-field", (station.name,), message, hint)


def context_type(look: Look) -> Iterator[Problem]:
    """A function that says which context it runs on stands in a graph of that one, or of one derived from it."""
    mine = look.graph.context
    for station in look.compiled.stations.values():
        node = station.node
        wanted = context_of(node.fn) if isinstance(node, FunctionNode) else None
        if wanted is not None and not issubclass(mine, wanted):
            message = f"{station.name!r} takes a State[{wanted.__name__}], and the graph runs on {mine.__name__}."
            hint = f"Write State[{mine.__name__}], or derive {mine.__name__} from {wanted.__name__}."
            yield Problem("context-type", (station.name,), message, hint, "warning")


def enter_missing(look: Look) -> Iterator[Problem]:
    """The context of a nested graph can be made where it is entered."""
    called = {target for station in look.compiled.stations.values() for target in station.delegates}
    for station in look.compiled.stations.values():
        inner = as_graph(station.node)
        if inner is None or inner.enter is not None:
            continue
        fresh = inner.context is not look.graph.context
        left = _left_over(inner.context)
        if left and (station.name in called or (fresh and station.name in look.reached)):
            way = "by delegation" if station.name in called else "from a graph with another context"
            message = (
                f"{station.name!r} is entered {way}, and nothing fills {listed(left)} of {inner.context.__name__}."
            )
            hint = "Give the graph enter=, a function that makes its context, or the fields defaults."
            yield Problem("enter-missing", (station.name,), message, hint)


def _left_over(context: type[Context]) -> list[str]:
    """The required fields of a context of which only the first, if it is a str, is given."""
    fields = list(context.model_fields.items())
    filled = fields[:1] if fields and fields[0][1].annotation is str else []
    return [name for name, info in fields[len(filled) :] if info.is_required()]


# --- warnings --------------------------------------------------------------------------------------------------------


def no_default(look: Look) -> Iterator[Problem]:
    """A choose has a default, or its token may end there."""
    for source, out in look.compiled.outs():
        if isinstance(out, ChooseOut) and out.default is None:
            name = key_text(source)
            message = f"choose at {name!r} has no default: where no case holds, the token ends there."
            yield Problem("no-default", (name,), message, "Add default=.", "warning")


def no_max_items(look: Look) -> Iterator[Problem]:
    """A map says how many lanes it starts at most."""
    for source, out in look.compiled.outs():
        if isinstance(out, MapOut) and out.max_items is None:
            name = key_text(source)
            message = f"map at {name!r} has no max_items, so no bound holds for what its lanes do."
            yield Problem("no-max-items", (name,), message, "Add max_items=.", "warning")
