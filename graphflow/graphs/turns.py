"""Who speaks next: the nodes of a conversation that goes from member to member.

`floor` notes what was said and tells whether the conversation goes on; `next_speaker` gives the floor to a member: by
rotation, by a draw, or as your code or a person has just said on the floor. The edge between the two is the bound of
every cycle.
"""

from __future__ import annotations

import inspect
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from graphflow.errors import UsageError
from graphflow.graphs.blaming import UNMARKED, Blaming
from graphflow.graphs.conversation import Conversation, last_report, said_by, transcript
from graphflow.model.outcome import NOTHING, Done, Pause, Update
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.nodes.function import Step

Until: TypeAlias = Callable[[Any], bool]
"""Tells from a conversation whether it is over."""

Decide: TypeAlias = Callable[[Any], "str | Awaitable[str | None] | None"]
"""Names from a conversation who speaks next; None ends it."""

Allowed: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Who may follow whom, as pairs of a name and names; a name that is missing may be followed by anybody."""

FINISH: Final = "finish"
"""What a person says to end a conversation."""


@dataclass(frozen=True)
class Floor:
    """Note what was said, and say whether the conversation goes on.

    Attributes:
        turns: how many turns there are, where no predicate ends them; None where somebody else does.
        until: ends the conversation when it holds, or None.
        where: how errors name the call that made the team.
    """

    turns: int | None
    until: Until | None
    where: str = field(default="", kw_only=True, metadata=UNMARKED)

    async def __call__(self, state: State[Conversation]) -> Done:
        """Give the conversation on, or the report of the whole."""
        context, written = noted(state)
        if self._is_over(context):
            return Done(last_report(context.said), update=Update(**written, over=True))
        return Done(transcript(context.said), update=Update(**written))

    def _is_over(self, context: Conversation) -> bool:
        if self.until is not None:
            with Blaming(self.where, "until", self.until):
                return bool(context.said) and _is_true(self.until(context))
        return self.turns is not None and len(context.said) >= self.turns


def _is_true(said: object) -> bool:
    """Read what `until` gave.

    Raises:
        UsageError: if it is a text, or something to wait for: either would count as true whatever it says.
    """
    if isinstance(said, str) or inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        msg = (
            f"until gave {value_text(said)}: True where the conversation is over, False where it goes on; it cannot "
            "be async."
        )
        raise UsageError(msg)
    return bool(said)


def noted(state: State[Conversation]) -> tuple[Conversation, dict[str, Any]]:
    """Return the conversation with what its speaker has just said, and what is new in it."""
    context = state.context
    if not context.speaker:
        return context, {"over": False} if context.over else {}  # one that had ended begins anew
    new = said_by(context.speaker, state.inbox[0].value if state.inbox else NOTHING)
    context = context.model_copy(update={"said": (*context.said, new), "speaker": ""})
    return context, {"said": new, "speaker": ""}


def goes_on(state: State[Conversation]) -> bool:
    """Tell whether somebody speaks again."""
    return not state.context.over


@dataclass(frozen=True)
class _Next:
    """What every way of choosing the next speaker has.

    Attributes:
        names: the members, in their order.
        apart: those that are teams of their own, and know nothing but what they are given.
        allowed: who may follow whom, as pairs of a name and names; a name that is missing may be followed by anybody.
        where: how errors name the call that made the team.
    """

    names: tuple[str, ...]
    apart: frozenset[str]
    allowed: Allowed
    where: str = field(default="", kw_only=True, metadata=UNMARKED)

    def candidates(self, context: Conversation) -> tuple[str, ...]:
        """Return who may speak next, in their order."""
        followers = dict(self.allowed).get(context.said[-1].speaker) if context.said else None
        return self.names if followers is None else tuple(name for name in self.names if name in followers)

    def give(self, speaker: str, context: Conversation, **also: Any) -> Done:
        """Give the floor to a member, who is told what was said; a team of its own is told what it is about too."""
        said = transcript(context.said)
        told = "\n\n".join(part for part in (context.task, said) if part) if speaker in self.apart else said
        return Done(told or NOTHING, update=Update(speaker=speaker, **also))


@dataclass(frozen=True)
class Rotate(_Next):
    """The members speak one after the other, beginning with the first."""

    async def __call__(self, state: State[Conversation]) -> Done:
        """Give the floor to the next."""
        return self.give(self.names[len(state.context.said) % len(self.names)], state.context)


@dataclass(frozen=True)
class Draw(_Next):
    """The next speaker is drawn.

    Attributes:
        seed: what the draws depend on; None takes one from the outside, once, and records it.
        per: "turn" draws anew for each turn, "run" once for all.
        weights: how likely each member is, in their order.
    """

    seed: int | None
    per: Literal["turn", "run"]
    weights: tuple[float, ...]

    async def __call__(self, state: State[Conversation], step: Step) -> Done:
        """Draw from the seed and the number of the turn alone, so that the same seed gives the same path."""
        context = state.context
        seed = self.seed if self.seed is not None else context.seed
        if seed is None:
            seed = await step.effect("seed", fresh_seed)
        turn = len(context.said) if self.per == "turn" else 0
        names = self.candidates(context) if self.per == "turn" else self.names
        weights = [self.weights[self.names.index(name)] for name in names]
        return self.give(drawn(seed, turn, names, weights), context, seed=seed)


def drawn(seed: int, turn: int, names: Sequence[str], weights: Sequence[float]) -> str:
    """Return the name that a seed draws for a turn: always the same.

    >>> drawn(7, 0, ("bull", "bear"), (1, 0))
    'bull'
    """
    return random.Random(f"{seed}/{turn}").choices(names, weights)[0]  # noqa: S311 - it need not be secret


async def fresh_seed() -> int:
    """Return a seed that nobody has chosen."""
    return secrets.randbelow(2**32)


@dataclass(frozen=True)
class Directed(_Next):
    """Note what was said, and ask your code, or a person, who speaks next: a floor that somebody rules.

    Attributes:
        decide: names the next speaker, or None to end the conversation; None asks a person.
    """

    decide: Decide | None

    @property
    def asks_person(self) -> bool:
        """Whether a person is asked."""
        return self.decide is None

    async def __call__(self, state: State[Conversation]) -> Done | Pause:
        """Say to whom the floor goes, or end the conversation.

        Raises:
            UsageError: if it is nobody who may speak next.
        """
        context, written = noted(state)
        names, said = self.candidates(context), transcript(context.said)
        if self.decide is None and state.turn == 0:
            about = f"{context.task}\n{said}" if said else context.task
            choices = (*names, FINISH)
            question = f"{about}\n\nWho speaks next? {', '.join(choices)}."
            return Pause(question, schema=Literal[choices], update=Update(**written))
        if self.decide is None:
            named: Any = state.inbox[0].value
            choice = None if named == FINISH else named
        else:
            with Blaming(self.where, "decide", self.decide):
                choice = await self._decided(self.decide, context, names)
        if choice is None:
            return Done(last_report(context.said), update=Update(**written, over=True))
        return Done(said, update=Update(**{**written, "speaker": choice}))

    @staticmethod
    async def _decided(decide: Decide, context: Conversation, names: tuple[str, ...]) -> str | None:
        choice = decide(context)
        if inspect.isawaitable(choice):
            choice = await choice
        if choice is not None and choice not in names:
            after = f" after {context.said[-1].speaker!r}" if context.said else ""
            msg = (
                f"decide gave {value_text(choice)}: one of {', '.join(map(repr, names))} may speak{after}; None ends "
                "it."
            )
            raise UsageError(msg)
        return choice


@dataclass(frozen=True)
class Named(_Next):
    """The next speaker has been named on the floor."""

    async def __call__(self, state: State[Conversation]) -> Done:
        """Give the floor to that one."""
        return self.give(state.context.speaker, state.context)


def checked_transitions(
    where: str, names: tuple[str, ...], given: Mapping[str, tuple[str, ...] | list[str]] | None, *, least: int = 1
) -> Allowed:
    """Return who may follow whom.

    Raises:
        UsageError: if it names somebody who is no member, or gives a member fewer followers than `least`.
    """
    if given is None:
        return ()
    known = ", ".join(map(repr, names))
    for name, followers in given.items():
        several: object = followers
        wrong = None
        if name not in names:
            wrong = f"{name!r} is none; the members are {known}"
        elif not isinstance(several, list | tuple | set | frozenset):
            wrong = f"{name!r} needs a list of names, as [{names[0]!r}]"
        elif len(followers) < least:
            wrong = f"{name!r} needs a list of at least {least}; leave it out where anybody may follow"
        else:
            unknown = [one for one in followers if one not in names]
            wrong = f"{unknown[0]!r} is none; the members are {known}" if unknown else None
        if wrong is not None:
            msg = f"{where}: allowed_transitions={value_text(dict(given))}: {wrong}."
            raise UsageError(msg)
    table = {name: frozenset(given[name]) for name in names if name in given}
    return tuple((name, tuple(one for one in names if one in after)) for name, after in table.items())


def checked_rotation(where: str, names: tuple[str, ...], allowed: Allowed) -> None:
    """Make sure that a rotation is allowed.

    Raises:
        UsageError: naming the first step that is not.
    """
    table = dict(allowed)
    for index, name in enumerate(names):
        after = names[(index + 1) % len(names)]
        if len(names) > 1 and name in table and after not in table[name]:
            msg = (
                f"{where}: {after!r} speaks after {name!r}, and allowed_transitions lets only "
                f"{', '.join(map(repr, table[name]))} follow it; change the order of the members, or what is allowed."
            )
            raise UsageError(msg)


def checked_odds(
    where: str, names: tuple[str, ...], weights: Sequence[float] | None, per: str, allowed: Allowed
) -> tuple[float, ...]:
    """Return how likely each member is to be drawn.

    Raises:
        UsageError: if there is not one weight for each, or there could be a turn at which nobody may be drawn.
    """
    odds = (1.0,) * len(names) if weights is None else tuple(weights)
    if len(odds) != len(names):
        known = ", ".join(map(repr, names))
        msg = (
            f"{where}: weights={value_text(weights)}: one for each of the {len(names)} members is needed, in the "
            f"order {known}."
        )
        raise UsageError(msg)
    if per == "run" and allowed:
        msg = f"{where}: per='run' draws one member for all turns, and allowed_transitions says who follows whom."
        raise UsageError(f"{msg} Leave one of them out.")
    likely = {name for name, odd in zip(names, odds, strict=True) if odd}
    stuck = next((name for name, followers in allowed if not likely & {*followers}), None)
    if stuck is not None:
        msg = f"{where}: weights={value_text(weights)}: nobody who may follow {stuck!r} has a weight above 0."
        raise UsageError(msg)
    return odds
