"""What a caller gets: the result of a run, what it spent, and the questions it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from graphflow.events import RunStatus
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.contract import Reason, Report
from graphflow.model.frozen import FrozenDict

C_co = TypeVar("C_co", bound=Context, covariant=True)


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


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run spent.

    Attributes:
        total: over the whole tree.
        by_node: by the names of the path of each node, joined with "/".
        by_edge: inside each delegation or nested graph, by the edge that opened it.
    """

    total: Budget
    by_node: FrozenDict[str, Budget]
    by_edge: FrozenDict[str, Budget]


@dataclass(frozen=True, slots=True)
class Result(Generic[C_co]):
    """How a run ended.

    Attributes:
        status: "completed"; "partial" if something was lost on the way; "failed"; "exhausted" at a bound; "waiting"
            for people; "cancelled".
        reason: why it is not completed, or None.
        output: what reached END, or None.
        context: the root's context as it was last committed.
        report: the output if it is a report, a failed report if the run failed, else None.
        questions: what a waiting run asks.
        failures: what was collected or reported as failed on the way.
        spent: what was spent, in all, by node and by edge.
        run_id: the run's id.
    """

    status: RunStatus
    reason: Reason | None
    output: Any
    context: C_co
    report: Report | None
    questions: tuple[Question, ...]
    failures: tuple[Reason, ...]
    spent: Spending
    run_id: str

    def __repr__(self) -> str:
        """Show status, reason and id; never what a context or an output holds."""
        why = f", reason={self.reason.text!r}" if self.reason is not None else ""
        return f"Result(status={self.status!r}{why}, run_id={self.run_id!r})"
