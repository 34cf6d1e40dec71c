"""What crosses from one agent to another is capped, message by message, whatever policy lets it cross."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow import END, START, Agent, Budget, Context, Graph, last, run
from graphflow.model.thread import DATA_CAP
from graphflow.testing import ScriptedModel, call


class Talk(Context):
    """What the user says."""

    text: str = "hi"


def note(text: str) -> str:
    """Take a note."""
    return f"noted {len(text)}"


@pytest.mark.parametrize("history", ["full", last(9)], ids=["full", "the last nine"])
@pytest.mark.parametrize("over", [0, 1, 5_000])
@pytest.mark.parametrize("native", [True, False], ids=["native", "json"])
async def test_each_message_that_crosses_is_capped(history: Any, over: int, native: bool) -> None:
    """Its text, and the arguments of its calls: who takes over reads that something was left out, and how much."""
    text = "x" * (DATA_CAP + over)
    first = Agent("first", model=ScriptedModel(call("note", text=text), text), tools=[note])
    model = ScriptedModel("done" if native else _done(), native_tools=native)
    second = Agent("second", model=model, tools=[note], history=history)
    graph = Graph("g", START >> first >> second >> END, context=Talk, budget=Budget(model_calls=9))

    result = await run(graph, Talk())

    seen = model.requests[0].messages
    said = next(message.text for message in seen if message.text.startswith("xxx"))
    called = next(message for message in seen if message.calls or '"note"' in message.text)
    left_out = f"\n[{over} more characters were left out]" if over else ""
    assert said == "x" * DATA_CAP + left_out
    arguments = called.calls[0].arguments if native else json.dumps(json.loads(called.text)["calls"][0]["arguments"])
    cut = json.loads(arguments)["text"]
    assert len(arguments) <= DATA_CAP < len(json.dumps({"text": text}))
    assert cut.startswith("xxx")
    assert cut.endswith("left out]")
    assert text in [message.text for message in result.thread]


def _done() -> str:
    return json.dumps({"reason": "r", "calls": [{"tool": "answer", "arguments": {"answer": "done"}}]})
