"""Joins: where the branches of a fork meet under a policy other than "all", and the fold of what arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from graphflow.errors import UsageError
from graphflow.model.context import Context
from graphflow.model.telling import value_text
from graphflow.nodes.base import Node
from graphflow.nodes.checked import checked_call, checked_seconds, checked_sync


@dataclass(frozen=True, slots=True)
class Policy:
    """When a join runs.

    Attributes:
        kind: "all" waits for every taken branch; "first" for the first `count`; "strict" for every declared branch.
        count: how many branches must arrive, for "first".
        within: active seconds from the opening of the fork in which they must arrive, or None.
    """

    kind: Literal["all", "first", "strict"] = "all"
    count: int = 0
    within: float | None = None

    def __str__(self) -> str:
        """Say the policy in words."""
        if self.kind != "first":
            return "every taken branch" if self.kind == "all" else "every declared branch"
        words = f"{self.count} branch" + ("es" if self.count != 1 else "")
        return words + (f" within {self.within:g} s" if self.within is not None else "")


ALL = Policy()
"""Every branch that was taken and did not end on its own: the policy of every node that is no `Join`."""

ANY = Policy("first", 1)
"""The first branch that arrives."""

STRICT = Policy("strict")
"""Every declared branch; if one was not taken or ended on its own, the join is skipped, with the reason."""


def first(k: int) -> Policy:
    """Go on with the first `k` branches that arrive.

    Raises:
        UsageError: if `k` is less than one.
    """
    return quorum(k)


def quorum(k: int, *, within: float | None = None) -> Policy:
    """Go on as soon as `k` branches have arrived.

    Args:
        k: how many.
        within: active seconds in which they must arrive, else the join fails with `JoinUnmet`.

    Raises:
        UsageError: if a number makes no sense.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        msg = (
            f"quorum({value_text(k)}, within={value_text(within)}): at least one branch, within a time above 0, or "
            "None."
        )
        raise UsageError(msg)
    checked_seconds(f"quorum({k})", within, "within")
    return Policy("first", k, within)


@dataclass(frozen=True, repr=False, init=False)
class Join(Node[Context]):
    """A node at which a fork's branches meet. Its output is the tuple of the values that arrived, in branch order.

    Attributes:
        policy: when it runs.
        losers: what happens to branches that are late: "finish" lets them run on, "cancel" stops them.
        reduce: makes the output from the values that arrived; of no values too, after an empty map.

    >>> Join("total", reduce=sum).policy
    Policy(kind='all', count=0, within=None)
    """

    policy: Policy
    losers: Literal["finish", "cancel"]
    reduce: Callable[[tuple[Any, ...]], Any] | None
    kind: ClassVar[str] = "join"

    def __init__(
        self,
        name: str,
        policy: Policy = ALL,
        *,
        losers: Literal["finish", "cancel"] = "finish",
        reduce: Callable[[tuple[Any, ...]], Any] | None = None,
        into: str | None = None,
        description: str = "",
        max_visits: int | None = None,
    ) -> None:
        """Check the policy."""
        if not isinstance(policy, Policy) or losers not in ("finish", "cancel"):
            msg = (
                f"Join({name!r}, {value_text(policy)}, losers={value_text(losers)}): a policy, and 'finish' or "
                "'cancel', are needed."
            )
            raise UsageError(msg)
        checked_call(f"Join {name!r}", reduce, "reduce", "a function of what arrived, or None,")
        checked_sync(f"Join {name!r}", reduce=reduce)
        put = object.__setattr__
        put(self, "policy", policy)
        put(self, "losers", losers)
        put(self, "reduce", reduce)
        init_node(self, name, into=into, description=description, max_visits=max_visits)

    def named(self, name: str) -> Join:
        """Return the same join under another name."""
        return Join(
            name, self.policy, losers=self.losers, reduce=self.reduce, into=self.into,
            description=self.description, max_visits=self.max_visits,
        )  # fmt: skip


def init_node(node: Node[Any], name: str, **fields: Any) -> None:
    """Run the base's initialiser on a node with an `__init__` of its own."""
    cast("Any", Node).__init__(node, name=name, **fields)
