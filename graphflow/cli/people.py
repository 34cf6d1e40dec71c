"""The person at the terminal: questions of a run, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

from pydantic import ValidationError

from graphflow.cli.faults import INTERRUPTED, BadUse, text_of
from graphflow.cli.inputs import as_json
from graphflow.cli.printing import Screen
from graphflow.cli.results import question_lines
from graphflow.runtime.handle import Run
from graphflow.runtime.result import Question

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

FORM: Final = "ID=VALUE"


class Interrupts:
    """The first Ctrl-C cancels the run, which ends in order; a second one stops at once, a third one without a word.

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

    def answer(self, run: Run[Any]) -> bool:
        """Answer what a waiting run asks; tells whether it goes on.

        Raises:
            BadUse: if an answer of the command line does not fit its question.
        """
        goes_on = False
        for question in run.questions:
            if self._from_command_line(run, question) or self._from_terminal(run, question):
                self._answered.add(question.id)
                goes_on = True
        return goes_on

    def _from_command_line(self, run: Run[Any], question: Question) -> bool:
        start = f"{question.id}="
        item = next((item for item in self._given if item.startswith(start)), None)
        if item is None:
            return False
        self._given.remove(item)
        refused = give(run, question, item[len(start) :])
        if refused is not None:
            raise BadUse(f"--answer {item} does not fit the question: {refused}")
        return True

    def _from_terminal(self, run: Run[Any], question: Question) -> bool:
        """Ask until an answer fits; the end of the input is no answer, also to all later questions."""
        if self._typed_out or sys.stdin is None or not sys.stdin.isatty() or self._screen.err.file is None:  # pyright: ignore[reportUnnecessaryComparison]  # a process may have no stdin
            return False
        self._screen.say("\n".join(question_lines((question,))))
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
            refused = give(run, question, line.rstrip("\r\n"))
            if refused is None:
                return True
            self._screen.say(refused)


def give(run: Run[Any], question: Question, text: str) -> str | None:
    """Give an answer as JSON if it can be read so and fits, else as text; returns why it is refused.

    For a question whose answer is a text, it is the text as it stands.
    """
    as_data = as_json(text)
    values = [text] if question.schema is str else [as_data] if as_data == text else [as_data, text]
    refused: str | None = None
    for value in values:
        try:
            run.answer(question.id, value)
        except ValidationError as error:
            found = error.errors(include_url=False)
            refused = refused or "; ".join(dict.fromkeys(item["msg"] for item in found))
        except Exception as error:  # noqa: BLE001 - a validator of the user may raise anything
            refused = refused or f"{type(error).__name__}: {text_of(error)}"
        else:
            return None
    return refused
