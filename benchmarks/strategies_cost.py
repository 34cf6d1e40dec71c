"""What each strategy costs on the same task, and handoff against delegation when somebody asks again.

    python benchmarks/strategies_cost.py

A customer asks; three specialists know one thing each, and look it up before they say it. One question has one part
and one has three. Each strategy is rehearsed: who decides what is a rule, the same for all; how long models and tools
take is drawn, so the seconds are virtual, and the same seed gives the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Graph,
    ModelRequest,
    Result,
    Supervisor,
    Tool,
    ToolCall,
    run_sync,
    strategies,
    tool,
)
from graphflow.rehearsal import rehearse_sync
from graphflow.testing import RuleModel, call

RUNS, SEED = 100, 6
FACTS: Final = {
    "billing": ("invoice", "INV-311 was paid twice."),
    "shipping": ("parcel", "A-7 comes on Friday."),
    "returns": ("label", "The label is good until May."),
}
"""Of each specialist: the word that its part of a question has, and what is true."""

ONE: Final = "Where is my parcel?"
THREE: Final = "Why was my invoice paid twice, where is my parcel, and how long is the label good?"
PLENTY: Final = Budget(model_calls=200)

Says = ToolCall | list[ToolCall] | str | strategies.Plan


class Asked(NamedTuple):
    """What a model reads out of its request."""

    wanted: tuple[str, ...]
    known: tuple[str, ...]
    offers: frozenset[str]
    looked: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """Who has not been heard yet, of those that are needed."""
        return tuple(name for name in self.wanted if FACTS[name][1] not in self.known)

    @property
    def answer(self) -> str:
        """All that is known, in one text."""
        return " ".join(self.known) or "That is not mine."


def read(request: ModelRequest) -> Asked:
    """Read a request: the question, what was said so far, and what may be called."""
    told = "\n".join(message.text for message in request.messages)
    asked = "\n".join(message.text for message in request.messages if message.role == "user")
    return Asked(
        tuple(name for name, (word, _) in FACTS.items() if word in asked),
        tuple(fact for _, fact in FACTS.values() if fact in told),
        frozenset(spec.name for spec in request.tools),
        any(message.role == "tool" for message in request.messages),
    )


def look_up(name: str) -> Tool:
    """Return the tool of a specialist, who has it alone."""
    word, fact = FACTS[name]

    @tool(name=f"look_up_{word}", description=f"Look the {word} up.", effect="read")
    def looks() -> str:
        return fact

    return looks


def specialist_says(name: str) -> Callable[[ModelRequest], Says]:
    """Return what a specialist says: it looks its part up, then passes on what is missing, or answers."""

    def says(request: ModelRequest) -> Says:
        asked = read(request)
        if name in asked.missing and not asked.looked:
            return call(f"look_up_{FACTS[name][0]}")
        for missing in asked.missing:
            for target in (f"transfer_to_{missing}", "transfer_to_desk"):
                if target in asked.offers:
                    return call(target, note=asked.answer)
        return asked.answer

    return says


def desk_says(request: ModelRequest) -> Says:
    """Ask or hand over to whoever is missing, as far as that is offered; else answer with what is known."""
    asked = read(request)
    asks = [name for name in asked.missing if f"ask_{name}" in asked.offers]
    if asks:
        return [call(f"ask_{name}", objective=f"About the {FACTS[name][0]}?") for name in asks]
    hands = [f"transfer_to_{name}" for name in asked.missing if f"transfer_to_{name}" in asked.offers]
    return call(hands[0], note=asked.answer) if hands else asked.answer


def triage_says(request: ModelRequest) -> Says:
    """Name everybody who is needed."""
    return " and ".join(read(request).wanted)


def planner_says(request: ModelRequest) -> Says:
    """Plan a step for each part."""
    step = strategies.PlanStep
    wanted = read(request).wanted
    return strategies.Plan(steps=tuple(step(id=n, to=n, objective=f"About the {FACTS[n][0]}?") for n in wanted))


def specialist(name: str) -> Agent:
    """Return a specialist."""
    model = RuleModel(otherwise=specialist_says(name))
    about = f"You know all about the {FACTS[name][0]}. Look it up before you answer."
    return Agent(name, model=model, instructions=about, tools=[look_up(name)], max_turns=3)


TEAM: Final = tuple(map(specialist, FACTS))
DESK_WORDS: Final = "Answer the customer once, with all that your colleagues found."
desk = Agent("desk", model=RuleModel(otherwise=desk_says), instructions=DESK_WORDS, max_turns=1)
lead = Supervisor("desk", model=RuleModel(otherwise=desk_says), instructions=DESK_WORDS, max_turns=3)
triage = Agent("triage", model=RuleModel(otherwise=triage_says), instructions="Say who is needed.", max_turns=1)
planner = Agent("planner", model=RuleModel(otherwise=planner_says), output=strategies.Plan, max_turns=1)
SAYS: Final = {
    "desk": desk_says, "triage": triage_says, "planner": planner_says,
    **{name: specialist_says(name) for name in FACTS},
    **{f"look_up_{word}": partial(str, fact) for word, fact in FACTS.values()},
}  # fmt: skip
"""Who stands in for whom in a rehearsal: the rules that the models of a run follow."""


def wanted_of(task: str) -> list[str]:
    """Return who is needed for a question."""
    return [name for name, (word, _) in FACTS.items() if word in task]


def all_is_said(talk: strategies.Conversation) -> bool:
    """Tell whether every part has been answered."""
    return all(FACTS[name][1] in talk.said[-1].text for name in wanted_of(talk.task))


def who_is_missing(talk: strategies.Conversation) -> str | None:
    """Name the next who is needed and has not spoken."""
    spoken = {said.speaker for said in talk.said}
    return next((name for name in wanted_of(talk.task) if name not in spoken), None)


delegation: Graph[strategies.Task] = Graph(
    "delegation", START >> lead >> END, lead.delegates(*TEAM, max_hops=1), context=strategies.Task, budget=PLENTY
)
GRAPHS: Final[dict[str, Graph[Any]]] = {
    "delegation": delegation,
    "handoff": strategies.handoff("handoff", desk, *TEAM, back=1, budget=PLENTY),
    "router": strategies.router("router", triage, *TEAM, budget=PLENTY),
    "sequential": strategies.sequential("sequential", *TEAM, budget=PLENTY),
    "parallel": strategies.parallel("parallel", *TEAM, synthesis=desk, budget=PLENTY),
    "swarm": strategies.swarm("swarm", *TEAM, budget=PLENTY),
    "round_robin": strategies.round_robin("round_robin", *TEAM, turns=3, budget=PLENTY),
    "random": strategies.random("random", *TEAM, turns=40, until=all_is_said, budget=PLENTY),
    "plan_execute": strategies.plan_execute("plan_execute", planner, *TEAM, synthesis=desk, budget=PLENTY),
    "manual": strategies.manual("manual", *TEAM, turns=6, decide=who_is_missing, budget=PLENTY),
}


class Cost(NamedTuple):
    """What one question cost with one strategy: means of many rehearsals, and of the seconds the median."""

    calls: float
    tokens: float
    seconds: float


def context_of(graph: Graph[Any], task: str) -> Any:
    """Return what a graph begins with."""
    return graph.context(task=task)


def parts_in(graph: Graph[Any], task: str) -> int:
    """Run a graph once, and count the parts of the question that its answer has."""
    result: Result[Any] = run_sync(graph, context_of(graph, task))
    return sum(FACTS[name][1] in str(result.output) for name in wanted_of(task))


def cost(graph: Graph[Any], task: str) -> Cost:
    """Rehearse a graph."""
    stand_ins = {name: says for name, says in SAYS.items() if name in graph.nodes or name.startswith("look_up")}
    found = rehearse_sync(graph, context_of(graph, task), runs=RUNS, seed=SEED, stand_ins=stand_ins)
    means = [found.summary(measure).mean for measure in ("model_calls", "tokens")]
    return Cost(means[0], means[1], found.summary("seconds").p50)


def table() -> list[str]:
    """Return what each strategy costs, a line for each."""
    lines = [
        f"{'':14}{'one part':^28}{'three parts':^28}",
        f"{'':14}" + f"{'calls':>8}{'tokens':>9}{'seconds':>9}  " * 2,
    ]
    for name, graph in GRAPHS.items():
        cells: list[str] = []
        for task in (ONE, THREE):
            if parts_in(graph, task) < len(wanted_of(task)):
                cells.append(f"{'cannot answer it':>26}  ")
                continue
            calls, tokens, seconds = cost(graph, task)
            cells.append(f"{calls:8.3g}{tokens:9,.0f}{seconds:9.1f}  ")
        lines.append(f"{name:14}{''.join(cells)}")
    return [line.rstrip() for line in lines]


# --- asking again ----------------------------------------------------------------------------------------------------


def chatting(name: str) -> Callable[[ModelRequest], Says]:
    """Return what somebody says in a chat: a specialist looks up or hands over, the desk asks or hands over."""

    def says(request: ModelRequest) -> Says:
        users = [index for index, message in enumerate(request.messages) if message.role == "user"]
        asked = next(text for i in reversed(users) if not (text := request.messages[i].text).startswith("<note"))
        acted = any(message.role == "tool" for message in request.messages[users[-1] :])
        wanted = wanted_of(asked)[0]
        if acted:
            return "Here is what I found."
        if wanted == name:
            return call(f"look_up_{FACTS[name][0]}")
        offers = {spec.name for spec in request.tools}
        if f"ask_{wanted}" in offers:
            return call(f"ask_{wanted}", objective=asked)
        return call(f"transfer_to_{wanted}", note=asked)

    return says


def chat(*, hands_over: bool) -> Graph[strategies.Task]:
    """Return a chat in which the desk hands over, and who spoke last gets the next message; or one that delegates."""
    team = [
        Agent(name, model=RuleModel(otherwise=chatting(name)), instructions=word, tools=[look_up(name)], max_turns=3)
        for name, (word, _) in FACTS.items()
    ]
    says = RuleModel(otherwise=chatting("desk"))
    if hands_over:
        front = Agent("desk", model=says, instructions=DESK_WORDS, max_turns=2)
        return strategies.swarm("chat", front, *team, budget=PLENTY)
    head = Supervisor("desk", model=says, instructions=DESK_WORDS, max_turns=2)
    return Graph(
        "chat", START >> head >> END, head.delegates(*team, max_hops=1), context=strategies.Task, budget=PLENTY
    )


def conversation(graph: Graph[strategies.Task], messages: int, *, others: bool) -> int:
    """Hold a conversation of some messages, about one thing or each about another, and return its model calls."""
    words = [word for word, _ in FACTS.values()]
    result: Result[strategies.Task] | None = None
    for number in range(messages):
        about = words[number % len(words)] if others else words[0]
        result = run_sync(graph, strategies.Task(task=f"{number}: what about my {about}?"), after=result)
    return (None if result is None else result.spent.total.model_calls) or 0


def again_table() -> list[str]:
    """Return the model calls of conversations, a line for each length."""
    lines = [
        f"{'':10}{'the same thing each time':^34}{'another thing each time':^34}",
        f"{'messages':10}" + f"{'delegation':>11}{'handoff':>9}{'fewer':>8}      " * 2,
    ]
    for messages in (1, 2, 3, 5, 10):
        cells: list[str] = []
        for others in (False, True):
            asks, hands = (conversation(chat(hands_over=way), messages, others=others) for way in (False, True))
            cells.append(f"{asks:11}{hands:9}{1 - hands / asks:8.0%}      ")
        lines.append(f"{messages:<10}{''.join(cells)}")
    return [line.rstrip() for line in lines]


if __name__ == "__main__":
    print("\n".join((*table(), "", *again_table())))
