"""`agent_node`: an agent of pydantic-ai as a node, each of whose model calls is an effect of the run."""

from __future__ import annotations

import asyncio
import functools
import typing
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from types import UnionType
from typing import TYPE_CHECKING, Any, cast

from graphflow.errors import BoundHit, UsageError
from graphflow.model.budget import Budget
from graphflow.model.context import Context, question_of
from graphflow.model.contract import Brief
from graphflow.model.frozen import mutable_part
from graphflow.model.secrets import veiled
from graphflow.model.state import State
from graphflow.model.thread import data, shown
from graphflow.nodes.checked import checked_count, checked_names
from graphflow.nodes.client import Price
from graphflow.nodes.function import FunctionNode, Step
from graphflow.nodes.providers.failures import as_model_error, shows_a_key
from graphflow.nodes.providers.model import require_extra
from graphflow.nodes.providers.prices import price_of, usage_of

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings

UNBOUNDED = 10**12
"""So many tokens and dollars that `costs=` of the node bounds none: the budget alone does."""

CHARACTERS = 4
"""How many characters of a request are counted as a token, before anybody knows."""


def agent_node(
    agent: Agent[Any, Any],
    name: str | None = None,
    *,
    model_calls: int = 10,
    max_tokens: int = 1024,
    output: Any = None,
    description: str = "",
    retries: int = 0,
    timeout: float | None = None,
    max_visits: int | None = None,
    into: str | None = None,
    gate: bool = False,
    irreversible: bool = False,
    reads: Iterable[str] | None = None,
    writes: Iterable[str] | None = None,
    version: str | None = None,
) -> FunctionNode[Context]:
    """Make a node of an agent of pydantic-ai (extra `models`).

    Its prompt is what an `Agent` of ours is told: the brief of a caller, else the first text of the context and what
    arrived. Its output is the agent's. Each call of its model is an effect: it is paid for before, settled after, and
    never made twice by a run that is taken up again. Its tools are its own: the run neither counts nor records them,
    and a run that is taken up calls them again. Where it has a `deps_type`, it gets the run's resource of that class.

    It runs on asyncio alone, as pydantic-ai's agents do.

    Args:
        agent: the agent.
        name: the node's name; by default the agent's.
        model_calls: how many calls of its model one attempt may make.
        max_tokens: how many tokens one reply may have, where the agent's settings do not say; fewer when the budget
            has fewer.
        output: the type of its output, where `output_type=` of the agent is not a type, or a list of types, itself.
        description: what it does, for drawings and for models that choose among nodes.
        retries: as for every node, like all that follows.
        timeout: active seconds for one attempt.
        max_visits: how often it may be entered.
        into: the field of the context that takes its output.
        gate: whether it is a gate before irreversible tools.
        irreversible: whether what it does cannot be undone.
        reads: the fields that it declares to read.
        writes: the fields that it declares to write.
        version: stands for the agent in the graph's fingerprint; by default its name and its output.

    Raises:
        MissingExtra: if the extra `models` is not installed.
        UsageError: if something makes no sense, as an output that could be changed by who gets it.
    """
    require_extra()
    from pydantic_ai import Agent as Theirs

    given: object = agent
    if not isinstance(given, Theirs):
        msg = f"agent_node({given!r}): an Agent of pydantic-ai is needed; one of graphflow is a node already."
        raise UsageError(msg)
    if agent.model is None:
        msg = f"agent_node({agent.name!r}): the agent has no model; give it one: Agent('openai:gpt-5', ...)."
        raise UsageError(msg)
    chosen = name or agent.name
    if not chosen:
        msg = "agent_node(agent): the agent has no name; give it one, or the node: agent_node(agent, 'billing')."
        raise UsageError(msg)
    where = f"agent_node {chosen!r}"
    checked_count(where, model_calls, "model_calls", least=1)
    checked_count(where, max_tokens, "max_tokens", least=1)
    kind = _output_of(agent, where, output)
    return FunctionNode[Context](
        name=chosen, fn=_body(agent, max_tokens, kind),
        costs=Budget(model_calls=model_calls, tokens=UNBOUNDED, usd=UNBOUNDED),
        description=description, retries=retries, timeout=timeout, max_visits=max_visits, into=into, gate=gate,
        irreversible=irreversible, reads=None if reads is None else checked_names(where, reads, "reads", "fields"),
        writes=None if writes is None else checked_names(where, writes, "writes", "fields"),
        version=version or f"pydantic-ai agent {agent.name}: {kind!r}",
    )  # fmt: skip


def _output_of(agent: Agent[Any, Any], where: str, output: Any) -> Any:
    """Return the type of an agent's output.

    Raises:
        UsageError: if it cannot be told, or is not frozen.
    """
    declared: object = agent.output_type if output is None else output
    kind: Any = declared
    if isinstance(declared, list | tuple):
        several = tuple(cast("Sequence[Any]", declared))
        kind = typing.Union[several] if all(isinstance(one, type) for one in several) else None  # noqa: UP007 - made here
    if not isinstance(kind, type) and typing.get_origin(kind) is None and not isinstance(kind, UnionType):
        msg = f"{where}: output_type={declared!r} of the agent is no type: say what comes out, as output=str."
        raise UsageError(msg)
    part = mutable_part(kind)
    if part is not None:
        msg = f"{where}: output {kind!r}: what a node gives to others must be frozen: {part[0]}; use {part[1]}."
        raise UsageError(msg)
    return kind


