"""Rehearsals: what comes out, what is stood in for, and what is never done."""

import os
import subprocess
import sys
from decimal import Decimal
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict

from graphflow import (
    ANY,
    END,
    START,
    Agent,
    AskUser,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Human,
    Join,
    ModelRequest,
    Pause,
    Price,
    Reason,
    Report,
    State,
    Step,
    Supervisor,
    ToolFailure,
    append,
    node,
    start,
    tool,
    when,
)
from graphflow.errors import BoundHit, GraphProblems, ModelUnavailable, UsageError
from graphflow.events import Event
from graphflow.rehearsal import Choices, End, Fixed, Rehearsal, recordings, rehearse, rehearse_sync, stage
from graphflow.testing import ManualClock, ScriptedModel, call
from tests.support import ROOT


class Case(Context):
    question: str = "Was INV-311 paid twice?"
    reports: Annotated[tuple[Report, ...], append] = ()


NOBODY = ScriptedModel()
ACTS = Choices(act=1.0, fading=0.0, several=1.0)
"""Calls all that is offered in the first turn, then answers."""


def never() -> str:
    """What must not be run."""
    raise AssertionError("it was run")


@tool
def get_invoice(number: str, amount: float = 1.0) -> str:
    """Look an invoice up."""
    return never()


def team(**options: Any) -> Graph[Case]:
    """A desk that asks each of two once; one of them has a tool."""
    billing = Agent("billing", model=NOBODY, tools=[get_invoice], output=Report)
    shipping = Agent("shipping", model=NOBODY)
    desk = Supervisor("desk", model=NOBODY)
    return Graph(
        "support", START >> desk, desk.delegates(billing, shipping, max_hops=1, into="reports"), desk >> END,
        context=Case, max_depth=1, **options,
    )  # fmt: skip


# --- what comes out --------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_that_the_distributions_give() -> None:
    """With fixed times a run is what anybody can work out by hand."""
    found = rehearse_sync(team(), Case(), runs=2, latency=2, tool_latency=1, tokens=10, input_tokens=100, choices=ACTS)

    # desk (2 s), then billing (2 + 1 + 2 s) beside shipping (2 s), then desk again (2 s)
    assert found.numbers("seconds") == (9.0, 9.0)
    assert found.numbers("model_calls") == (5, 5)
    assert found.numbers("tool_calls") == (1, 1)
    assert found.numbers("node_runs") == (3, 3)
    assert found.numbers("input_tokens") == (500, 500)
    assert found.numbers("output_tokens") == (50, 50)
    assert found.numbers("tokens") == (550, 550)
    assert found.numbers("depth") == (1, 1)
    assert found.numbers("concurrent") == (2, 2)
    assert dict(found.ends) == {End("completed"): 2}


def test_agents_may_differ() -> None:
    """What is given by name holds for that name, "" for all others, and without it the default."""
    latency = {"desk": 1, "billing": "5", "": Fixed(3.0)}

    found = rehearse_sync(team(), Case(), runs=1, latency=latency, tool_latency=0, choices=ACTS)

    assert found.numbers("seconds") == (12.0,)  # 1, then 5 + 5 beside 3, then 1


def test_a_price_makes_a_cost() -> None:
    """Money is counted as in a run, and a budget of it is a bound."""
    price = Price(Decimal("0.001"), Decimal("0.002"))
    options: dict[str, Any] = {"input_tokens": 10, "tokens": 5, "choices": ACTS, "price": price}

    free = rehearse_sync(team(), Case(), runs=3, **options)
    bound = rehearse_sync(team(), Case(), runs=3, budget=Budget(usd="0.05"), **options)

    assert free.numbers("usd") == (0.1, 0.1, 0.1)
    assert {sample.end.why.partition(" ")[0] for sample in bound.samples} == {"usd"}


