"""`graphflow mcp`: graphs as tools for whoever speaks the Model Context Protocol."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from graphflow.cli.faults import BadUse
from graphflow.cli.options import Db, Fsync, Json, Task

if TYPE_CHECKING:
    from graphflow.cli.printing import Screen
    from graphflow.cli.store import Store
    from graphflow.events import Event
    from graphflow.graphs.graph import Graph


def mcp(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET...", help="The graphs: path.py[:name] or package.module[:name].")
    ],
    *,
    http: Annotated[
        int | None,
        typer.Option(
            "--http", metavar="PORT", min=0, max=65_535,
            help="Serve over streamable HTTP on 127.0.0.1 instead of over stdin and stdout; 0 for a free port.",
        ),
    ] = None,
    db: Db = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing of the runs, as without --db.")] = False,
    fsync: Fsync = False,
    json: Json = False,
) -> Task:  # fmt: skip
    """Offer graphs as tools over the Model Context Protocol.

    Each graph is a tool; a call runs it. Without --http a client starts this command and speaks to it over stdin and
    stdout. Runs are stored where --db says, so that one that waits for people can be answered by its id; without
    --db nothing is kept. With --http, --json prints the address.
    """
    wanted = Offer(tuple(targets), http, None if no_store else db, fsync, json)
    return lambda screen: mcp_command(screen, wanted)


class Offer(NamedTuple):
    """What stands on the command line of `graphflow mcp`."""

    targets: tuple[str, ...]
    http: int | None
    db: str | None
    fsync: bool
    json: bool = False


def mcp_command(screen: Screen, offer: Offer) -> int:
    """Serve until the client is gone, or somebody stops it; return the exit code.

    Raises:
        BadUse: if the store cannot be one, or there is no stdin or stdout to speak over.
        TargetError: if there is no such graph.
        GraphProblems: if a graph has errors.
        UsageError: if the graphs cannot be offered together, or the port cannot be had.
        MissingExtra: if the extra `mcp` is not installed.
    """
    import anyio

    from graphflow.cli.store import StoreOptions, opened
    from graphflow.cli.target import load_graph
    from graphflow.mcp import serve
    from graphflow.mcp.running import over_http, over_stdio

    if offer.http is None:
        _check_wires()
    with contextlib.ExitStack() as stack:
        store = None if offer.db is None else stack.enter_context(opened(StoreOptions(offer.db, offer.fsync)))
        graphs = [load_graph(target) for target in offer.targets]
        server = serve(
            *graphs,
            journal=None if store is None else store.journal,
            listeners=[] if store is None else [_Noting(store, graphs, offer.targets)],
        )

        def ready(url: str) -> None:
            if offer.json:
                screen.document({"url": url, "graphs": [graph.name for graph in graphs]})
            screen.say(f"serving at {url}")

        async def main() -> None:
            if offer.http is None:
                await over_stdio(server)
            else:
                await over_http(server, offer.http, ready)

        anyio.run(main, backend="asyncio")
    return 0


def _check_wires() -> None:
    """Look whether there is what the protocol is spoken over; what is closed is taken by the next file that is opened.

    Raises:
        BadUse: if there is not.
    """
    for name, stream in (("stdin", sys.__stdin__), ("stdout", sys.__stdout__)):
        if stream is None:
            raise BadUse(
                f"mcp: {name} is closed, and the protocol is spoken over stdin and stdout: let an MCP client start "
                f"this command, or serve over HTTP with --http PORT."
            )


class _Noting:
    """Notes the target of each run that begins, so that `graphflow resume` finds its graph."""

    def __init__(self, store: Store, graphs: Sequence[Graph[Any]], targets: Sequence[str]) -> None:
        self._store = store
        self._targets = {graph.name: target for graph, target in zip(graphs, targets, strict=True)}

    def __call__(self, event: Event) -> None:
        from graphflow.cli.targets import Noted
        from graphflow.events import RunStarted

        if isinstance(event.body, RunStarted):
            self._store.targets.note(event.run, Noted(self._targets[event.body.graph]))
