"""The examples with agents: what they answer, what their threads hold, and how they take what goes wrong."""

import re
import subprocess
import sys
from typing import Any, Final

import pytest

from examples import company, support_desk
from examples.support_desk import QUESTION, Case, desk_that_hands_over, support
from graphflow import END, START, Budget, Graph, ThreadMessage, tool
from graphflow.events import EdgeTaken, EffectFinished, EffectStarted, FrameClosed, FrameOpened
from graphflow.model.ids import names, path_text
from graphflow.visualize import to_dot
from tests.cases.helpers import Played, play
from tests.support import ROOT
from tests.typing import must_pass

ANSWER: Final = "Billing: INV-311 was paid twice (next: refund 49.00). Shipping: parcel in transit, ETA 2026-09-30."
LOST: Final = "I was charged for order A-7, which never came."
ANGRY: Final = "I was charged, and nobody ever answers."
PERSON: Final = "The agents could not settle this. What do you answer?"


@tool(name="get_invoice", effect="read", retries=2)
def no_ledger(number: str) -> str:
    """Raise each time, as a ledger does that cannot be reached."""
    raise ConnectionError(number)


def handoffs(played: Played[Any]) -> list[tuple[str | None, str | None]]:
    """Who handed over to whom, in order."""
    taken = [body.edge for body in played.of(EdgeTaken)]
    return [(edge.source, edge.target) for edge in taken if edge.kind == "handoff"]


def model_calls(played: Played[Any]) -> list[str]:
    """Whose model was called, in order."""
    return [names(body.path)[-1] for body in played.of(EffectStarted) if body.key == "model"]


def reports(thread: tuple[ThreadMessage, ...]) -> dict[str, str]:
    """What came back in a thread, by the path that it came from."""
    return {message.source: message.text for message in thread if message.role == "tool"}


# --- the desk that delegates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["examples/support_desk.py"], ["-m", "graphflow.cli", "run", "examples/support_desk.py"]]
)
def test_the_desk_prints_its_answer(command: list[str]) -> None:
    """As a program and by the command line, the output is the one sentence that the desk answers."""
    done = subprocess.run([sys.executable, *command, QUESTION], capture_output=True, text=True, cwd=ROOT, check=True)

    assert done.stdout == f"{ANSWER}\n"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (QUESTION, ANSWER),
        ("Is INV-312 right?", "Billing: INV-312 was paid once."),
        ("Where is A-7?", "Shipping: parcel in transit, ETA 2026-09-30."),
        ("Where is A-8, and what of INV-1?", "Billing: INV-1 was not found. Shipping: parcel not found, ETA unknown."),
        ("Hello?", "Which invoice or which order is it about?"),
    ],
)
async def test_the_desk_asks_whom_the_question_is_for(question: str, answer: str) -> None:
    """The answer is put together from the reports of those who were asked, and of nobody else."""
    played = await play(support_desk.graph, Case(question=question))

    assert (played.result.status, played.result.output) == ("completed", answer)


@pytest.mark.parametrize("steps", [2, 8])
async def test_the_desk_reads_six_messages_however_long_a_specialist_works(steps: int) -> None:
    """Instructions, the question, one turn with two calls, two reports, the answer: what a team does stays with it."""
    played = await play(support(looks=steps - 1), Case())

    thread = played.result.thread
    assert model_calls(played).count("billing") == steps
    assert [message.role for message in thread] == ["user", "assistant", "tool", "tool", "assistant"]
    assert len(thread) + 1 == 6  # the instructions are no message of the thread: they stand before each request
    assert played.result.output == ANSWER


async def test_a_run_that_ends_at_its_budget_has_not_hit_it() -> None:
    """With eight steps of billing the desk needs exactly the twelve model calls that it has."""
    played = await play(support(looks=7), Case())

    assert (played.result.status, played.refused) == ("completed", [])
    assert played.result.spent.total.model_calls == support_desk.BUDGET.model_calls


