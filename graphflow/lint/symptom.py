"""What a lint of a run finds, and from how much on it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphflow.errors import UsageError


@dataclass(frozen=True, slots=True)
class Symptom:
    """A sign in the events of a run that the team did not work as it should.

    Attributes:
        code: the rule that found it.
        mode: the number of the failure mode in MAST, such as "1.3"; "" where that table has none.
        where: the text of the path of the visit that shows it.
        turn: the turn of that visit, or None where the turn says nothing.
        seq: the number of the event that shows it.
        message: what was seen, with the values.
        hint: what to change in the graph or in the instructions.

    >>> print(Symptom("bare-handoff", "1.4", "triage", 0, 6, "it says nothing.", "Write a note."))
    bare-handoff (MAST 1.4) at triage, turn 0, event 6: it says nothing. Write a note.
    """

    code: str
    mode: str
    where: str
    turn: int | None
    seq: int
    message: str
    hint: str

    def __str__(self) -> str:
        """Say it on one line."""
        mode = f" (MAST {self.mode})" if self.mode else ""
        turn = "" if self.turn is None else f", turn {self.turn}"
        return f"{self.code}{mode} at {self.where or 'the run'}{turn}, event {self.seq}: {self.message} {self.hint}"


class Sign(NamedTuple):
    """What a rule saw: a symptom without the name of its rule."""

    where: str
    turn: int | None
    seq: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Limits:
    """From how much on something is a symptom.

    Attributes:
        repeats: so many equal calls of a tool in one visit, with equal results.
        asked_again: so many equal briefs to one callee, in turns of their own, after it was done.
        rounds: so many times control went from one node to another and back, with nothing new.
        idle_turns: so many turns of an agent one after the other that brought nothing new.
        idle_hops: so many handoffs one after the other that brought nothing new.
        overlap: the share of words from which on two briefs ask for the same.
        finding_words: so many words of a finding must be its own before its use can be told.
        coverage: the least share of the claims in an answer that must be cited, where it cites at all.
        verifiers: the names of the nodes that verify; None goes by their names: words such as "check" or "review".

    Raises:
        UsageError: if a number is too small, or a share is none.
    """

    repeats: int = 3
    asked_again: int = 2
    rounds: int = 2
    idle_turns: int = 3
    idle_hops: int = 4
    overlap: float = 0.8
    finding_words: int = 3
    coverage: float = 0.8
    verifiers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in _LEAST.items():
            number: object = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                msg = f"Limits({name}={number!r}): a whole number of at least {least} is needed."
                raise UsageError(msg)
        for name in ("overlap", "coverage"):
            share: object = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
                msg = f"Limits({name}={share!r}): a share is needed, above 0 and at most 1."
                raise UsageError(msg)
        named: object = self.verifiers
        if isinstance(named, str):
            msg = f"Limits(verifiers={named!r}): a tuple of names is needed: ({named!r},)."
            raise UsageError(msg)


_LEAST = {"repeats": 2, "asked_again": 2, "rounds": 1, "idle_turns": 1, "idle_hops": 2, "finding_words": 1}
