"""What may be given to the functions that make teams: for each argument a rule, and one error that says which."""

from __future__ import annotations

import difflib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel

from graphflow.errors import UsageError
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.context import Context, question_field
from graphflow.model.secrets import read_hints, secret_fields
from graphflow.model.telling import value_text
from graphflow.model.thread import Last
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.detect import Detector
from graphflow.nodes.function import FunctionNode, is_async
from graphflow.nodes.human import Human
from graphflow.nodes.join import Policy

Rule: TypeAlias = Callable[[Any], "str | None"]
"""Tells of a value what is needed in its place, in words, or None where it will do."""


def optional(rule: Rule) -> Rule:
    """Return a rule that takes None too."""

    def found(value: Any) -> str | None:
        wrong = None if value is None else rule(value)
        return f"{wrong}, or None" if wrong is not None and wrong.endswith("needed") else wrong

    return found


def number(least: int) -> Rule:
    """Return the rule of a bound."""

    def found(value: Any) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if fits else f"a whole number of at least {least} is needed"

    return found


def _words(one: str, other: str) -> Rule:
    def found(value: Any) -> str | None:
        return None if isinstance(value, str) and value in (one, other) else f"{one!r} or {other!r} is needed"

    return found


def instance(kind: type[Any], words: str) -> Rule:
    """Return the rule of what is an object of a class."""

    def found(value: Any) -> str | None:
        return None if isinstance(value, kind) else f"{words} is needed"

    return found


def function(words: str, *, waits: bool = False) -> Rule:
    """Return the rule of an argument that is called with one value.

    Args:
        words: from what to what it is.
        waits: whether it may be async.
    """

    def found(value: Any) -> str | None:
        if not callable(value) or isinstance(value, Node):
            return f"a function {words} is needed"
        if not waits and is_async(value):
            return "it is called where nothing can be awaited; write a plain function"
        return None if _takes_one(value) else f"it is called with one argument: a function {words} is needed"

    return found


def _takes_one(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        return False
    except ValueError:  # a built-in function does not always say what it takes
        return True
    return True


def node(value: Any) -> str | None:
    """Say what is needed where a node is, with what to do about the value that was given."""
    if isinstance(value, Node):
        return None
    hint, kind = "", type(cast("object", value)).__name__
    if isinstance(value, list | tuple):
        hint = "; unpack it with a *, as *members"
    elif getattr(value, "__name__", "") == "<lambda>":
        hint = "; a lambda has no name: write a function, and put @node above it"
    elif inspect.isroutine(value):
        hint = "; put @node above the function"
    return f"a node is needed, not {kind}{hint}"


names_one: Final = function("from the state to a name, or a node whose output names one,")
"""The rule of what names who gets a task, or how much effort it is worth."""

gives_items: Final = function("from the state to a sequence of items, or a node that gives them,")
"""The rule of what splits a task."""


def _history(value: Any) -> str | None:
    if isinstance(value, Last) or callable(value) or (isinstance(value, str) and value in ("note", "summary", "full")):
        return None
    return "'note', last(n), 'summary', 'full', or a function from a thread to messages is needed"


def _weights(value: Any) -> str | None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        numbers = [*cast("Mapping[Any, Any]", value).values()] if isinstance(value, Mapping) else [1, 3]
        return f"a list is needed, a number for each member in their order, as {numbers!r}"
    odds = cast("Sequence[Any]", value)
    if not all(isinstance(one, int | float) and one >= 0 for one in odds):
        return "each of them is a number of at least 0"
    return None if 0 < sum(odds) < math.inf else "not all of them are 0, and their sum is finite"


def _transitions(value: Any) -> str | None:
    return (
        None if isinstance(value, Mapping) else "a mapping is needed, from a name to a list of names, as {'a': ['b']}"
    )


_GATE: Final = function("from the state after the stage to why to stop, or to None,")


def _gates(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "a mapping is needed, from a stage's name to its gate, as {'draft': gate}"
    for stage, gate in cast("Mapping[object, Any]", value).items():
        wrong = _GATE(gate)
        if wrong is not None:
            return f"the gate of {stage!r}: {wrong}"
    return None


def _seed(value: Any) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number is needed"


def _share(value: Any) -> str | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return None if fits else "a share from 0 to 1 is needed"


def _detectors(value: Any) -> str | None:
    given = (value,) if isinstance(value, Detector) else value
    fits = isinstance(given, Sequence) and all(isinstance(one, Detector) for one in cast("Sequence[Any]", given))
    return (
        None if fits else "ping_pong(...), repetition(...) and no_progress(...) are detectors; a list of them is needed"
    )


def _tools(value: Any) -> str | None:
    return None if isinstance(value, list | tuple) else "a list of functions is needed"


def _several(value: Any) -> str | None:
    fits = isinstance(value, Iterable) and not isinstance(value, str)
    return None if fits else "a list of ids is needed"


OPTIONS: Final[Mapping[str, Rule]] = {
    "budget": optional(instance(Budget, "a Budget")),
    "max_depth": optional(number(0)),
    "max_hops": optional(number(0)),
    "escalate": optional(node),
    "enter": optional(function("from the state around it to a context")),
    "leave": optional(function("from the state at the end to the output")),
    "detect": _detectors,
    "into": optional(instance(str, "the name of a field")),
    "retries": number(0),
    "max_visits": optional(number(1)),
    "description": instance(str, "a text"),
}
"""The rules of what is passed on to `Graph`."""

ARGUMENTS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("parent", "planner", "lead", "judge", "author", "verifier", "worker"), node),
    **dict.fromkeys(("fallback", "synthesis", "verify", "reduce", "citer"), optional(node)),
    **dict.fromkeys(("turns", "rounds", "max_rounds", "max_items", "max_calls", "max_turns", "max_steps"), number(1)),
    **dict.fromkeys(("back", "max_handoffs", "max_replans", "max_repairs"), number(0)),
    "max_each": optional(number(0)),
    "history": _history,
    "allowed_transitions": optional(_transitions),
    "see": _words("previous", "all"),
    "gates": optional(_gates),
    "join": instance(Policy, "ALL, ANY, first(k) or quorum(k, within=...)"),
    "losers": _words("finish", "cancel"),
    "failure": _words("fail_fast", "collect"),
    "until": optional(function("from the conversation to True where it is over")),
    "decide": optional(function("from the conversation to a name, or to None to end it,", waits=True)),
    "seed": optional(_seed),
    "per": _words("turn", "run"),
    "weights": optional(_weights),
    "tools": _tools,
    "evidence": _several,
    "least": _share,
}
"""The rules of the arguments of strategies and teams; one name means one thing in all of them."""


