"""Cases K1, K3, K5 and E9 after a restart: questions outlive the process that asked, and answers find them."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from graphflow import (
    END,
    START,
    AskUser,
    Graph,
    Handoff,
    Human,
    Join,
    Pause,
    SqliteJournal,
    State,
    Step,
    ToolStep,
    fork,
    reopen,
    replay,
    resume,
    tool,
)
from graphflow.errors import UsageError
from graphflow.events import EdgeTaken, Journal
from graphflow.testing import ManualClock, MemoryJournal, call
from tests.cases.agents import all_results, hold_messages, results_in
from tests.cases.processes import run_script
from tests.cases.stored import RUN, Calls, Ended, Plan, Stage, go_on, hold_every_break, play
from tests.cases.stored_agents import Desk
from tests.cases.stored_functions import Log, merges, says

Make = Callable[[Calls], Graph[Any]]


async def asked(make: Make, context: Any, journal: Journal) -> Ended[Any]:
    """Begin a run, and let its process end where it waits."""
    return await play(Plan(make=make, context=context), journal)


async def answered(make: Make, context: Any, journal: Journal, *answers: Mapping[str, Any]) -> Ended[Any]:
    """Give answers by the texts of the questions, each batch in a process of its own; tell how the run stands."""
    for batch in answers:
        graph = make(Calls())
        waiting = await resume(graph, RUN, journal=journal, clock=ManualClock())
        ids = {question.text.splitlines()[0]: question.id for question in waiting.questions}
        await resume(
            make(Calls()), RUN, journal=journal, clock=ManualClock(),
            answers={ids[text]: value for text, value in batch.items()},
        )  # fmt: skip
    return await go_on(Plan(make=make, context=context), journal)


def texts(ended: Ended[Any]) -> list[str]:
    """Give the open questions."""
    return sorted(question.text.partition("\n")[0] for question in ended.result.questions)


# --- K1 --------------------------------------------------------------------------------------------------------------


def asks(calls: Calls, kind: str, name: str, question: str, levels: int = 0) -> Any:
    """Make something that asks one question and gives the answer, in graphs inside each other."""

    @calls.node(name=name)
    async def function(state: State[Any], step: Step) -> Any:
        await calls.effect(step, f"turn {state.turn}", 1)
        return Pause(question) if state.turn == 0 else state.values[0]

    found: Any = function
    if kind == "human":
        found = Human(name, question)
    elif kind == "agent":
        found = calls.agent(name, call("ask_user", question=question), last_result, tools=[AskUser()])
    for level in range(levels):
        found = Graph(f"{name}{level}", START >> found >> END, context=Desk)
    return found


def last_result(request: Any) -> str:
    """Say what the last call brought; a responder."""
    return results_in(request.messages)[-1][0]


def two_questions(kind: str, levels: int, way: str) -> Make:
    """Give what makes a graph with two questions: one after the other, or at once."""

    def make(calls: Calls) -> Graph[Desk]:
        one, two = (asks(calls, kind, name, f"{name}?", levels) for name in ("a", "b"))
        if way == "next":
            between, end = (calls.node(lambda state: str(state.values), name=name) for name in ("between", "end"))
            return Graph("g", START >> one >> between >> two >> end >> END, context=Desk)
        if way == "fork":
            return Graph("g", START >> (one, two) >> Join("j") >> END, context=Desk)
        boss = calls.agent("boss", *[call(f"ask_{found.name}", objective="?") for found in (one, two)], all_results)
        return Graph("g", START >> boss >> END, boss.delegates(one, two, max_hops=1), context=Desk, max_depth=1)

    return make


@pytest.mark.parametrize("way", ["next", "fork", "team"])
@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("kind", ["human", "function", "agent"])
async def test_k1_after_a_restart_each_answer_goes_to_its_own_question(kind: str, levels: int, way: str) -> None:
    """The first answer is not taken for the second question: that is asked, and answered by yet another process."""
    make, journal = two_questions(kind, levels, way), MemoryJournal()

    waiting = await asked(make, Desk(), journal)
    between = await answered(make, Desk(), journal, {"a?": "x"})
    ended = await answered(make, Desk(), journal, {"b?": "y"})

    assert texts(waiting) == (["a?", "b?"] if way == "fork" else ["a?"])
    assert (between.result.status, texts(between)) == ("waiting", ["b?"])
    assert ended.result.status == "completed"
    whole = await play(Plan(make=make, context=Desk(), answers={"a?": "x", "b?": "y"}), MemoryJournal())
    assert ended.result == whole.result
    assert ended.trace == whole.trace


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("batches", [(3,), (1, 2), (2, 1), (1, 1, 1)])
async def test_k1_answers_come_in_any_order_and_in_any_number_of_processes(
    batches: tuple[int, ...], order: tuple[str, ...], tmp_path: Path
) -> None:
    """Three open questions of three kinds: all at once, one by one, in whatever order, the end is the same."""

    def make(calls: Calls) -> Graph[Desk]:
        found = [
            asks(calls, kind, name, f"{name}?")
            for kind, name in zip(["human", "function", "agent"], "abc", strict=True)
        ]
        return Graph("g", START >> tuple(found) >> Join("j") >> END, context=Desk)

    journal = SqliteJournal(tmp_path / "runs.db")
    await asked(make, Desk(), journal)
    left = list(order)
    given = [{f"{name}?": name.upper() for name in [left.pop(0) for _ in range(size)]} for size in batches]

    ended = await answered(make, Desk(), journal, *given)

    assert (ended.result.status, ended.result.output) == ("completed", ("A", "B", "C"))


class Size(BaseModel, frozen=True):
    """What a person says about a size."""

    number: int


@pytest.mark.parametrize("kind", ["human", "function", "agent"])
async def test_k1_a_wrong_answer_after_a_restart_changes_nothing(kind: str) -> None:
    """One that does not fit, that goes to no question, or that is given twice is refused, and nothing is written."""

    def make(calls: Calls) -> Graph[Desk]:
        @calls.node(name="a")
        async def function(state: State[Desk]) -> Any:
            return Pause("a?", schema=Size) if state.turn == 0 else str(state.values[0].number)

        agent = calls.agent("a", call("ask_user", question="a?"), last_result, tools=[AskUser(schema=Size)])
        found = {"human": Human("a", "a?", schema=Size), "function": function, "agent": agent}[kind]
        return Graph("g", START >> found >> Human("b", "b?") >> END, context=Desk)

    journal = MemoryJournal()
    waiting = await asked(make, Desk(), journal)
    question = waiting.result.questions[0].id

    for answer in ({"number": "many"}, None, {}):
        with pytest.raises(UsageError):
            await resume(make(Calls()), RUN, journal=journal, answers={question: answer})
    for other in ("", "b", f"{question}x"):
        with pytest.raises(UsageError, match="no open question"):
            await resume(make(Calls()), RUN, journal=journal, answers={other: 1})
    assert tuple(await journal.read(RUN)) == waiting.rows
    untouched = await go_on(Plan(make=make, context=Desk()), journal)
    assert untouched.result == waiting.result

    good = await resume(make(Calls()), RUN, journal=journal, answers={question: {"number": 3}})

    assert [found.text.partition("\n")[0] for found in good.questions] == ["b?"]
    with pytest.raises(UsageError, match="no open question"):
        await resume(make(Calls()), RUN, journal=journal, answers={question: {"number": 3}})


PROCESSES = """
import sys
from graphflow import END, START, Context, Graph, Human, SqliteJournal, Update, node, resume, run
from tests.cases.processes import in_child, in_loop

