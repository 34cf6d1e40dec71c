"""The command line with agents: what is told of them, what people are asked, and what they answer."""

import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow.cli import main
from graphflow.events import TextDelta
from graphflow.persistence.lines import read_event
from tests.support import ROOT
from tests.test_cli_process import PATIENCE, command, until

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

AGENTS: Final = r'''
"""Agents for the tests of the command line."""
import json
from enum import Enum
from typing import Annotated

import anyio
from pydantic import AfterValidator, BaseModel

from graphflow import (
    END, START, Agent, AskUser, Budget, Context, Graph, Handoff, Report, Supervisor, append, node, ping_pong,
    repetition, tool,
)
from graphflow.errors import MissingExtra
from graphflow.testing import RuleModel, ScriptedModel, call


class Case(Context):
    question: str
    reports: Annotated[tuple[Report, ...], append] = ()


class Way(Enum):
    card = "card"
    bank = "bank"


class Address(BaseModel, frozen=True):
    street: str
    number: int


class Blow(BaseException):
    pass


def get_invoice(number: str) -> dict[str, object]:
    """Look an invoice up."""
    return {"amount": 49.0, "note": "paid twice"}


def track_parcel(order: str) -> str:
    """Track a parcel."""
    raise RuntimeError("the carrier does not answer")


@tool(approval=True, effect="irreversible")
def refund(invoice: str, amount: float, way: Way = Way.card, words: str = "Dear customer,\n we pay.") -> str:
    """Pay back."""
    return f"paid {amount:g} for {invoice} by {way.value}"


@tool(timeout=0.01, retries=1)
async def hang() -> str:
    """Take long."""
    await anyio.sleep_forever()


@tool(max_calls=1)
def once(times: int) -> str:
    """Do it once."""
    return "done"


def echo(request):
    """Say what came last."""
    return request.messages[-1].text


def one(name, *steps, tools=(), **more):
    """A graph of one agent."""
    solo = Agent("solo", model=ScriptedModel(*steps), tools=tools, **more)
    return Graph(name, START >> solo >> END, context=Case, budget=Budget(model_calls=5))


def deny(tool, arguments):
    return "not for you" if tool == "get_invoice" else None


model = ScriptedModel(
    {
        "desk": [
            [call("ask_billing", objective="Charged twice?"), call("ask_shipping", objective="Where is A-7?")],
            "Billing: INV-311 was paid twice (next: refund 49.00). Shipping is unavailable.",
        ],
        "billing": [
            call("get_invoice", number="INV-311"),
            Report(finding="paid twice", action_needed="refund 49.00", evidence=("INV-311",)),
        ],
        "shipping": [[call("track_parcel", order="A-7"), call("trak", order="A-7")], "I do not know."],
    },
    stream_pieces=3,
)
billing = Agent("billing", model=model, tools=[get_invoice], output=Report)
shipping = Agent("shipping", model=model, tools=[track_parcel], output=Report)
desk = Supervisor("desk", model=model)
support = Graph("support", START >> desk >> END, desk.delegates(billing, shipping, max_hops=2, into="reports"),
                context=Case, budget=Budget(model_calls=12), max_depth=1)

model = ScriptedModel({
    "triage": [[call("ask_nobody"), call("transfer_to_billing", note="charged twice")]],
    "billing": [call("transfer_to_triage", note=""), "It was paid twice."],
})
triage, billing = Agent("triage", model=model), Agent("billing", model=model)
chat = Graph("chat", START >> triage >> END, triage.hands_off(billing, max_hops=2), billing >> END, context=Case,
             budget=Budget(model_calls=12))

model = ScriptedModel(*(call(f"transfer_to_{name}", note="yours") for name in "baba"))
a, b = Agent("a", model=model), Agent("b", model=model)
games = Graph("games", START >> a >> END, a.hands_off(b, max_hops=9), b.hands_off(a, max_hops=9), b >> END,
              context=Case, budget=Budget(model_calls=12), detect=(ping_pong(rounds=1),))

solo = Agent("solo", model=ScriptedModel(*[call("get_invoice", number="1")] * 3, "so be it"), tools=[get_invoice])
stuck = Graph("stuck", START >> solo >> END, context=Case, budget=Budget(model_calls=5), detect=(repetition(times=2),))

boss = Supervisor("boss", model=ScriptedModel([call("ask_hand", objective="do"), call("ask_hand")], "done"), rights=[])
hand = Agent("hand", model=ScriptedModel([call("once", times=1)], "did it"), tools=[once])
grants = Graph("grants", START >> boss >> END, boss.delegates(hand, max_hops=1, grant=("once",)), context=Case,
               budget=Budget(model_calls=9), max_depth=1)

pays = one("pays", call("refund", invoice="INV-311", amount=49.0), echo, tools=[refund])
waits = one("waits", [call("hang"), call("ask_user", question="Why?")], echo, tools=[hang, AskUser()])
picks = one("picks", call("ask_user", question="By card\nor by bank?"), echo, tools=[AskUser(schema=Way)])
place = one("place", call("ask_user", question="Where to?"), echo, tools=[AskUser(schema=Address)])
count = one("count", call("ask_user", question="How many?"), echo, tools=[AskUser(schema=int)])
limits = one("limits", [call("once", times=1), call("once", times=2), call("once", times="x"),
                        call("get_invoice", number="1")], "so be it", tools=[once, get_invoice], deny=deny)
repairs = one("repairs", "{}", Address(street="High Street", number=3), output=Address)
reports = one("reports", Report(finding="found", action_needed="tell them", evidence=("a",)), output=Report)
again = one("again", ConnectionError("reset"), "so be it", retries=1)
texts = one("texts", "{[no JSON]}\n at all")

breaks = one("breaks", ConnectionError("no route"))
ends = one("ends", call("get_invoice", number="1"), tools=[get_invoice])
extra = one("extra", MissingExtra("the model", "some"))
many = one("many", ExceptionGroup("several", [ValueError("first"), ExceptionGroup("more", [KeyError("second")])]))


def boom(request):
    raise Blow("all of it")


blows = one("blows", boom)


async def long(request):
    await anyio.sleep_forever()


thinks = one("thinks", long)

model = ScriptedModel({
    "boss?": [
        [call("ask_payer", objective="pay"), call("ask_asker", objective="ask"), call("ask_payer", objective="pay")],
        lambda request: " | ".join(finding_of(message.text) for message in request.messages if message.role == "tool"),
    ],
    "payer": [call("refund", invoice="INV-1", amount=1), call("refund", invoice="INV-2", amount=2), echo, echo],
    "asker": [[call("ask_user", question="Which?"), call("more", question="How many?")],
              lambda request: " and ".join(message.text for message in request.messages[-2:])],
})


def finding_of(text):
    return json.loads(text.splitlines()[1])["finding"]


payer = Agent("payer", model=model, tools=[refund])
asker = Agent("asker", model=model, tools=[AskUser(schema=Way), AskUser("more", schema=int)])
head = Supervisor("boss?", model=model)
several = Graph("several", START >> head >> END, head.delegates(payer, asker, max_hops=4), context=Case,
                budget=Budget(model_calls=20), max_depth=1)
asks = RuleModel((lambda request: request.messages[-1].role == "user", call("ask_user", question="?")), otherwise=echo)
ask_a, ask_b = (Agent(name, model=asks, tools=[AskUser()]) for name in ("a", "a?0.0=b"))


@node
async def both(state):
    return " and ".join(message.value for message in state.inbox)


@tool(approval=True)
def leave() -> str:
    """Leave."""
    return "left"


@tool(approval=True)
def plan(steps: dict[str, str], words: str) -> str:
    """Plan."""
    return ", ".join(steps)


def fussy(number: int) -> int:
    if number > 9:
        raise RuntimeError("too many for me")
    return number


leaves = one("leaves", call("leave"), echo, tools=[leave])
plans = one("plans", call("plan", steps={name * 9: name * 40 for name in "ab"}, words="w" * 5_000), echo, tools=[plan])
Fussy = Annotated[int, AfterValidator(fussy)]
fusses = one("fusses", call("ask_user", question="?"), echo, tools=[AskUser(schema=Fussy)])
lane = Agent("lane", model=asks, tools=[AskUser()])
lanes = Graph("lanes", START.map(lane, over=lambda state: range(11), join=both), both >> END, context=Case,
              budget=Budget(model_calls=40))


@node
async def clerk(state):
    return Handoff("inner", "please")


inner = Graph("inner", START >> Agent("desk", model=ScriptedModel("inside", [call("leave")]), tools=[leave]) >> END,
              context=Case)
ceo = Supervisor("ceo", model=ScriptedModel(call("ask_clerk", objective="see to it"), "seen to"))
nested = Graph("nested", START >> ceo >> END, ceo.delegates(clerk, max_hops=1), clerk.hands_off(inner, max_hops=1),
               context=Case, budget=Budget(model_calls=9), max_depth=1)

odd = Graph("odd", START >> (ask_a, ask_b) >> both >> END, context=Case, budget=Budget(model_calls=20))
'''

