"""Values as JSON data and back: exactly, or refused where they were made.

What a run stores must come back equal and of the same types all the way down. So every value is written in a form of
its own, a class is written only if the graph declares it, and one that a model or a constructor would build again is
built again at once, as the proof that reading will give it back. Reading looks names up in a frozen table; it imports
nothing, calls no name that it finds, and whatever is odd is `Unreadable`.

JSON data are written like this: None, bools, texts, whole numbers and finite floats as they are, a tuple as an array,
a `FrozenDict` as an object. Everything else is an object whose "$" says what it is; names of fields stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from graphflow.errors import NotStorable
from graphflow.model.exact import Refused, SecretNames, Unreadable
from graphflow.model.frozen import class_of
from graphflow.model.kinds import Kinds
from graphflow.model.reading import Reading
from graphflow.model.secrets import MissingSecrets, secret
from graphflow.model.writing import Writing

__all__ = ("Codec", "Kinds", "MissingSecrets", "Unreadable", "secret", "secrets_asked")


class Codec:
    """Writes values as JSON data and reads them, with the classes of a graph.

    Attributes:
        kinds: the classes.
        secrets: the values of secrets by their names; they are needed to read, not to write.
        names: what secrets are called: each value has one name in all that a codec writes.

    >>> from graphflow.model.contract import Report
    >>> codec = Codec(Kinds([Report]))
    >>> data = codec.encode({"found": Report(finding="paid twice")}, "the output of 'billing'")
    >>> codec.decode(data)["found"].finding
    'paid twice'
    >>> codec.encode({"items": ({"client": bytearray()},)}, "the output of 'billing'")
    Traceback (most recent call last):
    ...
    graphflow.errors.NotStorable: the output of 'billing' holds a bytearray at ['items'][0]['client'], which a journal
    could not give back exactly: use bytes
    """

    __slots__ = ("_reading", "_writing", "kinds", "names", "secrets")

    def __init__(
        self, kinds: Kinds, secrets: Mapping[str, object] | None = None, names: SecretNames | None = None
    ) -> None:
        """Take the classes, the secrets if there are any, and the names that another codec of the run gives them."""
        self.kinds = kinds
        self.secrets: Mapping[str, object] = dict(secrets or {})
        self.names = SecretNames(self.secrets) if names is None else names
        self._writing = Writing(kinds, self.names)
        self._reading = Reading(kinds, self.secrets, self.names)

    def encode(self, value: object, what: str, name: str = "") -> Any:
        """Return a value as JSON data that `decode` gives back exactly.

        Args:
            value: anything.
            what: what it is, for the error: "the output of 'a/b'".
            name: what it is called if it is a secret itself.

        Raises:
            NotStorable: naming the place in the value that could not be given back.
        """
        try:
            writing = self._writing
            return writing.how.get(class_of(value), Writing.write)(writing, value, 0, name)
        except Refused as refused:
            raise _not_storable(refused, what) from refused.__cause__
        except RecursionError as error:
            raise _not_storable(Refused(type(value), "it is nested too deep"), what) from error
        except Exception as error:
            hint = f"it raised {type(error).__name__} when it was read"
            raise _not_storable(Refused(type(value), hint), what) from error

    def reads(self, *, older: bool) -> None:
        """Say whether what is read from now on may be older than its class: a field that is missing has its default."""
        self._reading.fills = older

    def decode(self, data: Any) -> Any:
        """Return the value that was written.

        Raises:
            Unreadable: naming the place of what is no data of `encode`.
            MissingSecrets: naming every secret that is asked for and was not given.
        """
        try:
            return self._reading.read(data, 0)
        except MissingSecrets:
            raise MissingSecrets(secrets_asked(data).difference(self.secrets)) from None
        except RecursionError as error:
            msg = "the data are nested too deep"
            raise Unreadable(msg) from error


def secrets_asked(data: Any) -> frozenset[str]:
    """Return the names of the secrets that JSON data of `encode` ask for.

    >>> sorted(secrets_asked([{"$": "secret", "name": "token"}]))
    ['token']
    """
    found: set[str] = set()
    todo = [data]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo.extend(cast("list[Any]", item))
        elif isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            if table.get("$") == "secret" and isinstance(table.get("name"), str):
                found.add(table["name"])
            todo.extend(table.values())
    return frozenset(found)


def _not_storable(refused: Refused, what: str) -> NotStorable:
    """Return the error for the one who asked, with the way to the place; one that leads in a circle ends there."""
    steps = refused.steps[::-1]
    seen: set[int] = set()
    way: list[str] = []
    for step, holder, kind in steps:
        if holder in seen:
            return NotStorable(what, "".join(way).removeprefix("."), kind, "it holds itself")
        seen.add(holder)
        way.append(step)
    place = "".join(way).removeprefix(".")
    if len(place) > _WIDEST:
        place = f"{place[:_WIDEST]}..."
    return NotStorable(what, place, refused.kind, refused.hint)


_WIDEST: Final = 400
