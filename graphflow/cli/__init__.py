"""The command line: `graphflow run` and `resume`, `check`, `bounds`, `draw`, and what is stored of runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from graphflow.cli.faults import BAD_USE, FAILED, INTERRUPTED, BadUse, error_data, explained
from graphflow.cli.printing import Screen, version_text
from graphflow.early import interruptible
from graphflow.errors import MissingExtra

__all__ = ("main",)

WORKER: Final = "AnyIO worker thread"
"""What the threads of sync nodes are called."""

GRACE: Final = 0.1
"""Seconds that such a thread gets to end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what stands on a command line and return the exit code; whatever is wrong is told in a few lines.

    Args:
        argv: the words after the program's name; by default those of this process, which is then left as soon as
            everything is written, even if a thread of a cancelled node still runs.

    >>> main(["check", "nowhere.py"])
    2
    """
    words = sys.argv[1:] if argv is None else list(argv)
    screen = Screen(own_process=argv is None, json=_for_program(words))
    code = _guarded(screen, words)
    trouble = screen.out.trouble
    if trouble is not None:
        screen.say(f"the result could not be written: {trouble.strerror}.")
        code = code or FAILED
    if argv is None and _threads_left():
        _leave(screen, code)
    return code


def _guarded(screen: Screen, words: list[str]) -> int:
    try:
        with interruptible():
            return _dispatched(screen, words)
    except BaseException as error:  # noqa: BLE001 - no traceback of ours is shown
        code, message = explained(error)
        screen.say(f"graphflow: {message}")
        screen.failed(error_data(error, code, message))
        return code


def _for_program(words: Sequence[str]) -> bool:
    """Tell whether JSON is asked for, before the words are understood: they may make no sense."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _dispatched(screen: Screen, words: list[str]) -> int:
    if words == ["--version"]:  # without loading anything for it
        screen.out.line(version_text())
        return 0
    command = _command()
    printed = io.StringIO()  # help is printed by the library, which would end the process where nobody reads it
    try:
        with contextlib.redirect_stdout(printed):
            task = command.main(words or ["--help"], prog_name="graphflow", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - what is not about the words is raised again
        return _misused(screen, error)
    if task == INTERRUPTED:  # the library makes a number of it
        raise KeyboardInterrupt
    if not callable(task):
        screen.out.write(printed.getvalue())
        return 0 if words else BAD_USE
    with _prints_elsewhere():
        code: Any = task(screen)
        return int(code)


@contextlib.contextmanager
def _prints_elsewhere() -> Generator[None]:
    """Send what the user's code prints to stderr: stdout is for the result alone."""
    with contextlib.ExitStack() as stack:
        prints = sys.stderr
        if prints is None:  # pyright: ignore[reportUnnecessaryComparison]  # a process may have no stderr
            prints = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(prints))
        yield


def _command() -> Any:
    try:
        for library in ("typer", "rich"):
            importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra("the command line", "cli") from error
    from graphflow.cli.app import command

    return command()


def _misused(screen: Screen, error: Exception) -> int:
    """Tell what is wrong with the words of a command line; other errors are not ours to tell.

    The classes are found by what they can do: their library has moved them from version to version.
    """
    said = getattr(error, "format_message", None)
    if said is None or not hasattr(error, "exit_code"):
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands without one of them
        screen.out.line(said())
        return BAD_USE
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "graphflow")
    screen.say(f"{command}: {said()}\nTry: {command} --help")
    screen.failed(error_data(BadUse(), BAD_USE, f"{command}: {said()}"))
    return BAD_USE


def _threads_left() -> bool:
    """Tell whether bodies of sync nodes still run that were abandoned; idle threads get the time to end."""
    workers = [thread for thread in threading.enumerate() if thread.name == WORKER]
    for thread in workers:
        thread.join(GRACE)
    return any(thread.is_alive() for thread in workers)


def _leave(screen: Screen, code: int) -> NoReturn:
    """Leave without waiting for threads: nobody knows when the bodies in them end."""
    for file in (screen.out.file, screen.err.file):
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                file.flush()
    os._exit(code)
