"""Each rule of each validator, with a trace that breaks it: a trace that was changed, or one of a wrong graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow import (
    END,
    START,
    Call,
    Delegate,
    Done,
    Graph,
    Handoff,
    Update,
    when,
)
from graphflow.errors import UsageError
from graphflow.events import EdgeName
from graphflow.graphs.conversation import said_by
from graphflow.graphs.planning import Execute
from graphflow.graphs.strategies import Conversation, TeamReport
from graphflow.graphs.turns import Draw, Floor, Rotate
from graphflow.nodes.client import ModelReply
from graphflow.testing import call, strategy_violations
from graphflow.testing.activation import activation
from graphflow.testing.strategies import RULES, Strategy
from tests.strategies import traces
from tests.strategies.scenes import events_of, scene, scenes
from tests.strategies.teams import NINE, member, plan_of, wrong_body
from tests.strategies.traces import Change, also, ended_as, renamed, returned, twice, without, without_moves

A, B, C = said_by("a", "a says."), said_by("b", "b says."), said_by("c", "c says.")
TRANSFERS: Final = ModelReply(calls=(call("transfer_to_a"),))


def report(*said: Any, finding: str = "b says.") -> TeamReport:
    """A joint report."""
    return TeamReport(finding=finding, said=said)


def in_a_row(found: Any) -> Any:
    """A plan whose last step needs the one that fails."""
    return plan_of(("2", "f"), ("9", "a"), ("3", "b", ("2", "9")))


def run_again(found: Any) -> Any:
    """Delegate a step once more, where only one was left."""
    alone = isinstance(found, Delegate) and len(found.calls) == 1
    return Delegate(Call("a", "do 1", id="1"), *found.calls, update=found.update) if alone else found


# What is changed, in which scene, and a part of what has to be said of it, by the rule that says it.
TABLE: Final[tuple[tuple[str, str, Change, str], ...]] = (
    # every strategy
    ("takes_declared_edges", "sequential", renamed(a="c", c="a"), "has none"),
    ("takes_declared_edges", "round_robin", without_moves("floor", "next_speaker"), "had not been taken for it"),
    ("takes_declared_edges", "handoff", without_moves("p", "b"), "had not been taken for it"),
    ("takes_declared_edges", "escalated", without("floor", 2, "refused"), "no bound had refused anything"),
    ("takes_declared_edges", "plan", without("p", kind="node_ended"), "had not ended"),
    ("ends_every_visit", "parallel", without("a", kind="node_ended"), "never ended"),
    ("one_at_a_time", "sequential", traces.later("node_ended", "a", ("node_started", "after a")), "had not ended"),
    ("keeps_its_bounds", "ping-pong", twice("q", EdgeName("p", "handoff", "q")), "may 3 times"),
    ("keeps_its_bounds", "handoff", twice("b"), "may be 1 times"),
    ("no_bound_is_success", "never", ended_as("completed"), "went on as if done"),
    ("no_bound_is_success", "ping-pong", ended_as("completed"), "went on as if done"),
    ("completes_at_its_end", "sequential", without_moves("c", None), "never came to its end"),
    # handoff, swarm
    ("only_hands_over", "handoff", twice("b", EdgeName("p", "next", "b")), "nobody had handed it over"),
    ("transfers_as_wished", "handoff", renamed(a="b", b="a"), "had asked for 'b'"),
    ("transfers_as_wished", "swarm", traces.replied("p", TRANSFERS), "had asked for 'a'"),
    ("transfers_as_wished", "handoff", also(without("p"), renamed(q="q")), "had not been entered"),
    ("transfers_as_wished", "handoff", twice("b"), "handed over twice"),
    ("delivers_the_note", "ping-pong", without("q", kind="boundary"), "did not see the note"),
    ("delivers_the_note", "handoff", without("b"), "was not entered"),
    ("ends_with_the_last", "handoff", twice("b"), "had control"),
    ("ends_with_the_last", "handoff", traces.outcome("b", lambda _: Handoff("a")), "had asked to hand over"),
    ("parent_is_silent", "handoff", twice("p"), "nobody had given the task back"),
    ("parent_is_silent", "handoff", renamed(p="a", a="p"), "is the parent"),
    ("first_or_active_begins", "swarm", renamed(p="a", a="p"), "had to be"),
    # router
    ("classifies_once", "router", twice("c"), "classified again"),
    ("classifies_once", "router", twice("b"), "the task went to 'b' too"),
    ("classifies_once", "router", without_moves("route", "b"), "nobody had got the task"),
    ("goes_where_it_was_said", "router", traces.outcome("route", lambda _: Handoff("a")), "'b' was named"),
    ("goes_where_it_was_said", "router", traces.replied("c", ModelReply("a or b")), "'d' was named"),
    ("goes_where_it_was_said", "router", traces.outcome("route", lambda _: Done("done")), "gave the task to None"),
    ("gives_the_task_as_it_was", "router", traces.outcome("route", lambda _: Handoff("b", "b, pl")), "had to cross"),
    # sequential
    ("in_order", "sequential", also(renamed(a="b", b="a")), "came where 'a' had to"),
    ("in_order", "sequential", without("b"), "came where 'b' had to"),
    ("in_order", "sequential", twice("c"), "came after the last stage"),
    ("in_order", "stopped", returned("after a", over=False), "no gate had said so"),
    ("gives_on", "sequential", returned("after a", output="something else"), "not all that was said"),
    ("gives_on", "sequential", returned("after b", said=C), "had said 'b says.'"),
    ("gives_on", "sequential", traces.outcome("b", lambda _: "else"), "had said 'else'"),
    ("gives_on", "previous", returned("after a", output="something else"), "had said 'a says.'"),
    ("names_the_stop", "sequential", returned("after b", over=True), "has no gate"),
    ("names_the_stop", "stopped", returned("after a", output=report(A)), "does not say so of 'a'"),
    ("names_the_stop", "previous", returned("after a", over=True), "had stopped the line"),
    # parallel
    ("begins_at_once", "parallel", renamed(a="b", b="a"), "a, b, c had to"),
    ("begins_at_once", "parallel", without("b"), "a, b, c had to"),
    ("begins_at_once", "parallel", twice("a"), "a, b, c had to"),
    ("begins_at_once", "parallel", traces.later("node_started", "b", ("node_started", "together")), "had met"),
    ("reports_in_order", "parallel", returned("together", output=report(B, A, C)), "the order is a, b, c"),
    ("reports_in_order", "parallel", returned("together", output=report(A, C)), "does not report what 'b' said"),
    ("reports_in_order", "parallel", traces.outcome("a", lambda _: "else"), "who had said 'else'"),
    ("reports_in_order", "parallel", returned("together", output="all well"), "without a report"),
    ("reports_in_order", "quorum", returned("together", output=report(A)), "2 had to arrive"),
    ("names_the_failed", "parallel", returned("together", output=report(A, B, C)), "does not say that 'c'"),
    ("names_the_failed", "parallel", ended_as("completed"), "the run is completed"),
    # conversations
    ("alternates", "round_robin", without("next_speaker", 2), "had to"),
    ("alternates", "round_robin", without("floor"), "began, before 'floor' did"),
    ("speaks_as_named", "round_robin", returned("next_speaker", speaker="b"), "had named 'b'"),
    ("noted_as_said", "round_robin", returned("floor", 2, said=B), "did not note"),
    ("noted_as_said", "round_robin", returned("floor", 2, said=said_by("a", "x")), "had said 'a says.'"),
    ("noted_as_said", "round_robin", traces.outcome("b", lambda _: "else"), "had said 'else'"),
    ("hears_all", "round_robin", returned("next_speaker", 3, output="[b]: b says."), "not given all"),
    ("hears_all", "random", returned("next_speaker", 2, output=Done()), "not given all"),
    ("ends_in_time", "never", twice("next_speaker"), "began turn 3"),
    ("ends_in_time", "round_robin", twice("next_speaker"), "began turn 4"),
    ("ends_in_time", "round_robin", without("next_speaker", 3), "3 were asked for"),
    ("reports_all", "round_robin", returned("floor", 4, output="done"), "no report of a team"),
    ("reports_all", "round_robin", returned("floor", 4, output=report(A, B)), "in order"),
    ("reports_all", "round_robin", returned("floor", 4, output=report(A, B, A)), "not that of the last speaker"),
    ("over_as_declared", "until", lambda _: [*scene("round_robin")[2]], "went on"),
    ("over_as_declared", "never", lambda _: [*scene("until")[2]], "was not over"),
    ("follows_as_allowed", "allowed", renamed(b="a"), "may follow"),
    ("ends_on_the_floor", "round_robin", traces.ended_by("next_speaker"), "'floor' had to say so"),
    ("rotates", "round_robin", renamed(a="b", b="a"), "which is 'a''s"),
    ("draws_from_its_seed", "random", returned("next_speaker", 2, seed=4), "had to stand"),
    ("draws_from_its_seed", "random", returned("next_speaker", 1, seed=None), "had to stand"),
    ("draws_from_its_seed", "random", returned("next_speaker", 1, speaker="nobody"), "the seed 3 says"),
    ("obeys", "manual", returned("floor", 1, speaker="nobody"), "is none of"),
    ("obeys", "manual", returned("floor", 3, over=False), "nobody had said that it ends"),
    ("obeys", "manual", returned("next_speaker", 1, speaker="b"), "had named 't_a'"),
    ("obeys", "person", returned("floor", 1, speaker="b"), "a person answered 'a'"),
    # plan_execute
    ("waits_for_needs", "failing", traces.outcome("p", in_a_row), "which it needs, has failed"),
    ("runs_no_bad_plan", "plan", traces.outcome("p", lambda _: plan_of(("1", "nobody"))), "cannot be right"),
    ("runs_no_bad_plan", "plan", traces.outcome("p", lambda _: "no plan at all"), "cannot be right"),
    ("runs_no_bad_plan", "replanned", returned("execute", 1, problems=("something",)), "did not tell all"),
    ("runs_what_is_planned", "plan", traces.outcome("p", lambda _: plan_of(("1", "a"))), "and the plan says"),
    ("runs_what_is_planned", "replanned", traces.outcome("execute", run_again), "which is finished"),
    ("waits_for_needs", "plan", traces.outcome("p", lambda _: plan_of(("1", "a", ("2",)), ("2", "b"))), "began before"),
    ("plans_again_within_bounds", "replanned", twice("replan"), "2 times"),
    ("plans_again_within_bounds", "replanned", returned("execute", 2, problems=()), "has forgotten"),
    ("plans_again_within_bounds", "plan", returned("execute", 1, problems=("bad",)), "something went wrong"),
    ("plans_again_within_bounds", "verified", traces.outcome("v", lambda _: False), "something went wrong"),
    ("reports_in_the_plans_order", "plan", returned("execute", 1, output=report(B)), "the plan has 1, 2"),
    (
        "reports_in_the_plans_order", "plan",
        returned("execute", 1, output=report(said_by("1", "x"), said_by("2", "b says."))), "not what came",
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", [*scenes()])
def test_a_real_trace_is_accepted(name: str) -> None:
    """Every scene passes as it was played; what is refused below is refused for its change alone."""
    kind, graph, events = scene(name)

    assert strategy_violations(kind, graph, events) == ()


@pytest.mark.parametrize(
    ("rule", "name", "change", "words"), TABLE, ids=[f"{index}-{row[0]}-{row[1]}" for index, row in enumerate(TABLE)]
)
def test_a_violation_is_told(rule: str, name: str, change: Change, words: str) -> None:
    """The trace is refused, by the rule that it breaks, in words that name what is wrong."""
    kind, graph, events = scene(name)
    check = next(found for found in RULES[kind] if found.__name__ == rule)
    changed = change([*events])
    told = [*check(activation(graph, changed))]

    assert any(words in sentence for sentence in told), told
    assert set(told) <= set(strategy_violations(kind, graph, changed))


def test_every_rule_has_a_violation_in_the_table() -> None:
    """No rule is there that nothing has ever broken."""
    rules = {rule.__name__ for kind in NINE for rule in RULES[kind]}

    assert rules - {row[0] for row in TABLE} == set()


# --- graphs that are wrong -------------------------------------------------------------------------------------------


class StartsWithTheSecond(Rotate):
    """As a peer does it: the second member begins."""

    async def __call__(self, state: Any) -> Done:
        return self.give(self.names[(len(state.context.said) + 1) % len(self.names)], state.context)


class ForgetsWhatWasSaid(Rotate):
    """Speakers are told the last words alone."""

    async def __call__(self, state: Any) -> Done:
        context = state.context
        given = await Rotate.__call__(self, state)
        return Done(context.said[-1].text if context.said else "", update=given.update)


class DrawsWithoutASeed(Draw):
    """The draw depends on nothing that is recorded."""

    async def __call__(self, state: Any, step: Any) -> Done:
        given = await Draw.__call__(self, state, step)
        drawn = given.update.fields["speaker"] if given.update is not None else ""
        other = next(name for name in self.names if name != drawn)
        return self.give(other, state.context, seed=self.seed)


class StopsEarly(Floor):
    """A turn less than was asked for."""

    def _is_over(self, context: Conversation) -> bool:
        return len(context.said) >= 2


class ReportsSuccess(Floor):
    """The bound is reached, and that counts as over."""

    def _is_over(self, context: Conversation) -> bool:
        return len(context.said) >= 2 or super()._is_over(context)


class RunsAnything(Execute):
    """A plan is run as it is, whoever its steps go to."""

    async def __call__(self, state: Any) -> Any:
        if state.turn > 0:
            return Done(report(), update=Update(problems=()))
        steps = state.inbox[0].value.steps
        return Delegate(*(Call(step.to, step.objective, id=step.id) for step in steps), update=Update(problems=()))


def like(kind: type[Any]) -> Callable[[Any], Any]:
    """Make the wrong node from the right one, with all that it was made with."""

    def change(fn: Any) -> Any:
        return kind(**vars(fn))

    return change


def always_a(fn: Any) -> Any:
    """Whatever was said, the first gets it."""

    async def body(state: Any) -> Handoff:
        return Handoff("a")

    return body


def by_arrival(fn: Any) -> Any:
    """The last stands first."""

    async def body(state: Any) -> TeamReport:
        return report(*(said_by(source, value) for source, value in reversed(state.inbox)))

    return body


WRONG: Final[tuple[tuple[str, str, Callable[[Any], Any], str], ...]] = (
    ("round_robin", "next_speaker", like(StartsWithTheSecond), "which is 'a''s"),
    ("round_robin", "next_speaker", like(ForgetsWhatWasSaid), "not given all"),
    ("round_robin", "floor", like(StopsEarly), "3 were asked for"),
    ("never", "floor", like(ReportsSuccess), "was not over"),
    ("random", "next_speaker", like(DrawsWithoutASeed), "the seed 3 says"),
    ("router", "route", always_a, "'b' was named"),
    ("parallel", "together", by_arrival, "the order is a, b, c"),
    ("replanned", "execute", like(RunsAnything), "cannot be right"),
)


@pytest.mark.parametrize(("name", "node", "change", "words"), WRONG, ids=[row[3] for row in WRONG])
def test_a_wrong_graph_is_told_by_its_trace(name: str, node: str, change: Callable[[Any], Any], words: str) -> None:
    """What a peer gets wrong, built on purpose, is seen in what the run did."""
    kind, graph = scenes()[name]
    events = events_of(wrong_body(graph, node, change))

    told = strategy_violations(kind, graph, events)

    assert any(words in sentence for sentence in told), told


OTHERS = [
    (kind, other)
    for kind in NINE
    for other in ("handoff", "swarm", "router", "sequential", "parallel", "round_robin", "random", "manual", "plan")
    if kind not in (other, "plan_execute" if other == "plan" else "") and {kind, other} != {"handoff", "swarm"}
]


@pytest.mark.parametrize(("kind", "other"), OTHERS, ids=[f"{other}-is-no-{kind}" for kind, other in OTHERS])
def test_a_trace_of_another_strategy_is_told(kind: Strategy, other: str) -> None:
    """What one strategy does is not taken for what another one promises."""
    _, graph, events = scene(other)

    assert strategy_violations(kind, graph, events)


@pytest.mark.parametrize("name", [*scenes()])
def test_a_trace_that_stops_anywhere_is_no_violation(name: str) -> None:
    """A run that was broken off at any event has kept every rule so far."""
    kind, graph, events = scene(name)

    told = {cut: strategy_violations(kind, graph, events[:cut]) for cut in range(1, len(events))}

    assert {cut: sentences for cut, sentences in told.items() if sentences} == {}


def test_what_the_events_do_not_tell_is_no_violation() -> None:
    """A planner whose reply cannot be read any more is taken at what was noted of its plan."""
    kind, graph, events = scene("written")
    unread = traces.replied("p", ModelReply("no plan"))([*events])
    routes, router, routed = scene("router")

    told = [strategy_violations(kind, graph, unread[:cut]) for cut in range(len(unread) + 1)]

    assert {*told} == {()}
    assert strategy_violations(routes, router, routed[1:]) == ()


def shapes() -> list[Graph[Any]]:
    """Graphs that are none of a strategy's, though they begin like one."""
    a, b, c = member("a"), member("b"), member("c")
    return [
        Graph("alone", START >> a >> END, context=Conversation),
        Graph("loop", START >> a, a.choose(when(not_yet, b, max_hops=1), default=END), b >> a, context=Conversation),
        Graph("lanes", START >> (a, b), a.choose(when(not_yet, c), default=c), b >> c >> END, context=Conversation),
        Graph("chosen", START.choose(when(not_yet, a)), a >> END, context=Conversation),
    ]


