"""The nine strategies: named shapes of teams, each a function that returns an ordinary graph.

What comes back is a `Graph` like any other: checked, bounded, drawn, journaled, and a node of other graphs, so any
strategy may stand inside any other. Members are any nodes: agents, functions, people, graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from typing_extensions import TypeVar, Unpack

from graphflow.errors import UsageError
from graphflow.graphs.arguments import check, checked_call, members_of, names_one
from graphflow.graphs.building import Options, own_node, team_graph, teams_among, unused
from graphflow.graphs.conversation import (
    Conversation,
    Holds,
    Said,
    Task,
    TeamReport,
    is_over,
)
from graphflow.graphs.graph import Graph
from graphflow.graphs.planning import (
    Execute,
    Plan,
    PlannedTask,
    PlanStep,
    StepBrief,
    Verdict,
    checked_planner,
    checked_verifier,
    judge,
    needs_a_plan,
    replan,
    tool_workers,
)
from graphflow.graphs.routes import Route, Rule
from graphflow.graphs.stages import AfterStage, Gate, Says, Together
from graphflow.graphs.turns import (
    FINISH,
    Decide,
    Directed,
    Draw,
    Floor,
    Named,
    Rotate,
    Until,
    checked_odds,
    checked_rotation,
    checked_transitions,
    goes_on,
)
from graphflow.model.context import Context
from graphflow.model.thread import History
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import END, START, Node
from graphflow.nodes.detect import ping_pong
from graphflow.nodes.edges import Chain, FailurePolicy, fork, on_active, when
from graphflow.nodes.join import ALL, STRICT, Join, Policy
from graphflow.nodes.tools import Tool

__all__ = (
    "Conversation",
    "Options",
    "Plan",
    "PlanStep",
    "PlannedTask",
    "Said",
    "StepBrief",
    "Task",
    "TeamReport",
    "Verdict",
    "handoff",
    "manual",
    "parallel",
    "plan_execute",
    "random",
    "round_robin",
    "router",
    "sequential",
    "swarm",
)

C = TypeVar("C", bound=Context, default=Task)
K = TypeVar("K", bound=Context)
V = TypeVar("V", bound=Conversation, default=Conversation)

Transitions = Mapping[str, "tuple[str, ...] | list[str]"]


# --- who owns the answer: handoff, router, swarm ---------------------------------------------------------------------


def handoff(
    name: str,
    parent: Node[Any],
    *specialists: Node[Any],
    history: History = "note",
    back: int = 0,
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Let a parent hand the task over to one specialist, who answers in its place.

    Args:
        name: the graph's name.
        parent: an agent, whose model picks among the specialists' names and descriptions; or a function that returns
            `Handoff`. It may answer itself.
        specialists: those who can get the task, with a note and the user's message.
        history: what else of the thread crosses.
        back: how often each specialist that is no graph may give the task back.
        context: the class of the context; its first field is what is asked.
        options: passed on to `Graph`.

    Raises:
        UsageError: if there is no specialist, two have one name, or an argument makes no sense.

    >>> from graphflow import Agent, run_sync
    >>> from graphflow.testing import ScriptedModel, call
    >>> desk = Agent("desk", model=ScriptedModel(call("transfer_to_billing", note="INV-311")))
    >>> graph = handoff("help", desk, Agent("billing", model=ScriptedModel("It was paid twice.")))
    >>> run_sync(graph, Task(task="Was INV-311 paid twice?")).output
    'It was paid twice.'
    """
    where = checked_call("handoff", name, Context, context, options, parent=parent, history=history, back=back)
    members_of(where, "specialists", specialists, (parent,))
    if isinstance(parent, Graph):
        hint = "a graph has nobody that hands over from outside; give an agent or a function"
        msg = f"{where}: parent={parent!r}: {hint}."
        raise UsageError(msg)
    given = parent.hands_off(*specialists, max_hops=1 + back, history=history)
    chains: list[Chain[Any]] = [START >> parent >> END, given]
    for specialist in specialists:
        chains.append(specialist >> END)
        if back and not isinstance(specialist, Graph):
            chains.append(specialist.hands_off(parent, max_hops=back, history=history))
    return team_graph(name, chains, context, options)


