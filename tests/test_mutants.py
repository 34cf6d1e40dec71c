"""What a change of the fold, the ledger or the checks could break unseen: one test for each mutant that survived."""

from decimal import Decimal
from typing import Annotated, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Brief,
    Budget,
    Call,
    Context,
    Delegate,
    Graph,
    Join,
    Node,
    Report,
    State,
    Step,
    Update,
    append,
    first,
    fork,
    node,
    quorum,
    run_sync,
    when,
)
from graphflow.events import EdgeTaken, NodeRetried, NodeStarted, Refused, TimerSet
from graphflow.model.ids import Segment, names
from graphflow.runtime.advance import Fold
from graphflow.runtime.commands import CloseGroup, OpenGroup
from graphflow.runtime.ledger import Meter, least_free
from graphflow.testing import ManualClock, MemoryJournal, records_of
from tests.cases.helpers import Played, play


class Nothing(Context):
    """A context without fields."""


# --- the ledger ---

counts = st.none() | st.integers(0, 40)
budgets = st.builds(
    Budget, node_runs=counts, model_calls=counts, tokens=counts, usd=st.none() | st.decimals(0, 9, places=2)
)


@given(budgets, budgets, st.integers(0, 30), st.integers(0, 30))
def test_what_a_node_sees_as_left_is_what_could_be_shared(own: Budget, cap: Budget, spent: int, held: int) -> None:
    """`state.left`, made later from a snapshot, says what a share of everything would have been at that moment."""
    account = Meter((), own)
    team = Meter((Segment("team"),), cap, account)
    account.reserve((0, 0, 0, 0, held, Decimal(held) / 10))
    team.spend((spent, 0, 0, 0, spent, Decimal(spent) / 10))

    for meter in (account, team):
        snapshot, whole = meter.snapshot(), meter.share(1.0)
        meter.spend((5, 5, 0, 0, 5, Decimal(5)))

        assert least_free(snapshot) == whole


# --- waiting for what a split sibling holds ---


def holder(*, runs: int = 0) -> Node[Any]:
    """Make a callee that holds its account for five seconds, and fails a number of times after two of them first."""
    tried: list[None] = []

    async def hold(_: State[Nothing], step: Step) -> str:
        tried.append(None)
        if len(tried) <= runs:
            await step.sleep(2)
            msg = "not yet"
            raise OSError(msg)
        await step.sleep(5)
        return "held"

    return node(name="holder", retries=runs)(hold)


def pooled(name: str = "pooled", failures: int = 0, **options: Any) -> Node[Any]:
    """Make a callee that works for a second, and fails a number of times first."""
    tried: list[None] = []

    async def work(_: State[Nothing], step: Step) -> str:
        tried.append(None)
        await step.sleep(1)
        if len(tried) <= failures:
            msg = "not yet"
            raise OSError(msg)
        return "worked"

    return node(name=name, **options)(work)


async def beside(split: Node[Any], pools: dict[str, tuple[Node[Any], float | None]], budget: Budget) -> Played[Nothing]:
    """Call one that has all the budget to itself beside others that spend from the pool, each with its timeout."""

    async def ask(state: State[Nothing]) -> Any:
        return Delegate(Call("holder", ""), *map(call_of, pools)) if state.turn == 0 else state.values

    boss = node(name="boss")(ask)
    graph = Graph(
        "g",
        START >> boss >> END,
        boss.delegates(split, max_hops=1, share=1.0),
        *(boss.delegates(pool, max_hops=1, timeout=timeout) for pool, timeout in pools.values()),
        context=Nothing,
        budget=budget,
    )
    return await play(graph, Nothing())


def call_of(name: str) -> Call:
    """Make a call without words."""
    return Call(name, "")


def began(played: Played[Nothing]) -> dict[str, float]:
    """Tell when each node began its last attempt."""
    kinds = (NodeStarted, NodeRetried)
    return {names(event.body.path)[-1]: event.at for event in played.events if isinstance(event.body, kinds)}


