"""A citation pass: claims get the ids of what supports them, and the text stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Context, Graph, Report, State, node, run_sync
from graphflow.errors import UsageError
from graphflow.graphs.conversation import joint_report, said_by
from graphflow.graphs.strategies import parallel
from graphflow.graphs.teams import Cited, CitedReport, citation_pass
from graphflow.testing import ScriptedModel
from tests.support import examples
from tests.teams.helpers import agent, played, problems, reports, says

TEXT = "INV-311 was paid twice. The parcel is lost."
CITED = "INV-311 was paid twice [INV-311]. The parcel is lost [P-2]."


def written(**fields: Any) -> Any:
    """An author of two claims, with the evidence for them."""
    return reports("author", **{"finding": TEXT, "evidence": ("INV-311", "P-2"), **fields})


def passing(*answers: str, **options: Any) -> tuple[Graph[Cited], ScriptedModel]:
    """A pass in which the one who cites gives some answers."""
    model = ScriptedModel(*answers)
    return citation_pass("cite", written(), agent("citer", model), **options), model


async def test_each_claim_gets_the_id_of_what_supports_it() -> None:
    """The report has the text with its markers, the ids that it cites, and the coverage."""
    graph, model = passing(CITED)

    found = await played(graph)

    report = found.result.output
    assert isinstance(report, CitedReport)
    assert (report.status, report.finding, report.evidence) == ("done", CITED, ("INV-311", "P-2"))
    assert (report.coverage, report.claims, report.uncited, report.dangling) == (1.0, 2, (), ())
    told = model.requests[0].messages[-1].text
    assert TEXT in told
    assert "[INV-311], [P-2]" in told
    assert problems(graph) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(CITED.replace("twice", "thrice"), "the text was changed", id="changed"),
        pytest.param(f"Here it is: {CITED}", "the text was changed", id="chatty"),
        pytest.param("INV-311 was paid twice [INV-311].", "the text was changed", id="shortened"),
        pytest.param(TEXT.replace(".", " [X-9]."), "stand in no report: X-9", id="dangling"),
        pytest.param("INV-311 was paid twice [INV-311]. The parcel is lost.", "The parcel is lost.", id="uncited"),
    ],
)  # fmt: skip
async def test_what_is_wrong_goes_back_to_who_cites(wrong: str, said: str) -> None:
    """The answer says what was wrong with the one before, and the text is given again as it was."""
    graph, model = passing(wrong, CITED)

    found = await played(graph)

    assert (found.result.status, found.result.output.finding) == ("completed", CITED)
    told = model.requests[1].messages[-1].text
    assert said in told
    assert f"The text:\n{TEXT}" in told


@pytest.mark.parametrize("repairs", [0, 1, 3])
async def test_a_pass_that_stays_wrong_is_exhausted(repairs: int) -> None:
    """There is no output, and the text in the context is the one that was written."""
    graph, model = passing(*["It was paid thrice [INV-311]."] * (repairs + 1), max_repairs=repairs)

    found = await played(graph)

    assert (found.result.status, found.result.output) == ("exhausted", None)
    assert found.result.context.text == TEXT
    assert "the text was changed" in found.result.context.problems[0]
    model.assert_complete()


async def test_fewer_claims_may_be_enough() -> None:
    """With `least=0.5` one of two will do, and the report still lists the other."""
    graph, _ = passing("INV-311 was paid twice [INV-311]. The parcel is lost.", least=0.5)

    found = await played(graph)

    assert (found.result.status, found.result.output.status) == ("completed", "done")
    assert (found.result.output.coverage, found.result.output.uncited) == (0.5, ("The parcel is lost.",))


async def test_without_somebody_who_cites_the_text_is_checked_as_it_is() -> None:
    """What is missing makes the report partial; the text is the author's."""
    good = await played(citation_pass("cite", written(finding=CITED)))
    bad = await played(citation_pass("cite", written(finding=CITED.replace("P-2", "P-3"))))
    silent = await played(citation_pass("cite", says("author", " ")))

    assert (good.result.output.status, good.result.output.coverage) == ("done", 1.0)
    assert (bad.result.output.status, bad.result.output.dangling) == ("partial", ("P-3",))
    assert bad.result.output.evidence == ("INV-311",)
    assert (silent.result.output.status, silent.result.output.reason.text) == ("partial", "there is no text.")


async def test_ids_count_that_stand_in_a_report_the_text_is_made_from() -> None:
    """Those of a team's members do, and those that are given; no others."""
    member = said_by("member", Report(finding="Lost.", evidence=("P-2",)))
    team = says("author", joint_report([member]).model_copy(update={"finding": CITED, "evidence": ()}))

    found = await played(citation_pass("cite", team, evidence=["INV-311"]))

    assert (found.result.output.dangling, found.result.output.coverage) == ((), 1.0)


async def test_a_whole_team_is_cited() -> None:
    """The joint report of members side by side is a text like any other."""
    team = parallel("team", reports("ledger", finding="INV-311 was paid twice [INV-311].", evidence=("INV-311",)),
                    reports("depot", finding="The parcel is lost [P-2].", evidence=("P-2",)))  # fmt: skip

    found = await played(citation_pass("cite", team))

    assert (found.result.output.status, found.result.output.claims) == ("done", 2)


@settings(max_examples=examples(60))
@given(text=st.text(max_size=60), answer=st.text(max_size=60), ids=st.lists(st.text(max_size=6), max_size=3))
def test_no_answer_changes_a_text(text: str, answer: str, ids: list[str]) -> None:
    """Whatever is answered, what comes out is the text, but for markers of known ids; else nothing comes out."""
    from graphflow.graphs.citations import same_text

    @node
    async def citer(_: State[Context]) -> str:
        return answer

    graph = citation_pass("cite", says("author", text), citer, evidence=ids, least=0, max_repairs=0)

    result = run_sync(graph, Cited(task="Cite."))

    if result.status == "completed":
        assert same_text(result.output.finding, text, ids)
        assert set(result.output.evidence) <= {one.strip() for one in ids}
    else:
        assert result.status == "exhausted"


def test_what_makes_no_sense_is_refused() -> None:
    """A share is from 0 to 1, ids are texts in a list, repairs are bounded, two names are two."""
    author, citer = says("author", ""), says("citer", "")

    for least in (-0.1, 1.1, "all", None, True):
        with pytest.raises(UsageError, match="a share from 0 to 1"):
            citation_pass("cite", author, citer, least=least)  # type: ignore[arg-type]  # that is the point
    for evidence in ("INV-311", [7], 7):
        with pytest.raises(UsageError, match="a list of ids"):
            citation_pass("cite", author, citer, evidence=evidence)  # type: ignore[arg-type]  # that is the point
    for repairs in (-1, None, True):
        with pytest.raises(UsageError, match="max_repairs"):
            citation_pass("cite", author, citer, max_repairs=repairs)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two members are called 'author'"):
        citation_pass("cite", author, author)
