"""Which name does a text mean? How a router reads what a rule, a function or a model says."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphflow.graphs.blaming import UNMARKED, Blaming
from graphflow.graphs.conversation import asked
from graphflow.model.context import question_of
from graphflow.model.contract import Reason, Report
from graphflow.model.outcome import NOTHING, Done, Handoff
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import words_of

Rule: TypeAlias = Callable[[Any], str]
"""Names, from the state, where a task goes."""


def route_of(text: str, names: Iterable[str]) -> str | None:
    """Return the one name that a text means, or None.

    What is no letter, digit or `_` at both ends does not count, nor does case. A text that is a name means it, whatever
    else that word could mean. Otherwise the text is read for names at the borders of words, the longest first; if
    exactly one of them is in it, however often, that one is meant, and with none or two no route is found.

    Args:
        text: what was said.
        names: the names to choose among; any texts.

    >>> names = ("billing", "billing_eu", "done_checker")
    >>> route_of("**Done_Checker.**", names), route_of("I would ask billing_eu.", names)
    ('done_checker', 'billing_eu')
    >>> route_of("billing or done_checker", names) is None, route_of("...", names) is None
    (True, True)
    """
    known = tuple(dict.fromkeys(names))
    text = unicodedata.normalize("NFC", text)
    said = _bare(text)
    exact = [name for name in known if unicodedata.normalize("NFC", name) == text.strip()]
    exact = exact or [name for name in known if said and _bare(name) == said]
    if exact:
        return exact[0] if len(exact) == 1 else None
    rest = _folded(text)
    found: list[str] = []
    for words in sorted({_bare(name) for name in known}, key=lambda words: (-len(words), words)):
        rest, seen = _without(rest, words)
        if seen:
            found += [name for name in known if _bare(name) == words]
    return found[0] if len(found) == 1 else None


def _bare(text: str) -> str:
    """Return a text without case, and without what is no letter, digit or `_` at its ends."""
    folded = _folded(text)
    start, end = 0, len(folded)
    while start < end and not _in_word(folded[start]):
        start += 1
    while end > start and not _in_word(folded[end - 1]):
        end -= 1
    return folded[start:end]


def _without(text: str, wanted: str) -> tuple[str, bool]:
    """Blank every place where some words stand in a text by themselves, and tell whether there was one."""
    if not wanted:
        return text, False
    at, seen = text.find(wanted), False
    while at >= 0:
        end = at + len(wanted)
        alone = (at == 0 or not _in_word(text[at - 1])) and (end == len(text) or not _in_word(text[end]))
        if alone:
            text, seen = f"{text[:at]}{' ' * len(wanted)}{text[end:]}", True
        at = text.find(wanted, at + 1)
    return text, seen


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _in_word(letter: str) -> bool:
    """Tell whether a letter is part of a word; a mark is part of the letter before it."""
    return letter.isalnum() or letter == "_" or unicodedata.category(letter).startswith("M")


@dataclass(frozen=True)
class Route:
    """Hand the task over, as it came in, to the one who was named.

    Attributes:
        names: those who can be named.
        agents: those that see what the user said by themselves; everybody else is given it.
        fallback: who gets it otherwise, or None.
        rule: names one from the state; None where what arrived does.
        where: how errors name the call that made the team.
    """

    names: tuple[str, ...]
    agents: frozenset[str]
    fallback: str | None
    rule: Rule | None
    where: str = field(default="", kw_only=True, metadata=UNMARKED)

    async def __call__(self, state: State[Any]) -> Handoff | Done | Report:
        """Read the name, and hand over."""
        arrived = state.values[0] if state.values else NOTHING
        if state.visit > 1:
            return Done(arrived)  # a person gives control back, with the answer
        with Blaming(self.where, "by", self.rule):
            said = words_of(arrived if self.rule is None else self.rule(state))
        task = asked(state) if self.rule is not None else question_of(state.context)
        target = route_of(said, self.names) or self.fallback
        if target is None:
            known = ", ".join(map(repr, self.names))
            text = f"{value_text(said)} names none of {known}, or several, and the router has no fallback."
            return Report.failed(Reason(code="no_route", text=text))
        known_already = target in self.agents and task == question_of(state.context)
        return Handoff(target, None if known_already or not task else task)
