"""What nobody can make a strategy of is refused when it is made, by one error in the words of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow import ANY, AskUser, Budget, Context, Human, Join, Report, State, node, run, strategies, tool
from graphflow.errors import UsageError
from graphflow.graphs.conversation import begins_with_text
from graphflow.graphs.graph import Graph
from graphflow.graphs.planning import needs_a_plan
from graphflow.graphs.strategies import Conversation, Plan, PlannedTask, Task
from graphflow.nodes.base import Node
from tests.strategies.teams import agent, hears, member, plan_of, planner, played

A, B = member("a"), member("b")
P: Final = planner("p", plan_of(("1", "a")))

Makes = Callable[..., Graph[Any]]


def handoff(*args: Any, **options: Any) -> Graph[Any]:
    """A handoff from an agent."""
    return strategies.handoff("t", options.pop("parent", agent("desk")), *args, **options)


def router(*args: Any, **options: Any) -> Graph[Any]:
    """A router by a rule."""
    return strategies.router("t", words.fn, *args, **options)


def round_robin(*args: Any, **options: Any) -> Graph[Any]:
    """A rotation of two turns."""
    more: dict[str, Any] = {"turns": 2, **options}
    return strategies.round_robin("t", *args, **more)


def manual(*args: Any, **options: Any) -> Graph[Any]:
    """Two turns that a person gives."""
    more: dict[str, Any] = {"turns": 2, **options}
    return strategies.manual("t", *args, **more)


def plan_execute(*args: Any, **options: Any) -> Graph[Any]:
    """A plan of one step."""
    return strategies.plan_execute("t", P, *args, **options)


def named(make: Makes) -> Makes:
    """Return what makes a strategy of the name "t"."""
    return lambda *args, **options: make("t", *args, **options)


sequential, parallel = named(strategies.sequential), named(strategies.parallel)
swarm, random = named(strategies.swarm), named(strategies.random)

EVERY: Final[dict[str, Makes]] = {
    "handoff": handoff, "router": router, "swarm": swarm, "sequential": sequential, "parallel": parallel,
    "round_robin": round_robin, "random": random, "manual": manual, "plan_execute": plan_execute,
}  # fmt: skip


class Other(Context):
    """A context that no conversation and no plan can be held in."""

    question: str


class Late(Context):
    """A context whose task stands second."""

    count: int = 0
    task: str = ""


class Counted(Task):
    """A task that is no text."""

    task: int = 3  # type: ignore[assignment]  # that is the point


class Empty(Context):
    """A context in which nothing stands."""


class Perhaps(Context):
    """A context whose task may be missing."""

    task: str | None = None


@tool(approval=True)
def refund(invoice: str) -> Any:
    """Pay back."""


def two(_: Any, __: Any) -> Any:
    """Take two values."""


async def later(_: Any) -> Any:
    """Take a while."""


@node(name="v")
def words(_: State[Any]) -> str:
    """Give words."""
    return "fine"


Row = tuple[Makes, tuple[Any, ...], dict[str, Any], str]

BOUNDS: Final[tuple[Row, ...]] = tuple(
    (make, (A, B), {bound: value}, f"{bound}={value!r}: a whole number of at least {least} is needed.")
    for make, bound, least in (
        (round_robin, "turns", 1), (random, "turns", 1), (manual, "turns", 1), (swarm, "max_handoffs", 0),
        (handoff, "back", 0), (plan_execute, "max_steps", 1), (plan_execute, "max_replans", 0),
    )
    for value in (None, "4", least - 1, 2.5, True)
)  # fmt: skip

MEMBERS: Final[tuple[Row, ...]] = (
    (handoff, (), {}, "specialists: at least one is needed, and there is none; give more."),
    (router, (), {}, "targets: at least one is needed, and there is none; give more."),
    (swarm, (A,), {}, "peers: at least two are needed, and there is only 'a'; give more."),
    (sequential, (), {}, "stages: at least one is needed, and there is none; give more."),
    (parallel, (), {"synthesis": B}, "branches: at least one is needed, and there is none; give more."),
    (manual, (), {}, "members: at least one is needed, and there is none; give more."),
    (plan_execute, (), {"verify": member("v", gives=True)}, "workers and tools: at least one is needed"),
    (parallel, ([A, B],), {}, "a node is needed, not list; unpack it with a *, as *members."),
    (parallel, (A, lambda: "b"), {}, "<function <lambda>>: a node is needed, not function; a lambda has no name"),
    (sequential, (A, later), {}, "stages: <function later>: a node is needed, not function; put @node above"),
    (sequential, (A, "b"), {}, "stages: 'b': a node is needed, not str."),
    (parallel, (A, B), {"synthesis": "b"}, "synthesis='b': a node is needed, not str."),
    (router, (A, B), {"fallback": "b"}, "fallback='b': a node is needed"),
    (handoff, (A,), {"parent": strategies.sequential("s", B)}, "a graph has nobody that hands over from outside"),
    (parallel, (A,), {"synthesis": A}, "two members are called 'a'"),
    (plan_execute, (A,), {"tools": "ls"}, "tools='ls': a list of functions is needed."),
    (plan_execute, (A,), {"tools": ["ls"]}, "tools: 'ls' is no tool"),
    (plan_execute, (A,), {"tools": [refund]}, "tools: the tool 'refund' needs approval"),
    (plan_execute, (A,), {"tools": [AskUser()]}, "make the person a worker, with Human(...)"),
)

ARGUMENTS: Final[tuple[Row, ...]] = (
    (parallel, (A, B), {"join": "all"}, "join='all': ALL, ANY, first(k) or quorum(k, within=...) is needed."),
    (parallel, (A, B), {"join": 2}, "join=2: ALL, ANY"),
    (parallel, (A, B), {"join": strategies.parallel}, "join=<function parallel>: ALL, ANY"),
    (parallel, (A, B), {"losers": "kill"}, "losers='kill': 'finish' or 'cancel' is needed."),
    (parallel, (A, B), {"join": ANY, "losers": "kill"}, "losers='kill': 'finish' or 'cancel' is needed."),
    (parallel, (A, B), {"failure": "ignore"}, "failure='ignore': 'fail_fast' or 'collect' is needed."),
    (sequential, (A, B), {"see": "more"}, "see='more': 'previous' or 'all' is needed."),
    (sequential, (A, B), {"gates": [later]}, "a mapping is needed, from a stage's name to its gate"),
    (sequential, (A, B), {"gates": {"a": "no"}}, "the gate of 'a': a function from the state after the stage"),
    (sequential, (A, B), {"gates": {"a": later}}, "the gate of 'a': it is called where nothing can be awaited"),
    (sequential, (A, B), {"gates": {"z": words}}, "the gate of 'z': a function"),
    (round_robin, (A, B), {"until": "done"}, "until='done': a function from the conversation to True"),
    (round_robin, (A, B), {"until": A}, "a function from the conversation to True where it is over is needed, or None"),
    (round_robin, (A, B), {"until": later}, "until=<function later>: it is called where nothing can be awaited"),
    (random, (A, B), {"until": two}, "until=<function two>: it is called with one argument"),
    (manual, (A, B), {"decide": "a"}, "decide='a': a function from the conversation to a name"),
    (manual, (A, B), {"decide": agent("c")}, "decide=<Agent 'c'>: a function from the conversation to a name"),
    (random, (A, B), {"per": "call"}, "per='call': 'turn' or 'run' is needed."),
    (random, (A, B), {"seed": "x"}, "seed='x': a whole number is needed, or None."),
    (
        random,
        (A, B),
        {"weights": {"a": 1, "b": 3}},
        "a list is needed, a number for each member in their order, as [1, 3]",
    ),
    (random, (A, B), {"weights": "ab"}, "a list is needed, a number for each member"),
    (random, (A, B), {"weights": ["1", 2]}, "each of them is a number of at least 0."),
    (random, (A, B), {"weights": [1, 2, 3]}, "one for each of the 2 members is needed, in the order 'a', 'b'."),
    (swarm, (A, B), {"allowed_transitions": [("a", "b")]}, "a mapping is needed, from a name to a list of names"),
    (swarm, (A, B), {"allowed_transitions": {"a": "b"}}, "'a' needs a list of names, as ['a']."),
    (swarm, (A, B), {"allowed_transitions": {"z": ["a"]}}, "'z' is none; the members are 'a', 'b'."),
    (swarm, (A, B), {"max_each": -1}, "max_each=-1: a whole number of at least 0 is needed, or None."),
    (swarm, (A, B), {"history": 3}, "history=3: 'note', last(n), 'summary', 'full'"),
    (parallel, (A, B), {"buget": 1}, "buget=1: parallel has no such argument; did you mean budget=?"),
    (parallel, (A, B), {"coverage": 90}, "coverage=90: parallel has no such argument; it takes join, losers, failure"),
    (parallel, (A, B), {"budget": 5}, "budget=5: a Budget is needed, or None."),
    (parallel, (A, B), {"escalate": "boss"}, "escalate='boss': a node is needed"),
    (parallel, (A, B), {"detect": "loops"}, "detect='loops': ping_pong(...), repetition(...) and no_progress(...)"),
    (parallel, (A, B), {"description": 3}, "description=3: a text is needed."),
    (parallel, (A, B), {"enter": 3}, "enter=3: a function from the state around it to a context is needed, or None."),
)

CONTEXTS: Final[tuple[Row, ...]] = (
    *((make, (A, B), {"context": Other}, "context=Other: ")
      for make in (sequential, round_robin, random, manual, plan_execute)),
    (round_robin, (A, B), {"context": Other}, "derived from strategies.Conversation; write class Other("),
    (round_robin, (A, B), {"context": Task}, "derive one from that, or leave context= out."),
    (plan_execute, (A, B), {"context": Conversation}, "plan_execute needs a class derived from strategies.PlannedTask"),
    (parallel, (A, B), {"context": dict}, "context=dict: parallel needs a class derived from graphflow.Context;"),
    (parallel, (A, B), {"context": Task(task="?")}, "a class is needed, derived from graphflow.Context; give its"),
    (parallel, (A, B), {"context": "Task"}, "a class is needed, derived from graphflow.Context; write a class."),
    *((make, (A, B), {"context": Late}, "'count' takes no text: inside another team the task would be lost")
      for make in (handoff, router, swarm, parallel)),
    (parallel, (A, B), {"context": Counted}, "'task' takes no text"),
    (parallel, (A, B), {"context": Empty}, "what the team is asked is its first field, and there is none"),
)  # fmt: skip


@pytest.mark.parametrize(("make", "members", "options", "words"), [*BOUNDS, *MEMBERS, *ARGUMENTS, *CONTEXTS])
def test_what_makes_no_sense_is_refused(
    make: Makes, members: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    """The error names the call, what was given, and the one rule that it breaks."""
    call = next(name for name, known in EVERY.items() if known is make)

    with pytest.raises(UsageError) as told:
        make(*members, **options)

    assert str(told.value).startswith(f"{call}('t'): ")
    assert words in str(told.value)
    assert " at 0x" not in str(told.value) or "gates" in options


@pytest.mark.parametrize("kind", [*EVERY])
def test_a_team_has_a_name(kind: str) -> None:
    """A name that was forgotten, and one that is empty, are told in the words of the call."""
    make: Any = getattr(strategies, kind)
    more = {"turns": 1} if kind in ("round_robin", "manual") else {}

    with pytest.raises(UsageError, match=rf"{kind}\(.*, \.\.\.\): the name of the team comes first"):
        make(A, B, P, **more)
    with pytest.raises(UsageError, match=rf"{kind}\(''\): a name is needed"):
        make("", A, B, P, **more)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (agent("p"), False),
        (agent("p", output=str), False),
        (agent("p", output=strategies.Verdict), False),
        (agent("p", output=Plan), True),
        (agent("p", output=Report), True),
        (words.named("p"), True),
        (member("p"), True),
        (Human("p"), True),
        (Human("p", schema=bool), False),
        (Join("p"), True),
        (strategies.sequential("p", A), True),
        (strategies.sequential("p", A, output=Plan), True),
        (strategies.sequential("p", A, output=int), False),
    ],
)
def test_a_planner_that_can_give_no_plan_is_refused(given: Node[Any], fits: bool) -> None:
    """It is, where it can be known; a function may write its plan as text."""
    if fits:
        assert strategies.plan_execute("t", given, B).name == "t"
        return

    with pytest.raises(UsageError, match=r"planner=.* 'p'>: what it gives is no plan; .*Plan"):
        strategies.plan_execute("t", given, B)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (agent("v"), False),
        (agent("v", output=Plan), False),
        (agent("v", output=strategies.Verdict), True),
        (agent("v", output=bool), True),
        (agent("v", output=Report), True),
        (words, False),
        (member("v"), True),
        (Human("v", schema=str), False),
        (Human("v", schema=bool), True),
    ],
)
def test_a_verifier_that_can_give_no_verdict_is_refused(given: Node[Any], fits: bool) -> None:
    """It is, where it can be known: by the output of an agent, a schema, or what a function says that it returns."""
    if fits:
        assert strategies.plan_execute("t", P, A, verify=given).name == "t"
        return

    with pytest.raises(UsageError, match=r"verify=.* 'v'>: what it gives does not say whether it accepts"):
        strategies.plan_execute("t", P, A, verify=given)


async def test_a_context_whose_task_may_be_missing_gets_it() -> None:
    """Inside another team an optional text is filled with what arrives."""
    heard: list[Any] = []

    @node(name="a")
    async def listens(state: State[Perhaps]) -> str:
        heard.append(state.context.task)
        return "a says."

    await played(strategies.sequential("outer", B, strategies.parallel("inner", listens, context=Perhaps)))

    assert begins_with_text(Perhaps)
    assert heard == ["b says."]


async def test_a_team_that_says_how_it_is_entered_may_have_any_context() -> None:
    """With enter= the task is not lost, whatever the first field is."""
    heard: list[tuple[str, ...]] = []
    entered = strategies.parallel(
        "inner", hears("a", heard), context=Late, enter=lambda state: Late(count=1, task=str(state.values[0]))
    )

    found = await played(strategies.sequential("outer", B, entered))

    assert found.result.status == "completed"


async def test_a_team_may_say_what_it_gives() -> None:
    """leave= is passed on like every keyword of a graph."""
    team = strategies.parallel("t", A, leave=lambda _: "left", budget=Budget(node_runs=9))

    found = await run(team, Task(task="?"))

    assert found.output == "left"


def test_a_built_in_function_that_does_not_say_what_it_takes_is_taken() -> None:
    """Not everything that can be called can be asked how; it is called, and may fail then."""
    assert round_robin(A, until=max).name == "t"


def test_a_reason_does_not_grow_with_what_went_wrong() -> None:
    """What a planner did wrong is told as far as it fits into a sentence; the context has all of it."""
    told = needs_a_plan.why(PlannedTask(task="?", problems=("wrong",) * 200))

    assert told.startswith("wrong with the last plan: wrong; wrong")
    assert told.endswith("…")
    assert len(told) < 550


@pytest.mark.parametrize("max_replans", [0, 1])
async def test_the_bound_of_plans_says_what_was_wrong_with_the_last(max_replans: int) -> None:
    """The reason names the problems of the plan that was refused, which stand in the context too."""
    wrong = planner("p", plan_of(("1", "zed"), ("2", "a", ("9",))))

    found = await run(strategies.plan_execute("t", wrong, A, max_replans=max_replans), PlannedTask(task="?"))

    assert (found.status, found.reason and found.reason.code) == ("exhausted", "max_hops")
    told = "step '1' goes to 'zed', which is none of 'a'; step '2' needs '9', which is no step"
    assert found.reason is not None
    assert told in found.reason.text
    assert "; ".join(found.context.problems) == told
