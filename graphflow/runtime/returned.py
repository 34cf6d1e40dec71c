"""What the function of a node returned: what could only be a misunderstanding is a failure that says what was meant.

It is looked at where the function returns, and not in the fold: a stored run is decided as it was.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from pydantic import ValidationError

from graphflow.errors import ContractError
from graphflow.events import Failure
from graphflow.model.context import Context, ContextRules, append
from graphflow.model.contract import Report
from graphflow.model.frozen import class_of
from graphflow.model.ids import path_text
from graphflow.model.outcome import Call, Delegate, Done, Handoff, Pause, Update
from graphflow.model.state import State
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Terminal
from graphflow.runtime.commands import CallModel, CallTool, StartBody
from graphflow.runtime.core import failure_of

SOUND: Final[set[type[Any]]] = {
    type(None), str, int, float, bool, bytes, Update, Done, Handoff, Delegate, Pause, Report,
}  # fmt: skip
"""Classes of which every value may be returned; others are added when one of theirs has been looked at."""

_OUTCOMES: Final = (Update, Done, Handoff, Delegate, Pause, Call)

_WIDEST: Final = 4
"""How many parts a tuple of outcomes has at most; a longer one is data, and is not walked."""


def looked_at(outcome: Any, command: StartBody) -> tuple[Any, Failure | None]:
    """Return what a function returned; or its failure, where that is no outcome and can have been meant as one.

    Args:
        outcome: what it returned, of a class that is not among `SOUND`.
        command: what started its body.
    """
    advice = _advice(outcome, command)
    if advice is None:
        kind = class_of(outcome)
        if not issubclass(kind, (Context, Node, tuple, dict, Terminal)):
            SOUND.add(kind)
        return outcome, None
    what, instead = advice
    error = ContractError(f"{path_text(command.path)!r} returned {what}. {instead}")
    return None, failure_of(error, "invalid_value", blame=False)


def with_reducer(error: ContractError, rules: ContextRules, deltas: Iterable[Mapping[str, Any]]) -> ContractError:
    """Return the error of an update, with what its reducer takes where several items were given to `append`."""
    for field, value in (item for delta in deltas for item in delta.items()):
        several = field in rules.fields and rules.fields[field].reducer is append and isinstance(value, (tuple, list))
        if several and f" {rules.context.__name__}.{field} does not fit" in str(error):
            return ContractError(f"{error} Its reducer append takes one item; extend takes several.")
    return error


def blocking(command: StartBody | CallModel | CallTool) -> str:
    """Return what to do about something async that has kept the loop."""
    if isinstance(command, CallModel):
        return "that was the client of its model, which worked without awaiting, or the machine was busy"
    who = f"the tool {command.tool.name!r}" if isinstance(command, CallTool) else "it"
    return f"await, or make {who} a sync function"


def advise(error: Exception, state: State[Any]) -> None:
    """Add to an exception what was meant, where a body has taken the state for the context, or written to that."""
    note = ""
    known = _fields(state)
    if isinstance(error, AttributeError) and error.obj is state and error.name in known:
        note = f"write state.context.{error.name}: a state holds the context, the inbox and where the node stands"
    elif isinstance(error, TypeError) and "'State' object is not subscriptable" in str(error):
        note = "write state.context.field: a state holds the context, the inbox and where the node stands"
    elif isinstance(error, ValidationError) and error.errors(include_url=False)[0]["type"] == "frozen_instance":
        note = "nothing frozen can be set: a node changes the context by what it returns, as Update(field=...)"
    if note:
        with contextlib.suppress(Exception):  # an exception's own add_note may do anything
            error.add_note(note)


def _advice(outcome: Any, command: StartBody) -> tuple[str, str] | None:
    name = command.node.name
    if isinstance(outcome, Context):
        return _of_context(outcome, command)
    if isinstance(outcome, Node):
        target = cast("Node[Any]", outcome).name
        declared = f"declare {name}.hands_off({target}, max_hops=...) and return Handoff({target!r})"
        return (
            f"the node {target!r}",
            f"To give it control {declared}; to ask it, return Delegate(Call({target!r}, ...)).",
        )
    if isinstance(outcome, Terminal):
        instead = f"Where it leads is declared, as {name} >> END or {name}.choose(...); return the output itself."
        return outcome.value, instead
    if isinstance(outcome, Call):
        return f"the call of {outcome.to!r} alone", "Return Delegate(Call(...), ...): each of its calls is asked."
    if isinstance(outcome, dict):
        return _of_table(cast("dict[Any, Any]", outcome), command)
    if isinstance(outcome, tuple):
        return _of_several(cast("tuple[Any, ...]", outcome))
    return _of_pending(outcome, command)


def _of_context(outcome: Context, command: StartBody) -> tuple[str, str] | None:
    """Advise who returned the context that it was given, changed; one of another class may be an output."""
    mine: Any = command.state.context
    if command.node.into is not None or class_of(mine) not in class_of(outcome).__mro__:
        return None
    old = cast("dict[str, Any]", vars(mine))
    new = vars(outcome)
    changed = [field for field in new if field not in old or old[field] is not new[field]]
    instead = f"To change the context return {_update(changed)}; to give it as the output, Done(...) of it."
    return f"a whole {type(outcome).__name__}, which changes nothing", instead


def _of_table(outcome: dict[Any, Any], command: StartBody) -> tuple[str, str] | None:
    fields = _fields(command.state)
    if not outcome or not all(field in fields for field in outcome):
        return None  # a dict is refused anyway, as what can be changed
    instead = f"{_update(outcome)} changes the context; Done(FrozenDict(...)) gives it as the output."
    return "a dict of fields of the context, which changes nothing", instead


def _fields(state: State[Any]) -> Mapping[str, object]:
    kind: type[Context] = class_of(state.context)
    return kind.model_fields


def _update(fields: Iterable[str] | Mapping[str, Any]) -> str:
    """Write an update of some fields; values may be long, or secrets, and are left out."""
    return f"Update({', '.join(f'{field}=...' for field in fields) or 'field=...'})"


def _of_several(outcome: tuple[Any, ...]) -> tuple[str, str] | None:
    if len(outcome) > _WIDEST or not any(isinstance(part, _OUTCOMES) for part in outcome):
        return None
    shown = ", ".join(_kind(part) for part in outcome)
    others = [part for part in outcome if not isinstance(part, Update)]
    if len(others) == 1 and len(outcome) == 2:  # noqa: PLR2004 - an update and something else
        other = others[0]
        carrier = f"{_kind(other)}(..., " if isinstance(other, (Handoff, Delegate, Pause)) else "Done(output, "
        return f"a tuple ({shown})", f"One value says both: return {carrier}update=Update(...))."
    if all(isinstance(part, Call) for part in outcome):
        return f"a tuple ({shown})", "Return Delegate(*calls)."
    return (
        f"a tuple ({shown})",
        "A node returns one outcome: Done, Handoff, Delegate and Pause each take update=Update(...).",
    )


def _kind(part: Any) -> str:
    return class_of(part).__name__


def _of_pending(outcome: Any, command: StartBody) -> tuple[str, str] | None:
    if inspect.iscoroutine(outcome) and inspect.getcoroutinestate(outcome) == inspect.CORO_CREATED:
        outcome.close()  # or Python warns that nobody awaited it, besides
    if inspect.isawaitable(outcome):
        made = "" if command.node.is_async else f"make {command.node.name} `async def`, and "
        return f"a {_kind(outcome)} that nobody has awaited", f"Await it: {made}`return await ...`."
    if inspect.isgenerator(outcome) or inspect.isasyncgen(outcome):
        instead = "A node returns one value: collect, as tuple(...); step.emit(...) says something on the way."
        return f"a {_kind(outcome)}", instead
    return None
