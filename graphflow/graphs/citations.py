"""Citations in a text: which claims name what they stand on, and which ids nobody knows.

A marker is an id in brackets behind what it supports: `[INV-311]`, `[notes.md:12]`, several as `[a, b]` or `[a][b]`.
What stands in brackets is a marker if it is a known id, or looks like one: no blanks or quotes, and a digit or one of
`-_.:/#` in it. The text of a link, `[like this](...)`, is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

LEAST_WORDS: Final = 3
"""A sentence of fewer words claims nothing."""

LONGEST: Final = 400
"""More characters in brackets are no marker, unless they are a known id."""

DEEPEST: Final = 50
"""So often what is left of a text is looked at again."""

_BRACKET: Final = re.compile(r"[\[\]\n]")
_MASK: Final = "\x00"
_ID: Final = re.compile(r"(?=\S*[\d\-_.:/#])(?=\S*\w)[^\s\"'{}<>]+")
_WORD: Final = re.compile(r"[^\W\d_][\w'’-]*")
_STOP: Final = re.compile(r"[.!?…]+[\"'”’)*_]*")
_BULLET: Final = re.compile(r"[ \t>]*(?:[-*+•][ \t]+|\(?\d{1,3}[.)][ \t]+)?")
_RULER: Final = re.compile(r"[\s=\-*_|:+]*")
_ABBREVIATED: Final = frozenset(
    (
        "e.g.",
        "i.e.",
        "cf.",
        "vs.",
        "al.",
        "no.",
        "nos.",
        "p.",
        "pp.",
        "fig.",
        "sec.",
        "st.",
        "dr.",
        "mr.",
        "ms.",
        "mrs.",
    )
)


@dataclass(frozen=True, slots=True)
class Citations:
    """How a text cites.

    Attributes:
        claims: the sentences that claim something, without their markers.
        uncited: those of them that no known id stands behind.
        dangling: the ids in markers that nobody knows, each once, in order.
        coverage: which share of the claims is cited, from 0 to 1; 1 where there is none.
        bare: the text without its markers.
    """

    claims: tuple[str, ...]
    uncited: tuple[str, ...]
    dangling: tuple[str, ...]
    coverage: float
    bare: str


class Marker(NamedTuple):
    """A marker in a text: where it stands, and the ids in it."""

    start: int
    end: int
    ids: tuple[str, ...]


def check_citations(text: str, evidence: Iterable[str]) -> Citations:
    """Look at the citations in a text. Headings, questions, lines that end with a colon and code claim nothing.

    Args:
        text: what was written.
        evidence: the ids that are known.

    >>> found = check_citations("It was paid twice [INV-311]. The parcel is lost. Sorry!", ["INV-311"])
    >>> found.uncited, found.dangling, found.coverage
    (('The parcel is lost.',), (), 0.5)
    """
    known = _known(evidence)
    ids = frozenset(known)
    marks = tuple(_markers(text, known))
    claims: list[str] = []
    uncited: list[str] = []
    for start, end in _claims(_masked(text, marks)):
        inside = [mark for mark in marks if start <= mark.start < end]
        said = _without(text[start:end], [Marker(m.start - start, min(m.end, end) - start, m.ids) for m in inside])
        claims.append(said.strip())
        if not any(one in ids for mark in inside for one in mark.ids):
            uncited.append(said.strip())
    dangling = dict.fromkeys(one for mark in marks for one in mark.ids if one not in ids)
    coverage = 1 - len(uncited) / len(claims) if claims else 1.0
    return Citations(tuple(claims), tuple(uncited), tuple(dangling), coverage, _bare(text, known))


def cited(text: str, evidence: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the ids in the markers of a text, each once, in order.

    >>> cited("Paid twice [INV-311, INV-312], says the ledger [ledger.csv:4].")
    ('INV-311', 'INV-312', 'ledger.csv:4')
    """
    return tuple(dict.fromkeys(one for mark in _markers(text, _known(evidence)) for one in mark.ids))


def same_text(one: str, other: str, evidence: Iterable[str] = ()) -> bool:
    """Tell whether two texts are equal but for their markers, and the blanks that these leave.

    Args:
        one: a text.
        other: another.
        evidence: ids that are known, where some do not look like ids.

    >>> same_text("Paid twice. Lost.", "Paid twice [INV-311]. Lost [A-7].")
    True
    >>> same_text("Paid twice.", "Paid once [INV-311].")
    False
    """
    known = _known(evidence)
    return _evened(_bare(one, known)) == _evened(_bare(other, known))


