"""What stands between the members of a sequential team, and behind those of a parallel one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from graphflow.errors import UsageError
from graphflow.graphs.blaming import UNMARKED, Blaming
from graphflow.graphs.conversation import Conversation, Said, TeamReport, joint_report, last_report, said_by, transcript
from graphflow.model.contract import Reason, Report
from graphflow.model.ids import parse_path
from graphflow.model.outcome import NOTHING, Done, Update
from graphflow.model.state import State
from graphflow.model.telling import value_text

Gate: TypeAlias = Callable[[Any], "str | None"]
"""Tells from the state after a stage why to stop there, or None to go on."""


@dataclass(frozen=True)
class AfterStage:
    """Note what a stage said, and ask its gate whether to go on.

    Attributes:
        stage: the stage's name.
        see: whether the next one sees this alone, or everything.
        gate: why to stop, or None; None where there is no gate.
        last: whether nothing follows.
        where: how errors name the call that made the team.
    """

    stage: str
    see: Literal["previous", "all"]
    gate: Gate | None
    last: bool
    where: str = field(default="", kw_only=True, metadata=UNMARKED)

    async def __call__(self, state: State[Conversation]) -> Done:
        """Give on what the next stage sees, or the report of a stop.

        Raises:
            UsageError: if the gate gave neither None nor words.
        """
        value = state.inbox[0].value if state.inbox else NOTHING
        new = said_by(self.stage, value)
        said = (*state.context.said, new)
        after = dataclasses.replace(state, context=state.context.model_copy(update={"said": said}))
        why = self._stops(self.gate, after) if self.gate is not None else None
        if why is not None:
            reason = Reason(code="reported", text=f"stopped after {self.stage!r}: {why}")
            stopped = last_report(said).model_copy(update={"status": "partial", "reason": reason})
            return Done(stopped, update=Update(said=new, over=True))
        seen = value if self.last or self.see == "previous" else transcript(said)
        return Done(seen, update=Update(said=new, over=False))  # one that a gate had ended may begin anew

    def _stops(self, gate: Gate, after: State[Conversation]) -> str | None:
        with Blaming(self.where, f"gates[{self.stage!r}]", gate):
            why = gate(after)
            if why is not None and not (isinstance(cast("object", why), str) and why.strip()):
                msg = (
                    f"the gate of {self.stage!r} gave {value_text(why)}: it says why to stop, in words, or None to "
                    "go on."
                )
                raise UsageError(msg)
            return why


@dataclass(frozen=True)
class Says:
    """Put a member's name to what it said.

    Attributes:
        speaker: the member's name.
    """

    speaker: str

    async def __call__(self, state: State[Any]) -> Said:
        """Return what the member said, with its name."""
        return said_by(self.speaker, state.inbox[0].value if state.inbox else NOTHING)


@dataclass(frozen=True)
class Together:
    """Put what the members said into one report, in their order.

    Attributes:
        members: in their order.
        gathered: whether a join gives on all of it in one piece, where each has its name already.
    """

    members: tuple[str, ...]
    gathered: bool

    async def __call__(self, state: State[Any]) -> TeamReport:
        """Make the report."""
        if not self.gathered:
            arrived = dict(state.inbox)
            return joint_report([said_by(name, arrived.get(name, NOTHING)) for name in self.members])
        parts: tuple[Any, ...] = tuple(part for _, values in state.inbox for part in values)
        return joint_report([one if isinstance(one, Said) else _lost(one, len(state.path) - 1) for one in parts])


def _lost(report: Report, depth: int) -> Said:
    """Return what arrived of a member that failed: why, and by the place of the failure, whose it is."""
    path = parse_path(report.reason.path) if report.reason is not None else ()
    return Said(speaker=path[depth].name if len(path) > depth else "", report=report)
