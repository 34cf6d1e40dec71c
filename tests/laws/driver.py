"""A scripted world around the fold: it carries out commands in a random order, and there is no event loop.

A body is a generator. It yields what it asks for, all at once, and is sent what became of that; it returns or raises
what the node returns or raises. `Driver.go` picks at random what happens next (a body goes on, an effect ends, a timer
fires, a person answers), so one seed is one schedule.

A driver that is given rows to write takes a run up again from them, as a new process does: `Driver.take_up`.
"""

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from graphflow.errors import BoundHit, EffectKeyRequired
from graphflow.events import (
    EDITION,
    AnswerGiven,
    BudgetAdded,
    CancelRequested,
    EffectFinished,
    EffectRequested,
    Event,
    Fact,
    HookAnswered,
    NodeReturned,
    Record,
    Row,
    RunEnded,
    RunStarted,
    SessionStarted,
    SleepRequested,
    TimerFired,
)
from graphflow.graphs.graph import Graph
from graphflow.model.budget import Budget
from graphflow.model.context import Context
from graphflow.model.ids import Path, path_text
from graphflow.model.state import State
from graphflow.nodes.function import Step
from graphflow.runtime.advance import Fold
from graphflow.runtime.commands import (
    AskHook,
    CancelBody,
    Command,
    DropTimer,
    GoOn,
    RefuseEffect,
    SetTimer,
    StartBody,
)
from graphflow.runtime.core import failure_of
from graphflow.runtime.recall import Asked as Remembered
from graphflow.runtime.recall import Memory, Recall
from graphflow.runtime.rows import Rows
from graphflow.runtime.stored import Folded

MOST_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Effect:
    """What a body asks to do outside, at which cost, and what that really uses."""

    key: str
    cost: Budget | None = None
    usage: Budget | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """How long a body asks to sleep."""

    key: str
    seconds: float


Asked: TypeAlias = tuple[Effect | Sleep, ...]
Answers: TypeAlias = Mapping[str, Exception | None]
"""What became of each request: None is good, an exception is what a refused one raises in a node."""
Play: TypeAlias = Generator[Asked, Answers, object]
Author: TypeAlias = Callable[[StartBody], Play]
"""Gives the body of an attempt. It must be a pure function of state, turn and attempt."""


@dataclass(slots=True)
class Body:
    """A body at work.

    Attributes:
        command: what started it.
        play: what it does.
        asked: what the fold has not answered yet.
        flying: its effects under way.
        answers: what it is told when it goes on.
        begun: whether it has asked for anything.
        cancelled: whether it is to stop.
        memory: what it had asked before its process ended.
        early: what the fold answers before it has asked again.
    """

    command: StartBody
    play: Play
    asked: dict[str, Effect | Sleep] = field(default_factory=dict[str, Effect | Sleep])
    flying: dict[str, Effect] = field(default_factory=dict[str, Effect])
    answers: dict[str, Exception | None] = field(default_factory=dict[str, Exception | None])
    begun: bool = False
    cancelled: bool = False
    memory: Memory | None = None
    early: dict[str, GoOn | RefuseEffect] = field(default_factory=dict[str, GoOn | RefuseEffect])

    @property
    def free(self) -> bool:
        """Whether it waits for nothing."""
        return not self.asked and not self.flying

    @property
    def works(self) -> bool:
        """Whether it needs a slot: it neither sleeps nor waits for funds, nor asks for what it had asked already."""
        return bool(self.flying) or (self.free and not (self.memory is not None and self.memory.asked))


@dataclass(slots=True)
class World:
    """How a run is scripted, beside its bodies.

    Attributes:
        budget: of the run.
        max_parallel: of the run.
        hook: answers the hook of a path, if the run has one.
        answer: gives a person's answer to a question; by default it repeats the question's id.
        cancel: the number of the record after which somebody cancels the run, or None.
        hurry: how likely a timer fires though something else could happen, in percent.
        stubborn: how likely a cancelled body returns as if it had not been, in percent.
    """

    budget: Budget = field(default_factory=Budget)
    max_parallel: int | None = None
    hook: Callable[[Path], str | None] | None = None
    answer: Callable[[str], object] = str
    cancel: int | None = None
    hurry: int = 10
    stubborn: int = 0


Watch: TypeAlias = Callable[["Driver", Record], None]