async def test_parent_child_and_finding_are_linked_in_the_trace() -> None:
    """A call is one path: it opens under its caller, closes with the finding, and is the source of the report."""
    played = await play(support_desk.graph, Case())

    opened = {path_text(body.path): body for body in played.of(FrameOpened)}
    closed = {path_text(body.path): body.report for body in played.of(FrameClosed)}
    assert opened.keys() == closed.keys() == {"desk/billing@0.0", "desk/shipping@0.1"}
    assert {(path_text(body.path[:-1]), body.edge.source, body.depth) for body in opened.values()} == {
        ("desk", "desk", 1)
    }
    assert closed["desk/billing@0.0"].finding == "INV-311 was paid twice"
    told = reports(played.result.thread)
    assert list(told) == sorted(closed)
    assert all(closed[path].finding in text for path, text in told.items())
    assert played.result.context.reports == tuple(closed[path] for path in told)


# --- what goes wrong at the desk -------------------------------------------------------------------------------------


async def test_the_shipping_half_is_answered_when_billing_is_down() -> None:
    """A tool that raises three times is told to its agent, whose failed report leaves the desk the other half."""
    played = await play(support(no_ledger), Case())

    tried = [body.failure for body in played.of(EffectFinished) if body.failure is not None]
    assert [failure.error_type for failure in tried] == ["builtins.ConnectionError"] * 3
    assert played.result.status == "partial"
    assert played.result.output == "Billing is unavailable. Shipping: parcel in transit, ETA 2026-09-30."
    assert [failure.path for failure in played.result.failures] == ["desk/billing@0.0"]


async def test_an_empty_budget_refuses_a_delegation_before_its_model_is_called() -> None:
    """What is refused costs nothing, and the desk answers with the report that it has."""
    played = await play(support_desk.graph, Case(), budget=Budget(node_runs=2))

    assert played.refused == ["node_runs"]
    assert model_calls(played) == ["desk", "billing", "billing", "desk"]
    assert played.result.output == "Billing: INV-311 was paid twice (next: refund 49.00). Shipping could not be asked."


@pytest.mark.parametrize("calls", range(1, 7))
async def test_no_number_of_model_calls_is_overshot(calls: int) -> None:
    """With six the desk is done; with fewer it stops at the bound, having spent exactly what it had."""
    played = await play(support_desk.graph, Case(), budget=Budget(model_calls=calls))

    assert played.result.spent.total.model_calls == calls
    assert played.result.status == ("completed" if calls == 6 else "exhausted")


# --- the desk that hands over ----------------------------------------------------------------------------------------


async def test_triage_hands_over_and_billing_answers() -> None:
    """Control moves to billing with a note; billing sees the question and the note, and answers the customer."""
    played = await play(support_desk.chat, Case(question="I was charged twice on INV-311."))

    assert handoffs(played) == [("triage", "billing")]
    assert model_calls(played) == ["triage", "billing", "billing"]
    assert played.result.output == "INV-311 was paid twice. We will refund 49.00."
    assert played.result.active == "billing"


async def test_who_was_handed_the_wrong_question_gives_it_back() -> None:
    """The note that comes back is worth more to triage than the word that it fell for."""
    played = await play(desk_that_hands_over(max_handoffs=3), Case(question=LOST))

    assert handoffs(played) == [("triage", "billing"), ("billing", "triage"), ("triage", "shipping")]
    assert played.result.output == "Parcel in transit, ETA 2026-09-30."


@pytest.mark.parametrize("question", [LOST, ANGRY])
async def test_after_two_handoffs_a_person_answers(question: str) -> None:
    """The third handoff is refused whether it would help or not, and the person's answer is the graph's."""
    played = await play(support_desk.chat, Case(question=question), answers={PERSON: "I call you back."})

    assert handoffs(played) == [("triage", "billing"), ("billing", "triage")]
    assert played.refused == ["max_handoffs"]
    assert (played.result.status, played.result.output) == ("completed", "I call you back.")


