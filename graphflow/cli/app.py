"""The words of the command line: commands, arguments and options.

A command here only reads its words and returns what is to be done, so that no error of a user's code passes through
the library that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import typer
from typer.main import get_command

from graphflow.cli.printing import Screen, version_text

Task: TypeAlias = Callable[[Screen], int]
"""What a command does on a screen; it returns the exit code."""

Target = Annotated[str, typer.Argument(metavar="TARGET", help="The graph: path.py[:name] or package.module[:name].")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app: Final = typer.Typer(
    name="graphflow",
    epilog="Exit codes: 0 completed, 1 failed or partial, 2 bad use or bad graph, 3 exhausted, 4 waiting, "
    "130 cancelled.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command() -> Any:
    """Return the whole command line, ready to read words."""
    return get_command(app)


@app.callback()
def _top(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False
) -> None:
    """Teams of agents as a directed graph: run it, check it, prove its bounds, draw it."""
    if version:
        typer.echo(version_text())
        raise typer.Exit


@app.command()
def run(
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
        typer.Option(
            "--answer",
            metavar="ID=VALUE",
            help="Answers a question, or approves a call: yes, no, a text or JSON. A waiting run shows its ids. "
            "Repeatable.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="If a node fails, show where in your own files.")
    ] = False,
) -> Task:
    """Run a graph.

    The result goes to stdout; progress, and what the nodes print, to stderr.
    Ctrl-C cancels the run and waits for its end; a second Ctrl-C stops at once.
    """
    from graphflow.cli.running import RunOptions, run_command

    options = RunOptions(
        target, input, tuple(sets or ()), tuple(budget or ()), max_depth, max_parallel, json, events,
        tuple(answers or ()), quiet, traceback,
    )  # fmt: skip
    return lambda screen: run_command(screen, options)


@app.command()
def check(
    target: Target,
    *,
    json: Json = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Draw the graph as Mermaid text too, its problems marked.")
    ] = False,
) -> Task:
    """List everything that is wrong or doubtful in a graph."""
    from graphflow.cli.looking import check_command

    return lambda screen: check_command(screen, target, json=json, mermaid=mermaid)


@app.command()
def bounds(target: Target, *, json: Json = False) -> Task:
    """Prove what a run of a graph can do at most."""
    from graphflow.cli.looking import bounds_command

    return lambda screen: bounds_command(screen, target, json=json)


@app.command()
def draw(
    target: Target,
    *,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="svg|png|dot|mermaid|term",
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
) -> Task:
    """Draw a graph."""
    from graphflow.cli.looking import draw_command

    return lambda screen: draw_command(screen, target, format, run, output)
