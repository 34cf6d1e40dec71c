"""What the fold asks the runner to do. Commands are carried out after the record of their fact is committed."""

from __future__ import annotations

from typing import Any, Literal

from graphflow.events import record
from graphflow.model.ids import Path
from graphflow.model.state import State
from graphflow.nodes.client import ModelClient, ModelRequest
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.tools import Tool


@record
class OpenGroup:
    """Open the task group of a scope inside the group around it; the root's group is 0."""

    group: int
    parent: int


@record
class CloseGroup:
    """Let a scope's task group end when its tasks have."""

    group: int


@record
class StartBody:
    """Run a function node's body in a group."""

    path: Path
    turn: int
    attempt: int
    node: FunctionNode[Any]
    state: State[Any]
    group: int


@record
class CallModel:
    """Send a request to a model, and report `EffectFinished` with its reply.

    Attributes:
        path, turn, attempt, key: which call it is.
        client: who is asked.
        request: what is asked.
        group: the task group that it runs in.
        again: whether it is asked again if it fails, so that it waits first where it may work later.
    """

    path: Path
    turn: int
    attempt: int
    key: str
    client: ModelClient
    request: ModelRequest
    group: int
    again: bool


@record
class CallTool:
    """Run a tool, and report `EffectFinished` with what the model is told."""

    path: Path
    turn: int
    attempt: int
    key: str
    tool: Tool
    call_id: str
    arguments: dict[str, Any]
    context: Any
    group: int


@record
class CancelCall:
    """Cancel one call of an agent, of a tool that took too long."""

    path: Path
    key: str


@record
class CancelBody:
    """Cancel a body, its effects and its sleep; for an agent, all that it has under way. One that is over stays so."""

    path: Path


@record
class AskHook:
    """Ask the `before=` hook about a visit."""

    path: Path
    state: State[Any]
    group: int


@record
class GoOn:
    """Let a body go on: its effect may run, or its sleep is over."""

    path: Path
    key: str


@record
class RefuseEffect:
    """Raise `BoundHit` or `EffectKeyRequired` in a body."""

    path: Path
    key: str
    bound: Literal["key"] | str  # noqa: PYI051 - "key" is told apart
    limit: object = None
    wanted: object = None
    left: object = None


@record
class SetTimer:
    """Report `TimerFired(timer)` at a time, in active seconds.

    Attributes:
        timer: its number.
        at: when.
        limit: whether it ends something: what happens at that very moment is still in time, so it comes last.
    """

    timer: int
    at: float
    limit: bool = True


@record
class DropTimer:
    """Forget a timer."""

    timer: int


@record
class EndRun:
    """Nothing is left to do for now: the run has ended, or waits for people."""


Command = (
    OpenGroup | CloseGroup | StartBody | CallModel | CallTool | CancelCall | CancelBody | AskHook | GoOn | RefuseEffect
    | SetTimer | DropTimer | EndRun
)  # fmt: skip