Printed = pytest.CaptureFixture[str]
Target = Callable[[str], str]


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the runs of a test in a place of its own."""
    monkeypatch.setenv("GRAPHFLOW_DB", str(tmp_path / "runs.db"))


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A file of graphs in the folder one stands in; gives the target of one of them."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    file = tmp_path / "agents_of_tests.py"
    file.write_text(AGENTS, "utf-8")
    yield lambda name: f"{file}:{name}"
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str, term: str = "dumb") -> tuple[io.StringIO, io.StringIO]:
    """Let a person type some lines; gives stdout and stderr."""
    out, err = io.StringIO(), Terminal()
    monkeypatch.setenv("TERM", term)
    answers = Terminal("".join(f"{line}\n" for line in lines))
    for name, stream in (("stdin", answers), ("stdout", out), ("stderr", err)):
        monkeypatch.setattr(sys, name, stream)
    return out, err


# --- approvals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "output", "decided"),
    [
        ("yes", "paid 49 for INV-311 by card", 'refund(invoice="INV-311", amount=49.0, way="card", words='),
        ("true", "paid 49 for INV-311 by card", "is approved\n"),
        ('{"amount": 40, "way": "bank"}', "paid 40 for INV-311 by bank", "is approved, changed\n"),
        ('{"arguments": {"invoice": "I", "amount": 1}}', "paid 1 for I by card", "is approved, changed\n"),
        ('{"approve": true}', "paid 49 for INV-311 by card", "is approved\n"),
        ("no", "not executed: a person rejected this call", "refund is rejected\n"),
        ("false", "not executed: a person rejected this call", "refund is rejected\n"),
        ("no, paid already", "a person rejected this call: paid already.", "refund is rejected: paid already\n"),
        ("No because of this", "a person rejected this call: because of this.", "refund is rejected: because of this"),
        ('{"approve": false, "reason": "late"}', "rejected this call: late.", "refund is rejected: late\n"),
    ],
)  # fmt: skip
def test_a_call_is_approved_rejected_or_changed(
    agents: Target, capsys: Printed, answer: str, output: str, decided: str
) -> None:
    """A person says yes, no, why not, or what to change; what was decided beforehand is told."""
    code = main(["run", agents("pays"), "q", "--answer", f"solo?0.0={answer}"])

    printed = capsys.readouterr()
    assert code == 0
    assert output in printed.out
    assert "--answer solo?0.0: refund" in printed.err
    assert decided in printed.err


def test_a_changed_call_is_told_as_it_runs(agents: Target, capsys: Printed) -> None:
    """The progress shows the arguments of the person, not those of the model."""
    main(["run", agents("pays"), "q", "--answer", 'solo?0.0={"amount": 40}'])

    assert 'solo calls refund(invoice="INV-311", amount=40)\n' in capsys.readouterr().err


def test_a_person_sees_the_call_that_they_approve(agents: Target, capsys: Printed) -> None:
    """Who asks, the tool and what it does, each argument with its default, and what can be said."""
    code = main(["run", agents("pays"), "q"])

    printed = capsys.readouterr()
    assert code == 4
    assert printed.out.splitlines() == [
        "solo?0.0: solo wants to call refund (Pay back.)",
        '  invoice: "INV-311"',
        "  amount: 49.0",
        '  way: "card"',
        "  words:",
        "    | Dear customer,",
        "    |  we pay.",
        "  Approve? (yes; no; no, REASON; or the arguments to change, as JSON)",
    ]
    assert 'solo asks for approval of refund(invoice="INV-311", amount=49.0' in printed.err


def test_long_arguments_stand_on_several_lines(agents: Target, capsys: Printed) -> None:
    """What is too long to be read is cut, and it is said by how much; no arguments are said to be none."""
    main(["run", agents("plans"), "q"])
    main(["run", agents("leaves"), "q"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1:5] == ["  steps:", "    {", f'      "aaaaaaaaa": "{"a" * 40}",', f'      "bbbbbbbbb": "{"b" * 40}"']
    assert lines[6].startswith('  words: "www')
    assert lines[6].endswith("www ... and 1,002 more characters, which --json shows")
    assert "  without arguments" in lines


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("maybe", "say yes, or no, or no and the reason"),
        ("yes, but less", "say yes, or no, or no and the reason"),
        ("{}", "say yes, or no, or no and the reason"),
        ("3", "say yes, or no, or no and the reason"),
        ('{"amonut": 40}', "amonut: "),
        ('{"amount": "much"}', "amount: Input should be a valid number"),
        ('{"approve": "perhaps"}', "approve: Input should be a valid boolean"),
        ('{"amount": 40', "it is no JSON: Expecting ',' delimiter"),
    ],
)
def test_an_answer_that_is_refused_says_why(
    agents: Target, monkeypatch: pytest.MonkeyPatch, answer: str, why: str
) -> None:
    """On a terminal the question stays, and the next answer counts."""
    out, err = typed(monkeypatch, answer, "yes")

    code = main(["run", agents("pays"), "q"])

    said = err.getvalue()
    assert (code, out.getvalue()) == (0, "paid 49 for INV-311 by card\n")
    assert said.count("> ") == 2
    assert said.partition("> ")[2].startswith(why) or why in said.partition("> ")[2]
    assert "Traceback" not in said


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        (
            "picks",
            "By card\n  or by bank? (card or bank)\n",
            {"cash": "should be 'card' or 'bank'", "bank": '"bank"\n'},
        ),
        ("count", "How many? (int)\n", {"3.5": "got a number with a fractional part", "3": "3\n"}),
        (
            "place",
            'Where to? (JSON: {"street": str, "number": int})\n',
            {
                '{"number": 1}': "street: Field required",
                "{street}": "it is no JSON: Expecting property name",
                '{"street": "s", "number": "3"}': '{"street": "s", "number": 3}\n',
            },
        ),
    ],
)
def test_a_question_says_which_answers_fit(
    agents: Target, monkeypatch: pytest.MonkeyPatch, name: str, asked: str, told: dict[str, str]
) -> None:
    """Choices, numbers and objects are named as what they are; a wrong answer is asked for again."""
    out, err = typed(monkeypatch, *told)

    code = main(["run", agents(name), "q"])

    *refusals, output = told.values()
    assert (code, out.getvalue()) == (0, output)
    assert f"solo?0.0: {asked}" in err.getvalue()
    assert all(why in err.getvalue() for why in refusals)


def test_several_questions_are_asked_one_after_the_other(agents: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of parallel callees too, each with its id and its place."""
    out, err = typed(monkeypatch, "card", "7", "yes", "no, not twice")

    code = main(["run", agents("several"), "q"])

    heads = re.findall(r"(\d of \d, \S+): ", err.getvalue())
    assert code == 0
    assert heads[:2] == ["1 of 4, boss?/asker@0.1?0.0", "2 of 4, boss?/asker@0.1?0.1"]
    assert "3 of 4, boss?/payer@0.0?0.0: boss? > payer wants to call refund" in err.getvalue()
    paid, asked, rejected = out.getvalue().split(" | ")
    assert paid.startswith("paid ")
    assert asked == '"card" and 7'
    assert "not twice" in rejected


