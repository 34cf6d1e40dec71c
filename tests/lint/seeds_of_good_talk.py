"""Good runs for the rules about how the members of a team deal with each other: they look much alike."""

from typing import Final

from graphflow import AskUser
from graphflow.testing import call
from tests.lint.builders import (
    Seed,
    ask,
    chat,
    done,
    in_json,
    not_done,
    over,
    solo,
    team,
    thinks,
)
from tests.lint.seeds_of_talk import ANSWER, FRIDAY, INVOICE, PARCEL, REFUND, looping, routed

GOOD_TALK: Final[tuple[Seed, ...]] = (
    Seed(
        "a loop that looks at something else each time",
        lambda: looping(INVOICE, ANSWER, PARCEL, FRIDAY, REFUND, "Ten days, the policy says."),
    ),
    Seed(
        "a loop that searches again and says more",
        lambda: looping(INVOICE, ANSWER, INVOICE, f"{ANSWER} It was our mistake.", rounds=2),
    ),
    Seed("a short answer twice", lambda: looping(INVOICE, "Yes.", INVOICE, "Yes.", rounds=2)),
    Seed(
        "a question to the caller, who asks again",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Was the invoice paid twice?"),
                    ask("billing", "Was INV-311 paid twice?"),
                    ANSWER,
                ],
                "billing": [not_done("needs_input", "Which invoice was not given."), done(ANSWER)],
            },
            "billing",
        ),
    ),
    Seed(
        "a question that is passed on",
        lambda: team(
            {
                "desk": [ask("billing", "Was the invoice paid twice?"), "Which invoice is it about?"],
                "billing": [not_done("needs_input", "Which invoice is it about?")],
            },
            "billing",
        ),
    ),
    Seed(
        "a failure of the world",
        lambda: team(
            {
                "desk": [ask("billing", "Was INV-311 paid twice?"), "Billing is unavailable."],
                "billing": [not_done("failed", "the ledger cannot be reached")],
            },
            "billing",
        ),
    ),
    Seed(
        "a file that is missing",
        lambda: team(
            {
                "desk": [ask("billing", "Was INV-311 paid twice?"), "The ledger of May is missing."],
                "billing": [INVOICE, not_done("partial", "the file of May is missing", "a charge on May 2")],
            },
            "billing",
        ),
    ),
    Seed(
        "an answer that tells of an assumption in the data",
        lambda: solo(REFUND, "The policy assumes that a refund takes ten days."),
    ),
    Seed(
        "a denial that is read as a guess",
        lambda: solo(INVOICE, "I assumed nothing: INV-311 was paid twice."),
        missed=True,
    ),
    Seed(
        "a brief of two words and an id",
        lambda: team(
            {"desk": [ask("billing", "Check INV-311"), ANSWER], "billing": [INVOICE, done(ANSWER)]}, "billing"
        ),
    ),
    Seed(
        "a thin objective with sources",
        lambda: team(
            {
                "desk": [ask("billing", "Look into it", sources=["ledger.csv"]), ANSWER],
                "billing": [INVOICE, done(ANSWER)],
            },
            "billing",
        ),
    ),
    Seed(
        "from hand to hand, each with something new",
        lambda: chat(
            {
                "a": [INVOICE, over("b")],
                "b": [PARCEL, over("c")],
                "c": [REFUND, over("d")],
                "d": [call("search", text="invoice"), ANSWER],
            },
            "a",
            "b",
            "c",
            "d",
        ),
    ),
    Seed(
        "a chain of handoffs to somebody new each time",
        lambda: chat(
            {"a": [over("b")], "b": [over("c")], "c": [over("d")], "d": [over("e")], "e": [INVOICE, ANSWER]},
            "a",
            "b",
            "c",
            "d",
            "e",
        ),
    ),
    Seed(
        "all give their evidence",
        lambda: team(
            {
                "desk": [[ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")], f"{ANSWER} {FRIDAY}"],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                "shipping": [PARCEL, done(FRIDAY, "tracking.log:9")],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "no evidence where no tool was used",
        lambda: team(
            {
                "desk": [
                    [ask("billing", "Look up INV-311"), ask("manners", "Find a kind phrase")],
                    f"{ANSWER} We are very sorry indeed.",
                ],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                "manners": [done("We are very sorry.")],
            },
            "billing",
            "manners",
        ),
    ),
    Seed(
        "a report of which only the id is named",
        lambda: team(
            {
                "desk": [ask("billing", "Look up INV-311"), "Yes, see ledger.csv:4."],
                "billing": [INVOICE, done("charged on May 2 and on May 3", "ledger.csv:4")],
            },
            "billing",
        ),
    ),
    Seed(
        "a report that is put in other words",
        lambda: team(
            {
                "desk": [ask("shipping", "Where is A-7?"), "Your order will be with you by Friday."],
                "shipping": [PARCEL, done("A-7 left Rotterdam, arrival Friday")],
            },
            "shipping",
        ),
    ),
    Seed(
        "a report that goes into the next brief",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Look up INV-311"),
                    ask("bank", "Pay 49.00 back for two charges of May"),
                    "The money is on its way.",
                ],
                "billing": [INVOICE, done("two charges in May, 49.00 each")],
                "bank": [done("It is on its way, the money comes soon.")],
            },
            "billing",
            "bank",
        ),
    ),
    Seed(
        "it says what it does",
        lambda: team(
            {
                "desk": [
                    thinks("I will ask billing about the invoice.", ask("billing", "Was INV-311 paid twice?")),
                    ANSWER,
                ],
                "billing": [thinks("I use search.", INVOICE), done(ANSWER)],
                "shipping": [],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "it says what it will not do",
        lambda: team(
            {
                "desk": [
                    thinks("No need to ask shipping yet. I ask billing.", ask("billing", "Was INV-311 paid twice?")),
                    ANSWER,
                ],
                "billing": [done(ANSWER)],
                "shipping": [],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "it says what comes later",
        lambda: team(
            {
                "desk": [thinks("After this I will ask shipping.", ask("billing", "Was INV-311 paid twice?")), ANSWER],
                "billing": [done(ANSWER)],
                "shipping": [],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "a name that is a word like any other",
        lambda: team(
            {
                "desk": [
                    thinks("The billing looks odd, and the parcel is late.", ask("shipping", "Where is A-7?")),
                    FRIDAY,
                ],
                "billing": [],
                "shipping": [done(FRIDAY)],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "in JSON, as it says",
        lambda: solo(
            in_json("I call search for the invoice", INVOICE),
            '{"reason": "found", "answer": "Twice, in May."}',
            native=False,
        ),
    ),
    Seed("the action that is taken", lambda: routed(done(ANSWER, action="refund"), right=True)),
    Seed("no action", lambda: routed(done(ANSWER), right=False)),
    Seed(
        "briefs that differ in a number",
        lambda: team(
            {
                "desk": [
                    [
                        ask("billing", "Find all charges of INV-311 in May of 2027"),
                        ask("billing", "Find all charges of INV-312 in May of 2027"),
                    ],
                    f"{ANSWER} INV-312 was charged once.",
                ],
                "billing": [done(ANSWER), done("INV-312 was charged once.")],
            },
            "billing",
        ),
    ),
    Seed(
        "briefs that differ in a word",
        lambda: team(
            {
                "desk": [
                    [
                        ask("billing", "Say how many people live in the capital of France"),
                        ask("billing", "Say how many people live in the capital of Spain"),
                    ],
                    "Two and three millions.",
                ],
                "billing": [done("Two millions."), done("Three millions.")],
            },
            "billing",
        ),
    ),
    Seed(
        "the same brief to two that are not alike",
        lambda: team(
            {
                "desk": [
                    [ask("bull", "Should we buy shares of ACME?"), ask("bear", "Should we buy shares of ACME?")],
                    "Bull says buy, bear says wait.",
                ],
                "bull": [done("Buy, it grows.")],
                "bear": [done("Wait, it is dear.")],
            },
            "bull",
            "bear",
        ),
    ),
    Seed(
        "who asks a person guesses nothing",
        lambda: solo(
            call("ask_user", question="Which invoice?"),
            "I assumed INV-311.",
            tools=(AskUser(),),  # type: ignore[arg-type]
        ),
    ),
)
