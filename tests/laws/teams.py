"""Random teams: nested graphs, forks, maps, delegations, handoffs, loops, retries, error edges, people, budgets.

A team is a graph and what its nodes do, which is a pure function of the seed and of where they stand: path, turn and
attempt. So one team gives the same answers under every schedule.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from graphflow import (
    ALL,
    ANY,
    END,
    START,
    STRICT,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    Human,
    Join,
    Node,
    Pause,
    Report,
    State,
    Step,
    Update,
    add,
    append,
    first,
    fork,
    node,
    quorum,
    when,
)
from graphflow.errors import BoundHit
from graphflow.model.contract import Reason
from graphflow.model.ids import path_text
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from graphflow.runtime.commands import StartBody
from tests.laws.driver import Asked, Author, Effect, Play, Sleep, performed, refused


class Book(Context):
    """What teams read and write."""

    task: str = ""
    log: Annotated[tuple[str, ...], append] = ()
    total: Annotated[int, add] = 0
    reports: Annotated[tuple[Report, ...], append] = ()
    plain: str = ""


class Side(Context):
    """The context of a nested graph that has one of its own."""

    task: str = ""
    log: Annotated[tuple[str, ...], append] = ()
    reports: Annotated[tuple[Report, ...], append] = ()


@dataclass(frozen=True, slots=True)
class Mood:
    """What a team is made of, and how its nodes behave, in percent.

    Attributes:
        raises: attempts that raise.
        pauses: turns that ask a person.
        effects: attempts that do something outside.
        sleeps: attempts that sleep.
        plain: updates of the field that two branches may not both write.
        policies: whether joins may have other policies than "all".
        fail_fast: forks that cancel the others when one branch fails.
        timeouts: whether nodes and calls may have timeouts.
        bounds: whether graphs may have bounds and budgets that a run can hit.
        size: about how many nodes each graph has.
    """

    raises: int = 6
    pauses: int = 4
    effects: int = 40
    sleeps: int = 15
    plain: int = 5
    policies: bool = True
    fail_fast: int = 50
    timeouts: bool = True
    bounds: bool = True
    size: int = 7


CALM = Mood(
    raises=0, pauses=0, effects=40, sleeps=30, plain=0, policies=False, fail_fast=0, timeouts=False, bounds=False
)
"""Nothing in it gives timing a meaning."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a node may do beside giving an output."""

    calls: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    outside: bool = True


def roll(sides: int, *what: object) -> int:
    """Roll a die that always falls alike for the same things.

    >>> roll(6, "a") == roll(6, "a")
    True
    """
    text = "\0".join(map(str, what))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % sides


@dataclass(slots=True)
class Team:
    """A graph and what its nodes do.

    Attributes:
        seed: what they do is drawn from it.
        mood: how they behave.
        parts: what each node may do, by its name.
    """

    seed: int
    mood: Mood
    graph: Graph[Book] = field(init=False)
    parts: dict[str, Part] = field(default_factory=dict[str, Part])

    @property
    def author(self) -> Author:
        """Gives the bodies for a driver."""

        def author(command: StartBody) -> Play:
            return self.play(command.state, command.attempt)

        return author

    def play(self, state: State[Any], attempt: int = 0) -> Play:
        """What the body of an attempt does."""
        name, mood = state.path[-1].name, self.mood
        part = self.parts[name]
        dice = random.Random(roll(2**60, self.seed, path_text(state.path), state.turn, attempt))  # noqa: S311 - a schedule
        if part.outside:
            for _ in range(dice.choice((0, 1, 1, 2))):
                asked = _asked(dice, mood)
                if asked:
                    answers = yield asked
                    if dice.randrange(100) < 80:
                        refused(answers)
        if dice.randrange(100) < mood.raises:
            msg = f"{name} raises in turn {state.turn}"
            raise ValueError(msg)
        return self._outcome(state, part, dice)

    def _outcome(self, state: State[Any], part: Part, dice: random.Random) -> object:
        where = f"{path_text(state.path)}.{state.turn}"
        update = self._update(where, dice)
        if part.calls and dice.randrange(100) < (80 if state.turn == 0 else 25):
            return Delegate(*_calls(part, dice, where), update=update)
        if state.turn < 3 and dice.randrange(100) < self.mood.pauses:
            return Pause(f"what now, {where}?", update=update)
        if part.handoffs and dice.randrange(100) < 60:
            return Handoff(dice.choice(part.handoffs), note=where, update=update)
        if self.mood.raises and dice.randrange(100) < 3:
            return dice.choice((Report.failed(Reason(code="failed", text=where)), Update(nobody=1)))
        return Done(where, update)

    def _update(self, where: str, dice: random.Random) -> Update | None:
        fields: dict[str, Any] = {"log": where} if dice.randrange(2) else {}
        if dice.randrange(100) < self.mood.plain:
            fields["plain" if dice.randrange(2) else "task"] = where
        return Update(**fields) if fields else None


