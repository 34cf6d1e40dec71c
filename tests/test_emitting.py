"""What bodies in threads say: records are written by the loop alone, whoever speaks."""

import json
import re

import pytest
from pydantic import BaseModel, SecretStr

from graphflow import END, START, Budget, Context, Graph, State, Step, node, run
from graphflow.testing import MemoryJournal


class Key(BaseModel, frozen=True):
    """Something with a secret in it, which takes a while to be written."""

    token: SecretStr
    more: tuple[int, ...] = tuple(range(2000))


class Case(Context):
    """Declares what is said."""

    keys: tuple[Key, ...] = ()


@pytest.mark.may_block
async def test_threads_that_speak_at_once_do_not_mix_their_secrets() -> None:
    """Each record names each of its secrets for itself, whatever another thread says at the same moment."""
    journal = MemoryJournal()

    def speaker(name: str) -> object:
        keys = tuple(Key(token=SecretStr(f"{name}{number}")) for number in range(20))

        @node(name=name)
        def speak(state: State[Case], step: Step) -> None:
            for _ in range(10):
                step.emit(keys)

        return speak

    @node
    async def last(state: State[Case]) -> None:
        pass

    speakers = (speaker("a"), speaker("b"))
    graph = Graph("loud", START >> speakers >> last >> END, context=Case, budget=Budget(node_runs=9))  # type: ignore[operator]

    await run(graph, Case(), journal=journal, run_id="r")

    emitted = [row.fact for row in await journal.read("r") if json.loads(row.fact)[0] == "emitted"]
    assert len(emitted) == 20
    for fact in emitted:
        assert len(set(re.findall(r'"name":"([^"]*)"', fact))) == 20
