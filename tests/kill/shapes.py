"""Graphs of about forty effects, to be killed: each effect leaves a line behind, and its result is unlike any other.

What has happened is read from the lines, not from the journal, so that the one can be held against the other.
"""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import anyio

from graphflow import (
    END,
    START,
    Agent,
    Context,
    Graph,
    Join,
    ModelReply,
    ModelRequest,
    State,
    Step,
    Supervisor,
    ToolCall,
    ToolStep,
    Update,
    append,
    node,
    tool,
    when,
)
from graphflow.model.ids import path_text
from graphflow.nodes.client import Stream
from graphflow.nodes.function import FunctionNode

ROUNDS: Final = 40
LANES: Final = 8
MARK: Final = re.compile(r"#[0-9a-f]{16}")
"""What makes a result unlike any other."""


class Line(NamedTuple):
    """What an effect or a body has left behind.

    Attributes:
        kind: "effect", "model" or "body"; "locked" for a process that had to stand back.
        key: what it is told apart by: an idempotency key, or a path and a turn.
        what: what it gave.
    """

    kind: str
    key: str
    what: str


class Log:
    """A file to which lines are added, each in one piece, so that a kill tears none."""

    def __init__(self, path: Path, pace: float, *, contested: bool = False, last: int | None = None) -> None:
        """Open it.

        Args:
            path: the file.
            pace: how many seconds an effect takes before and after what it does.
            contested: whether the effects wait until a line says that somebody has found the run locked.
            last: after how many effects the process kills itself, None for never.
        """
        self.path, self.pace, self._contested, self._last = path, pace, contested, last
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: str, key: str, what: str) -> None:
        """Add a line."""
        os.write(self._file, (json.dumps([kind, key, what]) + "\n").encode())

    async def do(self, kind: str, key: str, what: str) -> str:
        """Do something outside that takes time, leave a line, and give what nobody else gives."""
        await anyio.sleep(self.pace)
        while self._contested and not any(line.kind == "locked" for line in lines_of(self.path)):  # noqa: ASYNC110 - another process says it
            await anyio.sleep(0.001)
        self._contested = False
        result = f"{what}#{os.urandom(8).hex()}"
        self.write(kind, key, result)
        await anyio.sleep(self.pace)
        if self._last is not None:
            self._last -= 1
            if self._last < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result


def lines_of(path: Path) -> list[Line]:
    """What has been left behind in a file."""
    return [Line(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class Seen(Context):
    """What the effects gave."""

    seen: Annotated[tuple[str, ...], append] = ()


async def _do(log: Log, what: str, *, idempotency_key: str) -> str:
    return await log.do("effect", idempotency_key, what)


def _enter(state: State[Any], step: Step) -> Log:
    log = step.resource(Log)
    log.write("body", f"{path_text(state.path)}.{state.turn}", "")
    return log


def _worker(name: str) -> FunctionNode[Seen]:
    """A node with one effect."""

    @node(name=name)
    async def work(state: State[Seen], step: Step) -> Update:
        log = _enter(state, step)
        return Update(seen=await step.effect("work", _do, log, path_text(state.path)))

    return work


# --- functions -------------------------------------------------------------------------------------------------------


def chain() -> Graph[Seen]:
    """Forty nodes, one after the other."""
    whole = START >> _worker("n0")
    for number in range(1, ROUNDS):
        whole = whole >> _worker(f"n{number}")
    return Graph("chain", whole >> END, context=Seen)


def _more(state: State[Seen]) -> bool:
    return len(state.context.seen) < ROUNDS


def loop() -> Graph[Seen]:
    """One node, forty times."""
    work = _worker("work")
    return Graph("loop", START >> work, work.choose(when(_more, work, max_hops=ROUNDS), default=END), context=Seen)


def _items(_state: State[Seen]) -> range:
    return range(LANES)


def fan() -> Graph[Seen]:
    """Eight lanes at once: three effects one after the other, then two side by side."""

    @node
    async def split(state: State[Seen]) -> None:
        pass

    @node
    async def three(state: State[Seen], step: Step) -> str:
        log, where = _enter(state, step), path_text(state.path)
        return " ".join([await step.effect("one of three", _do, log, f"{where}.{number}") for number in range(3)])

    @node
    async def two(state: State[Seen], step: Step) -> Update:
        log, found = _enter(state, step), dict[str, str]()

        async def one(key: str) -> None:
            found[key] = await step.effect("one of two", _do, log, f"{path_text(state.path)}.{key}", key=key)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "a")
            tasks.start_soon(one, "b")
        return Update(seen=f"{state.values[0]} {found['a']} {found['b']}")

    join = Join("join")
    lanes = split.map(three >> two, over=_items, join=join, max_items=LANES)
    return Graph("fan", START >> split, lanes, join >> END, context=Seen)


# --- agents ----------------------------------------------------------------------------------------------------------


class Mind:
    """A model that calls some tools for some turns, then answers with all that it was told."""

    native_tools = True
    price = None

    def __init__(self, *turns: tuple[str, ...]) -> None:
        """Take what it calls in each turn."""
        self._turns = turns
        self.log: Log | None = None

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Call what is next, or answer."""
        assert self.log is not None
        where = f"{request.path}.{request.turn}"
        said = await self.log.do("model", where, where)
        if request.turn < len(self._turns):
            arguments = json.dumps({"objective": where} if self._turns[request.turn][0].startswith("ask_") else {})
            return ModelReply(said, tuple(ToolCall(name, arguments) for name in self._turns[request.turn]))
        told = [message.text for message in request.messages if message.role in {"assistant", "tool"}]
        return ModelReply("\n".join((*told, said)))


@tool
async def write(step: ToolStep) -> str:
    """Write something down."""
    return await step.resource(Log).do("effect", step.idempotency_key, f"{path_text(step.path)} {step.call_id}")


MINDS: Final = (
    Mind(("ask_left", "ask_right"), ("ask_left",)),
    Mind(("write", "write", "write"), ("write", "write"), ("write", "write", "write")),
)


def agents() -> Graph[Seen]:
    """A supervisor that asks two agents, one of them twice; each calls eight tools in three turns."""
    boss = Supervisor("boss", model=MINDS[0], into="seen")
    team = [Agent(name, model=MINDS[1], tools=[write], description=name) for name in ("left", "right")]
    return Graph("agents", START >> boss, boss.delegates(*team, max_hops=2), boss >> END, context=Seen)


SHAPES: Final[dict[str, Callable[[], Graph[Seen]]]] = {"chain": chain, "loop": loop, "fan": fan, "agents": agents}

WIDTH: Final = {"chain": 1, "loop": 1, "fan": 2 * LANES, "agents": 2 * 3}
"""How many effects of a shape are in flight at once at most."""
