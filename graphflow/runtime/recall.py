"""What bodies had asked before their process ended, and what they were told: for those that are entered again.

A body that is entered again asks for the same things. What is recorded is given back by its identity (path, turn,
attempt, key) and is not recorded again; what was under way goes on.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from graphflow import errors
from graphflow.errors import EffectMismatch, NodeFailed
from graphflow.events import EffectFinished, EffectRequested, Emitted, Fact, Failure, NodeReturned, SleepRequested
from graphflow.graphs.kinds import errors_in
from graphflow.model.ids import Path, path_text
from graphflow.runtime.commands import Command, GoOn, RefuseEffect, StartBody
from graphflow.runtime.core import RECORDED


@dataclass(slots=True)
class Asked:
    """One thing that a body had asked for.

    Attributes:
        request: what it asked.
        answer: what the fold said, or None if it had not said anything.
        finished: how the effect ended, or None.
    """

    request: EffectRequested | SleepRequested
    answer: GoOn | RefuseEffect | None = None
    finished: EffectFinished | None = None

    @property
    def is_over(self) -> bool:
        """Whether the effect has ended, or the sleep."""
        return self.finished is not None or (isinstance(self.request, SleepRequested) and isinstance(self.answer, GoOn))

    def check(self, again: EffectRequested | SleepRequested) -> None:
        """Hold what is asked now against what is recorded.

        Raises:
            EffectMismatch: if it is something else.
        """
        recorded, asked = _shown(self.request), _shown(again)
        if recorded != asked:
            raise EffectMismatch(path_text(again.path), recorded, asked)


def _shown(request: EffectRequested | SleepRequested) -> str:
    if isinstance(request, SleepRequested):
        return "a sleep"  # its key says how long it is
    return f"the effect {request.name!r} (arguments {request.digest})"


_asked = cast("Callable[[], dict[str, Asked]]", dict)  # to call `dict[K, V]` itself takes ten times as long


@dataclass(slots=True)
class Memory:
    """What one attempt of one turn had asked and said."""

    turn: int
    attempt: int
    asked: dict[str, Asked] = field(default_factory=_asked)
    emitted: int = 0

    def unused(self) -> str | None:
        """Return an effect whose recorded end has not been asked for again, None if there is none."""
        left = (asked.request for asked in self.asked.values() if asked.finished is not None)
        return next((_shown(request) for request in left), None)


class Recall:
    """The memories of all bodies of a run, by path."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._memories: dict[Path, Memory] = {}

    def note(self, fact: Fact, commands: Iterable[Command]) -> None:
        """Take note of a stored fact, and of what the fold commanded then."""
        match fact:
            case NodeReturned():
                if self._memories:
                    self._returned(fact)
            case EffectRequested() | SleepRequested():
                memory = self._memory(fact.path, fact.turn, fact.attempt)
                memory.asked[fact.key] = Asked(fact)
            case EffectFinished():
                known = self._memories.get(fact.path)
                if known is not None and (known.turn, known.attempt) == (fact.turn, fact.attempt):
                    self._finished(known, fact)
            case Emitted():
                known = self._memories.get(fact.path)
                if known is None and not fact.turn:
                    known = self._memory(fact.path, 0, 0)
                if known is not None and known.turn == fact.turn:
                    known.emitted += 1
            case _:
                pass
        for command in commands:
            if type(command) is StartBody:
                if command.turn or command.attempt:  # the very first needs none before something is asked
                    self._memory(command.path, command.turn, command.attempt)
            elif type(command) is GoOn or type(command) is RefuseEffect:
                self.answered(command)

    def answered(self, command: GoOn | RefuseEffect) -> None:
        """Take note of an answer to a body that has not begun again."""
        memory = self._memories.get(command.path)
        asked = None if memory is None else memory.asked.get(command.key)
        if asked is not None:
            asked.answer = command

    def _memory(self, path: Path, turn: int, attempt: int) -> Memory:
        memory = self._memories.get(path)
        if memory is None or (memory.turn, memory.attempt) != (turn, attempt):
            memory = self._memories[path] = Memory(turn, attempt)
        return memory

    @staticmethod
    def _finished(memory: Memory, fact: EffectFinished) -> None:
        asked = memory.asked.get(fact.key)
        if asked is None:
            return
        if fact.failure is not None and fact.failure.code == "cancelled":
            del memory.asked[fact.key]  # the body itself gave it up, or it was cut off: it is asked anew
        else:
            asked.finished = fact

    def _returned(self, fact: NodeReturned) -> None:
        """Keep what an attempt has done: a bound may have stopped it, and it is then entered again.

        One that was cut off has let go of nothing; of another, what was under way is over for the fold.
        """
        memory = self._memories.get(fact.path)
        if memory is None or not memory.asked or fact.cancelled:
            return
        if (memory.turn, memory.attempt) != (fact.turn, fact.attempt):
            return
        memory.asked = {key: asked for key, asked in memory.asked.items() if asked.is_over}

    def forget(self, keep: Iterable[Path]) -> None:
        """Keep only what the visits that are open may still need."""
        wanted = set(keep)
        self._memories = {path: memory for path, memory in self._memories.items() if path in wanted}

    def __len__(self) -> int:
        """Return how many bodies it remembers."""
        return len(self._memories)

    def take(self, path: Path, turn: int, attempt: int) -> Memory | None:
        """Return the memory of a body that begins now, once."""
        memory = self._memories.pop(path, None)
        if memory is None or (memory.turn, memory.attempt) != (turn, attempt):
            return None
        return memory


def idempotency_key(run: str, where: tuple[Path, int, str], name: str, arguments: str) -> str:
    """Return a text that stands for one effect, whichever attempt it is made by.

    Args:
        run: the run's id.
        where: the path of the visit, its turn, and the effect's key or position in it.
        name: its name.
        arguments: the digest of its arguments.
    """
    path, turn, key = where
    parts = json.dumps([run, path_text(path), turn, key, name, arguments])
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def raised_again(failure: Failure, path: str, *functions: Callable[..., Any]) -> Exception:
    """Return the exception of a recorded failure, of a class that the body knows, so that its handlers catch it.

    Classes are looked for among Python's own and among those that the functions themselves name, never by importing.
    The nearest one of the recorded lineage is taken; `NodeFailed` where there is none. It has the recorded text;
    attributes of its own are not recorded.
    """
    always = filter(_is_error, (*vars(builtins).values(), *vars(errors).values()))
    known = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (*always, *errors_in(*functions))}
    made: Exception = NodeFailed(path, failure.error_type, failure.text)
    for name in failure.lineage[:-1] or (failure.error_type,):
        if name in known:
            with contextlib.suppress(Exception):  # a class may need more to be made, as an ExceptionGroup does
                made = known[name].__new__(known[name])
                made.args = (_key_of(failure.text) if isinstance(made, KeyError) else failure.text,)
                break
    with contextlib.suppress(Exception):  # a class may refuse attributes
        setattr(made, RECORDED, failure)
    return made


def _key_of(text: str) -> object:
    """Return the key that a KeyError spoke of: its text is that of the key as Python writes it."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _is_error(found: object) -> TypeGuard[type[Exception]]:
    return isinstance(found, type) and issubclass(found, Exception)
