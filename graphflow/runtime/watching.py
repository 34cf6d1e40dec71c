"""Watching: the detectors of a graph look for patterns that lead nowhere."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final, NamedTuple

from graphflow.events import Detected
from graphflow.model.contract import Reason
from graphflow.model.ids import Path
from graphflow.model.thread import capped, normal, shown
from graphflow.nodes.detect import Detector
from graphflow.runtime.core import Core, thread_of
from graphflow.runtime.tables import Inbox, Token

Key = tuple[str, ...]


class Watch:
    """What the detectors of one activation have seen.

    Attributes:
        steps: the last steps, each with how much evidence there was then.
        evidence: how many different results and reports there were.
        known: these, shortened.
        own: the steps that have brought evidence: what a step brings first is no news to itself.
        trail: who handed over to whom.
        hops: how much evidence there was when each of them was handed control; -1 where nobody handed it over.
    """

    __slots__ = ("evidence", "hops", "known", "own", "steps", "trail")

    def __init__(self, window: int) -> None:
        """Begin with nothing seen."""
        self.steps: deque[tuple[Key, int]] = deque(maxlen=window)
        self.evidence = 0
        self.known: set[bytes] = set()
        self.own: set[Key] = set()
        self.trail: list[str] = []
        self.hops: list[int] = []

    def branch(self) -> Watch:
        """Return what was seen before a branch parts."""
        made = Watch(self.steps.maxlen or 1)
        made.steps.extend(self.steps)
        made.evidence, made.known, made.own = self.evidence, set(self.known), set(self.own)
        made.trail, made.hops = list(self.trail), list(self.hops)
        return made


class Sight(NamedTuple):
    """What the detectors found: a note for the agent, and the bound that stops it."""

    note: str = ""
    stop: Reason | None = None


NOTHING_SEEN = Sight()


class Watching(Core):
    """The detectors at work."""

    __slots__ = ()

    @staticmethod
    def _watch(token: Token) -> Watch:
        """Return what was seen in a token's thread: siblings do not see each other, whoever is first."""
        log = thread_of(token)
        if log.watch is None:
            window = max((found.window for found in token.frame.tables.graph.detect), default=0)
            log.watch = Watch(max(window, 1))
        watch: Watch = log.watch
        return watch

    def new_evidence(self, token: Token, key: Key, text: str) -> None:
        """Note what a step has brought; a result that was not seen before begins every count anew."""
        if not token.frame.tables.graph.detect:
            return
        watch = self._watch(token)
        known = hashlib.blake2b(normal(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if known not in watch.known:
            watch.known.add(known)
            watch.evidence += 1
            watch.own.add(key)

    def step_taken(self, token: Token, path: Path, key: Key, what: str) -> Sight:
        """Note a step, and tell what the detectors of repetition make of it."""
        detectors = [found for found in token.frame.tables.graph.detect if found.kind == "repetition"]
        if not detectors:
            return NOTHING_SEEN
        watch = self._watch(token)
        step = (key, watch.evidence - (key in watch.own))
        watch.steps.append(step)
        sight = NOTHING_SEEN
        for found in detectors:
            times = list(watch.steps)[-found.window :].count(step)
            if times >= found.limit:
                text = f"{what} was done {times} times, with no new evidence between"
                sight = self._detected(sight, found, path, text, float(found.limit))
        return sight

    def node_entered(self, token: Token, name: str, path: Path, inbox: Inbox) -> Sight:
        """Note that a node is entered with some input."""
        given = " ".join(normal(f"{message.source}: {shown(message.value)}") for message in inbox)
        key = ("node", name, given, normal(shown(token.context)))
        return self.step_taken(token, path, key, f"{name!r} with the same input")

    def handing_off(self, token: Token, path: Path, target: str) -> Sight:
        """Note a handoff that is about to happen, and tell what the detectors of handoffs make of it."""
        detectors = [found for found in token.frame.tables.graph.detect if found.kind in _OF_HANDOFFS]
        if not detectors:
            return NOTHING_SEEN
        watch = self._watch(token)
        trail = watch.trail
        if not trail or trail[-1] != path[-1].name:  # somebody took over who was handed nothing
            trail.append(path[-1].name)
            watch.hops.append(-1)
        trail.append(target)
        watch.hops.append(watch.evidence)
        sight = NOTHING_SEEN
        for found in detectors:
            text = _to_and_fro(watch, found.limit) if found.kind == "ping_pong" else _on_and_on(watch, found.limit)
            if text:
                sight = self._detected(sight, found, path, text, float(found.limit))
        return sight

    def _detected(self, sight: Sight, found: Detector, path: Path, text: str, limit: float) -> Sight:
        self.decisions.append(Detected(path, found.kind, text, found.then))
        if found.then == "note":
            return sight._replace(note=f"{capped(text, 1_000)}. Do something else, or answer with what you have.")
        if found.then == "stop" and sight.stop is None:
            return sight._replace(stop=self.refuse(path, found.kind, limit, f"more of the same: {text}"))
        return sight


_OF_HANDOFFS: Final = frozenset({"ping_pong", "no_progress"})


def _to_and_fro(watch: Watch, rounds: int) -> str:
    """Say what two agents do that hand over to each other more than so many rounds; "" if they do not."""
    length = 2 * rounds + 2  # so many names are the rounds and one handoff more
    end = watch.trail[-length:]
    to_and_fro = len(end) == length and end == end[:2] * (rounds + 1) and end[0] != end[1]
    if not to_and_fro or watch.hops[-1] != watch.hops[1 - length]:
        return ""
    return f"{end[0]!r} and {end[1]!r} hand over to each other, with no new evidence: {' '.join(end)}"


def _on_and_on(watch: Watch, hops: int) -> str:
    """Say who handed on to whom more than so many times with no new evidence; "" if it was not so often."""
    since = watch.hops[-hops - 1 :]
    if len(since) <= hops or since[0] < 0 or len(set(since)) > 1:
        return ""
    return f"control was handed on {hops} times, with no new evidence: {' '.join(watch.trail[-hops - 2 :])}"
