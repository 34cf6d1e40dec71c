"""What a run is given besides its graph and its context, looked at before anything runs: in the words of the call."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Final, cast

from graphflow.errors import UsageError
from graphflow.model.telling import value_text
from graphflow.nodes.checked import checked_sync

_BACKENDS: Final = ("asyncio", "trio")


def check_parts(resources: object, before: object, clock: object, redact: object, run_id: object) -> None:
    """Look at the parts of a run: each is of the kind that the run will use it as.

    Args:
        resources: what `step.resource` finds.
        before: the hook, or None.
        clock: where time comes from, or None.
        redact: what texts pass, or None.
        run_id: the run's id, or None.

    Raises:
        UsageError: if one is of another kind.
    """
    if type(resources) is not tuple and (not isinstance(resources, Sequence) or isinstance(resources, str | bytes)):
        msg = (
            f"resources={value_text(resources)}: a list of clients and pools is needed, as resources=[client]; [] "
            "for none."
        )
        raise UsageError(msg)
    if before is not None and not callable(before):
        msg = (
            f"before={value_text(before)}: a function is needed that takes the state and returns None or Skip(...), "
            "or None."
        )
        raise UsageError(msg)
    if redact is not None and not callable(redact):
        msg = f"redact={value_text(redact)}: a function is needed that takes a text and returns one, or None."
        raise UsageError(msg)
    if redact is not None:
        checked_sync("run", redact=redact)
    if run_id is not None and not isinstance(run_id, str):
        msg = (
            f"run_id={value_text(run_id)} cannot be the id of a run: an id is text, this is a {type(run_id).__name__}."
        )
        raise UsageError(msg)
    if clock is not None:
        _check_clock(clock)


def check_answers(answers: object) -> None:
    """Look at answers before a run is taken up.

    Raises:
        UsageError: if they are no table by the ids of questions.
    """
    if isinstance(answers, Mapping) and all(isinstance(name, str) for name in cast("Mapping[object, object]", answers)):
        return
    shown = value_text(cast("object", answers))
    msg = f"answers={shown}: a table of answers by the ids of their questions is needed, as answers={{id: value}}."
    raise UsageError(msg)


def check_backend(backend: object) -> None:
    """Look whether an event loop can be had.

    Raises:
        UsageError: if it is none that we know, or not installed.
    """
    if backend not in _BACKENDS:
        msg = f'run_sync(backend={value_text(backend)}): "asyncio" or "trio" is needed.'
        raise UsageError(msg)
    if backend != "asyncio" and importlib.util.find_spec(str(backend)) is None:
        msg = f"run_sync(backend={value_text(backend)}): {backend} is not installed; it is a package of that name."
        raise UsageError(msg)


def _check_clock(clock: object) -> None:
    methods = all(callable(getattr(clock, name, None)) for name in ("now", "sleep_until", "all_asleep"))
    # A class has the methods too.
    if isinstance(clock, type) or not methods or not hasattr(clock, "jumps"):
        msg = (
            f"clock={value_text(clock)}: a Clock is needed, such as ManualClock() of graphflow.testing, or None for "
            "real time."
        )
        raise UsageError(msg)
