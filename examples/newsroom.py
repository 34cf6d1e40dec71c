"""A newsroom, four levels deep: strategies stand inside each other, and one budget holds over all of them.

    graphflow run examples/newsroom.py                  # or: python examples/newsroom.py "QUESTION"
    graphflow draw examples/newsroom.py -o newsroom.svg
    graphflow rehearse examples/newsroom.py --stand-ins STAND_INS

The `chief` asks the city desk; its editor asks for an investigation, which plans its steps; one step asks three
sources side by side. The headline is made by two who take turns. Around all of it stands a citation pass: somebody puts
behind each sentence what it stands on, and changes nothing else. Evidence rises from level to level in the reports; an
id that stands in none of them, or a sentence without one, goes back.

The models are rules, so this needs no key and no network.
"""

import sys
from typing import Final

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    FrozenDict,
    Graph,
    ModelRequest,
    Report,
    Supervisor,
    ToolCall,
    run_sync,
    strategies,
    teams,
)
from graphflow.events import Event
from graphflow.testing import RuleModel, call
from graphflow.visualize import run_tree

QUESTION: Final = "Why did the ferry not run for nine weeks?"


class Issue(teams.Cited):
    """What the newsroom works on; the first field is the command line's INPUT."""

    task: str = QUESTION


def reports_in(request: ModelRequest) -> list[strategies.TeamReport]:
    """Return the reports that a model was told, each of which stands inside <report from="...">."""
    told = [message.text for message in request.messages if message.text.startswith("<report from=")]
    return [strategies.TeamReport.model_validate_json(text.split("\n")[1]) for text in told]


# --- level 4: sources, three at once ---------------------------------------------------------------------------------


FOUND: Final = {
    "archive": Report(finding="The engine was last checked four years ago.", evidence=("issue-1911",)),
    "harbour": Report(finding="The engine broke on 4 January; a part came after nine weeks.", evidence=("log-7",)),
    "council": Report(finding="The council put the check off twice.", evidence=("minutes-3", "minutes-5")),
}
"""What stands in each place."""


def looks_up(request: ModelRequest) -> Report:
    """Say what stands in one's own place."""
    return FOUND[request.agent]


def source(name: str, what: str) -> Agent:
    """Return somebody who looks in one place."""
    return Agent(name, model=RuleModel(otherwise=looks_up), instructions=what, output=Report, max_turns=1)


sources = strategies.parallel(
    "sources",
    source("archive", "Old issues."),
    source("harbour", "The harbour's log."),
    source("council", "Minutes of the council."),
)


# --- level 3: an investigation, planned ------------------------------------------------------------------------------


def planner_says(request: ModelRequest) -> strategies.Plan:
    """Ask the sources and the ledger at once; then let somebody write down what they found together."""
    return strategies.Plan(
        steps=(
            strategies.PlanStep(id="facts", to="sources", objective=request.messages[0].text),
            strategies.PlanStep(id="money", to="ledger", arguments=FrozenDict({"account": "ferry"})),
            strategies.PlanStep(id="story", to="reporter", objective="Tell it.", needs=("facts", "money")),
        )
    )


def ledger(account: str) -> str:
    """Look an account of the town up."""
    return f"The {account} had 12,000 for checks, and nothing was spent. [ledger-88]"


def reporter_says(request: ModelRequest) -> Report:
    """Tell what happened, with all that it stands on."""
    evidence = [item for report in reports_in(request) for item in report.evidence]
    finding = "The engine broke on 4 January. Its check had been put off twice. The money for it was there."
    return Report(finding=finding, evidence=(*evidence, "ledger-88"))


investigation = strategies.plan_execute(
    "investigation",
    Agent("planner", model=RuleModel(otherwise=planner_says), output=strategies.Plan, max_turns=1),
    sources,
    Agent("reporter", model=RuleModel(otherwise=reporter_says), output=Report, max_turns=1),
    tools=[ledger],
    max_steps=1,
    max_replans=1,
    description="Find out what happened",
)


# --- level 2: the city desk, and two who make a headline -------------------------------------------------------------


def city_editor_says(request: ModelRequest) -> ToolCall | Report:
    """Let it be investigated, and pass on what is known with all its evidence."""
    found = reports_in(request)
    if not found:
        return call("ask_investigation", objective=request.messages[-1].text.split("\n")[1])
    return Report(finding=found[0].finding.rpartition("[story]: ")[2], evidence=found[0].evidence)


city_editor = Supervisor("city_editor", model=RuleModel(otherwise=city_editor_says), output=Report, max_turns=2)
city_desk = Graph(
    "city_desk",
    START >> city_editor >> END,
    city_editor.delegates(investigation, max_hops=1),
    context=strategies.Task,
    description="What happens in town",
)
headline = strategies.round_robin(
    "headline",
    Agent(
        "writer",
        model=RuleModel(
            ("nobody", "Nine weeks without a ferry: its check was put off twice"), otherwise="Ferry scandal!"
        ),
        instructions="Write a headline that says what happened.",
        max_turns=1,
    ),
    Agent(
        "reader",
        model=RuleModel(("scandal", "It tells nobody what happened."), otherwise="Good."),
        instructions="Say what a headline lacks.",
        max_turns=1,
    ),
    turns=3,
    description="Make a headline for a text",
)


# --- level 1: the chief ----------------------------------------------------------------------------------------------


def chief_says(request: ModelRequest) -> ToolCall | Report:
    """Ask the desk, then for a headline, then put the article together, with the evidence for it."""
    found = reports_in(request)
    if not found:
        return call("ask_city_desk", objective=request.messages[0].text)
    if len(found) == 1:
        return call("ask_headline", objective=found[0].finding)
    return Report(finding=f"# {found[1].finding}\n{found[0].finding}", evidence=found[0].evidence)


chief = Supervisor("chief", model=RuleModel(otherwise=chief_says), output=Report, max_turns=3)
article = Graph(
    "article", START >> chief >> END, chief.delegates(city_desk, headline, max_hops=1), context=Issue, max_depth=3
)


# --- the last look ---------------------------------------------------------------------------------------------------


def citer_says(request: ModelRequest) -> str:
    """Put the ids in, and forget one at first."""
    text = request.messages[-1].text.partition("The text:\n")[2].removesuffix("\n</message>")
    text = text.replace("January.", "January [log-7].").replace("twice.", "twice [minutes-3].")
    return text.replace("there.", "there [ledger-88].") if "This was wrong" in request.messages[-1].text else text


citer = Agent("citer", model=RuleModel(otherwise=citer_says), instructions="Cite.", max_turns=1)
graph = teams.citation_pass(
    "newsroom",
    article,
    citer,
    max_repairs=1,
    context=Issue,
    max_depth=3,
    budget=Budget(node_runs=40, model_calls=20, tokens=40_000, usd="0.50", seconds=300),
)

STAND_INS: Final = {
    **dict.fromkeys(FOUND, looks_up),
    "planner": planner_says,
    "reporter": reporter_says,
    "city_editor": city_editor_says,
    "chief": chief_says,
    "citer": citer_says,
}
"""Who has to know the work in a rehearsal: the ids in the article are those of the reports, or it goes back."""


if __name__ == "__main__":
    events: list[Event] = []
    result = run_sync(graph, Issue(task=" ".join(sys.argv[1:]) or QUESTION), listeners=[events.append])
    cited = result.output
    print(cited.finding)
    print(f"\n{cited.coverage:.0%} of {cited.claims} claims are cited, {result.spent.total.model_calls} model calls\n")
    print(run_tree(events))
