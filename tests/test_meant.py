"""What somebody new does wrong: each mistake is answered with what was meant."""

from collections.abc import Callable
from typing import Annotated, Any, cast

import pytest

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Call,
    Context,
    Done,
    FrozenDict,
    Graph,
    Handoff,
    Human,
    Join,
    MemoryJournal,
    Result,
    State,
    Supervisor,
    Update,
    append,
    node,
    resume,
    run,
    start,
    tool,
)
from graphflow.errors import UsageError
from graphflow.graphs.checks import check_graph
from graphflow.testing import RuleModel, fold_again

MODEL = RuleModel(otherwise="ok")
BUDGET = Budget(node_runs=9)


class Case(Context):
    """What the nodes see."""

    question: str = ""
    count: int = 0


class Collects(Context):
    """A context that takes item by item."""

    items: Annotated[tuple[str, ...], append] = ()


class Wider(Case):
    """A case that holds more."""

    more: str = ""


class Other(Context):
    """No case."""

    count: int = 0


@node
def a(state: State[Case]) -> str:
    """Say its name."""
    return "a"


@node
def b(state: State[Case]) -> str:
    """Say its name."""
    return "b"


def loose(value: object) -> Any:
    """Give a value as if it had the right type."""
    return cast("Any", value)


def graph(*chains: Any, context: type[Any] = Case, budget: Budget = BUDGET) -> Graph[Any]:
    """Make a graph."""
    return Graph("g", *chains, context=context, budget=budget)


async def returned(value: Callable[[State[Any]], object], **options: Any) -> Result[Any]:
    """Run a node that returns something, with a journal, and fold again what is stored."""

    @node(name="h", **options)
    async def body(state: State[Case]) -> object:
        return value(state)

    journal = MemoryJournal()
    made = graph(START >> body >> END)
    result = await run(made, Case(), journal=journal, run_id="r")

    assert fold_again(made, await journal.read("r")).ended is not None
    return result


def one_item(_: State[Case]) -> tuple[str, ...]:
    """Give what a map runs over."""
    return ("x",)


async def late() -> int:
    """Give a number, once it is awaited."""
    return 1


MISREAD: dict[str, tuple[Callable[[State[Any]], object], str]] = {
    "a changed context": (
        lambda state: state.context.model_copy(update={"question": "new"}),
        "'h' returned a whole Case, which changes nothing. To change the context return Update(question=...)",
    ),
    "a new context": (lambda _: Case(count=2), "return Update(count=...)"),
    "the context": (lambda state: state.context, "return Update(field=...)"),
    "a table of fields": (lambda _: {"count": 1}, "Update(count=...) changes the context; Done(FrozenDict(...))"),
    "a node": (lambda _: b, "declare h.hands_off(b, max_hops=...) and return Handoff('b')"),
    "END": (lambda _: END, "'h' returned END. Where it leads is declared, as h >> END"),
    "a call": (lambda _: Call("b", "x"), "Return Delegate(Call(...), ...)"),
    "calls": (lambda _: (Call("b", "x"), Call("b", "y")), "Return Delegate(*calls)."),
    "an update and an output": (lambda _: (Update(count=1), "x"), "return Done(output, update=Update(...))."),
    "an update and a handoff": (lambda _: (Handoff("b"), Update(count=1)), "return Handoff(..., update=Update(...))."),
    "two updates": (lambda _: (Update(count=1), Update(count=2)), "A node returns one outcome"),
    "what nobody awaited": (lambda _: late(), "a coroutine that nobody has awaited. Await it: `return await ...`."),
    "a generator": (lambda _: (letter for letter in "ab"), "'h' returned a generator. A node returns one value"),
}


@pytest.mark.parametrize("case", MISREAD)
async def test_what_cannot_be_meant_as_an_output_is_refused_with_what_was_meant(case: str, anyio_backend: str) -> None:
    """It is a failure of the node, which an error edge can catch, and the stored run says the same."""
    value, words = MISREAD[case]

    result = await returned(value)

    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.code == "invalid_value"
    assert words in result.reason.text


