"""The words of the command line: commands, arguments and options.

A command here only reads its words and returns what is to be done, so that no error of a user's code passes through
the library that reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.main import get_command

from graphflow.cli.lint_app import lint
from graphflow.cli.mcp_app import mcp
from graphflow.cli.options import (
    Answers,
    At,
    BaseUrl,
    Before,
    BudgetMore,
    Changed,
    ChangedWord,
    Db,
    Decision,
    Events,
    Fsync,
    Json,
    MaxDepth,
    Model,
    ModelTimeout,
    Quiet,
    Redact,
    Resources,
    RunArgument,
    RunId,
    Secrets,
    Target,
    TargetOption,
    Task,
    Traceback,
)
from graphflow.cli.printing import version_text
from graphflow.cli.rehearse_app import rehearse
from graphflow.cli.runs_app import diff, runs

if TYPE_CHECKING:
    from graphflow.cli.resuming import Again, Branch
    from graphflow.cli.running import Play
    from graphflow.cli.targets import GraphWords

app: Final = typer.Typer(
    name="graphflow",
    epilog="Exit codes: 0 completed, 1 failed or partial, 2 bad use or bad graph, 3 exhausted, 4 waiting, "
    "5 a run that cannot be stored "
    "or read, 130 cancelled.",
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
    """Teams of agents as a directed graph: run it, go on with it, check it, prove its bounds, draw it."""
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
    max_depth: MaxDepth = None,
    model: Model = None,
    base_url: BaseUrl = None,
    decision: Decision = None,
    timeout: ModelTimeout = None,
    redact: Redact = None,
    before: Before = None,
    resources: Resources = None,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", metavar="N", min=1, help="Run at most N bodies at once.")
    ] = None,
    run_id: RunId = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="RUN", help="The next message of a chat: its thread goes on after this run."),
    ] = None,
    secrets: Secrets = None,
    db: Db = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing of the run.")] = False,
    fsync: Fsync = False,
    json: Json = False,
    events: Events = None,
    answers: Answers = None,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> Task:
    """Run a graph.

    The result goes to stdout; progress, and what the nodes print, to stderr.
    Ctrl-C, or SIGTERM, breaks a stored run off, and `graphflow resume` goes on with it; with --no-store it cancels the
    run and waits for its end. A second Ctrl-C stops at once.
    What happens is stored as it happens, so that `resume` goes on with the run, whatever ends this process.
    """
    from graphflow.cli.models import ModelWords
    from graphflow.cli.parts import PartWords
    from graphflow.cli.running import RunOptions, run_command
    from graphflow.cli.store import StoreOptions

    options = RunOptions(
        target, input, tuple(sets or ()), tuple(budget or ()), max_depth,
        ModelWords(model, base_url, decision, timeout), PartWords(redact, before, resources), after,
        tuple(secrets or ()), max_parallel, run_id,
        None if no_store else StoreOptions(db, fsync),
        _play(answers, events, json=json, quiet=quiet, traceback=traceback),
    )  # fmt: skip
    return lambda screen: run_command(screen, options)


@app.command()
def resume(
    run: RunArgument,
    *,
    answers: Answers = None,
    budget: BudgetMore = None,
    changed: Changed = "refuse",
    secrets: Secrets = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    model: Model = None,
    base_url: BaseUrl = None,
    decision: Decision = None,
    timeout: ModelTimeout = None,
    redact: Redact = None,
    before: Before = None,
    resources: Resources = None,
    db: Db = None,
    fsync: Fsync = False,
    json: Json = False,
    events: Events = None,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> Task:
    """Go on with a stored run.

    It may wait for people, stand still at a bound, or have been broken off. What is recorded is not done again. A run
    that has ended is shown, and not changed.
    """
    from graphflow.cli.models import ModelWords
    from graphflow.cli.parts import PartWords
    from graphflow.cli.targets import GraphWords

    return _again(
        _stored(
            run,
            GraphWords(
                target, max_depth, ModelWords(model, base_url, decision, timeout),
                PartWords(redact, before, resources),
            ),
            changed, secrets=secrets, db=db, fsync=fsync,
        ),
        tuple(budget or ()),
        _play(answers, events, json=json, quiet=quiet, traceback=traceback), None,
    )  # fmt: skip


@app.command()
def fork(
    run: RunArgument,
    *,
    at: At = None,
    run_id: RunId = None,
    answers: Answers = None,
    budget: BudgetMore = None,
    changed: Changed = "refuse",
    secrets: Secrets = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    model: Model = None,
    base_url: BaseUrl = None,
    decision: Decision = None,
    timeout: ModelTimeout = None,
    redact: Redact = None,
    before: Before = None,
    resources: Resources = None,
    db: Db = None,
    fsync: Fsync = False,
    json: Json = False,
    events: Events = None,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> Task:
    """Begin a run that shares the past of a stored one.

    It then goes its own way; the stored run is not changed. `runs show RUN --events` shows the numbers of its events.
    """
    from graphflow.cli.models import ModelWords
    from graphflow.cli.parts import PartWords
    from graphflow.cli.resuming import Branch
    from graphflow.cli.targets import GraphWords

    return _again(
        _stored(
            run,
            GraphWords(
                target, max_depth, ModelWords(model, base_url, decision, timeout),
                PartWords(redact, before, resources),
            ),
            changed, secrets=secrets, db=db, fsync=fsync,
        ),
        tuple(budget or ()),
        _play(answers, events, json=json, quiet=quiet, traceback=traceback), Branch(at, run_id),
    )  # fmt: skip


@app.command()
def replay(
    run: RunArgument,
    *,
    changed: Changed = "refuse",
    secrets: Secrets = None,
    target: TargetOption = None,
    max_depth: MaxDepth = None,
    db: Db = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Task:
    """Show the result of a stored run again.

    It is worked out from what is recorded: nothing is called, and nothing is written.
    """
    from graphflow.cli.resuming import replay_command
    from graphflow.cli.targets import GraphWords

    again = _stored(run, GraphWords(target, max_depth), changed, secrets=secrets, db=db)
    options = _play(None, None, json=json, quiet=quiet, traceback=False)
    return lambda screen: replay_command(screen, again, options)


def _stored(
    run: str, graph: GraphWords, changed: ChangedWord, *, secrets: list[str] | None, db: str | None,
    fsync: bool = False,
) -> Again:  # fmt: skip
    from graphflow.cli.resuming import Again
    from graphflow.cli.store import StoreOptions

    return Again(run, graph, changed, tuple(secrets or ()), StoreOptions(db, fsync))


def _play(
    answers: list[str] | None, events: str | None, *, json: bool, quiet: bool, traceback: bool
) -> Play:  # fmt: skip
    from graphflow.cli.going import Manner
    from graphflow.cli.running import Play

    return Play(tuple(answers or ()), events, Manner(json, quiet, traceback))


def _again(again: Again, budget: tuple[str, ...], options: Play, branch: Branch | None) -> Task:
    from graphflow.cli.resuming import resume_command

    return lambda screen: resume_command(screen, again, options, budget, branch)


app.command()(diff)
app.command()(lint)
app.command()(mcp)
app.command()(rehearse)
app.add_typer(runs)


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
        typer.Option(
            "--run", metavar="RUN|FILE", help="Lay a run over it: a stored one, or what run --events wrote, or -."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    db: Db = None,
    json: Json = False,
) -> Task:
    """Draw a graph.

    With --json the picture stands in the document, or the name of its FILE does; a PNG in base64.
    """
    from graphflow.cli.drawing import DrawWords, draw_command
    from graphflow.cli.store import StoreOptions

    words = DrawWords(target, format, run, output, StoreOptions(db))
    return lambda screen: draw_command(screen, words, json=json)
