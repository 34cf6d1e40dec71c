"""Runs a play in graphflow."""

from __future__ import annotations

import json
import re
from typing import Any

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelReply,
    ModelRequest,
    Supervisor,
    ThreadMessage,
    ToolCall,
    Usage,
    run_sync,
    tool,
)
from graphflow.testing import ScriptedModel
from tests.differential.script import (
    FAILED,
    FATAL,
    IGNORED,
    INPUT_TOKENS,
    MOVED,
    OUTPUT_TOKENS,
    Asked,
    Line,
    Member,
    Play,
    Reply,
    Seen,
    Shelf,
    said,
)

MANY = 1000
"""A bound that no play reaches."""


class Talk(Context):
    """What is asked."""

    question: str


def team(play: Play, model: ScriptedModel, shelf: Shelf) -> Graph[Talk]:
    """Build the graph of a play."""
    tools = {name: tool(body, on_error="raise" if name == FATAL else "data") for name, body in shelf.tools().items()}

    def agent(member: Member) -> Agent:
        kind = Supervisor if member.team else Agent
        return kind(
            member.name,
            model=model,
            instructions=f"You are {member.name}.",
            tools=[tools[name] for name in member.tools],
            output=member.output,
            max_turns=play.max_turns,
        )

    agents = {member.name: agent(member) for member in play.members}
    statements: list[Any] = [START >> agents[play.members[0].name]]
    for member in play.members:
        source = agents[member.name]
        if member.team:
            statements.append(source.delegates(*(agents[name] for name in member.team), max_hops=MANY))
        if member.hands_off:
            targets = [agents[name] for name in member.hands_off]
            statements.append(source.hands_off(*targets, max_hops=MANY, history=play.history))
    statements += [agents[name] >> END for name in _ends(play)]
    budget = Budget(model_calls=MANY, tool_calls=MANY, tokens=MANY * MANY)
    return Graph("play", *statements, context=Talk, budget=budget, max_depth=5, max_handoffs=MANY)


def _ends(play: Play) -> list[str]:
    """Who may end the run: whoever the first can hand it to."""
    members = {member.name: member for member in play.members}
    found = [play.members[0].name]
    for name in found:
        found.extend(target for target in members[name].hands_off if target not in found)
    return found


def _step(reply: Reply) -> ModelReply | Exception:
    if reply.error:
        return RuntimeError(reply.error)
    calls = tuple(ToolCall(one.tool, one.arguments, one.id) for one in reply.calls)
    return ModelReply(reply.text, calls, Usage(INPUT_TOKENS, OUTPUT_TOKENS))


BRIEF = re.compile(r'<brief from="[^"]*">\nobjective: (.*)\n')
REPORT = re.compile(r'<report from="[^"]*">\n(.*)\n</report>', re.DOTALL)


def _asked(request: ModelRequest) -> Asked:
    messages = request.messages
    names = {one.id: one.name for message in messages for one in message.calls}
    lines: list[Line] = []
    texts: list[str] = []
    for message in messages:
        if message.text:
            texts.append(message.text)
        texts += [one.arguments for one in message.calls]
        if message.role == "tool":
            name = names[message.answers]
            lines.append(("result", f"{name}: {_result(name, message)}"))
            continue
        brief = BRIEF.match(message.text)
        if message.text:
            lines.append((message.role, brief[1] if brief else message.text))
        lines += [("call", f"{one.name} {said(one.arguments)}") for one in message.calls]
    return Asked(request.agent, tuple(lines), tuple(texts))


def _result(name: str, message: ThreadMessage) -> str:
    if name.startswith("transfer_to_") and not message.failed:
        return MOVED
    if message.failed:
        return IGNORED if "the first transfer of a turn counts" in message.text else FAILED
    found = REPORT.match(message.text)
    if found is None:
        return message.text
    report: dict[str, Any] = json.loads(found[1])
    return str(report["finding"]) or FAILED


def play_ours(play: Play, backend: str = "asyncio") -> Seen:
    """Run a play."""
    shelf = Shelf()
    model = ScriptedModel({name: [_step(reply) for reply in replies] for name, replies in play.script.items()})
    graph = team(play, model, shelf)
    calls = tokens = 0
    output: Any = None
    speaker = status = ""
    try:
        result = run_sync(graph, Talk(question=play.user), backend=backend)
    except (RuntimeError, LookupError) as error:
        end = f"{type(error).__name__}: {error}"
    else:
        end = "done" if result.status in ("completed", "partial") else result.reason.code if result.reason else ""
        output, speaker, status = result.output, result.active or "", result.status
        spent = result.spent.total
        calls, tokens = spent.model_calls or 0, spent.tokens or 0
    requests = tuple(_asked(request) for request in model.requests)
    return Seen(requests, tuple(shelf.used), calls, tokens, end, output, speaker, status)