def checked_call(call: str, name: object, context: type[Context], kind: object, options: object, **given: Any) -> str:
    """Check what a function that makes a team was called with, and return how errors name the call.

    Args:
        call: the function's name.
        name: what it got as the team's name.
        context: the class that a context of this team is derived from.
        kind: what it got as the class of the context.
        options: what it passes on to `Graph`.
        given: its own arguments.

    Raises:
        UsageError: naming the call, what was given and the one rule that it breaks.
    """
    if not isinstance(name, str):
        msg = f"{call}({name!r}, ...): the name of the team comes first, a text; write {call}('team', ...)."
        raise UsageError(msg)
    where = f"{call}({name!r})"
    if not name:
        msg = f"{where}: a name is needed, any text but the empty one."
        raise UsageError(msg)
    passed = cast("Mapping[str, Any]", options)
    unknown = next((one for one in passed if one not in OPTIONS and one != "output"), None)
    if unknown is not None:
        known = (*given, "context", "output", *OPTIONS)
        near = difflib.get_close_matches(unknown, known, 1)
        hint = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(known)}."
        msg = f"{where}: {unknown}={value_text(passed[unknown])}: {call} has no such argument; {hint}"
        raise UsageError(msg)
    for rules, values in ((ARGUMENTS, given), (OPTIONS, passed)):
        for argument, value in values.items():
            if argument in rules:
                check(where, argument, value, rules[argument])
    checked_context(where, call, context, kind, enters=passed.get("enter") is not None)
    return where


def shown(value: object) -> str:
    """Return a value as errors show it: of a function its name, and not where it stands in memory.

    >>> shown(len), shown("abc")
    ('<function len>', "'abc'")
    """
    return f"<function {getattr(value, '__name__', '?')}>" if inspect.isroutine(value) else value_text(value)


def texts(value: Any) -> str | None:
    """Say what is needed where a list of texts is."""
    return None if all(isinstance(one, str) for one in value) else "a list of ids is needed, and each is a text"


