"""Plans and verdicts that fit: what a planner and a verifier say by default, so that a team which needs them goes on.

What is drawn by the schema of a plan alone names nobody, and every run would end in planning again.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple

from graphflow.graphs.compiled import NextOut, Station
from graphflow.graphs.planning import Plan, RunTool, Verdict
from graphflow.nodes.function import FunctionNode
from graphflow.rehearsal.made import Make, maker

MOST_STEPS: Final = 5

EVEN: Final = 0.5
"""How likely a step needs an earlier one."""


class Worker(NamedTuple):
    """Who may do a step; `arguments` draws what a tool is called with, and is None for others."""

    name: str
    arguments: Make | None


def workers_behind(station: Station, stations: Mapping[str, Station]) -> tuple[Worker, ...]:
    """Return those to whom the node behind a planner may delegate; nobody where that is not clear.

    Raises:
        UsageError: if the arguments of a tool cannot be drawn.
    """
    out = station.out
    target = out.edge.target if isinstance(out, NextOut) else None
    if not isinstance(target, str):
        return ()
    return tuple(_worker(name, stations[name]) for name in stations[target].delegates)


def _worker(name: str, station: Station) -> Worker:
    node = station.node
    if not isinstance(node, FunctionNode) or not isinstance(node.fn, RunTool):
        return Worker(name, None)
    return Worker(name, maker(node.fn.tool.spec.parameters, f"the arguments of {name!r}, a step of a plan"))


def is_plan(kind: object) -> bool:
    """Tell whether what an agent owes is a plan."""
    return isinstance(kind, type) and issubclass(kind, Plan)


def is_verdict(kind: object) -> bool:
    """Tell whether what an agent owes is a verdict."""
    return isinstance(kind, type) and issubclass(kind, Verdict)


def planning(kind: object, make: Make, workers: tuple[Worker, ...]) -> Make:
    """Let what draws a plan draw steps that somebody can do; what is no plan stays as it is drawn."""
    if not workers or not is_plan(kind):
        return make
    return lambda rng: {**make(rng), "steps": _steps(rng, workers)}


def _steps(rng: Random, workers: tuple[Worker, ...]) -> list[dict[str, Any]]:
    """Draw steps for different workers; each may need earlier ones, and has an id that no plan before had."""
    count = rng.randint(1, min(MOST_STEPS, len(workers)))
    name = f"step-{rng.randrange(10**9)}"
    steps: list[dict[str, Any]] = []
    for at, (to, arguments) in enumerate(rng.sample(workers, count)):
        needs = [step["id"] for step in steps if rng.random() < EVEN]
        step: dict[str, Any] = {"id": f"{name}-{at}", "to": to, "objective": f"stand-in of a step for {to}"}
        steps.append({**step, "arguments": {} if arguments is None else arguments(rng), "needs": needs})
    return steps


def judging(kind: object, make: Make, accepted: float) -> Make:
    """Let what draws a verdict accept with a probability."""
    if not is_verdict(kind):
        return make

    def judge(rng: Random) -> dict[str, Any]:
        fits = rng.random() < accepted
        return {**make(rng), "accepted": fits, "why": "" if fits else "the stand-in does not accept it"}

    return judge
