"""`rehearse`: many runs of a graph with stand-ins, in virtual time."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from graphflow.errors import UsageError
from graphflow.events import EDITION, RunStarted
from graphflow.graphs.building import is_added
from graphflow.graphs.checks import require_runnable
from graphflow.graphs.graph import Graph
from graphflow.graphs.pricing import Prices, places_of, prices_of
from graphflow.model.budget import ADDITIVE, Budget
from graphflow.model.context import Context
from graphflow.model.frozen import FrozenDict
from graphflow.nodes.agent import Agent
from graphflow.nodes.base import Node
from graphflow.nodes.client import Price, checked_price
from graphflow.nodes.function import FunctionNode
from graphflow.nodes.human import Human
from graphflow.nodes.tools import Tool
from graphflow.rehearsal.distributions import said
from graphflow.rehearsal.planned import is_plan, is_verdict, workers_behind
from graphflow.rehearsal.results import Rehearsal, Sample
from graphflow.rehearsal.settings import Names, Settings, StandIn, settings
from graphflow.rehearsal.stage import Stage
from graphflow.rehearsal.standins import StandIns
from graphflow.rehearsal.steering import NEARLY_ALL, who_steers
from graphflow.runtime.asking import manner_of
from graphflow.runtime.backends import cancelled_classes, in_a_loop

C = TypeVar("C", bound=Context)

BACKENDS: Final = ("asyncio", "trio")

MOST_WHOLE: Final = 10**100
"""The largest whole number that makes sense."""

MOST_PRICE: Final = Decimal(1000)
"""The highest price of a token, in US dollars."""

THEIRS: Final = "graphflow.nodes.providers.agents"
"""Where the bodies come from that are agents of another library."""


async def rehearse(
    graph: Graph[C],
    context: C,
    *,
    runs: int = 1000,
    seed: int = 0,
    budget: Budget | None = None,
    max_parallel: int | None = None,
    price: Price | None = None,
    stand_ins: Mapping[str, StandIn] | None = None,
    resources: Sequence[object] = (),
    **given: Any,
) -> Rehearsal:
    """Run a graph many times with stand-ins for models, tools and people, in virtual time.

    Nothing is sent and nothing is spent: no model is asked, no tool is run, no server is started, no person is
    disturbed, and no effect of a function is done. The bodies of functions do run, for they are where the graph goes:
    what one does outside without `step.effect` really happens, and its own clock and its own random numbers are not
    under control. A function that is declared `irreversible` is not run; it needs a stand-in.

    The same seed gives the same samples, however many runs there are, in every process and on both backends.

    Args:
        graph: what is run.
        context: what its nodes see first.
        runs: how many runs.
        seed: what everything is drawn from.
        budget: replaces the dimensions that it names of the graph's own budget.
        max_parallel: how many bodies may work at once, or None for no limit.
        price: what a token costs, for every model; by default what the models of the graph say.
        stand_ins: functions by name. For an agent: from a `ModelRequest` to what its model says, as in a
            `ScriptedModel`. For a function: from the state to its outcome. For a tool: from its arguments to its
            result. For a person: from the question to the answer. For an effect: from its arguments to its result;
            without one, a value is drawn by the annotation of what the effect's function returns.
        resources: what `step.resource` finds: nothing that reaches outside.
        given: latency, tokens, input_tokens, tool_latency, tool_tokens, people_latency, choices, failure_rate,
            tool_failure_rate, approval_rate: see `settings` in `graphflow.rehearsal.settings`. A distribution is a
            value, a number, a text such as "lognormal:2,0.6", samples, or a table of these by name.

    Raises:
        GraphProblems: if the graph has errors.
        UsageError: if something makes no sense, or cannot be stood in for.
    """
    made = functools.partial(
        _Stages, graph, context, runs=runs, seed=seed, budget=budget, max_parallel=max_parallel, price=price,
        resources=resources, stand_ins=stand_ins, given=given,
    )  # fmt: skip
    stages = await anyio.to_thread.run_sync(made)  # beside the loop: checks take a while, and providers load much
    return await stages.play()


def rehearse_sync(graph: Graph[C], context: C, *, backend: str = "asyncio", **options: Any) -> Rehearsal:
    """Rehearse from code that is not async; `backend` is "asyncio" or "trio", the rest as in `rehearse`.

    Raises:
        UsageError: also when there is no such backend, or when it is called from async code, which awaits `rehearse`
            instead.

    >>> from graphflow import END, START, Agent
    >>> from graphflow.testing import ScriptedModel
    >>> class Question(Context):
    ...     text: str
    >>> desk = Agent("desk", model=ScriptedModel())
    >>> graph = Graph("one", START >> desk >> END, context=Question)
    >>> found = rehearse_sync(graph, Question(text="Why?"), runs=3, latency="2")
    >>> found.numbers("seconds"), found.numbers("model_calls")
    ((2.0, 2.0, 2.0), (1, 1, 1))
    """
    if in_a_loop():
        msg = "rehearse_sync(...) was called where an event loop is running: write `await rehearse(...)` there."
        raise UsageError(msg)
    if backend not in BACKENDS:
        msg = f"rehearse_sync(backend={said(backend)}): {' or '.join(map(repr, BACKENDS))} is needed."
        raise UsageError(msg)
    if importlib.util.find_spec(backend) is None:
        msg = f"rehearse_sync(backend={backend!r}): it is not installed; install it, or leave it at {BACKENDS[0]!r}."
        raise UsageError(msg)
    return anyio.run(functools.partial(rehearse, graph, context, **options), backend=backend)


class _Stages:
    """All runs of one rehearsal."""

    def __init__(
        self, graph: Graph[Any], context: Context, *, runs: int, seed: int, budget: Budget | None,
        max_parallel: int | None, price: Price | None, resources: Sequence[object],
        stand_ins: Mapping[str, StandIn] | None, given: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Check everything that can be checked before the first run."""
        found: object = graph
        if not isinstance(found, Graph):
            msg = f"rehearse({said(graph)}): a Graph is needed."
            raise UsageError(msg)
        if not isinstance(context, graph.context):
            msg = f"the graph {graph.name!r} runs on a {graph.context.__name__}, not on a {type(context).__name__}."
            raise UsageError(msg)
        _whole("runs", runs, least=1)
        _whole("seed", seed, least=-MOST_WHOLE)
        if max_parallel is not None:
            _whole("max_parallel", max_parallel, least=1)
        checked: object = budget
        if checked is not None and not isinstance(checked, Budget):
            msg = f"budget={said(budget)}: a Budget is needed, or None."
            raise UsageError(msg)
        _check_price(price)
        _check_resources(resources)
        require_runnable(graph)
        self.nodes = tuple(nodes_of(graph))
        self.settings = _settings(names_of(self.nodes), stand_ins, given)
        _refuse_what_must_not_run(self.nodes, self.settings)
        self.graph, self.runs, self.resources, self.seed = graph, runs, tuple(resources), seed
        self.prices = _prices(graph, price)
        self.first = RunStarted(
            "rehearsal", graph.name, "", context, merged(graph.budget, budget), max_parallel, False, 0.0,  # noqa: FBT003 - no hook
            prices=self.prices, edition=EDITION,
        )  # fmt: skip
        self.others = StandIns(seed, self.settings)
        for inner in graphs_of(graph):
            _prepare(inner, self.others)
        self.untamed = 0

    async def play(self) -> Rehearsal:
        """Run them one after the other."""
        samples: list[Sample] = []
        trouble: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            try:
                for run in range(self.runs):
                    await anyio.lowlevel.checkpoint()  # others have their turn, and it can be cancelled
                    stage = Stage(self.graph, run, self.others, tasks, self.resources)
                    samples.append(await stage.play(self.first))
                    self.untamed += stage.untamed
            except BaseException as error:
                if isinstance(error, (*cancelled_classes(), GeneratorExit)):
                    raise
                trouble = error  # raised outside of the group, which would wrap it
            tasks.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        return Rehearsal(
            graph=self.graph.name, seed=self.seed, samples=tuple(samples), worst=self.graph.worst_case(),
            budget=self.first.budget, assumed=tuple(self._assumed()), notes=(*self._notes(), *self._steered(samples)),
        )  # fmt: skip

    def _assumed(self) -> Iterator[str]:
        given, kinds = self.settings, {type(node) for node in self.nodes}
        agents = [node for node in self.nodes if isinstance(node, Agent)]
        if agents:
            yield f"latency of models {given.latency} s, tokens written {given.tokens}"
            if given.failure_rate.all or given.failure_rate.some:
                yield f"failing calls of models {given.failure_rate}"
        if any(isinstance(found, Tool) for agent in agents for found in agent.tools):
            yield f"latency of tools {given.tool_latency} s, tokens of their results {given.tool_tokens}"
            if given.tool_failure_rate.all or given.tool_failure_rate.some:
                yield f"failing calls of tools {given.tool_failure_rate}"
        if Human in kinds or any(
            not isinstance(found, Tool) or found.approval for one in agents for found in one.tools
        ):
            yield f"people answer after {given.people_latency} s, and approve {given.approval_rate:.0%}"
        if any(is_verdict(agent.output) for agent in agents):
            yield f"who verifies accepts {given.approval_rate:.0%}"

    def _notes(self) -> Iterator[str]:
        yield "models, tools and people were stand-ins: nothing was sent, nothing was spent"
        own = self.settings.stand_ins
        ran = bodies_of(self.nodes, own)
        if ran:
            yield (
                f"the bodies of {', '.join(ran)} did run, and what they do outside of step.effect really happened; "
                f"their own clocks and random numbers are not under control"
            )
        if self.others.effects:
            yield f"drawn by annotation, not done: the effects {', '.join(sorted(self.others.effects))}"
        unused = sorted(own.keys() - self.others.used)
        if unused:
            yield f"stand-ins that nobody asked: {', '.join(unused)}"
        if self.untamed:
            yield f"bodies waited for something outside {self.untamed} times: that time is not counted"
        if self.prices is NO_PRICE and any(isinstance(node, Agent) for node in self.nodes):
            yield "no price is known of the models, so nothing costs anything here: give one with price="

    def _steered(self, samples: Sequence[Sample]) -> Iterator[str]:
        """Say what is missing where what is drawn leads nearly every run to one bound."""
        end, count = Counter(sample.end for sample in samples).most_common(1)[0]
        steering = who_steers(self.graph, end, frozenset(self.settings.stand_ins))
        share = count / len(samples)
        if steering is not None and share >= NEARLY_ALL:
            of_whom = ", ".join(steering) or "an agent whose words steer there"
            many = "all runs" if count == len(samples) else f"{share:.1%} of the runs"
            yield (
                f"{many} end at one bound, {end.why}, for what is drawn does not lead on there: give a stand-in that "
                f"knows the work, of {of_whom}, with stand_ins= or --stand-ins"
            )


