"""Models without a model: `ScriptedModel` says what a script says, `RuleModel` what the first rule that holds says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, cast

import pydantic_core
from pydantic import BaseModel

from graphflow.errors import UsageError
from graphflow.model.budget import is_seconds
from graphflow.model.telling import value_text
from graphflow.model.thread import ToolCall, capped
from graphflow.nodes.checked import checked_bound, checked_sync
from graphflow.nodes.client import ModelReply, ModelRequest, Price, Stream, Usage
from graphflow.nodes.tools import AskUser, Tool

Answer: TypeAlias = str | ToolCall | Sequence[ToolCall] | ModelReply | Exception | BaseModel
"""What a model says: a text, calls, a whole reply as it stands, an exception to raise, or a value as its JSON text."""

Responder: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""Makes the answer from the request, sync or async."""

ScriptStep: TypeAlias = Answer | Responder


def call(tool_name: str, id: str = "", /, **arguments: Any) -> ToolCall:
    """Write a call as a model would.

    Args:
        tool_name: the tool's name.
        id: what its result refers to; the run makes one if there is none.
        arguments: values that have a JSON form. For anything else, write `ToolCall(name, text)`.

    Raises:
        UsageError: if an argument has no JSON form.

    >>> call("track_parcel", order="A-7")
    ToolCall(name='track_parcel', arguments='{"order": "A-7"}', id='')
    """
    try:
        text = json.dumps(
            pydantic_core.to_jsonable_python(arguments, by_alias=True), ensure_ascii=False, allow_nan=False
        )
    except ValueError as error:
        msg = f"call({tool_name!r}): {error}. For arguments that are no JSON, write ToolCall({tool_name!r}, text)."
        raise UsageError(msg) from error
    return ToolCall(tool_name, text, id)


