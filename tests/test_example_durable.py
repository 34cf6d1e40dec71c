"""The example whose processes end: what it prints, and that nothing of the run shows how often it was broken off."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from examples import durable
from examples.durable import FOUND, Bank, Case, graph
from graphflow import Budget, MemoryJournal, Result, fork_run, replay, resume, run
from tests.support import ROOT

PAID: Final = "paid 49.00 for INV-311, 12.50 for INV-312, 7.20 for INV-313"
STORY: Final = f"""\
process 1 begins
   the ledger is searched
   waiting: Pay this back? find: 49.00 for INV-311, 12.50 for INV-312, 7.20 for INV-313
process 2 brings the answer, which is yes
   the bank pays 49.00 for INV-311
   the bank pays 12.50 for INV-312
   the process is gone: nobody has written down that this was paid
process 3 goes on
   the bank is asked for INV-312 again, knows the key, and pays nothing
   the bank pays 7.20 for INV-313
   a letter about INV-311 goes out
   exhausted: the bound 'tool_calls' refuses this: 1 wanted, 0 left of 4.
process 4 brings two tool calls more
   a letter about INV-312 goes out
   a letter about INV-313 goes out
   completed: {PAID}; wrote 3 letters
replay calls nothing, and ends alike
   completed: {PAID}; wrote 3 letters
   in all, the bank has paid 3 times
"""


async def at_once(bank: Bank, journal: MemoryJournal, answer: str = "yes") -> Result[Case]:
    """The run with budget enough, in a process that lives; only the person makes it wait."""
    waiting = await run(graph, Case(), journal=journal, run_id="run", resources=[bank], budget=Budget(tool_calls=6))
    assert waiting.status == "waiting"
    return await resume(graph, "run", journal=journal, answers={"approve": answer}, resources=[bank])


def test_four_processes_pay_each_refund_once(tmp_path: Path) -> None:
    """One of them is killed when the bank has paid, and the story is the same each time."""
    program = [sys.executable, str(ROOT / "examples" / "durable.py")]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=True)

    assert done.stdout == STORY
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


async def test_an_unbroken_run_ends_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who lives, and has budget enough from the start, comes to the same end, and is told nothing twice."""
    result = await at_once(Bank(tmp_path / "book"), MemoryJournal())

    said = capsys.readouterr().out
    assert (result.status, result.output) == ("completed", f"{PAID}; wrote 3 letters")
    assert result.spent.total == Budget(node_runs=4, model_calls=0, tool_calls=6, retries=0, tokens=0, usd="0")
    assert [said.count(f"for {invoice}") for invoice, _ in FOUND] == [1, 1, 1]
    assert "again" not in said


async def test_who_says_no_pays_nothing(tmp_path: Path) -> None:
    """The answer decides, whichever process brings it."""
    bank = Bank(tmp_path / "book")

    result = await at_once(bank, MemoryJournal(), answer="no")

    assert (result.status, result.output) == ("completed", "no")
    assert bank.book.read_text("utf-8") == ""


async def test_a_replay_asks_the_bank_for_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The journal is enough: no bank, no ledger, no post."""
    journal = MemoryJournal()
    result = await at_once(Bank(tmp_path / "book"), journal)
    capsys.readouterr()

    again = await replay(graph, "run", journal=journal)

    assert (again.status, again.output, again.context) == (result.status, result.output, result.context)
    assert capsys.readouterr().out == ""


async def test_a_fork_is_another_payer(tmp_path: Path) -> None:
    """What a fork does is done under keys of its own, so the bank pays it again."""
    bank, journal = Bank(tmp_path / "book"), MemoryJournal()
    await at_once(bank, journal)
    answered = next(row.seq for row in await journal.read("run") if "answer_given" in row.fact)

    yes = {"approve": "yes"}
    await fork_run(graph, "run", journal=journal, at=answered - 1, answers=yes, resources=[bank])

    lines = bank.book.read_text("utf-8").splitlines()
    assert len({line.split()[0] for line in lines}) == len(lines) == 2 * len(FOUND)


def test_the_check_says_that_the_budget_may_not_do() -> None:
    """Six tool calls are proved at most, and the budget has four: that is what the fourth process is for."""
    assert [problem.code for problem in graph.check()] == ["over-budget"]
    assert graph.worst_case().tool_calls == 6
    assert durable.graph.budget == Budget(node_runs=4, tool_calls=4)
