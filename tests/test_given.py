"""What a run is given is looked at before anything runs: a wrong kind is told in the words of the call."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Graph,
    MemoryJournal,
    State,
    Step,
    fork_run,
    node,
    reopen,
    replay,
    resume,
    run,
    run_sync,
    start,
)
from graphflow.errors import UsageError
from graphflow.testing import ManualClock, RuleModel


class Case(Context):
    """What the nodes see."""

    n: int = 0


RAN: Final[list[int]] = []


@node
async def work(state: State[Case]) -> str:
    """Leave a mark."""
    RAN.append(state.context.n)
    return "done"


GRAPH: Final = Graph("graph", START >> work >> END, context=Case, budget=Budget(node_runs=9))

PARTS: Final[dict[str, tuple[Any, ...]]] = {
    "resources": (None, 3, "pool", b"pool", {}, set[int](), object, iter(())),
    "listeners": (None, 5, "print", print, {}, [5], iter(())),
    "before": (5, "skip", [], {}),
    "redact": (5, "x", []),
    "clock": (5, "now", ManualClock, object()),
    "budget": (5, "1", {"usd": 1}, Budget),
}
"""Arguments that every way to run takes, and what they cannot be."""

STORED: Final[dict[str, tuple[Any, ...]]] = {
    **PARTS,
    "answers": (None, 5, "x", [], [("a", 1)], {5: 1}),
    "secrets": (5, "x", []),
    "changed": (None, 5, "", "yes"),
    "journal": (None, 5, "runs.db", MemoryJournal),
}
"""The same for stored runs."""

FRESH: Final[dict[str, tuple[Any, ...]]] = {
    **PARTS,
    "run_id": (5, b"id", ["id"]),
    "journal": (5, "runs.db", MemoryJournal),
    "after": (5, "run", {}),
    "max_parallel": (0, "2", 1.5, True),
}
"""The same for new ones."""

named = pytest.mark.parametrize


def cases(wrong: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Each with a name of its own."""
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in wrong.items()
        for number, value in enumerate(values)
    ]


@named(("name", "wrong"), cases(FRESH))
@named("begin", [start, run_sync])
def test_a_new_run_is_refused_before_it_begins(begin: Callable[..., object], name: str, wrong: Any) -> None:
    """Where it is written, with the name of the argument or what it is for; `run` and the others share the check."""
    RAN.clear()

    with pytest.raises(UsageError) as caught:
        begin(GRAPH, Case(), **{name: wrong})

    told = "id of a run" if name == "run_id" else name
    assert told in str(caught.value)
    assert RAN == []


@named(("name", "wrong"), cases(FRESH))
async def test_a_run_of_async_code_is_refused_too(name: str, wrong: Any) -> None:
    """With the same words."""
    RAN.clear()

    with pytest.raises(UsageError):
        await run(GRAPH, Case(), **{name: wrong})

    assert RAN == []


@named(("name", "wrong"), cases(STORED))
@named("again", [resume, fork_run])
async def test_a_stored_run_is_refused_before_anything_is_written(
    again: Callable[..., Any], name: str, wrong: Any
) -> None:
    """Neither the run nor a fork of it gets a row."""
    journal = MemoryJournal()
    await run(GRAPH, Case(), journal=journal, run_id="one")
    before = await journal.runs()
    RAN.clear()

    with pytest.raises(UsageError, match=name):
        await again(GRAPH, "one", **{"journal": journal, name: wrong})

    assert await journal.runs() == before
    assert RAN == []


@named("again", [resume, fork_run, replay])
@named("wrong", [5, None, b"one"])
async def test_an_id_is_text(again: Callable[..., Any], wrong: Any) -> None:
    """Whatever is asked of a stored run."""
    with pytest.raises(UsageError, match=r"the id of a run"):
        await again(GRAPH, wrong, journal=MemoryJournal())


@named(("name", "wrong"), [("at", "1"), ("at", 1.5), ("at", True), ("new_id", 5)])
async def test_a_fork_is_told_where_and_how_it_is_called(name: str, wrong: Any) -> None:
    """By a number of an event, and by a text."""
    journal = MemoryJournal()
    await run(GRAPH, Case(), journal=journal, run_id="one")

    with pytest.raises(UsageError):
        await fork_run(GRAPH, "one", journal=journal, **{name: wrong})

    assert [stored.run for stored in await journal.runs()] == ["one"]


@named("backend", ["curio", "", 5, None])
def test_an_event_loop_is_one_of_two(backend: Any) -> None:
    """Another name is told before anything runs."""
    with pytest.raises(UsageError, match=r"run_sync\(backend="):
        run_sync(GRAPH, Case(), backend=backend)


def test_a_handle_on_a_stored_run_is_refused_at_once() -> None:
    """Before it is entered."""
    with pytest.raises(UsageError, match="resources=None"):
        reopen(GRAPH, "one", journal=MemoryJournal(), resources=None)  # type: ignore[arg-type]


@named("resources", [(), [], (3,), ["a", "b"], range(2)])
async def test_any_sequence_holds_resources(resources: Any) -> None:
    """Tuples, lists and others."""
    assert (await run(GRAPH, Case(), resources=resources)).output == "done"


async def later(_: Any) -> Any:
    """Be what cannot be awaited where it is called."""


LATER: Final[Any] = later


async def fetch() -> int:
    """Be an effect."""
    return 1


@node
async def pays(state: State[Case], step: Step) -> None:
    """Count what an effect costs by a function that would have to be awaited."""
    await step.effect("pay", fetch, usage=LATER)


PAYS: Final = Graph("pays", START >> pays >> END, context=Case, budget=Budget(node_runs=1))
ASYNC: Final[dict[str, Callable[[], Any]]] = {
    "listener": lambda: run_sync(GRAPH, Case(), listeners=[print, LATER]),
    "redact": lambda: run_sync(GRAPH, Case(), redact=LATER),
    "usage": lambda: run_sync(PAYS, Case()),
    "when": lambda: RuleModel((LATER, "yes")),
}


@pytest.mark.parametrize("where", list(ASYNC))
def test_async_functions_are_refused_where_nothing_awaits_them(where: str) -> None:
    """They would be called, and nothing would come of it."""
    with pytest.raises(UsageError, match=f"{where}=<function later.*nothing can be awaited"):
        ASYNC[where]()