def router(
    name: str,
    by: Rule | Node[Any],
    *targets: Node[Any],
    fallback: Node[Any] | None = None,
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Let a rule, a function or a model say once who gets the task.

    What it says is read by `graphflow.graphs.routes.route_of`: exactly one of the targets' names must be in it.

    Args:
        name: the graph's name.
        by: a function from the state to a text, or a node, such as an agent, whose output is the text.
        targets: those who can get the task, as it came in.
        fallback: who gets it when no target is named, or several are; one of the targets, or another node. Without
            one it then fails, and says what was named and what could be.
        context: the class of the context; its first field is what is asked.
        options: passed on to `Graph`.

    Raises:
        UsageError: if there is no target, two have one name, or an argument makes no sense.
    """
    where = checked_call("router", name, Context, context, options, by=by, fallback=fallback)
    nodes = targets if fallback is None or fallback in targets else (*targets, fallback)
    classifier = cast("Node[Any]", by) if isinstance(by, Node) else None
    members_of(where, "targets", nodes, () if classifier is None else (classifier,))
    if classifier is None:
        check(where, "by", by, names_one)
    names = tuple(target.name for target in targets)
    decides = Route(
        names,
        frozenset(node.name for node in nodes if isinstance(node, Agent)),
        None if fallback is None else fallback.name,
        None if classifier is not None else cast("Rule", by),
        where=where,
    )
    route = own_node("route", decides, nodes if classifier is None else (*nodes, classifier))
    first: Chain[Any] = START >> route >> END if classifier is None else START >> classifier >> route >> END
    chains = [first, route.hands_off(*nodes, max_hops=1), *(node >> END for node in nodes)]
    return team_graph(name, chains, context, options)


def swarm(
    name: str,
    *peers: Node[Any],
    max_handoffs: int = 8,
    max_each: int | None = None,
    allowed_transitions: Transitions | None = None,
    history: History = "note",
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Let peers hand the task over among themselves, until one answers.

    The first peer begins; in a chat that goes on (`run(after=...)`), whoever spoke last. A graph as a peer never hands
    over: its report ends the swarm. `detect=` is a `ping_pong()` unless you give your own.

    Args:
        name: the graph's name.
        peers: agents, functions that return `Handoff`, and graphs.
        max_handoffs: how many handoffs there may be in all.
        max_each: how often each peer may hand over to each other one; None for `max_handoffs`.
        allowed_transitions: who may hand over to whom, to nobody if none is listed; a peer that is missing may to
            every other.
        history: what of the thread crosses beside the note and the user's message.
        context: the class of the context; its first field is what is asked.
        options: passed on to `Graph`.

    Raises:
        UsageError: if there are fewer than two peers, two have one name, or an argument makes no sense.
    """
    where = checked_call(
        "swarm", name, Context, context, options,
        max_handoffs=max_handoffs, max_each=max_each, allowed_transitions=allowed_transitions, history=history,
    )  # fmt: skip
    names = members_of(where, "peers", peers, least=2)
    table = dict(checked_transitions(where, names, allowed_transitions, least=0))
    bound = max_handoffs if max_each is None else max_each
    deciders = [peer for peer in peers if not isinstance(peer, Graph)]
    later = [on_active(peer) for peer in deciders if peer is not peers[0]]
    chains: list[Chain[Any]] = [START.choose(*later, default=peers[0]) if later else START >> peers[0]]
    for peer in peers:
        chains.append(peer >> END)
        others = [other for other in peers if other is not peer and other.name in table.get(peer.name, names)]
        if others and peer in deciders:
            chains.append(peer.hands_off(*others, max_hops=bound, history=history))
    options.setdefault("detect", (ping_pong(),))
    return team_graph(name, chains, context, options, max_handoffs=max_handoffs)


# --- a fixed order, and all at once: sequential, parallel ------------------------------------------------------------


def sequential(
    name: str,
    *stages: Node[Any],
    see: Literal["previous", "all"] = "previous",
    gates: Mapping[str, Gate] | None = None,
    context: type[V] = Conversation,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[V]:
    """Let stages work one after the other.

    Args:
        name: the graph's name.
        stages: in their order.
        see: "previous" gives a stage what the one before it said, "all" what all before it said.
        gates: for some stages by name, a function from the state after it to why to stop there, or None to go on. The
            report is then partial, and its reason names the stage. One that raises fails the run, naming the gate.
        context: the class of the context.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is what the last stage said.

    Raises:
        UsageError: if there is no stage, two have one name, or an argument makes no sense.
    """
    where = checked_call("sequential", name, Conversation, context, options, see=see, gates=gates)
    names = members_of(where, "stages", stages)
    checks = dict(gates or {})
    unknown = next((stage for stage in checks if stage not in names), None)
    if unknown is not None:
        msg = f"{where}: gates: {unknown!r} is no stage; the stages are {', '.join(map(repr, names))}."
        raise UsageError(msg)
    chains: list[Chain[Any]] = [START >> stages[0]]
    taken: list[Node[Any]] = [*stages]
    for stage, after in zip(stages, (*stages[1:], None), strict=True):
        end: Any = END if after is None else after
        if stage.name not in checks and (see == "previous" or after is None):
            chains.append(stage >> end)
            continue
        noted = AfterStage(stage.name, see, checks.get(stage.name), after is None, where=where)
        between = own_node(f"after {stage.name}", noted, taken)
        taken.append(between)
        chains.append(stage >> between)
        chains.append(between >> END if after is None else between.choose(when(is_over, END), default=after))
    return team_graph(name, chains, context, options)


def parallel(
    name: str,
    *branches: Node[Any],
    join: Policy = ALL,
    losers: Literal["finish", "cancel"] = "finish",
    failure: FailurePolicy = "collect",
    synthesis: Node[Any] | None = None,
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Let members work on the same task side by side.

    Args:
        name: the graph's name.
        branches: in the order in which their reports stand, whoever is first.
        join: when to go on: `ALL`, `ANY`, `first(k)`, `quorum(k, within=...)`. One branch meets nobody.
        losers: what happens to those who are late.
        failure: "collect" lets the others finish, and the report says who failed; "fail_fast" stops them.
        synthesis: gets the joint report, and answers in its place.
        context: the class of the context; its first field is what is asked. Updates of the branches are merged by its
            reducers.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is a `TeamReport` with each member's report, or what the synthesis said.

    Raises:
        UsageError: if there is no branch, or there are fewer than the join waits for, two have one name, or an argument
            makes no sense.
    """
    where = checked_call(
        "parallel", name, Context, context, options, join=join, losers=losers, failure=failure, synthesis=synthesis
    )
    if join == STRICT:
        hint = "every branch is taken here anyway; to fail where one fails, say failure='fail_fast'"
        msg = f"{where}: join=STRICT: {hint}."
        raise UsageError(msg)
    extra = () if synthesis is None else (synthesis,)
    names = members_of(where, "branches", branches, extra)
    if join.count > len(names) or (len(names) == 1 and join.within is not None):
        msg = f"{where}: the join waits for {join}, and the team has {len(names)}: give more branches, or another join."
        raise UsageError(msg)
    taken: list[Node[Any]] = [*branches, *extra]
    together = own_node("together", Together(names, gathered=join != ALL and len(names) > 1), taken)
    end: Chain[Any] = together >> END if synthesis is None else together >> synthesis >> END
    if len(names) == 1:  # one branch meets nobody, so that no fork could collect its failure
        caught = [branches[0].on_error(together)] if failure == "collect" else []
        return team_graph(name, [START >> branches[0] >> together, *caught, end], context, options)
    if join == ALL:
        return team_graph(name, [START >> fork(*branches, failure=failure) >> together, end], context, options)
    gather = Join(unused("gather", [*taken, together]), join, losers=losers)
    taken += [together, gather]
    lanes: list[Chain[Any]] = []
    for branch in branches:  # a join gives on values alone, so each says first whose it is
        says = own_node(f"{branch.name} says", Says(branch.name), taken)
        taken.append(says)
        lanes.append(branch >> says)
    return team_graph(
        name, [START >> fork(*lanes, failure=failure) >> gather, gather >> together, end], context, options
    )


# --- conversations: round_robin, random, manual ----------------------------------------------------------------------


def round_robin(
    name: str,
    *members: Node[Any],
    turns: int,
    until: Until | None = None,
    allowed_transitions: Transitions | None = None,
    context: type[V] = Conversation,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[V]:
    """Let members speak in turn, beginning with the first; each sees all that was said.

    Args:
        name: the graph's name.
        members: in the order in which they speak.
        turns: how many turns there are in all. With `until` it is a bound: a conversation that is not over by then
            ends as exhausted.
        until: tells from the conversation whether it is over.
        allowed_transitions: who may follow whom; a rotation that breaks it is refused here.
        context: the class of the context.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is the last report, with the whole conversation.

    Raises:
        UsageError: if there is no member, two have one name, the rotation is not allowed, or a number makes no sense.
    """
    where = checked_call(
        "round_robin", name, Conversation, context, options,
        turns=turns, until=until, allowed_transitions=allowed_transitions,
    )  # fmt: skip
    names = members_of(where, "members", members)
    allowed = checked_transitions(where, names, allowed_transitions)
    checked_rotation(where, names, allowed)
    speaks = Rotate(names, teams_among(members), allowed)
    return _conversation(name, _floor(where, turns, until), speaks, members, turns, context, options)


def random(
    name: str,
    *members: Node[Any],
    turns: int = 1,
    seed: int | None = None,
    per: Literal["turn", "run"] = "turn",
    weights: Sequence[float] | None = None,
    until: Until | None = None,
    allowed_transitions: Transitions | None = None,
    context: type[V] = Conversation,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[V]:
    """Draw who speaks, by a seed that is recorded: the same seed gives the same path.

    Args:
        name: the graph's name.
        members: those who may be drawn.
        turns: how many turns there are in all; with `until` a bound, as in `round_robin`.
        seed: what the draws depend on, with the number of the turn; None takes one from the outside and records it.
        per: "turn" draws for each turn; "run" draws one member for all of them, as in a comparison of two.
        weights: how likely each member is, in their order; equal by default.
        until: tells from the conversation whether it is over.
        allowed_transitions: who may follow whom; the others are not drawn then.
        context: the class of the context.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is the last report, with the whole conversation; the context holds the seed.

    Raises:
        UsageError: if there is no member, two have one name, or an argument makes no sense.
    """
    where = checked_call(
        "random", name, Conversation, context, options,
        turns=turns, seed=seed, per=per, weights=weights, until=until, allowed_transitions=allowed_transitions,
    )  # fmt: skip
    names = members_of(where, "members", members)
    allowed = checked_transitions(where, names, allowed_transitions)
    odds = checked_odds(where, names, weights, per, allowed)
    speaks = Draw(names, teams_among(members), allowed, seed, per, odds)
    return _conversation(name, _floor(where, turns, until), speaks, members, turns, context, options)


def manual(
    name: str,
    *members: Node[Any],
    turns: int,
    decide: Decide | None = None,
    allowed_transitions: Transitions | None = None,
    context: type[V] = Conversation,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[V]:
    """Let your code, or a person, say who speaks next, until it ends the conversation.

    Args:
        name: the graph's name.
        members: those who may be named.
        turns: how many turns there may be; one more ends the run as exhausted.
        decide: names from the conversation who speaks next, or gives None to end it; sync or async. Without it a
            person is asked, who says one of the names, or "finish".
        allowed_transitions: who may follow whom.
        context: the class of the context.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is the last report, with the whole conversation.

    Raises:
        UsageError: if there is no member, two have one name, or an argument makes no sense; in the run, if `decide`
            names nobody who may speak.
    """
    where = checked_call(
        "manual", name, Conversation, context, options,
        turns=turns, decide=decide, allowed_transitions=allowed_transitions,
    )  # fmt: skip
    names = members_of(where, "members", members)
    allowed = checked_transitions(where, names, allowed_transitions)
    if decide is None and FINISH in names:
        msg = f"{where}: a member is called {FINISH!r}, which is what a person says to end it; give it another name."
        raise UsageError(msg)
    apart = teams_among(members)
    ruled, speaks = Directed(names, apart, allowed, decide, where=where), Named(names, apart, allowed)
    return _conversation(name, ruled, speaks, members, turns, context, options)


def _is_next(name: str) -> Holds:
    return Holds("speaker", name, f"{name!r} is next")


def _floor(where: str, turns: int, until: Until | None) -> Floor:
    return Floor(turns if until is None else None, until, where=where)


def _conversation(  # noqa: PLR0917 - the parts of every conversation
    name: str,
    notes: Floor | Directed,
    speaks: Rotate | Draw | Named,
    members: tuple[Node[Any], ...],
    turns: int,
    context: type[V],
    options: Options,
) -> Graph[V]:
    """Return the graph of a conversation: `floor` and `next_speaker`, and the edge between them that bounds it."""
    following = own_node("next_speaker", speaks, members)
    floor = own_node("floor", notes, (*members, following))
    chains = [
        START >> floor,
        floor.choose(when(goes_on, following, max_hops=turns, bound="turns"), default=END),
        following.choose(*(when(_is_next(member.name), member) for member in members), default=END),
        *(member >> floor for member in members),
    ]
    return team_graph(name, chains, context, options)


# --- plan_execute ----------------------------------------------------------------------------------------------------


def plan_execute(
    name: str,
    planner: Node[Any],
    *workers: Node[Any],
    tools: Sequence[Tool | Callable[..., Any]] = (),
    max_steps: int = 8,
    max_replans: int = 2,
    verify: Node[Any] | None = None,
    synthesis: Node[Any] | None = None,
    context: type[PlannedTask] = PlannedTask,
    **options: Unpack[Options],
) -> Graph[PlannedTask]:
    """Let a planner write a plan, carry its steps out, and plan again where something went wrong.

    A plan that cannot be right is never run: its planner gets every error at once. Steps that do not need each other
    run side by side; what is finished is kept when the planner plans again.

    Args:
        name: the graph's name.
        planner: gives a `Plan`: an agent with `output=Plan`, or a function.
        workers: those who may do steps; each gets a `StepBrief`, and the reports of the steps that it needs.
        tools: functions that a step may call with its `arguments`.
        max_steps: how many steps each worker may do in all.
        max_replans: how often the planner may plan again; once more ends the run as exhausted.
        verify: gets the joint report and gives True or False, a `Verdict`, or a report; what it does not accept goes
            back to the planner.
        synthesis: gets the joint report, and answers in its place.
        context: the class of the context.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is a `TeamReport` with each step's report, or what the synthesis said.

    Raises:
        UsageError: if there is no worker, two nodes have one name, or an argument makes no sense.
    """
    where = checked_call(
        "plan_execute", name, PlannedTask, context, options,
        planner=planner, tools=tools, max_steps=max_steps, max_replans=max_replans, verify=verify, synthesis=synthesis,
    )  # fmt: skip
    checked_planner(where, planner)
    checked_verifier(where, "verify", verify)
    team = (*workers, *tool_workers(where, tools))
    others = [node for node in (planner, verify, synthesis) if node is not None]
    members_of(where, "workers and tools", team, others)
    taken: list[Node[Any]] = [*others, *team]
    execute = own_node("execute", Execute(tuple(worker.name for worker in team)), taken)
    again = own_node("replan", replan, [*taken, execute], max_visits=max(1, max_replans))
    end: Any = END if synthesis is None else synthesis
    chains: list[Chain[Any]] = [
        START >> planner >> execute,
        execute.delegates(*team, max_hops=max_steps, brief=StepBrief),
        execute.choose(
            when(needs_a_plan, again, max_hops=max_replans, bound="max_replans"),
            default=end if verify is None else verify,
        ),
        again >> planner,
    ]
    if verify is not None:
        verdict = own_node("verdict", judge, [*taken, execute, again])
        chains += [
            verify >> verdict,
            verdict.choose(when(needs_a_plan, again, max_hops=max_replans, bound="max_replans"), default=end),
        ]
    if synthesis is not None:
        chains.append(synthesis >> END)
    return team_graph(name, chains, context, options)
