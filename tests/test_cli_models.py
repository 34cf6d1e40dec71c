"""`--model` on the command line: who is asked, what is noted of it, and what of it is never kept or shown."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from graphflow.cli import main
from graphflow.cli.board import Board
from graphflow.cli.models import Asked, ModelWords
from graphflow.cli.targets import Noted, Targets
from graphflow.events import Body, CallDelta, EdgeName, EffectStarted, Event, NodeStarted, TextDelta
from graphflow.model.ids import Segment
from graphflow.persistence.lines import read_event
from tests.model_replies import Calls, Reply, Say
from tests.openai_server import CHAT, MESSAGES, ModelServer
from tests.openai_server import Asked as Request
from tests.support import ROOT
from tests.test_cli_process import PATIENCE, command

pytestmark = pytest.mark.may_block  # the command line is a process of its own: it writes where it runs

DESK: Final = str(ROOT / "examples" / "support_desk.py")
QUESTION: Final = "I was charged twice on INV-311, and where is A-7?"
ANSWER: Final = "You get 49.00 back, and A-7 comes tomorrow."
REPORT: Final = '{"finding": "paid twice", "action_needed": null, "evidence": [], "status": "done", "reason": null}'
TOOLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("ask_billing", {"objective": "Was INV-311 paid twice?"}),
    ("ask_shipping", {"objective": "Where is A-7?"}),
    ("get_invoice", {"number": "INV-311"}),
    ("track_parcel", {"order": "A-7"}),
)
LITTLE: Final = ("--budget", "model_calls=1")
"""What a run stops at after its first call of a model."""

NAMES: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

Printed = pytest.CaptureFixture[str]


def says(request: Request) -> Reply:
    """Say what a model would: ask the whole team, or look it up; then answer. It reads who may do what."""
    messages: list[dict[str, Any]] = request.body["messages"]
    offered = [tool["function"]["name"] for tool in request.body.get("tools", ())]
    system = str(messages[0]["content"])
    is_json = not offered and '"calls"' in system
    begins = messages[-1]["role"] == "user" and not any(message["role"] == "assistant" for message in messages)
    calls = [(name, given) for name, given in TOOLS if name in offered or (is_json and f"- {name}(" in system)]
    answer = ANSWER if any(name.startswith("ask_") for name, _ in calls) else REPORT
    if is_json:
        wanted = [{"tool": name, "arguments": given} for name, given in calls]
        value = ANSWER if answer == ANSWER else json.loads(REPORT)
        said = {"reason": "It is asked.", "calls": wanted} if begins else {"reason": "It is known.", "answer": value}
        return Say(json.dumps(said), pieces=4)
    return Calls(*calls, pieces=3) if begins and calls else Say(answer, pieces=2)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server whose model answers as a support desk does."""
    with ModelServer(says) as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, and an environment without providers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHFLOW_DB")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def key(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of the server, in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    return server.key


def run(server: ModelServer, *words: str, id: str = "one") -> int:
    """Run the desk on a server's model, in this process."""
    asked = ("--model", "openai:gpt-5", "--base-url", server.base_url, "--run-id", id)
    return main(["run", DESK, QUESTION, *asked, *words])


def noted(run: str = "one") -> Any:
    """What is noted of the model of a run."""
    return json.loads(Path(".graphflow/targets.json").read_text("utf-8"))[run].get("model")


def asked_names(server: ModelServer) -> list[str]:
    """The names of the models that a server was asked for, in order."""
    return [request.body["model"] for request in server.requests]


# --- a run -----------------------------------------------------------------------------------------------------------


