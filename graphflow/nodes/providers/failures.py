"""What went wrong at a provider, as one of our errors: may it work later, or would it be refused again?"""

from __future__ import annotations

from graphflow.errors import ModelError, ModelRefused, ModelUnavailable

LONGEST_WAIT = 60.0
"""The most seconds that a provider may ask to wait; one that asks for more counts as refusing."""

LONGEST_TEXT = 600
"""How many characters of what a provider said stand in an error."""

LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""The HTTP statuses after which the same request may work."""


def as_model_error(error: Exception, model: str) -> ModelError:
    """Return an error of pydantic-ai, or of what it stands on, as ours.

    Args:
        error: what was raised.
        model: the name of the model, for the text.
    """
    from pydantic_ai import exceptions as theirs

    text = f"{model}: {_told(error)}"
    match error:
        case ModelError():
            return error
        case theirs.ModelQuotaExceededError() | theirs.ModelRequestRejectedError() | theirs.ContentFilterError():
            return ModelRefused(text)
        case theirs.ModelHTTPError() if error.status_code not in LATER:
            return ModelRefused(text)
        case theirs.ModelAPIError():
            wait = error.retry_after
            if wait is not None and wait > LONGEST_WAIT:
                return ModelRefused(f"{text} It asks to wait {wait:,.0f} s, more than {LONGEST_WAIT:.0f} s.")
            return ModelUnavailable(text, wait)
        case theirs.UserError():
            return ModelRefused(text)
        case theirs.UnexpectedModelBehavior() | TimeoutError() | OSError() | ValueError():  # garbled, late, cut off
            return ModelUnavailable(text)
        case _ if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore2", "openai", "anthropic"):
            return ModelUnavailable(text)
        case _:
            return ModelError(text)


def _told(error: Exception) -> str:
    """Return what an error says, on one line and not for ever."""
    kind, said = type(error).__name__, " ".join(str(error).split())
    if len(said) > LONGEST_TEXT:
        said = f"{said[:LONGEST_TEXT]}…"
    return f"{kind}: {said}" if said else kind
