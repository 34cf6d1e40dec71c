"""The checksum of each stored row, chained to that of the row before: what was changed, moved or taken out is found.

It is the last entry of the row's decisions, a text of eight digits. So every journal keeps it, and none knows of it. It
finds what has gone wrong by accident; whoever writes rows with intent can write their checksums too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

from graphflow.errors import JournalDamaged
from graphflow.events import Row

_head: Final = struct.Struct("<QdQ").pack
_sum: Final = struct.Struct(">I").pack
_LAST: Final = 2**64 - 1
_DIGITS: Final = 8
_ENTRY: Final = _DIGITS + 3
"""How many characters of the decisions belong to the checksum, with its quotes and the bracket behind it."""

ENTRY: Final = _ENTRY + 1
"""How many stand behind the last decision, with the comma."""

_BETWEEN: Final = frozenset({",", ", "})
_NOTHING: Final = frozenset({""})

_CHANGED: Final = (
    "its checksum does not fit what stands there and before it: it, or the row before it, was changed, moved or taken "
    "out after it was written."
)


def checksum(before: int, seq: int, at: float, fact: str, decisions: str) -> int:
    """Return the checksum of a row, whose decisions are given without one.

    Args:
        before: the checksum of the row before, 0 for the first.
        seq: the number of the row.
        at: its active seconds.
        fact: its fact.
        decisions: its decisions.
    """
    head = _head(seq & _LAST, at, len(fact))
    return zlib.crc32(head + (fact + decisions).encode("utf-8", "surrogatepass"), before)


def with_checksum(decisions: str, found: int) -> str:
    """Return decisions with a checksum behind them.

    >>> with_checksum('[["paused","a"]]', 250), with_checksum("[]", 250)
    ('[["paused","a"],"000000fa"]', '["000000fa"]')
    """
    digits = _sum(found).hex()
    return f'["{digits}"]' if decisions == "[]" else f'{decisions[:-1]},"{digits}"]'


def has_checksum(decisions: str) -> bool:
    """Tell whether decisions have a checksum: each of them is an array, so no other text ends in a quote."""
    return decisions.endswith('"]')


def without_checksum(decisions: str) -> str:
    """Return decisions as they were before they got a checksum; those that have none, as they are.

    >>> without_checksum('[["paused","a"],"000000fa"]')
    '[["paused","a"]]'
    """
    return f"{decisions[:-_ENTRY].rstrip(', ')}]" if has_checksum(decisions) else decisions


def carried(row: Row) -> int:
    """Return the checksum that a row carries, which has been found to fit."""
    return int(row.decisions[1 - _ENTRY : -2], 16)


def chained(rows: Iterable[Row], before: int = 0) -> list[Row]:
    """Return rows with checksums that fit, whatever they had.

    Args:
        rows: the rows, one after the other.
        before: the checksum of the row before the first of them.
    """
    made: list[Row] = []
    for row in rows:
        plain = without_checksum(row.decisions)
        before = checksum(before, row.seq, row.at, row.fact, plain)
        made.append(Row(row.seq, row.at, row.fact, with_checksum(plain, before)))
    return made


def fitting(run: str, row: Row, before: int) -> int:
    """Return the checksum of a row, if it is the one that the row carries.

    Raises:
        JournalDamaged: if it is not.
    """
    decisions = row.decisions
    plain = f"{decisions[:-ENTRY]}]"  # as it is written where anything was decided
    found = checksum(before, row.seq, row.at, row.fact, plain)
    if len(plain) > len("[]") and decisions.endswith(f'],"{_sum(found).hex()}"]'):
        return found
    plain = without_checksum(decisions)
    found = checksum(before, row.seq, row.at, row.fact, plain)
    entry, between = decisions[-_ENTRY:], decisions[len(plain) - 1 : -_ENTRY]
    if entry != f'"{_sum(found).hex()}"]' or between not in (_BETWEEN if len(plain) > len("[]") else _NOTHING):
        raise JournalDamaged(run, row.seq, _CHANGED if has_checksum(decisions) else "it has no checksum.")
    return found
