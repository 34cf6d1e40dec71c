"""PostgreSQL at every hop: our journal, and LangGraph's saver where it is installed, in one run on one server.

    python benchmarks/postgres.py [HOPS] [--langgraph PYTHON]

A loop appends a message of 1 KB at each hop; every hop is committed before the next. The server is started for the
benchmark, on loopback, with its defaults for safety (fsync on). `--langgraph` names a Python that has `langgraph`,
`langgraph-checkpoint-postgres` and `psycopg`; the two take turns, and the median of the ratios is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from graphflow import (
    END,
    START,
    Budget,
    Context,
    Graph,
    PostgresJournal,
    State,
    Update,
    append,
    node,
    replay,
    run,
    when,
)

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5

THEIRS = """
import json, sys, time, operator
from typing import Annotated, TypedDict
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph

class M(TypedDict):
    messages: Annotated[list, operator.add]

hops, conninfo, thread = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def step(s: M):
    return {"messages": [{"role": "assistant", "content": f"{len(s['messages']):08d}" + "x" * 992}]}

g = StateGraph(M)
g.add_node("step", step)
g.add_edge(START, "step")
g.add_conditional_edges("step", lambda s: "step" if len(s["messages"]) < hops else END, ["step", END])
with PostgresSaver.from_conn_string(conninfo) as saver:
    saver.setup()
    app = g.compile(checkpointer=saver)
    config = {"recursion_limit": hops + 10, "configurable": {"thread_id": thread}}
    began = time.perf_counter()
    app.invoke({"messages": []}, config, durability="sync")
    took = time.perf_counter() - began
    began = time.perf_counter()
    assert len(app.get_state(config).values["messages"]) == hops
    print(json.dumps({"hop": took / hops, "read": time.perf_counter() - began}))
"""


class Message(BaseModel):
    """One message of about 1 KB."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str
    content: str


class Talk(Context):
    """A state that grows."""

    items: Annotated[tuple[Message, ...], append] = ()


def looped(hops: int) -> Graph[Talk]:
    """Return a graph that appends a message at each hop."""

    @node
    async def say(state: State[Talk]) -> Update:
        return Update(items=Message(role="assistant", content=f"{len(state.context.items):08d}" + "x" * 992))

    def more(state: State[Talk]) -> bool:
        return len(state.context.items) < hops

    loop = say.choose(when(more, say, max_hops=hops), default=END)
    return Graph("loop", START >> say, loop, context=Talk, budget=Budget(node_runs=1_000_000))


async def ours(graph: Graph[Talk], conninfo: str, name: str, hops: int) -> dict[str, float]:
    """Return the seconds of a hop, and of reading the run back."""
    journal = PostgresJournal(conninfo)
    await journal.runs()  # the tables are made
    began = time.perf_counter()
    await run(graph, Talk(), journal=journal, run_id=name)
    took = time.perf_counter() - began
    began = time.perf_counter()
    found = await replay(graph, name, journal=PostgresJournal(conninfo))
    assert len(found.context.items) == hops
    return {"hop": took / hops, "read": time.perf_counter() - began}


def theirs(python: str, conninfo: str, name: str, hops: int) -> dict[str, float]:
    """Return the same of LangGraph."""
    done = subprocess.run([python, "-c", THEIRS, str(hops), conninfo, name], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Run both in turn and print what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("hops", nargs="?", type=int, default=200)
    parser.add_argument("--langgraph", metavar="PYTHON", default="")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.servers import MISSING, Postgres, programs

    graph = looped(given.hops)
    mine: list[dict[str, float]] = []
    others: list[dict[str, float]] = []
    found = programs()
    if found is None:
        sys.exit(MISSING)
    server = Postgres(found)
    try:
        server.start(fsync=True)
        for number in range(ROUNDS):
            mine.append(asyncio.run(ours(graph, server.conninfo, f"run {number}", given.hops)))
            if given.langgraph:
                others.append(theirs(given.langgraph, server.conninfo, f"run {number}", given.hops))
    finally:
        server.remove()
    for name, took in (("graphflow", mine), ("langgraph", others)):
        if took:
            hop, read = (statistics.median(one[what] for one in took) * 1000 for what in ("hop", "read"))
            print(f"{name}: {hop:.2f} ms a hop, {read:.1f} ms to read {given.hops} hops back")
    if others:
        ratio = statistics.median(them["hop"] / us["hop"] for us, them in zip(mine, others, strict=True))
        print(f"langgraph / graphflow: {ratio:.1f} (median of {ROUNDS} rounds)")


if __name__ == "__main__":
    main()
