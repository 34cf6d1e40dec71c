"""What nodes and edges are given, looked at where it is given: each refusal names the argument and what it must be."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast

from graphflow.errors import UsageError
from graphflow.model.budget import Budget, is_seconds
from graphflow.model.telling import value_text


def checked_seconds(where: str, seconds: object, name: str = "timeout") -> None:
    """Refuse what is no time to wait for.

    Raises:
        UsageError: if it is not None and no finite number of seconds above 0.

    >>> checked_seconds("node 'a'", 2.5)
    >>> checked_seconds("node 'a'", "soon")
    Traceback (most recent call last):
    graphflow.errors.UsageError: node 'a': timeout='soon': a finite number of seconds above 0 is needed, or None.
    """
    if seconds is not None and not (is_seconds(seconds) and seconds != 0):
        msg = f"{where}: {name}={value_text(seconds)}: a finite number of seconds above 0 is needed, or None."
        raise UsageError(msg)


def checked_text(where: str, text: object, name: str, *, none: bool = False) -> None:
    """Refuse what is no text.

    Raises:
        UsageError: if it is none, nor None where that is allowed.
    """
    if not isinstance(text, str) and not (none and text is None):
        msg = f"{where}: {name}={value_text(text)}: a text is needed{', or None' if none else ''}."
        raise UsageError(msg)


def checked_switch(where: str, switch: object, name: str) -> None:
    """Refuse what is neither True nor False.

    Raises:
        UsageError: naming the argument.
    """
    if not isinstance(switch, bool):
        msg = f"{where}: {name}={value_text(switch)}: True or False."
        raise UsageError(msg)


def checked_budget(where: str, budget: object, name: str = "budget") -> None:
    """Refuse what is no budget.

    Raises:
        UsageError: if it is neither a Budget nor None.
    """
    if budget is not None and not isinstance(budget, Budget):
        msg = f"{where}: {name}={value_text(budget)}: a Budget is needed, or None."
        raise UsageError(msg)


def checked_call(where: str, function: object, name: str, what: str) -> None:
    """Refuse what cannot be called.

    Args:
        where: what is made.
        function: what was given; None is nothing to refuse.
        name: the argument.
        what: the function that is needed, in words.

    Raises:
        UsageError: naming the argument.
    """
    if function is not None and not callable(function):
        msg = f"{where}: {name}={value_text(function)}: {what} is needed."
        raise UsageError(msg)


def checked_names(where: str, names: object, name: str, what: str) -> frozenset[str]:
    """Return names as a set; a single one may stand for itself.

    Args:
        where: what is made.
        names: what was given.
        name: the argument.
        what: what they are names of.

    Raises:
        UsageError: if one of them is no text.

    >>> sorted(checked_names("node 'a'", ["question", "notes"], "reads", "fields"))
    ['notes', 'question']
    """
    several = isinstance(names, list | tuple | set | frozenset)
    found = tuple(cast("Iterable[object]", names)) if several else (names,)
    if not all(isinstance(one, str) for one in found):
        msg = f"{where}: {name}={value_text(names)}: names of {what} are needed, as {name}=[...]."
        raise UsageError(msg)
    return frozenset(cast("tuple[str, ...]", found))


def checked_type(where: str, kind: Any, name: str) -> None:
    """Refuse what is no type that can be told from others, before anything is proved of it.

    Raises:
        UsageError: if it is the name of a type, or has no hash.
    """
    if isinstance(kind, str):
        msg = f"{where}: {name}={value_text(kind)}: the type itself is needed, not its name."
        raise UsageError(msg)
    try:
        hash(kind)
    except TypeError:
        msg = f"{where}: {name}={value_text(kind)}: a type is needed that can be told from others; this has no hash."
        raise UsageError(msg) from None


def checked_sync(where: str, **functions: object) -> None:
    """Refuse async functions where the fold calls them.

    Raises:
        UsageError: naming the function that is a coroutine function.
    """
    for name, function in functions.items():
        call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is async too
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
            msg = (
                f"{where}: {name}={value_text(function)}: it is called where nothing can be awaited; write a plain "
                "function."
            )
            raise UsageError(msg)


def checked_failure(where: str, failure: object) -> None:
    """Refuse what is no failure policy.

    Raises:
        UsageError: naming the policies.
    """
    if failure not in ("fail_fast", "collect"):
        msg = f"{where}: failure={value_text(failure)}: 'fail_fast' or 'collect' is needed."
        raise UsageError(msg)


def checked_bound(where: str, bound: int | None, name: str = "max_hops", least: int = 0) -> int | None:
    """Return a bound that makes sense.

    Raises:
        UsageError: if it is not None and not a whole number of at least `least`.
    """
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < least):
        msg = (
            f"{where}: {name}={value_text(bound)}: a whole number of at least {least} is needed, or None for no bound."
        )
        raise UsageError(msg)
    return bound


def checked_count(where: str, count: object, name: str, least: int = 0) -> int:
    """Return a number that something must have.

    Raises:
        UsageError: if it is no whole number of at least `least`.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        msg = f"{where}: {name}={value_text(count)}: a whole number of at least {least} is needed."
        raise UsageError(msg)
    return count
