"""The checksums of stored rows: what was changed is found, wherever a run is read, and what was not is left alone."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Graph,
    State,
    Step,
    fork_run,
    node,
    reopen,
    replay,
    resume,
    run,
)
from graphflow.cli.stored import read_rows
from graphflow.errors import JournalDamaged
from graphflow.events import Row
from graphflow.persistence.lines import read_run, run_lines
from graphflow.runtime.checksums import chained, with_checksum, without_checksum
from graphflow.runtime.rows import upgraded
from graphflow.testing import ManualClock, MemoryJournal, fold_again, read_journal, records_of, replayed
from tests.support import examples

RUN: Final = "a run"


class Order(Context):
    """What is ordered."""

    item: str = "tea"


async def price(item: str) -> object:
    """Say what something costs."""
    return item, 1250


@node
async def ask(state: State[Order], step: Step) -> object:
    """Ask for a price, and say something."""
    step.emit("asking")
    return await step.effect("price", price, state.context.item)


@node
async def tell(state: State[Order]) -> str:
    """Tell it."""
    return f"told {state.inbox[0].value}"


GRAPH: Final = Graph("orders", START >> ask >> tell >> END, context=Order, budget=Budget(node_runs=2))


async def stored(context: Order, journal: MemoryJournal) -> Sequence[Row]:
    """The rows of a run."""
    await run(GRAPH, context, journal=journal, run_id=RUN, clock=ManualClock())
    return await journal.read(RUN)


async def holding(rows: Sequence[Row]) -> MemoryJournal:
    """A journal with rows."""
    journal = MemoryJournal()
    writer = await journal.claim(RUN)
    for row in rows:
        await writer.append(row)
    await writer.release()
    return journal


def overcharged(rows: Sequence[Row]) -> tuple[int, list[Row]]:
    """Rows in which one number is another, which no decision names; and where that is."""
    place = next(place for place, row in enumerate(rows) if "1250" in row.fact)
    wrong = dataclasses.replace(rows[place], fact=rows[place].fact.replace("1250", "1260"))
    return place, [*rows[:place], wrong, *rows[place + 1 :]]


TEXT: Final = st.text(st.characters(exclude_categories=()), max_size=30)


@st.composite
def any_rows(draw: st.DrawFn, least: int = 1) -> list[Row]:
    """Rows without checksums, of any texts."""
    rows: list[Row] = []
    for seq in range(draw(st.integers(least, 5))):
        decisions = [[text] for text in draw(st.lists(TEXT, max_size=2))]
        rows.append(Row(seq * 7, draw(st.floats(0, 1e9)), json.dumps([draw(TEXT)]), json.dumps(decisions)))
    return rows


def started(rows: Sequence[Row]) -> list[Row]:
    """Rows that begin as those of a run do."""
    return [dataclasses.replace(rows[0], fact=f'["run_started/2",{rows[0].fact}]'), *rows[1:]]


@settings(max_examples=examples(1000))
@given(any_rows())
def test_a_checksum_is_put_behind_the_decisions_and_taken_off_again(rows: list[Row]) -> None:
    """All else stays as it was; to chain rows again changes nothing; and they fit."""
    whole = chained(started(rows))

    assert [without_checksum(row.decisions) for row in whole] == [row.decisions for row in rows]
    assert [json.loads(row.decisions)[:-1] for row in whole] == [json.loads(row.decisions) for row in rows]
    assert all(len(row.decisions) <= len(bare.decisions) + 11 for row, bare in zip(whole, rows, strict=True))
    assert chained(whole) == whole
    assert upgraded(RUN, whole) == whole


@settings(max_examples=examples(2000))
@given(any_rows(), st.data())
def test_whatever_is_changed_in_a_row_is_found(rows: list[Row], data: st.DataObject) -> None:
    """A character of its texts, its number or its time, whatever it says; the error names where, and what to do."""
    whole = chained(started(rows))
    place = data.draw(st.integers(0, len(whole) - 1))
    row, column = whole[place], data.draw(st.sampled_from(["seq", "at", "fact", "decisions"]))
    if column == "seq":
        wrong = dataclasses.replace(row, seq=row.seq + data.draw(st.integers(1, 2**63)))
    elif column == "at":
        wrong = dataclasses.replace(row, at=data.draw(st.floats().filter(lambda found: repr(found) != repr(row.at))))
    else:
        text = row.fact if column == "fact" else row.decisions
        cut = data.draw(st.integers(len('["run_started/2') if column == "fact" and not place else 0, len(text) - 1))
        other = data.draw(TEXT.filter(lambda found: found != text[cut]))
        text = text[:cut] + other + text[cut + 1 :]
        wrong = dataclasses.replace(row, fact=text) if column == "fact" else dataclasses.replace(row, decisions=text)

    with pytest.raises(JournalDamaged) as caught:
        upgraded(RUN, [*whole[:place], wrong, *whole[place + 1 :]])

    assert (caught.value.run, caught.value.seq) == (RUN, wrong.seq)
    assert "what stands before that record can be read, and forked from" in str(caught.value)


@settings(max_examples=examples(500))
@given(any_rows(2), st.data())
def test_rows_that_were_moved_doubled_or_taken_out_are_found(rows: list[Row], data: st.DataObject) -> None:
    """But for those at the end: a run without them is one that was broken off."""
    whole = chained(started(rows))
    place = data.draw(st.integers(1, len(whole) - 1))
    out, doubled = [*whole[:place], *whole[place + 1 :]], [*whole[: place + 1], *whole[place:]]
    moved = [*whole[: place - 1], whole[place], whole[place - 1], *whole[place + 1 :]]

    for wrong in (doubled, moved, *([out] if place < len(whole) - 1 else [])):
        with pytest.raises(JournalDamaged):
            upgraded(RUN, wrong)

    assert upgraded(RUN, whole[:place]) == whole[:place]


def test_a_checksum_is_known_by_its_place() -> None:
    """Whether JSON is written with blanks or without."""
    assert without_checksum('[["a", 1], "0123abcd"]') == '[["a", 1]]'
    assert without_checksum('["0123abcd"]') == "[]"
    assert with_checksum("[]", 2**32 - 1) == '["ffffffff"]'


@pytest.mark.may_block
async def test_a_damaged_run_is_refused_alike_wherever_it_is_read(tmp_path: Path) -> None:
    """By the row, the rule and the next step, and before anything is done; what stands before it is forked from."""
    place, wrong = overcharged(await stored(Order(), MemoryJournal()))
    journal, seq = await holding(wrong), wrong[place].seq
    file = tmp_path / "run.jsonl"
    file.write_text("".join(f"{line}\n" for line in run_lines(RUN, wrong)), "utf-8")
    complaint = f"the stored run 'a run', record {seq} cannot be read: its checksum does not fit"

    for act in (resume, replay, fork_run):
        with pytest.raises(JournalDamaged, match=complaint):
            await act(GRAPH, RUN, journal=journal)
    with pytest.raises(JournalDamaged, match=complaint):
        async with reopen(GRAPH, RUN, journal=journal):
            pass
    for look in (lambda: read_rows(RUN, wrong), lambda: read_journal(file), lambda: replayed(GRAPH, file)):
        with pytest.raises(JournalDamaged, match=complaint):
            look()
    for fold in (fold_again, records_of):
        with pytest.raises(JournalDamaged, match=f"record {seq} cannot be read: its checksum does not fit"):
            fold(GRAPH, wrong)
    forked = await fork_run(GRAPH, RUN, journal=journal, at=seq - 1, clock=ManualClock())

    assert await journal.read(RUN) == tuple(wrong)
    assert "1250" in str(forked.output)
    assert (await replay(GRAPH, forked.run_id, journal=journal)).output == forked.output


async def test_the_same_change_was_another_run_before_there_were_checksums() -> None:
    """No decision names the number, so with checksums that fit it is a run as good as any."""
    rows = await stored(Order(), MemoryJournal())
    wrong = [dataclasses.replace(row, fact=row.fact.replace("1250", "1260")) for row in rows]

    result = await replay(GRAPH, RUN, journal=await holding(chained(wrong)))

    assert "1260" in str(result.output)


@pytest.mark.parametrize("item", ["tea", "é \u2028 \x7f", "half \ud800 of a pair", "nul \0", '"]'])
async def test_a_run_fits_after_an_export_and_an_import(item: str) -> None:
    """Whatever letters it holds: what a file says is written as it was."""
    journal = MemoryJournal()
    rows = await stored(Order(item=item), journal)
    result = await replay(GRAPH, RUN, journal=journal)

    run_id, again = read_run([*run_lines(RUN, rows)])

    assert (run_id, list(again)) == (RUN, list(rows))
    assert await replay(GRAPH, RUN, journal=await holding(again)) == result
