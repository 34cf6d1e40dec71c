"""Texts as the rules see them: words without regard to case, and those of them that say something.

The word lists are English. In another language a rule that needs one sees less; it does not see more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from graphflow.model.thread import normal

SHOWN: Final = 80
"""How many characters of one text stand in a message."""

STEM: Final = 5
"""Words that begin with as many equal letters count as the same: "refund", "refunded"."""

_TOKEN: Final = re.compile(r"[^\W_]+(?:[-_.:/][^\W_]+)*")
_SENTENCE: Final = re.compile(r"(?<=[.!?;\n])\s+|\n+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SMALL: Final = _words(
    """
    a about above after again all also an and any are as at be because been before being below but by can could did do
    does done each every find for from get give had has have he her here his how i if in into is it its itself just
    let make may me more most much must my need needs no not now of off on once one only or other our out over own
    please see shall she should so some such task than thanks that the their them then there these they thing things
    this those through to too under until up us very want was we were what when where which while who whom why will
    with within would you your
    """
)
"""Words that say nothing by themselves."""

VAGUE: Final = SMALL | _words(
    """
    action anything everything something do handle help job look matter part problem question rest stuff take care work
    fix deal answer go ahead continue proceed next issue request
    """
)
"""Words that do not say what is wanted, where a brief has no others."""

VERIFIES: Final = _words(
    """
    audit auditor check checker checking checks critic critique judge proofread proofreader review reviewer reviews
    validate validation validator verification verifier verifies verify
    """
)
"""Words that make a node's name that of a verifier."""

DIRECTIVES: Final = _words(
    """
    ask asking call calling consult consulting contact contacting delegate delegating forward forwarding hand handing
    invoke invoking pass passing query querying route routing run running send sending transfer transferring use using
    """
)
"""Words behind which a reason names what it wants called."""

BETWEEN: Final = _words(
    "a agent colleague conversation customer her him it its off on our over team the them this tool to user with"
)
"""Words that may stand between a directive and the name."""

NEGATIONS: Final = _words(
    """
    after already asked avoid before called can't cannot couldn't didn't don't earlier if instead later needn't never no
    not once rather shouldn't then tried unless unnecessary used was were when won't wouldn't without
    """
)
"""Words that make a sentence speak of something else than the next step."""

MISSING: Final = (
    "not given", "not provided", "not specified", "not stated", "not told", "wasn't given", "wasn't told",
    "was not said", "did not say", "didn't say", "does not say which", "doesn't say which", "not say which",
    "unclear which", "unclear what", "unclear whether", "not clear which", "not clear what", "ambiguous",
    "need to know", "need more information", "needs more information",
    "would need", "no number was given", "missing from the brief", "missing from the question",
    "missing from the request", "missing in the brief", "which one is meant", "is missing from your",
    "without knowing which", "more details are needed", "more detail is needed",
)  # fmt: skip
"""What a report says that misses something in what it was asked."""

GUESSES: Final = (
    "i assume", "i assumed", "i'm assuming", "i am assuming", "we assume", "we assumed", "assuming that you",
    "assuming you", "i guess", "i guessed", "my guess", "my best guess", "i made up", "probably you mean",
    "presumably you", "i took it to mean", "i picked one",
)  # fmt: skip
"""What an answer says that was guessed."""

LOSSES: Final = (
    "unavailable", "not available", "could not", "couldn't", "cannot", "can't", "can not", "failed", "fails", "failure",
    "error", "unable", "missing", "incomplete", "partial", "unknown", "no answer", "no report", "without",
    "not found", "not be ", "not yet", "unfortunately", "sorry", "no information", "unclear", "not done",
    "not finished",     "only ", "did not", "didn't", "unanswered", "open", "?",
)  # fmt: skip
"""What an answer says that does not hide that a part is missing."""


def tokens(text: str) -> list[str]:
    """Return the words of a text in order; an id, a number or a path is one word.

    >>> tokens("Was INV-311 (49.00) paid twice?")
    ['was', 'inv-311', '49.00', 'paid', 'twice']
    """
    return _TOKEN.findall(text.casefold().replace("’", "'"))


def content(text: str, small: frozenset[str] = SMALL) -> frozenset[str]:
    """Return the words of a text that say something."""
    return frozenset(word for word in tokens(text) if word not in small and (len(word) > 1 or word.isdigit()))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, about."""
    return [part for part in _SENTENCE.split(text) if part]


def says(text: str, phrases: Iterable[str]) -> str:
    """Return the first of some phrases that a text says, as whole words; "" if it says none."""
    spoken = f" {normal(text.replace('’', chr(39)))} "
    return next((one.strip() for one in phrases if _stands_in(one, spoken)), "")


def _stands_in(phrase: str, spoken: str) -> bool:
    at = spoken.find(phrase)
    while at > 0:
        after = spoken[at + len(phrase) : at + len(phrase) + 1]
        begins = not (spoken[at - 1].isalnum() and phrase[0].isalnum())
        if begins and not (phrase[-1].isalnum() and after.isalnum()):
            return True
        at = spoken.find(phrase, at + 1)
    return False


def mentions(text_words: frozenset[str], wanted: Iterable[str]) -> frozenset[str]:
    """Return which words are among those of a text, in this or another form."""
    stems = {word[:STEM] for word in text_words if len(word) >= STEM}
    return frozenset(word for word in wanted if word in text_words or (len(word) >= STEM and word[:STEM] in stems))


def named_words(name: str) -> frozenset[str]:
    """Return the words of a node's name.

    >>> sorted(named_words("fact_checker-2"))
    ['checker', 'fact']
    """
    return frozenset(re.findall(r"[^\W\d_]+", name.casefold()))


def is_vague(objective: str) -> bool:
    """Tell whether an objective does not say what it is about."""
    return not content(objective, VAGUE)


def directed_at(sentence: str, names: Iterable[str]) -> frozenset[str]:
    """Return which of some names a sentence wants called: those behind "ask", "use", "hand over to" and their like.

    >>> sorted(directed_at("I will ask billing about it.", ["billing", "shipping"]))
    ['billing']
    """
    words = re.findall(r"[\w'-]+", sentence.casefold().replace("’", "'"))
    if NEGATIONS.intersection(words):
        return frozenset()
    found: set[str] = set()
    for name in names:
        parts = re.findall(r"[\w'-]+", name.casefold())
        for at in range(1, len(words) - len(parts) + 1):
            if parts and words[at : at + len(parts)] == parts and _directed(words[:at]):
                found.add(name)
    return frozenset(found)


def _directed(before: list[str]) -> bool:
    for word in reversed(before[-5:]):
        if word in DIRECTIVES:
            return True
        if word not in BETWEEN:
            return False
    return False


def cut(text: str) -> str:
    """Return a text as it stands in a message: quoted, on one line, not too long."""
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN else line[: SHOWN - 3] + "...")
