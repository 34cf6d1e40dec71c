"""The laws of agents: whatever their models say, random teams of them end well, under every schedule."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from graphflow import (
    Agent,
    Approval,
    Budget,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    Result,
    ToolFailure,
    run_sync,
    start,
)
from graphflow.events import (
    AnswerGiven,
    Boundary,
    CancelRequested,
    EffectFinished,
    EffectStarted,
    Event,
    Fact,
    Failure,
    FrameClosed,
    FrameOpened,
    NodeEnded,
    NodeRetried,
    NodeStarted,
    Paused,
    Record,
    RunEnded,
    SleepRequested,
    TextDelta,
)
from graphflow.graphs.compiled import Edge
from graphflow.model.ids import Path, path_text
from graphflow.model.thread import Thread
from graphflow.persistence.lines import event_json, read_event
from graphflow.runtime.commands import CallModel, CallTool, CancelBody, CancelCall, Command
from graphflow.runtime.core import failure_of
from graphflow.testing import ManualClock, MemoryJournal, canonical_trace, fold_again
from tests.laws.accounts import Tally
from tests.laws.acting import roll
from tests.laws.agents import MARK, QUIET, Crew, Mind, Temper, brings, random_crew
from tests.laws.bounds import activation, excesses, overruns
from tests.laws.driver import Driver, World
from tests.laws.teams import Book
from tests.laws.test_cancellation import Watch, check, tasks_alive
from tests.support import SlowingJournal, SlowJournal, examples

SEEDS = st.integers(0, 2**48)
ENDED = {"completed", "partial", "failed", "cancelled"}
"""The ends after which no visit is open."""


# --- the driver ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Flight:
    """A call of a model or a tool that is under way."""

    command: CallModel | CallTool
    started: int
    cancelled: bool = False


class CrewDriver(Driver):
    """A driver that carries out the calls of agents too."""

    def __init__(self, crew: Crew, rng: random.Random, world: World | None = None) -> None:
        super().__init__(crew.graph, crew.author, rng, world)
        self.crew = crew
        self.flights: dict[tuple[Path, str], Flight] = {}
        self.requests: list[tuple[Path, ModelRequest]] = []

    def go(self, context: Context) -> "CrewDriver":
        """Run to an end; no call is under way then."""
        super().go(context)
        assert not self.flights, f"{list(self.flights)} are under way after the end"
        return self

    def give(self, fact: Fact) -> None:
        """Tell the fold a fact; an agent works while any of its calls does."""
        super().give(fact)
        working = sum(body.works for body in self.bodies.values()) + len({path for path, _ in self.flights})
        self.peak = max(self.peak, working)

    def _carry_out(self, command: Command) -> None:
        match command:
            case CallModel() | CallTool():
                key = (command.path, command.key)
                assert key not in self.flights, f"{key} is called twice at once"
                self.flights[key] = Flight(command, self.records[-1].seq)
                if isinstance(command, CallModel):
                    self.requests.append((command.path, command.request))
            case CancelCall():
                self.flights[command.path, command.key].cancelled = True
            case CancelBody() if command.path not in self.bodies:
                mine = [flight for (path, _), flight in self.flights.items() if path == command.path]
                assert mine, f"{path_text(command.path)} is cancelled, and does nothing"
                for flight in mine:
                    flight.cancelled = True
            case _:
                super()._carry_out(command)

    def _ways(self) -> list[Callable[[], None]]:
        return [*super()._ways(), *(partial(self._land, flight) for flight in self.flights.values())]

    def _land(self, flight: Flight) -> None:
        command = flight.command
        del self.flights[command.path, command.key]
        result, failure = self._brought(command)
        if flight.cancelled and self.rng.randrange(100) >= self.world.stubborn:
            result, failure = None, Failure("cancelled", "it was cancelled", (), "cancelled")
        self.give(EffectFinished(command.path, command.turn, command.attempt, command.key, result, failure))

    def _brought(self, command: CallModel | CallTool) -> tuple[object, Failure | None]:
        try:
            if isinstance(command, CallModel):
                said = cast("Mind", command.client).says(command.request)
                return (None, failure_of(said)) if isinstance(said, Exception) else (said, None)
            found = brings(self.crew, path_text(command.path), command.turn, command.key)
        except ValueError as error:
            return None, failure_of(error)
        if isinstance(found, ToolFailure):
            return None, Failure("graphflow.nodes.tools.ToolFailure", found.text, (), "declared")
        return "" if found is None else found if isinstance(found, str) else json.dumps(found), None

    def _answer(self, question: str) -> None:
        value = answer_to(self.crew, question, self.fold.questions[question].schema)
        self.give(AnswerGiven(question, value))


def answer_to(crew: Crew, question: str, schema: Any) -> object:
    """What a person answers: a text, a number, or what becomes of a call, one with other arguments perhaps."""
    dice = crew.dice("answer", question)
    said = [f"{MARK} {question}", dice.randrange(9)]
    edits = Approval.model_validate({"approve": True, "arguments": {"x": dice.choice((7, "many"))}})
    tried = [edits, dice.choice((True, False, f"no, {MARK}")), *said] if dice.randrange(3) == 0 else [True, *said]
    for value in tried if schema is not None else said:
        try:
            return TypeAdapter(schema).validate_python(value) if schema is not None else value
        except ValidationError:
            continue
    raise AssertionError(question)


def world(crew: Crew, rng: random.Random) -> World:
    """A random world: limits, hooks, cancellation, timers that are early or late, calls that will not stop."""
    own = crew.graph.budget or Budget()
    tight = Budget(
        tokens=rng.choice((300, 1000, 4000)), usd=rng.choice((None, "0.01")), node_runs=rng.choice((None, 20))
    )
    return World(
        budget=rng.choice((own, own, tight)),
        max_parallel=rng.choice((None, None, 1, 2)),
        hook=None if rng.randrange(5) else lambda path: "no" if roll(5, crew.seed, path_text(path)) == 0 else None,
        cancel=rng.randrange(rng.choice((20, 60, 200))) if rng.randrange(3) == 0 else None,
        hurry=rng.choice((2, 20)),
        stubborn=rng.choice((0, 30)),
    )


def ran(seed: int, *watches: Callable[[Driver, Record], None], temper: Temper | None = None) -> CrewDriver:
    """A random team of agents that has run under a random schedule."""
    rng = random.Random(seed)
    crew = random_crew(seed, temper)
    driver = CrewDriver(crew, rng, world(crew, rng))
    driver.watches += watches
    return driver.go(Book())


# --- the end ---------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(3000))
@given(SEEDS)
def test_every_run_ends(seed: int) -> None:
    """However its models answer, a run comes to an end, and then nothing is under way and nobody is asked."""
    driver = ran(seed)

    if driver.end.status in ENDED:
        assert driver.fold.questions == {}
        assert driver.fold.visits == {}


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_visits_and_effects_end_once(seed: int) -> None:
    """Every visit that started has one end, and every effect too, unless its visit was stopped before it began."""
    driver = ran(seed)

    assert list(loose_ends(driver.events)) == []


def loose_ends(events: Sequence[Event]) -> Iterator[str]:
    """Say which visits and effects did not end once."""
    closed = any(isinstance(event.body, RunEnded) and event.body.status in ENDED for event in events)
    started, ended = Counter[Path](), Counter[Path]()
    begun, finished = Counter[tuple[Path, int, str]](), Counter[tuple[Path, int, str]]()
    stopped, agents = set[Path](), set[Path]()
    for event in events:
        match event.body:
            case Boundary(path):
                agents.add(path)
            case NodeStarted(path):
                started[path] += 1
            case NodeEnded(path, status):
                ended[path] += 1
                stopped |= {path} if status != "completed" else set()
            case NodeRetried(path):
                stopped.add(path)
            case EffectStarted(path, turn, key):
                begun[path, turn, key] += 1
            case EffectFinished(path, turn, _, key):
                finished[path, turn, key] += 1
            case RunEnded(status):
                assert event is events[-1] or status == "waiting", "something happened after the end"
            case _:
                pass
    yield from (f"{path_text(path)} started {count} times" for path, count in started.items() if count != 1)
    yield from (f"{path_text(path)} ended {count} times" for path, count in ended.items() if count != 1)
    if closed:
        yield from (f"{path_text(path)} has no end" for path in started if path not in ended)
    for where, count in (begun | finished).items():
        if where[0] not in agents:
            continue  # a function's effects are told apart by its attempts
        open_ = not finished[where] and (where[0] in stopped or not closed)
        if begun[where] != finished[where] and not (open_ and count == 1):
            yield f"{where} began {begun[where]} times and ended {finished[where]} times"


# --- reports and results ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_one_report_for_each_delegation(seed: int) -> None:
    """A call that was opened is closed once, with a report unless its caller gave it up; none is closed twice."""
    driver = ran(seed)

    opened, gave_up = set[Path](), set[Path]()
    reports, ends = dict[Path, list[Any]](), dict[Path, str]()
    for event in driver.events:
        match event.body:
            case FrameOpened(edge=edge) if edge.kind == "delegate":
                opened.add(event.path)
            case FrameClosed(report=report):
                reports.setdefault(event.path, []).append(report)
            case NodeEnded(status=status):
                ends[event.path] = status
            case NodeRetried():  # what the failed attempt had asked for is cancelled
                gave_up.add(event.path)
            case _:
                pass
    ended = driver.end.status in ENDED
    gave_up |= {path for path, status in ends.items() if status != "completed"}
    for path in opened:
        found = reports.get(path, [])
        assert len(found) == 1 or (not found and not ended)
        if found == [None]:  # it was cancelled, and the caller does not wait for it
            assert path[:-1] in gave_up
        else:
            assert all(isinstance(report, BaseModel) for report in found)


class Answers:
    """Compares what a model called with the results that its next request shows."""

    def __init__(self) -> None:
        self.called: dict[Path, tuple[int, tuple[str, ...]]] = {}

    def __call__(self, driver: Driver, record: Record) -> None:
        """Remember what was called; a turn that is tried again begins anew."""
        fact = record.fact
        if isinstance(fact, EffectFinished) and fact.key == "model" and isinstance(fact.result, ModelReply):
            self.called[fact.path] = (fact.turn, tuple(call.name for call in fact.result.calls))
        for decision in record.decisions:
            if isinstance(decision, NodeRetried):
                self.called.pop(decision.path, None)
        for path, request in cast("CrewDriver", driver).requests:
            turn, names = self.called.pop(path, (-1, ()))
            if request.turn == turn + 1 and names and request.decision == "native":
                told = [message for message in request.messages if message.calls][-1]
                assert tuple(call.name for call in told.calls) == names
        cast("CrewDriver", driver).requests.clear()


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_every_call_is_shown_with_its_result(seed: int) -> None:
    """The request after a reply shows all that the reply called, in that order."""
    ran(seed, Answers())


@settings(max_examples=examples(3000))
@given(SEEDS)
def test_every_call_is_answered_once_in_every_request(seed: int) -> None:
    """In all that a model is ever shown, each call has one result, right behind it, and no two calls share an id."""
    driver = ran(seed)

    for _, request in driver.requests:
        assert whole(request.messages) == []


def whole(thread: Thread) -> list[str]:
    """Say which calls are not answered once, and which results have no call."""
    wanted: list[str] = []
    seen: list[str] = []
    wrong: list[str] = []
    for message in thread:
        if message.role == "tool":
            if not wanted or message.answers != wanted.pop(0):
                wrong.append(f"{message.answers!r} is answered where it was not called")
        elif wanted:
            wrong.append(f"{wanted} are not answered")
            wanted = []
        wanted += [call.id for call in message.calls]
        seen += [call.id for call in message.calls]
    wrong += [f"{id_!r} stands {count} times" for id_, count in Counter(seen).items() if count > 1]
    return wrong + [f"{id_!r} has no result" for id_ in wanted]


class Threads:
    """Looks at the root's thread, and at what is said of what crosses to an agent."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}
        self.before: Thread = ()

    def __call__(self, driver: Driver, record: Record) -> None:
        """Look at what a record has added."""
        thread = driver.fold.thread
        assert thread[: len(self.before)] == self.before
        assert whole(thread) == []
        self.before = thread
        for decision in record.decisions:
            if isinstance(decision, Boundary):
                self.sizes[decision.path] = decision.bytes
                ranges = sorted((*decision.crossed, *decision.dropped))
                positions = [position for first, last in ranges for position in range(first, last + 1)]
                assert positions == list(range(len(positions)))
        for path, request in cast("CrewDriver", driver).requests:
            size = self.sizes.pop(path, None)
            if size is not None and request.turn == 0 and request.decision == "native":
                assert sum(message.size for message in request.messages) == size
        cast("CrewDriver", driver).requests.clear()


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_threads_only_grow_and_are_whole(seed: int) -> None:
    """A thread only grows, its calls have their results, and each message has crossed to an agent or has not."""
    ran(seed, Threads())


