"""Handoffs through strategies: what a transfer is, how often there may be one, and who answers in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from graphflow import Agent, Budget, Graph, Handoff, Human, State, node, run, strategies, tool
from graphflow.errors import GraphProblems, UsageError
from graphflow.events import EdgeTaken, Event, NodeEnded, NodeStarted
from graphflow.graphs.strategies import Task
from graphflow.nodes.function import FunctionNode
from graphflow.testing import RuleModel, ScriptedModel, call, strategy_violations
from tests.cases.helpers import Played
from tests.strategies.teams import ASKED, agent, hands, judged, member, played


def scripted(name: str, *steps: Any, **options: Any) -> Agent:
    """An agent that follows a script."""
    return Agent(name, model=ScriptedModel(*steps), description=f"Knows what {name} knows.", **options)


def hops(found: Played[Any]) -> list[tuple[str | None, str | None]]:
    """The handoffs that were made."""
    return [(body.edge.source, body.edge.target) for body in found.of(EdgeTaken) if body.edge.kind == "handoff"]


def told(agent_: Agent, request: int = -1) -> list[str]:
    """What an agent's model was shown."""
    model: Any = agent_.model
    return [message.text for message in model.requests[request].messages]


# --- what a transfer is ----------------------------------------------------------------------------------------------


async def test_the_first_transfer_in_call_order_happens() -> None:
    """E3: of several in one turn, the first goes through, whatever the hash seed; nobody is lost."""
    a = scripted("a", [call("transfer_to_c", note="1"), call("transfer_to_b", note="2")])
    team = strategies.swarm("t", a, agent("b"), agent("c"))

    found = await judged("swarm", team)

    assert hops(found) == [("a", "c")]
    assert found.result.output == "c says."
    answers = [message.text for message in found.result.thread if message.role == "tool"]
    assert len(answers) == 2
    assert any("not executed" in text for text in answers)


async def test_two_transfers_to_one_peer_are_one_handoff() -> None:
    """E5: the peer starts once, and both calls are answered."""
    a = scripted("a", [call("transfer_to_b", note="1"), call("transfer_to_b", note="2")])

    found = await judged("swarm", strategies.swarm("t", a, agent("b")))

    assert (hops(found), found.started) == ([("a", "b")], ["a", "b"])
    assert sum(message.role == "tool" for message in found.result.thread) == 2


async def test_tools_of_a_turn_run_before_its_transfer() -> None:
    """E11: the peer begins when the turn is settled, tools included."""
    done: list[str] = []

    @tool
    async def look() -> str:
        """Look at something."""
        await anyio.sleep(0.01)
        done.append("looked")
        return "seen"

    @node(name="b")
    async def after(state: State[Task]) -> str:
        done.append("b")
        return "b says."

    a = scripted("a", [call("transfer_to_b", note="yours"), call("look")], tools=[look])

    found = await judged("swarm", strategies.swarm("t", a, after))

    assert done == ["looked", "b"]
    ended = next(index for index, event in enumerate(found.events) if _is(event, NodeEnded, "a"))
    began = next(index for index, event in enumerate(found.events) if _is(event, NodeStarted, "b"))
    assert ended < began


def _is(event: Event, kind: type[Any], name: str) -> bool:
    return isinstance(event.body, kind) and event.path[-1].name == name


async def test_a_tool_that_looks_like_a_transfer_stays_a_tool() -> None:
    """Only generated names of declared peers hand over; where the two clash, the graph is refused."""

    @tool
    def transfer_to_bank(iban: str) -> str:
        """Send money."""
        return f"sent to {iban}"

    a = scripted("a", call("transfer_to_bank", iban="DE1"), "It was sent.", tools=[transfer_to_bank])
    clash = strategies.swarm("t", a, agent("bank"))

    found = await judged("swarm", strategies.swarm("t", a, agent("b")))

    assert (found.result.output, hops(found)) == ("It was sent.", [])
    with pytest.raises(GraphProblems, match="tool-clash"):
        await run(clash, Task(task=ASKED))


