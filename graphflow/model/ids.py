"""Who is who: run ids and paths.

A *path* says where a visit stands: a tuple of segments from the root. Paths are the identity of everything in a run;
names alone are only their projection for drawings and selectors.
"""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NewType, TypeAlias, cast

RunId = NewType("RunId", str)

_SPECIAL = re.compile(r"[%/:~@]")


class Segment(NamedTuple):
    """One step of a path.

    Attributes:
        name: the node's name in its graph; any text.
        visit: which entry of the node this is, in its frame and lane, from 1.
        lanes: the indices of the map lanes around it in its frame, outermost first.
        call: for a callee, the turn of its caller and the position of its call in that turn.
    """

    name: str
    visit: int = 1
    lanes: tuple[int, ...] = ()
    call: tuple[int, int] | None = None


new_segment: Callable[[tuple[str, int, tuple[int, ...], tuple[int, int] | None]], Segment] = functools.partial(
    cast("Any", tuple).__new__, Segment
)
"""Makes a segment of all of its parts, in half of the time."""

Path: TypeAlias = tuple[Segment, ...]


def new_run_id() -> RunId:
    """Return a new id for a run; ids sort by time of creation where Python offers that."""
    return RunId(_id_maker()())


@functools.cache
def _id_maker() -> Callable[[], str]:
    import uuid

    sortable = getattr(uuid, "uuid7", None)  # it came with Python 3.14
    return _random_id if sortable is None else lambda: str(sortable())


def _random_id() -> str:
    """Return the text of a `uuid4`, without making the object that takes most of its time."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{'89ab'[int(text[16], 16) % 4]}{text[17:20]}-{text[20:]}"


@functools.lru_cache(maxsize=4096)
def path_text(path: Path) -> str:
    """Write a path as text: `name`, then `:visit` after the first, `~lane`, `@turn.call` for a callee.

    >>> path_text((Segment("desk"), Segment("a/b", visit=2, lanes=(3,)), Segment("x", call=(0, 1))))
    'desk/a%2Fb:2~3/x@0.1'
    """
    return "/".join(map(_segment_text, path))


def _segment_text(segment: Segment) -> str:
    name, visit, lanes, call = segment
    text = _escaped(name)
    if visit != 1:
        text += f":{visit}"
    if lanes:
        text += "~" + ".".join(map(str, lanes))
    if call is not None:
        text += f"@{call[0]}.{call[1]}"
    return text


@functools.lru_cache(maxsize=1024)
def _escaped(name: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", name)


@functools.lru_cache(maxsize=1024)
def _unescaped(text: str) -> str:
    return re.sub(r"%([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), text)


_SEGMENT = re.compile(r"([^/:~@]*)(?::(\d+))?(?:~(\d+(?:\.\d+)*))?(?:@(\d+)\.(\d+))?", re.DOTALL)
"""The name, the visit, the lanes, and the turn and the position of a call."""


def parse_path(text: str) -> Path:
    """Read what `path_text` wrote.

    Raises:
        ValueError: if the text is not a path.

    >>> parse_path("desk/a%2Fb:2~3")
    (Segment(name='desk', visit=1, lanes=(), call=None), Segment(name='a/b', visit=2, lanes=(3,), call=None))
    """
    if "/" not in text:
        return (_parse_segment(text),) if text else ()
    return tuple(map(_parse_segment, text.split("/")))


def _parse_segment(text: str) -> Segment:
    found = _SEGMENT.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not a path segment: write name, name:visit, name~lane or name@turn.call."
        raise ValueError(msg)
    name, visit, lanes, turn, call = found.groups()
    return Segment(
        _unescaped(name),
        int(visit or 1),
        tuple(map(int, lanes.split("."))) if lanes else (),
        (int(turn), int(call)) if turn is not None else None,
    )


def names(path: Path) -> tuple[str, ...]:
    """Return the names of a path alone.

    >>> names(parse_path("team_a/call:2"))
    ('team_a', 'call')
    """
    return tuple(map(_name_of, path))


@functools.lru_cache(maxsize=4096)
def names_text(path: Path) -> str:
    """Return the names of a path joined with "/", as tables of spending name a node."""
    return "/".join(map(_name_of, path))


_name_of: Callable[[Segment], str] = operator.itemgetter(0)


def selects(selector: tuple[str, ...], path: Path) -> bool:
    """Tell whether whole segments match: the selector is a prefix of the path's names.

    >>> selects(("child",), parse_path("child/step")), selects(("child",), parse_path("child_sub/step"))
    (True, False)
    """
    return names(path[: len(selector)]) == selector
