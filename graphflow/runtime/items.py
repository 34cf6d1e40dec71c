"""Digests of the items of maps, by which a run that is taken up finds that it would go on over others."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, cast

from graphflow.model.secrets import holds_secret
from graphflow.model.thread import shown


def items_digest(items: tuple[Any, ...], context: type[Any]) -> str | None:
    """Return a digest of a map's items; None where a context can hold secrets, for items may be made of them.

    It is that of what a model would be shown: sets in a fixed order, nothing of what is marked as a secret, and of what
    has no value that could be written the class alone.

    >>> class Case:
    ...     pass
    >>> items_digest(("a", "b"), Case) == items_digest(("b", "a"), Case)
    False
    """
    if _can_hold_secrets(cast("Any", context)):
        return None
    return hashlib.sha256(shown(items).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@functools.lru_cache(maxsize=256)
def _can_hold_secrets(kind: type[Any]) -> bool:
    return holds_secret(kind)
