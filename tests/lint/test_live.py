"""Detection as a run goes on: `no_progress`, and lint over what has happened so far."""

from typing import Any

import pytest

from graphflow import END, START, Agent, Budget, Context, Graph, run, start
from graphflow.errors import UsageError
from graphflow.events import Detected, Event
from graphflow.lint import lint
from graphflow.nodes.detect import Detector, Then, no_progress
from graphflow.testing import ScriptedModel, call
from tests.lint.builders import Desk, solo


class Talk(Context):
    """What the user says."""

    text: str = "hi"


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def around(*detectors: Detector, finds: bool = False) -> Graph[Talk]:
    """Three agents that hand on to each other for ever; each may look at something new first."""
    names = ("a", "b", "c")
    count = iter(range(1_000))

    def to(other: str) -> ScriptedModel:
        def decide(request: Any) -> Any:
            if finds and request.messages[-1].role != "tool":
                return call("look", at=str(next(count)))
            return call(f"transfer_to_{other}", note="yours")

        return ScriptedModel(*[decide] * 60)

    agents = [Agent(name, model=to(names[(at + 1) % 3]), tools=[look]) for at, name in enumerate(names)]
    a, b, c = agents
    return Graph(
        "around",
        START >> a >> END,
        a.hands_off(b, max_hops=20),
        b.hands_off(c, max_hops=20),
        c.hands_off(a, max_hops=20),
        context=Talk,
        max_handoffs=12,
        detect=detectors,
        budget=Budget(model_calls=99),
    )


async def seen(graph: Graph[Talk]) -> tuple[Any, list[Detected]]:
    """Run a graph, and return what its detectors saw."""
    events: list[Event] = []
    result = await run(graph, Talk(), listeners=[events.append])
    return result, [event.body for event in events if isinstance(event.body, Detected)]


@pytest.mark.parametrize("hops", [1, 3, 6])
async def test_no_progress_stops_after_so_many_handoffs(hops: int) -> None:
    """The handoff after that is refused, with the trail."""
    result, found = await seen(around(no_progress(hops)))

    assert (result.status, result.reason.code, result.reason.limit) == ("exhausted", "no_progress", hops)
    assert result.spent.total.model_calls == hops + 1
    assert [one.detector for one in found] == ["no_progress"]
    assert "a b c" in result.reason.text or hops == 1


async def test_new_evidence_is_progress() -> None:
    """Agents that find something new each time may hand on until the bound of the graph."""
    result, found = await seen(around(no_progress(2), finds=True))

    assert (result.reason.code, found) == ("max_handoffs", [])


@pytest.mark.parametrize(("then", "times"), [("warn", 9), ("note", 9)])
async def test_it_may_warn_or_tell_the_agent(then: Then, times: int) -> None:
    """Nobody is stopped then."""
    graph = around(no_progress(3, then=then))

    result, found = await seen(graph)

    assert (result.reason.code, len(found)) == ("max_handoffs", times)
    models = [node.model for node in graph.nodes.values() if isinstance(node, Agent)]
    texts = [one.text for model in models if isinstance(model, ScriptedModel) for request in model.requests
             for one in request.messages]  # fmt: skip
    assert any("was handed on" in text for text in texts) is (then == "note")


@pytest.mark.parametrize("given", [{"hops": 0}, {"hops": None}, {"then": "shout"}])
def test_what_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    """Where it is made."""
    with pytest.raises(UsageError):
        no_progress(**given)


async def test_a_run_can_be_stopped_by_what_lint_sees() -> None:
    """Lint over the events so far, as often as one likes."""
    graph = solo(*[call("search", text="invoice")] * 9, "Twice.")
    events: list[Event] = []

    async with start(graph, Desk()) as going:
        async for event in going:
            events.append(event)
            if event.kind == "effect_finished" and lint(graph, events, only=["same-step-again"]):
                going.cancel()
        result = await going.result()

    assert result.status == "cancelled"
    assert (result.spent.total.model_calls or 0) <= 4
