"""Tokens and money of real replies: reserved, clamped, settled, by node and by edge."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from graphflow import END, START, Agent, Budget, Graph, Join, ModelRefused, Price, ProviderModel, fork
from graphflow.errors import ModelError, UsageError
from graphflow.events import EffectStarted
from graphflow.nodes.providers.prices import price_of
from graphflow.testing import ManualClock
from tests.model_replies import Calls, Error, Reply, Say, rate_limited
from tests.openai_server import Asked, ModelServer
from tests.providers.conversations import CONVERSATIONS, track
from tests.providers.helpers import CLAUDE, Case, Parts, at, hear

CENT: Final = Decimal("0.01")


def graph_of(model: Any, budget: Budget | None = None, **options: Any) -> Graph[Case]:
    """A graph of one agent."""
    agent = Agent("solo", model=model, tools=[track], **options)
    return Graph("g", START >> agent >> END, context=Case, budget=budget)


async def test_what_a_reply_used_is_settled_by_node_and_edge() -> None:
    """Each reply's tokens count for the agent that asked, and the reservation is given back."""
    conversation = CONVERSATIONS["company"]

    with ModelServer(Parts(conversation.says)) as server:
        heard = await hear(conversation.make(at(server), "native"))

    spent = heard.result.spent
    by_node = {name: found.tokens for name, found in spent.by_node.items() if found.tokens}
    assert spent.total.tokens == 15 * len(server.requests) == sum(filter(None, by_node.values()))
    assert by_node == {
        "ceo": 15 * 2, "ceo/support/desk": 15 * 3, "ceo/support/desk/billing": 15 * 3,
        "ceo/support/desk/shipping": 15 * 2,
    }  # fmt: skip


async def test_max_tokens_is_what_the_budget_has_left() -> None:
    """Each request may write at most what is left after what it reads; what was used counts, not what was reserved."""
    script = [Calls(("track", {"order": "A-7"}), usage=(100, 50)), Calls(("track", {"order": "B"}), usage=(100, 50))]

    with ModelServer(*script, Say("Done.", usage=(50, 5))) as server:
        heard = await hear(graph_of(at(server), Budget(tokens=600), max_tokens=400))

    allowed = [asked.body["max_tokens"] for asked in server.requests]
    reserved = [event.reserved.tokens for event in heard.of(EffectStarted) if event.name == "model"]
    assert heard.result.output == "Done."
    assert allowed[0] == 400
    assert 400 > allowed[1] > allowed[2] > 0
    assert reserved[1] <= 450
    assert reserved[2] <= 300
    assert heard.result.spent.total.tokens == 355


async def test_money_clamps_what_may_be_written_too() -> None:
    """At ten cents a token, fifty cents are five tokens."""
    price = Price(Decimal(0), CENT * 10)

    with ModelServer(Say("Here.", usage=(10, 3))) as server:
        heard = await hear(graph_of(at(server, price=price), Budget(usd="0.50")))

    assert server.requests[0].body["max_tokens"] == 5
    assert heard.result.spent.total.usd == CENT * 30


async def test_a_reply_that_says_nothing_of_its_tokens_counts_as_all_that_was_reserved() -> None:
    """What nobody knows is assumed to be the most that it can be."""
    with ModelServer(Say("Here.", usage=None)) as server:
        heard = await hear(graph_of(at(server), Budget(tokens=2000), max_tokens=100))

    reserved = heard.of(EffectStarted)[0].reserved.tokens
    assert reserved > 100
    assert heard.result.spent.total.tokens == reserved


async def test_a_known_model_costs_what_its_price_list_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The money of a provider's own model is known: it is reserved before, and settled after."""
    price = price_of(CLAUDE)
    assert price is not None

    with ModelServer(Say("Here.", usage=(1000, 500))) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        heard = await hear(graph_of(CLAUDE, Budget(usd="5")))

    reserved = heard.of(EffectStarted)[0].reserved
    cost = 1000 * price.input + 500 * price.output
    assert reserved.usd >= 1024 * price.output
    assert heard.result.spent.total.usd == cost > 0


