"""Redaction: each text that comes into a run from outside passes a function of the user's first.

It is done at the door, before the fold, the journal, a listener or another node sees the text. So a run that is taken
up from its journal goes on with exactly what the first process went on with.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from graphflow.errors import UsageError
from graphflow.events import (
    AnswerGiven,
    Earlier,
    EffectFinished,
    Emitted,
    Fact,
    Failure,
    HookAnswered,
    NodeReturned,
    RunStarted,
)
from graphflow.model.contract import Reason, Report
from graphflow.model.frozen import FrozenDict
from graphflow.model.outcome import Call, Delegate, Handoff, Update
from graphflow.model.secrets import MARKED, marks_of
from graphflow.model.thread import ThreadMessage, ToolCall
from graphflow.nodes.replies import unfenced

Redact: TypeAlias = Callable[[str], str]
"""Returns a text without what must not be kept; what it has returned once, it returns unchanged."""

_NAMES: Final[dict[type, frozenset[str]]] = {
    Handoff: frozenset({"to"}),
    Call: frozenset({"to", "id", "needs"}),
    ThreadMessage: frozenset({"role", "answers", "source"}),
    Reason: frozenset({"code", "path", "error_type"}),
    Report: frozenset({"status"}),
    Failure: frozenset({"error_type", "lineage", "code"}),
    Earlier: frozenset({"run", "active", "spent", "by_node", "by_edge"}),
}
"""The fields of our own values that hold names, by which they are found."""

_SEVERAL: Final[frozenset[type]] = frozenset({tuple, list, frozenset, set})
_TABLES: Final[frozenset[type]] = frozenset({dict, FrozenDict})


def redacted_fact(fact: Fact, redact: Redact) -> Fact:
    """Return a fact whose texts have passed a function.

    Raises:
        UsageError: if that function raises, or returns no text.
    """
    match fact:
        case RunStarted():
            return dataclasses.replace(_with(fact, ("context", "after"), redact), redacted=True)
        case NodeReturned():
            return _with(fact, ("outcome", "failure"), redact)
        case EffectFinished():
            return _with(fact, ("result", "failure"), redact)
        case Emitted() | AnswerGiven():
            return _with(fact, ("value",), redact)
        case HookAnswered():
            return _with(fact, ("skip", "failure"), redact)
        case _:
            return fact


F = TypeVar("F", bound=Fact)


def _with(fact: F, names: tuple[str, ...], redact: Redact) -> F:
    found = {name: getattr(fact, name) for name in names}
    changed = {name: value for name, old in found.items() if (value := redacted(old, redact)) is not old}
    return dataclasses.replace(fact, **changed) if changed else fact


def redacted(value: Any, redact: Redact) -> Any:
    """Return a value whose texts have passed a function; the value itself where nothing has changed.

    Raises:
        UsageError: if that function raises, or returns no text.

    >>> redacted(("card 4111", 7), lambda text: text.replace("4111", "****"))
    ('card ****', 7)
    """
    kind = cast("Any", type(value))
    if kind is str:
        return _text(value, redact)
    if kind in _SEVERAL:
        items = [redacted(item, redact) for item in value]
        return value if _unchanged(items, value) else kind(items)
    if kind in _TABLES:
        return _table(kind, value, redact)
    try:
        return _rebuilt(kind, value, redact)
    except UsageError:
        raise
    except Exception as error:  # a class of the user looks at what it is given
        msg = f"redact= changed a {kind.__qualname__} so that it cannot be made again: {type(error).__name__}: {error}"
        raise UsageError(msg) from error


def _rebuilt(kind: Any, value: Any, redact: Redact) -> Any:
    if kind is Delegate:
        calls, update = redacted(value.calls, redact), redacted(value.update, redact)
        return value if calls is value.calls and update is value.update else Delegate(*calls, update=update)
    if kind is ToolCall:
        arguments = _json_text(value.arguments, redact)
        return value if arguments is value.arguments else dataclasses.replace(value, arguments=arguments)
    if kind is Update:
        fields = value.fields.items()
        return Update(**{name: item if name in MARKED else redacted(item, redact) for name, item in fields})
    # A secret is stored nowhere. One that was changed here would be another than the one that is given on `resume`.
    skipped = _NAMES.get(kind, frozenset()) | marks_of(kind)
    if isinstance(value, BaseModel):
        changed = _changed({name: found for name, found in value if name not in skipped}, redact)
        return value.model_copy(update=changed) if changed else value
    if tuple in kind.__mro__ and hasattr(kind, "_fields"):
        changed = _changed({name: part for name, part in value._asdict().items() if name not in skipped}, redact)
        return value._replace(**changed) if changed else value
    if dataclasses.is_dataclass(kind):
        names = [item.name for item in dataclasses.fields(value) if item.init and item.name not in skipped]
        changed = _changed({name: getattr(value, name) for name in names}, redact)
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _changed(fields: dict[str, Any], redact: Redact) -> dict[str, Any]:
    return {name: made for name, old in fields.items() if (made := redacted(old, redact)) is not old}


def _unchanged(made: Any, old: Any) -> bool:
    return all(new is before for new, before in zip(made, old, strict=True))


def _table(kind: Any, value: Any, redact: Redact) -> Any:
    """Return a table whose texts have passed a function, its keys too; keys that become one are told apart."""
    made: dict[Any, Any] = {}
    for key, item in value.items():
        found = name = redacted(key, redact)
        number = 1
        while name in made:
            number += 1
            name = f"{found} ({number})" if isinstance(found, str) else (found, number)
        made[name] = redacted(item, redact)
    same = _unchanged(made, value) and _unchanged(made.values(), value.values())
    return value if same else kind(made)


# --- texts that are JSON ---------------------------------------------------------------------------------------------

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL)
"""A text in JSON, also one that was cut off, or a number."""


def _text(text: str, redact: Redact) -> str:
    """Return a text that has passed a function, after what is written in it as JSON or by Python, without escapes."""
    if _is_json(text):
        return _json_text(text, redact)
    made = text
    if "\\" in text and '"' in text:  # JSON among other words
        made = _PIECE.sub(lambda found: _piece(found[0], redact) if "\\" in found[0] else found[0], text)
    made = _passed(made, redact)
    if "\\" in made:
        made = _as_python(made, redact)
    return text if made == text else made


def _is_json(text: str) -> bool:
    inside = text.strip()
    if inside[:3] == "```":
        inside = unfenced(inside)
    if inside[:1] not in {"{", "[", '"'}:
        return False
    try:
        json.loads(inside)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _json_text(text: str, redact: Redact) -> str:
    """Return JSON whose texts, keys and numbers have passed a function one by one, and then as a whole.

    What does not change stays as it was written, to the last sign.
    """
    made = _PIECE.sub(lambda found: _piece(found[0], redact), text)
    made = _passed(made, redact)
    return text if made == text else made


def _piece(piece: str, redact: Redact) -> str:
    if piece[0] != '"':
        made = _passed(piece, redact)
        return piece if made == piece else made if _PIECE.fullmatch(made) else json.dumps(made, ensure_ascii=False)
    whole = len(piece) > 1 and piece[-1] == '"'
    try:
        said: str = json.loads(piece if whole else _closed(piece), strict=False)
    except ValueError:
        return piece  # no JSON; it passes as it stands
    made = _text(said, redact)
    if made == said:
        return piece
    written = json.dumps(made, ensure_ascii="\\u" in piece)
    return written if whole else written[:-1]


_CUT: Final = re.compile(r"((?:[^\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)(?:\\(?:u[0-9a-fA-F]{0,3})?)?", re.DOTALL)


def _closed(piece: str) -> str:
    """Close a text that was cut off, without the escape that it was cut off in."""
    found = _CUT.fullmatch(piece)
    return f'{piece if found is None else found[1]}"'


# --- texts that Python has written -----------------------------------------------------------------------------------

_ESCAPES: Final = re.compile(
    r"\\(?:(?P<sign>[\\'\"abfnrtv])|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>[0-9a-fA-F]{8}))|(?P<bytes>(?:\\x[0-9a-fA-F]{2})+)"
)
"""What stands for a sign in the repr of a text, and in that of bytes."""

_SIGNS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DEEPEST: Final = 4  # texts in texts, each of which was written with the escapes of the one in it


def _as_python(text: str, redact: Redact) -> str:
    """Return a text that may hold reprs, as errors do, after a function has seen it without their escapes.

    If the function finds something there, the escapes are gone; otherwise the text stays as it was written. Blanks
    alone are nothing that it has found: what looks like an escape may be a part of a path.
    """
    plain = text
    for _ in range(_DEEPEST):
        said = _ESCAPES.sub(_said, plain)
        if said == plain:
            return text
        plain, made = said, _passed(said, redact)
        if "".join(made.split()) != "".join(plain.split()):
            return made
    return text


def _said(found: re.Match[str]) -> str:
    sign, run, number = found["sign"], found["bytes"], found["four"] or found["eight"]
    if sign is not None:
        return _SIGNS.get(sign, sign)
    if run is not None:
        data = bytes.fromhex(run.replace("\\x", ""))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    code = int(number, 16)
    return found[0] if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF else chr(code)  # noqa: PLR2004 - no character


def _passed(text: str, redact: Redact) -> str:
    try:
        made: object = redact(text)
    except Exception as error:
        msg = f"redact= raised {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    if not isinstance(made, str):
        msg = f"redact= returned a {type(made).__name__}, not a text."
        raise UsageError(msg)
    return text if made == text else made
