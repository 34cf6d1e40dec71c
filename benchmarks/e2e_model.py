"""A support desk on a real model, end to end: ten questions, a cancellation, and two kills.

    scripts/e2e-model http://127.0.0.1:8080/v1              # the first model that the server lists
    scripts/e2e-model http://127.0.0.1:8080/v1 NAME --seconds 120

Any server that speaks OpenAI's chat protocol will do; a key, where it wants one, stands in OPENAI_API_KEY. It prints
what every model call said, then the figures, and exits with 0 only if they are good enough: at least 9 of 10 questions
go to the right specialists, at least 9 bring valid reports, nothing hangs, a cancellation is through in a second, and
no model call that was answered is made again after a kill.
"""

from __future__ import annotations

import argparse
import hashlib
import http
import http.client
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelClient,
    ModelReply,
    ModelRequest,
    Report,
    Result,
    SqliteJournal,
    Supervisor,
    append,
    resume,
    run,
    start,
)
from graphflow.errors import UnknownRun
from graphflow.nodes.client import Stream
from graphflow.nodes.providers.model import ProviderModel

BILLING, SHIPPING = "billing", "shipping"
QUESTIONS: Final = (
    ("I was charged twice on INV-311.", {BILLING}),
    ("Where is my order A-7?", {SHIPPING}),
    ("Can I get a refund for invoice INV-312?", {BILLING}),
    ("My parcel A-9 has not arrived. When will it come?", {SHIPPING}),
    ("I was charged twice on INV-311, and where is my order A-7?", {BILLING, SHIPPING}),
    ("Why is my invoice INV-313 higher than last month?", {BILLING}),
    ("Please change the delivery address of order A-8.", {SHIPPING}),
    ("My credit card was declined when I paid INV-314.", {BILLING}),
    ("The package of order A-5 came damaged.", {SHIPPING}),
    ("Please refund INV-315, and tell me when order A-6 ships.", {BILLING, SHIPPING}),
)
BOTH: Final = QUESTIONS[4][0]
ENOUGH: Final = 9
AT_ONCE: Final = 1.0
RUN: Final = "killed"


