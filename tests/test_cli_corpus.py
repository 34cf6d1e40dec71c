"""The corpus of stored runs is folded again: a change of what a run decides, or of how it is stored, shows here."""

import dataclasses
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow import Budget, MemoryJournal, fork_run, reopen, replay, resume
from graphflow.cli import main
from graphflow.errors import GraphflowError, JournalDamaged, NodeFailed
from graphflow.events import EDITION, FORMAT, Decision, Fact, Row, kind_of
from graphflow.model.jsontext import load_json
from graphflow.persistence.lines import read_run, run_lines
from graphflow.runtime import rows as rows_module
from graphflow.runtime.checksums import chained, without_checksum
from graphflow.runtime.rows import upgraded
from graphflow.testing import fold_again
from graphflow.testing.stored import read_journal, replayed, rows_in
from tests.journals.make import FOLDER, OLDER, RUNS, made
from tests.test_cli_runs import Printed

HOW: Final = (
    "The present code makes something else of a run that an earlier one had stored, so such runs cannot be gone on "
    "with. If that is not meant, it is a bug. If it is meant, write the files again (python -m tests.journals.make), "
    "look at their difference, and say in changelog.d what becomes of stored runs. If the form of rows has changed, "
    "raise FORMAT in graphflow/events and add to MIGRATIONS in graphflow/runtime/rows.py instead, so that older runs "
    "can still be read."
)


def path_of(name: str) -> Path:
    """The file of a run of the corpus."""
    return FOLDER / f"{name}.jsonl"


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_folds_as_it_did(name: str) -> None:
    """Every decision is drawn again from the recorded facts, and the end is the same."""
    run, rows = rows_in(path_of(name))

    try:
        fold = fold_again(RUNS[name].graph, rows)
    except GraphflowError as error:
        pytest.fail(f"{name}: {error}\n\n{HOW}")

    assert run == name
    assert fold.ended is not None
    assert fold.ended.status == RUNS[name].status, HOW


@pytest.mark.may_block
@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_is_shown_without_its_graph(name: str, tmp_path: Path, capsys: Printed) -> None:
    """As text, with its tree and its boundaries, whatever is in it."""
    db = str(tmp_path / "runs.db")
    assert main(["runs", "import", str(path_of(name)), "--db", db]) == 0

    codes = [main(["runs", "show", name, "--db", db, *more]) for more in ([], ["--boundaries"], ["--events"])]

    assert codes == [0, 0, 0]
    assert RUNS[name].status in capsys.readouterr().out


def test_the_corpus_is_what_the_script_makes() -> None:
    """No file without a run, and no run without a file."""
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == sorted(RUNS)


@pytest.mark.parametrize("name", RUNS)
async def test_the_script_makes_runs_that_fold(name: str) -> None:
    """What it would write today is as good as what is there: of the same graph, with the same end."""
    rows = await made(name)

    fold = fold_again(RUNS[name].graph, rows)

    assert fold.ended is not None
    assert fold.ended.status == RUNS[name].status
    assert load_json(rows[0].fact)[1] == name


@pytest.mark.parametrize("name", RUNS)
def test_each_file_is_of_the_format_that_is_said_of_it(name: str) -> None:
    """Those that are kept of an older format are not written again by accident."""
    assert f'["run_started/{OLDER.get(name, FORMAT)}",' in path_of(name).read_text("utf-8")


async def test_a_stored_run_of_the_corpus_is_gone_on_with() -> None:
    """One that waits is answered, one that stood still gets more."""
    journal = read_journal(path_of("chat_waiting"), path_of("support_desk_exhausted"))
    waiting = await replay(RUNS["chat_waiting"].graph, "chat_waiting", journal=journal, changed="compatible")
    answers = {asked.id: "We call you back." for asked in waiting.questions}

    answered = await resume(
        RUNS["chat_waiting"].graph, "chat_waiting", journal=journal, answers=answers, changed="compatible"
    )

    assert (waiting.status, len(answers)) == ("waiting", 1)
    assert (answered.status, answered.output) == ("completed", "We call you back.")

    graph, name = RUNS["support_desk_exhausted"].graph, "support_desk_exhausted"
    stood = await replay(graph, name, journal=journal, changed="compatible")
    more = await resume(graph, name, journal=journal, budget=Budget(model_calls=9), changed="compatible")

    assert (stood.status, stood.reason and stood.reason.code) == ("exhausted", "model_calls")
    assert (more.status, bool(more.output)) == ("partial", True)  # two of the team had been refused by then
    assert (stood.spent.total.model_calls, (more.spent.total.model_calls or 0) > 4) == (4, True)


