"""What a node sees: one frozen value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.contract import Brief
from graphflow.model.ids import Path
from graphflow.model.secrets import veiled
from graphflow.model.thread import Thread

C_co = TypeVar("C_co", bound=Context, covariant=True)


class Message(NamedTuple):
    """One item of an inbox: who sent it, and what it is."""

    source: str
    value: Any

    def __repr__(self) -> str:
        """Show both, without secrets in the value."""
        return f"Message(source={self.source!r}, value={veiled(self.value)!r})"


@dataclass(frozen=True, slots=True)
class Left:
    """What remains at the start of a turn.

    Attributes:
        budget: what is free on the account that this node spends from, under every cap around it.
        depth: how many further delegations may be nested below this node; None for no bound.
        hops: how many further edges this activation of the graph may traverse; None for no bound.
        handoffs: how many further handoffs this activation of the graph may make; None for no bound.
    """

    budget: Budget
    depth: int | None
    hops: int | None
    handoffs: int | None


@dataclass(frozen=True, slots=True)
class State(Generic[C_co]):
    """What a node sees.

    Attributes:
        context: the user's model, as of this token.
        inbox: what arrived, in branch order: outputs, a brief, reports, an answer, or an item of a map.
        path: where this visit stands, from the root.
        turn: 0 at first, one more each time the node is entered again after a delegation or an answer.
        depth: delegations above this node.
    """

    context: C_co
    inbox: tuple[Message, ...]
    path: Path
    turn: int
    depth: int
    _more: Any = field(repr=False, compare=False, default=None)

    @property
    def visit(self) -> int:
        """Which entry of the node this is, in its frame and lane, from 1."""
        return self.path[-1].visit if self.path else 1

    @property
    def left(self) -> Left:
        """What remains of budget, depth and hops, as of the start of this turn."""
        _, make, *given = self._more  # how to work it out, and from what: most nodes never ask
        left: Left = make(*given)
        return left

    @property
    def thread(self) -> Thread:
        """What has been said so far in the thread that this node stands in."""
        thread: Thread = () if self._more is None or self._more[0] is None else self._more[0].up_to_now()
        return thread

    @property
    def active(self) -> str | None:
        """The name of who spoke last here, or in the run that this one continues, agent or graph; None at first."""
        return None if self._more is None or self._more[0] is None else self._more[0].active

    @property
    def brief(self) -> Brief | None:
        """The brief that a callee was given, or None."""
        return next((message.value for message in self.inbox if isinstance(message.value, Brief)), None)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the inbox, without their sources."""
        return tuple(message.value for message in self.inbox)


class OpenState(State[C_co]):
    """A state while it is made: whoever makes one sets all of its fields, and then its class, which freezes it.

    `State(...)` takes six times as long, and two are made at every hop.
    """

    __slots__ = ()
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


open_state: Callable[[], Any] = functools.partial(object.__new__, OpenState)