async def test_a_transfer_to_oneself_or_to_nobody_is_answered() -> None:
    """E7: it is no hop, costs a turn, and the answer lists who can be reached."""
    a = scripted("a", call("transfer_to_a", note="me"), call("transfer_to_bb", note="?"), "Then I say it.")

    found = await judged("swarm", strategies.swarm("t", a, agent("b")))

    answers = [message.text for message in found.result.thread if message.role == "tool"]
    assert (hops(found), found.result.output) == ([], "Then I say it.")
    assert found.result.spent.total.model_calls == 3
    assert all("transfer_to_b" in text for text in answers)


async def test_the_third_wrong_name_in_a_row_is_a_failure() -> None:
    """E7: a model that cannot be brought back does not go on for ever."""
    a = scripted("a", *[call(f"transfer_to_{name}", note="?") for name in ("x", "y", "z")])

    found = await judged("swarm", strategies.swarm("t", a, agent("b")))

    assert found.result.status == "failed"
    assert found.result.spent.total.model_calls == 3


async def test_a_peer_has_its_own_tools_alone() -> None:
    """E13: what another peer could do is not there, and is answered with what is."""
    seen: list[tuple[str, ...]] = []

    @tool
    def look() -> str:
        """Look at something."""
        return "seen"

    def asks(request: Any) -> Any:
        seen.append(tuple(spec.name for spec in request.tools))
        return call("look") if len(seen) == 1 else "b says."

    a = scripted("a", call("look"), call("transfer_to_b", note="yours"), tools=[look])
    b = Agent("b", model=RuleModel(otherwise=asks), description="Knows b.")

    found = await judged("swarm", strategies.swarm("t", a, b))

    assert seen[0] == ("transfer_to_a",)
    assert found.result.output == "b says."


async def test_a_note_is_delivered_as_data_with_its_sender() -> None:
    """The peer sees the user's message, and the note in a frame that says whose it is."""
    b = scripted("b", "b says.")

    await judged("swarm", strategies.swarm("t", hands("a", "b"), b))

    assert told(b) == [ASKED, '<note from="a">\nfrom a\n</note>']


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("escalates", [True, False])
@pytest.mark.parametrize("most", [1, 2, 4, 5])
async def test_peers_that_hand_over_for_ever_are_stopped(most: int, escalates: bool) -> None:
    """E1: exactly so many handoffs, one more model call, and no success; or somebody takes over."""
    options: dict[str, Any] = {"escalate": member("boss")} if escalates else {}
    team = strategies.swarm("t", hands("a", "b"), hands("b", "a"), max_handoffs=most, detect=(), **options)

    found = await judged("swarm", team)

    assert (len(hops(found)), found.result.spent.total.model_calls) == (most, most + 1)
    if escalates:
        assert found.result.output == "boss says."
    else:
        trail = " ".join(["a", "b"][turn % 2] for turn in range(most + 1))
        assert (found.result.status, found.reason.code, found.reason.limit) == ("exhausted", "max_handoffs", most)
        assert trail in found.reason.text


async def test_each_pair_has_its_own_bound_too() -> None:
    """The declared bound of an edge is read, and not only that of the graph."""
    team = strategies.swarm("t", hands("a", "b"), hands("b", "a"), max_handoffs=99, max_each=2, detect=())

    found = await judged("swarm", team)

    assert (found.result.status, found.reason.code) == ("exhausted", "max_hops")
    assert hops(found) == [("a", "b"), ("b", "a")] * 2


async def test_ping_pong_is_seen_without_being_asked_for() -> None:
    """A swarm watches for it unless it is told otherwise."""
    found = await judged("swarm", strategies.swarm("t", hands("a", "b"), hands("b", "a"), max_handoffs=99))

    assert (found.result.status, found.reason.code) == ("exhausted", "ping_pong")


