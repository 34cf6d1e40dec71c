"""The short pass: our walk against bare awaits in the same process, as ratios; about a minute.

    python benchmarks/short.py            # a table of ratios of CPU seconds
    python benchmarks/short.py W1 W4      # only some workloads

The floor is the least that could do the same work: plain coroutines, a frozen dataclass replaced at each hop, a task
group for each fan-out. It is measured before and after each workload, and the median of the ratios is shown. The long
pass, beside the other frameworks, is described in docs/performance.md.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Items:
    """The floor's state."""

    items: tuple[Any, ...] = ()


class Case:
    """What the workloads return: something to run, and the answer it must give."""

    def __init__(self, run: Callable[[], Awaitable[Any]], expect: Any) -> None:
        """Take both."""
        self.run, self.expect = run, expect


async def add(state: Items, item: Any) -> Items:
    """Make one immutable step."""
    return replace(state, items=(*state.items, item))


async def spread(branch: Callable[[int], Awaitable[Any]], n: int) -> list[Any]:
    """Run `n` branches in a task group; results in order."""
    found: list[Any] = [None] * n

    async def slot(index: int) -> None:
        found[index] = await branch(index)

    async with anyio.create_task_group() as tasks:
        for index in range(n):
            tasks.start_soon(slot, index)
    return found


def hops(n: int, item: Callable[[int], Any]) -> Case:
    """Build the floor of W1 and W5."""

    async def run() -> int:
        state = Items()
        for index in range(n):
            state = await add(state, item(index))
        return len(state.items)

    return Case(run, n)


def fan(n: int) -> Case:
    """Build the floor of W2."""

    async def branch(index: int) -> Items:
        return await add(Items(), index)

    async def run() -> int:
        return sum(state.items[-1] for state in await spread(branch, n))

    return Case(run, sum(range(n)))


def tree(breadth: int, depth: int) -> Case:
    """Build the floor of W4."""

    async def below(level: int) -> int:
        if level == 0:
            return len((await add(Items(), 1)).items)
        return sum(await spread(lambda _: below(level - 1), breadth))

    return Case(lambda: below(depth), breadth**depth)


def message(index: int) -> dict[str, str]:
    """Return one message of about 1 KB."""
    return {"role": "assistant", "content": f"{index:08d}" + "x" * 1016}


def size_of_tree(breadth: int, depth: int) -> tuple[int, int, int]:
    """Return the supervisors, the leaves and all nodes of W4."""
    leaves = breadth**depth
    supervisors = sum(breadth**level for level in range(depth))
    return supervisors, leaves, supervisors + leaves


async def seconds(case: Any) -> float:
    """Return the CPU seconds of the fastest of three runs, each checked."""
    best = float("inf")
    for _ in range(3):
        gc.collect()
        began = time.process_time()
        answer = await case.run()
        best = min(best, time.process_time() - began)
        assert answer == case.expect, f"{answer!r} instead of {case.expect!r}"
    return best


def main(chosen: list[str]) -> None:
    """Print the table."""
    sys.path.insert(0, str(Path(__file__).parent))
    sys.modules["common"] = sys.modules[__name__]  # the workloads take their helpers from whoever measures them
    ours: Any = importlib.import_module("graphflow_peer")

    plan: list[tuple[str, int, Case, Any]] = [
        ("W1 chain", 1000, hops(1000, lambda _: 1), ours.w1_chain(1000)),
        ("W1 loop", 1000, hops(1000, lambda _: 1), ours.w1_loop(1000)),
        ("W2 fan-out", 100, fan(100), ours.w2(100)),
        ("W2 fan-out", 1000, fan(1000), ours.w2(1000)),
        ("W2 fan-out", 10000, fan(10000), ours.w2(10000)),
        ("W4 hierarchy", 341, tree(4, 4), ours.w4(4, 4)),
        ("W5 growing state", 2000, hops(2000, message), ours.w5(2000)),
    ]
    print(f"{'workload':<18}{'size':>7}{'floor µs':>10}{'ours µs':>10}{'ratio':>8}")
    for name, n, floor, case in plan:
        if chosen and not any(name.startswith(word) for word in chosen):
            continue
        pairs = [(asyncio.run(seconds(floor)), asyncio.run(seconds(case))) for _ in range(ROUNDS)]
        low, own = statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(mine / bare for bare, mine in pairs)
        print(f"{name:<18}{n:>7}{low / n * 1e6:>10.2f}{own / n * 1e6:>10.2f}{ratio:>8.2f}")


msg, hier = message, size_of_tree

if __name__ == "__main__":
    main(sys.argv[1:])
