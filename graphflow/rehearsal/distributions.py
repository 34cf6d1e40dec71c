"""Distributions: how long something takes, or how much of it there is, as small values that are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from graphflow.errors import UsageError


@runtime_checkable
class Distribution(Protocol):
    """What numbers of at least 0 are drawn from."""

    def draw(self, rng: Random) -> float:
        """Return the next number; the same generator gives the same one."""
        ...


Given: TypeAlias = Distribution | float | str | Sequence[float]
"""How a distribution can be written: a value, a number, its text, or samples."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number.

    >>> Fixed(2.0).draw(Random(1)), str(Fixed(2.0))
    (2.0, '2')
    """

    value: float

    def __post_init__(self) -> None:
        """Check the number."""
        _check(self, ("value", self.value))

    def draw(self, rng: Random) -> float:  # noqa: ARG002 - as every distribution is drawn from
        """Return the number."""
        return self.value

    def __str__(self) -> str:
        """Write it as `distribution` reads it."""
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any number between two, each as likely as the other."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check(self, ("low", self.low), ("high", self.high))
        if self.low > self.high:
            msg = f"{self!r}: low is at most high; swap them."
            raise UsageError(msg)

    def draw(self, rng: Random) -> float:
        """Return the next number."""
        return self.low + (self.high - self.low) * rng.random()

    def __str__(self) -> str:
        """Write it as `distribution` reads it."""
        return f"uniform:{self.low:g},{self.high:g}"


@dataclass(frozen=True, slots=True)
class Normal:
    """Around a mean; what would be below 0 is 0."""

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check(self, ("mean", self.mean), ("deviation", self.deviation))

    def draw(self, rng: Random) -> float:
        """Return the next number."""
        return max(0.0, rng.normalvariate(self.mean, self.deviation))

    def __str__(self) -> str:
        """Write it as `distribution` reads it."""
        return f"normal:{self.mean:g},{self.deviation:g}"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Around a median, with a long tail: the logarithm is normal. Models and networks mostly answer like that.

    >>> distribution("lognormal:2,0.6")
    LogNormal(median=2.0, sigma=0.6)
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check(self, ("median", self.median), ("sigma", self.sigma))
        if self.median <= 0 or self.sigma > MOST_SIGMA:
            msg = f"{self!r}: the median is above 0, and sigma is at most {MOST_SIGMA:g}."
            raise UsageError(msg)

    def draw(self, rng: Random) -> float:
        """Return the next number."""
        return self.median * math.exp(rng.normalvariate(0.0, self.sigma))

    def __str__(self) -> str:
        """Write it as `distribution` reads it."""
        return f"lognormal:{self.median:g},{self.sigma:g}"


@dataclass(frozen=True, slots=True)
class Exponential:
    """With a mean, and no memory: mostly short, now and then long."""

    mean: float

    def __post_init__(self) -> None:
        """Check the number."""
        _check(self, ("mean", self.mean))

    def draw(self, rng: Random) -> float:
        """Return the next number."""
        return self.mean * -math.log(1.0 - rng.random())

    def __str__(self) -> str:
        """Write it as `distribution` reads it."""
        return f"exp:{self.mean:g}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was seen before: any of the samples, each as likely as the other."""

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the samples."""
        given: object = self.samples
        if not isinstance(given, (tuple, list)):
            msg = f"Recorded({said(given)}): a tuple of numbers is needed."
            raise UsageError(msg)
        if not self.samples:
            msg = "Recorded(()): at least one sample is needed."
            raise UsageError(msg)
        _check(self, *(("sample", sample) for sample in self.samples))

    def draw(self, rng: Random) -> float:
        """Return one of the samples."""
        return self.samples[int(rng.random() * len(self.samples))]

    def __str__(self) -> str:
        """Say how many there are."""
        return f"{len(self.samples)} recorded"


MOST_SIGMA: Final = 10.0
"""Above this, a log-normal number is mostly nothing or more than anything."""

MOST: Final = 1e15
"""The largest number that makes sense: of seconds, thirty million years."""

MOST_DRAWN: Final = 1e100
"""The largest number that may be drawn: those of all runs have a sum."""

LONGEST: Final = 200
"""How many characters of a value an error shows."""

FORMS: Final[Mapping[str, tuple[int, Callable[..., Distribution]]]] = {
    "fixed": (1, Fixed), "uniform": (2, Uniform), "normal": (2, Normal), "lognormal": (2, LogNormal),
    "exp": (1, Exponential),
}  # fmt: skip

KNOWN: Final = "a number, uniform:LOW,HIGH, normal:MEAN,DEVIATION, lognormal:MEDIAN,SIGMA or exp:MEAN"


def distribution(text: str) -> Distribution:
    """Read a distribution from its text: `2`, `uniform:1,3`, `normal:2,0.5`, `lognormal:2,0.6`, `exp:2`.

    Raises:
        UsageError: if it is none; the text says which there are.

    >>> distribution("2"), distribution("uniform:1,3")
    (Fixed(value=2.0), Uniform(low=1.0, high=3.0))
    """
    given: object = text
    if not isinstance(given, str):
        msg = f"distribution({said(given)}): a text is needed; it is {KNOWN}."
        raise UsageError(msg)
    name, colon, rest = text.strip().partition(":")
    if not colon:
        name, rest = "fixed", name
    form = FORMS.get(name.strip().lower())
    if form is None:
        hint = ""
        if name == "recorded":
            hint = " Of stored runs, the command line reads recorded:RUN; in Python, give recordings(events).latency."
        msg = f"the distribution {text!r}: there is no {name!r}; it is {KNOWN}.{hint}"
        raise UsageError(msg)
    count, make = form
    numbers = [number for number in map(_number, rest.split(",")) if number is not None]
    if len(numbers) != count or rest.count(",") != count - 1:
        msg = f"the distribution {text!r}: {count} number{'s' * (count > 1)} needed after the name; it is {KNOWN}."
        raise UsageError(msg)
    return make(*numbers)


def as_distribution(where: str, given: object) -> Distribution:
    """Return what was given as a distribution: one, a number, a text, or a list of samples.

    Raises:
        UsageError: if it is none of them; the text begins with `where`.

    >>> as_distribution("latency", [0.5, 0.7])
    Recorded(samples=(0.5, 0.7))
    """
    try:
        if isinstance(given, str):
            return distribution(given)
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return Fixed(_floated(given))
        if isinstance(given, (list, tuple)):
            samples = tuple(cast("Sequence[Any]", given))
            return Recorded(tuple(_floated(sample) if type(sample) is int else sample for sample in samples))
        if isinstance(given, Distribution) and not isinstance(given, type):
            return given
    except UsageError as error:
        msg = f"{where}: {error}"
        raise UsageError(msg) from None
    msg = f"{where}={said(given)}: a distribution is needed, such as LogNormal(2, 0.6), {KNOWN}, or a list of samples."
    raise UsageError(msg)


def drawn(found: Distribution, rng: Random, where: str) -> float:
    """Draw a number, and see that one of the user's own distributions gives none that makes no sense.

    Raises:
        UsageError: if it does.
    """
    number = found.draw(rng)
    if not _fits(number, MOST_DRAWN):
        msg = f"{where}: {said(found)} gave {said(number)}; {_needed(MOST_DRAWN)}"
        raise UsageError(msg)
    return number


def said(value: object) -> str:
    """Write a value for an error, whatever it is: in short, where it is long.

    >>> said("x"), said(10**400)[195:]
    ("'x'", '00000... (401 characters)')
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's __repr__ may do anything, and a whole number may have too many digits
        return f"(a value of {type(value).__name__} that cannot be written)"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _check(of: object, *numbers: tuple[str, object]) -> None:
    for name, number in numbers:
        if not _fits(number, MOST):
            msg = f"{type(of).__name__}({name}={said(number)}): {_needed(MOST)}"
            raise UsageError(msg)


def _needed(most: float) -> str:
    return f"a finite number of at least 0 and at most {most:g} is needed."


def _fits(number: object, most: float) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number <= most


def _floated(number: float) -> float:
    return float(number) if abs(number) <= MOST else number  # what is too large is refused, as it was given
