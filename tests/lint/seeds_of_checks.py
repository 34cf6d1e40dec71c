"""Seeded runs for the rules about how work is checked before it counts: MAST 3.1 to 3.3."""

from typing import Final

from graphflow.testing import call
from tests.lint.builders import Seed, ask, desk_with_check, done, not_done, publish, team

INVOICE: Final = call("search", text="invoice")
PARCEL: Final = call("search", text="parcel")
ANSWER: Final = "INV-311 was charged twice, on May 2 and on May 3."
FRIDAY: Final = "A-7 left Rotterdam and arrives on Friday."
DRAFT: Final = "You paid twice, and we are sorry."

BAD_CHECKS: Final[dict[str, tuple[Seed, ...]]] = {
    "loss-not-told": (
        Seed(
            "a part that failed",
            lambda: team(
                {
                    "desk": [[ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")], ANSWER],
                    "billing": [done(ANSWER)],
                    "shipping": [not_done("failed", "the carrier has no such order")],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "the only part",
            lambda: team(
                {
                    "desk": [ask("shipping", "Where is A-7?"), "It will be with you tomorrow."],
                    "shipping": [not_done("failed", "the carrier is down")],
                },
                "shipping",
            ),
        ),
        Seed(
            "a part that is half done",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311 in all ledgers"), "It was charged on May 2."],
                    "billing": [not_done("partial", "two ledgers were locked", "a charge on May 2")],
                },
                "billing",
            ),
        ),
        Seed(
            "told in words that the rule does not know",
            lambda: team(
                {
                    "desk": [ask("shipping", "Where is A-7?"), "Shipping is great, it comes tomorrow."],
                    "shipping": [not_done("failed", "the carrier is down")],
                },
                "shipping",
            ),
            missed=True,
        ),
    ),
    "unverified-end": (
        Seed("round the check", lambda: desk_with_check({"writer": [f"I am sure: {DRAFT}"], "check": []}, bypass=True)),
        Seed(
            "a fix that nobody checks",
            lambda: desk_with_check(
                {"writer": [DRAFT], "check": ["This is wrong."], "fixer": ["You paid once."]},
                fixes=True,
            ),
        ),
        Seed(
            "the second version goes round it",
            lambda: desk_with_check(
                {"writer": [DRAFT, f"Now I am sure: {DRAFT}"], "check": ["This is wrong."]},
                bypass=True,
            ),
        ),
        Seed(
            "a verifier whose name does not say so",
            lambda: desk_with_check(
                {"writer": [f"I am sure: {DRAFT}"], "second_pair_of_eyes": []},
                bypass=True,
                name="second_pair_of_eyes",
            ),
            missed=True,
        ),
    ),
    "unasked-verifier": (
        Seed(
            "never",
            lambda: team(
                {
                    "desk": [ask("writer", "Write to the owner of INV-311"), DRAFT],
                    "writer": [done(DRAFT)],
                    "reviewer": [],
                },
                "writer",
                "reviewer",
            ),
        ),
        Seed(
            "before the last version",
            lambda: team(
                {
                    "desk": [
                        ask("writer", "Write to the owner of INV-311"),
                        ask("reviewer", f"Is this right: {DRAFT}"),
                        ask("writer", "Say it is INV-311"),
                        f"INV-311: {DRAFT}",
                    ],
                    "writer": [done(DRAFT), done(f"INV-311: {DRAFT}")],
                    "reviewer": [done("Name the invoice.")],
                },
                "writer",
                "reviewer",
            ),
        ),
        Seed(
            "one of two",
            lambda: team(
                {
                    "desk": [
                        [ask("writer", "Write to the owner of INV-311"), ask("shipping", "Where is A-7?")],
                        f"{DRAFT} {FRIDAY}",
                    ],
                    "writer": [done(DRAFT)],
                    "shipping": [done(FRIDAY)],
                    "fact_checker": [],
                },
                "writer",
                "shipping",
                "fact_checker",
            ),
        ),
    ),
    "uncited-claims": (
        Seed(
            "one of three",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        "It was charged twice in May [ledger.csv:4]. The bank was at fault. You get it back soon.",
                    ],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "only the first",
            lambda: team(
                {
                    "desk": [
                        [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                        "- It was charged twice [ledger.csv:4]\n- The parcel arrives on Friday\n",
                    ],
                    "billing": [done(ANSWER, "ledger.csv:4")],
                    "shipping": [done(FRIDAY, "tracking.log:9")],
                },
                "billing",
                "shipping",
            ),
        ),
        Seed(
            "cited by what nobody has",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        "It was charged twice [ledger.csv:4]. It was our mistake [memo-17].",
                    ],
                    "billing": [done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "an answer that cites nothing at all",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), "It was charged twice in May."],
                    "billing": [done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
    "cites-nothing-known": (
        Seed(
            "a file that nobody saw",
            lambda: team(
                {
                    "desk": [ask("writer", "Write about INV-311"), ask("reviewer", f"Is this right: {DRAFT}"), DRAFT],
                    "writer": [INVOICE, done(DRAFT, "ledger.csv:4")],
                    "reviewer": [done("All is right.", "archive-1998.txt")],
                },
                "writer",
                "reviewer",
            ),
        ),
        Seed(
            "a line that nobody saw",
            lambda: team(
                {
                    "desk": [ask("writer", "Write about INV-311"), ask("reviewer", f"Is this right: {DRAFT}"), DRAFT],
                    "writer": [INVOICE, done(DRAFT, "ledger.csv:4")],
                    "reviewer": [done("All is right.", "ledger.csv:99")],
                },
                "writer",
                "reviewer",
            ),
        ),
        Seed(
            "one of two",
            lambda: team(
                {
                    "desk": [ask("writer", "Write about INV-311"), ask("auditor", f"Is this right: {DRAFT}"), DRAFT],
                    "writer": [INVOICE, done(DRAFT, "ledger.csv:4")],
                    "auditor": [done("All is right.", "ledger.csv:4", "bank.csv:7")],
                },
                "writer",
                "auditor",
            ),
        ),
    ),
    "verifies-itself": (
        Seed(
            "its own finding",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        ask("billing", "Verify that it was charged twice, on May 2 and May 3, once by mistake"),
                        ANSWER,
                    ],
                    "billing": [
                        INVOICE,
                        done("charged twice, on May 2 and on May 3, once by mistake"),
                        done("It was charged twice in May."),
                    ],
                },
                "billing",
            ),
        ),
        Seed(
            "by its evidence",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), ask("billing", "Check ledger.csv:4 again"), ANSWER],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4"), done("It was charged twice.", "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "a review of its own draft",
            lambda: team(
                {
                    "desk": [
                        ask("writer", "Write to the owner of INV-311"),
                        ask("writer", "Review: you paid twice, we refund it within ten days"),
                        "You paid twice, we refund it within ten days.",
                    ],
                    "writer": [
                        done("You paid twice, we refund it within ten days."),
                        done("You paid twice: it is right."),
                    ],
                },
                "writer",
            ),
        ),
        Seed(
            "without a word of it",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), ask("billing", "Verify that."), ANSWER],
                    "billing": [INVOICE, done(ANSWER), done("It was charged twice.")],
                },
                "billing",
            ),
            missed=True,
        ),
    ),
    "dangling-citations": (
        Seed(
            "an id that nobody has",
            lambda: team(
                {
                    "desk": [
                        ask("billing", "Look up INV-311"),
                        "It was charged twice [ledger.csv:4]. It was our mistake [memo-17].",
                    ],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "another line",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), "It was charged twice [ledger.csv:5]."],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
        ),
        Seed(
            "beside one that is known",
            lambda: team(
                {
                    "desk": [ask("billing", "Look up INV-311"), "It was charged twice [ledger.csv:4, bank.csv:7]."],
                    "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                },
                "billing",
            ),
        ),
    ),
}