def check(where: str, argument: str, value: Any, rule: Rule) -> None:
    """Hold one argument against its rule.

    Raises:
        UsageError: if it breaks the rule.
    """
    wrong = rule(value)
    if wrong is not None:
        msg = f"{where}: {argument}={shown(value)}: {wrong}."
        raise UsageError(msg)


def checked_context(where: str, call: str, context: type[Context], kind: object, *, enters: bool) -> None:
    """Refuse a class of a context that a team cannot work on, or in which its task would be lost.

    Raises:
        UsageError: saying which class to derive from, or what its first field has to be.
    """
    if not isinstance(kind, type):
        hint = f"give its class, {type(kind).__name__}" if isinstance(kind, Context) else "write a class"
        msg = f"{where}: context={value_text(kind)}: a class is needed, derived from {public_name(context)}; {hint}."
        raise UsageError(msg)
    given = cast("type[Any]", kind)
    if not issubclass(given, context):
        base = public_name(context)
        own = issubclass(given, Context) and not given.__module__.startswith("graphflow.")
        hint = f"write class {given.__name__}({base})" if own else "derive one from that, or leave context= out"
        msg = f"{where}: context={given.__name__}: {call} needs a class derived from {base}; {hint}."
        raise UsageError(msg)
    fields = given.model_fields
    if enters or question_field(given) is not None:
        return
    if any(field.is_required() for field in fields.values()):  # nothing is lost: check() says what nobody fills
        return
    first = next(iter(fields), None)
    why = "is a secret" if first in secret_fields(given) else "takes no text"
    wrong = "there is none" if first is None else f"{first!r} {why}"
    msg = (
        f"{where}: context={given.__name__}: what the team is asked is its first field, and {wrong}: inside another "
        f"team the task would be lost; put a field of type str first, or give enter=."
    )
    raise UsageError(msg)


def doubled(names: Iterable[str]) -> str | None:
    """Return the first name that stands there twice, or None."""
    return next((name for name, often in Counter(names).items() if often > 1), None)


def public_name(context: type[Context]) -> str:
    """Return the name by which a class of a context is imported."""
    home = {"graphflow.graphs.conversation": "strategies", "graphflow.graphs.planning": "strategies"}
    return f"{home.get(context.__module__, 'teams') if context is not Context else 'graphflow'}.{context.__name__}"


# --- members ---------------------------------------------------------------------------------------------------------


def members_of(
    where: str, what: str, members: tuple[Node[Any], ...], others: Sequence[Node[Any]] = (), least: int = 1
) -> tuple[str, ...]:
    """Return the names of the members.

    Args:
        where: the call, for errors.
        what: what the members are called there, in the plural.
        members: the members.
        others: further nodes beside them, whose names must differ too.
        least: how many members there are at least.

    Raises:
        UsageError: if there are too few, one is no node, or two nodes have one name.
    """
    for member in members:
        wrong = node(member)
        if wrong is not None:
            msg = f"{where}: {what}: {shown(member)}: {wrong}."
            raise UsageError(msg)
    if len(members) < least:
        number = "one is" if least == 1 else "two are"
        there = "none" if not members else f"only {members[0].name!r}"
        msg = f"{where}: {what}: at least {number} needed, and there is {there}; give more."
        raise UsageError(msg)
    names = tuple(member.name for member in (*others, *members))
    double = doubled(names)
    if double is not None:
        known = ", ".join(map(repr, names))
        msg = (
            f"{where}: two members are called {double!r}; the members are {known}: give one another name with "
            f".named(...)."
        )
        raise UsageError(msg)
    return names[len(others) :]


def gives_none_of(giver: Node[Any], *kinds: type[Any]) -> bool:
    """Tell whether it is known of a node that what it gives is nothing of some types."""
    given = _given_by(giver)
    known = isinstance(given, type) and issubclass(given, (BaseModel, *_PLAIN))
    return known and not issubclass(given, kinds)


_PLAIN: Final = (str, bytes, int, float, list, tuple, dict, type(None))


def _given_by(giver: Node[Any]) -> Any:
    """Return the type of what a node gives, or None where it does not say."""
    match giver:
        case Agent():
            return str if giver.output is None else giver.output
        case Human():
            return giver.schema
        case Graph():
            return giver.output
        case FunctionNode():
            return read_hints(giver.fn, getattr(giver.fn, "__globals__", {})).get("return")
        case _:
            return None
