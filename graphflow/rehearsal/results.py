"""What comes out of a rehearsal: a sample for each run, and what they say together, beside the worst case."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from graphflow.events import RunStatus
from graphflow.graphs.bounds import WorstCase
from graphflow.model.budget import Budget
from graphflow.model.frozen import FrozenDict


@dataclass(frozen=True, slots=True)
class End:
    """How runs end.

    Attributes:
        status: the status of the run.
        why: the bound or the kind of error, and where; "" for one that is completed.
    """

    status: RunStatus
    why: str = ""

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.status}: {self.why}" if self.why else self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of a rehearsal.

    Attributes:
        end: how it ended.
        text: the reason in words, "" for one that is completed.
        seconds: how long it took, waits for people among it.
        active: how much of it was active: what a budget's `seconds` counts.
        node_runs: attempts of nodes.
        model_calls: calls of models.
        tool_calls: calls of tools.
        retries: attempts after the first.
        tokens: tokens in and out, those of effects too.
        input_tokens: tokens that models read.
        output_tokens: tokens that models wrote.
        usd: what it cost.
        hops: traversals of edges.
        depth: delegations nested in each other.
        concurrent: bodies and agents that worked at one moment.
        questions: what people were asked.
    """

    end: End
    text: str
    seconds: float
    active: float
    node_runs: int
    model_calls: int
    tool_calls: int
    retries: int
    tokens: int
    input_tokens: int
    output_tokens: int
    usd: float
    hops: int
    depth: int
    concurrent: int
    questions: int


MEASURES: Final = tuple(item.name for item in fields(Sample) if item.name not in {"end", "text"})
"""What is a number in every sample."""

PROVED: Final = ("node_runs", "model_calls", "tool_calls", "concurrent", "depth")
"""What `worst_case` has a bound for."""

BUDGETED: Final[dict[str, str]] = {
    "active": "seconds", "node_runs": "node_runs", "model_calls": "model_calls", "tool_calls": "tool_calls",
    "retries": "retries", "tokens": "tokens", "usd": "usd",
}  # fmt: skip
"""Which dimension of a budget bounds a measure."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the samples of one measure say together; each number but the mean is that of some run."""

    least: float
    p50: float
    p90: float
    p99: float
    most: float
    mean: float


def summary_of(numbers: Sequence[float]) -> Summary:
    """Return what numbers say together.

    >>> summary_of([3, 1, 2])
    Summary(least=1, p50=2, p90=3, p99=3, most=3, mean=2.0)
    """
    ordered = sorted(numbers)
    p50, p90, p99 = (ordered[max(0, math.ceil(part * len(ordered) / 100) - 1)] for part in (50, 90, 99))
    return Summary(ordered[0], p50, p90, p99, ordered[-1], math.fsum(ordered) / len(ordered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Many runs of a graph with stand-ins, in virtual time.

    Attributes:
        graph: its name.
        seed: what everything was drawn from.
        samples: one for each run, in order.
        worst: what any run can do at most.
        budget: the budget of each run.
        assumed: what was drawn from, a line for each.
        notes: what ran, what did not, and what was not under control.
    """

    graph: str
    seed: int
    samples: tuple[Sample, ...]
    worst: WorstCase
    budget: Budget
    assumed: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self.samples)

    @property
    def ends(self) -> FrozenDict[End, int]:
        """How often runs ended in which way, the most frequent first."""
        counts = Counter(sample.end for sample in self.samples)
        return FrozenDict(dict(sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))))

    def numbers(self, measure: str) -> tuple[float, ...]:
        """Return one measure of every run, in order."""
        return tuple(getattr(sample, measure) for sample in self.samples)

    def summary(self, measure: str) -> Summary:
        """Return what one measure says over all runs."""
        return summary_of(self.numbers(measure))

    def worst_of(self, measure: str) -> float | None:
        """Return what is proved of a measure at most: infinite where there is no bound, None where nothing can be."""
        return float(getattr(self.worst, measure)) if measure in PROVED else None

    def budget_of(self, measure: str) -> float | None:
        """Return what the budget allows of a measure, None where it says nothing."""
        found: Any = getattr(self.budget, BUDGETED[measure]) if measure in BUDGETED else None
        return None if found is None else float(found)

    def excesses(self) -> Iterator[str]:
        """Say where a run did more than was proved; that is a bug of ours, and there is none that we know."""
        for measure in PROVED:
            most, proved = max(self.numbers(measure)), getattr(self.worst, measure)
            if most > proved:
                yield f"{measure} came to {most:g}, and at most {proved:g} was proved"

    def __str__(self) -> str:
        """Show it as a table."""
        from graphflow.rehearsal.table import table  # what is written there starts from here

        return table(self)

    def __repr__(self) -> str:
        """Show graph, runs and seed."""
        return f"<Rehearsal of {self.graph!r}: {self.runs} runs, seed {self.seed}>"
