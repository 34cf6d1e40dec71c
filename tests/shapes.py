"""Random graph shapes, the structure rules they must pass, and scripts that say what each visit does.

Neutral on purpose: nothing of graphflow is imported, so that a property test can build the same graph twice,
once for the library and once for `tests.reference`, and compare what comes out. The rules are written from
the text of the design, naively, for graphs of up to about 14 nodes.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from hypothesis import reject
from hypothesis import strategies as st

START = "START"
END = "END"
FIELDS = ("k0", "k1", "k2", "k3")
"""Plain fields of the context: two branches that write one of them are a conflict."""
LOG = "log"
"""The field of the context with the reducer `append`."""


# --- Shapes ---


@dataclass(frozen=True, slots=True)
class Next:
    """`a >> to`."""

    to: str


@dataclass(frozen=True, slots=True)
class Fork:
    """`a >> (b, (c, when(...)), failure=...)`: a branch in `conditional` may be skipped."""

    branches: tuple[str, ...]
    conditional: frozenset[str] = frozenset()
    failure: Literal["fail_fast", "collect"] = "fail_fast"


@dataclass(frozen=True, slots=True)
class Choose:
    """`a.choose(...)`: exactly one case; none holds and no default: the token ends."""

    cases: tuple[str, ...]
    default: str | None = None


Statement: TypeAlias = Next | Fork | Choose


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph: at most one statement and at most one error edge for each node. Build it with `shape`."""

    entry: str
    nodes: tuple[str, ...]
    statements: tuple[tuple[str, Statement], ...]
    errors: tuple[tuple[str, str], ...] = ()

    def statement(self, node: str) -> Statement | None:
        return dict(self.statements).get(node)

    def error(self, node: str) -> str | None:
        return dict(self.errors).get(node)

    def forks(self) -> dict[str, Fork]:
        return {node: statement for node, statement in self.statements if isinstance(statement, Fork)}

    def nexts(self, node: str) -> tuple[str, ...]:
        """Where the node's statement may lead, in the statement's order."""
        match self.statement(node):
            case Next(to):
                return (to,)
            case Fork(branches):
                return branches
            case Choose(cases, None):
                return cases
            case Choose(cases, str(default)):
                return (*cases, default)
            case _:
                return ()

    def successors(self, node: str) -> tuple[str, ...]:
        """Where control at the node may go next, the error edge included."""
        error = self.error(node)
        return self.nexts(node) if error is None else (*self.nexts(node), error)


def shape(entry: str, statements: Mapping[str, Statement], errors: Mapping[str, str] | None = None) -> Shape:
    """A shape from tables; the nodes are all names that occur.

    >>> shape("a", {"a": Fork(("b", "c")), "b": Next("j"), "c": Next("j"), "j": Next("END")}).nodes
    ('a', 'b', 'c', 'j')
    """
    errors = errors or {}
    bare = Shape(entry, (), tuple(sorted(statements.items(), key=lambda item: item[0])), tuple(sorted(errors.items())))
    named = {entry, *statements, *errors}
    named |= {to for node in named for to in bare.successors(node)}
    return Shape(entry, tuple(sorted(named - {END})), bare.statements, bare.errors)


# --- Reaching, joins, regions ---


