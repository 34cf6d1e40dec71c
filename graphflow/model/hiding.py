"""JSON schemas without the defaults that are secrets."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from graphflow.model.secrets import hides, veiled


class HidingSchema(GenerateJsonSchema):
    """Leaves out the default of a field that is marked, and hides what is marked in the default of another.

    >>> from typing import Annotated
    >>> from pydantic import BaseModel
    >>> from graphflow.model.secrets import secret
    >>> class Login(BaseModel):
    ...     token: Annotated[str, secret] = "hunter2"
    >>> Login.model_json_schema(schema_generator=HidingSchema)["properties"]
    {'token': {'title': 'Token', 'type': 'string'}}
    """

    def default_schema(self, schema: Any) -> Any:
        """Leave out the default of a field that is marked."""
        made = super().default_schema(schema)
        if hides(schema["schema"]):
            made.pop("default", None)
        return made

    def encode_default(self, dft: Any) -> Any:
        """Hide what is marked in the default of another field."""
        return super().encode_default(veiled(dft))
