"""The command line: `graphflow run`, `check`, `bounds` and `draw`."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from graphflow.cli.faults import BAD_USE, FAILED, explained
from graphflow.cli.printing import Screen
from graphflow.errors import MissingExtra

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what stands on a command line and return the exit code; whatever is wrong is told in a few lines.

    Args:
        argv: the words after the program's name; by default those of this process, which is then left as soon as
            everything is written, even if a thread of a cancelled node still runs.

    >>> main(["check", "nowhere.py"])
    2
    """
    screen = Screen()
    words = sys.argv[1:] if argv is None else list(argv)
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
        return _dispatched(screen, words)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - no traceback of ours is shown
        code, message = explained(error)
        screen.say(f"graphflow: {message}")
        return code


def _dispatched(screen: Screen, words: list[str]) -> int:
    if words == ["--version"]:  # without loading anything for it
        from importlib.metadata import PackageNotFoundError, version

        try:
            screen.out.line(f"graphflow {version('graphflow-agents')}")
        except PackageNotFoundError:
            screen.out.line("graphflow, not installed")
        return 0
    command = _command()
    printed = io.StringIO()  # help is printed by the library, which would end the process where nobody reads it
    try:
        with contextlib.redirect_stdout(printed):
            code: object = command.main(words or ["--help"], prog_name="graphflow", standalone_mode=False, obj=screen)
    except Exception as error:  # noqa: BLE001 - what is not about the words is raised again
        return _misused(screen, error)
    screen.out.write(printed.getvalue())
    if not words:
        return BAD_USE
    return code if isinstance(code, int) else 0


def _command() -> Any:
    try:
        typer: Any = importlib.import_module("typer.main")
        importlib.import_module("rich")
    except ImportError as error:
        raise MissingExtra("the command line", "cli") from error
    from graphflow.cli.app import app

    return typer.get_command(app)


def _misused(screen: Screen, error: Exception) -> int:
    """Tell what is wrong with the words of a command line; other errors are not ours to tell.

    The classes are found by what they can do: their library has moved them from version to version.
    """
    said = getattr(error, "format_message", None)
    if said is None or not hasattr(error, "exit_code"):
        raise error
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "graphflow")
    screen.say(f"{command}: {said()}\nTry: {command} --help")
    return BAD_USE


def _threads_left() -> bool:
    here = threading.current_thread()
    return any(thread is not here and not thread.daemon for thread in threading.enumerate())


def _leave(screen: Screen, code: int) -> NoReturn:
    """Leave without waiting for threads: the bodies of a cancelled run in them have no end that we know of."""
    for file in (screen.out.file, screen.err.file):
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                file.flush()
    os._exit(code)
