"""Handoffs between function nodes: control moves inside its frame, and every bound on it holds."""

from typing import Annotated, Any

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Call,
    Context,
    Delegate,
    Done,
    Graph,
    Handoff,
    Human,
    State,
    Step,
    Update,
    append,
    fork,
    node,
    when,
)
from graphflow.errors import GraphProblems
from graphflow.events import EdgeTaken, FrameOpened
from graphflow.nodes.base import Node
from graphflow.nodes.function import FunctionNode
from graphflow.testing import ScriptedModel, call
from tests.cases.helpers import Played, play


class Chat(Context):
    """Who has spoken."""

    said: Annotated[tuple[str, ...], append] = ()
    k: int = 0


class Asked(Context):
    """What is asked."""

    question: str
    said: Annotated[tuple[str, ...], append] = ()


def gives(name: str, to: str, note: object = None, **options: Any) -> FunctionNode[Context]:
    """A node that always hands over."""

    @node(name=name, **options)
    async def give(state: State[Context]) -> Handoff:
        return Handoff(to, note, Update(said=name))

    return give


def says(name: str, seconds: float = 0.0) -> FunctionNode[Context]:
    """A node that says what it got, from whom."""

    @node(name=name)
    async def say(state: State[Context], step: Step) -> str:
        if seconds:
            await step.sleep(seconds)
        return f"{name} got " + ", ".join(f"{source}: {value}" for source, value in state.inbox)

    return say


def hops(played: Played[Any]) -> list[tuple[str | None, str | None, int]]:
    """The handoffs that were made, in order."""
    return [
        (body.edge.source, body.edge.target, body.hop) for body in played.of(EdgeTaken) if body.edge.kind == "handoff"
    ]


# --- control moves ---------------------------------------------------------------------------------------------------


async def test_a_handoff_gives_control_and_a_note() -> None:
    """The target starts after the giver has ended, sees its update, and its output is the graph's."""
    a, b = gives("a", "b", "look at INV-311"), says("b")
    graph = Graph("main", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Chat)

    played = await play(graph, Chat())

    assert played.result.output == "b got a: look at INV-311"
    assert played.result.context.said == ("a",)
    assert played.started == ["a", "b"]
    assert played.ended == {"a": "completed", "b": "completed"}
    assert hops(played) == [("a", "b", 1)]


async def test_who_does_not_hand_over_goes_on_as_usual() -> None:
    """A handoff edge is a possibility: an output takes the next statement instead."""
    a, b = says("a"), says("b")
    graph = Graph("main", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Chat)

    played = await play(graph, Chat())

    assert played.started == ["a"]
    assert played.result.status == "completed"


async def test_a_node_may_hand_over_to_itself() -> None:
    """A self-handoff is a hop like any other, and a new visit."""

    @node
    async def a(state: State[Context]) -> Handoff | str:
        return Handoff("a", f"again {state.visit}") if state.visit < 3 else str(state.values)

    graph = Graph("main", START >> a >> END, a.hands_off(a, max_hops=2), context=Chat)

    played = await play(graph, Chat())

    assert played.result.output == "('again 2',)"
    assert hops(played) == [("a", "a", 1), ("a", "a", 2)]


@pytest.mark.parametrize("retries", [0, 2])
async def test_an_unknown_target_is_the_nodes_failure(retries: int) -> None:
    """The failure names the declared targets and what was probably meant; it can be retried and caught."""
    a, b = gives("a", "billng", retries=retries), says("billing")
    graph = Graph("main", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Chat)

    played = await play(graph, Chat())

    assert (played.result.status, played.reason.code, played.reason.path) == ("failed", "unknown_target", "a")
    assert "Did it mean 'billing'?" in played.reason.text
    assert played.error is None
    assert played.result.context == Chat()
    assert hops(played) == []
    assert played.result.spent.total.retries == retries


# --- bounds ----------------------------------------------------------------------------------------------------------


def ping_pong(**options: Any) -> Graph[Chat]:
    """Two nodes that always hand over to each other."""
    a, b = gives("a", "b"), gives("b", "a")
    return Graph(
        "main",
        START >> a >> END,
        b >> END,
        a.hands_off(b, max_hops=9),
        b.hands_off(a, max_hops=9),
        context=Chat,
        **options,
    )


async def test_e1_a_ping_pong_ends_at_max_handoffs() -> None:
    """Exactly so many handoffs are made; the run is exhausted, and the reason has the limit and the whole way."""
    played = await play(ping_pong(max_handoffs=4), Chat())

    assert played.started == ["a", "b", "a", "b", "a"]
    assert len(hops(played)) == 4
    assert (played.result.status, played.reason.code, played.reason.limit) == ("exhausted", "max_handoffs", 4)
    assert "a b a b a" in played.reason.text
    assert played.result.context.said == ("a", "b", "a", "b", "a")


