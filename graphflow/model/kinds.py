"""`Kinds`: the classes that may stand in a journal, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from graphflow.model.context import Context
from graphflow.model.exact import Unreadable
from graphflow.model.plans import Plan, plan_of, storable
from graphflow.model.scalars import READERS
from graphflow.model.secrets import secret_fields
from graphflow.model.typevalues import NAMED

RESERVED: Final = (
    frozenset(READERS)
    | frozenset(NAMED)
    | {"list", "dict", "set", "frozenset", "FrozenDict", "type", "secret", "Update", "NOTHING"}
)
"""Names that mean something else in a journal; a class that is called so is stored with its module."""


class Kinds:
    """The classes that a graph declares, by name: a frozen table.

    A class is called by its qualified name where that is unique here, else by its module too; two that even so have
    one name are called by none, and their values cannot be stored.

    Attributes:
        classes: every class.
        secrets: the fields of contexts that are marked as secrets, which no `Update` may show.

    >>> from graphflow.model.contract import Report
    >>> kinds = Kinds([Report])
    >>> kinds.name_of(Report), kinds.named("graphflow.model.contract:Report") is Report
    ('Report', True)
    """

    __slots__ = ("_by_name", "_names", "_plans", "classes", "secrets")

    def __init__(self, classes: Iterable[type[Any]], contexts: Iterable[type[Context]] | None = None) -> None:
        """Name the classes that can be stored; others are left out.

        Args:
            classes: in any order.
            contexts: those whose fields an `Update` speaks of; by default every context among the classes.
        """
        self.classes: frozenset[type[Any]] = frozenset()
        self.secrets: frozenset[str] = frozenset()
        self._by_name: dict[str, type[Any]] = {}
        self._names: dict[type[Any], str] = {}
        self._plans: dict[type[Any], Plan] = {}
        self._add(classes, contexts)

    def _add(
        self, classes: Iterable[type[Any]], contexts: Iterable[type[Context]] | None, *, briefly: bool = True
    ) -> None:
        """Name more classes, by names that no class has yet: what was written before can still be read."""
        more = {kind for kind in classes if storable(kind)} - self.classes
        short: dict[str, list[type[Any]]] = {}
        full: dict[str, list[type[Any]]] = {}
        for kind in more:
            short.setdefault(kind.__qualname__, []).append(kind)
            full.setdefault(f"{kind.__module__}:{kind.__qualname__}", []).append(kind)
        taken = RESERVED | self._by_name.keys()
        for names in (full, short) if briefly else (full,):
            for name, found in names.items():
                if len(found) == 1 and name not in taken:
                    self._by_name[name] = found[0]
                    self._names[found[0]] = name
        self.classes |= more
        speaking = [kind for kind in more if Context in kind.__mro__] if contexts is None else contexts
        self.secrets |= frozenset().union(*map(secret_fields, speaking))

    def name_of(self, kind: type[Any]) -> str | None:
        """Return the name that a class is stored by, or None if it is no class of the graph."""
        return self._names.get(kind)

    def named(self, name: str) -> type[Any]:
        """Return the class of a name, short or with its module.

        Raises:
            Unreadable: if no class, or more than one, has it.
        """
        found = self._by_name.get(name)
        if found is None:
            msg = f"no class {name[:200]!r} is declared by the graph"
            raise Unreadable(msg)
        return found

    def with_(
        self, classes: Iterable[type[Any]], contexts: Iterable[type[Context]] = (), *, briefly: bool = True
    ) -> Kinds:
        """Return the table with more classes; those that it has keep their names.

        Args:
            classes: more of them.
            contexts: more of those whose fields an `Update` speaks of.
            briefly: whether a class may be called by its qualified name alone. Where it depends on the moment which
                classes are known, it may not: the name would mean another class at another time.
        """
        more, speaking = frozenset(classes), tuple(contexts)
        if more <= self.classes and not speaking:
            return self
        made = Kinds(())
        made.classes, made.secrets = self.classes, self.secrets
        made._by_name, made._names = dict(self._by_name), dict(self._names)
        made._plans = self._plans  # a plan says nothing of names
        made._add(more, speaking, briefly=briefly)
        return made

    def plan(self, kind: type[Any]) -> Plan:
        """Return how the values of a class are taken apart; made once.

        Raises:
            Refused: if they can never be built again.
        """
        found = self._plans.get(kind)
        if found is None:
            found = self._plans[kind] = plan_of(kind)
        return found
