"""What crosses a boundary: a brief goes down, a report comes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from graphflow.model.frozen import FrozenDict, Json
from graphflow.model.secrets import hide_inputs, veiled_args

Bound = Literal[
    "max_hops", "max_visits", "max_handoffs", "max_items", "max_depth", "max_turns", "costs", "ping_pong", "repetition",
    "no_progress", "max_tool_calls", "max_calls", "transfers",
    "node_runs", "model_calls", "tool_calls", "retries", "tokens", "usd", "seconds",
]  # fmt: skip
"""What may stop something that would go on."""

Code = Literal[
    "failed", "timeout", "contract", "dependency", "unknown_target", "skipped", "conflict", "join_unmet", "no_route",
    "turns", "delegate", "reported", "stray_cancellation", "invalid_value", "cancelled",
    "empty_answer", "unknown_tool", "tool",
    Bound,
    "not_taken", "join_strict", "all_dead",
]  # fmt: skip
"""Why something did not go its way."""

CODES: Final[tuple[str, ...]] = get_args(Code)
"""Every code, in order."""

LATER_CODES: Final = frozenset({"max_tool_calls", "max_calls", "transfers"})
"""Codes that came after the first runs were stored: a fingerprint leaves them out, so that those runs can go on."""

BOUNDS: Final[frozenset[str]] = frozenset(get_args(Bound))
"""The codes that are bounds."""


class Reason(BaseModel):
    """Why something failed, was refused, exhausted or skipped: one value for all of them.

    Attributes:
        code: which kind of reason, or which bound.
        text: one sentence for a person or a model.
        path: the text of the path of the node to blame, or "".
        error_type: the type of the exception, or "".
        limit: the value of the bound that was hit, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    code: Code
    text: str
    path: str = ""
    error_type: str = ""
    limit: float | None = None


class Brief(BaseModel):
    """What a caller asks of a callee. Derive from it to add fields of your own.

    Attributes:
        objective: what is wanted; the only field that a caller must write.
        output: the form that the answer should have.
        guidance: how to go about it.
        sources: where to look.
        boundary: what is not asked for.

    >>> Brief(objective="Was INV-311 paid twice?").objective
    'Was INV-311 paid twice?'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    objective: str
    output: str = ""
    guidance: str = ""
    sources: tuple[str, ...] = ()
    boundary: str = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        hide_inputs(cls)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show no field that is marked as a secret."""
        return veiled_args(type(self), super().__repr_args__())


Status = Literal["done", "partial", "failed", "needs_input"]


class Report(BaseModel):
    """What a callee gives back.

    Attributes:
        finding: the answer, not empty when done.
        action_needed: what somebody should do now, or None.
        evidence: ids of what supports the finding, such as `path:line`.
        status: how far it came.
        reason: why it is not done; required for every other status. A plain text is taken too.

    Raises:
        ValueError: (as pydantic's ValidationError) if it is done with an empty finding, or not done without a reason.

    >>> Report(finding="paid twice", evidence=("INV-311",)).status
    'done'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    finding: str = ""
    action_needed: str | None = None
    evidence: tuple[str, ...] = ()
    status: Status = "done"
    reason: Reason | None = None

    @field_validator("reason", mode="before")
    @classmethod
    def _said(cls, reason: Any) -> Any:
        """Take a reason that is a plain text, as a model writes it."""
        return Reason(code="reported", text=reason) if isinstance(reason, str) else reason

    @model_validator(mode="after")
    def _complete(self) -> Report:
        if self.status == "done" and not self.finding.strip():
            msg = "a report that is done needs a finding that is not empty"
            raise ValueError(msg)
        if self.status != "done" and self.reason is None:
            msg = f"a report with status {self.status!r} needs a reason"
            raise ValueError(msg)
        return self

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        hide_inputs(cls)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show no field that is marked as a secret."""
        return veiled_args(type(self), super().__repr_args__())

    @classmethod
    def failed(cls, reason: Reason) -> Report:
        """Return the report of a failure."""
        return cls(status="failed", reason=reason)


class Approval(BaseModel):
    """What a person says to a call of a tool that needs approval.

    A bool is taken too, and a text: "yes", "no", or "no, " and the reason.

    Attributes:
        approve: whether the tool may run.
        reason: why not, for the model.
        arguments: the arguments to call it with instead, or None for those that the model wrote.

    >>> Approval.model_validate("no, it was refunded already")
    Approval(approve=False, reason='it was refunded already', arguments=None)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    approve: bool
    reason: str = ""
    arguments: FrozenDict[str, Json] | None = None

    @model_validator(mode="before")
    @classmethod
    def _spoken(cls, given: Any) -> Any:
        if isinstance(given, bool):
            return {"approve": given}
        if not isinstance(given, str):
            return given
        word, _, rest = given.strip().replace(":", ",", 1).partition(",")
        said = word.strip().casefold()
        if said in _YES and not rest.strip():
            return {"approve": True}
        if said in _NO:
            return {"approve": False, "reason": rest.strip()}
        msg = "say yes, or no, or no and the reason, or give an object with approve, reason and arguments"
        raise ValueError(msg)


_YES = frozenset({"yes", "y", "approve", "approved", "ok", "true"})
_NO = frozenset({"no", "n", "reject", "rejected", "deny", "denied", "false"})
