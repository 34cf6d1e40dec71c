"""The fold agrees with the reference model: random graphs that pass the structure rules, under any schedule."""

import random
import re
from collections.abc import Callable
from typing import Annotated, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import END, START, Context, Done, Graph, State, Update, append, fork, node, when
from graphflow.events import NodeEnded, NodeSkipped
from graphflow.model.contract import Report
from graphflow.model.ids import parse_path
from graphflow.model.state import Message
from graphflow.nodes.edges import Branch, Chain
from graphflow.nodes.function import FunctionNode
from graphflow.testing import canonical_trace, fold_again
from tests import reference, shapes
from tests.laws.driver import Driver, at_once
from tests.reference import FAILED, Inbox, Outcome, differences
from tests.shapes import Act, Choose, Fork, Next, Script, SeededScript, Shape, label, random_shape
from tests.support import examples

SCHEDULES = 4
ROUNDS = 10_000
"""A bound that no run comes to: each shape's script ends its loops itself."""


class Notes(Context):
    """What the shapes write."""

    log: Annotated[tuple[str, ...], append] = ()
    k0: str = ""
    k1: str = ""
    k2: str = ""
    k3: str = ""


def built(shape: Shape, script: Script) -> Graph[Notes]:
    """The shape as a graph of ours."""
    nodes = {name: _idle(name) for name in shape.nodes}
    places: dict[Any, Any] = {**nodes, shapes.END: END, None: None}
    chains: list[Chain[Any]] = [START >> nodes[shape.entry]]
    for name, statement in shape.statements:
        source = nodes[name]
        match statement:
            case Next(to):
                chains.append(source >> places[to])
            case Fork(branches, conditional, failure):
                chains.append(
                    source
                    >> fork(
                        *(when(_taken(script, to), nodes[to]) if to in conditional else nodes[to] for to in branches),
                        failure=failure,
                    )
                )
            case Choose(cases, default):
                tests = [_case(script, i, places[to]) for i, to in enumerate(cases)]
                chains.append(source.choose(*tests, default=places[default]))
    chains += [nodes[name].on_error(places[to]) for name, to in shape.errors]
    return Graph("shape", *chains, context=Notes, max_hops=ROUNDS)


def _idle(name: str) -> FunctionNode[Context]:
    @node(name=name)
    def body(state: State[Context]) -> None:
        """Never runs: the driver plays it."""

    return body


def _act(script: Script, state: State[Any]) -> Act:
    """What the visit that the edge leaves does: its number stands in its output."""
    name, number = str(state.inbox[0].value).split("#")
    return script(name, int(number))


def _taken(script: Script, branch: str) -> Callable[[State[Any]], bool]:
    return lambda state: branch not in _act(script, state).skips


def _case(script: Script, index: int, to: Any) -> Branch[Any]:
    return when(lambda state: _act(script, state).case == index, to)


def driven(graph: Graph[Notes], script: Script, seed: int) -> tuple[Driver, Outcome]:
    """Run one schedule; give the driver and what the reference would call the outcome."""
    visits: list[reference.Visit] = []

    def play(state: State[Notes]) -> object:
        name, number = state.path[-1].name, state.visit
        visits.append(reference.Visit(name, number, _inbox(state.inbox), _context(state.context)))
        act = script(name, number)
        if act.raises:
            msg = f"{name} raises"
            raise ValueError(msg)
        written = {field: label(name, number) for field in act.writes}
        return Done(label(name, number), Update(**written) if written else None)

    driver = Driver(graph, at_once(play), random.Random(seed)).go(Notes())
    arrived = _arrived(driver)
    return driver, Outcome((_end(driver),), tuple(visits), _skipped(driver), _context(driver.fold.context), arrived)


def _inbox(inbox: tuple[Message, ...]) -> Inbox:
    return tuple(
        (FAILED, _blamed(message.value)) if isinstance(message.value, Report) else (message.source, message.value)
        for message in inbox
    )


def _blamed(report: Report) -> str:
    assert report.reason is not None
    return parse_path(report.reason.path)[-1].name


def _context(context: Notes) -> reference.Context:
    plain = ((name, getattr(context, name)) for name in shapes.FIELDS)
    return reference.Context(context.log, tuple((name, value) for name, value in plain if value))


def _arrived(driver: Driver) -> Inbox:
    if driver.end.status not in {"completed", "partial"}:
        return ()
    token = driver.fold.final
    assert token is not None
    return _inbox(token.inbox)


def _end(driver: Driver) -> reference.End:
    status, reason = driver.end.status, driver.end.reason
    if status in {"completed", "partial"}:
        return reference.End("completed" if status == "completed" else "partial")
    assert status == "failed"
    assert reason is not None
    if reason.code == "no_route":
        last = reason.text.partition("the last nodes were ")[2].partition(". After")[0]
        return reference.End("no_route", tuple(re.findall(r"'([^']*)'", last)))
    where = (parse_path(reason.path)[-1].name,)
    if reason.code == "conflict":
        return reference.End("conflict", where, (reason.text.split("'")[1],))
    return reference.End("failed", where)


def _skipped(driver: Driver) -> frozenset[tuple[str, int, str]]:
    found: set[tuple[str, int, str]] = set()
    for record in driver.records:
        left = None
        for decision in record.decisions:
            if isinstance(decision, NodeEnded):
                left = decision.path[-1]
            elif isinstance(decision, NodeSkipped) and decision.reason.code == "not_taken":
                assert left is not None
                found.add((left.name, left.visit, decision.path[-1].name))
    return frozenset(found)


@settings(max_examples=examples(2000))
@given(seed=st.integers(0, 2**48))
def test_the_fold_does_what_the_reference_allows(seed: int) -> None:
    """No schedule stalls or differs from the reference; where timing has no meaning, all leave one trace."""
    rng = random.Random(seed)
    shape = random_shape(rng)
    script = SeededScript(shape, seed)
    graph = built(shape, script)
    assert [found for found in graph.check() if found.severity == "error"] == []
    expected = reference.run(shape, script, rng)
    traces = set[tuple[str, ...]]()
    for schedule in range(SCHEDULES):
        driver, actual = driven(graph, script, schedule)
        assert differences(expected, actual) == []
        fold_again(graph, driver.records)
        traces.add(canonical_trace(driver.events))
    assert len(traces) == 1 or expected.timing or expected.maybe or len(expected.ends) > 1
