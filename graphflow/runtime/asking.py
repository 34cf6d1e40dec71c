"""What an agent's model is asked, and what its answer is worth: tools and requests are made here, and answers read.

All of it is pure: it looks at values and makes values. What happens next is decided in `agents`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from graphflow.events import EDITION, SECRETIVE
from graphflow.graphs.compiled import Edge, Station
from graphflow.model.contract import Brief, Report
from graphflow.model.thread import Thread, ThreadMessage, ToolCall, data
from graphflow.nodes.agent import ASK, TRANSFER, Agent, generated_names, said_of
from graphflow.nodes.client import ToolSpec
from graphflow.nodes.replies import ANSWER, answer_name, unfenced
from graphflow.nodes.schemas import answer_schema, schema_text
from graphflow.nodes.signatures import check_depth
from graphflow.nodes.tools import AskUser, Tool

NOTE_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"note": {"type": "string", "description": "What they should know: what is wanted, and found."}},
        "required": ["note"],
        "additionalProperties": False,
    }
)

UNCOUNTED: Final = 151 - 2 * len(ANSWER)
"""How many characters of the text and the schema of the decision mode "json" the estimate of a call leaves out.

What a call reserves stands in stored runs, so it stays what it was before both said so much. Not in it: the name of the
call that answers, which stands in both.
"""

SUPERVISOR_TEXT = (
    "Split the question, ask your team for the parts, several at once where they do not need each other, and answer "
    "once, from their reports. Say so where a part is missing."
)
"""The instructions of a supervisor that has none."""


class Offer(NamedTuple):
    """A tool that a model is offered, and what a call of it does.

    Attributes:
        kind: it runs a tool, asks a person, delegates over an edge, or hands over.
        spec: how the model sees it.
        tool: the tool, for the first two kinds.
        edge: the edge, for the others.
    """

    kind: Literal["tool", "person", "ask", "transfer"]
    spec: ToolSpec
    tool: Tool | AskUser | None = None
    edge: Edge | None = None


Offers = Mapping[str, Offer]


class Manner(NamedTuple):
    """How an agent is asked where it stands, whatever it is asked there.

    Attributes:
        offers: its tools, as far as it may use them, its team, its peers, by the names that its model calls them.
        specs: these, as its model sees them; none where its text says what to call.
        schema: the JSON schema of its text, or "".
        kind: the type that its answer must have.
        native: whether its model calls tools itself; else its text says what to call.
        size: how long specs and schema are, in characters.
        said: the JSON schema of its answer alone, or "".
        answer: what its model calls to answer, where its text says what to call; else "".
    """

    offers: Offers
    specs: tuple[ToolSpec, ...]
    schema: str
    kind: Any
    native: bool
    size: int
    said: str
    answer: str

    def schema_without(self, used_up: Collection[str]) -> str:
        """Return the JSON schema of its text without the calls of some names."""
        if not used_up:
            return self.schema
        left = {name: offer for name, offer in self.offers.items() if name not in used_up}
        return json_schema(left, self.said, self.answer)


def manner_of(
    station: Station, about: Mapping[str, Station], allowed: frozenset[str] | None, owed: Any, edition: int = EDITION
) -> Manner:
    """Return how an agent is asked where it stands; made once for each way in which it can stand there.

    Args:
        station: the agent in its graph.
        about: the stations of the graph, for what is known of the team.
        allowed: the names of the tools that it may use, or None for all.
        owed: the type of the report that it owes a caller, or None.
        edition: by what the run is decided.
    """
    agent = station.node
    assert isinstance(agent, Agent)  # noqa: S101 - only agents are asked
    key = allowed, owed, agent.native, edition
    found: Manner | None = station.manners.get(key)
    if found is None:
        found = station.manners[key] = _manner(
            agent, _offers(station, about, allowed, edition), owed, whole=edition < SECRETIVE
        )
    return found


def _manner(agent: Agent, offers: Offers, owed: Any, *, whole: bool) -> Manner:
    kind = owed if agent.output is None and owed is not Report else agent.output
    said = answer_schema(kind, whole=whole)
    if not agent.native and offers:  # where there is nothing to choose, the answer is all there is
        answer = answer_name(offers)
        schema = json_schema(offers, said, answer)
        size = len(schema) - UNCOUNTED - 2 * len(answer)
        return Manner(offers, (), schema, kind, native=False, size=size, said=said, answer=answer)
    specs = tuple(offer.spec for offer in offers.values())
    size = sum(len(spec.name) + len(spec.description) + len(spec.parameters_json) for spec in specs)
    return Manner(offers, specs, said, kind, native=True, size=len(said) + size, said=said, answer="")


def _offers(
    station: Station, about: Mapping[str, Station], allowed: frozenset[str] | None, edition: int
) -> dict[str, Offer]:
    agent = station.node
    assert isinstance(agent, Agent)  # noqa: S101 - only agents are offered tools
    found: dict[str, Offer] = {}
    whole = edition < SECRETIVE
    for tool in agent.tools:
        spec = ToolSpec(tool.name, tool.description, tool.parameters_json) if whole else tool.spec
        found[tool.name] = Offer("person" if isinstance(tool, AskUser) else "tool", spec, tool)
    for name, target in generated_names(ASK, station.delegates).items():
        edge = station.delegates[target]
        brief = edge.contract.brief if edge.contract is not None else Brief
        often = "" if edge.max_hops is None else f" It can be asked {_times(edge.max_hops)} in all."
        text = f"Ask {target}, and get a report.{_about(about[target])}{often}"
        spec = ToolSpec(name, text, _brief_schema(brief, whole=whole, short=not agent.native))
        found.setdefault(name, Offer("ask", spec, edge=edge))
    others = [target for target in station.handoffs if target != station.name]  # a model has control already
    for name, target in generated_names(TRANSFER, others).items():
        text = f"Hand the conversation over to {target}, for good.{_about(about[target])}"
        found.setdefault(name, Offer("transfer", ToolSpec(name, text, NOTE_SCHEMA), edge=station.handoffs[target]))
    if allowed is None:
        return found
    limited = ("tool", "person") if edition else ("tool",)
    return {name: offer for name, offer in found.items() if offer.kind not in limited or name in allowed}


def _brief_schema(brief: type[Brief], *, whole: bool, short: bool) -> str:
    """Return the schema of a brief; a short one is without what a caller need not write.

    A small model would fill that with noise.
    """
    text = schema_text(brief, whole=whole)
    if not short:
        return text
    schema: dict[str, Any] = json.loads(text)
    ours = Brief.model_fields.keys() - {"objective"} - set(schema.get("required", ()))
    schema["properties"] = {name: part for name, part in schema["properties"].items() if name not in ours}
    schema["properties"]["objective"].pop("description", None)
    return json.dumps(schema, ensure_ascii=False)


def _about(station: Station) -> str:
    text = said_of(station.node)
    return f" {text.rstrip('.')}." if text else ""


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


# --- constrained JSON ------------------------------------------------------------------------------------------------


def json_schema(offers: Offers, said: str, answer: str = ANSWER) -> str:
    """Return the JSON schema of a reply in the decision mode "json": the reason first, then calls, or that to answer.

    Args:
        offers: what may be called; nothing, where there is only the answer left.
        said: the schema of the answer, or "" for free text.
        answer: the name of the call that answers, which stands alone.
    """
    defs: dict[str, Any] = {}
    value: Any = _with_own_names(said, defs) if said else {"type": "string"}
    calls = [_call(name, _with_own_names(offer.spec.parameters_json, defs)) for name, offer in offers.items()]
    arguments = {"type": "object", "properties": {"answer": value}, "required": ["answer"]}
    last = _call(answer, {**arguments, "additionalProperties": False})
    alone: dict[str, Any] = {"type": "array", "items": last, "minItems": 1, "maxItems": 1}
    several: dict[str, Any] = {"type": "array", "items": {"anyOf": calls}, "minItems": 1}
    whole: dict[str, Any] = {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "Why, in one sentence."},
            "calls": {"anyOf": [several, alone]} if calls else alone,
        },
        "required": ["reason", "calls"],
        "additionalProperties": False,
    }
    return json.dumps({**whole, **({"$defs": defs} if defs else {})})


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"tool": {"type": "string", "const": name}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _with_own_names(schema_json: str, defs: dict[str, Any]) -> Any:
    """Move the definitions of a schema to those of all; two of one name that differ get names of their own."""
    for name, part in json.loads(schema_json).get("$defs", {}).items():
        number, unique = 1, name
        while unique in defs and defs[unique] != part:
            number += 1
            unique = f"{name}_{number}"
        if unique != name:
            schema_json = schema_json.replace(f'"#/$defs/{name}"', f'"#/$defs/{unique}"')
        defs[unique] = part
    schema = json.loads(schema_json)
    schema.pop("$defs", None)
    return schema


def json_instructions(system: str, offers: Offers) -> str:
    """Return the system text of the decision mode "json": the instructions, and how to answer.

    A small model reads all of it, so it is short: of a tool's schema there are the names of its arguments.
    """
    lines = [system] if system else []
    lines.append('Reply with one JSON object: {"reason": "...", "calls": [{"tool": "NAME", "arguments": {...}}]}')
    lines.append("The reason comes first and is one short sentence. Call one tool, or several at once. The tools:")
    lines += [
        f"- {offer.spec.name}{_arguments(offer.spec.parameters)}: {offer.spec.description}" for offer in offers.values()
    ]
    last = answer_name(offers)
    lines.append(f"- {last}(answer): Give your answer, when the other tools have told you what you need.")
    return "\n".join(lines)


def _arguments(schema: Mapping[str, Any]) -> str:
    """Show the arguments of a tool as a function's, with what is said of each; a schema of parts is shown as it is."""
    found: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    if "$defs" in schema:
        return f"(arguments as in {json.dumps(schema, ensure_ascii=False)})"
    wanted = schema.get("required", ())
    return f"({', '.join(_argument(name, part, optional=name not in wanted) for name, part in found.items())})"