class _Model:
    """What both models do with an answer."""

    def __init__(
        self,
        usage: Usage | None,
        price: Price | None,
        delay: float | None,
        stream_pieces: int | None,
        *,
        native_tools: bool,
    ) -> None:
        if delay is not None and not is_seconds(delay):
            msg = f"delay={value_text(delay)}: a finite number of seconds of at least 0 is needed, or None."
            raise UsageError(msg)
        checked_bound("a scripted model", stream_pieces, "stream_pieces", least=1)
        self.price = price
        self.native_tools = native_tools
        self._usage, self._delay, self._pieces = usage, delay, stream_pieces

    async def _answer(self, step: ScriptStep, request: ModelRequest, stream: Stream) -> ModelReply:
        if self._delay is not None:
            import anyio

            await anyio.sleep(self._delay)
        found: Any = step
        if is_responder(step):
            found = found(request)
        if inspect.isawaitable(found):
            found = await found
        reply = as_reply(found)
        if self._pieces is not None and reply.text:
            size = -(-len(reply.text) // self._pieces)
            for start in range(0, len(reply.text), size):
                stream(reply.text[start : start + size])
        if isinstance(found, ModelReply):
            return reply
        return ModelReply(reply.text, reply.calls, self._usage or usage_of(request, reply, self.price))


class ScriptedModel(_Model):
    """A model that answers each request with the next step of its script.

    A step is a text, a `ToolCall` (see `call`), a sequence of them, a value (its JSON text), an exception (raised), a
    whole `ModelReply`, or a responder: a function from the request to one of these. Several agents may share one
    model. Where they run in parallel, give each its own script: `ScriptedModel({"desk": [...], "billing": [...]})`.

    Attributes:
        price: what a token costs, or None.
        native_tools: whether it can call tools by itself.

    >>> model = ScriptedModel(call("track_parcel", order="A-7"), "It is in transit.")
    >>> model.assert_complete()
    Traceback (most recent call last):
    ...
    AssertionError: the script was not played to its end: 2 of 2 steps are left, the next is ToolCall(...).
    """

    def __init__(
        self,
        *steps: ScriptStep | Mapping[str, Sequence[ScriptStep]],
        usage: Usage | None = None,
        price: Price | None = None,
        native_tools: bool = True,
        delay: float | None = None,
        stream_pieces: int | None = None,
    ) -> None:
        """Take the script.

        Args:
            steps: one for each request; or a single table from the names of agents to theirs.
            usage: what each reply used; by default it is worked out from the lengths of the texts. A step that is a
                `ModelReply` says it itself.
            price: what a token costs.
            native_tools: whether it can call tools by itself.
            delay: seconds that each reply takes.
            stream_pieces: in how many pieces each text is streamed; None streams nothing.

        Raises:
            UsageError: if a step is nothing that a model could say.
        """
        super().__init__(usage, price, delay, stream_pieces, native_tools=native_tools)
        self._scripts: dict[str | None, tuple[Any, ...]] = {}
        if len(steps) == 1 and isinstance(steps[0], Mapping):
            table = cast("Mapping[str, Any]", steps[0])
            for agent, script in table.items():
                if isinstance(script, str) or not isinstance(script, Sequence):
                    msg = f"ScriptedModel({{{agent!r}: {value_text(script)}}}): a list of steps is needed."
                    raise UsageError(msg)
                self._scripts[agent] = tuple(cast("Sequence[Any]", script))
        else:
            self._scripts[None] = steps
        for script in self._scripts.values():
            for step in script:
                checked_step("ScriptedModel", step)
        self._used = dict.fromkeys(self._scripts, 0)
        self._requests: list[ModelRequest] = []

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """What it was asked, in order of arrival."""
        return tuple(self._requests)

    def assert_complete(self) -> None:
        """Check that every step was used.

        Raises:
            AssertionError: naming what is left.
        """
        for agent, script in self._scripts.items():
            left = len(script) - self._used[agent]
            if left:
                msg = (
                    f"the script{_of(agent)} was not played to its end: {left} of {len(script)} steps are left, the "
                    f"next is {capped(repr(script[self._used[agent]]), 200)}."
                )
                raise AssertionError(msg)

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Answer with the next step.

        Raises:
            AssertionError: if there is none; it shows the request.
        """
        self._requests.append(request)
        agent = request.agent if None not in self._scripts else None
        if agent not in self._scripts:
            known = ", ".join(map(repr, self._scripts)) or "nobody"
            msg = f"there is no script for the agent {agent!r}, only for {known}. {_shown(request)}"
            raise AssertionError(msg)
        script, used = self._scripts[agent], self._used[agent]
        if used == len(script):
            msg = f"the script{_of(agent)} has no step left after {used}. {_shown(request)}"
            raise AssertionError(msg)
        self._used[agent] += 1
        return await self._answer(script[used], request, stream)


Rule: TypeAlias = tuple[str | Callable[[ModelRequest], bool], ScriptStep]
"""When it holds, a text that what is new must contain or a predicate on the request; and what is said then."""


class RuleModel(_Model):
    """A model that answers with the first rule that holds; it remembers nothing, so any number of agents may share it.

    A rule is (when, then). `when` is a text that what is new to the agent contains (every message since it last spoke),
    or a predicate on the request; `then` is a step as in `ScriptedModel`.

    >>> model = RuleModel(("parcel", call("track_parcel", order="A-7")), otherwise="How can I help?")
    >>> model.native_tools
    True
    """

    def __init__(
        self,
        *rules: Rule,
        otherwise: ScriptStep | None = None,
        usage: Usage | None = None,
        price: Price | None = None,
        native_tools: bool = True,
        delay: float | None = None,
        stream_pieces: int | None = None,
    ) -> None:
        """Take the rules.

        Args:
            rules: tried in order.
            otherwise: what is said when none holds; without it that is an error.
            usage: as for `ScriptedModel`, like all that follows.
            price: what a token costs.
            native_tools: whether it can call tools by itself.
            delay: seconds that each reply takes.
            stream_pieces: in how many pieces each text is streamed.

        Raises:
            UsageError: if something is no rule.
        """
        super().__init__(usage, price, delay, stream_pieces, native_tools=native_tools)
        for rule in rules:
            if not _is_pair(rule) or not (isinstance(rule[0], str) or callable(rule[0])):
                msg = (
                    f"RuleModel({value_text(rule)}): a rule is (when, then); when is a text or a predicate on the "
                    "request."
                )
                raise UsageError(msg)
            checked_sync("RuleModel", when=rule[0])
            checked_step("RuleModel", rule[1])
        if otherwise is not None:
            checked_step("RuleModel(otherwise=)", otherwise)
        self._rules, self._otherwise = rules, otherwise

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Answer with the first rule that holds.

        Raises:
            AssertionError: if none does, and there is no `otherwise=`; it shows the request.
        """
        new = news(request)
        for when, then in self._rules:
            if when in new if isinstance(when, str) else when(request):
                return await self._answer(then, request, stream)
        if self._otherwise is None:
            msg = f"no rule holds, and there is no otherwise=. {_shown(request)}"
            raise AssertionError(msg)
        return await self._answer(self._otherwise, request, stream)


def _is_pair(rule: object) -> bool:
    return isinstance(rule, tuple) and len(cast("tuple[Any, ...]", rule)) == 2  # noqa: PLR2004 - a pair is two


def news(request: ModelRequest) -> str:
    """Return what the agent has not answered yet: the texts of the messages since it last spoke, a line for each."""
    spoken = max((index for index, found in enumerate(request.messages) if found.role == "assistant"), default=-1)
    return "\n".join(found.text for found in request.messages[spoken + 1 :])


def as_reply(answer: object) -> ModelReply:
    """Return an answer as a reply; an exception is raised.

    Raises:
        UsageError: if it is nothing that a model could say.

    >>> as_reply(call("track_parcel")).calls
    (ToolCall(name='track_parcel', arguments='{}', id=''),)
    """
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, ModelReply):
        return answer
    if isinstance(answer, str):
        return ModelReply(answer)
    if isinstance(answer, BaseModel):
        return ModelReply(answer.model_dump_json(by_alias=True))
    calls = (answer,) if isinstance(answer, ToolCall) else calls_of(answer)
    if calls is None:
        raise UsageError(_nothing_known("a responder's answer", answer))
    return ModelReply(calls=calls)


