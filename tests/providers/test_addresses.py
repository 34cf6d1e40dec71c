"""A wrong address or name of a model, as servers answer to it: one line with what to do next."""

import json
from typing import Any, Final

import pytest

from graphflow import END, START, Agent, Graph, ModelRefused, ModelUnavailable, ProviderModel
from graphflow.testing import ManualClock
from tests.model_replies import Error, Raw, Reply, Say
from tests.openai_server import Asked, ModelServer
from tests.providers.helpers import Case, hear


class AnyPath(ModelServer):
    """A server that answers whatever path is asked for."""

    def checked(self, asked: Asked) -> None:
        """Refuse nothing."""


async def told_of(path: str, reply: Reply, *, stream: bool = False) -> tuple[str, str]:
    """What an error says, and the address of the server, where a model is asked at a path of it."""
    with AnyPath(reply) as server:
        model = ProviderModel("openai:small", base_url=f"{server.url}{path}", stream=stream)
        graph = Graph("g", START >> Agent("solo", model=model) >> END, context=Case)
        with pytest.raises((ModelRefused, ModelUnavailable)) as caught:
            await hear(graph, clock=ManualClock())
    return str(caught.value), server.url


PAGE: Final = Raw(b"<!doctype html><title>A server</title>", 200, "text/html")
ELSEWHERE: Final = Raw(b'{"error":"Unexpected endpoint or method. (POST /chat/completions)"}', 200, "application/json")
NOTHING: Final = (
    Raw(b"404 page not found", 404, "text/plain"),
    Raw(b'{"detail":"Not Found"}', 404, "application/json"),
    Raw(b'{"detail":"Method Not Allowed"}', 405, "application/json"),
    Raw(b"", 404, "text/html"),
)
"""What servers say where nothing of theirs is."""


@pytest.mark.parametrize("reply", [*NOTHING, PAGE, ELSEWHERE], ids=str)
@pytest.mark.parametrize(("path", "stream"), [("", False), ("/", False), ("", True)])
async def test_an_address_without_v1_is_told_with_it(path: str, reply: Reply, *, stream: bool) -> None:
    """The front door of a server is not where its models are."""
    told, url = await told_of(path, reply, stream=stream)

    assert told.endswith(f"base_url= has no /v1 at its end, which most servers want: try {url}/v1.")
    assert "\n" not in told


@pytest.mark.parametrize("reply", NOTHING, ids=str)
async def test_an_address_with_too_much_is_told(reply: Reply) -> None:
    """What a client adds is left out of the address."""
    told, _ = await told_of("/v1/chat/completions", reply)

    assert told.endswith("base_url= ends with /chat/completions, which is added to it: leave that out.")


@pytest.mark.parametrize("reply", NOTHING, ids=str)
async def test_an_address_that_looks_right_is_shown(reply: Reply) -> None:
    """So that a person sees where was asked."""
    told, url = await told_of("/api/v1", reply)

    assert told.endswith(f"Look at the name of the model, and at base_url=, which is {url}/api/v1.")


def error(status: int, message: str, **more: Any) -> Reply:
    """What a server says of a request."""
    return Raw(json.dumps({"error": {"message": message, **more}}).encode(), status, "application/json")


UNKNOWN: Final = (
    Error(404, "The model 'small' does not exist or you do not have access to it.", "model_not_found"),
    error(400, "invalid model ID"),
    error(400, "Model Not Exist", type="invalid_request_error"),
    error(400, "small is not a valid model ID", code=400),
    error(404, 'model "small" not found, try pulling it first', type="api_error"),
    error(404, "The model `small` does not exist.", type="NotFoundError"),
    error(403, "Project does not have access to model small", code="model_not_found"),
    error(400, "Invalid model: small", type="invalid_model", code="1500"),
    Raw(b'{"object":"error","message":"Invalid model: small","type":"invalid_model"}', 400, "application/json"),
    Raw(b'{"error":"unknown model small"}', 422, "application/json"),
)
"""How servers say that they do not have a model."""


@pytest.mark.parametrize("reply", UNKNOWN, ids=range(len(UNKNOWN)))
@pytest.mark.parametrize("path", ["", "/v1"])
async def test_an_unknown_model_is_told_with_where_to_look(path: str, reply: Reply) -> None:
    """Whatever the status is, and wherever it stands in the answer."""
    told, url = await told_of(path, reply)

    look = (
        f"Look at the name of the model, which is not known there. {url}{path}/models lists those that the server has."
    )
    assert told.startswith("openai:small: HTTP 4")
    assert told.endswith(look)


@pytest.mark.parametrize(
    "reply",
    [
        error(400, "Unsupported parameter: 'tools' is not supported with this model."),
        error(400, "Unsupported value: 'temperature' does not support 0 with this model."),
        error(400, "messages: at least one message is required"),
        error(400, "The model small: 'temperature' is not supported."),
        error(422, "the model's maximum context is too short"),
    ],
    ids=range(5),
)
async def test_another_bad_request_is_not_blamed_on_the_name(reply: Reply) -> None:
    """A sentence that speaks of the model may be about something else."""
    told, _ = await told_of("/v1", reply)

    assert "name of the model" not in told


async def test_a_garbled_answer_of_a_right_address_has_no_such_hint() -> None:
    """It is what it was."""
    told, _ = await told_of("/v1", PAGE)

    assert "base_url" not in told


async def test_a_right_address_needs_no_hint() -> None:
    """A server whose models are at its front door works as it is."""
    with AnyPath(Say("Here.")) as server:
        model = ProviderModel("openai:small", base_url=server.url, stream=False)
        graph = Graph("g", START >> Agent("solo", model=model) >> END, context=Case)
        heard = await hear(graph, clock=ManualClock())

    assert heard.result.output == "Here."
