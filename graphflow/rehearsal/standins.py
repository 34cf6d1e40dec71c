"""Who stands in for models, tools and people: what they say is drawn, and nobody is asked.

Each thing is drawn from a generator of its own, made of the seed, the number of the run, and where in the run it
stands. So neither timing nor order nor what other runs did changes anything.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from graphflow.errors import ModelUnavailable, UsageError
from graphflow.model.contract import Approval, Report
from graphflow.model.frozen import Json
from graphflow.model.ids import parse_path
from graphflow.model.thread import ToolCall
from graphflow.nodes.client import ModelReply, ModelRequest, Price, Usage
from graphflow.nodes.schemas import answer_schema
from graphflow.nodes.tools import AskUser, Tool
from graphflow.rehearsal.distributions import drawn
from graphflow.rehearsal.made import Make, instead, maker
from graphflow.rehearsal.planned import Worker, judging, planning
from graphflow.rehearsal.settings import Settings
from graphflow.runtime.asking import Manner, Offer, read_answer
from graphflow.testing.models import as_reply, usage_of

CHARACTERS: Final = 4
"""How many characters count as a token, as everywhere where nobody knows better."""

TRIES: Final = 8
"""How many values are drawn to find out whether any fits what a schema does not say."""

FILLER: Final = "lorem ipsum dolor sit amet consectetur adipiscing elit "

MOST_FILLER: Final = 100_000
"""The longest text that is made; what is longer counts, and is not there."""


class Timed(NamedTuple):
    """What came of a call, and after how many seconds."""

    seconds: float
    found: Any


class StandIns:
    """Everybody who stands in, in all runs of one rehearsal."""

    def __init__(self, seed: int, settings: Settings) -> None:
        """Take what everything is drawn from."""
        self.settings = settings
        self.used: set[str] = set()  # the names of stand-ins of the user's that were asked
        self.effects: set[str] = set()  # the names of effects that were drawn by their annotation
        self._seed = f"{seed}\0".encode()
        self._parts: dict[int, _Part] = {}  # by the id of the manner in which an agent is asked
        self._values: dict[tuple[str, str], tuple[Make, Callable[[object], Any]]] = {}  # by place and type

    def rng(self, run: int, *where: object) -> Random:
        """Return the generator of one thing."""
        text = self._seed + "\0".join(map(str, (run, *where))).encode("utf-8", "surrogatepass")
        return Random(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))  # noqa: S311 - no secret is made

    # --- models ---

    def reply(self, run: int, request: ModelRequest, attempt: int, manner: Manner, price: Price | None) -> Timed:
        """Answer for a model: with calls, or with an answer that fits."""
        given = self.settings
        agent = request.agent
        rng = self.rng(run, request.path, request.turn, attempt)
        seconds = drawn(given.latency.of(agent), rng, f"latency of {agent!r}")
        wanted = drawn(given.tokens.of(agent), rng, f"tokens of {agent!r}")
        rate = given.failure_rate.of(agent)
        if rate and rng.random() < rate:
            return Timed(seconds, ModelUnavailable("the stand-in fails, as often as failure_rate= says", unused=True))
        own = given.stand_ins.get(agent)
        if own is not None:
            return Timed(seconds, self._own_reply(agent, own, request, price))
        writes = max(1, min(round(wanted), request.max_tokens))
        reads = given.input_tokens.of(agent)
        size = size_of(request) if reads is None else drawn(reads, rng, f"input_tokens of {agent!r}")
        usage = Usage(round(size), writes, None if price is None else _money(price, round(size), writes))
        calls = self._calls(request, manner, rng)
        if calls:
            return Timed(seconds, ModelReply("", calls, usage))
        return Timed(seconds, ModelReply(self._answer(agent, manner, rng, writes), (), usage))

    def _own_reply(self, agent: str, own: Any, request: ModelRequest, price: Price | None) -> Any:
        """Let a function of the user's answer for a model, as in a `ScriptedModel`."""
        self.used.add(agent)
        try:
            reply = as_reply(own(request))
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - as a model may raise anything
            return error
        return (
            reply if reply.usage is not None else ModelReply(reply.text, reply.calls, usage_of(request, reply, price))
        )

    def _part(self, agent: str, manner: Manner, workers: tuple[Worker, ...] = ()) -> _Part:
        found = self._parts.get(id(manner))
        if found is None:
            found = self._parts[id(manner)] = _Part(agent, manner, self, workers)
        return found

    def _calls(self, request: ModelRequest, manner: Manner, rng: Random) -> tuple[ToolCall, ...]:
        """Choose what to call, and write the arguments; nothing where it answers."""
        if not manner.offers:
            return ()
        choices = self.settings.choices.of(request.agent)
        if rng.random() >= choices.act * choices.fading**request.turn:
            return ()
        part = self._part(request.agent, manner)
        offered = [offer for name, offer in manner.offers.items() if is_offered(name, request)]
        handing = [offer for offer in offered if offer.kind == "transfer"]
        left = [offer for offer in offered if offer.kind != "transfer"]
        if handing and rng.random() < choices.hand_over * choices.fading ** (parse_path(request.path)[-1].visit - 1):
            left = handing
        made: list[ToolCall] = []
        while left:
            offer = left.pop(int(rng.random() * len(left)))
            made.append(ToolCall(offer.spec.name, json.dumps(part.arguments[offer.spec.name](rng))))
            if left is handing or rng.random() >= choices.several:
                break
        return tuple(made)

    def _answer(self, agent: str, manner: Manner, rng: Random, tokens: int) -> str:
        return self._part(agent, manner).answer(rng, tokens)

    def prepare(self, agent: str, manner: Manner, workers: tuple[Worker, ...] = ()) -> None:
        """See that calls and answers can be drawn for an agent.

        Args:
            agent: its name.
            manner: how it is asked.
            workers: those who may do the steps of a plan, if it writes one.

        Raises:
            UsageError: if they cannot; the text says what to give instead.
        """
        if agent not in self.settings.stand_ins:
            self._part(agent, manner, workers)

    # --- tools and effects ---

    def tool(self, run: int, tool: Tool, where: tuple[str, int, str], arguments: Mapping[str, Any]) -> Timed:
        """Answer for a tool, which is not run."""
        given = self.settings
        rng = self.rng(run, *where)
        seconds = drawn(given.tool_latency.of(tool.name), rng, f"tool_latency of {tool.name!r}")
        rate = given.tool_failure_rate.of(tool.name)
        if rate and rng.random() < rate:
            return Timed(seconds, RuntimeError("the stand-in fails, as often as tool_failure_rate= says"))
        own = given.stand_ins.get(tool.name)
        if own is not None:
            self.used.add(tool.name)
            try:
                return Timed(seconds, own(**arguments))
            except Exception as error:  # noqa: BLE001 - as a tool may raise anything
                return Timed(seconds, error)
        tokens = round(drawn(given.tool_tokens.of(tool.name), rng, f"tool_tokens of {tool.name!r}"))
        return Timed(seconds, filled(f"stand-in of {tool.name} {rng.randrange(10**6)}", tokens))

    def value(self, kind: Any, where: str, rng: Random, name: str = "") -> Any:
        """Draw a value of a type; `name` is whose stand-in could make one.

        Raises:
            UsageError: if none can be drawn that fits.
        """
        key = where, repr(kind)
        known = self._values.get(key)
        if known is None:
            try:
                adapter: TypeAdapter[Any] = TypeAdapter(kind)
                schema = adapter.json_schema()
            except Exception as error:
                msg = (
                    f"{where}: no value can be drawn of {kind!r}, which has no JSON schema ({type(error).__name__}). "
                    f"{instead(name)}"
                )
                raise UsageError(msg) from error
            make = maker(schema, where, name)
            if isinstance(kind, type) and issubclass(kind, Report):
                make = functools.partial(_reported, make, "stand-in")
            known = self._values[key] = make, functools.partial(_read_as, adapter)
        return _fitting(where, known[0], rng, known[1], name)

    # --- people ---

    def person(self, run: int, question: str, name: str, text: str, schema: Any) -> Timed:
        """Answer for a person; `name` is that of the node or tool that stands for one, "" for a question of a function.

        Raises:
            UsageError: if no answer fits.
        """
        given = self.settings
        rng = self.rng(run, "person", question)
        seconds = drawn(given.people_latency, rng, "people_latency")
        own = given.stand_ins.get(name)
        kind: Any = Json if schema is None else schema
        if getattr(kind, "__origin__", kind) is Approval:
            found: object = rng.random() < given.approval_rate or "no, says the stand-in"
        elif own is not None:
            self.used.add(name)
            found = own(text)
        elif schema is None or schema is str:
            found = f"answer {rng.randrange(10**6)} of a stand-in"
        else:
            return Timed(seconds, self.value(kind, f"the answer to {question!r}", rng, name))
        try:
            return Timed(seconds, TypeAdapter(kind).validate_python(found))
        except ValueError as error:
            msg = f"the stand-in of {name!r} answers {found!r}, which does not fit the question: {error}"
            raise UsageError(msg) from error


