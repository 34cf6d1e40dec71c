"""Ready-made teams beyond the nine strategies, each a function that returns an ordinary graph.

Like the strategies, they take any nodes as members: agents, functions, people, graphs, other teams. Each has a finite
worst case, and a run that reaches a bound ends as exhausted, never as completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from typing_extensions import TypeVar, Unpack

from graphflow.errors import UsageError
from graphflow.graphs.arguments import (
    check,
    checked_call,
    gives_items,
    instance,
    members_of,
    names_one,
    optional,
    texts,
)
from graphflow.graphs.building import Options, own_node, team_graph
from graphflow.graphs.citing import Checks, Cited, CitedReport, Takes, cite_again, is_wrong
from graphflow.graphs.conversation import Holds, Task, begins_with_text
from graphflow.graphs.effort import (
    Always,
    Assignment,
    Concludes,
    Effort,
    EffortPolicy,
    EffortReport,
    Sizes,
    Tier,
    WorkBrief,
    overlap,
    sizing_agent,
    tier_graphs,
)
from graphflow.graphs.graph import Graph
from graphflow.graphs.hierarchy import Makes, Team, led
from graphflow.graphs.planning import Verdict, checked_verifier
from graphflow.graphs.rounds import (
    Debate,
    Drafts,
    Items,
    MoreRounds,
    Note,
    Splits,
    ask_again,
    close_round,
    given_items,
    is_rejected,
    is_renamed,
    judge_draft,
    numbered,
    open_round,
    told,
    told_again,
    with_task,
)
from graphflow.graphs.routes import Rule
from graphflow.model.context import Context
from graphflow.model.state import State
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import END, START, Node
from graphflow.nodes.client import ModelClient
from graphflow.nodes.edges import Chain, FailurePolicy, fork, when

__all__ = (
    "Assignment",
    "Cited",
    "CitedReport",
    "Debate",
    "Drafts",
    "Effort",
    "EffortPolicy",
    "EffortReport",
    "Items",
    "Tier",
    "Verdict",
    "WorkBrief",
    "citation_pass",
    "debate",
    "evaluator_optimizer",
    "hierarchy",
    "map_reduce",
    "orchestrator_workers",
    "overlap",
)

C = TypeVar("C", bound=Context, default=Task)
E = TypeVar("E", bound=Effort, default=Effort)
D = TypeVar("D", bound=Debate, default=Debate)
W = TypeVar("W", bound=Drafts, default=Drafts)
T = TypeVar("T", bound=Cited, default=Cited)


# --- who leads whom: hierarchy, orchestrator_workers -----------------------------------------------------------------


def hierarchy(
    name: str,
    team: Team,
    *,
    model: ModelClient | str | None = None,
    max_calls: int = 1,
    max_turns: int = 10,
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Let supervisors lead supervisors, to any depth.

    The supervisor at the top stands in the graph itself; each one below leads a graph of its own, named after it. So
    a name needs to be different in its own team alone, and what a supervisor may ask is counted anew for each task.

    Args:
        name: the graph's name.
        team: a mapping from the supervisor at the top to its team: a list of members, or a mapping again. A
            supervisor is an agent, a function that returns `Delegate`, or a name; a member is any node, or a name.
        model: the model of the agents that are made of names.
        max_calls: how often each supervisor may ask each member of its team, for one task.
        max_turns: how often an agent that is made of a name may ask its model, for one task.
        context: the class of the context; its first field is what is asked.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is what the supervisor at the top said.

    Raises:
        UsageError: if the mapping has not one supervisor at the top, two in one team have one name, or an argument
            makes no sense.

    >>> from graphflow import run_sync
    >>> from graphflow.testing import RuleModel, call
    >>> model = RuleModel(
    ...     (lambda request: request.agent == "chief" and request.turn == 0, call("ask_desk", objective="?")),
    ...     otherwise="It was paid twice.",
    ... )
    >>> graph = hierarchy("company", {"chief": [{"desk": ["billing", "shipping"]}, "press"]}, model=model)
    >>> run_sync(graph, Task(task="Was INV-311 paid twice?")).output
    'It was paid twice.'
    """
    where = checked_call(
        "hierarchy", name, Context, context, options, team=team, model=model, max_calls=max_calls, max_turns=max_turns
    )
    below: type[Context] = context if begins_with_text(context) else Task
    chains = led(Makes(where, model, max_turns), team, max_calls, below)
    return team_graph(name, chains, context, options)


