"""What is written on nodes, edges and graphs besides their names: bounds, contracts, policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from graphflow.graphs.agent_rules import type_name
from graphflow.graphs.building import asks_person
from graphflow.graphs.compiled import Edge, ForkOut, Key, MapOut, Out, Station, out_edges
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.contract import Brief, Report
from graphflow.model.thread import History, Last
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.edges import DelegateStatement
from graphflow.nodes.human import Human
from graphflow.nodes.join import Join
from graphflow.nodes.tools import AskUser, Tool
from graphflow.visualize.text import count, shown

NAME: Final = 32
"""How many characters of a name stand in a fact."""

TOOL: Final = 20
"""How many characters of the name of a tool, of which there may be several."""

NAMES: Final = 40
"""How many characters several names in one fact may have; there is always one name."""

_COUNTS: Final = (
    ("node_runs", "node run", "node runs"),
    ("model_calls", "model call", "model calls"),
    ("tool_calls", "tool call", "tool calls"),
    ("retries", "retry", "retries"),
    ("tokens", "token", "tokens"),
)


def budget_words(budget: Budget | None) -> tuple[str, ...]:
    """Say the amounts of a budget, those that are bounded.

    >>> budget_words(Budget(model_calls=12, usd="0.10", seconds=60))
    ('12 model calls', '$0.10', '60 s')
    """
    if budget is None:
        return ()
    words = [
        count(amount, noun, plural) for name, noun, plural in _COUNTS if (amount := getattr(budget, name)) is not None
    ]
    if budget.usd is not None:
        words.append(f"${budget.usd:f}")
    if budget.seconds is not None:
        words.append(f"{budget.seconds:g} s")
    return tuple(words)


def node_facts(station: Station) -> tuple[str, ...]:
    """Say what a node is and what bounds it; nothing that its function or its values hold."""
    node = station.node
    words: list[str] = []
    if node.kind not in {"function", "graph"}:
        words.append(shown(node.kind, NAME))
    if isinstance(node, Join):
        words += [f"waits for {node.policy}"] * (node.policy.kind != "all")
        words += ["cancels the others"] * (node.losers == "cancel")
    words += ["asks a person"] * asks_person(node)
    words += _bounds(node)
    words += _of_agent(node) if isinstance(node, Agent) else []
    words += ["gate"] * (node.gate and not isinstance(node, Human))
    words += ["irreversible"] * node.irreversible
    words += _into(node.into)
    return tuple(words)


def _bounds(node: Node[Any]) -> list[str]:
    turns: int | None = getattr(node, "max_turns", None)
    costs: Budget | None = getattr(node, "costs", None)
    words = [count(node.retries, "retry", "retries")] * bool(node.retries)
    words += _at_most(turns, "turn") + _at_most(node.max_visits, "visit")
    if node.timeout is not None:
        words.append(f"≤ {node.timeout:g} s")
    amounts = [amount for amount in budget_words(costs) if not amount.startswith("0 ")]
    words += [f"costs ≤ {amount}" for amount in amounts] if amounts or costs is None else ["costs nothing"]
    return words


def _of_agent(agent: Agent) -> list[str]:
    """Say what an agent may use, what it sees and what it answers with; nothing of its model or instructions."""
    words = [] if agent.output is None else [f"gives {shown(type_name(agent.output), NAME)}"]
    words += _history(agent.history)
    words += _names("tool", [_tool(tool) for tool in agent.tools])
    words += _at_most(agent.max_tool_calls, "tool call") * any(isinstance(tool, Tool) for tool in agent.tools)
    words += [] if agent.rights is None else _names("right", sorted(agent.rights)) or ["no rights"]
    return words + ["denies some calls"] * (agent.deny is not None)


def _tool(tool: Tool | AskUser) -> str:
    if isinstance(tool, AskUser):
        return f"{shown(tool.name, TOOL)} (a person)"
    return shown(tool.name, TOOL) + " (approval)" * tool.approval


def _names(noun: str, names: Sequence[str]) -> list[str]:
    """List names as one short phrase, the first of them where they are many."""
    if not names:
        return []
    most = 1
    while most < len(names) and sum(map(len, names[: most + 1])) + 2 * most <= NAMES:
        most += 1
    more = f" +{len(names) - most}" if most < len(names) else ""
    return [f"{noun}{'s' * (len(names) > 1)} {', '.join(names[:most])}{more}"]


def _history(policy: History | None) -> list[str]:
    """Say a history policy, if it is not the usual one."""
    if policy is None or policy == "note":
        return []
    if isinstance(policy, Last):
        return [f"history last {policy.count}"]
    return [f"history {policy if isinstance(policy, str) else shown(getattr(policy, '__name__', 'its own'), NAME)}"]


def graph_facts(graph: Graph[Any], station: Station | None) -> tuple[str, ...]:
    """Say the bounds of a graph, and those it has as a node of another."""
    words = [f"≤ {amount}" for amount in budget_words(graph.budget)]
    words += [f"depth ≤ {graph.max_depth}"] * (graph.max_depth is not None)
    words += _at_most(graph.max_handoffs, "handoff") + _at_most(graph.max_hops, "hop")
    if isinstance(graph.output, type):
        words.append(f"gives {shown(graph.output.__name__, NAME)}")
    return (*words, *node_facts(station)) if station is not None else tuple(words)


def edge_facts(edge: Edge, out: Out | None, *, implied: bool = False) -> tuple[str, ...]:
    """Say the condition of an edge, its bound and its contract, the condition first.

    Args:
        edge: the edge.
        out: the next statement of its source.
        implied: whether no statement declares it, as where a person gives control back.
    """
    words = [shown(edge.label, NAME)] * bool(edge.label)
    match out:
        case MapOut() if edge is out.edge:
            words.append(f"each of {shown(getattr(out.over, '__name__', 'its items'), NAME)}")
            words += _at_most(out.max_items, "item")
        case _:
            pass
    words += _at_most(edge.max_hops, "hop") + _history(None if implied else edge.history)
    words += ["collects failures"] * (collected_at(edge, out) is not None)
    return (*words, *_contract(edge.contract)) if edge.contract is not None else tuple(words)


def collected_at(edge: Edge, out: Out | None) -> Key | None:
    """Return where failures behind an edge of a fork or map are collected; None if they are not."""
    if isinstance(out, (ForkOut, MapOut)) and out.failure == "collect" and edge in out_edges(out):
        return out.region.join
    return None


def _contract(declared: DelegateStatement) -> list[str]:
    words: list[str] = []
    if declared.brief is not Brief:
        words.append(f"asks {shown(declared.brief.__name__, NAME)}")
    if declared.report is not Report:
        words.append(f"gets {shown(declared.report.__name__, NAME)}")
    words += _into(declared.into)
    if declared.share != "pool":
        words.append(f"share {declared.share}")
    if declared.timeout is not None:
        words.append(f"≤ {declared.timeout:g} s")
    return words + _names("grant", [shown(name, TOOL) for name in sorted(set(declared.grant))])


def _at_most(bound: int | None, noun: str) -> list[str]:
    return [] if bound is None else [f"≤ {count(bound, noun)}"]


def _into(field: str | None) -> list[str]:
    return [] if field is None else [f"into {shown(field, NAME)}"]
