"""What one run of a rehearsal came to, counted while it goes on."""

from __future__ import annotations

from typing import Any

from graphflow.events import Decision, EdgeTaken, FrameOpened
from graphflow.model.contract import Reason
from graphflow.model.ids import names_text, parse_path
from graphflow.nodes.client import Usage
from graphflow.rehearsal.results import End, Sample
from graphflow.runtime.advance import Fold


class Tally:
    """The counts of one run that its fold does not keep."""

    __slots__ = ("_depth", "_hops", "_peak", "_reads", "_writes", "questions")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.questions = 0
        self._hops = self._depth = self._peak = self._reads = self._writes = 0

    def decided(self, decisions: list[Decision], slots: int) -> None:
        """Count what was decided, and how many bodies and agents are at work."""
        self._peak = max(self._peak, slots)
        for decision in decisions:
            if isinstance(decision, EdgeTaken):
                self._hops += 1
            elif isinstance(decision, FrameOpened):
                self._depth = max(self._depth, decision.depth)

    def used(self, usage: Usage | None) -> None:
        """Count what a model has read and written."""
        if usage is not None:
            self._reads += usage.input_tokens
            self._writes += usage.output_tokens

    def sample(self, fold: Fold, seconds: float, active: float) -> Sample:
        """Return what a run that is over came to."""
        ended = fold.ended
        assert ended is not None  # noqa: S101 - it is over
        reason = ended.reason
        if reason is None and ended.status == "partial":
            reason = min(fold.troubles, key=lambda found: found.path, default=None)
        amounts: Any = fold.total()
        node_runs, model_calls, tool_calls, retries, tokens, usd = amounts
        return Sample(
            end=End(ended.status, _why(reason)),
            text="" if reason is None else reason.text,
            seconds=seconds,
            active=active,
            node_runs=node_runs,
            model_calls=model_calls,
            tool_calls=tool_calls,
            retries=retries,
            tokens=tokens,
            input_tokens=self._reads,
            output_tokens=self._writes,
            usd=float(usd),
            hops=self._hops,
            depth=self._depth,
            concurrent=self._peak,
            questions=self.questions,
        )


def _why(reason: Reason | None) -> str:
    """Say in few words what ended a run: the bound, or the kind of error, and the names of where."""
    if reason is None:
        return ""
    what = reason.error_type if reason.code == "failed" and reason.error_type else reason.code
    where = names_text(parse_path(reason.path)) if reason.path else ""
    return f"{what.rpartition('.')[2]} at {where}" if where else what.rpartition(".")[2]