@settings(max_examples=examples(300))
@given(SEEDS)
def test_a_chat_goes_on(seed: int) -> None:
    """A run after another goes on with its thread: what it had stays, and every call in it stays answered once."""
    crew = random_crew(seed, CHATTY)
    models = {cast("Mind", agent.model) for agent in crew.agents.values()}
    results: list[Result[Book]] = []
    with suppress(ValueError):  # of a model or a node; it ends a run and the chat
        for number in range(3):
            context = Book(task=f"message {number}")
            results.append(run_sync(crew.graph, context, clock=ManualClock(), after=results[-1] if results else None))

    for model in models:
        for request in model.requests:
            assert whole(request.messages) == []
    for one, other in pairwise(results):
        assert other.thread[: len(one.thread)] == one.thread
        assert (other.spent.total.model_calls or 0) >= (one.spent.total.model_calls or 0)


CHATTY = Temper(people=0, pauses=0, raises=0, breaks=0, bounds=False, size=6)


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_nothing_that_was_said_reaches_a_system_text(seed: int) -> None:
    """What agents, tools, nodes and people say is never in the system text, the tools or the schema of a request."""
    driver = ran(seed)

    for _, request in driver.requests:
        assert MARK not in request.system + request.schema_json + repr(request.tools)


class Rights:
    """Looks at every tool that runs: rights, denials and approvals hold for it, whoever is above."""

    def __init__(self) -> None:
        self.edges: dict[tuple[Path, object], Edge] = {}
        self.allowed: set[str] = set()

    def __call__(self, driver: Driver, record: Record) -> None:
        """Remember over which edges frames were opened and what was approved, then look at what starts."""
        root, fact = driver.graph, record.fact
        if isinstance(fact, AnswerGiven) and isinstance(fact.value, Approval) and fact.value.approve:
            self.allowed.add(fact.question)
        for decision in record.decisions:
            if isinstance(decision, FrameOpened) and decision.edge.kind == "delegate":
                compiled = activation(root, decision.path[:-1]).graph.compiled
                edge = next(found for found in compiled.edges() if found.name == decision.edge)
                self.edges[decision.path[:-1], decision.path[-1].call] = edge
        running = cast("CrewDriver", driver).flights.values()
        tools = [flight.command for flight in running if isinstance(flight.command, CallTool)]
        line = Counter(command.path for command in tools if command.tool.sequential)
        assert set(line.values()) <= {1}, "sequential tools run at once"
        for flight in running:
            if isinstance(flight.command, CallTool) and flight.started == record.seq:
                self.look(root, flight.command)

    def look(self, root: Graph[Any], command: CallTool) -> None:
        """See that a tool may run."""
        path, tool = command.path, command.tool
        allowed: frozenset[str] | None = None
        denies: list[Any] = []
        for depth in range(1, len(path) + 1):
            edge = self.edges.get((path[: depth - 1], path[depth - 1].call))
            if path[depth - 1].call is not None and edge is not None and edge.contract is not None:
                allowed = None if allowed is None else allowed | frozenset(edge.contract.grant)
            node = activation(root, path[:depth]).graph.compiled.stations[path[depth - 1].name].node
            if isinstance(node, Agent):
                allowed = (
                    allowed if node.rights is None else node.rights & (node.rights if allowed is None else allowed)
                )
                denies += [] if node.deny is None else [node.deny]
        assert allowed is None or tool.name in allowed
        assert not any(deny(tool.name, command.arguments) for deny in denies)
        position = command.key.partition(".")[0]
        assert not tool.approval or f"{path_text(path)}?{command.turn}.{position}" in self.allowed


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_no_tool_runs_that_may_not(seed: int) -> None:
    """A tool runs only with the rights of all above it or a grant, undenied, approved, and in its turn."""
    ran(seed, Rights(), temper=LIMITED)