async def test_only_declared_transfers_are_offered() -> None:
    """A peer that may hand over to nobody has no tool for it; who is missing may to every other."""
    seen: dict[str, tuple[str, ...]] = {}

    def looks(request: Any) -> Any:
        seen[request.agent] = tuple(spec.name for spec in request.tools)
        return "Done." if request.agent == "c" else call(f"transfer_to_{chr(ord(request.agent) + 1)}", note="on")

    team = strategies.swarm("t", *(agent(n, looks) for n in "abc"), allowed_transitions={"b": ["c"], "c": []})

    found = await judged("swarm", team)

    assert found.result.output == "Done."
    assert {name: {*tools} for name, tools in seen.items()} == {
        "a": {"transfer_to_b", "transfer_to_c"}, "b": {"transfer_to_c"}, "c": set(),
    }  # fmt: skip


def test_the_order_of_the_tools_is_that_of_the_names() -> None:
    """Whatever the hash seed: the tools of an agent do not stand in the order of a set."""
    one = strategies.swarm("t", agent("a"), agent("b"), agent("c"))
    other = strategies.swarm("t", agent("a"), agent("b"), agent("c"))

    assert one.fingerprint() == other.fingerprint()


# --- handoff: the parent and its specialists -------------------------------------------------------------------------


async def test_the_specialist_answers_and_the_parent_does_not_speak_again() -> None:
    """One call of the parent's model, one of the specialist's, whose answer is the graph's."""
    parent, money = hands("p", "money"), scripted("money", "Paid twice.")

    found = await judged("handoff", strategies.handoff("t", parent, money, agent("other")))

    assert (found.started, found.result.output) == (["p", "money"], "Paid twice.")


async def test_the_parent_may_answer_itself() -> None:
    """A handoff is a possibility."""
    found = await judged("handoff", strategies.handoff("t", agent("p"), agent("b")))

    assert (found.started, found.result.output) == (["p"], "p says.")


@pytest.mark.parametrize("back", [0, 1, 2])
async def test_a_task_may_be_given_back_so_often(back: int) -> None:
    """The return edge is optional, and bounded: without one there is no such tool."""
    p = agent("p", call("transfer_to_b", note="yours"))

    def returns(request: Any) -> Any:
        return call("transfer_to_p", note="no") if any(t.name == "transfer_to_p" for t in request.tools) else "b"

    b = agent("b", returns)

    found = await judged("handoff", strategies.handoff("t", p, b, back=back, detect=()))

    if back == 0:
        assert (found.result.status, found.result.output) == ("completed", "b")
    else:
        assert found.result.status == "exhausted"
        assert hops(found) == [("p", "b"), ("b", "p")] * back + [("p", "b")]


@pytest.mark.parametrize(("history", "count"), [("note", 2), ("full", 4)])
async def test_what_else_crosses_is_declared(history: Any, count: int) -> None:
    """By default the user's message and the note; the whole thread only where it is asked for."""
    b = scripted("b", "b says.")

    await judged("handoff", strategies.handoff("t", hands("p", "b"), b, history=history))

    assert len(told(b)) <= count
    assert (len(told(b)) == 2) == (history == "note")


async def test_a_person_gives_control_back() -> None:
    """E9: the run waits for them; with their answer the one who asked goes on; one hop is counted."""
    a = scripted("a", call("transfer_to_boss", note="May I?"), "I may.")
    team = strategies.swarm("t", a, Human("boss", "Well?", description="The boss."))

    found = await judged("swarm", team, answers={"Well?": "Yes."})

    assert found.result.output == "I may."
    assert hops(found)[0] == ("a", "boss")
    assert "Yes." in "\n".join(told(a))


