"""Addresses of servers: whether one makes sense, and how it is shown without what may be secret in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from graphflow.errors import UsageError
from graphflow.model.telling import value_text


def check_address(where: str, address: object) -> None:
    """Look whether something is the address of a server, over HTTP.

    Args:
        where: what the error says first.
        address: what was given.

    Raises:
        UsageError: if it is none.
    """
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
        fits = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is none
        fits = False
    if not fits:
        hidden = isinstance(address, str) and not {"@", "?"}.isdisjoint(address)
        shown = "an address with a password or a query" if hidden else value_text(address)
        msg = f"{where}{shown}: an address is needed, as http://127.0.0.1:8080/v1 or https://example.com/v1."
        raise UsageError(msg)


def has_secrets(address: str) -> bool:
    """Tell whether more than a place stands in an address: a name, a password, a query, or nobody knows what."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query)


def shown_address(address: str) -> str:
    """Return an address without the name, the password and the query in it.

    >>> shown_address("https://me:secret@example.com:8080/v1?key=secret")
    'https://example.com:8080/v1'
    """
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
