"""What a node can answer: each outcome is a type of its own.

`None` gives nothing, and `Update` changes the context; `Done`, `Handoff`, `Delegate` and `Pause` are outcomes, each
with an optional update; any other value that a node returns is its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from graphflow.errors import UsageError
from graphflow.model.contract import Brief
from graphflow.model.secrets import MARKED, SHOWN, veiled, veiled_repr
from graphflow.model.telling import value_text


@final
class Nothing:
    """The type of `NOTHING`: a node gave no output, which differs from the output None."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the constant's name."""
        return "NOTHING"


NOTHING: Final = Nothing()


@final
class Update:
    """New values for fields of the context; a field with a reducer takes what its reducer takes.

    >>> Update(count=3).fields
    {'count': 3}
    """

    __slots__ = ("fields",)
    fields: dict[str, Any]

    def __init__(self, /, **fields: Any) -> None:
        """Take one keyword for each field."""
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        """Compare by fields."""
        return isinstance(other, Update) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]  # its values need not be hashable

    def __repr__(self) -> str:
        """Show the fields, and of those that are marked as secrets in any context their names alone."""
        shown = (f"{name}={SHOWN if name in MARKED else repr(veiled(value))}" for name, value in self.fields.items())
        return f"Update({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Done:
    """The node is done: an explicit output (None counts) and an optional update.

    Attributes:
        output: the node's output; `NOTHING` gives none.
        update: a change of the context.
    """

    output: Any = NOTHING
    update: Update | None = None

    def __post_init__(self) -> None:
        """Check the update."""
        _check_update("Done", self.update)

    def __repr__(self) -> str:
        """Show its fields, without secrets in them."""
        return veiled_repr(self)


@dataclass(frozen=True, slots=True)
class Handoff:
    """Give control to a node that a handoff edge leads to.

    Attributes:
        to: the target's name.
        note: what the target should know; it arrives in the target's inbox, where nothing does without one.
        update: a change of the context, applied before the target starts.
    """

    to: str
    note: Any = None
    update: Update | None = None

    def __post_init__(self) -> None:
        """Check target and update."""
        _check_name("Handoff", self.to)
        _check_update("Handoff", self.update)

    def __repr__(self) -> str:
        """Show its fields, without secrets in them."""
        return veiled_repr(self)


@dataclass(frozen=True, slots=True)
class Call:
    """One delegation of a `Delegate`.

    Attributes:
        to: the callee's name; a delegate edge must lead to it.
        brief: what is asked; a str is an objective.
        id: the call's id in its batch; its position by default.
        needs: ids of calls whose reports must be there first; the callee gets them in its inbox.
    """

    to: str
    brief: Brief
    id: str
    needs: tuple[str, ...]

    def __init__(self, to: str, brief: Brief | str, *, id: str = "", needs: tuple[str, ...] = ()) -> None:
        """Make a brief of a str."""
        put = object.__setattr__
        _check_name("Call", to)
        given: object = brief
        if not isinstance(given, (str, Brief)):
            msg = f"Call({value_text(to)}, {value_text(brief)}): a Brief is needed, or a str, which is its objective."
            raise UsageError(msg)
        parts: tuple[object, object] = (id, needs)
        one, named = parts
        fits = isinstance(one, str) and isinstance(named, (tuple, list))
        if not fits or (needs and not all(map(_is_text, needs))):
            msg = (
                f"Call({value_text(to)}, id={value_text(id)}, needs={value_text(needs)}): an id is a str, and needs "
                "is a tuple of ids."
            )
            raise UsageError(msg)
        put(self, "to", to)
        put(self, "brief", Brief(objective=brief) if isinstance(brief, str) else brief)
        put(self, "id", id)
        put(self, "needs", tuple(needs))


@dataclass(frozen=True, slots=True, init=False)
class Delegate:
    """Ask other nodes and be entered again when every one of them has reported.

    Attributes:
        calls: what is asked of whom; the reports come back in this order.
        update: a change of the context, applied before the callees start; they see it.
    """

    calls: tuple[Call, ...]
    update: Update | None

    def __init__(self, *calls: Call, update: Update | None = None) -> None:
        """Take the calls in order."""
        given: tuple[object, ...] = calls
        wrong = [call for call in given if not isinstance(call, Call)]
        if wrong:
            msg = (
                f"Delegate({value_text(wrong[0])}): each argument is one Call(to, brief); write Delegate(*calls) for "
                "a list."
            )
            raise UsageError(msg)
        _check_update("Delegate", update)
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "update", update)


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask a person and be entered again with the answer.

    Attributes:
        question: what is asked.
        schema: the type that the answer must have; anything that pydantic can validate, or None for any JSON value.
        update: a change of the context, applied before the node is suspended.
    """

    question: str
    schema: Any = None
    update: Update | None = None

    def __post_init__(self) -> None:
        """Check question and update."""
        _check_name("Pause", self.question)
        _check_update("Pause", self.update)


@dataclass(frozen=True, slots=True)
class Skip:
    """What a `before=` hook answers to skip a node.

    Attributes:
        reason: why, for the record.
    """

    reason: str

    def __post_init__(self) -> None:
        """Check the reason."""
        _check_name("Skip", self.reason)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check_name(outcome: str, text: object) -> None:
    if not isinstance(text, str):
        name = getattr(text, "name", None)
        hint = f": write {name!r}" if isinstance(name, str) else ""
        msg = f"{outcome}({value_text(text)}): a str is needed{hint}."
        raise UsageError(msg)


def _check_update(outcome: str, update: object) -> None:
    if update is not None and not isinstance(update, Update):
        msg = f"{outcome}(update={value_text(update)}): write update=Update(field=value, ...)."
        raise UsageError(msg)