def reach(starts: Iterable[str], steps: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """All nodes on a path from `starts`, the starts included."""
    found: set[str] = set()
    todo = list(starts)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(steps(node))
    return frozenset(found)


def _steps_of(graph: Shape, fork: str, *, without: str | None = None) -> Callable[[str], tuple[str, ...]]:
    """The steps that count for `fork`: not its own error edge, and none into the node `without`."""

    def steps(node: str) -> tuple[str, ...]:
        to = graph.nexts(node) if node == fork else graph.successors(node)
        return tuple(n for n in to if n != without)

    return steps


def _from_branches(graph: Shape, fork: str, *, without: str | None = None) -> frozenset[str]:
    starts = [branch for branch in graph.nexts(fork) if branch != without]
    return reach(starts, _steps_of(graph, fork, without=without))


@lru_cache(maxsize=4096)
def join_of(graph: Shape, fork: str) -> str | None:
    """The first node that every path from the branches to END passes; None if a branch cannot reach END."""
    if not all(END in reach([branch], _steps_of(graph, fork)) for branch in graph.nexts(fork)):
        return None
    common = [n for n in (*graph.nodes, END) if END not in _from_branches(graph, fork, without=n)]
    return next(n for n in common if not _from_branches(graph, fork, without=n) & set(common))


@lru_cache(maxsize=4096)
def region_of(graph: Shape, fork: str) -> frozenset[str]:
    """The nodes reachable from the fork's branches before its join."""
    return _from_branches(graph, fork, without=join_of(graph, fork))


# --- The structure rules ---


def passes_rules(graph: Shape) -> list[str]:
    """The structure rules that the shape breaks, each as "code node"; an empty list if it passes them all."""
    return sorted(set(_problems(graph)))


def _problems(graph: Shape) -> Iterator[str]:
    reached = reach([graph.entry], graph.successors)
    for node in graph.nodes:
        if node not in reached:
            yield f"unreachable {node}"
        if END not in reach([node], graph.successors):
            yield f"no-end {node}"
    for fork in graph.forks():
        region = region_of(graph, fork)
        if join_of(graph, fork) == END:
            yield f"end-needs-join {fork}"
        if fork in region:
            yield f"fork-reentry {fork}"
        if any(to in region for node, to in _edges(graph) if node != fork and node not in region):
            yield f"side-entry {fork}"
        inside = {(node, to) for node, to in _edges(graph) if node in region and to in region}
        if _loop_with_two_entries(region, inside | {(START, branch) for branch in graph.nexts(fork)}):
            yield f"loop-entry {fork}"


def _edges(graph: Shape) -> set[tuple[str, str]]:
    return {(START, graph.entry)} | {(node, to) for node in graph.nodes for to in graph.successors(node)}


def _loop_with_two_entries(within: frozenset[str], edges: set[tuple[str, str]]) -> bool:
    """Whether some cycle, nested ones too, is entered at more than one node.

    Nested: once the one entry of a loop is taken out, what still cycles is a loop inside it, and the edges
    from the entry that was taken out are among the ways in.
    """

    def steps(node: str) -> list[str]:
        return [to for a, to in edges if a == node and to in within]

    after = {node: reach(steps(node), steps) for node in within}
    for loop in {frozenset(n for n in within if n in after[m] and m in after[n]) for m in within}:
        entries = {to for node, to in edges if to in loop and node not in loop}
        if len(entries) > 1 or (loop and _loop_with_two_entries(loop - entries, edges)):
            return True
    return False


def features(graph: Shape) -> frozenset[str]:
    """What is interesting about a shape that passes the rules; for statistics."""
    forks = graph.forks()
    regions = {fork: region_of(graph, fork) for fork in forks}
    joins = {fork: join_of(graph, fork) for fork in forks}
    cyclic = {n for n in graph.nodes if n in reach(graph.successors(n), graph.successors)}
    found: set[str] = set()
    for fork, statement in forks.items():
        region, join = regions[fork], joins[fork]

        def inside(node: str, region: frozenset[str] = region) -> list[str]:
            return [to for to in graph.successors(node) if to in region]

        lines = [reach([b], inside) for b in statement.branches if b != join]
        found |= {
            name
            for name, holds in {
                "fork": True,
                "nested fork": any(other in region for other in forks),
                "inner merge": any(a & b for i, a in enumerate(lines) for b in lines[:i]),
                "loop inside a fork": any(n in reach(inside(n), inside) for n in region),
                "fork inside a loop": fork in cyclic,
                "branch is the join": join in statement.branches,
                "conditional branch": bool(statement.conditional),
                "collect": statement.failure == "collect",
                "shared join": list(joins.values()).count(join) > 1,
                "error edge in a fork": any(graph.error(n) for n in region),
            }.items()
            if holds
        }
    return frozenset(found)


# --- Scripts ---


@dataclass(frozen=True, slots=True)
class Act:
    """What one visit does.

    `case` is the index of the choose case that holds (None: no case holds); `skips` are the conditional
    branches that are not taken; `writes` are fields, each of which gets the label node#visit.
    """

    case: int | None = 0
    skips: frozenset[str] = frozenset()
    raises: bool = False
    writes: tuple[str, ...] = ()


Script: TypeAlias = Callable[[str, int], Act]
"""What each visit of each node does: a pure function of node and visit number (from 1)."""


def label(node: str, visit: int) -> str:
    """The output of a visit, and the value that it writes.

    >>> label("a", 2)
    'a#2'
    """
    return f"{node}#{visit}"


def scripted(acts: Mapping[tuple[str, int], Act]) -> Script:
    """A script from a table; a visit that is not in it takes the first case and every branch."""
    return lambda node, visit: acts.get((node, visit), Act())


@dataclass(frozen=True, slots=True)
class SeededScript:
    """A script drawn from a seed by a stable hash. After a few visits of a node it leads straight to END.

    The seed also sets the mood: a third of them raise never, the others now and then or often; likewise for
    writes to plain fields, which end in conflicts.
    """

    graph: Shape
    seed: int

    def __call__(self, node: str, visit: int) -> Act:
        statement = self.graph.statement(node)
        fresh = visit <= 1 + self._roll(3, "rounds", node)
        skips: frozenset[str] = frozenset()
        if isinstance(statement, Fork):
            skips = frozenset(b for b in statement.conditional if self._roll(3, "skip", node, visit, b) == 0)
        writes = [LOG] if self._percent(40, "log", node, visit) else []
        if self._percent((0, 10, 40)[self._roll(3, "plain")], "plain", node, visit):
            writes.append(FIELDS[self._roll(len(FIELDS), "field", node, visit)])
        return Act(
            case=self._case(statement, node, visit, fresh=fresh) if isinstance(statement, Choose) else None,
            skips=skips,
            raises=fresh and self._percent((0, 6, 20)[self._roll(3, "raise")], "raise", node, visit),
            writes=tuple(writes),
        )

    def _case(self, statement: Choose, node: str, visit: int, *, fresh: bool) -> int | None:
        options: list[int | None] = [*range(len(statement.cases))]
        if statement.default is not None:
            options.append(None)
        if not fresh:
            distance = distances(self.graph)
            return min(options, key=lambda case: distance[_target(statement, case)])
        if statement.default is None and self._percent(25, "none", node, visit):
            return None
        return options[self._roll(len(options), "case", node, visit)]

    def _roll(self, sides: int, *what: object) -> int:
        text = "/".join(map(str, (self.seed, *what)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % sides

    def _percent(self, chance: int, *what: object) -> bool:
        return self._roll(100, "percent", *what) < chance


def _target(statement: Choose, case: int | None) -> str:
    to = statement.default if case is None else statement.cases[case]
    assert to is not None
    return to


@lru_cache(maxsize=4096)
def distances(graph: Shape) -> dict[str, int]:
    """Steps to END by statements alone, for the nodes from which it can be reached so."""
    found = {END: 0}
    for step in range(1, len(graph.nodes) + 1):
        near = {n for n in graph.nodes if n not in found and any(to in found for to in graph.nexts(n))}
        found |= dict.fromkeys(near, step)
    return found


# --- Random shapes ---


def shapes() -> st.SearchStrategy[Shape]:
    """Shapes that pass the rules."""
    return _shapes()


@st.composite
def _shapes(draw: st.DrawFn) -> Shape:
    found = _drawn(lambda low, high: draw(st.integers(low, high)), frozenset())
    return reject() if found is None else found


def random_shape(rng: random.Random, *, breaking: str | None = None) -> Shape:
    """A shape that passes the rules, or one that breaks the rule `breaking` and no other."""
    allowed = frozenset[str]() if breaking is None else frozenset({breaking})
    while True:
        found = _drawn(rng.randint, allowed)
        if found is not None:
            return found


def _drawn(pick: Callable[[int, int], int], breaking: frozenset[str]) -> Shape | None:
    builder = _Builder(pick)
    entry = builder.block(pick(4, 12), (END,))
    graph = shape(entry, builder.statements, builder.errors)
    if _broken(graph):
        return None
    for _ in range(pick(0, 6)):
        more = _with_one_more_edge(graph, pick)
        if _broken(more) <= breaking:
            graph = more
    return graph if _broken(graph) == set(breaking) else None


def _broken(graph: Shape) -> set[str]:
    """The codes of the rules that it breaks; "lost" if a node does not reach END by statements alone."""
    lost = {"lost"} if len(distances(graph)) <= len(graph.nodes) else set[str]()
    return lost | {problem.split()[0] for problem in passes_rules(graph)}


class _Builder:
    """Composes blocks backwards: a block is built for the nodes it may lead to, first the usual one."""

    def __init__(self, pick: Callable[[int, int], int]) -> None:
        self.pick = pick
        self.statements: dict[str, Statement] = {}
        self.errors: dict[str, str] = {}

    def block(self, size: int, outs: tuple[str, ...]) -> str:
        """A block of about `size` nodes; returns its entry."""
        if size <= 1:
            return self._leaf(outs)
        kind = self.pick(0, 9)
        if kind <= 1 or size == 2:
            first = self.pick(1, size - 1)
            return self.block(first, (self.block(size - first, outs), *outs[1:]))
        if kind <= 3:
            return self._loop(size, outs)
        if kind == 4:
            return self._choice(size, outs)
        return self._fork(size, outs)

    def _node(self) -> str:
        name = f"n{len(self.statements)}"
        self.statements[name] = Next(END)  # to be set by the caller, once it knows
        return name

    def _chance(self, one_in: int) -> bool:
        return self.pick(1, one_in) == one_in

    def _one_of(self, options: tuple[str, ...]) -> str:
        return options[self.pick(0, len(options) - 1)]

    def _parts(self, size: int, count: int) -> list[int]:
        """`size` cut into `count` parts, some of them empty perhaps."""
        cuts = sorted(self.pick(0, size) for _ in range(count - 1))
        return [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]

    def _leaf(self, outs: tuple[str, ...]) -> str:
        name = self._node()
        to, other = outs[0], self._one_of(outs)
        if other != to:
            self.statements[name] = Choose((other,), to) if self._chance(2) else Choose((to, other))
        else:
            self.statements[name] = Choose((to,)) if self._chance(6) else Next(to)
        if self._chance(8):
            self.errors[name] = other
        return name

    def _loop(self, size: int, outs: tuple[str, ...]) -> str:
        """Tested at the end (entered at the body) or at the start (entered at the test)."""
        test = self._node()
        body = self.block(size - 1, (test, *outs[1:]))
        self.statements[test] = Choose((body,), outs[0]) if self._chance(2) else Choose((body, outs[0]))
        return self._one_of((test, body))

    def _choice(self, size: int, outs: tuple[str, ...]) -> str:
        name = self._node()
        ways = [self._way(part, outs) for part in self._parts(size - 1, self.pick(2, 3))]
        cases = tuple(dict.fromkeys(ways))
        self.statements[name] = Choose(cases[:-1], cases[-1]) if len(cases) > 1 and self._chance(2) else Choose(cases)
        return name

    def _fork(self, size: int, outs: tuple[str, ...]) -> str:
        name = self._node()
        join = outs[0] if outs[0] != END and self._chance(2) else self._leaf(outs)
        ends: tuple[str, ...] = (join,)
        for _ in range(self.pick(0, 2) if size > 3 else 0):
            ends = (self._leaf((self._one_of(ends), join)), *ends)
        ways: list[str] = []
        for part in self._parts(max(size - len(ends), 2), self.pick(2, 4)):
            first = self._one_of(ends)
            ways.append(self._way(part, (first, *ends)))
        branches = tuple(dict.fromkeys(ways))
        self.statements[name] = Fork(
            branches,
            frozenset(b for b in branches if self._chance(4)),
            "collect" if self._chance(2) else "fail_fast",
        )
        return name

    def _way(self, size: int, outs: tuple[str, ...]) -> str:
        return self.block(size, outs) if size else outs[0]


def _with_one_more_edge(graph: Shape, pick: Callable[[int, int], int]) -> Shape:
    statements, errors = dict(graph.statements), dict(graph.errors)
    node = graph.nodes[pick(0, len(graph.nodes) - 1)]
    to = (*graph.nodes, END)[pick(0, len(graph.nodes))]
    if pick(0, 3) == 0:
        errors |= {node: to} if node != to else {}
    elif to not in graph.nexts(node):
        match graph.statement(node):
            case Fork(branches, conditional, failure):
                statements[node] = Fork((*branches, to), conditional, failure)
            case Choose(cases, default):
                statements[node] = Choose((to, *cases), default)
            case _:
                statements[node] = Choose((to,), *graph.nexts(node))
    return shape(graph.entry, statements, errors)
