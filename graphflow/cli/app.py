"""The words of the command line: commands, arguments and options."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Final

import typer

from graphflow.cli.printing import Screen

Target = Annotated[str, typer.Argument(metavar="TARGET", help="The graph: path.py[:name] or package.module[:name].")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app: Final = typer.Typer(
    name="graphflow",
    help="Teams of agents as a directed graph: run it, check it, prove its bounds, draw it.",
    epilog="Exit codes: 0 completed, 1 failed or partial, 2 bad use or bad graph, 3 exhausted, 4 waiting, "
    "130 cancelled.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@contextlib.contextmanager
def _screen(context: typer.Context) -> Generator[Screen]:
    """Give the screen, and send what the user's code prints to stderr: stdout is for the result."""
    screen = context.find_object(Screen)
    assert screen is not None  # noqa: S101 - `main` gave it
    with contextlib.ExitStack() as stack:
        prints = sys.stderr
        if prints is None:  # pyright: ignore[reportUnnecessaryComparison]  # a process may have no stderr
            prints = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(prints))
        yield screen


@app.callback()
def _top(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False
) -> None:
    """Print the version where nothing else is asked; `main` does it before this module is loaded."""


@app.command()
def run(
    context: typer.Context,
    target: Target,
    input: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="The first field of the context, if that is a str.")
    ] = None,
    *,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="A field of the context: JSON, else text. Repeatable."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="DIMENSION=AMOUNT",
            help="Replaces one dimension of the budget: node_runs, model_calls, tool_calls, retries, tokens, usd, "
            "seconds. Repeatable.",
        ),
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option("--max-depth", metavar="N", min=0, help="Allow fewer nested delegations.")
    ] = None,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", metavar="N", min=1, help="Run at most N bodies at once.")
    ] = None,
    json: Json = False,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="Write every event as a line of JSON.")
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", metavar="ID=VALUE", help="Answers a question of the run. Repeatable."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="If a node fails, show where in your own files.")
    ] = False,
) -> int:
    """Run a graph.

    The result goes to stdout; progress, and what the nodes print, to stderr.
    Ctrl-C cancels the run and waits for its end; a second Ctrl-C stops at once.
    """
    with _screen(context) as screen:
        from graphflow.cli.running import RunOptions, run_command

        options = RunOptions(
            target, input, tuple(sets or ()), tuple(budget or ()), max_depth, max_parallel, json, events,
            tuple(answers or ()), quiet, traceback,
        )  # fmt: skip
        return run_command(screen, options)


@app.command()
def check(context: typer.Context, target: Target, *, json: Json = False) -> int:
    """List everything that is wrong or doubtful in a graph."""
    with _screen(context) as screen:
        from graphflow.cli.looking import check_command

        return check_command(screen, target, json=json)


@app.command()
def bounds(context: typer.Context, target: Target, *, json: Json = False) -> int:
    """Prove what a run of a graph can do at most."""
    with _screen(context) as screen:
        from graphflow.cli.looking import bounds_command

        return bounds_command(screen, target, json=json)


@app.command()
def draw(
    context: typer.Context,
    target: Target,
    *,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="svg|dot|mermaid|term",
            help="By default what the suffix of FILE says, else term.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="EVENTS", help="Lay a run over it: a file that run --events wrote, or -."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
) -> int:
    """Draw a graph."""
    with _screen(context) as screen:
        from graphflow.cli.looking import draw_command

        return draw_command(screen, target, format, run, output)
