"""Refunds that outlive their processes: four of them, one is killed, and each refund is paid once.

    python examples/durable.py

The run is stored in a SQLite file. The first process asks a person, and ends. The second brings the answer and begins
to pay; it is killed at the worst moment: the bank has paid, and nobody has written that down. The third goes on from
there, and comes to the end of the budget. The fourth has more of it. What is recorded is not done again. The one
payment that is made again has the same key, and by that the bank knows it.
"""

import functools
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal, NamedTuple

import anyio

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Done,
    Graph,
    Human,
    Result,
    SqliteJournal,
    State,
    Step,
    Update,
    node,
    on,
    replay,
    resume,
    run,
)

RUN: Final = "refunds of May"
FOUND: Final = (("INV-311", "49.00"), ("INV-312", "12.50"), ("INV-313", "7.20"))
PROCESSES: Final = {
    "begin": "begins",
    "answer": "brings the answer, which is yes",
    "go on": "goes on",
    "more": "brings two tool calls more",
}

say: Final = functools.partial(print, "  ", flush=True)  # who is killed prints nothing later


class Refund(NamedTuple):
    """What is to be paid back."""

    invoice: str
    amount: str


class Case(Context):
    """What the run knows."""

    refunds: tuple[Refund, ...] = ()


# --- the world outside: what is done here cannot be undone -----------------------------------------------------


class Bank:
    """A bank whose book is a file, with a line for each payment. For one key it pays once."""

    def __init__(self, book: Path, killed_at: str = "") -> None:
        """Open the book. At the invoice `killed_at` the power fails, once it is paid."""
        self.book = book
        self.killed_at = killed_at
        book.touch()

    def pay(self, invoice: str, amount: str, idempotency_key: str) -> str:
        """Pay something back. The key comes from the run: a function that has a parameter for it is given it."""
        if idempotency_key in self.book.read_text("utf-8"):
            say(f"the bank is asked for {invoice} again, knows the key, and pays nothing")
        else:
            with self.book.open("a", encoding="utf-8") as book:
                book.write(f"{idempotency_key} {invoice} {amount}\n")
            say(f"the bank pays {amount} for {invoice}")
        if invoice == self.killed_at:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has one that kills
        return f"{amount} for {invoice}"


def search() -> tuple[Refund, ...]:
    """Find what was paid twice."""
    say("the ledger is searched")
    return tuple(Refund(*found) for found in FOUND)


def post(invoice: str) -> None:
    """Send a letter."""
    say(f"a letter about {invoice} goes out")


# --- the graph -------------------------------------------------------------------------------------------------


@node(costs=Budget())
async def find(state: State[Case], step: Step) -> Done:
    """Find what is to be paid back."""
    refunds = await step.effect("search", search)
    shown = ", ".join(f"{refund.amount} for {refund.invoice}" for refund in refunds)
    return Done(shown, Update(refunds=refunds))


approve = Human("approve", "Pay this back?", schema=Literal["yes", "no"])


@node(costs=Budget(tool_calls=3))
async def pay(state: State[Case], step: Step) -> str:
    """Pay one after the other. A process that goes on is given the recorded payments, and makes the others."""
    bank = step.resource(Bank)
    paid = [await step.effect("pay", bank.pay, *refund, cost=Budget(tool_calls=1)) for refund in state.context.refunds]
    return f"paid {', '.join(paid)}"


@node(costs=Budget(tool_calls=3))
async def tell(state: State[Case], step: Step) -> str:
    """Write to everybody."""
    for refund in state.context.refunds:
        await step.effect("post", post, refund.invoice, cost=Budget(tool_calls=1))
    return f"{state.values[0]}; wrote {len(state.context.refunds)} letters"


graph = Graph(
    "refunds",
    START >> find >> approve,
    approve.choose(on("yes", pay), default=END),
    pay >> tell >> END,
    context=Case,
    budget=Budget(node_runs=4, tool_calls=4),  # three payments and one letter: not enough, as the check says
)


# --- the processes ---------------------------------------------------------------------------------------------


async def work(folder: Path, part: str) -> Result[Case]:
    """Begin the run, or go on with it: this is all that a program has to do."""
    journal, book = SqliteJournal(folder / "runs.db"), folder / "book.txt"
    match part:
        case "begin":
            return await run(graph, Case(), journal=journal, run_id=RUN, resources=[Bank(book)])
        case "answer":
            bank = Bank(book, killed_at="INV-312")
            return await resume(graph, RUN, journal=journal, answers={"approve": "yes"}, resources=[bank])
        case "more":
            return await resume(graph, RUN, journal=journal, budget=Budget(tool_calls=2), resources=[Bank(book)])
        case _:
            return await resume(graph, RUN, journal=journal, resources=[Bank(book)])


def process(folder: Path, part: str) -> None:
    """Do one part of the work, and say how the run stands."""
    result = anyio.run(work, folder, part)
    asked = ", ".join(question.text.replace("\n", " ") for question in result.questions)
    say(f"{result.status}: {result.reason.text if result.reason else result.output or asked}")


def main(folder: Path) -> None:
    """Start the processes one after the other; then look at what is stored."""
    fresh = multiprocessing.get_context("spawn")  # each is a new Python that shares nothing with this one
    for number, (part, title) in enumerate(PROCESSES.items(), start=1):
        print(f"process {number} {title}", flush=True)
        started = fresh.Process(target=process, args=(folder, part))
        started.start()
        started.join()
        if started.exitcode:
            say("the process is gone: nobody has written down that this was paid")

    journal = SqliteJournal(folder / "runs.db")
    result = anyio.run(functools.partial(replay, graph, RUN, journal=journal))
    journal.close()
    print("replay calls nothing, and ends alike")
    say(f"{result.status}: {result.output}")
    say(f"in all, the bank has paid {len((folder / 'book.txt').read_text('utf-8').splitlines())} times")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else name))
