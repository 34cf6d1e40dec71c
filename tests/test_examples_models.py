"""The examples on models of providers: a support desk on a small model, and research whose citations are checked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from examples import local_llm, research
from examples.research import Answer, Claim, Findings, Research
from graphflow import ModelClient, ModelRequest, Result, ToolCall, run
from graphflow.cli import main
from graphflow.events import EffectStarted, Event
from graphflow.model.ids import names
from graphflow.testing import RuleModel, ScriptedModel
from graphflow.visualize import to_dot
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import Asked, ModelServer
from tests.support import ROOT

QUOTE: Final = "The price is 6.4 million crowns, batteries included."
OFFER: Final = "offer-of-the-yard.md"


async def researched(model: ModelClient | None = None) -> tuple[Result[Any], list[str]]:
    """Run the research, on another model if one is given; return its result, and whose model was asked, in order."""
    events: list[Event] = []
    graph = research.graph if model is None else research.graph.with_model(model)
    result = await run(graph, Research(), listeners=[events.append])
    bodies = [event.body for event in events]
    asked = [names(body.path)[-1] for body in bodies if isinstance(body, EffectStarted) and body.key == "model"]
    return result, asked


# --- the research ----------------------------------------------------------------------------------------------------


@pytest.mark.may_block
@pytest.mark.parametrize(
    "command", [["examples/research.py"], ["-m", "graphflow.cli", "run", "examples/research.py", "-q"]]
)
def test_the_research_prints_an_answer_with_its_sources(command: list[str]) -> None:
    """Each claim has a number, its document and a quote; nothing is marked."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=True)

    assert "[1] The ship costs 6.4 million crowns." in done.stdout
    assert f'{OFFER}: "{QUOTE}"' in done.stdout
    assert "NOT FOUND" not in done.stdout


async def test_what_was_misquoted_is_looked_up_again() -> None:
    """The check sends one citation back; the lead asks who reported it once more, and the second answer holds."""
    result, asked = await researched()

    context = result.context
    assert result.status == "completed"
    assert (context.checks, context.lost) == (2, ())
    assert asked.count("costs") == 4  # it searches and reports, twice
    assert asked.count("technique") == 2
    assert context.answer is not None
    assert [research.trouble_with(claim) for claim in context.answer.claims] == [""] * 7


async def test_what_is_not_found_twice_is_marked() -> None:
    """A model that goes on misquoting has the last word about nothing: its claim stands below the answer."""

    def careless(request: ModelRequest) -> list[ToolCall] | Answer | Findings:
        """Copy badly, however often it is asked."""
        found = research.think(request)
        if not isinstance(found, Findings):
            return found
        claims = tuple(claim.model_copy(update={"quote": claim.quote.upper()}) for claim in found.claims[:1])
        return found.model_copy(update={"claims": claims + found.claims[1:]})

    result, _ = await researched(RuleModel(otherwise=careless))

    assert result.status == "completed"
    assert result.context.checks == 2
    assert f'[NOT FOUND] {OFFER} does not say: "{QUOTE.upper()}"' in result.output
    assert "[1] The council lends" in result.output


async def test_an_answer_that_cites_nothing_is_marked() -> None:
    """It is sent back once, as one with a wrong citation is."""
    model = ScriptedModel(*[Answer(text="Yes.", claims=())] * 2)

    result, asked = await researched(model)

    assert result.output == "Yes.\n\n[NOT FOUND] the answer cites no document at all."
    assert asked == ["lead", "lead"]


@pytest.mark.parametrize(
    ("document", "quote", "trouble"),
    [
        pytest.param(OFFER, QUOTE, "", id="there"),
        pytest.param(OFFER, "is 6.4  million\ncrowns", "", id="other spaces"),
        pytest.param(OFFER, "batteries included.\nThe ship is delivered", "", id="over two lines"),
        pytest.param(OFFER, QUOTE.replace("6.4", "4.6"), "does not say", id="another number"),
        pytest.param(OFFER, "6.4 million", "too short", id="too short"),
        pytest.param("offer.md", QUOTE, "no document", id="no document"),
        pytest.param("", QUOTE, "no document", id="no name"),
        pytest.param("../research.py", "from graphflow import", "no document", id="outside"),
        pytest.param(str(ROOT / "LICENSE"), "Permission is hereby granted", "no document", id="absolute"),
        pytest.param("a\0b.md", QUOTE, "no document", id="no name of a file"),
    ],
)
def test_a_citation_holds_or_it_is_said_why(document: str, quote: str, trouble: str) -> None:
    """The quote must stand in the document word for word, and the document in the folder."""
    said = research.trouble_with(Claim(text="It is so.", document=document, quote=quote))

    assert trouble in said
    assert bool(said) is bool(trouble)


def test_the_researchers_share_tools_on_purpose_and_nothing_else_is_doubtful() -> None:
    """They differ in what they look for; the budget is enough for all that the structure allows."""
    graph = research.graph

    assert [problem.code for problem in graph.check()] == ["overlapping-tools"]
    assert graph.budget is not None
    assert graph.budget.model_calls is not None
    assert graph.budget.tool_calls is not None
    assert graph.worst_case().model_calls <= graph.budget.model_calls
    assert graph.worst_case().tool_calls <= graph.budget.tool_calls


