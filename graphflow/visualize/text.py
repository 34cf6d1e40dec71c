"""Any text as something that can be shown: one line, no control characters, a width that is known."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

ELLIPSIS: Final = "…"

# Format characters that scripts and emoji are written with; the others are invisible or turn the line around.
_KEPT_FORMATS: Final = frozenset("\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))

_NO_CHARACTERS: Final = range(0xFDD0, 0xFDF0)
_LAST_OF_PLANE: Final = 0xFFFE

_PLAIN: Final = str.maketrans({"×": "x", "·": "-", "≤": "<=", "–": "-", ELLIPSIS: "..."})

_BREAK_AFTER: Final = frozenset(" -_/.:,")


def visible(text: str) -> str:
    r"""Show as an escape what cannot be seen, or would move a cursor or turn a line around.

    >>> print(visible("two\nlines, \x1b[2J and שלום"))
    two\nlines, \x1b[2J and שלום
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_visible_char, text))


def _visible_char(char: str) -> str:
    code = ord(char)
    hidden = unicodedata.category(char) in {"Cc", "Cs", "Cf", "Zl", "Zp"} and char not in _KEPT_FORMATS
    no_character = code & _LAST_OF_PLANE == _LAST_OF_PLANE or code in _NO_CHARACTERS  # XML allows none of them
    return ascii(char)[1:-1] if hidden or no_character else char


def shown(text: str, limit: int = 80) -> str:
    """Return a text as one line of at most `limit` characters before escapes; a blank one stands in quotes.

    >>> shown("a" * 9, limit=4), shown("  ")
    ('aaa…', '"  "')
    """
    cut = text if len(text) <= limit else text[: limit - 1] + ELLIPSIS
    line = visible(cut)
    return line if line.strip() else f'"{line}"'


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> cells("abc"), cells("日本")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int, mark: str = ELLIPSIS) -> str:
    """Cut a line to a number of columns, with a mark where something is missing.

    >>> clip("abcdef", 4)
    'abc…'
    """
    if cells(text) <= width:
        return text
    return _head(text, width - len(mark)) + mark


def _head(text: str, width: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _width(char)
        if taken > width:
            return text[:index]
    return text


def plain(text: str) -> str:
    r"""Say the same in ASCII characters alone.

    >>> print(plain("×3 · ≤ 2 hops · é…"))
    x3 - <= 2 hops - \xe9...
    """
    return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()


def wrap(text: str, width: int, most: int) -> tuple[str, ...]:
    """Break a line into at most `most` lines of `width` columns, after spaces and signs where possible.

    >>> wrap("check that every citation is supported", 16, 3)
    ('check that every', 'citation is', 'supported')
    """
    lines: list[str] = []
    while text and len(lines) < most:
        head = _head(text, width)
        rest = text[len(head) :]
        if rest and len(lines) == most - 1:
            head, rest = clip(text, width), ""
        elif rest and not rest.startswith(" "):
            at = max((index + 1 for index, char in enumerate(head) if char in _BREAK_AFTER), default=0)
            if cells(head[:at]) * 2 >= width:
                head, rest = head[:at], head[at:] + rest
        lines.append(head.rstrip() if head.strip() else head)
        text = rest.lstrip() if rest.strip() else rest
    return tuple(lines)


def flowed(words: Iterable[str], width: int) -> tuple[str, ...]:
    """Put short phrases on lines, separated by dots, without breaking any.

    >>> flowed(["2 retries", "≤ 5 s", "gate"], 18)
    ('2 retries · ≤ 5 s', 'gate')
    """
    return tuple(_flow(words, width))


def _flow(words: Iterable[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        longer = f"{line} · {word}" if line else word
        if line and cells(longer) > width:
            yield line
            longer = word
        line = longer
    if line:
        yield line


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Say how many there are.

    >>> count(1, "hop"), count(20000, "token"), count(2, "retry", "retries")
    ('1 hop', '20,000 tokens', '2 retries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
