"""Options and arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import typer

from graphflow.cli.models import DecisionWord
from graphflow.cli.printing import Screen
from graphflow.cli.store import VARIABLE

Task: TypeAlias = Callable[[Screen], int]
"""What a command does on a screen; it returns the exit code."""

ChangedWord = Literal["refuse", "compatible"]

Target = Annotated[str, typer.Argument(metavar="TARGET", help="The graph: path.py[:name] or package.module[:name].")]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="The graph of the run, if it is not the one that was noted."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:NAME",
        help="Let every agent ask this model, as openai:gpt-5 or anthropic:claude-sonnet-5. Its key comes from the "
        "environment.",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="A server that speaks OpenAI's chat protocol, as http://127.0.0.1:8080/v1, for --model openai:NAME.  "
        "[default: OPENAI_BASE_URL]",
    ),
]
Decision = Annotated[
    DecisionWord | None,
    typer.Option(
        "--decision",
        metavar="auto|native|json",
        help="How agents that leave it open are asked to decide: by calls of tools, or in JSON with the reason first, "
        "which small models need.  [default: auto, what is known of the model]",
    ),
]
ModelTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="The most seconds that one request to --model may take: a small model on one machine may need many.  "
        "[default: 120]",
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a stored run, the beginning of one, or `last`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH|URL",
        envvar=VARIABLE,
        help="Where runs are stored: a SQLite file, or postgresql://....  [default: .graphflow/runs.db]",
    ),
]
Fsync = Annotated[
    bool, typer.Option("--fsync", help="Let each record wait for the disk, so that a power cut loses none.")
]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="The id of the new run.  [default: a new one]")
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="SEQ", min=0, help="The last event that both runs have.  [default: the last of all]"),
]
MaxDepth = Annotated[
    int | None, typer.Option("--max-depth", metavar="N", min=0, help="Allow fewer nested delegations.")
]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="ID=VALUE",
        help="Answers a question, or approves a call: yes, no, a text or JSON. A waiting run shows its ids. "
        "Repeatable.",
    ),
]
BudgetMore = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="DIMENSION=AMOUNT",
        help="Adds to one dimension of the budget: node_runs, model_calls, tool_calls, retries, tokens, usd, seconds. "
        "Repeatable.",
    ),
]
Changed = Annotated[
    ChangedWord,
    typer.Option(
        "--changed",
        metavar="refuse|compatible",
        help="Refuse a graph that has changed since, or take it if it draws the same decisions from what is stored.",
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="FIELD=VARIABLE",
        help="The value of a secret field, which is never stored, from an environment variable. Repeatable.",
    ),
]
Redact = Annotated[
    str | None,
    typer.Option(
        "--redact",
        metavar="NAME",
        help="A function in the file of TARGET: each text passes it before anything else sees it.",
    ),
]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="NAME", help="A function in the file of TARGET that is asked before each visit."),
]
Resources = Annotated[
    str | None,
    typer.Option(
        "--resources",
        metavar="NAME",
        help="A list in the file of TARGET, of what `step.resource` finds; or a function that returns it.",
    ),
]
Events = Annotated[str | None, typer.Option("--events", metavar="FILE", help="Write every event as a line of JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="If a node fails, show where in your own files.")]
