"""`worst_case`: upper bounds for any run of a graph, proved from its structure before it runs.

How often control comes to each node is worked out in `flows`, what that adds up to in `counting`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from graphflow.graphs.counting import AtMost, Counter
from graphflow.graphs.graph import Graph
from graphflow.graphs.look import INF
from graphflow.graphs.spend import CALLS
from graphflow.model.frozen import FrozenDict

DIMENSIONS: Final = (*CALLS, "concurrent", "depth")


@dataclass(frozen=True, slots=True)
class WorstCase:
    """What a run of a graph can do at most; each number is a whole number, or infinite.

    Tokens and money are not among them: no structure says how much an agent reads. Only a `Budget` bounds those.

    Attributes:
        graph: the name of the graph.
        node_runs: attempts of nodes, of every kind.
        model_calls: calls of models.
        tool_calls: calls of tools.
        concurrent: bodies of nodes that run at one moment, also those of branches that come too late for a join; an
            agent counts once, with all its tools.
        depth: delegations nested in each other.
        limits: the same five, where budgets end a run before its structure does.
        reasons: for each number that is infinite, why.
        visits: for each node, by the names of its path, how often it is entered; where paths are very many or
            very long, only of the first of them.
    """

    graph: str
    node_runs: float
    model_calls: float
    tool_calls: float
    concurrent: float
    depth: float
    limits: FrozenDict[str, float]
    reasons: FrozenDict[str, str]
    visits: FrozenDict[tuple[str, ...], float]

    def __repr__(self) -> str:
        """Show the table, as a notebook and a debugger ask for it; the visits are left out."""
        return str(self)

    def __str__(self) -> str:
        """Show a small table."""
        rows = [("", "structure", "with budget")]
        rows += [
            (name.replace("_", " "), _number(getattr(self, name)), _number(self.limits[name])) for name in DIMENSIONS
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"worst case of {self.graph!r}"]
        for first, *numbers in rows:
            cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join(["", first.ljust(widths[0]), *cells]).rstrip())
        lines += [f"  {name.replace('_', ' ')} without bound: {why}" for name, why in self.reasons.items()]
        return "\n".join(lines)


def worst_case(graph: Graph[Any]) -> WorstCase:
    """Prove what any run of a graph can do at most, from its structure alone.

    The numbers hold for graphs without errors: nothing at run time exceeds them. A graph is a value, so the answer is
    kept with it.
    """
    kept: WorstCase | None = graph.__dict__.get("_worst_case")
    if kept is None:
        kept = graph.__dict__["_worst_case"] = _worst_case(graph)
    return kept


def _worst_case(graph: Graph[Any]) -> WorstCase:
    structure = Counter(graph)
    numbers = _numbers(structure.run())
    budgets = any(inner.budget is not None for inner in structure.graphs)
    return WorstCase(
        graph=graph.name,
        **numbers,
        limits=FrozenDict(_numbers(Counter(graph, structure).run()) if budgets else numbers),
        reasons=FrozenDict({name: structure.why(name) for name, number in numbers.items() if number == INF}),
        visits=FrozenDict(structure.visits()),
    )


def _numbers(case: AtMost) -> dict[str, float]:
    return dict(zip(DIMENSIONS, (*case.spend, case.concurrent, case.depth), strict=True))


def _number(value: float) -> str:
    if value == INF:
        return "no bound"
    return f"{value:,}" if value < 10**15 else f"about 10^{int(math.log10(value))}"
