"""What stored runs say of how long things take and how large they are: samples for a rehearsal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.errors import UsageError
from graphflow.events import EffectFinished, EffectStarted, Event
from graphflow.model.frozen import FrozenDict
from graphflow.model.ids import Path
from graphflow.rehearsal.distributions import Recorded

MODEL = "model"
"""The key of an agent's call of its model."""

ALL = ""
"""The name under which the samples of all stand, for those who have none of their own."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """Samples by name, and those of all together under "", as `rehearse` takes them.

    Attributes:
        latency: active seconds of calls of models, by the names of agents.
        tokens: tokens that replies wrote, by the names of agents.
        input_tokens: tokens that requests had, by the names of agents.
        tool_latency: active seconds of calls of tools and of effects, by their names.
    """

    latency: Mapping[str, Recorded]
    tokens: Mapping[str, Recorded]
    input_tokens: Mapping[str, Recorded]
    tool_latency: Mapping[str, Recorded]


def recordings(*runs: Iterable[Event]) -> Recordings:
    """Read samples out of the events of runs; calls that failed are left out.

    Args:
        runs: the events of one run each, as an iteration over a `Run` gives them.

    Raises:
        UsageError: if no call of a model has ended in them.
    """
    found: dict[str, dict[str, list[float]]] = {"latency": {}, "tokens": {}, "input_tokens": {}, "tool_latency": {}}
    for events in runs:
        begun: dict[tuple[Path, int, str], tuple[float, str]] = {}
        for event in events:
            body = event.body
            if isinstance(body, EffectStarted):
                begun[body.path, body.turn, body.key] = event.at, body.name
            elif isinstance(body, EffectFinished) and body.failure is None:
                started = begun.pop((body.path, body.turn, body.key), None)
                if started is not None:
                    _add(found, body, event.at - started[0], started[1])
    if not found["latency"]:
        msg = "recordings(...): no call of a model has ended in these events; there is nothing to draw from."
        raise UsageError(msg)
    return Recordings(*(FrozenDict(_samples(table)) for table in found.values()))


def _add(found: dict[str, dict[str, list[float]]], body: EffectFinished, seconds: float, name: str) -> None:
    if body.key != MODEL:
        found["tool_latency"].setdefault(name, []).append(seconds)
        return
    agent = body.path[-1].name
    found["latency"].setdefault(agent, []).append(seconds)
    usage: Any = getattr(body.result, "usage", None)
    if usage is not None:
        found["tokens"].setdefault(agent, []).append(float(usage.output_tokens))
        found["input_tokens"].setdefault(agent, []).append(float(usage.input_tokens))


def _samples(table: Mapping[str, list[float]]) -> dict[str, Recorded]:
    if not table:
        return {}
    every = [sample for samples in table.values() for sample in samples]
    return {ALL: Recorded(tuple(every)), **{name: Recorded(tuple(samples)) for name, samples in table.items()}}


def only(table: Mapping[str, Recorded], names: Iterable[str]) -> Mapping[str, Recorded]:
    """Leave out whoever is not there: a stored run may be of a graph that has changed since."""
    there = {ALL, *names}
    return {name: samples for name, samples in table.items() if name in there}
