"""The nodes of teams that go round: a debate, drafts that somebody else verifies; and those of maps and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict

from graphflow.errors import ContractError
from graphflow.graphs.blaming import Blaming
from graphflow.graphs.building import own_node
from graphflow.graphs.conversation import (
    Said,
    Task,
    TeamReport,
    joint_report,
    last_report,
    said_by,
    transcript,
)
from graphflow.graphs.graph import Graph
from graphflow.graphs.planning import Verdict, verdict_of
from graphflow.model.context import append, extend, question_of
from graphflow.model.contract import Reason, Report
from graphflow.model.outcome import NOTHING, Done, Update
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import words_of
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.edges import Chain


async def with_task(state: State[Any]) -> Any:
    """Put the task before what arrived: a team of its own knows nothing but what it is given."""
    parts = (question_of(state.context), *(words_of(value) for value in state.values))
    told = "\n\n".join(dict.fromkeys(part for part in parts if part.strip()))
    return Done(told or NOTHING)


def told(member: Node[Any], taken: list[Node[Any]]) -> Any:
    """Return a member, and before one that is a graph a node that tells it what the task is."""
    if not isinstance(member, Graph):
        return member
    tells = own_node(f"tell {member.name}", with_task, taken)
    taken.append(tells)
    return tells >> member


def told_again(source: Node[Any], member: Node[Any], taken: list[Node[Any]]) -> Chain[Any]:
    """Return the way back to a member that has its next statement already."""
    first = told(member, taken)
    chain: Chain[Any] = source >> first
    return chain


def is_renamed(author: Node[Any], verifier: Node[Any]) -> bool:
    """Tell whether two nodes are one under two names."""
    if type(author) is not type(verifier) or author.named(verifier.name) != verifier:
        return False
    return not (isinstance(author, Agent) and isinstance(verifier, Agent)) or author.models == verifier.models


# --- a debate --------------------------------------------------------------------------------------------------------


class Debate(Task):
    """A debate.

    Attributes:
        said: what was said, round by round, each in the order of the debaters.
        rounds: how many rounds are over.
    """

    said: Annotated[tuple[Said, ...], extend] = ()
    rounds: int = 0


async def open_round(state: State[Debate]) -> Done:
    """Let everybody see what was said before."""
    return Done(transcript(state.context.said) or NOTHING)


async def close_round(state: State[Debate]) -> Done:
    """Note what everybody said, in their order."""
    new = tuple(said_by(source, value) for source, value in state.inbox)
    said = (*state.context.said, *new)
    return Done(transcript(said) or NOTHING, update=Update(said=new, rounds=state.context.rounds + 1))


@dataclass(frozen=True)
class MoreRounds:
    """Whether a debate goes on.

    Attributes:
        rounds: how many rounds there are.
    """

    rounds: int

    def __call__(self, state: State[Debate]) -> bool:
        """Count."""
        return state.context.rounds < self.rounds


# --- drafts, verified ------------------------------------------------------------------------------------------------


class Drafts(Task):
    """A task whose result somebody else verifies.

    Attributes:
        drafts: what the author wrote, the latest last.
        verdict: what was said of the latest that was looked at.
    """

    drafts: Annotated[tuple[Said, ...], append] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Note:
    """Note a draft, and give it to who verifies it.

    Attributes:
        author: the author's name.
    """

    author: str

    async def __call__(self, state: State[Drafts]) -> Done:
        """Give on what the author wrote, as it is."""
        value = state.values[0] if state.values else NOTHING
        return Done(value, update=Update(drafts=said_by(self.author, value)))


async def judge_draft(state: State[Drafts]) -> Done:
    """Take the verdict: the draft is the output, or its author has to know why not."""
    try:
        verdict = verdict_of(state.values[0] if state.values else None)
    except ContractError as error:  # who verifies is to blame, and no body of a node: a failure, and not an exception
        return Done(Report.failed(Reason(code="contract", text=str(error))))
    if verdict.accepted:
        return Done(last_report(state.context.drafts), update=Update(verdict=verdict))
    return Done(verdict.why, update=Update(verdict=verdict))


def is_rejected(state: State[Drafts]) -> bool:
    """Tell whether the latest draft was not accepted."""
    return state.context.verdict is not None and not state.context.verdict.accepted


async def ask_again(state: State[Drafts]) -> str:
    """Tell the author what was wrong, and with what."""
    verdict, draft = state.context.verdict, state.context.drafts[-1]
    why = verdict.why if verdict is not None and verdict.why.strip() else "no reason was given."
    return f"Do it again. This was not accepted: {why}\n\nWhat you gave:\n{draft.text}"


# --- maps and reductions ---------------------------------------------------------------------------------------------


class Items(BaseModel):
    """What an agent that splits a task answers with.

    Attributes:
        items: the parts, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    items: tuple[str, ...]


def items_of(value: Any) -> Sequence[Any]:
    r"""Return what somebody who splits a task gave as the parts: a sequence, `Items`, or the lines of a text.

    Raises:
        ContractError: if it is nothing of these.

    >>> items_of("north\n\nsouth"), items_of(Items(items=("a", "b")))
    (('north', 'south'), ('a', 'b'))
    """
    if isinstance(value, Items):
        return value.items
    if isinstance(value, Report):
        value = value.finding
    if isinstance(value, str):
        return tuple(line.strip() for line in value.splitlines() if line.strip())
    if isinstance(value, list | tuple):
        return tuple(cast("Sequence[Any]", value))
    msg = f"{value_text(value)} is no list of items: a sequence, Items or a text with a line for each is needed."
    raise ContractError(msg)


@dataclass(frozen=True)
class Splits:
    """A function that splits a task, held to what it promises.

    Attributes:
        where: what it was given to, for errors.
        fn: the function.
    """

    where: str
    fn: Callable[[State[Any]], Sequence[Any]]

    @property
    def __name__(self) -> str:
        """How the edge is drawn."""
        return str(getattr(self.fn, "__name__", "split"))

    def __call__(self, state: State[Any]) -> Iterable[Any]:
        """Return the parts.

        Raises:
            ContractError: if they are none, or have no order: a text alone is one thing, not a part for each letter.
        """
        with Blaming(self.where, "split", self.fn):
            parts: object = self.fn(state)
        if isinstance(parts, Items):
            return parts.items
        if isinstance(parts, str | bytes | Mapping | AbstractSet | BaseModel) or not isinstance(parts, Iterable):
            msg = f"{self.where}: split gave {value_text(parts)}: a sequence of items is needed, as a list or a tuple."
            raise ContractError(msg)
        return cast("Iterable[Any]", parts)


def given_items(state: State[Any]) -> Sequence[Any]:
    """Return the parts that arrived."""
    return items_of(state.values[0]) if state.values else ()


async def numbered(state: State[Any]) -> TeamReport:
    """Put what came of each part into one report, in the order of the parts."""
    if not state.inbox:
        return TeamReport(status="partial", reason=Reason(code="reported", text="there was nothing to do: no item."))
    return joint_report([said_by(f"{source} {at}", value) for at, (source, value) in enumerate(state.inbox, start=1)])