class Log(Context):
    one: str = ""
    two: str = ""

n1, n2 = Human("n1", "a?", into="one"), Human("n2", "b?", into="two")
inner = Graph("inner", START >> n1 >> END, context=Log)
graph = Graph("g", START >> inner >> Graph("other", START >> n2 >> END, context=Log) >> END, context=Log)

async def first():
    show(await run(graph, Log(), journal=SqliteJournal("runs.db"), run_id="r"))

def answering(text, value):
    async def go_on():
        waiting = await resume(graph, "r", journal=SqliteJournal("runs.db"))
        ids = {question.text.splitlines()[0]: question.id for question in waiting.questions}
        show(await resume(graph, "r", journal=SqliteJournal("runs.db"), answers={ids[text]: value}))
    return go_on

def show(result):
    asked = [question.text.splitlines()[0] for question in result.questions]
    print(result.status, asked, result.context.one, result.context.two)

for main in (first, answering("a?", "x"), answering("b?", "y")):
    assert in_child(in_loop(main, sys.argv[1])) == 0
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_k1_three_processes_ask_and_answer_two_questions(backend: str, tmp_path: Path) -> None:
    """Each process ends where the run waits; the next one brings an answer, and the run asks the next question."""
    lines = run_script(tmp_path, PROCESSES, backend)

    assert lines == ["waiting ['a?']  ", "waiting ['b?'] x ", "completed [] x y"]