async def test_a_run_of_an_older_edition_is_decided_as_it_was() -> None:
    """It says of no bound on calls that it refused, and takes a thought for an answer; what begins today does not."""
    journal = read_journal(path_of("refused"))

    before = await replay(RUNS["refused"].graph, "refused", journal=journal, changed="compatible")
    now = fold_again(RUNS["refused"].graph, await made("refused"))

    assert (before.status, before.output, before.refused) == ("completed", "All is paid.", ())
    assert load_json(stored("refused")[0].fact)[-1] != EDITION
    said = [reason.code for reason in now.refusals]
    assert said == ["max_calls", "max_calls", "transfers", "max_tool_calls", "max_tool_calls"]


@pytest.mark.parametrize("seq", range(0, 90, 6))
async def test_a_run_of_an_older_edition_is_gone_on_with_as_it_was(seq: int) -> None:
    """Broken off anywhere, it goes on to the end that it had: an edition is that of a run and not of a session."""
    rows = stored("refused")
    kept = [row for row in rows if row.seq <= seq]
    journal = MemoryJournal()
    writer = await journal.claim("refused")
    for row in kept:
        await writer.append(row)
    await writer.release()

    async with reopen(RUNS["refused"].graph, "refused", journal=journal, changed="compatible") as run:
        result = await run.result()
        while result.status == "waiting":
            run.answer(result.questions[0].id, "no")
            result = await run.result()

    assert (result.status, result.output, result.refused) == ("completed", "All is paid.", ())
    assert await replay(RUNS["refused"].graph, "refused", journal=journal, changed="compatible") == result


@pytest.mark.may_block
def test_the_error_that_ended_a_run_is_told() -> None:
    """By the type and the text that were recorded."""
    with pytest.raises(NodeFailed, match="no answer to 1 messages") as caught:
        replayed(RUNS["silent_failed"].graph, path_of("silent_failed"))

    assert (caught.value.path, caught.value.error_type) == ("desk", "ConnectionError")


def bodies_of(row: Row) -> list[Any]:
    """The fact of a row and its decisions, as arrays."""
    return [load_json(row.fact), *load_json(without_checksum(row.decisions))]


def test_the_corpus_holds_most_of_what_can_happen() -> None:
    """Facts and decisions of these kinds alone are in no file of it, so that nothing is missing by accident."""
    seen: set[str] = set()
    for name in RUNS:
        for row in rows_in(path_of(name))[1]:
            seen.update(str(body[0]).partition("/")[0] for body in bodies_of(row))

    kinds = {kind_of(kind) for kind in (*Fact.__args__, *Decision.__args__)}
    assert kinds - seen == {"hook_answered", "warned", "detected", "granted"}


# --- other formats ---------------------------------------------------------------------------------------------------


def as_format(rows: tuple[Row, ...], version: int) -> tuple[Row, ...]:
    """Rows that say of themselves that they are of some format."""
    fact = rows[0].fact.replace(f"run_started/{FORMAT}", f"run_started/{version}")
    found = (dataclasses.replace(rows[0], fact=fact), *rows[1:])
    if version >= 2:
        return tuple(chained(found))
    return tuple(dataclasses.replace(row, decisions=without_checksum(row.decisions)) for row in found)


def stored(name: str) -> tuple[Row, ...]:
    """The rows of a run of the corpus."""
    return tuple(rows_in(path_of(name))[1])


def written(path: Path, name: str, rows: tuple[Row, ...]) -> Path:
    """A file with rows as they are."""
    path.write_text("".join(f"{line}\n" for line in run_lines(name, rows)), "utf-8")
    return path


@pytest.mark.may_block
def test_a_run_of_a_newer_format_is_refused(tmp_path: Path, capsys: Printed) -> None:
    """With the formats in question; nothing is stored."""
    file = written(tmp_path / "run.jsonl", "trip", as_format(stored("trip"), FORMAT + 1))

    with pytest.raises(JournalDamaged, match="it is of format 3, and this version of graphflow reads formats up to 2"):
        rows_in(file)
    code = main(["runs", "import", str(file), "--db", str(tmp_path / "runs.db")])

    assert code == 5
    assert "it is of format 3" in capsys.readouterr().err
    assert not (tmp_path / "runs.db").exists()