class Finding(BaseModel):
    """What a specialist reports.

    Attributes:
        finding: what the files say.
        action: what should be done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    finding: str = Field(min_length=1)
    action: Literal["none", "refund", "resend", "wait", "ask customer"]


class Case(Context):
    """What the desk knows; a failure comes as a `Report`, whatever the contract."""

    question: str
    reports: Annotated[tuple[Finding | Report, ...], append] = ()


def desk_of(model: ModelClient, seconds: float) -> Graph[Case]:
    """Return the desk: a supervisor with two specialists, each with a contract, as small models need them.

    What each is for stands in few words and once. Outputs are short, and there are as few steps as there can be.
    """
    billing = Agent(
        BILLING,
        model=model,
        description="Money: invoices, prices, payments and refunds.",
        instructions=(
            "You are the billing specialist of a shop. Report in one short sentence what your files say. They say: "
            "INV-311 was paid twice, 49 dollars are due back. INV-312 may be refunded. INV-313 has a new tariff. "
            "INV-314: the card has expired. INV-315 may be refunded."
        ),
        output=Finding,
        max_turns=2,
        max_tokens=120,
    )
    shipping = Agent(
        SHIPPING,
        model=model,
        description="Goods: orders, parcels, delivery, damage and addresses.",
        instructions=(
            "You are the shipping specialist of a shop. Report in one short sentence what your files say. They say: "
            "A-5 was delivered on Monday, a new one can be sent. A-6 ships tomorrow. A-7 is in transit and comes on "
            "Friday. A-8 has not left yet. A-9 is late and comes on Tuesday."
        ),
        output=Finding,
        max_turns=2,
        max_tokens=120,
    )
    desk = Supervisor(
        "desk",
        model=model,
        instructions=(
            "You are the support desk of a shop. Ask the one specialist who knows about the customer's question; only "
            "a question with two parts goes to both. Then answer from the reports in one short sentence."
        ),
        decision="json",
        max_turns=3,
        max_tokens=200,
    )
    return Graph(
        "support",
        START >> desk >> END,
        desk.delegates(billing, shipping, max_hops=1, report=Finding, into="reports"),
        context=Case,
        max_depth=1,
        budget=Budget(model_calls=8, tokens=20_000, seconds=seconds),
    )


def client_of(name: str, base_url: str) -> ModelClient:
    """Return the model; every call of it goes to `base_url`."""
    return ProviderModel(f"openai:{name}", base_url=base_url, native_tools=False, settings={"temperature": 0})


# --- between the library and the server -------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Passed:
    """A model call that went through.

    Attributes:
        digest: of its body; two calls with equal ones are the same.
        answered: whether its reply was there, to the last byte.
        gone_at: when the caller went away before that, in seconds of the monotonic clock.
        over: set as soon as the one or the other is known.
    """

    digest: str
    answered: bool = False
    gone_at: float | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Relay(ThreadingHTTPServer):
    """Stands before the server on loopback: it counts the model calls, and can hold one back.

    Attributes:
        calls: those that went through, in order.
        first_words: set as soon as a reply has begun.
        held: set as soon as a call is held back; nobody has heard of it then.
    """

    daemon_threads = True

    def __init__(self, base_url: str) -> None:
        """Listen; `base_url` is where everything goes."""
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = urlsplit(base_url)
        self.calls: list[Passed] = []
        self.first_words, self.held = threading.Event(), threading.Event()
        self._passes: int | None = None
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        """Where the library sends its calls."""
        return f"http://127.0.0.1:{self.server_port}{self.target.path.rstrip('/')}"

    def expect(self, passes: int | None = None) -> None:
        """Look anew for first words, and hold back every call after the next so many."""
        self.first_words.clear()
        self.held.clear()
        self._passes = passes

    def lets_pass(self) -> bool:
        """Tell whether one more call may go through."""
        with self._lock:
            if self._passes is not None:
                self._passes -= 1
            return self._passes is None or self._passes >= 0


class _Connection(BaseHTTPRequestHandler):
    """One connection of the library."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Pass a call on, and its reply back, until the one side or the other has gone."""
        self.close_connection = True
        body = self.rfile.read(int(self.headers["Content-Length"]))
        relay = cast("Relay", self.server)
        if not relay.lets_pass():
            relay.held.set()
            self._wait_for_the_caller_to_go()
            return
        call = Passed(hashlib.sha256(body).hexdigest())
        relay.calls.append(call)
        secure = relay.target.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        upstream = kind(relay.target.hostname or "", relay.target.port)
        told = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
        upstream.request("POST", self.path, body, {**told, "Connection": "close", "Accept-Encoding": "identity"})
        back = threading.Thread(target=self._bring_back, args=(upstream.sock, call))
        back.start()
        self._wait_for_the_caller_to_go()
        if not call.answered:
            call.gone_at = time.monotonic()
        call.over.set()
        with suppress(OSError):
            upstream.sock.shutdown(socket.SHUT_RDWR)
        back.join()
        upstream.close()

    def _bring_back(self, upstream: socket.socket, call: Passed) -> None:
        tail = b""
        with suppress(OSError):
            while data := upstream.recv(1 << 16):
                tail = (tail + data)[-64:]
                call.answered = call.answered or b"[DONE]" in tail
                self.connection.sendall(data)
                if b"data:" in data:
                    cast("Relay", self.server).first_words.set()
            call.answered = call.answered or call.gone_at is None
            self.connection.shutdown(socket.SHUT_RDWR)

    def _wait_for_the_caller_to_go(self) -> None:
        with suppress(OSError):
            self.connection.recv(1, socket.MSG_PEEK)


@contextmanager
def relay_to(base_url: str) -> Generator[Relay]:
    """Run a relay."""
    with Relay(base_url) as relay:
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()


class Heard:
    """A model whose calls are printed and remembered.

    Attributes:
        agents: the names of the agents that have asked it.
    """

    def __init__(self, model: ModelClient) -> None:
        """Take the model."""
        self._model = model
        self.native_tools: bool = getattr(model, "native_tools", True)
        self.agents: list[str] = []

    async def reply(self, request: ModelRequest, stream: Stream) -> ModelReply:
        """Ask the model, and print what it says."""
        self.agents.append(request.agent)
        began = time.monotonic()
        reply = await self._model.reply(request, stream)
        read, written = (reply.usage.input_tokens, reply.usage.output_tokens) if reply.usage else ("?", "?")
        took = f"{time.monotonic() - began:.1f} s, {read} tokens read, {written} written"
        print(f"    {request.agent}, turn {request.turn} ({took}): {' '.join(reply.text.split())}", flush=True)
        return reply


