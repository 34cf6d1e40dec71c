"""A team and what its models say, in words that belong to neither library; and what was seen when it ran."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import anyio.lowlevel
from pydantic import BaseModel

INPUT_TOKENS: Final = 10
OUTPUT_TOKENS: Final = 3
"""What every model call uses, on both sides."""

FAILED: Final = "<the tool failed>"
MOVED: Final = "<transferred>"
IGNORED: Final = "<transfer ignored>"
"""What stands for texts that each library words in its own way."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model asks for; the arguments are text, as a model writes them, and an id of "" is a new one."""

    tool: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model says at once, or the error that it raises."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    error: str = ""


def say(text: str) -> Reply:
    """Answer with a text."""
    return Reply(text)


def use(*calls: Call, text: str = "") -> Reply:
    """Ask for calls, perhaps with a text before them."""
    return Reply(text, calls)


def call(tool: str, /, **arguments: Any) -> Call:
    """Write a call of a tool."""
    return Call(tool, json.dumps(arguments))


def transfer(to: str, note: str = "please") -> Call:
    """Write the call that hands off."""
    return call(f"transfer_to_{to}", note=note)


def ask(whom: str, objective: str) -> Call:
    """Write the call that delegates."""
    return call(f"ask_{whom}", objective=objective)


@dataclass(frozen=True, slots=True)
class Member:
    """One agent of a team."""

    name: str
    tools: tuple[str, ...] = ()
    hands_off: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    output: type[BaseModel] | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """A team, what each model says, and how many turns there are.

    Attributes:
        members: the team; the first begins.
        script: what the models say, turn by turn.
        user: what the user says.
        max_turns: of the run there, of each visit here.
        forgiving: whether openai-agents tells a model that there is no such tool, rather than ending the run.
        history: what of the thread crosses a handoff in graphflow; in openai-agents it is all of it.
    """

    members: tuple[Member, ...]
    script: Mapping[str, tuple[Reply, ...]]
    user: str = "Where is my order A-7?"
    max_turns: int = 10
    forgiving: bool = False
    history: Literal["note", "full"] = "full"


Line: TypeAlias = tuple[str, str]
"""One thing in a model's input: who or what it is, and its text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that a model got.

    Attributes:
        agent: whose model.
        lines: its messages, in words that belong to neither library.
        texts: the same in the library's own words; not compared.
    """

    agent: str
    lines: tuple[Line, ...]
    texts: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one run.

    Attributes:
        requests: what the models got, in order of arrival.
        tools: name and arguments of each execution of a tool, in order of their start.
        calls: the number of model calls, as the library counts them; 0 where an exception of a model or a tool was
            raised, as that says nothing.
        tokens: the tokens of all of them, likewise.
        end: "done", or in a word why not, or the error that was raised.
        output: what the run gave.
        speaker: who spoke last.
        status: the status of a result of graphflow; not compared.
    """

    requests: tuple[Asked, ...]
    tools: tuple[Call, ...]
    calls: int
    tokens: int
    end: str
    output: Any
    speaker: str
    status: str = field(default="", compare=False)

    @property
    def path(self) -> tuple[str, ...]:
        """Who was asked, in order."""
        return tuple(request.agent for request in self.requests)

    def of(self, agent: str) -> tuple[Asked, ...]:
        """What one agent's model got, request by request."""
        return tuple(request for request in self.requests if request.agent == agent)

    def settled(self) -> Seen:
        """The same without the order between what ran in parallel."""
        requests = tuple(sorted(self.requests, key=lambda request: request.agent))
        return replace(self, requests=requests, tools=tuple(sorted(self.tools, key=str)))


def said(text: str) -> str:
    """Write arguments in one way, whatever the spaces."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


FATAL: Final = "fatal"
"""The tool whose failure ends the run, on both sides."""

ToolFunction: TypeAlias = Callable[..., Awaitable[str]]


@dataclass(slots=True)
class Shelf:
    """The tools of the tables; they write down how they are used."""

    used: list[Call] = field(default_factory=list[Call])

    def tools(self) -> dict[str, ToolFunction]:
        """Return the tools by name."""
        used = self.used

        async def look(key: int) -> str:
            """Look something up.

            Args:
                key: what to look up.
            """
            used.append(call("look", key=key))
            return f"found {key}"

        async def slow(key: int, unit: str = "m") -> str:
            """Measure something; others go first.

            Args:
                key: what to measure.
                unit: in what.
            """
            used.append(call("slow", key=key, unit=unit))
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            return f"{key} {unit}"

        async def broken(key: int) -> str:
            """Fail.

            Args:
                key: why.
            """
            used.append(call("broken", key=key))
            msg = f"no luck with {key}"
            raise RuntimeError(msg)

        async def fatal(key: int) -> str:
            """Fail, and the run with it.

            Args:
                key: why.
            """
            used.append(call("fatal", key=key))
            msg = f"no more after {key}"
            raise LookupError(msg)

        return {"look": look, "slow": slow, "broken": broken, FATAL: fatal}