NOTHING_ELSE: dict[str, Any] = {"model_calls": 0, "tool_calls": 0, "tokens": 0, "usd": 0}


async def test_a_call_waits_for_the_node_run_that_a_sibling_holds() -> None:
    """It waits for a node run and for nothing else: that no model call or retry is left is no reason to refuse it."""
    budget = Budget(node_runs=3, retries=0, **NOTHING_ELSE)

    played = await beside(holder(), {"pooled": (pooled(), None)}, budget)

    assert played.result.status == "completed"
    assert began(played) == {"boss": 0, "holder": 0, "pooled": 5}


async def test_a_retry_waits_for_the_retry_that_a_sibling_holds() -> None:
    """It begins when the sibling is done, costs one retry and one node run, and no model call has to be left."""
    played = await beside(
        holder(), {"pooled": (pooled(failures=1, retries=1), None)}, Budget(retries=1, **NOTHING_ELSE)
    )

    assert played.result.status == "completed"
    assert began(played) == {"boss": 0, "holder": 0, "pooled": 5}
    assert (played.result.spent.total.retries, played.result.spent.total.node_runs) == (1, 4)
    assert played.result.spent.by_node["boss/pooled"] == Budget(
        node_runs=2, model_calls=0, tool_calls=0, retries=1, tokens=0, usd=0
    )


@pytest.mark.parametrize(("retries", "status"), [(1, "partial"), (2, "completed")])
async def test_a_retry_that_a_sibling_used_up_is_refused_when_it_is_done(retries: int, status: str) -> None:
    """Who waited in vain fails with the bound that refuses it, when nothing is in flight that could help."""
    pool = pooled(failures=1, retries=1)

    played = await beside(holder(runs=1), {"pooled": (pool, None)}, Budget(retries=retries))

    assert played.result.status == status
    assert [(body.bound, body.limit) for body in played.of(Refused)] == [("retries", 1)] * (retries == 1)
    assert began(played)["pooled"] == (0 if retries == 1 else 7)


@pytest.mark.parametrize(("seconds", "tries"), [(3, 1), (None, 2)])
async def test_a_retry_whose_call_has_ended_waits_no_more(seconds: float | None, tries: int) -> None:
    """A call that is over time while its retry waits for funds has ended: what comes free is not spent on it."""
    pool = pooled(failures=1, retries=1)

    played = await beside(holder(), {"pooled": (pool, seconds)}, Budget(retries=1))

    assert played.result.status == ("completed" if tries == 2 else "partial")
    assert played.result.spent.by_node["boss/pooled"].node_runs == tries
    assert played.result.spent.total.retries == tries - 1


@pytest.mark.parametrize(("seconds", "last"), [(3, ["two", "three"]), (None, ["one", "two", "three"])])
async def test_who_has_left_the_line_for_funds_holds_up_nobody(seconds: float | None, last: list[str]) -> None:
    """Retries that can all be paid begin together; one that is paid, or whose call has ended, is in nobody's way."""
    pools = {name: pooled(name, failures=1, retries=1) for name in ("one", "two", "three")}
    limits = {name: (pool, seconds if name == "one" else None) for name, pool in pools.items()}

    played = await beside(holder(), limits, Budget(retries=3))

    retried = [(event.seq, event.at) for event in played.events if isinstance(event.body, NodeRetried)]
    assert sorted(names(body.path)[-1] for body in played.of(NodeRetried)) == sorted(last)
    assert retried == [(retried[0][0] + place, 5) for place in range(len(last))]


# --- calls ---


async def test_the_time_of_a_call_is_among_the_timers() -> None:
    """A reader of the events sees when a call is over time, and which."""
    played = await beside(holder(), {"pooled": (pooled(), 3)}, Budget(node_runs=9))

    timers = [(names(body.path), body.at) for body in played.of(TimerSet) if body.purpose == "call_timeout"]
    assert timers == [(("boss", "pooled"), timers[0][1])]


