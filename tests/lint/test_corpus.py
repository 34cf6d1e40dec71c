"""The runs of the examples and of the corpus show what they were made to show, and nothing else."""

from typing import Any, Final

import pytest

from examples import company, repo_review, research, support_desk
from graphflow import Context, Graph
from graphflow.lint import lint
from tests.journals.make import RUNS
from tests.lint.rates import SHOWN_IN_CORPUS, codes_of, happened
from tests.support import PACKAGE

EXAMPLES: Final[list[tuple[Graph[Any], Context]]] = [
    (support_desk.graph, support_desk.Case()),
    (support_desk.chat, support_desk.Case()),
    (company.graph, company.Task()),
    (research.graph, research.Research(question=research.QUESTION)),
    (repo_review.graph, repo_review.Case(folder=str(PACKAGE / "nodes"))),
]


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_shows_what_it_was_made_for(name: str) -> None:
    """Those that end at a bound say so; no other shows anything."""
    assert codes_of(name) == SHOWN_IN_CORPUS.get(name, ())


@pytest.mark.may_block
@pytest.mark.parametrize(("graph", "context"), EXAMPLES, ids=[graph.name for graph, _ in EXAMPLES])
def test_an_example_shows_nothing(graph: Graph[Any], context: Context) -> None:
    """The examples are teams that work."""
    assert lint(graph, happened(graph, context)) == ()


def test_a_desk_that_looks_three_times_shows_it() -> None:
    """The same desk, whose billing looks an invoice up again and again."""
    graph = support_desk.support(looks=3)

    found = lint(graph, happened(graph, support_desk.Case()))

    assert [(one.code, one.where, one.turn) for one in found] == [("same-step-again", "desk/billing@0.0", 2)]
