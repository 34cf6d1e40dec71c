"""What a drawn conversation and a joint report are, for processes that hash texts differently."""

from graphflow import node, run_sync, strategies
from graphflow.graphs.strategies import Conversation, Task
from graphflow.model.context import Context
from graphflow.model.state import State
from graphflow.nodes.function import FunctionNode


def member(name: str) -> FunctionNode[Context]:
    """A member that says its name."""

    @node(name=name)
    async def body(state: State[Context]) -> str:
        return name

    return body


def lines() -> str:
    """Who was drawn, in which order reports stand, and what the graph is identified by."""
    names = ("bull", "bear", "owl", "fox")
    allowed = {"bull": ["bear", "fox"]}
    talk = strategies.random("t", *map(member, names), turns=12, seed=11, allowed_transitions=allowed)
    together = strategies.parallel("t", *map(member, names))
    drawn = run_sync(talk, Conversation(task="?")).output
    said = run_sync(together, Task(task="?")).output
    return "\n".join((*(one.speaker for one in drawn.said), *(one.speaker for one in said.said), talk.fingerprint()))