def test_the_price_of_the_models_is_taken_where_none_is_given() -> None:
    """Nobody has to say again what a graph knows."""
    priced = ScriptedModel(price=Price(Decimal(1), Decimal(1)))
    graph = Graph("one", START >> Agent("desk", model=priced) >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=1, input_tokens=3, tokens=4)

    assert found.numbers("usd") == (7.0,)
    assert not any("price" in note for note in found.notes)


def test_a_bound_that_is_reached_is_an_end() -> None:
    """How often a budget is too small is what a rehearsal is for."""
    found = rehearse_sync(team(budget=Budget(seconds=6)), Case(), runs=400, choices=ACTS, seed=3)

    assert set(found.ends) == {End("completed"), End("exhausted", "seconds")}
    assert found.summary("active").most <= 6
    assert found.budget_of("active") == 6


def test_calls_fail_as_often_as_is_said() -> None:
    """A failing model fails its agent, and a failing tool is told to the model."""
    graph = Graph("one", START >> Agent("desk", model=NOBODY, tools=[get_invoice]) >> END, context=Case)

    models = rehearse_sync(graph, Case(), runs=1000, failure_rate=0.25, choices=Choices(act=0.0))
    tools = rehearse_sync(graph, Case(), runs=10, tool_failure_rate={"get_invoice": 1.0}, choices=ACTS)

    assert models.ends[End("failed", f"{ModelUnavailable.__name__} at desk")] == pytest.approx(250, abs=50)
    assert dict(tools.ends) == {End("completed"): 10}


def test_a_failing_model_is_asked_again_after_a_while() -> None:
    """As in a run, the second attempt waits half a second, the third a whole one."""
    graph = Graph("one", START >> Agent("desk", model=NOBODY, retries=2) >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=1, latency=2, failure_rate=1.0)

    assert found.numbers("seconds") == (2 + 0.5 + 2 + 1 + 2,)
    assert found.numbers("retries") == (2,)


# --- what is never done ----------------------------------------------------------------------------------------------


def test_no_model_is_asked_and_no_tool_is_run() -> None:
    """Not even looked whether it could be: no key is needed."""

    class Careless(ScriptedModel):
        def ready(self) -> None:
            never()

    desk = Agent("desk", model=Careless(), tools=[get_invoice], fallbacks=[Careless()])
    graph = Graph("one", START >> desk >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=50, choices=ACTS, failure_rate=0.5)

    assert found.summary("tool_calls").most == 1


async def receipt(number: str) -> Report:
    """An effect that says what it gives."""
    return Report(finding=never())


