"""Random teams with agents in them, and models that say anything at all.

What a model says and what a tool brings is a pure function of the seed and of where they stand, as for the nodes of
`acting`. Every text that comes from somewhere else than the definition has the mark, so that it is found where it must
not be.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Literal, cast

from anyio.lowlevel import checkpoint
from pydantic import BaseModel, ConfigDict

from graphflow import (
    Agent,
    AskUser,
    Brief,
    Human,
    ModelReply,
    ModelRequest,
    Node,
    Price,
    Report,
    State,
    Supervisor,
    ThreadMessage,
    Tool,
    ToolCall,
    ToolFailure,
    ToolStep,
    Usage,
    last,
    ping_pong,
    repetition,
    tool,
)
from graphflow.model.ids import path_text
from graphflow.nodes.client import Stream
from graphflow.nodes.detect import Detector
from graphflow.nodes.function import FunctionNode
from tests.laws.acting import Mood, Part, Team, roll
from tests.laws.teams import _Maker  # pyright: ignore[reportPrivateUsage] - agents stand in its blocks

MARK = "§"
"""Stands in every text that a model, a tool, a person or a node says."""

POOL = ("look", "write", "pay", "count")
"""The names of tools: agents share them, so that rights and grants mean something."""


@dataclass(frozen=True, slots=True)
class Temper(Mood):
    """How agents behave beside the nodes around them, in percent.

    Attributes:
        agents: nodes that are agents.
        acts: replies that call something, while a visit is young.
        garbage: replies that make no sense.
        breaks: calls of a model that raise.
        fails: calls of a tool that fail.
        people: tools that need a person.
        lies: replies that use more than was reserved for them.
        loud: tools that may fail their agent, time out, and be tried again.
        watched: whether graphs may have detectors.
        limits: agents with rights, agents that deny, edges that grant.
        teams: blocks that are a node with a team, more than there are anyway.
    """

    agents: int = 65
    acts: int = 70
    garbage: int = 10
    breaks: int = 4
    fails: int = 15
    people: int = 15
    lies: int = 0
    loud: int = 25
    watched: bool = True
    limits: int = 12
    teams: int = 20


OFF: dict[str, Any] = dict.fromkeys(("raises", "pauses", "plain", "fail_fast", "people", "loud"), 0)
QUIET = Temper(sleeps=30, policies=False, timeouts=False, bounds=False, **OFF)
"""Nothing in it gives timing a meaning."""


class Finding(BaseModel):
    """An answer of the user's own type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    said: str
    score: int = 0


class Task(Brief):
    """A brief of the user's own."""

    urgency: int


@dataclass(slots=True)
class Crew(Team):
    """A team with agents in it.

    Attributes:
        agents: its agents, by their names.
        briefs: what each of them writes to whom it delegates to.
    """

    agents: dict[str, Agent] = field(default_factory=dict[str, Agent])
    briefs: dict[str, type[Brief]] = field(default_factory=dict[str, type[Brief]])

    @property
    def temper(self) -> Temper:
        """How its agents behave."""
        return cast("Temper", self.mood)

    def dice(self, *where: object) -> random.Random:
        """Dice that always fall alike at one place."""
        return random.Random(roll(2**60, self.seed, ascii(where)))

    async def act(self, step: ToolStep, x: int = 0) -> object:
        """What every tool does, when it is run."""
        where = (path_text(step.path), step.call_id)
        slow = self.dice("slow", self.tempo, *where)
        step.emit(MARK)
        if slow.randrange(100) < self.temper.sleeps:
            await step.sleep(slow.choice((0.0, 0.01, 0.2)))
        for _ in range(slow.randrange(4)):
            await checkpoint()
        return brings(self, *where)


