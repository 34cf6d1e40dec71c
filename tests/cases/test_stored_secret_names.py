"""Case R9 on resume: each secret comes back as what it was, however many of one field a run has; old runs are read."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, SecretStr, field_validator

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Graph,
    Human,
    Report,
    State,
    Step,
    Supervisor,
    fork_run,
    node,
    replay,
    resume,
    run,
)
from graphflow.errors import JournalMismatch
from graphflow.events import Row
from graphflow.model.codec import MissingSecrets, secret
from graphflow.model.exact import SecretNames
from graphflow.runtime.checksums import chained, without_checksum
from graphflow.testing import MemoryJournal, ScriptedModel, call
from tests.cases.stored import RUN, copied


class Creds(BaseModel, frozen=True):
    """A login."""

    token: Annotated[str, secret] = ""
    pin: Annotated[int, secret] = 0

    @field_validator("token")
    @classmethod
    def _trimmed(cls, token: str) -> str:
        return token.strip()


class Case(Context):
    """Two logins of one class."""

    question: str = "q"
    a: Creds | None = None
    b: Creds | None = None


class Sealed(Report):
    """A report with a login."""

    finding: str = "found"
    token: Annotated[str, secret] = ""


def two_logins() -> Graph[Case]:
    """Two nodes and an effect store a secret each, all by one field; the last node says what it sees."""

    @node(into="a")
    async def first(state: State[Case]) -> Creds:
        return Creds(token="AAA", pin=4711)

    @node(into="b")
    async def second(state: State[Case], step: Step) -> Creds:
        async def asks() -> Creds:
            return Creds(token="CCC", pin=4712)

        found = await step.effect("asks", asks)
        return Creds(token="BBB", pin=found.pin)

    @node
    async def says(state: State[Case]) -> str:
        found = state.context
        assert found.a is not None
        assert found.b is not None
        return f"{found.a.token} {found.a.pin} {found.b.token} {found.b.pin}"

    asks = Human("ask", "go on?", schema=bool)
    return Graph("two", START >> first >> second >> asks >> says >> END, context=Case, budget=Budget(node_runs=9))


SECRETS: dict[str, object] = {"token": "AAA", "token#2": "CCC", "token#3": "BBB", "pin": "4711", "pin#2": "4712"}


@pytest.mark.parametrize("act", [resume, fork_run])
async def test_two_secrets_of_one_field_come_back_as_what_they_were(
    act: Callable[..., Any], anyio_backend: str
) -> None:
    """In records of their own, and where an effect had one; numbers may be given as texts, as a command line does."""
    journal = MemoryJournal()
    waiting = await run(two_logins(), Case(), journal=journal, run_id=RUN)

    result = await act(two_logins(), RUN, journal=journal, secrets=SECRETS, answers={"ask": True})

    assert waiting.status == "waiting"
    assert result.output == "AAA 4711 BBB 4712"
    again = await replay(two_logins(), result.run_id, journal=journal, secrets=SECRETS)
    assert again.output == result.output
    text = str(await journal.read(result.run_id))
    assert not any(word in text.partition("AAA 4711 BBB 4712")[0] for word in ("AAA", "BBB", "CCC"))


async def test_every_name_is_asked_for_at_once(anyio_backend: str) -> None:
    """The error names what all records ask for; of those that were given, none."""
    journal = MemoryJournal()
    await run(two_logins(), Case(), journal=journal, run_id=RUN)
    rows = await journal.read(RUN)

    for given in ({}, {"token": "AAA"}, {"token": "AAA", "pin": 4711, "token#3": "BBB"}):
        with pytest.raises(MissingSecrets) as caught:
            await resume(two_logins(), RUN, journal=journal, secrets=given, answers={"ask": True})
        assert set(caught.value.names) == SECRETS.keys() - given.keys()
    assert await journal.read(RUN) == rows


async def test_a_secret_may_have_been_renewed(anyio_backend: str) -> None:
    """What is given counts, and has its name from then on, also where its class makes something else of it."""
    journal = MemoryJournal()
    await run(two_logins(), Case(), journal=journal, run_id=RUN)
    renewed = {**SECRETS, "token": " NEW ", "token#2": "CCC"}

    result = await resume(two_logins(), RUN, journal=journal, secrets=renewed, answers={"ask": True})

    assert result.output == "NEW 4711 BBB 4712"
    assert (await replay(two_logins(), RUN, journal=journal, secrets=renewed)).output == result.output


async def test_reports_with_secrets_are_folded_again(anyio_backend: str) -> None:
    """A report stands in a fact and in a decision: in both by one name."""

    def team() -> Graph[Case]:
        given = iter(["AAA", "BBB"])

        @node
        async def works(state: State[Case]) -> Sealed:
            return Sealed(token=next(given))

        asked = [call("ask_works", objective="1"), call("ask_works", objective="2")]
        boss = Supervisor("boss", model=ScriptedModel(*asked, "done"))
        edge = boss.delegates(works, max_hops=2, report=Sealed)
        ask = Human("ask", "?", schema=bool)
        budget = Budget(model_calls=9, node_runs=9)
        return Graph("team", START >> boss >> ask >> END, edge, context=Case, budget=budget, max_depth=1)

    journal = MemoryJournal()
    await run(team(), Case(), journal=journal, run_id=RUN)

    secrets = {"token": "AAA", "token#2": "BBB"}
    result = await resume(team(), RUN, journal=journal, secrets=secrets, answers={"ask": True})

    assert result.status == "completed"
    assert "BBB" not in str(await journal.read(RUN))


# --- answers ---------------------------------------------------------------------------------------------------------


def passwords() -> Graph[Case]:
    """Two people answer with secrets, and a third one later."""

    @node
    async def says(state: State[Case]) -> str:
        return str([value.get_secret_value() for value in state.values])

    gate = Human("gate", "go on?", schema=bool)
    both = (Human("one", "password?", schema=SecretStr), Human("two", "pin?", schema=SecretStr))
    return Graph("ask", START >> both >> says >> gate >> END, context=Case, budget=Budget(node_runs=9))


async def test_a_secret_answer_is_called_by_its_question(anyio_backend: str) -> None:
    """So a run whose people answered with secrets is taken up, and each has its own."""
    journal = MemoryJournal()
    await run(passwords(), Case(), journal=journal, run_id=RUN)
    await resume(passwords(), RUN, journal=journal, answers={"one": "AAA", "two": "BBB"})

    with pytest.raises(MissingSecrets) as caught:
        await resume(passwords(), RUN, journal=journal, answers={"gate": True})
    result = await resume(
        passwords(), RUN, journal=journal, answers={"gate": True}, secrets={"one": "AAA", "two": "BBB"}
    )

    assert caught.value.names == ("one", "two")
    assert result.status == "completed"


# --- older runs ------------------------------------------------------------------------------------------------------


def of_before(rows: tuple[Row, ...] | Any, names: dict[str, str]) -> tuple[Row, ...]:
    """Call the secrets in rows as older versions did."""

    def older(table: dict[str, Any]) -> dict[str, Any]:
        return {**table, "name": names.get(table["name"], table["name"])} if table.get("$") == "secret" else table

    def text(data: str) -> str:
        return json.dumps(json.loads(data, object_hook=older), separators=(",", ":"))

    return tuple(chained([Row(row.seq, row.at, text(row.fact), text(without_checksum(row.decisions))) for row in rows]))


async def test_runs_of_older_versions_are_read(anyio_backend: str) -> None:
    """They called secrets anew in each value: two of one field have one name there, and get one value."""
    journal = MemoryJournal()
    await run(two_logins(), Case(), journal=journal, run_id=RUN)
    names = {"token#2": "token", "token#3": "token", "pin#2": "pin"}
    old = await copied(of_before(await journal.read(RUN), names), MemoryJournal())

    result = await resume(two_logins(), RUN, journal=old, secrets={"token": "AAA", "pin": 1}, answers={"ask": True})

    assert result.output == "AAA 1 AAA 1"


async def test_answers_of_older_versions_are_read(anyio_backend: str) -> None:
    """They called them nothing, all of them."""
    journal = MemoryJournal()
    await run(passwords(), Case(), journal=journal, run_id=RUN)
    await resume(passwords(), RUN, journal=journal, answers={"one": "AAA", "two": "BBB"})
    old = await copied(of_before(await journal.read(RUN), {"one": "", "two": ""}), MemoryJournal())

    result = await resume(passwords(), RUN, journal=old, secrets={"": "AAA"}, answers={"gate": True})

    assert result.status == "completed"


async def test_a_question_of_an_older_version_that_showed_a_secret_is_read(anyio_backend: str) -> None:
    """What stood there is not compared; all else is."""

    @node
    async def gives(state: State[Case]) -> Creds:
        return Creds(token="AAA", pin=4711)

    graph = Graph("g", START >> gives >> Human("h", "ok?", schema=bool) >> END, context=Case)
    journal = MemoryJournal()
    await run(graph, Case(), journal=journal, run_id=RUN)
    rows = [
        Row(row.seq, row.at, row.fact, without_checksum(row.decisions).replace("pin='**********'", "pin=4711"))
        for row in await journal.read(RUN)
    ]
    rows = [replace(row, decisions=row.decisions.replace("**********", "AAA")) for row in rows]
    assert "token='AAA' pin=4711" in rows[-1].decisions
    secrets = {"token": "AAA", "pin": 4711}

    result = await resume(
        graph, RUN, journal=await copied(tuple(chained(rows)), MemoryJournal()), secrets=secrets, answers={"h": True}
    )

    assert result.status == "completed"
    other = [replace(row, decisions=row.decisions.replace(" pin=", " pins=")) for row in rows]
    with pytest.raises(JournalMismatch):
        await resume(graph, RUN, journal=await copied(tuple(chained(other)), MemoryJournal()), secrets=secrets)


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_name_means_one_value() -> None:
    """In and out of pydantic's classes, whatever the value is, and beside keys that look as if they had a number."""
    names = SecretNames({})
    values: list[Any] = ["a", "b", b"a", 1, True, 1.0, (1,), (True,), [1], {"a": 1}, None]

    found = [names.name_of("x", value) for value in values]

    assert found == ["x", *(f"x#{number}" for number in range(2, len(values) + 1))]
    assert [names.name_of("x", value) for value in values] == found
    assert names.name_of("x", SecretStr("b")) == "x#2"
    assert names.name_of("y", "b") == "y"
    assert names.name_of("x#2", "c") == "x#2#2"
    assert names.name_of("x", "c") not in found


def test_what_was_given_has_its_name() -> None:
    """Also what is given by a text, and what leaves a gap before it."""
    names = SecretNames({"x#3": "c", "x": "a", "n": "4711", "x#2": SecretStr("a")})

    assert [names.name_of("x", value) for value in ("c", "a", "b")] == ["x#3", "x", "x#4"]
    assert names.name_of("n", 4711) == "n"
    assert names.name_of("n", 1) == "n#2"