LIMITED = Temper(people=40, garbage=3, breaks=1, raises=1, size=10, acts=85, limits=60, bounds=False)


# --- bounds and accounts ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_no_bound_is_exceeded(seed: int) -> None:
    """No turn, tool call, hop, visit, handoff or level of depth is one too many, and no agent works over the limit."""
    driver = ran(seed)

    assert list(overruns(driver.graph, driver.events)) == []
    assert list(too_many_calls(driver)) == []
    assert driver.world.max_parallel is None or driver.peak <= driver.world.max_parallel


def too_many_calls(driver: CrewDriver) -> Iterator[str]:
    """Say which agents and tools were called more often than they may be in one visit."""
    counts, tools = Counter[tuple[Path, bool]](), Counter[tuple[Path, str]]()
    for event in driver.events:
        if isinstance(event.body, EffectStarted):
            path, _, key, name = event.body.path, event.body.turn, event.body.key, event.body.name
            agent = activation(driver.graph, path).graph.compiled.stations[path[-1].name].node
            if not isinstance(agent, Agent):
                continue
            counts[path, key == "model"] += 1
            most = agent.max_turns if key == "model" else agent.max_tool_calls
            if counts[path, key == "model"] > most:
                yield f"{path_text(path)} has {counts[path, key == 'model']} calls of {name}, and may have {most}"
            tools[path, name] += key != "model" and "." not in key
            limit = next((found.max_calls for found in agent.tools if found.name == name), None)
            if limit is not None and tools[path, name] > limit:
                yield f"{path_text(path)} called {name} {tools[path, name]} times, which allows {limit}"


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_no_run_exceeds_the_worst_case(seed: int) -> None:
    """What is proved before the run holds in it: model calls, tool calls, node runs, depth, what works at once."""
    driver = ran(seed)

    assert list(excesses(driver.graph, driver.events, driver.peak, driver.world.budget)) == []


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_every_account_balances_at_every_record(seed: int) -> None:
    """Where models keep to what they may use, nothing is overspent, and what is reserved is what is in flight."""
    tally = Tally()
    driver = ran(seed, tally)

    assert driver.fold.root is not None
    if driver.end.status in ENDED:
        assert not any(driver.fold.root.meter.reserved)
        assert driver.fold.root.meter.spent == tally.amounts
    by_node = driver.fold.spending().values()
    assert [sum(amounts) for amounts in zip(*by_node, strict=True)] == (tally.amounts if by_node else [])