class _Part:
    """How one agent's stand-in writes, where it is asked in one manner."""

    def __init__(self, agent: str, manner: Manner, others: StandIns, workers: tuple[Worker, ...]) -> None:
        self._manner = manner  # it is found by its id: it must live as long
        self._agent = agent
        self.arguments: dict[str, Make] = {}
        for name, offer in manner.offers.items():
            self.arguments[name] = self._arguments(name, offer)
        kind = manner.kind
        schema = answer_schema(kind)
        self._free = not schema
        self._report = isinstance(kind, type) and issubclass(kind, Report)
        make = maker(json.loads(schema), f"the answer of {agent!r}", agent) if schema else _nothing
        self._make: Make = judging(manner.kind, planning(manner.kind, make, workers), others.settings.approval_rate)
        self._json = not manner.native
        if schema:
            where = f"the answer of {agent!r}"
            _fitting(where, self._written, others.rng(0, where), functools.partial(read_answer, kind), agent)

    def _arguments(self, name: str, offer: Offer) -> Make:
        where = f"the arguments of {name!r}, which {self._agent!r} may call"
        make = maker(offer.spec.parameters, where, self._agent)
        tool = offer.tool
        if tool is not None:
            read = functools.partial(_read_by, tool)
            _fitting(where, make, Random(0), read, self._agent)  # noqa: S311 - no secret is made
        return make

    def answer(self, rng: Random, tokens: int) -> str:
        """Write an answer that fits, of so many tokens where it is words."""
        if self._free:
            text = filled(f"stand-in of {self._agent} {rng.randrange(10**6)}", tokens)
            return text if not self._json else json.dumps({"reason": "it is enough", "answer": text})
        written = self._written(rng, tokens)
        return written if not self._json else f'{{"reason": "it is enough", "answer": {written}}}'

    def _written(self, rng: Random, tokens: int = 0) -> str:
        if self._report:
            return json.dumps(_reported(self._make, f"stand-in of {self._agent}", rng, tokens))
        return json.dumps(self._make(rng))


