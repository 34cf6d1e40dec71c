"""A server of models on loopback, strict about the protocol and misbehaving on demand.

It speaks OpenAI's chat completions (`POST /v1/chat/completions`, `GET /v1/models`) and Anthropic's messages
(`POST /v1/messages`), whole and streamed. What the real API refuses, it refuses too, and remembers it:

    with ModelServer(Calls(("track_parcel", {"order": "A-7"})), Say("In transit.")) as server:
        ...  # a client at server.base_url, with the key server.key
    assert server.violations == []

The test says what it answers: a `Reply` for each request in turn, or a function from the request to one.
"""

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias, cast

from tests import anthropic_rules, openai_rules
from tests.model_replies import (
    GARBAGE,
    Calls,
    Error,
    Raw,
    Reply,
    Say,
    anthropic_error,
    anthropic_events,
    anthropic_whole,
    openai_chunks,
    openai_error,
    openai_whole,
    pieces_of,
)
from tests.openai_rules import Refused

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
MODELS: Final = "/v1/models"
EVENTS: Final = "text/event-stream; charset=utf-8"

_NUDGE: Final = 0.02


@dataclass(slots=True)
class Asked:
    """A request, and what came of it.

    Attributes:
        number: its place among all requests, from 0.
        method: the method of HTTP.
        path: the path, without the host.
        headers: the headers, with names in small letters.
        body: the JSON of the body; None where there is none.
        at: when it came, in seconds of the monotonic clock.
        status: the status that it was answered with; 0 as long as there is none.
        left_at: when the client went away before the answer was complete; None if it did not.
        done: whether the server is through with it.
    """

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: Any = None
    at: float = field(default_factory=time.monotonic)
    status: int = 0
    left_at: float | None = None
    done: bool = False

    @property
    def streams(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.body.get("stream"))


Responder: TypeAlias = Callable[[Asked], Reply]


class ModelServer:
    """The server; it runs in threads of this process while its `with` block does.

    Attributes:
        requests: every request, in order of arrival, those too that were refused.
        violations: a sentence for each request that the real API would refuse, and for each that nobody expected.
        key: the only key that it takes.
    """

    def __init__(self, *script: Reply | Responder, key: str = "key-of-the-tests", models: tuple[str, ...] = ()) -> None:
        """Take the script; nothing listens yet.

        Args:
            script: an answer for each request in turn; or one function, which answers all.
            key: the key that it takes.
            models: the models that there are; with none, every name is one.
        """
        self.requests: list[Asked] = []
        self.violations: list[str] = []
        self.key = key
        self.models = models
        self._script = iter(script)
        self._responder = script[0] if len(script) == 1 and callable(script[0]) else None
        self._changed = threading.Condition()
        self._hanging = 0
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": _NUDGE})
        self.closing = False

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all connections and all threads."""
        self.closing = True
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens on loopback."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """The address without a path, as clients of Anthropic want it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The address as clients of OpenAI want it."""
        return f"{self.url}/v1"

    @property
    def disconnects(self) -> list[Asked]:
        """The requests whose clients went away before the answer was complete."""
        return [asked for asked in self.requests if asked.left_at is not None]

    @property
    def hanging(self) -> int:
        """How many answers hang just now."""
        return self._hanging

    def wait_until(self, holds: Callable[[Self], bool], seconds: float = 10.0) -> bool:
        """Wait in this thread until something holds of the server; tell whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self), seconds)

    # --- for the connections ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changes(self) -> Generator[None]:
        """Change what `wait_until` looks at."""
        with self._changed:
            yield
            self._changed.notify_all()

    @contextlib.contextmanager
    def hangs(self) -> Generator[None]:
        """Count an answer that hangs."""
        with self.changes():
            self._hanging += 1
        try:
            yield
        finally:
            with self.changes():
                self._hanging -= 1

    def checked(self, asked: Asked) -> None:
        """Check a request.

        Raises:
            Refused: if the real API would refuse it.
        """
        known = asked.headers.get("authorization") == f"Bearer {self.key}"
        if asked.path == MESSAGES:  # Anthropic's clients send the key in the one place or the other
            known = known or asked.headers.get("x-api-key") == self.key
        if not known:
            raise Refused("Incorrect API key provided.", code="invalid_api_key", status=401)
        if (asked.method, asked.path) not in {("POST", CHAT), ("POST", MESSAGES), ("GET", MODELS)}:
            raise Refused(f"Invalid URL ({asked.method} {asked.path})", status=404)
        if asked.path == MODELS:
            return
        if not asked.headers.get("content-type", "").startswith("application/json"):
            raise Refused("Unsupported content type: 'application/json' is needed.")
        if asked.body is None:
            raise Refused("We could not parse the JSON body of your request.")
        if asked.path == CHAT:
            openai_rules.check(asked.body)
        elif "anthropic-version" not in asked.headers:
            raise Refused("anthropic-version: header is required")
        else:
            anthropic_rules.check(asked.body)
        if self.models and asked.body["model"] not in self.models:
            text = f"The model '{asked.body['model']}' does not exist or you do not have access to it."
            raise Refused(text, code="model_not_found", status=404)

    def reply_to(self, asked: Asked) -> Reply:
        """Return what the script says to a request.

        Raises:
            Refused: if it says nothing.
        """
        if self._responder is None:
            with self._changed:
                step = next(self._script, None)
        else:
            step = self._responder
        if step is None:
            raise Refused("The script has no answer left.")
        if not callable(step):
            return step
        try:
            return step(asked)
        except Exception as error:
            raise Refused(f"The responder raised {error!r}.") from error