class Overshoot:
    """Watches what is free: it goes below zero by no more than what a reply used over its reservation."""

    def __init__(self) -> None:
        self.reserved: dict[tuple[Path, int, str], int] = {}
        self.over = 0

    def __call__(self, driver: Driver, record: Record) -> None:
        """Look at the root's tokens after a record."""
        root = driver.fold.root
        assert root is not None
        free = root.meter.free(4)
        fact = record.fact
        if isinstance(fact, EffectFinished):
            reserved = self.reserved.pop((fact.path, fact.turn, fact.key), 0)
            usage = fact.result.usage if isinstance(fact.result, ModelReply) else None
            used = 0 if usage is None else usage.input_tokens + usage.output_tokens
            self.over += max(used - reserved, 0)
        for decision in record.decisions:
            if isinstance(decision, EffectStarted) and decision.reserved is not None and decision.reserved.tokens:
                self.reserved[decision.path, decision.turn, decision.key] = decision.reserved.tokens
                assert free is None or free >= 0, "it was allowed although nothing was left"
        assert free is None or free + self.over >= 0


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_what_is_overspent_is_only_what_replies_took(seed: int) -> None:
    """A reply that uses more than was reserved is paid all the same, and nothing starts before that is made up for."""
    ran(seed, Overshoot(), temper=Temper(lies=40, breaks=0, garbage=0, bounds=False))