def orchestrator_workers(
    name: str,
    lead: Node[Any],
    *workers: Node[Any],
    policy: EffortPolicy | None = None,
    tier: Rule | Node[Any] | None = None,
    context: type[E] = Effort,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[E]:
    """Let a lead divide a task among workers as it sees fit, within the effort that the task is worth.

    The lead says what it wants of whom while it runs, as often as its tier allows; more is refused, and it answers with
    what it has. The answer is its own: no worker's report is the output.

    Args:
        name: the graph's name.
        lead: an agent, which gets a tool `ask_workers`; or a function that delegates a `WorkBrief` to "workers".
        workers: those who may be asked. An agent may make as many calls of tools as its tier allows, and one more of
            its model than that; what another node spends is capped likewise.
        policy: the tiers; `EffortPolicy()` by default.
        tier: names the tier: a function from the state to a text, or a node whose output is the text. Without it the
            lead's model is asked once before it begins, or, where the lead is no agent, the fallback of the policy
            holds. A node's text that names no tier, or several, means the fallback too; with a function the run fails.
        context: the class of the context, which holds the tier and what was asked of whom.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is an `EffortReport`: the lead's answer, the tier, what was asked of whom, and which of
        that overlaps.

    Raises:
        UsageError: if there is no worker, two nodes have one name, the lead is a graph, or an argument makes no sense.
    """
    where = checked_call("orchestrator_workers", name, Effort, context, options, lead=lead, policy=policy, tier=tier)
    chooser = cast("Node[Any]", tier) if isinstance(tier, Node) else None
    first = () if chooser is None else (chooser,)
    members_of(where, "workers", workers, (*first, lead))
    if isinstance(lead, Graph):
        msg = f"{where}: lead={lead!r}: a graph has nobody that delegates from outside; give an agent or a function."
        raise UsageError(msg)
    check(where, "policy", policy, optional(instance(EffortPolicy, "an EffortPolicy")))
    rule = cast("Rule | None", tier if chooser is None else None)
    check(where, "tier", rule, optional(names_one))
    rules = EffortPolicy() if policy is None else policy
    taken: list[Node[Any]] = [*first, lead, *workers]
    if tier is None and isinstance(lead, Agent):
        chooser = sizing_agent(own_node("effort", with_task, taken).name, lead, rules)
        taken.append(chooser)
    if chooser is None and rule is None:
        rule = Always(rules.tier("").name)
    sizes = own_node("tier", Sizes(rules, rule, where=where), taken)
    ends = own_node("answer", Concludes(lead.name), [*taken, sizes])
    taken += [sizes, ends]
    graphs = list(tier_graphs(lead, workers, rules, context, taken))
    otherwise = next(graph for row, graph in graphs if row == rules.tier(""))
    others = [
        when(Holds("tier", row.name, f"tier {row.name!r}"), graph) for row, graph in graphs if graph is not otherwise
    ]
    chains: list[Chain[Any]] = [
        START >> sizes if chooser is None else START >> chooser >> sizes,
        sizes.choose(*others, default=otherwise) if others else sizes >> otherwise,
        *(graph >> ends for _, graph in graphs),
        ends >> END,
    ]
    return team_graph(name, chains, context, options)


# --- many parts, one result: map_reduce, debate ----------------------------------------------------------------------


def map_reduce(
    name: str,
    split: Node[Any] | Callable[[State[Any]], Sequence[Any]],
    worker: Node[Any],
    reduce: Node[Any] | None = None,
    *,
    max_items: int = 20,
    failure: FailurePolicy = "collect",
    context: type[C] = Task,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[C]:
    """Split a task into parts, let a worker do each of them side by side, and put together what comes of them.

    Args:
        name: the graph's name.
        split: a pure function from the state to the parts: a sequence, or `Items`; or a node that gives them, as a
            text with a line for each too.
        worker: does one part.
        reduce: gets the joint report, and answers in its place.
        max_items: how many parts there may be; more end the run as exhausted, before any of them is done.
        failure: "collect" lets the others finish, and the report says which part failed; "fail_fast" stops them.
        context: the class of the context; its first field is what is asked.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is a `TeamReport` with a report for each part, in their order, or what `reduce` said.

    Raises:
        UsageError: if two nodes have one name, or an argument makes no sense.
    """
    where = checked_call(
        "map_reduce", name, Context, context, options,
        split=split, worker=worker, reduce=reduce, max_items=max_items, failure=failure,
    )  # fmt: skip
    splits = cast("Node[Any]", split) if isinstance(split, Node) else None
    if splits is None:
        check(where, "split", split, gives_items)
    nodes = [node for node in (splits, worker, reduce) if node is not None]
    members_of(where, "members", tuple(nodes))
    together = own_node("together", numbered, nodes)
    nodes.append(together)
    source: Any = START if splits is None else splits
    over = Splits(where, cast("Any", split)) if splits is None else given_items
    lane = told(worker, nodes)
    chains: list[Chain[Any]] = [] if splits is None else [START >> splits]
    chains += [
        source.map(lane, over=over, join=together, max_items=max_items, failure=failure),
        together >> END if reduce is None else together >> told(reduce, nodes) >> END,
    ]
    return team_graph(name, chains, context, options)


def debate(
    name: str,
    *debaters: Node[Any],
    judge: Node[Any],
    rounds: int = 2,
    failure: FailurePolicy = "collect",
    context: type[D] = Debate,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[D]:
    """Let debaters speak in rounds, all at once, and a judge answer in the end.

    Nobody sees what the others say in the same round, and everybody what was said in those before it.

    Args:
        name: the graph's name.
        debaters: in the order in which the judge reads them.
        judge: gets everything that was said, and answers.
        rounds: how many rounds there are.
        failure: "collect" lets the others speak when one fails, "fail_fast" ends the debate.
        context: the class of the context, which holds what was said.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is what the judge said.

    Raises:
        UsageError: if there are fewer than two debaters, two nodes have one name, or an argument makes no sense.
    """
    where = checked_call("debate", name, Debate, context, options, judge=judge, rounds=rounds, failure=failure)
    members_of(where, "debaters", debaters, (judge,), least=2)
    taken: list[Node[Any]] = [*debaters, judge]
    opens, closes = own_node("open_round", open_round, taken), own_node("close_round", close_round, taken)
    taken += [opens, closes]
    branches = [told(debater, taken) for debater in debaters]
    last = told(judge, taken)
    head = cast("Node[Any]", last.head) if isinstance(last, Chain) else last
    chains: list[Chain[Any]] = [START >> opens >> fork(*branches, failure=failure) >> closes, last >> END]
    if rounds == 1:
        chains.append(closes >> head)
    else:
        chains.append(closes.choose(when(MoreRounds(rounds), opens, max_hops=rounds - 1), default=head))
    return team_graph(name, chains, context, options)


# --- looked at by somebody else: evaluator_optimizer, citation_pass --------------------------------------------------


def evaluator_optimizer(
    name: str,
    author: Node[Any],
    verifier: Node[Any],
    *,
    max_rounds: int = 3,
    context: type[W] = Drafts,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[W]:
    """Let an author write, somebody else verify, and the author write again with the reasons, until it is accepted.

    Args:
        name: the graph's name.
        author: writes the draft.
        verifier: gets the draft, and gives True or False, a `Verdict`, or a report; an agent has `output=Verdict`.
        max_rounds: how many drafts there may be; when the last of them is not accepted, the run ends as exhausted.
        context: the class of the context, which holds the drafts and the verdict.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is a `TeamReport`: that of the accepted draft, with those before it.

    Raises:
        UsageError: if the verifier is the author, or answers with a text, or an argument makes no sense.
    """
    where = checked_call(
        "evaluator_optimizer", name, Drafts, context, options, author=author, verifier=verifier, max_rounds=max_rounds
    )
    if author.name == verifier.name or is_renamed(author, verifier):
        msg = (
            f"{where}: author={author!r}, verifier={verifier!r}: nobody accepts work of their own; give another node "
            f"with another name, instructions of its own or another model."
        )
        raise UsageError(msg)
    checked_verifier(where, "verifier", verifier)
    taken: list[Node[Any]] = [author, verifier]
    note = own_node("draft", Note(author.name), taken)
    verdict = own_node("verdict", judge_draft, [*taken, note])
    again = own_node("revise", ask_again, [*taken, note, verdict])
    taken += [note, verdict, again]
    chains: list[Chain[Any]] = [
        START >> author >> note >> told(verifier, taken) >> verdict,
        verdict.choose(when(is_rejected, again, max_hops=max_rounds - 1, bound="max_rounds"), default=END),
        told_again(again, author, taken),
    ]
    return team_graph(name, chains, context, options)


def citation_pass(
    name: str,
    author: Node[Any],
    citer: Node[Any] | None = None,
    *,
    evidence: Iterable[str] = (),
    least: float = 1.0,
    max_repairs: int = 2,
    context: type[T] = Cited,  # type: ignore[assignment]  # the variable's own default
    **options: Unpack[Options],
) -> Graph[T]:
    """Let somebody put behind each claim of a text the id of what supports it, and change nothing else.

    The ids that may be used are those that stand as evidence in the author's report, and in the reports that it is
    made from. A text that was changed, an id that nobody knows, and too few claims that are cited go back to who cites.

    Args:
        name: the graph's name.
        author: gives the text: a report with its evidence.
        citer: writes the text again, with the ids in brackets; without it the text is checked as the author wrote it.
            An agent gets no text of more than 16,000 characters whole, and so cannot cite a longer one.
        evidence: further ids that may be used.
        least: which share of the claims must be cited, from 0 to 1.
        max_repairs: how often it may go back; when it is still wrong then, the run ends as exhausted.
        context: the class of the context, which holds the text, the ids and what was wrong.
        options: passed on to `Graph`.

    Returns:
        A graph whose output is a `CitedReport` with the coverage and the claims that are not cited. Without a `citer`
        it is partial where something is wrong.

    Raises:
        UsageError: if the two have one name, or an argument makes no sense.
    """
    where = checked_call(
        "citation_pass", name, Cited, context, options,
        author=author, citer=citer, evidence=evidence, least=least, max_repairs=max_repairs,
    )  # fmt: skip
    nodes: list[Node[Any]] = [node for node in (author, citer) if node is not None]
    members_of(where, "members", tuple(nodes))
    ids = tuple(evidence)
    check(where, "evidence", ids, texts)
    takes = own_node("text", Takes(ids, asks=citer is not None), nodes)
    checks = own_node("citations", Checks(float(least)), nodes)
    nodes += [takes, checks]
    if citer is None:
        return team_graph(name, [START >> author >> takes >> checks >> END], context, options)
    again = own_node("repair", cite_again, nodes)
    chains: list[Chain[Any]] = [
        START >> author >> takes >> citer >> checks,
        checks.choose(when(is_wrong, again, max_hops=max_repairs, bound="max_repairs"), default=END),
        again >> citer,
    ]
    return team_graph(name, chains, context, options)