def test_answers_may_all_stand_on_the_command_line(agents: Target, capsys: Printed) -> None:
    """The ids that a waiting run shows are taken back, as a shell reads the words that it suggests."""
    main(["run", agents("several"), "q", "--run-id", "one"])
    hint = re.search(r"  graphflow ((?:.*\\\n)*.*)", capsys.readouterr().err)
    assert hint is not None
    resume, run, *words = shlex.split(hint[1].replace("\\\n", ""))
    words = [word.replace("=VALUE", "=yes") for word in words]
    words = [word.replace("0.1?0.0=yes", "0.1?0.0=bank").replace("?0.1=yes", "?0.1=2") for word in words]

    code = main(["run", agents("several"), "q", "--quiet", *words])

    printed = capsys.readouterr()
    assert (resume, run, len(words)) == ("resume", "one", 8)
    assert (code, printed.err) == (0, "")
    assert '"bank" and 2' in printed.out


def test_a_waiting_run_has_the_schemas_of_its_answers(agents: Target, capsys: Printed) -> None:
    """A program can make a form of a question, and of the call that it is about."""
    main(["run", agents("several"), "q", "--json"])

    printed = capsys.readouterr()
    asked = {found["id"]: found for found in json.loads(printed.out)["questions"]}
    approval = asked["boss?/payer@0.0?0.0"]
    assert asked["boss?/asker@0.1?0.0"]["schema"]["enum"] == ["card", "bank"]
    assert asked["boss?/asker@0.1?0.1"]["schema"] == {"type": "integer"}
    assert asked["boss?/asker@0.1?0.1"]["call"] is None
    assert approval["schema"]["required"] == ["approve"]
    assert ">>>" not in approval["schema"]["description"]
    assert approval["call"]["tool"] == "refund"
    assert approval["call"]["arguments"]["way"] == "card"
    assert approval["call"]["parameters"]["required"] == ["invoice", "amount"]
    assert "--answer" not in printed.err


