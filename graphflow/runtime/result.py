"""What a caller gets: the result of a run, what it spent, and the questions it waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from graphflow.events import RunStatus
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.contract import Reason, Report
from graphflow.model.frozen import FrozenDict
from graphflow.model.secrets import veiled
from graphflow.model.thread import Thread
from graphflow.runtime.ledger import Amount, budget_of

C_co = TypeVar("C_co", bound=Context, covariant=True)
Amounts = dict[str, list[Amount]]


@dataclass(frozen=True, slots=True)
class Question:
    """What a waiting run asks a person.

    Attributes:
        id: give it to `run.answer`.
        path: the text of the path of the node that asks.
        text: the question.
        schema: the type that the answer must have, or None for any JSON value.
    """

    id: str
    path: str
    text: str
    schema: Any


class Spending:
    """What a run spent; all of it is worked out when it is asked for.

    Attributes:
        total: over the whole tree.
        by_node: by the names of the path of each node, joined with "/".
        by_edge: inside each delegation or nested graph that has closed, by the edge that opened it.
    """

    def __init__(
        self, total: Callable[[], list[Amount]], nodes: Callable[[], Amounts], edges: Callable[[], Amounts]
    ) -> None:
        """Take what makes the total and the tables."""
        self._total, self._nodes, self._edges = total, nodes, edges

    @functools.cached_property
    def total(self) -> Budget:
        """What was spent over the whole tree."""
        return budget_of(self._total())

    @functools.cached_property
    def by_node(self) -> FrozenDict[str, Budget]:
        """What each node spent."""
        return FrozenDict({name: budget_of(amounts) for name, amounts in sorted(self._nodes().items())})

    @functools.cached_property
    def by_edge(self) -> FrozenDict[str, Budget]:
        """What was spent behind each edge that opened a frame."""
        return FrozenDict({name: budget_of(amounts) for name, amounts in sorted(self._edges().items())})

    def __eq__(self, other: object) -> bool:
        """Compare the total and the tables."""
        if not isinstance(other, Spending):
            return NotImplemented
        return (self.total, self.by_node, self.by_edge) == (other.total, other.by_node, other.by_edge)

    def __hash__(self) -> int:
        """Hash by the total; equality looks at everything."""
        return hash(self.total)

    def __repr__(self) -> str:
        """Show the total."""
        return f"Spending({self.total!r})"


@dataclass(frozen=True, slots=True)
class Result(Generic[C_co]):
    """How a run ended.

    Attributes:
        status: "completed"; "partial" if something was lost on the way; "failed"; "exhausted" at a bound; "waiting"
            for people; "cancelled".
        reason: why it is not completed, or None.
        output: what reached END, or None.
        context: the root's context as it was last committed.
        report: the output if it is a report; what was found, as partial, if a bound ended the run; a failed report if
            the run failed; else None.
        questions: what a waiting run asks.
        failures: what was collected or reported as failed on the way.
        refused: what a bound refused on the way: calls, hops, retries, effects. It does not make a run partial.
        spent: what was spent, in all, by node and by edge.
        run_id: the run's id.
        thread: what was said in the graph's own thread, agents in branches, teams and inner graphs left out, and what
            was answered last, whoever did; empty where no agent is in the graph.
        active: the agent that spoke last there, or the graph that had control; or None.
    """

    status: RunStatus
    reason: Reason | None
    output: Any
    context: C_co
    report: Report | None
    questions: tuple[Question, ...]
    failures: tuple[Reason, ...]
    refused: tuple[Reason, ...]
    spent: Spending
    run_id: str
    thread: Thread = ()
    active: str | None = None

    def __repr__(self) -> str:
        """Show how it ended, what came out of it, cut and without secrets, and what is asked; no context."""
        shown = [f"status={self.status!r}"]
        if self.output is not None:
            shown.append(f"output={_cut(self.output)}")
        if self.reason is not None:
            shown.append(f"reason={self.reason.text!r}")
        if self.questions:
            shown.append(f"questions={[question.id for question in self.questions]!r}")
        return f"Result({', '.join(shown)}, run_id={self.run_id!r})"


_WIDEST: Final = 100
"""How much of an output a result shows of itself."""


def _cut(output: Any) -> str:
    try:
        text = repr(veiled(output))
    except Exception as error:  # noqa: BLE001 - a user's class, or a number of too many digits
        return f"<{type(output).__name__} ({type(error).__name__} in its repr)>"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
