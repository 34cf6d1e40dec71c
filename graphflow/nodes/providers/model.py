"""`ProviderModel`: any model that pydantic-ai reaches, as a `ModelClient`."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from graphflow.errors import MissingExtra, ModelError, ModelUnavailable, UsageError
from graphflow.model.addresses import check_address, has_secrets, shown_address
from graphflow.model.telling import value_text
from graphflow.model.unknown import meant
from graphflow.nodes.client import ModelReply, ModelRequest, Price, Stream, checked_price
from graphflow.nodes.providers.failures import KEY_NAMES, as_model_error, shows_a_key, without_keys
from graphflow.nodes.providers.messages import Pieces, history_of, is_object, parameters_of, reply_of
from graphflow.nodes.providers.prices import price_of

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

KEYS = {
    "openai": "OPENAI_API_KEY", "openai-chat": "OPENAI_API_KEY", "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY", "groq": "GROQ_API_KEY", "mistral": "MISTRAL_API_KEY", "xai": "XAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "cohere": "CO_API_KEY",
}  # fmt: skip
"""Where the keys of some providers stand in the environment; what others need, their own errors say."""

OWN_SERVER = ("openai", "openai-chat")
"""The providers whose protocol others speak too, at a `base_url`."""


class ProviderModel:
    """A model of a provider, reached through pydantic-ai (extra `models`), on asyncio and trio.

    A request is sent once: the agent's `retries` and `fallbacks` say what follows when it fails, so that each further
    request costs budget and is seen. Its `max_tokens` is what the budget has left at most. Keys come from the
    environment alone and are never shown.

    Attributes:
        name: the provider and the model, as "openai:gpt-5".
        base_url: a server of your own that speaks OpenAI's chat protocol, or None for the provider's.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        base_url: str | None = None,
        key_from: str | None = None,
        native_tools: bool | None = None,
        timeout: float = 120.0,
        stream: bool = True,
        price: Price | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a model; nothing is imported or sent.

        Args:
            model: provider and model, as "openai:gpt-5" or "anthropic:claude-sonnet-5", or a model of pydantic-ai,
                such as its `TestModel`.
            base_url: the address of a server that speaks OpenAI's chat protocol, as "http://127.0.0.1:8080/v1"; where
                it is not given, OPENAI_BASE_URL in the environment counts. Such a server needs no key.
            key_from: the name of the environment's variable with the key, where it is not the usual one.
            native_tools: whether the model calls tools itself; False asks for JSON. None is what is known of the model.
            timeout: the most seconds that one request may take.
            stream: whether the reply is heard while it is written.
            price: what a token costs, where it is not one of the known models.
            settings: what pydantic-ai's `ModelSettings` takes, as {"temperature": 0}; `max_tokens` is the agent's.

        Raises:
            UsageError: if something makes no sense.
        """
        if isinstance(model, str):
            self.name, self._given = model, None
            provider, _, bare = model.partition(":")
            if not provider.strip() or not bare.strip():
                msg = f"model={value_text(model)}: a provider and its model are needed, as 'openai:gpt-5'."
                raise UsageError(msg)
            if base_url is not None and provider not in OWN_SERVER:
                msg = (
                    f"model={value_text(model)}, base_url={_shown(base_url)!r}: a server of your own is 'openai:NAME'."
                )
                raise UsageError(msg)
        else:
            self.name, self._given = _name_of(model), model
        if base_url is not None:
            _check_base_url("base_url=", base_url)
        checked_price(f"{self.name!r}", price)
        seconds: object = timeout
        if not isinstance(seconds, int | float) or not seconds > 0:
            msg = f"timeout={value_text(timeout)}: a number of seconds above 0 is needed."
            raise UsageError(msg)
        table: object = {} if settings is None else settings
        if not isinstance(table, Mapping):
            msg = f"settings=: a table as pydantic-ai's ModelSettings is needed, not a {type(settings).__name__}."
            raise UsageError(msg)
        forbidden = sorted({"max_tokens", "timeout", "request_timeout", "max_retries"} & set(settings or ()))
        if forbidden:  # the others may hold a secret, as headers do
            msg = f"settings=: {', '.join(forbidden)} are the agent's and this model's own arguments."
            raise UsageError(msg)
        if key_from is not None:
            KEY_NAMES.add(key_from)
        self._base_url, self._key_from, self._native_tools = base_url, key_from, native_tools
        self._timeout, self._stream, self._price, self._settings = timeout, stream, price, dict(settings or {})

    def __repr__(self) -> str:
        """Show the name and the address, never a key."""
        where = "" if self.base_url is None else f", base_url={_shown(self.base_url)!r}"
        return f"ProviderModel({self.name!r}{where})"

    # --- what is known of it before it is asked ---

    @property
    def base_url(self) -> str | None:
        """The address of a server of your own, or None."""
        if self._base_url is None and self._provider in OWN_SERVER:
            return os.environ.get("OPENAI_BASE_URL") or None
        return self._base_url

    @property
    def native_tools(self) -> bool:
        """Whether an agent with `decision="auto"` offers it tools to call, rather than asking for JSON."""
        if self._native_tools is not None:
            return self._native_tools
        return bool(self._profile.get("supports_tools", True))

    @property
    def price(self) -> Price | None:
        """What its tokens cost at most, or None where nobody knows; a server of your own costs nothing known."""
        if self._price is not None or self.base_url is not None or self._given is not None:
            return self._price
        require_extra()
        return price_of(self.name)

    @property
    def _provider(self) -> str:
        return self.name.partition(":")[0] if self._given is None else ""

    @property
    def _key_name(self) -> str:
        """Where its key stands in the environment; "" where that is not known."""
        return self._key_from or KEYS.get(self._provider, "")

    @property
    def _knows_money(self) -> bool:
        """Whether what a request cost can be told from the name of the model: not at a server of one's own."""
        return self._price is None and self.base_url is None

    @functools.cached_property
    def _profile(self) -> Mapping[str, Any]:
        require_extra()
        from pydantic_ai.models import infer_model_profile

        return self._given.profile if self._given is not None else infer_model_profile(self.name)

    def ready(self) -> None:
        """Look whether it can be asked, before a run begins.

        Raises:
            MissingExtra: if the extra `models` is not installed.
            UsageError: if nobody knows such a provider, its own package is missing, or its key is not set.
        """
        require_extra()
        if self._given is not None:
            return
        from pydantic_ai.providers import infer_provider_class

        try:
            infer_provider_class(self._provider)
        except ValueError:
            like = meant(self._provider, KEYS)
            guess = f" Did you mean {self.name.replace(self._provider, like, 1)!r}?" if like else ""
            msg = (
                f"model={self.name!r}: no provider is known as {self._provider!r}.{guess} A model is named by its "
                f"provider and its own name, as 'openai:gpt-5'."
            )
            raise UsageError(msg) from None
        except ImportError as error:
            msg = f"model={self.name!r}: {error}"
            raise UsageError(msg) from error
        if self._base_url is None and self.base_url is not None:
            check_address(f"model={self.name!r}, OPENAI_BASE_URL=", self.base_url)
        wanted, needs_key = self._key_name, self._key_from is not None or self.base_url is None
        if wanted and needs_key and not os.environ.get(wanted):
            msg = f"model={self.name!r}: its key is read from {wanted} in the environment, which is not set."
            raise UsageError(msg)
        _ = self._loaded, self.price, self.native_tools  # what a run asks of it in its loop

    @functools.cached_property
    def _loaded(self) -> None:
        """Load, once, all that a request needs: in a run it would hold up the loop.

        Raises:
            UsageError: if the provider's own package is missing, or something that it needs is not set.
        """
        import httpx2
        from pydantic_ai.exceptions import UserError

        try:
            self._made(httpx2.AsyncClient(verify=_certificates()))
        except (ImportError, UserError) as error:
            msg = f"model={self.name!r}: {without_keys(str(error))}"
            raise UsageError(msg) from error

    # --- asking ---

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Send a request, once.

        Raises:
            ModelUnavailable: if it may work later: a rate limit, a timeout, a cut connection, an error of the server.
            ModelRefused: if the same request would be refused again: a wrong key, an unknown model, a bad request.
            ModelError: if what came back is no answer.
            UsageError: if the key is not in the environment.
        """
        self.ready()
        try:
            async with self._open() as model:
                return await self._ask(model, request, stream)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider's library raises is told as ours
            ours = as_model_error(
                error,
                self.name,
                key_name=self._key_name,
                base_url=None if self.base_url is None else _shown(self.base_url),
                own=self._given is not None,
            )
            raise ours from None if shows_a_key(error) else error

    async def _ask(self, model: Model, request: ModelRequest, stream: Stream) -> ModelReply:
        from pydantic_ai import direct

        history = history_of(request)
        mode = self._schema_mode(model, request)
        parameters = parameters_of(request, schema_mode=mode)
        ours: dict[str, Any] = {"max_tokens": request.max_tokens, "request_timeout": self._timeout, "max_retries": 0}
        ignored = model.unsupported_settings
        settings: Any = {**self._settings, **{key: value for key, value in ours.items() if key not in ignored}}
        whole = getattr(model, "stream_function", ...) is None  # pydantic-ai's FunctionModel with a plain function
        if whole or not self._stream:
            answered = await direct.model_request(
                model, history, model_settings=settings, model_request_parameters=parameters
            )
            return reply_of(answered, request, self.name, money=self._knows_money, wrapped=mode == "wrapped")
        pieces = Pieces()
        async with direct.model_request_stream(
            model, history, model_settings=settings, model_request_parameters=parameters
        ) as streamed:
            async for event in streamed:
                for piece in pieces.of(event):
                    stream(piece)
            answered = streamed.get()
        if _is_cut(answered, model):
            msg = (
                f"{self.name}: the stream ended before the answer did: it gives no reason for its end. A server that "
                f"never gives one needs ProviderModel(..., stream=False)."
            )
            raise ModelUnavailable(msg)
        return reply_of(answered, request, self.name, money=self._knows_money, wrapped=mode == "wrapped")

    def _schema_mode(self, model: Model, request: ModelRequest) -> str:
        """Tell how a model learns the schema of its answer: most servers take only schemas of objects."""
        schema = request.schema
        if schema is None or not model.profile.get("supports_json_schema_output", False):
            return "prompted"
        if is_object(schema):
            return "native"
        return "wrapped" if self.base_url is not None else "prompted"

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Model]:
        """Give the model of pydantic-ai, with an HTTP client of its own that is closed whatever happens.

        A client of its own for each request costs a handshake, and makes one model safe to use from several event
        loops and several runs at once: a connection belongs to the loop that made it.
        """
        if self._given is not None:
            yield self._given
            return
        import httpx2

        async with httpx2.AsyncClient(verify=_certificates(), timeout=self._timeout) as http:
            yield self._made(http)

    def _made(self, http: httpx2.AsyncClient) -> Model:
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class

        key = os.environ.get(self._key_from) if self._key_from is not None else None
        base_url = self.base_url
        if base_url is not None:
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            name, server = self.name.partition(":")[2], OpenAIProvider(base_url=base_url, api_key=key, http_client=http)
            made = OpenAIChatModel(name, provider=server)
            if OPENAIS_OWN.match(name):
                return made
            # Other servers know the older name of the limit, and some leave out the newer one without a word.
            profile: Any = {**made.profile, "openai_chat_supports_max_completion_tokens": False}
            return OpenAIChatModel(name, provider=server, profile=profile)

        def provider_of(name: str) -> Any:
            kind: Any = infer_provider_class(name)
            return kind(http_client=http) if key is None else kind(http_client=http, api_key=key)

        return infer_model(self.name, provider_of)


OPENAIS_OWN = re.compile(r"(.*/)?(gpt-|chatgpt-|o\d)")
"""The names of OpenAI's own models, behind whatever address: they take `max_completion_tokens` alone."""

