"""What an agent did in each turn of a visit, in one short line for each: read from the effects of its run.

An agent has no body that asks for effects: the fold starts them, the model's with the key "model" and each tool's with
the position of its call. That tells a visit of an agent from one of a function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from graphflow.events import EffectFinished, EffectStarted, Failure
from graphflow.graphs.briefs import asked_by_model, calls_of
from graphflow.model.thread import ToolCall
from graphflow.nodes.agent import ASK, generated_names
from graphflow.visualize.text import ELLIPSIS, shown

MODEL: Final = "model"
"""The key and the name of the effect that asks a model."""

MOST_TURNS: Final = 12
MOST_CALLS: Final = 6

NAME: Final = 40

_MARKS: Final = {"completed": ("✓", "[ok]"), "failed": ("✗", "[failed]"), "running": ("▸", "[running]")}


class Ask(NamedTuple):
    """A delegation of a turn.

    Attributes:
        turn, position: the turn, and its place among the delegations of the turn.
        name: the callee.
        status: what came of it.
    """

    turn: int
    position: int
    name: str
    status: str


@dataclass(slots=True)
class _Turn:
    """What is known of one turn: `calls` are what the model called, in order, if it is known."""

    calls: tuple[ToolCall, ...] = ()
    replied: bool = False
    failed: str = ""
    tools: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])


@dataclass(slots=True)
class Talk:
    """The turns of an agent's visit."""

    turns: dict[int, _Turn] = field(default_factory=dict[int, _Turn])

    def started(self, body: EffectStarted) -> None:
        """Take in that a model is asked, or that a tool runs."""
        turn = self.turns.setdefault(body.turn, _Turn())
        if body.key == MODEL:
            turn.replied, turn.failed = False, ""
        elif (position := _position(body.key)) is not None:
            turn.tools[position] = (body.name, "running")

    def finished(self, body: EffectFinished) -> None:
        """Take in what a model replied, or that a tool is done."""
        turn = self.turns.get(body.turn)
        if turn is None:
            return
        if body.key == MODEL:
            turn.replied = True
            turn.failed = "" if body.failure is None else _type_of(body.failure)
            turn.calls = () if body.failure is not None else calls_of(body.result)
        elif (position := _position(body.key)) in turn.tools:
            name, _ = turn.tools[position]
            turn.tools[position] = (name, "completed" if body.failure is None else "failed")

    def lines(self, asks: Iterable[Ask], *, over: bool, ascii: bool) -> list[str]:
        """Return a line for each turn that did more than to answer.

        Args:
            asks: what the agent delegated.
            over: whether the visit has ended.
            ascii: whether to use ASCII characters alone.
        """
        found: list[str] = []
        last = max(self.turns, default=0)
        every = list(asks)
        for number in sorted(self.turns):
            turn = self.turns[number]
            parts = list(_parts(turn, [ask for ask in every if ask.turn == number], ascii=ascii))
            rest = [f"+{len(parts) - MOST_CALLS}"] * (len(parts) > MOST_CALLS)
            said = ", ".join([*parts[:MOST_CALLS], *rest])
            if turn.failed:
                said = f"its model failed: {turn.failed}"
            elif not said and not turn.replied:
                said = "" if over else "asks its model"
            elif not said and number != last:
                said = "its answer was sent back"
            if said:
                found.append(f"turn {number}: {said}")
        more = len(found) - MOST_TURNS
        return found if more <= 0 else [*found[:MOST_TURNS], f"and {more:,} more turns"]


def _position(key: str) -> int | None:
    """Return the position of the call that a tool's effect belongs to: a further attempt has a number behind a dot."""
    first = key.partition(".")[0]
    return int(first) if first.isdecimal() and first.isascii() else None


def _parts(turn: _Turn, asks: list[Ask], *, ascii: bool) -> Iterator[str]:
    """Yield what a turn called, in the order of the calls as far as it is known."""
    tools, asked = dict(turn.tools), asked_by_model(turn.calls)
    started: dict[int, Ask] = {}
    left: list[Ask] = []
    for ask in sorted(asks):
        found = asked.at(ask.position, ask.name)
        if found is None:
            left.append(ask)
        else:
            started[found.place] = ask
    for place, call in enumerate(turn.calls):
        if place in tools:
            yield _tool(*tools.pop(place), ascii=ascii)
        elif place in started:
            yield _asked(call.name, started[place], ascii=ascii)
        else:
            yield shown(call.name, NAME)
    for _, (name, status) in sorted(tools.items()):
        yield _tool(name, status, ascii=ascii)
    for ask in left:
        yield _asked(next(iter(generated_names(ASK, [ask.name]))), ask, ascii=ascii)


def _tool(name: str, status: str, *, ascii: bool) -> str:
    return f"{shown(name, NAME)}({ELLIPSIS}) {_MARKS[status][ascii]}"


def _asked(name: str, ask: Ask, *, ascii: bool) -> str:
    return f"{shown(name, NAME)} {'->' if ascii else '→'} {ask.status.replace('_', ' ')}"


def _type_of(failure: Failure) -> str:
    return shown(failure.error_type.rpartition(".")[2] or failure.text, NAME)