NO_PRICE: Final[Prices] = FrozenDict({})


def _prepare(graph: Graph[Any], others: StandIns) -> None:
    """See that what its agents may write can be drawn; what is known of their models is loaded with that.

    Raises:
        UsageError: if something cannot.
    """
    stations = graph.compiled.stations
    owed: dict[str, set[Any]] = {}
    for station in stations.values():
        for name, edge in station.delegates.items():
            owed.setdefault(name, set()).add(None if edge.contract is None else edge.contract.report)
    for name, station in stations.items():
        agent = station.node
        if isinstance(agent, Agent):
            for report in owed.get(name, set()) | {None}:
                manner = manner_of(station, stations, agent.rights, report)
                others.prepare(name, manner, workers_behind(station, stations) if is_plan(manner.kind) else ())


def graphs_of(graph: Graph[Any]) -> Iterator[Graph[Any]]:
    """Return a graph and those inside it."""
    yield graph
    for node in graph.nodes.values():
        if isinstance(node, Graph):
            yield from graphs_of(cast("Graph[Any]", node))


def nodes_of(graph: Graph[Any]) -> Iterator[Node[Any]]:
    """Return the nodes of a graph and of the graphs inside it."""
    for inner in graphs_of(graph):
        yield from (node for node in inner.nodes.values() if not isinstance(node, Graph))