def test_the_picture_of_the_research_shows_the_way_back() -> None:
    """From the check to the lead, once."""
    picture = to_dot(research.graph)

    assert [name for name in ("lead", "check", *research.FIELDS) if name not in picture] == []
    assert "to_be_looked_up_again" in picture


def says_of_research(asked: Asked) -> Reply:
    """Say what a provider's model would: delegate, search, report, answer."""
    messages: list[dict[str, Any]] = asked.body["messages"]
    offered = [tool["function"]["name"] for tool in asked.body["tools"]]
    begins = messages[-1]["role"] == "user"
    claim = {"text": "It costs 6.4 million.", "document": OFFER, "quote": QUOTE}
    if "ask_costs" in offered:
        answer = json.dumps({"text": "It costs 6.4 million crowns.", "claims": [claim]})
        return Calls(("ask_costs", {"objective": "What does it cost?"})) if begins else Say(answer)
    report = json.dumps(
        {
            "finding": "6.4 million",
            "action_needed": None,
            "evidence": [],
            "status": "done",
            "reason": None,
            "claims": [claim],
        }
    )
    return Calls(("search", {"text": "the price is"})) if begins else Say(report)


@pytest.mark.may_block
def test_the_research_runs_on_a_provider_and_a_tool_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--model` replaces the rules; the tools are those of the file server, and the check is the same."""
    monkeypatch.setenv("GRAPHFLOW_DB", str(tmp_path / "runs.db"))
    with ModelServer(says_of_research) as server:
        monkeypatch.setenv("OPENAI_API_KEY", server.key)
        words = ("--model", "openai:gpt-5", "--base-url", server.base_url, "-q")
        code = main(["run", str(ROOT / "examples" / "research.py"), *words])

    assert server.violations == []
    assert code == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "It costs 6.4 million crowns.",
        "",
        "[1] It costs 6.4 million.",
    ]
    told = [request.body["messages"][-1] for request in server.requests]
    assert any(message["role"] == "tool" and f"{OFFER}:4: {QUOTE}" in message["content"] for message in told)


# --- the desk on a small model ---------------------------------------------------------------------------------------


def says_in_json(asked: Asked) -> Reply:
    """Say what a small model would: JSON, the reason first."""
    messages: list[dict[str, Any]] = asked.body["messages"]
    system = messages[0]["content"]
    wanted = [
        {"tool": name, "arguments": given}
        for name, given in (
            ("ask_billing", {"objective": "Was INV-311 paid twice?"}),
            ("ask_shipping", {"objective": "Where is A-7?"}),
            ("get_invoice", {"number": "inv-311"}),
            ("track_parcel", {"order": "A-7"}),
        )
        if f"- {name}(" in system
    ]
    if not any(message["role"] == "assistant" for message in messages):
        return Say(json.dumps({"reason": "It is about that.", "calls": wanted}))
    if "ask_billing" in system:
        return Say('{"reason": "The reports say so.", "answer": {"answer": "You get 49.00 back, and A-7 is coming."}}')
    last = str(messages[-1]["content"])
    return Say(json.dumps({"reason": "It was looked up.", "answer": last}))


@pytest.mark.may_block
def test_the_local_desk_answers_and_says_who_was_asked() -> None:
    """As a program, with the address from the environment: the answer, who was asked, and what was spent."""
    with ModelServer(says_in_json) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": server.key}
        done = subprocess.run(
            [sys.executable, "examples/local_llm.py", "--model", "small"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
            env=env,
        )

    answer, spent = done.stdout.splitlines()
    assert server.violations == []
    assert answer == "You get 49.00 back, and A-7 is coming."
    assert re.fullmatch(r"completed · asked: billing, shipping · 6 model calls · 2 tool calls · [\d,]+ tokens", spent)
    assert {request.body["model"] for request in server.requests} == {"small"}
    assert [request for request in server.requests if request.body.get("tools")] == []


@pytest.mark.may_block
def test_the_local_desk_keeps_its_contract() -> None:
    """A model that never writes what is wanted ends at the bounds of the desk, and no answer is made up."""
    with ModelServer(lambda _: Say("Hello! How can I help?"), key="api-key-not-set") as server:
        code = local_llm.main(["--base-url", server.base_url])

    assert code == 1
    assert len(server.requests) <= 20


def test_without_a_server_the_local_desk_says_what_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, on stderr."""
    codes = [local_llm.main(["--base-url", url]) for url in ("http://127.0.0.1:9/v1", "http://[nowhere")]

    out, err = capsys.readouterr()
    assert (codes, out) == ([2, 2], "")
    assert len(err.splitlines()) == 2
    assert "llama-server" in err


def test_the_local_desk_is_sound() -> None:
    """No check has a word to say."""
    graph = local_llm.support(ScriptedModel())

    assert graph.check() == ()


def test_an_invoice_or_an_order_that_is_not_there_is_said_to_be_so() -> None:
    """Whatever a model makes of a number."""
    assert local_llm.get_invoice.fn("inv-312 ") == "inv-312 : paid once, 12.50"
    assert local_llm.track_parcel.fn("Z-1") == "Z-1: there is no such order"
