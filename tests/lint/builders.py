"""What the seeded runs are made of: small teams that follow a script."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    Human,
    ModelReply,
    Reason,
    Report,
    State,
    Supervisor,
    Tool,
    Usage,
    append,
    node,
    run,
    tool,
    when,
)
from graphflow.events import Event
from graphflow.model.thread import ToolCall
from graphflow.nodes.base import Node
from graphflow.testing import ScriptedModel, call
from graphflow.testing.models import ScriptStep

Script = Mapping[str, Sequence[ScriptStep]]

QUESTION: Final = "Was INV-311 paid twice, and where is order A-7?"
BUDGET: Final = Budget(model_calls=60, tool_calls=60, node_runs=60)

KNOWN: Final = {
    "invoice": "ledger.csv:4: INV-311 was charged on May 2 and on May 3",
    "parcel": "tracking.log:9: A-7 left Rotterdam, it arrives on Friday",
    "refund": "policy.md:12: a double charge is refunded within ten days",
}


class Desk(Context):
    """What everybody in these teams works on."""

    question: str = QUESTION
    draft: str = ""
    rounds: int = 0
    reports: Annotated[tuple[Report, ...], append] = ()


@tool(effect="read")
def search(text: str) -> str:
    """Search the files for a word."""
    return KNOWN.get(text.casefold().split()[0], "nothing found")


@tool(effect="read")
def fetch(page: int) -> str:
    """Read a page of the ledger."""
    return f"page {page}: {page * 7} entries"


@tool(effect="read")
def status() -> str:
    """Say how far the export is."""
    return "still at it"


@tool(effect="read")
def broken(text: str) -> str:
    """Fail."""
    raise ConnectionError(f"no ledger for {text}")


class Seed(NamedTuple):
    """A run to be made: what it is called, and a graph that has not run."""

    name: str
    make: Callable[[], Graph[Any]]
    missed: bool = False


def solo(
    *steps: ScriptStep, tools: Sequence[Tool] = (search, fetch), native: bool = True, **options: Any
) -> Graph[Desk]:
    """One agent alone."""
    model = ScriptedModel(*steps, native_tools=native)
    clerk = Agent("clerk", model=model, tools=list(tools), **options)
    return Graph("solo", START >> clerk >> END, context=Desk, budget=BUDGET)


def team(
    script: Script, *members: str, tools: Sequence[Tool] = (search, fetch), into: str | None = None,
    then: Node[Any] | None = None, instructions: Mapping[str, str] | None = None, max_hops: int = 4,
) -> Graph[Desk]:  # fmt: skip
    """A desk that delegates to members, each with the same tools."""
    model = ScriptedModel(script)
    said = instructions or {}
    desk = Supervisor("desk", model=model, max_turns=12)
    crew = [
        Agent(name, model=model, tools=list(tools), output=Report, instructions=said.get(name, f"You are {name}."))
        for name in members
    ]
    way = START >> desk >> END if then is None else START >> desk >> then >> END
    return Graph(
        "team", way, desk.delegates(*crew, max_hops=max_hops, into=into), context=Desk, budget=BUDGET, max_depth=1
    )


def chat(
    script: Script, *names: str, max_handoffs: int = 12, tools: Sequence[Tool] = (search,), escalate: bool = False,
    history: Any = "note",
) -> Graph[Desk]:  # fmt: skip
    """Agents that can all hand over to each other; the first is asked first."""
    model = ScriptedModel(script)
    agents = [Agent(name, model=model, tools=list(tools)) for name in names]
    statements = [
        one.hands_off(*(other for other in agents if other is not one), max_hops=12, history=history) for one in agents
    ]
    ends = [one >> END for one in agents[1:]]
    return Graph(
        "chat", START >> agents[0] >> END, *statements, *ends, context=Desk, budget=BUDGET, max_handoffs=max_handoffs,
        escalate=Human("person", "What do you answer?", schema=str) if escalate else None,
    )  # fmt: skip


def over(to: str, note: str = "The customer was charged twice on INV-311.") -> ToolCall:
    """Hand over."""
    return call(f"transfer_to_{to}", note=note)


def ask(to: str, objective: str, **more: Any) -> ToolCall:
    """Delegate."""
    return call(f"ask_{to}", objective=objective, **more)


def done(finding: str, *evidence: str, action: str | None = None) -> Report:
    """A report that is done."""
    return Report(finding=finding, evidence=evidence, action_needed=action)


def not_done(status: Literal["partial", "failed", "needs_input"], why: str, finding: str = "") -> Report:
    """A report that is not done."""
    return Report(status=status, finding=finding, reason=Reason(code="reported", text=why))


def thinks(text: str, *calls: ToolCall) -> ScriptStep:
    """Say why, and call something."""
    return ModelReply(text, calls, Usage(1, 1))


def in_json(reason: str, *calls: ToolCall) -> str:
    """The same, as a model says it that decides in JSON."""
    return json.dumps(
        {"reason": reason, "calls": [{"tool": one.name, "arguments": json.loads(one.arguments)} for one in calls]}
    )


# --- graphs with a node that verifies --------------------------------------------------------------------------------


def good_enough(state: State[Desk]) -> bool:
    """Whether the writer thinks that nobody needs to look."""
    return "sure" in state.context.draft


def to_be_redone(state: State[Desk]) -> bool:
    """Whether the verifier sends it back."""
    return bool(state.inbox) and "wrong" in str(state.inbox[0].value)


@node
def publish(state: State[Desk]) -> str:
    """Print it."""
    return state.context.draft


def desk_with_check(script: Script, *, bypass: bool = False, fixes: bool = False, name: str = "check") -> Graph[Desk]:
    """A writer, and somebody who checks; with `bypass` the writer may go round it, with `fixes` work follows it."""
    model = ScriptedModel(script)
    writer = Agent("writer", model=model, tools=[search], into="draft")
    check = Agent(name, model=model, tools=[search])
    fixer = Agent("fixer", model=model, into="draft")
    first = writer.choose(when(good_enough, publish), default=check) if bypass else writer >> check
    after = check.choose(when(to_be_redone, fixer if fixes else writer, max_hops=2), default=publish)
    more = (fixer >> publish,) if fixes else ()
    return Graph("desk", START >> writer, first, after, *more, publish >> END, context=Desk, budget=BUDGET)


async def played(graph: Graph[Any]) -> list[Event]:
    """Run a graph to its end, and return what happened."""
    events: list[Event] = []
    await run(graph, graph.context(), listeners=[events.append])
    return events