async def test_functions_hand_over_too() -> None:
    """A function that returns Handoff is a peer like any other; its note arrives."""

    def gives(name: str, to: str) -> FunctionNode[Any]:
        @node(name=name)
        async def body(state: State[Task]) -> Handoff:
            return Handoff(to, f"from {name}")

        return body

    @node(name="c")
    async def last(state: State[Task]) -> str:
        return str(state.values)

    found = await judged("swarm", strategies.swarm("t", gives("a", "b"), gives("b", "c"), last))

    assert found.result.output == "('from b',)"


# --- teams as peers, chats that go on --------------------------------------------------------------------------------


async def test_a_team_as_a_peer_ends_the_swarm() -> None:
    """It judges its job by the note that it got, its inner peers know nothing of the outer ones, its report ends it."""
    x = scripted("x", call("transfer_to_y", note="you do it"))
    y = scripted("y", "Found it.")
    inner = strategies.swarm("inner", x, y, description="Knows more.")
    team = strategies.swarm("t", scripted("a", call("transfer_to_inner", note="look at INV-311")), agent("b"), inner)

    found = await judged("swarm", team)

    assert strategy_violations("swarm", inner, found.events, at="inner") == ()
    assert found.result.output == "Found it."
    assert "look at INV-311" in "\n".join(told(x))
    assert ASKED not in "\n".join(told(x))


async def test_inner_peers_have_bounds_of_their_own_and_share_the_budget() -> None:
    """Handoffs inside do not count outside; model calls do, over the whole tree."""
    inner = strategies.swarm("inner", hands("x", "y"), hands("y", "x"), max_handoffs=50, detect=(), description="More.")
    team = strategies.swarm("t", hands("a", "inner"), agent("b"), inner, max_handoffs=1, budget=Budget(model_calls=7))

    found = await judged("swarm", team)

    assert found.result.status == "exhausted"
    assert (found.reason.code, found.result.spent.total.model_calls) == ("model_calls", 7)


async def test_the_next_message_goes_to_who_spoke_last() -> None:
    """A chat that goes on begins with the active peer, and its trace is that of a swarm."""
    events: list[Event] = []
    a, b = scripted("a", call("transfer_to_b", note="yours")), scripted("b", "First.", "Second.")
    team = strategies.swarm("t", a, b)

    first = await run(team, Task(task=ASKED))
    second = await run(team, Task(task="And then?"), after=first, listeners=[events.append])

    assert (first.active, second.output) == ("b", "Second.")
    assert strategy_violations("swarm", team, events) == ()


def test_swarms_and_handoffs_that_make_no_sense_are_refused() -> None:
    """Too few, a name twice, an unknown peer, bounds that are none."""
    a, b = agent("a"), agent("b")
    wrong: Any = "b"
    makes: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: strategies.swarm("t", a), "at least two are needed, and there is only 'a'"),
        (lambda: strategies.swarm("t", a, agent("a")), "two members are called 'a'"),
        (lambda: strategies.swarm("t", a, wrong), "a node is needed"),
        (lambda: strategies.swarm("t", a, b, max_handoffs=-1), "max_handoffs"),
        (lambda: strategies.swarm("t", a, b, max_each=-1), "max_each"),
        (lambda: strategies.swarm("t", a, b, allowed_transitions={"a": ["z"]}), "'z' is none"),
        (lambda: strategies.handoff("t", a), "specialists: at least one is needed"),
        (lambda: strategies.handoff("t", a, b, back=-1), "back"),
    )

    for make, words in makes:
        with pytest.raises(UsageError, match=words):
            make()


async def test_a_function_that_hands_over_to_nobody_fails() -> None:
    """The failure names the declared targets."""

    @node(name="a")
    async def lost(state: State[Task]) -> Handoff:
        return Handoff("bb")

    team: Graph[Any] = strategies.swarm("t", lost, member("b"))

    found = await played(team)

    assert (found.result.status, found.reason.code) == ("failed", "unknown_target")
    assert "Did it mean 'b'?" in found.reason.text
