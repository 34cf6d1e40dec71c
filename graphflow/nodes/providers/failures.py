"""What went wrong at a provider, as one of our errors: may it work later, or would it be refused again?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from graphflow.errors import ModelError, ModelRefused, ModelUnavailable

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

LONGEST_WAIT = 60.0
"""The most seconds that a provider may ask to wait; one that asks for more counts as refusing."""

LONGEST_TEXT = 600
"""How many characters of what a provider said stand in an error."""

LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""The HTTP statuses after which the same request may work."""

BAD_REQUEST, SERVER_ERROR, OVERLOADED = 400, 500, frozenset({503, 529})
"""A request is turned away before anything is done with a status of 400 to 499, or that of an overloaded server."""

NO_SUCH_ADDRESS = frozenset({404, 405, 501})
"""The statuses with which servers answer where nothing of theirs is."""

NO_SUCH_MODEL = frozenset({400, 403, 404, 422})
UNKNOWN_MODEL = re.compile(
    r"model_not_found|invalid_model|unknown_model"
    r"|\b(unknown|invalid|unsupported|no such) model\b|not a valid model"
    r"|\bmodels?\b[^.;{},]{0,120}\b(not found|not exist|no access|is unknown|is invalid)\b"
    r"|\bmodel\s+\S{1,120}\s+is not (available|supported)\b",
    re.IGNORECASE,
)
"""What is said, with one of these statuses, of a model that a server does not have."""

VERSION = re.compile(r"/(v\d|openai|api|inference)", re.IGNORECASE)
"""What the path of an address has that leads to a protocol, and not to the front door of a server."""

LIBRARIES = ("httpx", "httpx2", "httpcore2", "openai", "anthropic")
"""What pydantic-ai stands on: what comes out of these is a request that did not get through."""

AGAIN = "It may work later: retries= of the agent asks it again, fallbacks= another model."
"""What can be done where a request failed that may work later."""

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
SHORTEST_SECRET = 8
"""What of the environment is never shown: what has such a word in its name, and is not as short as a flag."""


KEY_NAMES: set[str] = set()
"""The variables of the environment that a `key_from=` has named, whatever they are called."""


def as_model_error(
    error: Exception, model: str, *, key_name: str = "", base_url: str | None = None, own: bool = False
) -> ModelError:
    """Return an error of pydantic-ai, or of what it stands on, as ours.

    The text names the model, the status, and what can be done. A key of the environment never stands in it: where the
    error at hand shows one, ours has no cause that would show it.

    Args:
        error: what was raised.
        model: the name of the model.
        key_name: where its key stands in the environment, or "".
        base_url: where its server is, or None for the provider's own.
        own: whether it is a model of the user's own making, whose errors are no provider's.
    """
    from pydantic_ai import exceptions as theirs

    if isinstance(error, ModelError):
        return error
    text, unused = f"{model}: {_told(error)}", _is_unused(error)
    match error:
        case theirs.ModelAPIError() if _is_refused(error):
            return ModelRefused(f"{text} {_advice(error, key_name, base_url)}", unused=unused)
        case theirs.ContentFilterError() | theirs.UserError():
            return ModelRefused(text)
        case theirs.ModelAPIError():
            wait = error.retry_after
            if wait is not None and wait > LONGEST_WAIT:
                more = f"It asks to wait {wait:,.0f} s, more than {LONGEST_WAIT:.0f} s."
                return ModelRefused(f"{text} {more}", unused=unused)
            if base_url is not None and _is_unreached(error):
                text = f"{text} Is there a server at {base_url}?"
            return ModelUnavailable(text, wait, unused=unused)
        case ValueError() | LookupError() if own:
            return ModelError(text)
        case theirs.UnexpectedModelBehavior() | ValueError() if hint := _address_hint(base_url):
            return ModelUnavailable(f"{text} {hint}")  # the page of a server that keeps its models elsewhere
        case theirs.UnexpectedModelBehavior() | TimeoutError() | OSError() | ValueError() | LookupError():
            return ModelUnavailable(text)  # garbled, late, cut off
        case _ if type(error).__module__.partition(".")[0] in LIBRARIES:
            return ModelUnavailable(text)
        case _:
            return ModelError(text)


def _is_refused(error: ModelAPIError) -> bool:
    from pydantic_ai import exceptions as theirs

    if isinstance(error, theirs.ModelQuotaExceededError | theirs.ModelRequestRejectedError):
        return True
    return isinstance(error, theirs.ModelHTTPError) and error.status_code not in LATER


def _is_unreached(error: Exception) -> bool:
    return getattr(error, "phase", None) == "connect"


