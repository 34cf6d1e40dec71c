"""`--model`: another model for every agent of a graph, and what is noted of it beside a stored run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from graphflow.cli.faults import BadUse
from graphflow.graphs.graph import Graph
from graphflow.graphs.pricing import places_of
from graphflow.model.addresses import has_secrets
from graphflow.visualize.text import visible

DecisionWord: TypeAlias = Literal["auto", "native", "json"]
"""How agents that leave it open are asked to decide."""

NATIVE: Final[dict[str, bool | None]] = {"auto": None, "native": True, "json": False}


@dataclass(frozen=True, slots=True)
class Asked:
    """The model that all agents of a run ask; a key is no part of it.

    Attributes:
        name: its provider and its name, as "openai:gpt-5".
        base_url: the server, or None for the provider's.
        decision: how agents that leave it open are asked to decide.
        timeout: the most seconds that one request may take, or None for what is usual.
    """

    name: str
    base_url: str | None = None
    decision: DecisionWord = "auto"
    timeout: float | None = None

    def in_words(self) -> str:
        """Say who is asked.

        >>> Asked("openai:small", "http://127.0.0.1:8080/v1", "json").in_words()
        'openai:small at http://127.0.0.1:8080/v1, deciding in JSON'
        """
        where = "" if self.base_url is None else f" at {self.base_url}"
        how = {"auto": "", "native": ", deciding by calls", "json": ", deciding in JSON"}[self.decision]
        long = "" if self.timeout is None else f", at most {self.timeout:g} s a request"
        return visible(f"{self.name}{where}{how}{long}")


@dataclass(frozen=True, slots=True)
class ModelWords:
    """What stands on a command line about the model: nothing is None."""

    name: str | None = None
    base_url: str | None = None
    decision: DecisionWord | None = None
    timeout: float | None = None

    def over(self, noted: Asked | None) -> Asked | None:
        """Return the model that is meant, where another one is noted, or none; None leaves each agent its own.

        A name begins anew, but for the way of deciding: what is stored was decided in it, and is read in it again.

        Raises:
            BadUse: if a part of it is missing or makes no sense, or would have to be kept secret.
        """
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise BadUse(f"--timeout {self.timeout:g}: a number of seconds above 0 is needed.")
        if self.base_url is not None and has_secrets(self.base_url):
            raise BadUse(
                "--base-url: an address with a user, a password or a query in it would be stored: a key is read from "
                "the environment."
            )
        if self.name is not None:
            decision = self.decision or ("auto" if noted is None else noted.decision)
            return Asked(self.name, self.base_url, decision, self.timeout)
        if noted is None:
            seconds = None if self.timeout is None else f"{self.timeout:g}"
            for option, given in (
                ("--base-url", self.base_url), ("--decision", self.decision), ("--timeout", seconds),
            ):  # fmt: skip
                if given is not None:
                    raise BadUse(f"{option} {given}: of which model? Add --model openai:NAME.")
            return None
        return Asked(
            noted.name, self.base_url or noted.base_url, self.decision or noted.decision, self.timeout or noted.timeout
        )  # fmt: skip


def with_model(graph: Graph[Any], asked: Asked) -> tuple[Graph[Any], Asked]:
    """Return a graph whose agents all ask one model, and that model with the server that it stands for.

    Raises:
        BadUse: if no agent is in the graph.
        UsageError: if it is no model.
        MissingExtra: if the extra `models` is not installed.
    """
    from graphflow.nodes.providers.model import ProviderModel, require_extra

    if not places_of(graph):
        raise BadUse(f"--model {asked.name}: the graph {graph.name!r} has no agent, so nothing in it asks a model.")
    require_extra()
    patience: dict[str, Any] = {} if asked.timeout is None else {"timeout": asked.timeout}
    model = ProviderModel(asked.name, base_url=asked.base_url, native_tools=NATIVE[asked.decision], **patience)
    server = model.base_url  # of the environment, where none is given: a later process asks the same one
    known = None if server is not None and has_secrets(server) else server
    return graph.with_model(model), replace(asked, base_url=known)
