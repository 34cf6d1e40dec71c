"""What stands between the members of a sequential team, and behind those of a parallel one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from graphflow.graphs.conversation import Conversation, Said, TeamReport, joint_report, last_report, said_by, transcript
from graphflow.model.contract import Reason
from graphflow.model.outcome import NOTHING, Done, Update
from graphflow.model.state import State

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
    """

    stage: str
    see: Literal["previous", "all"]
    gate: Gate | None
    last: bool

    async def __call__(self, state: State[Conversation]) -> Done:
        """Give on what the next stage sees, or the report of a stop."""
        value = state.inbox[0].value if state.inbox else NOTHING
        new = said_by(self.stage, value)
        said = (*state.context.said, new)
        why = self.gate(state) if self.gate is not None else None
        if why is not None:
            reason = Reason(code="reported", text=f"stopped after {self.stage!r}: {why}")
            stopped = last_report(said).model_copy(update={"status": "partial", "reason": reason})
            return Done(stopped, update=Update(said=new, over=True))
        seen = value if self.last or self.see == "previous" else transcript(said)
        return Done(seen, update=Update(said=new))


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


async def together_of(state: State[Any]) -> TeamReport:
    """Put what the members said into one report, in their order."""
    said: list[Said] = []
    for source, value in state.inbox:
        parts: tuple[Any, ...] = cast("Any", value) if isinstance(value, tuple) else (value,)
        said += [part if isinstance(part, Said) else said_by(source, part) for part in parts]
    return joint_report(said)
