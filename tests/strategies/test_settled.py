"""What strategies and teams add to a graph counts by its source, so it stays as it is: stored runs know it by that."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow.graphs import citing, conversation, effort, planning, rounds, turns
from graphflow.graphs.export import code

SETTLED: Final[dict[Callable[..., Any], str]] = {
    conversation.is_over: "13e04b445f00db322113725acfb5f9cf5bdceffa37c47f162d53140f76a0e26e",
    turns.goes_on: "75d5f42c2179207061d193d717149b26dd960351823b5ebe960bebc7bbbc401f",
    planning.replan: "81bc916aa1ce3a2619d8981cdf85886142fcad7bf70ddacb3bbf80ea1858d4ac",
    planning.judge: "0599ded04adb34f70feeca60dbedef264d2744490ecd2142f24d9546671367c0",
    citing.is_wrong: "7f092fc8421206242737504f22b4c0c698b4f5d1033085d23671d4691d1a9096",
    citing.cite_again: "f1db1102f36b602b689b57bb938188c44460a84ac0ff282d569efe4252df8183",
    rounds.with_task: "2c5cfeb188ecfa18059cb15eedda09014291333358e3754d9e4f659e3638ef18",
    rounds.open_round: "59e1b359e4c1197dbb0fde9b761529e0e108e89410c4d41ff9b82826e74332c2",
    rounds.close_round: "8c4dd3ff937be698cadc38d0a0700cce8786c4aeaee4b50ced4277c38a093fb6",
    rounds.judge_draft: "af17d3d625746af425fcd68c4512c82c6ba5d3067e383d5f4a5d10a77c2f123b",
    rounds.is_rejected: "1ab92c95303c4765e73d119a60744ba0750bf100e2cdb45b14cd8a8fcb3340c1",
    rounds.ask_again: "c421d50719a24294d3a0b8128a0424cb9a2d49b3cc4f5f07615b1de294566955",
    rounds.given_items: "b294f1492603a5c73a075ebc09a6c60b0cf38b64467bf9abad37216384f23ace",
    rounds.numbered: "26ee7b8ad907d125abbf6dccd93505b6d4d603617e7f8707b3b8edf9a7cbd0ae",
    effort.unless_refused: "0a5a35c806c960bacccdb0f6968ac0886caed394acd7043d7c68042b4635e1ba",
}
"""The functions of ours that stand in graphs, and the digests by which stored runs know them."""


@pytest.mark.parametrize("added", SETTLED, ids=lambda added: added.__name__)
def test_an_added_function_is_written_as_it_was(added: Callable[..., Any]) -> None:
    """Another docstring or comment would be another graph, and no stored run of a strategy could go on."""
    assert code(added)["digest"] == SETTLED[added]
