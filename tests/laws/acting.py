"""Random teams: nested graphs, forks, maps, delegations, handoffs, loops, retries, error edges, people, budgets.

A team is a graph and what its nodes do, which is a pure function of the seed and of where they stand: path, turn and
attempt. So one team gives the same answers under every schedule.
"""

import hashlib
import random
import re
from dataclasses import dataclass, field
from typing import Any

from graphflow import (
    Brief,
    Budget,
    Call,
    Delegate,
    Done,
    Graph,
    Handoff,
    Pause,
    Report,
    State,
    Step,
    Update,
    node,
)
from graphflow.model.contract import Reason
from graphflow.model.ids import path_text
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.commands import StartBody
from tests.laws.driver import Asked, Author, Effect, Play, Sleep, performed, refused


@dataclass(frozen=True, slots=True)
class Mood:
    """What a team is made of, and how its nodes behave, in percent.

    Attributes:
        raises: attempts that raise.
        pauses: turns that ask a person.
        effects: attempts that do something outside.
        sleeps: attempts that sleep.
        plain: updates of the field that two branches may not both write.
        catches: turns that go on with what they have where something is refused.
        policies: whether joins may have other policies than "all".
        fail_fast: forks that cancel the others when one branch fails.
        timeouts: whether nodes and calls may have timeouts.
        bounds: whether graphs may have bounds and budgets that a run can hit.
        size: about how many nodes each graph has.
    """

    raises: int = 6
    pauses: int = 4
    effects: int = 40
    sleeps: int = 15
    plain: int = 5
    catches: int = 20
    policies: bool = True
    fail_fast: int = 50
    timeouts: bool = True
    bounds: bool = True
    size: int = 7


CALM = Mood(
    raises=0, pauses=0, effects=40, sleeps=30, plain=0, policies=False, fail_fast=0, timeouts=False, bounds=False
)
"""Nothing in it gives timing a meaning."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a node may do beside giving an output."""

    calls: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    outside: bool = True


def roll(sides: int, *what: object) -> int:
    """Roll a die that always falls alike for the same things.

    >>> roll(6, "a") == roll(6, "a")
    True
    """
    text = "\0".join(map(str, what))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % sides


@dataclass(slots=True)
class Team:
    """A graph and what its nodes do.

    Attributes:
        seed: what they do is drawn from it.
        mood: how they behave.
        parts: what each node may do, by its name.
        before: the names that nodes had before they were renamed.
        tempo: how long they sleep is drawn from it.
    """

    seed: int
    mood: Mood
    graph: Graph[Any] = field(init=False)
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    before: dict[str, str] = field(default_factory=dict[str, str])
    tempo: int = 0

    def plain(self, value: object) -> str:
        """A text, a path or a value with the names from before the nodes were renamed."""
        text = value if isinstance(value, str) else repr(value)
        return re.sub(r"\bm\d{3}\b", lambda found: self.before[found[0]], text)

    @property
    def author(self) -> Author:
        """Gives the bodies for a driver."""

        def author(command: StartBody) -> Play:
            return self.play(command.state, command.attempt)

        return author

    def play(self, state: State[Any], attempt: int = 0) -> Play:
        """What the body of an attempt does."""
        name, mood = state.path[-1].name, self.mood
        part = self.parts[name]
        where = self.plain(path_text(state.path))
        dice = random.Random(roll(2**60, self.seed, where, state.turn, attempt))
        if part.outside:
            for time in range(dice.choice((0, 1, 1, 2))):
                asked = _asked(time, dice, mood, random.Random(roll(2**60, self.tempo, where, state.turn)))
                if asked:
                    answers = yield asked
                    if dice.randrange(100) < 80:
                        refused(answers)
        if dice.randrange(100) < mood.raises:
            msg = f"{name} raises in turn {state.turn}"
            raise ValueError(msg)
        return self._outcome(state, part, dice)

    def _outcome(self, state: State[Any], part: Part, dice: random.Random) -> object:
        where = f"{self.plain(path_text(state.path))}.{state.turn}"
        update = self._update(where, dice)
        if part.calls and dice.randrange(100) < (80 if state.turn == 0 else 25):
            return Delegate(*_calls(part, dice, where, wrong=self.mood.raises > 0), update=update)
        if state.turn < 3 and dice.randrange(100) < self.mood.pauses:
            return Pause(f"what now, {where}?", update=update)
        if part.handoffs and dice.randrange(100) < 60:
            return Handoff(dice.choice(part.handoffs), note=where, update=update)
        if self.mood.raises and dice.randrange(100) < 3:
            return dice.choice((Report.failed(Reason(code="failed", text=where)), Update(nobody=1)))
        return Done(where, update)

    def _update(self, where: str, dice: random.Random) -> Update | None:
        fields: dict[str, Any] = {"log": where} if dice.randrange(2) else {}
        if dice.randrange(100) < self.mood.plain:
            fields["plain" if dice.randrange(2) else "task"] = where
        return Update(**fields) if fields else None


def _asked(time: int, dice: random.Random, mood: Mood, tempo: random.Random) -> Asked:
    """Some things to ask for at once; several effects have keys, each of them once in a turn."""
    count = dice.choice((1, 1, 1, 2, 3))
    found: list[Effect | Sleep] = []
    for index in range(count):
        if dice.randrange(100) < mood.effects:
            key = f"e{time}{index}" if count > 1 else str(time)
            found.append(Effect(key, *_cost(dice)))
        elif dice.randrange(100) < mood.sleeps:
            found.append(Sleep(f"s{time}{index}", tempo.choice((0.0, 0.01, 0.1, 1.0))))
    return tuple(found)


def _cost(dice: random.Random) -> tuple[Budget | None, Budget | None]:
    """What an effect may cost, and what it really uses: mostly less."""
    kind = dice.randrange(4)
    if kind == 0:
        return None, None
    if kind == 1:
        return Budget(tool_calls=1), None
    tokens = dice.choice((0, 5, 40))
    used = dice.choice((None, 0, tokens // 2, tokens))
    usage = None if used is None else Budget(tokens=used, usd=f"0.{used:03d}")
    return Budget(model_calls=1, tokens=tokens, usd=f"0.{tokens:03d}"), usage


def _calls(part: Part, dice: random.Random, where: str, *, wrong: bool) -> list[Call]:
    """One to four calls; some need the reports of earlier ones, and a wrong one goes to nobody."""
    calls: list[Call] = []
    for index in range(dice.choice((1, 2, 2, 3, 4))):
        needs = tuple(f"c{earlier}" for earlier in range(index) if dice.randrange(4) == 0)
        to = "nobody" if wrong and dice.randrange(40) == 0 else dice.choice(part.calls)
        calls.append(Call(to, Brief(objective=f"{where} asks {index}"), id=f"c{index}", needs=needs))
    dice.shuffle(calls)
    return calls


def real(team: Team, part: Part, name: str, **options: Any) -> FunctionNode[Any]:
    """The node whose body really does what `Team.play` says, when it is run."""
    if part.outside:

        @node(name=name, **options)
        async def asks(state: State[Any], step: Step) -> object:
            return await performed(team.play(state), step)

        return asks

    @node(name=name, **options)
    async def answers(state: State[Any]) -> object:
        try:
            next(team.play(state))
        except StopIteration as stop:
            return stop.value
        raise AssertionError

    return answers