def test_the_longest_id_that_fits_is_meant(agents: Target, capsys: Printed) -> None:
    """A name may have the signs in it that an id is made of."""
    code = main(["run", agents("odd"), "q", "-q", "--answer", "a?0.0=b?0.0=c", "--answer", "a?0.0=d"])

    assert (code, capsys.readouterr()) == (0, ("d and c\n", ""))


def test_many_questions_get_a_few_hints(agents: Target, capsys: Printed) -> None:
    """Eleven questions are all shown, and ten of them as words for a shell."""
    main(["run", agents("lanes"), "q"])

    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 11
    assert printed.err.count("  --answer 'lane~") == 10
    assert "\n  and 1 more\n" in printed.err


def test_whatever_a_validator_raises_is_told(agents: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question stays, as for any other answer that does not fit."""
    out, err = typed(monkeypatch, "10", "9")

    code = main(["run", agents("fusses"), "q"])

    assert (code, out.getvalue()) == (0, "9\n")
    assert "RuntimeError: too many for me" in err.getvalue()


def test_the_end_of_the_input_leaves_all_questions(agents: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers one of four and leaves gets the others as the result."""
    out, err = typed(monkeypatch, "card")

    code = main(["run", agents("several"), "q"])

    assert code == 4
    assert "waiting for 3 answers" in err.getvalue()
    assert "asker@0.1?0.0" not in out.getvalue()


# --- what is told ----------------------------------------------------------------------------------------------------


def told(agents: Target, capsys: Printed, name: str, *words: str) -> list[str]:
    """The lines of progress of a run, without what it spent."""
    main(["run", agents(name), "q", *words])
    return [line.partition("  (")[0] for line in capsys.readouterr().err.splitlines()]


def test_a_team_is_told_as_it_works(agents: Target, capsys: Printed) -> None:
    """Who asks whom for what, which tools run and fail, and what is reported."""
    lines = told(agents, capsys, "support")

    for line in (
        "desk asks billing: Charged twice?",
        "desk asks shipping: Where is A-7?",
        'desk > billing calls get_invoice(number="INV-311")',
        "desk > billing reports to desk: paid twice (next: refund 49.00)",
        'desk > shipping calls track_parcel(order="A-7")',
        "desk > shipping: not executed: trak (unknown tool)",
        "desk > shipping: track_parcel failed: RuntimeError: the carrier does not answer",
        "desk > shipping reports in part to desk: I do not know. (every call of 'track_parcel' failed)",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("chat", "triage hands off to billing: charged twice"),
        ("chat", "billing: not executed: transfer_to_triage (unknown tool)"),
        ("games", "a hands off to b: yours"),
        ("games", "(that stops it)"),
        ("stuck", "was done 2 times, with no new evidence between (the agent is told)"),
        ("grants", "boss > hand may use once, which the edge grants"),
        ("grants", "boss: not executed: ask_hand (its brief does not fit)"),
        ("limits", "solo: not executed: once (times: Input should be a valid integer"),
        ("limits", "solo: not executed: once, get_invoice (denied, or a limit is reached)"),
        ("repairs", "solo has to answer again: its answer did not fit"),
        ("again", "solo is tried again: ConnectionError: reset"),
        ("waits", "solo: hang failed: it took longer than its timeout of 0.01 s"),
        ("waits", "solo calls hang() again, attempt 2"),
        ("waits", "solo asks: Why?"),
        ("nested", "ceo asks clerk: see to it"),
        ("nested", "ceo > clerk hands off to inner: please"),
        ("nested", "ceo > inner reports to ceo: inside"),
    ],
)
def test_what_an_agent_did_has_a_line(agents: Target, capsys: Printed, name: str, line: str) -> None:
    """Handoffs with their notes, patterns, grants, and calls that came to nothing."""
    assert line in "\n".join(told(agents, capsys, name))


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("reports", "found\naction needed: tell them\nevidence: a\n"),
        ("texts", "{[no JSON]}\n at all\n"),
        ("repairs", '{\n  "street": "High Street",\n  "number": 3\n}\n'),
    ],
)
def test_a_result_is_shown_as_it_is(agents: Target, capsys: Printed, name: str, output: str) -> None:
    """A text as it stands, a report by its parts, any other answer as JSON; and what was spent."""
    code = main(["run", agents(name), "q"])

    printed = capsys.readouterr()
    assert (code, printed.out) == (0, output)
    assert re.search(r"completed · 1 node run · \d of 5 model calls · [\d,]+ tokens · ", printed.err)