@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "openai:nobody-knows-it"])
async def test_nobody_knows_what_a_server_of_ones_own_costs(name: str) -> None:
    """At a `base_url` a known name proves nothing: what it costs is what `price=` says, else nothing."""
    with ModelServer(Say("Here."), Say("Here.")) as server:
        free = await hear(graph_of(at(server, name), Budget(usd="1")))
        paid = await hear(graph_of(at(server, name, price=Price(CENT, CENT)), Budget(usd="20")))

    assert free.result.spent.total.usd == 0
    assert paid.result.spent.total.usd == 15 * CENT


def test_prices_are_those_of_the_list() -> None:
    """A known model has a price, an unknown one none, and none is negative."""
    known = [price_of(name) for name in ("openai:gpt-5", "openai:gpt-4o-mini", CLAUDE)]

    assert all(price is not None and price.input > 0 and price.output > price.input for price in known)
    assert price_of("openai:nobody-knows-it") is None
    assert price_of("nobody:gpt-5") is None


def test_a_price_must_be_one() -> None:
    """What is no price is refused where the model is described."""
    with pytest.raises(UsageError, match="a Price of two Decimals"):
        ProviderModel("openai:small", price=Price(1.5, 2))  # type: ignore[arg-type]


async def test_branches_share_what_is_left() -> None:
    """Agents that ask at once are never allowed more than the budget has, taken together."""

    def answer(asked: Asked) -> Say:
        return Say("Here.", usage=(20, min(20, asked.body["max_tokens"])), trickle=0.01)

    with ModelServer(answer) as server:
        agents = [Agent(f"a{number}", model=at(server), max_tokens=200) for number in range(4)]
        graph = Graph("g", START >> fork(*agents) >> Join("j") >> END, context=Case, budget=Budget(tokens=300))
        heard = await hear(graph)

    assert heard.result.status == "completed"
    assert heard.result.spent.total.tokens == 160
    assert all(asked.body["max_tokens"] <= 200 for asked in server.requests)


@pytest.mark.parametrize(("reply", "free"), [(rate_limited("1"), True), (Error(503), True), (Error(500), False)])
async def test_a_request_that_was_turned_away_uses_no_tokens(reply: Error, free: bool) -> None:
    """A rate limit costs a call and a retry, and no tokens; of an error in the middle nobody knows, so it costs all."""
    with ModelServer(reply, reply, Say("Here.")) as server:
        heard = await hear(graph_of(at(server), Budget(tokens=5000), retries=2, max_tokens=500), clock=ManualClock())

    tokens = heard.result.spent.total.tokens or 0
    assert heard.result.spent.total.model_calls == 3
    assert tokens == 15 if free else tokens > 1000


# --- answers that are none -------------------------------------------------------------------------------------------


async def test_a_reply_that_was_cut_at_its_tokens_and_is_empty_says_so() -> None:
    """A model that thought until its tokens were gone has given no answer; the error says what to raise."""
    with (
        ModelServer(Say("", finish="length")) as server,
        pytest.raises(ModelError, match=r"openai:small wrote the 64 tokens.*max_tokens="),
    ):
        await hear(graph_of(at(server), max_tokens=64))


async def test_a_call_that_was_cut_at_its_tokens_is_told_to_the_model() -> None:
    """Half a call is not executed; the model hears so, and calls again."""
    script: list[Reply] = [
        Calls(("track", '{"order": "A'), finish="length"),
        Calls(("track", {"order": "A-7"})),
        Say("Here."),
    ]

    with ModelServer(*script) as server:
        heard = await hear(graph_of(at(server)))

    told = [message["content"] for message in server.requests[1].body["messages"] if message["role"] == "tool"]
    assert heard.result.output == "Here."
    assert heard.result.spent.total.tool_calls == 1
    assert "not executed" in told[0]
    assert server.violations == []


async def test_an_empty_answer_is_sent_back_once() -> None:
    """An answer of nothing is told to the model; when it stays empty, the agent has failed."""
    with ModelServer(Say(""), Say("  ")) as server:
        heard = await hear(graph_of(at(server)))

    assert heard.result.status == "failed"
    assert heard.result.reason is not None
    assert heard.result.reason.code == "empty_answer"
    assert len(server.requests) == 2


async def test_a_filtered_answer_names_the_agent() -> None:
    """What a provider filtered is refused, as it would be again."""
    with ModelServer(Say("", finish="content_filter")) as server, pytest.raises(ModelRefused, match="'solo'"):
        await hear(graph_of(at(server)))