def random_crew(seed: int, temper: Temper | None = None) -> Crew:
    """A team with agents whose graph has no errors; some are tame, others break all the time."""
    if temper is None:
        temper = Temper(
            raises=(0, 0, 2, 10)[roll(4, seed, "raises")],
            fail_fast=(0, 30, 100)[roll(3, seed, "fail_fast")],
            bounds=roll(2, seed, "bounds") == 0,
            size=(3, 8, 16)[roll(3, seed, "size")],
            acts=(60, 85)[roll(2, seed, "acts")],
            garbage=(0, 3, 30)[roll(3, seed, "garbage")],
            breaks=(0, 0, 2, 12)[roll(4, seed, "breaks")],
            fails=(5, 40)[roll(2, seed, "fails")],
            people=(5, 50)[roll(2, seed, "people")],
            teams=(0, 60)[roll(2, seed, "teams")],
        )
    for attempt in range(1000):
        crew = Crew(roll(2**48, seed, attempt), temper)
        crew.graph = _CrewMaker(crew, random.Random(crew.seed), None, None).root()
        if crew.agents and not any(problem.severity == "error" for problem in crew.graph.check()):
            return crew
    raise AssertionError(seed)


# --- models ----------------------------------------------------------------------------------------------------------


class Mind:
    """A model that says what its crew's seed says."""

    def __init__(self, crew: Crew, *, native: bool, price: Price | None) -> None:
        self.crew, self.native_tools, self.price = crew, native, price
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Say something, after some turns of the loop."""
        self.requests.append(request)
        for _ in range(roll(6, request.path, request.turn, "slow")):
            await checkpoint()
        stream(MARK)
        said = self.says(request)
        if isinstance(said, Exception):
            raise said
        return cast("ModelReply", said)

    def says(self, request: ModelRequest) -> object:
        """What it says to a request: mostly a reply, else an exception to raise or something that is no reply."""
        temper, dice = self.crew.temper, self.crew.dice(request.path, request.turn)
        if dice.randrange(100) < temper.breaks:
            return ValueError(f"{MARK} the model is down")
        words = f"{MARK} {request.path}.{request.turn}"
        if dice.randrange(100) < temper.garbage:
            found = _garbage(self.crew, request, dice, words)
            if not isinstance(found, ModelReply):
                return found
            text, calls = found.text, found.calls
        else:
            acts = dice.randrange(100) < (temper.acts if request.turn < 3 else temper.acts // 3)
            calls = _some_calls(self.crew, request, dice, words) if acts else ()
            text = dice.choice(("", words)) if calls else _answer(self.crew, request, dice, words)
        if request.decision == "json" and dice.randrange(20):
            text, calls = _as_json(text, calls, dice), ()
        return ModelReply(text, calls, self._usage(request, dice))

    def _usage(self, request: ModelRequest, dice: random.Random) -> Usage | None:
        """Say what was used: never more than was reserved, unless it lies."""
        if not dice.randrange(12):
            return None
        reads, writes = dice.choice((0, 1, 5)), dice.randrange(request.max_tokens + 1)
        if dice.randrange(100) < self.crew.temper.lies:
            writes += 700
        usd = None if self.price is None else reads * self.price.input + writes * self.price.output
        return Usage(reads, writes, usd)


def _some_calls(crew: Crew, request: ModelRequest, dice: random.Random, words: str) -> tuple[ToolCall, ...]:
    """Calls of what the agent has: tools, its team, transfers, mixed as it comes."""
    agent, part = crew.agents[request.agent], crew.parts[request.agent]
    ways: list[Callable[[], ToolCall]] = [partial(_tool_call, found.name, dice, words) for found in agent.tools]
    asked = {"objective": words, **({"urgency": 1} if crew.briefs.get(agent.name) is Task else {})}
    ways += [partial(ToolCall, f"ask_{name}", json.dumps(asked)) for name in part.calls for _ in range(2)]
    ways += [partial(ToolCall, f"transfer_to_{name}", json.dumps({"note": words})) for name in part.handoffs]
    count = dice.choice((1, 1, 2, 3, 4))
    calls = [dice.choice(ways)() for _ in range(count)] if ways else []
    return tuple(_with_id(call, dice) for call in calls)


def _tool_call(name: str, dice: random.Random, words: str) -> ToolCall:
    given = {"question": words} if name == "ask_user" else {"x": dice.randrange(3)} if dice.randrange(3) else {}
    return ToolCall(name, json.dumps(given))


def _with_id(call: ToolCall, dice: random.Random) -> ToolCall:
    ids = ("", "", "same", "call_0_0", "call_0_0_2", "call_1_0", "\ud800", str(dice.randrange(9)))
    return ToolCall(call.name, call.arguments, dice.choice(ids))


def _garbage(crew: Crew, request: ModelRequest, dice: random.Random, words: str) -> object:
    """Something that makes no sense."""
    kind = dice.randrange(9)
    if kind == 0:
        return dice.choice((None, 42, words, {"text": words}))
    if kind == 1:
        return ModelReply(dice.choice(("", " \n")))
    if kind == 2:
        return ModelReply(dice.choice(("\ud800" + words, words * 4000, "```json\n{}\n```", "{" * 3000, "null")))
    named = [call.name for call in _some_calls(crew, request, dice, words)] or ["nothing"]
    names: Sequence[str] = named
    if kind == 3:
        names = [dice.choice(("nobody", "ask_nobody", "transfer_to_nobody", "", "\ud800", "x" * 500)) for _ in range(3)]
    elif kind == 4:
        names = [f"transfer_to_{request.agent}", f"ask_{request.agent}", *named]
    elif kind == 5:
        names = named * 15
    elif kind == 6:
        names = ["nobody", named[0], "nobody"]
    wrong = ("{", "[]", "null", '{"x": "many"}', '{"x": 1, "y": 2}', '{"note": 3}', '{"objective": null}', "[" * 2000)
    calls = tuple(_with_id(ToolCall(name, dice.choice((*wrong, "{}", "", "\ud800"))), dice) for name in names)
    return ModelReply(dice.choice(("", words)), calls)


def _answer(crew: Crew, request: ModelRequest, dice: random.Random, words: str) -> str:
    """An answer, mostly one that fits."""
    kind = crew.agents[request.agent].output
    if not dice.randrange(8):
        return dice.choice((words, "{}", '{"said": 3}', '{"finding": ""}', '{"status": "partial"}'))
    if kind is Finding or (kind is None and '"said"' in request.schema_json):
        return json.dumps({"said": words})
    if kind is Report and dice.randrange(2):
        status = dice.choice(("done", "done", "partial", "failed", "needs_input"))
        return json.dumps({"finding": words, "status": status, "reason": None if status == "done" else words})
    return words


def _as_json(text: str, calls: Sequence[ToolCall], dice: random.Random) -> str:
    """The same in constrained JSON, now and then cut off."""
    said: dict[str, object] = {"reason": text}
    if calls:
        said["calls"] = [{"tool": call.name, "arguments": _loaded(call.arguments)} for call in calls]
    elif dice.randrange(2):
        said["calls"] = [{"tool": "answer", "arguments": {"answer": _loaded(text)}}]
    else:
        said["answer"] = _loaded(text)
    made = json.dumps(said)
    return made[: len(made) // 2] if not dice.randrange(12) else made


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- tools -----------------------------------------------------------------------------------------------------------


def brings(crew: Crew, *where: object) -> object:
    """What a call of a tool brings.

    Raises:
        ValueError: now and then.
    """
    dice = crew.dice("tool", *where)
    if dice.randrange(100) >= crew.temper.fails:
        words = f"{MARK} {where}"
        return dice.choice((words, MARK, MARK, None, "", {"a": words}, "\ud800", words * 900))
    if dice.randrange(3):
        msg = f"{MARK} a tool raises"
        raise ValueError(msg)
    return ToolFailure(f"{MARK} no")


def _some_tools(crew: Crew, dice: random.Random) -> list[Tool | AskUser]:
    found: list[Tool | AskUser] = [_one_tool(crew, name, dice) for name in dice.sample(POOL, dice.randrange(4))]
    if dice.randrange(100) < crew.temper.people:
        found.append(AskUser(schema=dice.choice((str, int))))
    return found


def _one_tool(crew: Crew, name: str, dice: random.Random) -> Tool:
    temper, bounds = crew.temper, crew.mood.bounds
    options: dict[str, Any] = {"approval": dice.randrange(100) < temper.people, "sequential": not dice.randrange(4)}
    if options["approval"]:
        options["effect"] = dice.choice(("read", "irreversible"))
    if dice.randrange(100) < temper.loud:
        options["on_error"] = "raise"
    if dice.randrange(100) < temper.loud:
        options["retries"] = dice.randint(1, 2)
    if crew.mood.timeouts and dice.randrange(100) < temper.loud:
        options["timeout"] = dice.choice((0.01, 0.1))
    if bounds and not dice.randrange(6):
        options["max_calls"] = dice.randint(1, 2)
    return replace(ACT, name=name, fn=crew.act, **options)


ACT = tool(Crew(0, Temper()).act, name="act", description="Do it.")
"""What all tools are copies of: to read a signature takes longer than to make a team."""


# --- teams -----------------------------------------------------------------------------------------------------------


class _CrewMaker(_Maker):
    """Composes the same blocks, with agents among the nodes."""

    def __init__(self, crew: Crew, dice: random.Random, order: Any, names: Any) -> None:
        super().__init__(crew, dice, order, names)
        self.crew = crew
        prices = (None, Price(Decimal("0.00001"), Decimal("0.00002")))
        self.minds = [Mind(crew, native=native, price=price) for native in (True, True, False) for price in prices]
        self.recursive = False

    def _bounds(self, *, top: bool) -> dict[str, Any]:
        bounds = super()._bounds(top=top)
        if self.recursive:
            bounds.setdefault("max_depth", 3)
        if self.crew.temper.watched and self._one_in(2):
            bounds["detect"] = [self._detector() for _ in range(self.dice.randint(1, 2))]
        return bounds

    def _block(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        if size > 1 and self.dice.randrange(100) < self.crew.temper.teams:
            return self._delegator(size, depth)
        return super()._block(size, depth)

    def _detector(self) -> Detector:
        ways: tuple[Literal["warn", "note", "stop"], ...] = ("warn", "note", "note", "stop")
        then, limit = self.dice.choice(ways), self.dice.choice((1, 2, 3, 3, 4))
        if self._one_in(3):
            return ping_pong(limit, then=then)
        return repetition(limit, window=self.dice.choice((2, 20)), then=then)

    def _node(self, calls: tuple[str, ...] = (), handoffs: tuple[str, ...] = (), **options: Any) -> FunctionNode[Any]:
        temper, dice = self.crew.temper, self.dice
        if dice.randrange(100) >= temper.agents:
            return super()._node(calls, handoffs, **options)
        name = self._name()
        self.crew.parts[name] = Part(calls, handoffs)
        bounds = self.mood.bounds
        options.setdefault("retries", dice.choice((0, 0, 0, 1, 2)))
        if self.mood.timeouts and self._one_in(6):
            options["timeout"] = dice.choice((0.03, 0.5, 0.5))
        if bounds and self._one_in(6):
            options["max_visits"] = dice.choice((1, 3))
        output = dice.choice((None, None, str, Report, Finding)) if options.get("into") is None else None
        made = (Supervisor if calls and self._one_in(2) else Agent)(
            name,
            model=dice.choice(self.minds),
            instructions=dice.choice(("", "Be brief.", self._instructions())),
            tools=_some_tools(self.crew, dice),
            output=output,
            max_turns=dice.choice((1, 3, 5, 8)) if bounds else 8,
            max_tool_calls=dice.choice((0, 1, 3, 32)) if bounds else 99,
            repairs=dice.choice((0, 1, 1, 3)),
            history=self._history(),
            max_tokens=dice.choice((1, 30, 200)),
            rights=dice.sample(POOL, 2) if dice.randrange(100) < temper.limits else None,
            deny=self._deny() if dice.randrange(100) < temper.limits else None,
            **options,
        )
        self.crew.agents[name] = made
        return cast("FunctionNode[Any]", made)  # the blocks take any node, and say so of functions only

    def _instructions(self) -> Callable[[State[Any]], str]:
        raises, shift = self.mood.raises, self.dice.randrange(2**30)

        def instructions(state: State[Any]) -> str:
            if roll(100, shift, path_text(state.path)) < raises:
                raise ValueError(MARK)
            return f"You are {state.path[-1].name}."

        return instructions

    def _history(self) -> Any:
        def turned(thread: Sequence[ThreadMessage]) -> list[ThreadMessage]:
            return [*reversed(thread), *thread]

        def some(thread: Sequence[ThreadMessage]) -> list[ThreadMessage]:
            return [message for index, message in enumerate(thread) if index % 3]

        return self.dice.choice(("note", "note", "full", "summary", last(1), last(3), turned, some))

    def _deny(self) -> Callable[[str, Mapping[str, Any]], str | None]:
        shift = self.dice.randrange(2**30)

        def deny(name: str, arguments: Mapping[str, Any]) -> str | None:
            return MARK if roll(3, shift, name, sorted(arguments.items())) == 0 else None

        return deny

    def _caller(self, size: int, depth: int, levels: int) -> Node[Any]:
        """A node that delegates, an agent with a contract of its own for its team perhaps, and perhaps to itself."""
        team: list[Node[Any]] = []
        for _ in range(self.dice.randint(1, 3)):
            kind = self.dice.randrange(5)
            if kind == 0 and depth:
                team.append(self._nested(size, depth)[0])
            else:
                team.append(self._caller(size, depth, levels - 1) if kind == 1 and levels else self._callee())
        names = tuple(callee.name for callee in team)
        again = self._one_in(6)
        caller: Node[Any] = self._node((*names, self.names[self.count + 1]) if again else names)
        dice, bounds = self.dice, self.mood.bounds
        options: dict[str, Any] = {
            "max_hops": dice.randint(1, 4) if bounds else 9999,
            "share": dice.choice(("pool", "pool", "equal", 0.5)) if bounds else "pool",
            "timeout": dice.choice((0.3, 2.0)) if self.mood.timeouts and self._one_in(5) else None,
            "history": self._history(),
            "grant": dice.sample(POOL, 1) if dice.randrange(100) < self.crew.temper.limits else (),
        }
        if isinstance(caller, Agent) and self._one_in(4):
            self.crew.briefs[caller.name] = options["brief"] = Task
        report: type[BaseModel] = Finding if self._one_in(6) else Report
        into = "reports" if report is Report and self._one_in(4) else None
        if again:
            self.recursive = True
            team.append(caller)
        self.chains.append(caller.delegates(*team, report=report, into=into, **options))
        return caller

    def _callee(self) -> Node[Any]:
        return self._person() or super()._callee()

    def _person(self) -> Node[Any] | None:
        return Human(self._name(), schema=str) if self.mood.pauses and self._one_in(8) else None

    def _handoffs(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        """Two that hand over to each other, and a third that only receives, a person or a graph perhaps."""
        out: Node[Any] = self._node()
        last_one: Node[Any] = self._person() or (self._nested(size, depth)[0] if self._one_in(4) else self._node())
        two: Node[Any] = self._node(handoffs=(self.names[self.count + 2], last_one.name))
        one: Node[Any] = self._node(handoffs=(two.name, last_one.name))
        bound = 3 if not self.mood.bounds else self.dice.randint(0, 3)
        self.chains += [one.hands_off(two, last_one, max_hops=bound, history=self._history())]
        self.chains += [two.hands_off(one, last_one, max_hops=bound, history=self._history())]
        self.chains += [one >> out, two >> out, last_one >> out]
        return one, out