def _argument(name: str, part: Mapping[str, Any], *, optional: bool) -> str:
    kind = part.get("type")
    if "enum" in part:
        shape = " | ".join(json.dumps(value, ensure_ascii=False) for value in part["enum"])
    elif kind in ("array", "object") or not isinstance(kind, str):
        shape = json.dumps({key: value for key, value in part.items() if key not in ("description", "default")})
    else:
        shape = "" if kind == "string" else kind
    told = ", ".join(filter(None, [shape, str(part.get("description", "")).rstrip(".")]))
    return f"{name}{'?' if optional else ''}{f': {told}' if told else ''}"


def asked_in_json(messages: Thread, manner: Manner, used_up: Collection[str]) -> Thread:
    """Return messages as a model reads them that decides in JSON, and below the last what is left to do.

    A small model repeats what it did last, unless the last that it reads says something else. The system text stays as
    it was, so that a server need not read everything again.
    """
    made = as_plain_text(messages)
    hint = _hint(manner, used_up, called=messages[-1].role == "tool")
    if not hint or made[-1].role != "user":
        return made
    return (*made[:-1], replace(made[-1], text=f"{made[-1].text}\n{hint}"))


def _hint(manner: Manner, used_up: Collection[str], *, called: bool) -> str:
    """Say what may not be called any more, and after a call that it is time to answer."""
    if len(used_up) == len(manner.offers):
        return f"The other tools are used up. Call {manner.answer} now."
    found: list[str] = []
    if used_up:
        found.append(f"{', '.join(name for name in manner.offers if name in used_up)} cannot be called any more.")
    if called:
        found.append(f"If this is all you need, call {manner.answer} now.")
    return " ".join(found)


