"""How much effort a task is worth: tiers that bound how many workers a lead may ask, and what each may do.

A tier is a graph of its own, with the lead and the workers in it. Its bounds are those of the tier, so that no prompt
has to be believed. Between the lead and its workers stands a node that notes each brief and hands it over; the edge to
it counts the workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict

from graphflow.errors import UsageError
from graphflow.graphs.arguments import check, doubled, number
from graphflow.graphs.blaming import UNMARKED, Blaming
from graphflow.graphs.building import own_node, unused
from graphflow.graphs.conversation import Task, said_by
from graphflow.graphs.graph import Graph
from graphflow.graphs.routes import Rule, route_of
from graphflow.model.budget import Budget
from graphflow.model.context import append
from graphflow.model.contract import Brief, Reason, Report
from graphflow.model.outcome import NOTHING, Done, Handoff, Update
from graphflow.model.state import State
from graphflow.model.telling import value_text
from graphflow.model.thread import words_of
from graphflow.nodes.agent import Agent, said_of
from graphflow.nodes.base import END, START, Node
from graphflow.nodes.human import Human

ALIKE: Final = 0.8
"""The share of words that two briefs have in common, from which on they ask for the same."""


@dataclass(frozen=True)
class Tier:
    """One row of an `EffortPolicy`.

    Attributes:
        name: what the tier is called by.
        workers: how many workers the lead may ask in all; one more is refused.
        calls: how many calls of tools each of them may make.
        least_workers: how many the lead is advised to ask at least.
        least_calls: how many calls a worker is expected to make at least.
        about: which tasks it is for, for who chooses among the tiers.
        tokens: how many tokens each worker may take, or None.

    Raises:
        UsageError: if a number makes no sense.
    """

    name: str
    workers: int
    calls: int
    least_workers: int = 1
    least_calls: int = 0
    about: str = ""
    tokens: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        name: object = self.name
        if not isinstance(name, str) or not name:
            msg = f"Tier({name!r}): a name is needed, any text but the empty one."
            raise UsageError(msg)
        where = f"Tier({self.name!r})"
        for bound, given, least in (
            ("workers", self.workers, 1), ("calls", self.calls, 0),
            ("least_workers", self.least_workers, 0), ("least_calls", self.least_calls, 0),
        ):  # fmt: skip
            check(where, bound, given, number(least))
        if self.tokens is not None:
            check(where, "tokens", self.tokens, number(1))
        for what, least, most in (
            ("workers", self.least_workers, self.workers), ("calls", self.least_calls, self.calls),
        ):  # fmt: skip
            if least > most:
                msg = (
                    f"{where}: least_{what}={value_text(least)}, {what}={value_text(most)}: the least is more than "
                    "the most."
                )
                raise UsageError(msg)

    @property
    def advice(self) -> str:
        """What its lead is told."""
        workers = _range(self.least_workers, self.workers, "worker")
        calls = _range(self.least_calls, self.calls, "call")
        divide = " Divide the work: no two of them are asked for the same." if self.workers > 1 else ""
        return f"The effort for this is {self.name!r}: {workers}, with {calls} of tools each.{divide}"


def _range(least: int, most: int, noun: str) -> str:
    many = f"{noun}s" if most != 1 else noun
    return f"{most} {many}" if least == most else f"{least} to {most} {many}" if least else f"at most {most} {many}"


TIERS: Final = (
    Tier("simple", workers=1, calls=10, least_calls=3, about="one fact is to be found"),
    Tier("comparison", workers=4, calls=15, least_workers=2, least_calls=10, about="a few things are compared"),
    Tier("complex", workers=10, calls=15, least_workers=5, least_calls=10, about="work to be divided among many"),
)
"""The tiers of an `EffortPolicy` that gives none of its own."""


@dataclass(frozen=True)
class EffortPolicy:
    """How much effort each kind of task is worth. What it says is enforced while the team runs.

    Attributes:
        tiers: the rows, the least effort first.
        fallback: the tier of a task for which none was named; "" for the first.

    Raises:
        UsageError: if there is no tier, two have one name, or the fallback is none of them.

    >>> EffortPolicy().tier("simple").workers
    1
    """

    tiers: tuple[Tier, ...] = TIERS
    fallback: str = ""

    def __post_init__(self) -> None:
        """Check the rows."""
        rows: object = self.tiers
        given = tuple(cast("Sequence[object]", rows)) if isinstance(rows, list | tuple) else (rows,)
        names = [tier.name for tier in given if isinstance(tier, Tier)]
        double = doubled(names)
        if not given or len(names) < len(given):
            wrong = (
                f"tiers={value_text(rows)}: a list of tiers is needed, at least one, as "
                f"[Tier('small', workers=1, calls=5)]"
            )
        elif double is not None:
            wrong = f"tiers={value_text(rows)}: two tiers are called {double!r}; give one another name"
        elif self.fallback and self.fallback not in names:
            wrong = f"fallback={value_text(self.fallback)}: it is one of the tiers, {', '.join(map(repr, names))}"
        else:
            wrong = ""
        if wrong:
            msg = f"EffortPolicy: {wrong}."
            raise UsageError(msg)
        object.__setattr__(self, "tiers", given)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tiers."""
        return tuple(tier.name for tier in self.tiers)

    def tier(self, name: str) -> Tier:
        """Return the tier of a name, or the fallback."""
        known = {tier.name: tier for tier in self.tiers}
        return known.get(name) or known.get(self.fallback) or self.tiers[0]


