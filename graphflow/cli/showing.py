"""`graphflow runs show`: a stored run, shown without its graph."""

from __future__ import annotations

import dataclasses
import json as json_text
import time
from collections.abc import Iterator
from typing import Any

import anyio

from graphflow.cli.board import Board
from graphflow.cli.crossing import crossing_data, crossing_lines, crossings_of
from graphflow.cli.printing import Screen, safe
from graphflow.cli.results import jsonable
from graphflow.cli.shelf import ago, moment, status_text
from graphflow.cli.store import Store, StoreOptions, find, opened
from graphflow.cli.stored import (
    Stored,
    Summary,
    before_failure,
    ended_by,
    open_questions,
    read_stored,
    status_of,
    summary_data,
    summary_of,
)
from graphflow.errors import JournalDamaged
from graphflow.events import SessionStarted
from graphflow.model.budget import ADDITIVE
from graphflow.model.ids import path_text
from graphflow.persistence.lines import event_json
from graphflow.runtime.halting import RAISABLE
from graphflow.visualize import run_tree
from graphflow.visualize.text import count, plain, shown, visible


def show_command(
    screen: Screen, options: StoreOptions, asked: str, *, events: bool, boundaries: bool, json: bool
) -> int:
    """Show a stored run: how it stands, its tree, its events, or what crossed its boundaries.

    Raises:
        BadUse: if it is not clear which run is meant.
        UnknownRun: if there is none.
        JournalError: if it cannot be read.
    """
    with opened(options) as store:
        stored, summary = anyio.run(_read, store, asked)
        if json:
            screen.document(_data(store, stored, summary, events=events, boundaries=boundaries))
            return 0
        plainly, width = screen.out.ascii, screen.out.width
        lines = list(_head(store, stored, summary, ascii=plainly))
        if events:
            lines += ["", *(safe(str(event)) for event in stored.events())]
        if boundaries:
            lines.append("")
            lines += [line for entry in crossings_of(stored.events()) for line in crossing_lines(entry, ascii=plainly)]
        if not events and not boundaries:
            lines += ["", run_tree(stored.events(), ascii=plainly, width=width)]
            lines += _questions(store, stored)
        text = "\n".join(lines)
        screen.out.line(plain(text) if plainly else text)
    return 0


async def _read(store: Store, asked: str) -> tuple[Stored, Summary]:
    found = await find(store, asked)
    stored = await read_stored(store.journal, found.run)
    summary = summary_of(found, stored.rows)
    if summary.started is None:
        raise JournalDamaged(found.run, None, summary.unreadable)
    return stored, summary


def _head(store: Store, stored: Stored, summary: Summary, *, ascii: bool) -> Iterator[str]:
    yield f"run {visible(stored.run)}"
    facts = [
        status_text(status_of(stored.records), ascii=ascii), f"graph {shown(summary.graph)}",
        f"started {moment(summary.started)}", f"last activity {ago(summary.last, time.time())}",
        f"{count(summary.events, 'event')} in {count(summary.records, 'record')}",
    ]  # fmt: skip
    yield " · ".join(facts)
    noted = store.targets.of(stored.run)
    if noted is not None:
        yield f"target {visible(noted.target)}"
        if noted.model is not None:
            yield f"model {noted.model.in_words()}"
    first = stored.first
    if first.forked is not None:
        yield f"forked from {visible(first.forked[0])} after event {first.forked[1]}"
    if first.after is not None:
        yield f"goes on after {visible(first.after.run)}"


def _questions(store: Store, stored: Stored) -> Iterator[str]:
    """Say what the run waits for, and how it is gone on with."""
    ended = ended_by(stored.records)
    at = None if ended is None else before_failure(stored.events(), ended.reason)
    if at is not None:
        yield ""
        yield f"to go on from before the call that failed: {store.command('fork', stored.run, f'--at {at}')}"
    if ended is not None and ended.status not in {"waiting", "exhausted"}:
        return
    asked = open_questions(stored.events())
    if asked:
        yield ""
    for question in asked:
        yield f"{visible(question.question)}: {safe(question.text)}"
    yield ""
    code = ended.reason.code if ended is not None and ended.reason is not None else None
    if ended is None or ended.status == "waiting" or code is None:
        yield f"to go on with it: {store.command('resume', stored.run)}"
    elif code in RAISABLE:
        yield f"to go on with it: {store.command('resume', stored.run, f'--budget {code}=N')}"
    else:
        fork = store.command("fork", stored.run, "--at SEQ")
        yield f"{code} is no budget, so no resume lifts it: change the graph, and go on before that: {fork}"


def _data(store: Store, stored: Stored, summary: Summary, *, events: bool, boundaries: bool) -> dict[str, Any]:
    noted, ended = store.targets.of(stored.run), ended_by(stored.records)
    first, board = stored.first, Board()
    for event in stored.events():
        board.fold(event)
    data = summary_data(summary)
    data |= {
        "status": status_of(stored.records),
        "reason": None if ended is None else jsonable(ended.reason),
        "target": None if noted is None else noted.target,
        "model": None if noted is None or noted.model is None else dataclasses.asdict(noted.model),
        "sessions": 1 + sum(isinstance(entry.fact, SessionStarted) for entry in stored.records),
        "forked": None if first.forked is None else {"run": first.forked[0], "at": first.forked[1]},
        "after": None if first.after is None else first.after.run,
        "context": jsonable(first.context),
        "budget": {name: jsonable(getattr(board.budget, name)) for name in (*ADDITIVE, "seconds")},
        "spent": spent_data(board),
        "questions": [
            {"id": asked.question, "path": path_text(asked.path), "text": asked.text}
            for asked in open_questions(stored.events())
        ],
    }
    if events:
        data["events"] = [json_text.loads(event_json(event)) for event in stored.events()]
    if boundaries:
        data["boundaries"] = [crossing_data(entry) for entry in crossings_of(stored.events())]
    return data


def spent_data(board: Board) -> dict[str, Any]:
    """Return what a run spent as JSON data."""
    spent = board.spent
    return {
        "node_runs": board.node_runs, "model_calls": spent.model_calls, "tool_calls": spent.tool_calls,
        "retries": board.retries, "tokens": spent.tokens, "usd": str(spent.usd), "seconds": round(board.at, 6),
    }  # fmt: skip
