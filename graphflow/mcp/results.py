"""What a server answered, as a text for a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from graphflow.model.thread import shown

if TYPE_CHECKING:
    from mcp.types import CallToolResult


def text_of(result: CallToolResult) -> str:
    """Return an answer as text: texts as they are, structured content as JSON, everything else by its name."""
    texts = [part.text for part in result.content if part.type == "text"]
    others = [_named(part) for part in result.content if part.type != "text"]
    structured: Any = result.structured_content
    if structured is None or _says_the_same(texts, structured):
        return "\n".join([*texts, *others])
    return "\n".join([*texts, shown(structured), *others])


def _says_the_same(texts: list[str], structured: Any) -> bool:
    """Tell whether the texts are the structured content once more, as servers write it for clients that know none."""
    whole = "\n".join(texts)
    if structured == {"result": whole} or (not texts and structured == {}):
        return True
    try:
        return bool(texts) and json.loads(whole) == structured
    except (ValueError, RecursionError):
        return False


def _named(part: Any) -> str:
    match part.type:
        case "image" | "audio":
            return f"[{part.type}, {part.mime_type}, {_size(part.data)}: not shown]"
        case "resource_link":
            about = f": {' '.join(part.description.split())}" if part.description else ""
            return f"[a resource, {part.name}, at {part.uri}{about}]"
        case "resource" if hasattr(part.resource, "text"):
            return f"[the resource {part.resource.uri}]\n{part.resource.text}"
        case "resource":
            kind = part.resource.mime_type or "bytes"
            return f"[the resource {part.resource.uri}, {kind}, {_size(part.resource.blob)}: not shown]"
        case kind:
            return f"[{kind}: not shown]"


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4:,} bytes"