# --- what crosses, and what is noted ---------------------------------------------------------------------------------


class WorkBrief(Brief):
    """What a lead asks of a worker.

    Attributes:
        worker: which of the workers is asked; it may be left out where there is one alone.
    """

    worker: str = ""


class Assignment(BaseModel):
    """A brief that a worker got.

    Attributes:
        worker: who got it.
        objective: what was asked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    worker: str
    objective: str


def unless_refused(reports: tuple[Report, ...], new: Report) -> tuple[Report, ...]:
    """Add a report to others, unless it says that a bound refused to ask."""
    refused = new.reason is not None and new.reason.code in {"max_hops", "max_depth"}
    return reports if refused else (*reports, new)


class Effort(Task):
    """A task that a lead divides among workers.

    Attributes:
        tier: how much effort it is worth.
        assigned: the briefs that were given out.
        reports: what came back, without refusals.
    """

    tier: str = ""
    assigned: Annotated[tuple[Assignment, ...], append] = ()
    reports: Annotated[tuple[Report, ...], unless_refused] = ()


class EffortReport(Report):
    """A lead's report.

    Attributes:
        tier: how much effort the task was worth.
        assigned: the briefs that were given out.
        overlaps: pairs of places in `assigned`, from 0, of briefs that ask for the same.
    """

    tier: str = ""
    assigned: tuple[Assignment, ...] = ()
    overlaps: tuple[tuple[int, int], ...] = ()


_WORD: Final = re.compile(r"\w+(?:[-_.:/]\w+)*")


def overlap(briefs: Sequence[Brief | str], least: float = ALIKE) -> tuple[tuple[int, int], ...]:
    """Return the pairs of briefs that ask for the same: places in the sequence, from 0.

    Two do where they share most of their words, and not each of them has a name or a number that the other has not.

    Args:
        briefs: briefs, or their objectives.
        least: the share of common words from which on they count.

    >>> overlap(["Revenue of Acme in 2023", "The revenue of Acme in 2023", "Revenue of Bolt in 2023"])
    ((0, 1),)
    """
    texts = [one if isinstance(one, str) else one.objective for one in briefs]
    words = [frozenset(_WORD.findall(text.casefold())) for text in texts]
    names = [_names(text) for text in texts]
    found = range(len(texts))
    return tuple((a, b) for a, b in combinations(found, 2) if _alike(words[a], words[b], names[a], names[b], least))


def _alike(
    one: frozenset[str], other: frozenset[str], names: frozenset[str], others: frozenset[str], least: float
) -> bool:
    every = one | other
    return bool(every) and len(one & other) / len(every) >= least and not (names - other and others - one)


def _names(text: str) -> frozenset[str]:
    """Return the words of a text that tell one thing from another: with a digit, or a capital letter within it."""
    found = [(word, at) for at, word in enumerate(_WORD.findall(text))]
    return frozenset(
        word.casefold()
        for word, at in found
        if any(letter.isdigit() for letter in word) or (at > 0 and any(letter.isupper() for letter in word))
    )


# --- its nodes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Note which tier a task has.

    Attributes:
        policy: the tiers.
        rule: names one from the state; None where what arrived does.
        where: how errors name the call that made the team.
    """

    policy: EffortPolicy
    rule: Rule | None
    where: str = field(default="", kw_only=True, metadata=UNMARKED)

    async def __call__(self, state: State[Effort]) -> Done:
        """Read the name, and tell the lead what the tier allows.

        Raises:
            UsageError: if the rule names no tier, or several.
        """
        value = state.values[0] if state.values and self.rule is None else NOTHING
        with Blaming(self.where, "tier", self.rule):
            said = words_of(value if self.rule is None else self.rule(state))
            name = route_of(said, self.policy.names)
            if name is None and self.rule is not None:
                known = ", ".join(map(repr, self.policy.names))
                msg = (
                    f"tier gave {value_text(said)}: a function names one of {known}; add a Tier of that name, or "
                    "correct it."
                )
                raise UsageError(msg)
        tier = self.policy.tier(name or "")
        return Done(tier.advice, update=Update(tier=tier.name))


