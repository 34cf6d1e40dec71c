"""Fields whose values are secrets: they are shown nowhere, and stored nowhere."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable
from typing import Any, Final, cast, final

import pydantic
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import core_schema

from graphflow.errors import UsageError

SHOWN: Final = "**********"
"""What stands in a text instead of a secret."""

MARKED: Final[set[str]] = set()
"""The names of all fields of contexts that are marked; values by these names are shown nowhere."""

SECRET_TYPES: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in (SecretStr, SecretBytes, Secret)}
"""The classes of pydantic whose values are secrets, by name."""


@final
class _Mark:
    """The type of `secret`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the constant's name."""
        return "secret"

    def __reduce__(self) -> str:
        """Copy and pickle as the constant: there is one of it."""
        return "secret"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate as if it were not there; in JSON, show nothing of the value."""
        schema: Any = handler(source)
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(
            _hidden, return_schema=core_schema.str_schema(), when_used="json"
        )
        return cast("core_schema.CoreSchema", schema)


def _hidden(_: object) -> str:
    return SHOWN


secret: Final = _Mark()
"""Marks a field as a secret: `token: Annotated[str, secret]`. It is asked for again when a stored run is resumed."""


class MissingSecrets(UsageError):
    """What is stored says that secrets belong in it, and they were not given.

    Attributes:
        names: the names that are asked for.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Name every one of them."""
        self.names = tuple(sorted(set(names)))
        table = ", ".join(f"{name!r}: ..." for name in self.names)
        super().__init__(
            f"secrets are never stored, and this run was given some: give them again, secrets={{{table}}}."
        )


def secret_fields(kind: type[Any]) -> frozenset[str]:
    """Return the names of the fields of a class that are marked as secrets, wherever in their type the mark stands.

    >>> from typing import Annotated
    >>> class Login(BaseModel):
    ...     user: str
    ...     token: Annotated[str, secret]
    >>> secret_fields(Login)
    frozenset({'token'})
    """
    if BaseModel in kind.__mro__:
        fields = cast("type[BaseModel]", kind).model_fields.items()
        return frozenset(name for name, info in fields if secret in info.metadata or marked(info.annotation))
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
        return frozenset()
    return frozenset(name for name, hint in hints_of(kind).items() if marked(hint))


_SAYS_SECRET: Final = re.compile(r"\bsecret\b")


def marked(hint: Any) -> bool:
    """Tell whether a type is marked as a secret; one that nobody can read is, if it speaks of one."""
    if isinstance(hint, str):
        return _SAYS_SECRET.search(hint) is not None
    if isinstance(hint, typing.ForwardRef):
        return marked(hint.__forward_arg__)
    if any(found is secret for found in getattr(hint, "__metadata__", ())):
        return True
    if typing.get_origin(hint) is typing.Literal:
        return False
    return any(marked(part) for part in typing.get_args(hint))


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """Return the annotations of a class and its bases; never raises.

    Each is read on its own, so that one that is broken takes no other with it: it stays as it was written.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules.get(base.__module__)
        known: dict[str, Any] = {base.__name__: base, **vars(base), **(vars(module) if module is not None else {})}
        found.update(read_hints(base, known))
    return found


def read_hints(holder: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of a function or of one class, with names as far as they are known; never raises."""
    try:
        given = inspect.get_annotations(holder)
    except Exception:  # noqa: BLE001 - annotations are code
        return {}
    return {name: _read(hint, known) for name, hint in given.items()}


def _read(hint: Any, known: dict[str, Any]) -> Any:
    alone: Any = types.SimpleNamespace(__annotations__={"it": hint})
    try:
        return typing.get_type_hints(alone, known, known, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - a name that is not there, or code that raises
        return hint
