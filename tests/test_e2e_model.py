"""The program behind `scripts/e2e-model`, with a server that plays the model: its figures are right, good or bad."""

import json

import anyio
import pytest

from benchmarks.e2e_model import QUESTIONS, Killed, ask_all, cancel_one, client_of, first_model, kill_some, relay_to
from tests.model_replies import Say
from tests.openai_server import Asked, ModelServer

pytestmark = pytest.mark.may_block  # the program runs on asyncio, and may take its time to begin


@pytest.fixture(name="_key", autouse=True)
def a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that the server takes."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-tests")


def desk_says(asked: Asked, trickle: float = 0.0) -> Say:
    """Ask whom the numbers in the question belong to; then answer."""
    system, *messages = (message["content"] for message in asked.body["messages"])
    heard = "\n".join(messages)
    if "specialist of a shop" in system:
        said: object = {"finding": "It is so.", "action": "none"}
    elif "<report from" in heard:
        said = {"reason": "They say so.", "answer": "It is so."}
    else:
        team = {"ask_billing": "INV-", "ask_shipping": "A-"}
        calls = [{"tool": name, "arguments": {"objective": "?"}} for name, number in team.items() if number in heard]
        said = {"reason": "They know.", "calls": calls}
    return Say(json.dumps(said), pieces=3, trickle=trickle)


def test_a_good_model_gets_good_figures() -> None:
    """All is right and valid where the model asks whom it should."""
    with ModelServer(desk_says) as server, relay_to(server.base_url) as relay:
        figures = anyio.run(ask_all, client_of("small", relay.base_url), 30)

    assert (figures.routed, figures.valid, figures.hung) == (len(QUESTIONS), len(QUESTIONS), 0)
    assert sum(figures.calls) == len(server.requests) == len(relay.calls)
    assert server.violations == []


def test_a_bad_model_gets_bad_figures() -> None:
    """A model that answers everything itself has asked nobody, and nobody has reported."""
    bad = Say(json.dumps({"reason": "I know.", "answer": "It is so."}))
    with ModelServer(lambda _: bad) as server, relay_to(server.base_url) as relay:
        figures = anyio.run(ask_all, client_of("small", relay.base_url), 30)

    assert (figures.routed, figures.valid, figures.hung) == (0, 0, 0)


def test_a_model_that_hangs_is_late() -> None:
    """A run that comes to its deadline counts as one that hangs."""
    with ModelServer(lambda _: Say("", breaks="hang", after=0)) as server, relay_to(server.base_url) as relay:
        figures = anyio.run(ask_all, client_of("small", relay.base_url), 0.05)

    assert (figures.routed, figures.valid, figures.hung) == (0, 0, len(QUESTIONS))


def test_a_cancellation_is_measured_up_to_the_server() -> None:
    """The call that was cut is gone at the server too."""
    with ModelServer(lambda asked: desk_says(asked, 5)) as server, relay_to(server.base_url) as relay:
        took = anyio.run(cancel_one, client_of("small", relay.base_url), relay, 30)
        gone = server.wait_until(lambda server: len(server.disconnects) == 1)

    assert took < 1
    assert gone


def test_kills_are_survived() -> None:
    """One call is cut and asked again; no call that was answered is made again."""
    with ModelServer(lambda asked: desk_says(asked, 0.05)) as server, relay_to(server.base_url) as relay:
        killed = kill_some("small", relay, 60)

    assert killed == Killed("completed", wanted=4, answered=4, cut=1, twice=0)
    assert len(server.requests) == 5


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    """Nobody answers at the address: it is named, and what to do."""
    with pytest.raises(SystemExit, match=r"http://127.0.0.1:9/v1/models: no model to ask"):
        first_model("http://127.0.0.1:9/v1")