# --- facts and decisions ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_recorded_facts_fold_to_the_same_decisions(seed: int) -> None:
    """Folding the facts of a run again gives the same decisions, end, context and thread."""
    driver = ran(seed)

    again = fold_again(driver.graph, driver.records)

    assert again.ended == driver.end
    assert (again.context, again.output, again.thread) == (driver.fold.context, driver.fold.output, driver.fold.thread)
    assert again.spending() == driver.fold.spending()


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_events_survive_json(seed: int) -> None:
    """Whatever a model says, each event is one line of JSON that reads back as that event."""
    for event in ran(seed).events:
        line = event_json(event)
        read = read_event(line)
        assert (read.seq, read.kind, read.path) == (event.seq, event.kind, event.path)
        assert json.loads(event_json(read)) == json.loads(line)


# --- timing ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(1000))
@given(SEEDS)
def test_every_schedule_gives_one_run(seed: int) -> None:
    """Where timing is no part of what was declared, whoever answers first, trace, end and thread are the same."""
    crew = random_crew(seed, QUIET)

    runs = [CrewDriver(crew, random.Random(schedule)).go(Book()) for schedule in range(4)]

    assert len({canonical_trace(driver.events) for driver in runs}) == 1
    assert len({repr(driver.end) for driver in runs}) == 1
    assert len({(driver.fold.context, driver.fold.thread, driver.fold.active) for driver in runs}) == 1


