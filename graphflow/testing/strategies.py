"""Whether a trace is one that a strategy allows: what each of the nine promises, held against the events of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from graphflow.errors import UsageError
from graphflow.events import Event
from graphflow.graphs.graph import Graph
from graphflow.model.ids import parse_path
from graphflow.nodes.human import Human
from graphflow.testing.activation import Activation, WrongShape, activation
from graphflow.testing.control_rules import HANDOFF, ROUTER, SWARM
from graphflow.testing.plan_rules import PLAN_EXECUTE
from graphflow.testing.talk_rules import MANUAL, RANDOM, ROUND_ROBIN
from graphflow.testing.work_rules import PARALLEL, SEQUENTIAL

Strategy = Literal[
    "handoff", "router", "sequential", "parallel", "swarm", "round_robin", "random", "plan_execute", "manual"
]
"""The names of the nine strategies."""

_Rule = Callable[[Activation], Iterator[str]]

_STOPS: Final = {"max_hops", "max_visits", "max_handoffs", "ping_pong", "repetition", "no_progress"}


def strategy_violations(
    strategy: Strategy, graph: Graph[Any], events: Iterable[Event], at: str = ""
) -> tuple[str, ...]:
    """Say what in a run is not as a strategy promises: who comes next, what they get, when it ends, what it gives.

    It goes by the events, and by the members and bounds of the graph; a run that was broken off is judged as far as it
    came.

    Args:
        strategy: the name of the strategy.
        graph: the graph that the strategy's function made.
        events: the events of the whole run, in order, as a listener or a handle tells them.
        at: the text of the path of one activation, where the graph stands inside another one: "desk", "desk:2".

    Returns:
        A sentence for each violation, with names and numbers of events; none if all is well.

    Raises:
        UsageError: if there is no such strategy, or no such path.

    >>> from graphflow import Agent, run_sync, strategies
    >>> from graphflow.testing import ScriptedModel
    >>> bull, bear = (Agent(name, model=ScriptedModel("Yes.")) for name in ("bull", "bear"))
    >>> events = []
    >>> talk = strategies.round_robin("talk", bull, bear, turns=2)
    >>> result = run_sync(talk, strategies.Conversation(task="Buy?"), listeners=[events.append])
    >>> strategy_violations("round_robin", talk, events)
    ()
    """
    if strategy not in RULES:
        msg = f"strategy_violations({strategy!r}): one of {', '.join(map(repr, get_args(Strategy)))} is needed."
        raise UsageError(msg)
    try:
        path = parse_path(at)
    except ValueError as error:
        msg = f"strategy_violations(at={at!r}): {error}"
        raise UsageError(msg) from error
    seen = activation(graph, events, path)
    strangers = [visit for visit in seen.visits if visit.name not in graph.nodes]
    if strangers:
        return tuple(f"{visit} began, and {graph.name!r} has no such node" for visit in strangers)
    try:
        return tuple(dict.fromkeys(found for rule in RULES[strategy] for found in rule(seen)))
    except WrongShape as error:
        return (f"{graph.name!r} is no graph of {strategy}: {error}",)


# --- what all nine hold ----------------------------------------------------------------------------------------------


def takes_declared_edges(seen: Activation) -> Iterator[str]:
    """Control moves over declared edges alone, from a node that has ended, and nobody is entered without one."""
    known = {edge.name for edge in seen.graph.compiled.edges()}
    entered: Counter[Any] = Counter()
    passed: defaultdict[Any, list[int]] = defaultdict(list)
    for move in seen.moves:
        passed[move.edge].append(move.seq)
        source = move.edge.source
        ended = [one for one in seen.of(source or "") if one.over is not None and one.over < move.seq]
        if move.edge not in known:
            yield f"seq {move.seq}: the edge {move.edge} was taken, and {seen.where} has none"
        elif source is not None and not ended:
            yield f"seq {move.seq}: the edge {move.edge} was taken, and {source!r} had not ended"
    for visit in seen.visits:
        entered[visit.edge] += 1
        if visit.edge.kind == "escalate":
            if not any(seq < visit.began for seq, _, _ in seen.refused):
                yield f"{visit} was entered over {visit.edge}, and no bound had refused anything"
            continue
        person = visit.edge.kind == "handoff" and isinstance(seen.graph.nodes.get(visit.edge.source or ""), Human)
        if person or (visit.edge.kind == "fork" and visit.edge not in known):
            continue  # a person gives control back; where every branch has failed, the fork itself leads to the join
        taken = bisect_left(passed[visit.edge], visit.began)
        if visit.edge.target != visit.name or taken < entered[visit.edge]:
            yield f"{visit} was entered over {visit.edge}, which had not been taken for it"


def ends_every_visit(seen: Activation) -> Iterator[str]:
    """Where it came to its end, everybody has."""
    if seen.status in ("completed", "partial") and not seen.refused:
        for visit in seen.visits:
            if visit.over is None:
                yield f"{visit} never ended, and {seen.where} is {seen.status}"


def one_at_a_time(seen: Activation) -> Iterator[str]:
    """Nobody works while somebody else has the task."""
    for one, after in pairwise(seen.visits):
        if one.over is None or one.over > after.began:
            yield f"{after} began, and {one} had not ended"


def keeps_its_bounds(seen: Activation) -> Iterator[str]:
    """No edge is taken, no node is visited and nothing is handed over more often than declared."""
    taken = Counter(move.edge for move in seen.moves)
    for edge in seen.graph.compiled.edges():
        if edge.max_hops is not None and taken[edge.name] > edge.max_hops:
            yield f"the edge {edge.name} was taken {taken[edge.name]} times, and may be {edge.max_hops} times"
    handed, most = sum(move.edge.kind == "handoff" for move in seen.moves), seen.graph.max_handoffs
    if most is not None and handed > most:
        yield f"{seen.where} handed over {handed} times, and may {most} times"
    for name, node in seen.graph.nodes.items():
        visits = seen.of(name)
        if node.max_visits is not None and len(visits) > node.max_visits:
            yield f"{visits[node.max_visits]} is one visit more than the {node.max_visits} that {name!r} may have"


def no_bound_is_success(seen: Activation) -> Iterator[str]:
    """Who reaches a bound has not completed: it is exhausted, or goes to the escalate node."""
    for seq, path, refused in seen.refused:
        name = path[-1].name if path != seen.at else ""
        calls = name and seen.graph.compiled.stations[name].delegates
        if refused.bound not in _STOPS or seen.escalated or (calls and "over" not in refused.wanted):
            continue
        after = [move for move in seen.moves if move.seq > seq]
        if after or (not seen.at and seen.status == "completed"):
            yield f"seq {seq}: the bound {refused.bound} refused {refused.wanted}, and {seen.where} went on as if done"


def completes_at_its_end(seen: Activation) -> Iterator[str]:
    """A run that is completed has come to its end."""
    if seen.status == "completed" and not seen.finished and not seen.escalated:
        yield f"{seen.where} is completed, and never came to its end"


_ANY: Final[tuple[_Rule, ...]] = (takes_declared_edges, ends_every_visit, keeps_its_bounds, completes_at_its_end)
_SINGLE: Final[tuple[_Rule, ...]] = (*_ANY, one_at_a_time, no_bound_is_success)

RULES: Final[dict[str, tuple[_Rule, ...]]] = {
    "handoff": (*_SINGLE, *HANDOFF),
    "router": (*_SINGLE, *ROUTER),
    "sequential": (*_SINGLE, *SEQUENTIAL),
    "parallel": (*_ANY, *PARALLEL),
    "swarm": (*_SINGLE, *SWARM),
    "round_robin": (*_SINGLE, *ROUND_ROBIN),
    "random": (*_SINGLE, *RANDOM),
    "plan_execute": (*_SINGLE, *PLAN_EXECUTE),
    "manual": (*_SINGLE, *MANUAL),
}
"""What each strategy holds."""
