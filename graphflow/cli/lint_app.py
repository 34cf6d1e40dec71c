"""`graphflow lint`: what a stored run shows of how its team worked, and what to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from graphflow.cli.options import Db, Json, MaxDepth, RunArgument, TargetOption, Task

if TYPE_CHECKING:
    from graphflow.cli.printing import Screen
    from graphflow.cli.store import StoreOptions
    from graphflow.cli.targets import GraphWords
    from graphflow.lint import Symptom


def lint(
    run: RunArgument,
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CODE", help="Look for this symptom alone. Repeatable.")
    ] = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Look in a stored run for signs that its team did not work as it should.

    Each is told with its place, the event that shows it, and what to change in the graph or in the instructions. A run
    that goes on still can be looked at too. Exit codes: 0 nothing was found, 1 something was.
    """
    from graphflow.cli.store import StoreOptions
    from graphflow.cli.targets import GraphWords

    asked = Asked(run, tuple(only or ()), GraphWords(target, max_depth), StoreOptions(db))
    return lambda screen: lint_command(screen, asked, json=json)


class Asked(NamedTuple):
    """What stands on the command line of `graphflow lint`."""

    run: str
    only: tuple[str, ...]
    graph: GraphWords
    store: StoreOptions


def lint_command(screen: Screen, asked: Asked, *, json: bool) -> int:
    """Print what a stored run shows; the exit code is 0 if that is nothing, else 1.

    Raises:
        BadUse: if it is not clear which run or which rule is meant, or the graph is another.
        UnknownRun: if there is no such run.
        TargetError: if there is no such graph.
        JournalError: if the run cannot be read.
    """
    import anyio

    from graphflow.cli.faults import FAILED, BadUse
    from graphflow.cli.store import find, opened
    from graphflow.cli.stored import read_stored
    from graphflow.cli.targets import graph_of, required
    from graphflow.lint import CODES
    from graphflow.lint import lint as look_for

    unknown = next((code for code in asked.only if code not in CODES), None)
    if unknown is not None:
        raise BadUse(f"--only {unknown}: there is no such symptom; there are {', '.join(CODES)}.")
    with opened(asked.store) as store:
        run = anyio.run(find, store, asked.run).run
        stored = anyio.run(read_stored, store.journal, run)
        graph, noted = graph_of(required(store.targets, run, asked.graph))
    first = stored.first
    if first.graph != graph.name:
        raise BadUse(f"{noted.target}: the run {run!r} is of the graph {first.graph!r}, not of {graph.name!r}.")
    if first.fingerprint and first.fingerprint != graph.fingerprint():
        screen.say("the graph has changed since: what is said of its nodes may be of another version.")
    found = look_for(graph, stored.events(), only=asked.only)
    if json:
        data = {"run": run, "graph": graph.name, "symptoms": [_data(one) for one in found]}
        screen.document(data)
    else:
        screen.out.line("\n".join(_lines(run, found)))
    return FAILED if found else 0


def _data(symptom: Symptom) -> dict[str, Any]:
    return dataclasses.asdict(symptom)


def _lines(run: str, found: Sequence[Symptom]) -> Iterator[str]:
    from graphflow.cli.printing import safe
    from graphflow.visualize.text import visible

    for one in found:
        mode = f" (MAST {one.mode})" if one.mode else ""
        turn = "" if one.turn is None else f", turn {one.turn}"
        yield visible(f"{one.where or 'the run'}{turn}, event {one.seq}: {one.code}{mode}")
        yield f"  {safe(one.message)}"
        yield f"  {safe(one.hint)}"
    count = f"{len(found):,} symptom{'s' * (len(found) != 1)}" if found else "no symptoms"
    yield f"{visible(run)}: {count}"
