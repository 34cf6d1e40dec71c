"""A run that failed because a service was down has ended: the command line says which fork goes on from before that."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.test_cli_runs import Printed, calls, done

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

GRAPHS: Final = '''
from pathlib import Path

from graphflow import (
    END, START, Agent, Budget, Context, Graph, ModelRefused, ModelReply, ModelUnavailable, State, Step, Usage, node,
)
from graphflow.errors import ToolServerUnavailable


class Case(Context):
    question: str


def look() -> str:
    with Path("calls.txt").open("a", encoding="utf-8") as file:
        file.write("look\\n")
    return "seen"


def fetch() -> str:
    if Path("down").exists():
        raise ToolServerUnavailable("files", "it is down.")
    return "fetched"


@node
async def first(state: State[Case], step: Step) -> str:
    return await step.effect("look", look)


@node
async def fetches(state: State[Case], step: Step) -> str:
    return await step.effect("fetch", fetch)


@node
async def breaks(state: State[Case]) -> str:
    raise ValueError("it broke")


class Service:
    """A model whose server may be down."""

    def __init__(self, error, **wait):
        self.error, self.wait = error, wait

    async def reply(self, request, stream):
        if Path("down").exists():
            raise self.error("the server is down.", **self.wait)
        return ModelReply("well", usage=Usage(1, 1))


asked = Agent("asked", model=Service(ModelUnavailable), instructions="x")
patient = Agent("patient", model=Service(ModelUnavailable, retry_after=0.001), instructions="x", retries=2)
refused = Agent("refused", model=Service(ModelRefused), instructions="x")
budget = Budget(model_calls=9, retries=9)


def made(name, last):
    return Graph(name, START >> first >> last >> END, context=Case, budget=budget)


simple, again, refuses = made("simple", asked), made("again", patient), made("refuses", refused)
tool, own = made("tool", fetches), made("own", breaks)
nested = made("nested", Graph("inner", START >> asked >> END, context=Case))
'''


@pytest.fixture(autouse=True)
def _graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Writes the graphs, and the sign that the service is down, into the folder one stands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    path = list(sys.path)
    Path("passing.py").write_text(GRAPHS, "utf-8")
    Path("down").touch()
    yield
    sys.path[:] = path
    sys.modules.pop("passing", None)


@pytest.mark.parametrize("name", ["simple", "again", "nested", "tool"])
def test_the_fork_that_is_named_makes_the_failed_call_again(capsys: Printed, name: str) -> None:
    """It is said when the run ends, is resumed in vain, and is shown; what is recorded is not done again."""
    failed = done(capsys, "run", f"passing.py:{name}", "q", "--run-id", "one")
    resumed = done(capsys, "resume", "one")
    shown = done(capsys, "runs", "show", "one")
    Path("down").unlink()

    told = re.search(r"to go on from before the call that failed: graphflow (fork one --at \d+)\n", failed[2])
    assert told is not None, failed[2]
    forked = done(capsys, *told[1].split())

    assert (failed[0], resumed[0]) == (1, 1)
    assert told[1] in resumed[2]
    assert told[1] in shown[1]
    assert (forked[0], forked[1]) == (0, "fetched\n" if name == "tool" else "well\n")
    assert calls() == ["look"]


@pytest.mark.parametrize("name", ["refuses", "own"])
def test_what_would_fail_again_has_no_such_fork(capsys: Printed, name: str) -> None:
    """A refusal, and a fault of a node, do not pass by waiting."""
    code, _, err = done(capsys, "run", f"passing.py:{name}", "q", "--run-id", "one")
    shown = done(capsys, "runs", "show", "one")[1]

    assert code == 1
    assert "fork" not in err + shown


def test_a_run_that_is_not_stored_has_no_fork(capsys: Printed) -> None:
    """There is nothing to go on from."""
    code, _, err = done(capsys, "run", "passing.py:simple", "q", "--no-store")

    assert code == 1
    assert "fork" not in err