@pytest.mark.parametrize(("outside", "inside", "limit"), [(2, None, 2), (9, 1, 1)])
async def test_a_refused_depth_names_the_bound_of_the_graph_that_refuses(
    outside: int, inside: int | None, limit: int
) -> None:
    """Of the graphs around a caller it is the innermost one that leaves no depth, whatever the others allow."""

    async def ask(state: State[Nothing]) -> Any:
        return Delegate(call_of("again")) if state.turn == 0 else Report(finding="asked")

    async def lead(state: State[Nothing]) -> Any:
        return Delegate(call_of("team")) if state.turn == 0 else "led"

    again, boss = node(name="again")(ask), node(name="boss")(lead)
    team = Graph("team", START >> again >> END, again.delegates(again, max_hops=9), context=Nothing, max_depth=inside)
    graph = Graph("g", START >> boss >> END, boss.delegates(team, max_hops=1), context=Nothing, max_depth=outside)

    played = await play(graph, Nothing())

    assert [(body.bound, body.limit) for body in played.of(Refused)] == [("max_depth", limit)]
    assert played.started == ["boss", "boss/team", "boss/team/again", "boss/team/again/again"]


class Invoice(Brief):
    """A brief with a field of its own."""

    number: str


async def test_a_call_with_the_wrong_brief_uses_no_hop() -> None:
    """The caller is told, and may call again with the brief that is asked for."""
    calls = [Call("worker", "INV-311"), Call("worker", Invoice(objective="Was it paid?", number="INV-311"))]

    async def ask(state: State[Nothing]) -> Any:
        return Delegate(calls[state.turn]) if state.turn < len(calls) else state.values[0]

    boss = node(name="boss")(ask)
    edge = boss.delegates(plain("worker"), max_hops=1, brief=Invoice)
    graph = Graph("g", START >> boss >> END, edge, context=Nothing)

    played = await play(graph, Nothing())

    assert [reason.code for reason in played.result.failures] == ["contract"]
    assert played.refused == []
    assert played.started == ["boss", "boss/worker"]


# --- budgets ---


def test_money_finer_than_a_millionth_goes_to_the_first_part() -> None:
    """Money is shared in millionths; what is finer is lost to nobody: the first part has it, and one part has all."""
    budget = Budget(usd="0.0000027")

    assert [part.usd for part in budget.split(3)] == [Decimal("0.0000017"), Decimal("0.000001"), 0]
    assert [part.usd for part in budget.split(1)] == [budget.usd]


def test_no_active_seconds_are_a_bound_too() -> None:
    """0 seconds are an amount like 0 of anything else: not None, and not refused."""
    assert Budget(seconds=0) != Budget()
    assert Budget(seconds=0).seconds == 0


def test_a_budget_is_a_value() -> None:
    """Nobody changes a budget that somebody else was given; two of the same amounts are one key."""
    budget = Budget(tokens=1)

    with pytest.raises(AttributeError):
        setattr(budget, "tokens", 2)  # noqa: B010 - a checker would refuse the assignment
    assert {budget, Budget(tokens=1)} == {budget}


# --- where branches part and meet ---


def plain(name: str, seconds: float = 0, **options: Any) -> Node[Any]:
    """Make a node that takes its time, then gives its name."""

    async def say(_: State[Any], step: Step) -> str:
        await step.sleep(seconds)
        return name

    return node(name=name, **options)(say)


def always(_: State[Nothing]) -> bool:
    """Hold."""
    return True