def _reported(make: Make, words: str, rng: Random, tokens: int = 0) -> dict[str, Any]:
    """Draw a report, and let it be done with a finding: what one needs beyond its schema."""
    found: dict[str, Any] = make(rng)
    found["finding"] = filled(f"{words} {rng.randrange(10**6)}", tokens)
    for name, value in (("status", "done"), ("reason", None)):
        if name in found:
            found[name] = value
    return found


def _read_as(adapter: TypeAdapter[Any], found: object) -> Any:
    return adapter.validate_json(json.dumps(found))


def _read_by(tool: Tool | AskUser, found: object) -> Any:
    return tool.arguments(json.dumps(found))


def _nothing(_: Random) -> dict[str, Any]:
    return {}


def _fitting(where: str, make: Make, rng: Random, read: Any, name: str = "") -> Any:
    """Draw until a value fits all that its type asks for, a few times.

    Raises:
        UsageError: if none does: what it asks for stands in no schema.
    """
    trouble: Exception | None = None
    for _ in range(TRIES):
        found = make(rng)
        try:
            return read(found)
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
            trouble = error
    msg = (
        f"{where}: what is drawn by its schema does not fit: {trouble} A check that stands in no schema cannot be met "
        f"by drawing. {instead(name)}"
    )
    raise UsageError(msg) from trouble


def filled(text: str, tokens: int) -> str:
    """Make a text as long as so many tokens."""
    size = min(tokens * CHARACTERS, MOST_FILLER)
    lacking = size - len(text) - 2
    if lacking <= 0:
        return text
    return f"{text}: {_filler(-(-lacking // len(FILLER)))[:lacking]}"


@functools.lru_cache(maxsize=256)
def _filler(times: int) -> str:
    return FILLER * times


def is_offered(name: str, request: ModelRequest) -> bool:
    """Tell whether a model is offered a call at this moment: as a tool, or in the schema of its text."""
    if request.tools:
        return any(spec.name == name for spec in request.tools)
    return f'"const": {json.dumps(name)}' in request.schema_json


def size_of(request: ModelRequest) -> int:
    """Count the tokens that a request reads, by its texts."""
    size = len(request.system) + len(request.schema_json)
    for spec in request.tools:
        size += len(spec.name) + len(spec.description) + len(spec.parameters_json)
    for message in request.messages:
        size += len(message.text)
        for call in message.calls:
            size += len(call.name) + len(call.arguments)
    return size // CHARACTERS + 1


def _money(price: Price, reads: int, writes: int) -> Decimal:
    return reads * price.input + writes * price.output