@pytest.mark.parametrize("nested", [False, True])
async def test_e1_a_ping_pong_goes_to_the_escalation(nested: bool) -> None:
    """With `escalate` control goes there, from a nested graph too; its output is the graph's."""

    @node
    async def rescue(state: State[Context]) -> str:
        ((source, report),) = state.inbox
        return f"{report.reason.code} at {source}"

    if nested:
        graph = Graph("outer", START >> ping_pong(max_handoffs=4) >> END, context=Chat, escalate=rescue)
    else:
        graph = ping_pong(max_handoffs=4, escalate=rescue)

    played = await play(graph, Chat())

    assert played.result.output == ("max_handoffs at main" if nested else "max_handoffs at a")
    assert played.result.status == "completed"
    assert len(hops(played)) == 4


@pytest.mark.parametrize("bound", ["max_hops", "max_visits", "node_runs"])
async def test_e1_the_other_bounds_end_a_ping_pong_too(bound: str) -> None:
    """An edge's hops, a node's visits and the budget each stop it exactly at their limit."""
    a = gives("a", "b", max_visits=2 if bound == "max_visits" else None)
    b = gives("b", "a")
    graph = Graph(
        "main",
        START >> a >> END,
        b >> END,
        a.hands_off(b, max_hops=2 if bound == "max_hops" else 99),
        b.hands_off(a, max_hops=99),
        context=Chat,
        budget=Budget(node_runs=5 if bound == "node_runs" else 1000),
    )

    played = await play(graph, Chat())

    runs = {"max_hops": 5, "max_visits": 4, "node_runs": 5}[bound]
    assert played.started == ["a", "b", "a", "b", "a"][:runs]
    assert (played.result.status, played.reason.code) == ("exhausted", bound)


@pytest.mark.parametrize("place", ["branch", "callee"])
async def test_e1_a_ping_pong_inside_a_branch_or_a_call_ends_that_alone(place: str) -> None:
    """In a branch the bound is that branch's failure; in a call it is the report."""
    a, b = gives("a", "b"), gives("b", "a")
    if place == "branch":
        j, s = says("j"), says("s")
        graph = Graph(
            "main",
            START >> s >> fork(a, says("c"), failure="collect") >> j >> END,
            b >> j,
            a.hands_off(b, max_hops=9),
            b.hands_off(a, max_hops=9),
            context=Chat,
            max_handoffs=4,
        )
    else:

        @node
        async def boss(state: State[Context]) -> Any:
            return Delegate(Call("a", "")) if state.turn == 0 else f"got {state.inbox[0].value.reason.code}"

        graph = Graph(
            "main",
            START >> boss >> END,
            boss.delegates(a, max_hops=1),
            a.hands_off(b, max_hops=9),
            b.hands_off(a, max_hops=9),
            context=Chat,
            max_handoffs=4,
            max_depth=1,
        )

    played = await play(graph, Chat())

    assert played.result.status == "partial"
    assert len(hops(played)) == 4
    assert [failure.code for failure in played.result.failures] == ["max_handoffs"]
    if place == "callee":
        assert played.result.output == "got max_handoffs"
        assert played.result.failures[0].path == "boss/a:3@0.0"
        assert played.ended["boss/a:3@0.0"] == "completed"


async def test_a_bound_is_blamed_on_the_node_that_hit_it() -> None:
    """The reason's path is that of the node that could not go on."""
    s, inner_a, inner_b = says("s"), gives("a", "b"), gives("b", "a")
    inner = Graph(
        "inner",
        START >> inner_a >> END,
        inner_b >> END,
        inner_a.hands_off(inner_b, max_hops=1),
        inner_b.hands_off(inner_a, max_hops=9),
        context=Chat,
    )

    played = await play(Graph("main", START >> s >> inner >> END, context=Chat), Chat())

    assert (played.reason.code, played.reason.path) == ("max_hops", "inner/a:2")


# --- frames ----------------------------------------------------------------------------------------------------------


async def test_a_handoff_in_a_call_stays_in_its_frame() -> None:
    """Whoever ends the frame reports to the caller; next statements are dead in it, and depth stays the same."""
    depths: dict[str, int] = {}

    @node
    async def boss(state: State[Chat]) -> Any:
        return Delegate(Call("a", "work"), Call("a", "more")) if state.turn == 0 else state.values

    @node
    async def b(state: State[Chat]) -> Any:
        depths[state.path[-1].name] = state.depth
        return Done(f"b after {state.inbox[0].source}", Update(said="b"))

    a = gives("a", "b", "note")
    graph = Graph(
        "main",
        START.choose(when(never, b), default=boss),
        boss >> END,
        b >> says("after") >> END,
        boss.delegates(a, max_hops=2),
        a.hands_off(b, max_hops=2),
        context=Chat,
        max_depth=1,
    )

    played = await play(graph, Chat())

    assert [report.finding for report in played.result.output] == ["b after a", "b after a"]
    assert depths == {"b": 1}
    assert played.result.context.said == ("a", "b", "a", "b")
    assert "boss/b@0.1" in played.ended
    assert "after" not in played.started