@pytest.mark.parametrize("first", [[], ["r"]])
async def test_a_branch_that_fails_before_it_begins_takes_the_others_with_it(first: list[str]) -> None:
    """When the bound of an edge out of a fork refuses it, the branches after it do not start."""
    s, a, b, j = plain("s"), plain("a"), plain("b"), plain("j")
    branches = fork(*map(plain, first), when(always, a, max_hops=0), b)
    graph = Graph("g", START >> s >> branches >> j >> END, context=Nothing)

    played = await play(graph, Nothing())

    assert (played.result.status, played.reason.code) == ("failed", "max_hops")
    assert [body.edge.target for body in played.of(EdgeTaken)] == ["s", *first]


async def test_the_time_of_a_quorum_is_among_the_timers() -> None:
    """A reader of the events sees when a quorum is over time, and under which fork."""
    j = Join("j", quorum(2, within=4))
    graph = Graph("g", START >> plain("s", 1) >> fork(plain("a"), plain("b")) >> j >> END, context=Nothing)

    played = await play(graph, Nothing())

    timers = [(names(body.path), body.at) for body in played.of(TimerSet) if body.purpose == "quorum"]
    assert timers == [(("s",), 5)]


async def test_a_join_is_entered_over_the_edge_of_its_first_branch() -> None:
    """The first in branch order of those that arrived, whatever came first in time."""
    s, a, b, c, j = plain("s"), plain("a", 3), plain("b", 1), plain("c"), plain("j")
    graph = Graph("g", START >> s >> fork(a, b >> c) >> j >> END, context=Nothing)

    played = await play(graph, Nothing())

    entered = [(body.edge.source, body.edge.target) for body in played.of(NodeStarted)]
    assert entered[-1] == ("a", "j")


def test_the_task_group_of_a_scope_is_closed_with_it() -> None:
    """A run that forks in a long loop holds the groups of the scopes that are open, not of all that were."""
    journal = MemoryJournal()
    graph = Graph("g", START >> plain("s") >> (plain("a"), plain("b")) >> plain("j") >> END, context=Nothing)
    run_sync(graph, Nothing(), journal=journal, clock=ManualClock(), run_id="run")
    fold = Fold(graph)

    done = [fold.advance(entry.fact, entry.at)[1] for entry in records_of(graph, anyio.run(journal.read, "run"))]

    groups = [command for commands in done for command in commands if isinstance(command, (OpenGroup, CloseGroup))]
    assert groups == [OpenGroup(groups[0].group, 0), CloseGroup(groups[0].group)]


def up_to_one(old: int, new: int) -> int:
    """Sum up, but refuse what is more than one."""
    if old + new > 1:
        msg = "one is enough"
        raise OverflowError(msg)
    return old + new


class Counting(Context):
    """A field whose reducer does not take everything."""

    count: Annotated[int, up_to_one] = 0


@pytest.mark.parametrize("caught", [False, True])
async def test_a_reducer_that_raises_where_branches_meet_is_a_failure(caught: bool) -> None:
    """What each branch wrote was fine for itself; the join fails with the reducer's error, blamed on who wrote last."""

    @node
    def a(_: State[Counting]) -> Update:
        return Update(count=1)

    b, j, x = a.named("b"), plain("j"), plain("x")
    handled = (j.on_error(x), x >> END) if caught else ()
    graph = Graph("g", START >> plain("s") >> (a, b) >> j >> END, *handled, context=Counting)

    played = await play(graph, Counting())

    assert "j" not in played.started
    assert played.result.context.count == 0
    if caught:
        assert played.result.output == "x"
    else:
        assert (played.result.status, played.reason.path) == ("failed", "b")
        assert (played.reason.error_type, played.reason.text) == ("OverflowError", "one is enough")


async def test_an_escalate_node_in_a_branch_ends_that_branch_alone() -> None:
    """Without a next statement it ends its graph when it is escalated to, not when a branch comes to it."""
    a, b, j, lead = plain("a", 2), plain("b"), plain("j"), plain("lead")
    graph = Graph("g", START >> plain("s") >> (a, b, lead), (a, b) >> j >> END, context=Nothing, escalate=lead)

    played = await play(graph, Nothing())

    assert (played.result.status, played.result.output) == ("completed", "j")
    assert played.started == ["s", "a", "b", "lead", "j"]


