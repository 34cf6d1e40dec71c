"""The corpus of stored runs: what the graphs of the examples did, as journals keep it.

    python -m tests.journals.make

writes every file again but for those of older formats and editions. That is right when a change is meant to change what
a run decides, or how it is stored; the difference of the files then shows what has changed, and belongs into a fragment
of changelog.d. Where the format changes, some files are kept as they are and named in OLDER; where runs that begin from
then on are decided otherwise (EDITION in graphflow/events), in OF_OLD.
"""

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import anyio

from examples import company, support_desk
from graphflow import (
    END,
    START,
    Agent,
    AskUser,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    MemoryJournal,
    ModelRequest,
    Report,
    State,
    Step,
    Supervisor,
    Update,
    append,
    fork_run,
    node,
    resume,
    run,
    start,
    tool,
    when,
)  # fmt: skip
from graphflow.events import EffectStarted, Event, Row
from graphflow.model.ids import names
from graphflow.model.jsontext import compact_json, load_json
from graphflow.persistence.lines import run_lines
from graphflow.runtime.checksums import chained
from graphflow.testing import ManualClock, RuleModel, call

FOLDER: Final = Path(__file__).parent

ANGRY: Final = "I was charged, and nobody ever answers."
WALL: Final = 1_767_225_600.0
"""The time of day that stands in the files: that of making them would be a difference each time."""

Play: TypeAlias = Callable[[MemoryJournal, str], Awaitable[object]]
"""Stores a run of some id in a journal, and whatever it takes for that."""


@tool(name="get_invoice", effect="read", on_error="raise")
def no_ledger(number: str) -> str:
    """Look an invoice up."""
    raise ConnectionError(f"no ledger for {number}")


def speechless(request: ModelRequest) -> str:
    """Fail, as a model does that cannot be reached."""
    raise ConnectionError(f"no answer to {len(request.messages)} messages")


class Trip(Context):
    """What a trip is planned with."""

    towns: tuple[str, ...] = ("Ulm", "Bonn", "Kiel")
    notes: Annotated[tuple[str, ...], append] = ()


class Told(Context):
    """What a desk is asked."""

    question: str = "Where shall we go?"
    notes: Annotated[tuple[Report, ...], append] = ()


ASKED: Final[list[str]] = []


def forecast() -> str:
    """Say something every other time, as a service does that is not quite well."""
    ASKED.append("")
    return "" if len(ASKED) % 2 else "sunny"


@node(retries=1)
async def weather(state: State[Trip], step: Step) -> Update:
    """Ask a service that has no answer at first, and wait a while."""
    said = await step.effect("ask", forecast, cost=Budget(tool_calls=1))
    if not said:
        raise ConnectionError("no answer")
    step.emit(said)
    await step.sleep(30)
    return Update(notes=said)


@node
async def trains(state: State[Trip]) -> Update:
    """Know it already."""
    return Update(notes="on time")


@node
async def ferries(state: State[Trip]) -> Update:
    """Never be asked: no town lies at the sea."""
    return Update(notes="calm")


def by_sea(state: State[Trip]) -> bool:
    """Tell whether a ferry is needed."""
    return "Rhodes" in state.context.towns


@node
async def plan(state: State[Trip]) -> Delegate | Update:
    """Ask the guide once."""
    if state.turn == 0:
        return Delegate(Call("guide", "What is there to see?"))
    ((_, report),) = state.inbox
    return Update(notes=report.finding)


@node
async def guide(state: State[Trip]) -> str:
    """Know what is to be seen."""
    return "much to see"


@node
async def book(state: State[Trip], step: Step) -> str:
    """Book a town; one has no room."""
    ((_, town),) = state.inbox
    if town == "Bonn":
        raise LookupError(f"no room in {town}")
    return await step.effect("book", str.upper, town, key=town)


@node
async def stay(state: State[Trip]) -> str:
    """Stay at home instead."""
    return "home"


@node
async def tell(state: State[Trip]) -> str:
    """Say where it goes, and what is known."""
    places = [str(place) for _, place in state.inbox]
    return f"{', '.join(places)} ({', '.join(state.context.notes)})"


def towns(state: State[Trip]) -> tuple[str, ...]:
    """Return where to go."""
    return state.context.towns


def says_in_json(request: ModelRequest) -> str:
    """Say what a small model does that repeats itself before it answers, in the words that it was once told to use."""
    heard = sum(message.role == "assistant" for message in request.messages)
    if request.agent == "guide":
        said = '"calls": [{"tool": "look_up", "arguments": {"town": "Ulm"}}]' if not heard else '"answer": "Climb up."'
    else:
        said = (
            '"calls": [{"tool": "ask_guide", "arguments": {"objective": "Ulm"}}]' if heard < 2 else '"answer": "Ulm."'
        )
    return f'{{"reason": "It is about a town.", {said}}}'