def as_plain_text(messages: Thread) -> Thread:
    """Return messages without calls, for a model that knows none: calls as the JSON it wrote, results as data."""
    names = {call.id: call.name for message in messages for call in message.calls}
    made: list[ThreadMessage] = []
    for message in messages:
        if message.role == "tool":
            kind = "failure" if message.failed else "result"
            text = message.text
            if not message.source:  # a report says itself what it is
                text = data(kind, names.get(message.answers, "a tool"), text)
            made.append(ThreadMessage("user", text, source=message.source))
        elif message.calls:
            calls = [{"tool": call.name, "arguments": _loaded(call.arguments)} for call in message.calls]
            said = json.dumps({"reason": message.text, "calls": calls}, ensure_ascii=False)
            made.append(ThreadMessage("assistant", said, source=message.source))
        else:
            made.append(message)
    return tuple(made)


def _loaded(text: str) -> Any:
    try:
        check_depth(text)
        return json.loads(text)
    except ValueError:
        return text


def with_own_ids(calls: Iterable[ToolCall], taken: set[str], turn: int) -> tuple[ToolCall, ...]:
    """Return plain calls whose ids are theirs alone in the thread; an id that is empty or taken is made anew."""
    made: list[ToolCall] = []
    for position, call in enumerate(calls):
        wanted = call.id or f"call_{turn}_{position}"
        unique, number = wanted, 1
        while unique in taken:
            number += 1
            unique = f"{wanted}_{number}"
        taken.add(unique)
        plain = type(call) is ToolCall and type(call.name) is str and type(call.arguments) is str
        made.append(call if plain and unique is call.id else ToolCall(str(call.name), str(call.arguments), unique))
    return tuple(made)


# --- answers ---------------------------------------------------------------------------------------------------------


def read_answer(kind: Any, text: str, answer_json: str = "") -> Any:
    """Return an answer as the type it must have.

    A text that is no JSON object is the finding of a `Report`; one that is no JSON at all may still be a value, such as
    one word of a `Literal`.

    Raises:
        ValueError: with a text that a model can act on.
    """
    if kind is None or kind is str:
        return text
    is_class = isinstance(kind, type)
    validator = validator_of(kind, "" if is_class else repr(cast("object", kind)))
    if is_class and issubclass(kind, Report) and not text.lstrip().startswith(("{", "```")):
        with contextlib.suppress(ValidationError):  # one of the user's own may need more than words
            return kind(finding=text)
    given = answer_json or unfenced(text)
    try:
        return validator.validate_json(given)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid" and not given.startswith(("{", "[")):
            with contextlib.suppress(ValidationError):
                return validator.validate_python(given)
        raise ValueError(problems_text(error)) from error


@functools.lru_cache(maxsize=256)
def validator_of(kind: Any, _: str = "") -> Any:
    """Make the validator of a type once; equal types that are written in two orders read in two orders."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    adapter.rebuild()  # a class may put that off
    return adapter.validator


def problems_text(error: ValidationError) -> str:
    """Say what is wrong with some JSON, one item for each place."""
    found = [
        f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in error.errors(include_url=False)
    ]
    return "; ".join(found[:8]) + (f"; and {len(found) - 8} more" if len(found) > 8 else "")  # noqa: PLR2004 - enough for a model