FINE: dict[str, tuple[Callable[[State[Any]], object], object]] = {
    "a context that is meant": (lambda _: Done(Case(count=2)), Case(count=2)),
    "another context": (lambda _: Other(count=2), Other(count=2)),
    "a frozen table": (lambda _: FrozenDict({"count": 1}), FrozenDict({"count": 1})),
    "a tuple": (lambda _: ("a", 1), ("a", 1)),
    "a budget": (lambda _: Budget(tokens=1), Budget(tokens=1)),
}


@pytest.mark.parametrize("case", FINE)
async def test_what_can_be_meant_is_an_output(case: str, anyio_backend: str) -> None:
    """A context of another class, or in `Done`, and frozen tables are values like others."""
    value, output = FINE[case]

    result = await returned(value)

    assert (result.status, result.output) == ("completed", output)


async def test_a_dict_of_other_keys_is_told_what_is_frozen(anyio_backend: str) -> None:
    """It says nothing of the context, so it is taken for an output."""
    result = await returned(lambda _: {"colour": 1})

    assert result.reason is not None
    assert "use FrozenDict[K, V]" in result.reason.text


async def test_several_items_for_append_are_told_what_takes_them(anyio_backend: str) -> None:
    """The first thing that one gets wrong about reducers."""

    @node
    def collects(state: State[Collects]) -> Update:
        return Update(items=("a", "b"))

    result = await run(graph(START >> collects >> END, context=Collects), Collects())

    assert result.reason is not None
    assert result.reason.text.endswith("Its reducer append takes one item; extend takes several.")


def test_an_annotation_of_another_context_is_warned_of() -> None:
    """A node on the graph's context, on one that it derives from, or on no one's can stand in the graph."""

    @node
    def strange(state: State[Other]) -> None:
        """Run on another context."""

    @node
    def open_to_all(state: State[Any]) -> None:
        """Run on any context."""

    narrow = check_graph(graph(START >> loose(strange) >> END))
    wide = check_graph(graph(START >> a >> open_to_all >> END, context=Wider))

    assert [found.code for found in narrow] == ["context-type"]
    assert narrow[0].message == "'strange' takes a State[Other], and the graph runs on Case."
    assert narrow[0].hint == "Write State[Case], or derive Case from Other."
    assert wide == ()


def test_only_the_cause_is_told_and_not_what_follows_from_it() -> None:
    """One missing statement, one name given twice, one node met twice: one problem each."""
    unfinished = check_graph(graph(START >> a >> b))
    doubled = check_graph(graph(START >> a >> b.named("a") >> END))
    again = check_graph(graph(START >> a >> b >> a >> END))

    assert [(found.code, found.where) for found in unfinished] == [("no-end", ("b",))]
    assert [(found.code, found.where) for found in doubled] == [("name-clash", ("a",))]
    assert [(found.code, found.where) for found in again] == [("ambiguous-next", ("a",))]
    assert "a.named('again')" in again[0].hint


