"""The support desk on a small local model, or on any server that speaks OpenAI's chat protocol.

    python examples/local_llm.py --base-url http://127.0.0.1:8080/v1 --model qwen2.5-1.5b-instruct "QUESTION"

Without `--base-url` the address is OPENAI_BASE_URL in the environment. Everything here is as a small model needs it:
it decides in JSON with the reason first, instructions are short, each specialist has one tool and answers in words, the
answer to the customer has a contract, replies are short, and a budget ends whatever goes wrong. What is printed last is
what it cost, and who was asked.
"""

import argparse
import os
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from graphflow import (
    END,
    START,
    Agent,
    Budget,
    Context,
    Graph,
    ModelClient,
    ProviderModel,
    Report,
    Result,
    Supervisor,
    append,
    run_sync,
    tool,
)
from graphflow.errors import ModelError
from graphflow.events import Event, FrameOpened

QUESTION: Final = "I was charged twice on INV-311 and where is my order A-7?"
INVOICES: Final = {"INV-311": "paid twice, 49.00 each time", "INV-312": "paid once, 12.50"}
PARCELS: Final = {"A-7": "in transit, arrives on 2026-09-30", "A-8": "lost"}
NO_SERVER: Final = (
    "No model answers at {url}: start one that speaks OpenAI's chat protocol there, as "
    "`llama-server -m MODEL.gguf --port 8080`, and name it with --base-url http://127.0.0.1:8080/v1."
)


class Case(Context):
    """What a desk knows."""

    question: str
    reports: Annotated[tuple[Report, ...], append] = ()


class Reply(BaseModel, frozen=True):
    """What the customer is told; a contract, so that an answer is never something else."""

    answer: str = Field(description="What we tell the customer, in one or two sentences, with numbers and dates.")


@tool(effect="read")
def get_invoice(number: str) -> str:
    """Look an invoice up.

    Args:
        number: such as INV-311.
    """
    return f"{number}: {INVOICES.get(number.strip().upper(), 'there is no such invoice')}"


@tool(effect="read")
def track_parcel(order: str) -> str:
    """Say where the parcel of an order is.

    Args:
        order: such as A-7.
    """
    return f"{order}: {PARCELS.get(order.strip().upper(), 'there is no such order')}"


def support(model: ModelClient) -> Graph[Case]:
    """Return the desk on a model; it is asked for JSON whether or not it can call tools."""
    billing = Agent(
        "billing",
        model=model,
        decision="json",
        description="Invoices (INV-...), payments, charges and refunds",
        instructions="You know invoices. Look the invoice up once with get_invoice, then say what it says.",
        tools=[get_invoice],  # without output= its answer is a text, and that is the finding of its report
        max_turns=4,
        max_tool_calls=2,
        max_tokens=300,
        retries=1,
    )
    shipping = Agent(
        "shipping",
        model=model,
        decision="json",
        description="Orders (A-...), parcels and delivery dates",
        instructions="You know parcels. Track the order once with track_parcel, then say where it is.",
        tools=[track_parcel],
        max_turns=4,
        max_tool_calls=2,
        max_tokens=300,
        retries=1,
    )
    desk = Supervisor(
        "desk",
        model=model,
        decision="json",
        instructions="You answer customers. Ask billing about an invoice, shipping about an order, both if both are "
        "meant, in one turn. Then answer from their reports.",
        output=Reply,
        max_turns=4,
        max_tokens=400,
        repairs=2,
        retries=1,
    )
    return Graph(
        "local_support",
        START >> desk >> END,
        desk.delegates(billing, shipping, max_hops=2, into="reports"),
        context=Case,
        budget=Budget(model_calls=20, tool_calls=8, tokens=30_000, retries=3, seconds=600),
        max_depth=1,
    )


def is_there(url: str) -> bool:
    """Tell whether something listens at an address."""
    try:
        place = urlsplit(url)
        port = place.port or (443 if place.scheme == "https" else 80)
        with socket.create_connection((place.hostname or "", port), timeout=5):
            return True
    except (OSError, ValueError):
        return False


def _why(result: Result[Case]) -> str:
    return result.status if result.reason is None else result.reason.text


def told(result: Result[Case], events: Sequence[Event]) -> str:
    """Say what came of a run: the answer, what was spent, and who was asked how often."""
    answer = result.output.answer if isinstance(result.output, Reply) else f"no answer: {_why(result)}"
    spent = result.spent.total
    asked = Counter(event.path[-1].name for event in events if isinstance(event.body, FrameOpened) and event.path)
    team = ", ".join(f"{name} ×{times}" if times > 1 else name for name, times in asked.items()) or "nobody"
    amounts = (
        f"{spent.model_calls or 0} model calls · {spent.tool_calls or 0} tool calls · {spent.tokens or 0:,} tokens"
    )
    return f"{answer}\n{result.status} · asked: {team} · {amounts}"


def main(words: Sequence[str] | None = None) -> int:
    """Answer one question."""
    parser = argparse.ArgumentParser(description="A support desk on a local model.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL") or "http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default="local", help="its name; many servers have one model and take any name")
    given = parser.parse_args(words)
    if not is_there(given.base_url):
        print(NO_SERVER.format(url=given.base_url), file=sys.stderr)
        return 2
    model = ProviderModel(
        f"openai:{given.model}", base_url=given.base_url, native_tools=False, settings={"temperature": 0}
    )
    events: list[Event] = []
    try:
        result = run_sync(support(model), Case(question=given.question), listeners=[events.append])
    except ModelError as error:
        print(f"no answer: {error}", file=sys.stderr)
        return 1
    print(told(result, events))
    return 0 if result.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
