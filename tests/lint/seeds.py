"""Seeded runs: for each rule some that show what it looks for, and good ones that look much alike.

`missed` marks what a rule is known not to see, or, in a good run, to see wrongly; the published rates count both.
"""

from typing import Final

from tests.lint.builders import Seed
from tests.lint.seeds_of_checks import BAD_CHECKS, GOOD_CHECKS
from tests.lint.seeds_of_good_talk import GOOD_TALK
from tests.lint.seeds_of_steps import BAD_STEPS, GOOD_STEPS
from tests.lint.seeds_of_talk import BAD_TALK

BAD: Final[dict[str, tuple[Seed, ...]]] = {**BAD_STEPS, **BAD_TALK, **BAD_CHECKS}
GOOD: Final[tuple[Seed, ...]] = (*GOOD_STEPS, *GOOD_TALK, *GOOD_CHECKS)
