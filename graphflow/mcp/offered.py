"""What a server offers, as tools for an agent: names, descriptions and effects."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from graphflow.errors import UsageError
from graphflow.nodes.tools import Effect

if TYPE_CHECKING:
    from mcp.types import Tool as Offered

EVERY: Final = "*"
"""Stands for all tools of a server."""

LONGEST_NAME: Final = 64
"""How long a name of a tool may be for every model."""

SAID: Final = 1_000
"""How many characters of a description a model sees."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


def chosen(server: str, offered: Sequence[Offered], names: Sequence[str]) -> list[Offered]:
    """Return the tools that are asked for, in the order of their names there.

    Raises:
        UsageError: if none is asked for, or one is not offered.
    """
    known = {one.name: one for one in offered}
    if len(known) < len(offered):
        double = next(one.name for one in offered if sum(other.name == one.name for other in offered) > 1)
        msg = f"the tool server {server!r} offers two tools named {double!r}: which of them is meant cannot be said."
        raise UsageError(msg)
    there = ", ".join(known) or "none"
    if not names:
        msg = f"{server}.tools(): name the tools that the agent may use, or '*' for all; there are: {there}."
        raise UsageError(msg)
    if EVERY in names:
        return list(offered)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            msg = f"the tool server {server!r} has no tool {name!r}; there are: {there}.{guess}"
            raise UsageError(msg)
    return [known[name] for name in dict.fromkeys(names)]


def names_of(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return for each name the one that a model knows it by: letters, digits, `_` and `-`, at most 64.

    >>> names_of(["read", "read file", "read/file"], "files_")
    {'read': 'files_read', 'read file': 'files_read_file_121414', 'read/file': 'files_read_file_9cc468'}
    """
    plain = {name: prefix + _ODD.sub("_", name) for name in names}
    made: dict[str, str] = {}
    for name, short in plain.items():
        if len(short) > LONGEST_NAME or not short or list(plain.values()).count(short) > 1:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            length = 6
            while (unique := f"{short[: LONGEST_NAME - 1 - length]}_{digest[:length]}") in {
                *plain.values(),
                *made.values(),
            }:
                length += 1  # somebody has called another one just that
            made[name] = unique
        else:
            made[name] = short
    return made


def said_of(offered: Offered) -> str:
    """Return what the server says of a tool, on one line that is not too long: it is a stranger's text."""
    text = offered.description or offered.title or ""
    line = " ".join(text.split())
    return line if len(line) <= SAID else f"{line[: SAID - 1]}…"


def effect_of(offered: Offered) -> Effect:
    """Return what a call can do: what the server says of it, else the worst.

    The protocol's own defaults are the same: what is not said to be read-only, or at least to destroy nothing, may do
    what cannot be undone.
    """
    hints = offered.annotations
    if hints is not None and hints.read_only_hint:
        return "read"
    return "write" if hints is not None and hints.destructive_hint is False else "irreversible"