def _known(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return ids, the longest first: one may begin with another."""
    return tuple(sorted({one.strip() for one in evidence} - {""}, key=lambda one: (-len(one), one)))


# --- markers ---------------------------------------------------------------------------------------------------------


def _markers(text: str, known: Sequence[str]) -> Iterator[Marker]:
    closed = _pairs(text)
    at = text.find("[")
    while at >= 0:
        found = _of_known(text, at, known) or _that_looks_so(text, at, closed.get(at), known)
        if found is not None and not text.startswith("(", found.end):
            yield found
            at = text.find("[", found.end)
        else:
            at = text.find("[", at + 1)


def _pairs(text: str) -> dict[int, int]:
    """Return where each bracket that opens is closed, on the same line."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif bracket[0] == "]" and opened:
            found[opened.pop()] = bracket.end()
        elif bracket[0] == "\n":
            opened.clear()
    return found


def _of_known(text: str, at: int, known: Sequence[str]) -> Marker | None:
    """Return the marker at a bracket if it holds known ids alone; these may have brackets and commas in them."""
    ids: list[str] = []
    here = at + 1
    while True:
        here = _past_blanks(text, here)
        for one in known:
            after = _past_blanks(text, here + len(one))
            if text.startswith(one, here) and text[after : after + 1] in {",", ";", "]"}:
                break
        else:
            return None
        ids.append(one)
        if text[after] == "]":
            return Marker(at, after + 1, tuple(ids))
        here = after + 1


def _past_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\t"}:
        at += 1
    return at


def _that_looks_so(text: str, at: int, end: int | None, known: Sequence[str]) -> Marker | None:
    if end is None or end - at > LONGEST:
        return None
    ids = tuple(part.strip() for part in text[at + 1 : end - 1].replace(";", ",").split(","))
    if all(ids) and (any(one in known for one in ids) or all(_ID.fullmatch(one) for one in ids)):
        return Marker(at, end, ids)
    return None


def _bare(text: str, known: Sequence[str]) -> str:
    """Return a text without its markers; where one falls, what is around it may become another."""
    for _ in range(DEEPEST):
        marks = tuple(_markers(text, known))
        if not marks:
            break
        text = _without(text, marks)
    return text


def _without(text: str, marks: Sequence[Marker]) -> str:
    """Take markers out, with the blanks that they leave before a blank, a sign or the end of a line."""
    parts: list[str] = []
    here = 0
    for mark in marks:
        parts.append(text[here : mark.start])
        here = mark.end
        if _begins_line(parts):
            here = _past_blanks(text, here)
        elif not text[here : here + 1].isalnum():
            _strip_end(parts)
    return "".join((*parts, text[here:]))


def _begins_line(parts: Sequence[str]) -> bool:
    """Tell whether nothing but blanks stands in the line before what comes next."""
    for part in reversed(parts):
        bare = part.rstrip(" \t")
        if bare:
            return bare.endswith("\n")
    return True


def _strip_end(parts: list[str]) -> None:
    while parts and not parts[-1].rstrip(" \t"):
        parts.pop()
    if parts:
        parts[-1] = parts[-1].rstrip(" \t")


def _evened(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines()).strip()


# --- claims ----------------------------------------------------------------------------------------------------------


def _masked(text: str, marks: Iterable[Marker]) -> str:
    """Return a text of the same length with signs in place of its markers, so that no dot in an id ends a sentence."""
    parts: list[str] = []
    here = 0
    for mark in marks:
        parts += [text[here : mark.start].replace(_MASK, " "), _MASK * (mark.end - mark.start)]
        here = mark.end
    return "".join((*parts, text[here:].replace(_MASK, " ")))


def _claims(masked: str) -> Iterator[tuple[int, int]]:
    """Yield where the sentences stand that claim something."""
    at, fenced = 0, False
    for line in masked.splitlines(keepends=True):
        start, at = at, at + len(line)
        said = line.strip()
        if said.startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not said.startswith("#") and not _RULER.fullmatch(said):
            first = start + len(_BULLET.match(line)[0])  # type: ignore[index]  # it matches the empty text too
            yield from (
                span for span in _sentences(masked, first, start + len(line.rstrip())) if _claims_so(masked, span)
            )


def _sentences(masked: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences between two places of a line; markers behind a full stop belong to the sentence before."""
    here = start
    for found in _STOP.finditer(masked, start, end):
        stop = _past_markers(masked, found.end(), end)
        following = masked[stop : stop + 1]
        if stop == found.end() or stop >= end or following.islower() or _is_short(masked[here : found.end()]):
            continue
        yield here, stop
        here = stop
    if here < end:
        yield here, end


def _past_markers(masked: str, at: int, end: int) -> int:
    while at < end and masked[at] in {" ", "\t", _MASK}:
        at += 1
    return at


def _is_short(sentence: str) -> bool:
    """Tell whether what ends with a full stop is a word cut short, as in "Dr. Who"."""
    words = sentence.split()
    return not words or words[-1].lstrip("(\"'“‘").casefold() in _ABBREVIATED


def _claims_so(masked: str, span: tuple[int, int]) -> bool:
    said = masked[slice(*span)].replace(_MASK, " ").strip().rstrip("\"'”’)*_")
    return not said.endswith(("?", ":")) and len(_WORD.findall(said)) >= LEAST_WORDS
