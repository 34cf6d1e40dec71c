"""What follows when a provider gives no reply: waits, retries that cost, refusals, fallbacks; no key is shown."""

from __future__ import annotations

import datetime as dt
import traceback
from decimal import Decimal
from email.utils import format_datetime
from typing import Any, Final

import pytest

from graphflow import END, START, Agent, Budget, Graph, MemoryJournal, ModelRefused, ModelUnavailable, Price
from graphflow.events import Event, NodeRetried
from graphflow.testing import ManualClock
from tests.model_replies import Error, Reply, Say, rate_limited, too_long
from tests.openai_server import ModelServer
from tests.providers.helpers import KEY, Case, Heard, at, hear

HALF: Final = Decimal("0.5")


def asks(server: ModelServer, *fallbacks: Any, **options: Any) -> Graph[Case]:
    """A graph of one agent, whose model is at the server."""
    agent = Agent("solo", model=at(server), fallbacks=fallbacks, **options)
    return Graph("g", START >> agent >> END, context=Case)


async def heard_of(*script: Reply, retries: int = 1, **options: Any) -> tuple[Heard, ManualClock, ModelServer]:
    """What is heard of a run whose model answers so, on a clock that jumps."""
    clock = ManualClock()
    with ModelServer(*script) as server:
        heard = await hear(asks(server, retries=retries), clock=clock, **options)
    return heard, clock, server


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_rate_limit_is_waited_for_on_the_clock_of_the_run() -> None:
    """A retry waits for as long as the provider asked; it costs a retry, a model call and a node run."""
    heard, clock, server = await heard_of(rate_limited("30"), Say("Here."), budget=Budget(model_calls=2, retries=1))

    spent = heard.result.spent.total
    assert heard.result.output == "Here."
    assert clock.now() == pytest.approx(30.0)
    assert (spent.model_calls, spent.retries, spent.node_runs) == (2, 1, 2)
    assert len(server.requests) == 2


async def test_a_rate_limit_can_name_a_date() -> None:
    """`Retry-After` may be a date of HTTP."""
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=40)

    heard, clock, _ = await heard_of(rate_limited(format_datetime(until, usegmt=True)), Say("Here."))

    assert heard.result.output == "Here."
    assert 30 < clock.now() <= 40


@pytest.mark.parametrize("status", [500, 502, 503, 408, 529])
async def test_waits_grow_where_nobody_says_how_long(status: int) -> None:
    """An error of the server is asked again after half a second, then one, then two."""
    heard, clock, server = await heard_of(*[Error(status)] * 3, Say("Here."), retries=3)

    assert heard.result.output == "Here."
    assert clock.now() == pytest.approx(0.5 + 1 + 2)
    assert len(server.requests) == 4


async def test_the_last_failure_is_not_waited_after() -> None:
    """Where nothing follows a failure, nobody waits."""
    clock = ManualClock()

    with ModelServer(*[rate_limited("30")] * 2) as server, pytest.raises(ModelUnavailable, match="HTTP 429"):
        await hear(asks(server, retries=1), clock=clock)

    assert clock.now() == pytest.approx(30.0)


async def test_a_connection_that_is_refused_is_tried_again() -> None:
    """A server that is not there may be later; the error says where it was looked for."""
    clock = ManualClock()
    with ModelServer() as server:
        gone = asks(server, retries=2)

    with pytest.raises(ModelUnavailable, match=rf"Is there a server at {server.base_url}\?"):
        await hear(gone, clock=clock)

    assert clock.now() == pytest.approx(1.5)


async def test_a_wait_counts_against_the_seconds_of_the_run() -> None:
    """A run whose seconds end while it waits stands still at that bound, and asks no more."""
    heard, clock, server = await heard_of(rate_limited("30"), Say("x"), budget=Budget(seconds=10))

    assert heard.result.status == "exhausted"
    assert clock.now() == pytest.approx(10.0)
    assert len(server.requests) == 1


