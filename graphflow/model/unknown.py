"""Options that nobody has: each is refused with the one that may have been meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, cast

from graphflow.errors import UsageError

P = ParamSpec("P")


def meant(asked: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one is most like, or None.

    >>> meant("retry", ["name", "retries"])
    'retries'
    """
    import difflib  # where something is wrong already, and not with every start

    return next(iter(difflib.get_close_matches(asked, list(known), n=1)), None)


def refuse_unknown(
    where: str, given: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse the first option that is not known, if there is one.

    Args:
        where: what is made.
        given: the names of the options that it was given.
        known: those that it has.
        elsewhere: what options are called here that other libraries have, or that say something else.

    Raises:
        UsageError: naming the option, the one that may have been meant, and all that there are.

    >>> refuse_unknown("Budget", ["model_call"], ["model_calls", "usd"])
    Traceback (most recent call last):
    graphflow.errors.UsageError: Budget has no option model_call=. Did you mean model_calls=? It has model_calls=, usd=.
    """
    names = tuple(known)
    strange = next((name for name in given if name not in names), None)
    if strange is None:
        return
    guess = (elsewhere or {}).get(strange) or meant(strange, names)
    hint = f" Did you mean {guess}=?" if guess else ""
    msg = f"{where} has no option {strange}=.{hint} It has {', '.join(f'{name}=' for name in sorted(names))}."
    raise UsageError(msg)


def knowing_options(
    elsewhere: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let an `__init__` refuse options that it does not have in words of ours, once Python has refused them.

    Args:
        elsewhere: as in `refuse_unknown`.
    """

    def around(init: Callable[P, None]) -> Callable[P, None]:
        known = [one.name for one in inspect.signature(init).parameters.values() if one.kind is one.KEYWORD_ONLY]

        @functools.wraps(init)
        def checked(*args: P.args, **options: P.kwargs) -> None:
            try:
                init(*args, **options)
            except TypeError:
                where = cast("Any", type(args[0])).__name__  # args[0] is what is made
                named = next((repr(one) for one in args[1:2] if isinstance(one, str)), options.get("name"))
                refuse_unknown(f"{where} {named}" if named else where, options, [*known, "name"], elsewhere)
                raise

        return checked

    return around
