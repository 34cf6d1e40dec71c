"""What a run is given on the command line beside its graph: a function that redacts, a hook, resources, a chat."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from graphflow.cli.parts import PartWords
from graphflow.cli.targets import Noted, Targets
from tests.test_cli_runs import DB, Printed, done, rows_of
from tests.test_cli_shelf import pytested

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

SHOP: Final = r'''
"""A shop whose runs need more than their graph."""
import contextlib
import re

from graphflow import END, START, Agent, Budget, Context, Graph, Human, Skip, State, Step, node
from graphflow.testing import RuleModel


class Case(Context):
    question: str


class Ledger:
    def __init__(self, name="shelf"):
        self.name = name


def no_cards(text: str) -> str:
    return re.sub(r"\d{8,}", "[card]", text)


def no_audit(state: State[Case]) -> Skip | None:
    return Skip("not today") if state.path[-1].name == "audit" else None


shelf = [Ledger()]


def made():
    return [Ledger("made")]


async def awaited():
    return [Ledger("awaited")]


@contextlib.contextmanager
def entered():
    yield [Ledger("entered")]
    print("left")


@contextlib.asynccontextmanager
async def opened():
    yield [Ledger("opened")]
    print("left")


def broken():
    raise ValueError("no shelf today")


def single():
    return Ledger()


@node
async def look(state: State[Case], step: Step) -> str:
    return f"{state.context.question} by {step.resource(Ledger).name}"


@node
async def audit(state: State[Case]) -> str:
    return "audited"


@node
async def tell(state: State[Case], step: Step) -> str:
    return f"{dict(state.inbox).get('sure', '')} by {step.resource(Ledger).name}"


shop = Graph("shop", START >> look >> Human("sure", "Sure?", schema=str) >> tell >> END, context=Case)
checks = Graph("checks", START >> look >> (audit, tell) >> node(lambda state: "done", name="last") >> END, context=Case)
clerk = Agent("clerk", model=RuleModel(otherwise=lambda request: f"{len(request.messages)} messages"))
talk = Graph("talk", START >> clerk >> END, context=Case, budget=Budget(model_calls=9))
fails = Graph("fails", START >> node(lambda state: 1 / 0, name="breaks") >> END, context=Case)
'''

CARD: Final = "card 4111111111111111"


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of graphs in the folder one stands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB", raising=False)
    monkeypatch.setattr("sys.path", [str(tmp_path), *__import__("sys").path])
    Path("shop.py").write_text(SHOP, "utf-8")
    yield
    __import__("sys").modules.pop("shop", None)


def begun(capsys: Printed, *more: str) -> tuple[int, str, str]:
    """Begin a run that waits."""
    return done(capsys, "run", "shop.py:shop", CARD, "--redact", "no_cards", "--resources", "shelf", *more)


def test_a_redacted_run_is_gone_on_with(capsys: Printed) -> None:
    """Nothing of what was redacted is stored, by the process that took it up neither; nothing has to be said again."""
    first = begun(capsys, "--run-id", "one", "--json", "--events", "events.jsonl")

    code, out, err = done(capsys, "resume", "one", "--answer", f"sure=Yes, {CARD}")

    assert (code, out) == (0, "Yes, card [card] by shelf\n")
    assert "4111" not in "".join([*map(str, first), err, Path("events.jsonl").read_text("utf-8")])
    assert "4111" not in str(rows_of("one"))
    assert "4111" not in Path(DB).read_bytes().decode("latin-1")


def test_a_fork_of_a_redacted_run_is_redacted(capsys: Printed) -> None:
    """As its past was."""
    begun(capsys, "--run-id", "one")

    code, out, _ = done(capsys, "fork", "one", "--run-id", "two", "--answer", f"sure=No, {CARD}")

    assert (code, out) == (0, "No, card [card] by shelf\n")
    assert "4111" not in str(rows_of("two"))


def test_a_redacted_run_is_replayed_and_becomes_a_test(capsys: Printed) -> None:
    """Neither needs the function: what is stored has passed it."""
    begun(capsys, "--run-id", "one")
    done(capsys, "resume", "one", "--answer", "sure=Yes", "-q")
    Path("shop.py").write_text(SHOP.replace("def no_cards", "def gone"), "utf-8")

    replayed = done(capsys, "replay", "one", "--changed", "compatible")
    written = done(capsys, "runs", "pytest", "one", "-o", "test_one.py")

    assert replayed[:2] == (0, "Yes by shelf\n")
    assert written[0] == 0
    assert pytested("test_one.py").returncode == 0


@pytest.mark.parametrize("command", ["resume", "fork"])
def test_what_a_run_began_with_is_asked_for_where_nobody_noted_it(capsys: Printed, command: str) -> None:
    """Before anything is done, in the words of the command line; and a run without it takes none."""
    begun(capsys, "--run-id", "one")
    done(capsys, "run", "shop.py:checks", "q", "--before", "no_audit", "--resources", "shelf", "--run-id", "two")
    done(capsys, "run", "shop.py:checks", "q", "--resources", "shelf", "--run-id", "three")
    Path(".graphflow/targets.json").unlink()

    redacted = done(capsys, command, "one", "--target", "shop.py:shop")
    hooked = done(capsys, command, "two", "--target", "shop.py:checks")
    neither = done(capsys, command, "three", "--target", "shop.py:checks", "--redact", "no_cards")
    listed = json.loads(done(capsys, "runs", "list", "--json")[1])

    assert (redacted[0], hooked[0], neither[0]) == (2, 2, 2)
    assert "its texts were redacted. Add --redact NAME, the function in shop.py:shop" in redacted[2]
    assert "it has a hook, before=. Add --before NAME" in hooked[2]
    assert "began without it" in neither[2]
    assert [run["run"] for run in listed] == ["three", "two", "one"]


def test_a_fork_that_cannot_begin_leaves_nothing(capsys: Printed) -> None:
    """More budget for a run that needs none is refused, and there is no such run then."""
    done(capsys, "run", "shop.py:checks", "q", "--resources", "shelf", "--run-id", "one")
    noted = Path(".graphflow/targets.json").read_text("utf-8")

    code, _, err = done(capsys, "fork", "one", "--budget", "tokens=5", "--run-id", "two")

    assert code == 2
    assert "--budget: the run 'two' has ended as completed" in err
    assert rows_of("two") == []
    assert Path(".graphflow/targets.json").read_text("utf-8") == noted


def test_a_hook_skips_what_it_says(capsys: Printed) -> None:
    """It is asked before each visit, and again by the process that goes on."""
    done(capsys, "run", "shop.py:checks", "q", "--before", "no_audit", "--resources", "shelf", "--run-id", "one")

    events = json.loads(done(capsys, "runs", "show", "one", "--events", "--json")[1])["events"]

    skipped = [event for event in events if event["kind"] == "node_skipped"]
    assert len(skipped) == 1
    assert "not today" in str(skipped)


@pytest.mark.parametrize(
    ("name", "left"),
    [("shelf", False), ("made", False), ("awaited", False), ("entered", True), ("opened", True)],
)
def test_resources_are_a_list_or_made_in_the_loop(capsys: Printed, name: str, left: bool) -> None:
    """A context manager is left when the run is over."""
    code, out, err = done(capsys, "run", "shop.py:checks", "q", "--resources", name)

    assert (code, out) == (0, "done\n")
    assert ("left\n" in err) is left


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--redact", "no_crads"], 2, "shop.py has no variable of that name; write it there, or import it there."),
        (["--redact", "no_crads"], 2, "Did you mean 'no_cards'?"),
        (
            ["--redact", "shelf"],
            2,
            "is needed that takes a text and returns one, and shelf is of class list",
        ),
        (["--before", "Ledger"], 2, "takes the state and returns None or Skip(...), and Ledger is the class Ledger"),
        (["--resources", "clerk"], 2, "--resources clerk: a list of clients and pools is needed"),
        (["--resources", "single"], 2, "--resources single: a list of clients and pools is needed"),
        (["--resources", "broken"], 1, "ValueError: no shelf today"),
    ],
)
def test_a_part_that_is_none_is_one_clear_error(capsys: Printed, words: list[str], code: int, said: str) -> None:
    """Nothing has run then."""
    found, out, err = done(capsys, "run", "shop.py:shop", "q", "--run-id", "one", *words)

    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert "bug in graphflow" not in err
    assert not Path(DB).exists() or rows_of("one") == []


def test_the_next_message_of_a_chat_follows(capsys: Printed) -> None:
    """Its thread and what it spent go on; model and parts are those of the earlier run unless others are named."""
    done(capsys, "run", "shop.py:talk", "Hello", "--run-id", "one", "--redact", "no_cards")

    code, out, err = done(capsys, "run", "shop.py:talk", CARD, "--after", "one", "--run-id", "two")
    shown = json.loads(done(capsys, "runs", "show", "two", "--json")[1])

    assert (code, out) == (0, "3 messages\n")
    assert "2 of 9 model calls" in err
    assert shown["after"] == "one"
    assert "4111" not in str(rows_of("two"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--after", "nobody"], "no run 'nobody'"),
        (["--after", "failed"], "that run has failed, so nothing follows"),
        (["--after", "waits"], "--after: the run 'waits' waits for people"),
        (["--after", "waits", "--no-store"], "with --no-store nothing is stored"),
        (["--secret", "token"], "it is for the run that --after names"),
    ],
)
def test_nothing_follows_some_runs(capsys: Printed, words: list[str], said: str) -> None:
    """One that is not there, has failed, waits, or is not stored."""
    done(capsys, "run", "shop.py:fails", "q", "--run-id", "failed")
    begun(capsys, "--run-id", "waits")
    target = "shop.py:fails" if "failed" in words else "shop.py:shop"

    code, out, err = done(capsys, "run", target, "q", *words)

    assert (code, out) == (2, "")
    assert said in err


def test_parts_are_noted_and_read(tmp_path: Path) -> None:
    """What nobody understands in a note is passed over."""
    targets = Targets(tmp_path / "targets.json")
    targets.note("one", Noted("shop", parts=PartWords("no_cards", None, "shelf")))
    written = json.loads((tmp_path / "targets.json").read_text("utf-8"))
    (tmp_path / "targets.json").write_text(
        json.dumps({**written, "two": {"module": "shop", "parts": {"redact": 3, "before": "no_audit", "other": "x"}}})
    )

    one, two = targets.of("one"), targets.of("two")

    assert one is not None
    assert two is not None
    assert one.parts == PartWords("no_cards", None, "shelf")
    assert two.parts == PartWords(None, "no_audit", None)
