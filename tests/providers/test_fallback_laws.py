"""The laws of failing models: whatever they raise, attempts, budgets and accounts hold, and the run ends once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Join,
    MemoryJournal,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    Price,
    State,
    ToolCall,
    Usage,
    fork,
    node,
    run_sync,
)
from graphflow.errors import ModelError
from graphflow.events import EffectStarted, Event, NodeRetried, NodeStarted, RunEnded
from graphflow.nodes.client import Stream
from graphflow.nodes.edges import FailurePolicy
from graphflow.runtime.advance import Fold
from graphflow.testing import ManualClock, fold_again, records_of
from tests.laws.accounts import audit
from tests.laws.bounds import excesses, overruns
from tests.providers.conversations import track
from tests.providers.helpers import Case
from tests.support import examples

MOODS: Final = ("ok", "ok", "call", "late", "wait", "refused", "broken", "bug", "silent", "dear")
FAILURES: Final[tuple[FailurePolicy, ...]] = ("collect", "fail_fast")
PRICE: Final = Price(Decimal("0.00001"), Decimal("0.0001"))


class Moody:
    """A model that answers and fails as its moods say, and then always answers."""

    def __init__(self, name: str, moods: Sequence[str], asked: list[str], price: Price | None = None) -> None:
        self.name, self.moods, self.asked, self.price = name, list(moods), asked, price

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Do as the next mood says."""
        self.asked.append(self.name)
        stream("…")
        usage = Usage(1, min(5, request.max_tokens))
        match self.moods.pop(0) if self.moods else "ok":
            case "late":
                raise ModelUnavailable(self.name)
            case "wait":
                raise ModelUnavailable(self.name, 7.0, unused=True)
            case "refused":
                raise ModelRefused(self.name)
            case "broken":
                raise ModelError(self.name)
            case "bug":
                raise LookupError(self.name)
            case "silent":
                return ModelReply("", usage=usage)
            case "call":
                return ModelReply("", (ToolCall("track", '{"order": "A-7"}'),), usage)
            case "dear":
                return ModelReply("Here.")
            case _:
                return ModelReply("Here.", usage=usage)


some_moods: Final = st.lists(st.sampled_from(MOODS), max_size=6)
budgets: Final = st.builds(
    Budget,
    node_runs=st.none() | st.integers(1, 8),
    model_calls=st.none() | st.integers(0, 8),
    retries=st.none() | st.integers(0, 5),
    tokens=st.none() | st.integers(1, 3000),
    usd=st.none() | st.sampled_from(["0.001", "0.01"]),
    seconds=st.none() | st.sampled_from([0.4, 5.0, 100.0]),
)


@node
async def begin(state: State[Context]) -> None:
    """Do nothing."""


@st.composite
def teams(draw: st.DrawFn) -> tuple[Graph[Any], tuple[Agent, ...], list[str]]:
    """A few agents, one after the other or at once, each with models of its own."""
    asked: list[str] = []
    agents: list[Agent] = []
    for number in range(draw(st.integers(1, 3))):
        priced = draw(st.booleans())
        models = [
            Moody(f"{number}.{place}", draw(some_moods), asked, PRICE if priced else None)
            for place in range(draw(st.integers(1, 3)))
        ]
        agents.append(
            Agent(
                f"a{number}",
                model=models[0],
                fallbacks=models[1:],
                tools=[track],
                max_turns=draw(st.integers(1, 4)),
                retries=draw(st.integers(0, 3)),
                max_tokens=draw(st.integers(1, 200)),
            )
        )
    if len(agents) > 1 and draw(st.booleans()):
        failure = draw(st.sampled_from(FAILURES))
        statement: Any = START >> begin >> fork(*agents, failure=failure) >> Join("j")
    else:
        statement = START >> agents[0]
        for agent in agents[1:]:
            statement = statement >> agent
    return Graph("team", statement >> END, context=Case, budget=draw(budgets)), tuple(agents), asked


@settings(max_examples=examples(400))
@given(teams(), st.sampled_from(["asyncio", "trio"]), st.none() | st.integers(1, 2))
def test_failing_models_keep_every_bound(
    team: tuple[Graph[Any], tuple[Agent, ...], list[str]], backend: str, max_parallel: int | None
) -> None:
    """Attempts stay under `Agent.attempts`, spending under the budget and the proof, and each account is exact."""
    graph, agents, asked = team
    journal, events = MemoryJournal(), list[Event]()
    spent: Any = None

    with suppress(ModelError, LookupError):
        spent = run_sync(
            graph, Case(), backend=backend, clock=ManualClock(), journal=journal, run_id="r",
            listeners=[events.append], max_parallel=max_parallel,
        ).spent.total  # fmt: skip

    rows = anyio.run(journal.read, "r")
    budget = graph.budget or Budget()
    runs = sum(isinstance(event.body, NodeStarted | NodeRetried) for event in events)
    calls = sum(isinstance(event.body, EffectStarted) and event.body.name == "model" for event in events)
    assert [event.body for event in events if isinstance(event.body, RunEnded)] == [events[-1].body]
    assert not list(overruns(graph, events))
    assert not list(excesses(graph, events, 0, budget))
    assert len(asked) <= calls <= graph.worst_case().model_calls  # one that is cancelled at once was never asked
    for agent in agents:
        retries = sum(isinstance(event.body, NodeRetried) and event.path[-1].name == agent.name for event in events)
        assert retries < agent.attempts
    for most, count in ((budget.node_runs, runs), (budget.model_calls, calls)):
        assert most is None or count <= most
    fold = Fold(graph)
    for record in records_of(graph, rows):
        assert fold.advance(record.fact, record.at)[0] == list(record.decisions)
        audit(fold)
    assert fold_again(graph, rows).ended == events[-1].body
    assert spent is None or (spent.model_calls, spent.node_runs) == (calls, runs)


def expected(models: Sequence[Sequence[str]], retries: int) -> list[int]:
    """Which of the models is asked in turn, said as simply as it can be."""
    asked: list[int] = []
    for place, moods in enumerate(models):
        for attempt in range(retries + 1):
            asked.append(place)
            mood = moods[attempt] if attempt < len(moods) else "ok"
            if mood == "ok":
                return asked
            if mood == "refused":
                break
    return asked


@given(st.lists(st.lists(st.sampled_from(["ok", "late", "refused", "bug"])), min_size=1, max_size=4), st.integers(0, 3))
def test_who_is_asked_next(moods: list[list[str]], retries: int) -> None:
    """A refusal goes on to the next model at once, any other failure after the retries, which each model has anew."""
    asked: list[str] = []
    models = [Moody(str(place), some, asked) for place, some in enumerate(moods)]
    agent = Agent("solo", model=models[0], fallbacks=models[1:], retries=retries)
    graph = Graph("g", START >> agent >> END, context=Case)

    with suppress(ModelError, LookupError):
        run_sync(graph, Case(), clock=ManualClock())

    assert [int(name) for name in asked] == expected(moods, retries)
    assert len(asked) <= agent.attempts