class Driver:
    """Drives one run of one fold under one schedule."""

    def __init__(
        self,
        graph: Graph[Any],
        author: Author,
        rng: random.Random,
        world: World | None = None,
        rows: Rows | None = None,
    ) -> None:
        """Take what is driven; with `rows`, what is recorded is written as a journal would keep it."""
        self.graph, self.author, self.rng, self.rows = graph, author, rng, rows
        self.world = world or World()
        self.fold = Fold(graph)
        self.at = 0.0
        self.records: list[Record] = []
        self.stored: list[Row] = []
        self.recall: Recall | None = None
        self.answered: set[str] = set()
        self.bodies: dict[Path, Body] = {}
        self.hooks: list[Path] = []
        self.timers: dict[int, float] = {}
        self.watches: list[Watch] = []
        self.peak = 0

    # --- what came out ---

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        return [event for record in self.records for event in record.events("run")]

    @property
    def end(self) -> RunEnded:
        """How the run ended."""
        ended: RunEnded | None = self.fold.ended
        assert ended is not None
        return ended

    # --- going ---

    def go(self, context: Context) -> "Driver":
        """Run to an end; a question is answered, so that "waiting" is none."""
        world = self.world
        hooked, name = world.hook is not None, self.graph.name
        most, budget = world.max_parallel, world.budget
        self.give(RunStarted("run", name, "", context, budget, most, hooked, 0.0, edition=EDITION))
        return self.go_on()

    def take_up(self, folded: Folded, stored: Sequence[Row], *facts: Fact) -> "Driver":
        """Go on with a run that was broken off after some rows and has been folded again, and run to an end."""
        assert folded.records is not None
        self.fold, self.recall, self.at = folded.fold, folded.recall, folded.at
        self.records, self.stored = list(folded.records), list(stored)
        if self.rows is not None:
            self.rows.follow(stored[-1])
        self.answered = {record.fact.question for record in self.records if isinstance(record.fact, AnswerGiven)}
        for fact in (SessionStarted(0.0, ""), *facts) if facts or self._open() else ():
            self.give(fact)
        return self.go_on()

    def go_on(self) -> "Driver":
        """Run to an end."""
        world = self.world
        while self._open():
            assert len(self.records) < MOST_RECORDS, "the run does not end"
            if world.cancel is not None and len(self.records) > world.cancel:
                world.cancel = None
                self.give(CancelRequested("a test"))
            else:
                self._next()
        assert not self.bodies, f"{list(self.bodies)} run on after the end"
        return self

    def _open(self) -> bool:
        return self.fold.ended is None or self.fold.ended.status == "waiting"

    def give(self, fact: Fact) -> None:
        """Tell the fold a fact, record it, and do as it says."""
        text = ""
        if self.rows is not None:
            fact, text = self.rows.storable(fact)
        decisions, commands = self.fold.advance(fact, self.at)
        seq = self.records[-1].seq + 1 + len(self.records[-1].decisions) if self.records else 0
        record = Record(seq, self.at, fact, tuple(decisions))
        self.records.append(record)
        if self.rows is not None:
            self.stored.append(self.rows.row(seq, self.at, text, decisions))
        for command in commands:
            # What was being stopped when its process ended is over at once in the next, perhaps after it is stopped.
            # So is what returned while the run stood still, if what returned before it stops it as the run goes on.
            over = isinstance(command, CancelBody) and command.path not in self.fold.visits
            if not (over and isinstance(fact, SessionStarted | BudgetAdded)):
                self._carry_out(command)
        self.peak = max(self.peak, sum(body.works for body in self.bodies.values()))
        for watch in self.watches:
            watch(self, record)

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartBody():
                assert command.path not in self.bodies, f"{path_text(command.path)} runs twice at once"
                taken = (command.path, command.turn, command.attempt)
                memory = None if self.recall is None else self.recall.take(*taken)
                self.bodies[command.path] = Body(command, self.author(command), memory=memory)
            case CancelBody():
                self.bodies[command.path].cancelled = True
            case AskHook():
                self.hooks.append(command.path)
            case GoOn() | RefuseEffect():
                self._answered(command)
            case SetTimer():
                self.timers[command.timer] = command.at
            case DropTimer():
                self.timers.pop(command.timer, None)
            case _:
                pass  # task groups: there are none here

    def _answered(self, command: GoOn | RefuseEffect) -> None:
        body = self.bodies[command.path]
        if command.key not in body.asked:
            assert body.memory is not None, f"{path_text(command.path)} has not asked for {command.key!r}"
            body.early[command.key] = command
            return
        request = body.asked.pop(command.key)
        if isinstance(command, RefuseEffect):
            body.answers[command.key] = _refusal(command)
        elif isinstance(request, Effect):
            body.flying[command.key] = request
        else:
            body.answers[command.key] = None

    # --- what happens next ---

    def _next(self) -> None:
        self.at += self.rng.choice((0.0, 0.0, 0.001, 0.01))
        ways = self._ways()
        if self.timers and (not ways or self.rng.randrange(100) < self.world.hurry):
            self._fire()
            return
        assert ways, f"nothing runs, nothing waits, and the run has not ended: {self.records[-1]}"
        self.rng.choice(ways)()

    def _ways(self) -> list[Callable[[], None]]:
        ways: list[Callable[[], None]] = []
        for body in self.bodies.values():
            if body.cancelled:
                ways.append(partial(self._reap, body))
            elif body.free:
                ways.append(partial(self._step, body))
            ways += [partial(self._finish, body, key) for key in body.flying]
        ways += [partial(self._hook, path) for path in self.hooks]
        ways += [partial(self._say, question) for question in sorted(self.fold.questions.keys() - self.answered)]
        return ways

    def _say(self, question: str) -> None:
        self.answered.add(question)
        self._answer(question)

    def _fire(self) -> None:
        timer = min(self.timers, key=lambda timer: (self.timers[timer], timer))
        self.at = max(self.at, self.timers.pop(timer))
        self.give(TimerFired(timer))

    def _answer(self, question: str) -> None:
        self.give(AnswerGiven(question, self.world.answer(question)))

    def _hook(self, path: Path) -> None:
        assert self.world.hook is not None
        self.hooks.remove(path)
        self.give(HookAnswered(path, self.world.hook(path)))

    def _reap(self, body: Body) -> None:
        """End a cancelled body; a stubborn one returns as if nothing had been."""
        stubborn = self.rng.randrange(100) < self.world.stubborn
        self._returned(body, outcome="stubborn" if stubborn else None, cancelled=not stubborn)

    def _returned(self, body: Body, **what: Any) -> None:
        command = body.command
        body.play.close()
        del self.bodies[command.path]
        self.give(NodeReturned(command.path, command.turn, command.attempt, **what))

    def _step(self, body: Body) -> None:
        answers, body.answers = body.answers, {}
        try:
            asked = body.play.send(answers) if body.begun else next(body.play)
        except StopIteration as stop:
            self._returned(body, outcome=stop.value)
            return
        except BoundHit as error:
            self._returned(body, failure=failure_of(error, error.bound, float(str(error.limit))))
            return
        except Exception as error:  # noqa: BLE001 - whatever a body raises is a fact
            self._returned(body, failure=failure_of(error))
            return
        body.begun = True
        body.asked = {request.key: request for request in asked}
        for request in asked:
            if not body.cancelled:  # the fold may cancel it while it asks for several things
                self._ask(body, request)

    def _ask(self, body: Body, request: Effect | Sleep) -> None:
        command = body.command
        where = (command.path, command.turn, command.attempt, request.key)
        fact: SleepRequested | EffectRequested
        if isinstance(request, Sleep):
            fact = SleepRequested(*where, request.seconds)
        else:
            fact = EffectRequested(*where, f"effect {request.key}", "", request.cost)
        known = None if body.memory is None else body.memory.asked.pop(request.key, None)
        if known is None:
            self.give(fact)
        else:
            known.check(fact)
            self._ask_again(body, request.key, known)

    def _ask_again(self, body: Body, key: str, known: Remembered) -> None:
        """Ask for what was asked before the process ended: it is not recorded again."""
        answer = known.answer or body.early.pop(key, None)
        if known.finished is not None:
            del body.asked[key]
            body.answers[key] = None
        elif answer is not None:
            self._answered(answer)

    def _finish(self, body: Body, key: str) -> None:
        command, effect = body.command, body.flying.pop(key)
        body.answers[key] = None
        self.give(EffectFinished(command.path, command.turn, command.attempt, key, usage=effect.usage))