# --- the questions ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """What was measured."""

    routed: int = 0
    valid: int = 0
    hung: int = 0
    refused: int = 0
    calls: list[int] = field(default_factory=list[int])


async def ask_all(model: ModelClient, seconds: float) -> Figures:
    """Ask every question, one after the other."""
    figures = Figures()
    for number, (question, wanted) in enumerate(QUESTIONS, start=1):
        print(f"{number}. {question}", flush=True)
        heard = Heard(model)
        began, result = time.monotonic(), None
        with anyio.move_on_after(seconds + 10):  # the run's own deadline comes first, or it hangs
            result = await run(desk_of(heard, seconds), Case(question=question))
        took = time.monotonic() - began
        asked = set(heard.agents) & {BILLING, SHIPPING}
        in_time = result is not None and (result.reason is None or result.reason.code != "seconds")
        routed, valid = asked == wanted, in_time and result is not None and is_valid(result, len(asked))
        figures.routed, figures.valid = figures.routed + routed, figures.valid + valid
        figures.hung += not in_time
        figures.refused += len(result.refused) if result is not None else 0
        figures.calls.append(len(heard.agents))
        print(f"    asked {sorted(asked)}: {'right' if routed else f'wrong, it should be {sorted(wanted)}'}")
        for report in result.context.reports if result is not None else ():
            print(f"    report: {report!r}")
        ended = "did not end" if result is None else f"{result.status}: {result.output}"
        print(f"    {'reports valid' if valid else 'reports NOT valid'}, {took:.0f} s, {ended}", flush=True)
    return figures


def is_valid(result: Result[Case], asked: int) -> bool:
    """Tell whether all that were asked have reported as their contract says, and the desk has answered.

    A call that a bound refused reached nobody, so its report is nobody's; such calls have a figure of their own.
    """
    reports = [report for report in result.context.reports if not is_refusal(report)]
    whole = len(reports) == asked > 0 and all(isinstance(report, Finding) for report in reports)
    return whole and isinstance(result.output, str) and bool(result.output.strip())


def is_refusal(report: Finding | Report) -> bool:
    """Tell whether a report says that a bound refused the call."""
    return isinstance(report, Report) and report.reason is not None and report.reason.code == "max_hops"


# --- a cancellation ---------------------------------------------------------------------------------------------


async def cancel_one(model: ModelClient, relay: Relay, seconds: float) -> float:
    """Cancel a run while its model is writing; return the seconds until both the run and the call are over."""
    async with start(desk_of(model, seconds), Case(question=BOTH)) as handle:
        async for event in handle:
            if event.kind == "text_delta":
                break
        cancelled_at = time.monotonic()
        handle.cancel()
        result = await handle.result()
    over_at = time.monotonic()
    call = relay.calls[-1]
    await anyio.to_thread.run_sync(call.over.wait, 5)
    assert result.status == "cancelled", result
    return float("inf") if call.gone_at is None else max(over_at, call.gone_at) - cancelled_at


# --- kills ------------------------------------------------------------------------------------------------------


class Killed(NamedTuple):
    """What the kills have shown.

    Attributes:
        status: how the run ended.
        wanted: the model calls that the run has recorded as answered.
        answered: the calls that were answered.
        cut: those that were cut by a kill, before their reply was there.
        twice: those that were made again though they had been answered.
    """

    status: str
    wanted: int
    answered: int
    cut: int
    twice: int


def work(database: str, name: str, base_url: str, seconds: float) -> None:
    """Begin the run, or go on with it: what each of the processes does."""

    async def go() -> None:
        graph, journal = desk_of(client_of(name, base_url), seconds), SqliteJournal(database)
        try:
            result = await resume(graph, RUN, journal=journal)
        except UnknownRun:
            result = await run(graph, Case(question=BOTH), journal=journal, run_id=RUN)
        journal.close()
        spent = result.spent.total
        Path(database).with_suffix(".json").write_text(json.dumps([result.status, spent.model_calls]), "utf-8")

    anyio.run(go)


