"""Sets have another order in every process: no text that is decided, and no fingerprint, may depend on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphflow import Context
from graphflow.errors import ContractError
from graphflow.model.context import rules_of
from graphflow.model.secrets import in_order, veiled

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import asyncio, dataclasses, json, sys
from pydantic import BaseModel
from graphflow import *
from graphflow.testing import RuleModel

TAGS = frozenset(("red", "green", "blue", "x", "y"))

class Out(BaseModel, frozen=True):
    tags: frozenset[str] = TAGS
    numbers: frozenset[int] = frozenset((11, 2, -3))

@dataclasses.dataclass(frozen=True)
class Pair:
    tags: frozenset[str] = TAGS

@dataclasses.dataclass(frozen=True, repr=False)
class Silent:
    tags: frozenset[str] = TAGS

class Case(Context):
    q: str = "q"
    out: Out = Out()
    pair: Pair = Pair()
    table: FrozenDict[str, frozenset[str]] = FrozenDict({"a": TAGS})

class Taken(Context):
    seen: frozenset[str] = TAGS

def gives(value):
    return node(name="gives")(lambda state: value)

person = Human("person", "Publish?", schema=bool)

def graph(*chains):
    return Graph("g", *chains, context=Case, budget=Budget(node_runs=9))

tags = gives(TAGS)
GRAPHS = {
    "set": lambda: graph(START >> tags >> person >> END),
    "model": lambda: graph(START >> gives(Out()) >> person >> END),
    "dataclass": lambda: graph(START >> gives(Pair()) >> person >> END),
    "no text of its own": lambda: graph(START >> gives(Silent()) >> person >> END),
    "join": lambda: graph(START >> (tags, tags.named("too")) >> Join("j") >> person >> END),
    "agent": lambda: graph(START >> Agent("a", model=RuleModel(otherwise=Out()), output=Out) >> person >> END),
    "nested": lambda: graph(START >> Graph("in", START >> tags >> person >> END, context=Taken) >> END),
    "choose": lambda: graph(START >> tags, tags.choose(on(TAGS, person), default=END), person >> END),
}

def note():
    hands = node(name="n")(lambda state: state.values[0] if state.values else Handoff("person", note=TAGS))
    return graph(START >> hands >> END, hands.hands_off(person, max_hops=1))

GRAPHS["note"] = note

async def main(mode, path):
    journal = SqliteJournal(path)
    told = {}
    for name, make in GRAPHS.items():
        made = make()
        if mode == "run":
            result = await run(made, Case(), journal=journal, run_id=name)
        else:
            waits = await replay(made, name, journal=journal)
            answers = {question.id: True for question in waits.questions}
            result = await resume(made, name, journal=journal, answers=answers)
        told[name] = (result.status, made.fingerprint())
    print(json.dumps(told))

asyncio.run(main(*sys.argv[1:]))
"""


def lived(mode: str, path: Path, seed: str) -> str:
    """Run the program in a process of its own, with its own order of sets; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, str(path)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.may_block
def test_a_person_answers_in_another_process_whatever_order_its_sets_have(tmp_path: Path) -> None:
    """A question shows a value with sets in it: another process asks with the same text, and knows the same graph."""
    path = tmp_path / "runs.db"

    asked, answered = lived("run", path, "1"), lived("resume", path, "5")

    assert asked.count('"waiting"') == 9
    assert answered == asked.replace('"waiting"', '"completed"')


def test_what_is_shown_has_its_sets_in_order() -> None:
    """By kind, whole numbers by size, texts by the alphabet; an open set is shown as one."""
    value = {"a": frozenset(("c", "a", "b", 10, 9, 2)), "b": {"y", "x"}}

    assert repr(veiled(value)) == "{'a': frozenset({2, 9, 10, 'a', 'b', 'c'}), 'b': {'x', 'y'}}"
    assert list(in_order(frozenset((3, 1, 20)))) == [1, 3, 20]


def test_what_does_not_fit_in_a_set_is_told_by_its_place_in_order() -> None:
    """The text is a reason that is stored: numbers come before texts, in every process."""

    class Case(Context):
        words: frozenset[str] = frozenset()

    with pytest.raises(ContractError) as refused:
        rules_of(Case).validate({"words": frozenset(("a", "b", "c", 3, "d", "e"))})

    assert "Case.words[0] does not fit: Input should be a valid string (given int)" in str(refused.value)
