"""Distributions: what is drawn from them, how they are written, and what is no distribution."""

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import UsageError
from graphflow.rehearsal import Exponential, Fixed, LogNormal, Normal, Recorded, Uniform, distribution
from graphflow.rehearsal.distributions import Distribution, as_distribution, drawn

AMOUNTS = st.integers(0, 1000).map(float)
DISTRIBUTIONS = st.one_of(
    AMOUNTS.map(Fixed),
    st.tuples(AMOUNTS, AMOUNTS).map(lambda two: Uniform(*sorted(two))),
    st.builds(Normal, AMOUNTS, AMOUNTS),
    st.builds(LogNormal, st.integers(1, 1000).map(float), st.integers(0, 3).map(float)),
    AMOUNTS.map(Exponential),
)


@given(DISTRIBUTIONS, st.integers())
def test_what_is_drawn_is_a_number_of_at_least_nothing(found: Distribution, seed: int) -> None:
    """Whatever the distribution, no time is negative, and the same generator gives the same number."""
    number = found.draw(Random(seed))

    assert 0 <= number < math.inf
    assert number == found.draw(Random(seed))


@given(DISTRIBUTIONS)
def test_a_distribution_is_read_from_its_text(found: Distribution) -> None:
    """What `str` writes, `distribution` reads."""
    assert distribution(str(found)) == found


@pytest.mark.parametrize(
    ("found", "median"),
    [
        pytest.param(Uniform(1, 3), 2.0, id="uniform"),
        pytest.param(Normal(2, 0.5), 2.0, id="normal"),
        pytest.param(LogNormal(2, 0.6), 2.0, id="lognormal"),
        pytest.param(Exponential(2), 2 * math.log(2), id="exp"),
        pytest.param(Recorded((1.0, 2.0, 9.0)), 2.0, id="recorded"),
    ],
)
def test_half_of_what_is_drawn_lies_below_the_median(found: Distribution, median: float) -> None:
    """The parameters mean what they are called."""
    rng = Random(7)

    numbers = sorted(found.draw(rng) for _ in range(4001))

    assert numbers[2000] == pytest.approx(median, rel=0.06)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(2, Fixed(2.0), id="a whole number"),
        pytest.param(0.5, Fixed(0.5), id="a number"),
        pytest.param(" LogNormal:2,0.6 ", LogNormal(2.0, 0.6), id="a text"),
        pytest.param([1, 2.5], Recorded((1.0, 2.5)), id="samples"),
        pytest.param(Exponential(3.0), Exponential(3.0), id="a distribution"),
    ],
)
def test_a_distribution_can_be_given_in_many_ways(given: Any, found: Distribution) -> None:
    """A number, a text and samples stand for distributions."""
    assert as_distribution("latency", given) == found


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        pytest.param("gamma:1,2", "there is no 'gamma'; it is a number, uniform:LOW,HIGH", id="unknown"),
        pytest.param("uniform:1", "2 numbers needed", id="too few"),
        pytest.param("uniform:1,2,3", "2 numbers needed", id="too many"),
        pytest.param("normal:a,b", "2 numbers needed", id="no numbers"),
        pytest.param("", "1 number needed", id="nothing"),
        pytest.param("recorded:monday", "in Python, give recordings", id="recorded"),
        pytest.param("uniform:3,1", "swap them", id="the wrong way round"),
        pytest.param("lognormal:0,1", "the median is above 0", id="no median"),
        pytest.param("lognormal:1,99", "sigma is at most 10", id="too wide"),
        pytest.param("-1", "at least 0", id="negative"),
        pytest.param("nan", "finite", id="no number at all"),
        pytest.param([], "at least one sample", id="no samples"),
        pytest.param(["a"], "finite number", id="samples that are none"),
        pytest.param(True, "a distribution is needed", id="a bool"),
        pytest.param(Fixed, "a distribution is needed", id="a class"),
        pytest.param(None, "a distribution is needed", id="None"),
    ],
)
def test_what_is_no_distribution_is_refused(given: Any, complaint: str) -> None:
    """The error says what was given, and what there is."""
    with pytest.raises(UsageError, match=complaint) as raised:
        as_distribution("latency", given)

    assert str(raised.value).startswith("latency")


def test_a_distribution_of_the_users_own_is_looked_at() -> None:
    """A time that is negative or no number is refused where it is drawn."""

    class Odd:
        def draw(self, rng: Random) -> float:
            return -1.0

    with pytest.raises(UsageError, match=r"gave -1\.0; a finite number of at least 0"):
        drawn(Odd(), Random(0), "latency of 'desk'")
