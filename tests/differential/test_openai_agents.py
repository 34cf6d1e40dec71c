"""The same teams with the same scripted models in openai-agents and in graphflow: what must be alike is alike.

Where the two differ on purpose stands in `test_differences.py` beside this file, and why in
docs/decisions/0012-where-openai-agents-differs.md.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.conftest import Backend
from tests.differential.cases import ALIKE, chats, desks
from tests.differential.ours import play_ours
from tests.differential.script import Play
from tests.differential.theirs import play_theirs
from tests.support import examples

CHATS = [pytest.param(play, id=name) for name, play in ALIKE.items() if not any(one.team for one in play.members)]


@pytest.mark.parametrize("play", [pytest.param(play, id=name) for name, play in ALIKE.items()])
def test_a_team_does_the_same_in_both(play: Play, anyio_backend: Backend) -> None:
    """Requests of each model, runs of tools, counts, tokens, the answer and who gave it."""
    theirs = play_theirs(play)

    ours = play_ours(play, anyio_backend[0])

    assert ours.settled() == theirs.settled()


@pytest.mark.parametrize("play", CHATS)
def test_the_same_agents_speak_in_the_same_order(play: Play, anyio_backend: Backend) -> None:
    """Where nothing runs in parallel, the whole path of a conversation is the same."""
    theirs = play_theirs(play)

    ours = play_ours(play, anyio_backend[0])

    assert ours.path == theirs.path


@settings(max_examples=examples(300))
@given(play=chats())
def test_any_chat_is_the_same_in_both(play: Play) -> None:
    """Whatever the models say: tools, bad arguments, transfers anywhere in a turn, texts beside them."""
    theirs = play_theirs(play, in_call_order=True)

    ours = play_ours(play)

    assert ours.path == theirs.path
    assert ours.settled() == theirs.settled()


@settings(max_examples=examples(300))
@given(play=desks())
def test_any_desk_is_the_same_in_both(play: Play) -> None:
    """Whatever the models say: tools and delegations in one turn, in any order, members that fail."""
    theirs = play_theirs(play)

    ours = play_ours(play)

    assert ours.settled() == theirs.settled()