SAYS_WHY_IT_ENDS = frozenset({"OpenAIChatModel", "AnthropicModel"})
"""The models of pydantic-ai whose streams say at their end why; what a stream of others lacks proves nothing."""


def _is_cut(answered: ModelResponse, model: Model) -> bool:
    """Tell whether a stream broke off in an orderly way, as one of a proxy does whose server has gone."""
    if not any(kind.__name__ in SAYS_WHY_IT_ENDS for kind in type(model).__mro__):
        return False
    said = (answered.provider_details or {}).get("finish_reason")
    return not said and answered.finish_reason in (None, "stop")  # "stop" is what is put where nothing was said


def require_extra() -> None:
    """Look whether what this stands on is installed.

    Raises:
        MissingExtra: if it is not; the text names the extra.
    """
    try:
        import genai_prices
        import pydantic_ai
    except ImportError as error:
        raise MissingExtra("the model of a provider", "models") from error
    del genai_prices, pydantic_ai


@functools.cache
def _certificates() -> Any:
    """Load the certificates once: it takes longer than the rest of a client."""
    import httpx2

    return httpx2.create_ssl_context()


def _check_base_url(where: str, base_url: str) -> None:
    """Look whether an address makes sense, and holds nothing that every error would show.

    Raises:
        UsageError: if it does not.
    """
    check_address(where, base_url)
    if has_secrets(base_url):
        msg = f"{where}{_shown(base_url)!r}: without a name, a password or a query; the key is read from key_from=."
        raise UsageError(msg)


def _shown(base_url: str) -> str:
    try:
        return shown_address(base_url)
    except ValueError:
        return "(no address)"


def _name_of(model: object) -> str:
    name = getattr(model, "model_name", None)
    if not isinstance(name, str):
        msg = (
            f"model={value_text(model)}: the name of a provider's model is needed, as 'openai:gpt-5', or a "
            "pydantic-ai Model."
        )
        raise UsageError(msg)
    return name
