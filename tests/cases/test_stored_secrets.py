"""Case R9 with journals: a secret stands in no row, file, event, error or text; and what `redact=` removes is gone."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from graphflow import (
    END,
    START,
    AskUser,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Human,
    Pause,
    Report,
    SqliteJournal,
    State,
    Step,
    ToolStep,
    Update,
    append,
    fork_run,
    reopen,
    replay,
    resume,
    run,
    start,
    tool,
)
from graphflow.errors import JournalError, UsageError
from graphflow.events import Event, Row
from graphflow.model.codec import MissingSecrets, secret
from graphflow.persistence.lines import event_json
from graphflow.runtime.checksums import chained
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import Talk, hold_messages
from tests.cases.stored import RUN, Calls, Plan, copied, hold_every_break

SECRETS = {
    "token": "hunter2-token-and-more",
    "key": "hunter3-key-and-more",
    "blob": "hunter4-blob-and-more",
    "pin": "hunter5-pin-and-more",
    "deep": "hunter6-deep-and-more",
}
"""The values of the secrets, by the names of their fields; each is found by its first word."""


class Login(BaseModel, frozen=True):
    """A model with a secret in it."""

    user: str = "me"
    pin: Annotated[str, secret] = ""


class Case(Context):
    """A context with secrets of every kind."""

    token: SecretStr
    key: Annotated[str, secret] = ""
    blob: SecretBytes = SecretBytes(b"")
    login: Login | None = None
    lines: Annotated[tuple[str, ...], append] = ()


class Deep(Context):
    """The context of the graph inside."""

    deep: Annotated[str, secret] = ""


def full() -> Case:
    """Make a context that holds all of the secrets."""
    return Case(
        token=SecretStr(SECRETS["token"]),
        key=SECRETS["key"],
        blob=SecretBytes(SECRETS["blob"].encode()),
        login=Login(pin=SECRETS["pin"]),
    )


def secretive(calls: Calls) -> Graph[Case]:
    """Secrets in the context, in outputs, effects, notes, briefs, answers and graphs inside; nobody says them."""

    @calls.node
    async def uses(state: State[Case], step: Step) -> Login:
        found = state.context
        assert found.token.get_secret_value() == SECRETS["token"]
        assert (found.key, found.blob.get_secret_value()) == (SECRETS["key"], SECRETS["blob"].encode())
        await calls.effect(step, "login", found.login)
        await step.sleep(1)
        return Login(user="you", pin=SECRETS["pin"])

    @calls.node
    async def gets(state: State[Case], step: Step) -> Done:
        login: Login = state.values[0]
        assert login.pin == SECRETS["pin"]
        step.emit(login)
        return Done(SecretStr(SECRETS["token"]), Update(lines=f"{len(login.pin)} letters", login=login))

    @calls.node
    async def inside(state: State[Deep]) -> str:
        return f"{len(state.context.deep)} more"

    inner = Graph("inner", START >> inside >> END, context=Deep, enter=lambda _: Deep(deep=SECRETS["deep"]))
    return Graph("secretive", START >> uses >> gets >> Human("ask", "go on?") >> inner >> END, context=Case)


def hold_no_secret(*texts: object) -> None:
    """None of the texts holds a secret, nor the repr of anything else."""
    for text in texts:
        found = text if isinstance(text, (str, bytes)) else repr(text)
        for value in SECRETS.values():
            word = value.partition("-and")[0]
            assert (word.encode() not in found) if isinstance(found, bytes) else (word not in found)


def given(*names: str) -> dict[str, object]:
    """Give some of the secrets again; all of them if none is named."""
    found: dict[str, object] = {**SECRETS, "blob": SECRETS["blob"].encode(), "output": SECRETS["token"]}
    return {name: value for name, value in found.items() if name in names or not names}


async def test_r9_a_run_with_secrets_may_be_broken_off_anywhere() -> None:
    """The secrets are given again, and the run goes on with them; no row holds one."""
    plan = Plan(make=secretive, context=full(), answers={"go on?": "yes"}, again={"secrets": given()})

    whole = await hold_every_break(plan)

    assert whole.result.status == "completed"
    assert whole.result.output == f"{len(SECRETS['deep'])} more"
    hold_no_secret(*(text for row in whole.rows for text in (row.fact, row.decisions)))
    hold_no_secret(whole.result, whole.result.context, *whole.events, *map(event_json, whole.events))


@pytest.mark.parametrize("fsync", [True, False])
async def test_r9_no_byte_of_a_file_holds_a_secret(fsync: bool, tmp_path: Path) -> None:
    """Database, log and lock files of runs that were begun, resumed, forked and deleted hold none of them."""
    journal = SqliteJournal(tmp_path / "runs.db", fsync=fsync)
    heard: list[Event] = []
    async with start(
        secretive(Calls()), full(), journal=journal, run_id=RUN, listeners=[heard.append], clock=ManualClock()
    ) as running:
        await running.result()
        hold_no_secret(running, running.questions)
    graph = secretive(Calls())
    await fork_run(graph, RUN, journal=journal, new_id="fork", secrets=given(), answers={"ask": 1}, clock=ManualClock())
    async with reopen(
        graph, RUN, journal=journal, secrets=given(), answers={"ask": 2}, listeners=[heard.append]
    ) as run2:
        events = [event async for event in run2]
        result = await run2.result()
    hold_no_secret(result, result.context, result.output, *events, *heard, *map(event_json, heard))

    for closed in (False, True):
        if closed:
            await journal.delete(RUN)
            journal.close()
        hold_no_secret(*bytes_in(tmp_path))


def bytes_in(folder: Path) -> list[object]:
    """Give the names and the bytes of all files in a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [found for path in files for found in (path.name, path.read_bytes())]