def unknown(number: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - the annotation is what is missing
    """An effect that does not."""
    return never()


@node
async def pays(state: State[Case], step: Step) -> Report:
    """Do something outside."""
    return await step.effect("pay", receipt, "INV-311")


@node
async def sends(state: State[Case], step: Step) -> str:
    """Do something else outside."""
    return await step.effect("send", unknown, "INV-311")


def test_an_effect_is_not_done_but_drawn_by_its_annotation() -> None:
    """A value of the type is drawn, after a time that is drawn; the notes say so."""
    graph = Graph("one", START >> pays >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=5, tool_latency={"pay": 3})

    assert found.numbers("seconds") == (3.0,) * 5
    assert "drawn by annotation, not done: the effects pay" in found.notes
    assert any("the bodies of pays did run" in note for note in found.notes)


def test_an_effect_of_which_nobody_knows_what_it_gives_needs_a_stand_in() -> None:
    """It is not done; the error says what to give."""
    graph = Graph("one", START >> sends >> END, context=Case)

    with pytest.raises(UsageError, match=r"the effect 'send' of 'sends' .* stand_ins=\{'send': function\}"):
        rehearse_sync(graph, Case(), runs=5)
    found = rehearse_sync(graph, Case(), runs=5, stand_ins={"send": "sent {}".format})

    assert dict(found.ends) == {End("completed"): 5}


def test_a_function_that_cannot_be_undone_is_not_run() -> None:
    """It is refused before the first run, unless something stands in for it."""

    @node(irreversible=True)
    def launch(state: State[Case]) -> str:
        return never()

    gate = Human("gate", schema=bool)
    graph = Graph("one", START >> gate >> launch >> END, context=Case)

    with pytest.raises(UsageError, match="'launch' is declared irreversible: a rehearsal does not run it"):
        rehearse_sync(graph, Case())
    found = rehearse_sync(graph, Case(), runs=3, stand_ins={"launch": works.fn}, people_latency=7)

    assert found.numbers("seconds") == (7.0, 7.0, 7.0)
    assert found.numbers("active") == (0.0, 0.0, 0.0)


def test_a_resource_must_be_given() -> None:
    """A client of a service is not made up."""

    @node
    async def asks(state: State[Case], step: Step) -> str:
        return step.resource(str)

    graph = Graph("one", START >> asks >> END, context=Case)

    with pytest.raises(UsageError, match=r"resource of class str, and the rehearsal has 0 of it"):
        rehearse_sync(graph, Case())
    assert rehearse_sync(graph, Case(), runs=1, resources=["db"]).ends == {End("completed"): 1}


# --- people ----------------------------------------------------------------------------------------------------------


class Colour(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    bright: bool


def test_people_are_not_disturbed() -> None:
    """A node for a person, a pause, a question of an agent and an approval are answered with what fits."""

    @node
    async def pauses(state: State[Case]) -> Any:
        if state.turn == 0:
            return Pause("which?", schema=Colour)
        assert isinstance(state.inbox[0].value, Colour)
        return None

    @tool(approval=True, effect="irreversible")
    def pay() -> str:
        """Pay."""
        return never()

    desk = Agent("desk", model=NOBODY, tools=[pay, AskUser(schema=int)])
    graph = Graph("one", START >> Human("boss", schema=int) >> pauses >> desk >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=20, people_latency=10, latency=0, tool_latency=0, choices=ACTS)

    assert found.numbers("questions") == (4,) * 20
    assert set(found.ends) == {End("completed")}
    assert found.numbers("seconds") == (30.0,) * 20  # the agent asks both at once


def test_a_person_can_be_stood_in_for() -> None:
    """A function from the question to the answer; one that does not fit is refused."""
    graph = Graph("one", START >> Human("boss", "Which?", schema=int) >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=1, stand_ins={"boss": len})

    assert set(found.ends) == {End("completed")}
    with pytest.raises(UsageError, match=r"the stand-in of 'boss' answers 'WHICH\?', which does not fit"):
        rehearse_sync(graph, Case(), runs=1, stand_ins={"boss": str.upper})


# --- stand-ins for models and tools ----------------------------------------------------------------------------------


class Task(Brief):
    urgency: int


class Verdict(BaseModel):
    model_config = ConfigDict(frozen=True)

    sure: bool
    lines: tuple[Colour, ...]


@pytest.mark.parametrize("decision", ["native", "json"])
def test_what_stand_ins_write_fits(decision: Any) -> None:
    """Arguments, briefs, reports and answers of one's own types are taken as they come, in both modes."""
    worker = Agent("worker", model=NOBODY, tools=[get_invoice], decision=decision)
    desk = Agent("desk", model=NOBODY, output=Verdict, decision=decision)
    delegates = desk.delegates(worker, max_hops=2, brief=Task, into="reports")
    graph = Graph("one", START >> desk, delegates, desk >> END, context=Case, max_depth=1)

    found = rehearse_sync(graph, Case(), runs=100)

    assert set(found.ends) == {End("completed")}
    assert found.summary("model_calls").most > 3


def test_a_model_and_a_tool_can_be_stood_in_for() -> None:
    """As with a `ScriptedModel`, a function of the request says what the model says; a tool's gets its arguments."""
    seen: list[str] = []

    def says(request: ModelRequest) -> Any:
        return "enough" if request.turn else call("get_invoice", number="INV-311")

    def look(number: str, amount: float) -> str:
        seen.append(number)
        return "paid"

    graph = Graph("one", START >> Agent("desk", model=NOBODY, tools=[get_invoice]) >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=2, stand_ins={"desk": says, "get_invoice": look, "else": never})

    assert seen == ["INV-311"] * 2
    assert found.numbers("model_calls") == (2, 2)
    assert "stand-ins that nobody asked: else" in found.notes


def test_a_stand_in_that_raises_is_a_failure_like_any_other() -> None:
    """A model's fails its agent, a tool's is told to the model, a function's fails its node."""

    def breaks(*_: object, **__: object) -> Any:
        raise ValueError("broken")

    graph = Graph("one", START >> Agent("desk", model=NOBODY, tools=[get_invoice]) >> END, context=Case)
    function = Graph("two", START >> pays >> END, context=Case)

    model = rehearse_sync(graph, Case(), runs=1, stand_ins={"desk": breaks})
    tools = rehearse_sync(graph, Case(), runs=1, stand_ins={"get_invoice": breaks}, choices=ACTS)
    nodes = rehearse_sync(function, Case(), runs=1, stand_ins={"pays": breaks})

    assert set(model.ends) == {End("failed", "ValueError at desk")}
    assert set(tools.ends) == {End("completed")}
    assert set(nodes.ends) == {End("failed", "ValueError at pays")}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(None, id="nothing"),
        pytest.param(ToolFailure("there is none"), id="a failure"),
        pytest.param(Report.failed(Reason(code="failed", text="there is none")), id="a failed report"),
    ],
)
def test_a_tool_may_give_what_it_may_give_in_a_run(given: Any) -> None:
    """Its model is told, and goes on."""
    graph = Graph("one", START >> Agent("desk", model=NOBODY, tools=[get_invoice]) >> END, context=Case)

    def gives(number: str, amount: float) -> Any:
        return given

    found = rehearse_sync(graph, Case(), runs=1, stand_ins={"get_invoice": gives}, choices=ACTS)

    assert found.numbers("model_calls") == (2,)


