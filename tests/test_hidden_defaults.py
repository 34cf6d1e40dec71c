"""Defaults that are secrets: models and people are told none, digests are of none; older runs go on as they began."""

import dataclasses
import json
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel

from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Brief,
    Budget,
    Context,
    Graph,
    Report,
    Result,
    State,
    Step,
    node,
    replay,
    resume,
    run,
    secret,
    tool,
)
from graphflow.cli.calls import AskedCall
from graphflow.cli.forms import json_schema
from graphflow.errors import JournalDamaged
from graphflow.events import EDITION, EffectRequested, Event
from graphflow.model.jsontext import compact_json, load_json
from graphflow.model.secrets import SHOWN
from graphflow.persistence.lines import event_json
from graphflow.runtime.checksums import chained, without_checksum
from graphflow.runtime.digests import digest
from graphflow.testing import MemoryJournal, ScriptedModel, call

KEY = "hunter2"
BUDGET = Budget(model_calls=9, tool_calls=9, node_runs=9)


class Case(Context):
    """A context."""

    question: str = "q"


class Creds(BaseModel, frozen=True):
    """A model with a secret."""

    door_code: Annotated[str, secret] = KEY


class Holder(BaseModel, frozen=True):
    """A model that holds one by default."""

    creds: Creds = Creds()


HELD = Holder()


class Sealed(Report):
    """A report."""

    door_code: Annotated[str, secret] = KEY


class Asked(Brief):
    """A brief."""

    door_code: Annotated[str, secret] = KEY


given: list[str] = []


@tool
def pay(invoice: str, door_code: Annotated[str, secret] = KEY, held: Holder = HELD, often: int = 7) -> str:
    """Pay."""
    given.append(door_code + held.creds.door_code)
    return f"{invoice} paid {often} times"


pay_approved = tool(name="pay_approved", approval=True)(pay.fn)


def team(*, native: bool = True) -> tuple[Graph[Case], ScriptedModel]:
    """Make an agent with a tool, a callee and a person, all of which have defaults that are secrets."""
    wrong, right = call("pay", invoice=3), call("pay", invoice="INV-311")
    steps = [wrong, right, call("pay_approved", invoice="INV-312"), json.dumps({"finding": "found"})]
    model = ScriptedModel(*steps if native else [json.dumps(in_json(step)) for step in steps], native_tools=native)
    helper = Agent("helper", model=ScriptedModel(), output=Sealed)
    tools: list[Any] = [pay, pay_approved, AskUser(schema=Creds)]
    boss = Agent("boss", model=model, tools=tools, output=Sealed, max_turns=9)
    edge = boss.delegates(helper, max_hops=1, brief=Asked, report=Sealed)
    return Graph("team", START >> boss >> END, edge, context=Case, budget=BUDGET, max_depth=1), model


def in_json(step: Any) -> dict[str, Any]:
    """Write what a model says as one that is asked in JSON does."""
    if isinstance(step, str):
        return {"reason": "r", "calls": [{"tool": "answer", "arguments": {"answer": json.loads(step)}}]}
    return {"reason": "r", "calls": [{"tool": step.name, "arguments": json.loads(step.arguments)}]}


@pytest.mark.parametrize("native", [True, False])
async def test_a_default_that_is_a_secret_is_told_to_nobody(native: bool, anyio_backend: str) -> None:
    """Not in schemas, nor where arguments did not fit, nor to the person who approves; the tool is called with it."""
    graph, model = team(native=native)
    journal, events = MemoryJournal(), list[Event]()
    given.clear()

    waiting = await run(graph, Case(), journal=journal, run_id="r", listeners=[events.append])
    result = await resume(graph, "r", journal=journal, answers={waiting.questions[0].id: {"approve": True}})

    assert result.status == "completed"
    assert given == [KEY * 2, KEY * 2]
    assert f"door_code={SHOWN}" in waiting.questions[0].text
    told = [repr(model.requests), repr(waiting.questions), repr(await journal.read("r")), repr(result)]
    assert [KEY in text for text in (*told, *map(event_json, events))] == [False] * (4 + len(events))
    assert "often" in repr(model.requests[0])
    assert KEY not in json.dumps(graph.structure())
    assert KEY not in json.dumps(json_schema(Creds))


