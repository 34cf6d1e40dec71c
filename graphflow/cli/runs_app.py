"""The words of the commands about stored runs: `graphflow runs ...` and `graphflow diff`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphflow.cli.options import Db, Json, MaxDepth, RunArgument, Secrets, TargetOption, Task

runs: Final = typer.Typer(
    name="runs", help="List, show, export, import and delete stored runs.", no_args_is_help=True, rich_markup_mode=None
)


@runs.command("list")
def list_(
    *,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only those: completed, partial, failed, exhausted, waiting, cancelled, unreadable, or open: at work "
            "or broken off.",
        ),
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="NAME", help="Only runs of the graph NAME.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The newest N of them.")] = 20,
    db: Db = None,
    json: Json = False,
) -> Task:
    """List stored runs, the newest first."""
    from graphflow.cli.shelf import list_command
    from graphflow.cli.store import StoreOptions

    return lambda screen: list_command(screen, StoreOptions(db), (status, graph), limit, json=json)


@runs.command()
def show(
    run: RunArgument,
    *,
    events: Annotated[bool, typer.Option("--events", help="Show every event, with its number.")] = False,
    boundaries: Annotated[
        bool, typer.Option("--boundaries", help="Show what crossed each boundary: messages, briefs, reports.")
    ] = False,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Show a stored run: how it stands, who worked for whom.

    Its graph is not needed.
    """
    from graphflow.cli.showing import show_command
    from graphflow.cli.store import StoreOptions

    return lambda screen: show_command(screen, StoreOptions(db), run, events=events, boundaries=boundaries, json=json)


@runs.command()
def export(
    run: RunArgument,
    *,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Write a stored run as lines of JSON.

    With -o, --json tells what was written.
    """
    from graphflow.cli.exchange import export_command
    from graphflow.cli.store import StoreOptions

    return lambda screen: export_command(screen, StoreOptions(db), run, output, json=json)


@runs.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `runs export` wrote; - is the standard input.")],
    *,
    new_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="Store it under another id.")] = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Store a run that was exported. It is data: nothing of it is executed."""
    from graphflow.cli.exchange import import_command
    from graphflow.cli.store import StoreOptions

    return lambda screen: import_command(screen, StoreOptions(db), file, new_id, json=json)


@runs.command()
def delete(
    run: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of stored runs, in full.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Delete stored runs for good."""
    from graphflow.cli.shelf import delete_command
    from graphflow.cli.store import StoreOptions

    return lambda screen: delete_command(screen, StoreOptions(db), run, yes=yes, json=json)


@runs.command()
def pytest(
    run: RunArgument,
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The test.  [default: test_GRAPH_RUN.py]"),
    ] = None,
    secrets: Secrets = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Write a test that plays a stored run again.

    The graph must draw the same decisions then, and come to the same end; nothing is called. The rows of the run stand
    beside it, in a file of the same name that ends with .jsonl.
    """
    from graphflow.cli.pytests import pytest_command
    from graphflow.cli.resuming import Again
    from graphflow.cli.store import StoreOptions
    from graphflow.cli.targets import GraphWords

    again = Again(run, GraphWords(target, max_depth), "compatible", tuple(secrets or ()), StoreOptions(db))
    return lambda screen: pytest_command(screen, again, output, json=json)


def diff(
    one: Annotated[str, typer.Argument(metavar="RUN", help="A stored run.")],
    other: Annotated[str, typer.Argument(metavar="RUN", help="Another.")],
    *,
    secrets: Secrets = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Compare two stored runs.

    Shown is the first event that differs, and what differs in the end. Times do not count, nor in which order branches
    took turns. Exit codes: 0 nothing differs, 1 something does.
    """
    from graphflow.cli.differing import diff_command
    from graphflow.cli.resuming import Again
    from graphflow.cli.store import StoreOptions
    from graphflow.cli.targets import GraphWords

    again = Again(one, GraphWords(target, max_depth), "compatible", tuple(secrets or ()), StoreOptions(db))
    return lambda screen: diff_command(screen, again, other, json=json)
