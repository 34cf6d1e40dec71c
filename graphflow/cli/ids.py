"""Ids that a command line gives to runs: those by which it can name them afterwards."""

from __future__ import annotations

from typing import Final

from graphflow.cli.faults import BadUse
from graphflow.visualize.text import visible

LAST: Final = "last"
"""Stands for the run that was begun last."""


def checked_id(option: str, asked: str | None) -> str | None:
    """Return the id of a new run, if a command line can name the run by it afterwards; None where none is given.

    Args:
        option: where it stands, as `--run-id`.
        asked: the id, or None.

    Raises:
        BadUse: if it cannot.

    >>> checked_id("--run-id", "monday, 2nd try")
    'monday, 2nd try'
    >>> checked_id("--run-id", "last")
    Traceback (most recent call last):
        ...
    graphflow.cli.faults.BadUse: --run-id 'last': `last` always means the run that was begun last: choose another id.
    """
    why = "" if asked is None else why_not(asked)
    if why:
        raise BadUse(f"{option} {asked!r}: {why}: choose another id.")
    return asked


def why_not(run: str) -> str:
    """Say why a run of this id could not be named on a command line, or not be told from others; "" if it can be."""
    if not run:
        return "an id has at least one character"
    if not run.strip():
        return "an id of nothing but blanks cannot be seen"
    if run == LAST:
        return "`last` always means the run that was begun last"
    if run.startswith("-"):
        return "an id that begins with a dash would be read as an option"
    if run != run.strip():
        return "blanks at the ends of an id cannot be seen"
    if run != visible(run):
        return "it holds a character that no terminal shows, as a line break is one"
    return ""