class _Server(ThreadingHTTPServer):
    """Its threads are waited for at the end, and its connections are known, so that they can be ended."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a connection that the client has reset is no news here."""


class _Gone(Exception):
    """The client went away."""


class _Connection(BaseHTTPRequestHandler):
    """One connection of a client, which may bring several requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer a GET."""
        self._serve(None)

    def do_POST(self) -> None:
        """Answer a POST."""
        length = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(length)
        if len(sent) < length:  # who was cancelled while it wrote has asked for nothing
            return
        try:
            body: Any = json.loads(sent)
        except ValueError:
            body = None
        self._serve(body)

    def _serve(self, body: Any) -> None:
        owner = cast("_Server", self.server).owner
        headers = {name.lower(): value for name, value in self.headers.items()}
        with owner.changes():
            asked = Asked(len(owner.requests), self.command, self.path.partition("?")[0], headers, body)
            owner.requests.append(asked)
        try:
            self._answer(owner, asked)
        except (_Gone, OSError):
            self.close_connection = True
            if not owner.closing:
                asked.left_at = time.monotonic()
        finally:
            with owner.changes():
                asked.done = True

    def _answer(self, owner: ModelServer, asked: Asked) -> None:
        try:
            owner.checked(asked)
            reply = None if asked.path == MODELS else owner.reply_to(asked)
        except Refused as refused:
            owner.violations.append(f"{asked.method} {asked.path} [{refused.status}] {refused.text}")
            if asked.path == MESSAGES:
                self._whole(asked, refused.status, anthropic_error(refused.status, refused.text))
            else:
                said = openai_error(refused.status, refused.text, refused.param, refused.code)
                self._whole(asked, refused.status, said)
            return
        match reply:
            case None:
                rows = [{"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in owner.models]
                self._whole(asked, 200, {"object": "list", "data": rows})
            case Error(status, text, code, more):
                anthropic = asked.path == MESSAGES
                said = anthropic_error(status, text) if anthropic else openai_error(status, text, code=code)
                self._whole(asked, status, said, more)
            case Raw(content, status, kind):
                self._head(asked, status, kind, (("Content-Length", str(len(content))),))
                self.wfile.write(content)
            case _:
                self._say(asked, reply)

    def _whole(self, asked: Asked, status: int, said: Any, more: tuple[tuple[str, str], ...] = ()) -> None:
        content = json.dumps(said).encode()
        self._head(asked, status, "application/json", (("Content-Length", str(len(content))), *more))
        self.wfile.write(content)

    def _head(self, asked: Asked, status: int, kind: str, more: tuple[tuple[str, str], ...]) -> None:
        asked.status = status
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("x-request-id", f"req_{asked.number}"), *more):
            self.send_header(name, value)
        self.end_headers()

    # --- answers, good and broken ----------------------------------------------------------------------------------

    def _say(self, asked: Asked, reply: Say | Calls) -> None:
        if reply.breaks == "hang" and reply.after == 0:
            self._hang()
        ident, model = str(asked.number), asked.body["model"]
        if asked.streams:
            self._stream(asked, reply, [event.encode() for event in _events(asked, reply, ident, model)])
            return
        make = anthropic_whole if asked.path == MESSAGES else openai_whole
        content = json.dumps(make(reply, ident, model))
        if reply.breaks in {"end", "garbage"}:
            content = GARBAGE if reply.breaks == "garbage" else content[: len(content) // 2]
        data = content.encode()
        self._head(asked, 200, "application/json", (("Content-Length", str(len(data))),))
        if reply.breaks in {"hang", "cut"}:
            self.wfile.write(data[: len(data) // 2])
            self._break(reply)
            return
        for piece in pieces_of(content, reply.pieces):
            self.wfile.write(piece.encode())
            self._wait(reply.trickle)

    def _stream(self, asked: Asked, reply: Say | Calls, events: list[bytes]) -> None:
        self._head(asked, 200, EVENTS, (("Transfer-Encoding", "chunked"),))
        broken_at = min(reply.after, len(events) - 1) if reply.breaks else len(events)
        for event in events[:broken_at]:
            self._chunk(event)
            self._wait(reply.trickle)
        if reply.breaks in {"hang", "cut"}:
            self._break(reply)
            return
        if reply.breaks == "garbage":
            self._chunk(f"data: {GARBAGE}\n\n".encode())
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _break(self, reply: Say | Calls) -> None:
        if reply.breaks == "hang":
            self._hang()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _hang(self) -> None:
        with cast("_Server", self.server).owner.hangs():
            self._wait(None)

    def _wait(self, seconds: float | None) -> None:
        """Wait; whoever hangs waits until the client goes away.

        Raises:
            _Gone: if it does.
        """
        if seconds == 0:
            return
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise _Gone


def _events(asked: Asked, reply: Say | Calls, ident: str, model: str) -> Iterator[str]:
    if asked.path == MESSAGES:
        for event in anthropic_events(reply, ident, model):
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        return
    options: dict[str, Any] = asked.body.get("stream_options") or {}
    for chunk in openai_chunks(reply, ident, model, usage=bool(options.get("include_usage"))):
        yield f"data: {chunk}\n\n"