@tool(max_calls=1)
def look_up(town: str) -> str:
    """Look a town up."""
    return f"{town} has a tower"


def in_json() -> Graph[Told]:
    """Return a desk whose models decide in JSON."""
    model = RuleModel(otherwise=says_in_json, native_tools=False)
    desk = Supervisor("desk", model=model, instructions="You plan trips.")
    knows = Agent("guide", model=model, instructions="You know towns.", tools=[look_up])
    team = desk.delegates(knows, max_hops=1, into="notes")
    return Graph(
        "in_json", START >> desk >> END, team, context=Told, max_depth=1, budget=Budget(model_calls=9, tokens=20_000)
    )  # fmt: skip


def says_with_haste(request: ModelRequest) -> Any:
    """Say what models do whose calls are refused, and then what they do in the end."""
    heard = sum(message.role == "assistant" for message in request.messages)
    if request.agent == "hasty":
        answer = '{"tool": "answer", "arguments": {"answer": "Ulm."}}'
        return f'{{"reason": "I must look first.", "calls": [{answer if heard else ""}]}}'
    if request.agent == "eager":
        looks = [call("look", town=town) for town in ("Ulm", "Bonn", "Kiel", "Rhodes")]
        return looks if not heard else [call("transfer_to_payer", note="pay"), call("transfer_to_other", note="pay")]
    if request.agent == "payer":
        pays = [call("pay", amount=amount) for amount in (1, 2)]
        return [pays, [call("ask_user", question=f"{number}?") for number in range(3)], "Paid."][min(heard, 2)]
    if request.agent == "boss":
        return "All is paid." if heard else call("ask_clerk", objective="Ask.")
    return "Nobody said anything." if heard else call("ask_user", question="Who pays?")


@tool(max_calls=2)
def look(town: str) -> str:
    """Look at a town."""
    return f"{town} is nice"


@tool(approval=True, max_calls=1)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def refused() -> Graph[Told]:
    """Return a team whose bounds and rights refuse calls of every kind."""
    json, model = (RuleModel(otherwise=says_with_haste, native_tools=native) for native in (False, True))
    hasty = Agent("hasty", model=json, tools=[look])
    eager = Agent("eager", model=model, tools=[look], max_tool_calls=3)
    payer = Agent("payer", model=model, tools=[pay, AskUser()], max_tool_calls=2)
    other = Agent("other", model=model)
    boss = Supervisor("boss", model=model, rights=["look"])
    clerk = Agent("clerk", model=model, tools=[look, AskUser()])
    return Graph(
        "refused",
        START >> hasty >> eager >> boss >> END,
        eager.hands_off(payer, other, max_hops=1),
        payer >> boss,
        other >> boss,
        boss.delegates(clerk, max_hops=1),
        context=Told,
        max_depth=1,
        budget=Budget(model_calls=20, tokens=40_000),
    )


TRIP: Final = Graph(
    "trip",
    START >> (weather, trains, when(by_sea, ferries)) >> plan,
    plan.delegates(guide, max_hops=1),
    plan.map(book, over=towns, join=tell, max_items=5),
    book.on_error(stay, catch=LookupError),
    tell >> END,
    context=Trip,
    max_depth=1,
    budget=Budget(node_runs=20, tool_calls=9, retries=2, seconds=90),
)
SILENT: Final = Graph("silent", START >> Agent("desk", model=RuleModel(otherwise=speechless)) >> END, context=Trip)
DESK: Final = support_desk.support()
CHAT: Final = support_desk.desk_that_hands_over()
NO_LEDGER: Final = support_desk.support(no_ledger)
IN_JSON: Final = in_json()
REFUSED: Final = refused()


class Stored(NamedTuple):
    """A run of the corpus.

    Attributes:
        graph: its graph.
        status: how it ends or stands.
        play: makes it.
    """

    graph: Graph[Any]
    status: str
    play: Play


def whole(graph: Graph[Any], context: Context, budget: Budget | None = None) -> Play:
    """A run in one session, of one body after the other, so that it is the same each time."""

    async def play(journal: MemoryJournal, run_id: str) -> None:
        await run(graph, context, journal=journal, run_id=run_id, budget=budget, clock=ManualClock(), max_parallel=1)

    return play


def fails(play: Play) -> Play:
    """A run that an exception ends."""

    async def playing(journal: MemoryJournal, run_id: str) -> None:
        with contextlib.suppress(ConnectionError):
            await play(journal, run_id)

    return playing


def answered_in_a_fork(graph: Graph[Any], context: Context, answer: str) -> Play:
    """A run that waits for a person, forked there, and answered in the fork."""

    async def play(journal: MemoryJournal, run_id: str) -> None:
        waiting = await run(graph, context, journal=journal, run_id="first", clock=ManualClock())
        answers = {asked.id: answer for asked in waiting.questions}
        await fork_run(graph, "first", journal=journal, new_id=run_id, answers=answers, clock=ManualClock())

    return play


