"""Runs of each strategy, played once, that validators are tried on."""

from __future__ import annotations

import contextlib
import functools
from functools import partial
from typing import Any

import anyio

from graphflow import Graph, quorum, resume, run_sync, strategies
from graphflow.events import Event
from graphflow.graphs.strategies import Conversation, Plan, Verdict
from graphflow.testing import ManualClock, MemoryJournal
from graphflow.testing.strategies import Strategy
from tests.strategies.teams import ASKED, agent, hands, member, plan_of, planner, team

Scene = tuple[Strategy, Graph[Any]]


def not_over(talk: Conversation) -> bool:
    """It never ends by itself."""
    return False


def after_two(talk: Conversation) -> bool:
    """It ends when two have spoken."""
    return len(talk.said) == 2


def stops(state: Any) -> str:
    """A gate that is never passed."""
    return "that will do"


def scenes() -> dict[str, Scene]:
    """A run of each strategy, and of those of its variants that rules are about."""
    m = member
    return {
        "handoff": ("handoff", strategies.handoff("t", hands("p", "b"), m("a"), m("b"))),
        "swarm": ("swarm", strategies.swarm("t", hands("p", "b"), m("a"), m("b"))),
        "ping-pong": ("swarm", strategies.swarm("t", hands("p", "q"), hands("q", "p"), max_handoffs=3, detect=())),
        "router": ("router", strategies.router("t", agent("c", "b, please"), m("a"), m("b"), fallback=m("d"))),
        "sequential": ("sequential", strategies.sequential("t", m("a"), m("b"), m("c"), see="all")),
        "previous": ("sequential", strategies.sequential("t", m("a"), m("b"), gates={"a": lambda _: None})),
        "stopped": ("sequential", strategies.sequential("t", m("a"), m("b"), gates={"a": stops})),
        "parallel": ("parallel", strategies.parallel("t", m("a"), m("b"), m("c", fails="no"))),
        "quorum": ("parallel", strategies.parallel("t", m("a"), m("b"), m("c", seconds=9), join=quorum(2))),
        "round_robin": ("round_robin", strategies.round_robin("t", m("a"), m("b"), turns=3)),
        "until": ("round_robin", strategies.round_robin("t", m("a"), m("b"), turns=5, until=after_two)),
        "escalated": (
            "round_robin",
            strategies.round_robin("t", m("a"), turns=1, until=not_over, escalate=m("boss")),
        ),
        "never": ("round_robin", strategies.round_robin("t", m("a"), m("b"), turns=2, until=not_over)),
        "allowed": (
            "manual",
            strategies.manual(
                "t", m("a"), m("b"), turns=5, allowed_transitions={"a": ["b"]},
                decide=lambda talk: ("a", "b", "a", None)[len(talk.said)],
            ),
        ),
        "random": ("random", strategies.random("t", m("a"), m("b"), m("c"), turns=4, seed=3)),
        "manual": ("manual", team("manual", "t")),
        "plan": (
            "plan_execute",
            strategies.plan_execute("t", planner("p", plan_of(("1", "a"), ("2", "b", ("1",)))), m("a"), m("b")),
        ),
        "replanned": (
            "plan_execute",
            strategies.plan_execute(
                "t",
                planner(
                    "p", plan_of(("1", "nobody")), plan_of(("1", "a"), ("2", "f", ("1",))),
                    plan_of(("1", "a"), ("3", "b", ("1",))),
                ),
                m("a"), m("b"), m("f", fails="no"),
            ),
        ),
        "written": (
            "plan_execute",
            strategies.plan_execute("t", agent("p", plan_of(("1", "a")), output=Plan), m("a")),
        ),
        "failing": (
            "plan_execute",
            strategies.plan_execute(
                "t", planner("p", plan_of(("2", "f"), ("9", "a"), ("3", "b", ("9",)))), m("a", seconds=1), m("b"),
                m("f", fails="no"), max_replans=0,
            ),
        ),
        "person": ("manual", strategies.manual("t", m("a"), m("b"), turns=2)),
        "verified": (
            "plan_execute",
            strategies.plan_execute(
                "t", planner("p", plan_of(("1", "a"))), m("a"), verify=m("v", Verdict(accepted=True))
            ),
        ),
    }  # fmt: skip


@functools.cache
def scene(name: str) -> tuple[Strategy, Graph[Any], tuple[Event, ...]]:
    """Play a scene once."""
    kind, graph = scenes()[name]
    return kind, graph, events_of(graph)


def events_of(graph: Graph[Any]) -> tuple[Event, ...]:
    """Play a graph, however it ends."""
    events: list[Event] = []
    journal, said = MemoryJournal(), iter(("a", "finish"))
    with contextlib.suppress(ValueError):  # what a member of a scene raises
        result = run_sync(
            graph,
            graph.context(task=ASKED),
            listeners=[events.append],
            clock=ManualClock(),
            journal=journal,
            run_id="r",
        )
        while result.questions:
            answers = {result.questions[0].id: next(said)}
            result = anyio.run(partial(resume, graph, "r", journal=journal, answers=answers, listeners=[events.append]))
    return tuple(events)