@settings(max_examples=examples(300))
@given(SEEDS)
def test_both_backends_give_one_run(seed: int) -> None:
    """However long tools take, and on either backend, a real run leaves one trace, one context and one thread."""
    crew = random_crew(seed, QUIET)
    found = set[object]()
    for backend, tempo in (("asyncio", 0), ("trio", 1)):
        events: list[Event] = []
        crew.tempo = tempo
        ending: object
        try:
            result = run_sync(crew.graph, Book(), backend=backend, clock=ManualClock(), listeners=[events.append])
            ending = (result.context, result.thread, result.active, repr(result.reason))
        except ValueError as error:  # of a model or a node; it ended the run
            ending = repr(error)
        found.add(
            (canonical_trace(event for event in recorded(events) if not isinstance(event.body, SleepRequested)), ending)
        )

    assert len(found) == 1


def recorded(events: Sequence[Event]) -> list[Event]:
    """The events that a journal would keep."""
    return [event for event in events if not isinstance(event.body, TextDelta)]


# --- people, and the end by force ------------------------------------------------------------------------------------

ASKING = Temper(people=70, pauses=15, raises=0, garbage=3, size=10, bounds=False)


class Asking:
    """Watches that a run waits for people only when nothing else is left to do."""

    def __call__(self, driver: Driver, record: Record) -> None:
        """Look at the runs that wait, and at the questions that are open."""
        asked = [decision.question for decision in record.decisions if isinstance(decision, Paused)]
        assert len(set(asked)) == len(asked)
        if any(isinstance(decision, RunEnded) and decision.status == "waiting" for decision in record.decisions):
            assert driver.fold.questions
            assert not driver.bodies
            assert not cast("CrewDriver", driver).flights


@settings(max_examples=examples(1500))
@given(SEEDS)
def test_questions_are_answered_in_any_order(seed: int) -> None:
    """Whoever is asked, at any depth, answers come in any order, and a run waits only when nothing else goes on."""
    driver = ran(seed, Asking(), temper=ASKING)

    asked = Counter(event.body.question for event in driver.events if isinstance(event.body, Paused))
    answered = Counter(event.body.question for event in driver.events if isinstance(event.body, AnswerGiven))
    assert set(asked.values()) | set(answered.values()) <= {1}
    assert set(answered) <= set(asked)


def options(seed: int, *listeners: Callable[[Event], None]) -> dict[str, Any]:
    """What a real run gets: a journal or not, a limit or not, a budget or not, and time that is virtual."""
    return {
        "clock": ManualClock(),
        "journal": (None, MemoryJournal(), None, SlowJournal(), None, SlowingJournal())[seed % 6],
        "max_parallel": (None, 1, 3)[seed % 3],
        "budget": Budget(tokens=300) if seed % 5 == 0 else None,
        "listeners": list(listeners),
    }


@settings(max_examples=examples(700))
@given(SEEDS, st.integers(0, 80))
async def test_cancelling_a_real_run(seed: int, point: int) -> None:
    """A real run whose questions are answered in any order may be cancelled at any event, and no task is left."""
    before = tasks_alive()
    crew, rng = random_crew(seed, None if seed % 2 else ASKING), random.Random(seed)
    watch = Watch(point, lambda: running.cancel())  # noqa: PLW0108 - the handle is there when the event is
    heard = Watch(1_000_000, lambda: None)
    with anyio.fail_after(60):
        try:
            async with start(crew.graph, Book(), **options(seed, watch, heard)) as running:
                result = await running.result()
                while result.status == "waiting":
                    asked = rng.choice(result.questions)
                    running.answer(asked.id, answer_to(crew, asked.id, asked.schema))
                    result = await running.result()
        except ValueError:
            assert not any(isinstance(event.body, CancelRequested) for event in watch.events)

    events = recorded(watch.events)
    check(events)
    assert list(loose_ends(events)) == []
    assert tasks_alive() == before