def _body(agent: Agent[Any, Any], max_tokens: int, kind: Any) -> Callable[..., Any]:
    """Return the function of the node."""

    async def ask(state: State[Context], step: Step) -> Any:
        _require_asyncio(agent)
        from pydantic_ai.models import infer_model
        from pydantic_ai.usage import UsageLimits

        deps_type: Any = agent.deps_type
        deps = None if deps_type in (type(None), object) else step.resource(deps_type)
        try:
            model = _metered()(infer_model(cast("Any", agent.model)), step, max_tokens)
            # The calls are bounded by the node's costs= and the budget, which say so in the run's own words.
            found = await agent.run(
                prompt_of(state), model=model, deps=deps, usage_limits=UsageLimits(request_limit=None)
            )
        except (BoundHit, UsageError):
            raise
        except Exception as error:
            if not type(error).__module__.startswith("pydantic_ai"):
                raise
            ours = as_model_error(error, agent.name or "an agent of pydantic-ai")
            raise ours from None if shows_a_key(error) else error
        return found.output

    ask.__annotations__ = {"state": State, "step": Step, "return": kind}  # the type by which a journal reads it back
    return ask


def _require_asyncio(agent: Agent[Any, Any]) -> None:
    """Look whether the loop is asyncio's.

    Raises:
        UsageError: if it is not; nothing has been sent.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        msg = f"the agent {agent.name!r} of pydantic-ai runs on asyncio alone: run_sync(..., backend='asyncio')."
        raise UsageError(msg) from None


def prompt_of(state: State[Any]) -> str:
    """Return what an agent is told: a brief, else what the context says first, and what arrived, as data."""
    brief = next((message.value for message in state.inbox if isinstance(message.value, Brief)), None)
    if brief is not None:
        said = [(name, value) for name, value in veiled(brief).__dict__.items() if value not in (None, "", ())]
        return "\n".join(f"{name}: {value if isinstance(value, str) else shown(value)}" for name, value in said)
    first = question_of(state.context)
    texts = [first] if first else []
    texts += [data("message", message.source, shown(message.value)) for message in state.inbox if message.value]
    return "\n\n".join(texts) or "(Nothing was said.)"


@functools.cache
def _metered() -> Any:
    """Return the class of a model whose calls are effects of a run; made late, since its base is."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.models import CompletedStreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel

    class Metered(WrapperModel):
        """A model whose calls are effects."""

        def __init__(self, wrapped: Model, step: Step, max_tokens: int) -> None:
            super().__init__(wrapped)
            self._step, self._max_tokens = step, max_tokens

        async def request(
            self,
            messages: list[ModelMessage],
            model_settings: ModelSettings | None,
            model_request_parameters: ModelRequestParameters,
        ) -> ModelResponse:
            """Ask as an effect: pay before, settle after, and give back what is recorded where it was asked before."""
            reads = len(ModelMessagesTypeAdapter.dump_json(messages)) // CHARACTERS + 1
            price = price_of(f"{self.wrapped.system}:{self.wrapped.model_name}")
            given: dict[str, Any] = {**(model_settings or {})}
            writes = _clamped(self._step.left.budget, reads, given.get("max_tokens") or self._max_tokens, price)
            settings: Any = {**given, "max_tokens": writes}

            async def ask() -> str:
                response = await self.wrapped.request(messages, settings, model_request_parameters)
                return ModelMessagesTypeAdapter.dump_json([response]).decode()

            usd = None if price is None else reads * price.input + writes * price.output
            cost = Budget(model_calls=1, tokens=reads + writes, usd=usd or None)
            effect: Any = self._step.effect
            text: str = await effect("model", ask, key="model", cost=cost, usage=_used)
            response: ModelResponse = _response_of(text)
            return response

        @asynccontextmanager
        async def request_stream(
            self,
            messages: list[ModelMessage],
            model_settings: ModelSettings | None,
            model_request_parameters: ModelRequestParameters,
            run_context: Any = None,  # noqa: ARG002 - as it is called
        ) -> AsyncGenerator[StreamedResponse]:
            """Ask for the whole, and give it as a stream of its own."""
            response = await self.request(messages, model_settings, model_request_parameters)
            yield CompletedStreamedResponse(
                response, model_request_parameters=model_request_parameters, replay_events=True
            )

    return Metered


def _clamped(left: Budget, reads: int, wanted: int, price: Price | None) -> int:
    """Return how many tokens a reply may have: those that are wanted, as far as the budget has them."""
    writes = wanted
    if left.tokens is not None:
        writes = min(writes, left.tokens - reads)
    if left.usd is not None and price is not None and price.output:
        writes = min(writes, int((left.usd - reads * price.input) / price.output))
    return max(writes, 1)


def _response_of(text: str) -> Any:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_json(text)[0]


def _used(text: str) -> Budget | None:
    """Return what a response used; None where it does not say, which counts as all that was reserved."""
    used = usage_of(_response_of(text))
    return None if used is None else Budget(tokens=used.input_tokens + used.output_tokens, usd=used.usd or Decimal(0))
