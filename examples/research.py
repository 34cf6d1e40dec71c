"""Research over a folder of documents: a lead, three researchers, and a check of every citation.

    graphflow run examples/research.py                  # or: python examples/research.py "QUESTION"
    graphflow run examples/research.py --model openai:gpt-5
    graphflow draw examples/research.py -o research.svg

The researchers look into examples/documents with the tools of a file server that speaks MCP; their lead answers from
their reports. Then a function reads each document that the answer cites. What is not there word for word goes back to
the lead, once; what is still not there stands below the answer, marked. No model decides about that.

The models are rules, one of which misquotes the yard's offer at first, so this needs no key and no network.
"""

import re
import sys
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Done,
    Graph,
    ModelRequest,
    Report,
    State,
    Supervisor,
    ToolCall,
    Update,
    append,
    last,
    node,
    run_sync,
    when,
)
from graphflow.mcp import McpServer
from graphflow.testing import RuleModel, call

DOCUMENTS: Final = Path(__file__).parent / "documents"
QUESTION: Final = "Should the battery ferry of the yard replace the Heron?"
SHORTEST: Final = 12
"""Fewer characters are no quote: they stand everywhere."""


class Claim(BaseModel, frozen=True):
    """One thing that is said, and where it stands."""

    text: str = Field(description="What is claimed, in a short sentence of your own.")
    document: str = Field(description="The document that says so, as search shows it: a name that ends with .md.")
    quote: str = Field(description="The words of the document that say so, copied exactly; less than a line.")


class Findings(Report):
    """What a researcher reports: its claims, besides what every report has."""

    claims: tuple[Claim, ...] = ()


class Answer(BaseModel, frozen=True):
    """What the lead answers."""

    text: str = Field(description="The answer in two or three sentences.")
    claims: tuple[Claim, ...] = Field(description="What the answer stands on, taken from the reports.")


class Research(Context):
    """What is asked, and how far it is; the first field is the command line's INPUT."""

    question: str = QUESTION
    reports: Annotated[tuple[Report, ...], append] = ()
    answer: Answer | None = None
    lost: tuple[str, ...] = ()
    checks: int = 0


# --- the check: a function reads what is cited ---------------------------------------------------------------


@node
def check(state: State[Research]) -> Done:
    """Look each citation up; say what the documents do not hold, or else give the answer with its sources."""
    answer = state.context.answer
    claims = answer.claims if answer is not None else ()
    lost = tuple(found for claim in claims if (found := trouble_with(claim)))
    if not claims:
        lost = ("the answer cites no document at all.",)
    said = printed(answer, lost) if answer is not None else ""
    again = "These citations were not found. Look them up again, or leave them out:\n" + "\n".join(lost)
    sends_back = bool(lost) and not state.context.checks
    return Done(again if sends_back else said, update=Update(lost=lost, checks=state.context.checks + 1))


def trouble_with(claim: Claim) -> str:
    """Say why a citation does not hold; "" if it does. Line breaks and spaces do not count, all else does."""
    if claim.document not in {path.name for path in DOCUMENTS.iterdir()}:
        return f'there is no document "{claim.document}".'
    if len(claim.quote.strip()) < SHORTEST:
        return f'{claim.document}: "{claim.quote}" is too short for a quote.'
    if " ".join(claim.quote.split()) not in " ".join((DOCUMENTS / claim.document).read_text("utf-8").split()):
        return f'{claim.document} does not say: "{claim.quote}"'
    return ""


def printed(answer: Answer, lost: tuple[str, ...]) -> str:
    """Write an answer with what it stands on, and below it what could not be found."""
    lines = [answer.text, ""]
    for number, claim in enumerate([claim for claim in answer.claims if not trouble_with(claim)], 1):
        lines.append(f"[{number}] {claim.text}")
        lines.append(f'    {claim.document}: "{" ".join(claim.quote.split())}"')
    lines += [f"[NOT FOUND] {one}" for one in lost]
    return "\n".join(lines)


def to_be_looked_up_again(state: State[Research]) -> bool:
    """Tell whether something was not found at the first check; the second one has the last word."""
    return bool(state.context.lost) and state.context.checks == 1


# --- the models: rules that read their requests, and say what a model would ------------------------------------

