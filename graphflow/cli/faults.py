"""Errors as a few lines for the person who can do something about them: no traceback of ours."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from graphflow.cli.printing import quoted
from graphflow.errors import (
    DefinitionError,
    GraphChanged,
    GraphflowError,
    GraphProblems,
    JournalError,
    JournalUnavailable,
    MissingExtra,
    NotStorable,
    RunExists,
    UnknownRun,
    UsageError,
)
from graphflow.graphs.look import Problem
from graphflow.model.secrets import MissingSecrets
from graphflow.model.telling import error_text, without_passwords

FAILED: Final = 1
BAD_USE: Final = 2
STORE: Final = 5
INTERRUPTED: Final = 130

MOST_FRAMES: Final = 12
"""More frames of one error are not shown; the last ones are."""

MOST_INNER: Final = 5
"""How many errors of a group are told."""

_CALLS: Final = (
    (re.compile(r"^resume\(budget=\.\.\.\)"), "--budget"),
    (re.compile(r"^run\(after=\.\.\.\)"), "--after"),
    (re.compile(r"^fork_run\(at=(\d+)\)"), r"--at \1"),
)
"""What our functions are called with, and what says the same on a command line."""

_NO_PLACE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
_NO_FILE: Final = frozenset({sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
"""What says that nothing can be written at a place, by the system and by SQLite."""

_OURS: Final = str(Path(__file__).parent.parent)
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class BadUse(Exception):
    """What stands on the command line cannot be done; the message is for the person who wrote it."""


def text_of(error: BaseException) -> str:
    """Return the message of an error, whatever its class does to make it, without what may be a secret in it.

    >>> text_of(ValueError("too small"))
    'too small'
    """
    return without_passwords(error_text(error))


def described(error: BaseException) -> str:
    """Say type and text of an error; of a group, those of its members too.

    >>> described(ValueError("too small"))
    'ValueError: too small'
    """
    text = text_of(error)
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return "\n".join([line, *member_lines(error)])


def member_lines(error: BaseException) -> Iterator[str]:
    """Say what the members of a group are; nothing of any other error."""
    if isinstance(error, BaseExceptionGroup):
        for found in cast("BaseExceptionGroup[BaseException]", error).exceptions[:MOST_INNER]:
            yield "  " + described(found).replace("\n", "\n  ")


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that stands in a group, or in a group in it."""
    found = group.exceptions[0]
    return (
        first_of(cast("BaseExceptionGroup[BaseException]", found)) if isinstance(found, BaseExceptionGroup) else found
    )


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error that lie in the user's own files, the outermost first."""
    try:
        found = list(traceback.extract_tb(error.__traceback__))
    except Exception:  # noqa: BLE001 - a file that vanished or is no text: the error itself matters more
        return []
    outside = [frame for frame in found if not frame.filename.startswith((_OURS, "<frozen "))]
    own = [frame for frame in outside if not frame.filename.startswith(_LIBRARIES)]
    return own or outside