def not_yet(state: Any) -> bool:
    """A predicate that never holds."""
    return False


@pytest.mark.parametrize("kind", ["round_robin", "random", "manual", "parallel", "plan_execute", "router", "swarm"])
def test_a_graph_of_another_shape_is_told(kind: Strategy) -> None:
    """What is no graph of the strategy is said to be none, and not judged as if it were."""
    told = {graph.name: strategy_violations(kind, graph, ()) for graph in shapes()}

    assert any(f"{name!r} is no graph of {kind}" in "".join(sentences) for name, sentences in told.items())


def test_bad_arguments_are_told_with_what_is_known() -> None:
    """An unknown strategy, and a path that is none, each in one sentence."""
    _, graph, events = scene("round_robin")
    wrong: Any = "round-robin"

    with pytest.raises(UsageError, match="one of 'handoff', 'router'"):
        strategy_violations(wrong, graph, events)
    with pytest.raises(UsageError, match="at='a:b'"):
        strategy_violations("round_robin", graph, events, at="a:b")


def test_the_run_of_another_graph_is_told() -> None:
    """Nodes that a graph does not have are named, whatever the strategy."""
    _, _, events = scene("plan")
    _, graph, _ = scene("round_robin")

    told = strategy_violations("round_robin", graph, events)

    assert told
    assert all("has no such node" in one for one in told)