async def test_a_ping_pong_ends_at_the_bound_of_an_edge() -> None:
    """Where many handoffs are allowed, billing may still give a question back only once."""
    played = await play(desk_that_hands_over(max_handoffs=9), Case(question=ANGRY), answers={PERSON: "Sorry."})

    assert len(handoffs(played)) == 3
    assert played.refused == ["max_hops"]
    assert played.result.output == "Sorry."


# --- the programs of the design --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["support", "company", "chat", "debate", "crawl", "plan"])
async def test_the_programs_of_the_design_run_as_they_are_written(name: str) -> None:
    """None has an error, and each completes, whoever asks whom in it."""
    graph: Graph[must_pass.Case] = getattr(must_pass, name)

    played = await play(graph, must_pass.Case(question="What now?", urls=("a", "b", "c")))

    assert [problem.code for problem in graph.check() if problem.severity == "error"] == []
    assert played.result.status == "completed"
    assert ("billing" in model_calls(played)) is (name in {"support", "company", "chat", "plan"})


# --- the company -----------------------------------------------------------------------------------------------------


def test_the_company_prints_its_answer_and_who_worked_for_it() -> None:
    """As a program it shows the tree of its run, too."""
    program = [sys.executable, "examples/company.py"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=True)

    answer, empty, *tree = done.stdout.splitlines()
    assert answer.startswith("INV-311 was charged twice, refund 49.00; the parcel of A-7 is in transit")
    assert empty == ""
    assert [name for name in ("service", "desk", "billing", "insight") if not any(name in line for line in tree)] == []


async def test_a_company_answers_from_three_levels() -> None:
    """Every answer of the ceo was found by somebody below, the deepest of them three delegations down."""
    played = await play(company.graph, company.Task())

    findings = [body.report.finding for body in played.of(FrameClosed) if body.report is not None]
    assert max(body.depth for body in played.of(FrameOpened)) == 3
    assert played.result.status == "completed"
    assert len(played.result.output.split("; ")) == 6
    assert all(finding in played.result.output for finding in findings)


async def test_a_company_asks_only_who_is_needed() -> None:
    """A sentence goes to those whose description it fits, at each level."""
    played = await play(company.graph, company.Task(question="INV-311 was paid twice."))

    assert model_calls(played) == ["ceo", "head", "desk", "billing", "billing", "desk", "head", "ceo"]
    assert played.result.output == "INV-311 was charged twice, refund 49.00"


async def test_one_budget_holds_over_the_company() -> None:
    """Whoever spends, at whatever depth, spends from the one account; what is refused is known to who asked."""
    played = await play(company.graph, company.Task(), budget=Budget(node_runs=8))

    assert played.result.spent.total.node_runs == 8
    assert set(played.refused) == {"node_runs"}
    assert played.result.output


def test_a_company_that_may_go_less_deep_is_refused() -> None:
    """Three delegations stand one below the other in it, and with a bound of two it does not begin."""
    shallow = Graph(
        "shallow",
        START >> company.ceo >> END,
        company.ceo.delegates(company.service, company.insight, company.cash, max_hops=1),
        context=company.Task,
        budget=company.graph.budget,
        max_depth=2,
    )

    assert [problem.code for problem in shallow.check()] == ["too-deep"]


@pytest.mark.parametrize("graph", [support_desk.graph, support_desk.chat, company.graph])
def test_the_examples_are_sound(graph: Graph[Any]) -> None:
    """No check has a word to say, and the budget is enough for all that the structure allows."""
    assert graph.check() == ()
    assert graph.budget is not None
    assert graph.budget.model_calls is not None
    assert graph.worst_case().model_calls <= graph.budget.model_calls


def test_the_picture_of_the_company_has_clusters_in_clusters() -> None:
    """`support` is drawn inside `service`, and `insight` beside it."""
    picture = to_dot(company.graph)

    deep = {name: len(indent) for indent, name in re.findall(r"^( *)graph .*<B><[^>]*>(\w+)<", picture, re.MULTILINE)}
    assert sorted(deep, key=deep.__getitem__) == ["company", "service", "insight", "support"]
    assert deep["company"] < deep["service"] == deep["insight"] < deep["support"]