def answered(graph: Graph[Any], context: Context) -> Play:
    """A run in one session whose questions are answered one by one; of what is to be approved, the first is not."""

    async def play(journal: MemoryJournal, run_id: str) -> None:
        rejected = False
        async with start(graph, context, journal=journal, run_id=run_id, clock=ManualClock(), max_parallel=1) as run:
            result = await run.result()
            while result.status == "waiting":
                asked = result.questions[0]
                approves = "Approve" in asked.text
                run.answer(asked.id, ("yes" if rejected else "no") if approves else "nobody")
                rejected = rejected or approves
                result = await run.result()

    return play


def given_more(graph: Graph[Any], context: Context, budget: Budget, more: Budget) -> Play:
    """A run that a bound has stopped, which then has more."""

    async def play(journal: MemoryJournal, run_id: str) -> None:
        await run(graph, context, journal=journal, run_id=run_id, budget=budget, clock=ManualClock())
        await resume(graph, run_id, journal=journal, budget=more, clock=ManualClock())

    return play


def cancelled_at(graph: Graph[Any], context: Context, node: str) -> Play:
    """A run that is cancelled as soon as a node begins to do something."""

    async def play(journal: MemoryJournal, run_id: str) -> None:
        def cancel(event: Event) -> None:
            if isinstance(event.body, EffectStarted) and names(event.path)[-1] == node:
                handle.cancel("a person")

        begun = start(graph, context, journal=journal, run_id=run_id, listeners=[cancel], clock=ManualClock())
        async with begun as handle:
            await handle.result()

    return play


RUNS: Final[dict[str, Stored]] = {
    "support_desk": Stored(DESK, "completed", whole(DESK, support_desk.Case())),
    "support_desk_exhausted": Stored(DESK, "exhausted", whole(DESK, support_desk.Case(), Budget(model_calls=4))),
    "support_desk_with_more": Stored(
        DESK, "partial", given_more(DESK, support_desk.Case(), Budget(model_calls=4), Budget(model_calls=4))
    ),
    "support_desk_cancelled": Stored(DESK, "cancelled", cancelled_at(DESK, support_desk.Case(), "shipping")),
    "support_desk_partial": Stored(NO_LEDGER, "partial", whole(NO_LEDGER, support_desk.Case())),
    "in_json": Stored(IN_JSON, "completed", whole(IN_JSON, Told())),
    "refused": Stored(REFUSED, "completed", answered(REFUSED, Told())),
    "silent_failed": Stored(SILENT, "failed", fails(whole(SILENT, Trip()))),
    "trip": Stored(TRIP, "completed", whole(TRIP, Trip())),
    "chat_waiting": Stored(CHAT, "waiting", whole(CHAT, support_desk.Case(question=ANGRY))),
    "chat_forked": Stored(
        CHAT, "completed", answered_in_a_fork(CHAT, support_desk.Case(question=ANGRY), "We call you back today.")
    ),
    "company": Stored(company.graph, "completed", whole(company.graph, company.Task())),
}  # fmt: skip
"""The corpus, by the names of its files."""


OLDER: Final[dict[str, int]] = {"chat_waiting": 1, "support_desk_exhausted": 1, "trip": 1}
"""The files that are kept in an older format, which no code of today writes."""

OF_OLD: Final = frozenset({"refused"})
"""The files that are kept because no run of today decides so: each is of an older edition."""


async def made(name: str) -> list[Row]:
    """Make a run of the corpus, and return its rows."""
    journal = MemoryJournal()
    await RUNS[name].play(journal, name)
    return chained(without_wall(row) for row in await journal.read(name))


WALLS: Final = {"run_started": 8, "session_started": 1}
"""Where the time of day stands in a fact."""


def without_wall(row: Row) -> Row:
    """Return a row with the time of day of the corpus."""
    fact = load_json(row.fact)
    place = WALLS.get(fact[0].partition("/")[0])
    if place is None:
        return row
    assert isinstance(fact[place], float), fact[0]
    fact[place] = WALL
    return dataclasses.replace(row, fact=compact_json(fact))


def main() -> None:
    """Write every file of the corpus that is of the present format."""
    for name in RUNS.keys() - OLDER - OF_OLD:
        rows = anyio.run(partial(made, name))
        (FOLDER / f"{name}.jsonl").write_text(
            "".join(f"{line}\n" for line in run_lines(name, rows)), "utf-8", newline="\n"
        )
        print(f"{name}: {len(rows)} records")  # noqa: T201 - it is a script


if __name__ == "__main__":
    main()