@dataclass(frozen=True)
class Always:
    """A rule that names the same for every task.

    Attributes:
        name: what it names.
    """

    name: str

    def __call__(self, _: State[Any]) -> str:
        """Name it."""
        return self.name


@dataclass(frozen=True)
class Assign:
    """Note a brief, and hand it over to the worker that it is for.

    Attributes:
        names: the workers.
    """

    names: tuple[str, ...]

    async def __call__(self, state: State[Effort]) -> Handoff | Done | Report:
        """Hand the brief over, or say who there is."""
        brief = state.brief
        if brief is None:
            return Done(state.values[0] if state.values else NOTHING)  # a person gives control back, with the answer
        wanted = getattr(brief, "worker", "")
        name = self.names[0] if len(self.names) == 1 else route_of(wanted, self.names)
        if name is None:
            known = ", ".join(map(repr, self.names))
            text = f"worker={value_text(wanted)} names none of the workers, or several; they are {known}."
            return Report.failed(Reason(code="unknown_target", text=text))
        return Handoff(name, brief, update=Update(assigned=Assignment(worker=name, objective=brief.objective)))


@dataclass(frozen=True)
class Concludes:
    """Give a lead's answer, with what was asked of whom.

    Attributes:
        lead: the lead's name.
    """

    lead: str

    async def __call__(self, state: State[Effort]) -> EffortReport:
        """Take the answer as it is; it is the lead's own."""
        context = state.context
        report = said_by(self.lead, state.values[0] if state.values else NOTHING).report
        return EffortReport(
            **{name: getattr(report, name) for name in Report.model_fields},
            tier=context.tier,
            assigned=context.assigned,
            overlaps=overlap([one.objective for one in context.assigned]),
        )


# --- workers and leads of a tier -------------------------------------------------------------------------------------


def sizing_agent(name: str, lead: Agent, policy: EffortPolicy) -> Agent:
    """Return an agent with a lead's model that says which tier a task has, and nothing else."""
    rows = "; ".join(f"{tier.name}{': ' if tier.about else ''}{tier.about}" for tier in policy.tiers)
    told = f"How much effort is the task worth? Do not solve it. Answer with one of these names alone: {rows}."
    return Agent(
        name, model=lead.model, fallbacks=lead.fallbacks, instructions=told, retries=lead.retries,
        max_turns=2, max_tool_calls=0, max_tokens=lead.max_tokens, decision=lead.decision,
    )  # fmt: skip


def bounded(worker: Node[Any], tier: Tier, context: type[Effort]) -> Node[Any]:
    """Return a worker that can do no more than a tier allows: as many calls of tools, and one more of its model.

    An agent is told that a call is one too many, and answers. Any other node gets a graph around it that caps what it
    spends. Bounds of the worker's own that are less stay.
    """
    if isinstance(worker, Agent):
        copy = worker.named(worker.name)
        turns = tier.calls + 1 + worker.repairs
        object.__setattr__(copy, "max_tool_calls", min(worker.max_tool_calls, tier.calls))
        object.__setattr__(copy, "max_turns", min(worker.max_turns, turns))
        if tier.tokens is None:
            return copy
        worker = copy
    if isinstance(worker, Human):
        return worker
    counts = {} if isinstance(worker, Agent) else {"model_calls": tier.calls + 1, "tool_calls": tier.calls}
    cap = Budget(**counts, tokens=tier.tokens)
    return Graph(worker.name, START >> worker >> END, context=context, budget=cap, description=said_of(worker))


def _about(workers: Sequence[Node[Any]]) -> str:
    """Say who can be asked, for the lead; and for a worker, what is not asked for."""
    if len(workers) == 1:
        return said_of(workers[0]) or workers[0].name
    words = [(worker.name, said_of(worker)) for worker in workers]
    return "; ".join(f"{name}: {said}" if said else name for name, said in words)


def tier_graphs(
    lead: Node[Any], workers: Sequence[Node[Any]], policy: EffortPolicy, context: type[Effort], taken: list[Node[Any]]
) -> Iterator[tuple[Tier, Graph[Any]]]:
    """Yield the graph of each tier, in their order."""
    members = [lead, *workers]
    names = tuple(worker.name for worker in workers)
    about = _about(workers)
    for tier in policy.tiers:
        team = [bounded(worker, tier, context) for worker in workers]
        assign = own_node("workers", Assign(names), members, description=about)
        graph = Graph(
            unused(tier.name, taken),
            START >> lead >> END,
            lead.delegates(assign, max_hops=tier.workers, into="reports", brief=WorkBrief),
            assign.hands_off(*team, max_hops=tier.workers),
            context=context,
            description=tier.about,
        )
        taken.append(graph)
        yield tier, graph
