"""The one place that says that the extra `mcp` is missing."""

from __future__ import annotations

import importlib
import logging

from graphflow.errors import MissingExtra


def require_mcp(wanted: str) -> None:
    """Load the library of the protocol.

    Raises:
        MissingExtra: if it is not installed.
    """
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise MissingExtra(wanted, "mcp") from error
    # What it logs goes where the user's program says; to the terminal only if that says so.
    logger = logging.getLogger("mcp")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