def kill_some(name: str, relay: Relay, seconds: float) -> Killed:
    """Kill a run while its model is writing, and again just before a call leaves; then let it come to its end.

    A call that a kill cuts is asked again, because nobody has its reply. One that was answered is not.
    """
    fresh = multiprocessing.get_context("spawn")
    before = len(relay.calls)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "runs.db"
        arguments = (str(database), name, relay.base_url, seconds)

        def session(passes: int | None, kill_at: threading.Event | None) -> None:
            relay.expect(passes)
            process = fresh.Process(target=work, args=arguments)
            process.start()
            deadline = time.monotonic() + seconds
            while process.is_alive() and time.monotonic() < deadline:
                if kill_at is not None and kill_at.wait(0.02):
                    break
                process.join(0.02)
            process.kill()
            process.join()

        session(None, kill_at=relay.first_words)
        session(1, kill_at=relay.held)
        session(None, kill_at=None)
        found = database.with_suffix(".json")
        status, wanted = json.loads(found.read_text("utf-8")) if found.exists() else ("did not end", 0)
    made = relay.calls[before:]
    done = [call.digest for call in made if call.answered]
    again = sum(
        call.digest in {other.digest for other in made[:place] if other.answered} for place, call in enumerate(made)
    )
    return Killed(status, wanted, len(done), len(made) - len(done), again)


# --- the program ------------------------------------------------------------------------------------------------

LOADING: Final = 60
"""So many times, a second apart, a server that is still loading its model is asked."""


def first_model(base_url: str) -> str:
    """Ask the server which models it has, and return the first; one that is still loading it is asked again.

    Raises:
        SystemExit: if nobody answers there, or it does not get ready within a minute.
    """
    key = os.environ.get("OPENAI_API_KEY", "none")
    request = urllib.request.Request(f"{base_url}/models", headers={"Authorization": f"Bearer {key}"})
    said = ""
    for _ in range(LOADING):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                name: str = json.load(answer)["data"][0]["id"]
        except urllib.error.HTTPError as error:
            said = str(error)
            if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                break
            time.sleep(1)
        except OSError as error:
            said = str(error)
            break
        else:
            return name
    sys.exit(f"{base_url}/models: no model to ask ({said}). Start the server there, or give another BASE_URL.")


def main() -> int:
    """Measure, print the figures, and tell whether they are good enough."""
    parser = argparse.ArgumentParser(
        prog="scripts/e2e-model", description="A support desk on a real model, end to end."
    )
    parser.add_argument("base_url", help="such as http://127.0.0.1:8080/v1")
    parser.add_argument("model", nargs="?", help="its name; by default the first that the server lists")
    parser.add_argument("--seconds", type=float, default=240.0, help="the deadline of each run (240)")
    given = parser.parse_args()
    base_url, seconds = given.base_url.rstrip("/"), given.seconds
    name = given.model or first_model(base_url)
    with relay_to(base_url) as relay:
        model = client_of(name, relay.base_url)
        figures = anyio.run(ask_all, model, seconds)
        print("A run is cancelled while its model is writing.", flush=True)
        cancelled = anyio.run(cancel_one, model, relay, seconds)
        print("A run is killed while its model is writing, and just before a call leaves; then it goes on.", flush=True)
        killed = kill_some(name, relay, seconds)
    good = {
        f"routing right: {figures.routed} of {len(QUESTIONS)}": figures.routed >= ENOUGH,
        f"reports valid: {figures.valid} of {len(QUESTIONS)}": figures.valid >= ENOUGH,
        f"hung or late: {figures.hung}": figures.hung == 0,
        f"cancelled in {cancelled:.3f} s, the call at the server too": cancelled < AT_ONCE,
        f"killed twice, then {killed.status}; {killed.answered} calls answered, as many as the run has recorded "
        f"({killed.wanted}); {killed.cut} cut by a kill; made again though answered: {killed.twice}": (
            killed.status == "completed" and killed.twice == 0 < killed.cut and killed.answered == killed.wanted
        ),
    }
    print(f"\nmodel calls for each question: {figures.calls}, {sum(figures.calls)} in all")
    print(f"delegations that a bound refused: {figures.refused}")
    for figure, fine in good.items():
        print(f"{'ok ' if fine else 'BAD'}  {figure}")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
