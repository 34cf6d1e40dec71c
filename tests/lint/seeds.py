"""Seeded runs: for each rule some that show what it looks for, and good ones that look much alike.

`missed` marks what a rule is known not to see, or, in a good run, to see wrongly; the published rates count both.
"""

from typing import Final

from graphflow.lint import CODES
from tests.lint.builders import Seed
from tests.lint.seeds_of_checks import BAD_CHECKS, GOOD_CHECKS
from tests.lint.seeds_of_good_talk import GOOD_TALK
from tests.lint.seeds_of_steps import BAD_STEPS, GOOD_STEPS
from tests.lint.seeds_of_talk import BAD_TALK
from tests.lint.seeds_of_teams import BAD_TEAMS, GOOD_TEAMS

_PARTS: Final = (BAD_STEPS, BAD_TALK, BAD_CHECKS, BAD_TEAMS)

BAD: Final[dict[str, tuple[Seed, ...]]] = {
    code: tuple(seed for part in _PARTS for seed in part.get(code, ())) for code in CODES
}
GOOD: Final[tuple[Seed, ...]] = (*GOOD_STEPS, *GOOD_TALK, *GOOD_CHECKS, *GOOD_TEAMS)