def test_a_terminal_shows_who_does_what(agents: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree that stays has the calls of each agent; what went wrong stands above it."""
    _, err = typed(monkeypatch, term="xterm")

    main(["run", agents("support"), "q"])

    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", err.getvalue())
    assert "desk > shipping: track_parcel failed: RuntimeError: the carrier does not answer" in shown
    assert shown.rpartition("support\n")[2].splitlines()[:3] == [
        "`- + desk  2 model calls",
        "   |- + billing  2 model calls - 1 tool call",
        "   `- + shipping  2 model calls - 1 tool call, 1 failed",
    ]


def test_streamed_text_is_kept_and_drawn_over(agents: Target, tmp_path: Path, capsys: Printed) -> None:
    """The file of events has every piece; a drawing of the run reads over them."""
    file = tmp_path / "run.jsonl"

    main(["run", agents("support"), "q", "-q", "--events", str(file)])
    codes = [main(["draw", agents("support"), "--run", str(file), "-f", form]) for form in ("term", "dot", "mermaid")]

    bodies = [read_event(line).body for line in file.read_text("ascii").splitlines()]
    pieces = [body.text for body in bodies if isinstance(body, TextDelta) and len(body.path) == 1]
    assert "".join(pieces).startswith("Billing: INV-311 was paid twice")
    assert codes == [0, 0, 0]
    assert "get_invoice" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["support", "chat", "several", "pays"])
def test_agents_are_checked_bounded_and_drawn(agents: Target, capsys: Printed, name: str) -> None:
    """What can be seen without a run says what agents there are, and what they may do at most."""
    codes = [main([word, agents(name)]) for word in ("check", "bounds", "draw")]

    printed = capsys.readouterr()
    assert codes == [0, 0, 0]
    assert printed.err == ""
    assert re.search(r"model calls +\d+ +\d+", printed.out)
    assert "≤ 10 turns" in printed.out


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("breaks", "failed: solo: ConnectionError: no route"),
        ("ends", "failed: solo: AssertionError: the script has no step left after 1."),
        ("extra", "pip install 'graphflow-agents[some]'"),
        ("many", "\n  ValueError: first\n  ExceptionGroup: more (1 sub-exception)\n    KeyError: 'second'\n"),
        ("blows", "graphflow: Blow: all of it\n"),
    ],
)
def test_a_model_that_raises_is_told_without_a_traceback(agents: Target, capsys: Printed, name: str, said: str) -> None:
    """Whatever a client raises, a person reads what it was and where, and nothing of ours."""
    codes = [main(["run", agents(name), "q", *more]) for more in ((), ("--traceback",))]

    printed = capsys.readouterr()
    assert codes == [1, 1]
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert "runner.py" not in printed.err


def test_ctrl_c_cancels_a_model_call(agents: Target) -> None:
    """A model that never answers is left; the result and what was spent are there."""
    words = command("run", agents("thinks"), "q", "--json", "--no-store")
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = until(process.stderr, "solo thinks")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)

    found: dict[str, Any] = json.loads(out)
    assert process.returncode == 130
    assert (found["status"], found["spent"]["model_calls"]) == ("cancelled", 1)
    assert "cancelled by Ctrl-C" in err
    assert "Traceback" not in said + err
