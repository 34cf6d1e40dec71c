"""What functions of the user's give, reducers, `enter=` and `over=`, is held to the types, and to an order."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from graphflow import (
    END,
    START,
    Budget,
    Call,
    Context,
    Delegate,
    FrozenDict,
    Graph,
    Human,
    Join,
    MemoryJournal,
    Report,
    Result,
    State,
    Update,
    append,
    extend,
    fork,
    node,
    replay,
    resume,
    run,
    run_sync,
    secret,
)
from graphflow.errors import JournalMismatch
from graphflow.model.context import rules_of
from graphflow.nodes.function import FunctionNode

SMALL = Budget(node_runs=30)


def as_list(old: Any, new: Any) -> Any:
    """What is ported from where lists are combined."""
    return [*old, *new]


def as_text(old: object, new: object) -> Any:
    """Combine numbers as texts."""
    return f"{old}{new}"


def without_return(old: object, new: object) -> Any:
    """Forget to return."""


def latest(_: object, new: Any) -> Any:
    """Take the new value as it is."""
    return new


def sum_and(more: int, old: int, new: int) -> int:
    """Combine numbers and one more."""
    return old + new + more


def made(give: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A reducer that is written where it is used."""
    return give


def body(name: str, give: Callable[[State[Any]], Any]) -> FunctionNode[Any]:
    """A node that is written where it is used."""
    return node(name=name)(give)


class Loose(BaseModel):
    """Frozen, and a subclass of it may hold anything."""

    model_config = ConfigDict(frozen=True)


