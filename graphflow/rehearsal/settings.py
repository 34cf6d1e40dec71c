"""What a rehearsal is told: how long things take, how large they are, and how stand-ins choose."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from graphflow.errors import UsageError
from graphflow.model.frozen import FrozenDict
from graphflow.nodes.function import is_async
from graphflow.rehearsal.distributions import Distribution, Fixed, Given, LogNormal, as_distribution, said

T = TypeVar("T")

StandIn: TypeAlias = Callable[..., Any]
"""Does in a rehearsal what something does in a run; see `rehearse`."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How the stand-in of an agent's model chooses.

    Attributes:
        act: how likely its first turn calls something, where it is offered anything; else it answers.
        fading: what this is multiplied by for each further turn.
        several: how likely a further call follows each call of a turn.
        hand_over: how likely a turn that calls something hands over, where that is offered; for each further visit
            of the agent this is multiplied by `fading` too. Where nothing else is offered, it answers otherwise.

    >>> Choices(act=1.0, fading=0.0)  # calls once, then answers
    Choices(act=1.0, fading=0.0, several=0.4, hand_over=0.7)
    """

    act: float = 0.9
    fading: float = 0.3
    several: float = 0.4
    hand_over: float = 0.7

    def __post_init__(self) -> None:
        """Check that they are probabilities."""
        for name in ("act", "fading", "several", "hand_over"):
            checked_rate(f"Choices: {name}=", getattr(self, name))


@dataclass(frozen=True, slots=True)
class Per(Generic[T]):
    """One value for all, and others for some names."""

    all: T
    some: FrozenDict[str, T] = field(default_factory=lambda: FrozenDict({}))

    def of(self, name: str) -> T:
        """Return the value for a name."""
        return self.some.get(name, self.all)

    def __str__(self) -> str:
        """Write the one for all, then the others."""
        others = ", ".join(f"{name}: {value}" for name, value in self.some.items())
        return f"{self.all} ({others})" if others else str(self.all)


Latencies: TypeAlias = Given | Mapping[str, Given]
"""A distribution for all, or some by name; those without one have the default."""

LATENCY: Final = LogNormal(2.0, 0.6)
TOKENS: Final = LogNormal(200.0, 0.6)
TOOL_LATENCY: Final = LogNormal(0.5, 0.6)
TOOL_TOKENS: Final = Fixed(100.0)
PEOPLE_LATENCY: Final = LogNormal(60.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a rehearsal draws from; `settings` makes and checks it.

    Attributes:
        latency: seconds of a call, by the name of the agent.
        tokens: tokens that a reply writes, by the name of the agent; never more than the request allows.
        input_tokens: tokens that a request reads, by the name of the agent; None counts them from its text.
        tool_latency: seconds of a call, by the name of the tool; of an effect, by its name.
        tool_tokens: how long the result of a tool is, by its name.
        people_latency: seconds until a person has answered.
        choices: how agents choose, by their names.
        failure_rate: how likely a call fails, by the name of the agent.
        tool_failure_rate: how likely a call fails, by the name of the tool.
        approval_rate: how likely a person approves a call, and a `Verdict` accepts.
        stand_ins: functions that stand for nodes, tools and effects, by their names.
    """

    latency: Per[Distribution]
    tokens: Per[Distribution]
    input_tokens: Per[Distribution | None]
    tool_latency: Per[Distribution]
    tool_tokens: Per[Distribution]
    people_latency: Distribution
    choices: Per[Choices]
    failure_rate: Per[float]
    tool_failure_rate: Per[float]
    approval_rate: float
    stand_ins: Mapping[str, StandIn]


@dataclass(frozen=True, slots=True)
class Names:
    """Who and what there is in a graph and in those inside it, by name."""

    agents: frozenset[str]
    tools: frozenset[str]
    people: frozenset[str]


