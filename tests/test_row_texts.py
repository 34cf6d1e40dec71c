"""The texts of rows: what is put together from parts made once is, letter for letter, what the general way writes."""

from __future__ import annotations

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import END, START, Context, Graph, Reason, Report, State, Update, node
from graphflow.events import Decision, EdgeName, EdgeTaken, Failure, NodeEnded, NodeReturned, NodeStarted
from graphflow.events.records import VisitStatus
from graphflow.model.ids import Segment
from graphflow.model.jsontext import compact_json
from graphflow.runtime.rows import Rows
from graphflow.runtime.stored import prepared
from tests.support import examples


class Case(Context):
    """What a node may give."""

    question: str = ""


@node
def ask(state: State[Case]) -> Report:
    """Give a report."""
    return Report(finding="It is known.")


GRAPH = Graph("texts", START >> ask >> END, context=Case)


def update(text: str) -> Update:
    """Return a change of the context."""
    return Update(question=text)


# Names may be any text: with what JSON escapes, with what paths escape, and with what is no Unicode at all.
texts = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(
    ["", 'a"b', "a/b:c~d@e%f", "\\", "\ud800"]
)
counts = st.integers(0, 3)
segments = st.builds(
    Segment, texts, st.integers(1, 12), st.lists(counts, max_size=2).map(tuple), st.none() | st.tuples(counts, counts)
)
paths = st.lists(segments, min_size=1, max_size=3).map(tuple)
edges = st.builds(
    EdgeName, st.none() | texts, st.none() | texts, st.sampled_from(["next", "choose", "handoff"]), counts
)
reasons = st.builds(Reason, code=st.just("failed"), text=st.text(), path=st.text())
failures = st.builds(Failure, texts, texts, st.just(("builtins.ValueError",)))
outcomes: st.SearchStrategy[object] = st.one_of(
    st.none(), texts, st.booleans(), st.integers(), st.builds(Report, finding=st.text().map("It: {}".format)),
    st.builds(Case, question=st.text()), st.builds(update, st.text()),
)  # fmt: skip
decisions = st.one_of(
    st.builds(NodeStarted, paths, edges),
    st.builds(NodeEnded, paths, st.sampled_from(get_args(VisitStatus)), st.none() | reasons),
    st.builds(EdgeTaken, paths, edges, counts),
)
returned = st.builds(
    NodeReturned, paths, counts, counts, outcome=outcomes, failure=st.none() | failures, cancelled=st.booleans()
)


def rows() -> Rows:
    """Return what writes rows."""
    return prepared(GRAPH).rows()


@given(st.lists(decisions, max_size=6))
@settings(max_examples=examples(500))
def test_decisions_are_written_as_the_general_way_writes_them(several: list[Decision]) -> None:
    """Stored decisions are compared as texts: two ways of writing would make a run another one."""
    quick, general = rows(), rows()

    written = quick.decisions(several)

    assert written == compact_json([general._array(body) for body in several])  # pyright: ignore[reportPrivateUsage]


hops = st.tuples(
    st.builds(NodeEnded, paths, st.sampled_from(get_args(VisitStatus)), st.none() | reasons),
    st.builds(EdgeTaken, st.just(()) | paths, edges, counts),
    st.builds(NodeStarted, paths, edges),
)


@given(st.lists(hops, max_size=3))
@settings(max_examples=examples(300))
def test_hops_are_written_as_the_general_way_writes_them(several: list[tuple[Decision, ...]]) -> None:
    """The three decisions of a hop, which are the most frequent, have a way of their own."""
    quick, general = rows(), rows()

    written = [quick.decisions(hop) for hop in several]

    assert written == [compact_json([*map(general._array, hop)]) for hop in several]  # pyright: ignore[reportPrivateUsage]


@given(st.lists(returned, max_size=4))
@settings(max_examples=examples(500))
def test_what_nodes_return_is_written_as_the_general_way_writes_it(several: list[NodeReturned]) -> None:
    """A fact is read back from its text alone."""
    quick, general = rows(), rows()

    written = [quick.storable(fact)[1] for fact in several]

    assert written == [compact_json(general._array(fact)) for fact in several]  # pyright: ignore[reportPrivateUsage]