FIELDS: Final = {
    "costs": "What it costs, and who pays: prices, accounts, loans.",
    "technique": "Whether it can work: the ship, its battery, power at the pier.",
    "people": "What it means for people: passengers, rules, dates.",
}
FACTS: Final = {
    "costs": {
        "the price is": "The ship costs 6.4 million crowns.",
        "half the price": "The council lends half of that at most.",
        "power from the grid": "Power would cost far less than diesel does.",
    },
    "technique": {
        "minutes needs": "Charging within a stop needs 850 kilowatts.",
        "can lay a cable": "A cable for that takes nine months.",
    },
    "people": {
        "will not be renewed": "The Heron has to stop in 2028 in any case.",
        "without smoke": "Most would pay more for clean air.",
    },
}
"""What each researcher looks for, and what it makes of the line that it finds."""


def rule_of_lead(request: ModelRequest) -> list[ToolCall] | Answer:
    """Ask all; answer from what they claim; ask again whose citation was not found."""
    if not any(message.calls for message in request.messages):
        return [call(f"ask_{name}", objective=field) for name, field in FIELDS.items()]
    if request.messages[-1].role == "user":  # the check has sent something back
        return [call("ask_costs", objective="Look it all up again, and copy each line exactly.")]
    claims: dict[str, Claim] = {}
    for message in request.messages:
        if message.role == "tool" and not message.failed:
            report = Findings.model_validate_json(message.text.split("\n")[1])  # the line inside <report from="...">
            claims |= {claim.text: claim for claim in report.claims}
    text = "Yes, if the council lends its half and the cable is ordered at once: the Heron has to stop in 2028 anyway."
    return Answer(text=text, claims=tuple(claims.values()))


def rule_of_researcher(request: ModelRequest) -> list[ToolCall] | Findings:
    """Search for each thing; claim what the line says that was found. The price is copied badly at first."""
    facts = FACTS[request.agent]
    found = [message.text for message in request.messages if message.role == "tool" and not message.failed]
    if not found:
        return [call("search", text=words) for words in facts]
    careful = "exactly" in request.messages[0].text
    claims: list[Claim] = []
    for text, said in zip(found, facts.values(), strict=False):
        hit = re.match(r"([\w-]+\.md):\d+: (.*)", text)
        if hit:
            quote = hit[2] if careful else hit[2].replace("6.4", "4.6")
            claims.append(Claim(text=said, document=hit[1], quote=quote))
    return Findings(finding=f"{len(claims)} facts", claims=tuple(claims))


def think(request: ModelRequest) -> list[ToolCall] | Answer | Findings:
    """Say what the model of an agent would."""
    return rule_of_lead(request) if request.agent == "lead" else rule_of_researcher(request)


MODEL: Final = RuleModel(otherwise=think)


# --- the team ------------------------------------------------------------------------------------------------

documents = McpServer("documents", command=[sys.executable, "-m", "graphflow.mcp.files", str(DOCUMENTS)])
TOOLS: Final = documents.tools("search", "read_document")
TEAM: Final = [
    Agent(
        name,
        model=MODEL,
        description=field,
        instructions=f"{field} Search the documents for single words, read what you find, and report each fact as a "
        "claim with the name of its document and a quote that is copied from it letter by letter.",
        tools=TOOLS,
        output=Findings,
        max_turns=6,
        max_tool_calls=8,
    )
    for name, field in FIELDS.items()
]
lead = Supervisor(
    "lead",
    model=MODEL,
    instructions="Ask each of your researchers for its part of the question, all at once. Answer from their reports "
    "alone; copy their claims as they are. If citations were not found, ask who reported them once more.",
    output=Answer,
    history=last(8),
    into="answer",
    max_turns=4,
)
graph = Graph(
    "research",
    START >> lead >> check,
    check.choose(when(to_be_looked_up_again, lead, max_hops=1), default=END),
    lead.delegates(*TEAM, max_hops=2, report=Findings, into="reports"),
    context=Research,
    budget=Budget(model_calls=44, tool_calls=48, tokens=200_000, usd="0.50", seconds=300),
    max_depth=1,
)


if __name__ == "__main__":
    print(run_sync(graph, Research(question=" ".join(sys.argv[1:]) or QUESTION)).output)