def test_a_process_runs_the_support_desk_on_a_provider(server: ModelServer, place: Path) -> None:
    """The answer is the model's, its calls and reports are told, and the key is nowhere."""
    env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": server.key, "PYTHONPATH": str(ROOT)}
    words = command("run", DESK, "--model", "openai:gpt-5", QUESTION)

    done = subprocess.run(
        words, cwd=place, check=False, timeout=PATIENCE, env=env, stdin=subprocess.DEVNULL, capture_output=True,
        text=True,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n")
    assert f"every agent asks openai:gpt-5 at {server.base_url}" in done.stderr
    assert "desk asks billing: Was INV-311 paid twice?" in done.stderr
    assert 'desk > billing calls get_invoice(number="INV-311")' in done.stderr
    assert "6 of 12 model calls" in done.stderr
    assert asked_names(server) == ["gpt-5"] * 6
    assert server.key not in done.stdout + done.stderr
    kept = [path for path in (place / ".graphflow").rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if server.key.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("model", "variable"), [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY")]
)
def test_a_key_that_is_missing_is_named_before_anything_is_stored(
    model: str, variable: str, place: Path, capsys: Printed
) -> None:
    """One line names the variable of the environment; there is no run."""
    code = main(["run", DESK, "--model", model])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert f"{variable} in the environment" in err
    assert not (place / ".graphflow" / "targets.json").exists()


def test_a_server_of_ones_own_needs_no_key(place: Path, capsys: Printed) -> None:
    """What is sent as the key then is no secret, and the server may take any."""
    with ModelServer(says, key="api-key-not-set") as server:
        code = run(server, "--no-store", "-q")

    assert (code, capsys.readouterr().out) == (0, f"{ANSWER}\n")
    assert not (place / ".graphflow").exists()


def test_agents_of_a_small_model_are_asked_for_json(server: ModelServer, key: str, capsys: Printed) -> None:
    """No tools are offered; what to call stands in the text, and the run ends as with calls."""
    code = run(server, "--decision", "json")

    out, err = capsys.readouterr()
    assert (code, out) == (0, f"{ANSWER}\n")
    assert "deciding in JSON" in err
    assert 'desk > shipping calls track_parcel(order="A-7")' in err
    assert [request for request in server.requests if request.body.get("tools")] == []
    assert noted() == {"name": "openai:gpt-5", "base_url": server.base_url, "decision": "json"}


def test_pieces_of_calls_are_among_the_events(server: ModelServer, key: str, capsys: Printed) -> None:
    """The file of events has what a model wrote as it wrote it, and a drawing of the run reads over it."""
    run(server, "--events", "run.jsonl", "-q")
    codes = [main(["draw", DESK, "--run", "run.jsonl", "-f", form]) for form in ("term", "mermaid")]

    bodies = [read_event(line).body for line in Path("run.jsonl").read_text("ascii").splitlines()]
    pieces = [body for body in bodies if isinstance(body, CallDelta) and len(body.path) == 1 and body.position == 0]
    assert pieces[0].name == "ask_billing"
    assert "".join(piece.arguments for piece in pieces) == '{"objective": "Was INV-311 paid twice?"}'
    assert len(pieces) > 2
    assert codes == [0, 0]


# --- stored runs -----------------------------------------------------------------------------------------------------


def test_a_stored_run_asks_the_same_model_again(
    server: ModelServer, key: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """Where the server was named by the environment alone, it is noted too; the key comes from there each time."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    main(["run", DESK, "--model", "openai:gpt-5", "--run-id", "one", *LITTLE])
    monkeypatch.delenv("OPENAI_BASE_URL")

    code = main(["resume", "one", "--budget", "model_calls=11"])

    out, err = capsys.readouterr()
    assert (code, out) == (0, f"{ANSWER}\n")
    assert err.count(f"every agent asks openai:gpt-5 at {server.base_url}") == 2
    assert noted() == {"name": "openai:gpt-5", "base_url": server.base_url}
    assert len(server.requests) > 1


def test_another_model_may_go_on(server: ModelServer, key: str) -> None:
    """The command line wins over what is noted, and is noted instead; what is stored is read as it was decided."""
    run(server, *LITTLE, "--decision", "json")

    words = ("--model", "openai:other", "--base-url", server.base_url, "-q")
    code = main(["resume", "one", "--budget", "model_calls=11", *words])

    assert code == 0
    assert asked_names(server) == ["gpt-5", "other"]
    assert noted() == {"name": "openai:other", "base_url": server.base_url, "decision": "json"}


def test_a_model_of_another_price_may_go_on(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """A run that began with a model whose price is known goes on with one that costs nothing known."""
    begun = Calls(("ask_billing", {"objective": "Was INV-311 paid twice?"}))
    with ModelServer(lambda request: begun if request.path == MESSAGES else says(request)) as server:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, server.key)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        first = main(["run", DESK, "--model", "anthropic:claude-sonnet-5", "--run-id", "one", *LITTLE])

        words = ("--model", "openai:gpt-5", "--base-url", server.base_url, "-q")
        second = main(["resume", "one", "--budget", "model_calls=11", *words])

    assert server.violations == []
    assert (first, second) == (3, 0)
    assert "every agent asks anthropic:claude-sonnet-5" in capsys.readouterr().err
    assert {request.path for request in server.requests} == {MESSAGES, CHAT}
    assert noted()["name"] == "openai:gpt-5"


def test_a_server_that_has_moved_is_named_alone(server: ModelServer, key: str) -> None:
    """The model stays the one that is noted."""
    with ModelServer(says) as before:
        run(before, *LITTLE)

    main(["resume", "one", "--budget", "model_calls=11", "--base-url", server.base_url, "-q"])

    assert asked_names(server) == ["gpt-5"]
    assert noted()["base_url"] == server.base_url


def test_a_fork_asks_the_model_of_its_past_or_another(server: ModelServer, key: str) -> None:
    """It is noted for the new run; that of the old one stays."""
    run(server)
    told = server.requests.copy()

    codes = [main(["fork", "one", "--at", "0", "--run-id", "two", "-q"])]
    words = ("--model", "openai:other", "--base-url", server.base_url)
    codes += [main(["fork", "one", "--at", "0", "--run-id", "three", "-q", *words])]

    assert codes == [0, 0]
    assert set(asked_names(server)[len(told) :]) == {"gpt-5", "other"}
    assert [noted(name)["name"] for name in ("one", "two", "three")] == ["openai:gpt-5", "openai:gpt-5", "openai:other"]


@pytest.mark.parametrize("decision", ["auto", "json"])
def test_what_is_stored_is_read_without_key_or_server(
    decision: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """`replay`, `diff` and `runs show` ask nobody, whichever way the model decided."""
    with ModelServer(says) as server:
        monkeypatch.setenv("OPENAI_API_KEY", server.key)
        run(server, "--decision", decision, "-q")
    monkeypatch.delenv("OPENAI_API_KEY")
    capsys.readouterr()

    replayed = main(["replay", "one", "-q"]), capsys.readouterr().out
    compared = main(["diff", "one", "one"])
    capsys.readouterr()
    main(["runs", "show", "one"])
    shown = capsys.readouterr().out
    main(["runs", "show", "one", "--json"])

    assert replayed == (0, f"{ANSWER}\n")
    assert compared == 0
    assert f"model openai:gpt-5 at {server.base_url}" in shown
    assert json.loads(capsys.readouterr().out)["model"] == {
        "name": "openai:gpt-5",
        "base_url": server.base_url,
        "decision": decision,
        "timeout": None,
    }


@pytest.mark.parametrize("decision", ["auto", "json"])
def test_a_run_on_a_provider_becomes_a_test_that_asks_nobody(
    decision: str, server: ModelServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test folds the stored run with a model of the same kind, which it does not ask."""
    run(server, "--decision", decision, "--max-depth", "1", "-q")
    monkeypatch.delenv("OPENAI_API_KEY")
    told = len(server.requests)

    main(["runs", "pytest", "one", "-o", "test_one.py"])

    text = Path("test_one.py").read_text("utf-8")
    names: dict[str, Any] = {"__file__": str(Path("test_one.py").resolve())}
    exec(compile(text, "test_one.py", "exec"), names)
    for name in [name for name in names if name.startswith("test_")]:
        names[name]()
    assert ("native_tools=False" in text) is (decision == "json")
    assert len(server.requests) == told


# --- what cannot be done ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("--model", "gpt-5"), "a provider and its model are needed", id="no provider"),
        pytest.param(("--model", "nobody:x"), "no provider is known as 'nobody'", id="unknown provider"),
        pytest.param(
            ("--model", "anthropic:x", "--base-url", "http://127.0.0.1:1/v1"), "is 'openai:NAME'", id="other protocol"
        ),
        pytest.param(("--model", "openai:x", "--base-url", "localhost"), "http://", id="no address"),
        pytest.param(("--base-url", "http://127.0.0.1:1/v1"), "Add --model openai:NAME", id="server alone"),
        pytest.param(("--decision", "json"), "Add --model openai:NAME", id="decision alone"),
        pytest.param(
            ("--model", "openai:x", "--base-url", "http://me:hush@127.0.0.1/v1"), "would be stored", id="password"
        ),
        pytest.param(("--model", "openai:x", "--base-url", "http://[::/v1?key=hush"), "would be stored", id="query"),
        pytest.param(("--model", "openai:x", "--decision", "maybe"), "--decision", id="no decision"),
        pytest.param(("--timeout", "9"), "--timeout 9: of which model? Add --model openai:NAME", id="timeout alone"),
        pytest.param(("--model", "openai:x", "--timeout", "0"), "--timeout 0: a number of seconds", id="no seconds"),
        pytest.param(("--model", "openai:x", "--timeout", "inf"), "--timeout inf: a number of", id="no end"),
        pytest.param(("--model", "openai:x", "--timeout", "soon"), "--timeout", id="no number"),
    ],
)
def test_bad_use_is_told_in_few_lines(words: tuple[str, ...], told: str, place: Path, capsys: Printed) -> None:
    """Nothing runs, nothing is stored, and what may be a secret is not repeated."""
    code = main(["run", DESK, *words])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert told in err
    assert "hush" not in err
    assert len(err.splitlines()) <= 2
    assert not (place / ".graphflow" / "targets.json").exists()


def test_a_graph_without_agents_asks_no_model(capsys: Printed) -> None:
    """It says so, rather than running as if there was something to replace; agents of inner graphs count."""
    code = main(["run", str(ROOT / "examples" / "durable.py"), "--model", "openai:gpt-5"])

    assert code == 2
    assert "has no agent" in capsys.readouterr().err
    inner = main(["run", str(ROOT / "examples" / "company.py"), "--model", "openai:gpt-5"])
    assert (inner, "OPENAI_API_KEY" in capsys.readouterr().err) == (2, True)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """Who has not installed what models need is told what to install."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)

    code = main(["run", DESK, "--model", "openai:gpt-5"])

    assert code == 2
    assert "graphflow-agents[models]" in capsys.readouterr().err


# --- what is noted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        None,
        Asked("openai:gpt-5"),
        Asked("openai:small", "http://127.0.0.1:8080/v1", "json"),
        Asked("anthropic:claude-sonnet-5", None, "native"),
        Asked("openai:small", None, "auto", 300.0),
    ],
)
def test_a_note_comes_back(asked: Asked | None, place: Path) -> None:
    """Name, server and way of deciding, beside the target."""
    targets = Targets(place / "targets.json")

    targets.note("one", Noted("package.module:graph", None, asked))

    assert targets.of("one") == Noted("package.module:graph", None, asked)


def test_a_timeout_that_is_none_is_passed_over(place: Path) -> None:
    """The rest of the note counts."""
    file = place / "targets.json"
    for wrong in (0, -1, "long", True, None):
        model = {"name": "a:b", "timeout": wrong}
        file.write_text(json.dumps({"one": {"module": "package.module", "model": model}}), "utf-8")

        assert Targets(file).of("one") == Noted("package.module", None, Asked("a:b"))


def test_a_request_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """After as many seconds as the command line says, which is noted."""
    with ModelServer(Say("late", breaks="hang")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", server.key)
        words = ["--model", "openai:small", "--base-url", server.base_url, "--timeout", "0.2"]
        ended = main(["run", DESK, *words])
    shown = main(["runs", "show", "last"])

    out, err = capsys.readouterr()
    assert (ended, shown) == (1, 0)
    assert "ModelUnavailable" in err
    assert f"model openai:small at {server.base_url}, at most 0.2 s a request" in out


@pytest.mark.parametrize(
    "found", ["openai:gpt-5", {}, {"name": 5}, {"name": "a:b", "base_url": 5}, {"name": "a:b", "decision": "maybe"}]
)
def test_a_note_that_nobody_understands_is_none(found: object, place: Path) -> None:
    """What somebody wrote there by hand is passed over, as it is for a target."""
    file = place / "targets.json"
    file.write_text(json.dumps({"one": {"module": "package.module", "model": found}}), "utf-8")

    assert Targets(file).of("one") == Noted("package.module")


def test_an_address_with_a_password_in_the_environment_is_not_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """It is used, neither shown nor kept, and read from there again by whoever goes on."""
    with ModelServer(says) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url.replace("//", "//me:hush@"))
        main(["run", DESK, "--model", "openai:gpt-5", "--run-id", "one"])

    main(["runs", "pytest", "one", "-o", "test_one.py"])

    assert server.requests
    assert "hush" not in capsys.readouterr().err
    assert noted() == {"name": "openai:gpt-5"}
    assert 'ProviderModel("openai:gpt-5")' in Path("test_one.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "before", "meant"),
    [
        (ModelWords(), None, None),
        (ModelWords(), Asked("a:b", "http://c", "json"), Asked("a:b", "http://c", "json")),
        (ModelWords("d:e"), Asked("a:b", "http://c", "json"), Asked("d:e", None, "json")),
        (ModelWords("d:e", None, "native"), Asked("a:b", "http://c", "json"), Asked("d:e", None, "native")),
        (ModelWords(None, "http://f"), Asked("a:b", "http://c"), Asked("a:b", "http://f")),
        (ModelWords(None, None, "json"), Asked("a:b", "http://c"), Asked("a:b", "http://c", "json")),
        (ModelWords(timeout=9), Asked("a:b", "http://c"), Asked("a:b", "http://c", "auto", 9)),
        (ModelWords(), Asked("a:b", None, "auto", 9), Asked("a:b", None, "auto", 9)),
        (ModelWords("d:e"), Asked("a:b", None, "auto", 9), Asked("d:e")),
    ],
)
def test_words_stand_over_what_is_noted(words: ModelWords, before: Asked | None, meant: Asked | None) -> None:
    """A name begins anew, so that no text goes to a server that was meant for another model."""
    assert words.over(before) == meant


# --- what is seen while a model writes -------------------------------------------------------------------------------


def shown_while(*bodies: Body) -> str:
    """The line of an agent after its model has written something."""
    path = (Segment("solo"),)
    board = Board()
    begun: tuple[Body, ...] = (
        NodeStarted(path, EdgeName(None, "next", "solo")),
        EffectStarted(path, 0, "model", "model", None),
    )
    for body in (*begun, *bodies):
        board.fold(Event("run", 0, 0.0, body))
    return board.lines(9, ascii=True)[0].text


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        pytest.param([], "thinks", id="nothing"),
        pytest.param([(-1, "", "I look")], "writes: I look", id="words"),
        pytest.param([(0, "refund", "")], "writes refund", id="name"),
        pytest.param([(0, "refund", '{"am'), (0, "", 'ount": 4')], 'writes refund: {"amount": 4', id="arguments"),
        pytest.param([(-1, "", "I pay."), (0, "refund", "{")], "writes refund: {", id="words, then a call"),
        pytest.param([(0, "look", "{}"), (1, "refund", "{"), (0, "", "x")], "writes refund: {", id="the last call"),
        pytest.param([(0, "evil\x1b[2J", "\x1b]0;")], r"writes evil\x1b[2J: \x1b]0;", id="escapes"),
    ],
)
def test_a_row_shows_what_a_model_writes(pieces: list[tuple[int, str, str]], shown: str) -> None:
    """Its words, or the name of what it is about to call with the end of the arguments; never what a terminal obeys."""
    path = (Segment("solo"),)
    bodies = [
        TextDelta(path, 0, text) if position < 0 else CallDelta(path, 0, position, name, text)
        for position, name, text in pieces
    ]

    assert shown_while(*bodies).partition("1 model call - ")[2] == shown