async def test_r9_what_is_missing_is_named_and_never_shown() -> None:
    """Without its secrets a run is not taken up: each missing one is named, nothing is written, and none is shown."""
    journal = MemoryJournal()
    waiting = await run(secretive(Calls()), full(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    graph = secretive(Calls())

    for names in ((), ("token",), ("token", "key", "blob")):
        for act in (resume, replay, fork_run):
            with pytest.raises(MissingSecrets) as caught:
                await act(graph, RUN, journal=journal, secrets=given(*names) if names else None)
            missing = {"token", "key", "blob", "pin"} - set(names)
            assert missing & set(caught.value.names)
            assert not set(names) & set(caught.value.names)
            hold_no_secret(str(caught.value), caught.value)
    assert await journal.read(RUN) == rows

    with pytest.raises(UsageError, match="a secret that was given does not fit") as wrong:
        await resume(graph, RUN, journal=journal, secrets={**given(), "blob": object()})
    hold_no_secret(str(wrong.value), wrong.value, wrong.value.__cause__)
    assert await resume(graph, RUN, journal=journal, secrets=given()) == waiting


async def test_r9_a_fold_of_what_is_stored_shows_no_secret() -> None:
    """Neither rows, nor errors about damaged rows, nor the texts of results after a replay show one.

    The damaged rows are given checksums that fit, so that what they say is read.
    """
    journal = MemoryJournal()
    await run(secretive(Calls()), full(), journal=journal, run_id=RUN, clock=ManualClock())
    rows = await journal.read(RUN)
    graph = secretive(Calls())
    result = await replay(graph, RUN, journal=journal, secrets=given())
    hold_no_secret(result, result.context, result.context.model_dump_json(), graph, journal, *rows)

    for at, row in enumerate(rows):
        damaged = Row(row.seq, row.at, row.fact.replace('"secret"', '"secre"'), row.decisions.replace("e", "E"))
        store = await copied(chained((*rows[:at], damaged, *rows[at + 1 :])), MemoryJournal())
        try:
            again = await replay(graph, RUN, journal=store, secrets=given(), changed="compatible")
        except JournalError as error:
            cause: BaseException | None = error
        else:
            assert again == result  # nobody needs that value any more
            continue
        while cause is not None:
            hold_no_secret(str(cause), cause)
            cause = cause.__cause__ or cause.__context__


# --- redaction -------------------------------------------------------------------------------------------------------

CARD = "4111-1111"


def masked(text: str) -> str:
    """Take the card's number out of a text."""
    return text.replace(CARD, "[card]")


def leaking(calls: Calls) -> Graph[Talk]:
    """A graph into which the number of a card comes from everywhere."""

    @tool
    async def charge(card: str, step: ToolStep) -> str:
        """Charge."""
        calls.tool(step)
        step.emit({"charging": (card, CARD)})
        return f"charged {card} {CARD}"

    @tool
    async def broken(step: ToolStep) -> str:
        """Break."""
        calls.tool(step)
        msg = f"declined {CARD}"
        raise ValueError(msg)

    @calls.node
    async def body(state: State[Talk], step: Step) -> Any:
        assert CARD not in state.context.question
        found = await calls.effect(step, "read", {"card": [CARD], "n": 1})
        assert found == {"card": ["[card]"], "n": 1}
        step.emit(f"I saw {CARD}")
        text = ""
        try:
            await calls.effect(step, "fail", LookupError(f"no {CARD}"))
        except LookupError as error:
            text = str(error)
        await step.sleep(1)
        return Done((f"{CARD} {text}",), Update(question=f"what of {CARD}?"))

    @calls.node(max_turns=3)
    async def boss(state: State[Talk]) -> Any:
        if state.turn == 0:
            assert CARD not in str(state.inbox)
            return Delegate(Call("works", f"check {CARD}"), Call("fails", "?"))
        if state.turn == 1:
            assert CARD not in str(state.inbox)
            return Pause(f"is {CARD} yours?")
        return str(state.values)

    works = calls.node(lambda state: Report(finding=f"{CARD} is fine"), name="works")
    fails = calls.node(lambda state: _raises(), name="fails")
    agent = calls.agent(
        "agent",
        [call("charge", card=CARD), call("broken"), call("ask_user", question=f"which of {CARD}?")],
        f"I charged {CARD}",
        tools=[charge, broken, AskUser()],
        history="full",
    )
    handler = calls.node(lambda state: str(state.values), name="handler")
    bad = calls.node(lambda state: _raises(), name="bad")
    return Graph(
        "leaking",
        START >> body >> boss >> agent >> bad >> END,
        bad.on_error(handler),
        handler >> END,
        boss.delegates(works, fails, max_hops=1),
        context=Talk,
        max_depth=1,
    )


def _raises() -> Any:
    msg = f"it broke at {CARD}"
    raise OSError(msg)


ANSWERS = {"is [card] yours?": f"yes, {CARD}", "which of [card]?": f"{CARD}, of course"}


async def test_r9_what_is_redacted_is_in_no_row_event_thread_or_result() -> None:
    """Context, effects, errors, emits, briefs, reports, replies, tools, answers: the text is gone before all else."""
    heard: list[Event] = []
    plan = Plan(
        make=leaking,
        context=Talk(question=f"my card is {CARD}"),
        answers=ANSWERS,
        options={"redact": masked, "listeners": [heard.append]},
        again={"redact": masked, "listeners": [heard.append]},
    )

    whole = await hold_every_break(plan)

    assert whole.result.status in {"completed", "partial"}
    assert "[card]" in str(whole.result.output)
    hold_messages(whole.result.thread)
    things: list[Any] = [whole.result, whole.result.output, whole.result.context, whole.result.thread]
    things += [whole.result.failures, whole.result.report, *whole.events, *heard, *map(event_json, heard)]
    for thing in (*things, *(text for row in whole.rows for text in (row.fact, row.decisions))):
        assert CARD not in (thing if isinstance(thing, str) else repr(thing))


async def test_r9_a_redaction_that_fails_ends_the_run_and_shows_nothing() -> None:
    """A function that raises, or returns no text, is said so; the text that it was given stands nowhere."""

    def raises(text: str) -> str:
        raise LookupError(text) if CARD in text else ValueError

    def nothing(_: str) -> None:
        """Give nothing."""

    wrong: list[Any] = [raises, nothing, str.encode]
    for redact in wrong:
        journal = MemoryJournal()
        with pytest.raises(UsageError, match="redact="):
            await run(leaking(Calls()), Talk(question=CARD), journal=journal, run_id=RUN, redact=redact)
        assert not await journal.runs()