# --- K3 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("kind", ["human", "function", "agent"])
async def test_k3_what_came_before_the_pause_is_not_entered_again(kind: str, levels: int) -> None:
    """A nested graph counts, then pauses; after the restart its first node is left alone, and the second goes on."""

    def make(calls: Calls) -> Graph[Log]:
        found: Any = says(calls, "n1") >> asks(calls, kind, "n2", "q?") >> merges(calls, "n3")
        inner: Any = Graph("inner0", START >> found >> END, context=Log)
        for level in range(1, levels):
            inner = Graph(f"inner{level}", START >> inner >> END, context=Log)
        return Graph("g", START >> says(calls, "s") >> inner >> END, context=Log)

    journal = MemoryJournal()
    waiting = await asked(make, Log(), journal)
    stage = Stage(Plan(make=make, context=Log(), answers={"q?": "yes"}))

    ended = await go_on(stage.plan, journal, stage)

    assert waiting.result.status == "waiting"
    assert ended.result.status == "completed"
    assert not any("n1" in path or path == "s" for _, path, _ in ended.calls)
    again = {call[2] for call in ended.calls if "n2" in call[1]}
    assert again == ({1} if kind != "human" else set())


async def test_k3_timers_and_branches_go_on_while_a_person_is_asked() -> None:
    """A branch waits for a person and another sleeps: the restart changes nothing of the sleep, nor of the timeout."""

    def make(calls: Calls) -> Graph[Log]:
        slow, late = says(calls, "slow", sleep=50), says(calls, "late", sleep=50, timeout=20)
        sides = fork(Human("ask", "q?"), slow, late, failure="collect")
        return Graph("g", START >> sides >> merges(calls, "j") >> END, context=Log)

    whole = await hold_every_break(Plan(make=make, context=Log(), answers={"q?": "yes"}))

    assert whole.result.status == "partial"
    assert whole.result.output == ("yes", 1, "timeout")


# --- K5 --------------------------------------------------------------------------------------------------------------

SURE = "'a' wants to call pay(amount=5.0). Approve it?"


def giver(kind: str, first: str) -> Make:
    """Give what makes an agent that hands over and has questions in one turn."""

    def make(calls: Calls) -> Graph[Desk]:
        @tool(approval=True)
        def pay(amount: float, step: ToolStep) -> str:
            """Pay."""
            calls.tool(step)
            return f"paid {amount}"

        @tool
        async def look(step: ToolStep) -> str:
            """Look."""
            calls.tool(step)
            await step.sleep(1)
            return "seen"

        questions = {"ask": [call("ask_user", question="sure?")], "all": [call("ask_user", question="sure?")]}.get(
            kind, []
        )
        questions = [*questions, *([call("pay", amount=5)] if kind != "ask" else [])]
        transfer = [call("transfer_to_b", note="go on")]
        order = [*questions, *transfer] if first == "question" else [*transfer, *questions]
        a = calls.agent("a", [*order, call("look")], tools=[pay, look, AskUser()])
        b = calls.agent("b", "done")
        return Graph("g", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Desk)

    return make


DECISIONS: dict[str, tuple[Any, str]] = {
    "approve": (True, "paid 5.0"),
    "reject": ("no", "not executed: a person rejected this call. Do not call it again for this."),
    "edit": ({"approve": True, "arguments": {"amount": 4}}, "paid 4.0"),
}


@pytest.mark.parametrize("decision", list(DECISIONS))
@pytest.mark.parametrize("first", ["question", "transfer"])
@pytest.mark.parametrize("kind", ["ask", "approval", "all"])
async def test_k5_after_a_restart_the_transfer_of_the_turn_still_happens(kind: str, first: str, decision: str) -> None:
    """The run waits with the giver active; the next process settles the turn: one payment, then the handoff."""
    make, journal = giver(kind, first), MemoryJournal()
    answer, said = DECISIONS[decision]
    waiting = await asked(make, Desk(), journal)
    stage = Stage(Plan(make=make, context=Desk(), answers={"sure?": "yes", SURE: answer}))

    ended = await go_on(stage.plan, journal, stage)

    assert (waiting.result.status, waiting.result.active) == ("waiting", "a")
    assert (ended.result.status, ended.result.active, ended.result.output) == ("completed", "b", "done")
    made = [name.partition(" ")[0] for name, _, _ in ended.calls.elements()]
    assert sorted(made) == sorted(["a"] + ["pay"] * (kind != "ask" and decision != "reject"))
    hold_messages(ended.result.thread)
    results = results_in(ended.result.thread)
    assert ("Control goes over to b.", False) in results
    assert ("seen", False) in results
    assert kind == "ask" or said in [text for text, _ in results]
    assert len(results) == (4 if kind == "all" else 3)


