"""`graphflow rehearse`: many runs of a graph with stand-ins, in virtual time."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias, cast

import typer

from graphflow.cli.options import Db, Json, MaxDepth, Target, Task

if TYPE_CHECKING:
    from types import ModuleType

    from graphflow.cli.printing import Screen
    from graphflow.graphs.graph import Graph
    from graphflow.nodes.client import Price
    from graphflow.rehearsal import Choices
    from graphflow.rehearsal.settings import Names

FORM: Final = "[NAME=]DISTRIBUTION"
KINDS: Final = "2, uniform:1,3, normal:2,0.5, lognormal:2,0.6 (median, sigma), exp:2 or recorded:RUN"

FOR_ALL: Final = ("people_latency", "approval_rate")
"""What is not told apart by name."""

MOST_PRICE: Final = 1_000_000_000
"""The highest price of a million tokens, in US dollars."""

Many: TypeAlias = list[str] | None


Input = Annotated[str | None, typer.Argument(metavar="INPUT", help="The first field of the context, if that is a str.")]
Sets = Annotated[
    Many, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the context: JSON, else text. Repeatable.")
]
Runs = Annotated[int, typer.Option("--runs", metavar="N", min=1, help="How many runs.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="What everything is drawn from.")]
Latency = Annotated[
    Many,
    typer.Option(
        "--latency",
        metavar=FORM,
        help=f"Seconds of a model call, for all agents or one: {KINDS}. Repeatable.  [default: lognormal:2,0.6]",
    ),
]
Tokens = Annotated[
    Many,
    typer.Option(
        "--tokens",
        metavar=FORM,
        help="Tokens that a reply writes, for all agents or one. Repeatable.  [default: lognormal:200,0.6]",
    ),
]
InputTokens = Annotated[
    Many,
    typer.Option(
        "--input-tokens",
        metavar=FORM,
        help="Tokens that a request reads. Repeatable.  [default: counted from its text]",
    ),
]
ToolLatency = Annotated[
    Many,
    typer.Option(
        "--tool-latency",
        metavar=FORM,
        help="Seconds of a tool call, for all tools or one. Repeatable.  [default: lognormal:0.5,0.6]",
    ),
]
ToolTokens = Annotated[
    Many,
    typer.Option("--tool-tokens", metavar=FORM, help="How long a tool's result is. Repeatable.  [default: 100]"),
]
PeopleLatency = Annotated[
    str | None,
    typer.Option(
        "--people-latency",
        metavar="DISTRIBUTION",
        help="Seconds until a person has answered.  [default: lognormal:60,1]",
    ),
]
PriceWord = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar="IN,OUT",
        help="US dollars for a million tokens read and written.  [default: what is known of the models]",
    ),
]
Act = Annotated[
    Many,
    typer.Option(
        "--act",
        metavar="[AGENT=]P[,FADING[,SEVERAL[,HAND_OVER]]]",
        help="How likely an agent's first turn calls something; what that is multiplied by for each further turn; how "
        "likely one more call follows a call; how likely it hands over instead. Repeatable.  "
        "[default: 0.9,0.3,0.4,0.7]",
    ),
]
FailureRate = Annotated[
    Many, typer.Option("--failure-rate", metavar="[AGENT=]P", help="How likely a model call fails. Repeatable.")
]
ToolFailureRate = Annotated[
    Many, typer.Option("--tool-failure-rate", metavar="[TOOL=]P", help="How likely a tool fails. Repeatable.")
]
ApprovalRate = Annotated[
    str | None,
    typer.Option(
        "--approval-rate", metavar="P", help="How likely a call is approved, and a Verdict accepts.  [default: 0.9]"
    ),
]
StandInsWord = Annotated[
    str | None,
    typer.Option(
        "--stand-ins",
        metavar="VARIABLE",
        help="A table in the file of TARGET: functions that stand in for nodes, tools and effects, by their names.",
    ),
]
BudgetWords = Annotated[
    Many, typer.Option("--budget", metavar="DIMENSION=AMOUNT", help="Replaces one dimension of the budget. Repeatable.")
]
MaxParallel = Annotated[
    int | None, typer.Option("--max-parallel", metavar="N", min=1, help="Let at most N bodies work at once.")
]
PlotFile = Annotated[
    str | None, typer.Option("--plot", metavar="FILE.svg", help="Draw histograms of time, calls and cost.")
]


def rehearse(
    target: Target,
    input: Input = None,
    *,
    sets: Sets = None,
    runs: Runs = 1000,
    seed: Seed = 0,
    latency: Latency = None,
    tokens: Tokens = None,
    input_tokens: InputTokens = None,
    tool_latency: ToolLatency = None,
    tool_tokens: ToolTokens = None,
    people_latency: PeopleLatency = None,
    price: PriceWord = None,
    act: Act = None,
    failure_rate: FailureRate = None,
    tool_failure_rate: ToolFailureRate = None,
    approval_rate: ApprovalRate = None,
    stand_ins: StandInsWord = None,
    budget: BudgetWords = None,
    max_depth: MaxDepth = None,
    max_parallel: MaxParallel = None,
    plot: PlotFile = None,
    json: Json = False,
    db: Db = None,
) -> Task:
    """Run a graph many times with stand-ins, in virtual time, before it costs anything.

    No model is asked, no tool is run, no person is disturbed, and no effect of a function is done; the bodies of
    functions do run. What is printed: how time, calls, tokens and cost are distributed and how the runs end, beside the
    worst case that is proved and the budget. The same seed gives the same numbers.
    """
    drawn = {
        "latency": latency, "tokens": tokens, "input_tokens": input_tokens, "tool_latency": tool_latency,
        "tool_tokens": tool_tokens, "people_latency": None if people_latency is None else [people_latency],
    }  # fmt: skip
    rates = {
        "failure_rate": failure_rate, "tool_failure_rate": tool_failure_rate,
        "approval_rate": None if approval_rate is None else [approval_rate],
    }  # fmt: skip
    options = Words(
        target, input, tuple(sets or ()), runs, seed, drawn, rates, tuple(act or ()), price, stand_ins,
        tuple(budget or ()), max_depth, max_parallel, plot, json, db,
    )  # fmt: skip
    return lambda screen: rehearse_command(screen, options)


class Words(NamedTuple):
    """What stands on the command line of `graphflow rehearse`."""

    target: str
    input: str | None
    sets: tuple[str, ...]
    runs: int
    seed: int
    drawn: Mapping[str, Sequence[str] | None]
    rates: Mapping[str, Sequence[str] | None]
    act: tuple[str, ...]
    price: str | None
    stand_ins: str | None
    budget: tuple[str, ...]
    max_depth: int | None
    max_parallel: int | None
    plot: str | None
    json: bool
    db: str | None


def rehearse_command(screen: Screen, words: Words) -> int:
    """Rehearse a graph, print what came out, and return the exit code.

    Raises:
        BadUse: if something on the command line cannot be done.
        TargetError: if there is no such graph.
        GraphProblems: if the graph has errors.
        UsageError: if something cannot be stood in for.
        JournalError: if a recorded run cannot be read.
    """
    from graphflow.cli.faults import FAILED, BadUse
    from graphflow.cli.inputs import budget_from, context_of, tightened
    from graphflow.cli.target import load
    from graphflow.graphs.checks import require_runnable
    from graphflow.rehearsal import plot, rehearse_sync
    from graphflow.rehearsal.running import names_of, nodes_of
    from graphflow.rehearsal.table import data, table

    if words.plot is not None:
        if not words.plot.lower().endswith(".svg"):
            raise BadUse(f"--plot {words.plot}: it is drawn as SVG; name a file that ends in .svg.")
        _write(words.plot, None)  # before anything runs
    graph, module = load(words.target)
    graph = tightened(graph, words.max_depth)
    require_runnable(graph)
    names = names_of(tuple(nodes_of(graph)))
    given = _given(words, module, names)
    context = context_of(graph.context, words.input, words.sets)
    budget, price = budget_from(words.budget), _price(words.price)
    _say_what_runs(screen, graph, given.get("stand_ins", {}))
    found = rehearse_sync(
        graph, context, runs=words.runs, seed=words.seed, budget=budget, max_parallel=words.max_parallel,
        price=price, **given,
    )  # fmt: skip
    if words.plot is not None:
        _write(words.plot, plot(found))
    if words.json:
        screen.document(data(found))
    else:
        screen.out.line(table(found))
    return FAILED if any(found.excesses()) else 0


def _say_what_runs(screen: Screen, graph: Graph[Any], stand_ins: Mapping[str, object]) -> None:
    """Say before it happens which code of the user's runs."""
    from graphflow.rehearsal.running import bodies_of, nodes_of

    ran = bodies_of(tuple(nodes_of(graph)), stand_ins)
    if ran:
        screen.say(f"the bodies of {', '.join(ran)} run; what they do outside of step.effect really happens.")