async def test_a_retry_that_the_budget_refuses_is_not_made() -> None:
    """Without retries left in the budget the failure stands, and says what refused the next attempt."""
    with ModelServer(rate_limited("1")) as server, pytest.raises(ModelUnavailable):
        await hear(asks(server, retries=3), clock=ManualClock(), budget=Budget(retries=0))

    assert len(server.requests) == 1


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSALS: Final[dict[str, tuple[Reply, str]]] = {
    "a wrong key": (Error(401, f"Incorrect API key provided: {KEY}."), r"HTTP 401.*key in OPENAI_API_KEY"),
    "no right": (Error(403, "You are not allowed to sample from this model."), r"HTTP 403.*key in OPENAI_API_KEY"),
    "a bad request": (Error(400, "Unknown parameter."), r"HTTP 400.*settings="),
    "too long": (too_long(), r"HTTP 400.*9000 tokens.*history="),
    "no such model": (Error(404, "No such model.", "model_not_found"), r"HTTP 404.*name of the model"),
    "no money": (Error(402, "Insufficient credits."), r"HTTP 402.*limits"),
    "no quota": (Error(429, "You exceeded your current quota.", "insufficient_quota"), r"HTTP 429.*limits"),
    "a long wait": (rate_limited("3600"), r"HTTP 429.*3,600 s, more than 60 s"),
    "filtered": (Say("", finish="content_filter"), "filtered the answer of 'solo'"),
    "filtered in the middle": (Say("In tra", finish="content_filter"), "filtered the answer of 'solo'"),
    "a refusal": (Say("I will not.", refusal=True), "filtered the answer of 'solo'"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_what_would_be_refused_again_is_not_asked_again(name: str) -> None:
    """A refusal ends the attempts at once; the error names the model, the status, and what can be done."""
    reply, says = REFUSALS[name]
    clock = ManualClock()

    with ModelServer(reply) as server, pytest.raises(ModelRefused, match=f"openai:small.*{says}"):
        await hear(asks(server, retries=5), clock=clock)

    assert len(server.requests) == 1
    assert clock.now() == 0


@pytest.mark.parametrize("name", REFUSALS)
async def test_after_a_refusal_the_next_model_is_asked_at_once(name: str) -> None:
    """A fallback takes over without a wait, as a retry that costs one."""
    clock = ManualClock()

    with ModelServer(REFUSALS[name][0], Say("Here.")) as server:
        heard = await hear(asks(server, at(server, "openai:other"), retries=2), clock=clock)

    assert heard.result.output == "Here."
    assert clock.now() == 0
    assert [asked.body["model"] for asked in server.requests] == ["small", "other"]
    assert heard.result.spent.total.retries == 1


async def test_fallbacks_come_in_order_each_with_the_retries_anew() -> None:
    """A model that is unavailable is asked as often as the agent's retries say before the next one comes."""
    clock = ManualClock()
    script: list[Reply] = [Error(503), Error(503), Error(401, "no"), Error(500), Say("Here.")]

    with ModelServer(*script) as server:
        graph = asks(server, at(server, "openai:second"), at(server, "openai:third"), retries=1)
        heard = await hear(graph, clock=clock)

    asked = [request.body["model"] for request in server.requests]
    assert asked == ["small", "small", "second", "third", "third"]
    assert heard.result.output == "Here."
    assert len(heard.of(NodeRetried)) == 4
    assert heard.result.spent.total.model_calls == 5


async def test_when_all_models_fail_the_last_error_comes_out() -> None:
    """After the last fallback nothing follows: its error is raised, and says how many attempts there were."""
    with (
        ModelServer(Error(401, "first"), Error(404, "second")) as server,
        pytest.raises(ModelRefused, match=r"openai:other: HTTP 404: second") as raised,
    ):
        await hear(asks(server, at(server, "openai:other"), retries=3), clock=ManualClock())

    assert len(server.requests) == 2
    assert "raised by the node 'solo'" in "".join(raised.value.__notes__)


async def test_a_fallback_is_reserved_and_settled_at_its_own_price() -> None:
    """The money of a call is that of the model that is asked."""
    dear = Price(input=HALF / 1000, output=HALF)
    with ModelServer(Error(401), Say("Here.", usage=(100, 4))) as server:
        cheap = at(server, price=Price(HALF / 1000, HALF / 1000))
        agent = Agent("solo", model=cheap, fallbacks=[at(server, "openai:dear", price=dear)], max_tokens=50)
        graph = Graph("g", START >> agent >> END, context=Case, budget=Budget(usd="10"))
        heard = await hear(graph)

    second = server.requests[1].body
    assert heard.result.output == "Here."
    assert second["max_tokens"] < 21
    assert heard.result.spent.total.usd is not None
    assert heard.result.spent.total.usd >= 100 * dear.input + 4 * dear.output


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_key_is_never_shown() -> None:
    """A server that repeats the key it was sent finds it neither in errors nor in events nor in what is stored."""
    journal = MemoryJournal()
    events: list[Event] = []
    reply = Error(401, f"Incorrect API key provided: {KEY}. You can find your API key in your account.")

    with ModelServer(reply) as server, pytest.raises(ModelRefused) as raised:
        await hear(asks(server), events=events, journal=journal, run_id="kept")
    rows = await journal.read("kept")

    shown = "".join(traceback.format_exception(raised.value))
    assert "(OPENAI_API_KEY)" in str(raised.value)
    for text in (shown, repr(events), repr(rows), repr(asks(server)), repr(at(server).__dict__)):
        assert KEY not in text


async def test_the_key_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`key_from=` names another variable of the environment, which is read for each request and kept nowhere."""
    with ModelServer(Say("Here."), key="another-key-of-the-tests") as server:
        model = at(server, key_from="DESK_KEY")
        monkeypatch.setenv("DESK_KEY", server.key)
        heard = await hear(Graph("g", START >> Agent("solo", model=model) >> END, context=Case))

    assert heard.result.output == "Here."
    assert server.key not in repr(model.__dict__)
