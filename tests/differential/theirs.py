"""Runs a play in openai-agents."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from agents import (
    Agent,
    Handoff,
    MaxTurnsExceeded,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    Usage,
    UserError,
    function_tool,
    handoff,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from pydantic import BaseModel

from tests.differential.script import (
    FAILED,
    FATAL,
    IGNORED,
    INPUT_TOKENS,
    MOVED,
    OUTPUT_TOKENS,
    Asked,
    Line,
    Play,
    Reply,
    Seen,
    Shelf,
    said,
)

# It would send its traces to a service.
set_trace_processors([])
set_tracing_disabled(disabled=True)

TEXTS = {
    "An error occurred while running the tool. Please try again.": FAILED,
    "Multiple handoffs detected, ignoring this one.": IGNORED,
}


class Note(BaseModel):
    """What a transfer carries."""

    note: str


class Objective(BaseModel):
    """What a delegation carries."""

    objective: str


async def _noted(context: RunContextWrapper[Any], note: Note) -> None:
    """Take the note; it stands in the call already."""


def _objective(options: Any) -> str:
    return cast("str", options["params"]["objective"])


class _Models:
    """The models of a play, which number the calls and keep what they were asked in order of arrival."""

    def __init__(self, play: Play) -> None:
        self.asked: list[tuple[str, ModelCall]] = []
        self._count = 0
        self.of = {
            member.name: ScriptedModel([self._step(member.name, reply) for reply in play.script.get(member.name, ())])
            for member in play.members
        }

    def _step(self, agent: str, reply: Reply) -> ModelStep:
        if reply.error:
            return ModelStep.respond(lambda asked: self._raise(agent, asked, reply.error))
        output = [assistant_message(reply.text)] if reply.text or not reply.calls else []
        for one in reply.calls:
            self._count += 1
            output.append(function_call(one.tool, one.arguments, call_id=one.id or f"call{self._count}"))
        usage = Usage(
            requests=1,
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
        )

        def respond(asked: ModelCall) -> ModelStep:
            self.asked.append((agent, asked))
            return ModelStep(output=output, usage=usage)

        return ModelStep.respond(respond)

    def _raise(self, agent: str, asked: ModelCall, error: str) -> ModelStep:
        self.asked.append((agent, asked))
        raise RuntimeError(error)


def _team(play: Play, models: _Models, shelf: Shelf) -> dict[str, Agent[Any]]:
    tools = {
        name: function_tool(body, failure_error_function=None) if name == FATAL else function_tool(body)
        for name, body in shelf.tools().items()
    }
    agents: dict[str, Agent[Any]] = {
        member.name: Agent(
            name=member.name,
            instructions=f"You are {member.name}.",
            model=models.of[member.name],
            tools=[tools[name] for name in member.tools],
            output_type=member.output,
        )
        for member in play.members
    }
    for member in play.members:
        agent = agents[member.name]
        targets: list[Agent[Any] | Handoff[Any, Any]] = [
            handoff(agents[name], on_handoff=_noted, input_type=Note) for name in member.hands_off
        ]
        agent.handoffs = targets
        agent.tools += [
            agents[name].as_tool(
                f"ask_{name}", f"Ask {name}.", parameters=Objective, input_builder=_objective, max_turns=play.max_turns
            )
            for name in member.team
        ]
    return agents


def _in_call_order(items: list[Any]) -> list[Any]:
    """Put the results of each turn into the order of its calls; here those of transfers come last."""
    results = {item["call_id"]: item for item in items if item.get("type") == "function_call_output"}
    made: list[Any] = []
    waiting: list[Any] = []
    for item in items:
        if item.get("type") == "function_call_output":
            made += [results[one] for one in waiting]
            waiting = []
            continue
        made.append(item)
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
    return made


def _asked(agent: str, given: Any, *, in_call_order: bool) -> Asked:
    if in_call_order:
        given = _in_call_order(given)
    names: dict[str, str] = {}
    lines: list[Line] = []
    texts: list[str] = []
    for item in given:
        match item.get("type", "message"):
            case "function_call":
                names[item["call_id"]] = item["name"]
                texts.append(item["arguments"])
                lines.append(("call", f"{item['name']} {said(item['arguments'])}"))
            case "function_call_output":
                name, text = names[item["call_id"]], item["output"]
                texts.append(text)
                moved = name.startswith("transfer_to_") and text.startswith('{"assistant"')
                missing = text == f"Tool '{name}' not found."
                lines.append(("result", f"{name}: {MOVED if moved else FAILED if missing else TEXTS.get(text, text)}"))
            case _:
                parts = item["content"]
                text = parts if isinstance(parts, str) else "".join(part["text"] for part in parts)
                texts.append(text)
                lines.append((item["role"], text))
    return Asked(agent, tuple(lines), tuple(texts))


def play_theirs(play: Play, *, in_call_order: bool = False) -> Seen:
    """Run a play; it knows asyncio only.

    Args:
        play: what is played.
        in_call_order: whether the results of each turn are put into the order of its calls.
    """
    with ThreadPoolExecutor(1) as pool:  # it clears frames of errors, which coverage cannot follow
        return pool.submit(asyncio.run, _play(play, in_call_order=in_call_order)).result()


async def _play(play: Play, *, in_call_order: bool) -> Seen:
    shelf, models = Shelf(), _Models(play)
    team = _team(play, models, shelf)
    output: Any = None
    speaker, usage = "", Usage()
    try:
        result = await Runner.run(
            team[play.members[0].name],
            play.user,
            max_turns=play.max_turns,
            run_config=RunConfig(
                tracing_disabled=True,
                tool_not_found_behavior="return_error_to_model" if play.forgiving else "raise_error",
            ),
        )
    except (MaxTurnsExceeded, ModelBehaviorError) as error:
        end = "max_turns" if isinstance(error, MaxTurnsExceeded) else f"misbehaved: {error}"
        if error.run_data is not None:
            speaker, usage = error.run_data.last_agent.name, error.run_data.context_wrapper.usage
    except (UserError, RuntimeError) as error:
        end = f"{type(error).__name__}: {error}"
    else:
        end, output = "done", result.final_output
        speaker, usage = result.last_agent.name, result.context_wrapper.usage
    requests = tuple(_asked(agent, asked.input, in_call_order=in_call_order) for agent, asked in models.asked)
    return Seen(requests, tuple(shelf.used), usage.requests, usage.total_tokens, end, output, speaker)