@pytest.mark.parametrize("kind", ["ask", "approval", "all"])
async def test_k5_a_turn_with_questions_and_a_transfer_may_be_broken_off_anywhere(kind: str) -> None:
    """Before the tools, between the answers, before the handoff: the end is the same."""
    answers = {"sure?": "yes", SURE: {"approve": True, "arguments": {"amount": 4}}}

    whole = await hold_every_break(Plan(make=giver(kind, "transfer"), context=Desk(), answers=answers))

    assert whole.result.output == "done"


# --- E9 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("giving", ["agent", "function", "inner"])
async def test_e9_a_handoff_to_a_person_comes_back_to_the_giver_after_a_restart(giving: str) -> None:
    """The run waits for the person; the answer brings control back to who gave it away; the hop is counted once."""

    def make(calls: Calls) -> Graph[Desk]:
        human = Human("human", "help?")
        if giving == "function":

            @calls.node
            def a(state: State[Desk]) -> Any:
                return Handoff("human", "please") if state.visit == 1 else state.values

            return Graph("g", START >> a >> END, a.hands_off(human, max_hops=1), context=Desk, max_handoffs=1)
        agent = calls.agent("a", transfers_once)
        inner = Graph("g", START >> agent >> END, agent.hands_off(human, max_hops=1), context=Desk, max_handoffs=1)
        if giving == "agent":
            return inner
        boss = calls.agent("boss", call("ask_team", objective="?"), all_results)
        team = inner.named("team")
        return Graph("g", START >> boss >> END, boss.delegates(team, max_hops=1), context=Desk, max_depth=1)

    whole = await hold_every_break(Plan(make=make, context=Desk(), answers={"help?": "I help"}))

    assert whole.result.status == "completed"
    assert "I help" in str(whole.result.output)
    hops = [event.body for event in whole.events if isinstance(event.body, EdgeTaken)]
    assert [(body.edge.source, body.hop) for body in hops if body.edge.kind == "handoff"] == [("a", 1)]
    asking = await asked(make, Desk(), MemoryJournal())
    assert (asking.result.status, texts(asking)) == ("waiting", ["help?"])


def transfers_once(request: Any) -> Any:
    """Hand over to the person at first, then say what came back."""
    return request.messages[-1].text if request.path.endswith(":2") else call("transfer_to_human", note="please")


# --- withdrawing -----------------------------------------------------------------------------------------------------


async def test_k1_a_question_of_a_cancelled_branch_is_withdrawn_after_a_restart() -> None:
    """A sibling fails in the next process: its failure ends the fork, and nobody is asked any more."""

    def make(calls: Calls) -> Graph[Log]:
        @calls.node
        async def fails(_: State[Log], step: Step) -> None:
            await step.sleep(5)
            msg = "no"
            raise LookupError(msg)

        return Graph("g", START >> (Human("ask", "q?"), fails) >> Join("j") >> END, context=Log)

    whole = await hold_every_break(Plan(make=make, context=Log()))

    assert whole.error == ("LookupError", "no")
    assert whole.result.questions == ()


async def test_k1_a_waiting_run_is_cancelled_by_another_process() -> None:
    """A handle on the stored run cancels it: its question is gone, and nobody can answer any more."""
    make, journal = two_questions("function", 0, "fork"), MemoryJournal()
    await asked(make, Desk(), journal)

    async with reopen(make(Calls()), RUN, journal=journal) as running:
        running.cancel("somebody")
        result = await running.result()

    assert (result.status, result.questions) == ("cancelled", ())
    assert await replay(make(Calls()), RUN, journal=journal) == result
    with pytest.raises(UsageError, match="no open question"):
        await resume(make(Calls()), RUN, journal=journal, answers={"a": 1})
