"""A person as a node: entering it asks a question, its output is the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.frozen import mutable_part
from graphflow.model.telling import value_text
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_text, checked_type
from graphflow.nodes.join import init_node


@dataclass(frozen=True, repr=False, init=False)
class Human(Node[Context]):
    """A node that pauses for a person; the answer is its output.

    Entered by a handoff it gives control back to the giver, with the answer in the inbox.

    Attributes:
        question: what is asked; what arrived is shown below it.
        schema: the type that the answer must have, or None for any JSON value. It goes on as the node's output, so it
            is one whose values nobody can change.

    Raises:
        UsageError: if the type could hold something mutable.
    """

    question: str
    schema: Any
    kind: ClassVar[str] = "human"

    def __init__(
        self,
        name: str,
        question: str = "What now?",
        *,
        schema: Any = None,
        into: str | None = None,
        description: str = "",
        max_visits: int | None = None,
    ) -> None:
        """Take the question, and look at the type."""
        checked_text(f"Human {name!r}", question, "question")
        checked_type(f"Human {name!r}", schema, "schema")
        part = None if schema is None else mutable_part(schema)
        if part is not None:
            msg = (
                f"Human {name!r}: schema={value_text(schema)}: what it gives to others must be frozen: {part[0]}; "
                f"use {part[1]}."
            )
            raise UsageError(msg)
        object.__setattr__(self, "question", question)
        object.__setattr__(self, "schema", schema)
        init_node(self, name, into=into, description=description, max_visits=max_visits, gate=True)

    def named(self, name: str) -> Human:
        """Return the same person under another name."""
        return Human(
            name, self.question, schema=self.schema, into=self.into, description=self.description,
            max_visits=self.max_visits,
        )  # fmt: skip