def _is_unused(error: Exception) -> bool:
    """Tell whether a request was turned away before a model read it: then it used nothing."""
    status = getattr(error, "status_code", 0)
    turned_away = type(status) is int and (BAD_REQUEST <= status < SERVER_ERROR or status in OVERLOADED)
    return _is_unreached(error) or (turned_away and not getattr(error, "in_stream", False))


def _advice(error: ModelAPIError, key_name: str, base_url: str | None) -> str:
    """Say what can be done about a refusal."""
    from pydantic_ai import exceptions as theirs

    if _is_no_model(error):
        there = "" if base_url is None else f" {base_url}/models lists those that the server has."
        return f"Look at the name of the model, which is not known there.{there}"
    if getattr(error, "status_code", 0) in NO_SUCH_ADDRESS and base_url is not None:
        return _address_hint(base_url) or f"Look at the name of the model, and at base_url=, which is {base_url}."
    match error:
        case theirs.ModelAuthenticationError():
            return f"Look at the key in {key_name}." if key_name else "Look at its key."
        case theirs.ModelNotFoundError():
            return "Look at the name of the model, and at base_url= where there is one."
        case theirs.ModelContextWindowExceededError():
            return "The agent reads more than the model can: a shorter history=, shorter results, or another model."
        case theirs.ModelQuotaExceededError():
            return "The account has nothing left to spend: look at its limits."
        case _:
            return "The same request would be refused again: look at the agent's tools, output= and settings=."


def _is_no_model(error: ModelAPIError) -> bool:
    """Tell whether a refusal is about the name of the model: some say so with a status of 404, some with another."""
    if getattr(error, "status_code", 0) not in NO_SUCH_MODEL:
        return False
    body: object = getattr(error, "body", None)
    return UNKNOWN_MODEL.search(f"{body} {_words_of(error)}") is not None


def _address_hint(base_url: str | None) -> str:
    """Say what is odd about the address of a server, "" if nothing is."""
    if base_url is None:
        return ""
    path = urlsplit(base_url).path.rstrip("/")
    for end in ("/chat/completions", "/completions", "/responses", "/models"):
        if path.endswith(end):
            return f"base_url= ends with {end}, which is added to it: leave that out."
    if VERSION.search(path):
        return ""
    return f"base_url= has no /v1 at its end, which most servers want: try {base_url.rstrip('/')}/v1."


def _told(error: Exception) -> str:
    """Return what an error says: its status or kind, then its words, on one line, not for ever, without a key."""
    kind, status = type(error).__name__, getattr(error, "status_code", None)
    said = _words_of(error)
    if kind == "ModelConnectionError":  # "Connection error." says less than what caused it
        said = next((str(found) for found in reversed([*_causes(error)]) if str(found)), said)
    said = without_keys(" ".join(said.split()))
    if len(said) > LONGEST_TEXT:
        said = f"{said[:LONGEST_TEXT]}…"
    head = kind if status is None else f"HTTP {status}"
    return (f"{head}: {said.rstrip('.')}" if said else head) + "."


def _words_of(error: Exception) -> str:
    """Return the message that a provider sent, where it sent one in the usual form."""
    body: object = getattr(error, "body", None)
    if isinstance(body, Mapping):
        table = cast("Mapping[str, Any]", body)
        inner: object = table.get("error", table)
        message: object = cast("Mapping[str, Any]", inner).get("message") if isinstance(inner, Mapping) else inner
        if isinstance(message, str) and message.strip():
            return message
    return str(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def without_keys(text: str) -> str:
    """Return a text without the keys of the environment: some servers repeat what they were sent.

    >>> os.environ["EXAMPLE_API_KEY"] = "sk-12345678"
    >>> without_keys("Incorrect API key provided: sk-12345678.")
    'Incorrect API key provided: (EXAMPLE_API_KEY).'
    >>> del os.environ["EXAMPLE_API_KEY"]
    """
    for name, value in os.environ.items():
        secret = name in KEY_NAMES or any(word in name.upper() for word in SECRET_WORDS)
        if name.endswith("_BASE_URL"):
            value, secret = value.rpartition("@")[0].rpartition(":")[2], True  # noqa: PLW2901 - the password in it
        if secret and len(value) >= SHORTEST_SECRET and value in text:
            text = text.replace(value, f"({name})")
    return text


def shows_a_key(error: BaseException) -> bool:
    """Tell whether an error, or what it came from, has a key of the environment in its text."""
    return any(text != without_keys(text) for found in _causes(error) for text in (str(found), repr(found)))