def never(state: State[Context]) -> bool:
    """Never holds."""
    return False


@pytest.mark.parametrize("how", ["next", "call"])
async def test_a_graph_may_be_the_target_of_a_handoff(how: str) -> None:
    """It starts from the giver's context, its updates flow out, and its output ends the frame."""

    @node
    async def inside(state: State[Chat]) -> Done:
        return Done(f"{state.context.said} {state.values}", Update(said="inside"))

    team = Graph("team", START >> inside >> END, context=Chat)
    a = gives("a", "team", "note")

    @node
    async def boss(state: State[Chat]) -> Any:
        return Delegate(Call("a", "")) if state.turn == 0 else state.values[0].finding

    if how == "next":
        graph = Graph("main", START >> a >> END, a.hands_off(team, max_hops=1), team >> END, context=Chat)
    else:
        graph = Graph(
            "main",
            START >> boss >> END,
            boss.delegates(a, max_hops=1),
            a.hands_off(team, max_hops=1),
            context=Chat,
            max_depth=1,
        )

    played = await play(graph, Chat())

    assert played.result.output == "('a',) ('note',)"
    assert played.result.context.said == ("a", "inside")
    assert [body.graph for body in played.of(FrameOpened)][-1] == "team"
    assert played.result.status == "completed"


async def test_a_handoff_in_a_branch_stays_in_its_region() -> None:
    """The branch goes on with who took over; the join waits for that, and gets its output in the branch's place."""
    s, j, c = says("s"), says("j"), says("c", 0.1)
    a, b = gives("a", "b", "note"), says("b", 0.5)
    graph = Graph("main", START >> s >> (a, c) >> j >> END, a.hands_off(b, max_hops=1), b >> j, context=Chat)

    played = await play(graph, Chat())

    assert played.result.output == "j got b: b got a: note, c: c got s: s got "
    assert played.result.context.said == ("a",)


async def test_a_handoff_to_a_waiting_caller_is_refused_at_build() -> None:
    """A callee gives back by finishing."""

    @node
    async def boss(state: State[Chat]) -> Any:
        return Delegate(Call("a", ""))

    a = gives("a", "boss")
    graph = Graph(
        "main",
        START >> boss >> END,
        boss.delegates(a, max_hops=1),
        a.hands_off(boss, max_hops=1),
        context=Chat,
        max_depth=1,
    )

    with pytest.raises(GraphProblems, match="handoff-to-caller"):
        await play(graph, Chat())


async def test_the_handoffs_of_a_nested_activation_count_anew() -> None:
    """A loop around a graph gives each of its activations its own handoffs; its own are not reset by rounds."""
    a, b = gives("a", "b"), says("b")
    inner = Graph("inner", START >> a >> END, a.hands_off(b, max_hops=1), b >> END, context=Chat, max_handoffs=1)

    @node
    async def turn(state: State[Chat]) -> Update:
        return Update(k=state.context.k + 1)

    def again(state: State[Chat]) -> bool:
        return state.context.k < 3

    graph = Graph(
        "main", START >> inner >> turn, turn.choose(when(again, inner, max_hops=2), default=END), context=Chat
    )

    played = await play(graph, Chat())

    assert played.result.status == "completed"
    assert hops(played) == [("a", "b", 1)] * 3


# --- people ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sequence", "branch", "callee", "nested"])
async def test_e9_a_person_entered_by_a_handoff_gives_control_back(place: str) -> None:
    """The giver is entered again with the answer; the handoff is one hop, and giving back is none."""

    @node
    async def clerk(state: State[Chat]) -> Handoff | str:
        return Handoff("human", "which?") if not state.values or state.visit == 1 else f"told: {state.values}"

    human = Human("human", "Which one?", schema=str)
    if place == "sequence":
        graph = Graph("main", START >> clerk >> END, clerk.hands_off(human, max_hops=1), context=Chat)
    elif place == "nested":
        inner = Graph("inner", START >> clerk >> END, clerk.hands_off(human, max_hops=1), context=Chat)
        graph = Graph("main", START >> inner >> END, context=Chat)
    elif place == "branch":
        graph = Graph(
            "main",
            START >> says("s") >> (clerk, says("c")) >> says("j") >> END,
            clerk.hands_off(human, max_hops=1),
            context=Chat,
        )
    else:

        @node
        async def boss(state: State[Chat]) -> Any:
            return Delegate(Call("clerk", "")) if state.turn == 0 else state.values[0].finding

        graph = Graph(
            "main",
            START >> boss >> END,
            boss.delegates(clerk, max_hops=1),
            clerk.hands_off(human, max_hops=1),
            context=Chat,
            max_depth=1,
        )

    played = await play(graph, Chat(), answers={"Which one?": "the second"})

    assert played.result.status == "completed"
    assert "told: ('the second',)" in str(played.result.output)
    assert [source for source, _, _ in hops(played)] == ["clerk"]
    assert sum(name.endswith("clerk") for name in played.started) == 2