GOOD_CHECKS: Final[tuple[Seed, ...]] = (
    Seed(
        "an answer with data in it",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Look up INV-311"),
                    f'{ANSWER} {{"pages": [4, 5], "ids": ["INV-311", "INV-312"]}}',
                ],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
            },
            "billing",
        ),
    ),
    Seed(
        "an answer that is data",
        lambda: team(
            {
                "desk": [ask("billing", "Look up INV-311"), f'{{"said": "{ANSWER}", "pages": [4]}}'],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
            },
            "billing",
        ),
    ),
    Seed(
        "a loss that is told",
        lambda: team(
            {
                "desk": [
                    [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                    f"{ANSWER} Where A-7 is could not be found out.",
                ],
                "billing": [done(ANSWER)],
                "shipping": [not_done("failed", "the carrier has no such order")],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "a loss that is told by its name",
        lambda: team(
            {
                "desk": [
                    [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                    f"{ANSWER} Shipping does not answer today.",
                ],
                "billing": [done(ANSWER)],
                "shipping": [not_done("failed", "the carrier is down")],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "a loss that was made up for",
        lambda: team(
            {
                "desk": [ask("shipping", "Where is A-7?"), ask("shipping", "Where is order A-7 now?"), FRIDAY],
                "shipping": [not_done("failed", "the carrier is down"), done(FRIDAY)],
            },
            "shipping",
        ),
    ),
    Seed("checked", lambda: desk_with_check({"writer": [DRAFT], "check": ["It is right."]})),
    Seed(
        "checked twice",
        lambda: desk_with_check({"writer": [DRAFT, "You paid once."], "check": ["This is wrong.", "Fine."]}),
    ),
    Seed(
        "checked, though it could go round",
        lambda: desk_with_check({"writer": [DRAFT], "check": ["It is right."]}, bypass=True),
    ),
    Seed("no fix is needed", lambda: desk_with_check({"writer": [DRAFT], "check": ["Fine."], "fixer": []}, fixes=True)),
    Seed(
        "reviewed",
        lambda: team(
            {
                "desk": [ask("writer", "Write about INV-311"), ask("reviewer", f"Is this right: {DRAFT}"), DRAFT],
                "writer": [INVOICE, done(DRAFT, "ledger.csv:4")],
                "reviewer": [done("All is right, you paid twice.", "ledger.csv:4")],
            },
            "writer",
            "reviewer",
        ),
    ),
    Seed(
        "reviewed after each version",
        lambda: team(
            {
                "desk": [
                    ask("writer", "Write about INV-311"),
                    ask("reviewer", f"Is this right: {DRAFT}"),
                    ask("writer", "Name INV-311 in it"),
                    ask("reviewer", f"And this: INV-311: {DRAFT}"),
                    f"INV-311: {DRAFT}",
                ],
                "writer": [done(DRAFT), done(f"INV-311: {DRAFT}")],
                "reviewer": [done("Name the invoice."), done("Right.")],
            },
            "writer",
            "reviewer",
        ),
    ),
    Seed(
        "the writer was unavailable",
        lambda: team(
            {
                "desk": [ask("writer", "Write about INV-311"), "The writer is unavailable."],
                "writer": [not_done("failed", "no ink")],
                "reviewer": [],
            },
            "writer",
            "reviewer",
        ),
    ),
    Seed(
        "a reviewer that looks something up itself",
        lambda: team(
            {
                "desk": [
                    ask("writer", "Write about A-7"),
                    ask("reviewer", "Is it on Friday that A-7 arrives?"),
                    FRIDAY,
                ],
                "writer": [done(FRIDAY)],
                "reviewer": [PARCEL, done("It arrives on Friday.", "tracking.log:9")],
            },
            "writer",
            "reviewer",
        ),
    ),
    Seed(
        "every claim is cited",
        lambda: team(
            {
                "desk": [
                    [ask("billing", "Look up INV-311"), ask("shipping", "Where is A-7?")],
                    (
                        "# What we found\n\nIt was charged twice [ledger.csv:4]. Your parcel arrives on "
                        "Friday [tracking.log:9]. Anything else?"
                    ),
                ],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
                "shipping": [PARCEL, done(FRIDAY, "tracking.log:9")],
            },
            "billing",
            "shipping",
        ),
    ),
    Seed(
        "an answer for a customer, without citations",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Look up INV-311"),
                    "You were charged twice in May [sic]. We are sorry about it.",
                ],
                "billing": [INVOICE, done(ANSWER, "ledger.csv:4")],
            },
            "billing",
        ),
    ),
    Seed(
        "something else is to be checked",
        lambda: team(
            {
                "desk": [
                    ask("billing", "Look up INV-311"),
                    ask("billing", "Check INV-312 in the ledger"),
                    f"{ANSWER} INV-312 is fine.",
                ],
                "billing": [INVOICE, done(ANSWER), done("INV-312 is fine.")],
            },
            "billing",
        ),
    ),
    Seed(
        "a name that says verifier and means something else",
        lambda: team(
            {
                "desk": [ask("writer", "Write to the owner of INV-311"), DRAFT],
                "writer": [done(DRAFT)],
                "audit_archive": [],
            },
            "writer",
            "audit_archive",
        ),
        missed=True,
    ),
    Seed(
        "whose reports are kept for the next node",
        lambda: team(
            {
                "desk": [ask("billing", "Look up INV-311"), "Over to the next."],
                "billing": [done("charged on May 2 and on May 3")],
            },
            "billing",
            into="reports",
            then=publish,
        ),
    ),
)
