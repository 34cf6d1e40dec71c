"""Detectors: patterns that lead nowhere, and what is done about them. `Graph(detect=(ping_pong(), repetition()))`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphflow.errors import UsageError
from graphflow.model.telling import value_text
from graphflow.nodes.edges import checked_bound

Then = Literal["warn", "note", "stop"]
"""What follows: "warn" an event alone; "note" the agent is told; "stop" it counts as a bound that was hit."""


@dataclass(frozen=True, slots=True)
class Detector:
    """A pattern to look for in each activation of a graph.

    New evidence, which is a tool's result or a report that was not seen before, begins the count anew.

    Attributes:
        kind: "ping_pong", "repetition" or "no_progress".
        limit: how often it may be seen: the time after that counts.
        then: what follows.
        window: how many steps back a repetition is looked for.
    """

    kind: Literal["ping_pong", "repetition", "no_progress"]
    limit: int
    then: Then
    window: int = 0


def ping_pong(rounds: int = 2, *, then: Then = "stop") -> Detector:
    """Detect two agents that hand control to and fro, with no new evidence between.

    Args:
        rounds: how often control may come back to the same agent; a further handoff between the two is detected.
        then: what follows.

    Raises:
        UsageError: if an argument makes no sense.

    >>> ping_pong(rounds=1).limit
    1
    """
    return _checked(Detector("ping_pong", _at_least_one("ping_pong", "rounds", rounds), then))


def repetition(times: int = 3, *, window: int = 20, then: Then = "note") -> Detector:
    """Detect the same step again: a node with the same input, or a call with the same arguments, with no new evidence.

    Texts are compared without regard to case and spaces.

    Args:
        times: the step that is done this often within the window is detected.
        window: how many of the last steps count.
        then: what follows.

    Raises:
        UsageError: if an argument makes no sense.
    """
    found = Detector(
        "repetition", _at_least_one("repetition", "times", times), then, _at_least_one("repetition", "window", window)
    )
    return _checked(found)


def no_progress(hops: int = 6, *, then: Then = "stop") -> Detector:
    """Detect a conversation that is handed on and on, among however many agents, with no new evidence.

    Args:
        hops: how many handoffs may follow each other with no new evidence; a further one is detected.
        then: what follows.

    Raises:
        UsageError: if an argument makes no sense.

    >>> no_progress(hops=3).limit
    3
    """
    return _checked(Detector("no_progress", _at_least_one("no_progress", "hops", hops), then))


def _at_least_one(where: str, name: str, number: int) -> int:
    found = checked_bound(where, number, name, least=1)
    if found is None:
        msg = f"{where}({name}=None): a number is needed."
        raise UsageError(msg)
    return found


def _checked(detector: Detector) -> Detector:
    if detector.then not in ("warn", "note", "stop"):
        msg = f"{detector.kind}(then={value_text(detector.then)}): 'warn', 'note' or 'stop'."
        raise UsageError(msg)
    return detector