def _asked(dice: random.Random, mood: Mood) -> Asked:
    """Some things to ask for at once; several effects have keys."""
    count = dice.choice((1, 1, 1, 2, 3))
    found: list[Effect | Sleep] = []
    for index in range(count):
        if dice.randrange(100) < mood.effects:
            key = f"e{index}" if count > 1 else str(index)
            found.append(Effect(key, *_cost(dice)))
        elif dice.randrange(100) < mood.sleeps:
            found.append(Sleep(f"s{index}", dice.choice((0.0, 0.01, 0.1, 1.0))))
    return tuple(found)


def _cost(dice: random.Random) -> tuple[Budget | None, Budget | None]:
    """What an effect may cost, and what it really uses: mostly less."""
    kind = dice.randrange(4)
    if kind == 0:
        return None, None
    if kind == 1:
        return Budget(tool_calls=1), None
    tokens = dice.choice((0, 5, 40))
    used = dice.choice((None, 0, tokens // 2, tokens))
    usage = None if used is None else Budget(tokens=used, usd=f"0.{used:03d}")
    return Budget(model_calls=1, tokens=tokens, usd=f"0.{tokens:03d}"), usage


def _calls(part: Part, dice: random.Random, where: str) -> list[Call]:
    """One to four calls; some need the reports of earlier ones."""
    calls: list[Call] = []
    for index in range(dice.choice((1, 2, 2, 3, 4))):
        needs = tuple(f"c{earlier}" for earlier in range(index) if dice.randrange(4) == 0)
        to = "nobody" if dice.randrange(40) == 0 else dice.choice(part.calls)
        calls.append(Call(to, Brief(objective=f"{where} asks {index}"), id=f"c{index}", needs=needs))
    dice.shuffle(calls)
    return calls


# --- graphs ---


def random_team(seed: int, mood: Mood | None = None) -> Team:
    """A team whose graph has no errors; a third of them never raise, others do so now and then or often."""
    attempt = 0
    if mood is None:
        raises, size = (0, 4, 12)[roll(3, seed, "raises")], (6, 12, 24)[roll(3, seed, "size")]
        mood = Mood(raises=raises, size=size, bounds=roll(3, seed, "bounds") > 0)
    while True:
        team = Team(roll(2**48, seed, attempt), mood)
        team.graph = _Maker(team, random.Random(team.seed)).root()
        if not any(problem.severity == "error" for problem in team.graph.check()):
            return team
        attempt += 1


class _Maker:
    """Composes graphs of blocks: each has a head, where it is entered, and a tail, which is still to be led on."""

    def __init__(self, team: Team, dice: random.Random) -> None:
        self.team, self.dice, self.mood = team, dice, team.mood
        self.count = 0
        self.chains: list[Chain[Any]] = []

    # --- whole graphs ---

    def root(self) -> Graph[Any]:
        """The team's graph."""
        return self._graph("root", self.mood.size, 2, Book)

    def _graph(self, name: str, size: int, depth: int, context: type[Any]) -> Graph[Any]:
        outer, self.chains = self.chains, []
        head, tail = self._block(size, depth)
        chains = [START >> head, tail >> END, *self.chains]
        self.chains = outer
        return Graph(name, *chains, context=context, **self._bounds(top=not outer))

    def _bounds(self, *, top: bool) -> dict[str, Any]:
        dice = self.dice
        if not self.mood.bounds:
            return {"max_hops": 500} if top else {}
        bounds: dict[str, Any] = {"max_hops": dice.choice((10, 30, 90))} if self._one_in(3) else {}
        if self._one_in(4):
            bounds["max_depth"] = dice.randrange(4)
        if self._one_in(4):
            bounds["max_handoffs"] = dice.randrange(4)
        if self._one_in(4):
            bounds["escalate"] = self._node(retries=0)
        if not top and self._one_in(5):
            bounds["retries"] = 1
        if self._one_in(1 if top else 4):
            bounds["budget"] = self._budget()
        return bounds

    def _budget(self) -> Budget:
        some: dict[str, Any] = {}
        for name, amounts in (
            ("node_runs", (10, 30, 60)),
            ("model_calls", (4, 12)),
            ("tool_calls", (4, 12)),
            ("retries", (0, 2)),
            ("tokens", (100, 500)),
            ("usd", ("0.1", "0.5")),
            ("seconds", (2.0, 20.0)),
        ):
            if self._one_in(4):
                some[name] = self.dice.choice(amounts)
        return Budget(**some)

    # --- nodes ---

    def _one_in(self, count: int) -> bool:
        return self.dice.randrange(count) == 0

    def _name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def _node(self, calls: tuple[str, ...] = (), handoffs: tuple[str, ...] = (), **options: Any) -> FunctionNode[Any]:
        name, dice = self._name(), self.dice
        part = Part(calls, handoffs, outside=not self._one_in(3))
        self.team.parts[name] = part
        options.setdefault("retries", dice.choice((0, 0, 0, 1, 2)))
        if self.mood.timeouts and self._one_in(6):
            options["timeout"] = dice.choice((0.05, 0.5))
        if self.mood.bounds and self._one_in(6):
            options["max_visits"] = dice.choice((1, 3))
        if part.outside and self._one_in(2):
            options["costs"] = Budget(model_calls=dice.choice((1, 4, 4)), tool_calls=4, tokens=200, usd="0.2")
        return real(self.team, part, name, **options)

    # --- blocks ---

    def _block(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        if size <= 1:
            return self._leaf(depth)
        kinds = [self._sequence, self._sequence, self._loop, self._fork, self._fork, self._choice, self._handoffs]
        kinds += [self._map, self._delegator, self._delegator, self._nested]
        return self.dice.choice(kinds)(size, depth)

    def _leaf(self, depth: int) -> tuple[Node[Any], Node[Any]]:
        if self.mood.pauses and self._one_in(12):
            human = Human(self._name(), into="log" if self._one_in(2) else None)
            return human, human
        if depth and self._one_in(8):
            return self._nested(2, depth)
        one = self._node(into="log" if self._one_in(6) else None)
        if not self._one_in(5):
            return one, one
        other, handler = self._node(), self._node()
        self.chains += [one >> other, one.on_error(handler, catch=self._caught()), handler >> other]
        return one, other

    def _caught(self) -> type[Exception] | tuple[type[Exception], ...]:
        return self.dice.choice((Exception, ValueError, (ValueError, BoundHit)))

    def _sequence(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        part = self.dice.randint(1, size - 1)
        (head, middle), (then, tail) = self._block(part, depth), self._block(size - part, depth)
        self.chains.append(middle >> then)
        return head, tail

    def _loop(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        head, tail = self._block(size - 1, depth)
        test, out = self._node(), self._node()
        again = when(self._test(), head, max_hops=self.dice.randint(0, 3))
        self.chains += [tail >> test, test.choose(again, default=out)]
        return head, out

    def _choice(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        source, out = self._node(), self._node()
        ways = [self._block(max(1, size // 2), depth) for _ in range(2)]
        cases = [when(self._test(), head) for head, _ in ways]
        default = ways[0][0] if not self.mood.raises or self._one_in(2) else None
        self.chains.append(source.choose(*cases, default=default))
        self.chains += [tail >> out for _, tail in ways]
        return source, out

    def _fork(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        source, join = self._node(), self._join()
        count = self.dice.randint(2, 4)
        branches = [self._block(max(1, size // count), depth) for _ in range(count)]
        heads = [when(self._test(), head) if self._one_in(5) else head for head, _ in branches]
        self.chains.append(source >> fork(*heads, failure=self._failure()))
        self.chains += [tail >> join for _, tail in branches]
        return source, join

    def _map(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        source, join = self._node(), self._join()
        head, _ = self._block(max(1, size // 2), depth)
        most = self.dice.randint(1, 5)
        shift = self.dice.randrange(2**30)
        some = most + 2 if self.mood.bounds and self._one_in(3) else most + 1

        def over(state: State[Any]) -> tuple[int, ...]:
            return tuple(range(roll(some, shift, path_text(state.path), state.values)))

        self.chains.append(source.map(head, over=over, join=join, max_items=most, failure=self._failure()))
        return source, join

    def _failure(self) -> Any:
        return "fail_fast" if self.dice.randrange(100) < self.mood.fail_fast else "collect"

    def _join(self) -> Node[Any]:
        if self._one_in(2):
            return self._node(max_visits=None)
        policies = [ALL]
        if self.mood.policies:
            policies += [ANY, first(2), STRICT, quorum(2, within=0.5)]
        losers: Any = self.dice.choice(("finish", "cancel"))
        return Join(self._name(), self.dice.choice(policies), losers=losers)

    def _nested(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        if not depth:
            return self._block(1, 0)
        inner = self._graph(self._name(), max(1, size // 2), depth - 1, self.dice.choice((Book, Book, Side)))
        return inner, inner

    def _delegator(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        caller = self._caller(size, depth, 2)
        return caller, caller

    def _caller(self, size: int, depth: int, levels: int) -> Node[Any]:
        """A node that delegates to nodes, graphs and callers below it."""
        callees: list[Node[Any]] = []
        for _ in range(self.dice.randint(1, 3)):
            kind = self.dice.randrange(5)
            if kind == 0 and depth:
                callees.append(self._nested(size, depth)[0])
            elif kind == 1 and levels:
                callees.append(self._caller(size, depth, levels - 1))
            else:
                callees.append(self._callee())
        caller = self._node(tuple(callee.name for callee in callees))
        self.chains.append(
            caller.delegates(
                *callees,
                max_hops=self.dice.randint(1, 4) if self.mood.bounds else 50,
                into="reports" if self._one_in(4) else None,
                share=self.dice.choice(("pool", "pool", "equal", 0.5)) if self.mood.bounds else "pool",
                timeout=self.dice.choice((0.3, 2.0)) if self.mood.timeouts and self._one_in(5) else None,
            )
        )
        return caller

    def _callee(self) -> Node[Any]:
        """A node that reports, perhaps over an error edge or a handoff."""
        kind = self.dice.randrange(8)
        if kind == 0:
            other = self._node()
            one = self._node(handoffs=(other.name,))
            self.chains.append(one.hands_off(other, max_hops=self.dice.randint(1, 4) if self.mood.bounds else 50))
            return one
        one = self._node()
        if kind == 1:
            self.chains.append(one.on_error(self._node(), catch=self._caught()))
        return one

    def _handoffs(self, size: int, depth: int) -> tuple[Node[Any], Node[Any]]:
        """Two that hand over to each other, and a third that only receives."""
        out, last = self._node(), self._node()
        two = self._node(handoffs=(f"n{self.count + 2}", last.name))
        one = self._node(handoffs=(two.name, last.name))
        bound = 3 if not self.mood.bounds else self.dice.randint(0, 3)
        self.chains += [one.hands_off(two, last, max_hops=bound), two.hands_off(one, last, max_hops=bound)]
        self.chains += [one >> out, two >> out, last >> out]
        return one, out

    def _test(self) -> Callable[[State[Any]], bool]:
        """A condition on what arrived."""
        shift = self.dice.randrange(2**30)

        def holds(state: State[Any]) -> bool:
            return roll(2, shift, path_text(state.path), state.values) == 0

        return holds


def real(team: Team, part: Part, name: str, **options: Any) -> FunctionNode[Any]:
    """The node whose body really does what `Team.play` says, when it is run."""
    if part.outside:

        @node(name=name, **options)
        async def asks(state: State[Any], step: Step) -> object:
            return await performed(team.play(state), step)

        return asks

    @node(name=name, **options)
    async def answers(state: State[Any]) -> object:
        try:
            next(team.play(state))
        except StopIteration as stop:
            return stop.value
        raise AssertionError

    return answers