# --- the checks ---


def codes(*statements: Any, **options: Any) -> list[str]:
    """Give the code of each problem of a graph of these statements, without that it has no budget."""
    context = options.pop("context", Nothing)
    graph = Graph("g", *statements, context=context, budget=Budget(node_runs=9), **options)
    return [problem.code for problem in graph.check()]


@pytest.mark.parametrize(("wanted", "expected"), [(2, []), (3, ["join-unmet"])])
@pytest.mark.parametrize("kind", ["fork", "map"])
def test_a_join_may_wait_for_all_that_can_come(kind: str, wanted: int, expected: list[str]) -> None:
    """As many as there are branches, or lanes at most, can arrive: only more than that are too many."""
    s, j = plain("s"), Join("j", first(wanted))
    if kind == "map":
        statements: list[Any] = [START >> s, s.map(plain("a"), over=no_items, join=j, max_items=2), j >> END]
    else:
        statements = [START >> s >> fork(plain("a"), plain("b")) >> j >> END]

    assert codes(*statements) == expected


def no_items(_: State[Nothing]) -> tuple[int, ...]:
    """Give what a map runs over."""
    return ()


def test_a_join_that_waits_for_all_may_stand_anywhere() -> None:
    """Where no branches meet, a Join without a policy of its own is a node like others."""
    assert codes(START >> Join("j") >> END) == []
    assert codes(START >> Join("j", first(1)) >> END) == ["join-misplaced"]


class Counted(Context):
    """A field without a reducer."""

    count: int = 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_cases_of_one_branch_may_write_one_field(place: int) -> None:
    """Of two cases of a choose one runs, so both may write a field, in whichever branch they stand."""
    pick, j = plain("pick"), plain("j")
    one, two = (plain(name, writes={"count"}) for name in ("one", "two"))
    branches: list[Node[Any]] = [plain("a"), plain("b")]
    branches.insert(place, pick)
    rest = [branch for branch in branches if branch is not pick]
    parted: list[Any] = [START >> plain("s") >> fork(*branches), *(branch >> j for branch in rest), j >> END]

    problems = codes(*parted, pick.choose(when(always, one), default=two), (one, two) >> j, context=Counted)

    assert problems == []


class Answer(BaseModel):
    """What a callee may report."""

    model_config = ConfigDict(frozen=True)

    text: str = ""


def newest(_: Any, new: Any) -> Any:
    """Keep the newer one."""
    return new


class Answered(Context):
    """Fields that take an answer: alone, one of many, and by a reducer that may take anything."""

    one: Answer = Answer()
    many: Annotated[tuple[Answer, ...], append] = ()
    some: Annotated[Answer, newest] = Answer()


@pytest.mark.parametrize("into", ["one", "many", "some"])
def test_a_report_fits_the_field_that_it_goes_into(into: str) -> None:
    """A model of another class is a problem, unless a reducer of one's own takes it; the right class never is one."""
    boss, a = plain("boss"), plain("a")
    wrong, right = (boss.delegates(a, max_hops=1, into=into, report=report) for report in (Report, Answer))

    assert codes(START >> boss >> END, wrong, context=Answered) == ([] if into == "some" else ["into-type"])
    assert codes(START >> boss >> END, right, context=Answered) == []


@pytest.mark.parametrize(("words", "expected"), [("Sums up.", []), ("Looks up.", ["same-description"])])
def test_members_with_words_of_their_own_are_told_apart(words: str, expected: list[str]) -> None:
    """Only what two members of a team share is a problem, not that each has a description."""
    boss, a, b = plain("boss"), plain("a", description="Looks up."), plain("b", description=words)

    assert codes(START >> boss >> END, boss.delegates(a, b, max_hops=1)) == expected