def bodies_of(nodes: Sequence[Node[Any]], stand_ins: Mapping[str, object]) -> list[str]:
    """Return whose bodies run: functions of the user's that nothing stands in for, not those that teams add."""
    ours = (node for node in nodes if isinstance(node, FunctionNode) and not is_added(node))
    return sorted({node.name for node in ours} - stand_ins.keys())


def names_of(nodes: Sequence[Node[Any]]) -> Names:
    """Return who and what there is, by name."""
    agents = [node for node in nodes if isinstance(node, Agent)]
    return Names(
        frozenset(agent.name for agent in agents),
        frozenset(found.name for agent in agents for found in agent.tools),
        frozenset(node.name for node in nodes if isinstance(node, Human)),
    )


def _settings(names: Names, stand_ins: Mapping[str, StandIn] | None, given: Mapping[str, Any]) -> Settings:
    known = inspect.signature(settings).parameters.keys() - {"names", "stand_ins"}
    if strange := sorted(given.keys() - known):
        msg = f"rehearse({strange[0]}=...): it takes {', '.join(sorted(known))}, and those of its signature."
        raise UsageError(msg)
    return settings(names, stand_ins=stand_ins, **given)


def _refuse_what_must_not_run(nodes: Sequence[Node[Any]], given: Settings) -> None:
    """Look whether a body would do what a rehearsal must not.

    Raises:
        UsageError: if one would, and nothing stands in for it.
    """
    for node in nodes:
        if not isinstance(node, FunctionNode) or node.name in given.stand_ins:
            continue
        theirs = getattr(node.fn, "__module__", "") == THEIRS
        if theirs or node.irreversible:
            why = "is an agent of another library" if theirs else "is declared irreversible"
            msg = (
                f"the node {node.name!r} {why}: a rehearsal does not run it. Give a function from the state to its "
                f"outcome that stands in for it: stand_ins={{{node.name!r}: function}}."
            )
            raise UsageError(msg)