def test_a_stand_in_that_says_nothing_a_model_could_say_is_refused() -> None:
    """That is no failure of a model, but of whoever wrote it."""
    graph = Graph("one", START >> Agent("desk", model=NOBODY) >> END, context=Case)

    with pytest.raises(UsageError, match="is nothing that a model could say"):
        rehearse_sync(graph, Case(), runs=1, stand_ins={"desk": id})


def test_a_value_of_a_class_that_no_text_says_cannot_be_drawn() -> None:
    """A connection is no data."""

    def connect() -> anyio.Event:
        raise AssertionError

    @node
    async def asks(state: State[Case], step: Step) -> None:
        await step.effect("connect", connect)

    with pytest.raises(UsageError, match=r"the effect 'connect' of 'asks': no value can be drawn of .*no JSON schema"):
        rehearse_sync(Graph("one", START >> asks >> END, context=Case), Case())


def _odd(number: str) -> str:
    if not number.startswith("INV-"):
        raise ValueError("no invoice")
    return number


def test_what_stands_in_no_schema_cannot_be_drawn() -> None:
    """It is told before the first run, of tools and of answers."""

    @tool
    def lookup(number: Annotated[str, AfterValidator(_odd)]) -> str:
        """Look up."""
        return never()

    class Odd(BaseModel):
        model_config = ConfigDict(frozen=True)

        number: Annotated[str, AfterValidator(_odd)]

    for desk, what in (
        (Agent("desk", model=NOBODY, tools=[lookup]), "the arguments of 'lookup', which 'desk' may call"),
        (Agent("desk", model=NOBODY, output=Odd), "the answer of 'desk'"),
    ):
        with pytest.raises(UsageError, match=f"{what}: what is drawn by its schema does not fit: .*no invoice"):
            rehearse_sync(Graph("one", START >> desk >> END, context=Case), Case(), choices=ACTS)


# --- functions in virtual time ---------------------------------------------------------------------------------------


@node
async def sleeps(state: State[Case], step: Step) -> str:
    """Sleep for an hour."""
    await step.sleep(3600)
    return "late"


