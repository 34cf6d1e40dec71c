"""Stored runs of real replies: no request is made twice, whoever takes the run up, and a replay makes none."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Graph,
    Join,
    ModelClient,
    ProviderModel,
    State,
    Supervisor,
    fork,
    fork_run,
    on_active,
    replay,
    resume,
    run,
    start,
    when,
)
from graphflow.errors import JournalUnavailable, ModelRefused
from graphflow.events import Row
from graphflow.testing import ManualClock, MemoryJournal, ScriptedModel, fold_again
from tests.model_replies import Calls, Error, Reply, Say, rate_limited
from tests.openai_server import ModelServer
from tests.providers.conversations import CONVERSATIONS, refund
from tests.providers.helpers import CLAUDE, Case, Parts, at, hear
from tests.support import BreakingJournal

NAMES: Final = ("desk", "company", "chat, full", "failures are data", "loop")


class Breaks:
    """Refuses one row, by its place among those that are written, and takes all others."""

    def __init__(self, place: int | None = None) -> None:
        self.place, self.count = place, 0

    def __call__(self, row: Row) -> None:
        """Count a row."""
        self.count += 1
        if self.count == self.place:
            raise JournalUnavailable(f"row {row.seq}")


async def finish(graph: Graph[Any], breaks: Breaks, journal: BreakingJournal) -> Any:
    """Run a graph, and take it up again as often as its journal breaks."""
    try:
        return await run(graph, graph.context(), journal=journal, run_id="r")
    except JournalUnavailable:
        breaks.place = None
        return await resume(graph, "r", journal=journal)


@pytest.mark.parametrize("name", NAMES)
async def test_a_run_that_breaks_off_anywhere_asks_for_no_reply_twice(name: str) -> None:
    """Whichever row is the last one that was kept, a reply that is stored is used, and no request breaks the protocol.

    A request whose reply could not be stored is made again, and only that one: it is in the window in which nobody
    knows.
    """
    conversation = CONVERSATIONS[name]
    counting = Breaks()
    with ModelServer(Parts(conversation.says)) as server:
        await finish(conversation.make(at(server), "native"), counting, BreakingJournal(counting))
        whole = len(server.requests)

    for place in range(2, counting.count + 1, 3):
        breaks = Breaks(place)
        journal = BreakingJournal(breaks)
        with ModelServer(Remembering(conversation.says)) as server:
            graph = conversation.make(at(server), "native")
            result = await finish(graph, breaks, journal)
            asked = len(server.requests)
            replayed = await replay(graph, "r", journal=journal)
            rows = await journal.read("r")
            stored = sum(row.fact.startswith('["effect_finished') and '"model"' in row.fact for row in rows)

        assert server.violations == []
        assert result.output == replayed.output == conversation.output
        assert len(server.requests) == asked
        assert whole <= asked <= whole + 2
        assert stored in {0, whole}
        fold_again(graph, rows)


class Remembering(Parts):
    """Answers a request that it has seen as it did then: a model's reply was lost, and it is asked again."""

    def __init__(self, says: Any) -> None:
        super().__init__(says)
        self.given: dict[str, Any] = {}

    def __call__(self, asked: Any) -> Any:
        """Answer from memory, else with the next step."""
        key = repr(asked.body)
        if key not in self.given:
            self.given[key] = super().__call__(asked)
        return self.given[key]


async def test_a_fork_asks_only_what_comes_after_it() -> None:
    """A fork of a run uses the replies before its place."""
    conversation, journal = CONVERSATIONS["parallel tools"], MemoryJournal()

    with ModelServer(Parts({"solo": [*conversation.says["solo"], Say("Otherwise.")]})) as server:
        graph = conversation.make(at(server), "native")
        heard = await hear(graph, journal=journal, run_id="r")
        last = next(event for event in reversed(heard.events) if event.kind == "effect_started")
        forked = await fork_run(graph, "r", journal=journal, at=last.seq)

    assert heard.result.output == "Done."
    assert forked.output == "Otherwise."
    assert len(server.requests) == 3
    assert server.violations == []


async def test_a_run_that_waits_for_a_person_is_taken_up_elsewhere() -> None:
    """An approval that comes in another process costs one more request, and no model hears a call twice."""
    journal = MemoryJournal()
    script: list[Reply] = [Calls(("refund", {"number": "INV-1", "amount": 5})), Say("Paid back.")]

    with ModelServer(*script) as server:
        agent = Agent("solo", model=at(server), tools=[refund])
        graph = Graph("g", START >> agent >> END, context=Case)
        waiting = await run(graph, Case(), journal=journal, run_id="r")
        result = await resume(graph, "r", journal=journal, answers={waiting.questions[0].id: True})

    assert result.output == "Paid back."
    assert len(server.requests) == 2
    assert server.violations == []


async def test_who_takes_a_run_up_asks_the_model_that_it_had_come_to() -> None:
    """A run that had gone on to a fallback goes on with it: the fold knows which model is next."""
    breaks = Breaks()
    journal = BreakingJournal(breaks)

    with ModelServer(Error(401, "no"), Calls(("refund", {"number": "1", "amount": 1})), Say("Here.")) as server:
        agent = Agent("solo", model=at(server), fallbacks=[at(server, "openai:other")], tools=[refund])
        graph = Graph("g", START >> agent >> END, context=Case)
        waiting = await run(graph, Case(), journal=journal, run_id="r")
        result = await resume(graph, "r", journal=journal, answers={waiting.questions[0].id: True})

    assert result.output == "Here."
    assert [asked.body["model"] for asked in server.requests] == ["small", "other", "other"]