def _prices(graph: Graph[Any], price: Price | None) -> Prices:
    if price is None:
        found = prices_of(graph)
        return found or NO_PRICE
    return FrozenDict({place.text: (price.input, price.output) for place in places_of(graph)})


def merged(own: Budget | None, given: Budget | None) -> Budget:
    """Return the budget of a run: the given dimensions in place of the graph's own."""
    chosen: dict[str, Any] = {}
    for name in (*ADDITIVE, "seconds"):
        replaced = getattr(given, name, None)
        chosen[name] = replaced if replaced is not None else getattr(own, name, None)
    return Budget.checked(**chosen)


def _whole(what: str, number: object, *, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        msg = f"{what}={said(number)}: a whole number{f' of at least {least}' if least >= 0 else ''} is needed."
        raise UsageError(msg)
    if not least <= number <= MOST_WHOLE:
        bounds = f"at least {least}" if number < least and least >= 0 else f"at most {len(str(MOST_WHOLE)) - 1} digits"
        msg = f"{what}={said(number)}: a whole number of {bounds} is needed."
        raise UsageError(msg)


def _check_price(price: Price | None) -> None:
    given: object = price
    if given is not None and not isinstance(given, Price):
        msg = f"price={said(given)}: a Price of two Decimals of at least 0 is needed, or None."
        raise UsageError(msg)
    checked_price("rehearse: price", price)
    if price is not None and max(price) > MOST_PRICE:
        msg = f"price={said(price)}: at most {MOST_PRICE:,} US dollars for a token can be reckoned with."
        raise UsageError(msg)


def _check_resources(resources: object) -> None:
    if not _are_several(resources):
        msg = f"resources={said(resources)}: a list of what `step.resource` finds is needed, as resources=[Client()]."
        raise UsageError(msg)


def _are_several(found: object) -> bool:
    return isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping))