def test_a_map_without_a_bound_wants_no_number_of_runs() -> None:
    """Nobody reads "inf" in a warning."""
    end = Join("j")
    lanes: Any = loose(a).map(b, over=one_item, join=end)

    warnings = [str(found) for found in check_graph(graph(START >> a, lanes, end >> END))]

    assert warnings[0].startswith("warning over-budget: nothing but its budget, which allows 9, bounds the node runs")
    assert "the map at 'a' has no max_items" in warnings[0]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "node": (lambda: loose(node)(retry=3)(late), "@node has no option retry=. Did you mean retries=?"),
    "Budget": (lambda: loose(Budget)(model_call=3), "Budget has no option model_call=. Did you mean model_calls=?"),
    "Agent": (
        lambda: loose(Agent)("x", model=MODEL, prompt="a"),
        "Agent 'x' has no option prompt=. Did you mean ins",
    ),
    "Supervisor": (lambda: loose(Supervisor)("x", model=MODEL, tool=()), "Supervisor 'x' has no option tool=."),
    "Graph": (lambda: loose(Graph)("g", context=Case, budjet=1), "Graph 'g' has no option budjet=. Did you mean bud"),
    "an agent as a tool": (lambda: Agent("x", model=MODEL, tools=[loose(a)]), "write s.delegates(a, max_hops=...)"),
    "the tool of a node": (lambda: loose(tool)(a, name="x"), "is a node, and no tool."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_nobody_has_is_refused_with_the_one_that_was_meant(case: str) -> None:
    """Each error names what there is."""
    make, words = REFUSED[case]

    with pytest.raises(UsageError) as refused:
        make()

    assert words in str(refused.value)


def test_another_error_of_a_call_stays_python_s() -> None:
    """What is missing is no option that nobody has."""
    with pytest.raises(TypeError, match="model"):
        loose(Agent)("x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"question": "q"}, "runs on a Case, not on a dict. Write Case(**it)."),
        (Case, "not on the class Case itself. Write Case(question=...)."),
        ("q", "not on a str. Write Case(question=...)."),
        (Other(), "not on a Other."),
    ],
)
async def test_what_is_no_context_is_told_how_to_be_one(given: object, words: str) -> None:
    """The error writes the call."""
    with pytest.raises(UsageError) as refused:
        await run(graph(START >> a >> END), loose(given))

    assert words in str(refused.value)


def sets(state: State[Any]) -> None:
    """Write to the context."""
    state.context.count = 1


TAKEN: list[tuple[Callable[[Any], object], str]] = [
    (lambda state: state.count, "write state.context.count"),
    (lambda state: state["count"], "write state.context.field"),
    (sets, "as Update(field=...)"),
]


@pytest.mark.parametrize(("body", "note"), TAKEN)
async def test_a_state_that_is_taken_for_the_context_is_explained(body: Any, note: str, anyio_backend: str) -> None:
    """The exception is Python's, and a note says what to write."""
    with pytest.raises(Exception, match=r".") as raised:
        await run(graph(START >> node(name="n")(body) >> END), Case())

    assert any(note in said for said in raised.value.__notes__)


async def test_a_refused_retry_is_told_with_the_exception(anyio_backend: str) -> None:
    """The note names the attempts and the bound."""

    @node(retries=2)
    def fails(state: State[Case]) -> None:
        raise LookupError("nothing")

    with pytest.raises(LookupError) as raised:
        await run(graph(START >> fails >> END, budget=Budget(node_runs=1)), Case())

    assert "(after 1 attempts; the bound node_runs refuses a retry of 'fails'" in raised.value.__notes__[-1]


async def test_an_answer_of_another_type_is_refused_in_words(anyio_backend: str) -> None:
    """From the handle, and on resume."""
    asks = graph(START >> Human("h", "Sure?", schema=bool) >> END)
    journal = MemoryJournal()
    words = "the answer 'maybe' to 'h' does not fit bool: Input should be a valid boolean"

    async with start(asks, Case(), journal=journal, run_id="r") as running:
        waiting = await running.result()
        with pytest.raises(UsageError, match=words):
            running.answer("h", "maybe")
    with pytest.raises(UsageError, match=words):
        await resume(asks, "r", journal=journal, answers={"h": "maybe"})

    assert repr(waiting) == "Result(status='waiting', questions=['h'], run_id='r')"


async def test_a_result_shows_what_came_out_cut_and_whatever_it_is(anyio_backend: str) -> None:
    """A value whose text cannot be made does not hide the result."""
    long = await returned(lambda _: "x" * 500)
    odd = await returned(lambda _: 10**5000)

    assert len(repr(long)) < 200
    assert "output='xxx" in repr(long)
    assert "output=<int (ValueError in its repr)>" in repr(odd)


def test_the_worst_case_is_its_table() -> None:
    """A notebook shows what print shows."""
    case = graph(START >> a >> END).worst_case()

    assert repr(case) == str(case)
    assert "node runs" in repr(case)