def older(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Rows of a format before the first one, in which an edge was called a way."""
    first, *rest = as_format(rows, 0)
    return tuple(
        dataclasses.replace(row, decisions=row.decisions.replace('"edge_taken"', '"way_taken"'))
        for row in (first, *rest)
    )


def migrated(fact: list[Any], decisions: list[Any]) -> tuple[list[Any], list[Any]]:
    """What makes a row of that format one of the first."""
    if fact[0] == "run_started/0":
        fact = ["run_started/1", *fact[1:]]
    return fact, [["edge_taken", *body[1:]] if body[0] == "way_taken" else body for body in decisions]


@pytest.mark.may_block
def test_a_run_of_an_older_format_passes_through_its_migration(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read, shown, listed and replayed as any other; without the migration it is refused."""
    rows = older(stored("trip"))
    file = written(tmp_path / "run.jsonl", "trip", rows)
    with pytest.raises(JournalDamaged, match="it is of format 0"):
        rows_in(file)
    monkeypatch.setitem(rows_module.MIGRATIONS, 0, migrated)
    db = str(tmp_path / "runs.db")

    codes = [main(["runs", "import", str(file), "--db", db]), main(["runs", "show", "trip", "--db", db, "--json"])]

    assert codes == [0, 0]
    assert fold_again(RUNS["trip"].graph, rows_in(file)[1]).ended is not None
    assert replayed(RUNS["trip"].graph, file).output == "ULM, home, KIEL (sunny, on time, much to see)"


async def kept(name: str) -> MemoryJournal:
    """A journal that holds a run of the corpus in the format in which its file is."""
    with path_of(name).open(encoding="utf-8", newline="\n") as file:
        run, rows = read_run(file)
    journal = MemoryJournal()
    writer = await journal.claim(run)
    for row in rows:
        await writer.append(row)
    await writer.release()
    return journal


@pytest.mark.may_block
async def test_a_run_without_checksums_is_gone_on_with_and_has_them_from_then_on() -> None:
    """Its rows stay as they were stored; the first checksum of the new session covers them too."""
    name, graph = "chat_waiting", RUNS["chat_waiting"].graph
    journal = await kept(name)
    before = await journal.read(name)
    waiting = await replay(graph, name, journal=journal, changed="compatible")
    answers = {asked.id: "We call you back." for asked in waiting.questions}

    answered = await resume(graph, name, journal=journal, answers=answers, changed="compatible")

    rows = await journal.read(name)
    behind = rows[len(before) :]
    assert (answered.status, answered.output) == ("completed", "We call you back.")
    assert rows[: len(before)] == before
    assert behind[0].fact.startswith('["session_started/2",')
    assert all(row.decisions.endswith('"]') is (row in behind) for row in rows)
    assert list(upgraded(name, rows))[len(before) :] == list(behind)
    assert await replay(graph, name, journal=journal, changed="compatible") == answered
    assert read_run(run_lines(name, rows)) == (name, rows)
    late = dataclasses.replace(before[-1], at=before[-1].at + 1e-9)
    with pytest.raises(JournalDamaged, match=f"record {behind[0].seq} cannot be read: its checksum does not fit"):
        upgraded(name, [*before[:-1], late, *behind])


@pytest.mark.may_block
async def test_a_fork_of_a_run_without_checksums_has_them() -> None:
    """It is written today."""
    name, graph = "support_desk_exhausted", RUNS["support_desk_exhausted"].graph
    journal = await kept(name)

    forked = await fork_run(graph, name, journal=journal, new_id="other", changed="compatible")

    rows = await journal.read("other")
    assert forked.status == "exhausted"
    assert chained(rows) == list(upgraded("other", rows)) == list(rows)


def test_a_session_of_an_older_format_follows_none_of_a_newer() -> None:
    """No version writes that; what says so has been changed, perhaps to have its checksums not looked at."""
    rows = list(rows_in(path_of("support_desk_with_more"))[1])
    place = next(place for place, row in enumerate(rows) if row.fact.startswith('["session_started/'))
    for at in range(place, len(rows)):
        fact = rows[at].fact.replace("session_started/2", "session_started/1")
        rows[at] = dataclasses.replace(rows[at], fact=fact, decisions=without_checksum(rows[at].decisions))

    with pytest.raises(JournalDamaged, match="it is of format 1, and what stands before it of format 2"):
        upgraded("support_desk_with_more", rows)
