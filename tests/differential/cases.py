"""The plays that both libraries must show alike, and the strategies that make more of them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from tests.differential.script import Call, Member, Play, Reply, ask, call, say, transfer, use


class Ticket(BaseModel):
    """A structured answer."""

    model_config = ConfigDict(frozen=True)

    code: int
    note: str


CHAT: Final = (
    Member("triage", ("look",), ("billing", "shipping")),
    Member("billing", ("look", "slow", "broken", "fatal"), ("triage", "shipping")),
    Member("shipping", ("look",), ("triage",)),
)
"""Three agents that hand off to each other."""

DESK: Final = (
    Member("desk", ("look",), team=("billing", "shipping")),
    Member("billing", ("look", "slow", "broken")),
    Member("shipping", ("look",)),
)
"""An agent with two others as its tools."""

TICKETS: Final = (Member("triage", ("look",), ("billing",), output=Ticket), Member("billing", output=Ticket))
"""Two agents whose answers are structured."""

PAID: Final = '{"code": 7, "note": "paid twice"}'
TOWARDS: Final = use(transfer("billing"))

ALIKE: Final[dict[str, Play]] = {
    "answers at once": Play(CHAT, {"triage": (say("It is here."),)}),
    "a tool, and a text beside the call": Play(
        CHAT, {"triage": (use(call("look", key=1), text="One moment."), say("It is here."))}
    ),
    "one tool after the other": Play(
        CHAT, {"triage": (use(call("look", key=1)), use(call("look", key=2)), use(call("look", key=1)), say("Here."))}
    ),
    "tools of one turn, the slow one first": Play(
        CHAT,
        {
            "triage": (TOWARDS,),
            "billing": (use(call("slow", key=1), call("look", key=2), call("slow", key=3, unit="km")), say("Done.")),
        },
    ),
    "there and back, and on": Play(
        CHAT,
        {
            "triage": (
                use(transfer("billing", "a bill"), text="I ask billing."),
                use(transfer("shipping", "a parcel")),
            ),
            "billing": (use(call("look", key=2)), use(transfer("triage", "no bill"))),
            "shipping": (say("It comes on Friday."),),
        },
    ),
    "a tool beside a transfer": Play(
        CHAT, {"triage": (use(call("look", key=5), transfer("billing")),), "billing": (say("Paid."),)}
    ),
    "a tool that fails is data": Play(
        CHAT,
        {
            "triage": (TOWARDS,),
            "billing": (use(call("broken", key=1), call("look", key=2)), use(call("broken", key=3)), say("Sorry.")),
        },
    ),
    "arguments of a wrong type": Play(CHAT, {"triage": (use(call("look", key="one")), say("Sorry."))}),
    "arguments that are missing": Play(CHAT, {"triage": (use(call("look")), say("Sorry."))}),
    "arguments that are no JSON": Play(CHAT, {"triage": (use(Call("look", "{key: 1")), say("Sorry."))}),
    "arguments that are no object": Play(CHAT, {"triage": (use(Call("look", "[1]")), say("Sorry."))}),
    "a number that is written as text": Play(CHAT, {"triage": (use(call("look", key="1")), say("Here."))}),
    "the last turn that there is": Play(
        CHAT, {"triage": (use(call("look", key=1)), use(call("look", key=2)), say("Here."))}, max_turns=3
    ),
    "a structured answer": Play(TICKETS, {"triage": (use(call("look", key=1)), say(PAID))}),
    "a structured answer after a handoff": Play(TICKETS, {"triage": (TOWARDS,), "billing": (say(PAID),)}),
    "a model that raises": Play(CHAT, {"triage": (use(call("look", key=1)), Reply(error="overloaded"))}),
    "a team of two, at once": Play(
        DESK,
        {
            "desk": (use(ask("billing", "Was it paid?"), ask("shipping", "Where is it?")), say("Paid, in transit.")),
            "billing": (use(call("look", key=1)), say("paid")),
            "shipping": (say("in transit"),),
        },
    ),
    "a tool beside a delegation, and the same member again": Play(
        DESK,
        {
            "desk": (
                use(ask("billing", "Was it paid?"), call("look", key=9)),
                use(ask("billing", "Sure?")),
                say("Yes."),
            ),
            "billing": (use(call("slow", key=1)), say("paid"), say("sure")),
        },
    ),
    "a member without an end": Play(
        DESK,
        {
            "desk": (use(ask("billing", "Was it paid?")), say("Nobody knows.")),
            "billing": tuple(use(call("look", key=key)) for key in range(5)),
        },
        max_turns=3,
    ),
    "a team of a team": Play(
        (Member("desk", team=("lead",)), Member("lead", team=("billing",)), Member("billing", ("look",))),
        {
            "desk": (use(ask("lead", "Was it paid?")), say("Yes.")),
            "lead": (use(ask("billing", "INV-311?")), say("It was.")),
            "billing": (use(call("look", key=311)), say("paid")),
        },
    ),
    "a member that hands off": Play(
        (Member("desk", team=("lead",)), Member("lead", hands_off=("billing",)), Member("billing", ("look",))),
        {
            "desk": (use(ask("lead", "Was it paid?")), say("Yes.")),
            "lead": (TOWARDS,),
            "billing": (use(call("look", key=311)), say("paid")),
        },
    ),
}
"""What both show alike."""

KEYS: Final = st.integers(0, 3)
TEXTS: Final = st.sampled_from(("", "One moment.", "I see.\n\nSo: “yes”."))
MORE: Final = 12
"""How many texts follow what is drawn, so that no script ends too early."""


@st.composite
def calls(draw: st.DrawFn, tools: tuple[str, ...]) -> Call:
    """Draw a call of a tool, with good arguments or bad ones."""
    name = draw(st.sampled_from(tools))
    return draw(
        st.one_of(
            KEYS.map(lambda key: call(name, key=key)),
            st.sampled_from((Call(name, "{}"), Call(name, "{oops"), call(name, key="x"), call(name, key="2"))),
        )
    )


@st.composite
def chats(draw: st.DrawFn) -> Play:
    """Draw a chat: in each turn some tools, and perhaps one transfer among them."""
    script: dict[str, tuple[Reply, ...]] = {}
    for member in CHAT:
        tools = tuple(name for name in member.tools if name != "fatal")
        replies: list[Reply] = []
        for _ in range(draw(st.integers(0, 4))):
            wanted = draw(st.lists(calls(tools), max_size=3))
            if draw(st.booleans()) or not wanted:
                place = draw(st.integers(0, len(wanted)))
                wanted.insert(place, transfer(draw(st.sampled_from(member.hands_off)), draw(TEXTS)))
            replies.append(use(*wanted, text=draw(TEXTS)))
        script[member.name] = (*replies, *(say(f"{member.name} {number}") for number in range(MORE)))
    return Play(CHAT, script, user=draw(st.sampled_from(("Hello", "Where is it?\nNow!"))), max_turns=100)


@st.composite
def desks(draw: st.DrawFn) -> Play:
    """Draw a desk: in each turn some tools, and each member is asked once at most."""
    script: dict[str, tuple[Reply, ...]] = {}
    for member in DESK:
        tools = tuple(name for name in member.tools)
        replies: list[Reply] = []
        for _ in range(draw(st.integers(0, 3))):
            asked = draw(st.lists(st.sampled_from(member.team), unique=True)) if member.team else []
            wanted = draw(st.lists(calls(tools), max_size=2, min_size=0 if asked else 1))
            objectives = [ask(name, draw(st.sampled_from(("Paid?", "Where?")))) for name in asked]
            replies.append(use(*draw(st.permutations([*wanted, *objectives])), text=draw(TEXTS)))
        script[member.name] = (*replies, *(say(f"{member.name} {number}") for number in range(MORE)))
    return Play(DESK, script, max_turns=100)