async def test_e9_a_person_may_be_asked_by_several() -> None:
    """Each giver gets its own answer back."""

    def asks(name: str) -> FunctionNode[Chat]:
        @node(name=name)
        async def ask(state: State[Chat]) -> Handoff | str:
            return Handoff("human", name) if state.visit == 1 else f"{name}: {state.values[0]}"

        return ask

    human = Human("human", "Yes?", schema=str)
    a, b = asks("a"), asks("b")
    graph = Graph(
        "main",
        START >> a >> b >> END,
        a.hands_off(human, max_hops=1),
        b.hands_off(human, max_hops=1),
        context=Chat,
    )

    played = await play(graph, Chat(), answers={"Yes?": "yes"})

    assert played.result.output == "b: yes"
    assert played.started == ["a", "human", "a", "b", "human", "b"]


async def test_a_person_who_is_escalated_to_ends_the_graph_with_the_answer() -> None:
    """`escalate=` a person: the run waits at the bound, and goes on with the answer as the output."""
    played = await play(
        ping_pong(max_handoffs=2, escalate=Human("human", "What now?", schema=str)),
        Chat(),
        answers={"What now?": "stop"},
    )

    assert played.result.output == "stop"
    assert played.result.status == "completed"
    assert played.started == ["a", "b", "a", "human"]


async def test_an_escalation_with_a_way_on_takes_it() -> None:
    """A next statement of the escalate node is live."""
    rescue: Node[Context] = says("rescue")
    a, b, after = gives("a", "b"), gives("b", "a"), says("after")
    graph = Graph(
        "main",
        START >> a >> END,
        b >> END,
        a.hands_off(b, max_hops=9),
        b.hands_off(a, max_hops=9),
        rescue >> after >> END,
        context=Chat,
        max_handoffs=1,
        escalate=rescue,
    )

    played = await play(graph, Chat())

    assert played.started == ["a", "b", "rescue", "after"]
    assert played.result.status == "completed"


async def test_without_a_note_nothing_arrives() -> None:
    """From a function or from a model: the inbox is empty then, and what the user asked stands in the context."""
    seen: list[tuple[tuple[Any, ...], str]] = []

    @node
    async def to(state: State[Asked]) -> str:
        seen.append((state.values, state.context.question))
        return "so"

    model = ScriptedModel(call("transfer_to_to"))
    for giver in (gives("giver", "to"), Agent("giver", model=model), gives("giver", "to", "look")):
        graph = Graph(
            "g", START >> giver >> END, giver.hands_off(to, max_hops=1), to >> END, context=Asked, max_handoffs=1
        )
        await play(graph, Asked(question="why?"))

    assert seen == [((), "why?"), ((), "why?"), (("look",), "why?")]


@pytest.mark.parametrize(("note", "about"), [(None, "why?"), ("", "why?"), ("look", "look")])
async def test_with_a_handoff_to_a_graph_goes_the_users_message(note: str | None, about: str) -> None:
    """A graph with a context of its own is asked what the note says, and without a note what the user did."""

    class Other(Context):
        about: str

    @node
    async def tell(state: State[Other]) -> str:
        return state.context.about

    inner = Graph("to", START >> tell >> END, context=Other)
    giver = gives("giver", "to", note)
    graph = Graph(
        "g", START >> giver >> END, giver.hands_off(inner, max_hops=1), inner >> END, context=Asked, max_handoffs=1
    )

    assert (await play(graph, Asked(question="why?"))).result.output == about


async def test_a_person_is_shown_no_empty_note() -> None:
    """Who gets control without a note is asked the question alone."""
    giver, person = gives("giver", "person"), Human("person", "What now?")
    graph = Graph(
        "g", START >> giver >> END, giver.hands_off(person, max_hops=1), person >> END, context=Chat, max_handoffs=1
    )

    (asked,) = (await play(graph, Chat())).result.questions

    assert asked.text == "What now?"
