"""The person at the terminal: questions of a run, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

from graphflow.cli.asking import Approvals, give, question_lines
from graphflow.cli.calls import AskedCall
from graphflow.cli.faults import INTERRUPTED, BadUse
from graphflow.cli.printing import Screen
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Question

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

FORM: Final = "ID=VALUE"


class Interrupts:
    """The first Ctrl-C breaks the run off, or cancels it, in order; a second one stops at once, a third without a word.

    Without a run to cancel the first one raises KeyboardInterrupt.
    """

    def __init__(self, screen: Screen) -> None:
        """Tell the person on the stderr of a screen what happens."""
        self._screen = screen
        self._before: dict[signal.Signals, Any] = {}
        self._asked = self._stopped = False
        self.cancel: Callable[[str], None] | None = None

    def __enter__(self) -> Self:
        """Listen to signals; one that the process was started to ignore stays ignored."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no more; a process that is being stopped needs no third signal."""
        deaf = self._stopped and self._screen.own_process
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if deaf else before)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if self._stopped and self._screen.own_process:
            os._exit(INTERRUPTED)  # what is being stopped does not let itself be stopped
        if self.cancel is None or self._asked:
            self._stopped = True
            raise KeyboardInterrupt
        self._asked = True
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self.cancel(name)


class Answers:
    """The answers of a person: given on the command line, or typed when the run asks."""

    def __init__(self, screen: Screen, given: Sequence[str]) -> None:
        """Take what stands on the command line.

        Raises:
            BadUse: if one has no sign between id and value.
        """
        for item in given:
            if "=" not in item:
                raise BadUse(f"--answer {item}: write --answer {FORM}.")
        self._screen = screen
        self._given = list(given)
        self._answered: set[str] = set()
        self._typed_out = False

    def unused(self) -> Iterator[str]:
        """Say of each answer that no question took why that is so."""
        for item in self._given:
            known = next((asked for asked in self._answered if item.startswith(f"{asked}=")), None)
            if known is None:
                yield f"--answer {item} was not needed: no question has this id."
            else:
                yield f"--answer {item} was not used: the question {known} had its answer already."

    def answer(self, run: Run[Any], approvals: Approvals, note: Callable[[str], None]) -> bool:
        """Answer what a waiting run asks; tells whether it goes on.

        Args:
            run: the run.
            approvals: what is known of the calls that its questions are about.
            note: takes what was decided without a person at the terminal.

        Raises:
            BadUse: if an answer of the command line does not fit its question.
        """
        goes_on, open_ones = False, list(run.questions)
        for question in run.questions:
            said = self._from_command_line(run, question, approvals(question.id))
            if said is not None:
                open_ones.remove(question)
                self._answered.add(question.id)
                goes_on = True
                if said:
                    note(said)
        for number, question in enumerate(open_ones, 1):
            place = f"{number} of {len(open_ones)}, " if len(open_ones) > 1 else ""
            if self._from_terminal(run, question, approvals, place):
                self._answered.add(question.id)
                goes_on = True
        return goes_on

    def _from_command_line(self, run: Run[Any], question: Question, call: AskedCall | None) -> str | None:
        """Give an answer that stands there; returns what it decides, in words, or None where there is no answer."""
        item = next((item for item in self._given if _meant(item, run.questions) == question.id), None)
        if item is None:
            return None
        self._given.remove(item)
        refused, decided = give(run, question, item[len(question.id) + 1 :], call)
        if refused:
            raise BadUse(f"--answer {item} does not fit the question: {refused}")
        return decided and f"--answer {question.id}: {decided}"

    def _from_terminal(self, run: Run[Any], question: Question, approvals: Approvals, place: str) -> bool:
        """Ask until an answer fits; the end of the input is no answer, also to all later questions."""
        if self._typed_out or sys.stdin is None or not sys.stdin.isatty() or self._screen.err.file is None:  # pyright: ignore[reportUnnecessaryComparison]  # a process may have no stdin
            return False
        self._screen.say("\n".join(question_lines(question, approvals, place=place)))
        while True:
            self._screen.err.write("> ")
            try:
                line = sys.stdin.readline()
            except UnicodeDecodeError as error:
                self._screen.say(f"that cannot be read: {error}")
                continue
            if not line:
                self._typed_out = True
                self._screen.say("")
                return False
            refused, decided = give(run, question, line.rstrip("\r\n"), approvals(question.id))
            if not refused:
                if decided:
                    self._screen.say(decided)
                return True
            self._screen.say(refused)


def _meant(item: str, questions: Sequence[Question]) -> str | None:
    """Return the id of the question that an answer of the command line is for; an id may have the sign in it too."""
    return max((asked.id for asked in questions if item.startswith(f"{asked.id}=")), key=len, default=None)