def frame_lines(error: BaseException) -> Iterator[str]:
    """Show where an error was raised in the user's files, and what it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if current is not error:
            yield f"  from {described(current)}"
        for frame in users_frames(current)[-MOST_FRAMES:]:
            yield f"  {place(frame.filename, frame.lineno)} in {frame.name}: {frame.line or '(no source)'}"
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def place(file: str, line: int | None) -> str:
    """Write a place in a file, short where it lies below the folder one stands in."""
    path = Path(file)
    with contextlib.suppress(OSError, ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}" if line is not None else str(path)


def reading(error: OSError) -> str:
    """Say why a file cannot be used, in words."""
    return error.strerror or type(error).__name__


def notes_of(error: BaseException) -> list[str]:
    """Return what was added to an error on its way."""
    notes: object = getattr(error, "__notes__", None)
    return [note for note in cast("list[object]", notes) if isinstance(note, str)] if isinstance(notes, list) else []


def _has_no_place(cause: BaseException | None) -> bool:
    code = getattr(cause, "sqlite_errorcode", 0)
    return (isinstance(cause, OSError) and cause.errno in _NO_PLACE) or code & 0xFF in _NO_FILE


def _of_store(error: JournalError | NotStorable) -> str:
    """Say what is wrong with a stored run, with the words of the command line."""
    match error:
        case JournalUnavailable() if _has_no_place(error.__cause__):
            ways = "Name another file, with --db or GRAPHFLOW_DB; `run` can also keep nothing, with --no-store."
            return f"{text_of(error)} {ways}"
        case GraphChanged():
            return text_of(error).replace('changed="compatible"', "--changed compatible")
        case NotStorable():
            return f"{text_of(error)}. Or say --no-store, and nothing is kept."
        case _:
            return text_of(error)


def error_data(error: BaseException, code: int, message: str) -> dict[str, Any]:
    """Return an error as JSON data: always its type, the exit code, the message, and the run that it is about or null.

    >>> error_data(BadUse("no such file."), 2, "no such file.")
    {'type': 'BadUse', 'exit_code': 2, 'message': 'no such file.', 'run': None}
    """
    run: object = getattr(error, "run", None)
    data: dict[str, Any] = {"type": type(error).__name__, "exit_code": code, "message": message}
    data["run"] = run if isinstance(run, str) else None
    match error:
        case GraphProblems():
            data["problems"] = [problem_data(found) for found in error.problems if isinstance(found, Problem)]
        case MissingSecrets(names=names):
            data["secrets"] = list(names)
        case _:
            pass
    return data


def problem_data(problem: Problem) -> dict[str, Any]:
    """Return what is wrong in a graph as JSON data."""
    return {
        "code": problem.code, "severity": problem.severity, "where": list(problem.where), "message": problem.message,
        "hint": problem.hint,
    }  # fmt: skip


def explained(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error that ends a command, and what to say.

    >>> explained(BadUse("no such file: 'team.py'."))
    (2, "no such file: 'team.py'.")
    """
    match error:
        case GraphProblems():
            return BAD_USE, f"{text_of(error)}\nNothing has run. `graphflow check` tells more."
        case RunExists():
            dashes = "-- " if error.run.startswith("-") else ""
            again = f"`graphflow resume {dashes}{quoted(error.run)}` goes on with it"
            return BAD_USE, f"a run {error.run!r} is stored already: {again}, or choose another --run-id."
        case MissingSecrets(names=names):
            given = " ".join(f"--secret {quoted(f'{name}=VARIABLE')}" for name in names)
            return BAD_USE, f"secrets are never stored: give them again, out of the environment: {given}."
        case UnknownRun():
            return BAD_USE, text_of(error).replace("`await journal.runs()`", "`graphflow runs list`")
        case BadUse() | DefinitionError() | UsageError() | MissingExtra():
            text = text_of(error)
            for call, option in _CALLS:
                text = call.sub(option, text)
            return BAD_USE, text
        case KeyboardInterrupt():
            notes = notes_of(error)
            return INTERRUPTED, "\n".join(["broken off." if notes else "cancelled.", *notes])
        case JournalError() | NotStorable():
            return STORE, "\n".join([_of_store(error), *notes_of(error)])
        case GraphflowError():
            return FAILED, text_of(error)
        case SystemExit():
            left = f"a node wanted to leave Python: {described(error)}"
            return FAILED, "\n".join([left, *frame_lines(error)])
        case _:
            own = users_frames(error)
            if own and not own[-1].filename.startswith(_LIBRARIES):
                return FAILED, "\n".join([described(error), *frame_lines(error)])
            last = traceback.extract_tb(error.__traceback__)[-1:]
            where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in last)
            bug = "This is a bug in graphflow: please report it with your graph."
            return FAILED, f"{described(error)}{where}. {bug}"