@node
def works(state: State[Case]) -> str:
    """Work in a thread."""
    return "done"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_functions_sleep_in_virtual_time(backend: str) -> None:
    """An hour takes no time, beside a function in a thread, and a timeout comes when it is due."""

    @node(timeout=10)
    async def hurries(state: State[Case], step: Step) -> str:
        await step.sleep(60)
        return "never"

    join, fast = Join("join"), Join("fast", ANY, losers="cancel")
    slow = Graph("slow", START >> works >> (sleeps, works.named("other")) >> join >> END, context=Case)
    quick = Graph("quick", START >> works >> (sleeps, works.named("other")) >> fast >> END, context=Case)
    late = Graph("late", START >> hurries >> END, context=Case)

    assert rehearse_sync(slow, Case(), runs=2, backend=backend).numbers("seconds") == (3600.0, 3600.0)
    assert rehearse_sync(quick, Case(), runs=2, backend=backend).numbers("seconds") == (0.0, 0.0)
    found = rehearse_sync(late, Case(), runs=2, backend=backend)
    assert (found.numbers("seconds"), set(found.ends)) == ((10.0, 10.0), {End("failed", "timeout at hurries")})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_effects_of_one_function_overlap_in_virtual_time(backend: str) -> None:
    """Several at once take as long as the longest; beside them it may sleep."""

    @node
    async def both(state: State[Case], step: Step) -> None:
        async def one(key: str) -> None:
            await step.effect(key, receipt, key, key=key)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "short")
            tasks.start_soon(one, "long")
            tasks.start_soon(step.sleep, 4)

    graph = Graph("one", START >> both >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=2, tool_latency={"short": 1, "long": 5}, backend=backend)

    assert found.numbers("seconds") == (5.0, 5.0)
    assert not any("outside" in note and "times" in note for note in found.notes)


def test_a_function_may_do_all_that_it_may_in_a_run() -> None:
    """It says something, looks at what is left, delegates, and is refused what it cannot pay."""

    @node(max_turns=3)
    async def lead(state: State[Case], step: Step) -> Any:
        step.emit("here")
        if state.turn == 0:
            return Delegate(Call("works", "look"), Call("works", "look again"))
        assert step.left.budget.tool_calls == 1
        try:
            await step.effect("pay", receipt, "INV-311", cost=Budget(tool_calls=2))
        except BoundHit as error:
            return error.bound
        raise AssertionError

    graph = Graph(
        "one", START >> lead >> END, lead.delegates(works, max_hops=2), context=Case, budget=Budget(tool_calls=1),
        max_depth=1,
    )  # fmt: skip

    assert set(rehearse_sync(graph, Case(), runs=2).ends) == {End("completed")}


def test_what_a_function_raises_is_an_end() -> None:
    """The run that it ends is one of many; its text is kept with the sample."""

    @node
    async def breaks(state: State[Case]) -> None:
        raise ValueError("odd")

    found = rehearse_sync(Graph("one", START >> breaks >> END, context=Case), Case(), runs=2)

    assert dict(found.ends) == {End("failed", "ValueError at breaks"): 2}
    assert found.samples[0].text == "odd"


def test_what_ends_a_program_ends_a_rehearsal() -> None:
    """SystemExit of a body passes unchanged."""

    @node
    async def leaves(state: State[Case]) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        rehearse_sync(Graph("one", START >> leaves >> END, context=Case), Case())


# --- the same seed ---------------------------------------------------------------------------------------------------


def branching() -> Graph[Case]:
    """A graph in which two agents of a fork race for the join, and sleep."""

    def more(state: State[Case]) -> bool:
        return len(str(state.inbox)) % 2 == 0

    a, b = Agent("a", model=NOBODY, tools=[get_invoice]), Agent("b", model=NOBODY)
    race = Join("race", ANY, losers="cancel")
    return Graph(
        "race", START >> works >> (a, b) >> race, race.choose(when(more, works, max_hops=3), default=sleeps),
        sleeps >> END, context=Case, budget=Budget(model_calls=7),
    )  # fmt: skip