# --- reading words ---------------------------------------------------------------------------------------------------


def _given(words: Words, module: ModuleType, names: Names) -> dict[str, Any]:
    """Return what is drawn from, and who stands in, as `rehearse` takes it; what is not said has its default."""
    from graphflow.rehearsal.settings import checked_rate

    agents, tools = names.agents, names.tools
    known = {
        "latency": agents, "tokens": agents, "input_tokens": agents, "tool_tokens": tools, "failure_rate": agents,
        "tool_failure_rate": tools,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        recorded = _Recorded(words.db, names, stack)
        made: dict[str, Any] = {
            what: _table(what, items, functools.partial(recorded.distributions, what), known.get(what))
            for what, items in words.drawn.items()
            if items
        }
    made |= {
        what: _table(what, items, lambda text: checked_rate("", _number(text)), known.get(what))
        for what, items in words.rates.items()
        if items
    }
    if words.act:
        made["choices"] = _table("act", words.act, _choices, agents)
    for what in FOR_ALL:
        if what in made:
            made[what] = made[what][""]
    if words.stand_ins is not None:
        made["stand_ins"] = _stand_ins(module, words.target, words.stand_ins)
    return made


def _table(what: str, items: Sequence[str], read: Callable[[str], Any], known: frozenset[str] | None) -> dict[str, Any]:
    """Read `[NAME=]VALUE` items; one without a name is for all; `known` are the names, None if nobody knows them.

    Raises:
        BadUse: if a value is none, or there is nobody of its name.
    """
    from graphflow.cli.faults import BadUse
    from graphflow.errors import UsageError
    from graphflow.rehearsal.settings import unknown

    option = f"--{what.replace('_', '-')}"
    found: dict[str, Any] = {}
    for item in items:
        name, _, text = item.rpartition("=")
        if name and what in FOR_ALL:
            raise BadUse(f"{option} {item}: there is one for all, which takes no name; write {option} {text}.")
        wrong = None if known is None else unknown(name, known)
        if wrong is not None:
            raise BadUse(f"{option} {item}: {wrong}")
        try:
            value: object = read(text)
        except (UsageError, ValueError) as error:
            raise BadUse(f"{option} {item}: {error}") from error
        if not isinstance(value, Mapping):
            found[name] = value
            continue
        recorded = dict(cast("Mapping[str, Any]", value))
        found.update({name: recorded.get(name, recorded[""])} if name else recorded)
    return found


def _choices(text: str) -> Choices:
    from graphflow.rehearsal import Choices

    numbers = [_number(part) for part in text.split(",")]
    if len(numbers) > len(Choices.__match_args__):
        msg = f"{text!r} has more than four numbers: P, FADING, SEVERAL, HAND_OVER."
        raise ValueError(msg)
    return Choices(*numbers)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"{text!r} is no number."
        raise ValueError(msg) from None


class _Recorded:
    """Reads distributions, and those that are recorded out of the store, each run once."""

    def __init__(self, db: str | None, names: Names, stack: contextlib.ExitStack) -> None:
        self._db, self._names, self._stack = db, names, stack
        self._store: Any = None
        self._read: dict[str, Any] = {}

    def distributions(self, what: str, text: str) -> Any:
        """Return a distribution, or a table of recorded ones by name.

        Raises:
            UsageError: if it is none, or nothing was recorded that it could be drawn from.
        """
        from graphflow.errors import UsageError
        from graphflow.rehearsal import distribution
        from graphflow.rehearsal.recorded import only

        kind, _, run = text.partition(":")
        if kind != "recorded" or not run:
            return distribution(text)
        known = self._names.agents if what in {"latency", "tokens", "input_tokens"} else self._names.tools
        samples = getattr(self._recordings(run), what, {})
        if not samples:
            msg = f"nothing that could be drawn from was recorded of {what.replace('_', ' ')} in the run {run!r}."
            raise UsageError(msg)
        return only(samples, known)

    def _recordings(self, run: str) -> Any:
        import anyio

        from graphflow.cli.store import StoreOptions, find, opened
        from graphflow.cli.stored import read_stored
        from graphflow.rehearsal import recordings

        if run not in self._read:
            if self._store is None:
                self._store = self._stack.enter_context(opened(StoreOptions(self._db)))
            name = anyio.run(find, self._store, run).run
            stored = anyio.run(read_stored, self._store.journal, name)
            self._read[run] = recordings(stored.events())
        return self._read[run]


def _stand_ins(module: ModuleType, target: str, name: str) -> Mapping[str, Any]:
    """Return the table of stand-ins in the file or module of a target.

    Raises:
        BadUse: if there is none.
    """
    from graphflow.cli.faults import BadUse
    from graphflow.cli.parts import variable

    found = variable(module, target, "--stand-ins", name)
    if isinstance(found, Mapping):
        return found  # pyright: ignore[reportUnknownVariableType]  # `rehearse` looks at what is in it
    raise BadUse(f"--stand-ins {name}: that is no table; write there {name} = {{'NAME': function}}.")


def _price(text: str | None) -> Price | None:
    """Read `IN,OUT`, US dollars for a million tokens.

    Raises:
        BadUse: if it is none.
    """
    from graphflow.cli.faults import BadUse
    from graphflow.nodes.client import Price

    if text is None:
        return None
    try:
        reads, writes = map(Decimal, text.split(","))
        if not all(part.is_finite() and 0 <= part <= MOST_PRICE for part in (reads, writes)):
            raise ValueError
    except (InvalidOperation, ValueError):
        raise BadUse(
            f"--price {text}: two amounts of at least 0 are needed, as 3,15: US dollars for a million tokens "
            f"read and written, at most {MOST_PRICE:,}."
        ) from None
    return Price(reads / 1_000_000, writes / 1_000_000)


# --- files -----------------------------------------------------------------------------------------------------------


def _write(name: str, text: str | None) -> None:
    """Write a picture; without one, only see that it can be written.

    Raises:
        BadUse: if it cannot.
    """
    from graphflow.cli.faults import BadUse, reading

    path = Path(name)
    try:
        if text is not None:
            path.write_text(text, "utf-8")
            return
        new = not os.path.lexists(path)
        path.open("ab").close()
        if new:
            path.unlink()
    except (OSError, ValueError) as error:
        why = reading(error) if isinstance(error, OSError) else str(error)
        raise BadUse(f"--plot {name}: it cannot be written: {why}.") from error