async def test_a_replay_waits_for_nothing_and_asks_nobody() -> None:
    """What a run waited for stands in its times; who replays it neither waits nor asks."""
    journal, clock = MemoryJournal(), ManualClock()

    with ModelServer(rate_limited("50"), Say("Here.")) as server:
        agent = Agent("solo", model=at(server), retries=1)
        graph = Graph("g", START >> agent >> END, context=Case)
        result = await run(graph, Case(), journal=journal, run_id="r", clock=clock)
        replayed = await replay(graph, "r", journal=journal)

    assert result.output == replayed.output == "Here."
    assert clock.now() == pytest.approx(50)
    assert (await journal.read("r"))[-1].at == pytest.approx(50)
    assert len(server.requests) == 2


# --- another model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CONVERSATIONS))
async def test_another_model_changes_nothing_of_a_graph(name: str) -> None:
    """`with_model` gives every agent another model, however deep, and leaves what the graph is as it was."""
    conversation = CONVERSATIONS[name]
    graph = conversation.make(ProviderModel("openai:small", base_url="http://127.0.0.1:9/v1"), "native")

    parts = Parts(conversation.says)
    with ModelServer(parts) as server:
        other = graph.with_model(at(server))
        result = (await hear(other)).result

    assert result.output == conversation.output
    assert other == graph
    assert other.fingerprint() == graph.fingerprint()
    assert other.worst_case() == graph.worst_case()
    assert [str(found) for found in other.check()] == [str(found) for found in graph.check()]
    parts.assert_complete()


async def test_a_stored_run_goes_on_with_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model is no change of the graph: a run that began with one provider ends with the other."""
    journal = MemoryJournal()
    first, second = [Calls(("refund", {"number": "INV-1", "amount": 5}))], [Say("Paid back.")]

    with ModelServer(*first) as server, ModelServer(*second) as other:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        agent = Agent("solo", model=at(server), tools=[refund])
        graph = Graph("g", START >> agent >> END, context=Case)
        async with start(graph, Case(), journal=journal, run_id="r") as running:
            waiting = await running.result()
        result = await resume(graph.with_model(CLAUDE), "r", journal=journal, answers={waiting.questions[0].id: True})

    assert result.output == "Paid back."
    assert (server.violations, other.violations) == ([], [])


async def test_without_its_fallbacks_a_model_stands_alone() -> None:
    """`with_model` takes the fallbacks away: the given model is the one that is meant."""
    with ModelServer(Error(401, "no")) as server:
        agent = Agent("solo", model=at(server), fallbacks=[at(server, "openai:other")])
        graph = Graph("g", START >> agent >> END, context=Case)
        with pytest.raises(ModelRefused):
            await hear(graph.with_model(at(server, "openai:third")))

    assert [asked.body["model"] for asked in server.requests] == ["third"]


def urls(_: State[Any]) -> tuple[str, ...]:
    """The items of a map."""
    return ("a", "b")


def holds(_: State[Any]) -> bool:
    """What always holds."""
    return True


def everything(model: ModelClient) -> Graph[Case]:
    """A graph with an agent in every place that a graph has for one."""
    made = {
        name: Agent(name, model=model, fallbacks=[model])
        for name in ("begins", "spoke", "left", "maybe", "lane", "other", "after", "person", "member", "hurt")
    }
    team = Supervisor("team", model=model)
    inner = Graph("inner", START >> team, team.delegates(made["member"], max_hops=1), team >> END, context=Case)
    return Graph(
        "everything",
        START.choose(on_active(made["spoke"]), default=made["begins"]),
        made["spoke"] >> made["begins"],
        made["begins"] >> fork(made["left"], when(holds, made["maybe"])) >> Join("j") >> inner,
        inner.map(made["lane"] >> made["other"], over=urls, join=Join("all"), max_items=3),
        made["lane"].on_error(made["hurt"], catch=ValueError),
        made["hurt"] >> END,
        Join("all") >> made["after"] >> END,
        context=Case,
        escalate=made["person"],
        max_depth=2,
    )


def models_of(graph: Graph[Any]) -> dict[str, tuple[ModelClient, ...]]:
    """The models of every agent of a graph, and of the graphs inside it."""
    found: dict[str, tuple[ModelClient, ...]] = {}
    for name, station in graph.compiled.stations.items():
        inside: object = station.node
        if isinstance(inside, Agent):
            found[name] = inside.models
        elif isinstance(inside, Graph):
            found |= models_of(cast("Graph[Any]", inside))
    return found


def test_every_agent_gets_the_other_model_wherever_it_stands() -> None:
    """In branches, cases, lanes, teams, error edges and escalation alike; the graph itself is what it was."""
    first, second = ScriptedModel(), ScriptedModel()
    graph = everything(first)

    other = graph.with_model(second)

    assert len(models_of(graph)) == 11
    assert models_of(other) == dict.fromkeys(models_of(graph), (second,))
    assert set(models_of(graph).values()) == {(first, first), (first,)}
    assert (other, other.fingerprint(), other.structure()) == (graph, graph.fingerprint(), graph.structure())
    assert [str(found) for found in other.check()] == [str(found) for found in graph.check()]
