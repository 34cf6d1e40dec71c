"""Bodies of functions in a rehearsal: they run, in virtual time, and what they would do outside is stood in for."""

from __future__ import annotations

import functools
import inspect
import math
import typing
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread

from graphflow.errors import BoundHit, UsageError
from graphflow.events import EffectRequested, Failure
from graphflow.model.budget import Budget
from graphflow.model.contract import BOUNDS
from graphflow.model.ids import path_text
from graphflow.rehearsal.distributions import drawn
from graphflow.runtime.backends import cancelled_classes
from graphflow.runtime.body import Body, takes_key
from graphflow.runtime.commands import StartBody
from graphflow.runtime.core import failure_of

if TYPE_CHECKING:
    from graphflow.rehearsal.stage import Stage


class RehearsedBody(Body):
    """One attempt of one turn of a function, as a run has it, whose effects are stood in for."""

    __slots__ = ("_effects", "_napping", "_stage")

    def __init__(self, stage: Stage, command: StartBody, scope: anyio.CancelScope) -> None:
        """Begin for a command of the fold."""
        super().__init__(cast("Any", stage), command, scope)  # it asks a stage for what it asks a runner for
        self._stage = stage
        self._napping = 0  # effects under way, each for the time that was drawn
        self._effects = 0

    async def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        cost: Budget | None = None,
        usage: Callable[[Any], Budget] | None = None,
    ) -> Any:
        """Let a stand-in do something for as long as is drawn; see `Step.effect`."""
        stage, given = self._stage, self._stage.others.settings
        self._effects += 1
        which = key or self._effects
        rng = stage.rng(path_text(self.path), self.command.turn, self.command.attempt, "effect", name, which)
        seconds = drawn(given.tool_latency.of(name), rng, f"tool_latency of {name!r}")
        own = given.stand_ins.get(name)

        async def stand_in(*given_args: Any) -> Any:
            await self._nap(seconds)
            if own is not None:
                stage.others.used.add(name)
                named = {"idempotency_key": f"rehearsal {rng.getrandbits(64):x}"} if takes_key(own) else {}
                found = own(*given_args, **named)
                return await found if inspect.isawaitable(found) else found
            return self._drawn(name, fn, rng)

        # What is drawn says nothing of what it used: all that was reserved counts then.
        return await super().effect(name, stand_in, *args, key=key, cost=cost, usage=usage if own else None)

    def _drawn(self, name: str, fn: Callable[..., Any], rng: Any) -> Any:
        """Draw what an effect gives, by its annotation.

        Raises:
            UsageError: if it does not say; this ends the rehearsal.
        """
        node = self.path[-1].name
        try:
            hints = typing.get_type_hints(getattr(fn, "func", fn), include_extras=True)
        except Exception:  # noqa: BLE001 - annotations may name anything
            hints = {}
        try:
            if "return" in hints:
                self._stage.others.effects.add(name)
                return self._stage.others.value(hints["return"], f"the effect {name!r} of {node!r}", rng, name)
            msg = (
                f"the effect {name!r} of {node!r} is not done in a rehearsal, and its function has no annotation of "
                f"what it returns, by which a value could be drawn: annotate it, or give a function that stands in "
                f"for it: stand_ins={{{name!r}: function}}."
            )
            raise UsageError(msg)
        except UsageError as error:
            self._stage.crashed(error)
            raise

    async def _perform(
        self,
        request: EffectRequested,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        usage: Callable[[Any], Budget] | None,
    ) -> Any:
        """Do an effect; when it is over, others of this body may still wait for time to pass."""
        try:
            return await super()._perform(request, fn, args, usage)
        finally:
            self._review()

    async def _nap(self, seconds: float) -> None:
        """Let virtual time pass, as the fold does for a sleep."""
        event = anyio.Event()
        self._napping += 1
        self._review()

        def wake() -> None:
            self._napping -= 1
            self._review()
            event.set()

        nap = self._stage.later(seconds, wake)
        try:
            await event.wait()
        finally:
            if self._stage.forget(nap):
                self._napping -= 1
                self._review()

    def _review(self) -> None:
        """Tell the stage when this body does nothing but wait for time to pass, and when it wakes."""
        waits, idle = self._waits, self._napping
        inside = sum(of_effect for _, of_effect in waits.values())
        asleep = bool(waits or idle) and len(self._flying) - idle <= inside
        if asleep is self.awake and not self.ended:
            self.awake = not asleep
            self._stage.awake(-1 if asleep else 1)


async def act(stage: Stage, command: StartBody) -> None:
    """Run one body in a task of its own, and tell the stage what became of it."""
    outcome, failure, stray = None, None, False
    scope = anyio.CancelScope()
    body = stage.bodies[command.path] = RehearsedBody(stage, command, scope)
    with scope:
        try:
            outcome = await _outcome(stage, command, body)
        except Exception as error:  # noqa: BLE001 - whatever a node raises is a fact
            failure = _failure(error)
        except BaseException as error:
            if not isinstance(error, cancelled_classes()):  # it stops the whole rehearsal, and is raised there
                stage.crashed(error)
                return
            stray = not scope.cancel_called and anyio.current_effective_deadline() > -math.inf
            if not stray:
                raise
    stage.returned(body, outcome, failure, cancelled=stray or scope.cancelled_caught)


async def _outcome(stage: Stage, command: StartBody, body: RehearsedBody) -> Any:
    node, state = command.node, command.state
    own = stage.others.settings.stand_ins.get(node.name)
    if own is not None:
        stage.others.used.add(node.name)
        found = own(state)
        return await found if inspect.isawaitable(found) else found
    call = functools.partial(node.fn, state, body) if node.wants_step else functools.partial(node.fn, state)
    if node.is_async:
        return await call()
    around = copy_context()
    found = await anyio.to_thread.run_sync(lambda: (around.run(call),), abandon_on_cancel=True)
    return found[0]  # wrapped: trio refuses what can be awaited


def _failure(error: Exception) -> Failure:
    if not isinstance(error, BoundHit) or error.bound not in BOUNDS:
        return failure_of(error)
    try:
        return failure_of(error, error.bound, None if error.limit is None else float(str(error.limit)))
    except ValueError:  # raised by a node of its own accord, with what is no number
        return failure_of(error, error.bound)
