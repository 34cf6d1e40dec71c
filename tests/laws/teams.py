"""Random graphs of teams: blocks inside blocks, from one node to a graph that delegates to graphs."""

import random
from collections.abc import Callable
from typing import Annotated, Any

from graphflow import (
    ALL,
    ANY,
    END,
    START,
    STRICT,
    Budget,
    Context,
    Graph,
    Human,
    Join,
    Node,
    Report,
    State,
    add,
    append,
    first,
    fork,
    quorum,
    when,
)
from graphflow.errors import BoundHit
from graphflow.model.ids import path_text
from graphflow.nodes.edges import Chain
from graphflow.nodes.function import FunctionNode
from tests.laws.acting import Mood, Part, Team, real, roll


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


DEEPEST = 2
"""How deep graphs are nested in each other."""


def random_team(
    seed: int, mood: Mood | None = None, *, order: random.Random | None = None, names: random.Random | None = None
) -> Team:
    """A team whose graph has no errors; a third of them never raise, others do so now and then or often.

    Args:
        seed: what it is made of, and what its nodes do, is drawn from it.
        mood: how it is; drawn from the seed by default.
        order: shuffles the statements of every graph.
        names: gives other names to the nodes.
    """
    attempt = 0
    if mood is None:
        raises, size = (0, 4, 12)[roll(3, seed, "raises")], (6, 12, 24)[roll(3, seed, "size")]
        mood = Mood(raises=raises, size=size, bounds=roll(3, seed, "bounds") > 0)
    while True:
        team = Team(roll(2**48, seed, attempt), mood)
        team.graph = _Maker(team, random.Random(team.seed), order, names).root()
        if not any(problem.severity == "error" for problem in team.graph.check()):
            return team
        attempt += 1


class _Maker:
    """Composes graphs of blocks: each has a head, where it is entered, and a tail, which is still to be led on."""

    def __init__(
        self, team: Team, dice: random.Random, order: random.Random | None, names: random.Random | None
    ) -> None:
        self.team, self.dice, self.mood, self.order = team, dice, team.mood, order
        self.names = [f"n{number:03d}" for number in range(1000)]
        if names is not None:
            numbers = names.sample(range(1000), 1000)
            team.before = {f"m{new:03d}": old for new, old in zip(numbers, self.names, strict=True)}
            self.names = list(team.before)
        self.count = 0
        self.chains: list[Chain[Any]] = []

    # --- whole graphs ---

    def root(self) -> Graph[Any]:
        """The team's graph."""
        return self._graph("root", self.mood.size, DEEPEST, Book)

    def _graph(self, name: str, size: int, depth: int, context: type[Any]) -> Graph[Any]:
        outer, self.chains = self.chains, []
        head, tail = self._block(size, depth)
        chains: list[Chain[Any]] = [START >> head, tail >> END, *self.chains]
        self.chains = outer
        if self.order is not None:
            statements = [statement for chain in chains for statement in chain.statements]
            self.order.shuffle(statements)
            chains = [Chain((statement,), statement.source, ()) for statement in statements]
        return Graph(name, *chains, context=context, **self._bounds(top=depth == DEEPEST))

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
        return self.names[self.count]

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
            most = dice.choice((1, 4, 4)) if self.mood.bounds else 99
            options["costs"] = Budget(model_calls=most, tool_calls=most, tokens=50 * most, usd="9.99")
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
            return tuple(range(roll(some, shift, self._seen(state))))

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
        two = self._node(handoffs=(self.names[self.count + 2], last.name))
        one = self._node(handoffs=(two.name, last.name))
        bound = 3 if not self.mood.bounds else self.dice.randint(0, 3)
        self.chains += [one.hands_off(two, last, max_hops=bound), two.hands_off(one, last, max_hops=bound)]
        self.chains += [one >> out, two >> out, last >> out]
        return one, out

    def _test(self) -> Callable[[State[Any]], bool]:
        """A condition on what arrived."""
        shift = self.dice.randrange(2**30)

        def holds(state: State[Any]) -> bool:
            return roll(2, shift, self._seen(state)) == 0

        return holds

    def _seen(self, state: State[Any]) -> str:
        return self.team.plain(f"{path_text(state.path)} {state.values!r}")