def _refusal(command: RefuseEffect) -> Exception:
    if command.bound == "key":
        return EffectKeyRequired(path_text(command.path), command.key)
    return BoundHit(command.bound, limit=command.limit, wanted=command.wanted, left=command.left)


def refused(answers: Answers) -> None:
    """Raise what a refused request raises in a node.

    Raises:
        BoundHit: if a bound refused it.
        EffectKeyRequired: if it had no key.
    """
    for answer in answers.values():
        if answer is not None:
            raise answer


async def performed(play: Play, step: Step) -> object:
    """Do for real, in a node's body, what a play asks for; return its outcome."""
    answers: dict[str, Exception | None] = {}

    async def perform(request: Effect | Sleep) -> None:
        try:
            if isinstance(request, Sleep):
                await step.sleep(request.seconds)
            else:
                key = None if request.key.isdigit() else request.key
                name, usage = f"effect {request.key}", None if request.usage is None else partial(_used, request.usage)
                await step.effect(name, checkpoint, key=key, cost=request.cost, usage=usage)
            answers[request.key] = None
        except (BoundHit, EffectKeyRequired) as error:
            answers[request.key] = error

    try:
        asked = next(play)
        while True:
            answers.clear()
            async with create_task_group() as tasks:
                for request in asked:
                    tasks.start_soon(perform, request)
            asked = play.send(dict(answers))
    except StopIteration as stop:
        return stop.value


def _used(usage: Budget, _result: object) -> Budget:
    return usage


def at_once(outcome: Callable[[State[Any]], object]) -> Author:
    """Give every attempt a body that asks for nothing."""

    def author(command: StartBody) -> Play:
        return _plain(outcome, command.state)

    return author


def _plain(outcome: Callable[[State[Any]], object], state: State[Any]) -> Play:
    yield from ()
    return outcome(state)