def test_the_same_seed_gives_the_same_numbers() -> None:
    """On both backends, however many runs there are, and another seed gives others."""
    first = rehearse_sync(branching(), Case(), runs=40, seed=5)
    again = rehearse_sync(branching(), Case(), runs=20, seed=5, backend="trio")
    other = rehearse_sync(branching(), Case(), runs=20, seed=6)

    assert again.samples == first.samples[:20]
    assert other.samples != again.samples
    assert len(first.ends) > 1


def test_hash_seeds_change_nothing() -> None:
    """Another process draws the same."""
    program = (
        "from tests.rehearsal.test_rehearsal import Case, branching, rehearse_sync; "
        "print(rehearse_sync(branching(), Case(), runs=10).samples)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip

    assert printed == {f"{rehearse_sync(branching(), Case(), runs=10).samples}\n"}


def test_what_one_agent_draws_does_not_depend_on_the_others() -> None:
    """A slower desk changes when billing speaks, and nothing of what it says."""
    quick = rehearse_sync(team(), Case(), runs=50, latency={"desk": 1})
    slow = rehearse_sync(team(), Case(), runs=50, latency={"desk": 100})

    assert quick.numbers("tokens") == slow.numbers("tokens")
    assert quick.numbers("model_calls") == slow.numbers("model_calls")
    assert quick.numbers("seconds") != slow.numbers("seconds")


# --- recordings ------------------------------------------------------------------------------------------------------


async def test_a_run_can_be_drawn_from() -> None:
    """Its times and tokens are samples, by agent and by tool, and of all together."""

    @tool
    async def lookup(number: str) -> str:
        """Look up."""
        return "paid"

    desk = Agent("desk", model=ScriptedModel(call("lookup", number="INV-311"), "enough"), tools=[lookup])
    graph = Graph("one", START >> desk >> END, context=Case)
    async with start(graph, Case(), clock=ManualClock()) as run:
        events: list[Event] = [event async for event in run]

    found = recordings(events)

    assert found.latency["desk"] == found.latency[""]
    assert found.latency["desk"].samples == (0.0, 0.0)
    assert all(sample > 1 for sample in found.tokens["desk"].samples)
    assert len(found.tool_latency["lookup"].samples) == 1
    again = await rehearse(graph, Case(), runs=2, latency=found.latency, tokens=found.tokens, choices=ACTS)
    assert again.summary("seconds").most > 0  # of tools nothing was given


def test_nothing_recorded_is_nothing_to_draw_from() -> None:
    """A run without a call of a model says nothing of their times."""
    with pytest.raises(UsageError, match="no call of a model has ended"):
        recordings(())


# --- bad use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param({"runs": 0}, "runs=0: a whole number of at least 1", id="runs"),
        pytest.param({"runs": True}, "runs=True", id="bool"),
        pytest.param({"seed": "a"}, "seed='a': a whole number is needed", id="seed"),
        pytest.param({"max_parallel": 0}, "max_parallel=0", id="max_parallel"),
        pytest.param({"budget": 3}, "budget=3: a Budget is needed", id="budget"),
        pytest.param({"price": 3}, "price=3: a Price of two Decimals", id="price"),
        pytest.param({"latency": "often"}, "latency: the distribution 'often'", id="distribution"),
        pytest.param({"latency": {"biling": 1}}, r"latency=\{'biling': ...\}.* Did you mean 'billing'\?", id="agent"),
        pytest.param({"tool_tokens": {"x": 1}}, "there are 'get_invoice'", id="tool"),
        pytest.param({"choices": 0.5}, r"Choices\(act=..., .* hand_over=...\) is needed", id="choices"),
        pytest.param({"failure_rate": 2}, "failure_rate=2: a probability from 0 to 1", id="rate"),
        pytest.param({"approval_rate": -1}, "approval_rate=-1: a probability", id="approval"),
        pytest.param({"stand_ins": {"desk": 1}}, "stand_ins=.* to functions is needed", id="stand_ins"),
        pytest.param({"stand_ins": {"desk": anyio.sleep}}, "'desk'.* a plain function, and not async", id="async"),
        pytest.param({"latencies": 1}, r"rehearse\(latencies=...\): it takes approval_rate, choices", id="unknown"),
    ],
)
def test_bad_use_is_told(options: dict[str, Any], complaint: str) -> None:
    """The error says what was given and what is needed."""
    with pytest.raises(UsageError, match=complaint):
        rehearse_sync(team(), Case(), **options)


