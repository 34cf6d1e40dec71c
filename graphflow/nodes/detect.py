"""Detectors: patterns that lead nowhere, and what is done about them. `Graph(detect=(ping_pong(), repetition()))`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphflow.errors import UsageError
from graphflow.model.telling import value_text
from graphflow.nodes.checked import checked_count

Then = Literal["warn", "note", "stop"]
"""What follows: "warn" an event alone; "note" the agent is told; "stop" it counts as a bound that was hit."""


@dataclass(frozen=True, slots=True)
class Detector:
    """A pattern to look for in each activation of a graph.

    New evidence, which is a tool's result or a report that was not seen before, begins the count anew.

    Attributes:
        kind: "ping_pong", "repetition" or "no_progress".
        limit: of a repetition, how many equal steps it takes; of the others, how often it may be seen: the time after
            that is detected.
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
    return _checked(Detector("ping_pong", checked_count("ping_pong", rounds, "rounds", 1), then))


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
    checked_count("repetition", window, "window", 1)
    return _checked(Detector("repetition", checked_count("repetition", times, "times", 1), then, window))


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
    return _checked(Detector("no_progress", checked_count("no_progress", hops, "hops", 1), then))


def _checked(detector: Detector) -> Detector:
    if detector.then not in ("warn", "note", "stop"):
        msg = f"{detector.kind}: then={value_text(detector.then)}: 'warn', 'note' or 'stop' is needed."
        raise UsageError(msg)
    return detector