def calls_of(answer: object) -> tuple[ToolCall, ...] | None:
    """Return the calls of a sequence of them, None for anything else."""
    if not isinstance(answer, Sequence):
        return None
    found = cast("Sequence[object]", answer)
    calls = tuple(item for item in found if isinstance(item, ToolCall))
    return calls if len(calls) == len(found) else None


def is_responder(step: object) -> bool:
    """Tell whether a step is a function that makes the answer."""
    return callable(step) and not isinstance(step, (type, BaseModel, Tool, AskUser))


def checked_step(where: str, step: object) -> None:
    """Refuse what is no step.

    Raises:
        UsageError: naming what a step can be.
    """
    known = isinstance(step, (str, ToolCall, ModelReply, Exception, BaseModel))
    if not known and calls_of(step) is None and not is_responder(step):
        raise UsageError(_nothing_known(where, step))


def usage_of(request: ModelRequest, reply: ModelReply, price: Price | None = None) -> Usage:
    """Work out what a reply used from the lengths of the texts: four characters are a token."""
    texts = [request.system, request.schema_json]
    texts += [part for spec in request.tools for part in (spec.name, spec.description, spec.parameters_json)]
    texts += [message.text for message in request.messages]
    read = _tokens([*texts, *_written(call for message in request.messages for call in message.calls)])
    written = _tokens([reply.text, *_written(reply.calls)])
    usd = None if price is None else read * Decimal(price.input) + written * Decimal(price.output)
    return Usage(read, written, usd)


def _tokens(texts: Iterable[str]) -> int:
    return sum(map(len, texts)) // 4 + 1


def _written(calls: Iterable[ToolCall]) -> list[str]:
    return [part for call in calls for part in (call.name, call.arguments)]


def _nothing_known(where: str, found: object) -> str:
    return (
        f"{where}: {value_text(found)} is nothing that a model could say. A text, call(...), a list of calls, a "
        "ModelReply, a "
        f"pydantic value, an exception object, or a function from the request to one of these is needed."
    )


def _of(agent: str | None) -> str:
    return "" if agent is None else f" of {agent!r}"


def _shown(request: ModelRequest) -> str:
    tools = ", ".join(spec.name for spec in request.tools) or "none"
    lines = [f"  {found.role}: {capped(found.text or repr(found.calls), 200)}" for found in request.messages[-3:]]
    return (
        f"The request is of {request.agent!r} at {request.path!r}, turn {request.turn}, with the tools {tools}, and "
        f"{len(request.messages)} messages; the last are:\n" + "\n".join(lines)
    )