def settings(
    names: Names,
    *,
    latency: Latencies = LATENCY,
    tokens: Latencies = TOKENS,
    input_tokens: Latencies | None = None,
    tool_latency: Latencies = TOOL_LATENCY,
    tool_tokens: Latencies = TOOL_TOKENS,
    people_latency: Given = PEOPLE_LATENCY,
    choices: Choices | Mapping[str, Choices] | None = None,
    failure_rate: float | Mapping[str, float] = 0.0,
    tool_failure_rate: float | Mapping[str, float] = 0.0,
    approval_rate: float = 0.9,
    stand_ins: Mapping[str, StandIn] | None = None,
) -> Settings:
    """Check what a rehearsal is told, and return it as one value.

    Raises:
        UsageError: if something makes no sense, or names nobody.
    """
    agents, tools = names.agents, names.tools
    given: object = {} if stand_ins is None else stand_ins
    table = cast("Mapping[Any, Any]", given) if isinstance(given, Mapping) else None
    if table is None or not all(isinstance(name, str) and callable(found) for name, found in table.items()):
        msg = f"stand_ins={said(stand_ins)}: a table from names of nodes, tools and effects to functions is needed."
        raise UsageError(msg)
    waits = [name for name, found in table.items() if name in agents | tools | names.people and is_async(found)]
    if waits:
        msg = (
            f"stand_ins={{{waits[0]!r}: ...}}: what stands in for a model, a tool or a person is a plain function, and "
            f"not async: how long it takes is drawn."
        )
        raise UsageError(msg)
    return Settings(
        latency=_per("latency", latency, LATENCY, agents, as_distribution),
        tokens=_per("tokens", tokens, TOKENS, agents, as_distribution),
        input_tokens=_per("input_tokens", input_tokens, None, agents, _or_none),
        tool_latency=_per("tool_latency", tool_latency, TOOL_LATENCY, None, as_distribution),
        tool_tokens=_per("tool_tokens", tool_tokens, TOOL_TOKENS, tools, as_distribution),
        people_latency=as_distribution("people_latency", people_latency),
        choices=_per("choices", Choices() if choices is None else choices, Choices(), agents, _choices),
        failure_rate=_per("failure_rate", failure_rate, 0.0, agents, _rate),
        tool_failure_rate=_per("tool_failure_rate", tool_failure_rate, 0.0, tools, _rate),
        approval_rate=checked_rate("approval_rate=", approval_rate),
        stand_ins=dict(table),
    )


def _per(what: str, given: Any, default: T, known: Iterable[str] | None, read: Callable[[str, Any], T]) -> Per[T]:
    """Read one value for all, or a table of some; `known` are the names that there are, None if nobody knows."""
    if not isinstance(given, Mapping):
        return Per(read(what, given))
    table = cast("Mapping[Any, Any]", given)
    for name in table:
        if not isinstance(name, str):
            msg = f'{what}={{{said(name)}: ...}}: a name is needed, which is a text; "" stands for all others.'
            raise UsageError(msg)
        wrong = None if known is None else unknown(name, known)
        if wrong is not None:
            msg = f"{what}={{{name!r}: ...}}: {wrong}"
            raise UsageError(msg)
    some = {str(name): read(f"{what} of {name!r}", value) for name, value in table.items()}
    return Per(some.pop("", default), FrozenDict(some))


def unknown(name: str, known: Iterable[str]) -> str | None:
    """Say that nothing has a name, and who there is; nothing of one that is known, or that stands for all.

    >>> unknown("desc", ("desk", "clerk"))
    "nothing here has the name 'desc'; there are 'clerk', 'desk'. Did you mean 'desk'?"
    """
    names = sorted(known)
    if name in ("", *names):
        return None
    near = difflib.get_close_matches(name, names, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"nothing here has the name {name!r}; there are {', '.join(map(repr, names)) or 'none'}.{guess}"


def _or_none(where: str, given: object) -> Distribution | None:
    return None if given is None else as_distribution(where, given)


def _choices(where: str, given: object) -> Choices:
    if isinstance(given, Choices):
        return given
    msg = f"{where}={said(given)}: Choices(act=..., fading=..., several=..., hand_over=...) is needed."
    raise UsageError(msg)


def _rate(where: str, given: object) -> float:
    return checked_rate(f"{where}=", given)


def checked_rate(where: str, given: object) -> float:
    """Return a probability.

    Raises:
        UsageError: if it is none; the text begins with `where`.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 <= given <= 1:
        return float(given)
    msg = f"{where}{said(given)}: a probability from 0 to 1 is needed."
    raise UsageError(msg)