def test_the_command_line_shows_whoever_approves_a_call_no_secret() -> None:
    """Neither a default nor what a model has written there."""
    asked = [AskedCall(pay, {"invoice": "INV-311", **more}).arguments() for more in ({}, {"door_code": "1234"})]

    assert [found["door_code"] for found in asked] == [SHOWN, SHOWN]
    assert asked[0]["often"] == 7


def test_a_default_that_is_a_secret_counts_in_a_fingerprint() -> None:
    """The graph of a stored run is known by it still."""
    assert KEY in pay.parameters_json
    assert KEY not in pay.spec.parameters_json
    assert pay.hidden == {"door_code"}


@pytest.mark.parametrize("native", [True, False])
async def test_a_run_of_an_older_edition_is_asked_as_it_was(
    native: bool, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """What a call reserves is reckoned from what models are told: a run that began so goes on so."""
    monkeypatch.setattr("graphflow.runtime.starting.EDITION", 1)
    journal = MemoryJournal()
    graph, before = team(native=native)
    await run(graph, Case(), journal=journal, run_id="r")
    monkeypatch.undo()
    graph, model = team(native=native)

    again = await replay(graph, "r", journal=journal)

    assert (again.status, again.spent.total.tool_calls) == ("waiting", 1)
    assert (KEY in repr(before.requests), model.requests) == (True, ())


# --- digests ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Data:
    """A dataclass."""

    door_code: Annotated[str, secret]
    n: int = 1


class Pair(NamedTuple):
    """A NamedTuple."""

    door_code: Annotated[str, secret]
    n: int = 1


def beside(door_code: str, n: int = 1) -> tuple[Creds, int]:
    """Make a tuple with a model in it."""
    return Creds(door_code=door_code), n


KINDS: list[Any] = [Data, Pair, beside]


@pytest.mark.parametrize("kind", KINDS)
def test_no_digest_is_of_a_secret(kind: Any) -> None:
    """A short one could be guessed by it; all else counts."""
    assert digest((kind("1234"),)) == digest((kind("9999"),))
    assert digest((kind("1234"),)) != digest((kind("1234", 2),))
    assert digest((kind("1234"),), whole=True) != digest((kind("9999"),), whole=True)


@node
async def logs_in(state: State[Case], step: Step) -> str:
    """Use an effect with a secret, and another that fails at first."""
    await step.effect("login", str, Data("1234"))
    if stops:
        raise KeyboardInterrupt
    return await step.effect("again", str, 7)


stops: list[bool] = []
LOGIN = Graph("login", START >> logs_in >> END, context=Case, budget=BUDGET)


@pytest.mark.parametrize("edition", [1, EDITION])
async def test_an_effect_is_found_again_by_the_digest_of_its_edition(
    edition: int, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """A body that is entered again asks for the effect that is recorded, in runs of older editions too."""
    monkeypatch.setattr("graphflow.runtime.starting.EDITION", edition)
    journal, events = MemoryJournal(), list[Event]()
    stops.append(True)
    with pytest.raises(KeyboardInterrupt):
        await run(LOGIN, Case(), journal=journal, run_id="r", listeners=[events.append])
    stops.clear()
    monkeypatch.undo()

    result: Result[Case] = await resume(LOGIN, "r", journal=journal)

    asked = [event.body.digest for event in events if isinstance(event.body, EffectRequested)]
    assert (result.status, result.output) == ("completed", "7")
    assert asked == [digest((Data("1234"),), whole=edition == 1)]


async def test_a_run_of_a_later_edition_is_refused(anyio_backend: str) -> None:
    """This version does not know by what it is decided."""
    journal, later = MemoryJournal(), MemoryJournal()
    await run(LOGIN, Case(), journal=journal, run_id="r")
    rows = list(await journal.read("r"))
    fact = load_json(rows[0].fact)
    assert fact[-1] == EDITION
    fact[-1] = EDITION + 1
    bare = [dataclasses.replace(row, decisions=without_checksum(row.decisions)) for row in rows]
    bare[0] = dataclasses.replace(bare[0], fact=compact_json(fact))
    writer = await later.claim("r")
    for row in chained(bare):
        await writer.append(row)
    await writer.release()

    with pytest.raises(JournalDamaged, match=f"edition {EDITION + 1}, and this version of graphflow knows"):
        await replay(LOGIN, "r", journal=later)
