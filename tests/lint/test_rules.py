"""Each rule flags the runs that are seeded with what it looks for, and none that only look alike."""

import pytest

from graphflow.lint import CODES, lint
from tests.lint.builders import Seed, played
from tests.lint.seeds import BAD, GOOD

BADS = [pytest.param(code, seed, id=f"{code}: {seed.name}") for code, seeds in BAD.items() for seed in seeds]
GOODS = [pytest.param(seed, id=seed.name) for seed in GOOD]


@pytest.mark.parametrize(("code", "seed"), BADS)
async def test_a_seeded_run_is_flagged(code: str, seed: Seed) -> None:
    """What was put into a run is found in it, at a place that is there; what is known to be missed is."""
    graph = seed.make()
    events = await played(graph)

    found = [one for one in lint(graph, events) if one.code == code]

    assert bool(found) is not seed.missed
    assert all(0 <= one.seq < len(events) and one.message and one.hint for one in found)


@pytest.mark.parametrize("seed", GOODS)
async def test_a_good_run_shows_nothing(seed: Seed) -> None:
    """No rule sees anything in a run that has nothing of the kind."""
    graph = seed.make()

    found = lint(graph, await played(graph))

    assert [str(one) for one in found] == [] or seed.missed


def test_every_rule_has_seeds() -> None:
    """Three bad runs at least for each rule."""
    assert {code: len(seeds) >= 3 for code, seeds in BAD.items()} == dict.fromkeys(CODES, True)