def test_what_is_no_graph_or_context_is_told() -> None:
    """As by `run`."""

    class Other(Context):
        pass

    given: Any = "support"
    other: Any = Other()
    with pytest.raises(UsageError, match="a Graph is needed"):
        rehearse_sync(given, Case())
    with pytest.raises(UsageError, match="runs on a Case, not on a Other"):
        rehearse_sync(team(), other)
    with pytest.raises(GraphProblems):
        rehearse_sync(Graph("odd", START >> works, context=Case), Case())
    with pytest.raises(UsageError, match="a probability from 0 to 1"):
        Choices(act=3)


async def test_in_a_loop_it_is_awaited() -> None:
    """The sync door says so, and the async one works."""
    with pytest.raises(UsageError, match=r"await rehearse\(...\)"):
        rehearse_sync(team(), Case())

    found: Rehearsal = await rehearse(team(), Case(), runs=3)

    assert (found.runs, repr(found)) == (3, "<Rehearsal of 'support': 3 runs, seed 0>")


async def test_a_rehearsal_can_be_cancelled() -> None:
    """It gives others their turn after each run."""
    with anyio.move_on_after(0.05) as scope:
        await rehearse(team(), Case(), runs=10**9)

    assert scope.cancelled_caught


# --- functions that wait for something else --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_a_function_waits_for_outside_takes_no_virtual_time(backend: str) -> None:
    """It is waited for, before anything else happens."""

    @node
    async def spins(state: State[Case]) -> str:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return "done"

    graph = Graph("one", START >> spins >> sleeps >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=2, backend=backend)

    assert found.numbers("seconds") == (3600.0, 3600.0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_functions_that_wait_for_each_other_do_not_wait_for_ever(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the others go on; the notes say that this was not under control."""
    monkeypatch.setattr(stage, "GRACE", 0.05)
    events: list[anyio.Event] = []

    @node
    async def waits(state: State[Case]) -> None:
        events.append(anyio.Event())
        await events[-1].wait()

    @node
    async def frees(state: State[Case]) -> None:
        events.pop().set()

    graph = Graph("one", START >> works >> (waits, frees) >> Join("join") >> END, context=Case)

    found = rehearse_sync(graph, Case(), runs=2, backend=backend)

    assert dict(found.ends) == {End("completed"): 2}
    assert any("bodies waited for something outside" in note for note in found.notes)


def test_a_function_that_others_do_not_wait_for_any_more_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing else is due, it is waited for."""
    monkeypatch.setattr(stage, "GRACE", 0)

    @node
    async def spins(state: State[Case]) -> str:
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        return "done"

    found = rehearse_sync(Graph("one", START >> spins >> END, context=Case), Case(), runs=2)

    assert dict(found.ends) == {End("completed"): 2}


def test_a_function_in_a_thread_says_something() -> None:
    """`step.emit` works from there, too, and an effect's key is given to a stand-in that takes one."""

    @node
    def tells(state: State[Case], step: Step) -> str:
        step.emit("half way")
        return "told"

    def keyed(number: str, idempotency_key: str) -> str:
        return f"{number} {idempotency_key}"

    graph = Graph("one", START >> tells >> sends >> END, context=Case)

    assert set(rehearse_sync(graph, Case(), runs=2, stand_ins={"send": keyed}).ends) == {End("completed")}
