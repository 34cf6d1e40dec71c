"""Reading rows back: what has a shorter way of its own is read as the general way reads it, and refused as there."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphflow.errors import JournalDamaged
from graphflow.events import Emitted, NodeReturned, Row
from graphflow.model.codec import Codec, Kinds, MissingSecrets, Unreadable
from graphflow.model.exact import same
from graphflow.model.ids import parse_path
from graphflow.model.jsontext import compact_json, load_json
from graphflow.persistence.storing import row_of, rows_from
from graphflow.runtime.checksums import checksum, fitting, with_checksum, without_checksum
from graphflow.runtime.recall import Recall
from graphflow.runtime.rows import _FACTS, Rows, _data
from tests.support import examples
from tests.test_codec_mutants import mutated
from tests.test_codec_plain import Words
from tests.test_row_texts import returned, rows

words = st.builds(
    Words,
    text=st.text(st.characters(exclude_categories=()), max_size=4),
    count=st.integers() | st.just(1 << 20_000),
    sure=st.none() | st.booleans(),
)


def read(codec: Codec, data: Any) -> Any:
    """Return what data say, or why they say nothing."""
    try:
        return codec.decode(data)
    except (Unreadable, MissingSecrets) as error:
        return str(error)


@given(words, st.integers(0, 2**32), st.integers(0, 2))
@settings(max_examples=examples(2_000))
def test_a_plain_model_is_read_as_the_first_of_its_class(value: Words, seed: int, changes: int) -> None:
    """The first model of a class is read field by field, the next ones at once."""
    first, next_one = Codec(Kinds([Words])), Codec(Kinds([Words]))
    next_one.decode(next_one.encode(Words(text="a"), "it"))
    rng = random.Random(seed)
    data = first.encode(value, "it")
    for _ in range(changes):
        data = mutated(data, rng)

    found = read(next_one, data)

    assert same(found, read(first, data))


def fact_in(reader: Rows, row: Row, *, generally: bool) -> Any:
    """Return the fact of a row, or why it has none."""
    try:
        return reader._read("run", row, _data("run", row, row.fact), _FACTS) if generally else reader.fact("run", row)
    except (JournalDamaged, MissingSecrets) as error:
        return str(error)


@given(returned, st.integers(0, 2**32), st.integers(0, 2))
@settings(max_examples=examples(2_000))
def test_what_nodes_return_is_read_as_the_general_way_reads_it(fact: NodeReturned, seed: int, changes: int) -> None:
    """Most rows of most runs say that a node has returned: they have a way of their own."""
    data = load_json(rows().storable(fact)[1])
    rng = random.Random(seed)
    for _ in range(changes):
        data = mutated(data, rng)
    assume(type(data) is list)
    try:
        row = Row(0, 0.0, compact_json(data), "[]")
    except ValueError:  # what JSON cannot say stands in no row
        assume(False)
        raise

    found = fact_in(rows(), row, generally=False)

    general = fact_in(rows(), row, generally=True)
    assert found == general
    assert not isinstance(found, NodeReturned) or same(found.outcome, general.outcome)


HEADS = ["[", "[]", '[["a"]', '[["a"],', '[["a"], ', '[["a"],,', '[["a"] ,', '[["a"]]', '["a",', "[]],"]


@given(st.sampled_from(HEADS), st.sampled_from(["", ",", ", "]), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_checksum_fits_where_it_is_written_as_it_is_written(
    head: str, between: str, whole: bool, before: int
) -> None:
    """Behind the last decision stands a comma, and perhaps a space, as other writers of JSON have it; nothing else."""
    begun = head + between
    entry = checksum(before, 3, 0.5, "[]", f"{begun[:-1] if whole else begun.rstrip(', ')}]")
    row = Row(3, 0.5, "[]", f'{begun}"{entry:08x}"]')
    plain = without_checksum(row.decisions)
    right = checksum(before, row.seq, row.at, row.fact, plain)
    texts = {with_checksum(plain, right)}
    if len(plain) > len("[]"):
        texts.add(f'{plain[:-1]}, "{right:08x}"]')

    try:
        found = fitting("run", row, before)
    except JournalDamaged:
        found = None

    assert found == (right if row.decisions in texts else None)


columns = st.tuples(
    st.integers(0, 9), st.floats() | st.integers() | st.none(), st.text() | st.binary(), st.text() | st.none()
)


@given(st.lists(columns | st.tuples(st.text(), st.floats(), st.text(), st.text()), max_size=3))
def test_rows_are_taken_as_each_of_them_is(found: list[tuple[Any, ...]]) -> None:
    """Whether rows have the right columns is looked at for all of them, and said of the one that has not."""

    def each(together: bool) -> Any:
        try:
            return repr(rows_from("run", found) if together else tuple(row_of("run", *parts) for parts in found))
        except JournalDamaged as error:
            return str(error)

    taken = each(together=True)

    assert taken == each(together=False)


def test_what_a_body_said_before_it_asked_for_anything_is_remembered() -> None:
    """A body that is entered again says it again; it is recorded once."""
    recall, path = Recall(), parse_path("desk")

    recall.note(Emitted(path, 0, "begun"), ())
    recall.note(Emitted(path, 0, "going on"), ())

    memory = recall.take(path, 0, 0)
    assert memory is not None
    assert (memory.turn, memory.attempt, memory.emitted, memory.asked) == (0, 0, 2, {})
