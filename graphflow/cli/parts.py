"""What a run is given beside its graph, by the names of variables in the file of the graph: `--redact` and others."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, NamedTuple, cast

from graphflow.cli.faults import BadUse
from graphflow.cli.target import split_file
from graphflow.events import Before, Listener
from graphflow.runtime.handle import Run
from graphflow.runtime.redaction import Redact
from graphflow.visualize.text import visible

Opening = Callable[[Sequence[Listener]], AbstractAsyncContextManager[Run[Any]]]
"""Gives a run that is begun or taken up, and heard by listeners."""


@dataclass(frozen=True, slots=True)
class PartWords:
    """The names of variables, as they stand on a command line or are noted; None is no such part.

    Attributes:
        redact: a function from text to text.
        before: a hook, as `before=` of `run`.
        resources: a list of clients and pools, or a function that makes one.
    """

    redact: str | None = None
    before: str | None = None
    resources: str | None = None

    def over(self, noted: PartWords) -> PartWords:
        """Return what is meant where something is noted: a word replaces the noted one.

        >>> PartWords(before="skips").over(PartWords(redact="no_cards"))
        PartWords(redact='no_cards', before='skips', resources=None)
        """
        return PartWords(*(getattr(self, one.name) or getattr(noted, one.name) for one in fields(self)))


class Parts(NamedTuple):
    """What a run is given beside its graph.

    Attributes:
        redact: what each text passes on its way in, or None.
        before: what is asked before each visit, or None.
        resources: what is found by `step.resource`, or a function that makes it.
    """

    redact: Redact | None
    before: Before | None
    resources: Any

    def opening(self, begun: Callable[[Sequence[object], Sequence[Listener]], Any]) -> Opening:
        """Return what gives a run, its resources made before it and left behind it.

        Args:
            begun: begins the run, or takes it up, with resources and listeners.
        """
        if not callable(self.resources):
            return lambda listeners: begun(self.resources, listeners)
        make = self.resources

        @contextlib.asynccontextmanager
        async def opening(listeners: Sequence[Listener]) -> AsyncGenerator[Run[Any]]:
            async with _made(make) as resources, begun(resources, listeners) as run:
                yield run

        return opening


def parts_of(module: ModuleType, target: str, words: PartWords) -> Parts:
    """Return the parts that are named.

    Raises:
        BadUse: if there is no such variable, or it is of another kind.
    """
    redact = _function(module, target, "--redact", words.redact, "takes a text and returns one")
    before = _function(module, target, "--before", words.before, "takes the state and returns None or Skip(...)")
    if words.resources is None:
        return Parts(redact, before, ())
    found = variable(module, target, "--resources", words.resources)
    if not callable(found):
        found = _several(words.resources, found)
    return Parts(redact, before, found)


def variable(module: ModuleType, target: str, option: str, name: str) -> object:
    """Return a variable of the file or module that a graph was loaded from.

    Raises:
        BadUse: if it has none of that name.
    """
    try:
        return getattr(module, name)
    except AttributeError:
        near = difflib.get_close_matches(name, [known for known in vars(module) if not known.startswith("_")], n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        place = split_file(target)[0] or target.partition(":")[0]
        raise BadUse(
            f"{option} {name}: {visible(str(place))} has no variable of that name; write it there, or import it there."
            f"{guess}"
        ) from None


def _function(module: ModuleType, target: str, option: str, name: str | None, does: str) -> Any:
    if name is None:
        return None
    found = variable(module, target, option, name)
    if not callable(found) or isinstance(found, type):
        raise BadUse(f"{option} {name}: a function is needed that {does}, and {name} is {_kind(found)}.")
    return found


@contextlib.asynccontextmanager
async def _made(make: Callable[[], Any]) -> AsyncGenerator[Sequence[object]]:
    """Make resources in the loop of the run, and leave them when it is over."""
    async with contextlib.AsyncExitStack() as stack:
        found = make()
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, AbstractAsyncContextManager):
            found = await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", found))
        elif isinstance(found, AbstractContextManager):
            found = stack.enter_context(cast("AbstractContextManager[Any]", found))
        yield _several(getattr(make, "__name__", "it"), found)


def _several(name: str, found: object) -> Sequence[object]:
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return cast("Sequence[object]", found)
    raise BadUse(
        f"--resources {name}: a list of clients and pools is needed, as [client], or a function without parameters "
        f"that returns one, or a context manager of one; this is {_kind(found)}."
    )


def _kind(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"of class {type(found).__name__}"
