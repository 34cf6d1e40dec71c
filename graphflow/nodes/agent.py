"""Agents: nodes that ask a model what to do, and supervisors, whose tools are other nodes.

An agent has no body. The fold itself asks its model, lets its tools run and its team work, and asks again, so that
every step of it is an event and nothing of it is done twice. What is here is its definition.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Self, cast

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.frozen import mutable_part
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import History, checked_history
from graphflow.model.unknown import knowing_options
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_call, checked_count, checked_names, checked_sync, checked_type
from graphflow.nodes.client import ModelClient, Readied, checked_price
from graphflow.nodes.join import init_node
from graphflow.nodes.tools import AskUser, Tool, as_tool

DecisionMode = Literal["auto", "native", "json"]
"""How a model says what to call; "auto" goes by what is known of the model."""

Deny = Callable[[str, Mapping[str, Any]], "str | None"]
"""Why a tool must not be called with these arguments, or None. Pure and sync."""

ASK, TRANSFER = "ask_", "transfer_to_"
"""How the names of the tools begin that stand for a team and for handoffs."""

_ELSEWHERE: Final = {"prompt": "instructions", "system_prompt": "instructions", "output_type": "output"}
"""What other libraries call some options of an agent."""


@dataclass(frozen=True, repr=False, init=False)
class Agent(Node[Context]):
    """A node that asks a model what to do, turn by turn, until the model answers without a call.

    A turn is one call of the model and all that follows from it: tools and delegations, then questions to a person,
    then a handoff. The results come back to the model in the order of its calls. A tool that fails, does not exist or
    gets bad arguments is told to the model; three wrong names in a row fail the node.

    Attributes:
        model: the client, or the name of a provider's model, as "openai:gpt-5"; it is not part of the agent's identity.
        fallbacks: the models that are asked next, in order, once a call of the one before has failed for good: at
            once where it was refused, else after the agent's `retries`, which each of them has anew.
        instructions: the system text, or a pure function that makes it from the state.
        tools: what it may call.
        output: the type of its answer, which the model then writes as JSON; None for text.
        max_turns: how many calls of its model one visit may make, whatever their cause.
        max_tool_calls: how many tools one visit may run, questions to people among them; a call over it is answered
            "not executed".
        repairs: how often one visit may send an answer back that is empty or does not fit its contract.
        decision: "native" for tool calls of the model's own; "json" for a text that gives the reason, then what to
            call; "auto" for what the model can do.
        history: what of the thread it sees when it is entered by a next, choose, fork or map edge, or from START. None
            is "note", but where a run continues a chat (`after=`) and begins with this agent: there it is "full".
        max_tokens: how many tokens one reply may have; fewer when the budget has fewer.
        rights: the names of the tools that it and everything below it may use, or None for no limit; `AskUser` is one
            of them.
        deny: why a tool must not be called with some arguments, or None; it holds below this agent too.

    Raises:
        UsageError: if something makes no sense, as two tools of one name.
    """

    model: ModelClient = field(compare=False)
    fallbacks: tuple[ModelClient, ...] = field(compare=False)
    instructions: str | Callable[[State[Any]], str]
    tools: tuple[Tool | AskUser, ...]
    output: Any
    max_turns: int
    max_tool_calls: int
    repairs: int
    decision: DecisionMode
    history: History | None
    max_tokens: int
    rights: frozenset[str] | None
    deny: Deny | None
    kind: ClassVar[str] = "agent"

    @knowing_options(_ELSEWHERE)
    def __init__(
        self,
        name: str,
        *,
        model: ModelClient | str,
        fallbacks: Sequence[ModelClient | str] = (),
        instructions: str | Callable[[State[Any]], str] = "",
        tools: Sequence[Tool | AskUser | Callable[..., Any]] = (),
        output: Any = None,
        max_turns: int = 10,
        max_tool_calls: int = 32,
        repairs: int = 1,
        decision: DecisionMode = "auto",
        history: History | None = None,
        max_tokens: int = 1024,
        rights: Iterable[str] | None = None,
        deny: Deny | None = None,
        description: str = "",
        retries: int = 0,
        timeout: float | None = None,
        max_visits: int | None = None,
        into: str | None = None,
        gate: bool = False,
        reads: Iterable[str] | None = None,
        writes: Iterable[str] | None = None,
    ) -> None:
        """Check everything that can be checked before there is a graph."""
        where = f"{type(self).__name__} {name!r}"
        client = _checked_model(where, model)
        others = _checked_fallbacks(where, fallbacks)
        made = _checked_tools(where, tools)
        _check_instructions(where, instructions)
        if decision not in ("auto", "native", "json"):
            msg = f"{where}: decision={value_text(decision)}: 'auto', 'native' or 'json' is needed."
            raise UsageError(msg)
        if history is not None:
            checked_history(where, history)
        checked_call(where, deny, "deny", "a function of a tool's name and its arguments")
        _check_output(where, output)
        checked_sync(where, deny=deny, instructions=instructions, history=history)
        for bound, number, least in (
            ("max_turns", max_turns, 1), ("max_tool_calls", max_tool_calls, 0), ("repairs", repairs, 0),
            ("max_tokens", max_tokens, 1),
        ):  # fmt: skip
            checked_count(where, number, bound, least)
        values: dict[str, Any] = {
            "model": client, "fallbacks": others,
            "instructions": instructions, "tools": made, "output": output, "max_turns": max_turns,
            "max_tool_calls": max_tool_calls, "repairs": repairs, "decision": decision, "history": history,
            "max_tokens": max_tokens, "deny": deny,
            "rights": None if rights is None else checked_names(where, rights, "rights", "tools"),
        }  # fmt: skip
        for key, value in values.items():
            object.__setattr__(self, key, value)
        init_node(
            self, name, description=description, retries=retries, timeout=timeout, max_visits=max_visits, into=into,
            gate=gate, irreversible=any(_is_ungated(found) for found in made),
            reads=reads, writes=writes,
        )  # fmt: skip

    def named(self, name: str) -> Self:
        """Return the same agent under another name."""
        copy = object.__new__(type(self))
        for key in self.__dataclass_fields__:
            object.__setattr__(copy, key, getattr(self, key))
        object.__setattr__(copy, "name", name)
        copy.__post_init__()
        return copy

    @property
    def native(self) -> bool:
        """Whether its model is offered tools to call, rather than asked for JSON that says what to call."""
        if self.decision != "auto":
            return self.decision == "native"
        if not self.fallbacks:
            return bool(getattr(self.model, "native_tools", True))
        return all(getattr(model, "native_tools", True) for model in self.models)

    @property
    def models(self) -> tuple[ModelClient, ...]:
        """Its model, and those that are asked where it fails."""
        return (self.model, *self.fallbacks)

    @property
    def attempts(self) -> int:
        """How many attempts one visit may have at most: its retries with each of its models."""
        return (1 + self.retries) * (1 + len(self.fallbacks))

    def with_model(self, model: ModelClient | str) -> Self:
        """Return the same agent with another model, and no fallbacks.

        Raises:
            UsageError: if it is no model.
        """
        copy = self.named(self.name)
        object.__setattr__(copy, "model", _checked_model(f"{self!r}.with_model", model))
        object.__setattr__(copy, "fallbacks", ())
        return copy


@dataclass(frozen=True, repr=False, init=False)
class Supervisor(Agent):
    """An agent that splits work, delegates it and answers once; its team are its delegate edges.

    Each member of the team is a tool `ask_<name>` of its model. Its thread holds their reports, never their steps.
    """

    kind: ClassVar[str] = "supervisor"


def _checked_model(where: str, model: object, name: str = "model") -> ModelClient:
    """Return a client as it is, and the name of a model as the client of its provider.

    Raises:
        UsageError: if it is no model, or no provider has that name.
    """
    if isinstance(model, str):
        from graphflow.nodes.providers.model import ProviderModel

        return ProviderModel(model)
    if not isinstance(model, ModelClient) or isinstance(model, type):
        msg = (
            f"{where}: {name}={value_text(model)}: a ModelClient is needed, the name of one, as 'openai:gpt-5', or "
            f"an object with `async def reply(request, stream)`; a model of pydantic-ai goes into ProviderModel(...); "
            f"for tests there is graphflow.testing.ScriptedModel."
        )
        raise UsageError(msg)
    if not isinstance(model, Readied):  # one that gets ready looks for its price then, and not when a graph is drawn
        checked_price(where, getattr(model, "price", None))
    return model


def _checked_fallbacks(where: str, fallbacks: object) -> tuple[ModelClient, ...]:
    """Return the models that are asked when one has failed, each as a client.

    Raises:
        UsageError: if they are no list, or one is no model.
    """
    if not isinstance(fallbacks, list | tuple):
        msg = f"{where}: fallbacks={value_text(fallbacks)}: a list of models is needed."
        raise UsageError(msg)
    return tuple(_checked_model(where, model, "fallbacks") for model in cast("Sequence[object]", fallbacks))


def _checked_tools(where: str, tools: object) -> tuple[Tool | AskUser, ...]:
    """Return what an agent may call, each function as a tool.

    Raises:
        UsageError: if they are no list, one is no tool, or two have one name.
    """
    if not isinstance(tools, list | tuple):
        msg = f"{where}: tools={value_text(tools)}: a list of functions, @tool functions and AskUser() is needed."
        raise UsageError(msg)
    made = tuple(as_tool(found, f"{where}: tools: ") for found in cast("Sequence[object]", tools))
    names = [found.name for found in made]
    double = next((one for one in names if names.count(one) > 1), None)
    if double is not None:
        msg = (
            f"{where}: two tools have the name {double!r}: a model could not tell them apart; rename one, those of a "
            f"tool server with server.tools(..., prefix=...)."
        )
        raise UsageError(msg)
    return made


def _check_instructions(where: str, instructions: object) -> None:
    if not isinstance(instructions, str) and not callable(instructions):
        msg = f"{where}: instructions={value_text(instructions)}: a text, or a function from state to text, is needed."
        raise UsageError(msg)


def _check_output(where: str, output: Any) -> None:
    """Refuse what is no type of an answer, or one whose values could be changed.

    Raises:
        UsageError: saying what is wrong with it.
    """
    checked_type(where, output, "output")
    part = None if output is None else mutable_part(output)
    if part is not None:
        msg = (
            f"{where}: output={value_text(output)}: what an agent gives to others must be frozen: {part[0]}; use "
            f"{part[1]}."
        )
        raise UsageError(msg)


def _is_ungated(found: Tool | AskUser) -> bool:
    return isinstance(found, Tool) and found.effect == "irreversible" and not found.approval


def generated_names(prefix: str, targets: Iterable[str]) -> dict[str, str]:
    """Return the names of the tools that stand for some nodes, each with its node.

    A node may have any name, a tool may not: what it cannot have becomes `_`, and equal names are numbered in order.

    >>> generated_names("ask_", ["billing", "Ship it!", "Ship it?"])
    {'ask_billing': 'billing', 'ask_Ship_it': 'Ship it!', 'ask_Ship_it_2': 'Ship it?'}
    """
    made: dict[str, str] = {}
    for target in targets:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "_", target).strip("_") or "node"
        base = (prefix + slug)[:60]
        name, number = base, 1
        while name in made:
            number += 1
            name = f"{base[: 63 - len(str(number))]}_{number}"
        made[name] = target
    return made


def said_of(node: Node[Any]) -> str:
    """Return what others are told of a node: its description, else what its instructions or its tools say."""
    if node.description or not isinstance(node, Agent):
        return node.description
    if isinstance(node.instructions, str) and node.instructions.strip():
        return inspect.cleandoc(node.instructions).partition("\n")[0].partition(". ")[0].rstrip(".")
    tools = ", ".join(found.name for found in node.tools if isinstance(found, Tool))
    return f"It has the tools {tools}" if tools else ""
