"""Seeded runs of ready-made teams: what their own functions do is no symptom, and what their members do may be one."""

from typing import Any, Final

from examples import newsroom
from examples.strategies import (
    handoff,
    manual,
    parallel,
    plan_execute,
    random_draw,
    round_robin,
    router,
    sequential,
    swarm,
)
from graphflow import (
    END,
    START,
    Agent,
    Budget,
    FrozenDict,
    Graph,
    ModelRequest,
    Report,
    State,
    first,
    fork,
    node,
    strategies,
    teams,
)
from graphflow.testing import RuleModel, call
from tests.lint.builders import BUDGET, QUESTION, Desk, Seed

PRICE: Final = "The crane costs 400 a day."


class Planned(strategies.PlannedTask):
    """What is planned."""

    task: str = QUESTION


class Argued(teams.Debate):
    """What is debated."""

    task: str = QUESTION


class Drafted(teams.Drafts):
    """What is written."""

    task: str = QUESTION


class Sized(teams.Effort):
    """What is divided."""

    task: str = "Audit the folders a, b and c."


class Sourced(teams.Cited):
    """What is cited."""

    task: str = QUESTION


def says(name: str, what: Any, **options: Any) -> Agent:
    """Somebody who always says the same."""
    return Agent(name, model=RuleModel(otherwise=what), max_turns=2, **options)


@node
def dates(state: State[Any]) -> str:
    """Look days up in a calendar that is not there."""
    raise ConnectionError("the calendar cannot be reached")


@node
def count(state: State[Any]) -> str:
    """Count a part of a number, which "north" has none of."""
    if state.values[0] == "north":
        raise ConnectionError("no road leads there")
    return f"{state.values[0]} has 12 cranes"


def readers(editor: str, join: Any = None) -> Graph[Any]:
    """Two look at a contract, one of whom fails, and an editor answers."""
    more = {} if join is None else {"join": join}
    return strategies.parallel(
        "readers", says("price", PRICE), dates, synthesis=says("editor", editor), context=Desk, budget=BUDGET, **more
    )


def written(text: object) -> Graph[Any]:
    """Two look at a contract, one of whom fails, and a function answers."""

    @node
    def write(state: State[Desk]) -> object:
        return text

    price = says("price", PRICE)
    return Graph("written", START >> fork(price, dates, failure="collect") >> write >> END, context=Desk, budget=BUDGET)


def regions(writer: str) -> Graph[Any]:
    """Cranes are counted region by region, one of which nobody gets to, and a writer answers."""
    return teams.map_reduce(
        "regions", lambda _: ("south", "north"), count, says("writer", writer), context=Desk, budget=BUDGET
    )


def planned() -> Graph[Any]:
    """Two steps of a plan, one of them a tool, and one that needs both."""

    def fetch_rate(day: str) -> str:
        """Look a rate up."""
        return f"The rate of {day} stands at 11.2 crowns."

    plan = strategies.Plan(
        steps=(
            strategies.PlanStep(id="a", to="fetch_rate", arguments=FrozenDict({"day": "May 2"})),
            strategies.PlanStep(id="b", to="clerk", objective="Look up INV-311"),
            strategies.PlanStep(id="c", to="writer", objective="Add them up", needs=("a", "b")),
        )
    )
    return strategies.plan_execute(
        "planned", says("planner", plan, output=strategies.Plan), says("clerk", "Two charges, of 49.00 each."),
        says("writer", "It comes to 1,097.60 crowns."), tools=[fetch_rate], context=Planned, budget=BUDGET,
    )  # fmt: skip


def divided() -> Graph[Any]:
    """A lead that asks for three folders, each of which has one letter for a name."""

    def lead(request: ModelRequest) -> Any:
        if request.turn == 0:
            return [
                call("ask_workers", objective=f"Audit everything in the folder {name} for mistakes") for name in "abc"
            ]
        return "All three are in order."

    worker = says("worker", Report(finding="it is in order"), output=Report)
    policy = teams.EffortPolicy((teams.Tier("wide", workers=3, calls=2),))
    return teams.orchestrator_workers("divided", says("lead", lead), worker, policy=policy, tier=lambda _: "wide",
                                      context=Sized, budget=Budget(model_calls=20))  # fmt: skip


def drafted() -> Graph[Any]:
    """Written twice, for the first draft is not accepted."""
    verdict = teams.Verdict(accepted=False, why="Name the invoice.")
    model = RuleModel(("INV-311", teams.Verdict(accepted=True)), otherwise=verdict)
    author = Agent("author", model=RuleModel(("Name the", "INV-311 was paid twice."), otherwise="It was paid twice."))
    return teams.evaluator_optimizer(
        "drafted", author, Agent("reviewer", model=model, output=teams.Verdict), context=Drafted, budget=BUDGET
    )


def cited() -> Graph[Any]:
    """A report whose one claim has its source."""
    report = Report(finding="INV-311 was paid twice in May [ledger-4].", evidence=("ledger-4",))
    return teams.citation_pass("cited", says("author", report, output=Report), context=Sourced, budget=BUDGET)


def argued() -> Graph[Any]:
    """Two who debate, and a judge."""
    debaters = says("bull", "Buy it, prices rise."), says("bear", "Sell it, prices fall.")
    return teams.debate("argued", *debaters, judge=says("judge", "Wait a week."), context=Argued, budget=BUDGET)


BAD_TEAMS: Final[dict[str, tuple[Seed, ...]]] = {
    "loss-not-told": (
        Seed("a branch, behind a synthesis", lambda: readers(PRICE)),
        Seed("an item, behind a reduction", lambda: regions("There are 12 cranes.")),
        Seed("a branch, behind a function that writes", lambda: written(PRICE)),
    ),
}

GOOD_TEAMS: Final[tuple[Seed, ...]] = (
    Seed("a plan", planned),
    Seed("a plan that is made again", lambda: plan_execute.graph),
    Seed("a division into parts that differ in one letter", divided),
    Seed("a draft that is written again", drafted),
    Seed("a text with its sources", cited),
    Seed("a debate", argued),
    Seed("a synthesis that names what is missing", lambda: readers(f"{PRICE} When it is free is unknown.")),
    Seed("a synthesis that names who failed", lambda: readers(f"{PRICE} Dates: none.")),
    Seed("a function that names what is missing", lambda: written(f"{PRICE} Nothing is known of its dates.")),
    Seed("a function that gives no text", lambda: written(400)),
    Seed("a branch that nobody had to wait for", lambda: readers(PRICE, first(1))),
    Seed("a reduction that says what is missing", lambda: regions("12 cranes; no road leads to the rest.")),
    Seed("branches without a synthesis", lambda: parallel.graph),
    Seed("a conversation in turns", lambda: round_robin.graph),
    Seed("a conversation that is drawn", lambda: random_draw.graph),
    Seed("a conversation that is led", lambda: manual.graph),
    Seed("a call that comes back", lambda: handoff.graph),
    Seed("letters that are sorted", lambda: router.graph),
    Seed("stages", lambda: sequential.graph),
    Seed("peers", lambda: swarm.graph),
    Seed("a newsroom of four levels", lambda: newsroom.graph),
)