class Holder(Loose):
    """Holds a list."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    held: Any = None


def one_field(kind: Any, default: object) -> type[Context]:
    """A context with one field."""
    return type("Case", (Context,), {"__annotations__": {"it": kind}, "it": default, "__module__": __name__})


def written(kind: Any, default: object, update: object) -> Result[Any]:
    """A run whose node writes the field."""
    context = one_field(kind, default)

    @node
    def writes(state: State[Any]) -> Update:
        return Update(it=update)

    return run_sync(Graph("g", START >> writes >> END, context=context, budget=SMALL), context())


REFUSED = [
    (
        Annotated[tuple[str, ...], as_list], (), ("a", "b"),
        ("the reducer 'as_list' of Case.it gave a list ([\"a\", \"b\"]): Input should be a valid tuple. A reducer "
        "returns the field's next value, of exactly its type, tuple[str, ...]."),
    ),
    (
        Annotated[int, as_text], 0, 1,
        ("the reducer 'as_text' of Case.it gave a str (01): Input should be a valid integer. A reducer returns the "
        "field's next value, of exactly its type, int."),
    ),
    (
        Annotated[int, without_return], 0, 1,
        ("the reducer 'without_return' of Case.it gave None: Input should be a valid integer. A reducer returns the "
        "field's next value, of exactly its type, int; has it a return?"),
    ),
    (
        Annotated[Loose, made(lambda old, new: Holder(held=[1]))], Loose(), Loose(),
        ("the reducer '<lambda>' of Case.it gave a Holder ({\"held\": [1]}): it could be changed: at .held, list is "
        "mutable; use tuple[T, ...]. A reducer returns the field's next value, of exactly its type, Loose."),
    ),
    (
        Annotated[tuple[int, ...], made(lambda old, new: ("x" * 90,))], (), (),
        f"the reducer '<lambda>' of Case.it gave a tuple ([\"{'x' * 78} ...): at [0]: Input should be a valid integer.",
    ),
    (
        Annotated[int, Field(le=3), functools.partial(sum_and, 4)], 0, 1,
        "the reducer 'sum_and' of Case.it gave an int (5): Input should be less than or equal to 3.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "default", "update", "text"), REFUSED)
def test_what_a_reducer_gives_fits_its_field(kind: Any, default: object, update: object, text: str) -> None:
    """By type and all the way down frozen; else the node fails whose update it was, as on an update that does not."""
    result = written(kind, default, update)

    assert result.status == "failed"
    assert result.reason is not None
    assert (result.reason.code, result.reason.path, result.context.it) == ("contract", "writes", default)
    assert result.reason.text.startswith(text)


def test_nothing_of_a_secret_is_said() -> None:
    """Neither what a reducer made of it, nor what is wrong with that."""
    result = written(Annotated[str, secret, made(lambda old, new: [old, new, "hunter2"])], "a", "b")

    assert result.reason is not None
    assert "the reducer '<lambda>' of Case.it gave a list: it does not fit." in result.reason.text
    assert "hunter2" not in str(result)


FITTING = [
    (Annotated[float, latest], 0.0, 3, 3.0),
    (Annotated[FrozenDict[str, int], made(lambda old, new: {**old, **new})], FrozenDict({"a": 1}), FrozenDict({"b": 2}),
     FrozenDict({"a": 1, "b": 2})),
    (Annotated[int | None, latest], 1, None, None),
    (Annotated[tuple[str, ...], BeforeValidator(str.split), latest], "a b", ("c",), ("c",)),
    (Annotated[int, AfterValidator(abs), made(lambda old, new: old - new)], 1, 4, 3),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "default", "update", "value"), FITTING)
def test_what_a_reducer_gives_is_a_value_of_its_field(
    kind: Any, default: object, update: object, value: object
) -> None:
    """So a validator that makes one of something else has no part in it, and one that looks at values has."""
    result = written(kind, default, update)

    assert (result.status, result.context.it, type(result.context.it)) == ("completed", value, type(value))


def test_branches_fail_on_a_reducer_together() -> None:
    """Where what each wrote alone has fitted, and both together do not."""

    def at_most_two(old: tuple[str, ...], new: tuple[str, ...]) -> Any:
        return old + new if len(old + new) < 3 else [*old, *new]

    context = one_field(Annotated[tuple[str, ...], at_most_two], ())

    def writes(name: str) -> Any:
        return body(name, lambda state: Update(it=(name, name)))

    meet = Join("meet")
    graph = Graph("g", START >> fork(writes("a"), writes("b")) >> meet >> END, context=context, budget=SMALL)
    result = run_sync(graph, context())

    assert result.reason is not None
    assert (result.status, result.reason.code, result.reason.path) == ("failed", "contract", "b")


def test_reports_pass_through_a_reducer_that_is_looked_at() -> None:
    """What callees report is written with `into=`, after them."""

    def findings(old: tuple[str, ...], new: Report) -> Any:
        return [*old, new.finding]

    class Said(Context):
        said: Annotated[tuple[str, ...], findings] = ()

    @node
    def asks(state: State[Said]) -> Any:
        return Delegate(Call("helper", "help")) if not state.turn else "done"

    @node
    def helper(state: State[Said]) -> Report:
        return Report(finding="found")

    chains = START >> asks >> END, asks.delegates(helper, max_hops=2, into="said")
    result = run_sync(Graph("g", *chains, context=Said, budget=SMALL), Said())

    assert result.reason is not None
    assert (result.reason.code, result.reason.path) == ("contract", "asks")
    assert "the reducer 'findings' of Said.said gave a list ([\"found\"])" in result.reason.text


def test_our_own_reducers_are_called_as_they_are() -> None:
    """Nothing runs at a hop but they: what they make fits where what they are given does."""

    class Kept(Context):
        items: Annotated[tuple[str, ...], append] = ()
        many: Annotated[tuple[str, ...], extend] = ()

    assert [rule.reducer for rule in rules_of(Kept).fields.values()] == [append, extend]


# --- enter= ----------------------------------------------------------------------------------------------------------


class Outer(Context):
    """The graph around."""

    question: str = ""


class Inner(Context):
    """The graph inside."""

    question: str = ""
    log: tuple[str, ...] = ()
    token: Annotated[str, secret] = ""


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"log": ["a"]}, ("what enter= of 'inner' gave does not fit: Inner.log holds a list ([\"a\"]): Input should be "
         "a valid tuple. Its type is tuple[str, ...]; model_copy(update=...) looks at nothing, Inner(...) does.")),
        ({"question": 3}, "what enter= of 'inner' gave does not fit: Inner.question holds an int (3)"),
        ({"token": ["x"]}, "what enter= of 'inner' gave does not fit: Inner.token holds a list: it does not fit"),
    ],
)  # fmt: skip
def test_what_enter_gives_fits_its_fields(update: dict[str, Any], text: str) -> None:
    """A copy of a context with other values is validated by nobody else."""
    echo = body("echo", lambda state: str(state.context.log))
    inner = Graph(
        "inner", START >> echo >> END, context=Inner, enter=lambda state: Inner().model_copy(update=update)
    )  # fmt: skip
    result = run_sync(Graph("g", START >> inner >> END, context=Outer, budget=SMALL), Outer())

    assert result.reason is not None
    assert (result.reason.code, result.reason.path) == ("contract", "inner")
    assert text in result.reason.text


# --- over= -----------------------------------------------------------------------------------------------------------


def mapped(over: Callable[[State[Any]], Any], context: type[Context] = Outer) -> Graph[Any]:
    """A map whose lanes give back their items, and a person who is asked behind it."""
    spread = body("spread", lambda state: "x")
    lane = body("lane", lambda state: state.values[0])
    join = Join("join")
    person = Human("person", "Go on?", schema=str)
    chains = START >> spread, spread.map(lane, over=over, join=join, max_items=9), join >> person >> END
    return Graph("g", *chains, context=context, budget=SMALL)


@pytest.mark.parametrize("items", ["abc", b"xyz", bytearray(b"abc")], ids=["str", "bytes", "bytearray"])
def test_a_text_is_not_mapped_by_its_letters(items: object) -> None:
    """That is hardly ever meant."""
    result = run_sync(mapped(lambda state: items), Outer())

    assert result.reason is not None
    assert result.reason.text == (
        f"what gives the items of the map at 'spread' raised (over='<lambda>'): a {type(items).__name__} would be a "
        "lane for each of its letters: return a list or a tuple of items, as [text]."
    )


table: dict[str, int] = {"a": 1}


@pytest.mark.parametrize(
    "items", [{1, 2}, frozenset({1}), table, table.keys(), table.values(), table.items(), FrozenDict(table)]
)
def test_what_has_no_order_is_not_mapped(items: object) -> None:
    """Another process would do one item twice and leave out another."""
    result = run_sync(mapped(lambda state: items), Outer())

    assert result.reason is not None
    assert f"a {type(items).__name__} promises no order" in result.reason.text
    assert result.reason.text.endswith("return sorted(...) of it, or another list or tuple.")


@pytest.mark.parametrize("items", [["a", "b"], ("a", "b"), range(2)])
def test_what_has_an_order_is_mapped(items: Any) -> None:
    """Lists, tuples, ranges and what is made one by one."""
    whole = run_sync(mapped(lambda state: items), Outer())
    one_by_one = run_sync(mapped(lambda state: (item for item in items)), Outer())

    assert (whole.status, one_by_one.status) == ("waiting", "waiting")


async def opened(journal: MemoryJournal) -> list[Any]:
    """The digests that a run has stored of the items of its maps."""
    return [row.decisions for row in await journal.read("r") if "scope_opened" in row.decisions]


async def test_a_run_goes_on_over_the_items_that_it_had(anyio_backend: object) -> None:
    """Another number, other items or another order is another run."""
    now = ["a", "b"]
    journal = MemoryJournal()
    graph = mapped(lambda state: tuple(now))
    await run(graph, Outer(), journal=journal, run_id="r")
    for other in (["a", "c"], ["b", "a"], ["a", "b", "c"]):
        now[:] = other
        with pytest.raises(JournalMismatch):
            await resume(graph, "r", journal=journal, answers={"person": "yes"})
    now[:] = ["a", "b"]

    result = await resume(graph, "r", journal=journal, answers={"person": "yes"})

    assert (result.status, await replay(graph, "r", journal=journal)) == ("completed", result)


async def test_no_digest_is_stored_where_items_may_be_secrets() -> None:
    """One of a short secret would tell it to whoever tries them all."""
    journal = MemoryJournal()
    await run(mapped(lambda state: (state.context.token,), Inner), Inner(token="7"), journal=journal, run_id="r")

    assert '["scope_opened","spread","join",1]' in (await opened(journal))[0]


# --- runs of an older edition ----------------------------------------------------------------------------------------


async def test_a_run_of_an_older_edition_goes_on_with_what_its_functions_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets as items, whatever a reducer makes: it ends as it would have ended, and no digest is compared."""

    class Case(Context):
        many: Annotated[tuple[str, ...], as_list] = ()

    monkeypatch.setattr("graphflow.runtime.starting.EDITION", 1)
    journal = MemoryJournal()
    graph = mapped(lambda state: frozenset({"a"}), Case)
    writes = body("writes", lambda state: Update(many=("x",)))
    inner = Graph("inner", START >> writes >> END, context=Case, leave=lambda state: "left")
    around = Graph("around", START >> inner >> graph >> END, context=Case, budget=SMALL)
    waiting = await run(around, Case(), journal=journal, run_id="r")
    monkeypatch.undo()

    result = await resume(around, "r", journal=journal, answers={"g/person": "yes"})

    assert (waiting.status, result.status, repr(result.context.many)) == ("waiting", "completed", "['x']")
    assert '["scope_opened","g/spread","join",1]' in (await opened(journal))[0]
